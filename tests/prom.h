/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prom.h - a strict reader of Prometheus' text format, 0.0.4
 *
 * It is stricter than the format, as our pages have to be.  HELP and TYPE of a
 * family stand together and once, before its samples, which stand together.
 * Names are in snake case, with `_total` for counters only, and base units.  No
 * series occurs twice.  A histogram has its bounds in order, counts that never
 * fall, +Inf, _sum and _count.
 */
#ifndef TESTS_PROM_H
#define TESTS_PROM_H

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvmm/types.h>

#define PROM_FAMILIES	512
#define PROM_NAME	96
#define PROM_SERIES	512	/* bytes of a name with its labels */

struct prom_family {
	char	name[PROM_NAME];
	char	type[16];
	char	help[256];
	char	labels[64];	/* of the first sample: keys without le */
	u32	nr;		/* samples */
};

/**
 * struct prom - a page that was read
 * @why:   its first fault; empty: none
 * @seen:  the samples of the last family, names with labels, one a line
 * @group: the labels, without le, of the histogram whose buckets are read
 * @last_le, @last: its last bucket
 */
struct prom {
	u32			nr;
	struct prom_family	family[PROM_FAMILIES];
	char			why[256];
	char			*seen;
	size_t			seen_len;
	char			group[PROM_SERIES];
	double			last_le;
	double			last;
};

#define prom_bad(p, ...)						\
do {									\
	if (!(p)->why[0])						\
		snprintf((p)->why, sizeof((p)->why), __VA_ARGS__);	\
} while (0)

static inline bool prom_ends(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* Lower case, digits and single underscores; a letter first.  vLLM has a prefix. */
static inline bool prom_is_snake(const char *s)
{
	if (!strncmp(s, "vllm:", 5))
		s += 5;
	if (!islower((u8)*s))
		return false;
	for (; *s; s++)
		if ((!islower((u8)*s) && !isdigit((u8)*s) && *s != '_') ||
		    (*s == '_' && (s[1] == '_' || !s[1])))
			return false;
	return true;
}

static inline void prom_check_name(struct prom *p, const struct prom_family *f)
{
	static const char * const units[] = {
		"_ns", "_us", "_ms", "_kb", "_mb", "_percent", "_milliseconds",
	};
	bool counter = !strcmp(f->type, "counter");
	char word[PROM_NAME + 1];
	u32 i;

	if (!prom_is_snake(f->name))
		prom_bad(p, "%.95s: not in snake case", f->name);
	if (prom_ends(f->name, "_total") != counter)
		prom_bad(p, "%.95s: _total is for counters", f->name);
	if (prom_ends(f->name, "_sum") || prom_ends(f->name, "_count") ||
	    prom_ends(f->name, "_bucket"))
		prom_bad(p, "%.95s: a suffix of histograms", f->name);
	snprintf(word, sizeof(word), "%s_", f->name);
	for (i = 0; i < ARRAY_SIZE(units); i++) {
		const char *at = strstr(word, units[i]);

		if (at && at[strlen(units[i])] == '_')
			prom_bad(p, "%.95s: no base unit", f->name);
	}
}

static inline void prom_begin(struct prom *p, const char *line)
{
	static const char * const types[] = { "counter", "gauge", "histogram" };
	struct prom_family *f = &p->family[p->nr];
	char name[PROM_NAME];
	u32 i;

	if (p->nr == PROM_FAMILIES) {
		prom_bad(p, "too many families");
		return;
	}
	if (sscanf(line, "# HELP %95s %255[^\n]\n# TYPE %95s %15s\n", f->name,
		   f->help, name, f->type) != 4 || strcmp(name, f->name)) {
		prom_bad(p, "HELP, then TYPE: %.60s", line);
		return;
	}
	for (i = 0; i < ARRAY_SIZE(types) && strcmp(f->type, types[i]); i++)
		;
	if (i == ARRAY_SIZE(types))
		prom_bad(p, "%.95s: type %s", f->name, f->type);
	for (i = 0; i < p->nr; i++)
		if (!strcmp(p->family[i].name, f->name))
			prom_bad(p, "%.95s: twice", f->name);
	prom_check_name(p, f);
	p->nr++;
	p->seen_len = 0;
	p->group[0] = '\0';
}

/*
 * Parse one label, `key="value"`.  The label goes to @group; of le only the
 * value is kept, in @le.  Return: its end, or NULL.
 */
static inline const char *prom_label(const char *s, char *group, double *le)
{
	const char *from = s, *value;
	size_t len;

	if (!islower((u8)*s))
		return NULL;
	while (islower((u8)*s) || isdigit((u8)*s) || *s == '_')
		s++;
	if (s[0] != '=' || s[1] != '"')
		return NULL;
	s += 2;
	value = s;
	for (; *s != '"'; s++) {
		if (*s == '\n' || !*s)
			return NULL;
		if (*s == '\\' && !strchr("\\\"n", *++s))
			return NULL;
	}
	s++;
	if (!strncmp(from, "le=", 3)) {
		*le = strtod(value, NULL);
		return s;
	}
	len = strlen(group);
	snprintf(group + len, PROM_SERIES - len, "%.*s\n", (int)(s - from),
		 from);
	return s;
}

/* The keys of labels, one a line, as a list. */
static inline void prom_keys(struct prom_family *f, const char *group)
{
	size_t n = 0;

	for (; *group; group = strchr(group, '\n') + 1)
		n += (size_t)snprintf(f->labels + n, sizeof(f->labels) - n,
				      "%s%.*s", n ? ", " : "",
				      (int)strcspn(group, "="), group);
}

/* A bucket, the sum or the count of a histogram. */
static inline void prom_histogram(struct prom *p, const struct prom_family *f,
				  const char *suffix, const char *group,
				  double le, double v)
{
	bool same = !strcmp(group, p->group);

	if (!strcmp(suffix, "_bucket")) {
		if (isnan(le))
			prom_bad(p, "%.95s: a bucket without le", f->name);
		if (same && (le <= p->last_le || v < p->last))
			prom_bad(p, "%.95s: buckets fall", f->name);
		snprintf(p->group, sizeof(p->group), "%s", group);
		p->last_le = le;
		p->last = v;
	} else if (!strcmp(suffix, "_count")) {
		if (!same || !isinf(p->last_le) || v != p->last)
			prom_bad(p, "%.95s: +Inf is not the count", f->name);
		p->group[0] = '\1';
	} else if (strcmp(suffix, "_sum") || !same || !isinf(p->last_le)) {
		prom_bad(p, "%.95s: sum", f->name);
	}
}

static inline void prom_once(struct prom *p, const char *line, size_t len)
{
	char *seen = realloc(p->seen, p->seen_len + len + 2);

	p->seen = seen;
	memcpy(seen + p->seen_len, line, len);
	memcpy(seen + p->seen_len + len, "\n", 2);
	if (p->seen_len) {
		char *at = seen;

		while ((at = memmem(at, (size_t)(seen + p->seen_len - at),
				    line, len)) && at[len] != '\n')
			at++;
		if (at && (at == seen || at[-1] == '\n'))
			prom_bad(p, "twice: %.*s", (int)len, line);
	}
	p->seen_len += len + 1;
}

static inline void prom_sample(struct prom *p, const char *line)
{
	struct prom_family *f = p->nr ? &p->family[p->nr - 1] : NULL;
	size_t n = f ? strlen(f->name) : 0;
	char group[PROM_SERIES] = "", suffix[16] = "", *end;
	double v, le = NAN;
	const char *s;

	if (!f || strncmp(line, f->name, n) ||
	    (sscanf(line + n, "%15[a-z_]", suffix) == 1 &&
	     strcmp(f->type, "histogram"))) {
		prom_bad(p, "of no family: %.60s", line);
		return;
	}
	s = line + n + strlen(suffix);
	if (*s == '{') {
		do {
			s = prom_label(s + 1, group, &le);
		} while (s && *s == ',');
		if (!s || *s++ != '}') {
			prom_bad(p, "labels: %.80s", line);
			return;
		}
	}
	prom_once(p, line, (size_t)(s - line));
	v = strtod(s + 1, &end);
	if (*s != ' ' || isspace((u8)s[1]) || *end != '\n')
		prom_bad(p, "value: %.80s", line);
	if (!strcmp(f->type, "counter") && (!isfinite(v) || v < 0))
		prom_bad(p, "a counter of that value: %.80s", line);
	if (!strcmp(f->type, "histogram"))
		prom_histogram(p, f, suffix, group, le, v);
	if (!f->nr++)
		prom_keys(f, group);
}

/**
 * prom_read() - read a page
 * @p: zeroed; prom_free() it
 *
 * Return: whether the page is right; else @p->why has the fault.
 */
static inline bool prom_read(struct prom *p, const char *text)
{
	const char *line, *end;

	for (line = text; *line && !p->why[0]; line = end + 1) {
		end = strchr(line, '\n');
		if (!end) {
			prom_bad(p, "no newline at the end");
			break;
		}
		if (!strncmp(line, "# HELP ", 7)) {
			prom_begin(p, line);
			end = strchr(end + 1, '\n');
			if (!end)
				break;
		} else {
			prom_sample(p, line);
		}
	}
	if (!p->nr)
		prom_bad(p, "no family");
	return !p->why[0];
}

static inline void prom_free(struct prom *p)
{
	free(p->seen);
	p->seen = NULL;
}

static inline __maybe_unused const struct prom_family *
prom_find(const struct prom *p, const char *name)
{
	u32 i;

	for (i = 0; i < p->nr; i++)
		if (!strcmp(p->family[i].name, name))
			return &p->family[i];
	return NULL;
}

#endif /* TESTS_PROM_H */
