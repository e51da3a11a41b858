// SPDX-License-Identifier: Apache-2.0
/*
 * swap.c - whole sequences out to the lower tiers, and back
 *
 * A victim family is swapped when its blocks have, or can get, slots in the
 * host pool and that costs less than computing it again: bytes out and in over
 * the measured rate of copies, against tokens over the client's measured rate
 * of prefill, biased by swappiness.  The tables then name entries instead of
 * blocks.  The blocks lose these sequences' references: what others map stays,
 * what the index knows is cache, tails are free when their copy is over.
 *
 * A swapped sequence waits with its arrival stamp as everybody who waits, its
 * valid length intact.  Admission gives each entry a block again (one that
 * still or again has the content, else a fresh one that is filled), says
 * RESTORING, and READY when the last is filled.  Two sequences that need the
 * same entry share one read.  Content that was lost makes the sequences that
 * needed it RECOMPUTE: then their client matches them again.  So does content
 * that only a stalled area has, and a restore that finds no host slots for as
 * long as a request may take.
 */
#include "kvmm/core/internal.h"

/* ---- out ---- */

/* Blocks of all members in @state, each once; @fresh: without a lower copy. */
static u32 family_count(struct core *c, struct kv_seq *s, u32 state,
			u32 *fresh)
{
	u32 first = seq_index(c, s), i = first, n, nr = 0;

	*fresh = 0;
	do {
		const struct kv_seq *m = &c->seqs[i];

		for (n = m->trimmed; m->state == state && n < m->nr_blocks;
		     n++) {
			u32 blk = table_get(c, m, n);

			if (c->blocks[blk].flags & BLKF_VISITED)
				continue;
			c->blocks[blk].flags |= BLKF_VISITED;
			nr++;
			*fresh += c->blocks[blk].entry == CORE_NONE;
		}
		i = m->fam_next;
	} while (i != first);
	return nr;
}

static void family_unvisit(struct core *c, struct kv_seq *s, u32 state)
{
	u32 first = seq_index(c, s), i = first, n;

	do {
		const struct kv_seq *m = &c->seqs[i];

		for (n = m->trimmed; m->state == state && n < m->nr_blocks;
		     n++)
			c->blocks[table_get(c, m, n)].flags &=
				(u8)~BLKF_VISITED;
		i = m->fam_next;
	} while (i != first);
}

static u32 family_blocks(struct core *c, struct kv_seq *s, u32 state,
			 u32 *fresh)
{
	u32 nr = family_count(c, s, state, fresh);

	family_unvisit(c, s, state);
	return nr;
}

/* By what was measured: is it cheaper to move than to compute again? */
static bool swap_pays(const struct core *c, const struct kv_domain *d,
		      u32 nr_blocks, u32 fresh)
{
	u64 kb = max(d->block_bytes / 1024, 1ull);
	u64 move = (nr_blocks + (u64)fresh) * kb * c->head->copy_ns_kb;
	u64 compute = (u64)nr_blocks * d->block_tokens *
		      d->prefill_ns_token;
	u32 swappiness = core_cfg(c)->swappiness;

	if (!swappiness || swappiness == 200)
		return swappiness;
	if (!d->prefill_ns_token)
		return true;
	return move * 100 <= compute * swappiness;
}

static void swap_one(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 i;

	KV_PROBE(kvmm, preempt, s->client, seq_number(c, s), s->domain,
		 s->cause, 1, s->valid_len);
	run_del(c, s);
	d->nr_marked--;
	core_kick(c);	/* what it is taken for waits for it */
	why_taken(c, s, true);
	seq_drop_reservation(c, s);
	/* From the end: leaves are older than roots on the LRU list. */
	core_work(c, 32 * s->nr_blocks);
	for (i = s->nr_blocks; i-- > s->trimmed;) {
		u32 blk = table_get(c, s, i);
		u32 entry = entry_out(c, blk, i - s->trimmed + 1);

		KV_BUG_ON(entry == CORE_NONE);
		c->entries_low[entry].refs++;
		entry_touch(c, entry);
		table_set_entry(c, s, i, entry);
		block_unmap(c, blk);
	}
	s->state = KVMM_SEQ_SWAPPED;
	s->flags |= SEQF_SWAPPED | SEQF_PREEMPTED | SEQF_MATCHED;
	s->since = c->now;
	s->stuck = 0;
	s->lost_len = s->valid_len;
	s->cached_len = 0;
	s->nr_preempted++;
	d->nr_preempted++;
	core_count(c, CORE_EV_preempt_swap, 1);
	core_trace(c, swap_out, trace_seq(c, s), s->cause, s->valid_len,
		   s->nr_blocks - s->trimmed);
	life_preempted(c, s->domain, s->cause, true, 0);
	seq_publish(c, s);
	seq_event(c, s, KVMM_EV_PREEMPTED);
	wait_add(c, s);
}

/*
 * Host slots and records for all of the family.  Making room may drop clean
 * copies that were counted on, so count again until it is true.
 */
static bool family_room(struct core *c, struct kv_seq *s, u32 state)
{
	u32 fresh, tries;

	for (tries = 0; tries < 8; tries++) {
		family_blocks(c, s, state, &fresh);
		if (host_free(c, s->domain) >= fresh)
			return c->head->nr_free_entries >= fresh;
		if (!host_room(c, s->domain, fresh))
			return false;
	}
	return false;
}

/* Is there a tier for the members in @state, and does it pay? */
static bool family_swappable(struct core *c, struct kv_seq *s, u32 state)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 nr, fresh;

	if (!core_pool(c, CORE_POOL_HOST)->online || !core_cfg(c)->swappiness ||
	    c->head->device)
		return false;
	nr = family_blocks(c, s, state, &fresh);
	if (!nr || (!(s->flags & SEQF_DECIDED) && !swap_pays(c, d, nr, fresh)))
		return false;
	if (family_room(c, s, state))
		return true;
	core_count(c, CORE_EV_swap_fallback, 1);
	return false;
}

/**
 * swap_family() - preempt the marked of a family by swap, if that is possible
 *
 * Return: false: nothing was done, they are to be recomputed.
 */
bool swap_family(struct core *c, struct kv_seq *s)
{
	u32 first = seq_index(c, s), i = first;

	if (!family_swappable(c, s, KVMM_SEQ_MARKED))
		return false;
	do {
		u32 next = c->seqs[i].fam_next;

		if (c->seqs[i].state == KVMM_SEQ_MARKED)
			swap_one(c, &c->seqs[i]);
		i = next;
	} while (i != first);
	return true;
}

/* ---- back ---- */

/*
 * Table entries that need a block, and of those with one how many are cached.
 * Copies out are not looked at: swap_check() refuses while one is under way.
 */
u32 swap_lacking(const struct core *c, const struct kv_seq *s, u32 *cached)
{
	u32 i, nr = 0;

	*cached = 0;
	for (i = 0; i < s->nr_blocks; i++) {
		kv_pte_t pte = table_pte(c, s, i);
		const struct kv_entry *e;

		if (!pte_is_entry(pte))
			continue;
		e = &c->entries_low[pte_block(pte)];
		if (e->dev == CORE_NONE)
			nr++;
		else if (c->blocks[e->dev].state == BLK_CACHED)
			(*cached)++;
	}
	return nr;
}

/*
 * What stands in the way of a restore, looking at each entry.  @reads: entries
 * to be read from areas; @held: those that have their place in the host pool.
 */
static int swap_check(const struct core *c, const struct kv_seq *s, u32 *reads,
		      u32 *held)
{
	u32 i;

	*reads = 0;
	*held = 0;
	for (i = 0; i < s->nr_blocks; i++) {
		kv_pte_t pte = table_pte(c, s, i);
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

/* ---- filled ---- */

/* It waits for the block that gets the content of @entry. */
static void fill_wait(struct core *c, struct kv_seq *s, u32 entry)
{
	u32 i = seq_index(c, s), *head = &c->entries_low[entry].waiters;

	s->fill_on = entry;
	s->fill_prev = CORE_NONE;
	s->fill_next = *head;
	if (*head != CORE_NONE)
		c->seqs[*head].fill_prev = i;
	*head = i;
}

/* Whatever it waited for, it does no more. */
void fill_wait_end(struct core *c, struct kv_seq *s)
{
	if (s->fill_on == CORE_NONE)
		return;
	if (s->fill_prev != CORE_NONE)
		c->seqs[s->fill_prev].fill_next = s->fill_next;
	else
		c->entries_low[s->fill_on].waiters = s->fill_next;
	if (s->fill_next != CORE_NONE)
		c->seqs[s->fill_next].fill_prev = s->fill_prev;
	s->fill_on = CORE_NONE;
}

/* READY, if the last of its blocks is filled; else it waits for the next. */
static void advance_one(struct core *c, struct kv_seq *s)
{
	u32 blk = CORE_NONE;

	for (; s->fill < s->nr_blocks; s->fill++) {
		blk = table_get(c, s, s->fill);
		if (c->blocks[blk].state == BLK_LIMBO)
			break;
	}
	if (s->fill < s->nr_blocks) {
		fill_wait(c, s, c->blocks[blk].entry);
		return;
	}
	s->state = KVMM_SEQ_READY;
	core_kick_promised(c, s->domain);
	/* Its time begins now: it could not compute while it was filled. */
	s->since = c->now;
	s->active = c->now;
	seq_publish(c, s);
	seq_event(c, s, KVMM_EV_READY);
}

/* The block that gets the entry's content has it: who is complete now? */
void swap_advance(struct core *c, u32 entry)
{
	u32 i = c->entries_low[entry].waiters, next;

	for (; i != CORE_NONE; i = next) {
		next = c->seqs[i].fill_next;
		fill_wait_end(c, &c->seqs[i]);
		advance_one(c, &c->seqs[i]);
	}
}

/**
 * swap_fill() - give a sequence blocks for what its table has below
 *
 * There is room for them.  The sequence is resident afterwards: RESTORING
 * until all are filled, then READY.
 */
void swap_fill(struct core *c, struct kv_seq *s)
{
	u32 i;

	for (i = 0; i < s->nr_blocks; i++) {
		kv_pte_t pte = table_pte(c, s, i);
		struct kv_entry *e;
		u32 blk;

		if (!pte_is_entry(pte))
			continue;
		e = &c->entries_low[pte_block(pte)];
		if (e->dev == CORE_NONE) {
			blk = block_alloc(c, s->domain, s->client);
			KV_BUG_ON(blk == CORE_NONE);
			entry_fill(c, pte_block(pte), blk);
		}
		blk = e->dev;
		block_map(c, blk);
		table_set(c, s, i, blk);
		e->refs--;
	}
	s->fill = s->trimmed;
	s->state = KVMM_SEQ_RESTORING;
	seq_publish(c, s);
	advance_one(c, s);
}

/* What is about to be read is not what host slots are taken from first. */
static void swap_touch(struct core *c, const struct kv_seq *s)
{
	u32 i;

	for (i = s->trimmed; i < s->nr_blocks; i++)
		entry_touch(c, pte_block(table_pte(c, s, i)));
}

/*
 * Host slots for all that must be read.  Making room may drop slots that were
 * counted on, so count again until it is true.
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
 * swap_fits() - can all that the table has below be filled now?
 *
 * Takes nothing: whatever made room for it is over.
 */
bool swap_fits(const struct core *c, const struct kv_seq *s)
{
	u32 reads, held;

	return !swap_check(c, s, &reads, &held) &&
	       (!reads || host_free(c, s->domain) >= reads);
}

/* Has it found no host slots for longer than any request may take? */
static bool stuck_too_long(const struct core *c, struct kv_seq *s)
{
	u64 deadline = core_cfg(c)->io_deadline_ns;

	if (!s->stuck)
		s->stuck = c->now;
	return deadline && c->now - s->stuck > deadline;
}

/*
 * There are no host slots to read into.  They become free when an area has
 * what they hold; if that cannot be, or not in time, computing again needs
 * none.
 */
static int restore_stuck(struct core *c, struct kv_seq *s)
{
	if (!stuck_too_long(c, s) && host_write_out(c)) {
		why_note(c, CORE_WAIT_slots, CORE_NONE);
		domain_kick(seq_domain(c, s));	/* look at the next event */
		seq_domain(c, s)->host_wanted = 1;
		return -EAGAIN;
	}
	core_count(c, CORE_EV_swap_lost, 1);
	s->cause = CORE_CAUSE_lost;
	seq_recompute(c, s);
	return -EDQUOT;
}

/*
 * Blocks to be free for a restore: what it lacks, and one for each that runs
 * then, as far as the domain can have so many beside what is there.
 */
static u32 restore_wants(const struct core *c, const struct kv_domain *d,
			 u32 lack, u32 cached)
{
	u32 capacity = domain_capacity(c, d);
	u32 most = capacity > cached ? capacity - cached : 0;

	return max(lack, min(lack + wmark_min(d) + 1, most));
}

/**
 * swap_restore() - admit a swapped sequence if there is room
 * Return: as admit_one().
 */
int swap_restore(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 reads, held, lack, cached, room;
	u64 stuck = s->stuck;
	int err;

	core_work(c, 16 * s->nr_blocks);
	s->stuck = 0;		/* unless host slots are what it lacks */
	err = swap_check(c, s, &reads, &held);
	if (err == -EIO || s->nr_blocks > domain_capacity(c, d) ||
	    (reads && reads + held > host_slots_max(c, s->domain))) {
		core_count(c, CORE_EV_swap_lost, 1);
		s->cause = CORE_CAUSE_lost;
		seq_recompute(c, s);
		return -EDQUOT;
	}
	if (err) {
		why_note(c, CORE_WAIT_copies, CORE_NONE);
		return err;
	}
	swap_touch(c, s);
	lack = swap_lacking(c, s, &cached);
	if (!commit_admits(c, s, s->nr_blocks, lack + cached)) {
		why_note(c, CORE_WAIT_commit, CORE_NONE);
		return -EAGAIN;
	}
	room = restore_wants(c, d, lack, cached);
	err = room_plan(c, s->domain, room, cached);
	if (err)
		return err;
	/* Reading needs host slots; taking them may drop clean copies. */
	if (!restore_room(c, s)) {
		s->stuck = stuck;
		return restore_stuck(c, s);
	}
	err = room_evict(c, s->domain, room);
	if (err)
		return err;
	/* Eviction may have taken a block that still had the content. */
	if (swap_lacking(c, s, &cached) > lack || !swap_fits(c, s)) {
		domain_kick(d);
		d->host_wanted = 1;
		return -EAGAIN;
	}

	core_trace(c, swap_in, trace_seq(c, s), s->valid_len, lack);
	KV_PROBE(kvmm, restore, s->client, seq_number(c, s), s->domain, lack,
		 (c->now - s->since) / 1000);
	wait_del(c, s);
	run_add(c, s);
	s->flags &= ~(SEQF_SWAPPED | SEQF_MATCHED);
	s->since = c->now;
	s->limiting_pool = KVMM_NO_POOL;
	core_count(c, CORE_EV_swap_restore, 1);
	core_count(c, CORE_EV_restore, 1);
	why_back(c, s);
	swap_fill(c, s);
	return 0;
}

/* Content that was to fill @blk is lost: those who map it compute again. */
void swap_lost(struct core *c, u32 blk)
{
	u32 i = c->domains[c->blocks[blk].domain].run_head, next, n;

	for (; i != CORE_NONE; i = next) {
		struct kv_seq *s = &c->seqs[i];

		next = s->next;
		if (s->state != KVMM_SEQ_RESTORING)
			continue;
		for (n = s->trimmed; n < s->nr_blocks; n++)
			if (table_get(c, s, n) == blk)
				break;
		if (n == s->nr_blocks)
			continue;
		core_count(c, CORE_EV_swap_lost, 1);
		s->cause = CORE_CAUSE_lost;
		seq_recompute(c, s);
	}
}

/* ---- advice ---- */

static bool family_is_idle(const struct core *c, const struct kv_seq *s)
{
	u32 first = seq_index(c, s), i = first;

	do {
		if (c->seqs[i].nr_steps)
			return false;
		i = c->seqs[i].fam_next;
	} while (i != first);
	return true;
}

/**
 * swap_advise() - PAGEOUT and WILLNEED
 *
 * PAGEOUT takes the whole family and keeps @s out until WILLNEED.
 * Return: 0; -EBUSY: a step is open; -EAGAIN: no tier has room, or computing
 * again would cost less: it stays; -ESTALE: not in a state for it;
 * -EOPNOTSUPP: another advice.
 */
int swap_advise(struct core *c, struct kv_seq *s, u32 advice)
{
	if (advice == KVMM_ADV_WILLNEED) {
		if (s->flags & SEQF_PAGEDOUT) {
			s->flags &= ~SEQF_PAGEDOUT;
			/* It waits from now on, and whoever asks is not idle. */
			s->since = c->now;
			s->active = c->now;
			s->stuck = 0;
			wait_add(c, s);
		}
		return 0;
	}
	if (advice != KVMM_ADV_PAGEOUT)
		return -EOPNOTSUPP;
	if (s->state != KVMM_SEQ_READY)
		return -ESTALE;
	if (!family_is_idle(c, s))
		return -EBUSY;
	if (!family_swappable(c, s, KVMM_SEQ_READY))
		return -EAGAIN;
	/* Room for it was made of clean copies, its own too: do not ask twice. */
	s->flags |= SEQF_DECIDED;
	family_mark(c, s, CORE_CAUSE_advice, NULL);
	s->flags &= ~SEQF_DECIDED;
	if (s->state != KVMM_SEQ_SWAPPED)
		return -EAGAIN;
	wait_del(c, s);
	s->flags |= SEQF_PAGEDOUT;
	psi_task(c, s);
	return 0;
}
