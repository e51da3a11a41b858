// SPDX-License-Identifier: Apache-2.0
/*
 * quant.c - types of quantized weights as numbers
 *
 * The formulas are in blocks.h, which kernels/cpu/v_quant.c also compiles, for the
 * instruction set of each variant.
 */
#include "kernels/blocks.h"

struct block_type {
	const char	*name;
	u32		elems;
	u32		bytes;
	u32		number;
};

static const struct block_type block_types[NR_KERN_DTYPES] = {
	[KERN_F32]	= { "f32",	1, 4, 0 },
	[KERN_BF16]	= { "bf16",	1, 2, 30 },
	[KERN_F16]	= { "f16",	1, 2, 1 },
	[KERN_E4M3]	= { "e4m3",	1, 1, KERN_NO_GGUF },
	[KERN_I8]	= { "int8",	1, 1, KERN_NO_GGUF },
#define x(id, name, elems, bytes, number)				\
	[KERN_##id]	= { name, elems, bytes, number },
	KERN_BLOCK_TYPES(x)
#undef x
};

const char *kern_dtype_name(enum kern_dtype t)
{
	return block_types[t].name;
}

u32 kern_block_elems(enum kern_dtype t)
{
	return block_types[t].elems;
}

u32 kern_block_bytes(enum kern_dtype t)
{
	return block_types[t].bytes;
}

enum kern_dtype kern_dtype_of_gguf(u32 number)
{
	u32 t;

	for (t = KERN_FIRST_BLOCKS; t < NR_KERN_DTYPES; t++)
		if (block_types[t].number == number &&
		    number != KERN_NO_GGUF)
			break;
	return t;
}

float kern_f16(u16 bits)
{
	return f16_number(bits);
}

void kern_dequant(enum kern_dtype t, const void *from, u64 n, float *to)
{
	blocks_dequant(t, from, n, to);
}
