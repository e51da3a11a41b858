// SPDX-License-Identifier: Apache-2.0
/*
 * folder.c - read files of a model's folder, which is not trusted
 *
 * Model, tokenizer and templates are read from one folder, and all of them
 * through this file.  In place of a file there may be a FIFO without a writer,
 * a terminal, or a device that never ends: none of them is waited for or read.
 * The size of a file is bounded in bytes, and JSON also in values, since a byte
 * of text can become fifty of memory.
 *
 * Pure functions: no state, no error texts; callers know the purpose of a file.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/lib/folder.h"

bool folder_is_pointer(const char *text, size_t len)
{
	static const char first[] = "version https://git-lfs.github.com/spec/";

	return len >= sizeof(first) - 1 && !memcmp(text, first, sizeof(first) - 1);
}

int folder_open(const char *path, u64 *size)
{
	struct stat st;
	int fd, ret = 0;

	/*
	 * O_NONBLOCK: do not wait for the writer of a FIFO; regular files
	 * ignore it.
	 */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		ret = -errno;
	else if (!S_ISREG(st.st_mode))
		ret = -EINVAL;
	if (ret) {
		close(fd);
		return ret;
	}
	*size = (u64)st.st_size;
	return fd;
}

/* Read all @size bytes of @fd to @buf. */
static int read_all(int fd, char *buf, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while (len < size) {
		n = read(fd, buf + len, size - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		len += (size_t)n;
	}
	return 0;
}

int folder_read(const char *path, u64 most, char **text, size_t *len)
{
	u64 size = 0;
	char *buf = NULL;
	int fd, ret;

	fd = folder_open(path, &size);
	if (fd < 0)
		return fd;
	ret = size > most ? -EFBIG : 0;
	if (!ret) {
		buf = malloc(size + 1);
		ret = buf ? read_all(fd, buf, size) : -ENOMEM;
	}
	close(fd);
	if (!ret && folder_is_pointer(buf, size))
		ret = -EUCLEAN;
	if (ret) {
		free(buf);
		return ret;
	}
	buf[size] = '\0';
	*text = buf;
	*len = size;
	return 0;
}

bool folder_json_too_many(const char *text, size_t len, u32 most)
{
	bool quoted = false;
	u32 n = 0;
	size_t i;

	for (i = 0; i < len; i++) {
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		else if (!quoted && (text[i] == ',' || text[i] == '[' ||
				     text[i] == '{' || text[i] == ':'))
			n++;
		if (n > most)
			return true;
	}
	return false;
}
