/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.h - a model in GGUF files: metadata by key, and tensors
 *
 * Version 3 of the format, little-endian, in one file or in parts
 * (NAME-00001-of-00003.gguf, of which any part may be named).  Files are mapped and
 * not trusted: gguf_open() checks every count, length, type and offset before it is
 * used, and allocates no more than some multiple of the bytes of the metadata that
 * the files really have.  What the keys mean is left to the callers.
 *
 * After gguf_open() nothing changes, so threads may share a file without a lock.
 */
#ifndef RUNTIME_LIB_GGUF_H
#define RUNTIME_LIB_GGUF_H

#include <kvmm/types.h>

#define GGUF_MAX_DIMS	4u
#define GGUF_ERR_MAX	512u

/* Kinds of values, by their numbers in the file. */
enum gguf_kind {
	GGUF_U8, GGUF_S8, GGUF_U16, GGUF_S16, GGUF_U32, GGUF_S32, GGUF_F32,
	GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_S64, GGUF_F64,
	NR_GGUF_KINDS,
};

/* A string of the file: no NUL after it, and it need not be UTF-8. */
struct gguf_str {
	const char	*at;
	u64		len;
};

struct gguf;

/**
 * struct gguf_tensor - one tensor
 * @name:	NUL-terminated
 * @path:	file that has it, for messages
 * @type:	number of its type in GGUF files, one that is known
 * @nr_dims:	1 to GGUF_MAX_DIMS
 * @dims:	the dimension that is contiguous in memory comes first
 * @nr_elems:	product of @dims
 * @nr_bytes:	bytes of its data
 * @data:	the mapped data
 */
struct gguf_tensor {
	const char	*name;
	const char	*path;
	u32		type;
	u32		nr_dims;
	u64		dims[GGUF_MAX_DIMS];
	u64		nr_elems;
	u64		nr_bytes;
	const void	*data;
};

/* Is @path a regular file that begins as GGUF files do, or does its name end so? */
bool gguf_is_file(const char *path);

/**
 * gguf_open() - map a model's files and check them
 * @path:	the file, or any part
 * @out:	the open files
 * @err:	@size bytes for one line: the file, the reason and the remedy
 *
 * Return: 0; -ENOENT; -EINVAL: malformed, or a part does not fit the others;
 * -EOPNOTSUPP: another version or byte order, or a type of tensor that is not
 * supported, by name; -ENOMEM; the error of open() or mmap().
 */
int __must_check gguf_open(const char *path, struct gguf **out, char *err,
			   size_t size);

/* NULL is allowed. */
void gguf_close(struct gguf *g);

/* Path of the first part, and the number of parts. */
const char *gguf_path(const struct gguf *g);
u32 gguf_nr_files(const struct gguf *g);

/* Tensors of all parts, sorted by name; @i is below their number. */
u32 gguf_nr_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, u32 i);

/* Does the metadata have the key? */
bool gguf_has(const struct gguf *g, const char *key);

/* Number of keys, and the name of key @i (NUL-terminated), for listings. */
u32 gguf_nr_keys(const struct gguf *g);
const char *gguf_key_at(const struct gguf *g, u32 i);

/*
 * Values.  Each returns false, and leaves *out alone, if the key is missing or its
 * value is of another kind; gguf_u64() takes each kind of whole number that is not
 * negative, and gguf_real() each kind of number.
 */
bool gguf_u64(const struct gguf *g, const char *key, u64 *out);
bool gguf_real(const struct gguf *g, const char *key, double *out);
bool gguf_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_str(const struct gguf *g, const char *key, struct gguf_str *out);

/* Arrays: their length (0 if there is none) and elements, by the same rules. */
u64 gguf_nr_items(const struct gguf *g, const char *key);
bool gguf_item_u64(const struct gguf *g, const char *key, u64 i, u64 *out);
bool gguf_item_s64(const struct gguf *g, const char *key, u64 i, s64 *out);
bool gguf_item_real(const struct gguf *g, const char *key, u64 i, double *out);
bool gguf_item_bool(const struct gguf *g, const char *key, u64 i, bool *out);
bool gguf_item_str(const struct gguf *g, const char *key, u64 i,
		   struct gguf_str *out);

#endif /* RUNTIME_LIB_GGUF_H */
