// SPDX-License-Identifier: Apache-2.0
/*
 * source.c - where the files for operators (kvmm/proc) get their numbers
 */
#include "kvmm/ipc/daemon.h"

static int source_call(void *arg, void (*fn)(struct core *core, void *fn_arg),
		       void *fn_arg)
{
	struct daemon *d = arg;

	return mm_call(&d->mm, fn, fn_arg);
}

static int source_client_info(void *arg, u32 client,
			      struct proc_client_info *info)
{
	const struct daemon *d = arg;

	if (client >= MAX_CLIENTS || !d->clients.by_id[client])
		return -ENOENT;
	*info = d->clients.by_id[client]->info;
	return 0;
}

static int source_tenant_info(void *arg, u64 key,
			      struct proc_tenant_info *info)
{
	struct daemon *d = arg;

	return tenant_get_info(&d->clients, key, info);
}

static int source_swap_area(void *arg, u32 i, struct proc_swap_area *info)
{
	const struct daemon *d = arg;

	return area_get_info(&d->link, i, info);
}

static int source_swap_info(void *arg, struct proc_swap_info *info)
{
	struct daemon *d = arg;

	return link_get_info(&d->link, info);
}

static int source_limits(void *arg, u32 i, struct proc_limits *info)
{
	const struct daemon *d = arg;

	if (i >= ARRAY_SIZE(d->clients.limits))
		return -ERANGE;
	if (!d->clients.limits[i].used)
		return -ENOENT;
	info->key = d->clients.limits[i].key;
	info->opt = d->clients.limits[i].opt;
	return 0;
}

static u64 source_idle_ns(void *arg)
{
	const struct daemon *d = arg;

	return READ_ONCE(d->mm.idle_ns);
}

/* source_start() - make the files for operators */
int source_start(struct daemon *d)
{
	struct proc_source src = {
		.call		= source_call,
		.client_info	= source_client_info,
		.tenant_info	= source_tenant_info,
		.swap_area	= source_swap_area,
		.swap_info	= source_swap_info,
		.limits		= source_limits,
		.idle_ns	= source_idle_ns,
		.host		= &d->setup.host.found,
		.arg		= d,
		.backend	= d->setup.dev.ops->name,
		.socket		= d->sockets.attach_addr.sun_path,
		.config		= d->config,
		.own_key	= d->setup.own_uid,
		.start_ns	= d->setup.start_ns,
		.daemon_epoch	= d->setup.epoch,
		.start		= d->setup.adopted < 0 ? "cold" :
				  d->setup.adopted == CORE_ADOPT_WHOLE ?
				  "adopted whole" : "adopted, salvaged",
	};

	d->views.proc = proc_create(&src);
	d->operators.proc = d->views.proc;
	return d->views.proc ? 0 : -errno;
}
