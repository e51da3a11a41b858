/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_pool.h - libkvmm's functions over a pool of the process itself
 *
 * The least that an engine could do without a daemon: memory for each sequence is
 * set aside in its place in the pool, a request is answered by the call that
 * submits it, and nothing is shared, cached, counted or taken away.  No pool that
 * does more can be faster.
 *
 * Linked with --wrap for each function that the engine calls.  own_pool_on says
 * whether the next attachment is to this pool or to a daemon, and each call goes
 * to the side of its attachment.  Only one file of a program may include it.
 */
#ifndef TESTS_BENCH_OWN_POOL_H
#define TESTS_BENCH_OWN_POOL_H

#include <stdlib.h>
#include <sys/mman.h>

#include "tests/bench/bench.h"

#define OWN_SEQS	64u
#define OWN_BLOCKS	32u		/* of a sequence */
#define OWN_RING	64u
#define OWN_ARGS	16384u
#define OWN_UNIT	64u
#define OWN_RESULTS	(OWN_SEQS * sizeof(struct kvmm_begin_res))

struct own_req {
	struct kvmm_sqe	sqe;
	u64		args[OWN_ARGS / 8];
	u64		results[OWN_RESULTS / 8];
	u32		nr;
};

static bool own_pool_on;
static struct own {
	struct kvmm_attach_rep	info;
	char			*pool;
	struct kvmm_seq_status	seq[OWN_SEQS];
	struct own_req		req[OWN_RING];
	u32			prepared, executed, reaped, released;
	u64			number;
} own;

static inline bool is_own(const struct kvmm *k)
{
	return (const void *)k == &own;
}

/* ---- verbs ---- */

static u32 own_open(struct kvmm_open_res *res)
{
	u32 i;

	for (i = 0; own.seq[i].state != KVMM_SEQ_CLOSED; i++)
		if (i == OWN_SEQS - 1)
			bench_die("more than %u sequences", OWN_SEQS);
	own.seq[i] = (struct kvmm_seq_status){
		.generation = own.seq[i].generation + 1,
		.state = KVMM_SEQ_WAITING,
	};
	*res = (struct kvmm_open_res){
		.seq = KVMM_SEQ(i, own.seq[i].generation) };
	return 1;
}

static u32 own_match(const struct kvmm_match_arg *a, struct kvmm_seq_res *res)
{
	if (a->flags & KVMM_MATCH_LAST)
		own.seq[KVMM_SEQ_INDEX(a->seq)].state = KVMM_SEQ_READY;
	*res = (struct kvmm_seq_res){ 0 };
	return 1;
}

static u32 own_begin(const struct kvmm_begin_arg *a, u32 nr,
		     struct kvmm_begin_res *res)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		if (a[i].start + a[i].max_tokens > OWN_BLOCKS * 16)
			bench_die("a sequence outgrows its place");
		res[i] = (struct kvmm_begin_res){
			.valid_len = own.seq[KVMM_SEQ_INDEX(a[i].seq)].valid_len,
			.table_lo = KVMM_NO_INDEX,
			.limiting_pool = KVMM_NO_POOL,
		};
	}
	return nr;
}

static u32 own_end(const struct kvmm_end_arg *a, u32 nr,
		   struct kvmm_end_res *res)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		own.seq[KVMM_SEQ_INDEX(a[i].seq)].valid_len = a[i].valid_len;
		res[i] = (struct kvmm_end_res){ .valid_len = a[i].valid_len };
	}
	return nr;
}

static void own_execute(struct own_req *q)
{
	void *args = q->args, *res = q->results;

	switch (q->sqe.op) {
	case KVMM_OP_SEQ_OPEN:
		q->nr = own_open(res);
		break;
	case KVMM_OP_SEQ_MATCH:
		q->nr = own_match(args, res);
		break;
	case KVMM_OP_STEP_BEGIN:
		q->nr = own_begin(args, q->sqe.nr, res);
		break;
	case KVMM_OP_STEP_END:
		q->nr = own_end(args, q->sqe.nr, res);
		break;
	case KVMM_OP_SEQ_CLOSE:
		own.seq[KVMM_SEQ_INDEX(q->args[0])].state = KVMM_SEQ_CLOSED;
		q->nr = 0;
		break;
	default:
		bench_die("verb %u has no answer here", q->sqe.op);
	}
}

/* ---- libkvmm ---- */

/* Name, return type, arguments, arguments of the real call, value here. */
#define OWN_FUNCTIONS(x)						\
	x(backend, u32, (const struct kvmm *k), (k), KVMM_MEMORY_HOST)	\
	x(confirm, int, (struct kvmm *k), (k), 0)			\
	x(device_failed, bool, (const struct kvmm *k), (k), false)	\
	x(draining, bool, (const struct kvmm *k), (k), false)	\
	x(info, const struct kvmm_attach_rep *, (const struct kvmm *k), (k), &own.info) \
	x(next_event, int, (struct kvmm *k, struct kvmm_event *ev), (k, ev), 0) \
	x(poll_extents, int, (struct kvmm *k), (k), 0)			\
	x(pool, void *, (const struct kvmm *k), (k), own.pool)		\
	x(resumed, u32, (const struct kvmm *k, u32 *s), (k, s), (*s = 0)) \
	x(strerror_attach, const char *, (const struct kvmm *k), (k), "") \
	x(prep, struct kvmm_sqe *, (struct kvmm *k, u16 op, u32 nr, u32 bytes, void **args), \
	  (k, op, nr, bytes, args), own_prep(op, nr, bytes, args))	\
	x(submit, int, (struct kvmm *k), (k), own_submit())		\
	x(reap, int, (struct kvmm *k, struct kvmm_done *done), (k, done), own_reap(done)) \
	x(wait, int, (struct kvmm *k, s64 ns), (k, ns),			\
	  own.reaped == own.executed ? -ETIMEDOUT : 0)			\
	x(seq_status, int, (const struct kvmm *k, u64 seq, struct kvmm_seq_status *st), \
	  (k, seq, st), own_status(seq, st))				\
	x(seq_table, int, (const struct kvmm *k, u64 seq, u32 group, u32 first, u32 nr, u32 *out), \
	  (k, seq, group, first, nr, out), own_table(seq, first, nr, out))

static struct kvmm_sqe *own_prep(u16 op, u32 nr, u32 bytes, void **args)
{
	struct own_req *q = &own.req[own.prepared % OWN_RING];

	if (own.prepared - own.released >= OWN_RING || bytes > OWN_ARGS)
		return NULL;
	q->sqe = (struct kvmm_sqe){ .op = op, .nr = nr,
				    .number = ++own.number, .arg_len = bytes };
	*args = q->args;
	own.prepared++;
	return &q->sqe;
}

static int own_submit(void)
{
	for (; own.executed != own.prepared; own.executed++)
		own_execute(&own.req[own.executed % OWN_RING]);
	return 0;
}

static int own_reap(struct kvmm_done *done)
{
	const struct own_req *q = &own.req[own.reaped % OWN_RING];

	if (own.reaped == own.executed)
		return 0;
	*done = (struct kvmm_done){ .number = q->sqe.number,
		.user_data = q->sqe.user_data, .nr = q->nr,
		.results = q->results };
	own.reaped++;
	return 1;
}

static int own_status(u64 seq, struct kvmm_seq_status *st)
{
	*st = own.seq[KVMM_SEQ_INDEX(seq)];
	return 0;
}

static int own_table(u64 seq, u32 first, u32 nr, u32 *out)
{
	const u64 block = (u64)KVMM_SEQ_INDEX(seq) * OWN_BLOCKS + first;
	u32 i;

	for (i = 0; i < nr; i++)
		out[i] = (u32)((block + i) * own.info.block_bytes / OWN_UNIT);
	return 0;
}

#define x(name, type, params, args, here)				\
	type __real_kvmm_##name params;					\
	type __wrap_kvmm_##name params;					\
	type __wrap_kvmm_##name params					\
	{								\
		if (!is_own(k))						\
			return __real_kvmm_##name args;			\
		return here;						\
	}
OWN_FUNCTIONS(x)
#undef x

void __real_kvmm_release(struct kvmm *k);
void __wrap_kvmm_release(struct kvmm *k);
void __wrap_kvmm_release(struct kvmm *k)
{
	if (is_own(k))
		own.released = own.reaped;
	else
		__real_kvmm_release(k);
}

void __real_kvmm_detach(struct kvmm *k);
void __wrap_kvmm_detach(struct kvmm *k);
void __wrap_kvmm_detach(struct kvmm *k)
{
	if (!is_own(k))
		__real_kvmm_detach(k);
	else
		munmap(own.pool, own.info.pool_bytes);
}

int __real_kvmm_attach(const struct kvmm_params *p, struct kvmm **out, char *text);
int __wrap_kvmm_attach(const struct kvmm_params *p, struct kvmm **out, char *text);
int __wrap_kvmm_attach(const struct kvmm_params *p, struct kvmm **out, char *text)
{
	const u64 stride = (u64)p->block_tokens * p->group[0].kv_heads *
			   (p->group[0].k_bytes + p->group[0].v_bytes);
	const u64 block = stride * p->group[0].layers;

	if (!own_pool_on)
		return __real_kvmm_attach(p, out, text);
	memset(&own, 0, sizeof(own));
	own.info = (struct kvmm_attach_rep){
		.nr_shards = 1,
		.unit = OWN_UNIT, .stride[0] = stride, .block_bytes = block,
		.pool_bytes = block * OWN_SEQS * OWN_BLOCKS,
		.max_seqs = OWN_SEQS, .max_batch = OWN_SEQS,
		.max_steps = p->max_steps, .arg_bytes = OWN_ARGS,
		.step_deadline_ms = 10000,
	};
	own.pool = mmap(NULL, own.info.pool_bytes, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (own.pool == MAP_FAILED)
		bench_die("a pool: %s", strerror(errno));
	*out = (struct kvmm *)(void *)&own;
	return 0;
}

#endif /* TESTS_BENCH_OWN_POOL_H */
