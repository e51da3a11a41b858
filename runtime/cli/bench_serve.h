/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_serve.h - the load that kvrt bench serve puts on a server
 *
 * In layers: a form is the kind of request that the server accepts, a flow is
 * one request in flight, the load is all of them in time, the report is the
 * results.
 */
#ifndef RUNTIME_CLI_BENCH_SERVE_H
#define RUNTIME_CLI_BENCH_SERVE_H

#include "runtime/cli/bench.h"
#include "runtime/cli/web.h"

#define LOAD_REASONS	12u
#define LOAD_REASON_MAX	160u

/* ---- bench_form.c ---- */

/**
 * struct ask_form - form of the requests
 * @ids:        prompts are token ids, below @vocab
 * @ignore_eos: answers have the requested length
 * @usage:      the last event has the number of tokens
 * @probes:     requests used to find this out; @probe_in and @probe_out are the
 *              tokens that the server counted for them
 */
struct ask_form {
	const char	*model;
	const char	*path;
	bool		chat;
	bool		ids;
	bool		ignore_eos;
	bool		usage;
	u32		vocab;
	double		temperature;
	u32		probes;
	u64		probe_in;
	u64		probe_out;
};

/* form_body() - write the body of a request */
void form_body(const struct ask_form *f, const struct workload *w,
	       const struct bench_request *r, struct text *t);

/**
 * form_probe() - ask for two tokens, and drop parts that the server refuses
 * @f:    the form wanted; becomes the form accepted
 * @text: the prompt may become text
 *
 * Each dropped part is reported in a line.
 * Return: 0, or an exit code after a line on stderr.
 */
int form_probe(struct ask_form *f, const struct web_server *s, const char *key,
	       u32 timeout_s, bool text);

/* ---- bench_flow.c ---- */

struct usage {
	u64	in;
	u64	out;
	u64	cached;
	bool	known;
};

/**
 * struct flow - one request in flight
 * @request: its number in the workload
 * @reused:  its connection was used before
 * @armed:   epoll tells when more can be sent
 * @failed:  @why has the reason
 * @begin:   when it was sent; @first and @last, when tokens came; @seen, when
 *           any input came; in seconds of the monotonic clock
 * @events:  number of events with tokens
 * @gaps:    times between them
 */
struct flow {
	struct web_call	call;
	u32		request;
	bool		reused;
	bool		armed;
	bool		ended;
	bool		failed;
	double		begin;
	double		first;
	double		last;
	double		seen;
	u32		events;
	struct usage	usage;
	struct series	gaps;
	char		why[LOAD_REASON_MAX];
	struct flow	*next;
	struct flow	**prev;
};

/*
 * flow_take() - handle input of web_call_read() at @now; may end or fail the
 * flow
 */
void flow_take(struct flow *f, double now, bool chat);

/* flow_fail() - fail the flow; control characters in the text become '?' */
void flow_fail(struct flow *f, const char *fmt, ...) __printf(2, 3);

/* flow_error() - a phrase for a negative errno of a connection */
const char *flow_error(int err);

/* usage_take() - read the "usage" of an answer */
void usage_take(struct usage *u, const json_t *v);

/* ---- bench_load.c ---- */

struct load_limits {
	double	ttft;		/* seconds; 0: none */
	double	tpot;
	double	e2el;
};

/* A reason of failure, and how often it occurred. */
struct load_reason {
	char	text[LOAD_REASON_MAX];
	u32	nr;
};

/* One answered request. */
struct load_sample {
	u32	request;
	u32	in;
	u32	out;
	u32	cached;
	double	begin;
	double	ttft;
	double	e2el;
	size_t	first_gap;
	u32	nr_gaps;
};

/**
 * struct load - state of one run
 * @most:     most requests in flight at once
 * @samples:  answered requests, @completed of them
 * @gaps:     times between their tokens, request after request
 * @unsent:   requests that were not sent, since the run was stopped
 * @cut_off:  requests that were in flight when the run was stopped
 * @peak:     most requests that were in flight at once
 * @short_of: answers shorter than requested
 * @counted:  answers with tokens counted by the server
 * @gone:     no program listens at the address any more
 */
struct load {
	const struct workload	*w;
	const struct ask_form	*form;
	const struct web_server	*server;
	const char		*key;
	u32			timeout_s;
	u32			most;
	bool			progress;
	struct load_sample	*samples;
	u32			completed;
	struct series		gaps;
	struct load_reason	reasons[LOAD_REASONS];
	u32			nr_reasons;
	u32			failed;
	u32			unsent;
	u32			cut_off;
	u32			peak;
	u32			short_of;
	u32			counted;
	bool			gone;
	bool			stopped;
	double			begin;
	double			duration;
};

/**
 * load_run() - send all requests at their times and wait for the answers
 *
 * Return: 0 if the results are worth printing, else an exit code after a line
 * on stderr.
 */
int load_run(struct load *l);
void load_free(struct load *l);

/* ---- bench_report.c ---- */

/* Facts about the run from the command line, for readers of the results. */
struct report_of {
	const char		*url;
	const char		*dataset;
	const char		*seed;
	double			rate;
	double			burstiness;
	u32			max_concurrency;
	struct percentiles	percentiles;
	struct load_limits	goodput;
	bool			detailed;
};

/* report_print() - print the table for people */
void report_print(const struct load *l, const struct report_of *o, FILE *out);

/* report_json() - the results for programs, keys as vLLM's; NULL: no memory */
json_t *report_json(const struct load *l, const struct report_of *o);

#endif /* RUNTIME_CLI_BENCH_SERVE_H */
