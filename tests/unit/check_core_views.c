// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_views.c - tables, marks and tiers as readers see them
 */
#include "kvmm/core/node/node.h"
#include "kvmm/core/runs.h"
#include "tests/unit/core_shell.h"

#define POOL	16u	/* blocks */
#define NR	8u	/* runs that fit into the array of a test */

static struct core *c;
static u32 cl;
static struct core_run run[NR];

static void setup(void)
{
	sh_config(POOL / SH_PER);
	sh.cfg.host_bytes = 8 * 2 * SH_EXTENT;
	sh.cfg.starve_ns = 3600000 * MS;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
}

static void teardown(void)
{
	sh_stop();
}

/* Three sealed blocks of one span in a row, and an open one that follows them. */
static u32 table_of_four(void)
{
	u64 seq = sh_ready(cl, 3 * SH_BT + 1, SH_BT - 1, 7);
	struct kv_seq *s = seq_find(c, cl, seq);
	u32 i;

	sh_compute(cl, seq, 0, 3 * SH_BT + 1, 7);
	ck_assert_uint_eq(s->tab.nr_blocks, 4);
	for (i = 1; i < 4; i++)
		ck_assert_uint_eq(table_get(c, &s->tab, i), table_get(c, &s->tab, 0) + i);
	return seq_index(c, s);
}

START_TEST(test_blocks_alike_are_a_run)
{
	u32 seq = table_of_four(), at = 0;

	ck_assert_int_eq(core_get_runs(c, seq, &at, 100, run, NR), 2);
	ck_assert_uint_eq(at, 4);
	ck_assert_uint_eq(run[0].at, 0);
	ck_assert_uint_eq(run[0].nr, 3);
	ck_assert_uint_eq(run[0].nr_map, 1);
	ck_assert(!run[0].open);
	ck_assert_uint_eq(run[1].at, 3);
	ck_assert_uint_eq(run[1].nr, 1);
	ck_assert_uint_eq(run[1].block, run[0].block + 3);
	ck_assert(run[1].open);
	ck_assert_int_eq(core_get_runs(c, seq, &at, 100, run, NR), 0);
}
END_TEST

/* A reader with room for one run goes on where the next one begins. */
START_TEST(test_room_for_one_run)
{
	u32 seq = table_of_four(), at = 0;

	ck_assert_int_eq(core_get_runs(c, seq, &at, 100, run, 1), 1);
	ck_assert_uint_eq(run[0].nr, 3);
	ck_assert_uint_eq(at, 3);
	ck_assert_int_eq(core_get_runs(c, seq, &at, 100, run, 1), 1);
	ck_assert_uint_eq(run[0].at, 3);
	ck_assert_uint_eq(at, 4);
}
END_TEST

/* The budget cuts a run. */
START_TEST(test_budget_cuts_a_run)
{
	u32 seq = table_of_four(), at = 0;

	ck_assert_int_eq(core_get_runs(c, seq, &at, 2, run, NR), 1);
	ck_assert_uint_eq(run[0].nr, 2);
	ck_assert_uint_eq(at, 2);
	ck_assert_int_eq(core_get_runs(c, seq, &at, 2, run, NR), 2);
	ck_assert_uint_eq(run[0].at, 2);
	ck_assert_uint_eq(run[0].nr, 1);
	ck_assert_int_eq(core_get_runs(c, core_sizes(c)->nr_seqs, &at, 2, run, NR),
			 -ERANGE);
	ck_assert_int_eq(core_get_runs(c, seq + 1, &at, 2, run, NR), -ENOENT);
}
END_TEST

/* The marks of the pool are the sums over its domains. */
START_TEST(test_marks_of_the_pool)
{
	struct core_pool_view v;
	struct wmark a, b;
	u32 other = sh_attach(1, "b");

	(void)table_of_four();
	(void)sh_ready(other, SH_BT, SH_BT, 9);
	wmark_get(c, &c->domains[sh.cl[cl].info.domain], &a);
	wmark_get(c, &c->domains[sh.cl[other].info.domain], &b);
	core_get_pool(c, &v);
	ck_assert_uint_gt(b.min, 0);
	ck_assert_uint_eq(v.wmark[0], (a.min + b.min) * (u64)SH_BLOCK);
	ck_assert_uint_eq(v.wmark[1], (a.low + b.low) * (u64)SH_BLOCK);
	ck_assert_uint_eq(v.wmark[2], (a.high + b.high) * (u64)SH_BLOCK);
}
END_TEST

START_TEST(test_tiers)
{
	struct core_tier_view v;

	ck_assert_int_eq(core_get_tier(c, CORE_POOL_HOST, &v), 0);
	ck_assert_uint_eq(v.online, 1);
	ck_assert_uint_eq(v.total, sh.cfg.host_bytes);
	ck_assert_int_eq(core_get_tier(c, CORE_POOL_AREA, &v), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_views");
	TCase *tc = tcase_create("views");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_blocks_alike_are_a_run);
	tcase_add_test(tc, test_room_for_one_run);
	tcase_add_test(tc, test_budget_cuts_a_run);
	tcase_add_test(tc, test_marks_of_the_pool);
	tcase_add_test(tc, test_tiers);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
