// SPDX-License-Identifier: Apache-2.0
/*
 * it_soak.c - an hour at full load needs no more memory than its beginning
 *
 * budget: 40 s, full 130 s, soak 3900 s
 * from: full
 *
 * A server serves clients that never rest (soak_load.c) on a node with a host
 * pool and a swap area, whose pool is far smaller than their working set.  The
 * walkers run all the time, and each answer is compared with the answer to the
 * same request alone.
 *
 * Private memory, shared pages, descriptors and threads of each process are
 * sampled.  The first part, a tenth of an hour, warms up.  The rest must be
 * flat: neither the slope of a line through all samples nor the difference of
 * the last and first quarter may show a growth past SLACK_PERCENT and a fixed
 * slack, which is the same for an hour as for less.  At level check allocators
 * still grow, so only fast leaks are found.  In the end all memory of the
 * requests is free.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/integration/census.h"
#include "tests/integration/soak_load.h"

#define SAMPLES_MAX	4096u
#define PROCS		4u
#define SLACK_PERCENT	2
#define CLIENTS		32u
#define FDS_SLACK	6	/* of connections that open and close */

/* Figures that are sampled of a process. */
enum figure {
	FIG_ANON,
	FIG_SHMEM,
	FIG_FDS,
	FIG_THREADS,
	NR_FIGURES,
};

static const char * const figure_name[] = {
	"KiB of its own", "KiB that are shared", "descriptors", "threads",
};

/**
 * struct watched - a process and its samples
 * @nr: samples so far, the same for all
 */
struct watched {
	const char	*name;
	pid_t		pid;
	double		at[NR_FIGURES][SAMPLES_MAX];
};

static struct rig rig;
static struct served server;
static struct watched watched[PROCS];
static double when[SAMPLES_MAX];	/* seconds since the start */
static u32 nr_samples, nr_walks;

static void setup(void)
{
	char area[RIG_PATH + 16];
	struct job j;

	rig_start(&rig, "--pool-size", "3M", "--extent-size", "256K",
		  "--host-size", "512K", "--area-max", "32M", NULL);
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	j = job_start(&rig, "kvctl", "swapon", area, "--size", "32M", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	serve_start(&server, &rig, "--mode", "exact", "--dtype", "bf16",
		    "--chat-template", "plain", NULL);
	serve_await(&server, 200, 60);
}

static void teardown(void)
{
	rig_walk(&rig);
	serve_stop(&server);
	rig_stop(&rig);
}

/* ---- samples ---- */

static void watch_all(void)
{
	watched[0] = (struct watched){ .name = "kvmm-hold", .pid = rig.hold };
	watched[1] = (struct watched){ .name = "kvmm",
				       .pid = rig_daemon(&rig) };
	watched[2] = (struct watched){ .name = "swapd",
				       .pid = rig_swapd(&rig) };
	watched[3] = (struct watched){ .name = "kvrt", .pid = server.job.pid };
}

static void sample(double s)
{
	static struct census c;
	const struct census_proc *p;
	u32 i;

	ck_assert_uint_lt(nr_samples, SAMPLES_MAX);
	census_take(&c, &rig);
	for (i = 0; i < PROCS; i++) {
		p = census_proc(&c, watched[i].pid);
		watched[i].at[FIG_ANON][nr_samples] = (double)p->anon;
		watched[i].at[FIG_SHMEM][nr_samples] = (double)p->shmem;
		watched[i].at[FIG_FDS][nr_samples] = p->fds;
		watched[i].at[FIG_THREADS][nr_samples] = p->threads;
	}
	when[nr_samples++] = s;
}

static double mean(const double *v, u32 from, u32 to)
{
	double sum = 0;
	u32 i;

	for (i = from; i < to; i++)
		sum += v[i];
	return sum / (to - from);
}

/* Slope of the least-squares line through the samples from @from on. */
static double slope(const double *v, u32 from)
{
	const double mt = mean(when, from, nr_samples);
	const double mv = mean(v, from, nr_samples);
	double tt = 0, tv = 0;
	u32 i;

	for (i = from; i < nr_samples; i++) {
		tt += (when[i] - mt) * (when[i] - mt);
		tv += (when[i] - mt) * (v[i] - mv);
	}
	return tv / tt;
}

/* Allowed growth of a figure that begins with @first. */
static double slack(enum figure f, double first)
{
	if (f == FIG_ANON || f == FIG_SHMEM)
		return first * SLACK_PERCENT / 100 + by_level(4096, 512, 1024);
	return f == FIG_FDS ? FDS_SLACK : 0.5;
}

static void judge_flat(const struct watched *w, enum figure f, u32 from)
{
	const u32 quarter = (nr_samples - from) / 4;
	const double *v = w->at[f];
	const double first = mean(v, from, from + quarter);
	const double last = mean(v, nr_samples - quarter, nr_samples);
	const double rise = slope(v, from) *
			    (when[nr_samples - 1] - when[from]);

	ck_assert_msg(rise <= slack(f, first) && last - first <= slack(f, first),
		      "%s: %s: %.1f in the first quarter, %.1f in the last, and the line rises by %.1f",
		      w->name, figure_name[f], first, last, rise);
}

/* First sample of the flat part. */
static u32 flat_from(void)
{
	const u32 warm = by_level(3, 15, 360);
	u32 from = 0;

	while (from < nr_samples && when[from] < warm)
		from++;
	ck_assert_msg(from + 8 <= nr_samples, "%u samples in all", nr_samples);
	return from;
}

static void print_figures(u32 from)
{
	u32 i, q = (nr_samples - from) / 4;

	printf("total: memory:");
	for (i = 0; i < PROCS; i++) {
		const struct watched *w = &watched[i];
		const double *anon = w->at[FIG_ANON], *sh = w->at[FIG_SHMEM];

		printf("%s %s %.0f to %.0f KiB (%+.0f an hour), shared %.0f to %.0f, %.0f fds, %.0f threads",
		       i ? ";" : "", w->name, mean(anon, from, from + q),
		       mean(anon, nr_samples - q, nr_samples),
		       slope(anon, from) * 3600, mean(sh, from, from + q),
		       mean(sh, nr_samples - q, nr_samples),
		       mean(w->at[FIG_FDS], nr_samples - q, nr_samples),
		       mean(w->at[FIG_THREADS], nr_samples - q, nr_samples));
	}
	printf("\n");
	fflush(stdout);
}

/* ---- the node ---- */

/* Counters of actions against a lack of memory; each must have happened. */
static const char * const proof[] = {
	"prefix_evict", "preempt_swap", "swap_restore", "preempt_recompute",
	"recompute_tokens", "pswpout", "pswpin",
};

static void judge_pressure(void)
{
	u32 i;
	s64 v;

	printf(" ");
	for (i = 0; i < ARRAY_SIZE(proof); i++) {
		v = rig_value(&rig, "vmstat", proof[i]);
		printf(" %s %lld", proof[i], (long long)v);
		ck_assert_msg(v > by_level(-1, 0, 0) || by_level(1, 0, 0),
			      "no %s", proof[i]);
	}
	printf("\n");
}

/* No request is left and no block cached: all memory must be free. */
static void expect_empty(void)
{
	static const char * const key[] = {
		"Open", "Sealed", "PrefixCached", "Quiescing", "Quarantine",
		"Limbo", "Revoking", "HostUsed", "HostLimbo", "SwapUsed",
		"SwapLimbo",
	};
	const u64 end = now_ms() + 20000 * time_scale();
	struct job j = job_start(&rig, "kvctl", "drop_caches", NULL);
	u32 i = 0;

	ck_assert_int_eq(job_wait(&j, 60), 0);
	while (i < ARRAY_SIZE(key)) {
		const s64 v = rig_value(&rig, "meminfo", key[i]);

		if (!v) {
			i++;
			continue;
		}
		ck_assert_msg(now_ms() < end, "%lld kB of %s stay",
			      (long long)v, key[i]);
		nap_ms(20);
	}
	ck_assert_int_eq(rig_value(&rig, "vmstat", "nr_seqs"), 0);
	rig_walk(&rig);
}

/* Load for @seconds, with a sample and the walkers every @every_ms. */
static void soak(u32 seconds, u32 every_ms)
{
	const u64 begin = now_ms();
	u64 next = begin, now;

	soak_load_start(&server, CLIENTS);
	while ((now = now_ms()) < begin + seconds * 1000ull) {
		if (now < next) {
			nap_ms((u32)(next - now));
			continue;
		}
		next = now + every_ms;
		soak_load_judge();
		rig_walk(&rig);
		nr_walks++;
		sample((double)(now_ms() - begin) / 1000);
	}
	soak_load_stop();
}

static void judge_all(u32 from)
{
	u32 i, f;

	if (time_scale() > 1) {
		puts("note: memory: not judged, a sanitizer keeps what was freed");
		return;
	}
	for (i = 0; i < PROCS; i++)
		for (f = 0; f < NR_FIGURES; f++)
			judge_flat(&watched[i], f, from);
}

START_TEST(test_soak)
{
	const u32 seconds = by_level(5, 60, 1800) *
			    (by_level(1, 0, 0) ? time_scale() : 1);
	struct soak_counts n;
	u32 fds, from;

	soak_load_learn(&server);
	fds = serve_fds(&server);
	watch_all();
	soak(seconds, by_level(250, 1000, 3000));
	serve_await_idle(&server, 30000);
	soak_load_counts(&n);
	from = flat_from();
	printf("total: %u s at full load: %llu requests asked (%.1f a second) over %llu connections, %llu whole (%llu streams, %llu chats, %llu slow), %llu the same as alone, %llu left, %llu refused, longest wait %llu ms; walkers %u times\n",
	       seconds, (unsigned long long)n.asked, (double)n.asked / seconds,
	       (unsigned long long)n.opened, (unsigned long long)n.whole,
	       (unsigned long long)n.streams, (unsigned long long)n.chats,
	       (unsigned long long)n.slow, (unsigned long long)n.compared,
	       (unsigned long long)n.cancelled, (unsigned long long)n.refused,
	       (unsigned long long)n.longest, nr_walks);
	print_figures(from);
	judge_pressure();
	ck_assert_uint_eq(n.asked, n.whole + n.cancelled + n.refused);
	ck_assert(n.compared && n.cancelled && n.refused && n.slow && n.chats);
	ck_assert_uint_eq(serve_ended(&server, "error"), 0);
	serve_expect_fds(&server, fds);
	expect_empty();
	ck_assert_int_eq(rig_daemon(&rig), watched[1].pid);
	ck_assert_int_eq(rig_swapd(&rig), watched[2].pid);
	judge_all(from);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("soak");
	TCase *tc = tcase_create("soak");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	/* An hour in two halves: libcheck reports tests of 35 minutes at most. */
	tcase_set_timeout(tc, by_level(120, 300, 2400));
	tcase_add_loop_test(tc, test_soak, 0, by_level(1, 1, 2));
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
