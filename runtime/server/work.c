// SPDX-License-Identifier: Apache-2.0
/*
 * work.c - a request to a backend, from post to release
 *
 *	owner				backend
 *	work_post -> @in		engine_submit, or refuse
 *	reads ids <- @out		a token, the end of a sample
 *	@unwanted, @cancel -> @in	engine_cancel...
 *	reads ends <- @done		every sample is over
 *	@bye ->				@release frees it
 *
 * The handler of @bye frees the whole work on the backend's thread, so code
 * that runs on that thread may use the work until it returns to its loop.
 *
 * Tokens are stored in arrays as long as the longest answer, allocated with the
 * work, so the engine's thread never waits for a reader and never allocates.  A
 * request may ask for many tokens and get few.  So all arrays are one piece of
 * memory that is mapped for this work alone: untouched pages cost nothing,
 * unlike used pages that calloc() returns.  Mails only say "look"; their
 * handlers find out what changed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/server/backend.h"
#include "runtime/server/worker.h"

#define WORK_ROOM_SMALL	65536u	/* smaller sizes are not worth a mapping */

/* ---- its session ---- */

static void on_noted(struct session_job *job)
{
	struct work *w = container_of(job, struct work, session);

	backend_post(w->b, w->to, &w->done);
}

/* Tokens of prompt and answer that have KV, whole blocks. */
static u32 tokens_cached(const struct work *w, const struct work_sample *s)
{
	const u32 bt = w->b->hit_tokens;
	/* The last token is read only if another was drawn after it. */
	const u32 nr = w->prompts->nr + s->nr - (s->nr && s->reason != ENGINE_STOP);

	return nr - nr % bt;
}

/*
 * Remember the ids of a request for its session.  One that failed or was cancelled
 * leaves the session as it was.
 * Return: whether on_noted() will post @done.
 */
static bool work_note(struct work *w, const struct work_sample *s)
{
	const struct work_prompt *q = w->prompts;
	struct session_job *job = &w->session;
	u32 nr;

	if (!*job->name || s->reason >= ENGINE_TIMEOUT ||
	    (s->reason == ENGINE_CANCELLED && !s->ended))
		return false;
	nr = tokens_cached(w, s);
	job->ids = malloc(max(nr, 1u) * sizeof(u32));
	if (!job->ids)
		return false;
	job->nr = nr;
	memcpy(job->ids, q->ids, min(nr, q->nr) * sizeof(u32));
	if (nr > q->nr)
		memcpy(job->ids + q->nr, s->ids, (nr - q->nr) * sizeof(u32));
	job->done = on_noted;
	/* The text need not wait; and no mail may follow @done. */
	backend_post(w->b, w->to, &w->out);
	session_do(&w->b->sessions, job);
	return true;
}

static void sample_end(struct work *w, struct work_sample *s)
{
	/* Pairs with the acquire loads of the owner. */
	store_release(&s->over, 1);
	if (--w->left)
		backend_post(w->b, w->to, &w->out);
	else if (!work_note(w, s))
		backend_post(w->b, w->to, &w->done);
}

/* Store the logprobs of the token at @i, if they are wanted. */
static void tops_take(struct work_tops *tops, u32 i,
		      const struct engine_token *t)
{
	if (!tops->told)
		return;
	tops->told[i] = (struct work_told){
		.logprob = t->logprob, .rank = t->rank,
		.nr_top = min(t->nr_top, tops->k),
	};
	if (tops->k)
		memcpy(tops->top + (size_t)i * tops->k, t->top,
		       tops->told[i].nr_top * sizeof(*t->top));
}

static void on_prompt(void *arg, u32 position, const struct engine_token *t)
{
	struct work_prompt *q = arg;

	/* Published with the first token, or the end, of a sample. */
	tops_take(&q->tops, position, t);
}

/* Tokens of a sample in the pool; samples share their prompt, which the first one counts. */
static u64 kv_tokens(const struct work_prompt *q, u32 sample)
{
	const u32 nr = q->samples[sample].nr;

	return nr ? nr + (sample ? 0 : q->nr) : 0;
}

static void on_token(void *arg, u32 sample, const struct engine_token *t)
{
	struct work_prompt *q = arg;
	struct work_sample *s = &q->samples[sample];

	q->work->b->kv_tokens += s->nr || sample ? 1 : 1 + q->nr;
	s->ids[s->nr] = t->id;
	tops_take(&s->tops, s->nr, t);
	/* Pairs with the acquire loads of the owner. */
	store_release(&s->nr, s->nr + 1);
	backend_post(q->work->b, q->work->to, &q->work->out);
}

static void on_seq(void *arg, u32 sample, u64 seq)
{
	struct work_prompt *q = arg;

	store_release(&q->samples[sample].seq, (u64)(u32)seq + 1);
}

static void on_done(void *arg, const struct engine_done *done)
{
	struct work_prompt *q = arg;
	struct work_sample *s = &q->samples[done->sample];

	q->work->b->kv_tokens -= kv_tokens(q, done->sample);
	s->reason = done->reason;
	s->stop_id = done->stop_id;
	s->err = done->err;
	s->cached = done->cached_tokens;
	q->times = done->times;
	if (done->reason >= ENGINE_TIMEOUT && !*q->work->why)
		snprintf(q->work->why, sizeof(q->work->why), "%s", done->text);
	sample_end(q->work, s);
}

/* End the samples of a prompt that the engine does not have. */
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

/*
 * Submit all prompts or none: after a refusal work_prune() cancels the others.
 */
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

/* End samples that the owner does not want any more. */
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

/* ---- memory ---- */

/* Take a piece of ->room; while there is none, only add up the sizes. */
static void *room_take(struct work *w, size_t *at, size_t size)
{
	void *p = w->room ? (char *)w->room + *at : NULL;

	*at += size;
	return p;
}

/* Place the logprobs of @nr tokens, if @wanted asks for them. */
static void tops_place(struct work *w, struct work_tops *tops, u32 wanted,
		       u32 nr, size_t *at)
{
	if (wanted == ENGINE_NO_LOGPROBS)
		return;
	tops->k = wanted - 1;
	tops->told = room_take(w, at, (size_t)nr * sizeof(*tops->told));
	if (tops->k)
		tops->top = room_take(w, at, (size_t)nr * tops->k *
				      sizeof(*tops->top));
}

/* Give all arrays their places.  Return: their size in bytes. */
static size_t work_place(struct work *w)
{
	const u32 most = w->req.max_new;
	size_t at = 0;
	u32 i, k;

	for (i = 0; i < w->nr_prompts; i++) {
		struct work_prompt *q = &w->prompts[i];

		tops_place(w, &q->tops, w->req.prompt_logprobs, q->nr, &at);
		for (k = 0; k < w->req.n; k++) {
			struct work_sample *s = &q->samples[k];

			s->ids = room_take(w, &at, (size_t)most * sizeof(u32));
			tops_place(w, &s->tops, w->req.logprobs, most, &at);
		}
	}
	return at;
}

static int room_make(struct work *w)
{
	const size_t size = work_place(w);
	void *p;

	if (size <= WORK_ROOM_SMALL) {
		w->room = calloc(1, size);
	} else {
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			 MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		w->room = p == MAP_FAILED ? NULL : p;
	}
	if (!w->room)
		return -ENOMEM;
	/* With huge pages the first token would pay for a whole one. */
	if (size > WORK_ROOM_SMALL)
		madvise(w->room, size, MADV_NOHUGEPAGE);
	w->room_size = size;
	work_place(w);
	return 0;
}

static void room_free(struct work *w)
{
	if (w->room_size > WORK_ROOM_SMALL)
		munmap(w->room, w->room_size);
	else
		free(w->room);
	w->room = NULL;
	w->room_size = 0;
}

int work_init(struct work *w)
{
	u32 i;

	w->in.fn = on_in;
	w->bye.fn = on_bye;
	w->req.on_prompt = on_prompt;
	w->req.on_seq = on_seq;
	w->req.on_token = on_token;
	w->req.on_done = on_done;
	w->left = w->nr_prompts * w->req.n;
	for (i = 0; i < w->nr_prompts; i++) {
		struct work_prompt *q = &w->prompts[i];

		q->work = w;
		q->samples = calloc(w->req.n, sizeof(*q->samples));
		if (!q->samples)
			return -ENOMEM;
	}
	return room_make(w);
}

void work_free(struct work *w)
{
	u32 i;

	for (i = 0; w->prompts && i < w->nr_prompts; i++)
		free(w->prompts[i].samples);
	room_free(w);
	free(w->prompts);
	w->prompts = NULL;
}

void work_post(struct work *w)
{
	mailbox_post(&w->b->inbox, &w->in);
}
