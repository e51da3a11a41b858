// SPDX-License-Identifier: Apache-2.0
/*
 * null.c - kernels that compute nothing
 *
 * For measuring what is around a model: scheduler, daemon, sampler, text,
 * HTTP.  A table without operations: who has it calls none, writes no KV, and
 * makes its logits up (runtime/model/null.c).  Blocks hold whatever they held,
 * so the name, which is part of every identity, keeps them from all others.
 */
#include "kernels/cpu/internal.h"
#include "kernels/impl.h"

const struct kern_ops kern_ops_null = {
	.name		= "null",
	.variant	= "none",
	.version	= KERN_NUMERICS_VERSION,
	.kv_types	= ~0u,
};
