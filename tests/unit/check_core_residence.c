// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_residence.c - how long a sequence that came back has its memory
 *
 * A sequence lost its memory and has it again.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define POOL	16u			/* blocks */
#define SLOT	(2 * SH_EXTENT)
#define STARVE	50u			/* ms */
#define MOST	64u

static struct core *c;
static struct core_copy copies[MOST];
static u32 nr_copies, cl;

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
}

static void setup_recompute(void)
{
	start(0);
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
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_residence");
	TCase *tc = tcase_create("recompute");

	tcase_add_checked_fixture(tc, setup_recompute, teardown);
	tcase_add_loop_test(tc, test_a_second_loss_is_no_shorter_way, 0, 2);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
