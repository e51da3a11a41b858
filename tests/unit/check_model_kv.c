// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_kv.c - KV in other types than activations
 *
 * The distance of logits from those of the same model with KV in f32, in exact
 * mode, on the same tokens, for the demo model and every family.  The allowed
 * loss follows from the type.  With |e| <= u a number x of K or V becomes x (1
 * + e):
 *
 *	f16	2^-11	11 bits of significand
 *	bf16	2^-8	8 bits
 *	fp8	2^-4	4 bits (e4m3)
 *	int8	c 2^-8	a step is 1/127 of the head's largest number, half of
 *			that 1/254; c is the ratio of the largest to a usual
 *			number of a head, about 3 for Gaussian numbers
 *
 * One attention moves by at most max |v| u (1 + scale * sum |q||k|), as
 * kernels.h derives, and all later ops are smooth.  So logits move by some
 * factor times u.  The factor depends on the model, not on the type; KV_GAIN
 * bounds it.  It is the factor of fast mode: MODEL_FAST_TOL is 5 times the u of
 * bf16, to which fast mode rounds KV and all factors of it.  A token may differ
 * only if the two best of f32 are closer than logits may move.
 *
 * The tests also check that the factor does not depend on the type: the errors
 * of two types, summed over all cases, have the ratio of their u, within
 * KV_APART.  So a wrong type or scale shows from both sides.
 */
#include "tests/unit/golden_fixture.h"
#include "tests/unit/kv_loss.h"

#include <errno.h>
#include <sys/mman.h>

#define KV_APART	1.5

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

static struct model *load_kv(const char *dir, const char *kernel,
			     enum model_mode mode, enum model_kv_type type)
{
	const struct model_opts opts = {
		.mode = mode, .kernel = kernel, .nr_threads = 1,
		.dummy = dir == fixture_dir, .kv_type = type,
	};
	struct model_error err;
	struct model *model;

	ck_assert_msg(!model_load(dir, &opts, &model, &err), "%s", err.text);
	ck_assert_int_eq(model_info(model)->kv_type, type);
	return model;
}

/* ---- distance of logits ---- */

/* Number of compared rows, number of tokens that differ, and the errors. */
struct loss {
	u32	rows;
	u32	differ;
	double	most;
	double	sum;
};

struct top {
	u32	best;
	double	gap;	/* lead over the second best */
	double	size;	/* the largest magnitude */
};

static struct top top_of(const float *row, u32 vocab)
{
	struct top t = { 0, INFINITY, 0 };
	u32 i;

	for (i = 0; i < vocab; i++) {
		t.size = fmax(t.size, fabs(row[i]));
		if (row[i] > row[t.best])
			t.best = i;
	}
	for (i = 0; i < vocab; i++)
		if (i != t.best)
			t.gap = fmin(t.gap, row[t.best] - row[i]);
	return t;
}

/* Compare a row of logits with that of KV in f32. */
static void row_compare(const float *got, const float *want, u32 vocab,
			double tol, const char *what, struct loss *l)
{
	const struct top t = top_of(want, vocab), have = top_of(got, vocab);
	double most = 0, off;
	u32 i;

	for (i = 0; i < vocab; i++) {
		off = fabs(got[i] - want[i]) / t.size;
		most = off <= most ? most : off;
	}
	l->rows++;
	l->sum += most;
	l->most = fmax(l->most, most);
	if (!(most < tol))
		ck_abort_msg("%s: a logit is off by %g, more than %g", what,
			     most, tol);
	if (have.best == t.best)
		return;
	l->differ++;
	if (!(t.gap / t.size < tol))
		ck_abort_msg("%s: another token, though the best is ahead by %g",
			     what, t.gap / t.size);
}

static void say(const char *model, u32 i, const struct loss *l)
{
	printf("  %-16s KV %-5s logits off by at most %.2e, mean %.2e; %u of %u tokens differ\n",
	       model, model_kv_name(lossy[i].type), l->most, l->sum / l->rows,
	       l->differ, l->rows);
}

/* The errors have the ratios of the types' losses. */
static void ratios_check(const struct loss *l)
{
	double share[NR_LOSSY];
	u32 i, j;

	for (i = 0; i < NR_LOSSY; i++)
		share[i] = l[i].sum / l[i].rows / lossy[i].u;
	for (i = 0; i < NR_LOSSY; i++)
		for (j = 0; j < NR_LOSSY; j++)
			ck_assert_msg(share[i] < share[j] * KV_APART,
				      "KV %s loses %g u, %s %g u",
				      model_kv_name(lossy[i].type), share[i],
				      model_kv_name(lossy[j].type), share[j]);
}

static void family_compare(const char *name, struct loss *all)
{
	struct model *model;
	float *want, *got;
	struct loss l;
	char what[64];
	u32 i, r;

	golden_read(name);
	config_write(NULL, NULL);
	model = load_kv(fixture_dir, "cpu", MODEL_EXACT, MODEL_KV_F32);
	want = run_chunks(model, 37);
	assert_near(name, want, golden.f32, 1e-4);
	model_free(model);
	for (i = 0; i < NR_LOSSY; i++) {
		l = (struct loss){ 0 };
		snprintf(what, sizeof(what), "%s, KV %s", name,
			 model_kv_name(lossy[i].type));
		model = load_kv(fixture_dir, "cpu", MODEL_EXACT,
				lossy[i].type);
		got = run_chunks(model, 37);
		for (r = 0; r < NR_ALL; r++)
			row_compare(got + r * VOCAB, want + r * VOCAB, VOCAB,
				    KV_GAIN * lossy[i].u, what, &l);
		say(name, i, &l);
		all[i].rows += l.rows;
		all[i].differ += l.differ;
		all[i].sum += l.sum;
		all[i].most = fmax(all[i].most, l.most);
		model_free(model);
		free(got);
	}
	free(want);
}

START_TEST(test_families)
{
	struct loss all[NR_LOSSY] = { 0 };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		if (case_is_smooth(cases[i]))
			family_compare(cases[i], all);
	for (i = 0; i < NR_LOSSY; i++)
		say("all families", i, &all[i]);
	ratios_check(all);
}
END_TEST

/* ---- the demo model ---- */

#define DEMO		"tests/data/demo-model"
#define DEMO_PROMPTS	8u
#define DEMO_VOCAB	4096u
#define DEMO_ROWS	160u

/* A prompt and its golden continuation. */
struct text {
	u32	ids[DEMO_ROWS];
	u32	nr;
};

static u32 ids_read(json_t *list, u32 *out)
{
	json_t *v;
	size_t i;

	json_array_foreach(list, i, v)
		out[i] = json_integer_value(v);
	return json_array_size(list);
}

static void demo_read(struct text *texts)
{
	json_t *root = json_load_file(DEMO "/golden.json", 0, NULL), *list, *v;
	size_t i;

	ck_assert_msg(root != NULL, "run this from the root of the tree");
	list = json_object_get(root, "continuations");
	ck_assert_uint_eq(json_array_size(list), DEMO_PROMPTS);
	json_array_foreach(list, i, v) {
		texts[i].nr = ids_read(json_object_get(v, "prompt_ids"),
				       texts[i].ids);
		texts[i].nr += ids_read(json_object_get(v, "greedy_ids"),
					texts[i].ids + texts[i].nr);
		ck_assert_uint_le(texts[i].nr, DEMO_ROWS);
	}
	json_decref(root);
}

/* Logits of all positions of a text. */
static float *demo_run(struct model *model, const struct text *t)
{
	float *logits = malloc((u64)t->nr * DEMO_VOCAB * sizeof(*logits));
	struct model_seq_in in = {
		.tokens = t->ids, .nr_tokens = t->nr, .want_logits = t->nr,
	};
	struct pool pool;

	ck_assert_ptr_nonnull(logits);
	pool_create(&pool, model_info(model), 12, 16, false, 3);
	in.table[0] = pool_table(&pool, t->nr);
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), 0);
	pool_destroy(&pool);
	return logits;
}

static void demo_compare(struct model *f32, struct model *narrow,
			 const struct text *t, u32 i, struct loss *l)
{
	float *want = demo_run(f32, t), *got = demo_run(narrow, t);
	u32 r;

	for (r = 0; r < t->nr; r++)
		row_compare(got + (u64)r * DEMO_VOCAB,
			    want + (u64)r * DEMO_VOCAB, DEMO_VOCAB,
			    KV_GAIN * lossy[i].u, "demo model", l);
	free(want);
	free(got);
}

START_TEST(test_demo)
{
	struct model *f32 = load_kv(DEMO, "cpu", MODEL_EXACT, MODEL_KV_F32);
	struct loss l[NR_LOSSY] = { 0 };
	struct text texts[DEMO_PROMPTS];
	struct model *model;
	u32 i, p;

	demo_read(texts);
	for (i = 0; i < NR_LOSSY; i++) {
		model = load_kv(DEMO, "cpu", MODEL_EXACT, lossy[i].type);
		for (p = 0; p < DEMO_PROMPTS; p++)
			demo_compare(f32, model, &texts[p], i, &l[i]);
		say("demo model", i, &l[i]);
		model_free(model);
	}
	ratios_check(l);
	model_free(f32);
}
END_TEST

/* ---- other properties ---- */

/* Every implementation is near the exact logits of KV in f32. */
START_TEST(test_kernels)
{
	static const char * const names[] = {
		"llama", "deepseek2", "llama-head24", "mistral-head120",
	};
	const struct kern_ops *ops;
	struct model *model;
	float *want, *got;
	struct loss l = { 0 };
	const u32 type = _i % NR_LOSSY;
	char name[32];
	u32 k, r;

	golden_read(names[_i / NR_LOSSY]);
	config_write(NULL, NULL);
	model = load_kv(fixture_dir, "cpu", MODEL_EXACT, MODEL_KV_F32);
	want = run_chunks(model, 37);
	model_free(model);
	for (k = 0; (ops = kern_at(k)); k++) {
		snprintf(name, sizeof(name), "%s:%s", ops->name, ops->variant);
		model = load_kv(fixture_dir, k ? name : "ref",
				ops->mode == KERN_MODE_EXACT ? MODEL_EXACT :
							       MODEL_FAST,
				lossy[type].type);
		got = run_chunks(model, 37);
		for (r = 0; r < NR_ALL; r++)
			row_compare(got + r * VOCAB, want + r * VOCAB, VOCAB,
				    KV_GAIN * lossy[type].u + MODEL_FAST_TOL *
				    (ops->mode != KERN_MODE_EXACT), name, &l);
		free(got);
		model_free(model);
	}
	free(want);
}
END_TEST

START_TEST(test_chunks)
{
	static const char * const names[] = {
		"llama", "gemma2", "deepseek2", "llama-head40",
	};
	const u32 type = _i % NR_LOSSY;
	struct model *model;
	float *whole, *cut;
	u32 chunk;

	golden_read(names[_i / NR_LOSSY]);
	config_write(NULL, NULL);
	model = load_kv(fixture_dir, "cpu", MODEL_EXACT, lossy[type].type);
	whole = run_chunks(model, NR_ALL);
	for (chunk = 1; chunk < 32; chunk += 22) {
		cut = run_chunks(model, chunk);
		ck_assert(!memcmp(whole, cut, NR_ALL * VOCAB * sizeof(*cut)));
		free(cut);
	}
	free(whole);
	model_free(model);
}
END_TEST

/* Sizes that the daemon gets; they must hold the bytes that kernels write. */
START_TEST(test_sizes)
{
	static const u32 bytes[][2] = {
		[MODEL_KV_F32] = { 64, 0 }, [MODEL_KV_BF16] = { 32, 0 },
		[MODEL_KV_F16] = { 32, 0 }, [MODEL_KV_FP8] = { 16, 4 },
		[MODEL_KV_INT8] = { 16, 4 },
	};
	const struct model_info *i;
	struct model *model;
	u32 hd, row;

	golden_read("llama");
	/* A head of 24 is not padded. */
	for (hd = 16; hd <= 24; hd += 8) {
		config_write("head_dim", json_integer(hd));
		model = load_kv(fixture_dir, "cpu", MODEL_FAST, _i);
		i = model_info(model);
		row = bytes[_i][0] * hd / 16;
		ck_assert_uint_eq(i->k_bytes, row);
		ck_assert_uint_eq(i->v_bytes, row);
		ck_assert_uint_eq(i->scale_bytes, bytes[_i][1]);
		ck_assert_uint_eq(model_layer_bytes(i), 2ull * i->nr_kv_heads *
				  (row + bytes[_i][1]));
		model_free(model);
	}
}
END_TEST

/* One latent vector for all heads, with one scale, and no V. */
START_TEST(test_latent_sizes)
{
	static const u32 elem[] = {
		[MODEL_KV_F32] = 4, [MODEL_KV_BF16] = 2, [MODEL_KV_F16] = 2,
		[MODEL_KV_FP8] = 1, [MODEL_KV_INT8] = 1,
	};
	const u32 scale = _i == MODEL_KV_FP8 || _i == MODEL_KV_INT8 ? 4 : 0;
	const struct model_info *i;
	struct model *model;

	golden_read("deepseek2");
	config_write(NULL, NULL);
	model = load_kv(fixture_dir, "cpu", MODEL_FAST, _i);
	i = model_info(model);
	ck_assert_uint_eq(i->nr_kv_heads, 1);
	ck_assert_uint_eq(i->k_bytes, 48 * elem[_i]);
	ck_assert_uint_eq(i->v_bytes, 0);
	ck_assert_uint_eq(i->scale_bytes, scale);
	ck_assert_uint_eq(model_layer_bytes(i), 48 * elem[_i] + scale);
	ck_assert_uint_eq(i->heads_bytes, 4 * (80 * elem[_i] + 2 * scale));
	model_free(model);
}
END_TEST

/* Parts of an identity, each hashed with its tag and length. */
static void fold(void *arg, const char *tag, const void *data, size_t len)
{
	u64 *h = arg;
	size_t i;

	for (i = 0; tag[i]; i++)
		*h = (*h ^ (u8)tag[i]) * 0x100000001b3ull;
	*h = (*h ^ len) * 0x100000001b3ull;
	for (i = 0; i < len; i++)
		*h = (*h ^ ((const u8 *)data)[i]) * 0x100000001b3ull;
}

static u64 identity(enum model_dtype dtype, enum model_kv_type type)
{
	const struct model_opts opts = {
		.dtype = dtype, .kv_type = type, .dummy = true,
		.nr_threads = 1,
	};
	u64 h = 0xcbf29ce484222325ull;
	struct model_error err;
	struct model *model;

	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	model_identity(model, fold, &h);
	model_free(model);
	return h;
}

/*
 * KV of one type is garbage in another, and activations in bf16 make other KV
 * than those in f32: all identities differ.
 */
START_TEST(test_identities)
{
	const u32 nr = MODEL_KV_INT8;
	u64 id[2 * MODEL_KV_INT8];
	u32 i, j;

	golden_read("llama");
	config_write(NULL, NULL);
	for (i = 0; i < 2 * nr; i++)
		id[i] = identity(i / nr, i % nr + 1);
	for (i = 0; i < 2 * nr; i++)
		for (j = 0; j < i; j++)
			ck_assert_msg(id[i] != id[j], "%u and %u", i, j);
	ck_assert_uint_eq(identity(MODEL_F32, MODEL_KV_AUTO),
			  id[MODEL_KV_F32 - 1]);
	ck_assert_uint_eq(identity(MODEL_BF16, MODEL_KV_AUTO),
			  id[nr + MODEL_KV_BF16 - 1]);
}
END_TEST

/* Models that differ in the size of heads share no block. */
START_TEST(test_head_identities)
{
	static const u32 sizes[] = { 112, 120, 128 };
	u64 id[ARRAY_SIZE(sizes)];
	u32 i, j;

	golden_read("mistral-head120");
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		config_write("head_dim", json_integer(sizes[i]));
		id[i] = identity(MODEL_F32, MODEL_KV_AUTO);
		for (j = 0; j < i; j++)
			ck_assert_msg(id[i] != id[j], "%u and %u", sizes[i],
				      sizes[j]);
	}
	config_write(NULL, NULL);	/* 240 / 2 */
	ck_assert_uint_eq(identity(MODEL_F32, MODEL_KV_AUTO), id[1]);
}
END_TEST

/* Let @ops, a constant, accept only KV in f32 from now on. */
static void take_types(const struct kern_ops *ops)
{
	const u64 page = sysconf(_SC_PAGESIZE);
	const uintptr_t at = (uintptr_t)ops & ~(page - 1);
	const u32 types = KERN_TYPE_BIT(KERN_F32);

	ck_assert_int_eq(mprotect((void *)at, 2 * page,
				  PROT_READ | PROT_WRITE), 0);
	memcpy((u8 *)(uintptr_t)ops + offsetof(struct kern_ops, kv_types),
	       &types, sizeof(types));
}

/* A type that the kernels lack is refused at start, and when judged. */
START_TEST(test_refused)
{
	struct model_opts opts = {
		.kernel = "ref", .kv_type = MODEL_KV_FP8, .dummy = true,
	};
	struct model *model = NULL;
	struct model_error err;

	golden_read("llama");
	config_write(NULL, NULL);
	take_types(kern_get("ref"));
	for (opts.judge = false;; opts.judge = true) {
		ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err),
				 -EOPNOTSUPP);
		ck_assert_ptr_null(model);
		ck_assert_msg(strstr(err.text, "kernel \"ref\" takes no KV in "
				     "fp8 with heads of ") != NULL, "%s",
			      err.text);
		if (opts.judge)
			break;
	}
	opts = (struct model_opts){ .kernel = "ref", .dummy = true };
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), 0);
	model_free(model);
}
END_TEST

/* ---- automatic types ---- */

static void auto_is(enum model_kv_type asked, enum model_dtype dtype,
		    enum model_kv_type kv)
{
	const struct model_opts opts = {
		.dtype = MODEL_DTYPE_AUTO, .kv_type = asked, .judge = true,
	};
	struct model_error err;
	struct model *model;

	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	ck_assert_int_eq(model_info(model)->dtype, dtype);
	ck_assert_int_eq(model_info(model)->kv_type, kv);
	model_free(model);
}

static void config_type(const char *key, const char *name)
{
	config_write(key, json_string(name));
}

/* Without a type in the configuration, the type is that of the weights. */
START_TEST(test_auto)
{
	static const struct {
		enum tiny_type		file;
		enum model_dtype	dtype;
		enum model_kv_type	kv;
	} files[] = {
		{ TINY_F32, MODEL_F32, MODEL_KV_F32 },
		{ TINY_BF16, MODEL_BF16, MODEL_KV_BF16 },
		{ TINY_F16, MODEL_F32, MODEL_KV_F16 },
	};
	struct model_config cfg;
	struct model_error err;
	struct ckpt *c;
	u32 i;

	golden_read("llama");
	config_write(NULL, NULL);
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err), 0);
	for (i = 0; i < ARRAY_SIZE(files); i++) {
		shards_write(c, 1, files[i].file);
		config_write(NULL, NULL);
		auto_is(MODEL_KV_AUTO, files[i].dtype, files[i].kv);
		auto_is(MODEL_KV_INT8, files[i].dtype, MODEL_KV_INT8);
		config_type("torch_dtype", "bfloat16");
		auto_is(MODEL_KV_AUTO, MODEL_BF16, MODEL_KV_BF16);
		config_type("dtype", "float16");
		auto_is(MODEL_KV_AUTO, MODEL_F32, MODEL_KV_F16);
		config_type("torch_dtype", "float32");
		auto_is(MODEL_KV_AUTO, MODEL_F32, MODEL_KV_F32);
		config_type("torch_dtype", "float8");
		auto_is(MODEL_KV_AUTO, files[i].dtype, files[i].kv);
	}
	ckpt_close(c);
}
END_TEST

static Suite *kv_suite(void)
{
	Suite *s = suite_create("model_kv");
	TCase *tc = tcase_create("types");

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_families);
	tcase_add_test(tc, test_demo);
	tcase_add_loop_test(tc, test_kernels, 0, 4 * NR_LOSSY);
	tcase_add_loop_test(tc, test_chunks, 0, 4 * NR_LOSSY);
	tcase_add_loop_test(tc, test_sizes, MODEL_KV_F32, MODEL_KV_INT8 + 1);
	tcase_add_loop_test(tc, test_latent_sizes, MODEL_KV_F32,
			    MODEL_KV_INT8 + 1);
	tcase_add_test(tc, test_identities);
	tcase_add_test(tc, test_head_identities);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_auto);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(kv_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
