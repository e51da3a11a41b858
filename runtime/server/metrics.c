// SPDX-License-Identifier: Apache-2.0
/*
 * metrics.c - figures of a server, in Prometheus' text format
 *
 * Every family is written once, with HELP and TYPE, base units, `_total` for
 * counters, and the model's name as a label.  Lists decide: what the engine
 * or a loop counts appears here by itself.
 */
#include <stdio.h>

#include <kvmm/version.h>

#include "runtime/server/metrics.h"

static const double times[] = {
	.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 10,
	20, 40, 80,
};
static const double gaps[] = {
	.0005, .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4,
	.5, .75, 1, 2.5, 5,
};
static const double counts[] = {
	1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000,
	50000, 100000, 200000, 500000,
};

static_assert(ARRAY_SIZE(times) == METRIC_BOUNDS_MAX, "bounds");
static_assert(ARRAY_SIZE(gaps) == METRIC_BOUNDS_MAX, "bounds");
static_assert(ARRAY_SIZE(counts) == METRIC_BOUNDS_MAX, "bounds");

static const struct {
	const char	*name;
	const double	*bounds;
	const char	*text;
} histograms[] = {
#define x(name, bounds, text) { #name, bounds, text },
	METRIC_HISTOGRAMS(x)
#undef x
};

void metrics_observe(struct metrics *m, enum metric_histogram h, double v,
		     u32 n)
{
	const double *bounds = histograms[h].bounds;
	u32 i = 0;

	while (i < METRIC_BOUNDS_MAX && v > bounds[i])
		i++;
	m->h[h].count[i] += n;
	m->h[h].sum += v * n;
}

/* A page being written. */
struct page {
	struct text	*t;
	struct text	label;		/* model_name="..." */
};

static void family(struct page *p, const char *name, const char *type,
		   const char *help)
{
	text_printf(p->t, "# HELP kvrt_%s %s\n# TYPE kvrt_%s %s\n", name, help,
		    name, type);
}

static void labels(struct page *p, const char *more)
{
	text_puts(p->t, "{");
	text_add(p->t, p->label.p, p->label.len);
	text_puts(p->t, more);
	text_puts(p->t, "}");
}

static void value(struct page *p, const char *name, const char *more,
		  double v)
{
	text_printf(p->t, "kvrt_%s", name);
	labels(p, more);
	text_printf(p->t, " %.17g\n", v);
}

static void gauge(struct page *p, const char *name, const char *help, double v)
{
	family(p, name, "gauge", help);
	value(p, name, "", v);
}

static void counter(struct page *p, const char *name, const char *help,
		    double v)
{
	char full[96];

	snprintf(full, sizeof(full), "%s_total", name);
	family(p, full, "counter", help);
	value(p, full, "", v);
}

static void histogram(struct page *p, u32 i, const struct histogram *h)
{
	const char *name = histograms[i].name;
	char full[96], bound[48];
	u64 sum = 0;
	u32 k;

	family(p, name, "histogram", histograms[i].text);
	snprintf(full, sizeof(full), "%s_bucket", name);
	for (k = 0; k < METRIC_BOUNDS_MAX; k++) {
		sum += h->count[k];
		snprintf(bound, sizeof(bound), ",le=\"%g\"",
			 histograms[i].bounds[k]);
		value(p, full, bound, (double)sum);
	}
	sum += h->count[k];
	value(p, full, ",le=\"+Inf\"", (double)sum);
	snprintf(full, sizeof(full), "%s_sum", name);
	value(p, full, "", h->sum);
	snprintf(full, sizeof(full), "%s_count", name);
	value(p, full, "", (double)sum);
}

static void write_requests(struct page *p, const struct metrics_view *v)
{
	const struct engine_stats *st = &v->b->stats;

	gauge(p, "num_requests_running", "sequences that may be in the next step",
	      v->b->load.running);
	gauge(p, "num_requests_waiting", "sequences that wait for memory or a place",
	      v->b->load.waiting);
	counter(p, "num_preemptions", "times a sequence lost its memory",
		(double)st->preemptions);
	counter(p, "prompt_tokens", "tokens of the prompts admitted",
		(double)st->prompt_tokens);
	counter(p, "generation_tokens", "tokens drawn and delivered",
		(double)st->generated_tokens);
	counter(p, "prefix_cache_queries", "prompt tokens looked up in the prefix cache",
		(double)st->prompt_tokens);
	counter(p, "prefix_cache_hits", "prompt tokens found in the prefix cache",
		(double)st->cached_tokens);
	family(p, "request_success_total", "counter",
	       "requests that the engine was given, by how they ended; those answered 4xx are not among them");
#define x(name, text) \
	value(p, "request_success_total", ",finished_reason=\"" #name "\"", \
	      (double)v->m->ends[METRIC_END_##name]);
	METRIC_ENDS(x)
#undef x
}

static void write_engine(struct page *p, const struct metrics_view *v)
{
	const struct engine_stats *st = &v->b->stats;

	/* Times are told in seconds, whatever the engine counts them in. */
#define x(name, text)							\
	if (offsetof(struct engine_stats, name) !=			\
	    offsetof(struct engine_stats, forward_ns))			\
		counter(p, "engine_" #name, text, (double)st->name);
	ENGINE_STATS(x)
#undef x
	counter(p, "engine_forward_seconds", "seconds in the model",
		(double)st->forward_ns / 1e9);
}

static void write_server(struct page *p, const struct metrics_view *v)
{
	const struct loop *l = v->loop;
	char code[24];
	u32 i;

	family(p, "info", "gauge", "what is running");
	value(p, "info", ",version=\"" KVMM_VERSION "\"", 1);
	gauge(p, "ready", "1 when /ready answers 200", v->ready);
	gauge(p, "attached", "1 when attached to the daemon",
	      v->b->state == BACKEND_ATTACHED);
	counter(p, "attaches", "times it attached to the daemon",
		(double)v->b->attaches);
	gauge(p, "calls", "requests being worked at", v->calls);
	gauge(p, "http_connections", "connections open", l->nr_conns);
#define x(name, text) counter(p, "http_" #name, text, (double)l->stats.name);
	LOOP_STATS(x)
#undef x
	family(p, "http_responses_total", "counter", "answers by status");
	for (i = 1; i < ARRAY_SIZE(l->status); i++) {
		snprintf(code, sizeof(code), ",code=\"%uxx\"", i);
		value(p, "http_responses_total", code, (double)l->status[i]);
	}
}

void metrics_write(struct text *t, const struct metrics_view *v)
{
	struct page p = { .t = t };
	u32 i;

	text_puts(&p.label, "model_name=");
	text_jsons(&p.label, v->model);
	write_server(&p, v);
	write_requests(&p, v);
	write_engine(&p, v);
	for (i = 0; i < METRIC_NR_HISTOGRAMS; i++)
		histogram(&p, i, &v->m->h[i]);
	t->failed |= p.label.failed;
	text_free(&p.label);
}
