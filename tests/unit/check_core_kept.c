// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_kept.c - which of two domains that share a pool loses cache first
 *
 * A pool of 64 blocks in spans of 4.  A domain that needs room takes cache of a
 * domain that is cold, or has clearly more, before it evicts its own.  It takes
 * none of a domain that is in use, was used a short time ago, is protected, or
 * belongs to another tenant.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define POOL	16u			/* extents */
#define ALL	(POOL * SH_PER)		/* blocks */
#define CACHED	3u			/* in core_domain_view.blocks */
#define MORE	(4 * SH_PER)		/* clearly more: two spans of each */

static void start(u32 floor)
{
	sh_config(POOL);
	sh.cfg.starve_ns = 1ull << 60;
	sh.cfg.step_deadline_ns = 1ull << 60;
	sh.cfg.watermark_scale_factor = 0;
	sh.cfg.cache_floor = floor;
	sh_start();
}

static void setup(void)
{
	start(0);
}

static void teardown(void)
{
	sh_stop();
}

static u64 resident(u32 cl, u32 blocks, u32 seed)
{
	u64 seq = sh_ready(cl, blocks * SH_BT, 0, seed);

	sh_compute(cl, seq, 0, blocks * SH_BT, seed);
	return seq;
}

static void cache(u32 cl, u32 blocks, u32 seed)
{
	ck_assert_int_eq(sh_close(cl, resident(cl, blocks, seed)), 0);
}

static u32 cached(u32 cl)
{
	return sh_domain(cl).blocks[CACHED];
}

/* New prompts of 8 blocks: all blocks are computed, and need room. */
static void churn(u32 cl, u32 nr, u32 seed)
{
	u32 i;

	for (i = 0; i < nr; i++)
		cache(cl, 8, seed + 1000 * i);
}

static void set(u32 cl, u32 which, u64 value)
{
	int err;

	SH_CORE(err = core_domain_set(sh.core, sh.now, sh.cl[cl].info.domain,
				      which, value));
	ck_assert_int_eq(err, 0);
	sh_check();
}

/* Each domain caches half a pool; since @a was used, half a pool was. */
static void halves(u32 *a, u32 *b)
{
	*a = sh_attach(1, "a");
	*b = sh_attach(1, "b");
	cache(*a, ALL / 2, 0);
	cache(*b, ALL / 2, 5000);
	ck_assert_uint_eq(cached(*a), ALL / 2);
	ck_assert_uint_eq(cached(*b), ALL / 2);
}

START_TEST(test_cold_goes_first)
{
	u32 a, b;

	halves(&a, &b);
	churn(b, 1, 10000);
	ck_assert_uint_lt(cached(a), ALL / 2);
	ck_assert_uint_eq(cached(a) + cached(b), ALL);
	/* The cold domain loses as much more as the other one uses. */
	churn(b, 5, 20000);
	ck_assert_uint_eq(cached(a), 0);
	ck_assert_uint_eq(cached(b), ALL);
	/* Then the domain evicts its own cache. */
	churn(b, 2, 30000);
	ck_assert_uint_eq(cached(b), ALL);
}
END_TEST

START_TEST(test_down_to_the_floor)
{
	u32 a, b;

	teardown();
	start(50);
	halves(&a, &b);
	churn(b, 8, 10000);
	ck_assert_uint_eq(cached(a), ALL / 4);
	ck_assert_uint_eq(cached(b), ALL - ALL / 4);
}
END_TEST

/* A prompt that is found again makes its domain warm. */
START_TEST(test_used_of_late)
{
	u32 a, b, had;

	halves(&a, &b);
	ck_assert_int_eq(sh_close(a, sh_ready(a, 24 * SH_BT, 0, 0)), 0);
	had = cached(a);
	ck_assert_uint_ge(had, ALL / 2 - 1);
	churn(b, 3, 10000);
	ck_assert_uint_eq(cached(a), had);
	ck_assert_uint_eq(cached(b), ALL / 2);
	/* The domain is cold again after the others used as much as they have. */
	churn(b, 3, 20000);
	ck_assert_uint_lt(cached(a), had);
}
END_TEST

START_TEST(test_somebody_runs)
{
	u32 a = sh_attach(1, "a"), b = sh_attach(1, "b");
	u64 seq;

	cache(a, ALL / 2 - 4, 0);
	seq = resident(a, 4, 3000);
	cache(b, ALL / 2, 5000);
	churn(b, 8, 10000);
	ck_assert_uint_eq(cached(a), ALL / 2 - 4);
	ck_assert_uint_eq(cached(b), ALL / 2);
	/* The end of its last sequence is a use of the domain. */
	ck_assert_int_eq(sh_close(a, seq), 0);
	churn(b, 3, 20000);
	ck_assert_uint_eq(cached(a), ALL / 2);
}
END_TEST

/* Both domains are busy: cache moves where the weights want it, no further. */
START_TEST(test_clearly_more)
{
	u32 a = sh_attach(1, "a"), b = sh_attach(1, "b");
	u64 seq;

	seq = resident(a, 4, 3000);
	cache(a, ALL - 12, 0);
	cache(b, 8, 5000);
	churn(b, 8, 10000);
	ck_assert_uint_eq(cached(b) + MORE, cached(a) + 4);
	churn(b, 2, 20000);
	ck_assert_uint_eq(cached(b) + MORE, cached(a) + 4);
	ck_assert_uint_eq(cached(a) + cached(b), ALL - 4);
	ck_assert_int_eq(sh_close(a, seq), 0);
}
END_TEST

START_TEST(test_more_by_weight)
{
	u32 a = sh_attach(1, "a"), b = sh_attach(1, "b");
	u64 seq;

	set(a, CORE_LIMIT_WEIGHT, 300);
	seq = resident(a, 4, 3000);
	cache(a, ALL - 12, 0);
	cache(b, 8, 5000);
	churn(b, 4, 10000);
	ck_assert_uint_eq(cached(a), ALL - 12);
	ck_assert_uint_eq(cached(b), 8);
	ck_assert_int_eq(sh_close(a, seq), 0);
}
END_TEST

/* Blocks that the second domain has in the end, at these prices of the domains' content. */
static u32 cached_at(u64 price_a, u64 price_b, u32 weight_a)
{
	u32 a, b, had;
	u64 seq;

	teardown();
	setup();
	a = sh_attach(1, "a");
	b = sh_attach(1, "b");
	set(a, CORE_LIMIT_WEIGHT, weight_a);
	sh.core->domains[sh.cl[a].info.domain].prefill_ns_token = price_a;
	sh.core->domains[sh.cl[b].info.domain].prefill_ns_token = price_b;
	seq = resident(a, 4, 3000);
	cache(a, ALL - 12, 0);
	cache(b, 8, 5000);
	churn(b, 10, 10000);
	had = cached(b);
	ck_assert_uint_eq(cached(a) + had, ALL - 4);
	ck_assert_int_eq(sh_close(a, seq), 0);
	return had;
}

/*
 * Content that takes longer to compute gets more of the cache: as much more as it takes
 * longer, in powers of two, up to 16.  A price alone, or about the same prices, change
 * nothing.
 */
START_TEST(test_more_by_price)
{
	const u32 even = cached_at(0, 0, 100);

	ck_assert_uint_eq(even, (ALL - MORE) / 2);
	ck_assert_uint_eq(cached_at(1000, 0, 100), even);
	ck_assert_uint_eq(cached_at(0, 1000, 100), even);
	ck_assert_uint_eq(cached_at(1000, 1900, 100), even);
	ck_assert_uint_eq(cached_at(1900, 1000, 100), even);
	/* Of 16 spans one keeps at most n times as many as the other has, and 4 more. */
	ck_assert_uint_eq(cached_at(2000, 1000, 100), 12);
	ck_assert_uint_eq(cached_at(16000, 1000, 100), 8);
	ck_assert_uint_eq(cached_at(1000, 2000, 100), 40);
	ck_assert_uint_eq(cached_at(1000, 7000, 100), 48);
	ck_assert_uint_eq(cached_at(1000, 16000, 100), 60);
	/* 32 times the weight is twice as much as the highest price. */
	ck_assert_uint_eq(cached_at(1000, 16000, 3200), 12);
	ck_assert_uint_eq(cached_at(1000, 1000000, 3200), 12);
}
END_TEST

/* A domain at its own limit evicts only its own cache. */
START_TEST(test_own_limit)
{
	u32 a, b;

	halves(&a, &b);
	set(b, CORE_LIMIT_MAX, ALL / 2 * sh_domain(b).block_bytes);
	churn(b, 4, 10000);
	ck_assert_uint_eq(cached(a), ALL / 2);
	ck_assert_uint_eq(cached(b), ALL / 2);
}
END_TEST

START_TEST(test_protected)
{
	u32 a, b;

	halves(&a, &b);
	set(a, CORE_LIMIT_LOW, ALL / 2 * sh_domain(a).block_bytes);
	churn(b, 8, 10000);
	ck_assert_uint_eq(cached(a), ALL / 2);
}
END_TEST

START_TEST(test_another_tenant)
{
	u32 a = sh_attach(1, "a"), b = sh_attach(2, "b");

	cache(a, ALL / 2, 0);
	cache(b, ALL / 4, 5000);
	churn(b, 8, 10000);
	ck_assert_uint_eq(cached(a), ALL / 2);
	/* Nor is it taken if no client is left that would have to unmap it. */
	sh_die(a);
	sh_quiet(a);
	churn(b, 4, 30000);
	ck_assert_uint_eq(cached(a), ALL / 2);
}
END_TEST

/* A domain takes many runs from one scan, instead of scanning the pool for each. */
START_TEST(test_looks_are_few)
{
	const u32 pool = SH_EXTENTS, want = pool / 2;
	u32 a, b, dom, i;
	int err;

	teardown();
	sh_config(pool);
	sh.cfg.watermark_scale_factor = 0;
	sh_start();
	a = sh_attach(1, "a");
	b = sh_attach(1, "b");
	for (i = 0; i < pool; i++)
		cache(a, SH_PER, 1000 * i);
	ck_assert_uint_eq(cached(a), pool * SH_PER);
	dom = sh.cl[b].info.domain;
	sh.core->work = 0;
	SH_CORE(err = room_plan(sh.core, dom, want * SH_PER, 0));
	ck_assert_int_eq(err, 0);
	ck_assert_uint_eq(cached(a), (pool - want) * SH_PER);
	/* The scan of span_runs_possible(), and one for each batch. */
	ck_assert_uint_le(sh.core->work, 32 * pool);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core-kept");
	TCase *tc = tcase_create("kept");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit core");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_cold_goes_first);
	tcase_add_test(tc, test_down_to_the_floor);
	tcase_add_test(tc, test_used_of_late);
	tcase_add_test(tc, test_somebody_runs);
	tcase_add_test(tc, test_clearly_more);
	tcase_add_test(tc, test_more_by_weight);
	tcase_add_test(tc, test_more_by_price);
	tcase_add_test(tc, test_own_limit);
	tcase_add_test(tc, test_protected);
	tcase_add_test(tc, test_another_tenant);
	tcase_add_test(tc, test_looks_are_few);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
