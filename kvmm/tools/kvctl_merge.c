// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_merge.c - put the running state into the text of a file of options
 *
 * Only lines with a key that the daemon changes at run time are touched: area, domain
 * and the tunables, below [kvmm] or before any section.  A line with the running value
 * stays as its author wrote it.  A line with another value keeps its place and
 * its comment.  The line of an area that is not in use is removed, and so is the line
 * of a domain without limits or of a tunable at its default.  New lines stand behind the
 * last line of these keys, else at the end of the section.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvmm/area_opt.h>
#include <kvmm/domain_opt.h>
#include <kvmm/tunables.h>

#include "kvmm/tools/kvctl_merge.h"

#define LINES_MOST	(2 * KV_LIST_MAX + 16)
#define LINE_MOST	4608

/* One line that the daemon wants; @key and @value point into a copy of its text. */
struct want {
	char	*key;
	char	*value;
	bool	done;
};

/**
 * struct merge - the work
 * @ours:  the section is [kvmm]
 * @found: a line of ours was there
 * @at:    offset in @out for new lines
 */
struct merge {
	struct want	want[LINES_MOST];
	u32		nr;
	bool		ours;
	bool		found;
	size_t		at;
	struct seq_file	*out;
	struct seq_file	*diff;
};

static bool is_owned(const char *key)
{
	static const char * const keys[] = {
#define x(type, name, opt, ...) opt,
		KVMM_TUNABLES(x)
#undef x
		"area", "domain",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(keys); i++)
		if (!strcmp(key, keys[i]))
			return true;
	return false;
}

static char *trim(char *s)
{
	char *end = s + strlen(s);

	while (end > s && isspace((unsigned char)end[-1]))
		end--;
	*end = '\0';
	return s + strspn(s, " \t\r");
}

/* The comment at the end of a line, with the blanks before it, or its end. */
static const char *comment_of(const char *line, size_t len)
{
	const char *p, *end = line + len;

	for (p = line; p < end; p++)
		if (*p == '#' && (p == line || p[-1] == ' ' || p[-1] == '\t'))
			break;
	while (p > line && (p[-1] == ' ' || p[-1] == '\t'))
		p--;
	return p;
}

bool kvctl_is_options(const char *text, size_t len)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
	size_t n;

	if (strlen(text) != len)
		return false;
	for (; *text; text += n, text += *text == '\n') {
		n = strcspn(text, "\n");
		text += strspn(text, " \t\r");
		if (!*text || *text == '\n' || *text == '#' || *text == '[') {
			n = strcspn(text, "\n");
			continue;
		}
		text += strspn(text, letters);
		text += strspn(text, " \t");
		if (*text != '=')
			return false;
		n = strcspn(text, "\n");
	}
	return true;
}

/* ---- lines of the daemon ---- */

static u32 domains_of(const struct merge *m)
{
	u32 i, nr = 0;

	for (i = 0; i < m->nr; i++)
		nr += !strcmp(m->want[i].key, "domain");
	return nr;
}

static int take_wants(struct merge *m, char *text)
{
	char *save = NULL, *line, *eq;

	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		eq = strchr(line, '=');
		if (*line == '#' || !eq)
			continue;
		if (m->nr == LINES_MOST)
			return -E2BIG;
		*eq = '\0';
		/* The daemon that answered need not be trusted: no other key is written. */
		if (!is_owned(trim(line)))
			continue;
		m->want[m->nr].key = trim(line);
		m->want[m->nr++].value = trim(eq + 1);
	}
	return domains_of(m) > KV_LIST_MAX ? -E2BIG : 0;
}

/* The wanted line that a line of the file stands for. */
static struct want *want_of(struct merge *m, const char *key, const char *value)
{
	const bool list = !strcmp(key, "area") || !strcmp(key, "domain");
	const size_t n = strcspn(value, ",");
	u32 i;

	for (i = 0; i < m->nr; i++) {
		struct want *w = &m->want[i];

		if (!w->done && !strcmp(w->key, key) &&
		    (!list || (strcspn(w->value, ",") == n &&
			       !strncmp(w->value, value, n))))
			return w;
	}
	return NULL;
}

static bool same_area(const char *a, const char *b)
{
	struct area_opt *x = calloc(2, sizeof(*x)), *y = x ? x + 1 : NULL;
	char why[256];
	bool same = x && !area_opt_parse(x, a, why, sizeof(why)) &&
		    !area_opt_parse(y, b, why, sizeof(why)) &&
		    x->keys.priority == y->keys.priority &&
		    (!x->keys.size || x->keys.size == y->keys.size);

	free(x);
	return same;
}

static bool same_domain(const char *a, const char *b)
{
	struct domain_opt x, y;
	char why[256];

	return !domain_opt_parse(&x, a, why, sizeof(why)) &&
	       !domain_opt_parse(&y, b, why, sizeof(why)) &&
	       x.given == y.given && !memcmp(x.limit, y.limit, sizeof(x.limit));
}

/* Does the value of the file mean the running one?  An area may leave its size out. */
static bool same_value(const char *key, const char *file, const char *runs)
{
	u64 a, b;

	if (!strcmp(key, "area"))
		return same_area(file, runs);
	if (!strcmp(key, "domain"))
		return same_domain(file, runs);
	return !kv_parse_uint(file, &a) && !kv_parse_uint(runs, &b) && a == b;
}

/* ---- lines of the file ---- */

static void keep(struct merge *m, const char *line, size_t len)
{
	seq_write(m->out, line, len);
	seq_putc(m->out, '\n');
}

/* A line with a key of ours.  Return: false: it is none. */
static bool take_owned(struct merge *m, const char *line, size_t len)
{
	const size_t end = (size_t)(comment_of(line, len) - line);
	char copy[LINE_MOST], *eq, *key, *value;
	struct want *w;

	if (end >= sizeof(copy))
		return false;
	memcpy(copy, line, end);
	copy[end] = '\0';
	eq = strchr(copy, '=');
	if (!eq)
		return false;
	*eq = '\0';
	key = trim(copy);
	value = trim(eq + 1);
	if (!is_owned(key))
		return false;
	w = want_of(m, key, value);
	m->found = true;
	if (w && same_value(key, value, w->value)) {
		keep(m, line, len);
	} else {
		seq_printf(m->diff, "- %s = %s\n", key, value);
		if (w) {
			seq_printf(m->diff, "+ %s = %s\n", key, w->value);
			seq_write(m->out, line, (size_t)(key - copy));
			seq_printf(m->out, "%s = %s", key, w->value);
			keep(m, line + end, len - end);
		}
	}
	if (w)
		w->done = true;
	m->at = m->out->count;
	return true;
}

static void take_line(struct merge *m, const char *line, size_t len)
{
	const size_t indent = strspn(line, " \t\r");

	if (indent < len && line[indent] == '[') {
		m->ours = !strncmp(line + indent, "[kvmm]", 6);
	} else if (m->ours && take_owned(m, line, len)) {
		return;
	}
	keep(m, line, len);
	/* A comment right above the next section belongs to it. */
	if (m->ours && !m->found && (indent >= len || line[indent] != '#'))
		m->at = m->out->count;
}

static void take_file(struct merge *m, const char *text)
{
	const char *end;

	m->ours = true;
	for (; *text; text = *end ? end + 1 : end) {
		end = strchrnul(text, '\n');
		take_line(m, text, (size_t)(end - text));
	}
	if (m->ours && !m->found)
		m->at = m->out->count;
}

/* Return: 0 or -ENOMEM, with the text as it was. */
static int add_missing(struct merge *m)
{
	char *rest = strdup(seq_text(m->out) + m->at);
	u32 i;

	if (!rest)
		return -ENOMEM;
	m->out->count = m->at;
	for (i = 0; i < m->nr; i++) {
		if (m->want[i].done)
			continue;
		seq_printf(m->out, "%s = %s\n", m->want[i].key, m->want[i].value);
		seq_printf(m->diff, "+ %s = %s\n", m->want[i].key,
			   m->want[i].value);
	}
	seq_puts(m->out, rest);
	free(rest);
	return 0;
}

int kvctl_merge(const char *file, const char *runs, struct seq_file *out,
		struct seq_file *diff)
{
	static struct merge m;
	char *copy = strdup(runs);
	int err;

	m = (struct merge){ .out = out, .diff = diff };
	err = copy ? take_wants(&m, copy) : -ENOMEM;
	if (!err) {
		take_file(&m, file);
		err = add_missing(&m);
		if (seq_error(out) || seq_error(diff))
			err = -ENOMEM;
	}
	free(copy);
	return err;
}
