// SPDX-License-Identifier: Apache-2.0
/*
 * config_arch.c - find the family of a configuration, or say which kind of model it is
 *
 * A name that is in no row is refused.  If its ending tells that the model writes no text,
 * or reads more than text, the refusal says so.  Of a model that writes text, it lists the
 * known names.
 */
#include <stdio.h>
#include <unistd.h>

#include "runtime/model/config_read.h"
#include "runtime/model/error.h"
#include "runtime/model/names.h"

#define MODULES_FILE	"modules.json"

/* Kinds by the end of the name. */
static const struct {
	const char	*end;
	const char	*kind;
} kinds[] = {
	{ "ForSequenceClassification", "a classifier or reward model, which "
	  "gives scores and no text" },
	{ "RewardModel", "a reward model, which gives scores and no text" },
	{ "ForTokenClassification", "a classifier of tokens, which gives "
	  "labels and no text" },
	{ "ForQuestionAnswering", "a model that marks answers in a text and "
	  "writes none" },
	{ "ForMultipleChoice", "a model that chooses an answer and writes "
	  "none" },
	{ "ForMaskedLM", "an encoder, which fills in single tokens and writes "
	  "no text" },
	{ "ForImageTextToText", "a vision model, which reads images beside "
	  "text" },
	{ "ForVision2Seq", "a vision model, which reads images beside text" },
	{ "ForSpeechSeq2Seq", "a speech model, which reads sound" },
	{ "ForConditionalGeneration", "an encoder-decoder model, or one that "
	  "reads images or sound" },
	{ "EncoderDecoderModel", "an encoder-decoder model" },
	{ "Model", "an embedding model, which gives vectors and no text" },
};

/* The kind of the model, if it is no decoder of text alone; else NULL. */
static const char *arch_kind(struct mj_file *f, const char *arch)
{
	u32 i;

	if (json_is_object(json_object_get(f->root, "vision_config")))
		return "a vision model, which reads images beside text";
	if (json_is_object(json_object_get(f->root, "audio_config")))
		return "a model that reads sound beside text";
	if (json_is_true(json_object_get(f->root, "is_encoder_decoder")))
		return "an encoder-decoder model";
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (name_ends(arch, kinds[i].end) &&
		    !name_ends(arch, "LMHeadModel"))
			return kinds[i].kind;
	return NULL;
}

static void arch_refuse(struct mj_file *f, const char *arch)
{
	const char *kind = arch_kind(f, arch);
	char known[512];

	if (kind) {
		mj_fail(f, -EOPNOTSUPP, "architectures", "\"%.60s\" is %s: use "
			"a model that writes text from text (...ForCausalLM)",
			arch, kind);
		return;
	}
	config_family_list(known, sizeof(known));
	mj_fail(f, -EOPNOTSUPP, "architectures", "\"%.60s\" is not supported: "
		"use a model of %s (%s, where no other ending is given)", arch,
		known, FAMILY_ENDING);
}

const struct config_family *config_read_family(struct mj_file *f,
					       struct model_config *cfg)
{
	json_t *list = mj_top(f, "architectures");
	const char *arch = json_string_value(json_array_get(list, 0));
	const struct config_family *family;

	if (!arch || json_array_size(list) != 1) {
		mj_fail(f, -EINVAL, "architectures", "is not a list of one "
			"name: copy the file again");
		return NULL;
	}
	family = config_family_find(arch, &cfg->arch);
	if (!family)
		arch_refuse(f, arch);
	return family;
}

int config_check_modules(const char *dir, struct model_error *err)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, MODULES_FILE);
	if (access(path, F_OK))
		return 0;
	return model_fail(err, -EOPNOTSUPP, "%s: is part of a model of "
			  "sentence-transformers, which gives vectors and no "
			  "text: use a model that writes text", path);
}
