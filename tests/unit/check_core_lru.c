// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_lru.c - the order in which cached blocks are evicted
 *
 * Most tests run in a pool of 32 blocks.  A seed names a prompt, and the first
 * ids of a block tell its prompt and place.  Held blocks are counted in the
 * core's own records, since a lookup would be a use.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define POOL	32u		/* blocks */

static u32 cl, peer;
static struct core *c;

static void start(u32 extents)
{
	sh_config(extents);
	sh_start();
	cl = sh_attach(1, "a");
	c = sh.core;
	sh_warm(cl);
}

static void setup(void)
{
	start(POOL / SH_PER);
}

static void teardown(void)
{
	sh_stop();
}

/* Number of blocks of prompt @seed, from index @from on, that are in the index. */
static u32 held_from(u32 seed, u32 from)
{
	u32 i, nr = 0;

	for (i = 0; i < core_sizes(c)->nr_blocks; i++) {
		const struct kv_block *b = &c->blocks[i];
		u32 at;

		if (!(b->flags & BLKF_INDEXED))
			continue;
		at = block_ids(c, i)[0] - seed;
		nr += at >= from * SH_BT && at < 64 * SH_BT;
	}
	return nr;
}

static u32 held(u32 seed)
{
	return held_from(seed, 0);
}

/* Compute @blocks full blocks but those found, and close.  Return: found ones. */
static u32 use(u32 blocks, u32 seed)
{
	u64 seq = sh_ready(cl, blocks * SH_BT + 1, 0, seed);
	u32 from = sh_status(cl, seq)->valid_len;

	if (from < blocks * SH_BT)
		sh_compute(cl, seq, from, blocks * SH_BT, seed);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	return from / SH_BT;
}

/* The same for a prompt that continues with @other after @stem blocks of @seed. */
static void branch(u32 stem, u32 blocks, u32 seed, u32 other)
{
	u64 seq = sh_ready(cl, stem * SH_BT + 1, blocks * SH_BT, seed);
	u32 from = sh_status(cl, seq)->valid_len;

	if (from < stem * SH_BT)
		sh_compute(cl, seq, from, stem * SH_BT, seed);
	sh_compute(cl, seq, stem * SH_BT, (stem + blocks) * SH_BT, other);
	ck_assert_int_eq(sh_close(cl, seq), 0);
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

/* Use prompts of @times the whole pool once each. */
static void flood(u32 times, u32 seed)
{
	u32 i;

	for (i = 0; i < 8 * times; i++)
		(void)use(4, seed + i * 1024);
}

static const struct kv_node *node_of(u32 seed)
{
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_blocks; i++)
		if ((c->blocks[i].flags & BLKF_INDEXED) &&
		    block_ids(c, i)[0] == seed)
			return &c->nodes[c->blocks[i].node];
	return NULL;
}

/* ---- leaves first ---- */

START_TEST(test_leaves_first)
{
	(void)use(6, 0);
	squeeze(2);
	ck_assert_uint_eq(held(0), 4);
	ck_assert_uint_eq(held_from(0, 4), 0);
	squeeze(3);
	ck_assert_uint_eq(held(0), 1);
	ck_assert_uint_eq(use(6, 0), 1);
}
END_TEST

/* A stem outlives its branches, though one of them is as recent. */
START_TEST(test_stem_after_branches)
{
	branch(2, 3, 0, 100000);
	branch(2, 3, 0, 200000);
	squeeze(2);
	ck_assert_uint_eq(held(100000), 1);
	ck_assert_uint_eq(held(200000), 3);
	ck_assert_uint_eq(held(0), 2);
	squeeze(4);
	ck_assert_uint_eq(held(0), 2);
	squeeze(2);
	ck_assert_uint_eq(held(0), 0);
}
END_TEST

/*
 * A cached stem is no leaf if its branch is mapped, by a sequence that has its
 * own copy of the stem.  The stem is evicted last of all, and its branch leaves
 * the index with it.
 */
static u64 lonely_branch(void)
{
	u64 a, b;

	teardown();
	sh_config(POOL / SH_PER);
	sh_start();
	cl = sh_attach(1, "a");
	peer = sh_attach(1, "a");
	c = sh.core;
	a = sh_ready(cl, 33, 0, 0);
	b = sh_ready(peer, 33, 160, 0);
	sh_compute(cl, a, 0, 32, 0);
	/* No copies are merged while a client has not mapped all extents. */
	sh.cl[peer].mute = true;
	ck_assert_int_eq(sh_begin(peer, b, 0, 32), 0);
	ck_assert_int_eq(sh_close(cl, sh_ready(cl, 23 * SH_BT, 0, 1 << 20)),
			 0);
	ck_assert_int_eq(sh_end(peer, b, 0, 32, 0), 0);
	sh.cl[peer].mute = false;
	ck_assert_int_eq(sh_close(cl, a), 0);
	sh_compute(peer, b, 32, 48, 0);
	ck_assert_uint_eq(held(0), 3);
	return b;
}

START_TEST(test_stem_of_a_mapped_branch)
{
	u64 b = lonely_branch();

	(void)use(4, 100000);
	squeeze(3);		/* one is for the running sequence */
	ck_assert_uint_eq(held(100000), 0);
	ck_assert_uint_eq(held(0), 3);
	ck_assert_int_eq(sh_close(peer, b), 0);
	ck_assert_uint_eq(use(3, 0), 3);
}
END_TEST

/* As the last cache the stem is evicted; then the branch is indexed again. */
START_TEST(test_stem_goes_last)
{
	u64 b = lonely_branch();

	squeeze(0);
	ck_assert_uint_eq(held(0), 1);
	squeeze(0);
	ck_assert_uint_eq(held(0), 0);
	/* The sequence's own copy of the stem is in the index now. */
	sh_compute(peer, b, 48, 64, 0);
	ck_assert_uint_eq(held(0), 4);
	ck_assert_int_eq(sh_close(peer, b), 0);
	ck_assert_uint_eq(use(4, 0), 4);
}
END_TEST

/* ---- value of blocks ---- */

/* Of two prompts that were used once, the older one is evicted. */
START_TEST(test_recency)
{
	(void)use(3, 0);
	(void)use(3, 100000);
	(void)use(3, 200000);
	squeeze(3);
	ck_assert_uint_eq(held(0), 0);
	ck_assert_uint_eq(held(100000), 3);
	squeeze(4);
	ck_assert_uint_eq(held(100000), 0);
	ck_assert_uint_eq(held(200000), 2);
}
END_TEST

/* A prompt that was found stays while long prompts pass through. */
START_TEST(test_scan)
{
	u32 i;

	(void)use(4, 0);
	for (i = 1; i < 5; i++) {
		ck_assert_uint_eq(use(4, 0), 4);
		(void)use(24, i * 100000);
		(void)use(24, i * 100000 + 50000);
		ck_assert_uint_eq(held(0), 4);
	}
	flood(1, 1000000);
	ck_assert_uint_eq(held(0), 4);
}
END_TEST

/* A prompt that was hot once is evicted when it is not used any more. */
START_TEST(test_drift)
{
	u32 i;

	for (i = 0; i < 20; i++)
		(void)use(4, 0);
	ck_assert_uint_eq(node_of(0)->hits, LRU_HITS_MAX);
	for (i = 0; i < 60 && held(0); i++) {
		(void)use(4, 100000 + i / 4 * 1024);
		(void)use(4, 1000000 + i * 1024);
	}
	ck_assert_uint_eq(held(0), 0);
	ck_assert_uint_gt(i, 8);
}
END_TEST

/* Blocks older than all generations share the oldest one, in every tier. */
START_TEST(test_generations)
{
	u32 gap, i;

	for (gap = 0; gap < 7; gap++) {
		(void)use(1, gap * 1024);
		for (i = 0; i < gap; i++)
			c->lrus[0].clock += 64ull << 10;
		(void)use(1, gap * 1024);
	}
	(void)use(2, 100000);
	for (i = 0; i < 5; i++) {
		c->lrus[0].clock += 1ull << 20;
		(void)use(1, 200000 + i * 1024);
	}
	ck_assert_uint_eq(sh_domain(cl).blocks[BLK_CACHED], 7 + 2 + 5);
	squeeze(7 + 2 + 5);
	ck_assert_uint_eq(sh_domain(cl).blocks[BLK_CACHED], 0);
}
END_TEST

/* ---- ghosts ---- */

static u32 nr_ghosts(void)
{
	u32 i, nr = 0;

	for (i = 0; i < core_sizes(c)->nr_ghosts; i++)
		nr += c->ghosts[i].domain != GHOST_UNUSED;
	return nr;
}

/* Do the ghosts remember the name of block @nr of prompt @seed? */
static bool remembered(u32 seed, u32 nr)
{
	u64 hash[2], next[2];
	u32 ids[SH_BT], i, n;

	index_root(c, &c->domains[0], 0, 0, hash);
	for (n = 0; n <= nr; n++) {
		for (i = 0; i < SH_BT; i++)
			ids[i] = seed + n * SH_BT + i;
		index_chain(c, &c->domains[0], 0, hash, ids, next);
		memcpy(hash, next, sizeof(hash));
	}
	return lru_ghost_sampled(hash);
}

/* A prompt of which the ghosts remember the first block, but not the second. */
static u32 told_seed(void)
{
	u32 seed;

	for (seed = 0; !remembered(seed, 0) || remembered(seed, 1);)
		seed += 1000;
	return seed;
}

/* A block that returns soon after its eviction was evicted too early. */
START_TEST(test_refault)
{
	u64 refaults = sh_count(CORE_EV_workingset_refault);
	u32 seed = told_seed();

	(void)use(4, seed);
	squeeze(4);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), refaults);
	ck_assert_uint_eq(use(4, seed), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), refaults + 4);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_activate), refaults + 4);
	ck_assert_uint_eq(node_of(seed)->hits, 1);
	/* The refault counts as a hit: newer prompts used once go first. */
	(void)use(4, seed + 100000);
	squeeze(4);
	ck_assert_uint_eq(held(seed), 4);
	ck_assert_uint_eq(held(seed + 100000), 0);
}
END_TEST

/* A block without a ghost refaults if the block before it just did. */
START_TEST(test_refault_told)
{
	u32 seed = told_seed();

	(void)use(2, seed);
	squeeze(2);
	ck_assert_uint_eq(nr_ghosts(), 1);
	(void)use(1, seed);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 1);
	(void)use(2, seed);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 2);
	ck_assert_uint_eq(node_of(seed + SH_BT)->hits, 1);
	/* Not if another prompt came between. */
	squeeze(2);
	(void)use(1, seed);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 3);
	(void)use(1, seed + 100000);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 3);
	(void)use(2, seed);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 3);
	ck_assert_uint_eq(node_of(seed + SH_BT)->hits, 0);
}
END_TEST

/* Blocks before the first remembered one refault if that one does. */
START_TEST(test_refault_told_late)
{
	u32 seed = 0;

	while (remembered(seed, 0) || remembered(seed, 1) ||
	       !remembered(seed, 2))
		seed += 1000;
	(void)use(3, seed);
	squeeze(3);
	ck_assert_uint_eq(nr_ghosts(), 1);
	(void)use(2, seed);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 0);
	squeeze(2);
	(void)use(3, seed);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 3);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_activate), 3);
	ck_assert_uint_eq(node_of(seed)->hits, 1);
	ck_assert_uint_eq(node_of(seed + SH_BT)->hits, 1);
}
END_TEST

/* A refault after four times the cache activates no block. */
START_TEST(test_refault_distance)
{
	u32 i, seed = told_seed();

	(void)use(1, seed);
	squeeze(1);
	/* Using one prompt again and again ages the clock, not the ghosts. */
	for (i = 0; i < 5; i++)
		c->lrus[0].clock += 1ull << 20;
	(void)use(1, seed);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_activate), 0);
	ck_assert_uint_eq(node_of(seed)->hits, 0);
}
END_TEST

/* The table of ghosts fills up, and then forgets the oldest ghost of each set. */
START_TEST(test_ghosts_wrap)
{
	u32 size = core_sizes(c)->nr_ghosts, seed = told_seed();

	(void)use(1, seed);
	squeeze(1);
	ck_assert_uint_eq(nr_ghosts(), 1);
	flood(20, 1000000);
	ck_assert_uint_gt(nr_ghosts(), size * 9 / 10);
	(void)use(1, seed);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 0);
	/* Most prompts this short have no name that is remembered. */
	flood(1, 1000000 + 16 * 8 * 1024);
	ck_assert_uint_gt(sh_count(CORE_EV_workingset_refault), 4);
}
END_TEST

/* A name of one domain is no ghost of another domain, nor of its successor. */
START_TEST(test_ghosts_of_a_domain)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 other = sh_attach(1, "b"), seed = told_seed();

	(void)use(4, seed);
	squeeze(4);
	cl = other;
	(void)use(4, seed);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 0);
	sh_die(0);
	sh_quiet(0);
	req.identity[0] = 1;
	ck_assert_int_ge(sh_attach_as(1, &req), 0);
	ck_assert_uint_eq(nr_ghosts(), 0);
}
END_TEST

/* ---- dropping the cache ---- */

START_TEST(test_drop_caches)
{
	u64 b;

	(void)use(4, 0);
	(void)use(6, 100000);
	b = sh_ready(cl, 33, 0, 100000);
	ck_assert_int_eq(core_drop_caches(c, sh.now, 0, 3), 3);
	sh_check();
	ck_assert_uint_eq(held(0) + held(100000), 7);
	ck_assert_int_eq(core_drop_caches(c, sh.now, 0, 100), 5);
	sh_check();
	/* Blocks that a sequence maps are found as before. */
	ck_assert_uint_eq(held(0), 0);
	ck_assert_uint_eq(held(100000), 2);
	ck_assert_uint_eq(use(2, 100000), 2);
	ck_assert_int_eq(sh_close(cl, b), 0);
	(void)use(4, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_workingset_refault), 0);
	ck_assert_int_eq(core_drop_caches(c, sh.now, 0, 100), 6);
	ck_assert_int_eq(core_drop_caches(c, sh.now, 0, 100), 0);
	ck_assert_int_eq(core_drop_caches(c, sh.now, 1, 100), -ENOENT);
	ck_assert_int_eq(core_drop_caches(c, sh.now, ~0u, 100), -ENOENT);
}
END_TEST

/* ---- advice ---- */

static int advise(u64 seq, u32 advice, u64 value)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice,
				       .value = value };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)),
			 0);
	return sh_seq_res(0);
}

/* use(), with advice before the end. */
static void use_advised(u32 blocks, u32 seed, u32 advice, u64 value)
{
	u64 seq = sh_ready(cl, blocks * SH_BT + 1, 0, seed);
	u32 from = sh_status(cl, seq)->valid_len;

	ck_assert_int_eq(advise(seq, advice, value), 0);
	if (from < blocks * SH_BT)
		sh_compute(cl, seq, from, blocks * SH_BT, seed);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

START_TEST(test_dontneed)
{
	u64 b;

	use_advised(4, 0, KVMM_ADV_DONTNEED, 0);
	ck_assert_uint_eq(held(0), 0);
	ck_assert_uint_eq(nr_ghosts(), 0);
	/* Blocks stay that were cached before, or that another sequence maps. */
	(void)use(2, 0);
	use_advised(4, 0, KVMM_ADV_DONTNEED, 0);
	ck_assert_uint_eq(held(0), 2);
	b = sh_ready(cl, 5 * SH_BT, 0, 0);
	sh_compute(cl, b, 2 * SH_BT, 5 * SH_BT, 0);
	use_advised(4, 0, KVMM_ADV_DONTNEED, 0);
	ck_assert_uint_eq(held(0), 5);
	ck_assert_int_eq(sh_close(cl, b), 0);
	ck_assert_uint_eq(held(0), 5);
}
END_TEST

START_TEST(test_cold)
{
	(void)use(4, 0);
	use_advised(4, 100000, KVMM_ADV_COLD, 0);
	squeeze(4);
	ck_assert_uint_eq(held(0), 4);
	ck_assert_uint_eq(held(100000), 0);
	/* A cold block that is found again is as good as any other. */
	use_advised(4, 200000, KVMM_ADV_COLD, 0);
	ck_assert_uint_eq(use(4, 200000), 4);
	squeeze(4);
	ck_assert_uint_eq(held(200000), 4);
}
END_TEST

START_TEST(test_keep_until)
{
	u64 until = sh.now + 1000 * MS;

	use_advised(4, 0, KVMM_ADV_KEEP_UNTIL, until);
	flood(10, 1000000);
	ck_assert_uint_eq(held(0), 4);
	/* Kept blocks are evicted last, when no other cache is left. */
	squeeze((u32)sh_domain(cl).blocks[BLK_CACHED] - 4);
	ck_assert_uint_eq(held(0), 4);
	squeeze(2);
	ck_assert_uint_eq(held(0), 2);
	ck_assert_uint_eq(c->lrus[0].nr_kept, 2);
	(void)use(4, 100000);
	sh_tick(2000);
	flood(4, 3000000);
	ck_assert_uint_eq(held(0), 0);
	ck_assert_uint_eq(c->lrus[0].nr_kept, 0);
}
END_TEST

/* No client can keep all of the cache. */
START_TEST(test_keep_share)
{
	u64 until = sh.now + 1000 * MS;

	use_advised(24, 0, KVMM_ADV_KEEP_UNTIL, until);
	ck_assert_uint_eq(c->lrus[0].nr_kept, POOL / LRU_KEEP_SHARE);
	use_advised(4, 100000, KVMM_ADV_KEEP_UNTIL, until + 1);
	flood(10, 1000000);
	ck_assert_uint_eq(held(0), POOL / LRU_KEEP_SHARE);
	ck_assert_uint_eq(held(100000), 0);
}
END_TEST

/* With more times than terms the last prompts are not kept. */
START_TEST(test_terms)
{
	u32 i, kept = 0;

	sh_stop();
	start(2 * LRU_NR_TERMS);
	for (i = 0; i < LRU_NR_TERMS + 2; i++)
		use_advised(1, i * 1024, KVMM_ADV_KEEP_UNTIL,
			    sh.now + (1000 + i) * MS);
	ck_assert_uint_eq(c->lrus[0].nr_kept, LRU_NR_TERMS);
	/* A longer term replaces a shorter one, and not the other way round. */
	use_advised(1, 0, KVMM_ADV_KEEP_UNTIL, sh.now + 1001 * MS);
	use_advised(1, 1024, KVMM_ADV_KEEP_UNTIL, sh.now + 1 * MS);
	for (i = 0; i < LRU_NR_TERMS; i++)
		kept += c->lrus[0].term[i].nr;
	ck_assert_uint_eq(kept, LRU_NR_TERMS);
	ck_assert_uint_eq(node_of(0)->term, node_of(1024)->term);
	/* A use after its time ends a term. */
	sh_tick(5000);
	for (i = 0; i < LRU_NR_TERMS; i++)
		ck_assert_uint_eq(use(1, i * 1024), 1);
	ck_assert_uint_eq(c->lrus[0].nr_kept, 0);
}
END_TEST

/* ---- learning ---- */

static u32 worth(u32 hits, u32 interval, u32 age)
{
	return c->lrus[0].value[lru_tier(hits, interval)][lru_age_bucket(age)];
}

/* Before any observation: found before never found, young before old. */
START_TEST(test_prior)
{
	u32 age;

	for (age = 1; age < 8192; age *= 2) {
		ck_assert_uint_gt(worth(0, 0, age), worth(0, 3, age));
		ck_assert_uint_gt(worth(1, 80, age), worth(0, 0, age));
		ck_assert_uint_gt(worth(4, 80, age), worth(1, 80, age));
		ck_assert_uint_gt(worth(1, 80, age), worth(1, 80, 2 * age));
	}
}
END_TEST

/* A tier that never comes back loses worth, one that does gains it. */
START_TEST(test_learning)
{
	u32 once = worth(0, 0, 600), once_long = worth(0, 3, 600), i;

	for (i = 0; i < 4000; i++) {
		lru_observe(&c->lrus[0], lru_tier(0, 0), 0,
			    lru_age_bucket(900), false, 1);
		lru_observe(&c->lrus[0], lru_tier(0, 3), 0,
			    lru_age_bucket(900), true, 1);
	}
	flood(9, 1000000);
	ck_assert_uint_lt(worth(0, 0, 600), once / 2);
	ck_assert_uint_gt(worth(0, 3, 600), once_long * 2);
}
END_TEST

/* The operator's view: two candidates in their tiers, the found one worth more. */
START_TEST(test_view)
{
	struct core_lru_view v;
	u32 found = lru_tier(1, 0), once = lru_tier(0, 0);

	(void)use(4, 0);
	(void)use(4, 0);
	(void)use(4, 100000);
	ck_assert_int_eq(core_get_lru(c, 0, &v), 0);
	ck_assert_uint_eq(v.tier[found].nr, 1);
	ck_assert_uint_eq(v.tier[found].found, 1);
	ck_assert_uint_eq(v.tier[found].oldest, 400 / POOL);
	ck_assert_uint_eq(v.tier[once].nr, 1);
	ck_assert_uint_eq(v.tier[once].oldest, 0);
	ck_assert_uint_gt(v.tier[found].worth, v.tier[once].worth);
	ck_assert_uint_gt(v.tier[once].worth, 0);
	ck_assert_int_eq(core_get_lru(c, 1, &v), -ENOENT);
	ck_assert_int_eq(core_get_lru(c, 99, &v), -ENOENT);
}
END_TEST

/* ---- at random, beside a model ---- */

static u32 rnd;

static u32 below(u32 n)
{
	rnd = rnd * 1103515245 + 12345;
	return (rnd >> 16) % n;
}

/*
 * The law of choice, from the blocks alone: the next block is a leaf if there
 * is one, and no leaf of its tier is of an older generation.
 */
static void check_choice(void)
{
	const struct kv_lru *l = &c->lrus[0];
	u32 next = lru_next(c, 0), i, leaves = 0, cached = 0;
	const struct kv_node *best;

	best = next == CORE_NONE ? NULL : &c->nodes[c->blocks[next].node];
	for (i = 0; i < core_sizes(c)->nr_blocks; i++) {
		const struct kv_block *b = &c->blocks[i];
		const struct kv_node *n = &c->nodes[b->node];
		u32 kid;

		if (b->state != BLK_CACHED)
			continue;
		cached++;
		kid = n->kid;
		if (kid != CORE_NONE)
			continue;
		leaves++;
		if (lru_tier(n->hits, n->interval) ==
		    lru_tier(best->hits, best->interval) &&
		    lru_units(l) - n->stamp < 4000)
			ck_assert_uint_ge(n->stamp >> 6, best->stamp >> 6);
	}
	ck_assert_uint_eq(cached != 0, next != CORE_NONE);
	if (leaves)
		ck_assert_uint_eq(best->kid, CORE_NONE);
}

/* Number of blocks of a prompt that must be found: those before the first gap. */
static u32 model_found(u32 stem, u32 seed, u32 nr)
{
	u32 i, b, found;

	for (found = 0; found < nr; found++) {
		u32 first = found * SH_BT + (found < stem ? 0 : seed);

		for (i = 0, b = 0; i < core_sizes(c)->nr_blocks; i++)
			b |= (c->blocks[i].flags & BLKF_INDEXED) &&
			     block_ids(c, i)[0] == first;
		if (!b)
			break;
	}
	return found;
}

static u64 random_seq(u32 stem, u32 seed, u32 nr)
{
	struct kvmm_match_arg *a = (struct kvmm_match_arg *)sh.args;
	u32 *ids = (u32 *)(a + 1), i, len = nr * SH_BT + 1;
	u64 seq = sh_open(cl, len, 0);
	u32 found;

	*a = (struct kvmm_match_arg){ .seq = seq, .nr_ids = len,
				      .flags = KVMM_MATCH_LAST };
	for (i = 0; i < len; i++)
		ids[i] = i + (i / SH_BT < stem ? 0 : seed);
	found = model_found(stem, seed, nr);
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_MATCH, 1, 0,
				   (u32)sizeof(*a) + 4 * len), 0);
	sh_settle();
	if (sh_state(cl, seq) == KVMM_SEQ_READY) {
		ck_assert_uint_eq(sh_status(cl, seq)->cached_len / SH_BT,
				  found);
		return seq;
	}
	ck_assert_int_eq(sh_close(cl, seq), 0);
	return 0;
}

START_TEST(test_random)
{
	struct { u64 seq; u32 stem, seed, nr; } run[3] = { { 0 } };
	u32 i, n, from;

	rnd = (u32)_i + 1;
	for (n = 0; n < 400; n++) {
		i = below(3);
		if (!run[i].seq) {
			run[i].stem = below(4);
			run[i].seed = (1 + below(6)) * 100000 +
				      run[i].stem * 10000;
			run[i].nr = run[i].stem + 1 + below(5);
			run[i].seq = random_seq(run[i].stem, run[i].seed,
						run[i].nr);
			continue;
		}
		from = sh_status(cl, run[i].seq)->valid_len;
		if (from < run[i].stem * SH_BT)
			sh_compute(cl, run[i].seq, from, run[i].stem * SH_BT,
				   0);
		from = max(from, run[i].stem * SH_BT);
		if (from < run[i].nr * SH_BT)
			sh_compute(cl, run[i].seq, from, run[i].nr * SH_BT,
				   run[i].seed);
		ck_assert_int_eq(sh_close(cl, run[i].seq), 0);
		run[i].seq = 0;
		check_choice();
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("core_lru");
	TCase *t = tcase_create("lru");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_leaves_first);
	tcase_add_test(t, test_stem_after_branches);
	tcase_add_test(t, test_stem_of_a_mapped_branch);
	tcase_add_test(t, test_stem_goes_last);
	tcase_add_test(t, test_recency);
	tcase_add_test(t, test_scan);
	tcase_add_test(t, test_drift);
	tcase_add_test(t, test_generations);
	tcase_add_test(t, test_refault);
	tcase_add_test(t, test_refault_told);
	tcase_add_test(t, test_refault_told_late);
	tcase_add_test(t, test_refault_distance);
	tcase_add_test(t, test_ghosts_wrap);
	tcase_add_test(t, test_ghosts_of_a_domain);
	tcase_add_test(t, test_drop_caches);
	tcase_add_test(t, test_dontneed);
	tcase_add_test(t, test_cold);
	tcase_add_test(t, test_keep_until);
	tcase_add_test(t, test_keep_share);
	tcase_add_test(t, test_terms);
	tcase_add_test(t, test_prior);
	tcase_add_test(t, test_learning);
	tcase_add_test(t, test_view);
	tcase_add_loop_test(t, test_random, 0, 20);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return sh_run(suite());
}
