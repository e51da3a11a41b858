/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_kernels.h - data and pools for the tests of the kernels
 *
 * Reproducible data, and small pools of paged KV: blocks at shuffled places,
 * block-major or layer-major, and every byte of the pool NaN until it is
 * written, so that an op that reads beyond its view shows at once.
 */
#ifndef CHECK_KERNELS_H
#define CHECK_KERNELS_H

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "tests/unit/kern_hosted.h"

struct rng {
	u64 s;
};

static inline u32 rng_next(struct rng *r)
{
	u64 z = (r->s += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) >> 32;
}

/* In [lo, hi]. */
static inline u32 rng_range(struct rng *r, u32 lo, u32 hi)
{
	return lo + rng_next(r) % (hi - lo + 1);
}

/* In [-1, 1). */
static inline float rng_float(struct rng *r)
{
	return (s32)rng_next(r) / 2147483648.0f;
}

static inline u16 bf16_of(float f)
{
	u32 bits;

	memcpy(&bits, &f, sizeof(bits));
	return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

static inline float bf16_to(u16 h)
{
	u32 bits = (u32)h << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline float *rng_floats(struct rng *r, u64 n)
{
	float *f = malloc(max(n, (u64)1) * sizeof(*f));
	u64 i;

	ck_assert_ptr_nonnull(f);
	for (i = 0; i < n; i++)
		f[i] = rng_float(r);
	return f;
}

static inline struct kern_weight rng_weight(struct rng *r, u32 rows, u32 cols,
					    enum kern_dtype type)
{
	u64 n = (u64)rows * cols, i;
	float *f = rng_floats(r, n);
	u16 *h = (u16 *)f;

	if (type == KERN_BF16)
		for (i = 0; i < n; i++)
			h[i] = bf16_of(f[i]);
	return (struct kern_weight){ .data = f, .dtype = type, .rows = rows, .cols = cols };
}

static inline float weight_at(const struct kern_weight *w, u32 row, u32 col)
{
	u64 i = (u64)row * w->cols + col;

	if (w->dtype == KERN_F32)
		return ((const float *)w->data)[i];
	return bf16_to(((const u16 *)w->data)[i]);
}

/* @w, packed by @ops into new memory; false if @ops does not pack it. */
static inline bool weight_pack(const struct kern_ops *ops,
			       struct kern_ctx *ctx,
			       const struct kern_weight *w,
			       struct kern_weight *packed)
{
	size_t size = ops->pack_bytes ? ops->pack_bytes(w) : 0;
	size_t i;
	u8 *to;

	if (!size)
		return false;
	ck_assert_uint_eq(size % 64, 0);
	to = aligned_alloc(64, size + 64);
	ck_assert_ptr_nonnull(to);
	/* NaN in every byte that the op does not write; it must not write past the end. */
	memset(to, 0xff, size + 64);
	*packed = *w;
	ops->pack(ctx, packed, to);
	ck_assert_ptr_eq(packed->data, to);
	ck_assert(packed->packed);
	ck_assert_uint_eq(ops->pack_bytes(packed), 0);
	for (i = size; i < size + 64; i++)
		ck_assert_msg(to[i] == 0xff, "packing wrote past its end");
	return true;
}

/* @n floats that no op wrote. */
static inline float *poisoned(u64 n)
{
	float *f = malloc(n * sizeof(*f));

	ck_assert_ptr_nonnull(f);
	memset(f, 0xff, n * sizeof(*f));
	return f;
}

#define ck_assert_bits_eq(a, b, n)					\
	ck_assert_msg(!memcmp(a, b, (n) * sizeof(*(a))),		\
		      "%s:%s: bits of %s and %s differ", ops->name,	\
		      ops->variant, #a, #b)

/* Does @ops take heads of this size and type?  Other fields of @kv may be unset. */
static inline bool takes_heads(const struct kern_ops *ops,
			       const struct kern_kv *kv)
{
	struct kern_kv one = {
		.unit = 64, .block_tokens = 16, .nr_layers = 1, .kv_heads = 1,
		.head_dim = kv->head_dim, .dtype = kv->dtype,
	};

	return !kern_kv_check_ops(ops, &one);
}

struct pool {
	struct kern_kv	kv;
	u64		bytes;
	u32		nr_blocks;
	u32		*entries;	/* of each block, shuffled */
};

enum pool_layout {
	BLOCK_MAJOR,
	LAYER_MAJOR,
};

/* The caller sets all of @kv but base and strides. */
static inline struct pool pool_create(struct rng *r, struct kern_kv kv,
				      u32 nr_blocks, enum pool_layout layout)
{
	u64 layer = ALIGN_UP(kern_kv_layer_bytes(&kv), 128);
	u64 block = layout == BLOCK_MAJOR ? layer * kv.nr_layers : layer;
	struct pool p = { .kv = kv, .nr_blocks = nr_blocks };
	u32 i, j, t;

	/* The largest unit of a large pool, if blocks have whole units of it. */
	p.kv.unit = layout == BLOCK_MAJOR ? min(block & -block, 4096ul) : 64;
	p.kv.layer_stride = layout == BLOCK_MAJOR ? layer : layer * nr_blocks;
	p.bytes = layer * kv.nr_layers * nr_blocks;
	p.kv.base = malloc(p.bytes);
	p.entries = malloc(nr_blocks * sizeof(*p.entries));
	ck_assert_ptr_nonnull(p.kv.base);
	ck_assert_ptr_nonnull(p.entries);
	ck_assert_int_eq(kern_kv_check(&p.kv), 0);
	memset(p.kv.base, 0xff, p.bytes);	/* elements or scales are NaN */
	hosted_pool(p.kv.base, p.bytes);
	for (i = 0; i < nr_blocks; i++)
		p.entries[i] = i * block / p.kv.unit;
	for (i = nr_blocks; i-- > 1;) {
		j = rng_next(r) % (i + 1);
		t = p.entries[i];
		p.entries[i] = p.entries[j];
		p.entries[j] = t;
	}
	return p;
}

static inline void pool_destroy(struct pool *p)
{
	hosted_pool_ends(p->kv.base);
	free(p->kv.base);
	free(p->entries);
}

#endif /* CHECK_KERNELS_H */
