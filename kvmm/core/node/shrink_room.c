// SPDX-License-Identifier: Apache-2.0
/*
 * shrink_room.c - room for the content that leaves a smaller device pool
 *
 * Blocks of sequences move to free blocks of their domain, then to free extents,
 * then in place of its cache; spans are served in their order, as resize_tick() does
 * it.  Families with a block in a span that finds no room are preempted.  Blocks that
 * are evicted take slots of the host pool, then of areas.
 *
 * These counts are exact while no other event comes between and each kind of room is
 * enough, or there is none.  core_shrink_view.bound says where they are not: the order
 * in which cache makes room is not followed, only its number of blocks.
 */
#include "kvmm/core/node/shrink.h"

void shrink_prepare(const struct core *c, struct core_shrink *s)
{
	u32 i;

	for_each_domain(c, i)
		s->doms[i].dear = !host_part(c, i)->used ||
				  device_is_down(c, &c->domains[i]) ||
				  !copy_pays(c, i);
}

/* ---- blocks of sequences ---- */

/* Is the run of extents at @first free for the domain, and not taken yet? */
static bool run_is_free(const struct core *c, const struct core_shrink *s, u32 dom,
			u32 first)
{
	u32 e, n;

	for_each_extent_of(c, &c->domains[dom], e, n, first)
		if (s->spans[e] || !extent_fits(c, e, c->domains[dom].tenant, true))
			return false;
	return true;
}

/* Take up to @nr runs of free extents for the domain.  Return: their number. */
static u32 runs_take(const struct core *c, struct core_shrink *s, u32 dom, u64 nr)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 first = domain_zone(c, d)->first, e, n, got = 0;
	const u32 size = d->dev.span_extents, end = first + shrink_online(c, s, d);

	for (; first + size <= end && got < nr; first += size) {
		s->looked += size * d->shards;
		if (!run_is_free(c, s, dom, first))
			continue;
		for_each_extent_of(c, d, e, n, first)
			s->spans[e] = 1;
		got++;
	}
	return got;
}

/* Serve the leaving spans of a domain with @room blocks.  Return: blocks that move. */
static u64 spans_move(const struct core *c, struct core_shrink *s, u32 dom, u64 room)
{
	const struct kv_zone *z = domain_zone(c, &c->domains[dom]);
	u32 stay = s->nr - s->first, e = z->first + stay - min(stay, (u32)CORE_SPAN_MAX);
	u64 moved = 0;

	for (; e < z->first + z->nr_extents; e++) {
		const struct kv_extent *x = &c->extents[e];

		if (x->state != EXT_SPAN || x->span != e || x->domain != dom ||
		    !shrink_leaves(c, s, e) || !s->spans[e])
			continue;
		if (moved + s->spans[e] <= room) {
			moved += s->spans[e];
			continue;
		}
		s->spans[e] |= SPAN_NO_ROOM;
		s->doms[dom].no_room++;
	}
	s->looked += s->end - s->nr;
	return moved;
}

/* ---- copies ---- */

/* Free slots of the domain in a lower pool. */
static u64 pool_slots(const struct core *c, const struct core_shrink *s, u32 dom, u32 pool)
{
	const struct kv_part *p = part_at(c, part_index(c, dom, pool));
	u64 free;

	if (!p->used || !core_pool(c, pool)->online)
		return 0;
	free = part_free(p) + s->loose[pool] / p->span_extents * (u64)p->span_blocks;
	return min(free, (u64)p->max_blocks - min(p->max_blocks, part_used(p)));
}

/* Take @nr slots, of new extents if the free ones are not enough. */
static void pool_take(const struct core *c, struct core_shrink *s, u32 dom, u32 pool,
		      u64 nr)
{
	const struct kv_part *p = part_at(c, part_index(c, dom, pool));
	u64 more = nr - min(nr, (u64)part_free(p));
	u64 extents = DIV_ROUND_UP(more, (u64)p->span_blocks) * p->span_extents;

	s->loose[pool] -= (u32)min(extents, (u64)s->loose[pool]);
}

/*
 * Move @nr copies to areas.  @tight: takes whether writes ahead of need may take slots
 * that are lacking then.  Return: how many find a slot.
 */
static u64 areas_take(const struct core *c, struct core_shrink *s, u32 dom, u64 nr,
		      bool *tight)
{
	u64 got = 0, left = 0, n, most;
	u32 i;

	for (i = CORE_POOL_AREA; areas_pay(c, dom) && i < CORE_NR_POOLS; i++) {
		if (core_pool(c, i)->readonly)
			continue;
		most = pool_slots(c, s, dom, i);
		n = min(nr - got, most);
		left += most - n;
		got += n;
		if (n)
			pool_take(c, s, dom, i, n);
	}
	*tight = left < host_write_window(c, dom);
	return got;
}

/* Distribute @nr evicted blocks without a copy over the tiers; the rest is lost. */
static void copies_settle(const struct core *c, struct core_shrink *s, u32 dom, u64 nr)
{
	struct shrink_domain *d = &s->doms[dom];
	u64 host, spare, n;
	bool tight;

	if (!d->dear) {
		host = pool_slots(c, s, dom, CORE_POOL_HOST);
		n = min(nr, host);
		if (n)
			pool_take(c, s, dom, CORE_POOL_HOST, n);
		nr -= n;
		/* A slot whose content another tier has goes to other content. */
		spare = min(nr, d->slots);
		d->v.kept[0] += n + spare;
		nr -= spare;
		n = areas_take(c, s, dom, nr, &tight);
		d->v.kept[1] += n;
		nr -= n;
		/* The rest takes the place of older content, or is lost itself. */
		d->v.bound |= nr || ((n || spare) && tight);
	}
	d->v.lost += nr;
}

/* ---- a domain ---- */

/* Host slots that families could take which are swapped out. */
static u64 swap_room(const struct core *c, const struct core_shrink *s, u32 dom)
{
	const struct kv_part *p = host_part(c, dom);

	if (!p->used)
		return 0;
	return pool_slots(c, s, dom, CORE_POOL_HOST) + p->nr[BLK_SEALED] -
	       min(p->nr[BLK_SEALED], p->nr_needed);
}

/**
 * shrink_settle() - compute the cost for a domain from the counts
 */
void shrink_settle(const struct core *c, struct core_shrink *s, u32 dom)
{
	const struct kv_domain *kd = &c->domains[dom];
	struct shrink_domain *d = &s->doms[dom];
	u64 room, lacks, clean;

	s->looked++;
	if (!kd->used)
		return;
	room = domain_slack(kd) - min((u64)domain_slack(kd), d->free_end) + d->freed;
	lacks = d->used - min(d->used, room);
	room += (u64)runs_take(c, s, dom, DIV_ROUND_UP(lacks, (u64)kd->dev.span_blocks)) *
		kd->dev.span_blocks;
	d->v.moved = spans_move(c, s, dom, room + d->cached);
	d->v.evicted = d->v.moved - min(d->v.moved, room);
	/* Of cache that is worth as much, blocks with a copy are evicted first. */
	clean = min(d->v.evicted, d->clean);
	d->v.bound = d->no_room != 0;
	d->v.kept[0] += clean;
	d->room = swap_room(c, s, dom);
	copies_settle(c, s, dom, d->bare + d->v.evicted - clean);
	/* If others are evicted instead, they need slots, too. */
	if (clean && d->clean < d->cached)
		d->v.bound |= d->dear || pool_slots(c, s, dom, CORE_POOL_HOST) < clean;
}

/* ---- sequences ---- */

static bool is_resident(const struct kv_seq *q)
{
	return q->state != KVMM_SEQ_CLOSED && (q->flags & SEQF_RUNNING);
}

/**
 * shrink_table() - has a sequence a block in a span that finds no room?
 */
void shrink_table(const struct core *c, struct core_shrink *s, u32 seq)
{
	const struct kv_seq *q = &c->seqs[seq];
	const struct kv_tab *t;
	kv_pte_t pte;
	u32 n;

	s->looked++;
	if (!is_resident(q) || !s->doms[q->domain].no_room)
		return;
	s->looked += seq_live(c, q);
	for_each_pte(c, q, t, n) {
		pte = table_pte(c, t, n);
		if (pte_is_present(pte) &&
		    s->spans[block_span(c, pte_block(pte))] & SPAN_NO_ROOM)
			s->seqs[seq] = true;
	}
}

/* Count the blocks of a family, and those without a copy.  @gone: one is preempted. */
static u64 family_look(const struct core *c, const struct core_shrink *s, u32 seq,
		       u64 *uncopied, u64 *tokens, bool *gone)
{
	const struct kv_seq *q = &c->seqs[seq], *m;
	const struct kv_tab *t;
	u64 nr = 0;
	u32 n;

	*uncopied = 0;
	*tokens = 0;
	*gone = false;
	for_each_relative(c, q, m) {
		*gone |= s->seqs[seq_index(c, m)];
		if (!is_resident(m))
			continue;
		for_each_pte(c, m, t, n) {
			kv_pte_t pte = table_pte(c, t, n);

			if (!pte_is_present(pte))
				continue;
			nr++;
			*tokens += t->group ? 0 : tab_tokens(c, t);
			*uncopied += c->blocks[pte_block(pte)].entry == CORE_NONE;
		}
	}
	return nr;
}

/* Is the sequence the first of its family that is resident? */
static bool is_first(const struct core *c, const struct kv_seq *q)
{
	const struct kv_seq *m;

	for_each_relative(c, q, m)
		if (m < q && is_resident(m))
			return false;
	return is_resident(q);
}

/* A family is preempted: its members are swapped out, or computed again. */
static void family_goes(const struct core *c, struct core_shrink *s, const struct kv_seq *q,
			u64 nr, u64 uncopied, u64 tokens)
{
	struct shrink_domain *d = &s->doms[q->domain];
	const struct kv_domain *kd = &c->domains[q->domain];
	bool swap = core_pool(c, CORE_POOL_HOST)->online && !device_is_down(c, kd) &&
		    swap_pays(c, kd, (u32)nr, (u32)uncopied, tokens) && uncopied <= d->room;
	const struct kv_seq *m;

	if (swap)
		d->room -= uncopied;
	for_each_relative(c, q, m) {
		if (!is_resident(m))
			continue;
		d->v.swapped += swap;
		d->v.recomputed += !swap;
		d->v.tokens += swap ? 0 : m->valid_len;
	}
}

/**
 * shrink_seq() - is a sequence too large for the smaller pool, or preempted?
 */
void shrink_seq(const struct core *c, struct core_shrink *s, u32 seq)
{
	const struct kv_seq *q = &c->seqs[seq];
	const struct kv_domain *kd;
	u64 most, nr, uncopied, tokens;
	bool gone;

	s->looked++;
	if (q->state == KVMM_SEQ_CLOSED || q->state == KVMM_SEQ_FAILED)
		return;
	kd = &c->domains[q->domain];
	most = min((u64)(shrink_online(c, s, kd) / kd->dev.span_extents) *
		   kd->dev.span_blocks, (u64)kd->dev.max_blocks);
	/* A lease never gets memory of the device. */
	s->doms[q->domain].v.too_large += !(q->flags & SEQF_LEASE) &&
		max(domain_most(kd, max(q->prompt_len, q->valid_len)),
		    seq_live(c, q)) > most;
	if (!s->doms[q->domain].no_room || !is_first(c, q))
		return;
	nr = family_look(c, s, seq, &uncopied, &tokens, &gone);
	s->looked += (u32)nr;
	if (gone)
		family_goes(c, s, q, nr, uncopied, tokens);
}
