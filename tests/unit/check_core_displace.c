// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_displace.c - runs that hold sequences, for a sequence of another domain
 *
 * The pool of span_scene.h: each span has one running sequence with four blocks.  A
 * sequence of "t" waits, and the tests have displace() claim runs for it.
 */
#include "tests/unit/span_scene.h"

#define BLOCKS	(EXTENTS * SH_PER)

static u64 waits;
static u32 work;	/* of the last claim */

/* A second tenant lets domains displace others; its domain "z" has nothing. */
static void scene(const char *spans)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('g', 1, 2);
	domain('z', 3, 1);
	layout(spans);
}

static void again(const char *spans)
{
	restart(EXTENTS, 0);
	scene(spans);
}

/* Claim runs for a sequence of @letter that lacks @nr blocks. */
static enum verdict claim(char letter, u32 nr, bool promised)
{
	enum verdict verdict;
	struct kv_seq *s;

	waits = sh_open(owner[(int)letter], SH_BT, 0);
	s = seq_find(c, owner[(int)letter], waits);
	s->since = sh.now;
	c->now = sh.now;
	c->work = 0;
	SH_CORE(verdict = displace(c, s, nr, promised));
	work = c->work;
	sh_check();
	ck_assert_int_eq(sh_close(owner[(int)letter], waits), 0);
	return verdict;
}

static void expect_made(char letter, u32 nr, const char *after)
{
	ck_assert_int_eq(claim(letter, nr, true), ROOM_MADE);
	ck_assert_str_eq(map(), after);
}

static void expect_none(u32 nr)
{
	char before[SH_EXTENTS + 1];

	strcpy(before, map());
	ck_assert_int_eq(claim('t', nr, true), ROOM_NONE);
	ck_assert_str_eq(map(), before);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), 0);
}

/* ---- claiming ---- */

START_TEST(test_family_of_the_run_loses_its_memory)
{
	u32 i;

	scene("AAAAAAAA");
	expect_made('t', 4, ".AAAAAAA");
	ck_assert_uint_eq(state_at('a', 0), KVMM_SEQ_RECOMPUTE);
	for (i = 1; i < EXTENTS; i++)
		ck_assert_uint_eq(state_at('a', i), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), 1);
	ck_assert_uint_eq(seq_find(c, owner['a'], runs[0])->cause,
			  CORE_CAUSE_tenant);
	ck_assert_uint_eq(seq_find(c, owner['a'], runs[0])->taken.by_domain,
			  dom_of('t'));
	ck_assert_uint_eq(d_of('t')->dev.nr_spans, 1);
}
END_TEST

/* As many runs as are lacking, and not a block more. */
START_TEST(test_as_many_runs_as_are_lacking)
{
	scene("AAAAAAAA");
	expect_made('t', 5, "..AAAAAA");
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 2);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), 1);
	expect_made('t', 8, "....AAAA");
	/* A claim for more than the pool has begins nothing. */
	ck_assert_int_eq(claim('t', 17, true), ROOM_NONE);
	ck_assert_str_eq(map(), "....AAAA");
}
END_TEST

START_TEST(test_another_tenant_gives_back)
{
	domain('x', 2, 1);
	layout("XXXXXXXX");
	/* Extents of another tenant stay for a while. */
	ck_assert_int_eq(claim('t', 4, true), ROOM_NONE);
	ck_assert_str_eq(map(), "XXXXXXXX");
	wait_long();
	expect_made('t', 8, "!!XXXXXX");
	ck_assert_uint_eq(c->head->nr_revokes, 2);
	expect_made('t', 4, "!!!XXXXX");
}
END_TEST

START_TEST(test_no_other_tenant)
{
	domain('a', 1, 1);
	layout("AAAAAAAA");
	expect_none(4);
	ck_assert_uint_eq(work, 0);
}
END_TEST

/* A domain that had to give up a run does not try at once. */
START_TEST(test_pause_after_a_run_given_up)
{
	scene("AAAAAAAA");
	d_of('t')->displace_after = sh.now + 1;
	expect_none(4);
	ck_assert_uint_eq(work, 0);
	d_of('t')->displace_after = sh.now;
	expect_made('t', 4, ".AAAAAAA");
	/* A look at each extent, and four for each of the sequences. */
	ck_assert_uint_eq(work, EXTENTS + 4 * EXTENTS);
}
END_TEST

START_TEST(test_records_of_claims_run_out)
{
	scene("AAAAAAAA");
	sh_unchecked = true;
	c->head->nr_revokes = CORE_MAX_REVOKES - 1;
	expect_none(5);
	ck_assert_uint_eq(work, 0);
	c->head->nr_revokes = 0;
	expect_made('t', 4, ".AAAAAAA");
}
END_TEST

/* ---- which run ---- */

START_TEST(test_owner_with_the_largest_share_first)
{
	scene("AABBBBAA");
	set('a', CORE_LIMIT_WEIGHT, 200);
	expect_made('t', 4, "AA.BBBAA");
	again("AABBBBAA");
	set('b', CORE_LIMIT_WEIGHT, 200);
	expect_made('t', 4, ".ABBBBAA");
}
END_TEST

/* An owner above memory.high goes before one with a larger share. */
START_TEST(test_owner_above_high_first)
{
	scene("AAAAAABB");
	set_blocks('b', CORE_LIMIT_HIGH, 7);
	expect_made('t', 4, "AAAAAA.B");
	again("AAAAAABB");
	set_blocks('b', CORE_LIMIT_HIGH, 8);
	expect_made('t', 4, ".AAAAABB");
}
END_TEST

/* An owner below memory.low goes last, with any share and memory.high. */
START_TEST(test_owner_below_low_last)
{
	scene("AAAAAABB");
	set('b', CORE_LIMIT_WEIGHT, 10000);
	set_blocks('a', CORE_LIMIT_LOW, 20);
	expect_made('t', 4, ".AAAAABB");
	again("AAAAAABB");
	set('b', CORE_LIMIT_WEIGHT, 10000);
	set_blocks('a', CORE_LIMIT_LOW, 21);
	set_blocks('a', CORE_LIMIT_HIGH, 4);
	expect_made('t', 4, "AAAAAA.B");
}
END_TEST

/* Of one owner the span with the fewest blocks in use goes. */
START_TEST(test_fewest_used_blocks_first)
{
	scene("AAAaAAAA");
	expect_made('t', 4, "AAA.AAAA");
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 0);
}
END_TEST

/* The used blocks of all spans of a run count, and the largest share of them. */
START_TEST(test_run_of_two)
{
	scene("AAaAAABB");
	set('b', CORE_LIMIT_WEIGHT, 10);
	set('a', CORE_LIMIT_WEIGHT, 1000);
	expect_made('g', 1, "AAaAAA..");
	again("AAaAAABA");
	set('b', CORE_LIMIT_WEIGHT, 10);
	set('a', CORE_LIMIT_WEIGHT, 1000);
	expect_made('g', 1, "AAaAAA..");
	again("AAAAaAAA");
	expect_made('g', 1, "AAAA..AA");
	/* One span protected by memory.low makes the run the last. */
	again("ABAABBAB");
	set_blocks('b', CORE_LIMIT_LOW, 16);
	expect_made('g', 1, "AB..BBAB");
	/* The last owner of memory in no span does not count. */
	again("zAAABBTB");
	set_blocks('b', CORE_LIMIT_LOW, 12);
	set_blocks('z', CORE_LIMIT_LOW, 4);
	release(0);
	wait_long();
	expect_made('g', 1, "!+AABBTB");
	/* One span of an owner that is not above memory.high. */
	again("ABBBAABA");
	set_blocks('a', CORE_LIMIT_HIGH, 4);
	expect_made('g', 1, "ABBB..BA");
}
END_TEST

/* ---- spans that must not go ---- */

START_TEST(test_min_of_the_owner)
{
	scene("AAAAAATT");
	set_blocks('a', CORE_LIMIT_MIN, 17);
	/* Seven of 24 may go: one run of two. */
	expect_none(5);
	expect_made('t', 4, ".AAAAATT");
	again("AAAAAATT");
	set_blocks('a', CORE_LIMIT_MIN, 16);
	expect_made('t', 8, "..AAAATT");
	again("AAAAAATT");
	set_blocks('a', CORE_LIMIT_MIN, 24);
	expect_none(4);
	/* A run that is not chosen is not counted as lost. */
	again("AAaATTTT");
	set_blocks('a', CORE_LIMIT_MIN, 12);
	expect_made('t', 4, "AA.ATTTT");
}
END_TEST

START_TEST(test_own_spans_are_not_displaced)
{
	scene("TTTTTTTA");
	expect_none(5);
	expect_made('t', 4, "TTTTTTT.");
}
END_TEST

START_TEST(test_claimed_and_isolated_spans)
{
	scene("AAATTTTT");
	c->extents[0].want = CORE_NONE;
	ck_assert_int_eq(span_isolate(c, 1), 0);
	sh_unchecked = true;
	expect_none(5);
	expect_made('t', 4, "AA.TTTTT");
}
END_TEST

/* The claimed run reaches into a span behind its first extent. */
START_TEST(test_claim_of_the_end_of_a_span)
{
	scene("GTTTTTT");
	c->extents[0].want = EXT_WANT_SIZE;
	sh_unchecked = true;
	ck_assert_int_eq(sh_begin(owner['g'], runs[0], 1, 1), 0);
	ck_assert_int_eq(claim('t', 4, true), ROOM_MADE);
	c->extents[0].want = 0;
	ck_assert_uint_eq(state_at('g', 0), KVMM_SEQ_MARKED);
	ck_assert(block_is_claimed(c, table_get(c, &seq_at(0)->tab, 0)));
	ck_assert(!block_is_claimed(c, 2 * SH_PER));
}
END_TEST

/* A run in which one extent is being made or given back cannot go. */
START_TEST(test_states_of_extents)
{
	static const u32 states[] = { EXT_CREATING, EXT_REVOKING, EXT_OFFLINE };
	u32 i;

	scene("aAbbbbbb");
	release(0);
	sh_unchecked = true;
	for (i = 2; i < EXTENTS; i++)
		c->extents[i].want = CORE_NONE;
	for (i = 0; i < ARRAY_SIZE(states); i++) {
		c->extents[0].state = states[i];
		ck_assert_int_eq(claim('g', 1, true), ROOM_NONE);
	}
	c->extents[0].state = EXT_BACKED;
	ck_assert_int_eq(claim('g', 1, true), ROOM_MADE);
	ck_assert_uint_eq(state_at('a', 1), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* Memory of another tenant in no span is a part of a run, if it may be asked back. */
START_TEST(test_memory_of_another_tenant_in_no_span)
{
	domain('x', 2, 1);
	domain('a', 1, 1);
	domain('g', 1, 2);
	layout("xAttTTtt");
	release(0);
	set_blocks('t', CORE_LIMIT_MIN, 24);
	ck_assert_int_eq(claim('g', 1, true), ROOM_NONE);
	wait_long();
	ck_assert_int_eq(claim('g', 1, true), ROOM_MADE);
	ck_assert_str_eq(map(), "!+ttTTtt");
}
END_TEST

/* ---- the longest waiter ---- */

/* Not promised, a claim leaves the sequences that had no time yet. */
START_TEST(test_waiter_displaces_past_residency_only)
{
	u32 i;

	scene("AAAATTTT");
	ck_assert_int_eq(claim('t', 4, false), ROOM_NONE);
	wait_long();
	sh_unchecked = true;
	for (i = 0; i < 2; i++)
		seq_at(i)->since = sh.now;
	ck_assert_int_eq(claim('t', 9, false), ROOM_NONE);
	ck_assert_int_eq(claim('t', 4, false), ROOM_MADE);
	ck_assert_str_eq(map(), "AA.ATTTT");
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), 0);
	ck_assert_int_eq(claim('t', 4, false), ROOM_MADE);
	ck_assert_int_eq(claim('t', 4, false), ROOM_NONE);
	ck_assert_str_eq(map(), "AA..TTTT");
}
END_TEST

/* A family stays as a whole if one of its members does. */
START_TEST(test_member_that_stays_keeps_its_family)
{
	scene("AAAATTTT");
	wait_long();
	make_family(seq_at(_i), seq_at(1 - _i));
	seq_at(0)->since = sh.now;
	ck_assert_int_eq(claim('t', 9, false), ROOM_NONE);
	ck_assert_int_eq(claim('t', 4, false), ROOM_MADE);
	ck_assert_str_eq(map(), "AA.ATTTT");
}
END_TEST

/* A family goes as a whole if it goes. */
START_TEST(test_family_goes_as_a_whole)
{
	scene("AAAATTTT");
	make_family(seq_at(0), seq_at(1));
	ck_assert_int_eq(claim('t', 4, true), ROOM_MADE);
	ck_assert_str_eq(map(), ".aAATTTT");
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 1);
}
END_TEST

/* ---- promises ---- */

/* A sequence of four blocks that are promised and not computed. */
static u64 promise(u32 blocks, u32 seed)
{
	return sh_ready(owner['a'], blocks * SH_BT, 0, seed);
}

/* The free blocks of a run cover a promise: the sequence goes with them. */
START_TEST(test_promised_sequence_goes_with_its_blocks)
{
	u64 seq;

	scene("aAAATTTT");
	thin(0, 4);
	seq = promise(4, 90000);
	expect_made('t', 4, ".AAATTTT");
	ck_assert_uint_eq(sh_state(owner['a'], seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 1);
	ck_assert_uint_eq(d_of('a')->dev.reserved, 0);
}
END_TEST

/* Of two promises one is enough; blocks that are free elsewhere cover the other. */
START_TEST(test_no_more_promises_than_needed)
{
	u64 one, two;

	scene("aaAATTTT");
	thin(0, 4);
	thin(1, 2);
	one = promise(2, 90000);
	two = promise(2, 95000);
	expect_made('t', 4, ".aAATTTT");
	ck_assert_uint_eq(sh_state(owner['a'], one), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(owner['a'], two), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 1);
}
END_TEST

/* A promise that is covered elsewhere costs no sequence its memory. */
START_TEST(test_promise_that_is_covered)
{
	u64 one;

	scene("aaAATTTT");
	thin(0, 4);
	thin(1, 2);
	one = promise(2, 90000);
	expect_made('t', 4, ".aAATTTT");
	ck_assert_uint_eq(sh_state(owner['a'], one), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 0);
}
END_TEST

/* A victim in an open step gives its promise back when the step ends. */
START_TEST(test_promise_of_a_sequence_in_a_step)
{
	u64 one, two;

	scene("aaAATTTT");
	thin(0, 4);
	thin(1, 3);
	one = promise(3, 90000);
	two = promise(3, 95000);
	ck_assert_int_eq(sh_begin(owner['a'], one, 0, 1), 0);
	ck_assert_uint_eq(d_of('a')->dev.reserved, 5);
	ck_assert_int_eq(claim('t', 4, true), ROOM_MADE);
	ck_assert_uint_eq(sh_state(owner['a'], one), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(sh_state(owner['a'], two), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 2);
}
END_TEST

/* A sequence that is marked already gives its promise back as well. */
START_TEST(test_promise_of_a_marked_sequence)
{
	u64 one, two;

	scene("aaAATTTT");
	thin(0, 4);
	thin(1, 3);
	one = promise(3, 90000);
	two = promise(2, 95000);
	ck_assert_int_eq(sh_begin(owner['a'], one, 0, 1), 0);
	SH_CORE(family_mark(c, seq_find(c, owner['a'], one), CORE_CAUSE_tenant,
			    NULL));
	ck_assert_int_eq(claim('t', 4, true), ROOM_MADE);
	ck_assert_uint_eq(sh_state(owner['a'], two), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 0);
}
END_TEST

/* Of two promises the one of the sequence that may go is taken. */
START_TEST(test_promise_of_the_sequence_that_may_go)
{
	u64 one, two;

	scene("aaAATTTT");
	thin(0, 4);
	thin(1, 2);
	one = promise(2, 90000);
	two = promise(2, 95000);
	wait_long();
	sh_unchecked = true;
	seq_find(c, owner['a'], one)->since = sh.now;
	ck_assert_int_eq(claim('t', 4, false), ROOM_MADE);
	ck_assert_uint_eq(sh_state(owner['a'], one), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(owner['a'], two), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* The free blocks of a span of two extents are counted once. */
START_TEST(test_free_blocks_of_a_span_of_two)
{
	u64 one;

	domain('h', 1, 2);
	domain('g', 1, 2);
	domain('z', 3, 1);
	layout("hhHH");
	thin(0, 1);
	thin(2, 1);
	one = sh_ready(owner['h'], SH_BT, 0, 90000);
	expect_made('g', 1, "..__HHHH");
	ck_assert_uint_eq(sh_state(owner['h'], one), KVMM_SEQ_READY);
}
END_TEST

/* A sequence that has to stay keeps its promise, and the blocks that cover it. */
START_TEST(test_promise_of_a_sequence_that_stays)
{
	u64 one;

	scene("aAAATTTT");
	wait_long();
	thin(0, 4);
	one = promise(1, 90000);
	ck_assert_int_eq(claim('t', 4, false), ROOM_MADE);
	ck_assert_str_eq(map(), "_.AATTTT");
	ck_assert_uint_eq(sh_state(owner['a'], one), KVMM_SEQ_READY);
}
END_TEST

/* A member of a family that stays keeps its promise as well. */
START_TEST(test_promise_of_a_family_that_stays)
{
	u64 one;

	scene("aAAATTTT");
	thin(0, 4);
	one = promise(4, 90000);
	wait_long();
	make_family(seq_at(1), seq_find(c, owner['a'], one));
	seq_at(1)->since = sh.now;
	ck_assert_int_eq(claim('t', 4, false), ROOM_MADE);
	ck_assert_str_eq(map(), "_A.ATTTT");
	ck_assert_uint_eq(sh_state(owner['a'], one), KVMM_SEQ_READY);
}
END_TEST

/* ---- a span at a time ---- */

static bool empty_span(u32 first)
{
	bool ok;

	c->now = sh.now;
	SH_CORE(ok = displace_span(c, first));
	sh_check();
	return ok;
}

/* A block in a step stays until the step ends; the rest is evicted. */
START_TEST(test_span_with_an_open_step)
{
	scene("AaAATTTT");
	ck_assert_int_eq(sh_begin(owner['a'], runs[0], 3 * SH_BT + 1, 1), 0);
	ck_assert_int_eq(span_isolate(c, 0), 0);
	ck_assert(empty_span(0));
	ck_assert_str_eq(map(), "AaAATTTT");
	ck_assert_uint_eq(state_at('a', 0), KVMM_SEQ_MARKED);
	ck_assert(empty_span(0));
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 1);
	ck_assert_int_eq(span_isolate(c, 1), 0);
	ck_assert(empty_span(1));
	ck_assert_str_eq(map(), "A.AATTTT");
}
END_TEST

/* memory.min of the owner keeps sequences, and the cache behind them. */
START_TEST(test_span_that_min_protects)
{
	scene("AaAATTTT");
	ck_assert_int_eq(span_isolate(c, 0), 0);
	ck_assert_int_eq(span_isolate(c, 1), 0);
	set_blocks('a', CORE_LIMIT_MIN, 16);
	ck_assert(!empty_span(0));
	ck_assert(!empty_span(1));
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 0);
	set_blocks('a', CORE_LIMIT_MIN, 12);
	ck_assert(empty_span(0));
	ck_assert_uint_eq(state_at('a', 0), KVMM_SEQ_RECOMPUTE);
	ck_assert_str_eq(map(), ".aAATTTT");
	ck_assert(!empty_span(1));
}
END_TEST

/* A span that leaves the pool goes whatever memory.min says. */
START_TEST(test_span_that_has_to_go)
{
	scene("AAAATTTT");
	set_blocks('a', CORE_LIMIT_MIN, 16);
	ck_assert_int_eq(span_isolate(c, 1), 0);
	SH_CORE(displace_all(c, 1));
	ck_assert_uint_eq(state_at('a', 0), KVMM_SEQ_READY);
	ck_assert_uint_eq(state_at('a', 1), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_count(CORE_EV_resize_preempt), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_revoke_preempt), 0);
	ck_assert_uint_eq(seq_find(c, owner['a'], runs[1])->cause,
			  CORE_CAUSE_resize);
	ck_assert_uint_eq(seq_find(c, owner['a'], runs[1])->taken.by_domain,
			  CORE_NONE);
}
END_TEST

/* All sequences of a span go, also those behind a family in the list. */
START_TEST(test_all_sequences_of_a_span_go)
{
	u64 seq[SH_PER];
	u32 i;

	scene("aAAATTTT");
	thin(0, 4);
	for (i = 0; i < SH_PER; i++) {
		seq[i] = sh_ready(owner['a'], 1, SH_BT - 1, 50000 + 100 * i);
		sh_compute(owner['a'], seq[i], 0, 1, 50000 + 100 * i);
	}
	make_family(seq_find(c, owner['a'], seq[0]),
		    seq_find(c, owner['a'], seq[1]));
	ck_assert_int_eq(span_isolate(c, 0), 0);
	SH_CORE(displace_all(c, 0));
	for (i = 0; i < SH_PER; i++)
		ck_assert_uint_eq(sh_state(owner['a'], seq[i]),
				  KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_count(CORE_EV_resize_preempt), 3);
	ck_assert_str_eq(map(), ".AAATTTT");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_displace");
	TCase *tc = tcase_create("displace");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_family_of_the_run_loses_its_memory);
	tcase_add_test(tc, test_as_many_runs_as_are_lacking);
	tcase_add_test(tc, test_another_tenant_gives_back);
	tcase_add_test(tc, test_no_other_tenant);
	tcase_add_test(tc, test_pause_after_a_run_given_up);
	tcase_add_test(tc, test_records_of_claims_run_out);
	tcase_add_test(tc, test_owner_with_the_largest_share_first);
	tcase_add_test(tc, test_owner_above_high_first);
	tcase_add_test(tc, test_owner_below_low_last);
	tcase_add_test(tc, test_fewest_used_blocks_first);
	tcase_add_test(tc, test_run_of_two);
	tcase_add_test(tc, test_min_of_the_owner);
	tcase_add_test(tc, test_own_spans_are_not_displaced);
	tcase_add_test(tc, test_claimed_and_isolated_spans);
	tcase_add_test(tc, test_claim_of_the_end_of_a_span);
	tcase_add_test(tc, test_states_of_extents);
	tcase_add_test(tc, test_memory_of_another_tenant_in_no_span);
	tcase_add_test(tc, test_waiter_displaces_past_residency_only);
	tcase_add_loop_test(tc, test_member_that_stays_keeps_its_family, 0, 2);
	tcase_add_test(tc, test_family_goes_as_a_whole);
	tcase_add_test(tc, test_promised_sequence_goes_with_its_blocks);
	tcase_add_test(tc, test_no_more_promises_than_needed);
	tcase_add_test(tc, test_promise_that_is_covered);
	tcase_add_test(tc, test_promise_of_a_sequence_in_a_step);
	tcase_add_test(tc, test_promise_of_a_marked_sequence);
	tcase_add_test(tc, test_promise_of_the_sequence_that_may_go);
	tcase_add_test(tc, test_free_blocks_of_a_span_of_two);
	tcase_add_test(tc, test_promise_of_a_sequence_that_stays);
	tcase_add_test(tc, test_promise_of_a_family_that_stays);
	tcase_add_test(tc, test_span_with_an_open_step);
	tcase_add_test(tc, test_span_that_min_protects);
	tcase_add_test(tc, test_span_that_has_to_go);
	tcase_add_test(tc, test_all_sequences_of_a_span_go);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
