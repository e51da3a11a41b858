// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_revoke.c - memory that changes hands between living tenants
 *
 * The first tenant has all of a pool of eight extents; the second asks for
 * some.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define STARVE	50u		/* ms, of sh_config() */
#define KILL	2000u		/* ms, for a client that keeps an extent */

static u32 one;
static u32 two;

static void setup(void)
{
	sh_config(8);
	sh_start();
	one = sh_attach(1, "a");
	two = sh_attach(2, "b");
}

static void teardown(void)
{
	sh_stop();
}

/* The first tenant has had all of the pool, and uses none of it. */
static void one_has_all(void)
{
	sh_warm(one);
	ck_assert_uint_eq(sh_pool().free_extents + sh_pool().free,
			  sh_pool().total);
	sh_tick(STARVE);
}

/* The second tenant asks for @blocks. */
static u64 two_wants(u32 blocks)
{
	u64 seq = sh_open(two, blocks * SH_BT, 0);

	ck_assert_int_eq(sh_match(two, seq, blocks * SH_BT, 7), 0);
	return seq;
}

/* Number of extents that @cl is asked for; the last of them in *@e. */
static u32 asked(u32 cl, u32 *e)
{
	u32 i, nr = 0;

	*e = 0;
	for (i = 0; i < SH_EXTENTS; i++)
		if (sh.cl[cl].extents[i].state == KVMM_EXTENT_REVOKE) {
			*e = i;
			nr++;
		}
	return nr;
}

/* ---- requests and answers ---- */

START_TEST(test_unused_memory_changes_over)
{
	u32 e, events;
	u64 seq;

	one_has_all();
	sh.cl[one].stubborn = true;
	events = sh.cl[one].ctl.event_tail;
	seq = two_wants(6);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_WAITING);
	/* Six blocks take two spans: both are asked for at once, by events. */
	ck_assert_uint_eq(asked(one, &e), 2);
	ck_assert_uint_eq(sh.cl[one].ctl.event_tail, events + 2);
	ck_assert_uint_eq(sh.cl[one].events[events % SH_EVENTS].type,
			  KVMM_EV_REVOKE);
	ck_assert_uint_eq(sh_pool().revoking, 2 * SH_EXTENT);
	ck_assert_uint_eq(sh_pool().nr_free_extents +
			  sh_domain(one).nr_spans, 6);
	ck_assert_uint_eq(sh.nr_releases, 0);
	sh.cl[one].stubborn = false;
	sh_tick(1);
	ck_assert_uint_eq(sh.nr_releases, 2);
	ck_assert_uint_eq(sh_pool().revoking, 0);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh.cl[one].extents[e].state, KVMM_EXTENT_ABSENT);
	ck_assert_uint_eq(sh.cl[two].extents[e].state, KVMM_EXTENT_MAPPED);
	ck_assert_uint_eq(sh_count(CORE_EV_extent_revoke), 2);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_kill), 0);
}
END_TEST

/* Cache above the protected amount goes with its spans. */
START_TEST(test_cache_changes_over)
{
	u64 a = sh_ready(one, 32 * SH_BT, 0, 0), seq;

	sh_compute(one, a, 0, 32 * SH_BT, 0);
	ck_assert_int_eq(sh_close(one, a), 0);
	ck_assert_uint_eq(sh_pool().cached, sh_pool().total);
	sh_tick(STARVE);
	seq = two_wants(8);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_extent_revoke), 2);
	ck_assert_uint_eq(sh_pool().cached, 6 * SH_EXTENT);
}
END_TEST

/* No client is asked while there are other extents. */
START_TEST(test_cheap_first)
{
	u64 a = sh_ready(one, 4 * SH_BT, 0, 0), seq;

	ck_assert_int_eq(sh_close(one, a), 0);
	sh_tick(STARVE);
	seq = two_wants(20);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_extent_revoke), 0);
}
END_TEST

/*
 * Two domains of a tenant wait for memory of another tenant.  Free spans of
 * either stay with it until they are all that the other one lacks: else the two
 * would take them from each other at every event.
 */
START_TEST(test_free_spans_stay_meanwhile)
{
	u32 three = sh_attach(2, "c"), e, i;
	u64 seq, big, also, cuts;

	seq = sh_ready(one, 12 * SH_BT, 0, 1);
	ck_assert_int_eq(sh_close(one, seq), 0);
	seq = sh_ready(two, 12 * SH_BT, 0, 2);
	ck_assert_int_eq(sh_close(two, seq), 0);
	seq = sh_ready(three, 4 * SH_BT, 0, 3);
	ck_assert_int_eq(sh_close(three, seq), 0);
	sh_tick(STARVE);
	/* Each tenant has half of the pool; spans of "two" and "three" are free. */
	ck_assert_uint_eq(sh_domain(two).nr_spans, 3);
	ck_assert_uint_eq(sh_domain(three).nr_spans, 1);
	sh.cl[one].stubborn = true;
	big = two_wants(24);
	also = sh_open(three, 20 * SH_BT, 0);
	ck_assert_int_eq(sh_match(three, also, 20 * SH_BT, 8), 0);
	ck_assert_uint_eq(asked(one, &e), 3);
	cuts = sh_count(CORE_EV_span_cut);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(sh_submit(two, KVMM_OP_NOP, 0, 0, 0), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_span_cut), cuts);
	ck_assert_uint_eq(sh_domain(three).nr_spans, 1);
	sh.cl[one].stubborn = false;
	sh_settle();
	ck_assert_uint_eq(sh_state(two, big), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(three, also), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(two, big), 0);
	ck_assert_uint_eq(sh_state(three, also), KVMM_SEQ_READY);
}
END_TEST

/* New memory stays for a while; memory.min does not wait for that. */
START_TEST(test_stays_for_a_while)
{
	u32 e;
	u64 seq;

	sh_warm(one);
	sh.cl[one].stubborn = true;
	seq = two_wants(4);
	ck_assert_uint_eq(asked(one, &e), 0);
	sh_tick(STARVE - 1);
	ck_assert_uint_eq(asked(one, &e), 0);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_WAITING);
	sh_tick(1);
	ck_assert_uint_ge(asked(one, &e), 1);
}
END_TEST

START_TEST(test_min_does_not_wait)
{
	u64 seq;

	sh_warm(one);
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now,
		sh.cl[two].info.domain, CORE_LIMIT_MIN, 8 * SH_BLOCK), 0));
	seq = two_wants(4);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
	ck_assert_uint_ge(sh_count(CORE_EV_extent_revoke), 1);
}
END_TEST

/* Every client of the tenant has to answer. */
START_TEST(test_all_clients_answer)
{
	u32 also = sh_attach(1, "a"), e;
	u64 seq;

	one_has_all();
	sh.cl[also].stubborn = true;
	sh.cl[one].stubborn = true;
	seq = two_wants(2);
	ck_assert_uint_eq(asked(one, &e), 1);
	ck_assert_uint_eq(asked(also, &e), 1);
	ck_assert_int_eq(sh_unmapped(one, e), 0);
	ck_assert_uint_eq(sh.nr_releases, 0);
	ck_assert_uint_eq(sh_pool().revoking, SH_EXTENT);
	ck_assert_int_eq(sh_unmapped(also, e), 0);
	sh_settle();
	ck_assert_uint_eq(sh.nr_releases, 1);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
}
END_TEST

/* ---- refused answers ---- */

START_TEST(test_answers_refused)
{
	u32 also = sh_attach(1, "a"), e, i;

	one_has_all();
	sh.cl[one].stubborn = true;
	sh.cl[also].stubborn = true;
	two_wants(2);
	ck_assert_uint_eq(asked(one, &e), 1);
	/* Extents not asked for, another client's answer, another generation. */
	for (i = 0; i < 8; i++)
		if (i != e)
			ck_assert_int_eq(sh_unmapped(one, i), -ESTALE);
	ck_assert_int_eq(sh_unmapped(two, e), -ESTALE);
	sh.cl[one].extents[e].generation++;
	ck_assert_int_eq(sh_unmapped(one, e), -ESTALE);
	sh.cl[one].extents[e].generation--;
	ck_assert_uint_eq(sh_pool().revoking, SH_EXTENT);
	ck_assert_int_eq(sh_unmapped(one, e), 0);
	ck_assert_int_eq(sh_unmapped(one, e), -ESTALE);
	ck_assert_uint_eq(sh.nr_releases, 0);
	/* An extent that is being given back cannot be acknowledged as mapped. */
	sh.cl[also].pending[e] = sh.cl[also].extents[e].generation;
	ck_assert_int_eq(sh_ack(also, e), -ESTALE);
	sh_check();
}
END_TEST

/* A revoked MAP needs no answer, and holds up its client no more. */
START_TEST(test_asked_before_it_was_mapped)
{
	struct kvmm_attach_req req = sh_attach_req("c");
	u32 also, e;

	one_has_all();
	also = (u32)sh_attach_as(1, &req);
	sh.cl[also].mute = true;
	ck_assert_uint_eq(sh.cl[also].sent, 8);
	two_wants(2);
	ck_assert_uint_eq(asked(also, &e), 1);
	ck_assert_int_eq(sh_ack(also, e), -ESTALE);
	sh.cl[also].mute = false;
	sh_settle();
	ck_assert_uint_eq(sh.nr_releases, 1);
	sh_ready(also, 2 * SH_BT, 0, 9);
}
END_TEST

/* ---- clients that do not answer ---- */

START_TEST(test_killed_at_the_deadline)
{
	u32 e;
	u64 seq;

	one_has_all();
	sh.cl[one].stubborn = true;
	seq = two_wants(6);
	ck_assert_uint_eq(asked(one, &e), 2);
	sh_tick(KILL - 1);
	ck_assert_uint_eq(sh.cl[one].killed, 0);
	sh_tick(1);
	ck_assert_uint_eq(sh.cl[one].killed, 1);
	ck_assert_int_eq(sh.cl[one].kill_reason, -EBUSY);
	ck_assert_uint_eq(sh.cl[two].killed, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_kill), 1);
	/* Its memory is not back before the client is quiet. */
	sh_tick(KILL);
	ck_assert_uint_eq(sh.cl[one].killed, 1);
	sh_die(one);
	ck_assert_uint_eq(sh.nr_releases, 0);
	sh_quiet(one);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
	ck_assert_uint_ge(sh.nr_releases, 2);
}
END_TEST

/* Only the client that keeps the extent is killed. */
START_TEST(test_others_are_not_killed)
{
	u32 also = sh_attach(1, "a"), e;

	one_has_all();
	sh.cl[one].stubborn = true;
	two_wants(2);
	ck_assert_uint_eq(asked(one, &e), 1);
	ck_assert_uint_eq(asked(also, &e), 0);	/* it has answered */
	sh_tick(KILL);
	ck_assert_uint_eq(sh.cl[one].killed, 1);
	ck_assert_uint_eq(sh.cl[also].killed, 0);
	sh_quiet(one);
	ck_assert_uint_eq(sh.nr_releases, 1);
}
END_TEST

/* A new client of the old tenant is not sent extents that are being taken back. */
START_TEST(test_newcomer_is_not_sent_it)
{
	u32 also, e;

	one_has_all();
	sh.cl[one].stubborn = true;
	two_wants(2);
	ck_assert_uint_eq(asked(one, &e), 1);
	also = sh_attach(1, "a");
	ck_assert_uint_eq(sh.cl[also].sent, 7);
	ck_assert_uint_eq(sh.cl[also].extents[e].state, KVMM_EXTENT_ABSENT);
}
END_TEST

/* Lingering clients have the same time to end. */
START_TEST(test_ghosts_are_ended)
{
	u32 tenant = sh.cl[one].info.tenant;
	u64 seq;

	one_has_all();
	ck_assert_int_eq(sh_submit(one, KVMM_OP_DETACH, 0, 0, 0), 0);
	sh_quiet(one);
	seq = two_wants(2);
	ck_assert_uint_eq(sh_pool().revoking, SH_EXTENT);
	sh_tick(KILL - 1);
	ck_assert_uint_eq(sh.nr_kill_ghosts, 0);
	sh_tick(1);
	ck_assert_uint_eq(sh.nr_kill_ghosts, 1);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_WAITING);
	SH_CORE(core_ghost_gone(sh.core, sh.now, tenant));
	sh_settle();
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
}
END_TEST

/* If lingering clients cannot reach released memory they are only waited for. */
START_TEST(test_harmless_ghosts)
{
	struct core_ops ops = sh_ops;
	u64 seq;

	ops.kill_ghosts = NULL;
	sh.core->ops = &ops;
	one_has_all();
	ck_assert_int_eq(sh_submit(one, KVMM_OP_DETACH, 0, 0, 0), 0);
	sh_quiet(one);
	seq = two_wants(2);
	sh_tick(KILL - 1);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_WAITING);
	sh_tick(1);
	sh_tick(1);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh.nr_kill_ghosts, 0);
}
END_TEST

/* A lingering client does not hold memory that was made after it detached. */
START_TEST(test_ghosts_hold_what_they_were_sent)
{
	u32 other;
	u64 seq;

	ck_assert_int_eq(sh_close(one, sh_ready(one, 2 * SH_BT, 0, 0)), 0);
	other = sh_attach(1, "a");
	ck_assert_int_eq(sh_submit(one, KVMM_OP_DETACH, 0, 0, 0), 0);
	sh_quiet(one);
	sh_warm(other);
	sh_tick(STARVE);
	seq = two_wants(12);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh.nr_kill_ghosts, 0);
}
END_TEST

/* ---- spans with running sequences ---- */

/* The first tenant runs @nr sequences of four blocks each. */
static void one_runs(u64 *seq, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		seq[i] = sh_ready(one, 3 * SH_BT, SH_BT, 1000 * i);
		sh_compute(one, seq[i], 0, 3 * SH_BT, 1000 * i);
	}
}

static void set_min(u32 cl, u32 blocks)
{
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now,
		sh.cl[cl].info.domain, CORE_LIMIT_MIN, blocks * SH_BLOCK), 0));
	sh_settle();
}

/* A domain gets its memory.min even if sequences of another tenant run there. */
START_TEST(test_min_displaces)
{
	u64 seq[8], theirs;
	u32 i, ready = 0;

	one_runs(seq, 8);
	set_min(two, 16);
	theirs = two_wants(14);
	ck_assert_uint_eq(sh_state(two, theirs), KVMM_SEQ_READY);
	ck_assert_uint_ge(sh_count(CORE_EV_revoke_preempt), 1);
	for (i = 0; i < 8; i++)
		ready += sh_state(one, seq[i]) == KVMM_SEQ_READY;
	/* Four spans went, two of them free; not all sequences were displaced. */
	ck_assert_uint_ge(ready, 4);
	ck_assert_uint_lt(ready, 8);
}
END_TEST

/* A sequence in an open step loses nothing: its end is waited for. */
START_TEST(test_displaced_when_the_step_ends)
{
	u64 seq[8], theirs;
	u32 i;

	one_runs(seq, 8);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(sh_begin(one, seq[2 * i], 3 * SH_BT, 1), 0);
	set_min(two, 32);
	theirs = two_wants(28);
	ck_assert_uint_eq(sh_state(two, theirs), KVMM_SEQ_WAITING);
	sh_tick(20);
	ck_assert_uint_eq(sh_state(two, theirs), KVMM_SEQ_WAITING);
	ck_assert_uint_gt(sh_domain(one).nr_spans, 0);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(sh_end_empty(one, i + 9), 0);
	sh_tick(20);
	ck_assert_uint_eq(sh_state(two, theirs), KVMM_SEQ_READY);
}
END_TEST

/* Memory within the other domain's memory.min is not taken. */
START_TEST(test_min_of_the_victim)
{
	u64 seq[8], mine, more;

	one_runs(seq, 8);
	set_min(one, 24);
	set_min(two, 8);
	mine = two_wants(4);
	ck_assert_uint_eq(sh_state(two, mine), KVMM_SEQ_READY);
	more = two_wants(12);
	sh_tick(STARVE);
	sh_tick(STARVE);
	sh_tick(20 * STARVE);
	ck_assert_uint_eq(sh_state(two, more), KVMM_SEQ_WAITING);
	ck_assert_uint_ge(sh_domain(one).current_bytes, 24 * SH_BLOCK);
}
END_TEST

/* The longest-waiting sequence takes memory of sequences that had their time. */
START_TEST(test_longest_waiter_displaces)
{
	u64 seq[8], theirs;

	one_runs(seq, 8);
	theirs = two_wants(14);
	ck_assert_uint_eq(sh_state(two, theirs), KVMM_SEQ_WAITING);
	sh_tick(STARVE / 2);
	ck_assert_uint_eq(sh_state(two, theirs), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 0);
	sh_tick(STARVE / 2);
	sh_tick(STARVE);
	ck_assert_uint_ge(sh_count(CORE_EV_revoke_preempt), 1);
	ck_assert_uint_eq(sh_state(two, theirs), KVMM_SEQ_READY);
}
END_TEST

/*
 * A span of three extents, with one reservation, stands in the way of eight
 * spans of one extent each: it goes for all of them, not for the first alone.
 */
START_TEST(test_one_span_is_several_runs)
{
	struct kvmm_attach_req req = sh_attach_req("big");
	u64 mine, theirs;
	int big;

	req.group[0].layers = 3;
	big = sh_attach_as(1, &req);
	ck_assert_int_ge(big, 0);
	ck_assert_uint_eq(sh.cl[big].info.span_extents, 3);
	mine = sh_ready((u32)big, SH_BT, 0, 3);
	theirs = two_wants(32);
	sh_tick(STARVE);
	sh_tick(STARVE);
	sh_tick(STARVE);
	ck_assert_uint_eq(sh_state(two, theirs), KVMM_SEQ_READY);
	ck_assert_uint_ne(sh_state((u32)big, mine), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_kill), 0);
}
END_TEST

/*
 * Each of three spans of a run could go without touching a reservation, all of
 * them could not: then the sequence with the reservation goes with them.
 */
START_TEST(test_run_goes_with_its_promises)
{
	struct kvmm_attach_req req = sh_attach_req("big");
	u64 mine, theirs;
	int big;

	one_has_all();
	mine = sh_ready(one, 27 * SH_BT, 0, 3);
	req.group[0].layers = 3;
	big = sh_attach_as(2, &req);
	ck_assert_int_ge(big, 0);
	ck_assert_uint_eq(sh.cl[big].info.span_extents, 3);
	theirs = sh_open((u32)big, SH_BT, 0);
	ck_assert_int_eq(sh_match((u32)big, theirs, SH_BT, 7), 0);
	ck_assert_uint_eq(sh_state((u32)big, theirs), KVMM_SEQ_WAITING);
	sh_tick(STARVE);
	sh_tick(STARVE);
	ck_assert_uint_eq(sh_state((u32)big, theirs), KVMM_SEQ_READY);
	ck_assert_uint_ne(sh_state(one, mine), KVMM_SEQ_READY);
}
END_TEST

/* Two tenants that want nearly all of the pool get it one after the other. */
START_TEST(test_no_ping_pong)
{
	u64 a, b;
	u32 i;

	one_has_all();
	a = two_wants(30);
	ck_assert_uint_eq(sh_state(two, a), KVMM_SEQ_READY);
	b = sh_open(one, 30 * SH_BT, 0);
	ck_assert_int_eq(sh_match(one, b, 30 * SH_BT, 3), 0);
	sh_compute(two, a, 0, 30 * SH_BT, 7);
	for (i = 0; i < 100 && sh_state(one, b) != KVMM_SEQ_READY; i++) {
		sh_tick(STARVE / 2);
		if (i == 1)
			ck_assert_int_eq(sh_close(two, a), 0);
	}
	ck_assert_uint_eq(sh_state(one, b), KVMM_SEQ_READY);
	ck_assert_uint_le(sh_count(CORE_EV_extent_revoke), 2 * 8);
}
END_TEST

/* ---- during a revocation ---- */

/* A claimed run is for its domain alone, also the free extents of it. */
START_TEST(test_claimed_runs_wait_for_their_domain)
{
	u32 three, e;
	u64 seq, other;

	one_has_all();
	sh.cl[one].stubborn = true;
	seq = two_wants(2);
	ck_assert_uint_eq(asked(one, &e), 1);
	three = sh_attach(3, "c");
	other = sh_open(three, 2 * SH_BT, 0);
	ck_assert_int_eq(sh_match(three, other, 2 * SH_BT, 7), 0);
	ck_assert_uint_eq(asked(one, &e), 2);
	ck_assert_int_eq(sh_unmapped(one, e), 0);
	sh_settle();
	ck_assert_uint_eq((sh_state(two, seq) == KVMM_SEQ_READY) +
			  (sh_state(three, other) == KVMM_SEQ_READY), 1);
}
END_TEST

/* Memory that cannot be made: the waiting sequence asks again. */
START_TEST(test_making_fails)
{
	u64 seq;
	u32 e;

	one_has_all();
	sh_manual_make = true;
	seq = two_wants(2);
	for (e = 0; !sh.creating[e]; e++)
		;
	sh_made(e, -ENOMEM);
	sh_settle();
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_WAITING);
	sh_manual_make = false;
	sh_tick(1500);
	ck_assert_uint_eq(sh_state(two, seq), KVMM_SEQ_READY);
}
END_TEST

/*
 * All sequences prefill in one step.  Reservations of victims come back when it
 * ends, so no more victims are taken than are needed, and no claim is given up
 * meanwhile.
 */
START_TEST(test_victims_in_a_prefill)
{
	struct kvmm_begin_arg a[8];
	struct kvmm_begin_res res[8];
	u64 seq[8], theirs;
	u32 i, ready = 0;

	for (i = 0; i < 8; i++) {
		seq[i] = sh_ready(one, 4 * SH_BT, 0, 1000 * i);
		a[i] = sh_entry(one, seq[i], 0, SH_BT);
	}
	ck_assert_int_eq(sh_begin_all(one, a, 8, res), 0);
	set_min(two, 16);
	theirs = two_wants(4);
	for (i = 0; i < 8; i++)
		ready += sh_state(one, seq[i]) == KVMM_SEQ_READY;
	ck_assert_uint_ge(ready, 6);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_abandon), 0);
	ck_assert_int_eq(sh_end_empty(one, sh.core->clients[one].last_step), 0);
	sh_tick(5);
	ck_assert_uint_eq(sh_state(two, theirs), KVMM_SEQ_READY);
}
END_TEST

/* Priority is a matter of one tenant: no number keeps another one out for ever. */
START_TEST(test_priority_of_another_tenant)
{
	struct kvmm_open_arg o = { .prompt_len = 32, .max_tokens = 32,
				   .priority = UINT32_MAX };
	u64 seq[8], theirs;
	u32 i, n;

	for (i = 0; i < 8; i++) {
		ck_assert_int_eq(sh_open_as(one, &o, &seq[i]), 0);
		ck_assert_int_eq(sh_match(one, seq[i], 32, 1000 * i), 0);
		sh_compute(one, seq[i], 0, 49, 1000 * i);
	}
	theirs = two_wants(4);
	for (n = 0; n < 15 && sh_state(two, theirs) != KVMM_SEQ_READY; n++) {
		for (i = 0; i < 8; i++)
			if (sh_state(one, seq[i]) == KVMM_SEQ_READY)
				sh_compute(one, seq[i], 49 + n, 50 + n,
					   1000 * i);
		sh_tick(5);
	}
	ck_assert_uint_eq(sh_state(two, theirs), KVMM_SEQ_READY);
}
END_TEST

/* The longest-waiting sequence cannot be helped: the next one is. */
START_TEST(test_hopeless_waiter_holds_up_nobody)
{
	u32 three = sh_attach(3, "c"), four = sh_attach(4, "d"), i;
	u64 seq, first, second;

	for (i = 0; i < 4; i++) {
		seq = sh_ready(one, 4 * SH_BT, 0, 1000 * i);
		sh_compute(one, seq, 0, 4 * SH_BT, 1000 * i);
	}
	sh_tick(STARVE);
	sh_tick(STARVE);
	for (i = 0; i < 4; i++) {
		seq = sh_ready(three, 4 * SH_BT, 0, 1000 * i);
		sh_compute(three, seq, 0, 4 * SH_BT, 1000 * i);
	}
	set_min(one, 16);
	first = two_wants(28);
	sh_tick(10);
	second = sh_open(four, 4 * SH_BT, 0);
	ck_assert_int_eq(sh_match(four, second, 4 * SH_BT, 7), 0);
	for (i = 0; i < 10 && sh_state(four, second) != KVMM_SEQ_READY; i++)
		sh_tick(STARVE);
	ck_assert_uint_eq(sh_state(four, second), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(two, first), KVMM_SEQ_WAITING);
}
END_TEST

/* The sequence that wanted the claim is gone: no client is killed for it. */
START_TEST(test_claim_that_nobody_wants)
{
	u64 seq[8], theirs;
	u32 i;

	one_runs(seq, 8);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(sh_begin(one, seq[2 * i], 3 * SH_BT, 1), 0);
	set_min(two, 32);
	theirs = two_wants(28);
	ck_assert_uint_gt(sh.core->head->nr_revokes, 0);
	ck_assert_int_eq(sh_close(two, theirs), 0);
	sh.cl[one].stubborn = true;
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(sh_end_empty(one, sh.core->clients[one].last_step -
					      3 + i), 0);
	sh_tick(20);
	for (i = 0; i < 3; i++)
		sh_tick(KILL);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_kill), 0);
}
END_TEST

/*
 * Memory is asked back, a prefix is found in an isolated span of the domain,
 * and an extent becomes free: it is taken.  (Once the search for it did not
 * end.)
 */
START_TEST(test_free_run_beside_a_claim)
{
	u32 three = sh_attach(2, "c"), span;
	u64 seq, other, wants;

	one_has_all();
	sh_tick(STARVE);
	seq = sh_ready(two, 3 * SH_BT, 0, 500);
	sh_compute(two, seq, 0, 3 * SH_BT, 500);
	other = sh_ready(two, SH_BT, 0, 9000);
	ck_assert_int_eq(sh_begin(two, other, 0, SH_BT), 0);
	ck_assert_int_eq(sh_end(two, other, 0, SH_BT, 9000), 0);
	ck_assert_int_eq(sh_close(two, seq), 0);
	other = sh_ready(three, SH_BT, 0, 9000);
	ck_assert_int_eq(sh_begin(three, other, 0, 1), 0);
	ck_assert_int_eq(sh_end(three, other, 0, 1, 9000), 0);
	sh_tick(STARVE);
	for (span = 0; !sh.core->spans[span].nr_extents ||
	     sh.core->spans[span].domain != sh.cl[two].info.domain; span++)
		;
	ck_assert_int_eq(span_isolate(sh.core, span), 0);
	sh.cl[one].stubborn = true;
	wants = two_wants(4);
	ck_assert_int_eq(sh_close(three, other), 0);
	ck_assert_int_eq(sh_close(two, wants), 0);
	wants = sh_open(two, 5 * SH_BT, 0);
	ck_assert_int_eq(sh_match(two, wants, 5 * SH_BT, 500), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_revoke");
	TCase *tc = tcase_create("revoke");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_unused_memory_changes_over);
	tcase_add_test(tc, test_cache_changes_over);
	tcase_add_test(tc, test_cheap_first);
	tcase_add_test(tc, test_free_spans_stay_meanwhile);
	tcase_add_test(tc, test_stays_for_a_while);
	tcase_add_test(tc, test_min_does_not_wait);
	tcase_add_test(tc, test_all_clients_answer);
	tcase_add_test(tc, test_answers_refused);
	tcase_add_test(tc, test_asked_before_it_was_mapped);
	tcase_add_test(tc, test_killed_at_the_deadline);
	tcase_add_test(tc, test_others_are_not_killed);
	tcase_add_test(tc, test_newcomer_is_not_sent_it);
	tcase_add_test(tc, test_ghosts_are_ended);
	tcase_add_test(tc, test_harmless_ghosts);
	tcase_add_test(tc, test_ghosts_hold_what_they_were_sent);
	tcase_add_test(tc, test_min_displaces);
	tcase_add_test(tc, test_displaced_when_the_step_ends);
	tcase_add_test(tc, test_min_of_the_victim);
	tcase_add_test(tc, test_longest_waiter_displaces);
	tcase_add_test(tc, test_one_span_is_several_runs);
	tcase_add_test(tc, test_run_goes_with_its_promises);
	tcase_add_test(tc, test_no_ping_pong);
	tcase_add_test(tc, test_claimed_runs_wait_for_their_domain);
	tcase_add_test(tc, test_making_fails);
	tcase_add_test(tc, test_victims_in_a_prefill);
	tcase_add_test(tc, test_priority_of_another_tenant);
	tcase_add_test(tc, test_hopeless_waiter_holds_up_nobody);
	tcase_add_test(tc, test_claim_that_nobody_wants);
	tcase_add_test(tc, test_free_run_beside_a_claim);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
