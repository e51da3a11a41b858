// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_life.c - lifetime histograms of blocks, counts of preemptions
 *
 * Pools are sampled whole unless a test says otherwise, so each block counts.
 * The tests set the time between two events, and expect exact counts and sums.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

static const u64 bounds[CORE_LIFE_BOUNDS] = {
#define x(ns, le) ns,
	CORE_LIFE_LES(x)
#undef x
};

static u32 cl;

static struct core_copy copies[64];
static u32 nr_copies;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, 64);
	copies[nr_copies++] = *cp;
}

static void do_copies(void)
{
	while (nr_copies) {
		SH_CORE(core_copy_done(sh.core, sh.now, copies[--nr_copies].id,
				       0));
		sh_settle();
	}
}

static void start(u32 host_extents)
{
	nr_copies = 0;
	sh_on_copy = on_copy;
	sh_config(4);
	sh.cfg.host_bytes = host_extents * SH_EXTENT;
	sh.cfg.swappiness = 200;
	sh.cfg.step_deadline_ns = 1ull << 60;
	sh_start();
	cl = sh_attach(1, "a");
}

static void setup(void)
{
	start(0);
}

static struct core_life_view life(void)
{
	struct core_life_view v;

	ck_assert_int_eq(core_get_life(sh.core, sh.cl[cl].info.domain, &v), 0);
	return v;
}

static u64 total(const struct core_hist *h)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i <= CORE_LIFE_BOUNDS; i++)
		sum += h->count[i];
	return sum;
}

static void expect_hist(u32 which, u64 nr, u64 sum_ns)
{
	struct core_life_view v = life();

	ck_assert_uint_eq(total(&v.hist[which]), nr);
	ck_assert_uint_eq(v.hist[which].sum_ns, sum_ns);
}

static void expect_none(void)
{
	u32 i;

	for (i = 0; i < NR_CORE_LIVES; i++)
		expect_hist(i, 0, 0);
}

/* Compute @nr tokens and close the sequence: full blocks become cached. */
static void cache(u32 nr, u32 seed)
{
	u64 seq = sh_ready(cl, nr, 0, seed);

	sh_compute(cl, seq, 0, nr, seed);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

static void drop_caches(void)
{
	SH_CORE((void)!core_drop_caches(sh.core, sh.now, 0, 100));
	sh_check();
}

/* ---- histograms ---- */

/* A cached block is used again: the gap begins when it became cached. */
START_TEST(test_reuse_gap)
{
	u64 seq;

	sh.now += 5 * MS;
	cache(2 * SH_BT, 0);
	expect_none();
	sh.now += 7 * MS;
	seq = sh_ready(cl, 2 * SH_BT + 1, 0, 0);
	expect_hist(CORE_LIFE_reuse_gap, 2, 2 * 7 * MS);
	expect_hist(CORE_LIFE_idle, 0, 0);
	expect_hist(CORE_LIFE_lifetime, 0, 0);
	/* A block in use is neither idle nor used again. */
	sh.now += 3 * MS;
	ck_assert_int_eq(sh_close(cl, seq), 0);
	expect_hist(CORE_LIFE_reuse_gap, 2, 2 * 7 * MS);
	sh.now += 11 * MS;
	(void)sh_ready(cl, 2 * SH_BT + 1, 0, 0);
	expect_hist(CORE_LIFE_reuse_gap, 4, 2 * 18 * MS);
	expect_hist(CORE_LIFE_idle, 0, 0);
}
END_TEST

/* A block is evicted: it was idle since it was cached, and lived since birth. */
START_TEST(test_idle_and_lifetime)
{
	u64 seq = sh_ready(cl, SH_BT, 0, 0);

	sh.now += 2 * MS;
	ck_assert_int_eq(sh_begin(cl, seq, 0, SH_BT), 0);
	sh.now += 3 * MS;
	ck_assert_int_eq(sh_end(cl, seq, 0, SH_BT, 0), 0);
	sh.now += 5 * MS;
	ck_assert_int_eq(sh_close(cl, seq), 0);
	expect_none();
	sh.now += 7 * MS;
	drop_caches();
	expect_hist(CORE_LIFE_idle, 1, 7 * MS);
	expect_hist(CORE_LIFE_lifetime, 1, 15 * MS);
	expect_hist(CORE_LIFE_reuse_gap, 0, 0);
}
END_TEST

/* A block that was never cached has a lifetime, and no idle time. */
START_TEST(test_uncached)
{
	u64 seq = sh_ready(cl, SH_BT - 1, 0, 0);

	sh_compute(cl, seq, 0, SH_BT - 1, 0);
	sh.now += 4 * MS;
	ck_assert_int_eq(sh_close(cl, seq), 0);
	expect_hist(CORE_LIFE_lifetime, 1, 4 * MS);
	expect_hist(CORE_LIFE_idle, 0, 0);
	/* The block of the same place is a new one. */
	seq = sh_ready(cl, SH_BT - 1, 0, 0);
	sh_compute(cl, seq, 0, SH_BT - 1, 0);
	sh.now += 1 * MS;
	ck_assert_int_eq(sh_close(cl, seq), 0);
	expect_hist(CORE_LIFE_lifetime, 2, 5 * MS);
}
END_TEST

/* A time that equals a bound belongs to the bound, a longer one to the next. */
START_TEST(test_bounds)
{
	struct core_life_view v;
	u64 sum = 0;
	u32 i, n;

	for (i = 0; i < CORE_LIFE_BOUNDS; i++)
		for (n = 0; n < 2; n++) {
			cache(SH_BT, 1000 * (2 * i + n));
			sh.now += bounds[i] + n;
			sum += bounds[i] + n;
			drop_caches();
		}
	v = life();
	ck_assert_uint_eq(v.hist[CORE_LIFE_idle].count[0], 1);
	for (i = 1; i < CORE_LIFE_BOUNDS; i++)
		ck_assert_uint_eq(v.hist[CORE_LIFE_idle].count[i], 2);
	ck_assert_uint_eq(v.hist[CORE_LIFE_idle].count[CORE_LIFE_BOUNDS], 1);
	expect_hist(CORE_LIFE_idle, 2 * CORE_LIFE_BOUNDS, sum);
}
END_TEST

/* After life_reset() blocks that exist have no age; new ones have. */
START_TEST(test_unknown_ages)
{
	cache(SH_BT, 0);
	sh.now += 5 * MS;
	life_reset(sh.core);
	drop_caches();
	expect_none();
	cache(SH_BT, 0);
	sh.now += 5 * MS;
	drop_caches();
	expect_hist(CORE_LIFE_lifetime, 1, 5 * MS);
	/* All samples are forgotten, the last one, too. */
	sh.core->samples[0].born = 1;
	sh.core->samples[LIFE_SAMPLES - 1].cached = 1;
	life_reset(sh.core);
	ck_assert_uint_eq(sh.core->samples[0].born, 0);
	ck_assert_uint_eq(sh.core->samples[LIFE_SAMPLES - 1].cached, 0);
}
END_TEST

/* Slots of lower tiers are not counted. */
START_TEST(test_lower_tiers)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	struct kvmm_open_arg o = {
		.prompt_len = SH_BT,
		.flags = KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH,
	};
	u64 seq;
	u32 i;

	sh_stop();
	start(16);
	ck_assert_int_eq(sh_open_as(cl, &o, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, SH_BT, 0), 0);
	sh_compute(cl, seq, 0, SH_BT, 0);
	sh.now += 3 * MS;
	*a = (struct kvmm_advise_arg){ .seq = seq,
				       .advice = KVMM_ADV_PAGEOUT };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)),
			 0);
	sh_settle();
	do_copies();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	expect_hist(CORE_LIFE_lifetime, 1, 3 * MS);
	/* The 16 blocks of the device have samples, slots have none. */
	for (i = 4 * SH_PER; i < LIFE_SAMPLES; i++)
		ck_assert_uint_eq(sh.core->samples[i].born, 0);
	sh.now += 3 * MS;
	ck_assert_int_eq(sh_close(cl, seq), 0);
	expect_hist(CORE_LIFE_lifetime, 1, 3 * MS);
	expect_hist(CORE_LIFE_idle, 0, 0);
	/* It was kept: no token is lost. */
	ck_assert_uint_eq(life().preempted[CORE_CAUSE_advice][1], 1);
	ck_assert_uint_eq(life().preempted[CORE_CAUSE_advice][0], 0);
	ck_assert_uint_eq(life().lost_tokens[CORE_CAUSE_advice], 0);
}
END_TEST

/* ---- preemptions ---- */

START_TEST(test_preempted)
{
	u32 dom = sh.cl[cl].info.domain;

	life_preempted(sh.core, dom, CORE_CAUSE_grow, false, 20);
	life_preempted(sh.core, dom, CORE_CAUSE_grow, false, 33);
	life_preempted(sh.core, dom, CORE_CAUSE_grow, true, 7);
	life_preempted(sh.core, dom, CORE_CAUSE_lost, false, 5);
	ck_assert_uint_eq(life().preempted[CORE_CAUSE_grow][0], 2);
	ck_assert_uint_eq(life().preempted[CORE_CAUSE_grow][1], 1);
	ck_assert_uint_eq(life().lost_tokens[CORE_CAUSE_grow], 53);
	ck_assert_uint_eq(life().preempted[CORE_CAUSE_lost][0], 1);
	ck_assert_uint_eq(life().lost_tokens[CORE_CAUSE_lost], 5);
	ck_assert_uint_eq(life().preempted[CORE_CAUSE_min][0], 0);
}
END_TEST

/* ---- records ---- */

/* A new domain in the record of an old one begins at 0. */
START_TEST(test_new_domain)
{
	struct kvmm_attach_req req = sh_attach_req("a");

	cache(SH_BT, 0);
	sh.now += MS;
	drop_caches();
	expect_hist(CORE_LIFE_lifetime, 1, MS);
	life_preempted(sh.core, sh.cl[cl].info.domain, CORE_CAUSE_grow, false, 1);
	sh_quiet(cl);
	req.identity[0] = 1;
	cl = (u32)sh_attach_as(1, &req);
	sh_settle();
	ck_assert_uint_eq(sh.cl[cl].info.domain, 0);
	expect_none();
	ck_assert_uint_eq(life().preempted[CORE_CAUSE_grow][0], 0);
}
END_TEST

/* Each domain has counts of its own. */
START_TEST(test_domains)
{
	struct core_life_view v;
	u32 other = sh_attach(1, "b");

	cache(SH_BT, 0);
	sh.now += MS;
	drop_caches();
	expect_hist(CORE_LIFE_lifetime, 1, MS);
	cl = other;
	expect_none();
	ck_assert_int_eq(core_get_life(sh.core, sh.cfg.max_domains - 1, &v), 0);
	ck_assert_int_eq(core_get_life(sh.core, sh.cfg.max_domains, &v),
			 -ERANGE);
}
END_TEST

/*
 * At most LIFE_SAMPLES blocks are sampled, one of each group, and not always the
 * first: pools of 1023 blocks and more.
 */
static const struct {
	u32	extents;
	u32	interval;
} pools[] = {
	{ 255, 1 }, { 256, 1 }, { 257, 2 }, { 512, 2 }, { 513, 4 },
	{ 1024, 4 }, { 1025, 8 },
};

START_TEST(test_interval)
{
	u32 nr = pools[_i].extents * SH_PER, i, k, n, odd = 0;

	sh_stop();
	sh_config(pools[_i].extents);
	sh_start();
	ck_assert_uint_eq(core_life_interval(sh.core), pools[_i].interval);
	/* An adopted arena may hold any value. */
	sh.core->head->life_shift = 20;
	life_init(sh.core);
	ck_assert_uint_eq(core_life_interval(sh.core), pools[_i].interval);
	for (i = 0; i < nr; i += pools[_i].interval) {
		for (k = 0, n = 0; k < pools[_i].interval; k++) {
			n += life_is_sampled(sh.core, i + k);
			odd += k && life_is_sampled(sh.core, i + k);
		}
		ck_assert_uint_eq(n, 1);
	}
	ck_assert(pools[_i].interval == 1 ? !odd : odd > nr / 16);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_life");
	TCase *tc = tcase_create("life");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_reuse_gap);
	tcase_add_test(tc, test_idle_and_lifetime);
	tcase_add_test(tc, test_uncached);
	tcase_add_test(tc, test_bounds);
	tcase_add_test(tc, test_unknown_ages);
	tcase_add_test(tc, test_lower_tiers);
	tcase_add_test(tc, test_preempted);
	tcase_add_test(tc, test_new_domain);
	tcase_add_test(tc, test_domains);
	tcase_add_loop_test(tc, test_interval, 0, ARRAY_SIZE(pools));
	suite_add_tcase(s, tc);
	return sh_run(s);
}
