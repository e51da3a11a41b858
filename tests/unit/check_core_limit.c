// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_limit.c - memory.min, low, high, max and weight
 *
 * Two domains of one tenant in a pool of 64 blocks: one cannot take protected
 * memory of the other, protected memory can be had, and weights divide the
 * rest.
 */
#include "tests/unit/core_shell.h"

#define POOL	16u			/* extents */
#define ALL	(POOL * SH_PER)		/* blocks */

static void setup(void)
{
	sh_config(POOL);
	sh.cfg.starve_ns = 1ull << 60;
	sh.cfg.step_deadline_ns = 1ull << 60;
	sh_start();
}

static void teardown(void)
{
	sh_stop();
}

/* A client of domain @name with these limits, in blocks; 0: none. */
static u32 attach(const char *name, u32 min, u32 low, u32 high, u32 weight)
{
	struct kvmm_attach_req req = sh_attach_req(name);
	int id;

	req.limits[0].min = min * SH_BLOCK;
	req.limits[0].low = low * SH_BLOCK;
	req.limits[0].high = high ? high * SH_BLOCK : KVMM_LIMIT_MAX;
	req.weight = weight ? weight : 100;
	id = sh_attach_as(1, &req);
	ck_assert_int_ge(id, 0);
	sh_settle();
	return (u32)id;
}

static u32 used(u32 cl)
{
	return (u32)(sh_domain(cl).current_bytes / SH_BLOCK);
}

/* Fill the cache with @blocks blocks of one prompt. */
static void fill_cache(u32 cl, u32 blocks, u32 seed)
{
	u64 seq = sh_ready(cl, blocks * SH_BT, 0, seed);

	sh_compute(cl, seq, 0, blocks * SH_BT, seed);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

/* A resident sequence of @blocks full blocks. */
static u64 resident(u32 cl, u32 blocks, u32 prio, u32 seed)
{
	struct kvmm_open_arg a = { .prompt_len = blocks * SH_BT,
				   .max_tokens = ALL * SH_BT / 2,
				   .priority = prio };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, a.prompt_len, seed), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_compute(cl, seq, 0, a.prompt_len, seed);
	return seq;
}

static u64 asked(u32 cl, u32 blocks, u32 prio, u32 seed)
{
	struct kvmm_open_arg a = { .prompt_len = blocks * SH_BT,
				   .priority = prio };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, a.prompt_len, seed), 0);
	return seq;
}

/* ---- protection ---- */

START_TEST(test_fields)
{
	struct kvmm_attach_req req = sh_attach_req("a");

	req.weight = 10001;
	ck_assert_int_eq(sh_attach_as(1, &req), -EINVAL);
	req.weight = 100;
	req.limits[1].min = 1;
	ck_assert_int_eq(sh_attach_as(1, &req), -EOPNOTSUPP);
	req.limits[1].min = 0;
	req.limits[2].high = 4096;
	ck_assert_int_eq(sh_attach_as(1, &req), -EOPNOTSUPP);
	req.limits[2].high = KVMM_LIMIT_MAX;
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
}
END_TEST

/* If the sum of memory.min exceeds the pool, each domain has its part. */
START_TEST(test_promises_are_scaled)
{
	u32 a = attach("a", 48, 0, 0, 0), b;

	ck_assert_uint_eq(sh_domain(a).emin_bytes, 48 * SH_BLOCK);
	b = attach("b", 80, 0, 0, 0);
	ck_assert_uint_eq(sh_domain(a).emin_bytes, 27 * SH_BLOCK);
	ck_assert_uint_eq(sh_domain(b).emin_bytes, 36 * SH_BLOCK);
	sh_die(b);
	sh_quiet(b);
	ck_assert_uint_eq(sh_domain(a).emin_bytes, 48 * SH_BLOCK);
}
END_TEST

/* Cache within memory.min stays. */
START_TEST(test_cache_within_min)
{
	u32 a = attach("a", 32, 0, 0, 0), b = attach("b", 0, 0, 0, 0);
	u64 seq;

	fill_cache(a, 48, 0);
	seq = asked(b, 32, 9, 5000);
	ck_assert_uint_eq(sh_state(b, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(used(a), 32);
	seq = asked(b, 8, 9, 9000);
	ck_assert_uint_eq(sh_state(b, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(used(a), 32);
	ck_assert_uint_eq(sh_domain(a).nr_low_events, 0);
}
END_TEST

/* Cache within memory.low is evicted last, and that is counted. */
START_TEST(test_cache_within_low)
{
	u32 a = attach("a", 8, 32, 0, 0), b = attach("b", 0, 0, 0, 0);
	u32 other = attach("c", 0, 0, 0, 0);
	u64 seq;

	fill_cache(a, 32, 0);
	fill_cache(other, 24, 0);
	seq = asked(b, 24, 9, 5000);
	ck_assert_uint_eq(sh_state(b, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(used(a), 32);
	ck_assert_uint_le(used(other), 8);
	seq = asked(b, 24, 9, 9000);
	ck_assert_uint_eq(sh_state(b, seq), KVMM_SEQ_READY);
	ck_assert_uint_lt(used(a), 32);
	ck_assert_uint_ge(used(a), 8);
	ck_assert_uint_gt(sh_domain(a).nr_low_events, 0);
}
END_TEST

/* Growth preempts no family within memory.min, of however low a priority. */
START_TEST(test_victims_within_min)
{
	u32 a = attach("a", 32, 0, 0, 0), b = attach("b", 0, 0, 0, 0);
	u64 low = resident(a, 28, 0, 0), high;

	high = resident(b, 30, 9, 5000);
	ck_assert_int_eq(sh_begin(b, high, 30 * SH_BT, 10 * SH_BT), -EAGAIN);
	ck_assert_uint_eq(sh_state(a, low), KVMM_SEQ_READY);
	ck_assert_uint_eq(used(a), 28);
}
END_TEST

/* Without memory.min the family is preempted: the test above can fail. */
START_TEST(test_victims_above_min)
{
	u32 a = attach("a", 0, 0, 0, 0), b = attach("b", 0, 0, 0, 0);
	u64 low = resident(a, 28, 0, 0), high;

	high = resident(b, 30, 9, 5000);
	ck_assert_int_eq(sh_begin(b, high, 30 * SH_BT, 10 * SH_BT), 0);
	ck_assert_uint_eq(sh_state(a, low), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* ---- protected memory can be had ---- */

START_TEST(test_min_is_had)
{
	u32 a = attach("a", 24, 0, 0, 0), b = attach("b", 0, 0, 0, 0);
	u64 big[3], seq;
	u32 i;

	for (i = 0; i < 3; i++)
		big[i] = resident(b, 20, 9, 5000 * (i + 1));
	seq = asked(a, 16, 0, 0);
	ck_assert_uint_eq(sh_state(a, seq), KVMM_SEQ_READY);
	ck_assert_uint_gt(sh_count(CORE_EV_preempt_min), 0);
	/* The latest arrival was preempted, and no other. */
	ck_assert_uint_eq(sh_state(b, big[2]), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(b, big[0]), KVMM_SEQ_READY);
	/* Beyond memory.min the domain waits as any other. */
	seq = asked(a, 16, 0, 900);
	ck_assert_uint_eq(sh_state(a, seq), KVMM_SEQ_WAITING);
}
END_TEST

/* The same if some memory is free, but too little without preemption. */
START_TEST(test_min_beside_free_extents)
{
	u32 a = attach("a", 24, 0, 0, 0), b = attach("b", 0, 0, 0, 0);
	u64 one = resident(b, 28, 9, 5000), two = resident(b, 28, 9, 20000);
	u64 seq;

	ck_assert_uint_lt(sh_domain(b).nr_spans, POOL);
	seq = asked(a, 16, 0, 0);
	ck_assert_uint_eq(sh_state(a, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(b, two), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(b, one), KVMM_SEQ_READY);
}
END_TEST

/*
 * The victim is in an open step: its memory comes when the step ends, and no
 * other family is marked meanwhile.
 */
START_TEST(test_min_after_the_step)
{
	u32 a = attach("a", 24, 0, 0, 0), b = attach("b", 0, 0, 0, 0);
	u64 one = resident(b, 30, 9, 5000), two = resident(b, 30, 9, 20000);
	u64 seq;

	ck_assert_int_eq(sh_begin(b, two, 30 * SH_BT, 1), 0);
	seq = asked(a, 16, 0, 0);
	ck_assert_uint_eq(sh_state(a, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_state(b, two), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(sh_state(b, one), KVMM_SEQ_READY);
	sh_tick(1);
	ck_assert_uint_eq(sh_state(b, one), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_end(b, two, 30 * SH_BT, 30 * SH_BT + 1, 20000), 0);
	ck_assert_uint_eq(sh_state(a, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(b, one), KVMM_SEQ_READY);
}
END_TEST

/* Four sequences of "b" hold 16 blocks each, the whole pool, in open steps. */
static void fill_in_steps(u32 b, u64 *seq)
{
	struct kvmm_open_arg a = { .prompt_len = 16 * SH_BT - 8,
				   .max_tokens = 8, .priority = 9 };
	u32 i;

	for (i = 0; i < 4; i++) {
		ck_assert_int_eq(sh_open_as(b, &a, &seq[i]), 0);
		ck_assert_int_eq(sh_match(b, seq[i], a.prompt_len,
					  5000 * (i + 1)), 0);
		sh_compute(b, seq[i], 0, a.prompt_len, 5000 * (i + 1));
	}
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(sh_begin(b, seq[i], a.prompt_len, 1), 0);
}

static u32 in_state(u32 b, const u64 *seq, u32 state)
{
	u32 i, nr = 0;

	for (i = 0; i < 4; i++)
		nr += sh_state(b, seq[i]) == state;
	return nr;
}

/*
 * As many families are marked as the sequences that wait within memory.min
 * need, and no more.
 */
START_TEST(test_min_at_once)
{
	u32 a = attach("a", 40, 0, 0, 0), b = attach("b", 0, 0, 0, 0), i;
	u32 len = 16 * SH_BT - 8;
	u64 held[4], seq[3];

	fill_in_steps(b, held);
	seq[0] = asked(a, 12, 0, 0);
	ck_assert_uint_eq(in_state(b, held, KVMM_SEQ_MARKED), 1);
	seq[1] = asked(a, 12, 0, 300);
	ck_assert_uint_eq(in_state(b, held, KVMM_SEQ_MARKED), 2);
	/* This sequence is beyond memory.min. */
	seq[2] = asked(a, 20, 0, 600);
	sh_tick(1);
	ck_assert_uint_eq(in_state(b, held, KVMM_SEQ_MARKED), 2);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), 2);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(sh_end_step(b, sh.cl[b].step - 3 + i, held[i],
					     len, len + 1, 5000 * (i + 1)), 0);
	ck_assert_uint_eq(sh_state(a, seq[0]), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(a, seq[1]), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(a, seq[2]), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(in_state(b, held, KVMM_SEQ_READY), 2);
	ck_assert_uint_eq(sh_state(b, held[0]), KVMM_SEQ_READY);
}
END_TEST

/* All marked families count: their domain keeps its own memory.min. */
START_TEST(test_min_of_both)
{
	u32 a = attach("a", 24, 0, 0, 0), b = attach("b", 40, 0, 0, 0);
	u64 held[4];

	fill_in_steps(b, held);
	(void)asked(a, 12, 0, 0);
	(void)asked(a, 8, 0, 300);
	sh_tick(1);
	ck_assert_uint_eq(in_state(b, held, KVMM_SEQ_MARKED), 1);
}
END_TEST

/* ---- high ---- */

START_TEST(test_high_holds_admissions)
{
	u32 a = attach("a", 0, 0, 16, 0);
	u64 one = asked(a, 24, 0, 0), two;

	/* The only sequence of a domain may exceed memory.high, and grow. */
	ck_assert_uint_eq(sh_state(a, one), KVMM_SEQ_READY);
	two = asked(a, 4, 0, 5000);
	ck_assert_uint_eq(sh_state(a, two), KVMM_SEQ_WAITING);
	ck_assert_uint_gt(sh_domain(a).nr_high_events, 0);
	sh_compute(a, one, 0, 24 * SH_BT, 0);
	ck_assert_int_eq(sh_close(a, one), 0);
	ck_assert_uint_eq(sh_state(a, two), KVMM_SEQ_READY);
}
END_TEST

/* Above memory.high the domain evicts its own cache. */
START_TEST(test_high_evicts_own)
{
	u32 a = attach("a", 0, 0, 16, 0);
	u64 seq;

	fill_cache(a, 16, 0);
	ck_assert_uint_eq(used(a), 16);
	seq = resident(a, 8, 0, 5000);
	ck_assert_uint_le(used(a), 16);
	ck_assert_int_eq(sh_close(a, seq), 0);
}
END_TEST

/* A domain above memory.high loses memory first, although another one has more. */
START_TEST(test_high_loses_first)
{
	u32 a = attach("a", 0, 0, 8, 0), b = attach("b", 0, 0, 0, 0);
	u32 w = attach("w", 0, 0, 0, 0);
	u64 in_a, in_b, in_w;

	in_b = resident(b, 24, 0, 5000);
	in_a = resident(a, 12, 0, 0);
	in_w = resident(w, 20, 9, 20000);
	ck_assert_int_eq(sh_begin(w, in_w, 20 * SH_BT, 10 * SH_BT), 0);
	ck_assert_uint_eq(sh_state(a, in_a), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(b, in_b), KVMM_SEQ_READY);
}
END_TEST

/* ---- weight ---- */

/*
 * Both domains always want more: their memory follows the weights, as closely
 * as the 21 sequences that fit allow.
 */
START_TEST(test_weight)
{
	u32 cl[2] = { attach("a", 0, 0, 0, 100), attach("b", 0, 0, 0, 300) };
	u64 sum[2] = { 0, 0 };
	u32 seed = 1, n, i, k;
	u64 run[2][ALL];
	u32 nr[2] = { 0, 0 };

	for (n = 0; n < 600; n++) {
		for (i = 0; i < 2; i++) {
			/* Enough sequences wait at all times. */
			while (sh_domain(cl[i]).nr_waiting < 4) {
				run[i][nr[i]++] = asked(cl[i], 3, 0,
							1000 * seed);
				seed++;
			}
			/* The oldest sequence ends. */
			for (k = 0; k < nr[i]; k++)
				if (sh_state(cl[i], run[i][k]) ==
				    KVMM_SEQ_READY)
					break;
			if (k < nr[i] && (n + i) % 2) {
				sh_compute(cl[i], run[i][k], 0, 3 * SH_BT,
					   seed * 100000);
				ck_assert_int_eq(sh_close(cl[i], run[i][k]), 0);
				memmove(&run[i][k], &run[i][k + 1],
					(--nr[i] - k) * sizeof(u64));
			}
		}
		for (i = 0; i < 2 && n >= 200; i++)
			sum[i] += sh_domain(cl[i]).nr_running;
	}
	ck_assert_msg(sum[1] * 100 >= sum[0] * 280 &&
		      sum[1] * 100 <= sum[0] * 320, "%llu to %llu",
		      (unsigned long long)sum[0], (unsigned long long)sum[1]);
}
END_TEST

/* Sequences of one domain, the oldest first. */
struct crowd {
	u32	cl;
	u32	blocks;		/* of each */
	u32	nr;
	u64	run[ALL];
	u64	held;		/* sum over the rounds */
};

/* Enough sequences wait at all times; every @every rounds the oldest one ends. */
static void crowd_round(struct crowd *w, u32 round, u32 every, u32 *seed)
{
	u32 k;

	while (sh_domain(w->cl).nr_waiting < 2) {
		w->run[w->nr++] = asked(w->cl, w->blocks, 0, 1000 * *seed);
		++*seed;
	}
	if (round % every)
		return;
	for (k = 0; k < w->nr; k++)
		if (sh_state(w->cl, w->run[k]) == KVMM_SEQ_READY)
			break;
	if (k == w->nr)
		return;
	ck_assert_int_eq(sh_close(w->cl, w->run[k]), 0);
	memmove(&w->run[k], &w->run[k + 1], (--w->nr - k) * sizeof(u64));
}

/*
 * Five blocks are a third of the memory of weight 100 beside 300: at any
 * instant the domain has a sequence too many or one too few, but on average its
 * part.
 */
START_TEST(test_weight_on_average)
{
	struct crowd w[2] = { { .blocks = 5 }, { .blocks = 2 } };
	u32 n, i, seed = 1;

	sh_stop();
	sh_config(POOL);
	sh.cfg.starve_ns = 200000 * MS;
	sh_start();
	w[0].cl = attach("a", 0, 0, 0, 100);
	w[1].cl = attach("b", 0, 0, 0, 300);
	for (n = 0; n < 6000; n++) {
		for (i = 0; i < 2; i++) {
			crowd_round(&w[i], n, i ? 2 : 16, &seed);
			if (n >= 2000)
				w[i].held += sh_domain(w[i].cl).nr_running *
					     w[i].blocks;
		}
		sh_tick(1000);
	}
	ck_assert_msg(w[1].held * 100 >= w[0].held * 285 &&
		      w[1].held * 100 <= w[0].held * 315, "%llu to %llu",
		      (unsigned long long)w[0].held,
		      (unsigned long long)w[1].held);
}
END_TEST

/* ---- the operator ---- */

static int set(u32 cl, u32 which, u64 value)
{
	int err;

	SH_CORE(err = core_domain_set(sh.core, sh.now, sh.cl[cl].info.domain,
				      which, value));
	sh_settle();
	return err;
}

static int unset(u32 cl, u32 which)
{
	int err;

	SH_CORE(err = core_domain_unset(sh.core, sh.now,
					sh.cl[cl].info.domain, which));
	sh_settle();
	return err;
}

START_TEST(test_operator)
{
	u32 a = attach("a", 0, 0, 0, 0), i;
	struct kvmm_attach_req other;
	u64 seq;
	int id;

	ck_assert_int_eq(core_domain_set(sh.core, sh.now, 99, 0, 0), -ERANGE);
	ck_assert_int_eq(core_domain_set(sh.core, sh.now, 5, 0, 0), -ENOENT);
	ck_assert_int_eq(set(a, CORE_NR_LIMITS, 0), -EINVAL);
	ck_assert_int_eq(set(a, CORE_LIMIT_WEIGHT, 0), -EINVAL);
	ck_assert_int_eq(set(a, CORE_LIMIT_MAX, SH_BLOCK - 1), -EINVAL);
	fill_cache(a, 32, 0);
	ck_assert_int_eq(set(a, CORE_LIMIT_MAX, 16 * SH_BLOCK), 0);
	ck_assert_uint_eq(used(a), 16);
	seq = asked(a, 12, 0, 9000);
	ck_assert_uint_eq(sh_state(a, seq), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_close(a, seq), 0);
	ck_assert_int_eq(set(a, CORE_LIMIT_MIN, 8 * SH_BLOCK), 0);
	ck_assert_uint_eq(sh_domain(a).emin_bytes, 8 * SH_BLOCK);
	ck_assert_int_eq(set(a, CORE_LIMIT_WEIGHT, 500), 0);

	/* A client that attaches later gets no more than the operator set. */
	sh_die(a);
	sh_quiet(a);
	a = attach("a", 24, 0, 0, 7);
	ck_assert_uint_eq(sh_domain(a).limit[CORE_LIMIT_MIN], 8 * SH_BLOCK);
	ck_assert_uint_eq(sh_domain(a).limit[CORE_LIMIT_MAX], 16 * SH_BLOCK);
	ck_assert_uint_eq(sh_domain(a).limit[CORE_LIMIT_WEIGHT], 500);
	for (i = 0; i < 2; i++)
		(void)asked(a, 6, 0, 1000 * i);
	ck_assert_uint_le(used(a), 16);

	/* Nor does another model that takes over the domain's name. */
	sh_die(a);
	sh_quiet(a);
	other = sh_attach_req("a");
	other.identity[0] = 99;
	ck_assert_int_ge(id = sh_attach_as(1, &other), 0);
	ck_assert_uint_eq(sh_domain((u32)id).limit[CORE_LIMIT_MAX],
			  16 * SH_BLOCK);
}
END_TEST

/* A limit given before the domain was made: its client may ask for less of max. */
START_TEST(test_operator_begins)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	struct core_domain_view v;
	int id;

	req.limits[0].max = 8 * SH_BLOCK;
	id = sh_attach_as(1, &req);
	ck_assert_int_ge(id, 0);
	ck_assert_int_eq(core_domain_begin(sh.core, sh.now, 0, CORE_LIMIT_MAX,
					   SH_BLOCK - 1), -EINVAL);
	ck_assert_uint_eq(sh_domain((u32)id).by_operator, 0);
	ck_assert_int_eq(core_domain_begin(sh.core, sh.now, 0, CORE_LIMIT_MAX,
					   16 * SH_BLOCK), 0);
	ck_assert_int_eq(core_domain_begin(sh.core, sh.now, 0, CORE_LIMIT_MIN,
					   4 * SH_BLOCK), 0);
	v = sh_domain((u32)id);
	ck_assert_uint_eq(v.limit[CORE_LIMIT_MAX], 8 * SH_BLOCK);
	ck_assert_uint_eq(v.limit[CORE_LIMIT_MIN], 4 * SH_BLOCK);
	ck_assert_uint_eq(v.by_operator, BIT(CORE_LIMIT_MAX) | BIT(CORE_LIMIT_MIN));
	ck_assert_uint_eq(v.operator_limit[CORE_LIMIT_MAX], 16 * SH_BLOCK);
	ck_assert_int_eq(set((u32)id, CORE_LIMIT_MAX, 16 * SH_BLOCK), 0);
	ck_assert_uint_eq(sh_domain((u32)id).limit[CORE_LIMIT_MAX], 16 * SH_BLOCK);
}
END_TEST

/* A client that attaches later with lower limits changes none of these. */
START_TEST(test_operator_holds)
{
	u32 a = attach("a", 4, 2, 0, 0);

	ck_assert_int_eq(set(a, CORE_LIMIT_MIN, 8 * SH_BLOCK), 0);
	ck_assert_int_eq(set(a, CORE_LIMIT_LOW, 12 * SH_BLOCK), 0);
	sh_die(a);
	sh_quiet(a);
	a = attach("a", 0, 0, 0, 0);
	ck_assert_uint_eq(sh_domain(a).limit[CORE_LIMIT_MIN], 8 * SH_BLOCK);
	ck_assert_uint_eq(sh_domain(a).limit[CORE_LIMIT_LOW], 12 * SH_BLOCK);
	ck_assert_uint_eq(sh_domain(a).emin_bytes, 8 * SH_BLOCK);

	/* The operator can change a limit: to 0, which holds too, */
	ck_assert_int_eq(set(a, CORE_LIMIT_LOW, 0), 0);
	sh_die(a);
	sh_quiet(a);
	a = attach("a", 3, 6, 0, 0);
	ck_assert_uint_eq(sh_domain(a).limit[CORE_LIMIT_MIN], 8 * SH_BLOCK);
	ck_assert_uint_eq(sh_domain(a).limit[CORE_LIMIT_LOW], 0);

	/* or to the value that the client asked for. */
	ck_assert_int_eq(unset(a, CORE_LIMIT_MIN), 0);
	ck_assert_uint_eq(sh_domain(a).limit[CORE_LIMIT_MIN], 3 * SH_BLOCK);
	ck_assert_uint_eq(sh_domain(a).emin_bytes, 3 * SH_BLOCK);
	ck_assert_int_eq(unset(a, CORE_LIMIT_MIN), -EALREADY);
	ck_assert_int_eq(unset(a, CORE_NR_LIMITS), -EINVAL);
	ck_assert_int_eq(core_domain_unset(sh.core, sh.now, 99, 0), -ERANGE);
	ck_assert_int_eq(core_domain_unset(sh.core, sh.now, 5, 0), -ENOENT);
}
END_TEST

/* A sequence that can never fit again fails with -EDQUOT. */
START_TEST(test_lowered_max_fails)
{
	u32 a = attach("a", 0, 0, 0, 0);
	u64 one = asked(a, 40, 0, 0), two;

	sh_compute(a, one, 0, 40 * SH_BT - 16, 0);
	two = asked(a, 40, 0, 90000);
	ck_assert_uint_eq(sh_state(a, two), KVMM_SEQ_WAITING);
	ck_assert_int_eq(set(a, CORE_LIMIT_MAX, 20 * SH_BLOCK), 0);
	sh_tick(1);
	ck_assert_uint_eq(sh_state(a, two), KVMM_SEQ_FAILED);
	ck_assert_int_eq(sh_status(a, two)->reason, -EDQUOT);
	ck_assert_int_eq(sh_begin(a, one, 40 * SH_BT - 16, 1), -EDQUOT);
	ck_assert_int_eq(sh_close(a, two), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_limit");
	TCase *tc = tcase_create("limits");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_fields);
	tcase_add_test(tc, test_promises_are_scaled);
	tcase_add_test(tc, test_cache_within_min);
	tcase_add_test(tc, test_cache_within_low);
	tcase_add_test(tc, test_victims_within_min);
	tcase_add_test(tc, test_victims_above_min);
	tcase_add_test(tc, test_min_is_had);
	tcase_add_test(tc, test_min_beside_free_extents);
	tcase_add_test(tc, test_min_after_the_step);
	tcase_add_test(tc, test_min_at_once);
	tcase_add_test(tc, test_min_of_both);
	tcase_add_test(tc, test_high_holds_admissions);
	tcase_add_test(tc, test_high_evicts_own);
	tcase_add_test(tc, test_high_loses_first);
	tcase_add_test(tc, test_weight);
	tcase_add_test(tc, test_weight_on_average);
	tcase_add_test(tc, test_operator);
	tcase_add_test(tc, test_operator_begins);
	tcase_add_test(tc, test_operator_holds);
	tcase_add_test(tc, test_lowered_max_fails);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
