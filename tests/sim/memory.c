// SPDX-License-Identifier: Apache-2.0
/*
 * memory.c - what lies behind the extents
 *
 * The pool's memory is an array of cells, one for the least that a token may
 * take.  A device that writes a token's KV writes the hash of what it was
 * computed from into the token's cell; whoever reads compares.  Memory that
 * was just made holds garbage, another one in every cell and each time.
 *
 * Every access goes through mem_block(), which asserts that the client who
 * makes it has mapped the extents as they are now.
 */
#include "tests/sim/sim.h"

/* Fresh memory: nothing that anybody could expect. */
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
 * @why:   what for, for the report
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
