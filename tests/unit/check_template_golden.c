// SPDX-License-Identifier: Apache-2.0
/*
 * check_template_golden.c - the texts that Jinja2 makes of chat templates
 *
 * tests/data/template/golden.json holds templates, conversations and the text
 * of Jinja2 for each pair (make_golden.py beside it).  Texts must be equal byte
 * for byte; where Jinja2 failed, this library must fail too, and for
 * raise_exception() with the same words.
 *
 * $KVMM_TEMPLATE_GOLDEN names a file of the same form instead: the templates of
 * public packages, which tests/scripts/templates.sh fetches.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/template/template.h"

#define NR_SHOWN	60

static json_t *golden;
static struct tmpl_options options;
static u32 nr_ok, nr_refused, nr_wrong, nr_shown;

static const char *fault_name(enum tmpl_fault f)
{
	static const char * const names[] = {
		[TMPL_OK] = "ok", [TMPL_SYNTAX] = "syntax",
		[TMPL_RAISED] = "raised", [TMPL_FAILED] = "failed",
		[TMPL_LIMIT] = "limit", [TMPL_NOMEM] = "nomem",
	};

	return names[f];
}

static void wrong(const char *name, const char *chat, const char *want_kind,
		  const char *want, const struct tmpl_error *err,
		  const char *text)
{
	static char last[256];
	size_t at = 0;

	nr_wrong++;
	if (!strcmp(last, name) || nr_shown++ >= NR_SHOWN)
		return;
	snprintf(last, sizeof(last), "%s", name);
	while (text && text[at] && text[at] == want[at])
		at++;
	at -= at > 40 ? 40 : at;
	printf("%s, \"%s\": want %s \"%.150s\", got %s \"%.150s\" (%u:%u) at %zu\n",
	       name, chat, want_kind, text ? want + at : want,
	       fault_name(err->what), text ? text + at : err->text,
	       err->line, err->col, at);
}

static void render_one(const char *name, const struct tmpl *t,
		       const char *chat, const json_t *vars,
		       const json_t *want)
{
	const char *kind = json_string_value(json_array_get(want, 0));
	const json_t *words = json_array_get(want, 1);
	struct tmpl_error err;
	size_t len = 0;
	char *text;
	bool same;

	text = tmpl_render(t, vars, &options, &len, &err);
	same = !strcmp(kind, fault_name(err.what));
	if (same && text)
		same = len == json_string_length(words) &&
		       !memcmp(text, json_string_value(words), len);
	if (same && err.what == TMPL_RAISED)
		same = !strncmp(err.text, json_string_value(words),
				sizeof(err.text) - 5);
	if (!same)
		wrong(name, chat, kind, json_string_value(words), &err, text);
	else if (text)
		nr_ok++;
	else
		nr_refused++;
	free(text);
}

static void render_all(const char *name, const char *source, size_t n,
		       json_t *want)
{
	struct tmpl_error err;
	struct tmpl *t = tmpl_compile(source, n, &err);
	const char *chat;
	json_t *vars;
	size_t i = 0;

	json_object_foreach(json_object_get(golden, "chats"), chat, vars) {
		json_t *w = json_array_get(want, i++);
		const char *kind = json_string_value(json_array_get(w, 0));

		if (t)
			render_one(name, t, chat, vars, w);
		else if (!strcmp(kind, "syntax"))
			nr_refused++;
		else
			wrong(name, chat, kind, "", &err, NULL);
	}
	tmpl_free(t);
}

START_TEST(test_golden)
{
	const char *name;
	json_t *source;

	json_object_foreach(json_object_get(golden, "templates"), name, source)
		render_all(name, json_string_value(source),
			   json_string_length(source),
			   json_object_get(json_object_get(golden, "want"),
					   name));
	printf("total: %zu templates, %zu conversations: %u texts and %u refusals as Jinja2's, %u not\n",
	       json_object_size(json_object_get(golden, "templates")),
	       json_object_size(json_object_get(golden, "chats")), nr_ok,
	       nr_refused, nr_wrong);
	fflush(stdout);
	ck_assert_uint_eq(nr_wrong, 0);
}
END_TEST

/* Lines of templates, each for one feature of the language */
START_TEST(test_snippets)
{
	const json_t *vars = json_object_get(golden, "variables");
	json_t *snippet, *want;
	const char *source;
	struct tmpl_error err;
	struct tmpl *t;
	size_t i;

	json_array_foreach(json_object_get(golden, "snippets"), i, snippet) {
		source = json_string_value(json_array_get(snippet, 0));
		want = json_pack("[OO]", json_array_get(snippet, 1),
				 json_array_get(snippet, 2));
		t = tmpl_compile(source, strlen(source), &err);
		if (t)
			render_one(source, t, "-", vars, want);
		else if (strcmp(json_string_value(json_array_get(want, 0)),
				fault_name(err.what)))
			wrong(source, "-", json_string_value(json_array_get(
			      want, 0)), "", &err, NULL);
		else
			nr_refused++;
		tmpl_free(t);
		json_decref(want);
	}
	printf("total: %zu snippets: %u texts and %u refusals as Jinja2's, %u not\n",
	       i, nr_ok, nr_refused, nr_wrong);
	fflush(stdout);
	ck_assert_uint_eq(nr_wrong, 0);
}
END_TEST

static void golden_load(void)
{
	const char *file = getenv("KVMM_TEMPLATE_GOLDEN");
	const char *top = getenv("KVMM_TOP");
	char path[4096];
	json_error_t err;

	snprintf(path, sizeof(path), "%s/tests/data/template/golden.json",
		 top ? top : ".");
	golden = json_load_file(file ? file : path, JSON_ALLOW_NUL, &err);
	if (!golden) {
		fprintf(stderr, "%s: %s\n", file ? file : path, err.text);
		exit(1);
	}
	options.now = (time_t)json_integer_value(json_object_get(golden,
								 "now"));
}

int main(void)
{
	Suite *s = suite_create("template golden");
	TCase *tc = tcase_create("all");
	SRunner *sr;
	int failed;

	setenv("TZ", "UTC", 1);
	golden_load();
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_golden);
	if (json_array_size(json_object_get(golden, "snippets")))
		tcase_add_test(tc, test_snippets);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	json_decref(golden);
	return failed ? 1 : 0;
}
