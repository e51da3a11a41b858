// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_groups_life.c - layer groups: the life of a sequence with several tables
 *
 * TRUNCATE, TRIM, FORK, REMAP, preemption, swap, blocks that move, and the verbs that
 * take one group alone.  Adoption: check_core_groups_adopt.c.
 */
#include "tests/unit/groups_scene.h"

/* Two groups; the second has twice the tokens a block, and a window. */
static const struct shape shapes[] = { { 16, 0 }, { 32, 40 } };

static void setup(void)
{
	setup_with(200, 2, shapes);
}

static void teardown(void)
{
	sh_stop();
}

/* ---- TRUNCATE and TRIM ---- */

/* 140 tokens: the window has 96 and after it, which serve position 135 and after it. */
START_TEST(test_truncate)
{
	u64 seq = runs(140, 20, 1);

	tab_has(seq, 0, 9, 0);
	tab_has(seq, 1, 5, 3);
	ck_assert_int_eq(truncate_to(seq, 134), -EINVAL);
	ck_assert_int_eq(truncate_to(seq, 0), -EINVAL);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 140);
	tab_has(seq, 1, 5, 3);
	ck_assert_int_eq(truncate_to(seq, 135), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 135);
	sh_compute(cl, seq, 135, 150, 2);
	tab_has(seq, 0, 10, 0);
	tab_has(seq, 1, 5, 3);
}
END_TEST

/* Before a window has lost a block, every length will do. */
START_TEST(test_truncate_early)
{
	u64 seq = runs(70, 20, 1);

	tab_has(seq, 1, 3, 0);
	ck_assert_int_eq(truncate_to(seq, 33), 0);
	tab_has(seq, 0, 3, 0);
	tab_has(seq, 1, 2, 0);
	ck_assert_int_eq(truncate_to(seq, 32), 0);
	tab_has(seq, 0, 2, 0);
	tab_has(seq, 1, 1, 0);
	ck_assert_int_eq(truncate_to(seq, 0), 0);
	tab_has(seq, 0, 0, 0);
	tab_has(seq, 1, 0, 0);
	ck_assert_uint_eq(sh_status(cl, seq)->table[1], KVMM_NO_INDEX);
}
END_TEST

START_TEST(test_trim)
{
	const struct shape three[] = { { 16, 0 }, { 32, 0 }, { 16, 100 } };
	u64 seq;

	sh_stop();
	setup_with(200, 3, three);
	seq = runs(110, 20, 1);
	tab_has(seq, 2, 7, 0);
	ck_assert_int_eq(trim(seq, 63), 0);
	tab_has(seq, 0, 7, 3);
	tab_has(seq, 1, 4, 1);
	tab_has(seq, 2, 7, 3);
	ck_assert_uint_eq(shown(seq, 0, 2), KVMM_NO_INDEX);
	ck_assert_uint_eq(shown(seq, 1, 0), KVMM_NO_INDEX);
	ck_assert_uint_ne(shown(seq, 1, 1), KVMM_NO_INDEX);
	ck_assert_uint_eq(sh_count(CORE_EV_pgtrim), 7);
	/* The window of 129 tokens begins at 30, before the blocks that are there. */
	sh_compute(cl, seq, 110, 129, 1);
	tab_has(seq, 2, 9, 3);
}
END_TEST

/* The block after a trimmed one gets the parent of its own group. */
START_TEST(test_parents)
{
	const struct shape three[] = { { 16, 0 }, { 16, 0 }, { 16, 20 } };
	u32 g, node, up;
	u64 seq;

	sh_stop();
	setup_with(200, 3, three);
	seq = runs(64, 64, 1);
	ck_assert_int_eq(trim(seq, 64), 0);
	sh_compute(cl, seq, 64, 80, 1);
	for (g = 0; g < 2; g++) {
		node = index_node(c, block_at(seq, g, 4));
		ck_assert_uint_ne(node, CORE_NONE);
		up = c->nodes[node].parent;
		ck_assert_uint_ne(up, CORE_NONE);
		ck_assert_uint_eq(index_group(c, c->nodes[up].ref), g);
	}
	tab_has(seq, 2, 5, 4);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(finds(81, 1), 80);
}
END_TEST

/* ---- FORK and REMAP ---- */

/* Each group's tail is copied, but for the last sequence that has it. */
START_TEST(test_fork)
{
	struct kvmm_begin_res res[2];
	u64 seq = runs(140, 20, 1), kid;
	u32 g, tail[2], from[2];

	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	tab_has(kid, 0, 9, 0);
	tab_has(kid, 1, 5, 3);
	for (g = 0; g < 2; g++) {
		tail[g] = block_at(seq, g, tab(seq, g)->nr_blocks - 1);
		from[g] = shown(seq, g, tab(seq, g)->nr_blocks - 1);
		ck_assert_uint_eq(c->blocks[tail[g]].nr_map, 2);
	}
	ck_assert_int_eq(begin(kid, 140, 1, res), 0);
	for (g = 0; g < 2; g++) {
		u32 idx = tab(kid, g)->nr_blocks - 1;

		ck_assert_uint_eq(res[g].copy_tokens, 12);
		ck_assert_uint_eq(res[g].copy_from, from[g]);
		ck_assert_uint_eq(res[g].copy_to, shown(kid, g, idx));
		ck_assert_uint_eq(res[g].table_lo, idx);
		ck_assert_uint_ne(block_at(kid, g, idx), tail[g]);
		ck_assert_uint_eq(c->blocks[block_at(kid, g, idx)].group, g);
		ck_assert_uint_eq(c->blocks[tail[g]].nr_src, 1);
	}
	ck_assert_int_eq(sh_end(cl, kid, 140, 141, 5), 0);
	for (g = 0; g < 2; g++)
		ck_assert_uint_eq(c->blocks[tail[g]].nr_src, 0);
	ck_assert_int_eq(begin(seq, 140, 1, res), 0);
	for (g = 0; g < 2; g++) {
		ck_assert_uint_eq(res[g].copy_tokens, 0);
		ck_assert_uint_eq(block_at(seq, g, tab(seq, g)->nr_blocks - 1), tail[g]);
	}
}
END_TEST

static int remap(u64 child, u64 other, bool both)
{
	struct kvmm_remap_arg *a = (struct kvmm_remap_arg *)sh.args;
	u32 nr = both ? 2 : 1;
	int err;

	a[0] = (struct kvmm_remap_arg){ .child = child, .other = other };
	a[1] = (struct kvmm_remap_arg){ .child = other, .other = child };
	err = sh_submit(cl, KVMM_OP_SEQ_REMAP, nr, 0, nr * (u32)sizeof(*a));
	if (!err)
		err = sh_seq_res(0);
	sh_settle();
	return err;
}

/* One becomes the other, or they change places, with other lengths and windows. */
START_TEST(test_remap)
{
	struct picture was[2], is;
	u64 seq = runs(70, 100, 1), kid;

	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	sh_compute(cl, kid, 70, 140, 5);
	was[0] = picture_of(seq);
	was[1] = picture_of(kid);
	ck_assert_uint_eq(was[0].trimmed[1], 0);
	ck_assert_uint_eq(was[1].trimmed[1], 3);
	if (_i)
		ck_assert_int_eq(remap(seq, kid, _i == 2), 0);
	else
		ck_assert_int_eq(remap(kid, seq, false), 0);
	is = picture_of(_i ? seq : kid);
	ck_assert(!memcmp(&is, &was[_i ? 1 : 0], sizeof(is)));
	is = picture_of(_i ? kid : seq);
	ck_assert(!memcmp(&is, &was[_i == 1 ? 1 : 0], sizeof(is)));
	sh_compute(cl, seq, sh_status(cl, seq)->valid_len, 160, 6);
	sh_compute(cl, kid, sh_status(cl, kid)->valid_len, 160, 7);
	tab_has(seq, 1, 5, 3);
	tab_has(kid, 1, 5, 3);
}
END_TEST

/* ---- preemption ---- */

START_TEST(test_recompute)
{
	u64 seq;
	u32 g;

	sh_stop();
	setup_with(0, 2, shapes);
	seq = sh_ready(cl, 200, 20, 1);
	sh_compute(cl, seq, 0, 128, 1);
	tab_has(seq, 1, 4, 2);
	family_mark(c, record(seq), CORE_CAUSE_grow, NULL);
	sh_check();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	for (g = 0; g < 2; g++) {
		tab_has(seq, g, 0, 0);
		ck_assert_uint_eq(tab(seq, g)->reserved, 0);
		ck_assert_uint_eq(tab(seq, g)->prompt_blocks, 0);
		ck_assert_uint_eq(sh_status(cl, seq)->table[g], KVMM_NO_INDEX);
	}
	ck_assert_uint_eq(domain()->dev.reserved, 0);
	ck_assert_uint_eq(domain()->growth, 0);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 8 + 4);
	ck_assert_int_eq(sh_match(cl, seq, 200, 1), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 128);
	tab_has(seq, 0, 8, 0);
	tab_has(seq, 1, 4, 2);
	sh_compute(cl, seq, 128, 200, 1);
	tab_has(seq, 1, 7, 5);
}
END_TEST

/* Blocks of all groups go to the host pool, and come back; trimmed entries stay none. */
START_TEST(test_swap)
{
	u64 seq = runs(140, 60, 1);
	u32 g, i;

	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(nr_copies, 9 + 2);
	do_copies();
	evict_all();
	for (g = 0; g < 2; g++)
		for (i = tab(seq, g)->trimmed; i < tab(seq, g)->nr_blocks; i++) {
			kv_pte_t pte = table_pte(c, tab(seq, g), i);

			ck_assert(pte_is_entry(pte));
			ck_assert_uint_eq(c->entries_low[pte_block(pte)].group, g);
			ck_assert_uint_eq(shown(seq, g, i), KVMM_NO_INDEX);
		}
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	ck_assert_uint_eq(nr_copies, 9 + 2);
	do_copies();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	tab_has(seq, 0, 9, 0);
	tab_has(seq, 1, 5, 3);
	for (g = 0; g < 2; g++)
		for (i = tab(seq, g)->trimmed; i < tab(seq, g)->nr_blocks; i++)
			ck_assert_uint_eq(c->blocks[block_at(seq, g, i)].group, g);
	ck_assert_uint_eq(shown(seq, 1, 2), KVMM_NO_INDEX);
	sh_compute(cl, seq, 140, 170, 1);
	tab_has(seq, 1, 6, 4);
}
END_TEST

/* It is READY when the last block of the last group is there. */
START_TEST(test_restore_ends)
{
	u64 seq = runs(140, 60, 1);
	u32 left;

	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
	do_copies();
	evict_all();
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	for (left = nr_copies; left; left--) {
		u64 id = copies[nr_copies - left].id;

		ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
		SH_CORE(core_copy_done(sh.core, sh.now, id, 0));
		sh_settle();
	}
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/* A prompt finds content of all groups in the host pool. */
START_TEST(test_found_in_the_host_pool)
{
	u64 seq;

	swap_prompt(&seq);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	seq = sh_open(cl, 134, 0);
	ck_assert_int_eq(sh_match(cl, seq, 134, 1), 0);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 128);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	ck_assert_uint_eq(nr_copies, 8 + 2);
	tab_has(seq, 0, 8, 0);
	tab_has(seq, 1, 4, 2);
	do_copies();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(c->blocks[block_at(seq, 0, 3)].group, 0);
	ck_assert_uint_eq(c->blocks[block_at(seq, 1, 3)].group, 1);
}
END_TEST

/* ---- blocks that move ---- */

/* The tables of all groups name the new blocks, and prompts find them. */
START_TEST(test_moved)
{
	u64 seq = runs(140, 60, 1);
	u32 g, i, old[2], span;

	for (g = 0; g < 2; g++)
		old[g] = block_at(seq, g, 3);
	for (g = 0; g < 2; g++) {
		span = block_span(c, old[g]);
		if (block_at(seq, g, 3) != old[g])
			continue;
		ck_assert(evacuate_span(c, span, true));
		ck_assert_uint_ge(nr_copies, 1);
		for (i = 0; i < nr_copies; i++)
			ck_assert(copies[i].within);
		do_copies();
	}
	for (g = 0; g < 2; g++) {
		ck_assert_uint_ne(block_at(seq, g, 3), old[g]);
		ck_assert_uint_eq(c->blocks[block_at(seq, g, 3)].group, g);
	}
	sh_compute(cl, seq, 140, 150, 1);
	tab_has(seq, 1, 5, 3);
	ck_assert_uint_eq(finds(140, 1), 128);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_groups_life");
	TCase *tc = tcase_create("life");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_truncate);
	tcase_add_test(tc, test_truncate_early);
	tcase_add_test(tc, test_trim);
	tcase_add_test(tc, test_parents);
	tcase_add_test(tc, test_fork);
	tcase_add_loop_test(tc, test_remap, 0, 3);
	tcase_add_test(tc, test_recompute);
	tcase_add_test(tc, test_swap);
	tcase_add_test(tc, test_restore_ends);
	tcase_add_test(tc, test_found_in_the_host_pool);
	tcase_add_test(tc, test_moved);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
