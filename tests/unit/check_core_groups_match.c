// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_groups_match.c - layer groups: prefixes that all groups have
 */
#include "tests/unit/groups_scene.h"

/* Hits are multiples of 32 tokens; the window of the second group spans two blocks. */
static const struct shape shapes[] = { { 16, 0 }, { 32, 40 } };

#define PROMPT	97u
#define SEED	1u

static u32 blk[2][6];	/* the blocks of a prompt that is cached */

/* Cache a prompt with the ids of @seed. */
static void cache(u32 seed)
{
	u64 seq = sh_ready(cl, PROMPT, 0, seed);
	u32 g, i;

	ck_assert_int_eq(sh_begin(cl, seq, 0, PROMPT), 0);
	for (g = 0; g < 2; g++)
		for (i = 0; i < 96 / shapes[g].tokens; i++)
			blk[g][i] = block_at(seq, g, i);
	ck_assert_int_eq(sh_end(cl, seq, 0, PROMPT, seed), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 9);
}

static void setup(void)
{
	groups_start(16, 0, 2, shapes);
	cache(SEED);
}

static void teardown(void)
{
	sh_stop();
}

static void evict(u32 g, u32 idx)
{
	index_evict(c, blk[g][idx]);
	sh_check();
}

/* The length is a multiple of that of each group's blocks, and leaves one token. */
START_TEST(test_length)
{
	const u32 len[][2] = { { 160, 96 }, { 97, 96 }, { 96, 64 }, { 65, 64 },
			       { 64, 32 }, { 63, 32 }, { 33, 32 }, { 32, 0 }, { 17, 0 } };

	ck_assert_uint_eq(finds(len[_i][0], SEED), len[_i][1]);
}
END_TEST

/* Other ids, or the same ids for another user. */
START_TEST(test_others)
{
	struct kvmm_open_arg a = { .prompt_len = PROMPT, .salt = 5 };
	u64 seq;

	ck_assert_uint_eq(finds(PROMPT, SEED + 1), 0);
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, PROMPT, SEED), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 0);
}
END_TEST

/* Position 96 attends to 57 and after it: the first block is as if trimmed. */
START_TEST(test_tables)
{
	u64 seq = sh_ready(cl, PROMPT, 0, SEED);
	u32 i;

	tab_has(seq, 0, 6, 0);
	tab_has(seq, 1, 3, 1);
	for (i = 0; i < 6; i++)
		ck_assert_uint_eq(block_at(seq, 0, i), blk[0][i]);
	ck_assert_uint_eq(block_at(seq, 1, 1), blk[1][1]);
	ck_assert_uint_eq(block_at(seq, 1, 2), blk[1][2]);
	ck_assert_uint_eq(shown(seq, 1, 0), KVMM_NO_INDEX);
	ck_assert_uint_ne(shown(seq, 1, 1), KVMM_NO_INDEX);
	ck_assert_uint_eq(tab(seq, 0)->reserved, 1);
	ck_assert_uint_eq(tab(seq, 1)->reserved, 1);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_hit_tokens), 96);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 1);
}
END_TEST

/* A prompt that goes on has all of its window reserved, less the blocks that it found. */
START_TEST(test_reservation)
{
	u64 seq = sh_ready(cl, 400, 0, SEED);

	tab_has(seq, 1, 3, 1);
	ck_assert_uint_eq(tab(seq, 0)->reserved, 25 - 6);
	/* (40 + 40) / 32 + 1 blocks, of which it has two. */
	ck_assert_uint_eq(tab(seq, 1)->reserved, 2);
	ck_assert_uint_eq(tab(seq, 1)->prompt_blocks, 13);
}
END_TEST

/* Without the block of the last column the hit has the length of the last one. */
static const struct {
	u32 g, idx, found;
} lacks[] = {
	{ 1, 0, 96 }, { 1, 1, 32 }, { 1, 2, 64 },
	{ 0, 5, 64 }, { 0, 4, 64 }, { 0, 3, 32 }, { 0, 2, 32 }, { 0, 1, 0 }, { 0, 0, 0 },
};

START_TEST(test_lacks_a_block)
{
	evict(lacks[_i].g, lacks[_i].idx);
	ck_assert_uint_eq(finds(PROMPT, SEED), lacks[_i].found);
}
END_TEST

/* A name of a group with a window has no parent: only the one block goes. */
START_TEST(test_evicted_alone)
{
	evict(1, 0);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 8);
	evict(0, 0);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 2);
	ck_assert_uint_eq(finds(PROMPT, SEED), 0);
}
END_TEST

/* Blocks of one group serve no other one, though ids and prefix are the same. */
START_TEST(test_other_group)
{
	const struct shape twins[] = { { 16, 0 }, { 16, 0 }, { 16, 33 } };
	u64 seq;
	u32 b[3][2], i;

	sh_stop();
	groups_start(16, 0, 3, twins);
	seq = runs(33, 0, SEED);
	for (i = 0; i < 3; i++) {
		b[i][0] = block_at(seq, i, 0);
		b[i][1] = block_at(seq, i, 1);
	}
	ck_assert_int_eq(sh_close(cl, seq), 0);
	for (i = 0; i < 6; i++)
		ck_assert(memcmp(c->blocks[b[i / 2][0]].hash,
				 c->blocks[b[(i / 2 + 1) % 3][0]].hash, 16));
	ck_assert_uint_eq(finds(33, SEED), 32);
	index_evict(c, b[_i][1]);
	ck_assert_uint_eq(finds(33, SEED), 16);
	index_evict(c, b[_i][0]);
	ck_assert_uint_eq(finds(33, SEED), 0);
}
END_TEST

/* Match ids whose seeds change at 64 and at 84. */
static u64 ready_of(u32 len, u32 first, u32 second, u32 third)
{
	u64 seq = sh_open(cl, len, 0);

	ck_assert_int_eq(sh_match_piece(cl, seq, 0, 64, 0, first), 0);
	ck_assert_int_eq(sh_match_piece(cl, seq, 64, 20, 0, second), 0);
	ck_assert_int_eq(sh_match_piece(cl, seq, 84, len - 84, KVMM_MATCH_LAST, third), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	return seq;
}

/*
 * The table of a hit begins behind the first blocks of a window.  If the sequence is cut
 * inside the block after them, that block is sealed again, with the name of its whole
 * prefix: a sequence with another prefix must not get its content.
 */
START_TEST(test_name_after_a_hit)
{
	const struct shape small[] = { { _i ? 48 : 16, 0 }, { 16, 5 } };
	u32 first[] = { 1000, 2000 }, i;
	u64 seq, s[2];

	sh_stop();
	groups_start(32, 128, 2, small);
	for (i = 0; i < 2; i++) {
		seq = ready_of(97, first[i], 7, 7);
		sh_compute(cl, seq, 0, 64, first[i]);
		sh_compute(cl, seq, 64, 97, 7);
		ck_assert_int_eq(sh_close(cl, seq), 0);
	}
	for (i = 0; i < 2; i++) {
		s[i] = ready_of(97, first[i], 7, 7);
		ck_assert_uint_eq(sh_status(cl, s[i])->cached_len, 96);
		tab_has(s[i], 1, 6, 5);
		ck_assert_int_eq(truncate_to(s[i], 83), -EINVAL);
		ck_assert_int_eq(truncate_to(s[i], 84), 0);
		sh_compute(cl, s[i], 84, 97, 9);
	}
	ck_assert_uint_ne(block_at(s[0], 1, 5), block_at(s[1], 1, 5));
	ck_assert_uint_ne(shown(s[0], 1, 5), shown(s[1], 1, 5));
	for (i = 0; i < 2; i++) {
		seq = ready_of(98, first[i], 7, 9);
		ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 96);
		ck_assert_uint_eq(block_at(seq, 1, 5), block_at(s[i], 1, 5));
	}
}
END_TEST

static u64 ready_with_salt(u64 salt, u32 len, u32 cut)
{
	struct kvmm_open_arg a = { .prompt_len = len, .salt = salt };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match_piece(cl, seq, 0, cut, 0, 7), 0);
	ck_assert_int_eq(sh_match_piece(cl, seq, cut, len - cut, KVMM_MATCH_LAST, 9), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	return seq;
}

/* The same within the first block of group 0: users with other salts share nothing. */
START_TEST(test_name_in_the_first_block)
{
	const struct shape small[] = { { 48, 0 }, { 16, 5 } };
	u64 seq, s[2];
	u32 i;

	sh_stop();
	groups_start(32, 128, 2, small);
	for (i = 0; i < 2; i++) {
		seq = ready_with_salt(i, 49, 48);
		sh_compute(cl, seq, 0, 49, 7);
		ck_assert_int_eq(sh_close(cl, seq), 0);
		s[i] = ready_with_salt(i, 49, 48);
		ck_assert_uint_eq(sh_status(cl, s[i])->cached_len, 48);
		tab_has(s[i], 1, 3, 2);
		ck_assert_int_eq(truncate_to(s[i], 36), 0);
		sh_compute(cl, s[i], 36, 49, 9);
	}
	ck_assert_uint_ne(block_at(s[0], 1, 2), block_at(s[1], 1, 2));
	for (i = 0; i < 2; i++) {
		seq = ready_with_salt(i, 49, 36);
		ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 48);
		ck_assert_uint_eq(block_at(seq, 1, 2), block_at(s[i], 1, 2));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_groups_match");
	TCase *tc = tcase_create("match");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_length, 0, 9);
	tcase_add_test(tc, test_others);
	tcase_add_test(tc, test_tables);
	tcase_add_test(tc, test_reservation);
	tcase_add_loop_test(tc, test_lacks_a_block, 0, ARRAY_SIZE(lacks));
	tcase_add_test(tc, test_evicted_alone);
	tcase_add_loop_test(tc, test_other_group, 0, 3);
	tcase_add_loop_test(tc, test_name_after_a_hit, 0, 2);
	tcase_add_test(tc, test_name_in_the_first_block);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
