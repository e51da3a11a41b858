// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_answer.c - answers of copies and I/O: counters, rates, lost content
 *
 * A sequence of two blocks goes through the host pool, of two slots, and an area.
 * The test answers each request, and compares the counters.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define POOL	16u		/* blocks */
#define DEADLINE	1000u	/* ms, of I/O */
#define SLOT	(2 * SH_EXTENT)
#define MOST	64u		/* requests in flight */

static struct core *c;
static u32 cl;
static struct core_copy copies[MOST];
static struct core_io ios[MOST];
static u32 nr_copies, nr_ios;

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

/* Answer all copies in flight, but not those that follow them. */
static void copies_done(int status)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(c, sh.now, id, status));
		sh_settle();
	}
}

/* Answer the @nr newest requests. */
static void ios_done(u32 nr, int status)
{
	struct core_io todo[MOST];

	ck_assert_uint_eq(nr_ios, nr);
	memcpy(todo, ios, nr * sizeof(*ios));
	nr_ios = 0;
	while (nr--) {
		SH_CORE(core_io_done(c, sh.now, todo[nr].id, status));
		sh_settle();
	}
}

static void setup(void)
{
	u32 area;

	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	nr_ios = 0;
	sh_config(POOL / SH_PER);
	sh.cfg.starve_ns = 3600000 * MS;
	sh.cfg.io_deadline_ns = DEADLINE * MS;
	sh.cfg.host_bytes = 2 * SLOT;
	sh.cfg.area_bytes = 16 * SLOT;
	sh.cfg.swappiness = 200;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
	ck_assert_int_eq(core_area_add(c, sh.now, sh.cfg.area_bytes, 0, &area), 0);
}

static void teardown(void)
{
	sh_stop();
}

static void advise(u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

/* A sequence that is not indexed, so that its blocks leave with their copies. */
static u64 runs(u32 blocks)
{
	struct kvmm_open_arg a = {
		.prompt_len = blocks * SH_BT, .max_tokens = SH_BT,
		.flags = KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH,
	};
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, blocks * SH_BT, 7), 0);
	sh_compute(cl, seq, 0, blocks * SH_BT, 7);
	return seq;
}

#define assert_count(name, nr)	\
	ck_assert_uint_eq(sh_count(CORE_EV_##name), nr)

static u32 poison(void)
{
	struct core_tier_view v;

	ck_assert_int_eq(core_get_tier(c, CORE_POOL_AREA, &v), 0);
	return (u32)(v.poison / SLOT);
}

/* Host slots that are not free. */
static u32 host_slots(void)
{
	struct core_tier_view v;

	ck_assert_int_eq(core_get_tier(c, CORE_POOL_HOST, &v), 0);
	return (u32)((v.used + v.limbo) / SLOT);
}

/* A sequence of two blocks, whose content only the area has. */
static u64 in_area(void)
{
	u64 seq = runs(2), other;

	advise(seq, KVMM_ADV_PAGEOUT);
	copies_done(0);
	ios_done(2, 0);
	other = runs(2);
	advise(other, KVMM_ADV_PAGEOUT);
	copies_done(0);
	ios_done(2, 0);
	ck_assert_int_eq(sh_close(cl, other), 0);
	return seq;
}

/* ---- copies ---- */

/* A copy out and one in, each of @ns. */
static void round_trip(u64 seq, u64 ns)
{
	advise(seq, KVMM_ADV_PAGEOUT);
	sh.now += ns;
	copies_done(0);
	advise(seq, KVMM_ADV_WILLNEED);
	sh.now += ns;
	copies_done(0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, SH_BT);
}

/*
 * The rate is the time of the fastest of the last copies for a KiB; it is known after
 * eight.  A single slow one changes nothing, slow ones alone do.
 */
START_TEST(test_rate_of_copies)
{
	u64 seq = runs(1);
	u32 i;

	/* Its copy stays clean, so only the first one is out. */
	for (i = 0; i < 6; i++)
		round_trip(seq, 8000);
	ck_assert_uint_eq(c->head->copy_ns_kb, 0);
	round_trip(seq, 8000);
	ck_assert_uint_eq(c->head->copy_ns_kb, 8000);
	round_trip(seq, 1000000);
	ck_assert_uint_eq(c->head->copy_ns_kb, 8000);
	assert_count(pgdemote, 1);
	assert_count(pgpromote, 8);
	assert_count(preempt_swap, 8);
	assert_count(swap_restore, 8);
	assert_count(restore, 8);
	for (i = 0; i < 120; i++)
		round_trip(seq, 1000000);
	ck_assert_uint_eq(c->head->copy_ns_kb, 1000000);
	round_trip(seq, 9000);
	ck_assert_uint_eq(c->head->copy_ns_kb, 9000);
}
END_TEST

/* Copies that wait for each other: the time between their answers counts. */
START_TEST(test_copies_in_a_row)
{
	u64 seq = runs(2);
	u32 i, n;

	for (n = 0; n < 8; n++) {
		advise(seq, n % 2 ? KVMM_ADV_WILLNEED : KVMM_ADV_PAGEOUT);
		for (i = 0; i < nr_copies; i++) {
			sh.now += 1000;
			SH_CORE(core_copy_done(c, sh.now, copies[i].id, 0));
			sh_settle();
		}
		nr_copies = 0;
		ios_done(nr_ios, 0);
	}
	ck_assert_uint_eq(c->head->copy_ns_kb, 1000);
}
END_TEST

/* A copy that failed says nothing of the rate; copies ahead of need pause. */
START_TEST(test_copy_out_fails)
{
	u64 seq = runs(1);

	advise(seq, KVMM_ADV_PAGEOUT);
	sh.now += 8000;
	copies_done(-EIO);
	ck_assert_uint_eq(c->head->copy_ns_kb, 0);
	ck_assert_uint_eq(c->head->clean_after, sh.now + 1000 * MS);
	ck_assert_uint_eq(c->head->nr_copies, 0);
	assert_count(pgdemote, 0);
	advise(seq, KVMM_ADV_WILLNEED);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	assert_count(swap_lost, 1);
	assert_count(swap_restore, 0);
}
END_TEST

/* The device failed before: the copies of other pools do not pause. */
START_TEST(test_copy_fails_with_device)
{
	advise(runs(1), KVMM_ADV_PAGEOUT);
	SH_CORE(core_device_failed(c, sh.now, 0, CORE_DEVICE_CUT));
	copies_done(-EIO);
	ck_assert_uint_eq(c->head->clean_after, 0);
}
END_TEST

/* Two sequences are filled; one loses its content, the other one does not. */
START_TEST(test_only_one_is_lost)
{
	u64 seq[2] = { runs(1), runs(1) }, id;
	u32 i;

	for (i = 0; i < 2; i++) {
		advise(seq[i], KVMM_ADV_PAGEOUT);
		copies_done(0);
	}
	for (i = 0; i < 2; i++)
		advise(seq[i], KVMM_ADV_WILLNEED);
	ck_assert_uint_eq(nr_copies, 2);
	id = copies[--nr_copies].id;
	SH_CORE(core_copy_done(c, sh.now, id, -EIO));
	sh_settle();
	assert_count(swap_lost, 1);
	ck_assert_uint_eq(sh_state(cl, seq[1]), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(cl, seq[0]), KVMM_SEQ_RESTORING);
	copies_done(0);
	ck_assert_uint_eq(sh_state(cl, seq[0]), KVMM_SEQ_READY);
}
END_TEST

/* An answer that no copy waits for changes nothing. */
START_TEST(test_unknown_answers)
{
	u64 seq = runs(1), id;

	advise(seq, KVMM_ADV_PAGEOUT);
	id = copies[0].id;
	SH_CORE(core_copy_done(c, sh.now, id + (1ull << 32), 0));
	SH_CORE(core_copy_done(c, sh.now, id - (1ull << 32), 0));
	SH_CORE(core_copy_done(c, sh.now, id ^ 0x80000000, 0));
	SH_CORE(core_copy_done(c, sh.now, core_sizes(c)->nr_entries, 0));
	SH_CORE(core_io_done(c, sh.now, id, 0));
	sh_settle();
	ck_assert_uint_eq(c->head->nr_copies, 1);
	assert_count(pgdemote, 0);
	copies_done(0);
	assert_count(pgdemote, 1);
	SH_CORE(core_copy_done(c, sh.now, id, 0));
	sh_settle();
	assert_count(pgdemote, 1);
}
END_TEST

/* ---- transfers ---- */

START_TEST(test_through_the_area)
{
	u64 seq = in_area();

	assert_count(pgdemote, 4);
	assert_count(pswpout, 4);
	advise(seq, KVMM_ADV_WILLNEED);
	assert_count(pswpin, 0);
	ios_done(2, 0);
	assert_count(pswpin, 2);
	assert_count(pgpromote, 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	copies_done(0);
	assert_count(pgpromote, 2);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	assert_count(swap_read_error, 0);
	assert_count(swap_read_retry, 0);
	assert_count(swap_write_error, 0);
	assert_count(swap_lost, 0);
}
END_TEST

/* A read is tried twice.  @_i: the second one succeeds. */
START_TEST(test_read_fails)
{
	u64 seq = in_area();

	advise(seq, KVMM_ADV_WILLNEED);
	ios_done(2, -EIO);
	assert_count(swap_read_retry, 2);
	assert_count(swap_read_error, 0);
	ck_assert_uint_eq(poison(), 0);
	if (_i) {
		ios_done(2, 0);
		copies_done(0);
		assert_count(pswpin, 2);
		assert_count(swap_lost, 0);
		ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
		return;
	}
	ios_done(2, -EIO);
	assert_count(swap_read_retry, 2);
	assert_count(swap_read_error, 2);
	assert_count(swap_lost, 1);
	assert_count(pswpin, 0);
	ck_assert_uint_eq(poison(), 2);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(host_slots(), 0);
}
END_TEST

/* swapd does not have the area: the read is not tried again, the slot is good. */
START_TEST(test_area_is_away)
{
	u64 seq = in_area();

	advise(seq, KVMM_ADV_WILLNEED);
	ios_done(2, _i ? -ENODEV : -ENXIO);
	assert_count(swap_read_retry, 0);
	assert_count(swap_read_error, 2);
	ck_assert_uint_eq(poison(), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* A read is overdue, and then answered.  @_i: it failed. */
START_TEST(test_late_read)
{
	u64 seq = in_area();

	advise(seq, KVMM_ADV_WILLNEED);
	sh_tick(DEADLINE);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	sh_tick(1);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	assert_count(swap_stall, 2);
	ck_assert_uint_eq(core_get_stalled(c), 1);
	ck_assert_uint_eq(host_slots(), 2);
	ios_done(2, _i ? -EIO : 0);
	ck_assert_uint_eq(core_get_stalled(c), 0);
	assert_count(swap_late, 2);
	assert_count(pswpin, _i ? 0 : 2);
	assert_count(swap_read_error, _i ? 2 : 0);
	assert_count(swap_read_retry, 0);
	ck_assert_uint_eq(poison(), _i ? 2 : 0);
	ck_assert_uint_eq(host_slots(), 0);
}
END_TEST

/* A write that failed poisons its slot; the content stays in the host pool. */
START_TEST(test_write_fails)
{
	u64 seq = runs(2);

	advise(seq, KVMM_ADV_PAGEOUT);
	copies_done(0);
	ios_done(2, -EIO);
	assert_count(swap_write_error, 2);
	assert_count(pswpout, 0);
	ck_assert_uint_eq(poison(), 2);
	advise(seq, KVMM_ADV_WILLNEED);
	copies_done(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	assert_count(pgpromote, 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_answer");
	TCase *tc = tcase_create("answers");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_rate_of_copies);
	tcase_add_test(tc, test_copies_in_a_row);
	tcase_add_test(tc, test_copy_out_fails);
	tcase_add_test(tc, test_copy_fails_with_device);
	tcase_add_test(tc, test_only_one_is_lost);
	tcase_add_test(tc, test_unknown_answers);
	tcase_add_test(tc, test_through_the_area);
	tcase_add_loop_test(tc, test_read_fails, 0, 2);
	tcase_add_loop_test(tc, test_area_is_away, 0, 2);
	tcase_add_loop_test(tc, test_late_read, 0, 2);
	tcase_add_test(tc, test_write_fails);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
