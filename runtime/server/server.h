/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.h - the OpenAI server of one model
 */
#ifndef RUNTIME_SERVER_SERVER_H
#define RUNTIME_SERVER_SERVER_H

#include "runtime/server/backend.h"
#include "runtime/server/conn.h"

/**
 * struct server_opts - what to serve, where, and how much
 * @dir:       of the model
 * @name:      by which it is served; NULL: the last part of @dir
 * @host:      address or name to listen on
 * @port:      0: any free one
 * @key:       the API key, or NULL: everybody is served
 * @model:     how to load it
 * @engine:    how to attach
 * @priority:  of requests that give none
 * @calls:     most requests at once, running or waiting
 * @samples:   most samples of one request
 * @stream:    bytes of a stream that a slow reader may leave behind
 * @drain_s:   seconds that running requests get after SIGTERM
 * @stall_s:   seconds without a sign of the engine after which it is not ready
 * @chat_template: `auto`, the model's; `plain`, the built-in one; else a file
 */
struct server_opts {
	const char		*dir;
	const char		*name;
	const char		*host;
	u32			port;
	const char		*key;
	struct model_opts	model;
	struct engine_opts	engine;
	struct conn_limits	limits;
	u32			priority;
	u32			calls;
	u32			samples;
	u64			stream;
	u32			drain_s;
	u32			stall_s;
	const char		*chat_template;
};

/* How server_run() ended. */
enum server_end {
	SERVER_DONE,		/* a signal asked for it */
	SERVER_BAD_OPTION,	/* a name or an address that is none */
	SERVER_NO_ADDRESS,	/* it cannot listen there */
	SERVER_NO_MODEL,	/* the model cannot be loaded */
	SERVER_NO_DAEMON,	/* the daemon will never admit it */
	SERVER_NO_SYSTEM,	/* memory, threads, descriptors */
};

/**
 * server_run() - serve until SIGTERM or SIGINT
 * @err: with SERVER_NO_MODEL and SERVER_NO_DAEMON: negative errno
 *
 * What went wrong was said in one line.  Blocks SIGTERM, SIGINT and SIGHUP
 * for good, ignores SIGPIPE, and raises the limit of descriptors.
 */
enum server_end server_run(const struct server_opts *o, int *err);

#endif /* RUNTIME_SERVER_SERVER_H */
