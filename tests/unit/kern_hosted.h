/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kern_hosted.h - kernels of a device, with arguments in host memory
 *
 * The tests of the kernels have their data in host memory.  The ops of this
 * table take such data: each copies its inputs to the device, runs the kernel
 * there, and copies all changes back.  So one test runs every implementation.
 * Pointers keep their alignment, up to HOSTED_ALIGN.
 *
 * The device is that of $KVMM_LIBCUDA, else the stand-in that the tests bring
 * ($KVMM_BUILD/tests/standin/libcuda.so.1).
 */
#ifndef TESTS_KERN_HOSTED_H
#define TESTS_KERN_HOSTED_H

#include <stdlib.h>

#include "kernels/kernels.h"

#define HOSTED_ALIGN	64u

/* Most parts of adapt(). */
#define HOSTED_PARTS	72u

/**
 * hosted_at() - enumerate all implementations that tests of kernels run
 * @i: those of kern_at(), then those of the device, exact before fast
 *
 * Ops of a device take any context, but use their own one.  They belong to the
 * table that this function returned last.
 *
 * Return: the table, or NULL past the last.
 */
const struct kern_ops *hosted_at(u32 i);

/* Number of rounds of a test, by $KVMM_TEST_LEVEL: a stand-in for a device is slow. */
static inline int hosted_rounds(int check, int all)
{
	const char *level = getenv("KVMM_TEST_LEVEL");

	return !level || strcmp(level, "check") ? all : check;
}

/* The same, but without devices at level check: check_cuda_* run there, too. */
static inline const struct kern_ops *hosted_some(u32 i)
{
	return hosted_rounds(0, 1) ? hosted_at(i) : kern_at(i);
}

/* Is @ops a table of the device? */
bool hosted_is_device(const struct kern_ops *ops);

/* The pool at @base has @bytes; ops on paged KV must know it. */
void hosted_pool(const void *base, u64 bytes);

/* The pool at @base is about to be freed. */
void hosted_pool_ends(const void *base);

/*
 * Point $KVMM_LIBCUDA at the stand-in, unless the variable is set.  Return:
 * false without either.
 */
bool hosted_driver(void);

#endif /* TESTS_KERN_HOSTED_H */
