// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_moe_blocks.c - experts in blocks: GGUF files and quantized folders
 *
 * Small models of the families with experts, as GGUF files.  Their experts are random
 * blocks of one type.  In exact mode the logits have the bits of the same file with the
 * numbers of these blocks in F32.  In fast mode they are within a tolerance of these bits,
 * except in a few rows that are nearly indifferent between two experts.  The same holds for
 * folders with experts in 8 bits.
 */
#include "tests/level.h"
#include "tests/unit/block_draw.h"
#include "tests/unit/gguf_fixture.h"
#include "tests/unit/quantized_fixture.h"

#define NR_ROWS		32u

/*
 * Fast mode rounds activations to 8 bits for products with blocks: so far from exact mode,
 * as a share of the largest logit of the row.
 */
#define FAST_TOL	8e-2
#define MAY_JUMP	(NR_ROWS / 8)

/* A family, and the key of the width of its experts. */
static const struct {
	const char	*name;
	const char	*width;
} families[] = {
	{ "mixtral", "intermediate_size" }, { "olmoe", "intermediate_size" },
	{ "qwen2-moe", "moe_intermediate_size" },
	{ "qwen3-moe", "moe_intermediate_size" },
	{ "deepseek2-moe", "moe_intermediate_size" },
	{ "gpt-oss", "intermediate_size" },
};

static const enum kern_dtype types[] = {
#define x(name, text, elems, bytes, gguf) gguf == KERN_NO_GGUF ? NR_KERN_DTYPES : KERN_##name,
	KERN_BLOCK_TYPES(x)
#undef x
};

static const u32 numbers[] = {
#define x(name, text, elems, bytes, gguf) gguf,
	KERN_BLOCK_TYPES(x)
#undef x
};

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

/* The made-up weights of a family with rows of whole blocks of every type. */
static struct gw *make(u32 family)
{
	struct model_config cfg;
	struct model_error err;
	struct ckpt *c;
	struct gw *w;

	golden_read(families[family].name);
	config_write("hidden_size", json_integer(256));
	config_add(families[family].width, json_integer(256));
	config_add("initializer_range", json_real(0.05));
	ck_assert_msg(!model_config_read(fixture_dir, &cfg, &err), "%s", err.text);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err), 0);
	w = gw_make(c);
	ckpt_close(c);
	return w;
}

/* Halve the scales of a block; false: they are as small as they get. */
static bool block_halve(enum kern_dtype type, u8 *b)
{
	u16 h;
	u32 i;

	if (type == KERN_MXFP4) {
		b[0]--;
		return true;
	}
	for (i = 0; i < 2 && block_scales[type].f16[i] >= 0; i++) {
		memcpy(&h, b + block_scales[type].f16[i], sizeof(h));
		if ((h & 0x7c00) <= 0x0400)
			return false;
		h -= 0x0400;
		memcpy(b + block_scales[type].f16[i], &h, sizeof(h));
	}
	return true;
}

/* A random block with numbers as large as those of a trained matrix. */
static void block_make(enum kern_dtype type, u8 *b)
{
	float v[KERN_BLOCK_MAX_ELEMS];
	double sum;
	u32 i;

	block_draw(type, b);
	do {
		kern_dequant(type, b, kern_block_elems(type), v);
		for (i = 0, sum = 0; i < kern_block_elems(type); i++)
			sum += (double)v[i] * v[i];
	} while (sum > 0.01 * kern_block_elems(type) && block_halve(type, b));
}

/* Draw blocks for a matrix, and make its numbers those of the blocks. */
static void draw_blocks(struct gw_tensor *t, u32 type)
{
	const u32 elems = kern_block_elems(types[type]);
	u64 i;

	ck_assert_uint_eq(t->dims[0] % elems, 0);
	t->kind = numbers[type];
	t->bytes = t->nr / elems * kern_block_bytes(types[type]);
	t->blocks = malloc(t->bytes);
	ck_assert_ptr_nonnull(t->blocks);
	for (i = 0; i < t->nr / elems; i++)
		block_make(types[type], (u8 *)t->blocks +
			   i * kern_block_bytes(types[type]));
	kern_dequant(types[type], t->blocks, t->nr, t->v);
}

/* The experts of all layers become blocks; returns how many matrices there are. */
static u32 draw_experts(struct gw *w, u32 type)
{
	u32 i, nr = 0;

	draw_state = type + 1;
	for (i = 0; i < w->nr; i++) {
		if (!strstr(w->t[i].name, "_exps.weight"))
			continue;
		draw_blocks(&w->t[i], type);
		nr++;
	}
	return nr;
}

static void forget_blocks(struct gw *w)
{
	u32 i;

	for (i = 0; i < w->nr; i++) {
		free(w->t[i].blocks);
		w->t[i].blocks = NULL;
	}
}

static u64 made_bytes;		/* quantized matrices of the last folder */

/* The logits of the first rows of the case; "": from the folder. */
static float *run(const char *file, enum model_mode mode)
{
	float *logits = calloc(NR_ROWS, VOCAB * sizeof(*logits));
	struct model_seq_in in = {
		.tokens = golden.tokens, .nr_tokens = NR_ROWS,
		.want_logits = NR_ROWS,
	};
	const struct model_opts opts = {
		.dtype = MODEL_F32, .mode = mode, .nr_threads = 1,
	};
	struct model_error err;
	struct model *model;
	struct pool pool;
	char path[320];

	snprintf(path, sizeof(path), "%s/%s", fixture_dir, file);
	ck_assert_msg(!model_load(path, &opts, &model, &err), "%s", err.text);
	pool_create(&pool, model_info(model), 4, 16, false, 3);
	pool_tables(&pool, NR_ROWS, &in);
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), 0);
	pool_destroy(&pool);
	made_bytes = model_info(model)->made_bytes;
	model_free(model);
	return logits;
}

/* The largest difference in a row, as a share of the row's largest logit. */
static double row_off(const float *a, const float *b)
{
	double off = 0, size = 0;
	u32 j;

	for (j = 0; j < VOCAB; j++) {
		off = fabs((double)a[j] - b[j]) <= off ? off : fabs((double)a[j] - b[j]);
		size = fmax(size, fabs(b[j]));
	}
	return off / size;
}

static void assert_fast(const float *fast, const float *want, const char *type)
{
	u32 i, jumps = 0;
	double worst = 0, off;

	for (i = 0; i < NR_ROWS; i++) {
		off = row_off(fast + i * VOCAB, want + i * VOCAB);
		if (!(off < FAST_TOL))
			jumps++;
		else
			worst = fmax(worst, off);
	}
	if (getenv("KVMM_SHOW"))
		printf("%s %s: fast mode within %.4f, %u of %u rows jump\n",
		       case_dir, type, worst, jumps, NR_ROWS);
	ck_assert_msg(jumps <= MAY_JUMP, "%s, %s: %u of %u rows are off by more than %g",
		      case_dir, type, jumps, NR_ROWS, FAST_TOL);
}

static void check_type(u32 family, u32 type)
{
	const char *name = kern_dtype_name(types[type]);
	float *blocks, *fast, *want;
	struct gw *w = make(family);

	ck_assert_uint_ge(draw_experts(w, type), 3);
	gw_file(w, "q.gguf", 0, 1, 0);
	forget_blocks(w);
	gw_file(w, "m.gguf", 0, 1, 0);
	gw_free(w);
	blocks = run("q.gguf", MODEL_EXACT);
	want = run("m.gguf", MODEL_EXACT);
	ck_assert_msg(!memcmp(blocks, want, NR_ROWS * VOCAB * sizeof(*want)),
		      "%s, %s: other bits than in F32", case_dir, name);
	fast = run("q.gguf", MODEL_FAST);
	assert_fast(fast, want, name);
	free(blocks);
	free(want);
	free(fast);
}

/* Each type in one family at least. */
START_TEST(test_types)
{
	u32 family;

	if (types[_i] == NR_KERN_DTYPES)
		return;
	for (family = 0; family < ARRAY_SIZE(families); family++)
		if (!level_is_check() || family == _i % ARRAY_SIZE(families))
			check_type(family, _i);
}
END_TEST

/* ---- folders ---- */

/* Experts in 8 bits with a scale for each row, and no other matrix. */
static const char only_experts[] =
	"{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\","
	"\"ignore\":[],\"config_groups\":{\"group_0\":{"
	"\"targets\":[\"re:.*[.]experts[.].*\"],\"weights\":{\"num_bits\":8,"
	"\"type\":\"int\",\"symmetric\":true,\"strategy\":\"channel\"}}}}";

static void folder_config(u32 family)
{
	config_write(families[family].width, json_integer(96));
	config_add("torch_dtype", json_string("float32"));
}

/* A tensor of the folder, with memory for its bytes. */
static void *line_add(const char *name, const char *end, const char *dtype,
		      const struct st_tensor *like)
{
	struct line *l = &lines[nr_lines++];
	u32 i;

	ck_assert_uint_le(nr_lines, MAX_TENSORS);
	memset(l, 0, sizeof(*l));
	snprintf(l->name, sizeof(l->name), "%s%s", name, end);
	snprintf(l->dtype, sizeof(l->dtype), "%s", dtype);
	l->size = type_size(dtype);
	l->nr_dims = like->nr_dims;
	for (i = 0, l->nr = 1; i < like->nr_dims; i++) {
		l->shape[i] = i && *end ? 1 : like->shape[i];
		l->nr *= l->shape[i];
	}
	l->bytes = calloc(l->nr, l->size);
	ck_assert_ptr_nonnull(l->bytes);
	return l->bytes;
}

/* Bytes and scales of a matrix.  Its numbers become theirs. */
static void quantize(const struct st_tensor *t)
{
	float *scales = line_add(t->name, "_scale", "F32", t);
	s8 *codes = line_add(t->name, "", "I8", t);
	const u64 cols = t->shape[1];
	float *v = (float *)(uintptr_t)t->data, most;
	u64 r, i;

	for (r = 0; r < t->shape[0]; r++, v += cols, codes += cols) {
		for (i = 0, most = 0; i < cols; i++)
			most = fmaxf(most, fabsf(v[i]));
		scales[r] = most / 127;
		for (i = 0; i < cols; i++) {
			codes[i] = (s8)lrintf(v[i] / scales[r]);
			v[i] = (float)codes[i] * scales[r];
		}
	}
}

/* Quantize the experts of a checkpoint into lines; returns how many matrices. */
static u32 quantize_experts(const struct ckpt *c)
{
	u32 i, nr = 0;

	for (i = 0; i < c->nr_tensors; i++) {
		const struct st_tensor *t = c->tensors[i];

		if (strstr(t->name, ".experts.")) {
			quantize(t);
			nr++;
		} else {
			memcpy(line_add(t->name, "", "F32", t), t->data,
			       t->nr_elems * sizeof(float));
		}
	}
	return nr;
}

/* gpt-oss has other folders: check_model_quantized.c. */
#define NR_FOLDERS	(ARRAY_SIZE(families) - 1)

START_TEST(test_folders)
{
	float *bytes, *fast, *want;
	struct model_config cfg;
	struct model_error err;
	struct ckpt *c;

	golden_read(families[_i].name);
	folder_config(_i);
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err), 0);
	ck_assert_uint_ge(quantize_experts(c), 2 * 8 * 3);
	shards_write(c, 1, TINY_F32);
	ckpt_close(c);
	want = run("", MODEL_EXACT);
	config_add("quantization_config", json_loads(only_experts, 0, NULL));
	quantized_write();
	lines_free();
	bytes = run("", MODEL_EXACT);
	ck_assert_msg(!memcmp(bytes, want, NR_ROWS * VOCAB * sizeof(*want)),
		      "%s: other bits than in F32", case_dir);
	ck_assert_uint_gt(made_bytes, 2 * 8 * 3 * 64 * 96);
	fast = run("", MODEL_FAST);
	assert_fast(fast, want, "int8");
	free(bytes);
	free(want);
	free(fast);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("model_moe_blocks");
	TCase *tc = tcase_create("types");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_types, 0, ARRAY_SIZE(types));
	tcase_add_loop_test(tc, test_folders, 0, NR_FOLDERS);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
