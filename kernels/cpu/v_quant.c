// SPDX-License-Identifier: Apache-2.0
/*
 * v_quant.c - quantized weights as numbers
 */
#include "kernels/blocks.h"
#include "kernels/cpu/vec.h"

void KERN_FN(dequant)(enum kern_dtype t, const void *from, u64 n, float *to)
{
	blocks_dequant(t, from, n, to);
}
