// SPDX-License-Identifier: Apache-2.0
/*
 * it_shards.c - a client with a part of each block in each of two device pools
 *
 * budget: 30 s
 *
 * The client writes other words into each part of a block, and compares them after its
 * blocks were copied to the host pool and back, under pressure, and after kvmm was
 * killed.  The second pool is the smaller one.  A model in the first pool must print
 * the same text beside that client, also when the device of the second pool fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <kvmm/rundir.h>
#include <kvmm/view.h>

#include "tests/integration/shard_client.h"

#define POOLS	"--backend", "host", "--pool", "host:1M", "--pool", "host:512K", \
		"--extent-size", "64K", "--host-size", "1M", "--swappiness", "200", \
		"--min-token-bytes", "512"
#define POOL_BLOCKS	64u	/* of the smaller pool */
#define WAIT_MS		30000u

static u32 *quit;		/* page of a child: it ends after its round */

/* ---- the daemon ---- */

static void await_log(const char *what)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	char path[RIG_PATH + 32], *log;
	bool found = false;

	snprintf(path, sizeof(path), "%s/job-0.err", shard_rig.dir);
	while (!found) {
		log = slurp(path);
		found = strstr(log, what);
		ck_assert_msg(found || now_ms() < end, "'%s' is not in:\n%s", what, log);
		free(log);
		nap_ms(2);
	}
}

/* ---- the blocks of one client ---- */

START_TEST(test_paged_out)
{
	struct shard_seq a, b;

	rig_start(&shard_rig, POOLS, NULL);
	shard_attach_both();
	a = shard_open(0, KVMM_OPEN_NO_INDEX);
	shard_fill(&a);
	shard_page_out(&a);
	ck_assert_uint_eq(rig_pool_value(&shard_rig, "gpu0", "used_kb"), 0);
	ck_assert_uint_eq(rig_pool_value(&shard_rig, "gpu1", "used_kb"), 0);
	/* Other words in all of the pool, so in the old blocks, too. */
	for (u32 i = 1; i <= POOL_BLOCKS / SHARD_BLOCKS; i++) {
		b = shard_open(i, 0);
		shard_fill(&b);
		shard_close(&b);
	}
	shard_page_in(&a);
	ck_assert_int_eq(rig_value(&shard_rig, "vmstat", "pgpromote"), SHARD_BLOCKS);
	ck_assert_int_eq(rig_value(&shard_rig, "vmstat", "preempt_recompute"), 0);
	shard_close(&a);
	rig_walk(&shard_rig);
	kvmm_detach(shard_kv);
	rig_stop(&shard_rig);
}
END_TEST

/* A run of extents is taken in both pools or in none; the smaller one has no more. */
START_TEST(test_pressure)
{
	rig_start(&shard_rig, POOLS, NULL);
	shard_attach_both();
	shard_pressure(0);
	ck_assert_int_gt(rig_value(&shard_rig, "domain/parts/memory.events", "preempt"), 0);
	ck_assert_int_gt(rig_value(&shard_rig, "vmstat", "pgpromote"), 0);
	ck_assert_int_eq(rig_value(&shard_rig, "domain/parts/status", "Spans"), 8);
	ck_assert_uint_eq(rig_pool_value(&shard_rig, "gpu0", "total_kb"), 1024);
	ck_assert_uint_eq(rig_pool_value(&shard_rig, "gpu1", "total_kb"), 512);
	ck_assert_uint_eq(rig_pool_value(&shard_rig, "gpu0", "cached_kb"),
			  rig_pool_value(&shard_rig, "gpu1", "cached_kb"));
	ck_assert_uint_eq(rig_pool_value(&shard_rig, "gpu0", "free_kb"),
			  rig_pool_value(&shard_rig, "gpu1", "free_kb") + 512);
	rig_walk(&shard_rig);
	shard_pressure(1);
	rig_walk(&shard_rig);
	kvmm_detach(shard_kv);
	rig_stop(&shard_rig);
}
END_TEST

#define NR_KEPT		3u

/* Kill kvmm.  Return: the next one went on; false: an event was under way, a salvage. */
static bool killed_at_rest(struct shard_seq *it)
{
	u32 before, after, i, times = kvmm_resumed(shard_kv, &before);

	for (i = 0; i < NR_KEPT; i++) {
		it[i] = shard_open(i, KVMM_OPEN_NO_INDEX);
		shard_fill(&it[i]);
	}
	shard_page_out(&it[1]);
	nap_ms(20);
	kill(rig_daemon(&shard_rig), SIGKILL);
	while (kvmm_resumed(shard_kv, &after) == times)
		shard_sleep();
	for (i = 0; i < NR_KEPT && after > before; i++)
		shard_close(&it[i]);
	return after == before;
}

START_TEST(test_adopted)
{
	struct shard_seq it[NR_KEPT];
	u32 i, tries = 0;

	rig_start(&shard_rig, POOLS, NULL);
	shard_attach_both();
	while (!killed_at_rest(it))
		ck_assert_uint_lt(++tries, 10);
	await_log("adopted 1 domain");
	shard_words(&it[0], 0, SHARD_LEN, false);
	shard_words(&it[2], 0, SHARD_LEN, false);
	shard_page_in(&it[1]);
	ck_assert_uint_eq(kvmm_info(shard_kv)->nr_shards, SHARD_PARTS);
	shard_pressure(1);
	for (i = 0; i < NR_KEPT; i++) {
		shard_await(&it[i], KVMM_SEQ_READY);
		shard_words(&it[i], 0, SHARD_LEN, false);
		shard_close(&it[i]);
	}
	rig_walk(&shard_rig);
	kvmm_detach(shard_kv);
	rig_stop(&shard_rig);
}
END_TEST

/* ---- beside a model in the first pool ---- */

static struct job generate(const char *domain)
{
	return job_start(&shard_rig, KVRT_GENERATE, demo_model(), "In", "-n", "4",
			 "--max-tokens", "160", "--ignore-eos", "--seed", "7", "--mode",
			 "exact", "--json", "--pool", "gpu0", "--domain", domain, NULL);
}

static void expect_text(struct job *j, const struct samples *truth)
{
	struct samples got;

	ck_assert_msg(!job_wait(j, 60 * time_scale()), "%s", slurp(j->err));
	samples_read(&got, j->out);
	samples_equal(&got, truth);
	samples_free(&got);
}

static void text_alone(struct samples *truth)
{
	struct job j = generate("alone");

	ck_assert_msg(!job_wait(&j, 60 * time_scale()), "%s", slurp(j.err));
	samples_read(truth, j.out);
}

/* A process that is such a client until the page says that it ends. */
static struct job client_start(void)
{
	struct job j = { .pid = 0 };
	u32 round = 0;

	quit = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(quit, MAP_FAILED);
	snprintf(j.err, sizeof(j.err), "%s/client.err", shard_rig.dir);
	j.pid = fork();
	ck_assert_int_ge(j.pid, 0);
	if (j.pid)
		return j;
	shard_child = true;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!freopen(j.err, "w", stderr))
		_exit(1);
	shard_attach_both();
	do
		shard_pressure(round++);
	while (!READ_ONCE(*quit));
	kvmm_detach(shard_kv);
	_exit(0);
}

static void await_use(const char *pool)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();

	while (!rig_pool_value(&shard_rig, pool, "used_kb")) {
		ck_assert_msg(now_ms() < end, "%s is not in use", pool);
		nap_ms(2);
	}
}

START_TEST(test_beside_a_model)
{
	struct samples truth;
	struct job a, b;

	rig_start(&shard_rig, POOLS, NULL);
	text_alone(&truth);
	a = client_start();
	await_use("gpu1");
	b = generate("beside");
	expect_text(&b, &truth);
	WRITE_ONCE(*quit, 1);
	ck_assert_msg(!job_wait(&a, 60 * time_scale()), "%s", slurp(a.err));
	rig_walk(&shard_rig);
	samples_free(&truth);
	rig_stop(&shard_rig);
}
END_TEST

/* The device of the second pool fails: the client ends, the model in the first does not. */
START_TEST(test_device_fails)
{
	struct samples truth;
	char text[256], *said;
	struct job a, b;

	setenv("KVMM_FAULT", "pool1_lost:3", 1);
	rig_start(&shard_rig, POOLS, NULL);
	unsetenv("KVMM_FAULT");
	text_alone(&truth);
	b = generate("beside");
	await_use("gpu0");
	a = client_start();
	ck_assert_int_eq(job_wait(&a, 60 * time_scale()), 1);
	said = slurp(a.err);
	ck_assert_msg(!strncmp(said, "a sequence ", 11) && count_lines(said) == 1 &&
		      strstr(said, ": No such device\n"), "%s", said);
	free(said);
	await_log("gpu1: the device of the pool failed");
	ck_assert_int_eq(shard_attach(0, SHARD_PARTS, &shard_kv, text), -ENODEV);
	ck_assert_ptr_null(strchr(text, '\n'));
	expect_text(&b, &truth);
	b = generate("after");
	expect_text(&b, &truth);
	rig_walk(&shard_rig);
	samples_free(&truth);
	rig_stop(&shard_rig);
}
END_TEST

/* A limit is that of each pool, and may be set as it is shown for either. */
START_TEST(test_limit)
{
	static const struct {
		const char	*value;
		int		status;
		s64		now;
	} set[] = {
		{ "gpu1 262144", 0, 262144 }, { "gpu0 196608", 0, 196608 },
		{ "gpu2 131072", EINVAL, 196608 }, { "131072", 0, 131072 },
	};
	char path[RIG_PATH + 32], ask[128];
	struct seq_file text;
	int status;
	u32 i;

	rig_start(&shard_rig, POOLS, NULL);
	shard_attach_both();
	seq_init(&text, 4096);
	snprintf(path, sizeof(path), "%s/" KV_VIEW_SOCKET, shard_rig.dir);
	for (i = 0; i < ARRAY_SIZE(set); i++) {
		snprintf(ask, sizeof(ask), "set domain/parts/memory.max %s", set[i].value);
		ck_assert_int_eq(kv_view_ask(path, ask, 20000, &status, &text), 0);
		ck_assert_msg(status == set[i].status, "%s: %d: %s", ask, status,
			      seq_text(&text));
		ck_assert_int_eq(rig_value(&shard_rig, "domain/parts/memory.max", "gpu0"),
				 set[i].now);
		ck_assert_int_eq(rig_value(&shard_rig, "domain/parts/memory.max", "gpu1"),
				 set[i].now);
	}
	seq_free(&text);
	kvmm_detach(shard_kv);
	rig_stop(&shard_rig);
}
END_TEST

/* Shards in pools that the daemon does not have: the line says so. */
START_TEST(test_refused)
{
	static const struct {
		u32		pool;
		u32		shards;
		int		err;
		const char	*text;
	} bad[] = {
		{ 0, 3, -ENXIO, "kvmm has gpu0 and gpu1, too few device pools for the 3 shards of this domain from gpu0 on" },
		{ 1, 3, -ENXIO, "too few device pools for the 3 shards" },
		{ 2, 2, -ENXIO, "too few device pools for the 2 shards of this domain from gpu1 on" },
		{ 3, 1, -ENXIO, "kvmm has no device pool gpu2, it has gpu0 and gpu1: ask for one of its pools, or auto" },
		{ 0, 9, -EINVAL, "1 to 8 shards" },
	};
	struct kvmm *other;
	char text[256];
	u32 i;

	rig_start(&shard_rig, POOLS, NULL);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(shard_attach(bad[i].pool, bad[i].shards, &shard_kv, text),
				 bad[i].err);
		ck_assert_msg(strstr(text, bad[i].text), "%u: %s", i, text);
		ck_assert_ptr_null(strchr(text, '\n'));
	}
	shard_attach_both();
	ck_assert_int_eq(shard_attach(0, 1, &other, text), -EEXIST);
	ck_assert_msg(strstr(text, "another number of shards"), "%s", text);
	kvmm_detach(shard_kv);
	rig_stop(&shard_rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shards");
	TCase *tc = tcase_create("two");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "integration");
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_paged_out);
	tcase_add_test(tc, test_pressure);
	tcase_add_test(tc, test_adopted);
	tcase_add_test(tc, test_beside_a_model);
	tcase_add_test(tc, test_device_fails);
	tcase_add_test(tc, test_limit);
	tcase_add_test(tc, test_refused);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
