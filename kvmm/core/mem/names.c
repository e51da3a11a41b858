// SPDX-License-Identifier: Apache-2.0
/*
 * names.c - the shell hears of names of the index and their tiers
 *
 * One byte for each node says which place of its name the shell was told last.  A
 * change of a name compares its place with that byte, and gives the shell a record if
 * they differ.  So each function that may change a place just has it looked at.  The
 * bytes are memory of the shell, and no decision depends on them.
 *
 * The names that are there when the shell attaches, or when a record was lost, are told
 * some at a time, by core_names_go_on().  It follows the nodes by number and tells the
 * untold ancestors of a name before it.  A name that is new meanwhile is told at once if
 * its parent was told, else it is left to the next round.  So the shell always knows a
 * part of the tree that has no gaps.
 */
#include "kvmm/core/mem/mem.h"
#include "kvmm/core/names.h"

#define TOLD_PLACE	3u	/* bits of CORE_PLACE_* */
#define TOLD_SALTED	BIT(2)

#define PATH_MOST	64u	/* names told in one call */
#define SCAN_MOST	2048u	/* nodes looked at in one call */

#define MIX_SERIAL	0x9e3779b97f4a7c15ull
#define MIX_1		0xbf58476d1ce4e5b9ull
#define MIX_2		0x94d049bb133111ebull

static_assert(NR_CORE_PLACES - 1 <= TOLD_PLACE, "a place fits its bits");

/* core_names_bytes() - bytes of the shell that core_names_attach() wants */
u64 core_names_bytes(const struct core *c)
{
	return sizeof(struct core_names) + core_sizes(c)->nr_nodes;
}

/**
 * core_names_attach() - tell the shell of names from now on
 * @mem: core_names_bytes() zeroed bytes, for as long as the core lives
 * @ops: functions that get @arg, for as long as the core lives
 *
 * Context: after core_init() or core_adopt().
 */
void core_names_attach(struct core *c, void *mem, const struct core_names_ops *ops,
		       void *arg)
{
	c->names = mem;
	c->names->ops = ops;
	c->names->arg = arg;
	c->names->lost = true;
}

/* core_names_again() - tell all names anew, as to a shell that knows none */
void core_names_again(struct core *c)
{
	if (c->names)
		c->names->lost = true;
}

/* core_names_unfinished() - has core_names_go_on() work to do? */
bool core_names_unfinished(const struct core *c)
{
	return c->names && (c->names->lost || c->names->walks);
}

/* ---- a record ---- */

/* 64 bits of a name of 128, mixed with the domain: two domains may share an identity. */
static u64 name_hash(const struct core *c, u32 ref)
{
	const u64 *name = index_name(c, ref);
	u64 x = name[0] + (c->domains[index_domain(c, ref)].serial + 1ull) * MIX_SERIAL;

	x = (x ^ x >> 30) * MIX_1;
	x = (x ^ x >> 27) * MIX_2;
	x = (x ^ x >> 31) ^ name[1];
	return x ?: 1;
}

/* The place of a name that @ref holds. */
static u32 place_of(const struct core *c, u32 ref)
{
	if (!(ref & REF_ENTRY))
		return CORE_PLACE_DEVICE;
	/* A copy to the host pool counts when it begins. */
	return (c->entries_low[ref & ~REF_ENTRY].flags & (ENTF_HOST | ENTF_AREA)) == ENTF_AREA ?
	       CORE_PLACE_AREA : CORE_PLACE_HOST;
}

/* Does a name without a parent belong to a prompt with a salt? */
static bool root_is_salted(const struct core *c, u32 ref)
{
	const struct kv_domain *d = &c->domains[index_domain(c, ref)];
	const u64 *name = index_name(c, ref);
	u64 hash[2];

	if (index_group(c, ref))
		return false;
	index_root(c, d, 0, 0, hash);
	index_chain(c, d, 0, hash, index_ids(c, ref), hash);
	return hash[0] != name[0] || hash[1] != name[1];
}

static bool node_is_salted(const struct core *c, u32 node)
{
	const u8 *told = c->names->told;
	u32 parent = c->nodes[node].parent;

	if (told[node])
		return told[node] & TOLD_SALTED;
	if (parent != CORE_NONE)
		return told[parent] & TOLD_SALTED;
	return root_is_salted(c, c->nodes[node].ref);
}

static void name_fill(const struct core *c, u32 node, struct core_name *n)
{
	const u32 ref = c->nodes[node].ref, parent = c->nodes[node].parent;
	const struct kv_domain *d = &c->domains[index_domain(c, ref)];
	const struct kvmm_group *g = &d->group[index_group(c, ref)];

	if (parent != CORE_NONE)
		n->parent = name_hash(c, c->nodes[parent].ref);
	n->salted = node_is_salted(c, node);
	n->nr_ids = g->block_tokens;
	n->ids = index_ids(c, ref);
}

/* Give the shell the record of a name that is at @place.  False: it is lost. */
static bool name_put(struct core *c, u32 node, u32 place)
{
	struct core_names *names = c->names;
	const u32 ref = c->nodes[node].ref, group = index_group(c, ref);
	const struct kv_domain *d = &c->domains[index_domain(c, ref)];
	struct core_name n = {
		.hash	= name_hash(c, ref),
		.name	= d->name,
		.domain	= index_domain(c, ref),
		.serial	= d->serial,
		.group	= group,
		.kind	= d->group[group].kind,
		.window	= d->group[group].window,
		.from	= names->told[node] & TOLD_PLACE,
		.to	= place,
	};

	if (place != CORE_PLACE_NONE)
		name_fill(c, node, &n);
	if (!names->ops->put(names->arg, &n)) {
		names->lost = true;
		core_count(c, CORE_EV_kv_event_lost, 1);
		return false;
	}
	names->told[node] = (u8)(place | (n.salted ? TOLD_SALTED : 0));
	core_count(c, CORE_EV_kv_event, 1);
	return true;
}

/* Is a name without an untold ancestor? */
static bool parent_is_told(const struct core *c, u32 node)
{
	u32 parent = c->nodes[node].parent;

	return parent == CORE_NONE || c->names->told[parent];
}

/* names_look() - the place of a name may have changed; see names_settle() */
void names_look(struct core *c, u32 node)
{
	struct core_names *n = c->names;
	u32 place = place_of(c, c->nodes[node].ref);

	if ((n->told[node] & TOLD_PLACE) == place)
		return;
	if (n->lost)
		core_count(c, CORE_EV_kv_event_lost, n->begun);
	else if (n->told[node] || parent_is_told(c, node))
		(void)name_put(c, node, place);
	else
		n->missed = true;
}

/* names_gone() - a name is about to leave the index */
void names_gone(struct core *c, u32 node)
{
	struct core_names *n = c->names;

	if (!n || !n->told[node])
		return;
	if (n->lost)
		core_count(c, CORE_EV_kv_event_lost, 1);
	else
		(void)name_put(c, node, CORE_PLACE_NONE);
	n->told[node] = 0;
}

/* names_fault() - is the shell told another place of a node than the true one? */
bool names_fault(const struct core *c, u32 node)
{
	const struct core_names *n = c->names;
	const u32 ref = c->nodes[node].ref;
	u32 place = ref == CORE_NONE ? CORE_PLACE_NONE : place_of(c, ref);

	if (!n || n->lost)
		return false;
	if (n->told[node] || !n->walks)
		return (n->told[node] & TOLD_PLACE) != place;
	return false;
}

/* ---- all names ---- */

/* Tell that no name is known. */
static bool names_begin(struct core *c)
{
	struct core_names *n = c->names;

	if (!n->ops->room(n->arg) || !n->ops->put(n->arg, NULL))
		return false;
	memset(n->told, 0, core_sizes(c)->nr_nodes);
	n->begun = true;
	n->lost = false;
	n->walks = true;
	n->missed = false;
	n->next = 0;
	core_count(c, CORE_EV_kv_event_snapshot, 1);
	return true;
}

/*
 * Tell a name after its untold ancestors, @most of them at once.  Return: the number
 * of names told, at most @most: there may be more.
 */
static u32 names_path(struct core *c, u32 node, u32 most)
{
	u32 path[PATH_MOST], nr = 0, i, done;

	for (i = node; i != CORE_NONE && !c->names->told[i]; i = c->nodes[i].parent)
		path[nr++ % PATH_MOST] = i;
	for (done = 0; done < min(nr, most); done++) {
		i = path[(nr - 1 - done) % PATH_MOST];
		if (!name_put(c, i, place_of(c, c->nodes[i].ref)))
			return most;
	}
	return done;
}

/* The nodes from the last one on.  Return: is the round over? */
static bool names_round(struct core *c)
{
	struct core_names *n = c->names;
	u32 left = PATH_MOST, scan = SCAN_MOST;

	for (; n->next < core_sizes(c)->nr_nodes && scan--; n->next++) {
		if (n->told[n->next] || c->nodes[n->next].ref == CORE_NONE)
			continue;
		left -= names_path(c, n->next, left);
		if (!left)
			return false;
	}
	return n->next == core_sizes(c)->nr_nodes;
}

/**
 * core_names_go_on() - tell some of the names that the shell is still to hear of
 * Return: whether any were told or looked at.
 */
bool core_names_go_on(struct core *c)
{
	struct core_names *n = c->names;

	if (!core_names_unfinished(c))
		return false;
	if (n->lost)
		return names_begin(c);
	if (!n->ops->room(n->arg))
		return false;
	if (!names_round(c))
		return true;
	n->walks = n->missed;
	n->missed = false;
	n->next = 0;
	return true;
}
