/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clients.h - connections to the attach sockets, and their processes
 *
 *	accept.c	connections come in, events, deadlines
 *	greeting.c	connections without an attach request
 *	attach.c	a connection becomes a client
 *	resume.c	clients of the last daemon come back
 *	rings.c		the shared memory of a client
 *	send.c		extents to be mapped
 *	life.c		a client ends
 *	ghost.c		processes that outlive their DETACH
 *	tenants.c	resources in use, by tenant
 *	domains.c	limits that the options give to domains
 *
 * Context: control thread, but for functions handed to mm_call().
 */
#ifndef KVMM_IPC_CLIENTS_H
#define KVMM_IPC_CLIENTS_H

#include <kvmm/domain_opt.h>
#include <kvmm/list.h>

#include "kvmm/ipc/base/base.h"
#include "kvmm/ipc/base/setup.h"
#include "kvmm/ipc/conn/conn.h"
#include "kvmm/ipc/deposit/deposit.h"
#include "kvmm/ipc/mm/mm.h"
#include "kvmm/ipc/tiers/tiers.h"

#define MAX_GREETING_TENANT	8	/* of MAX_GREETING, of one tenant */
#define GREETING_MS		2000	/* to send the attach request */
#define LEAVING_MS		2000	/* from DETACH to closing the socket */
#define LINGER_MS		1000	/* from there to the end of the process */
#define QUIET_POLL_NS		(5 * NSEC_PER_MSEC)

enum client_stage {
	CLIENT_GREETING,	/* connected, has not asked yet */
	CLIENT_ATTACHED,
	CLIENT_LEAVING,		/* said DETACH, its socket is open */
	CLIENT_LINGERING,	/* detached and hung up; it may end any moment */
	CLIENT_HUNG_UP,		/* the core knows; its process may still write */
	CLIENT_AWAY,		/* of the last daemon; it may resume */
};

/**
 * struct client - one connection to an attach socket
 * @mm:        the mm thread's part
 * @deadline:  of its stage, or 0
 * @ended:     when its process had ended, 0: it lives
 * @key:       of its tenant
 * @tenant:    the core's number of it
 * @todo:      extents to be sent, a bit each
 * @nr_sent:   descriptors sent, for the log
 * @flying:    extents of which the descriptor was sent and @extents does not say
 *             yet that it came; a bit each
 * @nr_flying: how many
 * @held:      its tenant has too many of these: the rest waits
 * @extents:   state of each extent, in segment D
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

/**
 * struct reader - a connection to a view socket, which its tenant's quota counts
 * @key:   of the tenant; PROC_ALL: of operators
 * @waits: for a pressure trigger; such a connection is not counted
 */
struct reader {
	struct list	node;
	u64		key;
	bool		waits;
};

/* A place in the table of tenants. */
struct tenant {
	bool	used;
	u64	key;
	u64	refused;	/* requests */
};

/* Limits for a domain of the tenant @key when it is made. */
struct domain_limits {
	bool			used;
	u64			key;
	struct domain_opt	opt;
};

/**
 * struct clients - all of them
 * @by_id:      by the core's number
 * @greeting:   struct client, in the order in which they came
 * @attached:   struct client, every later stage too
 * @dead:       struct client, freed after the round
 * @ghosts:     processes that outlived DETACH
 * @readers:    struct reader; the view room's
 * @send_batch: descriptors in one message
 * @tenants:    cfg.max_tenants of them
 * @limits:     of each --domain
 */
struct clients {
	struct setup	*setup;
	struct loop	*loop;
	struct deposit	*deposit;
	struct extents	*extents;
	struct mm	*mm;
	struct sockets	*sockets;
	struct client	*by_id[MAX_CLIENTS];
	struct list	greeting;
	struct list	attached;
	struct list	dead;
	struct list	ghosts;
	struct list	readers;
	u32		nr_greeting;
	u32		send_batch;
	struct tenant	*tenants;
	struct domain_limits limits[KV_LIST_MAX];
};

/* accept.c */
void clients_none(struct clients *cs);
int __must_check clients_init(struct clients *cs);
void clients_exit(struct clients *cs);
void client_accept(void *arg, struct watch *w, u32 events);
void client_on_sock(void *arg, struct watch *w, u32 events);
void client_send_extents(struct clients *cs, u64 mask);
u64 client_timers(struct clients *cs, u64 now);
void client_free_dead(struct clients *cs);

/* greeting.c */
void client_greet(struct clients *cs, struct client *c);
void greeting_make_room(struct clients *cs, u64 key);

/* attach.c */
int attach_refuse(struct kvmm_attach_rep *rep, int err, const char *fmt, ...)
	__printf(3, 4);
int attach_check_abi(const struct kvmm_attach_req *req,
		     struct kvmm_attach_rep *rep);
void attach_answer(struct clients *cs, struct client *c,
		   const struct kvmm_attach_req *req);
void attach_request(struct clients *cs, struct client *c,
		    const struct kvmm_attach_req *req);

/* resume.c */
void resume_request(struct clients *cs, struct client *c,
		    const struct kvmm_attach_req *req);
void resume_give_up(struct clients *cs, struct client *c);
int __must_check resume_await(struct clients *cs, u32 id, int pidfd);

/* rings.c */
int __must_check rings_make(struct clients *cs, struct client *c,
			    u32 sq_entries, u32 first,
			    const struct core_attach_info *in,
			    struct kvmm_attach_rep *rep);
int __must_check rings_start(struct clients *cs, struct client *c,
			     const struct kvmm_attach_rep *rep);
int __must_check rings_send(struct client *c, const struct kvmm_attach_rep *rep);

/* send.c */
void extents_send(struct clients *cs, struct client *c);

/* life.c */
struct client *client_alloc(int sock);
int __must_check client_tables(const struct clients *cs, struct client *c);
void client_free(struct clients *cs, struct client *c);
void client_drop(struct clients *cs, struct client *c);
void client_hang_up(struct clients *cs, struct client *c);
void client_haunt(struct clients *cs, struct client *c);
void client_over(struct clients *cs, struct client *c);
void client_make_room(struct clients *cs);
void client_abort(struct clients *cs, struct client *c);
void client_on_pidfd(void *arg, struct watch *w, u32 events);
void client_take_notes(struct clients *cs);

/* ghost.c */
void ghost_add(struct clients *cs, const struct client *c);
u32 ghost_count(const struct clients *cs, u64 key);
void ghost_adopt(struct clients *cs);
u64 ghost_timers(struct clients *cs, u64 now);
void ghost_exit_all(struct clients *cs);
void ghost_kill_all(struct clients *cs);

/* tenants.c */
u32 tenant_clients(const struct clients *cs, u64 key);
u32 tenant_readers(const struct clients *cs, u64 key);
u32 tenant_conns(const struct clients *cs, u64 key);
u32 tenant_flying(const struct clients *cs, u64 key);
struct tenant *tenant_get(struct clients *cs, u64 key);
struct tenant *tenant_find(struct clients *cs, u64 key);
int tenant_get_info(struct clients *cs, u64 key, struct proc_tenant_info *info);

/* domains.c */
bool domains_key(const struct clients *cs, const struct domain_opt *o, u64 *key);
const struct domain_opt *domains_find(struct clients *cs, u64 key,
				      const char *name);
int __must_check domains_put(struct clients *cs, u64 key,
			     const struct domain_opt *o);
int __must_check domains_options(struct clients *cs);
u32 domains_known(struct core *core, u64 key, const char *name);
u32 domains_set(struct core *core, u32 domain, const struct domain_opt *o,
		u32 marks, bool begin);

#endif /* KVMM_IPC_CLIENTS_H */
