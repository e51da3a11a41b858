/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark.h - assertions that hold cost nothing
 *
 * The compiler includes this file in front of each test of a unit and of an integration
 * test.  libcheck writes a message to a file for every assertion that holds, and the
 * parent of the test reads all of them, to say where a test was when it died.  Assertions
 * in a loop took most of the time of some suites.  Here each assertion of the source
 * tells its place once in a process: a test that dies is said to be behind the assertion
 * that was the last one to be new.
 */
#ifndef TESTS_MARK_H
#define TESTS_MARK_H

#include <check.h>

/* The macros of check.h call it.  The parentheses name the function. */
#define _mark_point(file, line) ({						\
	static int told_;							\
	if (!__atomic_exchange_n(&told_, 1, __ATOMIC_RELAXED))			\
		(_mark_point)(file, line);					\
})

#endif /* TESTS_MARK_H */
