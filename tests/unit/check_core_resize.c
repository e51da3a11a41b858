// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_resize.c - the device pool grows and shrinks while it is in use
 *
 * A pool of eight extents of four blocks.  The tests have clients that the
 * simulator does without: their sequences no longer fit the smaller pool.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define ALL	8u			/* extents */
#define STARVE	50u			/* ms, of sh_config() */
#define KILL	2000u			/* ms, for a client that keeps an extent */

static struct core *c;
static u32 cl;
static struct core_copy copies[SH_EXTENTS];
static u32 nr_copies;

static void on_copy(const struct core_copy *cp)
{
	copies[nr_copies++] = *cp;
}

static void setup(void)
{
	sh_config(ALL);
	sh_on_copy = on_copy;
	nr_copies = 0;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
}

static void teardown(void)
{
	sh_stop();
}

static int resize(u32 nr)
{
	int err;

	SH_CORE(err = core_pool_resize(c, sh.now, 0, nr * SH_EXTENT));
	sh_settle();
	return err;
}

static void answer_all(void)
{
	u32 i, nr = nr_copies;

	nr_copies = 0;
	for (i = 0; i < nr; i++)
		SH_CORE(core_copy_done(c, sh.now, copies[i].id, 0));
	sh_settle();
}

/* Complete all copies and revocations. */
static void through(void)
{
	u32 i;

	for (i = 0; i < 4; i++) {
		answer_all();
		sh_tick(1);
	}
}

/* All extents that were to go offline are offline. */
static void expect_offline(u32 nr)
{
	ck_assert_uint_eq(sh_pool().offline, nr * SH_EXTENT);
	ck_assert_uint_eq(sh_pool().nr_online, ALL - nr);
	ck_assert_uint_eq(sh_pool().resizing, 0);
	ck_assert_uint_eq(sh_pool().total, ALL * SH_EXTENT);
}

static u64 computed(u32 who, u32 blocks, u32 more, u32 seed)
{
	u64 seq = sh_ready(who, blocks * SH_BT, more * SH_BT, seed);

	sh_compute(who, seq, 0, blocks * SH_BT, seed);
	return seq;
}

/* Fill the cache with @blocks blocks. */
static void cached(u32 blocks, u32 seed)
{
	ck_assert_int_eq(sh_close(cl, computed(cl, blocks, 0, seed)), 0);
}

/* ---- without sequences ---- */

START_TEST(test_fresh_pool)
{
	u64 seq;

	ck_assert_int_eq(resize(3), 0);
	expect_offline(5);
	/* The remaining memory can be had, and OPEN refuses larger prompts. */
	seq = computed(cl, 12, 0, 1);
	ck_assert_uint_eq(sh.nr_creates, 3);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_int_eq(sh_open_as(cl, &(struct kvmm_open_arg){
			 .prompt_len = 12 * SH_BT + 1 }, &seq), -E2BIG);
	ck_assert_int_eq(resize(ALL), 0);
	expect_offline(0);
	ck_assert_int_eq(sh_close(cl, computed(cl, 32, 0, 2)), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pool_shrink), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_pool_grow), 1);
}
END_TEST

START_TEST(test_refused)
{
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 0, 0), -EINVAL));
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 0, SH_EXTENT - 1),
				 -EINVAL));
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 0, ALL * SH_EXTENT +
						  1), -ERANGE));
	expect_offline(0);
	/* The size is rounded down to whole extents. */
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 0, 4 * SH_EXTENT -
						  1), 0));
	expect_offline(5);
}
END_TEST

/* If a block takes more than an extent, one span is the least. */
START_TEST(test_a_span_is_the_least)
{
	struct kvmm_attach_req req = sh_attach_req("b");
	u32 big;

	req.group[0].layers = 6;
	big = (u32)sh_attach_as(1, &req);
	ck_assert_uint_gt(sh.cl[big].info.span_extents, 1);
	ck_assert_int_eq(resize(sh.cl[big].info.span_extents - 1), -EBUSY);
	ck_assert_int_eq(resize(sh.cl[big].info.span_extents), 0);
	sh_die(big);
	sh_quiet(big);
	ck_assert_int_eq(resize(1), 0);
	expect_offline(ALL - 1);
	/* Its client may attach all the same, and has no memory. */
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
	sh_check();
}
END_TEST

/* Cache is evicted with its extents, which all clients give back. */
START_TEST(test_cache_goes)
{
	cached(32, 1);
	ck_assert_uint_eq(sh_pool().cached, ALL * SH_EXTENT);
	sh.cl[cl].stubborn = true;
	ck_assert_int_eq(resize(2), 0);
	ck_assert_uint_le(sh_pool().cached, 2 * SH_EXTENT);
	ck_assert_uint_eq(sh_pool().revoking, 6 * SH_EXTENT);
	ck_assert_uint_eq(sh_pool().offline, 0);
	ck_assert_uint_eq(sh_pool().resizing, 1);
	ck_assert_uint_eq(sh.nr_releases, 0);
	sh.cl[cl].stubborn = false;
	sh_settle();
	sh_tick(1);
	ck_assert_uint_eq(sh.nr_releases, 6);
	ck_assert_uint_ge(sh_count(CORE_EV_resize_evict), 1);
	expect_offline(6);
}
END_TEST

START_TEST(test_who_keeps_it_is_killed)
{
	u32 also = sh_attach(1, "a");

	cached(32, 1);
	sh.cl[cl].stubborn = true;
	ck_assert_int_eq(resize(4), 0);
	sh_tick(KILL - 1);
	ck_assert_uint_eq(sh.cl[cl].killed, 0);
	sh_tick(1);
	ck_assert_uint_eq(sh.cl[cl].killed, 1);
	ck_assert_int_eq(sh.cl[cl].kill_reason, -EBUSY);
	ck_assert_uint_eq(sh.cl[also].killed, 0);
	ck_assert_uint_eq(sh.nr_releases, 0);
	sh_die(cl);
	sh_quiet(cl);
	sh_tick(1);
	expect_offline(4);
}
END_TEST

/* Extents that are being made are completed, and go offline. */
START_TEST(test_memory_in_the_making)
{
	u64 seq = sh_open(cl, 32 * SH_BT, 0);
	u32 e;

	sh_manual_make = true;
	ck_assert_int_eq(sh_match(cl, seq, 32 * SH_BT, 1), 0);
	ck_assert_uint_eq(sh.nr_creates, ALL);
	ck_assert_int_eq(resize(2), 0);
	/* The sequence no longer fits, and fails. */
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_FAILED);
	for (e = 0; e < ALL; e++)
		sh_made(e, e == 5 ? -ENOMEM : 0);
	sh_settle();
	through();
	expect_offline(6);
	ck_assert_uint_eq(sh.nr_releases, 5);
}
END_TEST

/* ---- with sequences ---- */

/* Other spans have room: no sequence is preempted. */
START_TEST(test_blocks_move)
{
	u64 a, b;

	a = computed(cl, 12, 0, 1000);
	b = computed(cl, 4, 0, 5000);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_int_eq(resize(3), 0);
	ck_assert_uint_gt(sh_pool().resizing, 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
	sh_tick(1);
	(void)!core_drop_caches(c, sh.now, 0, 100);
	through();
	expect_offline(5);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_resize_preempt), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_success), 4);
}
END_TEST

/* Other spans have no room: sequences are preempted, and restored in the rest. */
START_TEST(test_preempted_and_restored)
{
	u64 a = computed(cl, 12, 2, 1000), b = computed(cl, 12, 2, 5000);

	/* The second sequence is in a step and keeps its blocks until that ends. */
	ck_assert_int_eq(sh_begin(cl, b, 12 * SH_BT, 1), 0);
	ck_assert_int_eq(resize(4), 0);
	answer_all();
	sh_tick(STARVE);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(sh_pool().resizing, 1);
	ck_assert_int_eq(sh_end(cl, b, 12 * SH_BT, 12 * SH_BT + 1, 5000), 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_RECOMPUTE);
	through();
	expect_offline(4);
	ck_assert_uint_ge(sh_count(CORE_EV_resize_preempt), 1);
	ck_assert_uint_eq(sh.cl[cl].killed, 0);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_int_eq(sh_match(cl, b, 12 * SH_BT + 1, 5000), 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
	sh_compute(cl, b, sh_status(cl, b)->valid_len, 13 * SH_BT, 5000);
}
END_TEST

/* A prefix in a leaving span is not found: else it would never leave. */
START_TEST(test_not_found_where_it_leaves)
{
	u64 a, b;

	cached(12, 9000);
	a = computed(cl, 4, 1, 1000);
	ck_assert_uint_ge(block_span(c, table_get(c, &seq_find(c, cl, a)->tab, 0)), 3);
	(void)!core_drop_caches(c, sh.now, 0, 100);
	ck_assert_int_eq(resize(3), 0);
	b = sh_ready(cl, 4 * SH_BT, 0, 1000);
	ck_assert_uint_eq(sh_status(cl, b)->valid_len, 0);
	sh_compute(cl, b, 0, 4 * SH_BT, 1000);
	/* Nor is the new copy of the prefix merged with it. */
	ck_assert_uint_lt(block_span(c, table_get(c, &seq_find(c, cl, b)->tab, 0)), 3);
	sh_tick(STARVE);
	through();
	expect_offline(5);
}
END_TEST

/* A sequence that no longer fits fails when its turn comes, preempted or new. */
START_TEST(test_no_longer_fits)
{
	u64 a = computed(cl, 12, 4, 1000), b = sh_open(cl, 24 * SH_BT, 0), d;

	ck_assert_int_eq(resize(2), 0);
	sh_tick(STARVE);
	through();
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_match(cl, a, 12 * SH_BT, 1000), 0);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_FAILED);
	ck_assert_int_eq(sh_status(cl, a)->reason, -EDQUOT);
	ck_assert_int_eq(sh_match(cl, b, 24 * SH_BT, 5000), 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_FAILED);
	ck_assert_int_eq(sh_status(cl, b)->reason, -EDQUOT);
	expect_offline(6);
	d = sh_ready(cl, 8 * SH_BT, 0, 1);
	ck_assert_int_eq(sh_close(cl, d), 0);
}
END_TEST

/* ---- protection ---- */

START_TEST(test_promises_are_scaled)
{
	u32 dom = sh.cl[cl].info.domain, two;

	SH_CORE(ck_assert_int_eq(core_domain_set(c, sh.now, dom, CORE_LIMIT_MIN,
						 24 * SH_BLOCK), 0));
	ck_assert_uint_eq(sh_domain(cl).emin_bytes, 24 * SH_BLOCK);
	(void)computed(cl, 24, 0, 1);
	ck_assert_int_eq(resize(2), 0);
	ck_assert_uint_eq(sh_domain(cl).emin_bytes, 8 * SH_BLOCK);
	ck_assert_uint_eq(sh_pool().commit_limit, 2 * SH_EXTENT);
	/* A domain with memory.min of the whole pool loses memory all the same. */
	sh_tick(STARVE);
	through();
	expect_offline(6);
	ck_assert_int_eq(resize(ALL), 0);
	ck_assert_uint_eq(sh_domain(cl).emin_bytes, 24 * SH_BLOCK);
	/*
	 * Two domains that are protected beyond the pool share it, at either
	 * size.
	 */
	two = sh_attach(1, "b");
	SH_CORE(ck_assert_int_eq(core_domain_set(c, sh.now,
		sh.cl[two].info.domain, CORE_LIMIT_MIN, 24 * SH_BLOCK), 0));
	ck_assert_uint_eq(sh_domain(two).emin_bytes, 16 * SH_BLOCK);
	ck_assert_int_eq(resize(2), 0);
	ck_assert_uint_eq(sh_domain(two).emin_bytes, 4 * SH_BLOCK);
	ck_assert_uint_eq(sh_domain(cl).emin_bytes, 4 * SH_BLOCK);
}
END_TEST

/* ---- growing again ---- */

/*
 * Extents that were not asked back stay; the others come back, and are made
 * anew.
 */
START_TEST(test_called_off)
{
	u64 a = computed(cl, 28, 1, 1000), seq;

	cached(1, 9000);
	ck_assert_int_eq(sh_begin(cl, a, 28 * SH_BT, 1), 0);
	sh.cl[cl].stubborn = true;
	ck_assert_int_eq(resize(2), 0);
	ck_assert_uint_eq(sh_pool().resizing, 1);
	sh_tick(STARVE);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_MARKED);
	ck_assert_int_eq(resize(ALL), 0);
	ck_assert_uint_eq(c->domains[0].dev.isolated_free, 0);
	ck_assert_uint_eq(sh_pool().offline, 0);
	ck_assert_uint_eq(sh.nr_releases, 0);
	ck_assert_int_eq(sh_end(cl, a, 28 * SH_BT, 28 * SH_BT + 1, 1000), 0);
	sh.cl[cl].stubborn = false;
	sh_settle();
	through();
	expect_offline(0);
	ck_assert_uint_eq(sh.cl[cl].killed, 0);
	ck_assert_int_eq(sh_close(cl, a), 0);
	seq = computed(cl, 32, 0, 7000);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}
END_TEST

START_TEST(test_revoked_and_back)
{
	cached(32, 1);
	sh.cl[cl].stubborn = true;
	ck_assert_int_eq(resize(2), 0);
	ck_assert_int_eq(resize(6), 0);
	ck_assert_uint_eq(sh_pool().revoking, 6 * SH_EXTENT);
	sh.cl[cl].stubborn = false;
	sh_settle();
	sh_tick(1);
	expect_offline(2);
	ck_assert_uint_eq(sh_pool().revoking, 0);
	ck_assert_int_eq(sh_close(cl, computed(cl, 24, 0, 2)), 0);
	ck_assert_uint_eq(sh.nr_creates, ALL + 4);
}
END_TEST

/* An emptied span outside of the part that comes back stays isolated. */
START_TEST(test_other_span_stays_isolated)
{
	u64 a = computed(cl, 24, 1, 1000);
	u32 first;

	ck_assert_int_eq(resize(6), 0);
	through();
	expect_offline(2);
	ck_assert_int_eq(sh_close(cl, a), 0);
	(void)!core_drop_caches(c, sh.now, 0, 100);
	a = computed(cl, 3, 1, 2000);
	(void)computed(cl, 3, 1, 3000);
	first = block_span(c, table_get(c, &seq_find(c, cl, a)->tab, 0));
	ck_assert(evacuate_span(c, first, true));
	ck_assert_uint_eq(nr_copies, 4);
	ck_assert_int_eq(resize(ALL), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_span_putback), 0);
	ck_assert(span_is_isolated(&c->spans[first]));
	ck_assert_uint_eq(sh_count(CORE_EV_pool_shrink), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_pool_grow), 1);
}
END_TEST

/*
 * The free blocks of a leaving span cover a reservation.  The sequence that has it
 * is preempted, and the cache of the span is evicted, in one event.
 */
START_TEST(test_reservation_gives_way)
{
	u64 a;

	sh_warm(cl);
	cached(1, 9000);
	ck_assert_uint_eq(sh_domain(cl).nr_spans, ALL);
	a = sh_ready(cl, 30 * SH_BT, 0, 1000);
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 0, 7 * SH_EXTENT), 0));
	sh_check();
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_count(CORE_EV_resize_preempt), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_resize_evict), 1);
	ck_assert_uint_eq(sh_pool().cached, 0);
	ck_assert_uint_eq(sh_pool().revoking, SH_EXTENT);
	through();
	expect_offline(1);
}
END_TEST

/*
 * The same in an open step.  The sequence was preempted at its end, and wants its memory
 * again.  @b: takes another sequence, in the first span.
 */
static u64 preempted_in_a_step(u64 *b)
{
	u64 a;

	*b = computed(cl, 4, 0, 9000);
	a = sh_ready(cl, 26 * SH_BT, 0, 1000);
	ck_assert_uint_eq(sh_domain(cl).room, 2);
	ck_assert_int_eq(sh_begin(cl, a, 0, SH_BT), 0);
	ck_assert_int_eq(resize(7), 0);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_MARKED);
	ck_assert_int_eq(sh_end(cl, a, 0, SH_BT, 1000), 0);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_match(cl, a, 26 * SH_BT, 1000), 0);
	return a;
}

/*
 * It is not admitted before the span is isolated: else it would reserve the same blocks
 * at each tick, and the span would never leave.
 */
START_TEST(test_reservation_does_not_come_back)
{
	u64 b, a = preempted_in_a_step(&b);

	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_WAITING);
	through();
	expect_offline(1);
	ck_assert_uint_eq(sh_count(CORE_EV_resize_preempt), 1);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_close(cl, b), 0);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_READY);
}
END_TEST

/* A shrink that is called off holds no sequence up. */
START_TEST(test_called_off_beside_a_reservation)
{
	u64 b, a = preempted_in_a_step(&b);

	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_WAITING);
	ck_assert_int_eq(resize(ALL), 0);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_READY);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_resize");
	TCase *tc = tcase_create("resize");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_fresh_pool);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_a_span_is_the_least);
	tcase_add_test(tc, test_cache_goes);
	tcase_add_test(tc, test_who_keeps_it_is_killed);
	tcase_add_test(tc, test_memory_in_the_making);
	tcase_add_test(tc, test_blocks_move);
	tcase_add_test(tc, test_preempted_and_restored);
	tcase_add_test(tc, test_not_found_where_it_leaves);
	tcase_add_test(tc, test_no_longer_fits);
	tcase_add_test(tc, test_promises_are_scaled);
	tcase_add_test(tc, test_called_off);
	tcase_add_test(tc, test_revoked_and_back);
	tcase_add_test(tc, test_other_span_stays_isolated);
	tcase_add_test(tc, test_reservation_gives_way);
	tcase_add_test(tc, test_reservation_does_not_come_back);
	tcase_add_test(tc, test_called_off_beside_a_reservation);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
