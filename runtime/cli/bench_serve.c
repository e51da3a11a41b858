// SPDX-License-Identifier: Apache-2.0
/*
 * bench_serve.c - kvrt bench serve: put a load on an OpenAI server
 *
 * Options, in the words of `vllm bench serve` where they are the same, and the
 * order of a run: make the workload, ask the server for its abilities, run the
 * load, print the results.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cli/bench_serve.h"
#include "runtime/cli/cli.h"

#define SERVE_OPTS(x)							\
	x(choice, endpoint, "endpoint", "completions", 0, 0,		\
	  "completions|chat", "path of the requests: /v1/completions or /v1/chat/completions") \
	x(str, model, "model", NULL, 0, 0, "NAME",			\
	  "model that is asked (default the first one of /v1/models)")	\
	x(str, api_key, "api-key", NULL, 0, 0, "KEY",			\
	  "key of the API (default $KVRT_API_KEY, else none)")		\
	BENCH_DATA_OPTS(x)						\
	x(str, request_rate, "request-rate", NULL, 0, 0, "R",		\
	  "requests a second, at random times; inf: all at once; a trace has its own times (default inf)") \
	x(str, burstiness, "burstiness", "1", 0, 0, "B",		\
	  "shape of the gamma distribution of the times between requests: 1 is a Poisson process, less comes in bursts, more is steadier, inf is even") \
	x(uint, max_concurrency, "max-concurrency", "0", 0, 1 << 20, "N", \
	  "most requests on their way at once; others wait, and their time begins when they are sent; 0: no limit") \
	x(choice, prompt_form, "prompt-form", "auto", 0, 0, "auto|ids|text", \
	  "prompts as token ids, or as text of about as many tokens; auto: ids where the server takes them") \
	x(uint, vocab, "vocab", "4096", 2, 1 << 24, "N",		\
	  "token ids of prompts are below N")				\
	x(uint, max_len, "max-model-len", "0", 0, 1 << 24, "N",		\
	  "requests are cut to N tokens with their answers; 0: the length that /v1/models gives, if any") \
	x(str, temperature, "temperature", "0", 0, 0, "T",		\
	  "of all requests")						\
	x(str, percentiles, "metric-percentiles", "50,90,95,99", 0, 0, "LIST", \
	  "percentiles to print of each figure")			\
	x(list, goodput, "goodput", NULL, 0, 0, "NAME:MS...",		\
	  "a request is good when it keeps these limits: ttft:200,tpot:50,e2el:5000; may be given more than once") \
	x(str, json, "json", NULL, 0, 0, "FILE",			\
	  "write the results there as JSON; -: to standard output, in the place of the table") \
	x(flag, detailed, "save-detailed", NULL, 0, 0, NULL,		\
	  "and those of each request, with --json")			\
	x(flag, quiet, "quiet", NULL, 0, 0, NULL,			\
	  "no progress and no notes on stderr")				\
	x(uint, timeout, "timeout", "600", 1, 86400, "SECONDS",		\
	  "longest silence of the server")

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
	{ 0, "done, and every request was answered; also --help and --version" },
	{ EX_USAGE, "a wrong option or argument" },
	{ EX_DATAERR, "the server refuses the requests, the trace is malformed, or no prompt leaves room for its answer" },
	{ EX_NOINPUT, "the trace is missing" },
	{ EX_UNAVAILABLE, "no server answers at URL" },
	{ EX_OSERR, "the system refused memory" },
	{ EX_IOERR, "a file cannot be read, or the results not be written" },
	{ EX_TEMPFAIL, "some requests failed or were not sent: the figures are of the others" },
	{ EX_PROTOCOL, "the server at URL is no OpenAI server" },
	{ EX_NOPERM, "the server wants another key" },
};

const struct kv_program bench_serve_program = {
	.name		= "kvrt bench serve",
	.operands	= "URL",
	.about		= "Puts a load on the OpenAI server at URL, http://HOST[:PORT], and prints how fast it answers. Prompts are made up; nothing is downloaded.",
	.opts		= option_table,
	.nr_opts	= ARRAY_SIZE(option_table),
	.exits		= exits,
	.nr_exits	= ARRAY_SIZE(exits),
};

/* State of one run. */
struct serve {
	struct serve_opts	o;
	struct bench_data_opts	data;
	struct web_server	server;
	const char		*key;
	char			*model;
	struct workload		w;
	struct ask_form		form;
	struct load		load;
	struct report_of	of;
	FILE			*json;
};

/* ---- options ---- */

/* "ttft:200,tpot:50", commas or blanks between. */
static int parse_goodput(struct load_limits *m, const char *text)
{
	const struct { const char *name; double *v; } names[] = {
		{ "ttft:", &m->ttft }, { "tpot:", &m->tpot },
		{ "e2el:", &m->e2el },
	};
	const char *p = text;
	double v;
	char *end;
	u32 i;

	while (*(p += strspn(p, " ,"))) {
		for (i = 0; i < ARRAY_SIZE(names); i++)
			if (!strncmp(p, names[i].name, 5))
				break;
		if (i == ARRAY_SIZE(names))
			goto bad;
		v = strtod(p + 5, &end);
		if (end == p + 5 || !(v > 0 && v <= 1e9) ||
		    (*end && !strchr(" ,", *end)))
			goto bad;
		*names[i].v = v / 1e3;
		p = end;
	}
	return 0;
bad:
	pr_err("--goodput: '%.60s': write limits in ms as ttft:200,tpot:50,e2el:5000",
	       text);
	return EX_USAGE;
}

static int parse_rate(struct serve *s)
{
	const struct serve_opts *o = &s->o;

	s->of.rate = INFINITY;
	if (o->request_rate && o->dataset == BENCH_TRACE) {
		pr_err("--request-rate: a trace says when its requests are sent: leave it out");
		return EX_USAGE;
	}
	if (o->request_rate && strcmp(o->request_rate, "inf") &&
	    cli_number("request-rate", o->request_rate, 1e-6, 1e6, &s->of.rate))
		return EX_USAGE;
	s->of.burstiness = 1;
	return cli_number("burstiness", o->burstiness, 1e-3, INFINITY,
			  &s->of.burstiness);
}

/* The options of the workload are among those of this program. */
static void copy_data_opts(struct serve *s)
{
	const struct serve_opts *o = &s->o;

#define x(kind, field, ...) s->data.field = o->field;
	BENCH_DATA_OPTS(x)
#undef x
}

static int parse(struct serve *s, int argc, char **argv)
{
	static const char * const datasets[] = { "random", "sharegpt", "prefix",
						 "trace" };
	struct serve_opts *o = &s->o;
	int nr, err;
	u32 i;

	err = cli_parse(&bench_serve_program, NULL, o, argc, argv, &nr);
	if (err)
		return err;
	if (nr != 1) {
		pr_err("%s: kvrt bench serve URL", nr ? "more than one URL" :
		       "the URL of the server is missing");
		return EX_USAGE;
	}
	copy_data_opts(s);
	err = parse_rate(s);
	if (!err)
		err = cli_number("temperature", o->temperature, 0, 100,
				 &s->form.temperature);
	if (!err)
		err = percentiles_parse(&s->of.percentiles, o->percentiles);
	for (i = 0; !err && i < o->goodput.nr; i++)
		err = parse_goodput(&s->of.goodput, o->goodput.s[i]);
	if (!err)
		err = web_key(o->api_key, &s->key);
	if (!err && web_parse_url(&s->server, argv[0]))
		err = EX_USAGE;
	s->of.url = s->server.shown;
	s->of.dataset = datasets[o->dataset];
	s->of.seed = o->seed;
	s->of.max_concurrency = o->max_concurrency;
	s->of.detailed = o->detailed;
	return err;
}

/* ---- before the run ---- */

/* The context of a model, if the server reports it; 0: it does not. */
static u32 length_of(const json_t *model)
{
	const json_int_t v = json_integer_value(json_object_get(model,
							"max_model_len"));

	return v > 0 && v <= 1 << 24 ? (u32)v : 0;
}

/* Choose the model and the length of its requests. */
static int choose_model(struct serve *s)
{
	const char *want = s->o.model;
	json_t *v, *m, *found = NULL;
	const char *id;
	size_t i;
	int ret;

	if (want && s->o.max_len) {	/* there is nothing to ask */
		s->model = strdup(want);
		return s->model ? 0 : EX_OSERR;
	}
	ret = web_models(&s->server, s->key, s->o.timeout, &v);
	if (ret)
		return ret;
	json_array_foreach(json_object_get(v, "data"), i, m) {
		id = json_string_value(json_object_get(m, "id"));
		if (!found && (!want || !strcmp(want, id)))
			found = m;
	}
	if (found && !s->o.max_len)
		s->o.max_len = length_of(found);
	s->model = strdup(want ? want :
			  json_string_value(json_object_get(found, "id")));
	json_decref(v);
	if (s->model)
		return 0;
	pr_err("no memory for the name of the model: end other programs");
	return EX_OSERR;
}

static int make_workload(struct serve *s)
{
	struct draw d;
	double *at;
	u64 seed = 0;
	int ret;
	u32 i;

	/* Text may be more tokens than estimated, and a chat adds some. */
	if (!s->form.ids)
		s->o.max_len -= s->o.max_len / 8;
	ret = workload_make(&s->w, &s->data, s->o.max_len);
	if (ret || s->w.timed)
		return ret;
	at = calloc(s->w.nr, sizeof(*at));
	if (!at) {
		pr_err("no memory for %u requests: give fewer", s->w.nr);
		return EX_OSERR;
	}
	if (cli_whole("seed", s->o.seed, INT64_MAX, &seed))
		ret = EX_USAGE;
	draw_seed(&d, seed, 0);
	draw_arrivals(&d, s->of.rate, s->of.burstiness, at, s->w.nr);
	for (i = 0; i < s->w.nr; i++)
		s->w.list[i].at = at[i];
	free(at);
	return ret;
}

/* Find out now, not after an hour, if the file cannot be written. */
static int open_json(struct serve *s)
{
	if (!s->o.json)
		return 0;
	s->json = strcmp(s->o.json, "-") ? fopen(s->o.json, "we") : stdout;
	if (s->json)
		return 0;
	pr_err("%s: %s", s->o.json, strerror(errno));
	return EX_IOERR;
}

static int prepare(struct serve *s)
{
	const struct serve_opts *o = &s->o;
	int ret;

	ret = choose_model(s);
	if (ret)
		return ret;
	s->form.model = s->model;
	s->form.chat = o->endpoint;
	s->form.path = o->endpoint ? "/v1/chat/completions" :
				     "/v1/completions";
	s->form.ids = !s->form.chat && o->prompt_form != 2;
	s->form.ignore_eos = true;
	s->form.usage = true;
	s->form.vocab = o->vocab;
	ret = form_probe(&s->form, &s->server, s->key, o->timeout,
			 o->prompt_form != 1);
	if (!ret)
		ret = make_workload(s);
	if (!ret)
		ret = workload_judge(&s->w, &s->data, o->max_len, o->quiet);
	return ret ? ret : open_json(s);
}

/* ---- after it ---- */

static void say_notes(const struct serve *s)
{
	const struct load *l = &s->load;

	if (l->stopped)
		pr_warn("interrupted: the figures are of the %u requests that were answered",
			l->completed);
	if (l->gone)
		pr_warn("%s: no server listens there any more: %u requests were not sent",
			s->server.shown, l->unsent);
	if (l->short_of && !s->o.quiet)
		pr_warn("%u of %u answers are shorter than asked for: the server ended them",
			l->short_of, l->completed);
}

static int write_results(struct serve *s)
{
	const bool table = !s->json || s->json != stdout;
	json_t *v;
	int bad = 0;

	if (table)
		report_print(&s->load, &s->of, stdout);
	if (s->json) {
		v = report_json(&s->load, &s->of);
		bad = !v || json_dumpf(v, s->json, JSON_INDENT(2) |
				       JSON_REAL_PRECISION(9));
		fputc('\n', s->json);
		json_decref(v);
	}
	if (s->json && s->json != stdout)
		bad |= fclose(s->json);
	s->json = NULL;
	if (!bad && !fflush(stdout) && !ferror(stdout))
		return 0;
	pr_err("the results cannot be written: %s", strerror(errno));
	return EX_IOERR;
}

static int serve(struct serve *s, int argc, char **argv)
{
	struct load *l = &s->load;
	int ret;

	ret = parse(s, argc, argv);
	if (ret)
		return max(ret, 0);
	ret = prepare(s);
	if (ret)
		return ret;
	l->w = &s->w;
	l->form = &s->form;
	l->server = &s->server;
	l->key = s->key;
	l->timeout_s = s->o.timeout;
	l->most = s->o.max_concurrency ? s->o.max_concurrency : s->w.nr;
	l->most = min(l->most, s->w.nr);
	l->progress = !s->o.quiet && isatty(STDERR_FILENO) == 1;
	ret = load_run(l);
	if (ret)
		return ret;
	say_notes(s);
	ret = write_results(s);
	if (!ret && (l->failed || l->unsent || l->cut_off))
		ret = EX_TEMPFAIL;
	return ret;
}

int bench_serve(int argc, char **argv)
{
	struct serve s = { 0 };
	int ret;

	ret = serve(&s, argc, argv);
	if (s.json && s.json != stdout)
		fclose(s.json);
	load_free(&s.load);
	workload_free(&s.w);
	free(s.model);
	return ret;
}
