// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_share.c - tables of more than one page, and forks of them
 */
#include "tests/unit/core_shell.h"

#define PER_PAGE	KVMM_TABLE_ENTRIES

static u32 cl;

static void setup(void)
{
	sh_config(64);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
}

static void teardown(void)
{
	sh_stop();
}

static struct core_seq_view view_of(u64 seq)
{
	struct core_seq_view v;

	ck_assert_int_eq(core_get_seq(sh.core, KVMM_SEQ_INDEX(seq), &v), 0);
	return v;
}

/* A sequence of @blocks full blocks and @more tokens. */
static u64 long_seq(u32 blocks, u32 more)
{
	u64 seq = sh_ready(cl, blocks * SH_BT + more, 64, 0);

	sh_compute(cl, seq, 0, blocks * SH_BT + more, 0);
	return seq;
}

/* ---- pages ---- */

/* Growing and shrinking over the end of a page, one block at a time. */
START_TEST(test_page_seams)
{
	u64 seq = sh_ready(cl, 16, 4000, 0);
	u32 len = 0, i;

	for (i = 0; i < 2 * PER_PAGE + 3; i++) {
		ck_assert_int_eq(sh_begin(cl, seq, len, SH_BT + 1), 0);
		ck_assert_uint_eq(view_of(seq).nr_blocks, i + 2);
		ck_assert_int_eq(sh_end(cl, seq, len, len + SH_BT, 0), 0);
		ck_assert_uint_eq(view_of(seq).nr_blocks, i + 1);
		len += SH_BT;
	}
	for (i = 0; i < 2 * PER_PAGE + 3; i++)
		ck_assert_uint_ne(sh_table(cl, seq, i), KVMM_NO_INDEX);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}
END_TEST

/* ---- fork ---- */

static const u32 fork_lens[] = { 1, PER_PAGE - 1, PER_PAGE, PER_PAGE + 1,
				 2 * PER_PAGE - 1, 2 * PER_PAGE };

START_TEST(test_fork_of_pages)
{
	u32 blocks = fork_lens[_i], i, n;
	u64 seq = long_seq(blocks, 0), kid[5];

	ck_assert_int_eq(sh_fork(cl, seq, 5, kid), 0);
	ck_assert_uint_eq(view_of(seq).nr_shared, blocks);
	for (n = 0; n < 5; n++) {
		ck_assert_uint_eq(view_of(kid[n]).nr_blocks, blocks);
		for (i = 0; i < blocks; i++)
			ck_assert_uint_eq(sh_table(cl, kid[n], i),
					  sh_table(cl, seq, i));
	}
	/* The forks grow and end as any other sequence. */
	sh_compute(cl, kid[0], blocks * SH_BT, blocks * SH_BT + 20, 9);
	for (n = 0; n < 5; n++)
		ck_assert_int_eq(sh_close(cl, kid[n]), 0);
	ck_assert_uint_eq(view_of(seq).nr_shared, 0);
	ck_assert_uint_eq(sh_pool().shared, 0);
}
END_TEST

/* Forks of a sequence that is shared already. */
START_TEST(test_fork_of_shared)
{
	u64 seq = long_seq(3, 4), kid[4];

	ck_assert_int_eq(sh_fork(cl, seq, 2, kid), 0);
	ck_assert_int_eq(sh_fork(cl, kid[0], 2, kid + 2), 0);
	ck_assert_uint_eq(sh_pool().shared, 4 * SH_BLOCK);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_int_eq(sh_close(cl, kid[0]), 0);
	ck_assert_int_eq(sh_close(cl, kid[2]), 0);
	ck_assert_uint_eq(sh_pool().shared, 4 * SH_BLOCK);
	ck_assert_int_eq(sh_close(cl, kid[3]), 0);
	ck_assert_uint_eq(sh_pool().shared, 0);
}
END_TEST

/* ---- pages run out ---- */

/* A client has three pages. */
static void setup_few(void)
{
	sh_config(16);
	sh.cfg.nr_tables = 3;
	sh_start();
	cl = sh_attach(1, "a");
}

/*
 * A sequence that waits for blocks holds up those after it, until its client
 * has no pages left for it: then those are tried, at once.  The sequence
 * regains its place when there are pages.
 */
START_TEST(test_lack_of_pages_holds_up_nobody)
{
	u64 seq = long_seq(20, 0), first, second, kid[2];
	u32 other = sh_attach(1, "a");

	first = sh_open(cl, 50 * SH_BT, 0);
	ck_assert_int_eq(sh_match(cl, first, 50 * SH_BT, 5000), 0);
	second = sh_open(other, 16 * SH_BT, 0);
	ck_assert_int_eq(sh_match(other, second, 16 * SH_BT, 9000), 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, kid), 0);
	sh_settle();
	ck_assert_uint_eq(sh_state(cl, first), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_state(other, second), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_fork(cl, seq, 1, kid + 1), 0);
	sh_settle();
	ck_assert_uint_eq(sh_state(cl, first), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_state(other, second), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_close(cl, kid[0]), 0);
	ck_assert_int_eq(sh_close(cl, kid[1]), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_int_eq(sh_close(other, second), 0);
	ck_assert_uint_eq(sh_state(cl, first), KVMM_SEQ_READY);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_share");
	TCase *tc = tcase_create("pages");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_page_seams);
	tcase_add_loop_test(tc, test_fork_of_pages, 0, ARRAY_SIZE(fork_lens));
	tcase_add_test(tc, test_fork_of_shared);
	suite_add_tcase(s, tc);
	tc = tcase_create("few");
	tcase_add_checked_fixture(tc, setup_few, teardown);
	tcase_add_test(tc, test_lack_of_pages_holds_up_nobody);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
