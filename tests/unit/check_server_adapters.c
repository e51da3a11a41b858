// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_adapters.c - adapters of a server: names, references, bodies, options
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/server/adapter_job.h"
#include "runtime/server/models.h"
#include "runtime/server/plan.h"
#include "tests/tmp.h"

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
	char longest[SERVED_NAME_MAX + 2];

	memset(longest, 'a', sizeof(longest));
	ck_assert(served_is_name(longest, SERVED_NAME_MAX));
	ck_assert(!served_is_name(longest, SERVED_NAME_MAX + 1));
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

	for (i = 0; i < SERVED_MAX; i++) {
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
	ck_assert_ptr_null(route("{\"model\":\"tuned\"}", NULL));
	ck_assert_int_eq(err.status, 404);
	ck_assert_str_eq(err.message, "'tuned' is an adapter: give the name of its model");
	ck_assert_ptr_null(route("{\"model\":\"tune\"}", &a));
	ck_assert_ptr_null(a);
	ck_assert_int_eq(err.status, 404);
	ck_assert_str_eq(err.code, "model_not_found");
	ck_assert_str_eq(err.message, "The model 'tune' does not exist: this server has 'one', 'two', 'tuned'");
}
END_TEST

/* ---- bodies ---- */

static const struct {
	bool		load;
	const char	*body;
	const char	*param;		/* NULL: it is accepted */
	const char	*code;
} bodies[] = {
	{ true, "{\"lora_name\":\"a\",\"lora_path\":\"/d\"}", NULL, NULL },
	{ true, "{\"lora_name\":\"a\",\"lora_path\":\"/d\",\"load_inplace\":true,\"is_3d_lora_weight\":false,\"model\":\"one\"}", NULL, NULL },
	{ false, "{\"lora_name\":\"a\"}", NULL, NULL },
	{ false, "{\"lora_name\":\"a\",\"lora_int_id\":3}", NULL, NULL },
	{ false, "{\"lora_name\":\"a\",\"lora_int_id\":null}", NULL, NULL },
	{ true, "{\"lora_path\":\"/d\"}", "lora_name", "missing_parameter" },
	{ true, "{\"lora_name\":null,\"lora_path\":\"/d\"}", "lora_name", "missing_parameter" },
	{ true, "{\"lora_name\":\"a\"}", "lora_path", "missing_parameter" },
	{ true, "{\"lora_name\":\"\",\"lora_path\":\"/d\"}", "lora_name", "invalid_value" },
	{ true, "{\"lora_name\":\"a\\nb\",\"lora_path\":\"/d\"}", "lora_name", "invalid_value" },
	{ true, "{\"lora_name\":1,\"lora_path\":\"/d\"}", "lora_name", "invalid_value" },
	{ true, "{\"lora_name\":\"a\",\"lora_path\":[]}", "lora_path", "invalid_value" },
	{ true, "{\"lora_name\":\"a\",\"lora_path\":\"\"}", "lora_path", "invalid_value" },
	{ true, "{\"lora_name\":\"a\",\"lora_path\":\"/d\",\"load_inplace\":1}", "load_inplace", "invalid_value" },
	{ true, "{\"lora_name\":\"a\",\"lora_path\":\"/d\",\"is_3d_lora_weight\":true}", "is_3d_lora_weight", "unsupported_parameter" },
	{ true, "{\"lora_name\":\"a\",\"lora_path\":\"/d\",\"lora_int_id\":1}", "lora_int_id", "unknown_parameter" },
	{ false, "{}", "lora_name", "missing_parameter" },
	{ false, "{\"lora_name\":\"a\",\"lora_int_id\":\"3\"}", "lora_int_id", "invalid_value" },
	{ false, "{\"lora_name\":\"a\",\"lora_path\":\"/d\"}", "lora_path", "unknown_parameter" },
	{ false, "{\"lora_name\":\"a\",\"load_inplace\":true}", "load_inplace", "unknown_parameter" },
	{ false, "[]", "", "invalid_json" },
};

START_TEST(test_bodies)
{
	json_t *root = json_loads(bodies[_i].body, 0, NULL);
	struct adapter_order o;
	int ret = adapter_order_read(root, bodies[_i].load, &o, &err);

	json_decref(root);
	ck_assert_int_eq(ret, bodies[_i].param ? -1 : 0);
	if (!ret) {
		ck_assert_str_eq(o.name, "a");
		ck_assert_str_eq(o.dir, bodies[_i].load ? "/d" : "");
		ck_assert(o.inplace == (_i == 1));
		return;
	}
	ck_assert_int_eq(err.status, 400);
	ck_assert_str_eq(err.param, bodies[_i].param);
	ck_assert_str_eq(err.code, bodies[_i].code);
}
END_TEST

START_TEST(test_long_name)
{
	char name[SERVED_NAME_MAX + 2] = "";
	json_t *root = json_object();
	struct adapter_order o;

	memset(name, 'n', SERVED_NAME_MAX + 1);
	json_object_set_new(root, "lora_path", json_string("/d"));
	json_object_set_new(root, "lora_name", json_string(name));
	ck_assert_int_ne(adapter_order_read(root, true, &o, &err), 0);
	ck_assert_str_eq(err.param, "lora_name");
	json_object_set_new(root, "lora_name", json_string(name + 1));
	ck_assert_int_eq(adapter_order_read(root, true, &o, &err), 0);
	json_decref(root);
}
END_TEST

/* ---- options ---- */

static const struct {
	u32			models;
	const char		*text;	/* @ is a folder with an adapter */
	enum server_end		end;
	u32			model;
	const char		*name;
} wishes[] = {
	{ 1, "a=@", SERVER_DONE, 0, "a" },
	{ 1, "one:a=@", SERVER_DONE, 0, "a" },
	{ 1, "b:a=@", SERVER_DONE, 0, "b:a" },
	{ 2, "two:a=@", SERVER_DONE, 1, "a" },
	{ 2, "one:a=@", SERVER_DONE, 0, "a" },
	{ 3, "one:x:a=@", SERVER_DONE, 2, "a" },
	{ 2, "a=@", SERVER_BAD_OPTION, 0, NULL },
	{ 1, "a=", SERVER_BAD_OPTION, 0, NULL },
	{ 1, "=@", SERVER_BAD_OPTION, 0, NULL },
	{ 1, "a", SERVER_BAD_OPTION, 0, NULL },
	{ 1, "one=@", SERVER_BAD_OPTION, 0, NULL },
	{ 1, "first=@", SERVER_BAD_OPTION, 0, NULL },
	{ 1, "a=@/none", SERVER_NO_MODEL, 0, NULL },
};

START_TEST(test_wishes)
{
	static const struct plan_model plan[] = {
		{ .name = "one" }, { .name = "two" }, { .name = "one:x" },
	};
	char dir[200], text[300], first[300], path[300];
	const char *list[] = { first, text };
	const struct server_opts o = {
		.nr_models = wishes[_i].models, .adapters = list, .nr_adapters = 2,
	};
	struct adapter_wish w[2];
	enum server_end end;
	int ret, code = 0;
	FILE *f;

	ck_assert_ptr_nonnull(mkdtemp(tmp_name(dir, sizeof(dir), "adapters")));
	snprintf(path, sizeof(path), "%s/adapter_config.json", dir);
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	fclose(f);
	snprintf(first, sizeof(first), "one:first=%s", dir);
	snprintf(text, sizeof(text), "%.*s%s%s", (int)strcspn(wishes[_i].text, "@"),
		 wishes[_i].text, strchr(wishes[_i].text, '@') ? dir : "",
		 strchr(wishes[_i].text, '@') ? strchr(wishes[_i].text, '@') + 1 : "");
	ret = plan_adapters(&o, plan, w, &end, &code);
	unlink(path);
	rmdir(dir);
	ck_assert_int_eq(end, wishes[_i].end);
	ck_assert_int_eq(ret, end == SERVER_DONE ? 0 : -1);
	ck_assert_int_eq(code, end == SERVER_NO_MODEL ? -ENOENT : 0);
	if (ret)
		return;
	ck_assert_uint_eq(w[1].model, wishes[_i].model);
	ck_assert_str_eq(w[1].name, wishes[_i].name);
	ck_assert_str_eq(w[1].dir, dir);
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
	tcase_add_loop_test(tc, test_bodies, 0, (int)ARRAY_SIZE(bodies));
	tcase_add_test(tc, test_long_name);
	tcase_add_loop_test(tc, test_wishes, 0, (int)ARRAY_SIZE(wishes));
	tcase_add_test(tc, test_session);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
