/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - declarations shared by the files of the CPU kernels
 *
 * ctx.c (threads) and variants.c (tables) are compiled once.  So are move.c and
 * trig.c, since the bits that their ops move or compute do not depend on the
 * instruction set.  v_*.c are compiled once per variant; KERN_FN() gives every
 * symbol the variant's name.
 */
#ifndef KERNELS_CPU_INTERNAL_H
#define KERNELS_CPU_INTERNAL_H

#include "kernels/kernels.h"

/* Variants, narrowest first, exact before fast; kern_cpu_at() lists those of this CPU. */
#if defined(__x86_64__)
#define KERN_VARIANTS(x)	x(base) x(avx2) x(avx512) x(avx512bf16)
#else
#define KERN_VARIANTS(x)	x(base)
#endif

#define x(v)	extern const struct kern_ops kern_ops_##v;
KERN_VARIANTS(x)
#undef x

/* The same code as avx2 and avx512, in fast mode: it packs weights in blocks. */
#if defined(__x86_64__)
extern const struct kern_ops kern_ops_ints_avx2, kern_ops_ints_avx512;
#endif

/*
 * The caller runs smaller work than this many multiply-adds (or bytes moved)
 * alone: it is done before another thread has woken.
 */
#define KERN_PARALLEL_MIN	(512u << 10)

/*
 * Memory of @ctx for one op at a time: two rooms of KERN_ROOM bytes, one after the other, at
 * a multiple of 64.  The second one has the rows of x of packed products.
 */
#define KERN_ROOM	(8u << 20)
void *kern_ctx_room(struct kern_ctx *ctx);

/**
 * kern_parallel() - run fn(arg, 0) ... fn(arg, nr - 1), in any order
 * @ctx: threads to use; NULL runs everything here
 * @nr:  number of items, may be 0
 * @fn:  one item; items may run at the same time and must not overlap
 * @arg: passed through
 *
 * Context: returns when all items are done; their stores are visible.
 */
void kern_parallel(struct kern_ctx *ctx, u32 nr,
		   void (*fn)(void *arg, u32 i), void *arg);

void kern_embed(struct kern_ctx *ctx, const struct kern_weight *w,
		const u32 *ids, u32 m, float *x);
void kern_kv_write(struct kern_ctx *ctx, const struct kern_kv_append *a);
void kern_kv_copy(struct kern_ctx *ctx, const struct kern_kv *kv,
		  const struct kern_kv_copy *copies, u32 nr);

/**
 * kern_narrow() - convert @n numbers to elements of KV
 * @dst:   at least as aligned as the type
 * @type:  of the elements
 * @scale: gets their scale, for types that have one
 *
 * kernels.h defines the result to the bit.
 */
void kern_narrow(void *dst, enum kern_dtype type, float *scale,
		 const float *src, u32 n);
void kern_gather(struct kern_ctx *ctx, const float *x, const u32 *rows, u32 m,
		 u32 d, float *y);
void kern_split_heads(struct kern_ctx *ctx, const float *qkv, u32 m, u32 heads,
		      u32 head_dim, float *q, float *k, float *v);
void kern_rope_table(struct kern_ctx *ctx, const float *inv_freq, u32 half,
		     const u32 *positions, u32 m, float *table);

static inline float kern_bf16_to_f32(u16 h)
{
	u32 bits = (u32)h << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Round to nearest even; NaN stays NaN (quiet), infinities stay. */
static inline u16 kern_f32_to_bf16(float f)
{
	u32 bits;

	memcpy(&bits, &f, sizeof(bits));
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (bits >> 16) | 0x40;
	return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

#endif /* KERNELS_CPU_INTERNAL_H */
