// SPDX-License-Identifier: Apache-2.0
/*
 * ranges.c - check of all indices in an arena that is adopted whole
 *
 * The core and the walkers of check.c follow indices without checking them.
 * Here nothing is taken for granted: each record is checked by itself, and with
 * it only fields of other records that were checked before.  Whether the records
 * fit together is for the walkers to find out.
 *
 * Records of clients and sequences: ranges_seq.c.
 */
#include "kvmm/core/adopt/adopt.h"

static void below(struct walk *w, const char *what, u32 i, u64 have, u64 most)
{
	if (have >= most)
		walk_fault(w, "adopt", what, i, have, most);
}

static void below_or_none(struct walk *w, const char *what, u32 i, u32 have,
			  u64 most)
{
	if (have != CORE_NONE)
		below(w, what, i, have, most);
}

static bool is_name(const struct core *c, u32 node)
{
	return node < core_sizes(c)->nr_nodes &&
	       c->nodes[node].ref != CORE_NONE;
}

static void must(struct walk *w, const char *what, u32 i, bool is)
{
	expect(w, "adopt", what, i, is, 1);
}

/* ---- the head ---- */

/* zones_check() - are the device pools where the configuration has them? */
void zones_check(struct walk *w)
{
	const struct core_config *cfg = core_cfg(w->c);
	u32 i, first = 0, nr = 0;

	for (i = 0; i < CORE_MAX_ZONES; i++) {
		const struct kv_zone *z = &w->c->head->zones[i];

		nr += zone_bytes(cfg, i) != 0;
		expect(w, "adopt", "first extent of device pool", i, z->first,
		       zone_bytes(cfg, i) ? first : 0);
		expect(w, "adopt", "extents of device pool", i, z->nr_extents,
		       zone_bytes(cfg, i) / cfg->extent_size);
		must(w, "extents in use of pool", i, !z->nr_extents ||
		     (z->nr_online && z->nr_online <= z->nr_extents));
		first += z->nr_extents;
	}
	expect(w, "adopt", "device pools of the arena", 0, w->c->head->nr_zones, nr);
}

/* run_is_inside() - is a run of extents within each of its device pools? */
bool run_is_inside(const struct core *c, u32 first, u32 nr, u32 shards)
{
	const struct kv_zone *z = extent_zone(c, first);
	u32 i;

	if (!shards || shards > c->head->nr_zones - zone_of(c, first))
		return false;
	for (i = 0; i < shards; i++)
		if ((u64)first - z->first + nr > z[i].nr_extents)
			return false;
	return true;
}

static void head_ranges(struct walk *w)
{
	const struct core *c = w->c;
	const struct core_head *h = c->head;
	const struct core_sizes *s = core_sizes(c);
	u32 i;

	below(w, "time of the arena", 0, h->ticked, c->now + 1);
	below(w, "rest of an event", 0, h->more, 3);
	for (i = 0; i < CORE_MAX_REVOKES; i++) {
		const struct kv_revoke *rv = &h->revokes[i];

		below(w, "claim", i, rv->nr, CORE_SPAN_MAX + 1);
		below(w, "end of claim", i, rv->nr ?
		      (u64)rv->first + rv->nr : 0, s->nr_extents + 1);
		if (rv->nr && !w->r->nr_faults)
			must(w, "device pools of claim", i,
			     run_is_inside(c, rv->first, rv->nr, rv->shards));
		if (rv->nr)
			below_or_none(w, "domain of claim", i, rv->dom,
				      core_cfg(c)->max_domains);
	}
	for (i = 0; i < CORE_MAX_EVACS; i++)
		if (h->evacs[i].span != CORE_NONE || h->evacs[i].nr) {
			below_or_none(w, "span of evacuation", i,
				      h->evacs[i].span, s->nr_extents);
			below(w, "domain of evacuation", i, h->evacs[i].dom,
			      core_cfg(c)->max_domains);
		}
}

static void pool_ranges(struct walk *w, u32 i)
{
	const struct core_config *cfg = core_cfg(w->c);
	const struct kv_pool *p = core_pool(w->c, i);
	u64 bytes = i == CORE_POOL_DEV ? cfg->pool_bytes :
		    i == CORE_POOL_HOST ? cfg->host_bytes : cfg->area_bytes;
	u32 most = (u32)(bytes / cfg->extent_size), before = i - 1, first = 0;

	if (i)
		first = core_pool(w->c, before)->first +
			(before < CORE_POOL_AREA ?
			 core_pool(w->c, before)->nr_extents :
			 (u32)(cfg->area_bytes / cfg->extent_size));
	expect(w, "adopt", "first extent of pool", i, p->first, first);
	below(w, "extents of pool", i, p->nr_extents, most + 1ull);
	if (i < CORE_POOL_AREA)
		expect(w, "adopt", "extents of pool", i, p->nr_extents, most);
	expect(w, "adopt", "use of pool", i, p->online, p->nr_extents != 0);
	below_or_none(w, "requests of pool", i, p->io_head,
		      core_sizes(w->c)->nr_entries);
	below_or_none(w, "requests of pool", i, p->io_tail,
		      core_sizes(w->c)->nr_entries);
	below(w, "place in pool", i, p->move_at,
	      max(core_sizes(w->c)->nr_entries, 1u));
}

/* ---- domains ---- */

static bool same_part(const struct kv_part *a, const struct kv_part *b)
{
	return a->used == b->used && a->span_extents == b->span_extents &&
	       a->span_blocks == b->span_blocks &&
	       a->span_tail == b->span_tail &&
	       a->block_bytes == b->block_bytes;
}

static bool same_shape(const struct kv_domain *a, const struct kv_domain *b)
{
	return a->used == b->used && a->tenant == b->tenant &&
	       a->zone == b->zone && a->shards == b->shards &&
	       a->nr_groups == b->nr_groups &&
	       a->base_tokens == b->base_tokens &&
	       a->hit_tokens == b->hit_tokens && a->ids_tokens == b->ids_tokens &&
	       !memcmp(a->group, b->group, sizeof(a->group)) &&
	       !memcmp(a->stride, b->stride, sizeof(a->stride)) &&
	       !memcmp(a->width, b->width, sizeof(a->width)) &&
	       !memcmp(a->window, b->window, sizeof(a->window)) &&
	       same_part(&a->dev, &b->dev);
}

static void part_lists(struct walk *w, u32 i, const struct kv_part *p)
{
	const struct core_sizes *s = core_sizes(w->c);
	const u32 entries[] = { p->lru_head, p->lru_tail, p->write_next };
	const u32 slots[] = { p->slot_out, p->slot_last };
	u32 n;

	for (n = 0; n < CORE_NR_CLASSES; n++)
		below_or_none(w, "spans of domain", i, p->class[n],
			      s->all_extents);
	for (n = 0; n < ARRAY_SIZE(entries); n++)
		below_or_none(w, "host slots of domain", i, entries[n],
			      s->nr_entries);
	for (n = 0; n < ARRAY_SIZE(slots); n++)
		below_or_none(w, "slots of domain", i, slots[n], s->nr_blocks);
}

static void domain_lists(struct walk *w, u32 i, const struct kv_domain *d)
{
	const struct core_sizes *s = core_sizes(w->c);
	const u32 seqs[] = { d->wait_head, d->wait_tail, d->run_head,
			     d->run_tail, d->age_head, d->age_tail };
	u32 n;

	part_lists(w, i, &d->dev);
	for (n = 0; n < ARRAY_SIZE(seqs); n++)
		below_or_none(w, "sequences of domain", i, seqs[n], s->nr_seqs);
}

/* The lists of a domain's cache. */
static void lru_ranges(struct walk *w, u32 dom)
{
	const struct kv_lru *l = &w->c->lrus[dom];
	const struct kv_lru_list *list = l->list[0];
	u32 nr = core_sizes(w->c)->nr_blocks, i;

	must(w, "clock of the cache of domain", dom, l->step &&
	     (u32)(l->clock >> 16) - l->min_gen < LRU_NR_GENS);
	below_or_none(w, "cache of domain", dom, l->inner.head, nr);
	for (i = 0; i < LRU_NR_TERMS; i++)
		below_or_none(w, "cache of domain", dom, l->term[i].list.head,
			      nr);
	for (i = 0; i < LRU_NR_KINDS * LRU_NR_GENS; i++)
		below_or_none(w, "cache of domain", dom, list[i].head, nr);
	below(w, "kinds of cache of domain", dom, l->busy,
	      1ull << LRU_NR_KINDS);
}

static void domain_ranges(struct walk *w, u32 dom)
{
	struct kv_domain *d = &w->c->domains[dom], again = *d;

	below(w, "use of domain", dom, d->used, 2);
	if (d->used != 1)
		return;
	must(w, "tenant of domain", dom,
	     d->tenant < core_cfg(w->c)->max_tenants &&
	     w->c->tenants[d->tenant].used == 1);
	must(w, "shape of domain", dom, !domain_restore(w->c, &again) &&
	     same_shape(d, &again));
	if (w->r->nr_faults)
		return;
	d->dev.class_scale = span_class_scale(d->dev.span_blocks);
	domain_lists(w, dom, d);
	must(w, "names of domain", dom,
	     d->roots == CORE_NONE || is_name(w->c, d->roots));
	lru_ranges(w, dom);
}

/* The parts of a domain in the lower pools. */
static void part_ranges(struct walk *w, struct core *c, u32 dom, u32 pool)
{
	u32 i = part_index(c, dom, pool);
	struct kv_part *part = part_at(c, i), was = *part;

	if (!c->domains[dom].used)
		return;
	domain_part_init(c, dom, pool);
	/* A part that was made before there was an area is unused. */
	must(w, "shape of part", i, same_part(part, &was) ||
	     (!was.used && !core_pool(c, pool)->nr_extents));
	*part = was;
	if (!was.used || w->r->nr_faults)
		return;
	part->class_scale = span_class_scale(part->span_blocks);
	part_lists(w, i, part);
}

/* ---- extents, spans, blocks ---- */

/* Is the run for a span of the part within its pool, or each of its device pools? */
static bool run_is_home(const struct core *c, u32 part, u32 first)
{
	const u32 nr = part_at(c, part)->span_extents;

	if (part_pool(c, part))
		return (u64)first + nr <= core_sizes(c)->all_extents;
	return zone_of(c, first) == c->domains[part].zone &&
	       run_is_inside(c, first, nr, c->domains[part].shards);
}

static void extent_ranges(struct walk *w, u32 e)
{
	const struct core *c = w->c;
	const struct kv_extent *x = &c->extents[e];
	const struct kv_span *sp;

	below(w, "state of extent", e, x->state, EXT_OFFLINE + 1);
	below(w, "memory of extent", e, x->backed, 2);
	below(w, "span of extent", e, x->span, core_sizes(c)->all_extents);
	below_or_none(w, "domain of extent", e, x->domain,
		      core_sizes(c)->nr_parts);
	if (x->want != EXT_WANT_SIZE)
		below(w, "claim of extent", e, x->want, CORE_MAX_REVOKES + 1);
	if (e < core_sizes(c)->nr_extents &&
	    (x->backed || x->state == EXT_CREATING))
		must(w, "tenant of extent", e,
		     x->tenant < core_cfg(c)->max_tenants &&
		     c->tenants[x->tenant].used == 1);
	if (w->r->nr_faults)
		return;
	if (x->state == EXT_CREATING && x->domain != CORE_NONE)
		must(w, "run of extent", e, part_at(c, x->domain)->used &&
		     run_has(c, x->span, part_at(c, x->domain)->span_extents,
			     part_shards(c, x->domain), e) &&
		     run_is_home(c, x->domain, x->span));
	sp = &c->spans[x->span];
	if (x->state == EXT_SPAN)
		must(w, "span of extent", e, x->domain < core_sizes(c)->nr_parts &&
		     run_has(c, x->span, sp->nr_extents, part_shards(c, x->domain), e));
	sp = &c->spans[e];
	if (!sp->nr_extents)
		return;
	below_or_none(w, "list of span", e, sp->prev,
		      core_sizes(c)->all_extents);
	below_or_none(w, "list of span", e, sp->next,
		      core_sizes(c)->all_extents);
	below(w, "class of span", e, sp->class, CORE_NR_CLASSES);
	below_or_none(w, "free blocks of span", e, sp->free_head,
		      core_sizes(c)->nr_blocks);
}

static void span_ranges(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, e, nr;

	for (i = 0; i < CORE_NR_POOLS; i++) {
		const struct kv_pool *p = core_pool(c, i);

		for (e = p->first; e < p->first + p->nr_extents; e++) {
			nr = c->spans[e].nr_extents;
			if (!nr)
				continue;
			expect(w, "adopt", "span", e, salvage_span(c, i, e),
			       nr);
			if (!w->r->nr_faults)
				expect(w, "adopt", "blocks of span", e,
				       c->spans[e].nr_blocks,
				       part_at(c, c->spans[e].domain)->span_blocks);
		}
	}
}

static void block_ranges(struct walk *w, u32 blk)
{
	const struct core *c = w->c;
	const struct core_sizes *s = core_sizes(c);
	const struct kv_block *b = &c->blocks[blk];
	u32 part = salvage_in_span(c, blk);

	if (part == CORE_NONE) {
		expect(w, "adopt", "marks of block", blk, b->flags, 0);
		return;
	}
	expect(w, "adopt", "domain of block", blk, b->domain, part);
	below(w, "state of block", blk, b->state, NR_BLK_STATES);
	below(w, "group of block", blk, b->group,
	      c->domains[part_domain(c, part)].nr_groups);
	below(w, "ids of block", blk, b->nr_ids,
	      c->domains[part_domain(c, part)].ids_tokens + 1);
	below_or_none(w, "list of block", blk, b->next, s->nr_blocks);
	below_or_none(w, "list of block", blk, b->prev, s->nr_blocks);
	below_or_none(w, "entry of block", blk, b->entry, s->nr_entries);
	if (b->flags & BLKF_INDEXED)
		below(w, "node of block", blk, b->node, s->nr_nodes);
	expect(w, "adopt", "marks of block", blk,
	       b->flags & BLKF_VISITED, 0);
}

/* ---- entries and names ---- */

static bool lies(const struct core *c, u32 blk, u32 dom, bool host, bool area)
{
	u32 part = salvage_in_span(c, blk), pool;

	if (part == CORE_NONE || part_domain(c, part) != dom)
		return false;
	pool = part_pool(c, part);
	return host ? pool == CORE_POOL_HOST : area ? pool >= CORE_POOL_AREA :
	       pool == CORE_POOL_DEV;
}

static void entry_links(struct walk *w, u32 i)
{
	const struct core_sizes *s = core_sizes(w->c);
	const struct kv_entry *e = &w->c->entries_low[i];

	below_or_none(w, "list of entry", i, e->prev, s->nr_entries);
	below_or_none(w, "list of entry", i, e->next, s->nr_entries);
	below_or_none(w, "waiters of entry", i, e->waiters, s->nr_seqs);
	if (e->io == ENT_READ || e->io == ENT_WRITE) {
		below_or_none(w, "requests of entry", i, e->io_prev,
			      s->nr_entries);
		below_or_none(w, "requests of entry", i, e->io_next,
			      s->nr_entries);
	}
	if (e->flags & ENTF_INDEXED)
		below(w, "node of entry", i, e->node, s->nr_nodes);
}

static void entry_ranges(struct walk *w, u32 i)
{
	const struct core *c = w->c;
	const struct kv_entry *e = &c->entries_low[i];
	bool copies = e->io == ENT_IN || e->io == ENT_OUT ||
		      (e->flags & ENTF_BESIDE);

	if (e->domain == ENTRY_UNUSED)
		return;
	must(w, "domain of entry", i, e->domain < core_cfg(c)->max_domains &&
	     c->domains[e->domain].used);
	below(w, "requests of entry", i, e->io, ENT_READ + 1);
	if (w->r->nr_faults)
		return;
	below(w, "group of entry", i, e->group, c->domains[e->domain].nr_groups);
	below(w, "ids of entry", i, e->nr_ids,
	      c->domains[e->domain].ids_tokens + 1);
	must(w, "slots of entry", i,
	     (e->host == CORE_NONE || lies(c, e->host, e->domain, true, 0)) &&
	     (e->area == CORE_NONE || lies(c, e->area, e->domain, 0, true)) &&
	     (e->dev == CORE_NONE || lies(c, e->dev, e->domain, 0, 0)));
	must(w, "content of entry", i, e->host != CORE_NONE ||
	     e->area != CORE_NONE || !(e->flags & ENTF_INDEXED));
	must(w, "flags of entry", i,
	     (e->host != CORE_NONE || !(e->flags & ENTF_HOST)) &&
	     (e->area != CORE_NONE || !(e->flags & ENTF_AREA)));
	must(w, "copies of entry", i, !copies || (e->dev != CORE_NONE &&
	     e->host != CORE_NONE));
	must(w, "transfers of entry", i,
	     (e->io != ENT_READ && e->io != ENT_WRITE) ||
	     (e->area != CORE_NONE && e->host != CORE_NONE));
	entry_links(w, i);
}

static void node_ranges(struct walk *w, u32 i)
{
	const struct core *c = w->c;
	const struct kv_node *n = &c->nodes[i];
	u32 ref = n->ref, dom = CORE_NONE;

	if (ref == CORE_NONE)
		return;
	if (ref & REF_ENTRY) {
		ref &= ~REF_ENTRY;
		if (ref < core_sizes(c)->nr_entries &&
		    (c->entries_low[ref].flags & ENTF_INDEXED) &&
		    c->entries_low[ref].node == i &&
		    c->entries_low[ref].domain != ENTRY_UNUSED)
			dom = c->entries_low[ref].domain;
	} else if (salvage_in_span(c, ref) < core_cfg(c)->max_domains &&
		   (c->blocks[ref].flags & BLKF_INDEXED) &&
		   c->blocks[ref].node == i) {
		dom = c->blocks[ref].domain;
	}
	must(w, "content of node", i, dom != CORE_NONE);
	must(w, "links of node", i, is_name(c, n->prev) &&
	     is_name(c, n->next) &&
	     (n->parent == CORE_NONE || is_name(c, n->parent)) &&
	     (n->kid == CORE_NONE || is_name(c, n->kid)));
	must(w, "class of node", i, n->retain < RETAIN_NR && n->flags < 3 &&
	     (n->term <= LRU_NR_TERMS || n->term == TERM_COLD) &&
	     (n->hits || n->interval < LRU_TIER_FOUND));
	if (dom == CORE_NONE)
		return;
	below(w, "age of node", i, lru_units(&c->lrus[dom]) - n->stamp,
	      1u << 31);
}

static void move_ranges(struct walk *w, u32 i)
{
	const struct core *c = w->c;
	const struct kv_move *m = &c->head->moves[i];

	below(w, "state of move", i, m->state, MOVE_FAILED + 1);
	if (m->state == MOVE_UNUSED)
		return;
	must(w, "blocks of move", i, m->evac < CORE_MAX_EVACS &&
	     salvage_in_span(c, m->from) < core_cfg(c)->max_domains &&
	     salvage_in_span(c, m->to) < core_cfg(c)->max_domains);
}

/* Tenants first, then each domain with its parts. */
static void domains_ranges(struct walk *w, struct core *c)
{
	u32 i, n;

	for (i = 0; i < core_cfg(c)->max_tenants; i++)
		below(w, "use of tenant", i, c->tenants[i].used, 2);
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		domain_ranges(w, i);
		for (n = CORE_POOL_HOST; n < CORE_NR_POOLS &&
		     !w->r->nr_faults; n++)
			part_ranges(w, c, i, n);
	}
}

/* Extents, spans, blocks, entries, nodes and moves. */
static void content_ranges(struct walk *w, struct core *c)
{
	const struct core_sizes *s = core_sizes(c);
	u32 i;

	for (i = 0; i < s->all_extents && !w->r->nr_faults; i++)
		extent_ranges(w, i);
	if (!w->r->nr_faults)
		span_ranges(w);
	for (i = 0; i < s->nr_blocks && !w->r->nr_faults; i++)
		block_ranges(w, i);
	for (i = 0; i < s->nr_entries && !w->r->nr_faults; i++)
		entry_ranges(w, i);
	for (i = 0; i < s->nr_nodes && !w->r->nr_faults; i++)
		node_ranges(w, i);
	for (i = 0; i < CORE_MAX_MOVES && !w->r->nr_faults; i++)
		move_ranges(w, i);
}

/**
 * adopt_ranges() - check all indices of the arena, so that the walkers can run
 *
 * Free lists, buckets and trees are made anew, which loses nothing.
 * Return: 0; -EUCLEAN: @w has the fault.
 */
int adopt_ranges(struct core *c, struct walk *w)
{
	u32 i;

	head_ranges(w);
	for (i = 0; i < CORE_NR_POOLS; i++)
		pool_ranges(w, i);
	if (!w->r->nr_faults)
		domains_ranges(w, c);
	if (!w->r->nr_faults)
		content_ranges(w, c);
	if (!w->r->nr_faults)
		seqs_ranges(w, c);
	if (w->r->nr_faults)
		return -EUCLEAN;
	adopt_index(c);
	return adopt_seqs(c, w);
}
