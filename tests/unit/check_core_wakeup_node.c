// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_wakeup_node.c - events of the node that let waiting sequences run
 *
 * A sequence that was refused memory is tried again only after a kick of its
 * domain (notify.c).  Here memory changes hands, returns from a client, is made
 * again, or a span of another domain can be emptied.  The waiting sequence has to
 * be tried in that event.  Ticks look again at stalled domains now and then;
 * tests that need a tick have it at a time when that is not due.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define POOL	16u		/* blocks */
#define LONG	3600000u	/* ms: longer than any test */
#define STARVE	80u		/* ms */
#define LOOK	(STARVE / 8)	/* ms between two looks at stalled domains */
#define MOST	64u		/* copies in flight */

static struct core *c;
static u32 one, two;		/* clients */
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

static void setup_as(u32 extents, u32 starve, u32 host)
{
	sh_on_copy = on_copy;
	nr_copies = 0;
	sh_config(extents);
	sh.cfg.starve_ns = starve * MS;
	sh.cfg.step_deadline_ns = LONG * MS;
	sh.cfg.host_bytes = host * 2 * SH_EXTENT;
	sh.cfg.swappiness = 200;
	sh_start();
	c = sh.core;
	one = sh_attach(1, "a");
}

/* A client in a pool of 4 extents, which have no memory yet. */
static void setup(void)
{
	setup_as(POOL / SH_PER, LONG, 0);
	sh_tick(1);
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

static u64 waits(u32 client, u32 blocks)
{
	u64 seq = asks(client, blocks * SH_BT, 0);

	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_WAITING);
	return seq;
}

static u64 runs(u32 client, u32 tokens, u32 more)
{
	u64 seq = asks(client, tokens, more);

	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_READY);
	sh_compute(client, seq, 0, tokens, 7);
	return seq;
}

static void set_priority(u32 client, u64 seq, u32 priority)
{
	struct kvmm_prio_arg *a = (struct kvmm_prio_arg *)sh.args;

	*a = (struct kvmm_prio_arg){ .seq = seq, .priority = priority };
	ck_assert_int_eq(sh_submit(client, KVMM_OP_SEQ_SETPRIO, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

static void advise(u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(sh_submit(one, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

/* An event that changes nothing. */
static void nothing(u32 client)
{
	ck_assert_int_eq(sh_submit(client, KVMM_OP_NOP, 0, 0, 0), 0);
	sh_settle();
}

#define assert_runs(client, seq)	\
	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_READY)
#define assert_waits(client, seq)	\
	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_WAITING)

/* ---- memory is made, or returns ---- */

/* No memory could be made: the sequence is tried again a second later. */
START_TEST(test_memory_is_made_later)
{
	u64 waiter;
	u32 e;

	sh_manual_make = true;
	waiter = waits(one, 4);
	for (e = 0; !sh.creating[e]; e++)
		;
	sh_made(e, -ENOMEM);
	sh_tick(999);
	ck_assert_uint_eq(sh.nr_creates, 1);
	sh_tick(1);
	ck_assert_uint_eq(sh.nr_creates, 2);
	sh_manual_make = false;
	sh_settle();
	assert_runs(one, waiter);
}
END_TEST

/* Extents were asked back by a shrink, which was called off before they came. */
START_TEST(test_extents_return_after_shrink)
{
	u64 waiter;
	u32 e;

	sh_warm(one);
	sh.cl[one].stubborn = true;
	ck_assert_int_eq(core_pool_resize(c, sh.now, 0, 2 * SH_EXTENT), 0);
	ck_assert_int_eq(core_pool_resize(c, sh.now, 0, 4 * SH_EXTENT), 0);
	waiter = waits(one, 12);
	for (e = 2; e < 4; e++)
		ck_assert_int_eq(sh_unmapped(one, e), 0);
	sh.cl[one].stubborn = false;
	assert_waits(one, waiter);
	sh_tick(1);
	assert_runs(one, waiter);
}
END_TEST

/* The device fails: a sequence that needs more than is there is told so at once. */
START_TEST(test_device_cut_fails_waiter)
{
	u64 waiter;

	(void)runs(one, 8 * SH_BT, 0);
	waiter = waits(one, 13);
	ck_assert_uint_eq(sh_domain(one).nr_spans, 3);
	SH_CORE(core_device_failed(c, sh.now, 0, CORE_DEVICE_CUT));
	sh_settle();
	ck_assert_uint_eq(sh_state(one, waiter), KVMM_SEQ_FAILED);
	ck_assert_int_eq(sh_status(one, waiter)->reason, -EDQUOT);
}
END_TEST

/* The first tick of the next core has memory made for the waiting sequence. */
START_TEST(test_device_works_again)
{
	struct core_report r;
	u64 waiter;

	(void)runs(one, 8 * SH_BT, 0);
	SH_CORE(core_device_failed(c, sh.now, 0, CORE_DEVICE_CUT));
	waiter = waits(one, 5);
	ck_assert_uint_eq(sh.nr_creates, 3);
	ck_assert_int_eq(core_adopt(c, sh.arena, core_arena_size(&sh.cfg), &sh.cfg,
				    &sh_ops, NULL, sh.now, &r), CORE_ADOPT_WHOLE);
	sh_tick(1);
	ck_assert_uint_eq(sh.nr_creates, 4);
	ck_assert_uint_eq(seq_find(c, one, waiter)->state, KVMM_SEQ_WAITING);
}
END_TEST

/* ---- memory of another tenant ---- */

/* Two tenants; the first one has all memory. */
static void setup_tenants(void)
{
	setup_as(POOL / SH_PER, STARVE, 0);
	sh_warm(one);
	two = sh_attach(2, "b");
}

/* The last lingering process of the other tenant ends. */
START_TEST(test_ghost_ends)
{
	u64 waiter;

	ck_assert_int_eq(sh_submit(one, KVMM_OP_DETACH, 0, 0, 0), 0);
	sh_quiet(one);
	waiter = waits(two, 4);
	SH_CORE(core_ghost_gone(c, sh.now, sh.cl[one].info.tenant));
	sh_settle();
	assert_runs(two, waiter);
}
END_TEST

/* The extents have been with the other tenant for starve_ns. */
START_TEST(test_extents_have_stayed)
{
	u64 waiter;

	sh_tick(STARVE / 2);
	waiter = waits(two, 4);
	sh_tick(STARVE / 2 - 1);
	assert_waits(two, waiter);
	sh_tick(1);
	assert_runs(two, waiter);
}
END_TEST

/*
 * An extent is asked back that a client of the other tenant has not mapped yet: the
 * sequences of that client need not wait for it.
 */
START_TEST(test_extent_need_not_be_mapped)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 mate, last = 0, e;
	u64 waiter;

	ck_assert_int_eq(sh_close(one, runs(one, POOL * SH_BT, 0)), 0);
	(void)runs(one, SH_BT, 0);
	sh.cl[one].stubborn = true;
	mate = (u32)sh_attach_as(1, &req);
	sh.cl[mate].stubborn = true;
	while (c->extents[last].state != EXT_BACKED)
		last++;
	for (e = 0; e < POOL / SH_PER; e++)
		if (e != last)
			ck_assert_int_eq(sh_ack(mate, e), 0);
	sh_tick(STARVE);
	waiter = waits(mate, 1);
	(void)waits(two, 4);
	ck_assert_uint_eq(sh.cl[one].extents[last].state, KVMM_EXTENT_REVOKE);
	assert_runs(mate, waiter);
}
END_TEST

/*
 * A run was given up while its extent was asked back: when the extent returns, the
 * other tenant may have it again.
 */
START_TEST(test_given_up_run_returns)
{
	u64 gone, waiter;
	u32 e = 0;

	sh_tick(STARVE);
	sh.cl[one].stubborn = true;
	gone = waits(two, 4);
	while (sh.cl[one].extents[e].state != KVMM_EXTENT_REVOKE)
		e++;
	ck_assert_int_eq(sh_close(two, gone), 0);
	sh_tick(1);
	waiter = waits(one, POOL);
	ck_assert_int_eq(sh_unmapped(one, e), 0);
	sh.cl[one].stubborn = false;
	sh_settle();
	assert_runs(one, waiter);
}
END_TEST

/* ---- spans of another domain ---- */

/* Two domains of a tenant, which has all memory. */
static void setup_domains(void)
{
	setup_as(POOL / SH_PER, STARVE, 16);
	sh_warm(one);
	two = sh_attach(1, "b");
}

/* Two sequences of a block with @tokens, each in a span of its own. */
static void one_each(u32 tokens, u64 *seq)
{
	u64 gone = runs(one, 3 * SH_BT, 0);

	seq[0] = runs(one, tokens, 8 * SH_BT);
	seq[1] = runs(one, tokens, 8 * SH_BT);
	ck_assert_int_eq(sh_close(one, gone), 0);
}

/*
 * A span could not be emptied in time.  Spans are emptied again after a pause, and
 * nothing but the time tells.
 */
START_TEST(test_span_is_emptied_after_pause)
{
	u64 seq[2];

	one_each(SH_BT / 2, seq);
	(void)runs(two, 8 * SH_BT, 0);
	ck_assert_int_eq(sh_begin(one, seq[1], SH_BT / 2, 1), 0);
	(void)waits(two, 4);
	ck_assert_uint_eq(sh_count(CORE_EV_migrate_begin), 1);
	sh_tick(LOOK);
	ck_assert_uint_eq(sh_count(CORE_EV_span_putback), 1);
	sh_tick(LOOK - 1);
	ck_assert_uint_eq(sh_count(CORE_EV_migrate_begin), 1);
	sh_tick(1);
	ck_assert_uint_eq(sh_count(CORE_EV_migrate_begin), 2);
}
END_TEST

/*
 * A span is not released, since an open step copies from its cached block.  The
 * next event takes the other span of cache.
 */
START_TEST(test_other_span_is_stolen)
{
	u64 gone[2], seq, waiter;
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;
	u32 mate = sh_attach(1, "a");

	sh.core->head->clean_after = ~0ull;	/* evicted blocks get no copies */
	gone[0] = sh_ready(mate, 4 * SH_BT, 0, 500);
	sh_compute(mate, gone[0], 0, 4 * SH_BT, 500);
	seq = sh_ready(one, SH_BT, 4 * SH_BT, 0);
	sh_compute(one, seq, 0, SH_BT, 0);
	gone[1] = runs(one, 3 * SH_BT, 0);
	*a = (struct kvmm_len_arg){ .seq = seq, .len = SH_BT / 2 };
	ck_assert_int_eq(sh_submit(one, KVMM_OP_SEQ_TRUNCATE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_begin(one, seq, SH_BT / 2, 1), 0);
	(void)runs(mate, 3 * SH_BT, 0);
	(void)runs(two, 4 * SH_BT, 0);
	ck_assert_int_eq(sh_close(mate, gone[0]), 0);
	ck_assert_int_eq(sh_close(one, gone[1]), 0);
	ck_assert_uint_eq(sh_pool().cached, 5 * SH_BLOCK);
	waiter = waits(two, 4);
	ck_assert_uint_eq(sh_pool().quiescing, SH_BLOCK);
	nothing(two);
	assert_runs(two, waiter);
}
END_TEST

/*
 * Within its memory.min a domain has only spans without tails emptied.  A step of
 * the other domain fills such a tail.
 */
START_TEST(test_tail_is_full)
{
	u64 seq[2], waiter;

	ck_assert_int_eq(core_domain_set(c, sh.now, 0, CORE_LIMIT_MIN,
					 4 * SH_BLOCK), 0);
	ck_assert_int_eq(core_domain_set(c, sh.now, 1, CORE_LIMIT_MIN,
					 12 * SH_BLOCK), 0);
	one_each(SH_BT - 1, seq);
	(void)runs(two, 8 * SH_BT, 0);
	waiter = waits(two, 4);
	ck_assert_int_eq(sh_begin(one, seq[0], SH_BT - 1, 1), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_migrate_begin), 0);
	ck_assert_int_eq(sh_end(one, seq[0], SH_BT - 1, SH_BT, 7), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_migrate_begin), 1);
	copies_done();
	assert_runs(two, waiter);
}
END_TEST

/*
 * A sequence of three blocks loses them to the longest-waiting one of the other
 * domain when its step ends.  No span is free then, but one can be emptied now.
 * @_i: it is swapped out, and two blocks have clean copies; else it is recomputed.
 */
START_TEST(test_victim_leaves_room_to_move)
{
	const u32 len = 2 * SH_BT + 1;
	u64 victim = runs(one, len, SH_BT), gone;

	ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_swappiness,
				   _i ? 200 : 0), 0);
	if (_i) {
		advise(victim, KVMM_ADV_PAGEOUT);
		copies_done();
		advise(victim, KVMM_ADV_WILLNEED);
		copies_done();
	}
	set_priority(one, runs(one, 2 * SH_BT, 0), 1);
	sh_compute(one, victim, len, len + 1, 7);
	gone = runs(one, 2 * SH_BT, 0);
	set_priority(one, runs(one, SH_BT, 0), 1);
	set_priority(one, runs(one, SH_BT, 0), 1);
	ck_assert_int_eq(sh_close(one, gone), 0);
	set_priority(two, runs(two, 4 * SH_BT, 0), 1);
	ck_assert_int_eq(sh_begin(one, victim, len + 1, 1), 0);
	(void)waits(two, 4);
	sh_tick(STARVE);
	ck_assert_uint_eq(sh_state(one, victim), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(sh_count(CORE_EV_migrate_begin), 0);
	ck_assert_int_eq(sh_end_empty(one, sh.cl[one].step), 0);
	ck_assert_uint_eq(sh_state(one, victim), _i ? KVMM_SEQ_SWAPPED :
						      KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_count(CORE_EV_migrate_begin), 1);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("core_wakeup_node");
	TCase *tc = tcase_create("memory");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_memory_is_made_later);
	tcase_add_test(tc, test_extents_return_after_shrink);
	tcase_add_test(tc, test_device_cut_fails_waiter);
	tcase_add_test(tc, test_device_works_again);
	suite_add_tcase(s, tc);
	tc = tcase_create("tenants");
	tcase_add_checked_fixture(tc, setup_tenants, teardown);
	tcase_add_test(tc, test_ghost_ends);
	tcase_add_test(tc, test_extents_have_stayed);
	tcase_add_test(tc, test_extent_need_not_be_mapped);
	tcase_add_test(tc, test_given_up_run_returns);
	suite_add_tcase(s, tc);
	tc = tcase_create("domains");
	tcase_add_checked_fixture(tc, setup_domains, teardown);
	tcase_add_test(tc, test_span_is_emptied_after_pause);
	tcase_add_test(tc, test_other_span_is_stolen);
	tcase_add_test(tc, test_tail_is_full);
	tcase_add_loop_test(tc, test_victim_leaves_room_to_move, 0, 2);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return sh_run(suite());
}
