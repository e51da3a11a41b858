// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_null.c - kernels that compute nothing give legal logits
 */
#include <stdlib.h>

#include "kernels/kernels.h"
#include "tests/unit/model_fixture.h"

#define DEMO	"tests/data/demo-model"
#define ROWS	4u
#define ENDS	70u	/* positions tried */

static struct model *model;
static const struct model_info *info;
static float *logits;
static u32 ids[ENDS], table[ENDS];

static void setup(void)
{
	const struct model_opts opts = {
		.kernel = "null", .mode = MODEL_EXACT, .max_rows = 2 * ENDS,
	};
	struct model_error err;

	ck_assert_msg(!model_load(DEMO, &opts, &model, &err), "%s", err.text);
	info = model_info(model);
	logits = malloc((size_t)ROWS * info->nr_vocab * sizeof(*logits));
	ck_assert_ptr_nonnull(logits);
	memset(logits, 0x41, (size_t)ROWS * info->nr_vocab * sizeof(*logits));
}

static void teardown(void)
{
	model_free(model);
	free(logits);
}

/* There is no block to touch. */
static void forward(const struct model_seq_in *seqs, u32 nr)
{
	const struct model_kv kv = {
		.unit = 64, .block_tokens[0] = 16, .layer_stride[0] = 1 << 20,
	};

	ck_assert_int_eq(model_forward(model, &kv, seqs, nr, logits), 0);
}

static struct model_seq_in rows_at(u32 start, u32 nr, u32 want)
{
	return (struct model_seq_in){
		.tokens = ids, .nr_tokens = nr, .start = start,
		.table[0] = table, .want_logits = want,
	};
}

/* The one token that a row names. */
static u32 named(u32 nr)
{
	const float *row = logits + (size_t)nr * info->nr_vocab;
	u32 i, id = info->nr_vocab;

	for (i = 0; i < info->nr_vocab; i++) {
		if (row[i] == 0)
			continue;
		ck_assert_uint_eq(id, info->nr_vocab);
		ck_assert(row[i] > 60);
		id = i;
	}
	ck_assert_uint_lt(id, info->nr_vocab);
	for (i = 0; i < info->nr_eos; i++)
		ck_assert_uint_ne(id, info->eos_ids[i]);
	return id;
}

START_TEST(test_a_token_a_position)
{
	u32 want[ENDS], i, k, unlike = 0;

	for (i = 0; i < ENDS; i++) {
		const struct model_seq_in one = rows_at(i, 1, 1);

		forward(&one, 1);
		want[i] = named(0);
		unlike += i && want[i] != want[i - 1];
	}
	ck_assert_uint_gt(unlike, ENDS / 2);
	/* The token does not depend on row, chunk or batch. */
	for (i = 0; i + 8 < ENDS; i++) {
		const struct model_seq_in many[] = {
			rows_at(i, 1, 1), rows_at(2, 7, 0),
			rows_at(i, 8, 2), rows_at(0, i + 1, 1),
		};
		const u32 at[ROWS] = { i, i + 6, i + 7, i };

		forward(many, ARRAY_SIZE(many));
		for (k = 0; k < ROWS; k++)
			ck_assert_uint_eq(named(k), want[at[k]]);
	}
}
END_TEST

START_TEST(test_rows_that_were_spoilt)
{
	const struct model_seq_in one = rows_at(0, 1, 1);
	u32 i;

	forward(&one, 1);
	for (i = 0; i < info->nr_vocab; i++)
		logits[i] = 7;
	forward(&one, 1);
	named(0);
}
END_TEST

static void add_name(void *arg, const char *tag, const void *data, size_t len)
{
	bool *found = arg;

	*found |= !strcmp(tag, "kernel.name") && len == 4 &&
		  !memcmp(data, "null", 4);
}

/* The identity names these kernels, so no others share their KV. */
START_TEST(test_identity)
{
	bool found = false;
	u32 i;

	model_identity(model, add_name, &found);
	ck_assert(found);
	for (i = 0; kern_at(i); i++)
		ck_assert_ptr_ne(kern_at(i), kern_get("null"));
}
END_TEST

START_TEST(test_refuses_as_always)
{
	const struct model_kv kv = {
		.unit = 64, .block_tokens[0] = 16, .layer_stride[0] = 1 << 20,
	};
	const struct model_seq_in long_one = rows_at(info->max_len, 1, 1);

	ck_assert_int_eq(model_forward(model, &kv, &long_one, 1, logits),
			 -EINVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("model null");
	TCase *tc = tcase_create("null");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_a_token_a_position);
	tcase_add_test(tc, test_rows_that_were_spoilt);
	tcase_add_test(tc, test_identity);
	tcase_add_test(tc, test_refuses_as_always);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
