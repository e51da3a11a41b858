// SPDX-License-Identifier: Apache-2.0
/*
 * plan.c - the draws of a seed before its first event
 *
 * Pools are tiny, so that cases which are rare in a large one (the last block,
 * the only span, a full table) happen in every other seed.  Shapes of blocks
 * are chosen to need spans of one to several extents, with and without a tail.
 * One seed in thirty has a pool of thousands of blocks and sequences whose
 * tables have several pages.  One in sixteen is wide: it has extents of 64 KiB
 * and blocks of up to 4096 tokens.
 */
#include "tests/sim/sim.h"

#define MIN_TOKEN_BYTES	64u

struct shape {
	u32	layers;
	u32	heads;
	u32	k;
	u32	v;
	u32	scale;
};

static const struct shape shapes[] = {
	{ 1, 1, 32, 32, 0 },	/* the smallest block */
	{ 1, 2, 16, 16, 0 },
	{ 1, 1, 64, 0, 0 },	/* no V */
	{ 2, 1, 24, 24, 0 },	/* three extents a span at 4 KiB */
	{ 1, 1, 40, 40, 0 },	/* five extents a span */
	{ 3, 1, 16, 16, 2 },	/* a tail in every span */
	{ 4, 2, 8, 8, 4 },
};


/*
 * A slot of a lower tier takes 8 KiB or more, a block may take 1 KiB.  So a host
 * pool with room for as many blocks as the device is eight times as large.
 */
static void draw_tiers(struct sim *w, u32 extents)
{
	struct core_config *cfg = &w->cfg;
	struct rng *r = &w->rng;
	u32 slot = max(1u, 8192u / (u32)cfg->extent_size);
	u32 most = (u32)min((768ull << 10) / cfg->extent_size, 10ull * extents);

	cfg->swappiness = PICK(r, 0, 60, 100, 200, 200, 200, 999);
	if (cfg->swappiness > 200)
		cfg->swappiness = rng_below(r, 201);
	if (rng_chance(r, 300))
		return;
	most = max(most, 4 * slot);
	cfg->host_bytes = cfg->extent_size *
		(rng_chance(r, 400) ? rng_range(r, 1, 6) * slot :
		 rng_chance(r, 700) ? rng_range(r, slot, max(most / 4, slot)) :
				      rng_range(r, most / 2, most));
	if (rng_chance(r, 200))
		return;
	most = (u32)((128ull << 10) / cfg->extent_size);
	cfg->area_bytes = cfg->extent_size *
			  rng_range(r, slot, max(most, 2 * slot));
	w->plan.nr_files = rng_range(r, 0, SIM_FILES);
}

static void draw_config(struct sim *w)
{
	struct core_config *cfg = &w->cfg;
	struct rng *r = &w->rng;
	bool large = rng_chance(r, 30);
	u32 extents, per;

	cfg->min_token_bytes = MIN_TOKEN_BYTES;
	cfg->extent_size = PICK(r, 4096, 4096, 8192, 16384, 32768);
	per = (u32)cfg->extent_size / 1024;
	if (large)
		extents = rng_range(r, 32, SIM_EXTENTS);
	else
		extents = rng_range(r, max(2u, 8 / per),
				    min(64u, 256 / per));
	if (!large && rng_chance(r, 500))
		extents = max(2u, extents / 4);
	cfg->pool_bytes = extents * cfg->extent_size;
	cfg->max_tenants = SIM_TENANTS;
	/* Too few tenant records, in one seed of eight; see event_work below. */
	if (w->seed % 8 == 5)
		cfg->max_tenants = SIM_TENANTS - 1;
	cfg->max_domains = rng_chance(r, 700) ? SIM_DOMAINS
					      : rng_range(r, 1, SIM_DOMAINS);
	cfg->max_clients = rng_range(r, 2, SIM_CLIENTS);
	cfg->max_seqs = rng_range(r, 4, SIM_SEQS);
	cfg->nr_tables = rng_chance(r, 900) ? 0 :
			 rng_range(r, cfg->max_seqs / 2, cfg->max_seqs);
	cfg->nr_idpages = PICK(r, 24, 128, 256, 256, 512, 512) *
			  cfg->max_clients / 2;
	cfg->max_steps = PICK(r, 1, 2, 2, 2, 3, 4, 4);
	cfg->step_deadline_ns = rng_range(r, 20, 200) * SIM_MS;
	cfg->quiet_deadline_ns = rng_range(r, 50, 300) * SIM_MS;
	cfg->revoke_deadline_ns = rng_range(r, 20, 200) * SIM_MS;
	cfg->starve_ns = rng_range(r, 10, 100) * SIM_MS;
	cfg->watermark_scale_factor = PICK(r, 0, 0, 10, 100, 500, 1000);
	cfg->cache_floor = PICK(r, 0, 0, 5, 20, 100);
	cfg->overcommit_ratio = 100;
	/* A small budget of work for an event.  Not drawn: other seeds do not change. */
	if (w->seed % 4 == 3)
		cfg->event_work = 1 + (u32)(mix2(w->seed, 7) % 400);
	if (rng_chance(r, 200)) {
		cfg->overcommit = CORE_OVERCOMMIT_NEVER;
		cfg->overcommit_ratio = rng_range(r, 50, 100);
	}
	w->nr_extents = extents;
	draw_tiers(w, extents);
}

/*
 * Extents that hold large blocks, in few spans.  A slot of the lower tiers for
 * 4096 tokens takes 8 extents.  Not drawn: other seeds do not change.
 */
static void draw_wide(struct sim *w)
{
	struct core_config *cfg = &w->cfg;
	struct rng *r = &w->rng;

	w->plan.wide = mix2(w->seed, 11) % 16 == 0;
	if (!w->plan.wide)
		return;
	cfg->extent_size = 65536;
	w->nr_extents = rng_range(r, 16, SIM_EXTENTS);
	cfg->pool_bytes = w->nr_extents * cfg->extent_size;
	cfg->nr_idpages = PICK(r, 80, 160, 300) * cfg->max_clients;
	if (cfg->host_bytes)
		cfg->host_bytes = rng_range(r, 4, 64) * cfg->extent_size;
	if (cfg->area_bytes)
		cfg->area_bytes = rng_range(r, 8, 32) * cfg->extent_size;
}

/* Two device pools, in one seed of four.  Not drawn: other seeds do not change. */
static void draw_pools(struct sim *w)
{
	u32 second = w->nr_extents / 4 + (u32)(mix2(w->seed, 18) % (w->nr_extents / 2 + 1));

	w->zone_extents[0] = w->nr_extents;
	w->zone_extents[1] = 0;
	if (!w->plan.wide && w->nr_extents >= 8 && mix2(w->seed, 17) % 4 == 0) {
		w->zone_extents[0] -= second;
		w->zone_extents[1] = second;
		w->cfg.more_bytes[0] = second * w->cfg.extent_size;
		cover_note("two device pools");
	}
	memcpy(w->zone_online, w->zone_extents, sizeof(w->zone_online));
}

/* Extents of the smallest device pool. */
static u32 least_extents(const struct sim *w)
{
	return w->zone_extents[1] ? min(w->zone_extents[0], w->zone_extents[1]) :
				    w->zone_extents[0];
}

/* Tokens of a block, and the shape of a domain that fits each pool. */
static const struct shape *draw_shape(struct sim *w, u32 *tokens)
{
	const u32 span = w->plan.wide ? 4 : 2;	/* extents of the largest block */
	struct rng *r = &w->rng;
	const struct shape *s;
	u64 bytes;

	do {
		s = &shapes[rng_below(r, ARRAY_SIZE(shapes))];
		*tokens = w->plan.wide ? PICK(r, 16, 48, 784, 784, 1600, 4096) :
					 PICK(r, 16, 16, 16, 16, 32, 64);
		bytes = s->layers * s->heads * (s->k + s->v + 2 * s->scale) *
			(u64)*tokens;
	} while (bytes * 3 > least_extents(w) * w->cfg.extent_size ||
		 bytes > span * w->cfg.extent_size);
	return s;
}

/* Blocks of domains with the same id have the same content. */
static u64 domain_uid(const struct sim *w, const struct sim_domain *d)
{
	u64 uid = mix2(w->seed, d->tenant);
	u32 i;

	uid = mix2(uid, (u64)d->req.domain[0]);
	uid = mix2(uid, d->req.identity[0]);
	uid = mix2(uid, d->req.block_tokens);
	for (i = 0; i < d->req.nr_groups; i++) {
		const struct kvmm_group *g = &d->req.group[i];

		uid = mix2(uid, ((u64)g->layers << 32) | g->kv_heads);
		uid = mix2(uid, ((u64)g->k_bytes << 32) | g->v_bytes);
		uid = mix2(uid, g->scale_bytes + ((u64)d->req.nr_shards - 1));
		if (d->req.nr_groups > 1)
			uid = mix2(uid, ((u64)g->window << 32) | g->block_tokens);
	}
	return uid;
}

static void draw_domain(struct sim *w, u32 i, u32 nr_tenants)
{
	struct sim_domain *d = &w->dom[i];
	struct kvmm_attach_req *req = &d->req;
	struct rng *r = &w->rng;
	const struct shape *s;
	u32 n;

	d->tenant = rng_below(r, nr_tenants);
	s = draw_shape(w, &req->block_tokens);
	req->magic = KVMM_ATTACH_MAGIC;
	req->abi_version = KVMM_ABI_VERSION;
	req->layout_hash = KVMM_LAYOUT_HASH;
	req->domain[0] = (char)('a' + (rng_chance(r, 200) ? 0 : i));
	/* The same model under two names or tenants is not the same domain. */
	req->identity[0] = (u8)(rng_chance(r, 300) ? 7 : i);
	/* Of two pools half of the domains take both.  Not drawn, as above. */
	req->nr_shards = w->zone_extents[1] && mix2(w->seed, 200 + i) % 2 ? 2 : 1;
	req->nr_groups = 1;
	req->group[0].layers = s->layers;
	req->group[0].kv_heads = s->heads;
	req->group[0].k_bytes = s->k;
	req->group[0].v_bytes = s->v;
	req->group[0].scale_bytes = s->scale;
	groups_draw(w, i);
	req->limits[0].max = KVMM_LIMIT_MAX;
	if (rng_chance(r, 200))
		req->limits[0].max = w->cfg.pool_bytes /
				     rng_range(r, 2, 5) +
				     rng_below(r, 4096);
	limit_draw(w, req);
	d->uid = domain_uid(w, d);
	/* Any pool, or one of two; a domain with shards begins in the first. */
	if (w->zone_extents[1])
		req->pool = (u32)(mix2(d->uid, 3) % (4 - req->nr_shards));
	/* Two draws of one domain share its limits and the hint of its first client. */
	for (n = 0; n < i; n++)
		if (w->dom[n].uid == d->uid) {
			memcpy(req->limits, w->dom[n].req.limits,
			       sizeof(req->limits));
			req->weight = w->dom[n].req.weight;
			req->step_tokens = w->dom[n].req.step_tokens;
		}
}

/**
 * plan_quota() - quota of a tenant, which is limited in one seed of four
 * @tenant: index as in sim_domain.tenant
 */
void plan_quota(const struct sim *w, u32 tenant, struct core_quota *quota)
{
	u64 draw = mix2(w->seed, 1000 + tenant);

	*quota = (struct core_quota){
		.max_domains = CORE_NONE, .max_min = KVMM_LIMIT_MAX,
		.max_weight = CORE_WEIGHT_MAX,
	};
	if (w->seed % 4 != 2)
		return;
	quota->max_domains = 1 + (u32)(draw % SIM_DOMAINS);
	quota->max_min = w->cfg.pool_bytes / 8 * (draw >> 8 & 3);
	quota->max_weight = 100;
}

static void draw_load(struct sim *w)
{
	struct sim_plan *p = &w->plan;
	struct rng *r = &w->rng;
	u32 tokens = (u32)(w->cfg.pool_bytes / MIN_TOKEN_BYTES);
	u32 most = 2460;

	if (w->cfg.pool_bytes < (1u << 19))
		most = min(most / 2, max(24u, tokens / rng_range(r, 1, 8)));
	p->nr_events = rng_range(r, 100, 600);
	p->max_live = rng_range(r, 1, w->cfg.max_clients);
	p->nr_roots = rng_range(r, 1, 4);
	p->branch_every = PICK(r, 5, 16, 24, 40);
	p->nr_salts = PICK(r, 1, 1, 2, 3);
	p->max_prompt = most;
	p->max_gen = PICK(r, 4, 16, 40, 80);
	p->create_fail = PICK(r, 0, 0, 50, 300);
	p->death = PICK(r, 0, 5, 15, 40);
	p->hang = PICK(r, 0, 0, 5, 20);
	p->bad = PICK(r, 0, 20, 60);
	p->fork = PICK(r, 0, 50, 150, 300);
	p->cancel = PICK(r, 0, 30, 150);
	p->flags = PICK(r, 0, 0, 100, 300);
	p->ghost = PICK(r, 0, 0, 0, 700);
	p->quantum = PICK(r, 1000, 100000, 3000000);
	p->prios = rng_chance(r, 400);
	/* Not drawn: other seeds do not change. */
	p->whole = mix2(w->seed, 12) % 8 < 2 ? 600 : 0;
	if (!p->wide)
		return;
	/* Prefixes that are shared for more than a block, and answers over its end. */
	p->max_prompt = PICK(r, 2400, 5000, SIM_TOKENS - 1000);
	p->max_gen = PICK(r, 40, 80, 900);
	p->branch_every = PICK(r, 40, 500, 900, 1700);
}

/* Draw delays and failures of the lower tiers. */
static void draw_moves(struct sim *w)
{
	struct sim_plan *p = &w->plan;
	struct rng *r = &w->rng;

	p->prefill_ns = PICK(r, 10, 10000, 100000, 1000000, 0);
	p->advise = PICK(r, 0, 0, 10, 40);
	p->answer = PICK(r, 50, 150, 300, 500);
	p->early = PICK(r, 0, 300, 700, 1000);
	p->lease = PICK(r, 0, 10, 30, 80);
	w->cfg.lease_ms = PICK(r, 100, 2000, 600000);
	w->cfg.lease_percent = PICK(r, 10, 50, 100);
	p->copy_fail = PICK(r, 0, 0, 0, 20, 150);
	p->io_fail = PICK(r, 0, 0, 0, 20, 150);
	p->damage = PICK(r, 0, 0, 30, 200);
	p->swapd_death = PICK(r, 0, 0, 10, 40);
	p->areas = PICK(r, 0, 5, 20, 60);
	p->stall = PICK(r, 0, 0, 0, 30);
	p->stall_ns = rng_range(r, 100, 1500) * SIM_MS;
	p->operator = PICK(r, 0, 0, 5, 30);
	w->cfg.io_deadline_ns = PICK(r, 0, 50, 200, 800) * SIM_MS;
}

/**
 * plan_draw() - draw the configuration, the domains and the load of a seed
 *
 * Context: the world is cleared, its generator seeded.
 */
void plan_draw(struct sim *w)
{
	u32 nr_tenants, i;

	draw_config(w);
	draw_wide(w);
	draw_pools(w);
	draw_load(w);
	draw_moves(w);
	nr_tenants = rng_chance(&w->rng, 600) ? 1 :
		     rng_range(&w->rng, 2, SIM_TENANTS);
	w->plan.nr_domains = rng_range(&w->rng, 1, SIM_DOMAINS);
	for (i = 0; i < w->plan.nr_domains; i++)
		draw_domain(w, i, nr_tenants);
}
