/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups_look_scene.h - cached content of a domain with two layer groups, and SEQ_LOOKUP
 *
 * There are a host pool and an area of 64 slots each.  Content is put on a tier by hand.
 */
#ifndef GROUPS_LOOK_SCENE_H
#define GROUPS_LOOK_SCENE_H

#include "tests/unit/groups_scene.h"

#define SEED	1u

static u32 blk[2][32];	/* the blocks of the prompt that was cached last */
static u32 tokens_of[2];
static struct core_io ios[MAX_IO];
static u32 nr_ios;
static const struct kvmm_lookup_res *const res = (const void *)sh.results;

static void keep_io(const struct core_io *io)
{
	ck_assert_uint_lt(nr_ios, MAX_IO);
	ios[nr_ios++] = *io;
}

static void __maybe_unused look_start(u32 extents, u32 nr, const struct shape *with)
{
	u32 index, g;

	nr_copies = 0;
	nr_ios = 0;
	sh_on_copy = on_copy;
	sh_on_io = keep_io;
	sh_config(extents);
	sh.cfg.starve_ns = 3600000 * MS;
	sh.cfg.host_bytes = 64 * SLOT;
	sh.cfg.area_bytes = 64 * SLOT;
	sh.cfg.swappiness = 200;
	sh_start();
	c = sh.core;
	cl = groups_attach(512, nr, with);
	for (g = 0; g < 2; g++)
		tokens_of[g] = with[g].tokens;
	make_memory();
	c->head->clean_after = ~0ull;
	ck_assert_int_eq(core_area_add(c, sh.now, 64 * SLOT, 0, &index), 0);
}

/* ---- content on a tier ---- */

/* Cache a prompt with the ids of @seed. */
static void __maybe_unused cache_as(u32 len, u32 seed, u64 salt)
{
	struct kvmm_open_arg a = { .prompt_len = len, .salt = salt };
	u64 seq;
	u32 g, i;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, len, seed), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 0);
	ck_assert_int_eq(sh_begin(cl, seq, 0, len), 0);
	for (g = 0; g < 2; g++)
		for (i = 0; i < len / tokens_of[g]; i++)
			blk[g][i] = block_at(seq, g, i);
	ck_assert_int_eq(sh_end(cl, seq, 0, len, seed), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

static void __maybe_unused cache(u32 len, u32 seed)
{
	cache_as(len, seed, 0);
}

static void __maybe_unused evict(u32 g, u32 idx)
{
	index_evict(c, blk[g][idx]);
	sh_check();
}

/* A block gets a copy in the host pool, and leaves the device if @leaves. */
static u32 __maybe_unused copy_of(u32 g, u32 idx, bool leaves)
{
	u32 e = entry_out(c, blk[g][idx], 0);

	ck_assert_uint_ne(e, CORE_NONE);
	if (leaves)
		index_evict(c, blk[g][idx]);
	return e;
}

static u32 __maybe_unused to_host(u32 g, u32 idx, bool done)
{
	u32 e = copy_of(g, idx, true);

	if (done)
		do_copies();
	return e;
}

static void __maybe_unused to_area(u32 g, u32 idx)
{
	u32 e = to_host(g, idx, true);

	ck_assert(entry_write(c, e));
	SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
	host_slot_put(c, e);
	ck_assert_uint_eq(c->entries_low[e].flags & (ENTF_HOST | ENTF_AREA), ENTF_AREA);
}

/* ---- lookups ---- */

/* Look up @nr ids of prompt @seed from @start on, after the last answer. */
static int __maybe_unused look_with(u64 salt, u32 start, u32 nr, u32 seed, u32 flags)
{
	struct kvmm_lookup_arg *a = (struct kvmm_lookup_arg *)sh.args;
	u32 *ids = (u32 *)(a + 1), i;

	*a = (struct kvmm_lookup_arg){ .salt = salt, .start = start, .nr_ids = nr,
				       .flags = flags };
	if (start)
		memcpy(a->cookie, res->cookie, sizeof(a->cookie));
	for (i = 0; i < nr; i++)
		ids[i] = seed + start + i;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_LOOKUP, 1, 0,
				   (u32)sizeof(*a) + 4 * nr), 0);
	sh_check();
	return res->status;
}

/* The last piece of a prompt. */
static int __maybe_unused look(u32 start, u32 nr, u32 seed)
{
	return look_with(0, start, nr, seed, KVMM_LOOKUP_LAST);
}

static int __maybe_unused look_piece(u32 start, u32 nr, u32 seed)
{
	return look_with(0, start, nr, seed, 0);
}

static void __maybe_unused found_is(u32 found, u32 hit)
{
	ck_assert_uint_eq(res->found, found);
	ck_assert_uint_eq(res->hit, hit);
}

#endif /* GROUPS_LOOK_SCENE_H */
