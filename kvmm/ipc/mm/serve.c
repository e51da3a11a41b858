// SPDX-License-Identifier: Apache-2.0
/*
 * serve.c - from a client's ring through the core and back
 *
 * Memory that a client can write is read once: the entry into a local by 8-byte
 * loads, the arguments into the mm thread's own buffer.  The copies are judged
 * and used; the originals are not read again.  A forged index (a tail past the
 * ring, a head past the completions, arguments outside their area, a handle
 * that the core calls forged) ends the client.
 *
 * The answer's place is found before the request takes effect: a slot of the
 * completion ring and as many bytes of the result area as the core says it
 * will write.  Where there is no room the client is not served; it made the
 * room scarce by not reading, and no other client waits for it.
 *
 * Order of a request: the core's records, the results and the completion in D,
 * the number in the core's arena, then the tail by a release store.  The daemon
 * alone writes results and completions, into memory that the client maps
 * read-only.  A daemon that dies before the number leaves an arena in which the
 * request is half done; after it, the client finds the completion behind the
 * old tail (Documentation/abi.md, RESUME).
 *
 * Context: mm thread.  Nothing blocks or allocates.
 */
#include <kvmm/fault.h>

#include "kvmm/ipc/mm/mm.h"

#define SERVE_BUDGET	16	/* requests of one client in one turn */
#define RESULT_MAX	((u32)sizeof(struct kvmm_lease_res))	/* of most verbs */
#define LOOKUP_MAX	((u32)sizeof(struct kvmm_lookup_res))
#define BEGIN_MAX	((u32)sizeof(struct kvmm_begin_res) * KVMM_MAX_GROUPS)

_Static_assert(CORE_MAX_BATCH * RESULT_MAX <= RESULT_BYTES / 2 &&
	       CORE_MAX_BATCH * LOOKUP_MAX <= RESULT_BYTES / 2 &&
	       CORE_MAX_BATCH * BEGIN_MAX <= RESULT_BYTES / 2,
	       "the largest answer leaves room for another");

/* serve_expel() - end a client that forged an index, or whose memory failed */
void serve_expel(struct mm *m, struct mm_client *c, u64 now, const char *why)
{
	WRITE_ONCE(c->why, why);
	core_client_eproto(m->setup->core, now, c->id);
	m->wake |= BIT_ULL(c->id);
	mm_deactivate(m, c);
	mm_note(m, c, NOTE_EXPELLED);
}

/* Free the results of completions that the client has consumed. */
static void results_reap(struct client_ring *r)
{
	if (r->res_seen == r->cq.head)
		return;
	r->res_seen = r->cq.head;
	if (r->cq.head == r->cq.tail) {
		r->res_head = 0;
		r->res_tail = 0;
	} else {
		r->res_tail = r->res_end[(r->cq.head - 1) &
					 (r->cq.entries - 1)];
	}
	r->stalled = false;
}

/*
 * Bytes that the results of a request take at most.  The room must be certain
 * before the core looks at the request: it counts the number as used then, so
 * it cannot look at the request a second time.
 */
static u32 results_bound(const struct kvmm_sqe *sqe)
{
	switch (sqe->op) {
	case KVMM_OP_NOP:
	case KVMM_OP_DETACH:
		return 0;
	case KVMM_OP_SEQ_FORK:
		return CORE_MAX_BATCH * (u32)sizeof(struct kvmm_open_res);
	case KVMM_OP_STEP_BEGIN:
		return min(sqe->nr, (u32)CORE_MAX_BATCH) * BEGIN_MAX;
	case KVMM_OP_SEQ_LOOKUP:
		return min(sqe->nr, (u32)CORE_MAX_BATCH) * LOOKUP_MAX;
	default:
		return min(sqe->nr, (u32)CORE_MAX_BATCH) * RESULT_MAX;
	}
}

/* Offset of @bytes in the result area, or KVMM_NO_INDEX: no room now. */
static u32 results_reserve(struct client_ring *r, u32 bytes, u64 *head)
{
	u32 at = (u32)(r->res_head % r->result_bytes);
	u64 start = r->res_head;

	bytes = ALIGN_UP(bytes, 8u);
	/* Results are contiguous: skip the end of the area if need be. */
	if (at + bytes > r->result_bytes) {
		start += r->result_bytes - at;
		at = 0;
	}
	*head = start + bytes;
	return *head - r->res_tail > r->result_bytes ? KVMM_NO_INDEX : at;
}

static void serve_complete(struct client_ring *r, const struct kvmm_sqe *sqe,
			   int status, u32 nr, u32 result_off)
{
	struct kvmm_cqe cqe = {
		.number		= sqe->number,
		.user_data	= sqe->user_data,
		.status		= status,
		.nr		= nr,
		.result_off	= result_off,
	};
	u32 slot = ring_prod_slot(&r->cq);

	r->res_end[slot] = r->res_head;
	shared_copy_out(&r->cqes[slot], &cqe, sizeof(cqe));
	ring_prod_advance(&r->cq);
}

static void serve_detached(struct mm *m, struct mm_client *c)
{
	mm_deactivate(m, c);
	mm_note(m, c, NOTE_DETACHED);
}

/* Judge and execute.  Return: the status of the request, or -EPROTO. */
static int serve_execute(struct mm *m, struct mm_client *c, u64 now,
			 const struct kvmm_sqe *sqe, struct core_req *req,
			 u32 off, u32 room)
{
	int err = core_req_check(m->setup->core, c->id, sqe, m->args, sqe->arg_len,
				 req);

	if (!err && (u64)req->nr_results * req->result_size > room)
		err = -E2BIG;
	if (err) {
		req->nr_results = 0;
		return err;
	}
	kv_fault_die(KV_FAULT_mm_die);
	err = core_req_execute(m->setup->core, now, c->id, req,
			       c->ring.results + off);
	kv_fault_die(KV_FAULT_mm_die_commit);
	return err;
}

/*
 * Copy, judge, execute and answer the entry at the head of the ring.
 * Return: 0; -EAGAIN: no room for its results; -EPROTO: expelled.
 */
static int serve_one(struct mm *m, struct mm_client *c, u64 now)
{
	struct client_ring *r = &c->ring;
	struct core_req req;
	struct kvmm_sqe sqe;
	u32 off, room, used;
	u64 head;
	int status;

	shared_copy_in(&sqe, &r->sqes[ring_cons_slot(&r->sq)], sizeof(sqe));
	if (sqe.arg_off % 8 || sqe.arg_len > r->arg_bytes ||
	    sqe.arg_off > r->arg_bytes - sqe.arg_len) {
		serve_expel(m, c, now, "arguments outside their area");
		return -EPROTO;
	}
	room = results_bound(&sqe);
	off = results_reserve(r, room, &head);
	if (off == KVMM_NO_INDEX)
		return -EAGAIN;
	shared_copy_in(m->args, r->args + sqe.arg_off, sqe.arg_len);
	core_commit_begin(m->setup->core);
	status = serve_execute(m, c, now, &sqe, &req, off, room);
	if (status == -EPROTO) {
		serve_expel(m, c, now, "a forged index");
		core_commit_end(m->setup->core, c->id);
		return -EPROTO;
	}
	used = req.nr_results ? req.nr_results * req.result_size : 0;
	r->res_head = head - ALIGN_UP(room, 8u) + ALIGN_UP(used, 8u);
	ring_cons_advance(&r->sq);
	/* Noted first: when the client has the answer it hangs up. */
	if (sqe.op == KVMM_OP_DETACH && !status)
		serve_detached(m, c);
	serve_complete(r, &sqe, status, req.nr_results, off);
	core_commit_end(m->setup->core, c->id);
	kv_fault_die(KV_FAULT_mm_die_publish);
	ring_prod_publish(&r->cq);
	return 0;
}

/**
 * serve_due() - may serve_client() find a request, or freed results?
 *
 * A client without room for its next answer is not due until it has moved
 * its head, so that it cannot keep the thread awake.
 */
bool serve_due(struct mm_client *c)
{
	struct client_ring *r = &c->ring;

	if (READ_ONCE(*r->cq.shared_head) != r->cq.head)
		return true;
	return !r->stalled && READ_ONCE(*r->sq.shared_tail) != r->sq.head;
}

/**
 * serve_client() - serve a bounded number of a client's requests
 * Return: how many were served, or 1 if the client was expelled.
 */
u32 serve_client(struct mm *m, struct mm_client *c, u64 now)
{
	struct client_ring *r = &c->ring;
	int avail = ring_cons_look(&r->sq);
	u32 nr = 0;

	if (avail < 0) {
		serve_expel(m, c, now, "a forged submission index");
		return 1;
	}
	if (ring_prod_look(&r->cq) < 0) {
		serve_expel(m, c, now, "a forged completion index");
		return 1;
	}
	results_reap(r);
	if (!avail || r->stalled)
		return 0;

	while (nr < SERVE_BUDGET && avail--) {
		int err = -EAGAIN;

		if (ring_prod_room(&r->cq))
			err = serve_one(m, c, now);
		if (err == -EPROTO)
			return 1;
		if (err == -EAGAIN) {
			r->stalled = true;
			break;
		}
		nr++;
		/* DETACH was served: requests behind it are void. */
		if (!(m->active & BIT_ULL(c->id)))
			break;
	}
	if (nr) {
		ring_cons_publish(&r->sq);
		m->wake |= BIT_ULL(c->id);
	}
	return nr;
}

/* Is the newest request of the client a DETACH?  Its memory only gives a hint. */
static bool serve_ends(const struct mm_client *c)
{
	const struct client_ring *r = &c->ring;
	u32 tail = READ_ONCE(*r->sq.shared_tail);

	return tail != r->sq.head &&
	       READ_ONCE(r->sqes[(tail - 1) & (r->sq.entries - 1)].op) == KVMM_OP_DETACH;
}

/**
 * serve_last() - serve a client that hung up and may have sent DETACH before
 *
 * A client waits a second for the answer to DETACH.  If this thread was late its
 * process would count as dead, and be killed at the quiet deadline.
 */
void serve_last(struct mm *m, struct mm_client *c, u64 now)
{
	u32 n;

	for (n = 0; n < c->ring.sq.entries && (m->active & BIT_ULL(c->id)) &&
	     serve_ends(c) && serve_client(m, c, now); n++)
		;
}
