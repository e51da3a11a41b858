// SPDX-License-Identifier: Apache-2.0
/*
 * span.c - spans: neighbouring extents cut into one domain's blocks
 *
 * A domain takes whole spans from the pool and gives whole spans back.  Its
 * spans are on lists by fullness, and a block is allocated from the fullest
 * span that has a free one.  So empty spans appear by themselves, and another
 * domain can get them.  A domain keeps a few empty spans (SPAN_KEEP, at most a
 * sixteenth of the pool), so that short-lived sequences do not cut them again
 * each time.  Further empty spans are released.  A domain that needs memory
 * takes the kept ones, too: see span_steal().
 *
 * Laws: nr_free and nr_cached of a span count its blocks in those states; a
 * span is on the list of its class; the free blocks of a domain cover its
 * reservations, so a span leaves only when enough free blocks are left.
 */
#include "kvmm/core/mem/mem.h"

#define SPAN_FULL	0
#define SPAN_EMPTY	CORE_CLASS_EMPTY
/* Lists of spans from which a block can be allocated. */
#define CLASSES_FREE	(BIT(SPAN_EMPTY + 1) - BIT(SPAN_FULL + 1))
#define SPAN_KEEP	8u	/* empty spans that a domain keeps */

/* Weight of a free block in the class of its span, in 2^-32. */
u64 span_class_scale(u32 nr_blocks)
{
	return ((u64)(SPAN_EMPTY - 2) << 32) / nr_blocks;
}

/* 0: no free block; then the fuller, the lower; last: all blocks are free. */
static u32 span_class_in(const struct kv_part *p, const struct kv_span *sp)
{
	if (sp->nr_free == sp->nr_blocks)
		return SPAN_EMPTY;
	if (!sp->nr_free)
		return SPAN_FULL;
	return 1 + (u32)(sp->nr_free * p->class_scale >> 32);
}

u32 span_class(const struct core *c, const struct kv_span *sp)
{
	return span_class_in(part_at(c, sp->domain), sp);
}

static void span_list_add(struct core *c, struct kv_part *p, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	u32 *head = &p->class[sp->class];

	p->nr_empty += sp->class == SPAN_EMPTY;
	p->classes |= BIT(sp->class);
	sp->prev = CORE_NONE;
	sp->next = *head;
	if (*head != CORE_NONE)
		c->spans[*head].prev = first;
	*head = first;
}

static void span_list_del(struct core *c, struct kv_part *p, u32 first)
{
	struct kv_span *sp = &c->spans[first];

	p->nr_empty -= sp->class == SPAN_EMPTY;
	if (sp->prev != CORE_NONE)
		c->spans[sp->prev].next = sp->next;
	else
		p->class[sp->class] = sp->next;
	if (p->class[sp->class] == CORE_NONE)
		p->classes &= ~BIT(sp->class);
	if (sp->next != CORE_NONE)
		c->spans[sp->next].prev = sp->prev;
}

static void span_move(struct core *c, struct kv_part *p, u32 first, u32 class)
{
	struct kv_span *sp = &c->spans[first];

	if (class == sp->class)
		return;
	span_list_del(c, p, first);
	sp->class = class;
	span_list_add(c, p, first);
}

void span_set_class(struct core *c, u32 first, u32 class)
{
	span_move(c, part_at(c, c->spans[first].domain), first, class);
}

/* nr_free changed: move the span to the right list of its part @p. */
void span_reclass(struct core *c, struct kv_part *p, u32 first)
{
	struct kv_span *sp = &c->spans[first];

	if (!span_is_isolated(sp))
		span_move(c, p, first, span_class_in(p, sp));
}

/* Can the part lose @nr free blocks and still cover its reservations? */
static bool span_can_spare(const struct kv_part *p, u32 nr)
{
	return part_free(p) >= p->reserved + nr;
}

/*
 * Empty spans that a domain keeps.  On the lower tiers no other domain takes
 * them from it, so there it keeps one.
 */
static u32 span_keep(const struct core *c, const struct kv_span *sp)
{
	u32 nr;

	if (part_pool(c, sp->domain))
		return 1;
	nr = domain_online(c, &c->domains[sp->domain]);
	return max(min(nr / (16 * sp->nr_extents), SPAN_KEEP), 1u);
}

/* A block of the span was freed: release the span if it can be spared. */
void span_settle(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	const struct kv_part *p = part_at(c, sp->domain);

	if (span_is_isolated(sp)) {
		if (sp->nr_free != sp->nr_blocks)
			return;
		if (part_free(p) < p->reserved)
			span_putback(c, first);	/* a reservation came back */
		else
			span_release(c, first);
		return;
	}
	if (sp->class == SPAN_EMPTY && p->nr_empty > span_keep(c, sp) &&
	    span_can_spare(p, sp->nr_blocks) && !p->pending_spans &&
	    !p->keep_spans)
		span_release(c, first);
}

static void span_link_blocks(struct core *c, u32 dom, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	u32 base = first * core_sizes(c)->blocks_per_extent;
	u32 i;

	for (i = 0; i < sp->nr_blocks; i++) {
		struct kv_block *b = &c->blocks[base + i];

		/* The slot's next content is new in any case. */
		if (part_pool(c, dom))
			b->written++;
		core_order();
		memset(b, 0, offsetof(struct kv_block, hash));
		b->domain = (u16)dom;
		b->prev = i && part_pool(c, dom) ? base + i - 1 : CORE_NONE;
		b->hash_next = CORE_NONE;
		b->entry = CORE_NONE;
		b->next = i + 1 < sp->nr_blocks ? base + i + 1 : CORE_NONE;
	}
	sp->free_head = base;
}

/**
 * span_cut() - make a span of backed extents and give it to a domain
 * @dom:   index of the domain, whose shape decides the cut
 * @first: first extent of its run, all with memory of its tenant
 */
void span_cut(struct core *c, u32 dom, u32 first)
{
	struct kv_part *p = part_at(c, dom);
	struct kv_span *sp = &c->spans[first];
	u32 tenant = c->domains[part_domain(c, dom)].tenant, e, n;

	KV_BUG_ON(!p->used);
	KV_BUG_ON(sp->nr_extents);
	for_each_run_extent(c, e, n, first, p->span_extents, part_shards(c, dom)) {
		KV_BUG_ON(c->extents[e].tenant != tenant);
		extent_set_state(c, e, EXT_SPAN);
		c->extents[e].domain = dom;
		c->extents[e].span = first;
	}
	core_crash(c, CORE_CRASH_span_cut);
	sp->domain = dom;
	sp->nr_blocks = p->span_blocks;
	sp->nr_free = p->span_blocks;
	sp->nr_cached = 0;
	sp->nr_open = 0;
	sp->class = SPAN_EMPTY;
	span_link_blocks(c, dom, first);
	core_order();
	sp->nr_extents = p->span_extents;
	span_list_add(c, p, first);

	p->class_scale = span_class_scale(sp->nr_blocks);
	p->nr_spans++;
	p->nr[BLK_FREE] += sp->nr_blocks;
	KV_BUG_ON(p->nr[BLK_FREE] > p->nr_spans * p->span_blocks);
	core_count(c, CORE_EV_span_cut, 1);
	/* All domains: a span that covered reservations may be released now. */
	core_kick(c);
}

/**
 * span_recut() - salvage a span: count its blocks by state
 * @first: the records of the span and its blocks say owner and states
 */
void span_recut(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	struct kv_part *p = part_at(c, sp->domain);
	u32 base = first * core_sizes(c)->blocks_per_extent, i, n;

	*sp = (struct kv_span){ .domain = sp->domain, .free_head = CORE_NONE,
				.nr_extents = p->span_extents,
				.nr_blocks = p->span_blocks };
	for (n = sp->nr_blocks; n--;) {
		struct kv_block *b = &c->blocks[base + n];

		KV_BUG_ON(b->state >= NR_BLK_STATES);
		p->nr[b->state]++;
		sp->nr_cached += b->state == BLK_CACHED;
		if (b->state != BLK_FREE)
			continue;
		sp->nr_free++;
		i = sp->free_head;
		b->next = i;
		if (part_pool(c, sp->domain) && i != CORE_NONE)
			c->blocks[i].prev = base + n;
		sp->free_head = base + n;
	}
	p->class_scale = span_class_scale(sp->nr_blocks);
	p->nr_spans++;
	p->peak = max(p->peak, part_used(p));
	sp->class = span_class(c, sp);
	span_list_add(c, p, first);
}

/**
 * span_release() - give a span with no used block back to the pool
 *
 * Its extents keep their memory, for the same tenant.
 */
void span_release(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	struct kv_part *p = part_at(c, sp->domain);
	u32 e, n;

	KV_BUG_ON(sp->nr_free != sp->nr_blocks);
	KV_BUG_ON(!p->nr_spans || p->nr[BLK_FREE] < sp->nr_blocks);
	/*
	 * The free blocks of an isolated span were subtracted when it was
	 * isolated.
	 */
	KV_BUG_ON(span_is_isolated(sp) && p->isolated_free < sp->nr_blocks);
	if (span_is_isolated(sp))
		p->isolated_free -= sp->nr_blocks;
	else
		KV_BUG_ON(!span_can_spare(p, sp->nr_blocks));
	if (span_is_isolated(sp))
		evacuate_forget(c, first);
	span_list_del(c, p, first);
	for_each_span_extent(c, e, n, first) {
		extent_set_state(c, e, EXT_BACKED);
		c->extents[e].domain = CORE_NONE;
		KV_BUG_ON(c->extents[e].span != first);
	}
	core_crash(c, CORE_CRASH_span_release);
	/* It has memory: the next search finds it first. */
	extent_run_hint(c, sp->domain, first);
	p->nr_spans--;
	p->nr[BLK_FREE] -= sp->nr_blocks;
	KV_BUG_ON(part_free(p) < p->reserved);
	sp->nr_extents = 0;
	core_count(c, CORE_EV_span_release, 1);
	core_kick(c);
}

/* Are all extents of the span mapped, each by the client that maps its shard? */
bool span_acked(const struct core *c, u32 first, u32 client)
{
	const u32 nr = c->spans[first].nr_extents;
	u32 e, n, by;

	for_each_span_extent(c, e, n, first) {
		by = c->clients[client].member[n / nr];
		if (by == CORE_NONE || !(c->extents[e].mapped & BIT_ULL(by)))
			return false;
	}
	return true;
}

/**
 * span_pick() - the fullest span with a free block that a client has mapped
 * Return: its first extent, or CORE_NONE.
 */
u32 span_pick(const struct core *c, const struct kv_domain *d, u32 client)
{
	bool all = !c->clients[client].nr_unacked;
	u32 left = d->dev.classes & CLASSES_FREE, i;

	for (; left; left &= left - 1)
		for (i = d->dev.class[__builtin_ctz(left)]; i != CORE_NONE; i = c->spans[i].next)
			if (all || span_acked(c, i, client))
				return i;
	return CORE_NONE;
}

/*
 * The fullest span with a free block that every client of the domain has
 * mapped.  Without @any, empty spans do not count.
 */
u32 span_pick_dense(const struct core *c, const struct kv_domain *d, bool any)
{
	u32 last = any ? SPAN_EMPTY : SPAN_EMPTY - 1, class, i, n;

	for (class = SPAN_FULL + 1; class <= last; class++)
		for (i = d->dev.class[class]; i != CORE_NONE; i = c->spans[i].next) {
			for (n = 0; n < core_cfg(c)->max_clients; n++)
				if (c->clients[n].state == CLI_ALIVE && !client_is_rank(c, n) &&
				    &c->domains[c->clients[n].domain] == d &&
				    c->clients[n].nr_unacked &&
				    !span_acked(c, i, n))
					break;
			if (n == core_cfg(c)->max_clients)
				return i;
		}
	return CORE_NONE;
}

/* Number of the domain's spans without a free block. */
u32 span_nr_full(const struct core *c, const struct kv_domain *d)
{
	u32 i, nr = 0;

	for (i = d->dev.class[SPAN_FULL]; i != CORE_NONE; i = c->spans[i].next)
		nr++;
	return nr;
}

/* The fullest span with a free slot, in a pool that no client maps. */
u32 span_first_free(const struct core *c, const struct kv_part *p)
{
	u32 some = p->classes & CLASSES_FREE;

	return some ? p->class[__builtin_ctz(some)] : CORE_NONE;
}

/* Free blocks in spans that the client has mapped. */
u32 span_acked_free(const struct core *c, const struct kv_domain *d,
		    u32 client)
{
	u32 class, i, nr = 0;

	if (!c->clients[client].nr_unacked)
		return domain_free(d);
	for (class = SPAN_FULL + 1; class <= SPAN_EMPTY; class++)
		for (i = d->dev.class[class]; i != CORE_NONE; i = c->spans[i].next)
			if (span_acked(c, i, client))
				nr += c->spans[i].nr_free;
	return nr;
}
