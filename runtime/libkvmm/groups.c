// SPDX-License-Identifier: Apache-2.0
/*
 * groups.c - tokens of a block for each layer group
 *
 * Blocks of all groups of a domain have the same number of bytes, so a group with few
 * layers has many tokens in a block.  The tokens of all groups divide a common multiple,
 * which is small, since prefix hits have a multiple of that length.
 *
 * For one multiple and one size of a block the best choice is simple: each group takes
 * the largest divisor of the multiple that fits into the block.  So all multiples within the limit
 * are tried, and for each one all sizes that a group can have.
 */
#include "runtime/libkvmm/internal.h"

#define LAYER_ALIGN	128ull
#define BLOCK_MAX	(1ull << 30)
#define STEPS_MAX	256u	/* of the least common multiple */

/* One choice: the multiples of @tokens that each group takes, and what they cost. */
struct choice {
	u32	step[KVMM_MAX_GROUPS];
	u32	lcm;
	u64	block;
	u64	padding;
};

u64 kvmm_group_bytes(const struct kvmm_group *g, u32 tokens)
{
	const u64 token = (u64)g->kv_heads * ((u64)g->k_bytes + g->v_bytes +
			  (u64)g->scale_bytes * (g->v_bytes ? 2 : 1));

	return g->layers * ALIGN_UP(token * tokens, LAYER_ALIGN);
}

static u32 lcm_of(u32 a, u32 b)
{
	u32 x = a, y = b, rest;

	while (y) {
		rest = x % y;
		x = y;
		y = rest;
	}
	return a / x * b;
}

/* Tokens of which a hit has a whole number: the block_tokens of all groups divide them. */
u32 lk_hit_tokens(const struct kvmm_attach_req *req)
{
	u32 g, lcm = 1, tokens;

	for (g = 0; g < req->nr_groups; g++) {
		tokens = req->group[g].block_tokens ? req->group[g].block_tokens :
						      req->block_tokens;
		lcm = lcm_of(lcm, max(tokens, 1u));
	}
	return lcm;
}

/* Is @a better than @b? */
static bool is_better(const struct choice *a, const struct choice *b)
{
	if (a->padding * b->block != b->padding * a->block)
		return a->padding * b->block < b->padding * a->block;
	if (a->lcm != b->lcm)
		return a->lcm < b->lcm;
	return a->block < b->block;
}

/* The largest divisor of @multiple with which a block of @g has at most @most bytes; or 0. */
static u32 largest_step(const struct kvmm_group *g, u32 tokens, u32 multiple,
			u64 most)
{
	u32 s;

	for (s = min(multiple, KVMM_MAX_BLOCK_TOKENS / tokens); s; s--)
		if (!(multiple % s) && kvmm_group_bytes(g, s * tokens) <= most)
			break;
	return s;
}

/* Fill blocks of c->block bytes.  Return: is there a choice? */
static bool fill(const struct kvmm_group *group, u32 nr, u32 tokens,
		 u32 multiple, struct choice *c)
{
	u32 g;

	c->padding = 0;
	c->lcm = 1;
	for (g = 0; g < nr; g++) {
		c->step[g] = largest_step(&group[g], tokens, multiple, c->block);
		if (!c->step[g])
			return false;
		c->lcm = lcm_of(c->lcm, c->step[g]);
		c->padding += c->block - kvmm_group_bytes(&group[g],
							  c->step[g] * tokens);
	}
	return true;
}

/* Try each size that a group can have with a divisor of @multiple. */
static void try_multiple(const struct kvmm_group *group, u32 nr, u32 tokens,
			 u32 multiple, struct choice *best)
{
	struct choice c;
	u32 g, s;

	for (s = 1; s <= min(multiple, KVMM_MAX_BLOCK_TOKENS / tokens); s++) {
		for (g = 0; g < nr && !(multiple % s); g++) {
			c.block = kvmm_group_bytes(&group[g], s * tokens);
			if (c.block <= BLOCK_MAX &&
			    fill(group, nr, tokens, multiple, &c) &&
			    (!best->lcm || is_better(&c, best)))
				*best = c;
		}
	}
}

int kvmm_group_tokens(struct kvmm_group *group, u32 nr, u32 tokens, u32 max_lcm)
{
	struct choice best = { .lcm = 0 };
	u32 m, most;

	if (!nr || nr > KVMM_MAX_GROUPS || !tokens ||
	    tokens > KVMM_MAX_BLOCK_TOKENS)
		return -EINVAL;
	most = min(max(max_lcm / tokens, 1u), STEPS_MAX);
	for (m = 1; m <= most; m++)
		try_multiple(group, nr, tokens, m, &best);
	if (!best.lcm)
		return -E2BIG;
	for (m = 0; m < nr; m++)
		group[m].block_tokens = best.step[m] * tokens;
	return (int)(best.lcm * tokens);
}
