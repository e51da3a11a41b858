// SPDX-License-Identifier: Apache-2.0
/*
 * greeting.c - connections without an attach request
 *
 * Such a connection costs a descriptor and has no known purpose, so there are
 * few, of each tenant and in all, and none for long (GREETING_MS).  When there
 * are as many, those that have sent their request meanwhile are served, and
 * then the one that has been silent for the longest time gives way to the new
 * one: a peer that connects and is mute keeps no other out.  Of those in all,
 * one of the tenant that has most of them gives way.
 *
 * Context: control thread.
 */
#include <kvmm/log.h>

#include "kvmm/ipc/clients/clients.h"

/* client_greet() - read the request of a connection that has not attached */
void client_greet(struct clients *cs, struct client *c)
{
	struct kvmm_attach_req req;
	ssize_t n = sock_recv(c->sock.fd, &req, sizeof(req));

	if (n == -EAGAIN)
		return;
	if (n != sizeof(req) || req.magic != KVMM_ATTACH_MAGIC) {
		if (n && n != -ECONNRESET && log_allowed())
			pr_warn("%s (pid %d, uid %u) sent no attach request: its connection is closed",
				c->info.comm, (int)c->info.pid, c->uid);
		client_drop(cs, c);
		return;
	}
	if (req.flags & KVMM_ATTACH_RESUME)
		resume_request(cs, c, &req);
	else if (req.flags == KVMM_ATTACH_ASK)
		attach_answer(cs, c, &req);
	else
		attach_request(cs, c, &req);
}

static u32 greeting_of(const struct clients *cs, u64 key)
{
	const struct list *l;
	u32 nr = 0;

	for (l = cs->greeting.next; l != &cs->greeting; l = l->next)
		nr += list_entry(l, struct client, node)->key == key;
	return nr;
}

/* Read from connections of @key: most have hung up, or asked meanwhile. */
static void greeting_sweep(struct clients *cs, u64 key)
{
	struct list *l, *tmp;

	list_for_each(&cs->greeting, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		if (c->key == key)
			client_greet(cs, c);
	}
}

/* The tenant that has most of them; of equal ones that of the oldest. */
static u64 greeting_most(const struct clients *cs)
{
	const struct list *l;
	u32 most = 0;
	u64 key = 0;

	for (l = cs->greeting.next; l != &cs->greeting; l = l->next) {
		const struct client *c = list_entry(l, struct client, node);
		u32 nr = greeting_of(cs, c->key);

		if (nr <= most)
			continue;
		most = nr;
		key = c->key;
	}
	return key;
}

/* Close the oldest of @key; the list is in the order in which they came. */
static void greeting_drop(struct clients *cs, u64 key)
{
	struct list *l, *tmp;

	list_for_each(&cs->greeting, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		if (c->key != key)
			continue;
		if (log_allowed())
			pr_warn("%s (pid %d, uid %u) connected and said nothing: its connection gives way to a newer one",
				c->info.comm, (int)c->info.pid, c->uid);
		client_drop(cs, c);
		return;
	}
}

/* May one more connection of the tenant wait to attach? */
static bool greeting_full(const struct clients *cs, u64 key)
{
	u32 nr = greeting_of(cs, key);

	return nr >= MAX_GREETING_TENANT ||
	       (nr && tenant_conns(cs, key) >= tenant_quota(cs->sockets, key)->conns);
}

/**
 * greeting_make_room() - before one more connection of a tenant is taken in
 *
 * Other quotas are judged when it attaches.
 */
void greeting_make_room(struct clients *cs, u64 key)
{
	if (greeting_full(cs, key))
		greeting_sweep(cs, key);
	while (greeting_full(cs, key))
		greeting_drop(cs, key);
	if (cs->nr_greeting >= MAX_GREETING)
		greeting_sweep(cs, greeting_most(cs));
	while (cs->nr_greeting >= MAX_GREETING)
		greeting_drop(cs, greeting_most(cs));
}
