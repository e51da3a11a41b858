// SPDX-License-Identifier: Apache-2.0
/*
 * load.c - load a tokenizer from a model folder or a GGUF file
 *
 * Reads tokenizer.json, or its substitute (load_pair.c), then
 * tokenizer_config.json if there is one; of a GGUF file, see load_gguf.c.  A
 * tokenizer.json is a pipeline of typed parts.  If a part were silently left
 * out, most ids would be right and some wrong, and the model would be somewhat
 * worse.  So every part is either supported exactly or refused by name.
 * Options of the parts that change ids are checked in the same way.
 * "truncation" and "padding" are not: the engine has limits of its own.
 *
 * Numbers are read as reals: some files hold integers of 31 digits.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "runtime/lib/folder.h"
#include "runtime/lib/gguf.h"
#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"

/* The largest real files have 35 MB. */
#define FILE_MAX	(256ul << 20)

/* These have 2 million; parsing this many takes a gigabyte at worst. */
#define VALUES_MAX	(16u << 20)

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
	utf8_clean_line(ctx->err);
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

int load_no_memory(const struct load_ctx *ctx)
{
	return load_fail(ctx, -ENOMEM, "out of memory");
}

int load_file(struct load_ctx *ctx, const char *dir, const char *name,
	      char **text, size_t *len)
{
	int err;

	ctx->path = ctx->path_buf;
	if (snprintf(ctx->path_buf, sizeof(ctx->path_buf), "%s/%s", dir, name)
	    >= (int)sizeof(ctx->path_buf))
		return load_fail(ctx, -ENAMETOOLONG, "%s",
				 strerror(ENAMETOOLONG));
	err = folder_read(ctx->path, FILE_MAX, text, len);
	if (err == -EINVAL || err == -EFBIG)
		return load_fail(ctx, -EINVAL, "not a regular file of at most "
				 "%lu MB: copy the model again",
				 FILE_MAX >> 20);
	if (err == -EUCLEAN)
		return load_fail(ctx, -EINVAL, FOLDER_POINTER);
	if (err == -ENOENT)
		return load_fail(ctx, err, "no such file: name a model folder "
				 "in Hugging Face's format");
	return err ? load_fail(ctx, err, "%s", strerror(-err)) : 0;
}

int load_file_json(struct load_ctx *ctx, const char *dir, const char *name,
		   json_t **root)
{
	json_error_t e = { .line = 0 };
	char *text;
	size_t len;
	bool many;
	int err;

	*root = NULL;
	err = load_file(ctx, dir, name, &text, &len);
	if (err)
		return err == -ENOENT ? 0 : err;
	many = folder_json_too_many(text, len, VALUES_MAX);
	if (!many)
		*root = json_loadb(text, len, JSON_DECODE_INT_AS_REAL |
				   JSON_REJECT_DUPLICATES, &e);
	free(text);
	if (many)
		return load_fail(ctx, -EINVAL, "more than %u values: copy the "
				 "file again", VALUES_MAX);
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

/* An option that must be absent, null, false, 0 or empty. */
static int must_be_off(const struct load_ctx *ctx, const struct part *p,
		       const char *key)
{
	const json_t *v = json_object_get(p->json, key);

	if (!v || json_is_null(v) || json_is_false(v) ||
	    (json_is_string(v) && !json_string_length(v)) ||
	    (json_is_number(v) && json_number_value(v) == 0))
		return 0;
	return part_fail(ctx, p, -EOPNOTSUPP, "%s is not supported", key);
}

static int load_model(struct load_ctx *ctx, const struct part *p)
{
	static const char * const off[] = {
		"dropout", "continuing_subword_prefix", "end_of_word_suffix",
	};
	struct tokenizer *tok = ctx->tok;
	size_t i;
	int err;

	/* Files from before 2021 have no type: a model with merges is BPE. */
	if (!part_is(p, "BPE") &&
	    (json_object_get(p->json, "type") ||
	     !json_object_get(p->json, "merges")))
		return part_refuse(ctx, p);
	err = part_keys(ctx, p, "dropout unk_token continuing_subword_prefix "
			"end_of_word_suffix fuse_unk byte_fallback "
			"ignore_merges vocab merges");
	for (i = 0; i < ARRAY_SIZE(off) && !err; i++)
		err = must_be_off(ctx, p, off[i]);
	if (!err)
		err = part_bool(ctx, p, "fuse_unk", &tok->fuse_unk);
	if (!err)
		err = part_bool(ctx, p, "byte_fallback", &tok->byte_fallback);
	if (!err)
		err = part_bool(ctx, p, "ignore_merges", &tok->ignore_merges);
	return err ? err : vocab_load(ctx, p->json);
}

/*
 * The spelling of pieces must be known before the vocabulary is read, and the
 * normalizer before the added tokens that pass through it.
 */
int load_parts(struct load_ctx *ctx, const json_t *root)
{
	const struct part all = { .json = root, .place = "" };
	struct part norm = part_inner(&all, "normalizer", -1);
	struct part pre = part_inner(&all, "pre_tokenizer", -1);
	struct part model = part_inner(&all, "model", -1);
	struct part post = part_inner(&all, "post_processor", -1);
	struct part dec = part_inner(&all, "decoder", -1);
	int err;

	err = part_keys(ctx, &all, "version truncation padding added_tokens "
			"normalizer pre_tokenizer post_processor decoder "
			"model");
	if (!err)
		err = load_normalizer(ctx, &norm);
	if (!err)
		err = load_pre_tokenizer(ctx, &pre);
	if (!err)
		err = load_decoder(ctx, &dec);
	if (!err)
		err = load_model(ctx, &model);
	if (!err)
		err = vocab_index_build(ctx);
	if (!err)
		err = added_load_list(ctx, json_object_get(root,
					"added_tokens"), model.json);
	if (!err)
		err = load_post_processor(ctx, &post);
	if (!err && ctx->tok->before.nr)
		ctx->tok->bos = ctx->tok->before.ids[0];
	return err;
}

/* The token named by a key of the config: a string, or an added token. */
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

/*
 * add_bos_token and add_eos_token: the post_processor's tokens at that end stay
 * unless the config decides; if the config only says that there is one, it is
 * the token that the config names.
 */
static int config_around(struct load_ctx *ctx, const json_t *root,
			 const char *key, struct around *a, u32 id)
{
	const json_t *add = json_object_get(root, key);

	if (!json_is_boolean(add))
		return 0;
	if (json_is_false(add) || id != TOKENIZER_NO_ID)
		a->nr = 0;
	if (json_is_true(add) && !a->nr &&
	    (id == TOKENIZER_NO_ID || !around_add(a, id, false)))
		return load_fail(ctx, -EINVAL, "%s is set, but there is no "
				 "%.3s_token", key, key + strlen("add_"));
	return 0;
}

static int load_config(struct load_ctx *ctx, const json_t *root)
{
	struct tokenizer *tok = ctx->tok;
	u32 bos = TOKENIZER_NO_ID;
	int err;

	err = added_load_map(ctx, json_object_get(root,
						  "added_tokens_decoder"));
	if (!err)
		err = config_token(ctx, root, "bos_token", &bos);
	if (!err)
		err = config_token(ctx, root, "eos_token", &tok->eos);
	if (!err)
		err = config_around(ctx, root, "add_bos_token", &tok->before,
				    bos);
	if (!err)
		err = config_around(ctx, root, "add_eos_token", &tok->after,
				    tok->eos);
	if (err)
		return err;
	if (tok->before.nr)
		tok->bos = tok->before.ids[0];
	else if (bos != TOKENIZER_NO_ID)
		tok->bos = bos;
	return 0;
}

static int load_tokens(struct load_ctx *ctx, const char *dir)
{
	json_t *root;
	int err;

	if (gguf_is_file(dir))
		return load_gguf(ctx, dir);
	err = load_file_json(ctx, dir, "tokenizer.json", &root);
	if (!err)
		err = root ? load_parts(ctx, root) :
			     load_vocab_merges(ctx, dir);
	json_decref(root);
	if (err)
		return err;
	err = load_file_json(ctx, dir, "tokenizer_config.json", &root);
	if (!err && root)
		err = load_config(ctx, root);
	json_decref(root);
	return err;
}

static u64 hash_key_draw(void)
{
	u64 key;

	/*
	 * Early in a boot there may be no random number; then use a constant.
	 */
	if (getrandom(&key, sizeof(key), GRND_NONBLOCK) != sizeof(key))
		key = 0x9e3779b97f4a7c15ull;
	return key | 1;
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
	ctx.tok->unk = TOKENIZER_NO_ID;
	ctx.tok->eos = TOKENIZER_NO_ID;
	ctx.tok->hash_key = hash_key_draw();

	ret = load_tokens(&ctx, dir);
	if (!ret) {
		ctx.path = dir;
		ret = vocab_texts_build(&ctx);
	}
	if (ret) {
		tokenizer_free(ctx.tok);
		return ret;
	}
	*out = ctx.tok;
	return 0;
}
