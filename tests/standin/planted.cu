// SPDX-License-Identifier: Apache-2.0
/*
 * planted.cu - kernels for the tests of the stand-in itself
 *
 * A line at which a fault may be reported ends in a comment with its kernel and
 * faults: the test looks for it here.  Two lines have the same fault if the order
 * of threads decides which of two accesses comes second.  Without a fault the
 * results of a kernel are the same in every order.
 */
#include "kernels/cuda/cu.h"
#include "tests/standin/planted.h"

#define T PLANTED_THREADS

/* Without the barrier a neighbour's element may not be there yet. */
KERNEL(p_barrier, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;

	SHARED(u32, tile, T);
	tile[t] = a.in[t];
	if (a.fault != 1)
		__syncthreads();
	a.out[t] = tile[(t + 1) % T];		/* p_barrier 1 */
}

/* Rounds: one must not write before the reads of the last one are done. */
KERNEL(p_behind, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;
	u32 sum = 0, i;

	SHARED(u32, tile, T);
	for (i = 0; i < 3; i++) {
		tile[t] = a.in[t] + i;		/* p_behind 1 */
		__syncthreads();
		sum += tile[T - 1 - t];		/* p_behind 1 */
		if (a.fault != 1)
			__syncthreads();
	}
	if (t == 3)
		sum += 0 * tile[T - 1];		/* p_behind 2 */
	if (a.fault != 2)
		__syncthreads();
	if (t == T - 1)
		tile[T - 1] = 0;		/* p_behind 2 */
	a.out[t] = sum;
}

/* Within a warp a barrier of the warp is enough, and is needed. */
KERNEL(p_warp_sync, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;
	u32 v;

	SHARED(u32, tile, T);
	tile[t] = a.in[t];
	if (a.fault != 1)
		__syncwarp();
	v = tile[t ^ (a.fault == 2 ? 32 : 1)];	/* p_warp_sync 1 2 */
	__syncwarp();
	if (a.fault == 3 && t < 8) {		/* a shuffle is no barrier */
		v += 0 * tile[9];
		v += 0 * __shfl_sync(0xffu, v, 0);
		if (t == 3)
			tile[9] = v;		/* p_warp_sync 3 */
	}
	__syncwarp();
	tile[t] = v + 1;
	__syncwarp();
	a.out[t] = tile[t ^ 1];
}

KERNEL(p_index, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;

	SHARED(u32, tile, T);
	tile[t + (a.fault == 1)] = a.in[t];	/* p_index 1 */
	__syncthreads();
	a.out[t] = tile[t - (a.fault == 2)];	/* p_index 2 */
}

DEVICE u32 first_of(SHARED_PTR(u32) p, u32 i)
{
	return p[i];				/* p_dynamic 2 */
}

/* The same bytes by two names: a granule has the size of the smaller type. */
KERNEL(p_dynamic, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;

	DYN_SHARED(u32, words);
	DYN_SHARED(u16, halves);
	if (t < a.n)
		words[t] = a.in[t];		/* p_dynamic 1 */
	__syncthreads();
	if (t < a.n && a.fault != 3)
		halves[2 * t] = (u16)t;		/* p_dynamic 4 */
	if (t < a.n && a.fault == 3)
		halves[t] = (u16)t;		/* no fault: others' halves */
	if (a.fault == 4)
		a.out[t] = words[t % a.n ^ 1];	/* p_dynamic 4 */
	__syncthreads();
	if (t < a.n)
		a.out[t] = first_of(words + a.n / 2,
				    (t + a.n / 2) % (a.n / 2) +
				    (a.fault == 2 ? a.n : 0));
}

KERNEL(p_poison, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;

	SHARED(u32, tile, T);
	if (t != 5 || a.fault != 1)
		tile[t] = a.in[t];
	__syncthreads();
	a.out[t] = tile[t];			/* p_poison 1 */
}

KERNEL(p_mask, T)(struct planted_args a)
{
	const u32 t = threadIdx.x, lane = t % WARP;
	u32 v = a.in[t];

	if (a.fault == 1 && lane >= 16)
		return;
	if (a.fault == 2 && lane == 3)
		v = __shfl_sync(~8u, v, 0);	/* p_mask 2 */
	if (a.fault == 3 && lane < 16)
		v = __shfl_xor_sync(FULL_MASK, v, 1);	/* p_mask 3 */
	else
		v = __shfl_xor_sync(FULL_MASK, v, 1);	/* p_mask 1 3 */
	if (a.fault == 4)
		v = __shfl_sync(0xffffu << (lane & 16), v, 20); /* p_mask 4 */
	a.out[t] = v;
}

KERNEL(p_diverge, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;

	if (a.fault != 1 || t < 40)
		__syncthreads();		/* p_diverge 1 */
	if (a.fault == 2 && t < 32)
		__syncthreads();		/* p_diverge 2 */
	else
		__syncthreads();		/* p_diverge 1 2 */
	if (a.fault == 3 && t == 50)
		return;
	__syncthreads();			/* p_diverge 3 */
	a.out[t] = a.in[t];
}

KERNEL(p_async, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;

	SHARED(u32, two, 8 * T);
	copy_async16(two, 4 * t, a.in + 4 * t, true);
	copy_commit();
	copy_async16(two, 4 * (T + t), a.in, false);
	copy_commit();
	if (a.fault == 1)
		a.out[t] = two[4 * t];		/* p_async 1 */
	copy_wait<1>();
	if (a.fault == 2)
		a.out[t] = two[4 * (T + t)];	/* p_async 2 */
	if (a.fault != 3)
		__syncthreads();
	a.out[t] = two[(4 * t + 4) % (4 * T)];	/* p_async 3 */
	copy_wait<0>();
	__syncthreads();
	a.out[t] += two[4 * T + (t + 1) % T];
}

KERNEL(p_align, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;
	quad q;

	SHARED(u32, tile, 4 * T + 4);
	q = gl_load16(a.in + 4 * t + (a.fault == 1));	/* p_align 1 */
	sh_store16(tile, 4 * t + (a.fault == 2), q);	/* p_align 2 */
	__syncthreads();
	q = sh_load16(tile, (4 * t + 4) % (4 * T));
	a.out[t] = q.w[0] + q.w[1] + q.w[2] + q.w[3];
}

KERNEL(p_global, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;

	a.out[t] = a.in[a.fault == 1 ? t + a.n : t];	/* p_global 1 */
	if (a.fault == 2)
		a.out[a.n + t] = 0;			/* p_global 2 */
}

/* Counts by atomics; a plain access beside them is a race. */
KERNEL(p_atomic, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;

	SHARED(u32, hist, 16);
	if (t < 16)
		hist[t] = 0;
	__syncthreads();
	atomicAdd(&hist[a.in[t] % 16], 1u);		/* p_atomic 1 */
	if (a.fault == 1)
		hist[t % 16] = 1;			/* p_atomic 1 */
	__syncthreads();
	if (t < 16)
		atomicAdd(&a.out[t], hist[t]);
	if (t == 0) {
		atomicMax(&a.out[16], a.in[0]);
		atomicAdd(&a.f[0], 0.5f);
	}
}

/* Results of barriers; each barrier must forget the counts of the last one. */
KERNEL(p_block, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;
	const int three = __syncthreads_count(t < 3);
	const int any = __syncthreads_or(t == 7), none = __syncthreads_or(0);

	a.out[t] = (u32)(three + 100 * any + 1000 * none);
}

KERNEL(p_warp, T)(struct planted_args a)
{
	const u32 t = threadIdx.x, lane = thread_lane();
	const u32 v = a.in[t];
	u32 sum = 0;

	sum += __shfl_sync(FULL_MASK, v, 5);
	sum += 3 * __shfl_up_sync(FULL_MASK, v, 1);
	sum += 5 * __shfl_down_sync(FULL_MASK, v, 2);
	sum += 7 * __shfl_xor_sync(FULL_MASK, v, 16);
	sum += 11 * __shfl_sync(FULL_MASK, v, 1, 8);
	sum += 13 * __ballot_sync(FULL_MASK, lane % 3 == 0);
	sum += 17 * (u32)__any_sync(FULL_MASK, v == ~0u);
	if (lane < 8)
		sum += 19 * __shfl_xor_sync(0xffu, v, 4);
	else
		sum += 23 * __shfl_xor_sync(0xffffff00u, v, 1);
	a.out[t] = sum;
	a.f[t] = warp_sum((float)v) + 0.25f * warp_max((float)v);
}

/* One product of a[16][16] (row by row) and b[16][8] (the same), bf16. */
KERNEL(p_mma, WARP)(struct planted_args a)
{
	const u32 t = threadIdx.x;
	u32 ra[4], rb[4], i;
	float d[4];

	SHARED(u16, tile, 16 * 16 + 16 * 8);
	for (i = t; i < 384; i += WARP)
		tile[i] = (u16)a.in[i];
	if (a.fault != 1)
		__syncthreads();
	mat_load4(ra, tile, (t % 16) * 16 + t / 16 * 8);	/* p_mma 1 */
	/* Both halves of b by column; the upper two matrices once more. */
	mat_load4_trans(rb, tile, 256 + (t % 16) * 8);
	const u32 b[2] = { rb[0], rb[1] };

	for (i = 0; i < 4; i++)
		d[i] = 1.0f;
	if (a.n)
		mma_f16(d, ra, b);
	else
		mma_bf16(d, ra, b);
	for (i = 0; i < 4; i++)
		a.f[(t / 4 + i / 2 * 8) * 8 + t % 4 * 2 + i % 2] = d[i];
}

/* Visit each block of a grid once. */
KERNEL(p_grid, T)(struct planted_args a)
{
	const u32 b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x +
		      blockIdx.x;

	if (threadIdx.x < blockDim.x - 1)
		return;
	a.out[b] += 1 + b;
}

/* Uses too much shared memory, unless the host asked for it. */
KERNEL(p_big, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;

	DYN_SHARED(u32, words);
	words[a.n + t] = a.in[t];
	__syncthreads();
	a.out[t] = words[a.n + (t ^ 1)];
}

/* Faults that the compiler's checks find. */
KERNEL(p_local, T)(struct planted_args a)
{
	const u32 t = threadIdx.x;
	u32 some[8], i, sum = 0;

	for (i = 0; i < 8; i++)
		some[i] = a.in[8 * (t % 8) + i];
	for (i = 0; i < 8 + (a.fault == 1); i++)
		sum += some[i];				/* p_local 1 */
	const u8 *const at = (const u8 *)a.in + (a.fault == 2 ? 2 : 4);

	sum += *(const u32 *)at;			/* p_local 2 */
	sum += 1u << (a.fault == 3 ? a.n : 4);		/* p_local 3 */
	a.out[t] = sum;
}

/* The usual costs of a test of kernels: shared memory, barriers, shuffles. */
KERNEL(p_speed, 256)(struct planted_args a)
{
	const u32 t = threadIdx.x;
	float v = (float)t;
	u32 i;

	SHARED(float, tile, 256);
	for (i = 0; i < a.n; i++) {
		tile[t] = v;
		__syncthreads();
		v += tile[(t + 32) % 256];
		__syncthreads();
		v = warp_max(v) * 0.5f;
	}
	a.f[t] = v;
}
