// SPDX-License-Identifier: Apache-2.0
/*
 * tenant.c - tenants, which never see each other
 *
 * The key of a tenant comes from the shell, which knows the socket and the peer.
 * The shell also gives its limits (core_quota), anew at each attach.  The record
 * is made with the tenant's first domain.  It outlives the tenant's clients as
 * long as anything of the tenant is left: domains, which stay warm for a
 * restarted runtime, extents, and lingering processes.
 *
 * Records of tenants and domains can run out.  Then an idle one is dropped, the
 * longest unused first, but a domain without cache before one that has some.  For
 * a new domain that is a domain of the same tenant if it has an idle one, else of
 * the tenant with the most domains.  So no user can drop the caches of other users
 * by making names.  A tenant is dropped whole, with its idle domains and its memory.
 * Tenants that an operator named have records of their own, which no number of
 * other users can take.
 *
 * This file writes kv_tenant, but for counts that belong to other files.
 */
#include "kvmm/core/share/share.h"

/* core_find_tenant() - the record of a key, or CORE_NONE */
u32 core_find_tenant(const struct core *c, u64 key)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_tenants; i++)
		if (c->tenants[i].used && c->tenants[i].key == key)
			return i;
	return CORE_NONE;
}

/* Can the extents of @t be released as they are? */
static bool tenant_extents_idle(const struct core *c, u32 t)
{
	u32 e;

	for (e = 0; e < core_sizes(c)->nr_extents; e++) {
		const struct kv_extent *x = &c->extents[e];

		if (x->backed && x->tenant == t &&
		    (x->want || revoke_needed(c, e) ||
		     (x->state != EXT_BACKED && x->state != EXT_SPAN)))
			return false;
	}
	return true;
}

/* Is the tenant without clients, lingering processes and sequences? */
static bool tenant_idle(const struct core *c, u32 t)
{
	u32 i;

	if (!c->tenants[t].used || c->tenants[t].nr_clients ||
	    c->tenants[t].ghosts)
		return false;
	for_each_domain(c, i)
		if (c->domains[i].tenant == t &&
		    !domain_idle(c, &c->domains[i]))
			return false;
	return tenant_extents_idle(c, t);
}

/*
 * A record for a new tenant: an unused one, else an idle one, else CORE_NONE.
 */
static u32 tenant_slot(const struct core *c, bool named)
{
	u32 max = core_cfg(c)->max_tenants, users = 0, i;
	u32 idle = CORE_NONE, unused = CORE_NONE;

	for (i = 0; i < max; i++) {
		const struct kv_tenant *t = &c->tenants[i];

		users += t->used && !t->quota.named;
		if (!t->used)
			unused = min(unused, i);
		else if (t->quota.named == named && tenant_idle(c, i) &&
			 (idle == CORE_NONE || t->left < c->tenants[idle].left))
			idle = i;
	}
	if (!named && users >= max - core_cfg(c)->named_tenants)
		return idle;
	return unused != CORE_NONE ? unused : idle;
}

/* Drop an idle tenant. */
static void tenant_drop(struct core *c, u32 t)
{
	u32 i;

	KV_BUG_ON(!c->tenants[t].used || c->tenants[t].nr_clients);
	KV_BUG_ON(c->tenants[t].ghosts);
	for_each_domain(c, i)
		if (c->domains[i].tenant == t)
			domain_drop(c, i);
	KV_BUG_ON(c->tenants[t].nr_domains || !c->head->nr_tenants);
	for (i = 0; i < core_sizes(c)->nr_extents; i++)
		if (c->extents[i].backed && c->extents[i].tenant == t)
			extent_release(c, i);
	c->tenants[t].used = 0;
	core_order();		/* the record may be used again at once */
	c->head->nr_tenants--;
}

/* Is less lost with idle domain @a than with @b?  One without cache in any tier goes first. */
static bool domain_is_less(const struct kv_domain *a, const struct kv_domain *b)
{
	if ((a->roots == CORE_NONE) != (b->roots == CORE_NONE))
		return a->roots == CORE_NONE;
	return a->left < b->left;
}

/* The longest unused idle domain of @t, if possible one without cache; or CORE_NONE. */
static u32 idle_domain_of(const struct core *c, u32 t)
{
	u32 best = CORE_NONE, i;

	for_each_domain(c, i) {
		const struct kv_domain *d = &c->domains[i];

		if (d->tenant == t && domain_idle(c, d) &&
		    (best == CORE_NONE || domain_is_less(d, &c->domains[best])))
			best = i;
	}
	return best;
}

/* The longest unused idle domain of the tenant with the most domains. */
static u32 idle_domain_of_most(const struct core *c)
{
	u32 best = CORE_NONE, most = 0, i;

	for (i = 0; i < core_cfg(c)->max_tenants; i++) {
		const struct kv_tenant *t = &c->tenants[i];
		u32 dom;

		if (!t->used || t->nr_domains <= most)
			continue;
		dom = idle_domain_of(c, i);
		if (dom == CORE_NONE)
			continue;
		best = dom;
		most = t->nr_domains;
	}
	return best;
}

/**
 * tenant_domain_slot() - a record for a new domain
 * @t:   its tenant; CORE_NONE: a new tenant
 * @max: number of domains that the tenant may have
 *
 * Return: a record that is unused, or idle and to be dropped; or CORE_NONE.
 */
u32 tenant_domain_slot(const struct core *c, u32 t, u32 max)
{
	u32 own = t == CORE_NONE ? CORE_NONE : idle_domain_of(c, t);
	u32 i;

	KV_BUG_ON(t != CORE_NONE && !c->tenants[t].used);
	if (t != CORE_NONE && c->tenants[t].nr_domains >= max)
		return own;
	for (i = 0; i < core_cfg(c)->max_domains; i++)
		if (!c->domains[i].used)
			return i;
	return own != CORE_NONE ? own : idle_domain_of_most(c);
}

/**
 * tenant_may_have() - may the tenant have one more domain?
 * @text: gets the reason if not
 *
 * Return: 0; -ENOSPC: there is no record; -EDQUOT: the tenant has as many as it
 * may.
 */
int tenant_may_have(const struct core *c, const struct tenant_who *who,
		    const char **text)
{
	u32 t = core_find_tenant(c, who->key);

	if (t == CORE_NONE && tenant_slot(c, who->quota->named) == CORE_NONE) {
		*text = "as many tenants as --max-tenants allows are in use";
		return -ENOSPC;
	}
	if (tenant_domain_slot(c, t, who->quota->max_domains) != CORE_NONE)
		return 0;
	if (t != CORE_NONE &&
	    c->tenants[t].nr_domains >= who->quota->max_domains) {
		*text = "this tenant has as many domains in use as it may: use one of their names, or end a client of one";
		return -EDQUOT;
	}
	*text = "as many domains as --max-domains allows are in use";
	return -ENOSPC;
}

/* tenant_make() - make a tenant; tenant_may_have() said that it can be */
u32 tenant_make(struct core *c, const struct tenant_who *who)
{
	u32 i = tenant_slot(c, who->quota->named);
	struct kv_tenant *t = &c->tenants[i];

	KV_BUG_ON(i == CORE_NONE);
	if (t->used)
		tenant_drop(c, i);
	memset(t, 0, sizeof(*t));
	t->key = who->key;
	t->quota = *who->quota;
	memcpy(t->secret, who->secret, CORE_SECRET_LEN);
	core_crash(c, CORE_CRASH_tenant_make);
	t->used = 1;
	KV_BUG_ON(c->head->nr_tenants >= core_cfg(c)->max_tenants);
	c->head->nr_tenants++;
	return i;
}

/* Tenant @i: -ERANGE past the last, -ENOENT for an unused record. */
int core_get_tenant(const struct core *c, u32 i, struct core_tenant_view *v)
{
	const struct kv_tenant *t;
	u32 n;

	if (i >= core_cfg(c)->max_tenants)
		return -ERANGE;
	t = &c->tenants[i];
	if (!t->used)
		return -ENOENT;
	*v = (struct core_tenant_view){
		.id = i, .key = t->key, .nr_clients = t->nr_clients,
		.nr_domains = t->nr_domains, .nr_ghosts = t->ghosts,
		.min_bytes = min(t->asked[0], t->quota.max_min),
		.drain = drain_of_tenant(c, i),
	};
	for (n = 0; n < core_sizes(c)->nr_extents; n++)
		if (c->extents[n].backed && c->extents[n].tenant == i)
			v->backed_bytes += core_cfg(c)->extent_size;
	for_each_domain(c, n) {
		const struct kv_domain *d = &c->domains[n];

		if (d->tenant == i)
			v->current_bytes += domain_used(d) * domain_payload(d);
	}
	return 0;
}
