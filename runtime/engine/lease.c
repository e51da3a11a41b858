// SPDX-License-Identifier: Apache-2.0
/*
 * lease.c - cached content that stays without a request
 *
 *	retain		RENEW, or LOOK.. [END_OLD] MAKE..
 *	demote, prefetch	[LOOK.. MAKE..] ADVISE
 *	pin		[LOOK.. MAKE..] PIN
 *	unpin, forget	UNPIN END
 *
 * Each of these is one request to the daemon, and the answer decides on the next one, so
 * no step waits for a hint, however long the prompt.  LOOK sends the ids in pieces.  MAKE
 * is repeated with half of the time while the daemon says that it is too long, later
 * while the daemon cannot begin more copies, and after another LOOK when the content has
 * changed.  A lease may be gone at any time, since its deadline passed or the daemon
 * died; then the content is looked up again, once.
 *
 * Leases and pins take sequences of the client.  The engine attaches with more than its
 * requests use (create.c), so that they take none from requests.
 */
#include "runtime/engine/internal.h"

#define LEASE_TRIES	100u		/* repeated requests of one hint */
#define LEASE_PAUSE_NS	10000000ll	/* before copies are asked for again */
#define LEASE_SLACK_NS	100000000ll	/* deadlines are the daemon's */
#define PIN_SHARE	4u		/* 1/n of the pool may be pinned */

const char *engine_hint_text(int err)
{
	switch (-err) {
	case 0:
		return "";
	case ENOENT:
		return "nothing of it is cached";
	case ENOSPC:
		return "the host pool and the swap areas have no room";
	case EDQUOT:
		return "all that leases may hold is held";
	case EAGAIN:
		return "too many copies are under way: try again";
	case EMFILE:
		return "there are as many leases and pins as the server makes";
	case EFBIG:
		return "more than a quarter of the memory would be pinned";
	case ESHUTDOWN:
		return "an operator drains the memory daemon";
	case ECONNRESET:
	case ECANCELED:
		return "the memory daemon is away";
	default:
		return strerror(-err);
	}
}

/* ---- handles ---- */

/* @l has these handles from now on. */
static void lease_has(struct engine *e, struct engine_lease *l, u64 seq, u64 pin)
{
	const u32 before = !!l->seq + !!l->pin, after = !!seq + !!pin;

	e->nr_handles += after - before;
	if (!before && after)
		list_add_tail(&e->held, &l->held_link);
	else if (before && !after)
		list_del(&l->held_link);
	l->seq = seq;
	l->pin = pin;
	if (!seq)
		l->held = 0;
	if (!seq && !l->kept)
		l->until = 0;
	if (!pin) {
		e->pinned -= l->pinned;
		l->pinned = 0;
		l->pin_old = false;
	}
}

/* Leases end in the daemon by themselves: free their places. */
static void leases_expire(struct engine *e)
{
	const s64 now = engine_now() - LEASE_SLACK_NS;
	struct list *it, *tmp;

	list_for_each(&e->held, it, tmp) {
		struct engine_lease *l = list_entry(it, struct engine_lease, held_link);

		if (l->seq && l->until < now && l->todo == LEASE_NOTHING) {
			l->kept = 0;
			lease_has(e, l, 0, l->pin);
		}
	}
}

/* Is there a place for one more lease or pin?  Those that were asked for have theirs. */
static bool has_place(struct engine *e)
{
	if (e->nr_handles + e->nr_making >= e->max_handles)
		leases_expire(e);
	return e->nr_handles + e->nr_making < e->max_handles;
}

/* The request that is next was sent: @sign is 1; or answered: -1. */
static void count_making(struct engine *e, const struct engine_lease *l, int sign)
{
	if (l->todo == LEASE_MAKE || l->todo == LEASE_PIN)
		e->nr_making += (u32)sign;
	if (l->todo == LEASE_PIN)
		e->pinning += (u64)((s64)sign * l->held);
}

static u64 pin_most(const struct engine *e)
{
	const struct kvmm_attach_rep *info = kvmm_info(e->k);
	const u64 blocks = info->span_extents ? (u64)info->pool_extents /
			   info->span_extents * info->span_blocks : 0;

	return min(blocks, e->max_blocks) / PIN_SHARE * e->kv.block_tokens[0];
}

/* ---- requests ---- */

/* The hint has ended: leases_advance() says so. */
static void lease_finish(struct engine_lease *l, int err)
{
	l->todo = LEASE_DONE;
	l->err = err;
}

/* The owner may free @l, or begin the next hint. */
static void lease_report(struct engine *e, struct engine_lease *l)
{
	list_del(&l->busy_link);
	e->nr_hints--;
	l->todo = LEASE_NOTHING;
	l->on_done(l);
}

/* The content may be cached without a lease: look, unless this hint has done so. */
static void lease_look(struct engine *e, struct engine_lease *l)
{
	const s64 now = engine_now();

	if (l->looked || !l->nr) {
		lease_finish(l, -ENOENT);
		return;
	}
	/* Content that is kept without a lease, or by an older one, is kept no shorter. */
	if (l->hint != ENGINE_RETAIN && l->until > now)
		l->granted = max(l->ms, (u32)((l->until - now) / 1000000));
	l->looked = true;
	l->found = 0;
	l->at = 0;
	l->kept = 0;
	if (!l->seq)
		l->until = 0;
	l->cookie[0] = l->cookie[1] = 0;
	l->todo = LEASE_LOOK;
}

/* There is a lease, new or old: carry out the rest of the hint. */
static void lease_use(struct engine_lease *l)
{
	switch (l->hint) {
	case ENGINE_DEMOTE:
	case ENGINE_PREFETCH:
		l->todo = LEASE_ADVISE;
		return;
	case ENGINE_PIN:
		l->todo = LEASE_PIN;
		return;
	default:
		lease_finish(l, 0);
	}
}

/* The first request of a hint. */
static void lease_begin(struct engine *e, struct engine_lease *l)
{
	const bool good = l->seq && !l->stale;

	switch (l->hint) {
	case ENGINE_RETAIN:
		if (good && l->held == l->nr)
			l->todo = LEASE_RENEW;
		else
			lease_look(e, l);
		return;
	case ENGINE_PIN:
		if (l->pin) {
			if (l->stale || l->pin_old)
				l->todo = LEASE_UNPIN;	/* then begin again */
			else
				lease_finish(l, 0);
			return;
		}
		/* fall through */
	case ENGINE_DEMOTE:
	case ENGINE_PREFETCH:
		if (good)
			lease_use(l);
		else
			lease_look(e, l);
		return;
	case ENGINE_UNPIN:
	case ENGINE_FORGET:
		if (l->pin)
			l->todo = LEASE_UNPIN;
		else if (l->seq && l->hint == ENGINE_FORGET)
			l->todo = LEASE_END;
		else
			lease_finish(l, 0);
		return;
	}
}

/* Send the request that is next.  Return: false: the ring is full. */
static bool lease_send(struct engine *e, struct engine_lease *l)
{
	switch (l->todo) {
	case LEASE_RENEW:
		return link_advise(e, l, KVMM_ADV_KEEP_UNTIL, (u64)engine_now() +
				   l->ms * 1000000ull);
	case LEASE_LOOK:
		return link_lookup(e, l);
	case LEASE_END_OLD:
	case LEASE_END:
		return link_lease_close(e, l, l->seq);
	case LEASE_MAKE:
		return link_lease(e, l);
	case LEASE_ADVISE:
		return link_advise(e, l, l->hint == ENGINE_DEMOTE ?
				   KVMM_ADV_PAGEOUT : KVMM_ADV_WILLNEED, 0);
	case LEASE_PIN:
		return link_pin(e, l);
	case LEASE_UNPIN:
		return link_lease_close(e, l, l->pin);
	case LEASE_NOTHING:
	case LEASE_DONE:
		break;
	}
	return true;
}

/* Is there room for the request that is next?  Else the hint has ended. */
static void lease_check(struct engine *e, struct engine_lease *l)
{
	if ((l->todo == LEASE_MAKE || l->todo == LEASE_PIN) && !has_place(e))
		lease_finish(l, -EMFILE);
	else if (l->todo == LEASE_PIN && e->pinned + e->pinning + l->held > pin_most(e))
		lease_finish(l, -EFBIG);
}

/**
 * leases_advance() - send the next request of every hint, report those that ended
 */
void leases_advance(struct engine *e)
{
	const s64 now = e->nr_hints ? engine_now() : 0;
	struct list *it, *tmp;

	list_for_each(&e->hints, it, tmp) {
		struct engine_lease *l = list_entry(it, struct engine_lease, busy_link);

		if (l->todo == LEASE_NOTHING)
			lease_begin(e, l);
		if (l->sent || now < l->not_before)
			continue;
		lease_check(e, l);
		if (l->todo == LEASE_DONE) {
			lease_report(e, l);
			continue;
		}
		l->sent = lease_send(e, l);
		if (l->sent)
			count_making(e, l, 1);
	}
}

/* ---- answers ---- */

static bool may_repeat(struct engine_lease *l)
{
	return l->tries && l->tries--;
}

static void answer_renew(struct engine *e, struct engine_lease *l, int err)
{
	if (!err) {
		l->until = engine_now() + l->ms * 1000000ll;
		lease_use(l);
		return;
	}
	/* A time that is too long is shortened where a lease is made. */
	if (err == -ENOENT)
		lease_has(e, l, 0, l->pin);
	lease_look(e, l);
}

static bool look_is_sane(const struct engine *e, const struct engine_lease *l,
			 const struct kvmm_lookup_res *res)
{
	if (res->found > l->piece || res->found % e->hit_tokens ||
	    (!res->found && (res->flags & KVMM_LOOKUP_MORE)))
		return false;
	return !res->hit || (res->hit > l->at && res->hit <= l->at + res->found &&
			     res->hit % e->hit_tokens == 0);
}

/* Pieces go on where the last one ended; a hit may end before, or in an earlier piece. */
static void answer_look(struct engine *e, struct engine_lease *l, int err,
			const struct kvmm_lookup_res *res)
{
	if (!err && !look_is_sane(e, l, res))
		err = -EPROTO;
	if (err) {
		lease_finish(l, err);
		return;
	}
	l->at += res->found;
	l->cookie[0] = res->cookie[0];
	l->cookie[1] = res->cookie[1];
	if (res->hit) {
		l->found = res->hit;
		l->hit_cookie[0] = res->hit_cookie[0];
		l->hit_cookie[1] = res->hit_cookie[1];
	}
	if (l->at < l->nr &&
	    (res->found == l->piece || (res->flags & KVMM_LOOKUP_MORE)))
		return;			/* the next piece */
	if (!l->found)
		lease_finish(l, -ENOENT);
	else
		l->todo = l->seq ? LEASE_END_OLD : LEASE_MAKE;
}

/* The longest lease that the daemon allows, in ms; 0: the answer names none. */
static u32 longest_ms(const struct kvmm_lease_res *res, u32 ms)
{
	const s64 left = (s64)res->until - engine_now();

	return left >= 1000000 && left / 1000000 < ms ? (u32)(left / 1000000) : 0;
}

static void answer_make(struct engine *e, struct engine_lease *l, int err,
			const struct kvmm_lease_res *res)
{
	if (err == -ERANGE && longest_ms(res, l->granted) && may_repeat(l)) {
		l->granted = longest_ms(res, l->granted);
		return;
	}
	/* Some of it was dropped since the lookup, or this is another daemon. */
	if (err == -ENOENT && may_repeat(l)) {
		l->looked = false;
		lease_look(e, l);
		return;
	}
	l->kept = err == -ERANGE ? 0 : res->kept;
	l->pin_old |= l->pin && l->stale;
	l->stale = false;
	l->until = engine_now() + l->granted * 1000000ll;
	if (!err) {
		l->until = (s64)res->until;
		l->number = res->number;
		l->reason = res->reason;
		lease_has(e, l, res->seq, l->pin);
		l->held = res->held;
	}
	/* In pieces: the copies of this one end before the next begins. */
	if ((err == -EAGAIN || (!err && l->reason == -EAGAIN)) && may_repeat(l)) {
		l->not_before = engine_now() + LEASE_PAUSE_NS;
		l->todo = err ? LEASE_MAKE : LEASE_END_OLD;
	} else if (err) {
		lease_has(e, l, 0, l->pin);
		lease_finish(l, err);
	} else {
		lease_use(l);
	}
}

static void answer_pin(struct engine *e, struct engine_lease *l, int err,
		       const struct kvmm_open_res *res)
{
	if (err == -ENOENT) {
		lease_has(e, l, 0, l->pin);
		lease_look(e, l);
		return;
	}
	if (!err) {
		l->pinned = l->held;
		e->pinned += l->pinned;
		lease_has(e, l, l->seq, res->seq);
	}
	lease_finish(l, err);
}

static void answer_advise(struct engine *e, struct engine_lease *l, int err,
			  const struct kvmm_seq_res *res)
{
	if (err == -ENOENT) {
		lease_has(e, l, 0, l->pin);
		lease_look(e, l);
		return;
	}
	l->moved = err ? 0 : res->valid_len;
	lease_finish(l, err);
}

/**
 * lease_answer() - the daemon has answered the last request of @l
 */
void lease_answer(struct engine *e, struct engine_lease *l,
		  const struct kvmm_done *done)
{
	static const struct kvmm_lease_res none;
	int err = done->status;

	if (!err)	/* every result begins with its status */
		err = done->nr ? *(const s32 *)done->results : -EPROTO;
	l->sent = false;
	count_making(e, l, -1);
	switch (l->todo) {
	case LEASE_RENEW:
		answer_renew(e, l, err);
		return;
	case LEASE_LOOK:
		answer_look(e, l, err, done->results);
		return;
	case LEASE_END_OLD:
		lease_has(e, l, 0, l->pin);
		l->todo = LEASE_MAKE;
		return;
	case LEASE_MAKE:
		answer_make(e, l, err, done->nr ? done->results : &none);
		return;
	case LEASE_ADVISE:
		answer_advise(e, l, err, done->results);
		return;
	case LEASE_PIN:
		answer_pin(e, l, err, done->results);
		return;
	case LEASE_UNPIN:
		lease_has(e, l, l->seq, 0);
		lease_begin(e, l);
		return;
	case LEASE_END:
		l->kept = 0;
		lease_has(e, l, 0, l->pin);
		lease_finish(l, 0);
		return;
	case LEASE_NOTHING:
	case LEASE_DONE:
		break;
	}
}

/* ---- all leases ---- */

int engine_hint(struct engine *e, struct engine_lease *l)
{
	if (e->ended || e->closing)
		return e->ended ? e->ended : -ECANCELED;
	l->err = 0;
	l->reason = 0;
	l->moved = 0;
	l->granted = l->ms;
	l->looked = false;
	l->tries = LEASE_TRIES;
	l->not_before = 0;
	list_add_tail(&e->hints, &l->busy_link);
	e->nr_hints++;
	return 0;
}

/**
 * leases_end() - the attachment has ended, or ends: no answer will come
 * @err: of the hints at work
 */
void leases_end(struct engine *e, int err)
{
	struct list *it, *tmp;

	e->nr_making = 0;
	e->pinning = 0;
	list_for_each(&e->held, it, tmp) {
		struct engine_lease *l = list_entry(it, struct engine_lease, held_link);

		l->kept = 0;
		lease_has(e, l, 0, 0);
	}
	while (!list_empty(&e->hints)) {
		struct engine_lease *l = list_entry(e->hints.next,
						    struct engine_lease, busy_link);

		l->sent = false;
		l->err = err;
		lease_report(e, l);
	}
}

static u32 pin_state(const struct engine *e, const struct engine_lease *l)
{
	struct kvmm_seq_status st;
	int err = kvmm_seq_status(e->k, l->pin, &st);

	if (err)	/* the daemon is between two writes, or away */
		return err == -ENOENT ? KVMM_SEQ_CLOSED : KVMM_SEQ_SWAPPED;
	return st.state;
}

u32 engine_pinned(const struct engine *e, const struct engine_lease *l)
{
	return l->pin && pin_state(e, l) == KVMM_SEQ_READY ? l->pinned : 0;
}

bool engine_pin_lost(const struct engine *e, const struct engine_lease *l)
{
	const u32 state = l->pin ? pin_state(e, l) : KVMM_SEQ_SWAPPED;

	return state == KVMM_SEQ_CLOSED || state == KVMM_SEQ_FAILED ||
	       state == KVMM_SEQ_RECOMPUTE;
}
