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
#include "kvmm/ipc/base/base.h"
#include "kvmm/ipc/base/setup.h"
#include "kvmm/ipc/deposit/deposit.h"
#include "kvmm/ipc/swap/swap.h"
#include "kvmm/ipc/conn/conn.h"
#include "kvmm/ipc/mm/mm.h"
#include "kvmm/ipc/tiers/tiers.h"
#include "kvmm/proc/proc.h"

#define MAX_GREETING_TENANT	8	/* of one tenant */
#define GREETING_MS		2000	/* to send the attach request */
#define LEAVING_MS		2000	/* from DETACH to closing the socket */
#define LINGER_MS		1000	/* from there to the end of the process */
#define QUIET_POLL_NS		(5 * NSEC_PER_MSEC)

#define SQ_ENTRIES_DEFAULT	256u
#define EVENT_ENTRIES		1024u

struct daemon;

enum client_stage {
	CLIENT_GREETING,	/* connected, has not asked yet */
	CLIENT_ATTACHED,
	CLIENT_LEAVING,		/* said DETACH, its socket is open */
	CLIENT_LINGERING,	/* detached and hung up; it may end any moment */
	CLIENT_HUNG_UP,		/* the core knows; its process may still write */
	CLIENT_AWAY,		/* of the last daemon; it may resume */
};

/**
 * struct client - one connection to the attach socket
 * @mm:       the mm thread's part
 * @deadline: of its stage, or 0
 * @ended:    when its process had ended, 0: it lives
 * @key:      of its tenant
 * @todo:     extents to be sent, a bit each; the control thread's
 * @nr_sent:  descriptors sent, for the log
 * @flying:   extents whose descriptors were sent, until their state in
 *            @extents says that they came; a bit each
 * @nr_flying: how many
 * @held:     its tenant has too many of these: the rest waits
 */
struct client {
	struct list		node;
	struct watch		sock;
	struct watch		pidfd;
	enum client_stage	stage;
	struct mm_client	mm;
	u64			deadline;
	u64			ended;
	uid_t			uid;
	u64			key;
	u32			tenant;
	struct proc_client_info	info;
	struct segment		c;
	struct segment		d;
	u64			*todo;
	bool			todo_any;
	bool			want_out;
	u64			nr_sent;
	u64			*flying;
	u32			nr_flying;
	bool			held;
	const struct kvmm_extent_status *extents;
};

/*
 * A user, or who connects to a socket of its own, and how often it was refused
 * something.  What its hashes are keyed with the core alone knows.
 */
struct tenant {
	bool	used;
	u64	key;
	u64	refused;
};

/**
 * struct daemon - the shell around one core
 * @clients:      by the core's id; the control thread's view
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
	struct list		greeting;
	struct list		attached;	/* every later stage too */
	struct list		ghosts;		/* processes that outlived DETACH */
	struct list		dead;		/* freed after this round */
	struct list		views;
	struct admins		admins;
	u32			nr_greeting;
	u32			send_batch;
	struct client		*clients[MAX_CLIENTS];
	struct tenant		*tenants;
	struct proc		*proc;
	struct deposit		deposit;
	/* where its names are, which it removes if its user may */
	char			unlink_dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct sandbox		box;
	bool			upgrading;	/* and another one goes on */
	struct admin		*upgrade_waiter;
	char			upgrade_path[4096];
	u32			upgrade_nr;	/* of the last question */
};

/* daemon.c */
struct daemon *daemon_alloc(void);

/* control.c */
int __must_check control_init(struct daemon *d);
void control_run(struct daemon *d);
void control_exit(struct daemon *d);
int __must_check control_hear_hold(struct daemon *d);
void control_from_hold(void *arg, struct watch *w, u32 events);

/* client.c */
void client_accept(void *arg, struct watch *w, u32 events);
struct client *client_alloc(int sock);
void client_drop(struct daemon *d, struct client *c);
void client_hang_up(struct daemon *d, struct client *c);
void client_make_room(struct daemon *d);
void client_abort(struct daemon *d, struct client *c);
void client_free(struct daemon *d, struct client *c);
void client_take_notes(struct daemon *d);
void client_send_extents(struct daemon *d, u64 mask);
u64 client_timers(struct daemon *d, u64 now);
void client_exit_all(struct daemon *d);
void client_on_sock(void *arg, struct watch *w, u32 events);
void client_on_pidfd(void *arg, struct watch *w, u32 events);
void client_greet(struct daemon *d, struct client *c);
void client_drop(struct daemon *d, struct client *c);

/* ghost.c */
void ghost_add(struct daemon *d, const struct client *c);
u32 ghost_count(const struct daemon *d, u64 key);
void ghost_adopt(struct daemon *d);
u64 ghost_timers(struct daemon *d, u64 now);
void ghost_exit_all(struct daemon *d);
void ghost_kill_all(struct daemon *d);

/* attach.c */
int attach_refuse(struct kvmm_attach_rep *rep, int err, const char *fmt, ...)
	__printf(3, 4);
int attach_check_abi(const struct kvmm_attach_req *req,
		     struct kvmm_attach_rep *rep);
void attach_answer(struct daemon *d, struct client *c,
		   const struct kvmm_attach_req *req);
void attach_request(struct daemon *d, struct client *c,
		    const struct kvmm_attach_req *req);
int __must_check attach_again(struct daemon *d, struct client *c,
			      u32 sq_entries, u32 first,
			      const struct core_attach_info *in,
			      struct kvmm_attach_rep *rep);
int __must_check client_tables(const struct daemon *d, struct client *c);

/* adopt.c */
void adopt_start(struct daemon *d);
void adopt_extents(struct daemon *d);
int __must_check adopt_hostpool(struct daemon *d);
int __must_check adopt_clients(struct daemon *d);
void adopt_tell(struct daemon *d);
u64 adopt_timers(struct daemon *d, u64 now);

/* resume.c */
void resume_request(struct daemon *d, struct client *c,
		    const struct kvmm_attach_req *req);
void resume_give_up(struct daemon *d, struct client *c);
int __must_check resume_await(struct daemon *d, u32 id, int pidfd);

/* upgrade.c */
void upgrade_request(struct daemon *d, struct admin *adm, const char *req,
		     int fd);
void upgrade_told(struct daemon *d, const struct hold_record *r);
void upgrade_forget_waiter(struct daemon *d, const struct admin *adm);
void __noreturn upgrade_leave(struct daemon *d);

/* send.c */
void extents_send(struct daemon *d, struct client *c);

/* make.c */
int __must_check core_make(struct daemon *d);

/**
 * struct view_wait - a connection that waits for a pressure trigger
 * @key:     whose trigger it is
 * @trigger: of the core; CORE_NONE: none
 * @fired:   times that it fired
 */
struct view_wait {
	u64	key;
	u32	trigger;
	u64	fired;
};

/* view.c */
int __must_check view_request(struct daemon *d, u64 key, const char *req,
			      size_t len, struct view_wait *wait,
			      struct seq_file *out);
void view_fired(struct daemon *d, u64 fired, u64 gone);
u32 view_count_waits(const struct daemon *d, u64 key, bool others);
void view_accept(void *arg, struct watch *w, u32 events);
u64 view_timers(struct daemon *d, u64 now);
void view_exit_all(struct daemon *d);
u32 view_count(const struct daemon *d, u64 key);

/* wait.c */
int __must_check wait_begin(struct daemon *d, const char *req,
			    struct view_wait *w, struct seq_file *out);
void wait_end(struct daemon *d, struct view_wait *w);
void wait_take(struct daemon *d);

/* admin.c */
void admin_accept(void *arg, struct watch *w, u32 events);
u64 admin_timers(struct daemon *d, u64 now);
void admin_exit_all(struct daemon *d);

/* tenant.c */
u32 tenant_clients(const struct daemon *d, u64 key);
u32 tenant_conns(const struct daemon *d, u64 key);
u32 tenant_flying(const struct daemon *d, u64 key);
struct tenant *tenant_get(struct daemon *d, u64 key);
struct tenant *tenant_find(struct daemon *d, u64 key);
int tenant_get_info(void *arg, u64 key, struct proc_tenant_info *info);

/* greeting.c */
void greeting_make_room(struct daemon *d, u64 key);

/* limits.c */
int __must_check limits_files(struct daemon *d);
u64 limits_records(const struct daemon *d);
int __must_check limits_memory(struct daemon *d);

/* limits_size.c */
u64 limits_share(const struct kv_amount *a, const struct memory_room *m,
		 u64 taken, u64 huge, u64 unit);
int __must_check limits_sizes(struct daemon *d);

#endif /* KVMM_IPC_DAEMON_H */
