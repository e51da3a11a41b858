// SPDX-License-Identifier: Apache-2.0
/*
 * route.c - paths of the server and their handlers
 *
 * Every error has OpenAI's form, on any path.  The API key guards the paths
 * that cost something.  Health and metrics are for machines that have no key.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/version.h>

#include "runtime/server/adapter_job.h"
#include "runtime/server/call.h"
#include "runtime/server/hint.h"
#include "runtime/server/models.h"
#include "runtime/server/route.h"

typedef void route_fn(struct service *svc, struct conn *c,
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
	conn_tell_error(c, err->code, err->param);
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

static void route_completions(struct service *svc, struct conn *c,
			      const struct http_request *r)
{
	call_start(svc, c, API_COMPLETION, r);
}

static void route_chat(struct service *svc, struct conn *c,
		       const struct http_request *r)
{
	call_start(svc, c, API_CHAT, r);
}

static void route_tokenize(struct service *svc, struct conn *c,
			   const struct http_request *r)
{
	call_start(svc, c, API_TOKENIZE, r);
}

static void route_detokenize(struct service *svc, struct conn *c,
			     const struct http_request *r)
{
	call_start(svc, c, API_DETOKENIZE, r);
}

static void route_load_adapter(struct service *svc, struct conn *c,
			       const struct http_request *r)
{
	adapter_job_start(svc, c, r, true);
}

static void route_unload_adapter(struct service *svc, struct conn *c,
				 const struct http_request *r)
{
	adapter_job_start(svc, c, r, false);
}

/* Write a model, or an adapter of it. */
static void write_model(const struct site *s, const struct backend *b,
			const struct served_adapter *a, struct text *t)
{
	text_puts(t, "{\"id\":");
	text_jsons(t, a ? a->name : b->o.name);
	text_printf(t, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"kvmm\",\"root\":",
		    (long long)s->created);
	text_jsons(t, a ? a->dir : b->o.dir);
	text_puts(t, ",\"parent\":");
	text_jsons(t, a ? b->o.name : NULL);
	if (backend_get_state(b) != BACKEND_LOADING && b->api.info)
		text_printf(t, ",\"max_model_len\":%u", b->api.info->max_len);
	text_puts(t, "}");
}

/* The list of models while the adapters of a model are written. */
struct model_list {
	const struct site	*s;
	const struct backend	*b;
	struct text		*t;
};

static void write_adapter(void *arg, const struct served_adapter *a)
{
	const struct model_list *l = arg;

	text_puts(l->t, ",");
	write_model(l->s, l->b, a, l->t);
}

static void route_models(struct service *svc, struct conn *c,
			 const struct http_request *r)
{
	const struct site *s = svc->site;
	struct text t = { 0 };
	u32 i;

	text_puts(&t, "{\"object\":\"list\",\"data\":[");
	for (i = 0; i < s->nr_backends; i++) {
		struct model_list l = { .s = s, .b = &s->backends[i], .t = &t };

		text_puts(&t, i ? "," : "");
		write_model(s, l.b, NULL, &t);
		served_each(&s->backends[i].adapters, write_adapter, &l);
	}
	text_puts(&t, "]}\n");
	reply(c, 200, NULL, &t);
	text_free(&t);
}

static void model_by_name(struct service *svc, struct conn *c,
			  const char *name, size_t len)
{
	struct backend *b = models_find(svc->site, name, len);
	struct served_adapter *a = NULL;
	struct api_error err;
	struct text t = { 0 };

	if (!b)
		a = models_adapter(svc->site, name, len, &b);
	if (!b) {
		models_unknown(svc->site, name, len, &err);
		reply_error(c, NULL, &err);
		return;
	}
	write_model(svc->site, b, a, &t);
	served_put(a);
	text_puts(&t, "\n");
	reply(c, 200, NULL, &t);
	text_free(&t);
}

static void route_sessions(struct service *svc, struct conn *c,
			   const struct http_request *r)
{
	hint_start(svc, c, r, NULL, 0);
}

static void route_health(struct service *svc, struct conn *c,
			 const struct http_request *r)
{
	const struct site *s = svc->site;
	struct text t = { 0 };
	bool lost = false;
	u32 i;

	for (i = 0; i < s->nr_backends; i++)
		lost |= backend_get_state(&s->backends[i]) == BACKEND_LOST;
	text_printf(&t, "{\"status\":\"%s\"}\n",
		    lost ? backend_state_name(BACKEND_LOST) : "ok");
	reply(c, lost ? 503 : 200, lost ? "Retry-After: 1\r\n" : NULL, &t);
	text_free(&t);
}

/* The reason why requests would be refused now; NULL: they would not. */
static const char *not_ready(const struct site *s,
			     const struct backend_view *v)
{
	if (READ_ONCE(s->draining))
		return "draining";
	if (v->state != BACKEND_ATTACHED)
		return backend_state_name(v->state);
	if (v->load.drained)
		return "drained";
	return v->silent_ns > (s64)s->stall_s * 1000000000 ? "stalled" : NULL;
}

/* List each of several models; a server is ready when all of them are. */
static void write_all_ready(const struct site *s, struct text *t)
{
	struct backend_view v;
	const char *why;
	u32 i;

	if (s->nr_backends == 1)
		return;
	text_puts(t, ",\"models\":[");
	for (i = 0; i < s->nr_backends; i++) {
		backend_look(&s->backends[i], &v);
		why = not_ready(s, &v);
		text_puts(t, i ? ",{\"id\":" : "{\"id\":");
		text_jsons(t, s->backends[i].o.name);
		text_printf(t, ",\"status\":\"%s\"}", why ? why : "ready");
	}
	text_puts(t, "]");
}

static void route_ready(struct service *svc, struct conn *c,
			const struct http_request *r)
{
	const struct site *s = svc->site;
	const char *why = NULL;
	struct backend_view v;
	struct text t = { 0 };
	char text[768];
	u32 i;

	for (i = 0; i < s->nr_backends; i++) {
		backend_look(&s->backends[i], &v);
		why = not_ready(s, &v);
		if (why)
			break;
	}
	text_printf(&t, "{\"status\":\"%s\"", why ? why : "ready");
	if (why) {
		backend_why(&s->backends[i], text, sizeof(text));
		if (v.load.drained)
			snprintf(text, sizeof(text),
				 "an operator has drained kvmm: no request begins until kvctl drain --off");
		text_puts(&t, ",\"message\":");
		text_jsons(&t, text);
	}
	write_all_ready(s, &t);
	text_puts(&t, "}\n");
	reply(c, why ? 503 : 200, why ? "Retry-After: 1\r\n" : NULL, &t);
	text_free(&t);
}

static void route_version(struct service *svc, struct conn *c,
			  const struct http_request *r)
{
	struct text t = { 0 };

	text_puts(&t, "{\"version\":\"" KVMM_VERSION "\"}\n");
	reply(c, 200, NULL, &t);
	text_free(&t);
}

static void look_at_models(const struct site *s, struct metrics_model *models)
{
	u32 i, k;

	for (i = 0; i < s->nr_backends; i++) {
		struct metrics_model *m = &models[i];

		m->name = s->backends[i].o.name;
		m->adapters = &s->backends[i].adapters;
		backend_look(&s->backends[i], &m->b);
		m->ready = !not_ready(s, &m->b);
		for (k = 0; k < s->nr_services; k++)
			metrics_add(&m->m, &s->services[k].metrics[i]);
	}
}

static void route_metrics(struct service *svc, struct conn *c,
			  const struct http_request *r)
{
	const struct site *s = svc->site;
	struct metrics_model *models = calloc(s->nr_backends, sizeof(*models));
	struct metrics_view v = {
		.models = models, .nr_models = s->nr_backends,
		.calls = READ_ONCE(s->nr_calls),
	};
	struct text t = { 0 };
	struct api_error err;
	u32 i;

	if (!models) {
		api_fail(&err, 503, "", "out_of_memory", "no memory");
		reply_error(c, "Retry-After: 1\r\n", &err);
		return;
	}
	look_at_models(s, models);
	for (i = 0; i < s->nr_services; i++)
		metrics_add_loop(&v, &s->services[i].loop);
	metrics_write(&t, &v);
	free(models);
	conn_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", NULL,
		   t.len ? t.p : "", t.len);
	text_free(&t);
}

/* ---- routing ---- */

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

static bool guarded(struct service *svc, struct conn *c,
		    const struct http_head *h)
{
	const struct keys *keys = svc->site->keys;
	struct api_error err;
	u32 key = 0;

	if (!keys->nr)
		return false;
	if (h->bearer)
		key = keys_find(keys, h->bearer, h->bearer_len);
	if (key) {
		conn_set_key(c, key, keys->list[key - 1].name);
		return false;
	}
	api_fail(&err, 401, "", "invalid_api_key",
		 "give an API key of this server as Authorization: Bearer KEY");
	reply_error(c, "WWW-Authenticate: Bearer\r\n", &err);
	return true;
}

void route_headers(struct loop *l, const struct http_head *h, struct text *t)
{
	const struct service *svc = l->arg;

	cors_headers(&svc->site->cors, h, t);
}

static const char *methods_of(enum http_method method)
{
	return method == HTTP_POST ? "POST" : "GET, HEAD";
}

/* Answer OPTIONS, to all: a browser asks without the key. */
static void route_options(struct service *svc, struct conn *c,
			  const struct http_head *h, const char *methods)
{
	struct text t = { 0 };

	text_printf(&t, "Allow: %s, OPTIONS\r\n", methods);
	cors_preflight(&svc->site->cors, h, methods, &t);
	text_add(&t, "", 1);
	conn_reply(c, 204, NULL, t.failed ? NULL : t.p, "", 0);
	text_free(&t);
}

/* The path is known, but not with this method. */
static void wrong_method(struct conn *c, const char *path, const char *methods,
			 const char *wants)
{
	struct api_error err;
	char allow[64];

	snprintf(allow, sizeof(allow), "Allow: %s, OPTIONS\r\n", methods);
	api_fail(&err, 405, "", "method_not_allowed", "%s wants %s", path, wants);
	reply_error(c, allow, &err);
}

static void no_route(struct conn *c, const struct http_head *h,
		     const struct route *known)
{
	struct api_error err;

	if (!known) {
		api_fail(&err, 404, "", "unknown_url",
			 "no such path: %.*s: use POST /v1/chat/completions, POST /v1/completions or GET /v1/models",
			 (int)min(h->path_len, (size_t)200), h->path);
		reply_error(c, NULL, &err);
		return;
	}
	wrong_method(c, known->path, methods_of(known->method),
		     known->method == HTTP_POST ? "POST" : "GET");
}

/* The part of the path after @folder, @len bytes; NULL: it is not below it. */
static const char *path_below(const struct http_head *h, const char *folder,
			      size_t *len)
{
	const size_t n = strlen(folder);

	*len = h->path_len - n;
	return h->path_len > n && !memcmp(h->path, folder, n) ? h->path + n : NULL;
}

/* Answer on a path with a name in it.  Return: whether it is one. */
static bool route_named(struct service *svc, struct conn *c,
			const struct http_request *r, enum http_method method)
{
	const struct http_head *h = &r->head;
	size_t len;
	const char *model = path_below(h, "/v1/models/", &len);
	const char *session = model ? NULL : path_below(h, "/v1/sessions/", &len);
	const bool more = session && (method == HTTP_POST || method == HTTP_DELETE);
	const char *methods = model ? methods_of(HTTP_GET) : "GET, HEAD, POST, DELETE";

	if (!model && !session)
		return false;
	if (method == HTTP_OPTIONS)
		route_options(svc, c, h, methods);
	else if (method != HTTP_GET && !more)
		wrong_method(c, model ? "/v1/models/NAME" : "/v1/sessions/NAME", methods,
			     model ? "GET" : "GET, POST or DELETE");
	else if (guarded(svc, c, h))
		return true;
	else if (model)
		model_by_name(svc, c, model, len);
	else
		hint_start(svc, c, r, session, len);
	return true;
}

void route_request(struct loop *l, struct conn *c,
		   const struct http_request *r)
{
	const struct http_head *h = &r->head;
	const enum http_method method =
		h->method == HTTP_HEAD ? HTTP_GET : h->method;
	const struct route *known = NULL;
	struct service *svc = l->arg;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(routes); i++) {
		if (!path_is(h, routes[i].path))
			continue;
		known = &routes[i];
		if (method == HTTP_OPTIONS) {
			route_options(svc, c, h, methods_of(known->method));
			return;
		}
		if (known->method != method)
			continue;
		if (!known->guarded || !guarded(svc, c, h))
			known->fn(svc, c, r);
		return;
	}
	if (method == HTTP_OPTIONS && path_is(h, "*")) {
		route_options(svc, c, h, "GET, HEAD, POST");
		return;
	}
	if (!known && route_named(svc, c, r, method))
		return;
	no_route(c, h, known);
}
