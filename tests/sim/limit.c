// SPDX-License-Identifier: Apache-2.0
/*
 * limit.c - memory that domains are promised, and that no other domain takes
 *
 * Marks are drawn with the domains, and an operator changes them during the
 * seed.  The use of a domain, with its reservations, falls below its memory.min
 * only by the domain's own acts: never in an event in which a client of another
 * domain asks for something.
 */
#include "tests/sim/sim.h"

/* Draw the marks of a domain. */
void limit_draw(struct sim *w, struct kvmm_attach_req *req)
{
	struct kvmm_limits *l = &req->limits[0];
	struct rng *r = &w->rng;
	u64 pool = w->cfg.pool_bytes;

	req->weight = PICK(r, 100, 100, 100, 1, 300, 10000);
	if (rng_chance(r, 300))
		l->min = pool / rng_range(r, 2, 8);
	if (rng_chance(r, 300))
		l->low = pool / rng_range(r, 2, 8);
	l->high = rng_chance(r, 200) ? pool / rng_range(r, 2, 4) :
				       KVMM_LIMIT_MAX;
	if (rng_chance(r, 100))
		req->limits[1].max = w->cfg.host_bytes / 2 + 1;
}

/* An operator changes a mark. */
void limit_act(struct sim *w)
{
	struct rng *r = &w->rng;
	u32 dom = rng_below(r, w->cfg.max_domains + 1);
	u32 which = rng_below(r, CORE_NR_LIMITS + 1);
	u64 value = w->cfg.pool_bytes / rng_range(r, 1, 8);
	struct core_domain_view v;
	bool there = !core_get_domain(w->core, dom, &v);
	int err;

	/* Clients would have to be told which sequences fit; check_core_limit does it. */
	if (which == CORE_LIMIT_MAX)
		return;
	if (which == CORE_LIMIT_WEIGHT)
		value = rng_range(r, 0, 10001);
	else if (which == CORE_LIMIT_WRITETHROUGH)
		value = rng_below(r, 3);
	else if (rng_chance(r, 300))
		value = which == CORE_LIMIT_HIGH ? KVMM_LIMIT_MAX : 0;
	err = core_domain_set(w->core, w->now, dom, which, value);
	LOG(w, "operator: mark %u of domain %u to %llu: %d", which, dom,
	    (unsigned long long)value, err);
	if (dom >= w->cfg.max_domains)
		LAW(w, err == -ERANGE, "domain %u is set: %d", dom, err);
	else if (!there)
		LAW(w, err == -ENOENT, "unused domain %u is set: %d", dom, err);
	else if (which == CORE_NR_LIMITS || (which == CORE_LIMIT_WEIGHT &&
		 (!value || value > CORE_WEIGHT_MAX)) ||
		 (which == CORE_LIMIT_WRITETHROUGH && value > 1))
		LAW(w, err == -EINVAL, "mark %u to %llu: %d", which,
		    (unsigned long long)value, err);
	else
		LAW(w, !err, "mark %u to %llu: %d", which,
		    (unsigned long long)value, err);
}

/*
 * Cache within memory.min is kept from other domains as long as a client of the
 * domain is attached.  So that all sequences can end, the operator takes back
 * every memory.min.
 */
void limit_lift_all(struct sim *w)
{
	u32 i;

	for (i = 0; i < w->cfg.max_domains; i++) {
		(void)!core_domain_set(w->core, w->now, i, CORE_LIMIT_MIN, 0);
		w->limit[i].kept = 0;
	}
}

static u64 domain_use(const struct core_domain_view *v)
{
	return v->current_bytes + v->reserved * v->block_bytes;
}

/*
 * Check the use of each domain, after every event.  A domain whose own request waits
 * for copies has evicted cache for it, and takes the blocks when the copies end.
 */
void laws_limits(struct sim *w)
{
	struct core_domain_view v;
	u32 i;

	for (i = 0; i < w->cfg.max_domains; i++) {
		struct sim_limit *was = &w->limit[i];
		u64 use, own;

		if (core_get_domain(w->core, i, &v)) {
			memset(was, 0, sizeof(*was));
			continue;
		}
		use = domain_use(&v);
		LAW(w, use + was->slack >= min(was->use, was->kept) ||
		    w->actor_domain == CORE_NONE || w->actor_domain == i ||
		    v.demoting,
		    "domain %u has %llu bytes, had %llu and was promised %llu: taken for domain %u",
		    i, (unsigned long long)use, (unsigned long long)was->use,
		    (unsigned long long)was->kept, w->actor_domain);
		was->use = use;
		/*
		 * The domain's own high and max may take its use lower.  An
		 * admission of its own makes room for more than it takes: two
		 * blocks for each sequence that runs then.
		 */
		own = min(v.emin_bytes, min(v.limit[CORE_LIMIT_HIGH],
					    v.limit[CORE_LIMIT_MAX]));
		was->kept = own;
		was->slack = (2 * (v.nr_running + v.nr_waiting) + 1) *
			     v.block_bytes;
	}
	w->actor_domain = CORE_NONE;
}
