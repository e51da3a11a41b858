/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.h - the whole daemon: each room's state, and the loop over them
 *
 * Six threads, and the state that each may touch:
 *
 *	control	sockets, clients, swap areas, operators; the main thread
 *	mm	the core and all that the core points at; struct mm, struct
 *		swap_mm, and struct mm_client of active clients
 *	mapper	the device: makes and releases extents
 *	copier	the device's blocks and the host pool's slots
 *	closer	connections that are over, until they are closed
 *	events	the sockets of --kv-events; only with that option, beside ZeroMQ's own
 *
 *	control -> mm	mm_call(): one function at a time, waited for
 *	mm -> control	bits and words that say what is due, and a bell; no queue,
 *			so nothing can be full
 *	mm <-> mapper	two queues, sized for the extents there are
 *	mm <-> copier	two queues, sized for the slots there are
 *	mm -> events	a ring; a record that finds no room is lost, and counted
 *	control -> closer	a list that can take any number; a counter says when
 *			to accept no more
 *	mapper, control, copier
 *			the table of extent descriptors, under extents.lock, which
 *			is the only lock; the mm thread never takes it
 *
 * A folder is a room with a header of its own.  ROOMS names them from the
 * lowest on; a room knows lower rooms alone.  Only the files beside this one
 * know struct daemon.
 */
#ifndef KVMM_IPC_DAEMON_H
#define KVMM_IPC_DAEMON_H

#include <kvmm/sandbox.h>

#include "kvmm/ipc/admin/admin.h"
#include "kvmm/ipc/base/base.h"
#include "kvmm/ipc/base/setup.h"
#include "kvmm/ipc/clients/clients.h"
#include "kvmm/ipc/conn/conn.h"
#include "kvmm/ipc/deposit/deposit.h"
#include "kvmm/ipc/events/events.h"
#include "kvmm/ipc/mm/mm.h"
#include "kvmm/ipc/start/start.h"
#include "kvmm/ipc/swap/swap.h"
#include "kvmm/ipc/tiers/tiers.h"
#include "kvmm/ipc/view/view.h"

/**
 * struct daemon - the shell around one core
 * @signals:    the control thread's signals
 * @hold_watch: messages of kvmm-hold
 * @config:     path of the file of options, whether it is there or not; "none"
 * @unlink_dir: directory of its sockets, which it removes if its user may
 */
struct daemon {
	struct setup		setup;
	struct loop		loop;
	struct deposit		deposit;
	struct extents		extents;
	struct mapper		mapper;
	struct copier		copier;
	struct swap_mm		swap;
	struct events		events;
	struct mm		mm;
	struct sockets		sockets;
	struct swap_link	link;
	struct clients		clients;
	struct operators	operators;
	struct views		views;
	struct adoption		adoption;
	struct watch		signals;
	struct watch		hold_watch;
	struct sandbox		box;
	char			config[4096];
	char			unlink_dir[SUN_PATH];
};

/* daemon.c */
struct daemon *daemon_alloc(void);

/* control.c */
int __must_check control_init(struct daemon *d);
void control_run(struct daemon *d);
void control_exit(struct daemon *d);
int __must_check control_hear_hold(struct daemon *d);

/* source.c */
int __must_check source_start(struct daemon *d);

#endif /* KVMM_IPC_DAEMON_H */
