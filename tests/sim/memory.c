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
 *
 * A block of a domain with two shards has a part in each device pool, at the same
 * offset of both.  The second part holds another value for each token (SHARD), so that
 * a copy that forgets a part, or takes the wrong one, is found.
 */
#include "tests/sim/sim.h"

#define SHARD	0x5ca1ab1e0ddba11ull	/* the second part's values differ by this */

/* Fill fresh memory with values that no reader expects. */
void mem_garbage(struct sim *w, u32 extent)
{
	u64 per = w->cfg.extent_size / w->cfg.min_token_bytes;
	u64 *cell = w->cell + extent * per;
	u64 seed = mix2(extent, w->ext[extent].generation), i;

	for (i = 0; i < per; i++)
		cell[i] = ~(seed + i * 0x9e3779b97f4a7c15ull);
}

/* The process that writes a part of the client's blocks; NULL: it has ended. */
static const struct sim_client *mem_by(struct sim *w, const struct sim_client *cl, u32 shard)
{
	return cl->group ? shell_member(w, cl, shard) : cl;
}

static void mem_mapped(struct sim *w, const struct sim_client *cl, u32 e, const char *why)
{
	LAW(w, w->ext[e].exists && cl->mapped[e] == w->ext[e].generation,
	    "client %u: %s: extent %u is not mapped by it (exists %d, generation %u, acknowledged %u)",
	    cl->id, why, e, w->ext[e].exists, w->ext[e].generation, cl->mapped[e]);
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
	u32 e, i;

	LAW(w, entry != KVMM_NO_INDEX, "client %u: %s: no block in the table",
	    cl->id, why);
	LAW(w, end <= w->cfg.pool_bytes,
	    "client %u: %s: entry %u is outside the pool", cl->id, why, entry);
	for (i = 0; i < cl->info.shards; i++) {
		const struct sim_client *by = mem_by(w, cl, i);

		for (e = (u32)(off / w->cfg.extent_size);
		     by && e * w->cfg.extent_size < end; e++)
			mem_mapped(w, by, e + i * w->zone_extents[0], why);
	}
	return w->cell + off / w->cfg.min_token_bytes;
}

/*
 * The second part of a cell that mem_block() gave; NULL: the domain has one shard, or
 * the client's rank has ended.
 */
static u64 *mem_twin(struct sim *w, const struct sim_client *cl, const u64 *cell)
{
	u64 apart = w->zone_extents[0] * w->cfg.extent_size / w->cfg.min_token_bytes;

	return cl->info.shards > 1 && mem_by(w, cl, 1) ?
	       w->cell + (cell - w->cell) + apart : NULL;
}

/* mem_put() - write the value of a token, in each part of its block */
void mem_put(struct sim *w, const struct sim_client *cl, u64 *cell, u64 value)
{
	u64 *twin = mem_twin(w, cl, cell);

	if (mem_by(w, cl, 0))
		*cell = value;
	if (twin)
		*twin = value ^ SHARD;
}

/* mem_has() - does each part of the block hold the value of a token? */
bool mem_has(struct sim *w, const struct sim_client *cl, const u64 *cell, u64 value)
{
	const u64 *twin = mem_twin(w, cl, cell);

	return *cell == value && (!twin || *twin == (value ^ SHARD));
}

/* mem_copy() - copy the first @nr cells of a block, in each part */
void mem_copy(struct sim *w, const struct sim_client *cl, u64 *to, const u64 *from,
	      u32 nr)
{
	memcpy(to, from, nr * sizeof(*to));
	if (mem_twin(w, cl, to))
		memcpy(mem_twin(w, cl, to), mem_twin(w, cl, from), nr * sizeof(*to));
}
