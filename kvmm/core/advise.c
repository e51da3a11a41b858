// SPDX-License-Identifier: Apache-2.0
/*
 * advise.c - what a client says about what it leaves behind
 *
 * Advice about retention is remembered with the sequence and takes effect when
 * it ends.  Advice never hurts others:
 *
 *	DONTNEED   what no other maps and nobody ever found leaves the index
 *	COLD	   the same is the oldest there is: it goes before the rest
 *	KEEP_UNTIL all that it maps goes last, until then, from the beginning
 *		   as far as the domain's share of kept blocks reaches
 *
 * What was found, by it or by anybody, is not its own to give away.  The last
 * advice counts.  PAGEOUT and WILLNEED are of another kind, see swap.c.
 */
#include "kvmm/core/internal.h"

/**
 * advise_retention() - remember DONTNEED, COLD or KEEP_UNTIL
 * @until: CLOCK_MONOTONIC ns
 */
void advise_retention(struct kv_seq *s, u32 advice, u64 until)
{
	s->flags &= ~(SEQF_COLD | SEQF_DONTNEED);
	s->keep_until = until;
	if (advice == KVMM_ADV_COLD)
		s->flags |= SEQF_COLD;
	if (advice == KVMM_ADV_DONTNEED)
		s->flags |= SEQF_DONTNEED;
}

/* The name of what a table entry of @s alone refers to, or CORE_NONE. */
static u32 own_name(const struct core *c, kv_pte_t pte)
{
	u32 i = pte_block(pte);

	if (pte_is_entry(pte))
		return c->entries_low[i].refs == 1 ?
		       index_node(c, REF_ENTRY | i) : CORE_NONE;
	return c->blocks[i].nr_map == 1 ? index_node(c, i) : CORE_NONE;
}

/* Out of the index, without a trace; the table still refers to it. */
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
 * From the beginning on: what comes before must be kept as well.  One that gave
 * back its beginning keeps nothing, for nothing could be found.
 */
static void keep(struct core *c, const struct kv_seq *s)
{
	u32 i, node;

	for (i = 0; i < s->nr_blocks && !s->trimmed; i++) {
		kv_pte_t pte = table_pte(c, s, i);

		if (pte_is_entry(pte))
			return;
		node = index_node(c, pte_block(pte));
		if (node == CORE_NONE || !lru_keep(c, node, s->keep_until))
			return;
	}
}

/* The sequence ends, and has its table still. */
void advise_close(struct core *c, struct kv_seq *s)
{
	u32 i, node;

	if (s->keep_until > c->now)
		keep(c, s);
	if (!(s->flags & (SEQF_COLD | SEQF_DONTNEED)))
		return;
	for (i = s->nr_blocks; i-- > s->trimmed;) {
		node = own_name(c, table_pte(c, s, i));
		if (node == CORE_NONE || c->nodes[node].hits)
			continue;
		if (s->flags & SEQF_COLD)
			lru_chill(c, node);
		else if (c->nodes[node].kid == CORE_NONE)
			forget(c, node);
	}
}
