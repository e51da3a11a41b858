/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - metrics of a server, in Prometheus' text format
 *
 * A metric has vLLM's name if it has the same meaning, with the prefix kvrt_.
 */
#ifndef RUNTIME_SERVER_METRICS_H
#define RUNTIME_SERVER_METRICS_H

#include "runtime/server/backend.h"
#include "runtime/server/conn.h"

/* Name, bounds, meaning. */
#define METRIC_HISTOGRAMS(x)						\
	x(time_to_first_token_seconds, times, "from a whole request to its first token") \
	x(inter_token_latency_seconds, gaps, "between two tokens of a sample") \
	x(e2e_request_latency_seconds, times, "from a whole request to its last token") \
	x(request_queue_time_seconds, times, "from when the engine had a request to its first step") \
	x(request_prefill_time_seconds, times, "from a request's first step to its first token") \
	x(request_decode_time_seconds, times, "from a request's first token to its last") \
	x(request_inference_time_seconds, times, "from a request's first step to its last token") \
	x(request_preempted_time_seconds, times, "of requests that were preempted: from losing memory to standing where they stood") \
	x(request_prompt_tokens, counts, "tokens of a request's prompts") \
	x(request_generation_tokens, counts, "tokens generated for a request")

/* How requests ended: label and meaning. */
#define METRIC_ENDS(x)							\
	x(stop,		"every sample ended by itself or by a stop string") \
	x(length,	"at least one sample reached its limit")	\
	x(abort,	"the client went away, or was too slow")	\
	x(error,	"failed, or was cut off, through no fault of its client")

enum metric_histogram {
#define x(name, bounds, text) METRIC_##name,
	METRIC_HISTOGRAMS(x)
#undef x
	METRIC_NR_HISTOGRAMS,
};

enum metric_end {
#define x(name, text) METRIC_END_##name,
	METRIC_ENDS(x)
#undef x
	METRIC_NR_ENDS,
};

#define METRIC_BOUNDS_MAX	18u

/* Counts below each bound, and above the last. */
struct histogram {
	u64	count[METRIC_BOUNDS_MAX + 1];
	double	sum;
};

/* Metrics of one model and one HTTP thread, which writes them. */
struct metrics {
	struct histogram	h[METRIC_NR_HISTOGRAMS];
	u64			ends[METRIC_NR_ENDS];
};

/* metrics_observe() - count @n observations of @v */
void metrics_observe(struct metrics *m, enum metric_histogram h, double v,
		     u32 n);

/* metrics_add() - add another thread's metrics; any thread */
void metrics_add(struct metrics *sum, const struct metrics *m);

/**
 * struct metrics_model - a model on one page
 * @name:  its name for clients
 * @adapters: its adapters; NULL: none
 * @m:     its metrics, sums over all loops
 * @ready: requests for it would be admitted now
 */
struct metrics_model {
	const char		*name;
	struct served_adapters		*adapters;
	struct metrics		m;
	struct backend_view	b;
	bool			ready;
};

/**
 * struct metrics_view - the data of one page
 * @models: [@nr_models]
 * @loops:  number of loops
 * @conns:  open connections
 * @stats:  sums over all loops
 * @status: sums over all loops: answers by hundreds of the status
 * @calls:  requests in progress
 */
struct metrics_view {
	const struct metrics_model	*models;
	u32				nr_models;
	u32				loops;
	u32				conns;
	struct loop_stats		stats;
	u64				status[6];
	u32				calls;
};

/* metrics_add_loop() - add the counters of a loop; any thread */
void metrics_add_loop(struct metrics_view *v, const struct loop *l);

/*
 * metrics_write_vllm() - write those of vLLM's names; @labels: of each model,
 * model_name="..."
 */
void metrics_write_vllm(struct text *t, const struct metrics_view *v, const struct text *labels);

/* metrics_write() - write the page */
void metrics_write(struct text *t, const struct metrics_view *v);

#endif /* RUNTIME_SERVER_METRICS_H */
