// SPDX-License-Identifier: Apache-2.0
/*
 * main.c - kvmm-hold: starts kvmm, and keeps its memory when it dies
 *
 * Hold is the parent of kvmm and keeps its descriptors.  It is small so that it
 * does not die itself: one thread, no input from clients, no options of its own.
 * kvmm lies in the same directory.  It gets the command line unchanged and, before
 * that, the settings of the file of options and of the environment as options.
 * A kvmm that is started again, or after an upgrade, has the sizes with which the
 * adopted memory was made, even if the file has changed: on SIGHUP hold reads the
 * options again, and only those that can change do (options.c).  Options for swapd go
 * to swapd in the same way.
 *
 * A child that exits, with any code, has logged the reason: hold ends with the
 * same code.  It removes files that the child could not, since that may have
 * another user by then.  If a signal ended the child, hold starts it again, at
 * once the first time, then after a delay that doubles.  The delay begins anew
 * after a life that was long enough, or that did its work (HOLD_WORKS).  Before
 * the next start hold ends the swapd of the child and waits for transfers that it
 * left in the kernel.  One exit code is no end: the child makes room for another
 * program (upgrade.c).
 *
 * Hold passes on SIGTERM and SIGINT and waits for the child.  It kills a
 * child that does not end in time, and removes its sockets and lock.  When hold
 * itself is killed the kernel sends the child SIGTERM.
 *
 * kvmm deposits records (hold.h): its lock, so that no other kvmm takes the place
 * of one that is about to be started again; its listening sockets, so that clients
 * wait in their queue meanwhile; the pidfds of its clients, so that the next kvmm
 * can end those that keep the old memory; and its memory, so that the next kvmm
 * can go on with it.
 *
 * swapd is the second child (swap.h), started when kvmm asks for it; kvmm-proc is
 * the third (mount.h), started when the operator asks for it.  A fourth one opens swap
 * areas and makes changed options known to kvmm (apply.h).
 *
 * Started by root, hold stays root with few capabilities (sandbox.h): those
 * that its children need until they have changed their user.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/fault.h>
#include <kvmm/kvmm_options.h>
#include <kvmm/log.h>
#include <kvmm/notify.h>
#include <kvmm/sandbox.h>

#include "kvmm/hold/apply.h"
#include "kvmm/hold/mount.h"
#include "kvmm/hold/options.h"
#include "kvmm/hold/store.h"
#include "kvmm/hold/swap.h"
#include "kvmm/hold/upgrade.h"

static const struct kv_program program = {
	.name		= "kvmm-hold",
	.brief		= "starts kvmm, and keeps what outlives it",
	.man		= 8,
	.operands	= KVMM_OPERANDS,
	.about		= "Starts kvmm, which lies beside it, starts it again when it dies, and keeps its lock and its sockets meanwhile. The options are those of kvmm and go to it, with what the file of options and the environment say; when kvmm exits, kvmm-hold ends with its code.",
	.opts		= kvmm_opts,
	.nr_opts	= KVMM_NR_OPTS,
	.exits		= kvmm_exits,
	.nr_exits	= KVMM_NR_EXITS,
	.more		= kvmm_keys_help,
	.file		= kvmm_config_file,
};

#define BACKOFF_MIN_MS	100
#define DRAIN_LOOK_MS	5
#define BACKOFF_MAX_MS	5000
#define LONG_LIFE_MS	10000
#define STOP_GRACE_MS	10000
#define HANDOVER_S	5	/* for a new kvmm to read the kept records */
#define FILES_MOST	(1u << 20)	/* descriptors, if that is allowed */
#define FILES_OTHER	(HOLD_RECORDS + 256)	/* descriptors of no extent */

/**
 * struct hold - state of this program
 * @files:   limit on descriptors that children get
 * @life:    HOLD_LIFE_*, for the next child
 * @works:   the last child did its work
 * @served:  a kvmm has served
 * @upgrade: programs of this child and the next
 * @stop_at: time to kill the child, once it was asked to end; else 0
 */
struct hold {
	struct store	store;
	struct swap	swap;
	struct mount	mount;
	struct upgrade	upgrade;
	struct options	options;
	struct apply	apply;
	struct rlimit	files;
	u32		life;
	bool		works;
	bool		served;
	sigset_t	old_mask;
	char		exe[4096];
	char		swapd[4096];
	int		signals;
	int		sock;
	pid_t		pid;
	int		pidfd;
	bool		stopping;
	u64		stop_at;
};

/* ---- the child ---- */

static void __noreturn child_exec(struct hold *h, pid_t parent, int sock)
{
	char fd[16];

	/* If hold dies, kvmm ends, too, cleanly. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(EX_OSERR);
	sigprocmask(SIG_SETMASK, &h->old_mask, NULL);
	snprintf(fd, sizeof(fd), "%d", sock);
	if (fcntl(sock, F_SETFD, 0) || setenv(HOLD_ENV, fd, 1) ||
	    setenv(KVMM_CONFIG_ENV, h->options.path, 1)) {
		pr_err("the socket to kvmm cannot be handed on: %s",
		       strerror(errno));
		_exit(EX_OSERR);
	}
	if (h->files.rlim_max)
		setrlimit(RLIMIT_NOFILE, &h->files);
	/* ps then tells kvmm from kvmm-hold. */
	h->options.args[0] = h->exe;
	upgrade_exec(&h->upgrade, h->options.args);
	execv(h->exe, h->options.args);
	pr_err("%s cannot be started: %s: install kvmm beside kvmm-hold",
	       h->exe, strerror(errno));
	_exit(EX_OSERR);
}

static void child_forget(struct hold *h)
{
	if (h->sock >= 0)
		close(h->sock);
	if (h->pidfd >= 0)
		close(h->pidfd);
	h->sock = -1;
	h->pidfd = -1;
	h->pid = 0;
}

static int child_start(struct hold *h)
{
	struct timeval tv = { .tv_sec = HANDOVER_S };
	pid_t parent = getpid();
	int sv[2], err;

	if (kv_fault(KV_FAULT_hold_fork))
		return -EAGAIN;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	h->pid = fork();
	if (!h->pid)
		child_exec(h, parent, sv[1]);
	err = -errno;
	close(sv[1]);
	h->sock = sv[0];
	if (h->pid < 0)
		goto out_forget;
	h->pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
	if (h->pidfd < 0) {
		err = -errno;
		kill(h->pid, SIGKILL);
		waitpid(h->pid, NULL, 0);
		goto out_forget;
	}
	h->store.serves = false;
	h->store.ready = false;
	setsockopt(h->sock, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	/* If the child does not take the records, its end tells the reason. */
	err = store_send(&h->store, h->sock, h->life);
	if (err)
		pr_debug("kvmm took nothing over: %s", strerror(-err));
	swap_kvmm_up(&h->swap, h->sock);
	return 0;

out_forget:
	child_forget(h);
	return err;
}

/* The child has ended.  Return: its wait status. */
static int child_reap(struct hold *h)
{
	int status = 0;

	while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
		;
	/* Take records that it put before it died; questions are dropped. */
	if (h->sock >= 0)
		store_receive_rest(&h->store, h->sock);
	swap_kvmm_gone(&h->swap, &h->store);
	h->works = store_find(&h->store, HOLD_WORKS, 0);
	store_forget(&h->store, HOLD_WORKS);
	child_forget(h);
	return status;
}

static void child_signal(struct hold *h, int sig)
{
	if (h->pid > 0 && kill(h->pid, sig))
		pr_warn("kvmm cannot be signalled: %s", strerror(errno));
}

/* ---- waiting ---- */

static void hold_tell(struct hold *h, const struct hold_record *r)
{
	if (h->sock >= 0 && store_send_record(h->sock, r, -1, MSG_DONTWAIT))
		pr_debug("kvmm takes no answer: %s", strerror(errno));
}

/* Tell a service manager, if there is one, that kvmm serves. */
static void tell_ready(struct hold *h)
{
	char text[64];

	if (!h->store.ready)
		return;
	h->store.ready = false;
	snprintf(text, sizeof(text), "READY=1\nSTATUS=kvmm %d serves", h->pid);
	if (kv_notify(text))
		pr_debug("nobody was told that kvmm is ready");
}

static void tell_again(int status)
{
	char text[96];

	snprintf(text, sizeof(text), "STATUS=kvmm was ended by signal %d, and is started again",
		 WTERMSIG(status));
	(void)kv_notify(text);
}

static void take_signals(struct hold *h)
{
	struct signalfd_siginfo si;

	while (read(h->signals, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGHUP) {
			options_reload(&h->options, &h->apply);
			continue;
		}
		if (!h->stopping) {
			h->stop_at = kv_now_ms() + STOP_GRACE_MS;
			(void)kv_notify("STOPPING=1");
		}
		h->stopping = true;
		child_signal(h, (int)si.ssi_signo);
	}
}

/* Open the areas once, and make changed options known. */
static void tell_options(struct hold *h)
{
	if (h->store.serves && !h->served) {
		h->served = true;
		options_first(&h->options, &h->apply);
	}
	apply_work(&h->apply, h->store.serves && !h->stopping);
}

static int wait_ms(const struct hold *h, u64 until)
{
	u64 now = kv_now_ms(), swap = swap_deadline(&h->swap);
	u64 mount = mount_deadline(&h->mount);

	if (h->stop_at && (!until || h->stop_at < until))
		until = h->stop_at;
	if (h->upgrade.probe.pid && (!until || h->upgrade.probe.end < until))
		until = h->upgrade.probe.end;
	if (swap && (!until || swap < until))
		until = swap;
	if (mount && (!until || mount < until))
		until = mount;
	if (!until)
		return -1;
	return until > now ? (int)(until - now) : 0;
}

/*
 * Serve the child until it has ended.  Each turn serves all descriptors, even if
 * the child never stops sending.  Return: its wait status.
 */
static int hold_child(struct hold *h)
{
	for (;;) {
		struct pollfd p[6 + SWAP_POLL_MAX] = {
			{ .fd = h->signals, .events = POLLIN },
			{ .fd = h->pidfd, .events = POLLIN },
			{ .fd = h->sock, .events = POLLIN },
			{ .fd = h->upgrade.probe.out, .events = POLLIN },
			{ .fd = h->mount.pidfd, .events = POLLIN },
			{ .fd = h->apply.pidfd, .events = POLLIN },
		};
		u32 n = 6 + swap_poll(&h->swap, p + 6);
		struct hold_record r;

		if (h->swap.blocked)
			p[2].events |= POLLOUT;
		if (poll(p, n, wait_ms(h, 0)) < 0 && errno != EINTR)
			pr_warn("poll: %s", strerror(errno));
		if (p[0].revents)
			take_signals(h);
		if (p[2].revents && store_receive(&h->store, h->sock) < 0) {
			/* kvmm closed its end: it will end soon. */
			close(h->sock);
			h->sock = -1;
			swap_kvmm_up(&h->swap, -1);
		}
		tell_ready(h);
		if (p[1].revents)
			return child_reap(h);
		if (upgrade_work(&h->upgrade, &r))
			hold_tell(h, &r);
		swap_work(&h->swap, &h->store);
		mount_work(&h->mount, h->store.serves && !h->stopping);
		tell_options(h);
		if (h->stop_at && kv_now_ms() >= h->stop_at) {
			pr_warn("kvmm did not end in %d s: killed",
				STOP_GRACE_MS / 1000);
			child_signal(h, SIGKILL);
			h->stop_at += STOP_GRACE_MS;
		}
	}
}

/* Wait between two children.  Return: false: hold is to end. */
static bool hold_pause(struct hold *h, u32 ms)
{
	u64 until = kv_now_ms() + ms;

	while (!h->stopping && kv_now_ms() < until) {
		struct pollfd p[1 + SWAP_POLL_MAX] = {
			{ .fd = h->signals, .events = POLLIN },
		};
		u32 n = 1 + swap_poll(&h->swap, p + 1);

		if (poll(p, n, wait_ms(h, until)) > 0 && p[0].revents)
			take_signals(h);
		swap_work(&h->swap, &h->store);
	}
	return !h->stopping;
}

/*
 * Before the next kvmm may go on with the memory of the last one, the swapd of the
 * last one must be gone and its transfers over: wait up to HOLD_DRAIN_MS.
 */
static void hold_drain(struct hold *h)
{
	u64 end = kv_now_ms() + HOLD_DRAIN_MS;

	swap_work(&h->swap, &h->store);
	while (h->swap.nr && store_find(&h->store, HOLD_ARENA, 0) &&
	       kv_now_ms() < end && hold_pause(h, DRAIN_LOOK_MS))
		;
	h->life |= h->swap.nr ? HOLD_LIFE_IN_FLIGHT : 0;
}

/*
 * The child has ended with @status.
 * Return: is another one to be started, after @pause ms?
 */
static bool hold_again(struct hold *h, int status, u64 born, u32 *pause)
{
	static u32 backoff;
	const bool made_room = upgrade_done(&h->upgrade, status, h->works);

	h->life = HOLD_LIFE_NEXT | (made_room ? HOLD_LIFE_UPGRADE : 0);
	*pause = 0;
	if (made_room)
		return !h->stopping;
	if (WIFEXITED(status) || h->stopping)
		return false;
	if (h->works || kv_now_ms() - born >= LONG_LIFE_MS)
		backoff = 0;
	pr_warn("kvmm was ended by signal %d (%s): started again in %u ms",
		WTERMSIG(status), strsignal(WTERMSIG(status)), backoff);
	tell_again(status);
	*pause = backoff;
	backoff = backoff ? min(2 * backoff, (u32)BACKOFF_MAX_MS) :
			    BACKOFF_MIN_MS;
	return true;
}

/* Start kvmm, as often as needed.  Return: exit code. */
static int hold_run(struct hold *h)
{
	int status, err;
	u32 pause;
	u64 born;

	do {
		born = kv_now_ms();
		err = child_start(h);
		if (err) {
			pr_err("kvmm cannot be started: %s", strerror(-err));
			store_unlink(&h->store);
			return EX_OSERR;
		}
		status = hold_child(h);
		if (!hold_again(h, status, born, &pause))
			break;
		hold_drain(h);
	} while (hold_pause(h, pause));
	store_unlink(&h->store);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/*
 * Answer a question of kvmm, in the order of its records; a question about a
 * program when that has answered.
 */
static void hold_asked(struct store *st, const struct hold_record *rec, int fd)
{
	struct hold *h = container_of(st, struct hold, store);
	struct hold_record r = *rec;

	r.op = HOLD_TELL;
	if (rec->kind == HOLD_UPGRADE) {
		if (!upgrade_ask(&h->upgrade, rec, fd, &r))
			return;
	} else if (fd >= 0) {
		close(fd);
	}
	hold_tell(h, &r);
}

/* Raise the limit on descriptors: each kept extent has one. */
static void raise_files(struct hold *h)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_NOFILE, &h->files)) {
		h->files.rlim_max = 0;
		return;
	}
	most.rlim_cur = max(h->files.rlim_max, (rlim_t)FILES_MOST);
	most.rlim_max = most.rlim_cur;
	if (setrlimit(RLIMIT_NOFILE, &most)) {
		most.rlim_cur = h->files.rlim_max;
		most.rlim_max = h->files.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &most))
			most = h->files;
	}
	h->store.most = most.rlim_cur > 2 * FILES_OTHER ?
			(u32)min(most.rlim_cur - FILES_OTHER,
				 (rlim_t)HOLD_EXTENTS) : FILES_OTHER;
}

/* ---- start ---- */

/* Find the path of @name, a program beside this one. */
static int find_beside(const char *name, char *path, size_t len)
{
	ssize_t n = readlink("/proc/self/exe", path, len);
	char *slash;

	if (n <= 0 || (size_t)n >= len)
		return -ENAMETOOLONG;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash + 1 - path) + strlen(name) >= len)
		return -ENAMETOOLONG;
	strcpy(slash + 1, name);
	return 0;
}

static int catch_signals(struct hold *h)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, &h->old_mask))
		return -errno;
	signal(SIGPIPE, SIG_IGN);
	/* A parent may have ignored it: then there would be no wait status. */
	signal(SIGCHLD, SIG_DFL);
	h->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return h->signals < 0 ? -errno : 0;
}

/* Open descriptors 0 to 2, so that no later descriptor is one of them. */
static void fill_standard(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Return: 0 with options read, an exit code, or -1: an end without a fault. */
static int read_options(struct hold *h, int argc, char **argv)
{
	const struct kvmm_options *o = &h->options.opt;
	char text[512];
	bool wrong;
	int err;

	err = options_read(&h->options, &program, argc, argv, text,
			   sizeof(text));
	if (err == -ECANCELED)
		return -1;
	/* kvmm reports mistakes in the command line, which is its own. */
	if (err && err != -EINVAL) {
		pr_err("%s", text);
		return err == -EBADMSG ? EX_CONFIG : EX_USAGE;
	}
	wrong = err;
	if (!wrong && !o->check_config)
		kv_log_format((enum kv_log_format)o->log_format);
	err = find_beside("kvmm", h->exe, sizeof(h->exe));
	if (!err)
		err = find_beside("swapd", h->swapd, sizeof(h->swapd));
	if (err) {
		pr_err("cannot start: %s", strerror(-err));
		return EX_OSERR;
	}
	swap_init(&h->swap, h->swapd, &h->old_mask);
	h->swap.sandbox = o->sandbox;
	h->swap.user = o->swapd_user;
	h->swap.args = h->options.swapd;
	h->swap.log_format = o->log_format;
	if (wrong || !o->check_config)
		return options_args(&h->options);
	/* kvmm answers --check-config, as it would alone. */
	unsetenv(HOLD_ENV);
	execv(h->exe, argv);
	pr_err("%s cannot be started: %s", h->exe, strerror(errno));
	return EX_OSERR;
}

/* Keep few capabilities; sandbox.h lists those that children start with. */
static int drop_rights(const struct kvmm_options *o, const struct mount *m)
{
	const u32 gives = SANDBOX_both | (m->wanted ? SANDBOX_proc : 0) |
			  (m->mounts ? SANDBOX_mount : 0);
	int err;

	if (o->sandbox == SANDBOX_OFF || geteuid())
		return 0;
	err = sandbox_keep_bounds(gives);
	if (!err)
		err = sandbox_keep_caps(SANDBOX_hold, gives);
	if (err)
		pr_err("capabilities cannot be given up: %s: give --sandbox=off",
		       strerror(-err));
	return err;
}

int main(int argc, char **argv)
{
	static struct hold h = { .sock = -1, .pidfd = -1, .signals = -1 };
	const struct kvmm_options *o = &h.options.opt;
	char text[128];
	int err, code;

	fill_standard();
	kv_notify_init();
	kv_log_init("kvmm-hold", KV_LOG_INFO);
	kv_log_never_wait();
	code = read_options(&h, argc, argv);
	if (code)
		return max(code, 0);
	raise_files(&h);
	h.store.ask = hold_asked;
	upgrade_init(&h.upgrade, o->user);
	mount_init(&h.mount, o, &h.old_mask);
	apply_init(&h.apply, h.mount.dir, &h.old_mask);
	if (drop_rights(o, &h.mount))
		return EX_OSERR;
	umask(0077);
	/* kvmm reads the same variable and logs the error. */
	if (kv_fault_env(text, sizeof(text)))
		pr_debug("%s", text);
	err = find_beside("kvmm-proc", h.mount.exe, sizeof(h.mount.exe));
	if (!err)
		err = catch_signals(&h);
	if (err) {
		pr_err("cannot start: %s", strerror(-err));
		return EX_OSERR;
	}
	code = hold_run(&h);
	apply_exit(&h.apply);
	mount_exit(&h.mount);
	swap_exit(&h.swap);
	/*
	 * The end of the process closes the kept descriptors.  It does not
	 * wait, even for descriptors in the queue of a listening socket.
	 */
	return code;
}
