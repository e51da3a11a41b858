// SPDX-License-Identifier: Apache-2.0
/*
 * merge.c - blocks of the same content become one
 *
 * Two sequences that compute the same prefix at the same time seal two blocks
 * of the same name.  The second finds the first in the index, and its sequence
 * maps that one from then on.  Both hold the same tokens after the same
 * prefix, so it does not matter which of them a kernel reads.
 *
 * Steps of the sequence that are open have read the table before: they may
 * read the block that was given up until the last of them ends.  So that step
 * holds it: the block is QUIESCING and on a list of the step.  The entry itself
 * changes at once, which is no entry that an open step writes, and the
 * result of the next grant says so (kv_seq.dirty).
 *
 * No sequence is given a block in an extent that its client has not mapped.
 */
#include "kvmm/core/internal.h"

/* The newest open step that names the sequence; there is one. */
static struct kv_step *step_newest_of(const struct core *c,
				      const struct kv_seq *s)
{
	struct kv_step_entry *e;
	struct kv_step *st;
	u32 i = c->clients[s->client].nr_steps;

	while (i--) {
		st = step_at(c, s->client, i, &e);
		if (st->number == s->last_step)
			return st;
	}
	KV_BUG_ON(true);
	return NULL;
}

/**
 * seq_merge() - map @twin at @idx instead of the block that was just sealed
 * @twin: of the index, with the same name and ids
 *
 * Context: STEP_END; the block that goes is mapped by the sequence alone.
 */
void seq_merge(struct core *c, struct kv_seq *s, u32 idx, u32 twin)
{
	struct kv_step *st = step_newest_of(c, s);
	u32 old = table_get(c, s, idx);
	struct kv_block *b = &c->blocks[old];

	if (c->clients[s->client].nr_unacked)
		return;
	KV_BUG_ON(block_refcount(b) != 1 || b->nr_map != 1);
	block_map(c, twin);
	table_set(c, s, idx, twin);
	s->dirty = min(s->dirty, idx);
	block_src_get(c, old);
	block_unmap(c, old);
	KV_BUG_ON(b->state != BLK_QUIESCING);
	b->next = st->held;
	st->held = old;
	core_count(c, CORE_EV_pgmerge, 1);
}

/* The step is over: what only it still held is free. */
void step_let_go(struct core *c, struct kv_step *st)
{
	u32 blk = st->held, next;

	for (; blk != CORE_NONE; blk = next) {
		next = c->blocks[blk].next;
		c->blocks[blk].next = CORE_NONE;
		block_src_put(c, blk);
	}
	st->held = CORE_NONE;
}
