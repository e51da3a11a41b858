// SPDX-License-Identifier: Apache-2.0
/*
 * daemon.c - a daemon that has not started
 *
 * Each room gets the rooms below that it works with.  From here on the end can
 * be called, however far a start came: a descriptor that is not open is -1, a
 * thread that does not run is stopped, lists are empty.  kvmm and the fuzz
 * targets begin with this.
 */
#include <stdlib.h>
#include <unistd.h>

#include "kvmm/ipc/daemon.h"

static void no_descriptors(struct daemon *d)
{
	deposit_none(&d->deposit);
	d->setup.host.fd = -1;
	d->setup.arena_fd = -1;
	d->link.shm = -1;
	d->link.sock.fd = -1;
	d->swap.req_bell = -1;
	d->swap.cpl_bell = -1;
	d->events.listen.fd = -1;
	d->events.replay.fd = -1;
	d->events.sleeper.bell = -1;
	d->sockets.attach.fd = -1;
	d->sockets.view.fd = -1;
	d->sockets.admin.fd = -1;
	d->sockets.lock_fd = -1;
	d->mm.epoll = -1;
	d->mm.sleeper.bell = -1;
	d->mm.kick.fd = -1;
	d->loop.epoll = -1;
	d->signals.fd = -1;
	d->hold_watch.fd = -1;
}

/* The rooms up to the mm thread. */
static void join_lower(struct daemon *d)
{
	d->deposit.setup = &d->setup;
	d->mapper.setup = &d->setup;
	d->mapper.deposit = &d->deposit;
	d->mapper.extents = &d->extents;
	d->mapper.mm = &d->mm.sleeper;
	d->copier.setup = &d->setup;
	d->copier.extents = &d->extents;
	d->copier.mm = &d->mm.sleeper;
	d->swap.setup = &d->setup;
	d->mm.setup = &d->setup;
	d->mm.mapper = &d->mapper;
	d->mm.copier = &d->copier;
	d->mm.swap = &d->swap;
	d->mm.events = &d->events;
	d->events.setup = &d->setup;
	d->events.mm = &d->mm.sleeper;
}

/* The rooms of the control thread. */
static void join_upper(struct daemon *d)
{
	d->sockets.setup = &d->setup;
	d->sockets.deposit = &d->deposit;
	d->sockets.loop = &d->loop;
	d->link.setup = &d->setup;
	d->link.loop = &d->loop;
	d->link.deposit = &d->deposit;
	d->link.copier = &d->copier;
	d->link.swap = &d->swap;
	d->link.mm = &d->mm;
	d->clients.setup = &d->setup;
	d->clients.loop = &d->loop;
	d->clients.deposit = &d->deposit;
	d->clients.extents = &d->extents;
	d->clients.mm = &d->mm;
	d->clients.sockets = &d->sockets;
	d->operators.setup = &d->setup;
	d->operators.loop = &d->loop;
	d->operators.deposit = &d->deposit;
	d->operators.mm = &d->mm;
	d->operators.sockets = &d->sockets;
	d->operators.clients = &d->clients;
	d->operators.link = &d->link;
	d->operators.admins.loop = &d->loop;
	d->views.setup = &d->setup;
	d->views.loop = &d->loop;
	d->views.mm = &d->mm;
	d->views.sockets = &d->sockets;
	d->views.clients = &d->clients;
	d->views.operators = &d->operators;
	d->adoption.setup = &d->setup;
	d->adoption.deposit = &d->deposit;
	d->adoption.extents = &d->extents;
	d->adoption.mm = &d->mm;
	d->adoption.clients = &d->clients;
}

/**
 * daemon_alloc() - a daemon without threads, descriptors and clients
 * Return: for free(), or NULL.
 */
struct daemon *daemon_alloc(void)
{
	/* Its queues want cache lines of their own. */
	struct daemon *d = aligned_alloc(_Alignof(struct daemon), sizeof(*d));

	if (!d)
		return NULL;
	memset(d, 0, sizeof(*d));
	join_lower(d);
	join_upper(d);
	no_descriptors(d);
	d->mm.stop = 1;
	d->mapper.stop = 1;
	d->copier.stop = 1;
	d->setup.adopted = -1;
	d->setup.own_uid = geteuid();
	d->sockets.rights.own_uid = d->setup.own_uid;
	d->setup.start_ns = kv_now_ns();
	clients_none(&d->clients);
	admins_init(&d->operators.admins);
	return d;
}
