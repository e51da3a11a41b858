// SPDX-License-Identifier: Apache-2.0
/*
 * worth.c - the value of a cached block, from observations
 *
 * The arithmetic of lru.c, which has the theory: observations by tier and age,
 * rates of hits, the best mean rate ahead.  It uses integers only, so that the
 * same events give the same order on every machine.
 *
 * All state is in kv_lru: enter, leave and hit are decaying counts in units of
 * ONE; value is computed from them.
 */
#include "kvmm/core/mem/mem.h"

#define ONE		256u	/* one observation */
#define DECAY_SHIFT	6	/* of the counts, at each fading */
#define PRIOR		128u	/* number of observations that the prior is worth */
#define RATE_SHIFT	28

/* ---- ages and tiers ---- */

static u32 log2_u32(u32 x)
{
	return 31u - (u32)__builtin_clz(x);
}

u32 lru_age_bucket(u32 age)
{
	u32 o;

	if (!age)
		return 0;
	o = log2_u32(age);
	return min(1 + 2 * o + (o ? (age >> (o - 1)) & 1 : 0u),
		   LRU_NR_AGES - 1);
}

/* Start and width of a bucket, in units. */
static u32 bucket_start(u32 x)
{
	u32 o = (x - 1) / 2;

	return x ? (1u << o) + ((x - 1) & 1) * (1u << o) / 2 : 0;
}

/* lru_age_start() - the least age of a bucket */
u32 lru_age_start(u32 x)
{
	return bucket_start(x);
}

static u32 bucket_width(u32 x)
{
	return x < 3 ? 1 : 1u << ((x - 1) / 2 - 1);
}

/* The smoothed interval is a number of buckets, in eighths. */
static u32 interval_class(u32 interval)
{
	u32 age = bucket_start(interval / 8);

	return age < 16 ? 0 : age < 128 ? 1 : age < 768 ? 2 : 3;
}

/* The tier of a name that was found @hits times, at @interval. */
u32 lru_tier(u32 hits, u32 interval)
{
	if (!hits)
		return interval;
	return LRU_TIER_FOUND * (hits == 1 ? 1 : hits < 4 ? 2 : 3) +
	       interval_class(interval);
}

/* ---- learning ---- */

/**
 * lru_observe() - count that a name was in a tier, between two ages
 * @from: age bucket in which that began
 * @to:   age bucket in which it ended
 * @hit:  it ended with a use
 * @times: number of names that this one stands for
 */
void lru_observe(struct kv_lru *l, u32 tier, u32 from, u32 to, bool hit,
		 u32 times)
{
	KV_BUG_ON(tier >= LRU_NR_TIERS);
	KV_BUG_ON(from >= LRU_NR_AGES || to >= LRU_NR_AGES);
	l->enter[tier][from] += ONE * times;
	l->leave[tier][to] += ONE * times;
	if (hit)
		l->hit[tier][to] += ONE * times;
}

/* The rate at @age in a tier without observations. */
static u64 rate_prior(u32 tier, u32 age)
{
	static const u8 weight[] = { 8, 6, 4, 2 };	/* never found: 1/64 */
	static const u8 found[] = { 0, 64, 96, 128 };
	static const u16 interval[] = { 8, 64, 512, 2048 };

	if (tier < LRU_TIER_FOUND)
		return ((u64)weight[tier] << (RATE_SHIFT - 6)) / (age + 256);
	return ((u64)found[tier / LRU_TIER_FOUND] << (RATE_SHIFT - 6)) /
	       (age + interval[tier % LRU_TIER_FOUND]);
}

/* The rate of hits in each age bucket of a tier. */
static void tier_rates(const struct kv_lru *l, u32 tier, u64 *rate)
{
	u64 risk = 0, next, time, prior;
	u32 x;

	for (x = 0; x < LRU_NR_AGES; x++) {
		u64 width = bucket_width(x);

		risk += l->enter[tier][x];
		next = risk - min(risk, (u64)l->leave[tier][x]);
		time = width * (risk + next) / 2;
		prior = width * PRIOR * ONE;
		rate[x] = (((u64)l->hit[tier][x] << RATE_SHIFT) + prior *
			   rate_prior(tier, bucket_start(x) + (u32)width / 2)) /
			  (time + prior);
		rate[x] = min(rate[x], 1ull << RATE_SHIFT);
		risk = next;
	}
}

/* The best mean rate of hits from bucket @a on. */
static u32 rate_ahead(const u64 *rate, u32 a)
{
	u64 left = 1 << 16, best = 0, reward = 0, time = 0;
	u32 x;

	for (x = a; x < LRU_NR_AGES && left > 64; x++) {
		u64 width = bucket_width(x);
		u64 one = 1ull << RATE_SHIFT;
		u64 hit = left * (rate[x] * width / 16) / ((one + rate[x] *
			  width) / 16);

		reward += hit;
		time += left * width * (one / 16) / ((one + rate[x] * width) /
			16);
		if (time)
			best = max(best, (reward << LRU_WORTH_SHIFT) / time);
		left -= hit;
	}
	return (u32)best;
}

/* Compute the values of all tiers; with @fade let the counts decay. */
void lru_learn(struct kv_lru *l, bool fade)
{
	u64 rate[LRU_NR_AGES];
	u32 t, x;

	for (t = 0; t < LRU_NR_TIERS; t++) {
		tier_rates(l, t, rate);
		for (x = 0; x < LRU_NR_AGES; x++) {
			l->value[t][x] = rate_ahead(rate, x);
			if (!fade)
				continue;
			l->enter[t][x] -= l->enter[t][x] >> DECAY_SHIFT;
			l->leave[t][x] -= l->leave[t][x] >> DECAY_SHIFT;
			l->hit[t][x] -= l->hit[t][x] >> DECAY_SHIFT;
		}
	}
}

/* The value of a block of a tier at an age, interpolated between buckets. */
u32 lru_value(const struct kv_lru *l, u32 tier, u32 age)
{
	u32 x = lru_age_bucket(age), into = age - bucket_start(x);
	u32 here = l->value[tier][x], next;

	if (x == LRU_NR_AGES - 1)
		return here;
	next = l->value[tier][x + 1];
	return (u32)(here + ((s64)next - here) * min(into, bucket_width(x)) /
			    bucket_width(x));
}
