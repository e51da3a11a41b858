/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.h - number types of the kernels, for C and for device code
 */
#ifndef KERNELS_DTYPE_H
#define KERNELS_DTYPE_H

/*
 * E4M3 and I8 are only for KV, and have a scale for each head and token: the
 * number is the element times the scale.
 *
 * The types after them are only for weights: a row is blocks, and the elements of
 * a block share scales.  See quant.h.
 */
enum kern_dtype {
	KERN_F32,
	KERN_BF16,
	KERN_F16,
	KERN_E4M3,
	KERN_I8,
	KERN_FIRST_BLOCKS,
	KERN_Q4_0 = KERN_FIRST_BLOCKS,
	KERN_Q4_1,
	KERN_Q5_0,
	KERN_Q5_1,
	KERN_Q8_0,
	KERN_Q2_K,
	KERN_Q3_K,
	KERN_Q4_K,
	KERN_Q5_K,
	KERN_Q6_K,
	KERN_IQ4_NL,
	KERN_IQ4_XS,
	KERN_MXFP4,
	KERN_W4_32,
	KERN_W4_64,
	KERN_W4_128,
	KERN_W8_32,
	KERN_W8_128,
	KERN_F8_32,
	KERN_F8_128,
	NR_KERN_DTYPES,
};

/* Activations, by their definitions; GELU_TANH is the approximation. */
enum kern_act {
	KERN_SILU,		/* x / (1 + exp(-x)) */
	KERN_GELU,		/* x / 2 * (1 + erf(x / sqrt(2))) */
	KERN_GELU_TANH,		/* x / 2 * (1 + tanh(sqrt(2 / pi) *
				 *	    (x + 0.044715 x^3))) */
	KERN_RELU,		/* max(x, 0) */
};

#endif /* KERNELS_DTYPE_H */
