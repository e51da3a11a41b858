// SPDX-License-Identifier: Apache-2.0
/*
 * domains.c - limits that the options give to domains
 *
 * A --domain names a domain of a tenant.  The domain gets the limits when it is made,
 * as if an operator had set them then.  A domain that is there already keeps
 * its limits: it was adopted, and an operator may have changed them since.
 *
 * kvmm-hold changes the table when the file of options has changed (admin/limits.c).
 *
 * Context: control thread, but for the functions that get the core.
 */
#include <kvmm/log.h>

#include "kvmm/ipc/clients/clients.h"

static_assert((u32)NR_DOMAIN_KEYS == (u32)CORE_NR_LIMITS, "a key for each limit");
#define x(mark, ...) static_assert((u32)DOMAIN_KEY_##mark == (u32)CORE_LIMIT_##mark, "one order");
DOMAIN_KEYS(x)
#undef x

/**
 * domains_key() - key of the tenant that a --domain names
 * Return: false: there is no such tenant.
 */
bool domains_key(const struct clients *cs, const struct domain_opt *o, u64 *key)
{
	*key = cs->setup->own_uid;
	return !*o->tenant || tenant_by_name(cs->sockets, o->tenant, key);
}

static struct domain_limits *domains_entry(struct clients *cs, u64 key,
					   const char *name)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cs->limits); i++)
		if (cs->limits[i].used && cs->limits[i].key == key &&
		    !strncmp(cs->limits[i].opt.name, name, KVMM_NAME_LEN))
			return &cs->limits[i];
	return NULL;
}

/* domains_find() - the limits of a domain, or NULL */
const struct domain_opt *domains_find(struct clients *cs, u64 key,
				      const char *name)
{
	const struct domain_limits *l = domains_entry(cs, key, name);

	return l ? &l->opt : NULL;
}

/**
 * domains_put() - take limits for domains that are made from now on
 * @o: without a key: the domain gets none
 *
 * Return: 0, or -ENOSPC.
 */
int domains_put(struct clients *cs, u64 key, const struct domain_opt *o)
{
	struct domain_limits *l = domains_entry(cs, key, o->name);
	u32 i;

	if (!l && !o->given)
		return 0;
	for (i = 0; !l && i < ARRAY_SIZE(cs->limits); i++)
		if (!cs->limits[i].used)
			l = &cs->limits[i];
	if (!l)
		return -ENOSPC;
	*l = (struct domain_limits){ .used = o->given, .key = key, .opt = *o };
	return 0;
}

/**
 * domains_options() - read every --domain; tenants are known
 * Return: 0, or -EINVAL, which has been logged.
 */
int domains_options(struct clients *cs)
{
	const struct kv_list *list = &cs->setup->opt.domains;
	struct domain_opt o;
	char why[256];
	u64 key;
	u32 i;

	for (i = 0; i < list->nr; i++) {
		if (domain_opt_parse(&o, list->s[i], why, sizeof(why))) {
			pr_err("%s", why);
			return -EINVAL;
		}
		if (!domains_key(cs, &o, &key))
			pr_warn("domain = %s: there is no tenant %s: add tenant = %s, or give the number of a user",
				list->s[i], o.tenant, o.tenant);
		else if (domains_put(cs, key, &o))
			return -EINVAL;
	}
	return 0;
}

/* ---- on the mm thread ---- */

/* domains_known() - number of the domain, or CORE_NONE */
u32 domains_known(struct core *core, u64 key, const char *name)
{
	const u32 tenant = core_find_tenant(core, key);
	struct core_domain_view v;
	u32 i;
	int err;

	for (i = 0; (err = core_get_domain(core, i, &v)) != -ERANGE; i++)
		if (!err && v.tenant == tenant &&
		    !strncmp(v.name, name, sizeof(v.name)))
			return i;
	return CORE_NONE;
}

/**
 * domains_set() - give a domain limits
 * @marks: those of @o that count, a bit each
 * @begin: it was just made
 *
 * Return: marks that the core refused.
 */
u32 domains_set(struct core *core, u32 domain, const struct domain_opt *o,
		u32 marks, bool begin)
{
	int (*set)(struct core *core, u64 now, u32 domain, u32 which, u64 value) =
		begin ? core_domain_begin : core_domain_set;
	u32 i, refused = 0;

	for (i = 0; i < CORE_NR_LIMITS; i++)
		if ((o->given & marks & BIT(i)) &&
		    set(core, kv_now_ns(), domain, i, o->limit[i]))
			refused |= BIT(i);
	return refused;
}
