// SPDX-License-Identifier: Apache-2.0
/*
 * lookup.c - the tiers that have the prefix of a prompt
 *
 * A scheduler asks for each waiting prompt how much of it is cached, and where.
 * A match (match.c) tells that too, but only with an admission, which waits for
 * memory.  A lookup needs no sequence and no memory: it walks the prefix index,
 * answers, and is over.  It changes nothing but the order in which content is
 * dropped: the content that it found is the last to go of its list.  It is no
 * hit, so nothing is learned from it (lru.c).
 *
 * Content is found if a match could use it, now or when a copy or a read has ended.
 * Content that only a swap area has is found, too, although a match computes its
 * tokens again if that costs less than the read.  Content that is lost, or is in an
 * area that is stalled, is not found, nor are the blocks after it.
 *
 * A prompt may come in pieces.  The core keeps nothing between them: see
 * cookie.c.
 *
 * With several layer groups a block of the answer has hit_tokens tokens.  The groups
 * without a window decide how far the walk goes, because later pieces go on from there.
 * The answer also has the longest hit that ends in the piece: there each group with a
 * window has all of the last window.  A block counts to the slowest tier that the hit
 * needs for it, so blocks of windows count for the last window before the hit alone.
 * Windows may begin in earlier pieces: prefix.c finds them from the name that the
 * cookie has.
 */
#include "kvmm/core/sched/sched.h"

/* The tier of content that a lower-tier entry holds, as ref_tier(). */
static u32 entry_tier(const struct core *c, const struct kv_entry *e)
{
	const bool below = e->flags & (ENTF_HOST | ENTF_AREA);

	if ((e->flags & ENTF_LOST) || (!below && device_is_lost(c, &c->domains[e->domain])))
		return KVMM_NR_LOOKUP_TIERS;
	if (below && !(e->flags & ENTF_HOST) && io_pool(c, e)->nr_overdue)
		return KVMM_NR_LOOKUP_TIERS;
	if (e->dev != CORE_NONE || e->io == ENT_READ)
		return KVMM_TIER_MOVING;
	if (e->flags & ENTF_HOST)
		return KVMM_TIER_HOST;
	return below ? KVMM_TIER_AREA : KVMM_NR_LOOKUP_TIERS;
}

/* The tier that has the content, KVMM_TIER_*; KVMM_NR_LOOKUP_TIERS: none. */
static u32 ref_tier(const struct core *c, u32 ref)
{
	if (ref & REF_ENTRY)
		return entry_tier(c, &c->entries_low[ref & ~REF_ENTRY]);
	if (device_is_lost(c, &c->domains[c->blocks[ref].domain]) ||
	    block_is_claimed(c, ref) || block_leaves(c, ref))
		return KVMM_NR_LOOKUP_TIERS;
	return KVMM_TIER_DEVICE;
}

/* Another block was found.  Return: false: the answer has no room for its run. */
static bool runs_add(struct kvmm_lookup_res *res, u32 tier)
{
	struct kvmm_lookup_run *run = &res->run[res->nr_runs];

	if (!res->nr_runs || run[-1].tier != tier) {
		if (res->nr_runs == KVMM_LOOKUP_RUNS)
			return false;
		run->tier = tier;
		res->nr_runs++;
		run++;
	}
	run[-1].blocks++;
	return true;
}

/* Is the content found? */
static bool ref_found(const struct core *c, u32 ref)
{
	return ref_tier(c, ref) != KVMM_NR_LOOKUP_TIERS;
}

/* The content was asked for: it is the last of its list to be dropped. */
static void ref_touch(struct core *c, u32 ref)
{
	if (ref & REF_ENTRY)
		entry_touch(c, ref & ~REF_ENTRY);
	else
		lru_touch(c, index_node(c, ref));
}

/*
 * Walk the index from @name on, which becomes the name of the last block that was
 * found.  @left: whole blocks of @ids.  Return: blocks found.
 */
static u32 lookup_walk(struct core *c, u32 dom, u64 *name, const u32 *ids,
		       u32 left, struct kvmm_lookup_res *res)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 nr, ref, tier;
	u64 next[2];

	for (nr = 0; nr < left; nr++, ids += d->group[0].block_tokens) {
		if (nr && c->work >= core_cfg(c)->event_work) {
			res->flags |= KVMM_LOOKUP_MORE;
			break;
		}
		core_work(c, work_name(d->group[0].block_tokens));
		index_chain(c, d, 0, name, ids, next);
		ref = index_lookup(c, dom, 0, next, ids);
		tier = ref == CORE_NONE ? KVMM_NR_LOOKUP_TIERS : ref_tier(c, ref);
		if (tier == KVMM_NR_LOOKUP_TIERS)
			break;
		if (!runs_add(res, tier)) {
			res->flags |= KVMM_LOOKUP_MORE;
			break;
		}
		res->tokens[tier] += d->group[0].block_tokens;
		ref_touch(c, ref);
		memcpy(name, next, sizeof(next));
	}
	return nr;
}

/* ---- several groups ---- */

/*
 * Walk the index from @start on, a prefix with the name @name, up to @to; @ids are those after
 * @start.  Return: tokens before the first block that a group without a window lacks.
 */
static u32 groups_walk(struct core *c, const struct prefix *p, u32 start, u32 to,
		       const u64 *name, const u32 *ids, struct kvmm_lookup_res *res)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u64 hash[2] = { name[0], name[1] };
	u32 at = start, n;

	for (; at < to; at += d->hit_tokens) {
		if (at > start && c->work >= core_cfg(c)->event_work) {
			res->flags |= KVMM_LOOKUP_MORE;
			break;
		}
		for (n = d->base_tokens; n <= d->hit_tokens; n += d->base_tokens) {
			core_work(c, work_name(d->base_tokens));
			index_base(c, d, hash, ids + n - d->base_tokens, hash);
			if (!prefix_step(c, p, at + n, hash, ids + n))
				return at;
		}
		ids += d->hit_tokens;
	}
	return at;
}

/* The blocks of group @g in the hit_tokens tokens from @at on that a hit of @hit needs. */
static void groups_unit(const struct kv_domain *d, u32 g, u32 at, u32 hit, u32 *first,
			u32 *end)
{
	const struct kvmm_group *gr = &d->group[g];

	*first = at / gr->block_tokens;
	*end = (at + d->hit_tokens) / gr->block_tokens;
	if (!gr->window)
		return;
	*first = max(*first, group_first(d, g, hit));
	*end = min(*end, hit / gr->block_tokens);
}

/* The slowest tier of these blocks of all groups. */
static u32 groups_tier(const struct core *c, const struct prefix *p, u32 at, u32 hit)
{
	static const u8 slow[KVMM_NR_LOOKUP_TIERS] = {
		[KVMM_TIER_DEVICE] = 0, [KVMM_TIER_HOST] = 1,
		[KVMM_TIER_MOVING] = 2, [KVMM_TIER_AREA] = 3,
	};
	const struct kv_domain *d = &c->domains[p->dom];
	u32 g, i, end, tier, most = KVMM_TIER_DEVICE;

	for (g = 0; g < d->nr_groups; g++) {
		for (groups_unit(d, g, at, hit, &i, &end); i < end; i++) {
			tier = ref_tier(c, c->scratch[p->at[g] + i]);
			KV_BUG_ON(tier >= KVMM_NR_LOOKUP_TIERS);
			if (slow[tier] > slow[most])
				most = tier;
		}
	}
	return most;
}

/*
 * Fill the runs of the tokens from @start to @to, for a hit of @hit.
 * Return: tokens before the first block for whose run there was no room, else @to.
 */
static u32 groups_runs(struct core *c, const struct prefix *p, u32 start, u32 to, u32 hit,
		       struct kvmm_lookup_res *res)
{
	const u32 unit = c->domains[p->dom].hit_tokens;
	u32 at, tier;

	res->nr_runs = 0;
	memset(res->run, 0, sizeof(res->run));
	memset(res->tokens, 0, sizeof(res->tokens));
	core_work(c, (to - start) / unit);
	for (at = start; at < to; at += unit) {
		tier = groups_tier(c, p, at, hit);
		if (!runs_add(res, tier))
			return at;
		res->tokens[tier] += unit;
	}
	return to;
}

static void groups_touch(struct core *c, const struct prefix *p, u32 start, u32 to, u32 hit)
{
	const struct kv_domain *d = &c->domains[p->dom];
	u32 g, i, end;

	for (; start < to; start += d->hit_tokens)
		for (g = 0; g < d->nr_groups; g++)
			for (groups_unit(d, g, start, hit, &i, &end); i < end; i++)
				ref_touch(c, c->scratch[p->at[g] + i]);
}

/*
 * Look up the first @nr of the @ids in all groups.  @name becomes the name of the last
 * block that was found, @hit_name that of the hit.
 * Return: tokens found.
 */
static u32 lookup_groups(struct core *c, u32 dom, const struct kvmm_lookup_arg *a, u32 nr,
			 const u32 *ids, u64 *name, u64 *hit_name,
			 struct kvmm_lookup_res *res)
{
	struct prefix p = { .dom = dom, .salt = a->salt, .usable = ref_found };
	u32 most = prefix_places(c, &p, a->start, a->start + nr), to, fits;

	if (!prefix_resume(c, &p, name, a->start))
		return 0;
	to = groups_walk(c, &p, a->start, most, name, ids, res);
	if (to == most && most < a->start + nr && most > a->start)
		res->flags |= KVMM_LOOKUP_MORE;
	for (;; to = fits) {
		res->hit = prefix_hit(c, &p, a->start, to);
		fits = groups_runs(c, &p, a->start, to, res->hit, res);
		if (fits == to)
			break;
		res->flags |= KVMM_LOOKUP_MORE;
	}
	groups_touch(c, &p, a->start, to, res->hit);
	if (to > a->start)
		prefix_name(c, &p, to, name);
	if (res->hit)
		prefix_name(c, &p, res->hit, hit_name);
	return to - a->start;
}

static void lookup_count(struct core *c, const struct kvmm_lookup_arg *a,
			 const struct kvmm_lookup_res *res)
{
	core_count(c, CORE_EV_lookup, 1);
	core_count(c, CORE_EV_lookup_tokens,
		   res->flags & KVMM_LOOKUP_MORE ? res->found : a->nr_ids);
	core_count(c, CORE_EV_lookup_device_tokens, res->tokens[KVMM_TIER_DEVICE]);
	core_count(c, CORE_EV_lookup_host_tokens, res->tokens[KVMM_TIER_HOST]);
	core_count(c, CORE_EV_lookup_area_tokens, res->tokens[KVMM_TIER_AREA]);
	core_count(c, CORE_EV_lookup_moving_tokens, res->tokens[KVMM_TIER_MOVING]);
}

/**
 * seq_lookup() - one entry of SEQ_LOOKUP
 * @a:   salt, and the place of the ids in the prompt
 * @ids: the ids
 * @res: the answer, zeroed
 *
 * Nothing is allocated or admitted, and no sequence is woken.  The work is
 * bounded: an event that has done a lot leaves the rest to the next, with
 * KVMM_LOOKUP_MORE, but looks at one block at least.
 *
 * Return: 0; -EINVAL; -EOPNOTSUPP: the domain has a group of records.
 */
int seq_lookup(struct core *c, u32 client, const struct kvmm_lookup_arg *a,
	       const u32 *ids, struct kvmm_lookup_res *res)
{
	const u32 dom = c->clients[client].domain;
	const struct kv_domain *d = &c->domains[dom];
	const u32 bt = d->hit_tokens;
	u64 cookie[2] = { a->cookie[0], a->cookie[1] }, root[2], name[2];
	u64 hit_name[2] = { 0 };

	if (d->has_records)
		return -EOPNOTSUPP;
	if (a->resv0 || a->resv[0] || a->resv[1] ||
	    (a->flags & ~KVMM_LOOKUP_LAST))
		return -EINVAL;
	if (a->start % bt || a->nr_ids > UINT32_MAX - a->start)
		return -EINVAL;
	if (a->nr_ids % bt && !(a->flags & KVMM_LOOKUP_LAST))
		return -EINVAL;
	if (!a->start != !(cookie[0] | cookie[1]))
		return -EINVAL;

	index_root(c, d, a->salt, 0, root);
	cookie_read(c, d, root, cookie, a->start, name);
	if (d->nr_groups > 1) {
		res->found = lookup_groups(c, dom, a, a->nr_ids / bt * bt, ids, name, hit_name,
					   res);
	} else {
		res->found = bt * lookup_walk(c, dom, name, ids, a->nr_ids / bt, res);
		res->hit = res->found ? a->start + res->found : 0;
		memcpy(hit_name, name, sizeof(hit_name));
	}
	cookie_make(c, d, root, name, a->start + res->found, cookie);
	memcpy(res->cookie, cookie, sizeof(cookie));
	cookie_make(c, d, root, hit_name, res->hit, cookie);
	memcpy(res->hit_cookie, cookie, sizeof(cookie));
	lookup_count(c, a, res);
	return 0;
}
