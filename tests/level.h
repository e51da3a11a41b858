/* SPDX-License-Identifier: Apache-2.0 */
/*
 * level.h - the amount of work for the tests of a unit
 *
 * KVMM_TEST_LEVEL is check, where all suites together have five minutes, full
 * or soak.  The default, for a suite that is started by hand, is check.
 */
#ifndef TESTS_LEVEL_H
#define TESTS_LEVEL_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool level_is_check(void)
{
	const char *level = getenv("KVMM_TEST_LEVEL");

	return !level || !strcmp(level, "check");
}

#endif /* TESTS_LEVEL_H */
