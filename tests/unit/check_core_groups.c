// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_groups.c - layer groups: attach, reservations and grants
 *
 * Windows: check_core_groups_window.c.  The life of a sequence with several tables:
 * check_core_groups_life.c.  Prefixes that all groups have: check_core_groups_match.c.
 */
#include "tests/unit/groups_scene.h"

/* Two groups of 16 tokens a block; the second has a window of 32. */
static const struct shape pair[] = { { 16, 0 }, { 16, 32 } };

static void teardown(void)
{
	sh_stop();
}

/* ---- attach ---- */

START_TEST(test_shape)
{
	const struct shape shapes[] = { { 0, 0 }, { 32, 0 }, { 48, 7 } };
	struct kvmm_attach_req req = groups_req("d", 0, 3, shapes);
	const struct core_attach_info *info;

	sh_config(16);
	sh_start();
	c = sh.core;
	req.group[0].layers = 2;
	req.group[1].layers = 3;
	req.group[1].v_bytes = 0;
	req.group[1].scale_bytes = 5;
	cl = (u32)sh_attach_as(1, &req);
	info = &sh.cl[cl].info;
	/* 64 bytes a token, 37 without V and with one scale, 64; layers by 128. */
	ck_assert_uint_eq(info->stride[0], 1024);
	ck_assert_uint_eq(info->stride[1], 1280);
	ck_assert_uint_eq(info->stride[2], 3072);
	ck_assert_uint_eq(info->stride[3], 0);
	ck_assert_uint_eq(info->block_bytes, 3 * 1280);
	ck_assert_uint_eq(domain()->nr_groups, 3);
	ck_assert_uint_eq(domain()->group[0].block_tokens, 16);
	ck_assert_uint_eq(domain()->group[1].block_tokens, 32);
	ck_assert_uint_eq(domain()->group[2].block_tokens, 48);
	ck_assert_uint_eq(domain()->group[2].window, 7);
	ck_assert_uint_eq(domain()->ids_tokens, 48);
	ck_assert_uint_eq(domain()->base_tokens, 16);
	ck_assert_uint_eq(domain()->hit_tokens, 96);
}
END_TEST

static const struct {
	u32 nr;
	struct shape shapes[3];
	const char *text;
} bad_shapes[] = {
	{ 0, { { 16, 0 } }, "a layout has 1 to 8 layer groups" },
	{ 9, { { 16, 0 } }, "a layout has 1 to 8 layer groups" },
	{ 2, { { 16, 1 }, { 16, 0 } },
	  "layer group 0 must not have a window: put layers that attend to all tokens first" },
	{ 2, { { 16, 0 }, { 8, 0 } }, "a layer group of the layout is out of bounds" },
	{ 2, { { 16, 0 }, { 24, 0 } }, "a layer group of the layout is out of bounds" },
	{ 2, { { 16, 0 }, { 4112, 0 } }, "a layer group of the layout is out of bounds" },
	/* 65 * 64 = 4160 */
	{ 2, { { 1040, 0 }, { 64, 0 } },
	  "the least common multiple of the groups' block_tokens is above 4096" },
	/* Without a bound it is 3856 * 3888 * 3920 / 256, and the product of two fits. */
	{ 3, { { 3856, 0 }, { 3888, 0 }, { 3920, 0 } },
	  "the least common multiple of the groups' block_tokens is above 4096" },
	{ 2, { { 4096, 0 }, { 16, 5 } }, NULL },
	{ 2, { { 1024, 0 }, { 4096, 0 } }, NULL },
	{ 2, { { 4080, 0 }, { 16, 0 } }, NULL },
};

START_TEST(test_refused)
{
	struct kvmm_attach_req req = groups_req("d", 0, min(bad_shapes[_i].nr, 3u),
						bad_shapes[_i].shapes);
	struct core_attach_info info = { 0 };
	u8 secret[CORE_SECRET_LEN] = { 0 };
	u32 g;
	int err;

	sh_config(16);
	sh.cfg.min_token_bytes = 8;
	sh_start();
	for (g = 0; g < 3; g++) {
		req.group[g].k_bytes = 4;
		req.group[g].v_bytes = 4;
	}
	req.nr_groups = bad_shapes[_i].nr;
	SH_CORE(err = core_client_attach(sh.core, sh.now, 1, secret, &req, &info));
	if (!bad_shapes[_i].text) {
		ck_assert_msg(!err, "%d: %s", err, info.text);
		return;
	}
	ck_assert_int_eq(err, -EINVAL);
	ck_assert_str_eq(info.text, bad_shapes[_i].text);
}
END_TEST

/* Other groups are another model: it replaces one without clients. */
START_TEST(test_another_model)
{
	const struct shape same[] = { { 16, 0 }, { 0, 32 } };
	const struct shape other[][3] = { { { 16, 0 }, { 16, 33 } },
					  { { 16, 0 }, { 32, 32 } },
					  { { 16, 0 }, { 16, 32 }, { 16, 32 } } };
	struct kvmm_attach_req req = groups_req("d", 0, 2, same);
	u64 seq;
	u32 id;

	groups_start(16, 0, 2, pair);
	id = (u32)sh_attach_as(1, &req);
	ck_assert_uint_eq(sh.cl[id].info.domain, sh.cl[cl].info.domain);
	sh_settle();
	sh_die(id);
	sh_quiet(id);
	req = groups_req("d", 0, _i == 2 ? 3 : 2, other[_i]);
	ck_assert_int_eq(sh_attach_as(1, &req), -EEXIST);
	seq = runs(64, 0, 1);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	sh_die(cl);
	sh_quiet(cl);
	cl = (u32)sh_attach_as(1, &req);
	ck_assert_uint_eq(sh.cl[cl].info.dropped_blocks, 8);
	ck_assert_uint_eq(domain()->nr_groups, req.nr_groups);
	ck_assert_uint_eq(domain()->group[1].window, other[_i][1].window);
	sh_settle();
}
END_TEST

/* A client that finds the domain without others says how much its steps write. */
START_TEST(test_another_step)
{
	const struct shape shapes[] = { { 16, 0 }, { 16, 32 } };
	struct kvmm_attach_req req = groups_req("d", 96, 2, shapes);
	u32 other;

	groups_start(16, 32, 2, shapes);
	other = (u32)sh_attach_as(1, &req);
	ck_assert_uint_eq(domain()->step_tokens, 32);
	sh_quiet(other);
	sh_quiet(cl);
	cl = (u32)sh_attach_as(1, &req);
	ck_assert_uint_eq(domain()->step_tokens, 96);
}
END_TEST

/* The ids of the longest block stand beside the bytes that blocks of all groups have. */
START_TEST(test_least_bytes)
{
	const struct shape small[] = { { 16, 0 }, { 32, 0 } };
	struct kvmm_attach_req req = groups_req("d", 0, 2, small);
	struct core_attach_info info = { 0 };
	u8 secret[CORE_SECRET_LEN] = { 0 };
	int err;

	sh_config(16);
	sh_start();
	req.group[1].k_bytes = _i ? 64 : 60;
	req.group[1].v_bytes = 0;
	SH_CORE(err = core_client_attach(sh.core, sh.now, 1, secret, &req, &info));
	ck_assert_int_eq(err, _i ? 0 : -EINVAL);
	ck_assert_uint_eq(info.small_token, _i ? 0 : 60);
}
END_TEST

START_TEST(test_eight_groups)
{
	struct shape all[KVMM_MAX_GROUPS];
	const struct kvmm_seq_status *st;
	u64 seq;
	u32 g;

	for (g = 0; g < KVMM_MAX_GROUPS; g++)
		all[g] = (struct shape){ g % 2 ? 32 : 16, g < 4 ? 0 : 8 * g };
	groups_start(64, 128, KVMM_MAX_GROUPS, all);
	seq = runs(100, 20, 1);
	st = sh_status(cl, seq);
	for (g = 0; g < KVMM_MAX_GROUPS; g++) {
		ck_assert_uint_eq(sh.cl[cl].tables[st->table[g]].group, g);
		tab_has(seq, g, g % 2 ? 4 : 7, g < 4 ? 0 : (101 - 8 * g) / all[g].tokens);
	}
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(finds(101, 1), 96);
}
END_TEST

/* ---- open ---- */

static int open_error(u32 prompt, u32 more)
{
	struct kvmm_open_arg a = { .prompt_len = prompt, .max_tokens = more };
	u64 seq;
	int err = sh_open_as(cl, &a, &seq);

	if (!err)
		ck_assert_int_eq(sh_close(cl, seq), 0);
	return err;
}

/*
 * 16 blocks.  Each of two windows needs 32 + @step_tokens tokens, in as many blocks
 * and one more, however long the sequence is.  The first group gets the rest.
 */
START_TEST(test_longest)
{
	const struct shape shapes[] = { { 16, 0 }, { 16, 32 }, { 16, 32 } };
	const u32 step[] = { 16, 17, 0, 64 }, most[] = { 8, 6, 6, 5 };

	groups_start(4, step[_i], 3, shapes);
	ck_assert_int_eq(open_error(16 * most[_i], 0), 0);
	ck_assert_int_eq(open_error(16 * most[_i] + 1, 0), -E2BIG);
	ck_assert_int_eq(open_error(16, 16 * most[_i] - 16), 0);
	ck_assert_int_eq(open_error(16, 16 * most[_i] - 15), -E2BIG);
}
END_TEST

/* Blocks behind a window have table entries, so each group needs its pages. */
START_TEST(test_longest_table)
{
	const struct shape shapes[] = { { 16, 0 }, { 16, 16 }, { 16, 16 } };
	const u32 one = KVMM_TABLE_ENTRIES * 16;

	sh_config(60);
	sh.cfg.nr_tables = _i ? 6 : 5;
	sh.cfg.nr_idpages = 4096;
	sh_start();
	c = sh.core;
	cl = groups_attach(16, 3, shapes);
	ck_assert_int_eq(open_error(one, 0), 0);
	ck_assert_int_eq(open_error(one, 1), _i ? 0 : -E2BIG);
}
END_TEST

/* ---- admission ---- */

START_TEST(test_reservations)
{
	const struct kvmm_seq_status *st;
	u64 seq;
	u32 g;

	groups_start(8, 16, 2, pair);
	seq = sh_ready(cl, 160, 160, 1);
	st = sh_status(cl, seq);
	ck_assert_uint_eq(tab(seq, 0)->reserved, 10);
	ck_assert_uint_eq(tab(seq, 0)->prompt_blocks, 0);
	ck_assert_uint_eq(tab(seq, 1)->reserved, 4);
	ck_assert_uint_eq(tab(seq, 1)->resv_blocks, 4);
	ck_assert_uint_eq(tab(seq, 1)->prompt_blocks, 10);
	ck_assert_uint_eq(domain()->dev.reserved, 14);
	for (g = 0; g < KVMM_MAX_GROUPS; g++)
		ck_assert_uint_eq(st->table[g], KVMM_NO_INDEX);
	ck_assert_int_eq(sh_begin(cl, seq, 0, 16), 0);
	for (g = 0; g < 2; g++) {
		ck_assert_uint_ne(st->table[g], KVMM_NO_INDEX);
		ck_assert_uint_eq(sh.cl[cl].tables[st->table[g]].group, g);
		ck_assert_uint_eq(sh.cl[cl].tables[st->table[g]].seq, seq);
		ck_assert_uint_eq(c->blocks[block_at(seq, g, 0)].group, g);
	}
	ck_assert_uint_ne(shown(seq, 0, 0), shown(seq, 1, 0));
	ck_assert_uint_eq(st->table[2], KVMM_NO_INDEX);
	ck_assert_uint_eq(domain()->dev.reserved, 12);
	ck_assert_int_eq(sh_end(cl, seq, 0, 16, 1), 0);
}
END_TEST

/* The most blocks that tables can still take: fewer where a window is full. */
START_TEST(test_growth)
{
	u64 seq;
	u32 i;

	groups_start(8, 16, 2, pair);
	seq = sh_ready(cl, 160, 160, 1);
	ck_assert_uint_eq(domain()->growth, 20 + 4);
	for (i = 0; i < 20; i++) {
		sh_compute(cl, seq, 16 * i, 16 * i + 16, 1);
		ck_assert_uint_eq(domain()->growth, 19 - i +
				  min(19 - i, i ? 2u : 3u));
	}
	tab_has(seq, 0, 20, 0);
	tab_has(seq, 1, 20, 18);
}
END_TEST

/* A block that TRIM gives back before its window ends can be taken again. */
START_TEST(test_growth_after_trim)
{
	u64 seq;

	groups_start(8, 16, 2, pair);
	seq = runs(46, 100, 1);
	ck_assert_uint_eq(domain()->growth, 7 + 1);
	ck_assert_int_eq(trim(seq, 16), 0);
	tab_has(seq, 0, 3, 1);
	tab_has(seq, 1, 3, 1);
	ck_assert_uint_eq(domain()->growth, 7 + 2);
}
END_TEST

/* A sequence waits until its client has pages for the tables of all groups. */
START_TEST(test_pages)
{
	u64 a, b;

	sh_config(8);
	sh.cfg.nr_tables = 3;
	sh_start();
	c = sh.core;
	cl = groups_attach(16, 2, pair);
	a = sh_ready(cl, 16, 0, 1);
	b = sh_open(cl, 16, 0);
	ck_assert_int_eq(sh_match(cl, b, 16, 1000), 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
}
END_TEST

/* ---- steps ---- */

/* One result a group: the lowest index that changed is that of the group's table. */
START_TEST(test_results)
{
	const struct shape shapes[] = { { 16, 0 }, { 32, 0 }, { 48, 20 } };
	const u32 low[][3] = { { 0, 0, 0 }, { 1, KVMM_NO_INDEX, KVMM_NO_INDEX },
			       { 2, 1, KVMM_NO_INDEX }, { 3, KVMM_NO_INDEX, 1 } };
	struct kvmm_begin_res res[2 * 3];
	struct kvmm_begin_arg a[2];
	u64 seq, other;
	u32 i, g;

	groups_start(32, 16, 3, shapes);
	seq = sh_ready(cl, 64, 0, 1);
	for (i = 0; i < 4; i++) {
		ck_assert_int_eq(begin(seq, 16 * i, 16, res), 0);
		for (g = 0; g < 3; g++) {
			ck_assert_int_eq(res[g].status, 0);
			ck_assert_uint_eq(res[g].valid_len, 16 * i);
			ck_assert_uint_eq(res[g].table_lo, low[i][g]);
			ck_assert_uint_eq(res[g].copy_tokens, 0);
		}
		ck_assert_int_eq(sh_end(cl, seq, 16 * i, 16 * i + 16, 1), 0);
	}
	/* The second entry is refused: each of its results says so. */
	other = sh_ready(cl, 20, 0, 1000);
	a[0] = sh_entry(cl, other, 0, 20);
	a[1] = sh_entry(cl, seq, 64, 1);
	memcpy(sh.args, a, sizeof(a));
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_STEP_BEGIN, 2, ++sh.cl[cl].step,
				   sizeof(a)), 0);
	memcpy(res, sh.results, sizeof(res));
	for (g = 0; g < 3; g++) {
		ck_assert_int_eq(res[g].status, 0);
		ck_assert_uint_eq(res[g].table_lo, 0);
		ck_assert_int_eq(res[3 + g].status, -EINVAL);
		ck_assert_uint_eq(res[3 + g].table_lo, KVMM_NO_INDEX);
		ck_assert_uint_eq(res[3 + g].valid_len, 64);
	}
}
END_TEST

/* Tokens that are not computed are rolled back in each group. */
START_TEST(test_rollback)
{
	const struct shape shapes[] = { { 16, 0 }, { 32, 0 } };
	u64 seq;

	groups_start(8, 0, 2, shapes);
	/* Make memory for growth: 16 blocks. */
	ck_assert_int_eq(sh_close(cl, runs(160, 0, 1000)), 0);
	seq = sh_ready(cl, 20, 100, 1);
	ck_assert_int_eq(sh_begin(cl, seq, 0, 100), 0);
	tab_has(seq, 0, 7, 0);
	tab_has(seq, 1, 4, 0);
	ck_assert_int_eq(sh_end(cl, seq, 0, 20, 1), 0);
	tab_has(seq, 0, 2, 0);
	tab_has(seq, 1, 1, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgrollback), 8);
}
END_TEST

/*
 * All of the pool would not hold the blocks of two open steps.  When the first ends, its
 * blocks behind the window are given back, so the second one may be asked for again.
 */
START_TEST(test_no_room_beside_a_step)
{
	u64 seq, first;

	groups_start(4, 16, 2, pair);
	ck_assert_int_eq(sh_close(cl, sh_ready(cl, 192, 0, 1000)), 0);
	seq = sh_ready(cl, 20, 172, 1);
	ck_assert_int_eq(sh_begin(cl, seq, 0, 96), 0);
	first = sh.cl[cl].step;
	ck_assert_int_eq(sh_begin(cl, seq, 96, 48), -EAGAIN);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_end_step(cl, first, seq, 0, 96, 1), 0);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	tab_has(seq, 1, 6, 4);
	ck_assert_int_eq(sh_begin(cl, seq, 96, 64), 0);
	ck_assert_int_eq(sh_end(cl, seq, 96, 160, 1), 0);
	/* 10 and 2 blocks, and twice 3. */
	ck_assert_int_eq(sh_begin(cl, seq, 160, 32), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_groups");
	TCase *tc = tcase_create("groups");

	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, test_shape);
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_SIZE(bad_shapes));
	tcase_add_loop_test(tc, test_another_model, 0, 3);
	tcase_add_test(tc, test_another_step);
	tcase_add_loop_test(tc, test_least_bytes, 0, 2);
	tcase_add_test(tc, test_eight_groups);
	tcase_add_loop_test(tc, test_longest, 0, 4);
	tcase_add_loop_test(tc, test_longest_table, 0, 2);
	tcase_add_test(tc, test_reservations);
	tcase_add_test(tc, test_growth);
	tcase_add_test(tc, test_growth_after_trim);
	tcase_add_test(tc, test_pages);
	tcase_add_test(tc, test_results);
	tcase_add_test(tc, test_rollback);
	tcase_add_test(tc, test_no_room_beside_a_step);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
