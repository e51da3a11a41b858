// SPDX-License-Identifier: Apache-2.0
/*
 * swap.c - whole sequences out to the lower tiers
 *
 * A victim family is swapped out when its blocks have, or can get, slots in the
 * host pool and that costs less than computing them again: bytes out and in over
 * the measured rate of copies, against tokens over the client's measured rate
 * of prefill, biased by swappiness.  The tables then name lower-tier entries
 * instead of blocks.  The blocks lose the references of these sequences: a block
 * that another sequence maps stays, an indexed one is cache, a tail is free when
 * its copy is over.  The way back: restore.c.
 */
#include "kvmm/core/seq/seq.h"

/* ---- out ---- */

/* Blocks of all members in @state, each once; @fresh: without a lower copy. */
static u32 family_count(struct core *c, struct kv_seq *s, u32 state,
			u32 *fresh)
{
	const struct kv_seq *m;
	u32 n, nr = 0;

	*fresh = 0;
	for_each_relative(c, s, m) {
		for (n = m->trimmed; m->state == state && n < m->nr_blocks;
		     n++) {
			u32 blk = table_get(c, m, n);

			if (c->blocks[blk].flags & BLKF_VISITED)
				continue;
			c->blocks[blk].flags |= BLKF_VISITED;
			nr++;
			*fresh += c->blocks[blk].entry == CORE_NONE;
		}
	}
	return nr;
}

static void family_unvisit(struct core *c, struct kv_seq *s, u32 state)
{
	const struct kv_seq *m;
	u32 n;

	for_each_relative(c, s, m)
		for (n = m->trimmed; m->state == state && n < m->nr_blocks; n++)
			c->blocks[table_get(c, m, n)].flags &= (u8)~BLKF_VISITED;
}

static u32 family_blocks(struct core *c, struct kv_seq *s, u32 state,
			 u32 *fresh)
{
	u32 nr = family_count(c, s, state, fresh);

	family_unvisit(c, s, state);
	return nr;
}

/**
 * swap_pays() - is it cheaper to copy blocks than to compute them again, as measured?
 * @fresh: of @nr_blocks, blocks without a lower copy
 */
bool swap_pays(const struct core *c, const struct kv_domain *d, u32 nr_blocks, u32 fresh)
{
	u64 kb = max(d->dev.block_bytes / 1024, 1ull);
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

	KV_BUG_ON(s->nr_steps || !d->nr_marked);
	run_del(c, s);
	d->nr_marked--;
	core_kick(c);	/* the sequence that it is taken for waits */
	why_taken(c, s, true);
	seq_drop_reservation(c, s);
	/* From the end: leaves are older than roots on the LRU list. */
	core_work(c, 32 * s->nr_blocks);
	for (i = s->nr_blocks; i-- > s->trimmed;) {
		u32 blk = table_get(c, s, i);
		u32 entry = entry_out(c, blk, i - s->trimmed + 1);

		KV_BUG_ON(entry == CORE_NONE);
		entry_get_ref(c, entry);
		entry_touch(c, entry);
		table_set_entry(c, s, i, entry);
		block_unmap(c, blk);
		KV_BUG_ON(c->entries_low[entry].domain != s->domain);
	}
	s->state = KVMM_SEQ_SWAPPED;
	s->flags |= SEQF_SWAPPED | SEQF_PREEMPTED | SEQF_MATCHED;
	s->since = c->now;
	s->stuck = 0;
	s->lost_len = max(s->lost_len, s->valid_len);
	s->cached_len = 0;
	s->nr_preempted++;
	d->nr_preempted++;
	core_tell(c, swap_out, SAID_SEQ(c, s), .cause = s->cause,
		  .tokens = s->valid_len, .blocks = s->nr_blocks - s->trimmed,
		  .swapped = 1);
	life_preempted(c, s->domain, s->cause, true, 0);
	seq_publish(c, s);
	seq_event(c, s, KVMM_EV_PREEMPTED);
	wait_add(c, s);
}

/*
 * Make room for the family: host slots and records.  That may drop clean copies
 * that were counted, so count again until it is true.
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

/*
 * Must a member copy its tail before it can go on, and can the domain never hold
 * the copy beside the tail?  Swapped and restored it would map the same tail again.
 * Computed again, it gets a tail of its own.
 */
static bool family_is_stuck(const struct core *c, const struct kv_seq *s, u32 state)
{
	const struct kv_domain *d = seq_domain(c, s);
	const struct kv_seq *m;

	for_each_relative(c, s, m)
		if (m->state == state && m->valid_len % d->block_tokens &&
		    m->nr_blocks >= domain_capacity(c, d) &&
		    !block_writable(c, table_get(c, m, m->valid_len /
						 d->block_tokens)))
			return true;
	return false;
}

/* Is there a tier for the members in @state, and does swapping pay? */
static bool family_swappable(struct core *c, struct kv_seq *s, u32 state)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 nr, fresh;

	if (!core_pool(c, CORE_POOL_HOST)->online || !core_cfg(c)->swappiness ||
	    c->head->device || family_is_stuck(c, s, state))
		return false;
	nr = family_blocks(c, s, state, &fresh);
	if (!nr || (!(s->flags & SEQF_DECIDED) && !swap_pays(c, d, nr, fresh)))
		return false;
	if (family_room(c, s, state))
		return true;
	core_count(c, CORE_EV_swap_fallback, 1);
	/* So that there is room the next time. */
	(void)host_write_out(c);
	return false;
}

/**
 * swap_family() - swap out the marked sequences of a family, if that is possible
 *
 * Return: false: nothing was done, the sequences are to be recomputed.
 */
bool swap_family(struct core *c, struct kv_seq *s)
{
	struct kv_seq *m;

	if (!family_swappable(c, s, KVMM_SEQ_MARKED))
		return false;
	for_each_relative(c, s, m)
		if (m->state == KVMM_SEQ_MARKED)
			swap_one(c, m);
	return true;
}

/* ---- advice ---- */

static bool family_is_idle(const struct core *c, const struct kv_seq *s)
{
	const struct kv_seq *m;

	for_each_relative(c, s, m)
		if (m->nr_steps)
			return false;
	return true;
}

/**
 * swap_advise() - PAGEOUT and WILLNEED
 *
 * PAGEOUT swaps out the whole family and keeps @s out until WILLNEED.
 * Return: 0; -EBUSY: a step is open; -EAGAIN: the family stays, since no tier has
 * room or computing again would cost less; -ESTALE: not in a state for it;
 * -EOPNOTSUPP: another advice.
 */
int swap_advise(struct core *c, struct kv_seq *s, u32 advice)
{
	if (advice == KVMM_ADV_WILLNEED) {
		if (s->flags & SEQF_PAGEDOUT) {
			KV_BUG_ON(s->state != KVMM_SEQ_SWAPPED || s->nr_steps);
			KV_BUG_ON(!(s->flags & SEQF_SWAPPED));
			s->flags &= ~SEQF_PAGEDOUT;
			/* It waits from now on; its client asks for it, so it is not idle. */
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
	/* Clean copies were dropped to make room, maybe its own: do not decide twice. */
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
