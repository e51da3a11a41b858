/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fail_nth.h - a page in a file that fail_nth.so and its test share
 */
#ifndef TESTS_FAIL_NTH_H
#define TESTS_FAIL_NTH_H

#include <kvmm/types.h>

#define FAIL_ENV	"KVMM_FAIL_NTH"	/* path of the page */

/**
 * struct fail_page - state of the count, and the call that fails
 * @armed:   0: no call is counted
 * @nr:      calls counted since, of all threads and processes
 * @target:  this one fails, counted from 1; 0: none
 * @failed:  set when it did
 * @error:   errno of the failure
 * @from:    address of the caller in its program
 * @call:    name of the call
 * @program: name of the caller, as in /proc/PID/comm
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
