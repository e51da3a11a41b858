/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_alloc.h - counts that watch_alloc.so reports to its test
 *
 * They are in a file, named by an environment variable, that both processes
 * have mapped.  All fields are written with atomic operations only.
 */
#ifndef TESTS_WATCH_ALLOC_H
#define TESTS_WATCH_ALLOC_H

#include <kvmm/types.h>

#define WATCH_ENV	"KVMM_WATCH_ALLOC"	/* path of that file */
#define WATCH_THREAD	"kvmm-mm"		/* thread with counted calls */
#define WATCH_CALLS	16u

/**
 * struct watch_call - one counted call
 * @what: name of the function
 * @from: address of the caller, from the beginning of the program; an address
 *        far beyond it is in a library
 */
struct watch_call {
	char	what[16];
	u64	from;
	u64	bytes;
};

/**
 * struct watch_page - the file
 * @nr_threads: threads that took the name since the file was made
 * @nr_elsewhere: calls on all other threads: the interception works
 * @nr_calls: calls on the thread; the first of them are in @call
 */
struct watch_page {
	u64			nr_threads;
	u64			nr_elsewhere;
	u64			nr_calls;
	struct watch_call	call[WATCH_CALLS];
};

#endif /* TESTS_WATCH_ALLOC_H */
