/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_alloc.h - what watch_alloc.so tells the test that preloaded it
 *
 * A file, named by an environment variable, that both have mapped.  All
 * fields are written with atomic operations only.
 */
#ifndef TESTS_WATCH_ALLOC_H
#define TESTS_WATCH_ALLOC_H

#include <kvmm/types.h>

#define WATCH_ENV	"KVMM_WATCH_ALLOC"	/* path of that file */
#define WATCH_THREAD	"kvmm-mm"		/* whose calls are counted */
#define WATCH_CALLS	16u

/**
 * struct watch_call - one call that was counted
 * @what: name of the function
 * @from: where it was called, from the beginning of the program; what is far
 *        beyond it is in a library
 */
struct watch_call {
	char	what[16];
	u64	from;
	u64	bytes;
};

/**
 * struct watch_page - the file
 * @nr_threads: that took the name since the file was made
 * @nr_elsewhere: calls on all other threads: the interposing works
 * @nr_calls: on the thread; the first of them are in @call
 */
struct watch_page {
	u64			nr_threads;
	u64			nr_elsewhere;
	u64			nr_calls;
	struct watch_call	call[WATCH_CALLS];
};

#endif /* TESTS_WATCH_ALLOC_H */
