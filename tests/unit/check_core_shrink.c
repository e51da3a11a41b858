// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_shrink.c - the device pool shrinks beside lower tiers, and its cost
 *
 * A pool of four extents of four blocks, and prompts of four blocks.
 */
#include <stdlib.h>

#include "kvmm/core/node/shrink.h"
#include "tests/unit/demote_scene.h"

#define PATIENCE 800u		/* ms: 16 times starve_ns of sh_config() */

/* Shrink the pool to @nr extents, and complete all that this orders. */
static void shrinks(u32 nr)
{
	u32 i;

	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 0, nr * SH_EXTENT), 0));
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

/* ---- the effect of a shrink ---- */

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
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 0, SH_EXTENT), 0));
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
	ck_assert_uint_ge(block_span(c, table_get(c, &seq_find(c, cl, seq)->tab, 0)), 2);
	shrinks(2);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_resize_preempt), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_success), 4);
	ck_assert_uint_eq(sh_pool().cached, 4 * SH_BLOCK);
}
END_TEST

/* ---- its cost, before ---- */

static u32 nr_slices;

/* The cost of @nr extents less; nothing may change. */
static struct core_shrink_view foretold(u32 nr)
{
	const u64 bytes = c->head->bytes;
	struct core_shrink *s = calloc(1, core_shrink_bytes(&sh.cfg));
	struct core_shrink_view v;
	void *before = malloc(bytes);

	ck_assert(s && before);
	memcpy(before, c->head, bytes);
	ck_assert_int_eq(core_shrink_begin(c, s, 0, nr * SH_EXTENT), 0);
	for (nr_slices = 1; core_shrink_next(c, s); nr_slices++)
		;
	ck_assert(!memcmp(before, c->head, bytes));
	core_shrink_get(s, sh.cl[cl].info.domain, &v);
	free(before);
	free(s);
	return v;
}

/* Names in the index. */
static u32 names(void)
{
	return core_sizes(c)->nr_nodes - c->head->nr_free_nodes;
}

/* Of these, names whose content is on a lower tier alone. */
static u32 names_below(void)
{
	u32 i, nr = 0;

	for (i = 0; i < core_sizes(c)->nr_nodes; i++)
		nr += c->nodes[i].ref != CORE_NONE &&
		      (c->nodes[i].ref & REF_ENTRY);
	return nr;
}

static void same_cost(u32 nr)
{
	struct core_shrink_view v = foretold(nr);
	u32 all = names(), below = names_below();

	shrinks(nr);
	ck_assert_uint_eq(all - names(), v.lost);
	ck_assert_uint_eq(names_below(), below + v.kept[0] + v.kept[1] - v.lost_below);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_success), v.moved);
	ck_assert_uint_eq(sh_domain(cl).nr_preempted, v.swapped + v.recomputed);
	ck_assert(!v.bound);
}

/* Without a lower tier, half of the prompts goes, with the blocks that follow. */
START_TEST(test_cost_of_cache)
{
	sh_stop();
	start(_i ? 32 : 0, 0);
	caches(3);
	ck_assert_uint_gt(_i ? foretold(2).kept[0] : foretold(2).lost, 0);
	ck_assert_uint_eq(_i ? foretold(2).lost : foretold(2).kept[0], 0);
	same_cost(2);
}
END_TEST

/* Cache that makes room for a sequence is a part of the cost. */
START_TEST(test_cost_of_moves)
{
	sh_stop();
	start(0, 0);
	tokens = NR * SH_BT;
	(void)computed(4, 77000);
	caches(3);
	ck_assert_uint_eq(foretold(2).moved, 4);
	ck_assert_uint_eq(foretold(2).evicted, 4);
	ck_assert_uint_eq(foretold(2).lost, 8);
	same_cost(2);
}
END_TEST

/* A smaller pool than sequences need: they are computed again, or swapped out. */
START_TEST(test_cost_of_sequences)
{
	struct core_shrink_view v;
	u64 a, b;

	sh_stop();
	start(_i ? 32 : 0, 0);
	a = computed(7, 77000);
	b = computed(8, 88000);
	v = foretold(2);
	ck_assert_uint_ge(v.swapped + v.recomputed, 1);
	ck_assert_uint_eq(_i ? v.recomputed : v.swapped, 0);
	ck_assert_uint_eq(v.too_large, 0);
	ck_assert(v.bound);
	ck_assert_uint_eq(foretold(1).too_large, 2);
	shrinks(2);
	ck_assert_uint_ge(v.swapped + v.recomputed, sh_domain(cl).nr_preempted);
	ck_assert_uint_ge(sh_domain(cl).nr_preempted, 1);
	if (!_i)
		ck_assert_uint_ge(v.tokens, sh_count(CORE_EV_recompute_tokens));
	else
		ck_assert_uint_ge(v.swapped, sh_count(CORE_EV_preempt_swap));
	(void)a;
	(void)b;
}
END_TEST

/* Lease the whole blocks of a prompt that is cached. */
static void leases(u32 nr, u32 seed)
{
	struct kvmm_lookup_arg look = { .nr_ids = nr, .flags = KVMM_LOOKUP_LAST };
	struct kvmm_lease_arg lease = { .len = nr, .ms = 60000 };
	const struct kvmm_lookup_res *found = (const void *)sh.results;
	const struct kvmm_lease_res *res = (const void *)sh.results;
	u32 i, *ids = (u32 *)(void *)((u8 *)sh.args + sizeof(look));

	memcpy(sh.args, &look, sizeof(look));
	for (i = 0; i < nr; i++)
		ids[i] = seed + i;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_LOOKUP, 1, 0, sizeof(look) + 4 * nr), 0);
	ck_assert_uint_eq(found->found, nr);
	memcpy(lease.cookie, found->cookie, sizeof(lease.cookie));
	memcpy(sh.args, &lease, sizeof(lease));
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_LEASE, 1, 0, sizeof(lease)), 0);
	ck_assert_uint_eq(res->held, nr);
	all_done();
}

/* A lease never runs, so none is too large for a pool. */
START_TEST(test_cost_beside_a_lease)
{
	u64 seq;

	sh_stop();
	start(32, 0);
	seq = computed(7, 77000);
	ck_assert_uint_eq(foretold(1).too_large, 1);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	leases(7 * SH_BT, 77000);
	ck_assert_uint_eq(foretold(1).too_large, 0);
	shrinks(1);
}
END_TEST

/* Content that a smaller host pool has no slot for goes to areas, and the rest is lost. */
START_TEST(test_cost_of_small_tiers)
{
	struct core_shrink_view v;

	sh_stop();
	start(2, _i ? 16 : 0);
	caches(3);
	v = foretold(1);
	ck_assert_uint_eq(v.kept[0], 2);
	ck_assert_uint_eq(!v.kept[1], !_i);
	ck_assert_uint_eq(v.bound, !_i);
	if (_i) {
		same_cost(1);
		return;
	}
	ck_assert_uint_gt(v.lost, 0);
	shrinks(1);
	ck_assert_uint_le(v.lost, sh_count(CORE_EV_prefix_evict) +
				  sh_count(CORE_EV_host_drop));
}
END_TEST

START_TEST(test_cost_is_refused)
{
	struct core_shrink *s = calloc(1, core_shrink_bytes(&sh.cfg));

	ck_assert_int_eq(core_shrink_begin(c, s, 0, SH_EXTENT - 1), -EINVAL);
	ck_assert_int_eq(core_shrink_begin(c, s, 0, sh.cfg.pool_bytes + 1), -ERANGE);
	ck_assert_int_eq(core_shrink_begin(c, s, 0, sh.cfg.pool_bytes), 0);
	ck_assert(!core_shrink_next(c, s));
	free(s);
}
END_TEST

/* ---- any state ---- */

static u32 draw(u32 n)
{
	return (u32)rand() % n;
}

/* Compute the tokens @from to @len - 1, if there is memory. */
static void computes(u64 seq, u32 from, u32 len, u32 seed)
{
	if (sh_begin(cl, seq, from, len - from))
		ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	else
		(void)!sh_end(cl, seq, from, len, seed);
	all_done();
}

/* A sequence with a prefix that others have, too, and output of its own. */
static void plays_any(bool stays)
{
	u32 prompt = (1 + draw(4)) * SH_BT, more = draw(4) * SH_BT;
	u32 seed = 1000 * (1 + draw(3));
	u64 seq = sh_open(cl, prompt, more + 1);

	ck_assert_int_eq(sh_match(cl, seq, prompt, seed), 0);
	all_done();
	if (sh_state(cl, seq) == KVMM_SEQ_READY)
		computes(seq, sh_status(cl, seq)->cached_len, prompt, seed);
	if (more && sh_state(cl, seq) == KVMM_SEQ_READY &&
	    sh_status(cl, seq)->valid_len == prompt)
		computes(seq, prompt, prompt + more, 100 * draw(1000000));
	if (!stays || sh_state(cl, seq) != KVMM_SEQ_READY)
		ck_assert_int_eq(sh_close(cl, seq), 0);
	all_done();
}

/*
 * The cost is foretold exactly where it says so, and else is a bound.  With open
 * sequences, without and with tiers that are too small.
 */
START_TEST(test_cost_of_any_state)
{
	static const u32 slots[] = { 0, 0, 64, 64, 4, 8 };
	struct core_shrink_view v;
	u32 i, all, below, keep, nr, gone;

	sh_stop();
	srand((u32)_i);
	start_of(32, slots[_i % 6], _i % 3 == 2 ? 16 : 0);
	keep = draw(3);
	for (i = 0; i < 20; i++)
		plays_any(i < keep);
	nr = 1 + draw(7);
	v = foretold(nr);
	all = names();
	below = names_below();
	gone = (u32)sh_count(CORE_EV_resize_preempt);
	shrinks(nr);
	ck_assert_uint_le(sh_count(CORE_EV_resize_preempt) - gone, v.swapped + v.recomputed);
	if (v.bound) {
		if (!v.swapped && !v.recomputed)
			ck_assert_uint_ge(all - names(), v.lost);
		return;
	}
	ck_assert_uint_eq(all - names(), v.lost);
	ck_assert_uint_eq(names_below() + v.lost_below, below + v.kept[0] + v.kept[1]);
	/* Cache that waits for a host slot may move, too. */
	ck_assert_uint_ge(sh_count(CORE_EV_pgmigrate_success), v.moved);
	if (!v.kept[1])
		ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_success), v.moved);
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
	tcase_add_loop_test(tc, test_cost_of_cache, 0, 2);
	tcase_add_test(tc, test_cost_of_moves);
	tcase_add_loop_test(tc, test_cost_of_sequences, 0, 2);
	tcase_add_test(tc, test_cost_beside_a_lease);
	tcase_add_loop_test(tc, test_cost_of_small_tiers, 0, 2);
	tcase_add_test(tc, test_cost_is_refused);
	tcase_add_loop_test(tc, test_cost_of_any_state, 950, 1250);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
