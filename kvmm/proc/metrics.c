// SPDX-License-Identifier: Apache-2.0
/*
 * metrics.c - the daemon's figures in Prometheus' text format, 0.0.4
 *
 * The page has the numbers of vmstat, meminfo, the pressure and the swap files,
 * for a program that reads them every few seconds.  Names are made from the names
 * in those lists.  So a new counter is a new metric, and a reader of vmstat knows
 * its name: `pgalloc` is kvmm_pgalloc_total.  Units are base units: `busy_ns` is
 * kvmm_..._busy_seconds_total, and a key of meminfo, like `GpuFree`, is
 * kvmm_memory_gpu_free_bytes.
 *
 * All numbers are from one copy of the core, so parts add up to totals in every
 * scrape; only swapd's own counters are read from its memory a moment later.  HELP
 * and TYPE announce a family even if it has no sample at present, so every page
 * lists all families.
 *
 * A tenant's page has the families of that tenant alone; families of the node or
 * of other tenants are not announced either.
 */
#include <ctype.h>
#include <stdio.h>

#include <kvmm/version.h>

#include "kvmm/proc/keys.h"
#include "kvmm/proc/metrics.h"

/* ---- the format ---- */

/* Begin a family; its samples follow, until the next family begins. */
void metric_family(struct metric_page *p, const char *name, const char *type,
		   enum metric_unit unit, const char *help)
{
	snprintf(p->name, sizeof(p->name), "kvmm_%s", name);
	p->unit = unit;
	seq_printf(p->m, "# HELP %s %s\n# TYPE %s %s\n", p->name, help,
		   p->name, type);
}

/**
 * metric_counted() - begin a family that a list of counters names
 * @prefix:  put before the name
 * @name:    `NAME_ns` is printed in seconds, `nr_NAME` is a gauge NAME
 * @counter: the value only rises
 */
void metric_counted(struct metric_page *p, const char *prefix,
		    const char *name, bool counter, const char *help)
{
	size_t len = strlen(name);
	bool is_time = len > 3 && !strcmp(name + len - 3, "_ns");
	char full[80];

	if (!strncmp(name, "nr_", 3)) {
		name += 3;
		len -= 3;
	}
	snprintf(full, sizeof(full), "%s%.*s%s%s", prefix,
		 (int)(is_time ? len - 3 : len), name,
		 is_time ? "_seconds" : "", counter ? "_total" : "");
	if (is_time && !strncmp(help, "nano", 4))
		help += 4;
	metric_family(p, full, counter ? "counter" : "gauge",
		      is_time ? UNIT_NS : UNIT_ONE, help);
}

/* Begin a sample of the family; its labels and its value follow. */
void metric_sample(struct metric_page *p, const char *suffix)
{
	seq_printf(p->m, "%s%s", p->name, suffix);
	p->nr_labels = 0;
}

/* Print the escaped label value in @p->tmp, with the format's own escapes. */
static void label_text(struct metric_page *p)
{
	const char *s;

	for (s = seq_text(&p->tmp); *s; s++) {
		if (*s == '\\' || *s == '"')
			seq_putc(p->m, '\\');
		seq_putc(p->m, *s);
	}
}

/* @value: NULL: the value is in @p->tmp */
void metric_label(struct metric_page *p, const char *key, const char *value)
{
	if (value) {
		seq_reset(&p->tmp);
		seq_escape(&p->tmp, value, "");
	}
	seq_printf(p->m, "%c%s=\"", p->nr_labels++ ? ',' : '{', key);
	label_text(p);
	seq_putc(p->m, '"');
}

static void value_ns(struct seq_file *m, u64 ns)
{
	seq_printf(m, " %llu.%09llu\n",
		   (unsigned long long)(ns / NSEC_PER_SEC),
		   (unsigned long long)(ns % NSEC_PER_SEC));
}

/* End a sample. */
void metric_value(struct metric_page *p, u64 value)
{
	if (p->nr_labels)
		seq_putc(p->m, '}');
	if (p->unit == UNIT_NS)
		value_ns(p->m, value);
	else if (p->unit == UNIT_LIMIT && value == KVMM_LIMIT_MAX)
		seq_puts(p->m, " +Inf\n");
	else
		seq_printf(p->m, " %llu\n", (unsigned long long)value);
}

/* A sample that has no label. */
static void metric_plain(struct metric_page *p, u64 value)
{
	metric_sample(p, "");
	metric_value(p, value);
}

/* Begin a sample of a domain; labels: its name as paths have it, and its tenant. */
void metric_domain(struct metric_page *p, const char *suffix,
		   const struct core_domain_view *d)
{
	struct proc_tenant_info info;

	metric_sample(p, suffix);
	seq_reset(&p->tmp);
	proc_domain_name(p->ctx->proc, d, &p->tmp);
	metric_label(p, "domain", NULL);
	metric_label(p, "tenant",
		     proc_tenant_name(p->ctx->proc, d->tenant, &info));
}

/* Begin a sample of a gauge of a domain, with its device pools: gpu0, or gpu0-gpu1. */
static void metric_gauge(struct metric_page *p, const struct core_domain_view *d)
{
	char pools[PROC_POOLS_NAME];

	metric_domain(p, "", d);
	proc_pools_name(d->pool, d->shards, pools);
	metric_label(p, "pool", pools);
}

/* The same of a counter: it has no pool, so a move does not end its series. */
static void metric_counter(struct metric_page *p, const struct core_domain_view *d)
{
	metric_domain(p, "", d);
}

/* ---- the node ---- */

/* Begin the family of a key of meminfo, like GpuFree or Committed_AS. */
static void memory_family(struct metric_page *p, const char *key,
			  const char *help)
{
	char name[64] = "memory_";
	size_t n = strlen(name);
	u32 i;

	for (i = 0; key[i] && n < sizeof(name) - 8; i++) {
		if (i && isupper((u8)key[i]) && islower((u8)key[i - 1]))
			name[n++] = '_';
		name[n++] = (char)tolower((u8)key[i]);
	}
	strcpy(name + n, "_bytes");
	metric_family(p, name, "gauge", UNIT_ONE, help);
}

static void memory_value(struct metric_page *p, const char *key,
			 const char *help, u64 bytes)
{
	memory_family(p, key, help);
	metric_plain(p, bytes);
}

/* The parts of each pool: all of them add up to memory_gpu_total_bytes. */
static void pool_parts(struct metric_page *p, const struct proc_node *n)
{
	char pool[16];
	u32 i;

	metric_family(p, "pool_bytes", "gauge", UNIT_ONE,
		      "the device pools by use: every byte is in exactly one part of one pool");
	for (i = 0; i < n->nr_zones; i++) {
		const struct core_pool_view *v = &n->zone[i];

		snprintf(pool, sizeof(pool), PROC_POOL_NAME, i);
#define x(part, text)							\
		metric_sample(p, "");					\
		metric_label(p, "pool", pool);				\
		metric_label(p, "part", #part);				\
		metric_value(p, v->part);
		CORE_POOL_PARTS(x)
#undef x
	}
}

static void node_memory(struct metric_page *page)
{
	static const struct hostpool_found none;
	const struct proc *proc = page->ctx->proc;
	const struct core_pool_view *p = &proc->node.pool;
	const struct core_tier_view *h = &proc->node.tier[CORE_POOL_HOST];
	const struct hostpool_found *g = proc->src.host ? proc->src.host :
							  &none;
	struct core_tier_view areas, *s = &areas;

	proc_areas_sum(&proc->node, s);
	pool_parts(page, &proc->node);
#define x(key, bytes, text) memory_value(page, key, text, bytes);
	MEMINFO_TOTALS(x)
	MEMINFO_OVERLAYS(x)
	MEMINFO_TIERS(x)
#undef x
}

static void node_figures(struct metric_page *page)
{
	const struct proc *proc = page->ctx->proc;
	const struct proc_node *n = &proc->node;
	u64 now = proc_now(proc), idle = 0, uptime = 0;

	if (now > proc->src.start_ns)
		uptime = now - proc->src.start_ns;
	if (proc->src.idle_ns)
		idle = proc->src.idle_ns(proc->src.arg);
#define x(metric, unit, type, expr, text)				\
	metric_family(page, #metric, #type, unit, text);			\
	metric_plain(page, expr);
	METRICS_NODE(x)
#undef x
}

static void node_counts(struct metric_page *page)
{
	const struct proc_node *n = &page->ctx->proc->node;
	const struct core_pool_view *p = &n->pool;
	struct proc_client_sum sum;

	proc_clients_sum(page->ctx->proc, &sum);
#define x(name, value, text)						\
	metric_counted(page, "", #name, false, text);			\
	metric_plain(page, value);
	VMSTAT_NOW(x)
#undef x
#define x(name, text)							\
	metric_counted(page, "", #name, true, text);			\
	metric_plain(page, n->events[CORE_EV_##name]);
	CORE_EVENTS(x)
#undef x
}

/* ---- domains and tenants: a tenant's page has no others ---- */

static void domain_blocks(struct metric_page *p)
{
	const struct proc *proc = p->ctx->proc;
	u32 i, state;

	metric_family(p, "domain_blocks", "gauge", UNIT_ONE,
		      "blocks of its spans by state: every one is in exactly one");
	for (i = 0; i < proc->node.nr_domains; i++) {
		for (state = 0; state < PROC_BLOCK_STATES; state++) {
			metric_gauge(p, &proc->domains[i]);
			metric_label(p, "state", core_block_state_name(state));
			metric_value(p, proc->domains[i].blocks[state]);
		}
	}
}

/* Begin a sample of a layer group. */
static void metric_group(struct metric_page *p, const struct core_domain_view *d, u32 i)
{
	char number[12];

	metric_gauge(p, d);
	snprintf(number, sizeof(number), "%u", i);
	metric_label(p, "group", number);
}

/* A domain of one group has these figures in its own families. */
static void group_figures(struct metric_page *p)
{
	const struct proc *proc = p->ctx->proc;
	const struct core_domain_view *d;
	u32 n, i;

#define x(metric, unit, type, expr, text)				\
	metric_family(p, #metric, #type, unit, text);			\
	for (n = 0; n < proc->node.nr_domains; n++) {			\
		d = &proc->domains[n];					\
		for (i = 0; d->nr_groups > 1 && i < d->nr_groups; i++) { \
			const struct core_group_view *g = &d->group[i];	\
									\
			metric_group(p, d, i);				\
			metric_value(p, expr);				\
		}							\
	}
	METRICS_GROUP(x)
#undef x
}

static void domain_figures(struct metric_page *p)
{
	const struct proc *proc = p->ctx->proc;
	u32 i;

#define x(metric, unit, type, expr, text)				\
	metric_family(p, #metric, #type, unit, text);			\
	for (i = 0; i < proc->node.nr_domains; i++) {			\
		const struct core_domain_view *d = &proc->domains[i];	\
									\
		metric_##type(p, d);					\
		metric_value(p, expr);					\
	}
	METRICS_DOMAIN(x)
#undef x
	group_figures(p);
	domain_blocks(p);
	metrics_life(p);
}

static void tenant_figures(struct metric_page *p)
{
	const struct proc *proc = p->ctx->proc;
	struct proc_tenant_info info, *s = &info;
	u32 i;

#define x(metric, unit, type, expr, text)				\
	metric_family(p, #metric, #type, unit, text);			\
	for (i = 0; i < proc->node.nr_tenants; i++) {			\
		const struct core_tenant_view *t = &proc->tenants[i];	\
									\
		proc_tenant_info(proc, t->key, s);			\
		metric_sample(p, "");					\
		metric_label(p, "tenant", s->name);			\
		metric_value(p, expr);					\
	}
	METRICS_TENANT(x)
#undef x
}

static void info_figure(struct metric_page *p)
{
	const struct proc_source *src = &p->ctx->proc->src;
	char abi[16];

	snprintf(abi, sizeof(abi), "%u", KVMM_ABI_VERSION);
	metric_family(p, "info", "gauge", UNIT_ONE, "version and backend of the daemon: always 1");
	metric_sample(p, "");
	metric_label(p, "version", KVMM_VERSION);
	metric_label(p, "abi", abi);
	metric_label(p, "backend", src->backend);
	metric_label(p, "start", src->start ? src->start : "cold");
	metric_value(p, 1);
}

int show_metrics(const struct proc_ctx *ctx)
{
	struct metric_page p = { .ctx = ctx, .m = ctx->m };
	int err;

	seq_init(&p.tmp, 4096);
	info_figure(&p);
	domain_figures(&p);
	tenant_figures(&p);
	if (ctx->proc->key == PROC_ALL) {
		node_figures(&p);
		node_memory(&p);
		node_counts(&p);
		metrics_swap(&p);
	}
	err = seq_error(&p.tmp);
	seq_free(&p.tmp);
	return err;
}
