// SPDX-License-Identifier: Apache-2.0
/*
 * greeting.c - who has connected and not asked yet
 *
 * They cost a connection each and nobody knows what for, so there are few, of
 * each tenant and in all, and none for long (GREETING_MS).  When there are as
 * many, those that asked meanwhile are served, and then the one that has said
 * nothing for the longest time gives way to the new one: whoever connects and is
 * mute keeps nobody out.  In all, one of the tenant goes that has most of them.
 *
 * Context: control thread.
 */
#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

static u32 greeting_of(const struct daemon *d, u64 key)
{
	const struct list *l;
	u32 nr = 0;

	for (l = d->greeting.next; l != &d->greeting; l = l->next)
		nr += list_entry(l, struct client, node)->key == key;
	return nr;
}

/* Read on from those of @key: most have hung up, or asked meanwhile. */
static void greeting_sweep(struct daemon *d, u64 key)
{
	struct list *l, *tmp;

	list_for_each(&d->greeting, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		if (c->key == key)
			client_greet(d, c);
	}
}

/* The tenant that has most of them, of equal ones the one first come. */
static u64 greeting_most(const struct daemon *d)
{
	const struct list *l;
	u32 most = 0;
	u64 key = 0;

	for (l = d->greeting.next; l != &d->greeting; l = l->next) {
		const struct client *c = list_entry(l, struct client, node);
		u32 nr = greeting_of(d, c->key);

		if (nr <= most)
			continue;
		most = nr;
		key = c->key;
	}
	return key;
}

/* The oldest of @key; they stand in the order in which they came. */
static void greeting_drop(struct daemon *d, u64 key)
{
	struct list *l, *tmp;

	list_for_each(&d->greeting, l, tmp) {
		struct client *c = list_entry(l, struct client, node);

		if (c->key != key)
			continue;
		if (log_allowed())
			pr_warn("%s (pid %d, uid %u) connected and said nothing: its connection gives way to a newer one",
				c->info.comm, (int)c->info.pid, c->uid);
		client_drop(d, c);
		return;
	}
}

/* May one more connection of the tenant wait to attach? */
static bool greeting_full(const struct daemon *d, u64 key)
{
	u32 nr = greeting_of(d, key);

	return nr >= MAX_GREETING_TENANT ||
	       (nr && tenant_conns(d, key) >= tenant_quota(&d->sockets, key)->conns);
}

/**
 * greeting_make_room() - before one more connection of a tenant is taken in
 *
 * What it may not have beyond those is told when it attaches.
 */
void greeting_make_room(struct daemon *d, u64 key)
{
	if (greeting_full(d, key))
		greeting_sweep(d, key);
	while (greeting_full(d, key))
		greeting_drop(d, key);
	if (d->nr_greeting >= MAX_GREETING)
		greeting_sweep(d, greeting_most(d));
	while (d->nr_greeting >= MAX_GREETING)
		greeting_drop(d, greeting_most(d));
}
