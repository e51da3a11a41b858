// SPDX-License-Identifier: Apache-2.0
/*
 * figure.c - figures of a GPU, for people and for programs
 *
 * A figure goes to standard output as a line of a table, and to the
 * descriptor that $KVMM_GPU_FIGURES names as one JSON object on one line,
 * written by one call: the process that reads them may end this one at any
 * instant.
 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/gpu.h"

#define LINE_BYTES	2048

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double gpu_percentile(const double *v, u32 nr, double percent)
{
	double *sorted, at;
	u32 i;

	if (!nr)
		return NAN;
	sorted = malloc(nr * sizeof(*v));
	if (!sorted)
		gpu_die("no memory for %u values", nr);
	memcpy(sorted, v, nr * sizeof(*v));
	qsort(sorted, nr, sizeof(*v), by_value);
	i = (u32)(percent / 100.0 * nr);
	at = sorted[i < nr ? i : nr - 1];
	free(sorted);
	return at;
}

double gpu_median(const double *v, u32 nr)
{
	return gpu_percentile(v, nr, 50);
}

/* A control character becomes a blank: quoted() writes no other escapes. */
static void quoted(char *to, size_t size, const char *text)
{
	size_t n = 0;

	for (; *text && n + 2 < size; text++) {
		if (*text == '"' || *text == '\\')
			to[n++] = '\\';
		to[n++] = *text < ' ' || *text > '~' ? ' ' : *text;
	}
	to[n] = '\0';
}

static int figures_fd(void)
{
	const char *fd = getenv("KVMM_GPU_FIGURES");

	return fd ? atoi(fd) : -1;
}

static size_t append(char *line, size_t n, const char *fmt, ...) __printf(3, 4);
static size_t append(char *line, size_t n, const char *fmt, ...)
{
	va_list ap;
	int got;

	va_start(ap, fmt);
	got = vsnprintf(line + n, LINE_BYTES - n, fmt, ap);
	va_end(ap);
	return got < 0 || n + got >= LINE_BYTES ? LINE_BYTES - 1 : n + got;
}

static void write_json(const struct gpu_line *l, const double *v, u32 nr,
		       const char *name)
{
	char line[LINE_BYTES], text[1024];
	double value = gpu_median(v, nr);
	int fd = figures_fd();
	size_t n = 0;

	if (fd < 0)
		return;
	quoted(text, sizeof(text), name);
	n = append(line, n, "{\"name\": \"%s\", \"value\": %.9g, \"unit\": \"%s\"",
		   text, value, l->unit);
	if (l->peer) {
		quoted(text, sizeof(text), l->peer);
		n = append(line, n, ", \"peer\": \"%s\", \"peer_value\": %.9g",
			   text, l->peer_value);
		if (l->peer_value)
			n = append(line, n, ", \"ratio\": %.6g",
				   value / l->peer_value);
	}
	n = append(line, n, ", \"low\": %.9g, \"high\": %.9g, \"repeats\": %u",
		   gpu_percentile(v, nr, 0), gpu_percentile(v, nr, 100), nr);
	if (l->note) {
		quoted(text, sizeof(text), l->note);
		n = append(line, n, ", \"note\": \"%s\"", text);
	}
	n = append(line, n, "}\n");
	if (write(fd, line, n) != (ssize_t)n)
		gpu_die("a figure could not be written");
}

static void show(const struct gpu_line *l, const double *v, u32 nr,
		 const char *name)
{
	double value = gpu_median(v, nr);

	printf("%-44s %12.5g %-9s", name, value, l->unit);
	if (nr > 1)
		printf(" %10.4g..%-10.4g x%-3u", gpu_percentile(v, nr, 0),
		       gpu_percentile(v, nr, 100), nr);
	else
		printf(" %27s", "");
	if (l->peer && l->peer_value)
		printf(" %6.3f of %s", value / l->peer_value, l->peer);
	if (l->note)
		printf(" %s", l->note);
	putchar('\n');
	fflush(stdout);
}

static void emit(const struct gpu_line *l, const double *v, u32 nr,
		 const char *name)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		if (!isfinite(v[i])) {
			gpu_failed("a value that is no number", "%s", name);
			return;
		}
	}
	show(l, v, nr, name);
	write_json(l, v, nr, name);
}

void gpu_emit(const struct gpu_line *l, const double *v, u32 nr,
	      const char *name, ...)
{
	char text[128];
	va_list ap;

	va_start(ap, name);
	vsnprintf(text, sizeof(text), name, ap);
	va_end(ap);
	emit(l, v, nr, text);
}

void gpu_fact(double value, const char *unit, const char *note,
	      const char *name, ...)
{
	const struct gpu_line l = { .unit = unit, .note = note };
	char text[128];
	va_list ap;

	va_start(ap, name);
	vsnprintf(text, sizeof(text), name, ap);
	va_end(ap);
	emit(&l, &value, 1, text);
}

void gpu_failed(const char *why, const char *name, ...)
{
	const struct gpu_line l = { .unit = "failure", .note = why };
	const double one = 1;
	char text[128];
	size_t n;
	va_list ap;

	va_start(ap, name);
	vsnprintf(text, sizeof(text) - 8, name, ap);
	va_end(ap);
	n = strlen(text);
	snprintf(text + n, sizeof(text) - n, ".failed");
	emit(&l, &one, 1, text);
}

void gpu_skipped(const char *why, const char *name, ...)
{
	const struct gpu_line l = { .unit = "skipped", .note = why };
	const double one = 1;
	char text[128];
	size_t n;
	va_list ap;

	va_start(ap, name);
	vsnprintf(text, sizeof(text) - 9, name, ap);
	va_end(ap);
	n = strlen(text);
	snprintf(text + n, sizeof(text) - n, ".skipped");
	emit(&l, &one, 1, text);
}
