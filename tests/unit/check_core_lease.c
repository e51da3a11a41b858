// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_lease.c - SEQ_LEASE: content that was looked up stays for a while
 */
#include "tests/unit/lookup_scene.h"

static struct kvmm_lease_res got;

/* Lease with @a.  Return: the entry's status; @got: its answer. */
static int lease_as(u32 client, const struct kvmm_lease_arg *a)
{
	memcpy(sh.args, a, sizeof(*a));
	ck_assert_int_eq(sh_submit(client, KVMM_OP_SEQ_LEASE, 1, 0, sizeof(*a)), 0);
	memcpy(&got, sh.results, sizeof(got));
	sh_check();
	return got.status;
}

/* An argument for @nr tokens of prompt @seed, found by a lookup. */
static struct kvmm_lease_arg arg_for(u32 nr, u32 seed, u32 ms)
{
	struct kvmm_lease_arg a = { .len = nr, .ms = ms };

	ck_assert_uint_eq(look(nr, seed), nr);
	a.cookie[0] = res->cookie[0];
	a.cookie[1] = res->cookie[1];
	c->head->clean_after = 0;
	return a;
}

/* Lease @nr tokens of prompt @seed. */
static int lease(u32 nr, u32 seed, u32 ms)
{
	struct kvmm_lease_arg a = arg_for(nr, seed, ms);
	int err = lease_as(cl, &a);

	c->head->clean_after = ~0ull;
	return err;
}

static int advise(u64 seq, u32 advice, u64 value, u32 *tokens)
{
	struct kvmm_advise_arg *a = (void *)sh.args;
	const struct kvmm_seq_res *r = (const void *)sh.results;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice, .value = value };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	if (tokens)
		*tokens = r->valid_len;
	return r->status;
}

/* Open a sequence of @client with lease @number. */
static int open_from(u32 client, u64 number, u32 prompt, u64 *seq)
{
	struct kvmm_open_arg a = { .prompt_len = prompt, .max_tokens = 4,
				   .lease = number };

	return sh_open_as(client, &a, seq);
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

/* A lease of blocks that only the device has copies them, and then they stay. */
START_TEST(test_held)
{
	cache(4, 0);
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	ck_assert_uint_eq(got.held, 64);
	ck_assert_uint_eq(got.kept, 0);
	ck_assert_int_eq(got.reason, 0);
	ck_assert_uint_eq(got.until, sh.now + 1000 * MS);
	ck_assert_uint_eq(sh_state(cl, got.seq), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(sh_status(cl, got.seq)->valid_len, 64);
	ck_assert_uint_eq(nr_copies, 4);
	ck_assert_uint_eq(c->domains[0].leased, 4);
	copies_done();
	drop_cache();
	take_all_slots();
	ck_assert_uint_eq(look(64, 0), 64);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_HOST], 64);
}
END_TEST

/* Content on all tiers is held where it is; without the lease it goes. */
START_TEST(test_all_tiers)
{
	cache(6, 0);
	(void)to_area(0, 5);
	(void)to_area(0, 4);
	(void)to_host(0, 3, true);
	(void)to_host(0, 2, false);
	if (_i)
		ck_assert_int_eq(lease(96, 0, 1000), 0);
	ck_assert_uint_eq(got.held, _i ? 96 : 0);
	copies_done();
	drop_cache();
	take_all_slots();
	while (area_reclaim(c, CORE_POOL_AREA, 0))
		;
	ck_assert_uint_eq(look(96, 0), _i ? 96 : 0);
}
END_TEST

/* A sequence that uses the blocks goes on with them. */
START_TEST(test_held_in_use)
{
	u64 seq = sh_ready(cl, 40, 16, 0);
	struct kvmm_lease_arg a;

	sh_compute(cl, seq, 0, 40, 0);
	ck_assert_int_eq(sh_begin(cl, seq, 40, 1), 0);
	a = arg_for(32, 0, 1000);
	ck_assert_int_eq(lease_as(cl, &a), 0);
	ck_assert_uint_eq(got.held, 32);
	copies_done();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}
END_TEST

/* Nor does its advice take the names of leased blocks from the index. */
START_TEST(test_not_its_own)
{
	u64 seq = sh_ready(cl, 40, 16, 0);
	struct kvmm_lease_arg a;

	sh_compute(cl, seq, 0, 40, 0);
	a = arg_for(32, 0, 1000);
	ck_assert_int_eq(lease_as(cl, &a), 0);
	copies_done();
	ck_assert_int_eq(advise(seq, KVMM_ADV_DONTNEED, 0, NULL), 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	ck_assert_uint_eq(look(32, 0), 32);
}
END_TEST

/* The lease ends before a block that cannot get a slot; the blocks after it are kept. */
START_TEST(test_no_room)
{
	u32 i;

	sh_unchecked = true;	/* no entry has these slots */
	for (i = 0; i < 14; i++)
		ck_assert_uint_ne(slot_alloc_out(c, part_index(c, 0, CORE_POOL_HOST), 0),
				  CORE_NONE);
	cache(4, 0);
	c->head->cfg.lease_percent = 100;
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	ck_assert_uint_eq(got.held, 32);
	ck_assert_int_eq(got.reason, -ENOSPC);
	ck_assert_uint_eq(got.kept, 32);
	ck_assert_uint_eq(c->lrus[0].nr_kept, 2);
}
END_TEST

/* Blocks that have a copy and are beyond the quota are kept, too. */
START_TEST(test_keep_clean)
{
	u64 first;

	c->head->cfg.lease_percent = 6;	/* of 32 slots: one */
	cache(4, 0);
	(void)entry_out(c, block_of(0, 1), 0);
	copies_done();
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	first = got.seq;
	ck_assert_uint_eq(got.held, 16);
	ck_assert_int_eq(got.reason, -EDQUOT);
	ck_assert_uint_eq(got.kept, 48);
	ck_assert_uint_eq(c->lrus[0].nr_kept, 3);
	ck_assert_int_eq(sh_close(cl, first), 0);
}
END_TEST

/* Without a lower tier nothing is held, but all is kept as far as the share goes. */
START_TEST(test_no_lower_tier)
{
	host_part(c, 0)->used = 0;
	sh_unchecked = true;
	cache(4, 0);
	ck_assert_int_eq(lease(64, 0, 1000), -ENOSPC);
	ck_assert_uint_eq(got.held, 0);
	ck_assert_uint_eq(got.kept, 64);
	ck_assert_uint_eq(got.number, 0);
	ck_assert_uint_eq(c->head->nr_leases, 0);
	ck_assert_uint_eq(c->clients[cl].nr_seqs, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_lease_refused), 1);
}
END_TEST

/* All leases of a domain together hold a part of the slots; then -EDQUOT. */
START_TEST(test_quota)
{
	u64 first;

	c->head->cfg.lease_percent = 25;	/* of 32 slots */
	cache(12, 0);
	ck_assert_int_eq(lease(80, 0, 1000), 0);
	ck_assert_uint_eq(got.held, 80);
	first = got.seq;
	ck_assert_int_eq(lease(192, 0, 1000), 0);
	ck_assert_uint_eq(got.held, 48);
	ck_assert_int_eq(got.reason, -EDQUOT);
	ck_assert_int_eq(lease(16, 0, 1000), -EDQUOT);
	ck_assert_uint_eq(got.held, 0);
	ck_assert_int_eq(sh_close(cl, first), 0);
	ck_assert_int_eq(lease(16, 0, 1000), 0);
	ck_assert_uint_eq(got.held, 16);
}
END_TEST

/* Tenants share the slots for leases equally, also one that has no lease. */
START_TEST(test_quota_of_tenants)
{
	cache(12, 0);
	(void)sh_attach(2, "a");
	ck_assert_int_eq(lease(192, 0, 1000), 0);
	ck_assert_uint_eq(got.held, 128);	/* half of half of 32 slots */
	ck_assert_int_eq(got.reason, -EDQUOT);
}
END_TEST

/* Domains of a tenant share its part. */
START_TEST(test_quota_of_domains)
{
	u32 other = sh_attach(1, "b");

	sh_warm(other);
	drop_cache();
	cache(12, 0);
	ck_assert_int_eq(lease(192, 0, 1000), 0);
	ck_assert_uint_eq(got.held, 192);
	cl = other;
	cache(6, 0);
	ck_assert_int_eq(lease(96, 0, 1000), 0);
	ck_assert_uint_eq(got.held, 64);
}
END_TEST

/* Sequences and leases share the client's records. */
START_TEST(test_no_sequence_left)
{
	u32 i;

	cache(1, 0);
	for (i = 0; i < c->clients[cl].max_seqs; i++)
		(void)sh_open(cl, 16, 0);
	ck_assert_int_eq(lease(16, 0, 1000), -ENOSPC);
	ck_assert_uint_eq(got.kept, 0);
}
END_TEST

/* Leases leave table pages for the client's largest sequence. */
START_TEST(test_pages_left)
{
	cache(1, 0);
	sh_unchecked = true;
	c->clients[cl].nr_free_pages = 2;
	ck_assert_int_eq(lease(16, 0, 1000), 0);
	ck_assert_uint_eq(c->clients[cl].nr_free_pages, 1);
	ck_assert_int_eq(lease(16, 0, 1000), -ENOSPC);
	ck_assert_uint_eq(c->clients[cl].nr_free_pages, 1);
}
END_TEST

/* ---- the deadline ---- */

/* Leases end at their deadline in any order of making, and not before. */
START_TEST(test_deadline)
{
	static const u32 ms[] = { 500, 100, 900, 300, 700, 200, 800 };
	u64 seq[ARRAY_SIZE(ms)], start = sh.now;
	u32 i, t;

	cache(2, 0);
	for (i = 0; i < ARRAY_SIZE(ms); i++) {
		ck_assert_int_eq(lease(16, 0, ms[i]), 0);
		seq[i] = got.seq;
	}
	copies_done();
	for (t = 50; t < 1000; t += 50) {
		sh_tick(50);
		for (i = 0; i < ARRAY_SIZE(ms); i++)
			ck_assert_uint_eq(sh_state(cl, seq[i]),
					  sh.now < start + ms[i] * MS ?
					  KVMM_SEQ_SWAPPED : KVMM_SEQ_CLOSED);
	}
	ck_assert_uint_eq(c->head->nr_leases, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_lease_expired), ARRAY_SIZE(ms));
	ck_assert_uint_eq(c->domains[0].leased, 0);
	ck_assert_int_eq(sh_close(cl, seq[0]), -ENOENT);
}
END_TEST

START_TEST(test_renew)
{
	u64 end, seq, short_one;

	cache(2, 0);
	ck_assert_int_eq(lease(32, 0, 100), 0);
	seq = got.seq;
	ck_assert_int_eq(lease(16, 0, 200), 0);
	short_one = got.seq;
	copies_done();
	end = sh.now + 1000 * MS;
	ck_assert_int_eq(advise(seq, KVMM_ADV_KEEP_UNTIL, end, NULL), 0);
	ck_assert_int_eq(advise(seq, KVMM_ADV_KEEP_UNTIL, sh.now, NULL), -EINVAL);
	ck_assert_int_eq(advise(seq, KVMM_ADV_KEEP_UNTIL, ~0ull, NULL), -ERANGE);
	ck_assert_int_eq(advise(seq, KVMM_ADV_KEEP_UNTIL,
				sh.now + 600001 * MS, NULL), -ERANGE);
	sh_tick(300);
	ck_assert_uint_eq(sh_state(cl, short_one), KVMM_SEQ_CLOSED);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	sh_tick(701);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_CLOSED);
}
END_TEST

/* ---- hand-over ---- */

/* Another client of the domain opens a sequence with the number, and has the tokens. */
START_TEST(test_hand_over)
{
	u32 kin = sh_attach(1, "a");
	u64 seq;

	cache(4, 0);
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	copies_done();
	drop_cache();
	sh_warm(kin);
	ck_assert_int_eq(open_from(kin, got.number, 70, &seq), 0);
	sh_settle();
	if (_i)		/* its lease ends meanwhile */
		ck_assert_int_eq(sh_close(cl, got.seq), 0);
	copies_done();
	ck_assert_uint_eq(sh_state(kin, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(kin, seq)->valid_len, 64);
	sh_compute(kin, seq, 64, 70, 0);
	ck_assert_uint_eq(sh_count(CORE_EV_lease_open), 1);
	ck_assert_int_eq(sh_close(kin, seq), 0);
}
END_TEST

/* Its name goes on: what it computes is found after the leased prefix. */
START_TEST(test_hand_over_goes_on)
{
	u32 kin = sh_attach(1, "a");
	u64 seq;

	sh_warm(kin);
	cache_as(2, 0, 7);
	ck_assert_int_eq(look_as(cl, &(struct kvmm_lookup_arg){ .salt = 7, .nr_ids = 32 },
				 0), 0);
	c->head->clean_after = 0;
	ck_assert_int_eq(lease_as(cl, &(struct kvmm_lease_arg){ .salt = 7, .len = 32,
		.ms = 100, .cookie = { res->cookie[0], res->cookie[1] } }), 0);
	copies_done();
	ck_assert_int_eq(open_from(kin, got.number, 48, &seq), 0);
	sh_settle();
	copies_done();
	ck_assert_uint_eq(sh_state(kin, seq), KVMM_SEQ_READY);
	sh_compute(kin, seq, 32, 48, 0);
	ck_assert_int_eq(sh_close(kin, seq), 0);
	ck_assert_int_eq(look_as(cl, &(struct kvmm_lookup_arg){ .salt = 7, .nr_ids = 48 },
				 0), 0);
	ck_assert_uint_eq(res->found, 48);
}
END_TEST

START_TEST(test_strangers)
{
	u32 other = sh_attach(1, "b"), stranger = sh_attach(2, "a");
	u64 seq, number;

	cache(4, 0);
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	number = got.number;
	ck_assert_int_eq(open_from(other, number, 70, &seq), -ENOENT);
	ck_assert_int_eq(open_from(stranger, number, 70, &seq), -ENOENT);
	ck_assert_int_eq(open_from(cl, number + 1, 70, &seq), -ENOENT);
	ck_assert_int_eq(open_from(cl, number + BIT_ULL(32), 70, &seq), -ENOENT);
	ck_assert_int_eq(open_from(cl, number | 0xffffffff, 70, &seq), -ENOENT);
	ck_assert_int_eq(open_from(cl, number, 63, &seq), -EINVAL);
	ck_assert_int_eq(open_from(cl, number, 64, &seq), 0);
	ck_assert_int_eq(sh_close(cl, got.seq), 0);
	ck_assert_int_eq(open_from(cl, number, 64, &seq), -ENOENT);
}
END_TEST

/* A sequence that was opened, and not leased, has no number. */
START_TEST(test_sequence_is_no_lease)
{
	u64 seq = sh_ready(cl, 40, 0, 0), none;

	ck_assert_int_eq(open_from(cl, seq, 64, &none), -ENOENT);
}
END_TEST

/* ---- the end of the client ---- */

START_TEST(test_death)
{
	u32 kin = sh_attach(1, "a");
	u64 seq;

	sh_warm(kin);
	cache(4, 0);
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	ck_assert_int_eq(open_from(kin, got.number, 70, &seq), 0);
	copies_done();
	sh_die(cl);
	sh_quiet(cl);
	ck_assert_uint_eq(c->head->nr_leases, 0);
	ck_assert_uint_eq(c->domains[0].leased, 0);
	copies_done();
	ck_assert_uint_eq(sh_state(kin, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(kin, seq)->valid_len, 64);
}
END_TEST

START_TEST(test_lost_device)
{
	cache(2, 0);
	ck_assert_int_eq(lease(32, 0, 1000), 0);
	copies_done();
	SH_CORE(core_device_failed(c, sh.now, 0, CORE_DEVICE_LOST));
	sh_settle();
	ck_assert_uint_eq(sh_state(cl, got.seq), KVMM_SEQ_FAILED);
	ck_assert_uint_eq(c->head->nr_leases, 0);
	ck_assert_int_eq(lease(32, 0, 1000), -ENODEV);
}
END_TEST

/* A copy fails: a sequence that is opened with the lease must compute. */
START_TEST(test_copy_fails)
{
	u64 seq;

	cache(2, 0);
	ck_assert_int_eq(lease(32, 0, 1000), 0);
	SH_CORE(core_copy_done(c, sh.now, copies[--nr_copies].id, -EIO));
	sh_settle();
	copies_done();
	ck_assert_int_eq(open_from(cl, got.number, 40, &seq), 0);
	sh_settle();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_RECOMPUTE);
	ck_assert_int_eq(sh_match(cl, seq, 40, 0), 0);
	ck_assert_uint_ge(sh_status(cl, seq)->valid_len, 16);
}
END_TEST

/* ---- advice ---- */

START_TEST(test_page_out)
{
	u32 tokens;

	cache(4, 0);
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	copies_done();
	ck_assert_uint_eq(look(64, 0), 64);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE], 64);
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_PAGEOUT, 0, &tokens), 0);
	ck_assert_uint_eq(tokens, 64);
	sh_check();
	ck_assert_uint_eq(look(64, 0), 64);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_HOST], 64);
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_PAGEOUT, 0, &tokens), 0);
	ck_assert_uint_eq(tokens, 0);
}
END_TEST

/* Blocks of a longer prompt, and those that a sequence uses, stay. */
START_TEST(test_page_out_leaves_others)
{
	u32 tokens;
	u64 seq;

	cache(4, 0);
	ck_assert_int_eq(lease(48, 0, 1000), 0);
	copies_done();
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_PAGEOUT, 0, &tokens), 0);
	ck_assert_uint_eq(tokens, 0);
	index_evict(c, block_of(0, 3));
	seq = sh_ready(cl, 17, 0, 0);
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_PAGEOUT, 0, &tokens), 0);
	ck_assert_uint_eq(tokens, 32);
	sh_check();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
}
END_TEST

/* @_i: content in the area, too. */
START_TEST(test_promote)
{
	u32 tokens;

	cache(4, 0);
	if (_i) {
		(void)to_area(0, 3);
		(void)to_area(0, 2);
	}
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	copies_done();
	drop_cache();
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_WILLNEED, 0, &tokens), 0);
	ck_assert_uint_eq(tokens, 64);
	sh_tick(1);
	while (nr_ios) {
		SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
		sh_settle();
	}
	copies_done();
	sh_tick(1);
	ck_assert_uint_eq(look(64, 0), 64);
	ck_assert_uint_eq(res->tokens[KVMM_TIER_DEVICE], 64);
	ck_assert_uint_eq(sh_count(CORE_EV_lease_promote), 4);
	ck_assert_uint_eq(c->head->promote_head, CORE_NONE);
}
END_TEST

/* Promotion takes nothing from a sequence that waits. */
START_TEST(test_promote_waits)
{
	u64 big, other;

	cache(4, 0);
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	copies_done();
	drop_cache();
	big = sh_ready(cl, POOL * SH_BT - 40, 16, 5000);
	other = sh_open(cl, 100, 0);
	ck_assert_int_eq(sh_match(cl, other, 100, 9000), 0);
	ck_assert_uint_eq(sh_state(cl, other), KVMM_SEQ_WAITING);
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_WILLNEED, 0, NULL), 0);
	sh_tick(1);
	ck_assert_uint_eq(sh_count(CORE_EV_lease_promote), 0);
	ck_assert_uint_ne(c->head->promote_head, CORE_NONE);
	ck_assert_int_eq(sh_close(cl, other), 0);
	ck_assert_int_eq(sh_close(cl, big), 0);
	sh_tick(1);
	ck_assert_uint_eq(sh_count(CORE_EV_lease_promote), 4);
}
END_TEST

/* Nor unused extents while a sequence of another domain waits for room. */
START_TEST(test_promote_takes_no_extent)
{
	u32 other = sh.cl[sh_attach(1, "b")].info.domain, e;

	cache(4, 0);
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	copies_done();
	drop_cache();
	for (e = 0; e < core_sizes(c)->nr_extents; e++)
		if (c->spans[e].nr_extents)
			SH_CORE(span_release(c, e));
	ck_assert_uint_eq(c->domains[0].dev.nr_spans, 0);
	sh_unchecked = true;	/* no sequence waits for the block below */
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_WILLNEED, 0, NULL), 0);
	c->domains[other].stalled = 1;
	c->domains[other].nr_waiting = 1;
	SH_CORE(leases_background(c));
	ck_assert_uint_eq(c->domains[0].dev.nr_spans + c->domains[0].dev.pending_spans, 0);
	c->domains[other].nr_waiting = 0;
	SH_CORE(leases_background(c));
	ck_assert_uint_gt(c->domains[0].dev.nr_spans + c->domains[0].dev.pending_spans, 0);
}
END_TEST

/* PAGEOUT and the end of the lease stop a promotion. */
START_TEST(test_promote_stops)
{
	cache(4, 0);
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	copies_done();
	drop_cache();
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_WILLNEED, 0, NULL), 0);
	if (_i)
		ck_assert_int_eq(advise(got.seq, KVMM_ADV_PAGEOUT, 0, NULL), 0);
	else
		ck_assert_int_eq(sh_close(cl, got.seq), 0);
	ck_assert_uint_eq(c->head->promote_head, CORE_NONE);
	sh_tick(1);
	ck_assert_uint_eq(sh_count(CORE_EV_lease_promote), 0);
}
END_TEST

START_TEST(test_dont_need)
{
	cache(2, 0);
	ck_assert_int_eq(lease(32, 0, 1000), 0);
	copies_done();
	drop_cache();
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_DONTNEED, 0, NULL), 0);
	ck_assert_uint_eq(look(32, 0), 32);
	ck_assert_int_eq(sh_close(cl, got.seq), 0);
	ck_assert_uint_eq(look(32, 0), 0);
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_DONTNEED, 0, NULL), -ENOENT);
}
END_TEST

/* ---- bad input ---- */

static const struct {
	const char	*what;
	struct kvmm_lease_arg add;
	int		error;
} bad[] = {
	{ "flags", { .flags = 1 }, -EINVAL },
	{ "resv0", { .resv0 = 1 }, -EINVAL },
	{ "a space in the label", { .label = "a b" }, -EINVAL },
	{ "a label of more than ASCII", { .label = "\303\244" }, -EINVAL },
	{ "a label with a gap", { .label = "a\0b" }, -EINVAL },
	{ "no length", { .len = -64 }, -EINVAL },
	{ "a part of a block", { .len = -1 }, -EINVAL },
	{ "no duration", { .ms = -1000 }, -EINVAL },
	{ "too long", { .ms = 599001 }, -ERANGE },
	{ "for ever", { .ms = -1001 }, -ERANGE },
	{ "a shorter length", { .len = -16 }, -ENOENT },
	{ "a longer length", { .len = 16 }, -ENOENT },
	{ "a very long length", { .len = 0xfffff000 }, -ENOENT },
	{ "another salt", { .salt = 1 }, -ENOENT },
	{ "another cookie", { .cookie = { 1 } }, -ENOENT },
};

START_TEST(test_bad)
{
	struct kvmm_lease_arg a;

	cache(8, 0);
	a = arg_for(64, 0, 1000);
	a.flags += bad[_i].add.flags;
	a.resv0 += bad[_i].add.resv0;
	memcpy(a.label, bad[_i].add.label, sizeof(a.label));
	a.len += bad[_i].add.len;
	a.ms += bad[_i].add.ms;
	a.salt += bad[_i].add.salt;
	a.cookie[0] += bad[_i].add.cookie[0];
	ck_assert_msg(lease_as(cl, &a) == bad[_i].error, "%s: %d", bad[_i].what,
		      got.status);
	ck_assert_uint_eq(got.held, 0);
	ck_assert_uint_eq(got.seq, 0);
	ck_assert_uint_eq(c->head->nr_leases, 0);
	ck_assert_uint_eq(nr_copies, 0);
}
END_TEST

/* The longest time is one that an operator sets. */
START_TEST(test_longest)
{
	cache(2, 0);
	ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_lease_ms, 50), 0);
	ck_assert_int_eq(lease(32, 0, 51), -ERANGE);
	ck_assert_uint_eq(got.until, sh.now + 50 * MS);
	ck_assert_int_eq(lease(32, 0, 50), 0);
	ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_lease_percent, 0), -EINVAL);
	ck_assert_int_eq(core_tune(c, sh.now, CORE_TUNE_lease_percent, 101), -EINVAL);
}
END_TEST

/* Verbs for running sequences refuse a lease, and change nothing. */
START_TEST(test_other_verbs)
{
	struct kvmm_len_arg len;
	struct kvmm_fork_arg *f = (void *)sh.args;

	cache(4, 0);
	ck_assert_int_eq(lease(64, 0, 1000), 0);
	copies_done();
	ck_assert_int_eq(sh_match(cl, got.seq, 64, 0), -ESTALE);
	ck_assert_int_ne(sh_begin(cl, got.seq, 64, 1), 0);
	*f = (struct kvmm_fork_arg){ .seq = got.seq, .nr_children = 1 };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_FORK, 1, 0, sizeof(*f)), 0);
	ck_assert_int_eq(((struct kvmm_open_res *)sh.results)->status, -ESTALE);
	len = (struct kvmm_len_arg){ .seq = got.seq, .len = 16 };
	memcpy(sh.args, &len, sizeof(len));
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_TRUNCATE, 1, 0, sizeof(len)), 0);
	ck_assert_int_eq(sh_seq_res(0), -ESTALE);
	memcpy(sh.args, &len, sizeof(len));
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_TRIM, 1, 0, sizeof(len)), 0);
	ck_assert_int_eq(sh_seq_res(0), -ESTALE);
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_RETAIN, KVMM_RANGE(0, 16), NULL),
			 -EOPNOTSUPP);
	ck_assert_int_eq(advise(got.seq, KVMM_ADV_COLD, 1, NULL), -EINVAL);
	ck_assert_uint_eq(sh_state(cl, got.seq), KVMM_SEQ_SWAPPED);
	ck_assert_uint_eq(c->domains[0].leased, 4);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lease");
	TCase *tc = tcase_create("lease");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_held);
	tcase_add_loop_test(tc, test_all_tiers, 0, 2);
	tcase_add_test(tc, test_held_in_use);
	tcase_add_test(tc, test_not_its_own);
	tcase_add_test(tc, test_no_room);
	tcase_add_test(tc, test_keep_clean);
	tcase_add_test(tc, test_no_lower_tier);
	tcase_add_test(tc, test_quota);
	tcase_add_test(tc, test_quota_of_tenants);
	tcase_add_test(tc, test_quota_of_domains);
	tcase_add_test(tc, test_no_sequence_left);
	tcase_add_test(tc, test_pages_left);
	tcase_add_test(tc, test_deadline);
	tcase_add_test(tc, test_renew);
	tcase_add_loop_test(tc, test_hand_over, 0, 2);
	tcase_add_test(tc, test_hand_over_goes_on);
	tcase_add_test(tc, test_strangers);
	tcase_add_test(tc, test_sequence_is_no_lease);
	tcase_add_test(tc, test_death);
	tcase_add_test(tc, test_lost_device);
	tcase_add_test(tc, test_copy_fails);
	tcase_add_test(tc, test_page_out);
	tcase_add_test(tc, test_page_out_leaves_others);
	tcase_add_loop_test(tc, test_promote, 0, 2);
	tcase_add_test(tc, test_promote_waits);
	tcase_add_test(tc, test_promote_takes_no_extent);
	tcase_add_loop_test(tc, test_promote_stops, 0, 2);
	tcase_add_test(tc, test_dont_need);
	tcase_add_loop_test(tc, test_bad, 0, ARRAY_SIZE(bad));
	tcase_add_test(tc, test_longest);
	tcase_add_test(tc, test_other_verbs);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
