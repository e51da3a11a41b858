// SPDX-License-Identifier: Apache-2.0
/*
 * nest_keep.c - the keeper of a nest
 *
 * The keeper starts the daemon, waits until it serves, and starts the server.
 * Both tell their state as to systemd, each over a socket of its own, and write
 * their log to a file in the folder.  They get SIGTERM when the keeper dies.
 *
 * The keeper is forked from a program with threads, which may hold a CUDA driver.  It
 * calls no function of that driver, and of the C library only those that a fork of
 * glibc leaves usable (malloc among them).
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/clock.h>

#include "runtime/cli/nest_keep.h"

#define SERVER_GRACE_MS	5000
#define DAEMON_GRACE_MS	15000	/* kvmm-hold gives kvmm 10 s */
#define ORPHAN_GRACE_MS	5000
#define LOOK_MS		10

extern char **environ;

/**
 * struct ward - one program
 * @pid:    0: it does not run
 * @fd:     pidfd, or -1
 * @notify: socket for its state, or -1
 */
struct ward {
	pid_t	pid;
	int	fd;
	int	notify;
};

struct keeper {
	const char	*dir;
	int		line;
	char		**argv[NEST_WARDS];
	struct ward	ward[NEST_WARDS];
};

static const char * const logs[] = { NEST_DAEMON_LOG, NEST_SERVER_LOG };
static const char * const notifies[] = { "daemon.notify", "server.notify" };

static void tell(struct keeper *k, u32 kind, u32 ward, int code,
		 const char *text)
{
	struct nest_word w = { .kind = kind, .ward = ward, .code = code };

	snprintf(w.text, sizeof(w.text), "%s", text);
	/* When the server is ready the other end reads no more: never wait. */
	(void)!send(k->line, &w, sizeof(w), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- start ---- */

/* Does the variable name a place, and no setting? */
static bool is_place(const char *name)
{
	return !strcmp(name, "KVMM_LIBCUDA") || !strcmp(name, "KVMM_RUNDIR") ||
	       !strcmp(name, "KVMM_SOCKET");
}

/* Settings of the user's own daemon and server are not for these. */
static void clear_environment(void)
{
	char name[128];
	char **e = environ;

	while (*e) {
		const size_t n = strcspn(*e, "=");
		const bool ours = !strncmp(*e, "KVMM_", 5) ||
				  !strncmp(*e, "KVRT_", 5);

		snprintf(name, sizeof(name), "%.*s", (int)n, *e);
		if (!ours || n >= sizeof(name) || is_place(name) ||
		    unsetenv(name))
			e++;
	}
}

static int notify_socket(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(sa.sun_path))
		return -1;
	strcpy(sa.sun_path, path);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* @mask: to restore: the keeper blocked the signals that it ignores, lest one be lost. */
static void __noreturn ward_exec(struct keeper *k, u32 i, pid_t parent,
				 const char *notify, const sigset_t *mask)
{
	char path[NEST_DIR_MAX + 16];
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(EX_OSERR);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	snprintf(path, sizeof(path), "%s/%s", k->dir, logs[i]);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0)
		dup2(fd, STDERR_FILENO);
	clear_environment();
	setenv("NOTIFY_SOCKET", notify, 1);
	execvp(k->argv[i][0], k->argv[i]);
	dprintf(STDERR_FILENO, "kvrt: error: %s cannot be started: %s: install it beside kvrt\n",
		k->argv[i][0], strerror(errno));
	_exit(EX_UNAVAILABLE);
}

static void ward_start(struct keeper *k, u32 i)
{
	const pid_t parent = getpid();
	struct ward *w = &k->ward[i];
	char path[NEST_DIR_MAX + 16];
	sigset_t all, mask;

	tell(k, NEST_STATUS, i, 0, i == NEST_SERVER ? "loading the model" :
	     "starting a daemon for this command");
	snprintf(path, sizeof(path), "%s/%s", k->dir, notifies[i]);
	w->notify = notify_socket(path);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &mask);
	w->pid = w->notify < 0 ? -1 : fork();
	if (!w->pid)
		ward_exec(k, i, parent, path, &mask);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	if (w->pid > 0)
		w->fd = (int)syscall(SYS_pidfd_open, w->pid, 0);
	else
		w->pid = 0;
	if (w->fd < 0)
		tell(k, NEST_ENDED, i, EX_OSERR, "");
}

/* ---- the programs run ---- */

static void ward_told(struct keeper *k, u32 i)
{
	char text[1024], *line, *rest = text;
	ssize_t n = recv(k->ward[i].notify, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return;
	text[n] = '\0';
	while ((line = strsep(&rest, "\n"))) {
		/* A server that failed has the reason in its log, which is shown. */
		if (!strncmp(line, "ERRNO=", 6))
			return;
		if (!strncmp(line, "STATUS=", 7) && i == NEST_SERVER)
			tell(k, NEST_STATUS, i, 0, line + 7);
		if (strcmp(line, "READY=1"))
			continue;
		if (i == NEST_SERVER)
			tell(k, NEST_READY, i, 0, "");
		else if (k->ward[NEST_SERVER].notify < 0)
			ward_start(k, NEST_SERVER);	/* once: a daemon may say it again */
	}
}

static void ward_ended(struct keeper *k, u32 i)
{
	struct ward *w = &k->ward[i];
	int status = 0;

	waitpid(w->pid, &status, 0);
	w->pid = 0;
	close(w->fd);
	w->fd = -1;
	tell(k, NEST_ENDED, i, WIFEXITED(status) ? WEXITSTATUS(status) :
	     128 + WTERMSIG(status), "");
}

/* Serve both until the other end of the line is closed. */
static void watch(struct keeper *k)
{
	for (;;) {
		struct pollfd p[1 + 2 * NEST_WARDS] = {
			{ .fd = k->line, .events = POLLIN },
		};
		u32 i;

		for (i = 0; i < NEST_WARDS; i++) {
			p[1 + 2 * i] = (struct pollfd){ k->ward[i].notify, POLLIN, 0 };
			p[2 + 2 * i] = (struct pollfd){ k->ward[i].fd, POLLIN, 0 };
		}
		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
			return;
		if (p[0].revents)
			return;
		for (i = 0; i < NEST_WARDS; i++) {
			if (p[1 + 2 * i].revents)
				ward_told(k, i);
			if (p[2 + 2 * i].revents)
				ward_ended(k, i);
		}
	}
}

/* ---- the end ---- */

static void ward_end(struct ward *w, int grace_ms)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	int n;

	if (!w->pid)
		return;
	kill(w->pid, SIGTERM);
	do {
		n = poll(&p, 1, grace_ms);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		kill(w->pid, SIGKILL);
	waitpid(w->pid, NULL, 0);
	w->pid = 0;
}

/* Wait for all children.  Return: whether none is left. */
static bool reap(u32 grace_ms)
{
	const u64 end = kv_now_ms() + grace_ms;
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && kv_now_ms() < end)
		if (!pid)
			poll(NULL, 0, LOOK_MS);
	return pid < 0;
}

/* Children of a program that was killed come to the keeper: end those too. */
static void end_orphans(void)
{
	char text[1024], *p = text;
	ssize_t n;
	int fd;

	if (reap(ORPHAN_GRACE_MS))
		return;
	fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	for (; *p; p += strspn(p, " ")) {
		const pid_t pid = (pid_t)strtol(p, &p, 10);

		if (pid <= 1)
			break;
		kill(pid, SIGKILL);
	}
	reap(ORPHAN_GRACE_MS);
}

/* Standard descriptors are the user's: a pipe there is to end with the command. */
static void leave_terminal(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC), i;

	setsid();
	for (i = STDIN_FILENO; i <= STDERR_FILENO; i++)
		dup2(fd, i);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
}

void __noreturn nest_keep(const char *dir, int line, const sigset_t *mask,
			  char **hold, char **serve)
{
	struct keeper k = {
		.dir = dir, .line = line, .argv = { hold, serve },
		.ward = { { .fd = -1, .notify = -1 }, { .fd = -1, .notify = -1 } },
	};

	leave_terminal();
	sigprocmask(SIG_SETMASK, mask, NULL);
	prctl(PR_SET_NAME, "kvrt-keeper");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	ward_start(&k, hold ? NEST_DAEMON : NEST_SERVER);
	watch(&k);
	ward_end(&k.ward[NEST_SERVER], SERVER_GRACE_MS);
	ward_end(&k.ward[NEST_DAEMON], DAEMON_GRACE_MS);
	end_orphans();
	nest_remove(dir);
	_exit(0);
}
