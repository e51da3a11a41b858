// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_reclaim.c - room, victims, the longest-waiting sequence
 *
 * Most tests run in a pool of 8 blocks: sequence "old" arrived first and holds
 * some, "new" holds the rest, and one of them wants more.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

static u32 cl;

static void setup(void)
{
	sh_config(2);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
}

static void teardown(void)
{
	sh_stop();
}

static u64 open_prio(u32 client, u32 prompt, u32 more, u32 prio, u32 seed)
{
	struct kvmm_open_arg a = { .prompt_len = prompt, .max_tokens = more,
				   .priority = prio };
	u64 seq;

	ck_assert_int_eq(sh_open_as(client, &a, &seq), 0);
	ck_assert_int_eq(sh_match(client, seq, prompt, seed), 0);
	return seq;
}

/* @old has 2 blocks and @new 6: the pool is full. */
static void fill(u32 client, u64 *old, u64 *new, u32 old_prio, u32 new_prio)
{
	*old = open_prio(client, 32, 64, old_prio, 1000);
	sh_compute(client, *old, 0, 32, 1000);
	*new = open_prio(client, 64, 64, new_prio, 2000);
	sh_compute(client, *new, 0, 64, 2000);
	sh_compute(client, *new, 64, 96, 2000);
	ck_assert_uint_eq(sh_pool().free + sh_pool().free_extents, 0);
}

/* ---- choice of the victim ---- */

START_TEST(test_later_arrival_is_taken)
{
	u64 old, new;

	fill(cl, &old, &new, 0, 0);
	ck_assert_int_eq(sh_begin(cl, old, 32, 1), 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_status(cl, new)->seq_epoch, 1);
	ck_assert_uint_eq(sh_status(cl, new)->valid_len, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_recompute), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_recompute_tokens), 96);
	/* Its full blocks stay in the index, as cache. */
	ck_assert_uint_ge(sh_pool().cached, 5 * SH_BLOCK);
}
END_TEST

START_TEST(test_lower_priority_is_taken)
{
	u64 old, new;

	fill(cl, &old, &new, 0, 1);
	ck_assert_int_eq(sh_begin(cl, new, 96, 1), 0);
	ck_assert_uint_eq(sh_state(cl, old), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* No family comes after its own: the sequence is the victim itself. */
START_TEST(test_own_family_is_the_victim)
{
	u64 old, new;
	struct kvmm_begin_arg a;
	struct kvmm_begin_res res;

	fill(cl, &old, &new, 0, 0);
	a = sh_entry(cl, new, 96, 1);
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	ck_assert_int_eq(res.status, -EAGAIN);
	ck_assert_uint_eq(res.limiting_pool, 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(cl, old), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_grant_again), 1);
	/* A request with the former epoch is stale. */
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	ck_assert_int_eq(res.status, -ESTALE);
	ck_assert_uint_eq(sh_count(CORE_EV_grant_stale), 1);
}
END_TEST

/* A victim in an open step is marked; its STEP_END counts, then it is preempted. */
START_TEST(test_victim_in_an_open_step)
{
	u64 old, new, step;
	struct kvmm_begin_arg a;
	struct kvmm_begin_res res;

	old = open_prio(cl, 32, 64, 0, 1000);
	sh_compute(cl, old, 0, 32, 1000);
	new = open_prio(cl, 64, 64, 0, 2000);
	sh_compute(cl, new, 0, 64, 2000);
	ck_assert_int_eq(sh_begin(cl, new, 64, 32), 0);
	step = sh.cl[cl].step;

	ck_assert_int_eq(sh_begin(cl, old, 32, 1), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(sh_status(cl, new)->seq_epoch, 1);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_mark), 1);
	a = sh_entry(cl, new, 96, 1);
	a.seq_epoch = 0;
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	ck_assert_int_eq(res.status, -ESTALE);
	a.seq_epoch = 1;
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	ck_assert_int_eq(res.status, -ESTALE);

	ck_assert_int_eq(sh_end_step(cl, step, new, 64, 96, 2000), 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_status(cl, new)->seq_epoch, 1);
	ck_assert_uint_eq(sh_count(CORE_EV_recompute_tokens), 96);
	ck_assert_int_eq(sh_end_empty(cl, step + 1), 0);
	ck_assert_int_eq(sh_begin(cl, old, 32, 1), 0);
}
END_TEST

/* While the memory of a marked family is awaited, no other family is marked. */
START_TEST(test_one_victim_at_a_time)
{
	u64 old = open_prio(cl, 32, 64, 0, 1000);
	u64 mid = open_prio(cl, 32, 64, 0, 2000), new;

	sh_compute(cl, old, 0, 32, 1000);
	sh_compute(cl, mid, 0, 32, 2000);
	new = open_prio(cl, 32, 64, 0, 3000);
	sh_compute(cl, new, 0, 32, 3000);
	sh_compute(cl, mid, 32, 64, 2000);
	ck_assert_int_eq(sh_begin(cl, new, 32, 1), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_match(cl, new, 33, 3000), 0);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_int_eq(sh_begin(cl, mid, 64, 1), 0);
	ck_assert_int_eq(sh_begin(cl, old, 32, 64), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, mid), KVMM_SEQ_MARKED);
	ck_assert_int_eq(sh_begin(cl, old, 32, 64), -EAGAIN);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_recompute), 1);
}
END_TEST

/* A family is preempted as a whole, with the member that is in no step. */
START_TEST(test_family_goes_whole)
{
	u64 old = open_prio(cl, 32, 64, 0, 1000), new, kid, step;

	sh_compute(cl, old, 0, 32, 1000);
	new = open_prio(cl, 32, 64, 0, 2000);
	sh_compute(cl, new, 0, 32, 2000);
	ck_assert_int_eq(sh_fork(cl, new, 1, &kid), 0);
	ck_assert_int_eq(sh_begin(cl, new, 32, 64), 0);
	step = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, old, 32, 16), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_MARKED);
	ck_assert_int_eq(sh_end_step(cl, step, new, 32, 40, 2000), 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/*
 * A member that came back and is in a step does not hold up another marked
 * member; nor does the end of its step forget that member.
 */
START_TEST(test_returned_member_holds_nobody)
{
	u64 old, new, kid, step;
	u32 at;

	sh_stop();
	sh_config(3);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
	old = open_prio(cl, 32, 160, 0, 1000);
	sh_compute(cl, old, 0, 32, 1000);
	new = open_prio(cl, 32, 64, 0, 2000);
	sh_compute(cl, new, 0, 32, 2000);
	ck_assert_int_eq(sh_fork(cl, new, 1, &kid), 0);
	sh_compute(cl, old, 32, 160, 1000);
	/* The pool is full: the family is preempted, and one member comes back. */
	ck_assert_int_eq(sh_begin(cl, old, 160, 16), 0);
	ck_assert_int_eq(sh_end(cl, old, 160, 161, 1000), 0);
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_RECOMPUTE);
	sh_tick(1000);
	ck_assert_int_eq(sh_close(cl, old), 0);
	old = open_prio(cl, 32, 96, 1, 5000);
	sh_compute(cl, old, 0, 32, 5000);
	ck_assert_int_eq(sh_match(cl, new, 33, 2000), 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_READY);
	at = sh_status(cl, new)->valid_len;
	ck_assert_int_eq(sh_begin(cl, new, at, 80 - at), 0);
	step = sh.cl[cl].step;
	/* @new is marked in its step; then @kid comes back. */
	ck_assert_int_eq(sh_begin(cl, old, 32, 96), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_MARKED);
	sh_tick(100);
	ck_assert_int_eq(sh_match(cl, kid, 33, 2000), 0);
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_begin(cl, kid, sh_status(cl, kid)->valid_len, 1),
			 0);
	ck_assert_int_eq(sh_end_empty(cl, step), 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(cl, kid), KVMM_SEQ_READY);
}
END_TEST

/* A family of another tenant keeps its memory, which would be of no use. */
START_TEST(test_other_tenants_are_no_victims)
{
	u64 theirs, mine;
	u32 other;

	sh_stop();
	sh_config(4);
	sh_start();
	other = sh_attach(2, "b");
	theirs = sh_ready(other, 60, 4, 0);
	sh_compute(other, theirs, 0, 60, 0);
	cl = sh_attach(1, "a");
	mine = open_prio(cl, 64, 192, 9, 0);
	sh_compute(cl, mine, 0, 64, 0);
	ck_assert_int_le(sh_begin(cl, mine, 64, 192), 0);
	sh_tick(1000);
	sh_tick(1000);
	ck_assert_int_eq(sh_begin(cl, mine, 64, 192), -EAGAIN);
	ck_assert_uint_eq(sh_state(other, theirs), KVMM_SEQ_READY);
}
END_TEST

/* Inside a tenant a later sequence of another domain is preempted. */
START_TEST(test_victim_in_another_domain)
{
	u32 other = sh_attach(1, "b");
	u64 mine = open_prio(cl, 64, 64, 1, 1000), theirs;

	sh_compute(cl, mine, 0, 64, 1000);
	theirs = open_prio(other, 40, 8, 0, 0);
	sh_compute(other, theirs, 0, 40, 0);
	ck_assert_int_eq(sh_begin(cl, mine, 64, 16), 0);
	ck_assert_uint_eq(sh_state(other, theirs), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/*
 * A victim does not come back into memory that was taken for a growing
 * sequence, or only after a while, if that sequence does not ask again.
 */
START_TEST(test_growth_goes_before_restoring)
{
	u64 old, new, step;

	old = open_prio(cl, 48, 80, 0, 1000);
	sh_compute(cl, old, 0, 48, 1000);
	new = open_prio(cl, 32, 16, 0, 2000);
	sh_compute(cl, new, 0, 32, 2000);
	ck_assert_int_eq(sh_begin(cl, new, 32, 1), 0);
	step = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, old, 48, 80), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_MARKED);
	ck_assert_int_eq(sh_end_empty(cl, step), 0);
	ck_assert_int_eq(sh_end_empty(cl, step + 1), 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_match(cl, new, 33, 2000), 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_WAITING);
	if (_i) {
		sh_tick(51);
		ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_READY);
	} else {
		ck_assert_int_eq(sh_begin(cl, old, 48, 80), 0);
	}
}
END_TEST

/* ---- cache ---- */

/* A request that cannot be met costs no domain its cache. */
START_TEST(test_refusal_evicts_nothing)
{
	u32 other = sh_attach(1, "b");
	u64 held, cached, big;

	/* Domain b keeps 3 blocks of cache, domain a holds the other span. */
	cached = sh_ready(other, 48, 0, 0);
	sh_compute(other, cached, 0, 48, 0);
	ck_assert_int_eq(sh_close(other, cached), 0);
	held = sh_ready(cl, 40, 8, 0);
	sh_compute(cl, held, 0, 40, 0);
	ck_assert_uint_eq(sh_pool().cached, 3 * SH_BLOCK);
	big = sh_open(cl, 96, 0);
	ck_assert_int_eq(sh_match(cl, big, 96, 7000), 0);
	ck_assert_uint_eq(sh_state(cl, big), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_pool().cached, 3 * SH_BLOCK);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 0);
	ck_assert_uint_eq(sh_domain(other).nr_spans, 1);
}
END_TEST

/* Spans that eviction empties are used, not given away on the way. */
START_TEST(test_eviction_over_several_spans)
{
	u64 seq = sh_ready(cl, 128, 0, 0);
	u64 cuts;

	sh_compute(cl, seq, 0, 128, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(sh_pool().cached, 8 * SH_BLOCK);
	cuts = sh_count(CORE_EV_span_cut);
	seq = sh_open(cl, 128, 0);
	ck_assert_int_eq(sh_match(cl, seq, 128, 5000), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_span_cut), cuts);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 8);
}
END_TEST

/* The leaves of a prefix are evicted before its root. */
START_TEST(test_leaves_first)
{
	u64 seq = sh_ready(cl, 64, 0, 0);

	sh_compute(cl, seq, 0, 64, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	seq = sh_ready(cl, 96, 0, 5000);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 2);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	seq = sh_ready(cl, 64, 0, 0);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 32);
}
END_TEST

/*
 * A preempted sequence finds its full blocks again.  Its lookup counts once
 * more, but the tokens that it finds are no success of the cache.
 */
START_TEST(test_recompute_finds_its_prefix)
{
	u64 old, new, lookups, hits, hit_tokens, miss_tokens;
	u32 found;

	fill(cl, &old, &new, 0, 0);
	lookups = sh_count(CORE_EV_prefix_lookup);
	hits = sh_count(CORE_EV_prefix_hit);
	hit_tokens = sh_count(CORE_EV_prefix_hit_tokens);
	miss_tokens = sh_count(CORE_EV_prefix_miss_tokens);
	ck_assert_int_eq(sh_begin(cl, old, 32, 1), 0);
	ck_assert_int_eq(sh_end(cl, old, 32, 33, 1000), 0);
	ck_assert_int_eq(sh_close(cl, old), 0);
	ck_assert_int_eq(sh_match(cl, new, 97, 2000), 0);
	ck_assert_uint_eq(sh_state(cl, new), KVMM_SEQ_READY);
	found = sh_status(cl, new)->cached_len;
	ck_assert_uint_ge(found, 80);
	ck_assert_uint_eq(sh_count(CORE_EV_restore), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_lookup), lookups + 1);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_hit), hits + 1);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_hit_tokens), hit_tokens);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_miss_tokens), miss_tokens);
	ck_assert_uint_eq(sh_count(CORE_EV_restore_hit_tokens), found);
	ck_assert_uint_eq(sh_count(CORE_EV_restore_miss_tokens), 97 - found);
}
END_TEST

/* ---- the longest-waiting sequence ---- */

START_TEST(test_longest_waiter_gets_its_turn)
{
	u64 old = open_prio(cl, 100, 4, 0, 1000), wait, stalls;

	sh_compute(cl, old, 0, 100, 1000);
	stalls = sh_count(CORE_EV_admit_stall);
	wait = open_prio(cl, 64, 0, 0, 2000);
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_count(CORE_EV_admit_stall), stalls + 1);
	ck_assert_uint_eq(sh_status(cl, wait)->limiting_pool, 0);
	sh_tick(49);
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_WAITING);
	sh_tick(2);
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, old), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* Waiting counts from MATCH: the time before it is the client's own. */
START_TEST(test_waiting_counts_from_the_match)
{
	u64 wait = sh_open(cl, 64, 0);
	u64 old = open_prio(cl, 100, 4, 0, 1000);

	sh_compute(cl, old, 0, 100, 1000);
	sh_tick(1000);
	ck_assert_int_eq(sh_match(cl, wait, 64, 2000), 0);
	sh_tick(10);
	ck_assert_uint_eq(sh_state(cl, old), KVMM_SEQ_READY);
	sh_tick(50);
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_READY);
}
END_TEST

/* A restored sequence keeps its memory until it has more tokens than it lost. */
START_TEST(test_restored_gets_on)
{
	u64 a = open_prio(cl, 100, 28, 0, 1000), b;
	u32 at;

	sh_compute(cl, a, 0, 100, 1000);
	b = open_prio(cl, 100, 28, 0, 2000);
	sh_tick(60);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
	sh_compute(cl, b, 0, 100, 2000);
	ck_assert_int_eq(sh_match(cl, a, 101, 1000), 0);
	sh_tick(60);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_match(cl, b, 101, 2000), 0);
	at = sh_status(cl, a)->valid_len;
	sh_compute(cl, a, at, at + 4, 1000);
	sh_tick(60);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_READY);
	sh_compute(cl, a, at + 4, 101, 1000);
	sh_tick(60);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
}
END_TEST

/* A mute first sequence of the list does not stand for the others. */
START_TEST(test_longest_waiter_behind_a_mute_one)
{
	u32 mute, other = sh_attach(1, "a");
	struct kvmm_attach_req req = sh_attach_req("a");
	u64 old = open_prio(cl, 100, 4, 0, 1000), first, wait;

	sh_compute(cl, old, 0, 100, 1000);
	mute = (u32)sh_attach_as(1, &req);
	sh.cl[mute].mute = true;
	first = open_prio(mute, 16, 0, 0, 3000);
	wait = open_prio(other, 64, 0, 0, 2000);
	sh_tick(60);
	ck_assert_uint_eq(sh_state(mute, first), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_state(other, wait), KVMM_SEQ_READY);
}
END_TEST

/* A sequence that does not use its memory is not protected by its priority. */
START_TEST(test_longest_waiter_before_an_idle_one)
{
	u64 idle = open_prio(cl, 100, 4, 9, 1000), wait;

	sh_compute(cl, idle, 0, 100, 1000);
	wait = open_prio(cl, 64, 0, 0, 2000);
	sh_tick(40);
	sh_compute(cl, idle, 100, 101, 1000);
	sh_tick(40);
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_WAITING);
	sh_tick(20);
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_READY);
}
END_TEST

/* Busy sequences that come first do not hide an idle one. */
START_TEST(test_longest_waiter_behind_a_busy_one)
{
	u64 idle = open_prio(cl, 48, 0, 9, 1000), busy, wait;
	u32 n;

	sh_compute(cl, idle, 0, 48, 1000);
	busy = open_prio(cl, 40, 8, 5, 2000);
	sh_compute(cl, busy, 0, 40, 2000);
	wait = open_prio(cl, 64, 0, 0, 3000);
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_WAITING);
	sh.core->head->cfg.event_work = 1;
	for (n = 0; n < 6; n++) {
		sh_tick(20);
		sh_compute(cl, busy, 40 + n, 41 + n, 2000);
	}
	while (core_poll(sh.core, sh.now))
		;
	ck_assert_uint_eq(sh_state(cl, wait), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, idle), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(cl, busy), KVMM_SEQ_READY);
}
END_TEST

/*
 * Sequences of another domain come and go without end; a sequence that needs
 * all of the pool gets its turn all the same.
 */
START_TEST(test_longest_waiter_under_endless_load)
{
	u32 other = sh_attach(1, "b"), n, i, nr = 0;
	u64 seq[4], wait;

	for (i = 0; i < 4; i++)
		seq[i] = open_prio(cl, 40, 0, 0, 1000 * i);
	wait = open_prio(other, 100, 0, 0, 9000);
	for (n = 0; n < 100 && sh_state(other, wait) != KVMM_SEQ_READY; n++) {
		for (i = 0; i < 4; i++) {
			if (sh_state(cl, seq[i]) == KVMM_SEQ_RECOMPUTE)
				(void)sh_match(cl, seq[i], 40, 1000 * i + nr);
			if (sh_state(cl, seq[i]) != KVMM_SEQ_READY || n % 7)
				continue;
			ck_assert_int_eq(sh_close(cl, seq[i]), 0);
			seq[i] = open_prio(cl, 40, 0, 0, 1000 * i + ++nr);
		}
		sh_tick(10);
	}
	ck_assert_uint_eq(sh_state(other, wait), KVMM_SEQ_READY);
}
END_TEST

/* ---- the longest-waiting sequence and its domain's memory ---- */

/*
 * Three domains in 4 spans: "rich" runs one sequence in a span, "third" holds
 * the other three spans.  One sequence of "rich" and one of "poor" wait, that
 * of "rich" for longer.  No running sequence is past its time, since all have a
 * high priority and are never idle.
 */
struct rivals {
	u32	rich, poor, third;
	u64	runs, holds;		/* of rich, of third */
	u64	rich_waits, poor_waits;
};

/* A step without tokens. */
static void idle_step(u32 client, u64 seq)
{
	u32 at = sh_status(client, seq)->valid_len;

	ck_assert_int_eq(sh_begin(client, seq, at, 1), 0);
	ck_assert_int_eq(sh_end_empty(client, sh.cl[client].step), 0);
}

static void rivals_tick(struct rivals *r, u32 ms)
{
	for (; ms; ms -= 10) {
		idle_step(r->rich, r->runs);
		idle_step(r->third, r->holds);
		sh_tick(10);
	}
}

static void rivals_start(struct rivals *r, u32 weight_of_poor)
{
	struct kvmm_attach_req poor = sh_attach_req("poor");

	poor.weight = weight_of_poor;
	sh_stop();
	sh_config(4);
	sh_start();
	r->rich = sh_attach(1, "rich");
	r->poor = (u32)sh_attach_as(1, &poor);
	sh_settle();
	r->third = sh_attach(1, "third");
	sh_warm(r->rich);
	r->runs = open_prio(r->rich, 40, 8, 9, 1000);
	r->holds = open_prio(r->third, 170, 20, 9, 5000);
	sh_compute(r->rich, r->runs, 0, 40, 1000);
	sh_compute(r->third, r->holds, 0, 170, 5000);
	r->rich_waits = open_prio(r->rich, 100, 0, 0, 20000);
	rivals_tick(r, 10);
	r->poor_waits = open_prio(r->poor, 100, 0, 0, 30000);
	ck_assert_uint_eq(sh_state(r->rich, r->rich_waits), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_state(r->poor, r->poor_waits), KVMM_SEQ_WAITING);
}

/* The memory of "third" becomes cache; there is room for one waiting sequence. */
static void rivals_decide(struct rivals *r)
{
	ck_assert_uint_eq(sh_state(r->rich, r->rich_waits), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_state(r->poor, r->poor_waits), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(r->third, r->holds), 0);
}

/*
 * Both sequences wait past their time.  That is usual where all domains want
 * more than there is; then the domain that has less of it comes first.
 */
START_TEST(test_share_before_a_usual_wait)
{
	struct rivals r;

	rivals_start(&r, 100);
	rivals_tick(&r, 300);
	rivals_decide(&r);
	ck_assert_uint_eq(sh_state(r.poor, r.poor_waits), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(r.rich, r.rich_waits), KVMM_SEQ_WAITING);
}
END_TEST

/*
 * After a wait that is unusual even there the longest-waiting sequence comes
 * first.  The other one steps aside, so that no memory is held back for it:
 * else neither had a turn.
 */
START_TEST(test_unusual_wait_before_share)
{
	struct rivals r;

	rivals_start(&r, 100);
	rivals_tick(&r, 1000);
	rivals_decide(&r);
	ck_assert_uint_eq(sh_state(r.rich, r.rich_waits), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(r.poor, r.poor_waits), KVMM_SEQ_WAITING);
}
END_TEST

/*
 * A queue moves by weight: a wait that is unusual at equal weights is usual at
 * 1 to 4.
 */
START_TEST(test_unusual_wait_by_weight)
{
	struct rivals r;

	rivals_start(&r, 400);
	rivals_tick(&r, 1000);
	rivals_decide(&r);
	ck_assert_uint_eq(sh_state(r.poor, r.poor_waits), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(r.rich, r.rich_waits), KVMM_SEQ_WAITING);
}
END_TEST

/* No sequence waits for ever, however large the other weight is. */
START_TEST(test_unusual_wait_of_any_weight)
{
	struct rivals r;

	rivals_start(&r, 10000);
	rivals_tick(&r, 16 * 1000);
	rivals_decide(&r);
	ck_assert_uint_eq(sh_state(r.rich, r.rich_waits), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(r.poor, r.poor_waits), KVMM_SEQ_WAITING);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_reclaim");
	TCase *tc = tcase_create("reclaim");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_later_arrival_is_taken);
	tcase_add_test(tc, test_lower_priority_is_taken);
	tcase_add_test(tc, test_own_family_is_the_victim);
	tcase_add_test(tc, test_victim_in_an_open_step);
	tcase_add_test(tc, test_one_victim_at_a_time);
	tcase_add_test(tc, test_family_goes_whole);
	tcase_add_test(tc, test_returned_member_holds_nobody);
	tcase_add_test(tc, test_other_tenants_are_no_victims);
	tcase_add_test(tc, test_victim_in_another_domain);
	tcase_add_loop_test(tc, test_growth_goes_before_restoring, 0, 2);
	tcase_add_test(tc, test_refusal_evicts_nothing);
	tcase_add_test(tc, test_eviction_over_several_spans);
	tcase_add_test(tc, test_leaves_first);
	tcase_add_test(tc, test_recompute_finds_its_prefix);
	tcase_add_test(tc, test_longest_waiter_gets_its_turn);
	tcase_add_test(tc, test_waiting_counts_from_the_match);
	tcase_add_test(tc, test_restored_gets_on);
	tcase_add_test(tc, test_longest_waiter_behind_a_mute_one);
	tcase_add_test(tc, test_longest_waiter_behind_a_busy_one);
	tcase_add_test(tc, test_longest_waiter_before_an_idle_one);
	tcase_add_test(tc, test_longest_waiter_under_endless_load);
	tcase_add_test(tc, test_share_before_a_usual_wait);
	tcase_add_test(tc, test_unusual_wait_before_share);
	tcase_add_test(tc, test_unusual_wait_by_weight);
	tcase_add_test(tc, test_unusual_wait_of_any_weight);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
