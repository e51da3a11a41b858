// SPDX-License-Identifier: Apache-2.0
/*
 * serve.c - kvrt serve: the OpenAI API over HTTP
 *
 * Options and exit codes; the server is in runtime/server.
 */
#include <stdlib.h>

#include "runtime/cli/cli.h"
#include "runtime/server/server.h"

#define DEF_SEQS	256u
#define BODIES		16u	/* whole bodies that may be on their way */

#define SERVE_OPTS(x)							\
	x(str, host, "host", "127.0.0.1", 0, 0, "ADDRESS",		\
	  "address to listen on; 0.0.0.0 or :: is every address of this machine") \
	x(uint, port, "port", "8000", 0, 65535, "N",			\
	  "port to listen on, 0: a free one, which is printed")		\
	x(str, name, "served-model-name", NULL, 0, 0, "NAME",		\
	  "name that requests use for the model (default the name of the model folder)") \
	x(str, api_key, "api-key", NULL, 0, 0, "KEY",			\
	  "serve /v1 only to those who know KEY (default $KVRT_API_KEY, else everybody)") \
	x(str, chat_template, "chat-template", "auto", 0, 0, "auto|plain|FILE", \
	  "auto is the model's own; plain is the built-in one, each message's text and an empty line; else a file with a template") \
	x(uint, max_requests, "max-requests", "512", 1, 1 << 20, "N",	\
	  "requests worked at or waiting; more are answered 429")	\
	x(uint, max_samples, "max-samples", "1024", 1, 1 << 20, "N",	\
	  "samples of one request, all its prompts together")		\
	x(uint, max_connections, "max-connections", "16384", 1, 1 << 20, "N", \
	  "connections; one more takes the place of an idle one")	\
	x(size, max_body, "max-body", "8M", 1024, 1ull << 30, "SIZE",	\
	  "longest body; a longer one is answered 413")			\
	x(size, stream_buffer, "stream-buffer", "1M", 1024, 1ull << 30, "SIZE", \
	  "what a slow reader of a stream may leave behind before it is given up") \
	x(uint, head_timeout, "head-timeout", "10", 1, 86400, "SECONDS", \
	  "time for the whole head of a request")			\
	x(uint, body_timeout, "body-timeout", "60", 1, 86400, "SECONDS", \
	  "time for the whole body of a request")			\
	x(uint, idle_timeout, "idle-timeout", "75", 1, 86400, "SECONDS", \
	  "time between two requests of a connection")			\
	x(uint, write_timeout, "write-timeout", "60", 1, 86400, "SECONDS", \
	  "time in which a reader must take something")			\
	x(uint, drain_timeout, "drain-timeout", "30", 0, 86400, "SECONDS", \
	  "time that running requests get after SIGTERM or SIGINT")	\
	x(uint, stall_timeout, "stall-timeout", "30", 1, 86400, "SECONDS", \
	  "/ready answers 503 when requests wait and no step ended for this long") \
	x(uint, priority, "priority", "100", 0, 1 << 30, "N",		\
	  "of requests that give none; a request's own is subtracted, so that lower is earlier; kvrt generate has 0") \
	x(choice, dtype, "dtype", "f32", 0, 0, "f32|bf16",		\
	  "type of activations and KV")					\
	x(choice, mode, "mode", "fast", 0, 0, "fast|exact",		\
	  "exact gives the same bits whoever else is in the batch and however often memory is taken") \
	x(choice, kernels, "kernels", "auto", 0, 0, "auto|cpu|ref",	\
	  "implementation of the arithmetic; ref is slow and plain")	\
	x(uint, threads, "threads", "0", 0, 1024, "N",			\
	  "compute threads, 0: one for each core")			\
	CLI_MODEL_OPTS(x)						\
	x(uint, max_model_len, "max-model-len", "0", 0, 1 << 30, "N",	\
	  "longest sequence in tokens, 0: what the model allows")	\
	x(str, domain, "domain", NULL, 0, 0, "NAME",			\
	  "the daemon's domain that holds the blocks (default the name of the model folder)") \
	x(str, socket, "socket", NULL, 0, 0, "PATH",			\
	  "attach socket of the daemon (default $KVMM_SOCKET, else attach.sock in $KVMM_RUNDIR, $XDG_RUNTIME_DIR/kvmm, or /run/kvmm for root and /tmp/kvmm-UID for others)") \
	x(choice, block_tokens, "block-tokens", "16", 0, 0, "16|32|64",	\
	  "tokens of a block")						\
	x(uint, max_batch, "max-batch", "0", 0, 4096, "N",		\
	  "most sequences in one step, 0: as many as model and daemon allow") \
	x(uint, chunk, "chunk", "0", 0, 65536, "N",			\
	  "most tokens of one prompt in one step, 0: as many as fit")	\
	CLI_LIMIT_OPTS(x)						\
	x(choice, log_level, "log-level", "info", 0, 0, "err|warn|info|debug", \
	  "what is told on stderr; of requests, those answered 5xx at warn, 4xx at info, all at debug")

struct serve_opts {
#define x OPT_FIELD
	SERVE_OPTS(x)
#undef x
};

static const struct kv_opt option_table[] = {
#define x(...) OPT_ENTRY(struct serve_opts, __VA_ARGS__)
	SERVE_OPTS(x)
#undef x
};

static const struct kv_exit exits[] = {
	{ 0, "a signal ended it; also --help and --version" },
	{ EX_USAGE, "a wrong option or argument, or an address that is none" },
	{ EX_DATAERR, "model files that do not hold what they should" },
	{ EX_NOINPUT, "a model folder or a file of it is missing" },
	{ EX_UNAVAILABLE, "the address and port cannot be had, or the daemon refuses this client" },
	{ EX_SOFTWARE, "a defect of kvrt or kvmm" },
	{ EX_OSERR, "the system refused memory or threads" },
	{ EX_IOERR, "a file cannot be read" },
	{ EX_NOPERM, "the daemon's socket admits others only" },
};

const struct kv_program cli_serve_program = {
	.name		= "kvrt serve",
	.operands	= "MODEL_DIR",
	.about		= "Serves the model in MODEL_DIR with the OpenAI API over HTTP: /v1/completions, /v1/chat/completions, /v1/models; /health, /ready, /version, /metrics. The KV of all requests lies in the memory of the kvmm daemon; when that is not there, requests are answered 503 until it is.",
	.opts		= option_table,
	.nr_opts	= ARRAY_SIZE(option_table),
	.exits		= exits,
	.nr_exits	= ARRAY_SIZE(exits),
};

static struct model_opts model_opts(const struct serve_opts *o)
{
	static const char * const kernels[] = { NULL, "cpu", "ref" };
	const u32 batch = max(o->max_batch, MODEL_MAX_ROWS);

	return (struct model_opts){
		.dtype = o->dtype ? MODEL_BF16 : MODEL_F32,
		.mode = o->mode ? MODEL_EXACT : MODEL_FAST,
		.kernel = kernels[o->kernels],
		.nr_threads = o->threads,
		.max_len = o->max_model_len,
		.max_rows = max(o->chunk, batch),
		.dummy = o->load_format,
	};
}

static struct engine_opts engine_opts(const struct serve_opts *o)
{
	static const u32 block_tokens[] = { 16, 32, 64 };

	return (struct engine_opts){
		.socket = o->socket,
		.domain = o->domain,
		.block_tokens = block_tokens[o->block_tokens],
		.limits = CLI_LIMITS(o),
		.max_seqs = DEF_SEQS,
		.max_batch = o->max_batch,
		.chunk = o->chunk,
	};
}

static struct conn_limits conn_limits(const struct serve_opts *o)
{
	return (struct conn_limits){
		.connections = o->max_connections,
		.body = o->max_body,
		.bodies = o->max_body * BODIES,
		.head_s = o->head_timeout,
		.body_s = o->body_timeout,
		.idle_s = o->idle_timeout,
		.write_s = o->write_timeout,
	};
}

static int exit_of(enum server_end end, int err)
{
	switch (end) {
	case SERVER_DONE:
		return 0;
	case SERVER_BAD_OPTION:
		return EX_USAGE;
	case SERVER_NO_ADDRESS:
		return EX_UNAVAILABLE;
	case SERVER_NO_SYSTEM:
		return EX_OSERR;
	case SERVER_NO_MODEL:
		return err == -EACCES ? EX_NOINPUT : cli_exit_of(err);
	case SERVER_NO_DAEMON:
		return err == -EACCES || err == -EPERM ? EX_NOPERM :
							 EX_UNAVAILABLE;
	}
	return EX_SOFTWARE;
}

int cli_serve(int argc, char **argv)
{
	const char *key = getenv("KVRT_API_KEY");
	struct server_opts so = { 0 };
	struct progress progress;
	struct serve_opts o;
	enum server_end end;
	int nr, ret, err;

	ret = cli_parse(&cli_serve_program, NULL, &o, argc, argv, &nr);
	if (ret)
		return max(ret, 0);
	if (nr != 1) {
		pr_err("%s: kvrt serve MODEL_DIR", nr ?
		       "more than one model folder" :
		       "the model folder is missing");
		return EX_USAGE;
	}
	kv_log_init("kvrt", (enum kv_log_level)o.log_level);
	so.dir = argv[0];
	so.name = o.name;
	so.host = o.host;
	so.port = o.port;
	so.key = o.api_key ? o.api_key : key && *key ? key : NULL;
	so.model = model_opts(&o);
	so.model.progress = progress_start(&progress, argv[0]);
	so.engine = engine_opts(&o);
	so.limits = conn_limits(&o);
	so.priority = o.priority;
	so.calls = o.max_requests;
	so.samples = o.max_samples;
	so.stream = o.stream_buffer;
	so.drain_s = o.drain_timeout;
	so.stall_s = o.stall_timeout;
	so.chat_template = o.chat_template;
	end = server_run(&so, &err);
	return exit_of(end, err);
}
