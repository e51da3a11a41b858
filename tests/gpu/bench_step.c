// SPDX-License-Identifier: Apache-2.0
/*
 * bench_step.c - whole decode steps of a model of Llama-3-8B's shape
 *
 * The model layer as a runtime uses it, with made-up weights and KV in plain
 * device memory; no daemon.  A step is model_forward() with one row a sequence,
 * up to the logits in pinned memory of the host, by the wall clock.
 *
 * Its roofline is that of one GPU: all weights but the embedding read once, or
 * their arithmetic if that takes longer, then the KV of every sequence; each at
 * the rate that this process has just measured.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/model/model.h"
#include "tests/gpu/bench.h"

#define TOKENS		16u
#define UNIT		64u
#define WARM		4u
#define REPEATS		20u

static const char big_config[] =
	"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\","
	" \"hidden_size\": 4096, \"intermediate_size\": 14336,"
	" \"num_hidden_layers\": 32, \"num_attention_heads\": 32,"
	" \"num_key_value_heads\": 8, \"vocab_size\": 128256,"
	" \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-05,"
	" \"rope_theta\": 500000.0, \"hidden_act\": \"silu\","
	" \"tie_word_embeddings\": false, \"attention_bias\": false,"
	" \"initializer_range\": 0.02, \"torch_dtype\": \"bfloat16\","
	" \"bos_token_id\": 1, \"eos_token_id\": 2}\n";

static const char tiny_config[] =
	"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\","
	" \"hidden_size\": 64, \"intermediate_size\": 128,"
	" \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
	" \"num_key_value_heads\": 2, \"vocab_size\": 256,"
	" \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-05,"
	" \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","
	" \"tie_word_embeddings\": false, \"attention_bias\": false,"
	" \"initializer_range\": 0.02, \"torch_dtype\": \"bfloat16\","
	" \"bos_token_id\": 1, \"eos_token_id\": 2}\n";

struct stage {
	struct bench			*b;
	struct model			*model;
	const struct model_info		*info;
	float				*logits;
	double				read;
	double				gemm;
};

/* Make a folder with config.json; made-up weights need no more. */
static void write_config(char *dir)
{
	const char *text = gpu_tiny ? tiny_config : big_config;
	char path[160];
	FILE *f;

	if (!mkdtemp(dir))
		gpu_die("%s cannot be made", dir);
	snprintf(path, sizeof(path), "%s/config.json", dir);
	f = fopen(path, "w");
	if (!f || fputs(text, f) < 0 || fclose(f))
		gpu_die("%s cannot be written", path);
}

static void remove_config(const char *dir)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/config.json", dir);
	unlink(path);
	rmdir(dir);
}

static struct model *load(const char *mode)
{
	const struct model_opts o = {
		.dtype = MODEL_BF16, .kernel = "cuda", .dummy = true,
		.mode = strcmp(mode, "fast") ? MODEL_EXACT : MODEL_FAST,
		.max_rows = 512, .max_seqs = 256,
	};
	char dir[] = "/tmp/kvmm-step.XXXXXX";
	const double start = gpu_now_us();
	struct model_error err = { "" };
	struct model *m = NULL;

	write_config(dir);
	if (model_load(dir, &o, &m, &err))
		gpu_die("%s", err.text);
	remove_config(dir);
	gpu_fact((gpu_now_us() - start) / 1e6, "s", "made up and uploaded",
		 "step.%s.load", mode);
	return m;
}

static u64 block_bytes(const struct stage *s)
{
	return TOKENS * model_layer_bytes(s->info) * s->info->nr_layers;
}

/* Milliseconds of a step by the roofline. */
static double roofline_ms(const struct stage *s, u32 nr, u32 ctx)
{
	const struct model_info *i = s->info;
	const double params = (double)i->nr_params -
			      (double)i->nr_vocab * i->hidden;
	const double weights = 2 * params / s->read / 1e6;
	const double flop = s->gemm ? 2 * params * nr / s->gemm / 1e9 : 0;
	const double kv = (double)nr * ctx * block_bytes(s) / TOKENS /
			  s->read / 1e6;

	return (weights > flop ? weights : flop) + kv;
}

/* Fill the batch: each sequence is at position ctx - 1, its blocks are scattered. */
static void make_batch(const struct stage *s, struct model_seq_in *seqs,
		       u32 *tables, u32 *token, u32 nr, u32 ctx)
{
	const u32 blocks = (ctx + TOKENS - 1) / TOKENS, all = nr * blocks;
	const u32 per_block = (u32)(block_bytes(s) / UNIT);
	u32 i;

	*token = 5;
	/* This stride has no factor in common with the number of blocks: all differ. */
	for (i = 0; i < all; i++)
		tables[i] = (u32)((u64)i * 7919 % all) * per_block;
	for (i = 0; i < nr; i++)
		seqs[i] = (struct model_seq_in){
			.tokens = token, .nr_tokens = 1, .start = ctx - 1,
			.table[0] = tables + (u64)i * blocks, .want_logits = 1,
		};
}

static void run_steps(struct stage *s, const struct model_kv *kv, u32 nr,
		      u32 ctx, double *ms, u32 repeats)
{
	const u32 blocks = (ctx + TOKENS - 1) / TOKENS;
	struct model_seq_in *seqs = calloc(nr, sizeof(*seqs));
	u32 *tables = malloc((u64)nr * blocks * sizeof(*tables));
	double t;
	u32 token, i;

	if (!seqs || !tables)
		gpu_die("no memory for the batch");
	make_batch(s, seqs, tables, &token, nr, ctx);
	for (i = 0; i < WARM + repeats; i++) {
		t = gpu_now_us();
		if (model_forward(s->model, kv, seqs, nr, s->logits))
			gpu_die("model_forward: %s", model_failure(s->model));
		if (i >= WARM)
			ms[i - WARM] = (gpu_now_us() - t) / 1e3;
	}
	free(seqs);
	free(tables);
}

static void step_case(struct stage *s, const char *mode, u32 nr, u32 ctx)
{
	const u32 repeats = bench_repeats(REPEATS);
	const u64 blocks = (u64)nr * ((ctx + TOKENS - 1) / TOKENS);
	const u64 bytes = blocks * block_bytes(s);
	struct model_kv kv = { .unit = UNIT, .block_tokens[0] = TOKENS };
	double ms[REPEATS], rate[REPEATS], ideal;
	u64 free_bytes, total;
	CUdeviceptr pool;
	u32 i;

	gpu_mem_info(&s->b->g, &free_bytes, &total);
	if (!gpu_tiny && bytes + GPU_GIB > free_bytes) {
		gpu_skipped("too little memory", "step.%s.B%u.%u", mode, nr, ctx);
		return;
	}
	pool = probe_device(&s->b->g, bytes);
	probe_fill_bf16(&s->b->g, pool, bytes / 2, 3);
	kv.base = (void *)(uintptr_t)pool;
	kv.layer_stride[0] = block_bytes(s) / s->info->nr_layers;
	run_steps(s, &kv, nr, ctx, ms, repeats);
	GPU_DO(s->b->g.cu->MemFree(pool));

	ideal = roofline_ms(s, nr, ctx);
	gpu_emit(&(struct gpu_line){ "ms", "its roofline", ideal, NULL }, ms,
		 repeats, "step.%s.B%u.%u", mode, nr, ctx);
	for (i = 0; i < repeats; i++)
		rate[i] = 1e3 * nr / ms[i];
	gpu_emit(&(struct gpu_line){ "tokens/s", "its roofline",
				     1e3 * nr / ideal, NULL },
		 rate, repeats, "step.%s.B%u.%u.rate", mode, nr, ctx);
}

static void step_mode(struct bench *b, const char *mode, double gemm)
{
	static const u32 batch[] = { 1, 32, 96, 256 }, ctx[] = { 1024, 8192 };
	struct stage s = { .b = b, .read = b->read, .gemm = gemm };
	u32 i, k;

	s.model = load(mode);
	s.info = model_info(s.model);
	s.logits = probe_host(&b->g, 4ull * 256 * s.info->nr_vocab);
	for (i = 0; i < (gpu_tiny ? 2 : 4); i++)
		for (k = 0; k < (gpu_tiny ? 1 : 2); k++)
			step_case(&s, mode, gpu_tiny ? i + 1 : batch[i],
				  gpu_tiny ? 100 : ctx[k]);
	model_free(s.model);
	bench_current(b);
	GPU_DO(b->g.cu->MemFreeHost(s.logits));
}

void part_step(void)
{
	struct bench b;
	double gemm;

	bench_open(&b, "step", "fast");
	if (!b.ops->attention || !b.ops->gemm || !b.ops->embed) {
		gpu_skipped("this build has no whole model for GPUs", "step");
		return;
	}
	gemm = ceiling_gemm(&b.g);
	/* Close it to free its memory: steps have contexts of their own. */
	kern_close(b.ops, b.ctx);
	bench_current(&b);
	step_mode(&b, "fast", gemm);
	step_mode(&b, "exact", gemm);
}
