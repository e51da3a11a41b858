// SPDX-License-Identifier: Apache-2.0
/*
 * shrink.c - the cost of a smaller device pool, before an operator orders it
 *
 * The result follows resize.c.  Cache of leaving spans is evicted first: a block
 * keeps its content if a lower tier has it, or has room for a copy that pays.  Else
 * its name is forgotten with all names that follow it, on any tier.  Then blocks of
 * sequences move, and families whose blocks find no room are preempted
 * (shrink_room.c).
 *
 * Nothing changes.  The counts need a look at every block, so they are made in
 * slices of SHRINK_LOOK records, between which other events run.  The memory is the
 * caller's.  A name is forgotten if one before it is: a note for each name keeps
 * prefixes from being walked again for each of their blocks, so the whole walk
 * visits each name once.
 *
 * Context: as any view.  The notes are of earlier slices and may be out of date.
 */
#include "kvmm/core/node/shrink.h"

#define SHRINK_LOOK	4096u	/* records that one slice looks at, about */

/* ---- names ---- */

/* Is the block evicted without a copy, so that its name is forgotten? */
static bool is_dropped(const struct core *c, const struct core_shrink *s, u32 ref)
{
	const struct kv_block *b;

	if (ref & REF_ENTRY)
		return false;
	b = &c->blocks[ref];
	return b->state == BLK_CACHED && s->doms[b->domain].dear &&
	       shrink_leaves(c, s, block_span(c, ref)) &&
	       (b->entry == CORE_NONE || !entry_is_there(c, b->entry));
}

/* Is the name of a node forgotten?  Notes the answer for all names before it. */
static bool is_forgotten(const struct core *c, struct core_shrink *s, u32 node)
{
	u32 i, end, first = CORE_NONE;
	bool lost = false;

	for (i = node; i != CORE_NONE && !s->names[i]; i = c->nodes[i].parent) {
		s->looked++;
		if (is_dropped(c, s, c->nodes[i].ref))
			first = i;
	}
	end = i;
	if (end != CORE_NONE)
		lost = s->names[end] == NAME_LOST;
	/* All names up to the first dropped one are lost, and those before it stay. */
	for (i = node; i != end; i = c->nodes[i].parent) {
		s->names[i] = lost || first != CORE_NONE ? NAME_LOST : NAME_STAYS;
		if (i == first)
			first = CORE_NONE;
	}
	return s->names[node] == NAME_LOST;
}

static bool ref_forgotten(const struct core *c, struct core_shrink *s, u32 ref)
{
	u32 node = index_node(c, ref);

	return node != CORE_NONE && is_forgotten(c, s, node);
}

/* ---- blocks ---- */

static void look_cached(const struct core *c, struct core_shrink *s, u32 blk, bool leaves)
{
	struct shrink_domain *d = &s->doms[c->blocks[blk].domain];
	u32 e = c->blocks[blk].entry;
	bool copy = e != CORE_NONE && entry_is_there(c, e);

	if (ref_forgotten(c, s, blk)) {
		d->v.lost++;
		d->freed += !leaves;
	} else if (!leaves) {
		d->cached++;
		d->clean += copy;
	} else if (copy) {
		/* Only an area has it, or the host pool has it or gets it. */
		d->v.kept[c->entries_low[e].host == CORE_NONE]++;
	} else {
		d->bare++;
	}
}

static void look_block(const struct core *c, struct core_shrink *s, u32 first, u32 blk)
{
	struct shrink_domain *d = &s->doms[c->spans[first].domain];
	bool leaves = shrink_leaves(c, s, first);

	switch (c->blocks[blk].state) {
	case BLK_CACHED:
		look_cached(c, s, blk, leaves);
		break;
	case BLK_OPEN:
	case BLK_SEALED:
		d->v.lost += ref_forgotten(c, s, blk);
		d->used += leaves;
		s->spans[first] += leaves;
		break;
	case BLK_FREE:
		d->free_end += leaves && !span_is_isolated(&c->spans[first]);
		break;
	}
}

/* Look at the blocks of the extent @s->at.  Return: true: that was the last extent. */
static bool look_extent(const struct core *c, struct core_shrink *s)
{
	const struct kv_extent *x = &c->extents[s->at];
	u32 base = s->at * core_sizes(c)->blocks_per_extent;

	s->looked++;
	if (x->state != EXT_SPAN || x->span != s->at ||
	    !domain_is_in(&c->domains[x->domain], s->pool))
		s->blk = CORE_NONE;
	for (; s->blk < c->spans[s->at].nr_blocks && s->looked < SHRINK_LOOK; s->blk++) {
		look_block(c, s, s->at, base + s->blk);
		s->looked++;
	}
	if (s->blk < c->spans[s->at].nr_blocks)
		return false;
	s->blk = 0;
	return ++s->at == core_sizes(c)->nr_extents;
}

/* ---- lower tiers ---- */

/* Can the host slot be freed without a loss? */
static bool has_spare_slot(const struct core *c, const struct core_shrink *s,
			   const struct kv_entry *e)
{
	if (e->io != ENT_IDLE || !(e->flags & ENTF_HOST))
		return false;
	if (e->flags & ENTF_AREA)
		return true;
	return !e->refs && e->dev != CORE_NONE &&
	       !shrink_leaves(c, s, block_span(c, e->dev));
}

/* Look at the entry @s->at.  Return: true: no more are in use. */
static bool look_entry(const struct core *c, struct core_shrink *s)
{
	const struct kv_entry *e = &c->entries_low[s->at];
	struct shrink_domain *d;

	s->looked++;
	if (s->at == core_sizes(c)->nr_entries ||
	    s->seen >= core_sizes(c)->nr_entries - c->head->nr_free_entries)
		return true;
	if (e->domain != ENTRY_UNUSED) {
		d = &s->doms[e->domain];
		s->seen++;
		d->slots += has_spare_slot(c, s, e);
		if (ref_forgotten(c, s, REF_ENTRY | s->at)) {
			d->v.lost++;
			d->v.lost_below++;
		}
	}
	s->at++;
	return false;
}

/* ---- slices ---- */

/* One step of the phase.  Return: true: it was the last. */
static bool step(const struct core *c, struct core_shrink *s)
{
	switch (s->phase) {
	case SHRINK_BLOCKS:
		return look_extent(c, s);
	case SHRINK_ENTRIES:
		return look_entry(c, s);
	case SHRINK_DOMAINS:
		shrink_settle(c, s, s->at);
		return ++s->at == core_cfg(c)->max_domains;
	case SHRINK_TABLES:
		shrink_table(c, s, s->at);
		return ++s->at == core_sizes(c)->nr_seqs;
	default:
		shrink_seq(c, s, s->at);
		return ++s->at == core_sizes(c)->nr_seqs;
	}
}

/* Sizes of the arrays behind struct core_shrink, and their sum. */
static u64 shrink_layout(const struct core_config *cfg, const struct core_sizes *z,
			 struct core_shrink *s)
{
	u8 *p = (u8 *)s;
	u64 off = ALIGN_UP(sizeof(*s), 64ull);

#define x(name, count)							\
	if (s)								\
		s->name = (void *)(p + off);				\
	off = ALIGN_UP(off + sizeof(*s->name) * (u64)(count), 64ull);
	x(doms, cfg->max_domains)
	x(spans, z->nr_extents)
	x(names, z->nr_nodes)
	x(seqs, z->nr_seqs)
#undef x
	return off;
}

/**
 * core_shrink_bytes() - memory that core_shrink_begin() needs
 */
u64 core_shrink_bytes(const struct core_config *cfg)
{
	struct core_config full;
	struct core_sizes z;

	return config_settle(cfg, &full, &z) ? 0 : shrink_layout(&full, &z, NULL);
}

/**
 * core_shrink_begin() - begin to compute the cost of a device pool of @bytes
 * @s:    core_shrink_bytes() of zeroed memory
 * @pool: number of the device pool
 *
 * Return: 0; or the error of core_pool_resize().
 */
int core_shrink_begin(const struct core *c, struct core_shrink *s, u32 pool,
		      u64 bytes)
{
	int err = resize_check(c, pool, bytes);
	const struct kv_zone *z = &c->head->zones[pool];
	u32 i;

	if (err)
		return err;
	shrink_layout(core_cfg(c), core_sizes(c), s);
	s->pool = pool;
	s->first = z->first;
	s->at = 0;
	s->end = z->first + z->nr_extents;
	s->nr = z->first + (u32)(bytes / core_cfg(c)->extent_size);
	for (i = 0; i < CORE_NR_POOLS; i++)
		s->loose[i] = core_pool(c, i)->online ? core_pool(c, i)->loose : 0;
	shrink_prepare(c, s);
	/* A larger pool costs nothing. */
	s->phase = s->nr < zone_end(z) ? SHRINK_BLOCKS : SHRINK_DONE;
	return 0;
}

/**
 * core_shrink_next() - go on, for a bounded number of records
 *
 * Return: true when there is more to do.
 */
bool core_shrink_next(const struct core *c, struct core_shrink *s)
{
	for (s->looked = 0; s->looked < SHRINK_LOOK && s->phase != SHRINK_DONE;) {
		if (!step(c, s))
			continue;
		s->at = 0;
		s->phase++;
	}
	return s->phase != SHRINK_DONE;
}

/**
 * core_shrink_get() - the cost for domain @dom, when core_shrink_next() returned false
 */
void core_shrink_get(const struct core_shrink *s, u32 dom, struct core_shrink_view *v)
{
	*v = s->doms[dom].v;
}
