// SPDX-License-Identifier: Apache-2.0
/*
 * merges.c - the merges of tokenizer.json
 *
 * A merge names two tokens and, by joining their names, a third; all three must
 * be in the vocabulary.  Its rank is its place in the list.  Names are looked
 * up in the JSON, which is still in memory.
 */
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"

/* U+2581, SentencePiece's mark for a space. */
static const char mark[] = "\xe2\x96\x81";

#define MARK_LEN	(sizeof(mark) - 1)

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
		return load_no_memory(ctx);
	memcpy(both, t.left, t.left_len);
	memcpy(both + t.left_len, t.right, t.right_len);
	err = merge_lookup(ctx, vocab, rank, both, t.left_len + t.right_len,
			   &m->result);
	free(both);
	return err;
}

/*
 * Is there no merge that joins a token with the mark at its beginning to one
 * before it without the mark at its end?  Then a piece may be cut there, and
 * long texts that no pre_tokenizer cuts are merged word by word.
 */
static bool merges_cut_at_mark(const struct tokenizer *tok)
{
	u32 i;

	for (i = 0; i < tok->nr_merges; i++) {
		const struct token *l = &tok->tokens[tok->merges[i].left];
		const struct token *r = &tok->tokens[tok->merges[i].right];

		if (r->piece_len < MARK_LEN ||
		    memcmp(tok->pool + r->piece, mark, MARK_LEN))
			continue;
		if (l->piece_len < MARK_LEN ||
		    memcmp(tok->pool + l->piece + l->piece_len - MARK_LEN,
			   mark, MARK_LEN))
			return false;
	}
	return true;
}

int merges_load(struct load_ctx *ctx, const json_t *vocab,
		const json_t *merges)
{
	struct tokenizer *tok = ctx->tok;
	size_t nr = json_array_size(merges), i;
	int err;

	if (nr >= TOKENIZER_ID_LIMIT)
		return load_fail(ctx, -EINVAL, "%zu merges are too many", nr);
	tok->merges = calloc(nr + 1, sizeof(*tok->merges));
	if (!tok->merges)
		return load_no_memory(ctx);
	for (i = 0; i < nr; i++) {
		err = merge_load(ctx, vocab, i, json_array_get(merges, i));
		if (err)
			return err;
	}
	tok->nr_merges = (u32)nr;
	if (bpe_pairs_build(tok))
		return load_no_memory(ctx);
	/* The mark has a token, so no unknown characters fuse across it. */
	tok->cuts_at_mark = !tok->byte_level && !tok->ignore_merges &&
			    json_object_get(vocab, mark) &&
			    merges_cut_at_mark(tok);
	return 0;
}
