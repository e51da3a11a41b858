/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - events, requests, clients, the pool as a whole
 */
#ifndef KVMM_CORE_NODE_H
#define KVMM_CORE_NODE_H

#include "kvmm/core/sched/sched.h"

/* core.c: the memory manager as a deterministic machine */
u64 zone_bytes(const struct core_config *cfg, u32 zone);
int config_settle(const struct core_config *in, struct core_config *cfg,
		  struct core_sizes *s);
u64 arena_layout(const struct core_config *cfg, const struct core_sizes *s,
		 struct core *c);

/* client.c: attach, detach and death of clients */
void client_deadlines(struct core *c);
void client_detach(struct core *c, u32 client);
void client_describe(const struct core *c, u32 client,
		     struct core_attach_info *info);

/* ranks.c: clients that map shards of a domain for another client */
int rank_check(const struct core *c, u64 tenant_key, const struct kvmm_attach_req *req,
	       const char **text);
void rank_join(struct core *c, u32 client, const struct kvmm_attach_req *req);
void rank_leave(struct core *c, u32 client);
void rank_died(struct core *c, u32 client);
void rank_bound(struct core *c, u32 client);
bool ranks_may_write(const struct core *c, u32 client);
void rank_forget(struct core *c, u32 client);
int rank_may_ask(const struct core *c, u32 client, u32 op);
bool rank_is_sane(const struct core *c, u32 client);
bool ranks_restore(struct core *c);

/* tune.c: tunables: parts of the configuration that may change at any time */
bool tune_is_valid(const struct core_config *cfg);

/* device.c: failure of the device of a pool */
void device_tick(struct core *c);
void device_adopted(struct core *c);

/* operate.c: an operator's commands beside limits and tunables */
void drain_publish(struct core *c, u32 client);

/* resize.c: resizing of a device pool while it is in use */
void resize_tick(struct core *c);
int resize_check(const struct core *c, u32 pool, u64 bytes);

/* resume.c: return of the clients of an adopted arena */
void client_publish(struct core *c, u32 client);
void salvage_release(struct core *c, u32 dom);

/* again.c: repetition of the requests that were in flight at an adoption */
void adopt_again(struct core *c);

#endif /* KVMM_CORE_NODE_H */
