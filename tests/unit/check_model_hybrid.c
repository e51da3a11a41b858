// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_hybrid.c - models with recurrent layers beside layers with attention
 *
 * In exact mode the logits have the same bits for all cuts of a sequence, distances of
 * records, sizes of blocks and places of blocks: records that no later token reads are
 * filled with NaN and used again, their table entries lie outside of the pool, and records
 * are copied at random, as for a copy on write.  A sequence that goes on behind another's
 * record has the bits of one that computed all tokens, and leaves the record alone.  The
 * CUDA kernels run on a GPU, or on its stand-in.  Then a table of configurations that
 * contradict themselves.  budget: 60 s
 */
#include <uapi/kvmm.h>

#include "runtime/model/internal.h"
#include "tests/unit/golden_fixture.h"
#include "tests/unit/kern_hosted.h"

#define NR_SEQS		2u
#define NR_BLOCKS	400u
#define CHUNK		20u	/* most tokens of a sequence in a step */
#define STATES		1u	/* the group of recurrent layers */

static const char * const hybrids[] = { "granite", "granite-rope", "bamba" };
static const char * const kernels[] = { "ref", "cpu", "cuda" };

/* Tokens of a block of KV, tokens between records, units of state in a block. */
static const struct size {
	u32	tokens, every, units;
} sizes[] = { { 16, 16, 1 }, { 32, 64, 3 }, { 16, 48, 100 } };

/* Blocks of the same bytes for both groups. */
static struct {
	const struct kern_ops	*ops;	/* of the device; NULL: host memory */
	struct kern_ctx		*ctx;
	struct model_kv		kv;
	u64			bytes;	/* of a block */
	u32			record;	/* blocks of a record */
	u8			*mem;
	u32			free[NR_BLOCKS];
	u32			nr_free;
} pool;

static u32 seed;

static void block_read(u32 entry, u8 *to)
{
	const u8 *from = pool.mem + entry * (u64)POOL_UNIT;

	if (pool.ops)
		ck_assert_int_eq(pool.ops->mem_get(pool.ctx, to, from, pool.bytes), 0);
	else
		memcpy(to, from, pool.bytes);
}

/* Fill a block with NaN, and free it. */
static void block_put(u32 entry)
{
	u8 *poison = malloc(pool.bytes), *at = pool.mem + entry * (u64)POOL_UNIT;

	ck_assert_ptr_nonnull(poison);
	memset(poison, 0xff, pool.bytes);
	if (pool.ops) {
		pool.ops->mem_put(pool.ctx, at, poison, pool.bytes);
		ck_assert_int_eq(pool.ops->wait(pool.ctx), 0);
	} else {
		memcpy(at, poison, pool.bytes);
	}
	free(poison);
	pool.free[pool.nr_free++] = entry;
}

static u32 block_get(void)
{
	u32 at, entry;

	ck_assert_uint_gt(pool.nr_free, 0);
	at = rnd(&seed) % pool.nr_free;
	entry = pool.free[at];
	pool.free[at] = pool.free[--pool.nr_free];
	return entry;
}

static void blocks_create(const struct model *model, const struct size *size)
{
	const struct model_info *info = model_info(model);
	const struct model_group *g = info->group + STATES;
	const u64 unit = ALIGN_UP((u64)g->unit_bytes, 128ull);
	u32 i;

	pool.kv.unit = POOL_UNIT;
	pool.kv.block_tokens[0] = size->tokens;
	pool.kv.block_tokens[STATES] = size->every;
	pool.kv.layer_stride[0] = ALIGN_UP(size->tokens * model_layer_bytes(info), 128);
	pool.bytes = max(pool.kv.layer_stride[0] * info->group[0].layers,
			 unit * min(size->units, g->layers * g->units));
	pool.kv.block_bytes = pool.bytes;
	pool.record = (u32)DIV_ROUND_UP((u64)g->layers * g->units, pool.bytes / unit);
	pool.mem = pool.ops ?
		pool.ops->mem_alloc(pool.ctx, pool.bytes * NR_BLOCKS) :
		aligned_alloc(POOL_UNIT, pool.bytes * NR_BLOCKS);
	ck_assert_ptr_nonnull(pool.mem);
	pool.kv.base = pool.mem;
	pool.nr_free = 0;
	for (i = 0; i < NR_BLOCKS; i++)
		block_put((u32)(i * pool.bytes / POOL_UNIT));
}

static void blocks_destroy(void)
{
	if (pool.ops)
		pool.ops->mem_free(pool.ctx, pool.mem);
	else
		free(pool.mem);
}

#define NR_ENTRIES	600u

/* A sequence of the golden tokens. */
struct paged {
	u32	kv[NR_ALL / 16 + 1];
	u32	states[NR_ENTRIES];
	u32	nr_kv;		/* entries */
	u32	nr_states;
	u32	at;		/* tokens computed */
	bool	keeps;		/* all records */
};

/* Drop the records before the one that token s->at reads. */
static void drop_old(struct paged *s)
{
	const u32 first = s->at ? (s->at - 1) / pool.kv.block_tokens[STATES] : 0;
	u32 i;

	for (i = 0; i < first * pool.record && !s->keeps; i++) {
		if (s->states[i] != KVMM_NO_INDEX)
			block_put(s->states[i]);
		s->states[i] = KVMM_NO_INDEX;
	}
}

/* Move the open record to other blocks, as a copy on write does. */
static void move_last(struct model *model, struct paged *s)
{
	u32 *last = s->states + s->nr_states - pool.record, to[64], i;

	if (!(s->at % pool.kv.block_tokens[STATES]) || rnd(&seed) % 3)
		return;
	ck_assert_uint_le(pool.record, ARRAY_SIZE(to));
	for (i = 0; i < pool.record; i++)
		to[i] = block_get();
	model_copy_blocks(model, &pool.kv, STATES, last, to, NULL, pool.record);
	for (i = 0; i < pool.record; i++) {
		block_put(last[i]);
		last[i] = to[i];
	}
}

/* Prepare up to @n tokens of @s. */
static struct model_seq_in prepare(struct model *model, struct paged *s, u32 n)
{
	struct model_seq_in in = {
		.tokens = golden.tokens + s->at, .start = s->at,
		.table = { s->kv, s->states },
	};
	u32 records;

	in.nr_tokens = in.want_logits = min(n, NR_ALL - s->at);
	drop_old(s);
	move_last(model, s);
	records = DIV_ROUND_UP(s->at + in.nr_tokens, pool.kv.block_tokens[STATES]);
	ck_assert_uint_le(records * pool.record, NR_ENTRIES);
	while (s->nr_kv * pool.kv.block_tokens[0] < s->at + in.nr_tokens)
		s->kv[s->nr_kv++] = block_get();
	while (s->nr_states < records * pool.record)
		s->states[s->nr_states++] = block_get();
	return in;
}

static struct model *load(const char *kernel, enum model_dtype dtype)
{
	const struct model_opts opts = {
		.dummy = true, .mode = MODEL_EXACT, .kernel = kernel,
		.dtype = dtype, .nr_threads = 1, .max_rows = 160,
		.max_seqs = NR_SEQS,
	};
	struct model_error err;
	struct model *model;

	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	return model;
}

/* Compare the logits of a step of @in with @want, or store them there. */
static void take(const struct model_seq_in *in, const float *row, float *want,
		 bool store)
{
	const size_t bytes = (size_t)in->nr_tokens * VOCAB * sizeof(*row);
	float *at = want + (size_t)in->start * VOCAB;

	if (store)
		memcpy(at, row, bytes);
	else if (memcmp(row, at, bytes))
		ck_abort_msg("%s: other bits at positions %u to %u", case_dir,
			     in->start, in->start + in->nr_tokens - 1);
}

/* Run both sequences to their ends, in cuts at random. */
static void run_all(struct model *model, const struct size *size, float *want,
		    struct paged *s)
{
	float *step = calloc((size_t)NR_SEQS * CHUNK, VOCAB * sizeof(*step)), *row;
	struct model_seq_in in[NR_SEQS];
	u32 i, nr;

	ck_assert_ptr_nonnull(step);
	while (s[0].at < NR_ALL || s[1].at < NR_ALL) {
		for (i = nr = 0; i < NR_SEQS; i++)
			if (s[i].at < NR_ALL)
				in[nr++] = prepare(model, &s[i], rnd(&seed) % 3 ?
						   1 : 1 + rnd(&seed) % CHUNK);
		ck_assert_int_eq(model_forward(model, &pool.kv, in, nr, step), 0);
		for (i = nr = 0, row = step; i < NR_SEQS; i++) {
			if (s[i].at == NR_ALL)
				continue;
			take(&in[nr], row, want, false);
			row += (size_t)in[nr].nr_tokens * VOCAB;
			s[i].at += in[nr++].nr_tokens;
		}
	}
	free(step);
}

/* The logits of all tokens, computed at once. */
static float *run_whole(struct model *model)
{
	float *want = calloc(NR_ALL, VOCAB * sizeof(*want)), *p;
	struct paged s = { .at = 0 };
	struct model_seq_in in = { 0 };

	ck_assert_ptr_nonnull(want);
	blocks_create(model, &sizes[1]);
	in = prepare(model, &s, NR_ALL);
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, want), 0);
	blocks_destroy();
	for (p = want; p < want + (size_t)NR_ALL * VOCAB; p++)
		ck_assert_msg(fabsf(*p) < 1e30f, "no number in the logits");
	return want;
}

static void device_open(const char *kernel)
{
	char why[256];

	memset(&pool, 0, sizeof(pool));
	if (strcmp(kernel, "cuda"))
		return;
	if (!hosted_driver())
		ck_abort_msg("no stand-in for the driver: build it first");
	pool.ops = kern_get("cuda");
	ck_assert_msg(!kern_open(pool.ops, 0, NULL, &pool.ctx, why, sizeof(why)),
		      "%s", why);
}

static struct model *open_case(const char *name, const char *kernel,
			       enum model_dtype dtype)
{
	device_open(kernel);
	golden_read(name);
	config_write(NULL, NULL);
	return load(kernel, dtype);
}

START_TEST(test_same_bits)
{
	const char *kernel = kernels[_i / ARRAY_SIZE(hybrids)];
	struct model *model = open_case(hybrids[_i % ARRAY_SIZE(hybrids)], kernel,
					_i % 2 ? MODEL_BF16 : MODEL_F32);
	float *want = run_whole(model);
	/* A stand-in is slow. */
	const u32 nr = pool.ops ? (u32)hosted_rounds(1, ARRAY_SIZE(sizes)) :
				  (u32)ARRAY_SIZE(sizes);
	struct paged *s;
	u32 i;

	seed = _i + 1;
	for (i = 0; i < nr; i++) {
		s = calloc(NR_SEQS, sizeof(*s));
		ck_assert_ptr_nonnull(s);
		blocks_create(model, &sizes[i]);
		run_all(model, &sizes[i], want, s);
		blocks_destroy();
		free(s);
	}
	free(want);
	model_free(model);
	kern_close(pool.ops, pool.ctx);
}
END_TEST

/* A sequence with @len tokens of @of, a multiple of the distance of records. */
static void share(struct paged *s, const struct paged *of, u32 len)
{
	const u32 last = len / pool.kv.block_tokens[STATES] - 1;
	u32 i;

	memset(s, 0, sizeof(*s));
	s->at = len;
	s->nr_kv = len / pool.kv.block_tokens[0];
	memcpy(s->kv, of->kv, s->nr_kv * sizeof(*s->kv));
	s->nr_states = (last + 1) * pool.record;
	for (i = 0; i < s->nr_states; i++)
		s->states[i] = i < last * pool.record ? KVMM_NO_INDEX :
							of->states[i];
	s->keeps = true;
}

/* Go on behind each record of another sequence. */
START_TEST(test_resume)
{
	const char *kernel = kernels[_i];
	struct model *model = open_case("granite", kernel, MODEL_F32);
	float *want = run_whole(model);
	struct paged s[NR_SEQS] = { { .keeps = true } }, first;
	u8 *before, *after;
	u32 len, i;

	seed = 7 + _i;
	blocks_create(model, &sizes[1]);
	s[1].at = NR_ALL;
	run_all(model, &sizes[1], want, s);
	first = s[0];
	before = malloc(pool.bytes);
	after = malloc(pool.bytes);
	ck_assert(before && after);
	for (len = sizes[1].every; len < NR_ALL; len += sizes[1].every) {
		const u32 *rec = first.states + (len / sizes[1].every - 1) * pool.record;

		block_read(rec[0], before);
		share(&s[0], &first, len);
		run_all(model, &sizes[1], want, s);
		block_read(rec[0], after);
		ck_assert(!memcmp(before, after, pool.bytes));
		for (i = len / sizes[1].tokens; i < s[0].nr_kv; i++)
			block_put(s[0].kv[i]);
		for (i = len / sizes[1].every * pool.record; i < s[0].nr_states; i++)
			block_put(s[0].states[i]);
	}
	free(before);
	free(after);
	blocks_destroy();
	free(want);
	model_free(model);
	kern_close(pool.ops, pool.ctx);
}
END_TEST

/* The groups of a hybrid model, and of one without recurrent layers. */
START_TEST(test_groups)
{
	struct model *model = open_case("granite", "cpu", MODEL_F32);
	const struct model_info *info = model_info(model);
	const struct kern_state s = config_states(&model->cfg);

	ck_assert_uint_eq(info->nr_groups, 2);
	ck_assert_uint_eq(info->nr_layers, 4);
	ck_assert_uint_eq(info->group[0].layers, 1);
	ck_assert_uint_eq(info->group[0].units, 0);
	ck_assert_uint_eq(info->group[1].layers, 3);
	ck_assert_uint_eq(info->group[1].window, 0);
	/* 8 heads of 16 with a d_state of 32; B and C have 128 channels and 3 inputs. */
	ck_assert_uint_eq(info->group[1].unit_bytes, 16 * (32 + 3) * 4);
	ck_assert_uint_eq(info->group[1].units, 8 + 1);
	ck_assert_uint_eq(kern_state_shared(&s), 176);
	ck_assert_uint_eq(model_token_bytes(info), model_layer_bytes(info));
	model_free(model);
	config_write("layer_types", json_loads("[\"attention\",\"attention\",\"attention\",\"attention\"]",
					       0, NULL));
	model = load("cpu", MODEL_F32);
	ck_assert_uint_eq(model_info(model)->nr_groups, 1);
	ck_assert_uint_eq(model_info(model)->group[0].layers, 4);
	model_free(model);
}
END_TEST

/* A batch without the table of a group, or with a wrong geometry, is refused. */
START_TEST(test_tables)
{
	struct model *model = open_case("granite", "cpu", MODEL_F32);
	struct paged s = { .at = 0 };
	struct model_seq_in in = { 0 };
	float logits[VOCAB];

	seed = 5;
	blocks_create(model, &sizes[0]);
	in = prepare(model, &s, 1);
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), 0);
	in.table[1] = NULL;
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), -EINVAL);
	in.table[1] = s.states;
	pool.kv.block_tokens[1] = 24;
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), -EINVAL);
	pool.kv.block_tokens[1] = 16;
	pool.kv.block_bytes = 2048;
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), -EINVAL);
	blocks_destroy();
	model_free(model);
}
END_TEST

/* Changes to the configuration "granite", and what each refusal says. */
static const struct {
	const char	*key;
	const char	*value;
	int		err;
	const char	*words;
} bad[] = {
	{ "num_local_experts", "4", -EOPNOTSUPP, "num_local_experts: 4 experts" },
	{ "num_local_experts", "null", -EOPNOTSUPP, "num_local_experts: 8 experts" },
	{ "layer_types", "null", -EINVAL, "layer_types: is no list of a name for each of 4" },
	{ "layer_types", "[\"mamba\",\"attention\"]", -EINVAL, "layer_types: is no list" },
	{ "layer_types", "[\"mamba\",\"attention\",\"mamba\",\"rwkv\"]", -EOPNOTSUPP,
	  "layer_types: \"rwkv\" is not supported" },
	{ "layer_types", "[\"mamba\",\"mamba\",\"mamba\",\"mamba\"]", -EOPNOTSUPP,
	  "layer_types: names no layer with attention" },
	{ "layer_types", "[1,2,3,4]", -EOPNOTSUPP, "layer_types: \"?\"" },
	{ "position_embedding_type", "\"alibi\"", -EOPNOTSUPP,
	  "position_embedding_type: \"alibi\"" },
	{ "rope_scaling", "{\"type\":\"linear\",\"factor\":2}", -EOPNOTSUPP,
	  "rope_scaling: is not known" },
	{ "sliding_window", "16", -EOPNOTSUPP, "sliding_window: is not known" },
	{ "mamba_n_heads", "null", -EINVAL, "mamba_n_heads: is missing" },
	{ "mamba_n_heads", "4", -EINVAL, "mamba_d_head: 16 times mamba_n_heads, 4" },
	{ "mamba_d_head", "32", -EINVAL, "is not mamba_expand times hidden_size, 128" },
	{ "mamba_expand", "3", -EINVAL, "is not mamba_expand times hidden_size, 192" },
	{ "mamba_n_groups", "3", -EINVAL, "mamba_n_groups: 3 does not divide" },
	{ "mamba_d_state", "24", -EOPNOTSUPP, "mamba_d_state: 24" },
	{ "mamba_d_state", "512", -EOPNOTSUPP, "mamba_d_state: 512" },
	{ "mamba_d_conv", "1", -EOPNOTSUPP, "mamba_d_conv: 1" },
	{ "mamba_d_conv", "9", -EOPNOTSUPP, "mamba_d_conv: 9" },
	{ "mamba_proj_bias", "true", -EOPNOTSUPP, "mamba_proj_bias: asks for" },
	{ "hidden_act", "\"gelu\"", -EOPNOTSUPP, "hidden_act: is not supported in recurrent" },
	{ "residual_multiplier", "0", -EINVAL, "residual_multiplier: 0 is outside" },
	{ "logits_scaling", "\"8\"", -EINVAL, "logits_scaling: is no number" },
	{ "time_step_limit", "[0.1,1]", -EOPNOTSUPP, "time_step_limit: is not known" },
	{ "mamba_d_conv", "3", -EINVAL, NULL },
	{ "mamba_n_groups", "1", -EINVAL, NULL },
};

/* The same for "bamba". */
static const struct {
	const char	*key;
	const char	*value;
	int		err;
	const char	*words;
} bad_bamba[] = {
	{ "attn_layer_indices", "null", -EOPNOTSUPP,
	  "attn_layer_indices: names no layer with attention" },
	{ "attn_layer_indices", "[]", -EOPNOTSUPP, "names no layer with attention" },
	{ "attn_layer_indices", "[2]", -EINVAL, "is no number of 2 layers" },
	{ "attn_layer_indices", "[0.5]", -EINVAL, "is no number of 2 layers" },
	{ "attn_layer_indices", "[-1]", -EINVAL, "is no number of 2 layers" },
	{ "attn_rotary_emb", "32", -EOPNOTSUPP, "attn_rotary_emb: 32 is not half of a head of 32" },
	{ "partial_rotary_factor", "1", -EOPNOTSUPP, "partial_rotary_factor: 1 is not supported" },
	{ "layer_types", "[\"mamba\"]", -EOPNOTSUPP, "layer_types: is not known for Bamba" },
	{ "embedding_multiplier", "2", -EOPNOTSUPP, "embedding_multiplier: asks for" },
	{ "num_local_experts", "2", -EOPNOTSUPP, "num_local_experts: asks for" },
	{ "mamba_d_head", "64", -EINVAL, "is not mamba_expand times hidden_size" },
};

START_TEST(test_bamba_refusals)
{
	const struct model_opts opts = { .judge = true, .dummy = true };
	struct model_error err;
	struct model *model;

	golden_read("bamba");
	config_write(bad_bamba[_i].key, json_loads(bad_bamba[_i].value,
						   JSON_DECODE_ANY, NULL));
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err),
			 bad_bamba[_i].err);
	ck_assert_msg(strstr(err.text, bad_bamba[_i].words) != NULL, "\"%s\"",
		      err.text);
}
END_TEST

START_TEST(test_refusals)
{
	const struct model_opts opts = { .judge = true, .dummy = !!bad[_i].words };
	struct model_error err;
	struct model_config cfg;
	struct model *model;
	struct ckpt *c;

	golden_read("granite");
	config_write(NULL, NULL);
	if (!bad[_i].words) {
		/* The tensors of another configuration. */
		ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
		ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c,
					    &err), 0);
		shards_write(c, 1, TINY_F32);
		ckpt_close(c);
	}
	config_write(bad[_i].key, json_loads(bad[_i].value, JSON_DECODE_ANY, NULL));
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), bad[_i].err);
	ck_assert_msg(strstr(err.text, bad[_i].words ? bad[_i].words :
			     ": shape is [") != NULL, "\"%s\"", err.text);
	ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

int main(void)
{
	Suite *s = suite_create("model_hybrid");
	TCase *tc = tcase_create("hybrid");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_same_bits, 0,
			    hosted_rounds(7, ARRAY_SIZE(hybrids) *
					  ARRAY_SIZE(kernels)));
	tcase_add_loop_test(tc, test_resume, 0,
			    hosted_rounds(2, ARRAY_SIZE(kernels)));
	tcase_add_test(tc, test_groups);
	tcase_add_test(tc, test_tables);
	tcase_add_loop_test(tc, test_refusals, 0, ARRAY_SIZE(bad));
	tcase_add_loop_test(tc, test_bamba_refusals, 0, ARRAY_SIZE(bad_bamba));
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
