/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin.h - requests of operators
 *
 *	admin.c		the admin socket; swapon, swapoff, drop_caches
 *	act.c		evict, pin, drain, log
 *	set.c		marks of domains, the size of the pool, tunables, events
 *	name.c		the domain that an operator names
 *	limits.c	limits of a domain that the file of options changes
 *	upgrade.c	another program takes over
 *
 * Context: control thread, but for functions handed to mm_call().
 */
#ifndef KVMM_IPC_ADMIN_H
#define KVMM_IPC_ADMIN_H

#include <kvmm/types.h>

#include "kvmm/ipc/clients/clients.h"
#include "kvmm/ipc/conn/conn.h"
#include "kvmm/ipc/mm/mm.h"
#include "kvmm/ipc/swap/swap.h"

/**
 * struct upgrade - see upgrade.c
 * @granted: this daemon is to end for another one
 * @waiter:  the operator that asked, NULL: none
 * @nr:      of the last question to hold
 */
struct upgrade {
	bool		granted;
	struct admin	*waiter;
	u32		nr;
	char		path[4096];
};

/**
 * struct operators - requests of operators
 * @proc: the files, for the names in them
 */
struct operators {
	struct setup		*setup;
	struct loop		*loop;
	struct deposit		*deposit;
	struct mm		*mm;
	struct sockets		*sockets;
	struct clients		*clients;
	struct swap_link	*link;
	struct proc		*proc;
	struct admins		admins;
	struct upgrade		upgrade;
};

/**
 * struct admin_name - a domain, as an operator named it
 * @is_shown: it is the name of @shown in the files
 * @nr_named: domains that it could be
 * @dom:      the one
 * @view:     the core's view of it
 */
struct admin_name {
	const char		*name;
	bool			is_shown;
	struct core_domain_view	shown;
	u32			nr_named;
	u32			dom;
	struct core_domain_view	view;
};

/* name.c */
void admin_name_init(struct proc *proc, struct admin_name *n, const char *name);
bool __must_check admin_name_find(struct core *core, struct admin_name *n);
int __must_check admin_name_refuse(const struct admin_name *n, char *text);

/* act.c */
bool admin_acts(const char *req);
int __must_check admin_act(struct operators *o, const char *req, char *text);

/* set.c */
int __must_check admin_change(struct operators *o, const char *req, char *text);

/* limits.c */
int __must_check admin_limits(struct operators *o, const char *req, char *text);

/* upgrade.c */
void upgrade_request(struct operators *o, struct admin *adm, const char *req,
		     int fd);
void upgrade_told(struct operators *o, const struct hold_record *r);
void upgrade_forget_waiter(struct operators *o, const struct admin *adm);

/* admin.c */
void admin_accept(void *arg, struct watch *w, u32 events);
u64 admin_timers(struct operators *o, u64 now);
void admin_exit_all(struct operators *o);

#endif /* KVMM_IPC_ADMIN_H */
