// SPDX-License-Identifier: Apache-2.0
/*
 * control.c - the control thread: one event loop over everything that is not hot
 *
 * It serves listening sockets, connections, pidfds, signals, hold and the kick
 * of the mm thread.  Nothing here blocks: sockets are non-blocking, a peer that
 * does not read is left alone until it does, and each wait for a peer has a
 * deadline.  mm_call() waits, for no longer than a turn of the mm thread, which
 * never blocks either.
 */
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define WATCHDOG_NS	NSEC_PER_SEC
#define HOLD_BATCH	256	/* records of hold in one round */

/* This process has no right to the file of options: kvmm-hold reads it. */
static void control_hangup(const struct daemon *d)
{
	if (d->deposit.fd < 0)
		pr_warn("SIGHUP: nothing is read: kvmm without kvmm-hold reads its options at start only: restart it");
	else
		pr_warn("SIGHUP: nothing is read: send it to kvmm-hold, the parent, which reads the options");
}

static void control_signal(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	struct signalfd_siginfo si;

	while (read(w->fd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGHUP) {
			control_hangup(d);
			continue;
		}
		pr_info("SIG%s: shutting down",
			sigabbrev_np((int)si.ssi_signo));
		d->loop.stop = true;
	}
}

static void control_kicked(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	u64 count, mask;

	if (read(w->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		pr_warn("the kick of the mm thread is lost: %s",
			strerror(errno));
	/* Pairs with the release in ops_extent_send(). */
	mask = __atomic_exchange_n(&d->mm.send_mask, 0, __ATOMIC_ACQUIRE);
	client_send_extents(&d->clients, mask);
	client_take_notes(&d->clients);
	ghost_kill_all(&d->clients);
	link_check(&d->link);
	wait_take(&d->views);
}

static int control_signalfd(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	/* Before threads exist: they inherit the mask. */
	if (pthread_sigmask(SIG_BLOCK, &set, NULL))
		return -1;
	signal(SIGPIPE, SIG_IGN);
	/* A write fails with EFBIG instead, which can be logged. */
	signal(SIGXFSZ, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/**
 * control_init() - epoll, signals and the kick
 * Context: before threads exist.
 */
int control_init(struct daemon *d)
{
	int err;

	err = loop_init(&d->loop);
	if (err)
		return err;
	d->mm.kick.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->signals.fd = control_signalfd();
	if (d->mm.kick.fd < 0 || d->signals.fd < 0)
		return -errno;
	err = clients_init(&d->clients);
	if (err)
		return err;
	d->mm.kick.fn = control_kicked;
	d->mm.kick.arg = d;
	d->signals.fn = control_signal;
	d->signals.arg = d;
	err = watch_add(&d->loop, &d->mm.kick, EPOLLIN);
	if (err)
		return err;
	return watch_add(&d->loop, &d->signals, EPOLLIN);
}

/* One record of hold.  Return: 0, -EAGAIN, or -EPIPE: hold has ended. */
static int hold_receive(int sock, struct hold_record *r, int *fd)
{
	ssize_t n = sock_recv_fd(sock, r, sizeof(*r), MSG_DONTWAIT, fd, NULL);

	/* Another error passes: the record is read later. */
	if (n <= 0)
		return n && n != -ECONNRESET ? -EAGAIN : -EPIPE;
	if (n != sizeof(*r) || r->magic != HOLD_MAGIC)
		r->op = 0;
	return 0;
}

/* kvmm-hold tells of swapd, or answers for an upgrade. */
static void control_from_hold(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	struct hold_record r;
	int fd, err = 0, n;

	for (n = 0; n < HOLD_BATCH && !err; n++) {
		err = hold_receive(w->fd, &r, &fd);
		if (!err && r.op == HOLD_TELL && r.kind == HOLD_UPGRADE)
			upgrade_told(&d->operators, &r);
		else if (!err && r.op == HOLD_TELL)
			link_told(&d->link, &r, &fd);
		if (fd >= 0)
			close(fd);
	}
	link_told_all(&d->link);
	/* hold has ended; the signal that ends kvmm is on its way. */
	if (err == -EPIPE)
		watch_remove(&d->loop, w);
}

/* control_hear_hold() - watch the socket of hold, if there is one */
int control_hear_hold(struct daemon *d)
{
	if (d->deposit.fd < 0)
		return 0;
	d->hold_watch.fd = d->deposit.fd;
	d->hold_watch.fn = control_from_hold;
	d->hold_watch.arg = d;
	return watch_add(&d->loop, &d->hold_watch, EPOLLIN);
}

/* Do the work that is due.  Return: milliseconds until more is. */
static int control_timers(struct daemon *d)
{
	u64 now = kv_now_ns(), next;

	next = client_timers(&d->clients, now);
	next = min(next, ghost_timers(&d->clients, now));
	next = min(next, view_timers(&d->views, now));
	next = min(next, deposit_timers(&d->deposit, now));
	next = min(next, deposit_late_timers(&d->deposit, now));
	next = min(next, adopt_timers(&d->adoption, now));
	next = min(next, admin_timers(&d->operators, now));
	next = min(next, area_timers(&d->link, now));
	next = min(next, closer_timers(&d->sockets, now));
	mapper_watchdog(&d->mapper, now);
	copier_watchdog(&d->copier, now);
	/* A mapper that hangs sends no event: look again. */
	next = min(next, now + WATCHDOG_NS);
	return next <= now ? 0 : (int)DIV_ROUND_UP(next - now, NSEC_PER_MSEC);
}

/* control_run() - serve until a signal, or until an upgrade was granted */
void control_run(struct daemon *d)
{
	while (!d->loop.stop) {
		int ms = control_timers(d), err;

		client_free_dead(&d->clients);
		err = loop_wait(&d->loop, ms);
		if (err) {
			pr_err("epoll_wait: %s", strerror(-err));
			break;
		}
	}
}

void control_exit(struct daemon *d)
{
	watch_close(&d->loop, &d->mm.kick);
	watch_close(&d->loop, &d->signals);
	loop_exit(&d->loop);
}
