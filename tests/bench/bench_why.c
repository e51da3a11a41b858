// SPDX-License-Identifier: Apache-2.0
/*
 * bench_why.c - two models on one machine: one pool, or a fixed half each
 *
 * Two kvrt serve, each with its model, and clients that chat with them.  In one
 * arm both use the memory of one kvmm; in the other each has its own kvmm with
 * half of it.  That stands for two runtimes that have a pool each: engine,
 * blocks, prefix cache and eviction are the same, so the arms differ only in how
 * memory is shared.  (One kvmm with memory.max of a half for each would do the
 * same with one daemon less; in practice there would be two.)
 *
 * The load alternates: the first model is busy and the other idle, then the
 * other way round, then both are busy.  A chat goes on through all of that, as
 * chats do, so blocks that it lost while others were busy cost time here.  The
 * chats of a model need about three quarters of the pool: half of it is too
 * small, all of it is enough; those of both together are too much for either arm.
 *
 * Both arms are up at the same time, and take turns load by load; the order
 * changes.  A round is one of each load for each arm.  A figure is the median
 * over the rounds, and the ratio is the median of the ratios of the rounds.
 * Servers have one compute thread each.
 *
 * The last figures are the costs: the CPU time of an idle daemon and its helpers,
 * and the extra time of an engine's step over its own pool (bench_step.c).
 *
 * Usage: bench_why [quick]
 *
 * A table in Markdown goes to standard output, all figures to KVMM_BENCH_OUT.
 */
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/why.h"

#define POOL		(40ull << 20)
#define SYSTEM		64u		/* tokens that all chats begin with */
#define MOST		1000u		/* tokens of a chat */
#define AT_ONCE		4u
#define SETTLE_US	200000		/* from ready to idle */
#define ROUNDS_MAX	BENCH_ROUNDS_MAX
/* Connections stay open from load to load. */
#define PATIENT		"--head-timeout", "86400", "--idle-timeout", "86400"

static struct why_model models[WHY_MODELS] = {
	{
		.name = "a", .token_bytes = 4096,
		.args = { "--domain", "a", "--threads", "1", PATIENT, NULL },
		.chats = { .chats = 14, .seed = 1 },
	}, {
		.name = "b", .token_bytes = 6144,
		.args = { "--domain", "b", "--threads", "1",
			  "--load-format", "dummy", PATIENT, NULL },
		.chats = { .chats = 9, .seed = 2 },
	},
};

static struct why_arm arms[] = {
	{ .name = "kvmm, one pool", .pool = POOL, .model = models },
	{ .name = "a fixed half each", .pool = POOL, .model = models, .split = true },
};

enum { SHARED, SPLIT, NR_ARMS };

/* The idle node whose costs are measured. */
static struct why_arm resting = {
	.name = "kvmm at rest", .pool = POOL, .model = models, .whole = true,
};

/* ---- length of a run ---- */

static const struct extent {
	u32	warm;		/* rounds that do not count */
	u32	rounds;
	u32	requests;	/* of a model in a load */
	u32	idle_s;
} full = { 1, 5, 150, 60 }, quick = { 0, 1, 3, 1 };

/* ---- loads and figures ---- */

static const struct load {
	const char	*name;
	const char	*text;
	u32		busy;
} loads[] = {
	{ "a", "model A busy, B idle", 1 },
	{ "b", "model B busy, A idle", 2 },
	{ "both", "both busy", 3 },
	{ "all", "all of it", 0 },	/* the sum of the others */
};

#define NR_LOADS	ARRAY_SIZE(loads)
#define ALL		(NR_LOADS - 1)

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double ttft(struct why_sum *s, double percent)
{
	qsort(s->ttft, s->nr_ttft, sizeof(double), by_value);
	return s->ttft[min((u32)(s->nr_ttft * percent / 100), s->nr_ttft - 1)];
}

/* Name, text, unit, value of a sum @s; in the table for: each load, or all. */
#define FIGURES(x)							\
	x(tokens, "tokens a second", "tokens/s", s->tokens / s->wall, EACH) \
	x(requests, "requests a second", "1/s", s->requests / s->wall, TOTAL) \
	x(ttft_p50, "TTFT, median", "ms", ttft(s, 50), TOTAL)		\
	x(ttft_p99, "TTFT, p99", "ms", ttft(s, 99), EACH)		\
	x(tokens_cpu, "tokens a second of CPU time", "tokens/s", s->tokens / s->cpu, EACH) \
	x(hits, "prompt tokens found in the cache", "%", 100 * s->found / s->prompt, TOTAL) \
	x(again, "tokens computed again, a request", "tokens", s->again / s->requests, TOTAL) \
	x(swapped, "copied to and from lower tiers, a request", "bytes", s->swapped / s->requests, NEVER) \
	x(empty, "waste: of the pool, held nothing", "%", 100 * s->empty / s->wall, TOTAL) \
	x(unused, "waste: of the pool, held nothing of a busy model", "%", 100 * s->unused / s->wall, EACH) \
	x(daemon, "CPU time of kvmm, of all", "%", 100 * s->cpu_mm / s->cpu, TOTAL)

enum { NEVER, TOTAL, EACH };

enum {
#define x(name, ...) FIG_##name,
	FIGURES(x)
#undef x
	NR_FIGS
};

static const struct {
	const char	*name, *text, *unit;
	u32		where;
} figs[NR_FIGS] = {
#define x(_name, _text, _unit, _value, _where) { #_name, _text, _unit, _where },
	FIGURES(x)
#undef x
};

static void reckon(struct why_sum *s, double *v)
{
#define x(name, text, unit, value, where) v[FIG_##name] = value;
	FIGURES(x)
#undef x
}

static double seen[ROUNDS_MAX][NR_ARMS][NR_LOADS][NR_FIGS];

/* ---- rounds ---- */

static void round_run(const struct extent *x, u32 n, bool counts)
{
	struct why_sum sum[NR_ARMS][NR_LOADS] = { 0 };
	u32 l, i, arm;

	for (l = 0; l < ALL; l++) {
		for (i = 0; i < NR_ARMS; i++) {
			arm = (i + l + n) % NR_ARMS;
			why_load(&arms[arm], loads[l].busy, x->requests,
				 &sum[arm][l]);
			why_sum_add(&sum[arm][ALL], &sum[arm][l]);
		}
	}
	for (arm = 0; arm < NR_ARMS; arm++) {
		for (l = 0; l < NR_LOADS; l++) {
			if (counts)
				reckon(&sum[arm][l], seen[n][arm][l]);
			why_sum_free(&sum[arm][l]);
		}
	}
}

/* ---- results ---- */

struct result {
	double	value[NR_ARMS];
	double	ratio, low, high;	/* NaN: the peer has no figure */
};

static void result_of(u32 load, u32 fig, u32 rounds, struct result *r)
{
	double v[ROUNDS_MAX], ratio[ROUNDS_MAX];
	u32 arm, n;
	bool any = true;

	for (arm = 0; arm < NR_ARMS; arm++) {
		for (n = 0; n < rounds; n++)
			v[n] = seen[n][arm][load][fig];
		r->value[arm] = bench_median(v, rounds);
	}
	for (n = 0; n < rounds; n++) {
		any &= seen[n][SPLIT][load][fig] > 0;
		ratio[n] = seen[n][SHARED][load][fig] / seen[n][SPLIT][load][fig];
	}
	r->ratio = r->low = r->high = NAN;
	if (!any)
		return;
	r->ratio = bench_median(ratio, rounds);
	bench_range(ratio, rounds, &r->low, &r->high);
}

static void report_one(u32 load, u32 fig, const struct result *r)
{
	char name[64];

	snprintf(name, sizeof(name), "why.%s.%s", loads[load].name, figs[fig].name);
	bench_report(&(struct bench_figure){
		.name = name, .value = r->value[SHARED], .unit = figs[fig].unit,
		.peer = isnan(r->ratio) ? NULL : arms[SPLIT].name,
		.peer_value = r->value[SPLIT], .ratio = r->ratio,
		.ratio_low = r->low, .ratio_high = r->high,
	});
}

static void row(u32 load, u32 fig, const struct result *r)
{
	printf("| %s: %s | %.*f %s | %.*f %s |", loads[load].text, figs[fig].text,
	       r->value[SHARED] < 10, r->value[SHARED], figs[fig].unit,
	       r->value[SPLIT] < 10, r->value[SPLIT], figs[fig].unit);
	if (isnan(r->ratio))
		printf(" - |\n");
	else
		printf(" **%.2f** (%.2f to %.2f) |\n", r->ratio, r->low, r->high);
}

static void results(u32 rounds)
{
	struct result r;
	u32 l, f;

	printf("| | %s | %s | ratio, and from the least to the greatest of %u rounds |\n|---|---|---|---|\n",
	       arms[SHARED].name, arms[SPLIT].name, rounds);
	for (f = 0; f < NR_FIGS; f++) {
		for (l = 0; l < NR_LOADS; l++) {
			result_of(l, f, rounds, &r);
			report_one(l, f, &r);
			if (figs[f].where == EACH || (figs[f].where == TOTAL && l == ALL))
				row(l, f, &r);
		}
	}
}

/* ---- costs ---- */

static void idle_cost(const struct extent *x)
{
	struct why_idle idle = { 0 };
	double all = 0;
	char name[64];
	u32 i;

	why_start(&resting);
	usleep(SETTLE_US);
	why_idle(&resting, x->idle_s, &idle);
	why_stop(&resting);
	for (i = 0; i < idle.nr; i++) {
		snprintf(name, sizeof(name), "why.idle.%s", idle.name[i]);
		bench_report(&(struct bench_figure){ .name = name,
			.value = 100 * idle.share[i], .unit = "% of a core" });
		all += 100 * idle.share[i];
	}
	bench_report(&(struct bench_figure){ .name = "why.idle.all",
		.value = all, .unit = "% of a core", .max_value = 1 });
	printf("| both servers attached, nobody asks for %u s: CPU time of", x->idle_s);
	for (i = 0; i < idle.nr; i++)
		printf("%s %s %.2f %%", i ? "," : "", idle.name[i], 100 * idle.share[i]);
	printf(" | %.2f %% of a core | - | |\n", all);
}

/* ---- the models ---- */

static void link_to(const char *dir, const char *from, const char *name)
{
	char old[1200], new[600];

	snprintf(old, sizeof(old), "%s/%s", from, name);
	snprintf(new, sizeof(new), "%s/%s", dir, name);
	if (symlink(old, new))
		bench_die("%s: %s", new, strerror(errno));
}

/* The demo model, and one of another shape with made-up weights. */
static void make_models(const char *tmp)
{
	static const char config[] = "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 4096, \"hidden_size\": 256, \"intermediate_size\": 512, \"num_hidden_layers\": 6, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 64, \"max_position_embeddings\": 1024, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true, \"bos_token_id\": 0, \"eos_token_id\": 0, \"torch_dtype\": \"bfloat16\"}";
	const char *top = getenv("KVMM_TOP");
	char path[600], *demo;
	FILE *f;
	u32 i;

	snprintf(path, sizeof(path), "%s/tests/data/demo-model", top ? top : ".");
	demo = realpath(path, NULL);
	if (!demo)
		bench_die("%s: %s", path, strerror(errno));
	snprintf(models[0].dir, sizeof(models[0].dir), "%s", demo);
	snprintf(models[1].dir, sizeof(models[1].dir), "%s", tmp);
	link_to(tmp, demo, "tokenizer.json");
	link_to(tmp, demo, "tokenizer_config.json");
	snprintf(path, sizeof(path), "%s/config.json", tmp);
	f = fopen(path, "w");
	if (!f || fputs(config, f) < 0 || fclose(f))
		bench_die("%s: %s", path, strerror(errno));
	for (i = 0; i < WHY_MODELS; i++) {
		models[i].chats.at_once = AT_ONCE;
		models[i].chats.system = SYSTEM;
		models[i].chats.most = MOST;
		models[i].chats.vocab = 4096;
	}
	free(demo);
}

static void remove_models(const char *tmp)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", tmp);
	if (system(cmd))
		fprintf(stderr, "bench: %s cannot be removed\n", tmp);
}

int main(int argc, char **argv)
{
	const struct extent *x = argc > 1 && !strcmp(argv[1], "quick") ? &quick : &full;
	const char *base = getenv("TMPDIR");
	char tmp[96];
	u32 n;

	snprintf(tmp, sizeof(tmp), "%s/kvwXXXXXX", base ? base : "/tmp");
	if (!mkdtemp(tmp))
		bench_die("%s: %s", tmp, strerror(errno));
	make_models(tmp);
	for (n = 0; n < NR_ARMS; n++)
		why_start(&arms[n]);
	for (n = 0; n < x->warm; n++)
		round_run(x, n, false);
	for (n = 0; n < x->rounds; n++)
		round_run(x, n, true);
	for (n = 0; n < NR_ARMS; n++)
		why_stop(&arms[n]);
	results(x->rounds);
	idle_cost(x);
	remove_models(tmp);
	return 0;
}
