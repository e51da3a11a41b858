// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_path.c - requests of clients: paths, names, errors
 *
 * The answer to every request is text, or one line with the name in question.
 */
#include "tests/unit/proc_fixture.h"

#include "kvmm/core/trace.h"

#include "kvmm/core/node/node.h"

/* The request fails with @err and its explanation begins with @why. */
static void refused(const char *req, int err, const char *why)
{
	const char *text;

	ck_assert_int_eq(fx_ask(req), err);
	text = seq_text(&fx.out);
	ck_assert_msg(!strncmp(text, why, strlen(why)),
		      "'%s': '%s' does not begin with '%s'", req, text, why);
	ck_assert_ptr_null(strchr(text, '\n'));
}

static const char * const unknown[] = {
	"memfree", "/memfree", "meminfo/", "meminfo//", "//meminfo",
	"../meminfo", "./meminfo", "domain/../meminfo", "meminfo/x", "Meminfo",
	"sys/vm/nothing", "sys//vm", "sys/vm/pool_bytes/", "client/7/status",
	"client/00/status", "client/+0/status", "client/0x0/status",
	"client/ID/status", "client/-1/status", "client//status",
	"domain/NAME/status", "domain/chat /status", "domain/cha/status",
	"domain/chatt/status", "domain//status", "domain/./status",
	"/etc/passwd", "meminfo meminfo", " meminfo", "meminfo ", "%s%s%s%n",
	"a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p", "*", "client/*/status",
	"client/4294967296/status",
};

START_TEST(test_unknown_path)
{
	char req[256], why[256];

	fx_attach(&fx, 1, "chat");
	snprintf(req, sizeof(req), "cat %s", unknown[_i]);
	snprintf(why, sizeof(why), "%s: no such file", unknown[_i]);
	refused(req, -ENOENT, why);
}
END_TEST

static const char * const no_dir[] = {
	"nothing", "//", "/..", "..", ".", "domain/nobody", "domain//",
	"client/3", "sys//", "sys/vm//", "domain/chat/..",
};

START_TEST(test_unknown_directory)
{
	char req[256], why[256];

	fx_attach(&fx, 1, "chat");
	snprintf(req, sizeof(req), "ls %s", no_dir[_i]);
	snprintf(why, sizeof(why), "%s: no such file", no_dir[_i]);
	refused(req, -ENOENT, why);
}
END_TEST

START_TEST(test_file_and_directory_are_not_mixed_up)
{
	fx_attach(&fx, 1, "chat");
	refused("cat domain", -EISDIR, "domain: is a directory");
	refused("cat domain/chat", -EISDIR, "domain/chat: is a directory");
	refused("cat client/0", -EISDIR, "client/0: is a directory");
	refused("cat sys/vm", -EISDIR, "sys/vm: is a directory");
	refused("cat /", -EISDIR, "/: is a directory");
	refused("ls meminfo", -ENOTDIR, "meminfo: is not a directory");
	refused("ls meminfo/", -ENOTDIR, "meminfo/: is not a directory");
	refused("ls domain/chat/status", -ENOTDIR, "domain/chat/status: is");
}
END_TEST

START_TEST(test_stat)
{
	static const struct {
		const char *req, *mode;
	} is[] = {
		{ "stat", "40555\n" }, { "stat /", "40555\n" },
		{ "stat meminfo", "100444\n" }, { "stat domain", "40555\n" },
		{ "stat domain/chat", "40555\n" },
		{ "stat domain/chat/", "40555\n" },
		{ "stat domain/chat/memory.max", "100644\n" },
		{ "stat client/0/seqs", "100444\n" },
		{ "stat client/0/leases", "100444\n" },
	};
	u32 i;

	fx_attach(&fx, 1, "chat");
	for (i = 0; i < ARRAY_SIZE(is); i++) {
		ck_assert_int_eq(fx_ask(is[i].req), 0);
		ck_assert_str_eq(seq_text(&fx.out), is[i].mode);
	}
	refused("stat domain/other", -ENOENT, "domain/other: no such file");
	refused("stat client/1/seqs", -ENOENT, "client/1/seqs: no such file");
	refused("stat nothing", -ENOENT, "nothing: no such file");
	/* The names of device pools are spelled in one way. */
	ck_assert_str_eq(fx_cat("pool/gpu0/size"), "1048576\n");
	refused("cat pool/gpu1/size", -ENOENT, "pool/gpu1/size: no such file");
	refused("cat pool/gpu/size", -ENOENT, "pool/gpu/size: no such file");
	refused("cat pool/gpu00/size", -ENOENT, "pool/gpu00/size: no such file");
	refused("cat pool/gpux/size", -ENOENT, "pool/gpux/size: no such file");
	refused("cat pool/GPU0/size", -ENOENT, "pool/GPU0/size: no such file");
}
END_TEST

static const char * const malformed[] = {
	"", "\n", "cat", "cat ", "meminfo", "check meminfo", "CAT meminfo",
	"lsmeminfo", "write meminfo 1", " cat meminfo", "ls ", "cat\tmeminfo",
	"cat mem\ninfo", "cat mem\x7finfo", "cat mem\xc3\xa9", "cat \x1b[2J",
	"cat meminfo\r\n", "cat meminfo\n\n",
};

START_TEST(test_malformed_request)
{
	refused(malformed[_i], -EINVAL, "want one line: cat PATH");
}
END_TEST

/* A NUL inside a request does not hide the text after it. */
START_TEST(test_nul_in_request)
{
	ck_assert_int_eq(proc_request(fx.proc, "cat uptime\0/../x", 16,
				      &fx.out), -EINVAL);
	ck_assert_int_eq(proc_request(fx.proc, "cat uptime\0", 11, &fx.out),
			 -EINVAL);
}
END_TEST

START_TEST(test_one_newline_is_allowed)
{
	ck_assert_int_eq(fx_ask("cat sys/vm/max_seqs\n"), 0);
	ck_assert_str_eq(seq_text(&fx.out), "600\n");
	ck_assert_int_eq(fx_ask("cat /sys/vm/max_seqs"), 0);
	ck_assert_str_eq(seq_text(&fx.out), "600\n");
}
END_TEST

/* Lengths around the limit of a request, and far beyond. */
START_TEST(test_long_request)
{
	static const size_t len[] = { 4095, 4096, 4097, 70000 };
	char *req = malloc(70001);
	u32 i;

	memset(req, 'a', 70001);
	memcpy(req, "cat ", 4);
	for (i = 0; i < ARRAY_SIZE(len); i++) {
		int err = proc_request(fx.proc, req, len[i], &fx.out);

		ck_assert_int_eq(err, len[i] < 4096 ? -ENOENT : -ENAMETOOLONG);
		ck_assert_uint_lt(fx.out.count, 200);
		if (err == -ENOENT)
			ck_assert_ptr_nonnull(strstr(seq_text(&fx.out),
						     "aaa...: no such"));
	}
	memset(req, '/', 70001);
	memcpy(req, "ls ", 3);
	ck_assert_int_eq(proc_request(fx.proc, req, 4000, &fx.out), -ENOENT);
	free(req);
}
END_TEST

/* ---- ls ---- */

static const char *ls(const char *path)
{
	char req[256];

	snprintf(req, sizeof(req), "ls %s", path);
	ck_assert_int_eq(fx_ask(*path ? req : "ls"), 0);
	return seq_text(&fx.out);
}

START_TEST(test_ls)
{
	static const char root[] =
		"version\nuptime\nstatus\nconfig\nmeminfo\npools\nvmstat\nzoneinfo\n"
		"buddyinfo\nblockmap\nextentinfo\nslabinfo\nprefixcache\nlru_gen\nswaps\n"
		"swapareas\n"
		"swapstat\nmetrics\nlast_oom\nkmsg\ntrace\nevents/\npool/\npressure/\ntenants\ndomains\ndomain/\n"
		"clients\nclient/\nsys/\n";

	ck_assert_str_eq(ls(""), root);
	ck_assert_str_eq(ls("/"), root);
	ck_assert_str_eq(ls("domain"), "");
	ck_assert_str_eq(ls("client/"), "");
	ck_assert_str_eq(ls("sys"), "vm/\n");
	fx_attach(&fx, 1, "chat");
	fx_attach(&fx, 1, "code");
	ck_assert_str_eq(ls("domain"), "chat/\ncode/\n");
	ck_assert_str_eq(ls("/client/"), "0/\n1/\n");
	ck_assert_str_eq(ls("client/1"), "status\nseqs\nleases\nsmaps_rollup\nseq/\n");
	ck_assert_str_eq(ls("domain/code/"),
			 "status\nblockstates\ngroups\nlru_gen\nmemory.min\n"
			 "memory.low\n"
			 "memory.high\nmemory.max\nmemory.weight\n"
			"memory.writethrough\n"
			 "memory.current\n"
			 "memory.peak\nmemory.capacity\nmemory.events\n"
			 "memory.pressure\nio.pressure\n");
}
END_TEST

static u32 nr_walked;

/* Read every file that ls names. */
static void walk(const char *dir)
{
	char *names = strdup(ls(dir)), *save = NULL, *name;

	for (name = strtok_r(names, "\n", &save); name;
	     name = strtok_r(NULL, "\n", &save)) {
		char path[512];
		size_t len = strlen(name);

		snprintf(path, sizeof(path), "%s%s", dir, name);
		if (name[len - 1] == '/') {
			walk(path);
			continue;
		}
		/* No event has happened that these files would report. */
		if (!strcmp(path, "last_oom") || !strcmp(path, "kmsg")) {
			ck_assert_str_eq(fx_cat(path), "");
			nr_walked++;
			continue;
		}
		ck_assert_uint_gt(strlen(fx_cat(path)), 0);
		ck_assert_int_eq(fx.out.buf[fx.out.count - 1], '\n');
		nr_walked++;
	}
	free(names);
}

/* Every listed file can be read, and no file is missing. */
START_TEST(test_every_listed_file_can_be_read)
{
	struct proc_entry e;
	u32 nr = 0;

	nr_walked = 0;
	fx_prefill(&fx, fx_attach(&fx, 1, "chat"), 40, 1);
	walk("");
	while (proc_get_entry(nr, &e))
		nr++;
	/* One entry stands for the files of all events, another one for four sizes. */
	ck_assert_uint_eq(nr_walked, nr - 2 + NR_CORE_TRACE + 4);
}
END_TEST

/* ---- names that clients chose ---- */

static const struct {
	const char *name;
	const char *shown;
} names[] = {
	{ "llama-3.1:8b", "llama-3.1:8b" },
	{ "a/b", "a\\057b" },
	{ "..", "\\056\\056" },
	{ ".", "\\056" },
	{ "..x", "\\056\\056x" },
	{ ".x.y", "\\056x\\056y" },
	{ "x.y", "x.y" },
	{ "two words", "two\\040words" },
	{ "x\n# end 5", "x\\012#\\040end\\0405" },
	{ "x\x1b[2J", "x\\033[2J" },
	{ "back\\slash", "back\\134slash" },
	{ "a@1", "a\\1001" },
	{ "NAME", "NAME" },
	{ "caf\xc3\xa9", "caf\\303\\251" },
};

START_TEST(test_name_is_one_word_and_one_component)
{
	char path[128], want[64];

	fx_attach(&fx, 1, names[_i].name);
	snprintf(want, sizeof(want), "%s/\n", names[_i].shown);
	ck_assert_str_eq(ls("domain"), want);
	snprintf(path, sizeof(path), "domain/%s/memory.max", names[_i].shown);
	ck_assert_str_eq(fx_cat(path), "gpu0 max\n");
	snprintf(want, sizeof(want), " %s\n", names[_i].shown);
	ck_assert_ptr_nonnull(strstr(fx_cat("domains"), want));
}
END_TEST

START_TEST(test_longest_name)
{
	char name[KVMM_NAME_LEN], path[512];
	u32 i;

	memset(name, '\x01', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	fx_attach(&fx, 1, name);
	strcpy(path, "domain/");
	for (i = 0; i < sizeof(name) - 1; i++)
		strcat(path, "\\001");
	strcat(path, "/memory.max");
	ck_assert_str_eq(fx_cat(path), "gpu0 max\n");
}
END_TEST

/* Two tenants may use one name: the files show both, with different names. */
START_TEST(test_one_name_of_two_tenants)
{
	u32 client;

	fx_attach(&fx, 1, "chat");
	ck_assert_int_eq(fx_try_attach(&fx, 2, "chat", 512000, &client), 0);
	ck_assert_str_eq(ls("domain"), "chat@0/\nchat@1/\n");
	ck_assert_str_eq(fx_cat("domain/chat@0/memory.max"), "gpu0 max\n");
	ck_assert_str_ne(fx_cat("domain/chat@1/memory.max"), "gpu0 max\n");
	refused("cat domain/chat/memory.max", -ENOENT, "domain/chat/");
	refused("cat domain/chat@2/memory.max", -ENOENT, "domain/chat@2/");
}
END_TEST

/* ---- failures of the source ---- */

START_TEST(test_source_that_cannot_be_asked)
{
	fx.call_error = -ESHUTDOWN;
	refused("cat meminfo", -ESHUTDOWN, "meminfo: ");
	refused("ls", -ESHUTDOWN, "kvmm: ");
	refused("check", -ESHUTDOWN, "kvmm: ");
	fx.call_error = 0;
	ck_assert_int_eq(fx_ask("cat meminfo"), 0);
}
END_TEST

/* The source dies in the middle of a long table: the answer is no half of a file. */
static void die_now(struct fx *f)
{
	f->call_error = -ESHUTDOWN;
}

START_TEST(test_source_that_dies_between_slices)
{
	u32 a = fx_attach(&fx, 1, "chat"), i;

	for (i = 0; i < 300; i++)
		fx_open(&fx, a, 10, 10);
	ck_assert_int_eq(fx_ask("cat client/0/seqs"), 0);
	fx.between = die_now;
	refused("cat client/0/seqs", -ESHUTDOWN, "client/0/seqs: ");
}
END_TEST

START_TEST(test_no_source_no_files)
{
	struct proc_source src = { .call = fx_call, .arg = &fx };

	fx.call_error = -ESHUTDOWN;
	ck_assert_ptr_null(proc_create(&src));
	ck_assert_int_eq(errno, ESHUTDOWN);
	proc_destroy(NULL);
}
END_TEST

START_TEST(test_text_longer_than_allowed)
{
	seq_free(&fx.out);
	seq_init(&fx.out, 256);
	refused("cat vmstat", -EOVERFLOW, "vmstat: text is longer than 256");
	ck_assert_int_eq(fx_ask("cat uptime"), 0);
}
END_TEST

START_TEST(test_check_says_ok)
{
	fx_prefill(&fx, fx_attach(&fx, 1, "chat"), 40, 1);
	ck_assert_int_eq(fx_ask("check"), 0);
	ck_assert_str_eq(seq_text(&fx.out), "ok\n");
}
END_TEST

/* A count that is off by one is found and reported. */
START_TEST(test_check_tells_the_fault)
{
	fx_prefill(&fx, fx_attach(&fx, 1, "chat"), 40, 1);
	fx.core->domains[0].dev.nr[BLK_SEALED]++;
	ck_assert_int_eq(fx_ask("check"), 0);
	ck_assert_ptr_nonnull(strstr(seq_text(&fx.out), " the first: "));
	ck_assert_int_eq(fx.out.buf[fx.out.count - 1], '\n');
}
END_TEST

/* ---- the first line of an answer ---- */

START_TEST(test_head_of_an_answer)
{
	char head[PROC_HEAD_MAX];
	int err;

	err = fx_ask("cat sys/vm/max_seqs");
	ck_assert_uint_eq(proc_answer_head(err, &fx.out, head), 5);
	ck_assert_str_eq(head, "ok 4\n");
	err = fx_ask("cat nothing");
	ck_assert_uint_eq(proc_answer_head(err, &fx.out, head), strlen(head));
	ck_assert_str_eq(head,
			 "error 2 nothing: no such file: run kvctl ls\n");
}
END_TEST

/* The head is one line that fits, however long the text is. */
START_TEST(test_head_is_bounded)
{
	char head[PROC_HEAD_MAX], longer[2 * PROC_HEAD_MAX];
	size_t len;

	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	seq_reset(&fx.out);
	seq_puts(&fx.out, longer);
	len = proc_answer_head(-EIO, &fx.out, head);
	ck_assert_uint_eq(len, strlen(head));
	ck_assert_uint_eq(len, PROC_HEAD_MAX - 1);
	ck_assert_str_eq(head + len - 4, "...\n");
	seq_reset(&fx.out);
	len = proc_answer_head(-EIO, &fx.out, head);
	ck_assert_str_eq(head, "error 5 Input/output error\n");
}
END_TEST

static Suite *proc_suite(void)
{
	Suite *s = suite_create("proc-path");
	TCase *tc = tcase_create("requests");

	tcase_set_tags(tc, "unit proc");
	tcase_add_checked_fixture(tc, fx_setup, fx_teardown);
	tcase_add_loop_test(tc, test_unknown_path, 0, ARRAY_SIZE(unknown));
	tcase_add_loop_test(tc, test_unknown_directory, 0, ARRAY_SIZE(no_dir));
	tcase_add_test(tc, test_file_and_directory_are_not_mixed_up);
	tcase_add_test(tc, test_stat);
	tcase_add_loop_test(tc, test_malformed_request, 0,
			    ARRAY_SIZE(malformed));
	tcase_add_test(tc, test_nul_in_request);
	tcase_add_test(tc, test_one_newline_is_allowed);
	tcase_add_test(tc, test_long_request);
	tcase_add_test(tc, test_ls);
	tcase_add_test(tc, test_every_listed_file_can_be_read);
	suite_add_tcase(s, tc);

	tc = tcase_create("names");
	tcase_set_tags(tc, "unit proc");
	tcase_add_checked_fixture(tc, fx_setup, fx_teardown);
	tcase_add_loop_test(tc, test_name_is_one_word_and_one_component, 0,
			    ARRAY_SIZE(names));
	tcase_add_test(tc, test_longest_name);
	tcase_add_test(tc, test_one_name_of_two_tenants);
	suite_add_tcase(s, tc);

	tc = tcase_create("failures");
	tcase_set_tags(tc, "unit proc");
	tcase_add_checked_fixture(tc, fx_setup, fx_teardown);
	tcase_add_test(tc, test_source_that_cannot_be_asked);
	tcase_add_test(tc, test_source_that_dies_between_slices);
	tcase_add_test(tc, test_no_source_no_files);
	tcase_add_test(tc, test_text_longer_than_allowed);
	tcase_add_test(tc, test_check_says_ok);
	tcase_add_test(tc, test_check_tells_the_fault);
	tcase_add_test(tc, test_head_of_an_answer);
	tcase_add_test(tc, test_head_is_bounded);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(proc_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
