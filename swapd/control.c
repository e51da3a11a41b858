// SPDX-License-Identifier: Apache-2.0
/*
 * control.c - the socket over which kvmm adds and removes areas
 *
 * Judging an area can take long (reserving room, a slow disk), so a thread does
 * it while requests go on.  A removed area accepts no new request from then on.
 * kvmm gets the answer when the last request of the area has ended; other
 * messages are served meanwhile.
 *
 * If kvmm closes the socket, it has ended, and this process ends, too.  hold
 * waits for the transfers that the kernel still does.  If a message cannot be
 * received or sent while kvmm lives, kvmm would wait for ever.  So this process
 * then kills itself, and hold starts the next one, with which kvmm begins anew.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvmm/fds.h>
#include <kvmm/log.h>

#include "swapd/daemon.h"

#define DYING_POLL_MS	5

/* A message is lost: kvmm and swapd no longer agree on the areas. */
static void control_lost(const char *what)
{
	pr_err("%s kvmm: %s: another swapd takes over", what, strerror(errno));
	raise(SIGKILL);
}

static int answer_send(struct swapd *s, struct swapd_answer *a)
{
	ssize_t n;

	a->magic = SWAPD_MAGIC;
	do {
		n = send((int)s->opt.control_fd, a, sizeof(*a), MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EPIPE && errno != ECONNRESET)
		control_lost("an answer cannot be sent to");
	return n < 0 ? -errno : 0;
}

int control_hello(struct swapd *s, const char *text)
{
	struct swapd_answer a = {
		.op = SWAPD_HELLO, .cookie = s->opt.generation,
		.engine = s->engine->id, .depth = s->opt.depth,
		.flags = s->hello,
	};

	snprintf(a.text, sizeof(a.text), "%s", text);
	return answer_send(s, &a);
}

/* Receive a message.  Return: 0; -EPIPE: kvmm has ended; -EPROTO: malformed. */
static int msg_receive(struct swapd *s, struct swapd_msg *m, int *fd)
{
	union {
		char		buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr	align;
	} control;
	struct iovec iov = { .iov_base = m, .iov_len = sizeof(*m) };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	ssize_t n;

	*fd = -1;
	do {
		n = recvmsg((int)s->opt.control_fd, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != ECONNRESET)
		control_lost("a message cannot be received from");
	if (n <= 0)
		return -EPIPE;
	*fd = kv_fds_first(&msg);
	return n == sizeof(*m) && m->magic == SWAPD_MAGIC ? 0 : -EPROTO;
}

int control_wait_start(struct swapd *s)
{
	struct swapd_msg m;
	int fd, err;

	err = msg_receive(s, &m, &fd);
	if (fd >= 0)
		close(fd);
	if (err == -EPIPE)
		return err;
	if (err || m.op != SWAPD_START)
		sd_broken("the first message is not START");
	return 0;
}

/* ---- areas ---- */

static void area_add(struct swapd *s, const struct swapd_msg *m, int fd,
		     struct swapd_answer *ans)
{
	int err;

	if (fd < 0) {
		ans->status = -EBADF;
		snprintf(ans->text, sizeof(ans->text),
			 "an area came without its file");
		return;
	}
	area_open(s, m, fd, ans);
	if (ans->status) {
		close(fd);
		return;
	}
	err = s->engine->area_add(s, m->area, fd);
	if (err) {
		area_close(&s->area[m->area]);
		ans->status = err;
		snprintf(ans->text, sizeof(ans->text),
			 "io_uring does not take the file: %s", strerror(-err));
		return;
	}
	area_live(s, m->area);
	pr_info("area %u: priority %d, %llu bytes for slots%s%s", m->area,
		m->priority, (unsigned long long)ans->usable_bytes,
		ans->text[0] ? ": " : "", ans->text);
}

/* Close dying areas without requests.  Return: whether others still wait. */
static bool areas_reap(struct swapd *s)
{
	bool any = false;
	u32 i;

	for (i = 0; i < SWAPD_AREAS; i++) {
		struct swapd_answer ans = {
			.op = SWAPD_AREA_DEL, .area = i,
			.cookie = s->area[i].del,
		};

		if (s->area[i].state != SD_AREA_DYING)
			continue;
		if (__atomic_load_n(&s->area[i].inflight, __ATOMIC_SEQ_CST)) {
			any = true;
			continue;
		}
		s->engine->area_del(s, i);
		area_close(&s->area[i]);
		pr_info("area %u: gone", i);
		(void)answer_send(s, &ans);
	}
	return any;
}

static void area_del(struct swapd *s, const struct swapd_msg *m)
{
	struct sd_area *a = &s->area[m->area];
	struct swapd_answer ans = {
		.op = SWAPD_AREA_DEL, .area = m->area, .cookie = m->cookie,
		.status = -ENXIO, .text = "there is no such area",
	};

	if (a->state != SD_AREA_LIVE) {
		(void)answer_send(s, &ans);
		return;
	}
	a->del = m->cookie;
	/* Pairs with the load in area_get(). */
	__atomic_store_n(&a->state, SD_AREA_DYING, __ATOMIC_SEQ_CST);
}

static void msg_serve(struct swapd *s, const struct swapd_msg *m, int fd)
{
	struct swapd_answer ans = {
		.op = m->op, .area = m->area, .cookie = m->cookie,
	};

	if (m->op == SWAPD_LOG && m->area <= KV_LOG_DEBUG) {
		kv_log_set((enum kv_log_level)m->area);
		if (fd >= 0)
			close(fd);
		return;
	}
	if (m->area >= SWAPD_AREAS || m->resv[0] || m->resv[1] ||
	    (m->op != SWAPD_AREA_ADD && m->op != SWAPD_AREA_DEL)) {
		ans.status = -EINVAL;
		snprintf(ans.text, sizeof(ans.text), "a message that is none");
	} else if (m->op == SWAPD_AREA_ADD) {
		area_add(s, m, fd, &ans);
		fd = -1;
	} else {
		area_del(s, m);
		return;
	}
	if (fd >= 0)
		close(fd);
	(void)answer_send(s, &ans);
}

static void *control_main(void *arg)
{
	struct swapd *s = arg;
	struct swapd_msg m;
	bool dying;
	int fd, err;

	for (;;) {
		struct pollfd p = {
			.fd = (int)s->opt.control_fd, .events = POLLIN,
		};

		dying = areas_reap(s);
		if (poll(&p, 1, dying ? DYING_POLL_MS : -1) <= 0)
			continue;
		err = msg_receive(s, &m, &fd);
		if (err == -EPIPE)
			_exit(0);
		if (err)
			sd_broken("a message of another size");
		msg_serve(s, &m, fd);
	}
	return NULL;
}

int control_start(struct swapd *s)
{
	pthread_t t;
	int err = pthread_create(&t, NULL, control_main, s);

	if (!err)
		pthread_detach(t);
	return -err;
}
