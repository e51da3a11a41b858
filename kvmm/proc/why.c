// SPDX-License-Identifier: Apache-2.0
/*
 * why.c - client/ID/seq/SEQ/explain: why a sequence waits or lost its memory
 *
 * The core writes both reasons down where it decides (kvmm/core/share/why.c); this
 * file has the words.  A tenant is told that another tenant was in the way, but
 * not which one.
 */
#include "kvmm/proc/internal.h"

struct snap_why {
	struct proc	*proc;
	u32		seq;
	u64		now;
	int		err;
};

static void snap_why(struct core *core, void *arg)
{
	struct snap_why *s = arg;

	s->err = core_get_why(core, s->seq, s->now, &s->proc->why);
}

static int fetch_why(struct proc *proc, u32 seq)
{
	struct snap_why s = {
		.proc = proc, .seq = seq, .now = proc_now(proc),
	};
	int err = proc->src.call(proc->src.arg, snap_why, &s);

	return err ? err : s.err;
}

/* Print a domain; a tenant that asks does not learn which domain of another it is. */
static void show_domain_of(const struct proc_ctx *ctx, u32 id)
{
	const struct core_domain_view *d = proc_domain_by_id(ctx->proc, id);

	if (d)
		proc_domain_name(ctx->proc, d, ctx->m);
	else if (id != CORE_NONE && ctx->proc->key != PROC_ALL)
		seq_puts(ctx->m, "another tenant");
	else
		seq_putc(ctx->m, '-');
}

static void show_ms(struct seq_file *m, const char *key, u64 ns)
{
	seq_printf(m, "%s:\t%llu\n", key, (unsigned long long)(ns / 1000000));
}

static void show_waits(const struct proc_ctx *ctx,
		       const struct core_why_view *v)
{
	struct seq_file *m = ctx->m;

	seq_printf(m, "Waits:\t%s\nWhy:\t%s\n", core_wait_name(v->wait),
		   core_wait_text(v->wait));
	seq_puts(m, "WaitsFor:\t");
	show_domain_of(ctx, v->wait_domain);
	seq_printf(m, "\nFirstWaits:\t%s\nAhead:\t%u\n",
		   v->ahead ? core_wait_name(v->first) : "-", v->ahead);
	show_ms(m, "WaitsMs", v->waits_ns);
	show_ms(m, "ReasonMs", v->reason_ns);
	seq_printf(m, "Shards:\t%u\nShardsMapped:\t%u\n", v->shards, v->shards_mapped);
	seq_printf(m, "NeedsBlocks:\t%u\nRoomBlocks:\t%u\nCachedBlocks:\t%u\nHeldBlocks:\t%u\n",
		   v->needs, v->room, v->cached, v->held);
}

/* The last preemption: its cause, and the sequence that needed the memory. */
static void show_taker(const struct proc_ctx *ctx,
		       const struct core_why_view *v)
{
	const bool known = v->last_ns != 0;
	struct seq_file *m = ctx->m;

	seq_printf(m, "LastCause:\t%s\nLastWhy:\t%s\n",
		   known ? core_cause_name(v->cause) : "-",
		   known ? core_cause_text(v->cause) : "-");
	seq_puts(m, "LastBy:\t");
	show_domain_of(ctx, v->by_domain);
	seq_puts(m, "\nLastBySeq:\t");
	if (v->by_client != CORE_NONE &&
	    proc_domain_by_id(ctx->proc, v->by_domain))
		seq_printf(m, "%u/%u\n", v->by_client, v->by_seq);
	else
		seq_puts(m, "-\n");
}

static void show_taken(const struct proc_ctx *ctx,
		       const struct core_why_view *v)
{
	struct seq_file *m = ctx->m;

	seq_printf(m, "Preempted:\t%u\n", v->taken);
	show_ms(m, "OutMs", v->out_ns);
	seq_printf(m, "LostTokens:\t%llu\n", (unsigned long long)v->tokens);
	show_ms(m, "LastMs", v->last_ns);
	show_taker(ctx, v);
	seq_printf(m, "LastKept:\t%s\nLastBack:\t%s\n",
		   !v->last_ns ? "-" : v->kept ? "swapped" : "dropped",
		   !v->last_ns ? "-" : v->back ? "yes" : "no");
	seq_printf(m, "LastBlocks:\t%u\nLastTokens:\t%u\nLastFound:\t%u\n",
		   v->blocks, v->len, v->found);
}

int show_seq_explain(const struct proc_ctx *ctx)
{
	const struct core_why_view *v = &ctx->proc->why;
	int err = fetch_why(ctx->proc, ctx->seq);

	if (err)
		return err;
	seq_printf(ctx->m, "Sequence:\t%u/%u\nState:\t%s\nDomain:\t", v->client,
		   KVMM_SEQ_INDEX(v->seq), core_seq_state_name(v->state));
	show_domain_of(ctx, v->domain);
	seq_putc(ctx->m, '\n');
	show_waits(ctx, v);
	show_taken(ctx, v);
	return 0;
}
