// SPDX-License-Identifier: Apache-2.0
/*
 * revoke.c - extents that change their tenant while clients have them mapped
 *
 * A domain claims a run of extents (struct kv_revoke).  Each extent goes through
 * these steps at its own pace:
 *
 *	SPAN -> BACKED -> REVOKING -> ABSENT -> (all of the run) CREATING
 *
 * A span is isolated and emptied first: see displace.c.  Then every client that
 * was sent the extent is told to unmap it, and a deadline starts.  An answer
 * (EXTENT_ACK) is only a claim; it counts once, in this generation, and only from
 * a client that was sent the extent.  A client that has not answered by the
 * deadline is killed, and its bit goes when its process and device are quiet.
 * Lingering clients may have the extent mapped too: they have the same time to
 * end (kv_extent.haunted).  When no client is left the memory is released, and
 * made anew once all of the run is free.
 *
 * A client that lies keeps the old memory mapped, which no other client ever gets.
 * The caller of the core makes sure that the system gets this memory back
 * (core_ops.extent_release).
 *
 * An extent stays with its tenant for some time before it is asked back.  It also
 * stays as long as a sequence of the tenant has waited longer than those of the
 * taker and could use it, unless the taker is below its memory.min.  Else two
 * tenants that share a pool too small for both would only map and unmap.
 *
 * Invariants: kv_extent.want of a claimed run names its record, and no other
 * domain may take the run; REVOKING extents are in no span, and none of their
 * blocks is in a table; kv_domain.pending_spans counts claimed runs too, so that
 * a sequence that waits for one is told that memory is being made.
 *
 * Owns kv_revoke, and want (but see resize.c), deadline and haunted of kv_extent.
 */
#include "kvmm/core/reclaim/reclaim.h"

/* A domain that had to give up a run waits before it displaces sequences again. */
#define ABANDON_PAUSE_NS	20000000ull

/* Has the extent been with its tenant for long enough? */
static bool stayed(const struct core *c, u32 e)
{
	return c->now - c->extents[e].since >= core_cfg(c)->starve_ns;
}

/*
 * The domain's first waiting sequence, except those of clients that have left an
 * extent unmapped for long: an extent that was just made for a sequence must not be
 * taken again before it could be mapped.
 */
static const struct kv_seq *waiter_of(const struct core *c, u32 dom)
{
	const struct kv_seq *w;
	u32 i;

	for (i = c->domains[dom].wait_head; i != CORE_NONE; i = w->next) {
		const struct kv_client *cl = &c->clients[c->seqs[i].client];

		w = &c->seqs[i];
		KV_BUG_ON(!(w->flags & SEQF_QUEUED) || w->domain != dom);
		if (!cl->nr_unacked ||
		    c->now - cl->unacked_since < core_cfg(c)->starve_ns)
			return w;
	}
	return NULL;
}

/*
 * Has @w waited longer than @than, or a running sequence?  Of two that were preempted
 * in one event the earlier arrival has: else both tenants would take the other's
 * extents in turns.
 */
static bool waited_longer(const struct core *c, const struct kv_seq *w,
			  const struct kv_seq *than)
{
	if (than && w->since == than->since)
		return w->arrival < than->arrival;
	return w->since < (than ? than->since : c->now);
}

/*
 * Note the tenants that keep their extents: one of their sequences has waited
 * longer than those of @dom and could use the memory.
 */
static void keep_for_waiters(struct core *c, u32 dom)
{
	const struct kv_seq *mine = waiter_of(c, dom), *w;
	u32 i;

	for_each_neighbour(c, &c->domains[dom], i) {
		const struct kv_domain *d = &c->domains[i];
		struct tenant_scan *t = &c->tenant_scans[d->tenant];

		if (d->tenant == c->domains[dom].tenant || t->keeps)
			continue;
		w = waiter_of(c, i);
		t->keeps = w && waited_longer(c, w, mine) && waiter_could_use(c, w);
	}
}

/**
 * revoke_prepare() - note the tenants that @dom may take from, for revoke_may()
 */
void revoke_prepare(struct core *c, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	bool promised = limit_within_min(d, domain_held(d), 1);
	u32 i;

	for (i = 0; i < core_cfg(c)->max_tenants; i++) {
		c->tenant_scans[i].keeps = 0;
		c->tenant_scans[i].stays = !promised;
	}
	if (!promised)
		keep_for_waiters(c, dom);
}

/**
 * revoke_may() - may the extent be asked back for a domain of another tenant?
 *
 * Context: after revoke_prepare() in the same event.
 */
bool revoke_may(const struct core *c, u32 e)
{
	const struct tenant_scan *t =
		&c->tenant_scans[c->extents[e].tenant];

	if (c->extents[e].want || c->head->nr_revokes == CORE_MAX_REVOKES ||
	    t->keeps)
		return false;
	return !t->stays || stayed(c, e);
}

/* May lingering clients have mapped an extent of the run at @first for @dom? */
bool revoke_haunted(const struct core *c, u32 dom, u32 first)
{
	u32 e, n;

	for_each_extent_of(c, &c->domains[dom], e, n, first)
		if (c->extents[e].haunted)
			return true;
	return false;
}

/* Time has passed: an extent that had to stay with its tenant may go now. */
static void revoke_retry(struct core *c)
{
	u32 i;

	for_each_domain(c, i) {
		struct kv_domain *d = &c->domains[i];

		if (d->nr_waiting && c->head->nr_tenants > 1)
			domain_kick(d);
	}
}

/* Tell the clients that have the extent to unmap it, and start the deadline. */
void extent_ask_back(struct core *c, u32 e)
{
	struct kv_extent *x = &c->extents[e];
	u64 todo;

	KV_BUG_ON(!x->want || x->state != EXT_BACKED);
	KV_BUG_ON((x->mapped | x->owed) & ~x->sent);
	extent_set_state(c, e, EXT_REVOKING);
	x->deadline = c->now + core_cfg(c)->revoke_deadline_ns;
	core_count(c, CORE_EV_extent_revoke, 1);
	for (todo = x->sent; todo; todo &= todo - 1) {
		u32 client = (u32)__builtin_ctzll(todo);
		struct kvmm_extent_status *st = c->bind[client].extents;

		KV_BUG_ON(c->clients[client].state == CLI_FREE);
		KV_BUG_ON(c->clients[client].tenant != x->tenant);
		/* A client that has not mapped the extent need not map it any more. */
		if (!(x->mapped & BIT_ULL(client))) {
			extent_unacked(c, client, -1);
			rank_mapped(c, client);
			domain_kick(&c->domains[c->clients[client].domain]);
		}
		if (!st)
			continue;
		store_release(&st[e].state, (u32)KVMM_EXTENT_REVOKE);
		event_post(c, client, KVMM_EV_REVOKE, e, 0);
	}
	/* A client that was never sent the extent has nothing to give back. */
	x->sent &= ~x->owed;
	x->owed = 0;
}

/**
 * revoke_ack() - a client says that it has unmapped an extent
 * Return: 0; -ESTALE: it was not asked to, or it has said so before.
 */
int revoke_ack(struct core *c, u32 client, const struct kvmm_ack_arg *a)
{
	struct kv_extent *x = &c->extents[a->extent];

	if (x->state != EXT_REVOKING || !(x->sent & BIT_ULL(client)) ||
	    a->generation != x->generation)
		return -ESTALE;
	KV_BUG_ON(x->owed || x->tenant != c->clients[client].tenant);
	x->sent &= ~BIT_ULL(client);
	x->mapped &= ~BIT_ULL(client);
	store_release(&c->bind[client].extents[a->extent].state,
		      (u32)KVMM_EXTENT_ABSENT);
	return 0;
}

/*
 * May the extent keep its memory?  It stays with its tenant, or the run was given
 * up.
 */
static bool extent_is_kept(const struct core *c, const struct kv_revoke *rv,
			   u32 e)
{
	const struct kv_extent *x = &c->extents[e];

	return x->state == EXT_BACKED && (rv->dom == CORE_NONE ||
	       x->tenant == c->domains[rv->dom].tenant);
}

/* Advance one extent of a claimed run.  Return: is it ready to be taken? */
static bool extent_advance(struct core *c, const struct kv_revoke *rv, u32 e)
{
	struct kv_extent *x = &c->extents[e];

	KV_BUG_ON(x->want != 1 + (u32)(rv - c->head->revokes));
	if (x->state == EXT_ABSENT || extent_is_kept(c, rv, e))
		return true;
	if (x->state == EXT_SPAN && rv->dom == CORE_NONE)
		return true;
	if (x->state == EXT_BACKED && revoke_needed(c, e))
		extent_ask_back(c, e);
	if ((x->state != EXT_BACKED && x->state != EXT_REVOKING) ||
	    revoke_needed(c, e))
		return false;
	KV_BUG_ON(x->mapped || x->owed);
	extent_release(c, e);
	return true;
}

/* Each extent @e of a claimed run. */
#define for_each_claimed(c, rv, e, n)					\
	for_each_run_extent(c, e, n, (rv)->first, (rv)->nr, (rv)->shards)

/* Can memory be made in all device pools of the run? */
static bool run_can_be_made(const struct core *c, const struct kv_revoke *rv)
{
	u32 i;

	for (i = 0; i < rv->shards; i++)
		if (!extents_can_be_made(extent_zone(c, rv->first) + i))
			return false;
	return true;
}

/* The domain waits for the run no longer. */
static void revoke_detach(struct core *c, struct kv_revoke *rv)
{
	KV_BUG_ON(rv->dom >= core_cfg(c)->max_domains || !rv->nr);
	KV_BUG_ON(!c->domains[rv->dom].nr_revokes);
	KV_BUG_ON(!c->domains[rv->dom].dev.pending_spans);
	c->domains[rv->dom].nr_revokes--;
	c->domains[rv->dom].dev.pending_spans--;
	rv->dom = CORE_NONE;
}

/* All of the run is free: give it to its domain, unless that gave it up. */
static void revoke_finish(struct core *c, struct kv_revoke *rv)
{
	u32 dom = rv->dom, first = rv->first, e, n;

	KV_BUG_ON(!c->head->nr_revokes);
	for_each_claimed(c, rv, e, n)
		c->extents[e].want = 0;
	if (dom != CORE_NONE)
		revoke_detach(c, rv);
	rv->nr = 0;
	c->head->nr_revokes--;
	if (dom != CORE_NONE)
		extent_run_make(c, dom, first);
	core_kick(c);
}

/* Give up the run.  Extents that clients were asked for come back all the same. */
static void revoke_abandon(struct core *c, struct kv_revoke *rv)
{
	u32 e, n;

	KV_BUG_ON(rv->dom == CORE_NONE);
	c->domains[rv->dom].displace_after = c->now + ABANDON_PAUSE_NS;
	revoke_detach(c, rv);
	for_each_claimed(c, rv, e, n) {
		u32 span = c->extents[e].span;

		if (c->extents[e].state == EXT_SPAN &&
		    span_is_isolated(&c->spans[span]))
			span_putback(c, span);
	}
	core_count(c, CORE_EV_revoke_abandon, 1);
}

/* Has the domain a sequence left that could use the run? */
static bool revoke_is_wanted(const struct core *c, const struct kv_revoke *rv)
{
	return c->domains[rv->dom].nr_waiting || c->domains[rv->dom].nr_running;
}

/* Empty the spans of the run.  Return: false: one of them must not be emptied. */
static bool revoke_empty(struct core *c, const struct kv_revoke *rv)
{
	u32 e, n;

	for_each_claimed(c, rv, e, n) {
		u32 span = c->extents[e].span;

		if (c->extents[e].state != EXT_SPAN)
			continue;
		if (!span_is_isolated(&c->spans[span]) &&
		    span_isolate(c, span) < 0) {
			/* Reservations of marked sequences end with their steps. */
			if (!c->domains[c->spans[span].domain].nr_marked)
				return false;
			continue;
		}
		if (c->extents[e].state == EXT_SPAN && !displace_span(c, span))
			return false;
	}
	return true;
}

/* Give up the runs that reach the leaving part of a pool: no domain is to get it. */
void revoke_abandon_from(struct core *c)
{
	u32 i;

	for (i = 0; i < CORE_MAX_REVOKES; i++) {
		struct kv_revoke *rv = &c->head->revokes[i];

		if (rv->nr && rv->dom != CORE_NONE &&
		    rv->first + rv->nr > domain_end(c, &c->domains[rv->dom]))
			revoke_abandon(c, rv);
	}
}

static void revoke_step(struct core *c, struct kv_revoke *rv)
{
	bool all = true;
	u32 e, n;

	KV_BUG_ON(rv->first + rv->nr > core_sizes(c)->nr_extents);
	for_each_claimed(c, rv, e, n)
		all &= extent_advance(c, rv, e);
	if (all && run_can_be_made(c, rv))
		revoke_finish(c, rv);
}

/**
 * revoke_advance() - advance every claimed run
 *
 * Context: after every event.
 */
void revoke_advance(struct core *c)
{
	u32 i;

	for (i = 0; i < CORE_MAX_REVOKES && c->head->nr_revokes; i++)
		if (c->head->revokes[i].nr)
			revoke_step(c, &c->head->revokes[i]);
}

/**
 * revoke_begin() - claim a run for one more span of a domain
 * @dom:   index of the domain
 * @first: first of span_extents extents that may go; their spans are emptied
 *
 * The span comes later, as if memory were being made.
 */
void revoke_begin(struct core *c, u32 dom, u32 first)
{
	struct kv_domain *d = &c->domains[dom];
	struct kv_revoke *rv = c->head->revokes;
	u32 e, n;

	KV_BUG_ON(c->head->nr_revokes == CORE_MAX_REVOKES);
	while (rv->nr)
		rv++;
	KV_BUG_ON(rv >= c->head->revokes + CORE_MAX_REVOKES);
	KV_BUG_ON((first - domain_zone(c, d)->first) % d->dev.span_extents);
	KV_BUG_ON(first + d->dev.span_extents > domain_end(c, d));
	*rv = (struct kv_revoke){ .dom = dom, .first = first, .shards = d->shards,
				  .nr = d->dev.span_extents };
	c->head->nr_revokes++;
	d->nr_revokes++;
	d->dev.pending_spans++;
	core_tell(c, revoke, .domain = dom, .tenant = c->extents[first].tenant,
		  .extent = first, .extents = rv->nr);
	for_each_claimed(c, rv, e, n)
		c->extents[e].want = 1 + (u32)(rv - c->head->revokes);
	if (!revoke_empty(c, rv))
		revoke_abandon(c, rv);
	revoke_step(c, rv);
}

/**
 * revoke_haunt() - a client detached, and may still have its extents mapped
 */
void revoke_haunt(struct core *c, u32 client)
{
	u32 e;

	KV_BUG_ON(c->clients[client].state == CLI_FREE);
	for (e = 0; e < core_sizes(c)->nr_extents; e++)
		if (c->extents[e].sent & BIT_ULL(client))
			c->extents[e].haunted = 1;
}

/* The last lingering client of the tenant has ended. */
void revoke_exorcise(struct core *c, u32 tenant)
{
	u32 e;

	KV_BUG_ON(c->tenants[tenant].ghosts);
	for (e = 0; e < core_sizes(c)->nr_extents; e++)
		if (c->extents[e].tenant == tenant)
			c->extents[e].haunted = 0;
}

/*
 * Does a domain want memory?  The domain of the client that keeps the extent counts
 * too: it may have no other memory to get, and then this client has to end.
 */
static bool memory_is_short(const struct core *c, const struct kv_revoke *rv)
{
	u32 i;

	if (rv->dom != CORE_NONE)
		return true;
	for_each_domain(c, i)
		if (c->domains[i].nr_waiting)
			return true;
	return false;
}

/**
 * extent_overdue() - end the clients that have not given the extent back in time
 * @wanted: a domain wants memory; else living clients may keep the extent a while
 *
 * Starts the deadline again.
 */
void extent_overdue(struct core *c, u32 e, bool wanted)
{
	struct kv_extent *x = &c->extents[e];
	u64 todo;

	x->deadline = c->now + core_cfg(c)->revoke_deadline_ns;
	for (todo = x->sent; todo; todo &= todo - 1) {
		u32 client = (u32)__builtin_ctzll(todo);

		if (wanted && client_kill(c, client, -EBUSY))
			core_count(c, CORE_EV_revoke_kill, 1);
	}
	if (!x->haunted)
		return;
	if (!c->ops->kill_ghosts) {
		x->haunted = 0;
		return;
	}
	core_count(c, CORE_EV_revoke_ghosts, 1);
	c->ops->kill_ghosts(c->ops_arg, x->tenant);
}

/**
 * revoke_tick() - time has passed: empty the spans of claimed runs, end the clients
 * that have not given extents back
 */
void revoke_tick(struct core *c)
{
	u32 i, e, n;

	for (i = 0; i < CORE_MAX_REVOKES && c->head->nr_revokes; i++) {
		struct kv_revoke *rv = &c->head->revokes[i];

		if (rv->nr && rv->dom != CORE_NONE &&
		    (!revoke_is_wanted(c, rv) || !revoke_empty(c, rv)))
			revoke_abandon(c, rv);
		for_each_claimed(c, rv, e, n)
			if (c->extents[e].state == EXT_REVOKING &&
			    c->now >= c->extents[e].deadline)
				extent_overdue(c, e, memory_is_short(c, rv));
	}
	revoke_retry(c);
}
