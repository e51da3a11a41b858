// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_victim.c - which sequence loses its memory for another
 *
 * The pool of span_scene.h.  The sequences came in the order of their spans, so the
 * one in the last span of a domain is its best victim.
 */
#include "tests/unit/span_scene.h"

#define SLOW	1000000000ull	/* ns after which a step is not waited for */

enum { HIGH, SURPLUS, LOW, NEVER };	/* as in victim.c */

static void scene(const char *spans)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('x', 2, 1);
	layout(spans);
}

static void again(const char *spans)
{
	restart(EXTENTS, 0);
	scene(spans);
}

/* The span of a sequence; EXTENTS: there is no sequence. */
static u32 span_of(const struct kv_seq *s)
{
	u32 e;

	for (e = 0; s && e < EXTENTS; e++)
		if (c->extents[e].state == EXT_SPAN && runs[e] &&
		    seq_at(e) == s)
			return e;
	return EXTENTS;
}

/* Sequences arrive in the order of their spans. */
static void in_order(void)
{
	u32 e;

	for (e = 0; e < EXTENTS; e++)
		if (islower(map()[e]))
			runs[e] = 0;
		else
			ck_assert_uint_eq(seq_at(e)->tab.nr_blocks, SH_PER);
}

/* ---- families ---- */

START_TEST(test_size_of_a_family)
{
	u64 kid;

	scene("AAAAAAAA");
	ck_assert_uint_eq(family_size(c, seq_at(0)), 4);
	ck_assert_int_eq(sh_fork(owner['a'], runs[0], 1, &kid), 0);
	/* The blocks that both map are counted for the first. */
	ck_assert_uint_eq(family_size(c, seq_at(0)), 4);
	make_family(seq_at(1), seq_at(2));
	ck_assert_uint_eq(family_size(c, seq_at(1)), 8);
	seq_at(2)->tab.trimmed = 1;
	ck_assert_uint_eq(family_size(c, seq_at(1)), 7);
	ck_assert_uint_eq(family_size(c, seq_at(2)), 7);
	seq_at(2)->state = KVMM_SEQ_MARKED;
	ck_assert_uint_eq(family_size(c, seq_at(1)), 7);
	seq_at(2)->state = KVMM_SEQ_WAITING;
	ck_assert_uint_eq(family_size(c, seq_at(1)), 4);
}
END_TEST

START_TEST(test_marked_blocks_of_a_domain)
{
	scene("AAAAAAAA");
	ck_assert_uint_eq(victim_blocks_marked(c, d_of('a')), 0);
	ck_assert_int_eq(sh_begin(owner['a'], runs[0], 3 * SH_BT + 1, 1), 0);
	ck_assert_int_eq(sh_begin(owner['a'], runs[1], 3 * SH_BT + 1, 1), 0);
	SH_CORE(family_mark(c, seq_at(0), CORE_CAUSE_grow, NULL));
	ck_assert_uint_eq(victim_blocks_marked(c, d_of('a')), 4);
	SH_CORE(family_mark(c, seq_at(1), CORE_CAUSE_grow, NULL));
	ck_assert_uint_eq(victim_blocks_marked(c, d_of('a')), 8);
}
END_TEST

/* ---- the time that a sequence has ---- */

START_TEST(test_residency)
{
	u64 time = sh.cfg.starve_ns;
	struct kv_seq *s, *w;

	scene("AAAATTXX");
	sh_unchecked = true;
	s = seq_at(0);
	w = seq_at(4);
	c->now = s->since + time - 1;
	ck_assert(!past_residency(c, s, w));
	c->now++;
	ck_assert(past_residency(c, s, w));
	s->state = KVMM_SEQ_MARKED;
	ck_assert(!past_residency(c, s, w));
	s->state = KVMM_SEQ_READY;
	/* With a higher priority it goes only if it is idle. */
	s->priority = 1;
	s->active = c->now - time + 1;
	ck_assert(!past_residency(c, s, w));
	ck_assert(past_residency(c, s, seq_at(6)));
	s->active = c->now - time;
	ck_assert(past_residency(c, s, w));
	s->active = c->now;
	s->priority = 0;
	ck_assert(past_residency(c, s, w));
}
END_TEST

/*
 * A victim that came back a short while ago returns at once if its domain is within
 * memory.min without it: its blocks stay as cache, which is not held.
 */
START_TEST(test_victim_returns)
{
	struct kv_domain *d;
	struct kv_seq *v, *w;

	scene("AAAATTXX");
	v = seq_at(0);
	w = seq_at(4);
	d = seq_domain(c, v);
	ck_assert_uint_eq(domain_held(d), 16);
	ck_assert_uint_eq(family_size(c, v), 4);
	v->flags |= SEQF_PREEMPTED;
	v->back = 0;
	c->head->ticked = v->since;
	d->emin = 12;
	ck_assert(!victim_returns(c, v, w, false));
	ck_assert(victim_returns(c, v, w, true));
	d->emin = 13;
	ck_assert(victim_returns(c, v, w, false));
	c->head->ticked += 8 * sh.cfg.starve_ns;
	ck_assert(!victim_returns(c, v, w, false));
	c->head->ticked = v->since;
	v->flags &= ~SEQF_PREEMPTED;
	ck_assert(!victim_returns(c, v, w, false));
	d->emin = 0;
}
END_TEST

/*
 * A sequence that came back has eight times as long until it got on, then as long as its
 * return took.
 */
START_TEST(test_residency_of_a_restored_sequence)
{
	u64 time = sh.cfg.starve_ns;
	struct kv_seq *s, *w;

	scene("AAAATTXX");
	s = seq_at(0);
	w = seq_at(4);
	s->flags |= SEQF_PREEMPTED;
	s->back = 0;
	c->now = s->since + 8 * time - 1;
	ck_assert(!past_residency(c, s, w));
	c->now++;
	ck_assert(past_residency(c, s, w));
	c->head->ticked = c->now - 1;
	ck_assert(!past_residency_ticked(c, s, w));
	c->head->ticked++;
	ck_assert(past_residency_ticked(c, s, w));
	s->admitted = s->since;
	s->back = s->since + 3 * time;
	c->now = s->back + 3 * time - 1;
	ck_assert(!past_residency(c, s, w));
	c->now++;
	ck_assert(past_residency(c, s, w));
	s->back = s->since + 1;
	c->now = s->back + time - 1;
	ck_assert(!past_residency(c, s, w));
	c->now++;
	ck_assert(past_residency(c, s, w));
	s->back = 0;
	s->flags &= ~SEQF_PREEMPTED;
	ck_assert(past_residency(c, s, w));
}
END_TEST

/* ---- victims of other domains ---- */

static u32 elsewhere(u32 want, bool promised, u32 *rank)
{
	return span_of(victim_elsewhere(c, seq_at(want), promised, rank));
}

static void expect_elsewhere(u32 want, bool promised, u32 victim, u32 rank)
{
	u32 r;

	ck_assert_uint_eq(elsewhere(want, promised, &r), victim);
	ck_assert_uint_eq(r, rank);
}

START_TEST(test_later_sequences_of_the_tenant)
{
	scene("ABTXABTX");
	in_order();
	seq_at(0)->arrival = 100;
	seq_at(1)->arrival = 101;
	seq_at(2)->arrival = 102;
	seq_at(4)->arrival = 103;
	seq_at(5)->arrival = 104;
	seq_at(6)->arrival = 105;
	expect_elsewhere(2, false, 5, SURPLUS);
	expect_elsewhere(5, false, 6, SURPLUS);
	expect_elsewhere(6, false, EXTENTS, NEVER);
	expect_elsewhere(6, true, 5, SURPLUS);
	expect_elsewhere(4, true, 6, SURPLUS);
	expect_elsewhere(3, true, EXTENTS, NEVER);
}
END_TEST

/* Ranks count before the order of arrival. */
START_TEST(test_ranks)
{
	scene("TAAAABBB");
	in_order();
	expect_elsewhere(0, true, span_of(victim_choose(c, seq_at(0), 1)),
			 SURPLUS);
	set_blocks('b', CORE_LIMIT_LOW, 8);
	set_blocks('a', CORE_LIMIT_LOW, 12);
	expect_elsewhere(0, true, 7, SURPLUS);
	set_blocks('b', CORE_LIMIT_LOW, 9);
	expect_elsewhere(0, true, 4, SURPLUS);
	set_blocks('a', CORE_LIMIT_LOW, 13);
	expect_elsewhere(0, true, 7, LOW);
	set_blocks('b', CORE_LIMIT_MIN, 9);
	expect_elsewhere(0, true, 4, LOW);
	set_blocks('a', CORE_LIMIT_MIN, 13);
	expect_elsewhere(0, true, EXTENTS, NEVER);
	ck_assert(!victim_may_lose(c, seq_at(4)));
	set_blocks('a', CORE_LIMIT_MIN, 12);
	ck_assert(victim_may_lose(c, seq_at(4)));
	expect_elsewhere(0, true, 4, LOW);
}
END_TEST

START_TEST(test_domain_above_high_first)
{
	scene("TAAAABBB");
	in_order();
	set_blocks('a', CORE_LIMIT_HIGH, 16);
	expect_elsewhere(0, true, 7, SURPLUS);
	set_blocks('a', CORE_LIMIT_HIGH, 15);
	expect_elsewhere(0, true, 4, HIGH);
}
END_TEST

/* The blocks of marked victims are lost already, where a promise counts. */
START_TEST(test_marked_blocks_count_for_a_promise)
{
	scene("TAAAATTT");
	in_order();
	ck_assert_int_eq(sh_begin(owner['a'], runs[4], 3 * SH_BT + 1, 1), 0);
	SH_CORE(family_mark(c, seq_at(4), CORE_CAUSE_min, NULL));
	set_blocks('a', CORE_LIMIT_MIN, 8);
	expect_elsewhere(0, true, 3, SURPLUS);
	set_blocks('a', CORE_LIMIT_MIN, 9);
	expect_elsewhere(0, true, EXTENTS, NEVER);
	expect_elsewhere(0, false, 3, SURPLUS);
}
END_TEST

/* ---- marked victims ---- */

START_TEST(test_marked_victim_is_waited_for)
{
	u32 also;
	u64 begun = sh.now, seq;

	scene("AAAAATXX");
	also = sh_attach(1, "a");
	sh.cl[also].stubborn = false;
	sh_settle();
	ck_assert(!victim_is_marked(c, d_of('a')));
	ck_assert_int_eq(sh_begin(owner['a'], runs[0], 3 * SH_BT + 1, 1), 0);
	SH_CORE(family_mark(c, seq_at(0), CORE_CAUSE_grow, NULL));
	ck_assert(victim_is_marked(c, d_of('a')));
	ck_assert(!victim_is_marked(c, d_of('x')));
	c->now = begun + SLOW - 1;
	ck_assert(victim_is_marked(c, d_of('a')));
	c->now = begun + SLOW;
	ck_assert(!victim_is_marked(c, d_of('a')));
	/* The step of another client does not count. */
	sh.now = c->now;
	sh_close(owner['a'], runs[4]);
	seq = sh_ready(also, 1, 0, 99);
	ck_assert_int_eq(sh_begin(also, seq, 0, 1), 0);
	ck_assert(!victim_is_marked(c, d_of('a')));
	ck_assert_int_eq(sh_begin(owner['x'], runs[6], 3 * SH_BT + 1, 1), 0);
	SH_CORE(family_mark(c, seq_at(6), CORE_CAUSE_grow, NULL));
	ck_assert(!victim_is_marked(c, d_of('a')));
	ck_assert(victim_is_marked(c, d_of('x')));
}
END_TEST

/* ---- growth that was refused ---- */

/* The sequence of "b" is the last that came, and wants a block that is not there. */
static u64 refused(void)
{
	u64 seq;

	scene("bAATTTXX");
	thin(0, 1);
	seq = sh_ready(owner['b'], 3 * SH_BT + 1, 10 * SH_BT, 1000);
	sh_compute(owner['b'], seq, 3 * SH_BT, 4 * SH_BT, 1000);
	ck_assert_int_eq(sh_begin(owner['b'], seq, 4 * SH_BT, 1), -EAGAIN);
	ck_assert(seq_is_refused(c, seq_find(c, owner['b'], seq)));
	return seq;
}

static bool growth(struct kv_seq *s)
{
	bool waits;

	c->wait = CORE_WAIT_nothing;
	SH_CORE(waits = growth_waits(c, s));
	return waits;
}

START_TEST(test_refused_growth_comes_first)
{
	struct kv_seq *later, *theirs;

	refused();
	later = seq_find(c, owner['t'], sh_open(owner['t'], 1, 0));
	theirs = seq_find(c, owner['x'], sh_open(owner['x'], 1, 0));
	ck_assert(growth(later));
	ck_assert_uint_eq(c->wait, CORE_WAIT_growth);
	ck_assert_uint_eq(c->wait_dom, dom_of('b'));
	/* Not before one that came earlier, nor one of another tenant. */
	ck_assert(!growth(seq_at(3)));
	ck_assert(!growth(theirs));
	ck_assert_uint_eq(c->wait, CORE_WAIT_nothing);
}
END_TEST

/* A domain at its memory.max holds up its own sequences only. */
START_TEST(test_growth_at_memory_max)
{
	struct kv_seq *later, *own;

	refused();
	later = seq_find(c, owner['t'], sh_open(owner['t'], 1, 0));
	own = seq_find(c, owner['b'], sh_open(owner['b'], 1, 0));
	d_of('b')->dev.max_blocks = 5;
	ck_assert(growth(later));
	d_of('b')->dev.max_blocks = 4;
	ck_assert(!growth(later));
	ck_assert(growth(own));
}
END_TEST

/* A client that does not ask again holds up others for starve_ns. */
START_TEST(test_growth_that_is_not_asked_for_again)
{
	struct kv_seq *later, *s;
	u64 seq = refused();

	later = seq_find(c, owner['t'], sh_open(owner['t'], 1, 0));
	s = seq_find(c, owner['b'], seq);
	ck_assert(s->flags & SEQF_IN_REFUSED);
	wait_long();
	ck_assert(!growth(later));
	ck_assert(!(s->flags & SEQF_IN_REFUSED));
	ck_assert_uint_eq(d_of('b')->refused_root, CORE_NONE);
}
END_TEST

/* ---- the choice ---- */

static void expect_choice(u32 want, u32 nr, u32 victim)
{
	ck_assert_uint_eq(span_of(victim_choose(c, seq_at(want), nr)), victim);
}

START_TEST(test_own_domain_first)
{
	scene("BBAAAAXX");
	in_order();
	expect_choice(0, 1, 1);
	/* Its own family is no victim; others that come after it are. */
	make_family(seq_at(0), seq_at(1));
	expect_choice(0, 1, 5);
	again("TXXXXXXB");
	in_order();
	expect_choice(7, 1, EXTENTS);
}
END_TEST

START_TEST(test_own_domain_alone_at_memory_max)
{
	scene("BBAAAAXX");
	in_order();
	d_of('b')->dev.max_blocks = 8;
	set_blocks('a', CORE_LIMIT_HIGH, 4);
	expect_choice(0, 1, 1);
	make_family(seq_at(0), seq_at(1));
	expect_choice(0, 1, EXTENTS);
	d_of('b')->dev.max_blocks = 9;
	expect_choice(0, 1, 5);
	expect_choice(0, 2, EXTENTS);
}
END_TEST

START_TEST(test_promise_takes_from_others)
{
	scene("BBAAAAXX");
	in_order();
	set('a', CORE_LIMIT_WEIGHT, 1000);
	set_blocks('b', CORE_LIMIT_MIN, 9);
	expect_choice(0, 1, 5);
	expect_choice(0, 2, 1);
	/* Of any arrival. */
	again("AAAABBXX");
	in_order();
	expect_choice(4, 1, 5);
	set_blocks('b', CORE_LIMIT_MIN, 9);
	expect_choice(4, 1, 3);
}
END_TEST

START_TEST(test_domain_above_high_before_the_own)
{
	scene("BBAAAAXX");
	in_order();
	set_blocks('a', CORE_LIMIT_HIGH, 15);
	expect_choice(0, 1, 5);
	set_blocks('b', CORE_LIMIT_HIGH, 7);
	expect_choice(0, 1, 1);
}
END_TEST

/* "b" has a share of 57: another needs more than 57 / 8 * 9 + 8 = 71. */
START_TEST(test_domain_with_clearly_more_before_the_own)
{
	scene("BBAAAAAX");
	in_order();
	set('b', CORE_LIMIT_WEIGHT, 14);
	ck_assert_uint_eq(limit_share(d_of('b')), 57);
	set('a', CORE_LIMIT_WEIGHT, 28);
	ck_assert_uint_eq(limit_share(d_of('a')), 71);
	expect_choice(0, 1, 1);
	set('a', CORE_LIMIT_WEIGHT, 27);
	ck_assert_uint_eq(limit_share(d_of('a')), 74);
	expect_choice(0, 1, 6);
	/* But nothing that its memory.low protects. */
	set_blocks('a', CORE_LIMIT_LOW, 17);
	set('a', CORE_LIMIT_WEIGHT, 1);
	expect_choice(0, 1, 1);
}
END_TEST

/* ---- the reasons that a report names ---- */

static u32 why(u32 want, struct core_oom_view o, u32 taken, char letter,
	       u32 expected)
{
	const struct kv_seq *s;
	u32 reason;

	reason = victim_why(c, &o, seq_at(want),
			    taken == EXTENTS ? NULL : seq_at(taken),
			    dom_of(letter), &s);
	ck_assert_uint_eq(span_of(s), expected);
	return reason;
}

START_TEST(test_reasons)
{
	struct core_oom_view o = { .want = 1, .outcome = CORE_OOM_victim,
				   .cause = CORE_CAUSE_grow };

	scene("ABBAAXTt");
	in_order();
	ck_assert_uint_eq(why(1, o, 3, 'a', 3), CORE_OOM_WHY_taken);
	ck_assert_uint_eq(why(1, o, 4, 'a', 4), CORE_OOM_WHY_taken);
	ck_assert_uint_eq(why(2, o, 4, 'b', 2), CORE_OOM_WHY_asks);
	ck_assert_uint_eq(why(1, o, 4, 'b', 2), CORE_OOM_WHY_later);
	ck_assert_uint_eq(why(1, o, 4, 'x', 5), CORE_OOM_WHY_foreign);
	ck_assert_uint_eq(why(1, o, EXTENTS, 'a', 4), CORE_OOM_WHY_later);
	SH_CORE(family_mark(c, seq_at(6), CORE_CAUSE_grow, NULL));
	ck_assert_uint_eq(why(1, o, 4, 't', EXTENTS), CORE_OOM_WHY_none);
	o.outcome = CORE_OOM_failed;
	ck_assert_uint_eq(why(1, o, EXTENTS, 'a', 4), CORE_OOM_WHY_size);
	ck_assert_uint_eq(why(1, o, EXTENTS, 'x', 5), CORE_OOM_WHY_size);
}
END_TEST

START_TEST(test_reasons_of_the_own_domain)
{
	struct core_oom_view o = { .want = 1, .outcome = CORE_OOM_victim,
				   .cause = CORE_CAUSE_min };

	scene("ABBAAXTT");
	in_order();
	ck_assert_uint_eq(why(1, o, 4, 'b', 2), CORE_OOM_WHY_own);
	ck_assert_uint_eq(why(1, o, EXTENTS, 'a', 4), CORE_OOM_WHY_later);
	o.cause = CORE_CAUSE_wait;
	ck_assert_uint_eq(why(1, o, 4, 'b', 2), CORE_OOM_WHY_recent);
	wait_long();
	ck_assert_uint_eq(why(1, o, 4, 'b', 2), CORE_OOM_WHY_later);
	d_of('b')->dev.max_blocks = 8;
	ck_assert_uint_eq(why(1, o, EXTENTS, 'a', 4), CORE_OOM_WHY_max);
	ck_assert_uint_eq(why(1, o, EXTENTS, 'b', 2), CORE_OOM_WHY_later);
}
END_TEST

START_TEST(test_reasons_of_another_domain)
{
	struct core_oom_view o = { .want = 1, .outcome = CORE_OOM_victim,
				   .cause = CORE_CAUSE_grow };

	scene("ABBAAXTT");
	in_order();
	set_blocks('t', CORE_LIMIT_MIN, 8);
	ck_assert_uint_eq(why(1, o, EXTENTS, 't', 7), CORE_OOM_WHY_protected);
	ck_assert_uint_eq(why(6, o, EXTENTS, 't', 7), CORE_OOM_WHY_later);
	ck_assert_uint_eq(why(7, o, EXTENTS, 'a', 4), CORE_OOM_WHY_before);
	/* A promise takes it all the same, as far as memory.min lets it. */
	set_blocks('t', CORE_LIMIT_MIN, 9);
	ck_assert_uint_eq(why(7, o, EXTENTS, 'a', 4), CORE_OOM_WHY_later);
	set_blocks('a', CORE_LIMIT_MIN, 8);
	ck_assert_uint_eq(why(7, o, EXTENTS, 'a', 4), CORE_OOM_WHY_later);
	set_blocks('a', CORE_LIMIT_MIN, 9);
	ck_assert_uint_eq(why(7, o, EXTENTS, 'a', 4), CORE_OOM_WHY_protected);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_victim");
	TCase *tc = tcase_create("victim");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_size_of_a_family);
	tcase_add_test(tc, test_marked_blocks_of_a_domain);
	tcase_add_test(tc, test_residency);
	tcase_add_test(tc, test_victim_returns);
	tcase_add_test(tc, test_residency_of_a_restored_sequence);
	tcase_add_test(tc, test_later_sequences_of_the_tenant);
	tcase_add_test(tc, test_ranks);
	tcase_add_test(tc, test_domain_above_high_first);
	tcase_add_test(tc, test_marked_blocks_count_for_a_promise);
	tcase_add_test(tc, test_marked_victim_is_waited_for);
	tcase_add_test(tc, test_refused_growth_comes_first);
	tcase_add_test(tc, test_growth_at_memory_max);
	tcase_add_test(tc, test_growth_that_is_not_asked_for_again);
	tcase_add_test(tc, test_own_domain_first);
	tcase_add_test(tc, test_own_domain_alone_at_memory_max);
	tcase_add_test(tc, test_promise_takes_from_others);
	tcase_add_test(tc, test_domain_above_high_before_the_own);
	tcase_add_test(tc, test_domain_with_clearly_more_before_the_own);
	tcase_add_test(tc, test_reasons);
	tcase_add_test(tc, test_reasons_of_the_own_domain);
	tcase_add_test(tc, test_reasons_of_another_domain);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
