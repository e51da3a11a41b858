// SPDX-License-Identifier: Apache-2.0
/*
 * hostile_flood.c - attacks of an attached client that asks for too much
 *
 * The table of hostile_ring.c names them.  Except for the doorbell and the
 * socket, each request by itself is allowed: sequences, forks and batches up to
 * the limits and past them, handles of other clients or of no sequence, answers
 * that are never read, memory that goes away meanwhile.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/integration/hostile.h"

#define TOKENS	40

bool ring_storm(struct hostile *h, struct wire *w)
{
	struct kvmm_open_res res[64];
	struct kvmm_fork_arg fork = { .nr_children = 1 };
	struct kvmm_seq_arg close;
	u32 i, nr = 0;

	for (i = 0; i < 80 && wire_alive(w); i++) {
		fork.seq = wire_seq(w, 1 + hostile_below(h, 200),
				    hostile_below(h, 9));
		if (!fork.seq)
			break;
		fork.nr_children = 1 + hostile_below(h, 64);
		memset(res, 0, sizeof(res));
		wire_call(w, KVMM_OP_SEQ_FORK, 1, &fork, sizeof(fork), res,
			  fork.nr_children * (u32)sizeof(res[0]));
		wire_step(w, fork.seq);
		nr++;
	}
	for (i = 0; i < 64 && nr && wire_alive(w); i++) {
		close.seq = KVMM_SEQ(i, 1 + hostile_below(h, 3));
		wire_call(w, KVMM_OP_SEQ_CLOSE, 1, &close, sizeof(close), NULL,
			  0);
	}
	return nr > 0;
}

/* Fill the argument area, with a count that fits it or one that does not. */
bool ring_batch(struct hostile *h, struct wire *w)
{
	static const struct {
		u16 op;
		u32 bytes;
	} verb[] = {
		{ KVMM_OP_SEQ_OPEN, sizeof(struct kvmm_open_arg) },
		{ KVMM_OP_SEQ_MATCH, sizeof(struct kvmm_match_arg) },
		{ KVMM_OP_STEP_BEGIN, sizeof(struct kvmm_begin_arg) },
		{ KVMM_OP_STEP_END, sizeof(struct kvmm_end_arg) },
		{ KVMM_OP_SEQ_FORK, sizeof(struct kvmm_fork_arg) },
		{ KVMM_OP_SEQ_CLOSE, sizeof(struct kvmm_seq_arg) },
		{ KVMM_OP_EXTENT_ACK, sizeof(struct kvmm_ack_arg) },
		{ KVMM_OP_SEQ_LOOKUP, sizeof(struct kvmm_lookup_arg) },
		{ KVMM_OP_SEQ_LEASE, sizeof(struct kvmm_lease_arg) },
	};
	u32 i, nr;

	for (i = 0; i < 24 && wire_alive(w); i++) {
		u32 v = hostile_below(h, ARRAY_SIZE(verb));
		struct kvmm_sqe *q;

		nr = w->rep.arg_bytes / verb[v].bytes;
		if (hostile_below(h, 2))
			nr = min(nr, w->rep.max_batch + hostile_below(h, 2));
		q = wire_put(w, verb[v].op, nr, NULL, 0);
		q->arg_len = nr * verb[v].bytes;
		if (!hostile_below(h, 4))
			q->nr = hostile_below(h, UINT32_MAX);
		if (verb[v].op == KVMM_OP_STEP_BEGIN ||
		    verb[v].op == KVMM_OP_STEP_END)
			q->step = ++w->step;
		ring_settle(w, 2);
	}
	return i > 0;
}

/* Every verb that takes a handle, with every index and a few generations. */
bool ring_handle(struct hostile *h, struct wire *w)
{
	static const u16 ops[] = {
		KVMM_OP_SEQ_CLOSE, KVMM_OP_SEQ_TRUNCATE, KVMM_OP_SEQ_TRIM,
		KVMM_OP_SEQ_SETPRIO, KVMM_OP_SEQ_ADVISE, KVMM_OP_SEQ_REMAP,
		KVMM_OP_SEQ_FORK,
	};
	u64 own = wire_seq(w, TOKENS, hostile_below(h, 9));
	u64 arg[64][8] = { { 0 } };
	u32 i, n;

	for (n = 0; n < 16 && wire_alive(w); n++) {
		u32 o = hostile_below(h, ARRAY_SIZE(ops));
		/*
		 * REMAP, ADVISE, FORK, then CLOSE with one word, and others
		 * with two.
		 */
		u32 bytes = o == 5 ? sizeof(struct kvmm_remap_arg) :
			    o == 4 ? sizeof(struct kvmm_advise_arg) :
			    o == 6 ? sizeof(struct kvmm_fork_arg) :
			    o == 0 ? sizeof(struct kvmm_seq_arg) :
				     sizeof(struct kvmm_len_arg);
		char packed[sizeof(arg)];

		for (i = 0; i < 64; i++) {
			arg[i][0] = hostile_below(h, 3) ?
				KVMM_SEQ(hostile_below(h, 256),
					 hostile_below(h, 40)) :
				own ^ (1ull << hostile_below(h, 64));
			arg[i][1] = hostile_below(h, 3) ? own :
				    hostile_below(h, UINT32_MAX);
			memcpy(packed + i * bytes, arg[i], min(bytes, 64u));
		}
		wire_put(w, ops[o], 64, packed, 64 * bytes);
		ring_settle(w, 2);
	}
	return n > 0;
}

/* The memory that the daemon reads survives the unmapping by this process. */
bool ring_unmap(struct hostile *h, struct wire *w)
{
	u64 seq = wire_seq(w, TOKENS, hostile_below(h, 9));
	u32 i;

	for (i = 0; i < w->rep.sq_entries / 2; i++)
		wire_put(w, KVMM_OP_NOP, 0, NULL, 0);
	if (seq)
		wire_step(w, seq);
	wire_publish(w);
	for (i = 0; i < w->nr_ext; i++)
		close(w->ext[i].fd);
	w->nr_ext = 0;
	wire_bell(w);
	munmap(w->c, w->rep.c_bytes);
	munmap((void *)w->d, w->rep.d_bytes);
	close(w->fd[0]);
	close(w->fd[1]);
	hostile_count(h, HOSTILE_unmap);
	nap_ms(hostile_below(h, 50));
	/* The session cannot go on without its rings. */
	_exit(0);
}

static void *ring_once(void *arg)
{
	wire_bell(arg);
	return NULL;
}

bool ring_bell(struct hostile *h, struct wire *w)
{
	u64 full = 0xfffffffffffffffeull, count;
	u32 i, nr = 1000 + hostile_below(h, 3000);
	int flags = fcntl(w->fd[2], F_GETFL);
	pthread_t thread;

	for (i = 0; i < nr; i++)
		wire_bell(w);
	if (read(w->fd[2], &count, sizeof(count)) < 0)
		return false;
	if (write(w->fd[2], &full, sizeof(full)) < 0)
		return false;
	/* Both ends share the flag; without it a write to a full counter waits. */
	fcntl(w->fd[2], F_SETFL, flags & ~O_NONBLOCK);
	if (pthread_create(&thread, NULL, ring_once, w))
		return false;
	wire_put(w, KVMM_OP_NOP, 0, NULL, 0);
	store_release(&w->ctl->sq_tail, w->tail);
	nap_ms(5);
	if (read(w->fd[2], &count, sizeof(count)) < 0)
		return false;
	pthread_join(thread, NULL);
	fcntl(w->fd[2], F_SETFL, flags);
	ring_settle(w, 20);
	return true;
}

bool ring_mute(struct hostile *h, struct wire *w)
{
	struct kvmm_open_arg a = { .prompt_len = 1 + hostile_below(h, 500) };
	u32 i, nr = w->rep.sq_entries * (1 + hostile_below(h, 4));

	for (i = 0; i < nr && wire_alive(w); i++) {
		if (w->tail - load_acquire(&w->dctl->sq_head) >=
		    w->rep.sq_entries)
			nap_ms(1);
		else
			wire_put(w, KVMM_OP_SEQ_OPEN, 1, &a, sizeof(a));
		wire_publish(w);
	}
	nap_ms(20);
	return true;
}

bool ring_speak(struct hostile *h, struct wire *w)
{
	char buf[3000];

	hostile_fill(h, buf, sizeof(buf));
	if (wire_send(w->sock, buf, hostile_below(h, sizeof(buf)), w->fd,
		      hostile_below(h, 2) ? 3 : 0))
		return wire_send(w->sock, buf, 1, NULL, 0) == 0;
	nap_ms(2);
	return true;
}
