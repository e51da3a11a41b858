// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_why.c - why sequences wait, and which took memory; evict and drain
 *
 * The tests compare core_get_why() with the situation that they arranged: the
 * reason of a wait, the sequence that took memory and the one it took it for,
 * the amount, and the tokens found again.
 */
#include "kvmm/core/why.h"
#include "tests/unit/core_shell.h"

#define POOL	16u			/* extents */
#define ALL	(POOL * SH_PER)		/* blocks */
#define STARVE	50u			/* ms */

static void setup(void)
{
	sh_config(POOL);
	sh.cfg.starve_ns = STARVE * MS;
	sh.cfg.step_deadline_ns = 1ull << 60;
	sh_start();
}

static void teardown(void)
{
	sh_stop();
}

static u32 attach(u64 tenant, const char *name, u32 min, u32 high)
{
	struct kvmm_attach_req req = sh_attach_req(name);
	int id;

	req.limits[0].min = min * SH_BLOCK;
	req.limits[0].high = high ? high * SH_BLOCK : KVMM_LIMIT_MAX;
	id = sh_attach_as(tenant, &req);
	ck_assert_int_ge(id, 0);
	sh_settle();
	return (u32)id;
}

/* A sequence of @blocks blocks, with its ids. */
static u64 asked(u32 cl, u32 blocks, u32 prio, u32 seed)
{
	struct kvmm_open_arg a = { .prompt_len = blocks * SH_BT,
				   .max_tokens = SH_BT, .priority = prio };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, a.prompt_len, seed), 0);
	return seq;
}

static u64 resident(u32 cl, u32 blocks, u32 prio, u32 seed)
{
	u64 seq = asked(cl, blocks, prio, seed);

	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_compute(cl, seq, 0, blocks * SH_BT, seed);
	return seq;
}

static struct core_why_view why(u32 cl, u64 seq)
{
	struct core_why_view v;

	ck_assert_int_eq(core_get_why(sh.core, cl * core_get_config(sh.core)->max_seqs +
				      KVMM_SEQ_INDEX(seq), sh.now, &v), 0);
	ck_assert_uint_eq(v.seq, seq);
	ck_assert_uint_eq(v.client, cl);
	return v;
}

#define ck_waits(cl, seq, what)						\
	ck_assert_str_eq(core_wait_name(why(cl, seq).wait),		\
			 core_wait_name(CORE_WAIT_##what))

/* ---- waiting ---- */

START_TEST(test_line)
{
	u32 a = attach(1, "a", 0, 0);
	u64 big = resident(a, ALL - 4, 0, 0), first, second, none;
	struct core_why_view v;

	ck_waits(a, big, nothing);
	first = asked(a, 8, 0, 5000);
	sh_tick(3);
	second = asked(a, 2, 0, 7000);
	none = sh_open(a, 16, 16);
	v = why(a, first);
	ck_waits(a, first, memory);
	ck_assert_uint_eq(v.needs, 8);
	ck_assert_uint_eq(v.ahead, 0);
	ck_assert_uint_eq(v.waits_ns, 3 * MS);
	ck_assert_uint_eq(v.reason_ns, 3 * MS);
	ck_assert_uint_ge(v.held, ALL - 4);
	ck_assert_uint_eq(v.wait_domain, CORE_NONE);
	v = why(a, second);
	ck_waits(a, second, line);
	ck_assert_uint_eq(v.ahead, 1);
	ck_assert_uint_eq(v.first, CORE_WAIT_memory);
	ck_waits(a, none, client);
	ck_assert_int_eq(sh_close(a, big), 0);
	ck_waits(a, first, nothing);
	ck_waits(a, second, nothing);
	ck_assert_uint_eq(why(a, second).waits_ns, 0);
}
END_TEST

START_TEST(test_own_limits)
{
	u32 a = attach(1, "a", 0, 16);
	u64 seq, other;

	seq = resident(a, 12, 0, 0);
	other = asked(a, 8, 0, 5000);
	ck_waits(a, other, high);
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now, 0,
			CORE_LIMIT_HIGH, KVMM_LIMIT_MAX), 0));
	sh_settle();
	ck_waits(a, other, nothing);
	ck_assert_int_eq(sh_close(a, other), 0);
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now, 0,
			CORE_LIMIT_MAX, 16 * SH_BLOCK), 0));
	other = asked(a, 10, 0, 9000);
	ck_waits(a, other, max);
	ck_assert_int_eq(sh_close(a, seq), 0);
	ck_waits(a, other, nothing);
}
END_TEST

/* Children need room for growth, which takes their domain to memory.high. */
START_TEST(test_children_reach_high)
{
	u32 a = attach(1, "a", 0, 32), b = attach(1, "b", 0, 0);
	u64 one, two, theirs, kids[4];

	(void)resident(b, 44, 0, 20000);
	one = resident(a, 12, 0, 0);
	two = asked(a, 16, 0, 5000);
	ck_waits(a, two, memory);
	theirs = asked(b, 2, 0, 90000);
	ck_waits(b, theirs, share);
	ck_assert_int_eq(sh_fork(a, one, 4, kids), 0);
	ck_waits(a, two, high);
	ck_waits(b, theirs, nothing);
}
END_TEST

/* A domain above its part steps back for another domain's first sequence. */
START_TEST(test_share)
{
	u32 a = attach(1, "a", 0, 0), b = attach(1, "b", 0, 0);
	u64 seqs[3], mine, theirs;
	u32 i;

	for (i = 0; i < 3; i++)
		seqs[i] = resident(a, 18, 0, 5000 * (i + 1));
	mine = asked(b, 20, 0, 90000);
	ck_waits(b, mine, memory);
	theirs = asked(a, 2, 0, 40000);
	ck_waits(a, theirs, share);
	ck_assert_uint_eq(why(a, theirs).wait_domain, sh.cl[b].info.domain);
	ck_assert_int_eq(sh_close(a, seqs[2]), 0);
	ck_waits(b, mine, nothing);
}
END_TEST

/* ---- preempted ---- */

/* A preemption for memory.min: the view names the cause, the taker and the cost. */
START_TEST(test_taken)
{
	u32 a = attach(1, "a", 24, 0), b = attach(1, "b", 0, 0);
	struct core_why_view v;
	u64 big[3], seq;
	u32 i;

	for (i = 0; i < 3; i++)
		big[i] = resident(b, 20, 9, 5000 * (i + 1));
	ck_assert_uint_eq(why(b, big[2]).taken, 0);
	ck_assert_uint_eq(why(b, big[2]).last_ns, 0);
	seq = asked(a, 16, 0, 0);
	ck_assert_uint_eq(sh_state(a, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(b, big[2]), KVMM_SEQ_RECOMPUTE);
	sh_tick(7);
	v = why(b, big[2]);
	ck_assert_uint_eq(v.wait, CORE_WAIT_client);
	ck_assert_uint_eq(v.taken, 1);
	ck_assert_uint_eq(v.cause, CORE_CAUSE_min);
	ck_assert_uint_eq(v.by_domain, sh.cl[a].info.domain);
	ck_assert_uint_eq(v.by_client, a);
	ck_assert_uint_eq(v.by_seq, KVMM_SEQ_INDEX(seq));
	ck_assert_uint_eq(v.blocks, 20);
	ck_assert_uint_eq(v.len, 20 * SH_BT);
	ck_assert_uint_eq(v.tokens, 20 * SH_BT);
	ck_assert(!v.kept && !v.back);
	ck_assert_uint_eq(v.last_ns, 7 * MS);
	ck_assert_uint_eq(v.out_ns, 7 * MS);
	ck_assert_uint_eq(why(b, big[0]).taken, 0);

	/* The sequence comes back, and finds some of its blocks. */
	ck_assert_int_eq(sh_close(b, big[0]), 0);
	ck_assert_int_eq(sh_match(b, big[2], 20 * SH_BT, 15000), 0);
	ck_assert_uint_eq(sh_state(b, big[2]), KVMM_SEQ_READY);
	sh_tick(5);
	v = why(b, big[2]);
	ck_assert(v.back);
	ck_assert_uint_eq(v.out_ns, 7 * MS);
	ck_assert_uint_eq(v.last_ns, 12 * MS);
	ck_assert_uint_eq(v.found, sh_status(b, big[2])->cached_len);
	ck_assert_uint_lt(v.found, v.len);
}
END_TEST

/* A later domain of the same number is not named as the taker. */
START_TEST(test_taker_is_gone)
{
	u32 a = attach(1, "a", 24, 0), b = attach(1, "b", 0, 0);
	struct kvmm_attach_req other = sh_attach_req("a");
	u64 big[3], seq;
	u32 i;

	for (i = 0; i < 3; i++)
		big[i] = resident(b, 20, 9, 5000 * (i + 1));
	seq = asked(a, 16, 0, 0);
	ck_assert_uint_eq(why(b, big[2]).by_domain, sh.cl[a].info.domain);
	ck_assert_int_eq(sh_close(a, seq), 0);
	sh_die(a);
	sh_quiet(a);
	other.identity[0] = 99;
	ck_assert_int_ge(sh_attach_as(1, &other), 0);
	ck_assert_uint_eq(why(b, big[2]).taken, 1);
	ck_assert_uint_eq(why(b, big[2]).by_domain, CORE_NONE);
	ck_assert_uint_eq(why(b, big[2]).by_client, CORE_NONE);
}
END_TEST

/* A sequence of another tenant waited longest: its domain is named. */
START_TEST(test_taken_by_tenant)
{
	u32 a = attach(1, "a", 0, 0), b = attach(2, "b", 0, 0);
	struct core_why_view v;
	u64 big = resident(a, ALL - 2, 0, 0), seq;
	u32 i;

	seq = asked(b, 8, 0, 5000);
	ck_assert_uint_eq(sh_state(b, seq), KVMM_SEQ_WAITING);
	for (i = 0; i < 40 && sh_state(b, seq) != KVMM_SEQ_READY; i++)
		sh_tick(STARVE);
	ck_assert_uint_eq(sh_state(b, seq), KVMM_SEQ_READY);
	v = why(a, big);
	ck_assert_uint_eq(v.taken, 1);
	ck_assert_uint_eq(v.cause, CORE_CAUSE_tenant);
	ck_assert_uint_eq(v.by_domain, sh.cl[b].info.domain);
	ck_assert_uint_eq(v.len, (ALL - 2) * SH_BT);
}
END_TEST

/* ---- refused views ---- */

START_TEST(test_view_refused)
{
	u32 a = attach(1, "a", 0, 0);
	u64 seq = sh_open(a, 16, 16);
	struct core_why_view v;

	ck_assert_int_eq(core_get_why(sh.core, CORE_NONE, sh.now, &v), -ERANGE);
	ck_assert_int_eq(sh_close(a, seq), 0);
	ck_assert_int_eq(core_get_why(sh.core, 0, sh.now, &v), -ENOENT);
	ck_assert_str_eq(core_wait_name(NR_CORE_WAITS), "?");
	ck_assert_str_eq(core_cause_text(NR_CORE_CAUSES), "?");
}
END_TEST

/* ---- evict ---- */

static int evict(u32 dom, u32 most)
{
	int err;

	SH_CORE(err = core_evict(sh.core, sh.now, dom, most));
	sh_check();
	return err;
}

START_TEST(test_evict)
{
	u32 a = attach(1, "a", 0, 0), b = attach(1, "b", 0, 0), dom;
	u64 seq, other, wants;

	dom = sh.cl[a].info.domain;
	seq = resident(a, 8, 0, 0);
	other = resident(a, 24, 0, 5000);
	ck_assert_int_eq(sh_close(a, other), 0);
	ck_assert_uint_eq(sh_domain(a).blocks[3], 24);
	ck_assert_int_eq(evict(CORE_NONE, 1), -ENOENT);
	ck_assert_int_eq(evict(9, 1), -ENOENT);
	ck_assert_int_eq(evict(dom, 10), 10);
	ck_assert_uint_eq(sh_domain(a).blocks[3], 14);
	ck_assert_uint_eq(sh_count(CORE_EV_evict_asked), 10);
	/* Cache within the domain's own memory.min is evicted as well. */
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now, dom,
			CORE_LIMIT_MIN, 32 * SH_BLOCK), 0));
	wants = asked(b, ALL - 20, 0, 90000);
	ck_assert_uint_eq(sh_state(b, wants), KVMM_SEQ_WAITING);
	ck_assert_int_eq(evict(dom, 1000), 14);
	ck_assert_int_eq(evict(dom, 1000), 0);
	sh_settle();
	/* No sequence lost memory, and the waiting one has the freed blocks. */
	ck_assert_uint_eq(sh_state(a, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_domain(a).nr_preempted, 0);
	ck_assert_uint_eq(sh_state(b, wants), KVMM_SEQ_READY);
}
END_TEST

/* ---- drain ---- */

static int drain(u32 what, u32 id, bool on)
{
	int err;

	SH_CORE(err = core_drain(sh.core, sh.now, what, id, on));
	sh_check();
	return err;
}

static int may_open(u32 cl)
{
	struct kvmm_open_arg a = { .prompt_len = 4 };
	u64 seq;
	int err = sh_open_as(cl, &a, &seq);

	/* The client can see the drain without asking. */
	ck_assert_int_eq(sh.cl[cl].ctl.draining != 0, err == -ESHUTDOWN);
	if (!err)
		ck_assert_int_eq(sh_close(cl, seq), 0);
	return err;
}

static int may_attach(u64 tenant, const char *name)
{
	struct kvmm_attach_req req = sh_attach_req(name);
	int id = sh_attach_as(tenant, &req);

	if (id < 0)
		return id;
	sh_die((u32)id);
	sh_quiet((u32)id);
	return 0;
}

START_TEST(test_drain_node)
{
	u32 a = attach(1, "a", 0, 0);
	u64 seq = resident(a, 8, 0, 0), big = resident(a, ALL - 16, 0, 5000);
	u64 waits = asked(a, 20, 0, 20000), child;

	ck_assert_int_eq(drain(CORE_DRAIN_NODE, 0, true), 0);
	ck_assert(core_get_drain(sh.core));
	ck_assert_int_eq(may_open(a), -ESHUTDOWN);
	ck_assert_int_eq(may_attach(1, "a"), -ESHUTDOWN);
	ck_assert_int_eq(may_attach(2, "a"), -ESHUTDOWN);
	/* Present sequences grow and fork, and waiting ones are admitted. */
	sh_compute(a, seq, 8 * SH_BT, 8 * SH_BT + 4, 0);
	ck_assert_int_eq(sh_fork(a, seq, 1, &child), 0);
	ck_assert_int_eq(sh_close(a, big), 0);
	ck_assert_uint_eq(sh_state(a, waits), KVMM_SEQ_READY);
	ck_assert_int_eq(drain(CORE_DRAIN_NODE, 0, false), 0);
	ck_assert_int_eq(may_open(a), 0);
	ck_assert_int_eq(may_attach(1, "a"), 0);
}
END_TEST

START_TEST(test_drain_one)
{
	u32 a = attach(1, "a", 0, 0), b = attach(2, "b", 0, 0);
	u32 c = attach(1, "a", 0, 0);
	struct core_client_view v;

	ck_assert_int_eq(drain(CORE_DRAIN_TENANT, sh.cl[a].info.tenant, true), 0);
	ck_assert_int_eq(may_open(a), -ESHUTDOWN);
	ck_assert_int_eq(may_open(c), -ESHUTDOWN);
	ck_assert_int_eq(may_open(b), 0);
	ck_assert_int_eq(may_attach(1, "new"), -ESHUTDOWN);
	ck_assert_int_eq(may_attach(2, "b"), 0);
	ck_assert_int_eq(drain(CORE_DRAIN_TENANT, sh.cl[a].info.tenant, false), 0);
	ck_assert_int_eq(drain(CORE_DRAIN_CLIENT, c, true), 0);
	ck_assert_int_eq(core_get_client(sh.core, c, &v), 0);
	ck_assert_uint_eq(v.drain, BIT(CORE_DRAIN_CLIENT));
	ck_assert_int_eq(may_open(a), 0);
	ck_assert_int_eq(may_open(c), -ESHUTDOWN);
	/* The next client in its place is not drained. */
	sh_die(c);
	sh_quiet(c);
	c = attach(1, "a", 0, 0);
	ck_assert_int_eq(may_open(c), 0);
	ck_assert_int_eq(drain(CORE_DRAIN_CLIENT, 40, true), -ENOENT);
	ck_assert_int_eq(drain(CORE_DRAIN_TENANT, CORE_NONE, true), -ENOENT);
	ck_assert_int_eq(drain(9, 0, true), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_why");
	TCase *tc = tcase_create("why");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_line);
	tcase_add_test(tc, test_own_limits);
	tcase_add_test(tc, test_children_reach_high);
	tcase_add_test(tc, test_share);
	tcase_add_test(tc, test_taken);
	tcase_add_test(tc, test_taker_is_gone);
	tcase_add_test(tc, test_taken_by_tenant);
	tcase_add_test(tc, test_view_refused);
	tcase_add_test(tc, test_evict);
	tcase_add_test(tc, test_drain_node);
	tcase_add_test(tc, test_drain_one);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
