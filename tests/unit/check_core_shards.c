// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_shards.c - a domain in several device pools has each block in all of them
 *
 * Two pools, of four extents or fewer; a block has a part in each.
 */
#include "tests/unit/pools_scene.h"

/* Bytes of a pool that no extent of a domain uses. */
static u64 free_of(u32 pool)
{
	struct core_pool_view v;

	ck_assert_int_eq(core_get_zone(c, pool, &v), 0);
	return v.free_extents;
}

/* Run up to @most sequences of one block.  Return: their number. */
static u32 fill(u32 cl, u32 most)
{
	return fill_with(cl, 0, most);
}

/* Leave @nr cached blocks of one prompt. */
static void leave_cache(u32 cl, u32 nr, u32 seed)
{
	u64 seq = sh_ready(cl, nr * SH_BT, 0, seed);

	sh_compute(cl, seq, 0, nr * SH_BT, seed);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(dom_of(cl)->dev.nr[BLK_CACHED], nr);
}

/* ---- attach ---- */

START_TEST(test_attach)
{
	u32 cl = in_pools("a", 0, 2);

	ck_assert_uint_eq(dom_of(cl)->zone, 0);
	ck_assert_uint_eq(dom_of(cl)->shards, 2);
	ck_assert_int_eq(attach_to("b", 2, 2), -ENXIO);
	ck_assert_int_eq(attach_to("b", 1, 3), -ENXIO);
	ck_assert_int_eq(attach_to("b", 0, 9), -EINVAL);
	/* Another number of shards: a domain in use is refused, an idle one is made anew. */
	ck_assert_int_eq(attach_to("a", 0, 1), -EEXIST);
	sh_die(cl);
	sh_quiet(cl);
	ck_assert_uint_eq(dom_of(in_pools("a", 0, 1))->shards, 1);
}
END_TEST

START_TEST(test_three_pools)
{
	u32 a, b;

	sh_stop();
	sh_config(3 * EACH);
	sh.cfg.more_bytes[0] = EACH * SH_EXTENT;
	sh.cfg.more_bytes[1] = EACH * SH_EXTENT;
	sh_start();
	c = sh.core;
	a = in_pools("a", 1, 1);
	fill(a, 100);
	/* The first pool is full: the shards go where each has room. */
	b = in_pools("b", 0, 2);
	ck_assert_uint_eq(dom_of(b)->zone, 1);
	ck_assert_uint_eq(fill(b, 100), EACH * dom_of(b)->dev.span_blocks);
	ck_assert_uint_eq(free_of(1), 0);
	ck_assert_uint_eq(free_of(2), 0);
	sh_check();
}
END_TEST

/* ---- capacity: the smallest pool ---- */

START_TEST(test_capacity)
{
	u32 cl, per;

	sh_stop();
	start(EACH, 2);
	cl = in_pools("a", 0, 2);
	per = dom_of(cl)->dev.span_blocks;
	ck_assert_uint_eq(domain_capacity(c, dom_of(cl)), 2 * per);
	ck_assert_uint_eq(fill(cl, 100), 2 * per);
	ck_assert_uint_eq(free_of(0), (EACH - 2) * SH_EXTENT);
	ck_assert_uint_eq(free_of(1), 0);
	/* The rest of the larger pool serves domains that are in it alone. */
	ck_assert_uint_eq(fill(in_pools("b", 1, 1), 100), (EACH - 2) * per);
}
END_TEST

/* ---- all of a run, or nothing ---- */

/* One pool is full, the other empty: no extent of either is taken. */
START_TEST(test_never_half)
{
	u32 b = in_pools("b", 2, 1), a = in_pools("a", 0, 2), i;
	u64 seq;

	fill(b, 100);
	ck_assert_uint_eq(free_of(1), 0);
	seq = sh_open(a, SH_BT, 0);
	sh_match(a, seq, SH_BT, 5);
	ck_assert_int_eq(sh_state(a, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(free_of(0), EACH * SH_EXTENT);
	for (i = 0; i < EACH; i++)
		ck_assert_uint_eq(c->extents[i].state, EXT_ABSENT);
	sh_die(b);
	sh_quiet(b);
	sh_tick(10);
	ck_assert_int_eq(sh_state(a, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(free_of(0), (EACH - 1) * SH_EXTENT);
	/* Cache of the other domain gave way, in the pool where it was. */
	ck_assert_uint_eq(c->extents[0].span, 0);
	ck_assert_uint_eq(c->extents[EACH].span, 0);
	ck_assert_uint_eq(c->extents[EACH].domain, c->clients[a].domain);
}
END_TEST

/* The free extents of the two pools are at other places: one domain gives way. */
START_TEST(test_other_places)
{
	u32 a = in_pools("a", 1, 1), b = in_pools("b", 2, 1), s = in_pools("s", 0, 2);
	u32 per = dom_of(a)->dev.span_blocks;

	leave_cache(a, 2 * per, 100);
	leave_cache(b, 2 * per, 200);
	ck_assert_uint_eq(fill(s, 2 * per), 2 * per);
	ck_assert_uint_eq(dom_of(a)->dev.nr[BLK_CACHED], 2 * per);
	ck_assert_uint_eq(dom_of(b)->dev.nr[BLK_CACHED], 2 * per);
	/* Now there are only runs with cache, and each costs both owners a span. */
	(void)sh_ready(s, SH_BT, 0, 77);
	ck_assert_uint_le(dom_of(a)->dev.nr[BLK_CACHED], per);
	ck_assert_uint_le(dom_of(b)->dev.nr[BLK_CACHED], per);
	ck_assert_uint_eq(dom_of(s)->dev.nr_spans, 3);
}
END_TEST

/* A domain in the second pool takes a span of the sharded one: both pools get it back. */
START_TEST(test_neighbour_takes)
{
	u32 s = in_pools("s", 0, 2), b = in_pools("b", 2, 1);
	u32 per = dom_of(s)->dev.span_blocks;

	leave_cache(s, EACH * per, 100);
	ck_assert_uint_eq(free_of(0), 0);
	ck_assert_uint_eq(fill(b, per), per);
	ck_assert_uint_eq(dom_of(s)->dev.nr_spans, EACH - 1);
	ck_assert_uint_eq(free_of(0), SH_EXTENT);
	ck_assert_uint_eq(free_of(1), 0);
}
END_TEST

/* The memory of one part cannot be made: the other part stays free, for anybody. */
START_TEST(test_create_fails)
{
	u32 s = in_pools("s", 0, 2), i;
	u64 seq;

	sh_manual_make = true;
	seq = sh_open(s, SH_BT, 0);
	sh_match(s, seq, SH_BT, 5);
	ck_assert(sh.creating[0] && sh.creating[EACH]);
	sh_made(0, 0);
	sh_made(EACH, -ENOMEM);
	ck_assert_int_eq(sh_state(s, seq), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(c->extents[0].state, EXT_BACKED);
	ck_assert_uint_eq(dom_of(s)->dev.pending_spans, 0);
	sh_manual_make = false;
	for (i = 0; i < 3; i++)
		sh_tick(600);
	ck_assert_int_eq(sh_state(s, seq), KVMM_SEQ_READY);
}
END_TEST

/* No block is granted before each of its parts is mapped. */
START_TEST(test_mapped_in_both)
{
	u32 s = in_pools("s", 0, 2);
	u64 seq;

	sh.cl[s].mute = true;
	seq = sh_open(s, SH_BT, 0);
	sh_match(s, seq, SH_BT, 5);
	ck_assert(sh.cl[s].pending[0] && sh.cl[s].pending[EACH]);
	ck_assert_int_eq(sh_ack(s, 0), 0);
	sh_tick(1);
	ck_assert_int_eq(sh_state(s, seq), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_ack(s, EACH), 0);
	sh_tick(1);
	ck_assert_int_eq(sh_state(s, seq), KVMM_SEQ_READY);
}
END_TEST

/* ---- another tenant ---- */

/* A tenant takes back a run of which clients have mapped both parts. */
START_TEST(test_revoked)
{
	struct kvmm_attach_req req = sh_attach_req("t");
	u32 s = in_pools("s", 0, 2), i;
	u64 seq;
	int t;

	leave_cache(s, EACH * dom_of(s)->dev.span_blocks, 100);
	req.nr_shards = 2;
	t = sh_attach_as(2, &req);
	ck_assert_int_ge(t, 0);
	seq = sh_open((u32)t, SH_BT, 0);
	sh_match((u32)t, seq, SH_BT, 5);
	for (i = 0; i < 20 && sh_state((u32)t, seq) != KVMM_SEQ_READY; i++)
		sh_tick(100);
	ck_assert_int_eq(sh_state((u32)t, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_extent_revoke), 2);
	ck_assert_uint_eq(dom_of(s)->dev.nr_spans, EACH - 1);
}
END_TEST

/* ---- commands for one pool ---- */

START_TEST(test_resize)
{
	u32 s = in_pools("s", 0, 2), per = dom_of(s)->dev.span_blocks, i;

	ck_assert_uint_eq(fill(s, 100), EACH * per);
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 1, 2 * SH_EXTENT), 0));
	for (i = 0; i < 40 && c->head->zones[1].resizing; i++)
		sh_tick(50);
	ck_assert_uint_eq(c->head->zones[1].resizing, 0);
	ck_assert_uint_eq(dom_of(s)->dev.nr_spans, 2);
	/* The other pool has its extents back, though it keeps its size. */
	ck_assert_uint_eq(free_of(0), 2 * SH_EXTENT);
	ck_assert_uint_eq(domain_capacity(c, dom_of(s)), 2 * per);
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 1, EACH * SH_EXTENT), 0));
	ck_assert_uint_eq(domain_capacity(c, dom_of(s)), EACH * per);
}
END_TEST

/* A pool grows again while spans are on their way out: these stay. */
START_TEST(test_resize_called_off)
{
	u32 s = in_pools("s", 0, 2), i;
	struct kvmm_begin_arg a[EACH * SH_PER];
	struct kvmm_begin_res res[EACH * SH_PER];

	for (i = 0; i < ARRAY_SIZE(a); i++) {
		u64 seq = sh_ready(s, 8, 8, 100 * i);

		sh_compute(s, seq, 0, 8, 100 * i);
		a[i] = sh_entry(s, seq, 8, 1);
	}
	/* A step holds each span, so that none can be emptied. */
	ck_assert_int_eq(sh_begin_all(s, a, ARRAY_SIZE(a), res), 0);
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 1, 2 * SH_EXTENT), 0));
	ck_assert(span_is_isolated(&c->spans[EACH - 1]));
	ck_assert_uint_eq(dom_of(s)->dev.nr_spans, EACH);
	/* The other pool shrinks and grows meanwhile: that calls off nothing. */
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 0, 3 * SH_EXTENT), 0));
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 0, EACH * SH_EXTENT), 0));
	ck_assert(span_is_isolated(&c->spans[EACH - 1]));
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 1, EACH * SH_EXTENT), 0));
	ck_assert(!span_is_isolated(&c->spans[EACH - 1]));
	ck_assert_uint_eq(dom_of(s)->dev.nr_spans, EACH);
	sh_check();
}
END_TEST

/* One device fails: the domain ends, and others use the memory of the pool that works. */
START_TEST(test_device_fails)
{
	u32 how = _i ? CORE_DEVICE_LOST : CORE_DEVICE_CUT;
	u32 s = in_pools("s", 0, 2), a = in_pools("a", 1, 1), per = dom_of(a)->dev.span_blocks;
	u32 i;
	u64 seq = sh_ready(s, SH_BT, SH_BT, 9), in_a = sh_ready(a, SH_BT, SH_BT, 1);

	SH_CORE(core_device_failed(c, sh.now, 1, how));
	sh_settle();
	ck_assert_int_eq(sh_state(s, seq), _i ? KVMM_SEQ_FAILED : KVMM_SEQ_READY);
	ck_assert_int_eq(sh_state(a, in_a), KVMM_SEQ_READY);
	sh_compute(a, in_a, 0, SH_BT, 1);
	ck_assert_int_eq(attach_to("s2", 0, 2), -ENODEV);
	sh_die(s);
	sh_quiet(s);
	/* When copies can have ended, the part in the pool that works is free. */
	for (i = 0; i < 3; i++)
		sh_tick(50);
	ck_assert_uint_eq(fill(a, 100), EACH * per - 2);	/* and its next block */
	ck_assert_int_eq(sh_state(a, in_a), KVMM_SEQ_READY);
}
END_TEST

/* ---- copies ---- */

static struct core_copy last;
static u32 nr_copies;

static void note_copy(const struct core_copy *cp)
{
	last = *cp;
	nr_copies++;
}

START_TEST(test_copies)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	struct kv_part *host;
	u32 s;
	u64 seq;

	sh_stop();
	sh_config(2 * EACH - 1);
	sh.cfg.more_bytes[0] = (EACH - 1) * SH_EXTENT;
	sh.cfg.host_bytes = 16 * SH_EXTENT;
	sh.cfg.swappiness = 200;
	sh_start();
	c = sh.core;
	sh_on_copy = note_copy;
	s = in_pools("s", 0, 2);
	host = part_at(c, part_index(c, c->clients[s].domain, CORE_POOL_HOST));
	ck_assert_uint_eq(host->block_bytes, CORE_SLOT_HEADER +
			  ALIGN_UP(2 * dom_of(s)->dev.block_bytes, 4096ull));
	dom_of(s)->prefill_ns_token = 1000 * MS;	/* a copy pays */
	seq = sh_ready(s, SH_BT, 0, 9);
	sh_compute(s, seq, 0, SH_BT, 9);
	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = KVMM_ADV_PAGEOUT };
	ck_assert_int_eq(sh_submit(s, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	ck_assert_uint_eq(nr_copies, 1);
	ck_assert_uint_eq(last.nr_shards, 2);
	ck_assert_uint_eq(last.bytes, dom_of(s)->dev.block_bytes);
	ck_assert_uint_eq(last.shard_off[0], 0);
	ck_assert_uint_eq(last.shard_off[1], EACH * SH_EXTENT);
}
END_TEST

/* Blocks in use of one domain with shards move, so that another one gets a run. */
START_TEST(test_evacuated)
{
	u32 s = in_pools("s", 0, 2), t = in_pools("t", 0, 2), i, n;
	u64 seq[EACH * SH_PER], want;

	sh_on_copy = note_copy;
	for (i = 0; i < ARRAY_SIZE(seq); i++) {
		seq[i] = sh_ready(s, SH_BT, 0, 100 * i);
		sh_compute(s, seq[i], 0, SH_BT, 100 * i);
	}
	for (i = 0; i < ARRAY_SIZE(seq); i++)
		if (i % SH_PER)
			ck_assert_int_eq(sh_close(s, seq[i]), 0);
	want = sh_open(t, SH_BT, 0);
	sh_match(t, want, SH_BT, 7);
	for (n = 0; n < 4 && sh_state(t, want) != KVMM_SEQ_READY; n++) {
		while (nr_copies) {
			nr_copies = 0;
			ck_assert_uint_eq(last.nr_shards, 2);
			SH_CORE(core_copy_done(c, sh.now, last.id, 0));
			sh_settle();
		}
		sh_tick(1);
	}
	ck_assert_int_eq(sh_state(t, want), KVMM_SEQ_READY);
	ck_assert_uint_gt(sh_count(CORE_EV_pgmigrate_success), 0);
}
END_TEST

/* ---- adoption ---- */

START_TEST(test_adopted)
{
	u32 s = in_pools("s", 0, 2), b = in_pools("b", 2, 1), e, nr = 0;
	struct core_report r;
	int how;

	ck_assert_uint_eq(fill(s, 5), 5);
	ck_assert_uint_eq(fill(b, 3), 3);
	if (_i)
		c->head->event = 1;	/* it ended inside an event */
	memset(c, 0, core_struct_size());
	how = core_adopt(c, sh.arena, core_arena_size(&sh.cfg), &sh.cfg, &sh_ops, NULL,
			 sh.now, &r);
	ck_assert_msg(how == (_i ? CORE_ADOPT_SALVAGED : CORE_ADOPT_WHOLE), "%s", r.text);
	ck_assert_uint_eq(c->domains[0].shards, 2);
	ck_assert_uint_eq(domain_used(&c->domains[0]), 5);
	ck_assert_uint_eq(domain_used(&c->domains[1]), 3);
	for (e = 0; e < EACH; e++) {
		if (!c->spans[e].nr_extents)
			continue;
		ck_assert_uint_eq(c->extents[EACH + e].state, EXT_SPAN);
		ck_assert_uint_eq(c->extents[EACH + e].span, e);
		nr++;
	}
	ck_assert_uint_ge(nr, 2);
	sh_check();
}
END_TEST

/* A span with a damaged part is no span: salvage keeps no half of it. */
START_TEST(test_damaged_part)
{
	u32 s = in_pools("s", 0, 2);
	struct core_report r;

	ck_assert_uint_eq(fill(s, 5), 5);
	c->extents[EACH].state = EXT_BACKED;
	c->head->event = 1;
	memset(c, 0, core_struct_size());
	ck_assert_int_eq(core_adopt(c, sh.arena, core_arena_size(&sh.cfg), &sh.cfg, &sh_ops,
				    NULL, sh.now, &r), CORE_ADOPT_SALVAGED);
	ck_assert_uint_eq(c->spans[0].nr_extents, 0);
	ck_assert_uint_eq(c->extents[0].state, EXT_BACKED);
	ck_assert_uint_eq(c->extents[EACH].state, EXT_BACKED);
	ck_assert_uint_eq(c->spans[1].nr_extents, 1);
	sh_check();
}
END_TEST

/* Each of these numbers of a whole arena is refused: a span or a claim out of its pools. */
START_TEST(test_lying_arena)
{
	u32 s = in_pools("s", 0, 2);
	struct core_report r;

	ck_assert_uint_eq(fill(s, 5), 5);
	if (_i == 0)
		c->domains[0].shards = 3;
	if (_i == 1)
		c->domains[0].shards = 1;
	if (_i == 2)
		c->domains[0].zone = 1;
	if (_i == 3)
		c->extents[EACH].span = 1;
	if (_i == 4)
		c->extents[EACH].domain = CORE_NONE;
	if (_i == 5)
		c->extents[EACH + 1].state = EXT_BACKED;
	memset(c, 0, core_struct_size());
	ck_assert_int_ne(core_adopt(c, sh.arena, core_arena_size(&sh.cfg), &sh.cfg, &sh_ops,
				    NULL, sh.now, &r), CORE_ADOPT_WHOLE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core-shards");
	TCase *tc = tcase_create("shards");

	tcase_set_tags(tc, "unit core");
	tcase_add_checked_fixture(tc, two_pools, sh_stop);
	tcase_add_test(tc, test_attach);
	tcase_add_test(tc, test_three_pools);
	tcase_add_test(tc, test_capacity);
	tcase_add_test(tc, test_never_half);
	tcase_add_test(tc, test_other_places);
	tcase_add_test(tc, test_neighbour_takes);
	tcase_add_test(tc, test_create_fails);
	tcase_add_test(tc, test_mapped_in_both);
	tcase_add_test(tc, test_revoked);
	tcase_add_test(tc, test_resize);
	tcase_add_test(tc, test_resize_called_off);
	tcase_add_loop_test(tc, test_device_fails, 0, 2);
	tcase_add_test(tc, test_copies);
	tcase_add_test(tc, test_evacuated);
	tcase_add_loop_test(tc, test_adopted, 0, 2);
	tcase_add_test(tc, test_damaged_part);
	tcase_add_loop_test(tc, test_lying_arena, 0, 6);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
