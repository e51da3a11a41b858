// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_steal.c - how many spans other domains can do without, at which cost
 */
#include "tests/unit/span_scene.h"

/* Runs that @letter could have; how many of them have to be given back. */
static u32 possible(char letter, u32 *back)
{
	u32 nr;

	c->now = sh.now;
	c->work = 0;
	SH_CORE(nr = span_runs_possible(c, dom_of(letter), back));
	return nr;
}

static void expect_possible(char letter, u32 nr, u32 back)
{
	u32 b;

	ck_assert_uint_eq(possible(letter, &b), nr);
	ck_assert_uint_eq(b, back);
}

/* ---- how many there are ---- */

START_TEST(test_cache_and_unused_extents_count)
{
	domain('a', 1, 1);
	layout("aAattaTT");
	release(4);
	release(5);
	expect_possible('t', 4, 0);
	expect_possible('a', 3, 0);
	/* One scan before, one for each of four costs. */
	ck_assert_uint_eq(c->work, 5 * SCAN);
}
END_TEST

START_TEST(test_full_pool_is_not_scanned)
{
	domain('a', 1, 1);
	layout("AAAAAAtt");
	expect_possible('t', 0, 0);
	ck_assert_uint_eq(c->work, 0);
	ck_assert(!steal('t', false));
	ck_assert_uint_eq(c->work, 0);
}
END_TEST

/* Free and cached blocks of a domain that do not make a span are no span to take. */
START_TEST(test_less_than_a_span_is_not_scanned)
{
	domain('a', 1, 1);
	layout("AAAAAAtt");
	d_of('a')->dev.nr[BLK_CACHED] += 3;
	expect_possible('t', 0, 0);
	ck_assert_uint_eq(c->work, 0);
	d_of('a')->dev.nr[BLK_CACHED] += 1;
	expect_possible('t', 0, 0);
	/* With no other cost in sight the first scan is the only one. */
	ck_assert_uint_eq(c->work, 2 * SCAN);
	d_of('a')->dev.nr[BLK_CACHED] -= 4;
}
END_TEST

START_TEST(test_free_blocks_of_an_owner_are_scanned)
{
	domain('a', 1, 1);
	layout("aAAAAAtt");
	thin(0, 4);
	ck_assert_str_eq(map(), "_AAAAAtt");
	expect_possible('t', 1, 0);
	ck_assert_uint_eq(c->work, 2 * SCAN);
}
END_TEST

/* Two spans of one extent make a run of two, and one does not. */
START_TEST(test_run_of_two_wants_two_extents)
{
	domain('a', 1, 1);
	domain('g', 1, 2);
	layout("aAAAAAAA");
	expect_possible('g', 0, 0);
	ck_assert_uint_eq(c->work, 0);
	restart(EXTENTS, 0);
	domain('a', 1, 1);
	domain('g', 1, 2);
	layout("aAAaAAAA");
	expect_possible('g', 0, 0);
	ck_assert_uint_ne(c->work, 0);
	restart(EXTENTS, 0);
	domain('a', 1, 1);
	domain('g', 1, 2);
	layout("AAaaAAaa");
	release(7);
	expect_possible('g', 2, 0);
}
END_TEST

START_TEST(test_span_of_two_serves_two_runs)
{
	domain('g', 1, 2);
	layout("gGgg");
	expect_possible('t', 6, 0);
	expect_steal('t', "..GGgggg");
	expect_possible('t', 4, 0);
	expect_steal('t', "..GG..gg");
	expect_steal('t', "..GG....");
	expect_no_steal('t');
}
END_TEST

/* With extents of another tenant there are four more costs to scan for. */
START_TEST(test_scans_of_two_tenants)
{
	domain('a', 1, 1);
	domain('x', 2, 1);
	layout("aaaaaaaa");
	expect_possible('t', 8, 0);
	ck_assert_uint_eq(c->work, 9 * SCAN);
}
END_TEST

/* ---- protection of the owner ---- */

START_TEST(test_promised_blocks_of_an_owner_stay)
{
	u64 seq;

	domain('a', 1, 1);
	layout("aaaAAAAA");
	thin(0, 4);
	thin(1, 4);
	ck_assert_str_eq(map(), "__aAAAAA");
	expect_possible('t', 3, 0);
	/* Five blocks are promised: of the two empty spans none can go. */
	seq = sh_ready(owner['a'], 5 * SH_BT, 0, 77000);
	expect_possible('t', 1, 0);
	expect_steal('t', "__.AAAAA");
	expect_no_steal('t');
	ck_assert_int_eq(sh_close(owner['a'], seq), 0);
}
END_TEST

/* Each span that goes takes its free blocks off the rest. */
START_TEST(test_free_blocks_are_counted_once)
{
	domain('a', 1, 1);
	layout("aaaAAAAA");
	thin(0, 4);
	thin(1, 4);
	sh_ready(owner['a'], 4 * SH_BT, 0, 77000);
	expect_possible('t', 2, 0);
	/* The empty one that is not promised, then the cache. */
	expect_steal('t', "._aAAAAA");
	expect_steal('t', "._.AAAAA");
	expect_no_steal('t');
}
END_TEST

START_TEST(test_min_keeps_cache)
{
	domain('a', 1, 1);
	layout("aaaaAAAA");
	set_blocks('a', CORE_LIMIT_MIN, 25);
	/* 32 blocks are used: seven of them may go. */
	expect_possible('t', 1, 0);
	set_blocks('a', CORE_LIMIT_MIN, 24);
	expect_possible('t', 2, 0);
	expect_steal('t', ".aaaAAAA");
	expect_steal('t', "..aaAAAA");
	expect_no_steal('t');
	ck_assert_uint_eq(sh_domain(owner['a']).nr_low_events, 0);
}
END_TEST

/* Below memory.low an owner loses cache last, and the loss is counted. */
START_TEST(test_low_goes_last)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("aabbBBBB");
	set_blocks('a', CORE_LIMIT_LOW, 5);
	expect_possible('t', 4, 0);
	expect_steal('t', "aa.bBBBB");
	expect_steal('t', "aa..BBBB");
	ck_assert_uint_eq(sh_domain(owner['a']).nr_low_events, 0);
	expect_steal('t', ".a..BBBB");
	ck_assert_uint_eq(sh_domain(owner['a']).nr_low_events, 1);
	expect_steal('t', "....BBBB");
	ck_assert_uint_eq(sh_domain(owner['a']).nr_low_events, 2);
	ck_assert_uint_eq(sh_domain(owner['b']).nr_low_events, 0);
}
END_TEST

/* Only costs at which there is a run are scanned for. */
START_TEST(test_scans_before_memory_that_low_protects)
{
	domain('a', 1, 1);
	layout("aAAAAAAA");
	set_blocks('a', CORE_LIMIT_LOW, 32);
	ck_assert(steal('t', false));
	ck_assert_uint_eq(c->work, 3 * SCAN);
}
END_TEST

/* A span without cache costs its owner nothing, also if memory.min protects all of it. */
START_TEST(test_empty_span_costs_nothing)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("babBBBBB");
	set_blocks('a', CORE_LIMIT_MIN, 32);
	thin(1, 4);
	ck_assert_str_eq(map(), "b_bBBBBB");
	expect_steal('t', "b.bBBBBB");
	ck_assert_uint_eq(sh_domain(owner['a']).nr_low_events, 0);
}
END_TEST

/* ---- the floor ---- */

/* Half of the pool is cache floor, and the owner has most of the weight. */
static void floor_scene(const char *spans, u32 floor_blocks)
{
	restart(EXTENTS, 50);
	domain('a', 1, 1);
	set('t', CORE_LIMIT_WEIGHT, 16 - floor_blocks);
	set('a', CORE_LIMIT_WEIGHT, floor_blocks);
	ck_assert_uint_eq(d_of('a')->floor, floor_blocks);
	layout(spans);
}

/* A taker with two sequences leaves the floor, one with one does not. */
START_TEST(test_floor_stays_if_the_taker_has_others)
{
	floor_scene("aaaaAAtt", 8);
	expect_possible('t', 4, 0);
	floor_scene("aaaaAAtT", 8);
	expect_possible('t', 4, 0);
	floor_scene("aaaaAATT", 8);
	expect_possible('t', 2, 0);
	expect_steal('t', ".aaaAATT");
	expect_steal('t', "..aaAATT");
	expect_no_steal('t');
	floor_scene("aaaaAATT", 9);
	expect_possible('t', 1, 0);
}
END_TEST

/* Cache above a floor goes first, below the floor next, below memory.low last. */
START_TEST(test_order_of_costs)
{
	restart(EXTENTS, 25);
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('e', 1, 1);
	/* Two blocks of floor each. */
	layout("abeeAAAA");
	ck_assert_uint_eq(d_of('a')->floor, 2);
	set_blocks('a', CORE_LIMIT_LOW, 20);
	expect_possible('t', 4, 0);
	expect_steal('t', "ab.eAAAA");
	expect_steal('t', "a..eAAAA");
	expect_steal('t', "a...AAAA");
	expect_steal('t', "....AAAA");
	ck_assert_uint_eq(sh_domain(owner['a']).nr_low_events, 1);
}
END_TEST

/* ---- other tenants ---- */

/* Extents of a living tenant have to be given back, after they have stayed. */
START_TEST(test_other_tenant_gives_back)
{
	domain('x', 2, 1);
	layout("xxXXXXXX");
	expect_possible('t', 0, 0);
	wait_long();
	expect_possible('t', 2, 2);
	/* At the cost of cache that is given back, and at those above it. */
	ck_assert_uint_eq(c->work, 5 * SCAN);
	ck_assert(steal('t', false));
	ck_assert_str_eq(map(), "!xXXXXXX");
	ck_assert_uint_eq(d_of('t')->nr_revokes, 1);
	expect_possible('t', 1, 1);
	ck_assert(steal('t', true));
	ck_assert_str_eq(map(), "!!XXXXXX");
	ck_assert(!steal('t', true));
}
END_TEST

/* A scan of the domains leaves the notes about tenants alone. */
START_TEST(test_extents_stay_for_a_while)
{
	sh_stop();
	sh_config(EXTENTS);
	sh.cfg.max_domains = 8;
	sh.cfg.starve_ns = 1ull << 40;
	sh_start();
	c = sh.core;
	t = owner['t'] = sh_attach(1, "t");
	domain('x', 2, 1);
	layout("tttttxxx");
	expect_possible('x', 0, 0);
	wait_long();
	expect_possible('x', 5, 5);
}
END_TEST

/* Asked for runs to be given back only, those of the tenant are left. */
START_TEST(test_only_what_is_given_back)
{
	domain('a', 1, 1);
	domain('x', 2, 1);
	layout("axaXXXXX");
	wait_long();
	expect_possible('t', 3, 1);
	ck_assert(steal('t', true));
	ck_assert_str_eq(map(), "a!aXXXXX");
	ck_assert(!steal('t', true));
	ck_assert_str_eq(map(), "a!aXXXXX");
	expect_steal('t', ".!aXXXXX");
}
END_TEST

/* The extents of a dead tenant need no revocation, but memory has to be made. */
static void dead_tenant(void)
{
	domain('x', 2, 1);
	layout("xxTTTTTT");
	sh_die(owner['x']);
	sh_quiet(owner['x']);
}

START_TEST(test_memory_of_a_dead_tenant)
{
	dead_tenant();
	expect_possible('t', 2, 0);
	expect_possible('t', 2, 0);
	c->head->zones[0].create_after = sh.now;
	expect_possible('t', 0, 0);
	c->head->zones[0].create_after = 0;
	expect_steal('t', ".xTTTTTT");
	ck_assert_uint_eq(c->head->nr_revokes, 0);
}
END_TEST

/* An extent that is claimed for another domain is not to be had. */
START_TEST(test_claimed_extent_is_not_taken)
{
	domain('x', 2, 1);
	domain('a', 1, 1);
	layout("xxaXXXXX");
	wait_long();
	c->extents[0].want = CORE_NONE;
	c->extents[2].want = CORE_NONE;
	expect_possible('t', 1, 1);
	c->extents[2].want = 0;
	expect_possible('t', 2, 1);
	c->extents[0].want = 0;
}
END_TEST

/* Memory in no span: of another tenant it is asked back, of the own it is free. */
START_TEST(test_memory_in_no_span)
{
	domain('a', 1, 1);
	domain('x', 2, 1);
	layout("axXXXXXX");
	release(0);
	release(1);
	ck_assert_str_eq(map(), "..XXXXXX");
	expect_possible('t', 1, 0);
	wait_long();
	expect_possible('t', 2, 1);
	ck_assert(steal('t', true));
	ck_assert_str_eq(map(), ".!XXXXXX");
}
END_TEST

/* ---- runs of several extents ---- */

/* A run costs as much as the dearest of its spans. */
START_TEST(test_cost_of_a_run_is_its_dearest)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('g', 1, 2);
	layout("aababBBB");
	set_blocks('a', CORE_LIMIT_LOW, 12);
	thin(5 - 1, 4);
	ck_assert_str_eq(map(), "aaba_BBB");
	expect_possible('g', 2, 0);
	/* Both have cache of "a" that memory.low protects; "b" has more. */
	expect_steal('g', "aa.._BBB");
	expect_steal('g', "...._BBB");
	expect_no_steal('g');
	ck_assert_uint_eq(sh_domain(owner['a']).nr_low_events, 3);
}
END_TEST

START_TEST(test_cheaper_run_first)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('g', 1, 2);
	layout("abbbbbBB");
	set_blocks('a', CORE_LIMIT_LOW, 12);
	thin(5, 4);
	thin(4, 4);
	thin(2, 4);
	ck_assert_str_eq(map(), "ab_b__BB");
	expect_possible('g', 3, 0);
	expect_steal('g', "ab_b..BB");
	expect_steal('g', "ab....BB");
	expect_steal('g', "......BB");
	ck_assert_uint_eq(sh_domain(owner['a']).nr_low_events, 1);
}
END_TEST

/* One extent to be given back makes the run one to be given back. */
START_TEST(test_run_of_two_tenants)
{
	domain('a', 1, 1);
	domain('x', 2, 1);
	domain('g', 1, 2);
	layout("axaaxaXX");
	thin(1, 4);
	wait_long();
	ck_assert_str_eq(map(), "a_aaxaXX");
	expect_possible('g', 3, 2);
	ck_assert(steal('g', true));
	ck_assert_str_eq(map(), "+!aaxaXX");
	expect_steal('g', "+!..xaXX");
	expect_steal('g', "+!..!+XX");
	ck_assert_uint_eq(c->head->nr_revokes, 2);
}
END_TEST

/* The spans of a run that cannot be had are not counted as lost. */
START_TEST(test_run_not_had_counts_for_nothing)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('g', 1, 2);
	layout("aBbaaBaa");
	/* "a" has 20 blocks of cache, of which twelve may go. */
	set_blocks('a', CORE_LIMIT_MIN, 8);
	expect_possible('g', 2, 0);
	expect_steal('g', "aB..aBaa");
	expect_steal('g', "aB..aB..");
}
END_TEST

/* The same for free blocks, of which a sequence was promised some. */
START_TEST(test_run_not_had_leaves_free_blocks)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('g', 1, 2);
	layout("aBBaaaBB");
	thin(0, 4);
	thin(3, 4);
	thin(4, 4);
	thin(5, 4);
	ck_assert_str_eq(map(), "_BB___BB");
	sh_ready(owner['a'], 8 * SH_BT, 0, 77000);
	expect_possible('g', 1, 0);
	expect_steal('g', "_BB_..BB");
	expect_no_steal('g');
}
END_TEST

/* The second extent of a span may be the one that cannot go. */
START_TEST(test_all_extents_of_a_span_count)
{
	domain('g', 2, 2);
	layout("gGGG");
	wait_long();
	expect_possible('t', 2, 2);
	c->extents[1].want = CORE_NONE;
	expect_possible('t', 0, 0);
	c->extents[1].want = 0;
}
END_TEST

/* A span that is being emptied is not taken, nor one with a block in use. */
START_TEST(test_isolated_span_is_not_taken)
{
	domain('a', 1, 1);
	layout("aaAAAAAA");
	ck_assert_int_eq(span_isolate(c, 1), 0);
	expect_possible('t', 1, 0);
	expect_steal('t', ".aAAAAAA");
	expect_no_steal('t');
	SH_CORE(span_putback(c, 1));
	expect_steal('t', "..AAAAAA");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_steal");
	TCase *tc = tcase_create("steal");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_cache_and_unused_extents_count);
	tcase_add_test(tc, test_full_pool_is_not_scanned);
	tcase_add_test(tc, test_less_than_a_span_is_not_scanned);
	tcase_add_test(tc, test_free_blocks_of_an_owner_are_scanned);
	tcase_add_test(tc, test_run_of_two_wants_two_extents);
	tcase_add_test(tc, test_span_of_two_serves_two_runs);
	tcase_add_test(tc, test_scans_of_two_tenants);
	tcase_add_test(tc, test_promised_blocks_of_an_owner_stay);
	tcase_add_test(tc, test_free_blocks_are_counted_once);
	tcase_add_test(tc, test_min_keeps_cache);
	tcase_add_test(tc, test_low_goes_last);
	tcase_add_test(tc, test_scans_before_memory_that_low_protects);
	tcase_add_test(tc, test_empty_span_costs_nothing);
	tcase_add_test(tc, test_floor_stays_if_the_taker_has_others);
	tcase_add_test(tc, test_order_of_costs);
	tcase_add_test(tc, test_other_tenant_gives_back);
	tcase_add_test(tc, test_extents_stay_for_a_while);
	tcase_add_test(tc, test_only_what_is_given_back);
	tcase_add_test(tc, test_memory_of_a_dead_tenant);
	tcase_add_test(tc, test_claimed_extent_is_not_taken);
	tcase_add_test(tc, test_memory_in_no_span);
	tcase_add_test(tc, test_cost_of_a_run_is_its_dearest);
	tcase_add_test(tc, test_cheaper_run_first);
	tcase_add_test(tc, test_run_of_two_tenants);
	tcase_add_test(tc, test_run_not_had_counts_for_nothing);
	tcase_add_test(tc, test_run_not_had_leaves_free_blocks);
	tcase_add_test(tc, test_all_extents_of_a_span_count);
	tcase_add_test(tc, test_isolated_span_is_not_taken);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
