// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_evacuate.c - which spans are emptied by moving their blocks, and when
 *
 * The pool of span_scene.h.  Copies are counted, and stay in flight: the tests look
 * at the decisions.  check_core_migrate.c has the copies.
 */
#include "tests/unit/span_scene.h"

static u32 nr_copies;
static u64 piece[EXTENTS][SH_PER];

static void on_copy(const struct core_copy *cp)
{
	nr_copies++;
}

static void scene(const char *spans)
{
	sh_on_copy = on_copy;
	nr_copies = 0;
	domain('a', 1, 1);
	domain('b', 1, 1);
	layout(spans);
}

static void again(const char *spans)
{
	restart(EXTENTS, 0);
	scene(spans);
}

/* Four sequences of one block each use the span; @sealed blocks are full. */
static void use(char letter, u32 e, u32 sealed)
{
	u32 cl = owner[(int)letter], i, full;

	thin(e, 4);
	for (i = 0; i < SH_PER; i++) {
		full = i < sealed ? SH_BT : 1;
		piece[e][i] = sh_ready(cl, 1, SH_BT - 1, 50000 + 100 * (e * 4 + i));
		sh_compute(cl, piece[e][i], 0, full, 50000 + 100 * (e * 4 + i));
		ck_assert_uint_eq(block_span(c, table_get(c, &seq_find(c, cl,
					piece[e][i])->tab, 0)), e);
	}
}

/* End the sequences of the span but for the first @nr; open blocks become free. */
static void leave(char letter, u32 e, u32 nr)
{
	for (; nr < SH_PER; nr++)
		ck_assert_int_eq(sh_close(owner[(int)letter], piece[e][nr]), 0);
}

/* Of the four spans of "a" from @at on each has @sealed[] full blocks or one open. */
static void sparse_at(u32 at, const char *spans, const u32 *sealed)
{
	u32 e;

	scene(spans);
	for (e = 0; e < 4; e++)
		use('a', at + e, sealed[e]);
	for (e = 0; e < 4; e++)
		leave('a', at + e, max(sealed[e], 1u));
}

static void sparse(const char *spans, const u32 *sealed)
{
	sparse_at(0, spans, sealed);
}

static bool span_goes(u32 first)
{
	bool ok;

	c->now = sh.now;
	SH_CORE(ok = evacuate_span(c, first, true));
	return ok;
}

static void tick_at(u64 now)
{
	c->now = now;
	SH_CORE(evacuate_tick(c));
}

static enum verdict ask(char letter, u32 nr)
{
	enum verdict verdict;

	c->now = sh.now;
	SH_CORE(verdict = evacuate_for(c, dom_of(letter), nr));
	sh_check();
	return verdict;
}

/* Bit set of the spans that are being emptied. */
static u32 on(void)
{
	u32 e, set = 0;

	for (e = 0; e < EXTENTS; e++)
		if (evacuate_is_on(c, e))
			set |= BIT(e);
	ck_assert_uint_eq(sh_count(CORE_EV_migrate_begin),
			  (u32)__builtin_popcount(set));
	return set;
}

/* ---- the blocks of a span ---- */

/* The last block of a prompt is evicted, the blocks before it move. */
static void expect_moves(u32 moves)
{
	ck_assert(span_goes(0));
	ck_assert_uint_eq(nr_copies, moves);
	ck_assert_uint_eq(d_of('a')->dev.nr[BLK_CACHED], moves);
	ck_assert_uint_eq(on(), BIT(0));
}

START_TEST(test_cache_that_ends_a_prompt_is_evicted)
{
	scene("aaAATTTT");
	thin(1, 4);
	expect_moves(3);
}
END_TEST

START_TEST(test_protected_cache_moves)
{
	scene("aaAATTTT");
	thin(1, 4);
	d_of('a')->floor = 3;
	expect_moves(3);
	again("aaAATTTT");
	thin(1, 4);
	d_of('a')->floor = 4;
	expect_moves(4);
	again("aaAATTTT");
	thin(1, 4);
	thin(0, 3);
	set_blocks('a', CORE_LIMIT_MIN, 8);
	ck_assert(span_goes(0));
	ck_assert_str_eq(map(), "._AATTTT");
	ck_assert_uint_eq(nr_copies, 0);
	again("aaAATTTT");
	thin(1, 4);
	thin(0, 3);
	set_blocks('a', CORE_LIMIT_MIN, 9);
	expect_moves(1);
}
END_TEST

/* A block that another copy reads stays for now. */
START_TEST(test_block_that_is_read_stays)
{
	scene("aaAATTTT");
	thin(1, 4);
	sh_unchecked = true;
	block_copy_get(c, 3);
	ck_assert(span_goes(0));
	ck_assert_uint_eq(nr_copies, 3);
	ck_assert_uint_eq(c->blocks[3].state, BLK_CACHED);
}
END_TEST

START_TEST(test_span_that_cannot_be_emptied)
{
	scene("aaAATTTT");
	thin(1, 4);
	sh_ready(owner['a'], SH_BT, 0, 90000);
	sh_ready(owner['a'], SH_BT, 0, 91000);
	/* Two of its blocks are promised. */
	ck_assert(!span_goes(1));
	ck_assert_uint_eq(on(), 0);
	ck_assert(span_goes(0));
	ck_assert(span_goes(0));
	ck_assert_uint_eq(sh_count(CORE_EV_span_isolate), 1);
}
END_TEST

START_TEST(test_empty_span_is_released)
{
	scene("aaAATTTT");
	thin(1, 4);
	ck_assert(span_goes(1));
	ck_assert_str_eq(map(), "a.AATTTT");
	ck_assert_uint_eq(on(), 0);
}
END_TEST

/* ---- time ---- */

START_TEST(test_patience)
{
	u64 since, patience;
	bool shared = _i;

	scene("aaAATTTT");
	patience = shared ? sh.cfg.starve_ns / 8 : sh.cfg.starve_ns;
	thin(1, 4);
	d_of('a')->floor = 4;
	ck_assert(span_goes(0));
	c->head->evacs[0].shared = shared;
	since = sh.now;
	tick_at(since + patience - 1);
	ck_assert(evacuate_is_on(c, 0));
	tick_at(since + patience);
	ck_assert(!evacuate_is_on(c, 0));
	ck_assert_uint_eq(sh_count(CORE_EV_span_putback), 1);
	ck_assert_uint_eq(c->head->zones[0].evac_after,
			  since + patience + sh.cfg.starve_ns / 8);
}
END_TEST

/* Its owner took the room: a span for others is put back, one for itself is not. */
START_TEST(test_stuck)
{
	scene("AAAATTTT");
	ck_assert(span_goes(3));
	ck_assert_uint_eq(nr_copies, 0);
	tick_at(sh.now);
	ck_assert(evacuate_is_on(c, 3));
	c->head->evacs[0].shared = 1;
	tick_at(sh.now);
	ck_assert(!evacuate_is_on(c, 3));
	ck_assert_uint_eq(sh_count(CORE_EV_span_putback), 1);
	ck_assert_uint_eq(c->head->zones[0].evac_after, 0);
}
END_TEST

/* Only blocks of sequences need the room. */
START_TEST(test_cache_is_not_stuck)
{
	scene("aAAATTTT");
	d_of('a')->floor = 4;
	ck_assert(span_goes(0));
	ck_assert_uint_eq(nr_copies, 0);
	c->head->evacs[0].shared = 1;
	tick_at(sh.now);
	ck_assert(evacuate_is_on(c, 0));
}
END_TEST

/* Stalled domains look again every eighth of starve_ns; promised ones at each tick. */
START_TEST(test_stalled_domains_look_again)
{
	u64 next;

	scene("AAAATTTT");
	next = sh.now + sh.cfg.starve_ns / 8;
	d_of('t')->stalled = 1;
	d_of('t')->retry = d_of('b')->retry = 0;
	tick_at(sh.now);
	ck_assert_uint_eq(d_of('t')->retry, 1);
	ck_assert_uint_eq(d_of('b')->retry, 0);
	ck_assert_uint_eq(c->head->evac_look, next);
	d_of('t')->retry = 0;
	tick_at(next - 2);
	ck_assert_uint_eq(d_of('t')->retry, 0);
	d_of('t')->promised = 1;
	tick_at(next - 1);
	ck_assert_uint_eq(d_of('t')->retry, 1);
	d_of('t')->promised = d_of('t')->retry = 0;
	tick_at(next);
	ck_assert_uint_eq(d_of('t')->retry, 1);
	d_of('t')->stalled = 0;
}
END_TEST

/* ---- for another domain ---- */

static const u32 open_ones[4];

START_TEST(test_first_of_equal_spans)
{
	sparse("aaaaTTTT", open_ones);
	ck_assert_int_eq(ask('t', 4), ROOM_MOVED);
	ck_assert_uint_eq(on(), BIT(0));
	ck_assert_uint_eq(nr_copies, 1);
	ck_assert(c->head->evacs[0].shared);
	/* One is enough for now. */
	ck_assert_int_eq(ask('t', 8), ROOM_MOVED);
	ck_assert_uint_eq(on(), BIT(0));
	ck_assert_uint_eq(evacuations_on(c, dom_of('t'), false), 1);
	ck_assert_uint_eq(evacuations_on(c, dom_of('b'), false), 1);
	ck_assert_uint_eq(evacuations_on(c, dom_of('a'), false), 0);
	/* It has a tail, which a promise does not wait for. */
	ck_assert_uint_eq(evacuations_on(c, dom_of('t'), true), 0);
	c->head->evacs[0].shared = 0;
	ck_assert_uint_eq(evacuations_on(c, dom_of('t'), false), 0);
}
END_TEST

START_TEST(test_as_many_as_are_lacking)
{
	sparse("aaaaTTTT", open_ones);
	ck_assert_int_eq(ask('t', 8), ROOM_MOVED);
	ck_assert_uint_eq(on(), BIT(0) | BIT(1));
}
END_TEST

/* If not all that is lacking can be had nothing is begun. */
START_TEST(test_nothing_is_begun_in_vain)
{
	sparse("aaaaTTTT", open_ones);
	ck_assert_int_eq(ask('t', 12), ROOM_NONE);
	ck_assert_uint_eq(on(), 0);
}
END_TEST

/* A tail counts as eight blocks more. */
START_TEST(test_cheapest_span)
{
	static const u32 one[4] = { 0, 0, 1, 0 }, two[4] = { 0, 2, 0, 0 };
	static const u32 last[4] = { 0, 0, 0, 2 };

	sparse("aaaaTTTT", _i == 0 ? one : _i == 1 ? two : last);
	ck_assert_int_eq(ask('t', 4), ROOM_MOVED);
	ck_assert_uint_eq(on(), _i == 0 ? BIT(2) : _i == 1 ? BIT(1) : BIT(3));
}
END_TEST

/* The last span of the pool is one of them. */
START_TEST(test_last_span)
{
	static const u32 last[4] = { 0, 0, 0, 1 };

	sparse_at(4, "TTTTaaaa", last);
	ck_assert_int_eq(ask('t', 4), ROOM_MOVED);
	ck_assert_uint_eq(on(), BIT(7));
}
END_TEST

/* A span of which more than half is in use stays. */
START_TEST(test_span_in_use_stays)
{
	static const u32 three[4] = { 0, 0, 3, 0 };

	sparse("aaaaTTTT", three);
	ck_assert_int_eq(ask('t', 4), ROOM_MOVED);
	ck_assert_uint_eq(on(), BIT(0));
}
END_TEST

/* For a promise it may go, but none with a tail. */
START_TEST(test_spans_for_a_promise)
{
	static const u32 three[4] = { 0, 0, 2, 0 };

	sparse("aaaaTTTT", three);
	sh_unchecked = true;
	protect('t', 20);
	ck_assert_int_eq(ask('t', 4), ROOM_MOVED);
	ck_assert_uint_eq(on(), BIT(2));
	ck_assert_uint_eq(evacuations_on(c, dom_of('t'), true), 1);
	/* One is on its way, and another cannot be had. */
	ck_assert_int_eq(ask('t', 4), ROOM_MOVED);
	ck_assert_int_eq(ask('t', 8), ROOM_NONE);
	c->head->zones[0].evac_after = sh.now + 1;
	ck_assert_int_eq(ask('t', 4), ROOM_MOVED);
	ck_assert_int_eq(ask('t', 8), ROOM_NONE);
	ck_assert_uint_eq(on(), BIT(2));
}
END_TEST

START_TEST(test_pause_after_a_span_put_back)
{
	sparse("aaaaTTTT", open_ones);
	c->head->zones[0].evac_after = sh.now + 1;
	ck_assert_int_eq(ask('t', 4), ROOM_NONE);
	ck_assert_uint_eq(on(), 0);
	c->head->zones[0].evac_after = sh.now;
	ck_assert_int_eq(ask('t', 4), ROOM_MOVED);
}
END_TEST

START_TEST(test_nothing_to_move_with)
{
	struct core_ops ops = sh_ops;

	sparse("aaaaTTTT", open_ones);
	ops.copy = NULL;
	c->ops = &ops;
	ck_assert_int_eq(ask('t', 4), ROOM_NONE);
	ck_assert(!span_goes(0));
	c->ops = &sh_ops;
	c->tenants[d_of('t')->tenant].nr_domains = 1;
	sh_unchecked = true;
	ck_assert_int_eq(ask('t', 4), ROOM_NONE);
	ck_assert_uint_eq(on(), 0);
}
END_TEST

/* Spans of another tenant and of the domain itself do not help. */
START_TEST(test_spans_of_the_tenant_only)
{
	sparse("aaaaTTTT", open_ones);
	ck_assert_int_eq(ask('a', 20), ROOM_NONE);
	sh_unchecked = true;
	d_of('a')->tenant ^= 1;
	ck_assert_int_eq(ask('t', 4), ROOM_NONE);
	d_of('a')->tenant ^= 1;
	ck_assert_uint_eq(on(), 0);
}
END_TEST

/* Memory that can be had otherwise is counted first. */
START_TEST(test_spans_beside_memory_that_is_free)
{
	sparse("aaaabTTT", open_ones);
	ck_assert_int_eq(ask('t', 4 * (1 + _i)), ROOM_MOVED);
	ck_assert_uint_eq(on(), BIT(0));
}
END_TEST

/* Blocks that the owner needs for its running sequences stay free. */
START_TEST(test_room_that_the_owner_needs)
{
	u32 i;

	sparse("aaaaTTTT", open_ones);
	/* 12 blocks are free; 4 of the span, and 4 for sequences that run. */
	for (i = 0; i < 4; i++)
		sh_ready(owner['a'], 1, 0, 90000 + 100 * i);
	/* Four are promised, and there are eight sequences. */
	ck_assert_int_eq(ask('t', 4), ROOM_NONE);
	ck_assert_uint_eq(on(), 0);
}
END_TEST

/* ---- runs of two extents ---- */

/* The blocks of both spans count, and the rest goes to where cache is. */
START_TEST(test_run_of_two)
{
	u32 e, cheap = _i ? 1 : 3;

	sh_on_copy = on_copy;
	domain('a', 1, 1);
	domain('g', 1, 2);
	layout("aaaaaATT");
	for (e = 0; e < 4; e++)
		use('a', e, e == cheap ? 2 : 0);
	for (e = 0; e < 4; e++)
		leave('a', e, e == cheap ? 2 : 1);
	ck_assert_int_eq(ask('g', 1), ROOM_MOVED);
	ck_assert_uint_eq(on(), _i ? BIT(0) | BIT(1) : BIT(2) | BIT(3));
}
END_TEST

/* A free extent and a span that can be emptied are a run. */
START_TEST(test_free_extent_beside_a_span)
{
	u32 e;

	sh_on_copy = on_copy;
	domain('a', 1, 1);
	domain('g', 1, 2);
	layout("aaaaaATT");
	for (e = 0; e < 4; e++)
		use('a', e, 0);
	for (e = 0; e < 4; e++)
		leave('a', e, e == 2 ? 0 : 1);
	release(2);
	ck_assert_int_eq(ask('g', 1), ROOM_MOVED);
	ck_assert_uint_eq(on(), BIT(3));
}
END_TEST

/* The spans of a run that cannot be had are not counted as gone. */
START_TEST(test_run_not_had_counts_for_nothing)
{
	sh_on_copy = on_copy;
	domain('a', 1, 1);
	domain('g', 1, 2);
	layout("aTaaaATT");
	use('a', 0, 0);
	use('a', 2, 0);
	use('a', 3, 0);
	leave('a', 0, 1);
	leave('a', 2, 1);
	leave('a', 3, 1);
	ck_assert_int_eq(ask('g', 1), ROOM_MOVED);
	ck_assert_uint_eq(on(), BIT(2) | BIT(3));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_evacuate");
	TCase *tc = tcase_create("evacuate");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_cache_that_ends_a_prompt_is_evicted);
	tcase_add_test(tc, test_protected_cache_moves);
	tcase_add_test(tc, test_block_that_is_read_stays);
	tcase_add_test(tc, test_span_that_cannot_be_emptied);
	tcase_add_test(tc, test_empty_span_is_released);
	tcase_add_loop_test(tc, test_patience, 0, 2);
	tcase_add_test(tc, test_stuck);
	tcase_add_test(tc, test_cache_is_not_stuck);
	tcase_add_test(tc, test_stalled_domains_look_again);
	tcase_add_test(tc, test_first_of_equal_spans);
	tcase_add_test(tc, test_as_many_as_are_lacking);
	tcase_add_test(tc, test_nothing_is_begun_in_vain);
	tcase_add_loop_test(tc, test_cheapest_span, 0, 3);
	tcase_add_test(tc, test_last_span);
	tcase_add_test(tc, test_span_in_use_stays);
	tcase_add_test(tc, test_spans_for_a_promise);
	tcase_add_test(tc, test_pause_after_a_span_put_back);
	tcase_add_test(tc, test_nothing_to_move_with);
	tcase_add_test(tc, test_spans_of_the_tenant_only);
	tcase_add_loop_test(tc, test_spans_beside_memory_that_is_free, 0, 2);
	tcase_add_test(tc, test_room_that_the_owner_needs);
	tcase_add_loop_test(tc, test_run_of_two, 0, 2);
	tcase_add_test(tc, test_free_extent_beside_a_span);
	tcase_add_test(tc, test_run_not_had_counts_for_nothing);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
