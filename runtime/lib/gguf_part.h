/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_part.h - one file of a model in GGUF, for gguf*.c
 */
#ifndef RUNTIME_LIB_GGUF_PART_H
#define RUNTIME_LIB_GGUF_PART_H

#include <endian.h>

#include "runtime/lib/gguf.h"

#define GGUF_AGAIN	"download or copy the file again"
#define GGUF_NAME_FMT	"%.120s"

/* Metadata of real models has far less.  It bounds the work for a lie. */
#define GGUF_MAX_KEYS		(1u << 20)
#define GGUF_MAX_TENSORS	(1u << 20)
#define GGUF_MAX_KEY_LEN	65535u
#define GGUF_MAX_NAME_LEN	64u

/* Where a failure is reported. */
struct gguf_err {
	char	*text;
	size_t	size;
};

/**
 * struct gguf_value - one key of the metadata
 * @key:	NUL-terminated, on the heap
 * @kind:	kind of the value
 * @items:	GGUF_ARRAY: kind of its items
 * @nr:		GGUF_ARRAY: how many
 * @at:		the value in the map; GGUF_ARRAY: its first item
 * @nr_bytes:	bytes from there to the end of the value
 * @strs:	GGUF_ARRAY of strings: each in the map
 */
struct gguf_value {
	char		*key;
	u32		kind;
	u32		items;
	u64		nr;
	const u8	*at;
	u64		nr_bytes;
	const u8	**strs;
};

/**
 * struct gguf_part - one mapped file
 * @path:	its path
 * @map:	its bytes
 * @size:	how many
 * @values:	the metadata, sorted by key
 * @nr_values:	how many
 * @tensors:	its tensors, in the order of their data
 * @nr_tensors:	how many
 */
struct gguf_part {
	char			*path;
	const u8		*map;
	u64			size;
	struct gguf_value	*values;
	u32			nr_values;
	struct gguf_tensor	*tensors;
	u32			nr_tensors;
};

/* Report a failure; returns @code. */
int gguf_fail(const struct gguf_err *err, int code, const char *fmt, ...)
	__printf(3, 4);

/* Map the file at @part->path and read it; gguf_part_close() in every case. */
int gguf_part_open(struct gguf_part *part, const struct gguf_err *err);
void gguf_part_close(struct gguf_part *part);

/* The part with the metadata. */
const struct gguf_part *gguf_first(const struct gguf *g);

const struct gguf_value *gguf_part_find(const struct gguf_part *part,
					const char *key);

/* Size of a scalar of that kind; 0 for strings and arrays. */
u32 gguf_kind_size(u32 kind);

/* A whole number that is not negative at @p; false if it is another value. */
bool gguf_scalar_u64(u32 kind, const u8 *p, u64 *out);

static inline u16 gguf_le16(const u8 *p)
{
	u16 v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static inline u32 gguf_le32(const u8 *p)
{
	u32 v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static inline u64 gguf_le64(const u8 *p)
{
	u64 v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

#endif /* RUNTIME_LIB_GGUF_PART_H */
