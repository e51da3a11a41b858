// SPDX-License-Identifier: Apache-2.0
/*
 * ghost.c - processes that outlive their DETACH
 *
 * A client that detached claims to have unmapped everything, and its slot may
 * be wanted while its process lives on.  The core trusts the claim towards
 * other tenants only when the process has ended, so the end is waited for
 * here, with no more than a pidfd for each process and tenant, however often
 * it attaches and detaches.  Where the device cannot take memory back from who
 * has it, who does not end although another tenant needs what it may have mapped
 * is killed when the core says so.
 *
 * Each is a descriptor here: a tenant that has as many of them as it may have
 * connections cannot attach until some end (attach.c).
 *
 * Hold keeps the pidfds, so that the next daemon waits, too.
 *
 * Context: control thread, but for the function handed to mm_call().
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

/* On the mm thread. */
static void call_ghost_gone(struct core *core, void *arg)
{
	core_ghost_gone(core, clock_ns(), *(const u32 *)arg);
}

/* Only what must be known of one: its end, and whose memory it may have. */
struct ghost {
	struct list	node;
	struct watch	pidfd;
	pid_t		pid;
	u64		key;	/* of its tenant, the shell's */
	u32		tenant;	/* the core's */
	u32		nr;	/* its detached clients */
	u32		index;	/* of hold's record */
	u64		ended;	/* when it had, 0: it lives */
};

/* Of hold's record. */
#define GHOST_VALUE(tenant, nr)	((u64)(tenant) << 32 | (nr))

static void ghost_put(struct daemon *d, const struct ghost *g)
{
	if (g->index < MAX_GHOSTS)
		deposit_put(&d->deposit, HOLD_GHOST, g->index, g->pidfd.fd,
			    GHOST_VALUE(g->tenant, g->nr));
}

/* The least index that no other has; those beyond MAX_GHOSTS are not kept. */
static u32 ghost_index(const struct daemon *d)
{
	u64 used[MAX_GHOSTS / 64] = { 0 };
	const struct list *l;
	u32 i;

	for (l = d->ghosts.next; l != &d->ghosts; l = l->next) {
		i = list_entry(l, struct ghost, node)->index;
		if (i < MAX_GHOSTS)
			used[i / 64] |= BIT_ULL(i % 64);
	}
	for (i = 0; i < MAX_GHOSTS; i++)
		if (!(used[i / 64] & BIT_ULL(i % 64)))
			break;
	return i;
}

/* It has ended, and the device is quiet of it. */
static void ghost_over(struct daemon *d, struct ghost *g)
{
	if (g->index < MAX_GHOSTS)
		deposit_drop(&d->deposit, HOLD_GHOST, g->index);
	while (g->nr--)
		if (mm_call(&d->mm, call_ghost_gone, &g->tenant))
			pr_debug("the mm thread has stopped");
	list_del(&g->node);
	free(g);
}

static void ghost_on_pidfd(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	struct ghost *g = container_of(w, struct ghost, pidfd);

	watch_close(&d->loop, &g->pidfd);
	g->ended = clock_ns();
	if (device_quiet(&d->setup, g->ended, g->ended))
		ghost_over(d, g);
}

/* Return: when to be called next, or UINT64_MAX. */
u64 ghost_timers(struct daemon *d, u64 now)
{
	struct list *l, *tmp;
	u64 next = UINT64_MAX;

	list_for_each(&d->ghosts, l, tmp) {
		struct ghost *g = list_entry(l, struct ghost, node);

		if (!g->ended)
			continue;
		if (device_quiet(&d->setup, g->ended, now))
			ghost_over(d, g);
		else
			next = min(next, now + QUIET_POLL_NS);
	}
	return next;
}

/* A process that is watched already; its pid is its own while it lives. */
static struct ghost *ghost_find(struct daemon *d, const struct client *c)
{
	struct list *l, *tmp;

	list_for_each(&d->ghosts, l, tmp) {
		struct ghost *g = list_entry(l, struct ghost, node);

		if (!g->ended && g->pid == c->info.pid &&
		    g->tenant == c->tenant)
			return g;
	}
	return NULL;
}

/*
 * @index: of hold's record
 * @pidfd: stays the caller's
 */
static struct ghost *ghost_make(struct daemon *d, pid_t pid, u64 key,
				u32 tenant, u32 index, int pidfd)
{
	struct ghost *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->pid = pid;
	g->key = key;
	g->tenant = tenant;
	g->index = index;
	g->pidfd.fn = ghost_on_pidfd;
	g->pidfd.arg = d;
	g->pidfd.fd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
	if (g->pidfd.fd < 0 || watch_add(&d->loop, &g->pidfd, EPOLLIN)) {
		if (g->pidfd.fd >= 0)
			close(g->pidfd.fd);
		free(g);
		return NULL;
	}
	list_add_tail(&d->ghosts, &g->node);
	return g;
}

/**
 * ghost_add() - wait for the end of the process of @c, which detached
 *
 * Until then its tenant's memory goes to nobody else.  Without memory for a
 * ghost the tenant keeps its extents for good.
 */
void ghost_add(struct daemon *d, const struct client *c)
{
	struct ghost *g = ghost_find(d, c);

	if (!g)
		g = ghost_make(d, c->info.pid, c->key, c->tenant,
			       ghost_index(d), c->pidfd.fd);
	if (g) {
		g->nr++;
		ghost_put(d, g);
	} else {
		pr_warn("process %d, which detached, cannot be watched: the memory of its user stays with that user",
			(int)c->info.pid);
	}
}

/* ghost_count() - processes of a tenant that detached and live on */
u32 ghost_count(const struct daemon *d, u64 key)
{
	const struct list *l;
	u32 nr = 0;

	for (l = d->ghosts.next; l != &d->ghosts; l = l->next)
		nr += list_entry(l, struct ghost, node)->key == key;
	return nr;
}

/**
 * ghost_adopt() - those of the last daemon, as far as they live
 * Context: before the mm thread runs.
 */
void ghost_adopt(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	u32 *nr = calloc(d->setup.cfg.max_tenants, sizeof(*nr));
	const struct list *l;
	u32 i;

	for (i = 0; nr && i < p->nr_ghosts; i++) {
		u32 tenant = (u32)(p->ghost[i].value >> 32);
		struct core_tenant_view v;
		struct ghost *g = NULL;

		if (!core_get_tenant(d->setup.core, tenant, &v) &&
		    !pidfd_ended(p->ghost[i].fd))
			g = ghost_make(d, pidfd_pid(p->ghost[i].fd), v.key,
				       tenant, p->ghost[i].index,
				       p->ghost[i].fd);
		if (!g) {
			deposit_drop(&d->deposit, HOLD_GHOST, p->ghost[i].index);
			continue;
		}
		/*
		 * Its record stays: hold has them in no order.  However many
		 * clients it was, its end is one from here on: nobody says how
		 * many that daemon has put there.
		 */
		g->nr = 1;
		nr[tenant]++;
	}
	for (l = d->attached.next; nr && l != &d->attached; l = l->next) {
		const struct client *c = list_entry(l, struct client, node);

		nr[c->tenant] += c->stage == CLIENT_LINGERING;
	}
	for (i = 0; nr && i < d->setup.cfg.max_tenants; i++)
		core_adopt_ghosts(d->setup.core, i, nr[i]);
	free(nr);
}

static void ghost_kill(struct daemon *d, u32 tenant)
{
	struct list *l, *tmp;

	list_for_each(&d->ghosts, l, tmp) {
		struct ghost *g = list_entry(l, struct ghost, node);

		if (g->tenant == tenant && !g->ended &&
		    !pidfd_kill(g->pidfd.fd) && log_allowed())
			pr_warn("process %d, which detached, is killed: it may keep memory that another tenant needs",
				(int)g->pid);
	}
}

/**
 * ghost_kill_all() - end those whose tenant's memory somebody else needs
 *
 * They had time to end by themselves.  Their end is told as any other.  Not
 * asked for where the device takes its memory back (kvmm_dev_ops.takes_back).
 */
void ghost_kill_all(struct daemon *d)
{
	u32 i;

	/* Pairs with the release in ops_kill_ghosts(). */
	if (!__atomic_exchange_n(&d->mm.ghost_any, 0, __ATOMIC_ACQUIRE))
		return;
	for (i = 0; i < d->setup.cfg.max_tenants; i++)
		if (__atomic_exchange_n(&d->mm.ghost_ends[i], 0, __ATOMIC_RELAXED))
			ghost_kill(d, i);
}

/* At the end, when the mm thread has stopped. */
void ghost_exit_all(struct daemon *d)
{
	struct list *l, *tmp;

	list_for_each(&d->ghosts, l, tmp) {
		struct ghost *g = list_entry(l, struct ghost, node);

		watch_close(&d->loop, &g->pidfd);
		list_del(l);
		free(g);
	}
}
