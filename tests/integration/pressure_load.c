// SPDX-License-Identifier: Apache-2.0
/*
 * pressure_load.c - many requests of every kind, drawn from their number
 *
 * Half of the prompts begin with one of four long texts.  A quarter of the
 * requests wants four samples, a quarter is sampled from a seed, three flows
 * send them, a third has another priority.  In a run that cuts requests short,
 * a tenth is cancelled, a tenth loses one sample, a tenth has a deadline, from
 * an impossible one to one that most requests keep.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <kvmm/clock.h>

#include "tests/integration/pressure_load.h"

#define PREFIXES	4u
#define PREFIX_MAX	80u
#define FIRST_ID	300u	/* ordinary tokens of the demo model */
#define LAST_ID		4000u
#define STEP_NS		100000000ll
#define STEPS_MAX	20000000u

/* ---- requests ---- */

static u32 draw(u64 *state, u32 below)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)(*state >> 33) % below;
}

static void fill(u32 *ids, u32 nr, u64 seed)
{
	u32 i;

	for (i = 0; i < nr; i++)
		ids[i] = FIRST_ID + draw(&seed, LAST_ID - FIRST_ID);
}

static void load_cut(struct load_req *q, u64 *rnd)
{
	const u32 how = draw(rnd, 10);

	q->cancel_one = LOAD_N;
	if (how < 2)
		q->cancel_at = 1 + draw(rnd, q->c.max_new);
	if (how == 1)
		q->cancel_one = draw(rnd, q->c.n);
	if (how == 2)
		q->c.deadline_ns = (s64)kv_now_ns() +
			(s64)draw(rnd, 8) * draw(rnd, 8) * 20000000;
}

/* All fields of a request except its end, from @i alone. */
static void load_shape(struct load_req *q, u32 i, bool greedy)
{
	u64 rnd = i * 7919ull + 1;
	const u32 own = 8 + draw(&rnd, 40);
	const u32 prefix = draw(&rnd, 2) ? 32 + draw(&rnd, PREFIX_MAX - 31) : 0;

	fill(q->ids, prefix, draw(&rnd, PREFIXES));
	fill(q->ids + prefix, own, 1000 + i);
	q->c = (struct engine_request){
		.ids = q->ids, .nr = prefix + own,
		.max_new = 8 + draw(&rnd, LOAD_NEW - 7),
		.n = draw(&rnd, 4) ? 1 : LOAD_N,
		.priority = draw(&rnd, 3) ? 1 : draw(&rnd, LOAD_PRIORITIES),
		.flow = draw(&rnd, 3),
		.sampling = { .top_p = 1.0f, .seed = i },
	};
	if (!draw(&rnd, 4) && !greedy)
		q->c.sampling.temperature = 0.8f;
	if (draw(&rnd, 100) < LOAD_BEAMS && !greedy) {
		q->c.n = LOAD_N;
		q->c.beam_width = LOAD_N;
		q->c.length_penalty = 1.0f;
		q->c.sampling.temperature = 0.0f;
	}
	if (q->run->cut)
		load_cut(q, &rnd);
}

/* ---- answers ---- */

static void load_note_first(struct load_req *q)
{
	struct load_run *run = q->run;
	const u32 p = q->c.priority;
	u64 ms;

	q->first = now_ms();
	ms = q->first - q->sent;
	q->ended = run->nr_over - q->ended;
	run->longest_ms[p] = max(run->longest_ms[p], ms);
	run->longest_ended[p] = max(run->longest_ended[p], q->ended);
}

static void on_token(void *arg, u32 sample,
		     const struct engine_token *t)
{
	struct load_req *q = arg;
	struct load_sample *s = &q->s[sample];

	ck_assert_uint_eq(s->dones, 0);
	ck_assert_uint_lt(s->nr, q->c.max_new);
	s->ids[s->nr++] = t->id;
	if (!q->first)
		load_note_first(q);
	if (sample || s->nr != q->cancel_at)
		return;
	if (q->cancel_one == LOAD_N)
		engine_cancel(q->run->engine, q->id);
	else
		engine_cancel_sample(q->run->engine, q->id, q->cancel_one);
}

static void on_done(void *arg, const struct engine_done *done)
{
	struct load_req *q = arg;
	struct load_sample *s = &q->s[done->sample];

	ck_assert_uint_eq(s->dones, 0);
	ck_assert_msg(done->reason != ENGINE_ERROR, "request %u: %s",
		      (u32)(q - q->run->r), done->text);
	s->dones++;
	s->reason = done->reason;
	if (++q->nr_over == q->c.n)
		q->run->nr_over++;
}

/* Blocks that a running request would fill if there were enough. */
static u32 load_fills(const struct load_req *q)
{
	const u32 full = q->c.nr / LOAD_BLOCK;
	u32 k, sum = full;

	for (k = 0; q->first && k < q->c.n; k++)
		if (!q->s[k].dones)
			sum += DIV_ROUND_UP(q->c.nr + q->s[k].nr,
					    LOAD_BLOCK) - full;
	return q->first ? sum : 0;
}

/* Remove finished requests from the list, and sum up the blocks of the others. */
static void load_look(struct load_run *run)
{
	u32 i, nr = 0, sum = 0;

	for (i = 0; i < run->nr_open; i++) {
		struct load_req *q = run->open[i];

		if (q->nr_over == q->c.n)
			continue;
		sum += load_fills(q);
		run->open[nr++] = q;
	}
	run->nr_open = nr;
	run->want = max(run->want, sum);
}

static void load_send(struct load_run *run)
{
	struct load_req *q = &run->r[run->nr_sent];
	struct engine_error err = { "" };

	q->run = run;
	load_shape(q, run->nr_sent, run->greedy);
	q->c.on_token = on_token;
	q->c.on_done = on_done;
	q->c.arg = q;
	q->sent = now_ms();
	q->ended = run->nr_over;
	run->open[run->nr_open++] = q;
	run->nr_sent++;
	ck_assert_msg(!engine_submit(run->engine, &q->c, &q->id, &err), "%s",
		      err.text);
}

void load_play(struct load_run *run, struct rig *r, struct model *model)
{
	char path[RIG_PATH + 16];
	struct engine_opts o = {
		.socket = path, .max_seqs = LOAD_SEQS,
		.max_batch = LOAD_BATCH, .block_tokens = LOAD_BLOCK,
	};
	struct engine_error err = { "" };
	const u64 begin = now_ms();
	u32 i;

	snprintf(path, sizeof(path), "%s/attach.sock", r->dir);
	run->r = calloc(run->nr, sizeof(*run->r));
	ck_assert_ptr_nonnull(run->r);
	ck_assert_msg(!engine_create(model, &o, &run->engine, &err), "%s",
		      err.text);
	for (i = 0; run->nr_over < run->nr; i++) {
		ck_assert_uint_lt(i, STEPS_MAX);
		while (run->nr_sent < run->nr && run->nr_open < LOAD_OPEN)
			load_send(run);
		ck_assert_msg(engine_step(run->engine, STEP_NS) >= 0, "%s",
			      engine_strerror(run->engine));
		load_look(run);
	}
	run->ms = now_ms() - begin;
	engine_get_stats(run->engine, &run->stats);
	engine_destroy(run->engine);
	run->engine = NULL;
}

void load_free(struct load_run *run)
{
	free(run->r);
}
