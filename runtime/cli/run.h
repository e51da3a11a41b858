/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - the sizes of a private daemon
 */
#ifndef RUNTIME_CLI_RUN_H
#define RUNTIME_CLI_RUN_H

#include <kvmm/types.h>

/**
 * struct run_wish - sizes that the user gave
 * @max_len:    tokens of the longest sequence, 0: not given
 * @pool_bytes: 0: not given
 * @backend:    choice of --backend: auto, host, cuda
 * @lora:       folder of an adapter, NULL: none
 */
struct run_wish {
	u32	max_len;
	u64	pool_bytes;
	u32	backend;
	const char *lora;
};

/**
 * struct run_plan - sizes of a private daemon
 * @gpu:     the pool is on a GPU
 * @max_len: tokens of the longest sequence, which fits the pool
 */
struct run_plan {
	bool	gpu;
	u32	max_len;
	u64	pool_bytes;
	u64	extent_bytes;
	u64	min_token_bytes;
};

/**
 * struct run_need - needs of a model
 * @token_bytes:  KV of a token
 * @least_bytes:  KV of a token in the smallest layer group, 0: there is one group
 * @len:          tokens of a sequence of full length
 * @weight_bytes: memory that its weights take beside the pool
 * @adapter_bytes: most memory that an adapter takes in the pool, 0: there is none
 */
struct run_need {
	u64	token_bytes;
	u64	least_bytes;
	u64	len;
	u64	weight_bytes;
	u64	adapter_bytes;
};

/**
 * run_sizes() - choose sizes
 * @room: bytes of memory that are free
 * @pool: size that the user gave, or 0
 *
 * @p->gpu is read.
 *
 * Return: false: not even a short sequence fits.
 */
bool run_sizes(const struct run_need *n, u64 room, u64 pool,
	       struct run_plan *p);

/* run_plan() - judge the model in @dir: 0, or an exit code after a line */
int run_plan(const char *dir, const struct run_wish *w, struct run_plan *p);

#endif /* RUNTIME_CLI_RUN_H */
