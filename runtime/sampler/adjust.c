// SPDX-License-Identifier: Apache-2.0
/*
 * adjust.c - edits of logits before a token is drawn
 *
 * Masks set logits to -inf, and no later edit can undo that: biases and
 * penalties leave -inf as it is.  The repetition penalty is that of its paper
 * (CTRL, 2019), of Hugging Face and of vLLM: a logit above 0 is divided, any
 * other is multiplied, once a token, no matter how often prompt and text have
 * it.  Presence and frequency penalties are OpenAI's, over the text alone.
 */
#include <math.h>

#include "runtime/sampler/counts.h"
#include "runtime/sampler/internal.h"

static bool has_repetition(const struct sampling_params *p)
{
	return p->repetition_penalty != 0 && p->repetition_penalty != 1;
}

static bool has_penalties(const struct sampling_params *p)
{
	return has_repetition(p) || p->presence_penalty != 0 ||
	       p->frequency_penalty != 0;
}

bool sampling_counts_prompt(const struct sampling_params *p)
{
	return has_repetition(p);
}

bool sampling_counts(const struct sampling_params *p)
{
	return has_penalties(p);
}

bool sampling_adjusts(const struct sampling_params *p)
{
	return has_penalties(p) || p->min_tokens || p->nr_bias || p->allowed ||
	       p->nr_bad;
}

/* Keep the allowed logits, and put them back into an empty row. */
static void mask_others(struct sampler_ws *ws, const struct sampling_params *p,
			float *logits, u32 vocab)
{
	float *kept = (float *)(void *)ws->cand;
	u32 i;

	for (i = 0; i < p->nr_allowed; i++)
		kept[i] = logits[p->allowed[i]];
	for (i = 0; i < vocab; i++)
		logits[i] = -INFINITY;
	for (i = 0; i < p->nr_allowed; i++)
		logits[p->allowed[i]] = kept[i];
}

/* Receiver of masked ids: a row, or a list. */
struct masks {
	float *logits;
	u32 *ids;
	u32 nr;
};

static void mask(struct masks *m, u32 id)
{
	if (m->logits)
		m->logits[id] = -INFINITY;
	else
		m->ids[m->nr++] = id;
}

/* Mask the last id of each bad sequence whose other ids end the text. */
static void mask_bad(const struct sampling_params *p,
		     const struct sampler_text *t, struct masks *m)
{
	u32 i, len, before;

	for (i = 0; i < p->nr_bad; i += len) {
		len = p->bad[i++];
		before = len - 1;
		if (before > t->nr)
			continue;
		if (before && memcmp(t->ids + t->nr - before, p->bad + i,
				     before * sizeof(*t->ids)))
			continue;
		mask(m, p->bad[i + before]);
	}
}

static void mask_stops(const struct sampler_text *t, u32 vocab,
		       struct masks *m)
{
	u32 i;

	for (i = 0; i < t->nr_stops; i++)
		if (t->stops[i] < vocab)
			mask(m, t->stops[i]);
}

/* Mask bad words, and stop ids that come too early. */
static void mask_all(const struct sampling_params *p,
		     const struct sampler_text *t, u32 vocab, struct masks *m)
{
	mask_bad(p, t, m);
	if (t->nr < p->min_tokens)
		mask_stops(t, vocab, m);
}

u32 sampler_masked(const struct sampling_params *p,
		   const struct sampler_text *so_far, u32 vocab, u32 *out)
{
	struct masks m = { .ids = out };

	mask_all(p, so_far, vocab, &m);
	return m.nr;
}

u32 sampler_masked_max(const struct sampling_params *p,
		       const struct sampler_text *so_far)
{
	/* A bad sequence has a length and at least one id. */
	return p->nr_bad / 2 + (p->min_tokens ? so_far->nr_stops : 0);
}

u32 sampler_counted(const struct sampling_params *p,
		    const struct sampler_text *so_far, struct id_count *out)
{
	const struct id_counts *prompt = has_repetition(p) ? so_far->prompt :
							     NULL;
	const struct id_counts *text = has_penalties(p) ? so_far->text : NULL;
	u32 i, nr = 0;

	for (i = 0; i < id_counts_nr(prompt); i++) {
		const u32 id = prompt->list[i].id;

		out[nr++] = (struct id_count){ id, id_counts_get(text, id) };
	}
	for (i = 0; i < id_counts_nr(text); i++)
		if (!id_counts_get(prompt, text->list[i].id))
			out[nr++] = text->list[i];
	return nr;
}

static void repeat(float *logit, float penalty)
{
	*logit = *logit > 0 ? *logit / penalty : *logit * penalty;
}

static void penalise(const struct sampling_params *p,
		     const struct sampler_text *t, float *logits)
{
	const bool repetition = has_repetition(p);
	u32 i;

	for (i = 0; repetition && i < t->prompt->nr; i++)
		repeat(&logits[t->prompt->list[i].id], p->repetition_penalty);
	for (i = 0; i < t->text->nr; i++) {
		const struct id_count *c = &t->text->list[i];

		if (repetition && !id_counts_get(t->prompt, c->id))
			repeat(&logits[c->id], p->repetition_penalty);
		logits[c->id] -= p->frequency_penalty * (float)c->count;
		logits[c->id] -= p->presence_penalty;
	}
}

void sampler_adjust(struct sampler_ws *ws, const struct sampling_params *p,
		    const struct sampler_text *so_far, float *logits,
		    u32 vocab)
{
	struct masks m = { .logits = logits };
	u32 i;

	if (p->allowed)
		mask_others(ws, p, logits, vocab);
	mask_all(p, so_far, vocab, &m);
	for (i = 0; i < p->nr_bias; i++)
		logits[p->bias[i].id] += p->bias[i].bias;
	if (has_penalties(p))
		penalise(p, so_far, logits);
}
