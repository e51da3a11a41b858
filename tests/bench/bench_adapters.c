// SPDX-License-Identifier: Apache-2.0
/*
 * bench_adapters.c - adapters in one pool with KV
 *
 * adapters.batch64.*: a batch of 64 sequences decodes without adapters, with one adapter, with
 * eight, and with 64: tokens a second beside those without, in turns.
 *
 * adapters.pool.*: requests name one of 64 adapters of rank 16 by Zipf's law.  The pool holds
 * neither all KV nor all adapters.  Three ways to use it take turns: one pool for both; an
 * area of fixed size for adapters, of several sizes, of which the best counts; adapters that
 * are loaded for each use and forgotten after it.  Useful tokens are those of texts that were
 * given, computed once.
 *
 * Adapters have made-up numbers and pairs at q, k, v and o.
 *
 * Usage: bench_adapters [MODEL [POOL_MIB [REQUESTS]]]; KVMM_ROUNDS=N, KVMM_LORA_WEIGHTS=1 (one pool
 * with other weights, too)
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/engine/engine.h"
#include "runtime/model/adapter.h"
#include "tests/bench/bench.h"

#define ROUNDS_MAX	9u
#define ADAPTERS	64u
#define RANK		16u
#define BATCH		64u
#define STEP_NS		100000000ll
#define WARM		8u
#define STEPS		48u
#define SHARED		64u	/* first ids of a prompt, the same for all of an adapter */
#define PROMPT		96u
#define NEW		48u
#define AT_ONCE		96u	/* requests that are queued or run */

static struct model *model;
static struct adapter *adapters[ADAPTERS];
static char folder[64];
static u32 rounds = 3;	/* $KVMM_ROUNDS */

static u32 draw(u64 *state, u32 below)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)(*state >> 33) % below;
}

/* ---- adapters ---- */

struct pair_file {
	FILE	*f;
	u64	at;
	u64	seed;
};

static void header_add(struct pair_file *p, u32 layer, const char *target, char which, u32 rows,
		       u32 cols)
{
	const u64 bytes = 2ull * rows * cols;

	fprintf(p->f, "%s\"base_model.model.model.layers.%u.self_attn.%s.lora_%c.weight\":{\"dtype\":\"BF16\",\"shape\":[%u,%u],\"data_offsets\":[%llu,%llu]}",
		p->at ? "," : "{", layer, target, which, rows, cols, (unsigned long long)p->at,
		(unsigned long long)(p->at + bytes));
	p->at += bytes;
}

static void header_layer(struct pair_file *p, u32 layer)
{
	const struct model_info *i = model_info(model);
	const u32 q = i->nr_heads * i->head_dim, kv = i->nr_kv_heads * i->head_dim;
	const struct {
		const char *name;
		u32 rows, cols;
	} t[] = {
		{ "q_proj", q, i->hidden }, { "k_proj", kv, i->hidden },
		{ "v_proj", kv, i->hidden }, { "o_proj", i->hidden, q },
	};
	u32 k;

	for (k = 0; k < ARRAY_SIZE(t); k++) {
		header_add(p, layer, t[k].name, 'A', RANK, t[k].cols);
		header_add(p, layer, t[k].name, 'B', t[k].rows, RANK);
	}
}

/* Numbers of about +-0.01, in bf16. */
static void numbers(struct pair_file *p)
{
	u16 some[4096];
	u64 left;
	u32 k;

	for (left = p->at / 2; left; left -= min(left, (u64)ARRAY_SIZE(some))) {
		for (k = 0; k < ARRAY_SIZE(some); k++)
			some[k] = (u16)(0x3b00 | draw(&p->seed, 0x100) | draw(&p->seed, 2) << 15);
		fwrite(some, 2, min(left, (u64)ARRAY_SIZE(some)), p->f);
	}
}

static void adapter_files(const char *dir, u32 seed)
{
	struct pair_file p = { .seed = seed };
	char path[160];
	u64 len = 0;
	u32 l;

	mkdir(dir, 0700);
	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", dir);
	p.f = fopen(path, "w+");
	if (!p.f)
		bench_die("%s: cannot be written", path);
	fwrite(&len, sizeof(len), 1, p.f);
	for (l = 0; l < model_info(model)->nr_layers; l++)
		header_layer(&p, l);
	fprintf(p.f, "}");
	len = (u64)ftell(p.f) - sizeof(len);
	numbers(&p);
	rewind(p.f);
	fwrite(&len, sizeof(len), 1, p.f);
	fclose(p.f);
	snprintf(path, sizeof(path), "%s/adapter_config.json", dir);
	p.f = fopen(path, "w");
	if (!p.f)
		bench_die("%s: cannot be written", path);
	fprintf(p.f, "{\"peft_type\":\"LORA\",\"task_type\":\"CAUSAL_LM\",\"r\":%u,\"lora_alpha\":%u,\"target_modules\":[\"q_proj\"]}\n",
		RANK, RANK);
	fclose(p.f);
}

static void adapters_make(void)
{
	struct model_error err;
	char dir[96];
	u32 i;

	snprintf(folder, sizeof(folder), "/tmp/bench_adapters.XXXXXX");
	if (!mkdtemp(folder))
		bench_die("%s: cannot be made", folder);
	for (i = 0; i < ADAPTERS; i++) {
		snprintf(dir, sizeof(dir), "%s/a%u", folder, i);
		adapter_files(dir, i + 1);
		if (adapter_load(model, dir, RANK, &adapters[i], &err))
			bench_die("%s", err.text);
	}
}

static void adapters_end(void)
{
	char line[96];
	u32 i;

	for (i = 0; i < ADAPTERS; i++)
		adapter_free(adapters[i]);
	snprintf(line, sizeof(line), "rm -r %s", folder);
	if (system(line))
		bench_die("%s: cannot be removed", folder);
}

/* ---- a batch that decodes ---- */

static void steps(struct engine *e, u32 nr)
{
	struct engine_stats st;
	u64 end;

	engine_get_stats(e, &st);
	end = st.steps + nr;
	while (st.steps < end) {
		if (engine_step(e, STEP_NS) <= 0)
			bench_die("the engine ended: %s", engine_strerror(e));
		engine_get_stats(e, &st);
	}
}

static void ask(struct engine *e, u32 i, struct adapter *a)
{
	u32 ids[16], k;
	const struct engine_request c = {
		.ids = ids, .nr = 16, .max_new = 8 * (WARM + STEPS),
		.sampling = { .top_p = 1.0f }, .adapter = a,
	};
	struct engine_error err;

	for (k = 0; k < 16; k++)
		ids[k] = 3 + (i * 37 + k * 11) % 200;
	if (engine_submit(e, &c, NULL, &err))
		bench_die("%s", err.text);
}

/* Tokens a second of a batch whose sequences have @nr adapters, 0: none. */
static double batch_speed(const struct bench_daemon *d, u32 nr)
{
	const struct engine_opts o = { .socket = d->socket, .max_seqs = BATCH, .max_rank = RANK };
	struct engine_stats a, b;
	struct engine_error err;
	struct engine_load load;
	struct engine *e;
	u64 begun;
	double s;
	u32 i;

	if (engine_create(model, &o, &e, &err))
		bench_die("%s", err.text);
	for (i = 0; i < BATCH; i++)
		ask(e, i, nr ? adapters[i % nr] : NULL);
	do {
		steps(e, 1);
		engine_get_load(e, &load);
	} while (load.running < BATCH);
	steps(e, WARM);
	engine_get_stats(e, &a);
	begun = bench_now();
	steps(e, STEPS);
	s = (double)(bench_now() - begun) / 1e9;
	engine_get_stats(e, &b);
	engine_destroy(e);
	return (double)(b.generated_tokens - a.generated_tokens) / s;
}

static void batches(void)
{
	static const char * const args[] = { "--pool-size", "4G", "--extent-size", "2M", NULL };
	static const u32 nr[] = { 1, 8, 64 };
	static const double aim[] = { 0.9, 0.9, 0.75 };
	double none[ROUNDS_MAX], with[ARRAY_SIZE(nr)][ROUNDS_MAX], ratio[ROUNDS_MAX];
	struct bench_figure f = { .unit = "tokens/s", .peer = "none" };
	struct bench_daemon d;
	char name[64];
	u32 r, i;

	bench_daemon_start(&d, args);
	for (r = 0; r < rounds; r++) {
		none[r] = batch_speed(&d, 0);
		for (i = 0; i < ARRAY_SIZE(nr); i++)
			with[i][r] = batch_speed(&d, nr[i]);
	}
	bench_daemon_stop(&d);
	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		for (r = 0; r < rounds; r++)
			ratio[r] = with[i][r] / none[r];
		snprintf(name, sizeof(name), "adapters.batch64.of%u", nr[i]);
		f.name = name;
		f.value = bench_median(with[i], rounds);
		f.peer_value = bench_median(none, rounds);
		f.ratio = bench_median(ratio, rounds);
		bench_range(ratio, rounds, &f.ratio_low, &f.ratio_high);
		f.min_ratio = aim[i];
		bench_report(&f);
	}
}

/* ---- requests by Zipf ---- */

struct load {
	struct engine	*engine;
	u32		sent;
	u32		over;
	u32		nr;
	u64		tokens;
	u64		rnd;
	double		sum[ADAPTERS];	/* of shares up to each adapter */
};

static void on_token(void *arg, u32 sample, const struct engine_token *t)
{
	struct load *l = arg;

	(void)sample;
	(void)t;
	l->tokens++;
}

static void on_done(void *arg, const struct engine_done *done)
{
	struct load *l = arg;

	if (done->reason != ENGINE_LENGTH)
		bench_die("a request ended: %s", done->text);
	l->over++;
}

static u32 zipf(struct load *l)
{
	const double at = (double)draw(&l->rnd, 1u << 30) / (1u << 30) * l->sum[ADAPTERS - 1];
	u32 i = 0;

	while (i < ADAPTERS - 1 && l->sum[i] < at)
		i++;
	return i;
}

static void send(struct load *l)
{
	const u32 which = zipf(l);
	u64 shared = which + 1;
	u32 ids[PROMPT], k;
	const struct engine_request c = {
		.ids = ids, .nr = PROMPT, .max_new = NEW, .sampling = { .top_p = 1.0f },
		.adapter = adapters[which], .on_token = on_token, .on_done = on_done, .arg = l,
	};
	struct engine_error err;

	for (k = 0; k < PROMPT; k++)
		ids[k] = 3 + (k < SHARED ? draw(&shared, 200) : draw(&l->rnd, 200));
	if (engine_submit(l->engine, &c, NULL, &err))
		bench_die("%s", err.text);
	l->sent++;
}

/**
 * struct way - how the pool is used
 * @area: bytes of the area for adapters; 0: there is none
 * @drop: adapters are loaded for each use
 * @weight: of the domain of the adapters; 0: kvrt's own
 */
struct way {
	u64	area;
	bool	drop;
	u32	weight;
};

static void say(const struct way *w, const struct load *l, double s)
{
	struct engine_stats st;

	engine_get_stats(l->engine, &st);
	printf("note: area %4llu MiB, weight %u%s: %6.1f tokens/s; adapters: %llu blocks found, %llu read; ",
	       (unsigned long long)w->area >> 20, w->weight,
	       w->drop ? ", loaded for each use" : "",
	       (double)l->tokens / s, (unsigned long long)st.adapter_blocks_found,
	       (unsigned long long)st.adapter_blocks_read);
	printf("%llu of %llu prompt tokens cached; %llu preemptions, %llu tokens computed again\n",
	       (unsigned long long)st.cached_tokens, (unsigned long long)st.prompt_tokens,
	       (unsigned long long)st.preemptions, (unsigned long long)st.recomputed_tokens);
	fflush(stdout);
}

/* Useful tokens a second. */
static double way_speed(const char *size, u64 pool, u32 requests, const struct way *w)
{
	const char *const args[] = { "--pool-size", size, "--extent-size", "1M", NULL };
	struct engine_opts o = {
		.max_seqs = 2 * BATCH, .max_batch = BATCH, .max_rank = RANK,
		.drop_adapters = w->drop, .adapter_limits.weight = w->weight,
	};
	struct load l = { .nr = requests, .rnd = 7 };
	struct bench_daemon d;
	struct engine_error err;
	double s = 0;
	u64 begun;
	u32 i;

	for (i = 0; i < ADAPTERS; i++)
		l.sum[i] = s += 1.0 / (i + 1);
	bench_daemon_start(&d, args);
	o.socket = d.socket;
	if (w->area) {
		o.adapter_limits.min = o.adapter_limits.max = w->area;
		o.limits.min = o.limits.max = pool - w->area;
	}
	if (engine_create(model, &o, &l.engine, &err))
		bench_die("%s", err.text);
	begun = bench_now();
	while (l.over < l.nr) {
		while (l.sent < l.nr && l.sent - l.over < AT_ONCE)
			send(&l);
		if (engine_step(l.engine, STEP_NS) < 0)
			bench_die("the engine ended: %s", engine_strerror(l.engine));
	}
	s = (double)(bench_now() - begun) / 1e9;
	say(w, &l, s);
	engine_destroy(l.engine);
	bench_daemon_stop(&d);
	return (double)l.tokens / s;
}

static void report(const char *name, const char *peer, const double *own, const double *other,
		   double aim)
{
	double ratio[ROUNDS_MAX];
	struct bench_figure f = {
		.name = name, .unit = "tokens/s", .peer = peer, .min_ratio = aim,
	};
	u32 r;

	for (r = 0; r < rounds; r++)
		ratio[r] = own[r] / other[r];
	f.value = bench_median(own, rounds);
	f.peer_value = bench_median(other, rounds);
	f.ratio = bench_median(ratio, rounds);
	bench_range(ratio, rounds, &f.ratio_low, &f.ratio_high);
	bench_report(&f);
}

static void pools(u32 mib, u32 requests)
{
	static const u32 part[] = { 8, 4, 2 };	/* area: the pool divided by it */
	const u64 pool = (u64)mib << 20;
	double area[ARRAY_SIZE(part)][ROUNDS_MAX];
	double own[ROUNDS_MAX], drop[ROUNDS_MAX], best[ROUNDS_MAX];
	char size[24];
	u32 r, i, top = 0;

	snprintf(size, sizeof(size), "%uM", mib);
	for (r = 0; r < rounds; r++) {
		own[r] = way_speed(size, pool, requests, &(struct way){ 0 });
		if (getenv("KVMM_LORA_WEIGHTS")) {
			way_speed(size, pool, requests, &(struct way){ .weight = 25 });
			way_speed(size, pool, requests, &(struct way){ .weight = 5 });
		}
		for (i = 0; i < ARRAY_SIZE(part); i++)
			area[i][r] = way_speed(size, pool, requests,
					       &(struct way){ .area = pool / part[i] });
		drop[r] = way_speed(size, pool, requests, &(struct way){ .drop = true });
	}
	for (i = 1; i < ARRAY_SIZE(part); i++)
		if (bench_median(area[i], rounds) > bench_median(area[top], rounds))
			top = i;
	memcpy(best, area[top], sizeof(best));
	printf("note: the best area is 1/%u of the pool\n", part[top]);
	report("adapters.pool.one", "fixed area", own, best, 1.2);
	report("adapters.pool.one_and_drop", "loaded for each use", own, drop, 2.0);
}

int main(int argc, char **argv)
{
	const struct model_opts o = { .max_rank = RANK };
	const char *top = getenv("KVMM_TOP");
	const u32 mib = argc > 2 ? (u32)atoi(argv[2]) : 24;
	const u32 requests = argc > 3 ? (u32)atoi(argv[3]) : 600;
	struct model_error err;
	char dir[512];

	setlinebuf(stdout);
	if (getenv("KVMM_ROUNDS"))
		rounds = min((u32)atoi(getenv("KVMM_ROUNDS")), ROUNDS_MAX);
	snprintf(dir, sizeof(dir), "%s/tests/data/demo-model", top ? top : ".");
	if (model_load(argc > 1 ? argv[1] : dir, &o, &model, &err))
		bench_die("%s", err.text);
	adapters_make();
	printf("note: an adapter has %llu KiB\n",
	       (unsigned long long)adapter_info(adapters[0])->bytes >> 10);
	batches();
	pools(mib, requests);
	adapters_end();
	model_free(model);
	return 0;
}
