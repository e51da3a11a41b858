// SPDX-License-Identifier: Apache-2.0
/*
 * bench_report.c - the results of kvrt bench serve
 *
 * Definitions and names are those of `vllm bench serve`, so that results of the
 * two can be compared: TTFT is the time from sending a request to its first
 * token, E2EL to its last, TPOT is (E2EL - TTFT) / (tokens - 1) of a request
 * that has more than one, ITL is the time between two events of a stream.
 * Rates are over the time from the first request sent to the last answer.  A
 * request is good when it keeps every limit of --goodput.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/cli/bench_serve.h"
#include "runtime/cli/cli.h"

/* Name in the keys, title in the table. */
#define METRICS(x)							\
	x(ttft, "TTFT, to the first token")				\
	x(tpot, "TPOT, each token after")				\
	x(itl, "ITL, between two")					\
	x(e2el, "E2EL, to the last token")

/* All in milliseconds, sorted. */
struct figures {
#define x(name, title) struct series name;
	METRICS(x)
#undef x
	u64	in;
	u64	out;
	u64	cached;
	u32	good;
};

static double tpot_of(const struct load_sample *s)
{
	return s->out > 1 ? (s->e2el - s->ttft) / (s->out - 1) : 0;
}

static bool is_good(const struct load_sample *s, const struct load_limits *m)
{
	return (!m->ttft || s->ttft <= m->ttft) &&
	       (!m->tpot || tpot_of(s) <= m->tpot) &&
	       (!m->e2el || s->e2el <= m->e2el);
}

static bool has_limits(const struct load_limits *m)
{
	return m->ttft > 0 || m->tpot > 0 || m->e2el > 0;
}

static void reckon(const struct load *l, const struct report_of *o,
		   struct figures *f)
{
	size_t k;
	u32 i;

	memset(f, 0, sizeof(*f));
	for (i = 0; i < l->completed; i++) {
		const struct load_sample *s = &l->samples[i];

		f->in += s->in;
		f->out += s->out;
		f->cached += s->cached;
		f->good += is_good(s, &o->goodput);
		series_add(&f->ttft, s->ttft * 1e3);
		series_add(&f->e2el, s->e2el * 1e3);
		if (s->out > 1)
			series_add(&f->tpot, tpot_of(s) * 1e3);
	}
	for (k = 0; k < l->gaps.nr; k++)
		series_add(&f->itl, l->gaps.v[k] * 1e3);
#define x(name, title) series_sort(&f->name);
	METRICS(x)
#undef x
}

static bool figures_free(struct figures *f)
{
	bool whole = true;

#define x(name, title) whole &= !f->name.failed; series_free(&f->name);
	METRICS(x)
#undef x
	return whole;
}

/* ---- for people ---- */

static void row(FILE *out, const char *name, const char *fmt, double v)
{
	fprintf(out, "%-28s ", name);
	fprintf(out, fmt, v);
	fputc('\n', out);
}

/* One line a metric, one column a number. */
static void print_heads(FILE *out, const struct percentiles *p)
{
	char name[16];
	u32 i;

	fprintf(out, "\n%-28s %10s %10s", "ms", "mean", "std");
	for (i = 0; i < p->nr; i++)
		fprintf(out, " %10s", percentile_name(p->p[i], name,
						      sizeof(name)));
	fputc('\n', out);
}

static void print_series(FILE *out, const char *title, const struct series *s,
			 const struct percentiles *p)
{
	u32 i;

	fprintf(out, "%-28s %10.2f %10.2f", title, series_mean(s),
		series_std(s));
	for (i = 0; i < p->nr; i++)
		fprintf(out, " %10.2f", series_percentile(s, p->p[i]));
	fputc('\n', out);
}

static void print_ends(FILE *out, const struct load *l)
{
	u32 i;

	row(out, "Successful requests", "%10.0f", l->completed);
	row(out, "Failed requests", "%10.0f", l->failed);
	for (i = 0; i < l->nr_reasons; i++)
		fprintf(out, "  %8u  %s\n", l->reasons[i].nr,
			l->reasons[i].text);
	if (l->unsent)
		row(out, "Requests not sent", "%10.0f", l->unsent);
	if (l->cut_off)
		row(out, "Requests cut off", "%10.0f", l->cut_off);
}

static void print_rates(FILE *out, const struct load *l,
			const struct report_of *o, const struct figures *f)
{
	const double s = l->duration;

	row(out, "Duration (s)", "%10.2f", s);
	row(out, "Input tokens", "%10.0f", (double)f->in);
	row(out, "  of these cached", "%10.0f", (double)f->cached);
	row(out, "Output tokens", "%10.0f", (double)f->out);
	row(out, "Most requests at once", "%10.0f", l->peak);
	row(out, "Requests (1/s)", "%10.2f", l->completed / s);
	if (has_limits(&o->goodput))
		row(out, "  of these good", "%10.2f", f->good / s);
	row(out, "Output tokens (1/s)", "%10.2f", (double)f->out / s);
	row(out, "All tokens (1/s)", "%10.2f", (double)(f->in + f->out) / s);
}

void report_print(const struct load *l, const struct report_of *o, FILE *out)
{
	struct figures f;

	reckon(l, o, &f);
	print_ends(out, l);
	if (l->completed) {
		print_rates(out, l, o, &f);
		print_heads(out, &o->percentiles);
#define x(name, title) print_series(out, title, &f.name, &o->percentiles);
		METRICS(x)
#undef x
	}
	figures_free(&f);
}

/* ---- for programs ---- */

static void set_real(json_t *v, const char *key, double x)
{
	json_object_set_new(v, key, json_real(x));
}

static void set_whole(json_t *v, const char *key, u64 x)
{
	json_object_set_new(v, key, json_integer((json_int_t)x));
}

static void set_series(json_t *v, const char *name, const struct series *s,
		       const struct percentiles *p)
{
	char key[64], which[16];
	u32 i;

	snprintf(key, sizeof(key), "mean_%s_ms", name);
	set_real(v, key, series_mean(s));
	snprintf(key, sizeof(key), "median_%s_ms", name);
	set_real(v, key, series_percentile(s, 50));
	snprintf(key, sizeof(key), "std_%s_ms", name);
	set_real(v, key, series_std(s));
	for (i = 0; i < p->nr; i++) {
		snprintf(key, sizeof(key), "%s_%s_ms",
			 percentile_name(p->p[i], which, sizeof(which)), name);
		set_real(v, key, series_percentile(s, p->p[i]));
	}
}

static void set_run(json_t *v, const struct load *l, const struct report_of *o)
{
	char date[32] = "";
	time_t t = time(NULL);
	struct tm tm;

	if (localtime_r(&t, &tm))
		strftime(date, sizeof(date), "%Y%m%d-%H%M%S", &tm);
	json_object_set_new(v, "date", json_string(date));
	json_object_set_new(v, "endpoint_type", json_string(l->form->chat ?
							    "openai-chat" :
							    "openai"));
	json_object_set_new(v, "base_url", json_string(o->url));
	json_object_set_new(v, "model_id", json_string(l->form->model));
	json_object_set_new(v, "dataset", json_string(o->dataset));
	json_object_set_new(v, "seed", json_string(o->seed));
	set_whole(v, "num_prompts", l->w->nr);
	if (l->w->timed)
		json_object_set_new(v, "request_rate", json_string("trace"));
	else if (o->rate <= 1e300)
		set_real(v, "request_rate", o->rate);
	else
		json_object_set_new(v, "request_rate", json_string("inf"));
	set_real(v, "burstiness", o->burstiness);
	json_object_set_new(v, "max_concurrency", o->max_concurrency ?
			    json_integer(o->max_concurrency) : json_null());
	json_object_set_new(v, "prompt_form",
			    json_string(l->form->ids ? "ids" : "text"));
	json_object_set_new(v, "ignore_eos", json_boolean(l->form->ignore_eos));
	json_object_set_new(v, "tokens_counted_by_server",
			    json_boolean(l->counted == l->completed));
	set_whole(v, "probe_requests", l->form->probes);
	set_whole(v, "probe_input_tokens", l->form->probe_in);
	set_whole(v, "probe_output_tokens", l->form->probe_out);
}

static void set_figures(json_t *v, const struct load *l,
			const struct report_of *o, const struct figures *f)
{
	const double s = l->duration;
	json_t *reasons = json_object();
	u32 i;

	set_real(v, "duration", s);
	set_whole(v, "completed", l->completed);
	set_whole(v, "failed", l->failed);
	set_whole(v, "not_sent", l->unsent);
	set_whole(v, "cut_off", l->cut_off);
	for (i = 0; i < l->nr_reasons; i++)
		set_whole(reasons, l->reasons[i].text, l->reasons[i].nr);
	json_object_set_new(v, "failed_reasons", reasons);
	set_whole(v, "total_input_tokens", f->in);
	set_whole(v, "total_cached_tokens", f->cached);
	set_whole(v, "total_output_tokens", f->out);
	set_whole(v, "shorter_than_asked", l->short_of);
	set_whole(v, "max_concurrent_requests", l->peak);
	set_real(v, "request_throughput", l->completed / s);
	json_object_set_new(v, "request_goodput", has_limits(&o->goodput) ?
			    json_real(f->good / s) : json_null());
	set_real(v, "output_throughput", (double)f->out / s);
	set_real(v, "total_token_throughput", (double)(f->in + f->out) / s);
#define x(name, title) set_series(v, #name, &f->name, &o->percentiles);
	METRICS(x)
#undef x
}

/* All answered requests, in the order of their ends. */
static void set_details(json_t *v, const struct load *l)
{
	json_t *in = json_array(), *out = json_array(), *ttft = json_array();
	json_t *itls = json_array(), *begin = json_array();
	json_t *e2el = json_array(), *which = json_array();
	u32 i, k;

	for (i = 0; i < l->completed; i++) {
		const struct load_sample *s = &l->samples[i];
		json_t *gaps = json_array();

		for (k = 0; k < s->nr_gaps; k++)
			json_array_append_new(gaps,
				json_real(l->gaps.v[s->first_gap + k]));
		json_array_append_new(itls, gaps);
		json_array_append_new(which, json_integer(s->request));
		json_array_append_new(in, json_integer(s->in));
		json_array_append_new(out, json_integer(s->out));
		json_array_append_new(ttft, json_real(s->ttft));
		json_array_append_new(e2el, json_real(s->e2el));
		json_array_append_new(begin, json_real(s->begin));
	}
	json_object_set_new(v, "requests", which);
	json_object_set_new(v, "input_lens", in);
	json_object_set_new(v, "output_lens", out);
	json_object_set_new(v, "ttfts", ttft);
	json_object_set_new(v, "e2els", e2el);
	json_object_set_new(v, "itls", itls);
	json_object_set_new(v, "start_times", begin);
}

json_t *report_json(const struct load *l, const struct report_of *o)
{
	json_t *v = json_object();
	struct figures f;

	reckon(l, o, &f);
	set_run(v, l, o);
	set_figures(v, l, o, &f);
	if (o->detailed)
		set_details(v, l);
	if (figures_free(&f))
		return v;
	json_decref(v);
	return NULL;
}
