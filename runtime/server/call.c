// SPDX-License-Identifier: Apache-2.0
/*
 * call.c - one request to the API, from its body to its last byte
 *
 *	loop		call_start: is there room for it?	service.c
 *	reader		on_to_reader: body to work		call_read.c
 *	loop		on_read: refuse it, or post it to the backend
 *	backend		tokens, ends				work.c
 *	loop		on_out: tokens to text			choice.c
 *			text to the client			answer.c
 *	loop		on_done: end of the answer; bye
 *	backend		call_release
 *
 * A call belongs to the thread that is handling its mail.  The client may leave
 * at any of these points; that sets @conn to NULL and cancels the work.
 *
 * The head of a stream is sent with its first token, so an error before the
 * first token still gets a proper status.
 *
 * Text that a slow client does not read waits here and not in the socket's
 * buffer, up to a limit; a client that leaves more unread is disconnected.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <event2/event.h>

#include <kvmm/clock.h>

#include "runtime/server/call.h"
#include "runtime/server/times.h"

#define CALL_BACKLOG	65536u	/* unread bytes above which a connection gets no more */

static const char stream_headers[] =
	"Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";

/* ---- creating and freeing ---- */

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
	served_put(call->adapter);
	free(call);
}

/* The owner is finished with the call: on the backend's thread. */
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
}

static void call_unlink(struct call *call)
{
	if (call->svc->site->timeout_s)
		event_del(&call->deadline);
	if (call->next)
		call->next->prev = call->prev;
	if (call->prev)
		call->prev->next = call->next;
	else
		call->svc->list = call->next;
	service_leave(call->svc);
}

/* Tell the backend to stop. */
static void call_cancel(struct call *call)
{
	if (!call->posted)
		return;
	store_release(&call->work.cancel, 1);
	work_post(&call->work);
}

struct metrics *call_metrics(const struct call *call)
{
	return &call->svc->metrics[call->work.b - call->svc->site->backends];
}

/* A call that never reached the backend did not run, so it has no end. */
static void call_ended_as(struct call *call, enum metric_end end)
{
	if (call->posted)
		tally(&call_metrics(call)->ends[end], 1);
}

/* For the log; a call that is not posted may still belong to a reader. */
static void call_tell(struct call *call, int status)
{
	if (call->posted)
		conn_tell(call->conn, call->id, call_tokens(call), status);
}

/*
 * Give the connection back before the answer, after which the next may begin.
 */
static struct conn *call_let_go(struct call *call)
{
	struct conn *c = call->conn;

	call->conn = NULL;
	if (c)
		conn_own(c, NULL);
	return c;
}

void call_fail(struct call *call, const struct api_error *err)
{
	struct text t = { 0 };
	struct conn *c;

	if (!call->conn)
		return;
	call_tell(call, err->status);
	c = call_let_go(call);
	/*
	 * A request that can never fit is an error of its client, not a
	 * failure.
	 */
	if (err->status >= 500)
		call_ended_as(call, METRIC_END_error);
	call_cancel(call);
	if (!call->streams) {
		service_refuse(call->svc, c, err);
		return;
	}
	text_puts(&t, "data: ");
	api_error_json(&t, err);
	text_puts(&t, "\n\n");
	conn_tell_error(c, err->code, err->param);
	conn_stream_add(c, t.p, t.len);
	conn_stream_end(c);
	text_free(&t);
}

/* ---- text to the client ---- */

/* Send available text, as far as the client reads it. */
static void call_send(struct call *call)
{
	struct text *t = &call->svc->loop.scratch;
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
	if (call->conn && conn_backlog(call->conn) + left > call->svc->site->max_stream) {
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
	struct metrics *m = call_metrics(call);
	struct engine_times times = { 0 };
	bool length = false;
	u64 prompt = 0;
	u32 i;

	for (i = 0; i < call->nr_choices; i++)
		length |= !strcmp(call->choices[i].reason, "length");
	for (i = 0; i < call->work.nr_prompts; i++) {
		prompt += call->work.prompts[i].nr;
		times_add(&times, &call->work.prompts[i].times);
	}
	tally(&m->ends[length ? METRIC_END_length : METRIC_END_stop], 1);
	metrics_observe(m, METRIC_e2e_request_latency_seconds,
			(double)((s64)kv_now_ns() - call->begin_ns) / 1e9, 1);
	times_observe(m, &times);
	metrics_observe(m, METRIC_request_prompt_tokens, (double)prompt, 1);
	metrics_observe(m, METRIC_request_generation_tokens,
			(double)call_tokens(call), 1);
}

/* Every sample is over: end the answer, once all text before is sent. */
static void call_conclude(struct call *call)
{
	struct text *t = &call->svc->loop.scratch;
	struct conn *c;

	if (!call->conn || (call->params.stream && !call_all_sent(call)))
		return;
	call_count_end(call);
	text_clear(t);
	t->failed |= best_pick(call) != 0;
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

static void call_progress(struct call *call)
{
	const s64 now = (s64)kv_now_ns();
	struct api_error err;
	u32 i;

	if (!call->conn)
		return;
	for (i = 0; i < call->nr_choices; i++) {
		struct choice *ch = &call->choices[i];

		if (ch->over || choice_read(call, ch, now))
			continue;
		choice_error(call, ch, &err);
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
 * The backend is done with the call.  A stream with a slow client stays until
 * the client has read all of it; any other call ends here.
 */
static void call_end(struct call *call)
{
	call->handled = true;
	call_conclude(call);
	call->handled = false;
	if (call->conn)
		return;
	retry_ended(&call->svc->retry, call->begin_ns, (s64)kv_now_ns());
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

	/* A reader still has the call; the room is for the answer before. */
	if (!call->posted)
		return;
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
	/* Otherwise the running handler will see that the call is over. */
	if (call->ended && !call->handled)
		call_end(call);
}

void call_stop(struct call *call, const struct api_error *err)
{
	call_fail(call, err);
	call_cancel(call);
	if (call->ended)
		call_end(call);
}

/* The call has taken too long: at a reader, waiting or running. */
static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct call *call = arg;
	struct api_error err;

	api_fail(&err, 504, "", "request_timeout",
		 "the request took longer than the %u s that this server gives it",
		 call->svc->site->timeout_s);
	call_stop(call, &err);
}

static void call_arm(struct call *call)
{
	const struct timeval tv = { call->svc->site->timeout_s, 0 };

	if (!tv.tv_sec)
		return;
	evtimer_assign(&call->deadline, call->svc->loop.base, on_deadline, call);
	event_add(&call->deadline, &tv);
}

/* ---- beginning ---- */

/* On a reader's thread. */
static void on_to_reader(struct mail *m)
{
	struct call *call = container_of(m, struct call, to_reader);

	call->bad = call_read(call);
	mailbox_post(&call->svc->loop.mail, &call->read);
}

/* Back on the loop: the body is read, or refused. */
static void on_read(struct mail *m)
{
	struct call *call = container_of(m, struct call, read);

	if (call->conn && !call->bad && !(call->params.kind & API_TOKENS)) {
		call->posted = true;
		if (call->adapter)
			__atomic_add_fetch(&call->adapter->requests, 1, __ATOMIC_RELAXED);
		work_post(&call->work);
		return;
	}
	if (call->conn && call->bad)
		call_fail(call, &call->err);
	else if (call->conn)
		conn_reply(call_let_go(call), 200, "application/json", NULL,
			   call->prefix.p, call->prefix.len);
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
	call->flow = conn_key(c);
	call->created = time(NULL);
	call->begin_ns = (s64)kv_now_ns();
	call->to_reader.fn = on_to_reader;
	call->read.fn = on_read;
	call->owner.gone = on_gone;
	call->owner.writable = on_writable;
	call->work.b = svc->site->backends;
	call->work.to = &svc->loop.mail;
	call->work.out.fn = on_out;
	call->work.done.fn = on_done;
	call->work.release = call_release;
	return call;
}

void call_start(struct service *svc, struct conn *c, enum api_kind kind,
		const struct http_request *r)
{
	struct reader *reader = &svc->site->readers[r->len > SERVICE_LONG];
	struct api_error err;
	struct call *call;

	if (service_admit(svc, kind & API_TOKENS, &err)) {
		service_refuse(svc, c, &err);
		return;
	}
	call = call_create(svc, c, kind);
	if (!call) {
		service_leave(svc);
		api_fail(&err, 503, "", "out_of_memory", "no memory for the request");
		service_refuse(svc, c, &err);
		return;
	}
	strcpy(call->request_id, r->head.id);
	conn_steal_body(c, &call->body);
	conn_own(c, &call->owner);
	call_link(call);
	call_arm(call);
	mailbox_post(&reader->mail, &call->to_reader);
}
