// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_groups.c - files of a domain that has two layer groups
 *
 * Blocks of group 0 have 16 tokens.  Those of group 1 have 32 tokens, a window of 32,
 * and use half of the bytes of a block.
 */
#include "kvmm/core/node/node.h"
#include "kvmm/core/runs.h"
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
		"group  kind layers kv_heads  window tokens block_bytes padding_bytes record   blocks\n"
		"    0    kv      2        2       0     16        4608             0      1        7\n"
		"    1    kv      1        1      32     32        4608          2304      1        2\n");
	ck_assert_ptr_nonnull(strstr(fx_cat("domain/gemma/status"),
				     "\nPool:\tgpu0\nBlockTokens:\t16\nBlockBytes:\t4608\n"));
	/* Those behind the window are cache. */
	ck_assert_ptr_nonnull(strstr(fx_cat("domain/gemma/blockstates"), "\ncached 2\n"));
	fx_close(&fx, client, seq);
	ck_assert_ptr_nonnull(strstr(fx_cat("domain/gemma/groups"),
				     "         2304      1        0\n"));
}
END_TEST

/* A domain of one group has a line, too. */
START_TEST(test_one_group)
{
	fx_prefill(&fx, fx_attach(&fx, 1, "chat"), 40, 1);
	ck_assert_str_eq(fx_cat("domain/chat/groups"),
		"group  kind layers kv_heads  window tokens block_bytes padding_bytes record   blocks\n"
		"    0    kv      2        2       0     16        4608             0      1        3\n");
}
END_TEST

/* 100 tokens behind which a record of three blocks is held. */
START_TEST(test_records)
{
	struct kvmm_attach_req req;
	u32 id;

	fx_attach_req(&req, "granite");
	req.nr_groups = 2;
	/* Two of five units of 2,000 bytes fit a block. */
	req.group[1] = (struct kvmm_group){
		.kind = KVMM_GROUP_STATE, .layers = 5, .kv_heads = 1, .k_bytes = 2000,
	};
	ck_assert_int_eq(fx_attach_as(&fx, 1, &req, &id), 0);
	fx_prefill(&fx, id, 100, 1);
	ck_assert_str_eq(fx_cat("domain/granite/groups"),
		"group  kind layers kv_heads  window tokens block_bytes padding_bytes record   blocks\n"
		"    0    kv      2        2       0     16        4608             0      1        7\n"
		"    1 state      5        1       0     16        4608          1275      3        3\n");
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

/* Of group 0 all 7 blocks; of group 1 a window before a step, and a step of as much. */
START_TEST(test_explain)
{
	char path[64];
	u32 i = 0;

	/* The first that finds no memory waits. */
	do {
		seq = fx_open(&fx, client, 100, 64);
		fx_match(&fx, client, seq, 100, 1000 * ++i);
		ck_assert_uint_lt(i, 64);
	} while (fx.client[client].seqs[KVMM_SEQ_INDEX(seq)].state == KVMM_SEQ_READY);
	snprintf(path, sizeof(path), "client/%u/seq/%u/explain", client,
		 KVMM_SEQ_INDEX(seq));
	ck_assert_msg(strstr(fx_cat(path), "\nNeedsBlocks:\t10\n"), "%s",
		      seq_text(&fx.out));
}
END_TEST

static u32 block_of(u32 group, u32 at)
{
	const struct kv_seq *s = &fx.core->seqs[KVMM_SEQ_INDEX(seq)];

	return pte_block(table_pte(fx.core, seq_tab(fx.core, s, group), at));
}

/* Append a line of maps, column for column. */
static void add_line(char *text, u64 from, u64 to, u32 group, const char *perms,
		     u32 block, const char *name)
{
	const u64 base = (u64)group << 48;
	char *line = text + strlen(text);
	int n = sprintf(line, "%08llx-%08llx %s %08x 00:00 0",
			(unsigned long long)(base + from * BLOCK),
			(unsigned long long)(base + to * BLOCK), perms, block * BLOCK);

	sprintf(line + n, "%*s[%s:group%u]\n", 73 - n, "", name, group);
}

static const char *maps(void)
{
	char path[64];

	snprintf(path, sizeof(path), "client/%u/seq/%u/maps", client,
		 KVMM_SEQ_INDEX(seq));
	return fx_cat(path);
}

/* The regions of the groups follow each other; the second begins with its window. */
START_TEST(test_maps)
{
	char want[1024] = "";
	u32 i;

	for (i = 1; i < 6; i++)
		ck_assert_uint_eq(block_of(0, i), block_of(0, 0) + i);
	add_line(want, 0, 6, 0, "r--p", block_of(0, 0), "gpu0");
	add_line(want, 6, 7, 0, "rw-p", block_of(0, 6), "gpu0");
	add_line(want, 0, 2, 1, "---p", 0, "trimmed");
	add_line(want, 2, 3, 1, "r--p", block_of(1, 2), "gpu0");
	add_line(want, 3, 4, 1, "rw-p", block_of(1, 3), "gpu0");
	ck_assert_str_eq(maps(), want);
}
END_TEST

/* Blocks behind the window have addresses and no memory. */
START_TEST(test_rollup)
{
	char want[256];
	int n = sprintf(want, "00000000-%08x ---p 00000000 00:00 0", 11 * BLOCK);

	sprintf(want + n, "%*s[rollup]\nRss:                  40 kB\n", 73 - n, "");
	ck_assert_msg(!strncmp(fx_cat("client/0/smaps_rollup"), want, strlen(want)), "%s",
		      seq_text(&fx.out));
}
END_TEST

/* Group 0 grows between two slices: the reader goes on at its place in group 1. */
START_TEST(test_table_that_grows)
{
	const u32 rec = KVMM_SEQ_INDEX(seq);
	struct core_run run[8];
	u32 at = 0;

	ck_assert_int_eq(core_get_runs(fx.core, rec, &at, 8, run, 8), 3);
	ck_assert_uint_eq(run[2].group, 1);
	ck_assert_uint_eq(run[2].at, 0);
	fx_end(&fx, client, fx_begin(&fx, client, seq, 28), seq, 28, 1);
	ck_assert_uint_eq(fx.core->seqs[rec].tab.nr_blocks, 8);
	ck_assert_int_eq(core_get_runs(fx.core, rec, &at, 8, run, 8), 2);
	ck_assert_uint_eq(run[0].group, 1);
	ck_assert_uint_eq(run[0].at, 1);
	ck_assert_uint_eq(run[0].nr, 2);
	ck_assert_uint_eq(run[0].block, CORE_NONE);
	ck_assert_uint_eq(run[1].at, 3);
	ck_assert_int_eq(core_get_runs(fx.core, rec, &at, 8, run, 8), 0);
}
END_TEST

/* The cache of two prompts fills one span and part of another, which a pool of one loses. */
START_TEST(test_lost_tokens)
{
	u64 a = fx_prefill(&fx, client, 640, 1000), b = fx_prefill(&fx, client, 640, 5000);
	u32 kb, blocks, tokens;
	const char *p;

	fx_close(&fx, client, a);
	fx_close(&fx, client, b);
	p = strstr(fx_cat("pool/gpu0/shrink/320K"), " ok ");
	ck_assert_ptr_nonnull(p);
	ck_assert_int_eq(sscanf(p, " ok %u %u", &kb, &tokens), 2);
	blocks = DIV_ROUND_UP(kb << 10, BLOCK);
	ck_assert_uint_ge(blocks, 30);
	/* 32 tokens have two blocks of group 0 and one of group 1. */
	ck_assert_uint_eq(tokens, blocks * 32 / 3);
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
	tcase_add_test(tc, test_records);
	tcase_add_test(tc, test_blocks_of_both_groups_count);
	tcase_add_test(tc, test_explain);
	tcase_add_test(tc, test_lost_tokens);
	tcase_add_test(tc, test_maps);
	tcase_add_test(tc, test_rollup);
	tcase_add_test(tc, test_table_that_grows);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
