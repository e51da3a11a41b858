// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_demote_wait.c - a request that waits for copies of cached blocks
 */
#include "kvmm/core/reclaim/reclaim.h"
#include "tests/unit/demote_scene.h"

/* A cached block is evicted, and its copy goes on. */
static void one_leaves(void)
{
	struct kv_domain *d = &c->domains[0];
	enum verdict verdict;

	c->head->clean_after = ~0ull;
	plays_all(0, 3);
	c->head->clean_after = 0;
	SH_CORE(verdict = room_evict(c, 0, domain_slack(d) + 1));
	ck_assert_int_eq(verdict, ROOM_MADE);
	ck_assert_uint_eq(nr_copies, 1);
	ck_assert_uint_eq(domain_leaving(d), 1);
}

/*
 * A request for more blocks than copies in flight free has the other copies begun, too:
 * one copy that takes long does not delay them.
 */
START_TEST(test_all_copies_at_once)
{
	u32 slack;
	u64 seq;

	one_leaves();
	slack = domain_slack(&c->domains[0]);
	tokens = (slack + 4) * SH_BT;
	seq = asks(9);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(nr_copies, 4);
	copies_done();
	ck_assert_uint_eq(ends(seq, 9), 0);
	tokens = TOKENS;
}
END_TEST

/* A request for no more blocks than that waits, and nothing else is evicted. */
START_TEST(test_copies_in_flight_are_enough)
{
	u64 seq;

	one_leaves();
	tokens = (domain_slack(&c->domains[0]) + 1) * SH_BT;
	seq = asks(9);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(nr_copies, 1);
	copies_done();
	ck_assert_uint_eq(ends(seq, 9), 0);
	tokens = TOKENS;
}
END_TEST

/* The plan counts copies in flight, and memory that is being made. */
START_TEST(test_plan)
{
	struct kv_domain *d = &c->domains[0];
	u32 slack;

	one_leaves();
	slack = domain_slack(d);
	ck_assert_int_eq(room_plan(c, 0, slack, 0), ROOM_NOW);
	ck_assert_int_eq(room_plan(c, 0, slack + 1, 0), ROOM_MADE);
	ck_assert_int_eq(room_plan(c, 0, slack + 2, 0), ROOM_NOW);
	ck_assert_int_eq(room_plan(c, 0, POOL, 0), ROOM_NOW);
	d->dev.pending_spans = 1;
	ck_assert_int_eq(room_plan(c, 0, POOL, 0), ROOM_MADE);
	d->dev.pending_spans = 0;
	copies_done();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_demote_wait");
	TCase *tc = tcase_create("demote_wait");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_all_copies_at_once);
	tcase_add_test(tc, test_copies_in_flight_are_enough);
	tcase_add_test(tc, test_plan);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
