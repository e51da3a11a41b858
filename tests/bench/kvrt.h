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
 * Start it with the demo model, on a port of its own, and wait until it is
 * ready; @args are more options, NULL-terminated.  Ends the benchmark with a
 * line when that fails.
 */
void bench_kvrt_start(struct bench_kvrt *k, const struct bench_daemon *hold,
		      const char *const *args);

/* The same with the model in @dir; @name is of its log, unique for @hold. */
void bench_kvrt_start_model(struct bench_kvrt *k,
			    const struct bench_daemon *hold, const char *name,
			    const char *dir, const char *const *args);

/* SIGTERM, and wait. */
void bench_kvrt_stop(struct bench_kvrt *k);

/* Tokens that its engine has delivered, of all requests so far. */
u64 bench_kvrt_tokens(const struct bench_kvrt *k);

/* A figure of its /metrics, of all models together. */
double bench_kvrt_figure(const struct bench_kvrt *k, const char *name);

#endif /* TESTS_BENCH_KVRT_H */
