// SPDX-License-Identifier: Apache-2.0
/*
 * domain.c - domains, and domain/NAME/
 *
 * A client chose the name of its domain.  In paths and tables the name is
 * escaped, so that it is one component and one word, which no listing hides:
 * blanks, slashes, `@`, and the dots of a name that begins with one.  Domains of
 * two tenants may have the same name; then each name is followed by an `@`,
 * which no escaped name contains, and the id of the domain.
 *
 * A limit file has the form of the kernel's dmem controller: a pool, a blank,
 * bytes or `max`.
 */
#include <stdio.h>

#include "kvmm/proc/internal.h"

static bool domain_name_shared(const struct proc *proc,
			       const struct core_domain_view *d)
{
	u32 i;

	for (i = 0; i < proc->node.nr_domains; i++) {
		if (proc->domains[i].id != d->id &&
		    !strcmp(proc->domains[i].name, d->name))
			return true;
	}
	return false;
}

/* proc_domain_name() - print the name of @d as paths have it */
void proc_domain_name(const struct proc *proc,
		      const struct core_domain_view *d, struct seq_file *m)
{
	bool dots = d->name[0] == '.';

	seq_escape(m, d->name, dots ? "./@" : "/@");
	if (!d->name[0] || domain_name_shared(proc, d))
		seq_printf(m, "@%u", d->id);
}

const struct core_domain_view *proc_domain_by_name(const struct proc *proc,
						   const char *name,
						   size_t len)
{
	const struct core_domain_view *found = NULL;
	struct seq_file m;
	u32 i;

	seq_init(&m, PROC_NAME_MAX);
	for (i = 0; i < proc->node.nr_domains && !found; i++) {
		seq_reset(&m);
		proc_domain_name(proc, &proc->domains[i], &m);
		if (!seq_error(&m) && m.count == len &&
		    !memcmp(m.buf, name, len))
			found = &proc->domains[i];
	}
	seq_free(&m);
	return found;
}

const struct core_domain_view *proc_domain_by_id(const struct proc *proc,
						 u32 id)
{
	u32 i;

	for (i = 0; i < proc->node.nr_domains; i++) {
		if (proc->domains[i].id == id)
			return &proc->domains[i];
	}
	return NULL;
}

/* proc_pools_name() - fill in @name, which has room for PROC_POOLS_NAME */
void proc_pools_name(u32 first, u32 nr, char *name)
{
	int n = snprintf(name, PROC_POOLS_NAME, PROC_POOL_NAME, first);

	if (nr > 1)
		snprintf(name + n, (size_t)(PROC_POOLS_NAME - n), "-" PROC_POOL_NAME,
			 first + nr - 1);
}

/* proc_domain_is_in() - has the domain memory in this device pool? */
bool proc_domain_is_in(const struct core_domain_view *d, u32 pool)
{
	return pool - d->pool < d->shards;
}

/* proc_show_limit() - print "max", or bytes >> @shift, @width columns wide */
void proc_show_limit(struct seq_file *m, u64 bytes, u32 shift, int width)
{
	char num[24];

	if (bytes == KVMM_LIMIT_MAX)
		strcpy(num, "max");
	else
		snprintf(num, sizeof(num), "%llu",
			 (unsigned long long)(bytes >> shift));
	seq_printf(m, "%*s", width, num);
}

/* The domain's limits, and its memory pressure. */
static void show_domain_limits(struct seq_file *m,
			       const struct core_domain_view *d)
{
	static const u32 kinds[] = { CORE_PSI_SOME, CORE_PSI_FULL };
	const u32 (*avg)[CORE_PSI_NR_AVGS] = d->pressure.avg[CORE_PSI_MEMORY];
	u32 i;

	for (i = CORE_LIMIT_MIN; i <= CORE_LIMIT_HIGH; i++) {
		seq_putc(m, ' ');
		proc_show_limit(m, d->limit[i], 10, 11);
	}
	seq_printf(m, " %6llu", (unsigned long long)d->limit[CORE_LIMIT_WEIGHT]);
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		seq_printf(m, " %7u.%02u", avg[kinds[i]][0] / 100,
			   avg[kinds[i]][0] % 100);
	seq_putc(m, ' ');
}

/* Memory that is only cache, leases, and the tokens that steps computed. */
static void show_domain_work(struct seq_file *m,
			     const struct core_domain_view *d)
{
	seq_printf(m, "%11llu %7u %11llu %14llu %14llu %12llu %12llu ",
		   (unsigned long long)d->blocks[CORE_BLK_CACHED] *
		   d->block_bytes >> 10, d->nr_leases,
		   (unsigned long long)d->leased * d->block_bytes >> 10,
		   (unsigned long long)d->work.prompt,
		   (unsigned long long)d->work.output,
		   (unsigned long long)d->work.first,
		   (unsigned long long)(d->work.first_ns / 1000000));
}

int show_domains(const struct proc_ctx *ctx)
{
	const struct proc *proc = ctx->proc;
	struct seq_file *m = ctx->m;
	const struct core_domain_view *d;
	struct proc_tenant_info tenant;
	char pool[PROC_POOLS_NAME];
	u32 i;

	seq_printf(m, "%4s %6s %7s %6s %7s %7s %6s %11s %11s %11s %11s %11s %11s %11s %6s %10s %10s %11s %7s %11s %14s %14s %12s %12s %5s %s\n",
		   "id", "tenant", "clients", "spans", "running", "waiting",
		   "tokens", "block_bytes", "current_kb", "peak_kb", "max_kb",
		   "min_kb", "low_kb", "high_kb", "weight", "some_avg10",
		   "full_avg10", "cached_kb", "leases", "leased_kb",
		   "prompt_tokens", "output_tokens", "first_tokens", "first_ms", "pool", "name");
	for (i = 0; i < proc->node.nr_domains; i++) {
		d = &proc->domains[i];
		seq_printf(m, "%4u %6s %7u %6u %7u %7u %6u %11llu %11llu %11llu ",
			   d->id, proc_tenant_name(proc, d->tenant, &tenant),
			   d->nr_clients, d->nr_spans,
			   d->nr_running, d->nr_waiting, d->block_tokens,
			   (unsigned long long)d->block_bytes,
			   (unsigned long long)d->current_bytes >> 10,
			   (unsigned long long)d->peak_bytes >> 10);
		proc_show_limit(m, d->max_bytes, 10, 11);
		show_domain_limits(m, d);
		show_domain_work(m, d);
		proc_pools_name(d->pool, d->shards, pool);
		seq_printf(m, "%5s ", pool);
		proc_domain_name(proc, d, m);
		seq_putc(m, '\n');
	}
	return 0;
}

int show_domain_status(const struct proc_ctx *ctx)
{
	const struct core_domain_view *d = ctx->domain;
	struct proc_tenant_info tenant;
	struct seq_file *m = ctx->m;
	char pool[PROC_POOLS_NAME];

	proc_pools_name(d->pool, d->shards, pool);
	seq_puts(m, "Name:\t");
	proc_domain_name(ctx->proc, d, m);
	seq_printf(m, "\nId:\t%u\n", d->id);
	seq_printf(m, "Tenant:\t%s\n",
		   proc_tenant_name(ctx->proc, d->tenant, &tenant));
	seq_printf(m, "Pool:\t%s\n", pool);
	if (d->shards > 1)
		seq_printf(m, "Shards:\t%u\n", d->shards);
	seq_printf(m, "BlockTokens:\t%u\n", d->block_tokens);
	seq_printf(m, "BlockBytes:\t%llu\n",
		   (unsigned long long)d->block_bytes);
	seq_printf(m, "Clients:\t%u\n", d->nr_clients);
	seq_printf(m, "Spans:\t%u\n", d->nr_spans);
	seq_printf(m, "Running:\t%u\n", d->nr_running);
	seq_printf(m, "Waiting:\t%u\n", d->nr_waiting);
	seq_printf(m, "Leases:\t%u\n", d->nr_leases);
	seq_printf(m, "KvCurrent:\t%8llu kB\n",
		   (unsigned long long)d->current_bytes >> 10);
	seq_printf(m, "KvPeak:\t%8llu kB\n",
		   (unsigned long long)d->peak_bytes >> 10);
	seq_printf(m, "KvReserved:\t%8llu kB\n",
		   (unsigned long long)d->reserved * d->block_bytes >> 10);
	seq_printf(m, "KvLeased:\t%8llu kB\n",
		   (unsigned long long)d->leased * d->block_bytes >> 10);
	seq_printf(m, "CommitLimit:\t%8llu kB\n",
		   (unsigned long long)d->commit_limit * d->block_bytes >> 10);
	seq_printf(m, "Committed_AS:\t%8llu kB\n",
		   (unsigned long long)d->committed_as * d->block_bytes >> 10);
	if (d->shards > 1)
		seq_printf(m, "KvAllPools:\t%8llu kB\n",
			   (unsigned long long)d->current_bytes * d->shards >> 10);
	return 0;
}

int show_domain_blocks(const struct proc_ctx *ctx)
{
	const struct core_domain_view *d = ctx->domain;
	u32 i;

	for (i = 0; i < PROC_BLOCK_STATES; i++)
		seq_printf(ctx->m, "%s %llu\n", core_block_state_name(i),
			   (unsigned long long)d->blocks[i]);
	return 0;
}

/* domain/NAME/groups - one line per layer group: its shape, and its blocks */
int show_domain_groups(const struct proc_ctx *ctx)
{
	const struct core_domain_view *d = ctx->domain;
	const struct core_group_view *g;
	u32 i;

	seq_printf(ctx->m, "%5s %5s %6s %8s %7s %6s %11s %13s %6s %8s\n", "group", "kind",
		   "layers", "kv_heads", "window", "tokens", "block_bytes",
		   "padding_bytes", "record", "blocks");
	for (i = 0; i < d->nr_groups; i++) {
		g = &d->group[i];
		seq_printf(ctx->m, "%5u %5s %6u %8u %7u %6u %11llu %13llu %6u %8llu\n", i,
			   g->shape.kind == KVMM_GROUP_STATE ? "state" : "kv",
			   g->shape.layers, g->shape.kv_heads, g->shape.window,
			   g->shape.block_tokens, (unsigned long long)d->block_bytes,
			   (unsigned long long)g->padding, g->width,
			   (unsigned long long)g->mapped);
	}
	return 0;
}

static void show_lru_head(struct seq_file *m)
{
	seq_printf(m, "%4s %5s %5s %10s %10s %10s %6s %7s\n", "tier",
		   "found", "class", "candidates", "low", "high", "oldest",
		   "worth");
}

static void show_lru_tier(struct seq_file *m, const struct core_lru_view *v,
			  u32 i)
{
	seq_printf(m, "%4u %5u %5u %10u %10u %10u %6u %7u\n", i,
		   v->tier[i].found, v->tier[i].class, v->tier[i].nr,
		   v->tier[i].low, v->tier[i].high, v->tier[i].oldest,
		   v->tier[i].worth);
}

int show_domain_lru(const struct proc_ctx *ctx)
{
	int err = proc_fetch_lru(ctx->proc, ctx->domain->id);
	u32 i;

	if (err)
		return err;
	show_lru_head(ctx->m);
	for (i = 0; i < CORE_LRU_TIERS; i++)
		show_lru_tier(ctx->m, &ctx->proc->lru, i);
	return 0;
}

/* lru_gen - domain/NAME/lru_gen of all domains; the lines of one show one instant */
int show_lru_gen(const struct proc_ctx *ctx)
{
	struct proc *proc = ctx->proc;
	u32 i, tier;
	int err;

	seq_printf(ctx->m, "%6s ", "domain");
	show_lru_head(ctx->m);
	for (i = 0; i < proc->node.nr_domains; i++) {
		err = proc_fetch_lru(proc, proc->domains[i].id);
		if (err)
			return err;
		for (tier = 0; tier < CORE_LRU_TIERS; tier++) {
			seq_printf(ctx->m, "%6u ", proc->domains[i].id);
			show_lru_tier(ctx->m, &proc->lru, tier);
		}
	}
	return 0;
}

/* In slabinfo a domain is a cache of objects of one size, and a span is a slab. */
static void show_slab(const struct proc_ctx *ctx,
		      const struct core_domain_view *d)
{
	const size_t start = ctx->m->count;
	u64 all = 0, per_slab, bytes;
	int pad;
	u32 i;

	for (i = 0; i < PROC_BLOCK_STATES; i++)
		all += d->blocks[i];
	per_slab = d->nr_spans ? all / d->nr_spans : 0;
	bytes = ALIGN_UP(per_slab * d->block_bytes, ctx->proc->cfg.extent_size);
	proc_domain_name(ctx->proc, d, ctx->m);
	pad = 17 - (int)min(ctx->m->count - start, (size_t)17);
	seq_printf(ctx->m, "%*s %6llu %6llu %6llu %4llu %4llu : tunables %4u %4u %4u : slabdata %6u %6u %6u\n",
		   pad, "", (unsigned long long)(all - d->blocks[0]),
		   (unsigned long long)all, (unsigned long long)d->block_bytes,
		   (unsigned long long)per_slab,
		   (unsigned long long)(bytes >> 12), 0, 0, 0,
		   d->nr_spans - d->nr_spans_empty, d->nr_spans, 0);
}

int show_slabinfo(const struct proc_ctx *ctx)
{
	const struct proc *proc = ctx->proc;
	u32 i;

	seq_puts(ctx->m, "slabinfo - version: 2.1\n"
		 "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>"
		 " : tunables <limit> <batchcount> <sharedfactor>"
		 " : slabdata <active_slabs> <num_slabs> <sharedavail>\n");
	for (i = 0; i < proc->node.nr_domains; i++)
		show_slab(ctx, &proc->domains[i]);
	return 0;
}

static void show_pool_memory(const struct proc_ctx *ctx, u32 pool, u64 bytes)
{
	seq_printf(ctx->m, PROC_POOL_NAME " ", pool);
	proc_show_limit(ctx->m, bytes, 0, 0);
	seq_putc(ctx->m, '\n');
}

/* A line for each device pool of the domain, which has as many bytes in each. */
static int show_memory(const struct proc_ctx *ctx, u64 bytes)
{
	const struct core_domain_view *d = ctx->domain;
	u32 i;

	for (i = d->pool; i < d->pool + d->shards; i++)
		show_pool_memory(ctx, i, bytes);
	return 0;
}

int show_memory_min(const struct proc_ctx *ctx)
{
	return show_memory(ctx, ctx->domain->limit[CORE_LIMIT_MIN]);
}

int show_memory_low(const struct proc_ctx *ctx)
{
	return show_memory(ctx, ctx->domain->limit[CORE_LIMIT_LOW]);
}

int show_memory_high(const struct proc_ctx *ctx)
{
	return show_memory(ctx, ctx->domain->limit[CORE_LIMIT_HIGH]);
}

int show_memory_max(const struct proc_ctx *ctx)
{
	return show_memory(ctx, ctx->domain->limit[CORE_LIMIT_MAX]);
}

int show_memory_weight(const struct proc_ctx *ctx)
{
	seq_printf(ctx->m, "%llu\n", (unsigned long long)
		   ctx->domain->limit[CORE_LIMIT_WEIGHT]);
	return 0;
}

int show_memory_writethrough(const struct proc_ctx *ctx)
{
	seq_printf(ctx->m, "%llu\n", (unsigned long long)
		   ctx->domain->limit[CORE_LIMIT_WRITETHROUGH]);
	return 0;
}

int show_memory_current(const struct proc_ctx *ctx)
{
	return show_memory(ctx, ctx->domain->current_bytes);
}

int show_memory_peak(const struct proc_ctx *ctx)
{
	return show_memory(ctx, ctx->domain->peak_bytes);
}

int show_memory_capacity(const struct proc_ctx *ctx)
{
	const struct core_domain_view *d = ctx->domain;
	const struct core_pool_view *p;
	u32 i;

	for (i = d->pool; i < d->pool + d->shards; i++) {
		p = &ctx->proc->node.zone[i];
		show_pool_memory(ctx, i, (u64)p->nr_online * p->extent_size);
	}
	return 0;
}

int show_memory_events(const struct proc_ctx *ctx)
{
	seq_printf(ctx->m, "low %u\nhigh %u\nmax %u\npreempt %u\n",
		   ctx->domain->nr_low_events, ctx->domain->nr_high_events,
		   ctx->domain->nr_max_events, ctx->domain->nr_preempted);
	return 0;
}
