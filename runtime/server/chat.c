// SPDX-License-Identifier: Apache-2.0
/*
 * chat.c - from the messages of a chat to the text of a prompt
 *
 * A model's makers ship a chat template in its folder, a program in a template
 * language; runtime/template runs it.  This file checks the messages by
 * OpenAI's rules, brings them into the form that templates read, and marks them
 * so that no user can forge a turn (guard.h).
 *
 * A template gets a message's content as one string: text parts are joined by
 * line ends.  OpenAI's newer role `developer` becomes `system`.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/server/chat.h"
#include "runtime/server/fields.h"
#include "runtime/template/chat.h"

static int bad(struct field_ctx *c, size_t i, const char *what)
{
	return api_fail(c->err, 400, "messages", "invalid_value",
			"messages[%zu]%s", i, what);
}

static int part_add(struct field_ctx *c, size_t i, const json_t *part,
		    struct text *out)
{
	const char *type = json_string_value(json_object_get(part, "type"));
	const json_t *text = json_object_get(part, "text");

	if (!type)
		return bad(c, i, ".content: a part without a type");
	if (strcmp(type, "text"))
		return api_fail(c->err, 400, "messages", "unsupported_parameter",
				"messages[%zu].content: parts of type '%.40s' are not supported by this server",
				i, type);
	if (!json_is_string(text) || json_object_size(part) != 2)
		return bad(c, i, ".content: a text part has type and text, a string");
	text_add(out, json_string_value(text), json_string_length(text));
	return 0;
}

/* The content as one string: a new reference, or NULL with an error. */
static json_t *content_get(struct field_ctx *c, size_t i, const json_t *v)
{
	struct text t = { 0 };
	json_t *s = NULL;
	int ret = 0;
	size_t k;

	if (json_is_string(v))
		return json_incref((json_t *)(uintptr_t)v);
	if (!json_is_array(v) || !json_array_size(v)) {
		bad(c, i, ".content must be a string or parts of type text");
		return NULL;
	}
	for (k = 0; k < json_array_size(v) && !ret; k++) {
		if (k)
			text_puts(&t, "\n");
		ret = part_add(c, i, json_array_get(v, k), &t);
	}
	if (!ret && !t.failed)
		s = json_stringn(t.len ? t.p : "", t.len);
	if (!ret && !s)
		api_fail(c->err, 503, "", "out_of_memory", "no memory");
	text_free(&t);
	return s;
}

/* The role in the words of templates, or NULL. */
static const char *role_get(const char *role)
{
	static const char * const roles[] = { "system", "user", "assistant" };
	u32 i;

	if (!strcmp(role, "developer"))
		return "system";
	for (i = 0; i < ARRAY_SIZE(roles); i++)
		if (!strcmp(role, roles[i]))
			return roles[i];
	return NULL;
}

static int keys_check(struct field_ctx *c, size_t i, const json_t *m)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)m, key, v) {
		if (json_is_null(v) || !strcmp(key, "role") ||
		    !strcmp(key, "content"))
			continue;
		return api_fail(c->err, 400, "messages", "unsupported_parameter",
				"messages[%zu].%.60s is not supported by this server: leave it out",
				i, key);
	}
	return 0;
}

/* The message in the form of templates: a new reference, or NULL. */
static json_t *message_get(struct field_ctx *c, size_t i, const json_t *m)
{
	const char *role = json_string_value(json_object_get(m, "role"));
	json_t *content, *out;

	if (!json_is_object(m) || !role) {
		bad(c, i, json_is_object(m) ? ".role is missing" :
		    " is no object");
		return NULL;
	}
	if (!role_get(role)) {
		api_fail(c->err, 400, "messages", "unsupported_parameter",
			 "messages[%zu].role '%.40s' is not supported by this server",
			 i, role);
		return NULL;
	}
	if (keys_check(c, i, m))
		return NULL;
	content = content_get(c, i, json_object_get(m, "content"));
	if (!content)
		return NULL;
	out = json_pack("{s:s, s:o}", "role", role_get(role), "content",
			content);
	if (!out)
		api_fail(c->err, 503, "", "out_of_memory", "no memory");
	return out;
}

static json_t *messages_get(struct field_ctx *c, const json_t *messages)
{
	json_t *list = json_array();
	size_t i;

	for (i = 0; i < json_array_size(messages); i++) {
		json_t *m = message_get(c, i, json_array_get(messages, i));

		if (!m || json_array_append_new(list, m)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

/* ---- the template ---- */

/* The client's error for a failed rendering. */
static int render_failed(struct field_ctx *c, const struct tmpl_error *e)
{
	switch (e->what) {
	case TMPL_RAISED:
	case TMPL_FAILED:
	case TMPL_LIMIT:
		return api_fail(c->err, 400, "messages", "chat_template_error",
				"the model's chat template does not take these messages: %.300s",
				e->text);
	case TMPL_NOMEM:
		return api_fail(c->err, 503, "", "out_of_memory", "no memory");
	default:
		return api_fail(c->err, 500, "messages", "chat_template_error",
				"the model's chat template, line %u: %.300s",
				e->line, e->text);
	}
}

/* Render checked and marked messages; @t gets the text, marks included. */
static int render(struct field_ctx *c, const json_t *messages,
		  const json_t *more, struct chat_text *t)
{
	const struct chat_input in = {
		.messages = messages,
		.more = json_is_object(more) ? more : NULL,
		.add_generation_prompt = c->generation_prompt,
	};
	struct tmpl_error err;

	t->p = chat_render(c->m->chat, &in, NULL, &t->len, &err);
	return t->p ? 0 : render_failed(c, &err);
}

static int marked_render(struct field_ctx *c, const json_t *both,
			 struct chat_text *t)
{
	struct guard_mark mark;
	json_t *safe;
	int ret;

	if (guards_choose(both, &mark))
		return api_fail(c->err, 400, "messages", "invalid_value",
				"messages: they use every one of U+2800 to U+28FF");
	safe = guards_mark(c->m->tok, both, &mark);
	ret = safe ? render(c, json_object_get(safe, "messages"),
			    json_object_get(safe, "more"), t) :
	      api_fail(c->err, 503, "", "out_of_memory", "no memory");
	json_decref(safe);
	if (!ret && guards_take(c->m->tok, t->p, &t->len, &mark, &t->guards,
				&t->nr_guards))
		ret = api_fail(c->err, 503, "", "out_of_memory", "no memory");
	return ret;
}

/* Further variables of the template: a new reference, or NULL. */
static json_t *more_get(const struct field_ctx *c)
{
	json_t *more = c->template_kwargs ? json_copy(c->template_kwargs) :
					    json_object();

	if (c->effort && json_object_set(more, "reasoning_effort", c->effort)) {
		json_decref(more);
		return NULL;
	}
	return more;
}

int chat_text_make(struct field_ctx *c, const json_t *messages,
		   struct chat_text *t)
{
	json_t *list, *both;
	int ret;

	memset(t, 0, sizeof(*t));
	if (!c->m->chat)
		return api_fail(c->err, 400, "messages", "no_chat_template",
				"this server has no chat template for '%.100s': use /v1/completions, or start it with --chat-template plain",
				c->m->name);
	if (!json_is_array(messages) || !json_array_size(messages))
		return api_fail(c->err, 400, "messages", "invalid_value",
				"messages must be a list of at least one message");
	list = messages_get(c, messages);
	if (!list)
		return -1;
	both = json_pack("{s:o, s:o}", "messages", list, "more", more_get(c));
	ret = both ? marked_render(c, both, t) :
	      api_fail(c->err, 503, "", "out_of_memory", "no memory");
	json_decref(both);
	return ret;
}

void chat_text_free(struct chat_text *t)
{
	free(t->p);
	free(t->guards);
	memset(t, 0, sizeof(*t));
}
