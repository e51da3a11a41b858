/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.h - a folder with a safetensors file, for fuzz targets
 *
 * The tensors are a text, "name dtype dimension,dimension;", and the file is always valid.
 */
#ifndef TESTS_FUZZ_TENSORS_H
#define TESTS_FUZZ_TENSORS_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/model/safetensors.h"

#define FILE_MAX	(1u << 16)
#define MAX_LINES	64u

static char dir[64];

static inline void dir_remove(void)
{
	static const char * const names[] = {
		"config.json", "model.safetensors", "adapter_config.json",
		"adapter_model.safetensors",
	};
	char path[128];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

static inline FILE *file_open(const char *name)
{
	char path[128];
	FILE *f;

	if (!dir[0]) {
		strcpy(dir, "/dev/shm/fuzz_tensors.XXXXXX");
		if (!mkdtemp(dir))
			abort();
		atexit(dir_remove);
	}
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	if (!f)
		abort();
	return f;
}

/* Bits of an element, or 0. */
static inline u32 bits_of(const char *dtype)
{
	static const struct {
		const char	*name;
		u32		bits;
	} types[] = {
#define x(name, bits)	{ #name, bits },
		ST_DTYPES(x)
#undef x
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(types[i].name, dtype))
			return types[i].bits;
	return 0;
}

/* Append the entry of a tensor.  Return: its bytes, or more than FILE_MAX. */
static inline u64 entry_write(FILE *head, char *line, u64 at, u32 nr)
{
	char name[80] = "", dtype[16] = "", dims[80] = "", *d, *next;
	u64 n;

	if (sscanf(line, "%79[a-zA-Z0-9_.] %15s %79[0-9,]", name, dtype, dims) < 2)
		return FILE_MAX + 1;
	n = bits_of(dtype);
	if (!n)
		return FILE_MAX + 1;
	for (d = strtok_r(dims, ",", &next); d; d = strtok_r(NULL, ",", &next)) {
		n *= min(strtoull(d, NULL, 10), (unsigned long long)FILE_MAX);
		if (n > FILE_MAX * 8)
			return FILE_MAX + 1;
	}
	if (n % 8)
		return FILE_MAX + 1;
	sscanf(line, "%*s %*s %79[0-9,]", dims);
	fprintf(head, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
		"\"data_offsets\":[%llu,%llu]}", nr ? ',' : '{', name, dtype,
		line[0] && dims[0] ? dims : "", (unsigned long long)at,
		(unsigned long long)(at + n / 8));
	return n / 8;
}

/* Write a file of tensors; false if it would be too large. */
static inline bool tensors_write(const char *name, char *text, const u8 *bytes, size_t len)
{
	char *head_text = NULL, *line, *next;
	size_t head_len = 0;
	FILE *head = open_memstream(&head_text, &head_len), *f;
	u64 at = 0, size, i;
	u32 nr = 0;

	for (line = strtok_r(text, ";", &next); line && nr < MAX_LINES;
	     line = strtok_r(NULL, ";", &next)) {
		size = entry_write(head, line, at, nr);
		if (at + size > FILE_MAX)
			continue;
		at += size;
		nr++;
	}
	fputs(nr ? "}" : "{}", head);
	fclose(head);
	f = file_open(name);
	i = head_len;
	fwrite(&i, sizeof(i), 1, f);
	fwrite(head_text, 1, head_len, f);
	for (i = 0; i < at; i++)
		fputc(len ? bytes[i % len] : 0, f);
	fclose(f);
	free(head_text);
	return nr;
}

#endif /* TESTS_FUZZ_TENSORS_H */
