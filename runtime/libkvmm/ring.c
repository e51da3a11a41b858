// SPDX-License-Identifier: Apache-2.0
/*
 * ring.c - requests go out, completions come back
 *
 * Each request has exactly one completion and completions come in the order of
 * requests, so both are counted by one running index (see the picture at struct
 * kvmm in internal.h).  The argument area is used as a ring too: the arguments
 * of a request lie in one piece.  Where they would not fit, a gap is left at
 * the end of the area.  Space is freed in the order of allocation, when the
 * published completion head passes it.
 *
 * The caller releases results, since they are read in place.  The requests that
 * the library makes itself, and those of the one-request calls (lk_take()), are
 * released by the library as soon as the caller holds nothing before them.
 *
 * The daemon is trusted, but a completion that does not belong to the request
 * that is due, or a result outside the area, ends the attachment.  That is
 * better than handing out another sequence's blocks after a bug.
 */
#include <errno.h>
#include <unistd.h>

#include <kvmm/clock.h>

#include "runtime/libkvmm/internal.h"

#define SPIN_SLICE	256	/* pauses between reads of the clock */

s64 lk_now(void)
{
	return (s64)kv_now_ns();
}

/* Size of one result record of @op; 0: it has none. */
u32 lk_result_size(u16 op)
{
	static const u8 size[KVMM_NR_OPS] = {
		[KVMM_OP_SEQ_OPEN]	= sizeof(struct kvmm_open_res),
		[KVMM_OP_SEQ_MATCH]	= sizeof(struct kvmm_seq_res),
		[KVMM_OP_STEP_BEGIN]	= sizeof(struct kvmm_begin_res),
		[KVMM_OP_STEP_END]	= sizeof(struct kvmm_end_res),
		[KVMM_OP_SEQ_FORK]	= sizeof(struct kvmm_open_res),
		[KVMM_OP_SEQ_REMAP]	= sizeof(struct kvmm_seq_res),
		[KVMM_OP_SEQ_CLOSE]	= sizeof(struct kvmm_seq_res),
		[KVMM_OP_SEQ_TRUNCATE]	= sizeof(struct kvmm_seq_res),
		[KVMM_OP_SEQ_TRIM]	= sizeof(struct kvmm_seq_res),
		[KVMM_OP_SEQ_ADVISE]	= sizeof(struct kvmm_seq_res),
		[KVMM_OP_SEQ_SETPRIO]	= sizeof(struct kvmm_seq_res),
		[KVMM_OP_EXTENT_ACK]	= sizeof(struct kvmm_seq_res),
		[KVMM_OP_SEQ_LOOKUP]	= sizeof(struct kvmm_lookup_res),
		[KVMM_OP_SEQ_LEASE]	= sizeof(struct kvmm_lease_res),
	};

	return op < KVMM_NR_OPS ? size[op] : 0;
}

static struct lk_req *req_at(struct kvmm *k, u32 index)
{
	return &k->req[index & (k->info.cq_entries - 1)];
}

/*
 * Allocate @bytes of the argument area in one piece.
 * Return: true with the offset in @off, false when they are not free.
 */
static bool arg_take(struct kvmm *k, u32 bytes, u32 *off)
{
	const u32 size = k->info.arg_bytes;
	u32 at, gap = 0;

	if (bytes > size)
		return false;
	bytes = ALIGN_UP(bytes, 8u);
	at = (u32)(k->arg_tail % size);
	if (at + (u64)bytes > size)
		gap = size - at;
	/* With nothing in use the gap costs nothing. */
	if (k->arg_head == k->arg_tail)
		k->arg_head += gap;
	else if (k->arg_tail + gap + bytes - k->arg_head > size)
		return false;
	*off = gap ? 0 : at;
	k->arg_tail += gap + bytes;
	return true;
}

struct kvmm_sqe *lk_prep(struct kvmm *k, u16 op, u32 nr, u32 bytes,
			 enum lk_req_state state, void **args)
{
	struct kvmm_sqe *sqe;
	struct lk_req *req;
	u32 off;

	if (k->ended || k->sub.tail - k->cons.head >= k->info.cq_entries)
		return NULL;
	if (!ring_prod_room(&k->sub)) {
		if (ring_prod_look(&k->sub) < 0) {
			lk_end(k, "kvmm took requests that were never made");
			return NULL;
		}
		if (!ring_prod_room(&k->sub))
			return NULL;
	}
	if (!arg_take(k, bytes, &off))
		return NULL;

	req = req_at(k, k->sub.tail);
	req->number = ++k->number;
	req->arg_end = k->arg_tail;
	req->op = op;
	req->state = state;

	sqe = &k->sqe[ring_prod_slot(&k->sub)];
	memset(sqe, 0, sizeof(*sqe));
	sqe->op = op;
	sqe->nr = nr;
	sqe->number = req->number;
	sqe->arg_off = off;
	sqe->arg_len = bytes;
	ring_prod_advance(&k->sub);
	if (args)
		*args = k->arg + off;
	return sqe;
}

struct kvmm_sqe *kvmm_prep(struct kvmm *k, u16 op, u32 nr, u32 bytes,
			   void **args)
{
	return lk_prep(k, op, nr, bytes, LK_CALLER, args);
}

/*
 * Note which steps are open: DETACH is refused while a step is open, so
 * kvmm_detach() ends the steps that the caller left open.  Steps that the
 * daemon refused to begin are noted too, which does no harm.
 */
static void note_step(struct kvmm *k, const struct kvmm_sqe *sqe)
{
	u32 i;

	if (sqe->op == KVMM_OP_STEP_BEGIN && k->nr_steps < KVMM_MAX_STEPS) {
		k->step[k->nr_steps++] = sqe->step;
	} else if (sqe->op == KVMM_OP_STEP_END) {
		for (i = 0; i < k->nr_steps && k->step[i] != sqe->step; i++)
			;
		if (i == k->nr_steps)
			return;
		k->nr_steps--;
		memmove(&k->step[i], &k->step[i + 1],
			(k->nr_steps - i) * sizeof(k->step[0]));
	}
}

/* Publish the prepared requests; ring the daemon's doorbell if it sleeps. */
int lk_publish(struct kvmm *k)
{
	static const u64 one = 1;

	if (lk_check_state(k))
		return k->ended;
	if (k->submitted == k->sub.tail)
		return 0;
	for (; k->submitted != k->sub.tail; k->submitted++)
		note_step(k, &k->sqe[k->submitted & (k->info.sq_entries - 1)]);
	ring_prod_publish(&k->sub);
	/* An eventfd that is full is readable already. */
	if (ring_sleeper_waits(&k->dctl->need_doorbell) &&
	    write(k->bell, &one, sizeof(one)) < 0 && errno != EAGAIN)
		return lk_end(k, "the daemon's doorbell is broken: %s",
			      strerror(errno));
	return 0;
}

int kvmm_submit(struct kvmm *k)
{
	if (lk_publish(k))
		return k->ended;
	if (k->nr_acks)
		lk_send_acks(k);
	return k->ended;
}

/* Look how many completions there are. */
int lk_look_completions(struct kvmm *k)
{
	int n = ring_cons_look(&k->cons);

	if (n < 0 || (u32)n > k->submitted - k->cons.head)
		return lk_end(k, "kvmm completed requests that were never made");
	return n;
}

/* Copy and check the completion at @index, which is there. */
static int read_completion(struct kvmm *k, u32 index, struct kvmm_done *done)
{
	const struct lk_req *req = req_at(k, index);
	const struct lk_old *o = k->old;
	u64 bytes;
	union {
		struct kvmm_cqe	cqe;
		u64		word[sizeof(struct kvmm_cqe) / 8];
	} c;

	while (o && (s32)(index - o->until) >= 0)
		o = o->next;
	shared_copy_in(&c, (o ? o->cqe : k->cqe) +
		       (index & (k->info.cq_entries - 1)), sizeof(c));
	bytes = (u64)c.cqe.nr * lk_result_size(req->op);
	if (c.cqe.number != req->number)
		return lk_end(k, "kvmm answered request %llu when %llu was due",
			      (unsigned long long)c.cqe.number,
			      (unsigned long long)req->number);
	if (c.cqe.result_off % 8 || c.cqe.result_off > k->info.result_bytes ||
	    bytes > k->info.result_bytes - c.cqe.result_off)
		return lk_end(k, "kvmm put results of request %llu outside their area",
			      (unsigned long long)req->number);
	done->number = c.cqe.number;
	done->user_data = c.cqe.user_data;
	done->status = c.cqe.status;
	done->nr = bytes ? c.cqe.nr : 0;
	done->results = bytes ? (o ? o->result : k->result) +
				c.cqe.result_off : NULL;
	return 0;
}

/* Skip completions that the caller will not reap. */
static int skip_own(struct kvmm *k)
{
	struct kvmm_done done;
	struct lk_req *req;

	while (k->reaped != k->cons.tail) {
		req = req_at(k, k->reaped);
		if (req->state == LK_CALLER)
			break;
		if (req->state == LK_OWN) {
			if (read_completion(k, k->reaped, &done))
				return k->ended;
			req->state = LK_TAKEN;
		}
		k->reaped++;
	}
	return 0;
}

/*
 * Release the completions that neither the caller nor the library reads any
 * more.
 */
void lk_collect(struct kvmm *k)
{
	const u32 head = k->cons.head;
	struct lk_req *req;

	if (skip_own(k))
		return;
	while (k->cons.head != k->reaped) {
		req = req_at(k, k->cons.head);
		if (req->state == LK_CALLER &&
		    (s32)(k->release_to - k->cons.head) <= 0)
			break;
		k->arg_head = req->arg_end;
		ring_cons_advance(&k->cons);
	}
	if (k->cons.head == head)
		return;
	if (k->old)
		lk_old_release(k);
	/* The new daemon knows nothing of completions of the dead one. */
	if ((s32)(k->cons.head - k->first) >= 0)
		ring_cons_publish(&k->cons);
}

int kvmm_reap(struct kvmm *k, struct kvmm_done *done)
{
	if (k->reaped == k->cons.tail && lk_look_completions(k) < 0)
		return -ECONNRESET;
	if (skip_own(k))
		return -ECONNRESET;
	if (k->reaped == k->cons.tail)
		return lk_check_state(k);
	if (read_completion(k, k->reaped, done))
		return -ECONNRESET;
	k->reaped++;
	return 1;
}

void kvmm_release(struct kvmm *k)
{
	k->release_to = k->reaped;
	lk_collect(k);
	if (k->nr_acks)
		lk_send_acks(k);
}

/**
 * lk_take() - read the completion at @index out of turn
 *
 * The completion must be there.  Its results stay valid until lk_collect().
 */
int lk_take(struct kvmm *k, u32 index, struct kvmm_done *done)
{
	if (read_completion(k, index, done))
		return k->ended;
	req_at(k, index)->state = LK_TAKEN;
	return 0;
}

/* ------------------------------------------------------------------ */
/* Waiting                                                             */

/* Condition of a wait: the completion at an index, or any. */
struct wait_for {
	bool	any;
	u32	index;
};

static bool events_pending(struct kvmm *k)
{
	const u32 tail = READ_ONCE(k->dctl->event_tail);

	if (k->news)
		return true;
	if (k->events_used)
		return tail != k->event_head;
	return tail != k->event_told;
}

/* Return: 1: the condition is met; 0; -ECONNRESET. */
static int wait_done(struct kvmm *k, const struct wait_for *w)
{
	if (lk_look_completions(k) < 0 || lk_look_events(k) < 0)
		return -ECONNRESET;
	if (!w->any)
		return (s32)(k->cons.tail - w->index) > 0;
	if (skip_own(k))
		return -ECONNRESET;
	return k->reaped != k->cons.tail || events_pending(k);
}

/**
 * lk_look_around() - check the daemon's state and the socket
 * @now: lk_now()
 *
 * The state is checked always.  The socket is checked when descriptors are due,
 * and otherwise every 100 ms, or sooner while an answer is late.
 */
int lk_look_around(struct kvmm *k, s64 now)
{
	if (lk_check_state(k))
		return k->ended;
	if (k->nr_acks)
		lk_send_acks(k);
	if (!k->away && !k->maps_due && now - k->looked < k->look_ns)
		return k->ended;
	k->looked = now;
	return lk_look_socket(k);
}

/*
 * Spin for up to @max pauses.
 * Return: 1: the condition is met; 0: not yet; -ECONNRESET.
 */
static int wait_slice(struct kvmm *k, const struct wait_for *w, u32 max)
{
	u32 i;
	int ret;

	for (i = 0; i < max; i++) {
		ret = wait_done(k, w);
		if (ret)
			return ret;
		cpu_relax();
	}
	return 0;
}

/* Sleep once, for at most @ns. */
static int wait_sleep(struct kvmm *k, const struct wait_for *w, s64 ns)
{
	const u32 seen = ring_wake_read(&k->dctl->wake);
	int ret;

	if (k->away) {
		lk_resume_sleep(k, ns);
		return wait_done(k, w);
	}
	ring_sleep_prepare(&k->ctl->need_wake);
	ret = wait_done(k, w);
	if (!ret && !lk_check_state(k))
		ring_futex_wait(&k->dctl->wake, seen, ns);
	ring_sleep_finish(&k->ctl->need_wake);
	return ret ? ret : wait_done(k, w);
}

/* Spin for the rest of @spin, then sleep, until @deadline. */
static int wait_long(struct kvmm *k, const struct wait_for *w, u32 spin,
		     s64 deadline)
{
	const bool forever = spin == KVMM_SPIN_FOREVER;
	s64 now = lk_now(), looked;
	u32 slice;
	int ret = 0;

	/* A submitted request is answered soon, or the daemon has died. */
	k->look_ns = k->cons.tail != k->submitted ? LK_FIRST_LOOK_NS :
						    LK_LOOK_NS;
	while (!ret) {
		looked = k->looked;
		/* Even if this fails, the last completions still count. */
		if (lk_look_around(k, now))
			return wait_done(k, w) > 0 ? 1 : -ECONNRESET;
		if (now >= deadline)
			return -ETIMEDOUT;
		if (k->looked != looked)
			k->look_ns = min(2 * k->look_ns, LK_LOOK_NS);
		if (spin) {
			slice = min(spin, (u32)SPIN_SLICE);
			ret = wait_slice(k, w, slice);
			spin -= forever ? 0 : slice;
		} else {
			ret = wait_sleep(k, w, min(deadline - now, k->maps_due ?
						   LK_MAP_NS : k->look_ns));
		}
		now = lk_now();
	}
	k->look_ns = LK_LOOK_NS;
	return ret;
}

/* Return: 0, -ETIMEDOUT or -ECONNRESET. */
static int wait_until(struct kvmm *k, const struct wait_for *w, s64 timeout_ns)
{
	s64 deadline = INT64_MAX;
	u32 slice = min(k->spin, (u32)SPIN_SLICE);
	int ret;

	/* The usual case ends here, before the clock is read. */
	ret = wait_slice(k, w, timeout_ns ? max(slice, 1u) : 1u);
	if (!ret && timeout_ns >= 0) {
		deadline = lk_now();
		deadline = timeout_ns < INT64_MAX - deadline ?
			   deadline + timeout_ns : INT64_MAX;
	}
	if (!ret)
		ret = wait_long(k, w, k->spin == KVMM_SPIN_FOREVER ? k->spin :
				k->spin - slice, deadline);
	return ret > 0 ? 0 : ret;
}

int lk_wait_for(struct kvmm *k, u32 index, s64 timeout_ns)
{
	const struct wait_for w = { .index = index };

	return wait_until(k, &w, timeout_ns);
}

int kvmm_wait(struct kvmm *k, s64 timeout_ns)
{
	const struct wait_for w = { .any = true };
	int ret = wait_until(k, &w, timeout_ns);

	k->event_told = k->event_scan;
	k->news = false;
	return ret;
}

int kvmm_next_event(struct kvmm *k, struct kvmm_event *ev)
{
	union {
		struct kvmm_event	ev;
		u64			word[sizeof(struct kvmm_event) / 8];
	} e;
	int ret;

	k->events_used = true;
	ret = ring_event_get(k->event, k->info.event_entries,
			     &k->dctl->event_tail, &k->event_head, &e);
	if (ret > 0)
		*ev = e.ev;
	return ret;
}
