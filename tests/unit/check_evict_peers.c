// SPDX-License-Identifier: Apache-2.0
/*
 * check_evict_peers.c - the peers of bench_evict and bench_replay, and their traces
 *
 * The optimum is held against a search of all choices on tiny trees; LRU on trees and ARC
 * on flat traces, as in its paper, against implementations that scan.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/evict.h"

#define BLOCKS	12u
#define REQS	14u
#define SEEDS	300u
#define FLAT	400u	/* requests of a flat trace */

static u64 rng;

static u32 draw(u32 nr)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (u32)(rng >> 33) % nr;
}

/* A random tree of at most @depth, and requests for any of its blocks. */
static void make(struct ev_trace *t, u32 seed, u32 blocks, u32 reqs, u32 depth)
{
	u32 i;

	rng = 88172645463325252ull + seed;
	ev_trace_init(t, reqs);
	for (i = 0; i < blocks; i++) {
		u32 at = i ? draw(i + 1) : 0;

		(void)ev_trace_grow(t, at == i || t->depth[at] == depth ? EV_NONE : at, 1);
	}
	for (i = 0; i < reqs; i++) {
		u32 b = draw(blocks);

		ev_trace_ask(t, b, b, false);
	}
}

/* ---- all choices ---- */

static u32 path_mask(const struct ev_trace *t, u32 b)
{
	u32 mask = 0;

	for (; b != EV_NONE; b = t->parent[b])
		mask |= 1u << b;
	return mask;
}

static bool is_closed(const struct ev_trace *t, u32 mask)
{
	u32 i;

	for (i = 0; i < t->nr_blocks; i++)
		if ((mask & (1u << i)) && t->parent[i] != EV_NONE &&
		    !(mask & (1u << t->parent[i])))
			return false;
	return true;
}

static s8 memo[REQS + 1][1 << BLOCKS];

/* Most blocks that requests from @req on find in a cache that holds @held. */
static u32 search(const struct ev_trace *t, u32 cap, u32 req, u32 held)
{
	u32 path, all, sub, best = 0, found;

	if (req == t->nr_reqs)
		return 0;
	if (memo[req][held] >= 0)
		return (u32)memo[req][held];
	path = path_mask(t, t->reqs[req].prompt);
	found = (u32)__builtin_popcount(path & held);
	all = held & ~path;
	for (sub = all;; sub = (sub - 1) & all) {
		u32 keep = sub | path;

		if ((u32)__builtin_popcount(keep) <= cap && is_closed(t, keep))
			best = max(best, search(t, cap, req + 1, keep));
		if (!sub)
			break;
	}
	memo[req][held] = (s8)(best + found);
	return best + found;
}

START_TEST(test_optimum)
{
	struct ev_trace t;
	u32 seed, cap;
	u64 lru = 0, opt = 0;

	for (seed = 0; seed < SEEDS; seed++) {
		make(&t, seed, BLOCKS, REQS, 3);
		for (cap = 4; cap < 8; cap++) {
			memset(memo, -1, sizeof(memo));
			ck_assert_uint_eq(ev_run_belady(&t, cap),
					  search(&t, cap, 0, 0));
			ck_assert_uint_le(ev_run_arc(&t, cap), ev_run_belady(&t, cap));
			ck_assert_uint_le(ev_run_lru(&t, cap), ev_run_belady(&t, cap));
			lru += ev_run_lru(&t, cap);
			opt += ev_run_belady(&t, cap);
		}
		ev_trace_free(&t);
	}
	ck_assert_uint_lt(lru, opt);
}
END_TEST

/* ---- LRU that scans ---- */

static u64 plain_lru(const struct ev_trace *t, u32 cap)
{
	u32 used[BLOCKS] = { 0 }, held = 0, req, i;
	u64 found = 0;

	for (req = 0; req < t->nr_reqs; req++) {
		u32 path = path_mask(t, t->reqs[req].prompt);

		found += (u32)__builtin_popcount(path & held);
		held |= path;
		for (i = 0; i < BLOCKS; i++)
			if (path & (1u << i))
				used[i] = req + 1;
		while ((u32)__builtin_popcount(held) > cap) {
			u32 best = BLOCKS;

			for (i = 0; i < BLOCKS; i++)
				if ((held & ~path & (1u << i)) &&
				    is_closed(t, held & ~(1u << i)) &&
				    (best == BLOCKS || used[i] < used[best]))
					best = i;
			ck_assert_uint_lt(best, BLOCKS);
			held &= ~(1u << best);
		}
	}
	return found;
}

START_TEST(test_lru)
{
	struct ev_trace t;
	u32 seed, cap;

	for (seed = 0; seed < SEEDS; seed++) {
		make(&t, seed, BLOCKS, FLAT, 1 + seed % 4);
		for (cap = 1 + seed % 4; cap < BLOCKS; cap++)
			ck_assert_uint_eq(ev_run_lru(&t, cap), plain_lru(&t, cap));
		ev_trace_free(&t);
	}
}
END_TEST

/* ---- ARC as in the paper, on arrays ---- */

enum { T1, T2, B1, B2, LISTS };

static u32 list[LISTS][64], nr[LISTS];	/* the least recently used first */

static void take(u32 l, u32 at)
{
	memmove(&list[l][at], &list[l][at + 1], (--nr[l] - at) * sizeof(u32));
}

static bool take_block(u32 l, u32 b)
{
	u32 i;

	for (i = 0; i < nr[l]; i++)
		if (list[l][i] == b) {
			take(l, i);
			return true;
		}
	return false;
}

static void put(u32 l, u32 b)
{
	list[l][nr[l]++] = b;
}

static void replace(double p, bool in_b2)
{
	u32 from = nr[T1] && (nr[T1] > p || (in_b2 && nr[T1] == p)) ? T1 : T2;

	put(from == T1 ? B1 : B2, list[from][0]);
	take(from, 0);
}

/* Cases I to IV of figure 4 of Megiddo and Modha, FAST 2003. */
static u64 plain_arc(const struct ev_trace *t, u32 cap)
{
	u32 p = 0, req, sizes[2];
	u64 found = 0;

	memset(nr, 0, sizeof(nr));
	for (req = 0; req < t->nr_reqs; req++) {
		u32 b = t->reqs[req].prompt;

		sizes[0] = nr[B1];
		sizes[1] = nr[B2];
		if (take_block(T1, b) || take_block(T2, b)) {
			found++;
			put(T2, b);
		} else if (take_block(B1, b)) {
			p = min(cap, p + max(sizes[1] / sizes[0], 1u));
			replace(p, false);
			put(T2, b);
		} else if (take_block(B2, b)) {
			p -= min(p, max(sizes[0] / sizes[1], 1u));
			replace(p, true);
			put(T2, b);
		} else {
			if (nr[T1] + nr[B1] == cap) {
				if (nr[T1] < cap) {
					take(B1, 0);
					replace(p, false);
				} else {
					take(T1, 0);
				}
			} else if (nr[T1] + nr[T2] + nr[B1] + nr[B2] >= cap) {
				if (nr[T1] + nr[T2] + nr[B1] + nr[B2] == 2 * cap)
					take(B2, 0);
				replace(p, false);
			}
			put(T1, b);
		}
	}
	return found;
}

START_TEST(test_arc)
{
	struct ev_trace t;
	u32 seed, cap;

	for (seed = 0; seed < SEEDS; seed++) {
		make(&t, seed, BLOCKS, FLAT, 1);
		for (cap = 1; cap < BLOCKS; cap++)
			ck_assert_uint_eq(ev_run_arc(&t, cap), plain_arc(&t, cap));
		ev_trace_free(&t);
	}
}
END_TEST

/* ---- files ---- */

static u32 reads(struct ev_trace *t, const char *text)
{
	FILE *f = fmemopen((void *)text, strlen(text), "r");
	u32 line;

	ck_assert_ptr_nonnull(f);
	line = ev_trace_read(t, f);
	fclose(f);
	return line;
}

#define HEAD	"# trace of 3 requests, blocks of 512 tokens\n"

START_TEST(test_file)
{
	struct ev_trace t;

	ck_assert_uint_eq(reads(&t, "# a comment\n" HEAD "0 1025 7\n"
				"20 512 1 1 1\n5 1536 0 2 2\n"), 0);
	ck_assert_uint_eq(t.nr_reqs, 3);
	ck_assert_uint_eq(t.nr_blocks, 4);
	ck_assert_uint_eq(t.longest, 3);
	ck_assert_uint_eq(t.reqs[0].prompt, 2);
	ck_assert_uint_eq(t.reqs[1].prompt, 0);
	ck_assert_uint_eq(t.reqs[2].prompt, 3);
	ck_assert_uint_eq(t.parent[3], 1);
	ck_assert_uint_eq(t.reqs[2].at, 25000000);
	ck_assert_uint_eq(ev_asked(&t), 7);
	ck_assert_uint_eq(ev_findable(&t), 3);
	ev_trace_free(&t);
}
END_TEST

START_TEST(test_bad_files)
{
	static const struct {
		const char *text;
		u32 line;
	} bad[] = {
		{ "0 1025 7\n", 1 },			/* no head */
		{ HEAD "0 1025 7\n", 3 },		/* too short */
		{ HEAD "0 1 7\n0 1 7\n0 1 7\n0 1 7\n", 5 },
		{ HEAD "0 1025\n", 2 },
		{ HEAD "0 1025 7 1\n", 2 },
		{ HEAD "0 1025 7 1 1\n", 2 },		/* no such request */
		{ HEAD "0 1025 7\n0 1025 7 1 4\n", 3 },	/* it has not so many blocks */
		{ HEAD "0 1025 7\n0 512 7 1 2\n", 3 },	/* more than it has itself */
		{ HEAD "0 1025 7\n0 512 7 0 1\n", 3 },
		{ HEAD "0 1025 7\n0 512 7 1 0\n", 3 },
		{ HEAD "0 0 7\n", 2 },
		{ HEAD "0 1025 x\n", 2 },
		{ HEAD "0 1025 7 \n", 2 },
		{ HEAD "0 99999999999 7\n", 2 },
	};
	struct ev_trace t;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_msg(reads(&t, bad[i].text) == bad[i].line, "text %u", i);
		ev_trace_free(&t);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("evict-peers");
	TCase *tc = tcase_create("peers");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, test_optimum);
	tcase_add_test(tc, test_lru);
	tcase_add_test(tc, test_arc);
	tcase_add_test(tc, test_file);
	tcase_add_test(tc, test_bad_files);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
