/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt_scene.h - events of every kind in a core, for tests of adoption
 *
 * Events of every kind in a pool of 32 blocks: attach, open, match, admission
 * with and without a hit, steps, forks and copies of tails, REMAP, TRUNCATE,
 * TRIM, close, swap to the host, to an area and back, a failed copy, memory
 * that changes hands between tenants, a pool that shrinks and grows, an area
 * that is added and removed, deaths, ticks. scene_look() is called between
 * events.
 */
#ifndef ADOPT_SCENE_H
#define ADOPT_SCENE_H

#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define SCENE_IO	64
#define SCENE_SLOT	(2 * SH_EXTENT)

static struct core_copy scene_copies[SCENE_IO];
static struct core_io scene_ios[SCENE_IO];
static u32 scene_nr_copies, scene_nr_ios;
static void (*scene_look)(void);

static void scene_on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(scene_nr_copies, SCENE_IO);
	scene_copies[scene_nr_copies++] = *cp;
}

static void scene_on_io(const struct core_io *io)
{
	ck_assert_uint_lt(scene_nr_ios, SCENE_IO);
	scene_ios[scene_nr_ios++] = *io;
}

static void scene_config(void)
{
	sh_on_copy = scene_on_copy;
	sh_on_io = scene_on_io;
	scene_nr_copies = 0;
	scene_nr_ios = 0;
	sh_config(8);
	sh.cfg.max_tenants = 2;
	sh.cfg.max_domains = 3;
	sh.cfg.max_clients = 3;
	sh.cfg.max_seqs = 8;
	sh.cfg.nr_tables = 8;
	sh.cfg.nr_idpages = 24;
	sh.cfg.host_bytes = 8 * SCENE_SLOT;
	sh.cfg.area_bytes = 8 * SCENE_SLOT;
	sh.cfg.swappiness = 200;
	sh.cfg.max_steps = 2;
	sh_unchecked = true;
}

static void scene_now(void)
{
	if (scene_look)
		scene_look();
}

/* Answer all copies and I/O requests in flight; the first with @status. */
static void scene_answer(int status)
{
	u32 most = 200;

	while ((scene_nr_copies || scene_nr_ios) && most--) {
		if (scene_nr_copies) {
			u64 id = scene_copies[--scene_nr_copies].id;

			SH_CORE(core_copy_done(sh.core, sh.now, id, status));
		} else {
			u64 id = scene_ios[--scene_nr_ios].id;

			SH_CORE(core_io_done(sh.core, sh.now, id, status));
		}
		status = 0;
		sh_settle();
		scene_now();
	}
}

static void scene_advise(u32 cl, u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	(void)sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a));
	sh_settle();
	scene_now();
}

static void scene_len(u32 cl, u16 op, u64 seq, u32 len)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;

	*a = (struct kvmm_len_arg){ .seq = seq, .len = len };
	(void)sh_submit(cl, op, 1, 0, sizeof(*a));
	sh_settle();
	scene_now();
}

/* Fork sequences that share blocks, and copy their tails. */
static void scene_share(u32 cl)
{
	u64 a = sh_ready(cl, 40, 40, 1), kids[2], b;
	struct kvmm_begin_arg both[2];
	struct kvmm_begin_res res[2];

	scene_now();
	sh_compute(cl, a, 0, 40, 1);
	ck_assert_int_eq(sh_fork(cl, a, 2, kids), 0);
	scene_now();
	both[0] = sh_entry(cl, kids[0], 40, 2);
	both[1] = sh_entry(cl, kids[1], 40, 2);
	ck_assert_int_eq(sh_begin_all(cl, both, 2, res), 0);
	scene_now();
	ck_assert_int_eq(sh_end(cl, kids[0], 40, 42, 1), 0);
	sh_compute(cl, kids[0], 42, 50, 1);
	scene_len(cl, KVMM_OP_SEQ_TRUNCATE, kids[0], 20);
	scene_len(cl, KVMM_OP_SEQ_TRIM, kids[1], 16);
	b = sh_ready(cl, 36, 4, 1);
	scene_now();
	sh_compute(cl, b, sh_status(cl, b)->valid_len, 36, 1);
	ck_assert_int_eq(sh_close(cl, b), 0);
	ck_assert_int_eq(sh_close(cl, kids[0]), 0);
	scene_advise(cl, kids[1], KVMM_ADV_COLD);
	ck_assert_int_eq(sh_close(cl, kids[1]), 0);
	scene_now();
	ck_assert_int_eq(sh_close(cl, a), 0);
	scene_now();
}

/* Swap sequences out to the host pool and an area, and back. */
static void scene_swap(u32 cl)
{
	u64 a = sh_ready(cl, 56, 40, 7), b;
	u32 area;

	SH_CORE(ck_assert_int_eq(core_area_add(sh.core, sh.now,
		sh.cfg.area_bytes, 0, &area), 0));
	scene_now();
	sh_compute(cl, a, 0, 56, 7);
	scene_advise(cl, a, KVMM_ADV_PAGEOUT);
	scene_answer(0);
	b = sh_ready(cl, 60, 20, 99);
	sh_compute(cl, b, 0, 60, 99);
	scene_advise(cl, b, KVMM_ADV_PAGEOUT);
	scene_answer(-EIO);
	sh_tick(1);
	scene_answer(0);
	scene_advise(cl, a, KVMM_ADV_WILLNEED);
	scene_answer(0);
	scene_advise(cl, b, KVMM_ADV_WILLNEED);
	scene_answer(0);
	(void)sh_close(cl, a);
	scene_now();
	SH_CORE((void)!core_area_del(sh.core, sh.now, area));
	scene_answer(0);
	SH_CORE(core_area_lose(sh.core, sh.now, area));
	scene_answer(0);
	SH_CORE((void)!core_area_del(sh.core, sh.now, area));
	scene_now();
	(void)sh_close(cl, b);
}

/* Memory of one tenant goes to another, and a pool shrinks and grows. */
static void scene_move(u32 cl, u32 other)
{
	u64 a = sh_ready(cl, 200, 20, 3), b;

	sh_compute(cl, a, 0, 200, 3);
	b = sh_open(other, 300, 10);
	(void)sh_match(other, b, 300, 5);
	scene_now();
	sh_tick(60);
	scene_answer(0);
	(void)sh_close(cl, a);
	scene_now();
	sh_tick(60);
	scene_answer(0);
	if (sh_state(other, b) == KVMM_SEQ_READY)
		(void)sh_begin(other, b, 0, 300);
	scene_now();
	SH_CORE((void)!core_pool_resize(sh.core, sh.now, 0, 6 * SH_EXTENT));
	sh_settle();
	scene_now();
	sh_tick(60);
	scene_answer(0);
	SH_CORE((void)!core_pool_resize(sh.core, sh.now, 0, 8 * SH_EXTENT));
	sh_settle();
	scene_now();
}

/* Run the whole scene, in a core that was started with scene_config(). */
static void scene_run(void)
{
	u32 cl = sh_attach(1, "d"), other, third;

	scene_now();
	other = sh_attach(2, "e");
	scene_now();
	scene_share(cl);
	scene_swap(cl);
	scene_move(cl, other);
	third = sh_attach(1, "f");
	(void)sh_ready(third, 20, 4, 11);
	(void)sh_submit(third, KVMM_OP_DETACH, 0, 0, 0);
	scene_now();
	sh_die(third);
	sh_quiet(third);
	SH_CORE((void)!core_domain_set(sh.core, sh.now, 0, CORE_LIMIT_HIGH,
				       4 * SH_EXTENT));
	scene_now();
	sh_die(other);
	scene_now();
	sh_quiet(other);
	sh_tick(10);
	SH_CORE((void)!core_drop_caches(sh.core, sh.now, 0, 100));
	scene_now();
	sh_die(cl);
	sh_quiet(cl);
	scene_answer(0);
}

#endif /* ADOPT_SCENE_H */
