// SPDX-License-Identifier: Apache-2.0
/*
 * swap.c - hold's part of swapd
 *
 * A start of swapd is a life: a process and an io_uring made for it.  The
 * process may end at any time; the life goes on until every transfer that it
 * gave to the kernel is over.  Meanwhile the next life runs beside it, so a
 * dead swapd costs the time of a fork.  There are at most SWAP_LIVES lives; when
 * all wait for a disk that does not answer, swapd stays down.  swap_tell.c reports
 * lives to kvmm.
 *
 * Without io_uring (forbidden, missing) a life has no ring.  Its threads do the
 * transfers, and none is left when the process has been waited for: DRAINED
 * follows DOWN.
 *
 * When kvmm dies, hold kills its swapd, which works on memory that the next kvmm
 * does not know.  The next swapd starts when all old lives are over: its areas may
 * be the same, and kvmm would not know which slots to avoid.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/config.h>
#include <kvmm/log.h>
#include <kvmm/sandbox.h>
#include <kvmm/swapd.h>

#include "kvmm/hold/swap.h"

#define BACKOFF_MIN_MS	100
#define BACKOFF_MAX_MS	2000
#define LONG_LIFE_MS	2000
#define LOOK_MS		50	/* between looks at rings, in addition to poll() */
#define RING_TRIES	40	/* LOOK_MS apart, for a ring's memory */
#define EXIT_GRACE_MS	2000
#define DEPTH_DEFAULT	64

void swap_init(struct swap *sw, const char *exe, const sigset_t *old_mask)
{
	memset(sw, 0, sizeof(*sw));
	sw->exe = exe;
	sw->old_mask = old_mask;
	sw->kvmm = -1;
	sw->pidfd = -1;
}

static struct swap_life *life_running(struct swap *sw)
{
	struct swap_life *l = sw->nr ? &sw->life[sw->nr - 1] : NULL;

	return l && l->state == LIFE_RUNS ? l : NULL;
}

/* ---- start ---- */

/* Descriptors that swapd inherits; other children do not. */
struct swap_fds {
	int	shm;
	int	pool;
	int	req;
	int	cpl;
	int	control;
	int	ring;		/* -1: none */
	int	params;
};

static int fd_of(struct store *st, u32 kind)
{
	struct kept *k = store_find(st, kind, 0);

	return k ? k->fd : -1;
}

static int fds_find(struct store *st, struct swap_fds *f)
{
	f->shm = fd_of(st, HOLD_SWAP_SHM);
	f->pool = fd_of(st, HOLD_SWAP_POOL);
	f->req = fd_of(st, HOLD_SWAP_REQ);
	f->cpl = fd_of(st, HOLD_SWAP_CPL);
	return f->shm < 0 || f->pool < 0 || f->req < 0 || f->cpl < 0 ?
		-EBADF : 0;
}

static int fds_inherit(const struct swap_fds *f)
{
	const int fd[] = { f->shm, f->pool, f->req, f->cpl, f->control,
			   f->ring, f->params };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(fd); i++)
		if (fd[i] >= 0 && fcntl(fd[i], F_SETFD, 0))
			return -errno;
	return 0;
}

static void __noreturn swapd_exec(struct swap *sw, pid_t parent,
				  const struct swap_fds *f, u64 value)
{
	static const char * const engine[] = { "auto", "uring", "sync" };
	static const char * const sandbox[] = { "on", "log", "off" };
	char arg[16][80];
	char *argv[KV_CONFIG_OPTS + ARRAY_SIZE(arg) + 2] = { (char *)sw->exe };
	u32 n = 0, own = 0, i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EX_OSERR);
	if (fds_inherit(f)) {
		pr_err("what swapd works on cannot be handed on: %s",
		       strerror(errno));
		_exit(EX_OSERR);
	}
	sigprocmask(SIG_SETMASK, sw->old_mask, NULL);
#define ADD(name, v)							\
	snprintf(arg[n++], sizeof(arg[0]), "--" name "=%u", (unsigned int)(v))
	ADD("generation", sw->generation);
	ADD("ctl-fd", f->shm);
	ADD("pool-fd", f->pool);
	ADD("request-fd", f->req);
	ADD("completion-fd", f->cpl);
	ADD("control-fd", f->control);
	ADD("ring-fd", max(f->ring, 0));
	ADD("params-fd", max(f->params, 0));
	if (value & 0xffff)
		ADD("depth", value & 0xffff);
	if (value >> 24 & 0xff)
		ADD("threads", value >> 24 & 0xff);
	if (value >> 32)
		ADD("slow-ms", value >> 32);
#undef ADD
	snprintf(arg[n++], sizeof(arg[0]), "--engine=%s",
		 engine[min(value >> 16 & 0xff, (u64)SWAPD_ENGINE_SYNC)]);
	snprintf(arg[n++], sizeof(arg[0]), "--sandbox=%s",
		 sandbox[min(sw->sandbox, (u32)SANDBOX_OFF)]);
	snprintf(arg[n++], sizeof(arg[0]), "--log-format=%s",
		 kv_log_format_name(sw->log_format));
	if (sw->user)
		snprintf(arg[n++], sizeof(arg[0]), "--user=%s", sw->user);
	while (sw->args && sw->args[own] && own < KV_CONFIG_OPTS) {
		argv[own + 1] = sw->args[own];
		own++;
	}
	for (i = 0; i < n; i++)
		argv[own + i + 1] = arg[i];
	argv[own + n + 1] = NULL;
	execv(sw->exe, argv);
	pr_err("%s cannot be started: %s: install swapd beside kvmm-hold",
	       sw->exe, strerror(errno));
	_exit(EX_OSERR);
}

/*
 * A ring counts as locked memory of any user but root, also the old ring until the
 * kernel has freed it.  Is it worth waiting for that?
 */
static bool ring_may_come(struct swap *sw, u64 value)
{
	if (!sw->had_ring)
		return false;
	if ((value >> 16 & 0xff) == SWAPD_ENGINE_URING && sw->nr)
		return true;
	return sw->ring_tries++ < RING_TRIES;
}

/* Return: 0, with or without a ring, or -EBUSY: not yet. */
static int ring_make(struct swap *sw, struct swap_life *l, struct swap_fds *f,
		     u64 value)
{
	u32 depth = (u32)(value & 0xffff);
	int err;

	f->ring = -1;
	f->params = -1;
	if ((value >> 16 & 0xff) == SWAPD_ENGINE_SYNC)
		return 0;
	depth = min(depth ? depth : DEPTH_DEFAULT, (u32)SWAPD_DEPTH_MAX);
	err = swap_ring_make(&l->ring, depth, &f->params);
	if (err == -ENOMEM && ring_may_come(sw, value))
		return -EBUSY;
	if (err)
		pr_info("no io_uring for swapd: %s", strerror(-err));
	else
		f->ring = l->ring.ring.ring_fd;
	sw->had_ring = !err;
	sw->ring_tries = 0;
	return 0;
}

static int life_fork(struct swap *sw, struct swap_life *l, struct swap_fds *f,
		     u64 value)
{
	pid_t parent = getpid();
	int err;

	l->pid = fork();
	if (!l->pid)
		swapd_exec(sw, parent, f, value);
	if (l->pid < 0)
		return -errno;
	sw->pidfd = (int)syscall(SYS_pidfd_open, l->pid, 0);
	if (sw->pidfd >= 0)
		return 0;
	err = -errno;
	kill(l->pid, SIGKILL);
	waitpid(l->pid, NULL, 0);
	return err;
}

static int life_start(struct swap *sw, struct store *st, u64 value)
{
	struct swap_life *l = &sw->life[sw->nr];
	struct swap_fds f;
	int sv[2], err;

	err = fds_find(st, &f);
	if (err)
		return err;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	memset(l, 0, sizeof(*l));
	l->sock = sv[0];
	f.control = sv[1];
	err = ring_make(sw, l, &f, value);
	if (err) {
		close(sv[0]);
		close(sv[1]);
		return err;
	}
	l->generation = ++sw->generation;
	err = life_fork(sw, l, &f, value);
	close(sv[1]);
	if (f.params >= 0)
		close(f.params);
	if (err) {
		close(l->sock);
		swap_ring_close(&l->ring);
		return err;
	}
	sw->born = kv_now_ms();
	sw->killed = false;
	sw->nr++;
	return 0;
}

/* ---- end ---- */

static void swapd_kill(struct swap *sw)
{
	struct swap_life *l = life_running(sw);

	if (!l)
		return;
	sw->killed = true;
	if (kill(l->pid, SIGKILL))
		pr_warn("swapd cannot be killed: %s", strerror(errno));
}

/* Plan the next start, after a signal ended swapd. */
static void life_again(struct swap *sw, const struct swap_life *l)
{
	if (kv_now_ms() - sw->born >= LONG_LIFE_MS)
		sw->backoff = 0;
	pr_warn("swapd was ended by signal %d (%s) with %u transfers in flight: started again in %u ms",
		WTERMSIG(l->status), strsignal(WTERMSIG(l->status)),
		swap_ring_left(&l->ring), sw->backoff);
	sw->start_at = kv_now_ms() + sw->backoff;
	sw->backoff = sw->backoff ? min(2 * sw->backoff, (u32)BACKOFF_MAX_MS) :
				    BACKOFF_MIN_MS;
}

static void life_ended(struct swap *sw, struct swap_life *l)
{
	l->state = LIFE_ENDED;
	close(sw->pidfd);
	sw->pidfd = -1;
	/* kvmm never got UP of this life, so it needs no DOWN. */
	if (l->sock >= 0) {
		close(l->sock);
		l->sock = -1;
		l->mute = true;
	}
	swap_ring_settle(&l->ring);
	l->again = WIFSIGNALED(l->status);
	if (!l->again && WEXITSTATUS(l->status))
		pr_warn("swapd ended by itself with code %d: it is not started again",
			WEXITSTATUS(l->status));
	if (sw->killed)
		return;
	sw->ended = !l->again;
	if (l->again)
		life_again(sw, l);
}

static void swapd_bury(struct swap *sw)
{
	struct swap_life *l = life_running(sw);

	if (l && waitpid(l->pid, &l->status, WNOHANG) == l->pid)
		life_ended(sw, l);
}

/* Free a life that is no longer needed. */
void swap_life_close(struct swap *sw, struct swap_life *l)
{
	u32 i = (u32)(l - sw->life);

	if (l->sock >= 0)
		close(l->sock);
	swap_ring_close(&l->ring);
	sw->nr--;
	memmove(l, l + 1, (sw->nr - i) * sizeof(*l));
}

/* Forget the failures of the last swapd. */
static void swap_afresh(struct swap *sw)
{
	sw->ended = false;
	sw->backoff = 0;
	sw->start_at = 0;
	sw->ring_tries = 0;
}

/* ---- calls of main.c ---- */

void swap_kvmm_up(struct swap *sw, int sock)
{
	sw->kvmm = sock;
}

void swap_kvmm_gone(struct swap *sw, struct store *st)
{
	static const u32 kind[] = {
		HOLD_SWAP_SHM, HOLD_SWAP_POOL, HOLD_SWAP_REQ, HOLD_SWAP_CPL,
		HOLD_SWAP_RUN, HOLD_SWAP_WORKS,
	};
	u32 i;

	swapd_kill(sw);
	for (i = 0; i < sw->nr; i++)
		sw->life[i].mute = true;
	for (i = 0; i < ARRAY_SIZE(kind); i++)
		store_forget(st, kind[i]);
	sw->kvmm = -1;
	sw->blocked = false;
	swap_afresh(sw);
}

/* Old lives of another kvmm must be over; some room must be left. */
static bool may_start(const struct swap *sw)
{
	return !sw->ended && sw->kvmm >= 0 && sw->nr < SWAP_LIVES &&
	       !(sw->nr && sw->life[0].mute) && kv_now_ms() >= sw->start_at;
}

/* Start or kill swapd, as the HOLD_SWAP_RUN of kvmm says. */
static void swap_obey(struct swap *sw, struct store *st)
{
	const struct kept *run = store_find(st, HOLD_SWAP_RUN, 0);
	int err;

	if (!run || run->rec.generation != sw->run) {
		swapd_kill(sw);
		sw->run = run ? run->rec.generation : 0;
		swap_afresh(sw);
	}
	if (!run || life_running(sw) || !may_start(sw))
		return;
	err = life_start(sw, st, run->rec.value);
	if (!err)
		return;
	if (err == -EBUSY) {
		sw->start_at = kv_now_ms() + LOOK_MS;
		return;
	}
	pr_warn("swapd cannot be started: %s: tried again", strerror(-err));
	sw->start_at = kv_now_ms() + BACKOFF_MAX_MS;
}

/* After a life that did some work, the next one starts at once. */
static void swap_look(struct swap *sw, struct store *st)
{
	const struct kept *works = store_find(st, HOLD_SWAP_WORKS, 0);

	if (works && life_running(sw) && works->rec.generation == sw->generation)
		sw->backoff = 0;
}

void swap_work(struct swap *sw, struct store *st)
{
	swap_look(sw, st);
	swapd_bury(sw);
	/* Report ended lives first, so that there is room; then the new one. */
	swap_tell(sw);
	swap_obey(sw, st);
	if (!sw->blocked)
		swap_tell(sw);
}

u32 swap_poll(const struct swap *sw, struct pollfd *p)
{
	u32 n = 0, i;

	if (sw->pidfd >= 0)
		p[n++] = (struct pollfd){ .fd = sw->pidfd, .events = POLLIN };
	/* While kvmm takes no reports, completions have to wait. */
	for (i = 0; i < sw->nr && !sw->blocked; i++) {
		const struct swap_life *l = &sw->life[i];

		if (l->state == LIFE_REAPED && l->ring.has)
			p[n++] = (struct pollfd){
				.fd = l->ring.ring.ring_fd, .events = POLLIN,
			};
	}
	return n;
}

u64 swap_deadline(const struct swap *sw)
{
	const u64 now = kv_now_ms();

	if (sw->nr && sw->life[0].state != LIFE_RUNS && !sw->blocked)
		return now + LOOK_MS;
	return sw->start_at > now ? sw->start_at : 0;
}

void swap_exit(struct swap *sw)
{
	struct pollfd p = { .fd = sw->pidfd, .events = POLLIN };

	swapd_kill(sw);
	if (sw->pidfd >= 0 && poll(&p, 1, EXIT_GRACE_MS) != 1)
		pr_warn("swapd waits for its disk and ends when that answers");
	swapd_bury(sw);
	while (sw->nr)
		swap_life_close(sw, &sw->life[0]);
}
