// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_isolate.c - directed tests of spans that are to be emptied
 *
 * A pool of four spans.  An isolated span grants no block, its free blocks are
 * no room, and the domain loses the span with its last used block.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

static struct core *c;
static struct kv_domain *d;
static u32 cl;

static void setup(void)
{
	sh_config(4);
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	d = &c->domains[sh.cl[cl].info.domain];
	sh_warm(cl);
	(void)!core_drop_caches(c, sh.now, 0, 100);
}

static u32 span_of(u64 seq, u32 idx)
{
	return block_span(c, table_get(c, &seq_find(c, cl, seq)->tab, idx));
}

static u64 computed(u32 blocks, u32 more, u32 seed)
{
	u64 seq = sh_ready(cl, blocks * SH_BT, more * SH_BT, seed);

	sh_compute(cl, seq, 0, blocks * SH_BT, seed);
	return seq;
}

START_TEST(test_gives_nothing)
{
	u64 a = computed(2, 14, 1000), b;
	u32 first = span_of(a, 0), i;

	ck_assert_int_eq(span_isolate(c, first), 0);
	ck_assert_int_eq(span_isolate(c, first), -EALREADY);
	sh_check();
	ck_assert_uint_eq(d->dev.isolated_free, 2);
	/* The span keeps two free blocks; the other spans have twelve. */
	b = computed(11, 0, 5000);
	for (i = 0; i < 11; i++)
		ck_assert_uint_ne(span_of(b, i), first);
	sh_compute(cl, a, 2 * SH_BT, 3 * SH_BT, 1000);
	ck_assert_uint_ne(span_of(a, 2), first);
	ck_assert_uint_eq(domain_free(d), 0);
	/* The next block comes from a victim, not from the isolated span. */
	sh_compute(cl, a, 3 * SH_BT, 4 * SH_BT, 1000);
	ck_assert_uint_ne(span_of(a, 3), first);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_recompute), 1);
}
END_TEST

START_TEST(test_last_block_takes_it)
{
	u64 a = computed(2, 2, 1000);
	u32 first = span_of(a, 0), spans = d->dev.nr_spans;

	ck_assert_int_eq(span_isolate(c, first), 0);
	ck_assert_int_eq(sh_close(cl, a), 0);
	/* Both blocks are cached. */
	ck_assert_uint_eq(d->dev.isolated_cached, 2);
	ck_assert_uint_eq(c->extents[first].state, EXT_SPAN);
	ck_assert_int_eq(core_drop_caches(c, sh.now, 0, 1), 1);
	sh_check();
	ck_assert_uint_eq(d->dev.isolated_cached, 1);
	ck_assert_uint_eq(d->dev.isolated_free, 3);
	ck_assert_int_eq(core_drop_caches(c, sh.now, 0, 1), 1);
	sh_check();
	ck_assert_uint_eq(c->extents[first].state, EXT_BACKED);
	ck_assert_uint_eq(d->dev.nr_spans, spans - 1);
	ck_assert_uint_eq(d->dev.isolated_free, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_span_isolate), 1);
}
END_TEST

START_TEST(test_empty_goes_at_once)
{
	u32 first = d->dev.class[CORE_CLASS_EMPTY];

	ck_assert_uint_ne(first, CORE_NONE);
	ck_assert_int_eq(span_isolate(c, first), 1);
	ck_assert_uint_eq(c->extents[first].state, EXT_BACKED);
	sh_check();
}
END_TEST

/* A span is isolated only if the reservations still have free blocks. */
START_TEST(test_promises_first)
{
	u64 a = computed(2, 2, 1000), b;
	u32 first = span_of(a, 0);

	b = sh_ready(cl, 11 * SH_BT, 0, 5000);
	ck_assert_uint_eq(d->dev.reserved, 11);
	ck_assert_int_eq(span_isolate(c, first), 0);
	span_putback(c, first);
	ck_assert_uint_eq(d->dev.isolated_free, 0);
	ck_assert_uint_eq(c->spans[first].class, span_class(c, &c->spans[first]));
	ck_assert_int_eq(sh_close(cl, b), 0);
	b = sh_ready(cl, 13 * SH_BT, 0, 6000);
	ck_assert_int_eq(span_isolate(c, first), -EBUSY);
	sh_check();
	sh_compute(cl, b, 0, 13 * SH_BT, 6000);
}
END_TEST

/* Cache in an isolated span is neither counted as room nor evicted for it. */
START_TEST(test_cache_is_no_room)
{
	u64 a = computed(3, 1, 1000), b;
	u32 first = span_of(a, 0);

	b = computed(11, 5, 5000);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_int_eq(span_isolate(c, first), 0);
	sh_check();
	ck_assert_uint_eq(domain_cached(d), 3 - d->dev.isolated_cached);
	ck_assert_uint_gt(d->dev.isolated_cached, 0);
	ck_assert_int_eq(sh_begin(cl, b, 11 * SH_BT, 5 * SH_BT), -EAGAIN);
	ck_assert_uint_eq(d->dev.nr[BLK_CACHED], 3);
	span_putback(c, first);
	ck_assert_int_eq(sh_begin(cl, b, 11 * SH_BT, 5 * SH_BT), 0);
	sh_check();
}
END_TEST

/* A lost device takes the free blocks of an isolated span, too. */
START_TEST(test_lost_device)
{
	u64 a = computed(2, 2, 1000);

	ck_assert_int_eq(span_isolate(c, span_of(a, 0)), 0);
	ck_assert_uint_eq(d->dev.isolated_free, 2);
	SH_CORE(core_device_failed(c, sh.now, 0, CORE_DEVICE_LOST));
	sh_check();
	ck_assert_uint_eq(d->dev.isolated_free, 0);
	ck_assert_uint_eq(d->dev.isolated_cached, 0);
	ck_assert_uint_eq(d->dev.nr[BLK_FREE], 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_isolate");
	TCase *tc = tcase_create("isolate");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_gives_nothing);
	tcase_add_test(tc, test_last_block_takes_it);
	tcase_add_test(tc, test_empty_goes_at_once);
	tcase_add_test(tc, test_promises_first);
	tcase_add_test(tc, test_cache_is_no_room);
	tcase_add_test(tc, test_lost_device);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
