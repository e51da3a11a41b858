/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup_scene.h - a core with three tiers, content put on them, and SEQ_LOOKUP
 *
 * A pool of 32 blocks, a host pool and an area of 16 slots each.  A prompt is a
 * seed: its ids count up from there.  Content is put on a tier by hand, from the
 * end of a prompt on, because leaves leave the device first.
 */
#ifndef LOOKUP_SCENE_H
#define LOOKUP_SCENE_H

#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define POOL		32u			/* blocks */
#define SLOT		(2 * SH_EXTENT)
#define SLOTS		16u
#define DEADLINE	100u			/* ms */
#define ALL_WORK	32768u

static u32 cl;
static struct core *c;
static struct core_copy copies[64];
static struct core_io ios[64];
static u32 nr_copies, nr_ios;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, 64);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	ck_assert_uint_lt(nr_ios, 64);
	ios[nr_ios++] = *io;
}

static void __maybe_unused setup(void)
{
	u32 index;

	nr_copies = 0;
	nr_ios = 0;
	sh_on_copy = on_copy;
	sh_on_io = on_io;
	sh_config(POOL / SH_PER);
	sh.cfg.host_bytes = SLOTS * SLOT;
	sh.cfg.area_bytes = SLOTS * SLOT;
	sh.cfg.swappiness = 200;
	sh.cfg.io_deadline_ns = DEADLINE * MS;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
	(void)!core_drop_caches(c, sh.now, 0, 1000);
	c->head->clean_after = ~0ull;
	ck_assert_int_eq(core_area_add(c, sh.now, SLOTS * SLOT, 0, &index), 0);
}

static void __maybe_unused teardown(void)
{
	sh_stop();
}

/* ---- content on a tier ---- */

/* Compute @nr blocks of prompt @seed with @salt, and close. */
static void __maybe_unused cache_as(u32 nr, u32 seed, u64 salt)
{
	struct kvmm_open_arg a = { .prompt_len = nr * SH_BT, .salt = salt };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, nr * SH_BT, seed), 0);
	sh_compute(cl, seq, sh_status(cl, seq)->valid_len, nr * SH_BT, seed);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

static void __maybe_unused cache(u32 nr, u32 seed)
{
	cache_as(nr, seed, 0);
}

/* The cached block @i of prompt @seed. */
static u32 __maybe_unused block_of(u32 seed, u32 i)
{
	u32 b;

	for (b = 0; b < core_sizes(c)->nr_extents * SH_PER; b++)
		if (c->blocks[b].state == BLK_CACHED &&
		    block_ids(c, b)[0] == seed + i * SH_BT)
			return b;
	return CORE_NONE;
}

static void __maybe_unused copies_done(void)
{
	while (nr_copies) {
		SH_CORE(core_copy_done(c, sh.now, copies[--nr_copies].id, 0));
		sh_settle();
	}
}

/* Block @i of prompt @seed leaves the device.  @done: its copy is over. */
static u32 __maybe_unused to_host(u32 seed, u32 i, bool done)
{
	u32 blk = block_of(seed, i), e = entry_out(c, blk, 0);

	ck_assert_uint_ne(e, CORE_NONE);
	if (done)
		copies_done();
	index_evict(c, blk);
	ck_assert(c->entries_low[e].flags & ENTF_INDEXED);
	return e;
}

/* The same, to the area alone. */
static u32 __maybe_unused to_area(u32 seed, u32 i)
{
	u32 e = to_host(seed, i, true);

	ck_assert(entry_write(c, e));
	SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
	host_slot_put(c, e);
	ck_assert_uint_eq(c->entries_low[e].flags & (ENTF_HOST | ENTF_AREA), ENTF_AREA);
	sh_check();
	return e;
}

/* ---- lookups ---- */

static const struct kvmm_lookup_res *const res = (const void *)sh.results;

/* Look up with @a, whose ids count up from @first.  Return: the entry's status. */
static int __maybe_unused look_as(u32 client, const struct kvmm_lookup_arg *a, u32 first)
{
	u32 *ids = (u32 *)((char *)sh.args + sizeof(*a)), i;

	memcpy(sh.args, a, sizeof(*a));
	for (i = 0; i < a->nr_ids; i++)
		ids[i] = first + i;
	ck_assert_int_eq(sh_submit(client, KVMM_OP_SEQ_LOOKUP, 1, 0,
				   (u32)sizeof(*a) + 4 * a->nr_ids), 0);
	sh_check();
	return res->status;
}

/* Tokens found of the first @nr of prompt @seed. */
static u32 __maybe_unused look(u32 nr, u32 seed)
{
	struct kvmm_lookup_arg a = { .nr_ids = nr, .flags = KVMM_LOOKUP_LAST };

	ck_assert_int_eq(look_as(cl, &a, seed), 0);
	return res->found;
}

/* Go on after the last answer, with @nr ids of prompt @seed. */
static u32 __maybe_unused look_on(u32 start, u32 nr, u32 seed)
{
	struct kvmm_lookup_arg a = {
		.start = start, .nr_ids = nr,
		.cookie = { res->cookie[0], res->cookie[1] },
	};

	ck_assert_int_eq(look_as(cl, &a, seed + start), 0);
	return res->found;
}

static void __maybe_unused runs_are(u32 nr, const u32 (*runs)[2])
{
	u32 i;

	ck_assert_uint_eq(res->nr_runs, nr);
	for (i = 0; i < nr; i++) {
		ck_assert_uint_eq(res->run[i].tier, runs[i][0]);
		ck_assert_uint_eq(res->run[i].blocks, runs[i][1]);
	}
}

#endif /* LOOKUP_SCENE_H */
