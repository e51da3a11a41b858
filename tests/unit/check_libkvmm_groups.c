// SPDX-License-Identifier: Apache-2.0
/*
 * check_libkvmm_groups.c - tokens of a block for each layer group
 *
 * kvmm_group_tokens() against an enumeration of all choices, and for shapes of
 * real models.  budget: 20 s
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <libkvmm.h>

#define TOKENS	16u

/* Bytes of a block, bytes of padding, and the length of a hit of a choice. */
struct cost {
	u64	block;
	u64	padding;
	u32	lcm;
};

static u32 seed = 4711;

static u32 draw(u32 below)
{
	seed = seed * 1664525 + 1013904223;
	return (u32)((u64)(seed >> 4) * below >> 28);
}

/* The bytes of a block, as the daemon counts them. */
static u64 bytes_of(const struct kvmm_group *g, u32 tokens)
{
	u64 head = g->k_bytes + g->v_bytes + g->scale_bytes;

	if (g->kind == KVMM_GROUP_STATE)
		return (g->k_bytes + 127) / 128 * 128;
	if (g->v_bytes)
		head += g->scale_bytes;
	return g->layers * ((head * g->kv_heads * tokens + 127) / 128 * 128);
}

static struct cost cost_of(const struct kvmm_group *g, u32 nr)
{
	struct cost c = { .lcm = 1 };
	u32 i, most;

	for (i = 0; i < nr; i++) {
		c.block = max(c.block, bytes_of(&g[i], g[i].block_tokens));
		for (most = c.lcm; most % g[i].block_tokens; most += c.lcm)
			;
		c.lcm = most;
	}
	for (i = 0; i < nr; i++)
		if (g[i].kind == KVMM_GROUP_KV)
			c.padding += c.block - bytes_of(&g[i], g[i].block_tokens);
	return c;
}

/* The common multiple of the groups whose tokens are chosen. */
static u32 kv_lcm(const struct kvmm_group *g, u32 nr)
{
	u32 i, lcm = 1, most;

	for (i = 0; i < nr; i++) {
		for (most = lcm; g[i].kind == KVMM_GROUP_KV &&
		     most % g[i].block_tokens; most += lcm)
			;
		lcm = most;
	}
	return lcm;
}

/* Below 0: @a is better. */
static int cost_cmp(const struct cost *a, const struct cost *b)
{
	const u64 x = a->padding * b->block, y = b->padding * a->block;

	if (x != y)
		return x < y ? -1 : 1;
	if (a->lcm != b->lcm)
		return a->lcm < b->lcm ? -1 : 1;
	return a->block == b->block ? 0 : a->block < b->block ? -1 : 1;
}

/* The best of all choices for groups from @at on. */
static void search(struct kvmm_group *g, u32 nr, u32 at, u32 tokens,
		   u32 max_lcm, struct cost *best)
{
	struct cost c;

	if (at == nr) {
		c = cost_of(g, nr);
		if (kv_lcm(g, nr) <= max_lcm && (!best->lcm || cost_cmp(&c, best) < 0))
			*best = c;
		return;
	}
	if (g[at].kind == KVMM_GROUP_STATE) {
		search(g, nr, at + 1, tokens, max_lcm, best);
		return;
	}
	for (g[at].block_tokens = tokens; g[at].block_tokens <= max_lcm;
	     g[at].block_tokens += tokens)
		search(g, nr, at + 1, tokens, max_lcm, best);
}

START_TEST(test_brute_force)
{
	struct kvmm_group g[3], all[3];
	struct cost got, want;
	u32 i, n, nr, tokens, max_lcm;

	for (n = 0; n < 3000; n++) {
		nr = 1 + draw(3);
		tokens = 16 << draw(3);
		max_lcm = tokens * (1 + draw(12));
		memset(g, 0, sizeof(g));
		for (i = 0; i < nr; i++) {
			g[i].layers = 1 + draw(40);
			g[i].kv_heads = 1 + draw(3);
			g[i].k_bytes = 1 + draw(64);
			g[i].v_bytes = draw(2) ? g[i].k_bytes : 0;
			g[i].scale_bytes = draw(2) * 4;
		}
		/* Recurrent layers, with units smaller and larger than blocks. */
		if (nr > 1 && draw(2))
			g[nr - 1] = (struct kvmm_group){
				.layers = 1 + draw(40), .kv_heads = 1 + draw(9),
				.k_bytes = 4 << draw(16), .kind = KVMM_GROUP_STATE,
				.block_tokens = 16 * (1 + draw(20)),
			};
		memcpy(all, g, sizeof(g));
		want.lcm = 0;
		search(all, nr, 0, tokens, max_lcm, &want);
		i = (u32)kvmm_group_tokens(g, nr, tokens, max_lcm);
		got = cost_of(g, nr);
		ck_assert_uint_eq(i, got.lcm);
		ck_assert_msg(!cost_cmp(&got, &want),
			      "draw %u: padding %llu of %llu, lcm %u; best %llu of %llu, lcm %u",
			      n, (unsigned long long)got.padding,
			      (unsigned long long)got.block, got.lcm,
			      (unsigned long long)want.padding,
			      (unsigned long long)want.block, want.lcm);
	}
}
END_TEST

/* Layers with full attention, layers with a window, and the tokens expected. */
static const struct {
	u32	full, local, lcm, full_tokens, local_tokens;
} shapes[] = {
	{ 13, 13, 16, 16, 16 },		/* Gemma 2, gpt-oss: every other layer */
	{ 8, 40, 80, 80, 16 },		/* Gemma 3 12B: one of six layers */
	{ 4, 22, 96, 96, 16 },		/* Gemma 3 1B: 26 layers, one of six */
	{ 28, 4, 112, 16, 112 },	/* a few layers with a window */
};

START_TEST(test_shapes)
{
	struct kvmm_group g[2] = {
		{ .layers = shapes[_i].full, .kv_heads = 4, .k_bytes = 512,
		  .v_bytes = 512 },
		{ .layers = shapes[_i].local, .kv_heads = 4, .k_bytes = 512,
		  .v_bytes = 512, .window = 1024 },
	};

	ck_assert_int_eq(kvmm_group_tokens(g, 2, TOKENS, 16 * TOKENS),
			 (int)shapes[_i].lcm);
	ck_assert_uint_eq(g[0].block_tokens, shapes[_i].full_tokens);
	ck_assert_uint_eq(g[1].block_tokens, shapes[_i].local_tokens);
}
END_TEST

/* Blocks of a record: whole units, and none across the end of a block. */
START_TEST(test_state)
{
	struct kvmm_group g[2] = {
		{ .layers = 4, .kv_heads = 8, .k_bytes = 128, .v_bytes = 128 },
		{ .layers = 36, .kv_heads = 65, .k_bytes = 34304,
		  .kind = KVMM_GROUP_STATE, .block_tokens = 256 },
	};

	/* Granite 4.0 H: 128 KiB for 16 tokens of 4 layers; a unit has 268 * 128 bytes. */
	ck_assert_int_eq(kvmm_group_tokens(g, 2, TOKENS, 256), 256);
	ck_assert_uint_eq(g[0].block_tokens, TOKENS);
	ck_assert_uint_eq(g[1].block_tokens, 256);
	ck_assert_uint_eq(kvmm_group_bytes(&g[0], TOKENS), 131072);
	ck_assert_uint_eq(kvmm_group_bytes(&g[1], 256), 34304);
	ck_assert_uint_eq(kvmm_state_blocks(&g[1], 131072), 780);
	ck_assert_uint_eq(kvmm_state_blocks(&g[1], 34304), 36 * 65);
	ck_assert_uint_eq(kvmm_state_blocks(&g[1], 34303), 0);
	ck_assert_uint_eq(kvmm_state_blocks(&g[1], 1 << 30), 1);
	/* A unit that is no multiple of 128 bytes takes the next one. */
	g[1].k_bytes++;
	ck_assert_uint_eq(kvmm_state_blocks(&g[1], 131072), 780);
	ck_assert_uint_eq(kvmm_state_blocks(&g[1], 34304 * 3), 1170);
	/* Blocks grow to hold a unit. */
	g[0].layers = 1;
	g[0].kv_heads = 1;
	ck_assert_int_gt(kvmm_group_tokens(g, 2, TOKENS, 256), 0);
	g[1].block_tokens = 24;
	ck_assert_int_eq(kvmm_group_tokens(g, 2, TOKENS, 256), -EINVAL);
	g[1].block_tokens = 0;
	ck_assert_int_eq(kvmm_group_tokens(g, 2, TOKENS, 256), -EINVAL);
	ck_assert_int_eq(kvmm_group_tokens(g + 1, 1, TOKENS, 256), -EINVAL);
}
END_TEST

START_TEST(test_limits)
{
	struct kvmm_group g[KVMM_MAX_GROUPS + 1] = { { .layers = 0 } };
	u32 i;

	for (i = 0; i <= KVMM_MAX_GROUPS; i++)
		g[i] = (struct kvmm_group){ .layers = i + 1, .kv_heads = 1,
					    .k_bytes = 64, .v_bytes = 64 };
	ck_assert_int_eq(kvmm_group_tokens(g, 0, TOKENS, 256), -EINVAL);
	ck_assert_int_eq(kvmm_group_tokens(g, KVMM_MAX_GROUPS + 1, TOKENS, 256),
			 -EINVAL);
	ck_assert_int_eq(kvmm_group_tokens(g, 1, 0, 256), -EINVAL);
	ck_assert_int_eq(kvmm_group_tokens(g, 1, KVMM_MAX_BLOCK_TOKENS + 16,
					   UINT32_MAX), -EINVAL);
	/* A limit below the wanted tokens, and the largest one. */
	ck_assert_int_eq(kvmm_group_tokens(g, 2, 64, 16), 64);
	ck_assert_int_gt(kvmm_group_tokens(g, KVMM_MAX_GROUPS, TOKENS,
					   UINT32_MAX), 0);
	for (i = 0; i < KVMM_MAX_GROUPS; i++)
		ck_assert(g[i].block_tokens && !(g[i].block_tokens % TOKENS) &&
			  g[i].block_tokens <= KVMM_MAX_BLOCK_TOKENS);
	g[0] = (struct kvmm_group){ .layers = 4096, .kv_heads = 4096,
				    .k_bytes = 65536, .v_bytes = 65536 };
	ck_assert_int_eq(kvmm_group_tokens(g, 1, TOKENS, 256), -E2BIG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("libkvmm_groups");
	TCase *tc = tcase_create("tokens");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, test_brute_force);
	tcase_add_loop_test(tc, test_shapes, 0, ARRAY_SIZE(shapes));
	tcase_add_test(tc, test_state);
	tcase_add_test(tc, test_limits);
	tcase_set_timeout(tc, 20);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
