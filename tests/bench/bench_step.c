// SPDX-License-Identifier: Apache-2.0
/*
 * bench_step.c - extra time of a step with the daemon, over an engine's own pool
 *
 * Batches of the demo model decode, with one compute thread: attached to a
 * daemon that has room for all, and with a pool in this process that does next
 * to nothing (own_pool.h).  The engine is the same code in the same process.
 * Measured are the time of a step and the CPU time of this process and of the
 * daemon, if there is one: other processes on the machine disturb CPU time less.
 * The two take turns, and the order changes.
 *
 * Usage: bench_step [quick]
 */
#include <time.h>

#include "runtime/engine/engine.h"
#include "tests/bench/own_pool.h"

#define ROUNDS_MAX	11u
#define PROMPT		16u
#define WARM		16u		/* steps that do not count */
#define STEPS		100u
#define NEW		(STEPS + 4 * WARM)
#define STEP_NS		100000000ll

static const char own_name[] = "a pool of its own";
static const u32 batches[] = { 1, 8, 32 };

enum { DAEMON, OWN, NR_POOLS };

/* Microseconds of a step. */
struct cost {
	double	wall, cpu, daemon;
};

static struct cost costs[ARRAY_SIZE(batches)][NR_POOLS][ROUNDS_MAX];

static void ask(struct engine *e, u32 i)
{
	u32 ids[PROMPT], k;
	const struct engine_request c = {
		.ids = ids, .nr = PROMPT, .max_new = NEW,
		.sampling = { .top_p = 1.0f },
	};
	struct engine_error err;

	for (k = 0; k < PROMPT; k++)
		ids[k] = 300 + (i * 37 + k * 11) % 3000;
	if (engine_submit(e, &c, NULL, &err))
		bench_die("%s", err.text);
}

static u64 steps(struct engine *e, u32 nr)
{
	struct engine_stats st;
	u64 begin, end;

	engine_get_stats(e, &st);
	begin = st.steps;
	end = begin + nr;
	while (st.steps < end) {
		if (engine_step(e, STEP_NS) <= 0)
			bench_die("the engine ended: %s", engine_strerror(e));
		engine_get_stats(e, &st);
	}
	return st.steps - begin;
}

static double cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void run(struct model *m, const struct bench_daemon *d, u32 batch,
		struct cost *c)
{
	const struct engine_opts o = { .socket = d->socket, .max_seqs = OWN_SEQS };
	struct engine_error err;
	struct engine *e;
	double nr;
	u32 i;

	if (engine_create(m, &o, &e, &err))
		bench_die("%s", err.text);
	for (i = 0; i < batch; i++)
		ask(e, i);
	steps(e, WARM);
	c->daemon = -(double)bench_daemon_cpu_ns(d) / 1e3;
	c->cpu = -cpu_us();
	c->wall = -(double)bench_now() / 1e3;
	nr = (double)steps(e, STEPS);
	c->wall = (c->wall + (double)bench_now() / 1e3) / nr;
	c->cpu = (c->cpu + cpu_us()) / nr;
	c->daemon = (c->daemon + (double)bench_daemon_cpu_ns(d) / 1e3) / nr;
	engine_destroy(e);
}

/* One clock of one batch: medians, and the ratios of the rounds. */
static void report(u32 b, const char *slug, const char *what, size_t offset,
		   u32 rounds)
{
	double v[NR_POOLS][ROUNDS_MAX], ratio[ROUNDS_MAX], mid[NR_POOLS], low, high;
	char name[64];
	u32 p, r;

	for (p = 0; p < NR_POOLS; p++) {
		for (r = 0; r < rounds; r++)
			v[p][r] = *(const double *)((const char *)&costs[b][p][r] + offset);
		mid[p] = bench_median(v[p], rounds);
	}
	for (r = 0; r < rounds; r++)
		ratio[r] = v[DAEMON][r] / v[OWN][r];
	bench_range(ratio, rounds, &low, &high);
	snprintf(name, sizeof(name), "step.batch%u.%s", batches[b], slug);
	bench_report(&(struct bench_figure){
		.name = name, .value = mid[DAEMON], .unit = "us",
		.peer = own_name, .peer_value = mid[OWN],
		.ratio = bench_median(ratio, rounds), .ratio_low = low,
		.ratio_high = high,
	});
	printf("| a decode step of %u, with kvmm beside %s: %s | %.0f us | %.0f us | **%.3f** (%.3f to %.3f) |\n",
	       batches[b], own_name, what, mid[DAEMON], mid[OWN],
	       bench_median(ratio, rounds), low, high);
}

static void show(u32 b, u32 rounds)
{
	double v[ROUNDS_MAX];
	char name[64];
	u32 r;

	report(b, "time", "time", offsetof(struct cost, wall), rounds);
	report(b, "cpu", "CPU time of the engine", offsetof(struct cost, cpu), rounds);
	for (r = 0; r < rounds; r++)
		v[r] = costs[b][DAEMON][r].daemon;
	snprintf(name, sizeof(name), "step.batch%u.daemon", batches[b]);
	bench_report(&(struct bench_figure){ .name = name, .unit = "us",
					     .value = bench_median(v, rounds) });
	printf("| a decode step of %u, CPU time of kvmm | %.0f us | - | |\n",
	       batches[b], bench_median(v, rounds));
}

int main(int argc, char **argv)
{
	static const char * const args[] = { "--pool-size", "256M",
					     "--extent-size", "1M", NULL };
	const bool quick = argc > 1 && !strcmp(argv[1], "quick");
	const u32 rounds = quick ? 1 : ROUNDS_MAX;
	const u32 nr = quick ? 1 : ARRAY_SIZE(batches);
	const struct model_opts o = { .nr_threads = 1, .dtype = MODEL_F32 };
	const char *top = getenv("KVMM_TOP");
	struct bench_daemon d;
	struct model_error err;
	struct model *m;
	char dir[512];
	u32 b, r, i;

	snprintf(dir, sizeof(dir), "%s/tests/data/demo-model", top ? top : ".");
	if (model_load(dir, &o, &m, &err))
		bench_die("%s", err.text);
	bench_daemon_start(&d, args);
	for (r = 0; r < rounds; r++) {
		for (b = 0; b < nr; b++) {
			for (i = 0; i < NR_POOLS; i++) {
				own_pool_on = (i + r) % NR_POOLS == OWN;
				run(m, &d, batches[b],
				    &costs[b][(i + r) % NR_POOLS][r]);
			}
		}
	}
	for (b = 0; b < nr; b++)
		show(b, rounds);
	bench_daemon_stop(&d);
	model_free(m);
	return 0;
}
