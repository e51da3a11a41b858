// SPDX-License-Identifier: Apache-2.0
/* check_server_keys.c - API keys */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/server/keys.h"
#include "tests/tmp.h"

static struct keys k;
static char path[128], why[600];

static void setup(void)
{
	memset(&k, 0, sizeof(k));
	close(mkstemp(tmp_name(path, sizeof(path), "keys")));
}

static void teardown(void)
{
	keys_free(&k);
	unlink(path);
}

static u32 find(const char *key)
{
	return keys_find(&k, key, strlen(key));
}

static int read_file(const char *text)
{
	FILE *f = fopen(path, "we");

	ck_assert(f && fputs(text, f) >= 0 && !fclose(f));
	keys_free(&k);
	*why = '\0';
	return keys_read(&k, path, why, sizeof(why));
}

START_TEST(test_find)
{
	ck_assert_uint_eq(find("a"), 0);
	ck_assert_int_eq(keys_add(&k, "sk-one", 6, NULL), 0);
	ck_assert_int_eq(keys_add(&k, "sk-two", 6, "bob"), 0);
	ck_assert_int_eq(keys_add(&k, "abab", 4, NULL), 0);
	ck_assert_uint_eq(find("sk-one"), 1);
	ck_assert_uint_eq(find("sk-two"), 2);
	ck_assert_uint_eq(find("abab"), 3);
	ck_assert_str_eq(k.list[0].name, "key-1");
	ck_assert_str_eq(k.list[1].name, "bob");
	/* A part of a key, a key and more, a key twice, one bit of it, nothing. */
	ck_assert_uint_eq(find("sk-on"), 0);
	ck_assert_uint_eq(find("sk-one "), 0);
	ck_assert_uint_eq(find("ab"), 0);
	ck_assert_uint_eq(find("abababab"), 0);
	ck_assert_uint_eq(find("sk-onE"), 0);
	ck_assert_uint_eq(find("rk-one"), 0);
	ck_assert_uint_eq(find(""), 0);
	ck_assert_int_eq(keys_add(&k, "sk-one", 6, "eve"), -EEXIST);
	ck_assert_int_eq(keys_add(&k, "", 0, NULL), -EINVAL);
	ck_assert_int_eq(keys_add(&k, "a b", 3, NULL), -EINVAL);
	ck_assert_int_eq(keys_add(&k, "x", 1, "two words"), -EINVAL);
	ck_assert_uint_eq(k.nr, 3);
}
END_TEST

START_TEST(test_many)
{
	char key[32];
	u32 i;

	for (i = 0; i < KEYS_MAX; i++) {
		snprintf(key, sizeof(key), "sk-%u", i);
		ck_assert_int_eq(keys_add(&k, key, strlen(key), NULL), 0);
	}
	ck_assert_int_eq(keys_add(&k, "more", 4, NULL), -E2BIG);
	for (i = 0; i < KEYS_MAX; i += 97) {
		snprintf(key, sizeof(key), "sk-%u", i);
		ck_assert_uint_eq(find(key), i + 1);
	}
}
END_TEST

START_TEST(test_file)
{
	ck_assert_int_eq(read_file("# who\n\nsk-one\r\n bob:sk-two \nlast:a:b"), 0);
	ck_assert_uint_eq(k.nr, 3);
	ck_assert_uint_eq(find("sk-one"), 1);
	ck_assert_str_eq(k.list[0].name, "key-1");
	ck_assert_uint_eq(find("sk-two"), 2);
	ck_assert_str_eq(k.list[1].name, "bob");
	ck_assert_uint_eq(find("a:b"), 3);
	ck_assert_str_eq(k.list[2].name, "last");
}
END_TEST

static const struct {
	const char	*text;
	int		err;
	const char	*words;
} bad_files[] = {
	{ "", -ENODATA, "no key" },
	{ "# none\n", -ENODATA, "no key" },
	{ "sk-one\nsk two\n", -EINVAL, "line 2" },
	{ "bob:\n", -EINVAL, "line 1" },
	{ ":sk\n", -EINVAL, "line 1" },
	{ "a:sk\n\nb:sk\n", -EEXIST, "line 3" },
};

/* Bytes after a zero byte belong to the key as well. */
START_TEST(test_zero_byte)
{
	static const char text[] = "sk-one\ns\0k\0-\0\n\0";
	FILE *f = fopen(path, "we");

	ck_assert(f && fwrite(text, sizeof(text) - 1, 1, f) == 1 && !fclose(f));
	ck_assert_int_eq(keys_read(&k, path, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "line 2"));
	ck_assert_uint_eq(k.nr, 1);
}
END_TEST

START_TEST(test_bad_file)
{
	ck_assert_int_eq(read_file(bad_files[_i].text), bad_files[_i].err);
	ck_assert_msg(strstr(why, bad_files[_i].words) && strstr(why, path) &&
		      !strchr(why, '\n'), "%s", why);
	/* The message must not quote the line, which may be a key. */
	ck_assert_ptr_null(strstr(why, "sk-"));
	ck_assert_ptr_null(strstr(why, "sk two"));
	unlink(path);
	ck_assert_int_eq(keys_read(&k, path, why, sizeof(why)), -ENOENT);
	ck_assert_msg(strstr(why, "No such file") != NULL, "%s", why);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server-keys");
	TCase *tc = tcase_create("keys");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_find);
	tcase_add_test(tc, test_many);
	tcase_add_test(tc, test_file);
	tcase_add_test(tc, test_zero_byte);
	tcase_add_loop_test(tc, test_bad_file, 0, ARRAY_SIZE(bad_files));
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
