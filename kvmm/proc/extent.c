// SPDX-License-Identifier: Apache-2.0
/*
 * extent.c - extentinfo and buddyinfo
 *
 * Both read the whole table of extents, in slices.  extentinfo prints one line
 * per extent; its first and last line show whether the text is of one instant.
 * The format of buddyinfo has no room for such lines, so the table is read again
 * if an event happened meanwhile, a bounded number of times.
 *
 * buddyinfo keeps the kernel's arithmetic: the sum of count << order is the
 * number of free extents.  Spans take neighbouring extents at any offset, so a
 * run of free extents is not aligned; it is counted as the largest powers of two
 * into which it can be cut.
 */
#include "kvmm/proc/internal.h"

#define BUDDY_ORDERS	11	/* as in the kernel: runs of 1 to 1024 */
#define BUDDY_TRIES	4

const char *proc_extent_state(u32 state)
{
	static const char * const names[] = {
		[PROC_EXTENT_ABSENT]	= "absent",
		[PROC_EXTENT_CREATING]	= "creating",
		[PROC_EXTENT_BACKED]	= "backed",
		[PROC_EXTENT_SPAN]	= "span",
		[PROC_EXTENT_REVOKING]	= "revoking",
		[PROC_EXTENT_OFFLINE]	= "offline",
	};

	return state < ARRAY_SIZE(names) ? names[state] : "?";
}

/* A number, or a dash for none. */
static void show_index(struct seq_file *m, u32 index)
{
	if (index == CORE_NONE)
		seq_printf(m, " %6s", "-");
	else
		seq_printf(m, " %6u", index);
}

static void show_extent(const struct proc_ctx *ctx,
			const struct core_extent_view *e)
{
	struct proc_tenant_info info;
	struct seq_file *m = ctx->m;

	seq_printf(m, "%6u %-8s", e->extent, proc_extent_state(e->state));
	seq_printf(m, " %6s", proc_tenant_name(ctx->proc, e->tenant, &info));
	show_index(m, e->domain);
	seq_printf(m, " %7u %7u %7u %7u %6u %10u %6u %016llx\n",
		   e->span_blocks, e->span_free, e->span_open, e->span_cached,
		   e->span_pinned, e->span_quarantine, e->span_poison,
		   (unsigned long long)e->mapped);
}

int show_extentinfo(const struct proc_ctx *ctx)
{
	struct proc *proc = ctx->proc;
	struct seq_file *m = ctx->m;
	struct proc_slice slice = { 0 };
	bool first = true;
	int more;
	u32 i;

	do {
		more = proc_fetch_extents(proc, &slice);
		if (more < 0)
			return more;
		if (first) {
			proc_show_begin(ctx, &slice);
			seq_printf(m, "%6s %-8s %6s %6s %7s %7s %7s %7s %6s %10s %6s %-16s\n",
				   "extent", "state", "tenant", "domain",
				   "blocks", "free", "open", "cached", "pinned",
				   "quarantine", "poison", "mapped");
			first = false;
		}
		for (i = 0; i < slice.nr; i++)
			show_extent(ctx, &proc->extents[i]);
	} while (more && !seq_error(m));
	proc_show_end(ctx, &slice);
	return 0;
}

/* Cut a run of @len free extents into powers of two, the largest first. */
static void buddy_add(u32 len, u64 *count)
{
	int order;

	for (order = BUDDY_ORDERS - 1; order >= 0; order--) {
		count[order] += len >> order;
		len &= BIT(order) - 1;
	}
}

/*
 * Count the runs of free extents of each device pool in one pass.
 * Return: 1 when an event happened meanwhile, 0, or -errno of the source.
 */
static int buddy_count(struct proc *proc, u64 (*count)[BUDDY_ORDERS])
{
	struct proc_slice slice = { 0 };
	u64 generation = 0;
	u32 run = 0, pool = 0, i;
	int more;

	memset(count, 0, CORE_MAX_ZONES * sizeof(*count));
	do {
		bool first = !slice.next;

		more = proc_fetch_extents(proc, &slice);
		if (more < 0)
			return more;
		if (first)
			generation = slice.generation;
		for (i = 0; i < slice.nr; i++) {
			if (proc->extents[i].pool != pool) {
				buddy_add(run, count[pool]);
				run = 0;
				pool = proc->extents[i].pool;
			}
			if (proc->extents[i].state != PROC_EXTENT_SPAN &&
			    proc->extents[i].state != PROC_EXTENT_REVOKING &&
			    proc->extents[i].state != PROC_EXTENT_OFFLINE) {
				run++;
				continue;
			}
			buddy_add(run, count[pool]);
			run = 0;
		}
	} while (more);
	buddy_add(run, count[pool]);
	return generation != slice.generation;
}

int show_buddyinfo(const struct proc_ctx *ctx)
{
	u64 count[CORE_MAX_ZONES][BUDDY_ORDERS];
	char name[16];
	int try, err;
	u32 i, n;

	for (try = 0; try < BUDDY_TRIES; try++) {
		err = buddy_count(ctx->proc, count);
		if (err < 0)
			return err;
		if (!err)
			break;
	}
	for (n = 0; n < ctx->proc->node.nr_zones; n++) {
		snprintf(name, sizeof(name), PROC_POOL_NAME, n);
		seq_printf(ctx->m, "Node %d, zone %8s ", 0, name);
		for (i = 0; i < BUDDY_ORDERS; i++)
			seq_printf(ctx->m, "%6llu ", (unsigned long long)count[n][i]);
		seq_putc(ctx->m, '\n');
	}
	return 0;
}
