// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_slots.c - blocks of a sequence lie side by side on lower tiers
 *
 * Slots of 8 KiB, eight to a span.  The tests count commands that swapd could
 * join to one transfer: two commands, one after the other, with slots that are
 * neighbours in the area and, in the same order, in the host pool.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define MAX_IO		256
#define SLOT		8192u
#define EXTENT		(8 * SLOT)

static struct core_copy copies[MAX_IO];
static struct core_io ios[MAX_IO];
static u32 nr_copies, nr_ios, done_ios, cl;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MAX_IO);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	ck_assert_uint_lt(nr_ios, MAX_IO);
	ios[nr_ios++] = *io;
}

/* Answer all copies and requests, each kind in its order. */
static void do_all(void)
{
	u32 i;

	while (nr_copies || done_ios < nr_ios) {
		for (i = 0; i < nr_copies; i++)
			SH_CORE(core_copy_done(sh.core, sh.now, copies[i].id,
					       0));
		nr_copies = 0;
		if (done_ios < nr_ios)
			SH_CORE(core_io_done(sh.core, sh.now,
					     ios[done_ios++].id, 0));
		sh_settle();
	}
}

static void forget_ios(void)
{
	nr_ios = 0;
	done_ios = 0;
}

/* A host pool of @spans spans; the area has room for all blocks. */
static void setup_with(u32 spans)
{
	u32 area;

	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	forget_ios();
	sh_config(16);
	sh.cfg.extent_size = EXTENT;
	sh.cfg.pool_bytes = 4 * EXTENT;
	sh.cfg.host_bytes = spans * EXTENT;
	sh.cfg.area_bytes = 16 * EXTENT;
	sh.cfg.swappiness = 200;
	sh_start();
	cl = sh_attach(1, "d");
	ck_assert_int_eq(core_area_add(sh.core, sh.now, sh.cfg.area_bytes, 0,
				       &area), 0);
}

static void setup(void)
{
	setup_with(8);
}

static void setup_small(void)
{
	setup_with(3);
}

static void teardown(void)
{
	sh_die(cl);
	sh_quiet(cl);
	do_all();
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

static u64 ready(u32 nr)
{
	struct kvmm_open_arg a = {
		.prompt_len = nr * SH_BT, .max_tokens = 2 * SH_BT,
		.flags = KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH,
	};
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, nr * SH_BT, 7), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_compute(cl, seq, 0, nr * SH_BT, 7);
	return seq;
}

static void pageout(u64 seq)
{
	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
	do_all();
}

static u64 out(u32 nr)
{
	u64 seq = ready(nr);

	pageout(seq);
	return seq;
}

static void back(u64 seq)
{
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	do_all();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}

/* The place of a block's content in the host pool. */
static u64 host_off(u64 seq, u32 i)
{
	const struct kv_seq *s = &sh.core->seqs[(u32)seq];
	const struct kv_entry *e;
	kv_pte_t pte = table_pte(sh.core, &s->tab, i);

	ck_assert(pte_is_entry(pte));
	e = &sh.core->entries_low[pte_block(pte)];
	ck_assert_uint_ne(e->host, CORE_NONE);
	return block_offset(sh.core, e->host);
}

/* How many of @nr blocks lie just behind the block before? */
static u32 in_order(u64 seq, u32 nr)
{
	u32 i, n = 0;

	for (i = 1; i < nr; i++)
		n += host_off(seq, i) == host_off(seq, i - 1) + SLOT;
	return n;
}

static bool neighbours(const struct core_io *a, const struct core_io *b)
{
	return a->write == b->write && a->area == b->area &&
	       a->len == SLOT && b->len == SLOT &&
	       ((b->area_off == a->area_off + SLOT &&
		 b->host_off == a->host_off + SLOT) ||
		(a->area_off == b->area_off + SLOT &&
		 a->host_off == b->host_off + SLOT));
}

/* *@nr: commands of a direction.  Return: those right behind a neighbour's. */
static u32 pairs(bool write, u32 *nr)
{
	u32 i, n = 0;

	*nr = 0;
	for (i = 0; i < nr_ios; i++) {
		*nr += ios[i].write == write;
		n += i && ios[i].write == write &&
		     neighbours(&ios[i - 1], &ios[i]);
	}
	return n;
}

/* ---- in the host pool ---- */

START_TEST(test_one_after_the_other)
{
	u64 a = out(6), b = out(8), c = out(2);

	ck_assert_uint_eq(in_order(a, 6), 5);
	/* Eight slots are a span: the only run of that many. */
	ck_assert_uint_eq(in_order(b, 8), 7);
	ck_assert_uint_eq(in_order(c, 2), 1);
}
END_TEST

/* Holes of two slots: four blocks go where four are free, two into a hole. */
START_TEST(test_holes)
{
	u64 seq[8], four, two;
	u32 i;

	/* Fill two spans. */
	for (i = 0; i < 8; i++)
		seq[i] = out(2);
	for (i = 0; i < 8; i += 2)
		ck_assert_int_eq(sh_close(cl, seq[i]), 0);
	do_all();
	four = out(4);
	ck_assert_uint_eq(in_order(four, 4), 3);
	two = out(2);
	ck_assert_uint_eq(in_order(two, 2), 1);
	ck_assert_uint_lt(host_off(two, 0), 2 * EXTENT);
}
END_TEST

/* Blocks that cannot lie side by side take any slots. */
START_TEST(test_any_slot_will_do)
{
	u64 seq[32], last;
	u32 i;

	sh.core->domains[0].prefill_ns_token = 0;
	for (i = 0; i < 22; i++)
		seq[i] = out(1);
	/* Close every second sequence. */
	for (i = 0; i < 22; i += 2)
		ck_assert_int_eq(sh_close(cl, seq[i]), 0);
	do_all();
	last = out(13);
	for (i = 0; i < 13; i++)
		(void)host_off(last, i);
	ck_assert_uint_eq(host_free(sh.core, 0), 0);
	for (i = 1; i < 22; i += 2)
		back(seq[i]);
}
END_TEST

/* ---- between host pool and area ---- */

/* Two areas of one speed: neighbours stay together, and both areas have work. */
START_TEST(test_two_areas)
{
	u32 second, i, nr, n, at[2] = { 0, 0 };
	u64 seq[12];

	ck_assert_int_eq(core_area_add(sh.core, sh.now, sh.cfg.area_bytes, 0,
				       &second), 0);
	for (i = 0; i < 12; i++) {
		/* By now both areas were measured. */
		if (i == 6)
			forget_ios();
		seq[i] = out(8);
	}
	n = pairs(true, &nr);
	ck_assert_uint_ge(nr, 32);
	/* Each run of eight is one chunk, or two. */
	ck_assert_uint_ge(n, nr - nr / 4);
	for (i = 0; i < nr_ios; i++)
		at[ios[i].area == second] += ios[i].write;
	ck_assert_uint_ge(at[0], nr / 8);
	ck_assert_uint_ge(at[1], nr / 8);
	for (i = 0; i < 12; i++)
		ck_assert_int_eq(sh_close(cl, seq[i]), 0);
}
END_TEST

/*
 * Three sequences of eight blocks fill the host pool; the oldest are written
 * ahead, and the fourth takes their slots.  Then the first is read again.
 */
START_TEST(test_out_and_in)
{
	u64 seq[4];
	u32 i, nr, n;

	for (i = 0; i < 4; i++) {
		seq[i] = out(8);
		if (i < 3)
			ck_assert_uint_eq(in_order(seq[i], 8), 7);
	}
	n = pairs(true, &nr);
	ck_assert_uint_ge(nr, 16);
	/* At most one run ends with each sequence, and with each span. */
	ck_assert_uint_ge(n + 6, nr);
	for (i = 0; i < 2; i++) {
		forget_ios();
		back(seq[i]);
		n = pairs(false, &nr);
		ck_assert_uint_eq(nr, 8);
		ck_assert_uint_ge(n, 6);
		pageout(seq[i]);
	}
}
END_TEST

/* Writes begin several at a time, or there is nothing to join. */
START_TEST(test_together)
{
	u32 i, now = 0, most = 0;
	u64 seq = 0;

	for (i = 0; i < 3; i++) {
		seq = ready(8);
		ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
		while (nr_copies) {
			SH_CORE(core_copy_done(sh.core, sh.now,
					       copies[--nr_copies].id, 0));
			sh_settle();
		}
	}
	ck_assert_uint_gt(nr_ios, 0);
	/* One answer after the other: then four or more writes begin at once. */
	while (done_ios < nr_ios) {
		now = nr_ios;
		SH_CORE(core_io_done(sh.core, sh.now, ios[done_ios++].id, 0));
		sh_settle();
		most = max(most, nr_ios - now);
		ck_assert(nr_ios == now || nr_ios - now >= 4 ||
			  done_ios >= 8);
	}
	ck_assert_uint_ge(most, 4);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core-slots");
	TCase *tc = tcase_create("host"), *small = tcase_create("area");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_one_after_the_other);
	tcase_add_test(tc, test_holes);
	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(small, setup_small, teardown);
	tcase_add_test(small, test_any_slot_will_do);
	tcase_add_test(small, test_two_areas);
	tcase_add_test(small, test_out_and_in);
	tcase_add_test(small, test_together);
	suite_add_tcase(s, small);
	return sh_run(s);
}
