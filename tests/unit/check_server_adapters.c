// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_adapters.c - adapters of a server: names, references
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/server/models.h"
#include "runtime/server/session.h"

static struct backend *backends;
static struct site site;
static struct api_error err;

static void setup(void)
{
	u32 i;

	backends = calloc(2, sizeof(*backends));
	ck_assert_ptr_nonnull(backends);
	for (i = 0; i < 2; i++)
		served_init(&backends[i].adapters);
	backends[0].o.name = "one";
	backends[1].o.name = "two";
	site = (struct site){ .backends = backends, .nr_backends = 2 };
	memset(&err, 0, sizeof(err));
}

static void teardown(void)
{
	served_free(&backends[0].adapters);
	served_free(&backends[1].adapters);
	free(backends);
}

static int add(u32 i, const char *name, bool replace)
{
	return served_add(&backends[i].adapters, name, "/dir", NULL, replace);
}

static struct served_adapter *get(u32 i, const char *name)
{
	return served_get(&backends[i].adapters, name, strlen(name));
}

static int drop_name(u32 i, const char *name)
{
	return served_remove(&backends[i].adapters, name, strlen(name));
}

/* ---- names and references ---- */

START_TEST(test_names)
{
	char longest[ADAPTERS_NAME_MAX + 2];

	memset(longest, 'a', sizeof(longest));
	ck_assert(served_is_name(longest, ADAPTERS_NAME_MAX));
	ck_assert(!served_is_name(longest, ADAPTERS_NAME_MAX + 1));
	ck_assert(!served_is_name("", 0));
	ck_assert(served_is_name("a/b c=\xc3\xa4", 8));
	ck_assert(!served_is_name("a\nb", 3));
	ck_assert(!served_is_name("a\x7f", 2));
	ck_assert(!served_is_name("a\0b", 3));
}
END_TEST

START_TEST(test_one_name)
{
	struct served_adapter *a, *b;

	ck_assert_int_eq(add(0, "a", false), 0);
	ck_assert_int_eq(add(0, "a", false), -EEXIST);
	a = get(0, "a");
	ck_assert_ptr_nonnull(a);
	ck_assert_str_eq(a->dir, "/dir");
	ck_assert_ptr_null(get(0, "b"));
	ck_assert_ptr_null(get(1, "a"));
	/* Another one takes the name; requests keep the one that they have. */
	ck_assert_int_eq(add(0, "a", true), 0);
	b = get(0, "a");
	ck_assert_ptr_ne(a, b);
	ck_assert_uint_ne(a->number, b->number);
	ck_assert_uint_eq(backends[0].adapters.nr, 1);
	served_put(a);
	served_put(b);
	served_put(NULL);
}
END_TEST

/* One without a name is freed after its last request, and not before. */
START_TEST(test_references)
{
	struct served_adapters *t = &backends[0].adapters;
	struct served_adapter *a, *b;

	ck_assert_int_eq(add(0, "a", false), 0);
	a = get(0, "a");
	b = get(0, "a");
	ck_assert_int_eq(drop_name(0, "a"), 0);
	ck_assert_int_eq(drop_name(0, "a"), -ENOENT);
	ck_assert_ptr_null(get(0, "a"));
	served_put(a);
	ck_assert_uint_eq(t->nr_dead, 0);
	ck_assert_str_eq(b->name, "a");
	served_put(b);
	ck_assert_uint_eq(t->nr_dead, 1);
	served_sweep(t, NULL);
	ck_assert_uint_eq(t->nr_dead, 0);
	ck_assert(list_empty(&t->dead));
	ck_assert_uint_eq(t->nr, 0);
}
END_TEST

START_TEST(test_most)
{
	char name[16];
	u32 i;

	for (i = 0; i < ADAPTERS_MAX; i++) {
		snprintf(name, sizeof(name), "a%u", i);
		ck_assert_int_eq(add(0, name, false), 0);
	}
	ck_assert_int_eq(add(0, "more", false), -ENOSPC);
	ck_assert_int_eq(add(0, "a7", true), 0);
	ck_assert_int_eq(drop_name(0, "a7"), 0);
	ck_assert_int_eq(add(0, "more", false), 0);
}
END_TEST

/* ---- the model of a request ---- */

static struct backend *route(const char *body, struct served_adapter **a)
{
	json_t *root = json_loads(body, 0, NULL);
	struct backend *b = models_route(&site, root, a, &err);

	json_decref(root);
	return b;
}

START_TEST(test_route)
{
	struct served_adapter *a;

	ck_assert_int_eq(add(1, "tuned", false), 0);
	ck_assert_ptr_eq(route("{\"model\":\"one\"}", &a), &backends[0]);
	ck_assert_ptr_null(a);
	ck_assert_ptr_eq(route("{\"model\":\"tuned\"}", &a), &backends[1]);
	ck_assert_str_eq(a->name, "tuned");
	served_put(a);
	/* Where only a model may be named, an adapter is unknown. */
	ck_assert_ptr_null(route("{\"model\":\"tuned\"}", NULL));
	ck_assert_int_eq(err.status, 404);
	ck_assert_ptr_null(route("{\"model\":\"tune\"}", &a));
	ck_assert_ptr_null(a);
	ck_assert_int_eq(err.status, 404);
	ck_assert_str_eq(err.code, "model_not_found");
	ck_assert_str_eq(err.message, "The model 'tune' does not exist: this server has 'one', 'two', 'tuned'");
}
END_TEST

/* ---- sessions ---- */

START_TEST(test_session)
{
	ck_assert_int_eq(session_fits(NULL, true, "hint", &err), 0);
	ck_assert_int_eq(session_fits(backends, false, "hint", &err), 0);
	ck_assert_int_ne(session_fits(backends, true, "hint", &err), 0);
	ck_assert_int_eq(err.status, 400);
	ck_assert_str_eq(err.param, "hint");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server-adapters");
	TCase *tc = tcase_create("adapters");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_names);
	tcase_add_test(tc, test_one_name);
	tcase_add_test(tc, test_references);
	tcase_add_test(tc, test_most);
	tcase_add_test(tc, test_route);
	tcase_add_test(tc, test_session);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
