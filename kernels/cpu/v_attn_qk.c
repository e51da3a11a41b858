// SPDX-License-Identifier: Apache-2.0
/*
 * v_attn_qk.c - the scores of a chunk: queries times keys
 *
 * A tile is up to STEP_Q queries by as many keys as fill VW registers of partial
 * sums, which are folded at once.  In every tile a product takes the steps of
 * vec.h: element i of the head to lane i modulo VW, and then the fixed tree.
 */
#include "kernels/cpu/attn_bf16.h"

/* Keys of a tile with @mr queries; a divisor of 16. */
#define QK_KEYS(mr)	((mr) == 3 ? VW / 4 : VW / (mr))

/* One step of VW elements for the whole tile. */
static __inline_always void qk_fma(const u32 mr, const u32 nr, vf *acc,
				   const float *q, u64 q_ld, const vf *kv,
				   u32 by, const bool whole)
{
	vf qv[STEP_Q];
	u32 m, n;

#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
		qv[m] = whole ? vf_load(q + m * q_ld) :
			kv_load_half((const u8 *)(q + m * q_ld), NULL,
				     KERN_F32);
#pragma GCC unroll 16
	for (n = 0; n < nr; n++)
#pragma GCC unroll 4
		for (m = 0; m < mr; m++)
			acc[m * nr + n] = vf_fma(qv[m], kv[n * by],
						 acc[m * nr + n]);
}

/* The same with the last half of a register: zeros take part in its other lanes. */
static __inline_always void qk_end(const u32 mr, const u32 nr, vf *acc,
				   const float *q, u64 q_ld, const u8 *k,
				   const float *by, u64 row,
				   const enum kern_dtype type)
{
	vf kv[VW];
	u32 n;

#pragma GCC unroll 16
	for (n = 0; n < nr; n++)
		kv[n] = kv_load_half(k + n * row, by + n, type);
	qk_fma(mr, nr, acc, q, q_ld, kv, 1, false);
}

static __inline_always vf qk_tile(const u32 mr, const float *q, u64 hd,
				  const u8 *k, const float *by, u64 row,
				  const enum kern_dtype type, const bool half,
				  const u8 *ahead)
{
	const u32 nr = QK_KEYS(mr), elem = kern_dtype_size(type);
	vf acc[VW] = { }, kv[2 * VW];
	u64 i = 0;
	u32 n;

	/* With few keys two registers of each key fit beside the sums. */
	for (; mr > 2 && i + 2 * VW <= hd; i += 2 * VW) {
#pragma GCC unroll 16
		for (n = 0; n < nr; n++)
			kv_load_two(k + n * row + i * elem, by + n, &kv[2 * n],
				    type);
		line_prefetch(ahead + i * nr * elem, 2 * nr * VW * elem);
		qk_fma(mr, nr, acc, q + i, hd, kv, 2, true);
		qk_fma(mr, nr, acc, q + i + VW, hd, kv + 1, 2, true);
	}
	for (; row_whole(i, hd, half); i += VW) {
#pragma GCC unroll 16
		for (n = 0; n < nr; n++)
			kv[n] = kv_load(k + n * row + i * elem, by + n, type);
		line_prefetch(ahead + i * nr * elem, nr * VW * elem);
		qk_fma(mr, nr, acc, q + i, hd, kv, 1, true);
	}
	if (half) {
		line_prefetch(ahead + i * nr * elem, nr * VW / 2 * elem);
		qk_end(mr, nr, acc, q + i, hd, k + i * elem, by, row, type);
	}
	return vf_sum_each(acc);
}

/* mr queries from @q on, nr keys. */
static __inline_always vf qk_any(const struct tile *t, u32 q, const u8 *k,
				 const float *by, const u8 *ahead,
				 const u32 mr, const enum kern_dtype type,
				 const bool half)
{
#ifdef KERN_FAST
	if (type == KERN_BF16)
		return tile_pairs(mr, QK_KEYS(mr), t->q_bf16 + q * t->hd,
				  t->hd, k, ahead);
#endif
	return qk_tile(mr, t->q + q * t->hd, t->hd, k, by, t->row, type,
		       half, ahead);
}

/* mr queries from @q on, one unit. */
static __inline_always void qk_step(struct tile *t, u32 q, u32 at,
				    const u8 *k, const float *by,
				    const u8 *ahead, const u32 mr,
				    const enum kern_dtype type, const bool half)
{
	const u32 nr = QK_KEYS(mr);
	float f[VW], *s = t->s + q * KERN_CHUNK + at;
	u32 i, m;

	for (i = 0; i < UNIT_KEYS; i += nr) {
		vf_store(f, qk_any(t, q, k + i * t->row, by + i,
				   ahead + i * t->row, mr, type, half));
#pragma GCC unroll 4
		for (m = 0; m < mr; m++)
			memcpy(s + m * KERN_CHUNK + i, f + m * nr,
			       nr * sizeof(*f));
	}
}

/* All queries of the unit's KV head; the first step prefetches the unit ahead. */
static __inline_always void qk_unit(struct tile *t, u32 u,
				    const enum kern_dtype type, const bool half)
{
	const u8 *k = t->now->k[u], *ahead = unit_ahead(t, u, false);
	const float *by = t->now->by[u];
	u32 at, q = unit_place(t, u, &at) * t->nr, end = q + t->nr;

	for (; q + 4 <= end; q += 4, ahead = k)
		qk_step(t, q, at, k, by, ahead, 4, type, half);
	if (end - q == 3)
		qk_step(t, q, at, k, by, ahead, 3, type, half);
	else if (end - q == 2)
		qk_step(t, q, at, k, by, ahead, 2, type, half);
	else if (end - q == 1)
		qk_step(t, q, at, k, by, ahead, 1, type, half);
}

static __inline_always void qk_units(struct tile *t, const enum kern_dtype type,
				     const bool half)
{
	u32 u;

	for (u = 0; u < tile_units(t); u++)
		if (t->now->k[u])
			qk_unit(t, u, type, half);
}

#define QK(name, type)							\
static __attribute__((noinline)) void qk_##name(struct tile *t)		\
{									\
	qk_units(t, type, false);					\
}									\
static __attribute__((noinline)) void qk_half_##name(struct tile *t)	\
{									\
	qk_units(t, type, HALF_ENDS);					\
}
KV_TYPES(QK)

void KERN_FN(attn_scores)(struct tile *t)
{
	static void (* const qk[][2])(struct tile *t) = {
#define x(name, type)	[type] = { qk_##name, qk_half_##name },
		KV_TYPES(x)
#undef x
	};

	qk[t->type][tile_half(t)](t);
}
