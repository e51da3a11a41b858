// SPDX-License-Identifier: Apache-2.0
/*
 * feed.c - the core's records of names, into the ring
 *
 * Context: mm thread, but for events_init().  It waits for nothing: where the ring has
 * no room the core learns that its record is lost, and tells all names anew when half
 * of the ring is free.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include <kvmm/fault.h>
#include <kvmm/ring.h>

#include "kvmm/ipc/events/events.h"

static void rec_fill(struct ev_rec *r, const struct core_name *n)
{
	r->kind = EV_NAME;
	r->from = (u8)n->from;
	r->to = (u8)n->to;
	r->salted = (u8)n->salted;
	r->hash = n->hash;
	r->parent = n->parent;
	r->domain = n->domain;
	r->window = n->window;
	r->group = (u16)n->group;
	r->group_kind = (u16)n->kind;
	r->nr_ids = n->nr_ids;
	if (n->nr_ids)
		memcpy(r->ids, n->ids, 4ull * n->nr_ids);
}

/* The publisher learns the name of a domain before its first block. */
static bool feed_domain(struct events *e, const struct core_name *n)
{
	struct ev_rec *r;

	if (e->serials[n->domain] == n->serial + 1)
		return true;
	r = ev_ring_reserve(&e->ring, (u32)sizeof(*r) + KVMM_NAME_LEN);
	if (!r)
		return false;
	r->kind = EV_DOMAIN;
	r->domain = n->domain;
	r->nr_ids = KVMM_NAME_LEN / 4;
	memcpy(r->ids, n->name, KVMM_NAME_LEN);
	ev_ring_commit(&e->ring);
	e->serials[n->domain] = n->serial + 1;
	return true;
}

static bool feed_put(void *arg, const struct core_name *n)
{
	struct events *e = arg;
	struct ev_rec *r;

	if (kv_fault(KV_FAULT_events_full))
		return false;
	if (n && e->serials && !feed_domain(e, n))
		return false;
	r = ev_ring_reserve(&e->ring, (u32)sizeof(*r) + (n ? 4 * n->nr_ids : 0));
	if (!r)
		return false;
	if (n)
		rec_fill(r, n);
	else
		r->kind = EV_CLEAR;
	ev_ring_commit(&e->ring);
	e->put = true;
	return true;
}

static bool feed_room(void *arg)
{
	const struct events *e = arg;

	return ev_ring_used(&e->ring) <= e->ring.size / 2;
}

/**
 * events_init() - make the ring, and the core's memory of names that it has told
 *
 * Context: the core has been made, and there are no threads.
 * Return: 0 or -ENOMEM.
 */
int events_init(struct events *e)
{
	static const struct core_names_ops ops = { .put = feed_put, .room = feed_room };
	struct core *core = e->setup->core;

	if (!events_wanted(e))
		return 0;
	if (ev_ring_init(&e->ring, e->setup->opt.kv_events_ring))
		return -ENOMEM;
	e->names_bytes = core_names_bytes(core);
	e->names = mmap(NULL, e->names_bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e->names == MAP_FAILED) {
		e->names = NULL;
		return -ENOMEM;
	}
	if (events_by_domain(e)) {
		e->serials = calloc(e->setup->cfg.max_domains, sizeof(*e->serials));
		e->domains = calloc(e->setup->cfg.max_domains, sizeof(*e->domains));
		if (!e->serials || !e->domains)
			return -ENOMEM;
	}
	core_names_attach(core, e->names, &ops, e);
	return 0;
}

/* Has the publisher asked that all names be told anew? */
static bool asked_again(struct events *e)
{
	return READ_ONCE(e->again) && __atomic_exchange_n(&e->again, 0, __ATOMIC_ACQUIRE);
}

/**
 * events_turn() - a part of each turn of the mm thread
 * Return: whether the core had more to tell, and told some of it.
 */
bool events_turn(struct events *e)
{
	struct core *core = e->setup->core;
	bool busy;

	if (!e->names)
		return false;
	if (asked_again(e))
		core_names_again(core);
	busy = core_names_go_on(core);
	WRITE_ONCE(e->waits, !busy && core_names_unfinished(core));
	if (e->put) {
		e->put = false;
		sleeper_wake(&e->sleeper);
	}
	return busy;
}
