// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_groups.c - layers with a window as a layer group of their own
 *
 * The families of tests/data/families that have layers with a window beside layers
 * without one.  In exact mode the logits have the same bits as with one group: two
 * sequences with other cuts, blocks of other sizes in each group, blocks copied at
 * random, and blocks behind the window dropped before each step.  A dropped block is
 * filled with NaN and used again, and its table entry lies outside of the pool.
 * The CUDA kernels run on a GPU, or on its stand-in.  budget: 60 s
 */
#include <uapi/kvmm.h>

#include "runtime/model/internal.h"
#include "tests/unit/golden_fixture.h"
#include "tests/unit/kern_hosted.h"

#define NR_SEQS		2u
#define NR_BLOCKS	48u
#define GROUPS		MODEL_MAX_GROUPS
#define WINDOW		16u
#define CHUNK		20u	/* most tokens of a sequence in a step */

static const char * const windowed[] = {
	"gpt-oss", "gemma3", "qwen2-window", "gemma2",
};
static const char * const kernels[] = { "ref", "cpu", "cuda" };

/* Tokens of a block of each group. */
static const u32 sizes[][GROUPS] = { { 48, 16 }, { 16, 32 }, { 16, 16 } };

/* Blocks of the same bytes for both groups. */
static struct {
	const struct kern_ops	*ops;	/* of the device; NULL: host memory */
	struct kern_ctx		*ctx;
	struct model_kv		kv;
	u64			bytes;	/* of a block */
	u8			*mem;
	u32			free[NR_BLOCKS];
	u32			nr_free;
	u32			nr_taken;
} pool;

static u32 seed;

/* Fill a block with NaN. */
static void block_poison(u32 block)
{
	u8 *poison = malloc(pool.bytes);

	ck_assert_ptr_nonnull(poison);
	memset(poison, 0xff, pool.bytes);
	if (pool.ops) {
		pool.ops->mem_put(pool.ctx, pool.mem + block * pool.bytes, poison,
				  pool.bytes);
		ck_assert_int_eq(pool.ops->wait(pool.ctx), 0);
	} else {
		memcpy(pool.mem + block * pool.bytes, poison, pool.bytes);
	}
	free(poison);
}

static void block_put(u32 entry)
{
	const u32 block = (u32)(entry * POOL_UNIT / pool.bytes);

	block_poison(block);
	pool.free[pool.nr_free++] = block;
}

static u32 block_get(void)
{
	u32 at, block;

	ck_assert_uint_gt(pool.nr_free, 0);
	at = rnd(&seed) % pool.nr_free;
	block = pool.free[at];
	pool.free[at] = pool.free[--pool.nr_free];
	pool.nr_taken++;
	return (u32)(block * pool.bytes / POOL_UNIT);
}

static void blocks_create(const struct model *model, const u32 *tokens)
{
	const struct model_info *info = model_info(model);
	u64 mine;
	u32 i, g;

	pool.bytes = 0;
	pool.kv.unit = POOL_UNIT;
	for (g = 0; g < info->nr_groups; g++) {
		pool.kv.block_tokens[g] = tokens[g];
		pool.kv.layer_stride[g] =
			ALIGN_UP(tokens[g] * model_layer_bytes(info), 128);
		mine = pool.kv.layer_stride[g] * info->group[g].layers;
		pool.bytes = max(pool.bytes, mine);
	}
	pool.mem = pool.ops ?
		pool.ops->mem_alloc(pool.ctx, pool.bytes * NR_BLOCKS) :
		aligned_alloc(POOL_UNIT, pool.bytes * NR_BLOCKS);
	ck_assert_ptr_nonnull(pool.mem);
	pool.kv.base = pool.mem;
	pool.nr_free = pool.nr_taken = 0;
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

/* A sequence of the golden tokens. */
struct paged {
	u32	table[GROUPS][NR_ALL / 16 + 1];
	u32	nr[GROUPS];	/* entries */
	u32	at;		/* tokens computed */
};

/* Drop the blocks that no token from s->at on sees. */
static void drop_behind(const struct model_info *info, struct paged *s, u32 g)
{
	const u32 bt = pool.kv.block_tokens[g], window = info->group[g].window;
	u32 i;

	for (i = 0; window && i < s->nr[g]; i++) {
		if ((i + 1) * bt + window > s->at + 1)
			break;
		if (s->table[g][i] != KVMM_NO_INDEX)
			block_put(s->table[g][i]);
		s->table[g][i] = KVMM_NO_INDEX;
	}
}

/* Move the last block to another place, as a copy on write does. */
static void move_last(struct model *model, struct paged *s, u32 g)
{
	const u32 tokens = s->at % pool.kv.block_tokens[g];
	u32 *last, to;

	if (!tokens || rnd(&seed) % 4)
		return;
	last = &s->table[g][s->nr[g] - 1];
	to = block_get();
	model_copy_blocks(model, &pool.kv, g, last, &to, &tokens, 1);
	block_put(*last);
	*last = to;
}

/* Prepare up to @n tokens of @s. */
static struct model_seq_in prepare(struct model *model, struct paged *s, u32 n)
{
	const struct model_info *info = model_info(model);
	struct model_seq_in in = {
		.tokens = golden.tokens + s->at, .start = s->at,
	};
	u32 g;

	in.nr_tokens = in.want_logits = min(n, NR_ALL - s->at);
	for (g = 0; g < info->nr_groups; g++) {
		drop_behind(info, s, g);
		move_last(model, s, g);
		while (s->nr[g] * pool.kv.block_tokens[g] < s->at + in.nr_tokens)
			s->table[g][s->nr[g]++] = block_get();
		in.table[g] = s->table[g];
	}
	return in;
}

static struct model *load(const char *kernel, enum model_kv_type type,
			  bool window_group)
{
	const struct model_opts opts = {
		.dummy = true, .mode = MODEL_EXACT, .kernel = kernel,
		.kv_type = type, .nr_threads = 1, .max_rows = 160,
		.max_seqs = NR_SEQS, .window_group = window_group,
	};
	struct model_error err;
	struct model *model;

	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	return model;
}

/* Run both sequences to their ends; @want: the logits expected, or NULL. */
static float *run_all(struct model *model, const u32 *tokens, const float *want)
{
	float *logits = calloc(NR_ALL, VOCAB * sizeof(*logits));
	float *step = calloc((size_t)NR_SEQS * CHUNK, VOCAB * sizeof(*step)), *row;
	struct paged s[NR_SEQS] = { 0 };
	struct model_seq_in in[NR_SEQS];
	u32 i, g, nr;

	blocks_create(model, tokens);
	while (s[0].at < NR_ALL || s[1].at < NR_ALL) {
		for (i = nr = 0; i < NR_SEQS; i++)
			if (s[i].at < NR_ALL)
				in[nr++] = prepare(model, &s[i], rnd(&seed) % 3 ?
						   1 : 1 + rnd(&seed) % CHUNK);
		ck_assert_int_eq(model_forward(model, &pool.kv, in, nr, step), 0);
		for (i = nr = 0, row = step; i < NR_SEQS; i++) {
			if (s[i].at == NR_ALL)
				continue;
			g = in[nr++].nr_tokens;
			if (want && memcmp(row, want + (size_t)s[i].at * VOCAB,
					   (size_t)g * VOCAB * sizeof(*row)))
				ck_abort_msg("%s: other bits at positions %u to %u",
					     case_dir, s[i].at, s[i].at + g - 1);
			memcpy(logits + (size_t)s[i].at * VOCAB, row,
			       (size_t)g * VOCAB * sizeof(*row));
			row += (size_t)g * VOCAB;
			s[i].at += g;
		}
	}
	blocks_destroy();
	free(step);
	return logits;
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

static void check_case(const char *kernel, enum model_kv_type type)
{
	struct model *one = load(kernel, type, false);
	struct model *two = load(kernel, type, true);
	const struct model_info *info = model_info(two);
	const float *p;
	float *want, *got;
	/* A stand-in is slow. */
	const u32 nr = pool.ops ? (u32)hosted_rounds(1, ARRAY_SIZE(sizes)) :
				  (u32)ARRAY_SIZE(sizes);
	u32 i;

	ck_assert_uint_eq(model_info(one)->nr_groups, 1);
	ck_assert_uint_eq(model_info(one)->group[0].layers, info->nr_layers);
	ck_assert_uint_eq(info->nr_groups, 2);
	ck_assert_uint_eq(info->group[0].window, 0);
	ck_assert_uint_eq(info->group[1].window, WINDOW);
	ck_assert_uint_eq(info->group[0].layers + info->group[1].layers,
			  info->nr_layers);
	want = run_all(one, sizes[2], NULL);
	for (i = 0; i < nr; i++) {
		got = run_all(two, sizes[i], want);
		free(got);
	}
	for (p = want; p < want + (size_t)NR_ALL * VOCAB; p++)
		ck_assert_msg(fabsf(*p) < 1e30f, "no number in the logits");
	free(want);
	model_free(one);
	model_free(two);
}

START_TEST(test_same_bits)
{
	static const enum model_kv_type types[] = {
		MODEL_KV_AUTO, MODEL_KV_BF16, MODEL_KV_INT8,
	};
	const char *kernel = kernels[_i / ARRAY_SIZE(windowed)];

	seed = _i + 1;
	device_open(kernel);
	golden_read(windowed[_i % ARRAY_SIZE(windowed)]);
	config_write(NULL, NULL);
	check_case(kernel, types[_i % ARRAY_SIZE(types)]);
	kern_close(pool.ops, pool.ctx);
}
END_TEST

/* A model with layers of one kind alone, or with short sequences, has one group. */
START_TEST(test_one_group)
{
	static const char * const names[] = { "llama", "mistral", "phi3", "gemma3" };
	struct model_opts opts = {
		.dummy = true, .judge = true, .window_group = true,
	};
	struct model_error err;
	struct model *model;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		golden_read(names[i]);
		config_write(NULL, NULL);
		/* The last one is as long as its window. */
		opts.max_len = i + 1 == ARRAY_SIZE(names) ? WINDOW : 0;
		ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), 0);
		ck_assert_uint_eq(model_info(model)->nr_groups, 1);
		ck_assert_uint_eq(model_info(model)->group[0].layers,
				  model_info(model)->nr_layers);
		ck_assert_uint_eq(model_info(model)->group[0].window, 0);
		model_free(model);
	}
}
END_TEST

/* A batch without the table of a group is refused. */
START_TEST(test_tables)
{
	struct paged s = { .at = 0 };
	float logits[VOCAB];
	struct model_seq_in in = { 0 };
	struct model *model;

	seed = 5;
	device_open("cpu");
	golden_read("gemma3");
	config_write(NULL, NULL);
	model = load("cpu", MODEL_KV_AUTO, true);
	blocks_create(model, sizes[1]);
	in = prepare(model, &s, 1);
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), 0);
	in.table[1] = NULL;
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), -EINVAL);
	in.table[1] = s.table[1];
	pool.kv.block_tokens[1] = 24;
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), -EINVAL);
	blocks_destroy();
	model_free(model);
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
	Suite *s = suite_create("model_groups");
	TCase *tc = tcase_create("groups");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_same_bits, 0,
			    hosted_rounds(10, ARRAY_SIZE(windowed) *
					  ARRAY_SIZE(kernels)));
	tcase_add_test(tc, test_one_group);
	tcase_add_test(tc, test_tables);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
