// SPDX-License-Identifier: Apache-2.0
/*
 * metrics_swap.c - swap areas, swapd and the copier, as metrics
 *
 * The metrics are the lists of swapstat and swapareas.  The page leaves out an area
 * that came or went after the core's copy, before the daemon was asked about it.
 */
#include <stdio.h>

#include "kvmm/proc/metrics.h"

/* Begin a sample of area @i; false when there is no such area. */
static bool area_sample(struct metric_page *p, u32 i,
			struct proc_swap_area *info)
{
	const struct core_tier_view *v;
	char index[12];

	if (!proc_area_get(p->ctx, i, &v, info) ||
	    info->index >= CORE_MAX_AREAS)
		return false;
	snprintf(index, sizeof(index), "%u", i);
	metric_sample(p, "");
	metric_label(p, "area", index);
	metric_label(p, "path", info->path);
	return true;
}

static void areas_core(struct metric_page *p)
{
	struct proc_swap_area area, *info = &area;
	u32 i;

#define x(metric, unit, type, expr, text)				\
	metric_family(p, #metric, #type, unit, text);			\
	for (i = 0; i < CORE_MAX_AREAS; i++) {				\
		const struct core_tier_view *v __maybe_unused =		\
			&p->ctx->proc->node.tier[CORE_POOL_AREA + i];	\
									\
		if (area_sample(p, i, info))				\
			metric_value(p, expr);				\
	}
	METRICS_AREA(x)
#undef x
}

/* Does the counter only rise?  Of swapd's counters of an area one does not. */
static bool area_rises(const char *name)
{
	return strcmp(name, "wr_depth") != 0;
}

static void areas_swapd(struct metric_page *p, const struct proc_swap_info *s)
{
	struct proc_swap_area info;
	u32 i;

#define x(name, text)							\
	metric_counted(p, "swap_area_", #name, area_rises(#name), text); \
	for (i = 0; i < CORE_MAX_AREAS; i++)				\
		if (area_sample(p, i, &info))				\
			metric_value(p, s->area[info.index]		\
				     [SWAPD_AREA_CNT_##name]);
	SWAPD_AREA_COUNTERS(x)
#undef x
#define x(name, text)							\
	metric_counted(p, "swap_area_", #name, true, text);		\
	for (i = 0; i < CORE_MAX_AREAS; i++)				\
		if (area_sample(p, i, &info))				\
			metric_value(p, s->shell[info.index].name);
	PROC_AREA_COUNTERS(x)
#undef x
}

static void one(struct metric_page *p, const char *prefix, const char *name,
		bool counter, const char *help, u64 value)
{
	metric_counted(p, prefix, name, counter, help);
	metric_sample(p, "");
	metric_value(p, value);
}

void metrics_swap(struct metric_page *p)
{
	struct proc_swap_info info;

	proc_swap_get(p->ctx, &info);
#define x(name, text) one(p, "swap_", #name, false, text, info.name);
	PROC_SWAP_NOW(x)
#undef x
#define x(name, text) one(p, "swap_", #name, true, text, info.name);
	PROC_SWAP_COUNTERS(x)
#undef x
#define x(name, text) one(p, "", #name, true, text, info.name);
	PROC_COPIER_COUNTERS(x)
#undef x
#define x(name, text)							\
	one(p, "swapd_", #name, true, text, info.swapd[SWAPD_CNT_##name]);
	SWAPD_COUNTERS(x)
#undef x
	areas_core(p);
	areas_swapd(p, &info);
}
