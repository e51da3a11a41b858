// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_steal_kept.c - cache of other domains that goes before one's own
 *
 * The domain "a" is cold: none of its sequences runs, and the others have used all
 * of their memory since.  "t" takes its spans, the one with the least cache first.
 */
#include "tests/unit/span_scene.h"

#define POOL_BYTES	(EXTENTS * SH_EXTENT)

/* Others have used the pool once. */
static void time_passes(void)
{
	c->head->zones[0].touched += POOL_BYTES;
}

static bool kept_with(char letter, u32 want, struct run_look *l)
{
	bool ok;

	c->now = sh.now;
	c->work = 0;
	SH_CORE(ok = span_steal_kept(c, dom_of(letter), want, l));
	sh_check();
	return ok;
}

static bool kept(char letter)
{
	struct run_look l = { .nr = 0 };

	return kept_with(letter, 1, &l);
}

/* Take one run, and make spans of it. */
static void expect_kept(char letter, const char *after)
{
	ck_assert(kept(letter));
	while (extent_run_take(c, dom_of(letter)) >= 0)
		;
	sh_settle();
	ck_assert_str_eq(map(), after);
}

/* Nothing is taken, and nothing is looked at. */
static void expect_no_look(char letter)
{
	u64 after = d_of(letter)->look_after;

	ck_assert(!kept(letter));
	ck_assert_uint_eq(c->work, 0);
	ck_assert_uint_eq(d_of(letter)->look_after, after);
}

/* All was looked at in vain, which is not repeated at once. */
static void expect_vain_look(char letter, u32 work)
{
	ck_assert(!kept(letter));
	ck_assert_uint_eq(c->work, work);
	ck_assert_uint_eq(d_of(letter)->look_after,
			  c->head->zones[0].touched + POOL_BYTES / 32);
}

START_TEST(test_cold_cache_goes)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("aabbBBTT");
	d_of('a')->touched = c->head->zones[0].touched;
	expect_no_look('t');
	time_passes();
	expect_kept('t', ".abbBBTT");
	ck_assert_uint_eq(c->work, 2 * SCAN + LOOK);
	expect_kept('t', "..bbBBTT");
	expect_no_look('t');
}
END_TEST

/* Of a tenant's domains only: others have to be asked. */
START_TEST(test_cold_cache_of_another_tenant_stays)
{
	domain('x', 2, 1);
	domain('a', 1, 1);
	layout("xxaaAATT");
	time_passes();
	wait_long();
	expect_no_look('t');
}
END_TEST

START_TEST(test_least_cache_first)
{
	struct run_look l = { .nr = 0 };

	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("aaabBBTT");
	thin(1, 1);
	thin(2, 2);
	time_passes();
	ck_assert(kept_with('t', 1, &l));
	ck_assert_str_eq(map(), "aa.bBBTT");
	ck_assert_uint_eq(l.key[0], UINT32_MAX - 2);
	ck_assert_uint_eq(l.key[1], UINT32_MAX - 3);
	ck_assert_uint_eq(l.key[2], UINT32_MAX - 4);
	expect_kept('t', "a..bBBTT");
	expect_kept('t', "...bBBTT");
}
END_TEST

/* Empty spans go first, and as many as are wanted are looked for. */
START_TEST(test_empty_spans_first)
{
	struct run_look l = { .nr = 0 };

	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("aaaaaBTT");
	thin(1, 4);
	thin(3, 4);
	time_passes();
	ck_assert(kept_with('t', 1, &l));
	ck_assert_str_eq(map(), "a.a_aBTT");
	ck_assert_uint_eq(l.nr, 2);
	ck_assert_uint_eq(l.next, 1);
	ck_assert_uint_eq(l.run[1], 0);
	/* Two spans of the scan were looked at, and the chosen one again. */
	ck_assert_uint_eq(c->work, SCAN + 3 * LOOK);
	l.nr = 0;
	l.next = 0;
	ck_assert(kept_with('t', 3, &l));
	ck_assert_str_eq(map(), "a.a.aBTT");
	ck_assert_uint_eq(l.nr, 4);
	ck_assert_uint_eq(l.key[0], UINT64_MAX);
	ck_assert_uint_eq(l.key[1], UINT32_MAX - 4);
	ck_assert_uint_eq(c->work, 2 * SCAN + LOOK);
}
END_TEST

/* One scan serves several calls, as long as the spans are there. */
START_TEST(test_kept_runs_from_one_scan)
{
	struct run_look l = { .nr = 0 };

	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("aaaaBBTT");
	time_passes();
	ck_assert(kept_with('t', 1, &l));
	ck_assert_str_eq(map(), ".aaaBBTT");
	ck_assert_uint_eq(l.nr, 4);
	ck_assert_int_eq(span_isolate(c, 1), 0);
	ck_assert(kept_with('t', 1, &l));
	ck_assert_str_eq(map(), ".a.aBBTT");
	ck_assert_uint_eq(l.next, 3);
	ck_assert_uint_eq(c->work, 2 * LOOK);
	ck_assert(kept_with('t', 1, &l));
	ck_assert_uint_eq(c->work, LOOK);
	ck_assert_str_eq(map(), ".a..BBTT");
	ck_assert(!kept_with('t', 1, &l));
	ck_assert_uint_eq(l.nr, 0);
}
END_TEST

/* A run goes if all of its spans are kept, and it has one. */
START_TEST(test_kept_run_of_two)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('g', 1, 2);
	layout("abbbaaBa");
	release(2);
	release(3);
	release(7);
	time_passes();
	ck_assert(kept('g'));
	ck_assert_str_eq(map(), "ab....B.");
	ck_assert(!kept('g'));
	restart(EXTENTS, 0);
	domain('a', 1, 1);
	domain('b', 1, 1);
	domain('g', 1, 2);
	layout("BBaabBaB");
	release(3);
	time_passes();
	ck_assert(kept('g'));
	ck_assert_str_eq(map(), "BB..bBaB");
}
END_TEST

/* memory.min and memory.low protect cold cache, too. */
START_TEST(test_protected_cold_cache_stays)
{
	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("aaabBBTT");
	time_passes();
	set_blocks('a', CORE_LIMIT_LOW, 9);
	expect_vain_look('t', 2 * SCAN);
	/* The next look is due when as much of the pool was used. */
	c->head->zones[0].touched += POOL_BYTES / 32 - 1;
	expect_no_look('t');
	set_blocks('a', CORE_LIMIT_LOW, 8);
	expect_no_look('t');
	c->head->zones[0].touched += 1;
	expect_kept('t', ".aabBBTT");
	expect_vain_look('t', 2 * SCAN);
}
END_TEST

static void floor_scene(void)
{
	restart(EXTENTS, 50);
	domain('a', 1, 1);
	domain('b', 1, 1);
	set('a', CORE_LIMIT_WEIGHT, 200);
	layout("aaabBBTT");
	ck_assert_uint_eq(d_of('a')->floor, 8);
	time_passes();
}

START_TEST(test_floor_of_cold_cache_stays)
{
	floor_scene();
	thin(0, 1);
	expect_no_look('t');
	floor_scene();
	expect_kept('t', ".aabBBTT");
	expect_no_look('t');
}
END_TEST

/* A block that a copy reads keeps its span: the next look is put off. */
START_TEST(test_kept_span_with_a_block_that_is_read)
{
	struct run_look l = { .nr = 0 };

	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("aaBBBBTT");
	sh_unchecked = true;
	time_passes();
	block_copy_get(c, 3);
	ck_assert(!kept_with('t', 1, &l));
	ck_assert_str_eq(map(), "AaBBBBTT");
	ck_assert_uint_eq(l.nr, 0);
	ck_assert_uint_eq(d_of('t')->look_after,
			  c->head->zones[0].touched + POOL_BYTES / 32);
	block_copy_put(c, 3);
}
END_TEST

/*
 * A domain with a running sequence takes unused extents ahead of need, but not while a
 * sequence of another domain waits for room.
 */
START_TEST(test_nothing_ahead_of_a_waiter)
{
	struct kv_domain *b;

	domain('a', 1, 1);
	domain('b', 1, 1);
	layout("Aabtttbb");
	release(2);
	sh_unchecked = true;	/* no sequence waits for the blocks below */
	b = d_of('b');
	b->stalled = 4;
	b->nr_waiting = 1;
	SH_CORE(room_ahead(c, dom_of('a')));
	ck_assert_uint_eq(d_of('a')->dev.nr_spans, 2);
	b->nr_waiting = 0;
	thin(1, 3);
	d_of('a')->nr_running = 4;
	SH_CORE(room_ahead(c, dom_of('a')));
	ck_assert_uint_eq(d_of('a')->dev.nr_spans, 3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_steal_kept");
	TCase *tc = tcase_create("steal_kept");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_cold_cache_goes);
	tcase_add_test(tc, test_cold_cache_of_another_tenant_stays);
	tcase_add_test(tc, test_least_cache_first);
	tcase_add_test(tc, test_empty_spans_first);
	tcase_add_test(tc, test_kept_runs_from_one_scan);
	tcase_add_test(tc, test_kept_run_of_two);
	tcase_add_test(tc, test_protected_cold_cache_stays);
	tcase_add_test(tc, test_floor_of_cold_cache_stays);
	tcase_add_test(tc, test_kept_span_with_a_block_that_is_read);
	tcase_add_test(tc, test_nothing_ahead_of_a_waiter);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
