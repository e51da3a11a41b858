// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_wmark.c - watermarks, the reclaimer, cache floors, commitments
 *
 * A pool of 64 blocks of 16 tokens.  The tests check that the blocks kept for
 * growth are those that running sequences can take; that background eviction
 * stops at high; how much cache other domains leave; and commitments, with all
 * of max_tokens.
 */
#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

#define SLOT	8192u			/* bytes of one in the host pool */
#define POOL	16u			/* extents */
#define ALL	(POOL * SH_PER)		/* blocks */

static struct core_copy copies[64];
static u32 nr_copies;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, 64);
	copies[nr_copies++] = *cp;
}

static void copies_done(void)
{
	while (nr_copies)
		SH_CORE(core_copy_done(sh.core, sh.now,
				       copies[--nr_copies].id, 0));
	sh_check();
}

/* Bytes of the host pool; with ALL * SLOT it has a slot for each device block. */
static u64 host_bytes;

static void start(u32 scale, u32 floor, u32 overcommit, u32 ratio)
{
	sh_config(POOL);
	sh.cfg.starve_ns = 1ull << 60;
	sh.cfg.step_deadline_ns = 1ull << 60;
	sh.cfg.watermark_scale_factor = scale;
	sh.cfg.cache_floor = floor;
	sh.cfg.overcommit = overcommit;
	sh.cfg.overcommit_ratio = ratio;
	sh.cfg.host_bytes = host_bytes;
	host_bytes = 0;
	nr_copies = 0;
	sh_on_copy = on_copy;
	sh_start();
}

static void setup(void)
{
	start(0, 0, CORE_OVERCOMMIT_GUESS, 0);
}

static void teardown(void)
{
	sh_stop();
}

/* A resident sequence of @prompt computed tokens that may become @more longer. */
static u64 resident(u32 cl, u32 prompt, u32 more, u32 seed)
{
	u64 seq = sh_ready(cl, prompt, more, seed);

	sh_compute(cl, seq, 0, prompt, seed);
	return seq;
}

static void cache(u32 cl, u32 blocks, u32 seed)
{
	u64 seq = resident(cl, blocks * SH_BT, 0, seed);

	ck_assert_int_eq(sh_close(cl, seq), 0);
}

static u64 asked(u32 cl, u32 prompt, u32 more, u32 seed)
{
	u64 seq = sh_open(cl, prompt, more);

	ck_assert_int_eq(sh_match(cl, seq, prompt, seed), 0);
	return seq;
}

static u32 min_of(u32 cl)
{
	return (u32)sh_domain(cl).wmark[0];
}

/* ---- min ---- */

/* One block for each sequence that may need more than it has. */
START_TEST(test_min)
{
	u32 cl = sh_attach(1, "a");
	u64 seq;

	ck_assert_uint_eq(min_of(cl), 0);
	seq = sh_ready(cl, 20, 100, 0);
	ck_assert_uint_eq(min_of(cl), 1);
	sh_compute(cl, seq, 0, 20, 0);
	ck_assert_uint_eq(min_of(cl), 1);

	(void)resident(cl, 20, 12, 1000);
	ck_assert_uint_eq(min_of(cl), 1);
	(void)resident(cl, 20, 13, 2000);
	ck_assert_uint_eq(min_of(cl), 2);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(min_of(cl), 1);
}
END_TEST

/* Each sharer of a half-full tail may copy it. */
START_TEST(test_min_of_a_family)
{
	u32 cl = sh_attach(1, "a");
	u64 seq = resident(cl, 20, 12, 0), kid[2];

	ck_assert_uint_eq(min_of(cl), 0);
	ck_assert_int_eq(sh_fork(cl, seq, 2, kid), 0);
	ck_assert_uint_eq(min_of(cl), 3);
	ck_assert_int_eq(sh_begin(cl, kid[0], 20, 1), 0);
	ck_assert_uint_eq(min_of(cl), 2);
	ck_assert_int_eq(sh_end(cl, kid[0], 20, 21, 0), 0);
	ck_assert_int_eq(sh_begin(cl, kid[1], 20, 1), 0);
	/* The last sharer writes in place. */
	ck_assert_uint_eq(min_of(cl), 0);
	ck_assert_int_eq(sh_end(cl, kid[1], 20, 21, 0), 0);
}
END_TEST

/* Admission leaves exactly min to running sequences. */
START_TEST(test_admission_leaves_min)
{
	u32 cl = sh_attach(1, "a"), i;
	u64 run[4], seq;

	for (i = 0; i < 4; i++)
		run[i] = resident(cl, 32, 160, i * 1000);
	ck_assert_uint_eq(min_of(cl), 4);
	/* 56 are free: the first prompt wants one too many, the second does not. */
	seq = asked(cl, 53 * SH_BT, 0, 9000);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	seq = asked(cl, 52 * SH_BT, 0, 9000);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(sh_begin(cl, run[i], 32, 1), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_mark), 0);
}
END_TEST

/*
 * A truncated fork gives no block back, but the other sharer of its tail need
 * not copy it any more: a sequence that waits for the block kept for that is
 * admitted at once.
 */
START_TEST(test_truncation_lets_in)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;
	u32 cl = sh_attach(1, "a");
	u64 seq, kid, next;

	sh_warm(cl);
	seq = resident(cl, 20, 12, 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_uint_eq(min_of(cl), 2);
	next = asked(cl, (ALL - 3) * SH_BT, 0, 9000);
	ck_assert_uint_eq(sh_state(cl, next), KVMM_SEQ_WAITING);
	*a = (struct kvmm_len_arg){ .seq = kid, .len = 16 };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_TRUNCATE, 1, 0, sizeof(*a)),
			 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	ck_assert_uint_eq(min_of(cl), 1);
	ck_assert_uint_eq(sh_state(cl, next), KVMM_SEQ_READY);
}
END_TEST

/* ---- the reclaimer ---- */

/* Below low the reclaimer works until high, and no further. */
START_TEST(test_reclaimer)
{
	u64 seq, room;
	u32 cl, i;

	teardown();
	host_bytes = ALL * SLOT;
	start(600, 0, CORE_OVERCOMMIT_GUESS, 0);	/* a gap of 4 */
	cl = sh_attach(1, "a");
	seq = resident(cl, 32, 160, 0);
	for (i = 0; i < 14; i++)
		cache(cl, 4, 1000 * (i + 1));
	/* 2 blocks are used and 56 cached: min is 1, low 5, high 9 */
	ck_assert_uint_eq(sh_domain(cl).wmark[1], 5);
	ck_assert_uint_eq(sh_domain(cl).wmark[2], 9);
	ck_assert_uint_eq(sh_domain(cl).room, 6);
	sh_tick(5);
	ck_assert_uint_eq(sh_count(CORE_EV_wmark_low_hit), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_background), 0);

	ck_assert_int_eq(sh_begin(cl, seq, 32, 17), 0);
	room = sh_domain(cl).room;
	ck_assert_uint_eq(room, 4);
	sh_tick(5);
	ck_assert_uint_eq(sh_count(CORE_EV_wmark_low_hit), 1);
	/* A block that no lower tier has stays. */
	copies_done();
	for (i = 0; i < 4; i++) {
		sh_tick(5);
		copies_done();
	}
	ck_assert_uint_eq(sh_domain(cl).room, sh_domain(cl).wmark[2]);
	room = sh_count(CORE_EV_reclaim_background);
	ck_assert_uint_eq(room, 5);
	for (i = 0; i < 10; i++)
		sh_tick(5);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_background), room);
	ck_assert_uint_eq(sh_count(CORE_EV_wmark_low_hit), 1);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_direct), 0);
}
END_TEST

/* No sequence runs: no block is evicted ahead. */
START_TEST(test_reclaimer_sleeps)
{
	u32 cl, i;

	teardown();
	start(1000, 0, CORE_OVERCOMMIT_GUESS, 0);
	cl = sh_attach(1, "a");
	for (i = 0; i < 16; i++)
		cache(cl, 4, 1000 * (i + 1));
	ck_assert_uint_eq(sh_domain(cl).room, 0);
	sh_tick(5);
	ck_assert_uint_eq(sh_domain(cl).blocks[3], ALL);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_background), 0);
}
END_TEST

/* A reclaimer that is turned off while it is awake sleeps. */
START_TEST(test_reclaimer_is_turned_off)
{
	struct kv_domain *d;
	u32 cl, i;
	u64 seq;

	teardown();
	host_bytes = ALL * SLOT;
	start(600, 0, CORE_OVERCOMMIT_GUESS, 0);
	cl = sh_attach(1, "a");
	d = &sh.core->domains[sh.cl[cl].info.domain];
	seq = resident(cl, 32, 160, 0);
	for (i = 0; i < 14; i++)
		cache(cl, 4, 1000 * (i + 1));
	ck_assert_int_eq(sh_begin(cl, seq, 32, 17), 0);
	sh_tick(5);
	ck_assert_uint_eq(d->reclaiming, 1);
	SH_CORE(ck_assert_int_eq(core_tune(sh.core, sh.now,
			CORE_TUNE_watermark_scale_factor, 0), 0));
	copies_done();
	sh_tick(5);
	ck_assert_uint_eq(d->reclaiming, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_reclaim_background), 0);
	/* Turned on again it works until high, and sleeps. */
	SH_CORE(ck_assert_int_eq(core_tune(sh.core, sh.now,
			CORE_TUNE_watermark_scale_factor, 600), 0));
	for (i = 0; i < 6; i++) {
		sh_tick(5);
		copies_done();
	}
	ck_assert_uint_eq(sh_domain(cl).room, sh_domain(cl).wmark[2]);
	ck_assert_uint_eq(d->reclaiming, 0);
	ck_assert_uint_eq(d->dev.keep_spans, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_wmark_low_hit), 2);
}
END_TEST

/* ---- the cache floor ---- */

/* Other domains leave the floor while they have a sequence to wait for. */
START_TEST(test_floor)
{
	u32 a, b;
	u64 seq[2], big;

	teardown();
	start(0, 50, CORE_OVERCOMMIT_GUESS, 0);
	a = sh_attach(1, "a");
	b = sh_attach(1, "b");
	/* Half of the domain's part, which is half of the pool. */
	ck_assert_uint_eq(sh_domain(a).cache_floor, ALL / 4);
	cache(a, 32, 0);
	seq[0] = resident(b, 16 * SH_BT, 0, 5000);
	seq[1] = resident(b, 16 * SH_BT, 0, 6000);
	big = asked(b, 24 * SH_BT, 0, 7000);
	ck_assert_uint_eq(sh_state(b, big), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_domain(a).blocks[3], 32);
	/* One sequence is left: no other could give way for long. */
	ck_assert_int_eq(sh_close(b, big), 0);
	ck_assert_int_eq(sh_close(b, seq[0]), 0);
	big = asked(b, 48 * SH_BT, 0, 7000);
	sh_settle();
	ck_assert_uint_eq(sh_state(b, big), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_domain(a).blocks[3], 0);
	ck_assert_int_eq(sh_close(b, seq[1]), 0);
}
END_TEST

/* Cache above the floor is taken as ever. */
START_TEST(test_above_the_floor)
{
	u32 a, b;

	teardown();
	start(0, 50, CORE_OVERCOMMIT_GUESS, 0);
	a = sh_attach(1, "a");
	b = sh_attach(1, "b");
	cache(a, 32, 0);
	(void)resident(b, 16 * SH_BT, 0, 5000);
	(void)resident(b, 16 * SH_BT, 0, 6000);
	(void)asked(b, 16 * SH_BT, 0, 7000);
	ck_assert_uint_eq(sh_domain(a).blocks[3], ALL / 4);
	ck_assert_uint_eq(sh_domain(b).nr_running, 3);
	/* A domain without clients has no floor. */
	sh_die(a);
	sh_quiet(a);
	(void)asked(b, 16 * SH_BT, 0, 8000);
	ck_assert_uint_eq(sh_domain(b).nr_running, 4);
}
END_TEST

/*
 * A cache as large as the floor grows, in spans that stay: one of its other
 * spans may go now, and the sequence that waits for it is tried.
 */
START_TEST(test_cache_outgrows_the_floor)
{
	u64 kept[2], gone[2], want;
	u32 a, b, i;

	teardown();
	start(0, 50, CORE_OVERCOMMIT_GUESS, 0);
	a = sh_attach(1, "a");
	b = sh_attach(1, "b");
	cache(a, ALL / 4, 0);
	/* Two spans with one block each that stays in use. */
	for (i = 0; i < 2; i++) {
		gone[i] = resident(a, 3 * SH_BT, 0, 1000 + 500 * i);
		kept[i] = resident(a, SH_BT, 0, 3000 + 500 * i);
	}
	(void)resident(b, 20 * SH_BT, 0, 5000);
	(void)resident(b, 20 * SH_BT, 0, 6000);
	want = asked(b, 4 * SH_BT, 0, 7000);
	ck_assert_uint_eq(sh_state(b, want), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(a, gone[0]), 0);
	ck_assert_uint_eq(sh_domain(a).blocks[3], ALL / 4 + 3);
	ck_assert_uint_eq(sh_state(b, want), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(a, gone[1]), 0);
	ck_assert_uint_eq(sh_state(b, want), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_domain(a).blocks[3], ALL / 4 + 2);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(sh_close(a, kept[i]), 0);
}
END_TEST

/* ---- memory.min ---- */

static void set_min(u32 cl, u32 blocks)
{
	SH_CORE(ck_assert_int_eq(core_domain_set(sh.core, sh.now,
		sh.cl[cl].info.domain, CORE_LIMIT_MIN, blocks * SH_BLOCK), 0));
}

/*
 * The used memory of a domain exceeds its memory.min now, in a span that stays:
 * a span of its cache may go, and the sequence that waits for it is tried.
 */
START_TEST(test_use_outgrows_min)
{
	u32 a = sh_attach(1, "a"), b = sh_attach(1, "b");
	u64 seq, want;

	set_min(a, SH_PER);
	cache(a, SH_PER, 0);
	seq = resident(a, 3 * SH_BT, SH_BT, 1000);
	(void)resident(b, (ALL / 2 - SH_PER) * SH_BT, 0, 5000);
	(void)resident(b, (ALL / 2 - SH_PER) * SH_BT, 0, 6000);
	want = asked(b, SH_PER * SH_BT, 0, 7000);
	ck_assert_uint_eq(sh_state(b, want), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_begin(a, seq, 3 * SH_BT, 1), 0);
	ck_assert_uint_eq(sh_state(b, want), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_domain(a).blocks[3], 0);
}
END_TEST

/* The same for a family, which goes for a sequence within its own memory.min. */
START_TEST(test_use_outgrows_min_for_promised)
{
	u32 a = sh_attach(1, "a"), b = sh_attach(1, "b"), k = sh_attach(1, "k");
	struct kvmm_open_arg high = {
		.prompt_len = 3 * SH_BT, .max_tokens = SH_BT, .priority = 10,
	};
	u64 seq, victim, want;

	set_min(a, SH_PER);
	set_min(b, SH_PER);
	set_min(k, ALL - 2 * SH_PER);
	victim = resident(a, SH_PER * SH_BT, 0, 2000);
	ck_assert_int_eq(sh_open_as(a, &high, &seq), 0);
	ck_assert_int_eq(sh_match(a, seq, 3 * SH_BT, 1000), 0);
	sh_compute(a, seq, 0, 3 * SH_BT, 1000);
	(void)resident(k, (ALL - 2 * SH_PER) * SH_BT, 0, 5000);
	want = asked(b, SH_PER * SH_BT, 0, 7000);
	ck_assert_uint_eq(sh_state(b, want), KVMM_SEQ_WAITING);
	ck_assert_uint_eq(sh_state(a, victim), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_begin(a, seq, 3 * SH_BT, 1), 0);
	ck_assert_uint_eq(sh_state(a, victim), KVMM_SEQ_RECOMPUTE);
	ck_assert_uint_eq(sh_state(b, want), KVMM_SEQ_READY);
}
END_TEST

/* ---- commitments ---- */

START_TEST(test_committed)
{
	u32 cl = sh_attach(1, "a");
	u64 a, b, kid[2];

	ck_assert_uint_eq(sh_pool().commit_limit, ALL * SH_BLOCK);
	a = sh_ready(cl, 40, 24, 0);
	ck_assert_uint_eq(sh_pool().committed_as, 4 * SH_BLOCK);
	sh_compute(cl, a, 0, 40, 0);
	ck_assert_uint_eq(sh_pool().committed_as, 4 * SH_BLOCK);
	/* Shared blocks count once. */
	b = sh_ready(cl, 40, 40, 0);
	ck_assert_uint_eq(sh_status(cl, b)->cached_len, 32);
	ck_assert_uint_eq(sh_domain(cl).committed_as, 7);
	ck_assert_int_eq(sh_close(cl, b), 0);
	ck_assert_uint_eq(sh_domain(cl).committed_as, 4);
	ck_assert_int_eq(sh_fork(cl, a, 2, kid), 0);
	ck_assert_uint_eq(sh_domain(cl).committed_as, 6);
	ck_assert_int_eq(sh_close(cl, kid[0]), 0);
	ck_assert_int_eq(sh_close(cl, kid[1]), 0);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(sh_domain(cl).committed_as, 0);
}
END_TEST

/* Commitments stay within the limit, so growth never preempts a sequence. */
START_TEST(test_never_overcommit)
{
	struct kvmm_open_arg big = { .prompt_len = 1,
				     .max_tokens = 48 * SH_BT };
	u64 a, b, d;
	u32 cl, i;

	teardown();
	start(0, 0, CORE_OVERCOMMIT_NEVER, 75);
	cl = sh_attach(1, "a");
	ck_assert_uint_eq(sh_domain(cl).commit_limit, 48);
	ck_assert_int_eq(sh_open_as(cl, &big, &a), -E2BIG);
	a = resident(cl, 16, 31 * SH_BT, 0);
	b = asked(cl, 16, 16 * SH_BT, 1000);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_WAITING);
	d = sh_open(cl, 16, 15 * SH_BT);
	ck_assert_int_eq(sh_close(cl, b), 0);
	ck_assert_int_eq(sh_match(cl, d, 16, 2000), 0);
	ck_assert_uint_eq(sh_state(cl, d), KVMM_SEQ_READY);
	b = asked(cl, 16, 0, 3000);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_WAITING);
	for (i = 16; i < 32 * SH_BT; i += 16)
		sh_compute(cl, a, i, i + 16, 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(cl, a), 0);
	ck_assert_uint_eq(sh_state(cl, b), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_count(CORE_EV_preempt_mark), 0);
}
END_TEST

/* Another domain's commitments count for the node. */
START_TEST(test_never_overcommit_the_node)
{
	u32 a, b;
	u64 first, seq;

	teardown();
	start(0, 0, CORE_OVERCOMMIT_NEVER, 100);
	a = sh_attach(1, "a");
	b = sh_attach(1, "b");
	first = resident(a, 16, 31 * SH_BT, 0);
	seq = asked(b, 16, 32 * SH_BT, 1000);
	ck_assert_uint_eq(sh_state(b, seq), KVMM_SEQ_WAITING);
	ck_assert_int_eq(sh_close(a, first), 0);
	ck_assert_uint_eq(sh_state(b, seq), KVMM_SEQ_READY);
}
END_TEST

/* ---- tunables ---- */

START_TEST(test_tune)
{
	u32 cl = sh_attach(1, "a");

	ck_assert_int_eq(core_tune(sh.core, sh.now, CORE_NR_TUNABLES, 0), -EINVAL);
	ck_assert_int_eq(core_tune(sh.core, sh.now, CORE_TUNE_overcommit, 1), -EINVAL);
	ck_assert_int_eq(core_tune(sh.core, sh.now, CORE_TUNE_overcommit_ratio, 0), -EINVAL);
	ck_assert_int_eq(core_tune(sh.core, sh.now, CORE_TUNE_swappiness, 201), -EINVAL);
	ck_assert_int_eq(core_tune(sh.core, sh.now, CORE_TUNE_swappiness, 1ull << 32), -EINVAL);
	ck_assert_uint_eq(sh_domain(cl).cache_floor, 0);
	ck_assert_int_eq(core_tune(sh.core, sh.now, CORE_TUNE_cache_floor, 25), 0);
	ck_assert_uint_eq(sh_domain(cl).cache_floor, ALL / 4);
	ck_assert_uint_eq(core_get_config(sh.core)->cache_floor, 25);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core-wmark");
	TCase *tc = tcase_create("wmark");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit core");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_min);
	tcase_add_test(tc, test_min_of_a_family);
	tcase_add_test(tc, test_admission_leaves_min);
	tcase_add_test(tc, test_truncation_lets_in);
	tcase_add_test(tc, test_reclaimer);
	tcase_add_test(tc, test_reclaimer_sleeps);
	tcase_add_test(tc, test_reclaimer_is_turned_off);
	tcase_add_test(tc, test_floor);
	tcase_add_test(tc, test_above_the_floor);
	tcase_add_test(tc, test_cache_outgrows_the_floor);
	tcase_add_test(tc, test_use_outgrows_min);
	tcase_add_test(tc, test_use_outgrows_min_for_promised);
	tcase_add_test(tc, test_committed);
	tcase_add_test(tc, test_never_overcommit);
	tcase_add_test(tc, test_never_overcommit_the_node);
	tcase_add_test(tc, test_tune);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
