// SPDX-License-Identifier: Apache-2.0
/*
 * beam.c - beam search over sequences of the daemon
 *
 * search.c chooses, and this file carries the choice out.  The root reads the
 * prompt.  Its logits give every beam its first token, and the other beams are
 * forked from it as samples are.  From then on all beams have the same length
 * and go in rounds:
 *
 *	each beam reads its last token, in whatever step has room for it
 *	its logits become a row of the search; the beam is held
 *	when the last row is there, the search says how every beam goes on
 *	SEQ_REMAP turns beams that end into others	(if any ends)
 *	every beam gets its token and is no longer held
 *
 * A sequence stays in place as long as any beam continues it.  Only a sequence
 * that no beam continues becomes another, and that other one stays in place.
 * So the moves of a round do not depend on each other, and can be carried out
 * one by one.
 *
 * SEQ_REMAP requires that no step is open.  So no step is planned ahead of a
 * beam's logits (sched.c), and REMAP is sent after the answers to the ENDs.  A
 * family alone therefore has one step open at a time, and beside others it
 * takes part in every second step.
 *
 * The family may be preempted at any of these points.  Rows of the search are
 * kept: a held beam is recomputed up to its last token and draws nothing.  A
 * beam that is to become another waits for the move, and no step names it.  If
 * it has to be matched again before the move, it is matched with the ids of the
 * other beam, and needs no REMAP.  The round goes on when no move is left and
 * no ids are being sent.
 *
 * The family ends as a whole: its texts are delivered when the search is over,
 * the n best in order.  A final error of one sequence ends the request.
 */
#include <stdlib.h>

#include "runtime/engine/internal.h"
#include "runtime/engine/search.h"

/**
 * struct beam - one sequence of the family, by its sample
 * @rank: its rank in the search
 * @from: the sample that its sequence is to continue; its own: no move is due
 * @id:   its next token, once the move is done
 */
struct beam {
	u32	rank;
	u32	from;
	u32	id;
};

/**
 * struct beams - the beam search of a request
 * @search: the search
 * @b:      [width] by sample
 * @at:     [width] by rank, the sample of that rank
 * @out:    [max_new] tokens of the text being delivered
 * @nr_in:  rows that are set
 * @err:    error of the sampler for one of the rows
 * @chosen: @from and @id of every beam are yet to be carried out
 * @asked:  entries of the SEQ_REMAP in flight
 */
struct beams {
	struct search		*search;
	struct beam		*b;
	u32			*at;
	struct search_token	*out;
	u32			nr_in;
	s32			err;
	bool			chosen;
	u32			asked;
};

/* ---- the request ---- */

/* beams_check() - is @c a valid beam search?  Return: NULL, or the reason. */
const char *beams_check(const struct engine_request *c)
{
	if (!c->beam_width)
		return c->length_penalty || c->early_stopping ?
			"length_penalty and early_stopping are of beam search" :
			NULL;
	if (c->n > c->beam_width)
		return "beam search gives no more texts than it has beams";
	if (c->sampling.temperature > 0)
		return "beam search takes the likeliest: temperature must be 0";
	if (sampling_adjusts(&c->sampling))
		return "beam search knows no penalties, biases and masks";
	if (c->logprobs > ENGINE_LOGPROBS(0))
		return "beam search tells no other tokens than its texts'";
	if (c->early_stopping >= SEARCH_NR_EARLY)
		return "early_stopping must be 0, 1 or 2";
	if (!(c->length_penalty >= -SEARCH_PENALTY_MAX &&
	      c->length_penalty <= SEARCH_PENALTY_MAX))
		return "length_penalty must be from -10 to 10";
	return NULL;
}

/* beams_create() - set up the beam search of @r.  Return: 0 or -ENOMEM. */
int beams_create(struct request *r)
{
	const struct search_params p = {
		.width = r->width, .max_new = r->c.max_new,
		.stops = r->c.stops, .nr_stops = r->c.nr_stops,
		.penalty = r->c.length_penalty, .early = r->c.early_stopping,
	};
	struct beams *bm = calloc(1, sizeof(*bm));

	if (!bm)
		return -ENOMEM;
	r->beams = bm;
	bm->b = calloc(r->width, sizeof(*bm->b));
	bm->at = calloc(r->width, sizeof(*bm->at));
	bm->out = calloc(r->c.max_new, sizeof(*bm->out));
	if (!bm->b || !bm->at || !bm->out)
		return -ENOMEM;
	return search_create(&p, &bm->search);
}

void beams_free(struct request *r)
{
	struct beams *bm = r->beams;

	if (!bm)
		return;
	search_free(bm->search);
	free(bm->out);
	free(bm->at);
	free(bm->b);
	free(bm);
}

/* beams_over() - end the family, and every sample that is not over */
void beams_over(struct engine *e, struct request *r,
		const struct engine_done *why)
{
	u32 k;

	if (r->root && !seq_is_done(r->root))
		r->root->state = SEQ_OVER;
	for (k = 0; k < r->width; k++) {
		struct seq *s = r->samples[k].seq;

		if (s && !seq_is_done(s))
			s->state = SEQ_OVER;
	}
	for (k = 0; k < r->c.n; k++)
		sample_over(e, r, k, why);
}

/* ---- the texts ---- */

/* Deliver the text in ->out to sample @k. */
static void beams_tell(struct engine *e, struct request *r, u32 k,
		       const struct search_text *text)
{
	struct engine_done why = { .reason = ENGINE_LENGTH };
	struct sample *sm = &r->samples[k];
	u32 i;

	for (i = 0; i < text->nr && !sm->over; i++) {
		const struct search_token *st = &r->beams->out[i];
		struct engine_token t = { .id = st->id };

		if (r->c.logprobs != ENGINE_NO_LOGPROBS) {
			t.logprob = st->logprob;
			t.rank = st->rank;
		}
		sm->tokens++;
		e->stats.generated_tokens++;
		if (r->c.on_token)
			r->c.on_token(r->c.arg, k, &t);
	}
	if (text->stopped) {
		why.reason = ENGINE_STOP;
		why.stop_id = text->stop_id;
	}
	sm->sum = text->sum;
	sample_over(e, r, k, &why);
}

static void beams_finish(struct engine *e, struct request *r)
{
	static const struct engine_done none = {
		.reason = ENGINE_ERROR, .err = -ENODATA,
		.text = "the model allows fewer texts than were asked for: "
			"ask for fewer",
	};
	struct search *search = r->beams->search;
	struct search_text text;
	u32 k;

	for (k = 0; k < r->c.n && k < search_found(search); k++) {
		if (r->samples[k].over)
			continue;
		text = search_text(search, k, r->beams->out);
		beams_tell(e, r, k, &text);
	}
	beams_over(e, r, &none);
}

/* ---- a round ---- */

/* Create the sequence of beam @k, which FORK will open. */
static bool beam_prepare(struct engine *e, struct request *r, u32 k)
{
	struct seq *s = seq_create(e, r);

	if (!s) {
		seq_fail(e, r->root, -ENOMEM, "no memory for one more beam");
		return false;
	}
	s->sample = k;
	r->samples[k].seq = s;
	return true;
}

/* First tokens: the root carries the first beam, the other beams are forked. */
static void beams_begin(struct engine *e, struct seq *root)
{
	struct request *r = root->req;
	const struct search_next *next = search_next(r->beams->search);
	u32 k;

	root->sample = 0;
	r->samples[0].seq = root;
	for (k = 0; k < r->width; k++) {
		r->beams->b[k] = (struct beam){ .rank = k, .from = k };
		r->beams->at[k] = k;
		r->samples[k].first = (s32)next[k].id;
		if (k && !beam_prepare(e, r, k))
			return;
	}
	root->held = false;
	root->to_fork = r->width > 1;
	if (!root->to_fork)
		root->ids[root->len++] = next[0].id;
}

/* Place the next beams: a sequence that no beam continues becomes another. */
static void beams_place(struct request *r)
{
	struct beams *bm = r->beams;
	const struct search_next *next = search_next(bm->search);
	u32 k, free_at = 0;

	for (k = 0; k < r->width; k++)
		bm->b[k].from = ENGINE_NO_SAMPLE;
	/* The best continuation of each sequence stays there. */
	for (k = 0; k < r->width; k++) {
		const u32 at = bm->at[next[k].parent];

		if (bm->b[at].from == ENGINE_NO_SAMPLE)
			bm->b[at] = (struct beam){ k, at, next[k].id };
	}
	for (k = 0; k < r->width; k++) {
		const u32 at = bm->at[next[k].parent];

		if (bm->b[at].rank == k)
			continue;
		while (bm->b[free_at].from != ENGINE_NO_SAMPLE)
			free_at++;
		bm->b[free_at] = (struct beam){ k, at, next[k].id };
	}
	for (k = 0; k < r->width; k++)
		bm->at[bm->b[k].rank] = k;
	bm->chosen = true;
}

/* beam_draw() - set the row of @s from @logits, which follow its last id */
void beam_draw(struct engine *e, struct seq *s, const float *logits)
{
	struct beams *bm = s->req->beams;
	const u32 rank = s->sample == ENGINE_NO_SAMPLE ? 0 :
		bm->b[s->sample].rank;
	int nr = logprob_top(e->sampler, logits, e->info->nr_vocab,
			     search_row_size(bm->search),
			     search_row(bm->search, rank));

	if (nr < 0)
		bm->err = nr;
	else
		search_row_set(bm->search, rank, (u32)nr);
}

/* beam_deliver() - the row of @s is set; callbacks run here */
void beam_deliver(struct engine *e, struct seq *s)
{
	struct request *r = s->req;
	struct beams *bm = r->beams;

	if (bm->err) {
		seq_fail(e, s, bm->err, "%s", sampler_strerror(bm->err));
		return;
	}
	s->held = true;
	if (++bm->nr_in < search_beams(bm->search))
		return;
	bm->nr_in = 0;
	if (search_step(bm->search))
		beams_finish(e, r);
	else if (s->sample == ENGINE_NO_SAMPLE)
		beams_begin(e, s);
	else
		beams_place(r);
}

/* ---- moves ---- */

/* beam_is_leaving() - is @s about to become another beam? */
bool beam_is_leaving(const struct seq *s)
{
	const struct beams *bm = s->req->beams;

	return bm && bm->chosen && bm->b[s->sample].from != s->sample;
}

static struct seq *beam_other(const struct seq *s)
{
	const struct request *r = s->req;

	return r->samples[r->beams->b[s->sample].from].seq;
}

/* Give @s the ids of the beam that it was to become. */
static void beam_become(struct seq *s)
{
	const struct request *r = s->req;

	memcpy(s->ids + r->c.nr, beam_other(s)->ids + r->c.nr,
	       (s->len - r->c.nr) * sizeof(u32));
	r->beams->b[s->sample].from = s->sample;
}

/* beam_rematch() - all ids of @s are about to be sent: send its new ones */
void beam_rematch(struct seq *s)
{
	if (beam_is_leaving(s))
		beam_become(s);
}

/* May REMAP name @s? */
static bool beam_may_move(struct engine *e, struct seq *s)
{
	return s->state == SEQ_RUNNING && !s->replies && !s->nr_open &&
		seq_is_resident(e, s);
}

/* How many moves are left; @wait is set when one of them cannot be made yet. */
static u32 beams_moves(struct engine *e, struct request *r, bool *wait)
{
	u32 k, nr = 0;

	*wait = false;
	for (k = 0; k < r->width; k++) {
		struct seq *s = r->samples[k].seq, *o;

		if (!beam_is_leaving(s))
			continue;
		nr++;
		o = beam_other(s);
		*wait |= !beam_may_move(e, s) || !beam_may_move(e, o) ||
			o->computed != o->len;
	}
	return nr;
}

/* All moves are made: begin the next round. */
static void beams_go_on(struct request *r)
{
	u32 k;

	for (k = 0; k < r->width; k++)
		if (r->samples[k].seq->state == SEQ_MATCHING)
			return;		/* its match is being sent */
	r->beams->chosen = false;
	for (k = 0; k < r->width; k++) {
		struct seq *s = r->samples[k].seq;

		s->ids[s->len++] = r->beams->b[k].id;
		s->held = false;
	}
}

/* beams_advance() - make the moves of the round that are possible now */
void beams_advance(struct engine *e, struct request *r)
{
	struct beams *bm = r->beams;
	bool wait;
	u32 nr;

	if (!bm->chosen || bm->asked)
		return;
	nr = beams_moves(e, r, &wait);
	if (!nr)
		beams_go_on(r);
	else if (!wait)
		bm->asked = link_remap(e, r, nr);
}

/**
 * beams_fill() - list the moves that are left as entries of a SEQ_REMAP
 * @a: gets at most @nr entries; their sequences then have one more reply due
 */
void beams_fill(struct request *r, struct kvmm_remap_arg *a, u32 nr)
{
	u32 k;

	for (k = 0; k < r->width && nr; k++) {
		struct seq *s = r->samples[k].seq;

		if (!beam_is_leaving(s))
			continue;
		a->child = s->handle;
		a->other = beam_other(s)->handle;
		s->replies++;
		beam_other(s)->replies++;
		a++;
		nr--;
	}
}

static void beam_moved(struct engine *e, struct seq *s, int status, u32 valid)
{
	struct seq *o = beam_other(s);

	if (!status) {
		e->stats.remaps++;
		s->computed = o->computed;
		s->planned = o->computed;
		s->high = max(s->high, o->high);
		beam_become(s);
		/*
		 * The other was shorter than assumed: its status record
		 * decides.
		 */
		if (valid != s->computed)
			seq_lose(e, s);
		return;
	}
	/* The sequence may be preempted; one that is resident is retried. */
	if (fork_may_retry(e, s->req, status)) {
		e->throttle |= seq_is_resident(e, s) && seq_is_resident(e, o);
		return;
	}
	seq_refused(e, s, status);
}

/* beams_moved() - handle the answer to SEQ_REMAP */
void beams_moved(struct engine *e, struct request *r,
		 const struct kvmm_done *done)
{
	const struct kvmm_seq_res *res = done->results;
	u32 k, i = 0, nr = r->beams->asked;

	r->beams->asked = 0;
	for (k = 0; k < r->width && i < nr; k++) {
		struct seq *s = r->samples[k].seq;
		int status = done->status;

		if (!beam_is_leaving(s))
			continue;
		s->replies--;
		beam_other(s)->replies--;
		if (!status)
			status = i < done->nr ? res[i].status : -EPROTO;
		if (!seq_is_done(s))
			beam_moved(e, s, status, status ? 0 : res[i].valid_len);
		i++;
	}
}
