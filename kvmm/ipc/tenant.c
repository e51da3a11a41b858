// SPDX-License-Identifier: Apache-2.0
/*
 * tenant.c - who a connection is, and what that one may have
 *
 * A tenant is a --tenant, by the socket that it connected to, or a user.  Its
 * key says which, and is the same in every life of the daemon.  A user's place
 * in the table is another's when that is needed and it has no client; each
 * --tenant has a place of its own.
 *
 * What it may have is told here and judged where it is asked for: connections
 * and clients in attach.c, greeting.c and view.c, descriptors in send.c, domains
 * and marks in the core.
 *
 * Context: control thread.
 */
#include <inttypes.h>
#include <stdio.h>

#include "kvmm/ipc/daemon.h"

/* tenant_clients() - attached, and not gone but for a moment's waiting */
u32 tenant_clients(const struct daemon *d, u64 key)
{
	const struct list *l;
	u32 nr = 0;

	for (l = d->attached.next; l != &d->attached; l = l->next) {
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

/* tenant_conns() - connections, whatever they are for */
u32 tenant_conns(const struct daemon *d, u64 key)
{
	return open_conns(&d->greeting, key) + open_conns(&d->attached, key) +
	       view_count(d, key);
}

/* tenant_flying() - descriptors that its clients have not acknowledged */
u32 tenant_flying(const struct daemon *d, u64 key)
{
	const struct list *l;
	u32 nr = 0;

	for (l = d->attached.next; l != &d->attached; l = l->next) {
		const struct client *c = list_entry(l, struct client, node);

		if (c->key == key && c->stage == CLIENT_ATTACHED)
			nr += c->nr_flying;
	}
	return nr;
}

/* ---- the table ---- */

struct tenant *tenant_find(struct daemon *d, u64 key)
{
	u32 i;

	for (i = 0; i < d->setup.cfg.max_tenants; i++)
		if (d->tenants[i].used && d->tenants[i].key == key)
			return &d->tenants[i];
	return NULL;
}

/* A place for who is not there: users' come after those with names. */
static struct tenant *tenant_place(struct daemon *d, u64 key)
{
	struct tenant *t, *take = NULL;
	u32 i;

	if (key & TENANT_NAMED)
		return &d->tenants[(u32)key];
	for (i = d->sockets.nr_doors; i < d->setup.cfg.max_tenants; i++) {
		t = &d->tenants[i];
		if (!t->used)
			return t;
		if (!take && !tenant_clients(d, t->key))
			take = t;
	}
	return take;
}

/**
 * tenant_get() - the tenant of a key, new if need be
 * Return: NULL when all places are those of users that have clients.
 */
struct tenant *tenant_get(struct daemon *d, u64 key)
{
	struct tenant *t = tenant_find(d, key);

	if (t)
		return t;
	t = tenant_place(d, key);
	if (!t)
		return NULL;
	t->key = key;
	t->refused = 0;
	t->used = true;
	return t;
}

/* tenant_get_info() - for the files of operators; @arg: the daemon */
int tenant_get_info(void *arg, u64 key, struct proc_tenant_info *info)
{
	struct daemon *d = arg;
	const struct tenant_quota *q = tenant_quota(&d->sockets, key);
	const struct tenant *t = tenant_find(d, key);


	tenant_name(&d->sockets, key, info->name);
	info->socket = tenant_path(&d->sockets, key);
	info->clients = tenant_clients(d, key);
	info->conns = tenant_conns(d, key);
	info->fds = tenant_flying(d, key);
	info->refused = t ? t->refused : 0;
	info->max_clients = q->clients;
	info->max_conns = q->conns;
	info->max_domains = q->domains;
	info->max_fds = q->fds;
	info->max_min = q->min;
	info->max_weight = q->weight;
	return 0;
}
