// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_groups_window.c - layer groups: windows are trimmed when steps end
 *
 * Also TRIMs that wait meanwhile, and the reservation of a prompt that goes on.
 */
#include "tests/unit/groups_scene.h"

/* Two groups of 16 tokens a block; the second has a window of 32. */
static const struct shape pair[] = { { 16, 0 }, { 16, 32 } };

static void teardown(void)
{
	sh_stop();
}

/* ---- windows ---- */

/* Position 47 attends to 16 to 47: the first block goes when 47 tokens are valid. */
START_TEST(test_window_ends)
{
	u64 seq;

	groups_start(8, 16, 2, pair);
	seq = runs(46, 100, 1);
	tab_has(seq, 1, 3, 0);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 0);
	sh_compute(cl, seq, 46, 47, 1);
	tab_has(seq, 0, 3, 0);
	tab_has(seq, 1, 3, 1);
	ck_assert_uint_eq(shown(seq, 1, 0), KVMM_NO_INDEX);
	ck_assert_uint_ne(shown(seq, 1, 1), KVMM_NO_INDEX);
	ck_assert_uint_ne(shown(seq, 0, 0), KVMM_NO_INDEX);
	ck_assert_uint_eq(sh_count(CORE_EV_pgtrim), 1);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 1);
	ck_assert_uint_eq(domain()->dev.nr[BLK_SEALED], 3);
	compute_by(seq, 47, 62, 1, 1);
	tab_has(seq, 1, 4, 1);
	sh_compute(cl, seq, 62, 63, 1);
	tab_has(seq, 1, 4, 2);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 2);
}
END_TEST

/* An open step that began at 44 attends to 13 and after it. */
START_TEST(test_window_of_an_open_step)
{
	u64 seq, first;

	groups_start(8, 16, 2, pair);
	seq = runs(40, 100, 1);
	ck_assert_int_eq(sh_begin(cl, seq, 40, 8), 0);
	first = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, seq, 44, 8), 0);
	ck_assert_int_eq(sh_end_step(cl, first, seq, 40, 48, 1), 0);
	tab_has(seq, 1, 4, 0);
	ck_assert_uint_ne(shown(seq, 1, 0), KVMM_NO_INDEX);
	ck_assert_int_eq(sh_end(cl, seq, 48, 48, 1), 0);
	tab_has(seq, 1, 3, 1);
}
END_TEST

/* A window of one token: the open tail stays, full blocks go. */
START_TEST(test_window_of_one)
{
	const struct shape shapes[] = { { 16, 0 }, { 16, 1 } };
	u64 seq;

	groups_start(8, 16, 2, shapes);
	seq = runs(47, 100, 1);
	tab_has(seq, 1, 3, 2);
	sh_compute(cl, seq, 47, 48, 1);
	tab_has(seq, 1, 3, 3);
	ck_assert_uint_eq(shown(seq, 1, 2), KVMM_NO_INDEX);
	sh_compute(cl, seq, 48, 50, 1);
	tab_has(seq, 1, 4, 3);
	tab_has(seq, 0, 4, 0);
}
END_TEST

/*
 * A window passes the first of two TRIMs that wait for a step: the second still waits.
 * It passes both: a third one is carried out alone.
 */
START_TEST(test_window_passes_trims)
{
	u32 len = _i ? 140 : 50, want = _i ? 8 : 3;
	u64 seq, first;

	groups_start(16, 128, 2, pair);
	ck_assert_int_eq(sh_close(cl, sh_ready(cl, 320, 0, 1000)), 0);
	seq = runs(40, 200, 1);
	ck_assert_int_eq(sh_begin(cl, seq, 40, len - 40), 0);
	first = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, seq, len - 1, 2), 0);
	ck_assert_int_eq(trim(seq, 16), 0);
	ck_assert_int_eq(trim(seq, 32), 0);
	tab_has(seq, 1, _i ? 9 : 4, 0);
	ck_assert_int_eq(sh_end_step(cl, first, seq, 40, len, 1), 0);
	tab_has(seq, 0, _i ? 9 : 4, 0);
	tab_has(seq, 1, _i ? 9 : 4, _i ? 6 : 1);
	ck_assert_int_eq(trim(seq, 16 * want), 0);
	tab_has(seq, 1, _i ? 9 : 4, _i ? 6 : 1);
	ck_assert_int_eq(sh_end(cl, seq, len, len, 1), 0);
	tab_has(seq, 0, _i ? 9 : 4, want);
	tab_has(seq, 1, _i ? 9 : 4, want);
}
END_TEST

/* Without a third TRIM the second one is carried out when the step has ended. */
START_TEST(test_window_leaves_a_trim)
{
	u64 seq, first;

	groups_start(8, 128, 2, pair);
	seq = runs(40, 200, 1);
	ck_assert_int_eq(sh_begin(cl, seq, 40, 8), 0);
	first = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, seq, 47, 1), 0);
	ck_assert_int_eq(trim(seq, 16), 0);
	ck_assert_int_eq(trim(seq, 32), 0);
	ck_assert_int_eq(sh_end_step(cl, first, seq, 40, 48, 1), 0);
	tab_has(seq, 1, 3, 1);
	ck_assert_int_eq(sh_end(cl, seq, 48, 48, 1), 0);
	tab_has(seq, 0, 3, 2);
	tab_has(seq, 1, 3, 2);
}
END_TEST

/* ---- the reservation of a prompt that goes on ---- */

static u64 begin_long_prompt(void)
{
	u64 seq = sh_ready(cl, 160, 0, 1), i;

	for (i = 1; i <= 10; i++) {
		u64 end = i < 2 ? 4 : min(10ull, i + 2);

		sh_compute(cl, seq, 16 * ((u32)i - 1), 16 * (u32)i, 1);
		ck_assert_uint_eq(tab(seq, 0)->reserved, 10 - i);
		ck_assert_uint_eq(tab(seq, 1)->reserved, end - i);
		ck_assert_uint_eq(domain()->dev.reserved, 10 - i + end - i);
	}
	return seq;
}

START_TEST(test_renewed)
{
	u64 seq;

	groups_start(8, 16, 2, pair);
	seq = begin_long_prompt();
	tab_has(seq, 1, 10, 8);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 8);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 0);
	/* Tokens after the prompt are not reserved. */
	ck_assert_uint_eq(domain()->dev.reserved, 0);
}
END_TEST

/* No block is free: the blocks that were just given back are evicted. */
START_TEST(test_renewed_without_room)
{
	u64 seq, other;

	groups_start(4, 16, 2, pair);
	other = sh_ready(cl, 16, 0, 1000);
	sh_compute(cl, other, 0, 16, 1000);
	seq = begin_long_prompt();
	tab_has(seq, 1, 10, 8);
	/* The last two renewals were not needed. */
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_evict), 6);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 2);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_recompute), 0);
}
END_TEST

/* Another sequence has the blocks that were given back: there is nothing to evict. */
START_TEST(test_renewed_while_shared)
{
	u64 seq, other, kid;

	groups_start(4, 16, 2, pair);
	other = sh_ready(cl, 16, 0, 1000);
	sh_compute(cl, other, 0, 16, 1000);
	seq = sh_ready(cl, 160, 0, 1);
	compute_by(seq, 0, 32, 16, 1);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	compute_by(seq, 32, 48, 16, 1);
	tab_has(seq, 1, 3, 1);
	tab_has(kid, 1, 2, 0);
	ck_assert_uint_eq(tab(seq, 1)->resv_blocks, 4);
	ck_assert_uint_eq(tab(seq, 1)->reserved, 1);
	ck_assert_int_eq(sh_close(cl, kid), 0);
	/* Each block that is given back renews one, and the last one is taken by growth. */
	compute_by(seq, 48, 64, 16, 1);
	ck_assert_uint_eq(tab(seq, 1)->resv_blocks, 5);
	compute_by(seq, 64, 160, 16, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_groups_window");
	TCase *tc = tcase_create("window");

	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, test_window_ends);
	tcase_add_test(tc, test_window_of_an_open_step);
	tcase_add_test(tc, test_window_of_one);
	tcase_add_loop_test(tc, test_window_passes_trims, 0, 2);
	tcase_add_test(tc, test_window_leaves_a_trim);
	tcase_add_test(tc, test_renewed);
	tcase_add_test(tc, test_renewed_without_room);
	tcase_add_test(tc, test_renewed_while_shared);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
