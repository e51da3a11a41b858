/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.h - what the shell must know to go on where a dead daemon stopped
 *
 * The core's facts lie in its arena; what only the shell knows of clients and
 * swap areas lies here, in a memfd that kvmm-hold keeps beside the arena.  A
 * record counts from the store of its @valid on, which is the last one.
 *
 * Context: control thread; area records: whoever the control thread waits for.
 */
#ifndef KVMM_IPC_KEEP_H
#define KVMM_IPC_KEEP_H

#include <kvmm/swapd.h>
#include <kvmm/types.h>

#include "kvmm/core/core.h"

struct client;
struct daemon;
struct swap_area;

#define KEEP_MAGIC	0x315045454b4d4d56ull
#define KEEP_CLIENTS	64u
#define KEEP_TRIES	2u	/* adoptions in a row that led to nothing */

/**
 * struct keep_client - one client, by the core's number
 * @resumes:    it asked for KVMM_FEAT_RESUME
 * @key:        of its tenant
 * @sq_entries: of its rings
 * @untold:     its answer to ATTACH is not known to have been sent; no extent was
 * @token:      as told at attach
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
 * @core:     the core's
 * @draining: it is to go
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
 * struct keep - all of it
 * @layout: keep_layout() of who made it
 * @ready:  that daemon served
 * @tries:  adoptions since one that led to anything
 * @huge:   the host pool is of pages that were set aside
 * @boot:   which life of the machine
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

/* keep_layout() - a number for the layout of the arena and of this */
u64 keep_layout(void);

void keep_boot(u64 *boot);

/* keep_make() - a fresh one, deposited.  Without hold: memory, no more. */
int __must_check keep_make(struct daemon *d);

/**
 * keep_take() - a copy of that of the last daemon, which hold has in its place
 * @fd: stays the caller's
 * Return: NULL, or why it is of no use.
 */
const char *keep_take(struct daemon *d, int fd);
void keep_exit(struct daemon *d);

/* The client is attached, and is to be told; was told; is attached no more. */
void keep_client_put(struct daemon *d, const struct client *c,
		     const __u64 *token, u32 sq_entries, bool resumes);
void keep_client_told(struct daemon *d, u32 id);
void keep_client_drop(struct daemon *d, u32 id);

/* The core has the area, or no more. */
void keep_area_put(struct daemon *d, const struct swap_area *a);
void keep_area_drop(struct daemon *d, u32 index);

#endif /* KVMM_IPC_KEEP_H */
