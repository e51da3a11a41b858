// SPDX-License-Identifier: Apache-2.0
/*
 * admit.c - admission: a waiting sequence gets memory and runs
 *
 * Admission happens at one point, all or nothing.  The longest cached prefix is
 * mapped; it has at most length - 1 tokens, so that the last token is always
 * computed and its logits exist, and it may end inside a block.  Blocks for the
 * rest are reserved, and the sequence becomes READY.
 * A reservation is a count within the domain's free blocks, and the number of
 * free blocks never falls below it.  An admission also leaves a free block for
 * each running sequence that needs one (the min watermark): it never takes
 * blocks that running sequences are about to need.
 *
 * The first sequence of the wait list holds up the rest.  There is an exception:
 * a client that has not acknowledged its extents, or has no table pages left,
 * holds up only its own sequences.
 */
#include "kvmm/core/sched/sched.h"

#define WORK_TRY	32u	/* see core_work() */

/* core_head.more: work that the last event left undone */
enum {
	MORE_NONE,
	MORE_ROUND,	/* the rest of a round */
	MORE_LATE,	/* and another round, because events came since it began */
};

/*
 * A preempted sequence finds mostly its own blocks again.  Its tokens are
 * counted apart, so that preemption does not look like a good cache.
 */
static void admit_count(struct core *c, const struct kv_seq *s, u32 hit)
{
	bool again = s->flags & SEQF_PREEMPTED;

	core_count(c, CORE_EV_restore, again ? 1 : 0);
	if (s->open_flags & KVMM_OPEN_NO_MATCH)
		return;
	core_count(c, CORE_EV_prefix_lookup, 1);
	core_count(c, CORE_EV_prefix_hit, hit ? 1 : 0);
	core_count(c, again ? CORE_EV_restore_hit_tokens :
			      CORE_EV_prefix_hit_tokens, hit);
	core_count(c, again ? CORE_EV_restore_miss_tokens :
			      CORE_EV_prefix_miss_tokens, s->nr_ids - hit);
}

/*
 * Count the blocks that were found as used.  Not those of a preempted sequence,
 * which are its own, nor a block that was found in part, which is copied at once
 * and says little.
 */
static void admit_hit(struct core *c, const struct kv_seq *s, const struct hits *h)
{
	const struct kv_tab *t;
	u32 i;

	if (s->flags & SEQF_PREEMPTED)
		return;
	for_each_tab(c, s, t) {
		for (i = h->first[t->group]; i < h->whole[t->group]; i++) {
			kv_pte_t pte = table_pte(c, t, i);
			u32 ref = pte_block(pte) | (pte_is_entry(pte) ? REF_ENTRY : 0);

			lru_hit(c, index_node(c, ref), retain_class(c, t, i));
		}
	}
}

/*
 * Blocks that the admission reserves for the table: those of the rest of the prompt; in
 * a group with a window only those that it needs at once.
 */
static u32 tab_wants(const struct kv_domain *d, const struct kv_seq *s,
		     const struct hits *h, u32 g)
{
	u32 all = group_blocks(d, g, s->nr_ids) - h->whole[g];
	u32 most = group_most(d, g, s->nr_ids), has = h->whole[g] - h->first[g];

	return min(all, max(most, has) - has);
}

/* The same for all tables. */
static u32 seq_wants(const struct kv_domain *d, const struct kv_seq *s,
		     const struct hits *h)
{
	u32 g, nr = 0;

	for (g = 0; g < d->nr_groups; g++)
		nr += tab_wants(d, s, h, g);
	return nr;
}

static void admit_reserve(struct core *c, struct kv_seq *s, const struct hits *h)
{
	struct kv_domain *d = seq_domain(c, s);
	struct kv_tab *t;

	if (h->part)
		s->flags |= SEQF_COPY;
	for_each_tab(c, s, t) {
		KV_BUG_ON(t->nr_blocks != h->whole[t->group] + (h->part != 0));
		t->reserved = tab_wants(d, s, h, t->group);
		t->resv_blocks = h->whole[t->group] + t->reserved;
		if (d->window[t->group])
			t->prompt_blocks = group_blocks(d, t->group, s->nr_ids);
		d->dev.reserved += t->reserved;
	}
	KV_BUG_ON(d->dev.reserved > domain_free(d));
}

/*
 * There is room: reserve blocks, fill those on lower tiers, make it READY.  A
 * block that is mapped in part is copied before the first append, so a block for
 * the copy is reserved, too.
 */
static void admit_now(struct core *c, struct kv_seq *s, const struct hits *h)
{
	struct kv_domain *d = seq_domain(c, s);
	const u64 waited = c->now - s->since;
	struct kv_zone *z;

	KV_BUG_ON(!(s->flags & SEQF_QUEUED) || (s->flags & SEQF_RUNNING));
	KV_BUG_ON(s->nr_steps || seq_reserved(c, s));
	core_crash(c, CORE_CRASH_admit);
	wait_del(c, s);
	run_add(c, s);
	admit_reserve(c, s, h);
	s->valid_len = h->len + h->part;
	KV_BUG_ON(s->valid_len > s->nr_ids);
	s->cover = s->valid_len;
	s->cached_len = s->valid_len;
	s->known_len = 0;
	s->since = c->now;
	s->admitted = c->now;
	s->back = 0;
	s->active = c->now;
	s->limiting_pool = KVMM_NO_POOL;
	why_back(c, s);
	for_each_zone(c, d, z)
		z->touched += (u64)domain_most(d, s->nr_ids) * d->dev.block_bytes;
	admit_count(c, s, s->valid_len);
	core_tell(c, admit, SAID_SEQ(c, s), .tokens = s->nr_ids,
		  .cached = s->valid_len, .blocks = seq_reserved(c, s),
		  .us = waited / 1000);
	admit_hit(c, s, h);
	core_count(c, CORE_EV_prefix_partial_tokens, h->part);
	/* It may have been preempted when its growth was refused. */
	s->flags &= ~(SEQF_MATCHED | SEQF_REFUSED);
	seq_drop_ids(c, s);
	swap_fill(c, s);
}

/* Map one block of the prefix; an entry of a lower tier is pinned by the table for now. */
static void map_hit(struct core *c, struct kv_tab *t, u32 ref)
{
	u32 idx = t->nr_blocks;

	KV_BUG_ON(ref == CORE_NONE);
	if (table_push(c, t, ref & REF_ENTRY ? CORE_NONE : ref))
		KV_BUG_ON(true);
	if (ref & REF_ENTRY) {
		KV_BUG_ON(c->entries_low[ref & ~REF_ENTRY].domain != tab_seq(c, t)->domain);
		entry_get_ref(c, ref & ~REF_ENTRY);
		table_set_entry(c, t, idx, ref & ~REF_ENTRY);
	} else {
		block_map(c, ref);
	}
}

/* The entries behind the window are as if they had been trimmed. */
static void map_trimmed(struct core *c, struct kv_tab *t, const struct hits *h)
{
	u32 nr = h->first[t->group];

	if (!nr)
		return;
	while (t->nr_blocks < nr) {
		if (table_push(c, t, CORE_NONE))
			KV_BUG_ON(true);
		table_set_none(c, t, t->nr_blocks - 1);
	}
	t->trimmed = nr;
	t->trim_want = nr;
	hits_name(c, tab_seq(c, t), h, (u32)tab_pos(c, t, nr), t->trim_hash);
	index_mix(t->group, t->trim_hash);
}

/* Map the prefix. */
static void map_hits(struct core *c, struct kv_seq *s, const struct hits *h)
{
	struct kv_tab *t;
	u32 i;

	for_each_tab(c, s, t) {
		map_trimmed(c, t, h);
		for (i = t->trimmed; i < h->whole[t->group] + (h->part != 0); i++)
			map_hit(c, t, c->scratch[h->at[t->group] + i]);
	}
}

static void unmap_hits(struct core *c, struct kv_seq *s)
{
	seq_unmap(c, s);
	seq_tabs_init(c, s);
}

/*
 * The sequence waits for copies or writes, whose end kicks its domain.  Unmapping the
 * prefix kicks it, too, but changes nothing for the next try.
 */
static void unmap_and_wait(struct core *c, struct kv_seq *s, u32 why)
{
	why_note(c, why, CORE_NONE);
	unmap_hits(c, s);
	seq_domain(c, s)->retry = 0;
}

/*
 * Get host slots for the blocks of the prefix that must be read.  Where none can be had,
 * the prefix ends before these blocks.
 * Return: false: they will be free when writes have ended.
 */
static bool reads_have_room(struct core *c, struct kv_seq *s, struct hits *h)
{
	bool waits;

	if (!h->reads || hits_room(c, s->domain, h, &waits))
		return true;
	if (waits) {
		/* No block is copied ahead of need into these slots. */
		seq_domain(c, s)->host_wanted = 1;
		why_note(c, CORE_WAIT_slots, CORE_NONE);
		return false;
	}
	hits_drop_reads(c, s, h);
	return true;
}

/* Would @nr more blocks take the domain above memory.high while sequences run? */
static bool high_exceeded(const struct kv_domain *d, u32 nr)
{
	return d->nr_running && (u64)domain_held(d) + nr > d->high_blocks;
}

/* Above memory.high no sequence is admitted while another one runs. */
static bool high_waits(struct core *c, struct kv_domain *d, u32 nr)
{
	if (!high_exceeded(d, nr))
		return false;
	d->nr_high_events++;
	core_tell(c, limit, .domain = (u64)(d - c->domains), .mark = 1,
		  .held = domain_held(d), .blocks = nr);
	return true;
}

/*
 * Blocks of the prefix that eviction must spare.  Those in isolated spans are no room
 * anyway, but memory.max counts them, too, once they are mapped.
 */
static u32 hits_spare(const struct kv_domain *d, const struct hits *h, u32 room)
{
	return domain_limited(d, room + h->cached) ? h->cached : h->cached - h->going;
}

/*
 * Make room within memory.min.  A family that is swapped out for that may get the host
 * slot of a block of the prefix, which no table pins yet, so the prefix is looked for
 * again.  @h: takes what is found then.
 *
 * Return: as admit_one(); ROOM_NOW: there is room for the rest of the prompt.
 */
static enum verdict room_promised(struct core *c, struct kv_seq *s, struct hits *h,
				  u32 min)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 room = seq_wants(d, s, h) + h->low + min;
	enum verdict verdict = room_for_min(c, s, room, hits_spare(d, h, room));

	if (verdict != ROOM_NOW)
		return verdict;
	if (!prefix_find(c, s, h))
		return WAITS_HASH;
	KV_BUG_ON(h->going > h->cached);
	hits_drop_part(c, h);
	room = seq_wants(d, s, h) + h->low + min;
	verdict = room_plan(c, s->domain, room, hits_spare(d, h, room));
	if (verdict != ROOM_NOW)
		domain_kick(seq_domain(c, s));
	return verdict;
}

/*
 * There is room for the rest of the prompt, and @min more: evict for it, map the
 * prefix, and admit.
 * Return: as admit_one().
 */
static enum verdict admit_mapped(struct core *c, struct kv_seq *s, struct hits *h,
				 u32 min)
{
	struct kv_domain *d = seq_domain(c, s);
	enum verdict verdict;
	u32 room, spare;

	KV_BUG_ON(s->tab.nr_blocks || s->tab.first_page != CORE_NONE);
	if (!reads_have_room(c, s, h))
		return ROOM_MADE;
	room = seq_wants(d, s, h) + h->low + min;
	spare = hits_spare(d, h, room);
	map_hits(c, s, h);
	verdict = room_evict(c, s->domain, room);
	if (verdict == ROOM_MADE) {
		d->own_ask = room + spare - min;
		unmap_and_wait(c, s, CORE_WAIT_demote);
		return ROOM_MADE;
	}
	/* Eviction may drop the host slot of a block of the prefix. */
	if (verdict != ROOM_NOW || !swap_fits(c, s)) {
		/*
		 * An open step may read an evicted block: try again with
		 * others' memory.
		 */
		domain_kick(d);
		unmap_hits(c, s);
		return ROOM_NONE;
	}
	admit_now(c, s, h);
	return ROOM_NOW;
}

/**
 * admit_one() - admit a waiting sequence if there is room
 *
 * Return: ROOM_NOW: it is admitted; else the reason.
 */
static enum verdict admit_one(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 total, room, min;
	struct hits h;
	enum verdict verdict;
	bool promised;

	KV_BUG_ON(!(s->flags & SEQF_QUEUED) || s->nr_steps);
	KV_BUG_ON(s->flags & SEQF_RUNNING);
	if (c->clients[s->client].nr_unacked)
		return WAITS_CLIENT;
	if (commit_never(c, d, (u64)s->prompt_len + s->max_tokens)) {
		oom_note(c, s, domain_most(d, s->prompt_len),
			 CORE_OOM_failed, CORE_CAUSE_itself, NULL);
		seq_fail(c, s, -EDQUOT);
		return WAITS_NOT;
	}
	KV_BUG_ON(d->close_waits && !domain_resizes(c, d));
	if (d->close_waits) {
		why_note(c, CORE_WAIT_moving, CORE_NONE);
		return ROOM_MADE;
	}
	if (s->flags & SEQF_SWAPPED) {
		if (!growth_waits(c, s) && !starved_waits(c, s))
			return swap_restore(c, s);
		domain_kick(d);	/* try again at the next event */
		return ROOM_NONE;
	}
	total = domain_most(d, s->nr_ids);
	min = wmark_min(d);
	promised = limit_within_min(d, domain_held(d), total + min);
	if (total > domain_capacity(c, d)) {
		oom_note(c, s, total, CORE_OOM_failed, CORE_CAUSE_itself, NULL);
		seq_fail(c, s, -EDQUOT);
		return WAITS_NOT;
	}
	if (!waiter_has_pages(c, s))
		return WAITS_CLIENT;	/* pages belong to its client */
	if (!promised && (growth_waits(c, s) || starved_waits(c, s))) {
		domain_kick(d);	/* try again at the next event */
		return ROOM_NONE;
	}

	if (!prefix_find(c, s, &h))
		return WAITS_HASH;
	if (h.leaves) {
		why_note(c, CORE_WAIT_copies, CORE_NONE);
		return ROOM_MADE;
	}
	KV_BUG_ON(h.going > h.cached);
	room = seq_wants(d, s, &h) + h.low + min;
	if (high_waits(c, d, room + h.cached))
		return WAITS_HIGH;
	d->high_ask = room + h.cached - min;
	if (!promised && !commit_admits(c, s, hits_blocks(d, &h) + (h.part != 0),
					h.cached + h.low)) {
		why_note(c, CORE_WAIT_commit, CORE_NONE);
		return ROOM_NONE;
	}
	verdict = room_plan(c, s->domain, room, hits_spare(d, &h, room));
	if (verdict != ROOM_NOW && h.part) {
		/* The copy of a part of a block may need one block too many. */
		hits_drop_part(c, &h);
		verdict = room_plan(c, s->domain, room, hits_spare(d, &h, room));
	}
	if (verdict == ROOM_NONE && promised)
		verdict = room_promised(c, s, &h, min);
	return verdict == ROOM_NOW ? admit_mapped(c, s, &h, min) : verdict;
}

/* Note that the domain is stalled, so that others hold back for it. */
static void admit_note_stall(struct core *c, struct kv_domain *d,
			     const struct kv_seq *s, enum verdict verdict)
{
	/* A swapped sequence has no ids, but a table, which may be empty. */
	u32 total = max(max(domain_most(d, s->nr_ids), seq_live(c, s)), 1u);

	d->promised = limit_within_min(d, domain_held(d),
				       total + wmark_min(d));
	/* Others cannot help against a limit of the domain itself. */
	if ((verdict == ROOM_NONE || verdict == ROOM_MOVED ||
	     (verdict == ROOM_MADE && d->promised)) &&
	    !domain_limited(d, total)) {
		d->stalled = total;
		c->none_stalled = 0;
	}
}

/*
 * Admit the first sequence of the domain's wait list that can be.
 *
 * Return: ROOM_NOW: one was admitted; WAITS_NOT: none of them can be; else the
 * reason.
 */
static enum verdict admit_next(struct core *c, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];
	enum verdict verdict;
	u32 i, next;

	d->retry = 0;
	d->stalled = 0;
	d->high_ask = 0;
	d->own_ask = 0;
	d->host_wanted = 0;
	for (i = d->wait_head; i != CORE_NONE; i = next) {
		struct kv_seq *s = waiter_turn(c, &c->seqs[i]);
		bool another = s != &c->seqs[i];

		KV_BUG_ON(s->domain != dom || !(s->flags & SEQF_QUEUED));
		next = c->seqs[i].next;
		core_work(c, WORK_TRY);
		why_note(c, CORE_WAIT_nothing, CORE_NONE);
		verdict = admit_one(c, s);
		if (verdict == ROOM_NOW)
			return ROOM_NOW;
		if (verdict != WAITS_NOT)
			why_refused(c, s, verdict);
		if (another && verdict == WAITS_NOT)
			next = d->wait_head;	/* the list has changed */
		if (verdict == WAITS_NOT || verdict == WAITS_CLIENT)
			continue;
		if (verdict == WAITS_HASH) {
			domain_kick(d);
			return verdict;
		}
		if (s->limiting_pool == KVMM_NO_POOL) {
			s->limiting_pool = 0;
			core_tell(c, admit_stall, SAID_SEQ(c, s),
				  .tokens = s->nr_ids,
				  .error = (u64)verdict_errno(verdict));
			seq_publish(c, s);
		}
		psi_task(c, s);
		core_tell(c, wait, SAID_SEQ(c, s),
			  .error = (u64)verdict_errno(verdict),
			  .blocks = max(domain_most(d, s->nr_ids), seq_live(c, s)));
		admit_note_stall(c, d, s, verdict);
		return verdict;
	}
	return WAITS_NOT;
}

/*
 * The domain to try next, of those not refused in this round: a domain below its
 * memory.min first, then the one with the smallest share.
 */
static u32 admit_pick(const struct core *c)
{
	u32 i, best = CORE_NONE;
	u64 least = 0;

	for_each_domain(c, i) {
		const struct kv_domain *d = &c->domains[i];
		u64 key;

		if (!d->retry || d->blocked)
			continue;
		key = limit_within_min(d, domain_held(d), 1) ? 0 :
						limit_turn(d) + 1;
		if (best == CORE_NONE || key < least) {
			best = i;
			least = key;
		}
	}
	return best;
}

/*
 * The pool has no room for the first waiting sequence of @dom.  Memory that
 * other domains of its tenant give back is for it, until its share is no smaller
 * than theirs or its memory.min is reached.  Until then these domains are not
 * tried.  They are if @dom could not have enough memory even so.
 */
static void admit_hold_back(struct core *c, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 i;

	if (c->tenants[d->tenant].nr_domains < 2 || !waiter_reachable(c, dom))
		return;
	KV_BUG_ON(!d->stalled || !d->nr_waiting);
	for_each_domain(c, i) {
		struct kv_domain *o = &c->domains[i];

		if (domains_trade(o, d) && i != dom &&
		    (d->promised || limit_turn(o) > limit_turn(d)) &&
		    !limit_within_min(o, domain_held(o), 1)) {
			o->blocked = 1;
			why_held(c, i, dom);
		}
	}
}

/* Begin a round, or go on with one that an event left undone. */
static void admit_round(struct core *c, bool goes_on)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains && !goes_on; i++)
		c->domains[i].blocked = 0;
	for_each_domain(c, i) {
		struct kv_domain *d = &c->domains[i];

		if (d->retry || !d->nr_waiting)
			continue;
		/*
		 * Its first waiter waits for a write to evict cache, and others have
		 * taken blocks that it counts on: now spans of other domains may help.
		 */
		if (d->own_ask && room_lacks(c, d, d->own_ask, wmark_min(d)))
			domain_kick(d);
		if (!d->stalled || d->retry)
			continue;
		/* Its own sequences grew out of its memory.min since it was tried. */
		d->promised &= limit_within_min(d, domain_held(d),
						d->stalled + wmark_min(d));
		/* Its own sequences grew to a limit: others cannot help. */
		if (domain_limited(d, d->stalled) ||
		    (d->high_ask && high_exceeded(d, d->high_ask + wmark_min(d))))
			domain_kick(d);
		else
			admit_hold_back(c, i);
	}
}

/*
 * Try domains until none is left, or the event has done enough.  @late: a change
 * may help domains that this round refused already: another round follows.
 */
static void admit_ask(struct core *c, bool late)
{
	bool goes_on = c->head->more != MORE_NONE;
	u32 dom, tries = 0;
	enum verdict verdict;

	c->head->more = MORE_NONE;
	admit_round(c, goes_on);
	for (;;) {
		dom = admit_pick(c);
		if (dom == CORE_NONE && !late)
			break;
		if (dom == CORE_NONE) {
			late = false;
			admit_round(c, false);
			continue;
		}
		if (tries++ && c->work >= core_cfg(c)->event_work) {
			c->head->more = late ? MORE_LATE : MORE_ROUND;
			break;
		}
		KV_BUG_ON(!c->domains[dom].used || c->domains[dom].blocked);
		verdict = admit_next(c, dom);
		if (verdict == ROOM_NOW || verdict == WAITS_HASH)
			continue;
		c->domains[dom].blocked = 1;
		if (c->domains[dom].stalled)
			admit_hold_back(c, dom);
		room_ahead(c, dom);
	}
	c->work = 0;	/* the event is over */
}

/**
 * admit_all() - after every event: admit all sequences that fit now
 *
 * Only domains in which something changed since the last refusal are tried, one
 * sequence at a time, and the domain with the smallest share of the surplus
 * first.
 *
 * An event may let ten thousand sequences in, or try as many in vain, and
 * clients wait for the thread meanwhile.  So work beyond core_config.event_work,
 * with that of the event itself, is left to the next event or admit_rest().  A
 * domain that was refused is not tried again before the round is over: else
 * every event could stop at the most expensive domain.  If events came
 * meanwhile, another round follows, since they may have freed the memory that it
 * waits for.
 */
void admit_all(struct core *c)
{
	revoke_advance(c);
	admit_ask(c, c->head->more != MORE_NONE);
}

/* admit_rest() - no event came: go on with the work that admit_all() left */
void admit_rest(struct core *c)
{
	revoke_advance(c);
	admit_ask(c, c->head->more == MORE_LATE);
}
