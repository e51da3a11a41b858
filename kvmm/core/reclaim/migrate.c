// SPDX-License-Identifier: Apache-2.0
/*
 * migrate.c - blocks that move to other spans
 *
 * A span can leave a domain only when none of its blocks is in use.  A block
 * in use moves: its content is copied to a free block of another span of the
 * same domain, then all records of the old block name the new one: the tables
 * that map it, the index, its lower-tier entry.  Both blocks have the same
 * content, so tables may change over at different times.  A table that cannot
 * change over now keeps the old block, and the move is tried again.
 *
 * The copy delays no sequence.  Its source is marked BLKF_MOVING, which counts
 * as no reference: sequences append to it and share it, and it may be evicted
 * and freed meanwhile.  If it was written (move_written()), or is no longer in
 * use, the copy was in vain.  A source that is released is LIMBO until the copy
 * was answered; so is the target (BLKF_TARGET, one nr_copy).  Each copy has one
 * answer.
 *
 * There is no map from a block to the tables that have it.  Copies of a span
 * that were ordered together are settled together, by one pass over the
 * tables of the domain's running sequences, which ends with the last mapper.
 *
 * The laws of a table entry that changes under open steps:
 *  - an entry that a step covers for writing does not change (seq_scan.low), and
 *    a block that it names is not copied (pins_mark());
 *  - an entry that steps may read changes at once; the newest of these steps holds
 *    the old block (hold.c), and the next grant tells the client (kv_seq.dirty);
 *  - the source that a step copies from (kv_step_entry.src) stays the old block;
 *  - no sequence gets a block in an extent that its client has not mapped.
 */
#include "kvmm/core/reclaim/reclaim.h"

#define ID_MOVE		0x40000000u	/* marks the id of a move; numbers of entries are smaller */

static u64 move_id(const struct core *c, u32 i)
{
	return ((u64)c->head->moves[i].generation << 32) | ID_MOVE | i;
}

/* ---- begin ---- */

/* May the domain use one more block for a while? */
static bool room_to_move(const struct kv_domain *d)
{
	return domain_slack(d) && (u64)domain_used(d) + d->dev.reserved <
				  d->dev.max_blocks;
}

/* A free record.  A copied block keeps its record until its batch is settled. */
static u32 move_slot(const struct core *c)
{
	u32 i;

	for (i = 0; i < CORE_MAX_MOVES; i++)
		if (c->head->moves[i].state == MOVE_UNUSED)
			return i;
	return CORE_NONE;
}

static void move_issue(struct core *c, u32 i)
{
	const struct kv_move *m = &c->head->moves[i];
	struct core_copy cp = {
		.id		= move_id(c, i),
		.within		= true,
		.dev_off	= block_offset(c, m->from),
		.dev_to		= block_offset(c, m->to),
	};

	KV_BUG_ON(m->state != MOVE_COPYING);
	KV_BUG_ON(m->from == m->to);
	KV_BUG_ON(c->blocks[m->from].domain != c->blocks[m->to].domain);
	KV_BUG_ON(!(c->blocks[m->to].flags & BLKF_TARGET));
	block_shards(c, &c->domains[c->blocks[m->from].domain], &cp);
	c->ops->copy(c->ops_arg, &cp);
}

/* move_again() - order a copy again that was in flight */
void move_again(struct core *c, u32 i)
{
	c->head->moves[i].again = 0;
	move_issue(c, i);
}

/**
 * move_start() - begin to copy a block to another span of its domain
 * @evac: index of the evacuation that the move belongs to
 * @blk:  OPEN, SEALED or CACHED; no step may write it and no copy names it
 *
 * Return: true: the copy is under way; false: there is no room or no record.
 */
bool move_start(struct core *c, u32 evac, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	struct kv_domain *d = &c->domains[b->domain];
	u32 span, i;

	KV_BUG_ON(b->nr_copy || (b->flags & (BLKF_MOVING | BLKF_TARGET)));
	KV_BUG_ON(c->head->evacs[evac].span != block_span(c, blk));
	KV_BUG_ON(c->head->evacs[evac].dom != b->domain);
	i = move_slot(c);
	if (i == CORE_NONE || !room_to_move(d) || device_is_down(c, d))
		return false;
	span = span_pick_dense(c, d, c->head->evacs[evac].any);
	if (span == CORE_NONE)
		return false;
	KV_BUG_ON(span == block_span(c, blk));
	KV_BUG_ON(c->head->nr_moves >= CORE_MAX_MOVES);
	c->head->moves[i] = (struct kv_move){
		.state = MOVE_COPYING, .from = blk, .evac = evac,
		.generation = c->head->moves[i].generation + 1,
		.nr_ids = b->nr_ids, .to = block_take(c, span, BLK_LIMBO),
	};
	d->nr_filling++;
	c->blocks[c->head->moves[i].to].flags |= BLKF_TARGET;
	block_copy_get(c, c->head->moves[i].to);
	b->flags |= BLKF_MOVING;
	core_count(c, CORE_EV_pgalloc, 1);
	c->head->nr_moves++;
	c->head->evacs[evac].nr++;
	move_issue(c, i);
	return true;
}

/* A step may write the block from now on: a copy of it is stale. */
void move_written(struct core *c, u32 blk)
{
	u32 i;

	if (!(c->blocks[blk].flags & BLKF_MOVING))
		return;
	for (i = 0; i < CORE_MAX_MOVES; i++)
		if (c->head->moves[i].state != MOVE_UNUSED &&
		    c->head->moves[i].from == blk)
			c->head->moves[i].stale = 1;
}

/* ---- blocks that open steps may write ---- */

/* Set or clear BLKF_VISITED of the blocks that an entry of a step may write. */
static void pin_set(struct core *c, const struct kv_step_entry *e, bool set)
{
	const struct kv_tab *t;
	u32 idx;

	for_each_tab(c, &c->seqs[e->seq], t) {
		for (idx = tab_at(c, t, e->start); idx < t->nr_blocks &&
		     tab_pos(c, t, idx) < e->end; idx++) {
			u8 *flags = &c->blocks[table_get(c, t, idx)].flags;

			*flags = (u8)(set ? *flags | BLKF_VISITED :
					    *flags & ~BLKF_VISITED);
		}
	}
}

static void pin_blocks(struct core *c, const struct kv_step_entry *e)
{
	pin_set(c, e, true);
}

static void unpin_blocks(struct core *c, const struct kv_step_entry *e)
{
	pin_set(c, e, false);
}

static void low_reset(struct core *c, const struct kv_step_entry *e)
{
	KV_BUG_ON(!c->seqs[e->seq].nr_steps);
	c->seq_scans[e->seq].low = CORE_NONE;
}

static void low_note(struct core *c, const struct kv_step_entry *e)
{
	struct kv_seq *s = &c->seqs[e->seq];

	seq_scan(c, s)->low = min(seq_scan(c, s)->low, e->start);
}

/* Call @one for each entry of the open steps of a domain's clients. */
static void each_pin(struct core *c, u32 dom,
		     void (*one)(struct core *c, const struct kv_step_entry *e))
{
	u32 i, n, k;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		const struct kv_client *cl = &c->clients[i];

		if (cl->state == CLI_FREE || cl->domain != dom)
			continue;
		for (n = 0; n < cl->nr_steps; n++) {
			struct kv_step_entry *e;
			const struct kv_step *st = step_at(c, i, n, &e);

			for (k = 0; k < st->nr; k++)
				one(c, &e[k]);
		}
	}
}

/**
 * pins_mark() - set BLKF_VISITED of the blocks that open steps may write
 * @set: false: clear it
 */
void pins_mark(struct core *c, u32 dom, bool set)
{
	each_pin(c, dom, set ? pin_blocks : unpin_blocks);
}

/* ---- the end ---- */

/* Is the copy equal to the block, and is the block still in use? */
static bool move_is_good(const struct core *c, const struct kv_move *m)
{
	const struct kv_block *b = &c->blocks[m->from];

	return m->state == MOVE_COPIED && !m->stale && !b->nr_copy &&
	       b->nr_ids == m->nr_ids && (b->state == BLK_OPEN ||
	       b->state == BLK_SEALED || b->state == BLK_CACHED);
}

/* Give the new block the name, ids and lower-tier entry of the old one. */
static void move_identity(struct core *c, const struct kv_move *m)
{
	struct kv_block *from = &c->blocks[m->from], *to = &c->blocks[m->to];

	KV_BUG_ON(to->state != BLK_LIMBO || !(to->flags & BLKF_TARGET));
	KV_BUG_ON(to->domain != from->domain || to->entry != CORE_NONE);
	KV_BUG_ON(!c->domains[to->domain].nr_filling);
	c->domains[to->domain].nr_filling--;
	to->flags = (u8)((to->flags & ~BLKF_TARGET) |
			 (from->flags & BLKF_SHARED));
	to->nr_ids = from->nr_ids;
	to->group = from->group;
	memcpy(to->hash, from->hash, sizeof(to->hash));
	memcpy(block_ids(c, m->to), block_ids(c, m->from), 4 * from->nr_ids);
	if (from->entry == CORE_NONE)
		return;
	KV_BUG_ON(c->entries_low[from->entry].dev != m->from);
	to->entry = from->entry;
	c->entries_low[to->entry].dev = m->to;
	from->entry = CORE_NONE;
}

/* The first sequence maps the new block, which now takes over from the old one. */
static void move_take_over(struct core *c, const struct kv_move *m)
{
	KV_BUG_ON(c->blocks[m->to].nr_map != 1);
	move_identity(c, m);
	block_filled(c, m->to);
	if (c->blocks[m->from].flags & BLKF_INDEXED) {
		index_move(c, m->from, m->to);
		block_put_index(c, m->from);
	}
	core_count(c, CORE_EV_pgmigrate_success, 1);
}

/* Move a block that only the index has. */
static void move_cached(struct core *c, const struct kv_move *m)
{
	KV_BUG_ON(c->blocks[m->from].nr_map || c->blocks[m->to].nr_map);
	KV_BUG_ON(!(c->blocks[m->from].flags & BLKF_INDEXED));
	move_identity(c, m);
	lru_del(c, m->from);
	index_move(c, m->from, m->to);
	block_filled(c, m->to);
	block_put_index(c, m->from);
	core_count(c, CORE_EV_pgmigrate_success, 1);
}

/* The move of a block with BLKF_VISITED, see batch_prepare(). */
static const struct kv_move *move_of(const struct core *c, u32 blk)
{
	KV_BUG_ON(c->scratch[blk] >= CORE_MAX_MOVES);
	KV_BUG_ON(c->head->moves[c->scratch[blk]].from != blk);
	return &c->head->moves[c->scratch[blk]];
}

/* Change table entry @idx to the new block.  Return: false: it must not change now. */
static bool entry_change(struct core *c, struct kv_tab *t, u32 idx)
{
	const struct kv_move *m = move_of(c, table_get(c, t, idx));
	const struct kv_seq *s = tab_seq(c, t);

	KV_BUG_ON(m->state != MOVE_COPIED);
	KV_BUG_ON(!c->blocks[m->from].nr_map);
	if (c->clients[s->client].nr_unacked &&
	    !span_acked(c, block_span(c, m->to), s->client))
		return false;
	if (!seq_hold(c, s, m->from))
		return false;
	block_map(c, m->to);
	if (c->blocks[m->to].state == BLK_LIMBO)
		move_take_over(c, m);
	table_set(c, t, idx, m->to);
	t->dirty = min(t->dirty, idx);
	block_unmap(c, m->from);
	return true;
}

/* Move cached blocks, and note the moves of mapped ones.  Return: their mappers. */
static u32 batch_prepare(struct core *c, u32 evac)
{
	u32 i, mappers = 0;

	for (i = 0; i < CORE_MAX_MOVES; i++) {
		const struct kv_move *m = &c->head->moves[i];
		struct kv_block *b = &c->blocks[m->from];

		if (m->state == MOVE_UNUSED || m->evac != evac)
			continue;
		b->flags &= (u8)~BLKF_MOVING;
		if (!move_is_good(c, m))
			continue;
		if (b->state == BLK_CACHED) {
			move_cached(c, m);
			continue;
		}
		c->scratch[m->from] = i;
		mappers += b->nr_map;
	}
	return mappers;
}

/* Set or clear BLKF_VISITED of the sources, for the pass over the tables. */
static void batch_mark(struct core *c, u32 evac, bool set)
{
	u32 i;

	for (i = 0; i < CORE_MAX_MOVES; i++) {
		const struct kv_move *m = &c->head->moves[i];
		u8 *flags = &c->blocks[m->from].flags;

		if (m->state == MOVE_UNUSED || m->evac != evac)
			continue;
		if (set && c->blocks[m->from].nr_map && move_is_good(c, m))
			*flags |= BLKF_VISITED;
		else
			*flags &= (u8)~BLKF_VISITED;
	}
}

/* Change one table.  Return: mappers met. */
static u32 batch_table(struct core *c, struct kv_tab *t)
{
	const struct kv_seq *s = tab_seq(c, t);
	u32 idx = t->trimmed, met = 0;

	while ((idx = table_find_visited(c, t, idx)) < t->nr_blocks) {
		met++;
		if (!s->nr_steps || idx < tab_at(c, t, seq_scan(c, s)->low))
			(void)!entry_change(c, t, idx);
		idx++;
	}
	return met;
}

/* Change the tables that map copied blocks, until all mappers were met. */
static void batch_tables(struct core *c, u32 dom, u32 mappers)
{
	struct kv_tab *t;
	u32 i, met;

	for (i = c->domains[dom].run_head; i != CORE_NONE && mappers;
	     i = c->seqs[i].next) {
		for_each_tab(c, &c->seqs[i], t) {
			met = batch_table(c, t);
			KV_BUG_ON(met > mappers);
			mappers -= met;
		}
	}
}

/* Release the records of the batch.  A target that no table took over was in vain. */
static void batch_end(struct core *c, u32 evac)
{
	u32 i;

	for (i = 0; i < CORE_MAX_MOVES; i++) {
		struct kv_move *m = &c->head->moves[i];
		struct kv_block *to = &c->blocks[m->to];

		if (m->state == MOVE_UNUSED || m->evac != evac)
			continue;
		KV_BUG_ON(m->state == MOVE_COPYING || !to->nr_copy);
		m->state = MOVE_UNUSED;
		if (to->flags & BLKF_TARGET) {
			to->flags &= (u8)~BLKF_TARGET;
			KV_BUG_ON(!c->domains[to->domain].nr_filling);
			c->domains[to->domain].nr_filling--;
			core_count(c, CORE_EV_pgmigrate_fail, 1);
		}
		block_copy_put(c, m->to);
		block_limbo_end(c, m->from);
	}
}

/* Settle a batch: the last of its copies was answered. */
static void batch_settle(struct core *c, u32 evac)
{
	u32 dom = c->head->evacs[evac].dom;
	u32 mappers = batch_prepare(c, evac);

	KV_BUG_ON(c->head->evacs[evac].nr);
	if (mappers) {
		each_pin(c, dom, low_reset);
		each_pin(c, dom, low_note);
		batch_mark(c, evac, true);
		batch_tables(c, dom, mappers);
		batch_mark(c, evac, false);
	}
	batch_end(c, evac);
	domain_kick(&c->domains[dom]);
	evacuate_scan(c, evac);
}

/**
 * move_answered() - take the answer to a copy, if the copy belongs to a move
 *
 * An answer for a move that is not in flight is ignored.
 * Return: false: the id is not that of a move.
 */
bool move_answered(struct core *c, u64 id, int status)
{
	u32 i = (u32)id & ~ID_MOVE;
	struct kv_move *m;

	if (!((u32)id & ID_MOVE) || i >= CORE_MAX_MOVES)
		return false;
	m = &c->head->moves[i];
	if (m->state != MOVE_COPYING || m->generation != (u32)(id >> 32))
		return true;
	KV_BUG_ON(m->evac >= CORE_MAX_EVACS);
	KV_BUG_ON(!c->head->nr_moves || !c->head->evacs[m->evac].nr);
	/* The content of a lost device is unknown, in spite of a good answer. */
	if (device_is_lost(c, &c->domains[c->blocks[m->to].domain]) && !status)
		status = -ENODEV;
	m->state = status ? MOVE_FAILED : MOVE_COPIED;
	if (!status)
		c->blocks[m->to].flags &= (u8)~BLKF_BAD;
	c->head->nr_moves--;
	if (!--c->head->evacs[m->evac].nr)
		batch_settle(c, m->evac);
	return true;
}
