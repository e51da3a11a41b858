// SPDX-License-Identifier: Apache-2.0
/*
 * check_template.c - the template interpreter's limits, errors and places
 *
 * check_template_golden compares texts with Jinja2.  This file tests rules that
 * Jinja2 does not have: with any template and any variables, every rendering
 * ends soon, and a failure is one line with its reason and place.
 */
#include <check.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/template/internal.h"
#include "tests/unit/page.h"

static struct tmpl_error err;
static int nr_names;

/* The text of @source with the variables of @vars, a JSON object, or NULL */
static char *render_with(const char *source, const char *vars,
			 const struct tmpl_options *o)
{
	struct tmpl *t = tmpl_compile(source, strlen(source), &err);
	json_t *v = json_loads(vars, 0, NULL);
	char *text = NULL;
	size_t len;

	ck_assert_ptr_nonnull(v);
	if (t)
		text = tmpl_render(t, v, o, &len, &err);
	if (text)
		ck_assert_uint_eq(len, strlen(text));
	tmpl_free(t);
	json_decref(v);
	return text;
}

static void expect_fault(const char *source, const struct tmpl_options *o,
			 enum tmpl_fault what, const char *words)
{
	char *text = render_with(source, "{\"x\": [1, 2, 3], \"s\": \"abc\"}",
				 o);

	ck_assert_msg(!text, "\"%.80s\" gives \"%.80s\"", source, text);
	ck_assert_msg(err.what == what && strstr(err.text, words),
		      "\"%.80s\": %d \"%s\", not %d \"%s\"", source, err.what,
		      err.text, what, words);
	ck_assert_msg(what == TMPL_RAISED || !strchr(err.text, '\n'),
		      "\"%.80s\": lines", source);
}

static void expect_text(const char *source, const char *want)
{
	char *text = render_with(source, "{\"x\": [1, 2, 3], \"s\": \"abc\"}",
				 NULL);

	ck_assert_msg(text, "\"%s\": %s", source, err.text);
	ck_assert_str_eq(text, want);
	free(text);
}

static void expect_place(const char *source, unsigned int line,
			 unsigned int col)
{
	free(render_with(source, "{}", NULL));
	ck_assert_int_ne(err.what, TMPL_OK);
	ck_assert_msg(err.line == line && err.col == col,
		      "\"%s\": %u:%u, not %u:%u: %s", source, err.line,
		      err.col, line, col, err.text);
}

START_TEST(test_places)
{
	expect_place("{{ 1 +", 1, 7);
	expect_place("a\n{{ 'x' 1 }}", 2, 8);
	expect_place("a\nb {% include 'x' %}", 2, 6);
	expect_place("{{ x|nonsense }}", 1, 6);
	expect_place("{{ x is nonsense }}", 1, 9);
	expect_place("\n\n  {{ x.y }}", 3, 7);
	expect_place("\r\n{{ 1 + 'a' }}", 2, 6);
	expect_place("{% if true %}\n {{ raise_exception('no') }}\n{% endif %}",
		     2, 20);
	expect_place("{% for x in [1] %}\n{{ [][0].a }}{% endfor %}", 2, 9);
	expect_place("{% set x = '\n\n' %}{{ 'y", 3, 8);
	expect_place("{# a\n\n #}{{ y.z }}", 3, 8);
}
END_TEST

/* Features of Jinja2 that this library lacks are refused by their name. */
START_TEST(test_refused)
{
	static const char * const tags[] = {
		"include", "extends", "block", "import", "from", "with",
		"autoescape", "do", "trans", "debug",
	};
	static const char * const filters[] = {
		"attr", "batch", "groupby", "random", "slice", "striptags",
		"truncate", "urlencode", "wordcount", "xmlattr", "pprint",
		"from_json",
	};
	char source[128], want[128];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(tags); i++) {
		snprintf(source, sizeof(source), "{%% %s x %%}", tags[i]);
		snprintf(want, sizeof(want), "the tag '%s' is not supported",
			 tags[i]);
		expect_fault(source, NULL, TMPL_SYNTAX, want);
	}
	for (i = 0; i < ARRAY_SIZE(filters); i++) {
		snprintf(source, sizeof(source), "{{ x|%s }}", filters[i]);
		snprintf(want, sizeof(want), "the filter '%s' is not supported",
			 filters[i]);
		expect_fault(source, NULL, TMPL_SYNTAX, want);
	}
	expect_fault("{% for a in x recursive %}{% endfor %}", NULL,
		     TMPL_SYNTAX, "recursive");
	expect_fault("{{ f(**x) }}", NULL, TMPL_SYNTAX, "**");
	expect_fault("{{ x[1, 2] }}", NULL, TMPL_SYNTAX, "index");
	expect_fault("{{ '\\N{DASH}' }}", NULL, TMPL_SYNTAX, "\\N");
	expect_fault("{{ 99999999999999999999 }}", NULL, TMPL_SYNTAX, "64 bits");
	expect_fault("{{ 2 ** 64 }}", NULL, TMPL_FAILED, "64 bits");
	expect_fault("{{ \xc3\xa9 }}", NULL, TMPL_SYNTAX, "not in the language");
	expect_fault("{{ lipsum() }}", NULL, TMPL_FAILED, "undefined");
	expect_fault("{{ s.format }}", NULL, TMPL_FAILED, "no text");
	expect_fault("{{ s.__class__.__mro__ }}", NULL, TMPL_FAILED, "undefined");
}
END_TEST

/* A loop that hardly ever ends, endless memory, endless text */
START_TEST(test_limits)
{
	static const char loops[] =
		"{% for a in range(100000) %}{% if s == s and s == s and "
		"s == s and s == s and s == s and s == s and s == s and "
		"s == s and s == s and s == s and s == s and s == s and "
		"s == s and s == s and s == s and s == s and s == s and "
		"s == s and s == s and s == s and s == s and s == s %}"
		"{% endif %}{% endfor %}";
	static const char doubles[] =
		"{% set n = namespace(s='x') %}{% for a in range(99) %}"
		"{% set n.s = n.s ~ n.s %}{% endfor %}";
	static const char lists[] =
		"{% set n = namespace(s=[1]) %}{% for a in range(99) %}"
		"{% set n.s = n.s + n.s %}{% endfor %}";

	expect_fault(loops, NULL, TMPL_LIMIT, "runs for too long");
	expect_fault(doubles, NULL, TMPL_LIMIT, "bytes of memory");
	expect_fault(lists, NULL, TMPL_LIMIT, "");
	expect_fault("{{ 'x' * 999999999999 }}", NULL, TMPL_LIMIT, "");
	expect_fault("{{ [1] * 999999999999 }}", NULL, TMPL_LIMIT, "");
	expect_fault("{{ ('x' * 99999) * 99999 }}", NULL, TMPL_LIMIT, "");
	expect_fault("{% set l = 'x' * 99999 %}{% for a in range(99999) %}{{ l }}{% endfor %}",
		     NULL, TMPL_LIMIT, "too much text");
	expect_fault("{% for a in range(100001) %}{% endfor %}", NULL,
		     TMPL_LIMIT, "100000");
	expect_fault("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL,
		     TMPL_LIMIT, "too deeply");
	expect_fault("{% macro m() %}{{ m() ~ m() }}{% endmacro %}{{ m() }}",
		     NULL, TMPL_LIMIT, "");
	expect_fault("{% set n = namespace() %}{% set n.n = n %}{{ n }}", NULL,
		     TMPL_LIMIT, "too deeply");
	expect_fault("{{ '%9999d' % 1 }}", NULL, TMPL_LIMIT, "width");
	expect_fault("{{ x|tojson(indent=999999999) }}", NULL, TMPL_LIMIT,
		     "indent");
	expect_fault("{% set l = 'ab' * 50000 %}{% for a in range(99999) %}{% set y = l.count('a') %}{% endfor %}",
		     NULL, TMPL_LIMIT, "runs for too long");
	expect_fault("{% set l = 'a' * 1000000 %}{% for a in range(1000) %}{% set y = l.startswith(l) %}{% endfor %}",
		     NULL, TMPL_LIMIT, "runs for too long");
	expect_fault("{% set l = ('a' * 9000) %}{{ (l ~ 'b') * 9000 in l * 9000 }}",
		     NULL, TMPL_LIMIT, "");
}
END_TEST

/* Each limit is exact: one less is enough to fail. */
START_TEST(test_limits_given)
{
	struct tmpl_options o = { .limits.output = 9 };
	char *text;

	expect_fault("0123456789", &o, TMPL_LIMIT, "too much text");
	o.limits.output = 11;
	text = render_with("0123456789", "{}", &o);
	ck_assert_str_eq(text, "0123456789");
	free(text);
	o = (struct tmpl_options){ .limits.steps = 5 };
	expect_fault("{{ 1 }}{{ 2 }}{{ 3 }}", &o, TMPL_LIMIT, "too long");
	o = (struct tmpl_options){ .limits.depth = 10 };
	expect_fault("{{ ------------1 }}", &o, TMPL_LIMIT, "too deeply");
	o = (struct tmpl_options){ .limits.memory = 100000 };
	expect_fault("{{ ('x' * 60000) ~ 'y' ~ ('x' * 60000) }}", &o,
		     TMPL_LIMIT, "100000 bytes of memory");
}
END_TEST

static char *repeated(const char *head, const char *part, u32 n,
		      const char *tail)
{
	size_t len = strlen(part), at = strlen(head);
	char *s = malloc(at + n * len + strlen(tail) + 1);
	u32 i;

	ck_assert_ptr_nonnull(s);
	strcpy(s, head);
	for (i = 0; i < n; i++, at += len)
		memcpy(s + at, part, len);
	strcpy(s + at, tail);
	return s;
}

START_TEST(test_sizes)
{
	static const struct {
		const char	*head;
		const char	*part;
		u32		n;
		const char	*tail;
		const char	*words;
	} big[] = {
		{ "", "xxxxxxxxxxxxxxxx", 70000, "", "bytes" },
		{ "", "{{1}}", 60000, "", "nodes" },
		{ "{{ ", "(", 250, "", "inside of each other" },
		{ "{{ ", "[", 1000, "", "inside of each other" },
		{ "{{ ", "-", 1000, "1 }}", "inside of each other" },
		{ "{{ ", "not ", 1000, "1 }}", "inside of each other" },
		{ "", "{% if 1 %}", 1000, "", "inside of each other" },
		{ "{{ 1", "+1", 1000, " }}", "nested too deeply" },
		{ "{{ s", "|e", 1000, " }}", "nested too deeply" },
		{ "{{ 1", " if 0 else 1", 1000, " }}", "inside of each other" },
	};
	char *source;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(big); i++) {
		source = repeated(big[i].head, big[i].part, big[i].n,
				  big[i].tail);
		free(render_with(source, "{\"s\": \"a\"}", NULL));
		ck_assert_msg(err.what == TMPL_LIMIT ||
			      err.what == TMPL_SYNTAX, "%u: %d", i, err.what);
		ck_assert_msg(strstr(err.text, big[i].words), "%u: %s", i,
			      err.text);
		free(source);
	}
}
END_TEST

/* Depth costs stack: the deepest template must fit into a small one. */
static void *deep_thread(void *arg)
{
	char *source = repeated("{% macro m(n) %}{% if n %}{% for i in [1] %}{{ ",
				"-", 80, "m(n - 1)|length }}{% endfor %}{% endif %}{% endmacro %}{{ m(99999) }}");

	free(render_with(source, "{}", NULL));
	ck_assert_int_eq(err.what, TMPL_LIMIT);
	free(source);
	source = repeated("", "[", 500, "");
	source = realloc(source, 1100);
	memset(source + 500, ']', 500);
	source[1000] = 0;
	{
		char vars[1200];

		snprintf(vars, sizeof(vars), "{\"x\": %s}", source);
		free(source);
		source = render_with("{{ x|tojson == x|string }}", vars, NULL);
		ck_assert_str_eq(source, "True");
	}
	free(source);
	return arg;
}

START_TEST(test_stack)
{
	pthread_attr_t attr;
	pthread_t t;

	/* Sanitizers make frames several times as large. */
	pthread_attr_init(&attr);
	ck_assert_int_eq(pthread_attr_setstacksize(&attr,
			 getenv("KVMM_SANITIZER") && *getenv("KVMM_SANITIZER") ?
			 (size_t)4 << 20 : (size_t)384 << 10), 0);
	ck_assert_int_eq(pthread_create(&t, &attr, deep_thread, NULL), 0);
	ck_assert_int_eq(pthread_join(t, NULL), 0);
	pthread_attr_destroy(&attr);
}
END_TEST

/* Text grows in place, and no other value may see it. */
START_TEST(test_growing)
{
	expect_text("{% set a = s ~ '1' %}{% set b = a ~ '2' %}{% set c = a ~ '3' %}{{ a }} {{ b }} {{ c }}",
		    "abc1 abc12 abc13");
	expect_text("{% set a = s ~ '  ' %}{% set b = a|trim %}{% set c = b ~ 'xy' %}[{{ a }}] [{{ b }}] [{{ c }}]",
		    "[abc  ] [abc] [abcxy]");
	expect_text("{% set a = s ~ 'def' %}{% set b = a[:5] ~ 'X' %}{% set c = a[1:] ~ 'Y' %}{{ a }} {{ b }} {{ c }}",
		    "abcdef abcdeX bcdefY");
	expect_text("{% set n = namespace(s='') %}{% for i in range(70000) %}{% set n.s = n.s ~ s %}{% endfor %}{{ n.s|length }}",
		    "210000");
}
END_TEST

/* The variables come from the client: they may have any name and any text. */
START_TEST(test_variables)
{
	struct tmpl *t = tmpl_compile("{{ x }}{{ range }}", 18, &err);
	json_t *vars = json_pack("{s:s%,s:s}", "x", "a\0b", 3, "range", "c");
	size_t len;
	char *text;

	ck_assert_ptr_nonnull(t);
	ck_assert(tmpl_uses(t, "range"));
	ck_assert(!tmpl_uses(t, "rang"));
	text = tmpl_render(t, vars, NULL, &len, &err);
	ck_assert_ptr_nonnull(text);
	ck_assert_uint_eq(len, 4);
	ck_assert_mem_eq(text, "a\0bc", 5);
	free(text);
	json_decref(vars);
	tmpl_free(t);
	expect_fault("{{ raise_exception('a\nb') }}", NULL, TMPL_RAISED, "a\nb");
}
END_TEST

static void *render_thread(void *arg)
{
	json_t *vars = json_pack("{s:[i,i,i]}", "x", 1, 2, 3);
	struct tmpl_error e;
	char *text;
	size_t len;
	int i;

	for (i = 0; i < 300; i++) {
		text = tmpl_render(arg, vars, NULL, &len, &e);
		if (!text || strcmp(text, "[3, 2, 1]\xc3\x89"))
			ck_abort_msg("\"%s\"", text ? text : e.text);
		free(text);
	}
	json_decref(vars);
	return NULL;
}

START_TEST(test_threads)
{
	static const char source[] =
		"{{ x|reverse|list }}{{ '\xc3\xa9'|upper }}";
	struct tmpl *t = tmpl_compile(source, strlen(source), &err);
	pthread_t thread[4];
	u32 i;

	ck_assert_ptr_nonnull(t);
	for (i = 0; i < ARRAY_SIZE(thread); i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL,
						render_thread, t), 0);
	for (i = 0; i < ARRAY_SIZE(thread); i++)
		ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
	tmpl_free(t);
}
END_TEST

/* ---- Documentation/template.md ---- */

/* Row @row of the page has the names of @table between backquotes, and no others. */
static void row_is(const char *page, const char *row,
		   const struct func *table)
{
	const char *p, *end;
	char quoted[80];

	p = strstr(page, row);
	ck_assert_msg(p, "template.md has no row %s", row);
	p += strlen(row);
	end = strchr(p, '\n');
	for (; table->name; table++) {
		if (!table->fn || !strchr("abcdefghijklmnopqrstuvwxyz",
					  table->name[0]))
			continue;
		snprintf(quoted, sizeof(quoted), "`%s`", table->name);
		ck_assert_msg(memmem(p, (size_t)(end - p), quoted,
				     strlen(quoted)), "%s lacks %s", row,
			      quoted);
		nr_names++;
	}
	while ((p = memchr(p, '`', (size_t)(end - p)))) {
		p = memchr(p + 1, '`', (size_t)(end - p - 1));
		ck_assert_ptr_nonnull(p++);
		nr_names--;
	}
	ck_assert_msg(!nr_names, "%s has %d names too many", row, -nr_names);
}

START_TEST(test_page)
{
	char *page = page_read("template.md");

	row_is(page, "| functions |", tv_globals);
	row_is(page, "| filters |", tv_filters);
	row_is(page, "| tests |", tv_tests);
	row_is(page, "| of texts |", tv_text_methods);
	row_is(page, "| of dicts |", tv_dict_methods);
	row_is(page, "| of lists |", tv_row_methods);
	free(page);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("template");
	TCase *tc = tcase_create("all");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, test_places);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_limits);
	tcase_add_test(tc, test_limits_given);
	tcase_add_test(tc, test_sizes);
	tcase_add_test(tc, test_stack);
	tcase_add_test(tc, test_growing);
	tcase_add_test(tc, test_variables);
	tcase_add_test(tc, test_threads);
	tcase_add_test(tc, test_page);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
