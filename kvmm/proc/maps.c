// SPDX-License-Identifier: Apache-2.0
/*
 * maps.c - client/ID/seq/SEQ/maps and smaps, client/ID/smaps_rollup
 *
 * The files have the format of the kernel's files of these names, to the byte.  A
 * sequence takes the place of a process: its address space is its KV, from its
 * first token on, and a page is a block.  Each layer group has a region of this space,
 * which begins at its number << GROUP_SHIFT.  One line stands for neighbouring blocks
 * that are alike.  Sealed blocks count as clean, the open block as dirty.  Blocks
 * that several sequences map count as shared; Pss divides a shared block among
 * the sequences that map it.
 *
 * As in the kernel, a long file is made in pieces.  Each line shows one instant,
 * addresses never go backwards, and blocks that stayed throughout are shown.
 */
#include <stdio.h>

#include "kvmm/proc/internal.h"

#define NAME_COLUMN	72	/* as a 64-bit kernel has it: 25 + 6 * sizeof(void *) - 1 */
#define PSS_SHIFT	12
#define GROUP_SHIFT	48	/* 2^28 blocks, the most of a table, of 1 MB each */

/* Sums in bytes; @pss is shifted left, so that divisions lose little. */
struct maps_sum {
	u64	size;
	u64	rss;
	u64	pss;
	u64	shared[2];	/* clean, dirty */
	u64	private[2];
};

static void sum_add(struct maps_sum *sum, const struct core_run *r, u64 block)
{
	const u64 bytes = r->nr * block;

	sum->size += bytes;
	if (r->block == CORE_NONE)
		return;
	sum->rss += bytes;
	sum->pss += (bytes << PSS_SHIFT) / max(r->nr_map, 1u);
	if (r->nr_map > 1)
		sum->shared[r->open] += bytes;
	else
		sum->private[r->open] += bytes;
}

static void show_head(struct seq_file *m, u64 start, u64 end,
		      const char *perms, u64 offset, const char *name)
{
	char head[128];

	snprintf(head, sizeof(head), "%08llx-%08llx %s %08llx 00:00 0 ",
		 (unsigned long long)start, (unsigned long long)end, perms,
		 (unsigned long long)offset);
	seq_printf(m, "%-*s %s\n", NAME_COLUMN, head, name);
}

/* The name has the layer group if the domain has several. */
static void run_name(const struct core_domain_view *d, const struct core_run *r,
		     char *name, size_t len)
{
	char place[PROC_POOLS_NAME] = "trimmed";

	if (r->block != CORE_NONE)
		proc_pools_name(d ? d->pool : 0, d ? d->shards : 1, place);
	if (d && d->nr_groups > 1)
		snprintf(name, len, "[%s:group%u]", place, r->group);
	else
		snprintf(name, len, "[%s]", place);
}

static void show_run(struct seq_file *m, const struct core_run *r,
		     const struct core_domain_view *d)
{
	const bool there = r->block != CORE_NONE;
	const u64 block = d ? d->block_bytes : 0;
	const u64 start = ((u64)r->group << GROUP_SHIFT) + r->at * block;
	char perms[5] = "---p", name[40];

	if (there)
		perms[0] = 'r';
	if (r->open)
		perms[1] = 'w';
	if (r->nr_map > 1)
		perms[3] = 's';
	run_name(d, r, name, sizeof(name));
	show_head(m, start, start + r->nr * block, perms, there ? r->block * block : 0,
		  name);
}

static void show_smaps_kb(struct seq_file *m, const char *key, u64 bytes)
{
	seq_printf(m, "%-16s%8llu kB\n", key,
		   (unsigned long long)(bytes >> 10));
}

static void show_sum(struct seq_file *m, const struct maps_sum *sum)
{
	show_smaps_kb(m, "Rss:", sum->rss);
	show_smaps_kb(m, "Pss:", sum->pss >> PSS_SHIFT);
	show_smaps_kb(m, "Shared_Clean:", sum->shared[0]);
	show_smaps_kb(m, "Shared_Dirty:", sum->shared[1]);
	show_smaps_kb(m, "Private_Clean:", sum->private[0]);
	show_smaps_kb(m, "Private_Dirty:", sum->private[1]);
}

static void show_run_sums(struct seq_file *m, const struct core_run *r,
			  const struct core_domain_view *d)
{
	const u64 block = d ? d->block_bytes : 0;
	struct maps_sum sum = { 0 };

	sum_add(&sum, r, block);
	show_run(m, r, d);
	show_smaps_kb(m, "Size:", sum.size);
	show_smaps_kb(m, "KernelPageSize:", block);
	show_smaps_kb(m, "MMUPageSize:", block);
	show_sum(m, &sum);
	seq_printf(m, "VmFlags: %s%s%s\n", r->block != CORE_NONE ? "rd " : "",
		   r->open ? "wr " : "", r->nr_map > 1 ? "sh " : "");
}

/* The domain of the client; NULL: it no longer exists. */
static const struct core_domain_view *client_domain(const struct proc_ctx *ctx)
{
	return proc_domain_by_id(ctx->proc, ctx->client->domain);
}

static int show_runs(const struct proc_ctx *ctx,
		     void (*show)(struct seq_file *m, const struct core_run *r,
				  const struct core_domain_view *d))
{
	const struct core_domain_view *d = client_domain(ctx);
	struct proc *proc = ctx->proc;
	u32 at = 0;
	int nr, i;

	do {
		nr = proc_fetch_runs(proc, ctx->seq, &at);
		for (i = 0; i < nr; i++)
			show(ctx->m, &proc->runs[i], d);
	} while (nr > 0 && !seq_error(ctx->m));
	return nr;
}

int show_seq_maps(const struct proc_ctx *ctx)
{
	return show_runs(ctx, show_run);
}

int show_seq_smaps(const struct proc_ctx *ctx)
{
	return show_runs(ctx, show_run_sums);
}

/* Add all blocks of one sequence; a sequence that was closed meanwhile adds none. */
static int sum_seq(const struct proc_ctx *ctx, u64 seq, u64 block,
		   struct maps_sum *sum)
{
	struct proc *proc = ctx->proc;
	u32 at = 0;
	int nr, i;

	do {
		nr = proc_fetch_runs(proc, seq, &at);
		for (i = 0; i < nr; i++)
			sum_add(sum, &proc->runs[i], block);
	} while (nr > 0);
	return nr == -ENOENT ? 0 : nr;
}

int show_client_rollup(const struct proc_ctx *ctx)
{
	const struct core_domain_view *d = client_domain(ctx);
	struct proc *proc = ctx->proc;
	const u64 block = d ? d->block_bytes : 0;
	struct proc_slice slice = { 0 };
	struct maps_sum sum = { 0 };
	int more, err = 0;
	u32 i;

	do {
		more = proc_fetch_seqs(proc, ctx->client->id, &slice);
		for (i = 0; more >= 0 && !err && i < slice.nr; i++)
			err = sum_seq(ctx, proc_seq_record(proc, &proc->seqs[i]),
				      block, &sum);
	} while (more > 0 && !err);
	if (more < 0 || err)
		return more < 0 ? more : err;
	show_head(ctx->m, 0, sum.size, "---p", 0, "[rollup]");
	show_sum(ctx->m, &sum);
	return 0;
}
