// SPDX-License-Identifier: Apache-2.0
/*
 * oom.c - last_oom
 *
 * The file is like the report of the kernel's OOM killer, with the core's words.
 * It shows the sequence that asked and the blocks that it asked for; its domain,
 * its tenant and a device pool of its domain; one line per domain with its first candidate and the
 * reason why that was not preempted; and the outcome.  All numbers are of the
 * instant before any sequence lost memory (kvmm/core/reclaim/oom.c).  Names are of
 * that instant too: other domains may have them since.
 */
#include "kvmm/proc/internal.h"

static const char * const outcomes[NR_CORE_OOM_OUTCOMES] = {
#define x(name, text) #name,
	CORE_OOM_OUTCOMES(x)
#undef x
};

static const char * const whys[NR_CORE_OOM_WHYS] = {
#define x(name, text) #name,
	CORE_OOM_WHYS(x)
#undef x
};

static u64 row_kb(const struct core_oom_row *r, u64 blocks)
{
	return blocks * r->block_bytes >> 10;
}

/* All blocks that are not free. */
static u64 row_used(const struct core_oom_row *r)
{
	u64 nr = 0;
	u32 i;

	for (i = 1; i < PROC_BLOCK_STATES; i++)
		nr += r->blocks[i];
	return nr;
}

static void show_limit(struct seq_file *m, const char *name, u64 bytes)
{
	seq_printf(m, " %s ", name);
	if (bytes == KVMM_LIMIT_MAX)
		seq_puts(m, "max");
	else
		seq_printf(m, "%llukB", (unsigned long long)bytes >> 10);
}

static void show_who(struct seq_file *m, const struct core_oom_view *o)
{
	const struct core_oom_row *r = &o->row[0];

	seq_escape(m, r->name, "");
	seq_printf(m, ": client %u, seq %u asked for %u blocks, %llukB: family %u, priority %u, arrival %llu\n",
		   o->client, o->seq, o->want,
		   (unsigned long long)row_kb(r, o->want), o->family,
		   o->priority, (unsigned long long)o->arrival);
}

/* The domain of the sequence, then its tenant and its pool. */
static void show_charged(struct seq_file *m, const struct core_oom_view *o)
{
	const struct core_oom_row *r = &o->row[0];
	char pools[PROC_POOLS_NAME];
	u64 tenant = 0;
	u32 i, nr = 0;

	seq_puts(m, "domain ");
	seq_escape(m, r->name, "");
	seq_printf(m, ": usage %llukB", (unsigned long long)row_kb(r, row_used(r)));
	show_limit(m, "min", r->limit[CORE_LIMIT_MIN]);
	show_limit(m, "low", r->limit[CORE_LIMIT_LOW]);
	show_limit(m, "high", r->limit[CORE_LIMIT_HIGH]);
	show_limit(m, "max", r->limit[CORE_LIMIT_MAX]);
	seq_printf(m, " weight %llu\n",
		   (unsigned long long)r->limit[CORE_LIMIT_WEIGHT]);
	for (i = 0; i < o->nr_rows; i++) {
		if (o->row[i].tenant != r->tenant)
			continue;
		tenant += row_kb(&o->row[i], row_used(&o->row[i]));
		nr++;
	}
	seq_printf(m, "tenant %u: usage %llukB of %u domains\n", r->tenant,
		   (unsigned long long)tenant, nr);
	seq_printf(m, "pool " PROC_POOL_NAME, o->pool);
	if (o->nr_pools > 1) {
		proc_pools_name(o->first_pool, o->nr_pools, pools);
		seq_printf(m, " of %s", pools);
	}
	seq_printf(m, ": total %llukB online %llukB free extents %llukB\n",
		   (unsigned long long)(o->nr_extents * o->extent_size >> 10),
		   (unsigned long long)(o->nr_online * o->extent_size >> 10),
		   (unsigned long long)(o->nr_free * o->extent_size >> 10));
}

static void show_row(struct seq_file *m, const struct core_oom_row *r)
{
	u64 used = row_used(r);

	seq_printf(m, "%6u %6u %10llu %10llu %10llu %10llu %10llu %10llu %7u %7u",
		   r->domain, r->tenant, (unsigned long long)row_kb(r, used),
		   (unsigned long long)row_kb(r, r->blocks[CORE_BLK_FREE]),
		   (unsigned long long)row_kb(r, r->blocks[CORE_BLK_CACHED]),
		   (unsigned long long)row_kb(r, r->cache_floor),
		   (unsigned long long)row_kb(r, r->emin),
		   (unsigned long long)row_kb(r, r->elow), r->nr_running,
		   r->nr_waiting);
	if (r->client == CORE_NONE)
		seq_printf(m, " %6s %6s %8s %8s %8s %8s", "-", "-", "-", "-",
			   "-", "-");
	else
		seq_printf(m, " %6u %6u %8u %8llu %8u %8u", r->client, r->seq,
			   r->priority, (unsigned long long)r->arrival,
			   r->tokens, r->seq_blocks);
	seq_printf(m, " %-9s ", r->why < NR_CORE_OOM_WHYS ? whys[r->why] : "?");
	seq_escape(m, r->name, "");
	seq_putc(m, '\n');
}

static void show_rows(struct seq_file *m, const struct core_oom_view *o)
{
	u32 i;

	seq_printf(m, "%6s %6s %10s %10s %10s %10s %10s %10s %7s %7s %6s %6s %8s %8s %8s %8s %-9s %s\n",
		   "domain", "tenant", "used_kb", "free_kb", "cached_kb",
		   "floor_kb", "min_kb", "low_kb", "running", "waiting",
		   "client", "seq", "prio", "arrival", "tokens", "blocks",
		   "why", "name");
	for (i = 0; i < o->nr_rows; i++)
		show_row(m, &o->row[i]);
	if (o->nr_rows < o->nr_domains)
		seq_printf(m, "# %u more domains\n", o->nr_domains - o->nr_rows);
}

static void show_end(struct seq_file *m, const struct core_oom_view *o)
{
	const struct core_oom_row *v = &o->row[min(o->victim, o->nr_rows - 1)];

	seq_printf(m, "oom: outcome=%s", o->outcome < NR_CORE_OOM_OUTCOMES ?
		   outcomes[o->outcome] : "?");
	if (o->outcome == CORE_OOM_victim && o->victim < o->nr_rows)
		seq_printf(m, " cause=%s domain=%u client=%u seq=%u blocks=%u",
			   core_cause_name(o->cause), v->domain, v->client,
			   v->seq, v->seq_blocks);
	seq_putc(m, '\n');
}

int show_last_oom(const struct proc_ctx *ctx)
{
	const struct core_oom_view *o = &ctx->proc->oom;
	int err = proc_fetch_oom(ctx->proc);

	if (err || !o->nr)
		return err;
	seq_printf(ctx->m, "# %llu at %llu.%06llu, %llu of them at the same instant\n",
		   (unsigned long long)o->nr,
		   (unsigned long long)(o->ns / NSEC_PER_SEC),
		   (unsigned long long)(o->ns % NSEC_PER_SEC / 1000),
		   (unsigned long long)o->same + 1);
	show_who(ctx->m, o);
	show_charged(ctx->m, o);
	show_rows(ctx->m, o);
	show_end(ctx->m, o);
	return 0;
}
