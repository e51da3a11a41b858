// SPDX-License-Identifier: Apache-2.0
/*
 * logprobs.c - logprobs in OpenAI's form, one for each kind of answer
 *
 * Completions have four lists of equal length: the tokens, their logprobs, the
 * likeliest tokens of each position with their logprobs, and the offset of each
 * token in the text.  Chats have one list of objects.  vLLM's additions are
 * written as vLLM writes them: tokens by their ids if wanted, prompt_logprobs.
 *
 * A token that is part of a character is written as U+FFFD, and its bytes say
 * what it is.  JSON has no infinity: -9999 stands for it, as in vLLM.
 *
 * Logprobs are published with their tokens, so they may be read as soon as
 * these.  Logprobs of the prompt are published with the first token.
 */
#include <math.h>

#include "runtime/server/call.h"

#define LOGPROB_LEAST	(-9999.0f)

/* One token of an answer: @told is NULL for the first token of a prompt. */
struct item {
	u32				id;
	const struct work_told		*told;
	const struct token_logprob	*top;
	u32				nr_top;
};

static struct item item_of(const struct work_tops *tops, const u32 *ids, u32 i,
			   u32 k)
{
	struct item it = { .id = ids[i] };

	it.told = &tops->told[i];
	it.top = tops->top + (size_t)i * tops->k;
	it.nr_top = min(it.told->nr_top, k);
	return it;
}

static struct item item_of_prompt(const struct work_prompt *q, u32 i, u32 k)
{
	if (i)
		return item_of(&q->tops, q->ids, i, k);
	return (struct item){ .id = q->ids[0] };
}

/* The tokens of an answer: tokens of the prompt, then tokens of the sample. */
struct items {
	const struct call	*call;
	const struct choice	*ch;
	u32			nr_prompt;
	u32			nr;
	u32			k;
};

static struct items items_of(const struct call *call, const struct choice *ch,
			     u32 parts)
{
	struct items its = {
		.call = call, .ch = ch, .k = call->params.logprobs - 1,
	};

	if (parts & LOGPROBS_PROMPT)
		its.nr_prompt = ch->prompt->nr;
	its.nr = its.nr_prompt;
	if (parts & LOGPROBS_TEXT)
		its.nr += ch->taken - ch->told;
	return its;
}

static struct item item_at(const struct items *its, u32 i)
{
	const struct choice *ch = its->ch;

	if (i < its->nr_prompt)
		return item_of_prompt(ch->prompt, i, its->k);
	return item_of(&ch->s->tops, ch->s->ids, ch->told + i - its->nr_prompt,
		       its->k);
}

/* ---- parts of both forms ---- */

static void write_number(struct text *t, float logprob)
{
	text_printf(t, "%.9g", (double)fmaxf(logprob, LOGPROB_LEAST));
}

static size_t token_bytes(const struct call *call, u32 id, const char **bytes)
{
	const ssize_t n = tokenizer_decode(call->work.b->api.tok, id, bytes);

	return n > 0 ? (size_t)n : 0;
}

static void write_token(const struct call *call, u32 id, struct text *t)
{
	const char *bytes = "";
	size_t n;

	if (call->params.ids_for_tokens) {
		text_printf(t, "\"token_id:%u\"", id);
		return;
	}
	n = token_bytes(call, id, &bytes);
	text_json(t, bytes, n);
}

static void write_bytes(const struct call *call, u32 id, struct text *t)
{
	const char *bytes = "";
	const size_t n = token_bytes(call, id, &bytes);
	size_t i;

	text_puts(t, "[");
	for (i = 0; i < n; i++)
		text_printf(t, "%s%u", i ? "," : "", (u8)bytes[i]);
	text_puts(t, "]");
}

/* ---- completions ---- */

/*
 * Write one member of an object of tokens, unless it has a member of that name
 * already: the name may be that of the token itself, which comes first, or two
 * parts of characters may look alike; then the likelier one stays.
 */
static void write_member(const struct call *call, struct text *t, size_t begin,
			 u32 id, float logprob)
{
	const size_t at = t->len;
	size_t n;

	text_puts(t, at > begin ? "," : "");
	write_token(call, id, t);
	text_puts(t, ":");
	if (t->failed)
		return;
	n = t->len - at;
	/*
	 * A quoted name between a brace or comma and a colon is a member's
	 * name.
	 */
	if (at > begin &&
	    (memmem(t->p + begin, at - begin, t->p + at, n) ||
	     (at - begin >= n - 1 &&
	      !memcmp(t->p + begin, t->p + at + 1, n - 1)))) {
		t->len = at;
		return;
	}
	write_number(t, logprob);
}

/* Write the token itself and the likeliest tokens as an object. */
static void write_top(const struct call *call, const struct item *it,
		      struct text *t)
{
	size_t begin;
	u32 i;

	if (!it->told) {
		text_puts(t, "null");
		return;
	}
	text_puts(t, "{");
	begin = t->len;
	write_member(call, t, begin, it->id, it->told->logprob);
	for (i = 0; i < it->nr_top; i++)
		write_member(call, t, begin, it->top[i].id,
			     it->top[i].logprob);
	text_puts(t, "}");
}

static u64 nr_chars(const char *text, size_t len)
{
	u64 nr = 0;
	size_t i;

	for (i = 0; i < len; i++)
		nr += ((u8)text[i] & 0xc0) != 0x80;
	return nr;
}

/* The offset of the next token, then count that token; in characters. */
static u64 offset_next(struct call *call, struct choice *ch, u32 id)
{
	const u64 at = ch->offset;
	const ssize_t n = detok_push(&ch->lp, id, call->piece, call->piece_max);

	ch->offset += nr_chars(call->piece, n > 0 ? (size_t)n : 0);
	return at;
}

/* The generated text begins after that of the prompt. */
static void offset_behind_prompt(struct call *call, struct choice *ch)
{
	const struct api_prompt *q =
		&call->params.prompts[ch->prompt - call->work.prompts];

	ch->offset = nr_chars(q->text, q->len);
	detok_init(&ch->lp, call->work.b->api.tok, call->params.skip_special);
}

static void write_lists(struct call *call, struct choice *ch,
			const struct items *its, struct text *t)
{
	struct item it;
	u32 i;

	text_puts(t, "{\"text_offset\":[");
	for (i = 0; i < its->nr; i++) {
		text_printf(t, "%s%llu", i ? "," : "", (unsigned long long)
			    offset_next(call, ch, item_at(its, i).id));
		if (i + 1 == its->nr_prompt)
			offset_behind_prompt(call, ch);
	}
	text_puts(t, "],\"token_logprobs\":[");
	for (i = 0; i < its->nr; i++) {
		text_puts(t, i ? "," : "");
		it = item_at(its, i);
		if (it.told)
			write_number(t, it.told->logprob);
		else
			text_puts(t, "null");
	}
	text_puts(t, "],\"tokens\":[");
	for (i = 0; i < its->nr; i++) {
		text_puts(t, i ? "," : "");
		write_token(call, item_at(its, i).id, t);
	}
	text_puts(t, "],\"top_logprobs\":[");
	for (i = 0; i < its->nr; i++) {
		text_puts(t, i ? "," : "");
		it = item_at(its, i);
		write_top(call, &it, t);
	}
	text_puts(t, "]}");
}

/* ---- chats ---- */

static void write_object(const struct call *call, u32 id, float logprob,
			 struct text *t)
{
	text_puts(t, "{\"token\":");
	write_token(call, id, t);
	text_puts(t, ",\"logprob\":");
	write_number(t, logprob);
	text_puts(t, ",\"bytes\":");
	write_bytes(call, id, t);
}

static void write_content(const struct call *call, const struct items *its,
			  struct text *t)
{
	u32 i, k;

	text_puts(t, "{\"content\":[");
	for (i = 0; i < its->nr; i++) {
		const struct item it = item_at(its, i);

		text_puts(t, i ? "," : "");
		write_object(call, it.id, it.told->logprob, t);
		text_puts(t, ",\"top_logprobs\":[");
		for (k = 0; k < it.nr_top; k++) {
			text_puts(t, k ? "," : "");
			write_object(call, it.top[k].id, it.top[k].logprob, t);
			text_puts(t, "}");
		}
		text_puts(t, "]}");
	}
	text_puts(t, "],\"refusal\":null}");
}

void logprobs_write(struct call *call, u32 i, u32 parts, struct text *t)
{
	struct choice *ch = &call->choices[i];
	struct items its;

	text_puts(t, ",\"logprobs\":");
	if (call->params.logprobs == ENGINE_NO_LOGPROBS) {
		text_puts(t, "null");
		return;
	}
	its = items_of(call, ch, parts);
	if (call->params.kind == API_CHAT)
		write_content(call, &its, t);
	else
		write_lists(call, ch, &its, t);
}

/* ---- prompts ---- */

static void write_ranked(const struct call *call, u32 id, float logprob,
			 u32 rank, struct text *t)
{
	text_printf(t, "\"%u\":{\"logprob\":", id);
	write_number(t, logprob);
	text_printf(t, ",\"rank\":%u,\"decoded_token\":", rank);
	write_token(call, id, t);
	text_puts(t, "}");
}

void logprobs_prompt(struct call *call, const struct work_prompt *q,
		     struct text *t)
{
	u32 i, k;

	if (call->params.prompt_logprobs == ENGINE_NO_LOGPROBS)
		return;
	text_puts(t, ",\"prompt_logprobs\":[null");
	for (i = 1; i < q->nr; i++) {
		const struct item it =
			item_of_prompt(q, i, call->params.prompt_logprobs - 1);

		text_puts(t, ",{");
		write_ranked(call, it.id, it.told->logprob, it.told->rank, t);
		for (k = 0; k < it.nr_top; k++) {
			if (it.top[k].id == it.id)
				continue;
			text_puts(t, ",");
			write_ranked(call, it.top[k].id, it.top[k].logprob,
				     k + 1, t);
		}
		text_puts(t, "}");
	}
	text_puts(t, "]");
}
