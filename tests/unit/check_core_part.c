// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_part.c - prefixes that are found and end inside a block
 */
#include "tests/unit/core_shell.h"

#define OTHER	100000u		/* seed of the tokens after the common part */

static u32 cl;

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

/* Match @len ids, of which the first @common are those of seed 0. */
static void match_common(u64 seq, u32 common, u32 len, u32 seed)
{
	if (common)
		ck_assert_int_eq(sh_match_piece(cl, seq, 0, common,
						common == len ?
						KVMM_MATCH_LAST : 0, 0), 0);
	if (common < len)
		ck_assert_int_eq(sh_match_piece(cl, seq, common, len - common,
						KVMM_MATCH_LAST, seed), 0);
}

static u64 ready_common(u32 common, u32 len, u32 more, u32 seed)
{
	u64 seq = sh_open(cl, len, more);

	match_common(seq, common, len, seed);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	return seq;
}

/* Compute and close a sequence with @common tokens of seed 0. */
static void cache_common(u32 common, u32 len, u32 seed)
{
	u64 seq = ready_common(common, len, 0, seed);
	u32 from = sh_status(cl, seq)->valid_len;

	if (from < common) {
		sh_compute(cl, seq, from, common, 0);
		from = common;
	}
	if (from < len)
		sh_compute(cl, seq, from, len, seed);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

/* A common part of any length is found, as far as there are full blocks. */
START_TEST(test_every_length)
{
	u32 common = (u32)_i, part = common % SH_BT, whole = common / SH_BT;
	u64 seq, hits = sh_count(CORE_EV_prefix_hit_tokens);
	u32 shared;

	cache_common(64, 64, 0);
	seq = ready_common(common, 70, 20, OTHER);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, common);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, common);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_partial_tokens), part);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_hit_tokens), hits + common);
	/* The sequence needs 5 blocks; the whole common ones are there. */
	ck_assert_uint_eq(sh_pool().committed, (5 - whole) * SH_BLOCK);

	shared = part ? sh_table(cl, seq, whole) : 0;
	if (part) {
		struct kvmm_begin_arg a = sh_entry(cl, seq, common, 1);
		struct kvmm_begin_res res;

		ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
		ck_assert_int_eq(res.status, 0);
		ck_assert_uint_eq(res.copy_from, shared);
		ck_assert_uint_eq(res.copy_tokens, part);
		ck_assert_uint_eq(res.copy_to, sh_table(cl, seq, whole));
		ck_assert_uint_eq(res.table_lo, whole);
		ck_assert_int_eq(sh_end(cl, seq, common, common + 1, OTHER),
				 0);
		ck_assert_uint_eq(sh_pool().committed,
				  (4 - whole) * SH_BLOCK);
		common++;
	}
	sh_compute(cl, seq, common, 70, OTHER);
	ck_assert_uint_eq(sh_pool().committed, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	/* A block that was mapped in part is whole for other sequences. */
	ck_assert_uint_eq(sh_status(cl, sh_ready(cl, 65, 0, 0))->valid_len,
			  64);
}
END_TEST

/* The same prompt again: only its last token has to be computed. */
START_TEST(test_same_prompt)
{
	cache_common(64, 64, 0);
	ck_assert_uint_eq(sh_status(cl, ready_common(64, 64, 0, 0))->valid_len,
			  63);
}
END_TEST

/* The reservation holds when no other block is left. */
START_TEST(test_copy_is_promised)
{
	u64 seq, rest;

	cache_common(32, 32, 0);
	seq = ready_common(20, 40, 0, OTHER);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 20);
	rest = sh_ready(cl, 59 * SH_BT, 0, 7 * OTHER);
	ck_assert_uint_eq(sh_pool().free + sh_pool().free_extents,
			  sh_pool().committed + SH_BLOCK);
	sh_compute(cl, rest, 0, 59 * SH_BT, 7 * OTHER);
	ck_assert_int_eq(sh_begin(cl, seq, 20, 20), 0);
	ck_assert_int_eq(sh_end(cl, seq, 20, 40, OTHER), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_recompute), 0);
}
END_TEST

/* A prompt of the whole pool has no block left for the copy. */
START_TEST(test_one_block_too_many)
{
	u64 seq;

	cache_common(64, 64, 0);
	seq = ready_common(40, 63 * SH_BT, 0, OTHER);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 40);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	seq = ready_common(40, 64 * SH_BT, 0, OTHER);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 32);
}
END_TEST

/*
 * Of several blocks that begin alike the one with the longest common part is
 * taken.
 */
START_TEST(test_longest_of_many)
{
	u32 i;

	for (i = 0; i < 10; i++)
		cache_common(17 + (i * 7) % 10, 32, OTHER * (i + 1));
	ck_assert_uint_eq(sh_status(cl, ready_common(30, 40, 0, 99 * OTHER))
			  ->valid_len, 26);
}
END_TEST

/* Only the newest 16 children of a parent are compared. */
START_TEST(test_bounded)
{
	u32 i;

	cache_common(16, 16, 0);
	cache_common(31, 32, OTHER);
	for (i = 0; i < 15; i++)
		cache_common(17, 32, OTHER * (i + 2));
	ck_assert_uint_eq(sh_status(cl, ready_common(31, 40, 0, 99 * OTHER))
			  ->valid_len, 31);
	cache_common(17, 32, OTHER * 50);
	ck_assert_uint_eq(sh_status(cl, ready_common(31, 40, 0, 98 * OTHER))
			  ->valid_len, 17);
}
END_TEST

/* Another salt has other parents; a sequence with NO_MATCH looks nothing up. */
START_TEST(test_not_for_everybody)
{
	struct kvmm_open_arg a = { .prompt_len = 40, .salt = 5 };
	u64 seq;

	cache_common(32, 32, 0);
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	match_common(seq, 12, 40, OTHER);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 0);
	a.salt = 0;
	a.flags = KVMM_OPEN_NO_MATCH;
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	match_common(seq, 12, 40, OTHER);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 0);
	seq = ready_common(12, 40, 0, OTHER);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 12);
}
END_TEST

/* An evicted block is not found any more. */
START_TEST(test_evicted)
{
	cache_common(32, 32, 0);
	ck_assert_int_eq(sh_close(cl, sh_ready(cl, 64 * SH_BT, 0, OTHER)), 0);
	ck_assert_uint_eq(sh_pool().cached, 0);
	ck_assert_uint_eq(sh_status(cl, ready_common(12, 40, 0, OTHER))
			  ->valid_len, 0);
}
END_TEST

static int len_verb(u16 op, u64 seq, u32 len)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;
	int err;

	*a = (struct kvmm_len_arg){ .seq = seq, .len = len };
	ck_assert_int_eq(sh_submit(cl, op, 1, 0, sizeof(*a)), 0);
	err = sh_seq_res(0);
	sh_settle();
	return err;
}

/* The reservation for the copy ends with the block that was to be copied. */
START_TEST(test_promise_and_other_verbs)
{
	u64 seq, kid;

	cache_common(64, 64, 0);
	seq = ready_common(40, 70, 40, OTHER);
	ck_assert_uint_eq(sh_pool().committed, 3 * SH_BLOCK);
	switch (_i) {
	case 0:
		ck_assert_int_eq(sh_close(cl, seq), 0);
		ck_assert_uint_eq(sh_pool().committed, 0);
		return;
	case 1:
		ck_assert_int_eq(len_verb(KVMM_OP_SEQ_TRUNCATE, seq, 35), 0);
		ck_assert_uint_eq(sh_pool().committed, 2 * SH_BLOCK);
		break;
	case 2:
		ck_assert_int_eq(len_verb(KVMM_OP_SEQ_TRUNCATE, seq, 20), 0);
		ck_assert_uint_eq(sh_pool().committed, 3 * SH_BLOCK);
		break;
	case 3:
		ck_assert_int_eq(len_verb(KVMM_OP_SEQ_TRIM, seq, 40), 0);
		ck_assert_uint_eq(sh_pool().committed, 3 * SH_BLOCK);
		break;
	default:
		ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
		sh_compute(cl, kid, 40, 60, 3 * OTHER);
		ck_assert_uint_eq(sh_pool().committed, 3 * SH_BLOCK);
		break;
	}
	sh_compute(cl, seq, sh_status(cl, seq)->valid_len, 70, OTHER);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(sh_pool().committed, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_part");
	TCase *tc = tcase_create("part");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_every_length, 0, 65);
	tcase_add_test(tc, test_same_prompt);
	tcase_add_test(tc, test_copy_is_promised);
	tcase_add_test(tc, test_one_block_too_many);
	tcase_add_test(tc, test_longest_of_many);
	tcase_add_test(tc, test_bounded);
	tcase_add_test(tc, test_not_for_everybody);
	tcase_add_test(tc, test_evicted);
	tcase_add_loop_test(tc, test_promise_and_other_verbs, 0, 5);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
