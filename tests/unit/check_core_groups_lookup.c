// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_groups_lookup.c - layer groups: SEQ_LOOKUP
 */
#include "tests/unit/groups_look_scene.h"

/* Hits are multiples of 32 tokens; the window of the second group spans two blocks. */
static const struct shape shapes[] = { { 16, 0 }, { 32, 40 } };

static void setup(void)
{
	look_start(64, 2, shapes);
	cache(96, SEED);
}

static void teardown(void)
{
	sh_stop();
}

/* Whole multiples of all groups' blocks are found, the last token too. */
START_TEST(test_length)
{
	const u32 len[][2] = { { 160, 96 }, { 97, 96 }, { 96, 96 }, { 95, 64 },
			       { 63, 32 }, { 32, 32 }, { 31, 0 }, { 0, 0 } };

	ck_assert_int_eq(look(0, len[_i][0], SEED), 0);
	found_is(len[_i][1], len[_i][1]);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE], len[_i][1]);
	ck_assert_uint_eq(res->nr_runs, len[_i][1] != 0);
	ck_assert_uint_eq(res->run[0].blocks, len[_i][1] / 32);
	ck_assert_uint_eq(res->flags, 0);
	if (!_i)
		ck_assert_uint_eq(sh_count(CORE_EV_lookup_device_tokens), 96);
}
END_TEST

START_TEST(test_others)
{
	ck_assert_int_eq(look(0, 96, SEED + 1), 0);
	found_is(0, 0);
	ck_assert_int_eq(look_with(5, 0, 96, SEED, KVMM_LOOKUP_LAST), 0);
	found_is(0, 0);
}
END_TEST

/* Without a block: the tokens that groups without a window have, and the hit. */
static const struct {
	u32 g, idx, found, hit;
} lacks[] = {
	{ 1, 0, 96, 96 }, { 1, 1, 96, 32 }, { 1, 2, 96, 64 },
	{ 0, 5, 64, 64 }, { 0, 4, 64, 64 }, { 0, 3, 32, 32 }, { 0, 2, 32, 32 },
	{ 0, 1, 0, 0 }, { 0, 0, 0, 0 },
};

START_TEST(test_lacks_a_block)
{
	evict(lacks[_i].g, lacks[_i].idx);
	ck_assert_int_eq(look(0, 97, SEED), 0);
	found_is(lacks[_i].found, lacks[_i].hit);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE], lacks[_i].found);
	/* A match finds as much. */
	ck_assert_uint_eq(finds(97, SEED), lacks[_i].hit);
}
END_TEST

/* No group with a window has anything: the walk goes on, and there is no hit. */
START_TEST(test_no_window)
{
	evict(1, 0);
	evict(1, 1);
	evict(1, 2);
	ck_assert_int_eq(look(0, 96, SEED), 0);
	found_is(96, 0);
	ck_assert_uint_eq(res->hit_cookie[0] | res->hit_cookie[1], 0);
	ck_assert_uint_ne(res->cookie[0] | res->cookie[1], 0);
}
END_TEST

/* ---- tiers ---- */

/* The tier of each 32 tokens when one block of a group is on a lower tier. */
static const struct {
	u32 g, idx, tier[3];
} lower[] = {
	{ 0, 0, { 1, 0, 0 } }, { 0, 1, { 1, 0, 0 } }, { 0, 3, { 0, 1, 0 } },
	{ 0, 5, { 0, 0, 1 } },
	/* The first block of the other group is behind the last window. */
	{ 1, 0, { 0, 0, 0 } }, { 1, 1, { 0, 1, 0 } }, { 1, 2, { 0, 0, 1 } },
};

static u32 tier_at(u32 unit)
{
	u32 i;

	for (i = 0; i < res->nr_runs && unit >= res->run[i].blocks; i++)
		unit -= res->run[i].blocks;
	ck_assert_uint_lt(i, res->nr_runs);
	return res->run[i].tier;
}

START_TEST(test_tier)
{
	const u32 *tier = lower[_i].tier, moving = KVMM_TIER_MOVING;
	u32 i, nr = tier[0] + tier[1] + tier[2];

	/* Blocks of group 0 leave the device from the end on. */
	to_host(lower[_i].g, lower[_i].idx, false);
	ck_assert_int_eq(look(0, 96, SEED), 0);
	found_is(96, 96);
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(tier_at(i), tier[i] ? moving : 0);
	do_copies();
	ck_assert_int_eq(look(0, 96, SEED), 0);
	found_is(96, 96);
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(tier_at(i), tier[i]);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_HOST], 32 * nr);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE], 32 * (3 - nr));
	ck_assert_uint_eq(sh_count(CORE_EV_lookup_host_tokens), 32 * nr);
}
END_TEST

/* Of two blocks in different tiers the slower one counts. */
START_TEST(test_slowest)
{
	to_host(1, 2, true);
	to_host(0, 5, false);
	ck_assert_int_eq(look(0, 96, SEED), 0);
	ck_assert_uint_eq(tier_at(2), KVMM_TIER_MOVING);
	do_copies();
	to_area(0, 4);
	ck_assert_int_eq(look(0, 96, SEED), 0);
	ck_assert_uint_eq(tier_at(2), KVMM_TIER_AREA);
	to_host(1, 1, false);
	to_area(0, 3);
	ck_assert_int_eq(look(0, 96, SEED), 0);
	/* MOVING content comes by itself, a read from an area must begin. */
	ck_assert_uint_eq(tier_at(1), KVMM_TIER_AREA);
	ck_assert_uint_eq(tier_at(0), KVMM_TIER_DEVICE);
	ck_assert_uint_eq(res->nr_runs, 2);
}
END_TEST

/* Content that is lost is not there. */
START_TEST(test_lost)
{
	u32 e = to_host(1, 2, true);

	sh_unchecked = true;
	c->entries_low[e].flags |= ENTF_LOST;
	ck_assert_int_eq(look(0, 96, SEED), 0);
	found_is(96, 64);
}
END_TEST

/* ---- pieces ---- */

/* The second piece needs blocks of the window that are in the first one. */
START_TEST(test_window_in_the_piece_before)
{
	ck_assert_int_eq(look_piece(0, 32 * (1 + _i), SEED), 0);
	found_is(32 * (1 + _i), 32 * (1 + _i));
	ck_assert_int_eq(look(32 * (1 + _i), 97 - 32 * (1 + _i), SEED), 0);
	ck_assert_uint_eq(res->found, 64 - 32 * _i);
	ck_assert_uint_eq(res->hit, 96);
}
END_TEST

START_TEST(test_window_is_gone)
{
	ck_assert_int_eq(look_piece(0, 64, SEED), 0);
	found_is(64, 64);
	evict(1, 1);
	ck_assert_int_eq(look(64, 32, SEED), 0);
	ck_assert_uint_eq(res->found, 32);
	ck_assert_uint_eq(res->hit, 0);
}
END_TEST

/* A piece in which no hit ends does not end the lookup. */
START_TEST(test_piece_without_a_hit)
{
	evict(1, 0);
	ck_assert_int_eq(look_piece(0, 32, SEED), 0);
	found_is(32, 0);
	ck_assert_int_eq(look_piece(32, 32, SEED), 0);
	ck_assert_uint_eq(res->found, 32);
	ck_assert_uint_eq(res->hit, 0);
	ck_assert_int_eq(look(64, 33, SEED), 0);
	ck_assert_uint_eq(res->found, 32);
	ck_assert_uint_eq(res->hit, 96);
}
END_TEST

/* The cookie of a hit names the same prefix as that of a piece that ends there. */
START_TEST(test_cookies)
{
	u64 cookie[2];

	evict(1, 2);
	ck_assert_int_eq(look(0, 96, SEED), 0);
	found_is(96, 64);
	memcpy(cookie, res->hit_cookie, sizeof(cookie));
	ck_assert(memcmp(cookie, res->cookie, sizeof(cookie)));
	ck_assert_int_eq(look_piece(0, 64, SEED), 0);
	found_is(64, 64);
	ck_assert_mem_eq(cookie, res->cookie, sizeof(cookie));
	ck_assert_mem_eq(cookie, res->hit_cookie, sizeof(cookie));
}
END_TEST

/* With a wrong salt, cookie or start nothing is found. */
START_TEST(test_wrong_cookie)
{
	ck_assert_int_eq(look_piece(0, 64, SEED), 0);
	if (_i == 2)
		((struct kvmm_lookup_res *)(void *)sh.results)->cookie[1] ^= 1;
	ck_assert_int_eq(look_with(_i == 0, _i == 1 ? 32 : 64, 32, SEED, KVMM_LOOKUP_LAST), 0);
	found_is(0, 0);
}
END_TEST

/* Starts and pieces are multiples of 32; the last piece is not. */
START_TEST(test_refused)
{
	ck_assert_int_eq(look_piece(0, 48, SEED), -EINVAL);
	ck_assert_int_eq(look_piece(0, 32, SEED), 0);
	ck_assert_int_eq(look_piece(16, 32, SEED), -EINVAL);
	ck_assert_int_eq(look_piece(0, 32, SEED), 0);
	ck_assert_int_eq(look_piece(32, 16, SEED), -EINVAL);
}
END_TEST

/* A block of group 0 has the names of several blocks of the window, with the salt. */
START_TEST(test_large_first_group)
{
	const struct shape large[] = { { 48, 0 }, { 16, 60 } };
	const u64 salt = 7;

	sh_stop();
	look_start(64, 2, large);
	cache_as(97, SEED, salt);
	ck_assert_int_eq(look_with(salt, 0, 48, SEED, 0), 0);
	found_is(48, 48);
	ck_assert_int_eq(look_with(salt, 48, 48, SEED, KVMM_LOOKUP_LAST), 0);
	ck_assert_uint_eq(res->found, 48);
	ck_assert_uint_eq(res->hit, 96);
	/* Position 96 attends to 37 and after it. */
	evict(1, _i);
	ck_assert_int_eq(look_with(salt, 0, 48, SEED, 0), 0);
	ck_assert_uint_eq(res->found, 48);
	ck_assert_int_eq(look_with(salt, 48, 48, SEED, KVMM_LOOKUP_LAST), 0);
	ck_assert_uint_eq(res->found, 48);
	ck_assert_uint_eq(res->hit, _i < 2 ? 96 : 0);
}
END_TEST

/* ---- bounds ---- */

/* A run for which there is no room ends the answer, and the hit is before it. */
START_TEST(test_too_many_runs)
{
	u32 i;

	sh_stop();
	look_start(64, 2, shapes);
	cache(320, SEED);
	/* Leaves first: every second 32 tokens get a block below. */
	for (i = 0; i < 10; i++)
		copy_of(0, 2 * i + 1, i % 2 == 0);
	ck_assert_int_eq(look(0, 320, SEED), 0);
	ck_assert_uint_eq(res->found, 256);
	ck_assert_uint_eq(res->hit, 256);
	ck_assert_uint_eq(res->nr_runs, KVMM_LOOKUP_RUNS);
	ck_assert_uint_eq(res->flags, KVMM_LOOKUP_MORE);
	ck_assert_int_eq(look(256, 64, SEED), 0);
	ck_assert_uint_eq(res->found, 64);
	ck_assert_uint_eq(res->hit, 320);
	ck_assert_uint_eq(res->nr_runs, 2);
	ck_assert_uint_eq(res->flags, 0);
}
END_TEST

/* An event that has done a lot leaves the rest, but finds some. */
START_TEST(test_work)
{
	u32 at;

	c->head->cfg.event_work = 1;
	for (at = 0; at < 96; at += 32) {
		ck_assert_int_eq(look(at, 97 - at, SEED), 0);
		ck_assert_uint_eq(res->found, 32);
		ck_assert_uint_eq(res->hit, at + 32);
		ck_assert_uint_eq(res->flags, at < 64 ? KVMM_LOOKUP_MORE : 0);
	}
}
END_TEST

/* ---- the order of eviction ---- */

/* Blocks that a lookup finds are evicted last, those of the last window, too. */
START_TEST(test_found_is_dropped_last)
{
	cache(96, 1000);
	if (_i)
		ck_assert_int_eq(look(0, 96, SEED), 0);
	(void)!core_drop_caches(c, sh.now, 0, 9);
	ck_assert_uint_eq(finds(97, SEED), _i ? 96 : 0);
	ck_assert_uint_eq(finds(97, 1000), _i ? 0 : 96);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_groups_lookup");
	TCase *tc = tcase_create("lookup");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_length, 0, 8);
	tcase_add_test(tc, test_others);
	tcase_add_loop_test(tc, test_lacks_a_block, 0, ARRAY_SIZE(lacks));
	tcase_add_test(tc, test_no_window);
	tcase_add_loop_test(tc, test_tier, 0, ARRAY_SIZE(lower));
	tcase_add_test(tc, test_slowest);
	tcase_add_test(tc, test_lost);
	tcase_add_loop_test(tc, test_window_in_the_piece_before, 0, 2);
	tcase_add_test(tc, test_window_is_gone);
	tcase_add_test(tc, test_piece_without_a_hit);
	tcase_add_test(tc, test_cookies);
	tcase_add_loop_test(tc, test_wrong_cookie, 0, 3);
	tcase_add_test(tc, test_refused);
	tcase_add_loop_test(tc, test_large_first_group, 0, 6);
	tcase_add_test(tc, test_too_many_runs);
	tcase_add_test(tc, test_work);
	tcase_add_loop_test(tc, test_found_is_dropped_last, 0, 2);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
