/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.h - judge the options, make the core or adopt that of the last daemon
 *
 *	config.c	options that contradict each other; the core's configuration
 *	size.c		bytes that a share of memory, or auto, comes to
 *	limits.c	do the sizes fit this machine?
 *	core.c		a fresh core
 *	adopt.c		the core, the memory and the clients of the last daemon
 *
 * Context: start-up, before threads exist, but for adopt_timers().
 */
#ifndef KVMM_IPC_START_H
#define KVMM_IPC_START_H

#include "kvmm/ipc/clients/clients.h"
#include "kvmm/ipc/deposit/deposit.h"
#include "kvmm/ipc/mm/mm.h"
#include "kvmm/ipc/tiers/tiers.h"

#define AREA_HOSTS	4	/* --area-max, in host pools, if it is not given */

/* config.c */
int __must_check config_options(struct setup *s);
int __must_check config_check(struct setup *s);
void config_fill(struct setup *s, u32 nr_doors);

/* size.c */
u64 limits_host_default(const struct setup *s, const struct memory_room *m);
u64 limits_share(const struct kv_amount *a, const struct memory_room *m,
		 u64 taken, u64 huge, u64 unit);
int __must_check limits_sizes(struct setup *s, struct deposit *p);

/* limits.c */
int __must_check limits_files(const struct setup *s, u32 nr_doors,
			      u32 *send_batch);
u64 limits_records(const struct setup *s);
int __must_check limits_memory(struct setup *s, struct deposit *p);

/**
 * struct adoption - how the core came to be
 * @works: hold was told that this daemon does its work
 */
struct adoption {
	struct setup	*setup;
	struct deposit	*deposit;
	struct extents	*extents;
	struct mm	*mm;
	struct clients	*clients;
	bool		works;
};

/* core.c */
int __must_check core_make(struct adoption *a);

/* adopt.c */
void adopt_start(struct adoption *a);
void adopt_extents(struct adoption *a);
int __must_check adopt_clients(struct adoption *a);
void adopt_tell(const struct adoption *a);
u64 adopt_timers(struct adoption *a, u64 now);

/* pools.c */
int __must_check pools_options(struct setup *s);

#endif /* KVMM_IPC_START_H */
