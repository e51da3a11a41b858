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
 *
 * Groups of states (KVMM_GROUP_STATE) take no part in that: the tokens between their records
 * are the caller's choice.  But a block holds at least one of their units, and a hit has a
 * multiple of those tokens, too.
 */
#include "runtime/libkvmm/internal.h"

#define LAYER_ALIGN	128ull
#define BLOCK_MAX	(1ull << 30)
#define STEPS_MAX	256u	/* of the least common multiple */

/*
 * One choice: the multiples of @tokens that each group takes, and what they cost.  @lcm, in
 * tokens, is that of all groups; 0: no choice.
 */
struct choice {
	u32	step[KVMM_MAX_GROUPS];
	u64	lcm;
	u64	block;
	u64	padding;
};

static bool is_state(const struct kvmm_group *g)
{
	return g->kind == KVMM_GROUP_STATE;
}

u64 kvmm_group_bytes(const struct kvmm_group *g, u32 tokens)
{
	const u64 token = (u64)g->kv_heads * ((u64)g->k_bytes + g->v_bytes +
			  (u64)g->scale_bytes * (g->v_bytes ? 2 : 1));

	if (is_state(g))
		return ALIGN_UP((u64)g->k_bytes, LAYER_ALIGN);
	return g->layers * ALIGN_UP(token * tokens, LAYER_ALIGN);
}

u32 kvmm_state_blocks(const struct kvmm_group *g, u64 block_bytes)
{
	const u64 units = (u64)g->layers * g->kv_heads;
	const u64 per = block_bytes / kvmm_group_bytes(g, 0);

	return per ? (u32)DIV_ROUND_UP(units, per) : 0;
}

static u64 lcm_of(u64 a, u64 b)
{
	u64 x = a, y = b, rest;

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
	c->lcm = tokens;
	for (g = 0; g < nr; g++) {
		if (is_state(&group[g])) {
			c->lcm = lcm_of(c->lcm, group[g].block_tokens);
			continue;
		}
		c->step[g] = largest_step(&group[g], tokens, multiple, c->block);
		if (!c->step[g])
			return false;
		c->lcm = lcm_of(c->lcm, (u64)c->step[g] * tokens);
		c->padding += c->block - kvmm_group_bytes(&group[g],
							  c->step[g] * tokens);
	}
	return c->lcm <= INT32_MAX;
}

/* The least bytes of a block: a unit of each group of records. */
static u64 least_bytes(const struct kvmm_group *group, u32 nr)
{
	u64 least = 0;
	u32 g;

	for (g = 0; g < nr; g++)
		if (is_state(&group[g]))
			least = max(least, kvmm_group_bytes(&group[g], 0));
	return least;
}

/* Try each size that a group can have with a divisor of @multiple. */
static void try_multiple(const struct kvmm_group *group, u32 nr, u32 tokens,
			 u32 multiple, struct choice *best)
{
	const u64 least = least_bytes(group, nr);
	struct choice c;
	u32 g, s;

	for (s = 1; s <= min(multiple, KVMM_MAX_BLOCK_TOKENS / tokens); s++) {
		for (g = 0; g < nr && !(multiple % s); g++) {
			c.block = max(least, kvmm_group_bytes(&group[g],
							      s * tokens));
			if (c.block <= BLOCK_MAX &&
			    fill(group, nr, tokens, multiple, &c) &&
			    (!best->lcm || is_better(&c, best)))
				*best = c;
		}
	}
}

/* Is there a group of KV, and do the groups of states say their tokens? */
static bool kinds_valid(const struct kvmm_group *group, u32 nr)
{
	u32 g, kv = 0;

	for (g = 0; g < nr; g++) {
		kv += !is_state(&group[g]);
		if (is_state(&group[g]) &&
		    (!group[g].block_tokens || !group[g].k_bytes ||
		     group[g].block_tokens % KVMM_MIN_BLOCK_TOKENS ||
		     group[g].block_tokens > KVMM_MAX_BLOCK_TOKENS))
			return false;
	}
	return kv;
}

int kvmm_group_tokens(struct kvmm_group *group, u32 nr, u32 tokens, u32 max_lcm)
{
	struct choice best = { .lcm = 0 };
	u32 m, most;

	if (!nr || nr > KVMM_MAX_GROUPS || !tokens ||
	    tokens > KVMM_MAX_BLOCK_TOKENS || !kinds_valid(group, nr))
		return -EINVAL;
	most = min(max(max_lcm / tokens, 1u), STEPS_MAX);
	for (m = 1; m <= most; m++)
		try_multiple(group, nr, tokens, m, &best);
	if (!best.lcm)
		return -E2BIG;
	for (m = 0; m < nr; m++)
		if (!is_state(&group[m]))
			group[m].block_tokens = best.step[m] * tokens;
	return (int)best.lcm;
}
