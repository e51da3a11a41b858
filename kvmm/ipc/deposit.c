// SPDX-License-Identifier: Apache-2.0
/*
 * deposit.c - what kvmm-hold keeps for the next daemon
 *
 * Started by hold, the daemon finds in its environment a socket.  First it
 * takes from there what the last daemon left: the instance lock, the
 * listening sockets, the last epoch, the pidfds of its clients, the files of
 * its swap areas, its memory.  Then it deposits its own.  Without hold every
 * function here does nothing.
 *
 * Either the memory is adopted (adopt.c), and all goes on under the same
 * epoch.  Or the start is a cold one: the pool is made anew.  A client of the
 * last daemon notices by the end of its socket; it ends, or lets go of the old
 * memory and attaches again.  One that does neither keeps memory from the new
 * pool: when its time is up it is looked at, and killed if it still maps an
 * extent of another epoch.  Where to look is opened at start, while there are
 * rights to: /proc/PID/maps asks for them at open alone.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define HOLD_WAIT_S	5
#define HOLD_TRIES	3
#define HOLD_TRY_MS	100

/* Send a record.  Return: 0, also without hold, or -errno. */
int deposit_try(struct daemon *d, const struct hold_record *r, int fd)
{
	struct pollfd p = { .fd = d->deposit.fd, .events = POLLOUT };
	int err, i;

	if (d->deposit.fd < 0)
		return 0;
	err = sock_send(d->deposit.fd, r, sizeof(*r), &fd, fd >= 0);
	/* Hold reads whenever it is not starting a child. */
	for (i = 0; i < HOLD_TRIES && err && err != -EPIPE; i++) {
		(void)!poll(&p, 1, HOLD_TRY_MS);
		err = sock_send(d->deposit.fd, r, sizeof(*r), &fd, fd >= 0);
	}
	return err;
}

void deposit_put(struct daemon *d, u32 kind, u32 index, int fd, u64 value)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = kind,
		.index = index, .value = value,
	};

	deposit_record(d, &r, fd);
}

void deposit_drop(struct daemon *d, u32 kind, u32 index)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_DROP, .kind = kind,
		.index = index,
	};

	deposit_record(d, &r, -1);
}

/**
 * deposit_kept() - a copy in place of what hold kept of this kind
 *
 * What the socket took counts as kept, so a daemon that dies after this leaves
 * the copy, and one that dies before it the old one.
 *
 * Context: start-up, which may wait.
 * Return: NULL, or why hold has the old one still.
 */
const char *deposit_kept(struct daemon *d, u32 kind, int fd)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = kind,
	};
	const u64 end = clock_ns() + HOLD_WAIT_S * NSEC_PER_SEC;
	int err;

	do {
		err = deposit_try(d, &r, fd);
	} while (err == -EAGAIN && clock_ns() < end);
	return err ? "kvmm-hold does not take a copy of its memory" : NULL;
}

/* One record and its descriptor, waiting.  Return: 0, or -errno. */
static int deposit_receive(int sock, struct hold_record *r, int *fd)
{
	ssize_t n = sock_recv_fd(sock, r, sizeof(*r), 0, fd, NULL);

	if (n < 0)
		return (int)n;
	return n == sizeof(*r) && r->magic == HOLD_MAGIC ? 0 : -EPROTO;
}

/*
 * Is the process of @pidfd a new one among the old?  One that ended needs no
 * record, and one that outlived two daemons has a record of each.
 */
static bool old_is_new(const struct deposit *p, int pidfd)
{
	pid_t pid = pidfd_pid(pidfd);
	u32 i;

	for (i = 0; i < p->nr_old && pid > 0; i++)
		if (pidfd_pid(p->old[i]) == pid)
			return false;
	return !pidfd_ended(pidfd);
}

/* Of whose descriptor it is, and nobody else's: it lives still. */
static FILE *old_maps_open(int pidfd)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pidfd_pid(pidfd));
	f = fopen(path, "re");
	if (f && pidfd_ended(pidfd)) {
		fclose(f);
		f = NULL;
	}
	return f;
}

static void old_add(struct deposit *p, int pidfd)
{
	if (p->nr_old == ARRAY_SIZE(p->old) || !old_is_new(p, pidfd)) {
		close(pidfd);
		return;
	}
	p->old_maps[p->nr_old] = old_maps_open(pidfd);
	p->old[p->nr_old++] = pidfd;
}

/* Room for extent @index.  Return: false without memory. */
static bool extent_room(struct deposit *p, u32 index)
{
	struct extent_fd *bigger;
	u32 room = max(p->nr_extents, 64u);

	if (index < p->nr_extents)
		return true;
	while (room <= index)
		room *= 2;
	bigger = realloc(p->extent, room * sizeof(*bigger));
	if (!bigger)
		return false;
	p->extent = bigger;
	for (; p->nr_extents < room; p->nr_extents++)
		bigger[p->nr_extents].fd = -1;
	return true;
}

/*
 * Every kind has its places.  The last daemon, if it was taken over, may have
 * put anything anywhere, also what hold alone says.
 */
static bool record_is_known(const struct hold_record *r)
{
	static const u32 places[] = {
		[HOLD_LOCK]		= 1,
		[HOLD_LISTEN]		= MAX_LISTEN,
		[HOLD_CLIENT]		= OLD_INDEX + HOLD_RECORDS,
		[HOLD_EPOCH]		= 1,
		[HOLD_SWAP_AREA]	= CORE_MAX_AREAS,
		[HOLD_SIZE]		= 2,
		[HOLD_ARENA]		= 1,
		[HOLD_KEEP]		= 1,
		[HOLD_HOST]		= 1,
		[HOLD_EXTENT]		= HOLD_EXTENTS,
		[HOLD_GHOST]		= MAX_GHOSTS,
	};

	if (r->op == HOLD_TELL)
		return r->kind == HOLD_LIFE;
	return r->op == HOLD_PUT && r->kind < ARRAY_SIZE(places) &&
	       r->index < places[r->kind];
}

/* Others would stay with hold for ever, and take the room of ours. */
static void strange_note(struct deposit *p, const struct hold_record *r, int fd)
{
	if (fd >= 0)
		close(fd);
	if (p->nr_strange < ARRAY_SIZE(p->strange))
		p->strange[p->nr_strange++] = *r;
}

static void strange_drop(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	u32 i;

	if (p->nr_strange)
		pr_warn("%u records of the last daemon are none that it may leave: dropped",
			p->nr_strange);
	for (i = 0; i < p->nr_strange; i++)
		deposit_drop(d, p->strange[i].kind, p->strange[i].index);
	p->nr_strange = 0;
}

/* What adoption needs: true when it was taken over. */
static bool deposit_take_memory(struct deposit *p, const struct hold_record *r,
				int fd)
{
	switch (r->kind) {
	case HOLD_ARENA:
		p->arena = fd;
		return true;
	case HOLD_KEEP:
		p->keep = fd;
		return true;
	case HOLD_HOST:
		p->host = fd;
		return true;
	case HOLD_EXTENT:
		if (fd < 0 || !extent_room(p, r->index))
			return false;
		p->extent[r->index].fd = fd;
		p->extent[r->index].generation = r->generation;
		return true;
	case HOLD_GHOST:
		if (fd < 0 || p->nr_ghosts == ARRAY_SIZE(p->ghost))
			return false;
		p->ghost[p->nr_ghosts].fd = fd;
		p->ghost[p->nr_ghosts].index = r->index;
		p->ghost[p->nr_ghosts++].value = r->value;
		return true;
	}
	return false;
}

static void deposit_take(struct deposit *p, const struct hold_record *r, int fd)
{
	if (!record_is_known(r)) {
		strange_note(p, r, fd);
		return;
	}
	if (deposit_take_memory(p, r, fd))
		return;
	switch (r->kind) {
	case HOLD_LIFE:
		p->life = r->index;
		if (p->life & HOLD_LIFE_NEXT)
			kv_fault_crash_none();
		/* A descriptor that finds no room is missing: a cold start. */
		(void)files_raise(r->value + FDS_OTHER);
		break;
	case HOLD_LOCK:
		p->lock = fd;
		return;
	case HOLD_LISTEN:
		p->listen[r->index] = fd;
		return;
	case HOLD_CLIENT:
		if (fd < 0)
			break;
		p->nr_kept = max(p->nr_kept, r->index + 1);
		if (r->index < MAX_CLIENTS)
			p->client[r->index] = fd;
		else
			old_add(p, fd);
		return;
	case HOLD_EPOCH:
		p->last_epoch = r->value;
		break;
	case HOLD_SIZE:
		p->size[r->index] = r->value;
		break;
	case HOLD_SWAP_AREA:
		p->area[r->index].fd = fd;
		p->area[r->index].value = r->value;
		return;
	}
	if (fd >= 0)
		close(fd);
}

/*
 * Old clients move out of the way of the ids that new ones will get.  Records
 * are put before others are dropped, from @first on: this daemon may die here.
 */
static void deposit_move_old(struct daemon *d, u32 first)
{
	struct deposit *p = &d->deposit;
	u32 i;

	for (i = 0; i < p->nr_old; i++)
		deposit_put(d, HOLD_CLIENT, OLD_INDEX + i, p->old[i], 0);
	for (i = first; i < p->nr_kept; i++)
		if (i < OLD_INDEX || i >= OLD_INDEX + p->nr_old)
			deposit_drop(d, HOLD_CLIENT, i);
	p->old_deadline = clock_ns() +
			  d->setup.opt.quiet_deadline_ms * NSEC_PER_MSEC;
}

static int deposit_socket(void)
{
	const char *env = getenv(HOLD_ENV);
	struct stat st;
	u64 fd;

	if (!env || kv_parse_uint(env, &fd) || fd > INT32_MAX ||
	    fstat((int)fd, &st) || !S_ISSOCK(st.st_mode))
		return -1;
	unsetenv(HOLD_ENV);
	return (int)fd;
}

/**
 * deposit_init() - take over from the last daemon, if hold has anything
 * Context: before threads exist.
 */
int deposit_init(struct daemon *d)
{
	struct timeval tv = { .tv_sec = HOLD_WAIT_S };
	struct deposit *p = &d->deposit;
	struct hold_record r;
	int fd, err = 0;

	p->fd = deposit_socket();
	while (p->fd >= 0) {
		setsockopt(p->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		err = deposit_receive(p->fd, &r, &fd);
		if (err) {
			pr_err("kvmm-hold does not answer: %s", strerror(-err));
			return err;
		}
		if (r.op == HOLD_END)
			break;
		deposit_take(p, &r, fd);
	}
	strange_drop(d);
	return 0;
}

static void fd_forget(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Nothing of the memory that was left is used, or all of it is by now. */
static void memory_forget(struct deposit *p)
{
	u32 i;

	fd_forget(&p->arena);
	fd_forget(&p->keep);
	fd_forget(&p->host);
	for (i = 0; i < p->nr_extents; i++)
		fd_forget(&p->extent[i].fd);
	free(p->extent);
	p->extent = NULL;
	p->nr_extents = 0;
	for (i = 0; i < p->nr_ghosts; i++)
		fd_forget(&p->ghost[i].fd);
	p->nr_ghosts = 0;
}

/* Nor does hold keep any of it when this returns. */
static void memory_drop(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_ASK, .kind = HOLD_SYNC,
	};
	int fd = -1, err = 0;
	u32 i;

	deposit_drop(d, HOLD_ARENA, 0);
	deposit_drop(d, HOLD_KEEP, 0);
	deposit_drop(d, HOLD_HOST, 0);
	for (i = 0; i < p->nr_extents; i++)
		if (p->extent[i].fd >= 0)
			deposit_drop(d, HOLD_EXTENT, i);
	for (i = 0; i < p->nr_ghosts; i++)
		deposit_drop(d, HOLD_GHOST, p->ghost[i].index);
	if (p->fd < 0)
		return;
	deposit_record(d, &r, -1);
	/* Nobody else sends what waits, as long as this one waits. */
	deposit_late_flush(d);
	do {
		err = deposit_receive(p->fd, &r, &fd);
		if (fd >= 0)
			close(fd);
	} while (!err && r.kind != HOLD_SYNC);
	if (err)
		pr_warn("kvmm-hold does not answer: %s: memory of the last daemon may be in use still",
			strerror(-err));
}

/**
 * deposit_cold() - nothing of the last daemon is of use
 * @why: NULL: there was none
 *
 * Its clients are to end, or to let go of the old memory.
 */
void deposit_cold(struct daemon *d, const char *why)
{
	struct deposit *p = &d->deposit;
	struct timespec ts;
	u32 i;

	/* Rises over lives also where the clock was set back. */
	clock_gettime(CLOCK_REALTIME, &ts);
	d->setup.epoch = max((u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec,
			     p->last_epoch + 1);
	if (why)
		memory_drop(d);
	memory_forget(p);
	for (i = 0; i < MAX_CLIENTS; i++) {
		if (p->client[i] >= 0)
			old_add(p, p->client[i]);
		p->client[i] = -1;
	}
	deposit_put(d, HOLD_EPOCH, 0, -1, d->setup.epoch);
	deposit_move_old(d, 0);
	if (why)
		pr_info("cold start: %s; %u clients of the last daemon may still run",
			why, p->nr_old);
}

/* deposit_adopted() - what could be used of it is; the rest goes */
void deposit_adopted(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	u32 i;

	memory_forget(p);
	for (i = 0; i < MAX_CLIENTS; i++)
		fd_forget(&p->client[i]);
	deposit_move_old(d, OLD_INDEX);
}

/* A clean end: nobody needs what hold keeps. */
void deposit_exit(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	u32 i;

	for (i = 0; i < p->nr_old; i++) {
		close(p->old[i]);
		if (p->old_maps[i])
			fclose(p->old_maps[i]);
	}
	p->nr_old = 0;
	deposit_late_exit(d);
	memory_forget(p);
	for (i = 0; i < MAX_CLIENTS; i++)
		fd_forget(&p->client[i]);
	for (i = 0; i < ARRAY_SIZE(p->listen); i++)
		if (p->listen[i] >= 0)
			close(p->listen[i]);
	for (i = 0; i < ARRAY_SIZE(p->area); i++)
		if (p->area[i].fd >= 0)
			close(p->area[i].fd);
	if (p->lock >= 0)
		close(p->lock);
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}
