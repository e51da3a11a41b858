/* SPDX-License-Identifier: Apache-2.0 */
/*
 * life.h - how long blocks live, and what preemption was for
 *
 * Records of the arena (records.h) and what changes them; life.c tells more.
 */
#ifndef KVMM_CORE_LIFE_H
#define KVMM_CORE_LIFE_H

#include "kvmm/core/core.h"

#define LIFE_SAMPLES	1024u	/* blocks that are looked at, at most */

/**
 * struct kv_sample - a block of the device that is looked at
 * @born:   when it was last taken; 0: not known
 * @cached: when the last sequence let go of it; 0: some map it
 */
struct kv_sample {
	u64	born;
	u64	cached;
};

/* Of each domain; a view of it is a copy. */
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
