// SPDX-License-Identifier: Apache-2.0
/*
 * draw.c - draws on the device
 *
 * A model on a device can draw there (info.draws): then a step brings ids to
 * the host and no logits.  Before the forward every entry that will draw is
 * looked at: can the device do all that its request needs?  If so the request's
 * parameters and lists go with the batch.  If not, the row is copied to the
 * host and seq_draw() draws from it.  The device leaves to the host:
 *
 *	beam search, which wants the likeliest continuations of all beams
 *	logprobs of ids that the request names
 *	rows that score tokens of a prompt (score.c): they are copied to the host,
 *	but the token after the prompt is still drawn on the device
 *
 * Both draw the same token from the same logits (kernels/weight.h), so a result
 * does not depend on the place of the draw.
 *
 * The device edits logits, too.  Lists describe the edits: masked ids, biases,
 * counts.  They are made for every draw from prompt and text, as
 * sampler_adjust() makes its own.
 */
#include <stdlib.h>

#include "runtime/engine/internal.h"

_Static_assert(ENGINE_TOP_MAX <= KERN_TOP_MAX,
	       "the likeliest tokens that a request may want");

/* Tokens to draw from the last row of @en. */
static u32 entry_tokens(const struct entry *en)
{
	return en->seq->sample == ENGINE_NO_SAMPLE ? en->seq->req->c.n : 1;
}

static bool drawn_there(const struct engine *e, const struct entry *en)
{
	const struct request *r = en->seq->req;

	return e->info->draws && en->draws && !r->beams && !r->c.logprob_ids;
}

/* Most words that the lists of @en can take. */
static u64 lists_max(const struct entry *en)
{
	const struct request *r = en->seq->req;
	const struct sampler_text t = seq_so_far(en->seq);

	if (!r->adjusts)
		return 0;
	return sampler_masked_max(&r->c.sampling, &t) +
	       2ull * r->c.sampling.nr_bias +
	       2ull * (id_counts_nr(t.prompt) + id_counts_nr(t.text));
}

/* Make room for the lists of all draws of @st. */
static bool lists_room(struct engine *e, const struct step *st)
{
	struct draws *d = &e->draws;
	u64 words = 0;
	u32 *lists, i;

	for (i = 0; i < st->nr; i++)
		if (st->entries[i].runs && drawn_there(e, &st->entries[i]))
			words += lists_max(&st->entries[i]);
	d->nr_words = 0;
	if (words <= d->max_words)
		return true;
	lists = realloc(d->lists, 2 * words * sizeof(*lists));
	if (!lists)
		return false;
	d->lists = lists;
	d->max_words = 2 * words;
	return true;
}

/* List the edits of the row before the draw. */
static void lists_fill(struct engine *e, const struct seq *s,
		       struct kern_draw *to)
{
	const struct sampling_params *p = &s->req->c.sampling;
	const struct sampler_text t = seq_so_far(s);
	struct draws *d = &e->draws;
	struct kern_bias *bias;
	u32 i;

	to->nr_allowed = p->nr_allowed;
	to->allowed = p->allowed;
	to->masked = d->lists + d->nr_words;
	to->nr_masked = sampler_masked(p, &t, e->info->nr_vocab,
				       d->lists + d->nr_words);
	d->nr_words += to->nr_masked;
	bias = (void *)(d->lists + d->nr_words);
	for (i = 0; i < p->nr_bias; i++)
		bias[i] = (struct kern_bias){ p->bias[i].id, p->bias[i].bias };
	to->biases = bias;
	to->nr_biases = p->nr_bias;
	d->nr_words += 2 * p->nr_bias;
	to->counts = (void *)(d->lists + d->nr_words);
	to->nr_counts = sampler_counted(p, &t,
					(void *)(d->lists + d->nr_words));
	d->nr_words += 2 * to->nr_counts;
}

/* Add all draws from @row, the last row of @en. */
static void entry_add(struct engine *e, struct entry *en, u32 row)
{
	const struct request *r = en->seq->req;
	const struct sampling_params *p = &r->c.sampling;
	const u32 nr = entry_tokens(en);
	const bool first = en->seq->sample == ENGINE_NO_SAMPLE;
	struct draws *d = &e->draws;
	struct kern_draw draw = {
		.seed = p->seed, .position = en->start + en->nr, .row = row,
		.temperature = p->temperature, .top_p = p->top_p,
		.min_p = p->min_p, .top_k = p->top_k,
		.repetition = p->repetition_penalty,
		.presence = p->presence_penalty,
		.frequency = p->frequency_penalty,
		.logprobs = r->c.logprobs != ENGINE_NO_LOGPROBS,
	};
	u32 k;

	if (r->adjusts)
		lists_fill(e, en->seq, &draw);
	en->draw = d->nr;
	for (k = 0; k < nr; k++) {
		draw.sample = first ? k : en->seq->sample;
		draw.nr_top = draw.logprobs && !k ? r->c.logprobs - 1 : 0;
		d->top_stride = max(d->top_stride, draw.nr_top);
		d->draw[d->nr++] = draw;
	}
}

/**
 * draws_plan() - decide which draws of @st the model does, and which rows
 * travel
 *
 * Call it after entry_want_rows().  Sets @draw of the entries that run.
 *
 * Return: the argument for model_forward_draw(); NULL: the host does all draws.
 */
const struct model_draws *draws_plan(struct engine *e, struct step *st)
{
	const bool room = lists_room(e, st);
	struct draws *d = &e->draws;
	u32 i, row = 0;

	d->nr = 0;
	d->top_stride = 0;
	for (i = 0; i < st->nr; i++) {
		struct entry *en = &st->entries[i];

		en->draw = ENGINE_NO_DRAW;
		if (!en->runs || !en->rows)
			continue;
		memset(d->travels + row, 1, en->rows);
		row += en->rows;
		if (!room || !drawn_there(e, en) ||
		    d->nr + entry_tokens(en) > d->max)
			continue;
		d->travels[row - 1] = 0;
		entry_add(e, en, row - 1);
	}
	d->asked = (struct model_draws){
		.draws = d->draw, .nr = d->nr, .drawn = d->drawn,
		.top = d->top, .top_stride = d->top_stride,
		.travels = d->travels,
	};
	return d->nr ? &d->asked : NULL;
}

/**
 * draws_take() - take the tokens that the model drew for @en
 * @top: [ENGINE_TOP_MAX], gets the likeliest tokens
 */
void draws_take(struct engine *e, struct entry *en, struct token_logprob *top)
{
	const struct draws *d = &e->draws;
	const struct kern_drawn *got = d->drawn + en->draw;
	const struct kern_top *likely = d->top +
					(size_t)en->draw * d->top_stride;
	const u32 nr = entry_tokens(en);
	struct request *r = en->seq->req;
	u32 k;

	e->stats.drawn_device += nr;
	en->nr_top = got->nr_top;
	for (k = 0; k < en->nr_top; k++)
		top[k] = (struct token_logprob){ likely[k].id,
						 likely[k].logprob };
	if (en->seq->sample != ENGINE_NO_SAMPLE) {
		en->id = got->id;
		en->lp = (struct drawn){ got->logprob, got->rank };
		return;
	}
	for (k = 0; k < nr; k++) {
		r->samples[k].first = got[k].id;
		r->samples[k].lp = (struct drawn){ got[k].logprob,
						   got[k].rank };
	}
}

/**
 * draws_create() - allocate the arrays of a step's draws, and its logits
 * @rows: rows of logits
 *
 * The device writes into one piece of pinned memory, if it has any.
 *
 * Return: 0 or -ENOMEM; call draws_free() in both cases.
 */
int draws_create(struct engine *e, size_t rows)
{
	const size_t logits = rows * e->info->nr_vocab * sizeof(*e->logits);
	struct draws *d = &e->draws;
	size_t drawn, top;

	d->max = e->info->draws ? e->max_seqs : 0;
	drawn = ALIGN_UP(d->max * sizeof(*d->drawn), (size_t)64);
	top = d->max * ENGINE_TOP_MAX * sizeof(*d->top);
	d->draw = calloc(d->max + 1, sizeof(*d->draw));
	d->travels = calloc(rows, sizeof(*d->travels));
	d->landing = model_host_alloc(e->model, drawn + top + logits);
	d->pinned = d->landing;
	if (!d->pinned)
		d->landing = malloc(drawn + top + logits);
	if (!d->draw || !d->travels || !d->landing)
		return -ENOMEM;
	d->drawn = (void *)d->landing;
	d->top = (void *)(d->landing + drawn);
	e->logits = (void *)(d->landing + drawn + top);
	return 0;
}

void draws_free(struct engine *e)
{
	struct draws *d = &e->draws;

	if (d->pinned)
		model_host_free(e->model, d->landing);
	else
		free(d->landing);
	free(d->travels);
	free(d->draw);
	free(d->lists);
}
