// SPDX-License-Identifier: Apache-2.0
/*
 * it_serve_room.c - kvrt serve says how many requests fit, or refuses the pool
 *
 * A block of the demo model has 64 KiB in f32, so each extent of the pools here holds
 * one block of 16 tokens.
 */
#include "tests/integration/serve.h"

#define GROUPS	"tests/data/families/gemma3", "--load-format", "dummy", "--dtype", "f32", \
		"--kv-groups", "auto"

static struct rig rig;

/* A server with an option more ends with @want and one line that has these words. */
static void refused_with(const char *option, const char *value, int want,
			 const char *says, const char *remedy)
{
	struct job j = job_start(&rig, "kvrt", "serve", demo_model(), "--dtype",
				 "f32", "--port", "0", "--threads", "1", option,
				 value, NULL);
	int code = job_wait(&j, 60);
	char *err = slurp(j.err);

	ck_assert_msg(code == want, "ended with %d:\n%s", code, err);
	ck_assert_msg(strstr(err, says) && strstr(err, remedy),
		      "does not say '%s' and '%s':\n%s", says, remedy, err);
	ck_assert_msg(!strstr(err, "ready: "), "%s", err);
	free(err);
}

static void said(const struct served *s, const char *words)
{
	char *err = slurp(s->job.err);

	ck_assert_msg(strstr(err, words) != NULL, "does not say '%s':\n%s",
		      words, err);
	free(err);
}

/* Wait until a line of the log says that the server has nearly all of its pool. */
static void await_full(const struct served *s)
{
	const u64 end = now_ms() + 30000 * time_scale();
	bool full = false;

	while (!full) {
		char *err = slurp(s->job.err), *at = strstr(err, ", pool ");

		for (; at && !full; at = strstr(at + 1, ", pool "))
			full = strtod(at + strlen(", pool "), NULL) > 90;
		ck_assert_msg(full || now_ms() < end, "no full pool:\n%s", err);
		free(err);
		nap_ms(50);
	}
}

/* A pool of 16 blocks holds 256 tokens, and a request of all of them. */
START_TEST(test_pool)
{
	struct served s;

	rig_start(&rig, "--pool-size", "1M", "--extent-size", "64K",
		  "--min-token-bytes", "1024", NULL);
	refused_with("--loops", "1", 78,
		     "demo-model: the daemon's pool of 1M holds 256 tokens, less than one sequence of 1024: ",
		     "give --max-model-len 256, or the daemon --pool-size 4M\n");
	refused_with("--max-model-len", "257", 78, "less than one sequence of 257",
		     "--pool-size 1088K\n");
	serve_start(&s, &rig, "--max-model-len", "256", NULL);
	serve_await(&s, 200, 30);
	said(&s, "demo-model: 3.8 M parameters, f32, KV f32, fast, kernels cpu (");
	said(&s, "), blocks of 16 tokens\n");
	said(&s, "demo-model: the pool of 1M, shared with all other models, holds 256 tokens: 1 request of 256 tokens, the full length, at once\n");
	ck_assert_int_eq(web_ask(s.port, "/v1/completions",
				 "{\"prompt\":\"In\",\"max_tokens\":250,\"ignore_eos\":true}",
				 NULL), 200);
	serve_stop(&s);
	rig_stop(&rig);
}
END_TEST

/* Of several device pools that of the domain counts, and the words name it. */
START_TEST(test_pools)
{
	struct served s;

	rig_start(&rig, "--pool", "host:2M", "--pool", "host:4M", "--extent-size", "64K",
		  NULL);
	refused_with("--pool", "gpu0", 78,
		     "demo-model: the daemon's pool gpu0 of 2M holds 512 tokens, less than one sequence of 1024: ",
		     "give --max-model-len 512, another --pool, or, for gpu0, the daemon --pool host:4M\n");
	serve_start(&s, &rig, "--pool", "gpu1", NULL);
	serve_await(&s, 200, 30);
	said(&s, "demo-model: the pool gpu1 of 4M, shared with all other models, holds 1024 tokens: 1 request of 1024 tokens, the full length, at once\n");
	/* 1005 tokens in blocks of 16: nearly the whole pool, and not two thirds of both. */
	ck_assert_int_eq(web_ask(s.port, "/v1/completions",
				 "{\"prompt\":\"In\",\"max_tokens\":1000,\"ignore_eos\":true}",
				 NULL), 200);
	await_full(&s);
	serve_stop(&s);
	rig_stop(&rig);
}
END_TEST

/* The limit of the model's own domain counts as a pool does. */
START_TEST(test_limit)
{
	struct served s;

	rig_start(&rig, "--pool-size", "16M", "--extent-size", "64K", NULL);
	refused_with("--memory-max", "2M", 78,
		     "--memory-max holds 512 tokens, less than one sequence of 1024: ",
		     "give --max-model-len 512, or --memory-max 4M\n");
	serve_start(&s, &rig, "--memory-max", "8M", NULL);
	serve_await(&s, 200, 30);
	said(&s, "--memory-max of the pool of 16M, shared with all other models, holds 2048 tokens: 2 requests of 1024 tokens, the full length, at once\n");
	serve_stop(&s);
	rig_stop(&rig);
}
END_TEST

/* So does a limit that the operator gave the domain, if it is the lower one. */
START_TEST(test_domain_limit)
{
	struct served s;

	rig_start(&rig, "--pool-size", "16M", "--extent-size", "64K", "--domain",
		  "demo-model,max=4M", NULL);
	serve_start(&s, &rig, "--memory-max", "8M", NULL);
	serve_await(&s, 200, 30);
	said(&s, "demo-model: memory.max of domain demo-model, of the pool of 16M, shared with all other models, holds 1024 tokens: 1 request of 1024 tokens, the full length, at once\n");
	serve_stop(&s);
	rig_stop(&rig);

	rig_start(&rig, "--pool-size", "16M", "--extent-size", "64K", "--domain",
		  "demo-model,max=2M", NULL);
	refused_with("--loops", "1", 78,
		     "demo-model: memory.max of domain demo-model holds 512 tokens, less than one sequence of 1024: ",
		     "give --max-model-len 512, or kvctl set domain/demo-model/memory.max 4M\n");
	rig_stop(&rig);
}
END_TEST

/* A model whose tokens are smaller than the daemon's least: both numbers. */
START_TEST(test_token)
{
	rig_start(&rig, "--pool-size", "16M", "--min-token-bytes", "8192", NULL);
	refused_with("--loops", "1", 69,
		     "a token's KV has 4096 bytes, less than the daemon's --min-token-bytes 8192: ",
		     "start the daemon with --min-token-bytes 4096 or less\n");
	rig_stop(&rig);
}
END_TEST

/* With layer groups the number is that of kvrt inspect, far below the KV of a token. */
START_TEST(test_token_groups)
{
	static const char refusal[] = "a token's KV has 256 bytes, less than the daemon's --min-token-bytes 512: start the daemon with --min-token-bytes 256 or less\n";
	struct job j;
	char *text;

	rig_start(&rig, "--pool-size", "16M", "--min-token-bytes", "512", NULL);
	j = job_start(&rig, "kvrt", "inspect", GROUPS, NULL);
	ck_assert_int_eq(job_wait(&j, 60), 0);
	text = slurp(j.out);
	ck_assert_msg(strstr(text, "--min-token-bytes  256 at most") != NULL, "%s", text);
	free(text);
	j = job_start(&rig, "kvrt", "bench", "throughput", GROUPS, NULL);
	ck_assert_int_eq(job_wait(&j, 60), 69);
	text = slurp(j.err);
	ck_assert_msg(strstr(text, refusal) != NULL, "%s", text);
	free(text);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("serve-room");
	TCase *tc = tcase_create("room");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_pool);
	tcase_add_test(tc, test_pools);
	tcase_add_test(tc, test_limit);
	tcase_add_test(tc, test_domain_limit);
	tcase_add_test(tc, test_token);
	tcase_add_test(tc, test_token_groups);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
