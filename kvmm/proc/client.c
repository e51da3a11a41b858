// SPDX-License-Identifier: Apache-2.0
/*
 * client.c - clients, and client/ID/
 *
 * The core knows a client by number.  The daemon around it knows the process,
 * and is asked when the file is read.  A client that came or went between the
 * core's copy and that moment has a pid of 0.
 *
 * A client may have many sequences, so client/ID/seqs and client/ID/leases are
 * copied in slices.  Each line shows one instant; the file shows one instant if the
 * numbers behind `# begin` and `# end` are equal.
 */
#include <stdio.h>

#include "kvmm/proc/internal.h"

const struct core_client_view *proc_client_by_name(const struct proc *proc,
						   const char *name,
						   size_t len)
{
	u32 i;

	for (i = 0; i < proc->node.nr_clients; i++) {
		char id[12];

		if ((size_t)snprintf(id, sizeof(id), "%u",
				     proc->clients[i].id) == len &&
		    !memcmp(id, name, len))
			return &proc->clients[i];
	}
	return NULL;
}

static const char *client_state_name(u32 state)
{
	static const char * const names[] = {
		[PROC_CLIENT_FREE]	= "free",
		[PROC_CLIENT_ALIVE]	= "alive",
		[PROC_CLIENT_DETACHED]	= "detached",
		[PROC_CLIENT_DEAD]	= "dead",
	};

	return state < ARRAY_SIZE(names) ? names[state] : "?";
}

static void client_info(const struct proc *proc, u32 client,
			struct proc_client_info *info)
{
	if (!proc->src.client_info ||
	    proc->src.client_info(proc->src.arg, client, info))
		memset(info, 0, sizeof(*info));
	info->comm[sizeof(info->comm) - 1] = '\0';
}

/* A word that a client chose, or a dash. */
static void show_word(struct seq_file *m, const char *word)
{
	if (*word)
		seq_escape(m, word, "");
	else
		seq_putc(m, '-');
}

/* Milliseconds since the oldest open step began, or 0. */
static u64 client_pinned_ms(const struct proc *proc,
			    const struct core_client_view *c)
{
	u64 now = proc_now(proc);

	if (!c->pinned_since || now <= c->pinned_since)
		return 0;
	return (now - c->pinned_since) / 1000000;
}

/* The client that opens its sequences: itself, unless it is a rank. */
static void leader_name(const struct core_client_view *c, char name[12])
{
	if (c->leader == CORE_NONE)
		strcpy(name, "-");
	else
		snprintf(name, 12, "%u", c->leader);
}

/* The shards that it maps: one, or all of its domain. */
static void shard_name(const struct core_client_view *c, char name[12])
{
	u32 first = (u32)__builtin_ctz(c->shards), last = 31 - (u32)__builtin_clz(c->shards);

	if (first == last)
		snprintf(name, 12, "%u", first);
	else
		snprintf(name, 12, "%u-%u", first, last);
}

int show_clients(const struct proc_ctx *ctx)
{
	const struct proc *proc = ctx->proc;
	struct seq_file *m = ctx->m;
	struct proc_tenant_info tenant;
	struct proc_client_info info;
	const struct core_client_view *c;
	char leader[12], shard[12];
	u32 i;

	seq_printf(m, "%3s %7s %6s %6s %-8s %6s %7s %7s %7s %7s %5s %10s %9s %8s %8s %6s %5s %s\n",
		   "id", "pid", "uid", "tenant", "state", "domain", "seqs", "running",
		   "waiting", "leases", "steps", "begun", "pinned_ms", "blocks", "draining",
		   "leader", "shard", "comm");
	for (i = 0; i < proc->node.nr_clients; i++) {
		c = &proc->clients[i];
		client_info(proc, c->id, &info);
		leader_name(c, leader);
		shard_name(c, shard);
		seq_printf(m, "%3u %7d %6u %6s %-8s %6u %7u %7u %7u %7u %5u %10u %9llu %8llu %8s %6s %5s ",
			   c->id, (int)info.pid, (u32)info.uid,
			   proc_tenant_name(proc, c->tenant, &tenant),
			   client_state_name(c->state), c->domain, c->nr_seqs,
			   c->nr_running, c->nr_waiting, c->nr_leases, c->open_steps, c->begun,
			   (unsigned long long)client_pinned_ms(proc, c),
			   (unsigned long long)c->blocks,
			   proc_drain_name(c->drain), leader, shard);
		show_word(m, info.comm);
		seq_putc(m, '\n');
	}
	return 0;
}

int show_client_status(const struct proc_ctx *ctx)
{
	const struct proc *proc = ctx->proc;
	const struct core_client_view *c = ctx->client;
	const struct core_domain_view *d = proc_domain_by_id(proc, c->domain);
	struct proc_tenant_info tenant;
	struct proc_client_info info;
	struct seq_file *m = ctx->m;
	char leader[12], shard[12];

	client_info(proc, c->id, &info);
	seq_puts(m, "Name:\t");
	show_word(m, info.comm);
	seq_printf(m, "\nId:\t%u\n", c->id);
	seq_printf(m, "State:\t%s\n", client_state_name(c->state));
	seq_printf(m, "Pid:\t%d\n", (int)info.pid);
	seq_printf(m, "Uid:\t%u\n", (u32)info.uid);
	seq_printf(m, "Tenant:\t%s\n",
		   proc_tenant_name(proc, c->tenant, &tenant));
	seq_puts(m, "Domain:\t");
	if (d)
		proc_domain_name(proc, d, m);
	else
		seq_putc(m, '-');
	seq_printf(m, "\nSeqs:\t%u\n", c->nr_seqs);
	seq_printf(m, "Running:\t%u\n", c->nr_running);
	seq_printf(m, "Waiting:\t%u\n", c->nr_waiting);
	seq_printf(m, "Leases:\t%u\n", c->nr_leases);
	seq_printf(m, "OpenSteps:\t%u\n", c->open_steps);
	seq_printf(m, "PinnedMs:\t%llu\n",
		   (unsigned long long)client_pinned_ms(proc, c));
	seq_printf(m, "Mappings:\t%llu\n", (unsigned long long)c->blocks);
	seq_printf(m, "Draining:\t%s\n", proc_drain_name(c->drain));
	leader_name(c, leader);
	shard_name(c, shard);
	seq_printf(m, "Leader:\t%s\nShard:\t%s\n", leader, shard);
	return 0;
}

/*
 * Print a number that counts over all tenants.  A tenant sees a dash: the number
 * would tell it how many sequences the others opened.
 */
static void show_drawn(const struct proc_ctx *ctx, int width, u64 value)
{
	if (ctx->proc->key == PROC_ALL)
		seq_printf(ctx->m, " %*llu", width, (unsigned long long)value);
	else
		seq_printf(ctx->m, " %*s", width, "-");
}

/**
 * struct rows - a file with a row for each record of a client
 * @fetch: copies the next slice of them
 * @head:  writes the line of headings
 * @row:   writes the record at place @i of the slice
 */
struct rows {
	int	(*fetch)(struct proc *proc, u32 client, struct proc_slice *slice);
	void	(*head)(struct seq_file *m);
	void	(*row)(const struct proc_ctx *ctx, u32 i);
};

static int show_rows(const struct proc_ctx *ctx, const struct rows *r)
{
	struct proc_slice slice = { 0 };
	bool first = true;
	int more;
	u32 i;

	do {
		more = r->fetch(ctx->proc, ctx->client->id, &slice);
		if (more < 0)
			return more;
		if (first) {
			proc_show_begin(ctx, &slice);
			r->head(ctx->m);
			first = false;
		}
		for (i = 0; i < slice.nr; i++)
			r->row(ctx, i);
	} while (more && !seq_error(ctx->m));
	proc_show_end(ctx, &slice);
	return 0;
}

static void seqs_head(struct seq_file *m)
{
	seq_printf(m, "%6s %6s %6s %-9s %4s %8s %8s %8s %7s %7s %5s %9s %9s\n",
		   "seq", "gen", "family", "state", "prio", "tokens", "prompt", "max",
		   "blocks", "shared", "epoch", "preempted", "arrival");
}

static void seqs_row(const struct proc_ctx *ctx, u32 i)
{
	const struct core_seq_view *s = &ctx->proc->seqs[i];
	struct seq_file *m = ctx->m;

	seq_printf(m, "%6u %6u", KVMM_SEQ_INDEX(s->seq), KVMM_SEQ_GEN(s->seq));
	show_drawn(ctx, 6, s->family);
	seq_printf(m, " %-9s %4u %8u %8u %8u %7u %7u %5u %9u",
		   core_seq_state_name(s->state), s->priority, s->valid_len,
		   s->prompt_len, s->max_tokens, s->nr_blocks, s->nr_shared,
		   s->seq_epoch, s->nr_preempted);
	show_drawn(ctx, 9, s->arrival);
	seq_putc(m, '\n');
}

int show_client_seqs(const struct proc_ctx *ctx)
{
	static const struct rows seqs = { proc_fetch_seqs, seqs_head, seqs_row };

	return show_rows(ctx, &seqs);
}

/* Milliseconds until the lease ends; one whose end is due shows 0. */
static u64 lease_left_ms(const struct proc *proc, const struct core_lease_view *l)
{
	u64 now = proc_now(proc);

	return l->until > now ? (l->until - now) / 1000000 : 0;
}

static void leases_head(struct seq_file *m)
{
	seq_printf(m, "%6s %6s %18s %8s %8s %8s %8s %8s %8s %10s %8s %s\n", "seq", "gen",
		   "number", "tokens", "device", "host", "area", "moving", "lost",
		   "ends_ms", "promoted", "label");
}

static void leases_row(const struct proc_ctx *ctx, u32 row)
{
	const struct core_lease_view *l = &ctx->proc->leases[row];
	struct seq_file *m = ctx->m;
	u32 i;

	seq_printf(m, "%6u %6u 0x%016llx %8u", KVMM_SEQ_INDEX(l->seq),
		   KVMM_SEQ_GEN(l->seq), (unsigned long long)l->number, l->tokens);
	for (i = 0; i < KVMM_NR_LOOKUP_TIERS; i++)
		seq_printf(m, " %8u", l->on[i]);
	seq_printf(m, " %8u %10llu %8s ", l->lost,
		   (unsigned long long)lease_left_ms(ctx->proc, l),
		   l->promoted ? "yes" : "no");
	show_word(m, l->label);
	seq_putc(m, '\n');
}

int show_client_leases(const struct proc_ctx *ctx)
{
	static const struct rows leases = { proc_fetch_leases, leases_head, leases_row };

	return show_rows(ctx, &leases);
}
