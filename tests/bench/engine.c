// SPDX-License-Identifier: Apache-2.0
/*
 * engine.c - continuous batching on a simulated node
 *
 * Requests that come are queued.  Of the queue @admit requests are in the core
 * at once; the next one is opened and matched as soon as there is a place.  A
 * step takes every sequence that has memory: a token of each answer, and prompts
 * as far as the chunk goes.  A preempted sequence is matched again with all its
 * tokens; they are computed again, as prefill.
 *
 * Requests have nothing in common: no request finds a token of another.
 *
 * With beams, the samples of a request become each other after each step, as a
 * recorded search says; samples that were granted the step wait for the others.
 * The tokens of beams are not kept, so a beam that loses its memory ends the
 * benchmark.
 */
#include "kvmm/core/node/node.h"
#include "tests/bench/bench.h"
#include "tests/bench/engine.h"

static u32 token_of(const struct nd_seq *s, u32 pos)
{
	u32 sub = pos < s->prompt ? 0 : s->sub;

	return (s->req * 8 + sub) * 2654435761u + pos;
}

/* ---- arrivals ---- */

static u32 in_queue(const struct nd_engine *e)
{
	return e->q_tail - e->q_head;
}

static bool has_place(const struct nd_engine *e)
{
	return in_queue(e) + e->nr_open < e->cfg.queue;
}

u64 nd_engine_next_arrival(const struct nd_engine *e)
{
	if (e->next_req == e->cfg.nr_reqs || !(e->cfg.drop || has_place(e)))
		return ~0ull;
	return e->cfg.reqs[e->next_req].at + ND_SECOND;
}

static struct nd_seq *new_seq(struct nd_engine *e, u64 handle)
{
	struct nd_seq *s = &e->seqs[KVMM_SEQ_INDEX(handle)];

	*s = (struct nd_seq){ .handle = handle };
	return s;
}

static void match(struct nd_node *n, u32 engine, struct nd_seq *s, u32 nr)
{
	struct kvmm_match_arg *a = (struct kvmm_match_arg *)n->args;
	u32 *ids = (u32 *)(a + 1), i;

	*a = (struct kvmm_match_arg){ .seq = s->handle, .nr_ids = nr,
				      .flags = KVMM_MATCH_LAST };
	for (i = 0; i < nr; i++)
		ids[i] = token_of(s, i);
	nd_submit(n, engine, KVMM_OP_SEQ_MATCH, 1, (u32)sizeof(*a) + 4 * nr);
	if (((struct kvmm_seq_res *)n->results)->status)
		bench_die("no room for the ids of a prompt");
	s->state = KVMM_SEQ_WAITING;
}

/* Does memory.min cover all running and waiting sequences, with @s? */
static bool is_within_min(const struct nd_node *n, const struct nd_engine *e,
			  const struct nd_seq *s)
{
	const struct kv_domain *d = &n->core->domains[e->info.domain];
	u32 i, want = d->nr_running;

	for (i = 0; i < ND_SEQS; i++)
		if (e->seqs[i].handle && e->seqs[i].state == KVMM_SEQ_WAITING)
			want += DIV_ROUND_UP(e->seqs[i].valid +
					     e->seqs[i].prompt + 1,
					     d->group[0].block_tokens) + 1;
	return limit_within_min(d, domain_held(d), want);
}

static void open_next(struct nd_node *n, u32 engine)
{
	struct kvmm_open_arg *a = (struct kvmm_open_arg *)n->args;
	const struct kvmm_open_res *res = (const void *)n->results;
	struct nd_engine *e = n->e[engine];
	u32 i = e->queued[e->q_head++ % e->cfg.nr_reqs];
	const struct nd_req *r = &e->cfg.reqs[i];
	struct nd_seq *s;

	*a = (struct kvmm_open_arg){ .prompt_len = r->prompt,
				     .max_tokens = r->out };
	nd_submit(n, engine, KVMM_OP_SEQ_OPEN, 1, sizeof(*a));
	if (res->status)
		bench_die("a request of %u tokens cannot be opened: %s",
			  r->prompt, strerror(-res->status));
	s = new_seq(e, res->seq);
	s->req = i;
	s->prompt = r->prompt;
	s->all = r->prompt + r->out;
	s->since = max(r->at + ND_SECOND, e->cfg.drop ? 0 : n->now);
	s->state = KVMM_SEQ_WAITING;
	s->within_min = is_within_min(n, e, s);
	e->nr_open++;
	match(n, engine, s, r->prompt);
	nd_settle(n);
}

/* Take in the requests that came until now.  Return: whether there were any. */
bool nd_engine_arrive(struct nd_node *n, u32 engine)
{
	struct nd_engine *e = n->e[engine];
	bool any = false;

	while (nd_engine_next_arrival(e) <= n->now) {
		if (has_place(e))
			e->queued[e->q_tail++ % e->cfg.nr_reqs] = e->next_req;
		e->next_req++;
		any = true;
	}
	while (in_queue(e) && e->nr_open < e->cfg.admit) {
		open_next(n, engine);
		any = true;
	}
	return any;
}

/* ---- states ---- */

static void note_ready(struct nd_node *n, struct nd_engine *e,
		       struct nd_seq *s)
{
	u64 waited = n->now - s->since;

	if (s->began) {
		e->st.longest_pause = max(e->st.longest_pause, waited);
		return;
	}
	e->st.longest_wait = max(e->st.longest_wait, waited);
	if (s->within_min && s->most == 0) {
		e->st.longest_min = max(e->st.longest_min, waited);
		e->st.nr_min++;
		s->within_min = false;
	}
}

/* Read the status records of the engine's sequences. */
void nd_engine_look(struct nd_node *n, u32 engine)
{
	struct nd_engine *e = n->e[engine];
	u32 i;

	for (i = 0; i < ND_SEQS; i++) {
		struct nd_seq *s = &e->seqs[i];
		const struct kvmm_seq_status *st = &e->status[i];

		if (!s->handle || (st->state == s->state &&
				   st->seq_epoch == s->epoch))
			continue;
		if (st->state == KVMM_SEQ_FAILED)
			bench_die("a sequence failed: %s",
				  strerror(-st->reason));
		if (st->seq_epoch != s->epoch) {
			if (e->cfg.beams)
				bench_die("beams lost their memory: no room");
			s->epoch = st->seq_epoch;
			s->since = n->now;
			e->st.preempted++;
		}
		s->state = st->state;
		s->valid = st->valid_len;
		if (st->state == KVMM_SEQ_READY)
			note_ready(n, e, s);
		else if (st->state == KVMM_SEQ_RECOMPUTE)
			match(n, engine, s, max(s->most, s->prompt));
	}
}

/* ---- steps ---- */

/* Tokens of @s to compute in a step; @chunk tokens of prefill are left. */
static u32 step_tokens(const struct nd_seq *s, u32 chunk)
{
	u32 known = max(s->most, s->prompt);

	if (s->valid + 1 < known || s->valid < s->prompt)
		return min(known - s->valid, chunk);
	return s->valid < s->all ? 1 : 0;
}

static u32 entries_make(struct nd_node *n, struct nd_engine *e)
{
	struct kvmm_begin_arg *a = (struct kvmm_begin_arg *)n->args;
	u32 i, nr = 0, chunk = ND_CHUNK, take;

	for (i = 0; i < ND_SEQS; i++) {
		struct nd_seq *s = &e->seqs[i];

		s->to = 0;
		if (!s->handle || s->state != KVMM_SEQ_READY || s->waits)
			continue;
		take = step_tokens(s, chunk);
		if (!take)
			continue;
		if (take > 1)
			chunk -= take;
		a[nr] = (struct kvmm_begin_arg){
			.seq = s->handle, .seq_epoch = s->epoch,
			.start = s->valid, .max_tokens = take };
		e->entry[nr++] = i;
	}
	return nr;
}

void nd_engine_begin(struct nd_node *n, u32 engine)
{
	const struct kvmm_begin_arg *a = (const void *)n->args;
	const struct kvmm_begin_res *res = (const void *)n->results;
	struct nd_engine *e = n->e[engine];
	const u32 groups = max(e->cfg.nr_groups, 1u);
	u32 nr = entries_make(n, e), i, granted = 0;
	u64 ns = ND_STEP_NS;

	if (!nr)
		return;
	e->step++;
	nd_submit(n, engine, KVMM_OP_STEP_BEGIN, nr, nr * (u32)sizeof(*a));
	for (i = 0; i < nr; i++) {
		if (res[i * groups].status)
			continue;
		e->seqs[e->entry[i]].to = a[i].start + a[i].max_tokens;
		e->entry[granted++] = e->entry[i];
		ns += a[i].max_tokens == 1 ? ND_DECODE_NS :
					     a[i].max_tokens * ND_PREFILL_NS;
	}
	e->nr_entries = granted;
	if (granted) {
		e->ends = n->now + ns;
		e->st.longest_step = max(e->st.longest_step, ns);
		return;
	}
	/* No sequence was granted: end the step, and ask again later. */
	nd_submit(n, engine, KVMM_OP_STEP_END, 0, 0);
	e->refused = n->now;
}

static void finish(struct nd_node *n, u32 engine, struct nd_seq *s)
{
	struct kvmm_seq_arg *a = (struct kvmm_seq_arg *)n->args;
	struct nd_engine *e = n->e[engine];

	a->seq = s->handle;
	nd_submit(n, engine, KVMM_OP_SEQ_CLOSE, 1, sizeof(*a));
	if (!s->sub) {
		e->st.finished++;
		e->nr_open--;
	}
	s->handle = 0;
}

/* The prompt is computed: fork the other samples, which share it. */
static void fork_samples(struct nd_node *n, u32 engine, struct nd_seq *s)
{
	struct kvmm_fork_arg *a = (struct kvmm_fork_arg *)n->args;
	const struct kvmm_open_res *res = (const void *)n->results;
	struct nd_engine *e = n->e[engine];
	u32 i;

	if (s->sub || s->forked || e->cfg.samples < 2)
		return;
	*a = (struct kvmm_fork_arg){ .seq = s->handle,
				     .nr_children = e->cfg.samples - 1 };
	nd_submit(n, engine, KVMM_OP_SEQ_FORK, 1, sizeof(*a));
	s->forked = res[0].status == 0;
	for (i = 0; i < e->cfg.samples - 1; i++) {
		u64 handle = res[i].seq;
		struct nd_seq *kid;

		if (res[i].status == -ESTALE)
			return;		/* preempted just now: fork when it is back */
		if (res[i].status)
			bench_die("no fork: %s", strerror(-res[i].status));
		kid = new_seq(e, handle);
		*kid = *s;
		kid->handle = handle;
		kid->sub = i + 1;
		kid->epoch = e->status[KVMM_SEQ_INDEX(handle)].seq_epoch;
	}
}

/* All samples of the request of @s, by number; false: one has not taken the step. */
static bool members_find(struct nd_engine *e, const struct nd_seq *s,
			 struct nd_seq **members)
{
	u32 i, nr = 0;

	for (i = 0; i < ND_SEQS; i++) {
		struct nd_seq *m = &e->seqs[i];

		if (!m->handle || m->req != s->req)
			continue;
		if (m->valid != s->valid)
			return false;
		members[m->sub] = m;
		nr++;
	}
	if (nr != e->cfg.samples)
		bench_die("%u beams instead of %u", nr, e->cfg.samples);
	return true;
}

/* Beams of a request become each other, as step @step of its search says. */
static void beams_remap(struct nd_node *n, u32 engine, struct nd_seq **members,
			u32 step)
{
	struct kvmm_remap_arg *a = (struct kvmm_remap_arg *)n->args;
	const struct kvmm_seq_res *res = (const void *)n->results;
	const struct nd_engine_cfg *g = &n->e[engine]->cfg;
	const u8 *parents;
	u32 i, nr = 0;

	parents = beams_step(&g->beams[members[0]->req % g->nr_beams], step);
	for (i = 0; i < g->samples; i++)
		if (parents[i] != i)
			a[nr++] = (struct kvmm_remap_arg){
				.child = members[i]->handle,
				.other = members[parents[i]]->handle };
	if (!nr)
		return;
	nd_submit(n, engine, KVMM_OP_SEQ_REMAP, nr, nr * (u32)sizeof(*a));
	for (i = 0; i < nr; i++)
		if (res[i].status)
			bench_die("no beam step: %s", strerror(-res[i].status));
}

/* @s took a step: if all beams of its request did, it is over. */
static void beams_end(struct nd_node *n, u32 engine, struct nd_seq *s)
{
	struct nd_engine *e = n->e[engine];
	struct nd_seq *members[BEAMS_WIDTH];
	u32 i;

	if (!members_find(e, s, members))
		return;
	if (s->valid < s->all)
		beams_remap(n, engine, members, s->valid - s->prompt - 1);
	for (i = 0; i < e->cfg.samples; i++) {
		members[i]->waits = false;
		if (members[i]->valid == members[i]->all)
			finish(n, engine, members[i]);
	}
}

static void advance(struct nd_engine *e, struct nd_seq *s)
{
	u32 known = max(s->most, s->prompt);

	if (s->most && s->valid < s->most)
		e->st.again += min(s->to, s->most) - s->valid;
	if (s->to > known)
		e->st.tokens += s->to - known;
	s->valid = s->to;
	s->most = max(s->most, s->valid);
	if (s->valid >= s->prompt)
		s->began = true;
	s->waits = e->cfg.beams && s->valid > s->prompt;
}

static void submit_end(struct nd_node *n, u32 engine)
{
	struct kvmm_end_arg *a = (struct kvmm_end_arg *)n->args;
	struct nd_engine *e = n->e[engine];
	u32 *ids = (u32 *)(a + e->nr_entries), i, pos;

	for (i = 0; i < e->nr_entries; i++) {
		const struct nd_seq *s = &e->seqs[e->entry[i]];

		a[i] = (struct kvmm_end_arg){ .seq = s->handle,
					      .valid_len = s->to,
					      .nr_ids = s->to - s->valid };
		for (pos = s->valid; pos < s->to; pos++)
			*ids++ = token_of(s, pos);
	}
	nd_submit(n, engine, KVMM_OP_STEP_END, e->nr_entries,
		  (u32)((u8 *)ids - (u8 *)n->args));
}

void nd_engine_end(struct nd_node *n, u32 engine)
{
	struct nd_engine *e = n->e[engine];
	u32 i;

	submit_end(n, engine);
	e->ends = 0;
	for (i = 0; i < e->nr_entries; i++)
		advance(e, &e->seqs[e->entry[i]]);
	if (n->on_step)
		n->on_step(n, engine);
	for (i = 0; i < e->nr_entries; i++) {
		struct nd_seq *s = &e->seqs[e->entry[i]];

		if (s->valid == s->prompt && s->most == s->prompt)
			fork_samples(n, engine, s);
		if (s->waits)
			beams_end(n, engine, s);
		else if (s->handle && s->valid == s->all)
			finish(n, engine, s);
	}
}
