/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the files of the tokenizer share
 *
 * struct tokenizer is written by the loader alone and constant afterwards.
 */
#ifndef KVRT_TOKENIZER_INTERNAL_H
#define KVRT_TOKENIZER_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>

#include <kvmm/types.h>

#include "runtime/tokenizer/tokenizer.h"

/* Ids at or above this are refused: no vocabulary is near it. */
#define TOKENIZER_ID_LIMIT	(1u << 24)

/* Splits that may follow one another in a pre_tokenizer. */
#define TOKENIZER_MAX_STAGES	8

enum token_flags {
	TOKEN_EXISTS	= BIT(0),
	TOKEN_ADDED	= BIT(1),	/* matched in the text, before BPE */
	TOKEN_SPECIAL	= BIT(2),
	TOKEN_LSTRIP	= BIT(3),	/* swallows white space before it */
	TOKEN_RSTRIP	= BIT(4),	/* and after it */
	TOKEN_PIECE	= BIT(5),	/* spelt in the byte alphabet */
};

/* What a token decodes to: @len bytes at @off of the pool. */
struct token {
	u32 off;
	u32 len;
	u32 flags;
};

/* The tokens @left and @right, side by side, may become @result. */
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
};

/*
 * A node of a byte trie, its children a list.  Node 0 is no node: it means
 * "none" as a link.
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

/* Added tokens come in two turns, as in the files' "normalized" key. */
enum added_turn {
	ADDED_RAW,
	ADDED_NORMALIZED,
	NR_ADDED_TURNS,
};

struct tokenizer {
	char *pool;
	size_t pool_len;
	size_t pool_cap;

	struct token *tokens;		/* by id */
	u32 nr_tokens;
	u32 max_token_len;

	u32 *by_bytes;			/* hash of the bytes -> id */
	u32 by_bytes_bits;

	struct merge *merges;		/* by rank */
	u32 nr_merges;
	struct pair_slot *pairs;	/* hash of (left, right) -> rank */
	u32 pair_bits;
	u32 byte_id[256];

	struct trie added[NR_ADDED_TURNS];
	pcre2_code *stages[TOKENIZER_MAX_STAGES];
	u32 nr_stages;

	bool ignore_merges;
	bool adds_bos;
	u32 bos;
	u32 eos;
};

/*
 * loading (load.c, vocab.c)
 *
 * What a loader function needs to say what is wrong: @path is the file it is
 * reading, and load_fail() writes the one line into @err.
 */
struct load_ctx {
	struct tokenizer *tok;
	const char *path;
	char *err;
	size_t err_size;
};

/** load_fail() - write "PATH: reason" and return @code */
int __printf(3, 4) load_fail(const struct load_ctx *ctx, int code,
			     const char *fmt, ...);

/** load_id() - read a token id; false if @v is not one */
bool load_id(const json_t *v, u32 *id);

int __must_check vocab_load(struct load_ctx *ctx, const json_t *model);
int __must_check vocab_load_added(struct load_ctx *ctx, const json_t *list,
				  const json_t *model);
/** vocab_index_build() - make what tokenizer_find() and BPE look up */
int __must_check vocab_index_build(struct tokenizer *tok);
/** vocab_find_piece() - id of the token of the byte alphabet, or NO_ID */
u32 vocab_find_piece(const struct tokenizer *tok, const char *bytes,
		     size_t len);

/*
 * splitting (pattern.c)
 */

/* The pattern of GPT-2, meant by a ByteLevel with use_regex. */
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

/*
 * merging (bpe.c)
 */

/* One symbol of a piece; a dead one has the id TOKENIZER_NO_ID. */
struct bpe_sym {
	u32 id;
	s32 prev;
	s32 next;
};

/* Scratch memory for pieces of up to @cap bytes; grows. */
struct bpe_scratch {
	struct bpe_sym *syms;
	u64 *heap;
	size_t cap;
	size_t nr_heap;
};

/**
 * bpe_piece() - merge one piece
 * @tok: the tokenizer
 * @s: scratch memory, zeroed before its first use
 * @piece: bytes of the piece
 * @len: bytes at @piece, at least 1
 *
 * Leaves the ids in the chain of @s->syms that begins at 0.
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check bpe_piece(const struct tokenizer *tok, struct bpe_scratch *s,
			   const char *piece, size_t len);
void bpe_scratch_free(struct bpe_scratch *s);

/** bpe_pairs_build() - hash @tok->merges; a later duplicate wins */
int __must_check bpe_pairs_build(struct tokenizer *tok);

/*
 * added tokens (trie.c)
 */
int __must_check trie_insert(struct trie *t, const char *bytes, size_t len,
			     u32 id);
/** trie_longest() - longest entry @p begins with: its id, or NO_ID */
u32 trie_longest(const struct trie *t, const char *p, size_t n, size_t *len);
void trie_free(struct trie *t);

#endif /* KVRT_TOKENIZER_INTERNAL_H */
