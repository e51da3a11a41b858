// SPDX-License-Identifier: Apache-2.0
/*
 * bench.c - clocks, percentiles, figures and daemons for benchmarks
 */
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/armed.h"
#include "tests/bench/bench.h"

#define CALIBRATE_NS	50000000ull
#define START_TRIES	1000		/* of 10 ms, for a daemon to listen */
#define END_TRIES	300		/* the same, to end */

void bench_die(const char *fmt, ...)
{
	va_list ap;

	fputs("bench: error: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

/* ---- time ---- */

u64 bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

double bench_tick_ns(void)
{
	static double ns;
	u64 start, ticks, now;

	if (ns > 0)
		return ns;
	start = bench_now();
	ticks = bench_ticks();
	do {
		now = bench_now();
	} while (now - start < CALIBRATE_NS);
	ns = (double)(now - start) / (double)(bench_ticks() - ticks);
	return ns;
}

/* ---- samples and rounds ---- */

void bench_samples_init(struct bench_samples *s, u32 max)
{
	s->ticks = calloc(max, sizeof(*s->ticks));
	s->nr = 0;
	s->max = max;
	if (!s->ticks)
		bench_die("no memory for %u samples", max);
}

void bench_samples_free(struct bench_samples *s)
{
	free(s->ticks);
	s->ticks = NULL;
}

static int cmp_u64(const void *a, const void *b)
{
	const u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return (x > y) - (x < y);
}

static int cmp_double(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void bench_round(struct bench_series *series, struct bench_samples *s)
{
	const double us = bench_tick_ns() / 1000;
	const u32 i = series->rounds;

	if (i == BENCH_ROUNDS_MAX || !s->nr)
		bench_die("%s: too many rounds, or none measured anything",
			  series->name);
	qsort(s->ticks, s->nr, sizeof(*s->ticks), cmp_u64);
	series->p50[i] = us * (double)s->ticks[s->nr / 2];
	series->p99[i] = us * (double)s->ticks[(u64)s->nr * 99 / 100];
	series->rounds++;
	s->nr = 0;
}

double bench_median(const double *v, u32 nr)
{
	double sorted[BENCH_ROUNDS_MAX];

	memcpy(sorted, v, nr * sizeof(*v));
	qsort(sorted, nr, sizeof(*sorted), cmp_double);
	return nr % 2 ? sorted[nr / 2] :
	       (sorted[nr / 2 - 1] + sorted[nr / 2]) / 2;
}

void bench_range(const double *v, u32 nr, double *lo, double *hi)
{
	u32 i;

	*lo = *hi = v[0];
	for (i = 1; i < nr; i++) {
		if (v[i] < *lo)
			*lo = v[i];
		if (v[i] > *hi)
			*hi = v[i];
	}
}

/* ---- figures ---- */

static void print_series(FILE *out, const struct bench_series *s)
{
	double lo, hi;

	bench_range(s->p50, s->rounds, &lo, &hi);
	fprintf(out, ", \"p99\": %.6g, \"rounds\": %u, \"min\": %.6g, \"max\": %.6g",
		bench_median(s->p99, s->rounds), s->rounds, lo, hi);
}

static void print_figure(FILE *out, const struct bench_figure *f)
{
	const double ratio = !f->peer ? 0 :
			     f->ratio > 0 ? f->ratio : f->value / f->peer_value;

	fprintf(out, "{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"",
		f->name, f->value, f->unit);
	if (f->peer)
		fprintf(out, ", \"peer\": \"%s\", \"peer_value\": %.6g, \"ratio\": %.4g",
			f->peer, f->peer_value, ratio);
	else
		fprintf(out, ", \"peer\": null, \"peer_value\": null, \"ratio\": null");
	if (f->peer && f->ratio > 0)
		fprintf(out, ", \"ratio_low\": %.4g, \"ratio_high\": %.4g",
			f->ratio_low, f->ratio_high);
	if (f->max_ratio > 0)
		fprintf(out, ", \"goal\": \"ratio <= %g\", \"ok\": %s",
			f->max_ratio, ratio <= f->max_ratio ? "true" : "false");
	else if (f->max_value > 0)
		fprintf(out, ", \"goal\": \"<= %g %s\", \"ok\": %s", f->max_value,
			f->unit, f->value <= f->max_value ? "true" : "false");
	else if (f->min_ratio > 0)
		fprintf(out, ", \"goal\": \"ratio >= %g\", \"ok\": %s",
			f->min_ratio, ratio >= f->min_ratio ? "true" : "false");
	else if (f->min_value > 0)
		fprintf(out, ", \"goal\": \">= %g %s\", \"ok\": %s", f->min_value,
			f->unit, f->value >= f->min_value ? "true" : "false");
	else
		fprintf(out, ", \"goal\": null, \"ok\": null");
	if (f->series)
		print_series(out, f->series);
	fprintf(out, "}\n");
}

void bench_report(const struct bench_figure *f)
{
	const char *path = getenv("KVMM_BENCH_OUT");
	FILE *out;

	if (!path || !*path) {
		print_figure(stdout, f);
		return;
	}
	out = fopen(path, "a");
	if (!out)
		bench_die("%s: %s: name a file that can be written in KVMM_BENCH_OUT",
			  path, strerror(errno));
	print_figure(out, f);
	if (fclose(out))
		bench_die("%s: %s", path, strerror(errno));
}

/* ---- a daemon ---- */

static struct bench_daemon *running[4];

static void remove_dir(const struct bench_daemon *d)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", d->dir);
	if (system(cmd))
		fprintf(stderr, "bench: %s cannot be removed\n", d->dir);
}

/* Kill it only late: it may have mounted files, which only its own end unmounts. */
static void end_daemon(pid_t pid)
{
	int i;

	kill(pid, SIGTERM);
	for (i = 0; i < END_TRIES; i++) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return;
		usleep(10000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* At exit, after a failure: kill the daemons that still run. */
static void kill_daemons(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(running); i++) {
		if (!running[i])
			continue;
		end_daemon(running[i]->pid);
		remove_dir(running[i]);
	}
}

static void note_daemon(struct bench_daemon *d)
{
	static bool registered;
	u32 i;

	if (!registered)
		atexit(kill_daemons);
	registered = true;
	for (i = 0; running[i]; i++)
		if (i == ARRAY_SIZE(running) - 1)
			bench_die("too many daemons at once");
	running[i] = d;
}

static void forget_daemon(const struct bench_daemon *d)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(running); i++)
		if (running[i] == d)
			running[i] = NULL;
}

static void run_daemon(const struct bench_daemon *d, const char *program,
		       const char *const *args)
{
	const char *build = getenv("KVMM_BUILD"), *argv[32];
	char path[512];
	u32 n = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s%s/%s", build ? build : "build",
		 armed_folder(NULL), program);
	argv[n++] = path;
	argv[n++] = "--socket";
	argv[n++] = d->socket;
	argv[n++] = "--log-level";
	argv[n++] = "warn";
	while (*args && n < ARRAY_SIZE(argv) - 1)
		argv[n++] = *args++;
	argv[n] = NULL;
	execv(path, (char *const *)argv);
	fprintf(stderr, "bench: error: %s: %s: build it or set KVMM_BUILD\n",
		path, strerror(errno));
	_exit(127);
}

/* The socket's name is there some time before the daemon listens. */
static bool somebody_listens(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool ret;

	if (s < 0)
		bench_die("socket: %s", strerror(errno));
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	ret = !connect(s, (const struct sockaddr *)&addr, sizeof(addr));
	close(s);
	return ret;
}

static void start_program(struct bench_daemon *d, const char *program,
			  const char *const *args)
{
	const char *tmp = getenv("TMPDIR");
	int i, status;

	snprintf(d->dir, sizeof(d->dir), "%s/kvbXXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(d->dir))
		bench_die("%s: %s", d->dir, strerror(errno));
	snprintf(d->socket, sizeof(d->socket), "%s/attach.sock", d->dir);
	/* The default depends on the machine; a bench that swaps gives a size. */
	setenv("KVMM_HOST_SIZE", "0", 0);
	d->pid = fork();
	if (d->pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (!d->pid)
		run_daemon(d, program, args);
	note_daemon(d);
	for (i = 0; !somebody_listens(d->socket); i++) {
		if (waitpid(d->pid, &status, WNOHANG) == d->pid)
			bench_die("kvmm ended with status 0x%x", status);
		if (i == START_TRIES)
			bench_die("kvmm does not make %s", d->socket);
		usleep(10000);
	}
}

void bench_daemon_start(struct bench_daemon *d, const char *const *args)
{
	start_program(d, "kvmm", args);
}

void bench_hold_start(struct bench_daemon *d, const char *const *args)
{
	start_program(d, "kvmm-hold", args);
}

void bench_daemon_stop(struct bench_daemon *d)
{
	int status;

	forget_daemon(d);
	kill(d->pid, SIGTERM);
	if (waitpid(d->pid, &status, 0) != d->pid || status)
		bench_die("kvmm ended with status 0x%x", status);
	remove_dir(d);
}

u64 bench_cpu_ns(pid_t pid)
{
	unsigned long long ns;
	char path[320];
	struct dirent *e;
	u64 sum = 0;
	DIR *dir;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat",
			 (int)pid, e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (!f)
			continue;
		if (fscanf(f, "%llu", &ns) == 1)
			sum += ns;
		fclose(f);
	}
	if (dir)
		closedir(dir);
	return sum;
}

pid_t bench_child(pid_t of, const char *name)
{
	char path[320], comm[32];
	unsigned int parent;
	pid_t pid = 0;
	DIR *dir = opendir("/proc");
	struct dirent *e;
	FILE *f;

	while (dir && !pid && (e = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		f = atoi(e->d_name) ? fopen(path, "re") : NULL;
		if (!f)
			continue;
		if (fscanf(f, "%*d (%31[^)]) %*c %u", comm, &parent) == 2 &&
		    (pid_t)parent == of && !strcmp(comm, name))
			pid = atoi(e->d_name);
		fclose(f);
	}
	if (dir)
		closedir(dir);
	return pid;
}

u64 bench_key_value(const char *text, const char *key)
{
	size_t len = strlen(key);
	const char *p;

	for (p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (!strncmp(p, key, len) && (p[len] == ' ' || p[len] == ':'))
			return strtoull(p + len + 1, NULL, 10);
	return 0;
}

u64 bench_daemon_cpu_ns(const struct bench_daemon *d)
{
	return bench_cpu_ns(d->pid);
}

/* ---- verdicts ---- */

void bench_verdict(bool meets, const char *fmt, ...)
{
	va_list ap;

	fputs(meets ? "note: MEETS: " : "note: short: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}
