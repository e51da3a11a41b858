// SPDX-License-Identifier: Apache-2.0
/*
 * tokenizer.c - text to token ids
 *
 * How a text becomes ids, in the order of the files here:
 *
 *   text --added tokens--> texts between them --split patterns--> pieces
 *        --byte-pair merges--> ids
 *
 *  trie.c     Added tokens (mostly control tokens such as "<|im_end|>") are
 *             found in the text before anything else looks at it, in two
 *             turns: first those that a normalizer must not touch, then, in
 *             what is left, the others.
 *  pattern.c  What lies between is cut into pieces by one or more patterns:
 *             roughly words with the space before them.  Matches and what
 *             lies between matches are pieces alike.  A pattern sees only its
 *             own stretch of text, so its lookaheads end where that ends.
 *  bpe.c      Every piece is merged on its own.
 *  vocab.c    Tokens, merges and byte alphabet.
 *  load.c     All of it from the model's files.
 *  detok.c    The way back, one id at a time.
 *
 * The measure is the library that the model was trained with: the ids must be
 * its ids, all of them, since a model is worse, not broken, on ids that are
 * nearly right, and nobody notices.
 *
 * Invariants: struct tokenizer is constant after loading, so encoding takes no
 * lock; struct encoder belongs to one call.  Text is checked to be UTF-8 once,
 * here, and the patterns run without checking it again.  Running time is
 * linear in the text up to the logarithm that the heap of bpe.c costs.
 */
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"

/* Positions in a piece are s32, and the heap takes 16 bytes a byte. */
#define ENCODE_MAX	(1ul << 30)

/* Upper bound of the JIT's stack; only patterns with nested repeats use it. */
#define JIT_STACK_MIN	(64ul << 10)
#define JIT_STACK_MAX	(64ul << 20)

/* One call of tokenizer_encode(). */
struct encoder {
	const struct tokenizer *tok;
	u32 flags;
	u32 *ids;
	size_t max;
	size_t nr;			/* ids so far, those beyond max too */
	struct bpe_scratch scratch;
	pcre2_match_data *match;
	pcre2_match_context *match_ctx;
	pcre2_jit_stack *jit_stack;	/* made when the built-in one is full */
	const char *text;		/* what the guards count from */
	const struct tokenizer_guard *guards;
	size_t nr_guards;
};

static void emit(struct encoder *e, u32 id)
{
	if (e->nr < e->max)
		e->ids[e->nr] = id;
	e->nr++;
}

static int encode_piece(struct encoder *e, const char *piece, size_t len)
{
	const struct tokenizer *tok = e->tok;
	u32 id;
	s32 i;
	int err;

	if (len == 1) {
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
	err = bpe_piece(tok, &e->scratch, piece, len);
	if (err)
		return err;
	for (i = 0; i >= 0; i = e->scratch.syms[i].next)
		emit(e, e->scratch.syms[i].id);
	return 0;
}

/* Give the JIT a large stack.  Once: the second time it is full for good. */
static int jit_stack_grow(struct encoder *e)
{
	if (e->jit_stack)
		return -EOVERFLOW;
	e->jit_stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX,
					      NULL);
	if (!e->jit_stack)
		return -ENOMEM;
	pcre2_jit_stack_assign(e->match_ctx, NULL, e->jit_stack);
	return 0;
}

/*
 * Find the next match of @code in [*@from, @len) of @text; *@from and *@to
 * become its bounds, both @len if there is none.
 */
static int find_match(struct encoder *e, const pcre2_code *code,
		      const char *text, size_t len, size_t *from, size_t *to)
{
	PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(e->match);
	int rc, err;

	for (;;) {
		rc = pcre2_match(code, (PCRE2_SPTR)text, len, *from,
				 PCRE2_NO_UTF_CHECK, e->match, e->match_ctx);
		if (rc != PCRE2_ERROR_JIT_STACKLIMIT)
			break;
		err = jit_stack_grow(e);
		if (err)
			return err;
	}
	if (rc == PCRE2_ERROR_NOMEMORY)
		return -ENOMEM;
	if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
		return -EOVERFLOW;
	*from = rc < 0 ? len : bounds[0];
	*to = rc < 0 ? len : bounds[1];
	return 0;
}

/* Cut @text by the patterns from @stage on and encode the pieces. */
static int encode_stage(struct encoder *e, u32 stage, const char *text,
			size_t len)
{
	size_t done = 0, from, to;
	int err;

	if (stage == e->tok->nr_stages)
		return encode_piece(e, text, len);

	while (done < len) {
		from = done;
		err = find_match(e, e->tok->stages[stage], text, len, &from,
				 &to);
		if (!err && from > done)
			err = encode_stage(e, stage + 1, text + done,
					   from - done);
		if (!err && to > from)
			err = encode_stage(e, stage + 1, text + from,
					   to - from);
		if (err)
			return err;
		done = to;
	}
	return 0;
}

/* Where the white space begins that ends [@lo, @hi) of @text. */
static size_t space_before(const char *text, size_t lo, size_t hi)
{
	const u8 *p = (const u8 *)text;
	size_t at;

	while (hi > lo) {
		at = hi - 1;
		while (at > lo && (p[at] & 0xc0) == 0x80)
			at--;
		if (!utf8_is_space(utf8_decode(p + at, hi - at)))
			break;
		hi = at;
	}
	return hi;
}

/* Where the white space ends that begins [@at, @len) of @text. */
static size_t space_after(const char *text, size_t at, size_t len)
{
	const u8 *p = (const u8 *)text;
	size_t n;

	while (at < len) {
		utf8_step(p + at, len - at, &n);
		if (!utf8_is_space(utf8_decode(p + at, n)))
			break;
		at += n;
	}
	return at;
}

/* Does a guard lie, in part, in the @len bytes at @p? */
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
 * Find the added tokens of @turn in @text; what is between goes on.
 *
 * White space that a token swallows is still searched for tokens, and one
 * found there counts although it is swallowed (@done may even step back): odd,
 * but what models were trained with.
 */
static int encode_added(struct encoder *e, u32 turn, const char *text,
			size_t len)
{
	const struct tokenizer *tok = e->tok;
	size_t done = 0, at = 0, from, to, n;
	int err = 0;

	if (turn == NR_ADDED_TURNS)
		return encode_stage(e, 0, text, len);

	while (at < len && !err) {
		u32 id = trie_longest(&tok->added[turn], text + at, len - at,
				      &n);
		u32 flags;

		if (id == TOKENIZER_NO_ID) {
			at++;
			continue;
		}
		flags = tok->tokens[id].flags;
		from = at;
		at += n;
		to = at;
		if ((flags & TOKEN_SPECIAL) &&
		    ((e->flags & TOKENIZER_PLAIN) ||
		     is_guarded(e, text + from, n)))
			continue;
		if ((flags & TOKEN_LSTRIP) && from > done)
			from = space_before(text, done, from);
		if (flags & TOKEN_RSTRIP)
			to = space_after(text, to, len);
		if (from > done)
			err = encode_added(e, turn + 1, text + done,
					   from - done);
		emit(e, id);
		done = to;
	}
	if (!err && done < len)
		err = encode_added(e, turn + 1, text + done, len - done);
	return err;
}

static int encoder_init(struct encoder *e)
{
	e->match = pcre2_match_data_create(1, NULL);
	e->match_ctx = pcre2_match_context_create(NULL);
	return e->match && e->match_ctx ? 0 : -ENOMEM;
}

static void encoder_release(struct encoder *e)
{
	bpe_scratch_free(&e->scratch);
	pcre2_match_data_free(e->match);
	pcre2_match_context_free(e->match_ctx);
	if (e->jit_stack)
		pcre2_jit_stack_free(e->jit_stack);
}

ssize_t tokenizer_encode_guarded(const struct tokenizer *tok, const char *text,
				 size_t len, u32 flags,
				 const struct tokenizer_guard *guards,
				 size_t nr_guards, u32 *ids, size_t max,
				 size_t *needed)
{
	struct encoder e = {
		.tok = tok, .flags = flags, .ids = ids, .max = max,
		.text = text, .guards = guards, .nr_guards = nr_guards,
	};
	int err;

	if (needed)
		*needed = 0;
	if (len >= ENCODE_MAX)
		return -EFBIG;
	if (!utf8_is_valid(text, len))
		return -EILSEQ;

	err = encoder_init(&e);
	if (err)
		goto out_release;
	if ((flags & TOKENIZER_ADD_BOS) && tok->adds_bos)
		emit(&e, tok->bos);
	err = encode_added(&e, ADDED_RAW, text, len);
	if (err)
		goto out_release;
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
	return tok->adds_bos;
}

bool tokenizer_is_special(const struct tokenizer *tok, u32 id)
{
	return id < tok->nr_tokens && (tok->tokens[id].flags & TOKEN_SPECIAL);
}

size_t tokenizer_special_at(const struct tokenizer *tok, const char *text,
			    size_t len)
{
	size_t turn, n;
	u32 id;

	for (turn = 0; turn < NR_ADDED_TURNS && len; turn++) {
		id = trie_longest(&tok->added[turn], text, len, &n);
		if (tokenizer_is_special(tok, id))
			return n;
	}
	return 0;
}

u32 tokenizer_find(const struct tokenizer *tok, const char *bytes, size_t len)
{
	size_t turn, n;
	u32 id;

	if (!len)
		return TOKENIZER_NO_ID;
	for (turn = 0; turn < NR_ADDED_TURNS; turn++) {
		id = trie_longest(&tok->added[turn], bytes, len, &n);
		if (id != TOKENIZER_NO_ID && n == len)
			return id;
	}
	return vocab_find_piece(tok, bytes, len);
}

void tokenizer_free(struct tokenizer *tok)
{
	size_t i;

	if (!tok)
		return;
	for (i = 0; i < tok->nr_stages; i++)
		pcre2_code_free(tok->stages[i]);
	for (i = 0; i < NR_ADDED_TURNS; i++)
		trie_free(&tok->added[i]);
	free(tok->pairs);
	free(tok->merges);
	free(tok->by_bytes);
	free(tok->tokens);
	free(tok->pool);
	free(tok);
}
