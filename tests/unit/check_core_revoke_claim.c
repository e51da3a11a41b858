// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_revoke_claim.c - extents that may be asked back, and claims given up
 *
 * The pool of span_scene.h.  "t" takes extents of "x" and "y", which are domains of
 * another tenant.  The tests set the times in the records, so no walkers run.
 */
#include "tests/unit/span_scene.h"

#define STARVE	(1ull << 40)	/* ns, as in span_scene.h */

static void scene(const char *spans)
{
	domain('x', 2, 1);
	domain('y', 2, 1);
	layout(spans);
	wait_long();
	sh_unchecked = true;
}

static struct kv_seq *waiter(char letter, u64 since)
{
	u32 cl = owner[(int)letter];
	u64 seq = sh_open(cl, 4 * SH_BT, 0);
	struct kv_seq *s;

	/* Of its extents none may go meanwhile. */
	c->head->nr_revokes = CORE_MAX_REVOKES;
	ck_assert_int_eq(sh_match(cl, seq, 4 * SH_BT, 90000), 0);
	c->head->nr_revokes = 0;
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	s = seq_find(c, cl, seq);
	s->since = sh.now - since;
	return s;
}

static bool may(u32 e)
{
	c->now = sh.now;
	SH_CORE(revoke_prepare(c, dom_of('t')));
	return revoke_may(c, e);
}

/* ---- extents that may go ---- */

START_TEST(test_extent_stays_for_starve_ns)
{
	scene("XXXXYTTT");
	ck_assert(may(0));
	c->extents[0].since = sh.now - STARVE + 1;
	ck_assert(!may(0));
	c->extents[0].since--;
	ck_assert(may(0));
	/* A promise does not wait for that, up to the last block of it. */
	c->extents[0].since = sh.now;
	protect('t', 13);
	ck_assert(may(0));
	protect('t', 12);
	ck_assert(!may(0));
}
END_TEST

START_TEST(test_claimed_extent_and_last_record)
{
	scene("XXXXYTTT");
	c->extents[0].want = 1;
	ck_assert(!may(0));
	ck_assert(may(1));
	c->head->nr_revokes = CORE_MAX_REVOKES - 1;
	ck_assert(may(1));
	c->head->nr_revokes = CORE_MAX_REVOKES;
	ck_assert(!may(1));
	c->head->nr_revokes = 0;
}
END_TEST

/* A tenant with a sequence that waits longer keeps its extents. */
START_TEST(test_longer_waiter_keeps)
{
	struct kv_seq *mine, *theirs;

	scene("XXXXYTTT");
	theirs = waiter('x', 5);
	ck_assert(!may(0));
	ck_assert(!may(4));
	/* Of two that have waited as long the earlier arrival keeps. */
	mine = waiter('t', 5);
	ck_assert_uint_lt(theirs->arrival, mine->arrival);
	ck_assert(!may(0));
	theirs->arrival = mine->arrival + 1;
	ck_assert(may(0));
	mine->since++;
	ck_assert(!may(0));
	protect('t', 13);
	ck_assert(may(0));
	protect('t', 0);
	/* A waiting sequence that could not use them keeps none. */
	d_of('x')->dev.max_blocks = 16;
	ck_assert(may(0));
	d_of('x')->dev.max_blocks = 1000;
	ck_assert(!may(0));
	theirs->since = sh.now;
	ck_assert(may(0));
}
END_TEST

/* A client that maps nothing for starve_ns keeps nothing. */
START_TEST(test_waiter_of_a_slow_client)
{
	struct kv_client *cl;

	scene("XXXXYTTT");
	waiter('x', 5);
	cl = &c->clients[owner['x']];
	cl->nr_unacked = 1;
	cl->unacked_since = sh.now - STARVE;
	ck_assert(may(0));
	cl->unacked_since++;
	ck_assert(!may(0));
	cl->unacked_since--;
	cl->nr_unacked = 0;
	ck_assert(!may(0));
}
END_TEST

START_TEST(test_haunted_runs)
{
	scene("XXXXYTTT");
	c->extents[2].haunted = 1;
	ck_assert_uint_eq(d_of('t')->dev.span_extents, 1);
	ck_assert(!revoke_haunted(c, (u32)(d_of('t') - c->domains), 1));
	ck_assert(revoke_haunted(c, (u32)(d_of('t') - c->domains), 2));
	ck_assert(!revoke_haunted(c, (u32)(d_of('t') - c->domains), 3));
}
END_TEST

/* ---- claims ---- */

START_TEST(test_event_names_the_extent)
{
	const struct kvmm_event *ev;

	scene("XXxXYTTT");
	ck_assert(steal('t', true));
	ck_assert_str_eq(map(), "XX!XYTTT");
	ev = &sh.cl[owner['x']].events[(sh.cl[owner['x']].ctl.event_tail - 1) %
				       SH_EVENTS];
	ck_assert_uint_eq(ev->type, KVMM_EV_REVOKE);
	ck_assert_uint_eq(ev->index, 2);
	ck_assert_uint_eq(ev->seq, 0);
	ck_assert_uint_eq(c->extents[2].deadline, sh.now + 2000 * MS);
}
END_TEST

static void claim(u32 nr)
{
	struct kv_seq *s = seq_find(c, t, sh_open(t, SH_BT, 0));
	enum verdict verdict;

	s->since = c->now = sh.now;
	SH_CORE(verdict = displace(c, s, nr, true));
	ck_assert_int_eq(verdict, ROOM_MADE);
}

/* The span of a claim that is given up is put back, and no other. */
START_TEST(test_claim_given_up)
{
	struct kv_zone *z = &c->head->zones[0];

	scene("XXXXYTTT");
	ck_assert_int_eq(sh_begin(owner['x'], runs[0], 3 * SH_BT + 1, 1), 0);
	claim(4);
	ck_assert_uint_eq(c->head->nr_revokes, 1);
	ck_assert_uint_eq(d_of('t')->nr_revokes, 1);
	ck_assert(span_is_isolated(&c->spans[0]));
	ck_assert_int_eq(span_isolate(c, 1), 0);
	z->nr_online = 1;
	SH_CORE(revoke_abandon_from(c));
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_abandon), 0);
	z->nr_online = 0;
	SH_CORE(revoke_abandon_from(c));
	z->nr_online = z->nr_extents;
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_abandon), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_span_putback), 1);
	ck_assert(span_is_isolated(&c->spans[1]));
	ck_assert_uint_eq(d_of('t')->nr_revokes, 0);
	ck_assert_uint_eq(d_of('t')->dev.pending_spans, 0);
	ck_assert_uint_eq(d_of('t')->displace_after, sh.now + 20 * MS);
}
END_TEST

/* Waiting sequences of all domains look again when time passes. */
START_TEST(test_waiters_look_again)
{
	scene("XXXXYTTT");
	waiter('t', 5);
	d_of('t')->retry = d_of('x')->retry = 0;
	SH_CORE(revoke_tick(c));
	ck_assert_uint_eq(d_of('t')->retry, 1);
	ck_assert_uint_eq(d_of('x')->retry, 0);
}
END_TEST

/* ---- deadlines ---- */

START_TEST(test_extent_that_is_overdue)
{
	scene("XXXXYTTT");
	SH_CORE(extent_overdue(c, 0, false));
	ck_assert_uint_eq(sh.cl[owner['x']].killed, 0);
	ck_assert_uint_eq(sh.nr_kill_ghosts, 0);
	ck_assert_uint_eq(c->extents[0].deadline, c->now + 2000 * MS);
	c->extents[0].haunted = 1;
	SH_CORE(extent_overdue(c, 0, true));
	ck_assert_uint_eq(sh.cl[owner['x']].killed, 1);
	ck_assert_uint_eq(sh.cl[owner['y']].killed, 1);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_kill), 2);
	ck_assert_uint_eq(sh.nr_kill_ghosts, 1);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_ghosts), 1);
	ck_assert_uint_eq(c->extents[0].haunted, 1);
	/* An order to end is given once. */
	SH_CORE(extent_overdue(c, 0, true));
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_kill), 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_revoke_claim");
	TCase *tc = tcase_create("revoke_claim");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_extent_stays_for_starve_ns);
	tcase_add_test(tc, test_claimed_extent_and_last_record);
	tcase_add_test(tc, test_longer_waiter_keeps);
	tcase_add_test(tc, test_waiter_of_a_slow_client);
	tcase_add_test(tc, test_haunted_runs);
	tcase_add_test(tc, test_event_names_the_extent);
	tcase_add_test(tc, test_claim_given_up);
	tcase_add_test(tc, test_waiters_look_again);
	tcase_add_test(tc, test_extent_that_is_overdue);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
