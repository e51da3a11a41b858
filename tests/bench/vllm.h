/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vllm.h - vLLM's block pool as a peer, if it is available
 */
#ifndef TESTS_BENCH_VLLM_H
#define TESTS_BENCH_VLLM_H

#include <kvmm/types.h>

/**
 * vllm_start() - start it with @nr_blocks blocks, all free
 *
 * Prints a note with its version, or with the reason why there is none.
 *
 * Return: its name for reports, with the version; NULL: there is none
 */
const char *vllm_start(u32 nr_blocks);

/* Nanoseconds of a get and a free of a block, @batch taken at a time. */
double vllm_pairs(u32 rounds, u32 batch);

/* Nanoseconds of a hit: find a cached block, touch it, free it. */
double vllm_hits(u32 rounds);

#endif /* TESTS_BENCH_VLLM_H */
