// SPDX-License-Identifier: Apache-2.0
/*
 * commit.c - Committed_AS: the blocks that sequences may come to hold
 *
 * A sequence says at open how long it may become.  max_tokens is a bound that no
 * step may pass; 0 means that nothing follows the prompt.  Most sequences end
 * earlier, so admission looks only at the prompt (overcommit 0).  Then the
 * running sequences may come to need more than the pool has, and a family is
 * preempted.
 *
 * Committed_AS is the most that the running sequences could come to hold, as in
 * the kernel: blocks in use that are not cache, each counted once however many
 * sequences share it, and the blocks that tables can still grow by
 * (kv_domain.growth), reservations included.  CommitLimit is overcommit_ratio
 * per cent of the capacity.
 *
 * With overcommit 2 an admission waits until it stays within the limit of its
 * domain and of the node, also that of a preempted sequence.  A sequence that is
 * beyond the limit alone is refused at open.  Then growth finds a block wherever
 * one domain alone uses the pool.  Two things may exceed the limit: a fork,
 * which is no admission (its children count, and hold up later sequences), and
 * an admission that memory.min protects.
 *
 * Law: growth is the sum, over the running sequences of a domain, of the blocks
 * of prompt_len + max_tokens less the tables' entries; in a group with a window, of
 * the most blocks that the window needs less those that it has (tally.c).
 */
#include "kvmm/core/share/share.h"

/* The most blocks that the sequence holds at once. */
u32 seq_most(const struct core *c, const struct kv_seq *s)
{
	return domain_most(seq_domain(c, s), s->prompt_len + s->max_tokens);
}

/* Entries that a table can still grow by. */
static u32 tab_growth(const struct core *c, const struct kv_seq *s,
		      const struct kv_tab *t)
{
	u32 tokens = s->prompt_len + s->max_tokens, left;

	left = tab_blocks(c, t, tokens) - t->nr_blocks;
	if (!tab_window(c, t))
		return left;
	return min(left, max(group_most(tab_domain(c, t), t->group, tokens),
			     tab_live(t)) - tab_live(t));
}

/* commit_growth() - blocks that its tables can still grow by */
u32 commit_growth(const struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;
	u32 nr = 0;

	for_each_tab(c, s, t)
		nr += tab_growth(c, s, t);
	return nr;
}

/* commit_blocks() - Committed_AS of a domain, in blocks */
u64 commit_blocks(const struct kv_domain *d)
{
	return (u64)domain_used(d) - d->dev.nr[BLK_CACHED] + d->growth;
}

/* commit_limit() - CommitLimit of a domain, in blocks */
u64 commit_limit(const struct core *c, const struct kv_domain *d)
{
	return (u64)domain_capacity(c, d) * core_cfg(c)->overcommit_ratio /
	       100;
}

/*
 * Bytes of each device pool behind @nr blocks, with their part of the unused span end.
 */
static u64 blocks_bytes(const struct core *c, const struct kv_domain *d,
			u64 nr)
{
	return nr * d->dev.span_extents * core_cfg(c)->extent_size /
	       d->dev.span_blocks;
}

/* commit_zone() - Committed_AS and CommitLimit of a device pool, in bytes */
u64 commit_zone(const struct core *c, u32 zone, u64 *limit)
{
	const u64 pool = c->head->zones[zone].nr_online * core_cfg(c)->extent_size;
	u64 sum = 0;
	u32 i;

	for_each_domain(c, i)
		if (domain_is_in(&c->domains[i], zone))
			sum += blocks_bytes(c, &c->domains[i],
					    commit_blocks(&c->domains[i]));
	*limit = pool / 100 * core_cfg(c)->overcommit_ratio +
		 pool % 100 * core_cfg(c)->overcommit_ratio / 100;
	return sum;
}

/* commit_never() - is one sequence of @tokens beyond the limit even alone? */
bool commit_never(const struct core *c, const struct kv_domain *d, u64 tokens)
{
	return core_cfg(c)->overcommit == CORE_OVERCOMMIT_NEVER &&
	       domain_most(d, (u32)min(tokens, (u64)UINT32_MAX)) > commit_limit(c, d);
}

/**
 * commit_node_waits() - would an admission exceed the limit of the node?
 * @nr:   blocks that the sequence and its growth add to Committed_AS
 */
bool commit_node_waits(const struct core *c, const struct kv_domain *d, u64 nr)
{
	u64 sum, limit;
	u32 i;

	if (core_cfg(c)->overcommit != CORE_OVERCOMMIT_NEVER)
		return false;
	for (i = d->zone; i < d->zone + d->shards; i++) {
		sum = commit_zone(c, i, &limit);
		if (sum + blocks_bytes(c, d, nr) > limit)
			return true;
	}
	return false;
}

/* The same for both limits, of its domain and of the node. */
static bool commit_waits(const struct core *c, const struct kv_domain *d, u64 nr)
{
	if (core_cfg(c)->overcommit != CORE_OVERCOMMIT_NEVER)
		return false;
	return commit_blocks(d) + nr > commit_limit(c, d) ||
	       commit_node_waits(c, d, nr);
}

/**
 * commit_admits() - is the admission of a waiting sequence within the limits?
 * @have: table entries that it begins with
 * @take: entries of these that are cached or on a lower tier: no running
 *        sequence holds them now
 */
bool commit_admits(const struct core *c, const struct kv_seq *s, u32 have,
		   u32 take)
{
	KV_BUG_ON(take > have || have > seq_most(c, s));
	KV_BUG_ON(s->flags & SEQF_RUNNING);
	return !commit_waits(c, seq_domain(c, s),
			     (u64)seq_most(c, s) - have + take);
}
