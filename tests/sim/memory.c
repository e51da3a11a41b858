// SPDX-License-Identifier: Apache-2.0
/*
 * memory.c - the memory behind the extents
 *
 * The pool's memory is an array of cells, one for each min_token_bytes.  A
 * device that writes a token's KV writes a hash into the token's cell: the hash
 * of all that the KV was computed from.  A reader compares it.  Memory that was
 * just made holds garbage, which differs in every cell and each time.
 *
 * Every access goes through mem_block(), which asserts that the client has
 * mapped the extents in their present generation.
 */
#include "tests/sim/sim.h"

/* Fill fresh memory with values that no reader expects. */
void mem_garbage(struct sim *w, u32 extent)
{
	u64 per = w->cfg.extent_size / w->cfg.min_token_bytes;
	u64 *cell = w->cell + extent * per;
	u64 seed = mix2(extent, w->ext[extent].generation), i;

	for (i = 0; i < per; i++)
		cell[i] = ~(seed + i * 0x9e3779b97f4a7c15ull);
}

/**
 * mem_block() - the cells of the block that a table entry names
 * @entry: as read from a shadow table or a result
 * @why:   purpose of the access, for the report
 *
 * Return: block_tokens cells.
 */
u64 *mem_block(struct sim *w, const struct sim_client *cl, u32 entry,
	       const char *why)
{
	u64 off = (u64)entry * cl->info.unit;
	u64 end = off + cl->info.block_bytes;
	u32 e;

	LAW(w, entry != KVMM_NO_INDEX, "client %u: %s: no block in the table",
	    cl->id, why);
	LAW(w, end <= w->cfg.pool_bytes,
	    "client %u: %s: entry %u is outside the pool", cl->id, why, entry);
	for (e = (u32)(off / w->cfg.extent_size);
	     e * w->cfg.extent_size < end; e++)
		LAW(w, w->ext[e].exists &&
		    cl->mapped[e] == w->ext[e].generation,
		    "client %u: %s: extent %u is not mapped by it (exists %d, generation %u, acknowledged %u)",
		    cl->id, why, e, w->ext[e].exists, w->ext[e].generation,
		    cl->mapped[e]);
	return w->cell + off / w->cfg.min_token_bytes;
}
