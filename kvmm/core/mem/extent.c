// SPDX-License-Identifier: Apache-2.0
/*
 * extent.c - memory behind extents, and the clients that mapped it
 *
 * An extent is a fixed piece of the pool's address range.  It has no memory
 * (ABSENT) until a domain needs it.  Then the shell makes memory for it
 * (CREATING), and every client of the tenant is told to map it.  After that it
 * is in no span (BACKED) or part of one (SPAN).  Between domains of one tenant
 * it moves as a record.
 *
 * Tenants never share memory.  A handle gives its holder access for ever.  So an
 * extent may change its tenant only when no process of the old tenant can have
 * it mapped: every client that was sent it is gone, and none of them lingers
 * after it detached (kv_extent.haunted).  Then the memory is released and made
 * anew.  Live clients are asked to unmap it: see revoke.c.
 *
 * A client must acknowledge that it mapped an extent before a grant names a
 * block of it.  A client that is slow to do so delays only itself.
 *
 * A domain with several shards takes and gives runs of extents in all of its device
 * pools together, at the same place of each (run_extent()).  So a block has the same
 * offset in every pool, and a run that lacks an extent in one pool is taken in none.
 */
#include "kvmm/core/mem/mem.h"

/* Pause after the shell could not make memory. */
#define CREATE_BACKOFF_NS	1000000000ull

/* Send an extent to a client; a client that is away gets it when it is back. */
static void extent_tell(struct core *c, u32 client, u32 e)
{
	struct kv_extent *x = &c->extents[e];
	struct kvmm_extent_status *st = c->bind[client].extents;

	KV_BUG_ON(!(x->sent & BIT_ULL(client)));
	if (!st) {
		x->owed |= BIT_ULL(client);
		return;
	}
	x->owed &= ~BIT_ULL(client);
	st += e;
	WRITE_ONCE(st->generation, x->generation);
	store_release(&st->state, (u32)KVMM_EXTENT_MAP);
	c->ops->extent_send(c->ops_arg, client, e, x->generation);
	event_post(c, client, KVMM_EV_MAP, e, 0);
}

/**
 * extent_unacked() - @nr more extents of the client are not mapped yet, or fewer
 *
 * Extents of a rank count for its leader, too, which waits for them.
 */
void extent_unacked(struct core *c, u32 client, s32 nr)
{
	struct kv_client *cl = &c->clients[client], *l;

	if (!cl->nr_unacked)
		cl->unacked_since = c->now;
	KV_BUG_ON(nr < 0 && cl->nr_unacked < (u32)-nr);
	cl->nr_unacked += (u32)nr;
	if (!client_is_rank(c, client) || cl->leader == CORE_NONE)
		return;
	l = &c->clients[cl->leader];
	if (!l->nr_unacked)
		l->unacked_since = c->now;
	KV_BUG_ON(nr < 0 && l->nr_unacked < (u32)-nr);
	l->nr_unacked += (u32)nr;
}

/**
 * rank_mapped() - has a new rank nothing left to map?  Then its shard has a client
 */
void rank_mapped(struct core *c, u32 client)
{
	struct kv_client *cl = &c->clients[client];

	/* Without segments it was not sent all. */
	if (!cl->joining || cl->nr_unacked || cl->state != CLI_ALIVE ||
	    !c->bind[client].extents)
		return;
	cl->joining = 0;
	if (cl->leader == CORE_NONE)
		return;
	extent_unacked(c, cl->leader, -1);
	domain_kick(&c->domains[cl->domain]);
}

/**
 * ranks_are_there() - ranks_have_mapped() where extents are not mapped
 *
 * A new rank has not mapped those of sequences that began before it, until it is there.
 */
bool ranks_are_there(const struct core *c, u32 leader)
{
	const struct kv_client *cl = &c->clients[leader];
	u32 i;

	for (i = 0; i < c->domains[cl->domain].shards; i++)
		if (cl->member[i] == CORE_NONE || c->clients[cl->member[i]].joining)
			return false;
	return true;
}

static void extent_send(struct core *c, u32 client, u32 e)
{
	struct kv_extent *x = &c->extents[e];

	KV_BUG_ON(!x->backed || (x->sent & BIT_ULL(client)));
	KV_BUG_ON(c->clients[client].tenant != x->tenant);
	x->sent |= BIT_ULL(client);
	extent_unacked(c, client, 1);
	extent_tell(c, client, e);
}

/* Is the extent of the client's tenant, and in a device pool of its shards? */
bool client_maps(const struct core *c, u32 client, u32 e)
{
	const struct kv_client *cl = &c->clients[client];
	const struct kv_domain *d = &c->domains[cl->domain];

	return cl->tenant == c->extents[e].tenant && domain_is_in(d, zone_of(c, e)) &&
	       (cl->shards & BIT(zone_of(c, e) - d->zone));
}

/* Tell every such client that was not told yet. */
void extent_announce(struct core *c, u32 e)
{
	const struct kv_extent *x = &c->extents[e];
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++) {
		const struct kv_client *cl = &c->clients[i];

		if (cl->state == CLI_ALIVE && client_maps(c, i, e) &&
		    (c->bind[i].extents || cl->away) &&
		    !(x->sent & BIT_ULL(i)))
			extent_send(c, i, e);
	}
}

/* Write the state of one extent into new segments of a client. */
static void extent_show(struct core *c, u32 client, u32 e)
{
	struct kvmm_extent_status *st = &c->bind[client].extents[e];
	struct kv_extent *x = &c->extents[e];

	WRITE_ONCE(st->generation, x->generation);
	if (x->state == EXT_REVOKING) {
		/* The client may hear of the revocation only now. */
		x->deadline = c->now + core_cfg(c)->revoke_deadline_ns;
		store_release(&st->state, (u32)KVMM_EXTENT_REVOKE);
		event_post(c, client, KVMM_EV_REVOKE, e, 0);
	} else if (x->mapped & BIT_ULL(client)) {
		store_release(&st->state, (u32)KVMM_EXTENT_MAPPED);
	} else {
		extent_tell(c, client, e);
	}
}

/**
 * extent_publish() - write the states of all extents into new segments
 *
 * An extent that the client has not acknowledged is sent again.
 */
void extent_publish(struct core *c, u32 client)
{
	u32 e;

	KV_BUG_ON(!c->bind[client].extents);
	for (e = 0; e < core_sizes(c)->nr_extents; e++) {
		const struct kv_extent *x = &c->extents[e];

		if (x->sent & BIT_ULL(client))
			extent_show(c, client, e);
		else if (x->backed && client_maps(c, client, e) &&
			 x->state != EXT_REVOKING)
			extent_send(c, client, e);
	}
}

/* The process of the client has ended: it has no memory mapped. */
void extent_forget_client(struct core *c, u32 client)
{
	u32 e;

	for (e = 0; e < core_sizes(c)->nr_extents; e++) {
		c->extents[e].sent &= ~BIT_ULL(client);
		c->extents[e].mapped &= ~BIT_ULL(client);
		c->extents[e].owed &= ~BIT_ULL(client);
	}
}

/**
 * extent_ack() - a client says that it has mapped an extent
 * @a: its fields are valid
 *
 * Return: 0; -ESTALE: the client was not sent the extent, or the extent is
 * being revoked; -EALREADY.
 */
int extent_ack(struct core *c, u32 client, const struct kvmm_ack_arg *a)
{
	struct kv_extent *x = &c->extents[a->extent];

	if (!(x->sent & BIT_ULL(client)) || a->generation != x->generation ||
	    x->state == EXT_REVOKING)
		return -ESTALE;
	if (x->mapped & BIT_ULL(client))
		return -EALREADY;

	x->mapped |= BIT_ULL(client);
	extent_unacked(c, client, -1);
	rank_mapped(c, client);
	store_release(&c->bind[client].extents[a->extent].state,
		      (u32)KVMM_EXTENT_MAPPED);
	domain_kick(&c->domains[c->clients[client].domain]);
	return 0;
}

/* Can a span be made of an extent of the pool in this state? */
static bool is_loose(u32 pool, u32 state)
{
	return state == EXT_BACKED || (state == EXT_ABSENT && !pool);
}

#define TO(state)	BIT(EXT_##state)

/* An area that is switched off has spans without content: SPAN to ABSENT. */
static const u8 extent_may_become[] = {
	[EXT_ABSENT]	= TO(CREATING) | TO(BACKED) | TO(OFFLINE),
	[EXT_CREATING]	= TO(ABSENT) | TO(BACKED) | TO(SPAN),
	[EXT_BACKED]	= TO(ABSENT) | TO(CREATING) | TO(REVOKING),
	[EXT_SPAN]	= TO(ABSENT) | TO(BACKED),
	[EXT_REVOKING]	= TO(ABSENT),
	[EXT_OFFLINE]	= TO(ABSENT),
};

/* extent_set_state() - the only way an extent changes its state */
void extent_set_state(struct core *c, u32 e, u32 state)
{
	struct kv_extent *x = &c->extents[e];
	u32 pool = CORE_NR_POOLS - 1;

	KV_BUG_ON(e >= core_sizes(c)->all_extents);
	KV_BUG_ON(!(extent_may_become[x->state] & BIT(state)));
	KV_BUG_ON(state == EXT_CREATING && x->want);
	KV_BUG_ON(state == EXT_SPAN && !x->backed);
	while (e < core_pool(c, pool)->first)
		pool--;
	if (pool)
		core_pool(c, pool)->loose += (u32)is_loose(pool, state) -
					     is_loose(pool, x->state);
	else
		extent_zone(c, e)->loose += (u32)is_loose(pool, state) -
					    is_loose(pool, x->state);
	x->state = state;
	core_crash(c, CORE_CRASH_extent_state);
}

/* May @e become memory of @tenant, without its content? */
static bool extent_can_move(const struct core *c, u32 e, u32 tenant)
{
	const struct kv_extent *x = &c->extents[e];

	return x->state == EXT_BACKED && x->tenant != tenant &&
	       !revoke_needed(c, e);
}

/* May @tenant take the extent now?  @move: also from another tenant. */
bool extent_fits(const struct core *c, u32 e, u32 tenant, bool move)
{
	const struct kv_extent *x = &c->extents[e];
	const struct kv_zone *z = extent_zone(c, e);

	if (e >= core_sizes(c)->nr_extents)
		return x->state == EXT_BACKED;	/* no client maps it */
	if (x->want || z->device == CORE_DEVICE_LOST)
		return false;
	if (x->state == EXT_ABSENT)
		return extents_can_be_made(z);
	if (x->state == EXT_BACKED && x->tenant == tenant)
		return true;
	return move && extents_can_be_made(z) &&
	       extent_can_move(c, e, tenant);
}

/* The extents that a domain may take, and where the next search begins. */
struct run_place {
	u32	first;
	u32	nr;
	u32	loose;
	u32	shards;
	u32	*cursor;
};

static struct run_place run_place(const struct core *c, u32 dom)
{
	u32 pool = part_pool(c, dom), loose = CORE_NONE;
	const struct kv_domain *d = &c->domains[part_domain(c, dom)];
	struct kv_pool *p = core_pool(c, pool);
	struct kv_zone *z;

	if (pool)
		return (struct run_place){ p->first, p->nr_extents, p->loose, 1,
					   &p->cursor };
	for_each_zone(c, d, z)
		loose = min(loose, z->loose);
	z = domain_zone(c, d);
	return (struct run_place){ z->first, domain_online(c, d), loose, d->shards,
				   &z->cursor };
}

/* May @tenant take all extents of the run now? */
static bool run_fits(const struct core *c, u32 first, u32 nr, u32 shards, u32 tenant,
		     bool move)
{
	u32 e, n;

	for_each_run_extent(c, e, n, first, nr, shards)
		if (!extent_fits(c, e, tenant, move))
			return false;
	return true;
}

/*
 * First run of @nr neighbouring extents that @tenant may take.  Runs start at
 * multiples of their length.  Else a domain that has the whole pool might find
 * fewer spans than domain_capacity() says.
 */
static u32 extent_run_find(const struct core *c, const struct run_place *p, u32 nr,
			   u32 tenant, bool move)
{
	u32 runs = p->nr / nr, i;

	if (p->loose < nr)
		return CORE_NONE;	/* in a full pool nearly always */
	for (i = 0; i < runs; i++) {
		/* Begin where the last run was found, and go around once. */
		u32 first = p->first + (*p->cursor / nr + i) % runs * nr;

		if (run_fits(c, first, nr, p->shards, tenant, move))
			return first;
	}
	return CORE_NONE;
}

/* extent_run_hint() - the next search in the pools of @dom finds the run at @first */
void extent_run_hint(struct core *c, u32 dom, u32 first)
{
	struct run_place p = run_place(c, dom);
	struct kv_zone *z;

	*p.cursor = min(*p.cursor, first - p.first);
	if (!part_pool(c, dom))
		for_each_zone(c, &c->domains[dom], z)
			z->cursor = min(z->cursor, first - p.first);
}

/* Give the memory back to the system; no client has it mapped. */
void extent_release(struct core *c, u32 e)
{
	struct kv_extent *x = &c->extents[e];

	KV_BUG_ON(revoke_needed(c, e));
	KV_BUG_ON(!x->backed);

	core_count(c, CORE_EV_extent_release, 1);
	x->backed = 0;
	extent_set_state(c, e, EXT_ABSENT);
	core_crash(c, CORE_CRASH_extent_gone);
	c->ops->extent_release(c->ops_arg, e);
}

/* Give up a run: made memory stays, memory in the making will be BACKED. */
void extent_run_abandon(struct core *c, u32 first)
{
	u32 dom = c->extents[first].domain, e, n;
	struct kv_part *p = part_at(c, dom);

	KV_BUG_ON(!p->pending_spans);
	p->pending_spans--;
	for_each_run_extent(c, e, n, first, p->span_extents, part_shards(c, dom)) {
		KV_BUG_ON(c->extents[e].state != EXT_CREATING);
		c->extents[e].domain = CORE_NONE;
		if (c->extents[e].backed)
			extent_set_state(c, e, EXT_BACKED);
	}
}

/* When all extents of the run have memory, make the span. */
static void extent_run_settle(struct core *c, u32 first)
{
	u32 dom = c->extents[first].domain;
	struct kv_part *p = part_at(c, dom);
	u32 e, n;

	for_each_run_extent(c, e, n, first, p->span_extents, part_shards(c, dom))
		if (!c->extents[e].backed)
			return;
	if (!part_pool(c, dom) && device_is_lost(c, &c->domains[dom])) {
		extent_run_abandon(c, first);
		return;
	}
	KV_BUG_ON(!p->pending_spans);
	p->pending_spans--;
	span_cut(c, dom, first);
}

/**
 * extent_run_make() - turn a run of free extents into a span of a domain
 * @first: first extent; extent_fits() holds for all of them
 *
 * Return: 1: the span exists; 0: not yet, its memory is being made, or never, since
 * the device is lost.
 */
int extent_run_make(struct core *c, u32 dom, u32 first)
{
	u32 pool = part_pool(c, dom), e, n;
	u32 tenant = c->domains[part_domain(c, dom)].tenant;
	struct kv_part *p = part_at(c, dom);

	KV_BUG_ON(!p->used);
	p->pending_spans++;
	for_each_run_extent(c, e, n, first, p->span_extents, part_shards(c, dom)) {
		struct kv_extent *x = &c->extents[e];

		if (!pool && x->backed && x->tenant != tenant)
			extent_release(c, e);
		extent_set_state(c, e, EXT_CREATING);
		x->tenant = tenant;
		x->domain = dom;
		x->span = first;
		if (!x->backed) {
			x->generation++;
			c->ops->extent_create(c->ops_arg, e, x->generation);
		}
	}
	extent_run_settle(c, first);
	return c->extents[first].state == EXT_SPAN;
}

/**
 * extent_run_take() - take extents for one more span of a domain
 * @dom: index of the domain, or of its part in a lower pool
 *
 * Return: 1: the span is cut; 0: memory is being made, the span comes later;
 * -EAGAIN: there is no run of free extents.
 */
int extent_run_take(struct core *c, u32 dom)
{
	u32 tenant = c->domains[part_domain(c, dom)].tenant;
	u32 nr = part_at(c, dom)->span_extents;
	struct run_place p = run_place(c, dom);
	u32 first;

	first = extent_run_find(c, &p, nr, tenant, false);
	if (first == CORE_NONE)
		first = extent_run_find(c, &p, nr, tenant, true);
	if (first == CORE_NONE)
		return -EAGAIN;
	*p.cursor = first - p.first;
	return extent_run_make(c, dom, first);
}

/**
 * extent_created() - the shell has made memory, or could not
 * @status: 0 or a negative errno
 */
void extent_created(struct core *c, u32 e, int status)
{
	struct kv_extent *x = &c->extents[e];

	KV_BUG_ON(x->state != EXT_CREATING || x->backed);
	/* A sequence of any domain may find memory now. */
	core_kick(c);
	if (status) {
		if (!extent_zone(c, e)->device)
			extent_zone(c, e)->create_after = c->now + CREATE_BACKOFF_NS;
		if (x->domain != CORE_NONE)
			extent_run_abandon(c, x->span);
		extent_set_state(c, e, EXT_ABSENT);
		return;
	}
	core_count(c, CORE_EV_extent_create, 1);
	x->backed = 1;
	x->since = c->now;
	core_crash(c, CORE_CRASH_extent_made);
	extent_announce(c, e);
	if (x->domain == CORE_NONE)
		extent_set_state(c, e, EXT_BACKED);
	else
		extent_run_settle(c, x->span);
}
