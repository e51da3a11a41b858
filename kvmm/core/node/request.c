// SPDX-License-Identifier: Apache-2.0
/*
 * request.c - check a request, then execute it
 *
 * The shell passes its own copies of the entry and its argument bytes.
 * core_req_check() checks everything that does not depend on the state of a
 * sequence: verb, flags, reserved fields, counts, exact lengths.
 * core_req_execute() executes a request that passed, and never fails half way:
 * it gives a status of the whole request, then one record for each entry.
 *
 * The verbs are one table: size of an entry, whether ids follow, the size of
 * a result record, and the function.
 */
#include "kvmm/core/node/node.h"

/**
 * struct verb - one row of the table
 * @entry:  bytes of an entry
 * @result: bytes of a result record
 * @count:  checks the entries and counts ids and results; NULL: no ids, and one
 *          result for each entry
 * @run:    executes the request
 */
struct verb {
	u32	entry;
	u32	result;
	int	(*count)(const struct core_req *req, u64 *ids, u64 *results);
	int	(*run)(struct core *c, u32 client, const struct core_req *req,
		       void *results);
};

static int run_nop(struct core *c, u32 client, const struct core_req *req,
		   void *results)
{
	return 0;
}

/*
 * Entries that name a lease take as long as it has blocks, or its prompt.  The first
 * is always executed; after the event has done a lot, others get -EAGAIN.
 */
static bool entry_waits(const struct core *c, u32 i)
{
	return i && core_worked(c);
}

static int run_open(struct core *c, u32 client, const struct core_req *req,
		    void *results)
{
	const struct kvmm_open_arg *a = req->args;
	struct kvmm_open_res *res = results;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++) {
		if (a[i].lease && entry_waits(c, i))
			res[i] = (struct kvmm_open_res){ .status = -EAGAIN,
							 .limiting_pool = KVMM_NO_POOL };
		else
			(void)!seq_open(c, client, &a[i], &res[i]);
	}
	return 0;
}

static int count_match(const struct core_req *req, u64 *ids, u64 *results)
{
	const struct kvmm_match_arg *a = req->args;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++)
		*ids += a[i].nr_ids;
	*results = req->sqe.nr;
	return 0;
}

static int run_match(struct core *c, u32 client, const struct core_req *req,
		     void *results)
{
	const struct kvmm_match_arg *a = req->args;
	const u32 *ids = (const u32 *)(a + req->sqe.nr);
	struct kvmm_seq_res *res = results;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++) {
		res[i].status = seq_match(c, client, &a[i], ids);
		res[i].valid_len = 0;
		ids += a[i].nr_ids;
	}
	return 0;
}

static int count_lookup(const struct core_req *req, u64 *ids, u64 *results)
{
	const struct kvmm_lookup_arg *a = req->args;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++)
		*ids += a[i].nr_ids;
	*results = req->sqe.nr;
	return 0;
}

static int run_lookup(struct core *c, u32 client, const struct core_req *req,
		      void *results)
{
	const struct kvmm_lookup_arg *a = req->args;
	const u32 *ids = (const u32 *)(a + req->sqe.nr);
	struct kvmm_lookup_res *res = results;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++) {
		res[i].status = seq_lookup(c, client, &a[i], ids, &res[i]);
		ids += a[i].nr_ids;
	}
	return 0;
}

static int run_lease(struct core *c, u32 client, const struct core_req *req,
		     void *results)
{
	const struct kvmm_lease_arg *a = req->args;
	struct kvmm_lease_res *res = results;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++)
		res[i].status = entry_waits(c, i) ? -EAGAIN :
				seq_lease(c, client, &a[i], &res[i]);
	return 0;
}

static int run_begin(struct core *c, u32 client, const struct core_req *req,
		     void *results)
{
	return step_begin(c, client, req, results);
}

static int count_end(const struct core_req *req, u64 *ids, u64 *results)
{
	const struct kvmm_end_arg *a = req->args;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++)
		*ids += a[i].nr_ids;
	*results = req->sqe.nr;
	return 0;
}

static int run_end(struct core *c, u32 client, const struct core_req *req,
		   void *results)
{
	return step_end(c, client, req, results);
}

static int count_fork(const struct core_req *req, u64 *ids, u64 *results)
{
	const struct kvmm_fork_arg *a = req->args;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++) {
		if (!a[i].nr_children)
			return -EINVAL;
		*results += a[i].nr_children;
	}
	return *results > CORE_MAX_BATCH ? -E2BIG : 0;
}

static int run_fork(struct core *c, u32 client, const struct core_req *req,
		    void *results)
{
	const struct kvmm_fork_arg *a = req->args;
	struct kvmm_open_res *res = results;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++) {
		seq_fork(c, client, &a[i], res);
		res += a[i].nr_children;
	}
	return 0;
}

static int run_remap(struct core *c, u32 client, const struct core_req *req,
		     void *results)
{
	seq_remap(c, client, req->args, req->sqe.nr, results);
	return 0;
}

/* TRUNCATE and TRIM: both have a length as their argument. */
static void run_len(struct core *c, u32 client, const struct core_req *req,
		    struct kvmm_seq_res *res,
		    int (*one)(struct core *c, struct kv_seq *s,
			       const struct kvmm_len_arg *a))
{
	const struct kvmm_len_arg *a = req->args;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++) {
		struct kv_seq *s = seq_find(c, client, a[i].seq);

		res[i].status = s ? one(c, s, &a[i]) : -ENOENT;
		res[i].valid_len = s ? s->valid_len : 0;
	}
}

static int run_truncate(struct core *c, u32 client, const struct core_req *req,
			void *results)
{
	run_len(c, client, req, results, seq_truncate);
	return 0;
}

static int run_trim(struct core *c, u32 client, const struct core_req *req,
		    void *results)
{
	run_len(c, client, req, results, seq_trim);
	return 0;
}

static int run_close(struct core *c, u32 client, const struct core_req *req,
		     void *results)
{
	const struct kvmm_seq_arg *a = req->args;
	struct kvmm_seq_res *res = results;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++) {
		struct kv_seq *s = seq_find(c, client, a[i].seq);

		res[i].status = s ? seq_close(c, s) : -ENOENT;
		res[i].valid_len = 0;
	}
	return 0;
}

/* Does the advice look at all blocks of a lease? */
static bool lease_moves(const struct kvmm_advise_arg *a)
{
	return a->advice == KVMM_ADV_PAGEOUT || a->advice == KVMM_ADV_WILLNEED;
}

/* @tokens: takes those of a lease that the advice moves */
static int advise_one(struct core *c, struct kv_seq *s,
		      const struct kvmm_advise_arg *a, u32 *tokens)
{
	if (!s)
		return -ENOENT;
	if (s->flags & SEQF_LEASE)
		return lease_advise(c, s, a, tokens);
	if (a->advice == KVMM_ADV_RETAIN)
		return retain_advise(s, a);
	if (a->retain || !a->advice || a->advice > KVMM_ADV_DONTNEED ||
	    !advise_value_is_sane(a))
		return -EINVAL;
	if (a->advice == KVMM_ADV_PAGEOUT || a->advice == KVMM_ADV_WILLNEED)
		return swap_advise(c, s, a->advice);
	advise_retention(s, a->advice, a->value);
	return 0;
}

static int run_advise(struct core *c, u32 client, const struct core_req *req,
		      void *results)
{
	const struct kvmm_advise_arg *a = req->args;
	struct kvmm_seq_res *res = results;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++) {
		struct kv_seq *s = seq_find(c, client, a[i].seq);

		res[i].valid_len = 0;
		if (s && (s->flags & SEQF_LEASE) && lease_moves(&a[i]) && entry_waits(c, i))
			res[i].status = -EAGAIN;
		else
			res[i].status = advise_one(c, s, &a[i], &res[i].valid_len);
	}
	return 0;
}

static int prio_one(struct core *c, struct kv_seq *s,
		    const struct kvmm_prio_arg *a)
{
	if (!s)
		return -ENOENT;
	if (a->resv)
		return -EINVAL;
	if (s->priority != a->priority)
		s->flags |= SEQF_RETAIN;
	seq_set_priority(c, s, a->priority);
	return 0;
}

static int run_setprio(struct core *c, u32 client, const struct core_req *req,
		       void *results)
{
	const struct kvmm_prio_arg *a = req->args;
	struct kvmm_seq_res *res = results;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++) {
		res[i].status = prio_one(c, seq_find(c, client, a[i].seq),
					 &a[i]);
		res[i].valid_len = 0;
	}
	return 0;
}

static int ack_one(struct core *c, u32 client, const struct kvmm_ack_arg *a)
{
	if (a->resv || a->extent >= core_sizes(c)->nr_extents)
		return -EINVAL;
	if (a->what == KVMM_ACK_MAP)
		return extent_ack(c, client, a);
	if (a->what == KVMM_ACK_REVOKE)
		return revoke_ack(c, client, a);
	return -EINVAL;
}

static int run_ack(struct core *c, u32 client, const struct core_req *req,
		   void *results)
{
	const struct kvmm_ack_arg *a = req->args;
	struct kvmm_seq_res *res = results;
	u32 i;

	for (i = 0; i < req->sqe.nr; i++) {
		res[i].status = ack_one(c, client, &a[i]);
		res[i].valid_len = 0;
	}
	return 0;
}

static int run_detach(struct core *c, u32 client, const struct core_req *req,
		      void *results)
{
	if (c->clients[client].nr_steps)
		return -EBUSY;
	client_detach(c, client);
	return 0;
}

#define SEQ_RES	sizeof(struct kvmm_seq_res)

static const struct verb verbs[KVMM_NR_OPS] = {
	[KVMM_OP_NOP]		= { 0, 0, NULL, run_nop },
	[KVMM_OP_SEQ_OPEN]	= { sizeof(struct kvmm_open_arg),
				    sizeof(struct kvmm_open_res),
				    NULL, run_open },
	[KVMM_OP_SEQ_MATCH]	= { sizeof(struct kvmm_match_arg), SEQ_RES,
				    count_match, run_match },
	[KVMM_OP_STEP_BEGIN]	= { sizeof(struct kvmm_begin_arg),
				    sizeof(struct kvmm_begin_res),
				    NULL, run_begin },
	[KVMM_OP_STEP_END]	= { sizeof(struct kvmm_end_arg),
				    sizeof(struct kvmm_end_res),
				    count_end, run_end },
	[KVMM_OP_SEQ_FORK]	= { sizeof(struct kvmm_fork_arg),
				    sizeof(struct kvmm_open_res),
				    count_fork, run_fork },
	[KVMM_OP_SEQ_REMAP]	= { sizeof(struct kvmm_remap_arg), SEQ_RES,
				    NULL, run_remap },
	[KVMM_OP_SEQ_CLOSE]	= { sizeof(struct kvmm_seq_arg), SEQ_RES,
				    NULL, run_close },
	[KVMM_OP_SEQ_TRUNCATE]	= { sizeof(struct kvmm_len_arg), SEQ_RES,
				    NULL, run_truncate },
	[KVMM_OP_SEQ_TRIM]	= { sizeof(struct kvmm_len_arg), SEQ_RES,
				    NULL, run_trim },
	[KVMM_OP_SEQ_ADVISE]	= { sizeof(struct kvmm_advise_arg), SEQ_RES,
				    NULL, run_advise },
	[KVMM_OP_SEQ_SETPRIO]	= { sizeof(struct kvmm_prio_arg), SEQ_RES,
				    NULL, run_setprio },
	[KVMM_OP_EXTENT_ACK]	= { sizeof(struct kvmm_ack_arg), SEQ_RES,
				    NULL, run_ack },
	[KVMM_OP_DETACH]	= { 0, 0, NULL, run_detach },
	[KVMM_OP_SEQ_LOOKUP]	= { sizeof(struct kvmm_lookup_arg),
				    sizeof(struct kvmm_lookup_res),
				    count_lookup, run_lookup },
	[KVMM_OP_SEQ_LEASE]	= { sizeof(struct kvmm_lease_arg),
				    sizeof(struct kvmm_lease_res),
				    NULL, run_lease },
};

static int check_fixed(const struct kvmm_sqe *q)
{
	bool step = q->op == KVMM_OP_STEP_BEGIN || q->op == KVMM_OP_STEP_END;

	if (q->op >= KVMM_NR_OPS)
		return -EINVAL;
	if (q->flags || q->resv)
		return -EINVAL;
	if (step != (q->step != 0))
		return -EINVAL;
	if (q->op != KVMM_OP_STEP_END && (q->param[0] || q->param[1]))
		return -EINVAL;
	if (q->nr > CORE_MAX_BATCH)
		return -E2BIG;
	return 0;
}

static int check_args(const struct verb *v, u32 args_len, struct core_req *req)
{
	u64 want = (u64)req->sqe.nr * v->entry, ids = 0, results = req->sqe.nr;
	int err;

	if (!v->entry && req->sqe.nr)
		return -EINVAL;
	if (v->entry && !req->sqe.nr && req->sqe.op != KVMM_OP_STEP_END)
		return -EINVAL;
	if (args_len < want)
		return -EINVAL;
	if (v->count) {
		results = 0;
		err = v->count(req, &ids, &results);
		if (err)
			return err;
	}
	if (args_len != want + 4 * ids)
		return -EINVAL;
	req->nr_results = (u32)results;
	req->result_size = v->result;
	return 0;
}

/**
 * core_req_check() - check a request before anything is done for it
 * @sqe:      the shell's copy
 * @args:     the shell's copy of the argument bytes, 8-byte aligned
 * @args_len: number of argument bytes, sqe->arg_len
 * @req:      filled for core_req_execute()
 *
 * Return: 0; -EPROTO: the client must be expelled (its request numbers do not
 * rise, or it goes on after DETACH); else the status of the request, which has
 * no results then, but uses its number.
 */
int core_req_check(struct core *c, u32 client, const struct kvmm_sqe *sqe,
		   const void *args, u32 args_len, struct core_req *req)
{
	struct kv_client *cl = &c->clients[client];
	int err;
	core_event(c);

	*req = (struct core_req){ .sqe = *sqe, .args = args };
	if (cl->state != CLI_ALIVE || cl->away ||
	    sqe->number <= cl->last_number)
		return -EPROTO;
	KV_BUG_ON(cl->committed > cl->last_number);
	cl->last_number = sqe->number;

	err = check_fixed(sqe);
	if (!err)
		err = check_args(&verbs[sqe->op], args_len, req);
	if (!err && sqe->op == KVMM_OP_STEP_BEGIN)
		req->nr_results *= c->domains[cl->domain].nr_groups;
	if (!err)
		err = rank_may_ask(c, client, sqe->op);
	if (err)
		core_count(c, CORE_EV_req_refused, 1);
	return err;
}

/**
 * core_req_execute() - execute a request that core_req_check() passed
 * @results: nr_results * result_size bytes, 8-byte aligned
 *
 * Return: status of the whole request.  Records are written in either case, and
 * are zero when the request was refused.
 */
int core_req_execute(struct core *c, u64 now, u32 client,
		     const struct core_req *req, void *results)
{
	int status;
	core_event(c);

	KV_BUG_ON(req->sqe.op >= KVMM_NR_OPS);
	KV_BUG_ON(c->clients[client].state == CLI_FREE);
	c->now = now;
	if (req->nr_results)
		memset(results, 0, (size_t)req->nr_results * req->result_size);
	status = verbs[req->sqe.op].run(c, client, req, results);
	core_crash(c, CORE_CRASH_executed);
	store_release(&c->bind[client].ctl->committed, req->sqe.number);
	admit_all(c);
	return status;
}
