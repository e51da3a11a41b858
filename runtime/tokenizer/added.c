// SPDX-License-Identifier: Apache-2.0
/*
 * added.c - the added tokens of a model
 *
 * They are matched in the text before any other step: most of them in the text
 * as it came, those marked "normalized" in the output of the normalizer; their
 * own text is normalized for that, too.  They decode to their own text;
 * normalized ones decode to the normalized text, as in the reference library.
 *
 * tokenizer.json lists them; tokenizer_config.json may have more.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"

/* Real ones are far shorter; the time of a search depends on the longest. */
#define ADDED_LEN_MAX	1024

/* All texts together: a byte is up to 3 nodes of a trie, 16 bytes each. */
#define ADDED_TEXT_MAX	(4u << 20)

static const char keys[] =
	"id content single_word lstrip rstrip normalized special";

/* Read the entry's flags, and whether it is normalized. */
static int added_flags(struct load_ctx *ctx, const struct part *p, u32 *flags,
		       bool *normalized)
{
	static const struct {
		const char *key;
		u32 flag;
	} bits[] = {
		{ "special", TOKEN_SPECIAL }, { "lstrip", TOKEN_LSTRIP },
		{ "rstrip", TOKEN_RSTRIP }, { "single_word", TOKEN_WORD },
	};
	size_t i;
	int err = part_bool(ctx, p, "normalized", normalized);

	*flags = TOKEN_ADDED | TOKEN_EXISTS;
	for (i = 0; i < ARRAY_SIZE(bits) && !err; i++) {
		bool on = false;

		err = part_bool(ctx, p, bits[i].key, &on);
		if (on)
			*flags |= bits[i].flag;
	}
	return err;
}

/*
 * An added token in the vocab must have the vocab's id there, and vice versa.
 */
static int added_check_id(struct load_ctx *ctx, const char *text, u32 id,
			  const json_t *vocab)
{
	const json_t *v = json_object_get(vocab, text);
	struct tokenizer *tok = ctx->tok;
	u32 other;

	if (v && load_id(v, &other) && other != id)
		return load_fail(ctx, -EINVAL, "added token \"%.40s\" has id "
				 "%u, but %u in the vocab", text, id, other);
	if (id < tok->nr_tokens && tok->tokens[id].flags &&
	    (!v || (tok->tokens[id].flags & TOKEN_ADDED)))
		return load_fail(ctx, -EINVAL, "added token \"%.40s\": id %u "
				 "is taken", text, id);
	return 0;
}

static bool trie_holds(const struct trie *t, const char *text, size_t len)
{
	size_t n;

	return trie_longest(t, text, len, &n) != TOKENIZER_NO_ID && n == len;
}

/*
 * Enter an added token, found by the text @found; the vocab may have it, too.
 */
static int added_enter(struct load_ctx *ctx, u32 id, const char *text,
		       const char *found, size_t found_len, u32 flags,
		       enum added_turn turn)
{
	struct tokenizer *tok = ctx->tok;
	size_t len = strlen(text);
	struct token *t;
	s64 off, piece;

	if (trie_holds(&tok->added[turn], found, found_len))
		return load_fail(ctx, -EINVAL, "added token \"%.40s\" is found "
				 "by what another one is", text);
	piece = vocab_pool_add(tok, text, len);
	off = vocab_pool_add(tok, found, found_len);
	if (piece < 0 || off < 0 || vocab_tokens_reserve(tok, id) ||
	    trie_insert(&tok->added[turn], found, found_len, id) ||
	    trie_insert(&tok->added_names, text, len, id))
		return load_no_memory(ctx);
	t = &tok->tokens[id];
	if (!t->flags) {
		t->piece = (u32)piece;
		t->piece_len = (u32)len;
	}
	t->flags |= flags;
	t->off = (u32)off;
	t->len = (u32)found_len;
	return 0;
}

static int added_normalize(struct load_ctx *ctx, u32 id, const char *text,
			   u32 flags)
{
	struct tokenizer *tok = ctx->tok;
	struct norm_scratch s = { 0 };
	struct find_ctx c = { 0 };
	const char *found = text;
	size_t len = strlen(text);
	int err = find_init(&c);

	if (!err)
		err = norm_apply(tok->norm, tok->nr_norm, &c, &s, &found, &len);
	if (err)
		err = load_fail(ctx, err, "added token \"%.40s\": %s", text,
				strerror(-err));
	else if (!len)
		err = load_fail(ctx, -EINVAL, "added token \"%.40s\" is "
				"nothing when normalized", text);
	else
		err = added_enter(ctx, id, text, found, len, flags,
				  ADDED_NORMALIZED);
	norm_scratch_free(&s);
	find_release(&c);
	return err;
}

static int added_load(struct load_ctx *ctx, const struct part *p, u32 id,
		      const json_t *vocab)
{
	const json_t *content = json_object_get(p->json, "content");
	const char *text = json_string_value(content);
	size_t len = json_string_length(content);
	/* The library's default; files give the key. */
	bool normalized = !json_is_true(json_object_get(p->json, "special"));
	u32 flags;
	int err;

	if (len > ADDED_LEN_MAX)
		return load_fail(ctx, -EOPNOTSUPP, "added token \"%.40s\" is "
				 "longer than %d bytes", text, ADDED_LEN_MAX);
	ctx->added_text += len;
	if (ctx->added_text > ADDED_TEXT_MAX)
		return load_fail(ctx, -EOPNOTSUPP, "the added tokens have more "
				 "than %u bytes of text", ADDED_TEXT_MAX);
	if (trie_holds(&ctx->tok->added_names, text, len))
		return load_fail(ctx, -EINVAL, "added token \"%.40s\" is "
				 "listed twice", text);
	err = added_flags(ctx, p, &flags, &normalized);
	if (!err)
		err = added_check_id(ctx, text, id, vocab);
	if (err)
		return err;
	if ((flags & TOKEN_WORD) && !ctx->tok->word &&
	    pattern_compile_set(SET_WORD_FIRST, &ctx->tok->word))
		return load_no_memory(ctx);
	if (normalized)
		return added_normalize(ctx, id, text, flags);
	return added_enter(ctx, id, text, text, len, flags, ADDED_RAW);
}

int added_load_list(struct load_ctx *ctx, const json_t *list,
		    const json_t *model)
{
	const json_t *vocab = json_object_get(model, "vocab");
	struct part p;
	size_t i;
	u32 id;
	int err = 0;

	if (list && !json_is_null(list) && !json_is_array(list))
		return load_fail(ctx, -EINVAL, "added_tokens is no list");
	for (i = 0; i < json_array_size(list) && !err; i++) {
		p.json = json_array_get(list, i);
		snprintf(p.place, sizeof(p.place), "added_tokens[%zu]", i);
		if (!json_string_length(json_object_get(p.json, "content")) ||
		    !load_id(json_object_get(p.json, "id"), &id))
			return load_fail(ctx, -EINVAL, "%s lacks content or "
					 "id", p.place);
		err = part_keys(ctx, &p, keys);
		if (!err)
			err = added_load(ctx, &p, id, vocab);
	}
	return err;
}

int added_load_map(struct load_ctx *ctx, const json_t *map)
{
	struct tokenizer *tok = ctx->tok;
	const json_t *content;
	struct part p;
	const char *key;
	char *end;
	json_t *v;
	u64 id;
	int err = 0;

	json_object_foreach((json_t *)map, key, v) {
		p.json = v;
		snprintf(p.place, sizeof(p.place), "added_tokens_decoder.%.20s",
			 key);
		content = json_object_get(v, "content");
		id = strtoull(key, &end, 10);
		if (!json_string_length(content) || *end || end == key ||
		    id >= TOKENIZER_ID_LIMIT)
			return load_fail(ctx, -EINVAL, "%s is no id with a "
					 "content", p.place);
		if (trie_holds(&tok->added_names, json_string_value(content),
			       json_string_length(content)))
			continue;
		err = added_load(ctx, &p, (u32)id, NULL);
		if (err)
			return err;
	}
	return err;
}
