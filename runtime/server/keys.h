/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - who may ask
 */
#ifndef RUNTIME_SERVER_KEYS_H
#define RUNTIME_SERVER_KEYS_H

#include <kvmm/types.h>

#define KEYS_MAX	4096u
#define KEYS_NAME_MAX	64u	/* characters of a name */
#define KEYS_LEN_MAX	512u	/* bytes of a key */

/**
 * struct api_key - one of them
 * @key:  @len bytes, never told
 * @name: for the log
 */
struct api_key {
	char	*key;
	size_t	len;
	char	name[KEYS_NAME_MAX + 1];
};

/**
 * struct keys - all of them; empty: everybody is served
 * @list: [@nr]
 */
struct keys {
	struct api_key	*list;
	u32		nr;
};

/**
 * keys_add() - one more
 * @key:  @len bytes
 * @name: NULL: "key-N"
 *
 * Return: 0; -EINVAL: it can be no key; -EEXIST: it is there; -E2BIG: too many;
 * -ENOMEM.
 */
int __must_check keys_add(struct keys *k, const char *key, size_t len,
			  const char *name);

/**
 * keys_read() - those in a file, one a line
 * @err: gets one line on failure, @size bytes
 *
 * A line is KEY or NAME:KEY; empty ones and those that begin with # are not
 * looked at.
 *
 * Return: 0 or a negative errno with @err.
 */
int __must_check keys_read(struct keys *k, const char *path, char *err,
			   size_t size);

/**
 * keys_find() - whose is it?
 * @p: @n bytes
 *
 * Takes as long for any bytes of this length, whatever the keys are.
 *
 * Return: its number from 1, 0: nobody's.
 */
u32 keys_find(const struct keys *k, const char *p, size_t n);

void keys_free(struct keys *k);

#endif /* RUNTIME_SERVER_KEYS_H */
