// SPDX-License-Identifier: Apache-2.0
/*
 * ops.c - commands of the core
 *
 * A command becomes an order to another thread, or words for the control
 * thread.  The command to send an extent to a client is a state (which
 * generation of which extent), not a message, so that no queue can overflow
 * however slow the client is.
 *
 * Context: mm thread; mm_ready_core() start-up.
 */
#include <stdlib.h>

#include <kvmm/fault.h>

#include "kvmm/ipc/mm/mm.h"

static void ops_extent_create(void *arg, u32 extent, u32 generation)
{
	struct mm *m = arg;

	mapper_push(m->mapper, MAP_CREATE, extent, generation);
}

static void ops_extent_release(void *arg, u32 extent)
{
	struct mm *m = arg;

	mapper_push(m->mapper, MAP_RELEASE, extent, 0);
}

static void ops_extent_send(void *arg, u32 client, u32 extent, u32 generation)
{
	struct mm *m = arg;
	struct mm_client *c = m->clients[client];

	if (!c)
		return;
	WRITE_ONCE(c->want[extent], generation);
	/* Pairs with the exchange in extents_take(). */
	__atomic_fetch_or(&c->dirty[extent / 64], BIT_ULL(extent % 64),
			  __ATOMIC_RELEASE);
	/* Pairs with the exchange in control_kicked(). */
	__atomic_fetch_or(&m->send_mask, BIT_ULL(client), __ATOMIC_RELEASE);
	m->kick_due = true;
}

static void ops_wake(void *arg, u32 client)
{
	struct mm *m = arg;

	m->wake |= BIT_ULL(client);
}

static void ops_kill(void *arg, u32 client, int reason)
{
	struct mm *m = arg;
	struct mm_client *c = m->clients[client];
	int err;

	if (!c)
		return;
	WRITE_ONCE(c->reason, reason);
	err = pidfd_kill(c->pidfd);
	if (!err) {
		mm_note(m, c, NOTE_KILLED);
	} else if (err != -ESRCH) {
		WRITE_ONCE(c->reason, err);
		mm_note(m, c, NOTE_UNKILLABLE);
	}
}

static void ops_kill_ghosts(void *arg, u32 tenant)
{
	struct mm *m = arg;

	WRITE_ONCE(m->ghost_ends[tenant], 1);
	/* Pairs with the exchange in ghost_kill_all(). */
	store_release(&m->ghost_any, 1u);
	m->kick_due = true;
}

static void ops_copy(void *arg, const struct core_copy *cp)
{
	struct mm *m = arg;

	copier_push(m->copier, cp);
}

static void ops_io(void *arg, const struct core_io *io)
{
	struct mm *m = arg;

	swap_push(m->swap, io);
}

static void ops_trigger(void *arg, u32 trigger)
{
	struct mm *m = arg;

	/* Pairs with the exchange in wait_take(). */
	__atomic_fetch_or(&m->trigger_fired, BIT_ULL(trigger),
			  __ATOMIC_RELEASE);
	m->kick_due = true;
}

static void ops_trigger_gone(void *arg, u32 trigger)
{
	struct mm *m = arg;

	/* Pairs with the exchange in wait_take(). */
	__atomic_fetch_or(&m->trigger_gone, BIT_ULL(trigger),
			  __ATOMIC_RELEASE);
	m->kick_due = true;
}

#ifdef KVMM_TEST_FAULTS
static void ops_crash(void *arg, u32 point)
{
	kv_fault_die(KV_FAULT_crash_first + point);
}
#endif

static const struct core_ops mm_core_ops = {
	.extent_create	= ops_extent_create,
	.extent_release	= ops_extent_release,
	.extent_send	= ops_extent_send,
	.wake		= ops_wake,
	.kill		= ops_kill,
	.kill_ghosts	= ops_kill_ghosts,
	.trigger	= ops_trigger,
	.trigger_gone	= ops_trigger_gone,
	.copy		= ops_copy,
	.io		= ops_io,
#ifdef KVMM_TEST_FAULTS
	.crash		= ops_crash,
#endif
};

/* mm_ready_core() - room for the core, and the functions that it commands */
int mm_ready_core(struct mm *m)
{
	struct setup *s = m->setup;

	if (!s->core)
		s->core = calloc(1, core_struct_size());
	m->ops = mm_core_ops;
	/* The device takes memory back by itself: no process is killed for it. */
	if (s->dev.ops->takes_back)
		m->ops.kill_ghosts = NULL;
	return s->core ? 0 : -ENOMEM;
}
