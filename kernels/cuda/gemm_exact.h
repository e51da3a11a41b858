/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_exact.h - products of exact mode: one order of sums for every shape
 *
 * K is cut into runs of GEMM_RUN elements.  The sum of a run is a chain of
 * fused multiply-adds by rising k, from 0 on; the sums of the runs are added
 * to the total in order, the first to 0, and the bias last.  The last run is
 * padded with zeros, which take the same steps.  So an element of the result
 * depends only on its row of x, its row of W and K.  The kernels below divide the
 * work among threads differently, but have the same steps of arithmetic.
 *
 * exact1, exact4: few rows, bound by reading W.  A block takes 16 or 32 rows of W,
 * eight runs of each at once.  Thread (row, run) has one chain for each row of x;
 * shuffles collect the eight sums, which are added in order.  Asynchronous copies
 * load both operands.  A piece is 128 bytes of a run of W (f32 weights: half a
 * run); the gaps of 16 bytes between pieces keep eight threads of a warp that read
 * eight runs in different banks.
 *
 * mid, tile: many rows, bound by multiply-adds.  Each thread has 4 x 4 or 8 x 8
 * outputs and goes through all of K for them, with two sums for each output: the
 * run's and the total.  Shared memory holds f32, widened when it is stored; the
 * next tile is loaded into registers while one is multiplied.
 *
 * W in blocks becomes f32 on its way into shared memory: a thread takes a group of 32
 * elements.  The rest is the same as with weights in f32, and so are the bits.
 */
#ifndef KERNELS_CUDA_GEMM_EXACT_H
#define KERNELS_CUDA_GEMM_EXACT_H

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/gemm_dev.cuh"

static constexpr u32 RUNS = 8;		/* of a row of W at once */
static constexpr u32 ROWS = 16;		/* of W in a block, times R */
static constexpr u32 THREADS = RUNS * ROWS;
static constexpr u32 PIECE = 36;	/* words: 128 bytes, and 16 empty */

/* Sizes of the kernels for few rows; in words of shared memory. */
template <int TYPE, int MT, int R>
struct few {
	static constexpr u32 elems = 32 * (TYPE == KERN_F32 ? 1 : 2);
	static constexpr u32 pieces = GEMM_RUN / elems;
	static constexpr u32 x_piece = elems + 4;
	static constexpr u32 w_words = ROWS * R * RUNS * PIECE;
	static constexpr u32 words = w_words + MT * RUNS * x_piece;
};

/* First column of K of piece @step for run @run. */
template <class F>
DEVICE u32 piece_at(u32 step, u32 run)
{
	return (step / F::pieces * RUNS + run) * GEMM_RUN +
	       step % F::pieces * F::elems;
}

template <int TYPE, int MT, int R, class S>
DEVICE void few_fetch_w(const struct gemm_args &a, const struct gemm_part &p,
			u32 n0, u32 step, S &sm, u32 to)
{
	typedef few<TYPE, MT, R> F;
	const u32 per = 4 * gemm_per_word<TYPE>();
	u32 i, j, n, k, at;

	for (i = threadIdx.x; i < ROWS * R * RUNS * 8; i += THREADS) {
		j = i / 8;
		n = n0 + j / RUNS;
		k = piece_at<F>(step, j % RUNS) + i % 8 * per;
		at = to + j * PIECE + i % 8 * 4;
		const u8 *row = (const u8 *)p.w +
				(u64)min(n, p.n - 1) * a.k * (16 / per);

		if (a.w_vec)
			copy_async16(sm, at, row + (u64)k * (16 / per),
				     n < p.n && k < a.k);
		else
			sh_store16(sm, at, gemm_load_quad<TYPE>(row, k, a.k, false));
	}
}

/* The same of W in blocks, as f32: a piece is a group. */
template <int MT, int R, class S>
DEVICE void few_fetch_blocks(const struct gemm_args &a,
			     const struct gemm_part &p, u32 n0, u32 step, S &sm,
			     u32 to)
{
	typedef few<KERN_F32, MT, R> F;
	float f[BLOCK_GROUP];
	u32 i, n, k, e;

	static_assert(F::elems == BLOCK_GROUP, "a piece is a group");
	for (i = threadIdx.x; i < ROWS * R * RUNS; i += THREADS) {
		n = n0 + i / RUNS;
		k = piece_at<F>(step, i % RUNS);
		blocks_group(a.blocks, p.w, min(n, p.n - 1), k,
			     n < p.n && k < a.k, f);
#pragma unroll
		for (e = 0; e < BLOCK_GROUP; e += 4)
			sh_store16(sm, to + i * PIECE + e, quad_of(f + e));
	}
}

template <int TYPE, int MT, int R, class S>
DEVICE void few_fetch_x(const struct gemm_args &a, u32 m0, u32 step, S &sm,
			u32 to)
{
	typedef few<TYPE, MT, R> F;
	const u32 quads = F::elems / 4;
	u32 i, j, m, k, at;

	for (i = threadIdx.x; i < MT * RUNS * quads; i += THREADS) {
		j = i / quads;
		m = m0 + j / RUNS;
		k = piece_at<F>(step, j % RUNS) + i % quads * 4;
		at = to + j * F::x_piece + i % quads * 4;
		const float *row = (const float *)a.x +
				   min(m, a.m - 1) * a.x_ld;

		if (a.x_vec && k + 4 <= a.k)
			copy_async16(sm, at, row + k, true);
		else
			sh_store16(sm, at,
				   gemm_load_quad<KERN_F32>(row, k, a.k, false));
	}
}

/* Add one piece of a run: R rows of W by MT of x. */
template <int TYPE, int MT, int R, class S>
DEVICE void few_chain(S &sm, u32 at, float (&sum)[MT * R])
{
	typedef few<TYPE, MT, R> F;
	const u32 per = gemm_per_word<TYPE>();
	const u32 run = threadIdx.x % RUNS, row = threadIdx.x / RUNS;
	u32 c, i, m, e;

#pragma unroll 2
	for (c = 0; c < 8; c++) {
		quad w[R], x[MT][2];

#pragma unroll
		for (i = 0; i < R; i++)
			w[i] = sh_load16(sm, at + ((row + i * ROWS) * RUNS +
						   run) * PIECE + c * 4);
#pragma unroll
		for (m = 0; m < MT; m++)
#pragma unroll
			for (i = 0; i < per; i++)
				x[m][i] = sh_load16(sm, at + F::w_words +
					(m * RUNS + run) * F::x_piece +
					(c * per + i) * 4);
#pragma unroll
		for (e = 0; e < 4 * per; e++)
#pragma unroll
			for (i = 0; i < R; i++) {
				const float f = gemm_widen<TYPE>(w[i].w[e / per],
							    e % per);
#pragma unroll
				for (m = 0; m < MT; m++)
					sum[m * R + i] = fma_rn(
						bits_float(x[m][e / 4].w[e % 4]),
						f, sum[m * R + i]);
			}
	}
}

/* In each group of eight lanes, lane i gets v[i] of all eight, in order of lanes. */
DEVICE void transpose8(float (&v)[8])
{
	const u32 me = thread_lane() % 8;
	u32 d, j;

#pragma unroll
	for (d = 4; d; d /= 2)
#pragma unroll
		for (j = 0; j < 8; j++) {
			if (j & d)
				continue;
			const float give = me & d ? v[j] : v[j | d];
			const float got = __shfl_xor_sync(FULL_MASK, give, d);

			if (me & d)
				v[j] = got;
			else
				v[j | d] = got;
		}
}

/* Add the sums of eight runs in order, but only those of the @nr runs left. */
template <int O>
DEVICE float add_runs(float (&sum)[O], float total, u32 nr)
{
	float v[8];
	u32 i;

#pragma unroll
	for (i = 0; i < 8; i++)
		v[i] = O == 8 ? sum[i % O] :
		       __shfl_sync(FULL_MASK, sum[0], i, 8);
	if (O == 8)
		transpose8(v);
#pragma unroll
	for (i = 0; i < 8; i++)
		total = i < nr ? add_rn(total, v[i]) : total;
#pragma unroll
	for (i = 0; i < O; i++)
		sum[i] = 0.0f;
	return total;
}

template <int TYPE, bool BLOCKS, int MT, int R, int STAGES>
DEVICE void few_rows(const struct gemm_args &a, const struct gemm_part &p)
{
	typedef few<TYPE, MT, R> F;
	static_assert(MT * R == 1 || MT * R == 8, "a lane has one output");
	DYN_SHARED(u32, sm);
	const u32 m0 = blockIdx.x * MT;
	const u32 n0 = (blockIdx.y - p.first) * ROWS * R;
	const u32 nr_runs = (a.k + GEMM_RUN - 1) / GEMM_RUN;
	const u32 steps = (nr_runs + RUNS - 1) / RUNS * F::pieces;
	float sum[MT * R] = {}, total = 0.0f;
	u32 s;

	for (s = 0; s < STAGES - 1 + steps; s++) {
		const u32 now = s - (STAGES - 1);

		if (s >= STAGES - 1) {
			copy_wait<STAGES - 2>();
			__syncthreads();
		}
		if (s < steps) {
			const u32 to = s % STAGES * F::words;

			if (BLOCKS)
				few_fetch_blocks<MT, R>(a, p, n0, s, sm, to);
			else
				few_fetch_w<TYPE, MT, R>(a, p, n0, s, sm, to);
			few_fetch_x<TYPE, MT, R>(a, m0, s, sm,
						 to + F::w_words);
		}
		copy_commit();
		if (s < STAGES - 1)
			continue;
		few_chain<TYPE, MT, R>(sm, now % STAGES * F::words, sum);
		if (now % F::pieces == F::pieces - 1)
			total = add_runs(sum, total, nr_runs -
					 now / F::pieces * RUNS);
	}
	const u32 o = threadIdx.x % RUNS;
	const u32 m = m0 + o / R, n = n0 + threadIdx.x / RUNS + o % R * ROWS;

	if (o < MT * R && m < a.m && n < p.n)
		gemm_result(p, a.settle, m, n, total);
}

/* A product of a group.  A part may have fewer rows than the grid has blocks for. */
template <int TYPE, bool BLOCKS, int MT, int R, int STAGES>
DEVICE void group_rows(const struct group_exact_args &a)
{
	const struct gemm_group_part &q = a.group.part[blockIdx.z];
	struct gemm_args g = a.g;

	if (blockIdx.x * MT >= q.m)
		return;
	g.x = q.x;
	g.m = q.m;
	few_rows<TYPE, BLOCKS, MT, R, STAGES>(g, group_part(a.g, q, 0));
}

/* ---- many rows ---- */

static constexpr u32 KT = 16;		/* columns of a tile: a quarter of a run */
static constexpr u32 PITCH = KT + 4;	/* floats from a row of it to the next */

/* 16 elements of a row of W, as in memory. */
struct strip {
	quad	q[4];
};

DEVICE struct strip strip_load(const struct gemm_args &a,
			       const struct gemm_part &p, u32 n, u32 k)
{
	struct strip s;
	u32 i;

	if (a.dtype == KERN_F32) {
		const float *row = (const float *)p.w + (u64)n * a.k;

#pragma unroll
		for (i = 0; i < 4; i++)
			s.q[i] = gemm_load_quad<KERN_F32>(row, k + 4 * i, a.k,
						     a.w_vec);
	} else {
		const u16 *row = (const u16 *)p.w + (u64)n * a.k;

#pragma unroll
		for (i = 0; i < 2; i++)
			s.q[i] = gemm_load_quad<KERN_BF16>(row, k + 8 * i, a.k,
						      a.w_vec);
		s.q[2] = s.q[3] = gemm_zero();
	}
	return s;
}

/* The strip's elements 4 * i to 4 * i + 3 as f32. */
DEVICE quad strip_quad(const struct strip &s, u32 dtype, u32 i)
{
	const u32 lo = s.q[i / 2].w[i % 2 * 2], hi = s.q[i / 2].w[i % 2 * 2 + 1];
	quad q;

	if (dtype == KERN_F32)
		return s.q[i];
	q.w[0] = dtype == KERN_BF16 ? lo << 16 :
		 float_bits(f16_to_f32((u16)lo));
	q.w[1] = dtype == KERN_BF16 ? lo & 0xffff0000u :
		 float_bits(f16_to_f32((u16)(lo >> 16)));
	q.w[2] = dtype == KERN_BF16 ? hi << 16 :
		 float_bits(f16_to_f32((u16)hi));
	q.w[3] = dtype == KERN_BF16 ? hi & 0xffff0000u :
		 float_bits(f16_to_f32((u16)(hi >> 16)));
	return q;
}

/*
 * A block of THREADS threads has 8 * I rows of x and 16 * I rows of W.  Thread (y, x)
 * of 8 by 16 has the rows y + 8 * i of x and x + 16 * j of W, so that neighbouring
 * threads read neighbouring rows.
 */
template <int I>
struct many {
	static constexpr u32 tm = 8 * I;
	static constexpr u32 tn = 16 * I;
	static constexpr u32 floats = (tm + tn) * PITCH;
	static constexpr u32 x_quads = tm * KT / 4 / THREADS;
};

/*
 * A thread's part of the next tile: quads of x, and a strip of W.  Of blocks it is half of
 * a group; @rest is the other half, for the tile after that.
 */
template <int I, bool BLOCKS>
struct staged {
	quad		x[many<I>::x_quads];
	struct strip	w;
};

template <int I>
struct staged<I, true> {
	quad		x[many<I>::x_quads];
	struct strip	w;
	struct strip	rest;
};

/* The strip of row @n of W from column @k on. */
template <int I>
DEVICE void many_load_w(const struct gemm_args &a, const struct gemm_part &p,
			u32 n, u32 k, struct staged<I, false> &st)
{
	st.w = strip_load(a, p, n, k);
}

/* The same of W in blocks: each even tile reads a group. */
template <int I>
DEVICE void many_load_w(const struct gemm_args &a, const struct gemm_part &p,
			u32 n, u32 k, struct staged<I, true> &st)
{
	float f[BLOCK_GROUP];
	u32 i;

	if (k % BLOCK_GROUP) {
		st.w = st.rest;
		return;
	}
	blocks_group(a.blocks, p.w, n, k, k < a.k, f);
#pragma unroll
	for (i = 0; i < 4; i++) {
		st.w.q[i] = quad_of(f + 4 * i);
		st.rest.q[i] = quad_of(f + KT + 4 * i);
	}
}

template <int I, bool BLOCKS>
DEVICE void many_load(const struct gemm_args &a, const struct gemm_part &p,
		      u32 m0, u32 n0, u32 k, struct staged<I, BLOCKS> &st)
{
	u32 i, at, m;

#pragma unroll
	for (i = 0; i < many<I>::x_quads; i++) {
		at = i * THREADS + threadIdx.x;
		m = min(m0 + at / (KT / 4), a.m - 1);
		const u32 c = k + at % (KT / 4) * 4;

		st.x[i] = gemm_load_quad<KERN_F32>((const float *)a.x + m * a.x_ld,
					      c, a.k, a.x_vec && c + 4 <= a.k);
	}
	if (threadIdx.x < many<I>::tn)
		many_load_w<I>(a, p, min(n0 + threadIdx.x, p.n - 1), k, st);
}

template <int I, bool BLOCKS, class S>
DEVICE void many_store(S &sm, u32 to, u32 dtype,
		       const struct staged<I, BLOCKS> &st)
{
	u32 i, at;

#pragma unroll
	for (i = 0; i < many<I>::x_quads; i++) {
		at = i * THREADS + threadIdx.x;
		sh_store16(sm, to + at / (KT / 4) * PITCH + at % (KT / 4) * 4,
			   st.x[i]);
	}
	if (threadIdx.x >= many<I>::tn)
		return;
	to += (many<I>::tm + threadIdx.x) * PITCH;
#pragma unroll
	for (i = 0; i < 4; i++)
		sh_store16(sm, to + 4 * i, strip_quad(st.w, dtype, i));
}

/* Add the tile's columns; each is one step of every chain. */
template <int I, class S>
DEVICE void many_chain(S &sm, u32 at, float (&sum)[I][I])
{
	const u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
	u32 k, i, j, e;

#pragma unroll
	for (k = 0; k < KT; k += 4) {
		quad x[I];

#pragma unroll
		for (i = 0; i < I; i++)
			x[i] = sh_load16(sm, at + (ty + 8 * i) * PITCH + k);
#pragma unroll
		for (j = 0; j < I; j++) {
			const quad w = sh_load16(sm, at + (many<I>::tm + tx +
							   16 * j) * PITCH + k);

#pragma unroll
			for (e = 0; e < 4; e++)
#pragma unroll
				for (i = 0; i < I; i++)
					sum[i][j] = fma_rn(bits_float(x[i].w[e]),
							   bits_float(w.w[e]),
							   sum[i][j]);
		}
	}
}

template <int I>
DEVICE void many_result(const struct gemm_args &a, const struct gemm_part &p,
			u32 m0, u32 n0, const float (&total)[I][I])
{
	u32 i, j, m, n;

#pragma unroll
	for (i = 0; i < I; i++)
#pragma unroll
		for (j = 0; j < I; j++) {
			m = m0 + threadIdx.x / 16 + 8 * i;
			n = n0 + threadIdx.x % 16 + 16 * j;
			if (m < a.m && n < p.n)
				gemm_result(p, a.settle, m, n, total[i][j]);
		}
}

/* End a run: add its sums to the totals. */
template <int I>
DEVICE void many_run_ends(float (&sum)[I][I], float (&total)[I][I])
{
	u32 i, j;

#pragma unroll
	for (i = 0; i < I; i++)
#pragma unroll
		for (j = 0; j < I; j++) {
			total[i][j] = add_rn(total[i][j], sum[i][j]);
			sum[i][j] = 0.0f;
		}
}

template <int I, bool BLOCKS, class S>
DEVICE void many_rows(const struct gemm_args &a, S &sm)
{
	const struct gemm_part p = gemm_part_of(a, blockIdx.y);
	const u32 m0 = blockIdx.x * many<I>::tm;
	const u32 n0 = (blockIdx.y - p.first) * many<I>::tn;
	const u32 tiles = (a.k + GEMM_RUN - 1) / GEMM_RUN * (GEMM_RUN / KT);
	float sum[I][I] = {}, total[I][I] = {};
	const u32 dtype = BLOCKS ? (u32)KERN_F32 : a.dtype;
	struct staged<I, BLOCKS> st;
	u32 t;

	many_load<I, BLOCKS>(a, p, m0, n0, 0, st);
	many_store<I, BLOCKS>(sm, 0, dtype, st);
	__syncthreads();
	for (t = 0; t < tiles; t++) {
		if (t + 1 < tiles)
			many_load<I, BLOCKS>(a, p, m0, n0, (t + 1) * KT, st);
		many_chain<I>(sm, t % 2 * many<I>::floats, sum);
		if (t % (GEMM_RUN / KT) == GEMM_RUN / KT - 1)
			many_run_ends<I>(sum, total);
		if (t + 1 < tiles)
			many_store<I, BLOCKS>(sm, (t + 1) % 2 *
					      many<I>::floats, dtype, st);
		__syncthreads();
	}
	many_result<I>(a, p, m0, n0, total);
}

#endif /* KERNELS_CUDA_GEMM_EXACT_H */
