/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kern_hosted.h - kernels of a device, behind the arguments of the host
 *
 * The tests of the kernels have their data in memory of the program.  Here is
 * a table whose ops take that: each copies what its kernel reads to the device,
 * runs it there, and copies what may have changed back.  So one test runs every
 * implementation.  Pointers keep their alignment, up to HOSTED_ALIGN.
 *
 * The device is that of $KVMM_LIBCUDA, else the stand-in that the tests bring
 * ($KVMM_BUILD/tests/standin/libcuda.so.1).
 */
#ifndef TESTS_KERN_HOSTED_H
#define TESTS_KERN_HOSTED_H

#include <stdlib.h>

#include "kernels/kernels.h"

#define HOSTED_ALIGN	64u

/**
 * hosted_at() - enumerate all implementations that tests of kernels run
 * @i: as kern_at() has them, then the device's, exact before fast
 *
 * Ops of a device take any context, and use one of their own; until the next
 * call of this function they are those of the table that it returned last.
 *
 * Return: the table, or NULL past the last.
 */
const struct kern_ops *hosted_at(u32 i);

/*
 * A device that is a CPU is slow: how many rounds a test is to have, by
 * $KVMM_TEST_LEVEL.
 */
static inline int hosted_rounds(int check, int all)
{
	const char *level = getenv("KVMM_TEST_LEVEL");

	return !level || strcmp(level, "check") ? all : check;
}

/* The same, but at level check without devices: check_cuda_* are there, too. */
static inline const struct kern_ops *hosted_some(u32 i)
{
	return hosted_rounds(0, 1) ? hosted_at(i) : kern_at(i);
}

/* Is it a device's? */
bool hosted_is_device(const struct kern_ops *ops);

/* The pool that starts at @base has @bytes; needed by ops on paged KV. */
void hosted_pool(const void *base, u64 bytes);

/* Point $KVMM_LIBCUDA at the stand-in, unless it is set; false: there is none. */
bool hosted_driver(void);

#endif /* TESTS_KERN_HOSTED_H */
