// SPDX-License-Identifier: Apache-2.0
/*
 * load.c - a model folder to a struct tokenizer
 *
 * Reads tokenizer.json, then tokenizer_config.json if there is one.  A
 * tokenizer.json is a pipeline of typed parts, and a part that is silently
 * left out gives ids that are only mostly right, which shows as a model that
 * is only mostly good.  So every part is either done exactly or refused by
 * name; of the parts' options, those that change ids are checked likewise.
 * "truncation" and "padding" are not: limits are the engine's.
 *
 * Numbers are read as reals: some files hold integers of 31 digits.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"

/* Make a line of @s: no control characters, nothing that is not UTF-8. */
static void line_clean(char *s)
{
	u8 *p = (u8 *)s;
	size_t left = strlen(s), len;

	while (left) {
		if (utf8_step(p, left, &len) != UTF8_CHAR)
			memset(p, '?', len);
		else if (*p < 0x20 || *p == 0x7f)
			*p = ' ';
		p += len;
		left -= len;
	}
}

int load_fail(const struct load_ctx *ctx, int code, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (!ctx->err_size)
		return code;
	n = snprintf(ctx->err, ctx->err_size, "%s: ", ctx->path);
	if (n >= 0 && (size_t)n < ctx->err_size) {
		va_start(ap, fmt);
		vsnprintf(ctx->err + n, ctx->err_size - n, fmt, ap);
		va_end(ap);
	}
	line_clean(ctx->err);
	return code;
}

bool load_id(const json_t *v, u32 *id)
{
	double x = json_number_value(v);

	if (!json_is_number(v) || !(x >= 0 && x < TOKENIZER_ID_LIMIT) ||
	    x != floor(x))
		return false;
	*id = (u32)x;
	return true;
}

/* Parse the file at @ctx->path; *@root is NULL if it is not there. */
static int json_open(struct load_ctx *ctx, json_t **root)
{
	json_error_t e;
	FILE *f;

	*root = NULL;
	f = fopen(ctx->path, "re");
	if (!f && errno == ENOENT)
		return 0;
	if (!f)
		return load_fail(ctx, -errno, "%s", strerror(errno));
	*root = json_loadf(f, JSON_DECODE_INT_AS_REAL | JSON_REJECT_DUPLICATES,
			   &e);
	fclose(f);
	if (!*root)
		return load_fail(ctx, -EINVAL, "line %d: %s: "
				 "copy the file again", e.line, e.text);
	if (!json_is_object(*root)) {
		json_decref(*root);
		*root = NULL;
		return load_fail(ctx, -EINVAL, "it holds no JSON object");
	}
	return 0;
}

/* The "type" of a part, "null" if there is no part, "?" if it has no type. */
static const char *type_of(const json_t *part)
{
	const char *s = json_string_value(json_object_get(part, "type"));

	if (!part || json_is_null(part))
		return "null";
	return s ? s : "?";
}

static bool is_type(const json_t *part, const char *type)
{
	return !strcmp(type_of(part), type);
}

static int refuse(const struct load_ctx *ctx, const char *what,
		  const json_t *part)
{
	return load_fail(ctx, -EOPNOTSUPP, "%s of type %.40s is not supported",
			 what, type_of(part));
}

/* An option that must be absent, null, false, 0 or empty. */
static int must_be_off(const struct load_ctx *ctx, const json_t *part,
		       const char *key)
{
	const json_t *v = json_object_get(part, key);

	if (!v || json_is_null(v) || json_is_false(v) ||
	    (json_is_string(v) && !json_string_length(v)) ||
	    (json_is_number(v) && json_number_value(v) == 0))
		return 0;
	return load_fail(ctx, -EOPNOTSUPP, "%s with %s is not supported",
			 type_of(part), key);
}

static int load_model(struct load_ctx *ctx, const json_t *model)
{
	static const char * const off[] = {
		"dropout", "continuing_subword_prefix", "end_of_word_suffix",
		"byte_fallback",
	};
	size_t i;
	int err;

	if (!is_type(model, "BPE"))
		return refuse(ctx, "model", model);
	for (i = 0; i < ARRAY_SIZE(off); i++) {
		err = must_be_off(ctx, model, off[i]);
		if (err)
			return err;
	}
	ctx->tok->ignore_merges =
		json_is_true(json_object_get(model, "ignore_merges"));
	return vocab_load(ctx, model);
}

static int stage_add(struct load_ctx *ctx, const char *pattern)
{
	struct tokenizer *tok = ctx->tok;
	char why[160];
	int err;

	if (tok->nr_stages == TOKENIZER_MAX_STAGES)
		return load_fail(ctx, -EOPNOTSUPP, "pre_tokenizer: more than "
				 "%d splits", TOKENIZER_MAX_STAGES);
	err = pattern_compile(pattern, &tok->stages[tok->nr_stages], why,
			      sizeof(why));
	if (err)
		return load_fail(ctx, err, "pre_tokenizer: pattern: %s", why);
	tok->nr_stages++;
	return 0;
}

static int load_split(struct load_ctx *ctx, const json_t *part)
{
	const json_t *pattern = json_object_get(part, "pattern");
	const char *regex, *behavior;
	int err;

	regex = json_string_value(json_object_get(pattern, "Regex"));
	behavior = json_string_value(json_object_get(part, "behavior"));
	if (!regex)
		return load_fail(ctx, -EOPNOTSUPP, "pre_tokenizer: Split "
				 "without a Regex is not supported");
	if (!behavior || strcmp(behavior, "Isolated"))
		return load_fail(ctx, -EOPNOTSUPP, "pre_tokenizer: Split with "
				 "behavior %.40s is not supported",
				 behavior ? behavior : "?");
	err = must_be_off(ctx, part, "invert");
	return err ? err : stage_add(ctx, regex);
}

static int load_byte_level(struct load_ctx *ctx, const json_t *part)
{
	const json_t *use_regex = json_object_get(part, "use_regex");
	int err = must_be_off(ctx, part, "add_prefix_space");

	if (err || json_is_false(use_regex))
		return err;
	return stage_add(ctx, pattern_gpt2);
}

/* ByteLevel, or a Sequence of Splits that ByteLevel ends. */
static int load_pre_tokenizer(struct load_ctx *ctx, const json_t *part)
{
	const json_t *list = json_object_get(part, "pretokenizers");
	size_t nr = json_array_size(list), i;
	int err;

	if (is_type(part, "ByteLevel"))
		return load_byte_level(ctx, part);
	if (!is_type(part, "Sequence"))
		return refuse(ctx, "pre_tokenizer", part);

	for (i = 0; i + 1 < nr; i++) {
		const json_t *v = json_array_get(list, i);

		if (!is_type(v, "Split"))
			return refuse(ctx, "pre_tokenizer", v);
		err = load_split(ctx, v);
		if (err)
			return err;
	}
	if (!nr || !is_type(json_array_get(list, nr - 1), "ByteLevel"))
		return load_fail(ctx, -EOPNOTSUPP, "pre_tokenizer: a Sequence "
				 "that ByteLevel does not end is not supported");
	return load_byte_level(ctx, json_array_get(list, nr - 1));
}

/* Id of the one token a SpecialToken of a template stands for. */
static int template_token(struct load_ctx *ctx, const json_t *part,
			  const json_t *special, u32 *id)
{
	const char *name = json_string_value(json_object_get(special, "id"));
	const json_t *ids = json_object_get(json_object_get(json_object_get(
		part, "special_tokens"), name ? name : ""), "ids");
	const char *bytes;

	if (json_array_size(ids) != 1 ||
	    !load_id(json_array_get(ids, 0), id) ||
	    tokenizer_decode(ctx->tok, *id, &bytes) < 0)
		return load_fail(ctx, -EINVAL, "post_processor: special token "
				 "%.40s is no single token", name ? name : "?");
	return 0;
}

/* A template may put one token before the text and do nothing else. */
static int load_template(struct load_ctx *ctx, const json_t *part)
{
	const json_t *single = json_object_get(part, "single");
	const json_t *first = json_array_get(single, 0), *special;
	size_t nr = json_array_size(single);

	special = json_object_get(first, "SpecialToken");
	if (nr != (special ? 2 : 1) ||
	    !json_object_get(json_array_get(single, nr - 1), "Sequence"))
		return load_fail(ctx, -EOPNOTSUPP, "post_processor: a template "
				 "other than \"BOS text\" is not supported");
	if (!special)
		return 0;
	ctx->tok->adds_bos = true;
	return template_token(ctx, part, special, &ctx->tok->bos);
}

static int load_post_processor(struct load_ctx *ctx, const json_t *part)
{
	const json_t *list = json_object_get(part, "processors");
	size_t i;
	int err = 0;

	if (is_type(part, "null") || is_type(part, "ByteLevel"))
		return 0;
	if (is_type(part, "TemplateProcessing"))
		return load_template(ctx, part);
	if (!is_type(part, "Sequence"))
		return refuse(ctx, "post_processor", part);
	for (i = 0; !err && i < json_array_size(list); i++) {
		const json_t *v = json_array_get(list, i);

		if (is_type(v, "TemplateProcessing"))
			err = load_template(ctx, v);
		else if (!is_type(v, "ByteLevel"))
			err = refuse(ctx, "post_processor", v);
	}
	return err;
}

/* Some models are written with a sequence of no normalizers. */
static bool is_empty_normalizer(const json_t *part)
{
	const json_t *list = json_object_get(part, "normalizers");

	return is_type(part, "Sequence") && json_is_array(list) &&
	       !json_array_size(list);
}

static int load_parts(struct load_ctx *ctx, const json_t *root)
{
	const json_t *model = json_object_get(root, "model");
	const json_t *part;
	int err;

	part = json_object_get(root, "normalizer");
	if (!is_type(part, "null") && !is_empty_normalizer(part))
		return refuse(ctx, "normalizer", part);
	part = json_object_get(root, "decoder");
	if (!is_type(part, "ByteLevel"))
		return refuse(ctx, "decoder", part);

	err = load_model(ctx, model);
	if (!err)
		err = vocab_load_added(ctx, json_object_get(root,
					"added_tokens"), model);
	if (!err && vocab_index_build(ctx->tok))
		err = load_fail(ctx, -ENOMEM, "out of memory");
	if (!err)
		err = load_pre_tokenizer(ctx, json_object_get(root,
					 "pre_tokenizer"));
	if (!err)
		err = load_post_processor(ctx, json_object_get(root,
					  "post_processor"));
	return err;
}

/* The token that a key of the config names: a string, or an added token. */
static int config_token(struct load_ctx *ctx, const json_t *root,
			const char *key, u32 *id)
{
	const json_t *v = json_object_get(root, key);
	const char *text;

	if (json_is_object(v))
		v = json_object_get(v, "content");
	if (!v || json_is_null(v))
		return 0;
	text = json_string_value(v);
	*id = text ? tokenizer_find(ctx->tok, text, strlen(text)) :
		     TOKENIZER_NO_ID;
	if (*id == TOKENIZER_NO_ID)
		return load_fail(ctx, -EINVAL, "%s \"%.40s\" is no token of "
				 "tokenizer.json", key, text ? text : "?");
	return 0;
}

static int load_config(struct load_ctx *ctx, const json_t *root)
{
	const json_t *add = json_object_get(root, "add_bos_token");
	struct tokenizer *tok = ctx->tok;
	u32 bos = TOKENIZER_NO_ID;
	int err;

	if (json_is_true(json_object_get(root, "add_eos_token")))
		return load_fail(ctx, -EOPNOTSUPP, "add_eos_token is not "
				 "supported");
	err = config_token(ctx, root, "bos_token", &bos);
	if (!err)
		err = config_token(ctx, root, "eos_token", &tok->eos);
	if (err)
		return err;

	/* What the template puts first stays, unless the config decides. */
	if (json_is_boolean(add))
		tok->adds_bos = json_is_true(add);
	if (bos != TOKENIZER_NO_ID && (json_is_boolean(add) || !tok->adds_bos))
		tok->bos = bos;
	if (tok->adds_bos && tok->bos == TOKENIZER_NO_ID)
		return load_fail(ctx, -EINVAL, "add_bos_token is set, but "
				 "there is no bos_token");
	return 0;
}

/* Read DIR/NAME and hand it to @parse. */
static int load_file(struct load_ctx *ctx, const char *dir, const char *name,
		     bool optional,
		     int (*parse)(struct load_ctx *, const json_t *))
{
	char *path;
	json_t *root;
	int err;

	if (asprintf(&path, "%s/%s", dir, name) < 0) {
		ctx->path = name;
		return load_fail(ctx, -ENOMEM, "out of memory");
	}
	ctx->path = path;
	err = json_open(ctx, &root);
	if (!err && root)
		err = parse(ctx, root);
	else if (!err && !optional)
		err = load_fail(ctx, -ENOENT, "no such file: name a model "
				"folder in Hugging Face's format");
	json_decref(root);
	free(path);
	return err;
}

int tokenizer_load(const char *dir, struct tokenizer **out, char *err,
		   size_t err_size)
{
	struct load_ctx ctx = { .err = err, .err_size = err_size };
	int ret;

	ctx.tok = calloc(1, sizeof(*ctx.tok));
	if (!ctx.tok) {
		ctx.path = dir;
		return load_fail(&ctx, -ENOMEM, "out of memory");
	}
	ctx.tok->bos = TOKENIZER_NO_ID;
	ctx.tok->eos = TOKENIZER_NO_ID;

	ret = load_file(&ctx, dir, "tokenizer.json", false, load_parts);
	if (!ret)
		ret = load_file(&ctx, dir, "tokenizer_config.json", true,
				load_config);
	if (ret) {
		tokenizer_free(ctx.tok);
		return ret;
	}
	*out = ctx.tok;
	return 0;
}
