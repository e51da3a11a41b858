// SPDX-License-Identifier: Apache-2.0
/*
 * answer.c - answers in OpenAI's form
 *
 * The keys have the order of OpenAI's own answers.  Keys that its clients
 * require are always there, as null if there is no value.  vLLM's additions
 * (stop_reason, token_ids, prompt_token_ids) are added the same way.
 *
 * In a stream, the last chunk of a choice carries its finish_reason, along with
 * the rest of its text; every choice has exactly one.
 */
#include "runtime/server/call.h"

static const char *object_name(const struct call *call)
{
	if (call->params.kind == API_COMPLETION)
		return "text_completion";
	return call->params.stream ? "chat.completion.chunk" :
				     "chat.completion";
}

void answer_prepare(struct call *call)
{
	struct text *t = &call->prefix;

	text_puts(t, "{\"id\":");
	text_jsons(t, call->id);
	text_printf(t, ",\"object\":\"%s\",\"created\":%lld,\"model\":",
		    object_name(call), (long long)call->created);
	text_jsons(t, call->adapter ? call->adapter->name : call->work.b->api.name);
	text_puts(t, ",\"choices\":[");
}

u64 call_tokens(const struct call *call)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < call->nr_choices; i++)
		sum += call->choices[i].taken;
	return sum;
}

static void write_usage(struct call *call, struct text *t)
{
	const u64 completion = call_tokens(call);
	u64 prompt = 0, cached = 0;
	u32 i;

	for (i = 0; i < call->work.nr_prompts; i++) {
		const struct work_prompt *q = &call->work.prompts[i];

		prompt += q->nr;
		/* Final when the sample is over; 0 before. */
		if (load_acquire(&q->samples[0].over))
			cached += q->samples[0].cached;
	}
	text_printf(t, "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,\"prompt_tokens_details\":{\"cached_tokens\":%llu}}",
		    (unsigned long long)prompt, (unsigned long long)completion,
		    (unsigned long long)(prompt + completion),
		    (unsigned long long)cached);
}

static void write_ids(struct text *t, const char *key, const u32 *ids, u32 nr)
{
	u32 i;

	text_printf(t, ",\"%s\":[", key);
	for (i = 0; i < nr; i++)
		text_printf(t, "%s%u", i ? "," : "", ids[i]);
	text_puts(t, "]");
}

/*
 * Write the end of a choice object, after its text.  @parts: as for
 * logprobs_write().
 */
static void write_end(struct call *call, u32 i, u32 parts, struct text *t)
{
	const struct choice *ch = &call->choices[i];
	const struct stops *stops = &call->params.stops;
	const bool over = ch->over && ch->reason;

	logprobs_write(call, i, parts, t);
	text_puts(t, ",\"finish_reason\":");
	text_jsons(t, over ? ch->reason : NULL);
	if (over) {
		text_puts(t, ",\"stop_reason\":");
		if (ch->stop >= 0)
			text_json(t, stops->s[ch->stop], stops->len[ch->stop]);
		else if (ch->stop_id >= 0)
			text_printf(t, "%lld", (long long)ch->stop_id);
		else
			text_puts(t, "null");
	}
	if (!call->params.return_ids)
		return;
	write_ids(t, "token_ids", ch->s->ids + ch->told, ch->taken - ch->told);
	if (!ch->told)
		write_ids(t, "prompt_token_ids", ch->prompt->ids,
			  ch->prompt->nr);
}

static const char *text_of(const struct choice *ch)
{
	return ch->out.len ? ch->out.p : "";
}

static const struct api_prompt *prompt_of(const struct call *call, u32 i)
{
	return &call->params.prompts[i / call->params.n];
}

static void chunk_begin(struct call *call, struct text *t)
{
	text_puts(t, "data: ");
	text_add(t, call->prefix.p, call->prefix.len);
}

static void chunk_end(struct call *call, struct text *t)
{
	text_puts(t, "]");
	if (call->params.usage_always) {
		text_puts(t, ",");
		write_usage(call, t);
	} else if (call->params.usage) {
		text_puts(t, ",\"usage\":null");
	}
	text_puts(t, "}\n\n");
}

static void write_delta(const struct choice *ch, struct text *t)
{
	const char *comma = "";

	text_puts(t, "\"delta\":{");
	if (!ch->began) {
		text_puts(t, "\"role\":\"assistant\"");
		comma = ",";
	}
	if (!ch->began || ch->out.len) {
		text_printf(t, "%s\"content\":", comma);
		text_json(t, text_of(ch), ch->out.len);
	}
	text_puts(t, "}");
}

void answer_event(struct call *call, u32 i, struct text *t)
{
	struct choice *ch = &call->choices[i];

	/* The prompt that echo shows comes first, in its own event. */
	if (!ch->began && call->params.echo) {
		const struct api_prompt *q = prompt_of(call, i);

		chunk_begin(call, t);
		text_printf(t, "{\"index\":%u,\"text\":", i);
		text_json(t, q->text, q->len);
		logprobs_write(call, i, LOGPROBS_PROMPT, t);
		text_puts(t, ",\"finish_reason\":null}");
		chunk_end(call, t);
	}
	chunk_begin(call, t);
	text_printf(t, "{\"index\":%u,", i);
	if (call->params.kind == API_CHAT) {
		write_delta(ch, t);
	} else {
		text_puts(t, "\"text\":");
		text_json(t, text_of(ch), ch->out.len);
	}
	write_end(call, i, LOGPROBS_TEXT, t);
	text_puts(t, "}");
	chunk_end(call, t);
	ch->began = true;
	ch->sent = ch->over;
	ch->told = ch->taken;
	text_clear(&ch->out);
}

/* The session that the request named, after a comma; null: it was not remembered. */
static void write_session(const struct call *call, struct text *t)
{
	const struct session_job *job = &call->work.session;

	if (!*job->name)
		return;
	text_puts(t, ",\"session\":");
	if (job->told.answer)
		session_write(t, job->name, &job->told);
	else
		text_puts(t, "null");
}

void answer_usage_event(struct call *call, struct text *t)
{
	if (call->params.usage || *call->work.session.name) {
		chunk_begin(call, t);
		text_puts(t, "]");
		if (call->params.usage) {
			text_puts(t, ",");
			write_usage(call, t);
		}
		write_session(call, t);
		text_puts(t, "}\n\n");
	}
	text_puts(t, "data: [DONE]\n\n");
}

static void write_choice(struct call *call, u32 i, struct text *t)
{
	const struct api_prompt *q = prompt_of(call, i);
	const struct choice *ch = &call->choices[i];
	struct text whole = { 0 };

	text_printf(t, "%s{\"index\":%u,", i ? "," : "", i);
	if (call->params.kind == API_CHAT) {
		text_puts(t, "\"message\":{\"role\":\"assistant\",\"content\":");
		text_json(t, text_of(ch), ch->out.len);
		text_puts(t, ",\"refusal\":null}");
	} else {
		if (call->params.echo)
			text_add(&whole, q->text, q->len);
		text_add(&whole, text_of(ch), ch->out.len);
		text_puts(t, "\"text\":");
		text_json(t, whole.len ? whole.p : "", whole.len);
		t->failed |= whole.failed;
	}
	write_end(call, i, LOGPROBS_TEXT |
		  (call->params.echo ? LOGPROBS_PROMPT : 0), t);
	if (call->params.kind == API_COMPLETION)
		logprobs_prompt(call, ch->prompt, t);
	text_puts(t, "}");
	text_free(&whole);
}

void answer_whole(struct call *call, struct text *t)
{
	u32 i;

	text_add(t, call->prefix.p, call->prefix.len);
	for (i = 0; i < call->params.nr_prompts * call->params.n; i++)
		write_choice(call, i, t);
	text_puts(t, "],");
	write_usage(call, t);
	if (call->params.kind == API_CHAT)
		logprobs_prompt(call, &call->work.prompts[0], t);
	write_session(call, t);
	text_puts(t, "}\n");
}
