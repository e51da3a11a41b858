/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - declarations shared by the files of the tokenizer
 *
 * Only the loader writes struct tokenizer; afterwards it is constant.
 */
#ifndef KVRT_TOKENIZER_INTERNAL_H
#define KVRT_TOKENIZER_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>
#include <stdarg.h>

#include <kvmm/types.h>

#include "runtime/tokenizer/tokenizer.h"

/* Ids at or above this are refused: real vocabularies are far smaller. */
#define TOKENIZER_ID_LIMIT	(1u << 24)

/* Most stages of a pre_tokenizer. */
#define TOKENIZER_MAX_STAGES	16

/* Most steps of a normalizer, and of a decoder. */
#define TOKENIZER_MAX_STEPS	16

/* Most tokens that a post_processor puts before or after a text. */
#define TOKENIZER_MAX_AROUND	8

/* Largest size of a normalized text: real ones are far smaller. */
#define TOKENIZER_GROWN(len)	(32 * (len) + 4096)

enum token_flags {
	TOKEN_EXISTS	= BIT(0),
	TOKEN_ADDED	= BIT(1),	/* matched in the text, before BPE */
	TOKEN_SPECIAL	= BIT(2),
	TOKEN_LSTRIP	= BIT(3),	/* takes white space before it */
	TOKEN_RSTRIP	= BIT(4),	/* takes white space after it */
	TOKEN_PIECE	= BIT(5),	/* a piece of text can be this token */
	TOKEN_WORD	= BIT(6),	/* added: no letters beside it */
	TOKEN_BYTE	= BIT(7),	/* decodes to a byte, by byte fallback */
	TOKEN_NAMED	= BIT(8),	/* its own text, not the byte alphabet */
};

/*
 * A token.  The piece is the text for BPE: bytes if the vocabulary is written
 * in the byte alphabet, else the token's name.  Its decoded text may be the
 * same bytes of the pool, or others.
 */
struct token {
	u32 piece;
	u32 piece_len;
	u32 off;
	u32 len;
	u32 first;		/* decoded text at the beginning of a text, */
	u32 first_len;		/* if struct decoding has @drop */
	u32 flags;
};

/* The tokens @left and @right, side by side, can become @result. */
struct merge {
	u32 left;
	u32 right;
	u32 result;
};

/* A slot of the pair table; empty when @rank is TOKENIZER_NO_ID. */
struct pair_slot {
	u32 left;
	u32 right;
	u32 rank;
	u32 result;
};

/*
 * A node of a byte trie; its children are a list.  Node 0 is not used: as a
 * link it means "none".
 */
struct trie_node {
	u32 child;
	u32 sibling;
	u32 id;
	u8 byte;
};

struct trie {
	struct trie_node *nodes;
	u32 nr;
	u32 cap;
	u32 root[256];
};

/* Added tokens are matched in two turns, by the files' "normalized" key. */
enum added_turn {
	ADDED_RAW,
	ADDED_NORMALIZED,
	NR_ADDED_TURNS,
};

/* A growing byte array. */
struct tok_text {
	char *p;
	size_t len;
	size_t cap;
};

/* Target of a Split or a Replace: a pattern, or a string. */
struct finder {
	pcre2_code *code;		/* NULL: search for the string */
	char *string;
	size_t len;
};

/* Treatment of matches and of the text between them; x(value, name) */
#define SPLIT_BEHAVIORS(x)				\
	x(SPLIT_REMOVED, "Removed")			\
	x(SPLIT_ISOLATED, "Isolated")			\
	x(SPLIT_WITH_PREVIOUS, "MergedWithPrevious")	\
	x(SPLIT_WITH_NEXT, "MergedWithNext")		\
	x(SPLIT_CONTIGUOUS, "Contiguous")

enum split_behavior {
#define x(value, name)	value,
	SPLIT_BEHAVIORS(x)
#undef x
};

/* When a Metaspace puts its mark before a piece; x(value, name) */
#define PREPEND_SCHEMES(x)		\
	x(PREPEND_ALWAYS, "always")	\
	x(PREPEND_FIRST, "first")	\
	x(PREPEND_NEVER, "never")

enum prepend_scheme {
#define x(value, name)	value,
	PREPEND_SCHEMES(x)
#undef x
};

enum stage_kind {
	STAGE_SPLIT,		/* cut by @find */
	STAGE_PREFIX,		/* put @mark before a text without it */
	STAGE_METASPACE,	/* spaces to @mark, @mark before, then cut */
};

/* A step of the pre_tokenizer, from piece to pieces. */
struct stage {
	enum stage_kind kind;
	struct finder find;
	enum split_behavior behavior;
	bool invert;
	enum prepend_scheme scheme;
	u8 mark_len;
	char mark[5];
	bool cuts;
};

enum norm_kind {
	NORM_FORM,		/* NFC and similar: @form */
	NORM_LOWERCASE,
	NORM_STRIP,		/* white space at the ends */
	NORM_STRIP_ACCENTS,
	NORM_PREPEND,
	NORM_REPLACE,
};

enum norm_form {
	FORM_COMPOSE	= BIT(0),
	FORM_COMPAT	= BIT(1),
};

/* A step of the normalizer, or a Replace of the decoder. */
struct norm_step {
	enum norm_kind kind;
	u32 form;
	bool left;
	bool right;
	struct finder find;
	char *with;
	size_t with_len;
};

enum decode_kind {
	DECODE_BYTES,		/* the byte alphabet */
	DECODE_JOINED,		/* no decoder: spaces between the tokens */
	DECODE_STEPS,
};

/*
 * How ids become text.  @steps are applied once to each token, at load; the
 * rest is done while decoding.
 */
struct decoding {
	enum decode_kind kind;
	struct norm_step steps[TOKENIZER_MAX_STEPS];
	u32 nr_steps;
	bool fallback;		/* "<0xE4>" is a byte */
	u8 strip;		/* so many of @strip_char are removed at the beginning */
	u8 strip_len;
	char strip_char[5];
	u8 drop_len;		/* all of these are removed from the first token */
	char drop[5];
};

/* Ids of the tokens that a post_processor puts around a text. */
struct around {
	u32 ids[TOKENIZER_MAX_AROUND];
	u32 nr;
};

struct tokenizer {
	char *pool;
	size_t pool_len;
	size_t pool_cap;

	struct token *tokens;		/* by id */
	u32 nr_tokens;
	u32 max_token_len;

	u32 *by_piece;			/* hash of the piece -> id */
	u32 by_piece_bits;

	/*
	 * Odd, drawn at load: with a known key a file could be made with all
	 * ids and tokens in one slot, which would take minutes.  No result
	 * depends on it.
	 */
	u64 hash_key;

	struct merge *merges;		/* by rank */
	u32 nr_merges;
	struct pair_slot *pairs;	/* hash of (left, right) -> rank */
	u32 pair_bits;

	/* first symbols of a piece: bytes, or characters */
	bool byte_level;
	u32 byte_id[256];		/* token of the byte, or of its fallback */
	u32 *char_id;			/* [0x10000] by code point */
	bool byte_fallback;
	bool fuse_unk;
	u32 unk;
	bool cuts_at_mark;		/* no merge crosses the left side of a U+2581 */

	struct trie added[NR_ADDED_TURNS];
	struct trie added_names;	/* all, by their own text */
	pcre2_code *word;		/* ^\w, if a token needs it */
	struct norm_step norm[TOKENIZER_MAX_STEPS];
	u32 nr_norm;
	struct stage stages[TOKENIZER_MAX_STAGES];
	u32 nr_stages;
	struct decoding dec;

	bool ignore_merges;
	struct around before;
	struct around after;
	u32 bos;
	u32 eos;
};

/*
 * loading (load.c, parts.c, load_*.c)
 *
 * Context of loader functions for error lines: @path is the current file, and
 * load_fail() writes the one line into @err.
 */
struct load_ctx {
	struct tokenizer *tok;
	const char *path;
	char path_buf[4096];
	char *err;
	size_t err_size;
	size_t added_text;	/* bytes of all added tokens so far */
};

/** load_file() - read DIR/NAME, which becomes @path; free it with free() */
int __must_check load_file(struct load_ctx *ctx, const char *dir,
			   const char *name, char **text, size_t *len);
/**
 * load_file_json() - parse DIR/NAME; *@root is NULL if there is no such file
 */
int __must_check load_file_json(struct load_ctx *ctx, const char *dir,
			   const char *name, json_t **root);
/** load_parts() - load all parts of a tokenizer.json */
int __must_check load_parts(struct load_ctx *ctx, const json_t *root);
/** load_vocab_merges() - load a folder without tokenizer.json (load_pair.c) */
int __must_check load_vocab_merges(struct load_ctx *ctx, const char *dir);
/** load_gguf() - load the tokenizer of a GGUF file (load_gguf.c) */
int __must_check load_gguf(struct load_ctx *ctx, const char *path);

/** load_fail() - write "PATH: reason" and return @code */
int __printf(3, 4) load_fail(const struct load_ctx *ctx, int code,
			     const char *fmt, ...);

/** load_no_memory() - the same for -ENOMEM */
int load_no_memory(const struct load_ctx *ctx);

/** load_id() - read a token id; false if @v is not one */
bool load_id(const json_t *v, u32 *id);

/**
 * struct part - a typed object of tokenizer.json
 * @json: the object
 * @place: its place, "normalizer" or "normalizer.normalizers[2]"
 */
struct part {
	const json_t *json;
	char place[96];
};

/** part_type() - its "type"; "null": no part; "?": no type */
const char *part_type(const struct part *p);
bool part_is(const struct part *p, const char *type);
/** part_inner() - the part at @key of @outer, or at index @i of that list */
struct part part_inner(const struct part *outer, const char *key, ssize_t i);
/** part_refuse() - "PLACE of type TYPE is not supported" */
int part_refuse(const struct load_ctx *ctx, const struct part *p);
/** part_fail() - "PLACE (TYPE): reason" */
int __printf(4, 5) part_fail(const struct load_ctx *ctx, const struct part *p,
			     int code, const char *fmt, ...);
/** part_keys() - refuse keys other than "type" and @keys, space separated */
int __must_check part_keys(const struct load_ctx *ctx, const struct part *p,
			   const char *keys);
/** part_bool() - read a truth value; missing or null leaves @out alone */
int __must_check part_bool(const struct load_ctx *ctx, const struct part *p,
			   const char *key, bool *out);
/** part_string() - read a required string */
int __must_check part_string(const struct load_ctx *ctx, const struct part *p,
			     const char *key, const char **out);
/** part_char() - read a string of one character */
int __must_check part_char(const struct load_ctx *ctx, const struct part *p,
			   const char *key, char out[5], u8 *len);
/** part_list() - the parts of a Sequence: their number, or an error */
ssize_t __must_check part_list(const struct load_ctx *ctx,
			       const struct part *p, const char *key,
			       size_t limit);
/** part_finder() - read "pattern": {"String": s} or {"Regex": r} */
int __must_check part_finder(const struct load_ctx *ctx, const struct part *p,
			     struct finder *f);

/* One for each part; with a NULL json there is no such part. */
int __must_check load_normalizer(struct load_ctx *ctx, const struct part *p);
int __must_check load_pre_tokenizer(struct load_ctx *ctx,
				    const struct part *p);
int __must_check load_post_processor(struct load_ctx *ctx,
				     const struct part *p);
int __must_check load_decoder(struct load_ctx *ctx, const struct part *p);
/** load_replace() - load a Replace of the normalizer or of the decoder */
int __must_check load_replace(struct load_ctx *ctx, const struct part *p,
			      struct norm_step *s);
/** around_add() - add @id at the front or the end; false if there is no room */
bool around_add(struct around *a, u32 id, bool in_front);

int __must_check vocab_load(struct load_ctx *ctx, const json_t *model);
/** vocab_index_build() - build the index for vocab_find_piece() and BPE */
int __must_check vocab_index_build(struct load_ctx *ctx);
/** vocab_find_piece() - id of the token with this piece, or NO_ID */
u32 vocab_find_piece(const struct tokenizer *tok, const char *bytes,
		     size_t len);
/** vocab_pool_add() - add bytes to the pool; their place, or -ENOMEM */
s64 vocab_pool_add(struct tokenizer *tok, const char *bytes, size_t len);
int __must_check vocab_tokens_reserve(struct tokenizer *tok, u32 id);
/**
 * vocab_texts_build() - set the decoded text of each token, once dec is known
 */
int __must_check vocab_texts_build(struct load_ctx *ctx);
int __must_check merges_load(struct load_ctx *ctx, const json_t *vocab,
			     const json_t *merges);

/** added_load_list() - load the added_tokens of tokenizer.json */
int __must_check added_load_list(struct load_ctx *ctx, const json_t *list,
				 const json_t *model);
/** added_load_map() - load new tokens of added_tokens_decoder of the config */
int __must_check added_load_map(struct load_ctx *ctx, const json_t *map);

/* growing text (parts.c) */
int __must_check tok_put(struct tok_text *t, const char *bytes, size_t len);
void tok_text_free(struct tok_text *t);

/*
 * finding (pattern.c, find.c)
 */

/* The pattern of GPT-2, used by a ByteLevel with use_regex. */
extern const char pattern_gpt2[];

/**
 * pattern_compile() - compile a pattern written for Oniguruma with PCRE2
 * @src: the pattern, NUL terminated UTF-8
 * @out: the code, JIT compiled where the machine can
 * @why: gets a phrase on failure
 * @why_size: bytes at @why
 *
 * Return: 0, -EINVAL, -EOPNOTSUPP or -ENOMEM.
 */
int __must_check pattern_compile(const char *src, pcre2_code **out,
				 char *why, size_t why_size);

/* Character sets that parts of the library define themselves. */
enum pattern_set {
	SET_DIGIT,		/* of Digits */
	SET_PUNCTUATION,
	SET_SPACE,
	SET_WORDS,		/* of Whitespace: runs of word or other characters */
	SET_WORD_FIRST,		/* does a text begin with a word character? */
};

/**
 * pattern_compile_set() - compile the pattern of a set; as pattern_compile()
 */
int __must_check pattern_compile_set(enum pattern_set set, pcre2_code **out);

/* Per-thread state for patterns; zero it, then call find_init(). */
struct find_ctx {
	pcre2_match_data *match;
	pcre2_match_context *match_ctx;
	pcre2_jit_stack *jit_stack;	/* allocated when the built-in one is full */
};

int __must_check find_init(struct find_ctx *c);
void find_release(struct find_ctx *c);

/**
 * finder_next() - the next match in [*@from, @len) of @text
 * @f:    the pattern or string
 * @c:    the caller's state
 * @text: valid UTF-8
 * @len:  its bytes
 * @from: where to begin; gets the beginning of the match, @len if there is none
 * @to:   gets its end
 *
 * Return: 0, -ENOMEM, or -EOVERFLOW when the pattern exceeds PCRE2's limits.
 */
int __must_check finder_next(const struct finder *f, struct find_ctx *c,
			     const char *text, size_t len, size_t *from,
			     size_t *to);
void finder_free(struct finder *f);

/*
 * normalizing (normalize.c, forms.c)
 */

/* Two buffers that the steps write in turn. */
struct norm_scratch {
	struct tok_text buf[2];
	s32 *points;			/* used by forms.c */
	size_t cap;
};

/**
 * norm_apply() - apply steps to a text
 * @steps: the steps
 * @nr: how many
 * @c: for patterns
 * @s: scratch memory, zeroed before its first use
 * @text: in: the text; out: the result, in @s or the same text
 * @len: its bytes, likewise
 *
 * Return: 0, -ENOMEM, -EFBIG (the text grew too much), -EOVERFLOW.
 */
int __must_check norm_apply(const struct norm_step *steps, u32 nr,
			   struct find_ctx *c, struct norm_scratch *s,
			   const char **text, size_t *len);
void norm_scratch_free(struct norm_scratch *s);
void norm_step_free(struct norm_step *s);

/** form_apply() - bring a text into NFC, NFD, NFKC or NFKD */
int __must_check form_apply(u32 form, struct norm_scratch *s,
			    const char *text, size_t len, struct tok_text *out);
/** form_is_mark() - is @cp a mark that StripAccents removes? */
bool form_is_mark(u32 cp);
/**
 * form_lowercase() - the lower case, one or two code points; returns how many
 */
u32 form_lowercase(u32 cp, u32 out[2]);

/*
 * merging (bpe.c)
 */

/* One symbol of a piece; a dead symbol has the id TOKENIZER_NO_ID. */
struct bpe_sym {
	u32 id;
	s32 prev;
	s32 next;
};

/* Scratch memory for pieces of up to @cap bytes; it grows. */
struct bpe_scratch {
	struct bpe_sym *syms;
	u64 *heap;
	size_t cap;
	size_t nr;			/* symbols of the piece before merges */
	size_t nr_heap;
};

/**
 * bpe_piece() - merge one piece
 * @tok: the tokenizer
 * @s: scratch memory, zeroed before its first use
 * @piece: bytes of the piece, valid UTF-8
 * @len: bytes at @piece, at least 1
 *
 * The ids are in the chain of @s->syms that begins at 0.  There is none if
 * @s->nr is 0, which means that the vocabulary has no token for the piece.
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check bpe_piece(const struct tokenizer *tok, struct bpe_scratch *s,
			   const char *piece, size_t len);
void bpe_scratch_free(struct bpe_scratch *s);

/** bpe_pairs_build() - hash @tok->merges; of duplicates the later one counts */
int __must_check bpe_pairs_build(struct tokenizer *tok);

/*
 * splitting (split.c)
 */

/* State of splitting, and the receiver of pieces. */
struct splitter {
	const struct tokenizer *tok;
	struct find_ctx find;
	struct tok_text buf[TOKENIZER_MAX_STAGES];
	int (*piece)(struct splitter *s, const char *p, size_t len);
};

/**
 * split_text() - apply the stages of the pre_tokenizer to a text
 * @s:   the caller's state
 * @text: valid UTF-8
 * @len: its bytes, at least 1
 * @first: does the whole input begin here?
 *
 * Return: 0, or the first error of a piece or of a pattern.
 */
int __must_check split_text(struct splitter *s, const char *text, size_t len,
			    bool first);

/*
 * added tokens (trie.c)
 */
int __must_check trie_insert(struct trie *t, const char *bytes, size_t len,
			     u32 id);
/** trie_longest() - longest entry that @p begins with: its id, or NO_ID */
u32 trie_longest(const struct trie *t, const char *p, size_t n, size_t *len);
void trie_free(struct trie *t);

#endif /* KVRT_TOKENIZER_INTERNAL_H */
