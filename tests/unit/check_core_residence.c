// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_residence.c - how long a sequence that came back has its memory
 *
 * A sequence of one domain lost its memory and has it again.  A sequence of another
 * domain of the tenant waits, and takes the memory when it may.
 */
#include "kvmm/core/node/node.h"
#include "kvmm/core/reclaim/reclaim.h"
#include "tests/unit/core_shell.h"

#define POOL	16u			/* blocks */
#define SLOT	(2 * SH_EXTENT)
#define STARVE	50u			/* ms */
#define LEN	(POOL * SH_BT - 24)	/* tokens: the sequence has two blocks for more */
#define MOST	64u

static struct core *c;
static struct core_copy copies[MOST];
static u32 nr_copies, cl, other;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MOST);
	copies[nr_copies++] = *cp;
}

static void copy_done(u32 i)
{
	u64 id = copies[i].id;

	copies[i] = copies[--nr_copies];
	SH_CORE(core_copy_done(c, sh.now, id, 0));
	sh_settle();
}

static void copies_done(void)
{
	while (nr_copies)
		copy_done(0);
}

/* The copies out of the device end, those into it do not. */
static void copies_out_done(void)
{
	u32 i = 0;

	while (i < nr_copies)
		if (copies[i].to_host)
			copy_done(i);
		else
			i++;
}

static void start(u32 swappiness)
{
	nr_copies = 0;
	sh_on_copy = on_copy;
	sh_config(POOL / SH_PER);
	sh.cfg.host_bytes = 4 * POOL * SLOT;
	sh.cfg.swappiness = swappiness;
	sh.cfg.starve_ns = STARVE * MS;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
	other = sh_attach(1, "b");
}

static void setup_recompute(void)
{
	start(0);
}

static void setup_swap(void)
{
	start(200);
}

static void teardown(void)
{
	copies_done();
	sh_stop();
}

/* A sequence of @client that computed its prompt; nothing of it is ever cached. */
static u64 runs(u32 client, u32 tokens, u32 more)
{
	struct kvmm_open_arg a = {
		.prompt_len = tokens, .max_tokens = more,
		.flags = KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH,
	};
	u64 seq;

	ck_assert_int_eq(sh_open_as(client, &a, &seq), 0);
	ck_assert_int_eq(sh_match(client, seq, tokens, 7), 0);
	sh_compute(client, seq, 0, tokens, 7);
	return seq;
}

static struct kv_seq *record(u64 seq)
{
	return seq_find(c, cl, seq);
}

/* The sequence loses its memory, and its client matches it again if it must. */
static void loses(u64 seq, u32 tokens)
{
	SH_CORE(family_mark(c, record(seq), CORE_CAUSE_grow, NULL));
	sh_settle();
	copies_done();
	if (sh_state(cl, seq) == KVMM_SEQ_RECOMPUTE)
		ck_assert_int_eq(sh_match(cl, seq, tokens, 7), 0);
	copies_done();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}

/* A sequence of the other domain waits for half of the pool. */
static u64 waits(void)
{
	u64 seq = sh_open(other, POOL / 2 * SH_BT, 0);

	ck_assert_int_eq(sh_match(other, seq, POOL / 2 * SH_BT, 90000), 0);
	ck_assert_uint_eq(sh_state(other, seq), KVMM_SEQ_WAITING);
	return seq;
}

/* It has its memory for @ms more, and not longer. */
static void stays(u64 seq, u32 ms, u32 state)
{
	sh_tick(ms - 1);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_tick(1);
	ck_assert_uint_eq(sh_state(cl, seq), state);
}

/*
 * A loss on the way back does not shorten the way: of two such sequences each would lose
 * a little less each time, and get no further than before.
 */
START_TEST(test_a_second_loss_is_no_shorter_way)
{
	u64 seq = runs(cl, 3 * SH_BT, SH_BT);
	struct kv_seq *s = record(seq);

	loses(seq, 3 * SH_BT);
	ck_assert_uint_eq(s->lost_len, 3 * SH_BT);
	sh_compute(cl, seq, 0, 8, 7);
	if (_i)
		ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_swappiness, 200), 0);
	loses(seq, 3 * SH_BT);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_swap), _i ? 1 : 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, _i ? 8 : 0);
	ck_assert_uint_eq(s->lost_len, 3 * SH_BT);
	sh_compute(cl, seq, _i ? 8 : 0, 3 * SH_BT, 7);
	ck_assert_uint_eq(s->back, 0);
	sh_compute(cl, seq, 3 * SH_BT, 3 * SH_BT + 1, 7);
	ck_assert_uint_eq(s->back, sh.now);
}
END_TEST

/* Its blocks were copied in for four times starve_ns: it has as long from then on. */
START_TEST(test_as_long_as_it_was_filled)
{
	u64 seq = runs(cl, LEN, 8);

	sh_tick(STARVE);
	SH_CORE(family_mark(c, record(seq), CORE_CAUSE_grow, NULL));
	sh_settle();
	copies_out_done();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	ck_assert_uint_gt(nr_copies, 0);
	(void)waits();
	sh_tick(4 * STARVE);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	copies_done();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	sh_compute(cl, seq, LEN, LEN + 1, 7);
	stays(seq, 4 * STARVE, KVMM_SEQ_SWAPPED);
}
END_TEST

/* It computed for three times starve_ns what it had lost: it has as long from then on. */
START_TEST(test_as_long_as_it_computed_again)
{
	u64 seq = runs(cl, LEN, 8);

	loses(seq, LEN);
	(void)waits();
	sh_tick(STARVE);
	sh_compute(cl, seq, 0, LEN, 7);
	sh_tick(2 * STARVE);
	sh_compute(cl, seq, LEN, LEN + 1, 7);
	stays(seq, 3 * STARVE, KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* One that never gets so far has eight times starve_ns, one that was quick has it once. */
START_TEST(test_slow_and_quick)
{
	u64 seq = runs(cl, LEN, 8);

	loses(seq, LEN);
	(void)waits();
	if (_i)
		sh_compute(cl, seq, 0, LEN + 1, 7);
	stays(seq, (_i ? 1 : 8) * STARVE, KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* A child has been there for as long as its parent. */
START_TEST(test_child)
{
	u64 seq = runs(cl, LEN, 8), kid;

	sh_tick(STARVE / 2);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	(void)waits();
	stays(kid, STARVE, KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* A client cannot get more time by computing the same tokens again and again. */
START_TEST(test_truncated)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;
	u64 seq = runs(cl, LEN, 8);

	loses(seq, LEN);
	(void)waits();
	sh_compute(cl, seq, 0, LEN + 1, 7);
	sh_tick(STARVE - 1);
	*a = (struct kvmm_len_arg){ .seq = seq, .len = LEN };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_TRUNCATE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_compute(cl, seq, LEN, LEN + 1, 7);
	stays(seq, 1, KVMM_SEQ_RECOMPUTE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_residence");
	TCase *tc = tcase_create("recompute"), *swap = tcase_create("swap");

	tcase_add_checked_fixture(tc, setup_recompute, teardown);
	tcase_add_loop_test(tc, test_a_second_loss_is_no_shorter_way, 0, 2);
	tcase_add_test(tc, test_as_long_as_it_computed_again);
	tcase_add_loop_test(tc, test_slow_and_quick, 0, 2);
	tcase_add_test(tc, test_child);
	tcase_add_test(tc, test_truncated);
	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(swap, setup_swap, teardown);
	tcase_add_test(swap, test_as_long_as_it_was_filled);
	suite_add_tcase(s, swap);
	return sh_run(s);
}
