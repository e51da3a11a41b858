// SPDX-License-Identifier: Apache-2.0
/*
 * adapters_fit.c - does a request fit beside its adapter?
 *
 * The daemon refuses a sequence that its domain can never hold.  It judges the sequence of a
 * request and that of the adapter one by one, but a step needs both at once.  Were they opened
 * in a pool that holds only one of them, each would wait for the memory of the other, for ever.
 */
#include "runtime/engine/internal.h"

/* Extents of the pool that @blocks of a domain take. */
static u64 extents_of(const struct kvmm_attach_rep *rep, u64 blocks)
{
	return DIV_ROUND_UP(blocks, (u64)rep->span_blocks) * rep->span_extents;
}

int adapters_fit(const struct engine *e, const struct engine_request *c, struct engine_error *err)
{
	const struct adapters *a = &e->adapters;
	const struct kvmm_attach_rep *kv = kvmm_info(e->k), *lora;
	u64 len, both;

	if (!c->adapter)
		return 0;
	lora = kvmm_info(a->k);
	if (lora->pool != kv->pool)
		return 0;
	len = (u64)c->nr + min(c->max_new, e->info->max_len - c->nr) - 1;
	both = extents_of(lora, adapter_blocks(c->adapter, a->block_bytes)) +
	       extents_of(kv, engine_seq_blocks(e->group, e->info->nr_groups, kv->block_bytes,
						e->chunk, len));
	if (both <= kv->pool_extents)
		return 0;
	return engine_refuse(err, -E2BIG, "%u prompt tokens, up to %u new ones and the adapter need %llu KiB of memory, the pool has %llu: ask for fewer tokens, or give the pool more",
			     c->nr, min(c->max_new, e->info->max_len - c->nr),
			     (unsigned long long)(both * kv->extent_size >> 10),
			     (unsigned long long)(kv->pool_extents * kv->extent_size >> 10));
}
