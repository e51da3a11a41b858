// SPDX-License-Identifier: Apache-2.0
/*
 * names.c - a shell hears of the names of the index, or not
 *
 * The runs that record hear of names, too.  A mirror has each name that was told.  A
 * record must fit to it: a name is told after its parent, moves from the place that it
 * had, and goes after the names that follow it.  Now and then there is no room for a
 * record; then all must be told anew.  The walkers compare places with the true ones.
 */
#include <stdlib.h>

#include "kvmm/core/names.h"
#include "tests/sim/sim.h"

#define SLOTS		(1u << 17)
#define REFUSE_EACH	1009u	/* records until one finds no room */

/* A name that was told; @place is NONE: it is gone. */
struct told {
	u64	hash;
	u64	parent;
	u32	place;
	u32	kids;
};

static struct {
	struct sim	*w;
	struct told	*slot;
	void		*mem;
	u64		mem_bytes;
	u64		nr_put;
	u32		nr;
	u32		used;
	bool		cleared;
} mirror;

static struct told *find(u64 hash)
{
	u32 i = (u32)(hash % SLOTS);

	while (mirror.slot[i].hash && mirror.slot[i].hash != hash)
		i = (i + 1) % SLOTS;
	return &mirror.slot[i];
}

static struct told *find_new(struct sim *w, u64 hash)
{
	struct told *t = find(hash);

	if (!t->hash) {
		LAW(w, ++mirror.used < SLOTS - 1, "%u names are too many for the mirror",
		    mirror.used);
		t->hash = hash;
	}
	return t;
}

static void mirror_clear(void)
{
	memset(mirror.slot, 0, SLOTS * sizeof(*mirror.slot));
	mirror.nr = 0;
	mirror.used = 0;
}

/* A name that the shell did not know. */
static void told_new(struct sim *w, const struct core_name *n, struct told *t)
{
	struct told *up;

	LAW(w, n->ids && n->nr_ids, "name %llx without ids", (unsigned long long)n->hash);
	t->parent = n->parent;
	mirror.nr++;
	if (!n->parent)
		return;
	up = find(n->parent);
	LAW(w, up->hash && up->place, "name %llx before its parent",
	    (unsigned long long)n->hash);
	up->kids++;
}

static bool mirror_put(void *arg, const struct core_name *n)
{
	struct sim *w = mirror.w;
	struct told *t;

	if (++mirror.nr_put % REFUSE_EACH == w->seed % REFUSE_EACH)
		return false;
	if (!n) {
		mirror_clear();
		mirror.cleared = true;
		return true;
	}
	LAW(w, mirror.cleared && n->hash && n->from != n->to, "name %llx from %u to %u",
	    (unsigned long long)n->hash, n->from, n->to);
	t = find_new(w, n->hash);
	LAW(w, t->place == n->from, "name %llx was at %u, not %u",
	    (unsigned long long)n->hash, t->place, n->from);
	t->place = n->to;
	if (!n->from)
		told_new(w, n, t);
	if (n->to)
		return true;
	LAW(w, !t->kids, "name %llx goes before %u that follow it",
	    (unsigned long long)n->hash, t->kids);
	mirror.nr--;
	if (t->parent)
		find(t->parent)->kids--;
	return true;
}

static bool mirror_room(void *arg)
{
	return mirror.nr_put % 7;
}

/* names_start() - hear of the names of a core that has just begun, if this run records */
void names_start(struct sim *w)
{
	static const struct core_names_ops ops = { .put = mirror_put, .room = mirror_room };
	u64 bytes = core_names_bytes(w->core);

	if (!w->recording)
		return;
	if (bytes > mirror.mem_bytes) {
		free(mirror.mem);
		mirror.mem = malloc(bytes);
		mirror.mem_bytes = bytes;
	}
	if (!mirror.slot)
		mirror.slot = malloc(SLOTS * sizeof(*mirror.slot));
	LAW(w, mirror.slot && mirror.mem, "no memory for names");
	memset(mirror.mem, 0, bytes);
	mirror_clear();
	mirror.w = w;
	mirror.nr_put = w->seed;
	mirror.cleared = false;
	core_names_attach(w->core, mirror.mem, &ops, NULL);
}

/* names_event() - go on after an event, as a shell does */
void names_event(struct sim *w)
{
	if (!w->recording)
		return;
	/* A shell without room waits; this one has room at its next look. */
	mirror.nr_put++;
	(void)core_names_go_on(w->core);
}

/* names_check() - the mirror has as many names as the index */
void names_check(struct sim *w)
{
	struct core_domain_view v;
	u32 i;

	if (!w->recording)
		return;
	for (i = 0; i < 100000 && core_names_unfinished(w->core); i++)
		names_event(w);
	LAW(w, !core_names_unfinished(w->core), "names are never told to their end");
	for (i = 0; i < w->cfg.max_domains; i++)
		if (!core_get_domain(w->core, i, &v) && v.blocks[CORE_BLK_CACHED])
			LAW(w, mirror.nr, "%u names are told, and blocks are cached", mirror.nr);
}
