// SPDX-License-Identifier: Apache-2.0
/*
 * kvctl_why.c - the table of kvctl explain
 *
 * One line a sequence: the longest waiting first, then running sequences that lost
 * memory once.  The line above the table counts sequences by cause.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "kvmm/tools/kvctl.h"

#define CAUSES_MAX	32	/* causes in the first line */

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "-";
}

static s64 num(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static bool waits(const json_t *o)
{
	return strcmp(str(o, "State"), "ready");
}

/* Waiting sequences first, the longest wait first; then by number of losses. */
static int by_wait(const void *a, const void *b)
{
	const json_t *x = *(json_t * const *)a, *y = *(json_t * const *)b;
	const char *key = waits(x) ? "WaitsMs" : "Preempted";

	if (waits(x) != waits(y))
		return waits(x) ? -1 : 1;
	return (num(x, key) < num(y, key)) - (num(x, key) > num(y, key));
}

struct cause {
	const char	*name;
	u32		nr;
};

static int by_number(const void *a, const void *b)
{
	const struct cause *x = a, *y = b;

	return (x->nr < y->nr) - (x->nr > y->nr);
}

/* Print "17 wait: 12 memory, 3 line, 2 maps; 4 run". */
static void print_sum(FILE *out, json_t * const *row, size_t nr, u64 running)
{
	struct cause cause[CAUSES_MAX] = { { NULL, 0 } };
	u32 waiting = 0, used = 0, n;
	size_t i;

	for (i = 0; i < nr && waits(row[i]); i++) {
		const char *name = str(row[i], "Waits");

		waiting++;
		for (n = 0; n < used && strcmp(cause[n].name, name); n++)
			;
		if (n == CAUSES_MAX)
			continue;
		used = max(used, n + 1);
		cause[n].name = name;
		cause[n].nr++;
	}
	qsort(cause, used, sizeof(*cause), by_number);
	fprintf(out, "%u wait", waiting);
	for (n = 0; n < used; n++)
		fprintf(out, "%s%u %s", n ? ", " : ": ", cause[n].nr, cause[n].name);
	fprintf(out, "; %" PRIu64 " run\n", running);
}

/* kvctl_format_ms() - a time in few columns: 850ms, 12.3s, 14m02s, 3h05m */
void kvctl_format_ms(s64 ms, char *buf, size_t len)
{
	const s64 s = ms / 1000;

	if (ms < 1000)
		snprintf(buf, len, "%" PRId64 "ms", ms);
	else if (s < 100)
		snprintf(buf, len, "%" PRId64 ".%" PRId64 "s", s,
			 ms % 1000 / 100);
	else if (s < 6000)
		snprintf(buf, len, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
	else
		snprintf(buf, len, "%" PRId64 "h%02" PRId64 "m", s / 3600,
			 s / 60 % 60);
}

/*
 * The cause of the last preemption.  The daemon's text is the thing that took the
 * memory, or a clause of its own.
 */
static void format_loss(const json_t *o, char *buf, size_t len)
{
	static const char * const clauses[] = { "itself", "advice", "lost" };
	const char *cause = str(o, "LastCause"), *why = str(o, "LastWhy");
	size_t i;

	for (i = 0; i < ARRAY_SIZE(clauses) && strcmp(cause, clauses[i]); i++)
		;
	if (!strcmp(cause, "device"))
		snprintf(buf, len, "it runs; it lost its memory with the device");
	else
		snprintf(buf, len, "it runs; it lost its memory%s %s",
			 i < ARRAY_SIZE(clauses) ? ":" : " to", why);
}

/* The reason in words: of the first sequence for one that waits in line. */
static void format_reason(const json_t *o, char *buf, size_t len)
{
	const char *first = str(o, "FirstWaits"), *dom = str(o, "WaitsFor");

	if (!waits(o))
		format_loss(o, buf, len);
	else if (strcmp(first, "-"))
		snprintf(buf, len, "its turn: the first in line waits for %s", first);
	else if (strcmp(dom, "-"))
		snprintf(buf, len, "for %s: %s", dom, str(o, "Why"));
	else
		snprintf(buf, len, "%s", str(o, "Why"));
}

static void print_row(FILE *out, const json_t *o, int cols)
{
	char wait[24] = "-", why[256], line[400];

	if (waits(o))
		kvctl_format_ms(num(o, "WaitsMs"), wait, sizeof(wait));
	format_reason(o, why, sizeof(why));
	snprintf(line, sizeof(line), "%9s %7s %-8s %5" PRId64 " %5" PRId64 " %4"
		 PRId64 "  %s", str(o, "Sequence"), wait,
		 waits(o) ? str(o, "Waits") : "-", num(o, "Ahead"),
		 num(o, "NeedsBlocks"), num(o, "Preempted"), why);
	if (cols && strlen(line) > (size_t)cols)
		strcpy(line + cols - 1, "+");
	fprintf(out, "%s\n", line);
}

/**
 * kvctl_explain_table() - print explained sequences, one line each
 * @all:     their files as JSON
 * @running: number of sequences that run
 * @room:    most lines of sequences
 * @cols:    columns of a line; 0: as many as it needs
 *
 * Return: exit code.
 */
int kvctl_explain_table(FILE *out, const json_t *all, u64 running, size_t room,
			int cols)
{
	const size_t nr = json_array_size(all);
	json_t **row = calloc(nr + 1, sizeof(*row));
	size_t i;

	if (!row)
		return EX_OSERR;
	for (i = 0; i < nr; i++)
		row[i] = json_array_get(all, i);
	qsort(row, nr, sizeof(*row), by_wait);
	print_sum(out, row, nr, running);
	fprintf(out, "%9s %7s %-8s %5s %5s %4s  %s\n", "SEQ", "WAITED", "CAUSE",
		"AHEAD", "NEEDS", "LOST", "WHY");
	for (i = 0; i < nr && i < room; i++)
		print_row(out, row[i], cols);
	if (i < nr)
		fprintf(out, "%zu more are not shown: a pipe gets all, like kvctl explain | less\n",
			nr - i);
	free(row);
	return fflush(out) ? EX_IOERR : EXIT_SUCCESS;
}
