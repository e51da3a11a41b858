/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiers.h - orders of the core to other threads and to swapd, and their answers
 *
 *	extents.c	the table of extent descriptors
 *	mapper.c	make and release extents
 *	copier.c	copy blocks between the device and the host pool
 *	copier_many.c	the same with a device that makes many copies at once
 *	swap.c		requests to swapd
 *	busy.c		how long swap areas were busy
 *
 * The mm thread hands an order over with a function _push and takes answers
 * with a function _collect.  The queues have room for all orders that can be
 * under way at once; a full queue is a broken invariant.
 */
#ifndef KVMM_IPC_TIERS_H
#define KVMM_IPC_TIERS_H

#include <pthread.h>
#include <semaphore.h>

#include <kvmm/ring.h>
#include <kvmm/swapd.h>

#include "kvmm/ipc/base/base.h"
#include "kvmm/ipc/base/queue.h"
#include "kvmm/ipc/base/setup.h"
#include "kvmm/ipc/deposit/deposit.h"

/* ---- extents.c: mapper, copier and control thread ---- */

/**
 * struct extents - the descriptors of all extents
 * @lock:  the only lock of the daemon; the mm thread never takes it
 * @table: by the core's number; fd -1: not made
 */
struct extents {
	pthread_mutex_t		lock;
	struct extent_fd	*table;
};

int __must_check extents_init(struct extents *x, u32 nr);
int extents_get(struct extents *x, u32 extent);
void extents_publish(struct extents *x, u32 extent, int fd, u32 generation);

/* ---- mapper.c ---- */

#define MAP_CREATE	1
#define MAP_RELEASE	2

struct map_msg {
	u32	op;
	u32	extent;
	u32	generation;
	s32	status;
};

/**
 * struct mapper - the thread that makes and releases extents
 * @mm:     the mm thread
 * @todo:   struct map_msg, mm to mapper
 * @done:   struct map_msg, mapper to mm
 * @since:  when the device call under way began, or 0
 * @extent: of that call
 * @warned: the control thread warned of the call that began then
 */
struct mapper {
	struct setup	*setup;
	struct deposit	*deposit;
	struct extents	*extents;
	struct sleeper	*mm;
	struct queue	todo;
	struct queue	done;
	sem_t		bell;
	u32		stop;
	u64		since;
	u32		extent;
	u64		warned;
	pthread_t	thread;
};

int __must_check mapper_init(struct mapper *m);
int __must_check mapper_start(struct mapper *m);
bool mapper_stop(struct mapper *m);
void mapper_exit(struct mapper *m);
void mapper_push(struct mapper *m, u32 op, u32 extent, u32 generation);
bool mapper_collect(struct mapper *m, u64 now);
void mapper_watchdog(struct mapper *m, u64 now);
void device_look(struct setup *s, u64 now);

/* ---- copier.c ---- */

struct copy_done {
	u64	id;
	s32	status;
	u32	resv;
};

/* Counters of copies; written by the thread, read by others. */
struct copy_counts {
#define x(name, text) u64 name;
	PROC_COPIER_COUNTERS(x)
#undef x
};

/**
 * struct copier - the thread that copies blocks of one device
 * @mm:     the mm thread
 * @todo:   struct core_copy, mm to copier
 * @done:   struct copy_done, copier to mm
 * @since:  when the copy under way began, or 0
 * @woken:  when the thread last woke the mm thread
 * @warned: the control thread warned of the copy that began then
 */
struct copier {
	struct setup	*setup;
	struct extents	*extents;
	struct sleeper	*mm;
	struct queue	todo;
	struct queue	done;
	sem_t		bell;
	u32		stop;
	u64		since;
	u64		woken;
	u64		warned;
	pthread_t	thread;
	struct copy_counts count;
};

u64 copier_bytes(const struct setup *s);
int __must_check copier_init(struct copier *c);
int __must_check copier_start(struct copier *c);
bool copier_stop(struct copier *c);
void copier_exit(struct copier *c);
void copier_push(struct copier *c, const struct core_copy *cp);
bool copier_collect(struct copier *c, u64 now);
void copier_get_counts(const struct copier *c, struct copy_counts *count);
void copier_watchdog(struct copier *c, u64 now);

/* For copier_many.c. */
int __must_check copier_judge(const struct copier *c,
			      const struct core_copy *cp);
void copier_clear_tail(const struct copier *c, const struct core_copy *cp);
int __must_check copier_fault(const struct core_copy *cp);
void copier_finish(struct copier *c, const struct core_copy *cp, u64 ns,
		   int status);
void copier_many(struct copier *c);

static inline bool copier_waits(const struct copier *c)
{
	return c->done.slot && !queue_empty(&c->done);
}

/* ---- swap.c: mm thread, but for init and exit ---- */

#define SWAP_ENTRIES	1024u	/* unfinished requests at most */
#define SWAP_TRIES	8	/* deaths of swapd after which a request fails */
#define SWAP_CAREFUL	2	/* deaths after which it is issued alone */

enum swap_io_state {
	SWAP_IO_FREE,
	SWAP_IO_ISSUED,		/* swapd has it */
	SWAP_IO_ORPHAN,		/* that swapd is dead; its transfer may go on */
	SWAP_IO_AGAIN,		/* it is for the next swapd */
};

/**
 * struct swap_io - one unfinished request; its place is the tag of its id
 * @id:         under which swapd knows it
 * @carrier:    of an orphan: its transfer; @nr 0: it is in none
 * @generation: of that swapd
 * @next:       free list, or list of requests to be issued again
 * @issued:     when it was issued last, ns
 */
struct swap_io {
	struct core_io	io;
	u64		id;
	struct swapd_carrier carrier;
	u32		generation;
	u32		state;
	u32		tries;
	u32		next;
	u64		issued;
};

/* Counters of requests. */
struct swap_counts {
#define x(name, text) u64 name;
	PROC_SWAP_COUNTERS(x)
#undef x
};

/**
 * struct swap_mm - the mm thread's half of swap
 * @kick:       the control thread is to look at @works, @broken, @stalled and
 *              @failed
 * @ctl:        the shared memory, NULL: there is no swap
 * @req:        producing end of the requests
 * @cpl:        consuming end of the completions
 * @req_bell:   wakes swapd
 * @cpl_bell:   wakes the mm thread
 * @io:         SWAP_ENTRIES
 * @free:       first free one
 * @again:      first and last to be issued again
 * @nr_open:    entries that are not free
 * @nr_orphans: of these, SWAP_IO_ORPHAN
 * @nr_issued:  of these, SWAP_IO_ISSUED
 * @suspect:    an issued one met SWAP_CAREFUL deaths: it is the only one
 * @serial:     of the last request
 * @backlog:    struct core_io that wait for a free entry or for swapd
 * @generation: of the swapd whose rings these are
 * @joined:     the rings are in use
 * @up:         its areas are there: it takes requests
 * @works:      last generation that did a request
 * @gone:       there is no swapd and will be none
 * @broken:     swapd forged an index
 * @stalled:    areas of the core that are stalled, a bit each
 * @failed:     rises when requests failed
 * @area:       by the core's index; @index and @off as swapd counts; @nr of its
 *              requests are issued and not over, since @since there is one; it
 *              was busy for @busy_ns before
 */
struct swap_mm {
	struct setup		*setup;
	bool			kick;
	struct swapd_ctl	*ctl;
	struct swapd_req	*reqs;
	struct swapd_cpl	*cpls;
	struct swapd_carrier	*carriers;
	struct ring_prod	req;
	struct ring_cons	cpl;
	int			req_bell;
	int			cpl_bell;
	struct swap_io		*io;
	u32			free;
	u32			again[2];
	u32			nr_open;
	u32			nr_orphans;
	u32			nr_issued;
	bool			suspect;
	u64			serial;
	struct queue		backlog;
	u32			generation;
	bool			joined;
	bool			up;
	bool			gone;
	u32			broken;
	u32			stalled;
	u32			failed;
	u32			works;
	struct swap_counts	count;
	struct {
		bool	live;
		u32	index;
		u64	off;
		u32	nr;
		u64	since;
		u64	busy_ns;
	} area[CORE_MAX_AREAS];
};

/* A message of hold about a dead swapd. */
struct swap_tale {
	u32	kind;
	u32	generation;
	s32	res;
	u64	id;
};

u64 swap_bytes(const struct setup *s);
int __must_check swap_init(struct swap_mm *sw, int mm_epoll, int *shm);
void swap_exit(struct swap_mm *sw);
void swap_push(struct swap_mm *sw, const struct core_io *io);
bool swap_collect(struct swap_mm *sw, u64 now);
bool swap_pump(struct swap_mm *sw, u64 now);
bool swap_waits(const struct swap_mm *sw);
void swap_note_stalls(struct swap_mm *sw);
void swap_join(struct swap_mm *sw, u32 generation);
void swap_leave(struct swap_mm *sw, u64 now, u32 generation);
void swap_hear(struct swap_mm *sw, u64 now, const struct swap_tale *tale);

/* ---- busy.c: mm thread ---- */

void busy_begin(struct swap_mm *sw, u32 area, u64 now);
void busy_end(struct swap_mm *sw, u32 area, u64 now);
u64 busy_ns(const struct swap_mm *sw, u32 area, u64 now);

#endif /* KVMM_IPC_TIERS_H */
