/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h - read files of a model's folder, which is not trusted
 */
#ifndef RUNTIME_LIB_FOLDER_H
#define RUNTIME_LIB_FOLDER_H

#include <kvmm/types.h>

/* A sentence of messages, after the name of a file that folder_is_pointer() */
#define FOLDER_POINTER	"a Git LFS pointer, not the file itself: run git lfs pull in the model folder, or hf download"

/**
 * folder_is_pointer() - is the text what Git leaves in place of a large file?
 * @text:	the first @len bytes of a file
 *
 * A clone without Git LFS has such texts of three lines instead of the weights,
 * and sometimes instead of tokenizer.json.
 */
bool __must_check folder_is_pointer(const char *text, size_t len);

/**
 * folder_open() - open a regular file for reading
 * @path:	the file
 * @size:	gets its bytes
 *
 * Return: the descriptor; -EINVAL if it is no regular file, which is not waited
 * for; the error of open() or fstat().
 */
int __must_check folder_open(const char *path, u64 *size);

/**
 * folder_read() - read a regular file as a whole
 * @path:	the file
 * @most:	most bytes of the file
 * @text:	gets its bytes and a NUL after them, to be freed with free()
 * @len:	gets their number
 *
 * Return: 0; -EINVAL if it is no regular file; -EFBIG; -EIO if it became
 * shorter meanwhile; -EUCLEAN if folder_is_pointer(); -ENOMEM; the error of
 * open() or read().
 */
int __must_check folder_read(const char *path, u64 most, char **text,
			     size_t *len);

/*
 * Does JSON @text hold more than @most values, keys not counted?  It need not
 * be valid JSON.  The check bounds the memory and time of parsing for texts of
 * any size.
 */
bool folder_json_too_many(const char *text, size_t len, u32 most);

#endif /* RUNTIME_LIB_FOLDER_H */
