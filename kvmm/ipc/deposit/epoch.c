// SPDX-License-Identifier: Apache-2.0
/*
 * epoch.c - begin a new epoch, or go on in that of the last daemon
 *
 * When the memory of the last daemon is adopted (start/adopt.c), its epoch goes
 * on.  Otherwise the start is a cold one and the pool is made anew, in a new
 * epoch.  A client of the last daemon notices that by the end of its socket: it
 * ends, or lets go of the old memory and attaches again.  A client that does
 * neither takes memory from the new pool, and is handled by old.c.
 */
#include <stdlib.h>

#include <kvmm/log.h>

#include "kvmm/ipc/deposit/deposit.h"

static void fd_forget(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Close the memory that was left: none of it is used, or all of it is by now. */
static void memory_forget(struct deposit *p)
{
	u32 i;

	fd_forget(&p->left_arena);
	fd_forget(&p->left_keep);
	fd_forget(&p->left_host);
	for (i = 0; i < p->nr_extents; i++)
		fd_forget(&p->extent[i].fd);
	free(p->extent);
	p->extent = NULL;
	p->nr_extents = 0;
	for (i = 0; i < p->nr_ghosts; i++)
		fd_forget(&p->ghost[i].fd);
	p->nr_ghosts = 0;
}

/* Have hold drop that memory too, and wait until it has. */
static void memory_drop(struct deposit *p)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_ASK, .kind = HOLD_SYNC,
	};
	int fd = -1, err = 0;
	u32 i;

	deposit_drop(p, HOLD_ARENA, 0);
	deposit_drop(p, HOLD_KEEP, 0);
	deposit_drop(p, HOLD_HOST, 0);
	for (i = 0; i < p->nr_extents; i++)
		if (p->extent[i].fd >= 0)
			deposit_drop(p, HOLD_EXTENT, i);
	for (i = 0; i < p->nr_ghosts; i++)
		deposit_drop(p, HOLD_GHOST, p->ghost[i].index);
	if (p->fd < 0)
		return;
	deposit_record(p, &r, -1);
	/* This thread is about to wait, and no other sends late records. */
	deposit_late_flush(p);
	do {
		err = deposit_receive(p->fd, &r, &fd);
		if (fd >= 0)
			close(fd);
	} while (!err && r.kind != HOLD_SYNC);
	if (err)
		pr_warn("kvmm-hold does not answer: %s: memory of the last daemon may be in use still",
			strerror(-err));
}

/* deposit_none() - no descriptor is there yet, so that the end can be called */
void deposit_none(struct deposit *p)
{
	u32 i;

	p->fd = -1;
	p->keep_fd = -1;
	p->lock = -1;
	p->left_arena = -1;
	p->left_keep = -1;
	p->left_host = -1;
	for (i = 0; i < ARRAY_SIZE(p->listen); i++)
		p->listen[i] = -1;
	for (i = 0; i < ARRAY_SIZE(p->area); i++)
		p->area[i].fd = -1;
	for (i = 0; i < ARRAY_SIZE(p->client); i++)
		p->client[i] = -1;
}

/**
 * deposit_cold() - use no memory of the last daemon; sets the epoch
 * @why: NULL: there was no last daemon
 *
 * Clients of the last daemon are to end, or to let go of the old memory.
 */
void deposit_cold(struct deposit *p, const char *why)
{
	struct timespec ts;
	u32 i;

	/* Each daemon's is higher, also where the clock was set back. */
	clock_gettime(CLOCK_REALTIME, &ts);
	p->setup->epoch = max((u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec,
			      p->last_epoch + 1);
	if (why)
		memory_drop(p);
	memory_forget(p);
	for (i = 0; i < MAX_CLIENTS; i++) {
		if (p->client[i] >= 0)
			old_add(p, p->client[i]);
		p->client[i] = -1;
	}
	deposit_put(p, HOLD_EPOCH, 0, -1, p->setup->epoch);
	old_move(p, 0);
	if (why)
		pr_info("cold start: %s; %u clients of the last daemon may still run",
			why, p->nr_old);
}

/* deposit_adopted() - the adopted memory is in use; forget the rest */
void deposit_adopted(struct deposit *p)
{
	u32 i;

	memory_forget(p);
	for (i = 0; i < MAX_CLIENTS; i++)
		fd_forget(&p->client[i]);
	old_move(p, OLD_INDEX);
}

/* deposit_exit() - a clean end: no daemon comes next */
void deposit_exit(struct deposit *p)
{
	u32 i;

	for (i = 0; i < p->nr_old; i++) {
		close(p->old[i]);
		if (p->old_maps[i])
			fclose(p->old_maps[i]);
	}
	p->nr_old = 0;
	deposit_late_exit(p);
	memory_forget(p);
	for (i = 0; i < MAX_CLIENTS; i++)
		fd_forget(&p->client[i]);
	for (i = 0; i < ARRAY_SIZE(p->listen); i++)
		fd_forget(&p->listen[i]);
	for (i = 0; i < ARRAY_SIZE(p->area); i++)
		fd_forget(&p->area[i].fd);
	fd_forget(&p->lock);
	fd_forget(&p->fd);
}
