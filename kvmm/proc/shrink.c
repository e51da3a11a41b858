// SPDX-License-Identifier: Apache-2.0
/*
 * shrink.c - pool/POOL/shrink/SIZE: the cost of a smaller device pool
 *
 * The core counts in slices (kvmm/core/node/shrink.c).  The first and the last line
 * show whether the counts are of one instant.  The first row adds up all domains that
 * are in the pool.
 */
#include <stdlib.h>

#include "kvmm/proc/internal.h"

/* Column, width, value: of a domain d with the cost v; in kB or a number. */
#define SHRINK_COLUMNS(x)						\
	x(lost_kb,	    10, v->lost * kb)				\
	x(lost_tokens,	    11, tokens_of(d, v->lost))		\
	x(below_kb,	    10, v->lost_below * kb)			\
	x(host_kb,	    10, v->kept[0] * kb)			\
	x(areas_kb,	    10, v->kept[1] * kb)			\
	x(moved_kb,	    10, v->moved * kb)				\
	x(evicted_kb,	    10, v->evicted * kb)			\
	x(swapped,	     7, v->swapped)				\
	x(recomputed,	    10, v->recomputed)				\
	x(recompute_tokens, 16, v->tokens)				\
	x(too_large,	     9, v->too_large)				\
	x(min_kb,	    10, d->emin_bytes >> 10)			\
	x(bound,	     5, v->bound)

/* Tokens whose content in all layer groups is as large as @blocks. */
static u64 tokens_of(const struct core_domain_view *d, u64 blocks)
{
	u64 per_hit = 0;	/* blocks of hit_tokens tokens */
	u32 i;

	for (i = 0; i < d->nr_groups; i++)
		per_hit += d->hit_tokens / d->group[i].shape.block_tokens;
	return blocks * d->hit_tokens / max(per_hit, (u64)1);
}

enum {
#define x(name, width, value) COL_##name,
	SHRINK_COLUMNS(x)
#undef x
	NR_COLS
};

/* Sizes below a directory: parts of the pool, in per cent. */
static const u32 parts[] = { 90, 75, 50, 25 };

/* proc_shrink_ls() - print sizes that can be asked for */
void proc_shrink_ls(const struct proc_ctx *ctx)
{
	const struct core_pool_view *p = &ctx->proc->node.zone[ctx->pool];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		u64 nr = (u64)p->nr_online * parts[i] / 100;

		if (nr)
			seq_printf(ctx->m, "%llu\n",
				   (unsigned long long)(nr * p->extent_size));
	}
}

/* One word for the answer to core_pool_resize(). */
static const char *answer_name(int err)
{
	switch (err) {
	case 0:
		return "ok";
	case -EINVAL:
		return "extent";
	case -ERANGE:
		return "most";
	default:
		return "span";
	}
}

/* Fill the columns, without a block that takes less than a kB being lost in rounding. */
static void row_fill(const struct core_domain_view *d, const struct core_shrink_view *v,
		     u64 *col)
{
	const u64 kb = d->block_bytes;

#define x(name, width, value) col[COL_##name] = value;
	SHRINK_COLUMNS(x)
#undef x
}

static void row_show(const struct proc_ctx *ctx, u64 size, const char *answer,
		     const u64 *col, const struct core_domain_view *d)
{
	static const char bytes[NR_COLS] = {
		[COL_lost_kb] = 1, [COL_below_kb] = 1, [COL_host_kb] = 1,
		[COL_areas_kb] = 1, [COL_moved_kb] = 1, [COL_evicted_kb] = 1,
	};
	static const int width[NR_COLS] = {
#define x(name, width, value) [COL_##name] = width,
		SHRINK_COLUMNS(x)
#undef x
	};
	u32 i;

	seq_printf(ctx->m, "%12llu %6s ", (unsigned long long)(size >> 10), answer);
	for (i = 0; i < NR_COLS; i++)
		seq_printf(ctx->m, "%*llu ", width[i],
			   (unsigned long long)(bytes[i] ? col[i] >> 10 : col[i]));
	if (d) {
		seq_printf(ctx->m, "%6u ", d->id);
		proc_domain_name(ctx->proc, d, ctx->m);
		seq_putc(ctx->m, '\n');
	} else {
		seq_printf(ctx->m, "%6s -\n", "-");
	}
}

static void rows_show(const struct proc_ctx *ctx, u64 size, int answer,
		      const struct core_shrink *s)
{
	const struct proc *proc = ctx->proc;
	u64 sum[NR_COLS] = { 0 }, col[NR_COLS];
	struct core_shrink_view v;
	u32 i, k, pass;

	/* The sum stands first. */
	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < proc->node.nr_domains && !answer; i++) {
			if (!proc_domain_is_in(&proc->domains[i], ctx->pool))
				continue;
			core_shrink_get(s, proc->domains[i].id, &v);
			row_fill(&proc->domains[i], &v, col);
			for (k = 0; k < NR_COLS && !pass; k++)
				sum[k] += col[k];
			if (pass)
				row_show(ctx, size, "-", col, &proc->domains[i]);
		}
		if (!pass) {
			sum[COL_bound] = sum[COL_bound] != 0;
			row_show(ctx, size, answer_name(answer), sum, NULL);
		}
	}
}

int show_shrink(const struct proc_ctx *ctx)
{
	struct proc_slice first, last;
	struct core_shrink *s;
	int err, answer;

	s = calloc(1, core_shrink_bytes(&ctx->proc->cfg));
	if (!s)
		return -ENOMEM;
	err = proc_fetch_shrink(ctx->proc, ctx->pool, s, ctx->bytes, &answer, &first,
				&last);
	if (!err) {
		proc_show_begin(ctx, &first);
		seq_printf(ctx->m, "%12s %6s ", "size_kb", "answer");
#define x(name, width, value) seq_printf(ctx->m, "%*s ", width, #name);
		SHRINK_COLUMNS(x)
#undef x
		seq_printf(ctx->m, "%6s %s\n", "domain", "name");
		rows_show(ctx, ctx->bytes, answer, s);
		proc_show_end(ctx, &last);
	}
	free(s);
	return err;
}
