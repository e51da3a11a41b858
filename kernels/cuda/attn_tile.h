/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_tile.h - fast attention of 16 queries over a few positions, by one warp
 *
 * mma_bf16() or mma_f16() with queries as the rows: S = Q K^T, the online
 * softmax in base 2, O += P V.  Lane 4g + t holds the rows g and g + 8 of S and O,
 * and of these the columns 2t and 2t + 1 of each tile of 8.
 *
 * With bf16 KV queries and weights are rounded to bf16, once.  With f16 KV they are
 * rounded to f16: each query times a power of two that makes its largest element
 * about 2^13, weights times 2^14, so that the rounding errors are small compared
 * with the largest element.  Both factors are divided out in f32.  e4m3 and int8
 * are widened to bf16, without loss; scores and weights are multiplied by the
 * scales.
 *
 * Rows of K and V are stored in shared memory in pieces of 16 bytes, so that the
 * eight rows of a matrix are in different banks: piece c of row r is at
 * c ^ (r & 7).  If a row is no multiple of 128 bytes, rows are an odd number of
 * pieces apart instead.  Positions that no query of the tile sees are zeros.
 */
#ifndef KERNELS_CUDA_ATTN_TILE_H
#define KERNELS_CUDA_ATTN_TILE_H

#include "kernels/cuda/attn.h"
#include "kernels/cuda/list.h"

/* Dynamic shared memory of each kernel. */
enum attn_smem {
#define x(name, smem)	ATTN_SMEM_##name = (smem),
	CUDA_ATTN_KERNELS(x)
#undef x
};

#define LOG2_E	1.44269504f

/* Layout in shared memory of KV of a type, with heads of up to HD dims. */
template <int TYPE, int HD>
struct tile_shape {
	static const bool narrow = TYPE == KERN_E4M3 || TYPE == KERN_I8;
	static const u32 elem = narrow ? 1 : 2;
	static const u32 pieces = HD * elem / 16;
	static const bool swizzled = !narrow && HD % 64 == 0;
	static const u32 row = swizzled ? pieces : pieces | 1;
};

/* Piece @c of row @r, in pieces. */
template <int TYPE, int HD>
DEVICE u32 tile_piece(u32 r, u32 c)
{
	typedef tile_shape<TYPE, HD> shape;

	return r * shape::row + (shape::swizzled ? c ^ (r & 7) : c);
}

/* One lane's part of 16 queries. */
template <int HD>
struct tile_rows {
	u32	q[HD / 16][4];
	float	o[HD / 8][4];
	float	m[2];
	float	l[2];
	float	mul[2];		/* factor of scores, for base 2 */
	u32	lo[2];		/* positions seen */
	u32	hi[2];
};

/* Dim of column @c of tile @n of O. */
template <int TYPE>
DEVICE u32 tile_dim(u32 n, u32 c)
{
	if (tile_shape<TYPE, 64>::narrow)
		return n / 4 * 32 + c * 4 + n % 4;
	return n * 8 + c;
}

/* Dim of the pair of columns 2t (of the first or second 8) of step @k of Q. */
template <int TYPE>
DEVICE u32 tile_q_dim(u32 k, u32 t, u32 second)
{
	if (tile_shape<TYPE, 64>::narrow)
		return k * 16 + t * 4 + second * 2;
	return k * 16 + second * 8 + t * 2;
}

DEVICE float tile_load(const float *q, u32 d, u32 hd)
{
	return d < hd ? q[d] : 0.0f;
}

/* The largest |q| of a row, by the four lanes that share the row. */
template <int TYPE, int HD>
DEVICE float tile_largest(const float *q, u32 hd)
{
	const u32 t = thread_lane() % 4;
	float x = 0.0f;
	u32 d;

	for (d = t; d < hd && q; d += 4)
		x = fmaxf(x, fabsf(q[d]));
	x = fmaxf(x, __shfl_xor_sync(FULL_MASK, x, 1));
	return fmaxf(x, __shfl_xor_sync(FULL_MASK, x, 2));
}

/* Load row @i (0 or 1) of the lane's two from @q, a query at @pos. */
template <int TYPE, int HD>
DEVICE void tile_query(const struct k_attn_args &a, struct tile_rows<HD> &w,
		       u32 i, const float *q, u32 pos)
{
	const u32 t = thread_lane() % 4, hd = a.kv.head_dim;
	float mul = a.softcap ? a.scale : a.scale * LOG2_E, by = 1.0f;
	u32 k, j, d, e;

	if (TYPE == KERN_F16) {
		e = float_bits(tile_largest<TYPE, HD>(q, hd)) >> 23;
		e = max(e, 14u);
		by = bits_float((267 - min(e, 266u)) << 23);
		mul *= bits_float((e - 13) << 23);
	}
	w.mul[i] = mul;
	w.m[i] = ATTN_NONE;
	w.l[i] = 0.0f;
	w.lo[i] = q ? attn_first(a, pos) : 1;
	w.hi[i] = q ? pos : 0;
#pragma unroll
	for (k = 0; k < HD / 16; k++) {
#pragma unroll
		for (j = 0; j < 2; j++) {
			const u32 at = tile_q_dim<TYPE>(k, t, j);
			const float x = q ? tile_load(q, at, hd) * by : 0.0f;
			const float y = q ? tile_load(q, at + 1, hd) * by : 0.0f;

			w.q[k][i + 2 * j] = TYPE == KERN_F16 ?
				f16_pair(x, y) : bf16_pair(x, y);
		}
	}
#pragma unroll
	for (d = 0; d < HD / 8; d++)
		w.o[d][2 * i] = w.o[d][2 * i + 1] = 0.0f;
}

/* Load the queries of an item from @q0 on; those past its end see no position. */
template <int TYPE, int HD>
DEVICE void tile_queries(const struct k_attn_args &a,
			 const struct attn_item &it, u32 q0,
			 struct tile_rows<HD> &w)
{
	const u32 g = thread_lane() / 4;
	u32 i, q;

#pragma unroll
	for (i = 0; i < 2; i++) {
		q = q0 + g + i * 8;
		tile_query<TYPE, HD>(a, w, i, q < it.nq ?
				     a.q + attn_at(a, it, q, a.q_ld) : NULL,
				     attn_pos(a, it, q));
	}
}

/*
 * Turn scores of N tiles of 8 positions from @pos on into weights.  With a larger
 * score than before, scale the earlier sums down.
 */
template <int TYPE, int HD, int N>
DEVICE void tile_softmax(const struct k_attn_args &a, struct tile_rows<HD> &w,
			 float (&s)[N][4], u32 pos, bool all_seen)
{
	const u32 t = thread_lane() % 4;
	float top[2] = { ATTN_NONE, ATTN_NONE }, c[2], x;
	u32 n, e, i, at;

#pragma unroll
	for (n = 0; n < N; n++) {
#pragma unroll
		for (e = 0; e < 4; e++) {
			i = e / 2;
			x = s[n][e] * w.mul[i];
			if (a.softcap)
				x = a.softcap * LOG2_E *
				    (1.0f - 2.0f / (1.0f + fast_exp2(
					x * (2.0f * LOG2_E / a.softcap))));
			at = pos + n * 8 + t * 2 + (e & 1);
			if (!all_seen && (at < w.lo[i] || at > w.hi[i]))
				x = ATTN_NONE;
			s[n][e] = x;
			top[i] = fmaxf(top[i], x);
		}
	}
#pragma unroll
	for (i = 0; i < 2; i++) {
		top[i] = fmaxf(top[i], __shfl_xor_sync(FULL_MASK, top[i], 1));
		top[i] = fmaxf(top[i], __shfl_xor_sync(FULL_MASK, top[i], 2));
		top[i] = fmaxf(top[i], w.m[i]);
		/* No position seen so far: use any finite number. */
		x = top[i] == ATTN_NONE ? 0.0f : top[i];
		c[i] = fast_exp2(w.m[i] - x);
		w.l[i] *= c[i];
		w.m[i] = top[i];
		top[i] = TYPE == KERN_F16 ? x - 14.0f : x;
	}
	if (__any_sync(FULL_MASK, c[0] != 1.0f || c[1] != 1.0f)) {
#pragma unroll
		for (n = 0; n < HD / 8; n++)
#pragma unroll
			for (e = 0; e < 4; e++)
				w.o[n][e] *= c[e / 2];
	}
#pragma unroll
	for (n = 0; n < N; n++) {
#pragma unroll
		for (e = 0; e < 4; e++) {
			s[n][e] = fast_exp2(s[n][e] - top[e / 2]);
			w.l[e / 2] += s[n][e];
		}
	}
}

template <int TYPE>
DEVICE void tile_mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
	const u32 b[2] = { b0, b1 };

	if (TYPE == KERN_F16)
		mma_f16(d, a, b);
	else
		mma_bf16(d, a, b);
}

template <int TYPE>
DEVICE u32 tile_pair(float lo, float hi)
{
	return TYPE == KERN_F16 ? f16_pair(lo, hi) : bf16_pair(lo, hi);
}

/* Rows of P for 16 positions, from two tiles of scores. */
template <int TYPE>
DEVICE void tile_weights(u32 (&p)[4], const float (&s0)[4],
			 const float (&s1)[4])
{
	p[0] = tile_pair<TYPE>(s0[0], s0[1]);
	p[1] = tile_pair<TYPE>(s0[2], s0[3]);
	p[2] = tile_pair<TYPE>(s1[0], s1[1]);
	p[3] = tile_pair<TYPE>(s1[2], s1[3]);
}

/* S of 2 * NP tiles; rows of K begin at element @at of 16-bit KV. */
template <int TYPE, int HD, int NP>
DEVICE void tile_scores(SHARED_PTR(u16) kv, u32 at,
			const struct tile_rows<HD> &w, float (&s)[2 * NP][4])
{
	const u32 lane = thread_lane(), r = lane / 16 * 8 + lane % 8;
	u32 k, n, b[4];

#pragma unroll
	for (n = 0; n < 2 * NP; n++)
		s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
	for (k = 0; k < HD / 16; k++) {
#pragma unroll
		for (n = 0; n < NP; n++) {
			mat_load4(b, kv, at + 8 * tile_piece<TYPE, HD>(
					n * 16 + r, k * 2 + lane / 8 % 2));
			tile_mma<TYPE>(s[2 * n], w.q[k], b[0], b[1]);
			tile_mma<TYPE>(s[2 * n + 1], w.q[k], b[2], b[3]);
		}
	}
}

/* O += P V; rows of V begin at element @at. */
template <int TYPE, int HD, int NP>
DEVICE void tile_mix(SHARED_PTR(u16) kv, u32 at, struct tile_rows<HD> &w,
		     const float (&s)[2 * NP][4])
{
	const u32 lane = thread_lane(), r = lane % 16;
	u32 n, d, p[4], b[4];

#pragma unroll
	for (n = 0; n < NP; n++) {
		tile_weights<TYPE>(p, s[2 * n], s[2 * n + 1]);
#pragma unroll
		for (d = 0; d < HD / 16; d++) {
			mat_load4_trans(b, kv, at + 8 * tile_piece<TYPE, HD>(
					n * 16 + r, d * 2 + lane / 16));
			tile_mma<TYPE>(w.o[2 * d], p, b[0], b[1]);
			tile_mma<TYPE>(w.o[2 * d + 1], p, b[2], b[3]);
		}
	}
}

/*
 * The last step of query @q: its scores have the maximum @m, in base 2, and whose
 * weights have the sum @l: add its sink to @l.  Returns a factor on the other sums.
 * Weights over f16 KV are 2^14 times as large.
 */
DEVICE float tile_sink(const struct k_attn_args &a, const struct attn_item &it,
		       u32 q, float m, float *l)
{
	const float up = a.kv.dtype == KERN_F16 ? 14.0f : 0.0f;
	float sink, top, c;

	if (!a.sinks)
		return 1.0f;
	sink = a.sinks[attn_head(a, it, q)] * LOG2_E;
	top = fmaxf(m, sink);
	c = fast_exp2(m - top);
	*l = *l * c + fast_exp2(sink - top + up);
	return c;
}

/* Add up the sums of weights of the four lanes that share a row. */
template <int HD>
DEVICE void tile_end(struct tile_rows<HD> &w)
{
	u32 i;

#pragma unroll
	for (i = 0; i < 2; i++) {
		w.l[i] += __shfl_xor_sync(FULL_MASK, w.l[i], 1);
		w.l[i] += __shfl_xor_sync(FULL_MASK, w.l[i], 2);
	}
}

/* ---- e4m3 and int8 ---- */

/* Byte @i of a word as a number, without its scale. */
template <int TYPE>
DEVICE float narrow_float(u32 w, u32 i)
{
	if (TYPE == KERN_E4M3)	/* NaN is never stored */
		return bits_float((w << (24 - 8 * i) & 0x80000000) |
				  ((w >> 8 * i & 0x7f) << 20)) * 0x1p120f;
	/* 2^23 + 128 + x, as bits. */
	return bits_float(0x4b000000 | ((w >> 8 * i & 0xff) ^ 0x80)) -
	       8388736.0f;
}

/* Scores of 16 positions; rows of K begin at word @at of narrow KV. */
template <int TYPE, int HD>
DEVICE void narrow_scores(SHARED_PTR(u32) kv, u32 at,
			  const struct tile_rows<HD> &w, float (&s)[2][4])
{
	const u32 g = thread_lane() / 4, t = thread_lane() % 4;
	const u32 row = 4 * tile_shape<TYPE, HD>::row;
	u32 k, n;

#pragma unroll
	for (n = 0; n < 2; n++)
		s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
	for (k = 0; k < HD / 16; k++) {
#pragma unroll
		for (n = 0; n < 2; n++) {
			const u32 x = kv[at + (n * 8 + g) * row + k * 4 + t];

			tile_mma<TYPE>(s[n], w.q[k],
				bf16_pair(narrow_float<TYPE>(x, 0),
					  narrow_float<TYPE>(x, 1)),
				bf16_pair(narrow_float<TYPE>(x, 2),
					  narrow_float<TYPE>(x, 3)));
		}
	}
}

/* O += P V; rows of V begin at word @at. */
template <int TYPE, int HD>
DEVICE void narrow_mix(SHARED_PTR(u32) kv, u32 at, struct tile_rows<HD> &w,
		       const float (&s)[2][4])
{
	const u32 g = thread_lane() / 4, t = thread_lane() % 4;
	const u32 row = 4 * tile_shape<TYPE, HD>::row;
	u32 p[4], d, j;

	tile_weights<TYPE>(p, s[0], s[1]);
#pragma unroll
	for (d = 0; d < HD / 32; d++) {
		const u32 i = at + 2 * t * row + d * 8 + g;
		const u32 v0 = kv[i], v1 = kv[i + row];
		const u32 v2 = kv[i + 8 * row], v3 = kv[i + 9 * row];

#pragma unroll
		for (j = 0; j < 4; j++)
			tile_mma<TYPE>(w.o[d * 4 + j], p,
				bf16_pair(narrow_float<TYPE>(v0, j),
					  narrow_float<TYPE>(v1, j)),
				bf16_pair(narrow_float<TYPE>(v2, j),
					  narrow_float<TYPE>(v3, j)));
	}
}

/*
 * Multiply @s by the scales of N tiles of positions: f32 bits from word @at on.  A
 * weight of 0 stays 0 for any scale, also for NaN.
 */
template <int N>
DEVICE void narrow_scale(SHARED_PTR(u32) kv, u32 at, float (&s)[N][4],
			 bool weights)
{
	const u32 t = thread_lane() % 4;
	u32 n, e;

#pragma unroll
	for (n = 0; n < N; n++)
#pragma unroll
		for (e = 0; e < 4; e++)
			s[n][e] = weights && s[n][e] == 0.0f ? 0.0f : s[n][e] *
				bits_float(kv[at + n * 8 + t * 2 + (e & 1)]);
}

#endif /* KERNELS_CUDA_ATTN_TILE_H */
