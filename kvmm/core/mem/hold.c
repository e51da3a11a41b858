// SPDX-License-Identifier: Apache-2.0
/*
 * hold.c - blocks that open steps may read and their sequences no longer map
 *
 * A table entry may change while steps are open that read the old table: two
 * blocks of the same content became one (merge.c), or a block moved
 * (migrate.c).  Kernels of those steps may read the old block until the newest
 * of the steps ends.  The steps of a client end in order, so the newest step
 * holds the block.  Steps of several clients may hold the same block, each by a
 * record of its own.  The block counts them in nr_src, as it counts the steps
 * that copy from it.  It is QUIESCING while it has no other user.
 *
 * Records are few.  Without a free record the caller leaves the entry as it is.
 */
#include "kvmm/core/mem/mem.h"

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
 * seq_hold() - make the open steps of a sequence hold a block
 * @s:   sequence that is about to map another block in its place
 * @blk: the block, still mapped by @s
 *
 * Return: false: there is no free record; nothing changed.
 */
bool seq_hold(struct core *c, const struct kv_seq *s, u32 blk)
{
	u32 i = c->head->free_hold;
	struct kv_step *st;

	if (!s->nr_steps)
		return true;
	KV_BUG_ON(!c->blocks[blk].nr_map || c->blocks[blk].domain != s->domain);
	st = step_newest_of(c, s);
	/* Forks in one step replace the same block one after another. */
	if (st->held != CORE_NONE && c->holds[st->held].blk == blk)
		return true;
	if (i == CORE_NONE)
		return false;
	KV_BUG_ON(i >= core_sizes(c)->nr_holds);
	c->head->free_hold = c->holds[i].next;
	c->holds[i].blk = blk;
	c->holds[i].next = st->held;
	st->held = i;
	block_src_get(c, blk);
	return true;
}

/* The step ended: drop its holds, and free blocks that had no other. */
void step_let_go(struct core *c, struct kv_step *st)
{
	u32 i = st->held, next;

	for (; i != CORE_NONE; i = next) {
		next = c->holds[i].next;
		c->holds[i].next = c->head->free_hold;
		c->head->free_hold = i;
		block_src_put(c, c->holds[i].blk);
	}
	st->held = CORE_NONE;
}
