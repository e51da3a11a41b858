/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.h - records of clients and swap areas for the next daemon
 *
 * The core's records lie in its arena.  The shell's records of clients and swap
 * areas, which the next daemon needs to go on, lie in struct keep, in a memfd
 * that kvmm-hold keeps beside the arena.  A record counts from the store of its
 * @valid on, which is the last store.
 */
#ifndef KVMM_IPC_KEEP_H
#define KVMM_IPC_KEEP_H

#include <kvmm/swapd.h>
#include <kvmm/types.h>

#include "kvmm/core/core.h"

#define KEEP_MAGIC	0x315045454b4d4d56ull
#define KEEP_CLIENTS	64u
#define KEEP_TRIES	2u	/* adoptions in a row after which no daemon worked */

/**
 * struct keep_client - one client, by the core's number
 * @resumes:    it asked for KVMM_FEAT_RESUME
 * @key:        of its tenant
 * @sq_entries: of its rings
 * @untold:     the answer to ATTACH may not have been sent; no extent was
 * @token:      as the answer to ATTACH says it
 */
struct keep_client {
	u32	valid;
	u32	resumes;
	u64	key;
	u32	sq_entries;
	u32	uid;
	s32	pid;
	char	comm[16];
	u32	untold;
	__u64	token[2];
};

/**
 * struct keep_area - one swap area, by swapd's number
 * @core:     the core's number
 * @draining: the area is being removed
 */
struct keep_area {
	u32	valid;
	u32	core;
	u32	draining;
	s32	priority;
	u64	bytes;
	u64	asked;
	u64	usable_off;
	u64	usable_bytes;
	u8	uuid[SWAPD_UUID_LEN];
	char	path[4096];
};

/**
 * struct keep - all records
 * @layout: keep_layout() of the daemon that made it
 * @ready:  that daemon served
 * @tries:  adoptions since one after which the daemon worked
 * @huge:   the host pool is made of huge pages that were set aside
 * @boot:   boot_id of the machine
 */
struct keep {
	u64			magic;
	u64			layout;
	u32			ready;
	u32			tries;
	u32			huge;
	u32			resv;
	char			boot[40];
	struct keep_client	client[KEEP_CLIENTS];
	struct keep_area	area[CORE_MAX_AREAS];
};

#endif /* KVMM_IPC_KEEP_H */
