// SPDX-License-Identifier: Apache-2.0
/*
 * domain.c - domains: attach, shape, drop
 *
 * A domain is the blocks of one (tenant, model identity, layout), under a name
 * that is unique in the tenant.  Clients that attach with the same name and
 * identity share it with its prefixes.  A domain outlives its clients, so that a
 * restarted runtime finds its prefixes warm.  It is dropped when its record is
 * needed, or when another model takes over its name.
 *
 * The shape of a domain follows from its layout: bytes of a layer of a block
 * rounded up to 128, blocks of all layers, and the smallest span with a tail of
 * less than 1 % (else the span with the smallest tail).
 */
#include "kvmm/core/share/share.h"

/* A token needs the record after the token before it. */
#define STATE_WINDOW	2u
#define STATE_UNIT	(1u << 20)	/* most bytes of a unit */
#define STATE_BLOCKS	4096u		/* most blocks of a record */

/* @most: extents of the pool */
static int shape_span(const struct core *c, struct kv_part *p, u32 pool, u32 most)
{
	u64 size = core_cfg(c)->extent_size;
	u64 best = ~0ull;
	u32 n;

	for (n = 1; n <= CORE_SPAN_MAX && n <= most; n++) {
		u64 blocks = n * size / p->block_bytes;
		u64 tail = n * size - blocks * p->block_bytes;
		u64 waste = tail * 10000 / (n * size);

		/* I/O is registered by power-of-two pieces of the host pool. */
		if (!blocks || waste >= best || (pool && !is_power_of_2(n)))
			continue;
		best = waste;
		p->span_extents = n;
		p->span_blocks = (u32)blocks;
		p->span_tail = tail;
		if (waste < 100)
			break;
	}
	return best == ~0ull ? -EINVAL : 0;
}

static u32 gcd(u32 a, u32 b)
{
	return b ? gcd(b, a % b) : a;
}

/* Bytes between layers of a block, or between units of a record. */
static u64 group_stride(const struct kvmm_group *g)
{
	u64 bytes = g->k_bytes;

	if (g->kind != KVMM_GROUP_STATE)
		bytes = group_token_bytes(g) / g->layers * g->block_tokens;
	return ALIGN_UP(bytes, (u64)CORE_LAYER_ALIGN);
}

/* The least bytes of a block: all layers, or one unit of a record. */
static u64 group_least(const struct kv_domain *d, u32 g)
{
	return d->stride[g] * (d->group[g].kind == KVMM_GROUP_STATE ?
			       1 : d->group[g].layers);
}

/* Blocks that the units of a record fill, as many in each as fit; 1 without records. */
static u32 group_width(const struct kv_domain *d, u32 g)
{
	const struct kvmm_group *gr = &d->group[g];

	if (gr->kind != KVMM_GROUP_STATE)
		return 1;
	return (u32)DIV_ROUND_UP((u64)gr->layers * gr->kv_heads,
				 d->dev.block_bytes / d->stride[g]);
}

/*
 * Blocks of all groups have the bytes of the largest, so that a block that one group
 * gives back serves any other.
 */
static void shape_groups(const struct core *c, struct kv_domain *d,
			 const struct kvmm_attach_req *req)
{
	u32 g, bt;

	d->nr_groups = req->nr_groups;
	d->ids_tokens = 0;
	d->base_tokens = 0;
	d->hit_tokens = 1;
	d->dev.block_bytes = 0;
	for (g = 0; g < d->nr_groups; g++) {
		d->group[g] = req->group[g];
		bt = d->group[g].block_tokens ?: req->block_tokens;
		d->group[g].block_tokens = bt;
		d->stride[g] = group_stride(&d->group[g]);
		d->window[g] = d->group[g].kind == KVMM_GROUP_STATE ?
			       STATE_WINDOW : d->group[g].window;
		d->dev.block_bytes = max(d->dev.block_bytes,
					 ALIGN_UP(group_least(d, g), entry_unit(c)));
		d->ids_tokens = max(d->ids_tokens, bt);
		d->base_tokens = gcd(d->base_tokens, bt);
		/* At most 4096 times 4096: beyond a block's most tokens it is refused. */
		if (d->hit_tokens <= KVMM_MAX_BLOCK_TOKENS)
			d->hit_tokens = d->hit_tokens / gcd(d->hit_tokens, bt) * bt;
	}
	d->has_records = 0;
	d->widths = 0;
	for (g = 0; g < d->nr_groups; g++) {
		d->width[g] = group_width(d, g);
		d->widths += d->width[g];
		d->has_records |= d->group[g].kind == KVMM_GROUP_STATE;
	}
}

/* The fewest bytes that the ids of a token may stand beside, see core_sizes.nr_ids. */
static u64 least_token_bytes(const struct kv_domain *d)
{
	if (d->nr_groups == 1)
		return group_token_bytes(&d->group[0]);
	return d->dev.block_bytes / d->ids_tokens;
}

static int shape_layout(const struct core *c, struct kv_domain *d,
			const struct kvmm_attach_req *req,
			struct core_attach_info *info)
{
	u32 g;

	shape_groups(c, d, req);
	if (d->hit_tokens > KVMM_MAX_BLOCK_TOKENS) {
		info->text = "the least common multiple of the groups' block_tokens is above 4096";
		return -EINVAL;
	}
	if (least_token_bytes(d) < core_cfg(c)->min_token_bytes) {
		info->text = "a token's KV is smaller than --min-token-bytes";
		info->small_token = (u32)least_token_bytes(d);
		return -EINVAL;
	}
	for (g = 0; g < d->nr_groups; g++) {
		if (d->width[g] > STATE_BLOCKS) {
			info->text = "a record of state takes more than 4096 blocks: use blocks of more tokens";
			return -EINVAL;
		}
	}
	if (shape_span(c, &d->dev, CORE_POOL_DEV, domain_extents(c, d))) {
		info->text = "a block does not fit into the largest span (8 extents): use fewer tokens a block, or start kvmm with a larger --extent-size";
		return -EINVAL;
	}
	return 0;
}

static bool tokens_are_sane(u32 block_tokens)
{
	return block_tokens && block_tokens <= KVMM_MAX_BLOCK_TOKENS &&
	       block_tokens % KVMM_MIN_BLOCK_TOKENS == 0;
}

/* Records have units of one size, and no more. */
static bool state_is_sane(const struct kvmm_group *g)
{
	return g->k_bytes <= STATE_UNIT && !g->v_bytes && !g->scale_bytes && !g->window;
}

static bool group_is_sane(const struct kvmm_group *g)
{
	if (g->kind == KVMM_GROUP_STATE)
		return g->layers && g->layers <= 4096 && g->kv_heads &&
		       g->kv_heads <= 4096 && g->k_bytes && state_is_sane(g) &&
		       (!g->block_tokens || tokens_are_sane(g->block_tokens));
	return g->layers && g->layers <= 4096 && g->kv_heads &&
	       g->kv_heads <= 4096 && g->k_bytes && g->k_bytes <= 65536 &&
	       g->v_bytes <= 65536 && g->scale_bytes <= 1024 && g->kind == KVMM_GROUP_KV &&
	       (!g->block_tokens || tokens_are_sane(g->block_tokens));
}

static int groups_check(const struct kvmm_group *group, u32 nr, const char **text)
{
	u32 g;

	*text = "a layer group of the layout is out of bounds";
	for (g = 0; g < nr; g++)
		if (!group_is_sane(&group[g]))
			return -EINVAL;
	if (group[0].kind == KVMM_GROUP_STATE) {
		*text = "layer group 0 must not have records of state: put layers that attend to all tokens first";
		return -EINVAL;
	}
	if (group[0].window) {
		*text = "layer group 0 must not have a window: put layers that attend to all tokens first";
		return -EINVAL;
	}
	return 0;
}

/* Refuse limits that the lower tiers do not have. */
static int limits_check(const struct kvmm_attach_req *req)
{
	u32 i;

	for (i = 0; i < KVMM_MAX_TIERS; i++) {
		const struct kvmm_limits *l = &req->limits[i];

		if (i && (l->min || l->low ||
			  (l->high && l->high != KVMM_LIMIT_MAX)))
			return -EOPNOTSUPP;
	}
	return 0;
}

static int req_check(const struct kvmm_attach_req *req, const char **text)
{
	*text = "the attach message has an invalid field";
	if (!req->domain[0] || req->domain[KVMM_NAME_LEN - 1] ||
	    req->resv)
		return -EINVAL;
	if (!req->max_steps || req->max_steps > KVMM_MAX_STEPS)
		return -EINVAL;
	if (!tokens_are_sane(req->block_tokens)) {
		*text = "block_tokens must be a multiple of 16, and at most 4096";
		return -EINVAL;
	}
	if (req->weight > CORE_WEIGHT_MAX) {
		*text = "the weight must be 1 to 10000";
		return -EINVAL;
	}
	if (!req->nr_groups || req->nr_groups > KVMM_MAX_GROUPS) {
		*text = "a layout has 1 to 8 layer groups";
		return -EINVAL;
	}
	if (!req->nr_shards || req->nr_shards > CORE_MAX_ZONES) {
		*text = "a block has 1 to 8 shards";
		return -EINVAL;
	}
	if (req->flags & KVMM_ATTACH_RESUME) {
		*text = "this version does not resume attachments: attach anew";
		return -EOPNOTSUPP;
	}
	if (limits_check(req)) {
		*text = "the lower tiers have no min, low and high: ask for max only";
		return -EOPNOTSUPP;
	}
	if (groups_check(req->group, req->nr_groups, text))
		return -EINVAL;
	*text = NULL;
	return 0;
}

/* A part without a block. */
static void part_init(struct kv_part *p)
{
	u32 i;

	memset(p, 0, sizeof(*p));
	for (i = 0; i < CORE_NR_CLASSES; i++)
		p->class[i] = CORE_NONE;
	p->lru_head = CORE_NONE;
	p->lru_tail = CORE_NONE;
	p->write_next = CORE_NONE;
	p->slot_out = CORE_NONE;
	p->slot_last = CORE_NONE;
	p->slot_peer = CORE_NONE;
}

static void domain_init(struct kv_domain *d)
{
	memset(d, 0, sizeof(*d));
	part_init(&d->dev);
	d->wait_head = CORE_NONE;
	d->wait_tail = CORE_NONE;
	d->run_head = CORE_NONE;
	d->run_tail = CORE_NONE;
	d->wait_root = CORE_NONE;
	d->age_head = CORE_NONE;
	d->age_tail = CORE_NONE;
	d->ready_root = CORE_NONE;
	d->refused_root = CORE_NONE;
	d->pays = ~0u;
}

/* domain_idle() - is the domain without clients, sequences and requests? */
bool domain_idle(const struct core *c, const struct kv_domain *d)
{
	u32 i, dom = (u32)(d - c->domains);

	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++)
		if (part_at(c, part_index(c, dom, i))->nr[BLK_LIMBO])
			return false;
	return !d->nr_clients && !d->dev.pending_spans &&
	       domain_used(d) == d->dev.nr[BLK_CACHED];
}

/*
 * Release a span without content.  Slots that failed are released, too: their
 * next user gets an error, never wrong content.
 */
static void domain_drop_span(struct core *c, u32 first)
{
	u32 base = first * core_sizes(c)->blocks_per_extent, i;
	u32 end = base + c->spans[first].nr_blocks;

	KV_BUG_ON(c->spans[first].nr_open || c->spans[first].nr_cached);
	part_at(c, c->spans[first].domain)->keep_spans = 1;
	for (i = base; i < end; i++)
		if (c->blocks[i].state == BLK_POISON)
			block_set_state(c, i, BLK_FREE);
	span_release(c, first);
	KV_BUG_ON(c->spans[first].nr_extents);
}

/*
 * Drop the content of a domain without clients on the lower tiers: its cache.
 */
static void domain_drop_entries(struct core *c, u32 dom)
{
	u32 i, n;

	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		const struct kv_entry *e = &c->entries_low[i];

		if (e->domain == dom && (e->flags & ENTF_INDEXED))
			entry_drop(c, i);
	}
	for (n = CORE_POOL_HOST; n < CORE_NR_POOLS; n++) {
		struct kv_part *part = part_at(c, part_index(c, dom, n));
		u32 end = core_pool(c, n)->first + core_pool(c, n)->nr_extents;

		for (i = core_pool(c, n)->first; i < end; i++)
			if (c->spans[i].nr_extents && c->spans[i].domain ==
			    part_index(c, dom, n))
				domain_drop_span(c, i);
		KV_BUG_ON(part->nr_spans);
		KV_BUG_ON(part->nr_empty || part->nr[BLK_FREE]);
		KV_BUG_ON(part->used && part->lru_head != CORE_NONE);
		part->used = 0;
	}
}

/**
 * domain_part_init() - give a domain its part in a lower pool
 *
 * A slot there is a header and all shards of a block, and a span is 1, 2, 4 or 8 extents.  If
 * a slot is larger than 8 extents the part stays unused.
 */
void domain_part_init(struct core *c, u32 dom, u32 pool)
{
	struct kv_domain *d = &c->domains[dom];
	struct kv_part *part = part_at(c, part_index(c, dom, pool));

	KV_BUG_ON(pool == CORE_POOL_DEV || !d->dev.block_bytes);
	part_init(part);
	part->max_blocks = CORE_NONE;
	part->block_bytes = CORE_SLOT_HEADER + ALIGN_UP(domain_payload(d), 4096ull);
	part->used = core_pool(c, pool)->nr_extents &&
		     !shape_span(c, part, pool, core_pool(c, pool)->nr_extents);
}

/* domain_drop() - drop the cache of a domain without clients, and its record */
void domain_drop(struct core *c, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];
	u32 i;

	KV_BUG_ON(!d->used || d->nr_clients || d->dev.pending_spans);
	KV_BUG_ON(d->nr_running || d->nr_waiting || d->nr_marked);
	KV_BUG_ON(d->run_head != CORE_NONE || d->wait_head != CORE_NONE);
	for (i = lru_next(c, dom); i != CORE_NONE; i = lru_next(c, dom))
		index_evict(c, i);
	domain_drop_entries(c, dom);
	for (i = 0; i < core_sizes(c)->nr_extents; i++)
		if (c->spans[i].nr_extents && c->spans[i].domain == dom)
			span_release(c, i);
	KV_BUG_ON(d->dev.nr_spans || d->dev.reserved);
	KV_BUG_ON(d->nr_indexed || d->roots != CORE_NONE);
	KV_BUG_ON(d->soon || d->tails || d->growth || d->nr_shared);
	KV_BUG_ON(!c->tenants[d->tenant].nr_domains);
	psi_forget_domain(c, dom);
	c->tenants[d->tenant].nr_domains--;
	core_crash(c, CORE_CRASH_domain_drop);
	core_tell(c, domain_drop, .domain = dom, .tenant = d->tenant);
	d->used = 0;
	d->dev.used = 0;
	core_order();		/* the record may be used again at once */
}

static const char device_failed[] = "the device of a pool of this domain has failed, and no memory can be made on it: have kvmm upgraded (kvctl upgrade) or started again, or ask for another pool";

/*
 * Bytes of the device pool that sequences do not hold and memory.min does not promise;
 * 0: its device has failed.
 */
static u64 zone_room(const struct core *c, u32 zone)
{
	const struct kv_zone *z = &c->head->zones[zone];
	u64 room = z->nr_online * core_cfg(c)->extent_size, used = 0;
	u32 i;

	for_each_domain(c, i) {
		const struct kv_domain *d = &c->domains[i];

		if (domain_is_in(d, zone))
			used += max(domain_held(d), d->emin) * d->dev.block_bytes;
	}
	return z->device ? 0 : room - min(room, used);
}

/* The least room of @nr neighbouring device pools: as much as each shard can have. */
static u64 zones_room(const struct core *c, u32 zone, u32 nr)
{
	u64 room = ~0ull;
	u32 i;

	for (i = zone; i < zone + nr; i++)
		room = min(room, zone_room(c, i));
	return room;
}

/* Domains but @except that are in one of @nr neighbouring device pools. */
static u32 zones_domains(const struct core *c, u32 zone, u32 nr, u32 except)
{
	const struct kv_domain in = { .zone = zone, .shards = nr };
	u32 count = 0, i;

	for_each_domain(c, i)
		count += i != except && domains_meet(&c->domains[i], &in);
	return count;
}

/*
 * The first device pool of a new domain: that which was asked for, else the one from
 * which its shards have the most room.  Of equal ones that with the fewest domains: idle
 * domains leave all room, and must not all be in one pool when they begin to work.  Of
 * these the first.  @old: the domain whose record the new one takes; it does not count.
 */
static u32 zone_choose(const struct core *c, const struct kvmm_attach_req *req, u32 old)
{
	const u32 nr = req->nr_shards;
	u64 room, most = zones_room(c, 0, nr);
	u32 best = 0, i;

	if (req->pool)
		return req->pool - 1;
	for (i = 1; i + nr <= c->head->nr_zones; i++) {
		room = zones_room(c, i, nr);
		if (room < most || (room == most && zones_domains(c, i, nr, old) >=
						    zones_domains(c, best, nr, old)))
			continue;
		best = i;
		most = room;
	}
	return best;
}

/* Is the domain of the model that the request names, with its layout? */
static bool domain_same(const struct core *c, const struct kv_domain *d,
			const struct kvmm_attach_req *req)
{
	struct kv_domain asked = { 0 };

	shape_groups(c, &asked, req);
	return !memcmp(d->identity, req->identity, sizeof(d->identity)) &&
	       d->nr_groups == asked.nr_groups &&
	       !memcmp(d->group, asked.group, sizeof(d->group));
}

static const char max_too_small[] = "memory.max is smaller than one block";

/* Compute the new domain's record; the core does not change. */
static int domain_shape(const struct core *c, struct kv_domain *d, u32 zone,
			const struct kvmm_attach_req *req,
			struct core_attach_info *info)
{
	int err;

	domain_init(d);
	psi_init(c, &d->psi);
	d->zone = zone;
	d->shards = req->nr_shards;
	err = shape_layout(c, d, req, info);
	if (err)
		return err;
	limit_init(d, req);
	if (!d->dev.max_blocks) {
		info->text = max_too_small;
		return -EINVAL;
	}
	memcpy(d->name, req->domain, sizeof(d->name));
	memcpy(d->identity, req->identity, sizeof(d->identity));
	d->step_tokens = req->step_tokens;
	return 0;
}

/* Put a new domain into a record that is unused now. */
static void domain_place(struct core *c, u32 dom, u32 tenant,
			 const struct kv_domain *made)
{
	u32 i;

	KV_BUG_ON(c->domains[dom].used || !c->tenants[tenant].used);
	KV_BUG_ON(made->nr_clients || made->dev.nr_spans);
	c->domains[dom] = *made;
	c->domains[dom].tenant = tenant;
	c->domains[dom].roots = CORE_NONE;
	c->domains[dom].serial = ++c->head->serial;
	lru_init(c, dom);
	life_domain(c, dom);
	c->tenants[tenant].nr_domains++;
	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++)
		domain_part_init(c, dom, i);
	core_crash(c, CORE_CRASH_domain_make);
	core_tell(c, domain_create, .domain = dom, .tenant = tenant);
	c->domains[dom].used = 1;
	c->domains[dom].dev.used = 1;
}

/* A domain of another name needs the record of idle domain @dom. */
static void domain_replace(struct core *c, u32 dom, struct core_attach_info *info)
{
	const struct kv_domain *d = &c->domains[dom];

	if (d->roots != CORE_NONE)
		memcpy(info->replaced, d->name, sizeof(info->replaced));
	domain_drop(c, dom);
}

/*
 * Make a domain, in the record of @old if that is one.  Everything that may be
 * refused is checked before a cache is dropped or a tenant made.
 */
static int domain_create(struct core *c, const struct tenant_who *who,
			 const struct kvmm_attach_req *req, u32 old, u32 *dom,
			 struct core_attach_info *info)
{
	u32 tenant = core_find_tenant(c, who->key);
	u32 zone = zone_choose(c, req, old);
	struct kv_domain made;
	int err;

	err = domain_shape(c, &made, zone, req, info);
	if (err)
		return err;
	if (device_is_down(c, &made)) {
		info->text = device_failed;
		return -ENODEV;
	}
	if (old == CORE_NONE) {
		err = tenant_may_have(c, who, &info->text);
		if (err)
			return err;
		if (tenant == CORE_NONE)
			tenant = tenant_make(c, who);
		*dom = tenant_domain_slot(c, tenant,
					  who->quota->max_domains);
		KV_BUG_ON(*dom == CORE_NONE);
		if (c->domains[*dom].used)
			domain_replace(c, *dom, info);
	} else {
		limit_inherit(&made, &c->domains[old], req);
		info->dropped_blocks = c->domains[old].dev.nr[BLK_CACHED];
		info->moved = domain_same(c, &c->domains[old], req);
		info->old_pool = c->domains[old].zone;
		info->old_shards = c->domains[old].shards;
		domain_drop(c, old);
		*dom = old;
	}
	KV_BUG_ON(c->tenants[tenant].key != who->key);
	domain_place(c, *dom, tenant, &made);
	return 0;
}

/* A weight that an operator set counts from the next attach on. */
static bool weight_is_sane(const struct kv_domain *d)
{
	const u64 set = d->operator_limit[CORE_LIMIT_WEIGHT];

	return d->weight && d->weight <= CORE_WEIGHT_MAX &&
	       (!(d->by_operator & BIT(CORE_LIMIT_WEIGHT)) ||
		(set && set <= CORE_WEIGHT_MAX));
}

/**
 * domain_restore() - salvage a domain from its primary fields
 *
 * Return: 0; -EINVAL: no attach message can have made it.
 */
int domain_restore(const struct core *c, struct kv_domain *d)
{
	struct kvmm_attach_req req = { .nr_groups = d->nr_groups };
	struct kv_domain was = *d;
	struct core_attach_info info;
	u32 g;

	if (!was.nr_groups || was.nr_groups > KVMM_MAX_GROUPS || !was.name[0] ||
	    was.zone >= c->head->nr_zones || !was.shards ||
	    was.shards > c->head->nr_zones - was.zone ||
	    was.name[KVMM_NAME_LEN - 1] || !weight_is_sane(&was))
		return -EINVAL;
	for (g = 0; g < was.nr_groups; g++)
		if (!tokens_are_sane(was.group[g].block_tokens))
			return -EINVAL;
	if (groups_check(was.group, was.nr_groups, &info.text))
		return -EINVAL;
	memcpy(req.group, was.group, sizeof(req.group));
	domain_init(d);
	psi_init(c, &d->psi);
	d->zone = was.zone;
	d->shards = was.shards;
	if (shape_layout(c, d, &req, &info))
		return -EINVAL;
	memcpy(d->name, was.name, sizeof(d->name));
	memcpy(d->identity, was.identity, sizeof(d->identity));
	memcpy(d->operator_limit, was.operator_limit,
	       sizeof(d->operator_limit));
	memcpy(d->asked_limit, was.asked_limit, sizeof(d->asked_limit));
	d->tenant = was.tenant;
	d->step_tokens = was.step_tokens;
	d->serial = was.serial;
	d->left = was.left;
	d->min_bytes = was.min_bytes;
	d->low_bytes = was.low_bytes;
	d->high_bytes = was.high_bytes;
	d->dev.max_bytes = was.dev.max_bytes;
	d->weight = was.weight;
	d->writethrough = was.writethrough != 0;
	d->by_operator = was.by_operator;
	d->prefill_ns_token = was.prefill_ns_token;
	d->pays = was.pays;
	d->nr_max_events = was.nr_max_events;
	d->nr_high_events = was.nr_high_events;
	d->nr_low_events = was.nr_low_events;
	d->nr_preempted = was.nr_preempted;
	d->work = was.work;
	d->roots = CORE_NONE;
	domain_kick(d);
	d->used = 1;
	d->dev.used = 1;
	return 0;
}

static u32 domain_find(const struct core *c, u32 tenant, const char *name)
{
	u32 i;

	for_each_domain(c, i)
		if (c->domains[i].tenant == tenant &&
		    !strncmp(c->domains[i].name, name, KVMM_NAME_LEN))
			return i;
	return CORE_NONE;
}

/* Can a client with this request use the domain as it is? */
static bool domain_serves(const struct core *c, const struct kv_domain *d,
			  const struct kvmm_attach_req *req)
{
	return domain_same(c, d, req) && !device_is_down(c, d) &&
	       d->shards == req->nr_shards &&
	       (!req->pool || req->pool == d->zone + 1);
}

/* The error for a domain in use that cannot serve the request; @info gets the reason. */
static int domain_taken(const struct core *c, const struct kv_domain *d,
			const struct kvmm_attach_req *req,
			struct core_attach_info *info)
{
	info->text = device_failed;
	if (device_is_down(c, d))
		return -ENODEV;
	info->text = "this domain is in use in another device pool: ask for that pool or for none, or use another --domain";
	info->elsewhere = domain_same(c, d, req) && d->shards == req->nr_shards;
	info->old_pool = d->zone;
	if (d->shards != req->nr_shards)
		info->text = "this domain is in use with another number of shards: use another --domain";
	if (!domain_same(c, d, req))
		info->text = "this domain is in use by another model identity (model, dtype, type of KV, mode or block size): use another --domain";
	return -EEXIST;
}

/**
 * domain_attach() - find or make the domain that a client asks for
 * @dom:  gets its index
 * @info: .text gets the reason of a refusal, in one line; .dropped_blocks the
 *        number of cached blocks that were dropped: of another model with this name,
 *        or, with .moved, of this domain in other pools
 *
 * A name of another model is taken over when its domain is idle.
 * Return: 0; -EINVAL, -EOPNOTSUPP; -EEXIST: the domain is in use by another model,
 * or in another device pool; -ENXIO: no such device pool; -ENODEV: the pool's device
 * has failed; -ENOSPC; -EDQUOT: its tenant has as many as it may.
 */
int domain_attach(struct core *c, const struct tenant_who *who,
		  const struct kvmm_attach_req *req, u32 *dom,
		  struct core_attach_info *info)
{
	u32 tenant, old = CORE_NONE;
	struct kv_domain *d;
	int err;

	err = req_check(req, &info->text);
	if (err)
		return err;
	if (req->pool > c->head->nr_zones) {
		info->text = "kvmm has no device pool of this number";
		return -ENXIO;
	}
	if (max(req->pool, 1u) - 1 + req->nr_shards > c->head->nr_zones) {
		info->text = "kvmm has too few device pools for the shards of this domain";
		return -ENXIO;
	}
	tenant = core_find_tenant(c, who->key);
	if (tenant != CORE_NONE)
		old = domain_find(c, tenant, req->domain);
	*dom = old;
	if (old == CORE_NONE || !domain_serves(c, &c->domains[old], req)) {
		if (old != CORE_NONE && !domain_idle(c, &c->domains[old]))
			return domain_taken(c, &c->domains[old], req, info);
		err = domain_create(c, who, req, old, dom, info);
		if (err)
			return err;
	}
	d = &c->domains[*dom];
	KV_BUG_ON(!d->used || c->tenants[d->tenant].key != who->key);
	KV_BUG_ON(d->nr_clients >= core_cfg(c)->max_clients);
	c->tenants[d->tenant].quota = *who->quota;
	if (!d->nr_clients) {
		if (req->limits[0].max / d->dev.block_bytes == 0) {
			info->text = max_too_small;
			return -EINVAL;
		}
		limit_init(d, req);
		d->step_tokens = req->step_tokens;
		info->cut = limit_bound(c, d);
		limit_init_tiers(c, *dom, req);
	}
	d->nr_clients++;
	c->tenants[d->tenant].nr_clients++;
	limit_settle(c);
	return 0;
}

void domain_detach(struct core *c, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];

	KV_BUG_ON(!d->used);
	d->nr_clients--;
	d->left = c->now;
	limit_settle(c);
	KV_BUG_ON(!d->nr_clients && (d->emin || d->elow || d->floor));
	c->tenants[d->tenant].nr_clients--;
	c->tenants[d->tenant].left = c->now;
}
