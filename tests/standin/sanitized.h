/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sanitized.h - tests that are not run in sanitized builds, or on a real driver
 *
 * The stand-in itself is never sanitized, but the program that uses it is.  After
 * a fault of the device the stand-in forgets the contents of its queues and
 * modules, as a driver may: LeakSanitizer would report them.
 */
#ifndef TESTS_STANDIN_SANITIZED_H
#define TESTS_STANDIN_SANITIZED_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In a sanitized build print a note that @test is left out.  Return: whether. */
static inline bool standin_forgets(const char *test)
{
	const char *name = getenv("KVMM_SANITIZER");

	if (!name || !*name)
		return false;
	printf("note: %s is left out: after a fault the stand-in forgets memory, which a sanitizer counts as a leak\n",
	       test);
	return true;
}

/*
 * $KVMM_LIBCUDA is a path for the stand-in and a bare name for the real driver, as
 * tests/gpu/check sets it.  On a real driver print a note that @test is left out.
 * Return: whether.
 */
static inline bool standin_absent(const char *test)
{
	const char *name = getenv("KVMM_LIBCUDA");

	if (!name || strchr(name, '/'))
		return false;
	printf("note: %s is left out: only the stand-in fails on request\n",
	       test);
	return true;
}

#endif /* TESTS_STANDIN_SANITIZED_H */
