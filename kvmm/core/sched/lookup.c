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
 */
#include "kvmm/core/sched/sched.h"

/* The tier of content whose holder is a lower-tier entry, as ref_tier(). */
static u32 entry_tier(const struct core *c, const struct kv_entry *e)
{
	const bool below = e->flags & (ENTF_HOST | ENTF_AREA);

	if ((e->flags & ENTF_LOST) || (!below && device_is_lost(c)))
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
	if (device_is_lost(c) || block_is_claimed(c, ref) || block_leaves(c, ref))
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
 * Return: 0; -EINVAL.
 */
int seq_lookup(struct core *c, u32 client, const struct kvmm_lookup_arg *a,
	       const u32 *ids, struct kvmm_lookup_res *res)
{
	const u32 dom = c->clients[client].domain;
	const struct kv_domain *d = &c->domains[dom];
	u64 cookie[2] = { a->cookie[0], a->cookie[1] }, root[2], name[2];
	u32 nr;

	if (d->nr_groups > 1)
		return -EOPNOTSUPP;
	if (a->resv0 || a->resv[0] || a->resv[1] ||
	    (a->flags & ~KVMM_LOOKUP_LAST))
		return -EINVAL;
	if (a->start % d->group[0].block_tokens || a->nr_ids > UINT32_MAX - a->start)
		return -EINVAL;
	if (a->nr_ids % d->group[0].block_tokens && !(a->flags & KVMM_LOOKUP_LAST))
		return -EINVAL;
	if (!a->start != !(cookie[0] | cookie[1]))
		return -EINVAL;

	index_root(c, d, a->salt, 0, root);
	cookie_read(c, d, root, cookie, a->start, name);
	nr = lookup_walk(c, dom, name, ids, a->nr_ids / d->group[0].block_tokens, res);
	res->found = nr * d->group[0].block_tokens;
	cookie_make(c, d, root, name, a->start + res->found, cookie);
	res->cookie[0] = cookie[0];
	res->cookie[1] = cookie[1];
	lookup_count(c, a, res);
	return 0;
}
