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
 *
 * Groups with a window are trimmed by the core when a step ends.  So are groups with
 * records, of which a token needs the last one.
 */
#include "kvmm/core/sched/sched.h"

/* Does the table still have the tokens that a step at @len would attend to? */
static bool tab_reaches(const struct core *c, const struct kv_tab *t, u32 len)
{
	u32 window = tab_window(c, t), first = (u32)tab_pos(c, t, t->trimmed);

	/* A record holds the state after its last token alone. */
	if (tab_is_state(c, t) && len % tab_tokens(c, t) && len != tab_seq(c, t)->valid_len)
		return false;
	return len >= first && (!first || !window || len - first >= window - 1);
}

static int truncate_check(const struct core *c, const struct kv_seq *s,
			  const struct kvmm_len_arg *a)
{
	const struct kv_tab *t;

	if (a->resv)
		return -EINVAL;
	if (s->nr_steps)
		return -EBUSY;
	if (s->state != KVMM_SEQ_READY)
		return -ESTALE;
	if (a->len > s->valid_len)
		return -EINVAL;
	for_each_tab(c, s, t)
		if (!tab_reaches(c, t, a->len))
			return -EINVAL;
	return 0;
}

/**
 * seq_truncate() - one entry of SEQ_TRUNCATE
 *
 * Return: 0; -EINVAL: the new length is longer, within the trimmed blocks, or so short
 * that a window would lack tokens; -EBUSY: a step is open; -ESTALE: it is not READY.
 * An error changes nothing.
 */
int seq_truncate(struct core *c, struct kv_seq *s,
		 const struct kvmm_len_arg *a)
{
	int err = truncate_check(c, s, a);
	struct kv_tab *t;
	u32 nr, keep;

	if (err)
		return err;
	for_each_tab(c, s, t) {
		nr = tab_blocks(c, t, a->len);
		KV_BUG_ON(nr < t->trimmed || nr > t->nr_blocks);
		keep = tab_promise_take(c, t, nr);
		tab_unmap_from(c, t, nr);
		tab_promise_put(t, keep);
		KV_BUG_ON(t->nr_blocks != nr);
	}
	s->valid_len = a->len;
	s->cover = a->len;
	s->lost_len = min(s->lost_len, a->len);
	seq_publish(c, s);
	domain_kick(seq_domain(c, s));	/* its tail may need no copy now */
	core_count(c, CORE_EV_seq_truncate, 1);
	return 0;
}

/* Trim to @want.  From the end, so that in the cache children are older than parents. */
static void trim_now(struct core *c, struct kv_tab *t, u32 want)
{
	u32 i = want;

	KV_BUG_ON(i <= t->trimmed || i > t->nr_blocks);
	KV_BUG_ON(tab_pos(c, t, i) > tab_seq(c, t)->valid_len);
	tab_name_before(c, t, i, t->trim_hash);
	while (i-- > t->trimmed) {
		u32 blk = table_get(c, t, i);

		KV_BUG_ON(!c->blocks[blk].nr_map);
		table_set_none(c, t, i);
		block_unmap(c, blk);
	}
	core_count(c, CORE_EV_pgtrim, want - t->trimmed);
	t->trimmed = want;
}

static void tab_trim(struct core *c, struct kv_tab *t, u32 len)
{
	const struct kv_seq *s = tab_seq(c, t);
	u32 want = tab_at(c, t, len);

	if (tab_is_state(c, t) || want <= max(t->trim_want, t->trim_more))
		return;
	if (t->trim_want > t->trimmed) {
		t->trim_more = want;
		t->trim_more_step = s->last_step;
		return;
	}
	t->trim_want = want;
	t->trim_step = s->last_step;
	if (!s->nr_steps)
		trim_now(c, t, want);
}

/**
 * seq_trim() - one entry of SEQ_TRIM
 *
 * Takes effect when the steps that are open now have ended.
 * Return: 0; -EINVAL: beyond the valid length; -ESTALE: it has no memory.
 */
int seq_trim(struct core *c, struct kv_seq *s, const struct kvmm_len_arg *a)
{
	struct kv_tab *t;

	if (a->resv)
		return -EINVAL;
	if (s->state != KVMM_SEQ_READY && s->state != KVMM_SEQ_MARKED)
		return -ESTALE;
	if (a->len > s->valid_len)
		return -EINVAL;

	core_count(c, CORE_EV_seq_trim, 1);
	for_each_tab(c, s, t)
		tab_trim(c, t, a->len);
	if (seq_groups(c, s) > 1)
		seq_tally(c, s);
	return 0;
}

/* seq_trim_settle() - step @ended is over: carry out a TRIM of the sequence that waited */
void seq_trim_settle(struct core *c, struct kv_seq *s, u64 ended)
{
	struct kv_tab *t;
	bool any = false;

	for_each_tab(c, s, t) {
		while (t->trim_want > t->trimmed &&
		       (!s->nr_steps || ended >= t->trim_step)) {
			KV_BUG_ON(t->trim_more && t->trim_more <= t->trim_want);
			trim_now(c, t, t->trim_want);
			t->trim_want = max(t->trim_want, t->trim_more);
			t->trim_step = t->trim_more_step;
			t->trim_more = 0;
			any = true;
		}
	}
	/* A table with a window can grow by as much again. */
	if (any && seq_groups(c, s) > 1)
		seq_tally(c, s);
}

/* The first position that a step of the sequence may still write. */
static u32 seq_first_written(const struct kv_seq *s)
{
	u32 at = s->valid_len, i;

	for (i = 0; i < KVMM_MAX_STEPS; i++)
		if (s->end[i])
			at = min(at, s->start[i]);
	return at;
}

/* May the domain reserve one more of its free blocks? */
static bool may_reserve(const struct kv_domain *d)
{
	return domain_slack(d) && (u64)domain_used(d) + d->dev.reserved <
				  d->dev.max_blocks;
}

/*
 * The prompt goes on: reserve as many blocks for it as the window needs at once.  If
 * none is free, content that was just given back is evicted: @nr blocks in c->scratch.
 * So a prompt that was admitted is computed to its end without growth.
 */
static void tab_renew(struct core *c, struct kv_tab *t, u32 nr)
{
	struct kv_domain *d = tab_domain(c, t);
	u32 most = group_most(d, t->group, UINT32_MAX), end, i = 0;

	end = (u32)min((u64)t->prompt_blocks, (u64)t->trimmed + most);
	t->resv_blocks = max(t->resv_blocks, t->nr_blocks);
	KV_BUG_ON(d->dev.keep_spans);
	/* A span that falls empty now is for this prompt. */
	d->dev.keep_spans = 1;
	while (t->resv_blocks < end) {
		while (!may_reserve(d) && i < nr) {
			u32 blk = c->scratch[i++];

			if (c->blocks[blk].state == BLK_CACHED)
				index_evict(c, blk);
		}
		if (!may_reserve(d))
			break;
		t->resv_blocks++;
		t->reserved++;
		d->dev.reserved++;
	}
	d->dev.keep_spans = 0;
}

/* The window passed @want: a TRIM that waits for steps stays if it is for more. */
static void trims_passed(struct kv_tab *t, u32 want)
{
	if (t->trim_want > want)
		return;
	t->trim_want = max(want, t->trim_more);
	t->trim_step = t->trim_more_step;
	t->trim_more = 0;
}

/*
 * Give back the blocks that neither an open step nor a later one attends to.
 * Return: whether there were any.
 */
static bool tab_trim_window(struct core *c, struct kv_tab *t, u32 at)
{
	u32 window = tab_window(c, t), want, nr = 0, i;

	if (!window || at < window || (t->shift && at <= t->shift_at))
		return false;
	want = tab_at(c, t, at - window + 1);
	if (want <= t->trimmed)
		return false;
	for (i = t->trimmed; i < want; i++)
		c->scratch[nr++] = table_get(c, t, i);
	trim_now(c, t, want);
	trims_passed(t, want);
	if (tab_seq(c, t)->state == KVMM_SEQ_READY && t->nr_blocks < t->prompt_blocks)
		tab_renew(c, t, nr);
	return true;
}

/*
 * The shared record before the last ones was trimmed: its entries go, so that the
 * index of a record follows from its position again.
 */
static void tab_unshift(struct core *c, struct kv_tab *t)
{
	const u32 nr = t->shift;
	u32 i;

	KV_BUG_ON(t->trimmed < nr || t->trim_want != t->trimmed || t->trim_more);
	for (i = t->trimmed; i < t->nr_blocks; i++)
		table_set(c, t, i - nr, table_get(c, t, i));
	t->trimmed -= nr;
	t->trim_want = t->trimmed;
	t->dirty = min(t->dirty, t->trimmed);
	for (i = 0; i < nr; i++)
		(void)table_pop_pte(c, t);
	t->shift = 0;
	t->resv_blocks = t->reserved ? t->nr_blocks + t->reserved :
				       min(t->resv_blocks, t->nr_blocks);
}

/**
 * seq_trim_windows() - a step ended: trim the groups with a window, if there are any
 *
 * A step at position p attends to the window that ends there.  Open steps begin at
 * their start or after it, later ones at the valid length or after it.
 */
void seq_trim_windows(struct core *c, struct kv_seq *s)
{
	u32 at = seq_first_written(s);
	bool any = false;
	struct kv_tab *t;

	for_each_tab(c, s, t) {
		any |= tab_trim_window(c, t, at);
		if (t->shift && !s->nr_steps)
			tab_unshift(c, t);
	}
	if (any)
		seq_tally(c, s);
}
