// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_template.c - chat templates of any bytes
 *
 * The input is a template; it is rendered with small limits and with variables
 * of every type.  An error must have its words and come in one line, a text
 * must come without one.
 *
 * With -DFUZZ_LIB it is a libFuzzer target for clang:
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -DFUZZ_LIB -Iinclude -I. \
 *		-D_GNU_SOURCE= -o build/fuzz_template tests/fuzz/fuzz_template.c \
 *		runtime/template/?*.c runtime/tokenizer/utf8.c -ljansson -lm
 *
 * Without, it is a program that joins and mutates lines of FILE.. by itself:
 *	fuzz_template ROUNDS SEED FILE..
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/template/template.h"

static const char variables[] =
	"{\"x\": 1, \"y\": 2.5, \"s\": \"a\\u00e9b \\n\", \"n\": null, \"t\": true,"
	"\"numbers\": [3, 1, 2], \"user\": {\"name\": \"Ada\", \"tags\": [\"q\"]},"
	"\"people\": [{\"name\": \"Al\", \"age\": 3}, {\"name\": \"bo\", \"age\": 3}],"
	"\"messages\": [{\"role\": \"user\", \"content\": \"hi\"},"
	"{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"t\"}]}]}";

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

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
		if (!text != (err.what != TMPL_OK))
			abort();
		free(text);
		tmpl_free(t);
	} else if (err.what == TMPL_OK) {
		abort();
	}
	if (err.what != TMPL_OK && err.what != TMPL_RAISED &&
	    (!err.text[0] || strchr(err.text, '\n')))
		abort();
	return 0;
}

#ifndef FUZZ_LIB
/* ---- by itself ---- */

#include "tests/fuzz/blind.h"

#define INPUT_MAX	4096
#define LINES_MAX	8192

static char *lines[LINES_MAX];
static u32 nr_lines;
/* Pieces that the language is made of */
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

static size_t mutate(char *buf, size_t len)
{
	const char *p = words[draw(ARRAY_SIZE(words))];
	size_t at = draw((u32)len + 1);
	char byte;

	switch (draw(6)) {
	case 0:
		return put_piece(buf, len, INPUT_MAX, at, draw(8), "", 0);
	case 1:
		byte = (char)draw(256);
		return put_piece(buf, len, INPUT_MAX, at, 1, &byte, 1);
	case 2:
		p = lines[draw(nr_lines)];
		p += draw((u32)strlen(p) + 1);
		return put_piece(buf, len, INPUT_MAX, at, draw(16), p,
			      draw((u32)strlen(p) + 1));
	default:
		return put_piece(buf, len, INPUT_MAX, at, draw(3), p, strlen(p));
	}
}

static int lines_read(const char *path)
{
	FILE *f = fopen(path, "re");
	size_t cap = 0;
	char *line;

	if (!f) {
		fprintf(stderr, "fuzz_template: %s: %s\n", path,
			strerror(errno));
		return 1;
	}
	while (nr_lines < LINES_MAX) {
		line = NULL;
		cap = 0;
		if (getline(&line, &cap, f) < 0) {
			free(line);
			break;
		}
		lines[nr_lines++] = line;
	}
	fclose(f);
	return 0;
}

int main(int argc, char **argv)
{
	u64 rounds, i;
	char buf[INPUT_MAX + 1];
	size_t len;
	u32 n;
	int k;

	rounds = blind_begin(argc, argv, "fuzz_template", 1);
	for (k = 3; k < argc; k++)
		if (lines_read(argv[k]))
			return 1;
	for (i = 0; i < rounds && nr_lines; i++) {
		len = put_piece(buf, 0, INPUT_MAX, 0, 0, lines[draw(nr_lines)], 0);
		for (n = 1 + draw(3); n--; ) {
			const char *line = lines[draw(nr_lines)];

			len = put_piece(buf, len, INPUT_MAX, len, 0, line, strlen(line));
		}
		for (n = draw(12); n--; )
			len = mutate(buf, len);
		LLVMFuzzerTestOneInput((u8 *)buf, len);
	}
	for (n = 0; n < nr_lines; n++)
		free(lines[n]);
	printf("total: %llu templates\n", (unsigned long long)rounds);
	return 0;
}
#endif
