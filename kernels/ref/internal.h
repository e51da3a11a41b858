/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the files of the reference kernels share
 */
#ifndef KERNELS_REF_INTERNAL_H
#define KERNELS_REF_INTERNAL_H

#include "kernels/kernels.h"

/* Element @i of an array of @type, widened. */
double kern_ref_load(const void *p, enum kern_dtype type, u64 i);

/* Round @x to @type and store it as element @i. */
void kern_ref_store(void *p, enum kern_dtype type, u64 i, float x);

void kern_ref_kv_write(struct kern_ctx *ctx, const struct kern_kv_append *a);
void kern_ref_kv_copy(struct kern_ctx *ctx, const struct kern_kv *kv,
		      const struct kern_kv_copy *copies, u32 nr);
void kern_ref_attention(struct kern_ctx *ctx, const struct kern_attn *a);

#endif /* KERNELS_REF_INTERNAL_H */
