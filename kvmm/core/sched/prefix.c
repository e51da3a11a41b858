// SPDX-License-Identifier: Apache-2.0
/*
 * prefix.c - the blocks of a prefix in all layer groups of a domain
 *
 * A hit needs all blocks of the groups without a window, and of the others the last
 * window.  Group 0 has no window, so its blocks tell the ids and the names of the whole
 * prefix.  From the name of a prefix the blocks of such a group are found by parents,
 * and those of a window by the names that the blocks of group 0 give.  So a prefix that
 * was found once need not be hashed again, and the client need not send its ids.
 *
 * The references are in c->scratch; CORE_NONE: the block is not there.
 */
#include "kvmm/core/sched/sched.h"

#define WORK_CLIMB	3u	/* of a step up the prefix index, see core_work() */

/* The first block of group 0 that tells ids and names of the windows before @len. */
static u32 first_teller(const struct kv_domain *d, u32 len)
{
	u32 bt = d->group[0].block_tokens, first = len / bt, g, from;

	for (g = 1; g < d->nr_groups; g++) {
		from = group_first(d, g, len) * d->group[g].block_tokens / bt;
		if (d->group[g].window)
			first = min(first, from - min(from, 1u));
	}
	return first;
}

/* The first block of a group that a lookup from @from tokens on needs. */
static u32 first_block(const struct kv_domain *d, u32 g, u32 from)
{
	if (!g)
		return first_teller(d, from);
	return d->group[g].window ? group_first(d, g, from) :
				    from / d->group[g].block_tokens;
}

/**
 * prefix_places() - give the blocks of a prompt places in c->scratch
 * @from: tokens before the first block that is looked up; also the blocks of the windows
 *        before it get places
 * @to:   tokens of the prompt; less if there are too few places
 *
 * Both are multiples of hit_tokens.
 * Return: tokens of the prompt whose blocks have places.
 */
u32 prefix_places(const struct core *c, struct prefix *p, u32 from, u32 to)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u32 g, units = (to - from) / d->hit_tokens;
	u64 nr;

	for (;; units /= 2) {
		to = from + units * d->hit_tokens;
		for (g = 0, nr = 0; g < d->nr_groups; g++) {
			u32 first = first_block(d, g, from);

			p->at[g] = (u32)nr - first;
			nr += to / d->group[g].block_tokens - first;
		}
		if (nr <= core_sizes(c)->nr_scratch || !units)
			return nr <= core_sizes(c)->nr_scratch ? to : from;
	}
}

/**
 * prefix_climb() - find the blocks of a group without a window by their parents
 * @name: name of the prefix that has @len tokens, as group 0 has it
 * @low:  index of the first block that is wanted
 * @most: blocks from this index on get no place
 *
 * Return: false: the prefix is not in the index.
 */
bool prefix_climb(struct core *c, const struct prefix *p, u32 g, const u64 *name,
		  u32 len, u32 low, u32 most)
{
	u32 i = len / c->domains[p->dom].group[g].block_tokens, node;
	u64 hash[2] = { name[0], name[1] };

	if (i <= low)
		return true;
	index_mix(g, hash);
	node = index_find_node(c, p->dom, hash);
	core_work(c, WORK_CLIMB * (i - low));
	for (; i > low && node != CORE_NONE; node = c->nodes[node].parent)
		if (--i < most)
			c->scratch[p->at[g] + i] = c->nodes[node].ref;
	return i == low && (low || node == CORE_NONE);
}

/**
 * prefix_name() - the name of the first tokens of a prefix
 * @len:  tokens, a multiple of base_tokens
 * @hash: takes the name, as group 0 has it
 *
 * The blocks of group 0 tell it: the one that ends there or before, and the next one.
 */
void prefix_name(const struct core *c, const struct prefix *p, u32 len, u64 *hash)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u32 bt = d->group[0].block_tokens, at = p->at[0] + len / bt, i;
	const u32 *ids;

	KV_BUG_ON(len % d->base_tokens);
	if (len < bt)
		index_root(c, d, p->salt, 0, hash);
	else
		memcpy(hash, index_name(c, c->scratch[at - 1]), 2 * sizeof(*hash));
	if (len % bt == 0)
		return;
	ids = index_ids(c, c->scratch[at]);
	for (i = 0; i < len % bt; i += d->base_tokens)
		index_base(c, d, hash, ids + i, hash);
}

/* The ids of @nr tokens from @from on; the blocks of group 0 have them. */
static void prefix_ids(const struct core *c, const struct prefix *p, u32 from, u32 nr,
		       u32 *ids)
{
	u32 bt = c->domains[p->dom].group[0].block_tokens, take;

	for (; nr; nr -= take, from += take, ids += take) {
		take = min(nr, bt - from % bt);
		memcpy(ids, index_ids(c, c->scratch[p->at[0] + from / bt]) + from % bt,
		       sizeof(*ids) * take);
	}
}

/* Look up one block of a group.  @name: of the prefix that ends with it. */
static u32 prefix_look(const struct core *c, const struct prefix *p, u32 g,
		       const u64 *name, const u32 *ids)
{
	u64 hash[2] = { name[0], name[1] };
	u32 ref;

	index_mix(g, hash);
	ref = index_lookup(c, p->dom, g, hash, ids);
	return ref != CORE_NONE && p->usable(c, ref) ? ref : CORE_NONE;
}

/**
 * prefix_windows() - look up the windows before @len
 *
 * The blocks of group 0 are in their places, from that of first_teller() on.
 */
void prefix_windows(struct core *c, const struct prefix *p, u32 len)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u32 g, i, bt;
	u64 name[2];

	for (g = 1; g < d->nr_groups; g++) {
		bt = d->group[g].block_tokens;
		for (i = group_first(d, g, len); d->group[g].window && i < len / bt; i++) {
			core_work(c, work_name(bt));
			prefix_name(c, p, (i + 1) * bt, name);
			prefix_ids(c, p, i * bt, bt, c->prompt);
			c->scratch[p->at[g] + i] = prefix_look(c, p, g, name, c->prompt);
		}
	}
}

/**
 * prefix_resume() - find the blocks of the prefix that a lookup from @len tokens on needs
 * @name: of the prefix
 *
 * Return: false: the prefix is not in the index.
 */
bool prefix_resume(struct core *c, const struct prefix *p, const u64 *name, u32 len)
{
	u32 low = first_teller(&c->domains[p->dom], len);

	if (!prefix_climb(c, p, 0, name, len, low, CORE_NONE))
		return false;
	prefix_windows(c, p, len);
	return true;
}

/**
 * prefix_step() - look up the blocks that end with the first @len tokens of a prompt
 * @name: their name, as group 0 has it
 * @end:  the ids end here
 *
 * Return: false: a group without a window lacks its block, so no longer prefix exists.
 */
bool prefix_step(struct core *c, const struct prefix *p, u32 len, const u64 *name,
		 const u32 *end)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u32 g, bt, ref;

	for (g = 0; g < d->nr_groups; g++) {
		bt = d->group[g].block_tokens;
		if (len % bt)
			continue;
		ref = prefix_look(c, p, g, name, end - bt);
		if (ref == CORE_NONE && !d->group[g].window)
			return false;
		c->scratch[p->at[g] + len / bt - 1] = ref;
	}
	return true;
}

/* The longest length up to @len that does not need a block of @g that is not there. */
static u32 window_hit(const struct core *c, const struct prefix *p, u32 g, u32 len)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u32 bt = d->group[g].block_tokens, i;

	for (i = len / bt; i-- > group_first(d, g, len);)
		if (c->scratch[p->at[g] + i] == CORE_NONE)
			return i * bt / d->hit_tokens * d->hit_tokens;
	return len;
}

/**
 * prefix_reach() - are all blocks of the last windows before @len there?
 *
 * Return: @len; else a length that does not need the blocks that are not there.  Nothing
 * between the two is a hit.
 */
u32 prefix_reach(const struct core *c, const struct prefix *p, u32 len)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u32 g, least = len;

	for (g = 1; g < d->nr_groups; g++)
		if (d->group[g].window)
			least = min(least, window_hit(c, p, g, len));
	return least;
}

/**
 * prefix_hit() - the longest length before which each group with a window has it
 * @from: lengths up to this one are not looked at
 * @to:   the longest length
 *
 * Return: 0: there is none.
 */
u32 prefix_hit(struct core *c, const struct prefix *p, u32 from, u32 to)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u32 g, len = to;
	bool less;

	do {
		less = false;
		for (g = 1; g < d->nr_groups; g++) {
			if (!d->group[g].window)
				continue;
			while (len > from && (to = window_hit(c, p, g, len)) < len) {
				core_work(c, (len - to) / d->hit_tokens);
				len = to;
				less = true;
			}
		}
	} while (less && len > from);
	return len > from ? len : 0;
}
