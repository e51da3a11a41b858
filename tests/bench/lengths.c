// SPDX-License-Identifier: Apache-2.0
/*
 * lengths.c - requests with the lengths of well-known sets, from a seed
 *
 * ShareGPT and Alpaca themselves are not part of the project, so prompts and
 * answers are drawn from a lognormal distribution each, cut off at both ends.
 * The mean of a set is that of the PagedAttention paper (arXiv 2309.06180,
 * figure 11); bisection finds the location with which the drawn requests have
 * exactly this mean.  Numbers come from splitmix64, so a seed is a trace.
 *
 *	set		prompt: mean sigma from-to	answer: mean sigma from-to
 *	ShareGPT	161.31	1.2	4-1024		337.99	0.9	4-1024
 *	Alpaca		19.31	0.5	4-256		58.45	0.9	2-1024
 */
#include "tests/bench/bench.h"
#include "tests/bench/node.h"

#include <math.h>
#include <stdlib.h>

const char * const nd_lengths_name[ND_NR_LENGTHS] = { "sharegpt", "alpaca" };

struct shape {
	double	mean;
	double	sigma;
	u32	least;
	u32	most;
};

static const struct shape shapes[ND_NR_LENGTHS][2] = {
	[ND_SHAREGPT]	= { { 161.31, 1.2, 4, 1024 }, { 337.99, 0.9, 4, 1024 } },
	[ND_ALPACA]	= { { 19.31, 0.5, 4, 256 }, { 58.45, 0.9, 2, 1024 } },
};

/* From 0 to 1, both excluded. */
static double unit(u64 *s)
{
	u64 x = *s += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	x ^= x >> 31;
	return ((double)(x >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(u64 *s)
{
	return sqrt(-2 * log(unit(s))) * cos(6.283185307179586 * unit(s));
}

static u32 length_of(const struct shape *sh, double mu, double z)
{
	double v = exp(mu + sh->sigma * z);

	return (u32)min(max(v + 0.5, (double)sh->least), (double)sh->most);
}

static void draw(const struct shape *sh, u64 *s, u32 nr, u32 *len)
{
	double lo = 0, hi = 10, mu = 0, sum;
	double *z = calloc(nr, sizeof(*z));
	u32 i, turn;

	if (!z)
		bench_die("no memory for a trace");
	for (i = 0; i < nr; i++)
		z[i] = normal(s);
	for (turn = 0; turn < 40; turn++) {
		mu = (lo + hi) / 2;
		for (sum = 0, i = 0; i < nr; i++)
			sum += length_of(sh, mu, z[i]);
		if (sum / nr < sh->mean)
			lo = mu;
		else
			hi = mu;
	}
	for (i = 0; i < nr; i++)
		len[i] = length_of(sh, mu, z[i]);
	free(z);
}

struct nd_req *nd_trace(enum nd_lengths lengths, u64 seed, u32 nr,
			double per_second)
{
	struct nd_req *reqs = calloc(nr, sizeof(*reqs));
	u32 *len = calloc(2ull * nr, sizeof(*len)), i;
	double at = 0;
	u64 s = seed;

	if (!reqs || !len)
		bench_die("no memory for a trace");
	draw(&shapes[lengths][0], &s, nr, len);
	draw(&shapes[lengths][1], &s, nr, len + nr);
	for (i = 0; i < nr; i++) {
		if (per_second > 0)
			at -= log(unit(&s)) / per_second;
		reqs[i] = (struct nd_req){ .at = (u64)(at * ND_SECOND),
					   .prompt = len[i],
					   .out = len[nr + i] };
	}
	free(len);
	return reqs;
}
