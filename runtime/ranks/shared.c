// SPDX-License-Identifier: Apache-2.0
/*
 * shared.c - the window, a rank's view of it, and the exchange
 *
 * It knows nothing of MPI: the ranks may be processes or threads.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/ranks/internal.h"

#define SPIN_NS	20000u	/* before a rank sleeps, where each rank has a CPU */

static u64 part_bytes(u64 room)
{
	return ALIGN_UP(room ? room : 1, (u64)RANKS_LINE);
}

static u64 parts_at(u32 nr)
{
	return ALIGN_UP(sizeof(struct ranks_window) + nr * sizeof(struct ranks_slot),
			(u64)RANKS_LINE);
}

u64 ranks_window_bytes(u32 nr, u64 room)
{
	return parts_at(nr) + (u64)nr * RANKS_PARTS * (part_bytes(RANKS_GATHER) + part_bytes(room));
}

void ranks_window_init(struct ranks_window *w, u32 nr, u64 room)
{
	memset(w, 0, parts_at(nr));
	w->nr = nr;
	w->room = room;
}

/* ---- a rank's view ---- */

static u8 *part(const struct ranks_exchange *x, u32 rank, u32 turn)
{
	return x->parts + (rank * RANKS_PARTS + turn % RANKS_PARTS) * x->bytes;
}

static void lay_out(struct ranks *r)
{
	struct ranks_exchange *gather = &r->x[RANKS_W_GATHER], *share = &r->x[RANKS_W_SHARE];

	gather->bytes = part_bytes(RANKS_GATHER);
	gather->parts = (u8 *)r->w + parts_at(r->nr);
	share->bytes = part_bytes(r->w->room);
	share->parts = gather->parts + r->nr * RANKS_PARTS * gather->bytes;
	/* The pages of a rank's room lie in the memory of its node. */
	memset(part(share, r->self, 0), 0, RANKS_PARTS * share->bytes);
}

static void introduce(struct ranks_slot *s)
{
	cpu_set_t cpus;
	struct stat st;

	s->pid = (u32)getpid();
	if (!stat("/proc/self/ns/pid", &st))
		s->pidns = st.st_ino;
	if (!sched_getaffinity(0, sizeof(cpus), &cpus))
		memcpy(s->cpus, &cpus, min(sizeof(s->cpus), sizeof(cpus)));
}

struct ranks *ranks_view(struct ranks_window *w, u32 self, u32 timeout_ms)
{
	struct ranks *r = calloc(1, sizeof(*r));
	u32 i;

	if (!r)
		return NULL;
	r->w = w;
	r->self = self;
	r->nr = w->nr;
	r->timeout_ms = timeout_ms;
	for (i = 0; i < RANKS_MAX; i++)
		r->pidfd[i] = -1;
	lay_out(r);
	introduce(&w->slot[self]);
	return r;
}

void ranks_meet(struct ranks *r)
{
	const struct ranks_slot *own = &r->w->slot[r->self], *s;
	u64 cpus[ARRAY_SIZE(own->cpus)] = { 0 };
	u32 i, j, nr = 0;

	for (i = 0; i < r->nr; i++) {
		s = &r->w->slot[i];
		for (j = 0; j < ARRAY_SIZE(cpus); j++)
			cpus[j] |= s->cpus[j];
		if (s->pid != own->pid && s->pidns == own->pidns)
			r->pidfd[i] = (int)syscall(SYS_pidfd_open, (pid_t)s->pid, 0);
	}
	for (j = 0; j < ARRAY_SIZE(cpus); j++)
		nr += (u32)__builtin_popcountll(cpus[j]);
	r->spin_ns = nr >= r->nr ? SPIN_NS : 0;
}

void ranks_view_free(struct ranks *r)
{
	u32 i;

	for (i = 0; i < RANKS_MAX; i++)
		if (r->pidfd[i] >= 0)
			close(r->pidfd[i]);
	free(r);
}

void ranks_bound(struct ranks *r, u32 timeout_ms)
{
	r->timeout_ms = timeout_ms;
}

u32 ranks_number(const struct ranks *r)
{
	return r->self;
}

u32 ranks_nr(const struct ranks *r)
{
	return r->nr;
}

/* ---- exchange ---- */

int ranks_round(struct ranks *r, enum ranks_which x)
{
	int ret = ranks_failed(r);

	if (ret)
		return ret;
	ranks_raise(r, x, r->x[x].round + 1);
	ret = ranks_await_all(r, x, r->x[x].round + 1);
	if (ret)
		return ret;
	r->x[x].round++;
	r->x[x].turn = (r->x[x].turn + 1) % RANKS_PARTS;
	return 0;
}

u8 *ranks_part_next(const struct ranks *r, enum ranks_which x)
{
	return part(&r->x[x], r->self, r->x[x].turn);
}

const u8 *ranks_part_of(const struct ranks *r, enum ranks_which x, u32 rank)
{
	return part(&r->x[x], rank, r->x[x].turn + RANKS_PARTS - 1);
}

void *ranks_room(struct ranks *r)
{
	return ranks_part_next(r, RANKS_W_SHARE);
}

int ranks_share(struct ranks *r)
{
	return ranks_round(r, RANKS_W_SHARE);
}

const void *ranks_of(const struct ranks *r, u32 rank)
{
	return ranks_part_of(r, RANKS_W_SHARE, rank);
}

int ranks_gather(struct ranks *r, const void *mine, u32 bytes, void *all)
{
	u32 at, n, i;
	int ret;

	for (at = 0; at < bytes || !at; at += RANKS_GATHER) {
		n = min(bytes - at, RANKS_GATHER);
		if (n)
			memcpy(ranks_part_next(r, RANKS_W_GATHER), (const u8 *)mine + at, n);
		ret = ranks_round(r, RANKS_W_GATHER);
		if (ret)
			return ret;
		for (i = 0; n && i < r->nr; i++)
			memcpy((u8 *)all + (u64)i * bytes + at,
			       ranks_part_of(r, RANKS_W_GATHER, i), n);
		if (bytes - at <= RANKS_GATHER)
			break;
	}
	return 0;
}

/* ---- threads ---- */

static struct ranks_window *map_window(u32 nr, u64 room)
{
	struct ranks_window *w = mmap(NULL, ranks_window_bytes(nr, room), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (w == MAP_FAILED)
		return NULL;
	ranks_window_init(w, nr, room);
	return w;
}

int ranks_threads(u32 nr, u64 room, u32 timeout_ms, struct ranks **out)
{
	struct ranks_home *home;
	struct ranks_window *w;
	u32 i, made;

	if (nr < 1 || nr > RANKS_MAX || !timeout_ms || room > 1ull << 40)
		return -EINVAL;
	home = calloc(1, sizeof(*home));
	w = home ? map_window(nr, room) : NULL;
	for (made = 0; w && made < nr; made++) {
		out[made] = ranks_view(w, made, timeout_ms);
		if (!out[made])
			break;
		out[made]->home = home;
	}
	if (made == nr) {
		*home = (struct ranks_home) { nr, ranks_window_bytes(nr, room) };
		for (i = 0; i < nr; i++)
			ranks_meet(out[i]);
		return 0;
	}
	for (i = 0; i < made; i++)
		ranks_view_free(out[i]);
	if (w)
		munmap(w, ranks_window_bytes(nr, room));
	free(home);
	return -ENOMEM;
}
