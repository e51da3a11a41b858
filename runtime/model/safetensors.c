// SPDX-License-Identifier: Apache-2.0
/*
 * safetensors.c - read one safetensors file that is not trusted
 *
 * The format is a little-endian u64 N, N bytes of JSON, and a buffer.  The JSON
 * is one object: tensor name -> {dtype, shape, data_offsets}, offsets counted
 * from the start of the buffer, and an optional "__metadata__" of strings,
 * which is not used.
 *
 * A checkpoint may come from anywhere, and its tensors are used without further
 * bounds checks.  So the header is checked here as strictly as in the format's
 * own reader, and an opened file has these properties:
 *
 * - the header lies in the file, starts with '{' and has no key twice;
 * - every tensor has a known type, and shape times type is exactly its range,
 *   in arithmetic that cannot overflow;
 * - sorted by offset the ranges touch, the first starts at 0 and the last ends
 *   at the end of the file: no hole, no overlap, no missing and no extra bytes.
 *
 * The file stays mapped read-only for as long as the tensors are used.  If
 * another program shortens it meanwhile, this process ends (mapped.h):
 * replace checkpoints by rename.
 */
#include <endian.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/lib/folder.h"
#include "runtime/lib/mapped.h"
#include "runtime/model/error.h"
#include "runtime/model/json.h"
#include "runtime/model/safetensors.h"

#define ST_AGAIN	"download or copy the file again"
#define ST_HEAD		4096ull	/* bytes of a file that are read at least */

static const struct {
	const char	*name;
	u32		bits;
} st_dtypes[NR_ST_DTYPES] = {
#define x(name, bits)	[ST_##name] = { #name, bits },
	ST_DTYPES(x)
#undef x
};

float st_number(const struct st_tensor *t, u64 i)
{
	u32 bits;
	float f;
	u16 h;

	if (t->dtype == ST_F32) {
		memcpy(&f, (const u8 *)t->data + i * 4, 4);
		return f;
	}
	memcpy(&h, (const u8 *)t->data + i * 2, 2);
	if (t->dtype == ST_F16)
		return kern_f16(h);
	bits = (u32)h << 16;
	memcpy(&f, &bits, sizeof(f));
	return f;
}

const char *st_type_name(const struct st_tensor *t)
{
	return t->dtype == ST_BLOCKS ? kern_dtype_name(t->blocks) :
				       st_dtype_name(t->dtype);
}

const char *st_dtype_name(enum st_dtype dtype)
{
	return st_dtypes[dtype].name;
}

const char *st_shape_str(const u64 *shape, u32 nr_dims, char *buf,
			 size_t size)
{
	size_t len = 0;
	u32 i;

	buf[0] = '\0';
	for (i = 0; i < nr_dims && len < size; i++)
		len += snprintf(buf + len, size - len, "%s%llu",
				i ? ", " : "[", (unsigned long long)shape[i]);
	if (len < size)
		snprintf(buf + len, size - len, nr_dims ? "]" : "[]");
	return buf;
}

/* Report an invalid entry of a tensor; always -EINVAL. */
static int st_bad(struct model_error *err, const struct st_tensor *t,
		  const char *why)
{
	return model_fail(err, -EINVAL,
			  "%s: tensor " MODEL_NAME_FMT ": %s: " ST_AGAIN,
			  t->path, t->name, why);
}

static int st_parse_dtype(struct st_tensor *t, const json_t *v,
			  struct model_error *err)
{
	const char *s = json_string_value(v);
	u32 i;

	if (!s)
		return st_bad(err, t, "\"dtype\" is missing or no string");
	for (i = 0; i < NR_ST_DTYPES; i++) {
		if (!strcmp(s, st_dtypes[i].name)) {
			t->dtype = i;
			return 0;
		}
	}
	return model_fail(err, -EINVAL, "%s: tensor " MODEL_NAME_FMT
			  ": dtype \"%.40s\" is not one of the format: "
			  ST_AGAIN, t->path, t->name, s);
}

/* Read a non-negative integer; reals such as 2.0 are not integers. */
static bool st_u64(const json_t *v, u64 *out)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*out = json_integer_value(v);
	return true;
}

static int st_parse_shape(struct st_tensor *t, const json_t *v,
			  struct model_error *err)
{
	u64 n = 1;
	u32 i;

	if (!json_is_array(v))
		return st_bad(err, t, "\"shape\" is missing or no list");
	if (json_array_size(v) > ST_MAX_DIMS)
		return st_bad(err, t, "\"shape\" has more than 8 dimensions");
	t->nr_dims = json_array_size(v);
	for (i = 0; i < t->nr_dims; i++) {
		if (!st_u64(json_array_get(v, i), &t->shape[i]))
			return st_bad(err, t, "\"shape\" holds something "
				      "that is not a size");
		if (__builtin_mul_overflow(n, t->shape[i], &n))
			return st_bad(err, t, "\"shape\" overflows 64 bits");
	}
	t->nr_elems = n;
	return 0;
}

/* The range, and whether shape and type fill exactly it. */
static int st_parse_range(struct st_tensor *t, const json_t *v,
			  struct model_error *err)
{
	u64 end, bits;

	if (!json_is_array(v) || json_array_size(v) != 2 ||
	    !st_u64(json_array_get(v, 0), &t->begin) ||
	    !st_u64(json_array_get(v, 1), &end))
		return st_bad(err, t, "\"data_offsets\" is missing or not "
			      "two offsets");
	if (end < t->begin)
		return st_bad(err, t, "\"data_offsets\" ends before it "
			      "begins");
	t->nr_bytes = end - t->begin;
	if (__builtin_mul_overflow(t->nr_elems, (u64)st_dtypes[t->dtype].bits,
				   &bits))
		return st_bad(err, t, "\"shape\" overflows 64 bits");
	if (bits % 8)
		return st_bad(err, t, "\"shape\" ends inside a byte");
	if (bits / 8 != t->nr_bytes)
		return model_fail(err, -EINVAL, "%s: tensor " MODEL_NAME_FMT
				  ": shape needs %llu bytes, data_offsets has "
				  "%llu: " ST_AGAIN, t->path, t->name,
				  (unsigned long long)(bits / 8),
				  (unsigned long long)t->nr_bytes);
	return 0;
}

static int st_parse_tensor(struct st_tensor *t, const char *path,
			   const char *name, const json_t *v,
			   struct model_error *err)
{
	int ret;

	t->path = path;
	t->name = strdup(name);
	if (!t->name)
		return model_fail_errno(err, -ENOMEM, path, "header");
	if (!json_is_object(v))
		return st_bad(err, t, "the entry is no object");
	ret = st_parse_dtype(t, json_object_get(v, "dtype"), err);
	if (ret)
		return ret;
	ret = st_parse_shape(t, json_object_get(v, "shape"), err);
	if (ret)
		return ret;
	return st_parse_range(t, json_object_get(v, "data_offsets"), err);
}

static int st_check_metadata(const char *path, json_t *v,
			     struct model_error *err)
{
	const char *key;
	json_t *s;

	if (!json_is_object(v))
		return model_fail(err, -EINVAL, "%s: __metadata__ is no "
				  "object: " ST_AGAIN, path);
	json_object_foreach(v, key, s) {
		if (!json_is_string(s))
			return model_fail(err, -EINVAL, "%s: __metadata__: "
					  "value of \"" MODEL_NAME_FMT "\" is "
					  "no string: " ST_AGAIN, path, key);
	}
	return 0;
}

static int st_parse_entries(struct st_file *f, json_t *root,
			    struct model_error *err)
{
	const char *name;
	json_t *v;
	int ret;

	f->tensors = calloc(json_object_size(root) + 1, sizeof(*f->tensors));
	if (!f->tensors)
		return model_fail_errno(err, -ENOMEM, f->path, "header");
	json_object_foreach(root, name, v) {
		if (!strcmp(name, "__metadata__"))
			ret = st_check_metadata(f->path, v, err);
		else
			ret = st_parse_tensor(&f->tensors[f->nr_tensors++],
					      f->path, name, v, err);
		if (ret)
			return ret;
	}
	return 0;
}

/*
 * By offset; an empty tensor comes before the one that starts at the same
 * place.
 */
static int st_cmp_offset(const void *pa, const void *pb)
{
	const struct st_tensor *a = pa, *b = pb;

	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	if (a->nr_bytes != b->nr_bytes)
		return a->nr_bytes < b->nr_bytes ? -1 : 1;
	return strcmp(a->name, b->name);
}

static int st_cmp_name(const void *pa, const void *pb)
{
	const struct st_tensor *a = pa, *b = pb;

	return strcmp(a->name, b->name);
}

/* Check: no hole, no overlap, and the file ends with the last tensor. */
static int st_check_cover(struct st_file *f, u64 base, struct model_error *err)
{
	const u64 avail = f->size - base;
	u64 at = 0;
	u32 i;

	qsort(f->tensors, f->nr_tensors, sizeof(*f->tensors), st_cmp_offset);
	for (i = 0; i < f->nr_tensors; i++) {
		struct st_tensor *t = &f->tensors[i];

		if (t->begin != at)
			return st_bad(err, t, t->begin < at ?
				      "it overlaps another tensor" :
				      "there is a hole before it");
		at += t->nr_bytes;
	}
	if (at != avail)
		return model_fail(err, -EINVAL, "%s: header says %llu bytes "
				  "of tensors, file has %llu: " ST_AGAIN,
				  f->path, (unsigned long long)at,
				  (unsigned long long)avail);
	for (i = 0; i < f->nr_tensors; i++)
		f->tensors[i].data = (const u8 *)f->map + base +
				     f->tensors[i].begin;
	qsort(f->tensors, f->nr_tensors, sizeof(*f->tensors), st_cmp_name);
	return 0;
}

static int st_parse(struct st_file *f, struct model_error *err)
{
	const char *text = (const char *)f->map + 8;
	json_error_t jerr;
	json_t *root;
	u64 len;
	int ret;

	if (folder_is_pointer(f->map, f->size))
		return model_fail(err, -EINVAL, "%s: " FOLDER_POINTER, f->path);
	memcpy(&len, f->map, sizeof(len));
	len = le64toh(len);
	if (len > ST_MAX_HEADER)
		return model_fail(err, -EINVAL, "%s: header length %llu is "
				  "above the format's limit of %llu: not a "
				  "safetensors file, or damaged: " ST_AGAIN,
				  f->path, (unsigned long long)len, ST_MAX_HEADER);
	if (len > f->size - 8)
		return model_fail(err, -EINVAL, "%s: header says it has %llu "
				  "bytes, file has %llu: " ST_AGAIN, f->path,
				  (unsigned long long)len,
				  (unsigned long long)f->size);
	if (!len || text[0] != '{')
		return model_fail(err, -EINVAL, "%s: header does not start "
				  "with '{': not a safetensors file, or "
				  "damaged: " ST_AGAIN, f->path);
	if (folder_json_too_many(text, len, MJ_MAX_VALUES))
		return model_fail(err, -EINVAL, "%s: header holds more than "
				  "%u values: " ST_AGAIN, f->path,
				  MJ_MAX_VALUES);
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &jerr);
	if (!root)
		return model_fail(err, -EINVAL, "%s: header: %s (byte %d): "
				  ST_AGAIN, f->path, jerr.text, jerr.position);
	ret = st_parse_entries(f, root, err);
	if (!ret)
		ret = st_check_cover(f, 8 + len, err);
	json_decref(root);
	return ret;
}

/* Bytes to read of a file: its header, as far as it has one, and at least ST_HEAD. */
static u64 header_size(u64 size, u64 len)
{
	const bool whole = len <= ST_MAX_HEADER && len <= size - 8;

	return min(size, whole ? max(8 + len, ST_HEAD) : ST_HEAD);
}

/* Read the header into memory of our own, at the beginning of a range of the file's size. */
static void *header_read(int fd, u64 size)
{
	ssize_t n = 1;
	u64 len, at = 0, all;
	u8 *map;

	if (pread(fd, &len, sizeof(len), 0) != sizeof(len)) {
		errno = EIO;
		return MAP_FAILED;
	}
	all = header_size(size, le64toh(len));
	map = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return map;
	if (!mprotect(map, all, PROT_READ | PROT_WRITE))
		while (at < all && (n = pread(fd, map + at, all - at, (off_t)at)) > 0)
			at += (u64)n;
	if (at == all) {
		/* Another program may have written another length meanwhile. */
		memcpy(map, &len, sizeof(len));
		return map;
	}
	munmap(map, size);
	errno = n ? errno : EIO;
	return MAP_FAILED;
}

/* Set ->map and ->size of a file long enough to hold a header's length. */
static int st_map(struct st_file *f, bool header, struct model_error *err)
{
	u64 size = 0;
	int fd, ret = 0;

	fd = folder_open(f->path, &size);
	if (fd == -EINVAL)
		return model_fail(err, fd, "%s: not a regular file: name the "
				  "file itself", f->path);
	if (fd < 0)
		return model_fail_errno(err, fd, f->path, "cannot open");
	if (size < 8) {
		ret = model_fail(err, -EINVAL, "%s: %llu bytes are too few "
				 "for a safetensors file: " ST_AGAIN, f->path,
				 (unsigned long long)size);
		goto out_close;
	}
	f->map = header ? header_read(fd, size) : mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (f->map == MAP_FAILED) {
		f->map = NULL;
		ret = model_fail_errno(err, -errno, f->path, header ? "cannot read" : "cannot map");
		goto out_close;
	}
	f->size = size;
	if (!header)
		mapped_add(f->map, size, f->path);
out_close:
	close(fd);
	return ret;
}

static int open_file(const char *path, bool header, struct st_file **out, struct model_error *err)
{
	struct st_file *f;
	int ret;

	f = calloc(1, sizeof(*f));
	if (!f)
		return model_fail_errno(err, -ENOMEM, path, "open");
	f->path = strdup(path);
	if (!f->path) {
		ret = model_fail_errno(err, -ENOMEM, path, "open");
		goto out_close;
	}
	ret = st_map(f, header, err);
	if (ret)
		goto out_close;
	ret = st_parse(f, err);
	if (ret)
		goto out_close;
	*out = f;
	return 0;

out_close:
	st_close(f);
	return ret;
}

int st_open(const char *path, struct st_file **out, struct model_error *err)
{
	return open_file(path, false, out, err);
}

int st_open_header(const char *path, struct st_file **out, struct model_error *err)
{
	return open_file(path, true, out, err);
}

void st_close(struct st_file *f)
{
	u32 i;

	if (!f)
		return;
	for (i = 0; i < f->nr_tensors; i++)
		free(f->tensors[i].name);
	free(f->tensors);
	if (f->map) {
		mapped_remove(f->map);
		munmap(f->map, f->size);
	}
	free(f->path);
	free(f);
}

const struct st_tensor *st_find(const struct st_file *file, const char *name)
{
	const struct st_tensor key = { .name = (char *)name };

	return bsearch(&key, file->tensors, file->nr_tensors,
		       sizeof(*file->tensors), st_cmp_name);
}
