// SPDX-License-Identifier: Apache-2.0
/*
 * isolate.c - spans that are to be emptied
 *
 * Who wants a span's memory for something else, as long as its blocks are in
 * use, isolates it, as the kernel isolates a range of pages: it stands on a
 * list of its own then, so that nobody is given a block of it, and what is
 * free in it is no room for its domain.  Blocks that are freed stay in it,
 * and the last one takes the span along: it is released by span_settle() in
 * the very event.  Whoever isolated it empties it meanwhile, or puts it back.
 *
 * Laws: a domain's free blocks outside of isolated spans cover what it has
 * promised, so isolating is refused where they would not, and a promise that
 * comes back while its block stays in such a span puts that back; an isolated
 * span has at least one block that is not free; isolated_free and isolated_cached
 * of a domain count such blocks over its isolated spans.  Content that is
 * there can be found, mapped and evicted as any other, but where another tenant
 * has claimed the span (block_is_claimed()).
 *
 * A span of the device pool only: slots of the lower pools stay where they
 * are.  Whoever isolates must expect that the span leaves with any event, and
 * with it its record: both are looked at anew each time.
 */
#include "kvmm/core/mem/mem.h"

/**
 * span_isolate() - give out no block of a span any more
 * @first: first extent of a span of the device pool
 *
 * A span that holds nothing is released at once.
 *
 * Return: 0: isolated, it is released with its last used block; 1: it was
 * released; -EALREADY; -EBUSY: its free blocks cover promises of its domain.
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
	core_count(c, CORE_EV_span_isolate, 1);
	return 0;
}

/* The span at @first is isolated no more: it goes, or is put back. */
void evacuate_forget(struct core *c, u32 first)
{
	const struct kv_span *sp = &c->spans[first];
	u32 i;

	for (i = 0; i < CORE_MAX_EVACS; i++) {
		struct kv_evac *ev = &c->head->evacs[i];

		if (ev->span != first)
			continue;
		ev->span = CORE_NONE;
		if (sp->nr_free == sp->nr_blocks)
			core_count(c, CORE_EV_migrate_success, 1);
		else
			core_count(c, CORE_EV_migrate_fail, 1);
	}
}

/**
 * span_putback() - an isolated span is its domain's to use again
 * @first: its first extent
 */
void span_putback(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	struct kv_domain *d = &c->domains[sp->domain];

	KV_BUG_ON(!sp->nr_extents || !span_is_isolated(sp));
	d->dev.isolated_free -= sp->nr_free;
	d->dev.isolated_cached -= sp->nr_cached;
	evacuate_forget(c, first);
	span_set_class(c, first, span_class(c, sp));
	core_count(c, CORE_EV_span_putback, 1);
	domain_kick(d);
	/* It may cover promises, for which others had to stay. */
	core_kick(c);
}

/**
 * span_cover_promises() - promises came back to a domain
 *
 * Its free blocks cover them before all else.
 *
 * Return: how many cannot be covered: a copy still reads the blocks that came
 * back with them.
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
