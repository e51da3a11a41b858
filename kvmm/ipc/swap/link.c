// SPDX-License-Identifier: Apache-2.0
/*
 * link.c - messages to swapd, and when it takes requests
 *
 * kvmm does not start swapd: it deposits the memory and the bells that swapd
 * needs with kvmm-hold and asks for one (link_run()).  Each swapd goes through
 *
 *	UP	its control socket came
 *	HELLO	it is there and touches nothing: the rings are reset, START
 *	areas	all areas that there are get offered again, with their files
 *	up	all are answered: it gets requests
 *	DOWN	its requests are orphaned, see tiers/swap.c
 *
 * An area that is being added for the first time delays no other.  Without hold
 * there is no swapd, and no area can be added.
 */
#include <kvmm/log.h>

#include "kvmm/ipc/swap/swap.h"

/* link_run() - ask hold for a swapd, or for another one in place of this */
void link_run(struct swap_link *l)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = HOLD_SWAP_RUN,
		.generation = ++l->run,
		.value = HOLD_SWAP_VALUE(l->setup->opt.swap_depth,
					 l->setup->opt.swap_engine, 0, 0),
	};

	l->ended = false;
	deposit_record(l->deposit, &r, -1);
}

/**
 * link_send() - send a message to the swapd that runs; hold tells of its end
 *
 * A swapd that lives and takes no message no longer knows the same areas as the
 * daemon: it is replaced.
 */
int link_send(struct swap_link *l, const struct swapd_msg *m, int fd)
{
	int err;

	if (l->sock.fd < 0)
		return -ENOTCONN;
	err = sock_send(l->sock.fd, m, sizeof(*m), &fd, fd >= 0);
	if (!err)
		return 0;
	if (err != -EPIPE && err != -ECONNRESET) {
		pr_warn("swapd %u takes no message: %s: another takes over",
			l->generation, strerror(-err));
		link_run(l);
	}
	return err;
}

/* link_log() - give swapd the log level of kvmm, and every later swapd too */
void link_log(struct swap_link *l)
{
	const struct swapd_msg m = {
		.magic = SWAPD_MAGIC, .op = SWAPD_LOG, .area = kv_log_level(),
	};

	l->log_set = true;
	if (l->hello)
		(void)!link_send(l, &m, -1);
}

static void call_up(struct core *core, void *arg)
{
	struct swap_link *l = arg;

	l->swap->up = l->swap->joined;
}

/* link_try_up() - have the mm thread issue requests, if all areas are answered */
void link_try_up(struct swap_link *l)
{
	if (l->up || !l->hello || l->waiting)
		return;
	l->up = true;
	if (mm_call(l->mm, call_up, l))
		pr_debug("swap: the mm thread has ended");
	pr_debug("swapd %u takes requests", l->generation);
}

/* link_area_answered() - swapd answered for an area that it was offered at its start */
void link_area_answered(struct swap_link *l, struct swap_area *a)
{
	if (!a->awaited)
		return;
	a->awaited = false;
	if (l->waiting)
		l->waiting--;
	link_try_up(l);
}
