// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_lookup.c - SEQ_LOOKUP: the tiers that have the prefix of a prompt
 */
#include "tests/unit/lookup_scene.h"

/* ---- found content ---- */

/* Whole blocks up to the first that is not cached; the last may end the prompt. */
START_TEST(test_device)
{
	cache(4, 0);
	ck_assert_uint_eq(look(15, 0), 0);
	ck_assert_uint_eq(look(16, 0), 16);
	ck_assert_uint_eq(look(64, 0), 64);
	ck_assert_uint_eq(look(79, 0), 64);
	ck_assert_uint_eq(look(160, 0), 64);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE], 64);
	ck_assert_uint_eq(res->flags, 0);
	runs_are(1, (const u32[][2]){ { KVMM_TIER_DEVICE, 4 } });
	ck_assert_uint_eq(look(64, 16), 0);
	ck_assert_uint_eq(res->nr_runs, 0);
	ck_assert_uint_eq(look(0, 0), 0);
}
END_TEST

/* A block that a sequence maps is found like one that is only cached. */
START_TEST(test_mapped)
{
	u64 seq = sh_ready(cl, 40, 0, 0);

	ck_assert_uint_eq(look(40, 0), 0);
	sh_compute(cl, seq, 0, 40, 0);
	ck_assert_uint_eq(look(40, 0), 32);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE], 32);
}
END_TEST

START_TEST(test_tiers)
{
	cache(8, 0);
	index_evict(c, block_of(0, 7));
	(void)to_area(0, 6);
	(void)to_area(0, 5);
	(void)to_host(0, 4, true);
	(void)to_host(0, 3, true);
	(void)to_host(0, 2, true);
	ck_assert_uint_eq(look(128, 0), 112);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE], 32);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_HOST], 48);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_AREA], 32);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_MOVING], 0);
	runs_are(3, (const u32[][2]){ { KVMM_TIER_DEVICE, 2 },
		 { KVMM_TIER_HOST, 3 }, { KVMM_TIER_AREA, 2 } });
}
END_TEST

/* Content that a copy takes down, or up, or that is read. */
START_TEST(test_moving)
{
	u64 seq;
	u32 e;

	cache(3, 0);
	e = to_area(0, 2);
	(void)to_host(0, 1, false);
	ck_assert_uint_eq(look(48, 0), 48);
	runs_are(3, (const u32[][2]){ { KVMM_TIER_DEVICE, 1 },
		 { KVMM_TIER_MOVING, 1 }, { KVMM_TIER_AREA, 1 } });
	copies_done();
	ck_assert_uint_eq(look(32, 0), 32);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_HOST], 16);

	seq = sh_open(cl, 33, 0);
	ck_assert_int_eq(sh_match(cl, seq, 33, 0), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	ck_assert_uint_eq(look(32, 0), 32);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_MOVING], 16);
	copies_done();
	ck_assert_uint_eq(look(32, 0), 32);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE], 32);

	sh_unchecked = true;
	read_start(c, e);
	ck_assert_uint_eq(look(48, 0), 48);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_MOVING], 16);
}
END_TEST

/* A write that goes on does not hinder: the host pool has the content. */
START_TEST(test_written_down)
{
	u32 e;

	cache(1, 0);
	e = to_host(0, 0, true);
	ck_assert(entry_write(c, e));
	ck_assert_uint_eq(look(16, 0), 16);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_HOST], 16);
}
END_TEST

START_TEST(test_lost)
{
	u32 e;

	cache(3, 0);
	(void)to_host(0, 2, true);
	e = to_host(0, 1, true);
	ck_assert_uint_eq(look(48, 0), 48);
	sh_unchecked = true;
	c->entries_low[e].flags |= ENTF_LOST;
	ck_assert_uint_eq(look(48, 0), 16);
}
END_TEST

/* An area that does not answer has nothing, until it answers. */
START_TEST(test_stalled_area)
{
	u32 e;

	cache(3, 0);
	(void)to_area(0, 2);
	e = to_host(0, 1, true);
	ck_assert_uint_eq(look(48, 0), 48);
	ck_assert(entry_write(c, e));
	sh_tick(DEADLINE + 1);
	ck_assert_uint_ne(core_get_stalled(c), 0);
	ck_assert_uint_eq(look(48, 0), 32);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_HOST], 16);
	SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
	ck_assert_uint_eq(look(48, 0), 48);
}
END_TEST

START_TEST(test_lost_device)
{
	cache(3, 0);
	cache(2, 1000);
	(void)to_host(1000, 1, true);
	(void)to_host(1000, 0, true);
	ck_assert_uint_eq(look(48, 0), 48);
	SH_CORE(core_device_failed(c, sh.now, 0, CORE_DEVICE_LOST));
	sh_settle();
	ck_assert_uint_eq(look(48, 0), 0);
	ck_assert_uint_eq(look(32, 1000), 32);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_HOST], 32);
}
END_TEST

/* Nor has it a block that an open step maps, or that was being copied down. */
START_TEST(test_lost_device_in_use)
{
	u64 seq;

	cache(1, 1000);
	(void)to_host(1000, 0, false);
	seq = sh_ready(cl, 40, 16, 0);
	sh_compute(cl, seq, 0, 40, 0);
	ck_assert_int_eq(sh_begin(cl, seq, 40, 1), 0);
	ck_assert_uint_eq(look(40, 0), 32);
	ck_assert_uint_eq(look(16, 1000), 16);
	SH_CORE(core_device_failed(c, sh.now, 0, CORE_DEVICE_LOST));
	sh_settle();
	ck_assert_uint_eq(look(40, 0), 0);
	ck_assert_uint_eq(look(16, 1000), 0);
}
END_TEST

/* @_i 0: a block that leaves with its span; 1: of a span that another tenant claims. */
START_TEST(test_block_that_goes)
{
	u32 first;

	cache(2, 0);
	first = block_span(c, block_of(0, 1));
	ck_assert_uint_eq(look(32, 0), 32);
	sh_unchecked = true;
	if (_i) {
		c->spans[first].class = CORE_CLASS_ISOLATED;
		c->extents[first].want = 1;
	} else {
		c->head->zones[0].resizing = 1;
		c->head->zones[0].nr_online = first;
	}
	ck_assert_uint_lt(look(32, 0), 32);
}
END_TEST

/* Salts and domains separate; clients of a domain share. */
START_TEST(test_others)
{
	struct kvmm_lookup_arg a = { .nr_ids = 32 };
	u32 kin = sh_attach(1, "a"), other = sh_attach(1, "b"),
	    stranger = sh_attach(2, "a");

	cache_as(2, 0, 5);
	ck_assert_uint_eq(look(32, 0), 0);
	a.salt = 5;
	ck_assert_int_eq(look_as(cl, &a, 0), 0);
	ck_assert_uint_eq(res->found, 32);
	ck_assert_int_eq(look_as(kin, &a, 0), 0);
	ck_assert_uint_eq(res->found, 32);
	ck_assert_int_eq(look_as(other, &a, 0), 0);
	ck_assert_uint_eq(res->found, 0);
	ck_assert_int_eq(look_as(stranger, &a, 0), 0);
	ck_assert_uint_eq(res->found, 0);
}
END_TEST

/* ---- pieces ---- */

START_TEST(test_pieces)
{
	cache(6, 0);
	cache(1, 1000);
	ck_assert_uint_eq(look(32, 0), 32);
	ck_assert_uint_eq(look_on(32, 32, 0), 32);
	ck_assert_uint_eq(look_on(64, 64, 0), 32);
	ck_assert_uint_eq(look_on(96, 16, 0), 0);
	/* The first ids of another prompt are no end of this one. */
	ck_assert_uint_eq(look(32, 0), 32);
	ck_assert_uint_eq(look_on(32, 16, 1000 - 32), 0);
	/* Nothing found: the place is the same. */
	ck_assert_uint_eq(look_on(32, 16, 0), 16);
}
END_TEST

/* Entries of one request are independent. */
START_TEST(test_batch)
{
	struct kvmm_lookup_arg *a = (struct kvmm_lookup_arg *)sh.args;
	u32 *ids = (u32 *)(a + 3), i;

	cache(2, 0);
	memset(a, 0, 3 * sizeof(*a));
	a[0].nr_ids = 16;
	a[1].nr_ids = 8;
	a[2].nr_ids = 32;
	for (i = 0; i < 56; i++)
		ids[i] = i < 16 ? i : i < 24 ? 7 : i - 24;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_LOOKUP, 3, 0,
				   3 * (u32)sizeof(*a) + 4 * 56), 0);
	ck_assert_uint_eq(res[0].found, 16);
	ck_assert_int_eq(res[1].status, -EINVAL);
	ck_assert_uint_eq(res[1].found, 0);
	ck_assert_uint_eq(res[2].found, 32);
}
END_TEST

/* A cookie is of one prefix, one salt and one length. */
START_TEST(test_wrong_cookie)
{
	struct kvmm_lookup_arg a = { .start = 32, .nr_ids = 16 };
	u32 i;

	cache(4, 0);
	cache_as(4, 0, 9);
	ck_assert_uint_eq(look(32, 0), 32);
	memcpy(a.cookie, res->cookie, sizeof(a.cookie));
	ck_assert_int_eq(look_as(cl, &a, 32), 0);
	ck_assert_uint_eq(res->found, 16);
	for (i = 0; i < 128; i++) {
		a.cookie[i / 64] ^= 1ull << i % 64;
		ck_assert_int_eq(look_as(cl, &a, 32), 0);
		ck_assert_uint_eq(res->found, 0);
		a.cookie[i / 64] ^= 1ull << i % 64;
	}
	a.salt = 9;
	ck_assert_int_eq(look_as(cl, &a, 32), 0);
	ck_assert_uint_eq(res->found, 0);
	a.salt = 0;
	a.start = 48;
	ck_assert_int_eq(look_as(cl, &a, 32), 0);
	ck_assert_uint_eq(res->found, 0);
}
END_TEST

/* A client never sees the name of a block, nor the difference of two names. */
START_TEST(test_cookie_is_no_name)
{
	u64 cookie[2], root[2];
	const u64 *name;

	cache(2, 0);
	ck_assert_uint_eq(look(32, 0), 32);
	cookie[0] = res->cookie[0];
	cookie[1] = res->cookie[1];
	name = c->blocks[block_of(0, 1)].hash;
	index_root(c, &c->domains[0], 0, 0, root);
	ck_assert_uint_ne(cookie[0], name[0]);
	ck_assert_uint_ne(cookie[1], name[1]);
	ck_assert_uint_ne(cookie[0], name[0] ^ root[0] ^ 32);
	ck_assert_uint_ne(cookie[1], name[1] ^ root[1]);
}
END_TEST

/* The test vector of Speck128/256, and the way back. */
START_TEST(test_cipher)
{
	static const u64 key[4] = { 0x0706050403020100, 0x0f0e0d0c0b0a0908,
				    0x1716151413121110, 0x1f1e1d1c1b1a1918 };
	u64 x[2] = { 0x65736f6874206e49, 0x202e72656e6f6f70 };

	cookie_encipher(key, x);
	ck_assert_uint_eq(x[0], 0x4109010405c0f53e);
	ck_assert_uint_eq(x[1], 0x4eeeb48d9c188f43);
	cookie_decipher(key, x);
	ck_assert_uint_eq(x[0], 0x65736f6874206e49);
	ck_assert_uint_eq(x[1], 0x202e72656e6f6f70);
}
END_TEST

/* ---- bounds ---- */

/* An answer has eight runs; the next piece goes on at the border. */
START_TEST(test_many_runs)
{
	u32 i;

	cache(10, 0);
	for (i = 10; i--;)
		(void)(i % 2 ? to_area(0, i) : to_host(0, i, true));
	ck_assert_uint_eq(look(160, 0), 8 * SH_BT);
	ck_assert_uint_eq(res->flags, KVMM_LOOKUP_MORE);
	ck_assert_uint_eq(res->nr_runs, KVMM_LOOKUP_RUNS);
	ck_assert_uint_eq(look_on(128, 32, 0), 32);
	ck_assert_uint_eq(res->flags, 0);
	runs_are(2, (const u32[][2]){ { KVMM_TIER_HOST, 1 }, { KVMM_TIER_AREA, 1 } });
}
END_TEST

/* An event that has done a lot ends the answer, but not before the first block. */
START_TEST(test_work_is_bounded)
{
	u32 at;

	cache(8, 0);
	ck_assert_uint_eq(look(128, 0), 128);
	ck_assert_uint_eq(res->flags, 0);
	c->head->cfg.event_work = 50;
	ck_assert_uint_eq(look(128, 0), 48);
	ck_assert_uint_eq(res->flags, KVMM_LOOKUP_MORE);
	c->head->cfg.event_work = 1;
	for (at = 48; at < 128; at += 16) {
		ck_assert_uint_eq(look_on(at, 128 - at, 0), 16);
		ck_assert_uint_eq(res->flags, at < 112 ? KVMM_LOOKUP_MORE : 0);
	}
	c->head->cfg.event_work = ALL_WORK;
}
END_TEST

static const struct {
	const char		*what;
	struct kvmm_lookup_arg	a;
} bad[] = {
	{ "flags", { .nr_ids = 16, .flags = 2 } },
	{ "resv0", { .nr_ids = 16, .resv0 = 1 } },
	{ "resv[0]", { .nr_ids = 16, .resv = { 1 } } },
	{ "resv[1]", { .nr_ids = 16, .resv = { 0, 1 } } },
	{ "part of a block, not the last", { .nr_ids = 17 } },
	{ "start inside a block", { .start = 8, .nr_ids = 16, .cookie = { 1 } } },
	{ "start without a cookie", { .start = 16, .nr_ids = 16 } },
	{ "a cookie at the start", { .nr_ids = 16, .cookie = { 0, 1 } } },
	{ "start overflows", { .start = 0xfffffff0, .nr_ids = 16, .cookie = { 1 } } },
};

START_TEST(test_refused)
{
	u64 before = sh_count(CORE_EV_lookup);

	cache(2, 0);
	ck_assert_msg(look_as(cl, &bad[_i].a, 0) == -EINVAL, "%s: %d", bad[_i].what,
		      res->status);
	ck_assert_uint_eq(res->found, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_lookup), before);
}
END_TEST

/* A match at once finds all of it, and reads the blocks of the area. */
START_TEST(test_match_after_it)
{
	u64 seq;

	cache(6, 0);
	(void)to_area(0, 5);
	(void)to_host(0, 4, true);
	(void)to_host(0, 3, true);
	ck_assert_uint_eq(look(97, 0), 96);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE] +
			  res->tokens[KVMM_TIER_HOST], 80);
	seq = sh_open(cl, 97, 0);
	ck_assert_int_eq(sh_match(cl, seq, 97, 0), 0);
	copies_done();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RESTORING);
	while (nr_ios)
		SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
	copies_done();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, 96);
}
END_TEST

START_TEST(test_counters)
{
	u64 before;

	cache(4, 0);
	(void)to_area(0, 3);
	(void)to_host(0, 2, true);
	(void)to_host(0, 1, false);
	before = sh_count(CORE_EV_prefix_lookup);
	ck_assert_uint_eq(look(70, 0), 64);
	ck_assert_uint_eq(look(32, 3000), 0);
	ck_assert_uint_eq(sh_count(CORE_EV_lookup), 2);
	ck_assert_uint_eq(sh_count(CORE_EV_lookup_tokens), 102);
	ck_assert_uint_eq(sh_count(CORE_EV_lookup_device_tokens), 16);
	ck_assert_uint_eq(sh_count(CORE_EV_lookup_host_tokens), 16);
	ck_assert_uint_eq(sh_count(CORE_EV_lookup_area_tokens), 16);
	ck_assert_uint_eq(sh_count(CORE_EV_lookup_moving_tokens), 16);
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_lookup), before);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lookup");
	TCase *tc = tcase_create("lookup");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_device);
	tcase_add_test(tc, test_mapped);
	tcase_add_test(tc, test_tiers);
	tcase_add_test(tc, test_moving);
	tcase_add_test(tc, test_written_down);
	tcase_add_test(tc, test_lost);
	tcase_add_test(tc, test_stalled_area);
	tcase_add_test(tc, test_lost_device);
	tcase_add_test(tc, test_lost_device_in_use);
	tcase_add_loop_test(tc, test_block_that_goes, 0, 2);
	tcase_add_test(tc, test_others);
	tcase_add_test(tc, test_pieces);
	tcase_add_test(tc, test_batch);
	tcase_add_test(tc, test_wrong_cookie);
	tcase_add_test(tc, test_cookie_is_no_name);
	tcase_add_test(tc, test_cipher);
	tcase_add_test(tc, test_many_runs);
	tcase_add_test(tc, test_work_is_bounded);
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_SIZE(bad));
	tcase_add_test(tc, test_match_after_it);
	tcase_add_test(tc, test_counters);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
