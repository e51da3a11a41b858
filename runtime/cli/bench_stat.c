// SPDX-License-Identifier: Apache-2.0
/*
 * bench_stat.c - statistics of many measurements
 *
 * All values are kept: percentiles are exact, linear between the two nearest
 * values as in numpy, so that results can be compared with those of other
 * tools.
 */
#include <math.h>
#include <stdlib.h>
#include <sysexits.h>

#include "runtime/cli/bench.h"
#include "runtime/cli/cli.h"

void series_add(struct series *s, double v)
{
	const size_t cap = max(2 * s->cap, (size_t)256);
	double *more;

	if (s->nr == s->cap) {
		more = s->failed ? NULL : reallocarray(s->v, cap, sizeof(*more));
		if (!more) {
			s->failed = true;
			return;
		}
		s->v = more;
		s->cap = cap;
	}
	s->v[s->nr++] = v;
}

void series_free(struct series *s)
{
	free(s->v);
	memset(s, 0, sizeof(*s));
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

void series_sort(struct series *s)
{
	if (s->nr)
		qsort(s->v, s->nr, sizeof(*s->v), compare);
}

double series_mean(const struct series *s)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < s->nr; i++)
		sum += s->v[i];
	return s->nr ? sum / (double)s->nr : 0;
}

double series_std(const struct series *s)
{
	const double mean = series_mean(s);
	double sum = 0;
	size_t i;

	for (i = 0; i < s->nr; i++)
		sum += (s->v[i] - mean) * (s->v[i] - mean);
	return s->nr ? sqrt(sum / (double)s->nr) : 0;
}

double series_percentile(const struct series *s, double p)
{
	double at;
	size_t i;

	if (!s->nr)
		return 0;
	at = p / 100 * (double)(s->nr - 1);
	i = (size_t)at;
	if (i + 1 >= s->nr)
		return s->v[s->nr - 1];
	return s->v[i] + (at - (double)i) * (s->v[i + 1] - s->v[i]);
}

int percentiles_parse(struct percentiles *p, const char *text)
{
	const char *at = text;
	char *end;

	for (p->nr = 0; *at && p->nr < BENCH_PERCENTILES; at = end) {
		const double v = strtod(at, &end);

		if (end == at || !(v >= 0 && v <= 100) ||
		    (*end && *end != ',') || (*end && !end[1]))
			break;
		p->p[p->nr++] = v;
		end += *end == ',';
	}
	if (!*at && p->nr)
		return 0;
	pr_err("--metric-percentiles: '%.60s' is no list of up to %u percentiles: write 50,90,99",
	       text, BENCH_PERCENTILES);
	return EX_USAGE;
}

const char *percentile_name(double p, char *buf, size_t len)
{
	snprintf(buf, len, "p%g", p);
	return buf;
}
