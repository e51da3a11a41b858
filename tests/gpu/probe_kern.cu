// SPDX-License-Identifier: Apache-2.0
/*
 * probe_kern.cu - the device code of the probe
 *
 * Access patterns and no more, in the language of kernels/cuda/cu.h.  Results are
 * folded into one word that is stored only if it has a value that does not occur,
 * so the compiler can leave out no load.
 */
#include "kernels/cuda/cu.h"
#include "tests/gpu/probe_args.h"

#define LOADS	8	/* independent loads of a thread */

#ifdef KVMM_SHIM
/* A clock that ends every wait soon. */
DEVICE u64 device_ns(void)
{
	static u64 t;

	return t += 1000;
}
#else
DEVICE u64 device_ns(void)
{
	u64 t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}
#endif

DEVICE u64 hash(u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

DEVICE u64 first_index(void)
{
	return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

DEVICE u64 all_threads(void)
{
	return (u64)gridDim.x * blockDim.x;
}

DEVICE u32 fold(const quad &q)
{
	return q.w[0] ^ q.w[1] ^ q.w[2] ^ q.w[3];
}

/* The store that never happens: four random words do not sum to 0x5eed0bad. */
DEVICE void keep(u32 *out, u32 sum)
{
	if (sum == 0x5eed0badu)
		*out = sum;
}

KERNEL(p_empty, 32)(struct p_empty_args a)
{
}

KERNEL(p_fill, 256)(struct p_fill_args a)
{
	u64 i;

	for (i = first_index(); i < a.n; i += all_threads())
		a.to[i] = (hash(a.seed + i) & a.mask) | a.set;
}

KERNEL(p_check, 256)(struct p_check_args a)
{
	u64 wrong = 0, not_zero = 0, i;

	for (i = first_index(); i < a.n; i += all_threads()) {
		const u64 v = a.from[i];

		wrong += v != hash(a.seed + i);
		not_zero += v != 0;
	}
	if (wrong)
		atomicAdd(a.wrong, wrong);
	if (not_zero)
		atomicAdd(a.not_zero, not_zero);
}

KERNEL(p_read, 256)(struct p_read_args a)
{
	const u64 step = all_threads();
	u64 i = first_index();
	u32 sum = 0, k;

	for (; i + (LOADS - 1) * step < a.quads; i += LOADS * step) {
		quad q[LOADS];

#pragma unroll
		for (k = 0; k < LOADS; k++)
			q[k] = gl_stream16(a.from + 16 * (i + k * step));
#pragma unroll
		for (k = 0; k < LOADS; k++)
			sum ^= fold(q[k]);
	}
	for (; i < a.quads; i += step)
		sum ^= fold(gl_stream16(a.from + 16 * i));
	keep(a.out, sum);
}

/* Address of quad @i of this head's part of the table. */
DEVICE const u8 *layout_at(const struct p_layout_args &a, u64 i)
{
	const u32 run = 1u << a.run_quads_log2;
	const u32 block = a.entries[i >> (a.run_quads_log2 + 1)];
	const u64 is_v = (i >> a.run_quads_log2) & 1;

	return a.base + a.unit * block + a.layer_off + is_v * a.v_off +
	       16ull * ((u64)blockIdx.y * run + (i & (run - 1)));
}

KERNEL(p_layout, 256)(struct p_layout_args a)
{
	const u64 per_entry = 2ull << a.run_quads_log2;
	const u64 first = (u64)a.nr_entries * blockIdx.x / gridDim.x;
	const u64 last = (u64)a.nr_entries * (blockIdx.x + 1) / gridDim.x;
	const u64 end = last * per_entry;
	u64 i = first * per_entry + threadIdx.x;
	u32 sum = 0, k;

	for (; i + (LOADS - 1) * blockDim.x < end; i += LOADS * blockDim.x) {
		quad q[LOADS];

#pragma unroll
		for (k = 0; k < LOADS; k++)
			q[k] = gl_stream16(layout_at(a, i + k * blockDim.x));
#pragma unroll
		for (k = 0; k < LOADS; k++)
			sum ^= fold(q[k]);
	}
	for (; i < end; i += blockDim.x)
		sum ^= fold(gl_stream16(layout_at(a, i)));
	keep(a.out, sum);
}

KERNEL(p_gather, 256)(struct p_gather_args a)
{
	u32 i, j;

	for (i = blockIdx.x; i < a.nr; i += gridDim.x) {
		const u8 *from = (const u8 *)a.pairs[2 * i];
		u8 *to = (u8 *)a.pairs[2 * i + 1];

		for (j = threadIdx.x; j < a.quads; j += blockDim.x)
			gl_store16(to + 16ull * j, gl_load16(from + 16ull * j));
	}
}

KERNEL(p_spin, 256)(struct p_spin_args a)
{
	const u64 until = device_ns() + a.ns;
	const volatile u32 *stop = (const volatile u32 *)a.stop;
	volatile u64 *words = (volatile u64 *)a.words;
	u64 i = first_index(), wrong = 0;

	while (device_ns() < until && !(stop && *stop)) {
		if (!a.nr_words)
			continue;
		wrong += words[i % a.nr_words] != hash(i % a.nr_words);
		words[i % a.nr_words] = hash(i % a.nr_words);
		i += all_threads();
	}
	if (wrong)
		atomicAdd(a.wrong, wrong);
}
