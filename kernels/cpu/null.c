// SPDX-License-Identifier: Apache-2.0
/*
 * null.c - kernels that compute nothing
 *
 * For measuring everything around a model: scheduler, daemon, sampler, text,
 * HTTP.  The table has no operations: a model with it calls none, writes no KV,
 * and makes up its logits (runtime/model/null.c).  Its blocks keep their old
 * contents.  The table's name is part of every identity, so other models never
 * share these blocks.
 */
#include "kernels/cpu/internal.h"
#include "kernels/impl.h"

const struct kern_ops kern_ops_null = {
	.name		= "null",
	.variant	= "none",
	.version	= KERN_NUMERICS_VERSION,
	.kv_types	= ~0u,
	.weight_types	= ~0u,
};
