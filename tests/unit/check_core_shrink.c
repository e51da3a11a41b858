// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_shrink.c - the device pool shrinks beside lower tiers, and its cost
 *
 * A pool of four extents of four blocks, and prompts of four blocks.
 */
#include "tests/unit/demote_scene.h"

#define PATIENCE 800u		/* ms: 16 times starve_ns of sh_config() */

/* Shrink the pool to @nr extents, and complete all that this orders. */
static void shrinks(u32 nr)
{
	u32 i;

	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, nr * SH_EXTENT), 0));
	for (i = 0; i < PATIENCE && sh_pool().resizing; i++) {
		sh_settle();
		all_done();
		sh_tick(1);
	}
	ck_assert_uint_eq(sh_pool().resizing, 0);
	ck_assert_uint_eq(sh_pool().offline, sh.cfg.pool_bytes - nr * SH_EXTENT);
}

/* Prompts are cached, and no block is copied ahead of need. */
static void caches(u32 nr)
{
	c->head->clean_after = ~0ull;
	plays_all(0, nr);
	c->head->clean_after = 0;
}

/* A sequence with @blocks blocks. */
static u64 computed(u32 blocks, u32 seed)
{
	u64 seq = sh_ready(cl, blocks * SH_BT, 0, seed);

	sh_compute(cl, seq, 0, blocks * SH_BT, seed);
	return seq;
}

static u32 found(u32 nr)
{
	u32 i, sum = 0;

	for (i = 0; i < nr; i++)
		sum += plays(i);
	return sum / SH_BT;
}

/* ---- what a shrink does ---- */

/* Cache that leaves is copied to the host pool first, and found there. */
START_TEST(test_cache_is_copied)
{
	caches(3);
	shrinks(2);
	ck_assert_uint_ge(sh_count(CORE_EV_resize_evict), 4);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_evict_no_copy), 0);
	ck_assert_uint_eq(found(3), 3 * NR);
}
END_TEST

/* A host slot that a write frees is waited for, but not for ever. */
START_TEST(test_slot_is_waited_for)
{
	sh_stop();
	start(2, 16);
	caches(3);
	if (!_i) {
		shrinks(1);
		ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 0);
		ck_assert_uint_eq(sh_count(CORE_EV_evict_no_copy), 0);
		return;
	}
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, SH_EXTENT), 0));
	copies_done();
	sh_tick(PATIENCE - 1);
	ck_assert_uint_gt(nr_ios, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 0);
	sh_tick(1);
	ck_assert_uint_gt(sh_count(CORE_EV_prefix_evict), 0);
	ck_assert_uint_gt(sh_count(CORE_EV_evict_no_copy), 0);
}
END_TEST

/* Blocks of a sequence move in place of cache: no sequence is preempted for that. */
START_TEST(test_cache_gives_way)
{
	u64 seq;

	sh_stop();
	start(0, 0);
	tokens = NR * SH_BT;	/* no free block is left */
	seq = computed(4, 77000);
	caches(3);
	ck_assert_uint_eq(sh_pool().cached, 12 * SH_BLOCK);
	ck_assert_uint_ge(block_span(c, table_get(c, seq_find(c, cl, seq), 0)), 2);
	shrinks(2);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_resize_preempt), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_success), 4);
	ck_assert_uint_eq(sh_pool().cached, 4 * SH_BLOCK);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_shrink");
	TCase *tc = tcase_create("shrink");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_cache_is_copied);
	tcase_add_loop_test(tc, test_slot_is_waited_for, 0, 2);
	tcase_add_test(tc, test_cache_gives_way);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
