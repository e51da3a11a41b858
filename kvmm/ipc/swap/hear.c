// SPDX-License-Identifier: Apache-2.0
/*
 * hear.c - messages of swapd, and of kvmm-hold about it
 *
 * hold tells when a swapd is up, when it died, and how the transfers end that
 * it left in the kernel.
 *
 * Context: control thread.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <kvmm/log.h>

#include "kvmm/ipc/swap/swap.h"

struct life_call {
	struct swap_mm	*swap;
	u32		generation;
};

/* ---- on the mm thread ---- */

static void call_join(struct core *core, void *arg)
{
	struct life_call *c = arg;

	swap_join(c->swap, c->generation);
}

static void call_leave(struct core *core, void *arg)
{
	struct life_call *c = arg;

	swap_leave(c->swap, kv_now_ns(), c->generation);
}

static void call_gone(struct core *core, void *arg)
{
	struct life_call *c = arg;

	c->swap->gone = true;
}

static void call_hear(struct core *core, void *arg)
{
	struct swap_link *l = arg;
	u64 now = kv_now_ns();
	u32 i;

	for (i = 0; i < l->nr_tales; i++)
		swap_hear(l->swap, now, &l->tales[i]);
}

static void life_call(struct swap_link *l, u32 generation,
		      void (*fn)(struct core *core, void *arg))
{
	struct life_call c = { .swap = l->swap, .generation = generation };

	if (mm_call(l->mm, fn, &c))
		pr_debug("swap: the mm thread has ended");
}

/* ---- from swapd ---- */

static void link_hello(struct swap_link *l, const struct swapd_answer *a)
{
	struct swapd_msg start = { .magic = SWAPD_MAGIC, .op = SWAPD_START };

	l->hello = true;
	l->engine = a->engine;
	l->registered = a->flags & SWAPD_HELLO_REGISTERED;
	pr_info("swapd %u runs as process %d: %s", l->generation, (int)l->pid, a->text);
	life_call(l, l->generation, call_join);
	if (link_send(l, &start, -1))
		return;
	if (l->log_set)
		link_log(l);
	l->waiting = area_offer_all(l);
	link_try_up(l);
}

static void link_from_swapd(void *arg, struct watch *w, u32 events)
{
	struct swap_link *l = arg;
	struct swapd_answer a;
	ssize_t n;

	for (;;) {
		n = sock_recv(w->fd, &a, sizeof(a));
		/* Another error passes: the message is read later. */
		if (n < 0 && n != -ECONNRESET && n != -EBADMSG)
			return;
		if (n != sizeof(a) || a.magic != SWAPD_MAGIC) {
			/* The end: hold tells of its death. */
			watch_close(l->loop, w);
			return;
		}
		a.text[sizeof(a.text) - 1] = '\0';
		if (a.op == SWAPD_HELLO)
			link_hello(l, &a);
		else
			area_answer(l, &a);
	}
}

/* ---- from hold ---- */

static void link_came(struct swap_link *l, const struct hold_record *r, int fd)
{
	watch_close(l->loop, &l->sock);
	l->generation = r->generation;
	l->pid = (pid_t)r->value;
	l->hello = false;
	l->up = false;
	l->ended = false;
	l->sock.fd = fd;
	l->sock.fn = link_from_swapd;
	l->sock.arg = l;
	if (fd >= 0 && !watch_add(l->loop, &l->sock, EPOLLIN))
		return;
	/* It ends when its socket does, and hold starts another. */
	pr_warn("swapd %u cannot be heard: %s: another takes over",
		l->generation, strerror(fd < 0 ? EBADF : errno));
	watch_close(l->loop, &l->sock);
}

static void link_went(struct swap_link *l, const struct hold_record *r)
{
	/* Answers that it gave before it died count. */
	if (l->sock.fd >= 0 && l->generation == r->generation)
		link_from_swapd(l, &l->sock, EPOLLIN);
	watch_close(l->loop, &l->sock);
	l->generation = 0;
	l->pid = 0;
	l->hello = false;
	l->up = false;
	l->waiting = 0;
	life_call(l, r->generation, call_leave);
	if (!r->index) {
		l->ended = true;
		l->status = (int)r->value;
		pr_err("swapd has ended by itself with code %d: swap areas are away until kvctl swapon starts it again",
		       WEXITSTATUS(l->status));
		life_call(l, r->generation, call_gone);
	}
	area_link_down(l);
}

/* link_told_all() - the last message of hold for now */
void link_told_all(struct swap_link *l)
{
	if (l->nr_tales && mm_call(l->mm, call_hear, l))
		pr_debug("swap: the mm thread has ended");
	l->nr_tales = 0;
}

static void tale_add(struct swap_link *l, const struct hold_record *r)
{
	if (l->nr_tales == SWAP_TALES)
		link_told_all(l);
	l->tales[l->nr_tales++] = (struct swap_tale){
		.kind = r->kind, .generation = r->generation,
		.res = (s32)r->index, .id = r->value,
	};
}

/**
 * link_told() - a message of hold
 * @fd: set to -1 when it is taken over
 *
 * link_told_all() must follow the last message of a round.
 */
void link_told(struct swap_link *l, const struct hold_record *r, int *fd)
{
	if (!l->wanted)
		return;
	if (r->kind == HOLD_SWAP_OLD_CQE || r->kind == HOLD_SWAP_DRAINED) {
		tale_add(l, r);
		return;
	}
	link_told_all(l);
	if (r->kind == HOLD_SWAPD_UP) {
		link_came(l, r, *fd);
		*fd = -1;
	} else if (r->kind == HOLD_SWAPD_DOWN) {
		link_went(l, r);
	}
}

/* ---- from the mm thread ---- */

/* Tell hold that this swapd works: should it die, the next starts at once. */
static void link_tell_works(struct swap_link *l)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = HOLD_SWAP_WORKS,
		.generation = READ_ONCE(l->swap->works),
	};

	if (r.generation == l->works)
		return;
	l->works = r.generation;
	deposit_record(l->deposit, &r, -1);
}

/* link_check() - the mm thread kicked: swapd works or forged an index, areas stall or fail */
void link_check(struct swap_link *l)
{
	if (!l->wanted)
		return;
	link_tell_works(l);
	area_tell_stalls(l);
	area_judge_all(l);
	if (!READ_ONCE(l->swap->broken) || !l->hello)
		return;
	pr_err("swapd %u wrote an index that cannot be: it is ended and started again",
	       l->generation);
	l->hello = false;
	link_run(l);
}

/* ---- start and end ---- */

static void link_deposit(struct swap_link *l)
{
	deposit_put(l->deposit, HOLD_SWAP_SHM, 0, l->shm, 0);
	deposit_put(l->deposit, HOLD_SWAP_POOL, 0, l->setup->host.fd, 0);
	deposit_put(l->deposit, HOLD_SWAP_REQ, 0, l->swap->req_bell, 0);
	deposit_put(l->deposit, HOLD_SWAP_CPL, 0, l->swap->cpl_bell, 0);
	link_run(l);
}

/**
 * link_start() - ask for a swapd, and offer it the areas of the last daemon
 * Context: when the mm thread runs.
 */
void link_start(struct swap_link *l)
{
	u32 i;

	if (l->deposit->fd >= 0 && l->swap->ctl) {
		l->wanted = true;
		/* It rises over lives, so hold never takes it for an old one. */
		l->run = (u32)(kv_now_ns() >> 20);
		link_deposit(l);
	}
	for (i = 0; i < CORE_MAX_AREAS; i++)
		area_of_last(l, i);
}

void link_stop(struct swap_link *l)
{
	area_exit_all(l);
	watch_close(l->loop, &l->sock);
	if (l->shm >= 0)
		close(l->shm);
	l->shm = -1;
}
