/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ints.h - layout of packed weights in blocks, for products of small integers
 *
 * W is cut into panels of INT_ROWS rows, and a panel into units of INT_COLS columns.  A
 * panel has the codes of all its units, in the order of columns, and then all scales.
 *
 * A code is a whole number of some bits, without a sign.  The number of an element is
 * (code - zero) * scale, or code * scale - min.  As bytes a unit is INT_VECS vectors of 64
 * bytes.  Vector i has the columns 4 i to 4 i + 3: four bytes of each row, row after row, as
 * the instructions for products of bytes take them.  In memory the bits of these bytes are
 * cut into planes:
 *
 *	8 bits	the vectors
 *	4 bits	4 vectors: vector i in the low half of bytes, vector i + 4 in the high half
 *	2 bits	2 vectors: vectors i, i + 2, i + 4, i + 6 in each, from the low bits on
 *	1 bit	1 vector: vector i in bit i
 *
 * Codes of 6 bits are a plane of 4 bits and one of 2 bits above; codes of 5 bits have one
 * of 1 bit above, codes of 3 bits are planes of 2 bits and of 1 bit.
 *
 * Scales belong to a chunk, which is the columns of one block.  The scales of INT_ROWS rows
 * lie side by side: first those of the blocks, then those of their groups of 32 or 16
 * columns.
 *
 * Rows beyond the last one, which fill the last panel, have codes and scales of 0.
 */
#ifndef KERNELS_CPU_INTS_H
#define KERNELS_CPU_INTS_H

#include "kernels/cpu/internal.h"

#define INT_ROWS	16u
#define INT_COLS	32u
#define INT_VECS	8u

/* More columns are not packed: a row of x would not fit its buffer. */
#define INT_MAX_COLS	(128u << 10)

/* The scale of a block. */
enum int_scale {
	INT_SCALE_F16,		/* f16 */
	INT_SCALE_F32,
	INT_SCALE_E8M0,		/* half of that power of two: see fp4_values */
};

/* Numbers that codes stand for. */
enum int_codes {
	INT_CODES_PLAIN,	/* themselves */
	INT_CODES_NL,		/* a table of IQ4_NL, plus 128 */
	INT_CODES_FP4,		/* twice e2m1, plus 12 */
};

/**
 * struct int_form - how a type of blocks is packed
 * @bits:	bits of a code
 * @zero:	the code that stands for 0; with a min it is 0
 * @codes:	numbers of codes
 * @scale:	the scale of a block
 * @min:	a block has a second number like its scale, for the min
 * @groups:	groups of a block, which have a byte to multiply its scale, and another one
 *		for the min; 0: it has no groups
 * @is_zero:	the min is a zero in u8 times the scale
 */
struct int_form {
	u8		bits;
	u8		zero;
	enum int_codes	codes;
	enum int_scale	scale;
	bool		min;
	u8		groups;
	bool		is_zero;
};

/* Every kind of form; types that differ in the length of blocks are one kind. */
#define INT_KINDS(x)							\
	x(Q4_0, 4, 8, INT_CODES_PLAIN, INT_SCALE_F16, false, 0, false)	\
	x(Q4_1, 4, 0, INT_CODES_PLAIN, INT_SCALE_F16, true, 0, false)	\
	x(Q5_0, 5, 16, INT_CODES_PLAIN, INT_SCALE_F16, false, 0, false)	\
	x(Q5_1, 5, 0, INT_CODES_PLAIN, INT_SCALE_F16, true, 0, false)	\
	x(Q8_0, 8, 128, INT_CODES_PLAIN, INT_SCALE_F16, false, 0, false) \
	x(Q2_K, 2, 0, INT_CODES_PLAIN, INT_SCALE_F16, true, 16, false)	\
	x(Q3_K, 3, 4, INT_CODES_PLAIN, INT_SCALE_F16, false, 16, false)	\
	x(Q4_K, 4, 0, INT_CODES_PLAIN, INT_SCALE_F16, true, 8, false)	\
	x(Q5_K, 5, 0, INT_CODES_PLAIN, INT_SCALE_F16, true, 8, false)	\
	x(Q6_K, 6, 32, INT_CODES_PLAIN, INT_SCALE_F16, false, 16, false) \
	x(IQ4_NL, 4, 128, INT_CODES_NL, INT_SCALE_F16, false, 0, false)	\
	x(IQ4_XS, 4, 128, INT_CODES_NL, INT_SCALE_F16, false, 8, false)	\
	x(MXFP4, 4, 12, INT_CODES_FP4, INT_SCALE_E8M0, false, 0, false)	\
	x(W4_32, 4, 0, INT_CODES_PLAIN, INT_SCALE_F32, false, 0, true)	\
	x(W8_32, 8, 128, INT_CODES_PLAIN, INT_SCALE_F32, false, 0, false)

/* Every type that can be packed. */
#define INT_FORMS(x)							\
	INT_KINDS(x)							\
	x(W4_64, 4, 0, INT_CODES_PLAIN, INT_SCALE_F32, false, 0, true)	\
	x(W4_128, 4, 0, INT_CODES_PLAIN, INT_SCALE_F32, false, 0, true)	\
	x(W8_128, 8, 128, INT_CODES_PLAIN, INT_SCALE_F32, false, 0, false)

#define INT_FORM(id, bits, zero, codes, scale, min, groups, is_zero)	\
	((const struct int_form){ bits, zero, codes, scale, min, groups, is_zero })

/* The form of a type; bits are 0 if it has none. */
static inline struct int_form int_form_of(enum kern_dtype t)
{
	switch (t) {
#define x(id, ...)	case KERN_##id: return INT_FORM(id, __VA_ARGS__);
	INT_FORMS(x)
#undef x
	default:
		return (struct int_form){ 0 };
	}
}

/* Has it a min of any kind? */
static inline bool int_has_min(const struct int_form *f)
{
	return f->min || f->is_zero;
}

static inline u32 int_scale_bytes(const struct int_form *f)
{
	return f->scale == INT_SCALE_F16 ? 2 : f->scale == INT_SCALE_F32 ? 4 : 1;
}

/* Bytes of the codes of a unit. */
static inline u64 int_unit_bytes(const struct int_form *f)
{
	return f->bits * 64u;
}

/* Bytes of the scales of a chunk. */
static inline u64 int_chunk_bytes(const struct int_form *f)
{
	const u32 each = int_scale_bytes(f) * (f->min ? 2 : 1) + f->is_zero +
			 f->groups * (f->min ? 2 : 1);

	return (u64)INT_ROWS * each;
}

/* Bytes of a panel of @cols columns in blocks of @elems; a multiple of 64. */
static inline u64 int_panel_bytes(const struct int_form *f, u32 cols, u32 elems)
{
	const u64 codes = cols / INT_COLS * int_unit_bytes(f);

	return ALIGN_UP(codes + cols / elems * int_chunk_bytes(f), 64ull);
}

/* pack_bytes() and pack() of struct kern_ops, for weights in blocks */
size_t kern_int_pack_bytes(const struct kern_weight *w);
void kern_int_pack(struct kern_ctx *ctx, struct kern_weight *w, void *to);

#endif /* KERNELS_CPU_INTS_H */
