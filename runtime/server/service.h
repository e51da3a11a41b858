/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service.h - what the calls of a loop share, and what all loops do
 */
#ifndef RUNTIME_SERVER_SERVICE_H
#define RUNTIME_SERVER_SERVICE_H

#include <pthread.h>

#include "runtime/server/backend.h"
#include "runtime/server/conn.h"
#include "runtime/server/keys.h"
#include "runtime/server/metrics.h"
#include "runtime/server/retry.h"

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

struct call;
struct service;

/**
 * struct site - what all loops of a server share
 * @backends:   [@nr_backends], the models, where work goes
 * @services:   [@nr_services], one of each loop
 * @keys:       the API keys; none: everybody is served
 * @stall_s:    as in struct server_opts
 * @max_calls:  more are told to come back
 * @max_stream: as in struct server_opts
 * @timeout_s:  after which a request is ended, 0: never
 * @nr_calls:   being worked at, of all loops
 * @draining:   new ones are refused
 *
 * The last two are written by any thread, the others before there are some.
 */
struct site {
	struct backend	*backends;
	u32		nr_backends;
	struct service	*services;
	u32		nr_services;
	struct reader	readers[SERVICE_READERS];
	const struct keys *keys;
	u32		stall_s;
	s64		created;
	u32		max_calls;
	u64		max_stream;
	u32		timeout_s;
	u32		nr_calls;
	u32		draining;
};

/**
 * struct service - what the calls of a loop share
 * @metrics:   of the loop, one of each backend
 * @retry:     how fast they end
 * @to_cancel: ends its calls
 * @list:      of calls
 */
struct service {
	struct site	*site;
	struct loop	loop;
	struct metrics	*metrics;
	struct retry	retry;
	struct mail	to_cancel;
	struct call	*list;
};

/* service_init() - all but its loop: 0 or -ENOMEM */
int __must_check service_init(struct service *svc, struct site *site);

/* service_free() - after loop_destroy() */
void service_free(struct service *svc);

/* service_cancel() - end every call, with 503; on its loop's thread */
void service_cancel(struct service *svc);

/**
 * service_admit() - may one more request be worked at?
 * @tokens: it needs only the tokenizer of a model
 *
 * Context: any thread.
 * Return: 0 with a place taken, for service_leave(), or -1 with @err.
 */
int __must_check service_admit(struct service *svc, bool tokens,
			       struct api_error *err);

/* service_leave() - give back the place of service_admit() */
void service_leave(struct service *svc);

/* service_refuse() - answer @err, and when to come again where that helps */
void service_refuse(const struct service *svc, struct conn *c,
		    const struct api_error *err);

#endif /* RUNTIME_SERVER_SERVICE_H */
