// SPDX-License-Identifier: Apache-2.0
/*
 * preempt.c - take the memory of a sequence, and of its whole family
 *
 * family_mark() marks a family as the victim of another sequence.  The family is
 * preempted at once, or when the last open step that names one of its members
 * ends: by swap if a lower tier has room and that pays (swap.c), else by
 * recompute: then the client matches its sequences again.
 */
#include "kvmm/core/seq/seq.h"

/**
 * seq_lose() - take the memory of a sequence
 * @state:  KVMM_SEQ_RECOMPUTE or KVMM_SEQ_FAILED
 * @reason: negative errno for the client, or 0
 */
static void seq_lose(struct core *c, struct kv_seq *s, u32 state, int reason)
{
	KV_BUG_ON(s->state == KVMM_SEQ_CLOSED || s->state == KVMM_SEQ_FAILED);
	KV_BUG_ON(s->nr_steps || (state == KVMM_SEQ_FAILED) != !!reason);
	if (s->state != KVMM_SEQ_MARKED)
		s->epoch++;
	core_count(c, CORE_EV_recompute_tokens, s->valid_len);
	s->lost_len = max(s->lost_len, s->valid_len);
	seq_strip(c, s);
	KV_BUG_ON(seq_entries(c, s) || seq_reserved(c, s));
	KV_BUG_ON(s->flags & (SEQF_RUNNING | SEQF_QUEUED));
	s->flags &= ~(SEQF_MATCHED | SEQF_SWAPPED | SEQF_PAGEDOUT |
		      SEQF_REFUSED | SEQF_LEASE);
	s->flags |= SEQF_PREEMPTED;
	s->state = state;
	s->reason = reason;
	s->since = c->now;
	s->cached_len = 0;
	seq_publish(c, s);
}

/* Fail a sequence that can never go on: the client learns the reason, and closes it. */
void seq_fail(struct core *c, struct kv_seq *s, int reason)
{
	core_tell(c, seq_fail, SAID_SEQ(c, s), .tokens = s->valid_len,
		  .error = (u64)reason);
	seq_lose(c, s, KVMM_SEQ_FAILED, reason);
	seq_event(c, s, KVMM_EV_FAILED);
}

/* seq_poisoned() - fail a sequence: the content of its blocks is unknown */
void seq_poisoned(struct core *c, struct kv_seq *s)
{
	why_taken(c, s, false);
	seq_lose(c, s, KVMM_SEQ_FAILED, -ENODEV);
	seq_event(c, s, KVMM_EV_POISONED);
}

/* Preempt a sequence by recompute: the client is to match it again. */
void seq_recompute(struct core *c, struct kv_seq *s)
{
	life_preempted(c, s->domain, s->cause, false, s->valid_len);
	core_tell(c, recompute, SAID_SEQ(c, s), .cause = s->cause,
		  .tokens = s->valid_len);
	why_taken(c, s, false);
	seq_lose(c, s, KVMM_SEQ_RECOMPUTE, 0);
	s->nr_preempted++;
	seq_domain(c, s)->nr_preempted++;
	seq_event(c, s, KVMM_EV_PREEMPTED);
}

/* Is a member preempted for its table pages?  Swapped out it would keep them. */
static bool family_gives_pages(const struct core *c, const struct kv_seq *s)
{
	const struct kv_seq *m;

	for_each_relative(c, s, m)
		if (m->state == KVMM_SEQ_MARKED && m->cause == CORE_CAUSE_table)
			return true;
	return false;
}

/*
 * Preempt the marked sequences of a family when no open step names any of them.  A
 * member that came back meanwhile and runs does not delay the others.
 */
void family_settle(struct core *c, struct kv_seq *s)
{
	struct kv_seq *m;

	for_each_relative(c, s, m)
		if (m->state == KVMM_SEQ_MARKED && m->nr_steps)
			return;
	if (!device_is_lost(c, seq_domain(c, s)) && !family_gives_pages(c, s) &&
	    swap_family(c, s))
		return;
	for_each_relative(c, s, m) {
		if (m->state == KVMM_SEQ_MARKED && device_is_lost(c, seq_domain(c, m)))
			seq_poisoned(c, m);
		else if (m->state == KVMM_SEQ_MARKED)
			seq_recompute(c, m);
	}
}

/**
 * family_mark() - preempt the family of @s, at once or when its open steps end
 * @cause: CORE_CAUSE_*
 * @want:  the sequence that needs the memory; NULL: no certain one, but domain
 *         c->taker, if that is one
 */
void family_mark(struct core *c, struct kv_seq *s, enum core_cause cause,
		 const struct kv_seq *want)
{
	struct kv_seq *m;

	if (want)
		c->taker = want->domain;
	for_each_relative(c, s, m) {
		KV_BUG_ON(m->domain != s->domain);
		if (m->state == KVMM_SEQ_READY) {
			m->state = KVMM_SEQ_MARKED;
			m->epoch++;
			m->limiting_pool = 0;
			seq_domain(c, m)->nr_marked++;
			domain_kick(seq_domain(c, m));
			m->cause = cause;
			why_marked(c, m, want);
			core_tell(c, preempt, SAID_SEQ(c, m), .cause = cause,
				  .tokens = m->valid_len,
				  .blocks = seq_live(c, m),
				  .taker = c->taker);
			seq_publish(c, m);
		}
	}
	family_settle(c, s);
}
