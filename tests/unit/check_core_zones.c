// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_zones.c - several device pools: each domain in one, none takes memory of another
 *
 * Two pools of four extents, or of four and two.
 */
#include "kvmm/core/adopt/adopt.h"
#include "kvmm/core/share/share.h"
#include "tests/unit/pools_scene.h"

/* Run up to @most sequences of priority 5 and one block.  Return: their number. */
static u32 fill(u32 cl, u32 most)
{
	return fill_with(cl, 5, most);
}

/* ---- the configuration ---- */

START_TEST(test_layout)
{
	struct core_pool_view v;

	ck_assert_uint_eq(c->head->nr_zones, 2);
	ck_assert_uint_eq(c->head->zones[1].first, EACH);
	ck_assert_uint_eq(core_zone_of(c, EACH - 1), 0);
	ck_assert_uint_eq(core_zone_of(c, EACH), 1);
	ck_assert_int_eq(core_get_zone(c, 1, &v), 0);
	ck_assert_uint_eq(v.total, EACH * SH_EXTENT);
	ck_assert_int_eq(core_get_zone(c, 2, &v), -ERANGE);
	core_get_pool(c, &v);
	ck_assert_uint_eq(v.total, 2 * EACH * SH_EXTENT);
}
END_TEST

START_TEST(test_bad_layouts)
{
	struct core_config cfg = sh.cfg;

	ck_assert_uint_ne(core_arena_size(&cfg), 0);
	cfg.more_bytes[0] = cfg.pool_bytes;	/* none is left for the first */
	ck_assert_uint_eq(core_arena_size(&cfg), 0);
	cfg.more_bytes[0] = SH_EXTENT / 2;
	ck_assert_uint_eq(core_arena_size(&cfg), 0);
	cfg.more_bytes[0] = 0;
	cfg.more_bytes[1] = SH_EXTENT;		/* after an absent one */
	ck_assert_uint_eq(core_arena_size(&cfg), 0);
}
END_TEST

/* ---- the pool of a domain ---- */

START_TEST(test_asked_for)
{
	u32 a = in_pools("a", 2, 1), b = in_pools("b", 1, 1);

	ck_assert_uint_eq(dom_of(a)->zone, 1);
	ck_assert_uint_eq(sh.cl[a].info.pool, 1);
	ck_assert_uint_eq(dom_of(b)->zone, 0);
	/* A second client may name no pool, or the same one. */
	ck_assert_int_ge(attach_to("a", 0, 1), 0);
	ck_assert_int_ge(attach_to("a", 2, 1), 0);
	ck_assert_int_eq(attach_to("a", 1, 1), -EEXIST);
	ck_assert(sh.cl[b].info.pool_extents == EACH && c->head->nr_zones == 2);
	ck_assert_int_eq(attach_to("c", 3, 1), -ENXIO);
}
END_TEST

/* An idle domain moves, without its cache. */
START_TEST(test_idle_domain_moves)
{
	u32 a = in_pools("a", 1, 1);

	fill(a, 2);
	sh_die(a);
	sh_quiet(a);
	ck_assert_int_ge(attach_to("a", 2, 1), 0);
	ck_assert_uint_eq(c->domains[0].zone, 1);
	ck_assert_uint_eq(domain_used(&c->domains[0]), 0);
	ck_assert(sh.cl[a].info.moved);
	ck_assert_uint_eq(sh.cl[a].info.old_pool, 0);
	ck_assert_uint_eq(sh.cl[a].info.dropped_blocks, 2);
}
END_TEST

/* Without a wish a domain is made where sequences hold least; of equal pools, in the first. */
START_TEST(test_where_there_is_room)
{
	u32 a = in_pools("a", 0, 1), b;

	ck_assert_uint_eq(dom_of(a)->zone, 0);
	ck_assert_uint_eq(fill(a, 2), 2);
	b = in_pools("b", 0, 1);
	ck_assert_uint_eq(dom_of(b)->zone, 1);
	ck_assert_uint_eq(fill(b, 4), 4);
	ck_assert_uint_eq(dom_of(in_pools("c", 0, 1))->zone, 0);
}
END_TEST

/* Domains that are idle leave all room: they are spread over the pools. */
START_TEST(test_idle_domains_are_spread)
{
	struct kvmm_attach_req req = sh_attach_req("b");
	u32 b;

	ck_assert_uint_eq(dom_of(in_pools("a", 0, 1))->zone, 0);
	b = in_pools("b", 0, 1);
	ck_assert_uint_eq(dom_of(b)->zone, 1);
	/* The domain that a model replaces does not count. */
	sh_die(b);
	sh_quiet(b);
	req.identity[0] ^= 1;
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
	ck_assert_uint_eq(c->domains[1].zone, 1);
	ck_assert_uint_eq(dom_of(in_pools("c", 0, 1))->zone, 0);
	ck_assert_uint_eq(dom_of(in_pools("d", 0, 1))->zone, 1);
}
END_TEST

/* memory.min of a domain is no room for another one. */
START_TEST(test_promised_memory_is_no_room)
{
	struct kvmm_attach_req req = sh_attach_req("a");

	req.limits[0].min = 2 * SH_EXTENT;
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
	ck_assert_uint_eq(c->domains[0].zone, 0);
	ck_assert_uint_eq(dom_of(in_pools("b", 0, 1))->zone, 1);
}
END_TEST

/* ---- no domain takes memory of another pool ---- */

/* A domain fills its own pool, and not one extent more. */
START_TEST(test_capacity)
{
	u32 a = in_pools("a", 1, 1), b = in_pools("b", 2, 1);
	u32 per = dom_of(a)->dev.span_blocks, i;

	ck_assert_uint_eq(domain_capacity(c, dom_of(a)), EACH * per);
	ck_assert_uint_eq(fill(a, 100), EACH * per);
	ck_assert_uint_eq(c->head->zones[0].loose, 0);
	ck_assert_uint_eq(c->head->zones[1].loose, EACH);
	for (i = EACH; i < 2 * EACH; i++)
		ck_assert_uint_eq(c->extents[i].state, EXT_ABSENT);
	/* The other pool has all of its room. */
	ck_assert_uint_eq(fill(b, 100), EACH * per);
	for (i = 0; i < EACH; i++)
		ck_assert_uint_eq(c->extents[i].domain, c->clients[a].domain);
}
END_TEST

/* Cache of another pool stays when a domain lacks memory. */
START_TEST(test_cache_of_another_pool_stays)
{
	u32 a = in_pools("a", 1, 1), b = in_pools("b", 2, 1);
	u64 seq = sh_ready(b, 3 * SH_BT, 0, 7);
	u32 back;

	sh_compute(b, seq, 0, 3 * SH_BT, 7);
	sh_close(b, seq);
	ck_assert_uint_eq(dom_of(b)->dev.nr[BLK_CACHED], 3);
	fill(a, 100);
	ck_assert_uint_eq(dom_of(b)->dev.nr[BLK_CACHED], 3);
	SH_CORE(ck_assert_uint_eq(span_runs_possible(c, c->clients[a].domain, &back), 0));
	ck_assert_uint_eq(span_runs_reachable(c, c->clients[a].domain), EACH);
}
END_TEST

/* A sequence of higher priority, and time, preempt no sequence of another pool. */
START_TEST(test_no_victim_in_another_pool)
{
	u32 a = in_pools("a", 1, 1), b = in_pools("b", 2, 1);
	struct kvmm_open_arg o = { .prompt_len = SH_BT, .priority = 0 };
	u64 low, want;

	ck_assert_int_eq(sh_open_as(b, &o, &low), 0);
	sh_match(b, low, SH_BT, 9);
	sh_settle();
	sh_compute(b, low, 0, SH_BT, 9);
	fill(a, 100);
	o.priority = 9;
	ck_assert_int_eq(sh_open_as(a, &o, &want), 0);
	sh_match(a, want, SH_BT, 77);
	sh_tick(500);
	sh_tick(500);
	ck_assert_int_eq(sh_state(b, low), KVMM_SEQ_READY);
	ck_assert_uint_eq(dom_of(b)->nr_preempted, 0);
	/* In its own pool the wait has an end. */
	ck_assert_int_eq(sh_state(a, want), KVMM_SEQ_READY);
}
END_TEST

/* Protection is a part of the pool that the domain is in. */
START_TEST(test_promises_by_pool)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 per;

	req.limits[0].min = 4 * SH_EXTENT;
	req.pool = 1;
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
	strcpy(req.domain, "b");
	req.pool = 2;
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
	per = (u32)(SH_EXTENT / c->domains[0].dev.block_bytes);
	ck_assert_uint_eq(c->domains[0].emin, EACH * per);
	ck_assert_uint_eq(c->domains[1].emin, EACH * per);
	/* Two in one pool divide it. */
	strcpy(req.domain, "d");
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
	ck_assert_uint_eq(c->domains[0].emin, EACH * per);
	ck_assert_uint_eq(c->domains[1].emin, EACH * per / 2);
	ck_assert_uint_eq(c->domains[2].emin, EACH * per / 2);
}
END_TEST

/* A client is sent extents of the pool of its own domain alone. */
START_TEST(test_extents_of_the_own_pool)
{
	u32 a = in_pools("a", 1, 1), b = in_pools("b", 2, 1);
	u32 i;

	fill(a, 3);
	fill(b, 3);
	for (i = 0; i < 2 * EACH; i++) {
		ck_assert(!(c->extents[i].sent & BIT_ULL(i < EACH ? b : a)));
		if (c->extents[i].backed)
			ck_assert(c->extents[i].sent & BIT_ULL(i < EACH ? a : b));
	}
	/* A later client is told by the same rule. */
	b = in_pools("b", 2, 1);
	for (i = 0; i < EACH; i++)
		ck_assert(!(c->extents[i].sent & BIT_ULL(b)));
}
END_TEST

/* ---- commands for one pool ---- */

START_TEST(test_resize)
{
	u32 a = in_pools("a", 1, 1), b = in_pools("b", 2, 1);
	u32 per = dom_of(a)->dev.span_blocks;
	struct core_pool_view v;

	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 2, SH_EXTENT), -ENOENT));
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 1, (EACH + 1) * SH_EXTENT),
				 -ERANGE));
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 1, 2 * SH_EXTENT), 0));
	core_get_zone(c, 1, &v);
	ck_assert_uint_eq(v.offline, 2 * SH_EXTENT);
	core_get_zone(c, 0, &v);
	ck_assert_uint_eq(v.offline, 0);
	ck_assert_uint_eq(domain_capacity(c, dom_of(b)), 2 * per);
	ck_assert_uint_eq(fill(b, 100), 2 * per);
	ck_assert_uint_eq(fill(a, 100), EACH * per);
	/* It grows again, up to its own end. */
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 1, 4 * SH_EXTENT), 0));
	sh_settle();
	ck_assert_uint_eq(c->extents[2 * EACH - 1].state == EXT_OFFLINE, 0);
}
END_TEST

/* The first pool shrinks while it is in use; the second one keeps all its spans. */
START_TEST(test_resize_in_use)
{
	u32 a = in_pools("a", 1, 1), b = in_pools("b", 2, 1);
	u32 per = dom_of(a)->dev.span_blocks, i;

	fill(a, 100);
	fill(b, 100);
	SH_CORE(ck_assert_int_eq(core_pool_resize(c, sh.now, 0, SH_EXTENT), 0));
	for (i = 0; i < 20 && c->head->zones[0].resizing; i++)
		sh_tick(50);
	ck_assert_uint_eq(c->head->zones[0].resizing, 0);
	ck_assert_uint_le(domain_used(dom_of(a)), per);
	ck_assert_uint_eq(domain_used(dom_of(b)), EACH * per);
	ck_assert_uint_eq(dom_of(b)->nr_preempted, 0);
}
END_TEST

/* The device of one pool is lost: its sequences end, the others go on. */
START_TEST(test_device_lost)
{
	u32 a = in_pools("a", 1, 1), b = in_pools("b", 2, 1);
	u64 in_a = sh_ready(a, SH_BT, 0, 1), in_b = sh_ready(b, SH_BT, SH_BT, 2);

	SH_CORE(core_device_failed(c, sh.now, 0, CORE_DEVICE_LOST));
	ck_assert_int_eq(sh_state(a, in_a), KVMM_SEQ_FAILED);
	ck_assert_int_eq(sh_state(b, in_b), KVMM_SEQ_READY);
	sh_compute(b, in_b, 0, SH_BT, 2);
	ck_assert_uint_eq(fill(b, 2), 2);
	ck_assert_uint_eq(sh_pool().device, CORE_DEVICE_LOST);
	/* New domains are made in the other pool. */
	ck_assert_int_eq(attach_to("d", 1, 1), -ENODEV);
	ck_assert_uint_eq(dom_of(in_pools("d", 0, 1))->zone, 1);
	/* A name of the failed pool is not given away. */
	ck_assert_int_eq(attach_to("a", 0, 1), -ENODEV);
}
END_TEST

/* A failure to make memory pauses its own pool only. */
START_TEST(test_create_fails)
{
	u32 a = in_pools("a", 1, 1), b = in_pools("b", 2, 1);

	c->head->zones[0].create_after = sh.now + 1000;
	ck_assert_uint_eq(fill(a, 1), 0);
	ck_assert_uint_eq(fill(b, 1), 1);
	c->head->zones[0].create_after = 0;
}
END_TEST

/* ---- adoption ---- */

static int adopt(struct core_report *r)
{
	memset(c, 0, core_struct_size());
	return core_adopt(c, sh.arena, core_arena_size(&sh.cfg), &sh.cfg, &sh_ops, NULL,
			  sh.now, r);
}

START_TEST(test_adopted)
{
	u32 a = in_pools("a", 1, 1), b = in_pools("b", 2, 1);
	struct core_report r;
	u32 in_a, in_b;

	fill(a, 3);
	fill(b, 5);
	in_a = domain_used(dom_of(a));
	in_b = domain_used(dom_of(b));
	if (_i)
		c->head->event = 1;	/* it ended inside an event */
	ck_assert_msg(adopt(&r) == (_i ? CORE_ADOPT_SALVAGED : CORE_ADOPT_WHOLE), "%s",
		      r.text);
	ck_assert_uint_eq(c->domains[0].zone, 0);
	ck_assert_uint_eq(c->domains[1].zone, 1);
	ck_assert_uint_eq(domain_used(&c->domains[0]), in_a);
	ck_assert_uint_eq(domain_used(&c->domains[1]), in_b);
}
END_TEST

/* Pools of other sizes are another configuration. */
START_TEST(test_other_pools_are_refused)
{
	struct core_head *h = c->head;
	struct core_report r;

	sh.cfg.more_bytes[0] -= SH_EXTENT;
	ck_assert_int_eq(adopt(&r), -ESTALE);
	ck_assert_msg(strstr(r.text, "more_bytes[0]"), "%s", r.text);
	sh.cfg.more_bytes[0] += SH_EXTENT;
	h->zones[1].device = CORE_DEVICE_LOST;
	ck_assert_int_eq(adopt(&r), -EUCLEAN);
	ck_assert_msg(strstr(r.text, "what the device held is lost"), "%s", r.text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core-zones");
	TCase *tc = tcase_create("pools");

	tcase_set_tags(tc, "unit core");
	tcase_add_checked_fixture(tc, two_pools, sh_stop);
	tcase_add_test(tc, test_layout);
	tcase_add_test(tc, test_bad_layouts);
	tcase_add_test(tc, test_asked_for);
	tcase_add_test(tc, test_idle_domain_moves);
	tcase_add_test(tc, test_where_there_is_room);
	tcase_add_test(tc, test_idle_domains_are_spread);
	tcase_add_test(tc, test_promised_memory_is_no_room);
	tcase_add_test(tc, test_capacity);
	tcase_add_test(tc, test_cache_of_another_pool_stays);
	tcase_add_test(tc, test_no_victim_in_another_pool);
	tcase_add_test(tc, test_promises_by_pool);
	tcase_add_test(tc, test_extents_of_the_own_pool);
	tcase_add_test(tc, test_resize);
	tcase_add_test(tc, test_resize_in_use);
	tcase_add_test(tc, test_device_lost);
	tcase_add_test(tc, test_create_fails);
	tcase_add_loop_test(tc, test_adopted, 0, 2);
	tcase_add_test(tc, test_other_pools_are_refused);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
