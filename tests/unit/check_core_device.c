// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_device.c - failure of the pool's device, as the core handles it
 *
 * The core has a host pool; the test answers copies itself.  The walkers run
 * after each event.  The tests check which sequences get which events, that no
 * block of unknown content is granted or found, and that no copy is ordered.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define MAX_IO		64
#define SLOT		(2 * SH_EXTENT)
#define EXTENTS		16
#define LARGE		48	/* more blocks than a table page names */

static struct core_copy copies[MAX_IO];
static u32 nr_copies, cl;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MAX_IO);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	ck_abort_msg("there is no area");
}

static void do_copies(int status)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(sh.core, sh.now, id, status));
		sh_settle();
	}
}

static void setup_of(u32 extents)
{
	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	sh_config(extents);
	sh.cfg.host_bytes = 64 * SLOT;
	sh.cfg.swappiness = 200;
	sh_start();
	cl = sh_attach(1, "d");
}

static void setup(void)
{
	setup_of(EXTENTS);
}

static void setup_large(void)
{
	setup_of(LARGE);
}

static void teardown(void)
{
	sh_die(cl);
	sh_quiet(cl);
	do_copies(-EIO);
	sh_stop();
}

static void fails(u32 how)
{
	SH_CORE(core_device_failed(sh.core, sh.now, 0, how));
	sh_settle();
	ck_assert_uint_eq(sh_pool().device, how);
	ck_assert_uint_eq(sh_count(CORE_EV_device_fail), 1);
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

/* A sequence of @nr full blocks that it shares with no other. */
static u64 ready(u32 nr, u32 seed)
{
	u64 seq = sh_ready(cl, nr * SH_BT, SH_BT, seed);

	sh_compute(cl, seq, 0, nr * SH_BT, seed);
	return seq;
}

static u64 swapped(u32 nr, u32 seed)
{
	u64 seq = ready(nr, seed);

	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
	do_copies(0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	return seq;
}

/* Drop the cache, so that blocks that come back are copied. */
static void drop_caches(void)
{
	SH_CORE(ck_assert_int_ge(core_drop_caches(sh.core, sh.now,
				 sh.cl[cl].info.domain, 1000), 0));
	sh_settle();
}

static u64 poison(void)
{
	return sh_pool().poison / SH_BLOCK;
}

static u64 host_poison(void)
{
	struct core_tier_view v;

	ck_assert_int_eq(core_get_tier(sh.core, CORE_POOL_HOST, &v), 0);
	return v.poison / SLOT;
}

/* The client's events of this type for the sequence, since event @from. */
static u32 told(u32 type, u64 seq, u32 from)
{
	u32 i, n = 0;

	for (i = from; i != sh.cl[cl].ctl.event_tail; i++)
		n += sh.cl[cl].events[i % SH_EVENTS].type == type &&
		     sh.cl[cl].events[i % SH_EVENTS].seq == seq;
	return n;
}

/* ---- cut ---- */

/* Targets of copies are poisoned; sequences that need them are recomputed. */
START_TEST(test_cut_targets)
{
	u64 in = swapped(3, 1), out, kept = ready(2, 5000);

	drop_caches();
	ck_assert_int_eq(advise(in, KVMM_ADV_WILLNEED), 0);
	ck_assert_uint_eq(nr_copies, 3);
	/* One of the three copies ends before the device fails. */
	SH_CORE(core_copy_done(sh.core, sh.now, copies[--nr_copies].id, 0));
	sh_settle();
	out = ready(2, 9000);
	ck_assert_int_eq(advise(out, KVMM_ADV_PAGEOUT), 0);
	ck_assert_uint_eq(nr_copies, 4);
	fails(CORE_DEVICE_CUT);
	ck_assert_uint_eq(poison(), 0);
	/* Another one ended well, which the core did not know yet. */
	SH_CORE(core_copy_done(sh.core, sh.now, copies[0].id, 0));
	sh_settle();
	copies[0] = copies[--nr_copies];
	do_copies(-EIO);
	ck_assert_uint_eq(sh_state(cl, in), KVMM_SEQ_RECOMPUTE);
	/* The loss of a block shows when the sequence is to come back. */
	ck_assert_int_eq(advise(out, KVMM_ADV_WILLNEED), 0);
	do_copies(-EIO);
	ck_assert_uint_eq(sh_state(cl, out), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(poison(), 1);
	ck_assert_uint_eq(host_poison(), 2);
	/* A sequence that needs no copy continues, and grows. */
	ck_assert_uint_eq(sh_state(cl, kept), KVMM_SEQ_READY);
	sh_compute(cl, kept, 2 * SH_BT, 2 * SH_BT + 1, 5000);
	/* The sequence is computed again, in blocks of known content. */
	ck_assert_int_eq(sh_match(cl, in, 3 * SH_BT, 1), 0);
	ck_assert_uint_eq(sh_state(cl, in), KVMM_SEQ_READY);
	sh_compute(cl, in, sh_status(cl, in)->valid_len, 3 * SH_BT, 1);
	ck_assert_uint_eq(poison(), 1);
	ck_assert_uint_eq(nr_copies, 0);
}
END_TEST

/* A copy that fails by itself costs only the blocks that it was to bring. */
START_TEST(test_one_copy)
{
	u64 seq = swapped(3, 1);

	drop_caches();
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	do_copies(-EIO);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(poison() + host_poison(), 0);
	ck_assert_int_eq(sh_match(cl, seq, 3 * SH_BT, 1), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/* The device gets no order; a sequence that can never fit is told so. */
START_TEST(test_cut_keeps)
{
	struct kvmm_open_arg a = { .prompt_len = 40 * SH_BT, .max_tokens = 1 };
	struct kvmm_attach_req req = sh_attach_req("other");
	u64 first = ready(20, 1), waits, small, seq;
	u32 creates;

	/* 5 spans of 4 blocks exist; this sequence has to wait for memory. */
	sh_manual_make = true;
	waits = sh_open(cl, 40 * SH_BT, 1);
	ck_assert_int_eq(sh_match(cl, waits, 40 * SH_BT, 7000), 0);
	ck_assert_uint_eq(sh_state(cl, waits), KVMM_SEQ_WAITING);
	fails(CORE_DEVICE_CUT);
	for (creates = 0; creates < EXTENTS; creates++)
		if (sh.creating[creates])
			sh_made(creates, -EIO);
	sh_settle();
	ck_assert_uint_eq(sh_state(cl, waits), KVMM_SEQ_FAILED);
	ck_assert_int_eq(sh_status(cl, waits)->reason, -EDQUOT);
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), -E2BIG);
	creates = sh.nr_creates;
	/* A sequence that fits once the first one is closed. */
	small = sh_open(cl, 10 * SH_BT, 1);
	ck_assert_int_eq(sh_match(cl, small, 10 * SH_BT, 90000), 0);
	ck_assert_int_eq(sh_close(cl, first), 0);
	sh_tick(20);
	ck_assert_uint_eq(sh_state(cl, small), KVMM_SEQ_READY);
	sh_compute(cl, small, 0, 10 * SH_BT, 90000);
	ck_assert_int_eq(sh_attach_as(1, &req), -ENODEV);
	for (seq = 0; seq < 300; seq++)
		sh_tick(50);
	ck_assert_uint_eq(sh.nr_creates, creates);
	ck_assert_uint_eq(sh.nr_releases, 0);
	ck_assert_uint_eq(nr_copies, 0);
}
END_TEST

/* A block that moves: its new place is unknown, its old one unchanged. */
START_TEST(test_cut_move)
{
	u64 seq[4];
	u32 i;

	/* Three of four sequences are closed: the rest is worth moving. */
	for (i = 0; i < 4; i++)
		seq[i] = ready(6, 1000 * (i + 1));
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(sh_close(cl, seq[i]), 0);
	drop_caches();
	SH_CORE(ck_assert_int_eq(core_pool_resize(sh.core, sh.now, 0,
						  3 * SH_EXTENT), 0));
	for (i = 0; i < 100 && !nr_copies; i++)
		sh_tick(50);
	ck_assert_uint_gt(nr_copies, 0);
	ck_assert(copies[0].within);
	i = nr_copies;
	fails(CORE_DEVICE_CUT);
	do_copies(-EIO);
	ck_assert_uint_eq(poison(), i);
	for (i = 0; i < 10; i++)
		sh_tick(10);
	ck_assert_uint_eq(nr_copies, 0);
	/* A block that cannot move is taken, and computed where there is room. */
	ck_assert_uint_eq(sh_state(cl, seq[3]), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_match(cl, seq[3], 6 * SH_BT, 4000), 0);
	for (i = 0; i < 10; i++)
		sh_tick(10);
	ck_assert_uint_eq(sh_state(cl, seq[3]), KVMM_SEQ_READY);
	sh_compute(cl, seq[3], sh_status(cl, seq[3])->valid_len, 6 * SH_BT,
		   4000);
}
END_TEST

/* ---- device lost ---- */

/* A sequence in every state is told, one in an open step when the step ends. */
START_TEST(test_lost)
{
	u64 open, idle, waits, out, back, made, again, seq;
	struct kvmm_open_arg a = { .prompt_len = 1, .max_tokens = 1 };
	u32 from = 0, i;

	out = swapped(2, 1);
	back = swapped(2, 2000);
	drop_caches();
	ck_assert_int_eq(advise(back, KVMM_ADV_WILLNEED), 0);
	ck_assert_uint_eq(sh_state(cl, back), KVMM_SEQ_RESTORING);
	idle = ready(4, 4000);
	ck_assert_int_eq(sh_close(cl, ready(3, 6000)), 0);	/* cached */
	open = sh_ready(cl, 2 * SH_BT, SH_BT, 8000);
	ck_assert_int_eq(sh_begin(cl, open, 0, 2 * SH_BT), 0);
	made = sh_open(cl, 3, 1);
	waits = sh_open(cl, 60 * SH_BT, 1);
	ck_assert_int_eq(sh_match(cl, waits, 60 * SH_BT, 20000), 0);
	from = sh.cl[cl].ctl.event_tail;
	fails(CORE_DEVICE_LOST);
	for (i = 0; i < 5; i++) {
		const u64 all[] = { idle, waits, out, back, made };

		ck_assert_uint_eq(sh_state(cl, all[i]), KVMM_SEQ_FAILED);
		ck_assert_int_eq(sh_status(cl, all[i])->reason, -ENODEV);
		ck_assert_uint_eq(told(KVMM_EV_POISONED, all[i], from), 1);
	}
	ck_assert_uint_eq(sh_state(cl, open), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(sh_pool().free, 0);
	ck_assert_uint_eq(sh_pool().cached, 0);
	/* The end of the step is accepted, without effect. */
	ck_assert_int_eq(sh_end(cl, open, 0, 2 * SH_BT, 8000), 0);
	ck_assert_uint_eq(sh_state(cl, open), KVMM_SEQ_FAILED);
	ck_assert_uint_eq(told(KVMM_EV_POISONED, open, from), 1);
	do_copies(-EIO);
	ck_assert_uint_eq(poison(), sh_domain(cl).nr_spans * SH_PER);
	/* No request is granted any more. */
	ck_assert_int_eq(sh_open_as(cl, &a, &again), -ENODEV);
	ck_assert_int_eq(sh_close(cl, idle), 0);
	for (seq = 0; seq < 100; seq++)
		sh_tick(50);
	ck_assert_uint_eq(nr_copies, 0);
	ck_assert_uint_eq(poison(), sh_domain(cl).nr_spans * SH_PER);
}
END_TEST

/* A copy that ended well after the failure brings no block of known content. */
START_TEST(test_lost_copied)
{
	u64 back = swapped(3, 1), out = ready(2, 5000);

	drop_caches();
	ck_assert_int_eq(advise(back, KVMM_ADV_WILLNEED), 0);
	ck_assert_int_eq(advise(out, KVMM_ADV_PAGEOUT), 0);
	ck_assert_uint_eq(nr_copies, 5);
	fails(CORE_DEVICE_LOST);
	do_copies(0);
	ck_assert_uint_eq(sh_pool().cached, 0);
	ck_assert_uint_eq(sh_pool().free, 0);
	ck_assert_uint_eq(poison(), sh_domain(cl).nr_spans * SH_PER);
}
END_TEST

/* Table pages reserved for a prompt are returned to its client at once. */
START_TEST(test_lost_promise)
{
	const u32 nr = KVMM_TABLE_ENTRIES + 4;
	u64 open = sh_ready(cl, nr * SH_BT, SH_BT, 1);

	ck_assert_int_eq(sh_begin(cl, open, 0, SH_BT), 0);
	ck_assert_uint_gt(sh.core->clients[cl].promised, 0);
	fails(CORE_DEVICE_LOST);
	ck_assert_uint_eq(sh_state(cl, open), KVMM_SEQ_MARKED);
	ck_assert_uint_eq(sh.core->clients[cl].promised, 0);
}
END_TEST

/* Blocks that a step reads, or a dead client may write, are poisoned at the end. */
START_TEST(test_lost_late)
{
	u64 parent = ready(2, 1), child;

	sh_compute(cl, parent, 2 * SH_BT, 2 * SH_BT + 1, 1);
	ck_assert_int_eq(sh_fork(cl, parent, 1, &child), 0);
	/* The step copies the tail from a block that the parent releases. */
	ck_assert_int_eq(sh_begin(cl, child, 2 * SH_BT + 1, 1), 0);
	ck_assert_int_eq(sh_close(cl, parent), 0);
	sh_die(cl);
	ck_assert_uint_gt(sh_pool().quarantine, 0);
	fails(CORE_DEVICE_LOST);
	ck_assert_uint_gt(sh_pool().quarantine, 0);
	SH_CORE(core_client_quiet(sh.core, sh.now, cl));
	sh_settle();
	ck_assert_uint_eq(sh_pool().quarantine, 0);
	ck_assert_uint_eq(sh_pool().free, 0);
	ck_assert_uint_gt(poison(), 0);
}
END_TEST

/* ---- the next core in the arena ---- */

static int adopt(struct core_report *r)
{
	memset(sh.core, 0xa5, core_struct_size());
	memset(sh.creating, 0, sizeof(sh.creating));
	nr_copies = 0;
	return core_adopt(sh.core, sh.arena, core_arena_size(&sh.cfg), &sh.cfg,
			  &sh_ops, NULL, sh.now, r);
}

/* Blocks that a copy was filling are no capacity. */
START_TEST(test_cut_counts_bad_blocks)
{
	u64 in = swapped(3, 1);
	u32 spans;

	drop_caches();
	ck_assert_int_eq(advise(in, KVMM_ADV_WILLNEED), 0);
	ck_assert_uint_eq(nr_copies, 3);
	spans = sh_domain(cl).nr_spans + (u32)sh_pool().nr_free_extents -
		(EXTENTS - sh.nr_creates);
	fails(CORE_DEVICE_CUT);
	ck_assert_uint_eq(sh.core->domains[0].kept, spans * SH_PER - 3);
}
END_TEST

/* The next core has a working device and no copy under way. */
START_TEST(test_cut_adopted)
{
	struct core_report r;
	u64 in = swapped(3, 1);

	drop_caches();
	ck_assert_int_eq(advise(in, KVMM_ADV_WILLNEED), 0);
	fails(CORE_DEVICE_CUT);
	do_copies(-EIO);
	ck_assert_uint_eq(poison(), 3);
	ck_assert_msg(adopt(&r) == CORE_ADOPT_WHOLE, "%s", r.text);
	sh_check();
	sh_tick(20);
	ck_assert_uint_eq(sh_pool().device, CORE_DEVICE_WORKS);
	ck_assert_uint_eq(poison(), 0);
	ck_assert_int_ge(sh_attach(1, "d"), 0);
}
END_TEST

/* Memory that could not be made is asked for no earlier because of an adoption. */
START_TEST(test_pause_outlives_adoption)
{
	struct core_report r;
	u64 seq;
	u32 e, nr;

	sh_manual_make = true;
	seq = sh_open(cl, 3 * SH_BT, 0);
	ck_assert_int_eq(sh_match(cl, seq, 3 * SH_BT, 1), 0);
	for (e = 0; !sh.creating[e]; e++)
		;
	sh_made(e, -ENOMEM);
	nr = sh.nr_creates;
	sh.core->head->clean_after = sh.now + 1000 * MS;
	ck_assert_msg(adopt(&r) == CORE_ADOPT_WHOLE, "%s", r.text);
	sh_tick(999);
	ck_assert_uint_eq(sh.nr_creates, nr);
	ck_assert_uint_eq(sh.core->head->clean_after, sh.now + MS);
	sh_tick(1);
	ck_assert_uint_eq(sh.nr_creates, nr + 1);
}
END_TEST

START_TEST(test_lost_not_adopted)
{
	struct core_report r;

	ready(3, 1);
	fails(CORE_DEVICE_LOST);
	ck_assert_int_eq(adopt(&r), -EUCLEAN);
	ck_assert_msg(strstr(r.text, "what the device held is lost"), "%s",
		      r.text);
	free(sh.core);
	sh.core = NULL;
	free(sh.arena);
}
END_TEST

static void setup_kept(void)
{
	setup();
}

static void teardown_kept(void)
{
	if (sh.core)
		sh_stop();
}

int main(void)
{
	Suite *s = suite_create("core-device");
	TCase *tc = tcase_create("failed");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_cut_targets);
	tcase_add_test(tc, test_one_copy);
	tcase_add_test(tc, test_cut_keeps);
	tcase_add_test(tc, test_cut_move);
	tcase_add_test(tc, test_lost);
	tcase_add_test(tc, test_lost_copied);
	suite_add_tcase(s, tc);

	tc = tcase_create("large");
	tcase_add_checked_fixture(tc, setup_large, teardown);
	tcase_add_test(tc, test_lost_promise);
	suite_add_tcase(s, tc);
	tc = tcase_create("next");
	tcase_add_checked_fixture(tc, setup_kept, teardown_kept);
	tcase_add_test(tc, test_lost_late);
	tcase_add_test(tc, test_cut_counts_bad_blocks);
	tcase_add_test(tc, test_cut_adopted);
	tcase_add_test(tc, test_pause_outlives_adoption);
	tcase_add_test(tc, test_lost_not_adopted);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
