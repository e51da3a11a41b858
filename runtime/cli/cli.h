/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - declarations shared by the commands of kvrt
 *
 * Each command is a function that gets its own arguments and returns an exit
 * code of sysexits.h, after one line on stderr if that is not 0.
 */
#ifndef RUNTIME_CLI_H
#define RUNTIME_CLI_H

#include <sysexits.h>

#include <kvmm/log.h>
#include <kvmm/opts.h>
#include <uapi/kvmm.h>

#include "runtime/engine/engine.h"
#include "runtime/lib/hub.h"
#include "runtime/model/adapter.h"
#include "runtime/tokenizer/tokenizer.h"

/* Commands: name, operands, purpose. */
#define CLI_COMMANDS(x)							\
	x(run, "MODEL [PROMPT]", "talk with a model: starts all that this needs, and ends it") \
	x(generate, "MODEL [PROMPT]...", "complete prompts and print the text") \
	x(serve, "MODEL", "answer the OpenAI API over HTTP")	\
	x(inspect, "MODEL", "print a model's architecture and cost, or why it is refused") \
	x(ask, "URL [PROMPT]...", "ask an OpenAI server and print the text") \
	x(chat, "URL|MODEL", "talk with the model of an OpenAI server, or as kvrt run")	\
	x(bench, "serve|throughput|latency ...", "measure a server, or the engine alone")

/* Choices of --kernels, for cli_kernel(). */
#define CLI_KERNELS	"auto|cpu|ref|null"
#define CLI_KERNELS_TEXT						\
	"implementation of the arithmetic; ref is slow and plain; null computes nothing, to measure the rest"

/*
 * Choices of --dtype and --kv-cache-dtype, for cli_types(); the longer names are
 * those of vLLM.
 */
#define CLI_DTYPES	"auto|f32|bf16|float32|float|bfloat16|float16|half"
#define CLI_DTYPE_TEXT							\
	"type of activations and, by default, of KV; auto: that of the model; float16 is for KV alone, with activations in f32"
#define CLI_KV_DTYPES							\
	"auto|f32|bf16|f16|fp8|int8|float32|bfloat16|float16|fp8_e4m3"

/*
 * Type and groups of KV, source and place of weights; choices as in enum
 * model_weights_use.
 */
#define CLI_MODEL_OPTS(x)						\
	x(choice, kv_cache_dtype, "kv-cache-dtype", "auto", 0, 0,	\
	  CLI_KV_DTYPES,						\
	  "type of KV in the blocks; auto: that of --dtype; fp8 is e4m3; fp8 and int8 have a scale for each head and token, made as they are written") \
	x(choice, kv_groups, "kv-groups", "auto", 0, 0, "auto|one",	\
	  "layer groups of KV; auto: layers with a sliding window have blocks of their own if others have no window, and only the window stays in memory; one: all layers share blocks") \
	x(choice, state_tokens, "state-tokens", "256", 0, 0,		\
	  "16|64|256|1024|4096",					\
	  "tokens between two records of the state of recurrent layers that are kept as cache") \
	x(choice, backend, "backend", "auto", 0, 0, "auto|host|cuda",	\
	  "where the model runs: cuda is a GPU, host the CPU; auto takes the one that the daemon's pool is on") \
	x(choice, load_format, "load-format", "auto", 0, 0, "auto|dummy", \
	  "dummy makes weights up, which needs no more than config.json; auto reads them") \
	x(choice, weights, "weights", "auto", 0, 0, "auto|packed|mapped", \
	  "packed is faster and takes memory of its own; mapped is shared through the page cache; auto packs in fast mode: weights in blocks, and bf16 weights of 64 MiB and more if the CPU has bf16 products") \
	x(choice, quantization, "quantization", "none", 0, 0,		\
	  "none|q8_0|q4_k|fp8|int8",					\
	  "quantize the matrices of a model in bf16, f16 or f32 while loading it: the embedding and the output matrix to q8_0, those of layers to this type; files that are quantized need none") \
	x(choice, draw, "draw", "auto", 0, 0, "auto|host",		\
	  "where tokens are drawn: auto draws where the model runs, as far as a GPU can; host brings all logits to the host")

/* Tokens of a choice of --state-tokens. */
static inline u32 cli_state_tokens(u32 choice)
{
	return 16u << (2 * choice);
}

/*
 * Limits of the command's domain; the first client that attaches to it sets
 * them.
 */
#define CLI_LIMIT_OPTS(x)						\
	x(size, memory_max, "memory-max", "0", 0, 0, "SIZE",		\
	  "most KV memory to take (memory.max of the domain), 0: no limit") \
	x(size, memory_high, "memory-high", "0", 0, 0, "SIZE",		\
	  "KV memory above which new sequences wait (memory.high), 0: no limit") \
	x(size, memory_low, "memory-low", "0", 0, 0, "SIZE",		\
	  "KV memory that other domains take last (memory.low)")	\
	x(size, memory_min, "memory-min", "0", 0, 0, "SIZE",		\
	  "KV memory that other domains never take (memory.min)")	\
	x(size, swap_max, "swap-max", "0", 0, 0, "SIZE",		\
	  "most KV in the host pool, and in each swap area, 0: no limit") \
	x(choice, pool, "pool", "auto", 0, 0,				\
	  "auto|gpu0|gpu1|gpu2|gpu3|gpu4|gpu5|gpu6|gpu7",		\
	  "device pool of the daemon that has the KV; auto: the pool of the domain, and for a new one the pool with the most room") \
	x(uint, memory_weight, "memory-weight", "100", 1, 10000, "N",	\
	  "part of the memory that no domain is promised (memory.weight)")

#define CLI_LIMITS(o) {							\
	.min = (o)->memory_min, .low = (o)->memory_low,			\
	.high = (o)->memory_high, .max = (o)->memory_max,		\
	.swap_max = (o)->swap_max, .pool = (o)->pool, .weight = (o)->memory_weight,	\
}

/* The rank of adapters, and limits of the domain that they lie in. */
#define CLI_LORA_OPTS(x)						\
	x(uint, max_lora_rank, "max-lora-rank", "64", 1, ADAPTER_MAX_RANK, "N", \
	  "largest rank of adapters; the size of their blocks grows with it") \
	x(size, lora_memory_max, "lora-memory-max", "0", 0, 0, "SIZE",	\
	  "most memory of adapters on the device (memory.max of their domain), 0: no limit") \
	x(size, lora_memory_high, "lora-memory-high", "0", 0, 0, "SIZE", \
	  "memory of adapters above which sequences wait for one more (memory.high), 0: no limit") \
	x(size, lora_memory_low, "lora-memory-low", "0", 0, 0, "SIZE",	\
	  "memory of adapters that other domains take last (memory.low)") \
	x(size, lora_memory_min, "lora-memory-min", "0", 0, 0, "SIZE",	\
	  "memory of adapters that other domains never take (memory.min)") \
	x(size, lora_swap_max, "lora-swap-max", "0", 0, 0, "SIZE",	\
	  "most adapters in the host pool, and in each swap area, 0: no limit") \
	x(uint, lora_memory_weight, "lora-memory-weight", "100", 1, 10000, "N", \
	  "part of the memory that no domain is promised, for adapters (memory.weight)")

/* Adapters lie in the pool of the model's KV. */
#define CLI_LORA_LIMITS(o) {						\
	.min = (o)->lora_memory_min, .low = (o)->lora_memory_low,	\
	.high = (o)->lora_memory_high, .max = (o)->lora_memory_max,	\
	.swap_max = (o)->lora_swap_max, .pool = (o)->pool,		\
	.weight = (o)->lora_memory_weight,				\
}

/*
 * Options of vllm serve, and then of llama-server, that kvrt serve does not have.
 * Documentation/server.md has this table, and a test looks for every option that it names.
 */
#define CLI_FOREIGN(x)							\
	x("gpu-memory-utilization",					\
	  "the memory belongs to the daemon: give kvmm-hold --pool-size SIZE, 80% or auto; of it, --memory-max limits one model") \
	x("kv-cache-memory-bytes",					\
	  "the memory belongs to the daemon: give kvmm-hold --pool-size SIZE; of it, --memory-max limits one model") \
	x("num-gpu-blocks-override",					\
	  "the memory belongs to the daemon: give kvmm-hold --pool-size SIZE") \
	x("swap-space",							\
	  "host memory belongs to the daemon: give kvmm-hold --host-size SIZE, and kvctl swapon for files") \
	x("kv-offloading-size",						\
	  "host memory belongs to the daemon: give kvmm-hold --host-size SIZE, and kvctl swapon for files") \
	x("cpu-offload-gb",						\
	  "weights lie where the model runs: leave it out, or take --backend host") \
	x("preemption-mode",						\
	  "the daemon chooses between swap and recomputation: kvmm-hold --swappiness N") \
	x("tensor-parallel-size", "give --tensor-parallel N, with kernels of the CPU") \
	x("pipeline-parallel-size", "a model runs on one GPU: leave it out") \
	x("data-parallel-size",						\
	  "a model runs on one GPU: leave it out, and start a server on each") \
	x("max-num-seqs",						\
	  "give --max-seqs N, sequences that have memory, or --max-batch N, those of one step") \
	x("max-num-batched-tokens", "give --chunk N, tokens of one prompt in a step") \
	x("block-size", "give --block-tokens 16, 32 or 64")		\
	x("enable-prefix-caching", "prefixes are always cached: leave it out") \
	x("no-enable-prefix-caching",					\
	  "prefixes are always cached, in memory that has no other use: leave it out") \
	x("enable-chunked-prefill",					\
	  "long prompts are always computed in chunks: leave it out")	\
	x("scheduling-policy",						\
	  "requests have a priority always; for those of one priority give --schedule fcfs or prefix") \
	x("guided-decoding-backend",					\
	  "answers cannot be bound to a grammar or a schema: leave it out") \
	x("structured-outputs-config",					\
	  "answers cannot be bound to a grammar or a schema: leave it out") \
	x("enable-auto-tool-choice",					\
	  "there are no tool calls: leave it out, and read the calls of a model from its text") \
	x("tool-call-parser",						\
	  "there are no tool calls: leave it out, and read the calls of a model from its text") \
	x("reasoning-parser",						\
	  "reasoning is a part of the text: leave it out") \
	x("trust-remote-code", "no code of a model folder is run: leave it out") \
	x("download-dir", "nothing is downloaded: give the folder of the model") \
	x("revision", "nothing is downloaded: give the folder of the model") \
	x("tokenizer", "the tokenizer is that of the model folder: put its files there") \
	x("tokenizer-mode", "the tokenizer is that of the model folder: leave it out") \
	x("generation-config",						\
	  "generation_config.json of the model folder is used: leave it out") \
	x("enforce-eager", "nothing is compiled at start: leave it out") \
	x("seed", "each request has a seed of its own: leave it out")	\
	x("device", "give --backend host or cuda")			\
	x("disable-log-requests",					\
	  "requests that succeed are logged with --log-level debug alone: leave it out") \
	x("enable-log-requests", "give --log-level debug")		\
	x("uvicorn-log-level", "give --log-level")			\
	x("api-server-count", "give --loops N, threads that read and write") \
	x("uds", "give --unix PATH --unix-only")			\
	x("ssl-keyfile", "a reverse proxy has to do TLS: leave it out")	\
	x("ssl-certfile", "a reverse proxy has to do TLS: leave it out") \
	x("speculative-config", "there is no speculative decoding: leave it out") \
	x("lora-modules", "give --lora NAME=DIR, once for each adapter")	\
	x("max-loras", "a step has any number of adapters: leave it out") \
	x("max-cpu-loras",						\
	  "adapters lie in the memory of the daemon, which moves them as it moves KV: leave it out, or give --lora-memory-max SIZE and --lora-swap-max SIZE") \
	x("fully-sharded-loras", "a model runs on one GPU: leave it out") \
	x("lora-scaled",						\
	  "the scale of an adapter is that of its adapter_config.json: give --lora NAME=DIR") \
	x("ctx-size",							\
	  "give --max-model-len N, of each sequence, and kvmm-hold --pool-size SIZE, for all of them") \
	x("n-gpu-layers", "a model runs on one device: give --backend cuda or host") \
	x("parallel", "there are no slots: leave it out, or give --max-seqs N") \
	x("cache-type-k", "K and V have one type: give --kv-cache-dtype") \
	x("cache-type-v", "K and V have one type: give --kv-cache-dtype")

/*
 * The GPU failed during use, and is lost to this process; another process may
 * use it.  sysexits.h has no code for that.
 */
#define CLI_EX_DEVICE	79

/* Exit codes of every command. */
#define CLI_EXITS(x)							\
	x(0,		"done; also --help and --version")		\
	x(EX_USAGE,	"a wrong command, option or argument")		\
	x(EX_DATAERR,	"model files with wrong contents, a prompt that is empty, no UTF-8, or can never fit") \
	x(EX_NOINPUT,	"a model folder, a file of it, or a prompt file is missing") \
	x(EX_UNAVAILABLE, "no kvmm daemon answers, or it refuses this client; there is no GPU") \
	x(EX_SOFTWARE,	"a defect of kvrt or kvmm")			\
	x(EX_OSERR,	"the system refused memory or threads")		\
	x(EX_IOERR,	"the output cannot be written, or a file cannot be read") \
	x(EX_TEMPFAIL,	"the daemon went away or is full: try again")	\
	x(EX_NOPERM,	"the daemon's socket admits others only")	\
	x(CLI_EX_DEVICE, "the GPU failed: run it again")

enum {
#define x(code, text) + 1
	CLI_NR_EXITS = 0 CLI_EXITS(x),
	CLI_NR_FOREIGN = 0 CLI_FOREIGN(x),
#undef x
};

extern const struct kv_exit cli_exits[CLI_NR_EXITS];
extern const struct kv_foreign cli_foreign[CLI_NR_FOREIGN];

extern const struct kv_program cli_run_program;
extern const struct kv_program cli_generate_program;
extern const struct kv_program cli_serve_program;
extern const struct kv_program cli_inspect_program;
extern const struct kv_program cli_ask_program;
extern const struct kv_program cli_chat_program;
extern const struct kv_program cli_bench_program;

#define x(name, operands, text) int cli_##name(int argc, char **argv);
CLI_COMMANDS(x)
#undef x

/* ---- options.c ---- */

/**
 * cli_parse() - kv_opts_parse() with short names, one line of error, exit code
 * @shorts: pairs of a short name and its long name, "-n", "--samples", ended by
 *          NULL
 * @values: the structure of options
 * @nr:     number of operands, now at the front of @argv
 *
 * Return: 0, EX_USAGE, or -1 when help or version was printed.
 */
int cli_parse(const struct kv_program *prog, const char * const *shorts,
	      void *values, int argc, char **argv, int *nr);

/**
 * cli_number() - a real number from the text of an option
 * @name: name of the option, for the message
 * @text: the given text; NULL leaves @out as it is
 *
 * Return: 0, or EX_USAGE after one line on stderr.
 */
int cli_number(const char *name, const char *text, double lo, double hi,
	       double *out);

/* cli_whole() - the same for a whole number up to @hi */
int cli_whole(const char *name, const char *text, u64 hi, u64 *out);

/**
 * cli_kernel() - the model layer's name of the kernels chosen by --kernels
 *
 * Warns, in one line, of kernels that compute nothing.
 */
const char *cli_kernel(u32 choice);

/* cli_types() - set the types that --dtype and --kv-cache-dtype choose */
void cli_types(u32 dtype, u32 kv, struct model_opts *mo);

/**
 * cli_backend() - let the model run where the daemon's pool is
 * @choice: value of --backend
 * @socket: value of --socket, may be NULL
 * @mo:     its kernel and device are set if it is to run on a GPU
 *
 * Return: 0, or an exit code after one line on stderr.
 */
int cli_backend(u32 choice, const char *socket, struct model_opts *mo);

/* The same for a model that is only judged, without a daemon. */
void cli_backend_judged(u32 choice, struct model_opts *mo);

/* cli_exit_of() - the exit code of @err, for scripts */
int cli_exit_of(int err);

/* ---- find.c ---- */

/**
 * struct cli_model - the model that an operand names
 * @dir:    its folder
 * @name:   its name in the Hugging Face cache; "": the operand is a folder
 * @domain: last part of that name, cut to the length of a domain's name
 */
struct cli_model {
	char	dir[4096];
	char	name[HUB_NAME_MAX];
	char	domain[KVMM_NAME_LEN];
};

/**
 * cli_model_find() - find the model that an operand names
 * @text: a folder, hf:ORG/NAME, or ORG/NAME if there is no such folder
 *
 * Return: 0, or EX_NOINPUT after one line on stderr.
 */
int cli_model_find(struct cli_model *m, const char *text);

/* The domain of model @m: @given, or else @m's; NULL: the engine chooses. */
const char *cli_model_domain(const struct cli_model *m, const char *given);

/* ---- progress.c ---- */

/**
 * struct progress - lines on stderr while weights are read
 * @dir:   the model's folder
 * @begin: when reading began, or the pass
 * @said:  when the last line was due
 * @last:  when the last call was
 * @done:  bytes that it told
 * @pass:  passes over the weights that have ended
 */
struct progress {
	const char	*dir;
	s64		begin;
	s64		said;
	s64		last;
	u64		done;
	u32		pass;
};

/* progress_start() - get a model_load() progress; @p must outlive the model */
struct model_progress progress_start(struct progress *p, const char *dir);

/* Say what loading has made of the tensors of the files, if it has. */
void progress_made(const struct model *model);

/* ---- prompts.c ---- */

/**
 * struct prompt - one text to complete
 * @text: its bytes, @len of them, not NUL terminated
 * @ids:  its tokens, @nr of them
 */
struct prompt {
	char	*text;
	size_t	len;
	u32	*ids;
	u32	nr;
};

struct prompts {
	struct prompt	*list;
	u32		nr;
};

/**
 * prompts_read() - collect the prompts
 * @args: prompts of the command line, @nr_args of them
 * @file: file with one prompt a line, "-" is standard input; may be NULL
 *
 * Without both, the whole standard input is one prompt.
 *
 * Return: 0, or an exit code after one line on stderr.
 */
int prompts_read(struct prompts *p, char **args, int nr_args,
		 const char *file);

/* prompts_encode() - fill in the tokens; 0 or an exit code, as above */
int prompts_encode(struct prompts *p, const struct tokenizer *tok);

void prompts_free(struct prompts *p);

/* ---- output.c ---- */

/**
 * struct output - standard output that never makes the engine wait
 * @fd:   its descriptor
 * @tty:  it is a terminal
 * @err:  negative errno once it is broken
 * @len:  bytes in @buf that are not written yet
 */
struct output {
	int	fd;
	bool	tty;
	int	err;
	char	*buf;
	size_t	len;
	size_t	cap;
};

void output_init(struct output *o, int fd);
void output_write(struct output *o, const char *data, size_t len);
void output_puts(struct output *o, const char *s);
void output_flush(struct output *o);
int output_close(struct output *o);

/* ---- printer.c ---- */

enum print_mode {
	PRINT_STREAM,		/* one sample: the text as it comes */
	PRINT_LINES,		/* several: lines with labels */
	PRINT_JSON,		/* one object a finished sample */
};

/**
 * struct printed - one sample and its output
 * @prompt: number of its prompt, from 0
 * @sample: number of the sample, from 0
 * @line:   text that waits for the end of its line, @len bytes, @cols wide
 * @text:   the whole text, for JSON
 */
struct printed {
	struct printer	*printer;
	u32		prompt;
	u32		sample;
	struct detok	detok;
	char		*line;
	size_t		len;
	size_t		cap;
	u32		cols;
	char		*text;
	size_t		text_len;
	size_t		text_cap;
	u32		*ids;
	u32		nr_ids;
	bool		began;
	bool		newline;	/* the last byte written ends a line */
};

/**
 * struct printer - turns samples into text
 * @mode:    see above
 * @out:     the output
 * @tok:     decodes ids
 * @width:   columns of a line
 * @colour:  labels have a colour
 * @piece:   buffer for the text of one id
 * @seed:    for JSON
 * @logprob: JSON has the logprob of each text
 * @failed:  exit code of the first sample that failed, else 0
 * @said:    the error printed last, of a sample of prompt @said_of
 * @nr_alike: later samples of that prompt with the same error, not printed
 */
struct printer {
	enum print_mode		mode;
	struct output		*out;
	const struct tokenizer	*tok;
	u32			width;
	bool			colour;
	char			*piece;
	size_t			piece_max;
	u64			seed;
	bool			logprob;
	int			failed;
	char			said[512];
	u32			said_of;
	u32			nr_alike;
	u32			nr;
	u32			per_prompt;
	struct printed		*list;
};

/**
 * printer_create() - allocate a printer of @nr_prompts times @n samples
 * @tok:     NULL if text comes decoded, by printer_text()
 * @max_new: most ids of a sample
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check printer_create(struct printer *p, enum print_mode mode,
				struct output *out,
				const struct tokenizer *tok, u32 nr_prompts,
				u32 n, u32 max_new);
void printer_destroy(struct printer *p);

/*
 * printer_said() - print the number of failures that were not printed one by
 * one
 */
void printer_said(struct printer *p);

/* printer_heading() - print prompt @i, if the mode prints prompts */
void printer_heading(struct printer *p, u32 i, const struct prompt *prompt,
		     bool echo);

/* printer_of() - the samples of prompt @i, n of them */
struct printed *printer_of(struct printer *p, u32 i);

/* printer_text() - print @len bytes of a sample's text, whole characters */
void printer_text(struct printed *s, const char *text, size_t len);

/* printer_end() - end a sample's text; @whole: it was not cut off */
void printer_end(struct printed *s, bool whole);

/* Callbacks of the engine; @arg is printer_of() of the request's prompt. */
void printer_token(void *arg, u32 sample, const struct engine_token *t);
void printer_done(void *arg, const struct engine_done *done);

#endif /* RUNTIME_CLI_H */
