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
 * Context: control thread, but for the function handed to mm_call().
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

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
	u32		tenant;
	u32		nr;	/* its detached clients */
};

static void ghost_on_pidfd(struct daemon *d, struct watch *w, u32 events)
{
	struct ghost *g = container_of(w, struct ghost, pidfd);

	watch_close(d, &g->pidfd);
	while (g->nr--)
		if (mm_call(d, call_ghost_gone, &g->tenant))
			pr_debug("the mm thread has stopped");
	list_del(&g->node);
	free(g);
}

/* A process that is watched already; its pid is its own while it lives. */
static struct ghost *ghost_find(struct daemon *d, const struct client *c)
{
	struct list *l, *tmp;

	list_for_each(&d->ghosts, l, tmp) {
		struct ghost *g = list_entry(l, struct ghost, node);

		if (g->pid == c->info.pid && g->tenant == c->tenant)
			return g;
	}
	return NULL;
}

static struct ghost *ghost_make(struct daemon *d, const struct client *c)
{
	struct ghost *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->pid = c->info.pid;
	g->tenant = c->tenant;
	g->pidfd.fn = ghost_on_pidfd;
	g->pidfd.fd = fcntl(c->pidfd.fd, F_DUPFD_CLOEXEC, 3);
	if (g->pidfd.fd < 0 || watch_add(d, &g->pidfd, EPOLLIN)) {
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
		g = ghost_make(d, c);
	if (g)
		g->nr++;
	else
		pr_warn("process %d, which detached, cannot be watched: the memory of its user stays with that user",
			(int)c->info.pid);
}

static void ghost_kill(struct daemon *d, u32 tenant)
{
	struct list *l, *tmp;

	list_for_each(&d->ghosts, l, tmp) {
		struct ghost *g = list_entry(l, struct ghost, node);

		if (g->tenant == tenant &&
		    !syscall(SYS_pidfd_send_signal, g->pidfd.fd, SIGKILL, NULL,
			     0) && log_allowed())
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
	if (!__atomic_exchange_n(&d->ghost_any, 0, __ATOMIC_ACQUIRE))
		return;
	for (i = 0; i < d->cfg.max_tenants; i++)
		if (__atomic_exchange_n(&d->ghost_ends[i], 0, __ATOMIC_RELAXED))
			ghost_kill(d, i);
}

/* At the end, when the mm thread has stopped. */
void ghost_exit_all(struct daemon *d)
{
	struct list *l, *tmp;

	list_for_each(&d->ghosts, l, tmp) {
		struct ghost *g = list_entry(l, struct ghost, node);

		watch_close(d, &g->pidfd);
		list_del(l);
		free(g);
	}
}
