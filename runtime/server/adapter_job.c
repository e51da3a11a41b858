// SPDX-License-Identifier: Apache-2.0
/*
 * adapter_job.c - load and unload adapters while serving
 *
 *	loop	adapter_job_start: read the body, take a place	service.c
 *	loader	on_load: read the files, give the name		served.c
 *	loop	on_out: answer, give the place back
 *
 * The paths and fields are vLLM's.  The thread that loads has no other work, so neither
 * the engine nor the sockets wait for files.  It loads one adapter after the other.  A name is
 * taken on this thread alone, so two requests never get the same.
 *
 * Unloading needs no file: the loop does it at once.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/log.h>

#include "runtime/server/adapter_job.h"
#include "runtime/server/models.h"

#define BODY_MAX	16384u

/**
 * struct adapter_job - one request to load
 * @conn: NULL: the client has gone
 */
struct adapter_job {
	struct conn_owner	owner;
	struct service		*svc;
	struct conn		*conn;
	struct backend		*b;
	struct mail		in;
	struct mail		out;
	struct adapter_order	order;
	bool			bad;
	struct api_error	err;
};

/* ---- the body ---- */

static int read_text(const char *key, const json_t *v, char *out, size_t size,
		     struct api_error *err)
{
	const size_t len = json_string_length(v);

	if (!json_is_string(v))
		return api_fail(err, 400, key, "invalid_value", "%s must be a string", key);
	if (!len || len >= size)
		return api_fail(err, 400, key, "invalid_value",
				"%s must have 1 to %zu bytes", key, size - 1);
	memcpy(out, json_string_value(v), len + 1);
	return 0;
}

static int read_name(const json_t *v, char *out, struct api_error *err)
{
	if (read_text("lora_name", v, out, SERVED_NAME_MAX + 1, err))
		return -1;
	if (served_is_name(out, strlen(out)))
		return 0;
	return api_fail(err, 400, "lora_name", "invalid_value",
			"lora_name has control characters: leave them out");
}

/* vLLM's flag for another layout of the weights of experts. */
static int read_layout(const json_t *v, struct api_error *err)
{
	if (json_is_false(v))
		return 0;
	return api_fail(err, 400, "is_3d_lora_weight", "unsupported_parameter",
			"is_3d_lora_weight is not supported: leave it out");
}

static int read_member(const char *key, const json_t *v, bool load, struct adapter_order *o,
		       struct api_error *err)
{
	/* models_route() has read the model. */
	if (json_is_null(v) || !strcmp(key, "model"))
		return 0;
	if (!strcmp(key, "lora_name"))
		return read_name(v, o->name, err);
	if (load && !strcmp(key, "lora_path"))
		return read_text(key, v, o->dir, sizeof(o->dir), err);
	if (load && !strcmp(key, "is_3d_lora_weight"))
		return read_layout(v, err);
	/* The name alone says which adapter is meant. */
	if (!load && !strcmp(key, "lora_int_id"))
		return json_is_integer(v) ? 0 :
		       api_fail(err, 400, key, "invalid_value", "%s must be a whole number", key);
	if (!load || strcmp(key, "load_inplace"))
		return api_fail(err, 400, key, "unknown_parameter",
				"%.60s is no parameter of this path", key);
	if (!json_is_boolean(v))
		return api_fail(err, 400, key, "invalid_value", "%s must be true or false", key);
	o->inplace = json_is_true(v);
	return 0;
}

int adapter_order_read(const json_t *root, bool load, struct adapter_order *o,
		       struct api_error *err)
{
	const char *key;
	json_t *v;

	memset(o, 0, sizeof(*o));
	if (!json_is_object(root))
		return api_fail(err, 400, "", "invalid_json",
				"The body is JSON but no object");
	json_object_foreach((json_t *)(uintptr_t)root, key, v)
		if (read_member(key, v, load, o, err))
			return -1;
	if (!*o->name)
		return api_fail(err, 400, "lora_name", "missing_parameter",
				"lora_name is missing: give the name of the adapter");
	if (load && !*o->dir)
		return api_fail(err, 400, "lora_path", "missing_parameter",
				"lora_path is missing: give the folder of the adapter on the server's machine");
	return 0;
}

/* ---- the name ---- */

static int name_taken(const char *name, struct api_error *err)
{
	return api_fail(err, 400, "lora_name", "adapter_exists",
			"an adapter has the name '%s': unload it, or give load_inplace to replace it",
			name);
}

/* May an adapter of @b get this name?  Return: 0, or -1 with @err. */
static int name_judge(const struct site *s, const struct backend *b,
		      const struct adapter_order *o, struct api_error *err)
{
	struct served_adapter *a;
	struct backend *of;
	bool free;

	if (models_find(s, o->name, strlen(o->name)))
		return api_fail(err, 400, "lora_name", "adapter_exists",
				"a model has the name '%s': give the adapter another", o->name);
	a = models_adapter(s, o->name, strlen(o->name), &of);
	free = !a || (of == b && o->inplace);
	served_put(a);
	return free ? 0 : name_taken(o->name, err);
}

/* ---- loading ---- */

static int load_failed(int ret, const char *why, struct api_error *err)
{
	if (ret == -ENOENT)
		return api_fail(err, 404, "lora_path", "adapter_not_found", "%s", why);
	if (ret == -ENOMEM)
		return api_fail(err, 503, "", "out_of_memory", "no memory for the adapter");
	return api_fail(err, 400, "lora_path", "invalid_adapter", "%s", why);
}

static int name_failed(int ret, const char *name, struct api_error *err)
{
	if (ret == -EEXIST)
		return name_taken(name, err);
	if (ret == -ENOSPC)
		return api_fail(err, 400, "lora_name", "too_many_adapters",
				"the model has %u adapters, as many as there may be: unload one",
				SERVED_MAX);
	return api_fail(err, 503, "", "out_of_memory", "no memory for the adapter");
}

static int load(struct adapter_job *j)
{
	const struct adapter_order *o = &j->order;
	struct backend *b = j->b;
	struct adapter_info info;
	struct adapter *adapter;
	struct model_error why;
	int ret;

	if (READ_ONCE(j->svc->site->draining))
		return api_fail(&j->err, 503, "", "shutting_down",
				"the server is shutting down");
	if (name_judge(j->svc->site, b, o, &j->err))
		return -1;
	ret = adapter_load(b->model, o->dir, b->o.engine.max_rank, &adapter, &why);
	if (ret)
		return load_failed(ret, why.text, &j->err);
	/* Once it has its name, a request to unload it may free it at any time. */
	info = *adapter_info(adapter);
	info.dir = o->dir;
	ret = served_add(&b->adapters, o->name, o->dir, adapter, o->inplace);
	if (!ret) {
		served_log(o->name, &info);
		return 0;
	}
	adapter_free(adapter);
	return name_failed(ret, o->name, &j->err);
}

/* On the loader's thread. */
static void on_load(struct mail *m)
{
	struct adapter_job *j = container_of(m, struct adapter_job, in);

	j->bad = load(j);
	mailbox_post(&j->svc->loop.mail, &j->out);
}

/* ---- the answer ---- */

static void answer(struct conn *c, const char *name, const char *how)
{
	char line[SERVED_NAME_MAX + 64];
	const int n = snprintf(line, sizeof(line), "adapter %s is %s\n", name, how);

	conn_reply(c, 200, "text/plain; charset=utf-8", NULL, line, (size_t)n);
}

static void on_out(struct mail *m)
{
	struct adapter_job *j = container_of(m, struct adapter_job, out);
	struct conn *c = j->conn;

	if (c) {
		conn_own(c, NULL);
		if (j->bad)
			service_refuse(j->svc, c, &j->err);
		else
			answer(c, j->order.name, "loaded");
	}
	service_leave(j->svc);
	free(j);
}

static void on_gone(struct conn_owner *o)
{
	container_of(o, struct adapter_job, owner)->conn = NULL;
}

static void on_writable(struct conn_owner *o)
{
}

/* ---- the request ---- */

static json_t *body_parse(const struct http_request *r, struct api_error *err)
{
	if (r->len > BODY_MAX) {
		api_fail(err, 413, "", "request_too_large",
			 "the body of this path has at most %u bytes", BODY_MAX);
		return NULL;
	}
	return api_parse(r->len ? r->body : "", r->len, err);
}

/* Read the body.  Return: the model, or NULL with @err. */
static struct backend *order_of(struct service *svc, const struct http_request *r,
				struct adapter_order *o, struct api_error *err)
{
	json_t *root = body_parse(r, err);
	struct backend *b = NULL;

	if (root && !adapter_order_read(root, true, o, err))
		b = models_route(svc->site, root, NULL, err);
	json_decref(root);
	if (b && (backend_is_loaded(b, err) || name_judge(svc->site, b, o, err)))
		b = NULL;
	return b;
}

static void start_load(struct service *svc, struct conn *c, const struct http_request *r)
{
	struct adapter_job *j = calloc(1, sizeof(*j));
	struct api_error err;

	if (!j) {
		api_fail(&err, 503, "", "out_of_memory", "no memory for the request");
		service_refuse(svc, c, &err);
		return;
	}
	j->b = order_of(svc, r, &j->order, &err);
	if (!j->b || service_admit(svc, true, &err)) {
		free(j);
		service_refuse(svc, c, &err);
		return;
	}
	j->svc = svc;
	j->conn = c;
	j->owner.gone = on_gone;
	j->owner.writable = on_writable;
	j->in.fn = on_load;
	j->out.fn = on_out;
	conn_own(c, &j->owner);
	mailbox_post(&svc->site->loader.mail, &j->in);
}

/* Return: 0, or -1 with @err. */
static int unload(const struct site *s, const struct adapter_order *o, struct api_error *err)
{
	const size_t len = strlen(o->name);
	u32 i;

	for (i = 0; i < s->nr_backends; i++) {
		struct backend *b = &s->backends[i];

		/* Its thread reads the list while it loads. */
		if (backend_get_state(b) == BACKEND_LOADING)
			continue;
		if (served_remove(&b->adapters, o->name, len))
			continue;
		pr_info("adapter %s: unloaded", o->name);
		return 0;
	}
	return api_fail(err, 404, "lora_name", "adapter_not_found",
			"there is no adapter '%s'", o->name);
}

static void start_unload(struct service *svc, struct conn *c, const struct http_request *r)
{
	struct adapter_order o;
	struct api_error err;
	json_t *root = body_parse(r, &err);
	int ret = -1;

	if (root && !adapter_order_read(root, false, &o, &err))
		ret = unload(svc->site, &o, &err);
	json_decref(root);
	if (ret)
		service_refuse(svc, c, &err);
	else
		answer(c, o.name, "unloaded");
}

void adapter_job_start(struct service *svc, struct conn *c, const struct http_request *r,
		       bool load)
{
	struct api_error err;

	if (!svc->site->load_adapters) {
		api_fail(&err, 403, "", "adapters_disabled",
			 "this server loads and unloads no adapters while it serves: start it with --enable-lora");
		service_refuse(svc, c, &err);
		return;
	}
	if (load)
		start_load(svc, c, r);
	else
		start_unload(svc, c, r);
}
