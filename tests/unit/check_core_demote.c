// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_demote.c - cache is copied down before the device loses it
 *
 * Prompts of four blocks go through a device pool of 16 blocks.  The walkers run after
 * every event.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define SLOT	(2 * SH_EXTENT)
#define POOL	16u			/* blocks of the device pool */
#define NR	4u			/* whole blocks of a prompt */
#define TOKENS	(NR * SH_BT + 1)	/* one more, so that all blocks can be found */
#define MOST	256

static struct core *c;
static struct core_copy copies[MOST];
static struct core_io ios[MOST];
static u32 nr_copies, nr_ios, cl;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MOST);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	ck_assert_uint_lt(nr_ios, MOST);
	ios[nr_ios++] = *io;
}

static void copies_done(void)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(c, sh.now, id, 0));
		sh_settle();
	}
}

static void all_done(void)
{
	while (nr_copies || nr_ios) {
		copies_done();
		if (!nr_ios)
			continue;
		SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
		sh_settle();
	}
}

/* A host pool of @slots, an area of @area slots. */
static void start(u32 slots, u32 area)
{
	u32 index;

	nr_copies = 0;
	nr_ios = 0;
	sh_on_copy = on_copy;
	sh_on_io = on_io;
	sh_config(POOL / SH_PER);
	sh.cfg.host_bytes = slots * SLOT;
	sh.cfg.area_bytes = max(area, 1u) * SLOT;
	sh.cfg.watermark_scale_factor = 0;
	sh.cfg.swappiness = 200;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
	(void)!core_drop_caches(c, sh.now, 0, 1000);
	if (area)
		ck_assert_int_eq(core_area_add(c, sh.now, area * SLOT, 0, &index), 0);
}

static void setup(void)
{
	start(32, 0);
}

static void teardown(void)
{
	sh_stop();
}

static u64 asks(u32 prompt)
{
	u64 seq = sh_open(cl, TOKENS, 0);

	ck_assert_int_eq(sh_match(cl, seq, TOKENS, 1000 * (prompt + 1)), 0);
	return seq;
}

/* Compute what the sequence did not find.  Return: tokens that it found. */
static u32 ends(u64 seq, u32 prompt)
{
	u32 found;

	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	found = sh_status(cl, seq)->cached_len;
	sh_compute(cl, seq, found, TOKENS, 1000 * (prompt + 1));
	ck_assert_int_eq(sh_close(cl, seq), 0);
	return found;
}

static u32 plays(u32 prompt)
{
	u64 seq = asks(prompt);

	all_done();
	return ends(seq, prompt);
}

static void plays_all(u32 from, u32 nr)
{
	u32 i;

	for (i = from; i < from + nr; i++)
		ck_assert_uint_eq(plays(i), 0);
}

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

/* A block that costs less to compute than to copy is evicted without a copy. */
START_TEST(test_dear)
{
	c->head->copy_ns_kb = 1000000;
	c->domains[0].prefill_ns_token = 10;
	demote_judge(c, 0);
	plays_all(0, 6);
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

/* Between blocks that are worth as much, one with a copy is evicted. */
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
	ck_assert_int_eq(room_evict(c, 0, domain_slack(&c->domains[0]) + 1), ROOM_NOW);
	ck_assert_int_eq(c->blocks[dirty].state, BLK_CACHED);
	ck_assert_int_ne(c->blocks[clean].state, BLK_CACHED);
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
	c->domains[0].prefill_ns_token = 1000000;
	demote_judge(c, 0);
	ck_assert_uint_eq(plays(1), 0);
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
	tcase_add_test(tc, test_dear);
	tcase_add_test(tc, test_writethrough);
	tcase_add_test(tc, test_copy_fails);
	tcase_add_test(tc, test_clean_one_first);
	tcase_add_test(tc, test_oldest_is_lost);
	tcase_add_test(tc, test_largest_gives_way);
	tcase_add_test(tc, test_span_is_copied);
	tcase_add_loop_test(tc, test_found_in_area, 0, 2);
	tcase_add_test(tc, test_restoring);
	tcase_add_test(tc, test_slow_area);
	tcase_add_test(tc, test_no_slots_once);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
