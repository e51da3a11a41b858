/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.h - what the files of the daemon's shell share
 *
 * Five threads, and who may touch what:
 *
 *   control	sockets, struct client, the files for operators; the main thread
 *   mm		struct core and everything that the core points at; struct
 *		client_ring of active clients
 *   mapper	the device: makes and releases extents
 *   copier	the device's blocks and the host pool's slots, see tiers.h
 *   closer	connections that are over, until they are closed
 *
 *   control -> mm	mm_call(): one function at a time, waited for
 *   mm -> control	words that say what is due (want, dirty, notes), and a
 *			kick; no queue, so nothing can be full
 *   mm <-> mapper	two queues, sized for the extents there are
 *   mm <-> copier	two queues, sized for the slots there are
 *   control -> closer	a list that can take any number; a counter says when
 *			to accept no more
 *   mapper, control, copier
 *			the table of extent descriptors, under extent_lock
 *
 * extent_lock is the only lock; the mm thread never takes it.
 */
#ifndef KVMM_IPC_DAEMON_H
#define KVMM_IPC_DAEMON_H

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/un.h>

#include <kvmm/list.h>
#include <kvmm/ring.h>
#include <kvmm/sandbox.h>
#include <kvmm/types.h>

#include "kvmm/core/core.h"
#include "kvmm/dev/dev.h"
#include "kvmm/hold/hold.h"
#include <kvmm/kvmm_options.h>
#include <kvmm/tenant_opt.h>
#include "kvmm/ipc/admin/admin.h"
#include "kvmm/ipc/base/base.h"
#include "kvmm/ipc/base/setup.h"
#include "kvmm/ipc/deposit/deposit.h"
#include "kvmm/ipc/swap/swap.h"
#include "kvmm/ipc/clients/clients.h"
#include "kvmm/ipc/conn/conn.h"
#include "kvmm/ipc/mm/mm.h"
#include "kvmm/ipc/tiers/tiers.h"
#include "kvmm/ipc/view/view.h"
#include "kvmm/proc/proc.h"



struct daemon;

/**
 * struct daemon - the shell around one core
 * @works:        hold was told that this daemon does its work
 * @hold_watch:   hold has something to tell
 */
struct daemon {
	struct setup		setup;
	struct loop		loop;

	struct mm		mm;
	bool			works;
	struct extents		extents;
	struct mapper		mapper;
	struct sockets		sockets;

	/* the lower tiers */
	struct copier		copier;
	struct swap_mm		swap;		/* mm thread */
	struct swap_link	link;		/* control thread */
	struct watch		hold_watch;

	/* control thread */
	struct watch		signals;
	struct operators	operators;
	struct views		views;
	struct clients		clients;
	struct proc		*proc;
	struct deposit		deposit;
	/* where its names are, which it removes if its user may */
	char			unlink_dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct sandbox		box;
};

/* daemon.c */
struct daemon *daemon_alloc(void);

/* control.c */
int __must_check control_init(struct daemon *d);
void control_run(struct daemon *d);
void control_exit(struct daemon *d);
int __must_check control_hear_hold(struct daemon *d);
void control_from_hold(void *arg, struct watch *w, u32 events);

/* adopt.c */
void adopt_start(struct daemon *d);
void adopt_extents(struct daemon *d);
int __must_check adopt_hostpool(struct daemon *d);
int __must_check adopt_clients(struct daemon *d);
void adopt_tell(struct daemon *d);
u64 adopt_timers(struct daemon *d, u64 now);

/* make.c */
int __must_check core_make(struct daemon *d);

/* limits.c */
int __must_check limits_files(struct daemon *d);
u64 limits_records(const struct daemon *d);
int __must_check limits_memory(struct daemon *d);

/* limits_size.c */
u64 limits_share(const struct kv_amount *a, const struct memory_room *m,
		 u64 taken, u64 huge, u64 unit);
int __must_check limits_sizes(struct daemon *d);

#endif /* KVMM_IPC_DAEMON_H */
