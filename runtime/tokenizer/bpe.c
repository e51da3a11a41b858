// SPDX-License-Identifier: Apache-2.0
/*
 * bpe.c - byte-pair encoding of one piece
 *
 * With ByteLevel a piece starts as one symbol a byte.  Without it a piece
 * starts as one symbol a character; a character without a token becomes the
 * tokens of its bytes, or the unknown token.  Of all neighbours in the merge
 * list the pair with the lowest rank is joined, the leftmost of equals, until
 * no neighbours are in the list.  Searching the best pair again after each
 * merge is quadratic, and a piece can be as long as the text (a megabyte of one
 * letter), so:
 *
 * - symbols are a doubly linked list inside an array: joining is O(1);
 * - candidates are in a binary heap of 64-bit words, rank in the upper half and
 *   position in the lower: one comparison gives "lowest rank, leftmost".
 *
 * Candidates are not removed when a neighbour changes.  A stale candidate is
 * recognised when it comes up, since the symbols at its position are no longer
 * the two of its rank.  A symbol only grows to the right or dies, so a
 * candidate that matches again by accident is the same candidate.
 *
 * The heap never holds more than 2 * len entries: len - 1 at first, and each of
 * at most len - 1 merges removes one and adds at most two.
 * of at most len - 1 merges takes one out and puts at most two in.
 */
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"

#define BPE_SCRATCH_MIN	64

static inline u32 pair_hash(const struct tokenizer *tok, u32 left, u32 right)
{
	u64 key = (u64)left << 32 | right;

	/* The high bits of a product depend on all bits of its factors. */
	key ^= key >> 29;
	return (key * tok->hash_key) >> (64 - tok->pair_bits);
}

/* Slot of the pair, or the empty slot for it. */
static struct pair_slot *pair_slot(const struct tokenizer *tok, u32 left,
				   u32 right)
{
	u32 mask = (1u << tok->pair_bits) - 1;
	u32 i = pair_hash(tok, left, right);
	struct pair_slot *s = &tok->pairs[i];

	while (s->rank != TOKENIZER_NO_ID &&
	       (s->left != left || s->right != right)) {
		i = (i + 1) & mask;
		s = &tok->pairs[i];
	}
	return s;
}

int bpe_pairs_build(struct tokenizer *tok)
{
	u32 rank, bits = 4;

	while ((1ull << bits) < 2ull * tok->nr_merges)
		bits++;
	tok->pair_bits = bits;
	tok->pairs = malloc(sizeof(*tok->pairs) << bits);
	if (!tok->pairs)
		return -ENOMEM;
	memset(tok->pairs, 0xff, sizeof(*tok->pairs) << bits);

	for (rank = 0; rank < tok->nr_merges; rank++) {
		struct merge *m = &tok->merges[rank];

		*pair_slot(tok, m->left, m->right) = (struct pair_slot){
			.left = m->left, .right = m->right, .rank = rank,
			.result = m->result,
		};
	}
	return 0;
}

static int scratch_reserve(struct bpe_scratch *s, size_t len)
{
	struct bpe_sym *syms;
	size_t cap = max(s->cap * 2, (size_t)BPE_SCRATCH_MIN);
	u64 *heap;

	if (len <= s->cap)
		return 0;
	cap = max(cap, len);
	syms = realloc(s->syms, cap * sizeof(*syms));
	if (!syms)
		return -ENOMEM;
	s->syms = syms;
	heap = realloc(s->heap, 2 * cap * sizeof(*heap));
	if (!heap)
		return -ENOMEM;
	s->heap = heap;
	s->cap = cap;
	return 0;
}

void bpe_scratch_free(struct bpe_scratch *s)
{
	free(s->syms);
	free(s->heap);
	memset(s, 0, sizeof(*s));
}

static void heap_push(struct bpe_scratch *s, u64 v)
{
	size_t i = s->nr_heap++, up;

	while (i) {
		up = (i - 1) / 2;
		if (s->heap[up] <= v)
			break;
		s->heap[i] = s->heap[up];
		i = up;
	}
	s->heap[i] = v;
}

static u64 heap_pop(struct bpe_scratch *s)
{
	u64 top = s->heap[0], v = s->heap[--s->nr_heap];
	size_t i = 0, c;

	for (;;) {
		c = 2 * i + 1;
		if (c >= s->nr_heap)
			break;
		if (c + 1 < s->nr_heap && s->heap[c + 1] < s->heap[c])
			c++;
		if (v <= s->heap[c])
			break;
		s->heap[i] = s->heap[c];
		i = c;
	}
	s->heap[i] = v;
	return top;
}

/* Add the symbol at @pos and its right neighbour if they are a candidate. */
static void candidate_add(const struct tokenizer *tok, struct bpe_scratch *s,
			  s32 pos)
{
	s32 next = s->syms[pos].next;
	u32 rank;

	if (next < 0)
		return;
	rank = pair_slot(tok, s->syms[pos].id, s->syms[next].id)->rank;
	if (rank != TOKENIZER_NO_ID)
		heap_push(s, (u64)rank << 32 | (u32)pos);
}

/* Join @pos with its right neighbour. */
static void symbols_join(const struct tokenizer *tok, struct bpe_scratch *s,
			 s32 pos, u32 id)
{
	struct bpe_sym *a = &s->syms[pos], *b = &s->syms[a->next];

	a->id = id;
	b->id = TOKENIZER_NO_ID;
	a->next = b->next;
	if (a->next >= 0)
		s->syms[a->next].prev = pos;
	if (a->prev >= 0)
		candidate_add(tok, s, a->prev);
	candidate_add(tok, s, pos);
}

static bool candidate_is_stale(const struct bpe_scratch *s,
			       const struct merge *m, s32 pos)
{
	s32 next = s->syms[pos].next;

	return s->syms[pos].id != m->left || next < 0 ||
	       s->syms[next].id != m->right;
}

/* Symbols of a new piece. */
static void symbol_add(struct bpe_scratch *s, u32 id)
{
	s->syms[s->nr++].id = id;
}

static void symbols_of_bytes(const struct tokenizer *tok,
			     struct bpe_scratch *s, const char *piece,
			     size_t len)
{
	size_t i;
	u32 id;

	for (i = 0; i < len; i++) {
		id = tok->byte_id[(u8)piece[i]];
		if (id != TOKENIZER_NO_ID)
			symbol_add(s, id);
	}
}

static u32 char_find(const struct tokenizer *tok, const u8 *p, size_t len)
{
	if (len < 4)
		return tok->char_id[utf8_decode(p, len)];
	return vocab_find_piece(tok, (const char *)p, len);
}

/* Add the tokens of all bytes of a character, or none of them. */
static bool symbols_fall_back(const struct tokenizer *tok,
			      struct bpe_scratch *s, const u8 *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (tok->byte_id[p[i]] == TOKENIZER_NO_ID)
			return false;
	for (i = 0; i < len; i++)
		symbol_add(s, tok->byte_id[p[i]]);
	return true;
}

/* An unknown token waits for the next known one, so that it can grow. */
static void symbols_of_chars(const struct tokenizer *tok,
			     struct bpe_scratch *s, const u8 *p, size_t len)
{
	bool waiting = false;
	size_t at, n;
	u32 id;

	for (at = 0; at < len; at += n) {
		utf8_step(p + at, len - at, &n);
		id = char_find(tok, p + at, n);
		if (id != TOKENIZER_NO_ID) {
			if (waiting)
				symbol_add(s, tok->unk);
			waiting = false;
			symbol_add(s, id);
		} else if (!symbols_fall_back(tok, s, p + at, n) &&
			   tok->unk != TOKENIZER_NO_ID) {
			if (waiting && !tok->fuse_unk)
				symbol_add(s, tok->unk);
			waiting = true;
		}
	}
	if (waiting)
		symbol_add(s, tok->unk);
}

int bpe_piece(const struct tokenizer *tok, struct bpe_scratch *s,
	      const char *piece, size_t len)
{
	size_t i;
	int err;

	err = scratch_reserve(s, len);
	if (err)
		return err;

	s->nr = 0;
	if (tok->byte_level)
		symbols_of_bytes(tok, s, piece, len);
	else
		symbols_of_chars(tok, s, (const u8 *)piece, len);
	for (i = 0; i < s->nr; i++) {
		s->syms[i].prev = (s32)i - 1;
		s->syms[i].next = i + 1 < s->nr ? (s32)i + 1 : -1;
	}
	s->nr_heap = 0;
	for (i = 0; i + 1 < s->nr; i++)
		candidate_add(tok, s, (s32)i);

	while (s->nr_heap) {
		u64 top = heap_pop(s);
		const struct merge *m = &tok->merges[top >> 32];
		s32 pos = (s32)(u32)top;

		if (!candidate_is_stale(s, m, pos))
			symbols_join(tok, s, pos, m->result);
	}
	return 0;
}
