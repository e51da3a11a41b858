// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_area_rate.c - rates and failures of areas, choice of an area, exactly
 *
 * The tests call area_io.c itself, with areas whose measurements they set.  A slot
 * has 8 KiB: a header of a page, and a block of 4 KiB.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define SLOT		8192u
#define SLOTS		32u		/* of an area */
#define NONE		CORE_NONE
#define MINUTE		(60ull * 1000 * MS)

static struct core *c;
static struct kv_pool *pool[3];
static struct kv_entry entry;

static void setup(void)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 i, area;

	sh_config(8);
	sh.cfg.host_bytes = 8 * SH_EXTENT;
	sh.cfg.area_bytes = 64 * SH_EXTENT;
	sh_start();
	c = sh.core;
	req.group[0].layers = 4;
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(core_area_add(c, sh.now, SLOTS * SLOT, 0, &area),
				 0);
		pool[i] = core_pool(c, CORE_POOL_AREA + area);
	}
	entry = (struct kv_entry){ .domain = 0, .io = ENT_WRITE };
	c->now = sh.now;
}

static void teardown(void)
{
	sh_stop();
}

/* A rate of @ns for each KiB, over as many requests as make it known. */
static void set_rate(u32 i, u32 dir, u64 ns)
{
	pool[i]->rate[dir] = (struct kv_rate){
		.nr = 4, .bytes = 1024 * 1024, .ns = 1024 * ns,
	};
}

static void set_rates(u64 a, u64 b, u64 d)
{
	set_rate(0, 1, a);
	set_rate(1, 1, b);
	set_rate(2, 1, d);
}

/* Number of the area that gets the next slot, for a host slot without neighbours. */
static u32 next_area(void)
{
	static u32 host = 1000;
	u32 slot = area_slot_get(c, 0, host += 10, false);

	return slot == NONE ? NONE :
	       part_pool(c, c->blocks[slot].domain) - CORE_POOL_AREA;
}

static void request(u32 i, u32 dir, u64 ns, int status)
{
	entry.io = dir ? ENT_WRITE : ENT_READ;
	area_io_begin(c, pool[i], &entry);
	c->now += ns;
	area_io_end(c, pool[i], &entry, dir, status);
}

/* ---- rates ---- */

/* The rate is known from the fourth request on. */
START_TEST(test_known_after_four)
{
	u32 n, dir = (u32)_i;

	for (n = 0; n < 3; n++) {
		request(0, dir, 8192, 0);
		ck_assert_uint_eq(area_rate(pool[0], dir), 0);
	}
	request(0, dir, 8192, 0);
	/* 1024 ns for a KiB: 10^9 bytes a second. */
	ck_assert_uint_eq(area_rate(pool[0], dir), 1000000000);
	ck_assert_uint_eq(area_rate(pool[0], !dir), 0);
	ck_assert_uint_eq(pool[0]->rate[dir].ns, 4 * 8192);
	ck_assert_uint_eq(pool[0]->rate[dir].bytes, 4 * SLOT);
	ck_assert_uint_eq(pool[0]->out[dir], 0);
}
END_TEST

/* A KiB takes a nanosecond at least. */
START_TEST(test_extreme_rates)
{
	pool[0]->rate[1] = (struct kv_rate){ .nr = 4, .bytes = 1 << 20 };
	ck_assert_uint_eq(area_rate(pool[0], 1), 1024ull * 1000000000);
	pool[0]->rate[1] = (struct kv_rate){ .nr = 4, .ns = 5000 };
	ck_assert_uint_eq(area_rate(pool[0], 1), 1024ull * 1000000000 / 5000);
	pool[0]->rate[1].bytes = 2048;
	ck_assert_uint_eq(area_rate(pool[0], 1), 1024ull * 1000000000 / 2500);
}
END_TEST

/* The time of a request begins with the answer before it, or after a pause. */
START_TEST(test_time_of_a_request)
{
	u64 begin;

	c->now += 5000;
	area_io_begin(c, pool[0], &entry);
	begin = c->now;
	ck_assert_uint_eq(pool[0]->moved, begin);
	ck_assert_uint_eq(pool[0]->out[1], SLOT);
	pool[0]->nr_ios = 1;
	c->now += 300;
	area_io_begin(c, pool[0], &entry);
	ck_assert_uint_eq(pool[0]->moved, begin);
	ck_assert_uint_eq(pool[0]->out[1], 2 * SLOT);
	entry.io = ENT_READ;
	area_io_begin(c, pool[0], &entry);
	ck_assert_uint_eq(pool[0]->out[0], SLOT);
	c->now += 200;
	area_io_end(c, pool[0], &entry, 1, 0);
	ck_assert_uint_eq(pool[0]->rate[1].ns, 500);
	ck_assert_uint_eq(pool[0]->out[1], SLOT);
	ck_assert_uint_eq(pool[0]->out[0], SLOT);
}
END_TEST

/* A failure takes 10 ms at least and has no bytes; an absent swapd tells nothing. */
START_TEST(test_time_of_a_failure)
{
	request(0, 1, 7, -EIO);
	ck_assert_uint_eq(pool[0]->rate[1].ns, 10 * MS);
	request(0, 1, 11 * MS, -EIO);
	ck_assert_uint_eq(pool[0]->rate[1].ns, 21 * MS);
	ck_assert_uint_eq(pool[0]->rate[1].bytes, 0);
	ck_assert_uint_eq(pool[0]->rate[1].nr, 2);
	request(0, 1, MS, -ENODEV);
	request(0, 1, MS, -ENXIO);
	ck_assert_uint_eq(pool[0]->rate[1].nr, 2);
	ck_assert_uint_eq(pool[0]->rate[1].ns, 21 * MS);
	ck_assert_uint_eq(pool[0]->out[1], 0);
	ck_assert(io_is_away(-ENODEV) && io_is_away(-ENXIO));
	ck_assert(!io_is_away(-EIO) && !io_is_away(0));
}
END_TEST

/* With the 64th request all sums are halved. */
START_TEST(test_window)
{
	u32 n;

	for (n = 0; n < 63; n++)
		request(0, 1, 1000, 0);
	ck_assert_uint_eq(pool[0]->rate[1].nr, 63);
	ck_assert_uint_eq(pool[0]->rate[1].ns, 63000);
	request(0, 1, 1000, 0);
	ck_assert_uint_eq(pool[0]->rate[1].nr, 32);
	ck_assert_uint_eq(pool[0]->rate[1].ns, 32000);
	ck_assert_uint_eq(pool[0]->rate[1].bytes, 32 * SLOT);
}
END_TEST

/* ---- choice ---- */

/* Areas without a rate: the idle one first, then the one with the least to write. */
START_TEST(test_unknown_rates)
{
	ck_assert_uint_eq(next_area(), 0);
	pool[0]->nr_ios = 1;
	ck_assert_uint_eq(next_area(), 1);
	pool[1]->nr_ios = 1;
	pool[2]->nr_ios = 1;
	pool[0]->out[1] = 3 * SLOT;
	pool[1]->out[1] = 2 * SLOT;
	pool[2]->out[1] = 2 * SLOT;
	ck_assert_uint_eq(next_area(), 1);
	pool[2]->out[1] = SLOT;
	ck_assert_uint_eq(next_area(), 2);
	/* A known rate comes before a busy area without one. */
	set_rate(0, 1, 1000000);
	ck_assert_uint_eq(next_area(), 0);
}
END_TEST

/* The area that would write the slot first, after all that it has to do. */
START_TEST(test_first_to_finish)
{
	set_rates(100, 200, 300);
	ck_assert_uint_eq(next_area(), 0);
	/* 16 KiB at 100 are as long as 8 KiB at 200: the first area. */
	pool[0]->out[1] = SLOT;
	ck_assert_uint_eq(next_area(), 0);
	pool[0]->out[1] = SLOT + 1024;
	ck_assert_uint_eq(next_area(), 1);
	/* Reads count at their own rate, else at that of writes. */
	pool[1]->out[0] = SLOT;
	ck_assert_uint_eq(next_area(), 0);
	pool[0]->out[1] = 3 * SLOT;
	ck_assert_uint_eq(next_area(), 2);
	set_rate(1, 0, 10);
	ck_assert_uint_eq(next_area(), 1);
	set_rate(1, 0, 150);
	ck_assert_uint_eq(next_area(), 2);
}
END_TEST

/*
 * Bytes count in whole KiB.  Area 0 has 1023 KiB to write or to read, at 100 ns a
 * KiB; area 1 needs as long for one slot, and a little more or less.
 */
START_TEST(test_whole_kib)
{
	u32 dir = (u32)_i;
	u64 more = dir ? 0 : 8;		/* KiB: the slot itself */

	set_rates(100, 100, 1000000);
	pool[0]->out[dir] = 1023 * 1024 - (dir ? SLOT : 0);
	set_rate(1, 1, (1023 + more) * 100 / 8 + 1);
	ck_assert_uint_eq(next_area(), 0);
	set_rate(1, 1, (1023 + more) * 100 / 8);
	ck_assert_uint_eq(next_area(), 1);
	pool[0]->out[dir] = 1025 * 1024 - (dir ? SLOT : 0);
	set_rate(1, 1, (1025 + more) * 100 / 8 + 1);
	ck_assert_uint_eq(next_area(), 0);
	set_rate(1, 1, (1025 + more) * 100 / 8);
	ck_assert_uint_eq(next_area(), 1);
}
END_TEST

/* Areas that take nothing, each for one reason. */
START_TEST(test_takes_nothing)
{
	set_rates(100, 200, 300);
	pool[0]->readonly = 1;
	ck_assert_uint_eq(next_area(), 1);
	pool[0]->readonly = 0;
	pool[0]->nr_overdue = 1;
	ck_assert_uint_eq(next_area(), 1);
	pool[0]->nr_overdue = 0;
	pool[0]->away = c->now + 1;
	ck_assert_uint_eq(next_area(), 1);
	pool[0]->away = c->now;
	ck_assert_uint_eq(next_area(), 0);
	pool[0]->online = 0;
	pool[1]->readonly = 1;
	ck_assert_uint_eq(next_area(), 2);
	pool[2]->readonly = 1;
	ck_assert_uint_eq(next_area(), NONE);
	pool[0]->online = 1;
}
END_TEST

/* A higher priority comes first at any speed; a full area is passed over. */
START_TEST(test_priority_then_room)
{
	u32 i, last;

	ck_assert_int_eq(core_area_add(c, sh.now, SLOTS * SLOT, -2, &last), 0);
	set_rates(100, 900, 300);
	pool[1]->prio = 5;
	pool[2]->prio = -1;
	for (i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(next_area(), 1);
	for (i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(next_area(), 0);
	for (i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(next_area(), 2);
	ck_assert_uint_eq(next_area(), last);
	core_pool(c, CORE_POOL_AREA + last)->readonly = 1;
	ck_assert_uint_eq(next_area(), NONE);
}
END_TEST

/*
 * An idle area that was slow is tried again after 16 slots for each time that it
 * was slower, at least 64.
 */
START_TEST(test_probes)
{
	static const struct { u64 slow; u32 after; } rows[] = {
		{ 200, 64 }, { 400, 64 }, { 500, 80 }, { 1000, 160 },
	};

	set_rates(100, rows[_i].slow, 100000);
	pool[1]->passed = rows[_i].after - 1;
	ck_assert_uint_eq(next_area(), 0);
	ck_assert_uint_eq(pool[1]->passed, rows[_i].after);
	ck_assert_uint_eq(pool[0]->passed, 0);
	ck_assert_uint_eq(pool[2]->passed, 1);
	/* Not while it is busy, has another priority, or takes nothing. */
	pool[1]->nr_ios = 1;
	ck_assert_uint_eq(next_area(), 0);
	pool[1]->nr_ios = 0;
	pool[1]->prio = -1;
	ck_assert_uint_eq(next_area(), 0);
	ck_assert_uint_eq(pool[1]->passed, rows[_i].after + 1);
	pool[1]->prio = 0;
	pool[1]->readonly = 1;
	ck_assert_uint_eq(next_area(), 0);
	pool[1]->readonly = 0;
	pool[1]->passed = rows[_i].after;
	ck_assert_uint_eq(next_area(), 1);
	ck_assert_uint_eq(pool[1]->passed, 0);
	ck_assert_uint_eq(pool[0]->passed, 1);
	ck_assert_uint_eq(next_area(), 0);
}
END_TEST

/* ---- neighbours ---- */

static u32 area_of(u32 host)
{
	u32 slot = area_slot_get(c, 0, host, false);

	return slot == NONE ? NONE :
	       part_pool(c, c->blocks[slot].domain) - CORE_POOL_AREA;
}

/*
 * The area that took a host slot's neighbour takes it, too, unless another area
 * could write a whole chunk of 16 slots earlier.
 */
START_TEST(test_neighbours_stay_together)
{
	set_rates(100, 100, 100000);
	ck_assert_uint_eq(area_of(500), 0);
	pool[0]->out[1] = SLOT;
	ck_assert_uint_eq(area_of(501), 0);
	ck_assert_uint_eq(area_of(502), 0);
	/* The other direction. */
	ck_assert_uint_eq(area_of(600), 1);
	pool[1]->out[1] = 2 * SLOT;
	ck_assert_uint_eq(area_of(599), 1);
	/* Neither the same slot nor one two further. */
	ck_assert_uint_eq(area_of(599), 0);
	ck_assert_uint_eq(area_of(597), 0);
	/* 15 slots before it: the chunk is as early in area 0 as in area 1. */
	pool[0]->out[1] = 15 * SLOT;
	pool[1]->out[1] = 0;
	ck_assert_uint_eq(area_of(598), 0);
	pool[0]->out[1] = 15 * SLOT + 1024;
	ck_assert_uint_eq(area_of(599), 1);
}
END_TEST

/* Two areas have neighbours, one before the slot and one behind it. */
START_TEST(test_between_two_neighbours)
{
	set_rates(100, 100, 100000);
	ck_assert_uint_eq(area_of(500), 0);
	pool[0]->out[1] = SLOT;
	ck_assert_uint_eq(area_of(502), 1);
	pool[1]->out[1] = SLOT;
	ck_assert_uint_eq(area_of(501), 1);
}
END_TEST

/* Sixteen neighbours are a chunk; the area must take slots, at a known rate. */
START_TEST(test_end_of_a_chunk)
{
	struct kv_part *p = part_at(c, part_index(c, 0, CORE_POOL_AREA));

	set_rates(100, 100, 100000);
	ck_assert_uint_eq(area_of(500), 0);
	pool[0]->out[1] = SLOT;
	p->slot_row = 15;
	ck_assert_uint_eq(area_of(501), 0);
	p->slot_row = 16;
	ck_assert_uint_eq(area_of(502), 1);
	p->slot_row = 1;
	pool[0]->readonly = 1;
	ck_assert_uint_eq(area_of(502), 1);
	pool[0]->readonly = 0;
	pool[0]->prio = -1;
	ck_assert_uint_eq(area_of(502), 1);
	pool[0]->prio = 0;
	pool[0]->rate[1].nr = 3;
	pool[0]->nr_ios = 1;
	ck_assert_uint_eq(area_of(502), 1);
	pool[0]->rate[1].nr = 4;
	p->slot_row = 0;
	ck_assert_uint_eq(area_of(502), 1);
}
END_TEST

/* ---- failures ---- */

static bool failed(u32 dir, int status)
{
	u32 slot = core_pool(c, CORE_POOL_AREA)->first *
		   core_sizes(c)->blocks_per_extent;

	return area_failed(c, slot, dir, status);
}

/* Eight failures in one direction make an area read-only. */
START_TEST(test_eight_failures)
{
	u32 n, dir = (u32)_i;

	ck_assert_uint_eq(area_of(500), 0);
	for (n = 0; n < 7; n++) {
		ck_assert(failed(dir, -EIO));
		ck_assert(failed(!dir, -EIO));
	}
	ck_assert_uint_eq(pool[0]->readonly, 0);
	ck_assert_uint_eq(pool[0]->errors, 14);
	/* A request that was not tried does not count, and stops writes for 1 s. */
	ck_assert(!failed(dir, -ENODEV));
	ck_assert_uint_eq(pool[0]->away, c->now + 1000 * MS);
	ck_assert_uint_eq(pool[0]->errors, 14);
	ck_assert_uint_eq(pool[0]->readonly, 0);
	ck_assert(failed(dir, -EIO));
	ck_assert_uint_eq(pool[0]->readonly, 1);
	ck_assert_uint_eq(pool[0]->errors, 15);
	ck_assert_uint_eq(pool[1]->readonly, 0);
}
END_TEST

/* One failure is forgiven every ten minutes. */
START_TEST(test_forgiven)
{
	struct kv_bad *b = &pool[0]->bad[1];
	u64 begin;

	ck_assert_uint_eq(area_of(500), 0);
	c->now = 1000 * MINUTE;
	ck_assert(failed(1, -EIO));
	ck_assert_uint_eq(b->level, 1);
	begin = c->now;
	ck_assert_uint_eq(b->since, begin);
	ck_assert(failed(1, -EIO));
	ck_assert(failed(1, -EIO));
	ck_assert_uint_eq(b->level, 3);
	c->now = begin + 10 * MINUTE - 1;
	ck_assert(failed(1, -EIO));
	ck_assert_uint_eq(b->level, 4);
	c->now = begin + 10 * MINUTE;
	ck_assert(failed(1, -EIO));
	ck_assert_uint_eq(b->level, 4);
	ck_assert_uint_eq(b->since, begin + 10 * MINUTE);
	c->now = begin + 39 * MINUTE;
	ck_assert(failed(1, -EIO));
	ck_assert_uint_eq(b->level, 3);
	ck_assert_uint_eq(b->since, begin + 30 * MINUTE);
	/* As many as there are: the time begins anew. */
	c->now = begin + 65 * MINUTE;
	ck_assert(failed(1, -EIO));
	ck_assert_uint_eq(b->level, 1);
	ck_assert_uint_eq(b->since, begin + 65 * MINUTE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_area_rate");
	TCase *tc = tcase_create("rates");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_known_after_four, 0, 2);
	tcase_add_test(tc, test_extreme_rates);
	tcase_add_test(tc, test_time_of_a_request);
	tcase_add_test(tc, test_time_of_a_failure);
	tcase_add_test(tc, test_window);
	tcase_add_test(tc, test_unknown_rates);
	tcase_add_test(tc, test_first_to_finish);
	tcase_add_loop_test(tc, test_whole_kib, 0, 2);
	tcase_add_test(tc, test_takes_nothing);
	tcase_add_test(tc, test_priority_then_room);
	tcase_add_loop_test(tc, test_probes, 0, 4);
	tcase_add_test(tc, test_neighbours_stay_together);
	tcase_add_test(tc, test_between_two_neighbours);
	tcase_add_test(tc, test_end_of_a_chunk);
	tcase_add_loop_test(tc, test_eight_failures, 0, 2);
	tcase_add_test(tc, test_forgiven);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
