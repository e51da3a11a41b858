// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_gguf_lies.c - GGUF files whose metadata makes no model
 *
 * A table: each row has the keys of a file (gguf_text.h says how to read them), the
 * errno and words of the message, which must be one line that begins with the file's
 * name.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/model/error.h"
#include "runtime/model/model.h"
#include "tests/tmp.h"
#include "tests/unit/gguf_text.h"

static char path[128];

static void setup(void)
{
	int fd = mkstemp(tmp_name(path, sizeof(path), "gguf"));

	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void teardown(void)
{
	unlink(path);
}

#define ARCH(name)	"$general.architecture w8 $" name " "
#define U32(key, n)	"$" key " w4 w" #n " "
#define F32(key, bits)	"$" key " w6 w" #bits " "
#define SIZES(a)	ARCH(a) U32(a ".block_count", 2)		\
			U32(a ".embedding_length", 64)			\
			U32(a ".context_length", 64)			\
			U32(a ".feed_forward_length", 64)		\
			U32(a ".attention.head_count", 4)		\
			F32(a ".attention.layer_norm_rms_epsilon", 0x3727c5ac)
/* Keys that are read behind the embedding; an embedding of 4 rows. */
#define EMBED		"$token_embd.weight w2 q64 q4 w0 q0 "
#define DATA		"/32 z1024"
#define EIGHT(a, more)	"G w3 q1 q8 " SIZES(a) more EMBED DATA
#define NINE(a, more)	"G w3 q1 q9 " SIZES(a) more EMBED DATA

static const struct {
	const char	*file;
	int		ret;
	const char	*words;
} lies[] = {
	{ GT_HEAD(0, 0), -EOPNOTSUPP, "general.architecture: \"\" is not" },
	{ GT_HEAD(0, 1) ARCH("bert"), -EOPNOTSUPP, "\"bert\" is not supported" },
	{ GT_HEAD(0, 1) ARCH("llama"), -EINVAL, "token_embd.weight: is missing" },
	/* The scale of scores is a divisor. */
	{ "G w3 q0 q2 " ARCH("gemma2") F32("gemma2.attention.scale", 0), -EINVAL,
	  "gemma2.attention.scale: 0 is no factor of scores" },
	{ "G w3 q0 q2 " ARCH("gemma3") F32("gemma3.attention.scale", 0), -EINVAL,
	  "gemma3.attention.scale: 0 is no factor of scores" },
	{ EIGHT("llama", U32("llama.magic", 1)), -EOPNOTSUPP,
	  "llama.magic: is not known for llama" },
	{ NINE("llama", U32("llama.expert_count", 8)
	  U32("llama.expert_gating_func", 2)), -EOPNOTSUPP,
	  "llama.expert_gating_func: 2 is not supported" },
	{ EIGHT("llama", U32("llama.attention.value_length", 32)), -EOPNOTSUPP,
	  "value_length: 32 is not supported beside keys of 16" },
	{ EIGHT("llama", "$llama.attention.causal w7 b0 "), -EOPNOTSUPP,
	  "attention.causal: false is not" },
	{ EIGHT("llama", F32("llama.rope.freq_base", 0x7fc00000)), -EINVAL,
	  "llama.rope.freq_base: is no number" },
	{ EIGHT("llama", U32("llama.rope.dimension_count", 32)), -EINVAL,
	  "dimension_count: 32 is above the size of a head, 16" },
	/* A message names the key of the file, not that of a config.json. */
	{ EIGHT("llama", "$llama.rope.scaling.type w8 $linear "), -EINVAL,
	  "llama.rope.scaling.factor: is missing" },
	{ NINE("llama", "$llama.rope.scaling.type w8 $linear "
	  F32("llama.rope.scaling.factor", 0)), -EINVAL,
	  "llama.rope.scaling.factor: 0 is outside" },
};

START_TEST(test_lies)
{
	const struct model_opts opts = { .judge = true };
	struct model_error err = { .text = "" };
	struct model *model = NULL;

	gt_write(path, lies[_i].file);
	ck_assert_msg(model_load(path, &opts, &model, &err) == lies[_i].ret &&
		      strstr(err.text, lies[_i].words), "%s", err.text);
	ck_assert_int_eq(strncmp(err.text, path, strlen(path)), 0);
	ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("model_gguf_lies");
	TCase *tc = tcase_create("lies");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_lies, 0, ARRAY_SIZE(lies));
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
