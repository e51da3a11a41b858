/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h - one request to the API, from its body to its last byte
 */
#ifndef RUNTIME_SERVER_CALL_H
#define RUNTIME_SERVER_CALL_H

#include <event2/event_struct.h>

#include "runtime/server/api.h"
#include "runtime/server/service.h"

/**
 * struct choice - one sample on its way to the client
 * @s:        where its tokens come from
 * @taken:    of them, turned into text
 * @told:     of them, whose ids were sent
 * @out:      text that was not sent yet; all of it, if nothing streams
 * @over:     @reason is known, no more text will come
 * @sent:     its last chunk is
 * @began:    its first chunk is
 * @stop:     index of the stop string that ended it, or -1
 * @stop_id:  the request's own id that ended it, or -1
 * @last_ns:  when its last token came
 * @lp:       the stream of @told tokens as text, for text_offset
 * @offset:   characters in it
 */
struct choice {
	struct work_prompt	*prompt;
	struct work_sample	*s;
	struct detok		detok;
	struct stopper		stopper;
	u32			taken;
	u32			told;
	struct text		out;
	bool			over;
	bool			sent;
	bool			began;
	const char		*reason;
	int			stop;
	s64			stop_id;
	s64			last_ns;
	struct detok		lp;
	u64			offset;
};

/**
 * struct call - one request
 * @conn:     NULL once it was answered, or the client is gone
 * @body:     until it is understood
 * @deadline: ends it, where there is one
 * @flow:     number of its API key, 0: none
 * @request_id: of its head
 * @bad:      it was not: @err says why
 * @posted:   the backend knows it
 * @streams:  the head of the stream is sent
 * @ended:    the backend is done with it; a reader may not be
 * @handled:  a handler of it is running, further up
 * @choices:  [@nr_choices], by prompt, then sample; in the end best_pick()
 *            puts those that are the answer in front
 * @nr_over:  choices that are over
 * @prefix:   how every chunk begins
 * @piece:    room for the text of one token
 */
struct call {
	struct work		work;
	struct conn_owner	owner;
	struct service		*svc;
	struct conn		*conn;
	struct call		*next;
	struct call		*prev;
	struct mail		to_reader;
	struct mail		read;
	struct text		body;
	struct event		deadline;
	u32			flow;
	char			request_id[HTTP_ID_MAX + 1];
	struct api_params	params;
	struct api_error	err;
	bool			bad;
	bool			posted;
	bool			streams;
	bool			ended;
	bool			handled;
	struct choice		*choices;
	u32			nr_choices;
	u32			nr_over;
	char			id[API_ID_MAX + 16];
	s64			created;
	s64			begin_ns;
	s64			first_ns;
	struct text		prefix;
	char			*piece;
	size_t			piece_max;
};

static_assert(sizeof(((struct call *)0)->id) <= CONN_ID_MAX + 1, "ids are cut");

/**
 * call_start() - a request to the API came: answer it when it is done
 *
 * Refuses it at once when the server cannot work at it now.
 */
void call_start(struct service *svc, struct conn *c, enum api_kind kind,
		const struct http_request *r);

/* call_fail() - answer with an error, as a status or as an event */
void call_fail(struct call *call, const struct api_error *err);

/**
 * call_stop() - end a call from outside, whatever it has so far
 *
 * Context: its loop's thread, no handler of the call running.  The call may be
 * gone afterwards.
 */
void call_stop(struct call *call, const struct api_error *err);

/* call_metrics() - figures of its model, of its loop */
struct metrics *call_metrics(const struct call *call);

/* ---- call_read.c ---- */

/**
 * call_read() - turn the body into work, or into the answer of a tokens call
 *
 * Context: a reader's thread; the loop leaves the call alone meanwhile.
 * Return: 0, or -1 with @call->err.
 */
int __must_check call_read(struct call *call);

/* ---- choice.c ---- */

/**
 * choice_read() - take what came for one sample
 * @now: CLOCK_MONOTONIC, in ns
 *
 * Return: false when the sample failed: choice_error() says how.
 */
bool choice_read(struct call *call, struct choice *ch, s64 now);

/* choice_has_news() - is there something to send? */
bool choice_has_news(const struct call *call, const struct choice *ch);

/* choice_error() - what the failure of a sample means for the client */
void choice_error(const struct call *call, const struct choice *ch,
		  struct api_error *err);

/* ---- answer.c ---- */

/* answer_prepare() - what all answers of a call have in common */
void answer_prepare(struct call *call);

/* answer_event() - one event of a stream: what is new of choice @i */
void answer_event(struct call *call, u32 i, struct text *t);

/* best_pick() - best.c: of the samples drawn, those that are the answer */
int __must_check best_pick(struct call *call);

/* answer_usage_event() - the last one */
void answer_usage_event(struct call *call, struct text *t);

/* answer_whole() - the answer to a call that does not stream */
void answer_whole(struct call *call, struct text *t);

/* ---- logprobs.c ---- */

/* What logprobs_write() tells of. */
enum {
	LOGPROBS_PROMPT	= BIT(0),
	LOGPROBS_TEXT	= BIT(1),
};

/**
 * logprobs_write() - the member "logprobs" of choice @i, a comma first
 * @parts: LOGPROBS_PROMPT: tokens of the prompt, which echo shows;
 *         LOGPROBS_TEXT: its own that were not told yet
 *
 * It is null where none are wanted.
 */
void logprobs_write(struct call *call, u32 i, u32 parts, struct text *t);

/* logprobs_prompt() - the member "prompt_logprobs" of prompt @q, if wanted */
void logprobs_prompt(struct call *call, const struct work_prompt *q,
		     struct text *t);

/* call_tokens() - tokens generated for it so far */
u64 call_tokens(const struct call *call);

#endif /* RUNTIME_SERVER_CALL_H */
