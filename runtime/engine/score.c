// SPDX-License-Identifier: Apache-2.0
/*
 * score.c - logprobs of prompt tokens
 *
 * The logits of a position give the logprob of the token after it.  A request
 * that asks for prompt logprobs gets a row of logits for every position of its
 * prompt.  Its chunks are cut so that a step has at most engine.max_scores such
 * rows, which bounds their memory.
 *
 * Cached blocks have no logits, so such a prompt must find none: it is matched
 * under a salt of its own, drawn at random when it is submitted.  After a
 * preemption it finds only blocks that it computed itself, and their positions
 * are scored already.  The request counts the scored positions, so a position
 * is scored once, no matter how often it is computed.
 */
#include "runtime/engine/internal.h"

/* seq_scores() - does its prompt have positions yet to be scored? */
bool seq_scores(const struct seq *s)
{
	const struct request *r = s->req;

	return r->c.prompt_logprobs != ENGINE_NO_LOGPROBS &&
	       r->scored + 1 < r->c.nr;
}

/* entry_want_rows() - how many of its last positions need logits */
void entry_want_rows(struct entry *en)
{
	const struct request *r = en->seq->req;
	const u32 end = en->start + en->nr;
	const u32 from = max(en->start, r->scored);
	const u32 to = min(end, r->c.nr - 1);

	en->rows = en->draws;
	en->nr_scores = 0;
	if (!seq_scores(en->seq) || from >= to)
		return;
	en->rows = end - from;
	en->nr_scores = to - from;
}

/* seq_score() - score prompt tokens with the rows of @en */
void seq_score(struct engine *e, struct entry *en, const float *logits)
{
	const u32 from = en->start + en->nr - en->rows;
	const u32 vocab = e->info->nr_vocab;
	struct seq *s = en->seq;
	struct request *r = s->req;
	struct token_logprob *top;
	struct score *sc;
	double sum;
	u32 i;
	int err;

	en->score = e->nr_scores;
	for (i = 0; i < en->nr_scores; i++, logits += vocab) {
		err = logprob_sum(logits, vocab, &sum);
		if (err) {
			seq_fail(e, s, err, "%s", sampler_strerror(err));
			return;
		}
		top = e->top + (size_t)(e->max_batch + e->nr_scores) *
		      ENGINE_TOP_MAX;
		sc = &e->scores[e->nr_scores++];
		sc->lp = drawn_lp(e, logits, sum, s->ids[from + i + 1]);
		sc->nr_top = logprob_best(e->sampler, logits, vocab, sum,
					  r->c.prompt_logprobs - 1, top);
	}
	r->scored += en->nr_scores;
}

/* seq_deliver_scores() - deliver the scores of @en; callbacks run here */
void seq_deliver_scores(struct engine *e, const struct entry *en)
{
	struct seq *s = en->seq;
	struct request *r = s->req;
	const u32 first = r->scored - en->nr_scores + 1;
	u32 i;

	for (i = 0; i < en->nr_scores && !seq_is_done(s); i++) {
		const struct score *sc = &e->scores[en->score + i];
		const struct engine_token t = {
			.id = s->ids[first + i], .logprob = sc->lp.logprob,
			.rank = sc->lp.rank, .nr_top = sc->nr_top,
			.top = e->top + (size_t)(e->max_batch + en->score + i) *
			       ENGINE_TOP_MAX,
		};

		if (r->c.on_prompt)
			r->c.on_prompt(r->c.arg, first + i, &t);
	}
}
