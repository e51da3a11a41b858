// SPDX-License-Identifier: Apache-2.0
/*
 * config.c - the running state as lines of the file of options
 *
 * kvctl save writes these lines into the file.  They are the swap areas, the limits
 * that an operator or the file gave to domains, and the tunables that differ
 * from their default.  A name that no line of the file can have is a comment.
 */
#include <stdio.h>
#include <string.h>

#include <kvmm/config.h>
#include <kvmm/tunables.h>

#include "kvmm/proc/internal.h"

/* Key of a tenant of the core. */
static u64 tenant_key(const struct proc *proc, u32 tenant)
{
	u32 i;

	for (i = 0; i < proc->node.nr_tenants; i++)
		if (proc->tenants[i].id == tenant)
			return proc->tenants[i].key;
	return PROC_ALL;
}

/* Can a value of the file have the path? */
static bool path_is_plain(const char *s)
{
	for (; *s; s++)
		if (*s <= ' ' || *s > '~' || strchr(",#\"'\\", *s))
			return false;
	return true;
}

static void show_area(struct seq_file *m, const struct proc_swap_area *a, int prio)
{
	char size[32];

	if (!path_is_plain(a->path)) {
		seq_puts(m, "# left out, for a blank, a comma or another mark in its path: area ");
		seq_escape(m, a->path, "");
		seq_putc(m, '\n');
		return;
	}
	seq_puts(m, "area = ");
	seq_escape(m, a->path, "");
	if (a->asked)
		seq_printf(m, ",size=%s", kv_format_size(a->asked, size, sizeof(size)));
	if (prio)
		seq_printf(m, ",priority=%d", prio);
	seq_putc(m, '\n');
}

static void show_areas(const struct proc_ctx *ctx)
{
	const struct core_tier_view *v;
	struct proc_swap_area info;
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++)
		if (proc_area_get(ctx, i, &v, &info) && !info.leaves)
			show_area(ctx->m, &info, v->prio);
}

static void show_domain(const struct proc_ctx *ctx, u64 key,
			const struct domain_opt *given)
{
	const struct proc *proc = ctx->proc;
	struct domain_opt o = *given;
	struct proc_tenant_info tenant;
	char line[512];

	o.tenant[0] = '\0';
	if (key != proc->src.own_key) {
		proc_tenant_info(proc, key, &tenant);
		snprintf(o.tenant, sizeof(o.tenant), "%.*s",
			 (int)sizeof(o.tenant) - 1, tenant.name);
	}
	if (*domain_opt_format(&o, line, sizeof(line))) {
		seq_printf(ctx->m, "domain = %s\n", line);
		return;
	}
	seq_puts(ctx->m, "# left out, for a blank, a comma, a slash or another mark in its name: domain ");
	seq_escape(ctx->m, o.name, "");
	seq_putc(ctx->m, '\n');
}

/* Limits of a domain that is there, if an operator or the file gave any. */
static void show_known(const struct proc_ctx *ctx, const struct core_domain_view *v)
{
	struct domain_opt o = { .given = v->by_operator };
	u32 i;

	if (!o.given)
		return;
	memcpy(o.name, v->name, sizeof(o.name));
	for (i = 0; i < CORE_NR_LIMITS; i++)
		o.limit[i] = v->operator_limit[i];
	show_domain(ctx, tenant_key(ctx->proc, v->tenant), &o);
}

static bool is_known(const struct proc *proc, const struct proc_limits *l)
{
	u32 i;

	for (i = 0; i < proc->node.nr_domains; i++)
		if (!strncmp(proc->domains[i].name, l->opt.name, KVMM_NAME_LEN) &&
		    tenant_key(proc, proc->domains[i].tenant) == l->key)
			return true;
	return false;
}

static void show_domains_of_config(const struct proc_ctx *ctx)
{
	const struct proc *proc = ctx->proc;
	struct proc_limits l;
	u32 i;
	int err;

	for (i = 0; i < proc->node.nr_domains; i++)
		show_known(ctx, &proc->domains[i]);
	for (i = 0; proc->src.limits; i++) {
		err = proc->src.limits(proc->src.arg, i, &l);
		if (err == -ERANGE)
			break;
		if (!err && !is_known(proc, &l))
			show_domain(ctx, l.key, &l.opt);
	}
}

/* The tunables that differ from the default of their option. */
static void show_tunables(const struct proc_ctx *ctx)
{
	const struct core_config *cfg = &ctx->proc->cfg;
	const struct {
		const char	*name;
		const char	*dflt;
		u32		value;
	} all[] = {
#define x(type, name, opt, def, ...) { opt, def, cfg->name },
		KVMM_TUNABLES(x)
#undef x
	};
	char value[16];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		snprintf(value, sizeof(value), "%u", all[i].value);
		if (strcmp(value, all[i].dflt) != 0)
			seq_printf(ctx->m, "%s = %s\n", all[i].name, value);
	}
}

int show_config(const struct proc_ctx *ctx)
{
	const char *path = ctx->proc->src.config;
	int err = proc_fetch_config(ctx->proc);

	if (err)
		return err;
	seq_puts(ctx->m, "# file: ");
	seq_escape(ctx->m, path ? path : KV_CONFIG_NONE, "");
	seq_putc(ctx->m, '\n');
	show_areas(ctx);
	show_domains_of_config(ctx);
	show_tunables(ctx);
	return 0;
}
