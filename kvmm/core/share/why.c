// SPDX-License-Identifier: Apache-2.0
/*
 * why.c - why a sequence waits, and the memory that it lost
 *
 * The places that decide report to this file: admit.c the reason for which it
 * did not admit a sequence, family_mark() the sequence or domain that a family is
 * preempted for, seq.c and swap.c the memory that was taken.  Each sequence has
 * one record of fixed size, with the last reason and sums.  No decision reads
 * it.  Other reasons need no record: that a sequence waits for its client, or
 * behind other sequences, follows from its state and its place in the list.
 *
 * The domain that a sequence waited for, or lost its memory to, is stored with
 * its serial, so that it is not confused with a later domain of the same number.
 */
#include "kvmm/core/share/share.h"

static const char * const wait_names[NR_CORE_WAITS] = {
#define x(name, text) [CORE_WAIT_##name] = #name,
	CORE_WAITS(x)
#undef x
};

static const char * const wait_texts[NR_CORE_WAITS] = {
#define x(name, text) [CORE_WAIT_##name] = text,
	CORE_WAITS(x)
#undef x
};

static const char * const cause_names[NR_CORE_CAUSES] = {
#define x(name, text) [CORE_CAUSE_##name] = #name,
	CORE_CAUSES(x)
#undef x
};

static const char * const cause_texts[NR_CORE_CAUSES] = {
#define x(name, text) [CORE_CAUSE_##name] = text,
	CORE_CAUSES(x)
#undef x
};

const char *core_wait_name(u32 wait)
{
	return wait < NR_CORE_WAITS ? wait_names[wait] : "?";
}

const char *core_wait_text(u32 wait)
{
	return wait < NR_CORE_WAITS ? wait_texts[wait] : "?";
}

const char *core_cause_name(u32 cause)
{
	return cause < NR_CORE_CAUSES ? cause_names[cause] : "?";
}

const char *core_cause_text(u32 cause)
{
	return cause < NR_CORE_CAUSES ? cause_texts[cause] : "?";
}

/* ---- reports of the places that decide ---- */

/*
 * why_note() - the reason for which admit_one() refuses next; @dom: waits for
 */
void why_note(struct core *c, u32 wait, u32 dom)
{
	KV_BUG_ON(wait >= NR_CORE_WAITS);
	c->wait = wait;
	c->wait_dom = dom;
}

static u32 wait_of(const struct core *c, const struct kv_seq *s,
		   enum verdict verdict)
{
	const struct kv_domain *d = seq_domain(c, s);

	switch (verdict) {
	case WAITS_CLIENT:
		return c->clients[s->client].nr_unacked ? CORE_WAIT_maps :
							  CORE_WAIT_tables;
	case WAITS_HIGH:
		return CORE_WAIT_high;
	case ROOM_MADE:
		return CORE_WAIT_making;
	case ROOM_MOVED:
		return CORE_WAIT_moving;
	case WAITS_HASH:
		return CORE_WAIT_event;
	default:
		break;
	}
	return domain_limited(d, seq_needs(c, s)) ?
	       CORE_WAIT_max : CORE_WAIT_memory;
}

/* @since changes only when the reason changes. */
static void wait_set(struct core *c, struct kv_seq *s, u32 wait, u32 dom)
{
	KV_BUG_ON(dom < core_cfg(c)->max_domains ? !c->domains[dom].used :
							   dom != CORE_NONE);
	if (s->wait.why != wait)
		s->wait.since = c->now;
	s->wait.why = wait;
	s->wait.dom = dom;
	s->wait.serial = dom < core_cfg(c)->max_domains ?
			 c->domains[dom].serial : 0;
}

/* verdict_errno() - a verdict as a negative errno, for traces and probes */
int verdict_errno(enum verdict verdict)
{
	static const int err[] = {
		[ROOM_NOW]	= 0,
		[ROOM_MADE]	= -EINPROGRESS,
		[ROOM_MOVED]	= -EALREADY,
		[ROOM_NONE]	= -EAGAIN,
		[WAITS_CLIENT]	= -EUNATCH,
		[WAITS_HIGH]	= -EBUSY,
		[WAITS_HASH]	= -EINTR,
		[WAITS_NOT]	= -EDQUOT,
	};

	KV_BUG_ON((u32)verdict >= ARRAY_SIZE(err));
	return err[verdict];
}

/* why_refused() - admit_one() refused the sequence with @verdict */
void why_refused(struct core *c, struct kv_seq *s, enum verdict verdict)
{
	KV_BUG_ON(verdict == ROOM_NOW || (s->flags & SEQF_RUNNING));
	wait_set(c, s, c->wait ? c->wait : wait_of(c, s, verdict),
		 c->wait_dom);
}

/* why_held() - @dom is not tried, so that the first of @for_dom is admitted */
void why_held(struct core *c, u32 dom, u32 for_dom)
{
	u32 i = c->domains[dom].wait_head;

	KV_BUG_ON(dom == for_dom || !c->domains[for_dom].used);
	if (i != CORE_NONE)
		wait_set(c, &c->seqs[i], CORE_WAIT_share, for_dom);
}

/* why_marked() - the sequence is a victim; @want as in family_mark() */
void why_marked(struct core *c, struct kv_seq *s, const struct kv_seq *want)
{
	struct kv_taken *t = &s->taken;

	KV_BUG_ON(s->state != KVMM_SEQ_MARKED);
	t->by_domain = c->taker;
	t->by_serial = c->taker < core_cfg(c)->max_domains ?
		       c->domains[c->taker].serial : 0;
	t->by_client = want ? want->client : CORE_NONE;
	t->by_seq = want ? seq_number(c, want) : 0;
}

/* why_taken() - called right before the sequence loses its memory */
void why_taken(struct core *c, struct kv_seq *s, bool kept)
{
	struct kv_taken *t = &s->taken;

	KV_BUG_ON(s->valid_len > s->cover);
	KV_BUG_ON(s->cause >= NR_CORE_CAUSES);
	/*
	 * It was not admitted since the last time: what was kept is lost now,
	 * too.
	 */
	if (t->when && !t->back)
		t->ns += c->now - t->when;
	t->when = c->now;
	t->back = 0;
	t->kept = kept;
	t->blocks = seq_live(c, s);
	t->len = s->valid_len;
	t->found = 0;
	if (!kept)
		t->tokens += s->valid_len;
	/* A loss by a failed read was for no other domain. */
	if (s->cause == CORE_CAUSE_lost)
		t->by_domain = CORE_NONE;
}

/* why_back() - the sequence is admitted, with @valid_len tokens found */
void why_back(struct core *c, struct kv_seq *s)
{
	struct kv_taken *t = &s->taken;

	KV_BUG_ON(!(s->flags & SEQF_RUNNING) || (s->flags & SEQF_QUEUED));
	s->wait.why = CORE_WAIT_nothing;
	if (!t->when || t->back)
		return;
	t->back = c->now;
	t->ns += c->now - t->when;
	t->found = min(t->len, s->valid_len);
}

/* ---- for readers ---- */

/* Domain @dom if it still has this serial, else CORE_NONE. */
static u32 same_domain(const struct core *c, u32 dom, u32 serial)
{
	return dom < core_cfg(c)->max_domains && c->domains[dom].used &&
	       c->domains[dom].serial == serial ? dom : CORE_NONE;
}

static u32 ahead_of(const struct core *c, const struct kv_seq *s)
{
	u32 i = seq_domain(c, s)->wait_head, nr = 0;

	while (i != CORE_NONE && i != seq_index(c, s) && nr < CORE_WHY_AHEAD) {
		i = c->seqs[i].next;
		nr++;
	}
	return nr;
}

/* The reason that was recorded when the sequence was last tried. */
static u32 wait_noted(const struct kv_seq *s)
{
	return s->wait.why ? s->wait.why : CORE_WAIT_event;
}

static u32 wait_in_line(const struct core *c, const struct kv_seq *s,
			struct core_why_view *v)
{
	const struct kv_domain *d = seq_domain(c, s);

	v->ahead = ahead_of(c, s);
	if (!v->ahead)
		return wait_noted(s);
	v->first = wait_noted(&c->seqs[d->wait_head]);
	/*
	 * It may have been tried: a client without maps or pages holds up only
	 * itself.
	 */
	if (s->wait.why == CORE_WAIT_maps || s->wait.why == CORE_WAIT_tables)
		return s->wait.why;
	return CORE_WAIT_line;
}

static u32 wait_now(const struct core *c, const struct kv_seq *s,
		    struct core_why_view *v)
{
	switch (s->state) {
	case KVMM_SEQ_READY:
		return s->flags & SEQF_REFUSED && s->refused ?
		       CORE_WAIT_more : CORE_WAIT_nothing;
	case KVMM_SEQ_MARKED:
		return CORE_WAIT_step;
	case KVMM_SEQ_RESTORING:
		return CORE_WAIT_fill;
	case KVMM_SEQ_FAILED:
		return CORE_WAIT_closed;
	}
	if (s->flags & SEQF_LEASE)
		return CORE_WAIT_lease;
	if (s->flags & SEQF_PAGEDOUT)
		return CORE_WAIT_advice;
	if (!(s->flags & SEQF_QUEUED))
		return CORE_WAIT_client;
	return wait_in_line(c, s, v);
}

static void view_taken(const struct core *c, const struct kv_seq *s, u64 now,
		       struct core_why_view *v)
{
	const struct kv_taken *t = &s->taken;

	v->taken = s->nr_preempted;
	v->out_ns = t->ns;
	v->tokens = t->tokens;
	v->cause = s->cause;
	v->by_domain = CORE_NONE;
	v->by_client = CORE_NONE;
	if (!t->when)
		return;
	v->last_ns = now > t->when ? now - t->when : 1;
	if (!t->back && s->state != KVMM_SEQ_FAILED)
		v->out_ns += v->last_ns;
	v->kept = t->kept;
	v->back = t->back != 0;
	v->blocks = t->blocks;
	v->len = t->len;
	v->found = t->found;
	v->by_domain = same_domain(c, t->by_domain, t->by_serial);
	if (v->by_domain != CORE_NONE) {
		v->by_client = t->by_client;
		v->by_seq = t->by_seq;
	}
}

/* Shards of the domain that a client of the sequence's group maps. */
static u32 shards_mapped(const struct core *c, const struct kv_seq *s)
{
	const struct kv_client *leader = &c->clients[s->client];
	u32 i, nr = 0;

	for (i = 0; i < seq_domain(c, s)->shards; i++)
		nr += leader->member[i] != CORE_NONE &&
		      !c->clients[leader->member[i]].joining;
	return nr;
}

/**
 * core_get_why() - why sequence record @i waits, and the memory that it lost
 * Return: 0; -ERANGE past the last; -ENOENT: it is closed.
 */
int core_get_why(const struct core *c, u32 i, u64 now, struct core_why_view *v)
{
	const struct kv_domain *d;
	const struct kv_seq *s;

	if (i >= core_sizes(c)->nr_seqs)
		return -ERANGE;
	s = &c->seqs[i];
	if (s->state == KVMM_SEQ_CLOSED)
		return -ENOENT;
	d = seq_domain(c, s);
	memset(v, 0, sizeof(*v));
	v->seq = seq_handle(c, s);
	v->client = s->client;
	v->domain = s->domain;
	v->state = seq_state_seen(s);
	v->wait = wait_now(c, s, v);
	v->wait_domain = CORE_NONE;
	if (v->wait == s->wait.why && v->wait) {
		v->wait_domain = same_domain(c, s->wait.dom, s->wait.serial);
		v->reason_ns = now > s->wait.since ? now - s->wait.since : 0;
	}
	if (!(s->flags & (SEQF_RUNNING | SEQF_LEASE)) && s->state != KVMM_SEQ_FAILED)
		v->waits_ns = now > s->since ? now - s->since : 0;
	v->shards = d->shards;
	v->shards_mapped = shards_mapped(c, s);
	v->needs = seq_needs(c, s);
	v->room = domain_slack(d);
	v->cached = domain_cached(d);
	v->held = domain_held(d);
	view_taken(c, s, now, v);
	return 0;
}
