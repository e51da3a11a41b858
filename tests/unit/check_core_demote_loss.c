// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_demote_loss.c - which copy is dropped, and which content is lost
 *
 * Blocks are put on the tiers by hand, so that each test has one order of them.
 */
#include "tests/unit/demote_scene.h"

static u32 blks[8][NR];		/* blocks of the device, by prompt */

/* Compute a prompt and keep its blocks' numbers; no copy begins meanwhile. */
static void put(u32 prompt)
{
	u64 seq;
	u32 i;

	c->head->clean_after = ~0ull;
	seq = asks(prompt);
	all_done();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_compute(cl, seq, 0, tokens, 1000 * (prompt + 1));
	for (i = 0; i < NR; i++)
		blks[prompt][i] = pte_block(table_pte(c, &seq_find(c, cl, seq)->tab, i));
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

static u32 node_of(u32 blk)
{
	ck_assert_int_eq(c->blocks[blk].state, BLK_CACHED);
	return index_node(c, blk);
}

/* The host pool gets a copy of a block.  Return: the entry. */
static u32 copied(u32 blk)
{
	u32 entry = entry_out(c, blk, 0);

	ck_assert_uint_ne(entry, CORE_NONE);
	copies_done();
	return entry;
}

/* The device loses a block, of which there is a copy.  Return: the entry. */
static u32 to_host(u32 blk)
{
	u32 entry = copied(blk);

	index_evict(c, blk);
	sh_check();
	return entry;
}

/* Only an area has the block. */
static u32 to_area(u32 blk)
{
	u32 entry = to_host(blk);

	ck_assert(entry_write(c, entry));
	all_done();
	host_slot_put(c, entry);
	sh_check();
	return entry;
}

static u32 with_copy(u32 prompt)
{
	u32 i, nr = 0;

	for (i = 0; i < NR; i++)
		nr += c->blocks[blks[prompt][i]].entry != CORE_NONE;
	return nr;
}

/* ---- the host pool ---- */

/* The copy of a block that the device loses next stays. */
START_TEST(test_copy_of_the_next_victim)
{
	u32 i;

	for (i = 0; i < 3; i++)
		put(i);
	for (i = 0; i < 2 * NR; i++)
		(void)copied(blks[i / NR][i % NR]);
	ck_assert(!host_drop_copy(c, 0, CORE_NONE));
	ck_assert(!host_drop_copy(c, 0, node_of(blks[2][NR - 1])));
	ck_assert_uint_eq(with_copy(0), NR);
	ck_assert(host_drop_copy(c, 0, node_of(blks[0][NR - 1])));
	ck_assert_uint_eq(with_copy(0), NR);
	ck_assert_uint_eq(with_copy(1), NR - 1);
	sh_check();
}
END_TEST

/* The copy of a block that a sequence maps is dropped first. */
START_TEST(test_copy_of_a_mapped_block)
{
	u64 seq;

	put(0);
	(void)copied(blks[0][0]);
	ck_assert(!host_drop_copy(c, 0, CORE_NONE));
	seq = asks(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert(host_drop_copy(c, 0, CORE_NONE));
	ck_assert_uint_eq(with_copy(0), 0);
	sh_check();
}
END_TEST

/* The host pool loses the end of a prompt first, in any order of its copies. */
START_TEST(test_root_is_lost_last)
{
	u32 i;

	put(0);
	for (i = 0; i < NR; i++)
		(void)copied(blks[0][i]);
	for (i = NR; i--;)
		index_evict(c, blks[0][i]);
	ck_assert(host_drop_oldest(c, 0, CORE_NONE));
	sh_check();
	ck_assert_uint_eq(plays(0), (NR - 1) * SH_BT);
}
END_TEST

/* Content that is newer than the evicted block is not lost for it. */
START_TEST(test_newer_content_stays)
{
	u32 i;

	for (i = 0; i < 3; i++)
		put(i);
	(void)to_host(blks[1][NR - 1]);
	ck_assert(!host_drop_oldest(c, 0, node_of(blks[0][NR - 1])));
	ck_assert(host_drop_oldest(c, 0, node_of(blks[2][NR - 1])));
	sh_check();
}
END_TEST

/* A domain without a host slot gets one from the domain that has most. */
START_TEST(test_first_slot)
{
	u32 i, a, other;

	sh_stop();
	start(8, 0);
	for (i = 0; i < 2 * NR; i++) {
		if (i % NR == 0)
			put(i / NR);
		(void)to_host(blks[i / NR][NR - 1 - i % NR]);
	}
	a = cl;
	other = sh_attach(1, "b");
	ck_assert_uint_eq(host_free(c, sh.cl[a].info.domain), 0);
	ck_assert(host_drop_oldest(c, sh.cl[other].info.domain, CORE_NONE));
	ck_assert_uint_gt(host_free(c, sh.cl[other].info.domain), 0);
	sh_check();
}
END_TEST

/* Making room for a copy drops the block's own name with that of an older block. */
START_TEST(test_gone_meanwhile)
{
	u32 i;

	sh_stop();
	start(4, 0);
	put(0);
	put(1);
	(void)to_host(blks[0][0]);
	for (i = NR; --i;)
		(void)to_host(blks[1][i]);
	ck_assert_uint_eq(host_free(c, 0), 0);
	c->head->clean_after = c->now;
	ck_assert_int_eq(demote_block(c, 0, blks[0][NR - 1]), DEMOTE_GONE);
	ck_assert_uint_eq(nr_copies, 0);
	sh_check();
	ck_assert_uint_eq(plays(0), 0);
}
END_TEST

/* ---- the device ---- */

/* At a limit, too, blocks whose copies are in flight count as free. */
START_TEST(test_leaving_at_max)
{
	struct kv_domain *d = &c->domains[0];
	u32 i;

	for (i = 0; i < 3; i++)
		put(i);
	c->head->clean_after = c->now;
	d->dev.max_blocks = domain_used(d);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(room_evict(c, 0, 3), ROOM_MADE);
		ck_assert_uint_eq(domain_leaving(d), 3);
	}
	all_done();
	ck_assert_int_eq(room_evict(c, 0, 3), ROOM_NOW);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 0);
}
END_TEST

/* ---- areas ---- */

static void area_start(u32 slots, u32 area)
{
	sh_stop();
	start(slots, area);
}

/* A host pool full of content that only it has; the device is full, too. */
static void full_host(void)
{
	u32 i;

	area_start(16, 64);
	core_pool(c, CORE_POOL_AREA)->readonly = 1;
	for (i = 0; i < 4 * NR; i++) {
		if (i % NR == 0)
			put(i / NR);
		(void)to_host(blks[i / NR][NR - 1 - i % NR]);
	}
	for (i = 4; i < 7; i++)
		put(i);
	ck_assert_uint_eq(host_free(c, 0), 0);
	core_pool(c, CORE_POOL_AREA)->readonly = 0;
	c->head->clean_after = c->now;
}

/* A block is evicted once a slot is written for its copy, not before. */
START_TEST(test_waits_for_a_write)
{
	full_host();
	ck_assert_int_eq(room_evict(c, 0, domain_slack(&c->domains[0]) + 1), ROOM_MADE);
	ck_assert_uint_gt(io_moving(c), 0);
	ck_assert_uint_eq(nr_copies, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 0);
	sh_check();
}
END_TEST

/* Nothing needs to wait for a host slot any longer: a reason for that. */
static void no_slot_wanted(u32 reason)
{
	struct kv_pool *p = core_pool(c, CORE_POOL_AREA);
	u32 n, slot = CORE_NONE;

	switch (reason) {
	case 0:
		area_leave(c, CORE_POOL_AREA);
		break;
	case 1:
		for (n = 0; n < core_sizes(c)->nr_entries; n++)
			if (lies_in(c, &c->entries_low[n], CORE_POOL_AREA))
				slot = c->entries_low[n].area;
		for (n = 0; n < 100 && !p->readonly; n++)
			ck_assert(area_failed(c, slot, 0, -EIO));
		ck_assert(p->readonly);
		break;
	default:
		c->head->copy_ns_kb = 1000000;
		c->domains[0].prefill_ns_token = 10;
		demote_judge(c, 0);
	}
}

/* A request waits for a write no longer than areas take content and copies pay. */
START_TEST(test_wait_ends_early)
{
	u64 seq;

	full_host();
	seq = asks(7);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_gt(io_moving(c), 0);
	ck_assert_uint_eq(nr_copies, 0);
	no_slot_wanted((u32)_i);
	sh_tick(1);
	if (_i < 2)
		ck_assert_uint_gt(nr_copies, 0);
	else
		ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	all_done();
	ck_assert_uint_eq(ends(seq, 7), 0);
}
END_TEST

/* A full area drops its oldest content. */
START_TEST(test_area_loses_the_oldest)
{
	u32 i;

	area_start(8, 16);
	plays_all(0, 12);
	ck_assert_uint_gt(sh_count(CORE_EV_area_drop), 0);
	for (i = 11; i > 5; i--)
		ck_assert_uint_eq(plays(i), NR * SH_BT);
}
END_TEST

/* An area drops nothing while another one has room. */
START_TEST(test_two_areas)
{
	u32 index, i;

	area_start(8, 8);
	ck_assert_int_eq(core_area_add(c, sh.now, 8 * SLOT, -1, &index), 0);
	for (i = 0; i < 3 * NR; i++) {
		if (i % NR == 0)
			put(i / NR);
		(void)to_area(blks[i / NR][NR - 1 - i % NR]);
	}
	ck_assert_uint_eq(sh_count(CORE_EV_area_drop), 0);
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(plays(i), NR * SH_BT);
}
END_TEST

/* Content that was read stays in the area where at least half of the area is free. */
START_TEST(test_scarce_area)
{
	u32 entry[NR], i, kept = 0;

	area_start(8, _i ? 64 : 4);
	put(0);
	for (i = NR; i--;)
		entry[i] = to_area(blks[0][i]);
	ck_assert_uint_eq(plays(0), NR * SH_BT);
	ck_assert_uint_eq(sh_count(CORE_EV_pswpin), NR);
	for (i = 0; i < NR; i++)
		kept += c->entries_low[entry[i]].area != CORE_NONE;
	ck_assert_uint_eq(kept, _i ? NR : NR / 2);
}
END_TEST

/* A longer prefix than the host pool can read at once is found up to three quarters. */
START_TEST(test_more_reads_than_slots)
{
	area_start(8, 64);
	tokens = 10 * SH_BT + 1;
	ck_assert_uint_eq(plays(0), 0);
	tokens = TOKENS;
	plays_all(1, 16);
	tokens = 10 * SH_BT + 1;
	ck_assert_uint_eq(plays(0), 6 * SH_BT);
	tokens = TOKENS;
}
END_TEST

/* Room for reads is not made of other blocks of the same prefix. */
START_TEST(test_prefix_is_kept)
{
	struct kv_rate *r;
	u32 i;

	area_start(8, 64);
	put(0);
	put(1);
	put(2);
	(void)to_area(blks[0][3]);
	(void)to_area(blks[0][2]);
	(void)to_host(blks[0][1]);
	(void)to_host(blks[0][0]);
	/* To write content costs more than to compute it, to read it less. */
	r = &core_pool(c, CORE_POOL_AREA)->rate[1];
	*r = (struct kv_rate){ .ns = 1000000000000ull, .bytes = 1024, .nr = 8 };
	c->domains[0].prefill_ns_token = 1000000;
	demote_judge(c, 0);
	for (i = 0; i < 6; i++)
		(void)to_host(blks[1 + i / NR][NR - 1 - i % NR]);
	ck_assert_uint_eq(host_free(c, 0), 0);
	ck_assert_uint_eq(plays(0), NR * SH_BT);
	ck_assert_uint_eq(sh_count(CORE_EV_pswpin), 2);
}
END_TEST

/* A prefix that ends before its reads has none of the blocks behind them. */
START_TEST(test_reads_dropped)
{
	struct hits h;
	u64 seq;

	area_start(8, 64);
	put(0);
	(void)to_area(blks[0][1]);
	(void)to_host(blks[0][2]);
	(void)sh_ready(cl, 12 * SH_BT, 0, 1 << 20);
	seq = asks(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	c->work = 0;
	ck_assert(prefix_find(c, seq_find(c, cl, seq), &h));
	ck_assert_uint_eq(h.whole[0], NR);
	ck_assert_uint_eq(h.reads, 1);
	ck_assert_uint_eq(h.low, 2);
	ck_assert_uint_eq(h.cached, 2);
	hits_drop_reads(c, seq_find(c, cl, seq), &h);
	ck_assert_uint_eq(h.whole[0], 1);
	ck_assert_uint_eq(h.reads, 0);
	ck_assert_uint_eq(h.low, 0);
	ck_assert_uint_eq(h.cached, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core-demote-loss");
	TCase *tc = tcase_create("loss");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_copy_of_the_next_victim);
	tcase_add_test(tc, test_copy_of_a_mapped_block);
	tcase_add_test(tc, test_root_is_lost_last);
	tcase_add_test(tc, test_newer_content_stays);
	tcase_add_test(tc, test_first_slot);
	tcase_add_test(tc, test_gone_meanwhile);
	tcase_add_test(tc, test_leaving_at_max);
	tcase_add_test(tc, test_waits_for_a_write);
	tcase_add_loop_test(tc, test_wait_ends_early, 0, 3);
	tcase_add_test(tc, test_area_loses_the_oldest);
	tcase_add_test(tc, test_two_areas);
	tcase_add_loop_test(tc, test_scarce_area, 0, 2);
	tcase_add_test(tc, test_more_reads_than_slots);
	tcase_add_test(tc, test_prefix_is_kept);
	tcase_add_test(tc, test_reads_dropped);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
