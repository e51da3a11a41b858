/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm.h - the mm thread: the core, and the rings of attached clients
 *
 *	mm.c		a turn, sleeping, calls of the control thread
 *	serve.c		from a client's ring through the core and back
 *	ops.c		commands of the core
 *	client.c	clients come and go
 *
 * The control thread changes the state of the mm thread by mm_call() alone: it
 * has one function run and waits for it.  In the other direction the mm thread
 * sets bits and words and rings a bell; there is no queue, so nothing can be
 * full.
 */
#ifndef KVMM_IPC_MM_H
#define KVMM_IPC_MM_H

#include <pthread.h>
#include <semaphore.h>

#include <kvmm/ring.h>

#include "kvmm/ipc/base/base.h"
#include "kvmm/ipc/base/setup.h"
#include "kvmm/ipc/events/events.h"
#include "kvmm/ipc/tiers/tiers.h"

#define ARG_BYTES	(512u << 10)	/* arguments in segment C */
#define RESULT_BYTES	(512u << 10)	/* results in segment D */

/**
 * struct client_ring - the rings of one client
 * @sq:        consuming end of submissions
 * @cq:        producing end of completions
 * @ctl:       the client's control words, in C
 * @dctl:      the daemon's, in D
 * @res_head:  bytes of the result area handed out, running
 * @res_tail:  bytes of these given back, running
 * @res_seen:  completions of which the results were given back
 * @res_end:   @res_head after each completion, one a slot of the ring
 * @stalled:   no room for the next answer; look again when cq_head moves
 * @guards:    of its segments, looked at after every turn
 */
struct client_ring {
	struct ring_cons	sq;
	struct ring_prod	cq;
	struct kvmm_client_ctl	*ctl;
	struct kvmm_daemon_ctl	*dctl;
	const struct kvmm_sqe	*sqes;
	const char		*args;
	struct kvmm_cqe		*cqes;
	char			*results;
	u32			arg_bytes;
	u32			result_bytes;
	u64			res_head;
	u64			res_tail;
	u32			res_seen;
	u64			*res_end;
	bool			stalled;
	int			guards[2];
};

/* mm_client.notes: set by the mm thread, taken by the control thread */
#define NOTE_DETACHED	BIT(0)
#define NOTE_EXPELLED	BIT(1)
#define NOTE_KILLED	BIT(2)
#define NOTE_UNKILLABLE	BIT(3)

/**
 * struct mm_client - one client, as the mm thread knows it
 * @id:     of the core, CORE_NONE before it attached
 * @bell:   its eventfd; it wakes the mm thread
 * @pidfd:  of its process
 * @want:   generation to send of each extent; written by the mm thread
 * @dirty:  extents whose @want changed; set by mm, taken by control
 * @notes:  NOTE_*
 * @why:    of NOTE_EXPELLED; written before the note
 * @reason: of NOTE_KILLED, or errno of NOTE_UNKILLABLE; written before the note
 * @ring:   the mm thread's, while the client is active
 */
struct mm_client {
	u32			id;
	int			bell;
	int			pidfd;
	u32			*want;
	u64			*dirty;
	u32			notes;
	const char		*why;
	int			reason;
	struct client_ring	ring;
};

/**
 * struct mm - the mm thread
 * @ops:           commands of the core
 * @clients:       by the core's id
 * @known:         clients that the core knows, a bit each
 * @active:        of these, clients with rings that are served
 * @wake:          clients to be woken before the turn ends
 * @kick_due:      the control thread is to look at the words below
 * @args:          the thread's copy of the arguments of one request
 * @trace:         NULL: events are not recorded
 * @served:        turns of clients that had requests, since the start
 * @idle_ns:       time that the thread slept
 * @sleeper:       wakes the thread
 * @kick:          wakes the control thread
 * @call_fn:       function that the control thread waits for
 * @call_ns:       CPU time that such functions took, for the control thread
 * @send_mask:     clients with changes in @dirty
 * @note_mask:     clients with new @notes
 * @ghost_any:     @ghost_ends changed
 * @ghost_ends:    by tenant: its ghosts are to be killed
 * @trigger_fired: triggers of the core that fired, a bit each
 * @trigger_gone:  triggers of domains that are gone
 */
struct mm {
	struct setup		*setup;
	struct mapper		*mapper;
	struct copier		*copier;
	struct swap_mm		*swap;
	struct events		*events;

	struct core_ops		ops;
	pthread_t		thread;
	int			epoll;
	struct mm_client	*clients[MAX_CLIENTS];
	u64			known;
	u64			active;
	u64			wake;
	bool			kick_due;
	u64			*args;
	void			*trace;
	u64			next_tick;
	u32			spin;
	u64			served;
	u64			idle_ns;

	struct sleeper		sleeper;
	struct watch		kick;
	u32			stop;
	u32			call_pending;
	void			(*call_fn)(struct core *core, void *arg);
	void			*call_arg;
	u64			call_ns;
	sem_t			call_done;
	u64			send_mask;
	u64			note_mask;
	u32			ghost_any;
	u8			*ghost_ends;
	u64			trigger_fired;
	u64			trigger_gone;
};

/* mm.c */
int __must_check mm_init(struct mm *m);
int __must_check mm_start(struct mm *m);
void mm_stop(struct mm *m);
void mm_exit(struct mm *m);
int __must_check mm_call(struct mm *m,
			 void (*fn)(struct core *core, void *arg), void *arg);
void mm_shutdown(struct mm *m);
void *mm_map(u64 bytes);
void mm_unmap(void *p, u64 bytes);

/* ops.c */
int __must_check mm_ready_core(struct mm *m);

/* client.c */
void mm_introduce(struct mm *m, struct mm_client *c);
void mm_activate(struct mm *m, struct mm_client *c);
void mm_deactivate(struct mm *m, struct mm_client *c);
void mm_forget(struct mm *m, struct mm_client *c);
void mm_note(struct mm *m, struct mm_client *c, u32 note);

/* serve.c */
bool serve_due(struct mm_client *c);
u32 serve_client(struct mm *m, struct mm_client *c, u64 now);
void serve_last(struct mm *m, struct mm_client *c, u64 now);
void serve_expel(struct mm *m, struct mm_client *c, u64 now, const char *why);

#endif /* KVMM_IPC_MM_H */
