// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_area.c - swap areas that differ in speed, fail, and are removed
 *
 * Each area is a disk of the test, with a time that one slot takes; it handles
 * slots one after the other.  Sequences are paged out to the host pool and on
 * to the areas.  The test completes the request that ends next, and counts the
 * slots of each disk.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define MAX_IO		64
#define AREAS		3
#define SLOT		(2 * SH_EXTENT)

/**
 * struct disk - the disk under an area
 * @us:    time of a slot
 * @free:  when it has completed all requests so far
 * @nr:    slots written
 * @fails: status of its next requests
 * @n:     number of requests that fail
 */
struct disk {
	u32	us;
	u64	free;
	u32	nr;
	int	fails;
	u32	n;
};

static struct core_copy copies[MAX_IO];
static struct core_io ios[MAX_IO];
static u64 due[MAX_IO];
static u32 nr_copies, nr_ios, cl, area[AREAS];
static struct disk disk[CORE_MAX_AREAS];

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MAX_IO);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	struct disk *d = &disk[io->area];

	ck_assert_uint_lt(nr_ios, MAX_IO);
	d->free = max(d->free, sh.now) + d->us * 1000ull;
	due[nr_ios] = d->free;
	ios[nr_ios++] = *io;
}

static void do_copies(void)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(sh.core, sh.now, id, 0));
		sh_settle();
	}
}

/* Complete the request that ends next. */
static void do_io(void)
{
	struct disk *d;
	struct core_io io;
	u32 best = 0, i;
	int status = 0;

	for (i = 1; i < nr_ios; i++)
		if (due[i] < due[best])
			best = i;
	io = ios[best];
	sh.now = max(sh.now, due[best]);
	nr_ios--;
	memmove(&ios[best], &ios[best + 1], (nr_ios - best) * sizeof(ios[0]));
	memmove(&due[best], &due[best + 1], (nr_ios - best) * sizeof(due[0]));
	d = &disk[io.area];
	if (d->n) {
		d->n--;
		status = d->fails;
	}
	d->nr += io.write && !status;
	SH_CORE(core_io_done(sh.core, sh.now, io.id, status));
	sh_settle();
}

static void do_all(void)
{
	while (nr_copies || nr_ios) {
		do_copies();
		if (nr_ios)
			do_io();
	}
}

static struct core_tier_view tier(u32 pool)
{
	struct core_tier_view v;

	ck_assert_int_eq(core_get_tier(sh.core, pool, &v), 0);
	return v;
}

static struct core_tier_view area_view(u32 i)
{
	return tier(CORE_POOL_AREA + area[i]);
}

static void add_area(u32 i, u32 slots, int prio, u32 us)
{
	ck_assert_int_eq(core_area_add(sh.core, sh.now, slots * SLOT, prio,
				       &area[i]), 0);
	disk[area[i]] = (struct disk){ .us = us };
}

static void setup_with(u32 host_slots)
{
	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	nr_ios = 0;
	sh_config(16);
	sh.cfg.host_bytes = host_slots * SLOT;
	sh.cfg.area_bytes = 64 * SH_EXTENT;
	sh.cfg.swappiness = 200;
	sh.cfg.io_deadline_ns = 1000 * MS;
	sh.cfg.starve_ns = 3600000 * MS;
	sh_start();
	cl = sh_attach(1, "d");
}

static void setup(void)
{
	setup_with(8);
}

/* The test leaves cache, which stays on the lower tiers without clients, too. */
static bool cache_stays;

static void setup_wide(void)
{
	setup_with(32);
}

static void setup_tight(void)
{
	setup_with(2);
}

static void teardown(void)
{
	u32 i;

	sh_die(cl);
	sh_quiet(cl);
	do_all();
	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++) {
		struct core_tier_view v;

		if (core_get_tier(sh.core, i, &v))
			continue;
		ck_assert_uint_eq(v.needed, 0);
		ck_assert_uint_eq(v.used && !cache_stays, 0);
		ck_assert_uint_eq(v.limbo, 0);
	}
	cache_stays = false;
	sh_stop();
}

static int advise(u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	int err;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)),
			 0);
	err = sh_seq_res(0);
	sh_settle();
	return err;
}

static void want(u64 seq)
{
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
}

/* A sequence of @nr full blocks that is paged out; its writes may be under way. */
static u64 paged_out_as(u32 nr, u32 flags, u32 seed)
{
	struct kvmm_open_arg a = {
		.prompt_len = nr * SH_BT, .max_tokens = 8, .flags = flags,
	};
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, nr * SH_BT, seed), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_compute(cl, seq, 0, nr * SH_BT, seed);
	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
	do_copies();
	return seq;
}

static u64 paged_out(u32 nr)
{
	return paged_out_as(nr, KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH, 7);
}

/* Page out @nr slots at once, @rounds times, and close the sequences. */
static void pour_many(u32 rounds, u32 nr)
{
	u64 seq[32];
	u32 n, i;

	while (rounds--) {
		for (n = 0; n < nr; n++)
			seq[n] = paged_out(1);
		do_all();
		for (i = 0; i < nr; i++)
			ck_assert_int_eq(sh_close(cl, seq[i]), 0);
	}
}

static void pour(u32 rounds)
{
	pour_many(rounds, 8);
}

/* A sequence of @nr blocks in the area alone; @other fills the host pool. */
static u64 on_area(u32 nr, u64 *other)
{
	u64 seq = paged_out(nr);

	do_all();
	*other = paged_out(nr);
	do_all();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	return seq;
}

/* ---- choice of an area ---- */

/* Equal priority: an area three times as fast gets three times as much. */
START_TEST(test_striped_by_speed)
{
	add_area(0, 32, 0, 1000);
	add_area(1, 32, 0, 3000);
	pour_many(10, 32);
	ck_assert_uint_ge(disk[area[0]].nr, 2 * disk[area[1]].nr);
	ck_assert_uint_le(disk[area[0]].nr, 5 * disk[area[1]].nr);
	ck_assert_uint_eq(area_view(0).rate[1] / 1024, 5000);
	ck_assert_uint_eq(area_view(1).rate[1] / 1024, 5000 / 3);
}
END_TEST

/* A hopelessly slow area gets few writes, just enough to measure it. */
START_TEST(test_probes_are_few)
{
	u32 known;

	add_area(0, 32, 0, 100);
	add_area(1, 32, 0, 100000);
	pour(10);
	known = disk[area[1]].nr;
	ck_assert_uint_gt(known, 0);
	ck_assert_uint_le(known, 8);
	sh_unchecked = true;
	pour(300);
	/* 1/16 of the time of 2400 writes; the area is 1000 times slower. */
	ck_assert_uint_le(disk[area[1]].nr, known + 1);
}
END_TEST

/* An area that was slow and is fast again is used again. */
START_TEST(test_slow_one_recovers)
{
	u32 before;

	add_area(0, 32, 0, 1000);
	add_area(1, 32, 0, 20000);
	pour(20);
	before = disk[area[1]].nr;
	ck_assert_uint_le(before, 20);
	disk[area[1]].us = 1000;
	sh_unchecked = true;
	pour(400);
	before = disk[area[1]].nr;
	pour(20);
	ck_assert_uint_ge(disk[area[1]].nr - before, 60);
}
END_TEST

/* The highest priority first, at any speed; then the next one with room. */
START_TEST(test_priority)
{
	u64 seq[16];
	u32 n;

	add_area(0, 8, 5, 9000);
	add_area(1, 32, 1, 100);
	pour(10);
	ck_assert_uint_eq(disk[area[1]].nr, 0);
	for (n = 0; n < 16; n++) {
		seq[n] = paged_out(1);
		do_all();
	}
	ck_assert_uint_eq(area_view(0).used, 8 * SLOT);
	ck_assert_uint_gt(area_view(1).used, 0);
	for (n = 0; n < 16; n++)
		ck_assert_int_eq(sh_close(cl, seq[n]), 0);
	/* A read-only area is skipped. */
	disk[area[0]].fails = -EIO;
	disk[area[0]].n = 8;
	pour(3);
	ck_assert_uint_eq(area_view(0).readonly, 1);
	n = disk[area[0]].nr;
	pour(3);
	ck_assert_uint_eq(disk[area[0]].nr, n);
}
END_TEST

/* A full area drops cache for blocks that a sequence needs. */
START_TEST(test_cache_gives_way)
{
	u64 seq[10];
	u32 n;

	cache_stays = true;
	add_area(0, 4, 0, 100);
	for (n = 0; n < 8; n++)
		seq[n] = paged_out_as(1, 0, 100 * n);
	/* The device evicts the blocks: their copies go on to the area. */
	seq[8] = sh_ready(cl, 60 * SH_BT, 0, 9999);
	sh_compute(cl, seq[8], 0, 60 * SH_BT, 9999);
	sh_tick(1);
	do_all();
	ck_assert_uint_eq(area_view(0).used, 4 * SLOT);
	for (n = 0; n < 9; n++)
		ck_assert_int_eq(sh_close(cl, seq[n]), 0);
	/* Only cache fills the area now. */
	ck_assert_uint_eq(area_view(0).used, 4 * SLOT);
	ck_assert_uint_eq(area_view(0).needed, 0);
	for (n = 0; n < 10; n++) {
		seq[n] = paged_out(1);
		do_all();
	}
	ck_assert_uint_gt(sh_count(CORE_EV_area_drop), 0);
	ck_assert_uint_eq(area_view(0).needed, 4 * SLOT);
	for (n = 0; n < 10; n++) {
		want(seq[n]);
		do_all();
		ck_assert_uint_eq(sh_state(cl, seq[n]), KVMM_SEQ_READY);
	}
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_recompute), 0);
}
END_TEST

/* An area whose writes fail at once does not count as fast. */
START_TEST(test_failing_is_not_fast)
{
	u32 i;

	add_area(0, 32, 0, 2000);
	add_area(1, 32, 0, 2000);
	pour(5);
	disk[area[1]].us = 1;
	disk[area[1]].fails = -EIO;
	disk[area[1]].n = 1000;
	i = disk[area[0]].nr;
	pour(5);
	ck_assert_uint_ge(disk[area[0]].nr - i, 30);
	ck_assert_uint_lt(area_view(1).rate[1], area_view(0).rate[1]);
}
END_TEST

/* ---- failures ---- */

/* One failed write a day is forgiven; eight at once make the area read-only. */
START_TEST(test_failures_are_forgiven)
{
	u32 day;

	add_area(0, 32, 0, 100);
	for (day = 0; day < 20; day++) {
		disk[area[0]].fails = -EIO;
		disk[area[0]].n = 1;
		pour(1);
		sh_tick(24 * 3600 * 1000);
	}
	ck_assert_uint_eq(area_view(0).errors, 20);
	ck_assert_uint_eq(area_view(0).readonly, 0);
	disk[area[0]].n = 7;
	pour(1);
	ck_assert_uint_eq(area_view(0).readonly, 0);
	disk[area[0]].n = 1;
	pour(1);
	ck_assert_uint_eq(area_view(0).bad[1], 8);
	ck_assert_uint_eq(area_view(0).bad[0], 0);
	ck_assert_uint_eq(area_view(0).readonly, 1);
}
END_TEST

/* A read that fails once is repeated. */
START_TEST(test_read_again)
{
	u64 other, seq;

	add_area(0, 16, 0, 100);
	seq = on_area(2, &other);
	disk[area[0]].fails = _i ? -EBADMSG : -EIO;
	disk[area[0]].n = 1;
	want(seq);
	do_all();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_swap_read_retry), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_swap_read_error), 0);
	ck_assert_uint_eq(area_view(0).poison, 0);
	ck_assert_uint_eq(area_view(0).errors, 1);
	ck_assert_uint_eq(area_view(0).bad[0], 1);
}
END_TEST

/* A read that fails twice costs one block and its slot. */
START_TEST(test_read_fails_twice)
{
	u64 other, seq;

	add_area(0, 16, 0, 100);
	seq = on_area(1, &other);
	paged_out(1);
	do_all();
	disk[area[0]].fails = -EIO;
	disk[area[0]].n = 2;
	want(seq);
	do_all();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_count(CORE_EV_swap_read_retry), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_swap_read_error), 1);
	ck_assert_uint_eq(area_view(0).poison, SLOT);
	ck_assert_uint_eq(area_view(0).bad[0], 2);
	ck_assert_uint_eq(area_view(0).bad[1], 0);
}
END_TEST

/* Without a swapd no error counts against the area, and retries are rare. */
START_TEST(test_away)
{
	const int status = _i ? -ENXIO : -ENODEV;
	u64 other, seq;

	add_area(0, 16, 0, 100);
	seq = on_area(1, &other);
	paged_out(1);
	do_all();
	disk[area[0]].fails = status;
	disk[area[0]].n = 1000;
	paged_out(1);
	do_all();
	ck_assert_uint_ge(disk[area[0]].n, 999);
	want(seq);
	do_all();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	sh_tick(500);
	ck_assert_uint_ge(disk[area[0]].n, 998);
	ck_assert_uint_eq(area_view(0).errors, 0);
	ck_assert_uint_eq(area_view(0).poison, 0);
	ck_assert_uint_eq(area_view(0).readonly, 0);
	disk[area[0]].n = 0;
	sh_tick(600);
	do_all();
	ck_assert_uint_gt(disk[area[0]].nr, 2);
}
END_TEST

/* ---- swapoff ---- */

static int area_del(u32 i)
{
	int err = core_area_del(sh.core, sh.now, area[i]);

	sh_settle();
	return err;
}

/* Blocks of a swapped sequence move to the other area, and are not recomputed. */
START_TEST(test_moved)
{
	u64 other, seq, third;

	add_area(0, 16, 0, 100);
	seq = on_area(2, &other);
	add_area(1, 16, 0, 100);
	ck_assert_int_eq(area_del(0), -EBUSY);
	do_all();
	ck_assert_int_eq(area_del(0), 0);
	ck_assert_uint_ge(sh_count(CORE_EV_swap_move), 2);
	third = paged_out(2);
	do_all();
	want(seq);
	do_all();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	want(other);
	do_all();
	want(third);
	do_all();
	ck_assert_uint_eq(sh_state(cl, other), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, third), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_recompute), 0);
}
END_TEST

/* Without room elsewhere one sequence is recomputed; swapoff does not wait. */
START_TEST(test_no_room)
{
	u64 other, seq;

	add_area(0, 16, 0, 100);
	seq = on_area(2, &other);
	ck_assert_int_eq(area_del(0), 0);
	want(seq);
	want(other);
	do_all();
	ck_assert_uint_eq((sh_state(cl, seq) == KVMM_SEQ_RECOMPUTE) +
			  (sh_state(cl, other) == KVMM_SEQ_RECOMPUTE), 1);
	ck_assert_uint_eq((sh_state(cl, seq) == KVMM_SEQ_READY) +
			  (sh_state(cl, other) == KVMM_SEQ_READY), 1);
}
END_TEST

/* The operator gives the area up. */
START_TEST(test_lose)
{
	u64 other, seq;

	add_area(0, 16, 0, 100);
	seq = on_area(2, &other);
	SH_CORE(core_area_lose(sh.core, sh.now, area[0]));
	sh_settle();
	do_all();
	ck_assert_int_eq(area_del(0), 0);
	want(seq);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	want(other);
	do_all();
	ck_assert_uint_eq(sh_state(cl, other), KVMM_SEQ_READY);
}
END_TEST

/* A lost entry that a table still names leaves without a read. */
START_TEST(test_lost_is_not_moved)
{
	struct core *c = sh.core;
	u64 other, seq;
	u32 i, nr = 0;

	add_area(0, 16, 0, 100);
	seq = on_area(1, &other);
	paged_out(1);
	do_all();
	ck_assert_int_eq(sh_close(cl, other), 0);
	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		struct kv_entry *e = &c->entries_low[i];

		if (e->domain == ENTRY_UNUSED || !e->refs ||
		    (e->flags & ENTF_HOST) || e->area == CORE_NONE)
			continue;
		e->flags |= ENTF_LOST;
		entry_unindex(c, i);
		nr++;
	}
	ck_assert_uint_eq(nr, 1);
	ck_assert_int_eq(area_del(0), 0);
	ck_assert_uint_eq(nr_ios, 0);
	want(seq);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/*
 * With a read for the evacuation under way: _i = 0: its sequence is wanted, 1:
 * it is closed, 2: the read fails, 3: the read gets no answer.
 */
START_TEST(test_moving)
{
	u64 other, seq;

	add_area(0, 16, 0, 100);
	seq = on_area(1, &other);
	paged_out(1);
	do_all();
	ck_assert_int_eq(sh_close(cl, other), 0);
	ck_assert_int_eq(area_del(0), -EBUSY);
	ck_assert_uint_eq(nr_ios, 1);
	ck_assert(!ios[0].write);
	if (_i == 0) {
		want(seq);
		ck_assert_uint_eq(nr_ios, 1);
		do_all();
		ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	} else if (_i == 1) {
		ck_assert_int_eq(sh_close(cl, seq), 0);
	} else if (_i == 2) {
		disk[area[0]].fails = -EIO;
		disk[area[0]].n = 2;
	} else {
		sh_tick(1001);
		ck_assert_uint_eq(tier(CORE_POOL_AREA + area[0]).nr_overdue, 1);
		ck_assert_int_eq(area_del(0), -EBUSY);
	}
	do_all();
	ck_assert_int_eq(area_del(0), 0);
	if (_i < 2)
		return;
	want(seq);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core-area");
	TCase *tc = tcase_create("choice");

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_probes_are_few);
	tcase_add_test(tc, test_slow_one_recovers);
	tcase_add_test(tc, test_priority);
	tcase_add_test(tc, test_cache_gives_way);
	tcase_add_test(tc, test_failing_is_not_fast);
	tcase_add_test(tc, test_failures_are_forgiven);
	suite_add_tcase(s, tc);
	tc = tcase_create("wide");
	tcase_add_checked_fixture(tc, setup_wide, teardown);
	tcase_add_test(tc, test_striped_by_speed);
	suite_add_tcase(s, tc);
	tc = tcase_create("one");
	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup_tight, teardown);
	tcase_add_loop_test(tc, test_read_again, 0, 2);
	tcase_add_test(tc, test_read_fails_twice);
	tcase_add_loop_test(tc, test_away, 0, 2);
	tcase_add_test(tc, test_moved);
	tcase_add_test(tc, test_no_room);
	tcase_add_test(tc, test_lose);
	tcase_add_test(tc, test_lost_is_not_moved);
	tcase_add_loop_test(tc, test_moving, 0, 4);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
