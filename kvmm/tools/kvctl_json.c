// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_json.c - the daemon's text as JSON
 *
 * The list of patterns below has the form of each file.  A file that matches none,
 * such as a new one of a newer daemon, is one string.  Figures become numbers, a
 * dash null, other words strings as they are shown.  The text has names that
 * clients chose in escaped form, so a string here is printable ASCII, and the word
 * to use in a path.  Bytes that are not UTF-8, which no kvmm sends, are escaped in
 * the same way.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include <kvmm/log.h>

#include "kvmm/tools/kvctl.h"

#define ROW_WORDS	64	/* columns of a table */

enum form {
	FORM_TEXT,	/* a string */
	FORM_VALUE,	/* one word */
	FORM_KEYS,	/* Key: value, and perhaps a unit */
	FORM_PAIRS,	/* key value */
	FORM_TABLE,	/* a line of names, then rows */
	FORM_PRESSURE,	/* some avg10=0.00 ..., full ... */
};

/* In a pattern, * stands for one component. */
static const struct {
	const char	*path;
	enum form	form;
} forms[] = {
	{ "status", FORM_KEYS }, { "meminfo", FORM_KEYS },
	{ "vmstat", FORM_PAIRS }, { "swapstat", FORM_PAIRS },
	{ "swaps", FORM_TABLE }, { "swapareas", FORM_TABLE },
	{ "lru_gen", FORM_TABLE }, { "extentinfo", FORM_TABLE },
	{ "tenants", FORM_TABLE }, { "domains", FORM_TABLE },
	{ "clients", FORM_TABLE }, { "pools", FORM_TABLE },
	{ "pressure/*", FORM_PRESSURE },
	{ "pool/*/size", FORM_VALUE }, { "pool/*/shrink/*", FORM_TABLE }, { "sys/vm/*", FORM_VALUE },
	{ "domain/*/status", FORM_KEYS }, { "domain/*/blockstates", FORM_PAIRS },
	{ "domain/*/groups", FORM_TABLE }, { "domain/*/lru_gen", FORM_TABLE },
	{ "domain/*/memory.weight", FORM_VALUE },
	{ "domain/*/memory.pressure", FORM_PRESSURE },
	{ "domain/*/io.pressure", FORM_PRESSURE },
	{ "domain/*/memory.events", FORM_PAIRS },
	{ "domain/*/memory.*", FORM_PAIRS },
	{ "client/*/status", FORM_KEYS }, { "client/*/seqs", FORM_TABLE },
	{ "client/*/leases", FORM_TABLE },
	{ "client/*/seq/*/explain", FORM_KEYS },
};

static bool path_matches(const char *p, const char *path)
{
	for (; *p && *path; p++, path++) {
		if (*p == '*') {
			path += strcspn(path, "/");
			return !*path || path[0] == '/' ?
			       path_matches(p + 1, path) : false;
		}
		if (*p != *path)
			return false;
	}
	if (*p == '*')
		return path_matches(p + 1, path);
	return !*p && !*path;
}

static enum form form_of(const char *path)
{
	u32 i;

	path += *path == '/';
	for (i = 0; i < ARRAY_SIZE(forms); i++)
		if (path_matches(forms[i].path, path))
			return forms[i].form;
	return FORM_TEXT;
}

/* Make a string of any @len bytes. */
json_t *kvctl_json_string(const char *s, size_t len)
{
	json_t *v = json_stringn(s, len);
	char *safe, *q;
	size_t i;

	if (v)
		return v;
	safe = malloc(4 * len + 1);
	if (!safe)
		return NULL;
	for (q = safe, i = 0; i < len; i++) {
		if (s[i] >= ' ' && s[i] <= '~')
			*q++ = s[i];
		else
			q += sprintf(q, "\\%03o", (u8)s[i]);
	}
	v = json_stringn(safe, (size_t)(q - safe));
	free(safe);
	return v;
}

/* Make a number of a word that JSON accepts as one, else a string. */
static json_t *json_word(const char *s, size_t len)
{
	char buf[40], *end;
	long long number;
	double real;

	if (len == 1 && *s == '-')
		return json_null();
	if (len && len < sizeof(buf) && (isdigit((u8)*s) || *s == '-')) {
		memcpy(buf, s, len);
		buf[len] = '\0';
		errno = 0;
		number = strtoll(buf, &end, 10);
		/* Whole words only: an epoch in hexadecimal may begin with digits. */
		if (!*end && !errno)
			return json_integer(number);
		if (buf[strspn(buf, "-0123456789.")] == '\0') {
			real = strtod(buf, &end);
			if (!*end)
				return json_real(real);
		}
	}
	return kvctl_json_string(s, len);
}

/* Keys whose words stay strings, even if a word looks like a number. */
static bool is_name(const char *key, size_t len)
{
	static const char * const names[] = {
		"name", "comm", "tenant", "state", "Filename", "Name", "Tenant",
		"Domain", "Socket", "Epoch", "Sequence", "WaitsFor", "LastBy",
		"LastBySeq", "label", "shard", "Shard",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == len && !memcmp(names[i], key, len))
			return true;
	return false;
}

/* The value at a key or in a column: always of the same type, or null. */
static json_t *json_at(const char *key, size_t klen, const char *s, size_t len)
{
	if (!is_name(key, klen) ||
	    (len == 1 && *s == '-' && *key != 'n' && *key != 'N'))
		return json_word(s, len);
	return kvctl_json_string(s, len);
}

/* Find the next line of @p, without its newline.  Return: false behind the last. */
static bool next_line(const char **p, const char **line, size_t *len)
{
	if (!**p)
		return false;
	*line = *p;
	*len = strcspn(*p, "\n");
	*p += *len + ((*p)[*len] == '\n');
	return true;
}

/* Split a line at blanks and tabs.  Return: number of words. */
static u32 split(const char *line, size_t len, const char **word, size_t *wlen)
{
	const char *end = line + len;
	u32 nr = 0;

	while (nr < ROW_WORDS) {
		while (line < end && isspace((u8)*line))
			line++;
		if (line == end)
			break;
		word[nr] = line;
		while (line < end && !isspace((u8)*line))
			line++;
		wlen[nr] = (size_t)(line - word[nr]);
		nr++;
	}
	return nr;
}

static void set_named(json_t *o, const char *name, size_t len, json_t *v)
{
	char key[80];

	snprintf(key, sizeof(key), "%.*s", (int)len, name);
	json_object_set_new(o, key, v);
}

/* Parse `Name:<tab>value`; a value with a unit, as in `Name:  12 kB`, is Name_kb. */
static json_t *json_keys(const char *p)
{
	json_t *o = json_object();
	const char *line, *v, *colon;
	char key[80];
	size_t len, n;

	while (next_line(&p, &line, &len)) {
		colon = memchr(line, ':', len);
		if (!colon)
			continue;
		for (v = colon + 1; v < line + len && isspace((u8)*v); v++)
			;
		n = (size_t)(line + len - v);
		snprintf(key, sizeof(key), "%.*s", (int)(colon - line), line);
		if (n > 3 && !memcmp(v + n - 3, " kB", 3) && isdigit((u8)*v)) {
			n -= 3;
			strncat(key, "_kb", sizeof(key) - strlen(key) - 1);
		}
		json_object_set_new(o, key, json_at(line, (size_t)(colon - line),
						    v, n));
	}
	return o;
}

static json_t *json_pairs(const char *p)
{
	const char *line, *word[ROW_WORDS];
	size_t len, wlen[ROW_WORDS];
	json_t *o = json_object();

	while (next_line(&p, &line, &len))
		if (split(line, len, word, wlen) == 2)
			set_named(o, word[0], wlen[0],
				  json_word(word[1], wlen[1]));
	return o;
}

/* Parse `some avg10=0.00 ... total=0`. */
static json_t *json_pressure(const char *p)
{
	const char *line, *word[ROW_WORDS], *eq;
	size_t len, wlen[ROW_WORDS];
	json_t *o = json_object(), *one;
	u32 nr, i;

	while (next_line(&p, &line, &len)) {
		nr = split(line, len, word, wlen);
		one = json_object();
		for (i = 1; i < nr; i++) {
			eq = memchr(word[i], '=', wlen[i]);
			if (eq)
				set_named(one, word[i], (size_t)(eq - word[i]),
					  json_word(eq + 1, (size_t)(word[i] +
						    wlen[i] - eq - 1)));
		}
		if (nr)
			set_named(o, word[0], wlen[0], one);
		else
			json_decref(one);
	}
	return o;
}

/* Make an object of each row; lines with # (`# begin`, `# end`) are left out. */
static json_t *json_table(const char *p)
{
	const char *line, *head[ROW_WORDS], *word[ROW_WORDS];
	size_t len, hlen[ROW_WORDS], wlen[ROW_WORDS];
	json_t *rows = json_array(), *row;
	u32 nr_head = 0, nr, i;

	while (next_line(&p, &line, &len)) {
		if (len && *line == '#')
			continue;
		if (!nr_head) {
			nr_head = split(line, len, head, hlen);
			continue;
		}
		nr = split(line, len, word, wlen);
		row = json_object();
		for (i = 0; i < nr && i < nr_head; i++)
			set_named(row, head[i], hlen[i],
				  json_at(head[i], hlen[i], word[i], wlen[i]));
		json_array_append_new(rows, row);
	}
	return rows;
}

/**
 * kvctl_json() - convert the text of a file
 * @path: path of the file
 * @m:    its text
 *
 * Return: the value; the caller must call json_decref().
 */
json_t *kvctl_json(const char *path, const struct seq_file *m)
{
	const char *text = seq_text(m);

	switch (form_of(path)) {
	case FORM_VALUE:
		return json_word(text, strcspn(text, "\n"));
	case FORM_KEYS:
		return json_keys(text);
	case FORM_PAIRS:
		return json_pairs(text);
	case FORM_TABLE:
		return json_table(text);
	case FORM_PRESSURE:
		return json_pressure(text);
	default:
		return kvctl_json_string(text, m->count);
	}
}

static const char *json_rundir;

void kvctl_json_of(const char *rundir)
{
	json_rundir = rundir;
}

/* kvctl_print_json() - print and release @v; an exit code */
int kvctl_print_json(json_t *v)
{
	int err;

	if (v && json_rundir)
		v = json_pack("{s:o, s:o}", "rundir", kvctl_json_string(
			      json_rundir, strlen(json_rundir)), "value", v);
	err = v ? json_dumpf(v, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY |
			     JSON_ENSURE_ASCII) : -1;

	json_decref(v);
	if (!err && putchar('\n') != EOF && !fflush(stdout))
		return EXIT_SUCCESS;
	pr_err("stdout: %s: the answer was not written", strerror(errno));
	return EX_IOERR;
}
