// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_migrate.c - directed tests of blocks that move to other spans
 *
 * Two domains of a tenant, spans of four blocks.  The test plays the copier: it
 * notes the orders and answers them when it likes.  Block tables are compared
 * with the ordered copies.
 */
#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define MOST	64

static struct core *c;
static struct kv_domain *d;
static u32 cl;
static struct core_copy copies[MOST];
static u32 nr_copies;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MOST);
	copies[nr_copies++] = *cp;
}

static void setup(void)
{
	sh_config(8);
	sh_on_copy = on_copy;
	nr_copies = 0;
	sh_start();
	c = sh.core;
	cl = sh_attach(1, "a");
	d = &c->domains[sh.cl[cl].info.domain];
	sh_warm(cl);
	(void)!core_drop_caches(c, sh.now, 0, 100);
}

static struct kv_seq *seq_of(u64 seq)
{
	return seq_find(c, cl, seq);
}

static u32 block_of(u64 seq, u32 idx)
{
	return table_get(c, &seq_of(seq)->tab, idx);
}

static void set_prio(u32 who, u64 seq, u32 priority)
{
	struct kvmm_prio_arg *a = (void *)sh.args;

	*a = (struct kvmm_prio_arg){ .seq = seq, .priority = priority };
	ck_assert_int_eq(sh_submit(who, KVMM_OP_SEQ_SETPRIO, 1, 0, sizeof(*a)),
			 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
}

static u32 span_of(u64 seq, u32 idx)
{
	return block_span(c, block_of(seq, idx));
}

/* A computed sequence of @tokens, with room for @more. */
static u64 computed(u32 tokens, u32 more, u32 seed)
{
	u64 seq = sh_ready(cl, tokens, more, seed);

	sh_compute(cl, seq, 0, tokens, seed);
	return seq;
}

static void answer_all(int status)
{
	u32 i, nr = nr_copies;

	nr_copies = 0;
	for (i = 0; i < nr; i++)
		SH_CORE(core_copy_done(c, sh.now, copies[i].id, status));
	sh_settle();
}

static void evacuate(u32 first)
{
	ck_assert(evacuate_span(c, first, true));
	sh_check();
}

/* Copies are ordered; when they have ended the tables name the new blocks. */
START_TEST(test_moves)
{
	u64 a = computed(3 * SH_BT + 5, 40, 1000);
	u32 first = span_of(a, 0), old = block_of(a, 3), i;

	ck_assert_uint_eq(span_of(a, 3), first);
	evacuate(first);
	ck_assert_uint_eq(nr_copies, 4);
	for (i = 0; i < 4; i++) {
		ck_assert(copies[i].within);
		ck_assert_uint_eq(copies[i].bytes, SH_BLOCK);
		ck_assert_uint_eq(copies[i].dev_off,
				  sh_table(cl, a, i) * (u64)CORE_UNIT);
	}
	answer_all(0);
	for (i = 0; i < 4; i++) {
		ck_assert_uint_ne(span_of(a, i), first);
		ck_assert_uint_eq(copies[i].dev_to,
				  sh_table(cl, a, i) * (u64)CORE_UNIT);
	}
	ck_assert_uint_eq(c->blocks[old].state, BLK_FREE);
	ck_assert_uint_eq(c->extents[first].state, EXT_BACKED);
	ck_assert_uint_eq(sh_count(CORE_EV_migrate_success), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_success), 4);
	/* The moved blocks are found, and the tail is written in place. */
	sh_compute(cl, a, 3 * SH_BT + 5, 4 * SH_BT, 1000);
	a = sh_ready(cl, 4 * SH_BT, 1, 1000);
	ck_assert_uint_eq(sh_status(cl, a)->cached_len, 3 * SH_BT + 15);
}
END_TEST

/* A block that forks share moves for all of them, in one copy. */
START_TEST(test_all_mappers)
{
	u64 a = computed(2 * SH_BT + 3, 40, 1000), kid[2];
	u32 first = span_of(a, 0), i, n;

	ck_assert_int_eq(sh_fork(cl, a, 2, kid), 0);
	evacuate(first);
	ck_assert_uint_eq(nr_copies, 3);
	answer_all(0);
	ck_assert_uint_eq(c->extents[first].state, EXT_BACKED);
	for (i = 0; i < 3; i++)
		for (n = 0; n < 2; n++)
			ck_assert_uint_eq(block_of(a, i), block_of(kid[n], i));
	ck_assert_uint_eq(c->blocks[block_of(a, 2)].nr_map, 3);
	/* The tail is still shared: a sequence that appends copies it. */
	ck_assert_int_eq(sh_begin(cl, a, 2 * SH_BT + 3, 1), 0);
	ck_assert_uint_ne(block_of(a, 2), block_of(kid[0], 2));
}
END_TEST

/* Steps that saw the old block keep it until they end; the client is told. */
START_TEST(test_open_step)
{
	u64 a = computed(2 * SH_BT, 40, 1000), step;
	const struct kvmm_begin_res *res = (const void *)sh.results;
	u32 first = span_of(a, 0), old = block_of(a, 0), tail;

	ck_assert_int_eq(sh_begin(cl, a, 2 * SH_BT, 4), 0);
	step = sh.cl[cl].step;
	tail = block_of(a, 2);
	ck_assert_uint_eq(block_span(c, tail), first);
	evacuate(first);
	/* A block that the step may write stays. */
	ck_assert_uint_eq(nr_copies, 2);
	answer_all(0);
	ck_assert_uint_ne(block_of(a, 0), old);
	ck_assert_uint_eq(block_of(a, 2), tail);
	ck_assert_uint_eq(c->blocks[old].state, BLK_QUIESCING);
	ck_assert_uint_eq(c->blocks[old].nr_src, 1);
	ck_assert_int_eq(sh_end_step(cl, step, a, 2 * SH_BT, 2 * SH_BT + 4,
				     1000), 0);
	ck_assert_uint_eq(c->blocks[old].state, BLK_FREE);
	/* The tail is in no step now: its next grant copies it out of the span. */
	ck_assert_int_eq(sh_begin(cl, a, 2 * SH_BT + 4, 4), 0);
	ck_assert_uint_eq(res->table_lo, 0);
	ck_assert_uint_eq(res->copy_tokens, 4);
	ck_assert_uint_ne(span_of(a, 2), first);
	ck_assert_uint_eq(c->blocks[tail].state, BLK_QUIESCING);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_uint_eq(c->extents[first].state, EXT_BACKED);
}
END_TEST

/* Two clients of the domain, each with a step that saw the same block. */
START_TEST(test_held_by_two)
{
	u32 other = sh_attach(1, "a"), first, old, i;
	u64 a = computed(2 * SH_BT, 40, 1000), b;

	b = sh_ready(other, 2 * SH_BT + 1, 40, 1000);
	first = span_of(a, 0);
	old = block_of(a, 0);
	ck_assert_uint_eq(table_get(c, &seq_find(c, other, b)->tab, 0), old);
	ck_assert_int_eq(sh_begin(cl, a, 2 * SH_BT, 4), 0);
	ck_assert_int_eq(sh_begin(other, b, 2 * SH_BT, 4), 0);
	evacuate(first);
	answer_all(0);
	ck_assert_uint_ne(block_of(a, 0), old);
	ck_assert_uint_eq(table_get(c, &seq_find(c, other, b)->tab, 0),
			  block_of(a, 0));
	ck_assert_uint_eq(c->blocks[old].nr_src, 2);
	ck_assert_int_eq(sh_end_empty(cl, sh.cl[cl].step), 0);
	ck_assert_uint_eq(c->blocks[old].state, BLK_QUIESCING);
	/* The other client dies: the old block is free when it can read no more. */
	sh_die(other);
	ck_assert_uint_eq(c->blocks[old].state, BLK_QUIESCING);
	sh_quiet(other);
	for (i = 0; i < 3; i++)
		sh_tick(1);
	ck_assert_uint_eq(c->blocks[old].state, BLK_FREE);
}
END_TEST

/* A tail that is appended to during its copy does not move. */
START_TEST(test_written_meanwhile)
{
	u64 a = computed(SH_BT + 5, 40, 1000);
	u32 first = span_of(a, 0), tail = block_of(a, 1);

	/* The domain has no room: else the grant would copy the tail. */
	evacuate(first);
	ck_assert_uint_eq(nr_copies, 2);
	d->dev.max_blocks = domain_used(d);
	ck_assert_int_eq(sh_begin(cl, a, SH_BT + 5, 3), 0);
	ck_assert_uint_eq(block_of(a, 1), tail);
	d->dev.max_blocks = 0xfffffffe;
	ck_assert_int_eq(sh_end(cl, a, SH_BT + 5, SH_BT + 8, 1000), 0);
	answer_all(0);
	ck_assert_uint_eq(block_of(a, 1), tail);
	ck_assert_uint_ne(span_of(a, 0), first);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_fail), 1);
	/* The tail is copied once more, with its present content. */
	ck_assert_uint_eq(nr_copies, 1);
	answer_all(0);
	ck_assert_uint_ne(span_of(a, 1), first);
	ck_assert_uint_eq(c->extents[first].state, EXT_BACKED);
}
END_TEST

/* A block that is freed during its copy is not reused until the copy ends. */
START_TEST(test_freed_meanwhile)
{
	struct kvmm_open_arg arg = { .prompt_len = 20, .max_tokens = 9,
				     .flags = KVMM_OPEN_NO_INDEX };
	u32 first, old;
	u64 a;

	ck_assert_int_eq(sh_open_as(cl, &arg, &a), 0);
	ck_assert_int_eq(sh_match(cl, a, 20, 1000), 0);
	sh_compute(cl, a, 0, 20, 1000);
	first = span_of(a, 0);
	old = block_of(a, 0);
	evacuate(first);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(c->blocks[old].state, BLK_LIMBO);
	ck_assert_uint_eq(c->extents[first].state, EXT_SPAN);
	answer_all(0);
	ck_assert_uint_eq(c->extents[first].state, EXT_BACKED);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_success), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_fail), 2);
	ck_assert_uint_eq(sh_pool().limbo, 0);
}
END_TEST

/* A failed copy moves no block; the span is put back in the end. */
START_TEST(test_failed)
{
	u64 a = computed(2 * SH_BT, 40, 1000);
	u32 first = span_of(a, 0), old = block_of(a, 1), i;

	evacuate(first);
	for (i = 0; i < 100 && span_is_isolated(&c->spans[first]); i++) {
		answer_all(-EIO);
		ck_assert_uint_eq(block_of(a, 1), old);
		sh_tick(1);
	}
	ck_assert_uint_gt(sh_count(CORE_EV_pgmigrate_fail), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_success), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_migrate_fail), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_span_putback), 1);
	answer_all(-EIO);
	ck_assert_uint_eq(sh_pool().limbo, 0);
	sh_compute(cl, a, 2 * SH_BT, 3 * SH_BT, 1000);
}
END_TEST

/* A repeated answer, and one without a request, is ignored. */
START_TEST(test_answers)
{
	u64 a = computed(SH_BT, 40, 1000);

	evacuate(span_of(a, 0));
	ck_assert_uint_eq(nr_copies, 1);
	answer_all(0);
	nr_copies = 1;
	answer_all(-EIO);
	copies[0].id += 1ull << 32;
	nr_copies = 1;
	answer_all(0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_success), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmigrate_fail), 0);
}
END_TEST

/*
 * Another domain lacks a span.  This domain has three spans, with one used
 * block each: one is emptied into another, and no sequence is preempted.
 */
START_TEST(test_for_another)
{
	u64 a[12], b;
	u32 i, other;

	for (i = 0; i < 12; i++)
		a[i] = computed(SH_BT, 3 * SH_BT, 1000 * (i + 1));
	for (i = 0; i < 12; i++)
		if (i % SH_PER)
			ck_assert_int_eq(sh_close(cl, a[i]), 0);
	(void)!core_drop_caches(c, sh.now, 0, 100);
	ck_assert_uint_eq(domain_used(d), 3);
	ck_assert_uint_ne(span_of(a[0], 0), span_of(a[4], 0));
	ck_assert_uint_ne(span_of(a[0], 0), span_of(a[8], 0));
	other = sh_attach(1, "b");
	/* One span more than the pool has free. */
	b = sh_open(other, 6 * SH_PER * SH_BT, 0);
	ck_assert_int_eq(sh_match(other, b, 6 * SH_PER * SH_BT, 9), 0);
	ck_assert_uint_eq(sh_state(other, b), KVMM_SEQ_WAITING);
	ck_assert_uint_gt(nr_copies, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_mark), 0);
	answer_all(0);
	ck_assert_uint_eq(sh_state(other, b), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_mark), 0);
	ck_assert_uint_eq(d->dev.nr_spans, 2);
}
END_TEST

/*
 * Domain "a" has three spans with one used and three cached blocks each, and no
 * free block.  Another domain, with a memory.min of @min blocks, asks for one
 * span more than the rest of the pool has.
 */
static u64 asks_for_one_more(u32 min, u32 *other)
{
	struct kvmm_attach_req req = sh_attach_req("b");
	u64 a[12], b;
	u32 i;

	req.limits[0].min = min * SH_BLOCK;
	for (i = 0; i < 12; i++)
		a[i] = computed(SH_BT, 3 * SH_BT, 1000 * (i + 1));
	for (i = 0; i < 12; i++)
		if (i % SH_PER)
			ck_assert_int_eq(sh_close(cl, a[i]), 0);
	ck_assert_uint_eq(domain_used(d), 12);
	ck_assert_uint_eq(domain_cached(d), 9);
	*other = (u32)sh_attach_as(1, &req);
	sh_settle();
	b = sh_open(*other, 6 * SH_PER * SH_BT, 0);
	ck_assert_int_eq(sh_match(*other, b, 6 * SH_PER * SH_BT, 9), 0);
	ck_assert_uint_eq(sh_state(*other, b), KVMM_SEQ_WAITING);
	return b;
}

/* Moved blocks take the place of cache, and no sequence is preempted. */
START_TEST(test_cache_makes_room)
{
	u32 other, min = _i ? 7 * SH_PER : 0;
	u64 b = asks_for_one_more(min, &other);

	/* At once, within memory.min too: migration comes before preemption. */
	ck_assert_uint_gt(nr_copies, 0);
	answer_all(0);
	ck_assert_uint_eq(sh_state(other, b), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_mark), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_min), 0);
	ck_assert_uint_eq(d->dev.nr_spans, 2);
}
END_TEST

/* Cache that memory.min or the cache floor protects does not give way. */
START_TEST(test_kept_cache_makes_no_room)
{
	u32 other;

	if (_i)	/* half of half of the pool */
		ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_cache_floor,
					   50), 0);
	else
		ck_assert_int_eq(core_domain_set(c, sh.now, 0, CORE_LIMIT_MIN,
						 11 * SH_BLOCK), 0);
	(void)asks_for_one_more(0, &other);
	ck_assert_uint_eq(domain_used(d), 12);
	ck_assert_uint_eq(nr_copies, 0);
}
END_TEST

/*
 * All free blocks of "a" are reserved, so none of its spans can be emptied for
 * a growing sequence elsewhere.  Results of an earlier scan do not count.
 */
START_TEST(test_looked_at_anew)
{
	u32 other, i;
	u64 a, b;

	a = sh_ready(cl, 6 * SH_BT, 0, 1000);
	sh_compute(cl, a, 0, 5 * SH_BT, 1000);
	(void)sh_ready(cl, 2 * SH_BT, 0, 2000);
	other = sh_attach(1, "b");
	b = sh_ready(other, 6 * SH_PER * SH_BT, SH_BT, 9);
	sh_compute(other, b, 0, 6 * SH_PER * SH_BT, 9);
	ck_assert_uint_eq(d->dev.nr_spans, 2);
	ck_assert_uint_eq(domain_free(d), 3);
	ck_assert_uint_eq(domain_slack(d), 0);
	set_prio(other, b, 9);
	for (i = 0; i < sh.cfg.max_domains; i++)
		c->domain_scans[i].spare = 8 * SH_PER;
	ck_assert_int_eq(sh_begin(other, b, 6 * SH_PER * SH_BT, 1), 0);
	ck_assert_uint_eq(nr_copies, 0);
	ck_assert_uint_gt(sh_count(CORE_EV_preempt_mark), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_migrate");
	TCase *tc = tcase_create("migrate");

	tcase_add_checked_fixture(tc, setup, sh_stop);
	tcase_add_test(tc, test_moves);
	tcase_add_test(tc, test_all_mappers);
	tcase_add_test(tc, test_open_step);
	tcase_add_test(tc, test_held_by_two);
	tcase_add_test(tc, test_written_meanwhile);
	tcase_add_test(tc, test_freed_meanwhile);
	tcase_add_test(tc, test_failed);
	tcase_add_test(tc, test_answers);
	tcase_add_test(tc, test_for_another);
	tcase_add_loop_test(tc, test_cache_makes_room, 0, 2);
	tcase_add_loop_test(tc, test_kept_cache_makes_no_room, 0, 2);
	tcase_add_test(tc, test_looked_at_anew);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
