// SPDX-License-Identifier: Apache-2.0
/*
 * link.c - requests to the daemon and their answers
 *
 * The only file of the engine that writes submission entries.  user_data of an
 * entry is the address of a sequence, of a step, of a lease or of a request with
 * beams, with the kind of the entry in the low bits.  The answer brings it back.  The
 * addressed object stays allocated while an answer is due: sequences count
 * their replies, steps keep their slot.
 *
 * OPEN, MATCH, FORK, REMAP and CLOSE are attempts: when the ring is full they
 * return false, or 0, and the caller tries again in the next iteration.  BEGIN
 * and END wait for room, since a full ring must not hold up a step.
 *
 * Entries are published only by kvmm_submit().  The callers decide when to call
 * it, so that entries that belong together reach the daemon at once.
 */
#include <stdio.h>

#include "runtime/engine/internal.h"

#define LINK_WAIT_NS	1000000000ll

enum link_tag {
	LINK_LEASE,
	LINK_OPEN,
	LINK_MATCH,
	LINK_FORK,
	LINK_CLOSE,
	LINK_BEGIN,
	LINK_END,
	LINK_REMAP,
};

#define LINK_TAG_MASK	7ull

static u64 link_data(const void *what, enum link_tag tag)
{
	return (u64)(uintptr_t)what | tag;
}

bool link_open(struct engine *e, struct seq *s)
{
	const struct engine_request *c = &s->req->c;
	struct kvmm_open_arg *a;
	struct kvmm_sqe *sqe;
	void *args;

	sqe = kvmm_prep(e->k, KVMM_OP_SEQ_OPEN, 1, sizeof(*a), &args);
	if (!sqe)
		return false;
	sqe->user_data = link_data(s, LINK_OPEN);
	a = args;
	memset(a, 0, sizeof(*a));
	a->prompt_len = c->nr;
	/* The last token drawn is never read, so it has no KV. */
	a->max_tokens = c->max_new - 1;
	a->priority = c->priority;
	a->salt = c->salt;
	s->replies++;
	return true;
}

/* Send one piece of the ids of @s. */
bool link_match(struct engine *e, struct seq *s)
{
	const u32 nr = min(e->match_ids, s->len - s->matched);
	struct kvmm_match_arg *a;
	struct kvmm_sqe *sqe;
	void *args;

	sqe = kvmm_prep(e->k, KVMM_OP_SEQ_MATCH, 1,
			(u32)(sizeof(*a) + nr * sizeof(u32)), &args);
	if (!sqe)
		return false;
	sqe->user_data = link_data(s, LINK_MATCH);
	a = args;
	memset(a, 0, sizeof(*a));
	a->seq = s->handle;
	a->start = s->matched;
	if (!s->matched)
		s->salvaged = e->salvaged;
	a->nr_ids = nr;
	if (s->matched + nr == s->len)
		a->flags = KVMM_MATCH_LAST;
	memcpy(a + 1, s->ids + s->matched, nr * sizeof(u32));
	s->matched += nr;
	s->replies++;
	return true;
}

bool link_fork(struct engine *e, struct seq *s, u32 nr)
{
	struct kvmm_fork_arg *a;
	struct kvmm_sqe *sqe;
	void *args;

	sqe = kvmm_prep(e->k, KVMM_OP_SEQ_FORK, 1, sizeof(*a), &args);
	if (!sqe)
		return false;
	sqe->user_data = link_data(s, LINK_FORK);
	a = args;
	memset(a, 0, sizeof(*a));
	a->seq = s->handle;
	a->nr_children = nr;
	s->replies++;
	return true;
}

bool link_close(struct engine *e, struct seq *s)
{
	struct kvmm_seq_arg *a;
	struct kvmm_sqe *sqe;
	void *args;

	sqe = kvmm_prep(e->k, KVMM_OP_SEQ_CLOSE, 1, sizeof(*a), &args);
	if (!sqe)
		return false;
	sqe->user_data = link_data(s, LINK_CLOSE);
	a = args;
	a->seq = s->handle;
	s->replies++;
	return true;
}

/**
 * link_remap() - ask the daemon to make beams others
 * @nr: how many beams
 *
 * Return: how many beams the entry names, 0: no room in the ring.
 */
u32 link_remap(struct engine *e, struct request *r, u32 nr)
{
	struct kvmm_remap_arg *a;
	struct kvmm_sqe *sqe;
	void *args;

	nr = within(nr, 1, e->match_ids / (sizeof(*a) / sizeof(u32)));
	sqe = kvmm_prep(e->k, KVMM_OP_SEQ_REMAP, nr,
			(u32)(nr * sizeof(*a)), &args);
	if (!sqe)
		return 0;
	sqe->user_data = link_data(r, LINK_REMAP);
	a = args;
	beams_fill(r, a, nr);
	return nr;
}

/* ---- leases ---- */

/* Arguments of @bytes for one entry, zeroed; NULL: no room in the ring. */
static void *lease_prep(struct engine *e, struct engine_lease *l, u16 op, u32 bytes)
{
	struct kvmm_sqe *sqe;
	void *args;

	sqe = kvmm_prep(e->k, op, 1, bytes, &args);
	if (!sqe)
		return NULL;
	sqe->user_data = link_data(l, LINK_LEASE);
	memset(args, 0, bytes);
	return args;
}

/* Look up the next piece of the ids of @l. */
bool link_lookup(struct engine *e, struct engine_lease *l)
{
	const u32 bt = e->hit_tokens;
	const u32 nr = min(max(e->match_ids / bt, 1u) * bt, l->nr - l->at);
	struct kvmm_lookup_arg *a;

	a = lease_prep(e, l, KVMM_OP_SEQ_LOOKUP,
		       (u32)(sizeof(*a) + nr * sizeof(u32)));
	if (!a)
		return false;
	a->salt = l->salt;
	a->cookie[0] = l->cookie[0];
	a->cookie[1] = l->cookie[1];
	a->start = l->at;
	a->nr_ids = nr;
	memcpy(a + 1, l->ids + l->at, nr * sizeof(u32));
	l->piece = nr;
	return true;
}

/* Lease what the lookup of @l has found. */
bool link_lease(struct engine *e, struct engine_lease *l)
{
	struct kvmm_lease_arg *a = lease_prep(e, l, KVMM_OP_SEQ_LEASE, sizeof(*a));

	if (!a)
		return false;
	a->salt = l->salt;
	a->cookie[0] = l->hit_cookie[0];
	a->cookie[1] = l->hit_cookie[1];
	a->len = l->found;
	a->ms = l->granted;
	memcpy(a->label, l->label, sizeof(a->label));
	return true;
}

bool link_advise(struct engine *e, struct engine_lease *l, u32 advice, u64 value)
{
	struct kvmm_advise_arg *a = lease_prep(e, l, KVMM_OP_SEQ_ADVISE, sizeof(*a));

	if (!a)
		return false;
	a->seq = l->seq;
	a->advice = advice;
	a->value = value;
	return true;
}

/* Open a sequence that has the tokens of the lease of @l, and never grows. */
bool link_pin(struct engine *e, struct engine_lease *l)
{
	struct kvmm_open_arg *a = lease_prep(e, l, KVMM_OP_SEQ_OPEN, sizeof(*a));

	if (!a)
		return false;
	a->prompt_len = l->held;
	a->priority = UINT32_MAX;
	a->salt = l->salt;
	a->lease = l->number;
	return true;
}

/* Close the lease or the pin of @l. */
bool link_lease_close(struct engine *e, struct engine_lease *l, u64 seq)
{
	struct kvmm_seq_arg *a = lease_prep(e, l, KVMM_OP_SEQ_CLOSE, sizeof(*a));

	if (a)
		a->seq = seq;
	return a;
}

/* kvmm_prep(), but wait for room. */
static struct kvmm_sqe *link_prep(struct engine *e, u16 op, u32 nr, u32 bytes,
				  void **args)
{
	struct kvmm_sqe *sqe;

	for (;;) {
		sqe = kvmm_prep(e->k, op, nr, bytes, args);
		if (sqe)
			return sqe;
		if (kvmm_submit(e->k) || link_wait(e, LINK_WAIT_NS))
			return NULL;
	}
}

int link_begin(struct engine *e, struct step *st)
{
	struct kvmm_begin_arg *a;
	struct kvmm_sqe *sqe;
	void *args;
	u32 i;

	sqe = link_prep(e, KVMM_OP_STEP_BEGIN, st->nr,
			(u32)(st->nr * sizeof(*a)), &args);
	if (!sqe)
		return -ECONNRESET;
	sqe->user_data = link_data(st, LINK_BEGIN);
	sqe->step = st->number;
	a = args;
	memset(a, 0, st->nr * sizeof(*a));
	st->salvaged = e->salvaged;
	for (i = 0; i < st->nr; i++) {
		const struct entry *en = &st->entries[i];

		a[i].seq = en->seq->handle;
		a[i].seq_epoch = en->seq->epoch;
		a[i].start = en->start;
		a[i].max_tokens = en->nr;
	}
	return 0;
}

/**
 * link_end() - end a step; only entries that ran have made progress
 * @ns:      time that the forward took
 * @prefill: tokens of prompts in it
 */
int link_end(struct engine *e, struct step *st, u64 ns, u64 prefill)
{
	u32 i, nr = 0, nr_ids = 0, *ids;
	struct kvmm_end_arg *a;
	struct kvmm_sqe *sqe;
	void *args;

	for (i = 0; i < st->nr; i++) {
		if (!st->entries[i].runs)
			continue;
		nr++;
		nr_ids += st->entries[i].nr;
	}
	sqe = link_prep(e, KVMM_OP_STEP_END, nr,
			(u32)(nr * sizeof(*a) + nr_ids * sizeof(u32)), &args);
	if (!sqe)
		return -ECONNRESET;
	sqe->user_data = link_data(st, LINK_END);
	sqe->step = st->number;
	sqe->param[0] = ns;
	sqe->param[1] = prefill;
	a = args;
	ids = (u32 *)(a + nr);
	for (i = 0; i < st->nr; i++) {
		const struct entry *en = &st->entries[i];

		if (!en->runs)
			continue;
		a->seq = en->seq->handle;
		a->valid_len = en->start + en->nr;
		a->nr_ids = en->nr;
		a++;
		memcpy(ids, en->seq->ids + en->start, en->nr * sizeof(u32));
		ids += en->nr;
		en->seq->replies++;
	}
	return 0;
}

/* ------------------------------------------------------------------ */
/* Answers                                                             */

/* The daemon answers so only if this program is wrong. */
static int link_defect(struct engine *e, const char *what, int status)
{
	snprintf(e->why, sizeof(e->why),
		 "kvmm refused %s: %s: this is a defect of kvrt, please report it",
		 what, strerror(-status));
	return -EPROTO;
}

static void link_opened(struct engine *e, struct seq *s,
			const struct kvmm_done *done)
{
	const struct kvmm_open_res *res = done->results;
	int status = done->status;

	if (!status)
		status = done->nr ? res->status : -EPROTO;
	if (!status) {
		s->handle = res->seq;
		s->opened = true;
		seq_tell(s);
	}
	if (seq_is_done(s))
		return;
	if (!status)
		s->state = SEQ_MATCHING;
	else if (status == -EAGAIN)	/* opened again as it is */
		e->throttle = true;
	else
		seq_refused(e, s, status);
}

static void link_matched(struct engine *e, struct seq *s,
			 const struct kvmm_done *done)
{
	const struct kvmm_seq_res *res = done->results;
	int status = done->status;

	if (!status)
		status = done->nr ? res->status : -EPROTO;
	/* The daemon has lost the pieces before this one: start over. */
	if (status && s->salvaged != e->salvaged)
		status = -EAGAIN;
	if (status && !s->match_err)
		s->match_err = status;
}

static int link_ended(struct engine *e, struct step *st,
		      const struct kvmm_done *done)
{
	const struct kvmm_end_res *res = done->results;
	u32 i;

	st->state = STEP_FREE;
	if (done->status && !step_is_void(e, st))
		return link_defect(e, "the end of a step", done->status);
	for (i = 0; i < st->nr; i++) {
		struct entry *en = &st->entries[i];
		struct seq *s;

		if (!en->runs)
			continue;
		s = en->seq;
		s->replies--;
		if (done->status) {
			seq_lose(e, s);
			continue;
		}
		if (res->status == -ESTALE)
			seq_lose(e, s);
		else if (res->status)
			seq_refused(e, s, res->status);
		res++;
	}
	return 0;
}

static int link_dispatch(struct engine *e, const struct kvmm_done *done)
{
	void *what = (void *)(uintptr_t)(done->user_data & ~LINK_TAG_MASK);
	struct seq *s = what;

	switch ((enum link_tag)(done->user_data & LINK_TAG_MASK)) {
	case LINK_LEASE:
		lease_answer(e, what, done);
		return 0;
	case LINK_OPEN:
		s->replies--;
		link_opened(e, s, done);
		return 0;
	case LINK_MATCH:
		s->replies--;
		link_matched(e, s, done);
		return 0;
	case LINK_FORK:
		s->replies--;
		seq_forked(e, s, done);
		return 0;
	case LINK_CLOSE:
		s->replies--;
		s->state = SEQ_CLOSED;
		return 0;
	case LINK_BEGIN:
		if (done->status && done->status != -EAGAIN &&
		    !step_is_void(e, what))
			return link_defect(e, "a step", done->status);
		step_granted(e, what, done);
		return 0;
	case LINK_END:
		return link_ended(e, what, done);
	case LINK_REMAP:
		beams_moved(e, what, done);
		return 0;
	}
	return 0;
}

/**
 * link_collect() - take all answers
 *
 * Return: 0, -ECONNRESET, or -EPROTO with e->why filled.
 */
int link_collect(struct engine *e)
{
	struct kvmm_done done;
	struct kvmm_event ev;
	int ret, err = 0;

	engine_look_salvage(e);
	while (!err && (ret = kvmm_reap(e->k, &done)) != 0) {
		if (ret < 0)
			return -ECONNRESET;
		err = link_dispatch(e, &done);
	}
	kvmm_release(e->k);
	/*
	 * Events say that something has changed; the status records have the
	 * details.
	 */
	do {
		ret = kvmm_next_event(e->k, &ev);
	} while (ret > 0 || ret == -EOVERFLOW);
	return err;
}

/**
 * link_wait() - wait for an answer or an event, and take it
 *
 * Return: 0, also after the timeout; else as link_collect().
 */
int link_wait(struct engine *e, s64 timeout_ns)
{
	int err = kvmm_wait(e->k, timeout_ns);

	if (err && err != -ETIMEDOUT)
		return -ECONNRESET;
	return link_collect(e);
}
