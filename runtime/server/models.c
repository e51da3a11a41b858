// SPDX-License-Identifier: Apache-2.0
/*
 * models.c - the model of a request, and whether it can answer now
 *
 * The field "model" of a body decides.  A request without it gets the only
 * model.  If there are several models it is refused, since the answer of the
 * wrong model is worse than none.
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

/* 'a', 'b' and so on, as many as fit. */
static void names_of(const struct site *s, char *out, size_t size)
{
	size_t n = 0;
	u32 i;

	for (i = 0; i < s->nr_backends && n + 110 < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s'%.100s'",
				      i ? ", " : "", s->backends[i].o.name);
	if (i < s->nr_backends)
		snprintf(out + n, size - n, " ..");
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
			"the server's GPU failed: try again in a moment");
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

struct backend *models_route(const struct site *s, const json_t *root,
			     struct api_error *err)
{
	const json_t *v = json_object_get(root, "model");
	struct backend *b;
	char names[300];

	if (json_is_string(v)) {
		b = models_find(s, json_string_value(v), json_string_length(v));
		if (!b)
			models_unknown(s, json_string_value(v),
				       json_string_length(v), err);
		return b;
	}
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
