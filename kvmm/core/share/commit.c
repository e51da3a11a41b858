// SPDX-License-Identifier: Apache-2.0
/*
 * commit.c - what was promised, if everybody takes all of it
 *
 * A sequence says at open how long it may become: max_tokens is a bound that a
 * step cannot pass, 0 means that nothing follows the prompt.  Most end earlier,
 * so admission looks at the prompt alone (overcommit 0): what runs may come to
 * want more than there is, and then somebody is preempted.
 *
 * Committed_AS is what the resident could come to hold, as the kernel's: blocks
 * in use that are not cache, each counted once however many share it, and what
 * the tables can still grow by (kv_domain.growth), promises included.
 * CommitLimit is overcommit_ratio per cent of what could be had.
 *
 * With overcommit 2 an admission, of a new sequence or of one that comes back,
 * waits until it stays within the limit of its domain and of the node, and what
 * could never is refused at open.  Then growth finds a block wherever one
 * domain alone uses the pool.  Beyond the limit go only a fork, which is no
 * admission (its children count, and hold up who comes later), and what
 * memory.min promises.
 *
 * Law: growth is the sum, over the resident of a domain, of the blocks of
 * prompt_len + max_tokens less the table's entries.  It changes where a
 * sequence becomes resident or no longer is (run_add, run_del), and where the
 * table of one that is becomes longer or shorter (table.c).
 */
#include "kvmm/core/share/share.h"

/* Entries that the sequence's table could have at most. */
u32 seq_most(const struct core *c, const struct kv_seq *s)
{
	return tokens_to_blocks(seq_domain(c, s), s->prompt_len +
						  s->max_tokens);
}

/* commit_growth() - what its table could still grow by */
u32 commit_growth(const struct core *c, const struct kv_seq *s)
{
	return seq_most(c, s) - s->nr_blocks;
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

/* Bytes of the pool behind @nr blocks, their part of the span's end too. */
static u64 blocks_bytes(const struct core *c, const struct kv_domain *d,
			u64 nr)
{
	return nr * d->dev.span_extents * core_cfg(c)->extent_size /
	       d->dev.span_blocks;
}

/* commit_node() - Committed_AS and CommitLimit of the node, in bytes */
u64 commit_node(const struct core *c, u64 *limit)
{
	u64 sum = 0;
	u32 i;

	for_each_domain(c, i)
		sum += blocks_bytes(c, &c->domains[i],
					    commit_blocks(&c->domains[i]));
	*limit = pool_online(c) / 100 *
		 core_cfg(c)->overcommit_ratio +
		 pool_online(c) % 100 *
		 core_cfg(c)->overcommit_ratio / 100;
	return sum;
}

/* commit_never() - is a sequence of @tokens beyond the limit even alone? */
bool commit_never(const struct core *c, const struct kv_domain *d, u64 tokens)
{
	return core_cfg(c)->overcommit == CORE_OVERCOMMIT_NEVER &&
	       DIV_ROUND_UP(tokens, (u64)d->block_tokens) > commit_limit(c, d);
}

/**
 * commit_waits() - would admitting a sequence promise too much?
 * @nr:   blocks that it and its growth take, beside what others hold anyway
 */
static bool commit_waits(const struct core *c, const struct kv_domain *d, u64 nr)
{
	u64 sum, limit;

	if (core_cfg(c)->overcommit != CORE_OVERCOMMIT_NEVER)
		return false;
	if (commit_blocks(d) + nr > commit_limit(c, d))
		return true;
	sum = commit_node(c, &limit);
	return sum + blocks_bytes(c, d, nr) > limit;
}

/**
 * commit_admits() - the same for a sequence of the wait list
 * @have: table entries that it begins with
 * @take: of those, cached or below: nobody holds them now
 */
bool commit_admits(const struct core *c, const struct kv_seq *s, u32 have,
		   u32 take)
{
	return !commit_waits(c, seq_domain(c, s),
			     (u64)seq_most(c, s) - have + take);
}
