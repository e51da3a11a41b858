// SPDX-License-Identifier: Apache-2.0
/*
 * parent.c - the process that a user starts, beside the ranks
 *
 * mpiexec kills all ranks a moment after it gets a signal, and a rank would have no time to
 * finish its requests.  So the process of the user does not become mpiexec, but its parent:
 * it passes signals on to rank 0 alone, and ends with its exit code.  mpiexec is in a process
 * group of its own, which the keys of a terminal do not reach.
 *
 * Ranks find the parent by an abstract socket, the name of which is in the environment.
 * They say their number, and at an orderly end their exit code.  A connection that ends
 * without one tells the parent which rank died first: kvmm kills the others at once, so that
 * they have no time to say it.
 *
 * When the parent is gone, the kernel sends rank 0 a SIGTERM, and mpiexec one, too.  When
 * rank 0 is gone and mpiexec still waits for others, one of which may stand still, the parent
 * ends mpiexec, which kills them.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/ranks/internal.h"

#define PARENT_ENV	"KVRT_RANKS_PARENT"
#define LOOK_MS		100
#define LAST_LOOKS	30	/* that other ranks have to end, after rank 0 has */

enum word_kind {
	WORD_RANK,
	WORD_CODE,
};

/* A message of a rank. */
struct word {
	u32	kind;
	s32	value;
};

static int parent_fd = -1;	/* of a rank */

static socklen_t address_of(const char *name, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "%s", name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

/* ---- the parent ---- */

/**
 * struct kin - a rank, as the parent sees it
 * @fd:   its connection; -1: it has ended
 * @rank: its number, -1 until it has said it
 * @code: exit code that it has sent, or -1
 */
struct kin {
	int	fd;
	pid_t	pid;
	s32	rank;
	s32	code;
};

/**
 * struct parent - the state of the parent
 * @lost: the first rank whose connection ended without an exit code, or NULL
 * @last: looks since rank 0 ended
 */
struct parent {
	int		poll;
	int		listener;
	int		signals;
	pid_t		child;
	struct kin	kin[RANKS_MAX];
	u32		nr;
	const struct kin *lost;
	u32		last;
};

static int watch(const struct parent *p, int fd, u32 number)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = number };

	return epoll_ctl(p->poll, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

#define SAW_LISTENER	RANKS_MAX
#define SAW_SIGNAL	(RANKS_MAX + 1)

static void kin_accept(struct parent *p)
{
	const int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);

	if (fd < 0)
		return;
	if (p->nr == RANKS_MAX || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
	    watch(p, fd, p->nr)) {
		close(fd);
		return;
	}
	p->kin[p->nr++] = (struct kin){
		.fd = fd, .pid = cred.pid, .rank = -1, .code = -1,
	};
}

static struct kin *leader_of(struct parent *p)
{
	u32 i;

	for (i = 0; i < p->nr; i++)
		if (!p->kin[i].rank)
			return &p->kin[i];
	return NULL;
}

/* The exit code of rank 0, or else the first one that is not 0; -1: no rank has sent one. */
static int code_sent(struct parent *p)
{
	const struct kin *l = leader_of(p);
	u32 i;

	if (l && l->code >= 0)
		return l->code;
	for (i = 0; i < p->nr; i++)
		if (p->kin[i].code > 0)
			return p->kin[i].code;
	return -1;
}

static void kin_read(struct parent *p, struct kin *k)
{
	struct word w;
	ssize_t n;

	while ((n = recv(k->fd, &w, sizeof(w), 0)) == sizeof(w))
		*(w.kind == WORD_CODE ? &k->code : &k->rank) = w.value;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	close(k->fd);
	k->fd = -1;
	if (k->code < 0 && k->rank >= 0 && !p->lost && code_sent(p) < 0)
		p->lost = k;
}

static void pass_signal(struct parent *p)
{
	const struct kin *l = leader_of(p);
	struct signalfd_siginfo info;

	if (read(p->signals, &info, sizeof(info)) != sizeof(info) ||
	    info.ssi_signo == SIGCHLD)
		return;
	kill(l && l->fd >= 0 ? l->pid : p->child, (int)info.ssi_signo);
}

/* epoll reports the end of connections in the order in which they ended. */
static void look(struct parent *p)
{
	struct epoll_event ev[8];
	const int n = epoll_wait(p->poll, ev, ARRAY_SIZE(ev), LOOK_MS);
	const struct kin *l;
	int i;

	for (i = 0; i < n; i++) {
		if (ev[i].data.u32 == SAW_LISTENER)
			kin_accept(p);
		else if (ev[i].data.u32 == SAW_SIGNAL)
			pass_signal(p);
		else
			kin_read(p, &p->kin[ev[i].data.u32]);
	}
	l = leader_of(p);
	if (l && l->fd < 0 && ++p->last == LAST_LOOKS)
		kill(p->child, SIGTERM);
}

/* Say which rank died, unless a rank has said it.  Return: the exit code. */
static int parent_end(struct parent *p, int status)
{
	const int code = code_sent(p);

	if (code >= 0)
		return code;
	if (p->lost)
		dprintf(STDERR_FILENO, "kvrt: error: rank %d (pid %d) has ended, and the group with it\n",
			p->lost->rank, p->lost->pid);
	if (WIFSIGNALED(status))
		return 128 + WTERMSIG(status);
	return WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

/* Pass signals on until mpiexec has ended.  Return: the exit code. */
static int parent_wait(struct parent *p)
{
	int status;

	while (waitpid(p->child, &status, WNOHANG) != p->child)
		look(p);
	/* The last words. */
	look(p);
	return parent_end(p, status);
}

/* A socket that ranks connect to; its name goes to the environment. */
static int parent_open(struct parent *p, const sigset_t *set)
{
	struct sockaddr_un a;
	char name[64];

	snprintf(name, sizeof(name), "kvrt-ranks-%d", getpid());
	p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	p->signals = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
	p->poll = epoll_create1(EPOLL_CLOEXEC);
	if (p->listener < 0 || p->signals < 0 || p->poll < 0 ||
	    bind(p->listener, (void *)&a, address_of(name, &a)) ||
	    listen(p->listener, RANKS_MAX) || setenv(PARENT_ENV, name, 1))
		return -errno;
	return watch(p, p->listener, SAW_LISTENER) ? : watch(p, p->signals, SAW_SIGNAL);
}

static void child_run(pid_t parent, char **line, int report)
{
	sigset_t none;
	int err;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() == parent)
		execvp(line[0], line);
	err = errno;
	/* The parent waits for it, or is gone. */
	(void)!write(report, &err, sizeof(err));
	_exit(127);
}

/* Start mpiexec: 0, or the error of exec(). */
static int child_start(struct parent *p, char **line)
{
	const pid_t parent = getpid();
	int report[2], err = 0;

	if (pipe2(report, O_CLOEXEC))
		return -errno;
	p->child = fork();
	if (!p->child)
		child_run(parent, line, report[1]);
	if (p->child < 0)
		err = errno;
	close(report[1]);
	/* It is closed when mpiexec runs. */
	if (!err && read(report[0], &err, sizeof(err)) == sizeof(err))
		waitpid(p->child, NULL, 0);
	close(report[0]);
	return -err;
}

int parent_run(char **line)
{
	static struct parent p;
	sigset_t set;
	int err;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	err = parent_open(&p, &set);
	if (!err)
		err = child_start(&p, line);
	if (!err)
		exit(parent_wait(&p));
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	return err;
}

/* ---- a rank ---- */

static void tell(enum word_kind kind, int value)
{
	const struct word w = { .kind = kind, .value = value };

	/* The parent may be gone. */
	if (parent_fd >= 0)
		(void)!send(parent_fd, &w, sizeof(w), MSG_NOSIGNAL);
}

void parent_find(void)
{
	const char *name = getenv(PARENT_ENV);
	struct sockaddr_un a;
	int fd;

	if (!name)
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (!connect(fd, (void *)&a, address_of(name, &a)))
		parent_fd = fd;
	else
		close(fd);
}

void parent_tell(u32 rank)
{
	if (parent_fd < 0)
		return;
	tell(WORD_RANK, (int)rank);
	/* Without this signal rank 0 would outlive its parent, and nothing worse. */
	if (!rank && !fcntl(parent_fd, F_SETOWN, getpid()) &&
	    !fcntl(parent_fd, F_SETSIG, SIGTERM))
		(void)!fcntl(parent_fd, F_SETFL, O_ASYNC);
}

void ranks_exit_code(int code)
{
	tell(WORD_CODE, code);
}
