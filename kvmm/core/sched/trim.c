// SPDX-License-Identifier: Apache-2.0
/*
 * trim.c - sequences that lose their end, or their beginning
 *
 * TRUNCATE makes a sequence shorter.  It may end inside a sealed block then,
 * which stays as it is, in the index too: the next append finds a block that
 * may not be written and orders a copy, as for a shared tail.  What is computed
 * after it is new, whatever had been lost there (kv_seq.lost_len).
 *
 * TRIM gives back whole blocks before a position.  The table keeps its index
 * base: those entries hold nothing from then on (kv_seq.trimmed), and whoever
 * walks a table starts there.  The name of the last block given back is kept,
 * because the next block that is sealed is named after it; if that name leaves
 * the index, nothing of the sequence enters it any more.  Steps that were
 * open when TRIM came may still read what it gives back, so it waits for them;
 * a step begun later was begun by a client that had said it reads no more.  A
 * TRIM that comes while one waits is kept apart: with steps overlapping and a
 * TRIM in each, one that took the place of the other would never end.
 */
#include "kvmm/core/sched/sched.h"

/**
 * seq_truncate() - one entry of SEQ_TRUNCATE
 *
 * Return: 0; -EINVAL: longer than it is, or into what was trimmed; -EBUSY: a
 * step is open; -ESTALE: it is not READY.  Refused, nothing changed.
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

	keep = seq_promise_take(c, s, nr);
	seq_unmap_from(c, s, nr);
	s->valid_len = a->len;
	s->cover = a->len;
	s->lost_len = min(s->lost_len, a->len);
	seq_promise_put(s, keep);
	seq_publish(c, s);
	domain_kick(seq_domain(c, s));	/* its tail may need no copy now */
	core_count(c, CORE_EV_seq_truncate, 1);
	return 0;
}

/* From the end, so that on the LRU list leaves are older than roots. */
static void trim_now(struct core *c, struct kv_seq *s)
{
	u32 i = s->trim_want;

	memcpy(s->trim_hash, c->blocks[table_get(c, s, i - 1)].hash,
	       sizeof(s->trim_hash));
	while (i-- > s->trimmed) {
		u32 blk = table_get(c, s, i);

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
 * Return: 0; -EINVAL: beyond what is valid; -ESTALE: it is not resident.
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

/* Step @ended is over for the sequence: may what it trimmed go? */
void seq_trim_settle(struct core *c, struct kv_seq *s, u64 ended)
{
	while (s->trim_want > s->trimmed &&
	       (!s->nr_steps || ended >= s->trim_step)) {
		trim_now(c, s);
		s->trim_want = max(s->trim_want, s->trim_more);
		s->trim_step = s->trim_more_step;
		s->trim_more = 0;
	}
}
