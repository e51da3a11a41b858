/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orca.h - contiguous reservation, the peer of paging
 */
#ifndef TESTS_BENCH_ORCA_H
#define TESTS_BENCH_ORCA_H

#include "tests/bench/node.h"

enum orca_policy { ORCA_MAX, ORCA_POW2, ORCA_ORACLE, ORCA_NR };
extern const char * const orca_name[ORCA_NR];

/* Use of the slots of the pool, in percent; means over the steps. */
struct orca_use {
	double	live;		/* hold a token */
	double	later;		/* will hold a token of the same request */
	double	internal;	/* reserved, and never used */
	double	external;	/* lost between and around reservations */
	double	batch;		/* requests that run */
};

/**
 * orca_run() - serve a trace whose requests are all there from the start
 * @slots: tokens of the pool
 * @steps: to be measured, after as many to warm up
 */
void orca_run(enum orca_policy policy, const struct nd_req *reqs, u32 nr,
	      u32 slots, u32 steps, struct orca_use *use);

#endif /* TESTS_BENCH_ORCA_H */
