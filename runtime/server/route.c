// SPDX-License-Identifier: Apache-2.0
/*
 * route.c - paths of the server, and what answers there
 *
 * Every error has OpenAI's form, whatever path it is on.  The API key guards
 * what costs something; health and figures are for machines that have none.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/version.h>

#include "runtime/server/route.h"

typedef void route_fn(struct site *s, struct conn *c,
		      const struct http_request *r);

static void reply(struct conn *c, int status, const char *headers,
		  const struct text *t)
{
	conn_reply(c, status, "application/json", headers, t->len ? t->p : "",
		   t->len);
}

static void reply_error(struct conn *c, const char *headers,
			const struct api_error *err)
{
	struct text t = { 0 };

	api_error_json(&t, err);
	text_puts(&t, "\n");
	reply(c, err->status, headers, &t);
	text_free(&t);
}

void route_refuse(struct text *t, int status, const char *code,
		  const char *why)
{
	struct api_error err;

	api_fail(&err, status, "", code, "%s", why);
	api_error_json(t, &err);
	text_puts(t, "\n");
}

/* ---- handlers ---- */

static void route_completions(struct site *s, struct conn *c,
			      const struct http_request *r)
{
	call_start(s->svc, c, API_COMPLETION, r);
}

static void route_chat(struct site *s, struct conn *c,
		       const struct http_request *r)
{
	call_start(s->svc, c, API_CHAT, r);
}

static void write_model(struct site *s, struct text *t)
{
	const struct backend *b = s->svc->b;

	text_puts(t, "{\"id\":");
	text_jsons(t, b->o.name);
	text_printf(t, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"kvmm\",\"root\":",
		    (long long)s->created);
	text_jsons(t, b->o.dir);
	text_puts(t, ",\"parent\":null");
	if (backend_get_state(b) != BACKEND_LOADING && b->api.info)
		text_printf(t, ",\"max_model_len\":%u", b->api.info->max_len);
	text_puts(t, "}");
}

static void route_models(struct site *s, struct conn *c,
			 const struct http_request *r)
{
	struct text t = { 0 };

	text_puts(&t, "{\"object\":\"list\",\"data\":[");
	write_model(s, &t);
	text_puts(&t, "]}\n");
	reply(c, 200, NULL, &t);
	text_free(&t);
}

static void model_by_name(struct site *s, struct conn *c, const char *name,
			  size_t len)
{
	const char *have = s->svc->b->o.name;
	struct api_error err;
	struct text t = { 0 };

	if (len != strlen(have) || memcmp(name, have, len)) {
		api_fail(&err, 404, "model", "model_not_found",
			 "The model '%.*s' does not exist: this server has '%.100s'",
			 (int)min(len, (size_t)100), name, have);
		reply_error(c, NULL, &err);
		return;
	}
	write_model(s, &t);
	text_puts(&t, "\n");
	reply(c, 200, NULL, &t);
	text_free(&t);
}

static void route_health(struct site *s, struct conn *c,
			 const struct http_request *r)
{
	struct text t = { 0 };

	text_puts(&t, "{\"status\":\"ok\"}\n");
	reply(c, 200, NULL, &t);
	text_free(&t);
}

/* Why requests would not be worked at now; NULL: they would. */
static const char *not_ready(const struct site *s,
			     const struct backend_view *v)
{
	if (s->svc->draining)
		return "draining";
	if (v->state != BACKEND_ATTACHED)
		return backend_state_name(v->state);
	return v->silent_ns > (s64)s->stall_s * 1000000000 ? "stalled" : NULL;
}

static void route_ready(struct site *s, struct conn *c,
			const struct http_request *r)
{
	struct backend_view v;
	struct text t = { 0 };
	const char *why;
	char text[512];

	backend_look(s->svc->b, &v);
	why = not_ready(s, &v);
	if (!why) {
		text_puts(&t, "{\"status\":\"ready\"}\n");
		reply(c, 200, NULL, &t);
	} else {
		backend_why(s->svc->b, text, sizeof(text));
		text_printf(&t, "{\"status\":\"%s\",\"message\":", why);
		text_jsons(&t, text);
		text_puts(&t, "}\n");
		reply(c, 503, "Retry-After: 1\r\n", &t);
	}
	text_free(&t);
}

static void route_version(struct site *s, struct conn *c,
			  const struct http_request *r)
{
	struct text t = { 0 };

	text_puts(&t, "{\"version\":\"" KVMM_VERSION "\"}\n");
	reply(c, 200, NULL, &t);
	text_free(&t);
}

static void route_metrics(struct site *s, struct conn *c,
			  const struct http_request *r)
{
	struct backend_view b;
	struct metrics_view v = {
		.model = s->svc->b->o.name, .m = &s->svc->metrics,
		.loop = s->svc->loop, .b = &b, .calls = s->svc->nr_calls,
	};
	struct text t = { 0 };

	backend_look(s->svc->b, &b);
	v.ready = !not_ready(s, &b);
	metrics_write(&t, &v);
	conn_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", NULL,
		   t.len ? t.p : "", t.len);
	text_free(&t);
}

/* ---- which one ---- */

static const struct route {
	enum http_method	method;
	const char		*path;
	route_fn		*fn;
	bool			guarded;
} routes[] = {
#define x(_method, _path, _fn, _guarded, _text)				\
	{ HTTP_##_method, _path, route_##_fn, _guarded },
	ROUTES(x)
#undef x
};

static bool path_is(const struct http_head *h, const char *path)
{
	return h->path_len == strlen(path) &&
	       !memcmp(h->path, path, h->path_len);
}

/* Takes as long for any key of the right length. */
static bool key_is_right(const struct site *s, const struct http_head *h)
{
	u8 differ = 0;
	size_t i;

	if (!s->key)
		return true;
	if (!h->bearer || h->bearer_len != strlen(s->key))
		return false;
	for (i = 0; i < h->bearer_len; i++)
		differ |= (u8)(h->bearer[i] ^ s->key[i]);
	return !differ;
}

static bool guarded(struct site *s, struct conn *c, const struct http_head *h)
{
	struct api_error err;

	if (key_is_right(s, h))
		return false;
	api_fail(&err, 401, "", "invalid_api_key",
		 "give the API key of this server as Authorization: Bearer KEY");
	reply_error(c, "WWW-Authenticate: Bearer\r\n", &err);
	return true;
}

static void no_route(struct conn *c, const struct http_head *h,
		     const struct route *known)
{
	struct api_error err;
	char allow[32];

	if (!known) {
		api_fail(&err, 404, "", "unknown_url",
			 "no such path: %.*s: see Documentation/server.md",
			 (int)min(h->path_len, (size_t)200), h->path);
		reply_error(c, NULL, &err);
		return;
	}
	snprintf(allow, sizeof(allow), "Allow: %s\r\n",
		 known->method == HTTP_POST ? "POST" : "GET, HEAD");
	api_fail(&err, 405, "", "method_not_allowed", "%s wants %s",
		 known->path, known->method == HTTP_POST ? "POST" : "GET");
	reply_error(c, allow, &err);
}

void route_request(struct loop *l, struct conn *c,
		   const struct http_request *r)
{
	static const char models[] = "/v1/models/";
	const size_t n = sizeof(models) - 1;
	const struct http_head *h = &r->head;
	const enum http_method method =
		h->method == HTTP_HEAD ? HTTP_GET : h->method;
	const struct route *known = NULL;
	struct site *s = l->arg;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(routes); i++) {
		if (!path_is(h, routes[i].path))
			continue;
		known = &routes[i];
		if (known->method != method)
			continue;
		if (!known->guarded || !guarded(s, c, h))
			known->fn(s, c, r);
		return;
	}
	if (method == HTTP_GET && h->path_len > n && !memcmp(h->path, models, n)) {
		if (!guarded(s, c, h))
			model_by_name(s, c, h->path + n, h->path_len - n);
		return;
	}
	no_route(c, h, known);
}
