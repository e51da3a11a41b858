/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_fixture.h - requests, their results, and the expected results
 *
 * The daemon (engine_fake_kvmm.h) executes late, refuses and preempts at random
 * and checks the client's side of the ABI; the model (engine_fake_model.h)
 * makes logits from the values that it reads through the blocks.  Every sample must equal
 * the result of fm_oracle() and the real sampler without any paging.
 */
#ifndef ENGINE_FIXTURE_H
#define ENGINE_FIXTURE_H

#include <check.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/engine/engine.h"
#include "runtime/sampler/adjust.h"
#include "tests/unit/engine_fake_adapters.h"
#include "tests/unit/engine_fake_model.h"

#define MAX_REQ		16u
#define MAX_N		5u
#define STOP_ID		7u

struct got {
	u32			ids[FM_CONTEXT];
	double			logprob;	/* sum */
	u32			nr;
	u32			dones;
	struct engine_done	done;
	char			text[512];
};

struct ask {
	struct engine_request	c;
	u32			ids[FM_CONTEXT];
	u64			id;
	u32			cancel_after;	/* tokens; 0: never */
	u32			cancel_sample;	/* count tokens of this sample */
	bool			cancelled;
	u32			scored;		/* prompt tokens that were reported */
	struct got		got[MAX_N];
};

static struct model model;
static struct engine *engine;
static struct ask asks[MAX_REQ];
static u32 order[MAX_REQ * MAX_N], nr_order;
static const u32 stop_id = STOP_ID;

/*
 * Check the report of the token after the @nr_all ids @all.  @wanted: the
 * requested logprobs; for the tokens @ids if not NULL.
 */
static void check_token(const u32 *all, u32 nr_all, u32 wanted, const u32 *ids,
			const struct engine_token *t)
{
	struct token_logprob one, top[FM_VOCAB];
	float logits[FM_VOCAB];
	struct sampler_ws *ws;
	u32 rank, nr;

	if (wanted == ENGINE_NO_LOGPROBS) {
		ck_assert(t->logprob == 0 && !t->rank && !t->nr_top);
		return;
	}
	fm_oracle(all, nr_all, logits);
	ck_assert_int_eq(sampler_ws_create(FM_VOCAB, &ws), 0);
	ck_assert_int_eq(logprob_of(ws, logits, FM_VOCAB, t->id, &one, &rank),
			 0);
	nr = (u32)logprob_top(ws, logits, FM_VOCAB, wanted - 1, top);
	for (nr = ids ? 0 : nr; ids && nr < wanted - 1; nr++)
		ck_assert_int_eq(logprob_of(ws, logits, FM_VOCAB, ids[nr],
					    &top[nr], NULL), 0);
	ck_assert(t->logprob == one.logprob && t->rank == rank);
	ck_assert_uint_eq(t->nr_top, nr);
	ck_assert(!nr || !memcmp(t->top, top, nr * sizeof(*top)));
	sampler_ws_free(ws);
}

static void on_prompt(void *arg, u32 position, const struct engine_token *t)
{
	struct ask *a = arg;
	u32 k;

	ck_assert(a->c.prompt_logprobs != ENGINE_NO_LOGPROBS);
	ck_assert_uint_eq(position, ++a->scored);
	ck_assert_uint_lt(position, a->c.nr);
	for (k = 0; k < MAX_N; k++)
		ck_assert_uint_eq(a->got[k].nr + a->got[k].dones, 0);
	ck_assert_uint_eq(t->id, a->ids[position]);
	check_token(a->ids, position, a->c.prompt_logprobs, NULL, t);
}

/* After its on_done the caller may have freed the sample. */
static void on_seq(void *arg, u32 sample, u64 seq)
{
	struct ask *a = arg;

	(void)seq;
	ck_assert_uint_lt(sample, max(a->c.n, 1u));
	ck_assert_uint_eq(a->got[sample].dones, 0);
}

static void on_token(void *arg, u32 sample, const struct engine_token *t)
{
	struct ask *a = arg;
	struct got *g = &a->got[sample];
	u32 all[2 * FM_CONTEXT];

	ck_assert_uint_eq(g->dones, 0);
	ck_assert_uint_lt(g->nr, FM_CONTEXT);
	ck_assert_uint_eq(a->scored, a->c.prompt_logprobs ? a->c.nr - 1 : 0);
	memcpy(all, a->ids, a->c.nr * sizeof(*all));
	memcpy(all + a->c.nr, g->ids, g->nr * sizeof(*all));
	check_token(all, a->c.nr + g->nr, a->c.logprobs, a->c.logprob_ids, t);
	g->logprob += (double)t->logprob;
	g->ids[g->nr++] = t->id;
	if (g->nr == a->cancel_after && sample == a->cancel_sample)
		ck_assert_int_eq(engine_cancel(engine, a->id), 0);
}

static void on_done(void *arg, const struct engine_done *done)
{
	struct ask *a = arg;
	struct got *g = &a->got[done->sample];

	g->dones++;
	g->done = *done;
	snprintf(g->text, sizeof(g->text), "%s", done->text);
	ck_assert_uint_eq(done->tokens, g->nr);
	if (!a->c.beam_width)
		ck_assert(done->logprob == g->logprob);
	order[nr_order++] = (u32)(a - asks);
}

static void setup(void)
{
	memset(&fk, 0, sizeof(fk));
	memset(asks, 0, sizeof(asks));
	nr_order = 0;
	engine = NULL;
	fk.nr_blocks = 128;
	fk.max_steps = 2;
	fk.lease_ms = 600000;
	fk.lease_most = FK_TABLE;
	fk.seed = 12345;
	fm_init(&model, 64);
}

static void teardown(void)
{
	engine_destroy(engine);
}

static void start(const struct engine_opts *o)
{
	struct engine_opts opts = { 0 };
	struct engine_error err;

	if (o)
		opts = *o;
	opts.block_tokens = FK_BT;
	ck_assert_int_eq(engine_create(&model, &opts, &engine, &err), 0);
}

/* A request for @n greedy samples after @nr ids that begin at @from. */
static struct ask *ask(u32 i, u32 from, u32 nr, u32 max_new, u32 n)
{
	struct ask *a = &asks[i];
	u32 k;

	for (k = 0; k < nr; k++)
		a->ids[k] = (from + k * 5) % FM_VOCAB;
	a->c = (struct engine_request){
		.ids = a->ids, .nr = nr, .max_new = max_new, .n = n,
		.on_prompt = on_prompt, .on_seq = on_seq, .on_token = on_token,
		.on_done = on_done, .arg = a,
		.sampling = { .top_p = 1.0f, .seed = 40 + i },
	};
	return a;
}

static void submit(struct ask *a)
{
	struct engine_request c = a->c;
	struct engine_error err = { "" };
	int ret;

	/* The engine has copies: the caller may change its lists at once. */
	ck_assert_int_eq(sampling_params_copy(&c.sampling, &a->c.sampling), 0);
	ret = engine_submit(engine, &c, &a->id, &err);
	ck_assert_msg(!ret, "%s", err.text);
	if (c.sampling.nr_bias)
		memset((void *)(uintptr_t)c.sampling.bias, 0xff,
		       c.sampling.nr_bias * sizeof(*c.sampling.bias));
	if (c.sampling.nr_bad)
		memset((void *)(uintptr_t)c.sampling.bad, 0,
		       c.sampling.nr_bad * sizeof(u32));
	if (c.sampling.allowed)
		memset((void *)(uintptr_t)c.sampling.allowed, 0,
		       c.sampling.nr_allowed * sizeof(u32));
	sampling_params_free(&c.sampling);
}

/* Like engine_run_until_idle(), with short pauses to save time. */
static int run_status(void)
{
	int ret;

	do {
		ret = engine_step(engine, 20000);
	} while (ret > 0);
	return ret;
}

static void run(void)
{
	ck_assert_int_eq(run_status(), 0);
}

/* The token drawn from @logits after @nr ids @all, with all counts made anew. */
static s32 oracle_draw(const struct ask *a, u32 k, struct sampler_ws *ws,
		       const u32 *all, u32 nr, float *logits)
{
	const struct sampler_key key = { a->c.sampling.seed, k };
	struct sampler_text so_far = {
		.ids = all + a->c.nr, .nr = nr - a->c.nr,
		.stops = a->c.stops, .nr_stops = a->c.nr_stops,
	};
	struct id_counts *prompt = id_counts_create(FM_VOCAB);
	struct id_counts *text = id_counts_create(FM_VOCAB);
	u32 i;
	s32 id;

	ck_assert(prompt && text);
	for (i = 0; i < nr; i++)
		id_counts_add(i < a->c.nr ? prompt : text, all[i]);
	so_far.prompt = prompt;
	so_far.text = text;
	sampler_adjust(ws, &a->c.sampling, &so_far, logits, FM_VOCAB);
	id = sampler_sample(ws, logits, FM_VOCAB, &a->c.sampling, key, nr);
	id_counts_free(prompt);
	id_counts_free(text);
	return id;
}

/* The expected sample @k of @a. */
static u32 oracle(const struct ask *a, u32 k, u32 *ids,
		  enum engine_reason *reason)
{
	u32 all[2 * FM_CONTEXT], len = a->c.nr, nr = 0;
	float logits[FM_VOCAB];
	struct sampler_ws *ws;
	s32 id;

	memcpy(all, a->ids, len * sizeof(*all));
	ck_assert_int_eq(sampler_ws_create(FM_VOCAB, &ws), 0);
	*reason = ENGINE_LENGTH;
	while (nr < a->c.max_new && len < FM_CONTEXT) {
		fm_oracle(all, len, logits);
		id = oracle_draw(a, k, ws, all, len, logits);
		ck_assert_int_ge(id, 0);
		if (a->c.nr_stops && (u32)id == STOP_ID) {
			*reason = ENGINE_STOP;
			break;
		}
		ids[nr++] = all[len++] = (u32)id;
	}
	sampler_ws_free(ws);
	return nr;
}

static void check_ask(const struct ask *a)
{
	u32 ids[FM_CONTEXT], k, nr;
	enum engine_reason reason;

	for (k = 0; k < max(a->c.n, 1u); k++) {
		const struct got *g = &a->got[k];

		nr = oracle(a, k, ids, &reason);
		ck_assert_uint_eq(g->dones, 1);
		if ((a->cancelled && g->done.reason == ENGINE_CANCELLED) ||
		    (a->c.deadline_ns && g->done.reason == ENGINE_TIMEOUT)) {
			ck_assert_uint_le(g->nr, nr);
			ck_assert_mem_eq(g->ids, ids, g->nr * sizeof(*ids));
			continue;
		}
		ck_assert_msg(g->done.reason == reason,
			      "request %d sample %u: %s, want %s: %s",
			      (int)(a - asks), k,
			      engine_reason_name(g->done.reason),
			      engine_reason_name(reason), g->text);
		ck_assert_uint_eq(g->nr, nr);
		ck_assert_mem_eq(g->ids, ids, nr * sizeof(*ids));
		ck_assert_uint_eq(g->done.prompt_tokens, a->c.nr);
	}
}

/* A deadline that is over or near: the state in which it passes is random. */
static inline s64 random_deadline(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (s64)ts.tv_sec * 1000000000 + ts.tv_nsec + fk_rand(400000);
}

#endif /* ENGINE_FIXTURE_H */
