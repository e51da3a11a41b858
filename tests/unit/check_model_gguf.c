// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_gguf.c - models in GGUF files against the same models in folders
 *
 * The cases of tests/data/families are written as GGUF files in the way of the
 * conversion scripts of llama.cpp (gguf_fixture.h).  In exact mode the logits of a file
 * in F32 must be those of the folder, to the bit, and those of a file in blocks must be
 * those of a file in F32 with the numbers that the blocks say.
 */
#include <sys/resource.h>

#include "tests/unit/gguf_fixture.h"

/* Bits are equal, or the file has numbers that were rounded on the way. */
static const struct {
	const char	*name;
	double		most;
} gguf_cases[] = {
	{ "llama", 0 }, { "llama-linear", 0 }, { "llama-llama3", 1e-5 },
	{ "llama-head24", 0 },
	{ "llama-yarn", 0 }, { "mistral", 0 }, { "qwen2", 0 }, { "qwen3", 0 },
	{ "qwen3-moe", 0 }, { "qwen3-moe-all", 0 }, { "phi3", 0 },
	{ "qwen2-moe", 0 }, { "mixtral", 0 }, { "olmoe", 0 },
	{ "phi3-long", 0 }, { "phi3-short", 1e-6 },
	{ "deepseek2", 0 }, { "deepseek2-moe", 0 },
	{ "deepseek2-groups-moe", 0 }, { "gemma2", 0 }, { "gemma3", 0 },
	{ "gpt2", 0 }, { "neox", 0 }, { "neox-sequential", 0 },
	{ "gpt-oss", 0 }, { "granite", 1e-5 }, { "granite-rope", 1e-5 },
	{ "granite3", 0 }, { "olmo2", 0 }, { "cohere", 0 },
	{ "cohere-qk-norm", 0 }, { "cohere2", 0 }, { "gemma1", 0 },
	{ "phi", 0 }, { "starcoder2", 0 }, { "stablelm", 0 },
	{ "stablelm-qk-norm", 0 }, { "smollm3", 0 },
};

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

static struct model *load_as(const char *file, bool dummy, enum model_mode mode)
{
	struct model_opts opts = {
		.dtype = MODEL_F32, .dummy = dummy, .nr_threads = 1,
		.mode = mode,
	};
	struct model_error err;
	struct model *model = NULL;
	char path[320];

	snprintf(path, sizeof(path), "%s%s%s", fixture_dir, file ? "/" : "",
		 file ? file : "");
	ck_assert_msg(!model_load(path, &opts, &model, &err), "%s", err.text);
	return model;
}

static struct model *load_at(const char *file, bool dummy)
{
	return load_as(file, dummy, MODEL_EXACT);
}

static float *logits_at(const char *file, bool dummy)
{
	struct model *model = load_at(file, dummy);
	float *logits = run_chunks(model, 50);

	model_free(model);
	return logits;
}

/* Made-up weights of the case, in f32. */
static struct ckpt *dummy_weights(void)
{
	struct model_config cfg;
	struct model_error err;
	struct ckpt *c = NULL;

	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err),
			 0);
	return c;
}

static void assert_same(const float *a, const float *b, double most)
{
	double worst = 0, size = 0;
	u32 i;

	if (!most) {
		ck_assert_msg(!memcmp(a, b, NR_ALL * VOCAB * sizeof(*a)),
			      "%s: other bits", case_dir);
		return;
	}
	for (i = 0; i < NR_ALL * VOCAB; i++) {
		worst = fmax(worst, fabs((double)a[i] - b[i]));
		size = fmax(size, fabs(a[i]));
	}
	ck_assert_msg(worst < most * size, "%s: off by %g", case_dir, worst);
}

/* Write config.json.  A GGUF file does not say that each fourth layer is not rotated. */
static void case_write(const char *name)
{
	if (!strcmp(name, "smollm3"))
		config_write("no_rope_layers", json_pack("[iiii]", 1, 1, 1, 0));
	else
		config_write(NULL, NULL);
}

START_TEST(test_same_as_folder)
{
	struct ckpt *c;
	struct gw *w;
	float *folder, *file;

	golden_read(gguf_cases[_i].name);
	case_write(gguf_cases[_i].name);
	c = dummy_weights();
	w = gw_make(c);
	gw_file(w, "m.gguf", 0, 1, 0);
	folder = logits_at(NULL, true);
	file = logits_at("m.gguf", false);
	assert_same(folder, file, gguf_cases[_i].most);
	free(file);
	/*
	 * In three parts, and the matrices in types of half the size.  Granite's gate
	 * and up must have one type.
	 */
	gw_file(w, "m-00001-of-00003.gguf", 0, 3, 30);
	gw_file(w, "m-00002-of-00003.gguf", 1, 3,
		strcmp(w->arch, "granitehybrid") ? 1 : 30);
	gw_file(w, "m-00003-of-00003.gguf", 2, 3, 30);
	file = logits_at("m-00002-of-00003.gguf", false);
	assert_same(folder, file, gguf_cases[_i].most);
	free(file);
	free(folder);
	gw_free(w);
	ckpt_close(c);
}
END_TEST

static void assert_refused(const char *file, int ret, const char *words)
{
	struct model_opts opts = { .nr_threads = 1 };
	struct model *model = NULL;
	struct model_error err;
	char path[320];

	snprintf(path, sizeof(path), "%s/%s", fixture_dir, file);
	ck_assert_int_eq(model_load(path, &opts, &model, &err), ret);
	ck_assert_msg(strstr(err.text, words), "%s", err.text);
}

/* Two tensors of different types cannot be one. */
START_TEST(test_refuses_joined)
{
	struct ckpt *c;
	struct gw *w;

	golden_read("granite");
	config_write(NULL, NULL);
	c = dummy_weights();
	w = gw_make(c);
	gw_file(w, "m-00001-of-00002.gguf", 0, 2, 30);
	gw_file(w, "m-00002-of-00002.gguf", 1, 2, 1);
	assert_refused("m-00001-of-00002.gguf", -EINVAL,
		       "ffn_up.weight: has no tensor of its type");
	gw_free(w);
	ckpt_close(c);
}
END_TEST

/* Blocks give the bits of their numbers in F32. */
START_TEST(test_blocks)
{
	struct ckpt *c;
	struct gw *w;
	float *blocks, *numbers;

	golden_read(gguf_cases[_i].name);
	case_write(gguf_cases[_i].name);
	c = dummy_weights();
	w = gw_make(c);
	gw_file(w, "q.gguf", 0, 1, 8);
	gw_file(w, "m.gguf", 0, 1, 0);
	blocks = logits_at("q.gguf", false);
	numbers = logits_at("m.gguf", false);
	assert_same(numbers, blocks, 0);
	free(blocks);
	free(numbers);
	gw_free(w);
	ckpt_close(c);
}
END_TEST

/* Rows of q and k are sorted copies.  The embedding is used as mapped, packed or not. */
START_TEST(test_memory)
{
	const struct model_info *i;
	struct model *model;
	struct ckpt *c;
	struct gw *w;
	u64 embed, copied;

	golden_read("llama");
	case_write("llama");
	c = dummy_weights();
	w = gw_make(c);
	gw_file(w, "q.gguf", 0, 1, 8);
	model = load_as("q.gguf", false, MODEL_EXACT);
	i = model_info(model);
	embed = (u64)VOCAB * i->hidden * 34 / 32;
	copied = i->copy_bytes;
	ck_assert_uint_gt(copied, 0);
	ck_assert_uint_ge(i->mapped_bytes, 2 * embed);
	model_free(model);
	model = load_as("q.gguf", false, MODEL_FAST);
	i = model_info(model);
	ck_assert_uint_eq(i->copy_bytes, copied);
	if (i->packed_bytes)
		ck_assert_uint_eq(i->mapped_bytes, embed);
	model_free(model);
	gw_free(w);
	ckpt_close(c);
}
END_TEST

/*
 * Fast mode packs blocks, but not the matrices of latent attention, which are used a head
 * at a time.  A wrong head changes logits by their whole size.
 */
START_TEST(test_blocks_fast)
{
	double off = 0, size = 0;
	float *packed, *numbers;
	struct model *model;
	struct ckpt *c;
	struct gw *w;
	u32 i;

	golden_read("deepseek2-moe");
	config_write(NULL, NULL);
	c = dummy_weights();
	w = gw_make(c);
	gw_file(w, "q.gguf", 0, 1, 8);
	gw_file(w, "m.gguf", 0, 1, 0);
	model = load_as("q.gguf", false, MODEL_FAST);
	packed = run_chunks(model, 50);
	numbers = logits_at("m.gguf", false);
	for (i = 0; i < NR_ALL * VOCAB; i++) {
		off += fabs((double)packed[i] - numbers[i]);
		size += fabs((double)numbers[i]);
	}
	ck_assert_msg(off < 0.1 * size, "off by %g of %g", off, size);
	model_free(model);
	free(packed);
	free(numbers);
	gw_free(w);
	ckpt_close(c);
}
END_TEST

/* A tensor that is made of two of the file is not half of it and zeros. */
START_TEST(test_refuses_halves)
{
	static const char * const gone[] = { "blk.0.ffn_up.weight",
					     "blk.0.ffn_gate.weight" };
	struct gw_tensor *t;
	struct ckpt *c;
	struct gw *w;

	golden_read("granite");
	config_write(NULL, NULL);
	c = dummy_weights();
	w = gw_make(c);
	t = gw_find(w, gone[_i]);
	free(t->v);
	*t = w->t[--w->nr];
	gw_file(w, "m.gguf", 0, 1, 0);
	assert_refused("m.gguf", -EINVAL, _i ? "blk.0.ffn_up.weight: has no tensor" :
		       "weight: shape is [96, 64], the metadata asks for [192, 64]");
	gw_free(w);
	ckpt_close(c);
}
END_TEST

/* Gate and up have as many numbers, but not the same rows. */
START_TEST(test_refuses_turned)
{
	struct gw_tensor *t;
	struct ckpt *c;
	struct gw *w;

	golden_read("granite");
	config_write(NULL, NULL);
	c = dummy_weights();
	w = gw_make(c);
	t = gw_find(w, "blk.0.ffn_up.weight");
	ck_assert_uint_ne(t->dims[0], t->dims[1]);
	gw_turn(t);
	gw_file(w, "m.gguf", 0, 1, 0);
	assert_refused("m.gguf", -EINVAL, "blk.0.ffn_up.weight: has no tensor");
	gw_free(w);
	ckpt_close(c);
}
END_TEST

/* A file, and made-up weights, are not quantized. */
START_TEST(test_refuses_quantization)
{
	struct model_opts opts = {
		.nr_threads = 1, .quantization = MODEL_QUANT_Q8_0, .dummy = _i,
	};
	struct model *model = NULL;
	struct model_error err;
	char path[320];
	struct ckpt *c;
	struct gw *w;

	golden_read("llama");
	config_write(NULL, NULL);
	c = dummy_weights();
	w = gw_make(c);
	gw_file(w, "m.gguf", 0, 1, 0);
	snprintf(path, sizeof(path), "%s%s", fixture_dir, _i ? "" : "/m.gguf");
	ck_assert_int_eq(model_load(path, &opts, &model, &err), -EINVAL);
	ck_assert_msg(strstr(err.text, ": only the weights of a folder"), "%s",
		      err.text);
	gw_free(w);
	ckpt_close(c);
}
END_TEST

/* Metadata whose meaning is refused, without much memory. */
static const struct {
	const char	*text;
	const char	*words;
} metadata[] = {
	{ GT_HEAD(0, 3) "$general.architecture w8 $granitehybrid "
	  "$granitehybrid.block_count w4 w0x7fffffff "
	  "$granitehybrid.attention.head_count_kv w4 w4",
	  "token_embd.weight: is missing" },
	{ GT_HEAD(0, 2) "$general.architecture w8 $gemma2 "
	  "$gemma2.attention.scale w6 w0",
	  "gemma2.attention.scale: 0 is no factor" },
};

START_TEST(test_refuses_metadata)
{
	struct rlimit lim, few;
	char path[320];

	snprintf(path, sizeof(path), "%s/m.gguf", fixture_dir);
	gt_write(path, metadata[_i].text);
	ck_assert_int_eq(getrlimit(RLIMIT_DATA, &lim), 0);
	few = lim;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	few.rlim_cur = 256 << 20;
#endif
	ck_assert_int_eq(setrlimit(RLIMIT_DATA, &few), 0);
	assert_refused("m.gguf", -EINVAL, metadata[_i].words);
	ck_assert_int_eq(setrlimit(RLIMIT_DATA, &lim), 0);
}
END_TEST

static Suite *model_gguf_suite(void)
{
	Suite *s = suite_create("model_gguf");
	TCase *same = tcase_create("same");

	tcase_set_tags(same, "unit model");
	tcase_set_timeout(same, 60);
	tcase_add_checked_fixture(same, setup, teardown);
	tcase_add_loop_test(same, test_same_as_folder, 0,
			    ARRAY_SIZE(gguf_cases));
	tcase_add_loop_test(same, test_blocks, 0, ARRAY_SIZE(gguf_cases));
	tcase_add_test(same, test_memory);
	tcase_add_test(same, test_blocks_fast);
	tcase_add_test(same, test_refuses_joined);
	tcase_add_loop_test(same, test_refuses_halves, 0, 2);
	tcase_add_test(same, test_refuses_turned);
	tcase_add_loop_test(same, test_refuses_quantization, 0, 2);
	tcase_add_loop_test(same, test_refuses_metadata, 0,
			    ARRAY_SIZE(metadata));
	suite_add_tcase(s, same);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(model_gguf_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
