/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.h - content on the lower tiers; start of copies and I/O
 */
#ifndef KVMM_CORE_TIER_H
#define KVMM_CORE_TIER_H

#include "kvmm/core/mem/mem.h"

/* tier.c: the use of the host pool: room in it, writes out */
bool host_write_out(struct core *c);
bool host_room(struct core *c, u32 dom, u32 nr);
u32 host_free(const struct core *c, u32 dom);
u32 host_slots_max(const struct core *c, u32 dom);
bool host_is_wanted(const struct core *c);
bool host_drop_copy(struct core *c, u32 dom, u32 node);
bool host_drop_oldest(struct core *c, u32 dom, u32 node);
u32 host_write_window(const struct core *c, u32 dom);
bool host_write_oldest(struct core *c, u32 dom);
void tier_background(struct core *c);

/* demote.c: cached blocks are copied to the host pool before the device loses them */
enum demote {
	DEMOTE_DONE,	/* it has a copy, or one is in flight */
	DEMOTE_WAITS,	/* a host slot is on its way */
	DEMOTE_FULL,	/* every tier is full */
	DEMOTE_DEAR,	/* computing it again costs less */
	DEMOTE_NOT,	/* no copy can begin now */
	DEMOTE_GONE,	/* making room for the copy has evicted the block */
};

enum demote demote_block(struct core *c, u32 dom, u32 blk);
bool demote_ahead(struct core *c, u32 dom, u32 blk);
void demote_waits(struct core *c, struct kv_domain *d, bool waits);
void demote_through(struct core *c, u32 dom, u32 blk);
void demote_background(struct core *c);
bool copy_pays(const struct core *c, u32 dom);
bool areas_pay(const struct core *c, u32 dom);
void demote_judge(struct core *c, u32 dom);
void demote_judge_all(struct core *c);
bool area_read_pays(const struct core *c, u32 dom, u32 slot);
enum demote demote_slot(struct core *c, u32 dom, u32 node);
bool demote_may_write(const struct core *c, u32 dom);
bool demote_room(struct core *c, u32 dom, u32 nr, bool *waits);

/* tier_io.c: requests in flight for an entry: copies and I/O */
#define ID_BESIDE	0x80000000u	/* in a request id: the IN beside a WRITE */
void copy_start(struct core *c, u32 entry, u32 io);
void io_start(struct core *c, u32 entry, u32 kind);
void request_again(struct core *c, u32 entry);
u32 entry_out(struct core *c, u32 blk, u32 nr);
void entry_fill(struct core *c, u32 entry, u32 blk);
bool __must_check entry_write(struct core *c, u32 entry);
void read_start(struct core *c, u32 entry);

/* area_io.c: choice of an area for a slot, rates of areas, failures */
u32 area_slot_get(struct core *c, u32 dom, u32 host, bool needed);
u64 area_rate(const struct kv_pool *p, u32 dir);
void area_io_begin(struct core *c, struct kv_pool *p, const struct kv_entry *e);
void area_io_end(struct core *c, struct kv_pool *p, const struct kv_entry *e,
		 u32 dir, int status);
bool io_is_away(int status);
bool area_failed(struct core *c, u32 slot, u32 dir, int status);

/* area_move.c: emptying of areas */
bool lies_in(const struct core *c, const struct kv_entry *e, u32 pool);
bool area_reclaim(struct core *c, u32 pool, u32 dom);
bool area_is_scarce(const struct core *c, u32 slot);
bool areas_are_scarce(const struct core *c, u32 dom);
void entry_lose(struct core *c, u32 entry);
void areas_move(struct core *c);
void move_ended(struct core *c, u32 entry);
void area_drain(struct core *c, u32 pool);
void area_leave(struct core *c, u32 pool);

/* stall.c: requests to areas that are not answered in time */
struct kv_pool *io_pool(const struct core *c, const struct kv_entry *e);
void moving_del(struct core *c, struct kv_pool *p, u32 entry);
void io_begin(struct core *c, u32 entry);
void io_end(struct core *c, u32 entry, u32 dir, int status);
u32 io_moving(const struct core *c);
bool area_stalled(const struct core *c, u32 slot);

#endif /* KVMM_CORE_TIER_H */
