/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - declarations shared by the kinds of kvrt bench
 *
 * A workload is a list of requests, made from a seed before the measurement.  A
 * prompt is a list of pieces, each a number of tokens of an endless sequence
 * that depends on the piece's seed.  So prompts with the same beginning share
 * pieces, and no prompt is kept in memory.
 */
#ifndef RUNTIME_CLI_BENCH_H
#define RUNTIME_CLI_BENCH_H

#include <stdio.h>

#include <kvmm/opts.h>
#include <kvmm/text.h>

#define BENCH_TRACE_BLOCK	512u	/* tokens for each of a trace's hash_ids */

/* ---- bench_draw.c: random numbers; a seed always gives the same ones ---- */

struct draw {
	u64 state;
};

void draw_seed(struct draw *d, u64 seed, u64 stream);
u64 draw_u64(struct draw *d);
/* Above 0, up to 1. */
double draw_unit(struct draw *d);
/* From @lo to @hi, both included. */
u32 draw_between(struct draw *d, u32 lo, u32 hi);
double draw_normal(struct draw *d);
/* With mean @shape: the scale is 1. */
double draw_gamma(struct draw *d, double shape);
/* draw_mix() - a number that looks random but depends only on @x */
u64 draw_mix(u64 x);

/**
 * draw_arrivals() - send times of requests
 * @at:    gets seconds from the start, @nr of them, ascending
 * @rate:  requests a second; infinity: all at 0
 * @shape: of the gamma distribution of the gaps: 1 is a Poisson process, less
 *         comes in bursts, more is steadier
 *
 * The last time is exactly @nr / @rate, so that runs with different seeds offer
 * the same load.
 */
void draw_arrivals(struct draw *d, double rate, double shape, double *at,
		   u32 nr);

/* ---- bench_data.c, bench_trace.c: workloads ---- */

enum bench_dataset {
	BENCH_RANDOM,
	BENCH_SHAREGPT,
	BENCH_PREFIX,
	BENCH_TRACE,
};

struct bench_piece {
	u64	seed;
	u32	nr;
};

/**
 * struct bench_request - one request of a workload
 * @at:    when it is sent, seconds from the start
 * @in:    tokens of the prompt, the sum of its pieces
 * @out:   tokens to generate
 * @first: its first piece in the list of all, @nr of them
 */
struct bench_request {
	double	at;
	u32	in;
	u32	out;
	u32	first;
	u32	nr;
};

/**
 * struct workload - requests and their times
 * @cut:   requests that were shortened to fit the model's context
 * @starved: of these, those whose prompt left room for one token of many
 * @timed: the requests have times; else bench_arrivals() sets them
 */
struct workload {
	struct bench_request	*list;
	u32			nr;
	u32			cap;
	struct bench_piece	*pieces;
	u32			nr_pieces;
	u32			cap_pieces;
	u32			cut;
	u32			starved;
	bool			timed;
};

/* Workload options of every kind. */
#define BENCH_DATA_OPTS(x)						\
	x(choice, dataset, "dataset", "random", 0, 0,			\
	  "random|sharegpt|prefix|trace",				\
	  "random: --input-len and --output-len; sharegpt: lengths like those of ShareGPT chats; prefix: --num-prefixes beginnings that prompts share; trace: from --trace") \
	x(uint, num_prompts, "num-prompts", "1000", 1, 10000000, "N",	\
	  "requests; of a trace, at most the first N")			\
	x(uint, input_len, "input-len", "1024", 1, 1 << 24, "N",	\
	  "tokens of a prompt of random")				\
	x(uint, output_len, "output-len", "128", 1, 1 << 24, "N",	\
	  "tokens to generate, of random and prefix")			\
	x(str, range_ratio, "range-ratio", "0", 0, 0, "R",		\
	  "lengths of random are drawn from (1-R) to (1+R) times those given, below 1") \
	x(uint, num_prefixes, "num-prefixes", "10", 1, 1 << 24, "N",	\
	  "different beginnings of prefix")				\
	x(uint, prefix_len, "prefix-len", "256", 1, 1 << 24, "N",	\
	  "tokens of a beginning of prefix")				\
	x(uint, suffix_len, "suffix-len", "256", 0, 1 << 24, "N",	\
	  "tokens behind it that no other prompt has")			\
	x(str, trace, "trace", NULL, 0, 0, "FILE",			\
	  "a trace in Mooncake's form: on each line an object with timestamp (ms), input_length, output_length and hash_ids, one for 512 tokens") \
	x(str, seed, "seed", "0", 0, 0, "N",				\
	  "same seed, same workload")

struct bench_data_opts {
#define x OPT_FIELD
	BENCH_DATA_OPTS(x)
#undef x
};

/* workload_init() - start an empty workload */
void workload_init(struct workload *w);
void workload_free(struct workload *w);

/* Add a request, then its pieces; each piece lengthens it.  0 or -ENOMEM. */
int __must_check workload_add(struct workload *w, double at, u32 out);
int __must_check workload_piece(struct workload *w, u64 seed, u32 nr);

/**
 * workload_make() - make the workload that the options ask for
 * @max_len: the model's context in tokens, to which requests are cut; 0: none
 *
 * Return: 0, or an exit code after one line on stderr.
 */
int workload_make(struct workload *w, const struct bench_data_opts *o,
		  u32 max_len);

/**
 * workload_judge() - say that requests were cut, and how they would fit
 * @max_len: as for workload_make()
 * @quiet:   only say it if nothing is left to measure
 *
 * Return: 0; EX_DATAERR: no request has room for its answer.
 */
int workload_judge(const struct workload *w, const struct bench_data_opts *o,
		   u32 max_len, bool quiet);

/**
 * trace_read() - read the requests of a trace
 * @name: name of the file @f, for messages
 * @most: most requests to take
 *
 * A line that is no valid request is refused by its number.
 * Return: 0, or an exit code after one line on stderr.
 */
int trace_read(struct workload *w, FILE *f, const char *name, u32 most);

/**
 * workload_ids() - make the tokens of a prompt
 * @vocab: ids are below it, and above the ids that many vocabularies have for
 *         special tokens and bytes
 * @out:   gets @r->in ids
 */
void workload_ids(const struct workload *w, const struct bench_request *r,
		  u32 vocab, u32 *out);
/* The same as a JSON list, and as JSON text of about as many tokens. */
void workload_json_ids(const struct workload *w, const struct bench_request *r,
		       u32 vocab, struct text *t);
void workload_json_text(const struct workload *w,
			const struct bench_request *r, struct text *t);

/* ---- bench_stat.c: statistics ---- */

struct series {
	double	*v;
	size_t	nr;
	size_t	cap;
	bool	failed;		/* there was no memory: values are missing */
};

void series_add(struct series *s, double v);
void series_free(struct series *s);
void series_sort(struct series *s);
double series_mean(const struct series *s);
/* Standard deviation of the population. */
double series_std(const struct series *s);
/*
 * Of a sorted series, linear between two values; @p from 0 to 100; 0 if empty.
 */
double series_percentile(const struct series *s, double p);

#define BENCH_PERCENTILES	16u

struct percentiles {
	u32	nr;
	double	p[BENCH_PERCENTILES];
};

/* percentiles_parse() - "50,90,99.9": 0, or EX_USAGE after a line */
int percentiles_parse(struct percentiles *p, const char *text);
/* percentile_name() - "p99" or "p99.9", into @buf */
const char *percentile_name(double p, char *buf, size_t len);

/* ---- kinds ---- */

extern const struct kv_program bench_serve_program;
extern const struct kv_program bench_throughput_program;
extern const struct kv_program bench_latency_program;

int bench_serve(int argc, char **argv);
int bench_throughput(int argc, char **argv);
int bench_latency(int argc, char **argv);

#endif /* RUNTIME_CLI_BENCH_H */
