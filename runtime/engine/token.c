// SPDX-License-Identifier: Apache-2.0
/*
 * token.c - tokens that were drawn
 *
 * Drawing and delivering are apart: tokens are drawn right after the forward,
 * then the step is ended, then callbacks run.  So the daemon gets its blocks
 * back no later because somebody above is slow.
 *
 * The first token is special.  The logits of a prompt's last position serve
 * all n samples: each draws its own from them, by its own random numbers,
 * before any child exists.  Samples whose first token ends them never become
 * sequences; the root goes on as the first of the rest, and the others wait
 * for SEQ_FORK with their token in hand.
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

/* seq_draw() - choose what follows @en, for every sample that it carries */
void seq_draw(struct engine *e, struct entry *en, const float *logits)
{
	const u32 position = en->start + en->nr;
	struct seq *s = en->seq;
	struct request *r = s->req;
	u32 k;

	if (s->sample != ENGINE_NO_SAMPLE) {
		en->id = draw(e, r, s->sample, position, logits);
		return;
	}
	for (k = 0; k < r->c.n; k++)
		r->samples[k].first = draw(e, r, k, position, logits);
}

static bool is_stop(const struct request *r, u32 id)
{
	u32 i;

	for (i = 0; i < r->c.nr_stops; i++)
		if (r->c.stops[i] == id)
			return true;
	return false;
}

/* Give one token to sample @k.  Return: true when it goes on after it. */
static bool sample_take(struct engine *e, struct request *r, u32 k, s32 id)
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
		sm->tokens++;
		e->stats.generated_tokens++;
		if (r->c.on_token)
			r->c.on_token(r->c.arg, k, (u32)id);
		if (sm->over)		/* cancelled by the callback */
			return false;
		if (sm->tokens < r->c.max_new)
			return true;
		why.reason = ENGINE_LENGTH;
	}
	sample_over(e, r, k, &why);
	return false;
}

/* The sequence that sample @k will have, once FORK has made it. */
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

/* Hand out the first tokens, and the samples to sequences. */
static void deliver_first(struct engine *e, struct seq *s)
{
	struct request *r = s->req;
	u32 k;

	for (k = 0; k < r->c.n; k++) {
		if (!sample_take(e, r, k, r->samples[k].first))
			continue;
		if (s->sample == ENGINE_NO_SAMPLE) {
			s->sample = k;
			r->samples[k].seq = s;
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

/* seq_deliver() - hand out what seq_draw() chose; callbacks run here */
void seq_deliver(struct engine *e, struct entry *en)
{
	struct seq *s = en->seq;

	if (seq_is_done(s))
		return;
	if (s->sample == ENGINE_NO_SAMPLE)
		deliver_first(e, s);
	else if (sample_take(e, s->req, s->sample, en->id))
		s->ids[s->len++] = (u32)en->id;
	else if (!seq_is_done(s))
		s->state = SEQ_OVER;
}
