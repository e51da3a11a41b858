// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_settle.c - a request that cannot be met leaves things as they are
 *
 * A pool of four extents, 16 small blocks.  Domain "small" holds all of them and may
 * lose half of them; domain "large" has blocks of two extents, so it needs a pair.
 * Each pair has one extent of blocks that begin a prompt and one of blocks that go on
 * with the other prompt.  To evict the beginning of a prompt is to evict all of it, which
 * memory.min forbids: no pair can be had.  Later events of the same instant must
 * change nothing.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define POOL		4u	/* extents */
#define SLOT		(2 * SH_EXTENT)
#define MAX_COPIES	64u

static u64 copies[MAX_COPIES];
static u32 nr_copies, small;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MAX_COPIES);
	copies[nr_copies++] = cp->id;
}

static void do_copies(void)
{
	while (nr_copies) {
		SH_CORE(core_copy_done(sh.core, sh.now, copies[--nr_copies], 0));
		sh_settle();
	}
}

static u32 attach(const char *name, u64 min, u32 bytes)
{
	struct kvmm_attach_req req = sh_attach_req(name);
	int id;

	req.group[0].k_bytes = bytes;
	req.group[0].v_bytes = bytes;
	req.limits[0].min = min;
	id = sh_attach_as(1, &req);
	ck_assert_int_ge(id, 0);
	sh_settle();
	return (u32)id;
}

static void setup(void)
{
	sh_on_copy = on_copy;
	nr_copies = 0;
	sh_config(POOL);
	sh.cfg.host_bytes = 16 * SLOT;
	sh.cfg.swappiness = 200;
	sh.cfg.watermark_scale_factor = 0;
	sh_start();
	small = attach("small", 8 * SH_BLOCK, 32);
}

static void teardown(void)
{
	sh_stop();
}

/* A resident sequence of @blocks full blocks. */
static u64 resident(u32 cl, u32 blocks, u32 seed)
{
	u64 seq = sh_ready(cl, blocks * SH_BT, SH_BT, seed);

	sh_compute(cl, seq, 0, blocks * SH_BT, seed);
	return seq;
}

/* A sequence of "large" that waits for one block. */
static u64 wants_large(u32 cl)
{
	u64 seq = sh_open(cl, SH_BT, 0);

	ck_assert_int_eq(sh_match(cl, seq, SH_BT, 9000), 0);
	do_copies();
	return seq;
}

static void nop(u32 cl)
{
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_NOP, 0, 0, 0), 0);
	do_copies();
}

/* A sequence of two times @blocks blocks, of which the first half is computed. */
static u64 half(u32 blocks, u32 seed)
{
	u64 seq = sh_ready(small, blocks * SH_BT, blocks * SH_BT, seed);

	sh_compute(small, seq, 0, blocks * SH_BT, seed);
	return seq;
}

static void other_half(u64 seq, u32 blocks, u32 seed)
{
	sh_compute(small, seq, blocks * SH_BT, 2 * blocks * SH_BT, seed);
	ck_assert_int_eq(sh_close(small, seq), 0);
}

/*
 * Extents: begin of prompt a, rest of b, rest of a, begin of b.  @with: blocks that
 * the first extent holds already.
 */
static void fill(u32 with)
{
	struct kvmm_open_arg arg = { .prompt_len = 4 * SH_BT,
				     .flags = KVMM_OPEN_NO_INDEX };
	u64 a, b, hole;

	a = half(4 - with, 1000);
	ck_assert_int_eq(sh_open_as(small, &arg, &hole), 0);
	ck_assert_int_eq(sh_match(small, hole, 4 * SH_BT, 2000), 0);
	sh_compute(small, hole, 0, 4 * SH_BT, 2000);
	other_half(a, 4 - with, 1000);
	b = half(4, 3000);
	ck_assert_int_eq(sh_close(small, hole), 0);
	other_half(b, 4, 3000);
}

/*
 * A preempted sequence that its own memory.min restores at once is not preempted
 * again for another domain's memory.min before its residency is over.
 */
START_TEST(test_restored_is_left_alone)
{
	u64 seq, marks, victim;
	u32 large, i;

	victim = resident(small, 1, 0);
	fill(1);
	large = attach("large", 2 * SH_EXTENT, 256);
	seq = wants_large(large);
	ck_assert_uint_eq(sh_state(large, seq), KVMM_SEQ_WAITING);
	for (i = 0; i < 4; i++)
		nop(large);
	marks = sh_count(CORE_EV_preempt_min);
	ck_assert_uint_gt(marks, 0);
	for (i = 0; i < 8; i++)
		nop(large);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), marks);
	ck_assert_uint_eq(sh_state(small, victim), KVMM_SEQ_READY);
}
END_TEST

/* A sequence that was paged out and came back: it is spared for a while. */
static u64 spare_one(void)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	u64 seq = resident(small, 1, 2000);

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = KVMM_ADV_PAGEOUT };
	ck_assert_int_eq(sh_submit(small, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	do_copies();
	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = KVMM_ADV_WILLNEED };
	ck_assert_int_eq(sh_submit(small, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	do_copies();
	return seq;
}

/*
 * The best victim came back a moment ago, so it is spared, and the older sequence
 * behind it with it.  When the client closes the spared one, the older one is
 * preempted for memory.min at once.
 */
START_TEST(test_spared_victim_closes)
{
	u64 old, spared, seq;
	u32 whole;

	sh_stop();
	sh_start();
	small = attach("small", 0, 32);
	old = resident(small, 1, 1000);
	spared = spare_one();
	ck_assert_uint_eq(sh_state(small, spared), KVMM_SEQ_READY);

	whole = attach("whole", 4 * SH_EXTENT, 512);
	seq = wants_large(whole);
	ck_assert_uint_eq(sh_state(whole, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_state(small, old), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(small, spared), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), 0);
	ck_assert_int_eq(sh_close(small, spared), 0);
	do_copies();
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), 1);
}
END_TEST

/* The domain of a sequence within memory.min that waits for a spared victim. */
static struct kv_domain *promised_domain(u32 *whole, u64 *old)
{
	struct kv_domain *d;

	sh_stop();
	sh_start();
	small = attach("small", 0, 32);
	*old = resident(small, 1, 1000);
	(void)spare_one();
	*whole = attach("whole", 4 * SH_EXTENT, 512);
	(void)wants_large(*whole);
	d = &sh.core->domains[sh.cl[*whole].info.domain];
	ck_assert_uint_ne(d->stalled, 0);
	ck_assert_uint_eq(d->promised, 1);
	return d;
}

/* Only a tick ends the time for which a victim is spared: it has all domains tried. */
START_TEST(test_spared_until_a_tick)
{
	u32 whole;
	u64 old;
	struct kv_domain *d = promised_domain(&whole, &old);

	sh.now += 100 * sh.cfg.starve_ns;
	d->retry = 1;
	nop(whole);
	ck_assert_uint_eq(d->retry, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), 0);
	sh.core->head->ticked = sh.now;
	d->retry = 1;
	nop(whole);
	ck_assert_uint_ge(sh_count(CORE_EV_preempt_min), 1);
}
END_TEST

/*
 * A running sequence keeps a free block of its domain, which no longer counts as on
 * its way to a promise.  So a fork has the promised sequence tried again, in which
 * ->high_ask is written anew.
 */
START_TEST(test_fork_beside_a_promise)
{
	u32 whole;
	u64 old;
	struct kv_domain *d = promised_domain(&whole, &old);
	u64 kid;

	d->high_ask = 77;
	nop(small);
	ck_assert_uint_eq(d->high_ask, 77);
	ck_assert_int_eq(sh_fork(small, old, 1, &kid), 0);
	ck_assert_uint_lt(d->high_ask, 77);
}
END_TEST

/*
 * A waiting sequence within memory.min holds the other domains of its tenant back.
 * It does no longer when its domain has grown out of memory.min since it was tried.
 */
START_TEST(test_promise_ends_with_growth)
{
	u32 whole;
	u64 old;
	struct kv_domain *d = promised_domain(&whole, &old);

	d->emin = 0;
	nop(small);
	ck_assert_uint_eq(d->promised, 0);
	d->emin = 1;
}
END_TEST

static void set_max(u32 cl, u64 bytes)
{
	int err;

	SH_CORE(err = core_domain_set(sh.core, sh.now, sh.cl[cl].info.domain,
				      CORE_LIMIT_MAX, bytes));
	ck_assert_int_eq(err, 0);
	sh_settle();
}

/* A swapped sequence that a lower memory.max has no room for is failed, and told so. */
START_TEST(test_swapped_that_never_fits)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	u64 seq;

	sh_stop();
	sh.cfg.overcommit = CORE_OVERCOMMIT_NEVER;
	sh_start();
	small = attach("small", 0, 32);
	seq = resident(small, 8, 0);
	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = KVMM_ADV_PAGEOUT };
	ck_assert_int_eq(sh_submit(small, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	do_copies();
	ck_assert_uint_eq(sh_state(small, seq), KVMM_SEQ_SWAPPED);
	set_max(small, 4 * SH_BLOCK);
	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = KVMM_ADV_WILLNEED };
	ck_assert_int_eq(sh_submit(small, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	do_copies();
	ck_assert_uint_eq(sh_state(small, seq), KVMM_SEQ_FAILED);
	ck_assert_int_eq(sh_status(small, seq)->reason, -EDQUOT);
	ck_assert_uint_eq(sh_status(small, seq)->valid_len, 0);
	ck_assert_int_eq(sh_close(small, seq), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_settle");
	TCase *tc = tcase_create("settle");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_restored_is_left_alone);
	tcase_add_test(tc, test_spared_victim_closes);
	tcase_add_test(tc, test_spared_until_a_tick);
	tcase_add_test(tc, test_fork_beside_a_promise);
	tcase_add_test(tc, test_promise_ends_with_growth);
	tcase_add_test(tc, test_swapped_that_never_fits);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
