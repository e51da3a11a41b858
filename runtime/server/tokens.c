// SPDX-License-Identifier: Apache-2.0
/*
 * tokens.c - /tokenize and /detokenize
 *
 * Requests and answers are vLLM's.  A text becomes the tokens of a completion,
 * and messages become those of a chat, since both go through prompt.c; only the
 * length is not limited.  Both paths need the model's files and no daemon.
 */
#include <stdlib.h>

#include "runtime/server/fields.h"
#include "runtime/server/tokens.h"

static const struct {
	const char	*name;
	const char	*text;
} fields[] = {
#define x(name, text) { #name, text },
	TOKENIZE_FIELDS(x)
#undef x
};

void tokens_doc(struct text *t)
{
	u32 i;

	text_puts(t, "| field | meaning |\n|---|---|\n");
	for (i = 0; i < ARRAY_SIZE(fields); i++)
		text_printf(t, "| `%s` | %s |\n", fields[i].name, fields[i].text);
}

static int unknown(struct api_error *err, const char *name, const char *path)
{
	return api_fail(err, 400, name, "unknown_parameter",
			"%.60s is no parameter of %s", name, path);
}

/* ---- /tokenize ---- */

/* A tokenize request while its fields are read. */
struct tokenize {
	struct field_ctx	c;
	bool			strs;
};

static int read_strs(struct tokenize *q, const char *key, const json_t *v)
{
	if (!json_is_boolean(v))
		return api_fail(q->c.err, 400, key, "invalid_value",
				"%s must be true or false", key);
	q->strs = json_is_true(v);
	return 0;
}

static int tokenize_field(struct tokenize *q, const char *name, const json_t *v)
{
	const bool chat = q->c.p->kind == API_CHAT;
	u32 i = 0;

	while (i < ARRAY_SIZE(fields) && strcmp(fields[i].name, name))
		i++;
	if (i == ARRAY_SIZE(fields) ||
	    (!chat && (!strcmp(name, "add_generation_prompt") ||
		       !strcmp(name, "chat_template_kwargs"))))
		return unknown(q->c.err, name, chat ? "/tokenize" :
			       "/tokenize with a prompt");
	if (json_is_null(v))
		return 0;
	if (!strcmp(name, "return_token_strs"))
		return read_strs(q, name, v);
	for (i = 0; i < api_nr_fields; i++)
		if (!strcmp(api_fields[i].name, name))
			return api_fields[i].read(&q->c, name, v);
	return 0;
}

/* Read prompt or messages, and the other fields that each of them allows. */
static int tokenize_fields(struct tokenize *q, const json_t *root)
{
	const json_t *prompt = json_object_get(root, "prompt");
	const json_t *messages = json_object_get(root, "messages");
	const char *name;
	json_t *v;

	if (prompt && messages)
		return api_fail(q->c.err, 400, "messages", "invalid_value",
				"give a prompt or messages, not both");
	if (prompt && !json_is_string(prompt))
		return api_fail(q->c.err, 400, "prompt", "invalid_value",
				"prompt must be a string");
	q->c.p->kind = messages ? API_CHAT : API_COMPLETION;
	q->c.add_bos = !messages;
	json_object_foreach((json_t *)(uintptr_t)root, name, v)
		if (tokenize_field(q, name, v))
			return -1;
	return prompts_prepare(&q->c);
}

static void write_strs(const struct tokenizer *tok, const struct api_prompt *p,
		       struct text *t)
{
	const char *bytes;
	ssize_t n;
	u32 i;

	text_puts(t, "[");
	for (i = 0; i < p->nr; i++) {
		n = tokenizer_decode(tok, p->ids[i], &bytes);
		text_puts(t, i ? "," : "");
		text_json(t, n > 0 ? bytes : "", n > 0 ? (size_t)n : 0);
	}
	text_puts(t, "]");
}

static void write_tokens(const struct tokenize *q, struct text *t)
{
	const struct api_prompt *p = q->c.p->prompts;
	u32 i;

	text_printf(t, "{\"count\":%u,\"max_model_len\":%u,\"tokens\":[",
		    p->nr, q->c.m->info->max_len);
	for (i = 0; i < p->nr; i++)
		text_printf(t, "%s%u", i ? "," : "", p->ids[i]);
	text_puts(t, "],\"token_strs\":");
	if (q->strs)
		write_strs(q->c.m->tok, p, t);
	else
		text_puts(t, "null");
	text_puts(t, "}\n");
}

static int tokenize(const struct api_model *m, const json_t *root,
		    struct text *t, struct api_error *err)
{
	struct api_params p = { .n = 1, .skip_special = true };
	struct tokenize q = {
		.c = { .m = m, .p = &p, .err = err, .any_length = true,
		       .generation_prompt = true },
	};
	int ret = tokenize_fields(&q, root);

	if (!ret)
		write_tokens(&q, t);
	api_params_free(&p);
	return ret;
}

/* ---- /detokenize ---- */

static int detok_one(struct detok *d, const struct api_model *m, size_t i,
		     const json_t *v, char *piece, size_t room, struct text *out,
		     struct api_error *err)
{
	const json_int_t id = json_integer_value(v);
	ssize_t n;

	if (!json_is_integer(v) || id < 0 || id >= m->info->nr_vocab)
		return api_fail(err, 400, "tokens", "invalid_value",
				"tokens: number %zu is no whole number from 0 to %u",
				i, m->info->nr_vocab - 1);
	n = detok_push(d, (u32)id, piece, room);
	text_add(out, piece, n > 0 ? (size_t)n : 0);
	return 0;
}

static int detokenize_list(const struct api_model *m, const json_t *list,
			   struct text *out, struct api_error *err)
{
	const size_t room = detok_out_max(m->tok);
	char *piece = malloc(room);
	struct detok d;
	int ret = 0;
	ssize_t n;
	size_t i;

	if (!piece)
		return api_fail(err, 503, "", "out_of_memory", "no memory");
	detok_init(&d, m->tok, false);
	for (i = 0; !ret && i < json_array_size(list); i++)
		ret = detok_one(&d, m, i, json_array_get(list, i), piece, room,
				out, err);
	n = detok_flush(&d, piece, room);
	text_add(out, piece, n > 0 ? (size_t)n : 0);
	free(piece);
	return ret;
}

static int detokenize(const struct api_model *m, const json_t *root,
		      struct text *t, struct api_error *err)
{
	const json_t *list = json_object_get(root, "tokens");
	struct text out = { 0 };
	const char *name;
	json_t *v;
	int ret;

	json_object_foreach((json_t *)(uintptr_t)root, name, v)
		if (strcmp(name, "model") && strcmp(name, "tokens"))
			return unknown(err, name, "/detokenize");
	if (!json_is_array(list))
		return api_fail(err, 400, "tokens", list ? "invalid_value" :
				"missing_parameter", list ?
				"tokens must be a list of token ids" :
				"tokens is missing");
	ret = detokenize_list(m, list, &out, err);
	text_puts(t, "{\"prompt\":");
	text_json(t, out.len ? out.p : "", out.len);
	text_puts(t, "}\n");
	t->failed |= out.failed;
	text_free(&out);
	return ret;
}

int tokens_read(const struct api_model *m, enum api_kind kind,
		const json_t *root, struct text *t, struct api_error *err)
{
	const json_t *model = json_object_get(root, "model");
	int ret;

	if (!json_is_object(root))
		return api_fail(err, 400, "", "invalid_json",
				"The body is JSON but no object");
	if (model && !json_is_string(model) && !json_is_null(model))
		return api_fail(err, 400, "model", "invalid_value",
				"model must be a string");
	ret = kind == API_TOKENIZE ? tokenize(m, root, t, err) :
				     detokenize(m, root, t, err);
	if (!ret && t->failed)
		return api_fail(err, 503, "", "out_of_memory", "no memory");
	return ret;
}
