// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_host.c - room in the host pool, writes to areas, cleaning ahead
 *
 * A slot of the host pool is a span of two extents.  Each prompt is one block of its
 * own, so entries do not depend on each other.  The tests copy blocks down by
 * entry_out(), and pretend that tables need an entry by setting its count, so the
 * walkers do not run.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define SLOT	(2 * SH_EXTENT)
#define FULL	64u			/* blocks of the device pool */

static struct core *c;
static struct core_copy copies[256];
static struct core_io ios[256];
static u32 nr_copies, nr_ios, cl;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, 256);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	ck_assert_uint_lt(nr_ios, 256);
	ios[nr_ios++] = *io;
}

static void copies_done(void)
{
	u32 i, nr = nr_copies;

	nr_copies = 0;
	for (i = 0; i < nr; i++)
		SH_CORE(core_copy_done(c, sh.now, copies[i].id, 0));
}

/* Answer the oldest @nr requests to the area. */
static void ios_done(u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		SH_CORE(core_io_done(c, sh.now, ios[i].id, 0));
	nr_ios -= nr;
	memmove(ios, ios + nr, nr_ios * sizeof(ios[0]));
}

/* A host pool of @slots, an area of @area slots; nothing is cleaned ahead. */
static void start(u32 slots, u32 area)
{
	u32 index;

	nr_copies = 0;
	nr_ios = 0;
	sh_on_copy = on_copy;
	sh_on_io = on_io;
	sh_config(FULL / SH_PER);
	sh.cfg.host_bytes = slots * SLOT;
	sh.cfg.area_bytes = area * SLOT;
	sh.cfg.swappiness = 200;
	sh_start();
	sh_unchecked = true;
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
	(void)!core_drop_caches(c, sh.now, 0, 1000);
	c->head->clean_after = ~0ull;
	if (area)
		ck_assert_int_eq(core_area_add(c, sh.now, area * SLOT, 0, &index),
				 0);
}

static void setup(void)
{
	start(8, 0);
}

static void teardown(void)
{
	sh_stop();
}

/* ---- blocks and their entries ---- */

/* The first id of prompt @i. */
static u32 seed_of(u32 i)
{
	return 1000 * (i + 1);
}

static void cache(u32 from, u32 nr)
{
	u32 i;

	for (i = from; i < from + nr; i++) {
		u64 seq = sh_ready(cl, SH_BT, 0, seed_of(i));

		sh_compute(cl, seq, 0, SH_BT, seed_of(i));
		ck_assert_int_eq(sh_close(cl, seq), 0);
	}
}

/* The cached block of prompt @i. */
static u32 block_of(u32 i)
{
	u32 b;

	for (b = 0; b < FULL; b++)
		if (c->blocks[b].state == BLK_CACHED &&
		    block_ids(c, b)[0] == seed_of(i))
			return b;
	return CORE_NONE;
}

/* Copy the cached blocks of prompts down, in this order. */
static void down(u32 from, u32 nr, u32 *entries)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		entries[i] = entry_out(c, block_of(from + i), 0);
		ck_assert_uint_ne(entries[i], CORE_NONE);
		copies_done();
	}
}

static struct kv_entry *entry(u32 e)
{
	return &c->entries_low[e];
}

static bool has_slot(u32 e)
{
	return entry(e)->domain != ENTRY_UNUSED && entry(e)->host != CORE_NONE;
}

/* Bit i is set if entry i has its slot. */
static u32 kept(const u32 *entries, u32 nr)
{
	u32 i, bits = 0;

	for (i = 0; i < nr; i++)
		bits |= (u32)has_slot(entries[i]) << i;
	return bits;
}

/* ---- room ---- */

/* Free extents come first; then all slots of the pool are free ones. */
START_TEST(test_extents_first)
{
	u32 e[3];

	ck_assert_uint_eq(host_slots_max(c, 0), 8);
	cache(0, 3);
	down(0, 3, e);
	ck_assert_uint_eq(host_free(c, 0), 0);
	ck_assert(host_room(c, 0, 5));
	ck_assert_uint_eq(host_free(c, 0), 5);
	ck_assert_uint_eq(kept(e, 3), 7);
	ck_assert_uint_eq(sh_count(CORE_EV_host_drop), 0);
	ck_assert(host_room(c, 0, 6));
	ck_assert_uint_eq(host_free(c, 0), 6);
	ck_assert_uint_eq(kept(e, 3), 6);
	ck_assert(host_room(c, 0, 8));
	ck_assert_uint_eq(kept(e, 3), 0);
	ck_assert(!host_room(c, 0, 9));
}
END_TEST

/* The oldest slot goes first; use makes a slot the newest. */
START_TEST(test_oldest_first)
{
	u32 e[8];

	cache(0, 8);
	down(0, 8, e);
	entry_touch(c, e[0]);
	ck_assert(host_room(c, 0, 2));
	ck_assert_uint_eq(kept(e, 8), 0xf9);
	entry_touch(c, e[3]);
	ck_assert(host_room(c, 0, 4));
	ck_assert_uint_eq(kept(e, 8), 0xc9);
	ck_assert_uint_eq(host_free(c, 0), 4);
	/* A block with a copy loses only the copy. */
	ck_assert_uint_ne(block_of(1), CORE_NONE);
	ck_assert_uint_eq(c->blocks[block_of(1)].entry, CORE_NONE);
}
END_TEST

/* A slot that a table needs stays, unless an area has its content; so does one in use. */
START_TEST(test_needed_slots_stay)
{
	u32 e[8], i;

	cache(0, 8);
	down(0, 8, e);
	for (i = 0; i < 8; i++)
		if (i != 4)
			entry_get_ref(c, e[i]);
	ck_assert(host_room(c, 0, 1));
	ck_assert_uint_eq(kept(e, 8), 0xef);
	ck_assert(!host_room(c, 0, 2));
	ck_assert_uint_eq(host_free(c, 0), 1);
	entry_drop_ref(c, e[2]);
	entry(e[2])->io = ENT_OUT;
	ck_assert(!host_room(c, 0, 2));
	entry(e[2])->io = ENT_IDLE;
	ck_assert(host_room(c, 0, 2));
	ck_assert_uint_eq(kept(e, 8), 0xeb);
}
END_TEST

/* A domain has its own slots dropped first, then those of other domains. */
START_TEST(test_own_slots_first)
{
	u32 a[6], b[2];

	cache(0, 6);
	down(0, 6, a);
	cl = sh_attach(1, "b");
	cache(10, 2);
	down(10, 2, b);
	ck_assert_uint_eq(host_free(c, 1), 0);
	ck_assert(host_room(c, 1, 1));
	ck_assert_uint_eq(kept(b, 2), 2);
	ck_assert(host_room(c, 1, 2));
	ck_assert_uint_eq(kept(b, 2), 0);
	ck_assert_uint_eq(kept(a, 6), 0x3f);
	/* A domain keeps one empty span, so two slots must go for one. */
	ck_assert(host_room(c, 1, 3));
	ck_assert_uint_eq(kept(a, 6), 0x3c);
	ck_assert(host_room(c, 1, 4));
	ck_assert_uint_eq(kept(a, 6), 0x38);
	/* Free slots of another domain stay there. */
	ck_assert(!host_room(c, 0, 5));
	ck_assert_uint_eq(kept(a, 6), 0);
	ck_assert_uint_eq(host_free(c, 0), 4);
	/* No domain, no part of the pool. */
	ck_assert(!host_room(c, 2, 1));
	ck_assert_uint_eq(host_slots_max(c, 2), 0);
}
END_TEST

/*
 * Memory of the device cannot be made now: slots of the host pool are there all the
 * same, for a second tenant, too.
 */
START_TEST(test_host_pool_has_memory)
{
	u32 second = sh_attach(2, "b");

	c->head->zones[0].create_after = ~0ull;
	ck_assert(host_room(c, sh.cl[second].info.domain, 8));
	ck_assert_uint_eq(host_free(c, sh.cl[second].info.domain), 8);
}
END_TEST

/* After the device failed there is no room. */
START_TEST(test_failed_device)
{
	c->head->zones[0].device = CORE_DEVICE_CUT;
	ck_assert(!host_room(c, 0, 1));
	c->head->zones[0].device = CORE_DEVICE_WORKS;
	ck_assert(host_room(c, 0, 1));
}
END_TEST

/* An indexed entry, its block evicted, is dropped with its name. */
START_TEST(test_indexed_entry)
{
	u32 e[8], i;

	cache(0, 8);
	down(0, 8, e);

	for (i = 0; i < 8; i++)
		index_evict(c, block_of(i));
	ck_assert(entry(e[0])->flags & ENTF_INDEXED);
	ck_assert_uint_eq(entry(e[0])->dev, CORE_NONE);
	ck_assert(host_room(c, 0, 1));
	ck_assert_uint_eq(kept(e, 8), 0xfe);
	ck_assert_uint_eq(entry(e[0])->domain, ENTRY_UNUSED);
	ck_assert_uint_eq(sh_count(CORE_EV_host_drop), 1);
}
END_TEST

/* ---- writes to areas ---- */

/* @nr slots with content that tables need. */
static void needed(u32 nr, u32 *e)
{
	u32 i;

	cache(0, nr);
	down(0, nr, e);
	for (i = 0; i < nr; i++)
		entry_get_ref(c, e[i]);
}

/*
 * The limit of writes in flight is a quarter of the slots, 8 at least and 64 at
 * most.  A round begins when a quarter of the limit can begin, at least three more
 * than none.
 */
static const struct {
	u32	slots, most, begin;
} limits[] = {
	{ 160, 40, 30 }, { 100, 25, 19 }, { 44, 11, 8 }, { 36, 9, 6 },
	{ 32, 8, 5 }, { 20, 8, 5 },
};

START_TEST(test_limit_of_writes)
{
	u32 e[64], nr = min(limits[_i].slots - 1, 60u);
	u32 most = limits[_i].most, begin = limits[_i].begin;

	sh_stop();
	start(limits[_i].slots, 100);
	needed(nr, e);
	ck_assert(host_write_out(c));
	ck_assert_uint_eq(nr_ios, min(most, nr));
	ck_assert_uint_eq(io_moving(c), most);
	/* Writes are in the order in which the slots were used. */
	ck_assert_uint_eq(ios[0].host_off, block_offset(c, entry(e[0])->host));
	ck_assert_uint_eq(ios[most - 1].host_off,
			  block_offset(c, entry(e[most - 1])->host));
	ios_done(most - begin);
	ck_assert(host_write_out(c));
	ck_assert_uint_eq(nr_ios, begin);
	ios_done(1);
	ck_assert(host_write_out(c));
	ck_assert_uint_eq(nr_ios, min(most, nr - most + begin - 1));
	/* The round went on where the last one ended. */
	ck_assert_uint_eq(ios[begin - 1].host_off,
			  block_offset(c, entry(e[most])->host));
	ios_done(nr_ios);
}
END_TEST

/* A full area ends the round; then nothing is in flight that would free a slot. */
START_TEST(test_full_area)
{
	u32 e[8];

	sh_stop();
	start(32, 3);
	needed(8, e);
	ck_assert(host_write_out(c));
	ck_assert_uint_eq(nr_ios, 3);
	ios_done(3);
	ck_assert(!host_write_out(c));
	ck_assert_uint_eq(nr_ios, 0);
	/* A copy in flight may free a slot, too. */
	cache(20, 1);
	ck_assert_uint_ne(entry_out(c, block_of(20), 0), CORE_NONE);
	ck_assert(host_write_out(c));
	copies_done();
	ck_assert(!host_write_out(c));
	/* Written slots can be dropped, needed or not. */
	ck_assert_uint_eq(kept(e, 8), 0xff);
	ck_assert(host_room(c, 0, 24));
	ck_assert_uint_eq(kept(e, 8), 0xfe);
	ck_assert(entry(e[0])->flags & ENTF_AREA);
}
END_TEST

/*
 * When three quarters of the pool are in use, the oldest slots are written that no table
 * names: four of this small pool.  One that an area has is dropped, and another one is
 * written.
 */
START_TEST(test_written_ahead)
{
	u32 e[8], i;

	sh_stop();
	start(8, 100);
	cache(0, 8);
	down(0, 5, e);
	for (i = 0; i < 5; i++)
		index_evict(c, block_of(i));
	sh_tick(1);
	ck_assert_uint_eq(nr_ios, 0);
	down(5, 1, e + 5);
	sh_tick(1);
	ck_assert_uint_eq(nr_ios, 4);
	ck_assert_uint_eq(ios[0].host_off, block_offset(c, entry(e[0])->host));
	ios_done(4);
	sh_tick(1);
	ck_assert_uint_eq(nr_ios, 0);
	ck_assert(host_drop_copy(c, 0, CORE_NONE));
	ck_assert(!has_slot(e[0]));
	down(6, 1, e + 6);
	sh_tick(1);
	ck_assert_uint_eq(nr_ios, 1);
	ck_assert_uint_eq(ios[0].host_off, block_offset(c, entry(e[4])->host));
}
END_TEST

/* ---- cleaning ahead ---- */

/* Cleaning begins when the free blocks are a quarter of the used ones. */
START_TEST(test_when_cleaning_begins)
{
	sh_stop();
	start(40, 0);
	cache(0, 51);
	sh_compute(cl, sh_ready(cl, 1, 0, 1), 0, 1, 1);
	c->head->clean_after = 0;
	ck_assert_uint_eq(domain_free(&c->domains[0]), 12);
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 8);
	/* The blocks that are evicted next, one copy each: an eighth of the domain. */
	ck_assert_uint_ne(c->blocks[block_of(0)].entry, CORE_NONE);
	ck_assert_uint_ne(c->blocks[block_of(7)].entry, CORE_NONE);
	ck_assert_uint_eq(c->blocks[block_of(8)].entry, CORE_NONE);
	ck_assert_uint_eq(sh_count(CORE_EV_pgclean), 8);
	/* These are ready, or will be: no more. */
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 8);
}
END_TEST

START_TEST(test_enough_is_free)
{
	sh_stop();
	start(40, 0);
	cache(0, 51);
	c->head->clean_after = 0;
	ck_assert_uint_eq(domain_free(&c->domains[0]), 13);
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 0);
	cache(51, 1);
	c->head->clean_after = sh.now + 2 * MS;
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 0);
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 8);
}
END_TEST

/* Of the blocks that are evicted next eight are looked at, clean ones, too. */
START_TEST(test_eight_are_looked_at)
{
	u32 e[8];

	sh_stop();
	start(40, 0);
	cache(0, 60);
	down(0, 7, e);
	c->head->clean_after = 0;
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 1);
	ck_assert_uint_ne(c->blocks[block_of(7)].entry, CORE_NONE);
	c->head->clean_after = ~0ull;
	copies_done();
	c->head->clean_after = 0;
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 0);
	ck_assert_uint_eq(c->blocks[block_of(8)].entry, CORE_NONE);
}
END_TEST

/* Only free slots are used, and none while a restore waits for slots. */
START_TEST(test_slots_for_cleaning)
{
	u32 e[8];

	cache(0, 60);
	down(40, 8, e);
	c->head->clean_after = 0;
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 0);
	ck_assert_uint_eq(kept(e, 8), 0xff);
	c->head->clean_after = ~0ull;
	ck_assert(host_room(c, 0, 2));
	sh_tick(1);
	c->head->clean_after = 0;
	c->domains[0].host_wanted = 1;
	ck_assert(host_is_wanted(c));
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 0);
	c->domains[0].host_wanted = 0;
	ck_assert(!host_is_wanted(c));
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 2);
}
END_TEST

/* A block that is demoted ahead is copied once; then a lower tier has it. */
START_TEST(test_demoted_ahead)
{
	u32 i, blk;

	cache(0, 8);
	blk = block_of(0);
	ck_assert(!demote_ahead(c, 0, blk));
	ck_assert_uint_eq(nr_copies, 0);
	c->head->clean_after = c->now;
	ck_assert(!demote_ahead(c, 0, blk));
	ck_assert_uint_eq(nr_copies, 1);
	ck_assert(!demote_ahead(c, 0, blk));
	ck_assert_uint_eq(nr_copies, 1);
	for (i = 1; i < 6; i++)
		ck_assert(!demote_ahead(c, 0, block_of(i)));
	ck_assert_uint_eq(nr_copies, 6);
	copies_done();
	for (i = 0; i < 6; i++)
		ck_assert(demote_ahead(c, 0, block_of(i)));
	ck_assert_uint_eq(c->blocks[block_of(6)].entry, CORE_NONE);
	c->domains[0].host_wanted = 1;
	ck_assert(!demote_ahead(c, 0, block_of(6)));
	ck_assert_uint_eq(nr_copies, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_host");
	TCase *tc = tcase_create("host");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_extents_first);
	tcase_add_test(tc, test_oldest_first);
	tcase_add_test(tc, test_needed_slots_stay);
	tcase_add_test(tc, test_own_slots_first);
	tcase_add_test(tc, test_host_pool_has_memory);
	tcase_add_test(tc, test_failed_device);
	tcase_add_test(tc, test_indexed_entry);
	tcase_add_loop_test(tc, test_limit_of_writes, 0, ARRAY_SIZE(limits));
	tcase_add_test(tc, test_full_area);
	tcase_add_test(tc, test_written_ahead);
	tcase_add_test(tc, test_when_cleaning_begins);
	tcase_add_test(tc, test_enough_is_free);
	tcase_add_test(tc, test_eight_are_looked_at);
	tcase_add_test(tc, test_slots_for_cleaning);
	tcase_add_test(tc, test_demoted_ahead);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
