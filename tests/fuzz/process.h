/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.h - calls that have effects outside the process, under a fuzzer
 */
#ifndef TESTS_FUZZ_PROCESS_H
#define TESTS_FUZZ_PROCESS_H

#include <setjmp.h>

#include "tests/fuzz/fuzz.h"

/* Called instead of unlink(); true: report success. */
extern bool (*fuzz_on_unlink)(const char *path);
/* fork() fails. */
extern bool fuzz_no_fork;
/* exit() jumps to this place. */
extern jmp_buf *fuzz_exit;

#endif /* TESTS_FUZZ_PROCESS_H */
