/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve_profile.h - where a server's time goes, by what functions are for
 */
#ifndef TESTS_BENCH_SERVE_PROFILE_H
#define TESTS_BENCH_SERVE_PROFILE_H

#include <sys/types.h>

#include <kvmm/types.h>

#define PROFILE_PIDS_MAX	64

/* A process and all that come from it, PROFILE_PIDS_MAX at most: how many. */
u32 profile_tree(pid_t root, pid_t *pids);

/* CPU nanoseconds of a process and all that come from it. */
u64 profile_tree_ns(pid_t root);

/* May perf be used here? */
bool profile_possible(void);

/* Sample kvrt, and kvmm-hold with all that come from it, for @ms. */
void profile_start(pid_t kvrt, pid_t hold, const char *dir, u32 ms);

/* Wait for the end, and print lines that begin with "note: ". */
void profile_print(void);

#endif /* TESTS_BENCH_SERVE_PROFILE_H */
