// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_more.c - keys that one family has, or several similar ones
 *
 * Keys that are read and their meaning; keys that contradict each other or that the
 * decoder has no switch for; names of models that write no text.  Each refusal is one
 * line.  What the switches compute is in check_model_golden.c.
 */
#include <jansson.h>

#include <errno.h>

#include "tests/unit/config_change.h"

static int read_change(const char *of, const char *key, const char *value)
{
	write_change(&(struct change){ of, key, value, 0, NULL });
	memset(&err, 0, sizeof(err));
	return model_config_read(fixture_dir, &cfg, &err);
}

static const struct change bad[] = {
	/* Names of models that write no text, or read more than text. */
	{ "llama", "architectures", "[\"LlamaForSequenceClassification\"]",
	  -EOPNOTSUPP, "architectures: \"LlamaForSequenceClassification\" is a "
	  "classifier or reward model, which gives scores and no text: use a "
	  "model that writes text from text" },
	{ "llama", "architectures", "[\"Qwen2ForRewardModel\"]", -EOPNOTSUPP,
	  "is a reward model" },
	{ "llama", "architectures", "[\"BertModel\"]", -EOPNOTSUPP,
	  "\"BertModel\" is an embedding model, which gives vectors and no "
	  "text" },
	{ "llama", "architectures", "[\"GPT2Model\"]", -EOPNOTSUPP,
	  "is an embedding model" },
	{ "llama", "architectures", "[\"RobertaForMaskedLM\"]", -EOPNOTSUPP,
	  "is an encoder" },
	{ "llama", "architectures", "[\"BertForTokenClassification\"]",
	  -EOPNOTSUPP, "is a classifier of tokens" },
	{ "llama", "architectures", "[\"T5ForConditionalGeneration\"]",
	  -EOPNOTSUPP, "is an encoder-decoder model, or one that reads images "
	  "or sound" },
	{ "llama", "architectures", "[\"LlavaForConditionalGeneration\"]",
	  -EOPNOTSUPP, "images" },
	{ "llama", "architectures", "[\"Idefics3ForVision2Seq\"]", -EOPNOTSUPP,
	  "is a vision model, which reads images beside text" },
	/* Causal models, and names that end alike, keep the list. */
	{ "llama", "architectures", "[\"FalconForCausalLM\"]", -EOPNOTSUPP,
	  "\"FalconForCausalLM\" is not supported: use a model of Llama" },
	{ "llama", "architectures", "[\"OpenAIGPTLMHeadModel\"]", -EOPNOTSUPP,
	  "is not supported: use a model of Llama" },
};

START_TEST(test_refuses)
{
	const struct change *c = &bad[_i];

	ck_assert_msg(read_change(c->of, c->key, c->value) == c->ret,
		      "%s: %s", c->key, err.text);
	ck_assert_msg(strstr(err.text, c->words) != NULL, "%s", err.text);
	ck_assert_ptr_nonnull(strstr(err.text, "/config.json: "));
	ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

/* Write a configuration of an unknown name with one more key. */
static int read_unknown(const char *arch, const char *more)
{
	FILE *f = dir_open("config.json", "w");

	fprintf(f, "{\"architectures\":[\"%s\"],%s}", arch, more);
	ck_assert_int_eq(fclose(f), 0);
	memset(&err, 0, sizeof(err));
	return model_config_read(fixture_dir, &cfg, &err);
}

/* Other keys tell the kind better than the end of a name. */
START_TEST(test_kinds)
{
	static const struct {
		const char	*more;
		const char	*words;
	} more[] = {
		{ "\"vision_config\":{}", "\"XForConditionalGeneration\" is a "
		  "vision model, which reads images beside text: use a model" },
		{ "\"audio_config\":{}", "is a model that reads sound" },
		{ "\"is_encoder_decoder\":true", "is an encoder-decoder model: "
		  "use" },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(more); i++) {
		ck_assert_int_eq(read_unknown("XForConditionalGeneration",
					      more[i].more), -EOPNOTSUPP);
		ck_assert_msg(strstr(err.text, more[i].words) != NULL, "%s",
			      err.text);
	}
	ck_assert_int_eq(read_unknown("Phi3VForCausalLM",
				      "\"vision_config\":{}"), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, "is a vision model"));
	/* All names fit the line. */
	ck_assert_int_eq(read_unknown("XForCausalLM", "\"a\":1"), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, ", Bamba (ForCausalLM, where"));
}
END_TEST

/* Some embedding models have the name of a decoder, and a further file. */
START_TEST(test_sentence_transformers)
{
	FILE *f;

	ck_assert_int_eq(read_change("qwen3", NULL, NULL), 0);
	f = dir_open("modules.json", "w");
	fputs("[]", f);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(read_change("qwen3", NULL, NULL), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, "modules.json: is part of a "
				     "model of sentence-transformers, which "
				     "gives vectors and no text"));
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

static Suite *more_suite(void)
{
	Suite *s = suite_create("model_more");
	TCase *tc = tcase_create("keys");

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_refuses, 0, ARRAY_SIZE(bad));
	tcase_add_test(tc, test_kinds);
	tcase_add_test(tc, test_sentence_transformers);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(more_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
