// SPDX-License-Identifier: Apache-2.0
/*
 * parts.c - run the parts of a program, whatever happens to each
 *
 * The process that the user started never touches the driver.  It starts itself
 * again for each part, with a pipe for figures.  It ends the part's whole group
 * when its time is over, and writes the array of all figures by rename.  So a
 * part that hangs in the driver costs its own time and no more, and after a part
 * that lost its context the next one has a fresh one.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/gpu.h"

bool gpu_tiny;

/* All figures of the run, as lines. */
struct figures {
	char	*text;
	size_t	nr;
	size_t	room;
};

struct options {
	const char	*only;
	const char	*run;		/* this part, in this process */
	const char	*out;
	char		command[512];
};

void gpu_die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static void figures_read(struct figures *f, int fd)
{
	ssize_t got;

	if (f->room - f->nr < 65536) {
		f->room += 1 << 20;
		f->text = realloc(f->text, f->room);
		if (!f->text)
			gpu_die("no memory for the figures");
	}
	got = read(fd, f->text + f->nr, 65536);
	if (got > 0)
		f->nr += got;
}

/* Write all lines as an array: the last line has no comma. */
static void figures_write(const struct figures *f, const char *dir,
			  const char *name)
{
	char path[4096], tmp[4200];
	size_t i;
	FILE *to;

	snprintf(path, sizeof(path), "%s/%s.json", dir, name);
	snprintf(tmp, sizeof(tmp), "%s.new", path);
	to = fopen(tmp, "w");
	if (!to)
		gpu_die("%s cannot be written", tmp);
	fputs("[\n", to);
	for (i = 0; i < f->nr; i++) {
		if (f->text[i] == '\n' && i + 1 < f->nr)
			fputc(',', to);
		fputc(f->text[i], to);
	}
	fputs("]\n", to);
	if (fclose(to) || rename(tmp, path))
		gpu_die("%s cannot be written", path);
	printf("figures: %s\n", path);
}

static pid_t part_start(const struct gpu_part *p, int pipe_end)
{
	char run[64], fd[16];
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		gpu_die("fork failed");
	if (pid)
		return pid;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(run, sizeof(run), "--run=%s", p->name);
	snprintf(fd, sizeof(fd), "%d", pipe_end);
	setenv("KVMM_GPU_FIGURES", fd, 1);
	execl("/proc/self/exe", "part", run, gpu_tiny ? "--tiny" : NULL,
	      (char *)NULL);
	_exit(127);
}

/* Read figures until the part's processes are gone or its time is over. */
static bool part_watch(const struct gpu_part *p, pid_t pid, int fd,
		       struct figures *f, int *status)
{
	const double end = gpu_now_us() + 1e6 * p->seconds;
	struct pollfd pf = { .fd = fd, .events = POLLIN };
	bool over = false;

	for (;;) {
		if (poll(&pf, 1, 100) > 0 && (pf.revents & POLLIN))
			figures_read(f, fd);
		else if (waitpid(pid, status, WNOHANG) == pid)
			break;
		if (!over && gpu_now_us() > end) {
			over = true;
			kill(-pid, SIGKILL);
		}
		/* A driver may keep a killed process: do not wait for it. */
		if (over && gpu_now_us() > end + 15e6)
			break;
	}
	/* End processes that the part started and left. */
	kill(-pid, SIGKILL);
	while (poll(&pf, 1, 0) > 0 && (pf.revents & POLLIN))
		figures_read(f, fd);
	return over;
}

static void add_failure(struct figures *f, const char *program,
			const char *part, const char *why)
{
	int ends[2];

	if (pipe(ends))
		gpu_die("no pipe");
	dup2(ends[1], 9);
	close(ends[1]);
	setenv("KVMM_GPU_FIGURES", "9", 1);
	gpu_failed(why, "%s.%s", program, part);
	unsetenv("KVMM_GPU_FIGURES");
	close(9);
	figures_read(f, ends[0]);
	close(ends[0]);
}

/* Run a part.  Return: 0, or its contribution to the exit status. */
static int part_run(const struct gpu_program *g, const struct gpu_part *p,
		    struct figures *f)
{
	double start = gpu_now_us();
	int ends[2], status = 0;
	char why[128];
	bool over;
	pid_t pid;

	if (pipe(ends))
		gpu_die("no pipe");
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	printf("\n%s: %s\n", p->name, p->what);
	pid = part_start(p, ends[1]);
	setpgid(pid, pid);
	close(ends[1]);
	over = part_watch(p, pid, ends[0], f, &status);
	close(ends[0]);

	if (over)
		snprintf(why, sizeof(why), "ended after its %u s", p->seconds);
	else if (WIFSIGNALED(status))
		snprintf(why, sizeof(why), "ended by signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status))
		snprintf(why, sizeof(why), "exit status %d", WEXITSTATUS(status));
	else
		*why = '\0';
	if (!over && WIFEXITED(status) && WEXITSTATUS(status) == 77 && !f->nr)
		return 77;
	if (*why)
		add_failure(f, g->name, p->name, why);
	printf("%s: %s, %.1f s\n", p->name, *why ? why : "done",
	       (gpu_now_us() - start) / 1e6);
	return *why ? 1 : 0;
}

static bool is_wanted(const char *list, const char *name)
{
	size_t n = strlen(name);
	const char *at;

	if (!list || !*list)
		return true;
	for (at = list; (at = strstr(at, name)); at += n) {
		if ((at == list || strchr(", ", at[-1])) &&
		    (!at[n] || strchr(", ", at[n])))
			return true;
	}
	return false;
}

static int run_all(const struct gpu_program *p, const struct options *o)
{
	struct figures f = { 0 };
	const struct gpu_part *part;
	u32 nr = 0, bad = 0;
	int rc;

	for (part = p->parts; part->name; part++) {
		if (!is_wanted(o->only, part->name))
			continue;
		nr++;
		rc = part_run(p, part, &f);
		if (rc == 77 && nr == 1)
			return 77;
		bad += rc != 0;
	}
	if (!nr) {
		fprintf(stderr, "%s: no part is called %s; see --list\n",
			p->name, o->only);
		return 2;
	}
	putchar('\n');
	figures_write(&f, o->out, p->name);
	printf("%u parts passed, %u failed\n", nr - bad, bad);
	return bad ? 1 : 0;
}

static int run_here(const struct gpu_program *p, const char *name)
{
	const struct gpu_part *part;

	for (part = p->parts; part->name; part++) {
		if (!strcmp(part->name, name)) {
			part->run();
			return 0;
		}
	}
	return 2;
}

static int list_parts(const struct gpu_program *p)
{
	const struct gpu_part *part;

	for (part = p->parts; part->name; part++)
		printf("%-10s %4u s  %s\n", part->name, part->seconds,
		       part->what);
	return 0;
}

static void out_dir(struct options *o)
{
	if (!o->out)
		o->out = getenv("OUT");
	if (!o->out || !*o->out) {
		o->out = "build/gpu";
		mkdir("build", 0777);
	}
	mkdir(o->out, 0777);
}

int gpu_main(const struct gpu_program *p, int argc, char **argv)
{
	struct options o = { .only = getenv("PART") };
	size_t n = 0;
	int i;

	for (i = 0; i < argc && n < sizeof(o.command); i++)
		n += snprintf(o.command + n, sizeof(o.command) - n, "%s%s",
			      i ? " " : "", argv[i]);
	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--tiny"))
			gpu_tiny = true;
		else if (!strcmp(argv[i], "--list"))
			return list_parts(p);
		else if (!strncmp(argv[i], "--part=", 7))
			o.only = argv[i] + 7;
		else if (!strncmp(argv[i], "--out=", 6))
			o.out = argv[i] + 6;
		else if (!strncmp(argv[i], "--run=", 6))
			o.run = argv[i] + 6;
		else
			goto out_usage;
	}
	if (o.run)
		return run_here(p, o.run);
	setenv("KVMM_GPU_COMMAND", o.command, 1);
	out_dir(&o);
	return run_all(p, &o);

out_usage:
	fprintf(stderr, "usage: %s [--part=A,B] [--tiny] [--out=DIR] [--list]\n",
		p->name);
	return 2;
}
