/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pools_scene.h - a core with two device pools, and domains in one of them or in both
 *
 * Clients are of tenant 1.  A block is a quarter of an extent.
 */
#ifndef POOLS_SCENE_H
#define POOLS_SCENE_H

#include "kvmm/core/reclaim/reclaim.h"
#include "tests/unit/core_shell.h"

#define EACH	4u	/* extents of a pool */

static struct core *c;

static void start(u32 first, u32 second)
{
	sh_config(first + second);
	sh.cfg.more_bytes[0] = second * SH_EXTENT;
	sh_start();
	c = sh.core;
}

static void __maybe_unused two_pools(void)
{
	start(EACH, EACH);
}

/* Attach a client to a domain of @shards from @pool on; 0: any. */
static int __maybe_unused attach_to(const char *name, u32 pool, u32 shards)
{
	struct kvmm_attach_req req = sh_attach_req(name);
	int cl;

	req.pool = pool;
	req.nr_shards = shards;
	cl = sh_attach_as(1, &req);
	sh_settle();
	return cl;
}

/* The same; it must succeed. */
static u32 __maybe_unused in_pools(const char *name, u32 pool, u32 shards)
{
	int cl = attach_to(name, pool, shards);

	ck_assert_int_ge(cl, 0);
	return (u32)cl;
}

static struct kv_domain __maybe_unused *dom_of(u32 cl)
{
	return &c->domains[c->clients[cl].domain];
}

/*
 * Open and compute sequences of one block, @most of them, until one has to wait, which is
 * closed.  Return: how many became READY.
 */
static u32 __maybe_unused fill_with(u32 cl, u32 priority, u32 most)
{
	u32 i;

	for (i = 0; i < most; i++) {
		struct kvmm_open_arg o = { .prompt_len = SH_BT, .priority = priority };
		u64 seq;

		ck_assert_int_eq(sh_open_as(cl, &o, &seq), 0);
		sh_match(cl, seq, SH_BT, 1000 * cl + 100 * i);
		sh_settle();
		if (sh_state(cl, seq) != KVMM_SEQ_READY) {
			ck_assert_int_eq(sh_close(cl, seq), 0);
			break;
		}
		sh_compute(cl, seq, 0, SH_BT, 1000 * cl + 100 * i);
	}
	return i;
}

#endif /* POOLS_SCENE_H */
