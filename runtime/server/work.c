// SPDX-License-Identifier: Apache-2.0
/*
 * work.c - what is asked of a backend, from post to release
 *
 *	owner				backend
 *	work_post -> @in		engine_submit, or refuse
 *	reads ids <- @out		a token, the end of a sample
 *	@unwanted, @cancel -> @in	engine_cancel...
 *	reads ends <- @done		every sample is over
 *	@bye ->				@release frees it
 *
 * All of a work is freed by the backend's thread, in the handler of @bye, so
 * what runs on that thread may touch it until it returns to its loop.
 *
 * Tokens lie in arrays as long as the longest answer, made with the work, so
 * the engine's thread never waits for a reader and never allocates; untouched
 * pages cost nothing.  Mails only say "look"; their handlers find out.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/server/backend.h"
#include "runtime/server/worker.h"

static void sample_end(struct work *w, struct work_sample *s)
{
	/* Pairs with the acquire loads of the owner. */
	store_release(&s->over, 1);
	mailbox_post(w->to, --w->left ? &w->out : &w->done);
}

static void on_token(void *arg, u32 sample, u32 id)
{
	struct work_prompt *q = arg;
	struct work_sample *s = &q->samples[sample];

	s->ids[s->nr] = id;
	/* Pairs with the acquire loads of the owner. */
	store_release(&s->nr, s->nr + 1);
	mailbox_post(q->work->to, &q->work->out);
}

static void on_done(void *arg, const struct engine_done *done)
{
	struct work_prompt *q = arg;
	struct work_sample *s = &q->samples[done->sample];

	s->reason = done->reason;
	s->stop_id = done->stop_id;
	s->err = done->err;
	s->cached = done->cached_tokens;
	if (done->reason == ENGINE_ERROR && !*q->work->why)
		snprintf(q->work->why, sizeof(q->work->why), "%s", done->text);
	sample_end(q->work, s);
}

/* End what the engine does not have. */
static void prompt_over(struct work_prompt *q, enum engine_reason reason,
			int err)
{
	u32 k;

	for (k = 0; k < q->work->req.n; k++) {
		q->samples[k].reason = reason;
		q->samples[k].err = err;
		sample_end(q->work, &q->samples[k]);
	}
}

static int prompt_begin(struct work_prompt *q, struct engine *e,
			const char *why)
{
	struct engine_error text = { "" };
	struct work *w = q->work;
	int err;

	if (load_acquire(&w->cancel))
		return -ECANCELED;
	if (!e) {
		snprintf(w->why, sizeof(w->why), "%s", why);
		return -ECONNRESET;
	}
	w->req.ids = q->ids;
	w->req.nr = q->nr;
	w->req.arg = q;
	err = engine_submit(e, &w->req, &q->id, &text);
	if (err)
		snprintf(w->why, sizeof(w->why), "%s", text.text);
	return err;
}

/* All prompts or none: those before the first refused one are cancelled. */
static void work_begin(struct work *w, struct engine *e, const char *why)
{
	int err = 0;
	u32 i;

	w->begun = true;
	for (i = 0; i < w->nr_prompts; i++) {
		if (!err)
			err = prompt_begin(&w->prompts[i], e, why);
		if (err)
			prompt_over(&w->prompts[i], err == -ECANCELED ?
				    ENGINE_CANCELLED : ENGINE_ERROR, err);
	}
	w->refused = err != 0;
}

static void sample_prune(struct work_prompt *q, struct engine *e, u32 k)
{
	struct work_sample *s = &q->samples[k];

	if (s->ended || !load_acquire(&s->unwanted))
		return;
	s->ended = true;
	if (!s->over)
		engine_cancel_sample(e, q->id, k);
}

/* End what nobody wants any more. */
static void work_prune(struct work *w, struct engine *e)
{
	const bool all = w->refused || load_acquire(&w->cancel);
	u32 i, k;

	for (i = 0; i < w->nr_prompts; i++) {
		struct work_prompt *q = &w->prompts[i];

		if (!q->id)
			continue;
		if (all)
			engine_cancel(e, q->id);
		for (k = 0; !all && k < w->req.n; k++)
			sample_prune(q, e, k);
	}
}

void work_run(struct work *w, struct engine *e, const char *why)
{
	if (!w->begun)
		work_begin(w, e, why);
	if (w->left && e)
		work_prune(w, e);
}

static void on_in(struct mail *m)
{
	struct work *w = container_of(m, struct work, in);

	backend_take(w->b, w);
}

static void on_bye(struct mail *m)
{
	struct work *w = container_of(m, struct work, bye);

	w->release(w);
}

int work_init(struct work *w)
{
	const u32 n = w->req.n;
	u32 i, k;

	w->in.fn = on_in;
	w->bye.fn = on_bye;
	w->req.on_token = on_token;
	w->req.on_done = on_done;
	w->left = w->nr_prompts * n;
	for (i = 0; i < w->nr_prompts; i++) {
		struct work_prompt *q = &w->prompts[i];

		q->work = w;
		q->samples = calloc(n, sizeof(*q->samples));
		if (!q->samples)
			return -ENOMEM;
		for (k = 0; k < n; k++) {
			q->samples[k].ids = calloc(w->req.max_new, sizeof(u32));
			if (!q->samples[k].ids)
				return -ENOMEM;
		}
	}
	return 0;
}

void work_free(struct work *w)
{
	u32 i, k;

	for (i = 0; w->prompts && i < w->nr_prompts; i++) {
		struct work_prompt *q = &w->prompts[i];

		for (k = 0; q->samples && k < w->req.n; k++)
			free(q->samples[k].ids);
		free(q->samples);
	}
	free(w->prompts);
	w->prompts = NULL;
}

void work_post(struct work *w)
{
	mailbox_post(&w->b->inbox, &w->in);
}
