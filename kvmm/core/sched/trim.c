// SPDX-License-Identifier: Apache-2.0
/*
 * trim.c - TRUNCATE and TRIM: sequences lose their end or their beginning
 *
 * TRUNCATE makes a sequence shorter.  It may end inside a sealed block then.
 * The block stays as it is, also in the index.  The next append finds a block
 * that it may not write and orders a copy, as for a shared tail.  Tokens that
 * are computed after it are new, even if preemption had taken tokens there
 * (kv_seq.lost_len).
 *
 * TRIM gives back whole blocks before a position.  The table keeps its index
 * base: the trimmed entries name no block, and every walk over a table starts
 * after them (kv_seq.trimmed).  The name of the last trimmed block is kept,
 * because it is the parent of the next block that is sealed.  If that name
 * leaves the index, no further block of the sequence is entered.  Steps that are
 * open when TRIM comes may still read the trimmed blocks, so the TRIM waits for
 * them.  The client does not read these blocks in later steps.  A second TRIM
 * that comes meanwhile is kept apart.  If it replaced the first one, overlapping
 * steps with a TRIM in each would delay both for ever.
 */
#include "kvmm/core/sched/sched.h"

/**
 * seq_truncate() - one entry of SEQ_TRUNCATE
 *
 * Return: 0; -EINVAL: the new length is longer, or within the trimmed blocks;
 * -EBUSY: a step is open; -ESTALE: it is not READY.  An error changes nothing.
 */
int seq_truncate(struct core *c, struct kv_seq *s,
		 const struct kvmm_len_arg *a)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 nr = tokens_to_blocks(d, a->len), keep;

	if (a->resv)
		return -EINVAL;
	if (s->nr_steps)
		return -EBUSY;
	if (s->state != KVMM_SEQ_READY)
		return -ESTALE;
	if (a->len > s->valid_len || a->len < s->trimmed * d->block_tokens)
		return -EINVAL;

	KV_BUG_ON(nr < s->trimmed || nr > s->nr_blocks);
	keep = seq_promise_take(c, s, nr);
	seq_unmap_from(c, s, nr);
	s->valid_len = a->len;
	s->cover = a->len;
	s->lost_len = min(s->lost_len, a->len);
	seq_promise_put(s, keep);
	KV_BUG_ON(s->nr_blocks != nr);
	seq_publish(c, s);
	domain_kick(seq_domain(c, s));	/* its tail may need no copy now */
	core_count(c, CORE_EV_seq_truncate, 1);
	return 0;
}

/* From the end, so that in the cache children are older than parents. */
static void trim_now(struct core *c, struct kv_seq *s)
{
	u32 i = s->trim_want;

	KV_BUG_ON(i <= s->trimmed || i > s->nr_blocks);
	KV_BUG_ON((u64)i * seq_domain(c, s)->block_tokens > s->valid_len);
	memcpy(s->trim_hash, c->blocks[table_get(c, s, i - 1)].hash,
	       sizeof(s->trim_hash));
	while (i-- > s->trimmed) {
		u32 blk = table_get(c, s, i);

		KV_BUG_ON(!c->blocks[blk].nr_map);
		table_set_none(c, s, i);
		block_unmap(c, blk);
	}
	core_count(c, CORE_EV_pgtrim, s->trim_want - s->trimmed);
	s->trimmed = s->trim_want;
}

/**
 * seq_trim() - one entry of SEQ_TRIM
 *
 * Takes effect when the steps that are open now have ended.
 * Return: 0; -EINVAL: beyond the valid length; -ESTALE: it has no memory.
 */
int seq_trim(struct core *c, struct kv_seq *s, const struct kvmm_len_arg *a)
{
	u32 want = a->len / seq_domain(c, s)->block_tokens;

	if (a->resv)
		return -EINVAL;
	if (s->state != KVMM_SEQ_READY && s->state != KVMM_SEQ_MARKED)
		return -ESTALE;
	if (a->len > s->valid_len)
		return -EINVAL;

	core_count(c, CORE_EV_seq_trim, 1);
	if (want <= max(s->trim_want, s->trim_more))
		return 0;
	if (s->trim_want > s->trimmed) {
		s->trim_more = want;
		s->trim_more_step = s->last_step;
		return 0;
	}
	s->trim_want = want;
	s->trim_step = s->last_step;
	if (!s->nr_steps)
		trim_now(c, s);
	return 0;
}

/* Step @ended is over for the sequence: carry out a TRIM that waited for it. */
void seq_trim_settle(struct core *c, struct kv_seq *s, u64 ended)
{
	while (s->trim_want > s->trimmed &&
	       (!s->nr_steps || ended >= s->trim_step)) {
		KV_BUG_ON(s->trim_more && s->trim_more <= s->trim_want);
		trim_now(c, s);
		s->trim_want = max(s->trim_want, s->trim_more);
		s->trim_step = s->trim_more_step;
		s->trim_more = 0;
	}
}
