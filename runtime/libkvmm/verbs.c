// SPDX-License-Identifier: Apache-2.0
/*
 * verbs.c - one request, one answer
 *
 * Each call prepares one request, submits it together with all requests that
 * the caller has prepared before, waits for its completion and copies the
 * results out.  Requests of the caller that are in flight are not affected:
 * their completions are reaped later, in order (lk_take()).
 *
 * When requests that the caller has not released fill the ring or the argument
 * area, waiting does not help, and the answer is -EBUSY.
 */
#include "runtime/libkvmm/internal.h"

/*
 * Get an entry and room for its arguments; wait for requests in flight if
 * needed.
 */
int lk_verb_prep(struct kvmm *k, struct lk_verb *v, u16 op, u32 nr, u64 bytes)
{
	int ret;

	if (nr > k->info.max_batch || bytes > k->info.arg_bytes)
		return -E2BIG;
	for (;;) {
		v->index = k->sub.tail;
		v->sqe = lk_prep(k, op, nr, (u32)bytes, LK_OWN, &v->args);
		if (v->sqe)
			return 0;
		if (k->ended)
			return k->ended;
		if (k->cons.tail == k->sub.tail)
			return -EBUSY;
		/*
		 * Wait for the last request in flight, then see how much it
		 * freed.
		 */
		ret = kvmm_submit(k);
		if (!ret)
			ret = lk_wait_for(k, k->sub.tail - 1, -1);
		if (ret)
			return ret;
		lk_collect(k);
	}
}

/*
 * Submit, wait, and read the completion.
 * Return: the request's status, or -ECONNRESET; a request that succeeded has
 * @want records.
 */
static int lk_verb_wait(struct kvmm *k, struct lk_verb *v, u32 want)
{
	int ret;

	ret = kvmm_submit(k);
	if (!ret)
		ret = lk_wait_for(k, v->index, -1);
	if (!ret)
		ret = lk_take(k, v->index, &v->done);
	if (ret)
		return ret;
	if (!v->done.status && v->done.nr != want)
		return lk_end(k, "kvmm gave %u results for %u entries",
			      v->done.nr, want);
	return v->done.status;
}

/* lk_verb_wait(), then copy the records to @out and release them. */
int lk_verb_run(struct kvmm *k, struct lk_verb *v, void *out, u32 want)
{
	const u32 size = lk_result_size(v->sqe->op);
	int ret = lk_verb_wait(k, v, want);

	if (!ret && want)
		memcpy(out, v->done.results, (size_t)want * size);
	lk_collect(k);
	return ret;
}

int kvmm_nop(struct kvmm *k)
{
	struct lk_verb v;
	int ret = lk_verb_prep(k, &v, KVMM_OP_NOP, 0, 0);

	return ret ? ret : lk_verb_run(k, &v, NULL, 0);
}

int kvmm_seq_open(struct kvmm *k, const struct kvmm_open_arg *args, u32 nr,
		  struct kvmm_open_res *res)
{
	const u64 bytes = (u64)nr * sizeof(*args);
	struct lk_verb v;
	int ret = lk_verb_prep(k, &v, KVMM_OP_SEQ_OPEN, nr, bytes);

	if (ret)
		return ret;
	memcpy(v.args, args, bytes);
	return lk_verb_run(k, &v, res, nr);
}

/* Send one piece of ids; @last: it is the last piece. */
static int match_piece(struct kvmm *k, u64 seq, const u32 *ids, u32 start,
		       u32 nr, bool last)
{
	struct kvmm_match_arg *arg;
	struct kvmm_seq_res res;
	struct lk_verb v;
	int ret;

	ret = lk_verb_prep(k, &v, KVMM_OP_SEQ_MATCH, 1,
			sizeof(*arg) + (u64)nr * sizeof(u32));
	if (ret)
		return ret;
	arg = v.args;
	*arg = (struct kvmm_match_arg) {
		.seq = seq,
		.start = start,
		.nr_ids = nr,
		.flags = last ? KVMM_MATCH_LAST : 0,
	};
	memcpy(arg + 1, ids + start, (size_t)nr * sizeof(u32));
	ret = lk_verb_run(k, &v, &res, 1);
	return ret ? ret : res.status;
}

int kvmm_seq_match(struct kvmm *k, u64 seq, const u32 *ids, u32 nr)
{
	/* Half of the area, so that the next piece fits beside this one. */
	const u32 max = (k->info.arg_bytes / 2 -
			 (u32)sizeof(struct kvmm_match_arg)) / sizeof(u32);
	u32 start, n;
	int ret = 0;

	if (!nr)
		return -EINVAL;
	for (start = 0; !ret && start < nr; start += n) {
		n = min(nr - start, max);
		ret = match_piece(k, seq, ids, start, n, start + n == nr);
	}
	return ret;
}

#define LOOKUP_IDS	8192u	/* most ids of a piece: the rest may not be cached */

/* Ask for the ids from @start on, where @cookie belongs. */
static int lookup_piece(struct kvmm *k, u64 salt, const __u64 *cookie,
			const u32 *ids, u32 nr, bool last, u32 start,
			struct kvmm_lookup_res *res)
{
	struct kvmm_lookup_arg *arg;
	struct lk_verb v;
	int ret = lk_verb_prep(k, &v, KVMM_OP_SEQ_LOOKUP, 1,
			    sizeof(*arg) + (u64)nr * sizeof(u32));

	if (ret)
		return ret;
	arg = v.args;
	*arg = (struct kvmm_lookup_arg) {
		.salt = salt,
		.cookie = { cookie[0], cookie[1] },
		.start = start,
		.nr_ids = nr,
		.flags = last ? KVMM_LOOKUP_LAST : 0,
	};
	memcpy(arg + 1, ids + start, (size_t)nr * sizeof(u32));
	ret = lk_verb_run(k, &v, res, 1);
	return ret ? ret : res->status;
}

/**
 * struct looked - tokens that the pieces found so far
 * @at:     how far: later pieces go on from here, and a hit may end before
 * @ready:  tokens before the first block that a match does not find at once
 * @tokens: those after the last hit, in each tier
 */
struct looked {
	u32	at;
	u32	ready;
	u32	tokens[KVMM_NR_LOOKUP_TIERS];
};

/* Can the answer to a piece of @nr ids be? */
static bool lookup_is_sane(const struct kvmm *k, const struct kvmm_lookup_res *res, u32 nr,
			   u32 start)
{
	u32 i, sum = 0;

	for (i = 0; i < min(res->nr_runs, (u32)KVMM_LOOKUP_RUNS); i++) {
		if (res->run[i].tier >= KVMM_NR_LOOKUP_TIERS)
			return false;
		sum += res->run[i].blocks * k->hit_tokens;
	}
	if (i != res->nr_runs || sum != res->found || sum > nr ||
	    (!sum && (res->flags & KVMM_LOOKUP_MORE)))
		return false;
	if (k->nr_groups == 1 || !sum)
		return res->hit == (sum ? start + sum : 0);
	return !res->hit || (res->hit > start && res->hit <= start + sum &&
			     res->hit % k->hit_tokens == 0);
}

/* A hit ends here: the tokens before it count. */
static void lookup_hit(struct looked *l, const struct kvmm_lookup_res *res,
		       struct kvmm_found *out)
{
	u32 i;

	for (i = 0; i < KVMM_NR_LOOKUP_TIERS; i++)
		out->tokens[i] += l->tokens[i];
	memset(l->tokens, 0, sizeof(l->tokens));
	out->found = l->at;
	out->ready = l->ready;
	memcpy(out->cookie, res->hit_cookie, sizeof(out->cookie));
}

/* Add the answer to a piece of @nr ids.  Return: 0, or -ECONNRESET. */
static int lookup_add(struct kvmm *k, const struct kvmm_lookup_res *res, u32 nr,
		      struct looked *l, struct kvmm_found *out)
{
	u32 i, left, take;

	if (!lookup_is_sane(k, res, nr, l->at))
		return lk_end(k, "kvmm found %u of %u tokens in %u runs, and a hit of %u",
			      res->found, nr, res->nr_runs, res->hit);
	for (i = 0; i < res->nr_runs; i++) {
		left = res->run[i].blocks * k->hit_tokens;
		for (; left; left -= take) {
			take = l->at < res->hit ? min(left, res->hit - l->at) : left;
			if (l->ready == l->at && res->run[i].tier <= KVMM_TIER_HOST)
				l->ready += take;
			l->tokens[res->run[i].tier] += take;
			l->at += take;
			if (l->at == res->hit)
				lookup_hit(l, res, out);
		}
	}
	return 0;
}

int kvmm_lookup(struct kvmm *k, u64 salt, const u32 *ids, u32 nr,
		struct kvmm_found *out)
{
	/* Half of the area at most, as for a match. */
	const u32 room = (k->info.arg_bytes / 2 -
			  (u32)sizeof(struct kvmm_lookup_arg)) / sizeof(u32);
	const u32 max = min(room, LOOKUP_IDS) / k->hit_tokens * k->hit_tokens;
	struct kvmm_lookup_res res = { 0 };
	struct looked l = { 0 };
	u32 n;
	int ret;

	memset(out, 0, sizeof(*out));
	if (!nr || !max)
		return nr ? -E2BIG : -EINVAL;
	do {
		n = min(nr - l.at, max);
		ret = lookup_piece(k, salt, res.cookie, ids, n, l.at + n == nr, l.at, &res);
		if (!ret)
			ret = lookup_add(k, &res, n, &l, out);
		if (ret)
			return ret;
	} while ((res.flags & KVMM_LOOKUP_MORE) ||
		 (res.found == n && l.at < nr));
	return 0;
}

int kvmm_lease(struct kvmm *k, u64 salt, const struct kvmm_found *found, u32 ms,
	       const char *label, struct kvmm_lease_res *res)
{
	struct kvmm_lease_arg *arg;
	struct lk_verb v;
	int ret = lk_verb_prep(k, &v, KVMM_OP_SEQ_LEASE, 1, sizeof(*arg));

	memset(res, 0, sizeof(*res));
	if (ret)
		return ret;
	arg = v.args;
	*arg = (struct kvmm_lease_arg) {
		.salt = salt,
		.cookie = { found->cookie[0], found->cookie[1] },
		.len = found->found,
		.ms = ms,
	};
	memcpy(arg->label, label ? label : "", strnlen(label ? label : "",
						       sizeof(arg->label)));
	ret = lk_verb_run(k, &v, res, 1);
	return ret ? ret : res->status;
}

int kvmm_seq_fork(struct kvmm *k, u64 seq, u32 nr_children,
		  struct kvmm_open_res *res)
{
	struct kvmm_fork_arg *arg;
	struct lk_verb v;
	int ret = lk_verb_prep(k, &v, KVMM_OP_SEQ_FORK, 1, sizeof(*arg));

	if (ret)
		return ret;
	arg = v.args;
	*arg = (struct kvmm_fork_arg) {
		.seq = seq,
		.nr_children = nr_children,
	};
	return lk_verb_run(k, &v, res, nr_children);
}

/* Run any verb that takes no ids and answers with kvmm_seq_res. */
static int entries_run(struct kvmm *k, u16 op, const void *args, u64 bytes,
		       u32 nr, struct kvmm_seq_res *res)
{
	struct lk_verb v;
	int ret = lk_verb_prep(k, &v, op, nr, bytes);

	if (ret)
		return ret;
	memcpy(v.args, args, bytes);
	return lk_verb_run(k, &v, res, nr);
}

int kvmm_seq_remap(struct kvmm *k, const struct kvmm_remap_arg *args, u32 nr,
		   struct kvmm_seq_res *res)
{
	return entries_run(k, KVMM_OP_SEQ_REMAP, args,
			   (u64)nr * sizeof(*args), nr, res);
}

int kvmm_seq_truncate(struct kvmm *k, const struct kvmm_len_arg *args, u32 nr,
		      struct kvmm_seq_res *res)
{
	return entries_run(k, KVMM_OP_SEQ_TRUNCATE, args,
			   (u64)nr * sizeof(*args), nr, res);
}

int kvmm_seq_trim(struct kvmm *k, const struct kvmm_len_arg *args, u32 nr,
		  struct kvmm_seq_res *res)
{
	return entries_run(k, KVMM_OP_SEQ_TRIM, args,
			   (u64)nr * sizeof(*args), nr, res);
}

int kvmm_seq_advise(struct kvmm *k, const struct kvmm_advise_arg *args, u32 nr,
		    struct kvmm_seq_res *res)
{
	return entries_run(k, KVMM_OP_SEQ_ADVISE, args,
			   (u64)nr * sizeof(*args), nr, res);
}

/* The first entry that failed decides, since there is only one return value. */
int kvmm_seq_close(struct kvmm *k, const u64 *seqs, u32 nr)
{
	const struct kvmm_seq_res *res;
	struct kvmm_seq_arg *arg;
	struct lk_verb v;
	int ret;
	u32 i;

	ret = lk_verb_prep(k, &v, KVMM_OP_SEQ_CLOSE, nr, (u64)nr * sizeof(*arg));
	if (ret)
		return ret;
	for (arg = v.args, i = 0; i < nr; i++)
		arg[i].seq = seqs[i];
	ret = lk_verb_wait(k, &v, nr);
	for (res = v.done.results, i = 0; !ret && i < nr; i++)
		ret = res[i].status;
	lk_collect(k);
	return ret;
}

int kvmm_step_begin(struct kvmm *k, u64 step,
		    const struct kvmm_begin_arg *args, u32 nr,
		    struct kvmm_begin_res *res)
{
	const u64 bytes = (u64)nr * sizeof(*args);
	struct lk_verb v;
	int ret = lk_verb_prep(k, &v, KVMM_OP_STEP_BEGIN, nr, bytes);

	if (ret)
		return ret;
	v.sqe->step = step;
	if (nr)
		memcpy(v.args, args, bytes);
	return lk_verb_run(k, &v, res, nr * k->nr_groups);
}

int kvmm_step_end(struct kvmm *k, u64 step, u64 device_ns, u64 prefill_tokens,
		  const struct kvmm_end_arg *args, u32 nr, const u32 *ids,
		  struct kvmm_end_res *res)
{
	const u64 bytes = (u64)nr * sizeof(*args);
	u64 nr_ids = 0;
	struct lk_verb v;
	int ret;
	u32 i;

	for (i = 0; i < nr; i++)
		nr_ids += args[i].nr_ids;
	ret = lk_verb_prep(k, &v, KVMM_OP_STEP_END, nr,
			bytes + nr_ids * sizeof(u32));
	if (ret)
		return ret;
	v.sqe->step = step;
	v.sqe->param[0] = device_ns;
	v.sqe->param[1] = prefill_tokens;
	if (nr)
		memcpy(v.args, args, bytes);
	if (nr_ids)
		memcpy((char *)v.args + bytes, ids, nr_ids * sizeof(u32));
	return lk_verb_run(k, &v, res, nr);
}
