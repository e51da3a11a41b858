/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve_profile.h - CPU time of a server, by groups of functions
 */
#ifndef TESTS_BENCH_SERVE_PROFILE_H
#define TESTS_BENCH_SERVE_PROFILE_H

#include <sys/types.h>

#include <kvmm/types.h>

#define PROFILE_PIDS_MAX	64

/* A process and its descendants, PROFILE_PIDS_MAX at most.  Return: how many. */
u32 profile_tree(pid_t root, pid_t *pids);

/* CPU nanoseconds of a process and its descendants. */
u64 profile_tree_ns(pid_t root);

/* Is perf usable here? */
bool profile_possible(void);

/* Sample kvrt, and kvmm-hold with its descendants, for @ms. */
void profile_start(pid_t kvrt, pid_t hold, const char *dir, u32 ms);

/* Wait for the end, and print lines that begin with "note: ". */
void profile_print(void);

#endif /* TESTS_BENCH_SERVE_PROFILE_H */
