// SPDX-License-Identifier: Apache-2.0
/*
 * metrics.c - metrics of a server, in Prometheus' text format
 *
 * Every family is written once, with HELP and TYPE, base units, and `_total`
 * for counters.  Metrics of a model have its name as a label.  Metrics of the
 * server have none; these are all metrics that are counted before a body is
 * read.  Lists define the metrics: each counter of the engine, of the model or of a loop
 * appears here by itself.
 *
 * Each loop counts for itself, without locks, and a page adds the loops up.
 */
#include <stdio.h>
#include <stdlib.h>

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
	double sum;
	u32 i = 0;

	while (i < METRIC_BOUNDS_MAX && v > bounds[i])
		i++;
	tally(&m->h[h].count[i], n);
	sum = m->h[h].sum + v * n;
	__atomic_store(&m->h[h].sum, &sum, __ATOMIC_RELAXED);
}

void metrics_add(struct metrics *sum, const struct metrics *m)
{
	double part;
	u32 i, k;

	for (i = 0; i < METRIC_NR_HISTOGRAMS; i++) {
		for (k = 0; k <= METRIC_BOUNDS_MAX; k++)
			sum->h[i].count[k] += READ_ONCE(m->h[i].count[k]);
		__atomic_load(&m->h[i].sum, &part, __ATOMIC_RELAXED);
		sum->h[i].sum += part;
	}
	for (i = 0; i < METRIC_NR_ENDS; i++)
		sum->ends[i] += READ_ONCE(m->ends[i]);
}

void metrics_add_loop(struct metrics_view *v, const struct loop *l)
{
	u32 i;

	v->loops++;
	v->conns += READ_ONCE(l->nr_conns);
#define x(name, text) v->stats.name += READ_ONCE(l->stats.name);
	LOOP_STATS(x)
#undef x
	for (i = 0; i < ARRAY_SIZE(v->status); i++)
		v->status[i] += READ_ONCE(l->status[i]);
}

/* A page being written; @labels: [@v->nr_models], model_name="..." */
struct page {
	struct text			*t;
	const struct metrics_view	*v;
	struct text			*labels;
};

static void family(struct page *p, const char *name, const char *type,
		   const char *help)
{
	text_printf(p->t, "# HELP kvrt_%s %s\n# TYPE kvrt_%s %s\n", name, help,
		    name, type);
}

/* Write a value of model @i, with more labels. */
static void value(struct page *p, u32 i, const char *name, const char *more,
		  double v)
{
	text_printf(p->t, "kvrt_%s{", name);
	text_add(p->t, p->labels[i].p, p->labels[i].len);
	text_printf(p->t, "%s} %.17g\n", more, v);
}

/* Write a value of the whole server. */
static void server_value(struct page *p, const char *type, const char *name,
			 const char *help, double v)
{
	const char *end = *type == 'c' ? "_total" : "";
	char full[96];

	snprintf(full, sizeof(full), "%s%s", name, end);
	family(p, full, type, help);
	text_printf(p->t, "kvrt_%s %.17g\n", full, v);
}

/* Write one value for each model. */
#define MODEL_VALUES(p, type, name, help, expr)				\
do {									\
	u32 i_;								\
									\
	family(p, name, type, help);					\
	for (i_ = 0; i_ < (p)->v->nr_models; i_++) {			\
		const struct metrics_model *m = &(p)->v->models[i_];	\
									\
		value(p, i_, name, "", (double)(expr));			\
	}								\
} while (0)

#define GAUGE(p, name, help, expr)					\
	MODEL_VALUES(p, "gauge", name, help, expr)
#define COUNTER(p, name, help, expr)					\
	MODEL_VALUES(p, "counter", name "_total", help, expr)

static void histogram(struct page *p, u32 i, u32 which)
{
	const struct histogram *h = &p->v->models[i].m.h[which];
	const char *name = histograms[which].name;
	char full[96], bound[48];
	u64 sum = 0;
	u32 k;

	snprintf(full, sizeof(full), "%s_bucket", name);
	for (k = 0; k < METRIC_BOUNDS_MAX; k++) {
		sum += h->count[k];
		snprintf(bound, sizeof(bound), ",le=\"%g\"",
			 histograms[which].bounds[k]);
		value(p, i, full, bound, (double)sum);
	}
	sum += h->count[k];
	value(p, i, full, ",le=\"+Inf\"", (double)sum);
	snprintf(full, sizeof(full), "%s_sum", name);
	value(p, i, full, "", h->sum);
	snprintf(full, sizeof(full), "%s_count", name);
	value(p, i, full, "", (double)sum);
}

static void write_requests(struct page *p)
{
	u32 i;

	GAUGE(p, "num_requests_running", "sequences that may be in the next step",
	      m->b.load.running);
	GAUGE(p, "num_requests_waiting", "sequences that wait for memory or a place",
	      m->b.load.waiting);
	COUNTER(p, "num_preemptions", "times a sequence lost its memory",
		m->b.stats.preemptions);
	COUNTER(p, "prompt_tokens", "tokens of the prompts admitted",
		m->b.stats.prompt_tokens);
	COUNTER(p, "generation_tokens", "tokens drawn and delivered",
		m->b.stats.generated_tokens);
	COUNTER(p, "prefix_cache_queries", "prompt tokens looked up in the prefix cache",
		m->b.stats.prompt_tokens);
	COUNTER(p, "prefix_cache_hits", "prompt tokens found in the prefix cache",
		m->b.stats.cached_tokens);
	family(p, "request_success_total", "counter",
	       "requests that the engine was given, by how they ended; those answered 4xx are not among them");
	for (i = 0; i < p->v->nr_models; i++) {
#define x(name, text) \
		value(p, i, "request_success_total", ",finished_reason=\"" #name "\"", \
		      (double)p->v->models[i].m.ends[METRIC_END_##name]);
		METRIC_ENDS(x)
#undef x
	}
}

/* The model whose adapters are written. */
struct adapter_page {
	struct page	*p;
	u32		model;
};

static void write_adapter(void *arg, const struct served_adapter *a)
{
	struct adapter_page *q = arg;
	struct text label = { 0 };

	text_puts(&label, ",adapter=");
	text_jsons(&label, a->name);
	text_add(&label, "", 1);
	if (!label.failed)
		value(q->p, q->model, "adapter_requests_total", label.p,
		      (double)READ_ONCE(a->requests));
	q->p->t->failed |= label.failed;
	text_free(&label);
}

static void count_adapter(void *arg, const struct served_adapter *a)
{
	++*(u32 *)arg;
}

/* A model has a bounded number of adapters, so the page is bounded, too. */
static void write_adapters(struct page *p)
{
	const struct metrics_model *m = p->v->models;
	u32 i, nr;

	family(p, "adapters", "gauge", "adapters that have a name");
	for (i = 0; i < p->v->nr_models; i++) {
		nr = 0;
		if (m[i].adapters)
			served_each(m[i].adapters, count_adapter, &nr);
		value(p, i, "adapters", "", nr);
	}
	family(p, "adapter_requests_total", "counter",
	       "requests that the engine was given for an adapter that has a name");
	for (i = 0; i < p->v->nr_models; i++) {
		struct adapter_page q = { .p = p, .model = i };

		if (m[i].adapters)
			served_each(m[i].adapters, write_adapter, &q);
	}
}

/*
 * Write a counter of each model; times (`NAME_ns`, "nanoseconds ...") in
 * seconds.
 */
static void engine_counter(struct page *p, const char *name, const char *text,
			   size_t offset)
{
	const size_t len = strlen(name);
	const bool is_time = len > 3 && !strcmp(name + len - 3, "_ns");
	char full[64];
	u32 i;

	snprintf(full, sizeof(full), "engine_%.*s%s_total",
		 (int)(is_time ? len - 3 : len), name,
		 is_time ? "_seconds" : "");
	family(p, full, "counter", is_time ? text + strlen("nano") : text);
	for (i = 0; i < p->v->nr_models; i++) {
		const u64 *v = (const void *)((const char *)
					      &p->v->models[i].b.stats + offset);

		value(p, i, full, "", (double)*v / (is_time ? 1e9 : 1));
	}
}

static void write_engine(struct page *p)
{
#define x(name, text)							\
	engine_counter(p, #name, text, offsetof(struct engine_stats, name));
	ENGINE_STATS(x)
#undef x
}

static void write_model(struct page *p)
{
#define x(type, name, text) COUNTER(p, "model_" #name, text, m->b.counts.name);
	MODEL_STATS(x)
#undef x
}

static void write_server(struct page *p)
{
	const struct metrics_view *v = p->v;
	u32 i;

	family(p, "info", "gauge", "version of the server");
	text_puts(p->t, "kvrt_info{version=\"" KVMM_VERSION "\"} 1\n");
	GAUGE(p, "ready", "1 when requests for this model would be worked at now", m->ready);
	GAUGE(p, "attached", "1 when attached to the daemon",
	      m->b.state == BACKEND_ATTACHED);
	COUNTER(p, "attaches", "times it attached to the daemon", m->b.attaches);
	server_value(p, "gauge", "calls", "requests being worked at", v->calls);
	server_value(p, "gauge", "http_loops", "threads with connections", v->loops);
	server_value(p, "gauge", "http_connections", "connections open", v->conns);
#define x(name, text) \
	server_value(p, "counter", "http_" #name, text, (double)v->stats.name);
	LOOP_STATS(x)
#undef x
	family(p, "http_responses_total", "counter", "answers by status");
	for (i = 1; i < ARRAY_SIZE(v->status); i++)
		text_printf(p->t, "kvrt_http_responses_total{code=\"%uxx\"} %.17g\n",
			    i, (double)v->status[i]);
}

static void write_histograms(struct page *p)
{
	u32 k, i;

	for (k = 0; k < METRIC_NR_HISTOGRAMS; k++) {
		family(p, histograms[k].name, "histogram", histograms[k].text);
		for (i = 0; i < p->v->nr_models; i++)
			histogram(p, i, k);
	}
}

void metrics_write(struct text *t, const struct metrics_view *v)
{
	struct page p = { .t = t, .v = v };
	u32 i;

	p.labels = calloc(v->nr_models, sizeof(*p.labels));
	if (!p.labels) {
		t->failed = true;
		return;
	}
	for (i = 0; i < v->nr_models; i++) {
		text_puts(&p.labels[i], "model_name=");
		text_jsons(&p.labels[i], v->models[i].name);
	}
	write_server(&p);
	write_requests(&p);
	write_adapters(&p);
	write_engine(&p);
	write_model(&p);
	write_histograms(&p);
	metrics_write_vllm(t, v, p.labels);
	for (i = 0; i < v->nr_models; i++) {
		t->failed |= p.labels[i].failed;
		text_free(&p.labels[i]);
	}
	free(p.labels);
}
