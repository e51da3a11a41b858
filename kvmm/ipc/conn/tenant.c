// SPDX-License-Identifier: Apache-2.0
/*
 * tenant.c - the tenant of a connection: its key, its name, its quota
 *
 * A tenant is a --tenant, by the socket that its processes connect to, or a
 * user.  Its key says which, and is the same in every life of the daemon.
 *
 * The quota is judged where resources are given: connections and clients in
 * clients/attach.c, clients/greeting.c and view/view.c, descriptors in
 * clients/send.c, domains and marks in the core.
 *
 * Context: control thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvmm/ipc/conn/conn.h"

static const struct door *door_of(const struct sockets *s, u64 key)
{
	return key & TENANT_NAMED ? &s->doors[(u32)key] : NULL;
}

/* tenant_key() - of user @uid, which connected to the listening socket @w */
u64 tenant_key(const struct sockets *s, const struct watch *w, uid_t uid)
{
	u32 i;

	for (i = 0; i < s->nr_doors; i++)
		if (w == &s->doors[i].attach || w == &s->doors[i].view)
			return TENANT_NAMED | i;
	return uid;
}

/* tenant_by_name() - find a --tenant by its name, a user by the number */
bool tenant_by_name(const struct sockets *s, const char *name, u64 *key)
{
	char buf[TENANT_TEXT];
	char *end;
	u32 i;

	for (i = 0; i < s->nr_doors; i++) {
		*key = TENANT_NAMED | i;
		if (!strcmp(tenant_name(s, *key, buf), name))
			return true;
	}
	errno = 0;
	*key = strtoull(name, &end, 10);
	return *name >= '0' && *name <= '9' && !*end && !errno &&
	       *key < (uid_t)-1;
}

/**
 * tenant_name() - the name of a --tenant, or the number of a user
 * @buf: TENANT_TEXT bytes
 */
const char *tenant_name(const struct sockets *s, u64 key, char *buf)
{
	const struct door *door = door_of(s, key);

	if (door)
		snprintf(buf, TENANT_TEXT, "%s", door->opt.name);
	else
		snprintf(buf, TENANT_TEXT, "%" PRIu64, key);
	return buf;
}

/* tenant_path() - the attach socket of its clients */
const char *tenant_path(const struct sockets *s, u64 key)
{
	const struct door *door = door_of(s, key);

	return door ? door->attach_addr.sun_path : s->attach_addr.sun_path;
}

const struct tenant_quota *tenant_quota(const struct sockets *s, u64 key)
{
	const struct door *door = door_of(s, key);

	if (door)
		return &door->opt.keys.quota;
	return !key || key == s->setup->own_uid ? &s->own_quota :
						  &s->user_quota;
}

/* tenant_core_quota() - the part of the quota that the core judges */
void tenant_core_quota(const struct sockets *s, u64 key, struct core_quota *q)
{
	const struct tenant_quota *t = tenant_quota(s, key);

	*q = (struct core_quota){
		.named		= !!(key & TENANT_NAMED),
		.max_domains	= t->domains,
		.max_min	= t->min,
		.max_weight	= t->weight,
	};
}
