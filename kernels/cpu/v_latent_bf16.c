// SPDX-License-Identifier: Apache-2.0
/*
 * v_latent_bf16.c - latent attention over bf16 KV in fast mode
 *
 * The steps are those of attn_bf16.h: a score takes pairs of dimensions, and the
 * weighted sum pairs of positions, an even one and the odd one after it.  A pair
 * is never split: if a query sees only its even position, zeros stand in for the
 * vector of the odd one, whose weight is zero.  So bits do not depend on the tile.
 */
#include "kernels/cpu/latent.h"

#ifdef KERN_FAST

/* Scores of mr queries from @q on with one unit; prefetches from @ahead on. */
static __inline_always void unit_scores(struct latent *l, u32 q, u32 unit,
					const u8 *ahead, const u32 mr)
{
	const u32 nr = VW / mr;
	const u64 row = l->hd * 2ull;
	float f[VW];
	u32 i, m;

	for (i = 0; i < UNIT_KEYS; i += nr) {
		vf_store(f, tile_pairs(mr, nr, l->q_bf16 + (u64)q * l->hd,
				       l->hd, l->unit[unit] + i * row,
				       ahead + i * row));
#pragma GCC unroll 4
		for (m = 0; m < mr; m++)
			memcpy(l->s + (q + m) * KERN_CHUNK +
			       unit * UNIT_KEYS + i, f + m * nr,
			       nr * sizeof(*f));
	}
}

/* The first step prefetches the next unit, which the hardware cannot predict. */
void KERN_FN(latent_scores)(struct latent *l, u32 keys)
{
	const u32 units = keys / UNIT_KEYS;
	const u8 *ahead;
	u32 u, q;

	for (u = 0; u < units; u++) {
		ahead = l->unit[u + 1 < units ? u + 1 : u];
		for (q = 0; q + STEP_Q <= l->nr; q += STEP_Q) {
			unit_scores(l, q, u, ahead, STEP_Q);
			ahead = l->unit[u];
		}
		for (; q < l->nr; q++)
			unit_scores(l, q, u, l->unit[u], 1);
	}
}

/* Zeros in place of the vector of a position out of view. */
static const u8 no_vector[KERN_MAX_RANK * 2] __attribute__((aligned(64)));

/* The vector of key @t of the chunk, from dimension @d on. */
static __inline_always const u8 *vector_at(const struct latent *l, u32 t, u32 d)
{
	return l->unit[t / UNIT_KEYS] +
	       ((u64)(t % UNIT_KEYS) * l->hd + d) * 2;
}

/* acc += p * k over the keys from @from, an even one, up to @to. */
static __inline_always void mix_part(struct latent *l, u32 q, u32 d, u32 from,
				     u32 to, const u32 mr, const u32 nv)
{
	float *out = l->acc + (u64)q * l->rank + d;
	__m512 acc[STEP_Q * 4];
	__m512i k[4], w;
	u32 m, j, t, pair;

#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 4
		for (j = 0; j < nv; j++)
			acc[m * nv + j] = _mm512_loadu_ps(out +
				(u64)m * l->rank + j * VW);
	for (t = from; t < to; t += 2) {
		pair_load(vector_at(l, t, d),
			  t + 1 < to ? vector_at(l, t + 1, d) :
				       no_vector + d * 2, nv,
			  nv > 1 ? PAIR_STEP : VW, k);
#pragma GCC unroll 4
		for (m = 0; m < mr; m++) {
			memcpy(&pair, l->p_bf16 + (q + m) * KERN_CHUNK + t,
			       sizeof(pair));
			w = _mm512_set1_epi32((int)pair);
#pragma GCC unroll 4
			for (j = 0; j < nv; j++)
				acc[m * nv + j] = _mm512_dpbf16_ps(
					acc[m * nv + j], (__m512bh)k[j],
					(__m512bh)w);
		}
	}
#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 4
		for (j = 0; j < nv; j++)
			_mm512_storeu_ps(out + (u64)m * l->rank + j * VW,
					 acc[m * nv + j]);
}

static __inline_always void mix_keys(struct latent *l, u32 q, u32 from, u32 to,
				     const u32 mr)
{
	u32 d = 0;

	for (; d + 4 * VW <= l->rank; d += 4 * VW)
		mix_part(l, q, d, from, to, mr, 4);
	for (; d + 2 * VW <= l->rank; d += 2 * VW)
		mix_part(l, q, d, from, to, mr, 2);
	if (d < l->rank)
		mix_part(l, q, d, from, to, mr, 1);
}

/* First the pairs that all queries of a step see. */
void KERN_FN(latent_mix)(struct latent *l)
{
	u32 q = 0, m, all;

	for (; q + STEP_Q <= l->nr; q += STEP_Q) {
		all = l->see[q];
		if (l->see[q + STEP_Q - 1] > all)
			all &= ~1u;
		mix_keys(l, q, 0, all, STEP_Q);
		for (m = 0; m < STEP_Q; m++)
			if (l->see[q + m] > all)
				mix_keys(l, q + m, all, l->see[q + m], 1);
	}
	for (; q < l->nr; q++)
		mix_keys(l, q, 0, l->see[q], 1);
}

#endif /* KERN_FAST */
