// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_trim.c - TRUNCATE and TRIM
 *
 * Refusals that change nothing, lengths and tables after them, and TRIMs that wait
 * for open steps.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define POOL	16u	/* blocks */

static struct core *c;
static u32 cl;

static void setup(void)
{
	sh_config(POOL / SH_PER);
	sh.cfg.starve_ns = 3600000 * MS;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	sh_warm(cl);
}

static void teardown(void)
{
	sh_stop();
}

static u64 runs(u32 tokens, u32 more)
{
	u64 seq = sh_ready(cl, tokens, more, 7);

	sh_compute(cl, seq, 0, tokens, 7);
	return seq;
}

/* Send TRUNCATE or TRIM; the answer has the valid length @valid. */
static int verb(u16 op, u64 seq, u32 len, u32 resv, u32 valid)
{
	const struct kvmm_seq_res *res = (const void *)sh.results;
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;
	int err;

	*a = (struct kvmm_len_arg){ .seq = seq, .len = len, .resv = resv };
	ck_assert_int_eq(sh_submit(cl, op, 1, 0, sizeof(*a)), 0);
	err = res->status;
	ck_assert_uint_eq(res->valid_len, valid);
	sh_settle();
	return err;
}

#define truncate_to(...)	verb(KVMM_OP_SEQ_TRUNCATE, __VA_ARGS__)
#define trim(...)		verb(KVMM_OP_SEQ_TRIM, __VA_ARGS__)

static const struct kv_seq *record(u64 seq)
{
	return seq_find(c, cl, seq);
}

START_TEST(test_truncate_refused)
{
	u64 seq = runs(40, 24), waits = sh_open(cl, 4, 0);

	ck_assert_int_eq(truncate_to(seq, 20, 1, 40), -EINVAL);
	ck_assert_int_eq(truncate_to(seq, 41, 0, 40), -EINVAL);
	ck_assert_int_eq(truncate_to(waits, 0, 0, 0), -ESTALE);
	ck_assert_int_eq(truncate_to(seq + 1, 0, 0, 0), -ENOENT);
	ck_assert_int_eq(sh_begin(cl, seq, 40, 1), 0);
	ck_assert_int_eq(truncate_to(seq, 20, 0, 40), -EBUSY);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_int_eq(trim(seq, 20, 0, 40), 0);
	ck_assert_int_eq(truncate_to(seq, 15, 0, 40), -EINVAL);
	ck_assert_uint_eq(sh_count(CORE_EV_seq_truncate), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 40);
	ck_assert_int_eq(truncate_to(seq, 40, 0, 40), 0);
	ck_assert_int_eq(truncate_to(seq, 16, 0, 16), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_seq_truncate), 2);
}
END_TEST

/* Blocks beyond the new length go; the last one is copied before it is written. */
START_TEST(test_truncate_into_sealed_block)
{
	const struct kvmm_begin_res *res = (const void *)sh.results;
	u64 seq = runs(40, 24);
	u32 entry = sh_table(cl, seq, 1);

	ck_assert_int_eq(truncate_to(seq, 20, 0, 20), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 20);
	ck_assert_uint_eq(record(seq)->tab.nr_blocks, 2);
	ck_assert_uint_eq(record(seq)->cover, 20);
	ck_assert_uint_eq(sh_table(cl, seq, 1), entry);
	ck_assert_uint_eq(sh_table(cl, seq, 2), KVMM_NO_INDEX);
	ck_assert_int_eq(sh_begin(cl, seq, 20, 1), 0);
	ck_assert_uint_eq(res->copy_from, entry);
	ck_assert_uint_eq(res->copy_tokens, 4);
	ck_assert_uint_ne(sh_table(cl, seq, 1), entry);
	ck_assert_int_eq(sh_end(cl, seq, 20, 21, 9), 0);
}
END_TEST

/* Tokens that are computed after a truncation are new, not computed again. */
START_TEST(test_truncate_of_lost_tokens)
{
	u64 seq = runs(40, 24);

	family_mark(c, &c->seqs[KVMM_SEQ_INDEX(seq)], CORE_CAUSE_grow, NULL);
	ck_assert_int_eq(sh_match(cl, seq, 40, 7), 0);
	ck_assert_uint_eq(record(seq)->lost_len, 40);
	sh_compute(cl, seq, sh_status(cl, seq)->valid_len, 40, 7);
	ck_assert_int_eq(truncate_to(seq, 30, 0, 30), 0);
	ck_assert_uint_eq(record(seq)->lost_len, 30);
	sh_compute(cl, seq, 30, 36, 9);
	ck_assert_int_eq(truncate_to(seq, 35, 0, 35), 0);
	ck_assert_uint_eq(record(seq)->lost_len, 30);
}
END_TEST

START_TEST(test_trim_refused)
{
	u64 seq = runs(40, 24), waits = sh_open(cl, 4, 0);

	ck_assert_int_eq(trim(seq, 20, 1, 40), -EINVAL);
	ck_assert_int_eq(trim(seq, 41, 0, 40), -EINVAL);
	ck_assert_int_eq(trim(waits, 0, 0, 0), -ESTALE);
	ck_assert_uint_eq(sh_count(CORE_EV_seq_trim), 0);
	/* Less than a block, or than before, is accepted and changes nothing. */
	ck_assert_int_eq(trim(seq, 15, 0, 40), 0);
	ck_assert_uint_eq(record(seq)->tab.trimmed, 0);
	ck_assert_int_eq(trim(seq, 40, 0, 40), 0);
	ck_assert_uint_eq(record(seq)->tab.trimmed, 2);
	ck_assert_int_eq(trim(seq, 16, 0, 40), 0);
	ck_assert_uint_eq(record(seq)->tab.trimmed, 2);
	ck_assert_uint_eq(sh_count(CORE_EV_seq_trim), 3);
	ck_assert_uint_eq(sh_count(CORE_EV_pgtrim), 2);
	ck_assert_uint_eq(sh_table(cl, seq, 0), KVMM_NO_INDEX);
	ck_assert_uint_eq(sh_table(cl, seq, 1), KVMM_NO_INDEX);
	ck_assert_uint_ne(sh_table(cl, seq, 2), KVMM_NO_INDEX);
}
END_TEST

/*
 * Each TRIM waits for the steps that were open when it came.  The second one is
 * kept apart, and a third replaces it.
 */
START_TEST(test_trims_in_overlapping_steps)
{
	u64 seq = runs(4 * SH_BT, 3 * SH_BT), first;
	u32 at = 4 * SH_BT;

	ck_assert_int_eq(sh_begin(cl, seq, at, 1), 0);
	first = sh.cl[cl].step;
	ck_assert_int_eq(trim(seq, SH_BT, 0, at), 0);
	ck_assert_uint_eq(record(seq)->tab.trimmed, 0);
	ck_assert_int_eq(sh_begin(cl, seq, at + 1, 1), 0);
	ck_assert_int_eq(trim(seq, 2 * SH_BT, 0, at), 0);
	ck_assert_int_eq(sh_begin(cl, seq, at + 2, 1), 0);
	ck_assert_int_eq(trim(seq, 3 * SH_BT, 0, at), 0);
	ck_assert_int_eq(trim(seq, 2 * SH_BT, 0, at), 0);
	ck_assert_uint_eq(record(seq)->tab.trim_more, 3);
	ck_assert_int_eq(sh_end_step(cl, first, seq, at, at + 1, 7), 0);
	ck_assert_uint_eq(record(seq)->tab.trimmed, 1);
	ck_assert_uint_eq(record(seq)->tab.trim_want, 3);
	ck_assert_uint_eq(record(seq)->tab.trim_more, 0);
	ck_assert_int_eq(sh_end_step(cl, first + 1, seq, at + 1, at + 2, 7), 0);
	ck_assert_uint_eq(record(seq)->tab.trimmed, 1);
	ck_assert_int_eq(sh_end_step(cl, first + 2, seq, at + 2, at + 3, 7), 0);
	ck_assert_uint_eq(record(seq)->tab.trimmed, 3);
	ck_assert_uint_eq(sh_count(CORE_EV_pgtrim), 3);
}
END_TEST

/* A block that is sealed after a TRIM follows the trimmed ones by its name. */
START_TEST(test_name_after_trim)
{
	u64 seq = runs(2 * SH_BT, 3 * SH_BT), next;

	ck_assert_int_eq(trim(seq, 2 * SH_BT, 0, 2 * SH_BT), 0);
	sh_compute(cl, seq, 2 * SH_BT, 3 * SH_BT, 7);
	next = sh_ready(cl, 3 * SH_BT + 1, 0, 7);
	ck_assert_uint_eq(sh_status(cl, next)->cached_len, 3 * SH_BT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_trim");
	TCase *tc = tcase_create("trim");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_truncate_refused);
	tcase_add_test(tc, test_truncate_into_sealed_block);
	tcase_add_test(tc, test_truncate_of_lost_tokens);
	tcase_add_test(tc, test_trim_refused);
	tcase_add_test(tc, test_trims_in_overlapping_steps);
	tcase_add_test(tc, test_name_after_trim);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
