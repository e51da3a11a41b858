// SPDX-License-Identifier: Apache-2.0
/*
 * run.c - kvrt run: from a model to a talk with one command
 *
 * The command starts kvrt serve on a Unix socket in a private folder, and talks
 * with it (chat_talk.c).  If no daemon answers, it first starts kvmm-hold there.
 * nest.c ends both with the command.
 *
 * The size of a private pool follows from the model: a sequence of its full
 * length fits.  If the machine has less memory, the context is shortened.  KV is
 * counted as f32, the largest type, so a smaller type leaves room for more.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/cudrv.h>
#include <libkvmm.h>

#include "runtime/cli/chat.h"
#include "runtime/cli/nest.h"
#include "runtime/cli/run.h"

#define RUN_OPTS(x)							\
	CHAT_OPTS(x)							\
	x(str, dtype, "dtype", NULL, 0, 0, "TYPE",			\
	  "type of activations, as of kvrt serve")			\
	x(str, kv_cache_dtype, "kv-cache-dtype", NULL, 0, 0, "TYPE",	\
	  "type of KV, as of kvrt serve")				\
	x(str, quantization, "quantization", NULL, 0, 0, "TYPE",	\
	  "quantize the matrices of a folder while loading it, as of kvrt serve") \
	x(str, lora, "lora", NULL, 0, 0, "DIR",				\
	  "talk with the model as the adapter (LoRA) in this folder changes it") \
	x(str, chat_template, "chat-template", NULL, 0, 0, "TEMPLATE",	\
	  "auto, plain or a file, as of kvrt serve; plain suits a model without a template") \
	x(choice, kv_groups, "kv-groups", "auto", 0, 0, "auto|one",	\
	  "layer groups of KV, as of kvrt serve")			\
	x(str, threads, "threads", NULL, 0, 0, "N",			\
	  "compute threads, as of kvrt serve")				\
	x(uint, max_model_len, "max-model-len", "0", 0, 1 << 30, "N",	\
	  "longest sequence in tokens, 0: that of the model, or as much as fits") \
	x(choice, backend, "backend", "auto", 0, 0, "auto|host|cuda",	\
	  "where a private daemon has its pool, and the model runs")	\
	x(size, pool_size, "pool-size", "0", 0, 0, "SIZE",		\
	  "pool of a private daemon, 0: one or more sequences of full length") \
	x(str, socket, "socket", NULL, 0, 0, "PATH",			\
	  "attach socket of the daemon, which must answer (default: the place of kvrt serve, or a private daemon)")

struct run_opts {
#define x OPT_FIELD
	RUN_OPTS(x)
#undef x
};

static const struct kv_opt option_table[] = {
#define x(...) OPT_ENTRY(struct run_opts, __VA_ARGS__)
	RUN_OPTS(x)
#undef x
};

static const struct kv_exit exits[] = {
	{ 0, "the answer is complete, or the user ended it; also --help and --version" },
	{ EX_USAGE, "a wrong option or argument" },
	{ EX_DATAERR, "the server refused a turn; model files with wrong contents" },
	{ EX_NOINPUT, "a model folder or a file of it is missing" },
	{ EX_UNAVAILABLE, "no daemon can be started, or it refuses this client" },
	{ EX_SOFTWARE, "a defect of kvrt or kvmm" },
	{ EX_OSERR, "the system refused memory or processes" },
	{ EX_IOERR, "the output cannot be written, or a file cannot be read" },
	{ EX_TEMPFAIL, "the server is busy or went away: try again" },
	{ CLI_EX_DEVICE, "the GPU failed: run it again" },
};

const struct kv_program cli_run_program = {
	.name		= "kvrt run",
	.operands	= "MODEL [PROMPT]",
	.about		= "Talks with MODEL, a model folder, a GGUF file or hf:ORG/NAME of the Hugging Face cache, in the terminal. With PROMPT, or if standard input is no terminal, it prints one answer. The daemon that is there is used; if there is none, a private one runs as long as this command. Lines and commands are those of kvrt chat.",
	.opts		= option_table,
	.nr_opts	= ARRAY_SIZE(option_table),
	.exits		= exits,
	.nr_exits	= ARRAY_SIZE(exits),
};

/* ---- arguments of the programs ---- */

#define ARGS_MOST	40u
#define ADAPTER_NAME	"adapter"	/* its name for the private server */
#define ARGS_TEXT	16384u

/* Arguments of one program; the texts are copies. */
struct args {
	char	*list[ARGS_MOST + 1];
	u32	nr;
	char	text[ARGS_TEXT];
	size_t	used;
	bool	failed;
};

static void __printf(2, 3) add(struct args *a, const char *fmt, ...)
{
	const size_t left = sizeof(a->text) - a->used;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(a->text + a->used, left, fmt, ap);
	va_end(ap);
	/* Options are few and short; only the path of a model may be too long. */
	a->failed |= n < 0 || (size_t)n >= left || a->nr == ARGS_MOST;
	if (a->failed)
		return;
	a->list[a->nr++] = a->text + a->used;
	a->used += (size_t)n + 1;
}

static void add_option(struct args *a, const char *name, const char *value)
{
	if (!value)
		return;
	add(a, "--%s", name);
	add(a, "%s", value);
}

/* ---- one run ---- */

struct run {
	const struct run_opts	*o;
	struct cli_model	found;
	struct run_plan		plan;
	struct nest		nest;
	bool			private;
	struct args		hold;
	struct args		serve;
};

/* The path of a program of this installation; beside kvrt, or in sbin. */
static void add_program(struct args *a, const char *name)
{
	char own[4096];
	const ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
	static const char * const places[] = { "", "../sbin/" };
	char path[4200];
	char *slash;
	u32 i;

	own[max(n, (ssize_t)0)] = '\0';
	slash = strrchr(own, '/');
	for (i = 0; slash && i < ARRAY_SIZE(places); i++) {
		slash[1] = '\0';
		snprintf(path, sizeof(path), "%s%s%s", own, places[i], name);
		if (!access(path, X_OK)) {
			add(a, "%s", path);
			return;
		}
	}
	add(a, "%s", name);	/* as PATH has it */
}

static const char *backend_name(const struct run_opts *o)
{
	static const char * const names[] = { "auto", "host", "cuda" };

	return names[o->backend];
}

static void hold_args(struct run *r)
{
	struct args *a = &r->hold;

	add_program(a, "kvmm-hold");
	add_option(a, "config", "none");
	add(a, "--socket");
	add(a, "%s/attach.sock", r->nest.dir);
	add_option(a, "backend", r->plan.gpu ? "cuda" : "host");
	add(a, "--pool-size");
	add(a, "%llu", (unsigned long long)r->plan.pool_bytes);
	add(a, "--extent-size");
	add(a, "%llu", (unsigned long long)r->plan.extent_bytes);
	add(a, "--min-token-bytes");
	add(a, "%llu", (unsigned long long)r->plan.min_token_bytes);
	add_option(a, "proc", "off");
	add_option(a, "log-level", "warn");
}

static void serve_args(struct run *r)
{
	const struct run_opts *o = r->o;
	struct args *a = &r->serve;
	const char *name = r->found.name;

	add_program(a, "kvrt");
	add(a, "serve");
	/* A folder may have a name like that of an option. */
	add(a, "%s%s", *r->found.dir == '-' ? "./" : "", r->found.dir);
	if (*name) {
		add_option(a, "served-model-name", name);
		add_option(a, "domain", r->found.domain);
	}
	add_option(a, "config", "none");
	add(a, "--unix-only");
	add(a, "--unix");
	add(a, "%s/api.sock", r->nest.dir);
	if (r->private)
		add(a, "--socket=%s/attach.sock", r->nest.dir);
	else
		add_option(a, "socket", o->socket);
	add_option(a, "backend", backend_name(o));
	add_option(a, "dtype", o->dtype);
	add_option(a, "kv-cache-dtype", o->kv_cache_dtype);
	add_option(a, "quantization", o->quantization);
	add_option(a, "chat-template", o->chat_template);
	if (o->lora) {
		add(a, "--lora");
		add(a, "%s=%s", ADAPTER_NAME, o->lora);
	}
	add_option(a, "kv-groups", o->kv_groups ? "one" : "auto");
	add_option(a, "threads", o->threads);
	if (r->plan.max_len) {
		add(a, "--max-model-len");
		add(a, "%u", r->plan.max_len);
	}
	add_option(a, "drain-timeout", "0");
	add_option(a, "log-level", "warn");
}

/* Is a daemon there?  Return: 0 with @r->private set, or an exit code. */
static int look_for_daemon(struct run *r)
{
	u32 memory, device;
	char text[256];
	int err;

	err = kvmm_ask(r->o->socket, &memory, &device, text);
	r->private = err;
	if (err && r->o->socket) {
		pr_err("%s", text);
		return cli_exit_of(err) == EX_NOPERM ? EX_NOPERM :
						       EX_UNAVAILABLE;
	}
	if (!err && r->o->pool_size)
		pr_warn("--pool-size is for a private daemon, and a daemon is here: its pool is used");
	return 0;
}

static int prepare(struct run *r, const char *text)
{
	const struct run_opts *o = r->o;
	const struct run_wish wish = {
		.max_len = o->max_model_len, .pool_bytes = o->pool_size,
		.backend = o->backend, .lora = o->lora,
	};
	int ret;

	ret = cli_model_find(&r->found, text);
	if (!ret)
		ret = look_for_daemon(r);
	r->plan.max_len = o->max_model_len;
	if (!ret && r->private)
		ret = run_plan(r->found.dir, &wish, &r->plan);
	if (!ret)
		ret = nest_make(&r->nest);
	if (ret)
		return ret;
	serve_args(r);
	if (r->private)
		hold_args(r);
	if (!r->hold.failed && !r->serve.failed)
		return 0;
	pr_err("the options, or the path of the model, are longer than %u bytes: give shorter ones",
	       ARGS_TEXT);
	nest_end(&r->nest);
	return EX_USAGE;
}

static int nest_is_gone(void *arg)
{
	return nest_gone(arg);
}

static int run_with(const struct run_opts *o, const struct chat_opts *talk,
		    const char *text, const char *question)
{
	static struct run r;
	struct chat_opts with = *talk;
	struct web_server server;
	char url[NEST_DIR_MAX + 32];
	int ret;

	if (o->lora)
		with.model = ADAPTER_NAME;
	with.gone = nest_is_gone;
	with.arg = &r.nest;
	r.o = o;
	ret = prepare(&r, text);
	if (ret)
		return ret;
	r.nest.quiet = o->quiet;
	snprintf(url, sizeof(url), "unix:%s/api.sock", r.nest.dir);
	ret = nest_start(&r.nest, r.private ? r.hold.list : NULL, r.serve.list);
	if (!ret)
		ret = web_parse_url(&server, url) ? EX_SOFTWARE :
		      chat_talk(&with, &server, NULL, question);
	nest_end(&r.nest);
	return ret;
}

int run_talk(const struct chat_opts *talk, const char *text)
{
	const struct run_opts o = { .quiet = talk->quiet };

	return run_with(&o, talk, text, NULL);
}

static int run(const struct run_opts *o, char **argv, int nr)
{
	struct chat_opts talk = CHAT_OPTS_OF(o);
	struct prompts p = { 0 };
	int ret;

	ret = chat_numbers(&talk, o->temperature, o->seed);
	if (!ret && (nr > 1 || !isatty(STDIN_FILENO)))
		ret = prompts_read(&p, argv + 1, nr - 1, NULL);
	if (!ret)
		ret = run_with(o, &talk, argv[0], p.nr ? p.list[0].text : NULL);
	prompts_free(&p);
	return ret;
}

int cli_run(int argc, char **argv)
{
	struct run_opts o;
	int nr, ret;

	ret = cli_parse(&cli_run_program, NULL, &o, argc, argv, &nr);
	if (ret)
		return max(ret, 0);
	if (nr == 1 || nr == 2)
		return run(&o, argv, nr);
	pr_err("%s: kvrt run MODEL [PROMPT]", nr ?
	       "more than one prompt, put it in quotes" :
	       "the model is missing, a folder or hf:ORG/NAME");
	return EX_USAGE;
}
