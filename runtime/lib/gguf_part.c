// SPDX-License-Identifier: Apache-2.0
/*
 * gguf_part.c - read one GGUF file that is not trusted
 *
 * A file is a header (magic, version, number of tensors, number of keys), the keys
 * with their values, a record of each tensor, padding, and the data of the tensors.
 * All numbers are little-endian and at any address.
 *
 * A number of things from the file is never used for an allocation.  Lists grow as
 * their entries are read, and an entry has bytes of its own in the file, so memory
 * is a multiple of the bytes that were read.  After gguf_part_open() all strings, items and
 * tensors lie inside the map, keys and names occur once, and the data of tensors does
 * not overlap.
 *
 * The map is private and read-only.  If another program shortens the file meanwhile,
 * this process ends (mapped.h): replace models by rename.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/quant.h"
#include "runtime/lib/folder.h"
#include "runtime/lib/gguf_part.h"
#include "runtime/lib/mapped.h"

#define DEF_ALIGN	32u
#define MAX_ALIGN	(1u << 30)
#define VERSION		3u

/* A type of tensors; @elems is 0 if it is not supported. */
struct gguf_type {
	const char	*name;
	u32		number;
	u32		elems;
	u32		bytes;
};

static const struct gguf_type gguf_types[] = {
	{ "F32",	0,	1,	4 },
	{ "F16",	1,	1,	2 },
	{ "BF16",	30,	1,	2 },
#define x(id, name, elems, bytes, number)	{ name, number, elems, bytes },
	KERN_BLOCK_TYPES(x)
#undef x
	{ "Q4_2",	4,	0,	0 },
	{ "Q4_3",	5,	0,	0 },
	{ "Q8_1",	9,	0,	0 },
	{ "Q8_K",	15,	0,	0 },
	{ "IQ2_XXS",	16,	0,	0 },
	{ "IQ2_XS",	17,	0,	0 },
	{ "IQ3_XXS",	18,	0,	0 },
	{ "IQ1_S",	19,	0,	0 },
	{ "IQ3_S",	21,	0,	0 },
	{ "IQ2_S",	22,	0,	0 },
	{ "I8",		24,	0,	0 },
	{ "I16",	25,	0,	0 },
	{ "I32",	26,	0,	0 },
	{ "I64",	27,	0,	0 },
	{ "F64",	28,	0,	0 },
	{ "IQ1_M",	29,	0,	0 },
	{ "Q4_0_4_4",	31,	0,	0 },
	{ "Q4_0_4_8",	32,	0,	0 },
	{ "Q4_0_8_8",	33,	0,	0 },
	{ "TQ1_0",	34,	0,	0 },
	{ "TQ2_0",	35,	0,	0 },
	{ "IQ4_NL_4_4",	36,	0,	0 },
	{ "IQ4_NL_4_8",	37,	0,	0 },
	{ "IQ4_NL_8_8",	38,	0,	0 },
	{ "NVFP4",	40,	0,	0 },
	{ "Q1_0",	41,	0,	0 },
};

/* The place of reading. */
struct gguf_at {
	struct gguf_part	*part;
	const struct gguf_err	*err;
	u64			at;
};

static int at_bad(const struct gguf_at *a, const char *what)
{
	return gguf_fail(a->err, -EINVAL, "%s: %s: " GGUF_AGAIN, a->part->path,
			 what);
}

static int at_no_memory(const struct gguf_at *a)
{
	return gguf_fail(a->err, -ENOMEM, "%s: no memory for the metadata: "
			 "stop other programs", a->part->path);
}

/* The next @n bytes, or NULL if the file ends before. */
static const u8 *at_take(struct gguf_at *a, u64 n)
{
	const u8 *p = a->part->map + a->at;

	if (n > a->part->size - a->at)
		return NULL;
	a->at += n;
	return p;
}

static bool at_u32(struct gguf_at *a, u32 *out)
{
	const u8 *p = at_take(a, 4);

	if (p)
		*out = gguf_le32(p);
	return p;
}

static bool at_u64(struct gguf_at *a, u64 *out)
{
	const u8 *p = at_take(a, 8);

	if (p)
		*out = gguf_le64(p);
	return p;
}

/* The bytes of a string behind its length. */
static const u8 *at_string(struct gguf_at *a, u64 *len)
{
	return at_u64(a, len) ? at_take(a, *len) : NULL;
}

/* A name on the heap; the reason is reported with @what. */
static int at_name(struct gguf_at *a, u64 most, const char *what, char **out)
{
	const u8 *p;
	char bad[80];
	u64 len = 0;

	p = at_string(a, &len);
	if (!p || !len || len > most || memchr(p, 0, len)) {
		snprintf(bad, sizeof(bad), "%s %s", what,
			 !p ? "lies outside of the file" :
			 !len ? "is empty" :
			 len > most ? "is too long" : "has a zero byte");
		return at_bad(a, bad);
	}
	*out = strndup((const char *)p, len);
	return *out ? 0 : at_no_memory(a);
}

/* Make room for one more entry of a list; the number of entries says when. */
static int list_grow(void **list, u32 nr, size_t size)
{
	void *more;

	if (nr && !is_power_of_2(nr))
		return 0;
	more = realloc(*list, (nr ? 2 * (size_t)nr : 1) * size);
	if (!more)
		return -ENOMEM;
	*list = more;
	return 0;
}

/* ---- metadata ---- */

static int value_bad(const struct gguf_at *a, const struct gguf_value *v,
		     const char *why)
{
	return gguf_fail(a->err, -EINVAL, "%s: " GGUF_NAME_FMT ": %s: "
			 GGUF_AGAIN, a->part->path, v->key, why);
}

/* The strings of an array: first check all of them, then note their places. */
static int value_read_strings(struct gguf_at *a, struct gguf_value *v)
{
	const u64 from = a->at;
	u64 i, len;

	for (i = 0; i < v->nr; i++)
		if (!at_string(a, &len))
			return value_bad(a, v, "the list ends outside of the "
					 "file");
	v->strs = calloc(v->nr + 1, sizeof(*v->strs));
	if (!v->strs)
		return at_no_memory(a);
	a->at = from;
	for (i = 0; i < v->nr; i++) {
		v->strs[i] = a->part->map + a->at;
		at_string(a, &len);
	}
	return 0;
}

static int value_check_bools(struct gguf_at *a, const struct gguf_value *v,
			     u64 nr)
{
	u64 i;

	for (i = 0; i < nr; i++)
		if (v->at[i] > 1)
			return value_bad(a, v, "is neither true nor false");
	return 0;
}

static int value_read_array(struct gguf_at *a, struct gguf_value *v)
{
	u64 bytes;

	if (!at_u32(a, &v->items) || !at_u64(a, &v->nr))
		return value_bad(a, v, "the file ends in the list");
	v->at = a->part->map + a->at;
	if (v->items == GGUF_ARRAY)
		return gguf_fail(a->err, -EOPNOTSUPP, "%s: " GGUF_NAME_FMT
				 ": a list of lists is not supported: convert "
				 "the model again", a->part->path, v->key);
	if (v->items == GGUF_STRING)
		return value_read_strings(a, v);
	if (!gguf_kind_size(v->items))
		return value_bad(a, v, "the kind of its items is unknown");
	if (__builtin_mul_overflow(v->nr, (u64)gguf_kind_size(v->items),
				   &bytes) || !at_take(a, bytes))
		return value_bad(a, v, "the list ends outside of the file");
	return v->items == GGUF_BOOL ? value_check_bools(a, v, v->nr) : 0;
}

static int value_read(struct gguf_at *a, struct gguf_value *v)
{
	u64 len;

	v->at = a->part->map + a->at;
	switch (v->kind) {
	case GGUF_ARRAY:
		return value_read_array(a, v);
	case GGUF_STRING:
		return at_string(a, &len) ? 0 :
		       value_bad(a, v, "the text ends outside of the file");
	default:
		break;
	}
	if (!gguf_kind_size(v->kind))
		return value_bad(a, v, "the kind of its value is unknown");
	if (!at_take(a, gguf_kind_size(v->kind)))
		return value_bad(a, v, "the file ends in the value");
	return v->kind == GGUF_BOOL ? value_check_bools(a, v, 1) : 0;
}

static int value_next(struct gguf_at *a)
{
	struct gguf_part *part = a->part;
	struct gguf_value *v;
	int ret;

	if (list_grow((void **)&part->values, part->nr_values, sizeof(*v)))
		return at_no_memory(a);
	v = &part->values[part->nr_values];
	memset(v, 0, sizeof(*v));
	ret = at_name(a, GGUF_MAX_KEY_LEN, "a key", &v->key);
	if (ret)
		return ret;
	part->nr_values++;
	if (!at_u32(a, &v->kind))
		return value_bad(a, v, "the file ends in the value");
	ret = value_read(a, v);
	v->nr_bytes = (u64)(part->map + a->at - v->at);
	return ret;
}

static int value_cmp(const void *pa, const void *pb)
{
	const struct gguf_value *a = pa, *b = pb;

	return strcmp(a->key, b->key);
}

static int values_read(struct gguf_at *a, u64 nr)
{
	struct gguf_part *part = a->part;
	u64 i;
	int ret;

	for (i = 0; i < nr; i++) {
		ret = value_next(a);
		if (ret)
			return ret;
	}
	if (!nr)
		return 0;
	qsort(part->values, part->nr_values, sizeof(*part->values), value_cmp);
	for (i = 1; i < nr; i++)
		if (!value_cmp(&part->values[i - 1], &part->values[i]))
			return value_bad(a, &part->values[i],
					 "the key is there twice");
	return 0;
}

const struct gguf_value *gguf_part_find(const struct gguf_part *part,
					const char *key)
{
	const struct gguf_value want = { .key = (char *)key };

	return part->nr_values ? bsearch(&want, part->values, part->nr_values,
					 sizeof(want), value_cmp) : NULL;
}

/* ---- tensors ---- */

static int tensor_bad(const struct gguf_at *a, const struct gguf_tensor *t,
		      const char *why)
{
	return gguf_fail(a->err, -EINVAL, "%s: tensor " GGUF_NAME_FMT ": %s: "
			 GGUF_AGAIN, a->part->path, t->name, why);
}

static const struct gguf_type *type_find(u32 number)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(gguf_types); i++)
		if (gguf_types[i].number == number && number != KERN_NO_GGUF)
			return &gguf_types[i];
	return NULL;
}

/* Set the bytes of a tensor from its type and dimensions. */
static int tensor_size(const struct gguf_at *a, struct gguf_tensor *t)
{
	const struct gguf_type *type = type_find(t->type);

	if (!type)
		return gguf_fail(a->err, -EOPNOTSUPP, "%s: tensor "
				 GGUF_NAME_FMT ": type number %u is not known: "
				 "use a file in F16, Q8_0 or Q4_K_M",
				 a->part->path, t->name, t->type);
	if (!type->elems)
		return gguf_fail(a->err, -EOPNOTSUPP, "%s: tensor "
				 GGUF_NAME_FMT ": type %s is not supported: "
				 "use a file in F16, Q8_0 or Q4_K_M",
				 a->part->path, t->name, type->name);
	if (t->dims[0] % type->elems)
		return tensor_bad(a, t, "a row is no whole number of blocks");
	if (__builtin_mul_overflow(t->nr_elems / type->elems, (u64)type->bytes,
				   &t->nr_bytes))
		return tensor_bad(a, t, "its size overflows 64 bits");
	return 0;
}

static int tensor_read_dims(struct gguf_at *a, struct gguf_tensor *t)
{
	u32 i;

	if (!at_u32(a, &t->nr_dims))
		return tensor_bad(a, t, "the file ends in its record");
	if (!t->nr_dims || t->nr_dims > GGUF_MAX_DIMS)
		return tensor_bad(a, t, "it has no dimension, or more than 4");
	t->nr_elems = 1;
	for (i = 0; i < t->nr_dims; i++) {
		if (!at_u64(a, &t->dims[i]))
			return tensor_bad(a, t, "the file ends in its record");
		if (!t->dims[i])
			return tensor_bad(a, t, "a dimension is 0");
		if (__builtin_mul_overflow(t->nr_elems, t->dims[i],
					   &t->nr_elems))
			return tensor_bad(a, t, "its size overflows 64 bits");
	}
	return 0;
}

/* Read one record.  Until tensors_place(), ->data is an offset. */
static int tensor_next(struct gguf_at *a)
{
	struct gguf_part *part = a->part;
	struct gguf_tensor *t;
	u64 offset;
	char *name;
	int ret;

	if (list_grow((void **)&part->tensors, part->nr_tensors, sizeof(*t)))
		return at_no_memory(a);
	t = &part->tensors[part->nr_tensors];
	memset(t, 0, sizeof(*t));
	ret = at_name(a, GGUF_MAX_NAME_LEN, "the name of a tensor", &name);
	if (ret)
		return ret;
	part->nr_tensors++;
	t->name = name;
	t->path = part->path;
	ret = tensor_read_dims(a, t);
	if (ret)
		return ret;
	if (!at_u32(a, &t->type) || !at_u64(a, &offset))
		return tensor_bad(a, t, "the file ends in its record");
	t->data = (const void *)(uintptr_t)offset;
	return tensor_size(a, t);
}

static int tensor_cmp_data(const void *pa, const void *pb)
{
	const struct gguf_tensor *a = pa, *b = pb;

	if (a->data != b->data)
		return (uintptr_t)a->data < (uintptr_t)b->data ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* Check the ranges, and turn offsets into addresses. */
static int tensors_place(struct gguf_at *a, u64 align)
{
	struct gguf_part *part = a->part;
	const u64 base = ALIGN_UP(a->at, align);
	const u64 avail = base < part->size ? part->size - base : 0;
	struct gguf_tensor *t;
	u64 from, end = 0;
	u32 i;

	if (!part->nr_tensors)
		return 0;
	qsort(part->tensors, part->nr_tensors, sizeof(*t), tensor_cmp_data);
	for (i = 0; i < part->nr_tensors; i++) {
		t = &part->tensors[i];
		from = (uintptr_t)t->data;
		if (from % align)
			return tensor_bad(a, t, "its offset is no multiple of "
					  "general.alignment");
		if (from > avail || t->nr_bytes > avail - from)
			return tensor_bad(a, t, "its data ends outside of the "
					  "file");
		if (from < end)
			return tensor_bad(a, t, "it overlaps another tensor");
		end = from + t->nr_bytes;
		t->data = part->map + base + from;
	}
	return 0;
}

static int tensors_read(struct gguf_at *a, u64 nr)
{
	const struct gguf_value *v = gguf_part_find(a->part,
						    "general.alignment");
	u64 align = DEF_ALIGN, i;
	int ret;

	if (v && (!gguf_scalar_u64(v->kind, v->at, &align) ||
		  !is_power_of_2(align) || align > MAX_ALIGN))
		return value_bad(a, v, "is no power of two up to 2^30");
	for (i = 0; i < nr; i++) {
		ret = tensor_next(a);
		if (ret)
			return ret;
	}
	return tensors_place(a, align);
}

/* ---- the file ---- */

static int part_check_version(const struct gguf_at *a, u32 version)
{
	if (version == VERSION)
		return 0;
	if (version == __builtin_bswap32(VERSION))
		return gguf_fail(a->err, -EOPNOTSUPP, "%s: a big-endian file "
				 "is not supported: convert the model again "
				 "for a little-endian machine", a->part->path);
	return gguf_fail(a->err, -EOPNOTSUPP, "%s: version %u of GGUF is not "
			 "supported: convert the model to version %u",
			 a->part->path, version, VERSION);
}

static int part_read(struct gguf_at *a)
{
	struct gguf_part *part = a->part;
	u64 tensors, keys;
	u32 version = 0;
	int ret;

	if (folder_is_pointer((const char *)part->map, part->size))
		return gguf_fail(a->err, -EINVAL, "%s: " FOLDER_POINTER,
				 part->path);
	if (part->size < 4 || memcmp(at_take(a, 4), "GGUF", 4))
		return at_bad(a, "does not begin with \"GGUF\": not a GGUF "
			      "file, or damaged");
	if (!at_u32(a, &version))
		return at_bad(a, "the file ends in its header");
	ret = part_check_version(a, version);
	if (ret)
		return ret;
	if (!at_u64(a, &tensors) || !at_u64(a, &keys))
		return at_bad(a, "the file ends in its header");
	if (tensors > GGUF_MAX_TENSORS || keys > GGUF_MAX_KEYS)
		return at_bad(a, "the header counts more than a million "
			      "tensors or keys");
	ret = values_read(a, keys);
	return ret ? ret : tensors_read(a, tensors);
}

static int part_map(struct gguf_part *part, const struct gguf_err *err)
{
	int fd, ret = 0;
	void *map;

	fd = folder_open(part->path, &part->size);
	if (fd == -EINVAL)
		return gguf_fail(err, fd, "%s: not a regular file: name the "
				 "GGUF file itself", part->path);
	if (fd < 0)
		return gguf_fail(err, fd, "%s: cannot open: %s%s", part->path,
				 strerror(-fd), fd == -ENOENT ?
				 ": copy the whole model" : "");
	if (!part->size) {
		ret = gguf_fail(err, -EINVAL, "%s: the file is empty: "
				GGUF_AGAIN, part->path);
	} else {
		map = mmap(NULL, part->size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (map == MAP_FAILED) {
			ret = gguf_fail(err, -errno, "%s: cannot map: %s",
					part->path, strerror(errno));
		} else {
			part->map = map;
			mapped_add(map, part->size, part->path);
		}
	}
	close(fd);
	return ret;
}

int gguf_part_open(struct gguf_part *part, const struct gguf_err *err)
{
	struct gguf_at a = { .part = part, .err = err };
	int ret;

	ret = part_map(part, err);
	return ret ? ret : part_read(&a);
}

void gguf_part_close(struct gguf_part *part)
{
	u32 i;

	for (i = 0; i < part->nr_values; i++) {
		free(part->values[i].key);
		free(part->values[i].strs);
	}
	for (i = 0; i < part->nr_tensors; i++)
		free((char *)part->tensors[i].name);
	free(part->values);
	free(part->tensors);
	if (part->map) {
		mapped_remove(part->map);
		munmap((void *)part->map, part->size);
	}
	free(part->path);
}
