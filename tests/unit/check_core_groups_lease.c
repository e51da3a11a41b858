// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_groups_lease.c - layer groups: SEQ_LEASE
 */
#include "tests/unit/groups_look_scene.h"

/* Hits are multiples of 32 tokens; the window of the second group spans two blocks. */
static const struct shape shapes[] = { { 16, 0 }, { 32, 40 } };

static struct kvmm_lease_res got;

static void setup(void)
{
	look_start(64, 2, shapes);
	cache(96, SEED);
}

static void teardown(void)
{
	sh_stop();
}

static int lease_as(const struct kvmm_lease_arg *a)
{
	c->head->clean_after = 0;
	memcpy(sh.args, a, sizeof(*a));
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_LEASE, 1, 0, sizeof(*a)), 0);
	memcpy(&got, sh.results, sizeof(got));
	c->head->clean_after = ~0ull;
	sh_check();
	return got.status;
}

/* Look @nr tokens up, and make an argument for a lease of @len tokens. */
static struct kvmm_lease_arg arg_for(u32 nr, u32 len, u32 ms)
{
	struct kvmm_lease_arg a = { .len = len, .ms = ms };

	ck_assert_int_eq(look(0, nr, SEED), 0);
	ck_assert_uint_eq(res->hit, nr);
	memcpy(a.cookie, res->hit_cookie, sizeof(a.cookie));
	return a;
}

/* Lease the first @len tokens of the prompt. */
static int lease(u32 len)
{
	struct kvmm_lease_arg a = arg_for(len, len, 1000);

	return lease_as(&a);
}

static struct kv_seq *leased(void)
{
	return record(got.seq);
}

static void drop_cache(void)
{
	(void)!core_drop_caches(c, sh.now, 0, 1000);
	sh_check();
}

/* Take every host slot and area slot that can be had. */
static void take_all_slots(void)
{
	while (host_room(c, 0, host_free(c, 0) + 1))
		;
	sh_check();
}

/* ---- content that is held ---- */

/* Blocks that leases of 32, 64 and 96 tokens hold: in the second group the last window. */
static const struct {
	u32 first, nr[2];
} holds[] = { { 0, { 2, 1 } }, { 0, { 4, 2 } }, { 1, { 6, 3 } } };

START_TEST(test_held)
{
	u32 len = 32 * (u32)(_i + 1), nr = holds[_i].nr[0] + holds[_i].nr[1] - holds[_i].first;

	ck_assert_int_eq(lease(len), 0);
	ck_assert_uint_eq(got.held, len);
	ck_assert_uint_eq(got.kept, 0);
	ck_assert_int_eq(got.reason, 0);
	ck_assert_uint_eq(got.until, sh.now + 1000 * MS);
	ck_assert_uint_eq(sh_state(cl, got.seq), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(sh_status(cl, got.seq)->valid_len, len);
	tab_has(got.seq, 0, holds[_i].nr[0], 0);
	tab_has(got.seq, 1, holds[_i].nr[1], holds[_i].first);
	ck_assert_uint_eq(nr_copies, nr);
	ck_assert_uint_eq(domain()->leased, nr);
	ck_assert_uint_eq(shown(got.seq, 1, 0), KVMM_NO_INDEX);
	do_copies();
	drop_cache();
	take_all_slots();
	ck_assert_int_eq(look(0, 97, SEED), 0);
	found_is(len, len);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_HOST], len);
	ck_assert_int_eq(sh_close(cl, got.seq), 0);
	ck_assert_uint_eq(domain()->leased, 0);
	take_all_slots();
	ck_assert_int_eq(look(0, 97, SEED), 0);
	found_is(0, 0);
}
END_TEST

/* Content on all tiers is held where it is. */
START_TEST(test_all_tiers)
{
	to_area(1, 2);
	to_area(0, 5);
	to_host(0, 4, true);
	to_host(1, 1, false);
	ck_assert_int_eq(lease(96), 0);
	ck_assert_uint_eq(got.held, 96);
	ck_assert_uint_eq(domain()->leased, 8);
	do_copies();
	drop_cache();
	take_all_slots();
	while (area_reclaim(c, CORE_POOL_AREA, 0))
		;
	ck_assert_int_eq(look(0, 96, SEED), 0);
	found_is(96, 96);
}
END_TEST

/* A sequence that uses the blocks goes on with them. */
START_TEST(test_held_in_use)
{
	u64 seq = sh_ready(cl, 130, 0, SEED);

	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 96);
	ck_assert_int_eq(lease(96), 0);
	do_copies();
	sh_compute(cl, seq, 96, 130, SEED);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_int_eq(look(0, 129, SEED), 0);
	found_is(128, 128);
}
END_TEST

/* ---- sequences that begin with a lease ---- */

static u64 open_leased(u32 prompt)
{
	struct kvmm_open_arg a = { .prompt_len = prompt, .max_tokens = 40,
				   .lease = got.number };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	while (nr_copies)
		do_copies();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	return seq;
}

/* It has the tables of a hit, and computes on. */
START_TEST(test_open)
{
	struct picture a, b;
	u64 seq, hit;

	ck_assert_int_eq(lease(96), 0);
	do_copies();
	if (_i) {
		drop_cache();
		evict_all();
	}
	seq = open_leased(130);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 96);
	tab_has(seq, 0, 6, 0);
	tab_has(seq, 1, 3, 1);
	hit = sh_ready(cl, 130, 0, SEED);
	a = picture_of(seq);
	b = picture_of(hit);
	ck_assert_mem_eq(&a, &b, sizeof(a));
	ck_assert_uint_ne(a.hash[1][0], 0);
	sh_compute(cl, seq, 96, 130, SEED);
	/* Position 130 attends to 91 and after it. */
	tab_has(seq, 1, 5, 2);
	ck_assert_int_eq(sh_close(cl, hit), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_int_eq(look(0, 129, SEED), 0);
	found_is(128, 128);
}
END_TEST

/* Its client needs table pages for the tables of all groups. */
START_TEST(test_open_without_pages)
{
	struct kvmm_open_arg a = { .prompt_len = 96 };
	u64 seq;

	ck_assert_int_eq(lease(96), 0);
	do_copies();
	a.lease = got.number;
	sh_unchecked = true;
	c->clients[cl].nr_free_pages = 1 + (u32)_i;
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), _i ? 0 : -ENOSPC);
}
END_TEST

/* ---- not there ---- */

/* Blocks that were dropped since the lookup. */
static const struct {
	u32 g, idx;
	int err;
} gone[] = {
	{ 0, 5, -ENOENT }, { 0, 0, -ENOENT }, { 1, 1, -ENOENT }, { 1, 2, -ENOENT },
	{ 1, 0, 0 },
};

START_TEST(test_gone)
{
	struct kvmm_lease_arg a = arg_for(96, 96, 1000);

	evict(gone[_i].g, gone[_i].idx);
	ck_assert_int_eq(lease_as(&a), gone[_i].err);
	ck_assert_uint_eq(got.held, gone[_i].err ? 0 : 96);
	ck_assert_uint_eq(got.kept, 0);
	ck_assert_uint_eq(c->head->nr_leases, !gone[_i].err);
	ck_assert_uint_eq(c->clients[cl].nr_seqs, !gone[_i].err);
	ck_assert_uint_eq(sh_count(CORE_EV_lease_refused), 0);
}
END_TEST

START_TEST(test_wrong_length)
{
	struct kvmm_lease_arg a = arg_for(96, 80, 1000);

	ck_assert_int_eq(lease_as(&a), -EINVAL);
	a.len = 64;
	ck_assert_int_eq(lease_as(&a), -ENOENT);
	a.len = UINT32_MAX / 32 * 32;
	ck_assert_int_eq(lease_as(&a), -ENOENT);
	a.len = 96;
	a.salt = 1;
	ck_assert_int_eq(lease_as(&a), -ENOENT);
	a.salt = 0;
	ck_assert_int_eq(lease_as(&a), 0);
}
END_TEST

/* ---- less than all ---- */

/* Slots for leases, blocks that are dropped, and the lease. */
static const struct {
	u32 room, no_first, held;
	int err;
} rooms[] = {
	{ 8, 0, 96, 0 }, { 7, 0, 64, -EDQUOT }, { 6, 0, 64, -EDQUOT }, { 5, 0, 32, -EDQUOT },
	{ 3, 0, 32, -EDQUOT }, { 2, 0, 0, -EDQUOT },
	/* The window of the shorter ones is not there. */
	{ 7, 1, 0, -EDQUOT },
};

/* Of 128 slots per cent; all of a shorter hit is held, and the rest is kept. */
START_TEST(test_quota)
{
	struct kvmm_lease_arg a = arg_for(96, 96, 1000);
	u32 held = rooms[_i].held;

	sh_unchecked = true;
	host_part(c, 0)->max_blocks = rooms[_i].room;
	c->head->cfg.lease_percent = 100;
	part_at(c, part_index(c, 0, CORE_POOL_AREA))->used = 0;
	if (rooms[_i].no_first)
		evict(1, 0);
	ck_assert_int_eq(lease_as(&a), held ? 0 : rooms[_i].err);
	ck_assert_uint_eq(got.held, held);
	ck_assert_int_eq(got.reason, rooms[_i].err);
	ck_assert_uint_eq(got.kept, 96 - held);
	ck_assert_uint_eq(sh_count(CORE_EV_lease_refused), !held);
	ck_assert_uint_eq(domain()->leased, held == 96 ? 8 : held == 64 ? 6 : held ? 3 : 0);
}
END_TEST

/* Fewer slots are free than the lease needs. */
static const struct {
	u32 slots, held;
} few[] = { { 8, 96 }, { 7, 64 }, { 6, 64 }, { 5, 32 }, { 3, 32 }, { 2, 0 } };

START_TEST(test_no_slots)
{
	u32 i;

	sh_unchecked = true;	/* no entry has these slots */
	part_at(c, part_index(c, 0, CORE_POOL_AREA))->used = 0;
	for (i = 0; i < 64 - few[_i].slots; i++)
		ck_assert_uint_ne(slot_alloc_out(c, part_index(c, 0, CORE_POOL_HOST), 0),
				  CORE_NONE);
	c->head->cfg.lease_percent = 100;
	ck_assert_int_eq(lease(96), few[_i].held ? 0 : -ENOSPC);
	ck_assert_uint_eq(got.held, few[_i].held);
	ck_assert_int_eq(got.reason, few[_i].held == 96 ? 0 : -ENOSPC);
	ck_assert_uint_eq(got.kept, 96 - few[_i].held);
	ck_assert_uint_eq(c->head->nr_leases, few[_i].held != 0);
	ck_assert_uint_eq(c->clients[cl].nr_seqs, few[_i].held != 0);
}
END_TEST

/* A copy that cannot begin now: nothing is held, and the next try finds the others. */
START_TEST(test_not_now)
{
	struct kvmm_lease_arg a = arg_for(96, 96, 1000);

	sh_unchecked = true;
	c->blocks[blk[1][2]].nr_copy++;
	ck_assert_int_eq(lease_as(&a), -EAGAIN);
	ck_assert_uint_eq(got.held, 0);
	ck_assert_uint_eq(got.kept, 96);
	ck_assert_uint_eq(nr_copies, 7);
	ck_assert_uint_eq(domain()->leased, 0);
	ck_assert_uint_eq(c->clients[cl].nr_seqs, 0);
	c->blocks[blk[1][2]].nr_copy--;
	do_copies();
	sh_unchecked = false;
	ck_assert_int_eq(lease_as(&a), 0);
	ck_assert_uint_eq(got.held, 96);
	ck_assert_uint_eq(nr_copies, 1);
}
END_TEST

/* Leases leave table pages for the largest sequence in all groups. */
START_TEST(test_pages_left)
{
	sh_unchecked = true;
	/* Two pages for the lease, two for 109 blocks of group 0 and 19 of the window. */
	c->clients[cl].nr_free_pages = 4 - (u32)_i;
	ck_assert_int_eq(lease(96), _i ? -ENOSPC : 0);
	ck_assert_uint_eq(c->clients[cl].nr_free_pages, 2 + (u32)_i);
}
END_TEST

/* ---- moves ---- */

static int advise_lease(u32 advice, u64 value, u32 *tokens)
{
	struct kvmm_advise_arg *a = (void *)sh.args;
	const struct kvmm_seq_res *r = (const void *)sh.results;

	*a = (struct kvmm_advise_arg){ .seq = got.seq, .advice = advice, .value = value };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	*tokens = r->valid_len;
	return r->status;
}

/* PAGEOUT takes blocks of all groups from the device, WILLNEED brings them. */
START_TEST(test_move)
{
	struct core_lease_view v;
	u32 i, tokens, cached;

	ck_assert_int_eq(lease(96), 0);
	do_copies();
	cached = domain()->dev.nr[BLK_CACHED];
	ck_assert_int_eq(advise_lease(KVMM_ADV_PAGEOUT, 0, &tokens), 0);
	ck_assert_uint_eq(tokens, 96);
	ck_assert_uint_eq(domain()->dev.nr[BLK_CACHED], cached - 8);
	ck_assert_uint_eq(sh_count(CORE_EV_lease_demote), 8);
	ck_assert_int_eq(core_get_lease(c, seq_index(c, leased()), &v), 0);
	ck_assert_uint_eq(v.on[KVMM_TIER_HOST], 96);
	ck_assert_uint_eq(v.nr_blocks, 8);
	ck_assert_int_eq(advise_lease(KVMM_ADV_WILLNEED, 0, &tokens), 0);
	ck_assert_uint_eq(tokens, 96);
	for (i = 0; i < 20; i++) {
		sh_tick(10);
		do_copies();
	}
	ck_assert_uint_eq(sh_count(CORE_EV_lease_promote), 8);
	ck_assert_int_eq(core_get_lease(c, seq_index(c, leased()), &v), 0);
	ck_assert_uint_eq(v.on[KVMM_TIER_DEVICE], 96);
	ck_assert_uint_eq(v.promoted, 0);
	ck_assert_int_eq(advise_lease(KVMM_ADV_WILLNEED, 0, &tokens), 0);
	ck_assert_uint_eq(tokens, 0);
	(void)open_leased(97);
}
END_TEST

/* Tokens whose window alone is elsewhere move, too. */
START_TEST(test_window_moves)
{
	struct core_lease_view v;
	u32 tokens;

	ck_assert_int_eq(lease(96), 0);
	do_copies();
	index_evict(c, blk[1][2]);
	ck_assert_int_eq(core_get_lease(c, seq_index(c, leased()), &v), 0);
	ck_assert_uint_eq(v.on[KVMM_TIER_DEVICE], 64);
	ck_assert_uint_eq(v.on[KVMM_TIER_HOST], 32);
	ck_assert_int_eq(advise_lease(KVMM_ADV_WILLNEED, 0, &tokens), 0);
	ck_assert_uint_eq(tokens, 32);
	sh_tick(10);
	do_copies();
	ck_assert_uint_eq(sh_count(CORE_EV_lease_promote), 1);
}
END_TEST

/* A copy of a window that fails: its tokens are lost, and a sequence is computed again. */
START_TEST(test_lost)
{
	struct kvmm_open_arg a = { .prompt_len = 97 };
	struct core_lease_view v;
	u64 seq;
	u32 i;

	ck_assert_int_eq(lease(96), 0);
	for (i = 0; i < nr_copies; i++)
		SH_CORE(core_copy_done(c, sh.now, copies[i].id,
				       i == nr_copies - 1 ? -EIO : 0));
	nr_copies = 0;
	sh_settle();
	drop_cache();
	ck_assert_int_eq(core_get_lease(c, seq_index(c, leased()), &v), 0);
	ck_assert_uint_eq(v.lost, 32);
	ck_assert_uint_eq(v.tokens, 96);
	a.lease = got.number;
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	sh_settle();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
}
END_TEST

/* ---- the end ---- */

START_TEST(test_deadline)
{
	u32 tokens;

	ck_assert_int_eq(lease(96), 0);
	do_copies();
	ck_assert_int_eq(advise_lease(KVMM_ADV_KEEP_UNTIL, sh.now + 2000 * MS, &tokens), 0);
	sh_tick(1500);
	ck_assert_uint_eq(sh_state(cl, got.seq), KVMM_SEQ_SWAPPED);
	sh_tick(600);
	ck_assert_uint_eq(sh_state(cl, got.seq), KVMM_SEQ_CLOSED);
	ck_assert_uint_eq(domain()->leased, 0);
	ck_assert_uint_eq(domain()->nr_leases, 0);
}
END_TEST

/* DONTNEED takes the names of its blocks from the index when it ends, those of windows, too. */
START_TEST(test_dontneed)
{
	u32 tokens;

	ck_assert_int_eq(lease(96), 0);
	do_copies();
	evict_all();
	ck_assert_int_eq(look(0, 96, SEED), 0);
	found_is(96, 96);
	ck_assert_int_eq(advise_lease(KVMM_ADV_DONTNEED, 0, &tokens), 0);
	ck_assert_int_eq(sh_close(cl, got.seq), 0);
	ck_assert_int_eq(look(0, 96, SEED), 0);
	found_is(0, 0);
	ck_assert_uint_eq(domain()->nr_indexed, 0);
}
END_TEST

/* ---- adoption ---- */

/* The next daemon has the lease with all of its tables. */
START_TEST(test_adopt)
{
	u32 tokens;

	ck_assert_int_eq(lease(96), 0);
	do_copies();
	ck_assert_int_eq(advise_lease(KVMM_ADV_PAGEOUT, 0, &tokens), 0);
	ck_assert_int_eq(advise_lease(KVMM_ADV_WILLNEED, 0, &tokens), 0);
	sh_check();
	leases_adopt(c);
	sh_check();
	ck_assert_uint_eq(c->head->nr_leases, 1);
	(void)open_leased(97);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_groups_lease");
	TCase *tc = tcase_create("lease");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_held, 0, ARRAY_SIZE(holds));
	tcase_add_test(tc, test_all_tiers);
	tcase_add_test(tc, test_held_in_use);
	tcase_add_loop_test(tc, test_open, 0, 2);
	tcase_add_loop_test(tc, test_open_without_pages, 0, 2);
	tcase_add_loop_test(tc, test_gone, 0, ARRAY_SIZE(gone));
	tcase_add_test(tc, test_wrong_length);
	tcase_add_loop_test(tc, test_quota, 0, ARRAY_SIZE(rooms));
	tcase_add_loop_test(tc, test_no_slots, 0, ARRAY_SIZE(few));
	tcase_add_test(tc, test_not_now);
	tcase_add_loop_test(tc, test_pages_left, 0, 2);
	tcase_add_test(tc, test_move);
	tcase_add_test(tc, test_window_moves);
	tcase_add_test(tc, test_lost);
	tcase_add_test(tc, test_deadline);
	tcase_add_test(tc, test_dontneed);
	tcase_add_test(tc, test_adopt);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
