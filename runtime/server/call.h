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
 * @s:        the sample with its tokens
 * @taken:    how many tokens are turned into text
 * @told:     how many of these were sent with their ids
 * @out:      text not sent yet; without streaming, all text
 * @over:     @reason is known, no more text will come
 * @sent:     its last chunk is sent
 * @began:    its first chunk is sent
 * @stop:     index of the stop string that ended it, or -1
 * @stop_id:  the request's own id that ended it, or -1
 * @last_ns:  when its last token came
 * @lp:       detokenizer of the @told tokens, for text_offset
 * @offset:   characters in their text
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
 * @conn:     NULL once the call is answered, or the client has gone
 * @body:     the body, until it is read
 * @deadline: timer that ends the call, if it has a deadline
 * @flow:     number of its API key, 0: none
 * @adapter:  a reference to its adapter, or NULL
 * @request_id: id in its head
 * @bad:      the body was refused: see @err
 * @posted:   the work was posted to the backend
 * @streams:  the head of the stream is sent
 * @ended:    the backend is done with it; the client may not be
 * @handled:  a handler of the call is running, further up the stack
 * @choices:  [@nr_choices], by prompt, then sample; at the end best_pick()
 *            moves those in front that are the answer
 * @nr_over:  choices that are over
 * @prefix:   beginning of every chunk
 * @piece:    buffer for the text of one token
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
	struct served_adapter	*adapter;
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
 * call_start() - begin a call: answer the API request when it is done
 *
 * The request is refused at once when the server has no room for it.
 */
void call_start(struct service *svc, struct conn *c, enum api_kind kind,
		const struct http_request *r);

/* call_fail() - answer with an error, as a status or as an event */
void call_fail(struct call *call, const struct api_error *err);

/**
 * call_stop() - end a call from outside, at any stage
 *
 * Context: its loop's thread, outside of the call's handlers.  The call may be
 * freed afterwards.
 */
void call_stop(struct call *call, const struct api_error *err);

/* call_metrics() - metrics of its model, for its loop */
struct metrics *call_metrics(const struct call *call);

/* ---- call_read.c ---- */

/**
 * call_read() - turn the body into work, or into the answer of a tokens call
 *
 * Context: a reader's thread; the loop does not touch the call meanwhile.
 * Return: 0, or -1 with @call->err.
 */
int __must_check call_read(struct call *call);

/* ---- choice.c ---- */

/**
 * choice_read() - take new tokens of one sample
 * @now: CLOCK_MONOTONIC, in ns
 *
 * Return: false when the sample failed: choice_error() gives the error.
 */
bool choice_read(struct call *call, struct choice *ch, s64 now);

/* choice_has_news() - is there anything to send? */
bool choice_has_news(const struct call *call, const struct choice *ch);

/* choice_error() - the client's error for a failed sample */
void choice_error(const struct call *call, const struct choice *ch,
		  struct api_error *err);

/* ---- answer.c ---- */

/* answer_prepare() - write the beginning of all answers of a call */
void answer_prepare(struct call *call);

/* answer_event() - one event of a stream: news of choice @i */
void answer_event(struct call *call, u32 i, struct text *t);

/* best_pick() - best.c: move the samples in front that are the answer */
int __must_check best_pick(struct call *call);

/* answer_usage_event() - write the last event */
void answer_usage_event(struct call *call, struct text *t);

/* answer_whole() - write the answer to a call that does not stream */
void answer_whole(struct call *call, struct text *t);

/* ---- logprobs.c ---- */

/* Parts for logprobs_write(). */
enum {
	LOGPROBS_PROMPT	= BIT(0),
	LOGPROBS_TEXT	= BIT(1),
};

/**
 * logprobs_write() - write the member "logprobs" of choice @i, after a comma
 * @parts: LOGPROBS_PROMPT: tokens of the prompt, which echo shows;
 *         LOGPROBS_TEXT: its own tokens that were not sent yet
 *
 * The member is null if the request wants no logprobs.
 */
void logprobs_write(struct call *call, u32 i, u32 parts, struct text *t);

/* logprobs_prompt() - write "prompt_logprobs" of prompt @q, if wanted */
void logprobs_prompt(struct call *call, const struct work_prompt *q,
		     struct text *t);

/* call_tokens() - number of tokens generated for the call so far */
u64 call_tokens(const struct call *call);

#endif /* RUNTIME_SERVER_CALL_H */
