// SPDX-License-Identifier: Apache-2.0
/*
 * open.c - one interface for contexts and steps, of threads and of devices
 *
 * Implementations for CPUs leave the functions of a device out of their tables;
 * this file has their equivalents.
 */
#include <stdio.h>

#include "kernels/kernels.h"

int kern_open(const struct kern_ops *ops, u32 nr_threads,
	      const struct kern_opts *opts, struct kern_ctx **ret, char *why,
	      size_t len)
{
	static const struct kern_opts defaults;
	int err;

	if (ops->open)
		return ops->open(opts ? opts : &defaults, ret, why, len);
	err = kern_ctx_create(nr_threads, ret);
	if (err)
		snprintf(why, len, "cannot start compute threads: %s",
			 strerror(-err));
	return err;
}

void kern_close(const struct kern_ops *ops, struct kern_ctx *ctx)
{
	if (ops && ops->close)
		ops->close(ctx);
	else
		kern_ctx_destroy(ctx);
}

void kern_describe(const struct kern_ops *ops, struct kern_ctx *ctx,
		   struct kern_device *dev)
{
	memset(dev, 0, sizeof(*dev));
	snprintf(dev->variant, sizeof(dev->variant), "%s", ops->variant);
	if (ops->describe)
		ops->describe(ctx, dev);
}

int kern_step_begin(const struct kern_ops *ops, struct kern_ctx *ctx,
		    const struct kern_step *s, struct kern_rows *rows)
{
	if (ops->step_begin)
		return ops->step_begin(ctx, s, rows);
	*rows = (struct kern_rows){
		.ids = s->ids,
		.positions = s->positions,
		.wanted = s->wanted,
		.nr_rows = s->nr_rows,
		.nr_wanted = s->nr_wanted,
	};
	return 0;
}

int kern_step_end(const struct kern_ops *ops, struct kern_ctx *ctx)
{
	if (ops->step_end)
		return ops->step_end(ctx);
	kern_ctx_rest(ctx);
	return 0;
}
