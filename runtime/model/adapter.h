/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapter.h - adapters (LoRA) in the format of PEFT
 *
 * An adapter adds to some products of a model: y = x * W^T becomes
 *
 *	y = x * W^T + scale * (x * A^T) * B^T
 *
 * with A of [rank][columns of W] and B of [rows of W][rank] (arXiv 2106.09685).  A place in
 * a layer that can have such a pair is a site.
 *
 * An adapter is read from its folder once and checked as a whole against the model.  To run
 * it, its numbers are written into blocks of memory, of one size for all adapters of a
 * model.  The memory belongs to the caller.
 */
#ifndef RUNTIME_MODEL_ADAPTER_H
#define RUNTIME_MODEL_ADAPTER_H

#include "runtime/model/model.h"

#define ADAPTER_MAX_RANK	512u
#define ADAPTER_DEF_RANK	64u	/* the largest rank, where the user names none */
#define ADAPTER_DIGEST_LEN	32

/* The products of a layer, as the decoder makes them. */
enum adapter_site {
	ADAPTER_Q,
	ADAPTER_K,
	ADAPTER_V,
	ADAPTER_QKV,	/* q, k and v of a head side by side */
	ADAPTER_O,
	ADAPTER_GATE,
	ADAPTER_UP,
	ADAPTER_DOWN,
	NR_ADAPTER_SITES
};

/**
 * struct adapter_pair - the two matrices of a site, where they lie in memory
 * @a:     [rank][columns of W], f32 in exact mode with arithmetic in f32, else bf16
 * @b:     [rank][rows of W], the second matrix transposed, of the same type
 * @rank:  0: the site has none
 * @scale: factor on the product
 */
struct adapter_pair {
	const void	*a;
	const void	*b;
	u32		rank;
	float		scale;
};

/**
 * struct adapter_place - an adapter that lies in memory
 * @pair: [layers][NR_ADAPTER_SITES]
 */
struct adapter_place {
	struct adapter_pair	*pair;
};

struct adapter;

/**
 * struct adapter_info - what is known of an adapter; strings belong to it
 * @dir:    its folder
 * @rank:   the largest rank of its sites
 * @sites:  sites that have a pair, in all layers
 * @params: elements of all matrices
 * @bytes:  bytes of them in blocks
 * @digest: of all numbers, shapes and scales
 */
struct adapter_info {
	const char	*dir;
	u32		rank;
	u32		sites;
	u64		params;
	u64		bytes;
	u8		digest[ADAPTER_DIGEST_LEN];
};

/**
 * adapter_load() - read an adapter and check it
 * @model:    the model that it is for; must outlive the adapter
 * @dir:      folder with adapter_config.json and adapter_model.safetensors
 * @max_rank: a larger rank is refused
 * @out:      the adapter; untouched on failure
 * @err:      set on failure, one line
 *
 * Context: any thread; the model may run meanwhile.  All numbers are read once.
 *
 * Return: 0; -ENOENT: a file is missing; -EINVAL: a file is invalid, does not fit the
 * model, or has a number that is not finite; -EOPNOTSUPP: valid, but with a feature that is
 * not supported; -ENOMEM; or the error of open(), read() or mmap().
 */
int __must_check adapter_load(const struct model *model, const char *dir, u32 max_rank,
			      struct adapter **out, struct model_error *err);

/* NULL is allowed. */
void adapter_free(struct adapter *a);

const struct adapter_info *adapter_info(const struct adapter *a);

/**
 * adapter_block_bytes() - the size of the blocks that adapters of a model lie in
 * @max_rank: of the adapters
 *
 * A power of two from 64 KiB on.  The largest matrix of that rank fits.
 *
 * Return: bytes; 0: this model takes no adapters, see @err.
 */
u64 adapter_block_bytes(const struct model *model, u32 max_rank, struct model_error *err);

/* How many blocks the adapter takes, at least 1. */
u32 adapter_blocks(const struct adapter *a, u64 block_bytes);

/**
 * adapter_write() - write the content of a block
 * @a:           the adapter
 * @block_bytes: of adapter_block_bytes()
 * @block:       its number
 * @to:          @block_bytes bytes of host memory; all of them are written
 *
 * The same adapter always has the same bytes.
 *
 * Return: 0; -EIO: the file was cut or changed since adapter_load().
 */
int __must_check adapter_write(const struct adapter *a, u64 block_bytes, u32 block, void *to);

/**
 * adapter_locate() - where the matrices are, in blocks that adapter_write() has filled
 * @blocks: address of each block, as kernels see it
 * @place:  its pairs are filled in; [layers][NR_ADAPTER_SITES], allocated by the caller
 */
void adapter_locate(const struct adapter *a, u64 block_bytes, void *const *blocks,
		    struct adapter_place *place);

/* How many pairs a place of this model has. */
u32 adapter_pairs(const struct model *model);

#endif /* RUNTIME_MODEL_ADAPTER_H */
