// SPDX-License-Identifier: Apache-2.0
/*
 * why_arm.c - two models on one machine, with one pool or with a half each
 *
 * Requests come from chats.c.  Figures come from the clients (tokens, times), the
 * servers (tokens computed and found), the daemons (bytes copied, blocks in the
 * pool) and the kernel (CPU time of servers and daemons, not of clients).
 *
 * The use of the pool is read ten times a second.
 */
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/view.h>

#include "tests/bench/serve_profile.h"
#include "tests/bench/why.h"

#define TICK_MS		100u
#define BLOCK_TOKENS	16u
#define VIEW_MS		10000u

/* ---- start and end ---- */

static void hold_start(struct bench_daemon *d, u64 pool, bool whole)
{
	char size[32];
	const char *args[] = {
		"--pool-size", size, "--extent-size", "256K",
		"--proc", whole ? "on" : "off",
		"--host-size", whole ? "16M" : "0", NULL,
	};

	snprintf(size, sizeof(size), "%llu", (unsigned long long)pool);
	bench_hold_start(d, args);
}

void why_start(struct why_arm *a)
{
	const u32 nr = a->split ? WHY_MODELS : 1;
	struct chats_cfg cfg;
	u32 i;

	for (i = 0; i < nr; i++)
		hold_start(&a->hold[i], a->pool / nr, a->whole);
	for (i = 0; i < WHY_MODELS; i++) {
		const struct why_model *m = &a->model[i];

		bench_kvrt_start_model(&a->rt[i], why_hold(a, i), m->name,
				       m->dir, m->args);
		cfg = m->chats;
		cfg.port = a->rt[i].port;
		a->chats[i] = chats_open(&cfg);
	}
}

void why_stop(struct why_arm *a)
{
	u32 i;

	for (i = 0; i < WHY_MODELS; i++) {
		chats_close(a->chats[i]);
		bench_kvrt_stop(&a->rt[i]);
	}
	for (i = 0; i < (a->split ? WHY_MODELS : 1); i++)
		bench_daemon_stop(&a->hold[i]);
}

/* ---- the daemons' files ---- */

static void ask(const struct bench_daemon *d, const char *what,
		struct seq_file *text)
{
	char path[KV_VIEW_PATH_MAX];
	int status;

	seq_init(text, KV_VIEW_TEXT_MAX);
	if (kv_view_path(d->dir, path) ||
	    kv_view_ask(path, what, VIEW_MS, &status, text) || status)
		bench_die("the daemon does not answer '%s': %s", what,
			  seq_text(text));
}

/* The number behind @key, which begins a line. */
static double value(const char *text, const char *key)
{
	const size_t len = strlen(key);
	const char *at = text;

	while (strncmp(at, key, len) || at[len] != ' ') {
		at = strchr(at, '\n');
		if (!at)
			bench_die("'%s' is not in: %.200s", key, text);
		at++;
	}
	return strtod(at + len, NULL);
}

/* Bytes of KV that a model has in the pool: of sequences, and cached. */
static double model_bytes(struct why_arm *a, u32 i)
{
	struct seq_file text;
	char what[64];
	double blocks;

	snprintf(what, sizeof(what), "cat domain/%s/blockstates",
		 a->model[i].name);
	ask(why_hold(a, i), what, &text);
	blocks = value(seq_text(&text), "open") +
		 value(seq_text(&text), "sealed") +
		 value(seq_text(&text), "cached");
	seq_free(&text);
	return blocks * BLOCK_TOKENS * a->model[i].token_bytes;
}

static double daemons_swapped(struct why_arm *a)
{
	static const char *const names[] = {
		"kvmm_copy_out_bytes_total", "kvmm_copy_in_bytes_total",
	};
	struct seq_file text;
	double sum = 0;
	u32 i, k;

	for (i = 0; i < (a->split ? WHY_MODELS : 1); i++) {
		ask(&a->hold[i], "cat metrics", &text);
		for (k = 0; k < ARRAY_SIZE(names); k++)
			sum += value(seq_text(&text), names[k]);
		seq_free(&text);
	}
	return sum;
}

static double daemons_cpu(struct why_arm *a)
{
	u64 ns = 0;
	u32 i;

	for (i = 0; i < (a->split ? WHY_MODELS : 1); i++)
		ns += profile_tree_ns(a->hold[i].pid);
	return (double)ns / 1e9;
}

static double servers_cpu(const struct why_arm *a)
{
	return (double)(bench_cpu_ns(a->rt[0].pid) +
			bench_cpu_ns(a->rt[1].pid)) / 1e9;
}

/* Counters of servers and daemons; compared before and after a load. */
struct counts {
	double	found, computed, again, swapped, cpu, cpu_mm;
};

static void count(struct why_arm *a, struct counts *c)
{
	u32 i;

	*c = (struct counts){ .swapped = daemons_swapped(a) };
	for (i = 0; i < WHY_MODELS; i++) {
		c->found += bench_kvrt_figure(&a->rt[i],
					"kvrt_engine_cached_tokens_total");
		c->computed += bench_kvrt_figure(&a->rt[i],
					"kvrt_engine_prefilled_tokens_total");
		c->again += bench_kvrt_figure(&a->rt[i],
					"kvrt_engine_recomputed_tokens_total");
	}
	c->cpu_mm = daemons_cpu(a);
	c->cpu = c->cpu_mm + servers_cpu(a);
}

/* ---- a load ---- */

struct watch {
	struct why_arm	*a;
	u32		busy;
	double		empty, unused;
	u32		nr;
};

static void look(void *arg)
{
	struct watch *w = arg;
	double held = 0, used = 0, bytes;
	u32 i;

	for (i = 0; i < WHY_MODELS; i++) {
		bytes = model_bytes(w->a, i);
		held += bytes;
		used += w->busy & 1u << i ? bytes : 0;
	}
	w->empty += 1 - held / (double)w->a->pool;
	w->unused += 1 - used / (double)w->a->pool;
	w->nr++;
}

static void take_all(struct why_sum *s, const struct chats_take *t)
{
	s->requests += t->requests;
	s->tokens += (double)t->tokens;
	s->prompt += (double)t->prompt;
	s->again -= (double)t->fresh;
	s->ttft = realloc(s->ttft, (s->nr_ttft + t->begun) * sizeof(double));
	memcpy(s->ttft + s->nr_ttft, t->ttft, t->begun * sizeof(double));
	s->nr_ttft += t->begun;
}

void why_load(struct why_arm *a, u32 busy, u32 requests, struct why_sum *s)
{
	struct watch w = { .a = a, .busy = busy };
	struct chats_take take[WHY_MODELS];
	struct chats *list[WHY_MODELS];
	struct counts before, after;
	u32 i, nr = 0;
	double wall;

	for (i = 0; i < WHY_MODELS; i++)
		if (busy & 1u << i)
			list[nr++] = a->chats[i];
	count(a, &before);
	wall = (double)bench_now();
	chats_run(list, nr, requests, take, TICK_MS, look, &w);
	wall = ((double)bench_now() - wall) / 1e9;
	count(a, &after);
	if (!w.nr)
		look(&w);
	for (i = 0; i < nr; i++) {
		take_all(s, &take[i]);
		chats_take_free(&take[i]);
	}
	s->wall += wall;
	s->cpu += after.cpu - before.cpu;
	s->cpu_mm += after.cpu_mm - before.cpu_mm;
	s->found += after.found - before.found;
	s->again += after.computed - before.computed + after.again - before.again;
	s->swapped += after.swapped - before.swapped;
	s->empty += wall * w.empty / w.nr;
	s->unused += wall * w.unused / w.nr;
}

void why_sum_add(struct why_sum *s, const struct why_sum *more)
{
	double *ttft = realloc(s->ttft, (s->nr_ttft + more->nr_ttft) * sizeof(double));
	const u32 nr = s->nr_ttft;

	memcpy(ttft + nr, more->ttft, more->nr_ttft * sizeof(double));
	s->ttft = ttft;
	s->nr_ttft = nr + more->nr_ttft;
	s->wall += more->wall;
	s->cpu += more->cpu;
	s->cpu_mm += more->cpu_mm;
	s->requests += more->requests;
	s->tokens += more->tokens;
	s->prompt += more->prompt;
	s->found += more->found;
	s->again += more->again;
	s->swapped += more->swapped;
	s->empty += more->empty;
	s->unused += more->unused;
}

void why_sum_free(struct why_sum *s)
{
	free(s->ttft);
	*s = (struct why_sum){ 0 };
}

/* ---- idle ---- */

static void comm_of(pid_t pid, char *name, size_t max)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "r");
	if (!f || !fgets(name, (int)max, f))
		snprintf(name, max, "?");
	if (f)
		fclose(f);
	name[strcspn(name, "\n")] = '\0';
}

void why_idle(struct why_arm *a, u32 seconds, struct why_idle *idle)
{
	pid_t pids[PROFILE_PIDS_MAX];
	u64 before[WHY_IDLE_MAX], since;
	u32 i;

	idle->nr = min(profile_tree(a->hold[0].pid, pids), WHY_IDLE_MAX);
	for (i = 0; i < idle->nr; i++) {
		comm_of(pids[i], idle->name[i], sizeof(idle->name[i]));
		before[i] = bench_cpu_ns(pids[i]);
	}
	since = bench_now();
	sleep(seconds);
	since = bench_now() - since;
	for (i = 0; i < idle->nr; i++)
		idle->share[i] = (double)(bench_cpu_ns(pids[i]) - before[i]) /
				 (double)since;
}
