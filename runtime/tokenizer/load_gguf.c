// SPDX-License-Identifier: Apache-2.0
/*
 * load_gguf.c - the tokenizer of a GGUF file
 *
 * The metadata is turned into the tokenizer.json of the model's folder, in memory,
 * and that is read like any other.  So both give the same ids.
 *
 * tokenizer.ggml.model names the kind: "gpt2" is byte-level, "llama" is
 * SentencePiece with merges (its tokens have scores), "gemma4" is the same with
 * merges in the file.  SentencePiece's vocabularies are cut as by Llama 2: a mark
 * before each part of the text between special tokens, or no mark at all with
 * add_space_prefix off.  Mistral's since version 3, whose token 3 is [INST], have a
 * mark before the whole text alone.
 */
#include "runtime/tokenizer/load_gguf.h"

struct kind {
	const char	*name;
	bool		chars;		/* tokens are characters */
	bool		scores;		/* merges are in the scores */
	bool		prefix;		/* default of add_space_prefix */
};

static const struct kind kinds[] = {
	{ .name = "gpt2" },
	{ .name = "llama", .chars = true, .scores = true, .prefix = true },
	{ .name = "gemma4", .chars = true },
};

/* Other kinds, and how their tokenizers work. */
static const struct {
	const char	*name;
	const char	*method;
} others[] = {
	{ "bert", " (WordPiece)" }, { "t5", " (Unigram)" },
	{ "rwkv", " (the longest token)" }, { "plamo2", " (Unigram)" },
	{ "none", " (the file has no tokenizer)" },
	{ "no_vocab", " (the file has no tokenizer)" },
};

static bool str_is(const struct gguf_str *s, const char *text)
{
	return s->len == strlen(text) && !memcmp(s->at, text, s->len);
}

static int kind_find(const struct load_ctx *ctx, const struct gguf *g,
		     const struct kind **out)
{
	const char *method = "";
	struct gguf_str s;
	size_t i;

	if (!gguf_str(g, GGUF_KEY("model"), &s))
		return load_fail(ctx, -EINVAL, GGUF_KEY("model") " is missing: "
				 "the file has no tokenizer");
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (!str_is(&s, kinds[i].name))
			continue;
		*out = &kinds[i];
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(others); i++)
		if (str_is(&s, others[i].name))
			method = others[i].method;
	return load_fail(ctx, -EOPNOTSUPP, GGUF_KEY("model") " \"%.*s\"%s is not "
			 "supported: only gpt2, llama and gemma4 are",
			 (int)min(s.len, (u64)40), s.at, method);
}

/* Read a truth value; a missing one leaves @out alone. */
static int flag_read(const struct load_ctx *ctx, const struct gguf *g,
		     const char *key, bool *out)
{
	if (!gguf_has(g, key) || gguf_bool(g, key, out))
		return 0;
	return load_fail(ctx, -EINVAL, "%s is neither true nor false: convert "
			 "the model again", key);
}

/* Refuse the changes of texts that these kinds do not have. */
static int check_off(const struct load_ctx *ctx, const struct gguf *g)
{
	bool squeeze = false;
	int err;

	err = flag_read(ctx, g, GGUF_KEY("remove_extra_whitespaces"), &squeeze);
	if (err)
		return err;
	if (squeeze)
		return load_fail(ctx, -EOPNOTSUPP,
				 GGUF_KEY("remove_extra_whitespaces")
				 " is not supported");
	if (gguf_nr_items(g, GGUF_KEY("precompiled_charsmap")))
		return load_fail(ctx, -EOPNOTSUPP,
				 GGUF_KEY("precompiled_charsmap")
				 " is not supported");
	return 0;
}

/*
 * Read the id of a special token.  A key without a token, and a name of an id that
 * has none, leave @id alone.
 */
static int special_read(const struct load_ctx *ctx, const struct gguf_vocab *v,
			const char *key, u32 *id)
{
	u64 n;

	if (!gguf_has(v->g, key))
		return 0;
	if (!gguf_u64(v->g, key, &n) || n >= v->nr)
		return load_fail(ctx, -EINVAL, "%s is no id of a token: convert "
				 "the model again", key);
	if (v->names[n])
		*id = (u32)n;
	return 0;
}

/* ---- the equivalent tokenizer.json ---- */

static json_t *replace(const char *from, const char *to)
{
	return json_pack("{ss s{ss} ss}", "type", "Replace", "pattern", "String",
			 from, "content", to);
}

/* Where marks are put before a text. */
enum prefix { PREFIX_NONE, PREFIX_ALL, PREFIX_FIRST };

static enum prefix prefix_of(const struct gguf_vocab *v, bool prefix)
{
	if (!prefix)
		return PREFIX_NONE;
	if (v->nr > 3 && v->types[3] == GGUF_CONTROL && v->names[3] &&
	    !strcmp(json_string_value(v->names[3]), "[INST]"))
		return PREFIX_FIRST;
	return PREFIX_ALL;
}

static json_t *chars_pre(enum prefix prefix)
{
	if (prefix != PREFIX_FIRST)
		return json_null();
	return json_pack("{ss ss ss sb}", "type", "Metaspace", "replacement",
			 GGUF_MARK, "prepend_scheme", "first", "split", 0);
}

static json_t *chars_normalizer(enum prefix prefix)
{
	json_t *mark;

	if (prefix == PREFIX_FIRST)
		return json_null();
	mark = replace(" ", GGUF_MARK);
	if (prefix == PREFIX_NONE)
		return mark;
	return json_pack("{ss s[{ss ss} o]}", "type", "Sequence", "normalizers",
			 "type", "Prepend", "prepend", GGUF_MARK, mark);
}

static json_t *chars_decoder(bool prefix, bool bytes)
{
	json_t *steps = json_array();
	int err = json_array_append_new(steps, replace(GGUF_MARK, " "));

	if (bytes)
		err |= json_array_append_new(steps, json_pack("{ss}", "type",
							      "ByteFallback"));
	err |= json_array_append_new(steps, json_pack("{ss}", "type", "Fuse"));
	if (prefix)
		err |= json_array_append_new(steps,
			json_pack("{ss ss si si}", "type", "Strip", "content",
				  " ", "start", 1, "stop", 0));
	if (err) {
		json_decref(steps);
		return NULL;
	}
	return json_pack("{ss so}", "type", "Sequence", "decoders", steps);
}

/* Id of the token for unknown characters, or NO_ID. */
static int unknown_find(const struct load_ctx *ctx, const struct gguf_vocab *v,
			u32 *id)
{
	u32 i;

	*id = TOKENIZER_NO_ID;
	for (i = 0; i < v->nr && *id == TOKENIZER_NO_ID; i++)
		if (v->types[i] == GGUF_UNKNOWN && v->names[i])
			*id = i;
	return special_read(ctx, v, GGUF_KEY("unknown_token_id"), id);
}

/* Build a tokenizer of characters; takes over @merges. */
static int chars_build(const struct load_ctx *ctx, const struct gguf_vocab *v,
		       bool prefix, json_t *merges, json_t **root)
{
	const enum prefix where = prefix_of(v, prefix);
	const bool bytes = v->has_bytes;
	json_t *name;
	u32 unk;
	int err;

	err = unknown_find(ctx, v, &unk);
	if (err) {
		json_decref(merges);
		return err;
	}
	name = unk == TOKENIZER_NO_ID ? json_null() : v->names[unk];
	*root = json_pack("{so so so so s{ss sO sb sb sO so}}",
			  "added_tokens", gguf_added(v, unk),
			  "normalizer", chars_normalizer(where),
			  "pre_tokenizer", chars_pre(where),
			  "decoder", chars_decoder(prefix, bytes),
			  "model", "type", "BPE", "unk_token", name,
			  "fuse_unk", 1, "byte_fallback", bytes,
			  "vocab", v->vocab, "merges", merges);
	return *root ? 0 : load_no_memory(ctx);
}

/* Build a byte-level tokenizer; takes over @merges. */
static int bytes_build(const struct load_ctx *ctx, const struct gguf_vocab *v,
		       const struct gguf_pre *pre, json_t *merges,
		       json_t **root)
{
	json_t *form = pre->nfc ? json_pack("{ss}", "type", "NFC") :
				  json_null();

	*root = json_pack("{so so so s{ss} s{ss sb sO so}}",
			  "added_tokens", gguf_added(v, TOKENIZER_NO_ID),
			  "normalizer", form,
			  "pre_tokenizer", gguf_pre_json(pre),
			  "decoder", "type", "ByteLevel",
			  "model", "type", "BPE", "ignore_merges", pre->whole,
			  "vocab", v->vocab, "merges", merges);
	return *root ? 0 : load_no_memory(ctx);
}

/* ---- tokens around a text ---- */

static int around_read(struct load_ctx *ctx, const struct gguf_vocab *v,
		       const char *key, bool add, struct around *a, u32 id)
{
	const bool said = gguf_has(v->g, key);
	int err = flag_read(ctx, v->g, key, &add);

	if (err || !add || (id == TOKENIZER_NO_ID && !said))
		return err;
	if (id == TOKENIZER_NO_ID || !around_add(a, id, false))
		return load_fail(ctx, -EINVAL, "%s is set, but there is no such "
				 "token: convert the model again", key);
	return 0;
}

/*
 * BOS and EOS, by their ids: the name of a token could be that of another, too.  The
 * others that end a text are for the model, which would go on without a wrong one.
 */
static int ends_read(struct load_ctx *ctx, const struct gguf_vocab *v,
		     bool bos)
{
	struct tokenizer *tok = ctx->tok;
	u32 other;
	int err;

	err = special_read(ctx, v, GGUF_KEY("bos_token_id"), &tok->bos);
	if (!err)
		err = special_read(ctx, v, GGUF_KEY("eos_token_id"), &tok->eos);
	if (!err)
		err = special_read(ctx, v, GGUF_KEY("eot_token_id"), &other);
	if (!err)
		err = special_read(ctx, v, GGUF_KEY("eom_token_id"), &other);
	if (!err)
		err = around_read(ctx, v, GGUF_KEY("add_bos_token"), bos,
				  &tok->before, tok->bos);
	if (!err)
		err = around_read(ctx, v, GGUF_KEY("add_eos_token"), false,
				  &tok->after, tok->eos);
	return err;
}

static int vocab_build(struct load_ctx *ctx, const struct kind *kind,
		       struct gguf_vocab *v)
{
	const struct gguf_pre *pre = NULL;
	json_t *merges = NULL, *root = NULL;
	bool prefix = kind->prefix;
	int err = 0;

	if (!kind->chars)
		err = gguf_pre_find(ctx, v->g, &pre);
	if (!err)
		err = flag_read(ctx, v->g, GGUF_KEY("add_space_prefix"),
				&prefix);
	if (!err)
		err = gguf_vocab_read(ctx, v);
	if (!err)
		err = kind->scores ? gguf_merges_derive(ctx, v, &merges) :
				     gguf_merges_read(ctx, v, &merges);
	if (!err)
		err = kind->chars ?
		      chars_build(ctx, v, prefix, merges, &root) :
		      bytes_build(ctx, v, pre, merges, &root);
	if (!err)
		err = load_parts(ctx, root);
	json_decref(root);
	return err ? err : ends_read(ctx, v, kind->chars || pre->bos);
}

int load_gguf(struct load_ctx *ctx, const char *path)
{
	const struct kind *kind = NULL;
	struct gguf_vocab v = { .nr = 0 };
	struct gguf *g;
	int err;

	err = gguf_open(path, &g, ctx->err, ctx->err_size);
	if (err)
		return err;
	ctx->path = path;
	v.g = g;
	err = kind_find(ctx, g, &kind);
	if (!err)
		err = check_off(ctx, g);
	if (!err) {
		v.chars = kind->chars;
		err = vocab_build(ctx, kind, &v);
	}
	gguf_vocab_free(&v);
	gguf_close(g);
	return err;
}
