// SPDX-License-Identifier: Apache-2.0
/*
 * check_libkvmm_lookup.c - kvmm_lookup() sends a prompt in pieces and adds up
 *
 * The daemon is a thread that finds as many tokens as a test says, and lies
 * where a test wants it.
 */
#include "tests/unit/libkvmm_fixture.h"

static const struct {
	u32	nr, cached, on_device, most;
	u32	found, ready;
} lookups[] = {
	{ 15, 16, 16, 4096, 0, 0 },
	{ 16, 16, 16, 4096, 16, 16 },
	{ 31, 4096, 4096, 4096, 16, 16 },
	{ 1000, 0, 0, 4096, 0, 0 },
	{ 1000, 320, 320, 4096, 320, 320 },
	{ 1000, 320, 160, 4096, 320, 160 },	/* the tier changes: MORE */
	{ 100003, 200000, 200000, 4096, 100000, 100000 },
	{ 100003, 200000, 50000, 48, 100000, 50000 },
	{ 100003, 64000, 0, 4096, 64000, 0 },
};

/* A prompt is sent until a piece is not found whole, and the answers are added up. */
START_TEST(test_lookup)
{
	struct kvmm_found found;
	u32 *ids = calloc(lookups[_i].nr, sizeof(*ids));

	ck_assert_ptr_nonnull(ids);
	f.cached = lookups[_i].cached;
	f.on_device = lookups[_i].on_device;
	f.lookup_most = lookups[_i].most;
	ck_assert_int_eq(kvmm_lookup(k, 7, ids, lookups[_i].nr, &found), 0);
	ck_assert_uint_eq(found.found, lookups[_i].found);
	ck_assert_uint_eq(found.ready, lookups[_i].ready);
	ck_assert_uint_eq(found.tokens[KVMM_TIER_DEVICE], lookups[_i].ready);
	ck_assert_uint_eq(found.tokens[KVMM_TIER_AREA],
			  lookups[_i].found - lookups[_i].ready);
	ck_assert_int_eq(kvmm_lookup(k, 7, ids, 0, &found), -EINVAL);
	free(ids);
}
END_TEST

/* ---- several groups ---- */

static void setup_groups(void)
{
	fake_init(&f);
	f.rep.stride[1] = 2048;
	fake_start(&f);
	attach_with(200, 2);
	f.cached = 320;
	f.lookup_most = 96;
}

static const struct {
	u32	nr, on_device, every;
	u32	found, ready, area;
} group_hits[] = {
	{ 400, 320, 0, 320, 320, 0 },
	{ 400, 320, 128, 256, 256, 0 },		/* hits end in the second and the third piece */
	{ 400, 320, 320, 320, 320, 0 },		/* one hit, in the last piece */
	{ 400, 320, 512, 0, 0, 0 },
	{ 400, 128, 128, 256, 128, 128 },	/* a piece begins where the tier changes */
	{ 400, 144, 128, 256, 144, 112 },	/* and here the hit is within a piece */
	{ 400, 64, 320, 320, 64, 256 },
	{ 310, 304, 304, 304, 304, 0 },
};

/*
 * Pieces go on where groups without a window end.  What is found is the last hit of any
 * piece, and tokens after it do not count.
 */
START_TEST(test_lookup_groups)
{
	struct kvmm_found found;
	u32 ids[400] = { 0 };

	f.on_device = group_hits[_i].on_device;
	f.hit_every = group_hits[_i].every;
	ck_assert_int_eq(kvmm_lookup(k, 7, ids, group_hits[_i].nr, &found), 0);
	ck_assert_uint_eq(found.found, group_hits[_i].found);
	ck_assert_uint_eq(found.ready, group_hits[_i].ready);
	ck_assert_uint_eq(found.tokens[KVMM_TIER_AREA], group_hits[_i].area);
	ck_assert_uint_eq(found.tokens[KVMM_TIER_DEVICE],
			  group_hits[_i].found - group_hits[_i].area);
	/* The cookie of a place is the place. */
	ck_assert_uint_eq(found.cookie[0], group_hits[_i].found);
}
END_TEST

static void lookup_refused(struct kvmm_lookup_res *res)
{
	res->status = -EINVAL;
}

static void lookup_more_of_nothing(struct kvmm_lookup_res *res)
{
	*res = (struct kvmm_lookup_res){ .flags = KVMM_LOOKUP_MORE };
}

static void lookup_more_than_asked(struct kvmm_lookup_res *res)
{
	res->found = 4 * FAKE_BLOCK;
	res->run[0].blocks = 4;
}

static void lookup_other_sum(struct kvmm_lookup_res *res)
{
	res->found -= FAKE_BLOCK;
}

static void lookup_no_tier(struct kvmm_lookup_res *res)
{
	res->run[0].tier = KVMM_NR_LOOKUP_TIERS;
}

static void lookup_many_runs(struct kvmm_lookup_res *res)
{
	res->nr_runs = KVMM_LOOKUP_RUNS + 1;
}

static void lookup_hit_elsewhere(struct kvmm_lookup_res *res)
{
	res->hit -= FAKE_BLOCK;
}

static void lookup_hit_too_long(struct kvmm_lookup_res *res)
{
	res->hit += FAKE_BLOCK;
}

static void lookup_hit_inside_a_block(struct kvmm_lookup_res *res)
{
	res->hit -= 1;
}

static void (*const lookup_lies[])(struct kvmm_lookup_res *res) = {
	lookup_refused, lookup_more_of_nothing, lookup_more_than_asked,
	lookup_other_sum, lookup_no_tier, lookup_many_runs, lookup_hit_elsewhere,
};

static void (*const hit_lies[])(struct kvmm_lookup_res *res) = {
	lookup_hit_too_long, lookup_hit_inside_a_block,
};

/* An error is told; an answer that cannot be ends the attachment. */
START_TEST(test_lookup_lies)
{
	const u32 ids[2 * FAKE_BLOCK] = { 0 };
	struct kvmm_found found;

	f.cached = f.on_device = f.lookup_most = 2 * FAKE_BLOCK;
	f.spoil_lookup = lookup_lies[_i];
	ck_assert_int_eq(kvmm_lookup(k, 0, ids, 2 * FAKE_BLOCK, &found),
			 _i ? -ECONNRESET : -EINVAL);
	if (_i)
		check_ended("kvmm found");
	ck_assert_int_eq(kvmm_nop(k), _i ? -ECONNRESET : 0);
}
END_TEST

START_TEST(test_hit_lies)
{
	const u32 ids[2 * FAKE_BLOCK] = { 0 };
	struct kvmm_found found;

	f.on_device = f.lookup_most = 2 * FAKE_BLOCK;
	f.spoil_lookup = hit_lies[_i];
	ck_assert_int_eq(kvmm_lookup(k, 0, ids, 2 * FAKE_BLOCK, &found), -ECONNRESET);
	check_ended("and a hit of");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("libkvmm-lookup");
	TCase *tc = new_case("lookup"), *groups = tcase_create("groups");

	tcase_add_loop_test(tc, test_lookup, 0, ARRAY_SIZE(lookups));
	tcase_add_loop_test(tc, test_lookup_lies, 0, ARRAY_SIZE(lookup_lies));
	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(groups, setup_groups, teardown);
	tcase_add_loop_test(groups, test_lookup_groups, 0, ARRAY_SIZE(group_hits));
	tcase_add_loop_test(groups, test_hit_lies, 0, ARRAY_SIZE(hit_lies));
	suite_add_tcase(s, groups);
	return run_suite(s);
}
