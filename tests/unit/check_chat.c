// SPDX-License-Identifier: Apache-2.0
/*
 * check_chat.c - the line editor of kvrt chat
 *
 * The test feeds keys as a terminal sends them and reads the line and the
 * position of the cursor; no terminal is needed.  Random bytes must never break
 * the line.
 */
#include <check.h>
#include <stdlib.h>

#include "runtime/cli/chat.h"
#include "tests/unit/page.h"

#define LEFT	"\033[D"
#define RIGHT	"\033[C"
#define UP	"\033[A"
#define DOWN	"\033[B"
#define BACK	"\177"
#define FAMILY	"\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7"

static struct edit e;

static void setup(void)
{
	memset(&e, 0, sizeof(e));
	edit_begin(&e);
}

static void teardown(void)
{
	edit_free(&e);
}

/* Type keys.  Return: the effect of the last one. */
static enum edit_end type(const char *keys)
{
	enum edit_end end = EDIT_MORE;

	while (*keys)
		end = edit_byte(&e, (u8)*keys++);
	return end;
}

/* The line with a bar at the cursor. */
static const char *line(void)
{
	static char buf[512];

	snprintf(buf, sizeof(buf), "%.*s|%.*s", (int)e.at,
		 e.text.p ? e.text.p : "", (int)(e.text.len - e.at),
		 e.text.p ? e.text.p + e.at : "");
	return buf;
}

static const struct { const char *keys, *line; } typed[] = {
	{ "", "|" },
	{ "abc", "abc|" },
	{ "abc" LEFT LEFT "x", "ax|bc" },
	{ "abc" LEFT LEFT LEFT LEFT LEFT "x", "x|abc" },
	{ "ab" LEFT RIGHT RIGHT "x", "abx|" },
	{ "abc\033[Hx\033[Fy", "xabcy|" },
	{ "abc\033[1~x\033[4~y", "xabcy|" },
	{ "abc\033OHx\033OFy", "xabcy|" },
	{ "abc" BACK BACK "x", "ax|" },
	{ BACK "a", "a|" },
	{ "abc" LEFT BACK, "a|c" },
	{ "abc\033[H\033[3~", "|bc" },
	{ "abc\001\004", "|bc" },			/* Ctrl-A, Ctrl-D */
	{ "one two\027", "one |" },			/* Ctrl-W */
	{ "one two  \027x", "one x|" },
	{ "abc" LEFT "\025", "|c" },			/* Ctrl-U */
	{ "abc" LEFT "\013", "ab|" },			/* Ctrl-K */
	{ "abc\002x\006y", "abxcy|" },			/* Ctrl-B, Ctrl-F */
	/* A character of several bytes is one step and one erasure. */
	{ "\xc3\xa4\xc3\xb6\xc3\xbc" LEFT BACK, "\xc3\xa4|\xc3\xbc" },
	{ "\xe6\x97\xa5\xe6\x9c\xac" LEFT LEFT "x", "x|\xe6\x97\xa5\xe6\x9c\xac" },
	{ "a\xf0\x9f\x98\x80" "b" LEFT BACK, "a|b" },
	{ "ae\xcc\x81" "b" LEFT LEFT, "a|e\xcc\x81" "b" },	/* e and an accent */
	{ "a" FAMILY BACK, "a|" },
	{ "a" FAMILY "b" LEFT LEFT, "a|" FAMILY "b" },
	/* Bytes that are not UTF-8 are dropped, the rest stays. */
	{ "a\xff" "b", "ab|" },
	{ "a\xc3" "b", "ab|" },
	{ "a\xe6\x97" LEFT "b", "b|a" },
	{ "\x80\x80\x80\x80z", "z|" },
	/* Keys without a meaning here. */
	{ "a\033[5~\033[15;2~\033[1;5Zb", "ab|" },
	{ "a\033xb", "ab|" },
	{ "a\tb\016\020", "ab|" },
	/* Pasted bytes are text. */
	{ "a\033[200~b\rc\nd\te\033[201~f", "ab\nc\nd\tef|" },
	{ "\033[200~x\003\004" LEFT "y\033[201~", "xy|" },
};

START_TEST(test_keys)
{
	type(typed[_i].keys);
	ck_assert_str_eq(line(), typed[_i].line);
}
END_TEST

START_TEST(test_ends)
{
	ck_assert_int_eq(type("abc\r"), EDIT_LINE);
	ck_assert_int_eq(type("\n"), EDIT_LINE);
	ck_assert_int_eq(type("\003"), EDIT_ABANDONED);
	ck_assert_int_eq(type("\014"), EDIT_CLEAR);
	ck_assert_int_eq(type("\004"), EDIT_MORE);	/* there is text */
	edit_begin(&e);
	ck_assert_int_eq(type("\004"), EDIT_OVER);
	ck_assert_int_eq(type("\033[200~\r\003\033[201~"), EDIT_MORE);
}
END_TEST

START_TEST(test_history)
{
	char name[16];
	u32 i;

	edit_remember(&e, "one");
	edit_remember(&e, "two");
	edit_remember(&e, "two");
	edit_remember(&e, "");
	edit_begin(&e);
	type("draft" UP);
	ck_assert_str_eq(line(), "two|");
	type(UP);
	ck_assert_str_eq(line(), "one|");
	type(UP);
	ck_assert_str_eq(line(), "one|");
	type("x" DOWN);
	ck_assert_str_eq(line(), "two|");
	type(DOWN);
	ck_assert_str_eq(line(), "draft|");
	type(DOWN "\020");
	ck_assert_str_eq(line(), "two|");
	/* The oldest lines are dropped. */
	for (i = 0; i < EDIT_HISTORY + 10; i++) {
		snprintf(name, sizeof(name), "%u", i);
		edit_remember(&e, name);
	}
	ck_assert_uint_eq(e.lines.nr, EDIT_HISTORY);
	ck_assert_str_eq(e.lines.list[0], "10");
	edit_begin(&e);
	type(UP);
	ck_assert_str_eq(line(), "509|");
}
END_TEST

static const struct { const char *text; u32 col, width, want; } widths[] = {
	{ "abc", 2, 80, 5 },
	{ "\xe6\x97\xa5\xe6\x9c\xac", 0, 80, 4 },
	{ "e\xcc\x81", 0, 80, 1 },
	{ FAMILY, 0, 80, 2 },
	{ "a\nb", 0, 80, 3 },
	{ "abcdef", 2, 4, 8 },
	{ "abc\xe6\x97\xa5", 0, 4, 6 },	/* not across the edge */
};

START_TEST(test_columns)
{
	ck_assert_uint_eq(edit_columns(widths[_i].text, strlen(widths[_i].text),
				       widths[_i].col, widths[_i].width),
			  widths[_i].want);
}
END_TEST

/* After any keys the line is UTF-8, and the cursor is between characters. */
START_TEST(test_random_bytes)
{
	static const char *keys[] = { LEFT, RIGHT, UP, DOWN, BACK, "\033[H",
		"\033[F", "\033[3~", "\xc3\xa4", FAMILY, "\027", "\033[200~",
		"\033[201~", "a", " " };
	size_t at, n;
	u32 i, k;

	srandom(_i + 1);
	edit_remember(&e, "an old line \xc3\xa4");
	for (i = 0; i < 20000; i++) {
		if (random() % 4)
			type(keys[random() % (long)ARRAY_SIZE(keys)]);
		else
			edit_byte(&e, (u8)random());
		ck_assert(e.at <= e.text.len);
		for (at = 0, k = 0; at < e.text.len; at += n) {
			n = text_utf8_len(e.text.p + at, e.text.len - at);
			ck_assert(n > 0);
			k |= at == e.at;
		}
		ck_assert(k || e.at == e.text.len);
		if (!(random() % 300))
			edit_begin(&e);
	}
}
END_TEST

START_TEST(test_documented)
{
	char *help = NULL, *page = page_read("kvrt.md");
	size_t len = 0;
	FILE *f;

	f = open_memstream(&help, &len);
	kv_opts_help(&cli_chat_program, f);
	fclose(f);
	ck_assert_msg(strstr(page, help),
		      "Documentation/kvrt.md wants this text:\n%s", help);
	free(page);
	free(help);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("chat");
	TCase *tc = tcase_create("editor");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 20);
	tcase_add_loop_test(tc, test_keys, 0, ARRAY_SIZE(typed));
	tcase_add_test(tc, test_ends);
	tcase_add_test(tc, test_history);
	tcase_add_loop_test(tc, test_columns, 0, ARRAY_SIZE(widths));
	tcase_add_loop_test(tc, test_random_bytes, 0, 4);
	tcase_add_test(tc, test_documented);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
