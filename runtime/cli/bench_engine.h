/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_engine.h - the engine under measurement, without a server
 */
#ifndef RUNTIME_CLI_BENCH_ENGINE_H
#define RUNTIME_CLI_BENCH_ENGINE_H

#include <jansson.h>

#include "runtime/cli/bench.h"
#include "runtime/cli/cli.h"

/* Options of the kinds that load a model. */
#define BENCH_ENGINE_OPTS(x)						\
	x(str, json, "json", NULL, 0, 0, "FILE",			\
	  "write the results there as JSON; -: to standard output, in the place of the text") \
	x(flag, quiet, "quiet", NULL, 0, 0, NULL,			\
	  "print no more on stderr than errors")			\
	x(flag, warm, "warm-cache", NULL, 0, 0, NULL,			\
	  "use the prefix cache that earlier runs left; else each run begins with an empty one") \
	x(choice, dtype, "dtype", "auto", 0, 0, CLI_DTYPES,		\
	  CLI_DTYPE_TEXT)						\
	x(choice, mode, "mode", "fast", 0, 0, "fast|exact",		\
	  "exact gives the same bits in any batch")	\
	x(choice, kernels, "kernels", "auto", 0, 0, "auto|cpu|ref",	\
	  "implementation of the arithmetic; ref is slow and plain")	\
	x(uint, threads, "threads", "0", 0, 1024, "N",			\
	  "compute threads, 0: one for each core")			\
	CLI_MODEL_OPTS(x)						\
	x(uint, max_model_len, "max-model-len", "0", 0, 1 << 30, "N",	\
	  "longest sequence in tokens, 0: that of the model; requests are cut to it") \
	x(str, domain, "domain", NULL, 0, 0, "NAME",			\
	  "the daemon's domain that holds the blocks (default the name of the model folder)") \
	x(str, socket, "socket", NULL, 0, 0, "PATH",			\
	  "run directory of the daemon, or a socket in it (default $KVMM_SOCKET, else $KVMM_RUNDIR, else $XDG_RUNTIME_DIR/kvmm, else /tmp/kvmm-UID; /run/kvmm for root, and for users without a daemon there)") \
	x(choice, block_tokens, "block-tokens", "auto", 0, 0, "auto|16|32|64", \
	  "tokens of a block; auto: 16, or as --state-tokens in a model with recurrent layers") \
	x(uint, max_seqs, "max-seqs", "256", 1, 65536, "N",		\
	  "most sequences that have memory at once")			\
	x(uint, max_batch, "max-batch", "0", 0, 4096, "N",		\
	  "most sequences in one step, 0: as many as model and daemon allow") \
	x(uint, chunk, "chunk", "0", 0, 65536, "N",			\
	  "most tokens of one prompt in one step, 0: as many as fit")	\
	CLI_LIMIT_OPTS(x)

struct bench_engine_opts {
#define x OPT_FIELD
	BENCH_ENGINE_OPTS(x)
#undef x
};

#define BENCH_ENGINE_EXITS						\
	{ 0, "done; also --help and --version" },			\
	{ EX_USAGE, "a wrong option or argument" },			\
	{ EX_DATAERR, "model files with wrong contents, a trace that is none, or a request that can never fit" }, \
	{ EX_NOINPUT, "a model folder, a file of it, or the trace is missing" }, \
	{ EX_UNAVAILABLE, "no kvmm daemon answers, or it refuses this client" }, \
	{ EX_SOFTWARE, "a defect of kvrt or kvmm" },			\
	{ EX_OSERR, "the system refused memory or threads" },		\
	{ EX_IOERR, "a file cannot be read, or the results not be written" }, \
	{ EX_TEMPFAIL, "the daemon went away or is full, or a signal ended it" }, \
	{ EX_NOPERM, "the daemon's socket admits others only" },	\
	{ CLI_EX_DEVICE, "the GPU failed: run it again" },

/**
 * struct bench_engine - a model and its attachment
 * @vocab: ids of prompts are below it
 * @salt:  requests with the same salt share cached blocks; new for each run
 * @done:  samples that ended, @failed of them with an error
 * @tokens: tokens generated; @cached: prompt tokens found in the cache
 * @why:   text of the first failure
 */
struct bench_engine {
	const struct bench_engine_opts	*o;
	struct model			*model;
	struct engine			*engine;
	struct progress			progress;
	struct cli_model		found;
	u32				vocab;
	u64				salt;
	u32				done;
	u32				failed;
	u64				tokens;
	u64				cached;
	struct series			ends;	/* seconds from the beginning */
	double				begin;
	int				err;
	char				why[256];
};

/* Find and load the model @dir and attach: 0, or an exit code after a line. */
int bench_engine_open(struct bench_engine *e, const struct bench_engine_opts *o,
		      const char *dir);
void bench_engine_close(struct bench_engine *e);

/**
 * bench_engine_run() - run all requests of @w at once, to their ends
 * @n: samples of each
 * @s: gets the duration in seconds
 *
 * Return: 0, or an exit code after a line on stderr.
 */
int bench_engine_run(struct bench_engine *e, const struct workload *w, u32 n,
		     double *s);

/* The counters of the model, if it has layers with experts: a line, and a member of @v. */
void bench_say_experts(const struct bench_engine *e);
void bench_add_experts(const struct bench_engine *e, json_t *v);

/* Write JSON to @file, "-" is stdout; takes @v.  0 or an exit code. */
int bench_write_json(const char *file, json_t *v);

#endif /* RUNTIME_CLI_BENCH_ENGINE_H */
