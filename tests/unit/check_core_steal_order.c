// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_steal_order.c - which span of other domains goes first
 *
 * Also the spans that a domain could have if the others lost all that they may lose.
 */
#include "tests/unit/span_scene.h"

#define LOOK_RUNS_MAX	32u	/* runs that a scan remembers */

/* ---- spans within reach ---- */

static u32 reachable(char letter)
{
	u32 nr;

	c->now = sh.now;
	c->work = 0;
	SH_CORE(nr = span_runs_reachable(c, dom_of(letter)));
	return nr;
}

START_TEST(test_all_is_reachable_without_protection)
{
	domain('a', 1, 1);
	domain('g', 1, 2);
	layout("AAAAAATT");
	set_blocks('t', CORE_LIMIT_MIN, 4);
	c->domains[5].emin = 1;
	ck_assert_uint_eq(reachable('t'), 8);
	ck_assert_uint_eq(c->work, 0);
	ck_assert_uint_eq(reachable('a'), 7);
	ck_assert_uint_eq(c->work, SCAN);
	set_blocks('t', CORE_LIMIT_MIN, 0);
	ck_assert_uint_eq(reachable('g'), 4);
	ck_assert_uint_eq(c->work, 0);
	c->domains[5].emin = 0;
}
END_TEST

START_TEST(test_reachable_down_to_min)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("AAAAtTBB");
	set_blocks('a', CORE_LIMIT_MIN, 8);
	ck_assert_uint_eq(reachable('t'), 6);
	ck_assert_uint_eq(reachable('t'), 6);
	set_blocks('a', CORE_LIMIT_MIN, 9);
	ck_assert_uint_eq(reachable('t'), 5);
	set_blocks('a', CORE_LIMIT_MIN, 16);
	ck_assert_uint_eq(reachable('t'), 4);
	c->extents[0].want = CORE_NONE;
	ck_assert_uint_eq(reachable('t'), 5);
	c->extents[0].want = 0;
}
END_TEST

/* An empty span is no loss; one used block is as much as it holds. */
START_TEST(test_reachable_counts_used_blocks)
{
	domain('a', 1, 1);
	layout("aaAATTTT");
	thin(0, 4);
	thin(1, 3);
	set_blocks('a', CORE_LIMIT_MIN, 8);
	ck_assert_uint_eq(reachable('t'), 6);
	set_blocks('a', CORE_LIMIT_MIN, 9);
	ck_assert_uint_eq(reachable('t'), 5);
}
END_TEST

START_TEST(test_reachable_span_of_two)
{
	domain('g', 1, 2);
	layout("GGGG");
	set('g', CORE_LIMIT_MIN, 2 * 2 * SH_EXTENT);
	ck_assert_uint_eq(reachable('t'), 4);
}
END_TEST

START_TEST(test_reachable_run_of_two)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('g', 1, 2);
	layout("AabABbBB");
	set_blocks('a', CORE_LIMIT_MIN, 12);
	ck_assert_uint_eq(reachable('g'), 2);
	set_blocks('a', CORE_LIMIT_MIN, 4);
	ck_assert_uint_eq(reachable('g'), 3);
}
END_TEST

/* Memory that cannot be made just now is not to be had. */
START_TEST(test_reachable_if_no_memory_is_made)
{
	ck_assert_uint_eq(reachable('t'), 8);
	ck_assert_uint_eq(c->work, 0);
	/* The time is over, but no tick has said so. */
	c->head->zones[0].create_after = sh.now;
	ck_assert_uint_eq(reachable('t'), 0);
	ck_assert_uint_eq(c->work, SCAN);
	domain('x', 2, 1);
	c->head->zones[0].create_after = 0;
	layout("xxXXXXTT");
	release(0);
	c->head->zones[0].create_after = sh.now + 1;
	ck_assert_uint_eq(reachable('t'), 8);
}
END_TEST

/* ---- the order of runs that cost the same ---- */

START_TEST(test_largest_share_first)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("AaaBBBbb");
	expect_steal('t', "AaaBBB.b");
	expect_steal('t', "AaaBBB..");
	expect_steal('t', "A.aBBB..");
	expect_steal('t', "A..BBB..");
}
END_TEST

START_TEST(test_first_of_equal_shares_first)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("abBAabBA");
	expect_steal('t', ".bBAabBA");
	expect_steal('t', "..BAabBA");
	expect_steal('t', "..BA.bBA");
}
END_TEST

/* The share of a run is the largest of its owners'. */
START_TEST(test_share_of_a_run_is_its_largest)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('g', 1, 2);
	layout("aaabBBAa");
	expect_steal('g', "aa..BBAa");
	expect_steal('g', "....BBAa");
	restart(EXTENTS, 0);
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('g', 1, 2);
	layout("aabaBBAa");
	expect_steal('g', "aa..BBAa");
}
END_TEST

/* Of the memory to be given back, a span goes before memory in no span. */
START_TEST(test_span_before_memory_in_no_span)
{
	domain('x', 2, 1);
	layout("xxXXXXXX");
	set('x', CORE_LIMIT_WEIGHT, 10000);
	release(0);
	thin(1, 4);
	wait_long();
	ck_assert(steal('t', true));
	ck_assert_str_eq(map(), ".!XXXXXX");
	ck_assert(steal('t', true));
	ck_assert_str_eq(map(), "!!XXXXXX");
}
END_TEST

/* The same where the owner has no more than its part. */
START_TEST(test_span_of_no_share)
{
	domain('x', 2, 1);
	layout("xxTTTTTT");
	release(0);
	thin(1, 4);
	wait_long();
	ck_assert(steal('t', true));
	ck_assert_str_eq(map(), ".!TTTTTT");
}
END_TEST

/* An extent that a lingering process has mapped goes last: the process has to end. */
START_TEST(test_haunted_goes_last)
{
	domain('x', 2, 1);
	domain('y', 2, 1);
	layout("xyXXXXXX");
	wait_long();
	c->extents[0].haunted = 1;
	ck_assert(steal('t', true));
	ck_assert_str_eq(map(), "x!XXXXXX");
	ck_assert(steal('t', true));
	ck_assert_str_eq(map(), "!!XXXXXX");
}
END_TEST

/* ---- one scan for many ---- */

/* Of spans that cost nothing the first will do, and the next is behind it. */
START_TEST(test_free_spans_one_after_the_other)
{
	struct run_look l = { .nr = 0 };

	domain('a', 1, 1);
	layout("aAaaAaAA");
	thin(2, 4);
	thin(5, 4);
	ck_assert(steal_with('t', false, &l));
	ck_assert_str_eq(map(), "aA.aA_AA");
	ck_assert_uint_eq(l.nr, 1);
	ck_assert_uint_eq(l.next, 1);
	ck_assert_uint_eq(c->work, SCAN + 3 * LOOK);
	ck_assert(steal_with('t', false, &l));
	ck_assert_str_eq(map(), "aA.aA.AA");
	ck_assert_uint_eq(c->work, 3 * LOOK + LOOK);
}
END_TEST

/* Runs of cache come from one scan, until it has no more. */
START_TEST(test_cache_from_one_scan)
{
	struct run_look l = { .nr = 0 };

	domain('a', 1, 1);
	layout("aaaAAAAA");
	ck_assert(steal_with('t', false, &l));
	ck_assert_str_eq(map(), ".aaAAAAA");
	ck_assert_uint_eq(l.nr, 3);
	ck_assert_uint_eq(l.next, 1);
	ck_assert_uint_eq(c->work, 3 * SCAN);
	ck_assert(steal_with('t', false, &l));
	ck_assert_str_eq(map(), "..aAAAAA");
	ck_assert_uint_eq(c->work, LOOK);
	/* Its cache went otherwise: now it costs nothing. */
	thin(2, 4);
	ck_assert(steal_with('t', false, &l));
	ck_assert_str_eq(map(), "...AAAAA");
	ck_assert_uint_eq(l.nr, 3);
	ck_assert_uint_eq(l.next, 3);
}
END_TEST

/* A run that cannot be had any more is left out. */
START_TEST(test_run_of_a_scan_is_looked_at_again)
{
	struct run_look l = { .nr = 0 };

	domain('a', 1, 1);
	layout("aaaAAAAA");
	ck_assert(steal_with('t', false, &l));
	ck_assert_int_eq(span_isolate(c, 1), 0);
	ck_assert(steal_with('t', false, &l));
	ck_assert_str_eq(map(), ".a.AAAAA");
	ck_assert_uint_eq(c->work, 2 * LOOK);
	while (extent_run_take(c, dom_of('t')) >= 0)
		;
	ck_assert(!steal_with('t', false, &l));
	ck_assert_str_eq(map(), ".a.AAAAA");
	ck_assert_uint_eq(l.nr, 0);
}
END_TEST

/* The loss of an owner is counted from the beginning for each run. */
START_TEST(test_loss_is_counted_for_each_run)
{
	struct run_look l = { .nr = 0 };

	domain('a', 1, 1);
	layout("aaaAAAAA");
	set_blocks('a', CORE_LIMIT_MIN, 24);
	ck_assert(steal_with('t', false, &l));
	ck_assert(steal_with('t', false, &l));
	ck_assert_str_eq(map(), "..aAAAAA");
	while (extent_run_take(c, dom_of('t')) >= 0)
		;
	ck_assert(!steal_with('t', false, &l));
	ck_assert_str_eq(map(), "..aAAAAA");
}
END_TEST

/* Runs that are asked back are looked for anew each time. */
START_TEST(test_no_scan_serves_two_revocations)
{
	struct run_look l = { .nr = 0 };

	domain('x', 2, 1);
	layout("xxXXXXXX");
	release(0);
	release(1);
	wait_long();
	ck_assert(steal_with('t', false, &l));
	ck_assert_str_eq(map(), "!.XXXXXX");
	ck_assert_uint_eq(l.nr, 0);
	ck_assert(steal_with('t', true, &l));
	ck_assert_str_eq(map(), "!!XXXXXX");
	ck_assert_uint_eq(c->work, 2 * SCAN);
}
END_TEST

/* A scan remembers 32 runs, the best of all that it saw. */
START_TEST(test_best_of_many_runs)
{
	char spans[SH_EXTENTS + 1];
	struct {
		struct run_look l;
		u64 behind;	/* the keys; no scan reads it */
	} look = { .behind = 0 };
	struct run_look l;
	u32 i;

	restart(40, 0);
	domain('a', 1, 1);
	domain('b', 1, 1);
	memset(spans, 'a', 40);
	strcpy(spans + 36, "bbBA");
	layout(spans);
	set('a', CORE_LIMIT_WEIGHT, 400);
	ck_assert(steal_with('t', false, &look.l));
	l = look.l;
	ck_assert_uint_eq(l.nr, LOOK_RUNS_MAX);
	ck_assert_uint_eq(l.run[0], 36);
	ck_assert_uint_eq(l.run[1], 37);
	for (i = 2; i < LOOK_RUNS_MAX; i++)
		ck_assert_uint_eq(l.run[i], i - 2);
	/* The share, one more for a span; none of them is haunted. */
	ck_assert_uint_eq(l.key[0], BIT_ULL(63) + 4 + 1);
	ck_assert_uint_eq(l.key[2], BIT_ULL(63) + 1 + 1);
	ck_assert_uint_eq(l.key[31], BIT_ULL(63) + 1 + 1);
}
END_TEST

/* ---- blocks that are evicted in vain ---- */

/*
 * A block that a copy reads keeps its span.  The taker looks again, for a block was
 * evicted, and none of the run is released.
 */
START_TEST(test_span_with_a_block_that_is_read)
{
	domain('a', 1, 1);
	domain('g', 1, 2);
	layout("aaAAAAAA");
	sh_unchecked = true;
	block_copy_get(c, 3);
	d_of('g')->retry = 0;
	ck_assert(!steal('g', false));
	ck_assert_str_eq(map(), "A_AAAAAA");
	ck_assert_uint_eq(d_of('g')->retry, 1);
	/* The first block of each prompt went, and took the others along. */
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 2);
	d_of('g')->retry = 0;
	ck_assert(!steal('g', false));
	ck_assert_uint_eq(d_of('g')->retry, 0);
	block_copy_put(c, 3);
	ck_assert(steal('g', false));
	ck_assert_str_eq(map(), "..AAAAAA");
}
END_TEST

/* The taker looks again also if the block that is read is the only one. */
START_TEST(test_taker_looks_again)
{
	domain('a', 1, 1);
	layout("aAAAAAAA");
	thin(0, 3);
	sh_unchecked = true;
	block_copy_get(c, 0);
	d_of('t')->retry = 0;
	ck_assert(!steal('t', false));
	ck_assert_str_eq(map(), "AAAAAAAA");
	ck_assert_uint_eq(d_of('t')->retry, 1);
	block_copy_put(c, 0);
}
END_TEST

/* An empty span has no block to evict. */
START_TEST(test_empty_spans_are_not_evicted)
{
	domain('a', 1, 1);
	layout("aaAAAAAA");
	thin(0, 4);
	c->head->events[CORE_EV_reclaim_direct] = 0;
	ck_assert(steal('t', false));
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 0);
}
END_TEST

/* ---- the trace ---- */

static void expect_trace(u64 dom, u64 from, u64 extent, u64 nr)
{
	struct core_trace_rec rec[4];
	u64 written, at = 0;

	ck_assert_uint_eq(core_trace_read(c, &at, &written, rec, 4), 1);
	ck_assert_uint_eq(rec[0].event, CORE_TRACE_steal);
	ck_assert_uint_eq(rec[0].arg[0], dom);
	ck_assert_uint_eq(rec[0].arg[1], from);
	ck_assert_uint_eq(rec[0].arg[2], extent);
	ck_assert_uint_eq(rec[0].arg[3], nr);
}

START_TEST(test_trace_says_whose_span)
{
	struct core_trace *ring = calloc(1, core_trace_bytes(16));

	domain('a', 1, 1);
	domain('g', 1, 2);
	layout("AAaaAAAA");
	if (_i)
		release(2);
	core_trace_attach(c, sh.now, ring, 16);
	ck_assert_int_eq(core_trace_set(c, CORE_TRACE_steal, true), 0);
	ck_assert(steal('g', false));
	expect_trace(dom_of('g'), _i ? ~0ull : dom_of('a'), 2, 2);
	free(ring);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_steal_order");
	TCase *tc = tcase_create("steal_order");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_all_is_reachable_without_protection);
	tcase_add_test(tc, test_reachable_down_to_min);
	tcase_add_test(tc, test_reachable_counts_used_blocks);
	tcase_add_test(tc, test_reachable_span_of_two);
	tcase_add_test(tc, test_reachable_run_of_two);
	tcase_add_test(tc, test_reachable_if_no_memory_is_made);
	tcase_add_test(tc, test_largest_share_first);
	tcase_add_test(tc, test_first_of_equal_shares_first);
	tcase_add_test(tc, test_share_of_a_run_is_its_largest);
	tcase_add_test(tc, test_span_before_memory_in_no_span);
	tcase_add_test(tc, test_span_of_no_share);
	tcase_add_test(tc, test_haunted_goes_last);
	tcase_add_test(tc, test_free_spans_one_after_the_other);
	tcase_add_test(tc, test_cache_from_one_scan);
	tcase_add_test(tc, test_run_of_a_scan_is_looked_at_again);
	tcase_add_test(tc, test_loss_is_counted_for_each_run);
	tcase_add_test(tc, test_no_scan_serves_two_revocations);
	tcase_add_test(tc, test_best_of_many_runs);
	tcase_add_test(tc, test_span_with_a_block_that_is_read);
	tcase_add_test(tc, test_taker_looks_again);
	tcase_add_test(tc, test_empty_spans_are_not_evicted);
	tcase_add_loop_test(tc, test_trace_says_whose_span, 0, 2);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
