/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_fixture.h - requests, what came of them, and what had to
 *
 * The daemon (engine_fake_kvmm.h) executes late, refuses and preempts at
 * random and checks the client's side of the ABI; the model
 * (engine_fake_model.h) makes logits from what it reads through the blocks.
 * Whatever happens in between, every sample must be what fm_oracle() and the
 * real sampler give without any paging.
 */
#ifndef ENGINE_FIXTURE_H
#define ENGINE_FIXTURE_H

#include <check.h>
#include <stdlib.h>

#include "runtime/engine/engine.h"
#include "tests/unit/engine_fake_model.h"

#define MAX_REQ		16u
#define MAX_N		5u
#define STOP_ID		7u

struct got {
	u32			ids[FM_CONTEXT];
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
	u32			cancel_sample;	/* whose tokens */
	bool			cancelled;
	struct got		got[MAX_N];
};

static struct model model;
static struct engine *engine;
static struct ask asks[MAX_REQ];
static u32 order[MAX_REQ * MAX_N], nr_order;
static const u32 stop_id = STOP_ID;

static void on_token(void *arg, u32 sample, u32 id)
{
	struct ask *a = arg;
	struct got *g = &a->got[sample];

	ck_assert_uint_eq(g->dones, 0);
	ck_assert_uint_lt(g->nr, FM_CONTEXT);
	g->ids[g->nr++] = id;
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

/* Ask for @n greedy samples after @nr ids that begin at @from. */
static struct ask *ask(u32 i, u32 from, u32 nr, u32 max_new, u32 n)
{
	struct ask *a = &asks[i];
	u32 k;

	for (k = 0; k < nr; k++)
		a->ids[k] = (from + k * 5) % FM_VOCAB;
	a->c = (struct engine_request){
		.ids = a->ids, .nr = nr, .max_new = max_new, .n = n,
		.on_token = on_token, .on_done = on_done, .arg = a,
		.sampling = { .top_p = 1.0f, .seed = 40 + i },
	};
	return a;
}

static void submit(struct ask *a)
{
	struct engine_error err = { "" };
	int ret = engine_submit(engine, &a->c, &a->id, &err);

	ck_assert_msg(!ret, "%s", err.text);
}

/* As engine_run_until_idle(), with pauses too short to cost a test time. */
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

/* What sample @k of @a has to be. */
static u32 oracle(const struct ask *a, u32 k, u32 *ids,
		  enum engine_reason *reason)
{
	const struct sampler_key key = { a->c.sampling.seed, k };
	u32 all[2 * FM_CONTEXT], len = a->c.nr, nr = 0;
	float logits[FM_VOCAB];
	struct sampler_ws *ws;
	s32 id;

	memcpy(all, a->ids, len * sizeof(*all));
	ck_assert_int_eq(sampler_ws_create(FM_VOCAB, &ws), 0);
	*reason = ENGINE_LENGTH;
	while (nr < a->c.max_new && len < FM_CONTEXT) {
		fm_oracle(all, len, logits);
		id = sampler_sample(ws, logits, FM_VOCAB, &a->c.sampling, key,
				    len);
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
		if (a->cancelled && g->done.reason == ENGINE_CANCELLED) {
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

#endif /* ENGINE_FIXTURE_H */
