// SPDX-License-Identifier: Apache-2.0
/*
 * ask.c - kvrt ask: a small client of the OpenAI API
 *
 * For a machine that has no other client: it asks a server, kvrt serve or
 * another, for completions of several prompts at once, prints the text as it
 * streams, and says how many tokens the server had cached.  One connection a
 * prompt, one thread, poll().  It needs no daemon and no model.
 *
 * The server's answer is not trusted: samples beyond the requested number are
 * left out, lines of a stream are bounded, and the printer keeps control
 * characters from a terminal.
 */
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/clock.h>

#include "runtime/cli/cli.h"
#include "runtime/cli/web.h"

#define ASK_PROMPTS	1024u	/* each is a connection */
#define ASK_LINE_MAX	(1u << 20)	/* longest line of a stream */

#define ASK_OPTS(x)							\
	x(flag, chat, "chat", NULL, 0, 0, NULL,				\
	  "each prompt is the first message of its own chat")	\
	x(str, model, "model", NULL, 0, 0, "NAME",			\
	  "model that is asked (default the first one of /v1/models)")	\
	x(flag, models, "models", NULL, 0, 0, NULL,			\
	  "print the names in /v1/models, one on a line, and ask nothing") \
	x(uint, max_tokens, "max-tokens", NULL, 1, 1 << 24, "N",	\
	  "most tokens to generate for each sample (default: the server's)") \
	x(str, temperature, "temperature", NULL, 0, 0, "T",		\
	  "0 takes the likeliest token, above 1 is wilder (default: the server's)") \
	x(str, seed, "seed", NULL, 0, 0, "N",				\
	  "same seed, same text (default: the server's choice)")	\
	x(uint, samples, "samples", "1", 1, 128, "N",			\
	  "samples of each prompt; also -n N")				\
	x(flag, ignore_eos, "ignore-eos", NULL, 0, 0, NULL,		\
	  "go on when the model says that the text ends; servers of the plain API refuse it") \
	x(str, prompt_file, "prompt-file", NULL, 0, 0, "FILE",		\
	  "take prompts from FILE too, one on each line; - is standard input") \
	x(flag, quiet, "quiet", NULL, 0, 0, NULL,			\
	  "print no more on stderr than errors")			\
	x(str, api_key, "api-key", NULL, 0, 0, "KEY",			\
	  "key of the API (default $KVRT_API_KEY, else none)")		\
	x(uint, timeout, "timeout", "60", 1, 86400, "SECONDS",		\
	  "longest silence of the server")

struct ask_opts {
#define x OPT_FIELD
	ASK_OPTS(x)
#undef x
};

static const struct kv_opt option_table[] = {
#define x(...) OPT_ENTRY(struct ask_opts, __VA_ARGS__)
	ASK_OPTS(x)
#undef x
};

static const struct kv_exit exits[] = {
	{ 0, "done; also --help and --version" },
	{ EX_USAGE, "a wrong option or argument" },
	{ EX_DATAERR, "the server refused a request" },
	{ EX_NOINPUT, "a prompt file is missing" },
	{ EX_UNAVAILABLE, "no server answers at URL" },
	{ EX_OSERR, "the system refused memory" },
	{ EX_IOERR, "the output cannot be written, or a file cannot be read" },
	{ EX_TEMPFAIL, "the server is busy, fell silent or went away: try again" },
	{ EX_PROTOCOL, "the server at URL is no OpenAI server" },
	{ EX_NOPERM, "the server wants another key" },
};

const struct kv_program cli_ask_program = {
	.name		= "kvrt ask",
	.operands	= "URL [PROMPT]...",
	.about		= "Asks the OpenAI server at URL, http://HOST[:PORT], to complete prompts, all at once, and prints the text as it streams. Prompts come from the arguments, from --prompt-file, or, without both, all of standard input is one.",
	.opts		= option_table,
	.nr_opts	= ARRAY_SIZE(option_table),
	.exits		= exits,
	.nr_exits	= ARRAY_SIZE(exits),
};

static const char * const short_names[] = { "-n", "--samples", NULL };

/**
 * struct asked - one prompt in progress
 * @open: the answer is not complete
 * @ended: the stream has sent its end
 */
struct asked {
	struct web_call	call;
	bool		open;
	bool		ended;
};

/* State of one run. */
struct ask {
	struct ask_opts		o;
	double			temperature;	/* < 0: not given */
	u64			seed;		/* UINT64_MAX: not given */
	const char		*key;
	char			*model;
	struct web_server	server;
	struct prompts		prompts;
	struct asked		*list;
	struct pollfd		*poll;
	struct output		out;
	struct printer		printer;
	u64			prompt_tokens;
	u64			cached_tokens;
	u64			new_tokens;
	int			failed;		/* first exit code, else 0 */
};

/* ---- errors ---- */

static int failed(const struct ask *a, int err)
{
	return web_failed(&a->server, err, a->o.timeout);
}

/* ---- names of models ---- */

/* Return: 0 or an exit code after a line. */
static int take_model(struct ask *a, const char *name)
{
	a->model = strdup(name);
	if (a->model)
		return 0;
	pr_err("no memory for the name of the model: end other programs");
	return EX_OSERR;
}

static int cannot_print(int err)
{
	pr_err("standard output: %s: nothing more can be printed",
	       strerror(-err));
	return EX_IOERR;
}

/* Print the names, or take the first one. */
static int ask_models(struct ask *a)
{
	const char *name;
	json_t *v, *m;
	size_t i;
	int ret;

	ret = web_models(&a->server, a->key, a->o.timeout, &v);
	if (ret)
		return ret;
	json_array_foreach(json_object_get(v, "data"), i, m) {
		name = json_string_value(json_object_get(m, "id"));
		if (a->o.models)
			printf("%s\n", name);
		else if (!a->model)
			ret = take_model(a, name);
		if (ret)
			break;
	}
	errno = EIO;	/* printf() has seen the reason, but it was not kept */
	if (a->o.models && (fflush(stdout) || ferror(stdout)))
		ret = cannot_print(-errno);
	json_decref(v);
	return ret;
}

/* ---- requests ---- */

static void write_body(const struct ask *a, const struct prompt *q,
		       struct text *t)
{
	text_puts(t, "{\"model\":");
	text_jsons(t, a->model);
	text_puts(t, a->o.chat ?
		  ",\"messages\":[{\"role\":\"user\",\"content\":" :
		  ",\"prompt\":");
	text_json(t, q->text, q->len);
	if (a->o.chat)
		text_puts(t, "}]");
	if (a->o.max_tokens)
		text_printf(t, ",\"max_tokens\":%u", a->o.max_tokens);
	if (a->temperature >= 0)
		text_printf(t, ",\"temperature\":%g", a->temperature);
	if (a->seed != UINT64_MAX)
		text_printf(t, ",\"seed\":%llu", (unsigned long long)a->seed);
	if (a->o.samples > 1)
		text_printf(t, ",\"n\":%u", a->o.samples);
	if (a->o.ignore_eos)
		text_puts(t, ",\"ignore_eos\":true");
	text_puts(t, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
}

static int send_requests(struct ask *a)
{
	const char *path = a->o.chat ? "/v1/chat/completions" :
				       "/v1/completions";
	u32 i;
	int err;

	for (i = 0; i < a->prompts.nr; i++) {
		struct text body = { 0 };

		write_body(a, &a->prompts.list[i], &body);
		err = web_call_begin(&a->list[i].call, &a->server, path,
				     a->key, &body, a->o.timeout);
		text_free(&body);
		if (err)
			return failed(a, err);
		a->list[i].open = true;
		printer_heading(&a->printer, i, &a->prompts.list[i], false);
	}
	return 0;
}

/* ---- answers ---- */

static void take_usage(struct ask *a, const json_t *usage)
{
	const json_t *details = json_object_get(usage, "prompt_tokens_details");

#define value(o, name) (u64)max(json_integer_value(json_object_get(o, name)), 0)
	a->prompt_tokens += value(usage, "prompt_tokens");
	a->new_tokens += value(usage, "completion_tokens");
	a->cached_tokens += value(details, "cached_tokens");
#undef value
}

static void take_choice(struct ask *a, u32 i, const json_t *c)
{
	const json_int_t at = json_integer_value(json_object_get(c, "index"));
	const json_t *text = web_event_text(c);

	if (at < 0 || at >= a->o.samples || !text)
		return;
	printer_text(printer_of(&a->printer, i) + at, json_string_value(text),
		     json_string_length(text));
}

/* Handle one event, @n bytes.  Return: 0 or an exit code after a line. */
static int take_event(struct ask *a, u32 i, const char *p, size_t n)
{
	const char *why;
	json_t *v, *c;
	size_t k;
	int ret = 0;

	if (n == 6 && !memcmp(p, "[DONE]", 6)) {
		a->list[i].ended = true;
		return 0;
	}
	v = json_loadb(p, n, 0, NULL);
	if (!json_is_object(v)) {
		json_decref(v);
		return failed(a, -EPROTO);
	}
	why = web_error_text(v);
	if (why)
		ret = web_refused(&a->server, 503, why);
	json_array_foreach(json_object_get(v, "choices"), k, c)
		take_choice(a, i, c);
	take_usage(a, json_object_get(v, "usage"));
	json_decref(v);
	return ret;
}

/* Handle whole lines of a stream, "data: EVENT". */
static int take_lines(struct ask *a, u32 i)
{
	struct text *t = &a->list[i].call.body;
	size_t at = 0, n;
	const char *p;
	int ret = 0;

	while (!ret && web_event(t, &at, &p, &n))
		ret = take_event(a, i, p, n);
	text_cut(t, at);
	/* A line without an end is searched again whenever more of it comes. */
	if (!ret && t->len > ASK_LINE_MAX)
		ret = failed(a, -EPROTO);
	return ret;
}

static int take_refusal(struct ask *a, const struct web_call *c)
{
	json_t *v = json_loadb(c->body.p ? c->body.p : "", c->body.len, 0, NULL);
	int ret;

	ret = web_refused(&a->server, c->status, web_error_text(v));
	json_decref(v);
	return ret;
}

/* End prompt @i with exit code @ret. */
static void finish_one(struct ask *a, u32 i, int ret)
{
	struct asked *q = &a->list[i];
	u32 k;

	for (k = 0; k < a->o.samples; k++)
		printer_end(printer_of(&a->printer, i) + k, !ret);
	if (!a->failed)
		a->failed = ret;
	q->open = false;
	web_call_end(&q->call);
}

/* Input came for prompt @i. */
static void take(struct ask *a, u32 i)
{
	struct asked *q = &a->list[i];
	int ret = 0, err;

	err = web_call_read(&q->call);
	if (q->call.status == 200)
		ret = take_lines(a, i);
	if (!ret && err && !q->ended)
		ret = failed(a, err);
	if (!ret && !err && q->call.over && q->call.status != 200)
		ret = take_refusal(a, &q->call);
	else if (!ret && q->call.over && !q->ended)
		ret = failed(a, q->call.chunked ? -ECONNRESET : -EPROTO);
	if (ret || q->ended || q->call.over)
		finish_one(a, i, ret);
}

/* ---- the run ---- */

static u32 gather(struct ask *a)
{
	u32 i, nr = 0;

	for (i = 0; i < a->prompts.nr; i++) {
		a->poll[i] = (struct pollfd){
			.fd = a->list[i].open ? a->list[i].call.fd : -1,
			.events = POLLIN,
		};
		nr += a->list[i].open;
	}
	return nr;
}

static void say_summary(const struct ask *a, double s)
{
	const double rate = (double)a->new_tokens / s;

	if (!a->prompt_tokens)
		return;
	fprintf(stderr, "cached tokens: %llu of %llu prompt tokens (%.0f %%); %llu tokens in %.2f s (%.*f/s)\n",
		(unsigned long long)a->cached_tokens,
		(unsigned long long)a->prompt_tokens,
		100.0 * (double)a->cached_tokens / (double)a->prompt_tokens,
		(unsigned long long)a->new_tokens, s, rate < 10 ? 1 : 0, rate);
}

static int run(struct ask *a)
{
	const double begin = kv_now_s();
	bool silent = false;
	u32 i;
	int n, err;

	a->failed = send_requests(a);
	while (!silent && !a->out.err && gather(a)) {
		n = poll(a->poll, a->prompts.nr, (int)a->o.timeout * 1000);
		silent = !n;
		if (silent)
			a->failed = failed(a, -ETIMEDOUT);
		for (i = 0; n > 0 && i < a->prompts.nr; i++)
			if (a->poll[i].fd >= 0 && a->poll[i].revents)
				take(a, i);
		output_flush(&a->out);
	}
	err = output_close(&a->out);
	if (err && err != -EPIPE)
		return cannot_print(err);
	if (err)
		return EX_IOERR;
	if (!a->o.quiet && !a->failed)
		say_summary(a, max(kv_now_s() - begin, 1e-3));
	return a->failed;
}

static int prepare(struct ask *a)
{
	const u32 nr = a->prompts.nr;

	if (nr > ASK_PROMPTS) {
		pr_err("%u prompts: at most %u are asked at once: give fewer",
		       nr, ASK_PROMPTS);
		return EX_USAGE;
	}
	output_init(&a->out, STDOUT_FILENO);
	a->list = calloc(nr, sizeof(*a->list));
	a->poll = calloc(nr, sizeof(*a->poll));
	if (!a->list || !a->poll ||
	    printer_create(&a->printer, nr > 1 || a->o.samples > 1 ?
			   PRINT_LINES : PRINT_STREAM, &a->out, NULL, nr,
			   a->o.samples, 1)) {
		pr_err("no memory for %u prompts: give fewer", nr);
		return EX_OSERR;
	}
	return 0;
}

static int parse(struct ask *a, int argc, char **argv, int *nr)
{
	int err;

	err = cli_parse(&cli_ask_program, short_names, &a->o, argc, argv, nr);
	if (err)
		return err;
	if (!*nr) {
		pr_err("the URL of the server is missing: kvrt ask URL [PROMPT]...");
		return EX_USAGE;
	}
	if (web_key(a->o.api_key, &a->key))
		return EX_USAGE;
	a->temperature = -1;
	a->seed = UINT64_MAX;
	err = cli_number("temperature", a->o.temperature, 0, 1e6,
			 &a->temperature);
	if (!err)
		err = cli_whole("seed", a->o.seed, INT64_MAX, &a->seed);
	if (!err && web_parse_url(&a->server, argv[0]))
		err = EX_USAGE;
	return err;
}

static int ask(struct ask *a, int argc, char **argv)
{
	int nr, ret;

	ret = parse(a, argc, argv, &nr);
	if (ret)
		return max(ret, 0);
	if (a->o.models)
		return ask_models(a);
	ret = prompts_read(&a->prompts, argv + 1, nr - 1, a->o.prompt_file);
	if (!ret && a->o.model)
		ret = take_model(a, a->o.model);
	else if (!ret)
		ret = ask_models(a);
	if (!ret)
		ret = prepare(a);
	return ret ? ret : run(a);
}

int cli_ask(int argc, char **argv)
{
	struct ask a = { 0 };
	int ret;
	u32 i;

	ret = ask(&a, argc, argv);
	for (i = 0; a.list && i < a.prompts.nr; i++)
		if (a.list[i].open)
			web_call_end(&a.list[i].call);
	printer_destroy(&a.printer);
	output_close(&a.out);
	prompts_free(&a.prompts);
	free(a.list);
	free(a.poll);
	free(a.model);
	return ret;
}
