// SPDX-License-Identifier: Apache-2.0
/*
 * it_cuda_adopt.c - kvmm dies while it copies to and from a GPU
 *
 * budget: 60 s, full 200 s
 *
 * The stand-in for the driver makes copies slow here, so that kvmm is killed
 * with copies under way, in either direction.  The next kvmm imports the
 * extents and makes the copies again, and every word of the client must be in
 * its place.  adopt-cuda.sh covers a complete runtime: it runs the tests of
 * adoption on a pool of a GPU.  If the device is not proven quiet after the
 * last kvmm, the start is a cold one, and no client may see an old word.  A
 * client resumes only when its own device is quiet.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/cudrv.h>

#include "tests/integration/cuda_party.h"

#define SEQS	8u

/**
 * struct tally - deaths of kvmm in this test
 * @under_way: deaths with a copy under way in that direction: out, in
 */
struct tally {
	u32	deaths;
	u32	under_way[2];
	u32	salvaged;
};

static u32 nr_in_state(const struct party *p, u32 state)
{
	u32 i, n = 0;

	for (i = 0; i < p->nr; i++)
		n += state_of(p, i) == state;
	return n;
}

/* An advice is refused while its sequence moves; then it is given again. */
static void move_all(struct party *p, u32 advice, u32 state)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	u32 i;

	while (nr_in_state(p, state) < p->nr) {
		for (i = 0; i < p->nr; i++)
			if (state_of(p, i) != state)
				(void)advise(p, i, advice);
		turn(p);
		ck_assert_msg(now_ms() < end, "%u of %u are %u:\n%s",
			      nr_in_state(p, state), p->nr, state, node_log());
	}
}

/* Kill kvmm, and go on with the next one.  Return: was it salvaged? */
static bool kill_kvmm(struct party *p, struct tally *t)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	const pid_t old = rig_daemon(&rig);
	u32 was, is;
	const u32 before = kvmm_resumed(p->k, &was);

	ck_assert_int_gt(old, 0);
	kill(old, SIGKILL);
	t->deaths++;
	while (kvmm_resumed(p->k, &is) == before) {
		ck_assert_msg(kvmm_wait(p->k, 5000000) != -ECONNRESET,
			      "%s\n%s", kvmm_strerror_attach(p->k),
			      node_log());
		ck_assert_msg(now_ms() < end, "no kvmm:\n%s", node_log());
	}
	t->salvaged += is - was;
	return is != was;
}

/* Write new words, which no lower tier has. */
static void seqs_new(struct party *p)
{
	u32 i;

	if (p->nr)
		ck_assert_int_eq(kvmm_seq_close(p->k, p->seq, p->nr), 0);
	p->nr = 0;
	for (i = 0; i < SEQS; i++)
		seq_make(p);
}

/* Move the sequences, 0 out or 1 in; kvmm dies somewhere in the middle. */
static void die_moving(struct party *p, u32 dir, struct tally *t)
{
	const u32 advice = dir ? KVMM_ADV_WILLNEED : KVMM_ADV_PAGEOUT;
	u32 i;

	for (i = 0; i < p->nr; i++)
		(void)advise(p, i, advice);
	nap_ms(random_below(40));
	t->under_way[dir] += rig_value(&rig, "meminfo", dir ? "Limbo" :
				       "HostLimbo") > 0;
	/* After a death inside an event, memory that no prefix names is void. */
	if (kill_kvmm(p, t))
		seqs_new(p);
	move_all(p, advice, dir ? KVMM_SEQ_READY : KVMM_SEQ_SWAPPED);
}

START_TEST(test_copies_under_way)
{
	const u32 rounds = by_level(3, 60, 400);
	struct tally t = { .deaths = 0 };
	struct party p;
	u32 i, n;

	setenv("KVMM_STANDIN_COPY_US", "5000", 1);
	/* Under the full sandbox. */
	rig_start(&rig, SIZES, "--host-size", "4M", NULL);
	party_join(&p, NULL, 2);
	for (n = 0; n < rounds || (n < 20 * rounds &&
	     (!t.under_way[0] || !t.under_way[1])); n++) {
		seqs_new(&p);
		die_moving(&p, 0, &t);
		die_moving(&p, 1, &t);
		for (i = 0; i < p.nr; i++)
			words_check(&p, i);
		rig_walk(&rig);
	}
	printf("total: kvmm killed %u times beside a GPU, %u with copies out under way, %u in, %u salvaged; no word is lost\n",
	       t.deaths, t.under_way[0], t.under_way[1], t.salvaged);
	ck_assert_uint_gt(t.under_way[0], 0);
	ck_assert_uint_gt(t.under_way[1], 0);
	ck_assert_msg(!strstr(node_log(), "cold start"), "%s", node_log());
	leave(&p);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* ---- a client with a busy device ---- */

#define LATE_COPIES	256u

/*
 * After a salvage, the blocks that a step may write are free once its client
 * resumes.  So the client must not resume before its own copies have ended.
 */
START_TEST(test_resumes_quiet)
{
	const u64 bytes = LATE_COPIES * 64;
	const struct cu_api *cu;
	struct tally t = { .deaths = 0 };
	struct party p;
	CUstream stream;
	char why[160], *at;
	void *from;
	u32 table, i;

	rig_start(&rig, SIZES, "--host-size", "4M", NULL);
	party_join(&p, NULL, 2);
	seq_make(&p);
	ck_assert_int_eq(kvmm_seq_table(p.k, p.seq[0], 0, 0, 1, &table), 0);
	at = (char *)kvmm_pool(p.k) + (u64)table * kvmm_info(p.k)->unit;
	cu = cudrv_open(why, sizeof(why));
	ck_assert_msg(cu, "%s", why);
	ck_assert_int_eq(cu->StreamCreateWithPriority(&stream,
						      CU_STREAM_NON_BLOCKING,
						      0), 0);
	ck_assert_int_eq(cu->MemHostAlloc(&from, bytes, 0), 0);
	memset(from, 0x5a, bytes);
	for (i = 0; i < LATE_COPIES; i++)
		ck_assert_int_eq(cu->MemcpyHtoDAsync((uintptr_t)at + i * 64,
						     (char *)from + i * 64, 64,
						     stream), 0);
	kill_kvmm(&p, &t);
	/*
	 * The stand-in's memory is host memory: this comparison does not wait
	 * for copies.
	 */
	ck_assert_mem_eq(at, from, bytes);
	leave(&p);
	rig_stop(&rig);
}
END_TEST

/* ---- a device that is still busy ---- */

static u32 times_said(const char *what)
{
	const char *at;
	u32 n = 0;

	for (at = strstr(node_log(), what); at; at = strstr(at + 1, what))
		n++;
	return n;
}

static void await_said(const char *what, u32 times)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();

	while (times_said(what) < times) {
		ck_assert_msg(now_ms() < end, "not said %u times: %s\n%s",
			      times, what, node_log());
		nap_ms(5);
	}
}

START_TEST(test_not_quiet)
{
	struct party p;
	u32 i;

	setenv("KVMM_FAULT", "device_busy", 1);
	rig_start(&rig, SIZES, "--host-size", "4M", NULL);
	party_join(&p, NULL, 3);
	for (i = 0; i < 4; i++)
		seq_make(&p);
	kill(rig_daemon(&rig), SIGKILL);
	await_logged("cold start: the GPU is not proven quiet");
	/* The client's memory is of no use any more: it gets an error. */
	while (kvmm_wait(p.k, 5000000) != -ECONNRESET)
		;
	kvmm_detach(p.k);
	await_said("kvmm: ready:", 2);
	/* With another byte: a word of the first party would fail the test. */
	party_join(&p, NULL, 4);
	for (i = 0; i < ALL; i++)
		seq_make(&p);
	for (i = 0; i < ALL; i++)
		words_check(&p, i);
	ck_assert_uint_eq(times_said("cold start:"), 1);
	ck_assert_uint_eq(times_said("adopted"), 0);
	leave(&p);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	SRunner *sr;
	TCase *tc;
	Suite *s;
	int failed;

	s = suite_create("cuda-adopt");
	tc = tcase_create("cuda");
	tcase_add_checked_fixture(tc, cuda_setup, cuda_teardown);
	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, test_copies_under_way);
	tcase_add_test(tc, test_resumes_quiet);
	tcase_add_test(tc, test_not_quiet);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
