// SPDX-License-Identifier: Apache-2.0
/* check_seq.c - text is whole or refused, and foreign words stay words */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/seq.h>

static struct seq_file m;

static void setup(void)
{
	seq_init(&m, 1 << 20);
}

static void teardown(void)
{
	seq_free(&m);
}

START_TEST(test_empty_text_is_no_null)
{
	ck_assert_str_eq(seq_text(&m), "");
	ck_assert_uint_eq(m.count, 0);
	seq_puts(&m, "");
	ck_assert_str_eq(seq_text(&m), "");
	ck_assert_int_eq(seq_error(&m), 0);
}
END_TEST

START_TEST(test_printf_appends)
{
	seq_printf(&m, "%-15s %8lu kB\n", "GpuTotal:", 42ul);
	seq_puts(&m, "a");
	seq_putc(&m, 'b');
	seq_write(&m, "c\n", 2);
	ck_assert_str_eq(seq_text(&m), "GpuTotal:             42 kB\nabc\n");
	ck_assert_uint_eq(m.count, strlen(m.buf));
}
END_TEST

/* Every length around the sizes that the buffer takes, with both ways to print. */
START_TEST(test_grows_at_every_boundary)
{
	size_t at, len;

	for (at = 4090; at < 4100; at++) {
		for (len = 0; len < 12; len++) {
			seq_free(&m);
			while (m.count < at)
				seq_putc(&m, 'x');
			seq_printf(&m, "%.*s", (int)len, "abcdefghijkl");
			ck_assert_int_eq(seq_error(&m), 0);
			ck_assert_uint_eq(m.count, at + len);
			ck_assert_uint_eq(strlen(m.buf), at + len);
			ck_assert(!memcmp(m.buf + at, "abcdefghijkl", len));
		}
	}
}
END_TEST

START_TEST(test_one_record_larger_than_the_buffer)
{
	char *big = malloc(100001);

	memset(big, 'y', 100000);
	big[100000] = '\0';
	seq_printf(&m, "<%s>", big);
	ck_assert_uint_eq(m.count, 100002);
	ck_assert_int_eq(m.buf[100001], '>');
	ck_assert_int_eq(seq_error(&m), 0);
	free(big);
}
END_TEST

/* Text of exactly the limit is whole; one byte more is refused. */
START_TEST(test_limit_is_exact)
{
	seq_free(&m);
	seq_init(&m, 10);
	seq_puts(&m, "12345");
	seq_printf(&m, "%s", "67890");
	ck_assert_int_eq(seq_error(&m), 0);
	ck_assert_str_eq(seq_text(&m), "1234567890");
	seq_putc(&m, 'x');
	ck_assert_int_eq(seq_error(&m), -EOVERFLOW);
	ck_assert_str_eq(seq_text(&m), "1234567890");
}
END_TEST

/* A record that does not fit leaves no text, and no later one does. */
START_TEST(test_overflow_is_sticky_and_atomic)
{
	seq_free(&m);
	seq_init(&m, 8);
	seq_puts(&m, "abc");
	seq_printf(&m, "%d", 1234567);
	ck_assert_int_eq(seq_error(&m), -EOVERFLOW);
	ck_assert_str_eq(seq_text(&m), "abc");
	seq_putc(&m, 'd');
	seq_puts(&m, "");
	seq_printf(&m, "e");
	ck_assert_str_eq(seq_text(&m), "abc");
	ck_assert_int_eq(seq_error(&m), -EOVERFLOW);
}
END_TEST

START_TEST(test_overflow_before_the_first_byte)
{
	seq_free(&m);
	seq_init(&m, 4);
	seq_printf(&m, "12345");
	ck_assert_int_eq(seq_error(&m), -EOVERFLOW);
	ck_assert_str_eq(seq_text(&m), "");
}
END_TEST

START_TEST(test_reset_forgets_the_error_and_keeps_the_buffer)
{
	char *buf;

	seq_free(&m);
	seq_init(&m, 4);
	seq_puts(&m, "123");
	buf = m.buf;
	seq_puts(&m, "456");
	ck_assert_int_eq(seq_error(&m), -EOVERFLOW);
	seq_reset(&m);
	ck_assert_int_eq(seq_error(&m), 0);
	ck_assert_str_eq(seq_text(&m), "");
	seq_puts(&m, "4567");
	ck_assert_str_eq(seq_text(&m), "4567");
	ck_assert_ptr_eq(m.buf, buf);
}
END_TEST

START_TEST(test_escape_keeps_one_word)
{
	seq_escape(&m, "a b\tc\nd\\e\x7f\xc3\xa9" "f/g@h", "/@");
	ck_assert_str_eq(seq_text(&m),
			 "a\\040b\\011c\\012d\\134e\\177\\303\\251"
			 "f\\057g\\100h");
}
END_TEST

START_TEST(test_escape_leaves_plain_words)
{
	seq_escape(&m, "llama-3.1:8b/bf16", "");
	ck_assert_str_eq(seq_text(&m), "llama-3.1:8b/bf16");
}
END_TEST

/* Every byte is printed as printable text, and no two as the same text. */
START_TEST(test_escape_is_one_to_one)
{
	char seen[256][8];
	int a, b;

	for (a = 1; a < 256; a++) {
		const char s[2] = { (char)a, '\0' };

		seq_reset(&m);
		seq_escape(&m, s, "/");
		snprintf(seen[a], sizeof(seen[a]), "%s", seq_text(&m));
		for (b = 0; b < (int)m.count; b++)
			ck_assert(m.buf[b] > ' ' && m.buf[b] <= '~');
		for (b = 1; b < a; b++)
			ck_assert_str_ne(seen[a], seen[b]);
	}
}
END_TEST

static Suite *seq_suite(void)
{
	Suite *s = suite_create("seq");
	TCase *tc = tcase_create("text");

	tcase_set_tags(tc, "unit seq");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_empty_text_is_no_null);
	tcase_add_test(tc, test_printf_appends);
	tcase_add_test(tc, test_grows_at_every_boundary);
	tcase_add_test(tc, test_one_record_larger_than_the_buffer);
	tcase_add_test(tc, test_limit_is_exact);
	tcase_add_test(tc, test_overflow_is_sticky_and_atomic);
	tcase_add_test(tc, test_overflow_before_the_first_byte);
	tcase_add_test(tc, test_reset_forgets_the_error_and_keeps_the_buffer);
	tcase_add_test(tc, test_escape_keeps_one_word);
	tcase_add_test(tc, test_escape_leaves_plain_words);
	tcase_add_test(tc, test_escape_is_one_to_one);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(seq_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
