// SPDX-License-Identifier: Apache-2.0
/*
 * kids.c - indexed blocks that follow a prefix
 *
 * The index finds a block by the whole of its content.  A prompt may end inside
 * a cached block, or differ from it there.  It can still use the first tokens of
 * that block: its sequence maps the block with a valid length inside it, and
 * copies these tokens before it appends.
 *
 * The blocks that follow a prefix are the children of its node: first those on
 * the device, of these the newest first (index.c).  Only a few are compared,
 * since thousands of different blocks may follow a system prompt.  Blocks
 * without a parent are roots of the domain; among these the name tells the
 * blocks of the salt from the others.
 */
#include "kvmm/core/mem/mem.h"

#define KIDS_MAX	16	/* children of one parent that are compared */
#define SAME		16u	/* ids that are compared at once */

static u32 ids_in_common(const u32 *a, const u32 *b, u32 nr)
{
	u32 i = 0;

	while (nr - i >= SAME && !memcmp(a + i, b + i, SAME * sizeof(*a)))
		i += SAME;
	for (; i < nr && a[i] == b[i]; i++)
		;
	return i;
}

static bool kid_follows(const struct core *c, u32 blk, const u64 *name)
{
	const struct kv_block *b = &c->blocks[blk];
	u64 hash[2];

	index_chain(c, &c->domains[b->domain], b->group, name, block_ids(c, blk), hash);
	return hash[0] == b->hash[0] && hash[1] == b->hash[1];
}

/**
 * kid_find() - the block of @dom that shares most tokens after a prefix
 * @parent: node of the prefix; CORE_NONE: the prefix is empty
 * @name:   name of the prefix
 * @ids:    @nr ids that follow the prefix, at most a block
 * @len:    gets the number of leading ids that the block has; 0: no block
 *
 * Return: the block, or CORE_NONE.
 */
u32 kid_find(const struct core *c, u32 dom, u32 parent, const u64 *name,
	     const u32 *ids, u32 nr, u32 *len)
{
	u32 first = parent == CORE_NONE ? c->domains[dom].roots :
					  c->nodes[parent].kid;
	u32 i = first, best = CORE_NONE, seen, common;

	KV_BUG_ON(nr > c->domains[dom].group[0].block_tokens);
	*len = 0;
	for (seen = 0; i != CORE_NONE && index_on_device(c, i) &&
	     seen < KIDS_MAX; seen++) {
		u32 blk = c->nodes[i].ref;

		KV_BUG_ON(c->blocks[blk].domain != dom);
		common = ids_in_common(block_ids(c, blk), ids, nr);
		if (common > *len && !block_leaves(c, blk) && (parent != CORE_NONE ||
				      kid_follows(c, blk, name))) {
			*len = common;
			best = blk;
		}
		i = c->nodes[i].next;
		if (i == first)
			break;
	}
	return best;
}
