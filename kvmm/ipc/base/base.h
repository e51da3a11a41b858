/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - time, the event loop, messages, processes, shared segments, log budgets
 *
 * These files know nothing of the daemon's state: a function gets all that it
 * needs as arguments.
 */
#ifndef KVMM_IPC_BASE_H
#define KVMM_IPC_BASE_H

#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/types.h>

#include "kvmm/proc/proc.h"

#define MAX_CLIENTS		64	/* a mask has one bit for each */
#define MAX_GREETING		64	/* connections without an attach request */
#define SQ_ENTRIES_MIN		16u	/* of the rings of a client */
#define SQ_ENTRIES_MAX		1024u
#define FDS_OTHER		(144 + CORE_NR_TRIGGERS) /* views, epolls, sockets, libraries */

#define NSEC_PER_MSEC		1000000ull
#define NSEC_PER_SEC		1000000000ull

/* ---- loop.c: control thread ---- */

/**
 * struct loop - an epoll and the descriptors in it
 * @epoll: its descriptor, -1: not made yet
 * @stop:  the loop is to end
 */
struct loop {
	int	epoll;
	bool	stop;
};

struct watch;
typedef void watch_fn(void *arg, struct watch *w, u32 events);

/**
 * struct watch - a descriptor in a loop
 * @fn:  called with @arg and the events of epoll; NULL: no event is delivered
 * @arg: usually the state of the room that the watch belongs to
 * @fd:  -1 when closed
 */
struct watch {
	watch_fn	*fn;
	void		*arg;
	int		fd;
};

int __must_check loop_init(struct loop *l);
int __must_check loop_wait(struct loop *l, int ms);
void loop_exit(struct loop *l);
int __must_check watch_add(struct loop *l, struct watch *w, u32 events);
void watch_events(struct loop *l, struct watch *w, u32 events);
void watch_remove(struct loop *l, struct watch *w);
void watch_close(struct loop *l, struct watch *w);

/* ---- bell.c: any thread ---- */

/**
 * struct sleeper - a thread that sleeps in epoll when it has no work
 * @asleep: see ring_sleep_prepare()
 * @bell:   eventfd that wakes it
 */
struct sleeper {
	u32	asleep;
	int	bell;
};

void bell_ring(int fd);
void sleeper_wake(struct sleeper *s);

/* ---- message.c ---- */
ssize_t sock_recv(int sock, void *buf, size_t len);
ssize_t sock_recv_fd(int sock, void *buf, size_t len, int flags, int *fd,
		     bool *cut);
int __must_check sock_send(int sock, const void *buf, size_t len,
			   const int *fds, u32 nr_fds);

/* ---- process.c ---- */

int __must_check peer_identify(int sock, struct proc_client_info *info);
pid_t pidfd_pid(int pidfd);
bool pidfd_ended(int pidfd);
int pidfd_kill(int pidfd);
u32 process_groups(pid_t pid, uid_t uid, gid_t **gids);

/* ---- segment.c ---- */

/**
 * struct segment - memory shared with one client
 * @guard: its index in the table that the handler of SIGBUS searches
 */
struct segment {
	char	*base;
	size_t	bytes;
	int	fd;
	int	guard;
};

int __must_check segment_guard_init(void);
int __must_check segment_create(struct segment *s, size_t bytes,
				const char *name, bool client_writes);
void segment_close_fd(struct segment *s);
void segment_destroy(struct segment *s);
bool segment_faulted(int guard);
u32 segment_fault_count(void);

/* ---- bounds.c ---- */

u64 files_raise(u64 need);
bool log_allowed(void);
bool log_life_allowed(void);

#endif /* KVMM_IPC_BASE_H */
