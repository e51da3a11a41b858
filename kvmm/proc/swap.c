// SPDX-License-Identifier: Apache-2.0
/*
 * swap.c - swap areas, and swapd
 *
 * `swaps` has the kernel's columns and tabs, so a reader of the kernel's file can
 * read it, and one more column behind them.  The core has the sizes, the daemon
 * around it the names; transfers are swapd's own counters, read without a lock.
 * An area that came or went after the core's copy is left out.
 */
#include "kvmm/proc/internal.h"

#define NAME_WIDTH	40	/* of fs/proc's Filename */
#define WIDE_KB		10000000	/* a longer number takes one tab less */

/* Get area @i; false when there is no such area. */
bool proc_area_get(const struct proc_ctx *ctx, u32 i,
		   const struct core_tier_view **v,
		   struct proc_swap_area *info)
{
	const struct proc_source *src = &ctx->proc->src;

	*v = &ctx->proc->node.tier[CORE_POOL_AREA + i];
	return (*v)->online && src->swap_area &&
	       !src->swap_area(src->arg, i, info);
}

static void show_tabbed_kb(struct seq_file *m, u64 bytes)
{
	seq_printf(m, "\t%llu%s", (unsigned long long)bytes >> 10,
		   bytes >> 10 < WIDE_KB ? "\t" : "");
}

/* Get swapd's counters, or zeros. */
void proc_swap_get(const struct proc_ctx *ctx, struct proc_swap_info *info)
{
	const struct proc_source *src = &ctx->proc->src;

	if (!src->swap_info || src->swap_info(src->arg, info))
		memset(info, 0, sizeof(*info));
}

int show_swaps(const struct proc_ctx *ctx)
{
	struct proc_swap_info sum;
	const struct core_tier_view *v;
	struct proc_swap_area info;
	struct seq_file *m = ctx->m;
	size_t before;
	u32 i;

	proc_swap_get(ctx, &sum);
	seq_puts(m, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\tEngine\n");
	for (i = 0; i < CORE_MAX_AREAS; i++) {
		if (!proc_area_get(ctx, i, &v, &info))
			continue;
		before = m->count;
		seq_escape(m, info.path, "");
		/* As the kernel has it, escaped. */
		if (info.deleted)
			seq_puts(m, "\\040(deleted)");
		do {
			seq_putc(m, ' ');
		} while (m->count - before < NAME_WIDTH && !seq_error(m));
		seq_puts(m, info.device ? "partition" : "file\t");
		show_tabbed_kb(m, v->total);
		show_tabbed_kb(m, v->used);
		seq_printf(m, "\t%d\t\t%s\n", v->prio,
			   sum.engine ? sum.engine : "-");
	}
	return 0;
}

/* The state of an area; of several the most serious. */
static const char *area_state(const struct core_tier_view *v,
			      const struct proc_swap_area *info)
{
	if (info->lost)
		return "lost";
	if (v->nr_overdue)
		return "stalled";
	if (v->readonly)
		return "readonly";
	return info->deleted ? "deleted" : "live";
}

int show_swapareas(const struct proc_ctx *ctx)
{
	const struct core_tier_view *v;
	struct proc_swap_info sum;
	struct proc_swap_area info;
	struct seq_file *m = ctx->m;
	u32 i;

	proc_swap_get(ctx, &sum);
	seq_printf(m, "%4s %-8s %5s %11s %11s %11s %11s %5s %7s %9s %9s",
		   "area", "state", "prio", "total_kb", "used_kb", "limbo_kb",
		   "bad_kb", "ios", "failed", "rd_kb_s", "wr_kb_s");
#define x(name, text) seq_printf(m, " %14s", #name);
	SWAPD_AREA_COUNTERS(x)
	PROC_AREA_COUNTERS(x)
#undef x
	seq_puts(m, " name\n");
	for (i = 0; i < CORE_MAX_AREAS; i++) {
		if (!proc_area_get(ctx, i, &v, &info) ||
		    info.index >= CORE_MAX_AREAS)
			continue;
		seq_printf(m, "%4u %-8s %5d %11llu %11llu %11llu %11llu %5u %7llu %9llu %9llu", i,
			   area_state(v, &info), v->prio,
			   (unsigned long long)v->total >> 10,
			   (unsigned long long)v->used >> 10,
			   (unsigned long long)v->limbo >> 10,
			   (unsigned long long)v->poison >> 10, v->nr_ios,
			   (unsigned long long)v->errors,
			   (unsigned long long)v->rate[0] >> 10,
			   (unsigned long long)v->rate[1] >> 10);
#define x(name, text)							\
		seq_printf(m, " %14llu", (unsigned long long)		\
			   sum.area[info.index][SWAPD_AREA_CNT_##name]);
		SWAPD_AREA_COUNTERS(x)
#undef x
#define x(name, text)							\
		seq_printf(m, " %14llu", (unsigned long long)		\
			   sum.shell[info.index].name);
		PROC_AREA_COUNTERS(x)
#undef x
		seq_putc(m, ' ');
		seq_escape(m, info.path, "");
		seq_putc(m, '\n');
	}
	return 0;
}

static void show_stat(struct seq_file *m, const char *name, u64 value)
{
	seq_printf(m, "%s %llu\n", name, (unsigned long long)value);
}

int show_swapstat(const struct proc_ctx *ctx)
{
	const struct proc_source *src = &ctx->proc->src;
	struct proc_swap_info info = { 0 };
	int err = src->swap_info ? src->swap_info(src->arg, &info) : -ENOENT;

	if (err && err != -ENOENT)
		return err;
#define x(name, text) show_stat(ctx->m, #name, info.name);
	PROC_SWAP_NOW(x)
	PROC_SWAP_COUNTERS(x)
	PROC_COPIER_COUNTERS(x)
#undef x
#define x(name, text) show_stat(ctx->m, "swapd_" #name,		\
				info.swapd[SWAPD_CNT_##name]);
	SWAPD_COUNTERS(x)
#undef x
	return 0;
}
