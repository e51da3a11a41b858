// SPDX-License-Identifier: Apache-2.0
/*
 * isolate.c - spans that are being emptied
 *
 * To use the memory of a span that has blocks in use, a domain isolates the
 * span, as the kernel isolates a range of pages.  An isolated span is on a list
 * of its own: no block of it is allocated, and its free blocks and its cache
 * are no room for its owner.  Blocks that are freed stay in it.  When its last
 * block is freed, span_settle() releases the span in the same event.  The file
 * that isolated a span empties it meanwhile, or puts it back.
 *
 * Laws: the free blocks of a domain outside of isolated spans cover its
 * reservations.  So a span is not isolated where they would not, and it is put
 * back when a reservation comes back while its block stays in such a span.  An
 * isolated span has at least one block that is not free.  isolated_free and
 * isolated_cached of a domain count such blocks in its isolated spans.  Cached
 * blocks of an isolated span can be found, mapped and evicted as any other,
 * unless another tenant has claimed the span (block_is_claimed()).
 *
 * Only spans of the device pool are isolated; slots of lower pools do not move.
 * Any event may release an isolated span and free its record: look up both
 * again in each event.
 */
#include "kvmm/core/mem/mem.h"

/**
 * span_isolate() - stop allocating blocks of a span
 * @first: first extent of a span of the device pool
 *
 * A span without a block in use is released at once.
 *
 * Return: 0: isolated, and released when its last block is freed; 1: released;
 * -EALREADY; -EBUSY: its free blocks cover reservations of its domain.
 */
int span_isolate(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	struct kv_domain *d = &c->domains[sp->domain];

	KV_BUG_ON(!sp->nr_extents || part_pool(c, sp->domain));
	if (span_is_isolated(sp))
		return -EALREADY;
	if (domain_free(d) < d->dev.reserved + sp->nr_free)
		return -EBUSY;
	if (sp->nr_free == sp->nr_blocks) {
		span_release(c, first);
		return 1;
	}
	span_set_class(c, first, CORE_CLASS_ISOLATED);
	d->dev.isolated_free += sp->nr_free;
	d->dev.isolated_cached += sp->nr_cached;
	KV_BUG_ON(domain_free(d) < d->dev.reserved);
	KV_BUG_ON(d->dev.isolated_cached > d->dev.nr[BLK_CACHED]);
	core_count(c, CORE_EV_span_isolate, 1);
	return 0;
}

/* The span at @first is released or put back: end its evacuation. */
void evacuate_forget(struct core *c, u32 first)
{
	const struct kv_span *sp = &c->spans[first];
	u32 i;

	for (i = 0; i < CORE_MAX_EVACS; i++) {
		struct kv_evac *ev = &c->head->evacs[i];

		if (ev->span != first)
			continue;
		KV_BUG_ON(ev->dom != sp->domain);
		ev->span = CORE_NONE;
		if (sp->nr_free == sp->nr_blocks)
			core_count(c, CORE_EV_migrate_success, 1);
		else
			core_count(c, CORE_EV_migrate_fail, 1);
	}
}

/**
 * span_putback() - let the owner use an isolated span again
 * @first: its first extent
 */
void span_putback(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	struct kv_domain *d = &c->domains[sp->domain];

	KV_BUG_ON(!sp->nr_extents || !span_is_isolated(sp));
	KV_BUG_ON(d->dev.isolated_free < sp->nr_free);
	KV_BUG_ON(d->dev.isolated_cached < sp->nr_cached);
	d->dev.isolated_free -= sp->nr_free;
	d->dev.isolated_cached -= sp->nr_cached;
	evacuate_forget(c, first);
	span_set_class(c, first, span_class(c, sp));
	core_count(c, CORE_EV_span_putback, 1);
	domain_kick(d);
	/* It may cover reservations, so that other spans can be released. */
	core_kick(c);
}

/**
 * span_cover_promises() - reservations came back to a domain: cover them
 *
 * Isolated spans with free blocks are put back as far as needed.
 *
 * Return: number of reserved blocks that stay uncovered: a copy still reads the
 * blocks that came back with them.
 */
u32 span_cover_promises(struct core *c, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 first = d->dev.class[CORE_CLASS_ISOLATED], next;

	for (; domain_free(d) < d->dev.reserved && first != CORE_NONE; first = next) {
		next = c->spans[first].next;
		if (c->spans[first].nr_free)
			span_putback(c, first);
	}
	return d->dev.reserved - min(d->dev.reserved, domain_free(d));
}
