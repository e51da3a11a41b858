// SPDX-License-Identifier: Apache-2.0
/*
 * check_config.c - options from a file, the environment and the command line
 *
 * The tests check which source counts, which values are refused with which
 * message, and which files are read at all.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/kvmm_options.h>

#define TEST_OPTS(x)							\
	x(str, path, "path", NULL, 0, 0, "PATH", "where it is")		\
	x(size, room, "room", "64M", 4096, 1ull << 40, "SIZE", "bytes")	\
	x(amount, part, "part", "10%", 4096, 1ull << 40, "SIZE", "how much") \
	x(uint, nr_of, "nr-of", "3", 1, 100, "N", "how many")		\
	x(flag, loud, "loud", NULL, 0, 0, NULL, "say more")		\
	x(list, names, "name", NULL, 0, 0, "NAME", "some")		\
	x(choice, how, "how", "fast", 0, 0, "exact|fast", "mode")	\
	x(str, config, "config", NULL, 0, 0, "PATH", "the file")

#define MORE_OPTS(x)							\
	x(uint, speed, "speed", "7", 1, 100, "N", "of the other")

struct test_opts {
#define x OPT_FIELD
	TEST_OPTS(x)
#undef x
};

struct more_opts {
#define x OPT_FIELD
	MORE_OPTS(x)
#undef x
};

static const struct kv_opt table[] = {
#define x(...) OPT_ENTRY(struct test_opts, __VA_ARGS__)
	TEST_OPTS(x)
#undef x
};

static const struct kv_opt more_table[] = {
#define x(...) OPT_ENTRY(struct more_opts, __VA_ARGS__)
	MORE_OPTS(x)
#undef x
};

static const struct kv_program prog = {
	.name = "prog", .about = "Tests.", .opts = table,
	.nr_opts = ARRAY_SIZE(table),
};

static struct test_opts o;
static struct more_opts more;

static struct kv_section section[] = {
	{ .name = "prog", .about = "This one.", .env = "PROG_",
	  .line_only = " config ", .opts = table, .nr = ARRAY_SIZE(table),
	  .values = &o },
	{ .name = "more", .about = "The other.", .env = "PROG_MORE_",
	  .opts = more_table, .nr = ARRAY_SIZE(more_table), .values = &more },
};

static struct kv_config cfg = {
	.section = section, .nr = ARRAY_SIZE(section), .env_path = "PROG_CONFIG",
};

static char text[512], dir[64], file[128];

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%.40s/config.XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/prog.conf", dir);
}

static void teardown(void)
{
	char line[128];

	snprintf(line, sizeof(line), "rm -rf '%s'", dir);
	ck_assert_int_eq(system(line), 0);
}

static void write_file(const char *content)
{
	FILE *f = fopen(file, "we");

	ck_assert_ptr_nonnull(f);
	fputs(content, f);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(chmod(file, 0644), 0);
}

/* Parse a command line of words, on top of the file. */
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
	free(cfg.text);
	cfg.text = NULL;
	return kv_config_parse(&prog, &cfg, NULL, file, n, argv, text,
			       sizeof(text));
}

START_TEST(test_order)
{
	/* No source sets an option: the file need not exist. */
	ck_assert_int_eq(parse(""), 0);
	ck_assert_uint_eq(o.nr_of, 3);
	ck_assert_str_eq(cfg.path, "");
	write_file("nr-of = 4\nroom = 1M\nloud = yes\n[more]\nspeed=9\n");
	ck_assert_int_eq(parse(""), 0);
	ck_assert_str_eq(cfg.path, file);
	ck_assert_uint_eq(o.nr_of, 4);
	ck_assert_uint_eq(more.speed, 9);
	ck_assert(o.loud);
	setenv("PROG_NR_OF", "5", 1);
	setenv("PROG_LOUD", "no", 1);
	setenv("PROG_MORE_SPEED", "11", 1);
	setenv("PROG_ROOM", "", 1);	/* an empty value counts as none */
	ck_assert_int_eq(parse(""), 0);
	ck_assert_uint_eq(o.nr_of, 5);
	ck_assert_uint_eq(o.room, 1 << 20);
	ck_assert_uint_eq(more.speed, 11);
	ck_assert(!o.loud);
	ck_assert_int_eq(parse("--nr-of 6 --loud"), 0);
	ck_assert_uint_eq(o.nr_of, 6);
	ck_assert(o.loud);
	ck_assert_uint_eq(section[0].from[3].source, KV_FROM_LINE);
	ck_assert_uint_eq(section[0].from[3].line, 1);
	ck_assert_uint_eq(section[0].from[1].source, KV_FROM_FILE);
	ck_assert_uint_eq(section[0].from[1].line, 2);
	ck_assert_uint_eq(section[0].from[0].source, KV_FROM_DEFAULT);
	ck_assert_uint_eq(section[1].from[0].source, KV_FROM_ENV);
}
END_TEST

/* A later source replaces the whole list; one source adds to its own list. */
START_TEST(test_lists)
{
	write_file("name = a\nname = b\n");
	ck_assert_int_eq(parse(""), 0);
	ck_assert_uint_eq(o.names.nr, 2);
	ck_assert_str_eq(o.names.s[1], "b");
	setenv("PROG_NAME", " c d\te ", 1);
	ck_assert_int_eq(parse(""), 0);
	ck_assert_uint_eq(o.names.nr, 3);
	ck_assert_str_eq(o.names.s[0], "c");
	ck_assert_str_eq(o.names.s[2], "e");
	ck_assert_int_eq(parse("--name f --name g"), 0);
	ck_assert_uint_eq(o.names.nr, 2);
	ck_assert_str_eq(o.names.s[0], "f");
}
END_TEST

START_TEST(test_which_file)
{
	char other[160];

	write_file("nr-of = 4\n");
	snprintf(other, sizeof(other), "%s/other", dir);
	setenv("PROG_CONFIG", "none", 1);
	ck_assert_int_eq(parse(""), 0);
	ck_assert_uint_eq(o.nr_of, 3);
	/* A file that is named must exist. */
	setenv("PROG_CONFIG", other, 1);
	ck_assert_int_eq(parse(""), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(text, "other: cannot be read: No such"));
	ck_assert_int_eq(rename(file, other), 0);
	ck_assert_int_eq(parse(""), 0);
	ck_assert_uint_eq(o.nr_of, 4);
}
END_TEST

START_TEST(test_syntax)
{
	write_file("# a comment\r\n\r\n  nr-of=8 # here\n\t[prog]\t\n path = /a b#c \n[more]\n\n[prog]\nhow =exact");
	ck_assert_int_eq(parse(""), 0);
	ck_assert_uint_eq(o.nr_of, 8);
	ck_assert_str_eq(o.path, "/a b#c");
	ck_assert_uint_eq(o.how, 0);
}
END_TEST

/* The content of a file, and the message that it must cause. */
static const struct {
	const char *content;
	const char *says;
} wrong[] = {
	{ "\nnr_of = 3\n",	":2: 'nr_of' is not a key of [prog]: did you mean nr-of?" },
	{ "rom = 1M",		":1: 'rom' is not a key of [prog]: did you mean room?" },
	{ "confi = x",		"keys are the options" },
	{ "config = x",		"is for the command line alone" },
	{ "whatever-it-is = 1",	"keys are the options" },
	{ "speed = 1",		":1: speed is a key of [more], not of [prog]" },
	{ "[more]\nroom = 1M",	":2: room is a key of [prog], not of [more]" },
	{ "[mor]",		"there is [prog] and [more]" },
	{ "[more",		"'[more' is no section" },
	{ "[",			"'[' is no section" },
	{ "room",		"neither key = value nor [section]" },
	{ "room =",		"write room = SIZE" },
	{ "loud =",		"write loud = yes" },
	{ "loud = 1",		"loud: '1' is neither yes nor no" },
	{ "room = \"1M\"",	"without quotes" },
	{ "room = 1Q",		":1: room: '1Q' is not a valid size: write 64K" },
	{ "room = 1K",		":1: room: 1K is out of range: give 4K to 1T" },
	{ "nr-of = 101",	"give 1 to 100" },
	{ "how = slow",		"how: 'slow' is not one of exact|fast" },
	{ "nr-of = 1\n#\nnr-of = 2", ":3: nr-of is in line 1 already" },
	{ "nr-of = 1\001",	"a control character" },
	{ "= 3",		"'' is not a key" },
};

START_TEST(test_wrong)
{
	write_file(wrong[_i].content);
	/* A bad line is an error even if the command line overrides it. */
	ck_assert_int_eq(parse("--nr-of 1 --room 1M --how fast"), -EBADMSG);
	ck_assert_msg(strstr(text, wrong[_i].says) && strstr(text, file) == text,
		      "'%s': says '%s'", wrong[_i].content, text);
	ck_assert_ptr_null(strchr(text, '\n'));
}
END_TEST

START_TEST(test_wrong_elsewhere)
{
	FILE *f;
	int i;

	setenv("PROG_NR_OF", "many", 1);
	ck_assert_int_eq(parse(""), -EINVAL);
	ck_assert_str_eq(text, "PROG_NR_OF: 'many' is not a valid number: write decimal digits");
	unsetenv("PROG_NR_OF");
	ck_assert_int_eq(parse("--nr-of many"), -EINVAL);
	f = fopen(file, "we");
	for (i = 0; i < KV_CONFIG_MAX / 2 + 1; i++)
		fputs("#\n", f);
	fclose(f);
	ck_assert_int_eq(parse(""), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(text, "too long for a file"));
	f = fopen(file, "we");
	fwrite("room\0 = 1M", 1, 10, f);
	fclose(f);
	ck_assert_int_eq(parse(""), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(text, "no text"));
}
END_TEST

/* ---- owners of the file ---- */

static void refused(const char *says)
{
	ck_assert_int_eq(parse(""), -EBADMSG);
	ck_assert_msg(strstr(text, says) != NULL, "says '%s'", text);
}

START_TEST(test_trust)
{
	char inner[128], to[192];

	write_file("nr-of = 4\n");
	ck_assert_int_eq(chmod(file, 0646), 0);
	refused("may be written by others");
	ck_assert_int_eq(chmod(file, 0644), 0);
	ck_assert_int_eq(parse(""), 0);
	unlink(file);
	ck_assert_int_eq(mkfifo(file, 0600), 0);
	refused("no regular file");
	unlink(file);
	if (geteuid())
		return;
	/* For root the directories on the path count, too. */
	write_file("nr-of = 4\n");
	ck_assert_int_eq(chmod(file, 0664), 0);
	refused("may be written by others");
	ck_assert_int_eq(chown(file, 4242, 0), 0);
	refused("belongs to another user");
	ck_assert_int_eq(chown(file, 0, 0), 0);
	ck_assert_int_eq(chmod(file, 0644), 0);
	ck_assert_int_eq(chmod(dir, 0777), 0);
	refused("may be written by others");
	ck_assert_int_eq(chmod(dir, 01777), 0);
	ck_assert_int_eq(parse(""), 0);
	/* A link of another user to a file that root could read. */
	snprintf(inner, sizeof(inner), "%s/inner", dir);
	snprintf(to, sizeof(to), "%s/prog", inner);
	ck_assert_int_eq(mkdir(inner, 0755), 0);
	ck_assert_int_eq(rename(file, to), 0);
	ck_assert_int_eq(symlink("inner/../inner//prog", file), 0);
	ck_assert_int_eq(parse(""), 0);
	ck_assert_uint_eq(o.nr_of, 4);
	ck_assert_int_eq(lchown(file, 4242, 4242), 0);
	refused("belongs to another user");
	ck_assert_int_eq(lchown(file, 0, 0), 0);
	ck_assert_int_eq(chown(inner, 4242, 0), 0);
	refused("belongs to another user");
	unlink(file);
	ck_assert_int_eq(symlink(file, file), 0);
	refused("Too many levels");
}
END_TEST

/* ---- back to text ---- */

static char *printed(void (*print)(const struct kv_config *c, FILE *out))
{
	char *out = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&out, &len);

	ck_assert_ptr_nonnull(f);
	print(&cfg, f);
	fclose(f);
	return out;
}

/* The printed configuration is a file with the same meaning. */
START_TEST(test_print)
{
	char *out, *again;

	write_file("nr-of = 4\nname = a\nname = b\n[more]\nspeed = 9\n");
	setenv("PROG_PART", "auto", 1);
	ck_assert_int_eq(parse("--loud --path /x"), 0);
	out = printed(kv_config_print);
	ck_assert_ptr_nonnull(strstr(out, "\npath = /x "));
	ck_assert_ptr_nonnull(strstr(out, "# command line\n"));
	ck_assert_ptr_nonnull(strstr(out, "# environment: PROG_PART\n"));
	ck_assert_ptr_nonnull(strstr(out, "prog.conf:1\n"));
	ck_assert_ptr_nonnull(strstr(out, "\nroom = 64M "));
	ck_assert_ptr_nonnull(strstr(out, "\nname = b "));
	ck_assert_ptr_nonnull(strstr(out, "\nhow = fast "));
	ck_assert_ptr_null(strstr(out, "config ="));
	write_file(out);
	unsetenv("PROG_PART");
	ck_assert_int_eq(parse(""), 0);
	ck_assert_uint_eq(o.nr_of, 4);
	ck_assert_uint_eq(o.names.nr, 2);
	ck_assert_uint_eq(more.speed, 9);
	ck_assert_uint_eq(o.part.unit, KV_AMOUNT_AUTO);
	ck_assert(o.loud);
	again = printed(kv_config_print);
	ck_assert_ptr_nonnull(strstr(again, "prog.conf:"));
	free(out);
	free(again);
}
END_TEST

START_TEST(test_args)
{
	char *argv[8] = { NULL };
	int i;

	write_file("nr-of = 4\nname = a\nname = b\nloud = yes\n");
	ck_assert_int_eq(parse("--nr-of 9"), 0);
	ck_assert_int_eq(kv_config_args(&section[0], argv, 2), -E2BIG);
	ck_assert_int_eq(kv_config_args(&section[0], argv, 8), 3);
	ck_assert_str_eq(argv[0], "--loud");
	ck_assert_str_eq(argv[1], "--name=a");
	ck_assert_str_eq(argv[2], "--name=b");
	for (i = 0; i < 3; i++)
		free(argv[i]);
	ck_assert_int_eq(kv_config_args(&section[1], argv, 8), 0);
}
END_TEST

/* ---- kvmm ---- */

/* Remove the # before each key, as an operator does who edits the file. */
static void uncomment(char *p)
{
	for (; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (*p == '#' && p[1] != ' ' && p[1] != '\n')
			*p = ' ';
}

/* Every line of the default file is valid, and states the default. */
START_TEST(test_default_file)
{
	static struct kvmm_options with, without;
	static const struct kv_program kvmm = {
		.name = "kvmm", .operands = KVMM_OPERANDS, .about = "It.",
		.opts = kvmm_opts, .nr_opts = KVMM_NR_OPTS,
	};
	static struct kvmm_config c;
	char *argv[] = { (char *)"kvmm", (char *)"--config", file, NULL };
	char value[2][128], *out = NULL, *p;
	size_t len = 0;
	FILE *f = open_memstream(&out, &len);
	u32 i, nr = 0;

	kvmm_config_init(&c, &with);
	kv_config_print_default(&c.file, f);
	fclose(f);
	uncomment(out);
	/* Options without a default have the kind of their value instead. */
	for (i = 0; i < KVMM_NR_OPTS; i++) {
		snprintf(value[0], sizeof(value[0]), "\n %s = ", kvmm_opts[i].name);
		p = strstr(out, value[0]);
		ck_assert_msg(!p == !kv_config_has(c.section, &kvmm_opts[i]),
			      "%s", kvmm_opts[i].name);
		nr += p != NULL;
		if (p && !kvmm_opts[i].def)
			p[1] = '#';
	}
	ck_assert_uint_eq(nr, KVMM_NR_OPTS - 3);
	write_file(out);
	ck_assert_msg(!kvmm_config_read(&kvmm, &c, false, 3, argv, text,
					sizeof(text)), "%s", text);
	kvmm_config_init(&c, &without);
	argv[2] = (char *)"none";
	ck_assert_int_eq(kvmm_config_read(&kvmm, &c, false, 3, argv, text,
					  sizeof(text)), 0);
	for (i = 0; i < KVMM_NR_OPTS; i++)
		if (kv_opt_format(&kvmm_opts[i], &with, 0, value[0], 128) &&
		    kv_config_has(c.section, &kvmm_opts[i])) {
			(void)kv_opt_format(&kvmm_opts[i], &without, 0,
					    value[1], 128);
			ck_assert_str_eq(value[0], value[1]);
		}
	free(out);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("config");
	TCase *tc = tcase_create("config");
	SRunner *sr;
	int failed;

	unsetenv("KVMM_CONFIG");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_order);
	tcase_add_test(tc, test_lists);
	tcase_add_test(tc, test_which_file);
	tcase_add_test(tc, test_syntax);
	tcase_add_loop_test(tc, test_wrong, 0, ARRAY_SIZE(wrong));
	tcase_add_test(tc, test_wrong_elsewhere);
	tcase_add_test(tc, test_trust);
	tcase_add_test(tc, test_print);
	tcase_add_test(tc, test_args);
	tcase_add_test(tc, test_default_file);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
