// SPDX-License-Identifier: Apache-2.0
/*
 * blockmap.c - the device pool block by block
 *
 * The file has one line per span, and one per row of alike extents that belong
 * to no span.  The blocks of a span are written as runs: the length, unless it
 * is 1, and a letter for their state, in lower case if several sequences map
 * them.  extentinfo shows each extent as a whole, and kvtop draws its map from
 * it; this file shows the single blocks.
 */
#include "kvmm/proc/internal.h"
#include "kvmm/proc/keys.h"

static const char letters[] =
#define x(letter, text) letter
	BLOCKMAP_LETTERS(x);
#undef x

static char letter_of(u8 block)
{
	char letter = letters[block & ~CORE_MAP_SHARED];

	return block & CORE_MAP_SHARED ? (char)(letter | 0x20) : letter;
}

static void show_runs(struct seq_file *m, const u8 *blocks, u32 nr)
{
	u32 from = 0, i;

	for (i = 1; i <= nr; i++) {
		if (i < nr && blocks[i] == blocks[from])
			continue;
		if (i - from > 1)
			seq_printf(m, "%u", i - from);
		seq_putc(m, letter_of(blocks[from]));
		from = i;
	}
}

static void show_map(struct seq_file *m, const struct core_map_view *v,
		     const u8 *blocks)
{
	seq_printf(m, "%6u %7u %-8s", v->first, v->nr,
		   proc_extent_state(v->state));
	if (v->domain == CORE_NONE) {
		seq_printf(m, " %6s -\n", "-");
		return;
	}
	seq_printf(m, " %6u ", v->domain);
	show_runs(m, blocks, v->nr_blocks);
	seq_putc(m, '\n');
}

int show_blockmap(const struct proc_ctx *ctx)
{
	struct proc *proc = ctx->proc;
	struct proc_slice slice = { 0 };
	bool first = true;
	u32 blocks, i;
	int more;

	do {
		more = proc_fetch_map(proc, &slice);
		if (more < 0)
			return more;
		if (first) {
			proc_show_begin(ctx, &slice);
			seq_printf(ctx->m, "%6s %7s %-8s %6s %s\n", "extent",
				   "extents", "state", "domain", "blocks");
			first = false;
		}
		for (i = 0, blocks = 0; i < slice.nr; i++) {
			show_map(ctx->m, &proc->maps[i], proc->map + blocks);
			blocks += proc->maps[i].nr_blocks;
		}
	} while (more && !seq_error(ctx->m));
	proc_show_end(ctx, &slice);
	return 0;
}
