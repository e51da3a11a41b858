/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h - the files of a model's folder, which a stranger may have made
 */
#ifndef RUNTIME_LIB_FOLDER_H
#define RUNTIME_LIB_FOLDER_H

#include <kvmm/types.h>

/**
 * folder_open() - open a regular file for reading
 * @path:	the file
 * @size:	gets its bytes
 *
 * Return: the descriptor; -EINVAL if it is something else, which is not waited
 * for; the error of open() or fstat().
 */
int __must_check folder_open(const char *path, u64 *size);

/**
 * folder_read() - read a regular file as a whole
 * @path:	the file
 * @most:	bytes that it may have
 * @text:	gets its bytes, for free(), and a NUL behind them
 * @len:	gets their number
 *
 * Return: 0; -EINVAL if it is something else; -EFBIG; -EIO if it became shorter
 * meanwhile; -ENOMEM; the error of open() or read().
 */
int __must_check folder_read(const char *path, u64 most, char **text,
			     size_t *len);

/*
 * Whether JSON @text, which may be no JSON, holds more than @most values, keys
 * not counted: it bounds the memory and time of parsing it, whatever its size.
 */
bool folder_json_too_many(const char *text, size_t len, u32 most);

#endif /* RUNTIME_LIB_FOLDER_H */
