/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sanitized.h - what is not run in sanitized builds
 *
 * The stand-in is never sanitized itself, but what a program does over it is.
 * After a fault of the device the stand-in forgets what lay in its queues and
 * modules, as a driver may: a leak to whoever counts.
 */
#ifndef TESTS_STANDIN_SANITIZED_H
#define TESTS_STANDIN_SANITIZED_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* True, and said: @what is about a device that fails, and is left out. */
static inline bool standin_forgets(const char *what)
{
	const char *name = getenv("KVMM_SANITIZER");

	if (!name || !*name)
		return false;
	printf("note: %s is left out: after a fault the stand-in forgets memory, which a sanitizer counts as a leak\n",
	       what);
	return true;
}

#endif /* TESTS_STANDIN_SANITIZED_H */
