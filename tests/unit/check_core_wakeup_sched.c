// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_wakeup_sched.c - waiting sequences are tried again when they can run
 *
 * A sequence that was refused memory is tried again only after a kick of its
 * domain (notify.c).  In each test a sequence waits, and one event makes its
 * admission possible without freeing a block for it.  The sequence has to be
 * admitted in that event.  No tick follows, since ticks try some sequences again
 * in any case.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define POOL	16u	/* blocks */
#define MOST	64u	/* copies in flight */
#define SLOT	(2 * SH_EXTENT)
#define LONG	3600000u	/* ms: longer than any test */

static struct core *c;
static u32 cl, other;
static struct core_copy copies[MOST];
static u32 nr_copies;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MOST);
	copies[nr_copies++] = *cp;
}

/* Answer all copies, the newest first. */
static void copies_done(void)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(c, sh.now, id, 0));
		sh_settle();
	}
}

static void setup_as(u32 extents, u32 slots)
{
	sh_on_copy = on_copy;
	nr_copies = 0;
	sh_config(extents);
	sh.cfg.host_bytes = slots * SLOT;
	sh.cfg.swappiness = 200;
	sh.cfg.starve_ns = LONG * MS;
	sh_start();
	c = sh.core;
}

/* One client, and memory for all of its domain's pool. */
static void setup(void)
{
	setup_as(POOL / SH_PER, 16);
	cl = sh_attach(1, "a");
	sh_warm(cl);
}

/* And a client of another domain of its tenant. */
static void setup_two(void)
{
	setup();
	other = sh_attach(1, "b");
}

static void teardown(void)
{
	sh_stop();
}

/* A sequence of @client that is not indexed and has its ids. */
static u64 asks(u32 client, u32 tokens, u32 more)
{
	struct kvmm_open_arg a = {
		.prompt_len = tokens, .max_tokens = more,
		.flags = KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH,
	};
	u64 seq;

	ck_assert_int_eq(sh_open_as(client, &a, &seq), 0);
	ck_assert_int_eq(sh_match(client, seq, tokens, 7), 0);
	return seq;
}

/* A sequence of @client that waits. */
static u64 waits(u32 client, u32 blocks)
{
	u64 seq = asks(client, blocks * SH_BT, 0);

	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_WAITING);
	return seq;
}

/* A running sequence of @client with @tokens computed. */
static u64 runs(u32 client, u32 tokens, u32 more)
{
	u64 seq = asks(client, tokens, more);

	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_READY);
	sh_compute(client, seq, 0, tokens, 7);
	return seq;
}

static int len_verb(u32 client, u16 op, u64 seq, u32 len)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;
	int err;

	*a = (struct kvmm_len_arg){ .seq = seq, .len = len };
	ck_assert_int_eq(sh_submit(client, op, 1, 0, sizeof(*a)), 0);
	err = sh_seq_res(0);
	sh_settle();
	return err;
}

static int advise(u32 client, u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	int err;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(sh_submit(client, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	err = sh_seq_res(0);
	sh_settle();
	return err;
}

static void truncate_to(u32 client, u64 seq, u32 len)
{
	ck_assert_int_eq(len_verb(client, KVMM_OP_SEQ_TRUNCATE, seq, len), 0);
}

static void set_priority(u32 client, u64 seq, u32 priority)
{
	struct kvmm_prio_arg *a = (struct kvmm_prio_arg *)sh.args;

	*a = (struct kvmm_prio_arg){ .seq = seq, .priority = priority };
	ck_assert_int_eq(sh_submit(client, KVMM_OP_SEQ_SETPRIO, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

/* An event that changes nothing. */
static void nothing(u32 client)
{
	ck_assert_int_eq(sh_submit(client, KVMM_OP_NOP, 0, 0, 0), 0);
	sh_settle();
}

static void remap(u32 client, u64 child, u64 from)
{
	struct kvmm_remap_arg *a = (struct kvmm_remap_arg *)sh.args;

	*a = (struct kvmm_remap_arg){ .child = child, .other = from };
	ck_assert_int_eq(sh_submit(client, KVMM_OP_SEQ_REMAP, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

#define assert_runs(client, seq)	\
	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_READY)
#define assert_waits(client, seq)	\
	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_WAITING)

/* ---- the wait list ---- */

/* The first waiting sequence is closed: the one behind it fits. */
START_TEST(test_first_waiter_closes)
{
	u64 first, second;

	(void)runs(cl, 4 * SH_BT, 0);
	first = waits(cl, 14);
	second = waits(cl, 12);
	ck_assert_int_eq(sh_close(cl, first), 0);
	assert_runs(cl, second);
}
END_TEST

/* A sequence that fits passes the first waiting one by its priority. */
START_TEST(test_priority_passes_first_waiter)
{
	u64 first, second;

	(void)runs(cl, 4 * SH_BT, 0);
	first = waits(cl, 14);
	second = waits(cl, 12);
	set_priority(cl, second, 1);
	assert_runs(cl, second);
	assert_waits(cl, first);
}
END_TEST

/* ---- the min watermark falls ---- */

/*
 * Two forks share an open tail, which counts as two blocks.  The first append
 * copies the tail for one block, and the other fork writes in place.
 */
START_TEST(test_shared_tail_is_copied)
{
	u64 seq = runs(cl, SH_BT + 1, 8 * SH_BT), kid, waiter;

	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	/* Of 14 free blocks 4 are for growth. */
	waiter = waits(cl, 11);
	ck_assert_int_eq(sh_begin(cl, kid, SH_BT + 1, 1), 0);
	assert_runs(cl, waiter);
}
END_TEST

/* A fork gets a table that ends with a full block: its tail has one sharer left. */
START_TEST(test_shared_tail_is_left)
{
	u64 seq = runs(cl, SH_BT + 1, 8 * SH_BT), kid, full, waiter;

	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &full), 0);
	sh_compute(cl, full, SH_BT + 1, 2 * SH_BT, 7);
	/* Of 13 free blocks 3 are for growth, and 2 for the shared tail. */
	waiter = waits(cl, 10);
	remap(cl, kid, full);
	assert_runs(cl, waiter);
}
END_TEST

/* A sequence that is closed in an open step grows no more. */
START_TEST(test_closing_sequence_grows_no_more)
{
	u64 seq = runs(cl, 2 * SH_BT, 8 * SH_BT), waiter;

	ck_assert_int_eq(sh_begin(cl, seq, 2 * SH_BT, 1), 0);
	/* Three blocks are in use, and the next one of the sequence is kept. */
	waiter = waits(cl, 13);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	assert_runs(cl, waiter);
}
END_TEST

/* A running sequence without a block ends, and grows no more. */
START_TEST(test_empty_sequence_ends)
{
	u64 seq = runs(cl, SH_BT, 8 * SH_BT), waiter;

	truncate_to(cl, seq, 0);
	waiter = waits(cl, 16);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	assert_runs(cl, waiter);
}
END_TEST

/* ---- reservations ---- */

/*
 * A sequence gets the table of its fork, which is longer: it needs its
 * reservation no more.
 */
START_TEST(test_remap_ends_reservation)
{
	u64 seq = asks(cl, 6 * SH_BT, 0), kid, waiter;

	sh_compute(cl, seq, 0, SH_BT, 7);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	sh_compute(cl, kid, SH_BT, 6 * SH_BT, 7);
	/* Six blocks are in use, five are reserved. */
	waiter = waits(cl, 10);
	remap(cl, seq, kid);
	assert_runs(cl, waiter);
}
END_TEST

/* ---- other domains of the tenant ---- */

/*
 * A reservation that no block was taken of is given back: its span is for the
 * other domain.
 */
START_TEST(test_unused_reservation_ends)
{
	u64 seq = asks(cl, 13 * SH_BT, 0), waiter = waits(other, 4);

	ck_assert_int_eq(sh_close(cl, seq), 0);
	assert_runs(other, waiter);
}
END_TEST

/* A sequence without a block ends: its commitment is free for the other domain. */
START_TEST(test_commitment_ends)
{
	u64 seq = runs(cl, SH_BT, 8 * SH_BT), waiter;

	ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_overcommit,
				   CORE_OVERCOMMIT_NEVER), 0);
	truncate_to(cl, seq, 0);
	waiter = asks(other, SH_BT, 8 * SH_BT);
	assert_waits(other, waiter);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	assert_runs(other, waiter);
}
END_TEST

/*
 * A sequence grows until its domain is within its memory.max only without the
 * waiting one.  The domain is tried again, and does not hold back others any more.
 */
START_TEST(test_growth_reaches_max)
{
	u64 grows = runs(cl, 4 * SH_BT, 8 * SH_BT), waiter;

	(void)runs(other, 8 * SH_BT, 0);
	ck_assert_int_eq(core_domain_set(c, sh.now, 0, CORE_LIMIT_MAX,
					 10 * SH_BLOCK), 0);
	waiter = waits(cl, 5);
	ck_assert_uint_eq(c->domains[0].stalled, 5);
	ck_assert_uint_eq(seq_find(c, cl, waiter)->psi_node, PSI_STALLED);
	ck_assert_uint_eq(sh_domain(cl).nr_max_events, 0);
	ck_assert_int_eq(sh_begin(cl, grows, 4 * SH_BT, SH_BT + 1), 0);
	ck_assert_uint_eq(sh_domain(cl).nr_max_events, 1);
	ck_assert_uint_eq(c->domains[0].stalled, 0);
	/* Its own domain alone keeps it waiting now: no pressure of the node. */
	ck_assert_uint_eq(seq_find(c, cl, waiter)->psi_node, PSI_IDLE);
	nothing(cl);
	ck_assert_uint_eq(sh_domain(cl).nr_max_events, 1);
}
END_TEST

/* A sequence of @blocks is swapped out until the test says so. */
static u64 pages_out(u32 blocks)
{
	u64 seq = runs(cl, blocks * SH_BT, 0);

	ck_assert_int_eq(advise(cl, seq, KVMM_ADV_PAGEOUT), 0);
	copies_done();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	return seq;
}

/*
 * Eviction frees no block, since an open step copies from it: the next event
 * takes an empty span of the other domain.  @_i: for a swapped sequence.
 */
START_TEST(test_evicted_block_is_read)
{
	u64 swapped = _i ? pages_out(1) : 0, gone, waiter;
	u64 seq = sh_ready(cl, SH_BT, 4 * SH_BT, 0);

	c->head->clean_after = ~0ull;	/* evicted blocks get no copies */
	sh_compute(cl, seq, 0, SH_BT, 0);
	truncate_to(cl, seq, SH_BT / 2);
	gone = runs(other, 3 * SH_BT, 0);
	ck_assert_int_eq(sh_begin(cl, seq, SH_BT / 2, 1), 0);
	/* A restore wants one block more than it needs. */
	(void)asks(cl, (9 - (u32)_i) * SH_BT, 0);
	ck_assert_int_eq(sh_close(other, gone), 0);
	ck_assert_uint_eq(sh_pool().nr_free_extents, 0);
	if (_i)
		ck_assert_int_eq(advise(cl, swapped, KVMM_ADV_WILLNEED), 0);
	waiter = _i ? swapped : waits(cl, 1);
	ck_assert_uint_eq(sh_pool().quiescing, SH_BLOCK);
	ck_assert_uint_eq(sh_state(cl, waiter),
			  _i ? KVMM_SEQ_SWAPPED : KVMM_SEQ_WAITING);
	nothing(cl);
	copies_done();
	assert_runs(cl, waiter);
}
END_TEST

/* ---- a prefix that goes while room is made ---- */

/* Two domains, and a host pool of four slots. */
static void setup_four_slots(void)
{
	setup_as(POOL / SH_PER, 4);
	cl = sh_attach(1, "a");
	sh_warm(cl);
	other = sh_attach(1, "b");
}

/*
 * A sequence within memory.min finds its prefix in the host pool.  A family of four
 * blocks is swapped out for it, and gets the slot and the record of the prefix.
 */
START_TEST(test_prefix_makes_room)
{
	struct core_tier_view v;
	u64 seq, waiter;
	u32 i;

	ck_assert_int_ge(core_drop_caches(c, sh.now, 0, POOL), 0);
	seq = sh_ready(cl, SH_BT, 0, 0);
	sh_compute(cl, seq, 0, SH_BT, 0);
	ck_assert_int_eq(advise(cl, seq, KVMM_ADV_PAGEOUT), 0);
	copies_done();
	ck_assert_int_eq(core_get_tier(c, CORE_POOL_HOST, &v), 0);
	ck_assert_uint_eq(v.used, SLOT);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	for (i = 0; i < POOL / 4; i++)
		(void)runs(other, 4 * SH_BT, 0);
	ck_assert_int_eq(core_domain_set(c, sh.now, 0, CORE_LIMIT_MIN,
					 4 * SH_BLOCK), 0);
	waiter = sh_open(cl, 2 * SH_BT, 0);
	ck_assert_int_eq(sh_match(cl, waiter, 2 * SH_BT, 0), 0);
	copies_done();
	sh_tick(1);
	assert_runs(cl, waiter);
	ck_assert_uint_eq(sh_status(cl, waiter)->cached_len, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), 1);
	sh_compute(cl, waiter, 0, 2 * SH_BT, 0);
}
END_TEST

/* ---- growth that was refused ---- */

#define STARVE	50u	/* ms */

/* With a host pool, and no long wait. */
static void setup_growth(void)
{
	sh_on_copy = on_copy;
	nr_copies = 0;
	sh_config(POOL / SH_PER);
	sh.cfg.host_bytes = 16 * SLOT;
	sh.cfg.swappiness = 200;
	sh.cfg.starve_ns = STARVE * MS;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
}

/*
 * A sequence of 7 blocks loses its memory to another one, which is refused
 * meanwhile, and whose client does not ask again.
 */
static u64 loses_to_growth(void)
{
	u64 victim = runs(cl, 6 * SH_BT, SH_BT), grows;

	grows = runs(cl, 8 * SH_BT, 8 * SH_BT);
	set_priority(cl, grows, 1);
	ck_assert_int_eq(sh_begin(cl, victim, 6 * SH_BT, 1), 0);
	ck_assert_int_eq(sh_begin(cl, grows, 8 * SH_BT, 2 * SH_BT), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, victim), KVMM_SEQ_MARKED);
	ck_assert_int_eq(sh_end_step(cl, sh.cl[cl].step - 1, victim, 6 * SH_BT,
				     6 * SH_BT, 7), 0);
	return victim;
}

/* It waits for the growth until starve_ns have passed.  @_i: it is swapped out. */
START_TEST(test_refused_growth_is_forgotten)
{
	u64 victim;

	ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_swappiness,
				   _i ? 200 : 0), 0);
	victim = loses_to_growth();
	copies_done();
	if (!_i)
		ck_assert_int_eq(sh_match(cl, victim, 6 * SH_BT, 7), 0);
	ck_assert_uint_eq(sh_state(cl, victim), _i ? KVMM_SEQ_SWAPPED :
						     KVMM_SEQ_WAITING);
	sh.now += STARVE * MS - 1;
	nothing(cl);
	ck_assert_uint_eq(sh_state(cl, victim), _i ? KVMM_SEQ_SWAPPED :
						     KVMM_SEQ_WAITING);
	sh.now++;
	nothing(cl);
	ck_assert_uint_eq(sh_state(cl, victim), _i ? KVMM_SEQ_RESTORING :
						     KVMM_SEQ_READY);
	copies_done();
	assert_runs(cl, victim);
}
END_TEST

/* ---- table pages ---- */

#define PER_PAGE	((u32)KVMM_TABLE_ENTRIES)

/* Two clients of a domain, each with two table pages. */
static void setup_pages(void)
{
	sh_config(POOL / SH_PER + PER_PAGE / SH_PER);
	sh.cfg.nr_tables = 2;
	sh.cfg.starve_ns = LONG * MS;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
	other = sh_attach(1, "a");
}

/*
 * A sequence is marked for a table page of its client.  It grows no more, so a
 * sequence of the other client fits.
 */
START_TEST(test_marked_sequence_grows_no_more)
{
	u64 victim = runs(cl, 2 * SH_BT, 8 * SH_BT), grows, waiter;
	u32 left = (u32)(sh_pool().total / SH_BLOCK) - 3 - PER_PAGE;

	grows = runs(cl, PER_PAGE * SH_BT, 8 * SH_BT);
	set_priority(cl, grows, 1);
	ck_assert_int_eq(sh_begin(cl, victim, 2 * SH_BT, 1), 0);
	waiter = waits(other, left - 1);
	ck_assert_int_eq(sh_begin(cl, grows, PER_PAGE * SH_BT, 1), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, victim), KVMM_SEQ_MARKED);
	assert_runs(other, waiter);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("core_wakeup_sched");
	TCase *tc = tcase_create("one domain");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_first_waiter_closes);
	tcase_add_test(tc, test_priority_passes_first_waiter);
	tcase_add_test(tc, test_shared_tail_is_copied);
	tcase_add_test(tc, test_shared_tail_is_left);
	tcase_add_test(tc, test_closing_sequence_grows_no_more);
	tcase_add_test(tc, test_empty_sequence_ends);
	tcase_add_test(tc, test_remap_ends_reservation);
	suite_add_tcase(s, tc);
	tc = tcase_create("two domains");
	tcase_add_checked_fixture(tc, setup_two, teardown);
	tcase_add_test(tc, test_unused_reservation_ends);
	tcase_add_test(tc, test_commitment_ends);
	tcase_add_test(tc, test_growth_reaches_max);
	tcase_add_loop_test(tc, test_evicted_block_is_read, 0, 2);
	suite_add_tcase(s, tc);
	tc = tcase_create("growth");
	tcase_add_checked_fixture(tc, setup_growth, teardown);
	tcase_add_loop_test(tc, test_refused_growth_is_forgotten, 0, 2);
	suite_add_tcase(s, tc);
	tc = tcase_create("prefix");
	tcase_add_checked_fixture(tc, setup_four_slots, teardown);
	tcase_add_test(tc, test_prefix_makes_room);
	suite_add_tcase(s, tc);
	tc = tcase_create("pages");
	tcase_add_checked_fixture(tc, setup_pages, teardown);
	tcase_add_test(tc, test_marked_sequence_grows_no_more);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return sh_run(suite());
}
