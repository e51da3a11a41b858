/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swapd_client.h - a kvmm that only swaps
 *
 * For tests and benchmarks of swapd.  A driver copies kvmm-hold into a
 * directory, puts a link to itself beside it under the name kvmm and a link to
 * swapd, and starts hold; hold starts the driver's program again as its kvmm.
 * This fake kvmm talks to the real hold and the real swapd through this file.
 *
 * It obeys include/kvmm/swapd.h as kvmm must: a request that swapd did not
 * complete stays unfinished until hold names it or says DRAINED.  It has one
 * thread.  An error that no test asked for ends the process with SC_BROKEN and
 * a line on stderr.
 */
#ifndef TESTS_SWAPD_CLIENT_H
#define TESTS_SWAPD_CLIENT_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/ring.h>
#include <kvmm/swapd.h>

#include "kvmm/hold/hold.h"
#include "tests/armed.h"

#define SC_BROKEN	3
#define SC_TAGS		SWAPD_ENTRIES_MAX

/* The end of a request. */
enum sc_how {
	SC_COMPLETED,	/* by swapd */
	SC_OLD,		/* by hold, from a dead swapd's ring */
	SC_DRAINED,	/* never named: not issued, or over */
};

enum sc_state {
	SC_FREE,
	SC_OUT,		/* swapd has the request */
	SC_LIMBO,	/* its swapd is dead */
};

struct sc_tag {
	enum sc_state		state;
	u32			generation;
	struct swapd_carrier	carrier;	/* in limbo; @nr 0: unknown */
	struct swapd_req	req;
	void			*arg;
};

struct swapc;
typedef void (*sc_done_fn)(struct swapc *c, const struct swapd_req *req,
			   void *arg, enum sc_how how, int status);

struct swapc {
	int			hold;
	int			control;	/* -1: no swapd */
	int			shm;
	int			pool_fd;
	int			req_fd;
	int			cpl_fd;
	int			kept_area;	/* of the previous life; -1: none */
	pid_t			pid;
	u32			generation;
	u32			run;
	u64			value;
	u32			engine;
	u32			depth;
	bool			serving;	/* START was sent */
	bool			gone;		/* DOWN: swapd is not started again */
	bool			praise;		/* so that hold makes no back-off */
	bool			kill_at_up;	/* kill the next one at birth */
	bool			apart;		/* no two requests share a slot:
						 * see sc_judge_apart() */
	u32			entries;
	struct swapd_ctl	*ctl;
	struct ring_prod	req;
	struct ring_cons	cpl;
	u8			*pool;
	u64			pool_bytes;
	u64			serial;
	u32			nr_out;
	u32			nr_limbo;
	u32			nr_drained;	/* lives whose requests are over */
	u32			nr_down;
	u32			ended[3];	/* by enum sc_how */
	u32			nr_old_shared;	/* SC_OLD of shared transfers */
	struct sc_tag		tag[SC_TAGS];
	u32			free_tag[SC_TAGS];
	u32			nr_free;
	sc_done_fn		done;
};

static void __noreturn __printf(1, 2) sc_die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "fake kvmm: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(SC_BROKEN);
}

__maybe_unused
static u64 sc_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

/* ---- messages ---- */

static int sc_recv(int sock, void *buf, size_t len, int *fd, int flags)
{
	union {
		char		buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr	align;
	} control;
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	struct cmsghdr *cm;
	ssize_t n;

	*fd = -1;
	do {
		n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	cm = CMSG_FIRSTHDR(&msg);
	if (cm && cm->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(cm), sizeof(*fd));
	return (int)n;
}

static int sc_send(int sock, const void *buf, size_t len, int fd)
{
	union {
		char		buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr	align;
	} control;
	struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm;

	if (fd >= 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	}
	return sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void sc_put(struct swapc *c, u32 kind, u32 generation, u64 value, int fd)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = kind,
		.generation = generation, .value = value,
	};

	if (sc_send(c->hold, &r, sizeof(r), fd))
		sc_die("hold takes nothing: %s", strerror(errno));
}

/* ---- requests ---- */

static void sc_end(struct swapc *c, u32 tag, enum sc_how how, int status)
{
	struct sc_tag *t = &c->tag[tag];
	const struct swapd_req req = t->req;

	if (t->state == SC_LIMBO)
		c->nr_limbo--;
	else
		c->nr_out--;
	t->state = SC_FREE;
	c->free_tag[c->nr_free++] = tag;
	c->ended[how]++;
	c->done(c, &req, t->arg, how, status);
}

static u32 sc_take_completions(struct swapc *c)
{
	const struct swapd_cpl *cpls = swapd_shm_cpls(c->ctl, c->entries);
	struct swapd_cpl cpl;
	int n = ring_cons_look(&c->cpl), i;
	u32 tag;

	if (n < 0)
		sc_die("the completion ring runs over");
	for (i = 0; i < n; i++) {
		shared_copy_in(&cpl, &cpls[ring_cons_slot(&c->cpl)],
			       sizeof(cpl));
		ring_cons_advance(&c->cpl);
		ring_cons_publish(&c->cpl);
		tag = SWAPD_ID_TAG(cpl.id);
		if (tag >= c->entries || c->tag[tag].state != SC_OUT ||
		    c->tag[tag].req.id != cpl.id)
			sc_die("completion of what was not asked for: %llx",
			       (unsigned long long)cpl.id);
		sc_end(c, tag, SC_COMPLETED, cpl.status);
	}
	return (u32)n;
}

/* Is there room for another request? */
static bool sc_ready(const struct swapc *c)
{
	return c->serving && c->nr_free;
}

static bool sc_overlap(u64 a, u64 a_len, u64 b, u64 b_len)
{
	return a < b + b_len && b < a + a_len;
}

/*
 * Two unfinished requests must not name the same slot: otherwise wrong content
 * of a read would be the client's fault, not swapd's.
 */
static void sc_judge_apart(const struct swapc *c, const struct swapd_req *r)
{
	const struct swapd_req *o;
	u32 i;

	for (i = 0; i < c->entries; i++) {
		o = &c->tag[i].req;
		if (c->tag[i].state == SC_FREE)
			continue;
		if (sc_overlap(r->host_off, r->len, o->host_off, o->len))
			sc_die("the host slot at %llx is named by two requests",
			       (unsigned long long)r->host_off);
		if (r->area == o->area &&
		    sc_overlap(r->area_off, r->len, o->area_off, o->len))
			sc_die("the slot at %llx of area %u is named by two requests",
			       (unsigned long long)r->area_off, r->area);
	}
}

/**
 * sc_submit() - send one request; sc_kick() follows
 * @req: without id
 */
__maybe_unused
static void sc_submit(struct swapc *c, const struct swapd_req *req, void *arg)
{
	struct swapd_req *slot;
	struct sc_tag *t;
	u32 tag;

	if (!sc_ready(c))
		sc_die("no room for a request");
	if (c->apart)
		sc_judge_apart(c, req);
	tag = c->free_tag[--c->nr_free];
	t = &c->tag[tag];
	t->state = SC_OUT;
	t->generation = c->generation;
	t->req = *req;
	t->req.id = SWAPD_ID(++c->serial, tag);
	t->arg = arg;
	c->nr_out++;
	if (ring_prod_look(&c->req) < 0 || !ring_prod_room(&c->req))
		sc_die("the request ring is full");
	slot = &swapd_shm_reqs(c->ctl)[ring_prod_slot(&c->req)];
	shared_copy_out(slot, &t->req, sizeof(t->req));
	ring_prod_advance(&c->req);
}

__maybe_unused
static void sc_kick(struct swapc *c)
{
	const u64 one = 1;

	if (!c->serving)
		return;
	ring_prod_publish(&c->req);
	if (ring_sleeper_waits(&c->ctl->swapd_sleeps) &&
	    write(c->req_fd, &one, sizeof(one)) < 0)
		sc_die("eventfd: %s", strerror(errno));
}

/* ---- lives of swapd ---- */

static void sc_start(struct swapc *c)
{
	const struct swapd_msg m = { .magic = SWAPD_MAGIC, .op = SWAPD_START };

	swapd_shm_reset(c->ctl);
	ring_prod_init(&c->req, c->entries, 0, &c->ctl->req_tail,
		       &c->ctl->req_head);
	ring_cons_init(&c->cpl, c->entries, 0, &c->ctl->cpl_head,
		       &c->ctl->cpl_tail);
	/* swapd may be dead already; then DOWN comes. */
	c->serving = !sc_send(c->control, &m, sizeof(m), -1);
	if (c->praise)
		sc_put(c, HOLD_SWAP_WORKS, c->generation, 0, -1);
}

static void sc_up(struct swapc *c, const struct hold_record *r, int fd)
{
	struct swapd_answer a;
	int none;

	if (c->control >= 0)
		sc_die("a second swapd while there is one");
	c->control = fd;
	c->pid = (pid_t)r->value;
	c->generation = r->generation;
	if (c->kill_at_up)
		kill(c->pid, SIGKILL);
	c->kill_at_up = false;
	if (sc_recv(fd, &a, sizeof(a), &none, 0) != sizeof(a))
		return;		/* dead before its first message */
	if (a.magic != SWAPD_MAGIC || a.op != SWAPD_HELLO ||
	    a.cookie != r->generation)
		sc_die("swapd does not say HELLO");
	c->engine = a.engine;
	c->depth = a.depth;
	sc_start(c);
}

static void sc_down(struct swapc *c, const struct hold_record *r)
{
	const struct swapd_carrier *table = swapd_shm_carriers(c->ctl,
							       c->entries);
	u32 i;

	if (c->generation != r->generation || c->control < 0)
		sc_die("DOWN of a swapd that is not up");
	if (c->serving)
		sc_take_completions(c);
	close(c->control);
	c->control = -1;
	c->serving = false;
	c->gone = !r->index;
	c->nr_down++;
	for (i = 0; i < c->entries; i++) {
		if (c->tag[i].state != SC_OUT)
			continue;
		c->tag[i].state = SC_LIMBO;
		if (!swapd_carrier_read(table, c->tag[i].req.id,
					&c->tag[i].carrier))
			c->tag[i].carrier.nr = 0;
		c->nr_out--;
		c->nr_limbo++;
	}
}

/* hold names a transfer: all requests in it are over. */
static void sc_old_transfer(struct swapc *c, const struct hold_record *r)
{
	u32 i;

	for (i = 0; i < c->entries; i++) {
		const struct sc_tag *t = &c->tag[i];

		if (t->state != SC_LIMBO || t->generation != r->generation ||
		    !t->carrier.nr || t->carrier.transfer != r->value)
			continue;
		c->nr_old_shared += t->carrier.nr > 1;
		sc_end(c, i, SC_OLD,
		       swapd_carrier_share(&t->carrier, t->req.len,
					   (s32)r->index));
	}
}

static void sc_told(struct swapc *c, const struct hold_record *r, int fd)
{
	u32 i;

	switch (r->kind) {
	case HOLD_SWAPD_UP:
		sc_up(c, r, fd);
		break;
	case HOLD_SWAPD_DOWN:
		sc_down(c, r);
		break;
	case HOLD_SWAP_OLD_CQE:
		sc_old_transfer(c, r);
		break;
	case HOLD_SWAP_DRAINED:
		c->nr_drained++;
		for (i = 0; i < c->entries; i++)
			if (c->tag[i].state == SC_LIMBO &&
			    c->tag[i].generation == r->generation)
				sc_end(c, i, SC_DRAINED, 0);
		break;
	default:
		sc_die("hold tells %u", r->kind);
	}
}

static u32 sc_take_told(struct swapc *c)
{
	struct hold_record r;
	u32 nr = 0;
	int fd, n;

	for (;; nr++) {
		n = sc_recv(c->hold, &r, sizeof(r), &fd, MSG_DONTWAIT);
		if (n == -EAGAIN)
			return nr;
		if (n != sizeof(r) || r.magic != HOLD_MAGIC ||
		    r.op != HOLD_TELL)
			sc_die("hold says nonsense");
		sc_told(c, &r, fd);
	}
}

/**
 * sc_poll() - handle all events; if there are none, wait up to @ms
 *
 * Return: number of events.
 */
static u32 sc_poll(struct swapc *c, int ms)
{
	struct pollfd p[] = {
		{ .fd = c->hold, .events = POLLIN },
		{ .fd = c->cpl_fd, .events = POLLIN },
	};
	u32 n = c->serving ? sc_take_completions(c) : 0;
	u64 v;

	/* Poll in every round, even if completions never end. */
	n += sc_take_told(c);
	if (n || !ms)
		return n;
	ring_sleep_prepare(&c->ctl->kvmm_sleeps);
	if (!c->serving || ring_cons_look(&c->cpl) == 0)
		(void)poll(p, ARRAY_SIZE(p), ms);
	ring_sleep_finish(&c->ctl->kvmm_sleeps);
	if (p[1].revents & POLLIN && read(c->cpl_fd, &v, sizeof(v)) < 0)
		sc_die("eventfd: %s", strerror(errno));
	n = c->serving ? sc_take_completions(c) : 0;
	return n + sc_take_told(c);
}

/* Wait until no request is unfinished, at most @ms.  Return: whether none is. */
__maybe_unused
static bool sc_quiet(struct swapc *c, u32 ms)
{
	u64 end = sc_now_ns() + ms * 1000000ull;

	while ((c->nr_out || c->nr_limbo) && sc_now_ns() < end)
		sc_poll(c, 20);
	return !c->nr_out && !c->nr_limbo;
}

static void sc_await_serving(struct swapc *c)
{
	u64 end = sc_now_ns() + 20000000000ull;

	while (!c->serving) {
		if (c->gone)
			sc_die("swapd ended by itself");
		if (sc_now_ns() > end)
			sc_die("no swapd in 20 s");
		sc_poll(c, 100);
	}
}

/* ---- areas ---- */

/* Send one message and wait for its answer; -ECONNRESET: swapd died meanwhile. */
static int sc_control(struct swapc *c, struct swapd_msg *m, int fd,
		      struct swapd_answer *a)
{
	int none, n;

	m->magic = SWAPD_MAGIC;
	m->cookie = c->serial;
	memset(a, 0, sizeof(*a));
	if (c->control < 0 || sc_send(c->control, m, sizeof(*m), fd))
		return -ECONNRESET;
	n = sc_recv(c->control, a, sizeof(*a), &none, 0);
	if (n != sizeof(*a))
		return -ECONNRESET;
	if (a->magic != SWAPD_MAGIC || a->op != m->op || a->area != m->area ||
	    a->cookie != m->cookie)
		sc_die("an answer to something else");
	return a->status;
}

/* @uuid: NULL: a new one; else the area must still have it. */
__maybe_unused
static int sc_area_add(struct swapc *c, u32 area, int fd, u64 bytes, u32 flags,
		       const u8 *uuid, struct swapd_answer *a)
{
	struct swapd_msg m = {
		.op = SWAPD_AREA_ADD, .area = area, .bytes = bytes,
		.epoch = 7, .flags = flags | (uuid ? SWAPD_AREA_KEEP : 0),
	};

	if (uuid)
		memcpy(m.uuid, uuid, sizeof(m.uuid));
	return sc_control(c, &m, fd, a);
}

__maybe_unused
static int sc_area_del(struct swapc *c, u32 area, struct swapd_answer *a)
{
	struct swapd_msg m = { .op = SWAPD_AREA_DEL, .area = area };

	return sc_control(c, &m, -1, a);
}

/* ---- beginning ---- */

static int sc_memfd(const char *name, u64 bytes, u32 flags, void **map)
{
	int fd = memfd_create(name, MFD_CLOEXEC | flags);

	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		goto out_fail;
	*map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*map != MAP_FAILED)
		return fd;
out_fail:
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Take the records that hold kept for this life.  Return: their number. */
static u32 sc_take_kept(struct swapc *c)
{
	struct hold_record r;
	u32 nr = 0;
	int fd;

	for (;;) {
		if (sc_recv(c->hold, &r, sizeof(r), &fd, 0) != sizeof(r))
			sc_die("hold hands nothing over");
		if (r.kind == HOLD_SWAP_AREA)
			c->kept_area = fd;
		else if (fd >= 0)
			close(fd);
		if (r.op == HOLD_END)
			return nr;
		nr += r.op == HOLD_PUT;
	}
}

/* Deposit all records and ask for a swapd. */
static void sc_run(struct swapc *c)
{
	sc_put(c, HOLD_SWAP_SHM, 0, 0, c->shm);
	sc_put(c, HOLD_SWAP_POOL, 0, 0, c->pool_fd);
	sc_put(c, HOLD_SWAP_REQ, 0, 0, c->req_fd);
	sc_put(c, HOLD_SWAP_CPL, 0, 0, c->cpl_fd);
	sc_put(c, HOLD_SWAP_RUN, ++c->run, c->value, -1);
}

/**
 * sc_open() - become kvmm: memory, rings, and a swapd that serves
 * @value: HOLD_SWAP_VALUE()
 *
 * Return: number of records that hold kept from the previous life.
 */
__maybe_unused
static u32 sc_open(struct swapc *c, u32 entries, u64 pool_bytes, u64 value,
		   sc_done_fn done)
{
	const char *env = getenv(HOLD_ENV);
	void *map;
	u32 kept, i;

	memset(c, 0, sizeof(*c));
	if (!env)
		sc_die("not started by kvmm-hold");
	c->hold = atoi(env);
	c->control = -1;
	c->kept_area = -1;
	c->entries = entries;
	c->pool_bytes = pool_bytes;
	c->value = value;
	c->done = done;
	kept = sc_take_kept(c);
	c->shm = sc_memfd("kvmm-swapd", swapd_shm_bytes(entries), 0, &map);
	if (c->shm < 0)
		sc_die("no shared memory: %s", strerror(errno));
	c->ctl = map;
	swapd_shm_init(c->ctl, entries);
	c->pool_fd = sc_memfd("kvmm-host", pool_bytes, MFD_HUGETLB, &map);
	if (c->pool_fd < 0)
		c->pool_fd = sc_memfd("kvmm-host", pool_bytes, 0, &map);
	if (c->pool_fd < 0)
		sc_die("no host pool: %s", strerror(errno));
	c->pool = map;
	c->req_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->cpl_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	for (i = 0; i < entries; i++)
		c->free_tag[c->nr_free++] = entries - 1 - i;
	sc_run(c);
	sc_await_serving(c);
	return kept;
}

__maybe_unused
static u64 sc_counter(const struct swapc *c, enum swapd_counter i)
{
	return READ_ONCE(c->ctl->counter[i]);
}

/* ---- the driver's side ---- */

static void sc_copy_file(const char *from, const char *to)
{
	char buf[65536];
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	ssize_t n;

	if (in < 0 || out < 0)
		sc_die("%s to %s: %s", from, to, strerror(errno));
	while ((n = read(in, buf, sizeof(buf))) > 0)
		if (write(out, buf, (size_t)n) != n)
			sc_die("%s: %s", to, strerror(errno));
	close(in);
	close(out);
}

/* Put kvmm-hold and swapd of @build/@folder in the directory, in place of older ones. */
__maybe_unused
static void sc_put_daemons(const char *dir, const char *build, const char *folder)
{
	char from[4096], to[4096];

	snprintf(from, sizeof(from), "%s%s/kvmm-hold", build, folder);
	snprintf(to, sizeof(to), "%s/kvmm-hold", dir);
	unlink(to);
	sc_copy_file(from, to);
	snprintf(from, sizeof(from), "%s%s/swapd", build, folder);
	snprintf(to, sizeof(to), "%s/swapd", dir);
	unlink(to);
	if (symlink(from, to))
		sc_die("%s: %s", to, strerror(errno));
}

/**
 * sc_prepare() - make a directory in which hold finds this program as its kvmm
 * @build: folder of kvmm-hold and swapd
 */
__maybe_unused
static void sc_prepare(const char *dir, const char *build)
{
	char from[4096], to[4096];
	ssize_t n;

	sc_put_daemons(dir, build, "");
	n = readlink("/proc/self/exe", from, sizeof(from) - 1);
	from[max(n, (ssize_t)0)] = '\0';
	snprintf(to, sizeof(to), "%s/kvmm", dir);
	if (n <= 0 || symlink(from, to))
		sc_die("%s: %s", to, strerror(errno));
}

/* Start hold with @argv; argv[0] is set.  stderr goes to @log, if given. */
__maybe_unused
static pid_t sc_spawn(const char *dir, char **argv, const char *log)
{
	const char *build = getenv("KVMM_BUILD");
	char path[4096];
	pid_t pid;

	if (*armed_folder(NULL))
		sc_put_daemons(dir, build ? build : "build", armed_folder(NULL));
	snprintf(path, sizeof(path), "%s/kvmm-hold", dir);
	argv[0] = path;
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (log) {
		int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

		if (fd >= 0)
			dup2(fd, STDERR_FILENO);
	}
	execv(path, argv);
	_exit(127);
}

#endif /* TESTS_SWAPD_CLIENT_H */
