// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_psi.c - pressure: totals, averages, levels, triggers
 *
 * The tests make stalls of known length and read the accounts of them.
 */
#include <math.h>

#include "tests/unit/core_shell.h"

#define SEC	1000u		/* ms */
#define ALL	(8 * SH_PER * SH_BT)	/* tokens of the pool */

static u32 cl;
static u32 nr_fired, last_fired;

static void setup(void)
{
	sh_config(8);
	sh.cfg.starve_ns = 1ull << 60;
	sh.cfg.step_deadline_ns = 1ull << 60;
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
	nr_fired = 0;
}

static void teardown(void)
{
	sh_stop();
}

static struct core_pressure_view node(void)
{
	struct core_pressure_view v;

	ck_assert_int_eq(core_get_pressure(sh.core, CORE_NONE, &v), 0);
	return v;
}

static struct core_pressure_view domain(u32 client)
{
	struct core_pressure_view v;

	ck_assert_int_eq(core_get_pressure(sh.core, sh.cl[client].info.domain,
					   &v), 0);
	return v;
}

/* A sequence that waits because the pool is full. */
static u64 waiting(u32 client, u32 prompt, u32 seed)
{
	u64 seq = sh_open(client, prompt, 4);

	ck_assert_int_eq(sh_match(client, seq, prompt, seed), 0);
	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_WAITING);
	return seq;
}

START_TEST(test_idle)
{
	u64 seq = sh_ready(cl, 40, 4, 0);

	/* Waiting for its ids is not waiting for memory. */
	(void)sh_open(cl, 20, 4);
	sh_compute(cl, seq, 0, 40, 0);
	sh_tick(5 * SEC);
	ck_assert_uint_eq(node().total_ns[CORE_PSI_MEMORY][CORE_PSI_SOME], 0);
	ck_assert_uint_eq(node().nr_stalled, 0);
	ck_assert_uint_eq(node().nr_productive, 0);
}
END_TEST

/*
 * One sequence works: some.  None works: full, too.  Both exact to the
 * nanosecond.
 */
START_TEST(test_some_and_full)
{
	u64 big = sh_ready(cl, ALL - 20, 16, 0);
	u64 step, small;

	small = waiting(cl, 40, 9000);
	sh_tick(7);
	ck_assert_uint_eq(node().total_ns[CORE_PSI_MEMORY][CORE_PSI_SOME], 7 * MS);
	ck_assert_uint_eq(node().total_ns[CORE_PSI_MEMORY][CORE_PSI_FULL], 7 * MS);
	ck_assert_int_eq(sh_begin(cl, big, 0, 100), 0);
	step = sh.cl[cl].step;
	ck_assert_uint_eq(node().nr_productive, 1);
	sh.now += 3 * MS;
	ck_assert_int_eq(sh_end_step(cl, step, big, 0, 100, 0), 0);
	ck_assert_uint_eq(domain(cl).total_ns[CORE_PSI_MEMORY][CORE_PSI_SOME], 10 * MS);
	ck_assert_uint_eq(domain(cl).total_ns[CORE_PSI_MEMORY][CORE_PSI_FULL], 7 * MS);
	ck_assert_uint_eq(node().nr_productive, 0);
	sh.now += 5 * MS;
	ck_assert_int_eq(sh_close(cl, big), 0);
	ck_assert_uint_eq(sh_state(cl, small), KVMM_SEQ_READY);
	sh_tick(11);
	ck_assert_uint_eq(node().total_ns[CORE_PSI_MEMORY][CORE_PSI_SOME], 15 * MS);
	ck_assert_uint_eq(node().total_ns[CORE_PSI_MEMORY][CORE_PSI_FULL], 12 * MS);
	ck_assert_uint_eq(node().nr_stalled, 0);
}
END_TEST

/* A sequence that was refused more memory is stalled, too. */
START_TEST(test_refused_growth)
{
	u64 a = sh_ready(cl, ALL - 100, 100, 0), b;

	sh_compute(cl, a, 0, ALL - 100, 0);
	b = sh_ready(cl, 48, 8, 9000);
	sh_compute(cl, b, 0, 48, 9000);
	ck_assert_uint_eq(node().nr_stalled, 0);
	ck_assert_int_eq(sh_begin(cl, a, ALL - 100, 90), 0);
	ck_assert_int_ne(sh_begin(cl, b, 48, 1), 0);
	ck_assert_uint_eq(node().nr_stalled, 1);
	ck_assert_int_eq(sh_close(cl, b), 0);
	ck_assert_uint_eq(node().nr_stalled, 0);
}
END_TEST

/* A wait because of a domain's own limit is no stall of the node. */
START_TEST(test_own_limit)
{
	struct kvmm_attach_req req = sh_attach_req("limited");
	u64 seq;
	int id;

	req.limits[0].max = 8 * SH_BLOCK;
	id = sh_attach_as(1, &req);
	ck_assert_int_ge(id, 0);
	sh_settle();
	seq = sh_ready((u32)id, 7 * SH_BT, 8, 0);
	sh_compute((u32)id, seq, 0, 7 * SH_BT, 0);
	(void)waiting((u32)id, 5 * SH_BT, 9000);
	sh_tick(20);
	ck_assert_uint_eq(domain((u32)id).total_ns[CORE_PSI_MEMORY][CORE_PSI_SOME], 20 * MS);
	ck_assert_uint_eq(domain(cl).total_ns[CORE_PSI_MEMORY][CORE_PSI_SOME], 0);
	ck_assert_uint_eq(node().total_ns[CORE_PSI_MEMORY][CORE_PSI_SOME], 0);
}
END_TEST

/* A sequence that lost its 100 tokens, and is admitted to compute them again. */
static u64 taken(void)
{
	struct kvmm_open_arg a = { .prompt_len = 100, .max_tokens = 8,
				   .flags = KVMM_OPEN_NO_INDEX };
	u64 low, high;

	ck_assert_int_eq(sh_open_as(cl, &a, &low), 0);
	ck_assert_int_eq(sh_match(cl, low, 100, 0), 0);
	sh_compute(cl, low, 0, 100, 0);
	a = (struct kvmm_open_arg){ .prompt_len = ALL - 160, .max_tokens = 150,
				    .priority = 9 };
	ck_assert_int_eq(sh_open_as(cl, &a, &high), 0);
	ck_assert_int_eq(sh_match(cl, high, ALL - 160, 9000), 0);
	sh_compute(cl, high, 0, ALL - 160, 9000);
	ck_assert_int_eq(sh_begin(cl, high, ALL - 160, 140), 0);
	ck_assert_uint_eq(sh_state(cl, low), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(node().nr_stalled, 1);
	ck_assert_int_eq(sh_end(cl, high, ALL - 160, ALL - 160, 9000), 0);
	ck_assert_int_eq(sh_close(cl, high), 0);
	ck_assert_int_eq(sh_match(cl, low, 100, 0), 0);
	ck_assert_uint_eq(sh_state(cl, low), KVMM_SEQ_READY);
	return low;
}

static void expect_counts(u32 stalled, u32 productive)
{
	ck_assert_uint_eq(node().nr_stalled, stalled);
	ck_assert_uint_eq(node().nr_productive, productive);
}

/* Recomputing lost tokens is a stall, although the sequence runs. */
START_TEST(test_redone_prefill)
{
	u64 low = taken();

	ck_assert_int_eq(sh_begin(cl, low, 0, 100), 0);
	expect_counts(1, 0);
	ck_assert_int_eq(sh_end(cl, low, 0, 100, 0), 0);
	ck_assert_int_eq(sh_begin(cl, low, 100, 1), 0);
	expect_counts(0, 1);
}
END_TEST

/* Tokens after a truncation are new, even where lost tokens had been. */
START_TEST(test_redone_after_a_cut)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;
	u64 low = taken();

	sh_compute(cl, low, 0, 80, 0);
	*a = (struct kvmm_len_arg){ .seq = low, .len = 50 };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_TRUNCATE, 1, 0, sizeof(*a)),
			 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	ck_assert_int_eq(sh_begin(cl, low, 50, 10), 0);
	expect_counts(0, 1);
}
END_TEST

/* After REMAP a sequence has lost as many tokens as the sequence that it became. */
START_TEST(test_redone_by_another)
{
	u64 low = taken(), kid;

	ck_assert_int_eq(sh_fork(cl, low, 1, &kid), 0);
	sh.args[0] = _i ? kid : low;
	sh.args[1] = _i ? low : kid;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_REMAP, 1, 0, 16), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	ck_assert_int_eq(sh_begin(cl, _i ? kid : low, 0, 100), 0);
	expect_counts(_i ? 1 : 0, _i ? 0 : 1);
}
END_TEST

/* The share of time with a stall, averaged over the @i-th window. */
static double memory_avg(u32 client, u32 i)
{
	return domain(client).avg[CORE_PSI_MEMORY][CORE_PSI_SOME][i] / 100.0;
}

/* Averages follow 100 * (1 - e^n), and decay by e^n after the stall. */
START_TEST(test_averages)
{
	static const double window[] = { 10, 60, 300 };
	u64 big = sh_ready(cl, ALL - 20, 16, 0), small;
	double want;
	u32 n, i;

	small = waiting(cl, 40, 9000);
	for (n = 1; n <= 20; n++) {
		sh_tick(2 * SEC);
		for (i = 0; i < 3; i++) {
			want = 100 * (1 - exp(-2.0 * n / window[i]));
			ck_assert_double_eq_tol(memory_avg(cl, i), want, 1.0);
		}
	}
	ck_assert_int_eq(sh_close(cl, big), 0);
	ck_assert_int_eq(sh_close(cl, small), 0);
	/* The averages are not read for a minute. */
	sh_tick(60 * SEC);
	want = 100 * (1 - exp(-40.0 / 60)) * exp(-60.0 / 60);
	ck_assert_double_eq_tol(memory_avg(cl, 1), want, 1.0);
	ck_assert_uint_lt(domain(cl).avg[CORE_PSI_MEMORY][CORE_PSI_FULL][0], 100);
}
END_TEST

/* The average of a lasting stall reaches 100 exactly, and 0 after its end. */
START_TEST(test_reached)
{
	u64 big = sh_ready(cl, ALL - 20, 16, 0), small;
	u32 n, i;

	small = waiting(cl, 40, 9000);
	sh_unchecked = true;
	for (n = 0; n < 1500; n++)
		sh_tick(2 * SEC);
	for (i = 0; i < CORE_PSI_NR_AVGS; i++)
		ck_assert_double_eq_tol(memory_avg(cl, i), 100, 1e-9);
	ck_assert_int_eq(sh_close(cl, big), 0);
	ck_assert_int_eq(sh_close(cl, small), 0);
	for (n = 0; n < 2000; n++)
		sh_tick(2 * SEC);
	for (i = 0; i < CORE_PSI_NR_AVGS; i++)
		ck_assert_double_eq_tol(memory_avg(cl, i), 0, 1e-9);
}
END_TEST

/* A stall in half of the time averages to one half. */
START_TEST(test_half)
{
	u64 big, small;
	u32 n;

	for (n = 0; n < 300; n++) {
		big = sh_ready(cl, ALL - 20, 16, 1000 * n);
		small = waiting(cl, 40, 500000);
		sh_tick(100);
		ck_assert_int_eq(sh_close(cl, big), 0);
		ck_assert_int_eq(sh_close(cl, small), 0);
		sh_tick(100);
	}
	ck_assert_double_eq_tol(memory_avg(cl, 0), 50, 3);
	ck_assert_uint_eq(domain(cl).total_ns[CORE_PSI_MEMORY][CORE_PSI_SOME], 30000 * MS);
}
END_TEST

/* Clients see the level within a second, and also the end of the pressure. */
START_TEST(test_level)
{
	u64 big = sh_ready(cl, ALL - 20, 16, 0), small;

	small = waiting(cl, 40, 9000);
	ck_assert_uint_eq(sh.cl[cl].ctl.pressure, 0);
	sh_tick(1 * SEC);
	ck_assert_uint_eq(sh.cl[cl].ctl.pressure, 2);
	ck_assert_int_eq(sh_begin(cl, big, 0, 100), 0);
	sh_tick(1 * SEC);
	ck_assert_uint_eq(sh.cl[cl].ctl.pressure, 1);
	ck_assert_int_eq(sh_end(cl, big, 0, 100, 0), 0);
	ck_assert_int_eq(sh_close(cl, big), 0);
	ck_assert_int_eq(sh_close(cl, small), 0);
	sh_tick(1 * SEC);
	ck_assert_uint_eq(sh.cl[cl].ctl.pressure, 0);
}
END_TEST

/* ---- against the formula ---- */

/*
 * PSI's formula in double: every two seconds, at the first look at or after
 * that time, avg = avg * e + sample * (1 - e).
 */
struct reference {
	double	total;		/* ns stalled */
	double	averaged;
	double	last;
	double	next;
	double	exact[CORE_PSI_NR_AVGS];	/* e = exp(-2 / W) */
	double	fixed[CORE_PSI_NR_AVGS];	/* as Linux has it: EXP_10s .. */
};

static void reference_look(struct reference *r, double now)
{
	static const double window[] = { 10, 60, 300 };
	static const double linux_exp[] = { 1677, 1981, 2034 };
	double sample, e;
	u32 i;

	if (now < r->next)
		return;
	sample = 100 * (r->total - r->averaged) / (now - r->last);
	r->averaged = r->total;
	r->last = now;
	while (r->next <= now)
		r->next += 2e9;
	for (i = 0; i < CORE_PSI_NR_AVGS; i++) {
		e = exp(-2 / window[i]);
		r->exact[i] = r->exact[i] * e + sample * (1 - e);
		e = linux_exp[i] / 2048;
		r->fixed[i] = r->fixed[i] * e + sample * (1 - e);
	}
}

static void reference_compare(const struct reference *r, u32 res)
{
	const struct core_pressure_view v = node();
	u32 i;

	ck_assert_double_eq_tol(v.total_ns[res][CORE_PSI_SOME], r->total, 1);
	for (i = 0; i < CORE_PSI_NR_AVGS; i++) {
		double avg = v.avg[res][CORE_PSI_SOME][i] / 100.0;

		/* Eleven bits and two digits; e has eleven bits, too. */
		ck_assert_double_eq_tol(avg, r->fixed[i], 0.1);
		ck_assert_double_eq_tol(avg, r->exact[i], 1.2);
	}
}

/* Stalls of any length at any time, seen by ticks at any time. */
START_TEST(test_reference)
{
	struct reference mem = { .total = 0 }, cpu;
	u64 big = 0, small = 0, ns, waited;
	u32 seed = 1 + (u32)_i, n;

	sh_unchecked = true;
	sh_tick(2 * SEC);
	/* The node's periods are those of the clock. */
	mem.last = (double)sh.now;
	mem.next = (double)(sh.now / (2000 * MS) + 1) * 2e9;
	cpu = mem;
	for (n = 0; n < 3000; n++) {
		seed = seed * 1664525u + 1013904223u;
		ns = (seed >> 8) % (400 * MS);
		if (!small && seed >> 29 == 0) {
			big = sh_ready(cl, ALL - 20, 16, 100 * n);
			small = waiting(cl, 40, 500000);
		} else if (small && seed >> 28 == 1) {
			ck_assert_int_eq(sh_close(cl, small), 0);
			ck_assert_int_eq(sh_close(cl, big), 0);
			small = 0;
		}
		waited = n < 1500 ? ns / (1 + seed % 7) : 0;
		core_cpu_waited(sh.core, waited, waited / 2);
		sh.now += ns;
		core_tick(sh.core, sh.now);
		mem.total += small ? (double)ns : 0;
		cpu.total += (double)waited;
		reference_look(&mem, (double)sh.now);
		reference_look(&cpu, (double)sh.now);
		reference_compare(&mem, CORE_PSI_MEMORY);
		reference_compare(&cpu, CORE_PSI_CPU);
	}
	ck_assert_double_gt(mem.total, 1e10);
	ck_assert_uint_eq(node().total_ns[CORE_PSI_CPU][CORE_PSI_FULL] / 10000,
			  (u64)cpu.total / 20000);
	ck_assert_uint_eq(node().total_ns[CORE_PSI_IO][CORE_PSI_SOME], 0);
}
END_TEST

/* ---- triggers ---- */

static u32 nr_gone;

static void on_trigger(void *arg, u32 trigger)
{
	nr_fired++;
	last_fired = trigger;
}

static void on_gone(void *arg, u32 trigger)
{
	nr_gone++;
	last_fired = trigger;
}

static void setup_triggers(void)
{
	static struct core_ops ops;
	u64 bytes;

	setup();
	ops = sh_ops;
	ops.trigger = on_trigger;
	ops.trigger_gone = on_gone;
	nr_gone = 0;
	bytes = core_arena_size(&sh.cfg);
	memset(sh.arena, 0, bytes);
	ck_assert_int_eq(core_init(sh.core, sh.arena, bytes, &sh.cfg, &ops,
				   NULL), 0);
	cl = sh_attach(1, "a");
}

static int add(u32 domain, u32 res, u64 threshold_ms, u64 window_ms)
{
	return core_trigger_add(sh.core, sh.now, domain, res, false,
				threshold_ms * MS, window_ms * MS);
}

START_TEST(test_triggers_refused)
{
	u32 i;

	ck_assert_int_eq(add(99, CORE_PSI_MEMORY, 1, SEC), -ENOENT);
	ck_assert_int_eq(add(5, CORE_PSI_IO, 1, SEC), -ENOENT);
	ck_assert_int_eq(add(CORE_NONE, CORE_PSI_MEMORY, 0, SEC), -EINVAL);
	ck_assert_int_eq(add(CORE_NONE, CORE_PSI_MEMORY, SEC + 1, SEC),
			 -EINVAL);
	ck_assert_int_eq(add(CORE_NONE, CORE_PSI_MEMORY, 1, 499), -EINVAL);
	ck_assert_int_eq(add(CORE_NONE, CORE_PSI_MEMORY, 1, 10001), -EINVAL);
	ck_assert_int_eq(add(CORE_NONE, CORE_PSI_NR_RES, 1, SEC), -EINVAL);
	/* A domain has no account of the one mm thread. */
	ck_assert_int_eq(add(0, CORE_PSI_CPU, 1, SEC), -EINVAL);
	for (i = 0; i < CORE_NR_TRIGGERS; i++)
		ck_assert_int_eq(add(CORE_NONE, i % CORE_PSI_NR_RES, 1, SEC),
				 (int)i);
	ck_assert_int_eq(add(CORE_NONE, CORE_PSI_MEMORY, 1, SEC), -ENOSPC);
	core_trigger_del(sh.core, 7);
	ck_assert_int_eq(add(0, CORE_PSI_IO, 1, SEC), 7);
}
END_TEST

START_TEST(test_triggers)
{
	u64 big;
	u32 i;
	int t;

	t = add(_i ? 0 : CORE_NONE, CORE_PSI_MEMORY, 200, SEC);
	ck_assert_int_ge(t, 0);
	/* Stalls of memory fire no trigger of another resource. */
	ck_assert_int_ge(add(CORE_NONE, CORE_PSI_CPU, 1, SEC), 0);
	ck_assert_int_ge(add(0, CORE_PSI_IO, 1, SEC), 0);
	big = sh_ready(cl, ALL - 20, 16, 0);
	(void)waiting(cl, 40, 9000);
	for (i = 0; i < 19; i++)
		sh_tick(10);
	ck_assert_uint_eq(nr_fired, 0);
	sh_tick(10);
	ck_assert_uint_eq(nr_fired, 1);
	ck_assert_uint_eq(last_fired, (u32)t);
	for (i = 0; i < 300; i++)
		sh_tick(10);
	/* A trigger fires once a window, however bad the pressure is. */
	ck_assert_uint_ge(nr_fired, 3);
	ck_assert_uint_le(nr_fired, 4);
	ck_assert_int_eq(sh_close(cl, big), 0);
	for (i = 0; i < 300; i++)
		sh_tick(10);
	/* The last window had some stall; those after it have none. */
	ck_assert_uint_le(nr_fired, 5);
	nr_fired = 0;
	for (i = 0; i < 300; i++)
		sh_tick(10);
	ck_assert_uint_eq(nr_fired, 0);
}
END_TEST

/* CPU, full: only the time in which no client was served. */
START_TEST(test_trigger_cpu)
{
	u32 i;

	ck_assert_int_eq(core_trigger_add(sh.core, sh.now, CORE_NONE,
					  CORE_PSI_CPU, true, 100 * MS,
					  SEC * MS), 0);
	for (i = 0; i < 100; i++) {
		core_cpu_waited(sh.core, 9 * MS, 0);
		sh_tick(10);
	}
	ck_assert_uint_eq(nr_fired, 0);
	for (i = 0; i < 100; i++) {
		/* Full time counts up to the time of some. */
		core_cpu_waited(sh.core, 2 * MS, 9 * MS);
		sh_tick(10);
	}
	ck_assert_uint_eq(nr_fired, 1);
	ck_assert_uint_eq(node().total_ns[CORE_PSI_CPU][CORE_PSI_SOME],
			  1100 * MS);
	ck_assert_uint_eq(node().total_ns[CORE_PSI_CPU][CORE_PSI_FULL],
			  200 * MS);
}
END_TEST

/*
 * The part of the window before the last sample that ended it is estimated from the
 * window before: 101 ms of 500 ms.
 */
START_TEST(test_trigger_over_two_windows)
{
	ck_assert_int_ge(add(CORE_NONE, CORE_PSI_CPU, 150, 500), 0);
	core_cpu_waited(sh.core, 101 * MS, 0);
	sh_tick(501);
	ck_assert_uint_eq(nr_fired, 0);
	/* 50 ms, and 450 / 500 of 101 ms. */
	core_cpu_waited(sh.core, 50 * MS, 0);
	sh_tick(50);
	ck_assert_uint_eq(nr_fired, 0);
	/* 70 ms, and 430 / 500 of 101 ms. */
	core_cpu_waited(sh.core, 20 * MS, 0);
	sh_tick(20);
	ck_assert_uint_eq(nr_fired, 1);
}
END_TEST

/* A domain whose memory.max is the pool is not limited by itself. */
START_TEST(test_max_of_the_whole_pool)
{
	u64 blocks = 8 * SH_PER - (u32)_i;

	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now, 0,
			CORE_LIMIT_MAX, blocks * SH_BLOCK), 0));
	(void)sh_ready(cl, ALL - 40, 16, 0);
	(void)waiting(cl, 64, 9000);
	ck_assert_uint_eq(domain(cl).nr_stalled, 1);
	ck_assert_uint_eq(node().nr_stalled, !_i);
}
END_TEST

/* A trigger ends with its domain, and with no other; its owner is told. */
START_TEST(test_trigger_gone)
{
	struct kvmm_attach_req req = sh_attach_req("b");
	u32 other = sh_attach(1, "b");
	const u32 dom = sh.cl[other].info.domain;
	int t;

	ck_assert_int_ge(add(CORE_NONE, CORE_PSI_MEMORY, 1, SEC), 0);
	ck_assert_int_ge(add(0, CORE_PSI_MEMORY, 1, SEC), 0);
	t = add(dom, CORE_PSI_MEMORY, 1, SEC);
	ck_assert_int_ge(t, 0);
	sh_die(other);
	sh_quiet(other);
	ck_assert_uint_eq(nr_gone, 0);
	/* The domain's name goes on, with another model. */
	req.identity[0] ^= 1;
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
	ck_assert_uint_eq(nr_gone, 1);
	ck_assert_uint_eq(last_fired, (u32)t);
	ck_assert_int_eq(add(CORE_NONE, CORE_PSI_MEMORY, 1, SEC), t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_psi");
	TCase *tc = tcase_create("pressure");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_idle);
	tcase_add_test(tc, test_some_and_full);
	tcase_add_test(tc, test_refused_growth);
	tcase_add_test(tc, test_own_limit);
	tcase_add_test(tc, test_redone_prefill);
	tcase_add_test(tc, test_redone_after_a_cut);
	tcase_add_loop_test(tc, test_redone_by_another, 0, 2);
	tcase_add_test(tc, test_averages);
	tcase_add_test(tc, test_reached);
	tcase_add_test(tc, test_half);
	tcase_add_test(tc, test_level);
	tcase_add_loop_test(tc, test_reference, 0, 3);
	suite_add_tcase(s, tc);
	tc = tcase_create("triggers");
	tcase_add_checked_fixture(tc, setup_triggers, teardown);
	tcase_add_test(tc, test_triggers_refused);
	tcase_add_loop_test(tc, test_triggers, 0, 2);
	tcase_add_test(tc, test_trigger_cpu);
	tcase_add_test(tc, test_trigger_over_two_windows);
	tcase_add_loop_test(tc, test_max_of_the_whole_pool, 0, 2);
	tcase_add_test(tc, test_trigger_gone);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
