// SPDX-License-Identifier: Apache-2.0
/*
 * tenant.c - tenants
 *
 * The core knows a tenant by a key.  The daemon around it knows the tenant's name,
 * and its use of the quotas that the daemon counts: connections, clients,
 * descriptors under way.
 */
#include <stdio.h>

#include "kvmm/proc/internal.h"

/* proc_tenant_info() - the daemon's record of a tenant; without one the key as name */
void proc_tenant_info(const struct proc *proc, u64 key,
		      struct proc_tenant_info *info)
{
	memset(info, 0, sizeof(*info));
	if (proc->src.tenant_info &&
	    !proc->src.tenant_info(proc->src.arg, key, info))
		return;
	snprintf(info->name, sizeof(info->name), "%llu",
		 (unsigned long long)key);
	info->socket = proc->src.socket;
}

/**
 * proc_tenant_name() - name of a tenant of the core, "-" if there is none
 * @info: takes the record, which holds the name
 *
 * The last node must have been fetched with NEED_TENANTS.
 */
const char *proc_tenant_name(const struct proc *proc, u32 tenant,
			     struct proc_tenant_info *info)
{
	u32 i;

	for (i = 0; i < proc->node.nr_tenants; i++) {
		if (proc->tenants[i].id != tenant)
			continue;
		proc_tenant_info(proc, proc->tenants[i].key, info);
		return info->name;
	}
	return "-";
}

const char *proc_drain_name(u32 drain)
{
	if (drain & BIT(CORE_DRAIN_NODE))
		return "node";
	if (drain & BIT(CORE_DRAIN_TENANT))
		return "tenant";
	return drain & BIT(CORE_DRAIN_CLIENT) ? "client" : "no";
}

static void show_tenant(const struct proc_ctx *ctx,
			const struct core_tenant_view *v)
{
	struct proc_tenant_info info;

	proc_tenant_info(ctx->proc, v->key, &info);
	seq_printf(ctx->m, "%7u %11u %7u %11u %5u %9u %5u %7u %11llu %11llu %11llu ",
		   v->nr_domains, info.max_domains, info.clients,
		   info.max_clients, info.conns, info.max_conns, info.fds,
		   info.max_fds, (unsigned long long)v->current_bytes >> 10,
		   (unsigned long long)v->backed_bytes >> 10,
		   (unsigned long long)v->min_bytes >> 10);
	proc_show_limit(ctx->m, info.max_min, 10, 11);
	seq_printf(ctx->m, " %10u %8llu %8s ", info.max_weight,
		   (unsigned long long)info.refused, proc_drain_name(v->drain));
	seq_escape(ctx->m, info.name, "");
	seq_putc(ctx->m, '\n');
}

int show_tenants(const struct proc_ctx *ctx)
{
	const struct proc *proc = ctx->proc;
	const struct core_tenant_view unseen = {
		.key = proc->key,
		.drain = proc->node.draining ? BIT(CORE_DRAIN_NODE) : 0,
	};
	u32 i;

	seq_printf(ctx->m, "%7s %11s %7s %11s %5s %9s %5s %7s %11s %11s %11s %11s %10s %8s %8s %s\n",
		   "domains", "max_domains", "clients", "max_clients", "conns",
		   "max_conns", "fds", "max_fds", "current_kb", "backed_kb",
		   "min_kb", "max_min_kb", "max_weight", "refused", "draining", "name");
	for (i = 0; i < proc->node.nr_tenants; i++)
		show_tenant(ctx, &proc->tenants[i]);
	if (proc->key != PROC_ALL && !proc->node.nr_tenants)
		show_tenant(ctx, &unseen);
	return 0;
}
