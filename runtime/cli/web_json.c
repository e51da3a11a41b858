// SPDX-License-Identifier: Apache-2.0
/*
 * web_json.c - answers of OpenAI servers
 *
 * Shared by the commands that ask a server: whole answers in JSON, streams of
 * events, the names of models.  All of a server's answer is checked before use.
 */
#include <poll.h>
#include <stdlib.h>
#include <sysexits.h>

#include <kvmm/log.h>

#include "runtime/cli/web.h"

const char *web_error_text(const json_t *v)
{
	const json_t *e = json_object_get(v, "error");

	if (json_is_string(e))
		return json_string_value(e);
	if (json_object_get(e, "message"))
		return json_string_value(json_object_get(e, "message"));
	/*
	 * Older servers of vLLM, and servers made with FastAPI, have it there.
	 */
	if (json_is_string(json_object_get(v, "message")))
		return json_string_value(json_object_get(v, "message"));
	return json_string_value(json_object_get(v, "detail"));
}

int web_whole(struct web_call *c, const struct web_server *s, const char *path,
	      const char *key, const struct text *body, u32 timeout_s)
{
	int n, err;

	err = web_call_begin(c, s, path, key, body, timeout_s);
	while (!err && !c->over) {
		struct pollfd p = { .fd = c->fd, .events = POLLIN };

		n = poll(&p, 1, (int)timeout_s * 1000);
		err = n > 0 ? web_call_read(c) : n ? 0 : -ETIMEDOUT;
	}
	return err ? web_failed(s, err, timeout_s) : 0;
}

int web_json(const struct web_server *s, const char *path, const char *key,
	     const struct text *body, u32 timeout_s, int *status, json_t **v)
{
	struct web_call c;
	int ret;

	ret = web_whole(&c, s, path, key, body, timeout_s);
	*v = ret || !c.body.len ? NULL :
	     json_loadb(c.body.p, c.body.len, 0, NULL);
	*status = c.status;
	web_call_end(&c);
	return ret;
}

int web_models(const struct web_server *s, const char *key, u32 timeout_s,
	       json_t **v)
{
	int status, ret;
	json_t *list, *m, *id;
	bool ok;
	size_t i;

	ret = web_json(s, "/v1/models", key, NULL, timeout_s, &status, v);
	if (ret)
		return ret;
	list = json_object_get(*v, "data");
	ok = json_array_size(list) > 0;
	json_array_foreach(list, i, m) {
		id = json_object_get(m, "id");
		/* Names are printed, also on terminals. */
		ok &= json_is_string(id) && web_is_tame(json_string_value(id));
	}
	if (status == 200 && ok)
		return 0;
	/* A server of another kind does not know the path. */
	ret = status == 200 || status == 404 ? web_failed(s, -EPROTO, timeout_s) :
	      web_refused(s, status, web_error_text(*v));
	json_decref(*v);
	*v = NULL;
	return ret;
}

bool web_event(const struct text *t, size_t *at, const char **p, size_t *n)
{
	const char *line, *end;
	size_t len;

	while (*at < t->len) {
		line = t->p + *at;
		end = memchr(line, '\n', t->len - *at);
		if (!end)
			return false;
		*at = (size_t)(end - t->p) + 1;
		len = (size_t)(end - line);
		if (len && line[len - 1] == '\r')
			len--;
		if (len <= 5 || memcmp(line, "data:", 5))
			continue;
		*p = line + 5 + (line[5] == ' ');
		*n = (size_t)(line + len - *p);
		return true;
	}
	return false;
}

const json_t *web_event_text(const json_t *choice)
{
	const json_t *text = json_object_get(choice, "text");

	if (!text)
		text = json_object_get(json_object_get(choice, "delta"),
				       "content");
	return json_is_string(text) ? text : NULL;
}

int web_key(const char *given, const char **key)
{
	const char *env = getenv("KVRT_API_KEY");

	*key = given ? given : env && *env ? env : NULL;
	if (!*key || web_is_word(*key))
		return 0;
	pr_err("the key of the API holds blanks or control characters: look at --api-key or $KVRT_API_KEY");
	return EX_USAGE;
}
