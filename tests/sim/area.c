// SPDX-License-Identifier: Apache-2.0
/*
 * area.c - files that are swap areas at times, and the laws of lower tiers
 *
 * A file is switched on and off at any time: under the index that is free, and
 * with another size, priority and speed each time.  It keeps the content of the
 * last time.  So if the core believes a slot that it has not written since, the
 * slot's header gives the fault away.  Switching off is refused while slots are
 * in use.  No new slot may be filled then, the blocks in it move elsewhere, and
 * the operator tries again.  An operator who does not wait gives the content up:
 * then only requests in flight may delay the end of the area.
 *
 * Law 1 for lower tiers: the bytes that the core has in limbo are exactly the
 * bytes that requests in flight are to fill, and no slot is used without need.
 */
#include "tests/sim/sim.h"

/* ---- on and off ---- */

static void area_on(struct sim *w, struct sim_file *f)
{
	u64 pages = w->cfg.area_bytes / SIM_PAGE, i;
	int prio = (int)rng_below(&w->rng, 3) - 1, err;
	bool ok;

	f->bytes = w->cfg.area_bytes;
	if (rng_chance(&w->rng, 400))
		f->bytes = rng_below(&w->rng, 2 * (u32)w->cfg.area_bytes);
	ok = f->bytes >= w->cfg.extent_size;
	f->leaving = false;
	f->lag = rng_chance(&w->rng, 500) ? 0 :
		 rng_below(&w->rng, 50) * SIM_MS;
	for (i = 0; i < pages; i++)
		f->head[i].damaged = false;
	/* The core may write to the area before the call is over. */
	err = core_area_add(w->core, w->now, f->bytes, prio, &f->index);
	LOG(w, "swapon file %u of %llu bytes, priority %d: %d, area %u",
	    (u32)(f - w->file), (unsigned long long)f->bytes, prio, err,
	    f->index);
	LAW(w, err == (ok ? 0 : -EINVAL), "swapon of %llu bytes: %d",
	    (unsigned long long)f->bytes, err);
	if (err)
		return;
	LAW(w, f->index < CORE_MAX_AREAS, "area %u", f->index);
	for (i = 0; i < w->plan.nr_files; i++)
		LAW(w, &w->file[i] == f || w->file[i].index != f->index,
		    "area %u is given out twice", f->index);
}

/* Try to switch a file off. */
void area_try_off(struct sim *w, struct sim_file *f)
{
	u32 i;
	int err = core_area_del(w->core, w->now, f->index);

	LOG(w, "swapoff area %u: %d", f->index, err);
	LAW(w, !err || err == -EBUSY, "swapoff of area %u: %d", f->index, err);
	f->leaving = true;
	if (err) {
		cover_note("swapoffs while something was left");
		return;
	}
	for (i = 0; i < w->nr_moves; i++)
		LAW(w, w->moves[i].copy || w->file[w->moves[i].file].index !=
		    f->index, "area %u is off while a request names it",
		    f->index);
	f->index = CORE_NONE;
	cover_note("swapoffs");
}

/* Is a request in flight that names the file? */
static bool area_busy(const struct sim *w, const struct sim_file *f)
{
	u32 i;

	for (i = 0; i < w->nr_moves; i++)
		if (!w->moves[i].copy && &w->file[w->moves[i].file] == f)
			return true;
	return false;
}

/* Switch a file off without waiting for its content. */
static void area_give_up(struct sim *w, struct sim_file *f)
{
	u32 area = f->index;
	bool busy;

	f->leaving = true;
	core_area_lose(w->core, w->now, area);
	cover_note("swapoffs that gave up what was left");
	busy = area_busy(w, f);
	area_try_off(w, f);
	LAW(w, busy || f->index == CORE_NONE,
	    "swapoff of area %u waits for what was given up", area);
}

/* Most areas are there from the start. */
void areas_start(struct sim *w)
{
	u32 i;

	for (i = 0; i < w->plan.nr_files; i++)
		if (rng_chance(&w->rng, 700))
			area_on(w, &w->file[i]);
}

/* Switch a file on or off. */
void area_act(struct sim *w)
{
	struct sim_file *f = &w->file[rng_below(&w->rng, w->plan.nr_files)];

	if (f->index == CORE_NONE) {
		area_on(w, f);
		return;
	}
	/* No area that is leaving stays for long. */
	if (rng_chance(&w->rng, f->leaving ? 150 : 50))
		area_give_up(w, f);
	else if (f->leaving || rng_chance(&w->rng, 400))
		area_try_off(w, f);
	else
		LAW(w, core_area_del(w->core, w->now, CORE_MAX_AREAS) ==
		    -ENOENT, "swapoff of an area that is not there");
}

/* ---- laws ---- */

/* Bytes of the slot that a request names, with its header. */
static u64 slot_bytes(const struct sim_move *m)
{
	return CORE_SLOT_HEADER + ALIGN_UP(m->bytes * m->nr_shards, (u64)SIM_PAGE);
}

static void check_tier(struct sim *w, u32 pool)
{
	u32 i, ios = 0, file = CORE_NONE;
	struct core_tier_view v;
	u64 limbo = 0, given_up = 0;
	int err = core_get_tier(w->core, pool, &v);

	for (i = 0; pool >= CORE_POOL_AREA && i < w->plan.nr_files; i++)
		if (w->file[i].index == pool - CORE_POOL_AREA)
			file = i;
	if (pool == CORE_POOL_HOST ? !w->cfg.host_bytes : file == CORE_NONE) {
		LAW(w, err == -ENOENT, "tier %u is there: %d", pool, err);
		return;
	}
	LAW(w, !err, "tier %u is not there: %d", pool, err);
	for (i = 0; i < w->nr_moves; i++) {
		const struct sim_move *m = &w->moves[i];

		if (pool == CORE_POOL_HOST) {
			/* The request fills the host pool, from below or from above. */
			limbo += m->copy == m->down ? slot_bytes(m) : 0;
		} else if (!m->copy && m->file == file) {
			limbo += m->down ? slot_bytes(m) : 0;
			given_up += m->down ? 0 : slot_bytes(m);
			ios++;
		}
	}
	/* The slot of an overdue read stays in limbo until the answer. */
	LAW(w, v.limbo >= limbo && v.limbo - limbo <=
	    (v.nr_overdue ? given_up : 0), "law 1: tier %u: %llu bytes in limbo, requests in flight fill %llu",
	    pool, (unsigned long long)v.limbo, (unsigned long long)limbo);
	LAW(w, v.nr_overdue <= ios, "law 1: tier %u: %u overdue, %u are in flight",
	    pool, v.nr_overdue, ios);
	LAW(w, v.nr_ios == ios, "law 1: tier %u: %u requests, %u are in flight",
	    pool, v.nr_ios, ios);
	LAW(w, v.used + v.limbo + v.poison <= v.total,
	    "law 1: tier %u: %llu bytes used, %llu in limbo, %llu poisoned of %llu",
	    pool, (unsigned long long)v.used, (unsigned long long)v.limbo,
	    (unsigned long long)v.poison, (unsigned long long)v.total);
}

/* Check all lower tiers, after every event. */
void laws_tiers(struct sim *w)
{
	u32 i;

	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++)
		check_tier(w, i);
}

/*
 * Attach to the domain's name with another model, which drops its cache on all
 * tiers, and detach again.
 */
static void domain_forget(struct sim *w, u32 dom)
{
	struct sim_client *cl;
	int id;

	w->dom[dom].req.identity[1] = 0xff;
	w->dom[dom].req.limits[0].max = KVMM_LIMIT_MAX;
	id = shell_attach_alone(w, dom);
	/* A tenant keeps its record while it has a lingering client. */
	if (id == -ENOSPC && ghosts_end(w))
		id = shell_attach_alone(w, dom);
	LAW(w, id >= 0, "law 7: domain %u cannot be taken over: %d", dom, id);
	world_event_done(w);
	cl = &w->cl[id];
	client_act_detach(w, cl);
	world_event_done(w);
	shell_dead(w, cl);
	world_event_done(w);
	shell_quiet(w, cl);
	world_event_done(w);
}

/**
 * laws_tiers_final() - law 7: without users and cache, all slots are free
 */
void laws_tiers_final(struct sim *w)
{
	struct core_tier_view v;
	u32 i;

	for (i = 0; i < w->plan.nr_domains; i++)
		domain_forget(w, i);
	LAW(w, !w->nr_moves, "law 7: %u requests are in flight", w->nr_moves);
	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++) {
		if (core_get_tier(w->core, i, &v))
			continue;
		LAW(w, !v.used && !v.limbo, "law 7: tier %u: %llu bytes are used in the end, %llu in limbo",
		    i, (unsigned long long)v.used,
		    (unsigned long long)v.limbo);
	}
	for (i = 0; i < w->plan.nr_files; i++) {
		if (w->file[i].index == CORE_NONE)
			continue;
		area_try_off(w, &w->file[i]);
		LAW(w, w->file[i].index == CORE_NONE,
		    "law 7: area %u does not go in the end",
		    w->file[i].index);
		world_event_done(w);
	}
}
