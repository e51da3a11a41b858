// SPDX-License-Identifier: Apache-2.0
/*
 * call_read.c - turn a body into work
 *
 * JSON becomes a model and parameters, prompts become ids, and memory for all
 * tokens is allocated.  This runs on a reader's thread, which owns the call
 * meanwhile, so it may take time.  It does not touch the connection.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/server/call.h"
#include "runtime/server/models.h"
#include "runtime/server/tokens.h"

/* The engine's deadline is the same, for the case that the loop is stuck. */
static s64 call_deadline(const struct call *call)
{
	const s64 s = call->svc->site->timeout_s;

	return s ? call->begin_ns + s * 1000000000 : 0;
}

static void request_fill(struct call *call, struct engine_request *req)
{
	const struct api_params *p = &call->params;

	*req = (struct engine_request){
		.max_new = max(p->max_new, 1u), .stops = p->stop_ids,
		.nr_stops = p->nr_stop_ids, .sampling = p->sampling,
		.n = p->drawn, .priority = p->priority, .salt = p->salt,
		.beam_width = p->beam_width,
		.length_penalty = p->length_penalty,
		.early_stopping = p->early_stopping,
		.flow = call->flow, .deadline_ns = call_deadline(call),
		.logprobs = p->logprobs, .prompt_logprobs = p->score,
		.logprob_ids = p->nr_logprob_ids ? p->logprob_ids : NULL,
		.adapter = call->adapter ? call->adapter->adapter : NULL,
	};
	/* Logprobs decide which samples are best. */
	if (p->drawn > p->n)
		req->logprobs = max(p->logprobs, ENGINE_LOGPROBS(0));
}

static int work_build(struct call *call)
{
	const struct api_params *p = &call->params;
	struct work *w = &call->work;
	u32 i;

	request_fill(call, &w->req);
	memcpy(w->session.name, p->session.name, sizeof(w->session.name));
	w->session.ms = p->session.ms;
	w->session.salt = p->salt;
	w->session.key = call->flow;
	w->session.adapter = call->adapter ? call->adapter->number : 0;
	w->prompts = calloc(p->nr_prompts, sizeof(*w->prompts));
	if (!w->prompts)
		return -ENOMEM;
	w->nr_prompts = p->nr_prompts;
	for (i = 0; i < p->nr_prompts; i++) {
		w->prompts[i].ids = p->prompts[i].ids;
		w->prompts[i].nr = p->prompts[i].nr;
	}
	return work_init(w);
}

static int choices_build(struct call *call)
{
	const struct api_params *p = &call->params;
	struct work *w = &call->work;
	u32 i;

	call->nr_choices = p->nr_prompts * p->drawn;
	call->choices = calloc(call->nr_choices, sizeof(*call->choices));
	call->piece_max = detok_out_max(w->b->api.tok);
	call->piece = malloc(call->piece_max);
	if (!call->choices || !call->piece)
		return -ENOMEM;
	for (i = 0; i < call->nr_choices; i++) {
		struct choice *ch = &call->choices[i];

		ch->prompt = &w->prompts[i / p->drawn];
		ch->s = &ch->prompt->samples[i % p->drawn];
		ch->stop = -1;
		ch->stop_id = -1;
		ch->stopper.stops = &p->stops;
		detok_init(&ch->detok, w->b->api.tok, p->skip_special);
		ch->lp = ch->detok;
	}
	return 0;
}

/* "cmpl-" and the client's id from body or head, or 24 generated digits. */
static void call_name(struct call *call)
{
	const char *kind = call->params.kind == API_CHAT ? "chatcmpl" : "cmpl";

	snprintf(call->id, sizeof(call->id), "%s-%s", kind, *call->params.id ?
		 call->params.id : call->request_id);
}

/* The model, under the name that the body has: its own, or that of an adapter. */
static struct api_model call_model(const struct call *call, const struct backend *b)
{
	struct api_model m = b->api;

	if (call->adapter)
		m.name = call->adapter->name;
	return m;
}

/* The answer to /tokenize and the like needs no engine: write it here. */
static int call_read_tokens(struct call *call, const struct backend *b,
			    const json_t *root)
{
	struct api_error *err = &call->err;
	struct api_model m;

	if (backend_is_loaded(b, err))
		return -1;
	m = call_model(call, b);
	return tokens_read(&m, call->params.kind, root, &call->prefix, err);
}

static int call_read_params(struct call *call, const struct backend *b, const json_t *root)
{
	const struct api_model m = call_model(call, b);

	if (api_read(&m, call->params.kind, root, &call->params, &call->err))
		return -1;
	return session_fits(call->adapter, call->params.session.ms, "session.retain",
			    &call->err);
}

static int call_read_work(struct call *call, struct backend *b, json_t *root)
{
	struct api_error *err = &call->err;

	if (backend_admits(b, err))
		return -1;
	call->work.b = b;
	if (call_read_params(call, b, root))
		return -1;
	if (work_build(call) || choices_build(call))
		return api_fail(err, 503, "", "out_of_memory",
				"no memory for the request");
	call_name(call);
	answer_prepare(call);
	return 0;
}

int call_read(struct call *call)
{
	struct backend *b = NULL;
	json_t *root;
	int ret = -1;

	root = api_parse(call->body.len ? call->body.p : "", call->body.len,
			 &call->err);
	text_free(&call->body);
	if (root)
		b = models_route(call->svc->site, root, &call->adapter, &call->err);
	if (b && call->params.kind & API_TOKENS)
		ret = call_read_tokens(call, b, root);
	else if (b)
		ret = call_read_work(call, b, root);
	json_decref(root);
	return ret;
}
