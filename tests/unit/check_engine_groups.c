// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine_groups.c - the engine of a model with two layer groups
 *
 * The shape that it asks the daemon for, the memory that blocks take in each group,
 * texts about memory, the capacity of a pool, and hints.  Random lives of such an engine are in
 * check_engine_random.c and check_engine_beams.c.  budget: 20 s
 */
#include "runtime/engine/lease.h"
#include "runtime/server/capacity.h"
#include "tests/unit/engine_fixture.h"

static struct engine_lease lease;
static u32 hints;

const char *model_line(const struct model *m, char *buf, size_t len)
{
	snprintf(buf, len, "a model of %u layers", m->info.nr_layers);
	return buf;
}

static void setup_groups(void)
{
	setup();
	fm_use_groups(&model, FM_MORE_LOCAL);
	memset(&lease, 0, sizeof(lease));
	hints = 0;
}

/* A layer has 16 bytes for a token, and takes a multiple of 128 bytes in a block. */
START_TEST(test_attach)
{
	const struct engine_opts o = { .chunk = 9 };

	start(&o);
	ck_assert_uint_eq(fk.nr_groups, 2);
	ck_assert_uint_eq(fk.window[0], 0);
	ck_assert_uint_eq(fk.window[1], 11);
	ck_assert_uint_eq(fk.bt[0], 12);
	ck_assert_uint_eq(fk.bt[1], 4);
	ck_assert_uint_eq(fk.block_bytes, 256);
	ck_assert_uint_eq(fk.step_tokens, 9);
}
END_TEST

/* Blocks behind the window are used again, while the sequence runs. */
START_TEST(test_long_sequence)
{
	/* 96 tokens: 8 blocks of group 0, and 24 of group 1, but few at once. */
	const struct engine_opts o = { .chunk = 8 };

	fk.nr_blocks = 16;
	start(&o);
	submit(ask(0, 3, 8, FM_CONTEXT - 8, 1));
	run();
	check_ask(&asks[0]);
	/* The last token drawn is not computed, and sees positions from 85 on. */
	ck_assert_uint_eq(fk.nr_dropped, (FM_CONTEXT - 11) / 4);
}
END_TEST

/* A hit is a multiple of 12 tokens, for which group 1 needs its last blocks alone. */
START_TEST(test_hit)
{
	start(NULL);
	submit(ask(0, 3, 60, 1, 1));
	run();
	submit(ask(1, 3, 60, 3, 1));
	run();
	check_ask(&asks[0]);
	check_ask(&asks[1]);
	ck_assert_uint_eq(asks[1].got[0].done.cached_tokens, 48);
}
END_TEST

START_TEST(test_never_fits)
{
	const struct engine_opts o = { .chunk = 4 };

	fk.nr_blocks = 5;
	start(&o);
	submit(ask(0, 3, 40, 41, 1));
	run();
	ck_assert_int_eq(asks[0].got[0].done.err, -E2BIG);
	/* 80 tokens: 7 blocks of group 0, 5 of group 1. */
	ck_assert_msg(strstr(asks[0].got[0].text, "need 3 KiB of KV memory") != NULL,
		      "%s", asks[0].got[0].text);
}
END_TEST

static void on_hint(struct engine_lease *l)
{
	hints++;
}

/* Tokens that hits may have at most, and the last one, of 84 in pieces of 12. */
static const struct {
	u32 every, most, hit, err;
} hits[] = {
	{ 12, 96, 84, ENOSPC }, { 24, 96, 72, ENOSPC }, { 12, 36, 36, ENOSPC },
	{ 60, 96, 60, ENOSPC }, { 48, 96, 48, ENOSPC }, { 24, 12, 0, ENOENT },
};

/* The lookup goes on in a piece without a hit, and the last hit is leased. */
START_TEST(test_hints)
{
	const struct engine_opts o = { .max_leases = 2, .max_seqs = FK_SEQS - 2 };

	start(&o);
	submit(ask(0, 3, 84, 4, 1));
	run();
	fk.hit_every = hits[_i].every;
	fk.hit_most = hits[_i].most;
	lease.ids = asks[0].ids;
	lease.nr = 84;
	lease.ms = 5000;
	lease.on_done = on_hint;
	lease.hint = ENGINE_RETAIN;
	ck_assert_int_eq(engine_hint(engine, &lease), 0);
	submit(ask(1, 3, 40, 4, 1));
	run();
	check_ask(&asks[1]);
	ck_assert_uint_eq(hints, 1);
	ck_assert_int_eq(lease.err, -(int)hits[_i].err);
	ck_assert_uint_eq(lease.found, hits[_i].hit);
	ck_assert_uint_eq(lease.kept, hits[_i].hit);
	ck_assert_uint_eq(fk.nr_lookups, 7);
}
END_TEST

/* The most blocks that a window needs at once, counted for every place of a step. */
static u64 count_blocks(const struct kvmm_group *g, u32 step, u32 len)
{
	u64 most = 0, first, last;
	u32 at;

	for (at = 0; at < len; at++) {
		first = g->window && at >= g->window ? at + 1 - g->window : 0;
		last = min(at + step, len) - 1;
		most = max(most, last / g->block_tokens - first / g->block_tokens + 1);
	}
	return most;
}

START_TEST(test_blocks)
{
	static const u32 windows[] = { 0, 1, 2, 16, 17, 40 };
	static const u32 steps[] = { 1, 2, 15, 16, 33 };
	static const u32 lens[] = { 1, 16, 17, 100, 999 };
	struct kvmm_group g[2];
	u32 w, s, l;
	u64 got;

	for (w = 0; w < ARRAY_SIZE(windows); w++)
		for (s = 0; s < ARRAY_SIZE(steps); s++)
			for (l = 0; l < ARRAY_SIZE(lens); l++) {
				g[0] = g[1] = (struct kvmm_group){
					.window = windows[w], .block_tokens = 16,
				};
				got = engine_group_blocks(g, 0, steps[s], lens[l]);
				ck_assert_uint_eq(got, count_blocks(g, steps[s],
								    lens[l]));
				g[1].window = 0;
				ck_assert_uint_eq(engine_seq_blocks(g, 2, 0, steps[s],
								    lens[l]),
						  got + DIV_ROUND_UP(lens[l], 16));
			}
}
END_TEST

/* The most records that a sequence has at once, counted for every place of a step. */
static u64 count_records(u32 every, u32 step, u32 len)
{
	u64 most = 0, first;
	u32 at;

	for (at = 0; at < len; at++) {
		first = at ? (at - 1) / every : 0;
		most = max(most, (min(at + step, len) - 1) / every - first + 1);
	}
	return most;
}

/* Blocks of records: never fewer than a step needs, and at most one record more. */
START_TEST(test_states)
{
	static const u32 every[] = { 16, 64, 256 };
	static const u32 steps[] = { 1, 2, 16, 17, 300 };
	static const u32 lens[] = { 1, 16, 17, 100, 999 };
	struct kvmm_group g = {
		.layers = 3, .kv_heads = 9, .k_bytes = 2240,
		.kind = KVMM_GROUP_STATE,
	};
	u32 c, s, l;
	u64 got, want;

	ck_assert_uint_eq(engine_table_entries(&g, 4096), 27);
	ck_assert_uint_eq(engine_table_entries(&g, 3 * 2304), 9);
	for (c = 0; c < ARRAY_SIZE(every); c++)
		for (s = 0; s < ARRAY_SIZE(steps); s++)
			for (l = 0; l < ARRAY_SIZE(lens); l++) {
				g.block_tokens = every[c];
				got = engine_group_blocks(&g, 3 * 2304, steps[s],
							  lens[l]);
				want = count_records(every[c], steps[s], lens[l]);
				ck_assert_uint_eq(got % 9, 0);
				ck_assert_uint_ge(got / 9, want);
				ck_assert_uint_le(got / 9, want + 1);
			}
}
END_TEST

/* The groups that the engine asks for. */
START_TEST(test_state_group)
{
	const struct model_info info = {
		.nr_groups = 2, .nr_kv_heads = 2, .k_bytes = 64, .v_bytes = 64,
		.group = { { .layers = 1 },
			   { .layers = 3, .units = 9, .unit_bytes = 2240 } },
	};
	struct engine_opts o = { .block_tokens = 16 };
	struct kvmm_group g[2];

	ck_assert_int_eq(engine_groups(&info, &o, g), 256);
	ck_assert_uint_eq(g[0].kind, KVMM_GROUP_KV);
	ck_assert_uint_eq(g[0].block_tokens, 16);
	ck_assert_uint_eq(g[1].kind, KVMM_GROUP_STATE);
	ck_assert_uint_eq(g[1].layers, 3);
	ck_assert_uint_eq(g[1].kv_heads, 9);
	ck_assert_uint_eq(g[1].k_bytes, 2240);
	ck_assert_uint_eq(g[1].v_bytes, 0);
	ck_assert_uint_eq(g[1].window, 0);
	ck_assert_uint_eq(g[1].block_tokens, 256);
	o.state_tokens = 48;
	o.block_tokens = 32;
	ck_assert_int_eq(engine_groups(&info, &o, g), 96);
	ck_assert_uint_eq(g[1].block_tokens, 48);
}
END_TEST

/* The words of kvrt serve about one of two pools: 27 blocks, in spans of 3. */
START_TEST(test_capacity)
{
	struct kvmm_attach_rep rep = {
		.nr_extents = 36, .pool_extents = 18, .span_extents = 2,
		.span_blocks = 3, .block_bytes = 256, .extent_size = 4096,
		.pool_bytes = 147456, .nr_pools = 2, .pool = 1, .nr_shards = 1,
	};
	struct engine_opts o = { .block_tokens = FK_BT, .chunk = 8,
				 .socket = "/nowhere/kvmm" };
	char why[512] = "";

	/* 96 tokens: 8 blocks of group 0, and 6 of group 1. */
	ck_assert_int_eq(capacity_tell(&rep, &model, &o, "m", why, sizeof(why)), 0);
	ck_assert_str_eq(why, "");
	/* Of 12 blocks a sequence of 72 tokens has 6 and 6. */
	o.limits.max = 12 * 256;
	ck_assert_int_eq(capacity_tell(&rep, &model, &o, "m", why, sizeof(why)),
			 -EDQUOT);
	ck_assert_msg(strstr(why, "holds 72 tokens, less than one sequence of 96: give --max-model-len 72") != NULL,
		      "%s", why);
	/* A step of 64 tokens: 20 blocks of group 1 at most. */
	o.chunk = 0;
	o.limits.max = 0;
	ck_assert_int_eq(capacity_tell(&rep, &model, &o, "m", why, sizeof(why)),
			 -EDQUOT);
	ck_assert_msg(strstr(why, "holds 84 tokens") != NULL, "%s", why);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-groups");
	TCase *tc = tcase_create("groups");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup_groups, teardown);
	tcase_add_test(tc, test_attach);
	tcase_add_test(tc, test_long_sequence);
	tcase_add_test(tc, test_hit);
	tcase_add_test(tc, test_never_fits);
	tcase_add_loop_test(tc, test_hints, 0, ARRAY_SIZE(hits));
	tcase_add_test(tc, test_blocks);
	tcase_add_test(tc, test_states);
	tcase_add_test(tc, test_state_group);
	tcase_add_test(tc, test_capacity);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
