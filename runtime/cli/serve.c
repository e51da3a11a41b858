// SPDX-License-Identifier: Apache-2.0
/*
 * serve.c - kvrt serve: the OpenAI API over HTTP
 *
 * Options and exit codes; the server is in runtime/server.
 */
#include <stdlib.h>

#include <kvmm/config.h>
#include <kvmm/notify.h>

#include <uapi/kvmm.h>

#include "runtime/cli/cli.h"
#include "runtime/cli/ranks.h"
#include "runtime/server/cors.h"
#include "runtime/server/server.h"

static_assert(SERVER_ADAPTERS_MAX == KV_LIST_MAX, "as many as --lora may be given");

#define BODIES		16u	/* whole bodies that may be in memory at once */

#define SERVE_OPTS(x)							\
	x(str, config, "config", NULL, 0, 0, "PATH",			\
	  "file of options, key = value a line; the command line and $KVRT_SERVE_<OPTION> come first (default $KVRT_SERVE_CONFIG, else none)") \
	x(str, host, "host", "127.0.0.1", 0, 0, "ADDRESS",		\
	  "address to listen on; 0.0.0.0 or :: is every address of this machine") \
	x(uint, port, "port", "8000", 0, 65535, "N",			\
	  "port to listen on, 0: a free one, which is printed")		\
	x(str, unix_path, "unix", NULL, 0, 0, "PATH",			\
	  "listen on a Unix socket too; a dead one at PATH is replaced") \
	x(str, unix_mode, "unix-mode", "600", 0, 0, "MODE",		\
	  "permissions of the Unix socket, octal: a user that may write there may connect") \
	x(flag, unix_only, "unix-only", NULL, 0, 0, NULL,		\
	  "listen on the Unix socket alone, and on no port")		\
	x(uint, loops, "loops", "1", 1, SERVER_LOOPS_MAX, "N",		\
	  "threads that read requests and write answers; the model's threads want the same cores") \
	x(str, name, "served-model-name", NULL, 0, 0, "NAME",		\
	  "name that requests use for the model, if it is the only one (default the name of the model folder or file, or ORG/NAME)") \
	x(list, models, "model", NULL, 0, 0, "NAME=MODEL",	\
	  "serve MODEL, a folder or hf:ORG/NAME, under this name; give it once for each model") \
	x(list, loras, "lora", NULL, 0, 0, "NAME=DIR",			\
	  "serve the adapter (LoRA, in the format of PEFT) in the folder DIR under this name; with several models give MODEL:NAME=DIR; give it once for each adapter") \
	x(flag, enable_lora, "enable-lora", NULL, 0, 0, NULL,		\
	  "let clients load and unload adapters, at /v1/load_lora_adapter and /v1/unload_lora_adapter; a client then names folders of this machine") \
	x(list, api_keys, "api-key", NULL, 0, 0, "KEY",			\
	  "serve only requests with KEY or another key that is given (default $KVRT_API_KEY, else all)") \
	x(str, api_key_file, "api-key-file", NULL, 0, 0, "FILE",	\
	  "likewise, one key a line, KEY or NAME:KEY; the log has the name of the key of a request") \
	x(list, origins, "allow-origin", NULL, 0, 0, "ORIGIN",		\
	  "pages that may use the server from a browser, scheme://host[:port], or * for all; may be given several times") \
	x(str, chat_template, "chat-template", "auto", 0, 0, "auto|plain|FILE", \
	  "auto is the model's own; plain is the built-in one, each message's text and an empty line; else a file with a template") \
	x(uint, max_requests, "max-requests", "512", 1, 1 << 20, "N",	\
	  "requests worked at or waiting; more are answered 429")	\
	x(uint, max_requests_per_key, "max-requests-per-key", "0", 0, 1 << 20, "N", \
	  "of these, with one API key; more are answered 429; 0: no bound") \
	x(choice, schedule, "schedule", "fcfs", 0, 0, "fcfs|prefix",	\
	  "order of requests of one key and priority: by arrival, or first the one with most of its prompt in recent requests; at most 16 younger requests overtake one") \
	x(uint, max_samples, "max-samples", "1024", 1, 1 << 20, "N",	\
	  "samples of one request, all its prompts together")		\
	x(uint, max_connections, "max-connections", "16384", 1, 1 << 20, "N", \
	  "connections; one more takes the place of an idle one")	\
	x(size, max_body, "max-body", "8M", 1024, 1ull << 30, "SIZE",	\
	  "longest body; a longer one is answered 413")			\
	x(size, stream_buffer, "stream-buffer", "1M", 1024, 1ull << 30, "SIZE", \
	  "text that a slow reader of a stream may leave unread before it is disconnected") \
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
	x(uint, lost_timeout, "lost-timeout", "1", 0, 86400, "SECONDS",	\
	  "time that requests and /health are answered 503 after the GPU failed, before kvrt ends") \
	x(uint, request_timeout, "request-timeout", "0", 0, 86400 * 30, "SECONDS", \
	  "time for a request, from its last byte to the answer's; then it is ended and answered 504, 0: any time") \
	x(uint, stall_timeout, "stall-timeout", "30", 1, 86400, "SECONDS", \
	  "/ready answers 503 when requests wait and no step ended for this long") \
	x(uint, priority, "priority", "100", 0, 1 << 30, "N",		\
	  "of requests that give none; a request's own is subtracted, so that lower is earlier; kvrt generate has 0") \
	x(choice, dtype, "dtype", "auto", 0, 0, CLI_DTYPES,		\
	  CLI_DTYPE_TEXT)						\
	x(choice, mode, "mode", "fast", 0, 0, "fast|exact",		\
	  "exact gives the same bits in any batch and after any preemption") \
	x(choice, kernels, "kernels", "auto", 0, 0, CLI_KERNELS,	\
	  CLI_KERNELS_TEXT)	\
	x(uint, threads, "threads", "0", 0, 1024, "N",			\
	  "compute threads, 0: one for each core; with --tensor-parallel: of each process, 0: its share of the cores") \
	CLI_MODEL_OPTS(x)						\
	x(uint, tensor_parallel, "tensor-parallel", "1", 1, KVMM_MAX_SHARDS, "N", \
	  "processes that share one model on CPUs, each with a device pool of kvmm; kvrt runs mpiexec, unless mpiexec or srun started it") \
	x(uint, rank_timeout, "rank-timeout", "30", 1, 86400, "SECONDS", \
	  "time after which a process of --tensor-parallel that does not answer has failed, and the group ends; it counts when all have loaded") \
	x(uint, max_model_len, "max-model-len", "0", 0, 1 << 30, "N",	\
	  "longest sequence in tokens, 0: that of the model")	\
	x(str, domain, "domain", NULL, 0, 0, "NAME",			\
	  "the daemon's domain that holds the blocks (default the name of the model folder or file)") \
	x(str, socket, "socket", NULL, 0, 0, "PATH",			\
	  "run directory of the daemon, or a socket in it (default $KVMM_SOCKET, else $KVMM_RUNDIR, else $XDG_RUNTIME_DIR/kvmm, else /tmp/kvmm-UID; /run/kvmm for root, and for users without a daemon there)") \
	x(choice, block_tokens, "block-tokens", "auto", 0, 0, "auto|16|32|64", \
	  "tokens of a block; auto: 16, or as --state-tokens in a model with recurrent layers") \
	x(uint, max_seqs, "max-seqs", "256", 1, 1 << 16, "N",		\
	  "most sequences worked at; more wait in the queue, or as many as the daemon allows") \
	x(uint, max_batch, "max-batch", "0", 0, 4096, "N",		\
	  "most sequences in one step, 0: as many as model and daemon allow") \
	x(uint, chunk, "chunk", "0", 0, 65536, "N",			\
	  "most tokens of one prompt in one step, 0: as many as fit")	\
	CLI_LIMIT_OPTS(x)						\
	CLI_LORA_OPTS(x)						\
	x(choice, log_level, "log-level", "info", 0, 0, "err|warn|info|debug", \
	  "messages on stderr; requests answered 5xx are logged at warn, 4xx at info, all at debug") \
	KV_LOG_FORMAT_OPT(x)						\
	x(uint, stats_interval, "stats-interval", "10", 0, 86400, "SECONDS", \
	  "time between two lines about tokens a second, sequences, cache and pool, while something runs; 0: no such lines")

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
	{ EX_DATAERR, "model files with wrong contents" },
	{ EX_NOINPUT, "a model folder or a file of it is missing" },
	{ EX_UNAVAILABLE, "the address and port cannot be had, or the daemon refuses this client" },
	{ EX_SOFTWARE, "a defect of kvrt or kvmm" },
	{ EX_OSERR, "the system refused memory or threads" },
	{ EX_IOERR, "a file cannot be read" },
	{ EX_NOPERM, "the daemon's socket admits others only" },
	{ EX_CONFIG, "the daemon's pool, or --memory-max, holds less than one sequence" },
	{ CLI_EX_DEVICE, "the GPU, or a process of --tensor-parallel, failed: start it again" },
};

/*
 * The prefix is not KVRT_: for a service named kvrt Kubernetes sets KVRT_PORT.
 * API keys have a file and a variable of their own.
 */
static struct serve_opts options;
static struct kv_section section = {
	.name		= "serve",
	.about		= "kvrt serve. Models are named with model = NAME=MODEL, each on a line of its own.",
	.env		= "KVRT_SERVE_",
	.line_only	= " config api-key ",
	.opts		= option_table,
	.nr		= ARRAY_SIZE(option_table),
	.values		= &options,
};
static struct kv_config config = {
	.name		= "kvrt.conf",
	.section	= &section,
	.nr		= 1,
	.env_path	= "KVRT_SERVE_CONFIG",
};

static const struct kv_config *config_file(void)
{
	return &config;
}

const struct kv_program cli_serve_program = {
	.name		= "kvrt serve",
	.operands	= "[MODEL]...",
	.about		= "Serves each MODEL, a model folder, a GGUF file or hf:ORG/NAME of the Hugging Face cache, with the OpenAI API over HTTP: /v1/completions, /v1/chat/completions, /v1/models; /tokenize, /detokenize; /health, /ready, /version, /metrics. The KV of all requests lies in the memory of the kvmm daemon; when that is not there, requests are answered 503 until it is.",
	.opts		= option_table,
	.nr_opts	= ARRAY_SIZE(option_table),
	.foreign	= cli_foreign,
	.nr_foreign	= CLI_NR_FOREIGN,
	.exits		= exits,
	.nr_exits	= ARRAY_SIZE(exits),
	.file		= config_file,
};

/*
 * As cli_parse(), with the settings of file and environment.  @argv gets the
 * operands.
 */
static int parse(int argc, char **argv, int *nr)
{
	char **copy = calloc((size_t)argc + 1, sizeof(*copy)), text[512];
	int ret;

	if (!copy) {
		pr_err("no memory for the options");
		return EX_OSERR;
	}
	memcpy(copy, argv, (size_t)argc * sizeof(*copy));
	ret = cli_parse(&cli_serve_program, NULL, &options, argc, copy, nr);
	if (!ret) {
		ret = kv_config_parse(&cli_serve_program, &config,
				      options.config, NULL, argc, argv, text,
				      sizeof(text));
		if (ret < 0)
			pr_err("%s", text);
		ret = ret < 0 ? EX_USAGE : 0;
	}
	free(copy);
	return ret;
}

/* The largest rank of adapters; 0: there will be none. */
static u32 max_rank(const struct serve_opts *o)
{
	return o->loras.nr || o->enable_lora ? o->max_lora_rank : 0;
}

static struct model_opts model_opts(const struct serve_opts *o)
{
	const u32 batch = max(o->max_batch, MODEL_MAX_ROWS);
	struct model_opts mo = {
		.mode = o->mode ? MODEL_EXACT : MODEL_FAST,
		.kernel = cli_kernel(o->kernels),
		.nr_threads = o->threads ? o->threads :
			      cli_ranks_threads(o->tensor_parallel),
		.max_len = o->max_model_len,
		.max_rows = max(o->chunk, batch),
		.window_group = !o->kv_groups,
		.dummy = o->load_format,
		.weights = o->weights,
		.quantization = o->quantization,
		.no_draws = o->draw,
		.max_rank = max_rank(o),
	};

	cli_types(o->dtype, o->kv_cache_dtype, &mo);
	return mo;
}

static struct engine_opts engine_opts(const struct serve_opts *o)
{
	static const u32 block_tokens[] = { 0, 16, 32, 64 };

	return (struct engine_opts){
		.socket = o->socket,
		.domain = o->domain,
		.block_tokens = block_tokens[o->block_tokens],
		.state_tokens = cli_state_tokens(o->state_tokens),
		.limits = CLI_LIMITS(o),
		.max_seqs = o->max_seqs,
		.max_batch = o->max_batch,
		.chunk = o->chunk,
		.schedule = o->schedule ? ENGINE_PREFIX : ENGINE_FCFS,
		.max_flow = o->max_requests_per_key,
		.max_rank = max_rank(o),
		.adapter_limits = CLI_LORA_LIMITS(o),
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
		/* A start by a service manager would load the model in vain again. */
		return err == -EDQUOT ? EX_CONFIG :
		       err == -EACCES || err == -EPERM ? EX_NOPERM : EX_UNAVAILABLE;
	case SERVER_NO_DEVICE:
		return CLI_EX_DEVICE;
	}
	return EX_SOFTWARE;
}

/* Return: 0, or EX_USAGE after one line on stderr. */
static int unix_opts(const struct serve_opts *o, struct server_opts *so)
{
	char *end;
	unsigned long mode = strtoul(o->unix_mode, &end, 8);

	if (end == o->unix_mode || *end || mode > 0777) {
		pr_err("--unix-mode %.20s: give permissions in octal, 600 or 660 for example",
		       o->unix_mode);
		return EX_USAGE;
	}
	if (o->unix_only && !o->unix_path) {
		pr_err("--unix-only: say where the Unix socket is to be, with --unix PATH");
		return EX_USAGE;
	}
	so->unix_path = o->unix_path;
	so->unix_mode = (u32)mode;
	so->unix_only = o->unix_only;
	return 0;
}

/* ---- models ---- */

/**
 * struct serve_models - models of the command line
 * @names: names cut from --model
 */
struct serve_models {
	struct server_model	list[SERVER_MODELS_MAX];
	struct progress		progress[SERVER_MODELS_MAX];
	struct cli_model	found[SERVER_MODELS_MAX];
	char			*names[SERVER_MODELS_MAX];
	u32			nr;
};

static int model_add(struct serve_models *m, const char *text, const char *name)
{
	struct cli_model *found = &m->found[min(m->nr, SERVER_MODELS_MAX - 1)];
	int ret;

	if (m->nr == SERVER_MODELS_MAX) {
		pr_err("too many models: one server has at most %u",
		       SERVER_MODELS_MAX);
		return EX_USAGE;
	}
	ret = cli_model_find(found, text);
	if (ret)
		return ret;
	m->list[m->nr] = (struct server_model){
		.dir = found->dir, .domain = cli_model_domain(found, NULL),
		.name = name ? name : found->name[0] ? found->name : NULL,
		.progress = progress_start(&m->progress[m->nr], found->dir),
	};
	m->nr++;
	return 0;
}

/* Add a model from NAME=MODEL. */
static int model_named(struct serve_models *m, const char *text)
{
	const char *dir = strchr(text, '=');
	char *name;

	if (!dir || dir == text || !dir[1]) {
		pr_err("--model %.100s: give a name and a model, NAME=MODEL", text);
		return EX_USAGE;
	}
	name = strndup(text, (size_t)(dir - text));
	if (!name) {
		pr_err("no memory for the options");
		return EX_OSERR;
	}
	m->names[m->nr] = name;
	return model_add(m, dir + 1, name);
}

/* Return: 0, or an exit code after one line on stderr. */
static int model_list(const struct serve_opts *o, char **argv, int nr,
		      struct serve_models *m)
{
	int i, ret = 0;
	u32 k;

	for (i = 0; !ret && i < nr; i++)
		ret = model_add(m, argv[i], NULL);
	for (k = 0; !ret && k < o->models.nr; k++)
		ret = model_named(m, o->models.s[k]);
	if (ret)
		return ret;
	if (!m->nr) {
		pr_err("the model folder is missing: kvrt serve MODEL");
		return EX_USAGE;
	}
	if (m->nr > 1 && (o->name || o->domain)) {
		pr_err("--%s is of one model, and there are %u: give each its name with --model NAME=MODEL",
		       o->name ? "served-model-name" : "domain", m->nr);
		return EX_USAGE;
	}
	if (o->name)
		m->list[0].name = o->name;
	return 0;
}

/* ---- keys ---- */

static int key_add(struct keys *keys, const char *key)
{
	int err = keys_add(keys, key, strlen(key), NULL);

	if (!err)
		return 0;
	pr_err("an API key %s", err == -EEXIST ?
	       "is given twice: leave one out" : err == -ENOMEM ?
	       "found no memory" : "is none: give 1 to 512 printable characters");
	return err == -ENOMEM ? EX_OSERR : EX_USAGE;
}

/* Return: 0, or an exit code after one line on stderr. */
static int key_list(const struct serve_opts *o, struct keys *keys)
{
	const char *key = getenv("KVRT_API_KEY");
	char why[600];
	int ret = 0;
	u32 i;

	for (i = 0; !ret && i < o->api_keys.nr; i++)
		ret = key_add(keys, o->api_keys.s[i]);
	if (!ret && !keys->nr && !o->api_key_file && key && *key)
		ret = key_add(keys, key);
	if (ret || !o->api_key_file)
		return ret;
	ret = keys_read(keys, o->api_key_file, why, sizeof(why));
	if (!ret)
		return 0;
	pr_err("%s", why);
	return ret == -EIO ? EX_IOERR : ret == -ENOMEM ? EX_OSERR : EX_USAGE;
}

/* Return: 0, or EX_USAGE after one line on stderr. */
static int origin_list(const struct serve_opts *o, struct server_opts *so)
{
	u32 i;

	for (i = 0; i < o->origins.nr; i++) {
		if (cors_is_origin(o->origins.s[i]))
			continue;
		pr_err("--allow-origin %.100s: give the origin of a page as a browser sends it, in small letters and without a path: https://chat.example.org, or * for all pages",
		       o->origins.s[i]);
		return EX_USAGE;
	}
	so->origins = o->origins.s;
	so->nr_origins = o->origins.nr;
	return 0;
}

static void fill(const struct serve_opts *o, struct server_opts *so)
{
	so->adapters = o->loras.s;
	so->nr_adapters = o->loras.nr;
	so->load_adapters = o->enable_lora;
	so->host = o->host;
	so->port = o->port;
	so->loops = o->loops;
	so->model = model_opts(o);
	so->engine = engine_opts(o);
	so->limits = conn_limits(o);
	so->priority = o->priority;
	so->calls = o->max_requests;
	so->timeout_s = o->request_timeout;
	so->samples = o->max_samples;
	so->stream = o->stream_buffer;
	so->drain_s = o->drain_timeout;
	so->lost_s = o->lost_timeout;
	so->stall_s = o->stall_timeout;
	so->stats_s = o->stats_interval;
	so->chat_template = o->chat_template;
}

/* Serve with the ranks of @cr, or follow their leader. */
static int serve_ranks(struct server_opts *so, struct cli_ranks *cr)
{
	const struct server_model *m = &so->models[0];
	int ret, err;

	if (!so->engine.domain)
		so->engine.domain = m->domain;
	so->engine.rank_timeout_ms = options.rank_timeout * 1000;
	ret = cli_ranks_agree(cr, m->dir, &so->model, &so->engine);
	if (ret)
		return ret;
	so->model.link = &cr->link;
	so->engine.ranks = cr->ranks;
	if (cli_ranks_follows(cr))
		return cli_ranks_follow(cr, m->dir, &so->model, &so->engine);
	ret = server_run(so, &err);
	return exit_of((enum server_end)ret, err);
}

/* Options that need no ranks.  One process refuses them before it starts others. */
static int prepare(const struct serve_opts *o, char **argv, int nr,
		   struct serve_models *m, struct keys *keys, struct server_opts *so)
{
	int ret;

	*so = (struct server_opts){ .models = m->list, .keys = keys };
	ret = unix_opts(o, so);
	if (!ret)
		ret = model_list(o, argv, nr, m);
	if (!ret)
		ret = key_list(o, keys);
	if (!ret)
		ret = origin_list(o, so);
	fill(o, so);
	so->nr_models = m->nr;
	return ret ? ret : cli_backend(o->backend, o->socket, &so->model);
}

static int serve(struct server_opts *so, struct cli_ranks *cr)
{
	enum server_end end;
	int err;

	if (cr->ranks)
		return serve_ranks(so, cr);
	end = server_run(so, &err);
	return exit_of(end, err);
}

int cli_serve(int argc, char **argv)
{
	/* A stuck thread may still read it at the end. */
	static struct serve_models m;
	struct keys keys = { 0 };
	struct server_opts so;
	struct cli_ranks cr = { 0 };
	char **args = calloc((size_t)argc + 2, sizeof(*args));
	int nr, ret;

	if (!args) {
		pr_err("no memory for the options");
		return EX_OSERR;
	}
	/* Those of main(); @argv gets another order. */
	memcpy(args + 1, argv, (size_t)argc * sizeof(*args));
	args[0] = argv[0];
	ret = parse(argc, argv, &nr);
	if (!ret && options.tensor_parallel > 1 &&
	    ((u32)nr + options.models.nr > 1 || options.loras.nr || options.enable_lora)) {
		pr_err("--tensor-parallel is for one model without adapters");
		ret = EX_USAGE;
	}
	if (ret) {
		free(args);
		return max(ret, 0);
	}
	kv_log_init("kvrt", (enum kv_log_level)options.log_level);
	kv_log_format((enum kv_log_format)options.log_format);
	ret = prepare(&options, argv, nr, &m, &keys, &so);
	if (!ret)
		ret = cli_ranks_open(options.tensor_parallel, args, &cr);
	/* A parent of ranks leaves the socket of the service manager to rank 0. */
	kv_notify_init();
	free(args);
	if (!ret)
		ret = serve(&so, &cr);
	ret = cli_ranks_close(&cr, ret);
	keys_free(&keys);
	return ret;
}
