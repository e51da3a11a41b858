// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_ghost.c - names of evicted blocks, with made-up names
 *
 * The tests call ghost.c itself.  Nodes and blocks have only the fields that it
 * reads: node i belongs to block i, and the test chooses the name of the block.
 * Bits 0 to 15 of the name are the tag of its ghost.  The name is sampled if bits
 * 16 and 17 are 0.  Bits 32 to 63 give its set.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define ONE	256u			/* an observation in kv_lru */
#define UNIT	1024u			/* ticks of the clock */

static struct core *c;
static struct kv_lru *l;
static u32 last_set;			/* first ghost of the last set */

static void setup(void)
{
	sh_config(16);
	sh_start();
	c = sh.core;
	(void)sh_attach(1, "a");
	(void)sh_attach(1, "b");
	l = &c->lrus[0];
	last_set = core_sizes(c)->nr_ghosts - GHOST_WAYS;
	ck_assert_uint_eq(core_sizes(c)->nr_ghosts, 64);
	memset(l->enter, 0, sizeof(l->enter));
	memset(l->leave, 0, sizeof(l->leave));
	memset(l->hit, 0, sizeof(l->hit));
	l->clock = 0;
}

static void teardown(void)
{
	sh_stop();
}

/* Node @i of domain @dom with the name @name, last used at @stamp. */
static struct kv_node *node(u32 i, u32 dom, u64 name, u32 stamp)
{
	struct kv_node *n = &c->nodes[i];

	memset(n, 0, sizeof(*n));
	n->ref = i;
	n->parent = CORE_NONE;
	n->stamp = stamp;
	c->blocks[i].domain = (u16)dom;
	c->blocks[i].hash[1] = name;
	return n;
}

static u32 nr_ghosts(void)
{
	u32 i, nr = 0;

	for (i = 0; i < core_sizes(c)->nr_ghosts; i++)
		nr += c->ghosts[i].domain != GHOST_UNUSED;
	return nr;
}

/* A domain counted @times names in a tier, from one age bucket to another. */
static void expect_observed(u32 tier, u32 from, u32 to, bool hit, u32 times)
{
	ck_assert_uint_eq(l->enter[tier][from], ONE * times);
	ck_assert_uint_eq(l->leave[tier][to], ONE * times);
	ck_assert_uint_eq(l->hit[tier][to], hit ? ONE * times : 0);
}

static u64 sum_of(const u32 (*counts)[LRU_NR_AGES])
{
	u64 sum = 0;
	u32 t, x;

	for (t = 0; t < LRU_NR_TIERS; t++)
		for (x = 0; x < LRU_NR_AGES; x++)
			sum += counts[t][x];
	return sum;
}

/* ---- names that are remembered ---- */

START_TEST(test_one_name_in_four)
{
	u64 name;

	for (name = 0; name < 8; name++) {
		u64 hash[2] = { ~0ull, name << 16 | 0xffff };

		ck_assert_int_eq(lru_ghost_sampled(hash), !(name & 3));
		node(0, 0, name << 16, 0);
		lru_ghost_add(c, 0, 0);
	}
	ck_assert_uint_eq(nr_ghosts(), 2);
}
END_TEST

START_TEST(test_record)
{
	struct kv_node *n = node(3, 1, 0xabcd, 4 * 77 + 3);

	n->hits = 5;
	n->interval = 99;
	lru_ghost_add(c, 3, 17);
	ck_assert_uint_eq(nr_ghosts(), 1);
	ck_assert_uint_eq(c->ghosts[0].tag, 0xabcd);
	ck_assert_uint_eq(c->ghosts[0].stamp, 77);
	ck_assert_uint_eq(c->ghosts[0].domain, 1);
	ck_assert_uint_eq(c->ghosts[0].left, 17);
	ck_assert_uint_eq(c->ghosts[0].hits, 5);
	ck_assert_uint_eq(c->ghosts[0].interval, 99);
}
END_TEST

/* The high half of the name chooses one of the eight sets. */
START_TEST(test_sets)
{
	u32 i;

	for (i = 0; i < 8; i++) {
		node(i, 0, (u64)i << 61, 0);
		lru_ghost_add(c, i, 0);
		ck_assert_uint_eq(c->ghosts[i * GHOST_WAYS].domain, 0);
	}
	ck_assert_uint_eq(nr_ghosts(), 8);
	node(8, 0, ~0ull << 32, 0);
	lru_ghost_add(c, 8, 0);
	ck_assert_uint_eq(c->ghosts[last_set + 1].domain, 0);
}
END_TEST

/* ---- ends ---- */

/* A name that returns counts as a hit of four names, at the age of its last use. */
START_TEST(test_returns)
{
	const struct kv_told *t;
	struct kv_node *n = node(0, 0, 0x1234, 40);
	u32 nr, tier = lru_tier(3, 50);

	n->hits = 3;
	n->interval = 50;
	lru_ghost_add(c, 0, 2);
	l->clock = 1000 * UNIT;
	node(1, 0, 0x1234, 0);
	t = lru_ghost_take(c, 0, 1, &nr);
	ck_assert_ptr_nonnull(t);
	ck_assert_uint_eq(nr, 1);
	ck_assert_uint_eq(t->hits, 3);
	ck_assert_uint_eq(t->interval, 50);
	ck_assert_uint_eq(t->age, 960);
	ck_assert_uint_eq(nr_ghosts(), 0);
	expect_observed(tier, 2, lru_age_bucket(960), true, GHOST_SAMPLE);
	ck_assert_uint_eq(sum_of((const void *)l->enter), ONE * GHOST_SAMPLE);
	/* It is no ghost any more. */
	c->nodes[1].parent = CORE_NONE;
	ck_assert_ptr_null(lru_ghost_take(c, 0, 1, &nr));
	ck_assert_uint_eq(sum_of((const void *)l->hit), ONE * GHOST_SAMPLE);
}
END_TEST

/* Another tag, another domain, another set: not the same name. */
START_TEST(test_strangers)
{
	u32 nr;

	node(0, 0, 0x1234, 0);
	lru_ghost_add(c, 0, 0);
	node(1, 0, 0x1235, 0);
	ck_assert_ptr_null(lru_ghost_take(c, 0, 1, &nr));
	node(2, 1, 0x1234, 0);
	ck_assert_ptr_null(lru_ghost_take(c, 1, 2, &nr));
	node(3, 0, 1ull << 61 | 0x1234, 0);
	ck_assert_ptr_null(lru_ghost_take(c, 0, 3, &nr));
	ck_assert_uint_eq(nr_ghosts(), 1);
	ck_assert_uint_eq(sum_of((const void *)l->enter), 0);
	node(4, 0, 0x1234, 0);
	ck_assert_ptr_nonnull(lru_ghost_take(c, 0, 4, &nr));
	/* Only the next set has a ghost with this tag. */
	node(5, 0, 1ull << 61 | 0x77, 0);
	lru_ghost_add(c, 5, 0);
	node(6, 0, 0x77, 0);
	ck_assert_ptr_null(lru_ghost_take(c, 0, 6, &nr));
}
END_TEST

/* The last of the eight ways is used and found; the first free one is taken. */
START_TEST(test_ways)
{
	u32 i, nr;

	for (i = 0; i < GHOST_WAYS; i++) {
		node(i, 0, i, 4 * i);
		lru_ghost_add(c, i, 0);
		ck_assert_uint_eq(c->ghosts[i].tag, i);
	}
	ck_assert_uint_eq(c->ghosts[GHOST_WAYS].domain, GHOST_UNUSED);
	for (i = GHOST_WAYS; i--;) {
		node(20, 0, i, 0);
		ck_assert_ptr_nonnull(lru_ghost_take(c, 0, 20, &nr));
		ck_assert_uint_eq(c->ghosts[i].domain, GHOST_UNUSED);
	}
	ck_assert_uint_eq(nr_ghosts(), 0);
}
END_TEST

/* A full set forgets its oldest ghost, which did not come back. */
START_TEST(test_full_set)
{
	static const u32 stamps[GHOST_WAYS] = { 40, 36, 80, 8, 12, 8, 100, 44 };
	struct kv_node *n;
	u32 i;

	l->clock = 200 * UNIT;
	for (i = 0; i < GHOST_WAYS; i++) {
		n = node(i, 0, i, stamps[i]);
		n->hits = (u8)i & 7;
		n->interval = 30;
		lru_ghost_add(c, i, 1);
	}
	ck_assert_uint_eq(sum_of((const void *)l->enter), 0);
	/* Of two that are equally old the first one. */
	node(20, 0, 20, 200);
	lru_ghost_add(c, 20, 0);
	ck_assert_uint_eq(c->ghosts[3].tag, 20);
	ck_assert_uint_eq(nr_ghosts(), GHOST_WAYS);
	expect_observed(lru_tier(3, 30), 1, lru_age_bucket(192), false,
			GHOST_SAMPLE);
	node(21, 0, 21, 200);
	lru_ghost_add(c, 21, 0);
	ck_assert_uint_eq(c->ghosts[5].tag, 21);
	node(22, 0, 22, 200);
	lru_ghost_add(c, 22, 0);
	ck_assert_uint_eq(c->ghosts[4].tag, 22);
	ck_assert_uint_eq(sum_of((const void *)l->enter), 3 * ONE * GHOST_SAMPLE);
	ck_assert_uint_eq(sum_of((const void *)l->hit), 0);
}
END_TEST

/* Stamps wrap after 2^16 steps: the age is still right. */
START_TEST(test_stamps_wrap)
{
	const struct kv_told *t;
	u32 nr;

	node(0, 0, 7, 4 * 0x1fff0u);
	lru_ghost_add(c, 0, 0);
	ck_assert_uint_eq(c->ghosts[0].stamp, 0xfff0);
	l->clock = (u64)4 * 0x20010 * UNIT;
	node(1, 0, 7, 0);
	t = lru_ghost_take(c, 0, 1, &nr);
	ck_assert_ptr_nonnull(t);
	ck_assert_uint_eq(t->age, 4 * 0x20);
}
END_TEST

/* ---- names that are entered one after another ---- */

#define SAMPLED		0ull
#define NOT_SAMPLED	(1ull << 16)

/* Enter node @i after node @parent; return the number of names, 0 for none. */
static u32 enter(u32 i, u32 parent, u64 name)
{
	const struct kv_told *t;
	u32 nr;

	node(i, 0, name, 0)->parent = parent;
	t = lru_ghost_take(c, 0, i, &nr);
	ck_assert_uint_ge(nr, 1);
	ck_assert(!t || t == &l->told);
	return t ? nr : 0;
}

static void leave(u64 name)
{
	node(30, 0, name, 0);
	lru_ghost_add(c, 30, 0);
}

/* The first sampled name also speaks for those before it in the run. */
START_TEST(test_names_before_the_first_sampled)
{
	leave(SAMPLED | 5);
	leave(SAMPLED | 6);
	ck_assert_uint_eq(enter(0, CORE_NONE, NOT_SAMPLED), 0);
	ck_assert_uint_eq(enter(1, 0, NOT_SAMPLED), 0);
	ck_assert_uint_eq(enter(2, 1, SAMPLED | 5), 3);
	/* Then each name for itself. */
	ck_assert_uint_eq(enter(3, 2, NOT_SAMPLED), 1);
	ck_assert_uint_eq(enter(4, 3, NOT_SAMPLED), 1);
	ck_assert_uint_eq(enter(5, 4, SAMPLED | 6), 1);
	ck_assert_uint_eq(enter(6, 5, NOT_SAMPLED), 1);
	/* A sampled name that is no ghost ends it. */
	ck_assert_uint_eq(enter(7, 6, SAMPLED | 9), 0);
	ck_assert_uint_eq(enter(8, 7, NOT_SAMPLED), 0);
}
END_TEST

/* A name that does not follow the last one begins another run. */
START_TEST(test_another_run)
{
	leave(SAMPLED | 5);
	leave(SAMPLED | 6);
	ck_assert_uint_eq(enter(0, CORE_NONE, NOT_SAMPLED), 0);
	/* Names of the run before do not count. */
	ck_assert_uint_eq(enter(1, CORE_NONE, NOT_SAMPLED), 0);
	ck_assert_uint_eq(enter(2, 1, SAMPLED | 5), 2);
	/* Nor does the ghost of the run before. */
	ck_assert_uint_eq(enter(3, 1, NOT_SAMPLED), 0);
	ck_assert_uint_eq(enter(4, 3, SAMPLED | 6), 2);
	/* A root after a run whose last name left the index. */
	l->told.node = CORE_NONE;
	ck_assert_uint_eq(enter(5, CORE_NONE, NOT_SAMPLED), 0);
}
END_TEST

/* ---- domains ---- */

/* A domain's ghosts are forgotten, the first and the last, and no other ones. */
START_TEST(test_forget)
{
	struct kv_ghost *behind = &c->ghosts[core_sizes(c)->nr_ghosts];
	u32 i;

	/* The record behind the table belongs to another one. */
	behind->domain = 0;
	for (i = 0; i < 2 * GHOST_WAYS; i++) {
		node(i, i & 1, (i < GHOST_WAYS ? 0 : ~0ull << 32) | i, 0);
		lru_ghost_add(c, i, 0);
	}
	l->told.node = 9;
	c->lrus[1].told.node = 9;
	ck_assert_uint_eq(c->ghosts[0].domain, 0);
	lru_ghost_forget(c, 0);
	ck_assert_uint_eq(nr_ghosts(), GHOST_WAYS);
	ck_assert_uint_eq(c->ghosts[0].domain, GHOST_UNUSED);
	ck_assert_uint_eq(behind->domain, 0);
	ck_assert_uint_eq(c->ghosts[1].domain, 1);
	ck_assert_uint_eq(l->told.node, CORE_NONE);
	ck_assert_uint_eq(c->lrus[1].told.node, 9);
	ck_assert_uint_eq(c->ghosts[last_set + 7].domain, 1);
	lru_ghost_forget(c, 1);
	ck_assert_uint_eq(nr_ghosts(), 0);
	ck_assert_uint_eq(sum_of((const void *)l->enter), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_ghost");
	TCase *tc = tcase_create("ghosts");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_one_name_in_four);
	tcase_add_test(tc, test_record);
	tcase_add_test(tc, test_sets);
	tcase_add_test(tc, test_returns);
	tcase_add_test(tc, test_strangers);
	tcase_add_test(tc, test_ways);
	tcase_add_test(tc, test_full_set);
	tcase_add_test(tc, test_stamps_wrap);
	tcase_add_test(tc, test_names_before_the_first_sampled);
	tcase_add_test(tc, test_another_run);
	tcase_add_test(tc, test_forget);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
