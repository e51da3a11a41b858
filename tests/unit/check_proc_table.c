// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_table.c - long tables are copied in slices, and show it
 *
 * Before each slice but the first the source calls a hook of the test, which
 * executes requests between two slices.
 */
#include "tests/unit/proc_fixture.h"

#define LONG	550	/* sequences: more than two slices */

static u32 count_lines(const char *text)
{
	u32 nr = 0;

	for (; *text; text++)
		nr += *text == '\n';
	return nr;
}

static void begin_and_end(u64 *begin, u64 *end)
{
	const char *text = seq_text(&fx.out);
	const char *last = strstr(text, "\n# end ");

	ck_assert_int_eq(sscanf(text, "# begin %lu\n", begin), 1);
	ck_assert_ptr_nonnull(last);
	ck_assert_int_eq(sscanf(last, "\n# end %lu\n", end), 1);
	ck_assert_str_eq(strchr(last + 1, '\n'), "\n");
}

START_TEST(test_long_table_is_one_instant_when_nothing_happens)
{
	u32 a = fx_attach(&fx, 1, "chat");
	u64 begin, end;
	u32 i;

	for (i = 0; i < LONG; i++)
		fx_open(&fx, a, 10, 10);
	fx_cat("client/0/seqs");
	ck_assert_uint_ge(fx.nr_calls, 4);
	ck_assert_uint_eq(count_lines(seq_text(&fx.out)), LONG + 3);
	begin_and_end(&begin, &end);
	ck_assert_uint_eq(begin, end);
}
END_TEST

static void open_one_more(struct fx *f)
{
	struct kvmm_open_arg arg = { .prompt_len = 5, .max_tokens = 5 };
	struct kvmm_sqe sqe = { .op = KVMM_OP_SEQ_OPEN, .nr = 1 };
	struct kvmm_open_res res;

	fx_execute(f, 0, sqe, &arg, sizeof(arg), &res);
}

/* Requests between slices show in the numbers; no sequence is shown twice. */
START_TEST(test_long_table_tells_that_something_happened)
{
	u32 a = fx_attach(&fx, 1, "chat"), i, seq, last = 0, nr = 0;
	u64 begin, end;
	const char *line;

	for (i = 0; i < LONG; i++)
		fx_open(&fx, a, 10, 10);
	fx.between = open_one_more;
	fx_cat("client/0/seqs");
	begin_and_end(&begin, &end);
	ck_assert_uint_lt(begin, end);
	line = strchr(strchr(seq_text(&fx.out), '\n') + 1, '\n') + 1;
	for (; *line != '#'; line = strchr(line, '\n') + 1) {
		ck_assert_int_eq(sscanf(line, "%u", &seq), 1);
		ck_assert(!nr || seq > last);
		last = seq;
		nr++;
	}
	ck_assert_uint_ge(nr, LONG);
}
END_TEST

/* Open a sequence in the first pass over the extents. */
static void open_one_once(struct fx *f)
{
	if (f->nr_calls == 2)
		open_one_more(f);
}

/* 1024 extents are four slices; a disturbed pass is repeated. */
START_TEST(test_buddyinfo_is_one_instant_or_tries_again)
{
	static const char want[] =
		"Node 0, zone     gpu0 "
		"     0      0      0      0      0      0      0 "
		"     0      0      0      1 \n";

	fx_teardown();
	fx_setup_sized(1024);
	fx_attach(&fx, 1, "chat");
	ck_assert_str_eq(fx_cat("buddyinfo"), want);
	ck_assert_uint_eq(fx.nr_calls, 1 + 4);
	fx.between = open_one_once;
	ck_assert_str_eq(fx_cat("buddyinfo"), want);
	ck_assert_uint_eq(fx.nr_calls, 1 + 2 * 4);
	fx.between = open_one_more;
	ck_assert_str_eq(fx_cat("buddyinfo"), want);
	ck_assert_uint_eq(fx.nr_calls, 1 + 4 * 4);
}
END_TEST

/* A slice has fewer sequences if their tables are long, so its copy stays short. */
START_TEST(test_slices_are_short_where_tables_are_long)
{
	u32 a = fx_attach(&fx, 1, "chat"), nr = 64;
	u64 seq = fx_prefill(&fx, a, 2000, 100);
	struct kvmm_fork_arg arg = { .seq = seq, .nr_children = nr };
	struct kvmm_open_res res[64];

	ck_assert_int_eq(fx_request(&fx, a, KVMM_OP_SEQ_FORK, 0, &arg,
				    sizeof(arg), res), 0);
	ck_assert_int_eq(res[nr - 1].status, 0);
	/* 65 tables of 125 blocks: 33 a slice, then the empty records. */
	ck_assert_uint_eq(count_lines(fx_cat("client/0/seqs")), 65 + 3);
	ck_assert_uint_eq(fx.nr_calls, 1 + 1 + 3);
	ck_assert_ptr_nonnull(strstr(seq_text(&fx.out),
				     " 125     125 "));
}
END_TEST

/* Each client sees its own sequences and no others. */
START_TEST(test_seqs_of_one_client)
{
	u32 a = fx_attach(&fx, 1, "chat"), b = fx_attach(&fx, 1, "chat"), i;

	for (i = 0; i < 5; i++)
		fx_open(&fx, a, 10, 10);
	for (i = 0; i < 3; i++)
		fx_open(&fx, b, 10, 10);
	ck_assert_uint_eq(count_lines(fx_cat("client/0/seqs")), 5 + 3);
	ck_assert_uint_eq(count_lines(fx_cat("client/1/seqs")), 3 + 3);
}
END_TEST

static Suite *table_suite(void)
{
	Suite *s = suite_create("proc-table");
	TCase *tc = tcase_create("slices");

	tcase_set_tags(tc, "unit proc");
	tcase_add_checked_fixture(tc, fx_setup, fx_teardown);
	tcase_add_test(tc, test_long_table_is_one_instant_when_nothing_happens);
	tcase_add_test(tc, test_long_table_tells_that_something_happened);
	tcase_add_test(tc, test_buddyinfo_is_one_instant_or_tries_again);
	tcase_add_test(tc, test_slices_are_short_where_tables_are_long);
	tcase_add_test(tc, test_seqs_of_one_client);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(table_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
