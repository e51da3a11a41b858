// SPDX-License-Identifier: Apache-2.0
/*
 * capacity.c - does the daemon's pool hold the sequences of a model?
 *
 * The whole pool counts, since a model gets the memory of others if it needs it and
 * no guarantee protects it.  Blocks are cut from spans of extents, so some bytes of a
 * pool hold no block.
 */
#include <stdio.h>

#include <kvmm/log.h>
#include <kvmm/opts.h>
#include <uapi/kvmm.h>

#include "runtime/server/capacity.h"

#define DEF_BLOCK	16u	/* tokens, as the engine's default */

/**
 * struct capacity - memory of one model, in sequences
 * @limited: --memory-max is less than the pool
 * @tokens:  that fit the pool, or the limit
 * @needed:  blocks of the longest sequence
 * @seqs:    longest sequences that fit at once
 */
struct capacity {
	bool		limited;
	unsigned int	block_tokens;
	unsigned long long tokens;
	u64		needed;
	unsigned long long seqs;
};

static struct capacity capacity_of(const struct kvmm_attach_rep *rep,
				   u32 max_len, const struct engine_opts *o)
{
	const u32 tokens = o->block_tokens ? o->block_tokens : DEF_BLOCK;
	const u64 pool = (u64)rep->nr_extents / rep->span_extents *
			 rep->span_blocks;
	const u64 most = o->limits.max ? o->limits.max / rep->block_bytes : pool;
	const u64 needed = DIV_ROUND_UP((u64)max_len, (u64)tokens);

	return (struct capacity){
		.limited = most < pool, .block_tokens = tokens,
		.tokens = min(most, pool) * tokens, .needed = needed,
		.seqs = min(most, pool) / needed,
	};
}

/* Say that the longest sequence does not fit, and what would. */
static void say_short(const struct capacity *c, const struct kvmm_attach_rep *rep,
		      u32 max_len, const char *name, char *why, size_t len)
{
	const u64 spans = DIV_ROUND_UP(c->needed, (u64)rep->span_blocks);
	const u64 least = c->limited ? c->needed * rep->block_bytes :
			  spans * rep->span_extents * rep->extent_size;
	char pool[32], need[32], part[80];

	kv_format_size(rep->pool_bytes, pool, sizeof(pool));
	snprintf(part, sizeof(part), c->limited ? "--memory-max" :
		 "the daemon's pool of %s", pool);
	snprintf(why, len, "%s: %s holds %llu tokens, less than one sequence of %u: give --max-model-len %llu, or %s %s",
		 name, part, c->tokens, max_len, c->tokens,
		 c->limited ? "--memory-max" : "the daemon --pool-size",
		 kv_format_size(least, need, sizeof(need)));
}

int capacity_tell(const struct kvmm_attach_rep *rep, const struct model *model,
		  const struct engine_opts *o, const char *name, char *why,
		  size_t len)
{
	const u32 max_len = model_info(model)->max_len;
	const struct capacity c = capacity_of(rep, max_len, o);
	char line[256], pool[32];

	if (!c.seqs) {
		say_short(&c, rep, max_len, name, why, len);
		return -EDQUOT;
	}
	pr_info("%s: %s, blocks of %u tokens", name,
		model_line(model, line, sizeof(line)), c.block_tokens);
	pr_info("%s: %s %s, shared with all other models, holds %llu tokens: %llu request%s of %u tokens, the full length, at once",
		name, c.limited ? "--memory-max of the pool of" : "the pool of",
		kv_format_size(rep->pool_bytes, pool, sizeof(pool)), c.tokens,
		c.seqs, c.seqs == 1 ? "" : "s", max_len);
	return 0;
}
