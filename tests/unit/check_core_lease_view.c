// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_lease_view.c - leases as readers see them
 */
#include "kvmm/core/why.h"
#include "tests/unit/lookup_scene.h"

static struct kvmm_lease_res got;
static struct core_lease_view view;

/* Lease @nr blocks of prompt @seed. */
static void lease(u32 nr, u32 seed, const char *label)
{
	struct kvmm_lease_arg a = { .len = nr * SH_BT, .ms = 1000 };

	ck_assert_uint_eq(look(a.len, seed), a.len);
	memcpy(a.cookie, res->cookie, sizeof(a.cookie));
	memcpy(a.label, label, strlen(label));
	memcpy(sh.args, &a, sizeof(a));
	c->head->clean_after = 0;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_LEASE, 1, 0, sizeof(a)), 0);
	memcpy(&got, sh.results, sizeof(got));
	c->head->clean_after = ~0ull;
	sh_check();
	ck_assert_int_eq(got.status, 0);
	ck_assert_uint_eq(got.held, a.len);
}

static void advise(u32 advice)
{
	struct kvmm_advise_arg a = { .seq = got.seq, .advice = advice };

	memcpy(sh.args, &a, sizeof(a));
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
}

/* The record of the lease that was made last. */
static u32 record(void)
{
	return KVMM_SEQ_INDEX(got.number);
}

/* Blocks on the device, in the host pool, in an area, moving, lost. */
static void view_is(u32 device, u32 host, u32 area, u32 moving, u32 lost)
{
	const u32 want[] = { device, host, area, moving, lost };
	u32 i, sum = 0;

	ck_assert_int_eq(core_get_lease(c, record(), &view), 0);
	for (i = 0; i < KVMM_NR_LOOKUP_TIERS; i++) {
		ck_assert_msg(view.on[i] == want[i] * SH_BT, "tier %u: %u tokens", i,
			      view.on[i]);
		sum += view.on[i];
	}
	ck_assert_uint_eq(view.lost, lost * SH_BT);
	ck_assert_uint_eq(view.tokens, sum + view.lost);
	ck_assert_uint_eq(view.tokens, view.nr_blocks * SH_BT);
}

START_TEST(test_tiers)
{
	static const u32 tiers[] = { KVMM_TIER_DEVICE, KVMM_TIER_HOST, KVMM_TIER_AREA };
	u32 i;

	cache(6, 0);
	(void)to_area(0, 5);
	(void)to_host(0, 4, true);
	(void)to_host(0, 3, true);
	lease(6, 0, "a-label");
	view_is(3, 2, 1, 0, 0);
	ck_assert_uint_eq(view.client, cl);
	ck_assert_uint_eq(view.domain, 0);
	ck_assert_uint_eq(view.seq, got.seq);
	ck_assert_uint_eq(view.number, got.number);
	ck_assert_uint_eq(view.until, got.until);
	ck_assert_uint_eq(view.promoted, 0);
	ck_assert_str_eq(view.label, "a-label");
	/* A lookup says the same of content that does not move. */
	copies_done();
	ck_assert_uint_eq(look(6 * SH_BT, 0), 6 * SH_BT);
	for (i = 0; i < ARRAY_SIZE(tiers); i++)
		ck_assert_uint_eq(res->tokens[tiers[i]], view.on[tiers[i]]);
	/* A block that the device and the host pool have counts on the device. */
	view_is(3, 2, 1, 0, 0);
	(void)core_drop_caches(c, sh.now, 0, 1000);
	view_is(0, 5, 1, 0, 0);
}
END_TEST

START_TEST(test_label_of_full_length)
{
	cache(1, 0);
	lease(1, 0, "0123456789abcdef");
	view_is(1, 0, 0, 0, 0);
	ck_assert_str_eq(view.label, "0123456789abcdef");
}
END_TEST

START_TEST(test_moving)
{
	cache(3, 0);
	(void)to_area(0, 2);
	lease(3, 0, "");
	copies_done();
	(void)core_drop_caches(c, sh.now, 0, 1000);
	view_is(0, 2, 1, 0, 0);
	advise(KVMM_ADV_WILLNEED);
	ck_assert_int_eq(core_get_lease(c, record(), &view), 0);
	ck_assert_uint_eq(view.promoted, 1);
	sh_tick(1);
	view_is(0, 0, 0, 3, 0);
	while (nr_ios) {
		SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
		sh_settle();
	}
	copies_done();
	sh_tick(1);
	view_is(3, 0, 0, 0, 0);
	ck_assert_uint_eq(view.promoted, 0);
	advise(KVMM_ADV_PAGEOUT);
	view_is(0, 3, 0, 0, 0);
}
END_TEST

START_TEST(test_lost)
{
	cache(2, 0);
	lease(2, 0, "");
	SH_CORE(core_copy_done(c, sh.now, copies[--nr_copies].id, -EIO));
	sh_settle();
	copies_done();
	view_is(1, 0, 0, 0, 1);
	(void)core_drop_caches(c, sh.now, 0, 1000);
	view_is(0, 1, 0, 0, 1);
}
END_TEST

/* A lease is counted as one, and neither runs nor waits, in any view. */
START_TEST(test_counts)
{
	u64 seq = sh_ready(cl, 40, 16, 0);
	struct core_client_view v;
	struct core_domain_view d;
	struct core_why_view why;
	struct core_seq_view s;

	sh_compute(cl, seq, 0, 40, 0);
	lease(2, 0, "");
	lease(1, 0, "");
	(void)sh_open(cl, 16, 0);
	ck_assert_int_eq(core_get_client(c, cl, &v), 0);
	ck_assert_uint_eq(v.nr_seqs, 4);
	ck_assert_uint_eq(v.nr_running, 1);
	ck_assert_uint_eq(v.nr_waiting, 1);
	ck_assert_uint_eq(v.nr_leases, 2);
	ck_assert_int_eq(core_get_domain(c, 0, &d), 0);
	ck_assert_uint_eq(d.nr_waiting, 1);
	ck_assert_uint_eq(d.nr_leases, 2);
	ck_assert_uint_eq(d.leased, 3);
	ck_assert_int_eq(core_get_seq(c, record(), &s), 0);
	ck_assert_uint_eq(s.state, CORE_SEQ_LEASED);
	ck_assert_str_eq(core_seq_state_name(s.state), "leased");
	ck_assert_str_eq(core_seq_state_name(s.state + 1), "unknown");
	sh.now += 5 * MS;
	ck_assert_int_eq(core_get_why(c, record(), sh.now, &why), 0);
	ck_assert_uint_eq(why.state, CORE_SEQ_LEASED);
	ck_assert_uint_eq(why.wait, CORE_WAIT_lease);
	ck_assert_uint_eq(why.waits_ns, 0);
	ck_assert_uint_eq(why.wait_domain, CORE_NONE);
	/* Its client sees a swapped sequence. */
	ck_assert_uint_eq(sh_state(cl, got.seq), KVMM_SEQ_SWAPPED);
	ck_assert_int_eq(sh_close(cl, got.seq), 0);
	ck_assert_int_eq(core_get_lease(c, record(), &view), -ENOENT);
	ck_assert_int_eq(core_get_domain(c, 0, &d), 0);
	ck_assert_uint_eq(d.nr_leases, 1);
	ck_assert_uint_eq(d.leased, 2);
}
END_TEST

/* Records that are no lease; a lease that failed with the device is none. */
START_TEST(test_none)
{
	struct core_seq_view s;

	ck_assert_int_eq(core_get_lease(c, 0, &view), -ENOENT);
	ck_assert_int_eq(core_get_lease(c, core_sizes(c)->nr_seqs, &view), -ERANGE);
	ck_assert_int_eq(core_get_lease(c, KVMM_SEQ_INDEX(sh_open(cl, 16, 0)), &view),
			 -ENOENT);
	cache(1, 0);
	lease(1, 0, "");
	copies_done();
	SH_CORE(core_device_failed(c, sh.now, 0, CORE_DEVICE_LOST));
	sh_settle();
	ck_assert_int_eq(core_get_lease(c, record(), &view), -ENOENT);
	ck_assert_int_eq(core_get_seq(c, record(), &s), 0);
	ck_assert_uint_eq(s.state, KVMM_SEQ_FAILED);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lease-view");
	TCase *tc = tcase_create("lease-view");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_tiers);
	tcase_add_test(tc, test_label_of_full_length);
	tcase_add_test(tc, test_moving);
	tcase_add_test(tc, test_lost);
	tcase_add_test(tc, test_counts);
	tcase_add_test(tc, test_none);
	suite_add_tcase(s, tc);
	return sh_run(s);
}
