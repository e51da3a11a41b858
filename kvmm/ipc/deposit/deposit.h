/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deposit.h - records and memory that kvmm-hold keeps for the next daemon
 *
 *	send.c		put and drop records; those that hold cannot take at once
 *	take.c		receive the records of the last daemon
 *	epoch.c		a new epoch or the old one, and the end
 *	old.c		clients of the last daemon, after a cold start
 *	keep.c		records of clients and swap areas, in memory that hold keeps
 *	memory.c	make and copy such memory
 *
 * Without hold each function here does nothing.
 *
 * Context: start-up, then the control thread; deposit_try() any thread, and
 * the records of areas the mm thread while the control thread waits for it.
 */
#ifndef KVMM_IPC_DEPOSIT_H
#define KVMM_IPC_DEPOSIT_H

#include <stdio.h>

#include <kvmm/types.h>

#include "kvmm/hold/hold.h"
#include "kvmm/ipc/base/base.h"
#include "kvmm/ipc/base/setup.h"
#include "kvmm/ipc/deposit/keep.h"

#define MAX_GHOSTS	128	/* processes that the next daemon watches */
#define MAX_LISTEN	(3 + 2 * KV_LIST_MAX)	/* listening sockets; hold.h */
#define OLD_INDEX	MAX_CLIENTS	/* HOLD_CLIENT: indices of old clients */

struct extent_fd {
	int	fd;
	u32	generation;
};

struct late;

/**
 * struct deposit - the socket to kvmm-hold, and what the last daemon left there
 * @fd:         to hold, -1: there is no hold
 * @late:       records that hold has yet to take
 * @keep:       records of this daemon's clients and areas
 * @life:       HOLD_LIFE_*
 * @last_epoch: 0: there was no daemon before
 * @lock:       instance lock, -1: none
 * @listen:     listening sockets
 * @size:       of the pools, HOLD_SIZE by index; 0: none
 * @area:       files of swap areas
 * @left_arena: memory that may be adopted, -1: none; likewise @left_keep and
 *              @left_host
 * @client:     pidfds, by the core's number
 * @extent:     @nr_extents of them
 * @ghost:      pidfds of processes that detached
 * @strange:    records of no known kind or place
 * @old:        pidfds of clients that are to let go of the old memory
 * @old_maps:   /proc/PID/maps of each, NULL: cannot be read
 * @nr_kept:    one more than the last index of their records
 */
struct deposit {
	struct setup	*setup;
	int		fd;
	struct late	*late;
	struct keep	*keep;
	int		keep_fd;

	u32		life;
	u64		last_epoch;
	int		lock;
	int		listen[MAX_LISTEN];
	u64		size[2];
	struct {
		int	fd;
		u64	value;
	}		area[CORE_MAX_AREAS];
	int		left_arena;
	int		left_keep;
	int		left_host;
	int		client[MAX_CLIENTS];
	struct extent_fd *extent;
	u32		nr_extents;
	struct {
		int	fd;
		u32	index;
		u64	value;
	}		ghost[MAX_GHOSTS];
	u32		nr_ghosts;
	struct hold_record strange[HOLD_RECORDS];
	u32		nr_strange;

	int		old[HOLD_RECORDS];
	FILE		*old_maps[HOLD_RECORDS];
	u32		nr_old;
	u32		nr_kept;
	u64		old_deadline;
};

/* deposit_wanted() - is anything kept for a daemon after this one? */
static inline bool deposit_wanted(const struct deposit *p)
{
	return !p->setup->opt.adopt && p->fd >= 0;
}

/* send.c */
int __must_check deposit_try(struct deposit *p, const struct hold_record *r,
			     int fd);
const char *deposit_kept(struct deposit *p, u32 kind, int fd);
void deposit_record(struct deposit *p, const struct hold_record *r, int fd);
void deposit_put(struct deposit *p, u32 kind, u32 index, int fd, u64 value);
void deposit_drop(struct deposit *p, u32 kind, u32 index);
u64 deposit_late_timers(struct deposit *p, u64 now);
void deposit_late_flush(struct deposit *p);
void deposit_late_exit(struct deposit *p);

/* take.c */
int __must_check deposit_receive(int sock, struct hold_record *r, int *fd);
int __must_check deposit_init(struct deposit *p);

/* epoch.c */
void deposit_none(struct deposit *p);
void deposit_cold(struct deposit *p, const char *why);
void deposit_adopted(struct deposit *p);
void deposit_exit(struct deposit *p);

/* old.c */
void old_add(struct deposit *p, int pidfd);
void old_move(struct deposit *p, u32 first);
u64 deposit_timers(struct deposit *p, u64 now);
bool deposit_wait_old(struct deposit *p);

/* memory.c */
void *keep_memory(const char *name, u64 bytes, int *fd);
void *keep_copy(const char *name, int from, u64 bytes, int *fd);

/* keep.c: see keep.h */
void keep_boot(u64 *boot);
u64 keep_layout(void);
int __must_check keep_make(struct deposit *p);
const char *keep_take(struct deposit *p, int fd);
void keep_exit(struct deposit *p);
void keep_client_put(struct deposit *p, u32 id, const struct keep_client *k);
void keep_client_told(struct deposit *p, u32 id);
void keep_client_drop(struct deposit *p, u32 id);
void keep_area_put(struct deposit *p, u32 index, const struct keep_area *k);
void keep_area_drop(struct deposit *p, u32 index);

#endif /* KVMM_IPC_DEPOSIT_H */
