// SPDX-License-Identifier: Apache-2.0
/*
 * resize.c - an operator makes the device pool smaller and larger
 *
 * Under load the pool is never made smaller than the longest open sequence, so
 * law 6 holds for every sequence all the time (check_core_resize covers smaller
 * pools).  Extents that leave must not be created.  When no client is left that
 * could hold one, all of them must have gone.  A seed with two device pools resizes
 * none (check_core_zones does).
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

/* Extents that the pool must have: each open sequence fits alone. */
static u32 extents_needed(const struct sim *w)
{
	u64 need = 1;
	u32 i, n;

	for (i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_client *cl = &w->cl[i];

		if (cl->state == SIM_NONE)
			continue;
		need = max(need, extents_for(w, cl, 0));
		for (n = 0; n < SIM_SEQS; n++)
			if (cl->seqs[n].used)
				need = max(need, extents_for(w, cl,
					   (u64)cl->seqs[n].prompt_len +
					   cl->seqs[n].max_tokens));
	}
	return (u32)min(need, (u64)w->nr_extents);
}

static void resize_to(struct sim *w, u32 nr)
{
	u64 more = rng_below(&w->rng, (u32)w->cfg.extent_size);
	u64 bytes = nr * w->cfg.extent_size;
	int err;

	if (nr < w->nr_online)
		cover_note("pools made smaller");
	else if (nr > w->nr_online)
		cover_note(resize_goes_on(w) ? "pools made larger while they shrink" :
					       "pools made larger");
	LOG(w, "operator: a pool of %u extents", nr);
	/* The core asks for memory in this very event. */
	w->nr_online = nr;
	err = core_pool_resize(w->core, w->now, 0,
			       bytes < w->cfg.pool_bytes ? bytes + more : bytes);
	LAW(w, !err, "a pool of %u of %u extents: %d", nr, w->nr_extents, err);
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
	u32 need = extents_needed(w);

	if (w->zone_extents[1])
		return;
	if (rng_chance(&w->rng, 50))
		resize_refused(w);
	if (rng_chance(&w->rng, 300))
		resize_to(w, w->nr_extents);
	else
		resize_to(w, rng_range(&w->rng, need, w->nr_extents));
}

/* Is an extent that is to leave still there? */
bool resize_goes_on(const struct sim *w)
{
	struct core_pool_view p;

	core_get_pool(w->core, &p);
	LAW((struct sim *)w, p.nr_online == w->nr_online, "a pool of %u extents, should be %u",
	    p.nr_online, w->nr_online);
	return p.resizing;
}

/* Give the pool its full size again. */
void resize_restore(struct sim *w)
{
	if (w->nr_online != w->nr_extents)
		resize_to(w, w->nr_extents);
}

/* Shrink the pool to one extent; no client is left. */
void resize_to_least(struct sim *w)
{
	if (w->zone_extents[1])
		return;
	resize_to(w, 1);
}

/* All extents that were to leave have left. */
void resize_check_done(struct sim *w)
{
	struct core_pool_view p;

	core_get_pool(w->core, &p);
	LAW(w, !p.resizing && p.offline == (w->nr_extents - w->nr_online) *
					   w->cfg.extent_size,
	    "law 6: of %u extents that leave %llu have",
	    w->nr_extents - w->nr_online,
	    (unsigned long long)(p.offline / w->cfg.extent_size));
}
