// SPDX-License-Identifier: Apache-2.0
/*
 * node.c - the files about the node as a whole
 *
 * Each of them is printed from one struct proc_node, so the figures of one file
 * belong together: the parts in meminfo add up to GpuTotal at the instant of the
 * copy, not on average.
 *
 * They also add up after rounding.  A block need not be a whole number of
 * kilobytes, so each part is printed as the difference of two rounded running
 * sums.  A part is off by less than one unit, and the sum is exact.
 */
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/version.h>

#include "kvmm/proc/internal.h"
#include "kvmm/proc/keys.h"

#define PAGE_SHIFT	12	/* zoneinfo counts in pages of 4 kB */

#ifdef __clang__
#define COMPILER	__VERSION__	/* contains the word clang */
#else
#define COMPILER	"gcc " __VERSION__
#endif

int show_version(const struct proc_ctx *ctx)
{
	seq_printf(ctx->m, "kvmm version %s (%s) uapi %u\n", KVMM_VERSION,
		   COMPILER, KVMM_ABI_VERSION);
	return 0;
}

static void show_seconds(struct seq_file *m, u64 ns, char end)
{
	seq_printf(m, "%llu.%02llu%c", (unsigned long long)(ns / NSEC_PER_SEC),
		   (unsigned long long)(ns % NSEC_PER_SEC / 10000000), end);
}

static u64 uptime_ns(const struct proc *proc)
{
	u64 now = proc_now(proc);

	return now > proc->src.start_ns ? now - proc->src.start_ns : 0;
}

int show_uptime(const struct proc_ctx *ctx)
{
	const struct proc_source *src = &ctx->proc->src;

	show_seconds(ctx->m, uptime_ns(ctx->proc), ' ');
	show_seconds(ctx->m, src->idle_ns ? src->idle_ns(src->arg) : 0, '\n');
	return 0;
}

/* A tenant sees whether it or the node is drained, but not other tenants. */
static void show_drain(const struct proc_ctx *ctx)
{
	const struct proc *proc = ctx->proc;
	u32 drain = proc->node.draining ? BIT(CORE_DRAIN_NODE) : 0;

	if (proc->key != PROC_ALL && proc->node.nr_tenants)
		drain |= proc->tenants[0].drain;
	seq_printf(ctx->m, "Draining:\t%s\n", proc_drain_name(drain));
}

int show_status(const struct proc_ctx *ctx)
{
	const struct proc *proc = ctx->proc;
	struct proc_tenant_info info = { .socket = proc->src.socket };
	struct seq_file *m = ctx->m;

	seq_puts(m, "Name:\tkvmm\n");
	if (proc->key == PROC_ALL) {
		seq_printf(m, "Pid:\t%d\nUid:\t%u\n", (int)getpid(),
			   (u32)getuid());
	} else {
		proc_tenant_info(proc, proc->key, &info);
		seq_printf(m, "Tenant:\t%s\n", info.name);
	}
	seq_printf(m, "Backend:\t%s\n", proc->src.backend);
	seq_puts(m, "Socket:\t");
	seq_escape(m, info.socket, "");
	seq_putc(m, '\n');
	seq_printf(m, "Epoch:\t%llx\n",
		   (unsigned long long)proc->src.daemon_epoch);
	seq_printf(m, "Start:\t%s\n",
		   proc->src.start ? proc->src.start : "cold");
	seq_printf(m, "Domains:\t%u\nClients:\t%u\n", proc->node.nr_domains,
		   proc->node.nr_clients);
	show_drain(ctx);
	if (proc->key == PROC_ALL)
		seq_printf(m, "LogLevel:\t%s\n",
			   kv_log_level_name(kv_log_level()));
	return 0;
}

/* The number to print for a part that raises the running sum to @sum + @bytes. */
static u64 part_units(u64 *sum, u64 bytes, u32 shift)
{
	u64 before = *sum >> shift;

	*sum += bytes;
	return (*sum >> shift) - before;
}

/* Add up all swap areas. */
void proc_areas_sum(const struct proc_node *n, struct core_tier_view *sum)
{
	u32 i;

	memset(sum, 0, sizeof(*sum));
	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++) {
		sum->total += n->tier[i].total;
		sum->used += n->tier[i].used;
		sum->needed += n->tier[i].needed;
		sum->limbo += n->tier[i].limbo;
		sum->poison += n->tier[i].poison;
	}
}

int show_meminfo(const struct proc_ctx *ctx)
{
	static const struct hostpool_found none;
	const struct core_pool_view *p = &ctx->proc->node.pool;
	const struct hostpool_found *g = ctx->proc->src.host;
	const struct core_tier_view *h;
	struct core_tier_view areas, *s = &areas;
	struct seq_file *m = ctx->m;
	u64 sum = 0;

	if (!g)
		g = &none;
	h = &ctx->proc->node.tier[CORE_POOL_HOST];
	proc_areas_sum(&ctx->proc->node, s);

#define x(key, bytes, text) proc_show_kb(m, key, bytes);
	MEMINFO_TOTALS(x)
#undef x
#define x(name, text)							\
	proc_show_kb(m, MEMINFO_KEY_##name,				\
		     part_units(&sum, p->name, 10) << 10);
	CORE_POOL_PARTS(x)
#undef x
#define x(key, bytes, text) proc_show_kb(m, key, bytes);
	MEMINFO_OVERLAYS(x)
	MEMINFO_TIERS(x)
#undef x
	return 0;
}

static void show_marks(struct seq_file *m, const u64 *wmark)
{
	seq_printf(m, "        min      %llu\n        low      %llu\n"
		   "        high     %llu\n",
		   (unsigned long long)wmark[0] >> PAGE_SHIFT,
		   (unsigned long long)wmark[1] >> PAGE_SHIFT,
		   (unsigned long long)wmark[2] >> PAGE_SHIFT);
}

static void show_zone(struct seq_file *m, const char *name, u64 nr_free,
		      const u64 *wmark, u64 total, u64 managed)
{
	seq_printf(m, "Node %d, zone %8s", 0, name);
	seq_printf(m, "\n  pages free     %llu\n",
		   (unsigned long long)nr_free >> PAGE_SHIFT);
	if (wmark)
		show_marks(m, wmark);
	seq_printf(m, "        spanned  %llu"
		   "\n        present  %llu\n        managed  %llu\n",
		   (unsigned long long)total >> PAGE_SHIFT,
		   (unsigned long long)total >> PAGE_SHIFT,
		   (unsigned long long)managed >> PAGE_SHIFT);
}

/* Print one of the parts that add up to spanned. */
static void show_zone_part(struct seq_file *m, const char *key, u64 *sum,
			   u64 bytes)
{
	seq_printf(m, "      %-19s %llu\n", key,
		   (unsigned long long)part_units(sum, bytes, PAGE_SHIFT));
}

static void show_zone_host(struct seq_file *m, const struct core_tier_view *h)
{
	u64 sum = 0;

	show_zone(m, PROC_HOST_NAME, tier_free(h), NULL, h->total,
		  h->total);
#define x(name, bytes) show_zone_part(m, "nr_pages_" #name, &sum, bytes);
	ZONEINFO_HOST(x)
#undef x
}

/* Print the part of a domain, in blocks; a domain is to a zone as a zone to a node. */
static void show_zone_domain(const struct proc *proc, struct seq_file *m,
			     const struct core_domain_view *d)
{
	seq_printf(m, "Node %d, domain   ", 0);
	proc_domain_name(proc, d, m);
	seq_printf(m, "\n  blocks free    %llu\n        room     %llu\n",
		   (unsigned long long)d->blocks[0],
		   (unsigned long long)d->room);
	seq_printf(m, "      nr_wmark_min        %llu\n"
		   "      nr_wmark_low        %llu\n"
		   "      nr_wmark_high       %llu\n",
		   (unsigned long long)d->wmark[0],
		   (unsigned long long)d->wmark[1],
		   (unsigned long long)d->wmark[2]);
	seq_printf(m, "      nr_cache_floor      %llu\n"
		   "      nr_committed_as     %llu\n"
		   "      nr_commit_limit     %llu\n",
		   (unsigned long long)d->cache_floor,
		   (unsigned long long)d->committed_as,
		   (unsigned long long)d->commit_limit);
	seq_printf(m, "  spans\n        full     %u\n        partly   %u\n"
		   "        empty    %u\n",
		   d->nr_spans_full,
		   d->nr_spans - d->nr_spans_full - d->nr_spans_empty,
		   d->nr_spans_empty);
}

static void show_zone_device(struct seq_file *m, u32 pool, const struct core_pool_view *p)
{
	char name[16];
	u64 sum = 0;

	snprintf(name, sizeof(name), PROC_POOL_NAME, pool);
	show_zone(m, name, p->free_extents + p->free, p->wmark,
		  p->total, p->total - p->offline - p->reserved);
#define x(name, text) show_zone_part(m, "nr_pages_" #name, &sum, p->name);
	CORE_POOL_PARTS(x)
#undef x
	seq_printf(m, "  extents\n        size     %llu\n"
		   "        total    %u\n        free     %u\n        online   %u\n"
		   "        device   %s\n",
		   (unsigned long long)p->extent_size >> PAGE_SHIFT,
		   p->nr_extents, p->nr_free_extents, p->nr_online,
		   core_device_name(p->device));
}

int show_zoneinfo(const struct proc_ctx *ctx)
{
	const struct proc_node *n = &ctx->proc->node;
	struct seq_file *m = ctx->m;
	u32 i;

	for (i = 0; i < n->nr_zones; i++)
		show_zone_device(m, i, &n->zone[i]);
	if (n->tier[CORE_POOL_HOST].online)
		show_zone_host(m, &n->tier[CORE_POOL_HOST]);
	for (i = 0; i < n->nr_domains; i++)
		show_zone_domain(ctx->proc, m, &ctx->proc->domains[i]);
	return 0;
}

/* Column of pools, width, value: of the pool p. */
#define POOLS_COLUMNS(x)						\
	x(total_kb,	12, p->total >> 10)				\
	x(online_kb,	12, p->nr_online * p->extent_size >> 10)	\
	x(free_kb,	12, (p->free_extents + p->free) >> 10)		\
	x(cached_kb,	12, p->cached >> 10)				\
	x(used_kb,	12, (p->open + p->sealed) >> 10)		\
	x(committed_kb,	12, p->committed_as >> 10)			\
	x(limit_kb,	12, p->commit_limit >> 10)			\
	x(domains,	7, domains)					\
	x(clients,	7, clients)

static void show_pool_line(const struct proc *proc, struct seq_file *m, u32 pool)
{
	const struct core_pool_view *p = &proc->node.zone[pool];
	u32 domains = 0, clients = 0, i;
	char name[16];

	for (i = 0; i < proc->node.nr_domains; i++) {
		if (!proc_domain_is_in(&proc->domains[i], pool))
			continue;
		domains++;
		clients += proc->domains[i].nr_clients;
	}
	snprintf(name, sizeof(name), PROC_POOL_NAME, pool);
	seq_printf(m, "%-6s ", name);
#define x(name, width, value)						\
	seq_printf(m, "%*llu ", width, (unsigned long long)(value));
	POOLS_COLUMNS(x)
#undef x
	seq_printf(m, "%s\n", core_device_name(p->device));
}

int show_pools(const struct proc_ctx *ctx)
{
	u32 i;

	seq_printf(ctx->m, "%-6s ", "pool");
#define x(name, width, value) seq_printf(ctx->m, "%*s ", width, #name);
	POOLS_COLUMNS(x)
#undef x
	seq_puts(ctx->m, "device\n");
	for (i = 0; i < ctx->proc->node.nr_zones; i++)
		show_pool_line(ctx->proc, ctx->m, i);
	return 0;
}

/* pool/POOL/size - bytes that are online; an operator may lower and raise them */
int show_pool_size(const struct proc_ctx *ctx)
{
	const struct core_pool_view *p = &ctx->proc->node.zone[ctx->pool];

	seq_printf(ctx->m, "%llu\n", (unsigned long long)
		   (p->nr_online * p->extent_size));
	return 0;
}

/* Add up all clients. */
void proc_clients_sum(const struct proc *proc, struct proc_client_sum *sum)
{
	u32 i;

	memset(sum, 0, sizeof(*sum));
	for (i = 0; i < proc->node.nr_clients; i++) {
		sum->seqs += proc->clients[i].nr_seqs;
		sum->running += proc->clients[i].nr_running;
		sum->waiting += proc->clients[i].nr_waiting;
		sum->leases += proc->clients[i].nr_leases;
		sum->steps += proc->clients[i].open_steps;
	}
}

static void show_value(struct seq_file *m, const char *name, u64 value)
{
	seq_printf(m, "%s %llu\n", name, (unsigned long long)value);
}

static void show_block_sums(const struct proc *proc, struct seq_file *m)
{
	u32 state, i;

	for (state = 0; state < PROC_BLOCK_STATES; state++) {
		u64 nr = 0;

		for (i = 0; i < proc->node.nr_domains; i++)
			nr += proc->domains[i].blocks[state];
		seq_printf(m, "nr_blocks_%s %llu\n",
			   core_block_state_name(state),
			   (unsigned long long)nr);
	}
}

int show_vmstat(const struct proc_ctx *ctx)
{
	const struct proc_node *n = &ctx->proc->node;
	const struct core_pool_view *p = &n->pool;
	struct seq_file *m = ctx->m;
	struct proc_client_sum sum;

	proc_clients_sum(ctx->proc, &sum);
#define x(name, value, text) show_value(m, #name, value);
	VMSTAT_NOW(x)
#undef x
	show_block_sums(ctx->proc, m);
#define x(name, text) show_value(m, #name, n->events[CORE_EV_##name]);
	CORE_EVENTS(x)
#undef x
	return 0;
}

int show_prefixcache(const struct proc_ctx *ctx)
{
	const struct proc_node *n = &ctx->proc->node;
	const struct core_pool_view *p = &n->pool;
	struct seq_file *m = ctx->m;

#define x(key, bytes, text) proc_show_kb(m, key, bytes);
	PREFIXCACHE_SIZES(x)
#undef x
#define x(key, name) proc_show_count(m, key, n->events[CORE_EV_##name]);
	PREFIXCACHE_COUNTS(x)
#undef x
	return 0;
}
