// SPDX-License-Identifier: Apache-2.0
/*
 * it_cuda.c - a complete node with its pool on a GPU
 *
 * budget: 60 s
 *
 * kvmm and its clients run over the stand-in for the driver (tests/standin),
 * with the real backend, the real library, every descriptor and every mapping.
 * A client writes and reads its blocks through the mapped pool, as a kernel
 * would.  The rules are those of host memory: words come back from the host
 * pool and survive a death of kvmm, memory that changes its tenant contains no
 * word of the previous one, a dead client leaves nothing behind.  In the end
 * the driver has back all that it handed out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/cuda_party.h"

/* ---- page out and in ---- */

static void page_all_out(struct party *p)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	u32 i;

	for (i = 0; i < p->nr; i++)
		while (state_of(p, i) != KVMM_SEQ_SWAPPED &&
		       advise(p, i, KVMM_ADV_PAGEOUT)) {
			ck_assert_msg(now_ms() < end, "sequence %u is %u:\n%s",
				      i, state_of(p, i), node_log());
			turn(p);
		}
	for (i = 0; i < p->nr; i++)
		ck_assert(await_state(p, i, KVMM_SEQ_SWAPPED));
}

static void page_all_in(struct party *p)
{
	u32 i;

	for (i = 0; i < p->nr; i++)
		ck_assert_int_eq(advise(p, i, KVMM_ADV_WILLNEED), 0);
	for (i = 0; i < p->nr; i++) {
		ck_assert(await_state(p, i, KVMM_SEQ_READY));
		words_check(p, i);
	}
}

/* All objects that the driver gave to the last kvmm were returned when it ended. */
static void expect_no_leak(pid_t pid)
{
	static const char * const want[] = {
		"created", "imported", "released", "mapped", "unmapped",
		"pinned", "unpinned", "streams", "streams_gone", "events",
		"events_gone",
	};
	u64 v[ARRAY_SIZE(want)];
	char *text = slurp(cuda_counts), key[64], *line, *at;
	u32 i;

	snprintf(key, sizeof(key), "pid %d ", (int)pid);
	line = strstr(text, key);
	ck_assert_msg(line, "kvmm counted nothing: %s", text);
	line[strcspn(line, "\n")] = '\0';
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		snprintf(key, sizeof(key), " %s=", want[i]);
		at = strstr(line, key);
		ck_assert_ptr_nonnull(at);
		v[i] = strtoull(at + strlen(key), NULL, 10);
	}
	ck_assert_msg(v[0] + v[1] == v[2] && v[3] == v[4] && v[5] == v[6] &&
		      v[7] == v[8] && v[9] == v[10], "left: %s", line);
	ck_assert_uint_gt(v[3], 0);
	free(text);
}

START_TEST(test_out_and_in)
{
	struct party p;
	pid_t kvmm;
	u32 i;

	rig_start(&rig, SIZES, "--host-size", "4M", "--sandbox", "off", NULL);
	kvmm = rig_daemon(&rig);
	party_join(&p, NULL, 1);
	for (i = 0; i < 8; i++)
		seq_make(&p);
	for (i = 0; i < by_level(3, 10, 50); i++) {
		page_all_out(&p);
		page_all_in(&p);
	}
	ck_assert_int_gt(rig_value(&rig, "swapstat", "copy_out_bytes"), 0);
	ck_assert_int_gt(rig_value(&rig, "swapstat", "copy_in_bytes"), 0);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "preempt_recompute"), 0);
	rig_walk(&rig);
	leave(&p);
	rig_stop(&rig);
	expect_no_leak(kvmm);
}
END_TEST

/* ---- kvmm dies ---- */

static void kill_kvmm(struct party *p)
{
	const u32 before = kvmm_resumed(p->k, NULL);
	const u64 end = now_ms() + WAIT_MS * time_scale();

	kill(rig_daemon(&rig), SIGKILL);
	while (kvmm_resumed(p->k, NULL) == before) {
		ck_assert_msg(kvmm_wait(p->k, 5000000) != -ECONNRESET,
			      "%s\n%s", kvmm_strerror_attach(p->k),
			      node_log());
		ck_assert_msg(now_ms() < end, "no kvmm:\n%s", node_log());
	}
}

START_TEST(test_adopted)
{
	struct party p;
	u32 i, salvaged = 1;

	/* Under the full sandbox. */
	rig_start(&rig, SIZES, "--host-size", "4M", NULL);
	party_join(&p, NULL, 2);
	for (i = 0; i < 8; i++)
		seq_make(&p);
	for (i = 0; i < by_level(3, 10, 50); i++) {
		kill_kvmm(&p);
		words_check(&p, i % 8);
		page_all_out(&p);
		kill_kvmm(&p);
		page_all_in(&p);
		rig_walk(&rig);
	}
	kvmm_resumed(p.k, &salvaged);
	ck_assert_uint_eq(salvaged, 0);
	ck_assert_msg(!strstr(node_log(), "cold start"), "%s", node_log());
	leave(&p);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* ---- a client dies ---- */

/* In a child: fill some sequences, and stop in the middle of a step. */
static void __noreturn doomed(int up)
{
	struct party p;
	u32 i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	party_join(&p, NULL, 3);
	for (i = 0; i < 4; i++)
		seq_make(&p);
	MUST(seq_open(&p) && await_state(&p, 4, KVMM_SEQ_READY));
	seq_fill(&p, 4, false);
	MUST(write(up, "x", 1) == 1);
	for (;;)
		pause();
}

static pid_t spawn(void (*fn)(int up))
{
	int ends[2];
	pid_t pid;
	char c;

	ck_assert_int_eq(pipe(ends), 0);
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		close(ends[0]);
		fn(ends[1]);
		_exit(0);
	}
	close(ends[1]);
	ck_assert_msg(read(ends[0], &c, 1) == 1, "the child failed:\n%s",
		      node_log());
	close(ends[0]);
	return pid;
}

START_TEST(test_client_killed)
{
	struct party p;
	u32 i, n;

	rig_start(&rig, SIZES, NULL);
	for (n = 0; n < by_level(3, 10, 50); n++) {
		pid_t pid = spawn(doomed);

		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
		rig_walk(&rig);
	}
	await_logged("its memory is back");
	/* All of the pool is free again. */
	/* The tenant is that of the dead clients, so it may find their words. */
	party_join(&p, NULL, 3);
	for (i = 0; i < ALL; i++)
		seq_make(&p);
	for (i = 0; i < ALL; i++)
		words_check(&p, i);
	rig_walk(&rig);
	leave(&p);
	rig_stop(&rig);
}
END_TEST

/* ---- between tenants ---- */

#define TENANTS SIZES, "--tenant", "a", "--tenant", "b", "--starve-ms", "50", \
	"--revoke-deadline-ms", "1000"

START_TEST(test_two_tenants)
{
	struct party a, b;
	u64 end;
	u32 i;

	rig_start(&rig, TENANTS, NULL);
	party_join(&a, "a", 5);
	for (i = 0; i < ALL; i++)
		seq_make(&a);
	/* Tenant a has the pool.  It frees half, which does not make it b's yet. */
	ck_assert_int_eq(kvmm_seq_close(a.k, a.seq + 8, ALL - 8), 0);
	a.nr = 8;
	party_join(&b, "b", 6);
	for (i = 0; i < 6; i++) {
		MUST(seq_open(&b));
		end = now_ms() + WAIT_MS * time_scale();
		while (state_of(&b, i) != KVMM_SEQ_READY) {
			ck_assert_msg(now_ms() < end, "b waits:\n%s",
				      node_log());
			turn(&a);
			turn(&b);
		}
		/* seq_fill() checks that no word of a is in it. */
		seq_fill(&b, i, true);
	}
	for (i = 0; i < 8; i++)
		words_check(&a, i);
	for (i = 0; i < 6; i++)
		words_check(&b, i);
	ck_assert_int_gt(rig_value(&rig, "vmstat", "extent_revoke"), 0);
	rig_walk(&rig);
	leave(&a);
	leave(&b);
	rig_stop(&rig);
}
END_TEST

/* In a child: fill the pool, send DETACH, and live on. */
static void __noreturn haunting(int up)
{
	struct party p;
	u32 i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	party_join(&p, "a", 7);
	for (i = 0; i < ALL; i++)
		seq_make(&p);
	leave(&p);
	MUST(write(up, "x", 1) == 1);
	for (;;)
		pause();
}

/*
 * A lingering client may have kept its mappings: no other tenant gets the
 * memory before the client ends.
 */
START_TEST(test_ghost)
{
	struct party b;
	int status;
	pid_t pid;
	u32 i;

	rig_start(&rig, TENANTS, NULL);
	pid = spawn(haunting);
	party_join(&b, "b", 8);
	for (i = 0; i < 4; i++)
		seq_make(&b);
	/* kvmm killed it. */
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	/* As a process that detached; or as a client, where it was noticed late. */
	await_logged("is killed: it ");
	rig_walk(&rig);
	leave(&b);
	rig_stop(&rig);
}
END_TEST

/* ---- refused ---- */

static void expect_refused(int code, const char *why, const char *opt,
			   const char *value)
{
	struct job j = job_start(&rig, "kvmm", "--backend", "cuda",
				 "--pool-size", "64M", opt, value, NULL);
	char *err;

	ck_assert_int_eq(job_wait(&j, 20), code);
	err = slurp(j.err);
	ck_assert_msg(strstr(err, why) && count_lines(err) <= 2, "%s", err);
	free(err);
	unlink(j.out);
	unlink(j.err);
}

START_TEST(test_refused)
{
	struct job j;
	char *err;

	memset(&rig, 0, sizeof(rig));
	snprintf(rig.dir, sizeof(rig.dir), "%s", cuda_dir);
	setenv("KVMM_STANDIN_GRAN", "128K", 1);
	/* The size has to be a power of two and a divisor of the pool. */
	expect_refused(78, "is no multiple of 128K", "--extent-size", "64K");
	setenv("KVMM_STANDIN_GRAN", "64K", 1);
	expect_refused(78, "do not fit", "--host-size", "900G");
	setenv("KVMM_STANDIN_MEM", "66M", 1);
	expect_refused(78, "available on the device", "--extent-size", "256K");
	unsetenv("KVMM_STANDIN_MEM");
	setenv("KVMM_STANDIN_DEVICES", "0", 1);
	expect_refused(69, "the CUDA driver has no device", "--extent-size",
		       "256K");
	j = job_start(&rig, "kvmm", "--backend", "auto", "--pool-size", "900G",
		      "--extent-size", "1G", NULL);
	ck_assert_int_eq(job_wait(&j, 20), 78);
	err = slurp(j.err);
	ck_assert_msg(strstr(err, "--pool-size"), "%s", err);
	free(err);
	unsetenv("KVMM_STANDIN_DEVICES");
	unlink(j.out);
	unlink(j.err);
}
END_TEST

/* ---- main ---- */

int main(void)
{
	SRunner *sr;
	TCase *tc;
	Suite *s;
	int failed;

	s = suite_create("cuda");
	tc = tcase_create("cuda");
	tcase_add_checked_fixture(tc, cuda_setup, cuda_teardown);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_out_and_in);
	tcase_add_test(tc, test_adopted);
	tcase_add_test(tc, test_client_killed);
	tcase_add_test(tc, test_two_tenants);
	tcase_add_test(tc, test_ghost);
	tcase_add_test(tc, test_refused);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
