// SPDX-License-Identifier: Apache-2.0
/*
 * probe.c - ask a program for the layout of its arena
 *
 * A program that is to become kvmm prints the layout of its arena, with
 * --arena-layout.  Until it has, it may be any program.  So it runs as the user of
 * kvmm, without capabilities and ways to get any, under small limits, with only
 * its output and its own file open, and not longer than PROBE_MS.  It may not
 * start processes, which could leave its group; as uid 0, if there is no user for
 * kvmm, no limit prevents that, and hold ends only its group.
 *
 * hold goes on meanwhile, and reads the output when there is some.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/sandbox.h>

#include "kvmm/hold/probe.h"

#define PROBE_FD	3	/* of the program, in the child */
#define EXIT_ACCESS	126
#define EXIT_NONE	127

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED	1	/* and so is, most likely, the other program */
#else
#define SANITIZED	0
#endif

/* ---- the child ---- */

/* Leave open: 0 and 2: /dev/null, 1: the pipe, 3: the program. */
static int probe_files(int fd, int out)
{
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int f = fcntl(fd, F_DUPFD_CLOEXEC, PROBE_FD + 1);
	const int o = fcntl(out, F_DUPFD_CLOEXEC, PROBE_FD + 1);

	/* Not closed on exec: a script's name leads to this descriptor. */
	if (null < 0 || f < 0 || o < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(o, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 ||
	    dup2(f, PROBE_FD) < 0 ||
	    syscall(SYS_close_range, PROBE_FD + 1, ~0u, 0))
		return -errno;
	return 0;
}

static int probe_limits(void)
{
	static const struct {
		int	what;
		rlim_t	most;
	} limit[] = {
#define x(name, value, text) { RLIMIT_##name, value },
		PROBE_LIMITS(x)
#undef x
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(limit); i++) {
		const struct rlimit r = { limit[i].most, limit[i].most };

		if (SANITIZED && (limit[i].what == RLIMIT_AS ||
				  limit[i].what == RLIMIT_NPROC))
			continue;
		if (setrlimit(limit[i].what, &r))
			return -errno;
	}
	return 0;
}

static void __noreturn probe_exec(int fd, int out, pid_t parent,
				  const char *user)
{
	char *argv[] = { (char *)"kvmm", (char *)"--arena-layout", NULL };
	sigset_t none;

	setsid();
	/* sandbox_shed() comes first: hold's log gets its failures. */
	if (sandbox_shed(user, "kvmm") || probe_files(fd, out) ||
	    probe_limits())
		_exit(EXIT_NONE);
	/* A change of user would clear it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_NONE);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	syscall(SYS_execveat, PROBE_FD, "", argv, environ, AT_EMPTY_PATH);
	_exit(errno == EACCES ? EXIT_ACCESS : EXIT_NONE);
}

/* ---- hold ---- */

void probe_init(struct probe *p)
{
	memset(p, 0, sizeof(*p));
	p->out = -1;
}

int probe_start(struct probe *p, int fd, const char *user)
{
	const pid_t self = getpid();
	int out[2], err;

	probe_cancel(p);
	if (pipe2(out, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	/* The end of the child is a blocking one. */
	err = fcntl(out[1], F_SETFL, 0) ? -errno : 0;
	if (!err) {
		p->pid = fork();
		if (!p->pid)
			probe_exec(fd, out[1], self, user);
		err = p->pid < 0 ? -errno : 0;
	}
	close(out[1]);
	if (err) {
		close(out[0]);
		p->pid = 0;
		return err;
	}
	p->out = out[0];
	p->have = 0;
	p->end = kv_now_ms() + PROBE_MS;
	return 0;
}

/* Return: the wait status, that of its exit if it was ending by itself. */
static int probe_end(struct probe *p)
{
	int status = 0;

	/* If it has not made its group yet, it has no children. */
	kill(-p->pid, SIGKILL);
	kill(p->pid, SIGKILL);
	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
		;
	close(p->out);
	p->out = -1;
	p->pid = 0;
	return status;
}

void probe_cancel(struct probe *p)
{
	if (p->pid)
		(void)probe_end(p);
}

/* Return: may more output come? */
static bool probe_read(struct probe *p)
{
	ssize_t n;

	while (p->have + 1 < sizeof(p->text)) {
		n = read(p->out, p->text + p->have,
			 sizeof(p->text) - 1 - p->have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
		p->have += (u32)n;
	}
	return false;
}

int probe_take(struct probe *p, u64 *layout)
{
	unsigned long long value;
	int status;

	if (probe_read(p) && kv_now_ms() < p->end)
		return -EAGAIN;
	p->text[p->have] = '\0';
	status = probe_end(p);
	if (sscanf(p->text, "arena %llx", &value) == 1) {
		*layout = value;
		return 0;
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_ACCESS ?
		-EACCES : -ENOEXEC;
}
