// SPDX-License-Identifier: Apache-2.0
/*
 * it_adapters.c - adapters share the daemon's pool with KV
 *
 * budget: 60 s
 *
 * Requests name one of several adapters, or none, and all have the same few prompts.  First
 * each request runs alone in ample memory: that shows the right tokens.  In exact mode every
 * other run must give the same tokens: all requests at once; with less memory than KV and
 * adapters need, with and without lower tiers; while kvmm is killed; with samples that fork;
 * in a runtime that was started again, which finds its adapters warm.  A request that does not
 * fit beside its adapter is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/engine/engine.h"
#include "runtime/model/adapter.h"
#include "tests/integration/harness.h"
#include "tests/tmp.h"

#define ADAPTERS	6u
#define RANK		8u
#define PROMPTS		6u
#define PROMPT		40u
#define NEW		24u
#define REQUESTS	((ADAPTERS + 1) * PROMPTS)
#define SAMPLES		2u
#define STEP_NS		20000000ll
#define BLOCK		16u

struct run;

struct ask {
	struct run	*run;
	u32		ids[SAMPLES][NEW];
	u32		nr[SAMPLES];
	u32		dones;
};

/**
 * struct run - all requests, once
 * @window: most requests at once; 0: all
 * @seqs:  sequences of the engine; 0: 64
 * @grouped: those of one adapter come together, so that others give way
 * @kill:  kill the daemon each time that so many tokens have come; 0: never
 */
struct run {
	u32			window;
	u32			seqs;
	bool			grouped;
	u32			kill;
	struct ask		ask[REQUESTS];
	u32			tokens;
	u32			over;
	u32			killed;
	struct engine_stats	stats;
};

static struct rig rig;
static struct model *model;
static struct adapter *adapters[ADAPTERS];
static char folder[200];
static u32 prompts[PROMPTS][PROMPT];

/* ---- the model and its adapters ---- */

/* An adapter with made-up numbers, made by a program of the tests. */
static struct adapter *adapter_make(u32 seed)
{
	struct adapter *a = NULL;
	struct model_error err;
	char line[800], dir[240];

	snprintf(dir, sizeof(dir), "%s/a%u", folder, seed);
	snprintf(line, sizeof(line),
		 "python3 tests/data/make_adapter.py %s %s --rank %u --seed %u --targets all",
		 demo_model(), dir, RANK, seed);
	ck_assert_int_eq(system(line), 0);
	ck_assert_msg(!adapter_load(model, dir, RANK, &a, &err), "%s", err.text);
	return a;
}

static void world_start(void)
{
	const struct model_opts o = { .mode = MODEL_EXACT, .nr_threads = 2, .max_rank = RANK };
	struct model_error err;
	u32 i, k;

	ck_assert_msg(!model_load(demo_model(), &o, &model, &err), "%s", err.text);
	ck_assert_ptr_nonnull(mkdtemp(tmp_name(folder, sizeof(folder), "adapters")));
	for (i = 0; i < ADAPTERS; i++)
		adapters[i] = adapter_make(i + 1);
	for (i = 0; i < PROMPTS; i++)
		for (k = 0; k < PROMPT; k++)
			prompts[i][k] = 300 + (i * 7919 + k * (k < 20 ? 31 : 57 + i)) % 3000;
}

static void world_end(void)
{
	char line[240];
	u32 i;

	for (i = 0; i < ADAPTERS; i++)
		adapter_free(adapters[i]);
	model_free(model);
	snprintf(line, sizeof(line), "rm -r %s", folder);
	ck_assert_int_eq(system(line), 0);
}

/* ---- requests ---- */

static void on_token(void *arg, u32 sample, const struct engine_token *t)
{
	struct ask *a = arg;

	ck_assert_uint_lt(a->nr[sample], NEW);
	a->ids[sample][a->nr[sample]++] = t->id;
	a->run->tokens++;
}

static void on_done(void *arg, const struct engine_done *done)
{
	struct ask *a = arg;

	ck_assert_msg(done->reason == ENGINE_LENGTH, "%s: %s",
		      engine_reason_name(done->reason), done->text);
	a->run->over += ++a->dones == SAMPLES;
}

static void submit(struct engine *e, struct run *run, u32 i)
{
	const u32 which = i % (ADAPTERS + 1);
	struct engine_error err = { "" };
	const struct engine_request c = {
		.ids = prompts[i / (ADAPTERS + 1)], .nr = PROMPT, .max_new = NEW, .n = SAMPLES,
		.sampling = { .top_p = 1.0f, .temperature = 0.7f, .seed = 5 },
		.adapter = which < ADAPTERS ? adapters[which] : NULL,
		.on_token = on_token, .on_done = on_done, .arg = &run->ask[i],
	};

	run->ask[i].run = run;
	ck_assert_msg(!engine_submit(e, &c, NULL, &err), "%s", err.text);
}

/* Kill kvmm now and then; kvmm-hold starts the next one. */
static void maybe_kill(struct run *run)
{
	if (!run->kill || run->tokens < (run->killed + 1) * run->kill)
		return;
	kill(rig_daemon(&rig), SIGKILL);
	run->killed++;
	/* A daemon that dies at once again is not adopted for ever. */
	nap_ms(700);
}

static void step(struct engine *e, struct run *run)
{
	ck_assert_msg(engine_step(e, STEP_NS) >= 0, "%s", engine_strerror(e));
	maybe_kill(run);
}

/* The request that comes as number @i. */
static u32 nth(const struct run *run, u32 i)
{
	return run->grouped ? i % PROMPTS * (ADAPTERS + 1) + i / PROMPTS : i;
}

static void play(struct run *run)
{
	char path[RIG_PATH + 16];
	const struct engine_opts o = {
		.socket = path, .block_tokens = BLOCK, .max_rank = RANK,
		.max_seqs = run->seqs ? run->seqs : 64,
		.max_batch = 32,
	};
	struct engine_error err = { "" };
	const u64 end = now_ms() + 60000 * time_scale();
	struct engine *e;
	u32 i;

	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	ck_assert_msg(!engine_create(model, &o, &e, &err), "%s", err.text);
	for (i = 0; run->over < REQUESTS;) {
		ck_assert_msg(now_ms() < end, "%u of %u requests are over", run->over, REQUESTS);
		if (i < REQUESTS && (!run->window || i - run->over < run->window))
			submit(e, run, nth(run, i++));
		else
			step(e, run);
	}
	engine_get_stats(e, &run->stats);
	for (i = 0; i < ADAPTERS; i++)
		while (engine_adapter_forget(e, adapters[i]))
			step(e, run);
	engine_destroy(e);
}

static void same_tokens(const struct run *a, const struct run *b, const char *what)
{
	u32 i;

	for (i = 0; i < REQUESTS; i++)
		ck_assert_msg(!memcmp(a->ask[i].ids, b->ask[i].ids, sizeof(a->ask[i].ids)),
			      "%s: request %u of adapter %u has other tokens", what, i,
			      i % (ADAPTERS + 1));
}

/* Blocks of all adapters. */
static u64 all_blocks(void)
{
	struct model_error err;

	return ADAPTERS * adapter_blocks(adapters[0], adapter_block_bytes(model, RANK, &err));
}

/* ---- scenes ---- */

static struct run truth;

static void in_ample_memory(void)
{
	struct run all = { 0 }, again = { 0 };
	u32 i, differ = 0;

	rig_start(&rig, "--pool-size", "64M", "--extent-size", "1M", NULL);
	truth.window = 1;
	play(&truth);
	for (i = 1; i <= ADAPTERS; i++)
		differ += !!memcmp(truth.ask[0].ids, truth.ask[i].ids, sizeof(truth.ask[i].ids));
	/* The same prompt, and a cached prefix: an adapter still changes the text. */
	ck_assert_uint_eq(differ, ADAPTERS);
	ck_assert_uint_eq(truth.stats.adapter_blocks_read, all_blocks());
	play(&all);
	same_tokens(&truth, &all, "all at once");
	play(&again);
	same_tokens(&truth, &again, "a runtime that was started again");
	/* The daemon has kept the adapters, and their prompts. */
	ck_assert_uint_eq(all.stats.adapter_blocks_read, 0);
	ck_assert_uint_eq(again.stats.adapter_blocks_read, 0);
	ck_assert_uint_ge(again.stats.adapter_blocks_found, all_blocks());
	ck_assert_uint_gt(again.stats.cached_tokens, 0);
	rig_walk(&rig);
	rig_stop(&rig);
	printf("total: ample memory: %u requests, %llu blocks of %u adapters read once\n", REQUESTS,
	       (unsigned long long)all_blocks(), ADAPTERS);
}

START_TEST(test_same_tokens)
{
	world_start();
	in_ample_memory();
	world_end();
}
END_TEST

/* Too little memory for all adapters at once, or for KV beside them. */
static void under_pressure(const char *pool, const char *host)
{
	struct run run = { 0 }, again = { .grouped = true, .window = PROMPTS };

	rig_start(&rig, "--pool-size", pool, "--extent-size", "256K", "--host-size", host, NULL);
	play(&run);
	same_tokens(&truth, &run, "under pressure");
	play(&again);
	same_tokens(&truth, &again, "adapters in turn");
	rig_walk(&rig);
	printf("total: pool %s, host %s: %llu preemptions; adapters in turn: %llu blocks read from files, %llu found\n",
	       pool, host, (unsigned long long)run.stats.preemptions,
	       (unsigned long long)again.stats.adapter_blocks_read,
	       (unsigned long long)again.stats.adapter_blocks_found);
	ck_assert_uint_gt(run.stats.preemptions, 0);
	ck_assert_uint_ge(again.stats.adapter_blocks_read + again.stats.adapter_blocks_found,
			  all_blocks());
	rig_stop(&rig);
}

START_TEST(test_pressure)
{
	world_start();
	if (!truth.over)
		in_ample_memory();
	under_pressure("2M", "8M");
	if (time_scale() > 1) {
		printf("note: pools of 2M and 3M without a host pool: not in sanitized builds\n");
	} else {
		under_pressure("2M", "0");
		under_pressure("3M", "0");
	}
	world_end();
}
END_TEST

/*
 * Adapters of requests in the queue must not hold the memory that the first request's adapter
 * waits for.  The daemon takes no memory from a sequence for the one that has waited longest.
 */
START_TEST(test_queue_goes_on)
{
	struct run run = { .seqs = 2 * SAMPLES };

	world_start();
	in_ample_memory();
	rig_start(&rig, "--pool-size", "1M", "--extent-size", "256K", "--starve-ms", "600000", NULL);
	play(&run);
	same_tokens(&truth, &run, "with few places");
	rig_walk(&rig);
	rig_stop(&rig);
	world_end();
}
END_TEST

START_TEST(test_daemon_killed)
{
	struct run run = { .kill = 300 };

	world_start();
	if (!truth.over)
		in_ample_memory();
	rig_start(&rig, "--pool-size", "6M", "--extent-size", "256K", NULL);
	play(&run);
	same_tokens(&truth, &run, "while kvmm was killed");
	ck_assert_uint_ge(run.killed, 3);
	rig_walk(&rig);
	rig_stop(&rig);
	printf("total: kvmm killed %u times\n", run.killed);
	world_end();
}
END_TEST

/* ---- one request and its adapter ---- */

static void on_end(void *arg, const struct engine_done *done)
{
	ck_assert_msg(done->reason == ENGINE_LENGTH, "%s: %s",
		      engine_reason_name(done->reason), done->text);
	*(bool *)arg = true;
}

static void on_any(void *arg, u32 sample, const struct engine_token *t)
{
}

/* Ask for @max_new tokens.  Return: false if kvrt refuses, else when all have come. */
static bool alone(struct engine *e, u32 max_new)
{
	const u64 end = now_ms() + 60000 * time_scale();
	struct engine_error err = { "" };
	bool over = false;
	const struct engine_request c = {
		.ids = prompts[0], .nr = PROMPT, .max_new = max_new, .n = 1, .adapter = adapters[0],
		.sampling = { .top_p = 1.0f }, .on_token = on_any, .on_done = on_end, .arg = &over,
	};
	const int ret = engine_submit(e, &c, NULL, &err);

	ck_assert_msg(!ret || ret == -E2BIG, "%s", err.text);
	while (!ret && !over) {
		ck_assert_msg(now_ms() < end, "%u tokens do not end", max_new);
		ck_assert_msg(engine_step(e, STEP_NS) >= 0, "%s", engine_strerror(e));
	}
	return !ret;
}

/*
 * A pool holds the request, and it holds the adapter, but not both: the daemon refuses neither,
 * and they would wait for each other.  The longest request that is taken ends.
 */
START_TEST(test_fits_beside_adapter)
{
	char path[RIG_PATH + 16];
	const struct engine_opts o = { .socket = path, .block_tokens = BLOCK, .max_rank = RANK };
	struct engine_error err = { "" };
	u32 nr = 240 - PROMPT;
	struct engine *e;

	world_start();
	rig_start(&rig, "--pool-size", "1M", "--extent-size", "64K", NULL);
	snprintf(path, sizeof(path), "%s/attach.sock", rig.dir);
	ck_assert_msg(!engine_create(model, &o, &e, &err), "%s", err.text);
	ck_assert(!alone(e, nr));
	while (nr && !alone(e, nr))
		nr--;
	ck_assert_uint_gt(nr, 0);
	printf("total: beside its adapter a request of %u tokens fits\n", PROMPT + nr);
	while (engine_adapter_forget(e, adapters[0]))
		ck_assert_int_ge(engine_step(e, STEP_NS), 0);
	engine_destroy(e);
	rig_walk(&rig);
	rig_stop(&rig);
	world_end();
}
END_TEST

/* ---- the domain of the adapters ---- */

START_TEST(test_domain_shows)
{
	struct run run = { 0 };
	struct job j;
	char *text;

	world_start();
	rig_start(&rig, "--pool-size", "64M", "--extent-size", "1M", NULL);
	play(&run);
	j = job_start(&rig, "kvctl", "cat", "domains", NULL);

	ck_assert_int_eq(job_wait(&j, 20), 0);
	text = slurp(j.out);
	ck_assert_ptr_nonnull(strstr(text, ".lora"));
	free(text);
	rig_stop(&rig);
	world_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("adapters");
	TCase *t = tcase_create("all");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 600);
	tcase_add_test(t, test_same_tokens);
	tcase_add_test(t, test_pressure);
	tcase_add_test(t, test_queue_goes_on);
	tcase_add_test(t, test_daemon_killed);
	tcase_add_test(t, test_fits_beside_adapter);
	tcase_add_test(t, test_domain_shows);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
