// SPDX-License-Identifier: Apache-2.0
/*
 * tokenizer.c - text to token ids
 *
 * How a text becomes ids, in the order of the files here:
 *
 *   text --added tokens--> texts between them --normalizer--> texts
 *        --added tokens again--> texts --pre_tokenizer--> pieces
 *        --byte-pair merges--> ids --post_processor--> ids
 *
 *  trie.c       Added tokens (mostly control tokens such as "<|im_end|>") are
 *               matched in the text before any other step, in two turns: first
 *               those that a normalizer must not touch, then the others, in the
 *               normalized rest.
 *  normalize.c  Unicode's normal forms, spaces to marks and the like (forms.c).
 *  split.c      The text between added tokens is cut into pieces, mostly by
 *               patterns: roughly words with the space before them (find.c;
 *               pattern.c translates patterns of another dialect for PCRE2).
 *  bpe.c        Every piece is merged on its own.
 *  vocab.c      Tokens and byte alphabet; merges.c, added.c.
 *  load.c       All of it from the model's files; load_*.c and parts.c.
 *  detok.c      The way back, one id at a time.
 *
 * The reference is the library that the model was trained with: all ids must be
 * the same.  With a few wrong ids a model is worse but not broken, so the error
 * would stay unnoticed.
 *
 * Invariants: struct tokenizer is constant after loading, so encoding takes no
 * lock; struct encoder belongs to one call.  The text is checked to be UTF-8
 * once, here, and the patterns run without checking it again.  Running time is
 * linear in the text, except for the logarithm of the heap in bpe.c.
 */
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"

/* Positions in a piece are s32, and the heap needs 16 bytes a byte. */
#define ENCODE_MAX	(1ul << 30)

/* One call of tokenizer_encode(). */
struct encoder {
	struct splitter split;		/* has the tokenizer */
	u32 flags;
	u32 *ids;
	size_t max;
	size_t nr;			/* ids so far, also those beyond max */
	struct bpe_scratch scratch;
	struct norm_scratch norm;
	const char *text;		/* the text that the guards refer to */
	const struct tokenizer_guard *guards;
	size_t nr_guards;
	bool plain;			/* the normalized text had a guard in it */
};

static void emit(struct encoder *e, u32 id)
{
	if (e->nr < e->max)
		e->ids[e->nr] = id;
	e->nr++;
}

static int encode_merged(struct encoder *e, const char *piece, size_t len)
{
	int err = bpe_piece(e->split.tok, &e->scratch, piece, len);
	s32 i;

	if (err)
		return err;
	for (i = e->scratch.nr ? 0 : -1; i >= 0; i = e->scratch.syms[i].next)
		emit(e, e->scratch.syms[i].id);
	return 0;
}

/* Merge the parts between borders that no merge crosses. */
static int encode_cut(struct encoder *e, const char *piece, size_t len)
{
	static const char mark[3] = "\xe2\x96\x81";
	size_t from = 0, to = 0;
	int err = 0;

	while (!err && from < len) {
		/*
		 * Marks at the beginning, then all bytes up to the next mark.
		 */
		while (len - to >= 3 && !memcmp(piece + to, mark, 3))
			to += 3;
		while (to < len && (len - to < 3 ||
				    memcmp(piece + to, mark, 3)))
			to++;
		err = encode_merged(e, piece + from, to - from);
		from = to;
	}
	return err;
}

static int encode_piece(struct splitter *s, const char *piece, size_t len)
{
	struct encoder *e = container_of(s, struct encoder, split);
	const struct tokenizer *tok = s->tok;
	u32 id;

	if (len == 1 && tok->byte_level) {
		emit(e, tok->byte_id[(u8)piece[0]]);
		return 0;
	}
	if (tok->ignore_merges) {
		id = vocab_find_piece(tok, piece, len);
		if (id != TOKENIZER_NO_ID) {
			emit(e, id);
			return 0;
		}
	}
	return tok->cuts_at_mark ? encode_cut(e, piece, len) :
				   encode_merged(e, piece, len);
}

/* Does @text, which may end at any byte, begin with a word character? */
static bool begins_with_word(struct encoder *e, const char *text, size_t len)
{
	const struct finder word = { .code = e->split.tok->word };
	size_t n, from = 0, to;

	if (!len)
		return false;
	utf8_step((const u8 *)text, len, &n);
	return !finder_next(&word, &e->split.find, text, n, &from, &to) &&
	       to > from;
}

static bool is_single_word(struct encoder *e, const char *text, size_t from,
			   size_t to, size_t len)
{
	size_t at;

	if (begins_with_word(e, text + to, len - to))
		return false;
	if (!from)
		return true;
	at = utf8_char_before((const u8 *)text, 0, from);
	return !begins_with_word(e, text + at, from - at);
}

/* Is part of the @len bytes at @p guarded? */
static bool is_guarded(const struct encoder *e, const char *p, size_t len)
{
	const size_t from = (size_t)(p - e->text);
	size_t lo = 0, hi = e->nr_guards, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (e->guards[mid].at + e->guards[mid].len <= from)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < e->nr_guards && e->guards[lo].at < from + len;
}

/*
 * Does the token found in @text count?  Then include the white space it takes.
 */
static bool added_counts(struct encoder *e, u32 turn, u32 id, const char *text,
			 size_t len, size_t done, size_t *from, size_t *to)
{
	const u32 flags = e->split.tok->tokens[id].flags;

	if ((flags & TOKEN_SPECIAL) &&
	    ((e->flags & TOKENIZER_PLAIN) || (turn != ADDED_RAW ? e->plain :
	     is_guarded(e, text + *from, *to - *from))))
		return false;
	if ((flags & TOKEN_WORD) && !is_single_word(e, text, *from, *to, len))
		return false;
	if ((flags & TOKEN_LSTRIP) && *from > done)
		*from = utf8_space_before((const u8 *)text, done, *from);
	if (flags & TOKEN_RSTRIP) {
		size_t n;

		do {
			n = utf8_space_len((const u8 *)text + *to, len - *to);
			*to += n;
		} while (n);
	}
	return true;
}

static int encode_added(struct encoder *e, u32 turn, const char *text,
			size_t len, bool first);

/* Encode the text between added tokens of the turn before @turn. */
static int encode_between(struct encoder *e, u32 turn, const char *text,
			  size_t len, bool first)
{
	const struct tokenizer *tok = e->split.tok;
	int err = 0;

	if (turn == NR_ADDED_TURNS)
		return split_text(&e->split, text, len, first);
	/* Check guards in the text now: normalized text has other places. */
	e->plain = is_guarded(e, text, len);
	if (tok->nr_norm)
		err = norm_apply(tok->norm, tok->nr_norm, &e->split.find,
				&e->norm, &text, &len);
	return err ? err : encode_added(e, turn, text, len, first);
}

/*
 * Find the added tokens of @turn in @text; the text between them goes on.
 *
 * White space that a token takes is still searched for tokens, and a token
 * found there counts although it was taken (@done may even step back).  That is
 * odd, but models were trained with it.
 */
static int encode_added(struct encoder *e, u32 turn, const char *text,
			size_t len, bool first)
{
	const struct trie *t = &e->split.tok->added[turn];
	size_t done = 0, at = 0, from, to, n;
	int err = 0;

	while (t->nr && at < len && !err) {
		u32 id = trie_longest(t, text + at, len - at, &n);

		if (id == TOKENIZER_NO_ID) {
			at++;
			continue;
		}
		from = at;
		at += n;
		to = at;
		if (!added_counts(e, turn, id, text, len, done, &from,
				  &to))
			continue;
		if (from > done)
			err = encode_between(e, turn + 1, text + done,
					     from - done, first && !done);
		emit(e, id);
		done = to;
	}
	if (!err && done < len)
		err = encode_between(e, turn + 1, text + done, len - done,
				     first && !done);
	return err;
}

static void encoder_release(struct encoder *e)
{
	u32 i;

	for (i = 0; i < TOKENIZER_MAX_STAGES; i++)
		tok_text_free(&e->split.buf[i]);
	bpe_scratch_free(&e->scratch);
	norm_scratch_free(&e->norm);
	find_release(&e->split.find);
}

static void emit_around(struct encoder *e, const struct around *a, u32 flag)
{
	u32 i;

	for (i = 0; (e->flags & flag) && i < a->nr; i++)
		emit(e, a->ids[i]);
}

ssize_t tokenizer_encode_guarded(const struct tokenizer *tok, const char *text,
				 size_t len, u32 flags,
				 const struct tokenizer_guard *guards,
				 size_t nr_guards, u32 *ids, size_t max,
				 size_t *needed)
{
	struct encoder e = {
		.split = { .tok = tok, .piece = encode_piece }, .flags = flags,
		.ids = ids, .max = max, .text = text, .guards = guards,
		.nr_guards = nr_guards,
	};
	int err;

	if (needed)
		*needed = 0;
	if (len >= ENCODE_MAX)
		return -EFBIG;
	if (!utf8_is_valid(text, len))
		return -EILSEQ;

	err = find_init(&e.split.find);
	if (err)
		goto out_release;
	emit_around(&e, &tok->before, TOKENIZER_ADD_BOS);
	err = encode_added(&e, ADDED_RAW, text, len, true);
	if (err)
		goto out_release;
	emit_around(&e, &tok->after, TOKENIZER_ADD_EOS);
	if (needed)
		*needed = e.nr;
	if (e.nr > max)
		err = -E2BIG;
out_release:
	encoder_release(&e);
	return err ? err : (ssize_t)e.nr;
}

ssize_t tokenizer_encode(const struct tokenizer *tok, const char *text,
			 size_t len, u32 flags, u32 *ids, size_t max,
			 size_t *needed)
{
	return tokenizer_encode_guarded(tok, text, len, flags, NULL, 0, ids,
					max, needed);
}

ssize_t tokenizer_decode(const struct tokenizer *tok, u32 id,
			 const char **bytes)
{
	if (id >= tok->nr_tokens || !tok->tokens[id].flags)
		return -ENOENT;
	*bytes = tok->pool + tok->tokens[id].off;
	return tok->tokens[id].len;
}

u32 tokenizer_vocab_size(const struct tokenizer *tok)
{
	return tok->nr_tokens;
}

u32 tokenizer_bos_id(const struct tokenizer *tok)
{
	return tok->bos;
}

u32 tokenizer_eos_id(const struct tokenizer *tok)
{
	return tok->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *tok)
{
	return tok->before.nr > 0;
}

bool tokenizer_is_special(const struct tokenizer *tok, u32 id)
{
	return id < tok->nr_tokens && (tok->tokens[id].flags & TOKEN_SPECIAL);
}

size_t tokenizer_special_at(const struct tokenizer *tok, const char *text,
			    size_t len)
{
	size_t n;
	u32 id;

	if (!len)
		return 0;
	id = trie_longest(&tok->added[ADDED_RAW], text, len, &n);
	if (!tokenizer_is_special(tok, id))
		id = trie_longest(&tok->added_names, text, len, &n);
	return tokenizer_is_special(tok, id) ? n : 0;
}

u32 tokenizer_find(const struct tokenizer *tok, const char *bytes, size_t len)
{
	size_t n;
	u32 id;

	if (!len)
		return TOKENIZER_NO_ID;
	id = trie_longest(&tok->added_names, bytes, len, &n);
	if (id != TOKENIZER_NO_ID && n == len)
		return id;
	return vocab_find_piece(tok, bytes, len);
}

void tokenizer_free(struct tokenizer *tok)
{
	size_t i;

	if (!tok)
		return;
	for (i = 0; i < TOKENIZER_MAX_STAGES; i++)
		finder_free(&tok->stages[i].find);
	for (i = 0; i < TOKENIZER_MAX_STEPS; i++) {
		norm_step_free(&tok->norm[i]);
		norm_step_free(&tok->dec.steps[i]);
	}
	for (i = 0; i < NR_ADDED_TURNS; i++)
		trie_free(&tok->added[i]);
	trie_free(&tok->added_names);
	pcre2_code_free(tok->word);
	free(tok->char_id);
	free(tok->pairs);
	free(tok->merges);
	free(tok->by_piece);
	free(tok->tokens);
	free(tok->pool);
	free(tok);
}
