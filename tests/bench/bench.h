/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - helpers of all benchmarks of the project
 *
 * Samples and their percentiles, rounds and their spread, a daemon to measure
 * against, and the one form in which figures are reported (report.c).
 *
 * A figure is measured in several rounds.  Rounds of the project and of its peer
 * take turns, so that both see the same machine.  The figure is the median over
 * the rounds of one value of a round (say, its p50); its spread is how far apart
 * the rounds were.
 */
#ifndef TESTS_BENCH_H
#define TESTS_BENCH_H

#include <stdio.h>

#include <libkvmm.h>

#define BENCH_ROUNDS_MAX	32

/* ---- time ---- */

/* Nanoseconds, and ticks of the cheapest clock. */
u64 bench_now(void);

static inline u64 bench_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return bench_now();
#endif
}

/* Nanoseconds of a tick; measured on the first call. */
double bench_tick_ns(void);

/* ---- samples and rounds ---- */

/**
 * struct bench_samples - durations of one round, in ticks
 */
struct bench_samples {
	u64	*ticks;
	u32	nr;
	u32	max;
};

void bench_samples_init(struct bench_samples *s, u32 max);
void bench_samples_free(struct bench_samples *s);
static inline void bench_add(struct bench_samples *s, u64 ticks)
{
	if (s->nr < s->max)
		s->ticks[s->nr++] = ticks;
}

/**
 * struct bench_series - one measured quantity over all rounds, in microseconds
 * @name: as in the report
 * @p50:  of each round
 * @p99:  of each round
 */
struct bench_series {
	const char	*name;
	double		p50[BENCH_ROUNDS_MAX];
	double		p99[BENCH_ROUNDS_MAX];
	u32		rounds;
};

/* Close a round: percentiles of @s go to @series, and @s is emptied. */
void bench_round(struct bench_series *series, struct bench_samples *s);

/* Median of @nr values; @v does not change. */
double bench_median(const double *v, u32 nr);

/* Smallest and largest of @nr values. */
void bench_range(const double *v, u32 nr, double *lo, double *hi);

/* ---- figures ---- */

/**
 * struct bench_figure - one line of the report
 * @name:       unique in a run
 * @value:      the figure
 * @unit:       "us", "tokens/s"
 * @peer:       name of the peer, or NULL
 * @peer_value: the peer's figure, in the same unit
 * @ratio:      median of the rounds' ratios, which may differ from the ratio of
 *              the medians; 0: value / peer_value
 * @ratio_low, @ratio_high: the least and the greatest ratio of a round
 * @max_ratio:  aim for value / peer_value, or 0
 * @max_value:  aim for the value, or 0
 * @min_ratio:  the same where more is better
 * @min_value:  the same where more is better
 * @series:     its rounds, for p99 and spread, or NULL
 */
struct bench_figure {
	const char			*name;
	double				value;
	const char			*unit;
	const char			*peer;
	double				peer_value;
	double				ratio;
	double				ratio_low;
	double				ratio_high;
	double				max_ratio;
	double				max_value;
	double				min_ratio;
	double				min_value;
	const struct bench_series	*series;
};

/*
 * Append the figure as one line of JSON to $KVMM_BENCH_OUT, else to standard
 * output.
 */
void bench_report(const struct bench_figure *f);

/* ---- a daemon ---- */

/**
 * struct bench_daemon - a kvmm of this build, on its own socket
 */
struct bench_daemon {
	pid_t	pid;
	char	dir[80];
	char	socket[108];
};

/**
 * bench_daemon_start() - start $KVMM_BUILD/kvmm and wait until it listens
 * @args: further arguments, NULL-terminated
 *
 * On an error it prints a line and ends the benchmark.
 */
void bench_daemon_start(struct bench_daemon *d, const char *const *args);

/* The same with $KVMM_BUILD/kvmm-hold, which starts kvmm and, with it, swapd. */
void bench_hold_start(struct bench_daemon *d, const char *const *args);

/* Send SIGTERM, wait, remove its directory. */
void bench_daemon_stop(struct bench_daemon *d);

/* CPU nanoseconds of all its threads, or 0 if the kernel does not say. */
u64 bench_daemon_cpu_ns(const struct bench_daemon *d);

/* The same of any process. */
u64 bench_cpu_ns(pid_t pid);

/* The child of this name of a process, or 0. */
pid_t bench_child(pid_t of, const char *name);

/*
 * Text of a file of the daemon, or NULL if there is none; free it with free().  Where
 * kvmm has just died, it waits for the next one.
 */
char *bench_file(const struct bench_daemon *d, const char *file);

/* Value of a key in a file of the daemon; 0: no such file or key. */
u64 bench_file_value(const struct bench_daemon *d, const char *file,
		     const char *key);

/* Run kvctl, without its output.  Return: its wait status. */
int bench_kvctl(const struct bench_daemon *d, const char *command);

/* Value of `key N` in lines of this form, as the daemon's files have; 0: no such line. */
u64 bench_key_value(const char *text, const char *key);

/* Print a line that `make bench` shows: whether an aim was reached, and the figure. */
void bench_verdict(bool meets, const char *fmt, ...) __printf(2, 3);

/* Print a line and end the benchmark; children die with it. */
void __noreturn bench_die(const char *fmt, ...) __printf(1, 2);

#endif /* TESTS_BENCH_H */
