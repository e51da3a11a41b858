// SPDX-License-Identifier: Apache-2.0
/*
 * adopt.c - a daemon goes on where the one before it died
 *
 * kvmm-hold kept the arena of the core, the memory of the pools, the pidfds of
 * the clients and what the shell knew of them (keep.h).  Whether the arena is
 * whole the core says (core_adopt()); whether everything that it speaks of is
 * there is looked at here.  Then the daemon has what the last one had: the same
 * epoch, extents, areas and clients.  The clients are away: their connections
 * ended, and they come back by resuming (resume.c).
 *
 * The daemon before may have been taken over, and may have given its arena to
 * others who write to it while it is judged here, with root's rights.  So what
 * is judged and used is a copy that nobody else has, and the old one is never
 * mapped.  hold gets the copies in place of the old ones: that of the shell's
 * records first, which counts the try; that of the arena when it was judged.
 * Whenever this daemon dies hold has a pair that fits together, since nothing
 * happens to clients before.
 *
 * Whatever is missing, damaged or of somebody else makes the start a cold one,
 * with one line that says why.  An arena that was adopted and led to nothing
 * KEEP_TRIES times in a row is not adopted again: it may be what kills.  What
 * counts as something is told to hold as well, which starts the next one at
 * once then.
 *
 * No copy and no transfer of the last daemon is under way: its threads are
 * dead, and hold has waited for swapd and for what that left in the kernel.
 *
 * Context: start-up, before threads exist, but for adopt_timers().
 */
#include <sys/mman.h>
#include <time.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define WORKS_NS	(150 * NSEC_PER_MSEC)	/* of life, at least */
#define WORKS_LOOK_NS	(20 * NSEC_PER_MSEC)
#define SETTLE_NS	(5 * NSEC_PER_MSEC)
#define SETTLE_MAX_NS	(2 * NSEC_PER_SEC)

/* ---- may it be adopted? ---- */

/*
 * Nothing of the last daemon runs on the device any more, nor a copy of its
 * that writes what is judged here.  It ended before this one began.
 * Return: false: that is not proven in time.
 */
static bool device_settle(struct daemon *d)
{
	const struct timespec ts = { .tv_nsec = SETTLE_NS };
	const u64 end = clock_ns() + SETTLE_MAX_NS;

	while (!device_quiet(&d->setup, d->setup.start_ns, clock_ns()) ||
	       (d->setup.dev.ops->quiet && kv_fault(KV_FAULT_device_busy))) {
		if (clock_ns() > end)
			return false;
		nanosleep(&ts, NULL);
	}
	return true;
}

static bool extent_take(struct daemon *d, u32 extent, int fd)
{
	const struct kvmm_dev_ops *ops = d->setup.dev.ops;

	return ops->extent_adopt ? !ops->extent_adopt(&d->setup.dev, extent, fd) :
				   ops->extent_is_ours(&d->setup.dev, fd);
}

/*
 * Every extent that has memory must be there, in such a file as this daemon
 * would make: clients map it.  Return: NULL, or why not.
 */
static const char *extents_missing(struct daemon *d)
{
	static char why[80];
	struct deposit *p = &d->deposit;
	struct core_extent_view v;
	u32 i;

	for (i = 0; i < d->setup.nr_extents; i++) {
		if (core_get_extent(d->setup.core, i, &v) || !v.backed)
			continue;
		if (i < p->nr_extents && p->extent[i].fd >= 0 &&
		    p->extent[i].generation == v.generation &&
		    extent_take(d, i, p->extent[i].fd))
			continue;
		snprintf(why, sizeof(why), "the memory of extent %u is missing",
			 i);
		return why;
	}
	return NULL;
}

/*
 * Every client that was told that it is attached must be there: it may write to
 * what it has.  Its record may have waited for hold while it was told, or found
 * no room there.  Return: NULL, or why not.
 */
static const char *clients_missing(struct daemon *d)
{
	const struct keep_client *k = d->deposit.keep->client;
	static char why[80];
	struct core_client_view v;
	u32 i;

	for (i = 0; i < d->setup.cfg.max_clients; i++) {
		if (core_get_client(d->setup.core, i, &v) || !k[i].valid ||
		    k[i].untold || d->deposit.client[i] >= 0)
			continue;
		snprintf(why, sizeof(why), "the record of client %u is missing",
			 i);
		return why;
	}
	return NULL;
}

static const char *adopt_arena(struct daemon *d)
{
	static struct core_report report;
	struct deposit *p = &d->deposit;
	const char *why;
	int how;

	if (p->left_arena < 0)
		return "it left no arena";
	if (!device_settle(d))
		return "the GPU is not proven quiet: copies of the last kvmm may still run";
	d->setup.arena = keep_copy("kvmm-arena", p->left_arena, d->setup.arena_bytes,
				   &d->setup.arena_fd);
	if (!d->setup.arena)
		return errno == ESTALE ? "its arena has another size" :
		       "there is no memory for a copy of its arena";
	if (mm_ready_core(&d->mm))
		return "no memory for the core";
	how = core_adopt(d->setup.core, d->setup.arena, d->setup.arena_bytes, &d->setup.cfg,
			 &d->mm.ops, &d->mm, clock_ns(), &report);
	if (how == -ESTALE)
		return "its arena is of another kvmm, or for other sizes";
	if (how < 0)
		return report.text[0] ? report.text : "its arena is damaged";
	d->setup.adopted = how;
	why = extents_missing(d);
	return why ? why : clients_missing(d);
}

/* Return: NULL: everything is there; else why not. */
static const char *adopt_try(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	const char *why;

	if (d->setup.opt.adopt)
		return "--adopt is off";
	if (p->life & HOLD_LIFE_IN_FLIGHT)
		return "transfers of its swapd are still under way";
	if (p->left_keep < 0)
		return "it left no memory";
	why = keep_take(&d->deposit, p->left_keep);
	if (why)
		return why;
	why = adopt_arena(d);
	if (!why && d->setup.cfg.host_bytes &&
	    (p->left_host < 0 || hostpool_adopt(&d->setup.host, d->setup.cfg.host_bytes,
						d->deposit.keep->huge, p->left_host)))
		why = "its host pool is missing";
	if (why)
		return why;
	p->left_host = -1;
	/* Until here hold has the old one, as it was left. */
	if (d->deposit.keep->tries == 1)
		kv_fault_die(KV_FAULT_adopt_die_copied);
	return deposit_kept(&d->deposit, HOLD_ARENA, d->setup.arena_fd);
}

/* Nothing of it is used; the descriptors are the deposit's still. */
static void adopt_undo(struct daemon *d)
{
	const struct kvmm_dev_ops *ops = d->setup.dev.ops;
	u32 i;

	for (i = 0; ops->extent_adopt && i < d->setup.nr_extents; i++)
		(void)ops->extent_revoke(&d->setup.dev, i, -1);
	if (d->setup.arena)
		munmap(d->setup.arena, d->setup.arena_bytes);
	if (d->setup.arena_fd >= 0)
		close(d->setup.arena_fd);
	d->setup.arena = NULL;
	d->setup.arena_fd = -1;
	d->setup.adopted = -1;
	hostpool_destroy(&d->setup.host);
	keep_exit(&d->deposit);
}

/**
 * adopt_start() - go on with what the last daemon left, or begin anew
 *
 * Afterwards d->setup.epoch is set, and d->setup.adopted says which of the two.
 */
void adopt_start(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	const char *why = NULL;

	if (p->last_epoch) {
		why = adopt_try(d);
		if (!why) {
			d->setup.epoch = p->last_epoch;
			kv_fault_die(KV_FAULT_adopt_die);
			return;
		}
		adopt_undo(d);
	}
	deposit_cold(&d->deposit, why);
}

/* ---- what it had ---- */

/* Of those that the core does not know nothing stays. */
void adopt_extents(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	struct core_extent_view v;
	u32 i;

	for (i = 0; d->setup.adopted >= 0 && i < p->nr_extents; i++) {
		struct extent_fd *x = &p->extent[i];

		if (x->fd < 0)
			continue;
		if (i < d->setup.nr_extents && !core_get_extent(d->setup.core, i, &v) &&
		    v.backed) {
			d->extents.table[i] = *x;
			x->fd = -1;
			continue;
		}
		/* Released, or not made known: it was on its way out or in. */
		deposit_drop(&d->deposit, HOLD_EXTENT, i);
		if (d->setup.dev.ops->extent_revoke(&d->setup.dev, i, x->fd))
			pr_debug("extent %u: its memory is not back", i);
	}
}

static void area_lost(struct daemon *d, u32 area)
{
	core_adopt_lost(d->setup.core, clock_ns(), area);
	if (core_area_del(d->setup.core, clock_ns(), area))
		pr_warn("a swap area of the last daemon is lost and stays in use until the next start");
}

/* Areas that the core has and whose file is not there. */
static void adopt_areas(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	struct core_tier_view v;
	u32 i, n;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		if (core_get_tier(d->setup.core, CORE_POOL_AREA + i, &v) || !v.online)
			continue;
		for (n = 0; n < CORE_MAX_AREAS; n++)
			if (p->area[n].fd >= 0 && d->deposit.keep->area[n].valid &&
			    d->deposit.keep->area[n].core == i)
				break;
		if (n == CORE_MAX_AREAS)
			area_lost(d, i);
	}
}

/* A client whose pidfd is not there was never answered: clients_missing(). */
static int adopt_client(struct daemon *d, u32 id)
{
	struct deposit *p = &d->deposit;
	int pidfd = p->client[id];

	p->client[id] = -1;
	if (pidfd >= 0 && d->deposit.keep->client[id].valid)
		return resume_await(&d->clients, id, pidfd);
	if (pidfd >= 0)
		close(pidfd);
	core_client_dead(d->setup.core, clock_ns(), id);
	core_client_quiet(d->setup.core, clock_ns(), id);
	deposit_drop(&d->deposit, HOLD_CLIENT, id);
	return 0;
}

/**
 * adopt_clients() - clients and ghosts of the last daemon, areas that are gone
 * Return: 0 or a negative errno.
 */
int adopt_clients(struct daemon *d)
{
	struct core_client_view v;
	int err;
	u32 i;

	if (d->setup.adopted < 0)
		return 0;
	for (i = 0; i < d->setup.cfg.max_clients; i++) {
		if (core_get_client(d->setup.core, i, &v)) {
			if (d->deposit.client[i] >= 0)
				deposit_drop(&d->deposit, HOLD_CLIENT, i);
			keep_client_drop(&d->deposit, i);
			continue;
		}
		err = adopt_client(d, i);
		if (err)
			return err;
	}
	ghost_adopt(&d->clients);
	deposit_adopted(&d->deposit);
	/* What was under way is commanded anew, before any other event. */
	core_tick(d->setup.core, clock_ns());
	adopt_areas(d);
	return 0;
}

/* ---- words ---- */

/* adopt_tell() - one line about what was adopted */
void adopt_tell(struct daemon *d)
{
	u32 i, domains = 0, clients = 0, seqs = 0;
	struct core_domain_view dom;
	struct core_client_view cl;
	struct core_pool_view pool;
	char size[32];

	if (d->setup.adopted < 0)
		return;
	core_get_pool(d->setup.core, &pool);
	for (i = 0; i < d->setup.cfg.max_domains; i++)
		domains += !core_get_domain(d->setup.core, i, &dom);
	for (i = 0; i < d->setup.cfg.max_clients; i++) {
		if (core_get_client(d->setup.core, i, &cl))
			continue;
		clients++;
		seqs += cl.nr_seqs;
	}
	pr_info("adopted %u domain%s, %u client%s, %u sequence%s, %s of cache: %s, in %llu ms",
		domains, domains == 1 ? "" : "s", clients,
		clients == 1 ? "" : "s", seqs, seqs == 1 ? "" : "s",
		kv_format_size(pool.cached >> 10 << 10, size, sizeof(size)),
		d->setup.adopted == CORE_ADOPT_WHOLE ? "whole" : "salvaged",
		(unsigned long long)((clock_ns() - d->setup.start_ns) / NSEC_PER_MSEC));
}

/* Does anybody wait whom this daemon has not served yet? */
static bool adopt_has_served(const struct daemon *d)
{
	const struct list *l;

	if (READ_ONCE(d->mm.served))
		return true;
	for (l = d->clients.attached.next; l != &d->clients.attached; l = l->next)
		if (list_entry(l, struct client, node)->stage == CLIENT_AWAY)
			return false;
	return true;
}

/**
 * adopt_timers() - say, once, that this daemon does its work
 * Return: when to be called next, or UINT64_MAX.
 */
u64 adopt_timers(struct daemon *d, u64 now)
{
	if (d->works || d->deposit.fd < 0)
		return UINT64_MAX;
	if (now < d->setup.start_ns + WORKS_NS || !adopt_has_served(d))
		return now + WORKS_LOOK_NS;
	d->works = true;
	d->deposit.keep->tries = 0;
	deposit_put(&d->deposit, HOLD_WORKS, 0, -1, 0);
	return UINT64_MAX;
}
