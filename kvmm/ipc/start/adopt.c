// SPDX-License-Identifier: Apache-2.0
/*
 * adopt.c - go on where the last daemon died
 *
 * kvmm-hold kept the arena of the core, the memory of the pools, the pidfds of
 * the clients and the shell's records of them (deposit/keep.h).  The core says
 * whether the arena is whole (core_adopt()); this file checks that all memory
 * and all clients that the arena names are there.  Then the daemon has the
 * state of the last one: the same epoch, extents, areas and clients.  The
 * clients are away: their connections ended, and they come back by resuming
 * (clients/resume.c).
 *
 * The last daemon may have been taken over, and may have given its arena to a
 * process that writes to it while it is judged here, with root's rights.  So a
 * private copy is judged and used, and the old arena is never mapped.  hold
 * gets the copies in place of the old memory: that of the shell's records
 * first, which counts the try; that of the arena when it was judged.  Whenever
 * this daemon dies hold has a pair that fits together, since no client is
 * served before.
 *
 * If a part is missing, damaged or another user's, the start is a cold one,
 * with one line that says why.  An arena that was adopted KEEP_TRIES times in a
 * row by daemons that did no work is not adopted again: it may be the cause of
 * their deaths.  hold is told when this daemon does its work; then it starts
 * the next one at once.
 *
 * No copy and no transfer of the last daemon is under way: its threads are
 * dead, and hold has waited for swapd and for transfers left in the kernel.
 *
 * Context: start-up, before threads exist, but for adopt_timers().
 */
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/start/start.h"

#define WORKS_NS	(150 * NSEC_PER_MSEC)	/* of life, at least */
#define WORKS_LOOK_NS	(20 * NSEC_PER_MSEC)
#define SETTLE_NS	(5 * NSEC_PER_MSEC)
#define SETTLE_MAX_NS	(2 * NSEC_PER_SEC)

/* ---- may it be adopted? ---- */

/*
 * Wait until nothing of the last daemon runs on the device, which ended before
 * this one began: a copy could write to memory that is judged here.
 * Return: false: that is not proven in time.
 */
static bool device_settle(struct adoption *a)
{
	const struct timespec ts = { .tv_nsec = SETTLE_NS };
	const u64 end = kv_now_ns() + SETTLE_MAX_NS;

	while (!device_quiet(a->setup, a->setup->start_ns, kv_now_ns()) ||
	       (a->setup->dev.ops->quiet && kv_fault(KV_FAULT_device_busy))) {
		if (kv_now_ns() > end)
			return false;
		nanosleep(&ts, NULL);
	}
	return true;
}

static bool extent_take(struct adoption *a, u32 extent, int fd)
{
	const struct kvmm_dev_ops *ops = a->setup->dev.ops;

	return ops->extent_adopt ? !ops->extent_adopt(&a->setup->dev, extent, fd) :
				   ops->extent_is_ours(&a->setup->dev, fd);
}

/*
 * The memory of every extent must be there, in such a file as this daemon would
 * make, since clients map it.  Return: NULL, or why the start is a cold one.
 */
static const char *extents_missing(struct adoption *a)
{
	static char why[80];
	struct deposit *p = a->deposit;
	struct core_extent_view v;
	u32 i;

	for (i = 0; i < a->setup->nr_extents; i++) {
		if (core_get_extent(a->setup->core, i, &v) || !v.backed)
			continue;
		if (i < p->nr_extents && p->extent[i].fd >= 0 &&
		    p->extent[i].generation == v.generation &&
		    extent_take(a, i, p->extent[i].fd))
			continue;
		snprintf(why, sizeof(why), "the memory of extent %u is missing",
			 i);
		return why;
	}
	return NULL;
}

/*
 * The pidfd of every client that got the answer to its attach must be there: it
 * may write to memory that it has mapped.  Its record may have waited for hold
 * meanwhile, or found no room there.  Return: NULL, or why the start is a cold
 * one.
 */
static const char *clients_missing(struct adoption *a)
{
	const struct keep_client *k = a->deposit->keep->client;
	static char why[80];
	struct core_client_view v;
	u32 i;

	for (i = 0; i < a->setup->cfg.max_clients; i++) {
		if (core_get_client(a->setup->core, i, &v) || !k[i].valid ||
		    k[i].untold || a->deposit->client[i] >= 0)
			continue;
		snprintf(why, sizeof(why), "the record of client %u is missing",
			 i);
		return why;
	}
	return NULL;
}

static const char *adopt_arena(struct adoption *a)
{
	static struct core_report report;
	struct deposit *p = a->deposit;
	const char *why;
	int how;

	if (p->left_arena < 0)
		return "it left no arena";
	if (!device_settle(a))
		return "the GPU is not proven quiet: copies of the last kvmm may still run";
	a->setup->arena = keep_copy("kvmm-arena", p->left_arena, a->setup->arena_bytes,
				    &a->setup->arena_fd);
	if (!a->setup->arena)
		return errno == ESTALE ? "its arena has another size" :
		       "there is no memory for a copy of its arena";
	if (mm_ready_core(a->mm))
		return "no memory for the core";
	how = core_adopt(a->setup->core, a->setup->arena, a->setup->arena_bytes, &a->setup->cfg,
			 &a->mm->ops, a->mm, kv_now_ns(), &report);
	if (how == -ESTALE)
		return "its arena is of another kvmm, or for other sizes";
	if (how < 0)
		return report.text[0] ? report.text : "its arena is damaged";
	a->setup->adopted = how;
	why = extents_missing(a);
	return why ? why : clients_missing(a);
}

/* Return: NULL, or why the start is a cold one. */
static const char *adopt_try(struct adoption *a)
{
	struct deposit *p = a->deposit;
	const char *why;

	if (a->setup->opt.adopt)
		return "--adopt is off";
	if (p->life & HOLD_LIFE_IN_FLIGHT)
		return "transfers of its swapd are still under way";
	if (p->left_keep < 0)
		return "it left no memory";
	why = keep_take(a->deposit, p->left_keep);
	if (why)
		return why;
	why = adopt_arena(a);
	if (!why && a->setup->cfg.host_bytes &&
	    (p->left_host < 0 || hostpool_adopt(&a->setup->host, a->setup->cfg.host_bytes,
						a->deposit->keep->huge, p->left_host)))
		why = "its host pool is missing";
	if (why)
		return why;
	p->left_host = -1;
	/* Until here hold has the old arena, as it was left. */
	if (a->deposit->keep->tries == 1)
		kv_fault_die(KV_FAULT_adopt_die_copied);
	return deposit_kept(a->deposit, HOLD_ARENA, a->setup->arena_fd);
}

/* Use nothing of it; the deposit still has the descriptors. */
static void adopt_undo(struct adoption *a)
{
	const struct kvmm_dev_ops *ops = a->setup->dev.ops;
	u32 i;

	for (i = 0; ops->extent_adopt && i < a->setup->nr_extents; i++)
		(void)ops->extent_revoke(&a->setup->dev, i, -1);
	if (a->setup->arena)
		munmap(a->setup->arena, a->setup->arena_bytes);
	if (a->setup->arena_fd >= 0)
		close(a->setup->arena_fd);
	a->setup->arena = NULL;
	a->setup->arena_fd = -1;
	a->setup->adopted = -1;
	hostpool_destroy(&a->setup->host);
	keep_exit(a->deposit);
}

/**
 * adopt_start() - adopt the state of the last daemon, or begin a new epoch
 *
 * It sets setup.epoch, and setup.adopted says which of the two.
 */
void adopt_start(struct adoption *a)
{
	struct deposit *p = a->deposit;
	const char *why = NULL;

	if (p->last_epoch) {
		why = adopt_try(a);
		if (!why) {
			a->setup->epoch = p->last_epoch;
			kv_fault_die(KV_FAULT_adopt_die);
			return;
		}
		adopt_undo(a);
	}
	deposit_cold(a->deposit, why);
}

/* ---- extents, areas, clients ---- */

/* adopt_extents() - take the extents that the core knows, drop the others */
void adopt_extents(struct adoption *a)
{
	struct deposit *p = a->deposit;
	struct core_extent_view v;
	u32 i;

	for (i = 0; a->setup->adopted >= 0 && i < p->nr_extents; i++) {
		struct extent_fd *x = &p->extent[i];

		if (x->fd < 0)
			continue;
		if (i < a->setup->nr_extents && !core_get_extent(a->setup->core, i, &v) &&
		    v.backed) {
			a->extents->table[i] = *x;
			x->fd = -1;
			continue;
		}
		/* Released, or not made known: it was on its way out or in. */
		deposit_drop(a->deposit, HOLD_EXTENT, i);
		if (a->setup->dev.ops->extent_revoke(&a->setup->dev, i, x->fd))
			pr_debug("extent %u: its memory is not back", i);
	}
}

static void area_lost(struct adoption *a, u32 area)
{
	core_adopt_lost(a->setup->core, kv_now_ns(), area);
	if (core_area_del(a->setup->core, kv_now_ns(), area))
		pr_warn("a swap area of the last daemon is lost and stays in use until the next start");
}

/* Take areas from the core of which the file is not there. */
static void adopt_areas(struct adoption *a)
{
	struct deposit *p = a->deposit;
	struct core_tier_view v;
	u32 i, n;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		if (core_get_tier(a->setup->core, CORE_POOL_AREA + i, &v) || !v.online)
			continue;
		for (n = 0; n < CORE_MAX_AREAS; n++)
			if (p->area[n].fd >= 0 && a->deposit->keep->area[n].valid &&
			    a->deposit->keep->area[n].core == i)
				break;
		if (n == CORE_MAX_AREAS)
			area_lost(a, i);
	}
}

/* A client without a pidfd was never answered: clients_missing(). */
static int adopt_client(struct adoption *a, u32 id)
{
	struct deposit *p = a->deposit;
	int pidfd = p->client[id];

	p->client[id] = -1;
	if (pidfd >= 0 && a->deposit->keep->client[id].valid)
		return resume_await(a->clients, id, pidfd);
	if (pidfd >= 0)
		close(pidfd);
	core_client_dead(a->setup->core, kv_now_ns(), id);
	core_client_quiet(a->setup->core, kv_now_ns(), id);
	deposit_drop(a->deposit, HOLD_CLIENT, id);
	return 0;
}

/**
 * adopt_clients() - clients and ghosts of the last daemon, areas that are gone
 * Return: 0 or a negative errno.
 */
int adopt_clients(struct adoption *a)
{
	struct core_client_view v;
	int err;
	u32 i;

	if (a->setup->adopted < 0)
		return 0;
	for (i = 0; i < a->setup->cfg.max_clients; i++) {
		if (core_get_client(a->setup->core, i, &v)) {
			if (a->deposit->client[i] >= 0)
				deposit_drop(a->deposit, HOLD_CLIENT, i);
			keep_client_drop(a->deposit, i);
			continue;
		}
		err = adopt_client(a, i);
		if (err)
			return err;
	}
	ghost_adopt(a->clients);
	deposit_adopted(a->deposit);
	/* The core commands its unfinished work anew, before any other event. */
	core_tick(a->setup->core, kv_now_ns());
	adopt_areas(a);
	return 0;
}

/* ---- the log, and hold ---- */

/* adopt_tell() - one line about what was adopted */
void adopt_tell(const struct adoption *a)
{
	u32 i, domains = 0, clients = 0, seqs = 0;
	struct core_domain_view dom;
	struct core_client_view cl;
	struct core_pool_view pool;
	char size[32];

	if (a->setup->adopted < 0)
		return;
	core_get_pool(a->setup->core, &pool);
	for (i = 0; i < a->setup->cfg.max_domains; i++)
		domains += !core_get_domain(a->setup->core, i, &dom);
	for (i = 0; i < a->setup->cfg.max_clients; i++) {
		if (core_get_client(a->setup->core, i, &cl))
			continue;
		clients++;
		seqs += cl.nr_seqs;
	}
	pr_info("adopted %u domain%s, %u client%s, %u sequence%s, %s of cache: %s, in %llu ms",
		domains, domains == 1 ? "" : "s", clients,
		clients == 1 ? "" : "s", seqs, seqs == 1 ? "" : "s",
		kv_format_size(pool.cached >> 10 << 10, size, sizeof(size)),
		a->setup->adopted == CORE_ADOPT_WHOLE ? "whole" : "salvaged",
		(unsigned long long)((kv_now_ns() - a->setup->start_ns) / NSEC_PER_MSEC));
}

/* Has a client been served, or is none away that might ask? */
static bool adopt_has_served(const struct adoption *a)
{
	const struct list *l;

	if (READ_ONCE(a->mm->served))
		return true;
	for (l = a->clients->attached.next; l != &a->clients->attached; l = l->next)
		if (list_entry(l, struct client, node)->stage == CLIENT_AWAY)
			return false;
	return true;
}

/**
 * adopt_timers() - tell hold, once, that this daemon does its work
 * Return: when to be called next, or UINT64_MAX.
 */
u64 adopt_timers(struct adoption *a, u64 now)
{
	if (a->works || a->deposit->fd < 0)
		return UINT64_MAX;
	if (now < a->setup->start_ns + WORKS_NS || !adopt_has_served(a))
		return now + WORKS_LOOK_NS;
	a->works = true;
	a->deposit->keep->tries = 0;
	deposit_put(a->deposit, HOLD_WORKS, 0, -1, 0);
	return UINT64_MAX;
}
