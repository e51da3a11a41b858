// SPDX-License-Identifier: Apache-2.0
/*
 * seq.c - the life of a sequence
 *
 *	OPENING -> MATCHING -> WAITING -> RUNNING -> OVER -> CLOSING -> CLOSED
 *	                ^          |  ^      |
 *	                +----------+  +------+  preempted
 *
 * The daemon decides the state of a sequence and writes it to the status
 * record, which only this file reads.  A sequence that is not READY under the
 * epoch it was adopted with has lost its memory: the engine waits until its
 * open steps have ended.  Then the status record says one of two things.
 * SWAPPED, later RESTORING: the daemon moved its blocks to a lower tier.  The
 * sequence comes back by itself as READY, in other blocks, with the same valid
 * length.  RECOMPUTE, also for a swapped sequence whose content was lost: the
 * engine matches it again with all its ids, prompt and generated, and it goes
 * on from the valid length that the match found.  In both cases a token is
 * drawn only after the last known id, so no token is drawn twice.
 *
 * The members of a preempted family come back one after the other: a member is
 * matched when no other is still recomputing.  So the shared part is computed
 * once and the other members find it in the index, instead of filling the pool
 * with copies of one prompt.
 */
#include <stdlib.h>

#include "runtime/engine/internal.h"

static void live_insert(struct engine *e, struct seq *s)
{
	const struct request *r = s->req;
	u32 i = e->nr_live++;

	for (; i; i--) {
		const struct request *o = e->live[i - 1]->req;

		if (o->c.priority > r->c.priority ||
		    (o->c.priority == r->c.priority && o->id <= r->id))
			break;
		e->live[i] = e->live[i - 1];
	}
	e->live[i] = s;
}

/* seq_create() - a new sequence in state OPENING; NULL: no memory */
struct seq *seq_create(struct engine *e, struct request *r)
{
	const u32 cap = r->c.nr + r->c.max_new;
	u32 nr[MODEL_MAX_GROUPS], g, *at;
	size_t words = cap;
	struct seq *s;

	for (g = 0; g < e->info->nr_groups; g++) {
		nr[g] = DIV_ROUND_UP(cap, e->kv.block_tokens[g]) * e->entries[g];
		/* A shared record may stand before its successor. */
		if (e->group[g].kind == KVMM_GROUP_STATE)
			nr[g] += e->entries[g];
		words += nr[g];
	}
	s = calloc(1, sizeof(*s) + words * sizeof(u32));
	if (!s)
		return NULL;
	s->req = r;
	s->sample = ENGINE_NO_SAMPLE;
	s->ids = (u32 *)(s + 1);
	s->cap = cap;
	at = s->ids + cap;
	for (g = 0; g < e->info->nr_groups; at += nr[g++])
		s->table[g] = at;
	memcpy(s->ids, r->c.ids, r->c.nr * sizeof(u32));
	s->len = r->c.nr;
	r->nr_seqs++;
	live_insert(e, s);
	return s;
}

/* seq_lose() - the daemon has preempted @s, or is about to */
void seq_lose(struct engine *e, struct seq *s)
{
	if (s->state != SEQ_RUNNING)
		return;
	s->state = SEQ_WAITING;
	s->lost = true;
	times_lost(s);
	KV_PROBE(kvrt, preempted, s->req->id, s->sample, s->computed, s->len);
	e->stats.preemptions++;
}

/* seq_is_resident() - may a step name @s? */
bool seq_is_resident(struct engine *e, struct seq *s)
{
	struct kvmm_seq_status st;

	if (s->state != SEQ_RUNNING)
		return false;
	if (!kvmm_seq_status(e->k, s->handle, &st) &&
	    st.state == KVMM_SEQ_READY && st.seq_epoch == s->epoch)
		return true;
	seq_lose(e, s);
	return false;
}

static void seq_count_admission(struct engine *e, struct seq *s)
{
	struct request *r = s->req;

	if (s != r->root || r->admitted) {
		if (s->lost && s->matched)
			e->stats.readmitted_cached += s->computed;
		e->stats.restored += s->lost && !s->matched;
		return;
	}
	r->admitted = true;
	r->cached = s->computed;
	KV_PROBE(kvrt, request_admitted, r->id, request_us(r), r->c.nr,
		 s->computed);
	flow_admitted(e, r, s->computed);
	e->stats.prompt_tokens += r->c.nr;
	e->stats.cached_tokens += s->computed;
}

/* Is @valid a possible valid length of @s? */
static bool seq_valid_is_sane(const struct seq *s, u32 valid)
{
	/*
	 * Before all is scored a match finds only blocks that @s has scored
	 * itself.
	 */
	if (seq_scores(s) && valid > s->req->scored)
		return false;
	/* Without a match no block can be found that was not computed. */
	if (s->lost && !s->matched)
		return valid <= s->computed;
	/*
	 * The last known id is still to be read, unless its logits are known.
	 */
	return valid < s->len || (valid == s->len && s->to_fork);
}

/*
 * @s is READY: take over the daemon's valid length, read the whole table anew.
 */
static void seq_adopt(struct engine *e, struct seq *s,
		      const struct kvmm_seq_status *st)
{
	if (!seq_valid_is_sane(s, st->valid_len)) {
		seq_fail(e, s, -EPROTO,
			 "kvmm says that %u of %u tokens are valid",
			 st->valid_len, s->len);
		return;
	}
	s->epoch = st->seq_epoch;
	s->computed = st->valid_len;
	s->planned = s->computed;
	memset(s->table_ok, 0, sizeof(s->table_ok));
	s->state = SEQ_RUNNING;
	if (s->lost)
		KV_PROBE(kvrt, restored, s->req->id, s->sample, s->computed,
			 s->len);
	seq_count_admission(e, s);
	s->high = max(s->high, s->computed);
	s->lost = false;
	if (s->behind && s->computed == s->high)
		times_caught_up(s, engine_now());
}

/*
 * Is another member of the family still computing positions that @s may share?
 */
static bool family_recomputes(const struct seq *s)
{
	const struct request *r = s->req;
	u32 i;

	for (i = 0; i < r->width; i++) {
		const struct seq *o = r->samples[i].seq;

		if (!o || o == s || !o->opened || beam_is_leaving(o))
			continue;
		if (o->state == SEQ_MATCHING ||
		    (o->state == SEQ_WAITING && o->matched))
			return true;
		if (o->state == SEQ_RUNNING && o->computed + 1 < o->len)
			return true;
	}
	return false;
}

static void seq_match(struct engine *e, struct seq *s)
{
	while (s->matched < s->len && link_match(e, s))
		;
	if (s->matched < s->len || s->replies)
		return;
	if (s->match_err == -EAGAIN) {
		s->matched = 0;		/* no room for its ids: start over */
		s->match_err = 0;
		e->throttle = true;
	} else if (s->match_err) {
		seq_refused(e, s, s->match_err);
	} else {
		s->state = SEQ_WAITING;
		e->unread = true;
	}
}

static void seq_rematch(struct engine *e, struct seq *s)
{
	if (family_recomputes(s))
		return;
	s->state = SEQ_MATCHING;
	s->matched = 0;
	s->match_err = 0;
	seq_match(e, s);
}

static void seq_poll(struct engine *e, struct seq *s)
{
	struct kvmm_seq_status st;
	int err;

	if (s->nr_open || s->replies)
		return;
	err = kvmm_seq_status(e->k, s->handle, &st);
	/*
	 * The daemon died while writing the record; the next daemon rewrites
	 * it.
	 */
	if (err == -ECONNRESET || err == -EAGAIN)
		return;
	if (err) {
		seq_fail(e, s, -ENOENT, "kvmm has lost the sequence");
		return;
	}
	switch (st.state) {
	case KVMM_SEQ_READY:
		seq_adopt(e, s, &st);
		s->matched = 0;
		break;
	case KVMM_SEQ_RECOMPUTE:
		beam_rematch(s);
		seq_rematch(e, s);
		break;
	case KVMM_SEQ_FAILED:
		seq_refused(e, s, st.reason);
		break;
	case KVMM_SEQ_CLOSED:
		seq_fail(e, s, -ENOENT, "kvmm has closed the sequence");
		break;
	case KVMM_SEQ_WAITING:
		s->waits++;
		break;
	case KVMM_SEQ_SWAPPED:
	case KVMM_SEQ_RESTORING:
	default:
		break;		/* the record will change */
	}
}

/* ------------------------------------------------------------------ */
/* Forks                                                               */

/* Does sample @k wait for a child of @s? */
static bool sample_pends(const struct seq *s, u32 k)
{
	const struct sample *sm = &s->req->samples[k];

	return (!sm->over || s->req->beams) && sm->seq && sm->seq != s &&
		!sm->seq->opened;
}

static void seq_fork(struct engine *e, struct seq *s)
{
	struct request *r = s->req;
	u32 k, nr = 0;

	/*
	 * FORK needs a sequence without open steps: all its positions are
	 * computed.
	 */
	if (s->replies || s->computed != s->len || !seq_is_resident(e, s))
		return;
	for (k = 0; k < r->width; k++)
		nr += sample_pends(s, k);
	if (!nr) {		/* all were cancelled meanwhile */
		seq_forked(e, s, NULL);
		return;
	}
	if (!link_fork(e, s, nr))
		return;
	for (k = 0; k < r->width; k++)
		if (sample_pends(s, k))
			r->samples[k].seq->replies++;
	s->state = SEQ_FORKING;
}

/*
 * fork_may_retry() - can a FORK or REMAP that failed with @status succeed
 * later?
 */
bool fork_may_retry(const struct engine *e, const struct request *r,
		    int status)
{
	if (status == -ENOSPC)
		return e->nr_live > r->nr_seqs;
	return status == -EAGAIN || status == -EBUSY || status == -ESTALE;
}

/* After on_done() of a sample the caller may have freed its memory. */
void seq_tell(const struct seq *s)
{
	const u32 sample = s->sample == ENGINE_NO_SAMPLE ? 0 : s->sample;
	const struct request *r = s->req;

	if (r->c.on_seq && sample < r->c.n && !r->samples[sample].over)
		r->c.on_seq(r->c.arg, sample, s->handle);
}

static void child_born(struct engine *e, struct seq *s, struct seq *child,
		       s32 first, const struct kvmm_open_res *res)
{
	child->handle = res->seq;
	child->opened = true;
	e->stats.forks++;
	seq_tell(child);
	if (seq_is_done(child))
		return;
	child->ids[child->len++] = (u32)first;
	child->high = s->high;
	child->state = SEQ_WAITING;	/* adopted once its record says READY */
}

/**
 * seq_forked() - handle the answer to FORK
 * @done: NULL when no child was left to fork
 *
 * Children that were refused for now are forked later; @s goes on when no such
 * child is left.
 */
void seq_forked(struct engine *e, struct seq *s, const struct kvmm_done *done)
{
	const struct kvmm_open_res *res = done ? done->results : NULL;
	struct request *r = s->req;
	u32 k, i = 0, left = 0;

	for (k = 0; done && k < r->width; k++) {
		struct seq *child = r->samples[k].seq;
		int status = done->status;

		if (!child || child == s || child->opened || !child->replies)
			continue;
		child->replies--;
		if (!status)
			status = i < done->nr ? res[i].status : -EPROTO;
		if (!status)
			child_born(e, s, child, r->samples[k].first, &res[i]);
		else if (fork_may_retry(e, r, status))
			left += !seq_is_done(child);
		else if (!seq_is_done(child))
			seq_refused(e, child, status);
		i++;
	}
	if (seq_is_done(s))
		return;
	s->state = SEQ_RUNNING;
	e->throttle |= left != 0;
	if (left)
		return;
	s->to_fork = false;
	if (!r->beams && r->samples[s->sample].over)	/* cancelled meanwhile */
		s->state = SEQ_OVER;
	else
		s->ids[s->len++] = (u32)r->samples[s->sample].first;
}

/* ------------------------------------------------------------------ */
/* All sequences */

static void seq_end_life(struct engine *e, struct seq *s)
{
	if (s->behind)
		times_caught_up(s, engine_now());
	if (s->replies || s->nr_open)
		return;
	if (!s->opened || e->ended)
		s->state = SEQ_CLOSED;
	else if (link_close(e, s))
		s->state = SEQ_CLOSING;
}

static void seq_advance(struct engine *e, struct seq *s)
{
	switch (s->state) {
	case SEQ_OPENING:
		if (s == s->req->root && !s->replies)
			link_open(e, s);
		break;
	case SEQ_MATCHING:
		seq_match(e, s);
		break;
	case SEQ_WAITING:
		seq_poll(e, s);
		break;
	case SEQ_RUNNING:
		if (s->to_fork)
			seq_fork(e, s);
		else if (s->held)
			beams_advance(e, s->req);
		break;
	case SEQ_OVER:
		seq_end_life(e, s);
		break;
	default:
		break;
	}
}

static void seq_bury(struct engine *e, struct seq *s)
{
	struct request *r = s->req;

	prefix_add(e, s->ids, s->computed, r->c.salt);
	if (r->root == s)
		r->root = NULL;
	if (s->sample != ENGINE_NO_SAMPLE)
		r->samples[s->sample].seq = NULL;
	if (!--r->nr_seqs) {
		e->reserved -= r->width;
		e->queue.freed += r->width;
		request_free(e, r);
	}
	free(s);
}

/**
 * seqs_advance() - let every sequence do the next thing possible
 *
 * Frees closed sequences, and each request with the last of its sequences.
 */
void seqs_advance(struct engine *e)
{
	u32 i, nr = 0;

	e->unread = false;
	for (i = 0; i < e->nr_live; i++)
		seq_advance(e, e->live[i]);
	for (i = 0; i < e->nr_live; i++) {
		struct seq *s = e->live[i];

		if (s->state == SEQ_CLOSED)
			seq_bury(e, s);
		else
			e->live[nr++] = s;
	}
	e->nr_live = nr;
}
