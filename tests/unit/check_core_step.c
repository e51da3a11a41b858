// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_step.c - grants, copy-on-write, speculation, rollback
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

static u32 cl;

static void setup(void)
{
	sh_config(8);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
}

static void teardown(void)
{
	sh_stop();
}

/* ---- counts for readers ---- */

static struct core_work work_of(u32 client)
{
	struct core_domain_view v;

	ck_assert_int_eq(core_get_domain(sh.core, sh.cl[client].info.domain,
					 &v), 0);
	return v.work;
}

/*
 * Tokens of the prompt are told from those behind it.  The prompt counts as the first
 * once, and its time is that since the sequence was opened.  The tokens of a fork are
 * output, and its parent's prompt is not counted again.
 */
START_TEST(test_tokens_are_counted)
{
	const struct core_work was = work_of(cl);
	u64 seq = sh_ready(cl, 20, 40, 0), kid;
	struct core_work w;

	sh_compute(cl, seq, 0, 12, 0);
	w = work_of(cl);
	ck_assert_uint_eq(w.prompt - was.prompt, 12);
	ck_assert_uint_eq(w.first - was.first, 0);
	sh.now += 7000000;
	sh_compute(cl, seq, 12, 20, 0);
	w = work_of(cl);
	ck_assert_uint_eq(w.prompt - was.prompt, 20);
	ck_assert_uint_eq(w.output - was.output, 0);
	ck_assert_uint_eq(w.first - was.first, 1);
	ck_assert_uint_ge(w.first_ns - was.first_ns, 7000000);
	sh_compute(cl, seq, 20, 23, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	sh_compute(cl, kid, 23, 25, 0);
	w = work_of(cl);
	ck_assert_uint_eq(w.prompt - was.prompt, 20);
	ck_assert_uint_eq(w.output - was.output, 5);
	ck_assert_uint_eq(w.first - was.first, 1);
}
END_TEST

/* ---- copy-on-write ---- */

/* Of four sharers of a tail in one STEP_BEGIN three copy, the last keeps it. */
START_TEST(test_sharers_in_one_step)
{
	u64 seq[4] = { sh_ready(cl, 20, 40, 0) };
	struct kvmm_begin_arg a[4];
	struct kvmm_begin_res res[4];
	u32 tail, i;

	sh_compute(cl, seq[0], 0, 20, 0);
	tail = sh_table(cl, seq[0], 1);
	ck_assert_int_eq(sh_fork(cl, seq[0], 3, seq + 1), 0);
	for (i = 0; i < 4; i++)
		a[i] = sh_entry(cl, seq[i], 20, 1);
	ck_assert_int_eq(sh_begin_all(cl, a, 4, res), 0);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(res[i].status, 0);
		ck_assert_uint_eq(res[i].copy_tokens, 4);
		ck_assert_uint_eq(res[i].copy_from, tail);
		ck_assert_uint_eq(res[i].copy_to, sh_table(cl, seq[i], 1));
		ck_assert_uint_ne(res[i].copy_to, tail);
		ck_assert_uint_eq(res[i].table_lo, 1);
	}
	ck_assert_int_eq(res[3].status, 0);
	ck_assert_uint_eq(res[3].copy_tokens, 0);
	ck_assert_uint_eq(res[3].table_lo, KVMM_NO_INDEX);
	ck_assert_uint_eq(sh_table(cl, seq[3], 1), tail);
	ck_assert_uint_eq(sh_count(CORE_EV_pgcow), 3);
	ck_assert_uint_eq(sh_count(CORE_EV_pgreuse), 1);
	ck_assert_uint_eq(sh_table(cl, seq[0], 0), sh_table(cl, seq[3], 0));
}
END_TEST

/*
 * A block behind the valid length is moved while a step is open, and given back when
 * the step ends: the next grant tells of no table entry that is gone.
 */
START_TEST(test_moved_block_that_is_gone)
{
	u64 seq = sh_ready(cl, 20, 80, 0);
	struct kvmm_begin_arg a;
	struct kvmm_begin_res res;

	ck_assert_int_eq(sh_begin(cl, seq, 0, 60), 0);
	sh.core->seqs[KVMM_SEQ_INDEX(seq)].tab.dirty = 3;
	ck_assert_int_eq(sh_end(cl, seq, 0, 20, 0), 0);
	a = sh_entry(cl, seq, 20, 1);
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	ck_assert_uint_eq(res.table_lo, KVMM_NO_INDEX);
}
END_TEST

/* The source of a copy is not reused before the step has ended. */
START_TEST(test_source_outlives_its_sharers)
{
	u64 a = sh_ready(cl, 20, 40, 0), b;
	u64 used;

	sh_compute(cl, a, 0, 20, 0);
	ck_assert_int_eq(sh_fork(cl, a, 1, &b), 0);
	ck_assert_int_eq(sh_begin(cl, b, 20, 1), 0);
	used = sh_pool().open;
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(sh_pool().open, used - SH_BLOCK);
	ck_assert_uint_eq(sh_pool().quiescing, SH_BLOCK);
	ck_assert_int_eq(sh_end(cl, b, 20, 21, 0), 0);
	ck_assert_uint_eq(sh_pool().quiescing, 0);
}
END_TEST

/* A tail that is private again is not copied a second time. */
START_TEST(test_copied_tail_is_private)
{
	u64 a = sh_ready(cl, 20, 40, 0), b;

	sh_compute(cl, a, 0, 20, 0);
	ck_assert_int_eq(sh_fork(cl, a, 1, &b), 0);
	ck_assert_int_eq(sh_begin(cl, a, 20, 1), 0);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_int_eq(sh_begin(cl, a, 20, 1), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgcow), 1);
	ck_assert_int_eq(sh_end(cl, a, 20, 21, 0), 0);
}
END_TEST

/* A full block is never written again: the sharer starts a new one. */
START_TEST(test_shared_full_block_is_not_copied)
{
	u64 a = sh_ready(cl, 16, 40, 0), b;

	sh_compute(cl, a, 0, 16, 0);
	ck_assert_int_eq(sh_fork(cl, a, 1, &b), 0);
	ck_assert_int_eq(sh_begin(cl, a, 16, 1), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgcow), 0);
	ck_assert_uint_eq(sh_table(cl, a, 0), sh_table(cl, b, 0));
	ck_assert_int_eq(sh_end(cl, a, 16, 17, 0), 0);
}
END_TEST

/* ---- rollback and speculation ---- */

START_TEST(test_rollback_gives_blocks_and_promises_back)
{
	u64 seq = sh_ready(cl, 50, 14, 0);

	ck_assert_uint_eq(sh_pool().committed, 4 * SH_BLOCK);
	ck_assert_int_eq(sh_begin(cl, seq, 0, 50), 0);
	ck_assert_uint_eq(sh_pool().open, 4 * SH_BLOCK);
	ck_assert_uint_eq(sh_pool().committed, 0);
	ck_assert_int_eq(sh_end(cl, seq, 0, 17, 0), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgrollback), 2);
	ck_assert_uint_eq(sh_pool().committed, 2 * SH_BLOCK);
	ck_assert_uint_eq(sh_pool().sealed, SH_BLOCK);
	ck_assert_uint_eq(sh_pool().open, SH_BLOCK);
}
END_TEST

/* A sequence rolled back to nothing has no table, and its record says so. */
START_TEST(test_rollback_to_nothing)
{
	u64 seq = sh_ready(cl, 50, 14, 0);

	ck_assert_int_eq(sh_begin(cl, seq, 0, 50), 0);
	ck_assert_uint_ne(sh_status(cl, seq)->table[0], KVMM_NO_INDEX);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->table[0], KVMM_NO_INDEX);
}
END_TEST

START_TEST(test_rollback_keeps_what_another_step_covers)
{
	u64 seq = sh_ready(cl, 64, 64, 0), first;

	ck_assert_int_eq(sh_begin(cl, seq, 0, 64), 0);
	first = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, seq, 10, 30), 0);
	ck_assert_int_eq(sh_end_step(cl, first, seq, 0, 10, 0), 0);
	/* 40 positions are covered by the second step: three blocks. */
	ck_assert_uint_eq(sh_pool().open, 3 * SH_BLOCK);
	ck_assert_int_eq(sh_end(cl, seq, 10, 33, 0), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 33);
	ck_assert_uint_eq(sh_pool().sealed, 2 * SH_BLOCK);
}
END_TEST

/* Steps end in order, each once. */
START_TEST(test_end_out_of_order)
{
	u64 seq = sh_ready(cl, 64, 64, 0), first;

	ck_assert_int_eq(sh_begin(cl, seq, 0, 20), 0);
	first = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, seq, 20, 10), 0);
	ck_assert_int_eq(sh_end_empty(cl, first + 1), -EINVAL);
	ck_assert_int_eq(sh_end_empty(cl, first), 0);
	ck_assert_int_eq(sh_end_empty(cl, first), -EINVAL);
	ck_assert_int_eq(sh_end_empty(cl, first + 1), 0);
	ck_assert_int_eq(sh_end_empty(cl, first + 1), -EINVAL);
}
END_TEST

/* The guess was too far: the second step can declare no progress. */
START_TEST(test_wrong_speculation)
{
	u64 seq = sh_ready(cl, 20, 64, 0), first;

	sh_compute(cl, seq, 0, 20, 0);
	ck_assert_int_eq(sh_begin(cl, seq, 20, 5), 0);
	first = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, seq, 25, 5), 0);
	ck_assert_int_eq(sh_end_step(cl, first, seq, 20, 22, 0), 0);
	ck_assert_int_eq(sh_end(cl, seq, 22, 26, 0), -EINVAL);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 22);
	ck_assert_uint_eq(sh_pool().open, SH_BLOCK);
}
END_TEST

/* The guess was too short: the second step goes on where the first ended. */
START_TEST(test_overlapping_ranges)
{
	u64 seq = sh_ready(cl, 20, 64, 0), first;

	sh_compute(cl, seq, 0, 20, 0);
	ck_assert_int_eq(sh_begin(cl, seq, 20, 8), 0);
	first = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, seq, 21, 20), 0);
	ck_assert_int_eq(sh_end_step(cl, first, seq, 20, 25, 0), 0);
	ck_assert_int_eq(sh_end(cl, seq, 25, 41, 0), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 41);
}
END_TEST

/* Naming a sequence without progress is always right. */
START_TEST(test_end_without_progress)
{
	u64 seq = sh_ready(cl, 20, 64, 0), first;

	ck_assert_int_eq(sh_begin(cl, seq, 0, 20), 0);
	first = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, seq, 0, 1), 0);
	ck_assert_int_eq(sh_end_step(cl, first, seq, 0, 20, 0), 0);
	ck_assert_int_eq(sh_end(cl, seq, 20, 20, 0), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 20);
}
END_TEST

/* A step that only reads takes no block, and copies no shared tail. */
START_TEST(test_step_that_reads)
{
	u64 seq = sh_ready(cl, 20, 64, 0), kid;
	struct kvmm_begin_arg a[2];
	struct kvmm_begin_res res[2];
	struct core_pool_view before, after;

	sh_compute(cl, seq, 0, 20, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	before = sh_pool();
	a[0] = sh_entry(cl, seq, 20, 0);
	a[1] = sh_entry(cl, kid, 20, 0);
	ck_assert_int_eq(sh_begin_all(cl, a, 2, res), 0);
	ck_assert_int_eq(res[0].status | res[1].status, 0);
	ck_assert_uint_eq(res[0].copy_tokens, 0);
	after = sh_pool();
	ck_assert_mem_eq(&before, &after, sizeof(before));
	/* Entries of an open step stay, so the tail is not copied for a later one. */
	ck_assert_int_eq(sh_begin(cl, seq, 20, 1), -EAGAIN);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step - 1), 0);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_int_eq(sh_begin(cl, seq, 20, 1), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgcow), 1);
}
END_TEST

START_TEST(test_close_in_open_step)
{
	u64 seq = sh_ready(cl, 20, 64, 0);

	ck_assert_int_eq(sh_begin(cl, seq, 0, 20), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_int_eq(sh_close(cl, seq), -ENOENT);
	ck_assert_uint_eq(sh_pool().open, 2 * SH_BLOCK);
	ck_assert_int_eq(sh_end(cl, seq, 0, 20, 0), -ENOENT);
	ck_assert_uint_eq(sh_pool().open, 0);
	ck_assert_uint_eq(sh_pool().committed, 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_CLOSED);
}
END_TEST

/* ---- refusals ---- */

static const struct {
	const char	*what;
	struct kvmm_begin_arg delta;
	int		error;
} bad_begin[] = {
	{ "generation", { .seq = 1ull << 32 }, -ENOENT },
	{ "index", { .seq = SH_SEQS }, -ENOENT },
	{ "epoch", { .seq_epoch = 1 }, -ESTALE },
	{ "start before what is valid", { .start = (u32)-1 }, -EINVAL },
	{ "start behind what is covered", { .start = 1 }, -EINVAL },
	{ "nothing to read", { .start = (u32)-20, .max_tokens = (u32)-8 }, -EINVAL },
	{ "more than was opened for", { .max_tokens = 65 }, -EINVAL },
	{ "reserved field", { .resv = 1 }, -EINVAL },
};

START_TEST(test_begin_refuses)
{
	u64 seq = sh_ready(cl, 20, 64, 0);
	struct kvmm_begin_arg a;
	struct kvmm_begin_res res;
	struct core_pool_view before, after;

	sh_compute(cl, seq, 0, 20, 0);
	a = sh_entry(cl, seq, 20, 8);
	a.seq += bad_begin[_i].delta.seq;
	a.seq_epoch += bad_begin[_i].delta.seq_epoch;
	a.start += bad_begin[_i].delta.start;
	a.max_tokens += bad_begin[_i].delta.max_tokens;
	a.resv = bad_begin[_i].delta.resv;
	before = sh_pool();
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	after = sh_pool();
	ck_assert_msg(res.status == bad_begin[_i].error, "%s: %d",
		      bad_begin[_i].what, res.status);
	ck_assert_uint_eq(res.table_lo, KVMM_NO_INDEX);
	ck_assert_mem_eq(&before, &after, sizeof(before));
}
END_TEST

START_TEST(test_begin_names_it_twice)
{
	u64 seq = sh_ready(cl, 20, 64, 0);
	struct kvmm_begin_arg a[2];
	struct kvmm_begin_res res[2];

	a[0] = sh_entry(cl, seq, 0, 8);
	a[1] = a[0];
	ck_assert_int_eq(sh_begin_all(cl, a, 2, res), 0);
	ck_assert_int_eq(res[0].status, 0);
	ck_assert_int_eq(res[1].status, -EINVAL);
	ck_assert_int_eq(sh_end(cl, seq, 0, 8, 0), 0);
}
END_TEST

START_TEST(test_begin_needs_a_rising_number)
{
	u64 seq = sh_ready(cl, 20, 64, 0);

	ck_assert_int_eq(sh_begin(cl, seq, 0, 8), 0);
	((struct kvmm_begin_arg *)sh.args)[0] = sh_entry(cl, seq, 8, 1);
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_STEP_BEGIN, 1, sh.cl[cl].step,
				   sizeof(struct kvmm_begin_arg)), -EINVAL);
	ck_assert_uint_eq(sh_count(CORE_EV_step_begin), 1);
}
END_TEST

START_TEST(test_begin_one_step_too_many)
{
	u64 seq = sh_ready(cl, 20, 64, 0);
	struct kvmm_begin_arg a;
	struct kvmm_begin_res res;
	u32 i;

	for (i = 0; i < 4; i++)
		ck_assert_int_eq(sh_begin(cl, seq, i, 1), 0);
	a = sh_entry(cl, seq, 4, 1);
	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), -EBUSY);
	ck_assert_uint_eq(sh_count(CORE_EV_step_begin), 4);
}
END_TEST

static const struct {
	const char	*what;
	u64		seq;
	u32		valid_len;
	int		error;
} bad_end[] = {
	{ "generation", 1ull << 32, 20, -ENOENT },
	{ "less than is valid", 0, 3, -EINVAL },
	{ "more than the step covers", 0, 21, -EINVAL },
};

/* A refused entry made no progress; the step ends all the same. */
START_TEST(test_end_refuses)
{
	u64 seq = sh_ready(cl, 20, 64, 0);
	struct kvmm_end_arg *a = (struct kvmm_end_arg *)sh.args;
	const struct kvmm_end_res *res = (const void *)sh.results;
	u32 nr;

	sh_compute(cl, seq, 0, 8, 0);
	ck_assert_int_eq(sh_begin(cl, seq, 8, 12), 0);
	nr = bad_end[_i].valid_len > 8 ? bad_end[_i].valid_len - 8 : 0;
	*a = (struct kvmm_end_arg){ .seq = seq + bad_end[_i].seq,
				    .valid_len = bad_end[_i].valid_len,
				    .nr_ids = nr };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_STEP_END, 1, sh.cl[cl].step,
				   (u32)sizeof(*a) + 4 * nr), 0);
	ck_assert_msg(res->status == bad_end[_i].error, "%s: %d",
		      bad_end[_i].what, res->status);
	sh_check();
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 8);
	ck_assert_uint_eq(sh_count(CORE_EV_step_end), 2);
	ck_assert_uint_eq(sh_pool().open, SH_BLOCK);
}
END_TEST

/* The ids must be those from the old valid length to the new one. */
START_TEST(test_end_needs_all_ids)
{
	u64 seq = sh_ready(cl, 20, 64, 0);
	struct kvmm_end_arg *a = (struct kvmm_end_arg *)sh.args;

	ck_assert_int_eq(sh_begin(cl, seq, 0, 20), 0);
	*a = (struct kvmm_end_arg){ .seq = seq, .valid_len = 8, .nr_ids = 7 };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_STEP_END, 1, sh.cl[cl].step,
				   (u32)sizeof(*a) + 4 * 7), 0);
	ck_assert_int_eq(((struct kvmm_end_res *)sh.results)->status, -EINVAL);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 0);
}
END_TEST

/* A sequence that the step does not name. */
START_TEST(test_end_of_another)
{
	u64 seq = sh_ready(cl, 20, 64, 0);
	u64 other = sh_ready(cl, 20, 64, 0);

	ck_assert_int_eq(sh_begin(cl, seq, 0, 20), 0);
	ck_assert_int_eq(sh_end(cl, other, 0, 8, 0), -EINVAL);
	ck_assert_uint_eq(sh_status(cl, other)->valid_len, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_step");
	TCase *tc = tcase_create("step");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_tokens_are_counted);
	tcase_add_test(tc, test_sharers_in_one_step);
	tcase_add_test(tc, test_moved_block_that_is_gone);
	tcase_add_test(tc, test_source_outlives_its_sharers);
	tcase_add_test(tc, test_copied_tail_is_private);
	tcase_add_test(tc, test_shared_full_block_is_not_copied);
	tcase_add_test(tc, test_rollback_gives_blocks_and_promises_back);
	tcase_add_test(tc, test_rollback_to_nothing);
	tcase_add_test(tc, test_rollback_keeps_what_another_step_covers);
	tcase_add_test(tc, test_end_out_of_order);
	tcase_add_test(tc, test_wrong_speculation);
	tcase_add_test(tc, test_overlapping_ranges);
	tcase_add_test(tc, test_end_without_progress);
	tcase_add_test(tc, test_step_that_reads);
	tcase_add_test(tc, test_close_in_open_step);
	tcase_add_loop_test(tc, test_begin_refuses, 0,
			    ARRAY_SIZE(bad_begin));
	tcase_add_test(tc, test_begin_names_it_twice);
	tcase_add_test(tc, test_begin_needs_a_rising_number);
	tcase_add_test(tc, test_begin_one_step_too_many);
	tcase_add_loop_test(tc, test_end_refuses, 0, ARRAY_SIZE(bad_end));
	tcase_add_test(tc, test_end_needs_all_ids);
	tcase_add_test(tc, test_end_of_another);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
