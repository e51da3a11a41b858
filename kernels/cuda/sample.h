/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample.h - passes, sums and cuts of a block over one row of logits
 *
 * Weights are whole numbers (kernels/weight.h), so sums are exact: they depend
 * neither on the order of threads nor on their number, and running sums never
 * fall.  So a search by running sums finds the same token for any split of the row.
 *
 * Tokens have the strict order of the CPU's sampler: a key of 64 bits with the logit
 * in the upper half and the complement of the id in the lower; the best token has
 * the highest key.  A cut is the lowest key that is kept.  It is found in two steps.
 * Bins by the distance from the best logit show the bin in which the running sum
 * reaches the target.  Then the tokens of that bin are gathered and compared with
 * each other.  If they are too many for the list, their logits are searched by
 * eight bits at a time, and equal ones are counted in the order of ids.
 */
#ifndef KERNELS_CUDA_SAMPLE_H
#define KERNELS_CUDA_SAMPLE_H

#include "kernels/cuda/fmath.cuh"
#include "kernels/weight.h"

#define SAMPLE_THREADS	1024u
#define SAMPLE_WARPS	(SAMPLE_THREADS / WARP)
#define SAMPLE_BINS		2048u
#define SAMPLE_SMALL	256u
#define SAMPLE_LIST	512u
#define SAMPLE_QUADS		4u		/* quads that a thread loads at once */
#define SAMPLE_NONE		(-INFINITY)

/*
 * A row, with the parameters of one draw.
 * @best:  its largest logit
 * @least: tokens with (logit - best) / temperature below this do not count
 */
struct view {
	const float *logits;
	const u32 *allowed;
	u32 vocab;
	bool vec;
	float best;
	float temperature;
	float min_p;
	float least;
	u32 shift;
};

/*
 * Shared memory of a block.
 * @count, @lo, @hi: [SAMPLE_BINS] tokens of a bin, and the halves of their weight
 * @small_lo, @small_hi: [SAMPLE_SMALL] sums for row_cut()
 * @key, @weight: [SAMPLE_LIST] tokens of one bin
 * @part: [SAMPLE_WARPS] sums of warps
 * @say: two numbers that one thread gives to the others
 * @nr: entries of the list
 */
struct bench {
	SHARED_PTR(u32) count;
	SHARED_PTR(u32) lo;
	SHARED_PTR(u32) hi;
	SHARED_PTR(u32) small_lo;
	SHARED_PTR(u32) small_hi;
	SHARED_PTR(u64) key;
	SHARED_PTR(u64) weight;
	SHARED_PTR(u64) part;
	SHARED_PTR(u64) say;
	SHARED_PTR(u32) nr;
};

#define SAMPLE_BENCH(name)							\
	SHARED(u32, name##_count, SAMPLE_BINS);				\
	SHARED(u32, name##_lo, SAMPLE_BINS);				\
	SHARED(u32, name##_hi, SAMPLE_BINS);				\
	SHARED(u32, name##_small_lo, SAMPLE_SMALL);				\
	SHARED(u32, name##_small_hi, SAMPLE_SMALL);				\
	SHARED(u64, name##_key, SAMPLE_LIST);				\
	SHARED(u64, name##_weight, SAMPLE_LIST);				\
	SHARED(u64, name##_part, SAMPLE_WARPS);				\
	SHARED(u64, name##_say, 2);					\
	SHARED(u32, name##_nr, 1);					\
	const bench name = { name##_count, name##_lo, name##_hi,	\
			     name##_small_lo, name##_small_hi,		\
			     name##_key, name##_weight, name##_part,	\
			     name##_say, name##_nr }

/* Map floats, without NaN, to whole numbers of the same order; -0 is 0. */
DEVICE u32 logit_key(float logit)
{
	const u32 bits = float_bits(add_rn(logit, 0.0f));

	return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

DEVICE float key_logit(u32 key)
{
	return bits_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

DEVICE u64 cand_key(float logit, u32 id)
{
	return (u64)logit_key(logit) << 32 | (u32)~id;
}

DEVICE bool is_nan(float f)
{
	return !(f == f);
}

DEVICE float masked(const view &v, u32 i, float logit)
{
	return !v.allowed || v.allowed[i / 32] >> i % 32 & 1 ? logit : SAMPLE_NONE;
}

DEVICE float exponent(const view &v, float logit)
{
	return sub_rn(logit, v.best) / v.temperature;
}

/* Whole units of 2^-shift. */
DEVICE u64 weight_of(const view &v, float x)
{
	return weight_units(weight_value(x), v.min_p, v.shift);
}

/* Distance from the best one in bins; it never falls when the logit does. */
DEVICE u32 bin_of(float x)
{
	const float d = mul_rn(-x, (float)(SAMPLE_BINS - 1) / 60.0f);

	return d < (float)(SAMPLE_BINS - 1) ? (u32)d : SAMPLE_BINS - 1;
}

/*
 * Call f(id, logit) for the elements of the quads @first, @first + @step, ... of the
 * ids from @from (a multiple of 4) up to @to.
 */
template <typename F>
DEVICE void each(const view &v, u32 from, u32 to, u32 first, u32 step, F f)
{
	const float *row = v.logits + from;
	const u32 n = to - from, quads = (n + 3) / 4;
	four r[SAMPLE_QUADS];
	u32 q, i, k;

	for (q = first; q < quads; q += SAMPLE_QUADS * step) {
#pragma unroll
		for (k = 0; k < SAMPLE_QUADS; k++)
			if (q + k * step < quads)
				r[k] = row_load(row, q + k * step, n, v.vec);
#pragma unroll
		for (k = 0; k < SAMPLE_QUADS; k++)
#pragma unroll
			for (i = 0; i < 4; i++) {
				const u32 at = 4 * (q + k * step) + i;

				if (at < n)
					f(from + at, masked(v, from + at,
							    r[k].v[i]));
			}
	}
}

/* Call f(id, logit) for the whole row; the block's threads share it. */
template <typename F>
DEVICE void each_of_row(const view &v, F f)
{
	each(v, 0, v.vocab, threadIdx.x, blockDim.x, f);
}

/* ---- sums over the block ---- */

DEVICE u64 warp_sum64(u64 own)
{
	u32 i;

	for (i = WARP / 2; i; i /= 2)
		own += __shfl_xor_sync(FULL_MASK, own, (int)i);
	return own;
}

struct prefix {
	u64 before;		/* sum of the threads before this one */
	u64 total;
};

/* Called by all threads; ends with a barrier. */
DEVICE prefix block_prefix(const bench &b, u64 own)
{
	const u32 warps = blockDim.x / WARP;
	u64 upto = own, below = 0, all = 0, got;
	u32 i;

	for (i = 1; i < WARP; i *= 2) {
		got = __shfl_up_sync(FULL_MASK, upto, i);
		upto += thread_lane() >= i ? got : 0;
	}
	if (thread_lane() == WARP - 1)
		b.part[thread_warp()] = upto;
	__syncthreads();
	for (i = 0; i < warps; i++) {
		got = b.part[i];
		below += i < thread_warp() ? got : 0;
		all += got;
	}
	__syncthreads();
	return prefix{ below + upto - own, all };
}

DEVICE u64 block_max(const bench &b, u64 own)
{
	const u32 warps = blockDim.x / WARP;
	u64 got;
	u32 i;

	for (i = WARP / 2; i; i /= 2) {
		got = __shfl_xor_sync(FULL_MASK, own, (int)i);
		own = got > own ? got : own;
	}
	if (!thread_lane())
		b.part[thread_warp()] = own;
	__syncthreads();
	for (i = 0; i < warps; i++) {
		got = b.part[i];
		own = got > own ? got : own;
	}
	__syncthreads();
	return own;
}

/* The key of the row's best token; ~0: there is a NaN. */
DEVICE u64 row_best(const bench &b, const view &v)
{
	u64 best = 0;

	each_of_row(v, [&](u32 id, float logit) {
		const u64 key = is_nan(logit) ? ~0ull : cand_key(logit, id);

		best = key > best ? key : best;
	});
	return block_max(b, best);
}

/* Give all threads the numbers of the one thread that has @mine set. */
DEVICE void tell(const bench &b, bool mine, u64 &first, u64 &second)
{
	if (mine) {
		b.say[0] = first;
		b.say[1] = second;
	}
	__syncthreads();
	first = b.say[0];
	second = b.say[1];
	__syncthreads();
}

/*
 * The lowest id at which the running sum of f(id, logit) is above the target,
 * target_of(sum of all), which must be below that sum.
 */
template <typename F, typename T>
DEVICE u32 find_in_order(const bench &b, const view &v, F f, T target_of)
{
	const u32 warps = blockDim.x / WARP;
	u64 target = 0, from = 0, left = v.vocab, own, at;
	bool known = false, mine;
	prefix p;

	while (left > blockDim.x || !known) {
		const u32 chunk = ((u32)left + 4 * warps - 1) / (4 * warps) * 4;
		const u32 to = (u32)(from + left);
		const u64 begin = from + (u64)chunk * thread_warp();

		own = 0;
		if (begin < to)
			each(v, (u32)begin, to - begin < chunk ? to :
			     (u32)begin + chunk, thread_lane(), WARP,
			     [&](u32 id, float logit) {
				     own += f(id, logit);
			     });
		own = warp_sum64(own);
		p = block_prefix(b, thread_lane() ? 0 : own);
		if (!known)
			target = target_of(p.total);
		known = true;
		mine = !thread_lane() && p.before <= target &&
		       target < p.before + own;
		from = begin;
		at = p.before;
		tell(b, mine, from, at);
		target -= at;
		left = to - from < chunk ? to - from : chunk;
	}
	own = 0;
	from += threadIdx.x;
	if (threadIdx.x < left)
		own = f((u32)from, masked(v, (u32)from, v.logits[from]));
	p = block_prefix(b, own);
	at = 0;
	tell(b, p.before <= target && target < p.before + own, from, at);
	return (u32)from;
}

/* ---- bins ---- */

/* Add to a number in two halves; the thread that wraps the low half carries. */
DEVICE void add_halves(SHARED_PTR(u32) lo, SHARED_PTR(u32) hi, u32 i, u64 n)
{
	const u32 low = (u32)n;
	const u32 carry = atomicAdd(&lo[i], low) + low < low;

	if (carry || n >> 32)
		atomicAdd(&hi[i], (u32)(n >> 32) + carry);
}

/* Count tokens and weights of all bins; tokens below v.least are in no bin. */
DEVICE void bins_fill(const bench &b, const view &v)
{
	u32 i;

	for (i = threadIdx.x; i < SAMPLE_BINS; i += blockDim.x) {
		b.count[i] = 0;
		b.lo[i] = 0;
		b.hi[i] = 0;
	}
	__syncthreads();
	each_of_row(v, [&](u32 id, float logit) {
		const float x = exponent(v, logit);
		u64 w;

		if (!(x >= v.least))
			return;
		w = weight_of(v, x);
		atomicAdd(&b.count[bin_of(x)], 1u);
		if (w)
			add_halves(b.lo, b.hi, bin_of(x), w);
	});
	__syncthreads();
}

/*
 * Find the bin where the running sum of value(bin) reaches target_of(sum of all),
 * which is at least 1.  @rest is the target minus the sum of the earlier bins.  If
 * the target is above the sum of all, @bin is SAMPLE_BINS.
 */
template <typename V, typename T>
DEVICE void bin_find(const bench &b, u32 nr, V value, T target_of, u64 &bin,
		     u64 &rest)
{
	const u32 per = (nr + blockDim.x - 1) / blockDim.x;
	const u32 from = threadIdx.x * per;
	u64 own = 0, target, at;
	bool mine = false;
	prefix p;
	u32 i;

	for (i = from; i < from + per && i < nr; i++)
		own += value(i);
	p = block_prefix(b, own);
	target = target_of(p.total);
	bin = SAMPLE_BINS;
	rest = 0;
	if (target > p.total)
		return;		/* in all threads */
	for (i = from, at = p.before; i < from + per && i < nr && !mine; i++) {
		own = value(i);
		mine = at < target && target <= at + own;
		bin = i;
		rest = target - at;
		at += own;
	}
	tell(b, mine, bin, rest);
}

/* A token's share of the sum that a cut is searched by. */
DEVICE u64 share_of(const view &v, bool weights, float x)
{
	return weights ? weight_of(v, x) : 1;
}

/*
 * Gather the tokens of @bin with keys of at least @above.  The list has all of them
 * if they are at most SAMPLE_LIST.  Return: how many there are.
 */
DEVICE u32 list_gather(const bench &b, const view &v, u32 bin, bool weights,
		       u64 above)
{
	u32 nr;

	if (!threadIdx.x)
		b.nr[0] = 0;
	__syncthreads();
	each_of_row(v, [&](u32 id, float logit) {
		const float x = exponent(v, logit);
		const u64 key = cand_key(logit, id);
		u32 at;

		if (!(x >= v.least) || bin_of(x) != bin || key < above)
			return;
		at = atomicAdd(&b.nr[0], 1u);
		if (at >= SAMPLE_LIST)
			return;
		b.key[at] = key;
		b.weight[at] = share_of(v, weights, x);
	});
	__syncthreads();
	nr = b.nr[0];
	__syncthreads();
	return nr;
}

/* The key in the list of @nr at which the running sum reaches @target. */
DEVICE u64 list_cut(const bench &b, u32 nr, u64 target)
{
	u64 key = 0, unused = 0, before;
	bool mine = false;
	u32 i, k;

	for (i = threadIdx.x; i < nr; i += blockDim.x) {
		const u64 own = b.key[i];

		before = 0;
		for (k = 0; k < nr; k++)
			before += b.key[k] > own ? (u64)b.weight[k] : 0;
		if (before < target && target <= before + b.weight[i]) {
			mine = true;
			key = own;
		}
	}
	tell(b, mine, key, unused);
	return key;
}

/* As list_cut(), but without a list, for any number of tokens. */
DEVICE u64 row_cut(const bench &b, const view &v, u32 bin, bool weights,
		   u64 above, u64 target)
{
	u32 known = 0, shift = 32, i, id;
	u64 found, w;

	while (shift) {
		shift -= 8;
		for (i = threadIdx.x; i < SAMPLE_SMALL; i += blockDim.x) {
			b.small_lo[i] = 0;
			b.small_hi[i] = 0;
		}
		__syncthreads();
		each_of_row(v, [&](u32 at, float logit) {
			const float x = exponent(v, logit);
			const u32 key = logit_key(logit);

			if (!(x >= v.least) || bin_of(x) != bin ||
			    cand_key(logit, at) < above ||
			    (u64)key >> (shift + 8) != known)
				return;
			add_halves(b.small_lo, b.small_hi,
				   ~(key >> shift) & (SAMPLE_SMALL - 1),
				   share_of(v, weights, x));
		});
		__syncthreads();
		bin_find(b, SAMPLE_SMALL, [&](u32 n) {
			return (u64)b.small_hi[n] << 32 | b.small_lo[n];
		}, [&](u64) { return target; }, found, target);
		known = known << 8 | (~(u32)found & (SAMPLE_SMALL - 1));
	}
	w = share_of(v, weights, exponent(v, key_logit(known)));
	id = find_in_order(b, v, [&](u32 at, float logit) {
		return (u64)(logit_key(logit) == known &&
			     cand_key(logit, at) >= above);
	}, [&](u64) { return (target + w - 1) / w - 1; });
	return (u64)known << 32 | (u32)~id;
}

/* The key in @bin at which the running sum reaches @target. */
DEVICE u64 bin_cut(const bench &b, const view &v, u32 bin, bool weights,
		   u64 above, u64 target)
{
	const u32 nr = list_gather(b, v, bin, weights, above);

	return nr <= SAMPLE_LIST ? list_cut(b, nr, target) :
				row_cut(b, v, bin, weights, above, target);
}

#endif /* KERNELS_CUDA_SAMPLE_H */
