// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_quantized.c - quantized folders, and quantizing while loading
 *
 * The cases of tests/data/quantized: a folder of each format, and the results of another
 * implementation with the dequantized weights.  Every kernel of this machine runs each
 * case: greedy tokens must be equal, logits within 1e-4; in fast mode, in which
 * activations may have 8 bits, within 8e-2.  Folders that are damaged, and settings that
 * are not supported, are refused in one line.
 */
#include "tests/unit/quantized_fixture.h"

static const char * const formats[] = {
	"gptq-128", "gptq-32-act", "gptq-v2-row", "gptq-8", "gptq-8-zeros", "awq",
	"awq-middle", "packed-32", "packed-128-zeros", "packed-64-act", "packed-row", "packed-8",
	"int8", "float8", "float8-row", "float8-block", "mixed", "fp8", "fp8-one",
	"fbgemm", "mxfp4",
};

static struct model_error err;

static struct model *load_with(const struct kern_ops *ops,
			       enum model_quantization to, u32 threads)
{
	struct model_opts opts = {
		.nr_threads = threads, .mode = MODEL_EXACT, .quantization = to,
	};
	struct model *model;
	char name[32];

	if (ops && ops->mode == KERN_MODE_FAST)
		opts.mode = MODEL_FAST;
	if (ops) {
		snprintf(name, sizeof(name), "%s:%s", ops->name, ops->variant);
		opts.kernel = strcmp(ops->name, "ref") ? name : "ref";
	}
	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	return model;
}

static void assert_greedy(const char *what, const float *logits)
{
	const float *row;
	u32 i, j, best;

	for (i = NR_PROMPT - 1; i < NR_ALL; i++) {
		row = logits + i * VOCAB;
		for (best = 0, j = 1; j < VOCAB; j++)
			if (row[j] > row[best])
				best = j;
		if (best != golden.tokens[i + 1])
			ck_abort_msg("%s, %s: token %u is %u, not %u",
				     case_dir, what, i + 1, best,
				     golden.tokens[i + 1]);
	}
}

/* The largest difference, over the largest logit of its row. */
static double apart(const float *logits, const float (*want)[VOCAB])
{
	double diff, size, most = 0;
	u32 i, j;

	for (i = 0; i < NR_KEEP; i++) {
		diff = size = 0;
		for (j = 0; j < VOCAB; j++) {
			diff = fmax(diff, fabs(logits[golden.keep[i] * VOCAB + j] -
					       want[i][j]));
			size = fmax(size, fabs(want[i][j]));
		}
		most = fmax(most, diff / size);
	}
	return most;
}

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

START_TEST(test_golden)
{
	const struct kern_ops *ops;
	struct model *model;
	float *logits;
	u32 i;

	quantized_read(formats[_i]);
	quantized_write();
	config_write("torch_dtype", json_string("float32"));
	for (i = 0; (ops = kern_at(i)); i++) {
		model = load_with(ops, MODEL_QUANT_NONE, 1 + i % 3);
		logits = run_chunks(model, 37);
		if (getenv("KVMM_SHOW"))
			printf("%s %s:%s: logits within %.1e\n", formats[_i],
			       ops->name, ops->variant,
			       apart(logits, golden.f32));
		assert_near(ops->variant, logits, golden.f32,
			    ops->mode == KERN_MODE_FAST ? 8e-2 : 1e-4);
		if (ops->mode != KERN_MODE_FAST)
			assert_greedy(ops->variant, logits);
		free(logits);
		model_free(model);
	}
}
END_TEST

/* A judged model reports the same facts as a loaded one. */
START_TEST(test_judged)
{
	const struct model_opts opts = { .judge = true, .mode = MODEL_EXACT };
	struct model *model, *judged;
	const struct model_info *a, *b;

	quantized_read(formats[_i]);
	quantized_write();
	config_write(NULL, NULL);
	ck_assert_msg(!model_load(fixture_dir, &opts, &judged, &err), "%s",
		      err.text);
	model = load_with(NULL, MODEL_QUANT_NONE, 1);
	a = model_info(judged);
	b = model_info(model);
	ck_assert_uint_gt(a->made_bytes, 10000);
	ck_assert_uint_eq(a->made_bytes, b->made_bytes);
	ck_assert_uint_eq(a->made_of, b->made_of);
	ck_assert_uint_eq(a->weight_bytes, b->weight_bytes);
	ck_assert_uint_eq(a->copy_bytes, b->copy_bytes);
	ck_assert_uint_eq(a->mapped_bytes, b->mapped_bytes);
	model_free(model);
	model_free(judged);
}
END_TEST

/* The folder is refused in one line with @words. */
static void assert_refused(int ret, const char *words)
{
	const struct model_opts opts = { .mode = MODEL_EXACT };
	struct model *model = NULL;

	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), ret);
	ck_assert_msg(strstr(err.text, words) != NULL, "%s", err.text);
	ck_assert_ptr_nonnull(strstr(err.text, fixture_dir));
	ck_assert_ptr_null(strchr(err.text, '\n'));
}

/* Damages of a tensor. */
enum damage {
	LEFT_OUT,
	TURNED,		/* dimensions exchanged */
	FLAT,		/* one dimension */
	EMPTY,		/* no rows */
	OTHER_TYPE,
	BAD_GROUP,	/* group 32767 */
	NO_GROUP,	/* group -1 */
	BAD_SHAPE,	/* [-1, -1] */
	RENAMED,	/* to lm_head.weight's module, whose weight is there */
};

#define L0	"model.layers.0."

static const struct {
	const char	*of;
	const char	*tensor;
	enum damage	damage;
	int		ret;
	const char	*words;
} damages[] = {
	{ "gptq-128", L0 "mlp.up_proj.scales", LEFT_OUT, -EINVAL,
	  "up_proj.qweight: its \"scales\" is missing: copy the whole" },
	{ "gptq-128", L0 "mlp.up_proj.qzeros", LEFT_OUT, -EINVAL,
	  "its \"qzeros\" is missing" },
	{ "gptq-128", L0 "mlp.up_proj.qweight", LEFT_OUT, -EINVAL,
	  "up_proj.weight is missing" },
	{ "gptq-32-act", L0 "mlp.down_proj.scales", TURNED, -EINVAL,
	  "down_proj.scales: shape is [128, 8], its matrix and quantization_config "
	  "ask for [8, 128]: copy" },
	{ "gptq-32-act", L0 "mlp.down_proj.qzeros", TURNED, -EINVAL,
	  "shape is [16, 8]" },
	{ "gptq-32-act", L0 "mlp.down_proj.qzeros", OTHER_TYPE, -EOPNOTSUPP,
	  "dtype F32 is not supported here" },
	{ "gptq-32-act", L0 "mlp.down_proj.scales", OTHER_TYPE, -EOPNOTSUPP,
	  "dtype I16 is not supported here" },
	{ "gptq-32-act", L0 "mlp.down_proj.qweight", OTHER_TYPE, -EOPNOTSUPP,
	  "down_proj.qweight: dtype F32 is not" },
	{ "gptq-32-act", L0 "mlp.down_proj.qweight", FLAT, -EINVAL,
	  "down_proj.qweight: it is no matrix" },
	{ "gptq-32-act", L0 "mlp.down_proj.qweight", EMPTY, -EINVAL,
	  "the matrix is empty or too large" },
	{ "gptq-32-act", L0 "mlp.down_proj.qweight", TURNED, -EINVAL, "shape is" },
	{ "gptq-32-act", L0 "mlp.down_proj.g_idx", BAD_GROUP, -EINVAL,
	  "g_idx: column 3 is in group 32767, there are 8: copy" },
	{ "gptq-32-act", L0 "mlp.down_proj.g_idx", NO_GROUP, -EINVAL,
	  "g_idx: column 3 is in group -1, there are 8: copy" },
	{ "gptq-32-act", L0 "mlp.down_proj.g_idx", LEFT_OUT, -EINVAL,
	  "down_proj.qweight: its \"g_idx\" is missing" },
	{ "gptq-32-act", L0 "mlp.down_proj.g_idx", EMPTY, -EINVAL,
	  "it has not one group for each column" },
	{ "gptq-32-act", L0 "mlp.down_proj.qweight", RENAMED, -EINVAL,
	  "lm_head.qweight: its \"scales\" is missing" },
	{ "awq", L0 "self_attn.q_proj.qweight", TURNED, -EINVAL,
	  "its columns are no multiple of the group size" },
	{ "packed-32", L0 "mlp.up_proj.weight_scale", LEFT_OUT, -EINVAL,
	  "weight_packed: its \"weight_scale\" is missing" },
	{ "packed-32", L0 "mlp.up_proj.weight_shape", LEFT_OUT, -EINVAL,
	  "its \"weight_shape\" is missing" },
	{ "packed-32", L0 "mlp.up_proj.weight_shape", BAD_SHAPE, -EINVAL,
	  "weight_shape: it is not that of the elements" },
	{ "packed-32", L0 "mlp.up_proj.weight_shape", OTHER_TYPE, -EINVAL,
	  "weight_shape: it is no shape" },
	{ "packed-128-zeros", L0 "mlp.up_proj.weight_zero_point", LEFT_OUT, -EINVAL,
	  "its \"weight_zero_point\" is missing" },
	{ "packed-128-zeros", L0 "mlp.up_proj.weight_zero_point", TURNED, -EINVAL,
	  "weight_zero_point: shape is [1, 32]" },
	{ "packed-64-act", L0 "mlp.down_proj.weight_g_idx", BAD_GROUP, -EINVAL,
	  "column 3 is in group 32767, there are 4" },
	{ "int8", L0 "mlp.up_proj.weight_scale", LEFT_OUT, -EINVAL,
	  "up_proj.weight: its \"weight_scale\" is missing" },
	{ "int8", L0 "mlp.up_proj.weight_scale", TURNED, -EINVAL,
	  "shape is [1, 256]" },
	{ "fp8", L0 "mlp.up_proj.weight_scale_inv", LEFT_OUT, -EINVAL,
	  "its \"weight_scale\" is missing" },
	{ "fp8", L0 "mlp.down_proj.weight_scale_inv", TURNED, -EINVAL,
	  "shape is [2, 1]" },
	{ "fp8", L0 "mlp.up_proj.weight", FLAT, -EINVAL, "it is no matrix" },
	{ "fbgemm", L0 "mlp.up_proj.weight_scale", TURNED, -EINVAL,
	  "shape is [1, 256]" },
	{ "mxfp4", L0 "mlp.experts.down_proj_scales", LEFT_OUT, -EINVAL,
	  "down_proj_blocks: its \"scales\" is missing" },
	{ "mxfp4", L0 "mlp.experts.down_proj_scales", TURNED, -EINVAL,
	  "it is not bytes of [experts, rows, groups, 16]" },
	{ "mxfp4", L0 "mlp.experts.gate_up_proj_blocks", FLAT, -EINVAL,
	  "it is not bytes of" },
};

static void damage(struct line *l, enum damage how)
{
	const u64 first = l->shape[0];
	const s32 group = how == NO_GROUP ? -1 : 32767;
	const s64 none[2] = { -1, -1 };

	switch (how) {
	case LEFT_OUT:
		free(l->bytes);
		l->bytes = NULL;
		break;
	case TURNED:
		l->shape[0] = l->shape[1];
		l->shape[1] = first;
		break;
	case FLAT:
		l->shape[0] = l->nr;
		l->nr_dims = 1;
		break;
	case EMPTY:
		l->shape[0] = l->nr = 0;
		break;
	case OTHER_TYPE:
		strcpy(l->dtype, l->size == 2 ? "I16" : l->size == 8 ? "F64" : "F32");
		break;
	case BAD_GROUP:
	case NO_GROUP:
		memcpy(l->bytes + 12, &group, sizeof(group));
		break;
	case BAD_SHAPE:
		memcpy(l->bytes, none, sizeof(none));
		break;
	case RENAMED:
		strcpy(l->name, "lm_head.qweight");
		break;
	}
}

START_TEST(test_damaged)
{
	quantized_read(damages[_i].of);
	damage(line_find(damages[_i].tensor), damages[_i].damage);
	quantized_write();
	config_write(NULL, NULL);
	assert_refused(damages[_i].ret, damages[_i].words);
}
END_TEST

#define CT(format, group)	"{\"quant_method\":\"compressed-tensors\",\"format\":\"" \
				format "\",\"config_groups\":{\"g\":" group "}}"

/* Two groups, so that names are matched; of the first one, a pattern. */
#define GROUP4(target)	"{\"targets\":[" target "],\"weights\":{\"num_bits\":4," \
			"\"group_size\":32}}"
#define TARGET(pattern)	"{\"quant_method\":\"compressed-tensors\",\"format\":" \
			"\"pack-quantized\",\"config_groups\":{\"a\":" \
			GROUP4("\"re:" pattern "\"") ",\"b\":" GROUP4("") "}}"

static const struct {
	const char	*of;
	const char	*config;
	int		ret;
	const char	*words;
} bad[] = {
	{ "awq", "[]", -EINVAL, "quantization_config: is no object" },
	{ "awq", "{}", -EOPNOTSUPP, "quant_method is missing: use a model in AWQ" },
	{ "awq", "{\"quant_method\":1}", -EINVAL, "quant_method: is no string" },
	{ "awq", "{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}",
	  -EOPNOTSUPP, "quant_method \"bitsandbytes\" is not supported: use a model "
	  "in AWQ, GPTQ, compressed-tensors, fp8 or mxfp4, or one without "
	  "quantization and --quantization" },
	{ "awq", "{\"quant_method\":\"hqq\"}", -EOPNOTSUPP, "\"hqq\" is not" },
	{ "awq", "{\"quant_method\":\"quanto\"}", -EOPNOTSUPP, "\"quanto\" is not" },
	{ "awq", "{\"quant_method\":\"aqlm\"}", -EOPNOTSUPP, "\"aqlm\" is not" },
	{ "awq", "{\"quant_method\":\"exl2\"}", -EOPNOTSUPP, "\"exl2\" is not" },
	{ "awq", "{\"quant_method\":\"awq\",\"version\":\"gemv\"}", -EOPNOTSUPP,
	  "version \"gemv\" is not" },
	{ "awq", "{\"quant_method\":\"awq\",\"bits\":8}", -EOPNOTSUPP,
	  "weights of 8 bits are not" },
	{ "awq", "{\"quant_method\":\"awq\",\"group_size\":0}", -EINVAL,
	  "group_size: 0 is outside" },
	{ "awq", "{\"quant_method\":\"awq\",\"group_size\":4294967296}", -EINVAL,
	  "group_size: 4294967296 is outside" },
	{ "awq", "{\"quant_method\":\"awq\",\"group_size\":1048576}", -EINVAL,
	  "its columns are no multiple of the group size" },
	{ "awq", "{\"quant_method\":\"awq\",\"group_size\":128}", -EINVAL,
	  "scales: shape is" },
	{ "awq", "{\"quant_method\":\"awq\",\"group_size\":16}", -EOPNOTSUPP,
	  "group_size 16 is not supported: use a model with a multiple of 32" },
	{ "gptq-128", "{\"quant_method\":\"gptq\",\"bits\":2}", -EOPNOTSUPP,
	  "weights of 2 bits are not" },
	{ "gptq-128", "{\"quant_method\":\"gptq\",\"bits\":3}", -EOPNOTSUPP,
	  "weights of 3 bits are not" },
	{ "gptq-128", "{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":"
	  "\"marlin\"}", -EOPNOTSUPP, "checkpoint_format \"marlin\" is not" },
	{ "gptq-128", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,"
	  "\"dynamic\":{\"+:.*down\":{\"bits\":8}}}", -EOPNOTSUPP,
	  "dynamic \"+:.*down\" is not" },
	{ "gptq-128", "{\"quant_method\":\"auto-round\",\"packing_format\":"
	  "\"auto_round:exllamav2\"}", -EOPNOTSUPP, "packing_format \"auto" },
	{ "fp8", "{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}", -EOPNOTSUPP,
	  "fmt \"e5m2\" is not" },
	{ "fp8", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}", -EINVAL,
	  "weight_block_size is not two sizes" },
	{ "fp8", "{\"quant_method\":\"fp8\",\"weight_block_size\":[1,0]}", -EINVAL,
	  "weight_block_size is not two sizes" },
	{ "fp8", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,48]}",
	  -EOPNOTSUPP, "weight_block_size with 48 columns is not" },
	{ "packed-32", CT("nvfp4-pack-quantized", "{\"weights\":{}}"), -EOPNOTSUPP,
	  "format \"nvfp4-pack-quantized\" is not" },
	{ "packed-32", CT("pack-quantized", "[]"), -EINVAL,
	  "a group of config_groups is no object" },
	{ "packed-32", CT("pack-quantized", "{\"weights\":{\"num_bits\":3}}"),
	  -EOPNOTSUPP, "weights of 3 bits are not" },
	{ "packed-32", CT("pack-quantized", "{\"weights\":{\"num_bits\":4,"
	  "\"type\":\"float\",\"group_size\":32}}"), -EOPNOTSUPP,
	  "weights of 4 bits are not" },
	{ "packed-32", CT("pack-quantized", "{\"weights\":{\"num_bits\":4,"
	  "\"strategy\":\"token\"}}"), -EOPNOTSUPP, "strategy \"token\" is not" },
	{ "packed-32", CT("pack-quantized", "{\"weights\":{\"num_bits\":4},"
	  "\"targets\":1}"), -EINVAL, "targets is no list" },
	{ "packed-32", "{\"quant_method\":\"compressed-tensors\",\"format\":"
	  "\"pack-quantized\",\"sparsity_config\":{\"format\":\"sparse-24\"}}",
	  -EOPNOTSUPP, "sparsity_config \"sparse-24\" is not" },
	{ "packed-32", TARGET("(?!x).*"), -EOPNOTSUPP, "target \"(?!x).*\" is not" },
	/* regcomp() would take hours. */
	{ "packed-32", TARGET("a+*+*+*+*+*+*+*+*+*+*+*"), -EOPNOTSUPP, "is not" },
	{ "packed-32", TARGET("((.*)?(.*)?(.*)?(.*)?(.*)?)*((.*)?(.*)?(.*)?)*"),
	  -EOPNOTSUPP, "is not" },
	{ "packed-32", TARGET("(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*"
	  "(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*(|a)*"),
	  -EOPNOTSUPP, "is not" },
	/* No method that fits the tensors: they are left. */
	{ "awq", "null", -EINVAL, "q_proj.weight is missing" },
	{ "mxfp4", "null", -EINVAL, "gate_up_proj is missing" },
};

START_TEST(test_refused)
{
	quantized_read(bad[_i].of);
	quantized_write();
	config_write("quantization_config", json_loads(bad[_i].config,
						       JSON_DECODE_ANY, NULL));
	assert_refused(bad[_i].ret, bad[_i].words);
}
END_TEST

/* ---- quantizing while loading ---- */

static const struct {
	const char		*of;
	enum model_quantization	to;
	double			within;
} makes[] = {
	{ "llama", MODEL_QUANT_Q8_0, 0.03 }, { "llama", MODEL_QUANT_FP8, 0.1 },
	{ "llama", MODEL_QUANT_INT8, 0.03 }, { "llama", MODEL_QUANT_Q4_K, 0.03 },
	{ "phi3", MODEL_QUANT_Q8_0, 0.03 }, { "gpt2", MODEL_QUANT_Q8_0, 0.03 },
	{ "gpt-oss", MODEL_QUANT_Q8_0, 0.03 }, { "qwen2", MODEL_QUANT_INT8, 0.03 },
	{ "qwen3-moe", MODEL_QUANT_Q8_0, 0.03 }, { "neox", MODEL_QUANT_FP8, 0.1 },
	{ "deepseek2", MODEL_QUANT_Q8_0, 0.03 },
	{ "granite", MODEL_QUANT_INT8, 0.03 },
	{ "mixtral", MODEL_QUANT_INT8, 0.03 }, { "olmoe", MODEL_QUANT_FP8, 0.1 },
	{ "qwen2-moe", MODEL_QUANT_Q8_0, 0.03 }, { "deepseek2-moe", MODEL_QUANT_Q4_K, 0.03 },
};

/* The difference of the first rows, of which most choose the same experts. */
static double rows_apart(const float *a, const float *b)
{
	double diff = 0, size = 0;
	u32 i;

	for (i = 0; i < NR_PROMPT * VOCAB; i++) {
		diff += (double)(a[i] - b[i]) * (a[i] - b[i]);
		size += (double)b[i] * b[i];
	}
	return sqrt(diff / size);
}

/* Two folders that differ in one code, and two ways to load one, are two models. */
static void fold(void *arg, const char *tag, const void *data, size_t len)
{
	const u8 *p = data;
	u64 *h = arg;
	size_t i;

	for (i = 0; i < len; i++)
		*h = (*h ^ p[i]) * 0x100000001b3ull;
	*h = (*h ^ len) * 0x100000001b3ull;
}

static u64 identity(enum model_quantization to)
{
	struct model *model = load_with(NULL, to, 1);
	u64 h = 1;

	model_identity(model, fold, &h);
	model_free(model);
	return h;
}

START_TEST(test_identity)
{
	struct model_config cfg;
	struct ckpt *c;
	u64 h;

	quantized_read("gptq-32-act");
	quantized_write();
	config_write(NULL, NULL);
	h = identity(MODEL_QUANT_NONE);
	ck_assert_uint_eq(identity(MODEL_QUANT_NONE), h);
	line_find(L0 "mlp.down_proj.scales")->bytes[0] ^= 1;
	quantized_write();
	ck_assert_uint_ne(identity(MODEL_QUANT_NONE), h);
	golden_read("llama");
	config_write(NULL, NULL);
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err), 0);
	shards_write(c, 1, TINY_BF16);
	ckpt_close(c);
	h = identity(MODEL_QUANT_NONE);
	ck_assert_uint_ne(identity(MODEL_QUANT_Q8_0), h);
	ck_assert_uint_ne(identity(MODEL_QUANT_Q8_0), identity(MODEL_QUANT_INT8));
}
END_TEST

START_TEST(test_made)
{
	struct model_config cfg;
	struct model *model;
	float *plain, *made;
	double off;
	struct ckpt *c;

	golden_read(makes[_i].of);
	config_write_half();
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err), 0);
	shards_write(c, 1, TINY_BF16);
	ckpt_close(c);
	model = load_with(NULL, MODEL_QUANT_NONE, 1);
	plain = run_chunks(model, NR_ALL);
	ck_assert_uint_eq(model_info(model)->made_bytes, 0);
	model_free(model);
	model = load_with(NULL, makes[_i].to, 2);
	made = run_chunks(model, NR_ALL);
	ck_assert_uint_gt(model_info(model)->made_bytes, 10000);
	ck_assert_uint_lt(model_info(model)->made_bytes,
			  model_info(model)->made_of * 6 / 10);
	off = rows_apart(made, plain);
	if (getenv("KVMM_SHOW"))
		printf("%s to %u: logits within %.1e\n", makes[_i].of, makes[_i].to,
		       off);
	ck_assert_msg(off > 0 && off < makes[_i].within, "%s to %u: off by %g",
		      makes[_i].of, makes[_i].to, off);
	model_free(model);
	free(made);
	free(plain);
}
END_TEST

/* A number that no type of blocks holds is refused. */
START_TEST(test_made_of_nan)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY, 65536.0f };
	struct model_opts opts = {
		.nr_threads = 2, .quantization = MODEL_QUANT_Q8_0 + _i % 4,
	};
	struct model_config cfg;
	struct model *model;
	const char *name = "model.layers.1.mlp.up_proj.weight";
	struct ckpt *c;

	golden_read("llama");
	config_write(NULL, NULL);
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err), 0);
	((float *)ckpt_take(c, name)->data)[1234] = odd[_i / 4];
	shards_write(c, 1, TINY_F32);
	ckpt_close(c);
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), -EINVAL);
	ck_assert_msg(strstr(err.text, name) &&
		      strstr(err.text, ": has NaN, infinity or a number above 65504: leave "),
		      "%s", err.text);
}
END_TEST

/* An output matrix of its own has one name, whichever prefix the other tensors have. */
START_TEST(test_made_untied)
{
	struct model_config cfg;
	struct model *model;
	struct ckpt *c;

	golden_read("gpt2");
	config_write("tie_word_embeddings", json_false());
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err), 0);
	shards_write(c, 1, TINY_BF16);
	ckpt_close(c);
	model = load_with(NULL, MODEL_QUANT_Q8_0, 1);
	ck_assert_uint_gt(model_info(model)->made_bytes, 10000);
	model_free(model);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("model_quantized");
	TCase *tc = tcase_create("folders");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_golden, 0, ARRAY_SIZE(formats));
	tcase_add_loop_test(tc, test_judged, 0, ARRAY_SIZE(formats));
	tcase_add_loop_test(tc, test_damaged, 0, ARRAY_SIZE(damages));
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_SIZE(bad));
	tcase_add_loop_test(tc, test_made, 0, ARRAY_SIZE(makes));
	tcase_add_test(tc, test_identity);
	tcase_add_test(tc, test_made_untied);
	tcase_add_loop_test(tc, test_made_of_nan, 0, 16);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
