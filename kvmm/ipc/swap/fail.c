// SPDX-License-Identifier: Apache-2.0
/*
 * fail.c - swap areas with a failing disk
 *
 *	live -> readonly -> lost -> gone
 *
 * The core gives an area nothing new after so many failures lately, of reads or
 * of writes.  Then the area is removed as with swapoff: content that the host
 * pool has too is dropped, the rest is moved.  Where reading goes on failing
 * the disk gets no request any more, and content that the area alone has is
 * computed again.  When the area is empty swapd closes the file, and the slots
 * that failed go with the area.  An operator with a new disk adds it anew.
 *
 * Each step is one line in the log, however many requests fail.
 *
 * Context: control thread, but the functions handed to mm_call().
 */
#include <kvmm/log.h>

#include "kvmm/ipc/swap/swap.h"

#define AREA_LOST_ERRORS	16	/* failed reads; readonly is the core's */
#define GOES_NS		(60 * NSEC_PER_SEC)	/* for its content to be moved */

struct fail_call {
	struct swap_link	*l;
	struct swap_area	*a;
	struct core_tier_view	v;
	int			err;
};

static void call_look(struct core *core, void *arg)
{
	struct fail_call *c = arg;

	c->err = core_get_tier(core, CORE_POOL_AREA + c->a->core, &c->v);
}

/* Issue no request to the area any more. */
static void call_cut_off(struct core *core, void *arg)
{
	struct fail_call *c = arg;

	c->l->swap->area[c->a->core].live = false;
	core_area_lose(core, kv_now_ns(), c->a->core);
}

static void area_cut_off(struct fail_call *c)
{
	struct swap_area *a = c->a;

	a->failed = true;
	if (mm_call(c->l->mm, call_cut_off, c))
		return;
	a->given_up = true;
	pr_err("swap area %s goes on failing, %u reads of %llu requests lately: it is not read any more, what only it holds is computed again",
	       a->path, c->v.bad[0], (unsigned long long)c->v.errors);
}

static void area_judge(struct swap_link *l, struct swap_area *a)
{
	struct fail_call c = { .l = l, .a = a };

	if (mm_call(l->mm, call_look, &c) || c.err)
		return;
	if (a->state == AREA_LIVE && c.v.readonly) {
		pr_err("swap area %s has failed %u reads and %u writes lately: it gets nothing new, and goes when what it holds is moved or forgotten: look at its disk and at the log of swapd, and kvctl swapon it again when it is sound",
		       a->path, c.v.bad[0], c.v.bad[1]);
		area_drain_begin(l, a, GOES_NS);
	}
	if (!a->failed && c.v.bad[0] >= AREA_LOST_ERRORS)
		area_cut_off(&c);
}

/* area_judge_all() - requests failed: remove areas that fail too often */
void area_judge_all(struct swap_link *l)
{
	u32 failed = READ_ONCE(l->swap->failed), i;

	if (failed == l->failed)
		return;
	l->failed = failed;
	for (i = 0; i < CORE_MAX_AREAS; i++)
		if (l->area[i].state == AREA_LIVE ||
		    l->area[i].state == AREA_DRAINING)
			area_judge(l, &l->area[i]);
}
