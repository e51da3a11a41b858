// SPDX-License-Identifier: Apache-2.0
/*
 * check_kvctl.c - the daemon's text as JSON, also text that no daemon writes
 *
 * kvctl.sh and it_kvctl.c test the text of a daemon.  This file has names that
 * look like numbers, bytes that are no UTF-8, and tables cut short.
 */
#include <check.h>
#include <stdlib.h>

#include "kvmm/tools/kvctl.h"

static struct seq_file m;

static void setup(void)
{
	seq_init(&m, 1 << 20);
}

static void teardown(void)
{
	seq_free(&m);
}

/* @v as one line of JSON, keys in order; frees @v. */
static const char *dumped(json_t *v)
{
	static char text[4096];
	char *s = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY |
			     JSON_SORT_KEYS | JSON_ENSURE_ASCII);

	ck_assert_ptr_nonnull(s);
	snprintf(text, sizeof(text), "%s", s);
	free(s);
	json_decref(v);
	return text;
}

static const char *json_of(const char *path, const char *text)
{
	seq_reset(&m);
	seq_puts(&m, text);
	return dumped(kvctl_json(path, &m));
}

/* A name cannot change the type of its value. */
START_TEST(test_names)
{
	ck_assert_str_eq(json_of("domains", "id max_kb name\n0 max 42\n1 7 -\n"),
		"[{\"id\":0,\"max_kb\":\"max\",\"name\":\"42\"},"
		"{\"id\":1,\"max_kb\":7,\"name\":\"-\"}]");
	ck_assert_str_eq(json_of("/clients", "id comm\n3 -\n4 1e5\n5 a\\040\"b\n"),
		"[{\"comm\":null,\"id\":3},{\"comm\":\"1e5\",\"id\":4},"
		"{\"comm\":\"a\\\\040\\\"b\",\"id\":5}]");
	ck_assert_str_eq(json_of("status", "Epoch:\t1234\nPid:\t5\nTenant:\t7\n"),
		"{\"Epoch\":\"1234\",\"Pid\":5,\"Tenant\":\"7\"}");
	ck_assert_str_eq(json_of("client/0/seq/1/explain",
				 "Ahead:\t0\nLastBy:\t-\nWaitsFor:\t9\n"),
		"{\"Ahead\":0,\"LastBy\":null,\"WaitsFor\":\"9\"}");
}
END_TEST

START_TEST(test_forms)
{
	ck_assert_str_eq(json_of("meminfo", "GpuTotal:    4096 kB\n"),
			 "{\"GpuTotal_kb\":4096}");
	ck_assert_str_eq(json_of("vmstat", "nr_seqs 3\npgfree 9\n"),
			 "{\"nr_seqs\":3,\"pgfree\":9}");
	ck_assert_str_eq(json_of("pressure/memory",
		"some avg10=0.25 total=12\nfull avg10=0.00 total=0\n"),
		"{\"full\":{\"avg10\":0.0,\"total\":0},"
		"\"some\":{\"avg10\":0.25,\"total\":12}}");
	ck_assert_str_eq(json_of("domain/a/memory.max", "gpu0 max\n"),
			 "{\"gpu0\":\"max\"}");
	ck_assert_str_eq(json_of("domain/a/memory.weight", "100\n"), "100");
	ck_assert_str_eq(json_of("client/1/seqs",
		"# begin 7\nseq gen family\n1 2 -\n# end 7\n"),
		"[{\"family\":null,\"gen\":2,\"seq\":1}]");
	/* An unknown file becomes one string. */
	ck_assert_str_eq(json_of("something/new", "a 1\nb 2\n"),
			 "\"a 1\\nb 2\\n\"");
	ck_assert_str_eq(json_of("client/1/2/status", "Id:\t1\n"),
			 "\"Id:\\t1\\n\"");
}
END_TEST

START_TEST(test_garbage)
{
	ck_assert_str_eq(json_of("domains", ""), "[]");
	ck_assert_str_eq(json_of("domains", "id name\n"), "[]");
	ck_assert_str_eq(json_of("domains", "id name\n1\n\n2 b c d\n"),
			 "[{\"id\":1},{},{\"id\":2,\"name\":\"b\"}]");
	ck_assert_str_eq(json_of("status", "nothing\nId:\n"), "{\"Id\":\"\"}");
	/* A byte that is no UTF-8 is escaped as the daemon escapes it. */
	ck_assert_str_eq(json_of("domains", "id name\n1 a\xff\n"),
			 "[{\"id\":1,\"name\":\"a\\\\377\"}]");
	ck_assert_str_eq(dumped(kvctl_json_string("\xc3\xa4\xc3", 3)),
			 "\"\\\\303\\\\244\\\\303\"");
	ck_assert_str_eq(json_of("sys/vm/x", "99999999999999999999\n"),
			 "1e20");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kvctl");
	TCase *tc = tcase_create("json");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_names);
	tcase_add_test(tc, test_forms);
	tcase_add_test(tc, test_garbage);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
