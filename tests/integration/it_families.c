// SPDX-License-Identifier: Apache-2.0
/*
 * it_families.c - exactness under pressure, for every family
 *
 * budget: 60 s, full 200 s
 *
 * The tiny configurations of tests/data/families get made-up weights and the
 * tokenizer of the demo model; the demo model itself is quantized in four ways.
 * Two runtimes work at once, one with prompts of one sample, the other with
 * prompts that fork: once in a pool that fits
 * everything, once in a pool, a host pool and an area so small that blocks are
 * shared, copied on write, evicted, swapped and recomputed.  Greedy tokens in
 * exact mode must be the same.  Each family must have copied on write and been
 * preempted; swapping and recomputing are summed over the families, since they
 * depend on timing.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/integration/prompts.h"

#define NR_SINGLE	10	/* prompts with one sample */
#define NR_FORKED	3	/* prompts with three */
#define RUNS_MAX	5u
#define NR_FORKS	3
#define POOL_TOKENS	512	/* tokens that the small pool holds */

/* The demo model, and how it is quantized. */
#define DEMO	"demo-"

/*
 * Families, and bytes of KV a token, or a bit more: 512 tokens are whole extents.  Longer
 * levels use the later rows.
 */
static const struct {
	const char	*name;
	u32		bytes;
} cases[] = {
	{ "llama", 512 }, { "mistral", 1024 }, { "qwen2", 512 },
	{ "qwen3", 1024 }, { "phi3", 512 }, { "gemma2", 1536 },
	{ "gemma3", 1024 }, { "gpt2", 1024 }, { "opt", 1024 },
	{ "neox", 1024 }, { "qwen3-moe", 1536 }, { "gpt-oss", 2048 },
	{ "deepseek2-moe", 640 }, { DEMO "q4_k", 2048 },
	{ DEMO "q8_0", 2048 }, { DEMO "fp8", 2048 }, { DEMO "int8", 2048 },
	{ "llama-linear", 512 }, { "llama-dynamic", 512 },
	{ "llama-llama3", 512 }, { "llama-yarn", 512 },
	{ "qwen2-window", 512 }, { "neox-sequential", 1024 },
	{ "qwen3-moe-all", 2048 }, { "deepseek2-yarn", 640 },
	{ "deepseek2-groups-moe", 768 },
	{ "olmo2", 512 }, { "smollm3-window", 768 }, { "cohere-qk-norm", 512 },
	{ "cohere2", 1024 }, { "gemma1", 512 }, { "phi", 512 },
	{ "starcoder2", 512 }, { "stablelm-qk-norm", 512 },
	{ "opt-behind", 1024 }, { "phi3-long", 512 },
	{ "mistral-head120", 2048 },
	/* With recurrent layers, for test_recurrent alone. */
	{ "granite", 256 }, { "granite-rope", 512 }, { "bamba", 512 },
};

#define NR_RECURRENT	3u
#define NR_PLAIN	(ARRAY_SIZE(cases) - NR_RECURRENT)
#define NR_FAMILIES	14u

struct run {
	struct samples	single;
	struct samples	forked;
};

static struct rig rig;
static const char *kv_groups = "one";	/* --kv-groups of the runtimes */
static const char *state_tokens = "256";	/* --state-tokens */
static const char *chunk = "0";	/* --chunk */

/* ---- a model folder ---- */

static void change(json_t *o, const char *key, int value)
{
	if (json_object_get(o, key))
		json_object_set_new(o, key, json_integer(value));
}

static void link_tokenizer(const char *dir, const char *file)
{
	char from[RIG_PATH + 64], to[RIG_PATH * 2], *whole;

	snprintf(from, sizeof(from), "%s/%s", demo_model(), file);
	snprintf(to, sizeof(to), "%s/%s", dir, file);
	whole = realpath(from, NULL);
	ck_assert_msg(whole != NULL, "%s", from);
	ck_assert_int_eq(symlink(whole, to), 0);
	free(whole);
}

/* Write the case, with the vocabulary and the context that the prompts need. */
static void model_write(const char *name, char *dir, size_t size)
{
	const char *top = getenv("KVMM_TOP");
	char path[RIG_PATH * 2];
	json_t *o;

	snprintf(dir, size, "%s/%s", rig.dir, name);
	if (!strncmp(name, DEMO, strlen(DEMO)))
		snprintf(dir, size, "%s", demo_model());
	if (!access(dir, F_OK))
		return;		/* an earlier run wrote it */
	snprintf(path, sizeof(path), "%s/tests/data/families/%s/config.json",
		 top ? top : ".", name);
	o = json_load_file(path, 0, NULL);
	ck_assert_msg(o != NULL, "%s", path);
	json_object_set_new(o, "vocab_size", json_integer(4096));
	change(o, "n_positions", 1024);
	if (strcmp(name, "llama-dynamic"))
		change(o, "max_position_embeddings", 1024);
	ck_assert_msg(!mkdir(dir, 0700), "%s: %s", dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/config.json", dir);
	ck_assert_int_eq(json_dump_file(o, path, 0), 0);
	json_decref(o);
	link_tokenizer(dir, "tokenizer.json");
	link_tokenizer(dir, "tokenizer_config.json");
}

/* ---- a run ---- */

static struct job generate(u32 i, const char *dir, const char *prompts, u32 n)
{
	const bool demo = !strncmp(cases[i].name, DEMO, strlen(DEMO));
	const char *type = demo ? cases[i].name + strlen(DEMO) : "none";
	char count[8];

	snprintf(count, sizeof(count), "%u", n);
	return job_start(&rig, KVRT_GENERATE, dir, "--load-format",
			 demo ? "auto" : "dummy", "--domain", cases[i].name,
			 "--quantization", type,
			 "--prompt-file", prompts, "-n", count,
			 "--temperature", "0", "--max-tokens", "64",
			 "--threads", "1", "--ignore-eos", "--mode", "exact",
			 "--kv-groups", kv_groups,
			 "--state-tokens", state_tokens, "--chunk", chunk, "--json",
			 NULL);
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

static void run_case(u32 i, struct run *out)
{
	char single[RIG_PATH + 32], forked[RIG_PATH + 32];
	char dir[RIG_PATH + 32];
	struct job a, b;

	snprintf(single, sizeof(single), "%s/single.txt", rig.dir);
	snprintf(forked, sizeof(forked), "%s/forked.txt", rig.dir);
	prompts_write(single, 0, NR_SINGLE, "");
	prompts_write(forked, NR_SINGLE, NR_FORKED, "");
	model_write(cases[i].name, dir, sizeof(dir));
	a = generate(i, dir, single, 1);
	b = generate(i, dir, forked, NR_FORKS);
	take(&a, &out->single, NR_SINGLE);
	take(&b, &out->forked, NR_FORKS * NR_FORKED);
	rig_walk(&rig);
}

/* ---- proofs ---- */

#define PROOFS(x)							\
	x(pgcow) x(pgreuse) x(demote_free) x(pgdemote) x(pswpout)	\
	x(preempt_swap) x(swap_restore) x(preempt_recompute)

enum {
#define x(name) PROOF_##name,
	PROOFS(x)
#undef x
	NR_PROOFS
};

static const char * const proof_name[] = {
#define x(name) #name,
	PROOFS(x)
#undef x
};

static void proofs_add(const char *name, s64 *sum)
{
	s64 v[NR_PROOFS];
	u32 i;

	printf("  %s:", name);
	for (i = 0; i < NR_PROOFS; i++) {
		v[i] = rig_value(&rig, "vmstat", proof_name[i]);
		ck_assert_int_ge(v[i], 0);
		printf(" %s %lld", proof_name[i], (long long)v[i]);
		sum[i] += v[i];
	}
	printf("\n");
	fflush(stdout);
	ck_assert_int_gt(v[PROOF_pgcow], 0);
	ck_assert_int_gt(v[PROOF_preempt_swap] + v[PROOF_preempt_recompute],
			 0);
}

static bool preempted(void)
{
	return rig_value(&rig, "vmstat", "preempt_swap") +
	       rig_value(&rig, "vmstat", "preempt_recompute") > 0;
}

static const char * const swappiness[] = { "200", "0", "100" };

/* Start a daemon with a device pool of @tokens of the case. */
static void small_start(u32 i, u32 tokens, const char *swaps)
{
	char pool[16], area[RIG_PATH + 16];
	struct job j;

	snprintf(pool, sizeof(pool), "%uK",
		 tokens * cases[i].bytes / 1024);
	rig_start(&rig, "--pool-size", pool, "--extent-size", "64K",
		  "--host-size", i % 2 ? "1M" : "512K", "--area-max", "16M",
		  "--swappiness", swaps,
		  "--min-token-bytes", "64", NULL);
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	j = job_start(&rig, "kvctl", "swapon", area, "--size", "16M", NULL);
	if (job_wait(&j, 30))
		ck_abort_msg("swapon: %s", slurp(j.err));
}

/*
 * The text must be the same each time.  On a busy machine one runtime may end
 * before the other one needs memory: then both run again.
 */
static void small_run(u32 i, const struct run *truth)
{
	struct run have;
	u32 n;

	for (n = 0; n < RUNS_MAX && !preempted(); n++) {
		run_case(i, &have);
		samples_equal(&truth->single, &have.single);
		samples_equal(&truth->forked, &have.forked);
		samples_free(&have.single);
		samples_free(&have.forked);
	}
}

START_TEST(test_every_family)
{
	const u32 nr = by_level(NR_FAMILIES, NR_PLAIN, NR_PLAIN);
	struct run truth[ARRAY_SIZE(cases)];
	s64 sum[NR_PROOFS] = { 0 };
	u32 i;

	rig_start(&rig, "--pool-size", "256M", "--extent-size", "1M",
		  "--min-token-bytes", "512", NULL);
	for (i = 0; i < nr; i++)
		run_case(i, &truth[i]);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "preempt_mark"), 0);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "prefix_evict"), 0);
	rig_stop(&rig);
	for (i = 0; i < nr; i++) {
		small_start(i, POOL_TOKENS, swappiness[i % 3]);
		small_run(i, &truth[i]);
		proofs_add(cases[i].name, sum);
		samples_free(&truth[i].single);
		samples_free(&truth[i].forked);
		rig_stop(&rig);
	}
	for (i = 0; i < NR_PROOFS; i++)
		ck_assert_msg(sum[i] > 0, "%s never happened", proof_name[i]);
}
END_TEST

/* Has domain @name a second layer group of @kind?  Its line begins with its number. */
static bool has_groups(const char *name, const char *kind)
{
	char file[64], key[16];

	snprintf(file, sizeof(file), "domain/%s/groups", name);
	snprintf(key, sizeof(key), "    1 %5s", kind);
	return rig_value(&rig, file, key) > 0;
}

/* One model in a pool of @tokens, with a layer group for each kind of layers. */
static void groups_run(u32 i, u32 tokens, const char *swaps, s64 *sum)
{
	struct run truth;

	kv_groups = "one";
	rig_start(&rig, "--pool-size", "256M", "--extent-size", "1M",
		  "--min-token-bytes", "64", NULL);
	run_case(i, &truth);
	rig_stop(&rig);
	kv_groups = "auto";
	small_start(i, tokens, swaps);
	small_run(i, &truth);
	rig_walk(&rig);
	ck_assert_msg(has_groups(cases[i].name, "kv"), "%s has one layer group",
		      cases[i].name);
	proofs_add(cases[i].name, sum);
	samples_free(&truth.single);
	samples_free(&truth.forked);
	rig_stop(&rig);
	kv_groups = "one";
}

/*
 * Models with windows beside full attention, in layer groups: the texts are those of
 * one group, when sequences are preempted by swap and by recompute, and forked.
 */
START_TEST(test_layer_groups)
{
	s64 sum[NR_PROOFS] = { 0 };
	u32 i, n;

	for (i = 0; i < NR_FAMILIES; i++) {
		if (strncmp(cases[i].name, "gemma", 5) &&
		    strcmp(cases[i].name, "gpt-oss"))
			continue;
		for (n = 0; n < 2; n++)
			groups_run(i, strcmp(cases[i].name, "gemma3") ?
				   POOL_TOKENS / 2 : POOL_TOKENS * 3 / 4,
				   swappiness[n], sum);
	}
	for (i = 0; i < NR_PROOFS; i++)
		ck_assert_msg(sum[i] > 0, "%s never happened", proof_name[i]);
}
END_TEST

/*
 * Models with recurrent layers: the texts are the same when their records are shared and
 * copied, found in the cache, swapped and recomputed, whatever the distance of records.
 */
START_TEST(test_recurrent)
{
	/* 64 tokens of the daemon's least bytes a token are a block of these models. */
	static const char * const every[] = { "64", "16" };
	static const u32 kib[NR_RECURRENT] = { 1024, 384, 512 };
	struct run truth[NR_RECURRENT];
	s64 sum[NR_PROOFS] = { 0 };
	u32 i, n, of;

	state_tokens = every[0];
	chunk = "32";
	rig_start(&rig, "--pool-size", "256M", "--extent-size", "1M",
		  "--min-token-bytes", "64", NULL);
	for (i = 0; i < NR_RECURRENT; i++)
		run_case(NR_PLAIN + i, &truth[i]);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "preempt_mark"), 0);
	rig_stop(&rig);
	for (i = 0; i < NR_RECURRENT; i++) {
		of = NR_PLAIN + i;
		for (n = 0; n < 2; n++) {
			state_tokens = every[(i + n) % 2];
			small_start(of, kib[i] * 1024 / cases[of].bytes,
				    swappiness[n]);
			small_run(of, &truth[i]);
			rig_walk(&rig);
			ck_assert_msg(has_groups(cases[of].name, "state"),
				      "%s has one layer group", cases[of].name);
			proofs_add(cases[of].name, sum);
			rig_stop(&rig);
		}
		samples_free(&truth[i].single);
		samples_free(&truth[i].forked);
	}
	state_tokens = "256";
	chunk = "0";
	for (i = 0; i < NR_PROOFS; i++)
		ck_assert_msg(sum[i] > 0, "%s never happened", proof_name[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("families");
	TCase *tc = tcase_create("under-pressure");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 400);
	tcase_add_test(tc, test_every_family);
	tcase_add_test(tc, test_layer_groups);
	tcase_add_test(tc, test_recurrent);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
