// SPDX-License-Identifier: Apache-2.0
/*
 * prompt.c - from prompts and chats to token ids
 *
 * Lengths are checked first: a text that is too long for any tokens is refused
 * without being tokenized.  Users' text is plain: a special token spelt out in
 * it stays text, so that no user can forge a turn of a chat.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/server/chat.h"
#include "runtime/server/fields.h"

static int no_memory(struct field_ctx *c)
{
	return api_fail(c->err, 503, "", "out_of_memory", "no memory");
}

static const char *prompt_key(const struct field_ctx *c)
{
	return c->p->kind == API_CHAT ? "messages" : "prompt";
}

/* Longest prompt that leaves room for one token. */
static u32 prompt_max(const struct field_ctx *c)
{
	return c->any_length ? UINT32_MAX : c->m->info->max_len - 1;
}

static int too_long(struct field_ctx *c, const char *about, size_t nr)
{
	return api_fail(c->err, 400, prompt_key(c), "context_length_exceeded",
			"This model's maximum context length is %u tokens; the prompt has %s%zu: shorten it to %u",
			c->m->info->max_len, about, nr, prompt_max(c));
}

/* Keep the text of a prompt for echo. */
static int keep_text(struct field_ctx *c, struct api_prompt *q,
		     const char *text, size_t len)
{
	q->text = malloc(len + 1);
	if (!q->text)
		return no_memory(c);
	memcpy(q->text, text, len);
	q->len = len;
	return 0;
}

/*
 * @guards: @nr_guards parts of the text in which no special token may be found.
 */
static int encode(struct field_ctx *c, struct api_prompt *q, const char *text,
		  size_t len, u32 flags, const struct tokenizer_guard *guards,
		  size_t nr_guards)
{
	const struct tokenizer *tok = c->m->tok;
	const size_t least = len / detok_out_max(tok);
	const size_t cap = min(len + 2, (size_t)prompt_max(c) + 1);
	size_t needed = 0;
	ssize_t n;

	if (least > prompt_max(c))
		return too_long(c, "at least ", least);
	q->ids = malloc(cap * sizeof(*q->ids));
	if (!q->ids)
		return no_memory(c);
	n = tokenizer_encode_guarded(tok, text, len, flags, guards, nr_guards,
				     q->ids, cap, &needed);
	if (n == -E2BIG || n > (ssize_t)prompt_max(c))
		return too_long(c, "", needed);
	if (n == -ENOMEM)
		return no_memory(c);
	if (n < 0)
		return api_fail(c->err, 400, prompt_key(c), "invalid_value",
				"the text cannot be tokenized: %s",
				strerror((int)-n));
	q->nr += (u32)n;
	return 0;
}

/* ---- completions ---- */

static int prompt_text(struct field_ctx *c, struct api_prompt *q,
		       const json_t *v)
{
	const char *text = json_string_value(v);
	const size_t len = json_string_length(v);
	u32 flags = TOKENIZER_PLAIN;

	if (c->add_bos)
		flags |= TOKENIZER_ADD_BOS;
	if (encode(c, q, text, len, flags, NULL, 0))
		return -1;
	if (!q->nr && !c->any_length)
		return api_fail(c->err, 400, "prompt", "invalid_value",
				"the prompt is empty");
	return c->p->echo ? keep_text(c, q, text, len) : 0;
}

/* Decode a prompt's ids to text, for echo. */
static int ids_text(struct field_ctx *c, struct api_prompt *q)
{
	const size_t room = detok_out_max(c->m->tok);
	struct text t = { 0 };
	struct detok d;
	char *piece;
	ssize_t n;
	u32 i;
	int ret;

	piece = malloc(room);
	detok_init(&d, c->m->tok, c->p->skip_special);
	for (i = 0; piece && i <= q->nr; i++) {
		n = i < q->nr ? detok_push(&d, q->ids[i], piece, room) :
				detok_flush(&d, piece, room);
		text_add(&t, piece, n > 0 ? (size_t)n : 0);
	}
	if (!piece || t.failed)
		ret = no_memory(c);
	else
		ret = keep_text(c, q, t.len ? t.p : "", t.len);
	free(piece);
	text_free(&t);
	return ret;
}

static int prompt_ids(struct field_ctx *c, struct api_prompt *q,
		      const json_t *v)
{
	const size_t nr = json_array_size(v);
	const u32 vocab = c->m->info->nr_vocab;
	size_t i;

	if (nr > prompt_max(c))
		return too_long(c, "", nr);
	q->ids = malloc((nr + 1) * sizeof(*q->ids));
	if (!q->ids)
		return no_memory(c);
	for (i = 0; i < nr; i++) {
		const json_t *id = json_array_get(v, i);
		const json_int_t n = json_integer_value(id);

		if (!json_is_integer(id) || n < 0 || n >= vocab)
			return api_fail(c->err, 400, "prompt", "invalid_value",
					"prompt: token %zu is no whole number from 0 to %u",
					i, vocab - 1);
		q->ids[q->nr++] = (u32)n;
	}
	if (!q->nr)
		return api_fail(c->err, 400, "prompt", "invalid_value",
				"the prompt is empty");
	return c->p->echo ? ids_text(c, q) : 0;
}

static int prompt_one(struct field_ctx *c, struct api_prompt *q,
		      const json_t *v)
{
	if (json_is_string(v))
		return prompt_text(c, q, v);
	if (json_is_array(v))
		return prompt_ids(c, q, v);
	return api_fail(c->err, 400, "prompt", "invalid_value",
			"prompt must be a string, strings, token ids, or lists of token ids");
}

static int prompts_alloc(struct field_ctx *c, size_t nr)
{
	struct api_params *p = c->p;
	const u32 each = max(p->drawn, p->beam_width);
	const char *name = each > p->n ? "best_of" : "n";

	if (nr * each > c->m->max_samples)
		return api_fail(c->err, 400, nr > 1 ? "prompt" : name,
				"invalid_value",
				"%zu prompts with %s=%u are more than the %u samples that one request may ask for",
				nr, name, each, c->m->max_samples);
	p->prompts = calloc(nr, sizeof(*p->prompts));
	if (!p->prompts)
		return no_memory(c);
	p->nr_prompts = (u32)nr;
	return 0;
}

static int completion_prompts(struct field_ctx *c)
{
	const json_t *v = c->prompt;
	const bool list = json_is_array(v) &&
			  !json_is_integer(json_array_get(v, 0));
	const size_t nr = list ? json_array_size(v) : 1;
	size_t i;

	if (!nr)
		return api_fail(c->err, 400, "prompt", "invalid_value",
				"the prompt is empty");
	if (prompts_alloc(c, nr))
		return -1;
	for (i = 0; i < nr; i++)
		if (prompt_one(c, &c->p->prompts[i],
			       list ? json_array_get(v, i) : v))
			return -1;
	return 0;
}

/* ---- chats ---- */

static int chat_prompt(struct field_ctx *c)
{
	struct chat_text t = { 0 };
	int ret;

	ret = prompts_alloc(c, 1);
	if (!ret)
		ret = chat_text_make(c, c->prompt, &t);
	/* The template's special tokens are tokens, those of users are not. */
	if (!ret)
		ret = encode(c, &c->p->prompts[0], t.p, t.len,
			     c->add_bos ? TOKENIZER_ADD_BOS : 0, t.guards,
			     t.nr_guards);
	if (!ret && !c->p->prompts[0].nr && !c->any_length)
		ret = api_fail(c->err, 400, "messages", "invalid_value",
			       "the messages are empty");
	chat_text_free(&t);
	return ret;
}

/* ---- together ---- */

/* How many entries about a prompt's token the answer has, in @nr choices. */
static u64 told_of_token(const struct api_params *p, u64 nr)
{
	/* @prompt_logprobs is the number of likeliest tokens plus one, or 0. */
	const u64 lists = p->kind == API_CHAT ? 1 : nr;
	u64 told = lists * p->prompt_logprobs;

	if (p->echo)
		told += nr * (1 + p->logprobs);
	if (p->return_ids)
		told += nr;
	return told;
}

/*
 * A prompt is sent once, but its tokens are in the answer once a choice,
 * written by a thread that other requests wait for.  A short request must not
 * cause an answer of gigabytes.
 */
static int judge_told(struct field_ctx *c)
{
	const struct api_params *p = c->p;
	u64 each = told_of_token(p, p->n), sum = 0;
	u32 i;

	for (i = 0; i < p->nr_prompts; i++)
		sum += p->prompts[i].nr * each;
	if (sum <= API_TOLD_MAX || (u64)p->nr_prompts * p->n == 1)
		return 0;
	return api_fail(c->err, 400, p->n > 1 ? "n" : "prompt",
			"invalid_value",
			"%u prompts with n=%u tell of %llu tokens of prompts, more than the %u of one answer: ask for fewer samples or logprobs",
			p->nr_prompts, p->n, (unsigned long long)sum,
			API_TOLD_MAX);
}

int prompts_prepare(struct field_ctx *c)
{
	int ret;

	if (!c->prompt)
		return api_fail(c->err, 400, prompt_key(c), "missing_parameter",
				"%s is missing", prompt_key(c));
	ret = c->p->kind == API_CHAT ? chat_prompt(c) : completion_prompts(c);
	return ret || c->any_length ? ret : judge_told(c);
}
