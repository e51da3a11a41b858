// SPDX-License-Identifier: Apache-2.0
/*
 * models.c - the model of a request, and whether it can answer now
 *
 * The field "model" of a body decides.  A request without it gets the only
 * model.  If there are several models it is refused, since the answer of the
 * wrong model is worse than none.  The name of an adapter stands for its model
 * with the adapter.
 *
 * The list of backends does not change while there are threads.
 */
#include <stdio.h>

#include "runtime/server/models.h"

struct backend *models_find(const struct site *s, const char *name, size_t len)
{
	u32 i;

	for (i = 0; i < s->nr_backends; i++) {
		const char *have = s->backends[i].o.name;

		if (len == strlen(have) && !memcmp(name, have, len))
			return &s->backends[i];
	}
	return NULL;
}

struct served_adapter *models_adapter(const struct site *s, const char *name, size_t len,
				      struct backend **b)
{
	struct served_adapter *a = NULL;
	u32 i;

	for (i = 0; !a && i < s->nr_backends; i++) {
		a = served_get(&s->backends[i].adapters, name, len);
		if (a && b)
			*b = &s->backends[i];
	}
	return a;
}

/* Names for an error; @full: there are more than fit. */
struct names {
	char	*out;
	size_t	size;
	size_t	len;
	bool	full;
};

static void add_name(struct names *n, const char *name)
{
	n->full |= n->len + 110 >= n->size;
	if (!n->full)
		n->len += (size_t)snprintf(n->out + n->len, n->size - n->len, "%s'%.100s'",
					   n->len ? ", " : "", name);
}

static void add_adapter(void *arg, const struct served_adapter *a)
{
	add_name(arg, a->name);
}

/* 'a', 'b' and so on, as many as fit; the models before their adapters. */
static void names_of(const struct site *s, char *out, size_t size)
{
	struct names n = { .out = out, .size = size };
	u32 i;

	for (i = 0; i < s->nr_backends; i++)
		add_name(&n, s->backends[i].o.name);
	for (i = 0; i < s->nr_backends; i++)
		served_each(&s->backends[i].adapters, add_adapter, &n);
	if (n.full)
		snprintf(out + n.len, size - n.len, " ..");
}

int models_unknown(const struct site *s, const char *name, size_t len,
		   struct api_error *err)
{
	char names[300];

	names_of(s, names, sizeof(names));
	return api_fail(err, 404, "model", "model_not_found",
			"The model '%.*s' does not exist: this server has %s",
			(int)min(len, (size_t)100), name, names);
}

int backend_is_loaded(const struct backend *b, struct api_error *err)
{
	if (backend_get_state(b) != BACKEND_LOADING && b->api.tok)
		return 0;
	return api_fail(err, 503, "", "loading",
			"the model is being loaded: try again in a moment");
}

int backend_gone(struct api_error *err)
{
	/* The operator gets the reason elsewhere. */
	return api_fail(err, 503, "", "daemon_gone",
			"the server has no memory daemon now: try again in a moment");
}

int backend_lost(struct api_error *err)
{
	return api_fail(err, 503, "", "device_failed",
			"the GPU, or a process, of the server failed: try again in a moment");
}

int backend_admits(const struct backend *b, struct api_error *err)
{
	switch (backend_get_state(b)) {
	case BACKEND_LOADING:
		return backend_is_loaded(b, err);
	case BACKEND_DETACHED:
	case BACKEND_FAILED:
		return backend_gone(err);
	case BACKEND_LOST:
		return backend_lost(err);
	case BACKEND_ATTACHED:
		break;
	}
	return 0;
}

/* The name belongs to an adapter, or to nothing, where only a model may be named. */
static void no_model(const struct site *s, const char *name, size_t len, struct api_error *err)
{
	struct served_adapter *a = models_adapter(s, name, len, NULL);

	if (a)
		api_fail(err, 404, "model", "model_not_found",
			 "'%.100s' is an adapter: give the name of its model", a->name);
	else
		models_unknown(s, name, len, err);
	served_put(a);
}

/* The model that has this name, or an adapter with this name. */
static struct backend *route_name(const struct site *s, const char *name, size_t len,
				  struct served_adapter **adapter, struct api_error *err)
{
	struct backend *b = models_find(s, name, len);

	if (!b && adapter)
		*adapter = models_adapter(s, name, len, &b);
	if (!b)
		no_model(s, name, len, err);
	return b;
}

struct backend *models_route(const struct site *s, const json_t *root,
			     struct served_adapter **adapter, struct api_error *err)
{
	const json_t *v = json_object_get(root, "model");
	char names[300];

	if (adapter)
		*adapter = NULL;
	if (json_is_string(v))
		return route_name(s, json_string_value(v), json_string_length(v), adapter, err);
	/* Other errors in the body are reported by the code that reads it. */
	if (s->nr_backends == 1 || !json_is_object(root))
		return s->backends;
	names_of(s, names, sizeof(names));
	if (!v || json_is_null(v))
		api_fail(err, 400, "model", "missing_parameter",
			 "model is missing: this server has %s", names);
	else
		api_fail(err, 400, "model", "invalid_value",
			 "model must be a string: this server has %s", names);
	return NULL;
}
