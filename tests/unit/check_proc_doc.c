// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_doc.c - Documentation/proc.md agrees with the files
 *
 * Both ways: every documented name exists, and every name is documented.
 * Files, and keys that come from lists, are compared with their texts; keys and
 * columns of the other files are compared with the files' output.
 *
 * A table of the document is known by its heading, `### FILE`; a row of it is
 * `| `name` | text |`.
 */
#include "tests/unit/page.h"
#include "tests/unit/proc_fixture.h"

#include "kvmm/proc/internal.h"
#include "kvmm/proc/keys.h"

#define ROWS_MAX	128
#define CELL_MAX	160

struct row {
	char name[CELL_MAX];
	char text[CELL_MAX];
};

struct rows {
	u32		nr;
	struct row	row[ROWS_MAX];
};

static struct rows doc, real;
static char *page;

static void rows_add(struct rows *r, const char *name, const char *text)
{
	ck_assert_uint_lt(r->nr, ROWS_MAX);
	ck_assert_uint_lt(strlen(name), CELL_MAX);
	ck_assert_uint_lt(strlen(text), CELL_MAX);
	strcpy(r->row[r->nr].name, name);
	strcpy(r->row[r->nr].text, text);
	r->nr++;
}

static const struct row *rows_find(const struct rows *r, const char *name)
{
	u32 i;

	for (i = 0; i < r->nr; i++) {
		if (!strcmp(r->row[i].name, name))
			return &r->row[i];
	}
	return NULL;
}

/* Every name of @a is in @b, with the same text if @b has one. */
static void rows_within(const char *where, const struct rows *a,
			const struct rows *b, const char *what)
{
	const struct row *found;
	u32 i;

	for (i = 0; i < a->nr; i++) {
		found = rows_find(b, a->row[i].name);
		ck_assert_msg(found, "%s: `%s` %s", where, a->row[i].name,
			      what);
		if (!*found->text || !*a->row[i].text)
			continue;
		ck_assert_msg(!strcmp(found->text, a->row[i].text),
			      "%s: `%s`: '%s' is not '%s'", where,
			      a->row[i].name, a->row[i].text, found->text);
	}
}

static void compare(const char *where)
{
	ck_assert_uint_gt(real.nr, 0);
	rows_within(where, &doc, &real, "is documented, but not there");
	rows_within(where, &real, &doc, "is not documented");
	ck_assert_uint_eq(doc.nr, real.nr);
}

static void setup(void)
{
	page = page_read("proc.md");
	fx_setup();
}

static void teardown(void)
{
	fx_teardown();
	free(page);
}

/* Read the rows below the line @heading, up to the next heading. */
static void read_doc(const char *heading)
{
	char line[1024], want[128];
	const char *p, *end;
	bool inside = false;

	memset(&doc, 0, sizeof(doc));
	snprintf(want, sizeof(want), "%s\n", heading);
	for (p = page; *p; p = end + 1) {
		char name[CELL_MAX], text[1024];

		end = strchr(p, '\n');
		ck_assert_ptr_nonnull(end);
		snprintf(line, sizeof(line), "%.*s", (int)(end + 1 - p), p);
		if (line[0] == '#' && line[1] == '#') {
			inside = !strcmp(line, want);
			continue;
		}
		if (inside && sscanf(line, "| `%159[^`]` | %1000[^\n]", name,
				     text) == 2) {
			char *bar = strrchr(text, '|');

			ck_assert_ptr_nonnull(bar);
			/* The last cell may be empty. */
			text[max(bar - text, (ptrdiff_t)1) - 1] = '\0';
			rows_add(&doc, name, text);
		}
	}
	ck_assert_msg(doc.nr, "%s: no table", heading);
}

START_TEST(test_list_of_files)
{
	struct proc_entry e;
	char text[256];
	u32 i;

	read_doc("## The files");
	memset(&real, 0, sizeof(real));
	for (i = 0; proc_get_entry(i, &e); i++) {
		snprintf(text, sizeof(text), "%04o | %s", e.mode, e.text);
		rows_add(&real, e.path, text);
	}
	compare("the files");
}
END_TEST

/* Every file has a heading, and there is no other heading of that kind. */
START_TEST(test_every_file_has_its_section)
{
	struct proc_entry e;
	char heading[128], *p;
	u32 i, nr = 0, files = 0;

	for (i = 0; proc_get_entry(i, &e); i++) {
		if (!strncmp(e.path, "sys/vm/", 7))
			continue;
		files++;
		snprintf(heading, sizeof(heading), "\n### %s\n", e.path);
		ck_assert_msg(strstr(page, heading), "no section %s", e.path);
	}
	ck_assert_ptr_nonnull(strstr(page, "\n### sys/vm\n"));
	for (p = page; (p = strstr(p, "\n### ")); p++)
		nr++;
	ck_assert_uint_eq(nr, files + 1);
}
END_TEST

/*
 * Documentation/admin.md has a row for each tunable, and no others, that says
 * when to change it.
 */
START_TEST(test_tuning)
{
	char *admin = page_read("admin.md"), row[128];
	char *tuning = strstr(admin, "\n## Tuning\n"), *end;

	ck_assert_ptr_nonnull(tuning);
	end = strstr(tuning + 1, "\n## ");
	ck_assert_ptr_nonnull(end);
	*end = '\0';
#define x(type, name, opt, def, ...)					\
	snprintf(row, sizeof(row), "\n| `%s` | %s | ", #name, def);	\
	ck_assert_row(tuning, "admin.md", row);
	KVMM_TUNABLES(x)
#undef x
	ck_assert_uint_eq(page_count(tuning, "| `"), CORE_NR_TUNABLES);
	free(admin);
}
END_TEST

START_TEST(test_meminfo_texts)
{
	read_doc("### meminfo");
	memset(&real, 0, sizeof(real));
#define x(key, bytes, text) rows_add(&real, key, text);
	MEMINFO_TOTALS(x)
	MEMINFO_OVERLAYS(x)
	MEMINFO_TIERS(x)
#undef x
#define x(name, text) rows_add(&real, MEMINFO_KEY_##name, text);
	CORE_POOL_PARTS(x)
#undef x
	compare("meminfo");
}
END_TEST

START_TEST(test_vmstat_texts)
{
	char name[64];
	u32 i;

	read_doc("### vmstat");
	memset(&real, 0, sizeof(real));
#define x(name, value, text) rows_add(&real, #name, text);
	VMSTAT_NOW(x)
#undef x
#define x(name, text) rows_add(&real, #name, text);
	CORE_EVENTS(x)
#undef x
	for (i = 0; i < PROC_BLOCK_STATES; i++) {
		snprintf(name, sizeof(name), "nr_blocks_%s",
			 core_block_state_name(i));
		rows_add(&real, name, "");
	}
	compare("vmstat");
}
END_TEST

START_TEST(test_prefixcache_texts)
{
	read_doc("### prefixcache");
	memset(&real, 0, sizeof(real));
#define x(key, bytes, text) rows_add(&real, key, text);
	PREFIXCACHE_SIZES(x)
#undef x
#define x(key, name) rows_add(&real, key, "`" #name "` of vmstat");
	PREFIXCACHE_COUNTS(x)
#undef x
	compare("prefixcache");
}
END_TEST

START_TEST(test_swap_texts)
{
	read_doc("### swapstat");
	memset(&real, 0, sizeof(real));
#define x(name, text) rows_add(&real, #name, text);
	PROC_SWAP_NOW(x)
	PROC_SWAP_COUNTERS(x)
	PROC_COPIER_COUNTERS(x)
#undef x
#define x(name, text) rows_add(&real, "swapd_" #name, text);
	SWAPD_COUNTERS(x)
#undef x
	compare("swapstat");
}
END_TEST

/* The table below @heading has the rows of the list, among others. */
static void compare_within(const char *heading)
{
	read_doc(heading);
	rows_within(heading, &real, &doc, "is not documented");
}

START_TEST(test_trace_texts)
{
	char text[1024];

	memset(&real, 0, sizeof(real));
#define f(name) " `" #name "`"
#define x(name, what, fields)						\
	snprintf(text, sizeof(text), "%s:%s", what, "" fields);		\
	rows_add(&real, #name, text);
	CORE_TRACE_EVENTS(x, f)
#undef x
#undef f
#define x(name, kind, what) rows_add(&real, #name, what);
	CORE_TRACE_FIELDS(x)
#undef x
	read_doc("### trace");
	compare("trace");
}
END_TEST

START_TEST(test_oom_texts)
{
	memset(&real, 0, sizeof(real));
#define x(name, what) rows_add(&real, #name, what);
	CORE_OOM_OUTCOMES(x)
	CORE_OOM_WHYS(x)
#undef x
	compare_within("### last_oom");
	ck_assert_uint_eq(doc.nr, real.nr + 18);	/* the list and the columns */
}
END_TEST

START_TEST(test_blockmap_texts)
{
	memset(&real, 0, sizeof(real));
#define x(letter, state) rows_add(&real, letter, state);
	BLOCKMAP_LETTERS(x)
#undef x
	compare_within("### blockmap");
	ck_assert_uint_eq(doc.nr, real.nr + 5);
}
END_TEST

/* The output of a file: its columns, or the keys of its lines. */
static const struct {
	const char	*heading;
	const char	*path;
	bool		table;
} printed[] = {
	{ "### status",			"status",		false },
	{ "### meminfo",		"meminfo",		false },
	{ "### vmstat",			"vmstat",		false },
	{ "### zoneinfo",		"zoneinfo",		false },
	{ "### prefixcache",		"prefixcache",		false },
	{ "### lru_gen",		"lru_gen",		true },
	{ "### swapstat",		"swapstat",		false },
	{ "### swaps",			"swaps",		true },
	{ "### swapareas",		"swapareas",		true },
	{ "### domain/NAME/status",	"domain/chat/status",	false },
	{ "### domain/NAME/blockstates", "domain/chat/blockstates", false },
	{ "### domain/NAME/groups",	"domain/chat/groups",	true },
	{ "### domain/NAME/lru_gen",	"domain/chat/lru_gen",	true },
	{ "### domain/NAME/memory.events", "domain/chat/memory.events", false },
	{ "### client/ID/status",	"client/0/status",	false },
	{ "### extentinfo",		"extentinfo",		true },
	{ "### pool/POOL/shrink/SIZE",	"pool/gpu0/shrink/512K", true },
	{ "### domains",		"domains",		true },
	{ "### clients",		"clients",		true },
	{ "### client/ID/seqs",		"client/0/seqs",	true },
	{ "### client/ID/leases",	"client/0/leases",	true },
};

/* `Key:  value`, `name value` and `  two words value`, without the value. */
static void read_keys(char *text)
{
	char *save = NULL, *line, *cut;

	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (!strncmp(line, "Node ", 5))
			continue;
		line += strspn(line, " ");
		cut = strchr(line, ':');
		if (!cut)
			cut = strrchr(line, ' ');
		if (cut)
			*cut = '\0';
		while (cut && cut > line && cut[-1] == ' ')
			*--cut = '\0';
		rows_add(&real, line, "");
	}
}

static void read_columns(char *text)
{
	char *save = NULL, *word;

	if (*text == '#')
		text = strchr(text, '\n') + 1;
	*strchr(text, '\n') = '\0';
	for (word = strtok_r(text, " \t", &save); word;
	     word = strtok_r(NULL, " \t", &save))
		rows_add(&real, word, "");
}

START_TEST(test_what_is_printed)
{
	char *text;

	fx_prefill(&fx, fx_attach(&fx, 1, "chat"), 40, 1);
	read_doc(printed[_i].heading);
	memset(&real, 0, sizeof(real));
	text = strdup(fx_cat(printed[_i].path));
	if (printed[_i].table)
		read_columns(text);
	else
		read_keys(text);
	free(text);
	compare(printed[_i].path);
}
END_TEST

/* The lines of a domain that only one with several shards has. */
START_TEST(test_shards_are_told)
{
	struct kvmm_attach_req req;
	char *text;
	u32 client;

	fx_teardown();
	fx_setup_pools(4, 4, 0, 0);
	fx_attach_req(&req, "chat");
	req.nr_shards = 2;
	ck_assert_int_eq(fx_attach_as(&fx, 1, &req, &client), 0);
	memset(&real, 0, sizeof(real));
	text = strdup(fx_cat("domain/chat/status"));
	read_keys(text);
	free(text);
	read_doc("#### With several shards");
	rows_within("shards", &doc, &real, "is documented, but not there");
	ck_assert_uint_eq(doc.nr, 2);
	read_doc("### domain/NAME/status");
	ck_assert_uint_eq(real.nr, doc.nr + 2);
}
END_TEST

static Suite *doc_suite(void)
{
	Suite *s = suite_create("proc-doc");
	TCase *tc = tcase_create("both-ways");

	tcase_set_tags(tc, "unit proc doc");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_list_of_files);
	tcase_add_test(tc, test_every_file_has_its_section);
	tcase_add_test(tc, test_tuning);
	tcase_add_test(tc, test_meminfo_texts);
	tcase_add_test(tc, test_vmstat_texts);
	tcase_add_test(tc, test_prefixcache_texts);
	tcase_add_test(tc, test_swap_texts);
	tcase_add_test(tc, test_trace_texts);
	tcase_add_test(tc, test_oom_texts);
	tcase_add_test(tc, test_blockmap_texts);
	tcase_add_loop_test(tc, test_what_is_printed, 0, ARRAY_SIZE(printed));
	tcase_add_test(tc, test_shards_are_told);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(doc_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
