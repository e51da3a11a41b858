/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.h - numbers as quantized weights
 */
#ifndef KERNELS_QUANTIZE_H
#define KERNELS_QUANTIZE_H

#include "kernels/quant.h"

/* Is there a way into type @t?  Q8_0, Q4_K, W8_n and F8_n have one. */
bool kern_can_quantize(enum kern_dtype t);

/**
 * kern_quantize() - numbers as blocks
 * @t:    type of blocks, one of kern_can_quantize()
 * @from: the numbers, none of which is a NaN or infinite
 * @n:    how many, a multiple of kern_block_elems()
 * @to:   gets the blocks, at any address
 *
 * Q8_0 is what the package "gguf" writes, to the bit.  Q4_K looks for the scales and
 * minimums with the least sum of squared errors.  W8_n and F8_n have the scale with
 * which the largest magnitude of a block is the largest element of the type.
 */
void kern_quantize(enum kern_dtype t, const float *from, u64 n, void *to);

#endif /* KERNELS_QUANTIZE_H */
