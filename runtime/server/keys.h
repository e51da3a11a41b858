/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - API keys
 */
#ifndef RUNTIME_SERVER_KEYS_H
#define RUNTIME_SERVER_KEYS_H

#include <kvmm/types.h>

#define KEYS_MAX	4096u
#define KEYS_NAME_MAX	64u	/* characters of a name */
#define KEYS_LEN_MAX	512u	/* bytes of a key */

/**
 * struct api_key - one key
 * @key:  @len bytes, never shown
 * @name: for the log
 */
struct api_key {
	char	*key;
	size_t	len;
	char	name[KEYS_NAME_MAX + 1];
};

/**
 * struct keys - all keys; without keys every client is served
 * @list: [@nr]
 */
struct keys {
	struct api_key	*list;
	u32		nr;
};

/**
 * keys_add() - add a key
 * @key:  @len bytes
 * @name: NULL: "key-N"
 *
 * Return: 0; -EINVAL: not a valid key; -EEXIST: the key is there already;
 * -E2BIG: too many keys; -ENOMEM.
 */
int __must_check keys_add(struct keys *k, const char *key, size_t len,
			  const char *name);

/**
 * keys_read() - add the keys of a file, one a line
 * @err: gets one line on failure, @size bytes
 *
 * A line is KEY or NAME:KEY.  Empty lines and lines that begin with # are
 * skipped.
 *
 * Return: 0 or a negative errno with @err.
 */
int __must_check keys_read(struct keys *k, const char *path, char *err,
			   size_t size);

/**
 * keys_find() - find a client's key
 * @p: @n bytes
 *
 * The time depends only on the length and on the number of keys.
 *
 * Return: the number of the key from 1, 0: there is no such key.
 */
u32 keys_find(const struct keys *k, const char *p, size_t n);

void keys_free(struct keys *k);

#endif /* RUNTIME_SERVER_KEYS_H */
