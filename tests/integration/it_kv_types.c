// SPDX-License-Identifier: Apache-2.0
/*
 * it_kv_types.c - KV in narrow types, from the outside
 *
 * budget: 60 s, full 90 s
 *
 * The daemon handles blocks without knowing their type, and scales are stored
 * in the blocks, so each type must obey the same laws.  Exactness under
 * pressure: two runtimes, one with prompts of one sample, the other with
 * prompts that fork, give the same greedy tokens in a pool that fits everything
 * and in a pool, host pool and area so small that blocks are shared, copied on
 * write, swapped and recomputed.  Cached blocks outlive kvmm.  A type never
 * finds blocks that another type has cached, even if their sizes are equal.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "tests/integration/adopt_scene.h"
#include "tests/integration/prompts.h"
#include "tests/integration/serve.h"

#define NR_SINGLE	10u	/* prompts with one sample */
#define NR_FORKED	3u	/* prompts with three */
#define NR_FORKS	3u
#define RUNS_MAX	5u
#define BLOCK		16u

/* Types, and sizes of small pools that hold some 500 of their tokens. */
static const struct {
	const char	*name;
	const char	*pool;
	const char	*swappiness;
} cases[] = {
	{ "int8", "512K", "200" }, { "f16", "1M", "0" },
	{ "fp8", "512K", "100" },
};

#define NR_CHECK	2u

struct run {
	struct samples	single;
	struct samples	forked;
};

static struct rig rig;

/* ---- the same text under pressure ---- */

static struct job generate(const char *kv, const char *prompts, u32 n)
{
	char count[8];

	snprintf(count, sizeof(count), "%u", n);
	return job_start(&rig, KVRT_GENERATE, demo_model(),
			 "--kv-cache-dtype", kv, "--prompt-file", prompts,
			 "-n", count, "--temperature", "0", "--max-tokens",
			 "64", "--threads", "1", "--ignore-eos", "--mode",
			 "exact", "--json", NULL);
}

static void take(struct job *j, struct samples *s, u32 nr)
{
	int code = job_wait(j, 120);

	if (code)
		ck_abort_msg("kvrt ended with %d:\n%s", code, slurp(j->err));
	samples_read(s, j->out);
	ck_assert_uint_eq(s->nr, nr);
	unlink(j->out);
	unlink(j->err);
}

static void run_both(const char *kv, struct run *out)
{
	char single[RIG_PATH + 32], forked[RIG_PATH + 32];
	struct job a, b;

	snprintf(single, sizeof(single), "%s/single.txt", rig.dir);
	snprintf(forked, sizeof(forked), "%s/forked.txt", rig.dir);
	prompts_write(single, 0, NR_SINGLE, "");
	prompts_write(forked, NR_SINGLE, NR_FORKED, "");
	a = generate(kv, single, 1);
	b = generate(kv, forked, NR_FORKS);
	take(&a, &out->single, NR_SINGLE);
	take(&b, &out->forked, NR_FORKS * NR_FORKED);
	rig_walk(&rig);
}

static void run_free(struct run *r)
{
	samples_free(&r->single);
	samples_free(&r->forked);
}

static s64 happened(const char *what)
{
	return rig_value(&rig, "vmstat", what);
}

/* Was a sequence preempted, and swapped if the case asks for that? */
static bool preempted(u32 i)
{
	if (!strcmp(cases[i].swappiness, "200"))
		return happened("swap_restore") > 0 && happened("pswpout") > 0;
	return happened("preempt_swap") + happened("preempt_recompute") > 0;
}

static void small_start(u32 i)
{
	char area[RIG_PATH + 16];
	struct job j;

	rig_start(&rig, "--pool-size", cases[i].pool, "--extent-size", "64K",
		  "--host-size", "512K", "--area-max", "16M", "--swappiness",
		  cases[i].swappiness, NULL);
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	j = job_start(&rig, "kvctl", "swapon", area, "--size", "16M", NULL);
	if (job_wait(&j, 30))
		ck_abort_msg("swapon: %s", slurp(j.err));
}

/* On a busy machine one runtime may end before the other needs memory: run again. */
static void small_run(u32 i, const struct run *truth)
{
	struct run have;
	u32 n;

	for (n = 0; n < RUNS_MAX && !preempted(i); n++) {
		run_both(cases[i].name, &have);
		samples_equal(&truth->single, &have.single);
		samples_equal(&truth->forked, &have.forked);
		run_free(&have);
	}
	printf("  %s: pgcow %lld, preempt_swap %lld, swap_restore %lld, pswpout %lld, preempt_recompute %lld\n",
	       cases[i].name, (long long)happened("pgcow"),
	       (long long)happened("preempt_swap"),
	       (long long)happened("swap_restore"),
	       (long long)happened("pswpout"),
	       (long long)happened("preempt_recompute"));
	ck_assert(preempted(i));
	ck_assert_int_gt(happened("pgcow"), 0);
}

START_TEST(test_pressure)
{
	const u32 nr = by_level(NR_CHECK, ARRAY_SIZE(cases),
				ARRAY_SIZE(cases));
	struct run truth[ARRAY_SIZE(cases)];
	u32 i;

	rig_start(&rig, "--pool-size", "64M", "--extent-size", "1M", NULL);
	for (i = 0; i < nr; i++)
		run_both(cases[i].name, &truth[i]);
	ck_assert_int_eq(happened("preempt_mark"), 0);
	rig_stop(&rig);
	for (i = 0; i < nr; i++) {
		small_start(i);
		small_run(i, &truth[i]);
		run_free(&truth[i]);
		rig_stop(&rig);
	}
}
END_TEST

/* ---- no type finds blocks of another ---- */

/* Complete blocks found cached: the prompts of a run begin with the same token. */
static u32 cached_by(const char *kv, const char *domain)
{
	char prompts[RIG_PATH + 32];
	struct samples s;
	struct job j;
	u32 i, n = 0;

	snprintf(prompts, sizeof(prompts), "%s/few.txt", rig.dir);
	prompts_write(prompts, 0, 3, "");
	j = job_start(&rig, KVRT_GENERATE, demo_model(),
		      "--kv-cache-dtype", kv, "--prompt-file", prompts,
		      "--domain", domain, "--max-tokens", "2", "--threads",
		      "1", "--json", NULL);
	take(&j, &s, 3);
	for (i = 0; i < s.nr; i++)
		n += s.s[i].cached / BLOCK;
	samples_free(&s);
	return n;
}

/* A block must have the size that kvrt inspect prints. */
static void inspect_compare(const char *kv)
{
	struct job j = job_start(&rig, "kvrt", "inspect", demo_model(),
				 "--kv-cache-dtype", kv, "--json", NULL);
	json_t *o;

	ck_assert_int_eq(job_wait(&j, 60), 0);
	o = json_load_file(j.out, 0, NULL);
	ck_assert_str_eq(json_string_value(json_object_get(o, "kv_cache_dtype")),
			 kv);
	ck_assert_int_eq(json_integer_value(json_object_get(o, "block_bytes")),
			 rig_value(&rig, "domain/one/status", "BlockBytes"));
	json_decref(o);
}

/* bf16 and f16 have blocks of the same size, and so have int8 and fp8. */
START_TEST(test_types_apart)
{
	static const char * const turns[] = {
		"bf16", "f16", "int8", "fp8", "f32", "int8",
	};
	u32 i;

	rig_start(&rig, "--pool-size", "32M", "--extent-size", "1M", NULL);
	for (i = 0; i < ARRAY_SIZE(turns); i++) {
		/* The domain is new, or another type has filled it. */
		ck_assert_msg(!cached_by(turns[i], "one"), "%s", turns[i]);
		ck_assert_msg(cached_by(turns[i], "one") > 4, "%s", turns[i]);
		inspect_compare(turns[i]);
		rig_walk(&rig);
	}
	/* Domains with different names hold different types side by side. */
	ck_assert_uint_eq(cached_by("fp8", "two"), 0);
	ck_assert_uint_gt(cached_by("fp8", "two"), 4);
	ck_assert_uint_gt(cached_by("int8", "one"), 4);
	rig_stop(&rig);
}
END_TEST

/* ---- a domain in use, and one that outlives kvmm ---- */

#define ASK "{\"prompt\":\"In the beginning there was a house beside the sea, and in the house there was a cat, and nobody had seen\",\"temperature\":0,\"max_tokens\":40,\"ignore_eos\":true}"

START_TEST(test_adopted)
{
	struct served server;
	json_t *first, *again;
	struct job j;
	char *said;

	adopt_world("on", "60000", NULL);
	serve_start(&server, &adopt_rig, "--mode", "exact",
		    "--kv-cache-dtype", "int8", NULL);
	serve_await(&server, 200, 30);
	first = complete(&server, ASK);
	adopt_kill();
	again = complete(&server, ASK);
	ck_assert_str_eq(choice_text(first, 0), choice_text(again, 0));
	ck_assert_int_ge(usage(again, "cached_tokens"), 16);
	ck_assert_uint_eq(adopt_logged("cold start:"), 0);
	json_decref(first);
	json_decref(again);
	/*
	 * As long as the server runs, no client attaches with another type to
	 * its domain.
	 */
	j = job_start(&adopt_rig, KVRT_GENERATE, demo_model(), "--mode",
		      "exact", "--kv-cache-dtype", "fp8", "--quiet", "Who?",
		      NULL);
	ck_assert_int_eq(job_wait(&j, 60), EX_UNAVAILABLE);
	said = slurp(j.err);
	ck_assert_ptr_nonnull(strstr(said, "is in use by another model identity"));
	free(said);
	serve_stop(&server);
	adopt_world_stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kv-types");
	TCase *tc = tcase_create("narrow");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 400);
	tcase_add_test(tc, test_pressure);
	tcase_add_test(tc, test_types_apart);
	tcase_add_test(tc, test_adopted);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
