// SPDX-License-Identifier: Apache-2.0
/*
 * token.c - draws on the host, delivery of tokens
 *
 * Drawing and delivering are separate: tokens are drawn right after the
 * forward, then the step is ended, then callbacks run.  So a slow callback does
 * not delay the blocks that go back to the daemon.
 *
 * The first token is special.  The logits of a prompt's last position serve all
 * n samples: each sample draws its first token from them with its own random
 * numbers, before any child exists.  Samples that their first token ends never
 * become sequences.  The root carries the first of the remaining samples, and
 * the others wait for SEQ_FORK with their token known.
 *
 * Penalties and masks depend only on the ids of prompt and text.  The counts of
 * a sample's text grow here, where a token joins the text.  They belong to the
 * sample, not to the sequence that carries it, so preemption, restoring and
 * recomputing do not touch them.
 */
#include "runtime/engine/internal.h"

static s32 draw(struct engine *e, const struct request *r, u32 sample,
		u32 position, const float *logits)
{
	const struct sampler_key key = {
		.seed = r->c.sampling.seed, .sample = sample,
	};

	return sampler_sample(e->sampler, logits, e->info->nr_vocab,
			      &r->c.sampling, key, position);
}

/*
 * seq_so_far() - prompt and text, on which the next draw for @s depends
 *
 * Before the first token all samples have the same, empty text.
 */
struct sampler_text seq_so_far(const struct seq *s)
{
	const struct request *r = s->req;
	const u32 k = s->sample == ENGINE_NO_SAMPLE ? 0 : s->sample;

	return (struct sampler_text){
		.prompt = r->counts, .text = r->samples[k].counts,
		.ids = s->ids + r->c.nr, .nr = s->len - r->c.nr,
		.stops = r->c.stops, .nr_stops = r->c.nr_stops,
	};
}

/*
 * The row to draw from: @logits edited in place, or an edited copy where the
 * logprobs are those of the unedited row.
 */
static const float *adjusted(struct engine *e, const struct seq *s,
			     float *logits)
{
	const struct request *r = s->req;
	const u32 vocab = e->info->nr_vocab;
	const struct sampler_text so_far = seq_so_far(s);

	if (!r->adjusts)
		return logits;
	if (r->c.logprobs != ENGINE_NO_LOGPROBS) {
		memcpy(e->row, logits, vocab * sizeof(*logits));
		logits = e->row;
	}
	sampler_adjust(e->sampler, &r->c.sampling, &so_far, logits, vocab);
	return logits;
}

/* drawn_lp() - logprob and rank of @id in the row; @sum is its logprob_sum() */
struct drawn drawn_lp(const struct engine *e, const float *logits, double sum,
		      u32 id)
{
	return (struct drawn){
		.logprob = (float)((double)logits[id] - sum),
		.rank = logprob_rank(logits, e->info->nr_vocab, id),
	};
}

/* Fill in the tokens that @r wants reported; returns how many. */
static u32 tops_fill(struct engine *e, const struct request *r,
		     const float *logits, double sum,
		     struct token_logprob *top)
{
	const u32 nr = r->c.logprobs - 1;
	u32 i;

	if (!r->c.logprob_ids)
		return logprob_best(e->sampler, logits, e->info->nr_vocab, sum,
				    nr, top);
	for (i = 0; i < nr; i++) {
		const u32 id = r->c.logprob_ids[i];

		top[i].id = id;
		top[i].logprob = (float)((double)logits[id] - sum);
	}
	return nr;
}

/* Set the logprobs of the tokens drawn from the row for @en. */
static void seq_logprobs(struct engine *e, struct entry *en,
			 const float *logits, struct token_logprob *top)
{
	struct seq *s = en->seq;
	struct request *r = s->req;
	double sum;
	u32 k;

	if (r->c.logprobs == ENGINE_NO_LOGPROBS)
		return;
	/* The draw has found the same error. */
	if (logprob_sum(logits, e->info->nr_vocab, &sum))
		return;
	en->nr_top = tops_fill(e, r, logits, sum, top);
	if (s->sample != ENGINE_NO_SAMPLE) {
		if (en->id >= 0)
			en->lp = drawn_lp(e, logits, sum, (u32)en->id);
		return;
	}
	for (k = 0; k < r->c.n; k++)
		if (r->samples[k].first >= 0)
			r->samples[k].lp = drawn_lp(e, logits, sum,
						    (u32)r->samples[k].first);
}

/**
 * seq_draw() - draw the token after @en, for every sample that it carries
 * @top: [ENGINE_TOP_MAX], gets the likeliest tokens
 */
void seq_draw(struct engine *e, struct entry *en, float *logits,
	      struct token_logprob *top)
{
	const u32 position = en->start + en->nr;
	struct seq *s = en->seq;
	const float *row = adjusted(e, s, logits);
	struct request *r = s->req;
	u32 k;

	if (r->beams) {
		beam_draw(e, s, logits);
		return;
	}
	e->stats.drawn_host += s->sample != ENGINE_NO_SAMPLE ? 1 : r->c.n;
	if (s->sample != ENGINE_NO_SAMPLE) {
		en->id = draw(e, r, s->sample, position, row);
	} else {
		for (k = 0; k < r->c.n; k++)
			r->samples[k].first = draw(e, r, k, position, row);
	}
	seq_logprobs(e, en, logits, top);
}

static bool is_stop(const struct request *r, u32 id)
{
	u32 i;

	for (i = 0; i < r->c.nr_stops; i++)
		if (r->c.stops[i] == id)
			return true;
	return false;
}

/*
 * Give one token to sample @k; @t has all of it but the id.
 * Return: true when the sample goes on.
 */
static bool sample_take(struct engine *e, struct request *r, u32 k, s32 id,
			struct engine_token *t)
{
	struct sample *sm = &r->samples[k];
	struct engine_done why = { .reason = ENGINE_STOP };

	if (sm->over)
		return false;
	if (id < 0) {
		why.reason = ENGINE_ERROR;
		why.err = id;
		why.text = sampler_strerror(id);
	} else if (is_stop(r, (u32)id)) {
		why.stop_id = (u32)id;
	} else {
		t->id = (u32)id;
		if (sm->counts)
			id_counts_add(sm->counts, (u32)id);
		sm->tokens++;
		sm->sum += (double)t->logprob;
		e->stats.generated_tokens++;
		if (r->c.on_token)
			r->c.on_token(r->c.arg, k, t);
		if (sm->over)		/* the callback cancelled it */
			return false;
		if (sm->tokens < r->c.max_new)
			return true;
		why.reason = ENGINE_LENGTH;
	}
	sample_over(e, r, k, &why);
	return false;
}

/* Create the sequence of sample @k, which FORK will open. */
static bool child_prepare(struct engine *e, struct request *r, u32 k)
{
	struct engine_done why = {
		.reason = ENGINE_ERROR, .err = -ENOMEM,
		.text = "no memory for one more sample",
	};
	struct seq *child = seq_create(e, r);

	if (!child) {
		sample_over(e, r, k, &why);
		return false;
	}
	child->sample = k;
	r->samples[k].seq = child;
	return true;
}

/* Deliver the first tokens, and assign the samples to sequences. */
static void deliver_first(struct engine *e, struct seq *s,
			  struct engine_token *t)
{
	struct request *r = s->req;
	u32 k;

	for (k = 0; k < r->c.n; k++) {
		t->logprob = r->samples[k].lp.logprob;
		t->rank = r->samples[k].lp.rank;
		if (!sample_take(e, r, k, r->samples[k].first, t))
			continue;
		if (s->sample == ENGINE_NO_SAMPLE) {
			s->sample = k;
			r->samples[k].seq = s;
			seq_tell(s);
		} else if (child_prepare(e, r, k)) {
			s->to_fork = true;
		}
	}
	if (seq_is_done(s))
		return;
	if (s->sample == ENGINE_NO_SAMPLE)
		s->state = SEQ_OVER;
	else if (!s->to_fork)
		s->ids[s->len++] = (u32)r->samples[s->sample].first;
}

/* seq_deliver() - deliver the token that was drawn; callbacks run here */
void seq_deliver(struct engine *e, struct entry *en,
		 const struct token_logprob *top)
{
	struct engine_token t = {
		.logprob = en->lp.logprob, .rank = en->lp.rank,
		.nr_top = en->nr_top, .top = top,
	};
	struct seq *s = en->seq;

	if (seq_is_done(s))
		return;
	times_token(e, s->req);
	if (s->req->beams)
		beam_deliver(e, s);
	else if (s->sample == ENGINE_NO_SAMPLE)
		deliver_first(e, s, &t);
	else if (sample_take(e, s->req, s->sample, en->id, &t))
		s->ids[s->len++] = (u32)en->id;
	else if (!seq_is_done(s))
		s->state = SEQ_OVER;
}
