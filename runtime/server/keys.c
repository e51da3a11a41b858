// SPDX-License-Identifier: Apache-2.0
/*
 * keys.c - API keys
 *
 * Keys are read once, before there are threads.  A client's key is compared
 * with all of them, and each comparison covers all of its bytes.  So the time
 * depends only on the length of the client's key, which the client knows, and
 * on the number of keys.
 *
 * The number of a key is the flow of its requests; the log shows its name.  No
 * key is ever written anywhere.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <kvmm/log.h>

#include "runtime/server/keys.h"

static bool is_plain(const char *p, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if ((u8)p[i] <= 0x20 || (u8)p[i] >= 0x7f)
			return false;
	return n > 0;
}

/* Nonzero if @key differs from the @n bytes at @p, or if the lengths differ. */
static u32 key_differs(const struct api_key *key, const char *p, size_t n)
{
	u32 differ = key->len != n;
	size_t i;

	for (i = 0; i < n; i++)
		differ |= (u8)(p[i] ^ key->key[i % key->len]);
	return differ;
}

u32 keys_find(const struct keys *k, const char *p, size_t n)
{
	u32 i, found = 0;

	for (i = 0; i < k->nr; i++) {
		/* All ones if the keys are equal. */
		const u32 same = (u32)(((u64)key_differs(&k->list[i], p, n) - 1) >> 32);

		found |= same & (i + 1);
	}
	return found;
}

int keys_add(struct keys *k, const char *key, size_t len, const char *name)
{
	struct api_key *list, *new;

	if (len > KEYS_LEN_MAX || !is_plain(key, len))
		return -EINVAL;
	if (name && (strlen(name) > KEYS_NAME_MAX || !is_plain(name, strlen(name))))
		return -EINVAL;
	if (k->nr == KEYS_MAX)
		return -E2BIG;
	if (keys_find(k, key, len))
		return -EEXIST;
	list = realloc(k->list, (k->nr + 1) * sizeof(*list));
	if (!list)
		return -ENOMEM;
	k->list = list;
	new = &list[k->nr];
	*new = (struct api_key){ .key = malloc(len), .len = len };
	if (!new->key)
		return -ENOMEM;
	memcpy(new->key, key, len);
	if (name)
		strcpy(new->name, name);
	else
		snprintf(new->name, sizeof(new->name), "key-%u", k->nr + 1);
	k->nr++;
	return 0;
}

/* ---- key files ---- */

static int read_line(struct keys *k, char *line)
{
	const char *name = NULL;
	char *key;

	line += strspn(line, " \t");
	line[strcspn(line, "\r\n")] = '\0';
	key = strchr(line, '\0');
	while (key > line && strchr(" \t", key[-1]))
		*--key = '\0';
	if (!*line || *line == '#')
		return 0;
	key = strchr(line, ':');
	if (key) {
		*key++ = '\0';
		name = line;
	}
	return keys_add(k, key ? key : line, strlen(key ? key : line), name);
}

static const char *line_fault(int err)
{
	switch (-err) {
	case EINVAL:
		return "is no KEY and no NAME:KEY: a key has 1 to 512 printable characters, a name 1 to 64";
	case EEXIST:
		return "is a key that is there already: leave one out";
	case E2BIG:
		return "is one key too many: give at most 4096";
	default:
		return "there is no memory for it";
	}
}

static void warn_of_readers(FILE *f, const char *path)
{
	struct stat st;

	if (!fstat(fileno(f), &st) && (st.st_mode & 0077) && S_ISREG(st.st_mode))
		pr_warn("--api-key-file %.200s can be read by others: chmod 600", path);
}

int keys_read(struct keys *k, const char *path, char *err, size_t size)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;
	u32 at = 0;
	int ret = 0;
	ssize_t n;

	if (!f) {
		ret = -errno;
		snprintf(err, size, "--api-key-file %.200s: %s: give a file with one key a line",
			 path, strerror(errno));
		return ret;
	}
	warn_of_readers(f, path);
	while (!ret && (n = getline(&line, &room, f)) >= 0) {
		at++;
		/*
		 * Without this check UTF-16 would make keys of one character.
		 */
		ret = strlen(line) == (size_t)n ? read_line(k, line) : -EINVAL;
		explicit_bzero(line, room);
	}
	if (ret)
		snprintf(err, size, "--api-key-file %.200s: line %u %s", path,
			 at, line_fault(ret));
	if (!ret && ferror(f)) {
		ret = -EIO;
		snprintf(err, size, "--api-key-file %.200s cannot be read", path);
	}
	if (!ret && !k->nr) {
		ret = -ENODATA;
		snprintf(err, size, "--api-key-file %.200s has no key: every request would be refused", path);
	}
	free(line);
	fclose(f);
	return ret;
}

void keys_free(struct keys *k)
{
	u32 i;

	for (i = 0; i < k->nr; i++) {
		explicit_bzero(k->list[i].key, k->list[i].len);
		free(k->list[i].key);
	}
	free(k->list);
	memset(k, 0, sizeof(*k));
}
