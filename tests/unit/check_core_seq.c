// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_seq.c - handles, forks, states, and the records that publish them
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

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

static struct core_seq_view view_of(u64 seq)
{
	struct core_seq_view v;

	ck_assert_int_eq(core_get_seq(sh.core, KVMM_SEQ_INDEX(seq), &v), 0);
	ck_assert_uint_eq(v.seq, seq);
	return v;
}

/* ---- handles ---- */

/* A reused index has another generation. */
START_TEST(test_generations)
{
	u64 seen[8];
	u32 i, n;

	for (i = 0; i < 8; i++) {
		seen[i] = sh_open(cl, 4, 4);
		ck_assert_uint_ne(KVMM_SEQ_GEN(seen[i]), 0);
		for (n = 0; n < i; n++)
			ck_assert_uint_ne(seen[i], seen[n]);
		ck_assert_int_eq(sh_close(cl, seen[i]), 0);
		ck_assert_int_eq(sh_close(cl, seen[i]), -ENOENT);
	}
	ck_assert_uint_eq(KVMM_SEQ_INDEX(seen[0]), KVMM_SEQ_INDEX(seen[7]));
}
END_TEST

/* After the last generation comes the first; no handle has 0, which means none. */
START_TEST(test_generation_wraps)
{
	u64 seq, last, first;
	u32 i;

	seq = sh_ready(cl, 20, 4, 0);
	i = KVMM_SEQ_INDEX(seq);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	sh.core->seqs[cl * SH_SEQS + i].generation = UINT32_MAX;
	last = sh_ready(cl, 20, 4, 0);
	ck_assert_uint_eq(last, KVMM_SEQ(i, UINT32_MAX));
	ck_assert_int_eq(sh_close(cl, seq), -ENOENT);
	ck_assert_int_eq(sh_close(cl, last), 0);
	first = sh_ready(cl, 20, 4, 0);
	ck_assert_uint_eq(first, KVMM_SEQ(i, 1));
	ck_assert_uint_eq(sh_status(cl, first)->generation, 1);
	ck_assert_int_eq(sh_close(cl, last), -ENOENT);
	ck_assert_int_eq(sh_close(cl, KVMM_SEQ(i, 0)), -ENOENT);
	ck_assert_int_eq(sh_close(cl, first), 0);
}
END_TEST

START_TEST(test_all_records)
{
	struct kvmm_open_arg a = { .prompt_len = 4 };
	u64 seq[SH_SEQS], none;
	u32 i;

	for (i = 0; i < SH_SEQS; i++)
		seq[i] = sh_open(cl, 4, 4);
	ck_assert_int_eq(sh_open_as(cl, &a, &none), -ENOSPC);
	ck_assert_int_eq(sh_close(cl, seq[17]), 0);
	ck_assert_uint_eq(KVMM_SEQ_INDEX(sh_open(cl, 4, 4)), 17);
}
END_TEST

/* Another client's handle is not a handle. */
START_TEST(test_handles_are_per_client)
{
	u32 other = sh_attach(1, "a");
	u64 seq;

	(void)sh_open(cl, 4, 4);
	seq = sh_open(cl, 4, 4);
	ck_assert_int_eq(sh_close(other, seq), -ENOENT);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
}
END_TEST

/* ---- records ---- */

START_TEST(test_record_of_a_life)
{
	u64 seq = sh_open(cl, 20, 12);
	const struct kvmm_seq_status *st = sh_status(cl, seq);

	ck_assert_uint_eq(st->state, KVMM_SEQ_WAITING);
	ck_assert_uint_eq(st->generation, KVMM_SEQ_GEN(seq));
	ck_assert_uint_eq(st->table[0], KVMM_NO_INDEX);
	ck_assert_uint_eq(st->limiting_pool, KVMM_NO_POOL);
	ck_assert_int_eq(sh_match(cl, seq, 20, 0), 0);
	ck_assert_uint_eq(st->state, KVMM_SEQ_READY);
	sh_compute(cl, seq, 0, 20, 0);
	ck_assert_uint_eq(st->valid_len, 20);
	ck_assert_uint_ne(st->table[0], KVMM_NO_INDEX);
	ck_assert_uint_eq(st->seqcount % 2, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(st->state, KVMM_SEQ_CLOSED);
	ck_assert_uint_eq(st->generation, KVMM_SEQ_GEN(seq));
	ck_assert_uint_eq(st->table[0], KVMM_NO_INDEX);
}
END_TEST

START_TEST(test_view)
{
	struct kvmm_open_arg a = { .prompt_len = 20, .max_tokens = 12,
				   .priority = 7 };
	struct core_seq_view v;
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, 20, 0), 0);
	sh_compute(cl, seq, 0, 20, 0);
	v = view_of(seq);
	ck_assert_uint_eq(v.priority, 7);
	ck_assert_uint_eq(v.prompt_len, 20);
	ck_assert_uint_eq(v.max_tokens, 12);
	ck_assert_uint_eq(v.valid_len, 20);
	ck_assert_uint_eq(v.nr_blocks, 2);
	ck_assert_uint_eq(v.nr_shared, 0);
	ck_assert_int_eq(core_get_seq(sh.core, KVMM_SEQ_INDEX(seq) + 1, &v),
			 -ENOENT);
	ck_assert_int_eq(core_get_seq(sh.core, 1 << 30, &v), -ERANGE);
}
END_TEST

/* ---- forks ---- */

START_TEST(test_fork)
{
	u64 seq = sh_ready(cl, 40, 40, 0), kid[3];
	u64 opened = sh_count(CORE_EV_seq_open);
	u32 i;

	sh_compute(cl, seq, 0, 40, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 3, kid), 0);
	for (i = 0; i < 3; i++) {
		ck_assert_uint_eq(sh_state(cl, kid[i]), KVMM_SEQ_READY);
		ck_assert_uint_eq(sh_status(cl, kid[i])->valid_len, 40);
		ck_assert_uint_eq(sh_table(cl, kid[i], 0),
				  sh_table(cl, seq, 0));
		ck_assert_uint_eq(sh_table(cl, kid[i], 2),
				  sh_table(cl, seq, 2));
		ck_assert_uint_eq(view_of(kid[i]).family, view_of(seq).family);
		ck_assert_uint_eq(view_of(kid[i]).arrival,
				  view_of(seq).arrival);
	}
	ck_assert_uint_eq(sh_pool().shared, 3 * SH_BLOCK);
	ck_assert_uint_eq(sh_count(CORE_EV_seq_fork), 3);
	ck_assert_uint_eq(sh_count(CORE_EV_seq_open), opened);
}
END_TEST

START_TEST(test_fork_in_an_open_step)
{
	u64 seq = sh_ready(cl, 20, 40, 0), kid;

	sh_compute(cl, seq, 0, 20, 0);
	ck_assert_int_eq(sh_begin(cl, seq, 20, 1), 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), -EBUSY);
	ck_assert_uint_eq(kid, 0);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
}
END_TEST

START_TEST(test_fork_of_one_that_waits)
{
	u64 seq = sh_open(cl, 20, 40), kid;

	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), -ESTALE);
}
END_TEST

/* A fork of a fork belongs to the same family. */
START_TEST(test_fork_of_a_fork)
{
	u64 seq = sh_ready(cl, 20, 40, 0), kid, grandkid;

	sh_compute(cl, seq, 0, 20, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	sh_compute(cl, kid, 20, 30, 500);
	ck_assert_int_eq(sh_fork(cl, kid, 1, &grandkid), 0);
	ck_assert_int_eq(sh_close(cl, kid), 0);
	ck_assert_uint_eq(view_of(grandkid).family, view_of(seq).family);
	ck_assert_uint_eq(sh_status(cl, grandkid)->valid_len, 30);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_int_eq(sh_close(cl, grandkid), 0);
	ck_assert_uint_eq(sh_pool().open, 0);
}
END_TEST

/* The reservation of a parent is not for its children. */
START_TEST(test_fork_in_the_middle_of_a_prompt)
{
	u64 seq = sh_ready(cl, 100, 0, 0), kid;

	sh_compute(cl, seq, 0, 20, 0);
	ck_assert_uint_eq(sh_pool().committed, 5 * SH_BLOCK);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_uint_eq(sh_pool().committed, 5 * SH_BLOCK);
	sh_compute(cl, kid, 20, 100, 0);
	ck_assert_uint_eq(sh_pool().committed, 5 * SH_BLOCK);
	sh_compute(cl, seq, 20, 100, 0);
	ck_assert_uint_eq(sh_pool().committed, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_int_eq(sh_close(cl, kid), 0);
}
END_TEST

/* Several entries of one request. */
START_TEST(test_fork_of_several)
{
	struct kvmm_fork_arg *a = (struct kvmm_fork_arg *)sh.args;
	const struct kvmm_open_res *res = (const void *)sh.results;
	u64 seq = sh_ready(cl, 20, 40, 0), waits = sh_open(cl, 4, 4);

	sh_compute(cl, seq, 0, 20, 0);
	a[0] = (struct kvmm_fork_arg){ .seq = seq, .nr_children = 2 };
	a[1] = (struct kvmm_fork_arg){ .seq = waits, .nr_children = 1 };
	a[2] = (struct kvmm_fork_arg){ .seq = seq, .nr_children = 1 };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_FORK, 3, 0, 3 * sizeof(*a)),
			 0);
	ck_assert_int_eq(res[0].status, 0);
	ck_assert_int_eq(res[1].status, 0);
	ck_assert_int_eq(res[2].status, -ESTALE);
	ck_assert_int_eq(res[3].status, 0);
	ck_assert_uint_ne(res[3].seq, res[1].seq);
	sh_check();
}
END_TEST

/* ---- closing ---- */

START_TEST(test_close_in_every_state)
{
	u64 a = sh_open(cl, 20, 4), b = sh_open(cl, 20, 4), c;

	/* Sequences that have no ids yet wait, too. */
	ck_assert_uint_eq(sh_domain(cl).nr_waiting, 2);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_int_eq(sh_match_piece(cl, b, 0, 10, 0, 0), 0);
	ck_assert_int_eq(sh_close(cl, b), 0);
	c = sh_ready(cl, 500, 12, 0);
	a = sh_open(cl, 200, 0);
	ck_assert_int_eq(sh_match(cl, a, 200, 9000), 0);
	ck_assert_uint_eq(sh_state(cl, a), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(sh_domain(cl).nr_waiting, 0);
	ck_assert_int_eq(sh_close(cl, c), 0);
	ck_assert_uint_eq(sh_domain(cl).nr_running, 0);
	ck_assert_uint_eq(sh_pool().committed, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_seq");
	TCase *tc = tcase_create("seq");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_generations);
	tcase_add_test(tc, test_generation_wraps);
	tcase_add_test(tc, test_all_records);
	tcase_add_test(tc, test_handles_are_per_client);
	tcase_add_test(tc, test_record_of_a_life);
	tcase_add_test(tc, test_view);
	tcase_add_test(tc, test_fork);
	tcase_add_test(tc, test_fork_in_an_open_step);
	tcase_add_test(tc, test_fork_of_one_that_waits);
	tcase_add_test(tc, test_fork_of_a_fork);
	tcase_add_test(tc, test_fork_in_the_middle_of_a_prompt);
	tcase_add_test(tc, test_fork_of_several);
	tcase_add_test(tc, test_close_in_every_state);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
