// SPDX-License-Identifier: Apache-2.0
/*
 * bench_trace.c - recorded workloads
 *
 * The form is that of Mooncake's published traces (FAST 2025): on each line an
 * object with the time in milliseconds, the lengths, and an id for each block
 * of 512 tokens of the prompt, where equal ids mean equal blocks.  Ids become
 * the seeds of pieces, so prompts that shared blocks in the recording share
 * them again.  Other members are ignored.
 *
 * A file may come from anywhere: each line is checked, and a wrong line is
 * reported by its number, since it cannot be found by hand among a million.
 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <sysexits.h>

#include "runtime/cli/bench.h"
#include "runtime/cli/cli.h"

#define TRACE_TOKENS_MAX	(1u << 24)
#define TRACE_SEED		0x7472616365ull

static int bad_line(const char *name, u32 line, const char *why)
{
	pr_err("%s: line %u: %s", name, line, why);
	return EX_DATAERR;
}

/* Read a whole number from @lo up to @hi.  Return: false when it is none. */
static bool whole(const json_t *o, const char *key, s64 lo, s64 hi, s64 *out)
{
	const json_t *v = json_object_get(o, key);

	*out = json_integer_value(v);
	return json_is_integer(v) && *out >= lo && *out <= hi;
}

/* Return: the error of the object, or NULL. */
static const char *judge(const json_t *o, s64 *in, s64 *out)
{
	const json_t *t = json_object_get(o, "timestamp");
	const json_t *ids = json_object_get(o, "hash_ids");
	const json_t *id;
	size_t i;

	if (!json_is_number(t) || !(json_number_value(t) >= 0))
		return "timestamp is no time in milliseconds";
	if (!whole(o, "input_length", 1, TRACE_TOKENS_MAX, in))
		return "input_length is no number of tokens";
	if (!whole(o, "output_length", 1, TRACE_TOKENS_MAX, out))
		return "output_length is no number of tokens";
	if (!ids)
		return NULL;	/* no block is shared */
	if (!json_is_array(ids))
		return "hash_ids is no list";
	json_array_foreach(ids, i, id)
		if (!json_is_integer(id))
			return "hash_ids holds what is no whole number";
	if (json_array_size(ids) >
	    (size_t)(*in + BENCH_TRACE_BLOCK - 1) / BENCH_TRACE_BLOCK)
		return "hash_ids has more than one id for 512 tokens of input_length";
	return NULL;
}

/*
 * A block has the seed of its id; tokens without an id belong to this line
 * alone.
 */
static int add_request(struct workload *w, const json_t *o, u32 in, u32 out)
{
	const json_t *ids = json_object_get(o, "hash_ids");
	double at = json_number_value(json_object_get(o, "timestamp")) / 1e3;
	const json_t *id;
	size_t i;
	u32 n;

	if (workload_add(w, at, out))
		return -ENOMEM;
	json_array_foreach(ids, i, id) {
		n = min(in, BENCH_TRACE_BLOCK);
		in -= n;
		if (workload_piece(w, draw_mix(TRACE_SEED ^
					(u64)json_integer_value(id)), n))
			return -ENOMEM;
	}
	if (in && workload_piece(w, draw_mix(~(TRACE_SEED + w->nr)), in))
		return -ENOMEM;
	return 0;
}

static int read_line(struct workload *w, const char *p, size_t n,
		     const char *name, u32 line)
{
	json_error_t err;
	const char *why;
	s64 in, out;
	json_t *o;
	int ret;

	o = json_loadb(p, n, JSON_REJECT_DUPLICATES, &err);
	if (!json_is_object(o)) {
		json_decref(o);
		return bad_line(name, line, "is no JSON object");
	}
	why = judge(o, &in, &out);
	ret = why ? bad_line(name, line, why) :
		    add_request(w, o, (u32)in, (u32)out);
	json_decref(o);
	return ret;
}

static int compare(const void *a, const void *b)
{
	const struct bench_request *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return x->first < y->first ? -1 : 1;
}

/* Sort by time; time begins with the first request. */
static void set_times(struct workload *w)
{
	double begin;
	u32 i;

	qsort(w->list, w->nr, sizeof(*w->list), compare);
	begin = w->list[0].at;
	for (i = 0; i < w->nr; i++)
		w->list[i].at -= begin;
}

int trace_read(struct workload *w, FILE *f, const char *name, u32 most)
{
	char *text = NULL;
	size_t cap = 0;
	u32 line = 0;
	ssize_t n;
	int ret = 0;

	w->timed = true;
	while (!ret && w->nr < most && (n = getline(&text, &cap, f)) >= 0) {
		line++;
		if (strspn(text, " \t\r\n") < (size_t)n)
			ret = read_line(w, text, (size_t)n, name, line);
	}
	free(text);
	if (!ret && ferror(f)) {
		pr_err("%s: cannot be read", name);
		return EX_IOERR;
	}
	if (!ret && !w->nr) {
		pr_err("%s: holds no request", name);
		return EX_DATAERR;
	}
	if (!ret)
		set_times(w);
	return ret;
}
