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
 * When the parent is gone, the kernel sends rank 0 a SIGTERM, and mpiexec one, too.  When a
 * rank is gone and mpiexec still waits for others, one of which may stand still, the parent
 * ends mpiexec, which kills them.  It does the same when the ranks do not meet in 20 s.
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

#include <kvmm/clock.h>

#include "runtime/ranks/internal.h"

#define PARENT_ENV	"KVRT_RANKS_PARENT"
#define LOOK_MS		100
#define LAST_LOOKS	30	/* that other ranks have to end, after rank 0 has */
#define REST_LOOKS	50	/* that the others have, after another rank has ended */
#define START_LOOKS	200	/* from the start of mpiexec until all ranks have joined */

enum word_kind {
	WORD_RANK,
	WORD_CODE,
	WORD_JOINED,
	WORD_NR,
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
 * @pid:  of the rank
 * @said: [WORD_RANK] its number, [WORD_CODE] its exit code, [WORD_JOINED]
 *        0 when it is in the group; -1: it has not said it
 */
struct kin {
	int	fd;
	pid_t	pid;
	s32	said[WORD_NR];
};

/**
 * struct parent - the state of the parent
 * @poll:   epoll of @listener, @signals and all connections
 * @child:  mpiexec
 * @kin:    [@nr] ranks that have connected
 * @want:   number of ranks that mpiexec starts
 * @lost:   the first rank that ended without an exit code, or NULL
 * @starts: looks while ranks had not joined
 * @last:   looks since the first rank ended
 * @passed: the last signal that mpiexec got from here, 0: none
 * @ending: the value of @last when the parent began to end mpiexec, 0: it has not
 * @said:   the parent has printed a line
 */
struct parent {
	int		poll;
	int		listener;
	int		signals;
	pid_t		child;
	struct kin	kin[RANKS_MAX];
	u32		nr;
	const struct kin *lost;
	u32		want;
	u32		starts;
	u32		last;
	int		passed;
	u32		ending;
	bool		said;
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
	/* An abstract name is open to all users. */
	if (p->nr == p->want || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
	    cred.uid != geteuid() || watch(p, fd, p->nr)) {
		close(fd);
		return;
	}
	p->kin[p->nr++] = (struct kin){
		.fd = fd, .pid = cred.pid, .said = { -1, -1, -1 },
	};
}

static struct kin *leader_of(struct parent *p)
{
	u32 i;

	for (i = 0; i < p->nr; i++)
		if (!p->kin[i].said[WORD_RANK])
			return &p->kin[i];
	return NULL;
}

/* The exit code of rank 0, or else the first one that is not 0; -1: no rank has sent one. */
static int code_sent(struct parent *p)
{
	const struct kin *l = leader_of(p);
	u32 i;

	if (l && l->said[WORD_CODE] >= 0)
		return l->said[WORD_CODE];
	for (i = 0; i < p->nr; i++)
		if (p->kin[i].said[WORD_CODE] > 0)
			return p->kin[i].said[WORD_CODE];
	return -1;
}

static void kin_read(struct parent *p, struct kin *k)
{
	struct word w;
	ssize_t n;

	while ((n = recv(k->fd, &w, sizeof(w), 0)) == sizeof(w))
		/* The first exit code counts: it was sent before the group was ended. */
		if (w.kind < WORD_NR && k->said[w.kind] < 0)
			k->said[w.kind] = w.value;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	close(k->fd);
	k->fd = -1;
	if (k->said[WORD_CODE] < 0 && !p->lost && code_sent(p) < 0)
		p->lost = k;
}

static void pass_signal(struct parent *p)
{
	const struct kin *l = leader_of(p);
	struct signalfd_siginfo info;

	if (read(p->signals, &info, sizeof(info)) != sizeof(info) ||
	    info.ssi_signo == SIGCHLD)
		return;
	if (l && l->fd >= 0) {
		kill(l->pid, (int)info.ssi_signo);
		return;
	}
	p->passed = (int)info.ssi_signo;
	kill(p->child, p->passed);
}

/* Ranks that have not ended. */
static u32 kin_left(const struct parent *p)
{
	u32 i, n = 0;

	for (i = 0; i < p->nr; i++)
		n += p->kin[i].fd >= 0;
	return n;
}

static u32 kin_joined(const struct parent *p)
{
	u32 i, n = 0;

	for (i = 0; i < p->nr; i++)
		n += p->kin[i].said[WORD_JOINED] >= 0;
	return n;
}

/* A rank that has not joined, for a line; NULL: not even its number is known. */
static const struct kin *kin_late(const struct parent *p)
{
	u32 i;

	for (i = 0; i < p->nr; i++)
		if (p->kin[i].said[WORD_JOINED] < 0 && p->kin[i].said[WORD_RANK] >= 0)
			return &p->kin[i];
	return NULL;
}

/* The ranks have not met: one of them stands still, or died before it found the parent. */
static void say_late(struct parent *p)
{
	const struct kin *k = kin_late(p);

	p->said = true;
	if (k)
		dprintf(STDERR_FILENO, "kvrt: error: rank %d (pid %d) has not joined the group in %u s\n",
			k->said[WORD_RANK], k->pid, START_LOOKS * LOOK_MS / 1000);
	else
		dprintf(STDERR_FILENO, "kvrt: error: mpiexec has not started %u ranks in %u s\n",
			p->want, START_LOOKS * LOOK_MS / 1000);
}

static void kin_kill(struct parent *p)
{
	u32 i;

	for (i = 0; i < p->nr; i++)
		if (p->kin[i].fd >= 0)
			kill(p->kin[i].pid, SIGKILL);
}

/*
 * End the ranks and mpiexec when ranks are left that do not end, or did not meet.  MPI
 * itself waits for ever for a rank that stands still, and for one that died while it started.
 */
static void judge(struct parent *p)
{
	const struct kin *l = leader_of(p);
	const bool joined = kin_joined(p) == p->want, ended = kin_left(p) < p->nr;
	u32 most = l && l->fd < 0 ? LAST_LOOKS : REST_LOOKS;

	if (!joined && p->lost)
		most = 1;
	if (!joined && !ended && ++p->starts >= START_LOOKS) {
		if (!p->said)
			say_late(p);
		most = 1;
	} else if (!ended) {
		return;
	}
	if (++p->last < most)
		return;
	if (!p->ending)
		p->ending = p->last;
	/* It does not take the first one while it is stopped. */
	if (p->last == p->ending || p->last == p->ending + REST_LOOKS) {
		/* mpiexec would let a stopped rank go on for a second. */
		kin_kill(p);
		p->passed = p->last == p->ending ? SIGTERM : SIGKILL;
		kill(p->child, p->passed);
	}
}

/* epoll reports the end of connections in the order in which they ended. */
static void look(struct parent *p)
{
	struct epoll_event ev[8];
	const int n = epoll_wait(p->poll, ev, ARRAY_SIZE(ev), LOOK_MS);
	int i;

	for (i = 0; i < n; i++) {
		if (ev[i].data.u32 == SAW_LISTENER)
			kin_accept(p);
		else if (ev[i].data.u32 == SAW_SIGNAL)
			pass_signal(p);
		else
			kin_read(p, &p->kin[ev[i].data.u32]);
	}
}

/* Say which process died, unless a rank has said it.  Return: the exit code. */
static int parent_end(struct parent *p, int status)
{
	const int code = code_sent(p);

	/* A rank that stood still may have gone on, and ended in order. */
	if (p->said)
		return RANKS_LOST_CODE;
	if (code >= 0)
		return code;
	/* Ranks end when mpiexec is killed, and mpiexec is not when a rank is. */
	if (WIFSIGNALED(status) && WTERMSIG(status) != p->passed)
		dprintf(STDERR_FILENO, "kvrt: error: mpiexec (pid %d) was killed by signal %d, and the group has ended with it\n",
			p->child, WTERMSIG(status));
	else if (p->lost && p->lost->said[WORD_RANK] < 0)
		dprintf(STDERR_FILENO, "kvrt: error: a rank (pid %d) has ended while it started, and the group with it\n",
			p->lost->pid);
	else if (p->lost)
		dprintf(STDERR_FILENO, "kvrt: error: rank %d (pid %d) has ended, and the group with it\n",
			p->lost->said[WORD_RANK], p->lost->pid);
	else if (!p->passed)
		dprintf(STDERR_FILENO, "kvrt: error: mpiexec has ended with code %d, before the ranks met\n",
			WEXITSTATUS(status));
	if (p->lost || WIFSIGNALED(status))
		return RANKS_LOST_CODE;
	return WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

/* mpiexec has ended: hear the last words of the ranks, and end those that stay. */
static void kin_end(struct parent *p)
{
	u32 looks = 0;

	do {
		look(p);
	} while (kin_left(p) && ++looks < LAST_LOOKS);
	kin_kill(p);
}

/* Pass signals on until mpiexec has ended.  Return: the exit code. */
static int parent_wait(struct parent *p)
{
	u64 judged = kv_now_ns();
	pid_t pid;
	int status = 0;

	while (!(pid = waitpid(p->child, &status, WNOHANG))) {
		look(p);
		/* Its bounds are counts of these times, and not of events. */
		if (kv_now_ns() - judged < LOOK_MS * 1000000ull)
			continue;
		judged = kv_now_ns();
		judge(p);
	}
	kin_end(p);
	return parent_end(p, status);
}

/* A socket that ranks connect to; its name goes to the environment. */
static int parent_open(struct parent *p, const sigset_t *set)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(a);
	char name[64];

	p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	p->signals = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
	p->poll = epoll_create1(EPOLL_CLOEXEC);
	if (p->listener < 0 || p->signals < 0 || p->poll < 0 ||
	    /* The kernel finds a free name: containers may share names, and have equal pids. */
	    bind(p->listener, (void *)&a, sizeof(a.sun_family)) ||
	    getsockname(p->listener, (void *)&a, &len) || listen(p->listener, RANKS_MAX))
		return -errno;
	snprintf(name, sizeof(name), "%.*s",
		 (int)(len - offsetof(struct sockaddr_un, sun_path) - 1), a.sun_path + 1);
	if (setenv(PARENT_ENV, name, 1))
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

int parent_run(u32 nr, char **line)
{
	static struct parent p;
	sigset_t set;
	int err;

	p.want = nr;
	/* Its parent may have ignored the end of children. */
	signal(SIGCHLD, SIG_DFL);
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

/* Return: whether the parent gets it. */
static bool tell(enum word_kind kind, int value)
{
	const struct word w = { .kind = kind, .value = value };

	/* The parent may be gone. */
	return parent_fd >= 0 && send(parent_fd, &w, sizeof(w), MSG_NOSIGNAL) == sizeof(w);
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
	(void)!tell(WORD_RANK, (int)rank);
	/* Without this signal rank 0 would outlive its parent, and nothing worse. */
	if (!rank && !fcntl(parent_fd, F_SETOWN, getpid()) &&
	    !fcntl(parent_fd, F_SETSIG, SIGTERM))
		(void)!fcntl(parent_fd, F_SETFL, O_ASYNC);
}

void parent_joined(void)
{
	(void)!tell(WORD_JOINED, 1);
}

int ranks_exit_code(int code)
{
	return tell(WORD_CODE, code) ? 0 : code;
}
