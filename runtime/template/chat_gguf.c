// SPDX-License-Identifier: Apache-2.0
/*
 * chat_gguf.c - the chat templates of a GGUF file
 *
 * tokenizer.chat_template is the template `default`, tokenizer.chat_template.NAME
 * another one.  Special tokens are given by their ids; templates need their names.
 */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/lib/gguf.h"
#include "runtime/template/chat_gguf.h"
#include "runtime/tokenizer/utf8.h"

#define KEY_TEMPLATE	"tokenizer.chat_template"
#define KEY_TOKENS	"tokenizer.ggml.tokens"

struct reading {
	const struct gguf	*g;
	const char		*path;
	char			*why;
	size_t			len;
};

static __printf(3, 4) int refuse(const struct reading *r, int code,
				 const char *fmt, ...)
{
	va_list ap;
	int n;

	if (!r->len)
		return code;
	n = snprintf(r->why, r->len, "%s: ", r->path);
	if (n >= 0 && (size_t)n < r->len) {
		va_start(ap, fmt);
		vsnprintf(r->why + n, r->len - (size_t)n, fmt, ap);
		va_end(ap);
	}
	utf8_clean_line(r->why);
	return code;
}

/* Append the template of @key to @list. */
static int add_template(const struct reading *r, const char *key,
			const char *name, json_t *list)
{
	struct gguf_str s;
	json_t *text;

	if (!gguf_str(r->g, key, &s))
		return refuse(r, -EINVAL, "%s is no text: convert the model "
			      "again", key);
	text = utf8_is_valid(s.at, s.len) ? json_stringn(s.at, s.len) : NULL;
	if (!text)
		return refuse(r, -EINVAL, "%s is no UTF-8: convert the model "
			      "again", key);
	if (json_array_append_new(list, json_pack("{ss so}", "name", name,
						  "template", text)))
		return refuse(r, -ENOMEM, "out of memory");
	return 0;
}

static int add_templates(const struct reading *r, json_t *list)
{
	const size_t len = strlen(KEY_TEMPLATE);
	const char *key;
	u32 i;
	int ret = 0;

	for (i = 0; i < gguf_nr_keys(r->g) && !ret; i++) {
		key = gguf_key_at(r->g, i);
		if (strncmp(key, KEY_TEMPLATE, len))
			continue;
		if (!key[len])
			ret = add_template(r, key, "default", list);
		else if (key[len] == '.' && utf8_is_valid(key, strlen(key)))
			ret = add_template(r, key, key + len + 1, list);
	}
	return ret;
}

/* Set @name to the text of the token whose id is at @key. */
static int set_token(const struct reading *r, json_t *config, const char *name,
		     const char *key)
{
	struct gguf_str s;
	json_t *text;
	u64 id;

	if (!gguf_u64(r->g, key, &id))
		return 0;
	if (!gguf_item_str(r->g, KEY_TOKENS, id, &s))
		return refuse(r, -EINVAL, "%s is no id of a token: convert the "
			      "model again", key);
	text = utf8_is_valid(s.at, s.len) ? json_stringn(s.at, s.len) : NULL;
	if (!text)
		return refuse(r, -EINVAL, KEY_TOKENS "[%llu] is no UTF-8: "
			      "convert the model again",
			      (unsigned long long)id);
	if (json_object_set_new(config, name, text))
		return refuse(r, -ENOMEM, "out of memory");
	return 0;
}

static int set_tokens(const struct reading *r, json_t *config)
{
	static const char * const keys[][2] = {
		{ "bos_token", "tokenizer.ggml.bos_token_id" },
		{ "eos_token", "tokenizer.ggml.eos_token_id" },
		{ "unk_token", "tokenizer.ggml.unknown_token_id" },
		{ "sep_token", "tokenizer.ggml.seperator_token_id" },
		{ "pad_token", "tokenizer.ggml.padding_token_id" },
		{ "cls_token", "tokenizer.ggml.cls_token_id" },
		{ "mask_token", "tokenizer.ggml.mask_token_id" },
	};
	size_t i;
	int ret = 0;

	for (i = 0; i < ARRAY_SIZE(keys) && !ret; i++)
		ret = set_token(r, config, keys[i][0], keys[i][1]);
	return ret;
}

int chat_gguf_config(const char *path, json_t **config, char *why, size_t len)
{
	struct reading r = { .path = path, .why = why, .len = len };
	json_t *list = json_array();
	struct gguf *g;
	int ret;

	*config = json_pack("{sO}", "chat_template", list);
	if (!*config) {
		json_decref(list);
		return refuse(&r, -ENOMEM, "out of memory");
	}
	ret = gguf_open(path, &g, why, len);
	if (!ret) {
		r.g = g;
		ret = add_templates(&r, list);
		if (!ret)
			ret = set_tokens(&r, *config);
		gguf_close(g);
	}
	json_decref(list);
	if (ret) {
		json_decref(*config);
		*config = NULL;
	}
	return ret;
}
