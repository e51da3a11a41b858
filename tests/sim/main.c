// SPDX-License-Identifier: Apache-2.0
/*
 * main.c - the simulator's program: seeds, replay, totals
 *
 * The core runs between simulated clients, devices and a simulated operator;
 * one seed decides everything.  A seed that breaks a law is run again with a
 * log.  The program prints the end of the log, and the command that replays the
 * seed to that event.  Some seeds are run twice, once with the core's own trace
 * recorded and once without: both runs must give the same trace.
 *
 * KVMM_TEST_LEVEL decides how many seeds are run without --seeds.  They are
 * shared out over as many processes as there are cores (jobs.c).
 * budget: 60 s, full 300 s
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/bug.h>
#include <kvmm/clock.h>

#include "tests/sim/jobs.h"

#define JUDGE_SEEDS	1000	/* from here on coverage is judged */

/* Options of the command line. */
struct options {
	u64	seed;
	u64	nr_seeds;
	u32	events;
	u32	jobs;
	bool	one;
	bool	verbose;
	u32	crash;
};

static struct sim *world;
static struct options opt;
static const char *program;

/* ---- failing and logging ---- */

/**
 * sim_fail() - a law is broken: note which one, leave the seed
 */
void sim_fail(struct sim *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->why, sizeof(w->why), fmt, ap);
	va_end(ap);
	w->failed = true;
	longjmp(w->out, 1);
}

/* The core's own assertions end the seed, not the program. */
void kv_bug(const char *file, int line, const char *what)
{
	sim_fail(world, "KV_BUG_ON(%s) at %s:%d", what, file, line);
}

/* Add one line to the log, which is kept or printed. */
void sim_log(struct sim *w, const char *fmt, ...)
{
	char *line = w->log[w->log_next++ % SIM_LOG_LINES];
	int len = snprintf(line, sizeof(w->log[0]), "%5u ", w->event);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + len, sizeof(w->log[0]) - (size_t)len, fmt, ap);
	va_end(ap);
	if (w->verbose)
		printf("%s\n", line);
}

static void print_log(const struct sim *w)
{
	u32 nr = min(w->log_next, (u32)SIM_LOG_LINES), i;

	for (i = w->log_next - nr; i < w->log_next; i++)
		printf("    %s\n", w->log[i % SIM_LOG_LINES]);
}

/* A crash prints its seed before the signal takes effect. */
static void on_crash(int sig)
{
	char line[160];
	int len = snprintf(line, sizeof(line), "sim: seed %llu, event %u: signal %d\nreplay: %s --seed %llu -v\n",
			   (unsigned long long)world->seed, world->event, sig,
			   program, (unsigned long long)world->seed);

	if (write(STDOUT_FILENO, line, (size_t)len) < 0)
		_exit(1);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void catch_crashes(void)
{
	static const int sigs[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT,
				    SIGALRM };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(sigs); i++)
		signal(sigs[i], on_crash);
}

/* ---- seeds ---- */

/* Run a seed, or run it @again.  Return: false when a law was broken. */
static bool live(struct sim *w, u64 seed, u32 stop_at, bool logging, bool again)
{
	bool verbose = w->verbose;
	u32 crash_more = w->crash_more;
	struct core *core = w->core;
	void *arena = w->arena;
	size_t arena_bytes = w->arena_bytes;
	u64 *cell = w->cell;
	u64 nr_cells = w->nr_cells;
	struct sim_header *head = w->head;
	u64 nr_heads = w->nr_heads;
	u64 *low = w->low;
	u64 nr_low = w->nr_low;

	memset(w, 0, SIM_CLEAR_END);
	w->core = core;
	w->arena = arena;
	w->arena_bytes = arena_bytes;
	w->cell = cell;
	w->nr_cells = nr_cells;
	w->head = head;
	w->nr_heads = nr_heads;
	w->low = low;
	w->nr_low = nr_low;
	w->crash_more = crash_more;
	w->seed = seed;
	w->stop_at = stop_at;
	w->verbose = verbose;
	w->logging = logging || verbose;
	w->recording = (seed / JOBS_BLOCK + again) & 1;
	cover_switch(!again);
	alarm(60);		/* a core that does not return */
	if (!setjmp(w->out))
		world_run(w);
	alarm(0);
	return !w->failed;
}

static void report_failure(struct sim *w)
{
	u64 seed = w->seed;
	u32 event = w->event;

	printf("sim: seed %llu, event %u: %s\n", (unsigned long long)seed,
	       event, w->why);
	if (!w->verbose) {
		(void)!live(w, seed, 0, true, true);
		print_log(w);
		if (w->event != event)
			printf("sim: the second run failed at event %u: %s\n",
			       w->event, w->failed ? w->why : "not at all");
	}
	printf("replay: %s --seed %llu --events %u", program,
	       (unsigned long long)seed, event + 1);
	if (w->crash_more)
		printf(" --crash %u", w->crash_more);
	printf(" -v\n");
}

/* Run a seed.  Return: false when so many are broken that the run ends. */
static bool run_seed(struct sim *w, u64 seed, bool twice)
{
	struct sim_totals t;
	u64 trace;

	if (!live(w, seed, opt.events, false, false)) {
		t = jobs_count(1, w->event, 1);
		jobs_report_begin();
		printf("sim: broken after %llu events of %llu seeds\n",
		       (unsigned long long)t.events,
		       (unsigned long long)t.seeds);
		report_failure(w);
		jobs_report_end();
		return t.failures < JOBS_MAX_FAILURES;
	}
	t = jobs_count(1, w->event, 0);
	cover_counts(w->counts);
	trace = w->trace;
	if (twice && (!live(w, seed, opt.events, false, true) ||
		      w->trace != trace)) {
		t = jobs_count(0, 0, 1);
		jobs_report_begin();
		printf("sim: seed %llu is not deterministic\nreplay: %s --seed %llu\n",
		       (unsigned long long)seed, program,
		       (unsigned long long)seed);
		jobs_report_end();
	}
	return t.failures < JOBS_MAX_FAILURES;
}

/* Run the seeds of one process. */
static void run_seeds(u64 from, u64 to)
{
	u64 i;

	for (i = from; i < to; i++)
		if (!run_seed(world, opt.seed + i, i % JOBS_BLOCK == 0 &&
			      !opt.verbose))
			break;
}

/* ---- options ---- */

static u64 default_seeds(void)
{
	const char *level = getenv("KVMM_TEST_LEVEL");
	const char *scale = getenv("KVMM_TIME_SCALE");
	u64 nr = 1000;

	if (level && !strcmp(level, "full"))
		nr = 40000;
	else if (level && !strcmp(level, "soak"))
		nr = 1000000;
	/* Sanitized builds are slower than their budget is longer. */
	if (scale && atoi(scale) > 1)
		nr /= 2;
	return nr;
}

static int usage(int status)
{
	printf("usage: %s [--seeds N] [--jobs N] [--seed S [--events E] [-v]]\n"
	       "  --seeds N   run N seeds (default: by KVMM_TEST_LEVEL, check 1000, full 40000, soak 1000000)\n"
	       "  --seed S    the first seed; without --seeds, the only one\n"
	       "  --jobs N    in so many processes (default: one a core)\n"
	       "  --events E  stop a seed after E events\n"
	       "  --crash N   in every seed the daemon ends in N of 1000 events\n"
	       "  -v          print every event\n", program);
	return status;
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "seeds", required_argument, NULL, 'n' },
		{ "seed", required_argument, NULL, 's' },
		{ "events", required_argument, NULL, 'e' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "crash", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*o = (struct options){ .seed = 1 };
	while ((c = getopt_long(argc, argv, "vh", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			o->nr_seeds = strtoull(optarg, NULL, 0);
			break;
		case 's':
			o->seed = strtoull(optarg, NULL, 0);
			o->one = true;
			break;
		case 'e':
			o->events = (u32)strtoul(optarg, NULL, 0);
			break;
		case 'j':
			o->jobs = min((u32)strtoul(optarg, NULL, 0), JOBS_MAX);
			break;
		case 'c':
			o->crash = (u32)strtoul(optarg, NULL, 0);
			break;
		case 'v':
			o->verbose = true;
			break;
		default:
			return -EINVAL;
		}
	}
	if (!o->nr_seeds)
		o->nr_seeds = o->one ? 1 : default_seeds();
	if (!o->jobs)
		o->jobs = o->verbose ? 1 : jobs_default();
	if (o->nr_seeds <= (u64)JOBS_BLOCK * o->jobs)
		o->jobs = (u32)DIV_ROUND_UP(o->nr_seeds, (u64)JOBS_BLOCK);
	return optind == argc ? 0 : -EINVAL;
}

static u32 sum_up(const struct sim_totals *t, u64 ns)
{
	u32 missing = cover_report(t->seeds >= JUDGE_SEEDS && !t->failures);
	u64 checks = t->seeds + missing, bad = t->failures + missing;

	printf("%llu seeds, %llu events in %.1f s in %u process%s: %.0f events a second\n",
	       (unsigned long long)t->seeds, (unsigned long long)t->events,
	       (double)ns / 1e9, opt.jobs, opt.jobs == 1 ? "" : "es",
	       (double)t->events * 1e9 / (double)(ns + 1));
	printf("%llu%%: Checks: %llu, Failures: %llu, Errors: 0\n",
	       (unsigned long long)((checks - bad) * 100 / max(checks, 1ull)),
	       (unsigned long long)checks, (unsigned long long)bad);
	return (u32)bad;
}

int main(int argc, char **argv)
{
	const struct sim_totals *t;
	u64 start = kv_now_ns();

	program = argv[0];
	if (parse(argc, argv, &opt))
		return usage(2);
	world = calloc(1, sizeof(*world));
	if (world)
		world->core = calloc(1, core_struct_size());
	if (!world || !world->core) {
		fprintf(stderr, "sim: error: no memory for a world of %zu bytes: free some\n",
			sizeof(*world));
		return 2;
	}
	world->verbose = opt.verbose;
	world->crash_more = opt.crash;
	catch_crashes();
	t = jobs_run(opt.nr_seeds, opt.jobs, run_seeds);
	return sum_up(t, kv_now_ns() - start) ? EXIT_FAILURE : EXIT_SUCCESS;
}
