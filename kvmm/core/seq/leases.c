// SPDX-License-Identifier: Apache-2.0
/*
 * leases.c - leases: their deadlines, and sequences that begin with one
 *
 * A lease is a sequence that never runs.  It is SWAPPED, as if by PAGEOUT: its table
 * names lower-tier entries, and no entry that a table names is dropped.  So the
 * leased content stays on a lower tier, and the device may lose it at any time.
 * lease.c makes leases, and lease_move.c moves their content.
 *
 * All leases are in a heap, the one with the earliest deadline first.
 */
#include "kvmm/core/seq/seq.h"

static bool ends_before(const struct core *c, u32 a, u32 b)
{
	return c->seqs[a].until < c->seqs[b].until;
}

static void heap_put(struct core *c, u32 at, u32 seq)
{
	KV_BUG_ON(at >= c->head->nr_leases);
	c->leases[at] = seq;
	c->seqs[seq].lease_at = at;
}

/* Move the lease at @at to its place, towards the first or towards the last. */
static void heap_settle(struct core *c, u32 at)
{
	u32 seq = c->leases[at], nr = c->head->nr_leases, kid;

	for (; at && ends_before(c, seq, c->leases[(at - 1) / 2]); at = (at - 1) / 2)
		heap_put(c, at, c->leases[(at - 1) / 2]);
	while ((kid = 2 * at + 1) < nr) {
		kid += kid + 1 < nr && ends_before(c, c->leases[kid + 1], c->leases[kid]);
		if (!ends_before(c, c->leases[kid], seq))
			break;
		heap_put(c, at, c->leases[kid]);
		at = kid;
	}
	heap_put(c, at, seq);
}

/* Put a sequence with its table on the heap; it is a lease from now on. */
void lease_enter(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 at = c->head->nr_leases++;

	KV_BUG_ON(at >= core_sizes(c)->nr_seqs);
	s->flags |= SEQF_LEASE;
	d->leased += seq_live(c, s);
	d->nr_leases++;
	heap_put(c, at, seq_index(c, s));
	heap_settle(c, at);
}

/*
 * Take a lease from the heap; it still has its table.  The flag stays until the sequence
 * is closed or failed: salvage closes a record with the flag (salvage.c).
 */
void lease_leave(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 at = s->lease_at, last;

	lease_stop_promote(c, s);
	KV_BUG_ON(d->leased < seq_live(c, s) || !d->nr_leases);
	d->leased -= seq_live(c, s);
	d->nr_leases--;
	KV_BUG_ON(!c->head->nr_leases || c->leases[at] != seq_index(c, s));
	last = c->leases[--c->head->nr_leases];
	if (at < c->head->nr_leases) {
		heap_put(c, at, last);
		heap_settle(c, at);
	}
}

/* Give a lease another deadline, in ns. */
void lease_set_until(struct core *c, struct kv_seq *s, u64 until)
{
	s->until = until;
	heap_settle(c, s->lease_at);
}

/* ---- leases that are promoted ---- */

void lease_stop_promote(struct core *c, struct kv_seq *s)
{
	if (!(s->flags & SEQF_PROMOTE))
		return;
	s->flags &= ~SEQF_PROMOTE;
	list_del_idx(c->seqs, c->head->promote_head, c->head->promote_tail,
		     seq_index(c, s));
}

/*
 * Promote the content of a lease from the beginning on, after all other leases: one that
 * is asked for again and again would hold them up.
 */
void lease_promote(struct core *c, struct kv_seq *s)
{
	KV_BUG_ON(s->flags & (SEQF_QUEUED | SEQF_RUNNING));
	lease_stop_promote(c, s);
	s->promote_at = 0;
	s->flags |= SEQF_PROMOTE;
	list_add_tail_idx(c->seqs, c->head->promote_head, c->head->promote_tail,
			  seq_index(c, s));
}

/**
 * leases_adopt() - make the heap and the list anew, from the sequences
 */
void leases_adopt(struct core *c)
{
	u32 i;

	c->head->nr_leases = 0;
	c->head->promote_head = CORE_NONE;
	c->head->promote_tail = CORE_NONE;
	for (i = 0; i < core_sizes(c)->nr_seqs; i++) {
		struct kv_seq *s = &c->seqs[i];
		u32 flags = s->flags;

		if (s->state == KVMM_SEQ_CLOSED || !(flags & SEQF_LEASE))
			continue;
		heap_put(c, c->head->nr_leases++, i);
		heap_settle(c, s->lease_at);
		s->flags &= ~SEQF_PROMOTE;
		if (flags & SEQF_PROMOTE)
			lease_promote(c, s);
	}
}

/* ---- sequences that begin with a lease ---- */

/* The number of a lease, which names it to all clients of its domain. */
u64 lease_number(const struct core *c, const struct kv_seq *s)
{
	return KVMM_SEQ(seq_index(c, s), s->generation);
}

/* The lease with a number, if the domain has it; else NULL. */
const struct kv_seq *lease_find(const struct core *c, u32 dom, u64 number)
{
	const struct kv_seq *s;

	if (KVMM_SEQ_INDEX(number) >= core_sizes(c)->nr_seqs)
		return NULL;
	s = &c->seqs[KVMM_SEQ_INDEX(number)];
	return s->state != KVMM_SEQ_CLOSED && (s->flags & SEQF_LEASE) &&
	       s->domain == dom && s->generation == KVMM_SEQ_GEN(number) ? s : NULL;
}

/* Give @to, which is empty, the entries of @from. */
static void tab_lend(struct core *c, const struct kv_tab *from, struct kv_tab *to)
{
	u32 i, entry;
	int err;

	for (i = 0; i < from->nr_blocks; i++) {
		err = table_push(c, to, CORE_NONE);
		KV_BUG_ON(err);
		if (i < from->trimmed) {
			table_set_none(c, to, i);
			continue;
		}
		entry = pte_block(table_pte(c, from, i));
		table_set_entry(c, to, i, entry);
		entry_get_ref(c, entry);
	}
	to->trimmed = from->trimmed;
	to->trim_want = from->trimmed;
	memcpy(to->trim_hash, from->trim_hash, sizeof(to->trim_hash));
}

/**
 * lease_copy() - give a new sequence the tables of a lease
 * @s: without tables; no list has it
 *
 * It is SWAPPED with the tokens of the lease, and waits to be restored.
 * Return: false: its client has too few table pages.
 */
bool lease_copy(struct core *c, const struct kv_seq *from, struct kv_seq *s)
{
	const struct kv_tab *t;
	u32 nr[KVMM_MAX_GROUPS];

	for_each_tab(c, from, t)
		nr[t->group] = t->nr_blocks;
	if (!table_has_room(c, s, nr))
		return false;
	for_each_tab(c, from, t)
		tab_lend(c, t, seq_tab(c, s, t->group));
	s->salt = from->salt;
	s->valid_len = from->valid_len;
	s->cover = from->valid_len;
	s->lost_len = from->valid_len;
	s->flags |= SEQF_SWAPPED | SEQF_PREEMPTED | SEQF_MATCHED;
	core_work(c, 16 * seq_entries(c, s));
	core_count(c, CORE_EV_lease_open, 1);
	return true;
}
