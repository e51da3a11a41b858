/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service.h - state shared by the calls of a loop, and by all loops
 */
#ifndef RUNTIME_SERVER_SERVICE_H
#define RUNTIME_SERVER_SERVICE_H

#include <pthread.h>

#include "runtime/server/backend.h"
#include "runtime/server/conn.h"
#include "runtime/server/cors.h"
#include "runtime/server/keys.h"
#include "runtime/server/metrics.h"
#include "runtime/server/retry.h"

/**
 * struct reader - a thread that reads bodies or files on behalf of the loops
 * @stop: tells the thread to end
 */
struct reader {
	struct mailbox	mail;
	pthread_t	thread;
	u32		stop;
	bool		started;
};

/* reader_start() - with the name of the thread: 0 or a negative errno */
int __must_check reader_start(struct reader *r, const char *name);
void reader_stop(struct reader *r);

#define SERVICE_READERS	2u	/* one for short bodies, one for long ones */
#define SERVICE_LONG	65536u	/* bytes from which a body is long */

struct call;
struct service;

/**
 * struct site - state shared by all loops of a server
 * @backends:   [@nr_backends], the models that do the work
 * @services:   [@nr_services], one for each loop
 * @keys:       the API keys; none: every client is served
 * @cors:       pages that may use the server from a browser
 * @loader:     thread that loads adapters; it runs if @load_adapters
 * @load_adapters: clients may load and unload adapters
 * @stall_s:    as in struct server_opts
 * @max_calls:  further calls are refused with a time to retry
 * @max_stream: as in struct server_opts
 * @timeout_s:  seconds after which a request is ended, 0: never
 * @nr_calls:   calls in progress, of all loops
 * @draining:   new calls are refused
 *
 * Any thread writes the last two; the others are written before threads start.
 */
struct site {
	struct backend	*backends;
	u32		nr_backends;
	struct service	*services;
	u32		nr_services;
	struct reader	readers[SERVICE_READERS];
	struct reader	loader;
	bool		load_adapters;
	const struct keys *keys;
	struct cors	cors;
	u32		stall_s;
	s64		created;
	u32		max_calls;
	u64		max_stream;
	u32		timeout_s;
	u32		nr_calls;
	u32		draining;
};

/**
 * struct service - state shared by the calls of a loop
 * @metrics:   the loop's, one for each backend
 * @retry:     how fast its calls end
 * @to_cancel: mail that ends its calls
 * @list:      its calls
 */
struct service {
	struct site	*site;
	struct loop	loop;
	struct metrics	*metrics;
	struct retry	retry;
	struct mail	to_cancel;
	struct call	*list;
};

/* service_init() - set up all but the loop: 0 or -ENOMEM */
int __must_check service_init(struct service *svc, struct site *site);

/* service_free() - free @svc after loop_destroy() */
void service_free(struct service *svc);

/* service_cancel() - end every call with 503; on its loop's thread */
void service_cancel(struct service *svc);

/**
 * service_admit() - may one more request begin?
 * @tokens: the request needs only the tokenizer of a model
 *
 * Context: any thread.
 * Return: 0 with a place taken, for service_leave(), or -1 with @err.
 */
int __must_check service_admit(struct service *svc, bool tokens,
			       struct api_error *err);

/* service_leave() - give back the place of service_admit() */
void service_leave(struct service *svc);

/* service_refuse() - answer @err, with a Retry-After where a retry may help */
void service_refuse(const struct service *svc, struct conn *c,
		    const struct api_error *err);

#endif /* RUNTIME_SERVER_SERVICE_H */
