// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_stall.c - swap areas that do not answer, and waits for them
 *
 * Two slots of the host pool, areas of sixteen, a deadline of 100 ms.  The test
 * answers copies and I/O itself, or does not.  Sequences are not indexed, so a
 * paged-out block has left the device when its copy ends; two more blocks paged
 * out push the two before them out of the host pool.
 */
#include "tests/unit/core_shell.h"

#define MAX_IO		64
#define DEADLINE	100u	/* ms */
#define SLOT		(2 * SH_EXTENT)

static struct core_copy copies[MAX_IO];
static struct core_io ios[MAX_IO];
static u32 nr_copies, nr_ios, cl, area;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MAX_IO);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	ck_assert_uint_lt(nr_ios, MAX_IO);
	ios[nr_ios++] = *io;
}

/* ---- the test's shell ---- */

static void do_copies(int status)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(sh.core, sh.now, id, status));
		sh_settle();
	}
}

/* Answer the oldest request, then once more: the second answer has no effect. */
static void do_io(int status)
{
	u64 id = ios[0].id;

	ck_assert_uint_gt(nr_ios, 0);
	memmove(ios, ios + 1, --nr_ios * sizeof(ios[0]));
	SH_CORE(core_io_done(sh.core, sh.now, id, status));
	sh_settle();
	SH_CORE(core_io_done(sh.core, sh.now, id, 0));
	sh_settle();
}

static void do_all(void)
{
	while (nr_copies || nr_ios) {
		do_copies(0);
		if (nr_ios)
			do_io(0);
	}
}

static struct core_tier_view tier(u32 pool)
{
	struct core_tier_view v;

	ck_assert_int_eq(core_get_tier(sh.core, pool, &v), 0);
	return v;
}

static u32 add_area(int prio)
{
	u32 index;

	ck_assert_int_eq(core_area_add(sh.core, sh.now, sh.cfg.area_bytes,
				       prio, &index), 0);
	return index;
}

static void setup_with(u32 host_slots, u32 deadline)
{
	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	nr_ios = 0;
	sh_config(16);
	sh.cfg.host_bytes = host_slots * SLOT;
	sh.cfg.area_bytes = 32 * SH_EXTENT;
	sh.cfg.swappiness = 200;
	sh.cfg.io_deadline_ns = deadline * MS;
	sh.cfg.starve_ns = 3600000 * MS;
	sh_start();
	cl = sh_attach(1, "d");
	area = add_area(0);
}

static void setup(void)
{
	setup_with(2, DEADLINE);
}

static int advise(u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	int err;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)),
			 0);
	err = sh_seq_res(0);
	sh_settle();
	return err;
}

static void want(u64 seq)
{
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
}

/* A sequence of @nr full blocks, with more to come. */
static u64 ready(u32 nr, u32 priority)
{
	struct kvmm_open_arg a = {
		.prompt_len = nr * SH_BT, .max_tokens = 8,
		.priority = priority,
		.flags = KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH,
	};
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, nr * SH_BT, 7), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_compute(cl, seq, 0, nr * SH_BT, 7);
	return seq;
}

static u64 paged_out(u32 nr)
{
	u64 seq = ready(nr, 0);

	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
	do_copies(0);
	return seq;
}

/* A sequence of @nr blocks in the area alone; @other fills the host pool. */
static u64 on_area(u32 nr, u64 *other)
{
	u64 seq = paged_out(nr);

	do_all();
	*other = paged_out(nr);
	do_all();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	return seq;
}

/* A sequence that lost its blocks is computed again, during any stall. */
static void again(u64 seq, u32 nr)
{
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_match(cl, seq, nr * SH_BT, 7), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_compute(cl, seq, 0, nr * SH_BT, 7);
}

/* Without clients no slot is held. */
static void teardown(void)
{
	u32 i;

	sh_die(cl);
	sh_quiet(cl);
	do_all();
	ck_assert_uint_eq(core_get_stalled(sh.core), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_swap_stall),
			  sh_count(CORE_EV_swap_late));
	for (i = CORE_POOL_HOST; i <= CORE_POOL_AREA + area; i++) {
		ck_assert_uint_eq(tier(i).used, 0);
		ck_assert_uint_eq(tier(i).limbo, 0);
		ck_assert_uint_eq(tier(i).nr_overdue, 0);
	}
	sh_stop();
}

/* ---- reads ---- */

/* @_i: the late answer is an error. */
START_TEST(test_read)
{
	u64 other, seq = on_area(2, &other);

	want(seq);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	ck_assert_uint_eq(nr_ios, 2);
	sh_tick(DEADLINE);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	sh_tick(1);
	ck_assert_uint_eq(core_get_stalled(sh.core), BIT(area));
	ck_assert_uint_eq(sh_count(CORE_EV_swap_stall), 2);
	ck_assert_uint_eq(sh_count(CORE_EV_swap_lost), 1);
	ck_assert_uint_eq(tier(CORE_POOL_HOST).limbo, 2 * SLOT);
	ck_assert_uint_eq(tier(CORE_POOL_AREA).limbo, 2 * SLOT);
	ck_assert_uint_eq(tier(CORE_POOL_AREA).nr_overdue, 2);
	again(seq, 2);

	do_io(_i ? -EIO : 0);
	ck_assert_uint_eq(core_get_stalled(sh.core), BIT(area));
	do_io(_i ? -EIO : 0);
	ck_assert_uint_eq(core_get_stalled(sh.core), 0);
	ck_assert_uint_eq(nr_copies, 0);
	ck_assert_uint_eq(tier(CORE_POOL_HOST).limbo, 0);
	ck_assert_uint_eq(tier(CORE_POOL_AREA).limbo, 0);
	ck_assert_uint_eq(tier(CORE_POOL_AREA).poison, _i ? 2 * SLOT : 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_pgpromote), 0);
}
END_TEST

/* A disk that is slow answers; a request may be given up all the same. */
START_TEST(test_slow_is_not_stalled)
{
	u64 other, seq;
	u32 i;

	sh_stop();
	setup_with(6, DEADLINE);
	seq = on_area(6, &other);
	want(seq);
	ck_assert_uint_eq(nr_ios, 6);
	for (i = 0; i < 4; i++) {
		sh_tick(DEADLINE - 10);
		do_io(0);
		ck_assert_uint_eq(core_get_stalled(sh.core), 0);
	}
	sh_tick(4 * DEADLINE - i * (DEADLINE - 10));
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	sh_tick(1);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(tier(CORE_POOL_AREA).nr_overdue, 2);
}
END_TEST

/* All sequences that want a block wait for one read, and all go on without it. */
START_TEST(test_waiters_of_one_read)
{
	u64 seq = ready(2, 0), other, kid;

	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	other = ready(2, 0);
	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
	/* The fork would be back at once, but another sequence takes the room. */
	ready(59, 1);
	do_all();
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_SWAPPED);
	want(seq);
	ck_assert_int_eq(advise(other, KVMM_ADV_PAGEOUT), 0);
	do_copies(0);
	while (nr_ios && ios[0].write)
		do_io(0);
	ck_assert_uint_eq(nr_ios, 2);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_RESTORING);
	sh_tick(DEADLINE + 1);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_count(CORE_EV_swap_stall), 2);
	ck_assert_uint_eq(sh_count(CORE_EV_swap_lost), 2);
}
END_TEST

START_TEST(test_death_of_the_waiter)
{
	u64 other, seq = on_area(2, &other);

	want(seq);
	if (_i)
		sh_tick(DEADLINE + 1);
	sh_die(cl);
	sh_quiet(cl);
	sh_tick(DEADLINE + 1);
	ck_assert_uint_eq(tier(CORE_POOL_AREA).nr_overdue, 2);
	ck_assert_uint_eq(sh_pool().limbo, 0);
	ck_assert_uint_eq(tier(CORE_POOL_HOST).limbo, 2 * SLOT);
	cl = sh_attach(1, "d");
	ck_assert_uint_eq(tier(CORE_POOL_HOST).limbo, 2 * SLOT);
}
END_TEST

/* ---- waits for the area, not for a request ---- */

/* Content in a stalled area is lost for sequences now, but not for good. */
START_TEST(test_area_is_out_of_reach)
{
	u64 first = paged_out(1), second = paged_out(1), third, other;

	do_all();
	third = paged_out(1);
	do_all();
	other = paged_out(1);
	do_all();
	want(first);
	sh_tick(DEADLINE + 1);
	again(first, 1);
	ck_assert_uint_eq(nr_ios, 1);
	want(second);
	ck_assert_uint_eq(nr_ios, 1);
	again(second, 1);

	do_io(0);
	ck_assert_uint_eq(core_get_stalled(sh.core), 0);
	want(third);
	do_all();
	ck_assert_uint_eq(sh_state(cl, third), KVMM_SEQ_READY);
	want(other);
	do_all();
	ck_assert_uint_eq(sh_state(cl, other), KVMM_SEQ_READY);
}
END_TEST

START_TEST(test_swapoff)
{
	u64 other, seq = on_area(2, &other);

	want(seq);
	sh_tick(DEADLINE + 1);
	again(seq, 2);
	ck_assert_int_eq(sh_close(cl, other), 0);
	ck_assert_int_eq(core_area_del(sh.core, sh.now, area), -EBUSY);
	sh_tick(10 * DEADLINE);
	ck_assert_int_eq(core_area_del(sh.core, sh.now, area), -EBUSY);
	sh_settle();
	do_io(0);
	do_io(-EIO);
	ck_assert_int_eq(core_area_del(sh.core, sh.now, area), 0);
	sh_settle();
	ck_assert_uint_eq(core_get_stalled(sh.core), 0);
	area = add_area(0);
}
END_TEST

/* ---- writes ---- */

START_TEST(test_write)
{
	u64 seq = paged_out(2), next;

	ck_assert_uint_eq(nr_ios, 2);
	ck_assert(ios[0].write && ios[1].write);
	sh_tick(DEADLINE + 1);
	ck_assert_uint_eq(core_get_stalled(sh.core), BIT(area));
	ck_assert_uint_eq(sh_count(CORE_EV_swap_lost), 0);
	/* The source is read beside the write. */
	want(seq);
	ck_assert_uint_eq(nr_copies, 2);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(tier(CORE_POOL_HOST).used, 2 * SLOT);
	/* No sequence gets its slots: the next one stays where it is. */
	ck_assert_int_eq(sh_close(cl, seq), 0);
	next = ready(2, 0);
	ck_assert_int_eq(advise(next, KVMM_ADV_PAGEOUT), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, next), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_close(cl, next), 0);
	ck_assert_uint_eq(tier(CORE_POOL_HOST).used, 2 * SLOT);
	ck_assert_uint_eq(nr_ios, 2);

	do_io(0);
	do_io(_i ? -EIO : 0);
	ck_assert_uint_eq(core_get_stalled(sh.core), 0);
	ck_assert_uint_eq(tier(CORE_POOL_HOST).used, 0);
	/* The area is written to again. */
	seq = paged_out(2);
	ck_assert_uint_eq(nr_ios, 2);
}
END_TEST

/* The copy beside a write ends before it, or after it, or fails. */
START_TEST(test_copy_beside_a_write)
{
	u64 seq = paged_out(2);
	bool first = _i & 1, fails = _i & 2;

	want(seq);
	ck_assert_uint_eq(nr_copies, 2);
	if (first)
		do_copies(fails ? -EIO : 0);
	do_io(0);
	do_io(_i & 4 ? -EIO : 0);
	do_copies(fails ? -EIO : 0);
	ck_assert_uint_eq(sh_state(cl, seq), fails ? KVMM_SEQ_RECOMPUTE :
			  KVMM_SEQ_READY);
}
END_TEST

/* A stalled area gets no requests; another one may. */
START_TEST(test_another_area)
{
	sh_stop();
	setup_with(4, DEADLINE);
	paged_out(3);
	ck_assert_uint_eq(nr_ios, 3);
	sh_tick(DEADLINE + 1);
	paged_out(1);
	sh_tick(1);
	ck_assert_uint_eq(nr_ios, 3);
	area = add_area(-1);
	ck_assert_uint_eq(area, 1);
	ck_assert_uint_eq(nr_ios, 4);
	ck_assert_uint_eq(ios[3].area, 1);
	sh_tick(1);
	ck_assert_uint_eq(core_get_stalled(sh.core), BIT(0));
}
END_TEST

/* ---- host slots ---- */

/* A sequence on area 0 alone; the host pool is full of writes to area 1. */
static u64 without_host_slots(u64 *late)
{
	u64 seq = paged_out(2);

	do_all();
	*late = paged_out(2);
	do_all();
	area = add_area(5);
	paged_out(2);
	ck_assert_uint_eq(nr_ios, 2);
	ck_assert(ios[0].write && ios[0].area == area);
	want(seq);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	return seq;
}

START_TEST(test_no_host_slot)
{
	u64 late, seq = without_host_slots(&late);

	sh_tick(DEADLINE);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	if (_i) {
		/* The writes were answered in time: the sequence comes back. */
		do_io(0);
		do_io(0);
		do_all();
		ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
		return;
	}
	sh_tick(1);
	ck_assert_uint_eq(core_get_stalled(sh.core), BIT(area));
	again(seq, 2);
	/* No request ends: a sequence that comes now does not wait at all. */
	want(late);
	again(late, 2);
}
END_TEST

/* Some requests end all the time, but no slot ever becomes free. */
START_TEST(test_no_host_slot_for_long)
{
	u64 late, seq = without_host_slots(&late);

	sh_tick(DEADLINE - 10);
	do_io(-EIO);
	do_io(-EIO);
	ck_assert_uint_gt(nr_ios, 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	sh_tick(DEADLINE - 10);
	ck_assert_uint_eq(core_get_stalled(sh.core), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* A sequence refused for another reason meanwhile begins to be stuck anew. */
START_TEST(test_stuck_begins_again)
{
	u64 late, seq = without_host_slots(&late), big;

	sh_tick(DEADLINE - 10);
	do_io(-EIO);
	do_io(-EIO);
	big = ready(61, 1);
	sh_tick(1);
	ck_assert_int_eq(sh_close(cl, big), 0);
	sh_tick(DEADLINE - 10);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	sh_tick(11);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* Without a deadline all sequences wait, as the configuration says. */
START_TEST(test_no_deadline)
{
	u64 other, seq;

	sh_stop();
	setup_with(2, 0);
	seq = on_area(2, &other);
	want(seq);
	sh_tick(1000 * DEADLINE);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	do_all();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

static Suite *stall_suite(void)
{
	Suite *s = suite_create("core_stall");
	TCase *tc = tcase_create("stall");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_read, 0, 2);
	tcase_add_test(tc, test_slow_is_not_stalled);
	tcase_add_test(tc, test_waiters_of_one_read);
	tcase_add_loop_test(tc, test_death_of_the_waiter, 0, 2);
	tcase_add_test(tc, test_area_is_out_of_reach);
	tcase_add_test(tc, test_swapoff);
	tcase_add_loop_test(tc, test_write, 0, 2);
	tcase_add_loop_test(tc, test_copy_beside_a_write, 0, 8);
	tcase_add_test(tc, test_another_area);
	tcase_add_loop_test(tc, test_no_host_slot, 0, 2);
	tcase_add_test(tc, test_no_host_slot_for_long);
	tcase_add_test(tc, test_stuck_begins_again);
	tcase_add_test(tc, test_no_deadline);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return sh_run(stall_suite());
}
