/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvrt.h - a kvrt serve of this build
 */
#ifndef TESTS_BENCH_KVRT_H
#define TESTS_BENCH_KVRT_H

#include "tests/bench/bench.h"

struct bench_kvrt {
	pid_t	pid;
	u32	port;
	char	log[160];
};

/*
 * Start kvrt with the demo model, on a free port, and wait until it is ready;
 * @args are more options, NULL-terminated.  On an error it prints a line and
 * ends the benchmark.
 */
void bench_kvrt_start(struct bench_kvrt *k, const struct bench_daemon *hold,
		      const char *const *args);

/* The same with the model in @dir; @name is that of its log, unique for @hold. */
void bench_kvrt_start_model(struct bench_kvrt *k,
			    const struct bench_daemon *hold, const char *name,
			    const char *dir, const char *const *args);

/* Send SIGTERM, and wait. */
void bench_kvrt_stop(struct bench_kvrt *k);

/* Tokens that its engine has delivered, for all requests so far. */
u64 bench_kvrt_tokens(const struct bench_kvrt *k);

/* A figure of its /metrics, summed over all models. */
double bench_kvrt_figure(const struct bench_kvrt *k, const char *name);

#endif /* TESTS_BENCH_KVRT_H */
