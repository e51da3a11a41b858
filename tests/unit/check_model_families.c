// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_families.c - every switch of the decoder against an oracle
 *
 * Small random models, one for each family and feature, are written as
 * checkpoint folders, loaded and run over paged KV.  The oracle is a plain
 * decoder in double precision, which reads the weights from memory and shares
 * no code with the runtime.  It gives the logits of each position.  For bf16 it
 * rounds only where the runtime must, or numbers would drift apart.
 */
#include <math.h>

#include "kernels/kernels.h"
#include "tests/unit/model_fixture.h"

#define NR_TOKENS	40u
#define MAX_DIM		512u

static const struct tiny tinies[] = {
	{ .arch = "LlamaForCausalLM", .vocab = 61, .hidden = 48, .inter = 80,
	  .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 16,
	  .tied = true, .type = TINY_BF16, .shards = 1 },
	{ .arch = "LlamaForCausalLM", .vocab = 61, .hidden = 48, .inter = 80,
	  .layers = 2, .heads = 3, .kv_heads = 1, .head_dim = 32,
	  .type = TINY_F16, .shards = 3 },
	{ .arch = "LlamaForCausalLM", .vocab = 40, .hidden = 33, .inter = 37,
	  .layers = 1, .heads = 2, .kv_heads = 2, .head_dim = 48,
	  .type = TINY_F32, .shards = 1, .odd = true },
	{ .arch = "LlamaForCausalLM", .vocab = 40, .hidden = 33, .inter = 37,
	  .layers = 1, .heads = 2, .kv_heads = 2, .head_dim = 48,
	  .type = TINY_BF16, .shards = 2, .odd = true,
	  .more = "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}," },
	{ .arch = "MistralForCausalLM", .vocab = 61, .hidden = 48, .inter = 80,
	  .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 16,
	  .type = TINY_BF16, .shards = 1,
	  .more = "\"sliding_window\":9," },
	{ .arch = "Qwen2ForCausalLM", .vocab = 61, .hidden = 48, .inter = 80,
	  .layers = 2, .heads = 4, .kv_heads = 1, .head_dim = 16,
	  .tied = true, .qkv_bias = true, .type = TINY_BF16, .shards = 2,
	  .more = "\"use_sliding_window\":false,\"sliding_window\":9," },
	{ .arch = "Qwen3ForCausalLM", .vocab = 61, .hidden = 48, .inter = 80,
	  .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 32,
	  .qk_norm = true, .type = TINY_BF16, .shards = 1,
	  .more = "\"attention_bias\":false,\"rope_theta\":1000000," },
};

/* Facts for the oracle beyond the sizes, one row for each of tinies. */
static const struct {
	u32	window;
	double	theta;
	double	stretch;
} facts[ARRAY_SIZE(tinies)] = {
	{ 0, 1e4, 1 }, { 0, 1e4, 1 }, { 0, 1e4, 1 }, { 0, 1e4, 4 },
	{ 9, 1e4, 1 }, { 0, 1e4, 1 }, { 0, 1e6, 1 },
};

static struct tiny tiny;
static u32 window;
static double theta, stretch;
static bool rounds;		/* bf16 arithmetic */

static const float *param(u32 layer, const char *name)
{
	char full[96];

	snprintf(full, sizeof(full), "model.layers.%u.%s", layer, name);
	return tiny_get(&tiny, full);
}

/* The end of an op: round to the nearest bf16 (8 bits), ties to even. */
static void o_settle(double *x, u32 n)
{
	int exp;
	u32 i;

	for (i = 0; rounds && i < n; i++) {
		x[i] = frexp(x[i], &exp);
		x[i] = ldexp(nearbyint(ldexp(x[i], 8)), exp - 8);
	}
}

static void o_norm(const double *x, const float *w, u32 n, double *y)
{
	double sum = 0;
	u32 i;

	for (i = 0; i < n; i++)
		sum += x[i] * x[i];
	sum = 1 / sqrt(sum / n + 1e-5);
	for (i = 0; i < n; i++)
		y[i] = x[i] * sum * w[i];
	o_settle(y, n);
}

static void o_linear(const double *x, const float *w, const float *bias,
		     u32 rows, u32 cols, double *y)
{
	u32 i, j;

	for (i = 0; i < rows; i++) {
		y[i] = bias ? bias[i] : 0;
		for (j = 0; j < cols; j++)
			y[i] += x[j] * w[(u64)i * cols + j];
	}
	o_settle(y, rows);
}

static void o_heads(double *x, const float *norm, u32 heads, u32 pos)
{
	const u32 hd = tiny.head_dim, half = hd / 2;
	double a, b, angle;
	u32 h, j;

	for (h = 0; h < heads; h++, x += hd) {
		if (norm)
			o_norm(x, norm, hd, x);
		for (j = 0; j < half; j++) {
			angle = pos * pow(theta, -2.0 * j / hd) / stretch;
			a = x[j];
			b = x[j + half];
			x[j] = a * cos(angle) - b * sin(angle);
			x[j + half] = b * cos(angle) + a * sin(angle);
		}
		o_settle(x, hd);
	}
}

static double kept_k[4][NR_TOKENS][MAX_DIM], kept_v[4][NR_TOKENS][MAX_DIM];

static void o_attend_head(u32 layer, u32 pos, u32 head, const double *q,
			  double *out)
{
	const u32 hd = tiny.head_dim;
	const u32 at = head / (tiny.heads / tiny.kv_heads) * hd;
	const u32 from = window && pos + 1 > window ? pos + 1 - window : 0;
	double w[NR_TOKENS], sum = 0;
	u32 p, j;

	for (p = from; p <= pos; p++) {
		w[p] = 0;
		for (j = 0; j < hd; j++)
			w[p] += q[j] * kept_k[layer][p][at + j];
		w[p] = exp(w[p] / sqrt(hd));
		sum += w[p];
	}
	for (j = 0; j < hd; j++) {
		out[j] = 0;
		for (p = from; p <= pos; p++)
			out[j] += w[p] / sum * kept_v[layer][p][at + j];
	}
	o_settle(out, hd);
}

static void o_attention(u32 l, u32 pos, const double *h, double *out)
{
	const u32 nq = tiny.heads * tiny.head_dim;
	const u32 nkv = tiny.kv_heads * tiny.head_dim;
	double q[MAX_DIM], a[MAX_DIM];
	u32 i;

	o_linear(h, param(l, "self_attn.q_proj.weight"),
		 param(l, "self_attn.q_proj.bias"), nq, tiny.hidden, q);
	o_linear(h, param(l, "self_attn.k_proj.weight"),
		 param(l, "self_attn.k_proj.bias"), nkv, tiny.hidden,
		 kept_k[l][pos]);
	o_linear(h, param(l, "self_attn.v_proj.weight"),
		 param(l, "self_attn.v_proj.bias"), nkv, tiny.hidden,
		 kept_v[l][pos]);
	o_heads(q, param(l, "self_attn.q_norm.weight"), tiny.heads, pos);
	o_heads(kept_k[l][pos], param(l, "self_attn.k_norm.weight"),
		tiny.kv_heads, pos);
	for (i = 0; i < tiny.heads; i++)
		o_attend_head(l, pos, i, q + i * tiny.head_dim,
			      a + i * tiny.head_dim);
	o_linear(a, param(l, "self_attn.o_proj.weight"), NULL, tiny.hidden, nq,
		 out);
}

static void o_mlp(u32 l, const double *h, double *out)
{
	double g[MAX_DIM], u[MAX_DIM];
	u32 i;

	o_linear(h, param(l, "mlp.gate_proj.weight"), NULL, tiny.inter,
		 tiny.hidden, g);
	o_linear(h, param(l, "mlp.up_proj.weight"), NULL, tiny.inter,
		 tiny.hidden, u);
	for (i = 0; i < tiny.inter; i++)
		g[i] = g[i] / (1 + exp(-g[i])) * u[i];
	o_settle(g, tiny.inter);
	o_linear(g, param(l, "mlp.down_proj.weight"), NULL, tiny.hidden,
		 tiny.inter, out);
}

/* x += y */
static void o_add(double *x, const double *y)
{
	u32 i;

	for (i = 0; i < tiny.hidden; i++)
		x[i] += y[i];
	o_settle(x, tiny.hidden);
}

/* Logits of position @pos; earlier positions went through this function before. */
static void oracle(u32 token, u32 pos, double *logits)
{
	const float *embed = tiny_get(&tiny, "model.embed_tokens.weight");
	const float *head = tiny_get(&tiny, "lm_head.weight");
	double x[MAX_DIM], h[MAX_DIM], y[MAX_DIM];
	u32 l, i;

	for (i = 0; i < tiny.hidden; i++)
		x[i] = embed[token * tiny.hidden + i];
	o_settle(x, tiny.hidden);
	for (l = 0; l < tiny.layers; l++) {
		o_norm(x, param(l, "input_layernorm.weight"), tiny.hidden, h);
		o_attention(l, pos, h, y);
		o_add(x, y);
		o_norm(x, param(l, "post_attention_layernorm.weight"),
		       tiny.hidden, h);
		o_mlp(l, h, y);
		o_add(x, y);
	}
	o_norm(x, tiny_get(&tiny, "model.norm.weight"), tiny.hidden, h);
	for (i = 0; i < tiny.vocab; i++) {
		logits[i] = 0;
		for (l = 0; l < tiny.hidden; l++)
			logits[i] += h[l] * (head ? head : embed)
				     [i * tiny.hidden + l];
	}
}

static double worst(const float *got, const double *want, u32 n)
{
	double diff = 0, size = 0;
	u32 i;

	for (i = 0; i < n; i++) {
		if (!(fabs(got[i] - want[i]) <= 1e30))
			return INFINITY;
		diff = fmax(diff, fabs(got[i] - want[i]));
		size = fmax(size, fabs(want[i]));
	}
	return diff / size;
}

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	tiny_free(&tiny);
	dir_destroy();
}

/* Run all tokens as chunks of @chunk with every row's logits. */
static void run_chunks(struct model *model, struct pool *pool,
		       const u32 *tokens, u32 chunk, float *logits)
{
	const u32 vocab = model_info(model)->nr_vocab;
	const u32 *table = pool_table(pool, NR_TOKENS);
	struct model_seq_in in = { 0 };
	u32 at, n;

	for (at = 0; at < NR_TOKENS; at += n) {
		n = min(chunk, NR_TOKENS - at);
		in = (struct model_seq_in){
			.tokens = tokens + at, .nr_tokens = n, .start = at,
			.table[0] = table, .want_logits = n,
		};
		ck_assert_int_eq(model_forward(model, &pool->kv, &in, 1,
					       logits + (u64)at * vocab), 0);
	}
}

/*
 * If a number lies near the middle of two bf16 values, the two may round it to
 * different ones, and the next results differ too; that is rare.
 */
static void check_against_oracle(const struct kern_ops *ops,
				 enum model_dtype dtype)
{
	struct model_opts opts = { .dtype = dtype, .kernel = "ref" };
	static float logits[NR_TOKENS][64];
	double want[64], off, most = 1e-5;
	struct model_error err;
	struct model *model;
	struct pool pool;
	u32 tokens[NR_TOKENS], i, seed = 5, nr_apart = 0;
	char name[32];

	snprintf(name, sizeof(name), "%s:%s", ops->name, ops->variant);
	if (strcmp(ops->name, "ref"))
		opts.kernel = name;
	/* Fast mode rounds the factors of bf16 weights or KV. */
	if (ops->mode == KERN_MODE_FAST)
		most = dtype == MODEL_BF16 ? MODEL_FAST_TOL_BF16 :
					     MODEL_FAST_TOL;
	else if (dtype == MODEL_BF16)
		most = 2e-2;
	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	for (i = 0; i < NR_TOKENS; i++)
		tokens[i] = rnd(&seed) % tiny.vocab;
	pool_create(&pool, model_info(model), 8, 16, dtype == MODEL_BF16, 3);
	/* Rows are nr_vocab apart, so the array is used densely. */
	run_chunks(model, &pool, tokens, 13, &logits[0][0]);
	rounds = dtype == MODEL_BF16;
	for (i = 0; i < NR_TOKENS; i++) {
		oracle(tokens[i], i, want);
		off = worst(&logits[0][0] + i * tiny.vocab, want, tiny.vocab);
		ck_assert_msg(off < most, "%s, position %u: off by %g", name,
			      i, off);
		nr_apart += off > 1e-5;
	}
	ck_assert_msg(nr_apart <= NR_TOKENS / 2 ||
		      ops->mode == KERN_MODE_FAST,
		      "%s: %u positions are off", name, nr_apart);
	pool_destroy(&pool);
	model_free(model);
}

START_TEST(test_agrees_with_oracle)
{
	const struct kern_ops *ops;
	u32 i;

	tiny = tinies[_i];
	window = facts[_i].window;
	theta = facts[_i].theta;
	stretch = facts[_i].stretch;
	tiny_make(&tiny);
	tiny_write(&tiny);
	for (i = 0; (ops = kern_at(i)); i++) {
		check_against_oracle(ops, MODEL_F32);
		check_against_oracle(ops, MODEL_BF16);
	}
}
END_TEST

/* Rounding must not turn NaN into a number. */
START_TEST(test_keeps_nan)
{
	const struct model_opts opts = { .dtype = MODEL_BF16 };
	const u32 token = 3, table = 0;
	const struct model_seq_in in = {
		.tokens = &token, .nr_tokens = 1, .table[0] = &table,
		.want_logits = 1,
	};
	struct model_error err;
	struct model *model;
	struct pool pool;
	float logits[64];

	tiny = tinies[2];
	tiny.odd = false;
	tiny_make(&tiny);
	memset(tiny.tensors[0].data + token * tiny.hidden, 0xff,
	       sizeof(float));
	tiny_write(&tiny);
	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	pool_create(&pool, model_info(model), 1, 16, false, 1);
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), 0);
	ck_assert(isnan(logits[0]));
	pool_destroy(&pool);
	model_free(model);
}
END_TEST

/* Tensors that old writers left in files, and that change nothing. */
START_TEST(test_ignores_leftovers)
{
	struct model_error err;
	struct model *model;

	tiny = tinies[0];
	tiny_make(&tiny);
	tiny_add(&tiny, "model.layers.0.self_attn.rotary_emb.inv_freq", 8, 0,
		 0);
	tiny_add(&tiny, "model.layers.1.self_attn.k_scale", 1, 0, 1);
	tiny_add(&tiny, "model.layers.1.self_attn.v_scale", 1, 0, 1);
	tiny_add(&tiny, "lm_head.weight", tiny.vocab, tiny.hidden, 0);
	memcpy(tiny.tensors[tiny.nr_tensors - 1].data, tiny.tensors[0].data,
	       (u64)tiny.vocab * tiny.hidden * sizeof(float));
	tiny_write(&tiny);
	ck_assert_msg(!model_load(fixture_dir, NULL, &model, &err), "%s",
		      err.text);
	model_free(model);

	/* A second copy that differs is refused. */
	tiny.tensors[tiny.nr_tensors - 1].data[3] += 0x1p-9f;
	tiny_write(&tiny);
	ck_assert_int_eq(model_load(fixture_dir, NULL, &model, &err),
			 -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "lm_head.weight: config.json "
				     "does not ask for it"));
}
END_TEST

/* A sound model with one wrong tensor. */
static const struct {
	const char	*name;		/* tensor to change */
	const char	*rename;	/* new name, or */
	s32		more_rows;	/* rows to add, or */
	s32		more_cols;	/* columns to add */
	const char	*words;
} bad[] = {
	{ "model.norm.weight", "model.norm.w", 0, 0,
	  "tensor model.norm.weight is missing" },
	{ "model.embed_tokens.weight", NULL, 1, 0,
	  "tensor model.embed_tokens.weight: shape is [62, 48], config.json "
	  "asks for [61, 48]" },
	{ "model.norm.weight", NULL, -1, 0, "shape is [47], config.json asks "
	  "for [48]" },
	{ "model.norm.weight", NULL, 0, 1, "shape is [48, 1], config.json "
	  "asks for [48]" },
	{ "model.layers.0.self_attn.q_proj.weight", NULL, 0, -1,
	  "model.layers.0.self_attn.q_proj.weight: shape is [64, 47]" },
	{ "model.layers.1.self_attn.k_proj.weight", NULL, 16, 0,
	  "model.layers.1.self_attn.k_proj.weight: shape is [48, 48], "
	  "config.json asks for [32, 48]" },
	{ "model.layers.1.mlp.down_proj.weight", NULL, 0, 1,
	  "model.layers.1.mlp.down_proj.weight: shape is [48, 81]" },
	{ NULL, "model.layers.0.self_attn.q_proj.bias", 64, 0,
	  "tensor model.layers.0.self_attn.q_proj.bias: config.json does not "
	  "ask for it" },
	{ NULL, "model.layers.2.mlp.up_proj.weight", 80, 48,
	  "model.layers.2.mlp.up_proj.weight: config.json does not ask" },
};

START_TEST(test_refuses_tensor)
{
	struct model *model = NULL;
	struct model_error err;
	struct tiny_tensor *x;
	u32 i;

	tiny = tinies[0];
	tiny_make(&tiny);
	if (!bad[_i].name) {
		tiny_add(&tiny, bad[_i].rename, bad[_i].more_rows,
			 bad[_i].more_cols, 0);
	} else {
		for (i = 0; strcmp(tiny.tensors[i].name, bad[_i].name); i++)
			;
		x = &tiny.tensors[i];
		if (bad[_i].rename)
			strcpy(x->name, bad[_i].rename);
		x->rows += bad[_i].more_rows;
		x->cols += bad[_i].more_cols;
		free(x->data);
		x->data = calloc(tiny_elems(x), sizeof(*x->data));
	}
	tiny_write(&tiny);
	ck_assert_int_eq(model_load(fixture_dir, NULL, &model, &err),
			 -EINVAL);
	ck_assert_ptr_null(model);
	ck_assert_msg(strstr(err.text, bad[_i].words) != NULL,
		      "\"%s\" does not say \"%s\"", err.text, bad[_i].words);
	ck_assert_ptr_nonnull(strstr(err.text, fixture_dir));
}
END_TEST

START_TEST(test_refuses_dtype)
{
	static const char header[] = "{\"model.embed_tokens.weight\":{"
		"\"dtype\":\"F8_E4M3\",\"shape\":[61,48],\"data_offsets\":"
		"[0,2928]}}";
	const u64 len = strlen(header);
	struct model *model = NULL;
	struct model_error err;
	FILE *f;
	u32 i;

	tiny = tinies[0];
	tiny_write_config(&tiny);
	f = dir_open("model.safetensors", "w");
	fwrite(&len, 8, 1, f);
	fputs(header, f);
	for (i = 0; i < 2928; i++)
		fputc(0, f);
	fclose(f);
	ck_assert_int_eq(model_load(fixture_dir, NULL, &model, &err),
			 -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, "model.safetensors: tensor "
				     "model.embed_tokens.weight: dtype "
				     "F8_E4M3 is not supported"));
}
END_TEST

static Suite *families_suite(void)
{
	Suite *s = suite_create("model_families");
	TCase *tc = tcase_create("oracle");
	TCase *lies = tcase_create("tensors");

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_agrees_with_oracle, 0,
			    ARRAY_SIZE(tinies));
	tcase_add_test(tc, test_keeps_nan);
	suite_add_tcase(s, tc);

	tcase_set_tags(lies, "unit model");
	tcase_add_checked_fixture(lies, setup, teardown);
	tcase_add_test(lies, test_ignores_leftovers);
	tcase_add_loop_test(lies, test_refuses_tensor, 0, ARRAY_SIZE(bad));
	tcase_add_test(lies, test_refuses_dtype);
	suite_add_tcase(s, lies);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(families_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
