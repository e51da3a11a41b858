// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_demote.c - cache is copied down before the device loses it
 */
#include "tests/unit/demote_scene.h"

/* ---- the device ---- */

/* The request waits for copies, gets the memory, and the evicted prompt is found. */
START_TEST(test_waits_for_copies)
{
	u64 seq;

	c->head->clean_after = ~0ull;
	plays_all(0, 3);
	c->head->clean_after = 0;
	seq = asks(3);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_gt(nr_copies, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_demote_wait), 1);
	sh.now += 5000;
	copies_done();
	ck_assert_uint_eq(ends(seq, 3), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_demote_wait_ns), 5000);
	ck_assert_uint_eq(plays(0), NR * SH_BT);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_evict_no_copy), 0);
}
END_TEST

/* A waiting sequence lets the copies end although its client is gone. */
START_TEST(test_waiter_goes)
{
	u64 seq;

	c->head->clean_after = ~0ull;
	plays_all(0, 3);
	c->head->clean_after = 0;
	seq = asks(3);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	sh_tick(1);
	copies_done();
	sh_tick(1);
	ck_assert_uint_eq(c->domains[0].demote_since, 0);
	ck_assert_uint_eq(sh_pool().limbo, 0);
	ck_assert_uint_eq(plays(0), NR * SH_BT);
}
END_TEST

/* Every prompt is found while the tiers hold all of them, in any order. */
START_TEST(test_all_is_found)
{
	u32 i;

	plays_all(0, 10);
	for (i = 0; i < 10; i++)
		ck_assert_uint_eq(plays(_i ? 9 - i : i), NR * SH_BT);
	ck_assert_uint_eq(sh_count(CORE_EV_host_drop), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_evict_no_copy), 0);
}
END_TEST

static void set_rate(u32 dir, u64 ns_kb)
{
	core_pool(c, CORE_POOL_AREA)->rate[dir] = (struct kv_rate){
		.ns = 64 * ns_kb, .bytes = 64 * 1024, .nr = 8 };
}

static void set_prefill(u64 ns_token)
{
	c->domains[0].prefill_ns_token = ns_token;
	demote_judge(c, 0);
}

/* A block of 1 KiB and 16 tokens: reads of 1009 ns, writes of 1007 ns. */
START_TEST(test_area_pays)
{
	u32 slot;

	sh_stop();
	start(8, 8);
	slot = slot_alloc_beside(c, part_index(c, 0, CORE_POOL_AREA), 0, false);
	ck_assert_uint_ne(slot, CORE_NONE);
	set_rate(0, 1009);
	set_rate(1, 1007);
	set_prefill(126);	/* 2016 ns */
	ck_assert(areas_pay(c, 0) && area_read_pays(c, 0, slot));
	set_prefill(125);
	ck_assert(!areas_pay(c, 0) && area_read_pays(c, 0, slot));
	set_prefill(64);	/* 1024 ns */
	ck_assert(!areas_pay(c, 0) && area_read_pays(c, 0, slot));
	set_prefill(63);
	ck_assert(!areas_pay(c, 0) && !area_read_pays(c, 0, slot));
	set_rate(0, 1008);
	set_prefill(63);
	ck_assert(!areas_pay(c, 0) && area_read_pays(c, 0, slot));
	set_prefill(0);
	ck_assert(areas_pay(c, 0) && area_read_pays(c, 0, slot));
}
END_TEST

/* Copies that take longer than expected pay no more, as soon as they have ended. */
START_TEST(test_copies_get_slow)
{
	u32 i, pays;

	c->head->clean_after = ~0ull;
	plays_all(0, 3);
	set_prefill(1000);
	pays = c->domains[0].pays;
	for (i = 0; i < POOL; i++)
		if (c->blocks[i].state == BLK_CACHED)
			(void)entry_out(c, i, 0);
	ck_assert_uint_ge(nr_copies, 8);
	ck_assert(pays & 1);
	copy_takes = MS;
	copies_done();
	copy_takes = 0;
	ck_assert_uint_eq(c->domains[0].pays, pays & ~1u);
}
END_TEST

/* A block that costs less to compute than to copy out and in is evicted without a copy. */
START_TEST(test_dear)
{
	/* 1 KiB out and in costs as much as 16 tokens, or 16 ns more. */
	c->head->copy_ns_kb = 8000;
	set_prefill(_i ? 1000 : 999);
	plays_all(0, 6);
	if (_i) {
		ck_assert_uint_eq(sh_count(CORE_EV_evict_dear), 0);
		return;
	}
	ck_assert_uint_eq(sh_count(CORE_EV_demote_wait), 0);
	ck_assert_uint_gt(sh_count(CORE_EV_evict_dear), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_evict_no_copy), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgdemote), 0);
	/* After a pause one copy shows whether that is still so. */
	sh_tick(60);
	ck_assert_uint_eq(nr_copies, 1);
	copies_done();
}
END_TEST

/* An eighth of the domain, at most, is copied ahead of need. */
START_TEST(test_ahead)
{
	c->head->clean_after = ~0ull;
	plays_all(0, 4);
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 0);
	c->head->clean_after = sh.now + MS;
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, POOL / 8);
	copies_done();
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 0);
}
END_TEST

/* After @ms: the blocks allocated in this window of 100 ms, and in the last one. */
static void expect_window(u64 ms, u32 nr, u32 last)
{
	sh_tick(ms);
	ck_assert_uint_eq(c->domains[0].alloc_nr, nr);
	ck_assert_uint_eq(c->domains[0].alloc_last, last);
}

/* Allocated blocks count in their window and in the next one. */
START_TEST(test_window)
{
	struct kv_domain *d = &c->domains[0];

	d->alloc_since = sh.now;
	d->alloc_last = 0;
	d->alloc_nr = 10;
	expect_window(99, 10, 0);
	expect_window(1, 0, 10);
	expect_window(99, 0, 10);
	expect_window(1, 0, 0);
	d->alloc_nr = 10;
	expect_window(199, 0, 10);
	d->alloc_nr = 10;
	expect_window(200, 0, 0);
}
END_TEST

/* Twice as many blocks are copied ahead as were allocated in a window. */
START_TEST(test_ahead_of_many)
{
	struct kv_domain *d;

	sh_stop();
	start_of(SH_EXTENTS * SH_PER, 64, 0);
	d = &c->domains[0];
	c->head->clean_after = ~0ull;
	plays_all(0, 62);
	c->head->clean_after = 0;
	d->alloc_since = sh.now;
	d->alloc_nr = _i ? 0 : 10;
	d->alloc_last = _i ? 12 : 0;
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, _i ? 24 : 20);
}
END_TEST

/* A copy that fails is no wait for ever. */
START_TEST(test_copy_fails)
{
	u64 seq;

	plays_all(0, 3);
	seq = asks(3);
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(c, sh.now, id, -EIO));
		sh_settle();
	}
	ck_assert_uint_eq(ends(seq, 3), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgdemote), 0);
	ck_assert_uint_lt(plays(0), NR * SH_BT);
}
END_TEST

/*
 * Between blocks that are worth as much, one with a copy is evicted, unless that frees
 * no block that can be allocated, or a swapped sequence needs the block.
 */
START_TEST(test_clean_one_first)
{
	u64 seq[2] = { asks(0), asks(1) };
	u32 dirty, clean, i;

	c->head->clean_after = ~0ull;
	for (i = 0; i < 2; i++)
		sh_compute(cl, seq[i], 0, TOKENS, 1000 * (i + 1));
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(sh_close(cl, seq[i]), 0);
	dirty = lru_next(c, 0);
	clean = c->blocks[dirty].next;
	ck_assert_uint_ne(clean, CORE_NONE);
	ck_assert_uint_ne(entry_out(c, clean, 0), CORE_NONE);
	copies_done();
	ck_assert_uint_ne(block_span(c, clean), block_span(c, dirty));
	if (_i == 1)
		ck_assert_int_eq(span_isolate(c, block_span(c, clean)), 0);
	if (_i == 2)
		entry_get_ref(c, c->blocks[clean].entry);
	ck_assert_int_eq(room_evict(c, 0, domain_slack(&c->domains[0]) + 1), ROOM_NOW);
	ck_assert_int_eq(c->blocks[dirty].state == BLK_CACHED, !_i);
	ck_assert_int_eq(c->blocks[clean].state == BLK_CACHED, !!_i);
	if (_i == 2)
		entry_drop_ref(c, c->blocks[clean].entry);
}
END_TEST

/* ---- the host pool is full ---- */

/* The oldest prompt is lost, whole, and no other one. */
START_TEST(test_oldest_is_lost)
{
	u32 i, whole = 0;

	sh_stop();
	start(16, 0);
	plays_all(0, 9);
	ck_assert_uint_gt(sh_count(CORE_EV_host_drop), 0);
	for (i = 8; i > 2; i--)
		whole += plays(i) == NR * SH_BT;
	ck_assert_uint_eq(whole, 6);
	ck_assert_uint_eq(sh_count(CORE_EV_evict_no_copy), 0);
}
END_TEST

/* Content of a domain that has more of the host pool gives way. */
START_TEST(test_largest_gives_way)
{
	u32 other, i;

	sh_stop();
	start(16, 0);
	plays_all(0, 9);
	other = sh_attach(1, "b");
	cl = other;
	for (i = 0; i < 8; i++)
		(void)plays(20 + i);
	ck_assert_uint_gt(part_used(host_part(c, sh.cl[other].info.domain)), 3);
}
END_TEST

/* ---- areas ---- */

/* Prompts go through the host pool to the area, and are found there. */
START_TEST(test_found_in_area)
{
	u32 i;

	sh_stop();
	start(8, 64);
	plays_all(0, 16);
	ck_assert_uint_gt(sh_count(CORE_EV_pswpout), 0);
	for (i = 0; i < 16; i++)
		ck_assert_uint_eq(plays(_i ? 15 - i : i), NR * SH_BT);
	ck_assert_uint_gt(sh_count(CORE_EV_pswpin), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_area_drop), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_host_drop), 0);
}
END_TEST

/* Make the ends of all prompts in the area newer than the blocks before them. */
static void ends_touch(void)
{
	u32 i, next, last = part_at(c, part_index(c, 0, CORE_POOL_AREA))->lru_tail;

	for (i = part_at(c, part_index(c, 0, CORE_POOL_AREA))->lru_head; i != last;
	     i = next) {
		next = c->entries_low[i].next;
		if (c->nodes[c->entries_low[i].node].kid == CORE_NONE)
			entry_touch(c, i);
	}
}

/*
 * The oldest content of an area is the beginnings of prompts whose ends are newer: more
 * than a scan looks at.  They become as new as their ends, the area takes new content,
 * and the oldest prompt is lost, whole.
 */
START_TEST(test_carried_on)
{
	u32 i, left = 0;

	sh_stop();
	start(8, 1000);
	sh_unchecked = true;
	plays_all(0, 240);
	ends_touch();
	while (left < 8 && !area_reclaim(c, CORE_POOL_AREA, 0))
		left++;
	ck_assert_uint_lt(left, 8);
	for (i = 1; i < NR; i++)
		ck_assert(area_reclaim(c, CORE_POOL_AREA, 0));
	ck_assert_uint_eq(sh_count(CORE_EV_area_drop), NR);
	sh_unchecked = false;
	sh_check();
	ck_assert_uint_eq(plays(0), 0);
	ck_assert_uint_eq(plays(1), NR * SH_BT);
}
END_TEST

/* A sequence that found blocks in the area is RESTORING until they are read. */
START_TEST(test_restoring)
{
	u64 seq;

	sh_stop();
	start(8, 64);
	plays_all(0, 16);
	nr_ios = 0;
	seq = asks(1);
	while (!nr_ios || sh_state(cl, seq) == KVMM_SEQ_WAITING) {
		ck_assert_uint_gt(nr_copies + nr_ios, 0);
		copies_done();
		while (nr_ios && sh_state(cl, seq) == KVMM_SEQ_WAITING) {
			SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
			sh_settle();
		}
	}
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	all_done();
	ck_assert_uint_eq(ends(seq, 1), NR * SH_BT);
}
END_TEST

/* Content that is dear to read is computed again. */
START_TEST(test_slow_area)
{
	u32 i;

	sh_stop();
	start(8, 64);
	plays_all(0, 16);
	for (i = 0; i < 2; i++) {
		struct kv_rate *r = &core_pool(c, CORE_POOL_AREA)->rate[i];

		*r = (struct kv_rate){ .ns = 1000000000000ull, .bytes = 1024, .nr = 8 };
	}
	set_prefill(1000000);
	ck_assert_uint_eq(plays(1), 0);
}
END_TEST

/* A domain that writes through has a copy of each full block, cached or not. */
START_TEST(test_writethrough)
{
	u64 seq;

	ck_assert_int_eq(core_domain_set(c, sh.now, 0, CORE_LIMIT_WRITETHROUGH, 2), -EINVAL);
	ck_assert_int_eq(core_domain_set(c, sh.now, 0, CORE_LIMIT_WRITETHROUGH, 1), 0);
	seq = asks(0);
	sh_compute(cl, seq, 0, TOKENS, 1000);
	ck_assert_uint_eq(nr_copies, NR);
	copies_done();
	ck_assert_uint_eq(sh_count(CORE_EV_pgdemote), NR);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	/* Its eviction waits for no copy. */
	ck_assert_int_eq(core_evict(c, sh.now, 0, POOL), NR);
	ck_assert_uint_eq(nr_copies, 0);
	ck_assert_uint_eq(plays(0), NR * SH_BT);
	ck_assert_int_eq(core_domain_set(c, sh.now, 0, CORE_LIMIT_WRITETHROUGH, 0), 0);
	seq = asks(1);
	sh_compute(cl, seq, 0, TOKENS, 2000);
	ck_assert_uint_eq(nr_copies, 0);
}
END_TEST

/* Spans of cache that another domain takes are copied first, and it waits for that. */
START_TEST(test_span_is_copied)
{
	u32 first = cl, other = sh_attach(1, "b");
	u64 seq;

	c->head->clean_after = ~0ull;
	plays_all(0, 3);
	c->head->clean_after = 0;
	cl = other;
	seq = asks(20);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_gt(nr_copies, 0);
	all_done();
	ck_assert_uint_eq(ends(seq, 20), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_evict_no_copy), 0);
	cl = first;
	ck_assert_uint_eq(plays(0), NR * SH_BT);
	ck_assert_uint_eq(plays(1), NR * SH_BT);
}
END_TEST

/*
 * A sequence that finds no host slots is not swapped, but its failure has content of
 * swapped sequences written: the next try finds slots.
 */
START_TEST(test_no_slots_once)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	u64 seq[2];
	u32 i;

	sh_stop();
	start(8, 64);
	c->head->clean_after = ~0ull;
	for (i = 0; i < 2; i++) {
		seq[i] = asks(i);
		sh_compute(cl, seq[i], 0, TOKENS, 1000 * (i + 1));
	}
	for (i = 0; i < 3; i++) {
		*a = (struct kvmm_advise_arg){ .seq = seq[i > 0], .advice = KVMM_ADV_PAGEOUT };
		ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
		ck_assert_int_eq(sh_seq_res(0), i == 1 ? -EAGAIN : 0);
		sh_settle();
		all_done();
	}
	ck_assert_uint_eq(sh_state(cl, seq[1]), KVMM_SEQ_SWAPPED);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core-demote");
	TCase *tc = tcase_create("demote");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_waits_for_copies);
	tcase_add_test(tc, test_waiter_goes);
	tcase_add_loop_test(tc, test_all_is_found, 0, 2);
	tcase_add_loop_test(tc, test_dear, 0, 2);
	tcase_add_test(tc, test_area_pays);
	tcase_add_test(tc, test_copies_get_slow);
	tcase_add_test(tc, test_ahead);
	tcase_add_test(tc, test_window);
	tcase_add_loop_test(tc, test_ahead_of_many, 0, 2);
	tcase_add_test(tc, test_copy_fails);
	tcase_add_loop_test(tc, test_clean_one_first, 0, 3);
	tcase_add_test(tc, test_oldest_is_lost);
	tcase_add_test(tc, test_largest_gives_way);
	tcase_add_loop_test(tc, test_found_in_area, 0, 2);
	tcase_add_test(tc, test_carried_on);
	tcase_add_test(tc, test_restoring);
	tcase_add_test(tc, test_slow_area);
	tcase_add_test(tc, test_writethrough);
	tcase_add_test(tc, test_span_is_copied);
	tcase_add_test(tc, test_no_slots_once);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
