// SPDX-License-Identifier: Apache-2.0
/*
 * info.c - swapd, the swap areas and the copier, for the files of operators
 */
#include "kvmm/ipc/swap/swap.h"

struct info_call {
	const struct swap_mm	*swap;
	struct proc_swap_info	*info;
};

static void call_info(struct core *core, void *arg)
{
	const struct info_call *c = arg;
	const struct swap_mm *sw = c->swap;
	struct proc_swap_info *info = c->info;
	u64 now = kv_now_ns();
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

/* How the swapd that runs transfers; NULL: it has not said so yet. */
static const char *engine_name(const struct swap_link *l)
{
	if (!l->hello)
		return NULL;
	if (l->engine != SWAPD_ENGINE_URING)
		return "threads";
	return l->registered ? "io_uring" : "io_uring,unregistered";
}

/* link_get_info() - proc_source.swap_info */
int link_get_info(struct swap_link *l, struct proc_swap_info *info)
{
	struct info_call c = { .swap = l->swap, .info = info };
	const struct swapd_ctl *ctl = l->swap->ctl;
	struct copy_counts copied;
	u32 i, n;

	memset(info, 0, sizeof(*info));
	copier_get_counts(l->copier, &copied);
#define x(name, text) info->name = copied.name;
	PROC_COPIER_COUNTERS(x)
#undef x
	if (!l->wanted)
		return 0;
	info->pid = (u64)l->pid;
	info->generation = l->generation;
	info->engine = engine_name(l);
	for (i = 0; i < NR_SWAPD_COUNTERS; i++)
		info->swapd[i] = READ_ONCE(ctl->counter[i]);
	for (i = 0; i < CORE_MAX_AREAS; i++)
		for (n = 0; n < NR_SWAPD_AREA_COUNTERS; n++)
			info->area[i][n] = READ_ONCE(ctl->area[i][n]);
	return mm_call(l->mm, call_info, &c);
}

/* area_get_info() - proc_source.swap_area: area @i of the core */
int area_get_info(const struct swap_link *l, u32 i,
		  struct proc_swap_area *info)
{
	u32 n;

	for (n = 0; n < CORE_MAX_AREAS; n++) {
		const struct swap_area *a = &l->area[n];

		if ((a->state != AREA_LIVE && a->state != AREA_DRAINING) ||
		    a->core != i)
			continue;
		info->path = a->path;
		info->device = a->device;
		info->lost = a->lost || a->failed;
		info->leaves = a->state == AREA_DRAINING;
		info->deleted = a->deleted;
		info->index = n;
		info->asked = a->device ? 0 : a->asked;
		return 0;
	}
	return -ENOENT;
}
