// SPDX-License-Identifier: Apache-2.0
/*
 * tenants.c - resources in use by each tenant, and the table of tenants
 *
 * A user's place in the table is given to another user when that is needed and
 * it has no client; each --tenant has a place of its own (conn/tenant.c).
 *
 * Context: control thread.
 */
#include "kvmm/ipc/clients/clients.h"

/* tenant_clients() - attached clients that have not detached and hung up */
u32 tenant_clients(const struct clients *cs, u64 key)
{
	const struct list *l;
	u32 nr = 0;

	for (l = cs->attached.next; l != &cs->attached; l = l->next) {
		const struct client *c = list_entry(l, struct client, node);

		nr += c->key == key && c->stage != CLIENT_LINGERING;
	}
	return nr;
}

static u32 open_conns(const struct list *head, u64 key)
{
	const struct list *l;
	u32 nr = 0;

	for (l = head->next; l != head; l = l->next) {
		const struct client *c = list_entry(l, struct client, node);

		nr += c->key == key && c->sock.fd >= 0;
	}
	return nr;
}

/* tenant_readers() - connections to view sockets, but those that wait for a trigger */
u32 tenant_readers(const struct clients *cs, u64 key)
{
	const struct list *l;
	u32 nr = 0;

	for (l = cs->readers.next; l != &cs->readers; l = l->next) {
		const struct reader *r = list_entry(l, struct reader, node);

		nr += r->key == key && !r->waits;
	}
	return nr;
}

/* tenant_conns() - connections of all kinds */
u32 tenant_conns(const struct clients *cs, u64 key)
{
	return open_conns(&cs->greeting, key) + open_conns(&cs->attached, key) +
	       tenant_readers(cs, key);
}

/* tenant_flying() - descriptors that its clients have not acknowledged */
u32 tenant_flying(const struct clients *cs, u64 key)
{
	const struct list *l;
	u32 nr = 0;

	for (l = cs->attached.next; l != &cs->attached; l = l->next) {
		const struct client *c = list_entry(l, struct client, node);

		if (c->key == key && c->stage == CLIENT_ATTACHED)
			nr += c->nr_flying;
	}
	return nr;
}

/* ---- the table ---- */

/* tenant_find() - NULL: it is not in the table */
struct tenant *tenant_find(struct clients *cs, u64 key)
{
	u32 i;

	for (i = 0; i < cs->setup->cfg.max_tenants; i++)
		if (cs->tenants[i].used && cs->tenants[i].key == key)
			return &cs->tenants[i];
	return NULL;
}

/* A place for a new tenant; those of users come after those of --tenant. */
static struct tenant *tenant_place(struct clients *cs, u64 key)
{
	struct tenant *t, *take = NULL;
	u32 i;

	if (key & TENANT_NAMED)
		return &cs->tenants[(u32)key];
	for (i = cs->sockets->nr_doors; i < cs->setup->cfg.max_tenants; i++) {
		t = &cs->tenants[i];
		if (!t->used)
			return t;
		if (!take && !tenant_clients(cs, t->key))
			take = t;
	}
	return take;
}

/**
 * tenant_get() - the tenant of a key, new if need be
 * Return: NULL when all places are those of users that have clients.
 */
struct tenant *tenant_get(struct clients *cs, u64 key)
{
	struct tenant *t = tenant_find(cs, key);

	if (t)
		return t;
	t = tenant_place(cs, key);
	if (!t)
		return NULL;
	t->key = key;
	t->refused = 0;
	t->used = true;
	return t;
}

/* tenant_get_info() - proc_source.tenant_info */
int tenant_get_info(struct clients *cs, u64 key, struct proc_tenant_info *info)
{
	const struct tenant_quota *q = tenant_quota(cs->sockets, key);
	const struct tenant *t = tenant_find(cs, key);


	tenant_name(cs->sockets, key, info->name);
	info->socket = tenant_path(cs->sockets, key);
	info->clients = tenant_clients(cs, key);
	info->conns = tenant_conns(cs, key);
	info->fds = tenant_flying(cs, key);
	info->refused = t ? t->refused : 0;
	info->max_clients = q->clients;
	info->max_conns = q->conns;
	info->max_domains = q->domains;
	info->max_fds = q->fds;
	info->max_min = q->min;
	info->max_weight = q->weight;
	return 0;
}
