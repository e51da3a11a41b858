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

/*
 * Blocks of all members in @state, each once; @uncopied: without a lower copy; @tokens:
 * tokens of these blocks, those of group 0.
 */
static u32 family_count(struct core *c, struct kv_seq *s, u32 state,
			u32 *uncopied, u64 *tokens)
{
	const struct kv_seq *m;
	const struct kv_tab *t;
	u32 n, nr = 0;

	*uncopied = 0;
	*tokens = 0;
	for_each_relative(c, s, m) {
		if (m->state != state)
			continue;
		for_each_pte(c, m, t, n) {
			u32 blk = table_get(c, t, n);

			if (c->blocks[blk].flags & BLKF_VISITED)
				continue;
			c->blocks[blk].flags |= BLKF_VISITED;
			nr++;
			*tokens += t->group ? 0 : tab_tokens(c, t);
			*uncopied += c->blocks[blk].entry == CORE_NONE;
		}
	}
	return nr;
}

static void family_unvisit(struct core *c, struct kv_seq *s, u32 state)
{
	const struct kv_seq *m;
	const struct kv_tab *t;
	u32 n;

	for_each_relative(c, s, m)
		if (m->state == state)
			for_each_pte(c, m, t, n)
				c->blocks[table_get(c, t, n)].flags &=
					(u8)~BLKF_VISITED;
}

static u32 family_blocks(struct core *c, struct kv_seq *s, u32 state,
			 u32 *uncopied, u64 *tokens)
{
	u32 nr = family_count(c, s, state, uncopied, tokens);

	family_unvisit(c, s, state);
	return nr;
}

/**
 * swap_pays() - is it cheaper to copy blocks than to compute them again, as measured?
 * @uncopied: of @nr_blocks, blocks without a lower copy
 * @tokens: tokens that would be computed again
 */
bool swap_pays(const struct core *c, const struct kv_domain *d, u32 nr_blocks, u32 uncopied,
	       u64 tokens)
{
	u64 kb = max(domain_payload(d) / 1024, 1ull);
	u64 move = (nr_blocks + (u64)uncopied) * kb * c->head->copy_ns_kb;
	u64 compute = tokens * d->prefill_ns_token;
	u32 swappiness = core_cfg(c)->swappiness;

	if (!swappiness || swappiness == 200)
		return swappiness;
	if (!d->prefill_ns_token)
		return true;
	return move * 100 <= compute * swappiness;
}

/* From the end: leaves are older than roots on the LRU list. */
static void swap_table(struct core *c, struct kv_tab *t)
{
	u32 i;

	for (i = t->nr_blocks; i-- > t->trimmed;) {
		u32 blk = table_get(c, t, i);
		u32 entry = entry_out(c, blk, i - t->trimmed + 1);

		KV_BUG_ON(entry == CORE_NONE);
		entry_get_ref(c, entry);
		entry_touch(c, entry);
		table_set_entry(c, t, i, entry);
		block_unmap(c, blk);
		KV_BUG_ON(c->entries_low[entry].domain != tab_seq(c, t)->domain);
	}
}

static void swap_one(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	struct kv_tab *t;

	KV_BUG_ON(s->nr_steps || !d->nr_marked);
	run_del(c, s);
	d->nr_marked--;
	core_kick(c);	/* the sequence that it is taken for waits */
	why_taken(c, s, true);
	seq_drop_reservation(c, s);
	core_work(c, 32 * seq_live(c, s));
	for_each_tab(c, s, t)
		swap_table(c, t);
	s->state = KVMM_SEQ_SWAPPED;
	s->flags |= SEQF_SWAPPED | SEQF_PREEMPTED | SEQF_MATCHED;
	s->since = c->now;
	s->stuck = 0;
	s->lost_len = max(s->lost_len, s->valid_len);
	s->cached_len = 0;
	s->nr_preempted++;
	d->nr_preempted++;
	core_tell(c, swap_out, SAID_SEQ(c, s), .cause = s->cause,
		  .tokens = s->valid_len, .blocks = seq_live(c, s),
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
	u32 uncopied, tries;
	u64 tokens;

	for (tries = 0; tries < 8; tries++) {
		family_blocks(c, s, state, &uncopied, &tokens);
		if (host_free(c, s->domain) >= uncopied)
			return c->head->nr_free_entries >= uncopied;
		if (!host_room(c, s->domain, uncopied))
			return false;
	}
	return false;
}

/*
 * Must a member copy its tail before it can go on, and can the domain never hold
 * the copy beside the tail?  Swapped and restored it would map the same tail again.
 * Computed again, it gets a tail of its own.
 */
static bool seq_is_stuck(const struct core *c, const struct kv_seq *s)
{
	const struct kv_domain *d = seq_domain(c, s);
	const struct kv_tab *t;
	u32 copies = 0;

	for_each_tab(c, s, t)
		copies += s->valid_len % tab_tokens(c, t) &&
			  !block_writable(c, table_get(c, t, tab_at(c, t, s->valid_len))) ?
			  tab_width(c, t) : 0;
	return copies && seq_live(c, s) + copies > domain_capacity(c, d);
}

static bool family_is_stuck(const struct core *c, const struct kv_seq *s, u32 state)
{
	const struct kv_seq *m;

	for_each_relative(c, s, m)
		if (m->state == state && seq_is_stuck(c, m))
			return true;
	return false;
}

/* Is there a tier for the members in @state, and does swapping pay? */
static bool family_swappable(struct core *c, struct kv_seq *s, u32 state)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 nr, uncopied;
	u64 tokens;

	if (!core_pool(c, CORE_POOL_HOST)->online || !core_cfg(c)->swappiness ||
	    device_is_down(c, d) || family_is_stuck(c, s, state))
		return false;
	nr = family_blocks(c, s, state, &uncopied, &tokens);
	if (!nr || (!(s->flags & SEQF_DECIDED) &&
		    !swap_pays(c, d, nr, uncopied, tokens)))
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
