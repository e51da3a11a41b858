// SPDX-License-Identifier: Apache-2.0
/*
 * hint.c - the paths of sessions: hints from clients, and answers
 *
 *	loop	hint_start: read it, take a place		service.c
 *	backend	on_in: do it, or wait for the engine		session.c
 *	loop	on_out: answer, give the place back
 *
 * A hint is short, so the loop reads it itself.  Its client may leave at any time;
 * that sets @conn to NULL, and the hint is done nevertheless.
 */
#include <ctype.h>
#include <stdlib.h>

#include "runtime/server/hint.h"
#include "runtime/server/models.h"
#include "runtime/server/worker.h"

#define HINT_BODY_MAX	4096u

/**
 * struct hint - one request
 * @all: it asks for all sessions: @t is the answer
 */
struct hint {
	struct conn_owner	owner;
	struct service		*svc;
	struct conn		*conn;
	struct backend		*b;
	struct mail		in;
	struct mail		out;
	struct session_job	job;
	bool			all;
	struct text		t;
};

static void on_gone(struct conn_owner *o)
{
	container_of(o, struct hint, owner)->conn = NULL;
}

static void on_writable(struct conn_owner *o)
{
}

/* ---- the answer ---- */

static void hint_answer(struct hint *h, struct conn *c)
{
	struct api_error err;

	if (h->job.told.unknown) {
		api_fail(&err, 404, "name", "session_not_found",
			 "there is no session %s with this key, model and cache_salt: it never was, or is forgotten",
			 h->job.name);
		service_refuse(h->svc, c, &err);
		return;
	}
	if (!h->all) {
		session_write(&h->t, h->job.name, &h->job.told);
		text_puts(&h->t, "\n");
	}
	if (h->t.failed)
		conn_abort(c);
	else
		conn_reply(c, 200, "application/json", NULL, h->t.p, h->t.len);
}

static void on_out(struct mail *m)
{
	struct hint *h = container_of(m, struct hint, out);
	struct conn *c = h->conn;

	if (c) {
		conn_own(c, NULL);
		hint_answer(h, c);
	}
	service_leave(h->svc);
	text_free(&h->t);
	free(h);
}

/* ---- on the backend's thread ---- */

static void on_done(struct session_job *job)
{
	struct hint *h = container_of(job, struct hint, job);

	backend_post(h->b, &h->svc->loop.mail, &h->out);
}

static void on_in(struct mail *m)
{
	struct hint *h = container_of(m, struct hint, in);

	if (h->all) {
		sessions_list(&h->b->sessions, &h->job, &h->t);
		on_done(&h->job);
	} else {
		session_do(&h->b->sessions, &h->job);
	}
}

/* ---- the request ---- */

/* Copy a part of a query, with its %-codes decoded.  Return: NULL: no memory. */
static char *query_text(const char *p, size_t n)
{
	char *out = malloc(n + 1), *at = out, hex[3] = "";

	for (; out && n; p++, n--) {
		if (*p == '%' && n > 2 && isxdigit((u8)p[1]) && isxdigit((u8)p[2])) {
			memcpy(hex, p + 1, 2);
			*at++ = (char)strtoul(hex, NULL, 16);
			p += 2;
			n -= 2;
		} else {
			*at++ = *p == '+' ? ' ' : *p;
		}
	}
	if (out)
		*at = '\0';
	return out;
}

/* Add NAME=VALUE of a query to an object. */
static int query_add(json_t *o, const char *p, size_t n)
{
	const char *eq = memchr(p, '=', n);
	const size_t len = eq ? (size_t)(eq - p) : n;
	char *name = query_text(p, len);
	char *value = eq ? query_text(eq + 1, n - len - 1) : NULL;
	int ret = -1;

	if (name && (value || !eq))
		ret = json_object_set_new(o, name, json_string(value ? value : ""));
	free(name);
	free(value);
	return ret;
}

/* The members of a query, as an object of strings; NULL with @err. */
static json_t *query_read(const struct http_head *h, struct api_error *err)
{
	const char *p = h->query, *end = p + h->query_len, *to;
	json_t *o = json_object();

	for (; o && p < end; p = to + 1) {
		to = memchr(p, '&', (size_t)(end - p));
		to = to ? to : end;
		if (to > p && query_add(o, p, (size_t)(to - p))) {
			json_decref(o);
			o = NULL;
			break;
		}
	}
	if (!o)
		api_fail(err, 400, "", "invalid_value",
			 "the query of the path is no text in UTF-8");
	return o;
}

static json_t *hint_parse(const struct http_request *r, struct api_error *err)
{
	if (r->head.method != HTTP_POST)
		return query_read(&r->head, err);
	if (r->head.query_len) {
		api_fail(err, 400, "", "invalid_value",
			 "a hint has cache_salt and model in its body, not in the query of the path");
		return NULL;
	}
	if (r->len > HINT_BODY_MAX) {
		api_fail(err, 413, "", "request_too_large",
			 "a hint has at most %u bytes", HINT_BODY_MAX);
		return NULL;
	}
	return api_parse(r->len ? r->body : "", r->len, err);
}

/* Read the request into @job.  Return: the backend, or NULL with @err. */
static struct backend *hint_of(struct service *svc, const struct http_request *r,
			       const char *name, size_t len,
			       struct session_job *job, struct api_error *err)
{
	json_t *root = hint_parse(r, err);
	struct served_adapter *a = NULL;
	struct backend *b = NULL;

	if (root)
		b = models_route(svc->site, root, &a, err);
	if (b && (backend_is_loaded(b, err) ||
		  (job->op == SESSION_HINT && backend_admits(b, err)) ||
		  session_fits(a, job->op == SESSION_HINT, "hint", err) ||
		  hint_read(&b->api, name, len, root, job, err)))
		b = NULL;
	if (a)
		job->adapter = a->number;
	served_put(a);
	json_decref(root);
	return b;
}

void hint_start(struct service *svc, struct conn *c, const struct http_request *r,
		const char *name, size_t len)
{
	struct hint *h = calloc(1, sizeof(*h));
	struct api_error err;

	if (!h) {
		api_fail(&err, 503, "", "out_of_memory", "no memory for the request");
		service_refuse(svc, c, &err);
		return;
	}
	h->job.op = r->head.method == HTTP_POST ? SESSION_HINT :
		    r->head.method == HTTP_DELETE ? SESSION_END : SESSION_LOOK;
	h->b = hint_of(svc, r, name, len, &h->job, &err);
	if (!h->b || service_admit(svc, true, &err)) {
		free(h);
		service_refuse(svc, c, &err);
		return;
	}
	h->svc = svc;
	h->conn = c;
	h->owner.gone = on_gone;
	h->owner.writable = on_writable;
	h->in.fn = on_in;
	h->out.fn = on_out;
	h->all = !name;
	h->job.key = conn_key(c);
	h->job.done = on_done;
	conn_own(c, &h->owner);
	mailbox_post(&h->b->inbox, &h->in);
}
