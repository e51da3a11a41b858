// SPDX-License-Identifier: Apache-2.0
/*
 * hostile_ring.c - attacks of an attached client
 *
 * They run in the process of a session, which the daemon may expel or kill at
 * any moment.  Attacks that ask for too much are in hostile_flood.c.  An attack
 * that the kernel must make impossible (shrinking a sealed segment, writing to
 * segment D) is a breach if it succeeds.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/integration/hostile.h"

#define TOKENS	40

static struct kvmm_sqe *entry(struct wire *w, u32 i)
{
	return (struct kvmm_sqe *)(w->c + w->rep.sq_off) +
	       (i & (w->rep.sq_entries - 1));
}

void ring_settle(struct wire *w, u32 ms)
{
	int status;

	wire_publish(w);
	while (wire_take(w, ms, &status) || status != -ETIMEDOUT)
		;
	if (wire_alive(w))
		store_release(&w->ctl->cq_head, w->taken);
}

bool ring_sqe_random(struct hostile *h, struct wire *w)
{
	u32 nr = 1 + hostile_below(h, 16);

	while (nr--)
		hostile_fill(h, entry(w, w->tail++), sizeof(struct kvmm_sqe));
	ring_settle(w, 5);
	return true;
}

static const struct {
	u16 op;
	u32 bytes;	/* of one argument */
} verbs[] = {
	{ KVMM_OP_NOP, 0 },
	{ KVMM_OP_SEQ_OPEN, sizeof(struct kvmm_open_arg) },
	{ KVMM_OP_SEQ_MATCH, sizeof(struct kvmm_match_arg) },
	{ KVMM_OP_STEP_BEGIN, sizeof(struct kvmm_begin_arg) },
	{ KVMM_OP_STEP_END, sizeof(struct kvmm_end_arg) },
	{ KVMM_OP_SEQ_FORK, sizeof(struct kvmm_fork_arg) },
	{ KVMM_OP_SEQ_REMAP, sizeof(struct kvmm_remap_arg) },
	{ KVMM_OP_SEQ_CLOSE, sizeof(struct kvmm_seq_arg) },
	{ KVMM_OP_SEQ_TRUNCATE, sizeof(struct kvmm_len_arg) },
	{ KVMM_OP_SEQ_TRIM, sizeof(struct kvmm_len_arg) },
	{ KVMM_OP_SEQ_ADVISE, sizeof(struct kvmm_advise_arg) },
	{ KVMM_OP_SEQ_SETPRIO, sizeof(struct kvmm_prio_arg) },
	{ KVMM_OP_EXTENT_ACK, sizeof(struct kvmm_ack_arg) },
	{ KVMM_OP_SEQ_LOOKUP, sizeof(struct kvmm_lookup_arg) },
	{ KVMM_OP_SEQ_LEASE, sizeof(struct kvmm_lease_arg) },
	{ KVMM_OP_DETACH, 0 },
};

bool ring_sqe_field(struct hostile *h, struct wire *w)
{
	u32 v = hostile_below(h, ARRAY_SIZE(verbs)), nr;
	u32 at = hostile_below(h, sizeof(struct kvmm_sqe) / 4);
	char args[64] = { 0 };
	struct kvmm_sqe *q;

	for (nr = 1 + hostile_below(h, 4); nr; nr--) {
		q = wire_put(w, verbs[v].op, 1, args, verbs[v].bytes);
		/* The request number has its own attack. */
		if (at != 2 && at != 3)
			hostile_fill(h, (u32 *)q + at, 4);
	}
	ring_settle(w, 5);
	return true;
}

bool ring_args_random(struct hostile *h, struct wire *w)
{
	u32 i, nr = 1 + hostile_below(h, 8);
	u64 args[8 * 8];

	for (i = 0; i < 8; i++) {
		u32 v = hostile_below(h, ARRAY_SIZE(verbs) - 1);
		struct kvmm_sqe *q;

		hostile_fill(h, args, sizeof(args));
		/* Half of the time a handle that may exist. */
		if (hostile_below(h, 2))
			args[0] = KVMM_SEQ(hostile_below(h, 64),
					   hostile_below(h, 8));
		q = wire_put(w, verbs[v].op, nr, args, nr * verbs[v].bytes);
		if (q->op == KVMM_OP_STEP_BEGIN || q->op == KVMM_OP_STEP_END)
			q->step = w->step + hostile_below(h, 3);
		ring_settle(w, 5);
		if (!wire_alive(w))
			break;
	}
	return true;
}

bool ring_args_outside(struct hostile *h, struct wire *w)
{
	struct kvmm_sqe *q = wire_put(w, KVMM_OP_SEQ_OPEN, 1, NULL, 0);

	q->arg_len = 32;
	q->arg_off = hostile_below(h, 2) ? w->rep.arg_bytes - 8 : 0xfffffff8u;
	ring_settle(w, 20);
	return true;
}

bool ring_number_again(struct hostile *h, struct wire *w)
{
	struct kvmm_sqe *q;

	if (wire_call(w, KVMM_OP_NOP, 0, NULL, 0, NULL, 0))
		return false;
	q = wire_put(w, KVMM_OP_NOP, 0, NULL, 0);
	q->number = hostile_below(h, 2) ? 0 : w->number - 1;
	ring_settle(w, 20);
	return true;
}

bool ring_tail_ahead(struct hostile *h, struct wire *w)
{
	w->tail += w->rep.sq_entries + 1 + hostile_below(h, 1u << 31);
	ring_settle(w, 20);
	return true;
}

bool ring_tail_back(struct hostile *h, struct wire *w)
{
	if (wire_call(w, KVMM_OP_NOP, 0, NULL, 0, NULL, 0))
		return false;
	w->tail -= 1 + hostile_below(h, w->tail);
	ring_settle(w, 20);
	return true;
}

bool ring_head_ahead(struct hostile *h, struct wire *w)
{
	store_release(&w->ctl->cq_head, w->taken + 1 +
		      hostile_below(h, 1u << 31));
	wire_bell(w);
	nap_ms(5);
	return true;
}

bool ring_scribble(struct hostile *h, struct wire *w)
{
	u32 nr = 1 + hostile_below(h, 4000);

	while (nr--) {
		u64 at = hostile_below(h, (u32)(w->rep.c_bytes / 8));

		/* Mostly in front of the second page of arguments. */
		if (hostile_below(h, 4))
			at %= (w->rep.arg_off + 4096) / 8;
		__atomic_store_n((u64 *)w->c + at,
				 (u64)hostile_below(h, 1u << 31) *
				 hostile_below(h, 1u << 31), __ATOMIC_RELAXED);
	}
	wire_bell(w);
	nap_ms(2);
	return true;
}

/* ---- arguments that change while they are read ---- */

struct twister {
	struct wire	*w;
	struct hostile	h;
	u32		stop;
};

static void *twist(void *arg)
{
	struct twister *t = arg;
	u32 *args = (u32 *)(t->w->c + t->w->rep.arg_off);

	while (!READ_ONCE(t->stop)) {
		u32 i = hostile_below(&t->h, 64);

		WRITE_ONCE(args[i], hostile_below(&t->h, 3) ?
			   hostile_below(&t->h, 64) :
			   hostile_below(&t->h, UINT32_MAX));
		/* Scribble over the ring's entries too. */
		if (!hostile_below(&t->h, 8))
			WRITE_ONCE(*((u32 *)entry(t->w, 0) +
				     hostile_below(&t->h, 64 * 16)),
				   hostile_below(&t->h, 16));
	}
	return NULL;
}

bool ring_double_fetch(struct hostile *h, struct wire *w)
{
	struct twister t = { .w = w, .h = *h };
	u64 end = now_ms() + 10 + hostile_below(h, 30);
	u64 args[8 * 8] = { 0 };
	pthread_t thread;
	bool did = false;

	t.h.rng ^= 0x5bd1e995;
	if (pthread_create(&thread, NULL, twist, &t))
		return false;
	while (now_ms() < end && wire_alive(w)) {
		u32 v = 1 + hostile_below(h, 5), nr = 1 + hostile_below(h, 8);

		args[0] = KVMM_SEQ(hostile_below(h, 8), 1);
		wire_put(w, verbs[v].op, nr, args, nr * verbs[v].bytes);
		ring_settle(w, 1);
		did = true;
	}
	WRITE_ONCE(t.stop, 1);
	pthread_join(thread, NULL);
	return did;
}

/* ---- extents ---- */

bool ring_ack_lie(struct hostile *h, struct wire *w)
{
	struct kvmm_ack_arg a[16];
	u32 i;

	if (!wire_seq(w, TOKENS, hostile_below(h, 9)))
		wire_extents(w, false);
	memset(a, 0, sizeof(a));
	for (i = 0; i < ARRAY_SIZE(a); i++) {
		u32 k = w->nr_ext ? hostile_below(h, w->nr_ext) : 0;

		a[i].extent = hostile_below(h, 2) && w->nr_ext ?
			      w->ext[k].extent : hostile_below(h, 128);
		a[i].generation = hostile_below(h, 2) && w->nr_ext ?
			w->ext[k].generation : hostile_below(h, 6);
		a[i].what = hostile_below(h, 4);
	}
	wire_call(w, KVMM_OP_EXTENT_ACK, ARRAY_SIZE(a), a, sizeof(a), NULL, 0);
	return true;
}

/*
 * Every client of a user maps all memory of that user, so a hole in an extent
 * may hurt an honest program of the same user.  A hole of another user must not
 * hurt it, even in an extent that was given up long ago.
 */
bool ring_hole(struct hostile *h, struct wire *w)
{
	const int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	u64 seq = wire_seq(w, TOKENS, hostile_below(h, 9));
	off_t at = 4096 * (off_t)hostile_below(h, (u32)(w->rep.c_bytes /
							4096));
	u32 i;

	if (!fallocate(w->fd[1], how, 0, 4096))
		hostile_breach(h, "a hole was punched in segment D");
	for (i = 0; i < w->nr_ext && h->uid; i++)
		if (fallocate(w->ext[i].fd, how, 0, (off_t)w->rep.extent_size))
			return false;
	if (fallocate(w->fd[0], how, at, 4096 * 16))
		return false;
	if (seq)
		wire_step(w, seq);
	wire_bell(w);
	return true;
}

static void cut(struct hostile *h, int fd, u64 bytes)
{
	if (!ftruncate(fd, 0) || !ftruncate(fd, (off_t)bytes / 2))
		hostile_breach(h, "shared memory was made shorter");
	if (!ftruncate(fd, (off_t)bytes * 2))
		hostile_breach(h, "shared memory was made longer");
	if (!fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE))
		hostile_breach(h, "shared memory was sealed");
}

bool ring_truncate(struct hostile *h, struct wire *w)
{
	u32 i;

	wire_seq(w, TOKENS, hostile_below(h, 9));
	cut(h, w->fd[0], w->rep.c_bytes);
	cut(h, w->fd[1], w->rep.d_bytes);
	for (i = 0; i < w->nr_ext; i++)
		cut(h, w->ext[i].fd, w->rep.extent_size);
	return true;
}

bool ring_forbidden(struct hostile *h, struct wire *w)
{
	void *p = mmap(NULL, w->rep.d_bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED, w->fd[1], 0);

	if (p != MAP_FAILED || !mprotect((void *)w->d, 4096, PROT_READ |
					 PROT_WRITE))
		hostile_breach(h, "segment D was mapped for writing");
	if (pwrite(w->fd[1], "x", 1, 0) == 1)
		hostile_breach(h, "segment D was written");
	return true;
}

/* ---- inside a step ---- */

static bool in_step(struct hostile *h, struct wire *w)
{
	u64 seq = wire_seq(w, TOKENS, hostile_below(h, 9));

	return seq && !wire_step(w, seq);
}

bool ring_stop(struct hostile *h, struct wire *w)
{
	if (!in_step(h, w))
		return false;
	/* Count before stopping: the daemon may kill a stopped process. */
	hostile_count(h, HOSTILE_stop);
	raise(SIGSTOP);
	return false;
}

bool ring_exit(struct hostile *h, struct wire *w)
{
	if (!in_step(h, w))
		return false;
	hostile_count(h, HOSTILE_exit);
	_exit(0);
}

bool ring_leave(struct hostile *h, struct wire *w)
{
	u64 end = now_ms() + hostile_below(h, 200);

	if (!in_step(h, w))
		return false;
	close(w->sock);
	w->sock = -1;
	while (now_ms() < end)
		ring_scribble(h, w);
	return true;
}

static bool (*const attacks[])(struct hostile *h, struct wire *w) = {
#define x(name, words)	[HOSTILE_##name] = ring_##name,
	HOSTILE_RING(x)
#undef x
};

bool hostile_ring_attack(struct hostile *h, struct wire *w)
{
	u32 i = hostile_draw(h, 0, HOSTILE_NR_RING);

	if (attacks[i](h, w))
		hostile_count(h, i);
	return wire_alive(w) && w->sock >= 0;
}
