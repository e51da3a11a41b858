/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demote_scene.h - prompts that go through a device pool of 16 blocks to lower tiers
 *
 * A prompt has four blocks.  The walkers run after every event.
 */
#ifndef DEMOTE_SCENE_H
#define DEMOTE_SCENE_H

#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define SLOT	(2 * SH_EXTENT)
#define POOL	16u			/* blocks of the device pool */
#define NR	4u			/* whole blocks of a prompt */
#define TOKENS	(NR * SH_BT + 1)	/* one more, so that all blocks can be found */
#define MOST	256

static struct core *c;
static struct core_copy copies[MOST];
static struct core_io ios[MOST];
static u32 nr_copies, nr_ios, cl;
static u32 tokens = TOKENS;		/* of the next prompt */
static u64 copy_takes;			/* nanoseconds of each copy */

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MOST);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	ck_assert_uint_lt(nr_ios, MOST);
	ios[nr_ios++] = *io;
}

static void __maybe_unused copies_done(void)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		sh.now += copy_takes;
		SH_CORE(core_copy_done(c, sh.now, id, 0));
		sh_settle();
	}
}

static void __maybe_unused all_done(void)
{
	while (nr_copies || nr_ios) {
		copies_done();
		if (!nr_ios)
			continue;
		SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
		sh_settle();
	}
}

/* A device pool of @pool blocks, a host pool of @slots, an area of @area slots. */
static void __maybe_unused start_of(u32 pool, u32 slots, u32 area)
{
	u32 index;

	nr_copies = 0;
	nr_ios = 0;
	sh_on_copy = on_copy;
	sh_on_io = on_io;
	sh_config(pool / SH_PER);
	sh.cfg.host_bytes = slots * SLOT;
	sh.cfg.area_bytes = max(area, 1u) * SLOT;
	sh.cfg.watermark_scale_factor = 0;
	sh.cfg.swappiness = 200;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
	(void)!core_drop_caches(c, sh.now, 0, 1000);
	if (area)
		ck_assert_int_eq(core_area_add(c, sh.now, area * SLOT, 0, &index), 0);
}

static void __maybe_unused start(u32 slots, u32 area)
{
	start_of(POOL, slots, area);
}

static void __maybe_unused setup(void)
{
	start(32, 0);
}

static void __maybe_unused teardown(void)
{
	sh_stop();
}

static u64 __maybe_unused asks(u32 prompt)
{
	u64 seq = sh_open(cl, tokens, 0);

	ck_assert_int_eq(sh_match(cl, seq, tokens, 1000 * (prompt + 1)), 0);
	return seq;
}

/* Compute what the sequence did not find.  Return: tokens that it found. */
static u32 __maybe_unused ends(u64 seq, u32 prompt)
{
	u32 found;

	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	found = sh_status(cl, seq)->cached_len;
	sh_compute(cl, seq, found, tokens, 1000 * (prompt + 1));
	ck_assert_int_eq(sh_close(cl, seq), 0);
	return found;
}

static u32 __maybe_unused plays(u32 prompt)
{
	u64 seq = asks(prompt);

	all_done();
	return ends(seq, prompt);
}

static void __maybe_unused plays_all(u32 from, u32 nr)
{
	u32 i;

	for (i = from; i < from + nr; i++)
		ck_assert_uint_eq(plays(i), 0);
}

#endif /* DEMOTE_SCENE_H */
