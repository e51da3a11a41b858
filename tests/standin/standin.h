/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standin.h - the shim's interface for the driver's half of the stand-in
 */
#ifndef TESTS_STANDIN_STANDIN_H
#define TESTS_STANDIN_STANDIN_H

#include <kvmm/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shim_kernel;

/**
 * struct shim_launch - one launch
 * @args: its structure, 16 bytes aligned
 * @smem: bytes of dynamic shared memory
 * @smem_max: limit for @smem: 48 KiB, or the value that the host raised it to
 */
struct shim_launch {
	const struct shim_kernel *kernel;
	const void *args;
	u32 grid[3];
	u32 threads;
	u32 smem;
	u32 smem_max;
};

/* NULL: no compiled file has this kernel. */
const struct shim_kernel *shim_find(const char *name);
u32 shim_arg_bytes(const struct shim_kernel *k);
const char *shim_name(const struct shim_kernel *k);
u32 shim_max_threads(const struct shim_kernel *k);

/*
 * Run all blocks, now.  One launch at a time in a process: the caller has a lock.
 * A defect of device code ends the process with a line on standard error.
 */
void shim_run(const struct shim_launch *l);

/* The seed of all random draws: $KVMM_SHIM_SEED, else 1. */
u64 shim_seed(void);

/* Draw a number and advance @state, which must not be 0. */
static inline u64 shim_draw(u64 *state)
{
	u64 x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

#ifdef __cplusplus
}
#endif
#endif /* TESTS_STANDIN_STANDIN_H */
