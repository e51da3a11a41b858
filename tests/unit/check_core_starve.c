// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_starve.c - the sequence that waits longest, and its victim
 *
 * The pool of span_scene.h is full of running sequences, and a few wait.  The tests
 * set the times in the records, so no walkers run.
 */
#include "tests/unit/span_scene.h"

#define STARVE	(1ull << 40)	/* ns, as in span_scene.h */

static void scene(const char *spans)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('x', 2, 1);
	layout(spans);
	sh.now += 4 * STARVE;
}

static void again(const char *spans)
{
	restart(EXTENTS, 0);
	scene(spans);
}

/* A sequence of the domain that needs @blocks, and waits. */
static struct kv_seq *waiter(char letter, u32 blocks)
{
	u32 cl = owner[(int)letter];
	u64 seq = sh_open(cl, blocks * SH_BT, 0);

	ck_assert_int_eq(sh_match(cl, seq, blocks * SH_BT, 90000), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	sh_unchecked = true;
	c->now = sh.now;
	return seq_find(c, cl, seq);
}

static void waits_since(struct kv_seq *s, u64 ns)
{
	s->since = sh.now - ns;
}

/* The sequence came back, and has eight times as long. */
static void stays(u32 e)
{
	struct kv_seq *s = seq_at(e);

	s->flags |= SEQF_PREEMPTED;
	s->lost_len = s->valid_len;
	s->back = 0;
}

static bool holds_back(struct kv_seq *s)
{
	bool starved;

	c->now = sh.now;
	c->wait = CORE_WAIT_nothing;
	SH_CORE(starved = starved_waits(c, s));
	return starved;
}

/* ---- a sequence steps aside ---- */

START_TEST(test_longest_waiter_comes_first)
{
	struct kv_seq *mine, *theirs;

	scene("ABTTXXTT");
	theirs = waiter('a', 4);
	mine = waiter('t', 4);
	waits_since(mine, 0);
	waits_since(theirs, STARVE - 1);
	ck_assert(!holds_back(mine));
	ck_assert_uint_eq(c->wait, CORE_WAIT_nothing);
	waits_since(theirs, STARVE);
	ck_assert(holds_back(mine));
	ck_assert_uint_eq(c->wait, CORE_WAIT_longest);
	ck_assert_uint_eq(c->wait_dom, dom_of('a'));
	waits_since(mine, STARVE);
	ck_assert(!holds_back(mine));
	waits_since(mine, STARVE - 1);
	ck_assert(holds_back(mine));
	/* A client that has not mapped its extents holds up no other. */
	c->clients[owner['a']].nr_unacked = 1;
	ck_assert(!holds_back(mine));
}
END_TEST

/* A sequence without table pages waits for its client: another one holds up others. */
START_TEST(test_waiter_without_pages_comes_first_to_none)
{
	struct kv_seq *mine, *theirs, *behind;
	struct kv_client *cl;

	scene("ABTTXXTT");
	cl = &c->clients[owner['a']];
	theirs = waiter('a', 4);
	mine = waiter('t', 4);
	waits_since(theirs, STARVE);
	waits_since(mine, 0);
	cl->nr_free_pages = cl->promised;
	ck_assert(!holds_back(mine));
	ck_assert(!waiter_reachable(c, dom_of('a')));
	/* One that was swapped out holds its pages. */
	behind = waiter('a', 4);
	behind->flags |= SEQF_SWAPPED;
	waits_since(behind, STARVE);
	ck_assert(holds_back(mine));
	ck_assert(waiter_reachable(c, dom_of('a')));
	behind->flags &= ~SEQF_SWAPPED;
	ck_assert(!holds_back(mine));
}
END_TEST

/* A sequence of lower priority in the same tenant waits, unless the other is idle. */
START_TEST(test_priority_of_the_waiter)
{
	struct kv_seq *mine, *theirs, *foreign;

	scene("ABTTXXTT");
	theirs = waiter('a', 4);
	mine = waiter('t', 4);
	waits_since(mine, 0);
	waits_since(theirs, STARVE);
	mine->priority = 1;
	ck_assert(!holds_back(mine));
	mine->active = mine->since - STARVE;
	ck_assert(!holds_back(mine));
	mine->flags |= SEQF_SWAPPED;
	ck_assert(holds_back(mine));
	mine->active++;
	ck_assert(!holds_back(mine));
	mine->flags &= ~SEQF_SWAPPED;
	foreign = waiter('x', 4);
	waits_since(foreign, STARVE);
	ck_assert(holds_back(mine));
	ck_assert_uint_eq(c->wait_dom, dom_of('x'));
}
END_TEST

/* A domain with more of the surplus has to wait sixteen times as long. */
START_TEST(test_wait_that_is_unusual)
{
	static const u32 weight[] = { 100, 250, 1600, 1700 };
	static const u32 times[] = { 1, 3, 16, 16 };
	struct kv_seq *mine, *theirs;

	scene("AAABTXXX");
	theirs = waiter('a', 4);
	mine = waiter('t', 4);
	waits_since(mine, 0);
	d_of('t')->weight = weight[_i];
	sh.now += 260 * STARVE;
	waits_since(theirs, 16 * times[_i] * STARVE - 1);
	ck_assert(!holds_back(mine));
	waits_since(theirs, 16 * times[_i] * STARVE);
	waits_since(mine, 0);
	ck_assert(holds_back(mine));
	/* With an equal part nothing is unusual. */
	waits_since(theirs, STARVE);
	d_of('t')->weight = 100;
	d_of('a')->weight = 300;
	ck_assert(holds_back(mine));
}
END_TEST

/* A sequence that cannot be helped holds up no other. */
START_TEST(test_waiter_beyond_reach)
{
	struct kv_seq *mine, *theirs;

	scene("ABTTTTXX");
	theirs = waiter('a', 5);
	mine = waiter('t', 4);
	waits_since(mine, 0);
	waits_since(theirs, STARVE);
	protect('b', 4);
	protect('x', 8);
	protect('t', 16);
	ck_assert(!holds_back(mine));
	ck_assert(!waiter_reachable(c, dom_of('a')));
	protect('t', 12);
	ck_assert(holds_back(mine));
	ck_assert(waiter_reachable(c, dom_of('a')));
	ck_assert(!waiter_reachable(c, dom_of('t')));
	ck_assert(!waiter_reachable(c, dom_of('b')));
}
END_TEST

/* ---- a victim of the tenant ---- */

static void check_at(u64 now)
{
	sh.now = now;
	c->now = now;
	SH_CORE(starve_check(c));
}

static u32 marked(void)
{
	return (u32)sh_count(CORE_EV_preempt_mark);
}

START_TEST(test_victim_of_the_longest_waiter)
{
	struct kv_seq *first, *second;

	scene("AABBTTXX");
	first = waiter('b', 4);
	second = waiter('a', 4);
	waits_since(first, _i ? STARVE : STARVE + 1);
	waits_since(second, _i ? STARVE + 1 : STARVE);
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 1);
	ck_assert_uint_eq(state_at('t', 5), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(seq_find(c, t, runs[5])->cause, CORE_CAUSE_wait);
	ck_assert_uint_eq(seq_find(c, t, runs[5])->taken.by_domain,
			  dom_of(_i ? 'a' : 'b'));
	ck_assert_uint_eq(state_at('x', 7), KVMM_SEQ_READY);
}
END_TEST

/*
 * A swapped sequence is first in line, but leaves its turn to one that waits longer:
 * the memory of its tenant, or of another one, is taken for that one.
 */
START_TEST(test_victim_for_the_turn)
{
	char letter = _i ? 'x' : 'b';
	struct kv_seq *longer, *swapped;

	scene(_i ? "TTTTTTTX" : "AABBTTXX");
	if (_i)
		stays(7);
	longer = waiter(letter, 4);
	swapped = waiter(letter, 1);
	seq_set_priority(c, swapped, 1);
	ck_assert_ptr_eq(first_waiter(c, d_of(letter)), swapped);
	swapped->flags |= SEQF_SWAPPED;
	waits_since(longer, STARVE);
	waits_since(swapped, STARVE - 1);
	c->head->ticked = sh.now;
	swapped->active = swapped->since;
	ck_assert_ptr_eq(next_waiter(c, d_of(letter)), swapped);
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 0);
	/* It was idle when it was swapped out. */
	swapped->active -= STARVE;
	ck_assert_ptr_eq(next_waiter(c, d_of(letter)), longer);
	check_at(sh.now);
	ck_assert_uint_ge(marked(), 1);
	swapped->flags &= ~SEQF_SWAPPED;
}
END_TEST

START_TEST(test_no_victim_before_its_time)
{
	struct kv_seq *s;
	u32 e;

	scene("AABBTTXX");
	s = waiter('b', 4);
	waits_since(s, STARVE - 1);
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 0);
	ck_assert_uint_eq(c->head->nr_revokes, 0);
	waits_since(s, STARVE);
	for (e = 0; e < EXTENTS; e++)
		if (e != 3)
			stays(e);
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 1);
	ck_assert_uint_eq(state_at('b', 3), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* One at a time: while a victim is in its step no other is taken. */
START_TEST(test_one_victim_at_a_time)
{
	struct kv_seq *s;

	scene("AABBTTXX");
	ck_assert_int_eq(sh_begin(t, runs[5], 3 * SH_BT + 1, 1), 0);
	s = waiter('b', 4);
	waits_since(s, STARVE);
	check_at(sh.now);
	ck_assert_uint_eq(state_at('t', 5), KVMM_SEQ_MARKED);
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 1);
	ck_assert_uint_eq(state_at('t', 4), KVMM_SEQ_READY);
}
END_TEST

/* At its memory.max a domain has only its own victims. */
START_TEST(test_victim_at_memory_max)
{
	struct kv_seq *s;

	scene("AABBTTXX");
	s = waiter('b', 4);
	waits_since(s, STARVE);
	d_of('b')->dev.max_blocks = 9 - (u32)_i;
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 1);
	ck_assert_uint_eq(state_at('t', 5),
			  _i ? KVMM_SEQ_READY : KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(state_at('b', 3),
			  _i ? KVMM_SEQ_RECOMPUTE : KVMM_SEQ_READY);
}
END_TEST

/* memory.min keeps the victims of others, not those of the domain itself. */
START_TEST(test_victim_below_min)
{
	struct kv_seq *s;

	scene("AABBTTXX");
	s = waiter('b', 4);
	waits_since(s, STARVE);
	protect('t', 5);
	protect('b', 8);
	protect('a', _i ? 5 : 4);
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 1);
	ck_assert_uint_eq(state_at(_i ? 'b' : 'a', _i ? 3 : 1),
			  _i ? KVMM_SEQ_RECOMPUTE : KVMM_SEQ_READY);
}
END_TEST

/* ---- memory of other tenants ---- */

/* Without a victim of the tenant a run of another is displaced, if it had its time. */
START_TEST(test_run_of_another_tenant)
{
	struct kv_seq *s;

	scene("TTTTTTTX");
	sh_tick(1);
	s = waiter('x', 4);
	waits_since(s, STARVE);
	d_of('x')->dev.max_blocks = 8;
	stays(7);
	check_at(sh.now);
	/* It lacks four blocks, and one for the sequence that runs. */
	ck_assert_uint_eq(c->head->nr_revokes, 2);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 2);
	ck_assert_uint_eq(d_of('x')->retry, 1);
	/* Its memory is on the way. */
	check_at(sh.now);
	ck_assert_uint_eq(c->head->nr_revokes, 2);
	/* A marked victim of the tenant is waited for. */
	again("TTTTTTTX");
	ck_assert_int_eq(sh_begin(owner['x'], runs[7], 3 * SH_BT + 1, 1), 0);
	s = waiter('x', 4);
	waits_since(s, STARVE);
	SH_CORE(family_mark(c, seq_at(7), CORE_CAUSE_grow, NULL));
	c->steps[owner['x'] * KVMM_MAX_STEPS +
		 c->clients[owner['x']].step_head].begun = sh.now;
	check_at(sh.now);
	ck_assert_uint_eq(c->head->nr_revokes, 0);
	again("TTTTTTTX");
	s = waiter('x', 4);
	waits_since(s, STARVE - 1);
	stays(7);
	check_at(sh.now);
	ck_assert_uint_eq(c->head->nr_revokes, 0);
}
END_TEST

/* Running sequences of "t" commit to sixteen blocks, and @ratio of 32 are the limit. */
static struct kv_seq *commits(u32 ratio)
{
	struct kv_seq *s;

	again("TTTTxxxx");
	SH_CORE(ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_overcommit_ratio,
					   ratio), 0));
	SH_CORE(ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_overcommit,
					   CORE_OVERCOMMIT_NEVER), 0));
	s = waiter('x', 4);
	waits_since(s, STARVE);
	return s;
}

/*
 * Its domain has cache enough, but another tenant commits to what the limit of the
 * node allows: a family of it that had its time ends its commitment.
 */
START_TEST(test_commitment_of_another_tenant)
{
	struct kv_seq *s;

	scene("TTTTxxxx");
	s = commits(60);
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 1);
	ck_assert_uint_eq(state_at('t', 3), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(seq_find(c, t, runs[3])->cause, CORE_CAUSE_tenant);
	ck_assert_uint_eq(seq_find(c, t, runs[3])->taken.by_domain, dom_of('x'));
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 1);
	ck_assert_uint_eq(c->head->nr_revokes, 0);
	/* The limit of the node has room for it now. */
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 1);
	s = commits(60);
	waits_since(s, STARVE - 1);
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 0);
	s = commits(60);
	protect('t', 16);
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 0);
}
END_TEST

/* Of two tenants the one with the larger share loses, one family at a time. */
START_TEST(test_commitment_of_the_larger_share)
{
	struct kv_seq *s;

	domain('z', 3, 1);
	domain('x', 2, 1);
	layout("TTTZxxxx");
	sh.now += 4 * STARVE;
	SH_CORE(ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_overcommit_ratio,
					   60), 0));
	SH_CORE(ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_overcommit,
					   CORE_OVERCOMMIT_NEVER), 0));
	ck_assert_int_eq(sh_begin(t, runs[2], 3 * SH_BT + 1, 1), 0);
	s = waiter('x', 4);
	waits_since(s, STARVE);
	check_at(sh.now);
	ck_assert_uint_eq(state_at('t', 2), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(marked(), 1);
	/* The memory of "t" will come, so "z" is next. */
	c->steps[t * KVMM_MAX_STEPS + c->clients[t].step_head].begun = sh.now;
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 2);
	ck_assert_uint_eq(state_at('z', 3), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* ---- the needs of waiting sequences ---- */

START_TEST(test_needs_of_a_waiter)
{
	struct kv_seq *s;

	scene("AABBTTXX");
	s = waiter('b', 5);
	ck_assert_ptr_eq(first_waiter(c, d_of('b')), s);
	ck_assert_ptr_null(first_waiter(c, d_of('a')));
	ck_assert_uint_eq(waiter_blocks(c, s), 5);
	s->tab.nr_blocks = 6;
	ck_assert_uint_eq(waiter_blocks(c, s), 6);
	s->tab.nr_blocks = 0;
	d_of('b')->dev.max_blocks = 13;
	ck_assert(waiter_fits(c, s));
	ck_assert(waiter_could_use(c, s));
	d_of('b')->dev.max_blocks = 12;
	ck_assert(!waiter_fits(c, s));
	ck_assert(!waiter_could_use(c, s));
	d_of('b')->dev.max_blocks = 1000;
	/* memory.high counts while another sequence runs. */
	d_of('b')->high_blocks = 13;
	ck_assert(waiter_could_use(c, s));
	d_of('b')->high_blocks = 12;
	ck_assert(waiter_fits(c, s));
	ck_assert(!waiter_could_use(c, s));
	d_of('b')->nr_running = 0;
	ck_assert(waiter_could_use(c, s));
}
END_TEST

START_TEST(test_waiter_without_table_pages)
{
	struct kv_client *cl;
	struct kv_seq *s;

	scene("AABBTTXX");
	s = waiter('b', 5);
	cl = &c->clients[owner['b']];
	cl->nr_free_pages = cl->promised;
	ck_assert(!waiter_could_use(c, s));
	s->flags |= SEQF_SWAPPED;
	ck_assert(waiter_could_use(c, s));
}
END_TEST

/* Each that waits behind the first needs as much, and its next block. */
START_TEST(test_needs_within_a_promise)
{
	u32 b;

	scene("AABBTTXX");
	b = dom_of('b');
	ck_assert_uint_eq(promise_need(c, b, 3), 3);
	waiter('b', 6);
	waiter('b', 5);
	waiter('b', 1);
	protect('b', 100);
	ck_assert_uint_eq(promise_need(c, b, 6), 6 + 6 + 2);
	/* A prefix of two blocks is found, and of one block nothing is lacking. */
	ck_assert_uint_eq(promise_need(c, b, 4), 4 + 4 + 1);
	d_of('b')->soon = 1;
	ck_assert_uint_eq(promise_need(c, b, 6), 6 + 5 + 1);
	d_of('b')->soon = 0;
	ck_assert_uint_eq(promise_need(c, b, 7), 7 + 6 + 2);
	/* Eight blocks are held: the promise has room for both, or for one. */
	protect('b', 8 + 14);
	ck_assert_uint_eq(promise_need(c, b, 6), 14);
	protect('b', 8 + 13);
	ck_assert_uint_eq(promise_need(c, b, 6), 12);
	protect('b', 8 + 11);
	ck_assert_uint_eq(promise_need(c, b, 6), 6);
}
END_TEST

/* A single tenant has no other to displace runs of. */
START_TEST(test_single_tenant)
{
	struct kv_seq *s;
	u32 e;

	domain('a', 1, 1);
	layout("AAAATTTT");
	sh.now += 4 * STARVE;
	s = waiter('a', 4);
	waits_since(s, STARVE);
	for (e = 0; e < EXTENTS; e++)
		stays(e);
	d_of('a')->retry = 0;
	check_at(sh.now);
	ck_assert_uint_eq(marked(), 0);
	ck_assert_uint_eq(d_of('a')->retry, 0);
}
END_TEST

/* Of many waiting sequences 64 are looked at behind the first. */
START_TEST(test_many_waiters)
{
	u32 i, first, clients[3];

	scene("AABBTTXX");
	clients[0] = first = owner['b'];
	for (i = 1; i < 3; i++)
		clients[i] = sh_attach(1, "b");
	for (i = 0; i < 70; i++) {
		owner['b'] = clients[i % 3];
		waiter('b', 1);
	}
	owner['b'] = first;
	protect('b', 1000);
	ck_assert_uint_eq(promise_need(c, dom_of('b'), 1), 1 + 64 * 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_starve");
	TCase *tc = tcase_create("starve");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_longest_waiter_comes_first);
	tcase_add_test(tc, test_waiter_without_pages_comes_first_to_none);
	tcase_add_test(tc, test_priority_of_the_waiter);
	tcase_add_loop_test(tc, test_wait_that_is_unusual, 0, 4);
	tcase_add_test(tc, test_waiter_beyond_reach);
	tcase_add_loop_test(tc, test_victim_of_the_longest_waiter, 0, 2);
	tcase_add_loop_test(tc, test_victim_for_the_turn, 0, 2);
	tcase_add_test(tc, test_no_victim_before_its_time);
	tcase_add_test(tc, test_one_victim_at_a_time);
	tcase_add_loop_test(tc, test_victim_at_memory_max, 0, 2);
	tcase_add_loop_test(tc, test_victim_below_min, 0, 2);
	tcase_add_test(tc, test_run_of_another_tenant);
	tcase_add_test(tc, test_commitment_of_another_tenant);
	tcase_add_test(tc, test_commitment_of_the_larger_share);
	tcase_add_test(tc, test_needs_of_a_waiter);
	tcase_add_test(tc, test_waiter_without_table_pages);
	tcase_add_test(tc, test_needs_within_a_promise);
	tcase_add_test(tc, test_single_tenant);
	tcase_add_test(tc, test_many_waiters);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
