// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_preempt.c - a family loses its memory
 *
 * The families are marked for growth, or for the longest-waiting sequence of
 * another domain.  The tests compare status records, events, counters and the
 * report of the loss, member by member.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define POOL	16u	/* blocks */
#define STARVE	50u	/* ms, of sh_config() */

static struct core *c;
static u32 cl, other;

static void setup(void)
{
	sh_config(POOL / SH_PER);
	sh.cfg.step_deadline_ns = 3600000 * MS;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
	other = sh_attach(1, "b");
}

static void teardown(void)
{
	sh_stop();
}

static u64 runs(u32 client, u32 tokens, u32 more, u32 priority)
{
	struct kvmm_open_arg a = {
		.prompt_len = tokens, .max_tokens = more, .priority = priority,
		.flags = KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH,
	};
	u64 seq;

	ck_assert_int_eq(sh_open_as(client, &a, &seq), 0);
	ck_assert_int_eq(sh_match(client, seq, tokens, 7), 0);
	sh_compute(client, seq, 0, tokens, 7);
	return seq;
}

static u32 epoch(u64 seq)
{
	return sh_status(cl, seq)->seq_epoch;
}

/* Events of @type that @cl got for a sequence. */
static u32 events(u64 seq, u32 type)
{
	u32 i, nr = 0;

	for (i = 0; i < sh.cl[cl].ctl.event_tail; i++)
		nr += sh.cl[cl].events[i % SH_EVENTS].seq == seq &&
		      sh.cl[cl].events[i % SH_EVENTS].type == type;
	return nr;
}

static struct core_why_view why(u64 seq)
{
	struct core_why_view v;

	ck_assert_int_eq(core_get_why(c, KVMM_SEQ_INDEX(seq), sh.now, &v), 0);
	return v;
}

/* A family is marked while a step of one member is open, and settled after it. */
START_TEST(test_family_in_a_step)
{
	u64 seq = runs(cl, 4 * SH_BT, 4 * SH_BT, 0), kid, grows, step;

	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	grows = runs(cl, 9 * SH_BT, 6 * SH_BT, 1);
	ck_assert_int_eq(sh_begin(cl, kid, 4 * SH_BT, 2), 0);
	step = sh.cl[cl].step;
	ck_assert_uint_eq(sh_status(cl, seq)->limiting_pool, KVMM_NO_POOL);
	ck_assert_int_eq(sh_begin(cl, grows, 9 * SH_BT, 3 * SH_BT), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(sh_status(cl, seq)->limiting_pool, 0);
	ck_assert_uint_eq(sh_status(cl, kid)->limiting_pool, 0);
	ck_assert_uint_eq(epoch(seq), 1);
	ck_assert_uint_eq(epoch(kid), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_mark), 2);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_recompute), 0);
	ck_assert_uint_eq(c->domains[0].nr_marked, 2);
	ck_assert_uint_eq(events(seq, KVMM_EV_PREEMPTED), 0);
	/* The step ends with its progress, and the family loses all. */
	ck_assert_int_eq(sh_end_step(cl, step, kid, 4 * SH_BT, 4 * SH_BT + 2, 7), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(epoch(seq), 1);
	ck_assert_uint_eq(epoch(kid), 1);
	ck_assert_uint_eq(c->domains[0].nr_marked, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_recompute), 2);
	ck_assert_uint_eq(sh_count(CORE_EV_recompute_tokens), 8 * SH_BT + 2);
	ck_assert_uint_eq(seq_find(c, cl, seq)->lost_len, 4 * SH_BT);
	ck_assert_uint_eq(seq_find(c, cl, kid)->lost_len, 4 * SH_BT + 2);
	ck_assert_uint_eq(events(seq, KVMM_EV_PREEMPTED), 1);
	ck_assert_uint_eq(events(kid, KVMM_EV_PREEMPTED), 1);
	ck_assert_uint_eq(sh_domain(cl).nr_preempted, 2);
	ck_assert_uint_eq(sh_status(cl, kid)->valid_len, 0);
}
END_TEST

/* A marked member is closed while the step of the other one is open. */
START_TEST(test_marked_member_is_closed)
{
	u64 seq = runs(cl, 2 * SH_BT, 4 * SH_BT, 0), kid, step;

	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_int_eq(sh_begin(cl, kid, 2 * SH_BT, 2), 0);
	step = sh.cl[cl].step;
	family_mark(c, seq_find(c, cl, seq), CORE_CAUSE_grow, NULL);
	sh_check();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_MARKED);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(c->domains[0].nr_marked, 1);
	ck_assert_int_eq(sh_end_step(cl, step, kid, 2 * SH_BT, 2 * SH_BT, 7), 0);
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(c->domains[0].nr_marked, 0);
}
END_TEST

/* The report of a loss names the sequence that it was for, of another domain. */
START_TEST(test_taken_for_longest_waiter)
{
	u64 seq = runs(cl, POOL * SH_BT - 4, 4, 0), waiter;
	struct core_why_view v;

	waiter = sh_open(other, 4 * SH_BT, 0);
	ck_assert_int_eq(sh_match(other, waiter, 4 * SH_BT, 3), 0);
	sh_tick(STARVE);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(other, waiter), KVMM_SEQ_READY);
	v = why(seq);
	ck_assert_uint_eq(v.cause, CORE_CAUSE_wait);
	ck_assert_uint_eq(v.taken, 1);
	ck_assert_uint_eq(v.by_domain, sh.cl[other].info.domain);
	ck_assert_uint_eq(v.by_client, other);
	ck_assert_uint_eq(v.by_seq, KVMM_SEQ_INDEX(waiter));
	ck_assert_uint_eq(v.blocks, POOL);
	ck_assert_uint_eq(v.len, POOL * SH_BT - 4);
	ck_assert_uint_eq(v.tokens, POOL * SH_BT - 4);
	ck_assert(!v.kept);
}
END_TEST

/* A sequence that can never be admitted fails with a reason. */
START_TEST(test_failed_sequence)
{
	u64 seq = sh_open(cl, 8 * SH_BT, 0);

	ck_assert_int_eq(core_domain_set(c, sh.now, 0, CORE_LIMIT_MAX,
					 7 * SH_BLOCK), 0);
	ck_assert_int_eq(sh_match(cl, seq, 8 * SH_BT, 1), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_FAILED);
	ck_assert_int_eq(sh_status(cl, seq)->reason, -EDQUOT);
	ck_assert_uint_eq(epoch(seq), 1);
	ck_assert_uint_eq(events(seq, KVMM_EV_FAILED), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_recompute), 0);
	ck_assert_uint_eq(c->clients[cl].nr_idpages, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_preempt");
	TCase *tc = tcase_create("preempt");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_family_in_a_step);
	tcase_add_test(tc, test_marked_member_is_closed);
	tcase_add_test(tc, test_taken_for_longest_waiter);
	tcase_add_test(tc, test_failed_sequence);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
