// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_swap.c - swap-out of whole sequences, and the order of return
 *
 * A host pool and no areas, unless a test adds one.  The test answers copies
 * itself, or does not.  Where cost decides, the test sets the measured values.
 * Sequences are not indexed, so a paged-out block has left the device when its
 * copy ends.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define MAX_IO		256
#define SLOT		(2 * SH_EXTENT)
#define STARVE		1000u	/* ms */
#define MANY		30u	/* sequences */
#define MANY_BLOCKS	10u	/* of each; all are more than one scan covers */

static struct core_copy copies[MAX_IO];
static struct core_io ios[MAX_IO];
static u32 nr_copies, nr_ios, cl;

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

static void do_copies(int status)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(sh.core, sh.now, id, status));
		sh_settle();
	}
}

/* Complete only copies out of the device: sequences that wait for room go on. */
static void do_copies_out(void)
{
	u32 i = 0;

	while (i < nr_copies) {
		u64 id = copies[i].id;

		if (!copies[i].to_host) {
			i++;
			continue;
		}
		copies[i] = copies[--nr_copies];
		SH_CORE(core_copy_done(sh.core, sh.now, id, 0));
		sh_settle();
		i = 0;
	}
}

static void setup_with(u32 host_slots, u32 swappiness)
{
	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	nr_ios = 0;
	sh_config(16);
	sh.cfg.host_bytes = host_slots * SLOT;
	sh.cfg.swappiness = swappiness;
	sh.cfg.starve_ns = STARVE * MS;
	sh_start();
	cl = sh_attach(1, "d");
}

static void setup(void)
{
	setup_with(120, 200);
}

static void setup_small(void)
{
	setup_with(6, 100);
}

static void setup_two(void)
{
	setup_with(2, 200);
}

/* Start with an area. */
static void setup_area_with(u32 host_slots, u32 area_slots)
{
	u32 area;

	setup_with(host_slots, 200);
	sh_stop();
	sh.cfg.area_bytes = area_slots * SLOT;
	sh_start();
	cl = sh_attach(1, "d");
	ck_assert_int_eq(core_area_add(sh.core, sh.now, sh.cfg.area_bytes, 0,
				       &area), 0);
}

static void setup_area(void)
{
	setup_area_with(2, 8);
}

static void setup_large(void)
{
	setup_area_with(MANY * MANY_BLOCKS, MANY * MANY_BLOCKS);
}

static void teardown(void)
{
	sh_die(cl);
	sh_quiet(cl);
	do_copies(0);
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

/* A sequence of @nr blocks with more to come; it may have to wait. */
static u64 opened(u32 nr, u32 priority)
{
	struct kvmm_open_arg a = {
		.prompt_len = nr * SH_BT, .max_tokens = 8 * SH_BT,
		.priority = priority,
		.flags = KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH,
	};
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, nr * SH_BT, 7), 0);
	return seq;
}

static u64 ready(u32 nr, u32 priority)
{
	u64 seq = opened(nr, priority);

	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_compute(cl, seq, 0, nr * SH_BT, 7);
	return seq;
}

/* Append one token. */
static void grow(u64 seq)
{
	u32 valid = sh_status(cl, seq)->valid_len;

	sh_compute(cl, seq, valid, valid + 1, 7);
}

static void pageout(u64 seq)
{
	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
	do_copies(0);
}

/* Set the cost of a KiB of copy and of a token of prefill, as if measured. */
static void measured(u64 copy_ns, u64 prefill_ns)
{
	sh.core->head->copy_ns_kb = copy_ns;
	sh.core->domains[0].prefill_ns_token = prefill_ns;
}

/*
 * A sequence that is brought back asks for its next block, too.  It gets it from
 * another tenant when it has waited longest, also where nothing runs beside it.
 */
START_TEST(test_next_block_of_another_tenant)
{
	u32 other, i;
	u64 seq, in_other;

	sh_die(cl);
	sh_quiet(cl);
	sh_stop();
	sh_config(2);
	sh.cfg.host_bytes = 20 * SLOT;
	sh.cfg.swappiness = 200;
	sh.cfg.starve_ns = STARVE * MS;
	sh_start();
	cl = sh_attach(1, "d");
	measured(1, 1000 * MS);
	seq = sh_ready(cl, SH_PER * SH_BT, 2 * SH_BT, 7);
	sh_compute(cl, seq, 0, SH_PER * SH_BT, 7);
	pageout(seq);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	other = sh_attach(2, "e");
	in_other = sh_open(other, SH_BT, SH_BT);
	ck_assert_int_eq(sh_match(other, in_other, SH_BT, 9), 0);
	for (i = 0; i < 10 && sh_state(other, in_other) != KVMM_SEQ_READY; i++)
		sh_tick(STARVE);
	sh_compute(other, in_other, 0, SH_BT, 9);
	sh_tick(2 * STARVE);
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	for (i = 0; i < 10; i++) {
		sh_tick(STARVE);
		do_copies(0);
	}
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_die(other);
	sh_quiet(other);
}
END_TEST

/* ---- swap-out ---- */

/*
 * A sequence needs a table page, and its client has none left.  The victim would keep
 * its pages if it were swapped out, so it is recomputed, cheap as the copies are.
 */
START_TEST(test_pages_come_by_recompute)
{
	u64 large, small;

	sh_die(cl);
	sh_quiet(cl);
	sh_stop();
	sh_config(SH_EXTENTS);
	sh.cfg.host_bytes = 120 * SLOT;
	sh.cfg.swappiness = 200;
	sh.cfg.nr_tables = 2;
	sh.cfg.nr_idpages = SH_CLIENTS * 20;
	sh_start();
	cl = sh_attach(1, "d");
	large = ready(KVMM_TABLE_ENTRIES, 0);
	small = ready(1, 0);
	measured(1, 1000 * MS);
	ck_assert_int_eq(sh_begin(cl, large, KVMM_TABLE_ENTRIES * SH_BT, 1), 0);
	ck_assert_uint_eq(sh_state(cl, small), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(nr_copies, 0);
}
END_TEST

/* Both sequences were out and back, so six clean copies fill the host pool. */
static u64 six_clean_copies(u64 *other)
{
	u64 seq = ready(3, 0);
	u32 i;

	*other = ready(3, 0);
	measured(1, 1000000);
	for (i = 0; i < 2; i++) {
		pageout(i ? *other : seq);
		ck_assert_int_eq(advise(i ? *other : seq, KVMM_ADV_WILLNEED),
				 0);
		do_copies(0);
	}
	ck_assert_uint_eq(host_free(sh.core, 0), 0);
	return seq;
}

/*
 * A page-out that takes the slots of the sequence's own clean copies costs more
 * than estimated; it is not decided again half-way.
 */
START_TEST(test_pageout_takes_its_own_copies)
{
	u64 other, seq = six_clean_copies(&other);

	grow(seq);
	/* Four blocks: five moves pay, eight would not. */
	measured(64 * 100 / 6, 100);
	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
}
END_TEST

/*
 * Lost content keeps its record while a table names it, but no slot: slots may
 * be free while records are not.
 */
START_TEST(test_records_run_out)
{
	u32 all = core_sizes(sh.core)->nr_entries, i;
	struct core_tier_view host;
	u64 lost[16], seq, other;

	ck_assert_uint_le(all, 2 * ARRAY_SIZE(lost));
	for (i = 0; i < all / 2; i++) {
		lost[i] = ready(2, 0);
		ck_assert_int_eq(advise(lost[i], KVMM_ADV_PAGEOUT), 0);
		do_copies(-EIO);
	}
	ck_assert_uint_eq(sh.core->head->nr_free_entries, 0);
	ck_assert_int_eq(core_get_tier(sh.core, CORE_POOL_HOST, &host), 0);
	ck_assert_uint_eq(host.used + host.limbo, 0);
	seq = ready(2, 0);
	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	/* Nor is any block cleaned ahead. */
	sh_tick(2000);
	other = sh_ready(cl, 58 * SH_BT, 0, 500);
	sh_compute(cl, other, 0, 58 * SH_BT, 500);
	ck_assert_int_eq(sh_close(cl, other), 0);
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 0);
	ck_assert_uint_gt(sh_pool().cached, 0);
	/* One sequence is closed, another one gets its records. */
	ck_assert_int_eq(sh_close(cl, lost[0]), 0);
	do_copies(0);
	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
}
END_TEST

/* An empty step of @client that claims @tokens computed in @ns. */
static void hint(u32 client, u64 ns, u64 tokens)
{
	struct kvmm_sqe sqe = { .op = KVMM_OP_STEP_END,
				.param = { ns, tokens } };
	struct kvmm_begin_res res;
	struct kvmm_begin_arg a = { .seq = KVMM_SEQ(0, 0) };

	ck_assert_int_eq(sh_begin_all(client, &a, 1, &res), 0);
	ck_assert_int_ne(res.status, 0);
	sqe.number = ++sh.cl[client].number;
	sqe.step = sh.cl[client].step;
	ck_assert_int_eq(sh_send(client, &sqe, 0), 0);
}

/* A client tells the cost of prefill for its own domain only. */
START_TEST(test_hints_are_of_the_domain)
{
	u64 seq = ready(3, 0);
	u32 other = sh_attach(2, "e");

	hint(cl, 16000000, 16);
	sh.core->head->copy_ns_kb = 1000;
	hint(other, 160, 16);
	pageout(seq);
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	do_copies(0);
	sh.core->domains[0].prefill_ns_token = 0;
	hint(cl, 160, 16);
	hint(other, 16000000, 16);
	sh.core->head->copy_ns_kb = 1000;
	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/*
 * A sequence comes back without a reservation, has to copy its only block, and
 * memory.max has fallen to one block.  Swapped out again it would come back with
 * the same block, for ever: it is computed again.  @_i: there is room for the copy.
 */
START_TEST(test_tail_that_cannot_be_copied)
{
	u64 first = sh_ready(cl, SH_BT, 0, 0), seq;

	sh_compute(cl, first, 0, SH_BT, 0);
	ck_assert_int_eq(sh_close(cl, first), 0);
	seq = sh_ready(cl, SH_BT - 1, 1, 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, SH_BT - 2);
	pageout(seq);
	ck_assert_int_eq(core_domain_set(sh.core, sh.now, 0, CORE_LIMIT_MAX,
					 (1 + (u32)_i) * SH_BLOCK), 0);
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	if (_i) {
		ck_assert_int_eq(sh_begin(cl, seq, SH_BT - 2, 1), 0);
		return;
	}
	ck_assert_int_eq(sh_begin(cl, seq, SH_BT - 2, 1), -EAGAIN);
	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), -EAGAIN);
	sh_tick(STARVE + 1);
	ck_assert_int_eq(sh_begin(cl, seq, SH_BT - 2, 1), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_match(cl, seq, SH_BT - 1, 0), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_begin(cl, seq, 0, SH_BT - 1), 0);
}
END_TEST

/* ---- turns ---- */

/* Time spent paged out is no waiting time. */
START_TEST(test_time_paged_out_is_no_wait)
{
	u64 seq = ready(32, 0), other;
	u32 i;

	pageout(seq);
	sh_tick(60 * STARVE);
	other = ready(50, 0);
	for (i = 0; i < 20; i++) {
		sh_tick(STARVE / 10);
		grow(other);
	}
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	sh_tick(STARVE - 1);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(sh_state(cl, other), KVMM_SEQ_READY);
	/* Then its turn comes as that of any other sequence. */
	sh_tick(1);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, other), KVMM_SEQ_SWAPPED);
}
END_TEST

/*
 * An idle sequence is swapped out for the longest-waiting one, and does not
 * take its memory back in the same event.  @_i: its priority is above that of
 * the other.
 */
START_TEST(test_longest_waiter_goes_first)
{
	u64 seq = ready(40, _i ? 2 : 0), waiter = opened(50, 0);

	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_WAITING);
	sh_tick(STARVE);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_READY);
	sh_tick(10);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_READY);
}
END_TEST

/* An empty step: its sequence is not idle. */
static void busy(u64 seq)
{
	(void)sh_begin(cl, seq, sh_status(cl, seq)->valid_len, 1);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
}

/*
 * A sequence waits in another domain of the tenant, one that has the larger
 * share.  It gets the memory that was taken for it once it has waited unusually
 * long, and keeps it.  @_i: the priority of the idle sequence is above that of
 * the waiting one.
 */
START_TEST(test_idle_gives_way_to_other_domains)
{
	u64 seq = ready(20, _i ? 2 : 0), worker, waiter;
	u32 mine = cl, other = sh_attach(1, "e"), t;

	cl = other;
	worker = ready(40, 3);
	waiter = opened(22, 0);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_WAITING);
	for (t = 0; sh_state(cl, waiter) != KVMM_SEQ_READY; t++) {
		ck_assert_uint_lt(t, 10 * 40);
		sh_tick(STARVE / 10);
		busy(worker);
		/* Copies end when all sequences have been asked. */
		sh_tick(1);
		do_copies(0);
	}
	ck_assert_uint_eq(sh_state(cl, worker), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(mine, seq), KVMM_SEQ_SWAPPED);
	/* The idle sequence is back when the other one has ended. */
	ck_assert_int_eq(sh_close(cl, waiter), 0);
	do_copies(0);
	ck_assert_uint_eq(sh_state(mine, seq), KVMM_SEQ_READY);
	sh_die(other);
	sh_quiet(other);
	cl = mine;
}
END_TEST

/* @seq computes now and then; @other grows until @seq gives way. */
static void crowd_out(u64 seq, u64 other)
{
	u32 t, at;

	for (t = 0; sh_state(cl, seq) == KVMM_SEQ_READY; t++) {
		ck_assert_uint_lt(t, 8 * SH_BT);
		sh_tick(STARVE / 50);
		if (t % 4 == 0)
			busy(seq);
		at = sh_status(cl, other)->valid_len;
		if (sh_begin(cl, other, at, 1))
			ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
		else
			ck_assert_int_eq(sh_end(cl, other, at, at + 1, 7), 0);
	}
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
}

/* A sequence taken while busy comes before all of lower priority, at any time. */
START_TEST(test_priority_holds_while_out)
{
	u64 seq = ready(20, 2), higher = ready(38, 3), waiter = opened(50, 0);
	u32 i;

	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_WAITING);
	crowd_out(seq, higher);
	for (i = 0; i < (_i ? 6 : 1); i++) {
		sh_tick(STARVE / 4);
		busy(higher);
	}
	ck_assert_uint_eq(sh_state(cl, higher), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_close(cl, higher), 0);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_WAITING);
}
END_TEST

/* So does a sequence that was idle only because its client had it paged out. */
START_TEST(test_priority_holds_after_advice)
{
	u64 seq = ready(20, 2), higher, waiter;
	u32 i;

	pageout(seq);
	higher = ready(50, 3);
	waiter = opened(50, 0);
	for (i = 0; i < 8; i++) {
		sh_tick(STARVE / 4);
		grow(higher);
	}
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	sh_tick(STARVE / 2);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	ck_assert_int_eq(sh_close(cl, higher), 0);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(cl, waiter), KVMM_SEQ_WAITING);
}
END_TEST

/* ---- restore ---- */

/*
 * Two sequences take turns: the residency of a restored one begins when it has
 * all its blocks, and is longer until it has more tokens than it lost.
 */
START_TEST(test_residency_begins_when_filled)
{
	u64 seq = ready(40, 0), other = opened(50, 0);
	u32 i;

	sh_tick(STARVE);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, other), KVMM_SEQ_READY);
	sh_compute(cl, other, 0, 50 * SH_BT, 7);
	sh_tick(STARVE);
	do_copies_out();
	ck_assert_uint_eq(sh_state(cl, other), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	sh_tick(10 * STARVE);
	do_copies(0);
	sh_tick(1);
	for (i = 0; i < 7; i++) {
		ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
		sh_tick(STARVE);
	}
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_tick(STARVE - 1);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(sh_state(cl, other), KVMM_SEQ_READY);
}
END_TEST

static u64 lost(u32 res, u32 kind)
{
	struct core_pressure_view v;

	ck_assert_int_eq(core_get_pressure(sh.core, CORE_NONE, &v), 0);
	return v.total_ns[res][kind];
}

static void expect_lost(u64 io_some_ms, u64 io_full_ms)
{
	ck_assert_uint_eq(lost(CORE_PSI_IO, CORE_PSI_SOME), io_some_ms * MS);
	ck_assert_uint_eq(lost(CORE_PSI_IO, CORE_PSI_FULL), io_full_ms * MS);
}

/*
 * Waiting for content is pressure of I/O, to the nanosecond, and of memory;
 * while another sequence runs it is not full.  A copy out is no pressure.
 */
START_TEST(test_pressure_of_restore)
{
	u64 seq = ready(40, 0), other = ready(8, 0), had;

	pageout(seq);
	expect_lost(0, 0);
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	had = lost(CORE_PSI_MEMORY, CORE_PSI_SOME);
	sh_tick(7);
	expect_lost(7, 7);
	ck_assert_int_eq(sh_begin(cl, other, 8 * SH_BT, 1), 0);
	sh_tick(5);
	expect_lost(12, 7);
	ck_assert_uint_eq(lost(CORE_PSI_MEMORY, CORE_PSI_SOME),
			  had + 12 * MS);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_tick(9);
	expect_lost(12, 7);
	ck_assert_uint_eq(lost(CORE_PSI_MEMORY, CORE_PSI_SOME),
			  had + 12 * MS);
}
END_TEST

/*
 * A sequence that waits within memory.min is tried when a restored one has all
 * its blocks: only then may the restored one give way.
 */
START_TEST(test_who_is_filled_may_give_way)
{
	struct kvmm_attach_req req = sh_attach_req("e");
	u64 seq = ready(56, 0), waiter;
	u32 mine = cl, other;

	pageout(seq);
	req.limits[0].min = 40 * SH_BLOCK;
	other = (u32)sh_attach_as(1, &req);
	sh_settle();
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	ck_assert_uint_eq(sh_state(mine, seq), KVMM_SEQ_RESTORING);
	cl = other;
	waiter = opened(30, 0);
	ck_assert_uint_eq(sh_state(other, waiter), KVMM_SEQ_WAITING);
	do_copies(0);
	ck_assert_uint_eq(sh_state(mine, seq), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(sh_state(other, waiter), KVMM_SEQ_READY);
	sh_die(other);
	sh_quiet(other);
	cl = mine;
}
END_TEST

/* A sequence wants no more than the pool has beside its cached blocks. */
START_TEST(test_as_large_as_the_pool)
{
	u64 seq = sh_ready(cl, 64 * SH_BT, 0, 5000), other;

	sh_compute(cl, seq, 0, 64 * SH_BT, 5000);
	pageout(seq);
	ck_assert_uint_eq(sh_pool().cached, 64 * SH_BLOCK);
	other = ready(1, 0);
	ck_assert_int_eq(sh_close(cl, other), 0);
	ck_assert_uint_eq(sh_pool().cached, 63 * SH_BLOCK);
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/* ---- beside other domains ---- */

/* Cache of @nr_blocks blocks that no sequence maps. */
static void cache(u32 client, u32 nr_blocks, u32 seed)
{
	u64 seq = sh_ready(client, nr_blocks * SH_BT, 0, seed);

	sh_compute(client, seq, 0, nr_blocks * SH_BT, seed);
	ck_assert_int_eq(sh_close(client, seq), 0);
}

/*
 * The oldest span of another domain's cache is being copied out: its evicted
 * blocks are still in limbo.  A sequence that wants a span gets the next one.
 */
START_TEST(test_another_run_when_one_is_in_limbo)
{
	u32 other = sh_attach(1, "e");
	u64 seq;

	cache(other, SH_PER, 5000);
	cache(other, SH_PER, 9000);
	ready(56, 0);
	sh_tick(1);
	ck_assert_uint_eq(nr_copies, 2 * SH_PER);
	while (nr_copies > SH_PER)
		SH_CORE(core_copy_done(sh.core, sh.now, copies[--nr_copies].id, 0));
	seq = opened(2, 0);
	ck_assert_uint_eq(sh_pool().limbo, SH_PER * SH_BLOCK);
	sh_tick(1);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(nr_copies, SH_PER);
}
END_TEST

/*
 * Domains leave room for a sequence to be restored in the domain with the
 * smaller share.  If that domain grew so far that the sequence would exceed its
 * memory.max, the others go on.
 */
START_TEST(test_own_max_holds_up_nobody_else)
{
	u64 lost = ready(8, 0), runs, first, other;
	u32 b = sh_attach(1, "e");

	ck_assert_int_eq(core_domain_set(sh.core, sh.now, 0, CORE_LIMIT_MAX,
					 25 * SH_BLOCK), 0);
	pageout(lost);
	runs = ready(17, 0);
	first = sh_ready(b, 41 * SH_BT, 0, 1000);
	/* Neither domain can have another span; each has three free blocks. */
	ck_assert_int_eq(advise(lost, KVMM_ADV_WILLNEED), 0);
	ck_assert_uint_eq(sh_state(cl, lost), KVMM_SEQ_SWAPPED);
	other = sh_open(b, 2 * SH_BT, 0);
	ck_assert_int_eq(sh_match(b, other, 2 * SH_BT, 5000), 0);
	ck_assert_uint_eq(sh_state(b, other), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_begin(cl, runs, 17 * SH_BT, 1), 0);
	ck_assert_uint_eq(sh_state(cl, lost), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(sh_state(b, other), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_end(cl, runs, 17 * SH_BT, 17 * SH_BT + 1, 7), 0);
	ck_assert_int_eq(sh_close(b, first), 0);
}
END_TEST

/* Another model can take over the record of a domain with failed slots. */
START_TEST(test_poison_goes_with_its_domain)
{
	struct kvmm_attach_req req = sh_attach_req("d");
	struct core_tier_view area;
	u64 seq = ready(2, 0);
	int id;

	pageout(seq);
	ck_assert_uint_eq(nr_ios, 2);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	while (nr_ios)
		SH_CORE(core_io_done(sh.core, sh.now, ios[--nr_ios].id, -EIO));
	ck_assert_int_eq(core_get_tier(sh.core, CORE_POOL_AREA, &area), 0);
	ck_assert_uint_eq(area.poison, 2 * SLOT);
	sh_die(cl);
	sh_quiet(cl);
	req.identity[0] = 1;
	id = sh_attach_as(1, &req);
	ck_assert_int_ge(id, 0);
	cl = (u32)id;
	sh_settle();
	ck_assert_int_eq(core_get_tier(sh.core, CORE_POOL_AREA, &area), 0);
	ck_assert_uint_eq(area.poison + area.used + area.limbo, 0);
}
END_TEST

/*
 * Written blocks stay on the list of host slots: no number of them may keep a
 * scan from the blocks behind them.
 */
START_TEST(test_all_of_a_large_pool_is_written)
{
	struct core_tier_view area;
	u32 i;

	for (i = 0; i < MANY; i++) {
		pageout(ready(MANY_BLOCKS, 0));
		while (nr_ios)
			SH_CORE(core_io_done(sh.core, sh.now,
					     ios[--nr_ios].id, 0));
	}
	ck_assert_int_eq(core_get_tier(sh.core, CORE_POOL_AREA, &area), 0);
	ck_assert_uint_eq(area.used, MANY * MANY_BLOCKS * SLOT);
	ck_assert_uint_eq(area.limbo, 0);
}
END_TEST

static Suite *swap_suite(void)
{
	Suite *s = suite_create("core_swap");
	TCase *tc = tcase_create("small");

	tcase_add_checked_fixture(tc, setup_small, teardown);
	tcase_add_test(tc, test_pageout_takes_its_own_copies);
	tcase_add_test(tc, test_hints_are_of_the_domain);
	tcase_add_loop_test(tc, test_tail_that_cannot_be_copied, 0, 2);
	suite_add_tcase(s, tc);

	tc = tcase_create("two");
	tcase_add_checked_fixture(tc, setup_two, teardown);
	tcase_add_test(tc, test_records_run_out);
	suite_add_tcase(s, tc);

	tc = tcase_create("ample");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_pages_come_by_recompute);
	tcase_add_test(tc, test_next_block_of_another_tenant);
	tcase_add_test(tc, test_time_paged_out_is_no_wait);
	tcase_add_loop_test(tc, test_longest_waiter_goes_first, 0, 2);
	tcase_add_loop_test(tc, test_idle_gives_way_to_other_domains, 0, 2);
	tcase_add_loop_test(tc, test_priority_holds_while_out, 0, 2);
	tcase_add_test(tc, test_priority_holds_after_advice);
	tcase_add_test(tc, test_residency_begins_when_filled);
	tcase_add_test(tc, test_pressure_of_restore);
	tcase_add_test(tc, test_who_is_filled_may_give_way);
	tcase_add_test(tc, test_as_large_as_the_pool);
	tcase_add_test(tc, test_another_run_when_one_is_in_limbo);
	tcase_add_test(tc, test_own_max_holds_up_nobody_else);
	suite_add_tcase(s, tc);

	tc = tcase_create("area");
	tcase_add_checked_fixture(tc, setup_area, teardown);
	tcase_add_test(tc, test_poison_goes_with_its_domain);
	suite_add_tcase(s, tc);

	tc = tcase_create("large");
	tcase_add_checked_fixture(tc, setup_large, teardown);
	tcase_add_test(tc, test_all_of_a_large_pool_is_written);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return sh_run(swap_suite());
}
