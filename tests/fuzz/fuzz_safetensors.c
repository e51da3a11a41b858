// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_safetensors.c - safetensors files of any bytes
 *
 * The input is a file.  One that is refused must say so in one line that names
 * it; one that is taken must keep what is promised of it: every byte of every
 * tensor can be read, sizes fit, names are in order.
 *
 * The first two bytes of an input say how long the header is and how many
 * zeros follow the input, so that a mutation of the text does not end at the
 * length in front of it; unless the first is 255: then all the rest is the
 * file as it is.
 *
 * With -DFUZZ_LIB it is a libFuzzer target for clang:
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -DFUZZ_LIB -Iinclude -I. \
 *		-D_GNU_SOURCE= -o build/fuzz_safetensors \
 *		tests/fuzz/fuzz_safetensors.c \
 *		runtime/model/{safetensors,json,error}.c -ljansson -lm
 *
 * Without, it is a program that makes headers and mutates them by itself:
 *	fuzz_safetensors ROUNDS SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/model/error.h"
#include "runtime/model/safetensors.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static int fd = -1;
static u64 nr_taken;

/* The input as a file; returns its length. */
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

/* What st_open() promises of a file that it took. */
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
		if (t->nr_dims > ST_MAX_DIMS || !t->name ||
		    (u8 *)t->data + t->nr_bytes > (u8 *)f->map + size)
			abort();
		if (t->nr_bytes)
			sum += *(u8 *)t->data +
			       ((u8 *)t->data)[t->nr_bytes - 1];
		if (st_find(f, t->name) != t)
			abort();
	}
	if (total > size)
		abort();
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
	} else if (f || !strstr(err.text, path) || strchr(err.text, '\n') ||
		   ret != -EINVAL) {
		abort();
	}
	return 0;
}

#ifndef FUZZ_LIB
/* ---- by itself ---- */

#include "tests/fuzz/blind.h"

#define INPUT_MAX	4096

/* Pieces that headers are made of, right and wrong */
static const char * const words[] = {
	"{", "}", "[", "]", ":", ",", "\"", "\"dtype\":", "\"shape\":",
	"\"data_offsets\":", "\"__metadata__\":", "{\"a\":\"b\"}", "\"F32\"",
	"\"BF16\"", "\"F4\"", "\"U8\"", "\"F99\"", "0", "1", "-1", "8", "16",
	"1e9", "2.0", "4294967296", "9223372036854775807",
	"18446744073709551616", "[]", "[0,0]", "[0,8]", "[8,16]", "[1,8]",
	"null", "true", "\\u0000", "\\ud800", "\xff", " ", "\"a\"", "\"b\"",
};

/* @n tensors in order, mostly sound; returns the length, *bytes is the data. */
static size_t header(char *buf, u32 n, u32 *bytes)
{
	u32 at = 0, size, i;
	size_t len = 0;

	for (i = 0; i < n; i++, at += size) {
		size = draw(5) * 8;
		len += (size_t)sprintf(buf + len, "%c\"t%u\":{\"dtype\":\"F32\","
				       "\"shape\":[%u,2],\"data_offsets\":[%u,%u]}",
				       i ? ',' : '{', i, size / 8, at,
				       at + size);
	}
	len += (size_t)sprintf(buf + len, "}");
	*bytes = at;
	return len;
}

static size_t mutate(char *buf, size_t len)
{
	const char *w = words[draw(ARRAY_SIZE(words))];
	const size_t at = draw((u32)len + 1), n = strlen(w);
	const size_t cut = min((size_t)draw(8), len - at);

	if (draw(3) == 0 && len) {
		buf[draw((u32)len)] = (char)draw(256);
		return len;
	}
	return put_piece(buf, len, INPUT_MAX - 8, at, cut, w, n);
}

int main(int argc, char **argv)
{
	char buf[INPUT_MAX + 2], *text = buf + 2;
	u64 rounds, i;
	u32 bytes, n;
	size_t len;

	rounds = blind_begin(argc, argv, "fuzz_safetensors", 0);
	for (i = 0; i < rounds; i++) {
		len = header(text, 1 + draw(12), &bytes);
		for (n = draw(4); n--; )
			len = mutate(text, len);
		buf[0] = 0;
		buf[1] = (char)(bytes / 8 + (draw(20) ? 0 : draw(3)));
		LLVMFuzzerTestOneInput((u8 *)buf, len + 2);
	}
	printf("total: %llu files, %llu taken\n", (unsigned long long)rounds,
	       (unsigned long long)nr_taken);
	return 0;
}
#endif
