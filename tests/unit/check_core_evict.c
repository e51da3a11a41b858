// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_evict.c - how much cache a domain evicts, and for which reason
 *
 * The pool of span_scene.h.  Each span of cache has the four blocks of one prompt.
 */
#include "tests/unit/span_scene.h"

#define CACHED(letter)	(d_of(letter)->dev.nr[BLK_CACHED])
#define NR_SPANS(letter) (d_of(letter)->dev.nr_spans)

static void scene(const char *spans)
{
	domain('a', 1, 1);
	layout(spans);
	c->head->events[CORE_EV_reclaim_direct] = 0;
}

static void again(const char *spans)
{
	restart(EXTENTS, 0);
	scene(spans);
}

static enum verdict evict(char letter, u32 nr)
{
	u64 before = sh_count(CORE_EV_reclaim_direct);
	enum verdict verdict;

	c->taker = CORE_NONE;
	c->work = 0;
	SH_CORE(verdict = room_evict(c, dom_of(letter), nr));
	ck_assert_uint_eq(c->taker, dom_of(letter));
	ck_assert_uint_eq(d_of(letter)->dev.keep_spans, 0);
	ck_assert_uint_eq(c->work,
			  32 * (sh_count(CORE_EV_reclaim_direct) - before));
	sh_check();
	return verdict;
}

START_TEST(test_as_many_as_are_wanted)
{
	scene("aaaaTTTT");
	ck_assert_int_eq(evict('a', 3), ROOM_NOW);
	ck_assert_uint_eq(CACHED('a'), 13);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 3);
	again("aaaaTTTT");
	ck_assert_int_eq(evict('a', 16), ROOM_NOW);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 16);
	/* The domain is about to use the spans: they stay. */
	ck_assert_uint_eq(NR_SPANS('a'), 4);
	again("aaaaTTTT");
	ck_assert_int_eq(evict('a', 17), ROOM_NONE);
	ck_assert_uint_eq(CACHED('a'), 0);
}
END_TEST

START_TEST(test_free_blocks_come_first)
{
	scene("aaaaTTTT");
	thin(0, 4);
	ck_assert_int_eq(evict('a', 4), ROOM_NOW);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 0);
	sh_ready(owner['a'], 2 * SH_BT, 0, 90000);
	ck_assert_int_eq(evict('a', 3), ROOM_NOW);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 1);
}
END_TEST

/* At memory.max its own cache makes room, and nothing else does. */
START_TEST(test_at_memory_max)
{
	scene("aAAATTTT");
	d_of('a')->dev.max_blocks = 14;
	ck_assert_int_eq(evict('a', 2), ROOM_NOW);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 4);
	again("aAAATTTT");
	d_of('a')->dev.max_blocks = 14;
	ck_assert_int_eq(evict('a', 1), ROOM_NOW);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 3);
	again("aAAATTTT");
	d_of('a')->dev.max_blocks = 14;
	ck_assert_int_eq(evict('a', 3), ROOM_NONE);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 4);
}
END_TEST

/* Blocks that are promised are used, as far as the limits go. */
START_TEST(test_promised_blocks_count_as_used)
{
	scene("aaAATTTT");
	thin(0, 2);
	sh_ready(owner['a'], SH_BT, 0, 90000);
	d_of('a')->dev.max_blocks = 15;
	/* 14 are used, one is promised. */
	ck_assert_int_eq(evict('a', 1), ROOM_NOW);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 1);
}
END_TEST

/* Above memory.high cache goes, but the room is there all the same. */
START_TEST(test_at_memory_high)
{
	scene("aAAATTTT");
	d_of('a')->high_blocks = 14;
	ck_assert_int_eq(evict('a', 1), ROOM_NOW);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 3);
	ck_assert_int_eq(evict('a', 3), ROOM_NOW);
	ck_assert_uint_eq(CACHED('a'), 0);
	again("aAAATTTT");
	d_of('a')->high_blocks = 17;
	ck_assert_int_eq(evict('a', 1), ROOM_NOW);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 1);
}
END_TEST

/* The trace has the blocks that a limit cost, not those that were needed. */
START_TEST(test_trace_of_a_limit)
{
	struct core_trace *ring = calloc(1, core_trace_bytes(16));
	struct core_trace_rec rec[4];
	u64 written, at = 0;

	scene("aaAATTTT");
	core_trace_attach(c, sh.now, ring, 16);
	ck_assert_int_eq(core_trace_set(c, CORE_TRACE_limit_reclaim, 1), 0);
	ck_assert_int_eq(evict('a', 1), ROOM_NOW);
	ck_assert_uint_eq(core_trace_read(c, &at, &written, rec, 4), 0);
	d_of('a')->dev.max_blocks = 13;
	ck_assert_int_eq(evict('a', 1), ROOM_NOW);
	ck_assert_uint_eq(core_trace_read(c, &at, &written, rec, 4), 1);
	ck_assert_uint_eq(rec[0].arg[0], dom_of('a'));
	ck_assert_uint_eq(rec[0].arg[1], 3);
	free(ring);
}
END_TEST

/* Cache in an isolated span is no room; it goes for a limit only. */
START_TEST(test_isolated_cache)
{
	scene("aaAATTTT");
	ck_assert_int_eq(span_isolate(c, 0), 0);
	ck_assert_int_eq(evict('a', 5), ROOM_NONE);
	ck_assert_str_eq(map(), "a_AATTTT");
	again("aaAATTTT");
	ck_assert_int_eq(span_isolate(c, 0), 0);
	ck_assert_int_eq(span_isolate(c, 1), 0);
	d_of('a')->dev.max_blocks = 15;
	ck_assert_int_eq(evict('a', 1), ROOM_NONE);
	ck_assert_uint_eq(CACHED('a'), 6);
}
END_TEST

/* The cache outside the isolated span is of another kind, and is found all the same. */
START_TEST(test_cache_of_another_kind)
{
	u32 leaf = 2 * SH_PER - 1;

	scene("aaAATTTT");
	SH_CORE(lru_del(c, leaf));
	ck_assert(lru_keep(c, c->blocks[leaf].node, c->now + 1000));
	SH_CORE(lru_add(c, leaf));
	sh_check();
	ck_assert_int_eq(span_isolate(c, 0), 0);
	ck_assert_uint_eq(block_span(c, lru_next(c, dom_of('a'))), 0);
	ck_assert_int_eq(evict('a', 4), ROOM_NOW);
	ck_assert_str_eq(map(), "a_AATTTT");
}
END_TEST

/* ---- for others ---- */

static void spare(char letter, u32 nr)
{
	SH_CORE(room_evict_spare(c, dom_of(letter), nr));
	ck_assert_uint_eq(d_of(letter)->dev.keep_spans, 0);
	sh_check();
}

static void expect_spare(u32 nr, u32 evicted)
{
	spare('a', nr);
	ck_assert_uint_eq(CACHED('a'), 16 - evicted);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), evicted);
	ck_assert_uint_eq(NR_SPANS('a'), 4);
}

START_TEST(test_cache_for_others)
{
	scene("aaaaTTTT");
	expect_spare(2, 2);
	expect_spare(2, 2);
	expect_spare(3, 3);
	expect_spare(9, 9);
	expect_spare(20, 16);
}
END_TEST

START_TEST(test_cache_for_others_above_the_floor)
{
	scene("aaaaTTTT");
	sh_unchecked = true;
	d_of('a')->floor = 14;
	expect_spare(5, 2);
	d_of('a')->floor = 13;
	expect_spare(5, 3);
}
END_TEST

START_TEST(test_cache_for_others_above_min)
{
	scene("aaaaTTTT");
	set_blocks('a', CORE_LIMIT_MIN, 13);
	expect_spare(5, 3);
	set_blocks('a', CORE_LIMIT_MIN, 12);
	expect_spare(5, 4);
}
END_TEST

START_TEST(test_isolated_cache_is_not_for_others)
{
	scene("aaaaTTTT");
	ck_assert_int_eq(span_isolate(c, 0), 0);
	ck_assert_int_eq(span_isolate(c, 2), 0);
	expect_spare(20, 8);
	ck_assert_str_eq(map(), "a_a_TTTT");
}
END_TEST

/* ---- a certain span ---- */

static u32 evict_span(u32 first)
{
	u32 nr;

	SH_CORE(nr = span_evict_cached(c, first));
	ck_assert_uint_eq(d_of('a')->dev.keep_spans, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), nr);
	sh_check();
	return nr;
}

/* The first block takes those along that follow it. */
START_TEST(test_cache_of_a_span)
{
	scene("aaAATTTT");
	thin(1, 4);
	ck_assert_uint_eq(evict_span(0), 1);
	ck_assert_str_eq(map(), "__AATTTT");
	again("aAAATTTT");
	ck_assert_uint_eq(evict_span(1), 0);
	ck_assert_str_eq(map(), "aAAATTTT");
}
END_TEST

/* A block stays whose eviction would take protected blocks along. */
START_TEST(test_cache_of_a_span_above_min)
{
	scene("aAAATTTT");
	set_blocks('a', CORE_LIMIT_MIN, 13);
	ck_assert_uint_eq(evict_span(0), 1);
	ck_assert_uint_eq(c->blocks[0].state, BLK_CACHED);
	ck_assert_uint_eq(CACHED('a'), 1);
	again("aAAATTTT");
	set_blocks('a', CORE_LIMIT_MIN, 16);
	ck_assert_uint_eq(evict_span(0), 0);
	ck_assert_uint_eq(CACHED('a'), 4);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_evict");
	TCase *tc = tcase_create("evict");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_as_many_as_are_wanted);
	tcase_add_test(tc, test_free_blocks_come_first);
	tcase_add_test(tc, test_at_memory_max);
	tcase_add_test(tc, test_promised_blocks_count_as_used);
	tcase_add_test(tc, test_at_memory_high);
	tcase_add_test(tc, test_trace_of_a_limit);
	tcase_add_test(tc, test_isolated_cache);
	tcase_add_test(tc, test_cache_of_another_kind);
	tcase_add_test(tc, test_cache_for_others);
	tcase_add_test(tc, test_cache_for_others_above_the_floor);
	tcase_add_test(tc, test_cache_for_others_above_min);
	tcase_add_test(tc, test_isolated_cache_is_not_for_others);
	tcase_add_test(tc, test_cache_of_a_span);
	tcase_add_test(tc, test_cache_of_a_span_above_min);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
