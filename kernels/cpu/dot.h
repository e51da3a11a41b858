/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot.h - a tile of dot products: the inner loop of gemm and of attention
 *
 * mr rows of x against nr rows of w, both running along memory, with mr * nr
 * registers of partial sums.  Full tiles have mr * nr == VW, so that one fold
 * of VW registers yields all their sums at once.  Every product of the tile
 * takes exactly the steps described in vec.h, for all mr and nr.  So a row has
 * the same bits if it is computed alone or among others.
 *
 * mr, nr and type are compile-time constants in every use.
 */
#ifndef KERNELS_CPU_DOT_H
#define KERNELS_CPU_DOT_H

#include "kernels/cpu/vec.h"

/* Rows of x in the largest tile. */
#define DOT_ROWS	4

/* One step of VW elements for the whole tile. */
static __inline_always void dot_step(const u32 mr, const u32 nr, vf *acc,
				     const vf *xv, const vf *wv)
{
	u32 m, n;

#pragma GCC unroll 16
	for (n = 0; n < nr; n++)
#pragma GCC unroll 4
		for (m = 0; m < mr; m++)
			acc[m * nr + n] = vf_fma(xv[m], wv[n],
						 acc[m * nr + n]);
}

/**
 * dot_tile() - out[m * nr + n] = sum over i < k of x[m][i] * w[n][i]
 * @mr:   rows of x, 1 to DOT_ROWS
 * @nr:   rows of w, mr * nr <= VW
 * @x:    first row of x
 * @x_ld: elements from a row of x to the next
 * @w:    first row of w
 * @w_ld: elements from a row of w to the next
 * @type: of w: f32, bf16 or f16
 * @k:    length
 * @ahead: if not NULL, prefetch the same elements of the rows from here on,
 *	also w_ld apart, while multiplying
 *
 * Return: a vector of the sums; lanes from mr * nr on are zero.
 */
static __inline_always vf dot_tile(const u32 mr, const u32 nr, const float *x,
				   u64 x_ld, const void *w, u64 w_ld,
				   const enum kern_dtype type, u32 k,
				   const void *ahead)
{
	const u32 elem = type == KERN_F32 ? 4 : 2;
	vf acc[VW] = { };
	vf xv[DOT_ROWS], wv[VW];
	u32 i, m, n;

	for (i = 0; i + VW <= k; i += VW) {
#pragma GCC unroll 4
		for (m = 0; m < mr; m++)
			xv[m] = vf_load(x + m * x_ld + i);
#pragma GCC unroll 16
		for (n = 0; n < nr; n++)
			wv[n] = vf_load_as(w, n * w_ld + i, type);
		if (ahead) {
#pragma GCC unroll 16
			for (n = 0; n < nr; n++)
				__builtin_prefetch((const u8 *)ahead +
						   (n * w_ld + i) * elem);
		}
		dot_step(mr, nr, acc, xv, wv);
	}
	if (i < k) {
#pragma GCC unroll 4
		for (m = 0; m < mr; m++)
			xv[m] = vf_load_part(x, m * x_ld + i, k - i,
					     KERN_F32);
#pragma GCC unroll 16
		for (n = 0; n < nr; n++)
			wv[n] = vf_load_part(w, n * w_ld + i, k - i, type);
		dot_step(mr, nr, acc, xv, wv);
	}
	return vf_sum_each(acc);
}

#endif /* KERNELS_CPU_DOT_H */
