/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant.h - types of quantized weights
 *
 * A row of such a matrix is a row of blocks.  A block holds some neighbouring
 * elements of the row as small integers or floats, and the scales that they share.
 * Rows are whole blocks, so a row begins at a whole byte, and slices of rows are
 * matrices as well.
 *
 * Most types are those of GGUF files, as their writers store them.  The last ones
 * hold what other formats of quantized checkpoints say in several tensors (AWQ,
 * GPTQ, compressed-tensors, FP8); the loader writes them.
 *
 *	W4_n	a scale in f32, a zero in u8, n / 2 bytes of elements, two in each:
 *		the even one in the low bits; (element - zero) * scale
 *	W8_n	a scale in f32, n elements in s8; element * scale
 *	F8_n	a scale in f32, n elements in e4m3; element * scale
 *
 * An element as f32 is defined by kern_dequant().  All kernels in exact mode compute
 * with these numbers.
 */
#ifndef KERNELS_QUANT_H
#define KERNELS_QUANT_H

#include <kvmm/types.h>

#include "kernels/dtype.h"

/* Every type of blocks: its name, elements and bytes of a block, number in GGUF. */
#define KERN_BLOCK_TYPES(x)						\
	x(Q4_0,		"q4_0",		32,	18,	2)		\
	x(Q4_1,		"q4_1",		32,	20,	3)		\
	x(Q5_0,		"q5_0",		32,	22,	6)		\
	x(Q5_1,		"q5_1",		32,	24,	7)		\
	x(Q8_0,		"q8_0",		32,	34,	8)		\
	x(Q2_K,		"q2_k",		256,	84,	10)		\
	x(Q3_K,		"q3_k",		256,	110,	11)		\
	x(Q4_K,		"q4_k",		256,	144,	12)		\
	x(Q5_K,		"q5_k",		256,	176,	13)		\
	x(Q6_K,		"q6_k",		256,	210,	14)		\
	x(IQ4_NL,	"iq4_nl",	32,	18,	20)		\
	x(IQ4_XS,	"iq4_xs",	256,	136,	23)		\
	x(MXFP4,	"mxfp4",	32,	17,	39)		\
	x(W4_32,	"w4_32",	32,	21,	KERN_NO_GGUF)	\
	x(W4_64,	"w4_64",	64,	37,	KERN_NO_GGUF)	\
	x(W4_128,	"w4_128",	128,	69,	KERN_NO_GGUF)	\
	x(W8_32,	"w8_32",	32,	36,	KERN_NO_GGUF)	\
	x(W8_128,	"w8_128",	128,	132,	KERN_NO_GGUF)	\
	x(F8_32,	"f8_32",	32,	36,	KERN_NO_GGUF)	\
	x(F8_128,	"f8_128",	128,	132,	KERN_NO_GGUF)

#define KERN_NO_GGUF		UINT32_MAX

#define KERN_BLOCK_MAX_ELEMS	256u
#define KERN_BLOCK_MAX_BYTES	210u

static inline bool kern_is_blocks(enum kern_dtype t)
{
	return t >= KERN_FIRST_BLOCKS && t < NR_KERN_DTYPES;
}

/* Name of any type: "f32", "q4_k". */
const char *kern_dtype_name(enum kern_dtype t);

/* Elements of a block; 1 for types without blocks. */
u32 kern_block_elems(enum kern_dtype t);

/* Bytes of a block, or of an element of a type without blocks. */
u32 kern_block_bytes(enum kern_dtype t);

/* The type of blocks with that number in GGUF files, or NR_KERN_DTYPES. */
enum kern_dtype kern_dtype_of_gguf(u32 number);

/* Bytes of a row of @cols elements, which are whole blocks. */
static inline u64 kern_row_bytes(enum kern_dtype t, u64 cols)
{
	return cols / kern_block_elems(t) * kern_block_bytes(t);
}

/* The number that the bits of an f16 are; every one of them is an f32. */
float kern_f16(u16 bits);

/**
 * kern_dequant() - the numbers of some blocks
 * @t:    type of blocks
 * @from: the first block, at any address
 * @n:    elements, a multiple of kern_block_elems()
 * @to:   gets @n numbers
 *
 * Each step of an element's formula is rounded to f32 in the order in which the
 * format defines it.  No value of @from is invalid.
 */
void kern_dequant(enum kern_dtype t, const void *from, u64 n, float *to);

#endif /* KERNELS_QUANT_H */
