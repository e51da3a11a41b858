// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_groups.c - files of a domain that has two layer groups
 *
 * Blocks of group 0 have 16 tokens.  Those of group 1 have 32 tokens, a window of 32,
 * and use half of the bytes of a block.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/proc_fixture.h"

#define BLOCK	4608

static u32 client;
static u64 seq;

/* 100 tokens: 7 blocks of group 0, 4 of group 1.  Tokens from 69 on are seen again. */
static void setup(void)
{
	fx_setup();
	client = fx_attach_groups(&fx, 1, "gemma");
	seq = fx_prefill(&fx, client, 100, 1);
}

START_TEST(test_groups)
{
	ck_assert_str_eq(fx_cat("domain/gemma/groups"),
		"group layers kv_heads  window tokens block_bytes padding_bytes   blocks\n"
		"    0      2        2       0     16        4608             0        7\n"
		"    1      1        1      32     32        4608          2304        2\n");
	ck_assert_ptr_nonnull(strstr(fx_cat("domain/gemma/status"),
				     "\nBlockTokens:\t16\nBlockBytes:\t4608\n"));
	/* Those behind the window are cache. */
	ck_assert_ptr_nonnull(strstr(fx_cat("domain/gemma/blockstates"), "\ncached 2\n"));
	fx_close(&fx, client, seq);
	ck_assert_ptr_nonnull(strstr(fx_cat("domain/gemma/groups"),
				     "         2304        0\n"));
}
END_TEST

/* A domain of one group has a line, too. */
START_TEST(test_one_group)
{
	fx_prefill(&fx, fx_attach(&fx, 1, "chat"), 40, 1);
	ck_assert_str_eq(fx_cat("domain/chat/groups"),
		"group layers kv_heads  window tokens block_bytes padding_bytes   blocks\n"
		"    0      2        2       0     16        4608             0        3\n");
}
END_TEST

/* Blocks behind the window are not mapped, and so not counted for the client. */
START_TEST(test_blocks_of_both_groups_count)
{
	ck_assert_ptr_nonnull(strstr(fx_cat("client/0/status"), "\nMappings:\t9\n"));
	ck_assert_ptr_nonnull(strstr(fx_cat("client/0/seqs"),
				     "      100      100       64       9       0 "));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("proc-groups");
	TCase *tc = tcase_create("groups");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, fx_teardown);
	tcase_add_test(tc, test_groups);
	tcase_add_test(tc, test_one_group);
	tcase_add_test(tc, test_blocks_of_both_groups_count);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
