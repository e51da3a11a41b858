// SPDX-License-Identifier: Apache-2.0
/*
 * evict_load.c - traces from files of tests/data/traces
 *
 * README.md there describes the format: a line a request, with the milliseconds since
 * the request before, the tokens of the prompt and of the answer; then, if the prompt
 * begins like that of an earlier request, how many requests ago that was and the number
 * of blocks that both have.  A block of the trace is a block of the caches here.  The
 * last block of a prompt counts as a whole one: the answer fills it.
 */
#include "tests/bench/bench.h"
#include "tests/bench/evict.h"

#include <errno.h>
#include <stdlib.h>

#define LINE_MAX_LEN	128
#define MS		1000000ull

/* Numbers of a line, at most @most.  Return: how many, 0: not a line of numbers. */
static u32 numbers(const char *line, u32 *v, u32 most)
{
	char *end;
	u32 n = 0;

	while (n < most && *line >= '0' && *line <= '9') {
		unsigned long x = strtoul(line, &end, 10);

		if (x > UINT32_MAX)
			return 0;
		v[n++] = (u32)x;
		line = *end == ' ' ? end + 1 : end;
	}
	return *line == '\n' && line[-1] != ' ' ? n : 0;
}

/* The block at depth @depth of the path to @b. */
static u32 above(const struct ev_trace *t, u32 b, u32 depth)
{
	while (t->depth[b] > depth)
		b = t->parent[b];
	return b;
}

/* Add the request of a line.  Return: false: the line is wrong. */
static bool line_add(struct ev_trace *t, const char *line, u32 block, u64 *now)
{
	u32 v[5], n = numbers(line, v, ARRAY_SIZE(v)), at = EV_NONE, nr;
	const struct ev_req *like;

	if ((n != 3 && n != 5) || !block || !v[1])
		return false;
	nr = DIV_ROUND_UP(v[1], block);
	if (n == 5) {
		if (!v[3] || v[3] > t->nr_reqs || !v[4] || v[4] > nr)
			return false;
		like = &t->reqs[t->nr_reqs - v[3]];
		if (v[4] > t->depth[like->prompt])
			return false;
		at = above(t, like->prompt, v[4]);
		nr -= v[4];
	}
	*now += v[0] * MS;
	at = ev_trace_grow(t, at, nr);
	ev_trace_ask(t, at, at, false);
	t->reqs[t->nr_reqs - 1].at = *now;
	return true;
}

u32 ev_trace_read(struct ev_trace *t, FILE *f)
{
	char line[LINE_MAX_LEN];
	u32 nr, block = 0, reqs = 0;
	u64 now = 0;

	memset(t, 0, sizeof(*t));
	for (nr = 1; fgets(line, sizeof(line), f); nr++) {
		if (!strncmp(line, "# ", 2)) {
			if (sscanf(line, "# trace of %u requests, blocks of %u tokens",
				   &reqs, &block) == 2 && !t->reqs)
				ev_trace_init(t, reqs);
			continue;
		}
		if (!t->reqs || t->nr_reqs == t->max_reqs ||
		    !line_add(t, line, block, &now))
			return nr;
	}
	return t->reqs && t->nr_reqs == t->max_reqs ? 0 : nr;
}

void ev_trace_load(struct ev_trace *t, const char *path)
{
	FILE *f = fopen(path, "re");
	u32 fault;

	if (!f)
		bench_die("%s: %s", path, strerror(errno));
	fault = ev_trace_read(t, f);
	if (fault)
		bench_die("%s: line %u is wrong", path, fault);
	fclose(f);
}
