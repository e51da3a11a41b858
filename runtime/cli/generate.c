// SPDX-License-Identifier: Apache-2.0
/*
 * generate.c - kvrt generate: complete prompts, print the text
 *
 * All refusals come before any output: the options, the model folder, the
 * prompts, the daemon, in this order.  Then all prompts run at once.  If a
 * signal or a closed output interrupts the run, the requests are cancelled and
 * the daemon is told, so that it frees the blocks at once.  Then this program
 * ends by that signal, as others do.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include <uapi/kvmm.h>

#include <kvmm/clock.h>

#include "runtime/cli/cli.h"

#define DEF_MAX_TOKENS		256u
#define DEF_SEQS		256u
#define STEP_NS			100000000ll

#define GENERATE_OPTS(x)						\
	x(uint, max_tokens, "max-tokens", NULL, 1, 1 << 24, "N",	\
	  "most tokens to generate for each sample (default max_new_tokens of the model's generation_config.json, else 256)") \
	x(str, temperature, "temperature", NULL, 0, 0, "T",		\
	  "0 takes the likeliest token, above 1 is wilder (default from generation_config.json, else 1)") \
	x(str, top_k, "top-k", NULL, 0, 0, "K",				\
	  "draw from the K likeliest tokens, 0: from all (default from generation_config.json, else 0)") \
	x(str, top_p, "top-p", NULL, 0, 0, "P",				\
	  "draw from the fewest tokens that have this probability together (default from generation_config.json, else 1)") \
	x(str, min_p, "min-p", NULL, 0, 0, "P",				\
	  "draw from tokens of at least this share of the likeliest one's probability (default from generation_config.json, else 0)") \
	x(str, repetition_penalty, "repetition-penalty", NULL, 0, 0, "R", \
	  "above 1, tokens of the prompt and of the text so far become less likely (default from generation_config.json, else 1)") \
	x(str, presence_penalty, "presence-penalty", NULL, 0, 0, "P",	\
	  "-2 to 2: subtracted from tokens that were generated (default 0)") \
	x(str, frequency_penalty, "frequency-penalty", NULL, 0, 0, "P",	\
	  "-2 to 2: subtracted as often as a token was generated (default 0)") \
	x(uint, min_tokens, "min-tokens", "0", 0, 1 << 24, "N",		\
	  "the text does not end before so many tokens")		\
	x(str, seed, "seed", NULL, 0, 0, "N",				\
	  "same seed, same text; default: a new one, which is printed")	\
	x(uint, samples, "samples", "1", 1, 4096, "N",			\
	  "samples of each prompt, which share its blocks; also -n N")	\
	x(uint, beams, "beams", "0", 0, 4096, "N",			\
	  "beam search: the likeliest texts that N beams find, the best -n of them; 0: none") \
	x(str, length_penalty, "length-penalty", NULL, 0, 0, "X",	\
	  "of beam search: a text of L tokens is worth its logprobs' sum / L^X (default 1)") \
	x(choice, early_stopping, "early-stopping", "false", 0, 0, "false|true|never", \
	  "of beam search, once N texts are found: false ends it when no beam would be better if it ended now, true at once, never when none can become better") \
	x(flag, ignore_eos, "ignore-eos", NULL, 0, 0, NULL,		\
	  "go on when the model says that the text ends")		\
	x(str, prompt_file, "prompt-file", NULL, 0, 0, "FILE",		\
	  "take prompts from FILE too, one on each line; - is standard input") \
	x(flag, echo, "echo", NULL, 0, 0, NULL,				\
	  "print a single prompt before its text, as is done for several") \
	x(flag, json, "json", NULL, 0, 0, NULL,				\
	  "print one JSON object for each finished sample instead of text") \
	x(flag, quiet, "quiet", NULL, 0, 0, NULL,			\
	  "print no more on stderr than errors")			\
	x(choice, dtype, "dtype", "auto", 0, 0, CLI_DTYPES,		\
	  CLI_DTYPE_TEXT "; see --domain")			\
	x(choice, mode, "mode", "fast", 0, 0, "fast|exact",		\
	  "exact gives the same bits in any batch and after any preemption; see --domain") \
	x(choice, kernels, "kernels", "auto", 0, 0, CLI_KERNELS,	\
	  CLI_KERNELS_TEXT "; see --domain") \
	x(uint, threads, "threads", "0", 0, 1024, "N",			\
	  "compute threads, 0: one for each core")			\
	CLI_MODEL_OPTS(x)						\
	x(str, domain, "domain", NULL, 0, 0, "NAME",			\
	  "the daemon's domain that holds the blocks, of one model identity at a time: one with another model, --dtype, --kv-cache-dtype, --mode, --kernels, --weights, --kv-groups or --block-tokens drops what is cached there (default the name of the model folder or file)") \
	x(str, socket, "socket", NULL, 0, 0, "PATH",			\
	  "run directory of the daemon, or a socket in it (default $KVMM_SOCKET, else $KVMM_RUNDIR, else $XDG_RUNTIME_DIR/kvmm, else /tmp/kvmm-UID; /run/kvmm for root, and for users without a daemon there)") \
	x(choice, block_tokens, "block-tokens", "auto", 0, 0, "auto|16|32|64", \
	  "tokens of a block; see --domain; auto: 16, or as --state-tokens in a model with recurrent layers") \
	x(uint, max_batch, "max-batch", "0", 0, 4096, "N",		\
	  "most sequences in one step, 0: as many as model and daemon allow") \
	x(uint, chunk, "chunk", "0", 0, 65536, "N",			\
	  "most tokens of one prompt in one step, 0: as many as fit")	\
	CLI_LIMIT_OPTS(x)						\
	x(str, lora, "lora", NULL, 0, 0, "DIR",				\
	  "apply the adapter (LoRA, in the format of PEFT) in this folder to all prompts") \
	CLI_LORA_OPTS(x)

struct generate_opts {
#define x OPT_FIELD
	GENERATE_OPTS(x)
#undef x
};

static const struct kv_opt option_table[] = {
#define x(...) OPT_ENTRY(struct generate_opts, __VA_ARGS__)
	GENERATE_OPTS(x)
#undef x
};

const struct kv_program cli_generate_program = {
	.name		= "kvrt generate",
	.operands	= "MODEL [PROMPT]...",
	.about		= "Completes prompts with MODEL and prints the text as it comes. Prompts come from the arguments, from --prompt-file, or, without both, all of standard input is one. The KV of all of them lies in the memory of the kvmm daemon, which must be running.",
	.opts		= option_table,
	.nr_opts	= ARRAY_SIZE(option_table),
	.exits		= cli_exits,
	.nr_exits	= CLI_NR_EXITS,
};

static const char * const short_names[] = { "-n", "--samples", NULL };

/* State of one run. */
struct generate {
	struct generate_opts	o;
	const char		*dir;
	struct cli_model	found;
	double			temperature;	/* < 0: not given */
	double			top_p;		/* < 0: not given */
	double			min_p;		/* < 0: not given */
	double			repetition;	/* < 0: not given */
	double			presence;
	double			frequency;
	u64			top_k;		/* UINT64_MAX: not given */
	u64			seed;		/* UINT64_MAX: not given */
	double			length_penalty;
	u32			max_new;
	struct prompts		prompts;
	struct tokenizer	*tok;
	struct model		*model;
	struct adapter		*adapter;
	struct engine		*engine;
	struct output		out;
	struct printer		printer;
	struct progress		progress;
	struct sampling_params	sampling;
};

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
	caught = sig;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	sigemptyset(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* End as the signal would have ended the process. */
static void die_by(int sig)
{
	signal(sig, SIG_DFL);
	raise(sig);
}

/* ---- options ---- */

/* Refuse options that make no sense with beam search, or without. */
static int parse_beams(const struct generate *g)
{
	const struct generate_opts *o = &g->o;
	const char *why = NULL;

	if (!o->beams) {
		if (!o->length_penalty && !o->early_stopping)
			return 0;
		pr_err("--length-penalty and --early-stopping are of beam search: give --beams too");
		return EX_USAGE;
	}
	if (o->samples > o->beams)
		why = "finds no more texts than it has beams: give fewer -n";
	else if (g->temperature > 0 || (o->top_k && g->top_k) || o->top_p)
		why = "takes the likeliest: leave --temperature, --top-k and --top-p out";
	if (!why)
		return 0;
	pr_err("beam search %s", why);
	return EX_USAGE;
}

static int parse_penalties(struct generate *g)
{
	const double most = (double)SAMPLING_PENALTY_MAX;
	int err;

	err = cli_number("presence-penalty", g->o.presence_penalty, -most, most,
			 &g->presence);
	if (!err)
		err = cli_number("frequency-penalty", g->o.frequency_penalty,
				 -most, most, &g->frequency);
	return err;
}

static int parse_numbers(struct generate *g)
{
	const struct generate_opts *o = &g->o;
	int err;

	g->temperature = -1;
	g->top_p = -1;
	g->min_p = -1;
	g->repetition = -1;
	g->top_k = UINT64_MAX;
	g->seed = UINT64_MAX;
	err = cli_number("temperature", o->temperature, 0,
			 (double)SAMPLING_TEMPERATURE_MAX, &g->temperature);
	if (!err)
		err = cli_number("top-p", o->top_p, 1e-6, 1, &g->top_p);
	if (!err)
		err = cli_number("min-p", o->min_p, 0, 1, &g->min_p);
	if (!err)
		err = cli_number("repetition-penalty", o->repetition_penalty,
				 0.01, (double)SAMPLING_REPETITION_MAX,
				 &g->repetition);
	if (!err)
		err = parse_penalties(g);
	if (!err)
		err = cli_whole("top-k", o->top_k, UINT32_MAX, &g->top_k);
	if (!err)
		err = cli_whole("seed", o->seed, INT64_MAX, &g->seed);
	g->length_penalty = 1;
	if (!err)
		err = cli_number("length-penalty", o->length_penalty, -10, 10,
				 &g->length_penalty);
	return err ? err : parse_beams(g);
}

static int parse(struct generate *g, int argc, char **argv, int *nr)
{
	int err;

	err = cli_parse(&cli_generate_program, short_names, &g->o, argc, argv, nr);
	if (err)
		return err;
	if (!*nr) {
		pr_err("the model folder is missing: kvrt generate MODEL [PROMPT]...");
		return EX_USAGE;
	}
	g->dir = argv[0];
	return parse_numbers(g);
}

static void choose_penalties(struct generate *g)
{
	struct sampling_params *s = &g->sampling;

	if (g->min_p >= 0)
		s->min_p = (float)g->min_p;
	if (g->repetition >= 0)
		s->repetition_penalty = (float)g->repetition;
	s->presence_penalty = (float)g->presence;
	s->frequency_penalty = (float)g->frequency;
	s->min_tokens = g->o.min_tokens;
}

/*
 * Sampling parameters: from the command line, or else from the model's own
 * file.
 */
static void choose_sampling(struct generate *g)
{
	const struct model_generation *gen = &model_info(g->model)->gen;
	struct sampling_params *s = &g->sampling;
	u32 drawn;

	*s = SAMPLING_PARAMS_DEFAULT;
	if (gen->has & MODEL_GEN_TEMPERATURE)
		s->temperature = (float)gen->temperature;
	if ((gen->has & MODEL_GEN_DO_SAMPLE) && !gen->do_sample)
		s->temperature = 0;
	if (gen->has & MODEL_GEN_TOP_P)
		s->top_p = (float)gen->top_p;
	if (gen->has & MODEL_GEN_TOP_K)
		s->top_k = gen->top_k;
	if (gen->has & MODEL_GEN_MIN_P)
		s->min_p = (float)gen->min_p;
	if (gen->has & MODEL_GEN_REPETITION_PENALTY)
		s->repetition_penalty = (float)gen->repetition_penalty;
	choose_penalties(g);
	if (g->temperature >= 0)
		s->temperature = (float)g->temperature;
	if (g->top_p >= 0)
		s->top_p = (float)g->top_p;
	if (g->top_k != UINT64_MAX)
		s->top_k = (u32)g->top_k;
	if (g->seed == UINT64_MAX) {
		if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
			drawn = (u32)getpid();
		g->seed = drawn;
	}
	s->seed = g->seed;
	if (g->o.beams)
		s->temperature = 0;
	g->max_new = DEF_MAX_TOKENS;
	if (gen->has & MODEL_GEN_MAX_NEW_TOKENS)
		g->max_new = gen->max_new_tokens;
	if (g->o.max_tokens)
		g->max_new = g->o.max_tokens;
	g->max_new = max(g->max_new, 1u);
}

/* ---- set up ---- */

static int load(struct generate *g)
{
	const u32 batch = max(g->o.max_batch, MODEL_MAX_ROWS);
	struct model_opts mo = {
		.mode = g->o.mode ? MODEL_EXACT : MODEL_FAST,
		.kernel = cli_kernel(g->o.kernels),
		.nr_threads = g->o.threads,
		.max_rows = max(g->o.chunk, batch),
		.window_group = !g->o.kv_groups,
		.dummy = g->o.load_format,
		.weights = g->o.weights,
		.quantization = g->o.quantization,
		.no_draws = g->o.draw,
		.max_rank = g->o.lora ? g->o.max_lora_rank : 0,
	};
	char text[TOKENIZER_ERR_MAX];
	struct model_error err;
	int ret;

	cli_types(g->o.dtype, g->o.kv_cache_dtype, &mo);
	ret = cli_model_find(&g->found, g->dir);
	if (ret)
		return ret;
	g->dir = g->found.dir;
	ret = cli_backend(g->o.backend, g->o.socket, &mo);
	if (ret)
		return ret;
	if (!g->o.quiet)
		mo.progress = progress_start(&g->progress, g->dir);
	ret = model_load(g->dir, &mo, &g->model, &err);
	if (ret) {
		pr_err("%s", err.text);
		return ret == -EACCES ? EX_NOINPUT : cli_exit_of(ret);
	}
	if (!g->o.quiet)
		progress_made(g->model);
	ret = tokenizer_load(g->dir, &g->tok, text, sizeof(text));
	if (ret) {
		pr_err("%s", text);
		return ret == -EACCES ? EX_NOINPUT : cli_exit_of(ret);
	}
	choose_sampling(g);
	return 0;
}

/* Load the adapter, if one is given. */
static int load_adapter(struct generate *g)
{
	struct model_error err;
	int ret;

	if (!g->o.lora)
		return 0;
	ret = adapter_load(g->model, g->o.lora, g->o.max_lora_rank, &g->adapter, &err);
	if (!ret)
		return 0;
	pr_err("%s", err.text);
	return ret == -EACCES ? EX_NOINPUT : cli_exit_of(ret);
}

/* The exit code is EX_UNAVAILABLE unless the error has a better one. */
static int exit_of_attach(int err)
{
	switch (-err) {
	case EACCES:
	case EPERM:
	case ENOMEM:
	case EAGAIN:
	case EBUSY:
	case ENOSPC:
	case ETIMEDOUT:
	case ECONNRESET:
		return cli_exit_of(err);
	default:
		return EX_UNAVAILABLE;
	}
}

static void say_attached(const struct generate *g)
{
	char line[256];

	pr_info("%s: %s; client %u of kvmm", g->dir,
		model_line(g->model, line, sizeof(line)),
		engine_attach_info(g->engine)->client);
}

static int attach(struct generate *g)
{
	static const u32 block_tokens[] = { 0, 16, 32, 64 };
	const struct engine_opts eo = {
		.socket = g->o.socket,
		.domain = cli_model_domain(&g->found, g->o.domain),
		.block_tokens = block_tokens[g->o.block_tokens],
		.state_tokens = cli_state_tokens(g->o.state_tokens),
		.limits = CLI_LIMITS(&g->o),
		.max_rank = g->o.lora ? g->o.max_lora_rank : 0,
		.adapter_limits = CLI_LORA_LIMITS(&g->o),
		.max_seqs = max(max(g->o.samples, g->o.beams), DEF_SEQS),
		.max_batch = g->o.max_batch,
		.chunk = g->o.chunk,
	};
	struct engine_error err;
	int ret;

	ret = engine_create(g->model, &eo, &g->engine, &err);
	if (ret) {
		pr_err("%s", err.text);
		return exit_of_attach(ret);
	}
	if (!g->o.quiet)
		say_attached(g);
	return 0;
}

static int prepare_output(struct generate *g)
{
	const u32 most = min(g->max_new, model_info(g->model)->max_len);
	enum print_mode mode = PRINT_STREAM;

	if (g->prompts.nr > 1 || g->o.samples > 1)
		mode = PRINT_LINES;
	if (g->o.json)
		mode = PRINT_JSON;
	output_init(&g->out, STDOUT_FILENO);
	if (printer_create(&g->printer, mode, &g->out, g->tok, g->prompts.nr,
			   g->o.samples, most)) {
		pr_err("no memory for the output of %u samples",
		       g->prompts.nr * g->o.samples);
		return EX_OSERR;
	}
	g->printer.seed = g->seed;
	g->printer.logprob = g->o.beams;
	return 0;
}

static int submit(struct generate *g)
{
	const struct model_info *mi = model_info(g->model);
	struct engine_error err;
	u32 i;
	int ret;

	for (i = 0; i < g->prompts.nr; i++) {
		const struct prompt *q = &g->prompts.list[i];
		const struct engine_request req = {
			.ids = q->ids, .nr = q->nr, .max_new = g->max_new,
			.stops = mi->eos_ids,
			.nr_stops = g->o.ignore_eos ? 0 : mi->nr_eos,
			.sampling = g->sampling, .n = g->o.samples,
			.adapter = g->adapter,
			.beam_width = g->o.beams,
			.length_penalty = g->o.beams ?
				(float)g->length_penalty : 0,
			.early_stopping = g->o.early_stopping,
			.on_token = printer_token, .on_done = printer_done,
			.arg = printer_of(&g->printer, i),
		};

		ret = engine_submit(g->engine, &req, NULL, &err);
		if (ret) {
			pr_err("prompt %u: %s", i + 1, err.text);
			g->out.err = -ECANCELED;	/* print nothing */
			return cli_exit_of(ret);
		}
	}
	for (i = 0; i < g->prompts.nr; i++)
		printer_heading(&g->printer, i, &g->prompts.list[i],
				g->o.echo);
	return 0;
}

/* ---- the run ---- */

/* Print no summary of a run in which no prompt was admitted. */
static void say_summary(const struct generate *g, const struct engine_stats *st,
			s64 ns)
{
	const double s = (double)max(ns, (s64)1) / 1e9;
	const double rate = (double)st->generated_tokens / s;
	char experts[160];

	if (!st->prompt_tokens)
		return;
	fprintf(stderr, "cached tokens: %llu of %llu prompt tokens (%.0f %%), computed %llu, recomputed %llu, preempted %llu, forked %llu, copied blocks %llu; %llu tokens in %.2f s (%.*f/s)",
		(unsigned long long)st->cached_tokens,
		(unsigned long long)st->prompt_tokens,
		100.0 * (double)st->cached_tokens / (double)st->prompt_tokens,
		(unsigned long long)st->prefilled_tokens,
		(unsigned long long)st->recomputed_tokens,
		(unsigned long long)st->preemptions,
		(unsigned long long)st->forks, (unsigned long long)st->copies,
		(unsigned long long)st->generated_tokens, s,
		rate < 10 ? 1 : 0, rate);
	if (st->drawn_device)
		fprintf(stderr, "; drawn on the GPU: %llu",
			(unsigned long long)st->drawn_device);
	if (model_experts_line(g->model, experts, sizeof(experts)))
		fprintf(stderr, "; %s", experts);
	if (g->sampling.temperature > 0)
		fprintf(stderr, "; seed %llu", (unsigned long long)g->seed);
	fputc('\n', stderr);
}

/*
 * End the run in the order in which people read it: text of interrupted samples
 * comes out when their requests are cancelled, then come the lines on stderr.
 * @broken is the negative errno that ended the engine, or 0.
 */
static int finish(struct generate *g, s64 ns, int broken)
{
	char why[sizeof(((struct engine_error *)0)->text)];
	struct engine_stats st;
	int err;

	engine_get_stats(g->engine, &st);
	snprintf(why, sizeof(why), "%s", engine_strerror(g->engine));
	/*
	 * From here on no step is open, so no other client waits for this one.
	 */
	engine_destroy(g->engine);
	g->engine = NULL;
	err = output_close(&g->out);
	printer_said(&g->printer);
	if (broken)
		pr_err("%s: run this command again", why);
	if (err && err != -EPIPE) {
		pr_err("standard output: %s: nothing more can be printed",
		       strerror(-err));
		return EX_IOERR;
	}
	if (err)
		die_by(SIGPIPE);
	if (!g->o.quiet)
		say_summary(g, &st, ns);
	return broken ? cli_exit_of(broken) : g->printer.failed;
}

static int run(struct generate *g)
{
	const s64 begin = (s64)kv_now_ns();
	int ret = 1;

	while (ret > 0 && !caught && !g->out.err) {
		output_flush(&g->out);
		ret = engine_step(g->engine, STEP_NS);
	}
	return finish(g, (s64)kv_now_ns() - begin, min(ret, 0));
}

static int generate(struct generate *g, int argc, char **argv)
{
	int nr, ret;

	ret = parse(g, argc, argv, &nr);
	if (ret)
		return max(ret, 0);
	ret = load(g);
	if (!ret)
		ret = load_adapter(g);
	if (!ret)
		ret = prompts_read(&g->prompts, argv + 1, nr - 1,
				   g->o.prompt_file);
	if (!ret)
		ret = prompts_encode(&g->prompts, g->tok);
	if (!ret)
		ret = prepare_output(g);
	if (ret)
		return ret;
	catch_signals();
	ret = attach(g);
	if (!ret)
		ret = submit(g);
	return ret ? ret : run(g);
}

int cli_generate(int argc, char **argv)
{
	struct generate g = { 0 };
	int ret;

	ret = generate(&g, argc, argv);
	engine_destroy(g.engine);
	printer_destroy(&g.printer);
	output_close(&g.out);
	prompts_free(&g.prompts);
	tokenizer_free(g.tok);
	adapter_free(g.adapter);
	model_free(g.model);
	if (caught)
		die_by(caught);
	return ret;
}
