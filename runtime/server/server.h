/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.h - the OpenAI server
 */
#ifndef RUNTIME_SERVER_SERVER_H
#define RUNTIME_SERVER_SERVER_H

#include "runtime/server/backend.h"
#include "runtime/server/conn.h"
#include "runtime/server/keys.h"

#define SERVER_MODELS_MAX	32u
#define SERVER_ADAPTERS_MAX	32u	/* at start; as KV_LIST_MAX */
#define SERVER_LOOPS_MAX	64u	/* as ACCEPT_LOOPS */

/**
 * struct server_model - one model to serve
 * @dir:      directory of its files
 * @name:     its name for clients; NULL: the last part of @dir
 * @domain:   name of its domain unless one is given; NULL: the last part of @dir
 * @progress: called while it is loaded
 */
struct server_model {
	const char		*dir;
	const char		*name;
	const char		*domain;
	struct model_progress	progress;
};

/**
 * struct server_opts - options of the server
 * @models:    [@nr_models], 1 to SERVER_MODELS_MAX
 * @adapters:  [@nr_adapters], up to SERVER_ADAPTERS_MAX: NAME=DIR, or MODEL:NAME=DIR
 * @load_adapters: clients may load and unload adapters
 * @host:      address or name to listen on
 * @port:      0: any free one
 * @unix_path: a socket in the file system to listen on as well, or NULL
 * @unix_mode: permissions of that socket
 * @unix_only: listen on that socket alone
 * @loops:     threads with connections, 1 to SERVER_LOOPS_MAX
 * @keys:      the API keys; none: every client is served
 * @origins:   [@nr_origins], of pages that may use the server from a browser
 * @model:     how to load each model, except for @models' progress
 * @engine:    how to attach
 * @priority:  default priority of requests
 * @calls:     most requests at once, running or waiting
 * @timeout_s: seconds that a request may take, 0: any time
 * @samples:   most samples of one request
 * @stream:    bytes of a stream that a slow client may leave unread
 * @drain_s:   seconds for running requests after SIGTERM
 * @lost_s:    seconds between the failure of the GPU and the server's end
 * @stall_s:   seconds without a sign of the engine before the server is not
 *             ready
 * @stats_s:   seconds between two lines about the work, 0: none
 * @chat_template: `auto`: the model's; `plain`: the built-in one; else a file
 */
struct server_opts {
	const struct server_model *models;
	u32			nr_models;
	const char * const	*adapters;
	u32			nr_adapters;
	bool			load_adapters;
	const char		*host;
	u32			port;
	const char		*unix_path;
	u32			unix_mode;
	bool			unix_only;
	u32			loops;
	const struct keys	*keys;
	const char * const	*origins;
	u32			nr_origins;
	struct model_opts	model;
	struct engine_opts	engine;
	struct conn_limits	limits;
	u32			priority;
	u32			calls;
	u32			timeout_s;
	u32			samples;
	u64			stream;
	u32			drain_s;
	u32			lost_s;
	u32			stall_s;
	u32			stats_s;
	const char		*chat_template;
};

/* Does a thread of the server still run?  Then the process must end at once. */
extern bool server_is_stuck;

/* How server_run() ended. */
enum server_end {
	SERVER_DONE,		/* by a signal */
	SERVER_BAD_OPTION,	/* an invalid name or address */
	SERVER_NO_ADDRESS,	/* the address cannot be listened on */
	SERVER_NO_MODEL,	/* the model cannot be loaded */
	SERVER_NO_DAEMON,	/* the daemon will never admit the model */
	SERVER_NO_SYSTEM,	/* memory, threads, descriptors */
	SERVER_NO_DEVICE,	/* the GPU failed while it was serving */
};

/**
 * server_run() - serve until SIGTERM or SIGINT
 * @err: with SERVER_NO_MODEL and SERVER_NO_DAEMON: negative errno
 *
 * Errors are logged in one line.  The function blocks SIGTERM, SIGINT and
 * SIGHUP for good, ignores SIGPIPE, and raises the limit of descriptors.
 */
enum server_end server_run(const struct server_opts *o, int *err);

#endif /* RUNTIME_SERVER_SERVER_H */
