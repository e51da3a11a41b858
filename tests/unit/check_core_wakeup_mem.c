// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_wakeup_mem.c - memory that appears wakes the sequences that wait for it
 *
 * A waiting sequence that was refused is tried again only after a kick
 * (notify.c).  In each test one event gives blocks, a table page or an extent
 * that a waiting sequence needs, and the domain of the sequence is kicked in one
 * place.  Without this kick the sequence would wait until an unrelated event.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

static void config(u32 extents)
{
	sh_config(extents);
	sh.cfg.starve_ns = 1ull << 60;
}

/* A client of tenant 1 with blocks of @kib KiB. */
static u32 attach_kib(const char *name, u32 kib)
{
	struct kvmm_attach_req req = sh_attach_req(name);
	int id;

	req.group[0].layers = kib;
	id = sh_attach_as(1, &req);
	ck_assert_int_ge(id, 0);
	sh_settle();
	return (u32)id;
}

/* A resident sequence of @blocks computed blocks, @more may follow. */
static u64 resident(u32 cl, u32 blocks, u32 more, u32 seed)
{
	u64 seq = sh_ready(cl, blocks * SH_BT, more * SH_BT, seed);

	sh_compute(cl, seq, 0, blocks * SH_BT, seed);
	return seq;
}

/* A sequence of @blocks that must wait. */
static u64 waiting(u32 cl, u32 blocks, u32 seed)
{
	u64 seq = sh_open(cl, blocks * SH_BT, 0);

	ck_assert_int_eq(sh_match(cl, seq, blocks * SH_BT, seed), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	return seq;
}

/* An event that changes nothing: the core tries the domains that were kicked. */
static void nop(u32 cl)
{
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_NOP, 0, 0, 0), 0);
	sh_settle();
}

static void remap(u32 cl, u64 child, u64 other)
{
	const u64 pair[2] = { child, other };

	memcpy(sh.args, pair, sizeof(pair));
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_REMAP, 1, 0, sizeof(pair)),
			 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

static void truncate_to(u32 cl, u64 seq, u32 len)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;

	*a = (struct kvmm_len_arg){ .seq = seq, .len = len };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_TRUNCATE, 1, 0, sizeof(*a)),
			 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

/* ---- blocks and pages of the domain itself ---- */

/*
 * The child of a remap gives back two blocks that it had alone, in a span with
 * blocks in use.  With NO_INDEX (_i = 1) they become free, else cached.
 */
START_TEST(test_remapped_child_makes_room)
{
	struct kvmm_open_arg a = {
		.prompt_len = 32, .max_tokens = 32,
		.flags = _i ? KVMM_OPEN_NO_INDEX | KVMM_OPEN_NO_MATCH : 0,
	};
	u64 seq, kid, next;
	u32 cl;

	config(4);
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, 32, 0), 0);
	sh_compute(cl, seq, 0, 32, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	sh_compute(cl, kid, 32, 64, 0);
	(void)resident(cl, 8, 0, 5000);
	/* 4 blocks are free, 1 of them for growth; later 6, 2 of them. */
	next = waiting(cl, 4, 9000);
	ck_assert_uint_eq(sh_domain(cl).wmark[0], 1);
	remap(cl, kid, seq);
	ck_assert_uint_eq(sh_domain(cl).wmark[0], 2);
	ck_assert_uint_eq(sh_state(cl, next), KVMM_SEQ_READY);
}
END_TEST

/*
 * The child of a remap gives back a table page; its blocks stay with another
 * sequence.
 */
START_TEST(test_remapped_child_gives_a_page_back)
{
	u64 seq, kid[2], next;
	u32 cl;

	config(4);
	sh.cfg.nr_tables = 3;
	sh_start();
	cl = sh_attach(1, "a");
	sh_warm(cl);
	seq = resident(cl, 2, 0, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 2, kid), 0);
	truncate_to(cl, kid[0], 0);
	(void)resident(cl, 1, 0, 5000);
	next = waiting(cl, 1, 9000);
	remap(cl, kid[1], kid[0]);
	ck_assert_uint_eq(sh_state(cl, next), KVMM_SEQ_READY);
}
END_TEST

/* ---- extents and spans ---- */

/* A span of two extents fails: the extent that has memory is for all domains. */
START_TEST(test_failed_span_leaves_an_extent)
{
	u32 small, large;
	u64 one, two;

	config(2);
	sh_start();
	small = sh_attach(1, "small");
	large = attach_kib("large", 8);
	sh_manual_make = true;
	two = waiting(large, 1, 0);
	ck_assert_uint_eq(sh.nr_creates, 2);
	one = waiting(small, 1, 0);
	sh_made(0, 0);
	sh_settle();
	ck_assert_uint_eq(sh_state(small, one), KVMM_SEQ_WAITING);
	sh_made(1, -ENOMEM);
	sh_settle();
	ck_assert_uint_eq(sh_state(small, one), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_state(large, two), KVMM_SEQ_WAITING);
}
END_TEST

/*
 * Domain "a" has a span with one used block, and an empty one whose blocks cover
 * a reservation.  @used: gets the first of them.
 */
static void one_used_one_reserved(u32 cl, u32 *used)
{
	u64 seq;

	sh_warm(cl);
	(void)!core_drop_caches(sh.core, sh.now, 0, 100);
	seq = resident(cl, 1, 0, 1000);
	*used = block_span(sh.core, table_get(sh.core, &seq_find(sh.core, cl, seq)->tab,
					      0));
}

/* A span that is used again covers a reservation; another span may go then. */
START_TEST(test_span_put_back_frees_another)
{
	u32 a, b, used;
	u64 next;

	config(2);
	sh_start();
	a = sh_attach(1, "a");
	b = sh_attach(1, "b");
	one_used_one_reserved(a, &used);
	ck_assert_int_eq(span_isolate(sh.core, used), 0);
	/* One of the four blocks outside of the isolated span. */
	(void)sh_ready(a, SH_BT, 0, 5000);
	next = waiting(b, 1, 0);
	span_putback(sh.core, used);
	nop(b);
	ck_assert_uint_eq(sh_state(b, next), KVMM_SEQ_READY);
}
END_TEST

/*
 * Domain "a" has one empty span, at extent 0, for three reserved blocks, and
 * "first" an empty span at extent 1.  An admission makes "a" cut extent 2, so that
 * two sequences can grow.  Then extent 0 can go, and "large" gets the pair of
 * extents that it waits for.
 */
START_TEST(test_cut_span_frees_another)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 a, large, first;
	u64 seq, next;

	config(3);
	sh_start();
	first = sh_attach(1, "first");
	req.limits[0].max = 6 * SH_BLOCK;
	req.limits[0].min = 6 * SH_BLOCK;
	a = (u32)sh_attach_as(1, &req);
	large = attach_kib("large", 8);
	sh_warm(first);
	(void)!core_drop_caches(sh.core, sh.now, 0, 100);
	(void)sh_ready(a, 2 * SH_BT, SH_BT, 1000);
	(void)sh_ready(a, SH_BT, SH_BT, 2000);
	seq = sh_ready(first, 1, 0, 0);
	sh_compute(first, seq, 0, 1, 0);
	ck_assert_int_eq(sh_close(first, seq), 0);
	ck_assert_uint_eq(sh.core->extents[0].domain, sh.cl[a].info.domain);
	ck_assert_uint_eq(sh.core->extents[2].state, EXT_BACKED);
	next = waiting(large, 1, 0);
	(void)sh_ready(a, SH_BT, 0, 3000);
	ck_assert_uint_eq(sh.core->extents[2].domain, sh.cl[a].info.domain);
	ck_assert_uint_eq(sh_state(large, next), KVMM_SEQ_READY);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_wakeup_mem");
	TCase *tc = tcase_create("domain");

	tcase_add_checked_fixture(tc, NULL, sh_stop);
	tcase_add_loop_test(tc, test_remapped_child_makes_room, 0, 2);
	tcase_add_test(tc, test_remapped_child_gives_a_page_back);
	suite_add_tcase(s, tc);
	tc = tcase_create("pool");
	tcase_add_checked_fixture(tc, NULL, sh_stop);
	tcase_add_test(tc, test_failed_span_leaves_an_extent);
	tcase_add_test(tc, test_span_put_back_frees_another);
	tcase_add_test(tc, test_cut_span_frees_another);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
