/* SPDX-License-Identifier: Apache-2.0 */
/*
 * life.h - lifetime histograms of blocks, and counts of preemptions
 *
 * Records of the arena (records.h) and their functions; see life.c.
 */
#ifndef KVMM_CORE_LIFE_H
#define KVMM_CORE_LIFE_H

#include "kvmm/core/core.h"

#define LIFE_SAMPLES	1024u	/* blocks that are sampled, at most */

/**
 * struct kv_sample - time stamps of a sampled block of the device
 * @born:   time at which it was last allocated; 0: not known
 * @cached: time at which its last mapping went; 0: sequences map it
 */
struct kv_sample {
	u64	born;
	u64	cached;
};

/* Counts of a domain; a view is a copy. */
struct kv_life {
	struct core_life_view	v;
};

#define LIFE_HASH	0x9e3779b1u

/* life.c */
void life_init(struct core *c);
void life_reset(struct core *c);
void life_domain(struct core *c, u32 dom);
void life_block(struct core *c, u32 blk, u32 from, u32 to);
void life_preempted(struct core *c, u32 dom, u32 cause, bool kept, u32 tokens);

#endif /* KVMM_CORE_LIFE_H */
