// SPDX-License-Identifier: Apache-2.0
/*
 * template.c - from the messages of a chat to the text of a prompt
 *
 * A model's makers say in its folder how chats are written, as a small
 * program in a template language.  This server has no interpreter for it; it
 * knows a list of such programs by their text and renders those.  For any
 * other model the chat endpoint is refused, since a prompt that is almost
 * right gives answers that are quietly worse.
 *
 * plain: the BOS token, then each message's text without blanks around it,
 * and an empty line.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "runtime/model/json.h"
#include "runtime/server/fields.h"

/* Code points that are blank to Python's str.strip(), by which files trim. */
static bool is_blank(u32 c)
{
	return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) ||
	       c == 0x85 || c == 0xa0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
	       c == 0x202f || c == 0x205f || c == 0x3000;
}

/* The character of @len bytes at @p, which is valid. */
static u32 code_point(const char *p, size_t len)
{
	u32 c = (u8)p[0];
	size_t i;

	if (len > 1)
		c &= 0x7fu >> len;
	for (i = 1; i < len; i++)
		c = c << 6 | ((u8)p[i] & 0x3f);
	return c;
}

static void trim(const char **p, size_t *n)
{
	const char *end;
	size_t len;

	while (*n) {
		len = text_utf8_len(*p, *n);
		if (!len || !is_blank(code_point(*p, len)))
			break;
		*p += len;
		*n -= len;
	}
	while (*n) {
		end = *p + *n - 1;
		while (end > *p && ((u8)*end & 0xc0) == 0x80)
			end--;
		len = (size_t)(*p + *n - end);
		if (text_utf8_len(end, len) != len ||
		    !is_blank(code_point(end, len)))
			break;
		*n -= len;
	}
}

/* ---- messages ---- */

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

static int content_get(struct field_ctx *c, size_t i, const json_t *v,
		       struct text *out)
{
	size_t k;

	if (json_is_string(v)) {
		text_add(out, json_string_value(v), json_string_length(v));
		return 0;
	}
	if (!json_is_array(v) || !json_array_size(v))
		return bad(c, i, ".content must be a string or parts of type text");
	for (k = 0; k < json_array_size(v); k++) {
		if (k)
			text_puts(out, "\n");
		if (part_add(c, i, json_array_get(v, k), out))
			return -1;
	}
	return 0;
}

static bool role_known(const char *role)
{
	static const char * const roles[] = {
		"system", "developer", "user", "assistant",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(roles); i++)
		if (!strcmp(role, roles[i]))
			return true;
	return false;
}

static int message_check(struct field_ctx *c, size_t i, const json_t *m)
{
	const char *role = json_string_value(json_object_get(m, "role"));
	const char *key;
	json_t *v;

	if (!json_is_object(m))
		return bad(c, i, " is no object");
	if (!role)
		return bad(c, i, ".role is missing");
	if (!role_known(role))
		return api_fail(c->err, 400, "messages", "unsupported_parameter",
				"messages[%zu].role '%.40s' is not supported by this server",
				i, role);
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

int template_render(struct field_ctx *c, const json_t *messages,
		    struct text *out)
{
	struct text content = { 0 };
	size_t i, n;
	int ret = 0;

	if (c->m->template == API_NO_TEMPLATE)
		return api_fail(c->err, 400, "messages", "no_chat_template",
				"this server has no chat template for '%.100s': use /v1/completions",
				c->m->name);
	if (!json_is_array(messages) || !json_array_size(messages))
		return api_fail(c->err, 400, "messages", "invalid_value",
				"messages must be a list of at least one message");
	for (i = 0; i < json_array_size(messages) && !ret; i++) {
		const json_t *m = json_array_get(messages, i);
		const char *p;

		text_clear(&content);
		ret = message_check(c, i, m);
		if (!ret)
			ret = content_get(c, i, json_object_get(m, "content"),
					  &content);
		p = content.len ? content.p : "";
		n = content.len;
		trim(&p, &n);
		text_add(out, p, n);
		text_puts(out, "\n\n");
		out->failed |= content.failed;
	}
	text_free(&content);
	return ret;
}

/* ---- which one ---- */

static enum api_template template_by_text(const char *text)
{
#define x(name, source) \
	if (!strcmp(text, source)) \
		return API_TEMPLATE_##name;
	API_TEMPLATES(x)
#undef x
	return API_NO_TEMPLATE;
}

enum api_template api_template_find(const char *dir, char *why, size_t len)
{
	enum api_template found = API_NO_TEMPLATE;
	struct model_error err;
	struct mj_file f;
	char path[4096];
	struct stat st;
	json_t *v;

	snprintf(why, len, "%s has no chat template", dir);
	snprintf(path, sizeof(path), "%s/chat_template.jinja", dir);
	if (!stat(path, &st)) {
		snprintf(why, len, "%s is none that this server knows", path);
		return found;
	}
	if (mj_open(&f, dir, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL,
		    &err)) {
		mj_close(&f);
		return found;
	}
	v = mj_get(f.root, "chat_template");
	if (json_is_string(v))
		found = template_by_text(json_string_value(v));
	if (v && found == API_NO_TEMPLATE)
		snprintf(why, len, "%s/tokenizer_config.json: its chat_template is none that this server knows",
			 dir);
	mj_close(&f);
	return found;
}
