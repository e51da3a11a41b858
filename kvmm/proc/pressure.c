// SPDX-License-Identifier: Apache-2.0
/*
 * pressure.c - pressure/{memory,io,cpu}, and those of a domain
 *
 * The lines have the format of the kernel's files of these names, to the
 * character, so a reader of those can read these: averages of the last 10, 60 and
 * 300 seconds in per cent, and the total in microseconds.
 * kvmm/core/share/psi.c describes which sequences count as stalled.
 *
 * As in the kernel, a line `some THRESHOLD WINDOW` or `full THRESHOLD WINDOW`, in
 * microseconds, sets a trigger.  This file only parses the line.
 */
#include <stdio.h>

#include "kvmm/proc/internal.h"

static void show_line(struct seq_file *m, const char *kind, const u32 *avg,
		      u64 total_ns)
{
	seq_printf(m, "%s avg10=%u.%02u avg60=%u.%02u avg300=%u.%02u total=%llu\n",
		   kind, avg[0] / 100, avg[0] % 100, avg[1] / 100,
		   avg[1] % 100, avg[2] / 100, avg[2] % 100,
		   (unsigned long long)(total_ns / 1000));
}

/* The pressure of the domain in the path, or of the node; ctx->arg: CORE_PSI_*. */
int show_pressure(const struct proc_ctx *ctx)
{
	const struct core_pressure_view *v = ctx->domain ?
		&ctx->domain->pressure : &ctx->proc->node.pressure;
	const u64 *total = v->total_ns[ctx->arg];

	show_line(ctx->m, "some", v->avg[ctx->arg][CORE_PSI_SOME],
		  total[CORE_PSI_SOME]);
	show_line(ctx->m, "full", v->avg[ctx->arg][CORE_PSI_FULL],
		  total[CORE_PSI_FULL]);
	return 0;
}

/*
 * Parse `some 150000 1000000` as the kernel's sscanf() does: text that follows is
 * ignored.  The core checks the bounds.
 */
static int trigger_parse(const char *text, struct proc_trigger *t)
{
	unsigned int threshold, window;

	t->full = !strncmp(text, "full", 4);
	if (sscanf(text, t->full ? "full %u %u" : "some %u %u", &threshold,
		   &window) != 2)
		return -EINVAL;
	t->threshold_ns = threshold * 1000ull;
	t->window_ns = window * 1000ull;
	return 0;
}

int proc_trigger_parse(struct proc *proc, u64 key, const char *path,
		       const char *text, struct proc_trigger *t)
{
	int err;

	memset(t, 0, sizeof(*t));
	proc->key = key;
	err = proc_tree_trigger(proc, path, t);
	return err ? err : trigger_parse(text, t);
}
