// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_slot_choice.c - the exact slots that slots.c takes
 *
 * The tests call slots.c itself, for the host part of a domain.  A span is one
 * extent of 32 slots.  Slots are numbered from the beginning of the host pool.  After
 * each call the free list of each span is walked in both directions.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define SLOT	8192u
#define PER	32u			/* slots of a span */
#define SPANS	4u
#define NONE	CORE_NONE

static struct core *c;
static struct kv_part *p;
static u32 part, base, per;		/* of the first host slot; blocks of an extent */

static void start(u32 spans)
{
	sh_config(4);
	sh.cfg.extent_size = PER * SLOT;
	sh.cfg.pool_bytes = 4 * sh.cfg.extent_size;
	sh.cfg.host_bytes = spans * sh.cfg.extent_size;
	sh_start();
	c = sh.core;
	(void)sh_attach(1, "a");
	part = part_index(c, 0, CORE_POOL_HOST);
	p = part_at(c, part);
	per = core_sizes(c)->blocks_per_extent;
	base = core_pool(c, CORE_POOL_HOST)->first * per;
	ck_assert_uint_eq(p->span_blocks, PER);
}

static void setup(void)
{
	start(SPANS);
}

static void teardown(void)
{
	sh_stop();
}

static u32 blk_of(u32 slot)
{
	return base + slot / PER * per + slot % PER;
}

static void walk_span(u32 first)
{
	const struct kv_span *sp = &c->spans[first];
	u32 i, prev = NONE, nr = 0;

	for (i = sp->free_head; i != NONE; i = c->blocks[i].next) {
		ck_assert_uint_eq(c->blocks[i].state, BLK_FREE);
		ck_assert_uint_eq(c->blocks[i].prev, prev);
		prev = i;
		ck_assert_uint_le(++nr, PER);
	}
	ck_assert_uint_eq(nr, sp->nr_free);
}

static u32 walked(u32 blk)
{
	u32 i;

	for (i = 0; i < core_pool(c, CORE_POOL_HOST)->nr_extents; i++)
		if (c->spans[base / per + i].nr_extents)
			walk_span(base / per + i);
	if (blk == NONE)
		return NONE;
	ck_assert_uint_eq(c->blocks[blk].state, BLK_LIMBO);
	ck_assert_uint_eq(c->blocks[blk].next, NONE);
	ck_assert_uint_eq(c->blocks[blk].prev, NONE);
	return (blk - base) / per * PER + (blk - base) % per;
}

static u32 out(u32 nr)
{
	return walked(slot_alloc_out(c, part, nr));
}

static u32 beside(u32 peer, bool up)
{
	return walked(slot_alloc_beside(c, part, peer, up));
}

static void put(u32 from, u32 nr)
{
	u32 i;

	for (i = from; i < from + nr; i++) {
		block_set_state(c, blk_of(i), BLK_FREE);
		(void)walked(NONE);
	}
}

/* Take all slots of the first @spans spans, and forget the last ones. */
static void fill(u32 spans)
{
	u32 i;

	for (i = 0; i < spans * PER; i++)
		ck_assert_uint_ne(out(1), NONE);
	ck_assert_uint_eq(p->nr_spans, spans);
	ck_assert_uint_eq(part_free(p), 0);
	p->slot_out = NONE;
	p->slot_nr = 0;
}

/* ---- copies out ---- */

/* A sequence of known length ends where its run began. */
START_TEST(test_out_goes_down)
{
	u32 i;

	for (i = 4; i; i--)
		ck_assert_uint_eq(out(i), i - 1);
	/* Another sequence begins behind them, whatever its length. */
	ck_assert_uint_eq(out(3), 6);
	ck_assert_uint_eq(out(2), 5);
	/* It ended early: the next one has a run of its own, of 25 slots. */
	ck_assert_uint_eq(out(1), 4);
	ck_assert_uint_eq(out(2), 8);
	ck_assert_uint_eq(out(3), 11);
	ck_assert_uint_eq(out(2), 10);
	ck_assert_uint_eq(p->slot_out, blk_of(10));
	ck_assert_uint_eq(p->slot_nr, 2);
}
END_TEST

/* A run is looked for of sixteen slots at most. */
START_TEST(test_out_of_a_long_sequence)
{
	ck_assert_uint_eq(out(40), 15);
	ck_assert_uint_eq(out(39), 14);
	ck_assert_uint_eq(out(17), 31);
	ck_assert_uint_eq(out(16), 30);
	ck_assert_uint_eq(p->nr_spans, 1);
	/* Neither 14 nor 14 slots are enough. */
	ck_assert_uint_eq(out(15), 29);
	ck_assert_uint_eq(out(16), 47);
	ck_assert_uint_eq(p->nr_spans, 2);
}
END_TEST

/* Without a known length the next slot is before the last one, else of four. */
START_TEST(test_out_of_unknown_length)
{
	u32 i;

	for (i = 4; i--;)
		ck_assert_uint_eq(out(0), i);
	ck_assert_uint_eq(out(0), 7);
	ck_assert_uint_eq(out(5), 12);
	ck_assert_uint_eq(out(0), 11);
	ck_assert_uint_eq(p->slot_nr, 0);
	put(12, 1);
	ck_assert_uint_eq(out(0), 10);
}
END_TEST

/* ---- choice of a run ---- */

/* The shortest run that is enough, of the fullest span that has one. */
START_TEST(test_shortest_run)
{
	fill(2);
	put(1, 2);
	put(5, 3);
	put(10, 5);
	put(40, 3);
	put(50, 4);
	ck_assert_uint_eq(out(4), 53);
	put(53, 1);
	p->slot_out = NONE;
	ck_assert_uint_eq(out(3), 42);
	put(42, 1);
	p->slot_out = NONE;
	/* The span with seven free slots comes before the one with ten. */
	ck_assert_uint_eq(out(2), 41);
	put(41, 1);
	p->slot_out = NONE;
	ck_assert_uint_eq(out(5), 14);
	put(14, 1);
	p->slot_out = NONE;
	ck_assert_uint_eq(p->nr_spans, 2);
	/* No run of six: another span. */
	ck_assert_uint_eq(out(6), 69);
	ck_assert_uint_eq(p->nr_spans, 3);
}
END_TEST

/* Equal runs: the first one; a run at the end of a span counts whole. */
START_TEST(test_equal_runs)
{
	fill(1);
	put(3, 2);
	put(20, 2);
	put(30, 2);
	ck_assert_uint_eq(out(2), 4);
	ck_assert_uint_eq(out(1), 3);
	ck_assert_uint_eq(out(2), 21);
	ck_assert_uint_eq(out(1), 20);
	ck_assert_uint_eq(out(2), 31);
	ck_assert_uint_eq(out(1), 30);
	ck_assert_uint_eq(p->nr_spans, 1);
}
END_TEST

/* No span is left: the longest run, of the first span that has it. */
START_TEST(test_longest_run)
{
	fill(SPANS);
	put(1, 2);
	put(5, 3);
	put(40, 3);
	put(60, 4);
	put(70, 1);
	ck_assert_uint_eq(out(9), 63);
	ck_assert_uint_eq(out(8), 62);
	ck_assert_uint_eq(out(7), 61);
	ck_assert_uint_eq(out(6), 60);
	ck_assert_uint_eq(out(5), 42);
	put(42, 1);
	p->slot_out = NONE;
	ck_assert_uint_eq(out(3), 42);
}
END_TEST

/*
 * A search looks at 1024 blocks, of spans with a free slot: 32 spans.  Those that
 * were given back last come first.
 */
START_TEST(test_search_is_bounded)
{
	u32 i;

	sh_stop();
	start(33);
	fill(33);
	put(0, 2);
	/* Full spans do not count. */
	ck_assert_uint_eq(out(2), 1);
	put(1, 1);
	p->slot_out = NONE;
	for (i = 1; i < 32; i++)
		put(PER * i, 1);
	ck_assert_uint_eq(out(2), 1);
	put(1, 1);
	p->slot_out = NONE;
	put(PER * 32, 1);
	ck_assert_uint_eq(out(2), PER * 32);
}
END_TEST

/* All slots are in use: nothing is taken, and nothing is remembered. */
START_TEST(test_no_slot)
{
	fill(SPANS);
	p->slot_out = blk_of(9);
	p->slot_nr = 7;
	p->slot_last = blk_of(3);
	p->slot_peer = 100;
	p->slot_row = 5;
	ck_assert_uint_eq(out(6), NONE);
	ck_assert_uint_eq(out(0), NONE);
	ck_assert_uint_eq(beside(101, true), NONE);
	ck_assert_uint_eq(beside(300, false), NONE);
	ck_assert_uint_eq(p->slot_out, blk_of(9));
	ck_assert_uint_eq(p->slot_nr, 7);
	ck_assert_uint_eq(p->slot_last, blk_of(3));
	ck_assert_uint_eq(p->slot_peer, 100);
	ck_assert_uint_eq(p->slot_row, 5);
}
END_TEST

/* ---- beside a slot of another tier ---- */

START_TEST(test_beside_goes_with_its_peer)
{
	ck_assert_uint_eq(beside(100, true), 0);
	ck_assert_uint_eq(p->slot_row, 1);
	ck_assert_uint_eq(beside(101, true), 1);
	ck_assert_uint_eq(beside(102, true), 2);
	ck_assert_uint_eq(p->slot_row, 3);
	ck_assert_uint_eq(p->slot_peer, 102);
	ck_assert_uint_eq(p->slot_last, blk_of(2));
	/* Back by one: that slot is in use, and another run begins. */
	ck_assert_uint_eq(beside(101, true), 3);
	ck_assert_uint_eq(p->slot_row, 1);
	/* Another peer: a run that goes down has room for sixteen. */
	ck_assert_uint_eq(beside(500, false), 19);
	ck_assert_uint_eq(p->slot_row, 1);
	ck_assert_uint_eq(beside(499, false), 18);
	ck_assert_uint_eq(beside(498, false), 17);
	ck_assert_uint_eq(p->slot_row, 3);
	/* The same peer again is no neighbour, nor one two further. */
	ck_assert_uint_eq(beside(498, true), 4);
	ck_assert_uint_eq(p->slot_row, 1);
	ck_assert_uint_eq(beside(500, true), 5);
	ck_assert_uint_eq(p->slot_row, 1);
}
END_TEST

/* A slot of the next span is no neighbour, even if it is free. */
START_TEST(test_beside_ends_with_the_span)
{
	fill(2);
	put(28, 4);
	put(32, 1);
	p->slot_last = blk_of(27);
	p->slot_peer = 100;
	p->slot_row = 7;
	ck_assert_uint_eq(beside(101, true), 28);
	ck_assert_uint_eq(p->slot_row, 8);
	ck_assert_uint_eq(beside(102, true), 29);
	ck_assert_uint_eq(beside(103, true), 30);
	ck_assert_uint_eq(beside(104, true), 31);
	ck_assert_uint_eq(p->slot_row, 11);
	put(5, 1);
	put(9, 2);
	/* The run of two is the longest, and slot 32 is not next to 31. */
	ck_assert_uint_eq(beside(105, true), 9);
	ck_assert_uint_eq(p->slot_row, 1);
	p->slot_last = blk_of(33);
	p->slot_peer = 200;
	ck_assert_uint_eq(beside(199, false), 32);
	put(31, 1);
	put(20, 2);
	ck_assert_uint_eq(beside(198, false), 21);
	ck_assert_uint_eq(p->slot_row, 1);
}
END_TEST

/* No peer is remembered: the slot before the first one is no neighbour. */
START_TEST(test_beside_the_first)
{
	ck_assert_uint_eq(p->slot_peer, NONE);
	ck_assert_uint_eq(beside(0, true), 0);
	ck_assert_uint_eq(beside(1, true), 1);
	ck_assert_uint_eq(p->slot_row, 2);
	p->slot_peer = NONE;
	p->slot_last = blk_of(4);
	ck_assert_uint_eq(beside(0, true), 2);
	p->slot_peer = NONE;
	p->slot_last = blk_of(8);
	ck_assert_uint_eq(beside(NONE - 1, true), 3);
}
END_TEST

/* Slots are taken from the middle of the free list, from its head and its end. */
START_TEST(test_any_place_of_the_list)
{
	static const u32 order[] = { 7, 0, 31, 16, 1, 30, 15, 17, 8 };
	u32 i, slot;

	fill(1);
	put(0, PER);
	for (i = 0; i < ARRAY_SIZE(order); i++) {
		slot = order[i];
		p->slot_last = blk_of(slot ? slot - 1 : 1);
		p->slot_peer = 100;
		ck_assert_uint_eq(beside(slot ? 101 : 99, true), slot);
	}
	ck_assert_uint_eq(part_free(p), PER - i);
	for (i = 0; i < ARRAY_SIZE(order); i++)
		put(order[i], 1);
	ck_assert_uint_eq(part_free(p), PER);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_slot_choice");
	TCase *tc = tcase_create("slots");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_out_goes_down);
	tcase_add_test(tc, test_out_of_a_long_sequence);
	tcase_add_test(tc, test_out_of_unknown_length);
	tcase_add_test(tc, test_shortest_run);
	tcase_add_test(tc, test_equal_runs);
	tcase_add_test(tc, test_longest_run);
	tcase_add_test(tc, test_search_is_bounded);
	tcase_add_test(tc, test_no_slot);
	tcase_add_test(tc, test_beside_goes_with_its_peer);
	tcase_add_test(tc, test_beside_ends_with_the_span);
	tcase_add_test(tc, test_beside_the_first);
	tcase_add_test(tc, test_any_place_of_the_list);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
