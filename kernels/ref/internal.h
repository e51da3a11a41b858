/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - declarations shared by the files of the reference kernels
 */
#ifndef KERNELS_REF_INTERNAL_H
#define KERNELS_REF_INTERNAL_H

#include "kernels/kernels.h"

/*
 * The value of a float with a sign, @e bits of exponent and @m of fraction.
 * With 5 and 10 (f16) the largest exponent is for infinities and NaN; with 4
 * and 3 (e4m3) there are no infinities, and all bits set is NaN.
 */
double kern_ref_small(u32 bits, u32 e, u32 m);

/*
 * The nearest such float to @x, ties to even.  Beyond the largest one: an
 * infinity in f16, the largest in e4m3.
 */
u32 kern_ref_round_small(double x, u32 e, u32 m);

/* Element @i of an array of @type, widened. */
double kern_ref_load(const void *p, enum kern_dtype type, u64 i);

/* Round @x to @type and store it as element @i. */
void kern_ref_store(void *p, enum kern_dtype type, u64 i, float x);

void kern_ref_kv_write(struct kern_ctx *ctx, const struct kern_kv_append *a);
void kern_ref_kv_copy(struct kern_ctx *ctx, const struct kern_kv *kv,
		      const struct kern_kv_copy *copies, u32 nr);
void kern_ref_attention(struct kern_ctx *ctx, const struct kern_attn *a);
void kern_ref_conv(struct kern_ctx *ctx, const struct kern_conv *a);
void kern_ref_gated_norm(struct kern_ctx *ctx, const struct kern_gated_norm *a);
void kern_ref_scan(struct kern_ctx *ctx, const struct kern_scan *a);

void kern_ref_swiglu(struct kern_ctx *ctx, const float *gate, const float *up,
		     u64 ld, u32 m, u32 d, float alpha, float limit, float *y);
void kern_ref_route(struct kern_ctx *ctx, const struct kern_route *r);
void kern_ref_blend(struct kern_ctx *ctx, const struct kern_blend *b);
void kern_ref_adapt(struct kern_ctx *ctx, const struct kern_adapt *a);

#endif /* KERNELS_REF_INTERNAL_H */
