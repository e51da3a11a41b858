// SPDX-License-Identifier: Apache-2.0
/*
 * v_attn_pv.c - the weighted sum of a chunk's V
 *
 * A query's sum goes over V by rising position, with one multiply-add each, so
 * its bits do not depend on the queries that share the loads of V.  A step is up
 * to STEP_Q queries by some registers of the head; their sums stay in registers
 * for all positions that all of these queries see.  V of a position that a query
 * does not see is never multiplied, not even by zero: it may be NaN.
 */
#include "kernels/cpu/attn_bf16.h"

/* Registers of v that a step accumulates at a time. */
#define DV		(VW / 4)
#define PV_REGS(mr)	((mr) == 1 ? 2 * DV : DV)

/* nv registers of a row of V, the last of them whole or a half. */
static __inline_always void pv_load(const u8 *v, const float *by, const u32 nv,
				    const bool whole, vf *to,
				    const enum kern_dtype type)
{
	const u32 step = VW * kern_dtype_size(type);
	u32 j;

#pragma GCC unroll 8
	for (j = 0; j + 2 <= nv; j += 2)
		kv_load_two(v + j * step, by, &to[j], type);
	if (nv % 2)
		to[nv - 1] = whole ? kv_load(v + (nv - 1) * step, by, type) :
				     kv_load_half(v + (nv - 1) * step, by,
						  type);
}

/* Add @n keys of one unit, nv registers of the head, for mr queries. */
static __inline_always void pv_part(const struct tile *t, const float *p,
				    float *out, const u8 *v, const float *by,
				    const u8 *ahead, u32 n, const u32 mr,
				    const u32 nv, const bool whole,
				    const enum kern_dtype type)
{
	const u32 bytes = (whole ? nv * VW : nv * VW - VW / 2) *
			  kern_dtype_size(type);
	vf acc[STEP_Q * DV], vv[2 * DV], w;
	const u64 row = t->row;
	u32 m, j;
	u64 i;

#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 8
		for (j = 0; j < nv; j++)
			acc[m * nv + j] = vf_load(out + m * t->hd + j * VW);
	for (i = 0; i < n; i++, v += row) {
		pv_load(v, by + i, nv, whole, vv, type);
		line_prefetch(ahead, bytes);
		ahead += bytes;
#pragma GCC unroll 4
		for (m = 0; m < mr; m++) {
			w = vf_set(p[m * KERN_CHUNK + i]);
#pragma GCC unroll 8
			for (j = 0; j < nv; j++)
				acc[m * nv + j] = vf_fma(w, vv[j],
							 acc[m * nv + j]);
		}
	}
#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 8
		for (j = 0; j < nv; j++)
			if (whole)
				vf_store(out + m * t->hd + j * VW,
					 acc[m * nv + j]);
			else
				vf_store_part(out + m * t->hd + j * VW,
					      acc[m * nv + j], VW / 2);
}

#ifdef KERN_FAST

/* As pv_keys(), in pairs of positions. */
static __inline_always void pv_pairs(struct tile *t, struct keys k, u32 at,
				     u32 q, const u8 *v, const u8 *ahead,
				     const u32 mr)
{
	const u16 *p = t->p_bf16 + q * 2 * KERN_CHUNK + at;
	float *out = t->acc + q * t->hd;
	u32 d = 0;

	k.lo -= at;
	k.hi -= at;
	for (; d + 4 * VW <= t->hd; d += 4 * VW, ahead += UNIT_KEYS * 4 * VW * 2)
		mix_pairs(t, p, out + d, v + d * 2, d, PAIR_STEP, k, ahead, mr,
			  4);
	for (; d + 2 * VW <= t->hd; d += 2 * VW, ahead += UNIT_KEYS * 2 * VW * 2)
		mix_pairs(t, p, out + d, v + d * 2, d, PAIR_STEP, k, ahead, mr,
			  2);
	if (t->hd - d == VW)
		mix_pairs(t, p, out + d, v + d * 2, d, VW, k, ahead, mr, 1);
	else if (t->hd - d > VW)
		mix_pairs(t, p, out + d, v + d * 2, d, t->hd - d, k, ahead, mr,
			  2);
	else if (d < t->hd)
		mix_pairs(t, p, out + d, v + d * 2, d, t->hd - d, k, ahead, mr,
			  1);
}

#endif

/* Add the keys @k of a unit for mr queries; V of its first key, @at, is at @v. */
static __inline_always void pv_keys(struct tile *t, struct keys k, u32 at,
				    u32 q, const u8 *v, const float *by,
				    const u8 *ahead, const u32 mr,
				    const enum kern_dtype type, const bool half)
{
	const u32 elem = kern_dtype_size(type), dv = PV_REGS(mr);
	const float *p = t->s + q * KERN_CHUNK + k.lo;
	float *out = t->acc + q * t->hd;
	u32 d = 0, n = k.hi - k.lo;

#ifdef KERN_FAST
	if (type == KERN_BF16) {
		pv_pairs(t, k, at, q, v, ahead, mr);
		return;
	}
#endif
	v += (k.lo - at) * t->row;
	by += k.lo - at;
	for (; d + dv * VW <= t->hd; d += dv * VW, ahead += n * dv * VW * elem)
		pv_part(t, p, out + d, v + d * elem, by, ahead, n, mr, dv,
			true, type);
	for (; row_whole(d, t->hd, half); d += VW, ahead += n * VW * elem)
		pv_part(t, p, out + d, v + d * elem, by, ahead, n, mr, 1,
			true, type);
	if (half && d < t->hd)
		pv_part(t, p, out + d, v + d * elem, by, ahead, n, mr, 1,
			false, type);
}

/* Add the keys @k for one query: not all queries of its step see them. */
static __attribute__((noinline)) void pv_alone(struct tile *t, struct keys k,
					       u32 at, u32 q, const u8 *v,
					       const float *by)
{
	if (k.lo >= k.hi)
		return;
	switch (t->type) {
#define x(name, type)							\
	case type:							\
		pv_keys(t, k, at, q, v, by, v, 1, type, HALF_ENDS);	\
		break;
	KV_TYPES(x)
#undef x
	default:
		break;
	}
}

/* The keys of the unit at @at among the keys @k. */
static __inline_always struct keys unit_keys(struct keys k, u32 at)
{
	k.lo = max(k.lo, at);
	k.hi = max(k.lo, min(k.hi, at + UNIT_KEYS));
	return k;
}

/* mr queries with different views: common keys together, the rest one by one. */
static __inline_always void pv_apart(struct tile *t, u32 i, u32 at, u32 q,
				     const u8 *v, const float *by,
				     const u32 mr, const enum kern_dtype type,
				     const bool half)
{
	struct keys all = { .lo = at, .hi = at + UNIT_KEYS }, see[STEP_Q];
	u32 m;

	for (m = 0; m < mr; m++) {
		see[m] = unit_keys(t->see[i + m], at);
		all.lo = max(all.lo, see[m].lo);
		all.hi = min(all.hi, see[m].hi);
	}
	if (tile_rounds(t)) {		/* do not split a pair */
		all.lo = ALIGN_UP(all.lo, 2);
		all.hi &= ~1u;
	}
	if (all.lo >= all.hi) {
		for (m = 0; m < mr; m++)
			pv_alone(t, see[m], at, q + m, v, by);
		return;
	}
	for (m = 0; m < mr; m++)
		pv_alone(t, (struct keys){ see[m].lo, all.lo }, at, q + m, v,
			 by);
	pv_keys(t, all, at, q, v, by, v, mr, type, half);
	for (m = 0; m < mr; m++)
		pv_alone(t, (struct keys){ all.hi, see[m].hi }, at, q + m, v,
			 by);
}

/* Queries @i to @i + mr of a KV head; the first is @q in the tile. */
static __inline_always void pv_step(struct tile *t, u32 i, u32 at, u32 q,
				    const u8 *v, const float *by,
				    const u8 *ahead, const u32 mr,
				    const enum kern_dtype type, const bool half)
{
	if (t->same)
		pv_keys(t, unit_keys(t->see[i], at), at, q, v, by, ahead, mr,
			type, half);
	else
		pv_apart(t, i, at, q, v, by, mr, type, half);
}

static __inline_always void pv_unit(struct tile *t, u32 u,
				    const enum kern_dtype type, const bool half)
{
	const u8 *v = t->now->k[u] + t->to_v, *ahead = unit_ahead(t, u, true);
	const float *by = t->now->by[u] + t->to_by;
	u32 at, i, q = unit_place(t, u, &at) * t->nr;

	for (i = 0; i + 4 <= t->nr; i += 4, ahead = v)
		pv_step(t, i, at, q + i, v, by, ahead, 4, type, half);
	if (t->nr - i == 3)
		pv_step(t, i, at, q + i, v, by, ahead, 3, type, half);
	else if (t->nr - i == 2)
		pv_step(t, i, at, q + i, v, by, ahead, 2, type, half);
	else if (t->nr - i == 1)
		pv_step(t, i, at, q + i, v, by, ahead, 1, type, half);
}

static __inline_always void pv_units(struct tile *t, const enum kern_dtype type,
				     const bool half)
{
	u32 u;

	for (u = 0; u < tile_units(t); u++)
		if (t->now->k[u])
			pv_unit(t, u, type, half);
}

#define PV(name, type)							\
static __attribute__((noinline)) void pv_##name(struct tile *t)		\
{									\
	pv_units(t, type, false);					\
}									\
static __attribute__((noinline)) void pv_half_##name(struct tile *t)	\
{									\
	pv_units(t, type, HALF_ENDS);					\
}
KV_TYPES(PV)

void KERN_FN(attn_mix)(struct tile *t)
{
	static void (* const pv[][2])(struct tile *t) = {
#define x(name, type)	[type] = { pv_##name, pv_half_##name },
		KV_TYPES(x)
#undef x
	};

	pv[t->type][tile_half(t)](t);
}
