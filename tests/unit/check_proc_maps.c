// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_maps.c - maps, smaps and smaps_rollup, as the kernel prints them
 *
 * A sequence of 40 tokens has two sealed blocks and an open one, of 16 tokens
 * and 4608 bytes; a fork shares all three.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/proc_fixture.h"

#include "kvmm/proc/internal.h"

#define BLOCK	4608

static u32 client;
static u64 seq;

static void setup(void)
{
	fx_setup();
	client = fx_attach(&fx, 1, "chat");
	seq = fx_prefill(&fx, client, 40, 1);
}

static u32 block_of(u32 at)
{
	const struct kv_seq *s = &fx.core->seqs[KVMM_SEQ_INDEX(seq)];

	return pte_block(table_pte(fx.core, &s->tab, at));
}

/* Read a file of the test's sequence by its id, whatever was opened first. */
static const char *ask_seq(const char *file)
{
	char path[64];

	snprintf(path, sizeof(path), "client/%u/seq/%u/%s", client,
		 KVMM_SEQ_INDEX(seq), file);
	return fx_cat(path);
}

/* Append a line in the format of the kernel, column for column. */
static void add_line(char *text, u32 from, u32 to, const char *perms, u32 block)
{
	char *line = text + strlen(text);
	int n = sprintf(line, "%08x-%08x %s %08x 00:00 0", from * BLOCK,
			to * BLOCK, perms, block * BLOCK);

	sprintf(line + n, "%*s[gpu0]\n", 73 - n, "");
}

START_TEST(test_maps)
{
	const u32 first = block_of(0);
	char want[512] = "";

	/* The blocks must be neighbours, or the test would not test runs. */
	ck_assert_uint_eq(block_of(1), first + 1);
	add_line(want, 0, 2, "r--p", first);
	add_line(want, 2, 3, "rw-p", block_of(2));
	ck_assert_str_eq(ask_seq("maps"), want);
	fx.core->blocks[first + 1].nr_map = 3;
	want[0] = '\0';
	add_line(want, 0, 1, "r--p", first);
	add_line(want, 1, 2, "r--s", first + 1);
	add_line(want, 2, 3, "rw-p", block_of(2));
	ck_assert_str_eq(ask_seq("maps"), want);
	fx.core->blocks[first + 1].nr_map = 1;
}
END_TEST

START_TEST(test_smaps)
{
	char want[1024] = "";

	add_line(want, 0, 2, "r--p", block_of(0));
	strcat(want,
	       "Size:                  9 kB\n"
	       "KernelPageSize:        4 kB\n"
	       "MMUPageSize:           4 kB\n"
	       "Rss:                   9 kB\n"
	       "Pss:                   9 kB\n"
	       "Shared_Clean:          0 kB\n"
	       "Shared_Dirty:          0 kB\n"
	       "Private_Clean:         9 kB\n"
	       "Private_Dirty:         0 kB\n"
	       "VmFlags: rd \n");
	add_line(want, 2, 3, "rw-p", block_of(2));
	strcat(want,
	       "Size:                  4 kB\n"
	       "KernelPageSize:        4 kB\n"
	       "MMUPageSize:           4 kB\n"
	       "Rss:                   4 kB\n"
	       "Pss:                   4 kB\n"
	       "Shared_Clean:          0 kB\n"
	       "Shared_Dirty:          0 kB\n"
	       "Private_Clean:         0 kB\n"
	       "Private_Dirty:         4 kB\n"
	       "VmFlags: rd wr \n");
	ck_assert_str_eq(ask_seq("smaps"), want);
}
END_TEST

/* Over all sequences; Pss counts a shared block once. */
START_TEST(test_rollup)
{
	const u32 first = block_of(0);
	char want[512];
	int n;

	n = sprintf(want, "00000000-%08x ---p 00000000 00:00 0", 6 * BLOCK);
	sprintf(want + n, "%*s[rollup]\n%s", 73 - n, "",
		"Rss:                  27 kB\n"
		"Pss:                  20 kB\n"
		"Shared_Clean:          4 kB\n"
		"Shared_Dirty:          4 kB\n"
		"Private_Clean:        13 kB\n"
		"Private_Dirty:         4 kB\n");
	fx_prefill(&fx, client, 40, 500);
	fx.core->blocks[first].nr_map = 4;
	fx.core->blocks[block_of(2)].nr_map = 4;
	ck_assert_str_eq(fx_cat("client/0/smaps_rollup"), want);
	fx.core->blocks[first].nr_map = 1;
	fx.core->blocks[block_of(2)].nr_map = 1;
}
END_TEST

/* A table longer than one copy takes, as one run and as many runs. */
START_TEST(test_long)
{
	const char *p, *text;
	u32 nr = 0, end, from, to, last = 0;

	seq = fx_prefill(&fx, client, 16 * 150, 1000);
	for (end = 0; end < 150; end += 2)
		fx.core->blocks[block_of(end)].nr_map = 2;
	text = ask_seq("maps");
	for (p = text; *p; p = strchr(p, '\n') + 1, nr++) {
		ck_assert_int_eq(sscanf(p, "%x-%x ", &from, &to), 2);
		ck_assert_uint_eq(from, last);
		last = to;
	}
	ck_assert_uint_eq(last, 150 * BLOCK);
	ck_assert_uint_ge(nr, 149);
	for (end = 0; end < 150; end += 2)
		fx.core->blocks[block_of(end)].nr_map = 1;
}
END_TEST

static const char * const nobody[] = {
	"client/0/seq/1/maps", "client/0/seq/00/maps", "client/0/seq/x/maps",
	"client/0/seq/600/maps", "client/0/seq/4294967296/maps",
	"client/0/seq//maps", "client/1/seq/0/maps", "client/0/seq/-0/smaps",
	"client/0/seq/0/none",
};

START_TEST(test_names)
{
	char req[64];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(nobody); i++) {
		snprintf(req, sizeof(req), "cat %s", nobody[i]);
		ck_assert_msg(fx_ask(req) == -ENOENT, "%s", req);
	}
	ck_assert_int_eq(fx_ask("ls client/0/seq"), 0);
	ck_assert_str_eq(seq_text(&fx.out), "0/\n");
	ck_assert_int_eq(fx_ask("ls client/0/seq/0"), 0);
	ck_assert_str_eq(seq_text(&fx.out), "maps\nsmaps\nexplain\n");
	fx_close(&fx, client, seq);
	ck_assert_int_eq(fx_ask("cat client/0/seq/0/maps"), -ENOENT);
	ck_assert_int_eq(fx_ask("ls client/0/seq"), 0);
	ck_assert_str_eq(seq_text(&fx.out), "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("proc-maps");
	TCase *tc = tcase_create("maps");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, fx_teardown);
	tcase_add_test(tc, test_maps);
	tcase_add_test(tc, test_smaps);
	tcase_add_test(tc, test_rollup);
	tcase_add_test(tc, test_long);
	tcase_add_test(tc, test_names);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
