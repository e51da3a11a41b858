// SPDX-License-Identifier: Apache-2.0
/*
 * swap_link.c - talk with kvmm-hold and with swapd
 *
 * kvmm does not start swapd: it deposits what swapd needs with hold and asks
 * for one.  From then on hold tells when one is up, when it died, and how the
 * transfers end that it left in the kernel.  Each swapd goes through
 *
 *	UP	its control socket came
 *	HELLO	it is there and touches nothing: the rings are reset, START
 *	areas	all areas that there are get offered again, with their files
 *	up	all are answered: it gets requests
 *	DOWN	what it had is orphaned, see swap.c
 *
 * An area that is being added for the first time holds nobody up.  Without
 * hold there is no swapd, and no area can be added.
 *
 * Context: control thread.
 */
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define SWAP_TALES	64	/* told to the mm thread at once */
#define HOLD_BATCH	256	/* records taken in one round */

struct link_call {
	struct daemon		*d;
	u32			generation;
	u32			nr;
	struct swap_tale	tale[SWAP_TALES];
};

/* ---- on the mm thread ---- */

static void call_join(struct core *core, void *arg)
{
	struct link_call *c = arg;

	swap_join(&c->d->swap, c->generation);
}

static void call_up(struct core *core, void *arg)
{
	struct link_call *c = arg;

	c->d->swap.up = c->d->swap.joined;
}

static void call_leave(struct core *core, void *arg)
{
	struct link_call *c = arg;

	swap_leave(&c->d->swap, clock_ns(), c->generation);
}

static void call_gone(struct core *core, void *arg)
{
	struct link_call *c = arg;

	c->d->swap.gone = true;
}

static void call_hear(struct core *core, void *arg)
{
	struct link_call *c = arg;
	u64 now = clock_ns();
	u32 i;

	for (i = 0; i < c->nr; i++)
		swap_hear(&c->d->swap, now, &c->tale[i]);
}

static void link_call(struct daemon *d, u32 generation,
		      void (*fn)(struct core *core, void *arg))
{
	struct link_call c = { .d = d, .generation = generation };

	if (mm_call(&d->mm, fn, &c))
		pr_debug("swap: the mm thread has ended");
}

/* ---- to swapd ---- */

/* Ask hold for a swapd, or for another one than it has. */
void link_run(struct daemon *d)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = HOLD_SWAP_RUN,
		.generation = ++d->link.run,
		.value = HOLD_SWAP_VALUE(d->setup.opt.swap_depth,
					 d->setup.opt.swap_engine, 0, 0),
	};

	d->link.ended = false;
	deposit_record(&d->deposit, &r, -1);
}

/*
 * Send a message to the swapd that runs; its end is told by hold.  One that
 * lives and cannot be told has another idea of its areas than we have: it is
 * replaced.
 */
int link_send(struct daemon *d, const struct swapd_msg *m, int fd)
{
	int err;

	if (d->swap_sock.fd < 0)
		return -ENOTCONN;
	err = sock_send(d->swap_sock.fd, m, sizeof(*m), &fd, fd >= 0);
	if (!err)
		return 0;
	if (err != -EPIPE && err != -ECONNRESET) {
		pr_warn("swapd %u takes no message: %s: another takes over",
			d->link.generation, strerror(-err));
		link_run(d);
	}
	return err;
}

/* link_log() - swapd is to tell as much as kvmm does; the next is told, too */
void link_log(struct daemon *d)
{
	const struct swapd_msg m = {
		.magic = SWAPD_MAGIC, .op = SWAPD_LOG, .area = kv_log_level(),
	};

	if (d->link.hello)
		(void)!link_send(d, &m, -1);
}

static void link_try_up(struct daemon *d)
{
	struct swap_link *l = &d->link;

	if (l->up || !l->hello || l->waiting)
		return;
	l->up = true;
	link_call(d, l->generation, call_up);
	pr_debug("swapd %u takes requests", l->generation);
}

/* One of the areas that swapd was offered at its start is settled. */
void link_area_answered(struct daemon *d)
{
	if (d->link.waiting)
		d->link.waiting--;
	link_try_up(d);
}

static void link_hello(struct daemon *d, const struct swapd_answer *a)
{
	struct swapd_msg start = { .magic = SWAPD_MAGIC, .op = SWAPD_START };
	struct swap_link *l = &d->link;

	l->hello = true;
	l->engine = a->engine;
	l->registered = a->flags & SWAPD_HELLO_REGISTERED;
	pr_info("swapd %u runs as process %d: %s", l->generation, (int)l->pid, a->text);
	link_call(d, l->generation, call_join);
	if (link_send(d, &start, -1))
		return;
	if (d->log_set)
		link_log(d);
	l->waiting = area_offer_all(d);
	link_try_up(d);
}

static void link_from_swapd(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	struct swapd_answer a;
	ssize_t n;

	for (;;) {
		n = sock_recv(w->fd, &a, sizeof(a));
		/* What is there to be read stays so: a passing failure is no end. */
		if (n < 0 && n != -ECONNRESET && n != -EBADMSG)
			return;
		if (n != sizeof(a) || a.magic != SWAPD_MAGIC) {
			/* The end: hold tells of its death. */
			watch_close(&d->loop, w);
			return;
		}
		a.text[sizeof(a.text) - 1] = '\0';
		if (a.op == SWAPD_HELLO)
			link_hello(d, &a);
		else
			area_answer(d, &a);
	}
}

/* ---- from hold ---- */

static void link_came(struct daemon *d, const struct hold_record *r, int fd)
{
	struct swap_link *l = &d->link;

	watch_close(&d->loop, &d->swap_sock);
	l->generation = r->generation;
	l->pid = (pid_t)r->value;
	l->hello = false;
	l->up = false;
	l->ended = false;
	d->swap_sock.fd = fd;
	d->swap_sock.fn = link_from_swapd;
	d->swap_sock.arg = d;
	if (fd >= 0 && !watch_add(&d->loop, &d->swap_sock, EPOLLIN))
		return;
	/* It ends when its socket does, and hold starts another. */
	pr_warn("swapd %u cannot be heard: %s: another takes over",
		l->generation, strerror(fd < 0 ? EBADF : errno));
	watch_close(&d->loop, &d->swap_sock);
}

static void link_went(struct daemon *d, const struct hold_record *r)
{
	struct swap_link *l = &d->link;

	/* What it answered before it died counts. */
	if (d->swap_sock.fd >= 0 && l->generation == r->generation)
		link_from_swapd(d, &d->swap_sock, EPOLLIN);
	watch_close(&d->loop, &d->swap_sock);
	l->generation = 0;
	l->pid = 0;
	l->hello = false;
	l->up = false;
	l->waiting = 0;
	link_call(d, r->generation, call_leave);
	if (!r->index) {
		l->ended = true;
		l->status = (int)r->value;
		pr_err("swapd has ended by itself with code %d: swap areas are away until kvctl swapon starts it again",
		       WEXITSTATUS(l->status));
		link_call(d, r->generation, call_gone);
	}
	area_link_down(d);
}

static void tales_flush(struct daemon *d, struct link_call *c)
{
	if (c->nr && mm_call(&d->mm, call_hear, c))
		pr_debug("swap: the mm thread has ended");
	c->nr = 0;
}

static void tale_add(struct daemon *d, struct link_call *c,
		     const struct hold_record *r)
{
	if (c->nr == SWAP_TALES)
		tales_flush(d, c);
	c->tale[c->nr++] = (struct swap_tale){
		.kind = r->kind, .generation = r->generation,
		.res = (s32)r->index, .id = r->value,
	};
}

/* One record.  Return: 0, -EAGAIN, or -EPIPE: hold has ended. */
static int hold_receive(int sock, struct hold_record *r, int *fd)
{
	ssize_t n = sock_recv_fd(sock, r, sizeof(*r), MSG_DONTWAIT, fd, NULL);

	/* A failure that passes is no end: what is there will be read later. */
	if (n <= 0)
		return n && n != -ECONNRESET ? -EAGAIN : -EPIPE;
	if (n != sizeof(*r) || r->magic != HOLD_MAGIC)
		r->op = 0;
	return 0;
}

static void hold_tells(struct daemon *d, struct link_call *c,
		       const struct hold_record *r, int *fd)
{
	if (r->op == HOLD_TELL && r->kind == HOLD_UPGRADE) {
		upgrade_told(d, r);
		return;
	}
	if (r->op != HOLD_TELL || !d->link.wanted)
		return;
	if (r->kind == HOLD_SWAP_OLD_CQE || r->kind == HOLD_SWAP_DRAINED) {
		tale_add(d, c, r);
		return;
	}
	tales_flush(d, c);
	if (r->kind == HOLD_SWAPD_UP) {
		link_came(d, r, *fd);
		*fd = -1;
	} else if (r->kind == HOLD_SWAPD_DOWN) {
		link_went(d, r);
	}
}

static void link_from_hold(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	struct link_call c = { .d = d };
	struct hold_record r;
	int fd, err = 0, n;

	for (n = 0; n < HOLD_BATCH && !err; n++) {
		err = hold_receive(w->fd, &r, &fd);
		if (!err)
			hold_tells(d, &c, &r, &fd);
		if (fd >= 0)
			close(fd);
	}
	tales_flush(d, &c);
	/* Hold is gone; the signal that ends us is on its way. */
	if (err == -EPIPE)
		watch_remove(&d->loop, w);
}

/* ---- for the operator's files ---- */

struct info_call {
	struct daemon		*d;
	struct proc_swap_info	*info;
};

static void call_info(struct core *core, void *arg)
{
	const struct info_call *c = arg;
	const struct swap_mm *sw = &c->d->swap;
	struct proc_swap_info *info = c->info;
	u64 now = clock_ns();
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++)
		if (sw->area[i].live)
			info->shell[sw->area[i].index].busy_ns =
				busy_ns(sw, i, now);
	info->nr_open = sw->nr_open;
	info->nr_orphans = sw->nr_orphans;
	info->nr_backlog = queue_count(&sw->backlog);
#define x(name, text) info->name = sw->count.name;
	PROC_SWAP_COUNTERS(x)
#undef x
}

/* How the swapd that runs transfers; NULL: it did not say so yet. */
static const char *engine_name(const struct swap_link *l)
{
	if (!l->hello)
		return NULL;
	if (l->engine != SWAPD_ENGINE_URING)
		return "threads";
	return l->registered ? "io_uring" : "io_uring,unregistered";
}

/* proc_source.swap_info */
int link_get_info(void *arg, struct proc_swap_info *info)
{
	struct info_call c = { .d = arg, .info = info };
	const struct swapd_ctl *ctl = c.d->swap.ctl;
	struct copy_counts copied;
	u32 i, n;

	memset(info, 0, sizeof(*info));
	copier_get_counts(&c.d->copier, &copied);
#define x(name, text) info->name = copied.name;
	PROC_COPIER_COUNTERS(x)
#undef x
	if (!c.d->link.wanted)
		return 0;
	info->pid = (u64)c.d->link.pid;
	info->generation = c.d->link.generation;
	info->engine = engine_name(&c.d->link);
	for (i = 0; i < NR_SWAPD_COUNTERS; i++)
		info->swapd[i] = READ_ONCE(ctl->counter[i]);
	for (i = 0; i < CORE_MAX_AREAS; i++)
		for (n = 0; n < NR_SWAPD_AREA_COUNTERS; n++)
			info->area[i][n] = READ_ONCE(ctl->area[i][n]);
	return mm_call(&c.d->mm, call_info, &c);
}

/* ---- start and end ---- */

/* Should it die, hold starts the next at once. */
static void link_tell_works(struct daemon *d)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = HOLD_SWAP_WORKS,
		.generation = READ_ONCE(d->swap.works),
	};

	if (r.generation == d->link.works)
		return;
	d->link.works = r.generation;
	deposit_record(&d->deposit, &r, -1);
}

/* What the mm thread says: swapd works or forged an index, areas stall or fail. */
void link_check(struct daemon *d)
{
	if (!d->link.wanted)
		return;
	link_tell_works(d);
	area_tell_stalls(d);
	area_judge_all(d);
	if (!READ_ONCE(d->swap.broken) || !d->link.hello)
		return;
	pr_err("swapd %u wrote an index that cannot be: it is ended and started again",
	       d->link.generation);
	d->link.hello = false;
	link_run(d);
}

static void link_deposit(struct daemon *d)
{
	deposit_put(&d->deposit, HOLD_SWAP_SHM, 0, d->link.shm, 0);
	deposit_put(&d->deposit, HOLD_SWAP_POOL, 0, d->setup.host.fd, 0);
	deposit_put(&d->deposit, HOLD_SWAP_REQ, 0, d->swap.req_bell, 0);
	deposit_put(&d->deposit, HOLD_SWAP_CPL, 0, d->swap.cpl_bell, 0);
	link_run(d);
}

/**
 * link_start() - ask for a swapd, and offer it the areas of the last daemon
 * Context: when the mm thread runs.
 */
int link_start(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	u32 i;
	int err;

	if (p->fd >= 0) {
		d->hold_watch.fd = p->fd;
		d->hold_watch.fn = link_from_hold;
		d->hold_watch.arg = d;
		err = watch_add(&d->loop, &d->hold_watch, EPOLLIN);
		if (err)
			return err;
	}
	if (p->fd >= 0 && d->swap.ctl) {
		d->link.wanted = true;
		/* Rises over lives, so hold never takes it for the last one. */
		d->link.run = (u32)(clock_ns() >> 20);
		link_deposit(d);
	}
	for (i = 0; i < ARRAY_SIZE(p->area); i++) {
		if (p->area[i].fd < 0)
			continue;
		if (d->link.wanted && d->setup.adopted >= 0 &&
		    d->deposit.keep->area[i].valid) {
			area_resume(d, i, p->area[i].fd);
		} else if (d->link.wanted) {
			area_adopt(d, i, p->area[i].fd, p->area[i].value);
		} else {
			deposit_drop(&d->deposit, HOLD_SWAP_AREA, i);
			close(p->area[i].fd);
		}
		p->area[i].fd = -1;
	}
	return 0;
}

void link_stop(struct daemon *d)
{
	area_exit_all(d);
	watch_close(&d->loop, &d->swap_sock);
	/* Its descriptor is deposit.c's. */
	d->hold_watch.fd = -1;
	if (d->link.shm >= 0)
		close(d->link.shm);
	d->link.shm = -1;
}
