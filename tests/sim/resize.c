// SPDX-License-Identifier: Apache-2.0
/*
 * resize.c - an operator makes a device pool smaller and larger
 *
 * Under load the pool is never made smaller than the longest open sequence, so
 * law 6 holds for every sequence all the time (check_core_resize covers smaller
 * pools).  Extents that leave must not be created.  When no client is left that
 * could hold one, all of them must have gone.
 */
#include "tests/sim/sim.h"

/* Extents that @tokens of a client take at most. */
static u64 extents_for(const struct sim *w, const struct sim_client *cl,
		       u64 tokens)
{
	u64 blocks = groups_most(w, cl, tokens);

	/* Only a part of a span's blocks may be promised. */
	if (w->cfg.overcommit == CORE_OVERCOMMIT_NEVER)
		blocks = DIV_ROUND_UP(blocks * 100,
				      (u64)w->cfg.overcommit_ratio);
	return max(DIV_ROUND_UP(blocks, (u64)cl->info.span_blocks), 1ull) *
	       cl->info.span_extents;
}

/* Has the client blocks in the pool? */
static bool uses_pool(const struct sim_client *cl, u32 pool)
{
	return pool - cl->info.pool < cl->info.shards;
}

/* Extents that a pool must have: each open sequence fits alone. */
static u32 extents_needed(const struct sim *w, u32 pool)
{
	u64 need = 1;
	u32 i, n;

	for (i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_client *cl = &w->cl[i];

		if (cl->state == SIM_NONE || !uses_pool(cl, pool))
			continue;
		need = max(need, extents_for(w, cl, 0));
		for (n = 0; n < SIM_SEQS; n++)
			if (cl->seqs[n].used)
				need = max(need, extents_for(w, cl,
					   (u64)cl->seqs[n].prompt_len +
					   cl->seqs[n].max_tokens));
	}
	return (u32)min(need, (u64)w->zone_extents[pool]);
}

static void resize_to(struct sim *w, u32 pool, u32 nr)
{
	u64 most = w->zone_extents[pool] * w->cfg.extent_size;
	u64 more = rng_below(&w->rng, (u32)w->cfg.extent_size);
	u64 bytes = nr * w->cfg.extent_size;
	int err;

	if (nr < w->zone_online[pool])
		cover_note("pools made smaller");
	else if (nr > w->zone_online[pool])
		cover_note(resize_goes_on(w) ? "pools made larger while they shrink" :
					       "pools made larger");
	LOG(w, "operator: pool %u gets %u extents", pool, nr);
	/* The core asks for memory in this very event. */
	w->zone_online[pool] = nr;
	err = core_pool_resize(w->core, w->now, pool,
			       bytes < most ? bytes + more : bytes);
	LAW(w, !err, "a pool of %u of %u extents: %d", nr, w->zone_extents[pool], err);
}

static void resize_refused(struct sim *w)
{
	LAW(w, core_pool_resize(w->core, w->now, 0, w->cfg.extent_size - 1) ==
	    -EINVAL, "a pool of nothing");
	LAW(w, core_pool_resize(w->core, w->now, 0, w->cfg.pool_bytes + 1) ==
	    -ERANGE, "a pool of more than there is");
}

/**
 * resize_act() - an operator resizes the pool
 */
void resize_act(struct sim *w)
{
	/* Not drawn where there is one pool: other seeds do not change. */
	u32 pool = w->zone_extents[1] ? rng_below(&w->rng, 2) : 0;
	u32 need = extents_needed(w, pool);

	if (rng_chance(&w->rng, 50))
		resize_refused(w);
	if (rng_chance(&w->rng, 300))
		resize_to(w, pool, w->zone_extents[pool]);
	else
		resize_to(w, pool, rng_range(&w->rng, need, w->zone_extents[pool]));
}

/* Extents of both pools, as the operator said. */
static u32 all_online(const struct sim *w)
{
	return w->zone_online[0] + w->zone_online[1];
}

/* Is an extent that is to leave still there? */
bool resize_goes_on(const struct sim *w)
{
	struct core_pool_view p;

	core_get_pool(w->core, &p);
	LAW((struct sim *)w, p.nr_online == all_online(w), "pools of %u extents, should be %u",
	    p.nr_online, all_online(w));
	return p.resizing;
}

/* Give the pools their full size again. */
void resize_restore(struct sim *w)
{
	u32 i;

	for (i = 0; i < 2; i++)
		if (w->zone_online[i] != w->zone_extents[i])
			resize_to(w, i, w->zone_extents[i]);
}

/* Shrink each pool to one extent; no client is left. */
void resize_to_least(struct sim *w)
{
	u32 i;

	for (i = 0; i < 2 && w->zone_extents[i]; i++)
		resize_to(w, i, 1);
}

/* All extents that were to leave have left. */
void resize_check_done(struct sim *w)
{
	struct core_pool_view p;

	core_get_pool(w->core, &p);
	LAW(w, !p.resizing && p.offline == (w->nr_extents - all_online(w)) *
					   w->cfg.extent_size,
	    "law 6: of %u extents that leave %llu have",
	    w->nr_extents - all_online(w),
	    (unsigned long long)(p.offline / w->cfg.extent_size));
}
