// SPDX-License-Identifier: Apache-2.0
/*
 * report.c - a table of figures for people, an array of them for programs
 *
 *	bench-report OUT.json FIGURES..
 *
 * A benchmark writes one JSON object a line, a figure each:
 *
 *	name		name of the figure, unique in a run
 *	value, unit	the figure; the unit is a short word ("us", "tokens/s")
 *	peer		name of the peer, measured in the same run, or null
 *	peer_value	the peer's figure in the same unit, or null
 *	ratio		value / peer_value, or null
 *	goal		the aim, in words ("ratio <= 3"), or null
 *	ok		whether the goal was met, or null if there is none
 *
 * name, value and unit are required; any other missing key becomes null, and an
 * unknown key is kept.  All figures go to OUT.json as one array, one figure a
 * line, put in place by rename so that a reader never sees half of it.  A line
 * that breaks the rules is named and left out, and the exit status is 1.  A
 * missed goal is shown but is no error: it depends on the machine, and the reader
 * of the array decides.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define LINE_MAX_BYTES	65536

static int nr_errors;

static void __attribute__((format(printf, 3, 4)))
complain(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "bench-report: error: %s:%d: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	nr_errors++;
}

/* The keys in the order in which they are written. */
static const struct figure_key {
	const char *name;
	bool required;
	char type;		/* s: string, n: number, b: bool */
} figure_keys[] = {
	{ "name",	true,	's' },
	{ "value",	true,	'n' },
	{ "unit",	true,	's' },
	{ "peer",	false,	's' },
	{ "peer_value",	false,	'n' },
	{ "ratio",	false,	'n' },
	{ "goal",	false,	's' },
	{ "ok",		false,	'b' },
};

#define NR_KEYS	(sizeof(figure_keys) / sizeof(figure_keys[0]))

static bool key_type_is(const json_t *v, char type)
{
	if (type == 's')
		return json_is_string(v);
	if (type == 'n')
		return json_is_number(v);
	return json_is_boolean(v);
}

/*
 * Check @in and build the figure that is kept: known keys first, in order.
 * Return: a new reference, or NULL after a complaint.
 */
static json_t *figure_normalize(const char *file, int line, json_t *in)
{
	json_t *out = json_object();
	const struct figure_key *k;
	json_t *v;
	size_t i;

	for (i = 0; i < NR_KEYS; i++) {
		k = &figure_keys[i];
		v = json_object_get(in, k->name);
		if (!v || json_is_null(v)) {
			if (k->required) {
				complain(file, line, "\"%s\" is missing",
					 k->name);
				goto out_drop;
			}
			json_object_set_new(out, k->name, json_null());
			continue;
		}
		if (!key_type_is(v, k->type)) {
			complain(file, line, "\"%s\" is no %s", k->name,
				 k->type == 's' ? "string" :
				 k->type == 'n' ? "number" : "true or false");
			goto out_drop;
		}
		json_object_set(out, k->name, v);
	}
	json_object_update_missing(out, in);
	return out;

out_drop:
	json_decref(out);
	return NULL;
}

static bool name_is_taken(const json_t *figures, const char *name)
{
	const json_t *other;
	size_t i;

	json_array_foreach(figures, i, other) {
		if (!strcmp(json_string_value(json_object_get(other, "name")),
			    name))
			return true;
	}
	return false;
}

static void add_line(json_t *figures, const char *file, int line,
		     const char *text)
{
	json_error_t err;
	json_t *in, *fig;
	const char *name;

	in = json_loads(text, JSON_REJECT_DUPLICATES, &err);
	if (!in) {
		complain(file, line, "not a JSON object: %s", err.text);
		return;
	}
	fig = figure_normalize(file, line, in);
	json_decref(in);
	if (!fig)
		return;

	name = json_string_value(json_object_get(fig, "name"));
	if (name_is_taken(figures, name)) {
		complain(file, line, "a second figure called \"%s\"", name);
		json_decref(fig);
		return;
	}
	json_array_append_new(figures, fig);
}

static void add_file(json_t *figures, const char *file)
{
	static char text[LINE_MAX_BYTES];
	size_t before = json_array_size(figures);
	int line = 0;
	FILE *f;

	f = fopen(file, "r");
	if (!f) {
		complain(file, 0, "cannot be read");
		return;
	}
	while (fgets(text, sizeof(text), f)) {
		line++;
		if (text[strspn(text, " \t\r\n")])
			add_line(figures, file, line, text);
	}
	fclose(f);
	if (json_array_size(figures) == before)
		complain(file, line, "no figure in it");
}

/* Four digits, and no exponent where people would not write one. */
static const char *show_number(const json_t *v, char *buf, size_t size)
{
	double d = json_number_value(v);

	if (!json_is_number(v))
		snprintf(buf, size, "-");
	else if ((d >= 1e4 && d < 1e12) || (d <= -1e4 && d > -1e12))
		snprintf(buf, size, "%.0f", d);
	else
		snprintf(buf, size, "%.4g", d);
	return buf;
}

static void print_figure(const json_t *fig)
{
	const char *peer = json_string_value(json_object_get(fig, "peer"));
	const char *goal = json_string_value(json_object_get(fig, "goal"));
	const json_t *ok = json_object_get(fig, "ok");
	char value[32], peer_value[32], ratio[32];

	show_number(json_object_get(fig, "value"), value, sizeof(value));
	show_number(json_object_get(fig, "peer_value"), peer_value,
		    sizeof(peer_value));
	show_number(json_object_get(fig, "ratio"), ratio, sizeof(ratio));
	printf("%-36s %12s %-9s %12s %7s  %-5s %s%s%s%s\n",
	       json_string_value(json_object_get(fig, "name")), value,
	       json_string_value(json_object_get(fig, "unit")),
	       peer_value, ratio,
	       json_is_true(ok) ? "met" : json_is_false(ok) ? "MISS" : "-",
	       goal ? goal : "", goal && peer ? "; " : "",
	       peer ? "peer: " : "", peer ? peer : "");
}

static void print_table(const json_t *figures)
{
	int goals = 0, met = 0;
	const json_t *fig, *ok;
	size_t i;

	printf("%-36s %12s %-9s %12s %7s  %s\n", "figure", "value", "unit",
	       "peer", "ratio", "goal");
	json_array_foreach(figures, i, fig) {
		print_figure(fig);
		ok = json_object_get(fig, "ok");
		goals += json_is_boolean(ok);
		met += json_is_true(ok);
	}
	printf("\n%zu figures, %d of %d goals met\n", json_array_size(figures),
	       met, goals);
}

/* Print one figure a line.  Return: false if the disk took only a part. */
static bool print_array(const json_t *figures, FILE *f)
{
	size_t i, nr = json_array_size(figures);
	bool ok = fputs("[\n", f) >= 0;
	char *text;

	for (i = 0; i < nr; i++) {
		text = json_dumps(json_array_get(figures, i),
				  JSON_REAL_PRECISION(9));
		ok = ok && text && fprintf(f, "%s%s\n", text,
					   i + 1 < nr ? "," : "") >= 0;
		free(text);
	}
	return fputs("]\n", f) >= 0 && ok;
}

static void write_array(const json_t *figures, const char *path)
{
	char tmp[4096];
	bool ok;
	FILE *f;

	if (snprintf(tmp, sizeof(tmp), "%s.new", path) >= (int)sizeof(tmp)) {
		complain(path, 0, "the path is too long");
		return;
	}
	f = fopen(tmp, "w");
	if (!f) {
		complain(tmp, 0, "cannot be written");
		return;
	}
	ok = print_array(figures, f);
	if (fclose(f) || !ok || rename(tmp, path)) {
		complain(path, 0, "writing it failed");
		remove(tmp);
	}
}

int main(int argc, char **argv)
{
	json_t *figures;
	int i;

	if (argc < 3) {
		fprintf(stderr, "usage: bench-report OUT.json FIGURES..\n");
		return 2;
	}
	figures = json_array();
	for (i = 2; i < argc; i++)
		add_file(figures, argv[i]);
	print_table(figures);
	write_array(figures, argv[1]);
	json_decref(figures);
	return nr_errors ? 1 : 0;
}
