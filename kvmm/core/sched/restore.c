// SPDX-License-Identifier: Apache-2.0
/*
 * restore.c - restore of swapped sequences
 *
 * A swapped sequence waits with its arrival stamp and its valid length, like
 * every waiting sequence.  Admission gives each lower-tier entry of its table a
 * block again: the block that still has the content, or a new one that is
 * filled.  The sequence is RESTORING until the last block is filled, then READY.
 * Two sequences that need the same entry share one read.
 *
 * When content is lost, the sequences that need it become RECOMPUTE, and their
 * client matches them again.  The same happens when only a stalled area has the
 * content, and when a restore finds no host slots for io_deadline_ns.
 */
#include "kvmm/core/sched/sched.h"

/**
 * swap_lacking() - number of table entries that need a block
 * @cached: takes the number of entries with a cached block
 *
 * Entries that are being copied out do not occur: swap_check() refuses them.
 */
u32 swap_lacking(const struct core *c, const struct kv_seq *s, u32 *cached)
{
	const struct kv_tab *t;
	u32 i, nr = 0;

	*cached = 0;
	for_each_pte(c, s, t, i) {
		kv_pte_t pte = table_pte(c, t, i);
		const struct kv_entry *e;

		if (!pte_is_entry(pte))
			continue;
		e = &c->entries_low[pte_block(pte)];
		KV_BUG_ON(e->domain != s->domain || !e->refs);
		if (e->dev == CORE_NONE)
			nr++;
		else if (c->blocks[e->dev].state == BLK_CACHED)
			(*cached)++;
	}
	return nr;
}

/*
 * Can the sequence be restored, as far as its entries go?  @reads: entries that
 * must be read from areas; @held: entries that have a host slot.
 */
static int swap_check(const struct core *c, const struct kv_seq *s, u32 *reads,
		      u32 *held)
{
	const struct kv_tab *t;
	u32 i;

	*reads = 0;
	*held = 0;
	for_each_pte(c, s, t, i) {
		kv_pte_t pte = table_pte(c, t, i);
		const struct kv_entry *e;

		if (!pte_is_entry(pte))
			continue;
		e = &c->entries_low[pte_block(pte)];
		if (e->flags & ENTF_LOST)
			return -EIO;
		if (e->io == ENT_OUT)
			return -EINPROGRESS;
		if (e->dev != CORE_NONE)
			continue;
		if (e->flags & ENTF_HOST)
			(*held)++;
		else if (area_stalled(c, e->area))
			return -EIO;
		else if (e->io == ENT_READ)
			(*held)++;
		else
			(*reads)++;
	}
	return 0;
}

/* Find the next block that is not filled yet; CORE_NONE: all are. */
static u32 fill_next(const struct core *c, struct kv_seq *s)
{
	while (s->fill_group < seq_groups(c, s)) {
		const struct kv_tab *t = seq_tab(c, s, s->fill_group);

		for (s->fill = max(s->fill, t->trimmed); s->fill < t->nr_blocks;
		     s->fill++) {
			u32 blk = table_get(c, t, s->fill);

			if (c->blocks[blk].state == BLK_LIMBO)
				return blk;
		}
		if (++s->fill_group < seq_groups(c, s))
			s->fill = 0;
	}
	return CORE_NONE;
}

/* READY if all blocks are filled; else wait for the next one. */
static void advance_one(struct core *c, struct kv_seq *s)
{
	u32 blk;

	KV_BUG_ON(s->state != KVMM_SEQ_RESTORING || s->fill_on != CORE_NONE);
	KV_BUG_ON(!(s->flags & SEQF_RUNNING));
	blk = fill_next(c, s);
	if (blk != CORE_NONE) {
		KV_BUG_ON(c->blocks[blk].entry == CORE_NONE);
		fill_wait(c, s, c->blocks[blk].entry);
		return;
	}
	s->state = KVMM_SEQ_READY;
	core_kick_promised(c, s->domain);
	/* Its residence begins now: it could not compute before. */
	s->since = c->now;
	s->active = c->now;
	seq_publish(c, s);
	seq_event(c, s, KVMM_EV_READY);
}

/* swap_advance() - the block of the entry is filled: go on with the sequences that wait */
void swap_advance(struct core *c, u32 entry)
{
	u32 i = c->entries_low[entry].waiters, next;

	for (; i != CORE_NONE; i = next) {
		next = c->seqs[i].fill_next;
		KV_BUG_ON(c->seqs[i].fill_on != entry);
		fill_wait_end(c, &c->seqs[i]);
		advance_one(c, &c->seqs[i]);
	}
}

/**
 * swap_fill() - give a sequence blocks for the lower-tier entries of its table
 *
 * There is room for them.  The sequence runs afterwards: RESTORING until all are
 * filled, then READY.
 */
void swap_fill(struct core *c, struct kv_seq *s)
{
	struct kv_tab *t;
	u32 i;

	KV_BUG_ON(!(s->flags & SEQF_RUNNING) || s->fill_on != CORE_NONE);
	for_each_pte(c, s, t, i) {
		kv_pte_t pte = table_pte(c, t, i);
		struct kv_entry *e;
		u32 blk;

		if (!pte_is_entry(pte))
			continue;
		e = &c->entries_low[pte_block(pte)];
		if (e->dev == CORE_NONE) {
			blk = block_alloc(c, s->domain, s->client, t->group);
			KV_BUG_ON(blk == CORE_NONE);
			entry_fill(c, pte_block(pte), blk);
		}
		KV_BUG_ON(c->blocks[e->dev].entry != pte_block(pte));
		blk = e->dev;
		block_map(c, blk);
		table_set(c, t, i, blk);
		KV_BUG_ON(!e->refs || c->blocks[blk].state == BLK_CACHED);
		entry_drop_ref(c, pte_block(pte));
	}
	s->fill_group = 0;
	s->fill = 0;
	s->state = KVMM_SEQ_RESTORING;
	seq_publish(c, s);
	advance_one(c, s);
}

/* Its host slots must not be the first to be dropped. */
static void swap_touch(struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;
	u32 i;

	for_each_pte(c, s, t, i)
		entry_touch(c, pte_block(table_pte(c, t, i)));
}

/*
 * Get host slots for all entries that must be read.  That may drop host slots of
 * other entries of the sequence, so count again until nothing changes.
 */
static bool restore_room(struct core *c, const struct kv_seq *s)
{
	u32 reads, held, tries;

	for (tries = 0; tries < 8; tries++) {
		if (swap_check(c, s, &reads, &held))
			return false;
		if (!reads || host_free(c, s->domain) >= reads)
			return true;
		if (!host_room(c, s->domain, reads))
			return false;
	}
	return false;
}

/**
 * swap_fits() - can all lower-tier entries of the table be filled now?
 *
 * Takes nothing: room was made for them before.
 */
bool swap_fits(const struct core *c, const struct kv_seq *s)
{
	u32 reads, held;

	return !swap_check(c, s, &reads, &held) &&
	       (!reads || host_free(c, s->domain) >= reads);
}

/* Has it found no host slots for longer than io_deadline_ns? */
static bool stuck_too_long(const struct core *c, struct kv_seq *s)
{
	u64 deadline = core_cfg(c)->io_deadline_ns;

	if (!s->stuck)
		s->stuck = c->now;
	return deadline && c->now - s->stuck > deadline;
}

/*
 * There are no host slots to read into.  Slots become free when an area has
 * their content, too.  If that cannot be, or not in time, the sequence is
 * recomputed, which needs no slots.
 */
static enum verdict restore_stuck(struct core *c, struct kv_seq *s)
{
	if (!stuck_too_long(c, s) && host_write_out(c)) {
		why_note(c, CORE_WAIT_slots, CORE_NONE);
		domain_kick(seq_domain(c, s));	/* try again at the next event */
		seq_domain(c, s)->host_wanted = 1;
		return ROOM_NONE;
	}
	core_count(c, CORE_EV_swap_lost, 1);
	s->cause = CORE_CAUSE_lost;
	seq_recompute(c, s);
	return WAITS_NOT;
}

/*
 * Free blocks for a restore: those that it lacks, and the min mark with one more
 * sequence, as far as the domain can have so many beside its cached blocks.
 */
static u32 restore_wants(const struct core *c, const struct kv_domain *d,
			 u32 lack, u32 cached)
{
	u32 capacity = domain_capacity(c, d);
	u32 most = capacity > cached ? capacity - cached : 0;

	return max(lack, min(lack + wmark_min(d) + 1, most));
}

/*
 * Free @room blocks for a restore that lacks @lack.  The plan counted cached blocks
 * that an open step may still read: evicted, they are free when the step has ended.
 * Eviction may also free a block that still had content of the sequence.  Each time
 * cache was lost, so the next try does better, with others' memory if need be.
 */
static enum verdict restore_evict(struct core *c, const struct kv_seq *s, u32 room,
				  u32 lack)
{
	enum verdict verdict = room_evict(c, s->domain, room);
	u32 cached;

	if (verdict == ROOM_MADE)
		why_note(c, CORE_WAIT_demote, CORE_NONE);
	if (swap_lacking(c, s, &cached) <= lack && swap_fits(c, s))
		return verdict;
	seq_domain(c, s)->host_wanted = 1;
	return ROOM_NONE;
}

/**
 * swap_restore() - admit a swapped sequence if there is room
 * Return: as admit_one().
 */
enum verdict swap_restore(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 reads, held, lack, cached, room;
	u64 stuck = s->stuck;
	enum verdict verdict;
	int err;

	KV_BUG_ON(!(s->flags & SEQF_SWAPPED) || s->state != KVMM_SEQ_SWAPPED);
	KV_BUG_ON(s->nr_steps || s->tab.reserved || s->fill_on != CORE_NONE);
	core_work(c, 16 * seq_live(c, s));
	s->stuck = 0;		/* set again below if host slots are lacking */
	err = swap_check(c, s, &reads, &held);
	if (err == -EIO || seq_live(c, s) > domain_capacity(c, d) ||
	    (reads && reads + held > host_slots_max(c, s->domain))) {
		core_count(c, CORE_EV_swap_lost, 1);
		s->cause = CORE_CAUSE_lost;
		seq_recompute(c, s);
		return WAITS_NOT;
	}
	if (err) {
		why_note(c, CORE_WAIT_copies, CORE_NONE);
		return ROOM_MADE;
	}
	swap_touch(c, s);
	lack = swap_lacking(c, s, &cached);
	if (!commit_admits(c, s, seq_live(c, s), lack + cached)) {
		why_note(c, CORE_WAIT_commit, CORE_NONE);
		return ROOM_NONE;
	}
	room = restore_wants(c, d, lack, cached);
	verdict = room_plan(c, s->domain, room, cached);
	if (verdict != ROOM_NOW)
		return verdict;
	/* Reads need host slots; getting them may drop clean copies. */
	if (!restore_room(c, s)) {
		s->stuck = stuck;
		return restore_stuck(c, s);
	}
	verdict = restore_evict(c, s, room, lack);
	if (verdict != ROOM_NOW) {
		if (verdict == ROOM_NONE)
			domain_kick(d);	/* try again at the next event */
		else
			d->own_ask = cached + room - min(room, wmark_min(d));
		return verdict;
	}

	core_tell(c, swap_in, SAID_SEQ(c, s), .tokens = s->valid_len,
		  .blocks = lack, .us = (c->now - s->since) / 1000);
	KV_BUG_ON(!(s->flags & SEQF_QUEUED) || !d->nr_swapped);
	wait_del(c, s);
	run_add(c, s);
	s->flags &= ~(SEQF_SWAPPED | SEQF_MATCHED);
	s->since = c->now;
	s->admitted = c->now;
	s->back = 0;
	s->limiting_pool = KVMM_NO_POOL;
	core_count(c, CORE_EV_restore, 1);
	why_back(c, s);
	swap_fill(c, s);
	return ROOM_NOW;
}

static bool seq_maps(const struct core *c, const struct kv_seq *s, u32 blk)
{
	const struct kv_tab *t;
	u32 i;

	for_each_pte(c, s, t, i)
		if (table_get(c, t, i) == blk)
			return true;
	return false;
}

/* swap_lost() - the content for @blk is lost: sequences that map it are recomputed */
void swap_lost(struct core *c, u32 blk)
{
	u32 i = c->domains[c->blocks[blk].domain].run_head, next;

	for (; i != CORE_NONE; i = next) {
		struct kv_seq *s = &c->seqs[i];

		next = s->next;
		if (s->state != KVMM_SEQ_RESTORING || !seq_maps(c, s, blk))
			continue;
		core_count(c, CORE_EV_swap_lost, 1);
		s->cause = CORE_CAUSE_lost;
		seq_recompute(c, s);
	}
}
