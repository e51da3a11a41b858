// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_wakeup_swap.c - swapped sequences are tried again when it matters
 *
 * A swapped sequence that was refused is tried again only after a kick of its
 * domain (notify.c).  There are a host pool of a few slots and an area, and the
 * test answers copies and I/O.  Stalled domains are not looked at again within the
 * time of a test.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define POOL	16u		/* blocks */
#define LONG	3600000u	/* ms: longer than any test */
#define DEADLINE	1000u	/* ms, of I/O */
#define SLOT	(2 * SH_EXTENT)
#define MOST	64u		/* requests in flight */

static struct core *c;
static u32 cl;
static struct core_copy copies[MOST];
static struct core_io ios[MOST];
static u32 nr_copies, nr_ios;

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

static void ios_done(void)
{
	while (nr_ios) {
		u64 id = ios[--nr_ios].id;

		SH_CORE(core_io_done(c, sh.now, id, 0));
		sh_settle();
	}
}

static void setup_as(u32 host, u32 starve)
{
	u32 area;

	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	nr_ios = 0;
	sh_config(POOL / SH_PER);
	sh.cfg.starve_ns = starve * MS;
	sh.cfg.io_deadline_ns = DEADLINE * MS;
	sh.cfg.host_bytes = host * SLOT;
	sh.cfg.area_bytes = 16 * SLOT;
	sh.cfg.swappiness = 200;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
	ck_assert_int_eq(core_area_add(c, sh.now, sh.cfg.area_bytes, 0, &area), 0);
	sh_tick(1);
}

static void setup_two_slots(void)
{
	setup_as(2, LONG);
}

static void setup_four_slots(void)
{
	setup_as(4, LONG);
}

#define STARVE	80u	/* ms */

static void setup_starve(void)
{
	setup_as(16, STARVE);
}

static void teardown(void)
{
	sh_stop();
}

static void advise(u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

/* A running sequence of @blocks, with all of them computed. */
static u64 runs(u32 blocks, u32 more, u32 seed)
{
	u64 seq = sh_ready(cl, blocks * SH_BT, more, seed);

	sh_compute(cl, seq, 0, blocks * SH_BT, seed);
	return seq;
}

/* Swap out, free the blocks of the device, and begin to write to the area. */
static void pageout(u64 seq)
{
	advise(seq, KVMM_ADV_PAGEOUT);
	copies_done();
	ck_assert_int_ge(core_evict(c, sh.now, 0, POOL), 0);
	sh_tick(1);
}

/* An event that changes nothing. */
static void nothing(void)
{
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_NOP, 0, 0, 0), 0);
	sh_settle();
}

/*
 * The area alone has the content of the first sequence: its host slots went to
 * the second one: its writes are in flight.
 */
static u64 only_in_area(void)
{
	u64 seq = runs(2, 0, 0);

	pageout(seq);
	ios_done();
	pageout(runs(2, 0, 1000));
	ck_assert_uint_eq(nr_ios, 2);
	return seq;
}

/*
 * No host slot becomes free to read into: the sequence is computed again at the
 * first event after the deadline.
 */
START_TEST(test_stuck_restore_ends)
{
	u64 seq = only_in_area();

	advise(seq, KVMM_ADV_WILLNEED);
	sh.now += DEADLINE * MS;
	nothing();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	sh.now++;
	nothing();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* The area stalls: a sequence that waits for blocks will not find its content. */
START_TEST(test_stall_of_area_ends_wait)
{
	u64 seq = only_in_area();

	(void)runs(POOL, 0, 2000);
	advise(seq, KVMM_ADV_WILLNEED);
	sh_tick(DEADLINE);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	sh_tick(1);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/*
 * A sequence waits for more blocks than there are.  Its prefix is read from the
 * area for another one, and can be shared as soon as the host pool has it.
 */
START_TEST(test_prefix_is_read)
{
	u64 seq = runs(4, 0, 0), other, waiter;

	pageout(seq);
	ios_done();
	other = runs(4, 0, 1000);
	pageout(other);
	ios_done();
	ck_assert_int_eq(sh_close(cl, other), 0);
	advise(seq, KVMM_ADV_WILLNEED);
	ck_assert_uint_eq(nr_ios, 4);
	(void)runs(8, 0, 2000);
	waiter = sh_open(cl, 5 * SH_BT, 0);
	ck_assert_int_eq(sh_match(cl, waiter, 5 * SH_BT, 0), 0);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_WAITING);
	ios_done();
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_RESTORING);
	copies_done();
	ck_assert_uint_eq(sh_status(cl, waiter)->cached_len, 4 * SH_BT);
}
END_TEST

/*
 * A swapped sequence is the first to wait, and does not fit.  When the one behind
 * it has waited for starve_ns it goes first, and nothing but the time tells.
 */
START_TEST(test_swapped_sequence_lets_other_pass)
{
	struct kvmm_open_arg a = {
		.prompt_len = 12 * SH_BT,
		.flags = KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH,
	};
	u64 seq, grows, waiter;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, 12 * SH_BT, 0), 0);
	sh_compute(cl, seq, 0, 12 * SH_BT, 0);
	grows = runs(4, 6 * SH_BT, 1000);
	waiter = sh_open(cl, 4 * SH_BT, 0);
	ck_assert_int_eq(sh_match(cl, waiter, 4 * SH_BT, 2000), 0);
	sh.now++;
	advise(seq, KVMM_ADV_PAGEOUT);
	advise(seq, KVMM_ADV_WILLNEED);
	ck_assert_uint_eq(nr_copies, 12);
	while (nr_copies > 1)
		SH_CORE(core_copy_done(c, sh.now, copies[--nr_copies].id, 0));
	sh_compute(cl, grows, 4 * SH_BT, 10 * SH_BT, 1000);
	copies_done();
	sh_tick(STARVE - 1);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_WAITING);
	sh.now += MS - 1;
	sh_tick(0);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
}
END_TEST

/*
 * Two host slots with the content of @swapped, whose writes are in flight.  Domain "a"
 * has three spans: eight blocks of the returned sequence, which may grow by two, two
 * cached and two free ones.  The fourth span is cache of domain "b", and is not cold.
 */
static u64 two_domains(u64 *swapped)
{
	u32 other = sh_attach(1, "b");
	u64 seq, grows;

	*swapped = runs(2, 0, 0);
	pageout(*swapped);
	ck_assert_uint_eq(nr_ios, 2);
	ck_assert_int_eq(sh_close(cl, runs(2, 0, 1000)), 0);
	seq = sh_ready(other, SH_BT, 0, 2000);
	sh_compute(other, seq, 0, SH_BT, 2000);
	ck_assert_int_eq(sh_close(other, seq), 0);
	grows = runs(8, 2 * SH_BT, 3000);
	ck_assert_uint_eq(sh_domain(cl).blocks[0], 2);
	return grows;
}

/* A sequence of three blocks waits for a write to evict the cache of its domain. */
static u64 waits_for_write(void)
{
	u64 seq = sh_open(cl, 3 * SH_BT, 0);

	ck_assert_int_eq(sh_match(cl, seq, 3 * SH_BT, 4000), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	return seq;
}

/*
 * A running sequence takes a free block that a waiting one counted on.  The cache is not
 * enough any more: it gets others' memory, and does not wait for the write.
 */
START_TEST(test_growth_ends_wait_for_write)
{
	u64 swapped, grows = two_domains(&swapped), waiter = waits_for_write();

	ck_assert_int_eq(sh_begin(cl, grows, 8 * SH_BT, 1), 0);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_READY);
	ck_assert_uint_eq(nr_ios, 2);
}
END_TEST

/* The same for a swapped sequence, which wants a free block beside the min mark. */
START_TEST(test_growth_ends_restore_for_write)
{
	u64 swapped, grows = two_domains(&swapped);

	advise(swapped, KVMM_ADV_WILLNEED);
	ck_assert_uint_eq(sh_state(cl, swapped), KVMM_SEQ_SWAPPED);
	ck_assert_int_eq(sh_begin(cl, grows, 8 * SH_BT, 1), 0);
	ck_assert_uint_eq(sh_state(cl, swapped), KVMM_SEQ_RESTORING);
	ck_assert_uint_eq(nr_ios, 2);
}
END_TEST

/*
 * While the cache is enough, the sequence is not tried again before the write ends: each
 * try writes ->high_ask anew.
 */
START_TEST(test_wait_for_write_costs_no_tries)
{
	struct kv_domain *d = &c->domains[sh.cl[cl].info.domain];
	u64 swapped, waiter;

	(void)two_domains(&swapped);
	waiter = waits_for_write();
	d->high_ask = 77;
	nothing();
	ck_assert_uint_eq(d->high_ask, 77);
	ios_done();
	ck_assert_uint_ne(d->high_ask, 77);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_WAITING);
	copies_done();
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_READY);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("core_wakeup_swap");
	TCase *tc = tcase_create("two slots");

	tcase_add_checked_fixture(tc, setup_two_slots, teardown);
	tcase_add_test(tc, test_stuck_restore_ends);
	tcase_add_test(tc, test_stall_of_area_ends_wait);
	tcase_add_test(tc, test_growth_ends_wait_for_write);
	tcase_add_test(tc, test_growth_ends_restore_for_write);
	tcase_add_test(tc, test_wait_for_write_costs_no_tries);
	suite_add_tcase(s, tc);
	tc = tcase_create("four slots");
	tcase_add_checked_fixture(tc, setup_four_slots, teardown);
	tcase_add_test(tc, test_prefix_is_read);
	suite_add_tcase(s, tc);
	tc = tcase_create("turns");
	tcase_add_checked_fixture(tc, setup_starve, teardown);
	tcase_add_test(tc, test_swapped_sequence_lets_other_pass);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return sh_run(suite());
}
