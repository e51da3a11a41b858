// SPDX-License-Identifier: Apache-2.0
/*
 * sample.cu - draw tokens from rows of logits on the device
 *
 * The rules are those of runtime/sampler: the edits of logits and their order, the
 * tokens that a cut keeps, and the random number of a token.  kernels/weight.h
 * defines a token's weight, and sums are exact, so a draw gives the same token as
 * the sampler.
 *
 * A block has one draw.  It reads the row a few times, without sorting: once for
 * the best token, once for the bins if there is a cut, once for each cut to gather
 * the tokens of its bin, and once to add up weights in the order of ids until the
 * sum passes the random number.  See sample.h.
 *
 * Edits change the row.  Logprobs are those of the model's row, so if they are
 * wanted, edits are undone first, from a list of the old logits.
 */
#include "kernels/cuda/sample.h"

DEVICE float *row_at(const struct k_sample_args &a, const struct dev_draw &d)
{
	return a.logits + d.row * a.ld;
}

/* ---- edits ---- */

DEVICE void edits_save(const struct dev_draw &d, const float *row, float *to)
{
	u32 i;

	for (i = threadIdx.x; i < d.nr_masked; i += blockDim.x)
		to[i] = row[d.masked[i]];
	to += d.nr_masked;
	for (i = threadIdx.x; i < d.nr_biases; i += blockDim.x)
		to[i] = row[d.biases[i].id];
	to += d.nr_biases;
	for (i = threadIdx.x; i < d.nr_counts; i += blockDim.x)
		to[i] = row[d.counts[i].id];
}

/* A token that is in several lists has the same number in all of them. */
DEVICE void edits_restore(const struct dev_draw &d, float *row,
			  const float *from)
{
	u32 i;

	for (i = threadIdx.x; i < d.nr_masked; i += blockDim.x)
		row[d.masked[i]] = from[i];
	from += d.nr_masked;
	for (i = threadIdx.x; i < d.nr_biases; i += blockDim.x)
		row[d.biases[i].id] = from[i];
	from += d.nr_biases;
	for (i = threadIdx.x; i < d.nr_counts; i += blockDim.x)
		row[d.counts[i].id] = from[i];
}

DEVICE float penalised(const struct dev_draw &d, float l, u32 count)
{
	if (d.repetition != 0.0f && d.repetition != 1.0f)
		l = l > 0.0f ? l / d.repetition : mul_rn(l, d.repetition);
	if (!count)
		return l;
	l = sub_rn(l, mul_rn(d.frequency, (float)count));
	return sub_rn(l, d.presence);
}

KERNEL(k_sample_adjust, 256)(struct k_sample_args a)
{
	const struct dev_draw &d = a.draws[blockIdx.x];
	float *row = row_at(a, d);
	const bool saves = a.saved && d.saved != ~0u;
	u32 i;

	if (!d.adjusts)
		return;
	if (a.restore) {
		if (saves)
			edits_restore(d, row, a.saved + d.saved);
		return;
	}
	if (saves)
		edits_save(d, row, a.saved + d.saved);
	__syncthreads();
	for (i = threadIdx.x; i < d.nr_masked; i += blockDim.x)
		row[d.masked[i]] = SAMPLE_NONE;
	__syncthreads();
	for (i = threadIdx.x; i < d.nr_biases; i += blockDim.x)
		row[d.biases[i].id] = add_rn(row[d.biases[i].id],
					     d.biases[i].bias);
	__syncthreads();
	for (i = threadIdx.x; i < d.nr_counts; i += blockDim.x)
		row[d.counts[i].id] = penalised(d, row[d.counts[i].id],
						d.counts[i].count);
}

/* ---- draws ---- */

/* Philox4x32-10, as runtime/sampler/philox.c: 53 bits from bit 11 on. */
DEVICE u64 random_of(const struct dev_draw &d)
{
	u32 c0 = (u32)d.position, c1 = (u32)(d.position >> 32);
	u32 c2 = d.sample, c3 = 0;
	u32 k0 = (u32)d.seed, k1 = (u32)(d.seed >> 32), i;

	for (i = 0; i < 10; i++) {
		const u64 p0 = (u64)0xd2511f53u * c0;
		const u64 p1 = (u64)0xcd9e8d57u * c2;

		c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
		c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
		c1 = (u32)p1;
		c3 = (u32)p0;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	return ((u64)c1 << 32 | c0) >> 11 << 11;
}

DEVICE view view_of(const struct k_sample_args &a, const struct dev_draw &d)
{
	view v;

	v.logits = row_at(a, d);
	v.allowed = d.allowed;
	v.vocab = a.vocab;
	v.vec = ((u64)v.logits & 15) == 0;
	v.best = 0.0f;
	v.temperature = d.temperature;
	v.min_p = d.min_p;
	v.least = WEIGHT_X_MIN;
	v.shift = weight_shift(a.vocab);
	return v;
}

/* Keep in the bins only the weights of tokens not below @cut, which is in @bin. */
DEVICE void bins_trim(const bench &b, const view &v, u32 bin, u64 cut)
{
	u64 own = 0;
	prefix p;
	u32 i;

	each_of_row(v, [&](u32 id, float logit) {
		const float x = exponent(v, logit);

		if (x >= v.least && bin_of(x) == bin &&
		    cand_key(logit, id) >= cut)
			own += weight_of(v, x);
	});
	p = block_prefix(b, own);
	for (i = threadIdx.x; i < SAMPLE_BINS; i += blockDim.x)
		if (i >= bin) {
			b.lo[i] = i == bin ? (u32)p.total : 0;
			b.hi[i] = i == bin ? (u32)(p.total >> 32) : 0;
		}
	__syncthreads();
}

/* The lowest key that top-k and top-p keep; 0: they keep all. */
DEVICE u64 cuts_of(const bench &b, const view &v, const struct dev_draw &d)
{
	const bool by_k = d.top_k && d.top_k < v.vocab;
	u64 cut = 0, bin, rest;

	if (!by_k && !(d.top_p < 1.0f))
		return 0;
	bins_fill(b, v);
	if (by_k) {
		bin_find(b, SAMPLE_BINS, [&](u32 i) { return (u64)b.count[i]; },
			 [&](u64) { return (u64)d.top_k; }, bin, rest);
		if (bin < SAMPLE_BINS)
			cut = bin_cut(b, v, (u32)bin, false, 0, rest);
	}
	if (!(d.top_p < 1.0f))
		return cut;
	if (cut)
		bins_trim(b, v, (u32)bin, cut);
	bin_find(b, SAMPLE_BINS,
		 [&](u32 i) { return (u64)b.hi[i] << 32 | b.lo[i]; },
		 [&](u64 sum) { return weight_share(d.top_p, sum); }, bin,
		 rest);
	return bin_cut(b, v, (u32)bin, true, cut, rest);
}

/* Draw a token; @v has the row's best logit. */
DEVICE u32 draw(const bench &b, const view &v, const struct dev_draw &d)
{
	const u64 cut = cuts_of(b, v, d);

	return find_in_order(b, v, [&](u32 id, float logit) -> u64 {
		return cand_key(logit, id) < cut ? 0 :
			weight_of(v, exponent(v, logit));
	}, [&](u64 sum) { return weight_point(random_of(d), sum); });
}

/* 0, or the error if no token can be drawn from a row with the best key @best. */
DEVICE s32 best_error(u64 best)
{
	const float logit = key_logit((u32)(best >> 32));

	if (best == ~0ull)
		return SAMPLE_NAN;
	if (logit == SAMPLE_NONE)
		return SAMPLE_NOTHING;
	return logit == -SAMPLE_NONE ? SAMPLE_INF : 0;
}

KERNEL(k_sample_draw, 1024)(struct k_sample_args a)
{
	SAMPLE_BENCH(b);
	const struct dev_draw &d = a.draws[blockIdx.x];
	view v = view_of(a, d);
	const u64 best = row_best(b, v);
	s32 id = best_error(best);

	if (!id) {
		v.best = key_logit((u32)(best >> 32));
		id = (s32)~(u32)best;
		if (d.temperature != 0.0f && d.top_k != 1)
			id = (s32)draw(b, v, d);
	}
	if (!threadIdx.x)
		a.drawn[blockIdx.x] = dev_drawn{ id, 0, 0.0f, 0 };
}

/* ---- logprobs ---- */

/* The logarithm of the row's sum of exponentials. */
DEVICE double log_sum(const bench &b, const view &v)
{
	u64 own = 0;

	each_of_row(v, [&](u32, float logit) {
		own += weight_of(v, sub_rn(logit, v.best));
	});
	own = block_prefix(b, own).total;
	return (double)v.best + log(ldexp((double)own, -(int)v.shift));
}

/* The lowest key among the @nr best; 0 if the row has fewer. */
DEVICE u64 top_cut(const bench &b, const view &v, u32 nr)
{
	u64 bin, rest;

	bins_fill(b, v);
	bin_find(b, SAMPLE_BINS, [&](u32 i) { return (u64)b.count[i]; },
		 [&](u64) { return (u64)nr; }, bin, rest);
	return bin < SAMPLE_BINS ? bin_cut(b, v, (u32)bin, false, 0, rest) : 0;
}

/* Write the tokens not below @cut, at most @most; returns how many. */
DEVICE u32 top_write(const bench &b, const view &v, u64 cut, u32 most,
		     double sum, struct dev_top *to)
{
	u32 i, k, nr, rank;

	if (!threadIdx.x)
		b.nr[0] = 0;
	__syncthreads();
	each_of_row(v, [&](u32 id, float logit) {
		const u64 key = cand_key(logit, id);
		u32 at;

		if (key < cut || logit == SAMPLE_NONE)
			return;
		at = atomicAdd(&b.nr[0], 1u);
		if (at < most)
			b.key[at] = key;
	});
	__syncthreads();
	nr = b.nr[0] < most ? (u32)b.nr[0] : most;
	for (i = threadIdx.x; i < nr; i += blockDim.x) {
		const u64 key = b.key[i];

		for (k = 0, rank = 0; k < nr; k++)
			rank += b.key[k] > key;
		to[rank] = dev_top{
			~(u32)key,
			(float)((double)key_logit((u32)(key >> 32)) - sum),
		};
	}
	__syncthreads();
	return nr;
}

/* Rank of @id among the likeliest, from 1. */
DEVICE u32 rank_of(const bench &b, const view &v, u32 id)
{
	const u64 key = cand_key(v.logits[id], id);
	u64 own = 0;

	each_of_row(v, [&](u32 at, float logit) {
		own += cand_key(logit, at) > key;
	});
	return (u32)block_prefix(b, own).total + 1;
}

KERNEL(k_sample_logprobs, 1024)(struct k_sample_args a)
{
	SAMPLE_BENCH(b);
	const struct dev_draw &d = a.draws[blockIdx.x];
	const s32 id = a.drawn[blockIdx.x].id;
	struct dev_top *top = a.top + (u64)blockIdx.x * a.top_stride;
	const u32 most = d.nr_top < SAMPLE_LIST ? d.nr_top : SAMPLE_LIST;
	view v = view_of(a, d);
	dev_drawn out = { id, 0, 0.0f, 0 };
	double sum;
	u64 best;

	if (!d.logprobs)
		return;
	v.allowed = nullptr;
	v.temperature = 1.0f;
	v.min_p = 0.0f;
	v.least = SAMPLE_NONE;		/* -inf itself is left out below */
	best = row_best(b, v);
	if (best_error(best))
		return;
	v.best = key_logit((u32)(best >> 32));
	sum = log_sum(b, v);
	if (most && most <= a.top_stride)
		out.nr_top = top_write(b, v, top_cut(b, v, most), most, sum,
				       top);
	if (id >= 0) {
		out.rank = rank_of(b, v, (u32)id);
		out.logprob = (float)((double)v.logits[id] - sum);
	}
	if (!threadIdx.x)
		a.drawn[blockIdx.x] = out;
}
