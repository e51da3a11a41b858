// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_merge.c - sealed blocks of the same content become one
 */
#include "tests/unit/core_shell.h"

static u32 cl;
static u64 first;		/* 48 tokens, all indexed */

static void setup(void)
{
	sh_config(16);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
}

static void teardown(void)
{
	sh_stop();
}

/* Two sequences of one prompt, both admitted before either had computed a block. */
static u64 twin(u32 client, u32 flags)
{
	struct kvmm_open_arg a = { .prompt_len = 48, .max_tokens = 40,
				   .flags = flags };
	u64 seq;

	first = sh_ready(cl, 48, 40, 0);
	ck_assert_int_eq(sh_open_as(client, &a, &seq), 0);
	ck_assert_int_eq(sh_match(client, seq, 48, 0), 0);
	ck_assert_uint_eq(sh_state(client, seq), KVMM_SEQ_READY);
	sh_compute(cl, first, 0, 48, 0);
	return seq;
}

static struct kvmm_begin_res begin(u32 client, u64 seq, u32 start, u32 nr)
{
	struct kvmm_begin_arg a = sh_entry(client, seq, start, nr);
	struct kvmm_begin_res res;

	ck_assert_int_eq(sh_begin_all(client, &a, 1, &res), 0);
	ck_assert_int_eq(res.status, 0);
	return res;
}

START_TEST(test_merge)
{
	u64 seq = twin(cl, 0);
	u32 i;

	sh_compute(cl, seq, 0, 40, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmerge), 2);
	for (i = 0; i < 2; i++)
		ck_assert_uint_eq(sh_table(cl, seq, i),
				  sh_table(cl, first, i));
	ck_assert_uint_ne(sh_table(cl, seq, 2), sh_table(cl, first, 2));
	ck_assert_uint_eq(sh_pool().quiescing, 0);
	ck_assert_uint_eq(sh_pool().shared, 2 * SH_BLOCK);
	/* The next grant reports the change, once. */
	ck_assert_uint_eq(begin(cl, seq, 40, 1).table_lo, 0);
	ck_assert_int_eq(sh_end(cl, seq, 40, 41, 0), 0);
	ck_assert_uint_eq(begin(cl, seq, 41, 1).table_lo, KVMM_NO_INDEX);
	/* The sequence that shares its blocks may be closed. */
	ck_assert_int_eq(sh_close(cl, first), 0);
	ck_assert_uint_eq(sh_pool().shared, 0);
	ck_assert_int_eq(sh_end(cl, seq, 41, 42, 0), 0);
}
END_TEST

/* Open steps have read the table before: they keep the blocks that it named. */
START_TEST(test_merge_under_a_step)
{
	u64 seq = twin(cl, 0), step;

	(void)begin(cl, seq, 0, 48);
	step = sh.cl[cl].step;
	(void)begin(cl, seq, 48, 1);
	(void)begin(cl, seq, 49, 1);
	ck_assert_int_eq(sh_end_step(cl, step, seq, 0, 48, 0), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmerge), 3);
	ck_assert_uint_eq(sh_table(cl, seq, 2), sh_table(cl, first, 2));
	ck_assert_uint_eq(sh_pool().quiescing, 3 * SH_BLOCK);
	ck_assert_int_eq(sh_end_step(cl, step + 1, seq, 48, 49, 0), 0);
	ck_assert_uint_eq(sh_pool().quiescing, 3 * SH_BLOCK);
	ck_assert_int_eq(sh_end_step(cl, step + 2, seq, 49, 50, 0), 0);
	ck_assert_uint_eq(sh_pool().quiescing, 0);
}
END_TEST

/* The device of a dead client may read the old blocks until it is quiet. */
START_TEST(test_merge_and_death)
{
	u32 other = sh_attach(1, "a");
	u64 seq = twin(other, 0), step;

	(void)begin(other, seq, 0, 48);
	step = sh.cl[other].step;
	(void)begin(other, seq, 48, 1);
	ck_assert_int_eq(sh_end_step(other, step, seq, 0, 48, 0), 0);
	sh_die(other);
	ck_assert_uint_eq(sh_pool().quiescing, 3 * SH_BLOCK);
	sh_quiet(other);
	ck_assert_uint_eq(sh_pool().quiescing, 0);
}
END_TEST

/* No sequence gets a block in an extent that its client has not mapped. */
START_TEST(test_merge_waits_for_maps)
{
	u32 other = sh_attach(1, "a");
	u64 seq, more;

	sh_stop();
	sh_config(16);
	sh_start();
	cl = sh_attach(1, "a");
	other = sh_attach(1, "a");
	seq = twin(other, 0);
	sh.cl[other].mute = true;
	(void)begin(other, seq, 0, 48);
	/* The tenant gets new memory that the other client does not acknowledge. */
	more = sh_open(cl, 400, 0);
	ck_assert_int_eq(sh_match(cl, more, 400, 5000), 0);
	ck_assert_int_eq(sh_end(other, seq, 0, 48, 0), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_duplicate), 3);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmerge), 0);
	ck_assert_uint_ne(sh_table(other, seq, 0), sh_table(cl, first, 0));
}
END_TEST

/*
 * Two members of a family have the same content in different blocks, and after
 * that a shared block.  A REMAP that exchanges their tables reports the
 * difference, too.
 */
START_TEST(test_rotation_of_half_merged)
{
	u64 pair[2], more, (*map)[2] = (u64 (*)[2])sh.args;
	u32 other;

	sh_stop();
	sh_config(16);
	sh_start();
	cl = sh_attach(1, "a");
	other = sh_attach(1, "a");
	pair[0] = sh_ready(other, 40, 200, 0);
	sh_compute(other, pair[0], 0, 40, 0);
	ck_assert_int_eq(sh_fork(other, pair[0], 1, pair + 1), 0);
	first = sh_ready(cl, 64, 40, 0);
	sh_compute(cl, first, sh_status(cl, first)->cached_len, 64, 0);

	(void)begin(other, pair[1], 40, 8);
	sh.cl[other].mute = true;
	more = sh_open(cl, 400, 0);
	ck_assert_int_eq(sh_match(cl, more, 400, 5000), 0);
	ck_assert_int_eq(sh_end(other, pair[1], 40, 48, 0), 0);
	sh.cl[other].mute = false;
	sh_settle();
	sh_compute(other, pair[0], 40, 65, 0);
	sh_compute(other, pair[1], 48, 65, 0);
	ck_assert_uint_ne(sh_table(other, pair[0], 2),
			  sh_table(other, pair[1], 2));
	ck_assert_uint_eq(sh_table(other, pair[0], 3),
			  sh_table(other, pair[1], 3));
	(void)begin(other, pair[0], 65, 1);
	ck_assert_int_eq(sh_end(other, pair[0], 65, 66, 0), 0);

	map[0][0] = map[1][1] = pair[0];
	map[0][1] = map[1][0] = pair[1];
	ck_assert_int_eq(sh_submit(other, KVMM_OP_SEQ_REMAP, 2, 0,
				   2 * sizeof(*map)), 0);
	ck_assert_uint_eq(begin(other, pair[0], 65, 1).table_lo, 2);
}
END_TEST

START_TEST(test_no_index_is_not_merged)
{
	u64 seq = twin(cl, KVMM_OPEN_NO_INDEX);

	sh_compute(cl, seq, 0, 48, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmerge), 0);
	ck_assert_uint_ne(sh_table(cl, seq, 0), sh_table(cl, first, 0));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_merge");
	TCase *tc = tcase_create("merge");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_merge);
	tcase_add_test(tc, test_merge_under_a_step);
	tcase_add_test(tc, test_merge_and_death);
	tcase_add_test(tc, test_merge_waits_for_maps);
	tcase_add_test(tc, test_rotation_of_half_merged);
	tcase_add_test(tc, test_no_index_is_not_merged);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
