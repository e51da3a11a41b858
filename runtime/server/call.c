// SPDX-License-Identifier: Apache-2.0
/*
 * call.c - one request to the API, from its body to its last byte
 *
 *	loop		call_start: may it be worked at?
 *	reader		on_to_reader: body to prompts and parameters
 *	loop		on_read: refuse it, or post it to the backend
 *	backend		tokens, ends
 *	loop		on_out: tokens to text, text to the client
 *	loop		on_done: the last words; bye
 *	backend		call_release
 *
 * A call belongs to the thread that handles its mail at the moment; the
 * client may leave at any of them, which sets @conn to NULL and no more than
 * cancels the work.
 *
 * The head of a stream is sent with its first token, so what goes wrong
 * before it is still answered with a proper status.
 *
 * Text that a reader does not take waits here, not in the socket's buffer,
 * as long as it is little; a reader that leaves more behind is given up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "runtime/server/call.h"

#define CALL_BACKLOG	65536u	/* bytes in a connection that are enough */

/* Why it is so is for the operator, who is told elsewhere. */
#define DAEMON_GONE	"the server has no memory daemon now: try again in a moment"

static const char stream_headers[] =
	"Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";

static s64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (s64)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ---- life ---- */

static void call_free(struct call *call)
{
	u32 i;

	for (i = 0; call->choices && i < call->nr_choices; i++) {
		stopper_free(&call->choices[i].stopper);
		text_free(&call->choices[i].out);
	}
	free(call->choices);
	free(call->piece);
	text_free(&call->prefix);
	text_free(&call->body);
	work_free(&call->work);
	api_params_free(&call->params);
	free(call);
}

/* Nobody looks any more: on the backend's thread. */
static void call_release(struct work *w)
{
	call_free(container_of(w, struct call, work));
}

static void call_link(struct call *call)
{
	struct service *svc = call->svc;

	call->next = svc->list;
	if (call->next)
		call->next->prev = call;
	svc->list = call;
	svc->nr_calls++;
}

static void call_unlink(struct call *call)
{
	if (call->next)
		call->next->prev = call->prev;
	if (call->prev)
		call->prev->next = call->next;
	else
		call->svc->list = call->next;
	call->svc->nr_calls--;
}

/* The backend need not go on. */
static void call_cancel(struct call *call)
{
	if (!call->posted)
		return;
	store_release(&call->work.cancel, 1);
	work_post(&call->work);
}

/* What the backend never had did not run, so it did not end. */
static void call_ended_as(struct call *call, enum metric_end end)
{
	if (call->posted)
		call->svc->metrics.ends[end]++;
}

/* For the log; a call that is not posted may be in a reader's hands. */
static void call_tell(struct call *call, int status)
{
	if (call->posted)
		conn_tell(call->conn, call->id, call_tokens(call), status);
}

/* Give the connection back before its answer, which may begin the next. */
static struct conn *call_let_go(struct call *call)
{
	struct conn *c = call->conn;

	call->conn = NULL;
	if (c)
		conn_own(c, NULL);
	return c;
}

static void answer_error(struct conn *c, const struct api_error *err)
{
	const bool later = err->status == 429 || err->status == 503;
	struct text t = { 0 };

	api_error_json(&t, err);
	text_puts(&t, "\n");
	conn_reply(c, err->status, "application/json",
		   later ? "Retry-After: 1\r\n" : NULL, t.p, t.len);
	text_free(&t);
}

void call_fail(struct call *call, const struct api_error *err)
{
	struct text t = { 0 };
	struct conn *c;

	if (!call->conn)
		return;
	call_tell(call, err->status);
	c = call_let_go(call);
	/* A request that can never fit is its client's mistake, not an end. */
	if (err->status >= 500)
		call_ended_as(call, METRIC_END_error);
	call_cancel(call);
	if (!call->streams) {
		answer_error(c, err);
		return;
	}
	text_puts(&t, "data: ");
	api_error_json(&t, err);
	text_puts(&t, "\n\n");
	conn_stream_add(c, t.p, t.len);
	conn_stream_end(c);
	text_free(&t);
}

/* ---- tokens to text ---- */

static void choice_over(struct call *call, struct choice *ch,
			const char *reason)
{
	ch->over = true;
	ch->reason = reason;
	call->nr_over++;
}

static void choice_take(struct call *call, struct choice *ch, u32 id)
{
	ssize_t n;

	ch->taken++;
	n = detok_push(&ch->detok, id, call->piece, call->piece_max);
	if (n <= 0)
		return;
	ch->stop = stopper_push(&ch->stopper, call->piece, (size_t)n, &ch->out);
	if (ch->stop < 0)
		return;
	choice_over(call, ch, "stop");
	if (load_acquire(&ch->s->over))
		return;
	store_release(&ch->s->unwanted, 1);
	work_post(&call->work);
}

/* What the detokenizer held belongs to the text, and may complete a stop. */
static void choice_flush(struct call *call, struct choice *ch)
{
	ssize_t n = detok_flush(&ch->detok, call->piece, call->piece_max);

	if (n > 0)
		ch->stop = stopper_push(&ch->stopper, call->piece, (size_t)n,
					&ch->out);
	if (ch->stop < 0)
		stopper_end(&ch->stopper, &ch->out);
}

static bool is_own_id(const struct api_params *p, u32 id)
{
	u32 i;

	for (i = 0; i < p->nr_own_ids; i++)
		if (p->stop_ids[i] == id)
			return true;
	return false;
}

/* Return: false when the sample failed. */
static bool choice_end(struct call *call, struct choice *ch)
{
	const struct work_sample *s = ch->s;

	if (s->reason == ENGINE_CANCELLED || s->reason == ENGINE_ERROR)
		return false;
	choice_flush(call, ch);
	if (s->reason == ENGINE_STOP && is_own_id(&call->params, s->stop_id))
		ch->stop_id = s->stop_id;
	choice_over(call, ch, s->reason == ENGINE_STOP || ch->stop >= 0 ?
		    "stop" : "length");
	return true;
}

static void choice_time(struct call *call, struct choice *ch, u32 nr, s64 now)
{
	struct metrics *m = &call->svc->metrics;

	if (!call->first_ns) {
		call->first_ns = now;
		metrics_observe(m, METRIC_time_to_first_token_seconds,
				(double)(now - call->begin_ns) / 1e9, 1);
	}
	if (ch->last_ns)
		metrics_observe(m, METRIC_inter_token_latency_seconds,
				(double)(now - ch->last_ns) / 1e9 / nr, nr);
	ch->last_ns = now;
}

/* Take what came for one sample.  Return: false when it failed. */
static bool choice_read(struct call *call, struct choice *ch, s64 now)
{
	/* In this order: what is over has all its tokens. */
	const u32 over = load_acquire(&ch->s->over);
	const u32 nr = load_acquire(&ch->s->nr);
	const u32 before = ch->taken;

	while (ch->taken < nr && !ch->over)
		choice_take(call, ch, ch->s->ids[ch->taken]);
	if (ch->taken > before)
		choice_time(call, ch, ch->taken - before, now);
	if (ch->over)
		return true;
	if (over)
		return choice_end(call, ch);
	/* Its end is still on its way, but what it will be is known. */
	if (ch->taken == call->params.max_new) {
		choice_flush(call, ch);
		choice_over(call, ch, ch->stop >= 0 ? "stop" : "length");
	}
	return true;
}

/* ---- text to the client ---- */

static bool choice_has_news(const struct call *call, const struct choice *ch)
{
	if (ch->sent)
		return false;
	if (ch->over || ch->out.len)
		return true;
	return call->params.return_ids && ch->taken > ch->told;
}

/* Send what there is, as far as the reader takes it. */
static void call_send(struct call *call)
{
	struct text *t = &call->svc->loop->scratch;
	size_t left = 0;
	u32 i;

	if (!call->params.stream || !call->conn)
		return;
	text_clear(t);
	for (i = 0; i < call->nr_choices; i++) {
		struct choice *ch = &call->choices[i];

		if (choice_has_news(call, ch) &&
		    conn_backlog(call->conn) + t->len < CALL_BACKLOG)
			answer_event(call, i, t);
		left += ch->out.len;
	}
	if (t->len && !call->streams) {
		call->streams = true;
		conn_stream_begin(call->conn, "text/event-stream; charset=utf-8",
				  stream_headers);
	}
	if (call->conn)
		conn_stream_add(call->conn, t->p, t->len);
	if (call->conn && conn_backlog(call->conn) + left > call->svc->max_stream) {
		struct conn *c;

		call_tell(call, 0);
		c = call_let_go(call);
		call_ended_as(call, METRIC_END_abort);
		conn_abort(c);
		call_cancel(call);
	}
}

static bool call_all_sent(const struct call *call)
{
	u32 i;

	for (i = 0; i < call->nr_choices; i++)
		if (!call->choices[i].sent)
			return false;
	return true;
}

static void call_count_end(struct call *call)
{
	struct metrics *m = &call->svc->metrics;
	bool length = false;
	u64 prompt = 0;
	u32 i;

	for (i = 0; i < call->nr_choices; i++)
		length |= !strcmp(call->choices[i].reason, "length");
	for (i = 0; i < call->work.nr_prompts; i++)
		prompt += call->work.prompts[i].nr;
	m->ends[length ? METRIC_END_length : METRIC_END_stop]++;
	metrics_observe(m, METRIC_e2e_request_latency_seconds,
			(double)(now_ns() - call->begin_ns) / 1e9, 1);
	metrics_observe(m, METRIC_request_prompt_tokens, (double)prompt, 1);
	metrics_observe(m, METRIC_request_generation_tokens,
			(double)call_tokens(call), 1);
}

/* Every sample is over: say the last words, when all before is said. */
static void call_conclude(struct call *call)
{
	struct text *t = &call->svc->loop->scratch;
	struct conn *c;

	if (!call->conn || (call->params.stream && !call_all_sent(call)))
		return;
	call_count_end(call);
	text_clear(t);
	call_tell(call, 0);
	c = call_let_go(call);
	if (call->params.stream) {
		answer_usage_event(call, t);
		conn_stream_add(c, t->p, t->len);
		conn_stream_end(c);
		return;
	}
	answer_whole(call, t);
	if (t->failed)
		conn_abort(c);
	else
		conn_reply(c, 200, "application/json", NULL, t->p, t->len);
}

/* ---- mail and events ---- */

/* What the end of a sample means for its client. */
static void work_error(const struct call *call, const struct work_sample *s,
		       struct api_error *err)
{
	const char *why = *call->work.why ? call->work.why : strerror(-s->err);

	if (s->reason == ENGINE_CANCELLED) {
		api_fail(err, 503, "", "shutting_down",
			 "the server is shutting down");
		return;
	}
	switch (-s->err) {
	case E2BIG:
	case EDQUOT:
	case EINVAL:
		api_fail(err, 400, "", "request_too_large", "%s", why);
		break;
	case ECONNRESET:
		api_fail(err, 503, "", "daemon_gone", DAEMON_GONE);
		break;
	case ENOMEM:
	case EAGAIN:
	case ENOSPC:
		api_fail(err, 503, "", "overloaded", "%s: try again in a moment", why);
		break;
	default:
		api_fail(err, 500, "", "engine_error", "%s", why);
		break;
	}
}

static void call_progress(struct call *call)
{
	const s64 now = now_ns();
	struct api_error err;
	u32 i;

	if (!call->conn)
		return;
	for (i = 0; i < call->nr_choices; i++) {
		struct choice *ch = &call->choices[i];

		if (ch->over || choice_read(call, ch, now))
			continue;
		work_error(call, ch->s, &err);
		call_send(call);
		call_fail(call, &err);
		return;
	}
	call_send(call);
}

static void on_out(struct mail *m)
{
	struct call *call = container_of(m, struct call, work.out);

	call->handled = true;
	call_progress(call);
	call->handled = false;
}

/*
 * The backend is done with it.  A stream whose reader is slow stays until all
 * was taken; everything else ends here.
 */
static void call_end(struct call *call)
{
	call->handled = true;
	call_conclude(call);
	call->handled = false;
	if (call->conn)
		return;
	call_unlink(call);
	mailbox_post(&call->work.b->inbox, &call->work.bye);
}

static void on_done(struct mail *m)
{
	struct call *call = container_of(m, struct call, work.done);

	call->handled = true;
	call_progress(call);
	call->ended = true;
	call_end(call);
}

static void on_writable(struct conn_owner *o)
{
	struct call *call = container_of(o, struct call, owner);

	call->handled = true;
	call_send(call);
	call->handled = false;
	if (call->ended)
		call_end(call);
}

static void on_gone(struct conn_owner *o)
{
	struct call *call = container_of(o, struct call, owner);

	call_tell(call, 0);
	call->conn = NULL;
	call_ended_as(call, METRIC_END_abort);
	call_cancel(call);
	/* Else whoever sent it something will see that it is over. */
	if (call->ended && !call->handled)
		call_end(call);
}

/* ---- the begin ---- */

static int call_build(struct call *call)
{
	const struct api_params *p = &call->params;
	struct work *w = &call->work;
	u32 i;

	w->req = (struct engine_request){
		.max_new = p->max_new, .stops = p->stop_ids,
		.nr_stops = p->nr_stop_ids, .sampling = p->sampling,
		.n = p->n, .priority = p->priority, .salt = p->salt,
	};
	w->prompts = calloc(p->nr_prompts, sizeof(*w->prompts));
	if (!w->prompts)
		return -ENOMEM;
	w->nr_prompts = p->nr_prompts;
	for (i = 0; i < p->nr_prompts; i++) {
		w->prompts[i].ids = p->prompts[i].ids;
		w->prompts[i].nr = p->prompts[i].nr;
	}
	if (work_init(w))
		return -ENOMEM;
	call->nr_choices = p->nr_prompts * p->n;
	call->choices = calloc(call->nr_choices, sizeof(*call->choices));
	call->piece_max = detok_out_max(w->b->api.tok);
	call->piece = malloc(call->piece_max);
	if (!call->choices || !call->piece)
		return -ENOMEM;
	for (i = 0; i < call->nr_choices; i++) {
		struct choice *ch = &call->choices[i];

		ch->prompt = &w->prompts[i / p->n];
		ch->s = &ch->prompt->samples[i % p->n];
		ch->stop = -1;
		ch->stop_id = -1;
		ch->stopper.stops = &p->stops;
		detok_init(&ch->detok, w->b->api.tok, p->skip_special);
	}
	return 0;
}

/* "cmpl-" and 24 digits, or what the client chose. */
static void call_name(struct call *call)
{
	const char *kind = call->params.kind == API_CHAT ? "chatcmpl" : "cmpl";
	u32 r[3] = { 0 };

	if (*call->params.id) {
		snprintf(call->id, sizeof(call->id), "%s-%s", kind,
			 call->params.id);
		return;
	}
	if (getrandom(r, sizeof(r), 0) != sizeof(r))
		r[0] = (u32)now_ns();
	snprintf(call->id, sizeof(call->id), "%s-%08x%08x%08x", kind, r[0],
		 r[1], r[2]);
}

/* On a reader's thread. */
static void on_to_reader(struct mail *m)
{
	struct call *call = container_of(m, struct call, to_reader);
	const struct text *body = &call->body;

	call->bad = api_prepare(&call->work.b->api, call->params.kind,
				body->len ? body->p : "", body->len,
				&call->params, &call->err);
	text_free(&call->body);
	if (!call->bad && call_build(call))
		call->bad = api_fail(&call->err, 503, "", "out_of_memory",
				     "no memory for the request");
	if (!call->bad) {
		call_name(call);
		answer_prepare(call);
	}
	mailbox_post(&call->svc->loop->mail, &call->read);
}

/* Back on the loop: it is understood, or refused. */
static void on_read(struct mail *m)
{
	struct call *call = container_of(m, struct call, read);

	if (call->conn && !call->bad) {
		call->posted = true;
		work_post(&call->work);
		return;
	}
	if (call->conn)
		call_fail(call, &call->err);
	call_unlink(call);
	call_free(call);
}

static struct call *call_create(struct service *svc, struct conn *c,
				enum api_kind kind)
{
	struct call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	call->svc = svc;
	call->conn = c;
	call->params.kind = kind;
	call->created = time(NULL);
	call->begin_ns = now_ns();
	call->to_reader.fn = on_to_reader;
	call->read.fn = on_read;
	call->owner.gone = on_gone;
	call->owner.writable = on_writable;
	call->work.b = svc->b;
	call->work.to = &svc->loop->mail;
	call->work.out.fn = on_out;
	call->work.done.fn = on_done;
	call->work.release = call_release;
	return call;
}

/* May a request be worked at now?  Return: 0, or -1 with @err. */
static int service_admits(struct service *svc, struct api_error *err)
{
	if (svc->draining)
		return api_fail(err, 503, "", "shutting_down",
				"the server is shutting down");
	switch (backend_get_state(svc->b)) {
	case BACKEND_LOADING:
		return api_fail(err, 503, "", "loading",
				"the model is being loaded: try again in a moment");
	case BACKEND_DETACHED:
	case BACKEND_FAILED:
		return api_fail(err, 503, "", "daemon_gone", DAEMON_GONE);
	case BACKEND_ATTACHED:
		break;
	}
	if (svc->nr_calls >= svc->max_calls)
		return api_fail(err, 429, "", "queue_full",
				"%u requests are being worked at, as many as this server takes: try again in a moment",
				svc->nr_calls);
	return 0;
}

void call_start(struct service *svc, struct conn *c, enum api_kind kind,
		const struct http_request *r)
{
	const u32 reader = r->len > SERVICE_LONG;
	struct api_error err;
	struct call *call;

	if (service_admits(svc, &err)) {
		answer_error(c, &err);
		return;
	}
	call = call_create(svc, c, kind);
	if (!call) {
		api_fail(&err, 503, "", "out_of_memory", "no memory for the request");
		answer_error(c, &err);
		return;
	}
	conn_steal_body(c, &call->body);
	conn_own(c, &call->owner);
	call_link(call);
	mailbox_post(&svc->readers[reader].mail, &call->to_reader);
}

void service_cancel(struct service *svc)
{
	struct call *call, *next;
	struct api_error err;

	api_fail(&err, 503, "", "shutting_down", "the server is shutting down");
	for (call = svc->list; call; call = next) {
		next = call->next;
		call_fail(call, &err);
		call_cancel(call);
		if (call->ended)
			call_end(call);
	}
}
