/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - connections to the view sockets
 *
 *	view.c	a request line, an answer
 *	ask.c	requests of kvmm-proc for other users
 *	wait.c	connections that wait for a pressure trigger
 *	spend.c	a bound on the time of the mm thread that a user's requests take
 *
 * Context: control thread, but for functions handed to mm_call().
 */
#ifndef KVMM_IPC_VIEW_H
#define KVMM_IPC_VIEW_H

#include "kvmm/ipc/admin/admin.h"
#include "kvmm/ipc/clients/clients.h"
#include "kvmm/ipc/conn/conn.h"
#include "kvmm/ipc/mm/mm.h"

#define SPEND_USERS	64
#define SPEND_WAIT_NS	NSEC_PER_SEC	/* of a request; kvmm-proc waits longer for an answer */

/**
 * struct spend_user - the budget of a user
 * @at:   time of @left; 0: no record
 * @left: nanoseconds of the mm thread; negative: the user is in debt
 */
struct spend_user {
	u64	key;
	u64	at;
	s64	left;
};

/**
 * struct spend - the budgets
 * @all: of all users together
 */
struct spend {
	struct spend_user	all;
	struct spend_user	users[SPEND_USERS];
};

/**
 * struct views - the view sockets
 * @clients:   also lists the connections, as readers
 * @operators: make the changes that a reader with rights asks for
 * @proc:      makes the text
 * @spend:     time of the mm thread that users spent
 */
struct views {
	struct setup		*setup;
	struct loop		*loop;
	struct mm		*mm;
	struct sockets		*sockets;
	struct clients		*clients;
	struct operators	*operators;
	struct proc		*proc;
	struct spend		spend;
};

/**
 * struct asker - the user of a request
 * @key:    of its tenant; PROC_ALL: it sees all tenants
 * @payer:  the user whose bounds hold for it; PROC_ALL: root and the daemon's own
 * @rights: KV_RIGHT_*; at a tenant's socket to read its own files alone
 */
struct asker {
	u64	key;
	u64	payer;
	u32	rights;
};

/**
 * struct view_wait - the trigger that a connection waits for
 * @payer:   the user that asked, as in struct asker
 * @trigger: of the core; CORE_NONE: none
 * @fired:   times that it fired
 */
struct view_wait {
	u64	payer;
	u32	trigger;
	u64	fired;
};

/**
 * struct view - one connection
 * @asker: its user, before kvmm-proc names another
 * @over: one too many of its tenant: it gets that as answer to its request
 * @due:  time at which its complete request is tried again; 0: it does not wait
 * @asked: time of the first try
 * @len:  bytes of the request so far
 * @head: first line of the answer, @head_len bytes; 0: not answered yet
 * @sent: bytes of head and text that are out
 * @wait: its trigger, if it waits for one
 */
struct view {
	struct reader	reader;
	struct asker	asker;
	struct watch	sock;
	bool		over;
	u64		deadline;
	u64		due;
	u64		asked;
	size_t		len;
	size_t		head_len;
	size_t		body_len;
	size_t		sent;
	struct view_wait wait;
	struct seq_file	out;
	char		head[PROC_HEAD_MAX];
	char		req[PROC_REQ_MAX];
};

/* ask.c */
void view_asker(const struct views *vs, uid_t uid, u32 rights, struct asker *a);
u64 view_user(const struct views *vs, const struct asker *asker, const char *req,
	      size_t len);
int __must_check view_request(struct views *vs, const struct asker *asker,
			      const char *req, size_t len, struct view_wait *wait,
			      struct seq_file *out);

/* spend.c */
u64 spend_due(struct spend *s, u64 key, u64 now);
void spend_charge(struct spend *s, u64 key, u64 now, u64 ns);

/* wait.c */
int __must_check wait_begin(struct views *vs, const struct asker *a,
			    const char *req, struct view_wait *w,
			    struct seq_file *out);
void wait_end(struct views *vs, struct view_wait *w);
void wait_take(struct views *vs);

/* view.c */
void view_accept(void *arg, struct watch *w, u32 events);
u64 view_timers(struct views *vs, u64 now);
void view_exit_all(struct views *vs);

#endif /* KVMM_IPC_VIEW_H */
