/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - one safetensors file: open, check, look up
 */
#ifndef RUNTIME_MODEL_SAFETENSORS_H
#define RUNTIME_MODEL_SAFETENSORS_H

#include "kernels/quant.h"
#include "runtime/model/model.h"

/* Every element type of the format, and the bits one element takes. */
#define ST_DTYPES(x)							\
	x(BOOL,		8)						\
	x(F4,		4)						\
	x(F6_E2M3,	6)						\
	x(F6_E3M2,	6)						\
	x(U8,		8)						\
	x(I8,		8)						\
	x(F8_E5M2,	8)						\
	x(F8_E4M3,	8)						\
	x(F8_E8M0,	8)						\
	x(F8_E4M3FNUZ,	8)						\
	x(F8_E5M2FNUZ,	8)						\
	x(I16,		16)						\
	x(U16,		16)						\
	x(F16,		16)						\
	x(BF16,		16)						\
	x(I32,		32)						\
	x(U32,		32)						\
	x(F32,		32)						\
	x(C64,		64)						\
	x(F64,		64)						\
	x(I64,		64)						\
	x(U64,		64)

enum st_dtype {
#define x(name, bits)	ST_##name,
	ST_DTYPES(x)
#undef x
	NR_ST_DTYPES,
	ST_BLOCKS = NR_ST_DTYPES,	/* blocks of kernels/quant.h; in no such file */
};

#define ST_MAX_DIMS	8u
#define ST_MAX_HEADER	100000000ull	/* the reference reader's limit */

/**
 * struct st_tensor - one tensor of a file
 * @name:	NUL-terminated, owned by the file
 * @path:	the file it is in, for messages; owned by the file
 * @dtype:	element type
 * @blocks:	ST_BLOCKS: type of the blocks; else not used
 * @nr_dims:	0 for a scalar
 * @shape:	row-major
 * @nr_elems:	product of @shape
 * @begin:	offset of the first byte in the file's buffer
 * @nr_bytes:	size in the file
 * @data:	the mapped bytes, at any alignment
 * @order:	element k of a row belongs to column order[k]; NULL: to column k.  Owned by
 *		the checkpoint; NULL in files
 * @straight:	matrices have the decoder's rows and columns, even if those of the layout's
 *		files are exchanged or in turn; false in files
 * @whole:	the tensor that it is a part of (cut.c); NULL: it is no part
 */
struct st_tensor {
	char		*name;
	const char	*path;
	enum st_dtype	dtype;
	enum kern_dtype	blocks;
	u32		nr_dims;
	u64		shape[ST_MAX_DIMS];
	u64		nr_elems;
	u64		begin;
	u64		nr_bytes;
	const void	*data;
	u32		*order;
	bool		straight;
	const struct st_tensor *whole;
};

/* An open file; @tensors is sorted by name. */
struct st_file {
	char			*path;
	void			*map;
	size_t			size;
	struct st_tensor	*tensors;
	u32			nr_tensors;
};

/**
 * st_open() - map a file and check all of its header
 * @path:	the file
 * @out:	the open file
 * @err:	set on failure
 *
 * After success every tensor's range lies inside the file and fits its shape
 * and type, and the ranges cover the buffer exactly once.  Values are not
 * checked.
 *
 * Return: 0; -ENOENT, -EINVAL if the file is invalid, -ENOMEM, or the error
 * of open() or mmap().
 */
int __must_check st_open(const char *path, struct st_file **out,
			 struct model_error *err);

/**
 * st_open_header() - the same, but read the header alone
 *
 * The file is not mapped, so a program that cuts it gives an error here and no SIGBUS.  The data
 * of tensors has addresses as in st_open(), but cannot be read at them.
 *
 * Return: as st_open(); the error of pread(), or -EIO when the file became shorter.
 */
int __must_check st_open_header(const char *path, struct st_file **out, struct model_error *err);

/* NULL is allowed. */
void st_close(struct st_file *file);

/* The tensor of that name, or NULL. */
const struct st_tensor *st_find(const struct st_file *file, const char *name);

const char *st_dtype_name(enum st_dtype dtype);

/* Element @i of a tensor in F32, F16 or BF16. */
float st_number(const struct st_tensor *t, u64 i);

/* Name of the type of a tensor: "BF16", "q4_k". */
const char *st_type_name(const struct st_tensor *t);

/* "[2, 3]" into @buf, cut short if it is too small; returns @buf. */
const char *st_shape_str(const u64 *shape, u32 nr_dims, char *buf,
			 size_t size);

#endif /* RUNTIME_MODEL_SAFETENSORS_H */
