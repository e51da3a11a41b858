// SPDX-License-Identifier: Apache-2.0
/*
 * merge.c - blocks of the same content become one
 *
 * Two sequences that compute the same prefix at the same time seal two blocks
 * of the same name.  The second sequence finds the first block in the index, and
 * maps that one from then on.  Both blocks hold the same tokens after the same
 * prefix, so it does not matter which of them a kernel reads.
 *
 * Open steps of the sequence have read the table before: they may read the old
 * block until the last of them ends.  So that step holds the block, see hold.c, and
 * it is QUIESCING.  The table entry changes at once, since no open step writes it,
 * and the result of the next grant says so (kv_seq.dirty).
 *
 * No sequence gets a block in an extent that its client has not mapped.
 */
#include "kvmm/core/seq/seq.h"

/**
 * seq_merge() - map @twin at @idx instead of the block that was just sealed
 * @twin: block of the index with the same name and ids
 *
 * Context: STEP_END; only this sequence maps the old block.
 */
void seq_merge(struct core *c, struct kv_tab *t, u32 idx, u32 twin)
{
	const struct kv_seq *s = tab_seq(c, t);
	u32 old = table_get(c, t, idx);
	struct kv_block *b = &c->blocks[old];

	KV_BUG_ON(block_refcount(b) != 1 || b->nr_map != 1);
	KV_BUG_ON(old == twin || c->blocks[twin].domain != b->domain);
	KV_BUG_ON(!(c->blocks[twin].flags & BLKF_INDEXED));
	if (c->clients[s->client].nr_unacked || block_is_claimed(c, twin) ||
	    !seq_hold(c, s, old))
		return;
	block_map(c, twin);
	table_set(c, t, idx, twin);
	t->dirty = min(t->dirty, idx);
	lru_retain(c, index_node(c, twin), retain_class(c, t, idx), false);
	block_unmap(c, old);
	KV_BUG_ON(b->state != BLK_QUIESCING && b->state != BLK_LIMBO);
	core_count(c, CORE_EV_pgmerge, 1);
}
