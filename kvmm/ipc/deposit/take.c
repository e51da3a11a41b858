// SPDX-License-Identifier: Apache-2.0
/*
 * take.c - receive from kvmm-hold the records of the last daemon
 *
 * A daemon started by hold finds a socket in its environment.  Before it
 * deposits anything it receives there the records that the last daemon left:
 * the instance lock, the listening sockets, the epoch, the pidfds of its
 * clients, the files of its swap areas, its memory.
 *
 * The last daemon may have been taken over, and may then have put any record.
 * Each kind has its bounds; a record outside of them is dropped from hold, or
 * it would stay there for ever and take the room of later ones.
 *
 * Context: start-up, before threads exist.
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/deposit/deposit.h"

#define HOLD_WAIT_S	5

/* deposit_receive() - one record and its descriptor, waiting; 0 or -errno */
int deposit_receive(int sock, struct hold_record *r, int *fd)
{
	ssize_t n = sock_recv_fd(sock, r, sizeof(*r), 0, fd, NULL);

	if (n < 0)
		return (int)n;
	return n == sizeof(*r) && r->magic == HOLD_MAGIC ? 0 : -EPROTO;
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

/* May a daemon leave such a record?  HOLD_LIFE is hold's own. */
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

static void strange_note(struct deposit *p, const struct hold_record *r, int fd)
{
	if (fd >= 0)
		close(fd);
	if (p->nr_strange < ARRAY_SIZE(p->strange))
		p->strange[p->nr_strange++] = *r;
}

static void strange_drop(struct deposit *p)
{
	u32 i;

	if (p->nr_strange)
		pr_warn("%u records of the last daemon are none that it may leave: dropped",
			p->nr_strange);
	for (i = 0; i < p->nr_strange; i++)
		deposit_drop(p, p->strange[i].kind, p->strange[i].index);
	p->nr_strange = 0;
}

/* Take a record that adoption needs.  Return: false: @fd is still the caller's. */
static bool take_memory(struct deposit *p, const struct hold_record *r, int fd)
{
	switch (r->kind) {
	case HOLD_ARENA:
		p->left_arena = fd;
		return true;
	case HOLD_KEEP:
		p->left_keep = fd;
		return true;
	case HOLD_HOST:
		p->left_host = fd;
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

static void take_client(struct deposit *p, u32 index, int fd)
{
	p->nr_kept = max(p->nr_kept, index + 1);
	if (index < MAX_CLIENTS)
		p->client[index] = fd;
	else
		old_add(p, fd);
}

/* The first record, from hold itself. */
static void take_life(struct deposit *p, const struct hold_record *r)
{
	p->life = r->index;
	if (p->life & HOLD_LIFE_NEXT)
		kv_fault_crash_none();
	/* A descriptor without room gets lost, and the start is a cold one. */
	(void)files_raise(r->value + FDS_OTHER);
}

static void deposit_take(struct deposit *p, const struct hold_record *r, int fd)
{
	if (!record_is_known(r)) {
		strange_note(p, r, fd);
		return;
	}
	if (take_memory(p, r, fd))
		return;
	switch (r->kind) {
	case HOLD_LIFE:
		take_life(p, r);
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
		take_client(p, r->index, fd);
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
 * deposit_init() - receive all records that hold has
 * Return: 0, also without hold; or a negative errno, which has been logged.
 */
int deposit_init(struct deposit *p)
{
	struct timeval tv = { .tv_sec = HOLD_WAIT_S };
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
	strange_drop(p);
	return 0;
}
