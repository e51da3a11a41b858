// SPDX-License-Identifier: Apache-2.0
/*
 * check_kvctl.c - the daemon's text as JSON, also text that no daemon writes
 *
 * kvctl.sh and it_kvctl.c test the text of a daemon.  This file has names that
 * look like numbers, bytes that are no UTF-8, and tables cut short; and the table
 * of explain for terminals of several sizes.
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
	/* One shard, or several. */
	ck_assert_str_eq(json_of("clients", "leader shard\n2 1\n0 0-1\n- 1\n"),
		"[{\"leader\":2,\"shard\":\"1\"},{\"leader\":0,\"shard\":\"0-1\"},"
		"{\"leader\":null,\"shard\":\"1\"}]");
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
	ck_assert_str_eq(json_of("domain/a/memory.max", "gpu0 max\ngpu1 max\n"),
			 "{\"gpu0\":\"max\",\"gpu1\":\"max\"}");
	ck_assert_str_eq(json_of("domain/a/memory.weight", "100\n"), "100");
	ck_assert_str_eq(json_of("client/1/seqs",
		"# begin 7\nseq gen family\n1 2 -\n# end 7\n"),
		"[{\"family\":null,\"gen\":2,\"seq\":1}]");
	ck_assert_str_eq(json_of("domain/a/groups", "group window\n0 0\n1 64\n"),
			 "[{\"group\":0,\"window\":0},{\"group\":1,\"window\":64}]");
	ck_assert_str_eq(json_of("client/1/leases",
		"seq number lost label\n1 0x0000000200000001 0 -\n2 0x3 16 7\n"),
		"[{\"label\":null,\"lost\":0,\"number\":\"0x0000000200000001\",\"seq\":1},"
		"{\"label\":\"7\",\"lost\":16,\"number\":\"0x3\",\"seq\":2}]");
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

/* ---- the table of explain ---- */

static json_t *explained(const char *seq, const char *state, const char *cause,
			 s64 ms, s64 lost)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:n, s:s, s:I, s:i, s:i, s:I, s:s, s:s}",
			 "Sequence", seq, "State", state, "Waits", cause, "Why",
			 "memory: all of it is in use, and no domain has to give it up",
			 "WaitsFor", "FirstWaits", strcmp(cause, "line") ? "-" : "growth",
			 "WaitsMs", (json_int_t)ms, "Ahead", 2, "NeedsBlocks", 14,
			 "Preempted", (json_int_t)lost, "LastCause",
			 "grow", "LastWhy", "room for a running sequence");
}

static json_t *some_sequences(void)
{
	json_t *all = json_array();

	json_array_append_new(all, explained("0/1", "ready", "nothing", 0, 1));
	json_array_append_new(all, explained("0/2", "waiting", "line", 850, 0));
	json_array_append_new(all, explained("1/3", "preempted", "memory", 842000, 3));
	json_array_append_new(all, explained("0/4", "ready", "nothing", 0, 7));
	json_array_append_new(all, explained("0/5", "waiting", "memory", 12345, 0));
	return all;
}

/* The table with @room lines of @cols columns; to be freed. */
static char *table(size_t room, int cols)
{
	json_t *all = some_sequences();
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	ck_assert_int_eq(kvctl_explain_table(out, all, 4, room, cols), 0);
	fclose(out);
	json_decref(all);
	return text;
}

/* The sequence that waited longest stands first; running ones stand last. */
START_TEST(test_explain_table)
{
	char *text = table(SIZE_MAX, 0);

	ck_assert_str_eq(text,
		"3 wait: 2 memory, 1 line; 4 run\n"
		"      SEQ  WAITED CAUSE    AHEAD NEEDS LOST  WHY\n"
		"      1/3  14m02s memory       2    14    3  memory: all of it is in use, and no domain has to give it up\n"
		"      0/5   12.3s memory       2    14    0  memory: all of it is in use, and no domain has to give it up\n"
		"      0/2   850ms line         2    14    0  its turn: the first in line waits for growth\n"
		"      0/4       - -            2    14    7  it runs; it lost its memory to room for a running sequence\n"
		"      0/1       - -            2    14    1  it runs; it lost its memory to room for a running sequence\n");
	free(text);
}
END_TEST

/* The words of @cause, as the table says them of a running sequence. */
static void ck_loss(const char *cause, const char *why, const char *want)
{
	json_t *all = json_array(), *row = explained("0/1", "ready", "nothing", 0, 1);
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	json_object_set_new(row, "LastCause", json_string(cause));
	json_object_set_new(row, "LastWhy", json_string(why));
	json_array_append_new(all, row);
	ck_assert_int_eq(kvctl_explain_table(out, all, 1, 9, 0), 0);
	fclose(out);
	json_decref(all);
	ck_assert_msg(strstr(text, want), "no '%s' in:\n%s", want, text);
	free(text);
}

/* Each cause makes a sentence, with the daemon's words. */
START_TEST(test_explain_loss)
{
	ck_loss("itself", "it needed room, and no sequence of lower rank could be preempted",
		"  it runs; it lost its memory: it needed room, and no sequence of lower rank could be preempted\n");
	ck_loss("advice", "its own program paged it out",
		"  it runs; it lost its memory: its own program paged it out\n");
	ck_loss("lost", "its swapped-out blocks could not be brought back",
		"  it runs; it lost its memory: its swapped-out blocks could not be brought back\n");
	ck_loss("device", "nothing: the memory was lost with the device",
		"  it runs; it lost its memory with the device\n");
	ck_loss("tenant", "a sequence of another tenant",
		"  it runs; it lost its memory to a sequence of another tenant\n");
}
END_TEST

/* A terminal gets lines that fit, and the number of those left out. */
START_TEST(test_explain_fits)
{
	char *text = table(2, 80), *line, *save = NULL;
	u32 nr = 0;

	ck_assert_ptr_nonnull(strstr(text, "in use, and n+\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n3 more are not shown: "));
	ck_assert_ptr_null(strstr(text, "0/2"));
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save), nr++)
		ck_assert_uint_le(strlen(line), 80);
	ck_assert_uint_eq(nr, 5);
	free(text);
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
	tcase_add_test(tc, test_explain_table);
	tcase_add_test(tc, test_explain_loss);
	tcase_add_test(tc, test_explain_fits);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
