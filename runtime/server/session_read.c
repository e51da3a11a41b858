// SPDX-License-Identifier: Apache-2.0
/*
 * session_read.c - sessions and hints in the bodies of clients
 */
#include <stdio.h>
#include <string.h>

#include "runtime/server/fields.h"
#include "runtime/server/session.h"

#define SECONDS_MAX	86400		/* a day, the daemon's longest */
#define SECONDS_DEF	60		/* of a hint that gives none */

/* Letters that a name may have; the path of a hint needs no %-codes for them. */
static const char name_letters[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";

/* @s has no NUL where it is a part of a path. */
static bool is_name(const char *s, size_t len)
{
	size_t i = 0;

	while (i < len && memchr(name_letters, s[i], sizeof(name_letters) - 1))
		i++;
	return len && i == len && len <= API_SESSION_MAX;
}

static int read_name(struct api_error *err, const char *key, const char *s,
		     size_t len, char *out)
{
	if (!s || !is_name(s, len))
		return api_fail(err, 400, key, "invalid_value",
				"%s must have 1 to %u characters, of A-Z, a-z, 0-9, ., _, : and -",
				key, API_SESSION_MAX);
	memcpy(out, s, len);
	out[len] = '\0';
	return 0;
}

static int read_seconds(struct api_error *err, const char *key, const json_t *v,
			u32 *ms)
{
	const double s = json_is_number(v) ? json_number_value(v) : 0;

	if (!(s >= 0.001 && s <= SECONDS_MAX))
		return api_fail(err, 400, key, "invalid_value",
				"%s must be a number of seconds from 0.001 to %d",
				key, SECONDS_MAX);
	*ms = (u32)(s * 1000);
	return 0;
}

/* ---- the field of a request ---- */

int field_session(struct field_ctx *c, const char *key, const json_t *v)
{
	struct api_session *s = &c->p->session;
	const json_t *name = json_is_object(v) ? json_object_get(v, "name") : v;
	const char *member;
	json_t *o;

	if (read_name(c->err, json_is_object(v) ? "session.name" : key,
		      json_string_value(name), json_string_length(name), s->name))
		return -1;
	if (!json_is_object(v))
		return 0;
	json_object_foreach((json_t *)(uintptr_t)v, member, o) {
		if (!strcmp(member, "name") || json_is_null(o))
			continue;
		if (strcmp(member, "retain"))
			return api_fail(c->err, 400, key, "unknown_parameter",
					"session.%.60s is no member of session: there are name and retain",
					member);
		if (read_seconds(c->err, "session.retain", o, &s->ms))
			return -1;
	}
	return 0;
}

int session_judge(struct field_ctx *c)
{
	const struct api_params *p = c->p;

	if (!*p->session.name)
		return 0;
	if (p->nr_prompts > 1 || p->drawn > 1 || p->beam_width)
		return api_fail(c->err, 400, "session", "invalid_value",
				"a session has one prompt and one answer: give one prompt, without n, best_of and use_beam_search, or leave session out");
	if (p->score != ENGINE_NO_LOGPROBS)
		return api_fail(c->err, 400, "session", "invalid_value",
				"session cannot be given with prompt_logprobs, or echo and logprobs: the blocks of such a prompt are not cached");
	return 0;
}

/* ---- a hint ---- */

/* The engine's leases find the blocks of the model alone. */
int session_fits(const void *adapter, bool hint, const char *param, struct api_error *err)
{
	if (!adapter || !hint)
		return 0;
	return api_fail(err, 400, param, "unsupported_parameter",
			"%s: there are no hints about prompts of an adapter: leave it out", param);
}

static const struct {
	const char		*name;
	enum engine_hint	hint;
	bool			timed;
} hints[] = {
#define x(name, hint, timed) { #name, hint, timed },
	SESSION_HINTS(x)
#undef x
};

static int read_hint(struct session_job *job, const json_t *v, bool *timed,
		     struct api_error *err)
{
	const char *s = json_string_value(v);
	u32 i;

	for (i = 0; s && i < ARRAY_SIZE(hints); i++) {
		if (strcmp(s, hints[i].name))
			continue;
		job->hint = hints[i].hint;
		*timed = hints[i].timed;
		return 0;
	}
	return api_fail(err, 400, "hint", v ? "invalid_value" : "missing_parameter",
			"%s%.60s%s: give retain, demote, prefetch, pin or unpin",
			s ? "there is no hint " : "hint must be a string", s ? s : "",
			v ? "" : ", and is missing");
}

static int read_member(const struct api_model *m, struct session_job *job,
		       const char *name, const json_t *v, struct api_error *err)
{
	struct api_params p = { .salt = 0 };
	struct field_ctx c = { .m = m, .p = &p, .err = err };
	const bool body = job->op == SESSION_HINT;

	if (!strcmp(name, "model") || json_is_null(v))
		return 0;		/* models_route() has read it */
	if (!strcmp(name, "cache_salt")) {
		if (field_cache_salt(&c, name, v))
			return -1;
		job->salt = p.salt;
		return 0;
	}
	if (body && !strcmp(name, "seconds"))
		return read_seconds(err, name, v, &job->ms);
	if (body && !strcmp(name, "hint"))
		return 0;
	return api_fail(err, 400, name, "unknown_parameter",
			"%.60s is no parameter of %s a session: there are %smodel and cache_salt",
			name, body ? "a hint for" : "the path of",
			body ? "hint, seconds, " : "");
}

int hint_read(const struct api_model *m, const char *name, size_t len,
	      const json_t *root, struct session_job *job, struct api_error *err)
{
	const char *member;
	bool timed = true;
	json_t *v;

	if (!json_is_object(root))
		return api_fail(err, 400, "", "invalid_json",
				"The body is JSON but no object");
	if (name && read_name(err, "name", name, len, job->name))
		return -1;
	if (job->op == SESSION_HINT &&
	    read_hint(job, json_object_get(root, "hint"), &timed, err))
		return -1;
	json_object_foreach((json_t *)(uintptr_t)root, member, v)
		if (read_member(m, job, member, v, err))
			return -1;
	if (job->ms && !timed)
		return api_fail(err, 400, "seconds", "invalid_value",
				"unpin takes no seconds: leave them out");
	if (!job->ms)
		job->ms = SECONDS_DEF * 1000;
	return 0;
}
