/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fail_nth.h - what fail_nth.so and its test share: a page in a file
 */
#ifndef TESTS_FAIL_NTH_H
#define TESTS_FAIL_NTH_H

#include <kvmm/types.h>

#define FAIL_ENV	"KVMM_FAIL_NTH"	/* path of the page */

/**
 * struct fail_page - who is counted, and which call is the one that fails
 * @armed:   0: nobody is counted
 * @nr:      calls counted since, of all threads and processes
 * @target:  this one fails, counted from 1; 0: none
 * @failed:  set when it did
 * @error:   with this errno
 * @from:    address of the caller in its program
 * @call:    what was called
 * @program: by whom, as in /proc/PID/comm
 */
struct fail_page {
	u64	armed;
	u64	nr;
	u64	target;
	u64	failed;
	u64	error;
	u64	from;
	char	call[32];
	char	program[32];
};

#endif /* TESTS_FAIL_NTH_H */
