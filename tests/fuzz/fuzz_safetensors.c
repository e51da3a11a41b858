// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_safetensors.c - safetensors files of any bytes
 *
 * The input is a file.  A refusal must be one line that names the file.  A file
 * that is accepted must keep the promises of st_open(): every byte of every
 * tensor can be read, sizes fit, names are in order.
 *
 * The first two bytes of an input say how long the header is and how many zeros
 * follow the input, so that a mutated text still has the right length in front
 * of it.  If the first byte is 255 the bytes after the second are the file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/model/error.h"
#include "runtime/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

static int fd = -1;
static u64 nr_taken;

/* Write the input as a file.  Return: its length. */
static size_t file_write(const u8 *data, size_t size)
{
	static const u8 zeros[255 * 8];
	const u64 len = size - 2;
	size_t tail = 0;

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 0))
		abort();
	if (data[0] != 255) {
		const u64 head = len > data[0] ? len - data[0] : 0;

		tail = (size_t)data[1] * 8;
		if (pwrite(fd, &head, 8, 0) != 8 ||
		    pwrite(fd, data + 2, len, 8) != (ssize_t)len ||
		    pwrite(fd, zeros, tail, 8 + (off_t)len) != (ssize_t)tail)
			abort();
		return 8 + len + tail;
	}
	if (pwrite(fd, data + 2, len, 0) != (ssize_t)len)
		abort();
	return len;
}

/* Check the promises of st_open() for an accepted file. */
static void check_taken(const struct st_file *f, size_t size)
{
	const struct st_tensor *t;
	volatile u8 sum = 0;
	char shape[16];
	u64 total = 0;
	u32 i;

	for (i = 0; i < f->nr_tensors; i++) {
		t = &f->tensors[i];
		total += t->nr_bytes;
		st_shape_str(t->shape, t->nr_dims, shape, sizeof(shape));
		FUZZ_LAW(t->name && t->nr_dims <= ST_MAX_DIMS, "%u dimensions",
			 t->nr_dims);
		FUZZ_LAW((u8 *)t->data + t->nr_bytes <= (u8 *)f->map + size,
			 "%llu bytes end past the file",
			 (unsigned long long)t->nr_bytes);
		if (t->nr_bytes)
			sum += *(u8 *)t->data +
			       ((u8 *)t->data)[t->nr_bytes - 1];
		FUZZ_LAW(st_find(f, t->name) == t, "%s is not found", t->name);
	}
	FUZZ_LAW(total <= size, "%llu bytes", (unsigned long long)total);
	nr_taken++;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct model_error err = { "" };
	struct st_file *f = NULL;
	char path[40];
	size_t len;
	int ret;

	if (size < 2)
		return 0;
	len = file_write(data, size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ret = st_open(path, &f, &err);
	if (!ret) {
		check_taken(f, len);
		st_close(f);
	} else {
		FUZZ_LAW(!f && ret == -EINVAL && strstr(err.text, path) &&
			 !strchr(err.text, '\n'), "%d: %s", ret, err.text);
	}
	return 0;
}

#ifndef FUZZ_LIB
/* ---- own mutations ---- */

/* Pieces of headers, right and wrong */
static const char * const words[] = {
	"{", "}", "[", "]", ":", ",", "\"", "\"dtype\":", "\"shape\":",
	"\"data_offsets\":", "\"__metadata__\":", "{\"a\":\"b\"}", "\"F32\"",
	"\"BF16\"", "\"F4\"", "\"U8\"", "\"F99\"", "0", "1", "-1", "8", "16",
	"1e9", "2.0", "4294967296", "9223372036854775807",
	"18446744073709551616", "[]", "[0,0]", "[0,8]", "[8,16]", "[1,8]",
	"null", "true", "\\u0000", "\\ud800", "\xff", " ", "\"a\"", "\"b\"",
};

/* Write @n tensors in order, mostly valid; *bytes: data.  Return: the length. */
static size_t header(char *buf, u32 n, u32 *bytes)
{
	u32 at = 0, size, i;
	size_t len = 0;

	for (i = 0; i < n; i++, at += size) {
		size = fuzz_draw(5) * 8;
		len += (size_t)sprintf(buf + len, "%c\"t%u\":{\"dtype\":\"F32\","
				       "\"shape\":[%u,2],\"data_offsets\":[%u,%u]}",
				       i ? ',' : '{', i, size / 8, at,
				       at + size);
	}
	len += (size_t)sprintf(buf + len, "}");
	*bytes = at;
	return len;
}

/* An input that was read, or a new one. */
static size_t begin(u8 *buf, size_t max)
{
	size_t len;
	const u8 *data = fuzz_input(&len);
	u32 bytes;

	if (!fuzz_draw(3)) {
		len = min(len, max);
		memcpy(buf, data, len);
		return len;
	}
	len = header((char *)buf + 2, 1 + fuzz_draw(12), &bytes);
	buf[0] = 0;
	buf[1] = (u8)(bytes / 8 + (fuzz_draw(20) ? 0 : fuzz_draw(3)));
	return len + 2;
}

static size_t mutate(u8 *buf, size_t len, size_t max)
{
	const char *w = words[fuzz_draw(ARRAY_SIZE(words))];
	const size_t at = min(len, (size_t)2 + fuzz_draw((u32)len));

	if (!fuzz_draw(3)) {
		if (at < len)
			buf[at] = (u8)fuzz_draw(256);
		return len;
	}
	return fuzz_put(buf, len, max, at, fuzz_draw(8), w, strlen(w));
}

const struct fuzz_own fuzz_own = {
	.words = words, .nr_words = ARRAY_SIZE(words), .begin = begin,
	.mutate = mutate, .changes = 3, .taken = &nr_taken,
};
#endif
