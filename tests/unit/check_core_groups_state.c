// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_groups_state.c - layer groups of records that each token changes
 *
 * A record of the tests has six units of 1000 bytes.  Two fit a block, so it takes three
 * blocks.  The core keeps one each 32 tokens.
 */
#include "tests/unit/groups_scene.h"

#define WIDTH	3u

static struct kvmm_attach_req state_req(void)
{
	const struct shape shapes[] = { { 32, 0 }, { 32, 0 } };
	struct kvmm_attach_req req = groups_req("d", 64, 2, shapes);

	req.group[1] = (struct kvmm_group){
		.kind = KVMM_GROUP_STATE, .layers = 3, .kv_heads = 2, .k_bytes = 1000,
		.block_tokens = 32,
	};
	return req;
}

static void start(u32 extents, u64 host_bytes)
{
	struct kvmm_attach_req req = state_req();
	int id;

	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	sh_config(extents);
	sh.cfg.starve_ns = 3600000 * MS;
	sh.cfg.host_bytes = host_bytes;
	sh.cfg.swappiness = host_bytes ? 200 : 0;
	sh_start();
	c = sh.core;
	id = sh_attach_as(1, &req);
	ck_assert_int_ge(id, 0);
	cl = (u32)id;
	sh_settle();
	make_memory();
}

static void setup(void)
{
	start(24, 64 * SLOT);
}

static void teardown(void)
{
	sh_stop();
}

/* A step reads the record at table index @from and writes the one at @to first. */
static void begins(u64 seq, u32 start_at, u32 tokens, u32 from, u32 to)
{
	struct kvmm_begin_res res[2];

	ck_assert_int_eq(begin(seq, start_at, tokens, res), 0);
	ck_assert_uint_eq(res[1].copy_from, from);
	ck_assert_uint_eq(res[1].copy_to, to);
	ck_assert_uint_eq(res[1].copy_tokens, 0);
}

static void ends(u64 seq, u32 from, u32 to, u32 seed)
{
	ck_assert_int_eq(sh_end(cl, seq, from, to, seed), 0);
}

/* The blocks of the record at a table index. */
static void record_at(u64 seq, u32 idx, u32 *blk)
{
	u32 i;

	for (i = 0; i < WIDTH; i++)
		blk[i] = block_at(seq, 1, idx + i);
}

static void is_record(u64 seq, u32 idx, const u32 *blk)
{
	u32 i;

	for (i = 0; i < WIDTH; i++) {
		ck_assert_uint_eq(block_at(seq, 1, idx + i), blk[i]);
		ck_assert_uint_eq(shown(seq, 1, idx + i), block_entry(c, blk[i]));
	}
}

/* ---- attach ---- */

START_TEST(test_shape)
{
	const struct core_attach_info *info = &sh.cl[cl].info;

	ck_assert_uint_eq(info->stride[0], 2048);
	ck_assert_uint_eq(info->stride[1], 1024);
	ck_assert_uint_eq(info->block_bytes, 2048);
	ck_assert_uint_eq(domain()->width[0], 1);
	ck_assert_uint_eq(domain()->width[1], WIDTH);
	ck_assert_uint_eq(domain()->window[1], 2);
	ck_assert_uint_eq(domain()->group[1].window, 0);
	ck_assert_uint_eq(domain()->hit_tokens, 32);
}
END_TEST

static const struct {
	struct kvmm_group group;
	u32 at;
	const char *text;
} bad_shapes[] = {
	{ { .layers = 1, .kv_heads = 1, .k_bytes = 64 }, 0,
	  "layer group 0 must not have records of state: put layers that attend to all tokens first" },
	{ { .layers = 1, .kv_heads = 1, .k_bytes = 64, .v_bytes = 1 }, 1,
	  "a layer group of the layout is out of bounds" },
	{ { .layers = 1, .kv_heads = 1, .k_bytes = 64, .scale_bytes = 1 }, 1,
	  "a layer group of the layout is out of bounds" },
	{ { .layers = 1, .kv_heads = 1, .k_bytes = 64, .window = 16 }, 1,
	  "a layer group of the layout is out of bounds" },
	{ { .layers = 1, .kv_heads = 1, .k_bytes = (1 << 20) + 1 }, 1,
	  "a layer group of the layout is out of bounds" },
	{ { .layers = 1, .kv_heads = 0, .k_bytes = 64 }, 1,
	  "a layer group of the layout is out of bounds" },
	{ { .layers = 1, .kv_heads = 1, .k_bytes = 64, .block_tokens = 40 }, 1,
	  "a layer group of the layout is out of bounds" },
	/* 4096 * 3 units, two in a block */
	{ { .layers = 3, .kv_heads = 4096, .k_bytes = 1000 }, 1,
	  "a record of state takes more than 4096 blocks: use blocks of more tokens" },
	{ { .layers = 2, .kv_heads = 4096, .k_bytes = 1000 }, 1, NULL },
};

START_TEST(test_refused)
{
	struct core_attach_info info = { 0 };
	struct kvmm_attach_req req = state_req();
	u8 secret[CORE_SECRET_LEN] = { 0 };
	int err;

	req.domain[0] = 'e';
	req.identity[0] = 9;
	req.group[bad_shapes[_i].at] = bad_shapes[_i].group;
	req.group[bad_shapes[_i].at].kind = KVMM_GROUP_STATE;
	SH_CORE(err = core_client_attach(sh.core, sh.now, 1, secret, &req, &info));
	if (!bad_shapes[_i].text) {
		ck_assert_msg(!err, "%d: %s", err, info.text);
		return;
	}
	ck_assert_int_eq(err, -EINVAL);
	ck_assert_str_eq(info.text, bad_shapes[_i].text);
}
END_TEST

/* ---- steps ---- */

/* Each token needs the record before it, so those before that are given back. */
START_TEST(test_records)
{
	u64 seq = sh_ready(cl, 100, 40, 1);

	begins(seq, 0, 20, KVMM_NO_INDEX, 0);
	tab_has(seq, 1, 3, 0);
	ends(seq, 0, 20, 1);
	begins(seq, 20, 12, 0, 0);
	ends(seq, 20, 32, 1);
	tab_has(seq, 1, 3, 0);
	ck_assert_uint_eq(c->blocks[block_at(seq, 1, 0)].state, BLK_SEALED);
	/* Behind a full record a new one is written. */
	begins(seq, 32, 1, 0, 3);
	tab_has(seq, 1, 6, 0);
	ends(seq, 32, 33, 1);
	tab_has(seq, 1, 6, 3);
	ck_assert_uint_eq(shown(seq, 1, 2), KVMM_NO_INDEX);
	/* Tokens of three records in a step. */
	begins(seq, 33, 67, 3, 3);
	tab_has(seq, 1, 12, 3);
	ends(seq, 33, 100, 1);
	tab_has(seq, 1, 12, 9);
	tab_has(seq, 0, 4, 0);
	/* The full records are in the cache. */
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], 3 * WIDTH);
}
END_TEST

/* A record holds the state behind all tokens that steps write. */
START_TEST(test_start)
{
	u64 seq = runs(40, 40, 1);
	struct kvmm_begin_res res[2];

	ck_assert_int_eq(begin(seq, 40, 4, res), 0);
	ck_assert_int_eq(begin(seq, 42, 4, res), -EINVAL);
	begins(seq, 44, 4, 3, 3);
}
END_TEST

/* ---- hits ---- */

START_TEST(test_hit)
{
	u64 seq = runs(100, 40, 1), other;
	u32 blk[WIDTH];

	ck_assert_uint_eq(finds(100, 1), 96);
	ck_assert_uint_eq(finds(96, 1), 64);
	ck_assert_uint_eq(finds(33, 1), 32);
	ck_assert_uint_eq(finds(32, 1), 0);
	other = sh_ready(cl, 70, 20, 1);
	tab_has(other, 0, 2, 0);
	tab_has(other, 1, 6, 3);
	record_at(other, 3, blk);
	begins(other, 64, 6, 3, 6);
	is_record(other, 3, blk);
	ends(other, 64, 70, 1);
	tab_has(other, 1, 9, 6);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}
END_TEST

static u32 tier_of(u32 blk)
{
	const struct kv_node *n = &c->nodes[c->blocks[blk].node];

	return lru_tier(n->hits, n->interval);
}

static void has_tier(const u32 *blk, u32 tier)
{
	u32 i;

	for (i = 0; i < WIDTH; i++)
		ck_assert_uint_eq(tier_of(blk[i]), tier);
}

/* A record that its sequence passed is worth less than the last one, unless it was found. */
START_TEST(test_passed)
{
	u64 seq = sh_ready(cl, 160, 40, 1);
	u32 blk[4][WIDTH], interval = 0, i;

	for (i = 0; i < 4; i++) {
		begins(seq, 32 * i, 32, i ? WIDTH * (i - 1) : KVMM_NO_INDEX, WIDTH * i);
		record_at(seq, WIDTH * i, blk[i]);
		ends(seq, 32 * i, 32 * i + 32, 1);
		has_tier(blk[i], 0);
		if (!i) {
			ck_assert_uint_eq(finds(40, 1), 32);
			interval = c->nodes[c->blocks[blk[0][0]].node].interval;
		} else if (i > 1) {
			has_tier(blk[i - 1], LRU_TIER_FOUND - 1);
		}
	}
	ck_assert_uint_eq(c->nodes[c->blocks[blk[0][0]].node].interval, interval);
	ck_assert_uint_ge(tier_of(blk[0][0]), LRU_TIER_FOUND);
	/* Later ones pass the record that was the last. */
	begins(seq, 128, 32, 9, 12);
	ends(seq, 128, 160, 1);
	has_tier(blk[3], LRU_TIER_FOUND - 1);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	for (i = 0; i < 3 * WIDTH; i++)
		index_evict(c, lru_next(c, 0));
	ck_assert_uint_eq(finds(170, 1), 160);
	ck_assert_uint_eq(finds(65, 1), 32);
}
END_TEST

/* A record of which one block is gone is no hit. */
START_TEST(test_hit_of_all_parts)
{
	u64 seq = runs(70, 40, 1), other = sh_ready(cl, 65, 20, 1);
	u32 blk[WIDTH];

	record_at(other, 3, blk);
	ck_assert_int_eq(sh_close(cl, other), 0);
	ck_assert_uint_eq(finds(100, 1), 64);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(c->blocks[blk[_i]].state, BLK_CACHED);
	index_evict(c, blk[_i]);
	ck_assert_uint_eq(finds(100, 1), 32);
}
END_TEST

/* The names of a record follow from the tokens alone, not from earlier trims and forks. */
START_TEST(test_names)
{
	u64 seq = runs(32, 200, 1), kid;
	u32 at;

	for (at = 32; at < 160; at += 16) {
		ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
		sh_compute(cl, seq, at, at + 16, 1);
		ck_assert_int_eq(sh_close(cl, kid), 0);
		ck_assert_uint_eq(finds(200, 1), (at + 16) / 32 * 32);
	}
}
END_TEST

/* ---- forks ---- */

/* A shared record is read where it is, and a new one is written in its place. */
START_TEST(test_fork)
{
	u64 seq = runs(40, 100, 1), kid;
	struct kvmm_begin_res res[2];
	u32 old[WIDTH], new[WIDTH];

	record_at(seq, 3, old);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	is_record(kid, 3, old);
	begins(seq, 40, 1, 3, 6);
	tab_has(seq, 1, 9, 3);
	is_record(seq, 3, old);
	record_at(seq, 6, new);
	ends(seq, 40, 41, 1);
	/* The shared record is the child's alone, and the new one takes its place. */
	tab_has(seq, 1, 6, 3);
	is_record(seq, 3, new);
	is_record(kid, 3, old);
	ck_assert_int_eq(begin(seq, 41, 1, res), 0);
	ck_assert_uint_eq(res[1].table_lo, 3);
	ends(seq, 41, 42, 1);
	begins(kid, 40, 1, 3, 3);
	ends(kid, 40, 41, 2);
	is_record(kid, 3, old);
	ck_assert_uint_eq(sh_count(CORE_EV_pgcow), WIDTH + 1);
	ck_assert_uint_eq(sh_count(CORE_EV_pgreuse), WIDTH + 1);
}
END_TEST

/* A step that computes nothing leaves the shared record the last one. */
START_TEST(test_fork_undone)
{
	u64 seq = runs(40, 100, 1), kid;
	u32 old[WIDTH];

	record_at(seq, 3, old);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	begins(seq, 40, 1, 3, 6);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	tab_has(seq, 1, 6, 3);
	is_record(seq, 3, old);
	is_record(kid, 3, old);
	begins(kid, 40, 1, 3, 6);
	ends(kid, 40, 41, 2);
	begins(seq, 40, 1, 3, 3);
}
END_TEST

/* A step that computes nothing, while one behind it is open. */
START_TEST(test_fork_undone_before_a_step)
{
	u64 seq = runs(40, 100, 1), kid, first;
	u32 old[WIDTH];

	record_at(seq, 3, old);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	begins(seq, 40, 1, 3, 6);
	first = sh.cl[cl].step;
	begins(seq, 41, 1, 6, 6);
	ck_assert_int_eq(sh_end_empty(cl, first), 0);
	tab_has(seq, 1, 9, 3);
	is_record(seq, 3, old);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	tab_has(seq, 1, 6, 3);
	is_record(seq, 3, old);
}
END_TEST

/* The first step behind a fork writes several records, and another one is open behind it. */
START_TEST(test_fork_chunk)
{
	u64 seq = runs(40, 200, 1), kid, first;
	u32 new[WIDTH], last[WIDTH];

	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	begins(seq, 40, 60, 3, 6);
	tab_has(seq, 1, 15, 3);
	first = sh.cl[cl].step;
	begins(seq, 100, 1, 12, 12);
	record_at(seq, 6, new);
	record_at(seq, 12, last);
	ck_assert_int_eq(sh_end_step(cl, first, seq, 40, 100, 1), 0);
	/* Under the open step only table entries change that no step reads. */
	tab_has(seq, 1, 15, 12);
	is_record(seq, 12, last);
	ends(seq, 100, 101, 1);
	tab_has(seq, 1, 12, 9);
	is_record(seq, 9, last);
	ck_assert_uint_eq(finds(200, 1), 96);
	ck_assert_uint_eq(c->blocks[new[0]].state, BLK_CACHED);
}
END_TEST

/* All children but the last writer get a record of their own. */
START_TEST(test_fork_many)
{
	u64 seq = runs(50, 100, 1), kid[3];
	u32 i;

	ck_assert_int_eq(sh_fork(cl, seq, 3, kid), 0);
	ck_assert_uint_eq(domain()->tails, 4 * (1 + WIDTH));
	for (i = 0; i < 3; i++) {
		begins(kid[i], 50, 1, 3, 6);
		ends(kid[i], 50, 51, 2 + i);
	}
	ck_assert_uint_eq(domain()->tails, 0);
	begins(seq, 50, 1, 3, 3);
}
END_TEST

/* ---- shorter, elsewhere, gone ---- */

/* Only whole records and the valid length have a state to go on from. */
START_TEST(test_truncate)
{
	u64 seq = sh_ready(cl, 100, 40, 1);

	ck_assert_int_eq(sh_begin(cl, seq, 0, 70), 0);
	ck_assert_int_eq(sh_end(cl, seq, 0, 70, 1), 0);
	tab_has(seq, 1, 9, 6);
	ck_assert_int_eq(truncate_to(seq, 69), -EINVAL);
	ck_assert_int_eq(truncate_to(seq, 64), -EINVAL);
	ck_assert_int_eq(truncate_to(seq, 70), 0);
	sh_compute(cl, seq, 70, 96, 1);
	tab_has(seq, 1, 9, 6);
	ck_assert_int_eq(truncate_to(seq, 95), -EINVAL);
	ck_assert_int_eq(truncate_to(seq, 96), 0);
	begins(seq, 96, 1, 6, 9);
	ends(seq, 96, 97, 1);
	ck_assert_int_eq(truncate_to(seq, 96), -EINVAL);
}
END_TEST

/* TRIM leaves the record, which stands for all tokens before it. */
START_TEST(test_trim)
{
	u64 seq = runs(40, 100, 1);

	ck_assert_int_eq(trim(seq, 40), 0);
	tab_has(seq, 0, 2, 1);
	tab_has(seq, 1, 6, 3);
	begins(seq, 40, 24, 3, 3);
	ends(seq, 40, 64, 1);
	ck_assert_int_eq(trim(seq, 64), 0);
	tab_has(seq, 0, 2, 2);
	tab_has(seq, 1, 6, 3);
	begins(seq, 64, 1, 3, 6);
}
END_TEST

/* A sequence that was swapped out has its record again. */
START_TEST(test_swap)
{
	u64 seq = runs(40, 100, 1);

	ck_assert_int_eq(advise(seq, KVMM_ADV_PAGEOUT), 0);
	do_copies();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	ck_assert_int_eq(advise(seq, KVMM_ADV_WILLNEED), 0);
	do_copies();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 40);
	tab_has(seq, 1, 6, 3);
	begins(seq, 40, 1, 3, 3);
	ends(seq, 40, 41, 1);
}
END_TEST

/* The watermark leaves room for a record of each running sequence. */
START_TEST(test_soon)
{
	u64 seq = runs(40, 100, 1);

	ck_assert_uint_eq(domain()->soon, 1 + WIDTH);
	sh_compute(cl, seq, 40, 140, 1);
	ck_assert_uint_eq(domain()->soon, 0);
}
END_TEST

/* Of a group of records no content is looked up, and nothing is leased. */
START_TEST(test_lookup_and_lease)
{
	const struct kvmm_lookup_res *found = (const void *)sh.results;
	const struct kvmm_lease_res *leased = (const void *)sh.results;
	struct kvmm_lookup_arg *l = (struct kvmm_lookup_arg *)sh.args;
	struct kvmm_lease_arg *a = (struct kvmm_lease_arg *)sh.args;
	u32 i, *ids = (u32 *)(l + 1);

	*l = (struct kvmm_lookup_arg){ .nr_ids = 96, .flags = KVMM_LOOKUP_LAST };
	for (i = 0; i < 96; i++)
		ids[i] = i;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_LOOKUP, 1, 0,
				   sizeof(*l) + 4 * l->nr_ids), 0);
	ck_assert_int_eq(found->status, -EOPNOTSUPP);
	*a = (struct kvmm_lease_arg){ .len = 96, .ms = 1 };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_LEASE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(leased->status, -EOPNOTSUPP);
}
END_TEST

/* ---- wide records ---- */

/*
 * A record of 16 blocks, each 16 tokens: the blocks of the longest sequence would be
 * 2^32.  A prompt that was admitted still has the blocks of its next step reserved.
 */
START_TEST(test_renew)
{
	struct kvmm_attach_req req = state_req();
	u64 seq;

	sh_config(60);
	sh_start();
	c = sh.core;
	req.step_tokens = 16;
	req.group[1] = (struct kvmm_group){
		.kind = KVMM_GROUP_STATE, .layers = 4, .kv_heads = 4, .k_bytes = 2000,
		.block_tokens = 16,
	};
	cl = (u32)sh_attach_as(1, &req);
	sh_settle();
	ck_assert_uint_eq(domain()->width[1], 16);
	seq = sh_ready(cl, 200, 0, 1);
	/* Two records beside the one that a step reads. */
	ck_assert_uint_eq(tab(seq, 1)->reserved, 48);
	sh_compute(cl, seq, 0, 16, 1);
	ck_assert_uint_eq(tab(seq, 1)->reserved, 32);
	sh_compute(cl, seq, 16, 32, 1);
	tab_has(seq, 1, 32, 16);
	ck_assert_uint_eq(tab(seq, 1)->reserved, 32);
	sh_stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_groups_state");
	TCase *tc = tcase_create("state");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_shape);
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_SIZE(bad_shapes));
	tcase_add_test(tc, test_records);
	tcase_add_test(tc, test_start);
	tcase_add_test(tc, test_hit);
	tcase_add_test(tc, test_passed);
	tcase_add_loop_test(tc, test_hit_of_all_parts, 0, WIDTH);
	tcase_add_test(tc, test_names);
	tcase_add_test(tc, test_fork);
	tcase_add_test(tc, test_fork_undone);
	tcase_add_test(tc, test_fork_undone_before_a_step);
	tcase_add_test(tc, test_fork_chunk);
	tcase_add_test(tc, test_fork_many);
	tcase_add_test(tc, test_truncate);
	tcase_add_test(tc, test_trim);
	tcase_add_test(tc, test_swap);
	tcase_add_test(tc, test_soon);
	tcase_add_test(tc, test_lookup_and_lease);
	suite_add_tcase(s, tc);
	tc = tcase_create("wide");
	tcase_add_test(tc, test_renew);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
