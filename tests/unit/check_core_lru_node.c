// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_lru_node.c - history, class and term of one name, exactly
 *
 * The tests call lru.c itself, with nodes that they make: node i belongs to block
 * i, is on no list, and its name is never sampled for a ghost.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define ONE		256u		/* an observation in kv_lru */
#define UNIT		1024u		/* ticks of the clock */
#define BLOCKS		64u		/* of the pool */

static struct core *c;
static struct kv_lru *l;

static void setup(void)
{
	sh_config(BLOCKS / SH_PER);
	sh_start();
	c = sh.core;
	c->now = sh.now;
	(void)sh_attach(1, "a");
	l = &c->lrus[0];
	memset(l->enter, 0, sizeof(l->enter));
	memset(l->leave, 0, sizeof(l->leave));
	memset(l->hit, 0, sizeof(l->hit));
	l->clock = 5000 * UNIT;
}

static void teardown(void)
{
	sh_stop();
}

static struct kv_node *node(u32 i, u32 age)
{
	struct kv_node *n = &c->nodes[i];

	memset(n, 0, sizeof(*n));
	n->ref = i;
	n->parent = CORE_NONE;
	n->kid = CORE_NONE;
	n->stamp = lru_units(l) - age;
	c->blocks[i].domain = 0;
	c->blocks[i].hash[1] = 1 << 16;
	return n;
}

/* ---- names that are entered ---- */

/* The tier of a new name by the tokens that came with it. */
START_TEST(test_new_name)
{
	static const struct { u32 tokens, tier; } rows[] = {
		{ 0, 0 }, { 512, 0 }, { 513, 1 }, { 2048, 1 }, { 2049, 2 },
		{ 8192, 2 }, { 8193, 3 }, { ~0u, 3 },
	};
	struct kv_node *n = node(0, 100);
	u64 clock = l->clock;

	ck_assert(!lru_enter(c, 0, rows[_i].tokens, RETAIN_HIGH));
	ck_assert_uint_eq(n->interval, rows[_i].tier);
	ck_assert_uint_eq(n->hits, 0);
	ck_assert_uint_eq(n->retain, RETAIN_HIGH);
	ck_assert_uint_eq(l->clock, clock + l->step);
	ck_assert_uint_eq(n->stamp, l->clock / UNIT);
	ck_assert_uint_eq(l->nr_in, 1);
}
END_TEST

/* A step of the clock is 2^20 over the blocks that the domain could have. */
START_TEST(test_clock)
{
	ck_assert_uint_eq(l->step, (1u << 20) / BLOCKS);
	/* Values are computed after 256 names, or a sixteenth of the cache. */
	l->nr_in = 254;
	(void)node(0, 0);
	(void)lru_enter(c, 0, 0, 0);
	ck_assert_uint_eq(l->nr_in, 255);
	(void)lru_enter(c, 0, 0, 0);
	ck_assert_uint_eq(l->nr_in, 0);
	l->step = 100;
	l->nr_in = (1u << 20) / 100 / 16 - 2;
	(void)lru_enter(c, 0, 0, 0);
	ck_assert_uint_gt(l->nr_in, 0);
	(void)lru_enter(c, 0, 0, 0);
	ck_assert_uint_eq(l->nr_in, 0);
}
END_TEST

/* A ghost gives its history, unless it is older than four times the cache. */
START_TEST(test_came_back)
{
	struct kv_node *n;
	u32 age = _i ? 4097 : 4096;

	n = node(0, age);
	n->hits = 2;
	n->interval = 40;
	c->blocks[0].hash[1] = 0;
	n->stamp &= ~3u;
	l->clock = (u64)(n->stamp + (_i ? 4100 : 4096)) * UNIT;
	l->step = 0;
	l->nr_in = 0;
	lru_ghost_add(c, 0, 0);
	l->step = 1;
	n = node(1, 0);
	c->blocks[1].hash[1] = 0;
	ck_assert(lru_enter(c, 1, 9000, 0));
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_activate), !_i);
	ck_assert_uint_eq(n->hits, _i ? 0 : 3);
	ck_assert_uint_eq(n->interval, _i ? 3 :
			  (40 + 8 * lru_age_bucket(4096)) / 2);
}
END_TEST

/* ---- names that are found ---- */

START_TEST(test_hit)
{
	struct kv_node *n = node(0, 30);
	u32 x = lru_age_bucket(30), y = lru_age_bucket(500);

	n->interval = 2;
	lru_hit(c, 0, 0);
	ck_assert_uint_eq(n->hits, 1);
	ck_assert_uint_eq(n->interval, 8 * x);
	ck_assert_uint_eq(n->stamp, 5000);
	ck_assert_uint_eq(l->enter[2][0], ONE);
	ck_assert_uint_eq(l->leave[2][x], ONE);
	ck_assert_uint_eq(l->hit[2][x], ONE);
	/* The next interval is the mean. */
	l->clock += 500 * UNIT;
	lru_hit(c, 0, 0);
	ck_assert_uint_eq(n->hits, 2);
	ck_assert_uint_eq(n->interval, (8 * x + 8 * y) / 2);
	ck_assert_uint_eq(n->stamp, 5500);
	ck_assert_uint_eq(l->hit[lru_tier(1, 8 * x)][y], ONE);
	/* Seven hits are the most that are counted. */
	n->hits = 6;
	lru_hit(c, 0, 0);
	ck_assert_uint_eq(n->hits, 7);
	lru_hit(c, 0, 0);
	ck_assert_uint_eq(n->hits, 7);
	lru_hit(c, CORE_NONE, 0);
}
END_TEST

/* An equal or higher class counts at once, every fourth lower use lowers by one. */
START_TEST(test_class_of_a_user)
{
	static const struct { u8 was, lower, by, is, then; } rows[] = {
		{ 1, 2, 1, 1, 0 }, { 1, 2, 2, 2, 0 }, { 0, 3, 2, 2, 0 },
		{ 2, 0, 1, 2, 1 }, { 2, 1, 0, 2, 2 }, { 2, 2, 1, 2, 3 },
		{ 2, 3, 1, 1, 0 }, { 2, 3, 0, 1, 0 }, { 1, 3, 0, 0, 0 },
	};
	struct kv_node *n = node(0, 0);

	n->retain = rows[_i].was & 3;
	n->lower = rows[_i].lower & 3;
	lru_hit(c, 0, rows[_i].by);
	ck_assert_uint_eq(n->retain, rows[_i].is);
	ck_assert_uint_eq(n->lower, rows[_i].then);
}
END_TEST

/* Advice corrects the class of a name; its only user may lower it, too. */
START_TEST(test_class_by_advice)
{
	struct kv_node *n = node(0, 0);

	n->retain = RETAIN_NORMAL;
	n->lower = 3;
	lru_retain(c, 0, RETAIN_LOW, false);
	ck_assert_uint_eq(n->retain, RETAIN_NORMAL);
	lru_retain(c, 0, RETAIN_NORMAL, false);
	ck_assert_uint_eq(n->lower, 3);
	lru_retain(c, 0, RETAIN_HIGH, false);
	ck_assert_uint_eq(n->retain, RETAIN_HIGH);
	ck_assert_uint_eq(n->lower, 0);
	lru_retain(c, 0, RETAIN_LOW, true);
	ck_assert_uint_eq(n->retain, RETAIN_LOW);
	lru_chill(c, 0);
	lru_retain(c, 0, RETAIN_HIGH, true);
	ck_assert_uint_eq(n->retain, RETAIN_LOW);
}
END_TEST

/* ---- terms ---- */

START_TEST(test_term)
{
	struct kv_node *n = node(0, 0), *m = node(1, 0);
	u64 until = c->now + 100;

	ck_assert(lru_keep(c, 0, until));
	ck_assert(lru_keep(c, 1, until));
	ck_assert_uint_eq(n->term, m->term);
	ck_assert_uint_eq(l->term[n->term - 1].nr, 2);
	ck_assert_uint_eq(l->term[n->term - 1].until, until);
	ck_assert_uint_eq(l->nr_kept, 2);
	/* A shorter or equal one changes nothing, a longer one is another. */
	ck_assert(lru_keep(c, 0, until - 1));
	ck_assert(lru_keep(c, 0, until));
	ck_assert_uint_eq(l->nr_kept, 2);
	ck_assert(lru_keep(c, 0, until + 1));
	ck_assert_uint_ne(n->term, m->term);
	ck_assert_uint_eq(l->term[n->term - 1].until, until + 1);
	ck_assert_uint_eq(l->term[m->term - 1].nr, 1);
	ck_assert_uint_eq(l->nr_kept, 2);
	/* A use ends a term whose time is over, no other one. */
	c->now = until;
	lru_hit(c, 0, 0);
	lru_hit(c, 1, 0);
	ck_assert_uint_ne(n->term, TERM_NONE);
	ck_assert_uint_eq(m->term, TERM_NONE);
	ck_assert_uint_eq(l->nr_kept, 1);
	lru_leave(c, 0);
	ck_assert_uint_eq(l->nr_kept, 0);
	ck_assert_uint_eq(n->term, TERM_NONE);
}
END_TEST

/* Sixteen times at once; a quarter of the domain. */
START_TEST(test_most_terms)
{
	u32 i;

	for (i = 0; i < LRU_NR_TERMS; i++) {
		(void)node(i, 0);
		ck_assert(lru_keep(c, i, c->now + 100 + i));
	}
	ck_assert_uint_eq(l->nr_kept, BLOCKS / LRU_KEEP_SHARE);
	(void)node(20, 0);
	ck_assert(!lru_keep(c, 20, c->now + 100));
	ck_assert_uint_eq(c->nodes[20].term, TERM_NONE);
	lru_leave(c, 3);
	ck_assert(lru_keep(c, 20, c->now + 100));
	(void)node(21, 0);
	ck_assert(!lru_keep(c, 21, c->now + 100));
	ck_assert_uint_eq(l->nr_kept, BLOCKS / LRU_KEEP_SHARE);
	/* A name with a term may have a longer one. */
	ck_assert(lru_keep(c, 20, c->now + 900));
	ck_assert_uint_eq(l->nr_kept, BLOCKS / LRU_KEEP_SHARE);
}
END_TEST

/* All sixteen times are in use: there is none for another time. */
START_TEST(test_no_term_left)
{
	u32 i;

	l->step = 1;
	for (i = 0; i < LRU_NR_TERMS; i++) {
		l->term[i].nr = 1;
		l->term[i].until = 1000 + i;
	}
	(void)node(0, 0);
	ck_assert(!lru_keep(c, 0, 999));
	ck_assert(!lru_keep(c, 0, 1000 + LRU_NR_TERMS));
	ck_assert(lru_keep(c, 0, 1000 + LRU_NR_TERMS - 1));
	ck_assert_uint_eq(c->nodes[0].term, LRU_NR_TERMS);
	(void)node(1, 0);
	ck_assert(lru_keep(c, 1, 1000));
	ck_assert_uint_eq(c->nodes[1].term, 1);
}
END_TEST

/* A cold name has no term and the lowest class, and nothing is learned from it. */
START_TEST(test_cold)
{
	struct kv_node *n = node(0, 10);

	n->retain = RETAIN_HIGH;
	n->lower = 2;
	ck_assert(lru_keep(c, 0, c->now + 100));
	lru_chill(c, 0);
	ck_assert_uint_eq(n->term, TERM_COLD);
	ck_assert_uint_eq(n->retain, RETAIN_LOW);
	ck_assert_uint_eq(n->lower, 0);
	ck_assert_uint_eq(l->nr_kept, 0);
	lru_leave(c, 0);
	ck_assert_uint_eq(l->enter[0][0], 0);
	/* A use ends it; it counts in the history, not in the rates. */
	lru_hit(c, 0, 0);
	ck_assert_uint_eq(n->term, TERM_NONE);
	ck_assert_uint_eq(n->hits, 1);
	ck_assert_uint_eq(l->enter[0][0], 0);
}
END_TEST

/* ---- names that leave ---- */

START_TEST(test_leave)
{
	struct kv_node *n = node(0, 77);

	n->interval = 1;
	l->told.node = 5;
	lru_leave(c, 0);
	ck_assert_uint_eq(l->told.node, 5);
	ck_assert_uint_eq(l->enter[1][0], ONE);
	ck_assert_uint_eq(l->leave[1][lru_age_bucket(77)], ONE);
	ck_assert_uint_eq(l->hit[1][lru_age_bucket(77)], 0);
	l->told.node = 0;
	lru_leave(c, 0);
	ck_assert_uint_eq(l->told.node, CORE_NONE);
}
END_TEST

/* ---- the view ---- */

START_TEST(test_view_of_tiers)
{
	static const u32 found[] = { 0, 1, 2, 4 };
	struct core_lru_view v;
	u32 t;

	ck_assert_int_eq(core_get_lru(c, 1, &v), -ENOENT);
	ck_assert_int_eq(core_get_lru(c, sh.cfg.max_domains, &v), -ENOENT);
	ck_assert_int_eq(core_get_lru(c, 0, &v), 0);
	for (t = 0; t < LRU_NR_TIERS; t++) {
		ck_assert_uint_eq(v.tier[t].found, found[t / 4]);
		ck_assert_uint_eq(v.tier[t].class, t % 4);
		ck_assert_uint_eq(v.tier[t].nr, 0);
		ck_assert_uint_eq(v.tier[t].oldest, 0);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_lru_node");
	TCase *tc = tcase_create("node");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_new_name, 0, 8);
	tcase_add_test(tc, test_clock);
	tcase_add_loop_test(tc, test_came_back, 0, 2);
	tcase_add_test(tc, test_hit);
	tcase_add_loop_test(tc, test_class_of_a_user, 0, 9);
	tcase_add_test(tc, test_class_by_advice);
	tcase_add_test(tc, test_term);
	tcase_add_test(tc, test_most_terms);
	tcase_add_test(tc, test_no_term_left);
	tcase_add_test(tc, test_cold);
	tcase_add_test(tc, test_leave);
	tcase_add_test(tc, test_view_of_tiers);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
