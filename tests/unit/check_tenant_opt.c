// SPDX-License-Identifier: Apache-2.0
/*
 * check_tenant_opt.c - the values of --tenant and --user-quota
 */
#include <check.h>
#include <stdlib.h>

#include <kvmm/tenant_opt.h>

static struct tenant_opt t;
static char why[256];

static int parse(const char *spec)
{
	memset(&t, 0xa5, sizeof(t));
	why[0] = '\0';
	return tenant_opt_parse(&t, spec, why, sizeof(why));
}

START_TEST(test_defaults)
{
	ck_assert_int_eq(parse("blue"), 0);
	ck_assert_str_eq(t.name, "blue");
	ck_assert_ptr_null(t.keys.dir);
	ck_assert_ptr_null(t.keys.owner);
	ck_assert_str_eq(t.keys.mode, "0600");
	ck_assert_uint_eq(t.keys.quota.clients, 0);
	ck_assert_uint_eq(t.keys.quota.conns, 48);
	ck_assert_uint_eq(t.keys.quota.min, 0);
	ck_assert_uint_eq(t.keys.quota.weight, 100);
}
END_TEST

START_TEST(test_keys)
{
	ck_assert_int_eq(parse("a-1_B,dir=/x/y,owner=u:g,mode=0660,clients=3,conns=4,domains=5,fds=6,min=7M,weight=8"), 0);
	ck_assert_str_eq(t.name, "a-1_B");
	ck_assert_str_eq(t.keys.dir, "/x/y");
	ck_assert_str_eq(t.keys.owner, "u:g");
	ck_assert_str_eq(t.keys.mode, "0660");
	ck_assert_uint_eq(t.keys.quota.clients, 3);
	ck_assert_uint_eq(t.keys.quota.conns, 4);
	ck_assert_uint_eq(t.keys.quota.domains, 5);
	ck_assert_uint_eq(t.keys.quota.fds, 6);
	ck_assert_uint_eq(t.keys.quota.min, 7u << 20);
	ck_assert_uint_eq(t.keys.quota.weight, 8);
}
END_TEST

static const struct {
	const char *spec;
	const char *says;
} bad[] = {
	{ "", "--tenant: '' is no name" },
	{ "7", "--tenant: '7' is no name" },
	{ "../x", "--tenant: '../x' is no name" },
	{ "a/b", "--tenant: 'a/b' is no name" },
	{ "a.sock", "--tenant: 'a.sock' is no name" },
	{ "abcdefghijklmnopqrstuvwxyz012345", "is no name" },
	{ "a,frob=1", "--tenant a: unknown key 'frob': see --help" },
	{ "a,wieght=1", "--tenant a: unknown key 'wieght': did you mean weight?" },
	{ "a,clients", "--tenant a: clients wants a value" },
	{ "a,clients=x", "--tenant a: clients: 'x' is not a valid number" },
	{ "a,conns=0", "--tenant a: conns: 0 is out of range: give 1 to 256" },
	{ "a,min=7Q", "--tenant a: min: '7Q' is not a valid size" },
};

START_TEST(test_bad)
{
	ck_assert_int_eq(parse(bad[_i].spec), -EINVAL);
	ck_assert_msg(strstr(why, bad[_i].says) != NULL, "%s", why);
}
END_TEST

START_TEST(test_too_long)
{
	char spec[TENANT_SPEC_MAX + 8] = "a,dir=/";

	memset(spec + 7, 'x', TENANT_SPEC_MAX);
	ck_assert_int_eq(parse(spec), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "longer than"));
}
END_TEST

START_TEST(test_user_quota)
{
	struct tenant_quota q;

	ck_assert_int_eq(tenant_quota_parse(&q, NULL, why, sizeof(why)), 0);
	ck_assert_uint_eq(q.domains, 32);
	ck_assert_int_eq(tenant_quota_parse(&q, "domains=2,min=1G", why,
					    sizeof(why)), 0);
	ck_assert_uint_eq(q.domains, 2);
	ck_assert_uint_eq(q.min, 1ull << 30);
	/* A user has no socket. */
	ck_assert_int_eq(tenant_quota_parse(&q, "mode=0600", why, sizeof(why)),
			 -EINVAL);
	ck_assert_str_eq(why, "--user-quota: unknown key 'mode': see --help");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tenant-opt");
	TCase *tc = tcase_create("values");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, test_defaults);
	tcase_add_test(tc, test_keys);
	tcase_add_loop_test(tc, test_bad, 0, ARRAY_SIZE(bad));
	tcase_add_test(tc, test_too_long);
	tcase_add_test(tc, test_user_quota);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
