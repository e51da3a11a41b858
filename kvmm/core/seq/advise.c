// SPDX-License-Identifier: Apache-2.0
/*
 * advise.c - advice of clients about the cache that a sequence leaves
 *
 * Advice about retention is remembered with the sequence and takes effect when
 * it ends.  Advice never hurts other sequences:
 *
 *	DONTNEED   blocks that no other sequence maps and no lookup ever found
 *		   leave the index; by its value, blocks that lookups found do so, too
 *	COLD	   these blocks become the oldest of all: they are evicted first
 *	KEEP_UNTIL blocks of the sequence are evicted last, until that time, from
 *		   the beginning as far as the domain's share of kept blocks reaches
 *
 * Else a block that any lookup found is not the sequence's own to give away.  The last
 * advice counts.  PAGEOUT and WILLNEED are of another kind, see swap.c.
 *
 * RETAIN gives a range of tokens a class, the worth of finding it again; other
 * tokens have the class of the priority.  The class enters the index with each
 * name that is sealed or found.  If it changed meanwhile, the names get the new
 * class when the sequence ends; the class of a shared name can only rise by that.
 */
#include "kvmm/core/seq/seq.h"

/**
 * advise_retention() - remember DONTNEED, COLD or KEEP_UNTIL
 * @value: of KEEP_UNTIL: CLOCK_MONOTONIC ns; of DONTNEED: KVMM_DONTNEED_*
 */
void advise_retention(struct kv_seq *s, u32 advice, u64 value)
{
	s->flags &= ~(SEQF_COLD | SEQF_DONTNEED | SEQF_DROPFOUND);
	s->keep_until = advice == KVMM_ADV_KEEP_UNTIL ? value : 0;
	if (advice == KVMM_ADV_COLD)
		s->flags |= SEQF_COLD;
	if (advice == KVMM_ADV_DONTNEED)
		s->flags |= SEQF_DONTNEED | (value ? SEQF_DROPFOUND : 0);
}

/* advise_value_is_sane() - does the value of advice other than RETAIN belong to it? */
bool advise_value_is_sane(const struct kvmm_advise_arg *a)
{
	if (a->advice == KVMM_ADV_DONTNEED)
		return a->value <= KVMM_DONTNEED_FOUND;
	return !a->value || a->advice == KVMM_ADV_KEEP_UNTIL;
}

/* ---- classes of retention ---- */

/**
 * retain_advise() - remember RETAIN
 *
 * Where ranges overlap the newest counts, so ranges that it covers are forgotten.
 * Return: 0; -EINVAL; -ENOSPC: too many ranges, nothing changed.
 */
int retain_advise(struct kv_seq *s, const struct kvmm_advise_arg *a)
{
	struct kv_retain new = { .from = (u32)a->value,
				 .to = (u32)(a->value >> 32),
				 .retain = a->retain };
	struct kv_retain kept[SEQ_RETAINS];
	u32 i, nr = 0;

	if (a->retain > KVMM_RETAIN_HIGH || new.from >= new.to)
		return -EINVAL;
	KV_BUG_ON(s->nr_retains > SEQ_RETAINS);
	for (i = 0; i < s->nr_retains; i++)
		if (s->retains[i].from < new.from || s->retains[i].to > new.to)
			kept[nr++] = s->retains[i];
	if (nr == SEQ_RETAINS)
		return -ENOSPC;
	kept[nr++] = new;
	memcpy(s->retains, kept, nr * sizeof(*kept));
	s->nr_retains = nr;
	s->flags |= SEQF_RETAIN;
	return 0;
}

static u32 retain_of_priority(u32 priority)
{
	return priority < KVMM_PRIO_NORMAL ? RETAIN_LOW :
	       priority < KVMM_PRIO_HIGH ? RETAIN_NORMAL : RETAIN_HIGH;
}

/**
 * retain_class() - the class of a block of a table, RETAIN_*
 *
 * The first token of the block decides.
 */
u32 retain_class(const struct core *c, const struct kv_tab *t, u32 idx)
{
	const struct kv_seq *s = tab_seq(c, t);
	u64 at = tab_pos(c, t, idx);
	u32 i;

	KV_BUG_ON(s->nr_retains > SEQ_RETAINS || idx >= t->nr_blocks);
	for (i = s->nr_retains; i--;)
		if (at >= s->retains[i].from && at < s->retains[i].to)
			break;
	if (i == CORE_NONE || s->retains[i].retain == KVMM_RETAIN_PRIO)
		return retain_of_priority(s->priority);
	return s->retains[i].retain - KVMM_RETAIN_LOW;
}

/* ---- when the sequence ends ---- */

/* Does a table name the copy of the block: that of a lease or a swapped sequence? */
static bool copy_is_needed(const struct core *c, u32 blk)
{
	u32 entry = c->blocks[blk].entry;

	return entry != CORE_NONE && c->entries_low[entry].refs;
}

/* The index node of a block that only this table entry refers to, or CORE_NONE. */
static u32 own_name(const struct core *c, kv_pte_t pte)
{
	u32 i = pte_block(pte);

	KV_BUG_ON(pte_is_entry(pte) ? !c->entries_low[i].refs :
				      !c->blocks[i].nr_map);
	if (pte_is_entry(pte))
		return c->entries_low[i].refs == 1 ?
		       index_node(c, REF_ENTRY | i) : CORE_NONE;
	return c->blocks[i].nr_map == 1 && !copy_is_needed(c, i) ? index_node(c, i) :
								   CORE_NONE;
}

/* Drop a name from the index, without a ghost; the table still refers to the block. */
static void forget(struct core *c, u32 node)
{
	u32 ref = c->nodes[node].ref;

	lru_chill(c, node);
	if (ref & REF_ENTRY) {
		entry_drop(c, ref & ~REF_ENTRY);
	} else {
		index_drop(c, ref);
		block_put_index(c, ref);
	}
}

/*
 * Keep blocks from the beginning on, since a block is found only if those before it
 * are.  A sequence that gave back its beginning keeps nothing: nothing could be
 * found.
 */
static void keep(struct core *c, const struct kv_seq *s, const struct kv_tab *t)
{
	u32 i, node;

	for (i = t->trimmed; i < t->nr_blocks && !s->tab.trimmed; i++) {
		kv_pte_t pte = table_pte(c, t, i);

		if (pte_is_entry(pte))
			return;
		node = index_node(c, pte_block(pte));
		if (node == CORE_NONE || !lru_keep(c, node, s->keep_until))
			return;
	}
}

/* The class changed after blocks were sealed or found: give it to their names. */
static void retain_settle(struct core *c, const struct kv_tab *t)
{
	u32 i, node, own;

	for (i = t->trimmed; i < t->nr_blocks; i++) {
		kv_pte_t pte = table_pte(c, t, i);

		own = own_name(c, pte);
		node = index_node(c, pte_block(pte) |
				  (pte_is_entry(pte) ? REF_ENTRY : 0));
		if (node != CORE_NONE)
			lru_retain(c, node, retain_class(c, t, i),
				   own != CORE_NONE && !c->nodes[node].hits);
	}
}

/* Make the blocks that only this table has the first to be evicted, or drop them. */
static void advise_table(struct core *c, const struct kv_seq *s, const struct kv_tab *t)
{
	u32 i, node;

	for (i = t->nr_blocks; i-- > t->trimmed;) {
		node = own_name(c, table_pte(c, t, i));
		if (node == CORE_NONE || (c->nodes[node].hits && !(s->flags & SEQF_DROPFOUND)))
			continue;
		if (s->flags & SEQF_COLD)
			lru_chill(c, node);
		else if (c->nodes[node].kid == CORE_NONE)
			forget(c, node);
	}
}

/* Carry out the advice for a sequence that ends.  It still has its tables. */
void advise_close(struct core *c, struct kv_seq *s)
{
	const struct kv_tab *t;

	KV_BUG_ON(s->nr_steps);
	for_each_tab(c, s, t) {
		KV_BUG_ON(t->trimmed > t->nr_blocks);
		if (s->flags & SEQF_RETAIN)
			retain_settle(c, t);
		if (s->keep_until > c->now)
			keep(c, s, t);
		if (s->flags & (SEQF_COLD | SEQF_DONTNEED))
			advise_table(c, s, t);
	}
}
