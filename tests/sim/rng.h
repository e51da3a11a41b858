/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rng.h - the simulator's own random numbers
 *
 * xoshiro256** (Blackman and Vigna, public domain), seeded through splitmix64.
 * The same seed gives the same numbers on every machine: no libc generator is
 * used anywhere, so that a failing seed replays exactly.
 */
#ifndef SIM_RNG_H
#define SIM_RNG_H

#include <kvmm/types.h>

struct rng {
	u64	s[4];
};

/* One round of splitmix64: a cheap hash of a word. */
static inline u64 mix64(u64 x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static inline u64 mix2(u64 a, u64 b)
{
	return mix64(mix64(a) ^ b);
}

static inline void rng_seed(struct rng *r, u64 seed)
{
	u32 i;

	for (i = 0; i < 4; i++)
		r->s[i] = seed = mix64(seed + i);
}

static inline u64 rotl64(u64 x, u32 k)
{
	return (x << k) | (x >> (64 - k));
}

static inline u64 rng_next(struct rng *r)
{
	u64 *s = r->s;
	u64 result = rotl64(s[1] * 5, 7) * 9;
	u64 t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl64(s[3], 45);
	return result;
}

/* 0 to @n - 1; 0 when @n is 0. */
static inline u32 rng_below(struct rng *r, u32 n)
{
	return n ? (u32)(((rng_next(r) >> 32) * n) >> 32) : 0;
}

/* @lo to @hi, both included. */
static inline u32 rng_range(struct rng *r, u32 lo, u32 hi)
{
	return lo + rng_below(r, hi - lo + 1);
}

/* True @permille times of a thousand. */
static inline bool rng_chance(struct rng *r, u32 permille)
{
	return rng_below(r, 1000) < permille;
}

#endif /* SIM_RNG_H */
