// SPDX-License-Identifier: Apache-2.0
/*
 * vocab.c - the vocabulary: tokens and their decoded text
 *
 * In a tokenizer.json a token of byte-level BPE is not written as its bytes but
 * in an alphabet of 256 printable characters, one a byte: printable Latin-1
 * stands for itself, the other bytes are U+0100 onwards in their order.  Here
 * tokens are turned back into bytes once, at load, and are stored one after the
 * other in a pool.  A token with a character outside of the alphabet (a control
 * token, mostly) stands for its own text.
 *
 * Without ByteLevel a token is written as it is, and the steps of the decoder
 * turn it into its decoded text, once, here.
 *
 * All ids, names and merges are checked against each other while the JSON is in
 * memory: after loading no id can occur that does not exist.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"

/* The alphabet ends before this code point. */
#define ALPHABET_END	(0x100 + 68)

static bool byte_is_printable(u32 b)
{
	return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
}

/* Code point of the alphabet -> byte, -1: none. */
static void alphabet_build(s16 byte_of[ALPHABET_END])
{
	u32 b, next = 0x100;

	memset(byte_of, 0xff, ALPHABET_END * sizeof(*byte_of));
	for (b = 0; b < 256; b++)
		byte_of[byte_is_printable(b) ? b : next++] = (s16)b;
}

/*
 * Spell @text (valid UTF-8, @len bytes) in bytes at @out, which has room for
 * @len.  Returns their number, or -1 if a character is not in the alphabet.
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

s64 vocab_pool_add(struct tokenizer *tok, const char *bytes, size_t len)
{
	size_t off = tok->pool_len;

	if (pool_reserve(tok, len))
		return -ENOMEM;
	memcpy(tok->pool + off, bytes, len);
	tok->pool_len += len;
	return (s64)off;
}

int vocab_tokens_reserve(struct tokenizer *tok, u32 id)
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

/* Make room for every id up to the highest, so that the table is made once. */
static int vocab_size_tables(struct load_ctx *ctx, json_t *vocab)
{
	const char *name;
	json_t *v;
	u32 id, top = 0;

	json_object_foreach(vocab, name, v) {
		if (!load_id(v, &id))
			return load_fail(ctx, -EINVAL, "model.vocab: the id "
					 "of \"%.40s\" is no number from 0 to "
					 "%u", name, TOKENIZER_ID_LIMIT - 1);
		top = max(top, id);
	}
	if (!json_object_size(vocab))
		return load_fail(ctx, -EINVAL, "model.vocab is empty");
	if (vocab_tokens_reserve(ctx->tok, top))
		return load_no_memory(ctx);
	return 0;
}

/*
 * Name of the token with @id: only for an error line, so a search is fast
 * enough.
 */
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

/* Enter a token of the vocabulary. */
static int token_enter(struct tokenizer *tok, const s16 *byte_of, u32 id,
		       const char *name)
{
	size_t len = strlen(name);
	ssize_t spelt = -1;

	if (pool_reserve(tok, len))
		return -ENOMEM;
	if (tok->byte_level)
		spelt = alphabet_spell(byte_of, name, len,
				       tok->pool + tok->pool_len);
	if (spelt < 0)
		memcpy(tok->pool + tok->pool_len, name, len);
	else
		len = (size_t)spelt;
	tok->tokens[id] = (struct token){
		.piece = (u32)tok->pool_len,
		.piece_len = (u32)len,
		.flags = TOKEN_EXISTS | (spelt < 0 && tok->byte_level ?
					 TOKEN_NAMED : TOKEN_PIECE),
	};
	tok->pool_len += len;
	return 0;
}

static int vocab_load_tokens(struct load_ctx *ctx, json_t *vocab)
{
	struct tokenizer *tok = ctx->tok;
	s16 byte_of[ALPHABET_END];
	const char *name;
	json_t *v;
	u32 id;

	alphabet_build(byte_of);
	json_object_foreach(vocab, name, v) {
		if (!load_id(v, &id))
			return -EINVAL;
		if (tok->tokens[id].flags)
			return load_fail(ctx, -EINVAL, "model.vocab: id %u is "
					 "both \"%.40s\" and \"%.40s\"", id,
					 vocab_name(vocab, id), name);
		if (token_enter(tok, byte_of, id, name))
			return load_no_memory(ctx);
	}
	return 0;
}

/*
 * The vocabularies of StarCoder and Granite lack bytes that only characters behind
 * U+3FFFF begin with.  The library leaves such a byte out of the text.
 */
#define BYTE_MAY_LACK	0xf1

/* Ids of the 256 symbols that every piece starts from. */
static int vocab_load_bytes(struct load_ctx *ctx, const json_t *model)
{
	const json_t *unk = json_object_get(model, "unk_token");
	const u32 end = !unk || json_is_null(unk) ? BYTE_MAY_LACK : 0xf5;
	struct tokenizer *tok = ctx->tok;
	u32 id, b;

	for (id = 0; id < tok->nr_tokens; id++) {
		const struct token *t = &tok->tokens[id];

		if (t->piece_len == 1 && (t->flags & TOKEN_PIECE))
			tok->byte_id[(u8)tok->pool[t->piece]] = id;
	}
	/* Some bytes never occur in UTF-8. */
	for (b = 0; b < end; b++)
		if (tok->byte_id[b] == TOKENIZER_NO_ID && b != 0xc0 &&
		    b != 0xc1)
			return load_fail(ctx, -EINVAL, "model.vocab lacks a "
					 "token for the byte 0x%02x", b);
	return 0;
}

/* Ids of single characters, and of the bytes of characters without a token. */
static int vocab_load_chars(struct load_ctx *ctx, const json_t *vocab)
{
	struct tokenizer *tok = ctx->tok;
	char name[8];
	size_t len;
	u32 id, b;

	tok->char_id = malloc(0x10000 * sizeof(*tok->char_id));
	if (!tok->char_id)
		return load_no_memory(ctx);
	memset(tok->char_id, 0xff, 0x10000 * sizeof(*tok->char_id));
	for (id = 0; id < tok->nr_tokens; id++) {
		const struct token *t = &tok->tokens[id];
		const u8 *p = (const u8 *)tok->pool + t->piece;

		if (!t->piece_len || t->piece_len > 3 ||
		    utf8_step(p, t->piece_len, &len) != UTF8_CHAR ||
		    len != t->piece_len)
			continue;
		tok->char_id[utf8_decode(p, len)] = id;
	}
	for (b = 0; b < 256 && tok->byte_fallback; b++) {
		snprintf(name, sizeof(name), "<0x%02X>", b);
		load_id(json_object_get(vocab, name), &tok->byte_id[b]);
	}
	return 0;
}

/* The token for text that the vocabulary does not know. */
static int vocab_load_unknown(struct load_ctx *ctx, const json_t *model,
			      const json_t *vocab)
{
	const json_t *v = json_object_get(model, "unk_token");
	const char *name = json_string_value(v);

	if (!v || json_is_null(v))
		return 0;
	if (!name || !load_id(json_object_get(vocab, name), &ctx->tok->unk))
		return load_fail(ctx, -EINVAL, "model: unk_token \"%.40s\" is "
				 "no token of the vocab", name ? name : "?");
	return 0;
}

int vocab_load(struct load_ctx *ctx, const json_t *model)
{
	json_t *vocab = json_object_get(model, "vocab");
	json_t *merges = json_object_get(model, "merges");
	struct tokenizer *tok = ctx->tok;
	int err;

	if (!json_is_object(vocab))
		return load_fail(ctx, -EINVAL, "model has no vocab");
	if (!json_is_array(merges))
		return load_fail(ctx, -EINVAL, "model has no merges");

	memset(tok->byte_id, 0xff, sizeof(tok->byte_id));
	err = vocab_size_tables(ctx, vocab);
	if (!err)
		err = vocab_load_tokens(ctx, vocab);
	if (!err)
		err = tok->byte_level ? vocab_load_bytes(ctx, model) :
					vocab_load_chars(ctx, vocab);
	if (!err)
		err = vocab_load_unknown(ctx, model, vocab);
	if (!err)
		err = merges_load(ctx, vocab, merges);
	return err;
}

/* The byte of a name such as "<0xE4>", or -1. */
static int fallback_byte(const char *p, size_t len)
{
	char digits[3] = { 0 };
	char *end;
	long b;

	if (len != 6 || memcmp(p, "<0x", 3) || p[5] != '>')
		return -1;
	memcpy(digits, p + 3, 2);
	if (digits[0] == ' ' || digits[0] == '-')
		return -1;
	b = strtol(digits, &end, 16);
	return end == digits + 2 ? (int)b : -1;
}

/* Set the text of a token at the beginning of a text: without marks. */
static int token_drop(struct tokenizer *tok, struct token *t)
{
	const struct decoding *d = &tok->dec;
	size_t done = 0, at;
	s64 off;

	t->first = t->off;
	t->first_len = t->len;
	while (t->first_len >= d->drop_len &&
	       !memcmp(tok->pool + t->first, d->drop, d->drop_len)) {
		t->first += d->drop_len;
		t->first_len -= d->drop_len;
	}
	if (!memmem(tok->pool + t->first, t->first_len, d->drop, d->drop_len))
		return 0;
	off = (s64)tok->pool_len;
	for (at = 0; at < t->first_len; at++) {
		if (t->first_len - at >= d->drop_len &&
		    !memcmp(tok->pool + t->first + at, d->drop, d->drop_len)) {
			at += d->drop_len - 1u;
			continue;
		}
		if (pool_reserve(tok, 1))
			return -ENOMEM;
		tok->pool[tok->pool_len++] = tok->pool[t->first + at];
		done++;
	}
	t->first = (u32)off;
	t->first_len = (u32)done;
	return 0;
}

/* Apply the decoder's steps to a token's name. */
static int token_decode(struct tokenizer *tok, struct token *t,
			struct find_ctx *c, struct norm_scratch *s)
{
	const struct decoding *d = &tok->dec;
	size_t len = t->len;
	const char *text;
	char byte;
	s64 off;
	int b, err;

	err = d->drop_len ? token_drop(tok, t) : 0;
	text = tok->pool + t->off;
	if (!err)
		err = norm_apply(d->steps, d->nr_steps, c, s, &text, &len);
	if (err)
		return err;
	b = d->fallback ? fallback_byte(text, len) : -1;
	if (b >= 0) {
		byte = (char)b;
		text = &byte;
		len = 1;
		t->flags |= TOKEN_BYTE;
	}
	if (text == tok->pool + t->off)
		return 0;
	off = vocab_pool_add(tok, text, len);
	if (off < 0)
		return -ENOMEM;
	t->off = (u32)off;
	t->len = (u32)len;
	return 0;
}

/* Added tokens have their text already. */
int vocab_texts_build(struct load_ctx *ctx)
{
	struct tokenizer *tok = ctx->tok;
	struct norm_scratch s = { 0 };
	struct find_ctx c = { 0 };
	int err = find_init(&c);
	u32 id;

	for (id = 0; id < tok->nr_tokens && !err; id++) {
		struct token *t = &tok->tokens[id];

		if (!(t->flags & TOKEN_ADDED)) {
			t->off = t->piece;
			t->len = t->piece_len;
		}
		if (tok->dec.kind == DECODE_STEPS && t->flags)
			err = token_decode(tok, t, &c, &s);
		tok->max_token_len = max(tok->max_token_len, t->len);
	}
	norm_scratch_free(&s);
	find_release(&c);
	return err ? load_fail(ctx, err, "decoder: %s", strerror(-err)) : 0;
}

static u32 bytes_hash(const struct tokenizer *tok, const char *p, size_t len)
{
	u64 h = 0xcbf29ce484222325ull;
	size_t i;

	for (i = 0; i < len; i++)
		h = (h ^ (u8)p[i]) * tok->hash_key;
	return h >> (64 - tok->by_piece_bits);
}

u32 vocab_find_piece(const struct tokenizer *tok, const char *bytes,
		     size_t len)
{
	u32 mask = (1u << tok->by_piece_bits) - 1;
	u32 i = bytes_hash(tok, bytes, len);
	u32 id;

	while ((id = tok->by_piece[i]) != TOKENIZER_NO_ID) {
		const struct token *t = &tok->tokens[id];

		if (t->piece_len == len && !memcmp(tok->pool + t->piece, bytes, len))
			break;
		i = (i + 1) & mask;
	}
	return id;
}

int vocab_index_build(struct load_ctx *ctx)
{
	struct tokenizer *tok = ctx->tok;
	u32 mask, id, i, bits = 4;

	while ((1ull << bits) < 2ull * tok->nr_tokens)
		bits++;
	tok->by_piece_bits = bits;
	tok->by_piece = malloc(sizeof(*tok->by_piece) << bits);
	if (!tok->by_piece)
		return load_no_memory(ctx);
	memset(tok->by_piece, 0xff, sizeof(*tok->by_piece) << bits);

	mask = (1u << bits) - 1;
	for (id = 0; id < tok->nr_tokens; id++) {
		const struct token *t = &tok->tokens[id];

		if (!(t->flags & TOKEN_PIECE))
			continue;
		i = bytes_hash(tok, tok->pool + t->piece, t->piece_len);
		while (tok->by_piece[i] != TOKENIZER_NO_ID)
			i = (i + 1) & mask;
		tok->by_piece[i] = id;
	}
	return 0;
}
