// SPDX-License-Identifier: Apache-2.0
/*
 * area.c - one swap area: in the core, in swapd, its end
 *
 *	FREE -> ADDING -> LIVE -> DRAINING -> REMOVING -> FREE
 *
 * swapd judges and locks the file (ADDING), then the core may use it (LIVE).
 * Removal is the other way round: the core drops content that it has elsewhere
 * and waits until the rest is read (DRAINING), then swapd closes the file
 * (REMOVING).
 *
 * The descriptor stays here as long as the area does: each new swapd gets it
 * again, with the identity that it had, and must find the same superblock.
 * kvmm-hold has a duplicate: the next daemon goes on with the area as it is,
 * or, after a cold start, adds it again, empty, as soon as there is a swapd.
 *
 * Context: control thread, but for the functions handed to mm_call().
 */
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>

#include <kvmm/log.h>

#include "kvmm/ipc/swap/swap.h"

#define DRAIN_MIN_NS	(20 * NSEC_PER_MSEC)

struct area_call {
	struct swap_link	*l;
	struct swap_area	*a;
	int			err;
	u64			left;
};

/* area_index() - swapd's number of an area */
u32 area_index(const struct swap_link *l, const struct swap_area *a)
{
	return (u32)(a - l->area);
}

/* ---- on the mm thread ---- */

static void area_map(struct swap_link *l, const struct swap_area *a, bool live)
{
	l->swap->area[a->core].index = area_index(l, a);
	l->swap->area[a->core].off = a->usable_off;
	l->swap->area[a->core].live = live;
}

/* Record the area for the next daemon. */
static void area_keep(struct swap_link *l, const struct swap_area *a)
{
	struct keep_area k = {
		.core		= a->core,
		.draining	= a->state == AREA_DRAINING,
		.priority	= a->priority,
		.bytes		= a->bytes,
		.asked		= a->asked,
		.usable_off	= a->usable_off,
		.usable_bytes	= a->usable_bytes,
	};

	memcpy(k.uuid, a->uuid, sizeof(k.uuid));
	memcpy(k.path, a->path, sizeof(k.path));
	keep_area_put(l->deposit, area_index(l, a), &k);
}

static void call_add(struct core *core, void *arg)
{
	struct area_call *c = arg;
	struct swapd_ctl *ctl = c->l->swap->ctl;
	u32 i;

	c->err = core_area_add(core, kv_now_ns(), c->a->usable_bytes,
			       c->a->priority, &c->a->core);
	if (c->err)
		return;
	for (i = 0; i < NR_SWAPD_AREA_COUNTERS; i++)
		if (i != SWAPD_AREA_CNT_wr_depth)	/* a state, and told */
			WRITE_ONCE(ctl->area[area_index(c->l, c->a)][i], 0);
	area_map(c->l, c->a, true);
	c->l->swap->area[c->a->core].busy_ns = 0;
	area_keep(c->l, c->a);
}

static void call_del(struct core *core, void *arg)
{
	struct area_call *c = arg;
	struct core_tier_view v;

	c->err = core_area_del(core, kv_now_ns(), c->a->core);
	if (!c->err) {
		keep_area_drop(c->l->deposit, area_index(c->l, c->a));
		area_map(c->l, c->a, false);
	} else if (!core_get_tier(core, CORE_POOL_AREA + c->a->core, &v))
		c->left = v.used + v.limbo;
}

static void call_known(struct core *core, void *arg)
{
	struct area_call *c = arg;

	area_map(c->l, c->a, !c->a->lost && !c->a->failed);
}

static int area_call(struct swap_link *l, struct swap_area *a,
		     void (*fn)(struct core *core, void *arg), u64 *left)
{
	struct area_call c = { .l = l, .a = a };
	int err = mm_call(l->mm, fn, &c);

	if (left)
		*left = c.left;
	return err ? err : c.err;
}

/* area_add() - swapd has accepted the area: the core may use it */
int area_add(struct swap_link *l, struct swap_area *a)
{
	return area_call(l, a, call_add, NULL);
}

/* area_use() - issue requests to the area, unless it is lost or has failed */
void area_use(struct swap_link *l, struct swap_area *a)
{
	if (area_call(l, a, call_known, NULL))
		pr_debug("swap: the mm thread has ended");
}

/**
 * area_empty() - have the core move or drop the content, as far as it can
 * @left: bytes that are left
 * Return: 0: none, and the core uses the area no more; a negative errno.
 */
int area_empty(struct swap_link *l, struct swap_area *a, u64 *left)
{
	return area_call(l, a, call_del, left);
}

static void call_lose(struct core *core, void *arg)
{
	struct area_call *c = arg;

	core_area_lose(core, kv_now_ns(), c->a->core);
}

/* area_forget() - give up content that the area alone has */
void area_forget(struct swap_link *l, struct swap_area *a)
{
	if (area_call(l, a, call_lose, NULL))
		pr_debug("swap: the mm thread has ended");
}

/* ---- ends ---- */

/* area_tell() - one line for the log, and the answer to the operator that waits */
void area_tell(struct swap_link *l, struct swap_area *a, int err,
	       const char *fmt, ...)
{
	struct admin *adm = a->waiter;
	char text[ADMIN_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	a->waiter = NULL;
	if (err)
		pr_warn("%s", text);
	else
		pr_info("%s", text);
	if (adm)
		admin_finish(adm, err, text);
}

/* area_free() - forget the area, here and in hold, and unlock its file */
void area_free(struct swap_link *l, struct swap_area *a)
{
	deposit_drop(l->deposit, HOLD_SWAP_AREA, area_index(l, a));
	/* Unlock now, not when the last duplicate of the descriptor is closed. */
	flock(a->fd, LOCK_UN);
	close(a->fd);
	memset(a, 0, sizeof(*a));
	a->fd = -1;
}

/* ---- in swapd ---- */

/* area_offer() - give swapd the area, with its file */
void area_offer(struct swap_link *l, struct swap_area *a)
{
	struct swapd_msg m = {
		.magic = SWAPD_MAGIC, .op = SWAPD_AREA_ADD,
		.area = area_index(l, a), .epoch = l->setup->epoch,
		.priority = a->priority, .bytes = a->bytes,
		.flags = a->flags,
	};

	if (a->state != AREA_ADDING) {
		m.flags = SWAPD_AREA_KEEP;
		m.bytes = 0;
		memcpy(m.uuid, a->uuid, sizeof(m.uuid));
	}
	a->known = !link_send(l, &m, a->fd);
}

/* area_remove() - have swapd close the area, in any state */
void area_remove(struct swap_link *l, struct swap_area *a)
{
	struct swapd_msg m = {
		.magic = SWAPD_MAGIC, .op = SWAPD_AREA_DEL,
		.area = area_index(l, a),
	};

	a->state = AREA_REMOVING;
	/* The next daemon does not get it. */
	deposit_drop(l->deposit, HOLD_SWAP_AREA, area_index(l, a));
	if (a->known && !a->lost && !link_send(l, &m, -1))
		return;
	/* There is no swapd that has it. */
	area_tell(l, a, 0, "%s: is no swap area any more", a->path);
	area_free(l, a);
}

/**
 * area_drain_begin() - begin to empty the area
 * @limit_ns: for so long its content moves elsewhere
 *
 * Progress is looked at now, then less and less often (time.c).
 */
void area_drain_begin(struct swap_link *l, struct swap_area *a, u64 limit_ns)
{
	a->until = kv_now_ns() + limit_ns;
	a->told = kv_now_ns();
	a->left = 0;
	if (a->state == AREA_LIVE) {
		a->state = AREA_DRAINING;
		l->drain_pause = DRAIN_MIN_NS;
		area_keep(l, a);
	}
	l->drain_next = 0;
}
