// SPDX-License-Identifier: Apache-2.0
/*
 * inspect.c - kvrt inspect: describe a model, its cost, or why it is refused
 *
 * The folder is read and checked as for running it, down to the last tensor and
 * the last merge of the tokenizer.  But no data is copied, made up or started,
 * and no daemon is asked.  So the answer comes at once, also for a model that
 * is larger than this machine.
 *
 * The capacity of a pool is counted in whole blocks.  The daemon cuts extents
 * into blocks and may leave up to 1 % of them unused.  In a layer group with a
 * window a sequence has the blocks of its window and of one step.
 */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include <libkvmm.h>

#include "runtime/cli/cli.h"
#include "runtime/tokenizer/utf8.h"

#define MIN_TOKEN_LEAST	64u	/* the least --min-token-bytes of a daemon */

#define INSPECT_OPTS(x)							\
	x(flag, json, "json", NULL, 0, 0, NULL,				\
	  "print one JSON object instead of text")			\
	x(size, pool_size, "pool-size", "1G", 1, 0, "SIZE",		\
	  "pool to reckon with, as given to kvmm")			\
	x(choice, dtype, "dtype", "auto", 0, 0, CLI_DTYPES,		\
	  CLI_DTYPE_TEXT)						\
	x(choice, mode, "mode", "fast", 0, 0, "fast|exact",		\
	  "numeric mode, which says whether weights may be packed")	\
	x(choice, block_tokens, "block-tokens", "auto", 0, 0, "auto|16|32|64", \
	  "tokens of a block; auto: 16, or as --state-tokens in a model with recurrent layers") \
	x(uint, max_model_len, "max-model-len", "0", 0, 1 << 30, "N",	\
	  "longest sequence in tokens, 0: that of the model")	\
	CLI_MODEL_OPTS(x)

struct inspect_opts {
#define x OPT_FIELD
	INSPECT_OPTS(x)
#undef x
};

static const struct kv_opt option_table[] = {
#define x(...) OPT_ENTRY(struct inspect_opts, __VA_ARGS__)
	INSPECT_OPTS(x)
#undef x
};

static const struct kv_exit exits[] = {
	{ 0, "the model can be run; also --help and --version" },
	{ EX_USAGE, "a wrong option or argument" },
	{ EX_DATAERR, "the model is refused: one line says why" },
	{ EX_NOINPUT, "the model folder or a file of it is missing" },
	{ EX_OSERR, "the system refused memory" },
	{ EX_IOERR, "a file cannot be read, or the output not be written" },
};

const struct kv_program cli_inspect_program = {
	.name		= "kvrt inspect",
	.operands	= "MODEL",
	.about		= "Prints the architecture of MODEL, its cost in memory, and how many sequences fit a pool; or, in one line, why it is refused. Everything is read and checked as for running it. No daemon is needed.",
	.opts		= option_table,
	.nr_opts	= ARRAY_SIZE(option_table),
	.exits		= exits,
	.nr_exits	= ARRAY_SIZE(exits),
};

/*
 * Results of one inspection; @nr_tokens is 0 without a tokenizer.  @least_bytes is the
 * largest --min-token-bytes of a daemon for this model; 0: the least one is too large.
 */
struct inspect {
	const struct inspect_opts	*o;
	const struct model		*model;
	const struct model_info		*info;
	u32				block_tokens;
	struct kvmm_group		group[MODEL_MAX_GROUPS];
	u64				token_bytes;
	u64				block_bytes;
	u64				nr_blocks;
	u64				least_bytes;
	u32				nr_tokens;
};

/* A size in readable form, in @buf. */
static const char *human(u64 bytes, char *buf, size_t size)
{
	static const char units[] = "BKMGTP";
	double v = (double)bytes;
	u32 i = 0;

	while (v >= 1024 && units[i + 1]) {
		v /= 1024;
		i++;
	}
	if (i)
		snprintf(buf, size, "%.1f %ciB", v, units[i]);
	else
		snprintf(buf, size, "%u B", (u32)bytes);
	return buf;
}

/* Blocks of a sequence of @len tokens in all groups; those of a prefill are the most. */
static u64 seq_blocks(const struct inspect *in, u64 len)
{
	return engine_seq_blocks(in->group, in->info->nr_groups,
				 in->block_bytes, in->info->max_rows, len);
}

/* Bytes of a sequence of @len tokens in one group. */
static u64 group_bytes(const struct inspect *in, u32 g, u64 len)
{
	return engine_group_blocks(&in->group[g], in->block_bytes,
				   in->info->max_rows, len) * in->block_bytes;
}

/* Whole sequences of @len tokens. */
static u64 sequences(const struct inspect *in, u64 len)
{
	return in->nr_blocks / seq_blocks(in, len);
}

/* The next length to list, 0 after the longest allowed one. */
static u64 next_length(const struct inspect *in, u64 len)
{
	const u64 longest = in->info->max_len;

	if (len == longest)
		return 0;
	return min(len ? len * 4 : 256, longest);
}

/* ---- text ---- */

static void line(void *arg, const char *what, const char *text)
{
	printf("%-18s %s\n", what, text);
}

static void text_weights(const struct inspect *in)
{
	const struct model_info *i = in->info;
	char a[32], b[32], c[32];

	printf("%-18s %.1f M in %u tensors, ", "parameters",
	       (double)i->nr_params / 1e6, i->nr_tensors);
	if (i->nr_files)
		printf("%u file%s\n", i->nr_files, i->nr_files > 1 ? "s" : "");
	else
		printf("made up\n");
	printf("%-18s %s: %s used as mapped, %s copied", "weights",
	       human(i->weight_bytes, a, sizeof(a)),
	       human(i->mapped_bytes, b, sizeof(b)),
	       human(i->copy_bytes, c, sizeof(c)));
	if (i->packed_bytes)
		printf(", %s packed", human(i->packed_bytes, a, sizeof(a)));
	if (i->device_bytes)
		printf(", %s on the GPU with the workspace",
		       human(i->device_bytes, a, sizeof(a)));
	putchar('\n');
	printf("%-18s %s for %u rows a batch\n", "workspace",
	       human(i->work_bytes, a, sizeof(a)), i->max_rows);
}

static bool is_state(const struct kvmm_group *g)
{
	return g->kind == KVMM_GROUP_STATE;
}

/* Recurrent layers: their records, and the part of them that is in use. */
static void text_states(const struct inspect *in, const struct kvmm_group *g)
{
	const u32 blocks = engine_table_entries(g, in->block_bytes);
	const u64 units = (u64)g->layers * g->kv_heads;
	char a[32], b[32], c[32];

	printf("%-18s %u recurrent layer%s, a record every %u tokens\n",
	       "layer group", g->layers, g->layers == 1 ? "" : "s",
	       g->block_tokens);
	printf("%-18s %s in %u block%s of %s: %llu units of %s\n", "record",
	       human(units * g->k_bytes, a, sizeof(a)), blocks,
	       blocks == 1 ? "" : "s", human(in->block_bytes, b, sizeof(b)),
	       (unsigned long long)units, human(g->k_bytes, c, sizeof(c)));
}

/* The layer groups, and the bytes that a sequence has in each; nothing for one group. */
static void text_groups(const struct inspect *in)
{
	const struct kvmm_group *g;
	char a[32], b[32], c[32];
	u64 len = 0;

	if (in->info->nr_groups == 1)
		return;
	for (g = in->group; g < in->group + in->info->nr_groups; g++) {
		if (is_state(g)) {
			text_states(in, g);
			continue;
		}
		printf("%-18s %u layer%s, ", "layer group", g->layers,
		       g->layers == 1 ? "" : "s");
		if (g->window)
			printf("window of %u tokens", g->window);
		else
			printf("no window");
		printf(", %u tokens a block\n", g->block_tokens);
	}
	while ((len = next_length(in, len)))
		printf(is_state(g - 1) ?
		       "%-18s %llu tokens: %s of KV, %s of states, %s in all\n" :
		       "%-18s %llu tokens: %s without a window, %s with, %s in all\n",
		       is_state(g - 1) ? "sequence" : "KV of a sequence",
		       (unsigned long long)len,
		       human(group_bytes(in, 0, len), a, sizeof(a)),
		       human(group_bytes(in, 1, len), b, sizeof(b)),
		       human(seq_blocks(in, len) * in->block_bytes, c,
			     sizeof(c)));
}

static void text_least(const struct inspect *in)
{
	printf("%-18s ", "--min-token-bytes");
	if (in->least_bytes)
		printf("%llu at most, for the daemon\n",
		       (unsigned long long)in->least_bytes);
	else
		printf("no daemon takes it: give a larger --block-tokens\n");
}

static void text_pool(const struct inspect *in)
{
	char a[32];
	u64 len = 0;

	printf("%-18s %s a token in %s%s\n", "KV",
	       human(in->token_bytes, a, sizeof(a)),
	       model_kv_name(in->info->kv_type),
	       in->info->scale_bytes ? " with scales" : "");
	if (in->info->heads_bytes)
		printf("%-18s %s a token with K and V of all heads\n",
		       "instead of",
		       human(in->info->nr_layers * in->info->heads_bytes, a,
			     sizeof(a)));
	text_groups(in);
	human(in->block_bytes, a, sizeof(a));
	if (in->info->nr_groups > 1)
		printf("%-18s %s in each group\n", "block", a);
	else
		printf("%-18s %s, %u tokens\n", "block", a, in->block_tokens);
	text_least(in);
	printf("%-18s %s: %llu blocks", "pool",
	       human(in->o->pool_size, a, sizeof(a)),
	       (unsigned long long)in->nr_blocks);
	if (in->info->nr_groups == 1)
		printf(", %llu tokens",
		       (unsigned long long)(in->nr_blocks * in->block_tokens));
	putchar('\n');
	while ((len = next_length(in, len)))
		printf("%-18s %llu of %llu tokens\n", "sequences",
		       (unsigned long long)sequences(in, len),
		       (unsigned long long)len);
}

static void print_text(const struct inspect *in)
{
	char tokens[64];

	line(NULL, "model", in->info->dir);
	line(NULL, "architecture", in->info->arch);
	model_describe(in->model, line, NULL);
	snprintf(tokens, sizeof(tokens), "%u tokens at most",
		 in->info->max_len);
	line(NULL, "context", tokens);
	if (in->nr_tokens) {
		snprintf(tokens, sizeof(tokens), "%u tokens", in->nr_tokens);
		line(NULL, "tokenizer", tokens);
	}
	text_weights(in);
	text_pool(in);
}

/* ---- JSON ---- */

static void json_line(void *arg, const char *what, const char *text)
{
	char clean[PATH_MAX];

	/* The name of a folder may be no UTF-8, but JSON must be. */
	snprintf(clean, sizeof(clean), "%s", text);
	utf8_clean_line(clean);
	json_object_set_new(arg, what, json_string(clean));
}

static void json_int(json_t *o, const char *key, u64 v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static void json_costs(json_t *o, const struct inspect *in)
{
	const struct model_info *i = in->info;

	json_int(o, "max_len", i->max_len);
	json_int(o, "tokenizer_tokens", in->nr_tokens);
	json_int(o, "parameters", i->nr_params);
	json_int(o, "tensors", i->nr_tensors);
	json_int(o, "files", i->nr_files);
	json_int(o, "weight_bytes", i->weight_bytes);
	json_int(o, "mapped_bytes", i->mapped_bytes);
	json_int(o, "copied_bytes", i->copy_bytes);
	json_int(o, "packed_bytes", i->packed_bytes);
	json_int(o, "device_bytes", i->device_bytes);
	json_int(o, "workspace_bytes", i->work_bytes);
	json_int(o, "kv_bytes_per_token", in->token_bytes);
	json_int(o, "kv_bytes_per_token_of_heads", i->heads_bytes ?
		 i->nr_layers * i->heads_bytes : in->token_bytes);
	json_int(o, "block_tokens", in->block_tokens);
	json_int(o, "block_bytes", in->block_bytes);
	json_int(o, "min_token_bytes_max", in->least_bytes);
	json_int(o, "pool_bytes", in->o->pool_size);
	json_int(o, "pool_blocks", in->nr_blocks);
}

static json_t *json_groups(const struct inspect *in)
{
	json_t *list = json_array(), *o;
	u32 g;

	for (g = 0; g < in->info->nr_groups; g++) {
		o = json_object();
		json_int(o, "layers", in->group[g].layers);
		json_int(o, "window", in->group[g].window);
		json_int(o, "block_tokens", in->group[g].block_tokens);
		if (is_state(&in->group[g])) {
			json_int(o, "units", in->group[g].kv_heads);
			json_int(o, "unit_bytes", in->group[g].k_bytes);
			json_int(o, "record_blocks",
				 engine_table_entries(&in->group[g],
						      in->block_bytes));
		}
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *json_sequences(const struct inspect *in)
{
	json_t *list = json_array(), *o, *bytes;
	u64 len = 0;
	u32 g;

	while ((len = next_length(in, len))) {
		o = json_object();
		json_int(o, "tokens", len);
		json_int(o, "fit", sequences(in, len));
		json_int(o, "bytes", seq_blocks(in, len) * in->block_bytes);
		for (g = 0, bytes = json_array(); g < in->info->nr_groups; g++)
			json_array_append_new(bytes, json_integer((json_int_t)
						group_bytes(in, g, len)));
		json_object_set_new(o, "group_bytes", bytes);
		json_array_append_new(list, o);
	}
	return list;
}

static int json_print(json_t *o)
{
	int ret = json_dumpf(o, stdout, JSON_INDENT(1));

	putchar('\n');
	json_decref(o);
	/* cli_inspect() reports an output that cannot be written. */
	return ret && !ferror(stdout) ? EX_OSERR : 0;
}

static int print_json(const struct inspect *in)
{
	json_t *o = json_object(), *words = json_object();

	json_line(o, "model", in->info->dir);
	json_line(o, "architecture", in->info->arch);
	model_describe(in->model, json_line, words);
	json_object_set_new(o, "switches", words);
	json_line(o, "dtype", in->info->dtype == MODEL_BF16 ? "bf16" : "f32");
	json_line(o, "kv_cache_dtype", model_kv_name(in->info->kv_type));
	json_costs(o, in);
	json_object_set_new(o, "groups", json_groups(in));
	json_object_set_new(o, "sequences", json_sequences(in));
	return json_print(o);
}

static int print_refusal(const struct inspect_opts *o, const char *dir,
			 const char *why)
{
	json_t *obj;

	pr_err("%s", why);
	if (!o->json)
		return 0;
	obj = json_object();
	json_line(obj, "model", dir);
	json_line(obj, "refused", why);
	return json_print(obj);
}

/* ---- both ---- */

/* As for running it; made-up weights need no tokenizer. */
static int inspect_tokenizer(struct inspect *in, const char *dir)
{
	char why[TOKENIZER_ERR_MAX];
	struct tokenizer *tok;
	int ret;

	ret = tokenizer_load(dir, &tok, why, sizeof(why));
	if (ret == -ENOENT && in->o->load_format)
		return 0;
	if (ret) {
		print_refusal(in->o, dir, why);
		return ret == -EACCES ? EX_NOINPUT : cli_exit_of(ret);
	}
	in->nr_tokens = tokenizer_vocab_size(tok);
	tokenizer_free(tok);
	return 0;
}

/*
 * The largest --min-token-bytes that lets the model attach: a power of two, up to the
 * bytes of a token; with layer groups, up to the bytes of a block for each id of a token
 * that the daemon keeps beside it, as many as the longest block of a group has.
 */
static u64 least_bytes(const struct inspect *in)
{
	u64 bytes = in->token_bytes;
	u32 g, ids = 1;

	for (g = 0; g < in->info->nr_groups; g++)
		ids = max(ids, in->group[g].block_tokens);
	if (in->info->nr_groups > 1)
		bytes = in->block_bytes / ids;
	return bytes < MIN_TOKEN_LEAST ? 0 : 1ull << (63 - __builtin_clzll(bytes));
}

/* Return: 0, or an exit status. */
static int inspect_costs(struct inspect *in)
{
	const struct engine_opts eo = {
		.block_tokens = in->block_tokens,
		.state_tokens = cli_state_tokens(in->o->state_tokens),
	};
	u64 bytes;
	u32 g;

	in->info = model_info(in->model);
	in->token_bytes = model_token_bytes(in->info);
	if (engine_groups(in->info, &eo, in->group) < 0) {
		print_refusal(in->o, in->info->dir,
			      "a block of its layer groups is larger than any pool: give a smaller --block-tokens");
		return EX_DATAERR;
	}
	in->block_tokens = in->group[0].block_tokens;
	in->block_bytes = 0;
	for (g = 0; g < in->info->nr_groups; g++) {
		bytes = kvmm_group_bytes(&in->group[g], in->group[g].block_tokens);
		in->block_bytes = max(in->block_bytes, bytes);
	}
	if (in->info->nr_groups == 1)
		in->block_bytes = in->token_bytes * in->block_tokens;
	in->nr_blocks = in->o->pool_size / in->block_bytes;
	in->least_bytes = least_bytes(in);
	return 0;
}

static int inspect(const struct inspect_opts *o, const char *dir)
{
	static const u32 block_tokens[] = { 0, 16, 32, 64 };
	struct model_opts mo = {
		.mode = o->mode ? MODEL_EXACT : MODEL_FAST,
		.max_len = o->max_model_len,
		.window_group = !o->kv_groups,
		.dummy = o->load_format,
		.weights = o->weights,
		.quantization = o->quantization,
		.no_draws = o->draw,
		.judge = true,
	};
	struct inspect in = {
		.o = o, .block_tokens = block_tokens[o->block_tokens],
	};
	struct model_error err;
	struct model *model;
	int ret;

	cli_types(o->dtype, o->kv_cache_dtype, &mo);
	cli_backend_judged(o->backend, &mo);
	ret = model_load(dir, &mo, &model, &err);
	if (ret) {
		print_refusal(o, dir, err.text);
		return ret == -EACCES ? EX_NOINPUT : cli_exit_of(ret);
	}
	in.model = model;
	ret = inspect_costs(&in);
	if (!ret)
		ret = inspect_tokenizer(&in, dir);
	if (!ret && o->json)
		ret = print_json(&in);
	else if (!ret)
		print_text(&in);
	model_free(model);
	return ret;
}

int cli_inspect(int argc, char **argv)
{
	struct cli_model found;
	struct inspect_opts o;
	int nr, ret;

	ret = cli_parse(&cli_inspect_program, NULL, &o, argc, argv, &nr);
	if (ret)
		return max(ret, 0);
	if (nr != 1) {
		pr_err("%s: kvrt inspect MODEL", nr ?
		       "more than one model folder" :
		       "the model folder is missing");
		return EX_USAGE;
	}
	ret = cli_model_find(&found, argv[0]);
	if (!ret)
		ret = inspect(&o, found.dir);
	if ((fflush(stdout) || ferror(stdout)) && !ret) {
		pr_err("standard output: %s: nothing more can be printed",
		       strerror(errno));
		ret = EX_IOERR;
	}
	return ret;
}
