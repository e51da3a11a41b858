/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.h - listening sockets, tenants by socket, the end of connections
 *
 *	socket.c	the instance lock, the daemon's own sockets
 *	door.c		the sockets of each --tenant
 *	listen.c	one listening socket
 *	tenant.c	the tenant of a connection: its name and quota
 *	rights.c	the rights of users at the daemon's own sockets
 *	closer.c	connections are accepted, and closed by a thread
 *	answer.c	an operator's connection until it is answered
 *
 * Context: start-up, then the control thread.
 */
#ifndef KVMM_IPC_CONN_H
#define KVMM_IPC_CONN_H

#include <pthread.h>
#include <semaphore.h>
#include <sys/un.h>

#include <kvmm/list.h>
#include <kvmm/tenant_opt.h>
#include <kvmm/verbs.h>

#include "kvmm/ipc/base/base.h"
#include "kvmm/ipc/base/setup.h"
#include "kvmm/ipc/deposit/deposit.h"

#define CLOSER_MAX	64	/* connections to be closed, to accept more */
#define TENANT_NAMED	BIT_ULL(32)	/* of a key: index of a door; else a uid */
#define TENANT_TEXT	(TENANT_NAME_LEN + 16)
#define SUN_PATH	sizeof(((struct sockaddr_un *)0)->sun_path)

/**
 * struct closer - see closer.c
 * @first:   to be closed; pushed by control, taken by the thread
 * @waiting: how many are not closed; both count
 * @resume:  when the listening sockets are looked at again; 0: they are
 *	     watched; control's
 */
struct closer {
	struct closing	*first;
	u32		waiting;
	u64		resume;
	sem_t		bell;
	pthread_t	thread;
	bool		stop;
	bool		runs;
};

/**
 * struct door - a --tenant and its sockets
 * @dir_fd: the directory, also if its name is given to another one
 * @index:  among the doors
 */
struct door {
	struct watch		attach;
	struct watch		view;
	struct sockaddr_un	attach_addr;
	struct sockaddr_un	view_addr;
	char			dir[SUN_PATH];
	int			dir_fd;
	struct tenant_opt	opt;
	u32			index;
	mode_t			mode;
	uid_t			uid;
	gid_t			gid;
};

/**
 * struct rights_group - a group of --read-group or --admin-group
 * @named: by its option
 * @valid: it exists on this machine
 * @name:  "": none is wanted
 */
struct rights_group {
	bool	named;
	bool	valid;
	gid_t	gid;
	char	name[64];
};

/**
 * struct rights - users and groups with rights at the daemon's own sockets
 * @own_uid:  user that started the daemon
 * @proc_uid: user of kvmm-proc, if @has_proc; else it is root or @own_uid
 */
struct rights {
	uid_t			own_uid;
	bool			has_proc;
	uid_t			proc_uid;
	struct rights_group	read;
	struct rights_group	admin;
};

/**
 * struct sockets - all listening sockets
 * @attach:      for clients
 * @view:        for readers
 * @admin:       for operators
 * @attach_mode: --socket-mode
 * @doors:       of each --tenant
 * @user_quota:  of users at the attach socket
 * @own_quota:   the same for root and the user that started the daemon
 * @rights:      at @view and @admin
 */
struct sockets {
	struct setup		*setup;
	struct deposit		*deposit;
	struct loop		*loop;
	struct watch		attach;
	struct watch		view;
	struct watch		admin;
	struct sockaddr_un	attach_addr;
	struct sockaddr_un	view_addr;
	struct sockaddr_un	admin_addr;
	mode_t			attach_mode;
	char			lock_path[SUN_PATH];
	int			lock_fd;
	struct door		*doors;
	u32			nr_doors;
	struct tenant_quota	user_quota;
	struct tenant_quota	own_quota;
	struct rights		rights;
	struct closer		closer;
};

/* The function that accepts connections of one kind. */
struct acceptor {
	watch_fn	*fn;
	void		*arg;
};

struct acceptors {
	struct acceptor	attach;
	struct acceptor	view;
	struct acceptor	admin;
};

/* socket.c */
int __must_check socket_mode(struct sockets *s);
int __must_check socket_paths(struct sockets *s);
int __must_check socket_lock(struct sockets *s);
int __must_check socket_make(struct sockets *s);
int __must_check socket_listen(struct sockets *s, const struct acceptors *a);
void socket_close(struct sockets *s);

/* listen.c */

/* Mode and owner of a socket; uid and gid -1: the daemon's own. */
struct socket_perm {
	mode_t	mode;
	uid_t	uid;
	gid_t	gid;
	int	dir;	/* descriptor; AT_FDCWD: the whole path counts */
};

int __must_check socket_mode_parse(const char *what, const char *s,
				   mode_t *mode);
int __must_check socket_make_one(struct sockets *s, struct watch *w, u32 index,
				 const struct sockaddr_un *addr, int type,
				 const struct socket_perm *perm);
int __must_check socket_listen_one(struct sockets *s, struct watch *w,
				   const struct sockaddr_un *addr,
				   const struct acceptor *a);

/* door.c */
int __must_check door_options(struct sockets *s);
int __must_check door_paths(struct sockets *s);
int __must_check door_make(struct sockets *s);
int __must_check door_listen(struct sockets *s, const struct acceptors *a);
void door_events(struct sockets *s, u32 events);
bool door_unlink(const struct sockets *s);
void door_close(struct sockets *s);
void door_exit(struct sockets *s);

/* tenant.c */
u64 tenant_key(const struct sockets *s, const struct watch *w, uid_t uid);
bool tenant_by_name(const struct sockets *s, const char *name, u64 *key);
const char *tenant_name(const struct sockets *s, u64 key, char *buf);
const char *tenant_path(const struct sockets *s, u64 key);
const struct tenant_quota *tenant_quota(const struct sockets *s, u64 key);
void tenant_core_quota(const struct sockets *s, u64 key, struct core_quota *q);

/* rights.c */
int __must_check rights_options(struct sockets *s);
void rights_tell(const struct sockets *s);
u32 rights_of(const struct rights *r, uid_t uid, const gid_t *gids, u32 nr);
u32 rights_of_peer(const struct sockets *s, int sock, uid_t *uid);
u32 rights_of_process(const struct sockets *s, uid_t uid, pid_t pid);
const char *rights_refused(const struct sockets *s, u32 right, char *text, size_t len);

/* closer.c */
void conn_close(struct sockets *s, int fd);
void watch_conn_close(struct sockets *s, struct watch *w);
int __must_check conn_accept(struct sockets *s, const struct watch *w);
u64 closer_timers(struct sockets *s, u64 now);
int __must_check closer_start(struct sockets *s);
void closer_stop(struct sockets *s);

/* ---- answer.c ---- */

#define ADMIN_TEXT	4400	/* an answer: a path and some words */

/**
 * struct admins - connections of operators
 * @live: struct admin, not answered
 * @dead: struct admin, freed after the round
 * @nr:   of @live
 */
struct admins {
	struct loop	*loop;
	struct list	live;
	struct list	dead;
	u32		nr;
};

/**
 * struct admin - one connection, which carries one request
 * @deadline: to send its request, then none
 * @asked:    the request came
 * @rights:   of the user, KV_RIGHT_*
 */
struct admin {
	struct list	node;
	struct watch	sock;
	struct admins	*all;
	u64		deadline;
	bool		asked;
	u32		rights;
};

void admins_init(struct admins *all);
struct admin *admin_new(struct admins *all, int sock, watch_fn *fn, void *arg);
void admin_progress(struct admin *adm, const char *text);
void admin_finish(struct admin *adm, int err, const char *text);
void admin_end(struct admin *adm);
void admin_free_dead(struct admins *all);

#endif /* KVMM_IPC_CONN_H */
