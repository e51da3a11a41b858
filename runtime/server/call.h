/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h - one request to the API, from its body to its last byte
 */
#ifndef RUNTIME_SERVER_CALL_H
#define RUNTIME_SERVER_CALL_H

#include <pthread.h>

#include "runtime/server/api.h"
#include "runtime/server/backend.h"
#include "runtime/server/conn.h"
#include "runtime/server/metrics.h"

/**
 * struct reader - a thread that reads bodies, so that no loop has to
 * @stop: ends it
 */
struct reader {
	struct mailbox	mail;
	pthread_t	thread;
	u32		stop;
	bool		started;
};

/* reader_start() - 0 or a negative errno */
int __must_check reader_start(struct reader *r);
void reader_stop(struct reader *r);

#define SERVICE_READERS	2u	/* one for short bodies, one for long ones */
#define SERVICE_LONG	65536u	/* bytes of a long one */

/**
 * struct service - what the calls of a loop share
 * @b:         where work goes
 * @metrics:   of the loop
 * @max_calls: more are told to come back
 * @max_stream: as in struct server_opts
 * @nr_calls:  being worked at
 * @draining:  new ones are refused
 * @list:      of them
 */
struct service {
	struct backend	*b;
	struct loop	*loop;
	struct metrics	metrics;
	struct reader	readers[SERVICE_READERS];
	u32		max_calls;
	u64		max_stream;
	u32		nr_calls;
	bool		draining;
	struct call	*list;
};

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
};

/**
 * struct call - one request
 * @conn:     NULL once it was answered, or the client is gone
 * @body:     until it is understood
 * @bad:      it was not: @err says why
 * @posted:   the backend knows it
 * @streams:  the head of the stream is sent
 * @ended:    the backend is done with it; a reader may not be
 * @handled:  a handler of it is running, further up
 * @choices:  [@nr_choices], by prompt, then sample
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

/**
 * call_start() - a request to the API came: answer it when it is done
 *
 * Refuses it at once when the server cannot work at it now.
 */
void call_start(struct service *svc, struct conn *c, enum api_kind kind,
		const struct http_request *r);

/* call_fail() - answer with an error, as a status or as an event */
void call_fail(struct call *call, const struct api_error *err);

/* service_cancel() - end every call, with 503 */
void service_cancel(struct service *svc);

/* ---- answer.c ---- */

/* answer_prepare() - what all answers of a call have in common */
void answer_prepare(struct call *call);

/* answer_event() - one event of a stream: what is new of choice @i */
void answer_event(struct call *call, u32 i, struct text *t);

/* answer_usage_event() - the last one */
void answer_usage_event(struct call *call, struct text *t);

/* answer_whole() - the answer to a call that does not stream */
void answer_whole(struct call *call, struct text *t);

/* call_tokens() - tokens generated for it so far */
u64 call_tokens(const struct call *call);

#endif /* RUNTIME_SERVER_CALL_H */
