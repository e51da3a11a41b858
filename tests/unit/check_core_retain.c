// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_retain.c - classes of retention: by priority, and by advice
 *
 * A pool of 32 blocks, as in check_core_lru.c.  A seed names a prompt, and the
 * first id of a block tells its prompt and place.  Priorities stand for the
 * three classes.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define POOL	32u		/* blocks */
#define LOW	0u
#define NORMAL	KVMM_PRIO_NORMAL
#define HIGH	KVMM_PRIO_HIGH

static u32 cl;
static struct core *c;

static void start(u32 extents)
{
	sh_config(extents);
	sh_start();
	cl = sh_attach(1, "a");
	c = sh.core;
}

static void setup(void)
{
	start(POOL / SH_PER);
	sh_warm(cl);
}

static void teardown(void)
{
	sh_stop();
}

/* The node of block @nr of prompt @seed, NULL: the block is not in the index. */
static const struct kv_node *node_of(u32 seed, u32 nr)
{
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_blocks; i++)
		if ((c->blocks[i].flags & BLKF_INDEXED) &&
		    block_ids(c, i)[0] == seed + nr * SH_BT)
			return &c->nodes[c->blocks[i].node];
	return NULL;
}

static u32 class_of(u32 seed, u32 nr)
{
	const struct kv_node *n = node_of(seed, nr);

	ck_assert_ptr_nonnull(n);
	return n->retain;
}

static u32 held(u32 seed)
{
	u32 nr = 0;

	while (node_of(seed, nr))
		nr++;
	return nr;
}

static u64 opened(u32 blocks, u32 more, u32 priority)
{
	struct kvmm_open_arg a = { .prompt_len = blocks * SH_BT + 1,
				   .max_tokens = more * SH_BT,
				   .priority = priority };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	return seq;
}

/* Match @blocks of @seed and compute the blocks that are not found. */
static u32 fill(u64 seq, u32 blocks, u32 seed)
{
	u32 from;

	ck_assert_int_eq(sh_match(cl, seq, blocks * SH_BT + 1, seed), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	from = sh_status(cl, seq)->valid_len;
	if (from < blocks * SH_BT)
		sh_compute(cl, seq, from, blocks * SH_BT, seed);
	return from / SH_BT;
}

static u32 use(u32 blocks, u32 seed, u32 priority)
{
	u64 seq = opened(blocks, 0, priority);
	u32 found = fill(seq, blocks, seed);

	ck_assert_int_eq(sh_close(cl, seq), 0);
	return found;
}

/* Evict @nr cached blocks and leave them free. */
static void squeeze(u32 nr)
{
	u32 free = sh_domain(cl).blocks[BLK_FREE];
	struct kvmm_open_arg a = { .prompt_len = (free + nr) * SH_BT,
				   .flags = KVMM_OPEN_NO_MATCH |
					    KVMM_OPEN_NO_INDEX };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, a.prompt_len, 1 << 24), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

/* Use normal prompts of the whole pool once each. */
static void flood(u32 seed)
{
	u32 i;

	for (i = 0; i < 8; i++)
		(void)use(4, seed + i * 1024, NORMAL);
}

static int advise(u64 seq, u32 advice, u32 retain, u64 value)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice,
				       .retain = retain, .value = value };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)),
			 0);
	return sh_seq_res(0);
}

/* Advise a class for blocks @from up to @to - 1. */
static int retain(u64 seq, u32 class, u32 from, u32 to)
{
	return advise(seq, KVMM_ADV_RETAIN, class,
		      KVMM_RANGE(from * SH_BT, to * SH_BT));
}

static void set_priority(u64 seq, u32 priority)
{
	struct kvmm_prio_arg *a = (struct kvmm_prio_arg *)sh.args;

	*a = (struct kvmm_prio_arg){ .seq = seq, .priority = priority };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_SETPRIO, 1, 0, sizeof(*a)),
			 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
}

/* ---- the order ---- */

START_TEST(test_thresholds)
{
	static const struct {
		u32 priority, class;
	} want[] = {
		{ 0, RETAIN_LOW }, { NORMAL - 1, RETAIN_LOW },
		{ NORMAL, RETAIN_NORMAL }, { 100, RETAIN_NORMAL },
		{ HIGH - 1, RETAIN_NORMAL }, { HIGH, RETAIN_HIGH },
		{ ~0u, RETAIN_HIGH },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(want); i++) {
		(void)use(1, i * 1024, want[i].priority);
		ck_assert_uint_eq(class_of(i * 1024, 0), want[i].class);
	}
}
END_TEST

/* Of about the same age the lower class is evicted first, though it is newer. */
START_TEST(test_order)
{
	(void)use(3, 0, HIGH);
	(void)use(3, 100000, NORMAL);
	(void)use(3, 200000, LOW);
	squeeze(3);
	ck_assert_uint_eq(held(200000), 0);
	ck_assert_uint_eq(held(100000), 3);
	squeeze(3);
	ck_assert_uint_eq(held(100000), 0);
	ck_assert_uint_eq(held(0), 3);
	squeeze(3);
	ck_assert_uint_eq(held(0), 0);
}
END_TEST

/* Rounds of a flood until a prompt of that priority is evicted. */
static u32 lives(u32 priority)
{
	u32 i;

	teardown();
	setup();
	(void)use(4, 0, priority);
	for (i = 1; held(0) && i < 100; i++)
		flood(i * 100000);
	return i;
}

/* High prompts live longer, about four times; but none stays for ever. */
START_TEST(test_age_wins)
{
	u32 low = lives(LOW), normal = lives(NORMAL), high = lives(HIGH);

	ck_assert_uint_le(low, normal);
	ck_assert_uint_le(normal, 3);
	ck_assert_uint_ge(high, 2 * normal);
	ck_assert_uint_le(high, 20);
}
END_TEST

static u32 rnd;

static u32 below(u32 n)
{
	rnd = rnd * 1103515245 + 12345;
	return (rnd >> 16) % n;
}

/* The blocks that a random run finds, turn by turn, in one number. */
static u64 finds(u32 priority)
{
	u64 sum = 0;
	u32 i, blocks, seed;

	teardown();
	setup();
	rnd = 7;
	for (i = 0; i < 400; i++) {
		blocks = 1 + below(6);
		seed = below(12) * 1024;
		sum = sum * 31 + use(blocks, seed, priority);
	}
	return sum;
}

/* Only differences of priority count. */
START_TEST(test_equal_priorities)
{
	u64 want = finds(LOW);

	ck_assert_uint_eq(finds(NORMAL), want);
	ck_assert_uint_eq(finds(HIGH), want);
}
END_TEST

/* A stem of the lowest class outlives its branch of the highest. */
START_TEST(test_leaves_first)
{
	u64 seq = opened(6, 0, LOW);

	ck_assert_int_eq(retain(seq, KVMM_RETAIN_HIGH, 3, 6), 0);
	(void)fill(seq, 6, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(class_of(0, 2), RETAIN_LOW);
	ck_assert_uint_eq(class_of(0, 3), RETAIN_HIGH);
	(void)use(2, 100000, NORMAL);
	squeeze(2);
	ck_assert_uint_eq(held(0), 6);
	squeeze(4);
	ck_assert_uint_eq(held(0), 2);
}
END_TEST

/* COLD and KEEP_UNTIL hold for blocks of any class. */
START_TEST(test_other_advice)
{
	u64 seq = opened(4, 0, HIGH);

	(void)use(4, 100000, LOW);
	(void)fill(seq, 4, 0);
	ck_assert_int_eq(advise(seq, KVMM_ADV_COLD, 0, 0), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(class_of(0, 3), RETAIN_LOW);
	seq = opened(4, 0, LOW);
	(void)fill(seq, 4, 200000);
	ck_assert_int_eq(advise(seq, KVMM_ADV_KEEP_UNTIL, 0,
				sh.now + 1000 * MS), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	(void)use(4, 300000, HIGH);
	squeeze(4);
	ck_assert_uint_eq(held(0), 0);
	squeeze(8);
	ck_assert_uint_eq(held(300000), 0);
	ck_assert_uint_eq(held(200000), 4);
}
END_TEST

/* ---- source of the class ---- */

/* The highest class of the last uses; each fourth lower one takes it down one. */
START_TEST(test_shared)
{
	u32 i;

	(void)use(2, 0, LOW);
	(void)use(2, 0, HIGH);
	ck_assert_uint_eq(class_of(0, 0), RETAIN_HIGH);
	for (i = 0; i < 3; i++)
		(void)use(2, 0, LOW);
	ck_assert_uint_eq(class_of(0, 1), RETAIN_HIGH);
	(void)use(2, 0, HIGH);			/* lower uses count anew */
	for (i = 0; i < 3; i++)
		(void)use(2, 0, NORMAL);
	ck_assert_uint_eq(class_of(0, 1), RETAIN_HIGH);
	(void)use(2, 0, LOW);
	ck_assert_uint_eq(class_of(0, 1), RETAIN_NORMAL);
	for (i = 0; i < 4; i++)
		(void)use(2, 0, LOW);
	ck_assert_uint_eq(class_of(0, 1), RETAIN_LOW);
	(void)use(2, 0, LOW);
	ck_assert_uint_eq(class_of(0, 1), RETAIN_LOW);
}
END_TEST

/* An evicted block gets the class of the sequence that computes it again. */
START_TEST(test_refault)
{
	(void)use(4, 0, HIGH);
	squeeze(4);
	(void)use(4, 0, LOW);
	ck_assert_uint_eq(class_of(0, 0), RETAIN_LOW);
}
END_TEST

/* Two sequences compute the same at a time: the higher class counts. */
START_TEST(test_merged)
{
	u64 a = opened(2, 0, LOW), b = opened(2, 0, HIGH);

	ck_assert_int_eq(sh_match(cl, a, 2 * SH_BT + 1, 0), 0);
	ck_assert_int_eq(sh_match(cl, b, 2 * SH_BT + 1, 0), 0);
	sh_compute(cl, a, 0, 2 * SH_BT, 0);
	ck_assert_uint_eq(class_of(0, 0), RETAIN_LOW);
	sh_compute(cl, b, 0, 2 * SH_BT, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_pgmerge), 2);
	ck_assert_uint_eq(class_of(0, 0), RETAIN_HIGH);
	ck_assert_uint_eq(class_of(0, 1), RETAIN_HIGH);
}
END_TEST

/* The newest of several ranges counts; a block goes by its first token. */
START_TEST(test_ranges)
{
	static const u32 want[] = { RETAIN_HIGH, RETAIN_LOW, RETAIN_LOW,
				    RETAIN_NORMAL, RETAIN_HIGH, RETAIN_HIGH };
	u64 seq = opened(4, 2, NORMAL);
	u32 i;

	ck_assert_int_eq(retain(seq, KVMM_RETAIN_HIGH, 0, 2), 0);
	ck_assert_int_eq(advise(seq, KVMM_ADV_RETAIN, KVMM_RETAIN_LOW,
				KVMM_RANGE(SH_BT, 2 * SH_BT + 1)), 0);
	(void)fill(seq, 4, 0);
	ck_assert_int_eq(advise(seq, KVMM_ADV_RETAIN, KVMM_RETAIN_HIGH,
				KVMM_RANGE(4 * SH_BT, ~0u)), 0);
	sh_compute(cl, seq, 4 * SH_BT, 6 * SH_BT, 0);
	for (i = 0; i < ARRAY_SIZE(want); i++)
		ck_assert_uint_eq(class_of(0, i), want[i]);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	for (i = 0; i < ARRAY_SIZE(want); i++)
		ck_assert_uint_eq(class_of(0, i), want[i]);
}
END_TEST

/* KVMM_RETAIN_PRIO: the priority counts again, for a part. */
START_TEST(test_by_priority_again)
{
	u64 seq = opened(4, 0, NORMAL);

	ck_assert_int_eq(retain(seq, KVMM_RETAIN_HIGH, 0, 4), 0);
	ck_assert_int_eq(retain(seq, KVMM_RETAIN_PRIO, 1, 2), 0);
	(void)fill(seq, 4, 0);
	ck_assert_uint_eq(class_of(0, 0), RETAIN_HIGH);
	ck_assert_uint_eq(class_of(0, 1), RETAIN_NORMAL);
	ck_assert_uint_eq(class_of(0, 2), RETAIN_HIGH);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}
END_TEST

/* The advice comes late: the nodes learn of it when the sequence ends. */
START_TEST(test_said_late)
{
	u64 seq = opened(4, 0, NORMAL);

	(void)use(2, 0, NORMAL);
	(void)fill(seq, 4, 0);
	ck_assert_int_eq(retain(seq, KVMM_RETAIN_LOW, 0, 3), 0);
	ck_assert_int_eq(retain(seq, KVMM_RETAIN_HIGH, 3, 4), 0);
	ck_assert_uint_eq(class_of(0, 3), RETAIN_NORMAL);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	/* The first two blocks were found: their class is not lowered. */
	ck_assert_uint_eq(class_of(0, 1), RETAIN_NORMAL);
	ck_assert_uint_eq(class_of(0, 2), RETAIN_LOW);
	ck_assert_uint_eq(class_of(0, 3), RETAIN_HIGH);
	seq = opened(4, 0, LOW);
	(void)fill(seq, 4, 0);
	set_priority(seq, HIGH);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(class_of(0, 0), RETAIN_HIGH);
}
END_TEST

/* The class of blocks that another sequence maps is raised, never lowered. */
START_TEST(test_of_another)
{
	u64 a = opened(4, 0, HIGH), b = opened(4, 0, HIGH);

	ck_assert_int_eq(sh_match(cl, a, 4 * SH_BT + 1, 0), 0);
	ck_assert_int_eq(sh_match(cl, b, 4 * SH_BT + 1, 0), 0);
	sh_compute(cl, a, 0, 4 * SH_BT, 0);
	sh_compute(cl, b, 0, 4 * SH_BT, 0);
	ck_assert_int_eq(retain(b, KVMM_RETAIN_LOW, 0, 4), 0);
	ck_assert_int_eq(sh_close(cl, b), 0);
	ck_assert_uint_eq(class_of(0, 3), RETAIN_HIGH);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(class_of(0, 3), RETAIN_HIGH);
}
END_TEST

/* Blocks that a fork computes have the class that was advised before it. */
START_TEST(test_fork)
{
	u64 seq = opened(2, 4, LOW), kid;

	ck_assert_int_eq(retain(seq, KVMM_RETAIN_HIGH, 0, 4), 0);
	(void)fill(seq, 2, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	sh_compute(cl, kid, 2 * SH_BT, 5 * SH_BT, 0);
	ck_assert_uint_eq(class_of(0, 3), RETAIN_HIGH);
	ck_assert_uint_eq(class_of(0, 4), RETAIN_LOW);
	ck_assert_int_eq(sh_close(cl, kid), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}
END_TEST

/* ---- refusals ---- */

START_TEST(test_refused)
{
	u64 seq = opened(4, 0, LOW), all = KVMM_RANGE(0, 64);

	ck_assert_int_eq(advise(seq, KVMM_ADV_RETAIN, KVMM_RETAIN_HIGH + 1,
				all), -EINVAL);
	ck_assert_int_eq(advise(seq, KVMM_ADV_RETAIN, KVMM_RETAIN_HIGH, 0),
			 -EINVAL);
	ck_assert_int_eq(advise(seq, KVMM_ADV_RETAIN, KVMM_RETAIN_HIGH,
				KVMM_RANGE(5, 4)), -EINVAL);
	ck_assert_int_eq(advise(seq, KVMM_ADV_RETAIN + 1, KVMM_RETAIN_HIGH,
				all), -EINVAL);
	ck_assert_int_eq(advise(seq, KVMM_ADV_COLD, KVMM_RETAIN_LOW, 0),
			 -EINVAL);
	ck_assert_int_eq(advise(seq + (1ull << 32), KVMM_ADV_RETAIN,
				KVMM_RETAIN_HIGH, all), -ENOENT);
	(void)fill(seq, 4, 0);
	ck_assert_uint_eq(class_of(0, 0), RETAIN_LOW);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(class_of(0, 0), RETAIN_LOW);
}
END_TEST

/* The fifth range has no place, until one range covers others. */
START_TEST(test_too_many)
{
	u64 seq = opened(6, 0, LOW);
	u32 i;

	for (i = 0; i < SEQ_RETAINS; i++)
		ck_assert_int_eq(retain(seq, KVMM_RETAIN_HIGH, i, i + 1), 0);
	ck_assert_int_eq(retain(seq, KVMM_RETAIN_HIGH, 5, 6), -ENOSPC);
	ck_assert_int_eq(retain(seq, KVMM_RETAIN_NORMAL, 2, 4), 0);
	ck_assert_int_eq(retain(seq, KVMM_RETAIN_HIGH, 5, 6), 0);
	(void)fill(seq, 6, 0);
	for (i = 0; i < 6; i++)
		ck_assert_uint_eq(class_of(0, i), i < 2 || i == 5 ?
				  RETAIN_HIGH : i < 4 ? RETAIN_NORMAL :
				  RETAIN_LOW);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}
END_TEST

/* ---- other domains ---- */

/* Cache that a third domain leaves to two others, which use @p and @q. */
static void stolen(u32 p, u32 q, u32 *left)
{
	u32 a, b, i;
	u64 seq;

	teardown();
	start(8);
	a = cl;
	b = sh_attach(1, "b");
	for (i = 0; i < 4; i++) {
		cl = a;
		(void)use(3, i * 1024, p);
		cl = b;
		(void)use(3, i * 1024, q);
	}
	cl = sh_attach(1, "c");
	seq = opened(10, 0, NORMAL);
	(void)!sh_match(cl, seq, 10 * SH_BT + 1, 0);
	for (i = 0; i < 20 && sh_state(cl, seq) != KVMM_SEQ_READY; i++)
		sh_tick(10);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	left[0] = sh_domain(a).blocks[BLK_CACHED];
	left[1] = sh_domain(b).blocks[BLK_CACHED];
}

/* The priorities of a domain mean nothing to another one. */
START_TEST(test_domains)
{
	u32 same[2], high[2], low[2];

	stolen(NORMAL, NORMAL, same);
	ck_assert_uint_lt(same[0] + same[1], 24);
	stolen(HIGH, LOW, high);
	stolen(LOW, HIGH, low);
	ck_assert_uint_eq(high[0], same[0]);
	ck_assert_uint_eq(high[1], same[1]);
	ck_assert_uint_eq(low[0], same[0]);
	ck_assert_uint_eq(low[1], same[1]);
}
END_TEST

START_TEST(test_view)
{
	u32 once = lru_tier(0, 0);
	struct core_lru_view v;
	u32 normal;

	(void)use(4, 0, NORMAL);
	ck_assert_int_eq(core_get_lru(c, 0, &v), 0);
	ck_assert_uint_eq(v.tier[once].nr, 1);
	ck_assert_uint_eq(v.tier[once].low + v.tier[once].high, 0);
	normal = v.tier[once].worth;
	(void)use(4, 100000, HIGH);
	(void)use(4, 200000, LOW);
	ck_assert_int_eq(core_get_lru(c, 0, &v), 0);
	ck_assert_uint_eq(v.tier[once].nr, 3);
	ck_assert_uint_eq(v.tier[once].low, 1);
	ck_assert_uint_eq(v.tier[once].high, 1);
	/* The block that is evicted next: newer, but worth a fourth. */
	ck_assert_uint_eq(v.tier[once].oldest, 0);
	ck_assert_uint_le(v.tier[once].worth, normal / 4 + 1);
	ck_assert_uint_ge(v.tier[once].worth, normal / 4 - 1);
}
END_TEST

/* ---- at random ---- */

static u64 worth_of(const struct kv_lru *l, const struct kv_node *n)
{
	return (u64)lru_value(l, lru_tier(n->hits, n->interval),
			      lru_units(l) - n->stamp) << 2 * n->retain;
}

/*
 * The law of choice, from the blocks alone: in no class and tier are all blocks
 * of the oldest generation worth less than the block that is evicted next.
 */
static void check_choice(void)
{
	u32 gen[LRU_NR_KINDS], next = lru_next(c, 0), i, k;
	const struct kv_lru *l = &c->lrus[0];
	u64 most[LRU_NR_KINDS] = { 0 }, best;

	if (next == CORE_NONE)
		return;
	best = worth_of(l, &c->nodes[c->blocks[next].node]);
	memset(gen, 0xff, sizeof(gen));
	for (i = 0; i < core_sizes(c)->nr_blocks; i++) {
		const struct kv_block *b = &c->blocks[i];
		const struct kv_node *n = &c->nodes[b->node];

		if (b->state != BLK_CACHED || n->kid != CORE_NONE ||
		    lru_units(l) - n->stamp >= 4000)
			continue;
		k = n->retain * LRU_NR_TIERS + lru_tier(n->hits, n->interval);
		if (n->stamp >> 6 < gen[k]) {
			gen[k] = n->stamp >> 6;
			most[k] = 0;
		}
		if (n->stamp >> 6 == gen[k])
			most[k] = max(most[k], worth_of(l, n));
	}
	for (k = 0; k < LRU_NR_KINDS; k++)
		ck_assert(gen[k] == ~0u || most[k] >= best);
}

START_TEST(test_random)
{
	static const u32 priority[] = { LOW, NORMAL, HIGH };
	u32 i, from, blocks;
	u64 seq;

	rnd = (u32)_i + 1;
	for (i = 0; i < 300; i++) {
		blocks = 1 + below(8);
		seq = opened(blocks, 0, priority[below(3)]);
		from = below(8);
		if (!below(3))
			ck_assert_int_eq(retain(seq, below(4), from,
						from + 1 + below(4)), 0);
		(void)fill(seq, blocks, below(20) * 1024);
		if (!below(4))
			set_priority(seq, priority[below(3)]);
		ck_assert_int_eq(sh_close(cl, seq), 0);
		check_choice();
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("core_retain");
	TCase *t = tcase_create("retain");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_thresholds);
	tcase_add_test(t, test_order);
	tcase_add_test(t, test_age_wins);
	tcase_add_test(t, test_equal_priorities);
	tcase_add_test(t, test_leaves_first);
	tcase_add_test(t, test_other_advice);
	tcase_add_test(t, test_shared);
	tcase_add_test(t, test_refault);
	tcase_add_test(t, test_merged);
	tcase_add_test(t, test_ranges);
	tcase_add_test(t, test_by_priority_again);
	tcase_add_test(t, test_said_late);
	tcase_add_test(t, test_of_another);
	tcase_add_test(t, test_fork);
	tcase_add_test(t, test_refused);
	tcase_add_test(t, test_too_many);
	tcase_add_test(t, test_domains);
	tcase_add_test(t, test_view);
	tcase_add_loop_test(t, test_random, 0, 8);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return sh_run(suite());
}
