// SPDX-License-Identifier: Apache-2.0
/*
 * bench_gap.c - work of the engine's thread between two forwards
 *
 * Batches of 1, 16, 64 and 256 sequences of the demo model decode against a
 * daemon of their own, in a pool that fits all; the engine's own times say
 * where a step goes.  The model's time is shown and is not the subject: if other
 * processes need the CPU of a compute thread, all figures show it.
 *
 * "wait" matters most for the design: the time in which a step could have run
 * and was not granted.  With one step ahead it is 0 if the daemon answers within
 * a forward.  Engine and daemon share a machine with few cores, so the aim is
 * above 0.
 *
 * Usage: bench_gap [MODEL_DIR]
 */
#include <stdlib.h>

#include "runtime/engine/engine.h"
#include "tests/bench/bench.h"

#define ROUNDS		5
#define PROMPT		16u
#define STEPS		160u	/* counted */
#define WARM		24u	/* steps until all decode, and a few more */
#define NEW		(STEPS + 4 * WARM)
#define STEP_NS		100000000ll
#define WAIT_SHARE	0.05	/* aim: of the time of a step */

#define PARTS(x)							\
	x(forward) x(draw) x(copy) x(collect) x(plan) x(end)		\
	x(deliver) x(wait) x(idle) x(away)

enum {
#define x(name) PART_##name,
	PARTS(x)
#undef x
	NR_PARTS
};

static const char * const part_name[] = {
#define x(name) #name,
	PARTS(x)
#undef x
};

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

/* Microseconds of a step, by part. */
static void run(struct model *m, const struct bench_daemon *d, u32 batch,
		double *us)
{
	const struct engine_opts o = { .socket = d->socket, .max_seqs = 256 };
	struct engine_stats a, b;
	struct engine_error err;
	struct engine *e;
	u32 i;

	if (engine_create(m, &o, &e, &err))
		bench_die("%s", err.text);
	for (i = 0; i < batch; i++)
		ask(e, i);
	steps(e, WARM);
	engine_get_stats(e, &a);
	steps(e, STEPS);
	engine_get_stats(e, &b);
#define x(name) us[PART_##name] = (double)(b.name##_ns - a.name##_ns) / \
				  1e3 / (double)(b.steps - a.steps);
	PARTS(x)
#undef x
	engine_destroy(e);
}

static void report(const char *what, u32 batch, double value,
		   const char *unit, double max)
{
	char name[64];

	snprintf(name, sizeof(name), "gap.batch%u.%s", batch, what);
	bench_report(&(struct bench_figure){ .name = name, .value = value,
					     .unit = unit, .max_value = max });
}

/* Print medians of the rounds, for each part by itself. */
static void show(u32 batch, double us[ROUNDS][NR_PARTS])
{
	double v[ROUNDS], med[NR_PARTS], sum = 0, gap;
	u32 i, r;

	for (i = 0; i < NR_PARTS; i++) {
		for (r = 0; r < ROUNDS; r++)
			v[r] = us[r][i];
		med[i] = bench_median(v, ROUNDS);
		sum += med[i];
	}
	gap = sum - med[PART_forward];
	printf("note: batch %3u: a step %.1f us, %.1f of it not in the model:",
	       batch, sum, gap);
	for (i = PART_forward + 1; i < NR_PARTS; i++)
		printf(" %s %.2f", part_name[i], med[i]);
	printf("\n");
	report("step", batch, sum, "us", 0);
	report("between_forwards", batch, gap, "us", 0);
	report("wait_share", batch, med[PART_wait] / sum, "of a step",
	       WAIT_SHARE);
}

int main(int argc, char **argv)
{
	static const char * const args[] = { "--pool-size", "1G",
					     "--extent-size", "1M", NULL };
	static const u32 batches[] = { 1, 16, 64, 256 };
	const struct model_opts o = { .nr_threads = 1, .dtype = MODEL_BF16 };
	const char *top = getenv("KVMM_TOP");
	double us[ARRAY_SIZE(batches)][ROUNDS][NR_PARTS];
	struct bench_daemon d;
	struct model_error err;
	struct model *m;
	char dir[512];
	u32 i, r;

	snprintf(dir, sizeof(dir), "%s/tests/data/demo-model", top ? top : ".");
	if (model_load(argc > 1 ? argv[1] : dir, &o, &m, &err))
		bench_die("%s", err.text);
	bench_daemon_start(&d, args);
	for (r = 0; r < ROUNDS; r++)
		for (i = 0; i < ARRAY_SIZE(batches); i++)
			run(m, &d, batches[i], us[i][r]);
	for (i = 0; i < ARRAY_SIZE(batches); i++)
		show(batches[i], us[i]);
	bench_daemon_stop(&d);
	model_free(m);
	return 0;
}
