// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_lease.c - leases in the operator's files
 *
 * A lease waits for nothing, so it is counted apart from the sequences that wait.
 * Copies between tiers never end here; check_core_lease_view.c has the tiers.
 */
#include "tests/unit/proc_fixture.h"

#define MANY	300	/* leases: more than a slice */

static u32 cl;

static void setup(void)
{
	fx_setup_tiers(FX_EXTENTS, 32, 0);
	cl = fx_attach(&fx, 1, "chat");
}

static bool says(const char *path, const char *what)
{
	return strstr(fx_cat(path), what);
}

static u64 generation(void)
{
	u64 events[NR_CORE_EVENTS], sum = 0;
	u32 i;

	core_get_events(fx.core, events);
	for (i = 0; i < NR_CORE_EVENTS; i++)
		sum += events[i];
	return sum;
}

START_TEST(test_file)
{
	u64 seq = fx_prefill(&fx, cl, 64, 100), sum;
	struct kvmm_lease_res a, b;
	char want[1024];

	fx_close(&fx, cl, seq);
	a = fx_lease(&fx, cl, 64, 100, "chat-7");
	fx.now += 12345000000ull;
	b = fx_lease(&fx, cl, 32, 100, "");
	sum = generation();
	snprintf(want, sizeof(want),
"# begin %llu\n"
"   seq    gen             number   tokens   device     host     area   moving     lost    ends_ms promoted label\n"
"%6u %6u 0x%016llx       64       64        0        0        0        0      47655       no chat-7\n"
"%6u %6u 0x%016llx       32       32        0        0        0        0      60000       no -\n"
"# end %llu\n", (unsigned long long)sum, KVMM_SEQ_INDEX(a.seq), KVMM_SEQ_GEN(a.seq),
		 (unsigned long long)a.number, KVMM_SEQ_INDEX(b.seq),
		 KVMM_SEQ_GEN(b.seq), (unsigned long long)b.number,
		 (unsigned long long)sum);
	ck_assert_str_eq(fx_cat("client/0/leases"), want);
}
END_TEST

/* Between its deadline and the daemon's next look at it, a lease has 0 ms. */
START_TEST(test_overdue)
{
	fx_close(&fx, cl, fx_prefill(&fx, cl, 16, 100));
	(void)fx_lease(&fx, cl, 16, 100, "late");
	fx.now += 60001000000ull;
	ck_assert(says("client/0/leases", "          0       no late\n"));
	core_tick(fx.core, fx.now);
	ck_assert(!says("client/0/leases", "late"));
}
END_TEST

/* Bytes of a label that could end a line or a word are refused; a backslash is not. */
START_TEST(test_label)
{
	fx_close(&fx, cl, fx_prefill(&fx, cl, 16, 100));
	(void)fx_lease(&fx, cl, 16, 100, "a\\b/#\"sixteenchr");
	ck_assert(says("client/0/leases", " no a\\134b/#\"sixteenchr\n"));
}
END_TEST

/* A sequence beside a lease: states, counts and sums of each file. */
START_TEST(test_counts)
{
	u64 seq = fx_prefill(&fx, cl, 40, 100);
	struct kvmm_lease_res a = fx_lease(&fx, cl, 32, 100, "x");
	char path[64];

	(void)fx_lease(&fx, cl, 16, 100, "y");
	(void)seq;
	ck_assert(says("client/0/seqs", " leased "));
	ck_assert(says("client/0/seqs", " ready "));
	ck_assert(!says("client/0/seqs", " swapped "));
	ck_assert(says("client/0/status", "Seqs:\t3\nRunning:\t1\nWaiting:\t0\nLeases:\t2\n"));
	ck_assert(says("clients", " 3       1       0       2     0 "));
	ck_assert(says("domain/chat/status", "Running:\t1\nWaiting:\t0\nLeases:\t2\n"));
	/* Three blocks of 4608 bytes. */
	ck_assert(says("domain/chat/status", "KvLeased:\t      13 kB\n"));
	ck_assert(says("domains", "       2          13 "));
	ck_assert(says("vmstat", "nr_seqs 3\nnr_seqs_running 1\nnr_seqs_waiting 0\nnr_leases 2\n"));
	ck_assert(says("metrics", "\nkvmm_domain_leases{domain=\"chat\",tenant=\"1\",pool=\"gpu0\"} 2\n"));
	ck_assert(says("metrics", "\nkvmm_domain_leased_bytes{domain=\"chat\",tenant=\"1\",pool=\"gpu0\"} 13824\n"));
	ck_assert(says("metrics", "\nkvmm_domain_seqs_waiting{domain=\"chat\",tenant=\"1\",pool=\"gpu0\"} 0\n"));
	ck_assert(says("metrics", "\nkvmm_leases 2\n"));
	snprintf(path, sizeof(path), "client/0/seq/%u/explain", KVMM_SEQ_INDEX(a.seq));
	ck_assert(says(path, "State:\tleased\n"));
	ck_assert(says(path, "Waits:\tlease\nWhy:\tnothing: it is a lease"));
	ck_assert(says(path, "WaitsMs:\t0\n"));
}
END_TEST

static u32 count_lines(const char *text)
{
	u32 nr = 0;

	for (; *text; text++)
		nr += *text == '\n';
	return nr;
}

/* Leases of one client alone, copied in slices. */
START_TEST(test_slices)
{
	u32 other = fx_attach(&fx, 1, "chat"), i;

	fx_close(&fx, cl, fx_prefill(&fx, cl, 16, 100));
	for (i = 0; i < MANY; i++) {
		(void)fx_open(&fx, cl, 10, 10);
		if (i < 50)
			(void)fx_lease(&fx, cl, 16, 100, "mine");
	}
	(void)fx_lease(&fx, other, 16, 100, "other");
	ck_assert_uint_eq(count_lines(fx_cat("client/0/leases")), 50 + 3);
	ck_assert_uint_eq(fx.nr_calls, 1 + 3);
	ck_assert_uint_eq(count_lines(fx_cat("client/1/leases")), 1 + 3);
	ck_assert_ptr_nonnull(strstr(seq_text(&fx.out), "other"));
}
END_TEST

/* Long leases: a slice ends when it has looked at enough blocks. */
START_TEST(test_long_leases)
{
	u32 i;

	fx_teardown();
	fx_setup_tiers(FX_EXTENTS, FX_EXTENTS_MAX, 0);
	cl = fx_attach(&fx, 1, "chat");
	fx_close(&fx, cl, fx_prefill(&fx, cl, 100 * 16, 100));
	ck_assert_int_eq(core_tune(fx.core, fx.now, CORE_TUNE_lease_percent, 100), 0);
	for (i = 0; i < 50; i++)
		(void)fx_lease(&fx, cl, 100 * 16, 100, "long");
	/* 41 leases of 100 blocks; the others, and 247 records; the empty records. */
	ck_assert_uint_eq(count_lines(fx_cat("client/0/leases")), 50 + 3);
	ck_assert_uint_eq(fx.nr_calls, 1 + 4);
}
END_TEST

static Suite *lease_suite(void)
{
	Suite *s = suite_create("proc-lease");
	TCase *tc = tcase_create("files");

	tcase_set_tags(tc, "unit proc");
	tcase_add_checked_fixture(tc, setup, fx_teardown);
	tcase_add_test(tc, test_file);
	tcase_add_test(tc, test_overdue);
	tcase_add_test(tc, test_label);
	tcase_add_test(tc, test_counts);
	tcase_add_test(tc, test_slices);
	tcase_add_test(tc, test_long_leases);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(lease_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
