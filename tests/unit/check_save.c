// SPDX-License-Identifier: Apache-2.0
/*
 * check_save.c - values of --area and --domain, and lines that kvctl save changes
 */
#include <check.h>
#include <stdlib.h>

#include <kvmm/area_opt.h>
#include <kvmm/domain_opt.h>
#include <kvmm/kvmm_options.h>

#include "kvmm/tools/kvctl_merge.h"

static struct seq_file out, diff;
static char why[256];

static void setup(void)
{
	seq_init(&out, KV_CONFIG_MAX);
	seq_init(&diff, KV_CONFIG_MAX);
}

static void teardown(void)
{
	seq_free(&out);
	seq_free(&diff);
}

/* ---- values ---- */

START_TEST(test_area)
{
	static struct area_opt a;

	ck_assert_int_eq(area_opt_parse(&a, "/srv/a", why, sizeof(why)), 0);
	ck_assert_str_eq(a.path, "/srv/a");
	ck_assert_uint_eq(a.keys.size, 0);
	ck_assert_uint_eq(a.keys.priority, 0);
	ck_assert_int_eq(area_opt_parse(&a, "/srv/a,size=8G,priority=3", why,
					sizeof(why)), 0);
	ck_assert_str_eq(a.path, "/srv/a");
	ck_assert_uint_eq(a.keys.size, 8ull << 30);
	ck_assert_uint_eq(a.keys.priority, 3);
}
END_TEST

START_TEST(test_domain)
{
	struct domain_opt d;
	char text[256];

	ck_assert_int_eq(domain_opt_parse(&d, "lab/chat,min=2M,max=max,weight=7",
					  why, sizeof(why)), 0);
	ck_assert_str_eq(d.tenant, "lab");
	ck_assert_str_eq(d.name, "chat");
	ck_assert_uint_eq(d.given, BIT(DOMAIN_KEY_MIN) | BIT(DOMAIN_KEY_MAX) |
			  BIT(DOMAIN_KEY_WEIGHT));
	ck_assert_uint_eq(d.limit[DOMAIN_KEY_MIN], 2u << 20);
	ck_assert_uint_eq(d.limit[DOMAIN_KEY_MAX], KVMM_LIMIT_MAX);
	ck_assert_uint_eq(d.limit[DOMAIN_KEY_WEIGHT], 7);
	ck_assert_str_eq(domain_opt_format(&d, text, sizeof(text)),
			 "lab/chat,min=2M,max=max,weight=7");
	strcpy(d.name, "a b");
	ck_assert_str_eq(domain_opt_format(&d, text, sizeof(text)), "");
}
END_TEST

static const struct {
	const char	*spec;
	const char	*says;
} bad_area[] = {
	{ "a", "--area: 'a' is no absolute path" },
	{ "", "is no absolute path" },
	{ "/a,size=8X", "--area /a: size: '8X' is not a valid size" },
	{ "/a,priority=40000", "out of range: give 0 to 32767" },
	{ "/a,force=1", "unknown key 'force': see --help; keys are size= and priority=" },
}, bad_domain[] = {
	{ "", "--domain: '' is no name" },
	{ "a b,min=1M", "is no name of a domain" },
	{ "a/b/c", "is no name of a domain" },
	{ "/b", "is no name of a domain" },
	{ "b,min", "--domain b: min wants a value" },
	{ "b,min=x", "--domain b: min: 'x' is not a valid size" },
	{ "b,weight=0", "--domain b: weight: '0' is out of range: give 1 to 10000" },
	{ "b,cpu=1", "keys are min=, low=, high=, max=, weight=" },
};

START_TEST(test_bad_areas)
{
	static struct area_opt a;

	ck_assert_int_eq(area_opt_parse(&a, bad_area[_i].spec, why, sizeof(why)),
			 -EINVAL);
	ck_assert_msg(strstr(why, bad_area[_i].says), "%s", why);
}
END_TEST

START_TEST(test_bad_domains)
{
	struct domain_opt d;

	ck_assert_int_eq(domain_opt_parse(&d, bad_domain[_i].spec, why,
					  sizeof(why)), -EINVAL);
	ck_assert_msg(strstr(why, bad_domain[_i].says), "%s", why);
}
END_TEST

/* ---- lines ---- */

static void merge(const char *file, const char *runs)
{
	seq_reset(&out);
	seq_reset(&diff);
	ck_assert_int_eq(kvctl_merge(file, runs, &out, &diff), 0);
}

/* A line that means what runs stays as it was written. */
START_TEST(test_same)
{
	static const char file[] =
		"# mine\n"
		"  swappiness=120	# tabs\n"
		"area = /a , priority=1\n"
		"area = /a,priority=1\n"
		"domain = x,max=1024K,min=0\n"
		"\n"
		"[swapd]\n"
		"slow-ms = 5\n";

	merge("swappiness = 0120\narea = /a,priority=2,size=8192K\n",
	      "# file: x\narea = /a,size=8M,priority=2\nswappiness = 120\n");
	ck_assert_str_eq(seq_text(&out),
			 "swappiness = 0120\narea = /a,priority=2,size=8192K\n");
	ck_assert_str_eq(seq_text(&diff), "");
	/* An area may leave its size out; a second line of one area goes. */
	merge(file + strlen("# mine\n"),
	      "area = /a,size=8M,priority=1\ndomain = x,min=0,max=1M\nswappiness = 120\n");
	ck_assert_ptr_nonnull(strstr(seq_text(&out), "  swappiness=120	# tabs\n"));
	ck_assert_ptr_nonnull(strstr(seq_text(&out), "area = /a,priority=1\n"));
	ck_assert_ptr_nonnull(strstr(seq_text(&out), "domain = x,max=1024K,min=0\n"));
	ck_assert_str_eq(seq_text(&diff), "- area = /a , priority=1\n");
}
END_TEST

/* Comments and other keys stay, a changed line keeps its place and its comment. */
START_TEST(test_change)
{
	merge("# first\n"
	      "pool-size = 64M   # the pool\n"
	      "\tswappiness = 80  # why\n"
	      "area = /gone\n"
	      "# last of kvmm\n"
	      "\n"
	      "# of swapd\n"
	      "[swapd]\n"
	      "slow-ms = 5",
	      "# file: x\n# left out: y\narea = /new,size=8M\nswappiness = 60\n");
	ck_assert_str_eq(seq_text(&out),
			 "# first\n"
			 "pool-size = 64M   # the pool\n"
			 "\tswappiness = 60  # why\n"
			 "area = /new,size=8M\n"
			 "# last of kvmm\n"
			 "\n"
			 "# of swapd\n"
			 "[swapd]\n"
			 "slow-ms = 5\n");
	ck_assert_str_eq(seq_text(&diff), "- swappiness = 80\n+ swappiness = 60\n"
			 "- area = /gone\n+ area = /new,size=8M\n");
}
END_TEST

/* Without a line of these keys, new lines stand at the end of [kvmm]. */
START_TEST(test_place)
{
	merge("", "swappiness = 60\n");
	ck_assert_str_eq(seq_text(&out), "swappiness = 60\n");
	merge("[swapd]\nslow-ms = 5\n", "swappiness = 60\n");
	ck_assert_str_eq(seq_text(&out), "swappiness = 60\n[swapd]\nslow-ms = 5\n");
	merge("# a\n[kvmm]\n#spin = 3\nspin = 4\n\n# b\n[swapd]\n#x\n",
	      "swappiness = 60\n");
	ck_assert_str_eq(seq_text(&out),
			 "# a\n[kvmm]\n#spin = 3\nspin = 4\n\nswappiness = 60\n# b\n[swapd]\n#x\n");
	merge("[swapd]\nslow-ms = 5\n[kvmm]\nspin = 4\n# end\n", "swappiness = 60\n");
	ck_assert_str_eq(seq_text(&out),
			 "[swapd]\nslow-ms = 5\n[kvmm]\nspin = 4\n# end\nswappiness = 60\n");
}
END_TEST

/* A key of these outside [kvmm] is not ours; it would be a mistake of the file. */
/* The daemon that answers writes no other key, and into no other kind of file. */
START_TEST(test_untrusted)
{
	static const char * const bad[] = {
		"/lib/evil.so\n", "root ALL=(ALL:ALL) ALL\n", "* * * * * root id\n",
		"a = 1\nfoo bar\n", "PATH=/bin\n",
	};
	static const char nul[] = "a = 1\n# \0\nb = 2\n";
	u32 i;

	merge("", "user = 0\n/tmp/evil.so = 1\nALL ALL=(ALL) ALL\nswappiness = 5\n");
	ck_assert_str_eq(seq_text(&diff), "+ swappiness = 5\n");
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(!kvctl_is_options(bad[i], strlen(bad[i])), "%s", bad[i]);
	ck_assert(!kvctl_is_options(nul, sizeof(nul) - 1));
	ck_assert(kvctl_is_options("", 0));
	ck_assert(kvctl_is_options("[kvmm]\n \tpool-size= 1M # x\n\r\n#\n", 31));
}
END_TEST

START_TEST(test_other_section)
{
	merge("[swapd]\nswappiness = 5\n", "");
	ck_assert_str_eq(seq_text(&out), "[swapd]\nswappiness = 5\n");
	ck_assert_str_eq(seq_text(&diff), "");
}
END_TEST

START_TEST(test_too_many)
{
	char runs[8192] = "";
	u32 i, at = 0;

	for (i = 0; i <= KV_LIST_MAX; i++)
		at += (u32)snprintf(runs + at, sizeof(runs) - at,
				    "domain = d%u,min=1M\n", i);
	ck_assert_int_eq(kvctl_merge("", runs, &out, &diff), -E2BIG);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("save");
	TCase *tc = tcase_create("save");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_area);
	tcase_add_test(tc, test_domain);
	tcase_add_loop_test(tc, test_bad_areas, 0, ARRAY_SIZE(bad_area));
	tcase_add_loop_test(tc, test_bad_domains, 0, ARRAY_SIZE(bad_domain));
	tcase_add_test(tc, test_same);
	tcase_add_test(tc, test_change);
	tcase_add_test(tc, test_place);
	tcase_add_test(tc, test_untrusted);
	tcase_add_test(tc, test_other_section);
	tcase_add_test(tc, test_too_many);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
