// SPDX-License-Identifier: Apache-2.0
/* Options: one list gives the structure, the parser and the help. */
#include <check.h>
#include <stdlib.h>

#include <kvmm/addr.h>
#include <kvmm/list.h>
#include <kvmm/opts.h>

#define TEST_OPTS(x)							\
	x(str, path, "path", NULL, 0, 0, "PATH", "where it is")		\
	x(size, room, "room", "64M", 4096, 1ull << 40, "SIZE", "bytes")	\
	x(amount, part, "part", "10%", 4096, 1ull << 40, "SIZE", "how much") \
	x(uint, nr, "nr", "3", 1, 100, "N", "how many")			\
	x(flag, loud, "loud", NULL, 0, 0, NULL, "say more")		\
	x(choice, how, "how", "fast", 0, 0, "exact|fast", "numeric mode")

struct test_opts {
#define x OPT_FIELD
	TEST_OPTS(x)
#undef x
};

static const struct kv_opt table[] = {
#define x(...) OPT_ENTRY(struct test_opts, __VA_ARGS__)
	TEST_OPTS(x)
#undef x
};

static const struct kv_exit exits[] = { { 64, "a wrong option" } };

static const struct kv_foreign foreign[] = {
	{ "borrow", "not here: give --room" },
};

static struct kv_program prog = {
	.name = "prog", .operands = "[FILE]...", .about = "Tests options.",
	.opts = table, .nr_opts = ARRAY_SIZE(table),
	.exits = exits, .nr_exits = ARRAY_SIZE(exits),
	.foreign = foreign, .nr_foreign = ARRAY_SIZE(foreign),
};

static struct test_opts o;
static char text[200];

/* Parse a line of words. */
static int parse(const char *line)
{
	static char copy[512], *argv[32];
	char *w;
	int n = 0;

	snprintf(copy, sizeof(copy), "prog %s", line);
	for (w = strtok(copy, " "); w; w = strtok(NULL, " "))
		argv[n++] = w;
	argv[n] = NULL;
	text[0] = '\0';
	return kv_opts_parse(&prog, &o, n, argv, text, sizeof(text));
}

START_TEST(test_defaults)
{
	ck_assert_int_eq(parse(""), 0);
	ck_assert_ptr_null(o.path);
	ck_assert_uint_eq(o.room, 64ull << 20);
	ck_assert_uint_eq(o.nr, 3);
	ck_assert(!o.loud);
	ck_assert_uint_eq(o.how, 1);
}
END_TEST

START_TEST(test_values)
{
	ck_assert_int_eq(parse("--path /a --room=2G --nr 7 --loud --how exact"),
			 0);
	ck_assert_str_eq(o.path, "/a");
	ck_assert_uint_eq(o.room, 2ull << 30);
	ck_assert_uint_eq(o.nr, 7);
	ck_assert(o.loud);
	ck_assert_uint_eq(o.how, 0);
}
END_TEST

/* An amount is bytes, a share, or the program's default rule; the last one counts. */
START_TEST(test_amounts)
{
	ck_assert_int_eq(parse(""), 0);
	ck_assert_int_eq(o.part.unit, KV_AMOUNT_PERCENT);
	ck_assert_uint_eq(o.part.value, 10);
	ck_assert_int_eq(parse("--part 100%"), 0);
	ck_assert_uint_eq(o.part.value, 100);
	ck_assert_int_eq(parse("--part auto"), 0);
	ck_assert_int_eq(o.part.unit, KV_AMOUNT_AUTO);
	ck_assert_uint_eq(o.part.value, 0);
	ck_assert_int_eq(parse("--part auto --part=3M"), 0);
	ck_assert_int_eq(o.part.unit, KV_AMOUNT_BYTES);
	ck_assert_uint_eq(o.part.value, 3ull << 20);
}
END_TEST

START_TEST(test_operands_move_to_front)
{
	static char *argv[] = { (char *)"prog", (char *)"a", (char *)"--loud",
				(char *)"b", (char *)"--", (char *)"--nr",
				NULL };

	ck_assert_int_eq(kv_opts_parse(&prog, &o, 6, argv, text, sizeof(text)),
			 3);
	ck_assert_str_eq(argv[0], "a");
	ck_assert_str_eq(argv[1], "b");
	ck_assert_str_eq(argv[2], "--nr");
	ck_assert_ptr_null(argv[3]);
	ck_assert(o.loud);
}
END_TEST

START_TEST(test_operand_refused)
{
	prog.operands = NULL;
	ck_assert_int_eq(parse("x"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(text, "'x'"));
	prog.operands = "[FILE]...";
}
END_TEST

/* Wrong lines, each with a part of its message. */
static const struct {
	const char *line;
	const char *says;
} wrong[] = {
	{ "--what",		"unknown option --what: see prog --help" },
	{ "--pat /a",		"unknown option --pat: did you mean --path?" },
	{ "--rooms=64M",	"unknown option --rooms: did you mean --room?" },
	{ "--hlep",		"unknown option --hlep: did you mean --help?" },
	{ "--x",		"unknown option --x: see prog --help" },
	{ "--=3",		"unknown option --: see prog --help" },
	{ "--borrow 3",		"unknown option --borrow: not here: give --room" },
	{ "--borro 3",		"unknown option --borro: see prog --help" },
	{ "--room",		"--room wants a value" },
	{ "--room 12Q",		"--room: '12Q' is not a valid size: write 64K, 256M, 60GiB" },
	{ "--room -1",		"'-1'" },
	{ "--room M",		"'M'" },
	{ "--room=",		"''" },
	{ "--room 1K",		"4K to 1T" },
	{ "--room 2T",		"out of range" },
	{ "--room 99999999999999999999", "out of range" },
	{ "--room 18014398509481984K", "out of range" },
	{ "--part 0%",		"1% to 100%" },
	{ "--part 101%",	"4K to 1T, or 1% to 100%" },
	{ "--part -5%",		"'-5%' is not a valid size" },
	{ "--part 5.5%",	"write 64K, 256M, 60GiB, a share of memory as 25%, or auto" },
	{ "--part 5%%",		"'5%%'" },
	{ "--part %",		"'%'" },
	{ "--part 5M%",		"'5M%'" },
	{ "--part AUTO",	"or auto" },
	{ "--part auto%",	"'auto%'" },
	{ "--part 18446744073709551617%", "out of range" },
	{ "--part 00000000000000000000000000005%", "out of range" },
	{ "--part 0",		"4K to 1T" },
	{ "--part 1K",		"4K to 1T" },
	{ "--part 18014398509481984K", "out of range" },
	{ "--part -1",		"'-1'" },
	{ "--part",		"--part wants a value" },
	{ "--nr 0",		"1 to 100" },
	{ "--nr 4294967297",	"out of range" },
	{ "--nr 0x10",		"'0x10' is not a valid number" },
	{ "--nr 1.5",		"'1.5'" },
	{ "--loud=yes",		"takes no value" },
	{ "--how faster",	"exact|fast" },
	{ "--how exac",		"exact|fast" },
	{ "--how=",		"exact|fast" },
};

START_TEST(test_wrong)
{
	ck_assert_int_eq(parse(wrong[_i].line), -EINVAL);
	ck_assert_msg(strstr(text, wrong[_i].says) != NULL, "%s: says '%s'",
		      wrong[_i].line, text);
	ck_assert_ptr_null(strchr(text, '\n'));
}
END_TEST

START_TEST(test_help_names_all)
{
	char *out = NULL;
	size_t len = 0, line = 0, i;
	FILE *f = open_memstream(&out, &len);

	kv_opts_help(&prog, f);
	fclose(f);
	for (i = 0; i < ARRAY_SIZE(table); i++) {
		ck_assert_ptr_nonnull(strstr(out, table[i].name));
		ck_assert_ptr_nonnull(strstr(out, table[i].help));
	}
	ck_assert_ptr_nonnull(strstr(out, "(default 64M)"));
	ck_assert_ptr_nonnull(strstr(out, "64  a wrong option"));
	for (i = 0; i < len; i++) {
		line = out[i] == '\n' ? 0 : line + 1;
		ck_assert_uint_le(line, 80);
	}
	free(out);
}
END_TEST

static void print_more(FILE *out)
{
	fputs("and more\n", out);
}

/* --help works at any place, but not as the value of an option or after "--". */
START_TEST(test_help_asked)
{
	struct kv_program p = prog;
	char *out = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&out, &len);

	ck_assert_int_eq(parse("x --help"), -ECANCELED);
	ck_assert_int_eq(parse("x -h --nonsense"), -ECANCELED);
	ck_assert_int_eq(parse("--path -h"), 0);
	ck_assert_str_eq(o.path, "-h");
	ck_assert_int_eq(parse("-- -h"), 1);
	p.more = print_more;
	kv_opts_help(&p, f);
	fclose(f);
	ck_assert_str_eq(strstr(out, "and more"), "and more\n");
	free(out);
}
END_TEST

START_TEST(test_sizes)
{
	char buf[32];
	u64 v;

	ck_assert_int_eq(kv_parse_size("0", &v), 0);
	ck_assert_uint_eq(v, 0);
	ck_assert_int_eq(kv_parse_size("3k", &v), 0);
	ck_assert_uint_eq(v, 3072);
	ck_assert_int_eq(kv_parse_size("16777215T", &v), 0);
	ck_assert_int_eq(kv_parse_size("16777216T", &v), -ERANGE);
	ck_assert_int_eq(kv_parse_size("16777215.999999T", &v), 0);
	ck_assert_uint_eq(v, UINT64_MAX - 1099511);
	ck_assert_int_eq(kv_parse_size("18446744073709551616", &v), -ERANGE);
	ck_assert_int_eq(kv_parse_size("18446745TB", &v), -ERANGE);
	ck_assert_str_eq(kv_format_size(64ull << 20, buf, sizeof(buf)), "64M");
	ck_assert_str_eq(kv_format_size(1536, buf, sizeof(buf)), "1536");
	ck_assert_str_eq(kv_format_size(0, buf, sizeof(buf)), "0");
	ck_assert_str_eq(kv_format_size(1ull << 52, buf, sizeof(buf)), "4096T");
}
END_TEST

/* Sizes as people write them; 0: not valid. */
static const struct {
	const char	*text;
	u64		bytes;
} written[] = {
	{ "20g", 20ull << 30 },
	{ "60GiB", 60ull << 30 },
	{ "60gib", 60ull << 30 },
	{ "64Mi", 64ull << 20 },
	{ "1T", 1ull << 40 },
	{ "2MB", 2000000 },
	{ "3kB", 3000 },
	{ "60GB", 60000000000 },
	{ "1TB", 1000000000000 },
	{ "512B", 512 },
	{ "60 GiB", 60ull << 30 },
	{ "1.5G", 3ull << 29 },
	{ "0.015625T", 1ull << 34 },
	{ "1.5KB", 1500 },
	{ "2.0", 2 },
	{ "1.0000000G", 0 },
	{ "0.1G", 107374182 },
	{ "1.1G", 1181116006 },
	{ "1.0005KB", 1000 },
	{ "1.5", 0 },
	{ ".5G", 0 },
	{ "1.G", 0 },
	{ "1.5.5G", 0 },
	{ "1,5G", 0 },
	{ "G", 0 },
	{ "iB", 0 },
	{ "5i", 0 },
	{ "5Gi ", 0 },
	{ "5GBi", 0 },
	{ "5GG", 0 },
	{ "5P", 0 },
	{ "5  G", 0 },
	{ "5 ", 0 },
	{ " 5", 0 },
	{ "+5", 0 },
	{ "0x5", 0 },
};

START_TEST(test_written_sizes)
{
	u64 v = 0;
	int err = kv_parse_size(written[_i].text, &v);

	ck_assert_msg(err == (written[_i].bytes ? 0 : -EINVAL), "'%s': %d",
		      written[_i].text, err);
	ck_assert_msg(v == written[_i].bytes, "'%s': %llu", written[_i].text,
		      (unsigned long long)v);
}
END_TEST

/* The multiples on both sides; 0 is none. */
START_TEST(test_near_sizes)
{
	char buf[80];

	ck_assert_str_eq(kv_format_near(60000000000, 8 << 20, buf, sizeof(buf)),
			 "57216M or 57224M");
	ck_assert_str_eq(kv_format_near(3000, 4096, buf, sizeof(buf)), "4K");
}
END_TEST

static const struct {
	const char	*text;
	const char	*is;
	bool		local;
} addrs[] = {
	{ "80", "127.0.0.1:80", true },
	{ "0", "127.0.0.1:0", true },
	{ "10.0.0.1:65535", "10.0.0.1:65535", false },
	{ "0.0.0.0:1", "0.0.0.0:1", false },
	{ "127.9.9.9:1", "127.9.9.9:1", true },
	{ "[::1]:80", "[::1]:80", true },
	{ "[0:0::1]:80", "[::1]:80", true },
	{ "[::]:80", "[::]:80", false },
	{ "[fe80::1]:80", "[fe80::1]:80", false },
};

static const char * const no_addrs[] = {
	"", ":", ":80", "80:", "[", "]", "[]:80", "[:80", "[::1]", "[::1]80",
	"[::1:80", "::1:80", "[::1]]:80", "[127.0.0.1]:80", "127.0.0.1", "on",
	"65536", "100000", "-1", "+1", " 1", "1 ", "1.2.3:80", "localhost:80",
	"off:80", "[0000:0000:0000:0000:0000:0000:0000:0000:0000]:80",
};

START_TEST(test_addrs)
{
	char buf[KV_ADDR_TEXT];
	struct kv_addr a;
	u32 i;

	ck_assert(!kv_addr_parse("off", &a) && !a.len);
	for (i = 0; i < ARRAY_SIZE(addrs); i++) {
		ck_assert_msg(!kv_addr_parse(addrs[i].text, &a), "'%s'",
			      addrs[i].text);
		ck_assert_str_eq(kv_addr_format(&a, buf), addrs[i].is);
		ck_assert_msg(kv_addr_is_local(&a) == addrs[i].local, "%s", buf);
	}
	for (i = 0; i < ARRAY_SIZE(no_addrs); i++)
		ck_assert_msg(kv_addr_parse(no_addrs[i], &a) == -EINVAL, "'%s'",
			      no_addrs[i]);
}
END_TEST

struct item {
	int		value;
	struct list	node;
};

START_TEST(test_list)
{
	struct list head = LIST_INIT(head), *l, *tmp;
	struct item item[3];
	int i, sum = 0;

	ck_assert(list_empty(&head));
	for (i = 0; i < 3; i++) {
		item[i].value = i;
		list_add_tail(&head, &item[i].node);
	}
	list_del(&item[1].node);
	ck_assert(list_empty(&item[1].node));
	list_del(&item[1].node);
	i = 0;
	list_for_each(&head, l, tmp) {
		ck_assert_int_eq(list_entry(l, struct item, node)->value, i);
		sum++;
		i += 2;
		list_del(l);
	}
	ck_assert_int_eq(sum, 2);
	ck_assert(list_empty(&head));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("opts");
	TCase *tc = tcase_create("opts");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, test_defaults);
	tcase_add_test(tc, test_values);
	tcase_add_test(tc, test_amounts);
	tcase_add_test(tc, test_operands_move_to_front);
	tcase_add_test(tc, test_operand_refused);
	tcase_add_loop_test(tc, test_wrong, 0, ARRAY_SIZE(wrong));
	tcase_add_test(tc, test_help_names_all);
	tcase_add_test(tc, test_help_asked);
	tcase_add_test(tc, test_sizes);
	tcase_add_loop_test(tc, test_written_sizes, 0, ARRAY_SIZE(written));
	tcase_add_test(tc, test_near_sizes);
	tcase_add_test(tc, test_addrs);
	tcase_add_test(tc, test_list);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
