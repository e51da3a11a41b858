// SPDX-License-Identifier: Apache-2.0
/*
 * ghost.c - processes that outlive their DETACH
 *
 * A client that detached claims to have unmapped everything, and its slot may
 * be wanted while its process lives on.  Towards other tenants the core trusts
 * that claim only when the process has ended, so the end is awaited here, with
 * one pidfd for each process and tenant, however often it attaches and
 * detaches.  Some devices cannot take memory back from a process.  There a
 * process that does not end, although another tenant needs memory that it may
 * have mapped, is killed when the core says so.
 *
 * Each is a descriptor here: a tenant that has as many of them as its quota has
 * connections cannot attach until some end (attach.c).
 *
 * hold keeps the pidfds, so that the next daemon waits, too.
 *
 * Context: control thread, but for the function handed to mm_call().
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include <kvmm/log.h>

#include "kvmm/ipc/clients/clients.h"

/* On the mm thread. */
static void call_ghost_gone(struct core *core, void *arg)
{
	core_ghost_gone(core, kv_now_ns(), *(const u32 *)arg);
}

/* A process: its end, and the tenant of the memory that it may have. */
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

static void ghost_put(struct clients *cs, const struct ghost *g)
{
	if (g->index < MAX_GHOSTS)
		deposit_put(cs->deposit, HOLD_GHOST, g->index, g->pidfd.fd,
			    GHOST_VALUE(g->tenant, g->nr));
}

/* The least free index; ghosts beyond MAX_GHOSTS have no record. */
static u32 ghost_index(const struct clients *cs)
{
	u64 used[MAX_GHOSTS / 64] = { 0 };
	const struct list *l;
	u32 i;

	for (l = cs->ghosts.next; l != &cs->ghosts; l = l->next) {
		i = list_entry(l, struct ghost, node)->index;
		if (i < MAX_GHOSTS)
			used[i / 64] |= BIT_ULL(i % 64);
	}
	for (i = 0; i < MAX_GHOSTS; i++)
		if (!(used[i / 64] & BIT_ULL(i % 64)))
			break;
	return i;
}

/* The process has ended, and the device is quiet of it. */
static void ghost_over(struct clients *cs, struct ghost *g)
{
	if (g->index < MAX_GHOSTS)
		deposit_drop(cs->deposit, HOLD_GHOST, g->index);
	while (g->nr--)
		if (mm_call(cs->mm, call_ghost_gone, &g->tenant))
			pr_debug("the mm thread has stopped");
	list_del(&g->node);
	free(g);
}

static void ghost_on_pidfd(void *arg, struct watch *w, u32 events)
{
	struct clients *cs = arg;
	struct ghost *g = container_of(w, struct ghost, pidfd);

	watch_close(cs->loop, &g->pidfd);
	g->ended = kv_now_ns();
	if (device_quiet(cs->setup, g->ended, g->ended))
		ghost_over(cs, g);
}

/* ghost_timers() - return: when to be called next, or UINT64_MAX */
u64 ghost_timers(struct clients *cs, u64 now)
{
	struct list *l, *tmp;
	u64 next = UINT64_MAX;

	list_for_each(&cs->ghosts, l, tmp) {
		struct ghost *g = list_entry(l, struct ghost, node);

		if (!g->ended)
			continue;
		if (device_quiet(cs->setup, g->ended, now))
			ghost_over(cs, g);
		else
			next = min(next, now + QUIET_POLL_NS);
	}
	return next;
}

/* The process is watched already: no other has its number while it lives. */
static struct ghost *ghost_find(struct clients *cs, const struct client *c)
{
	struct list *l, *tmp;

	list_for_each(&cs->ghosts, l, tmp) {
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
static struct ghost *ghost_make(struct clients *cs, pid_t pid, u64 key,
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
	g->pidfd.arg = cs;
	g->pidfd.fd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
	if (g->pidfd.fd < 0 || watch_add(cs->loop, &g->pidfd, EPOLLIN)) {
		if (g->pidfd.fd >= 0)
			close(g->pidfd.fd);
		free(g);
		return NULL;
	}
	list_add_tail(&cs->ghosts, &g->node);
	return g;
}

/**
 * ghost_add() - wait for the end of the process of @c, which detached
 *
 * Until then no other tenant gets its tenant's memory.  Without memory for a
 * ghost the tenant keeps its extents for good.
 */
void ghost_add(struct clients *cs, const struct client *c)
{
	struct ghost *g = ghost_find(cs, c);

	if (!g)
		g = ghost_make(cs, c->info.pid, c->key, c->tenant,
			       ghost_index(cs), c->pidfd.fd);
	if (g) {
		g->nr++;
		ghost_put(cs, g);
	} else {
		pr_warn("process %d, which detached, cannot be watched: the memory of its user stays with that user",
			(int)c->info.pid);
	}
}

/* ghost_count() - processes of a tenant that detached and live on */
u32 ghost_count(const struct clients *cs, u64 key)
{
	const struct list *l;
	u32 nr = 0;

	for (l = cs->ghosts.next; l != &cs->ghosts; l = l->next)
		nr += list_entry(l, struct ghost, node)->key == key;
	return nr;
}

/**
 * ghost_adopt() - ghosts of the last daemon that are still alive
 * Context: before the mm thread runs.
 */
void ghost_adopt(struct clients *cs)
{
	struct deposit *p = cs->deposit;
	u32 *nr = calloc(cs->setup->cfg.max_tenants, sizeof(*nr));
	const struct list *l;
	u32 i;

	for (i = 0; nr && i < p->nr_ghosts; i++) {
		u32 tenant = (u32)(p->ghost[i].value >> 32);
		struct core_tenant_view v;
		struct ghost *g = NULL;

		if (!core_get_tenant(cs->setup->core, tenant, &v) &&
		    !pidfd_ended(p->ghost[i].fd))
			g = ghost_make(cs, pidfd_pid(p->ghost[i].fd), v.key,
				       tenant, p->ghost[i].index,
				       p->ghost[i].fd);
		if (!g) {
			deposit_drop(cs->deposit, HOLD_GHOST, p->ghost[i].index);
			continue;
		}
		/*
		 * Its record stays: hold has them in no order.  It may have been
		 * several clients; the record's number is not trusted, and from
		 * here on it counts as one.
		 */
		g->nr = 1;
		nr[tenant]++;
	}
	for (l = cs->attached.next; nr && l != &cs->attached; l = l->next) {
		const struct client *c = list_entry(l, struct client, node);

		nr[c->tenant] += c->stage == CLIENT_LINGERING;
	}
	for (i = 0; nr && i < cs->setup->cfg.max_tenants; i++)
		core_adopt_ghosts(cs->setup->core, i, nr[i]);
	free(nr);
}

static void ghost_kill(struct clients *cs, u32 tenant)
{
	struct list *l, *tmp;

	list_for_each(&cs->ghosts, l, tmp) {
		struct ghost *g = list_entry(l, struct ghost, node);

		if (g->tenant == tenant && !g->ended &&
		    !pidfd_kill(g->pidfd.fd) && log_allowed())
			pr_warn("process %d, which detached, is killed: it may keep memory that another tenant needs",
				(int)g->pid);
	}
}

/**
 * ghost_kill_all() - kill ghosts of tenants whose memory another tenant needs
 *
 * They had time to end by themselves.  The core asks for it only where the
 * device cannot take memory back (kvmm_dev_ops.takes_back).
 */
void ghost_kill_all(struct clients *cs)
{
	u32 i;

	/* Pairs with the release in ops_kill_ghosts(). */
	if (!__atomic_exchange_n(&cs->mm->ghost_any, 0, __ATOMIC_ACQUIRE))
		return;
	for (i = 0; i < cs->setup->cfg.max_tenants; i++)
		if (__atomic_exchange_n(&cs->mm->ghost_ends[i], 0, __ATOMIC_RELAXED))
			ghost_kill(cs, i);
}

/* ghost_exit_all() - at the end, when the mm thread has stopped */
void ghost_exit_all(struct clients *cs)
{
	struct list *l, *tmp;

	list_for_each(&cs->ghosts, l, tmp) {
		struct ghost *g = list_entry(l, struct ghost, node);

		watch_close(cs->loop, &g->pidfd);
		list_del(l);
		free(g);
	}
}
