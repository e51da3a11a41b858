// SPDX-License-Identifier: Apache-2.0
/*
 * vocab.c - the vocabulary: tokens, merges, added tokens
 *
 * In a tokenizer.json a token of byte-level BPE is not written as the bytes it
 * stands for but in an alphabet of 256 printable characters, one a byte:
 * printable Latin-1 stands for itself, the other bytes are U+0100 onwards in
 * their order.  Here tokens are turned back into bytes once, at load, and
 * lie end to end in a pool.  A token with a character outside of the alphabet
 * (a control token, mostly) stands for its own text.
 *
 * All ids, names and merges are checked against each other while the JSON is
 * at hand: nothing after loading can meet an id that does not exist.
 */
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"

/* The alphabet ends before this code point. */
#define ALPHABET_END	(0x100 + 68)

static bool byte_is_printable(u32 b)
{
	return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
}

/* Code point of the alphabet -> byte, -1 where there is none. */
static void alphabet_build(s16 byte_of[ALPHABET_END])
{
	u32 b, next = 0x100;

	memset(byte_of, 0xff, ALPHABET_END * sizeof(*byte_of));
	for (b = 0; b < 256; b++)
		byte_of[byte_is_printable(b) ? b : next++] = (s16)b;
}

/*
 * Spell @text (valid UTF-8, @len bytes) in bytes at @out, which has room for
 * @len.  Returns their number, or -1 if a character is not of the alphabet.
 */
static ssize_t alphabet_spell(const s16 byte_of[ALPHABET_END],
			      const char *text, size_t len, char *out)
{
	const u8 *p = (const u8 *)text;
	size_t at = 0, n;
	ssize_t nr = 0;
	u32 cp;

	while (at < len) {
		utf8_step(p + at, len - at, &n);
		cp = utf8_decode(p + at, n);
		if (cp >= ALPHABET_END || byte_of[cp] < 0)
			return -1;
		out[nr++] = (char)byte_of[cp];
		at += n;
	}
	return nr;
}

static int pool_reserve(struct tokenizer *tok, size_t len)
{
	size_t cap = max(tok->pool_cap, (size_t)4096);
	char *pool;

	/* Offsets are 32 bits. */
	if (len >= UINT32_MAX - tok->pool_len)
		return -ENOMEM;
	while (cap < tok->pool_len + len)
		cap *= 2;
	if (cap == tok->pool_cap)
		return 0;
	pool = realloc(tok->pool, cap);
	if (!pool)
		return -ENOMEM;
	tok->pool = pool;
	tok->pool_cap = cap;
	return 0;
}

/* Enter a token, its bytes being the next @len of the pool. */
static void token_enter(struct tokenizer *tok, u32 id, size_t len, u32 flags)
{
	tok->tokens[id] = (struct token){
		.off = (u32)tok->pool_len,
		.len = (u32)len,
		.flags = TOKEN_EXISTS | flags,
	};
	tok->pool_len += len;
	tok->max_token_len = max(tok->max_token_len, (u32)len);
}

/* Make room for ids up to @id. */
static int tokens_reserve(struct tokenizer *tok, u32 id)
{
	struct token *tokens;

	if (id < tok->nr_tokens)
		return 0;
	tokens = realloc(tok->tokens, (id + 1ul) * sizeof(*tokens));
	if (!tokens)
		return -ENOMEM;
	memset(tokens + tok->nr_tokens, 0,
	       (id + 1ul - tok->nr_tokens) * sizeof(*tokens));
	tok->tokens = tokens;
	tok->nr_tokens = id + 1;
	return 0;
}

/* Every id below the highest: so that the table is made once. */
static int vocab_size_tables(struct load_ctx *ctx, json_t *vocab)
{
	const char *name;
	json_t *v;
	u32 id, top = 0;

	json_object_foreach(vocab, name, v) {
		if (!load_id(v, &id))
			return load_fail(ctx, -EINVAL, "vocab: the id of "
					 "\"%.40s\" is no number from 0 to %u",
					 name, TOKENIZER_ID_LIMIT - 1);
		top = max(top, id);
	}
	if (!json_object_size(vocab))
		return load_fail(ctx, -EINVAL, "vocab is empty");
	if (tokens_reserve(ctx->tok, top))
		return load_fail(ctx, -ENOMEM, "out of memory");
	return 0;
}

/* Name of the token with @id: only for an error line, so it may search. */
static const char *vocab_name(json_t *vocab, u32 id)
{
	const char *name;
	json_t *v;
	u32 other;

	json_object_foreach(vocab, name, v)
		if (load_id(v, &other) && other == id)
			return name;
	return "?";
}

static int vocab_load_tokens(struct load_ctx *ctx, json_t *vocab)
{
	struct tokenizer *tok = ctx->tok;
	s16 byte_of[ALPHABET_END];
	const char *name;
	json_t *v;

	alphabet_build(byte_of);
	json_object_foreach(vocab, name, v) {
		size_t len = strlen(name);
		ssize_t spelt;
		u32 id;

		if (!load_id(v, &id))
			return -EINVAL;
		if (tok->tokens[id].flags)
			return load_fail(ctx, -EINVAL, "vocab: id %u is both "
					 "\"%.40s\" and \"%.40s\"", id,
					 vocab_name(vocab, id), name);
		if (pool_reserve(tok, len))
			return load_fail(ctx, -ENOMEM, "out of memory");
		spelt = alphabet_spell(byte_of, name, len,
				       tok->pool + tok->pool_len);
		if (spelt < 0)
			memcpy(tok->pool + tok->pool_len, name, len);
		token_enter(tok, id, spelt < 0 ? len : (size_t)spelt,
			    spelt < 0 ? 0 : TOKEN_PIECE);
	}
	return 0;
}

/* Ids of the 256 symbols every piece starts from. */
static int vocab_load_bytes(struct load_ctx *ctx)
{
	struct tokenizer *tok = ctx->tok;
	u32 id, b;

	memset(tok->byte_id, 0xff, sizeof(tok->byte_id));
	for (id = 0; id < tok->nr_tokens; id++) {
		const struct token *t = &tok->tokens[id];

		if (t->len == 1 && (t->flags & TOKEN_PIECE))
			tok->byte_id[(u8)tok->pool[t->off]] = id;
	}
	for (b = 0; b < 256; b++)
		if (tok->byte_id[b] == TOKENIZER_NO_ID)
			return load_fail(ctx, -EINVAL, "vocab lacks a token "
					 "for the byte 0x%02x", b);
	return 0;
}

/* The two sides of a merge: "left right" or ["left", "right"]. */
struct merge_text {
	const char *left;
	size_t left_len;
	const char *right;
	size_t right_len;
};

static bool merge_read(const json_t *v, struct merge_text *t)
{
	const char *space;

	if (json_is_string(v)) {
		t->left = json_string_value(v);
		space = strchr(t->left, ' ');
		if (!space || strchr(space + 1, ' '))
			return false;
		t->left_len = space - t->left;
		t->right = space + 1;
		t->right_len = strlen(t->right);
	} else if (json_is_array(v) && json_array_size(v) == 2 &&
		   json_is_string(json_array_get(v, 0)) &&
		   json_is_string(json_array_get(v, 1))) {
		t->left = json_string_value(json_array_get(v, 0));
		t->left_len = strlen(t->left);
		t->right = json_string_value(json_array_get(v, 1));
		t->right_len = strlen(t->right);
	} else {
		return false;
	}
	return t->left_len && t->right_len;
}

static int merge_lookup(struct load_ctx *ctx, const json_t *vocab, size_t rank,
			const char *name, size_t len, u32 *id)
{
	const json_t *v = json_object_getn(vocab, name, len);

	if (!v || !load_id(v, id))
		return load_fail(ctx, -EINVAL, "merge %zu names \"%.*s\", "
				 "which the vocab lacks", rank,
				 (int)min(len, (size_t)40), name);
	return 0;
}

static int merge_load(struct load_ctx *ctx, const json_t *vocab, size_t rank,
		      const json_t *v)
{
	struct merge *m = &ctx->tok->merges[rank];
	struct merge_text t;
	char *both;
	int err;

	if (!merge_read(v, &t))
		return load_fail(ctx, -EINVAL, "merge %zu is no pair of tokens",
				 rank);
	err = merge_lookup(ctx, vocab, rank, t.left, t.left_len, &m->left);
	if (!err)
		err = merge_lookup(ctx, vocab, rank, t.right, t.right_len,
				   &m->right);
	if (err)
		return err;

	both = malloc(t.left_len + t.right_len);
	if (!both)
		return load_fail(ctx, -ENOMEM, "out of memory");
	memcpy(both, t.left, t.left_len);
	memcpy(both + t.left_len, t.right, t.right_len);
	err = merge_lookup(ctx, vocab, rank, both, t.left_len + t.right_len,
			   &m->result);
	free(both);
	return err;
}

static int vocab_load_merges(struct load_ctx *ctx, const json_t *vocab,
			     const json_t *merges)
{
	struct tokenizer *tok = ctx->tok;
	size_t nr = json_array_size(merges), i;
	int err;

	if (nr >= TOKENIZER_ID_LIMIT)
		return load_fail(ctx, -EINVAL, "%zu merges are too many", nr);
	tok->merges = calloc(nr + 1, sizeof(*tok->merges));
	if (!tok->merges)
		return load_fail(ctx, -ENOMEM, "out of memory");
	for (i = 0; i < nr; i++) {
		err = merge_load(ctx, vocab, i, json_array_get(merges, i));
		if (err)
			return err;
	}
	tok->nr_merges = (u32)nr;
	if (bpe_pairs_build(tok))
		return load_fail(ctx, -ENOMEM, "out of memory");
	return 0;
}

int vocab_load(struct load_ctx *ctx, const json_t *model)
{
	json_t *vocab = json_object_get(model, "vocab");
	json_t *merges = json_object_get(model, "merges");
	int err;

	if (!json_is_object(vocab))
		return load_fail(ctx, -EINVAL, "model has no vocab");
	if (!json_is_array(merges))
		return load_fail(ctx, -EINVAL, "model has no merges");

	err = vocab_size_tables(ctx, vocab);
	if (!err)
		err = vocab_load_tokens(ctx, vocab);
	if (!err)
		err = vocab_load_bytes(ctx);
	if (!err)
		err = vocab_load_merges(ctx, vocab, merges);
	return err;
}

/* The entry's flags, or an error where it asks for what is not spoken. */
static int added_flags(struct load_ctx *ctx, const json_t *v, const char *text,
		       u32 *flags)
{
	if (json_is_true(json_object_get(v, "single_word")))
		return load_fail(ctx, -EOPNOTSUPP, "added token \"%.40s\": "
				 "single_word is not supported", text);
	*flags = TOKEN_ADDED;
	if (json_is_true(json_object_get(v, "special")))
		*flags |= TOKEN_SPECIAL;
	if (json_is_true(json_object_get(v, "lstrip")))
		*flags |= TOKEN_LSTRIP;
	if (json_is_true(json_object_get(v, "rstrip")))
		*flags |= TOKEN_RSTRIP;
	return 0;
}

/* An added token that the vocab has must have the vocab's id, and reverse. */
static int added_check_id(struct load_ctx *ctx, const json_t *vocab,
			  const char *text, u32 id)
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

static bool added_is_known(const struct tokenizer *tok, const char *text,
			   size_t len)
{
	size_t turn, n;

	for (turn = 0; turn < NR_ADDED_TURNS; turn++)
		if (trie_longest(&tok->added[turn], text, len, &n) !=
		    TOKENIZER_NO_ID && n == len)
			return true;
	return false;
}

/*
 * Enter an added token.  It stands for its own text; where the vocab spells
 * it the same way it stays a piece of the byte alphabet as well.
 */
static int added_enter(struct tokenizer *tok, u32 turn, u32 id,
		       const char *text, size_t len, u32 flags)
{
	const struct token *old;

	if (tokens_reserve(tok, id) || pool_reserve(tok, len) ||
	    trie_insert(&tok->added[turn], text, len, id))
		return -ENOMEM;
	old = &tok->tokens[id];
	if ((old->flags & TOKEN_PIECE) && old->len == len &&
	    !memcmp(tok->pool + old->off, text, len))
		flags |= TOKEN_PIECE;
	memcpy(tok->pool + tok->pool_len, text, len);
	token_enter(tok, id, len, flags);
	return 0;
}

static int added_load(struct load_ctx *ctx, const json_t *vocab,
		      const json_t *v)
{
	const json_t *content = json_object_get(v, "content");
	const char *text = json_string_value(content);
	size_t len = json_string_length(content);
	u32 id, flags = 0, turn;
	int err;

	if (!len || !load_id(json_object_get(v, "id"), &id))
		return load_fail(ctx, -EINVAL, "added_tokens: an entry lacks "
				 "content or id");
	if (added_is_known(ctx->tok, text, len))
		return load_fail(ctx, -EINVAL, "added token \"%.40s\" is "
				 "listed twice", text);
	err = added_flags(ctx, v, text, &flags);
	if (!err)
		err = added_check_id(ctx, vocab, text, id);
	if (err)
		return err;

	turn = json_is_true(json_object_get(v, "normalized")) ?
		ADDED_NORMALIZED : ADDED_RAW;
	if (added_enter(ctx->tok, turn, id, text, len, flags))
		return load_fail(ctx, -ENOMEM, "out of memory");
	return 0;
}

int vocab_load_added(struct load_ctx *ctx, const json_t *list,
		     const json_t *model)
{
	const json_t *vocab = json_object_get(model, "vocab");
	size_t i;
	int err;

	if (list && !json_is_null(list) && !json_is_array(list))
		return load_fail(ctx, -EINVAL, "added_tokens is no list");
	for (i = 0; i < json_array_size(list); i++) {
		err = added_load(ctx, vocab, json_array_get(list, i));
		if (err)
			return err;
	}
	return 0;
}

static u32 bytes_hash(const struct tokenizer *tok, const char *p, size_t len)
{
	u64 h = 0xcbf29ce484222325ull;
	size_t i;

	for (i = 0; i < len; i++)
		h = (h ^ (u8)p[i]) * 0x100000001b3ull;
	return (h * 0x9e3779b97f4a7c15ull) >> (64 - tok->by_bytes_bits);
}

u32 vocab_find_piece(const struct tokenizer *tok, const char *bytes,
		     size_t len)
{
	u32 mask = (1u << tok->by_bytes_bits) - 1;
	u32 i = bytes_hash(tok, bytes, len);
	u32 id;

	while ((id = tok->by_bytes[i]) != TOKENIZER_NO_ID) {
		const struct token *t = &tok->tokens[id];

		if (t->len == len && !memcmp(tok->pool + t->off, bytes, len))
			break;
		i = (i + 1) & mask;
	}
	return id;
}

int vocab_index_build(struct tokenizer *tok)
{
	u32 mask, id, i, bits = 4;

	while ((1ull << bits) < 2ull * tok->nr_tokens)
		bits++;
	tok->by_bytes_bits = bits;
	tok->by_bytes = malloc(sizeof(*tok->by_bytes) << bits);
	if (!tok->by_bytes)
		return -ENOMEM;
	memset(tok->by_bytes, 0xff, sizeof(*tok->by_bytes) << bits);

	mask = (1u << bits) - 1;
	for (id = 0; id < tok->nr_tokens; id++) {
		const struct token *t = &tok->tokens[id];

		if (!(t->flags & TOKEN_PIECE))
			continue;
		i = bytes_hash(tok, tok->pool + t->off, t->len);
		while (tok->by_bytes[i] != TOKENIZER_NO_ID)
			i = (i + 1) & mask;
		tok->by_bytes[i] = id;
	}
	return 0;
}
