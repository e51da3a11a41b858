// SPDX-License-Identifier: Apache-2.0
/*
 * engine.c - many requests, one model, one attachment
 *
 * The engine joins three parts that know nothing of each other: the model,
 * which computes KV and logits; the sampler, which draws a token from logits;
 * and the daemon, which owns the memory of the KV.  The daemon says which
 * client may write where, and takes memory back.  The engine tries to have work
 * for the model at every moment, and a preemption costs it only time.
 *
 *	engine.c	requests and how they end, the loop
 *	create.c	attach and size, detach and free
 *	groups.c	layer groups, and the memory of a sequence in each
 *	request.c	requests by their ids
 *	queue.c		requests without a sequence, and their order
 *	prefix.c	common prefixes of prompts
 *	due.c		deadlines of requests
 *	seq.c		states of a sequence, forks
 *	sched.c		plan of the next step
 *	run.c		a granted step: copies, forward, end
 *	draw.c		draws on the device
 *	token.c		draws on the host, delivery of tokens
 *	score.c		logprobs of prompt tokens
 *	beam.c		beam search over sequences
 *	search.c	beam search over numbers
 *	link.c		requests to the daemon and their answers
 *	load.c		a model and its identity
 *	ranked.c	ranks that share the model: reports
 *	lead.c		orders of the leader to its ranks
 *	follow.c	work of the others
 *	salvage.c	effects of a daemon's salvage
 *	lease.c		cached content that stays without a request
 *	times.c		stages of a request
 *	clock.c		the engine's clock
 *
 * One iteration (engine_step) with one step ahead, time downwards:
 *
 *	this thread				the daemon
 *	collect answers, poll status records
 *	take the grant of step n, read tables
 *	plan n+1, send BEGIN n+1		grants n+1: may preempt, evict
 *	copies and forward of n
 *	draw tokens, send END n			seals, indexes, frees
 *	deliver tokens, send FORK, CLOSE
 *
 * So the answer to BEGIN n+1 is there before it is needed.
 *
 * Ownership: a request owns its copies of the caller's arrays and is freed with
 * the last of its sequences.  A sequence stays in e->live until the daemon has
 * answered its CLOSE.  Both are freed in seqs_advance() alone, which runs at
 * the top level of the loop, so all code below it may hold pointers.  Callbacks
 * run at any depth, so they only change states.
 *
 * on_done is called exactly once for every sample, also when the daemon dies:
 * sample_over() is the only caller.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "runtime/engine/internal.h"

#define ENGINE_PAUSE_NS		1000000ll
#define ENGINE_PAUSE_SHIFT	4u

/* engine_lap() - add the time since the last lap to @sum, and return it */
u64 engine_lap(struct engine *e, u64 *sum)
{
	const s64 now = engine_now();
	const u64 ns = (u64)(now - e->lap_ns);

	e->lap_ns = now;
	*sum += ns;
	return ns;
}

/* engine_refuse() - fill @err, which may be NULL, and return @code */
int engine_refuse(struct engine_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (err)
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

const char *engine_reason_name(enum engine_reason reason)
{
	static const char * const name[] = {
		[ENGINE_STOP]		= "stop",
		[ENGINE_LENGTH]		= "length",
		[ENGINE_CANCELLED]	= "cancelled",
		[ENGINE_TIMEOUT]	= "timeout",
		[ENGINE_ERROR]		= "error",
	};

	return name[reason];
}

/* ------------------------------------------------------------------ */
/* How requests end */

/* sample_over() - report once that sample @k of @r has ended */
void sample_over(struct engine *e, struct request *r, u32 k,
		 const struct engine_done *why)
{
	struct sample *sm = &r->samples[k];
	struct engine_done done = *why;

	/* A beam search has more sequences than it reports texts. */
	if (k >= r->c.n || sm->over)
		return;
	sm->over = true;
	if (r->lane)
		e->queue.waiting--;
	if (++r->nr_over == r->c.n)
		due_remove(e, r);
	done.sample = k;
	if (!done.text)
		done.text = "";
	done.prompt_tokens = r->c.nr;
	done.cached_tokens = r->cached;
	done.tokens = sm->tokens;
	done.logprob = sm->sum;
	done.times = times_so_far(r);
	KV_PROBE(kvrt, sample_done, r->id, k, done.reason, sm->tokens,
		 request_us(r));
	if (r->c.on_done)
		r->c.on_done(r->c.arg, &done);
}

/**
 * seq_over() - end a sequence, and every sample that depends on it
 *
 * These are its own sample and, until it has forked, the samples whose
 * sequences are not yet open.  In a beam search they are all samples.
 */
void seq_over(struct engine *e, struct seq *s, const struct engine_done *why)
{
	struct request *r = s->req;
	u32 k;

	if (seq_is_done(s))
		return;
	if (r->beams) {
		beams_over(e, r, why);
		return;
	}
	s->state = SEQ_OVER;
	for (k = 0; k < r->c.n; k++) {
		struct seq *o = r->samples[k].seq;

		if (o != s) {
			if (s->sample != ENGINE_NO_SAMPLE && !s->to_fork)
				continue;
			if (o && o->opened)
				continue;
			if (o)
				o->state = SEQ_OVER;
		}
		sample_over(e, r, k, why);
	}
}

/* seq_fail() - end @s with an error text for people */
void seq_fail(struct engine *e, struct seq *s, int err, const char *fmt, ...)
{
	struct engine_done why = { .reason = ENGINE_ERROR, .err = err };
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	why.text = text;
	seq_over(e, s, &why);
}

/* seq_refused() - the daemon refused the sequence for good */
void seq_refused(struct engine *e, struct seq *s, int err)
{
	const struct kvmm_attach_rep *info = kvmm_info(e->k);
	const struct request *r = s->req;
	u64 bytes;

	if (err == -ENODEV) {
		seq_fail(e, s, err,
			 "kvmm has lost what the GPU's memory held: see its log");
		return;
	}
	if (err == -ESHUTDOWN) {
		seq_fail(e, s, err,
			 "kvmm is being drained: nothing new begins until its operator ends that");
		return;
	}
	if (err != -E2BIG && err != -EDQUOT) {
		seq_fail(e, s, err, "kvmm refused the sequence: %s",
			 strerror(-err));
		return;
	}
	bytes = engine_seq_blocks(e->group, e->info->nr_groups,
				  info->block_bytes, e->chunk,
				  (u64)r->c.nr + r->c.max_new - 1) *
		info->block_bytes;
	seq_fail(e, s, err,
		 "%u prompt tokens and up to %u new ones need %llu KiB of KV memory, "
		 "%s: ask for fewer tokens, or give the domain or the pool more",
		 r->c.nr, r->c.max_new, (unsigned long long)(bytes >> 10),
		 err == -E2BIG ? "which can never fit" :
		 "which no longer fits");
}

void request_free(struct engine *e, struct request *r)
{
	u32 k;

	if (!r)
		return;
	request_forget(e, r);
	adapters_put(e, r);
	flow_put(r);
	due_remove(e, r);
	free(r->blocks);
	free((void *)(uintptr_t)r->c.ids);
	free((void *)(uintptr_t)r->c.stops);
	free((void *)(uintptr_t)r->c.logprob_ids);
	sampling_params_free(&r->c.sampling);
	id_counts_free(r->counts);
	for (k = 0; r->samples && k < r->c.n; k++)
		id_counts_free(r->samples[k].counts);
	beams_free(r);
	free(r->samples);
	free(r);
}

/**
 * request_over() - end every sample of @r that is not over
 *
 * A request in the queue is freed: @r is then invalid.
 */
void request_over(struct engine *e, struct request *r,
		  const struct engine_done *why)
{
	const bool queued = r->lane;
	u32 k;

	if (queued)
		queue_remove(e, r);
	if (r->root)
		seq_over(e, r->root, why);
	for (k = 0; k < r->c.n; k++) {
		if (r->samples[k].seq)
			seq_over(e, r->samples[k].seq, why);
		sample_over(e, r, k, why);
	}
	if (queued)
		request_free(e, r);
}

/* engine_cancel_all() - end every request, for the reason given */
void engine_cancel_all(struct engine *e, const struct engine_done *why)
{
	struct request *r;
	u32 i;

	while ((r = queue_first(e)))
		request_over(e, r, why);
	for (i = 0; i < e->nr_live; i++)
		request_over(e, e->live[i]->req, why);
}

/*
 * engine_die() - the attachment or the device failed: end every sample, drop
 * all requests in flight
 */
void engine_die(struct engine *e, int err)
{
	struct engine_done why = { .reason = ENGINE_ERROR, .text = e->why };
	u32 i;

	if (err != -EPROTO && err != -ENOTRECOVERABLE)
		snprintf(e->why, sizeof(e->why), "%s",
			 kvmm_strerror_attach(adapters_dead(e) ? e->adapters.k : e->k));
	e->ended = err == -ENOTRECOVERABLE || kvmm_device_failed(e->k) ?
		   -ENOTRECOVERABLE : -ECONNRESET;
	why.err = e->ended;
	e->nr_steps = 0;
	engine_cancel_all(e, &why);
	for (i = 0; i < e->nr_live; i++) {
		e->live[i]->replies = 0;
		e->live[i]->nr_open = 0;
		if (e->live[i]->state == SEQ_CLOSING)
			e->live[i]->state = SEQ_CLOSED;	/* no answer will come */
	}
	leases_end(e, -ECONNRESET);
	seqs_advance(e);
}

/* ------------------------------------------------------------------ */
/* The loop                                                            */

/* Give the daemon time to find memory before the next request. */
static int engine_pause(struct engine *e, s64 timeout_ns)
{
	s64 ns = ENGINE_PAUSE_NS << min(e->barren, ENGINE_PAUSE_SHIFT);
	s64 end, left;
	int err;

	e->throttle = false;
	ns = min(ns, timeout_ns);
	end = engine_now() + ns;
	while ((left = end - engine_now()) > 0) {
		err = link_wait(e, left);
		if (err)
			return err;
	}
	return 0;
}

/* There is no step: wait until one may be possible. */
static int engine_rest(struct engine *e, s64 timeout_ns)
{
	int err = 0;

	/*
	 * A sequence may be READY when the answer to its ids comes.  Its event came
	 * with the answer, so no wake-up would end the wait.
	 */
	if (e->throttle)
		err = engine_pause(e, timeout_ns);
	else if (adapters_come(e))
		err = link_wait(e, min(timeout_ns, ADAPTERS_POLL_NS));
	else if ((e->nr_live || e->nr_hints) && !e->unread)
		err = link_wait(e, timeout_ns);
	engine_lap(e, &e->stats.idle_ns);
	return err;
}

/* Wait for the grant of @st.  Return: 1; 0: the time is over; or an error. */
static int engine_await(struct engine *e, const struct step *st,
			s64 timeout_ns)
{
	const s64 end = engine_now() + timeout_ns;
	s64 left = timeout_ns;
	int err;

	while (st->state == STEP_BEGUN) {
		if (left <= 0)
			return 0;
		err = link_wait(e, left);
		if (err)
			return err;
		left = end - engine_now();
	}
	return 1;
}

static int engine_iterate(struct engine *e, s64 timeout_ns)
{
	struct step *st;
	int err;

	due_expire(e);
	timeout_ns = due_limit(e, timeout_ns);
	err = kvmm_poll_extents(e->k);
	if (err < 0)
		return err;
	err = link_collect(e);
	if (err)
		return err;
	seqs_advance(e);
	err = adapters_advance(e);
	if (err)
		return err;
	queue_open(e);
	leases_advance(e);
	engine_lap(e, &e->stats.collect_ns);
	if (!e->nr_steps) {
		err = sched_begin(e);
		if (err < 0)
			return err;
	}
	err = kvmm_submit(e->k);
	if (err)
		return err;
	engine_lap(e, &e->stats.plan_ns);
	if (!e->nr_steps)
		return engine_rest(e, timeout_ns);

	st = engine_step_at(e, e->last_step - e->nr_steps + 1);
	err = engine_await(e, st, timeout_ns);
	engine_lap(e, &e->stats.wait_ns);
	if (err <= 0)
		return err;
	err = step_run(e, st);
	if (err)
		return err;
	seqs_advance(e);
	err = kvmm_submit(e->k);
	if (err)
		return err;
	engine_lap(e, &e->stats.deliver_ns);
	if (e->barren <= 1)
		return 0;
	err = engine_pause(e, timeout_ns);
	engine_lap(e, &e->stats.idle_ns);
	return err;
}

int engine_step(struct engine *e, s64 timeout_ns)
{
	u64 none = 0;
	int err;

	if (e->ended)
		return e->ended;
	engine_lap(e, e->busy ? &e->stats.away_ns : &none);
	err = lead_check(e);
	if (!err)
		err = engine_iterate(e, timeout_ns);
	if (err < 0) {
		engine_die(e, err);
		return e->ended;
	}
	e->busy = e->queue.nr || e->nr_live || e->nr_hints;
	return e->busy;
}

int engine_run_until_idle(struct engine *e, const volatile int *stop)
{
	int ret;

	do {
		ret = engine_step(e, ENGINE_IDLE_NS);
	} while (ret > 0 && !(stop && *stop));
	return min(ret, 0);
}

/* ------------------------------------------------------------------ */
/* Requests                                                            */

static u32 nr_logprob_ids(const struct engine_request *c)
{
	return c->logprob_ids && c->logprobs ? c->logprobs - 1 : 0;
}

static int request_check(const struct engine *e,
			 const struct engine_request *c,
			 struct engine_error *err)
{
	const u32 n = max(max(c->n, 1u), c->beam_width);
	const char *why;
	u32 i;

	if (!c->nr)
		return engine_refuse(err, -EINVAL,
				     "the prompt is empty: give at least one token");
	if (!c->max_new)
		return engine_refuse(err, -EINVAL,
				     "no token is asked for: ask for at least one");
	if (c->adapter && !e->adapters.k)
		return engine_refuse(err, -EINVAL,
				     "adapters are not enabled: give --enable-lora");
	if (c->nr > engine_max_prompt(e))
		return engine_refuse(err, -E2BIG,
				     "the prompt has %u tokens, the model's context is %u: "
				     "shorten it to %u", c->nr, e->info->max_len,
				     engine_max_prompt(e));
	if (n > e->max_seqs)
		return engine_refuse(err, -EINVAL,
				     "%u samples need as many sequences, kvmm gave %u: "
				     "ask for fewer samples", n, e->max_seqs);
	for (i = 0; i < c->nr; i++)
		if (c->ids[i] >= e->info->nr_vocab)
			return engine_refuse(err, -EINVAL,
					     "token %u of the prompt is %u, the vocabulary has %u: "
					     "use the model's own tokenizer",
					     i, c->ids[i], e->info->nr_vocab);
	if (max(c->logprobs, c->prompt_logprobs) > ENGINE_LOGPROBS(ENGINE_TOP_MAX))
		return engine_refuse(err, -EINVAL,
				     "%u likeliest tokens are asked for, %u are given: ask for fewer",
				     max(c->logprobs, c->prompt_logprobs) - 1,
				     ENGINE_TOP_MAX);
	why = beams_check(c);
	if (why)
		return engine_refuse(err, -EINVAL, "%s", why);
	for (i = 0; i < nr_logprob_ids(c); i++)
		if (c->logprob_ids[i] >= e->info->nr_vocab)
			return engine_refuse(err, -EINVAL,
					     "the logprob of token %u is asked for, the vocabulary has %u: ask for other ids",
					     c->logprob_ids[i],
					     e->info->nr_vocab);
	if (sampling_params_check(&c->sampling, &why) ||
	    sampling_ids_check(&c->sampling, e->info->nr_vocab, &why))
		return engine_refuse(err, -EINVAL, "%s", why);
	return adapters_fit(e, c, err);
}

static u32 *copy_ids(const u32 *ids, u32 nr)
{
	u32 *copy = malloc(max(nr, 1u) * sizeof(*copy));

	if (copy && nr)
		memcpy(copy, ids, nr * sizeof(*copy));
	return copy;
}

/* Count the ids of prompt and text, if the sampling parameters need counts. */
static int request_count(const struct engine *e, struct request *r)
{
	const struct sampling_params *p = &r->c.sampling;
	const u32 vocab = e->info->nr_vocab;
	u32 i;

	r->adjusts = sampling_adjusts(p);
	if (r->c.prompt_logprobs != ENGINE_NO_LOGPROBS &&
	    getrandom(&r->c.salt, sizeof(r->c.salt), 0) != sizeof(r->c.salt))
		return -EIO;
	if (sampling_counts_prompt(p)) {
		r->counts = id_counts_create(min(r->c.nr, vocab));
		if (!r->counts)
			return -ENOMEM;
		for (i = 0; i < r->c.nr; i++)
			id_counts_add(r->counts, r->c.ids[i]);
	}
	for (i = 0; i < r->c.n && sampling_counts(p); i++) {
		r->samples[i].counts = id_counts_create(min(r->c.max_new,
							    vocab));
		if (!r->samples[i].counts)
			return -ENOMEM;
	}
	return 0;
}

static struct request *request_create(struct engine *e,
				      const struct engine_request *c)
{
	struct request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->c = *c;
	r->c.n = max(c->n, 1u);
	r->c.max_new = min(c->max_new, e->info->max_len - c->nr);
	r->c.ids = copy_ids(c->ids, c->nr);
	r->c.stops = copy_ids(c->stops, c->nr_stops);
	r->c.logprob_ids = c->logprob_ids ?
		copy_ids(c->logprob_ids, nr_logprob_ids(c)) : NULL;
	r->width = max(r->c.n, r->c.beam_width);
	r->samples = calloc(r->width, sizeof(*r->samples));
	/* The copy comes first: until then the arrays are the caller's. */
	if (!sampling_params_copy(&r->c.sampling, &c->sampling) &&
	    r->c.ids && r->c.stops && r->samples &&
	    !r->c.logprob_ids == !c->logprob_ids && !request_count(e, r) &&
	    !adapters_get(e, r) &&
	    (!r->c.beam_width || !beams_create(r)) && !prefix_prepare(e, r) &&
	    !request_remember(e, r) && !due_add(e, r))
		return r;
	request_free(e, r);
	return NULL;
}

int engine_submit(struct engine *e, const struct engine_request *req, u64 *id,
		  struct engine_error *err)
{
	struct request *r;
	int ret;

	if (e->ended)
		return engine_refuse(err, e->ended, "%s", e->why);
	if (e->closing)
		return engine_refuse(err, -ECANCELED, "the engine is being destroyed");
	ret = request_check(e, req, err);
	if (ret)
		return ret;
	r = request_create(e, req);
	ret = r ? queue_add(e, r) : -ENOMEM;
	if (ret) {
		request_free(e, r);
		return engine_refuse(err, ret, ret == -EBUSY ?
				     "%u requests of this flow are waiting or at work, as many as it may have: wait until one has ended" :
				     "no memory for one more request",
				     e->queue.max_flow);
	}
	e->stats.requests++;
	r->times.queued = engine_now();
	KV_PROBE(kvrt, request_queued, r->id, r->c.nr, r->c.max_new, r->c.n,
		 r->c.flow);
	if (id)
		*id = r->id;
	return 0;
}

int engine_cancel(struct engine *e, u64 id)
{
	static const struct engine_done why = { .reason = ENGINE_CANCELLED };
	struct request *r = request_find(e, id);

	if (!r || r->nr_over == r->c.n)
		return -ENOENT;
	request_over(e, r, &why);
	return 0;
}

/* End sample @k, and its sequence unless others have yet to fork from it. */
static void sample_cancel(struct engine *e, struct request *r, u32 k,
			  const struct engine_done *why)
{
	struct seq *s = r->samples[k].seq;

	sample_over(e, r, k, why);
	if (r->nr_over == r->c.n)
		request_over(e, r, why);	/* ends the rest too */
	else if (s && !r->beams && !s->to_fork && !seq_is_done(s))
		s->state = SEQ_OVER;
}

int engine_cancel_sample(struct engine *e, u64 id, u32 sample)
{
	static const struct engine_done why = { .reason = ENGINE_CANCELLED };
	struct request *r = request_find(e, id);

	if (!r || sample >= r->c.n || r->samples[sample].over)
		return -ENOENT;
	sample_cancel(e, r, sample, &why);
	return 0;
}

void engine_get_load(const struct engine *e, struct engine_load *load)
{
	u32 i;

	memset(load, 0, sizeof(*load));
	load->waiting = e->queue.waiting;
	load->drained = kvmm_draining(e->k);
	load->client = kvmm_info(e->k)->client;
	load->extents = kvmm_mapped(e->k);
	load->all_extents = kvmm_info(e->k)->pool_extents;
	for (i = 0; i < e->nr_live; i++) {
		const struct seq *s = e->live[i];

		if (seq_is_done(s))
			continue;
		if (s->state == SEQ_RUNNING || s->state == SEQ_FORKING)
			load->running++;
		else
			load->waiting++;
	}
}

void engine_get_stats(const struct engine *e, struct engine_stats *st)
{
	*st = e->stats;
}

const struct kvmm_attach_rep *engine_attach_info(const struct engine *e)
{
	return kvmm_info(e->k);
}

u32 engine_max_prompt(const struct engine *e)
{
	return e->info->max_len - 1;
}

const char *engine_strerror(const struct engine *e)
{
	return e->ended ? e->why : "";
}
