/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huge.h - huge pages for the time of a benchmark
 */
#ifndef TESTS_BENCH_HUGE_H
#define TESTS_BENCH_HUGE_H

#include <kvmm/types.h>

/**
 * huge_pages_take() - make sure that @nr huge pages are free
 * @nr: pages of 2 MiB
 *
 * Root reserves more if too few are free; at the end of the process, SIGTERM and
 * SIGINT included, there are as many as before.
 */
void huge_pages_take(u64 nr);

/*
 * The same for a child of the process that took them: pages that another program
 * gave back meanwhile are reserved once more.
 */
void huge_pages_again(u64 nr);

/* Are @nr huge pages free? */
bool huge_pages_are_free(u64 nr);

#endif /* TESTS_BENCH_HUGE_H */
