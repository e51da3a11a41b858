// SPDX-License-Identifier: Apache-2.0
/*
 * pressure.c - pressure/memory, and domain/NAME/memory.pressure
 *
 * The lines are those of the kernel's files of that name, to the character, so
 * that what reads those can read these: averages in per cent of the last 10,
 * 60 and 300 seconds, and the total in microseconds.  What counts as stalled
 * is told in kvmm/core/psi.c.
 */
#include "kvmm/proc/internal.h"

static void show_line(struct seq_file *m, const char *kind, const u32 *avg,
		      u64 total_ns)
{
	seq_printf(m, "%s avg10=%u.%02u avg60=%u.%02u avg300=%u.%02u total=%llu\n",
		   kind, avg[0] / 100, avg[0] % 100, avg[1] / 100,
		   avg[1] % 100, avg[2] / 100, avg[2] % 100,
		   (unsigned long long)(total_ns / 1000));
}

static int show_group(struct seq_file *m, const struct core_pressure_view *v)
{
	show_line(m, "some", v->avg[CORE_PSI_SOME], v->total_ns[CORE_PSI_SOME]);
	show_line(m, "full", v->avg[CORE_PSI_FULL], v->total_ns[CORE_PSI_FULL]);
	return 0;
}

/* pressure/memory - of the node */
int show_pressure(const struct proc_ctx *ctx)
{
	return show_group(ctx->m, &ctx->proc->node.pressure);
}

/* domain/NAME/memory.pressure - of one domain */
int show_memory_pressure(const struct proc_ctx *ctx)
{
	return show_group(ctx->m, &ctx->domain->pressure);
}
