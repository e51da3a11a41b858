// SPDX-License-Identifier: Apache-2.0
/*
 * lease_move.c - leases: advice about them, their end, and their way to the device
 *
 * Advice about a lease moves its content.  PAGEOUT takes cached blocks with a copy from
 * the device.  WILLNEED brings the content to the device, a few blocks at a time, while
 * no sequence of the domain waits for memory.
 */
#include "kvmm/core/sched/sched.h"

#define PROMOTE_MOST	32u	/* copies and reads in flight beside which one is begun */
#define WORK_MOVE	32u	/* of a block that is moved, see core_work() */
#define WORK_LOOK	3u	/* of a block that is looked at */

/* ---- advice ---- */

/* Take the block of an entry from the device if the entry has the content. */
static bool entry_demote(struct core *c, u32 entry)
{
	u32 blk = c->entries_low[entry].dev;

	if (blk == CORE_NONE || c->blocks[blk].state != BLK_CACHED ||
	    !entry_is_there(c, entry) || index_kid_on_device(c, c->blocks[blk].node))
		return false;
	index_evict(c, blk);
	return true;
}

/*
 * Take the blocks from the device that have a copy, from the end on.  A block stays
 * if a sequence maps it, or a block after it that the lease does not hold.
 * Return: tokens that leave, of the group that most of them leave.
 */
static u32 lease_demote(struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;
	u32 i, nr, tokens = 0;

	core_work(c, WORK_MOVE * seq_entries(c, s));
	for_each_tab(c, s, t) {
		for (nr = 0, i = t->nr_blocks; i-- > t->trimmed;)
			nr += entry_demote(c, pte_block(table_pte(c, t, i)));
		core_count(c, CORE_EV_lease_demote, nr);
		tokens = max(tokens, nr * tab_tokens(c, t));
	}
	return tokens;
}

/* Tokens of the lease that are not on the device, of the group that lacks most of them. */
static u32 lease_lacks(struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;
	u32 i, nr, tokens = 0;

	core_work(c, WORK_LOOK * seq_entries(c, s));
	for_each_tab(c, s, t) {
		for (nr = 0, i = t->trimmed; i < t->nr_blocks; i++)
			nr += c->entries_low[pte_block(table_pte(c, t, i))].dev == CORE_NONE;
		tokens = max(tokens, nr * tab_tokens(c, t));
	}
	return tokens;
}

static int lease_renew(struct core *c, struct kv_seq *s, u64 until)
{
	if (until <= c->now)
		return -EINVAL;
	if (until - c->now > core_cfg(c)->lease_ms * 1000000ull)
		return -ERANGE;
	lease_set_until(c, s, until);
	return 0;
}

/**
 * lease_advise() - one entry of SEQ_ADVISE for a lease
 * @tokens: takes the tokens that move
 *
 * COLD and DONTNEED take effect when the lease ends, as for a sequence.
 * Return: 0; -EINVAL; -ERANGE: a deadline further away than lease_ms; -EOPNOTSUPP.
 */
int lease_advise(struct core *c, struct kv_seq *s, const struct kvmm_advise_arg *a,
		 u32 *tokens)
{
	if (a->advice == KVMM_ADV_RETAIN)
		return -EOPNOTSUPP;
	if (a->retain || !advise_value_is_sane(a))
		return -EINVAL;
	switch (a->advice) {
	case KVMM_ADV_KEEP_UNTIL:
		return lease_renew(c, s, a->value);
	case KVMM_ADV_PAGEOUT:
		lease_stop_promote(c, s);
		*tokens = lease_demote(c, s);
		return 0;
	case KVMM_ADV_WILLNEED:
		*tokens = lease_lacks(c, s);
		lease_promote(c, s);
		return 0;
	case KVMM_ADV_COLD:
	case KVMM_ADV_DONTNEED:
		advise_retention(s, a->advice, a->value);
		return 0;
	}
	return -EINVAL;
}

/* ---- in the background ---- */

/**
 * leases_expire() - end the leases whose deadline has passed
 *
 * One at least; an event that has done a lot leaves the others to the next tick.
 */
void leases_expire(struct core *c)
{
	u32 n;

	for (n = 0; c->head->nr_leases &&
	     (!n || c->work < core_cfg(c)->event_work); n++) {
		struct kv_seq *s = &c->seqs[c->leases[0]];

		if (s->until > c->now)
			return;
		core_work(c, WORK_MOVE * seq_entries(c, s));
		seq_close_now(c, s);
		core_count(c, CORE_EV_lease_expired, 1);
	}
}

/* Make room for one block of promoted content.  Return: whether there is some. */
static bool promote_room(struct core *c, const struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 want = wmark_min(d) + 1;

	if (d->nr_waiting || d->nr_marked || want > domain_capacity(c, d) / 2)
		return false;
	if (domain_slack(d) < want && !d->dev.pending_spans &&
	    domain_can_make(c, seq_domain(c, s)) &&
	    !room_is_wanted(c, s->domain) &&
	    (u64)domain_used(d) + d->dev.reserved + want <=
	    min(d->dev.max_blocks, d->high_blocks))
		(void)extent_run_take(c, s->domain);
	return !d->dev.pending_spans && room_evict(c, s->domain, want) == ROOM_NOW;
}

/* Has no block of the device the content, and can it be copied or read? */
static bool can_promote(const struct core *c, const struct kv_entry *e)
{
	if (e->dev != CORE_NONE || (e->flags & ENTF_LOST))
		return false;
	return (e->flags & ENTF_HOST) || !area_stalled(c, e->area);
}

/* Is there a host slot for the content, or can one be had? */
static bool promote_slot(struct core *c, const struct kv_entry *e)
{
	bool waits;

	return (e->flags & ENTF_HOST) || e->io == ENT_READ ||
	       host_free(c, e->domain) || demote_room(c, e->domain, 1, &waits);
}

/*
 * The entry of a block of the lease, and its group.  @n: number of the block, those of
 * group 0 first.
 */
static u32 lease_entry(const struct core *c, const struct kv_seq *s, u32 n, u32 *group)
{
	const struct kv_tab *t = &s->tab;

	for (; n >= tab_live(t); t = seq_tab(c, s, t->group + 1))
		n -= tab_live(t);
	*group = t->group;
	return pte_block(table_pte(c, t, t->trimmed + n));
}

/* Promote one more block.  Return: false: none can be promoted now. */
static bool promote_next(struct core *c, struct kv_seq *s)
{
	u32 group, entry = lease_entry(c, s, s->promote_at, &group), blk;
	const struct kv_entry *e = &c->entries_low[entry];

	if (!can_promote(c, e)) {
		s->promote_at++;
		return true;
	}
	/* Each makes room at the cost of the other's content, so look again. */
	if (!promote_room(c, s) || !promote_slot(c, e) || !can_promote(c, e) ||
	    domain_slack(seq_domain(c, s)) <= wmark_min(seq_domain(c, s)))
		return false;
	blk = block_alloc(c, s->domain, s->client, group);
	if (blk == CORE_NONE)
		return false;
	entry_fill(c, entry, blk);
	core_count(c, CORE_EV_lease_promote, 1);
	s->promote_at++;
	return true;
}

/**
 * leases_background() - go on with the promotion of leased content
 *
 * On a tick, and when a copy or a transfer has ended.  One block at least; an event that
 * has done a lot leaves the others to the next.
 */
void leases_background(struct core *c)
{
	u32 i = c->head->promote_head, next, n = 0;

	for (; i != CORE_NONE && (!n || !core_worked(c)); i = next) {
		struct kv_seq *s = &c->seqs[i];

		next = s->next;
		if (device_is_down(c, seq_domain(c, s)))
			continue;
		while (s->promote_at < seq_live(c, s) && c->head->nr_copies +
		       c->head->nr_ios < PROMOTE_MOST && (!n++ || !core_worked(c)) &&
		       promote_next(c, s))
			core_work(c, WORK_MOVE);
		if (s->promote_at == seq_live(c, s))
			lease_stop_promote(c, s);
	}
	c->work = 0;	/* the event is over */
}
