/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cu.h - the language of the device code, for GPUs and for the tests' CPU stand-in
 *
 * Every .cu file in this folder is compiled twice: by nvcc for GPUs, and by a C++
 * compiler for the tests, where tests/standin/shim.h runs each thread of a block
 * as a fiber and checks for races between the threads.  So device code may use
 * only the names below and these names of CUDA: threadIdx, blockIdx, blockDim,
 * gridDim, __syncthreads(), __syncwarp(), __shfl_sync() and its variants,
 * __ballot_sync(), __any_sync(), atomicAdd(), atomicMax(), fmaf() and the other
 * functions of math.h.  Code that needs PTX is a function in this file, with a
 * twin in plain C in the shim.
 *
 * Shared memory is declared by SHARED() or DYN_SHARED().  It is read and written by
 * element through that array, or by the functions below that take such an array
 * and an index.  In the shim the array is an object that knows its length, and the
 * threads that read and wrote each element.  A raw pointer into it is a defect,
 * since it hides both.  A function with a shared array as an argument takes a
 * SHARED_PTR().
 *
 * A kernel has one argument, a structure of args.h, by value, and is named in
 * list.h:
 *
 *	KERNEL(k_add, 256)(struct k_add_args a) { ... }
 *
 * The number is the most threads that a block of it may have.  Blocks have one
 * dimension, grids up to three.
 */
#ifndef KERNELS_CUDA_CU_H
#define KERNELS_CUDA_CU_H

#include "kernels/cuda/args.h"

#define WARP		32u
#define FULL_MASK	0xffffffffu

#ifdef KVMM_SHIM
#include "tests/standin/shim.h"
#else

#define KERNEL(name, threads)						\
	extern "C" __global__ void __launch_bounds__(threads) name
#define DEVICE			static __device__ __forceinline__
/* A table of constants that device code reads at any index. */
#define DEVICE_TABLE		static __device__ const
#define SHARED(type, name, n)	__shared__ __align__(16) type name[n]
/* All of the dynamic shared memory as one array of @type. */
#define DYN_SHARED(type, name)						\
	extern __shared__ __align__(128) u8 dyn_shared_[];		\
	type *const name = (type *)dyn_shared_
/* Type of an argument that is such an array, or array + offset. */
#define SHARED_PTR(type)	type *

/* 16 bytes at once; indices count elements of the array's own type. */
struct alignas(16) quad {
	u32 w[4];
};

template <typename T>
DEVICE quad sh_load16(const T *array, u32 i)
{
	return *(const quad *)(array + i);
}

template <typename T>
DEVICE void sh_store16(T *array, u32 i, const quad &q)
{
	*(quad *)(array + i) = q;
}

/* Global memory, 16 bytes aligned. */
DEVICE quad gl_load16(const void *p)
{
	return *(const quad *)p;
}

/* The same for bytes that are read only once: evict them first. */
DEVICE quad gl_stream16(const void *p)
{
	quad q;

	asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(q.w[0]), "=r"(q.w[1]), "=r"(q.w[2]), "=r"(q.w[3])
		     : "l"(p));
	return q;
}

DEVICE void gl_store16(void *p, const quad &q)
{
	*(quad *)p = q;
}

/*
 * Asynchronous copies of 16 bytes from global memory to element @i of a shared
 * array; with @there false they store zeros, and @from is not read.  A copy belongs
 * to the thread's open group.  copy_commit() closes the group, and copy_wait<N>()
 * waits until at most N of the thread's groups are pending.  Other threads see
 * the bytes after a barrier that follows the wait.
 */
template <typename T>
DEVICE void copy_async16(T *array, u32 i, const void *from, bool there)
{
	const u32 to = (u32)__cvta_generic_to_shared(array + i);
	const u32 bytes = there ? 16 : 0;

	asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
		     : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

DEVICE void copy_commit(void)
{
	asm volatile("cp.async.commit_group;" : : : "memory");
}

template <int N>
DEVICE void copy_wait(void)
{
	asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

/*
 * Load four 8 x 8 matrices of 16-bit elements, by the whole warp.  Lane l passes the
 * index of row l % 8 of matrix l / 8.  From each matrix it gets the elements
 * 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4; transposed: of column l / 4.
 */
DEVICE void mat_load4(u32 (&r)[4], const u16 *array, u32 i)
{
	const u32 at = (u32)__cvta_generic_to_shared(array + i);

	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(at) : "memory");
}

DEVICE void mat_load4_trans(u32 (&r)[4], const u16 *array, u32 i)
{
	const u32 at = (u32)__cvta_generic_to_shared(array + i);

	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(at) : "memory");
}

/*
 * d[16][8] += a[16][16] * b[16][8], by the whole warp, bf16 (or f16) times the
 * same into f32.  With g = lane / 4 and t = lane % 4, low half first:
 *   a[0] rows g, columns 2t, 2t + 1; a[1] rows g + 8; a[2] columns + 8; a[3] both
 *   b[0] rows 2t, 2t + 1 of column g; b[1] rows + 8
 *   d[0], d[1] row g, columns 2t, 2t + 1; d[2], d[3] row g + 8
 */
DEVICE void mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
		       "r"(b[0]), "r"(b[1]));
}

DEVICE void mma_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
		     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
		       "r"(b[0]), "r"(b[1]));
}

/* Differences and products of two pairs of bf16, rounded to nearest even. */
DEVICE u32 bf16_pair_sub(u32 a, u32 b)
{
	u32 d;

	asm("fma.rn.bf16x2 %0, %1, %2, %3;"
	    : "=r"(d) : "r"(b), "r"(0xbf80bf80u), "r"(a));
	return d;
}

DEVICE u32 bf16_pair_mul(u32 a, u32 b)
{
	u32 d;

	asm("fma.rn.bf16x2 %0, %1, %2, %3;"
	    : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000u));
	return d;
}

/* Two numbers, rounded to nearest even; the first in the low half. */
DEVICE u32 bf16_pair(float lo, float hi)
{
	u32 d;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
	return d;
}

DEVICE u32 f16_pair(float lo, float hi)
{
	u32 d;

	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
	return d;
}

DEVICE float f16_to_f32(u16 h)
{
	float f;

	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
	return f;
}

DEVICE float bits_float(u32 b)
{
	return __uint_as_float(b);
}

DEVICE u32 float_bits(float f)
{
	return __float_as_uint(f);
}

/* Products and sums that the compiler may not fuse or split. */
DEVICE float mul_rn(float a, float b)
{
	return __fmul_rn(a, b);
}

DEVICE float add_rn(float a, float b)
{
	return __fadd_rn(a, b);
}

DEVICE float fma_rn(float a, float b, float c)
{
	return __fmaf_rn(a, b, c);
}

/* 2^x, within 2 units in the last place; only for fast mode. */
DEVICE float fast_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* Other blocks that see stores after the fence also see those before it. */
DEVICE void fence_device(void)
{
	__threadfence();
}
#endif /* KVMM_SHIM */

/* ---- the same code for GPUs and for the shim ---- */

DEVICE u32 thread_lane(void)
{
	return threadIdx.x % WARP;
}

DEVICE u32 thread_warp(void)
{
	return threadIdx.x / WARP;
}

DEVICE float bf16_to_f32(u16 h)
{
	return bits_float((u32)h << 16);
}

/*
 * To nearest even.  A NaN keeps its sign and payload, as in the reference; the
 * instruction of bf16_pair() does not keep them, so results are stored by this
 * function.
 */
DEVICE u16 f32_to_bf16(float f)
{
	const u32 b = float_bits(f);

	if ((b & 0x7fffffff) > 0x7f800000)
		return (u16)(b >> 16 | 0x40);
	return (u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

/* e4m3: no infinities; 0x7f and 0xff are NaN. */
DEVICE float e4m3_to_f32(u8 b)
{
	const float f = bits_float((u32)(b & 0x80) << 24 |
				   (u32)(b & 0x7f) << 20) *
			0x1p120f;

	return (b & 0x7f) == 0x7f ? bits_float(0x7fc00000) : f;
}

/* Sum and maximum over a warp, in a fixed tree: all lanes get the result. */
DEVICE float warp_sum(float v)
{
	u32 i;

#pragma unroll
	for (i = WARP / 2; i; i /= 2)
		v += __shfl_xor_sync(FULL_MASK, v, i);
	return v;
}

DEVICE float warp_max(float v)
{
	u32 i;

#pragma unroll
	for (i = WARP / 2; i; i /= 2)
		v = fmaxf(v, __shfl_xor_sync(FULL_MASK, v, i));
	return v;
}

#endif /* KERNELS_CUDA_CU_H */
