// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_text.c - parse the text of the daemon's files, format figures
 *
 * Keys and columns are looked up by name, as Documentation/proc.md requires.  So
 * kvtop works with older and newer daemons: a missing key is no error.  Figures for
 * people have five columns at most.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvmm/tools/kvtop.h"

static u32 count_words(const char *line)
{
	u32 nr = 0;

	while (*(line += strspn(line, " \t")) && *line != '\n') {
		nr++;
		line += strcspn(line, " \t\n");
	}
	return nr;
}

/* Cut a line into @nr words at most; missing words become "". */
static void cut_words(char *line, const char **cell, u32 nr)
{
	char *save = NULL, *word;
	u32 i = 0;

	for (word = strtok_r(line, " \t", &save); word && i < nr;
	     word = strtok_r(NULL, " \t", &save))
		cell[i++] = word;
	for (; i < nr; i++)
		cell[i] = "";
}

int ktable_parse(struct ktable *t, const char *text)
{
	char *save = NULL, *line;
	u32 lines = 1;		/* the last line may have no newline */
	const char *p;

	ktable_free(t);
	for (p = text; *p; p++)
		lines += *p == '\n';
	while (*text == '#')
		text = strchrnul(text, '\n') + (strchr(text, '\n') ? 1 : 0);
	t->nr_cols = count_words(text);
	if (!t->nr_cols)
		return 0;
	t->text = strdup(text);
	t->cell = calloc((size_t)lines * t->nr_cols, sizeof(*t->cell));
	if (!t->text || !t->cell) {
		ktable_free(t);
		return -ENOMEM;
	}
	lines = 0;
	for (line = strtok_r(t->text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (*line != '#')
			cut_words(line, &t->cell[lines++ * t->nr_cols],
				  t->nr_cols);
	}
	t->nr_rows = lines - 1;
	return 0;
}

void ktable_free(struct ktable *t)
{
	free(t->text);
	free(t->cell);
	memset(t, 0, sizeof(*t));
}

const char *ktable_get(const struct ktable *t, u32 row, const char *column)
{
	u32 i;

	for (i = 0; i < t->nr_cols; i++)
		if (!strcmp(t->cell[i], column))
			return row < t->nr_rows ?
			       t->cell[(row + 1) * t->nr_cols + i] : NULL;
	return NULL;
}

bool ktable_num(const struct ktable *t, u32 row, const char *column, u64 *v)
{
	const char *s = ktable_get(t, row, column);
	char *end;

	if (!s || *s < '0' || *s > '9')
		return false;
	*v = strtoull(s, &end, 10);
	return !*end;
}

const char *keyed_get(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (; *text; text = *text ? text + 1 : text) {
		if (!strncmp(text, key, len) &&
		    (text[len] == ':' || text[len] == ' ')) {
			text += len + 1;
			return text + strspn(text, " \t");
		}
		text = strchrnul(text, '\n');
	}
	return NULL;
}

bool keyed_num(const char *text, const char *key, u64 *v)
{
	const char *s = keyed_get(text, key);

	if (!s || *s < '0' || *s > '9')
		return false;
	*v = strtoull(s, NULL, 10);
	return true;
}

double pressure_avg10(const char *text, const char *kind)
{
	const char *line = keyed_get(text, kind);

	if (!line || strncmp(line, "avg10=", 6))
		return -1;
	return strtod(line + 6, NULL);
}

/* Print three digits, or four below the next unit. */
static char *format_unit(double v, double step, const char *units, char *buf,
			 size_t len)
{
	while (v >= (step > 1000 ? 1023.5 : 999.5) && units[1]) {
		v /= step;
		units++;
	}
	if (v < 9.995)
		snprintf(buf, len, "%.2f%c", v, *units);
	else if (v < 99.95)
		snprintf(buf, len, "%.1f%c", v, *units);
	else
		snprintf(buf, len, "%.0f%c", v, *units);
	return buf;
}

char *format_kb(double kb, char *buf, size_t len)
{
	if (kb < 1023.5 && kb == floor(kb)) {
		snprintf(buf, len, kb > 0 ? "%.0fK" : "0", kb);
		return buf;
	}
	return format_unit(kb, 1024, "KMGTP", buf, len);
}

char *format_count(double n, char *buf, size_t len)
{
	if (n < 99999.5) {
		snprintf(buf, len, "%.0f", n);
		return buf;
	}
	return format_unit(n / 1000, 1000, "kMGT", buf, len);
}

char *format_rate(double n, char *buf, size_t len)
{
	if (n < 99.95) {
		snprintf(buf, len, "%.1f", n);
		return buf;
	}
	return format_count(n, buf, len);
}
