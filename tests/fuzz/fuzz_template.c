// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_template.c - chat templates of any bytes
 *
 * The input is a template; it is rendered with small limits and with variables
 * of every type.  An error must have a text of one line, a result must come
 * without one.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/template/template.h"
#include "tests/fuzz/fuzz.h"

static const char variables[] =
	"{\"x\": 1, \"y\": 2.5, \"s\": \"a\\u00e9b \\n\", \"n\": null, \"t\": true,"
	"\"numbers\": [3, 1, 2], \"user\": {\"name\": \"Ada\", \"tags\": [\"q\"]},"
	"\"people\": [{\"name\": \"Al\", \"age\": 3}, {\"name\": \"bo\", \"age\": 3}],"
	"\"messages\": [{\"role\": \"user\", \"content\": \"hi\"},"
	"{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"t\"}]}]}";

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static const struct tmpl_options o = {
		.limits = { 20000, 4 << 20, 65536, 200 }, .now = 1,
	};
	static json_t *vars;
	struct tmpl_error err;
	struct tmpl *t;
	char *text;
	size_t len;

	if (!vars)
		vars = json_loads(variables, 0, NULL);
	t = tmpl_compile((const char *)data, size, &err);
	if (t) {
		text = tmpl_render(t, vars, &o, &len, &err);
		FUZZ_LAW(!text == (err.what != TMPL_OK), "%d", err.what);
		free(text);
		tmpl_free(t);
	} else {
		FUZZ_LAW(err.what != TMPL_OK, "refused, without a reason");
	}
	FUZZ_LAW(err.what == TMPL_OK || err.what == TMPL_RAISED ||
		 (err.text[0] && !strchr(err.text, '\n')), "%s", err.text);
	return 0;
}

#ifndef FUZZ_LIB
/* ---- own mutations ---- */

/* Pieces of the language */
static const char * const words[] = {
	"{{", "}}", "{%", "%}", "{#", "#}", "{%-", "-%}", "{{-", "-}}", "+%}",
	" if ", " else ", " for ", " in ", " set ", " macro ", " endif ",
	" endfor ", " is ", " not ", " and ", " or ", "loop.", "(", ")", "[",
	"]", "{", "}", "|", ".", ",", ":", "=", "==", "~", "*", "**", "//",
	"'", "\"", "\\", "\n", " ", "-1", "0", "999999999999", "1e308",
	"none", "true", "messages", "numbers", "user", "people", "s", "x",
	"range(9)", "|tojson", "|list", "|map(", "|join", "|length", "[::-1]",
	"namespace()", "caller()", ".items()", ".split(", "|sort", "|int",
	"%s", "{}", ".format(", "\xc3\xa9", "\xff", "|safe", "|indent",
};

/* Some inputs that were read, one behind another. */
static size_t begin(u8 *buf, size_t max)
{
	size_t len = 0, n;
	const u8 *data;
	u32 i;

	for (i = 1 + fuzz_draw(3); i--; ) {
		data = fuzz_input(&n);
		len = fuzz_put(buf, len, max, len, 0, data, n);
	}
	return len;
}

static size_t mutate(u8 *buf, size_t len, size_t max)
{
	const char *p = words[fuzz_draw(ARRAY_SIZE(words))];
	size_t at = fuzz_draw((u32)len + 1), n, from;
	const u8 *data;
	u8 byte;

	switch (fuzz_draw(6)) {
	case 0:
		return fuzz_put(buf, len, max, at, fuzz_draw(8), "", 0);
	case 1:
		byte = (u8)fuzz_draw(256);
		return fuzz_put(buf, len, max, at, 1, &byte, 1);
	case 2:
		data = fuzz_input(&n);
		from = fuzz_draw((u32)n + 1);
		return fuzz_put(buf, len, max, at, fuzz_draw(16), data + from,
				fuzz_draw((u32)(n - from) + 1));
	default:
		return fuzz_put(buf, len, max, at, fuzz_draw(3), p, strlen(p));
	}
}

const struct fuzz_own fuzz_own = {
	.pack = 128 << 10, .words = words, .nr_words = ARRAY_SIZE(words),
	.begin = begin, .mutate = mutate, .changes = 11,
};
#endif
