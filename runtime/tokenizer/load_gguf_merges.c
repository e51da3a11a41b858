// SPDX-License-Identifier: Apache-2.0
/*
 * load_gguf_merges.c - the merges of a GGUF file
 *
 * Byte-level vocabularies list their merges.  Those of SentencePiece have a score
 * for each token instead: of two neighbours that are a token together, those of the
 * highest score are joined first.  A tokenizer.json has that as merges: all ways to
 * split a token in two tokens, ordered by its score.  Equal scores are ordered as in
 * the files that transformers writes: a longer left side first, then a longer right
 * side, in characters, then the lower id.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/tokenizer/load_gguf.h"

#define KEY_MERGES	GGUF_KEY("merges")
#define KEY_SCORES	GGUF_KEY("scores")

/* Gemma has half a million. */
#define MERGES_MAX	(1u << 21)

/* Sum of the squared lengths of the tokens, which the time depends on. */
#define WORK_MAX	(1ull << 30)

int gguf_merges_read(const struct load_ctx *ctx, const struct gguf_vocab *v,
		     json_t **out)
{
	const u64 nr = gguf_nr_items(v->g, KEY_MERGES);
	struct gguf_str s;
	json_t *list;
	u64 i;

	if (!nr)
		return load_fail(ctx, -EINVAL, KEY_MERGES " is no list, or "
				 "empty: convert the model again");
	if (nr > MERGES_MAX)
		return load_fail(ctx, -EOPNOTSUPP, KEY_MERGES " has %llu "
				 "merges, more than %u",
				 (unsigned long long)nr, MERGES_MAX);
	list = json_array();
	for (i = 0; i < nr; i++) {
		if (gguf_item_str(v->g, KEY_MERGES, i, &s) &&
		    !memchr(s.at, 0, s.len) &&
		    !json_array_append_new(list, json_stringn(s.at, s.len)))
			continue;
		json_decref(list);
		return load_fail(ctx, -EINVAL, KEY_MERGES "[%llu] is no text: "
				 "convert the model again",
				 (unsigned long long)i);
	}
	*out = list;
	return 0;
}

/**
 * struct split - a way to split a token
 * @score:	of the token
 * @token:	the token
 * @left:	the sides
 * @right:	the same
 * @left_len:	characters of the left side
 * @right_len:	characters of the right side
 */
struct split {
	double	score;
	u32	token;
	u32	left;
	u32	right;
	u16	left_len;
	u16	right_len;
};

struct splits {
	struct split	*list;
	u32		nr;
	u32		cap;
};

static int split_cmp(const void *pa, const void *pb)
{
	const struct split *a = pa, *b = pb;

	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	if (a->left_len != b->left_len)
		return a->left_len > b->left_len ? -1 : 1;
	if (a->right_len != b->right_len)
		return a->right_len > b->right_len ? -1 : 1;
	return a->token < b->token ? -1 : a->token > b->token;
}

static int split_add(const struct load_ctx *ctx, struct splits *s,
		     const struct split *one)
{
	const u32 cap = max(2 * s->cap, 4096u);
	struct split *list;

	if (s->nr == MERGES_MAX)
		return load_fail(ctx, -EOPNOTSUPP, KEY_SCORES " means more "
				 "than %u merges", MERGES_MAX);
	if (s->nr == s->cap) {
		list = realloc(s->list, cap * sizeof(*list));
		if (!list)
			return load_no_memory(ctx);
		s->list = list;
		s->cap = cap;
	}
	s->list[s->nr++] = *one;
	return 0;
}

static bool begins_character(char c)
{
	return (c & 0xc0) != 0x80;
}

/* Add all ways to split a token. */
static int token_split(const struct load_ctx *ctx, const struct gguf_vocab *v,
		       struct splits *s, u32 token, double score)
{
	const char *text = json_string_value(v->names[token]);
	const size_t len = json_string_length(v->names[token]);
	struct split one = { .score = score, .token = token };
	const json_t *left, *right;
	u16 chars = 0;
	size_t i;
	int err = 0;

	for (i = 0; i < len; i++)
		chars += begins_character(text[i]);
	for (i = 1; i < len && !err; i++) {
		if (!begins_character(text[i]))
			continue;
		one.left_len++;
		left = json_object_getn(v->vocab, text, i);
		right = left ? json_object_getn(v->vocab, text + i, len - i) :
			       NULL;
		if (!right)
			continue;
		one.right_len = chars - one.left_len;
		one.left = (u32)json_number_value(left);
		one.right = (u32)json_number_value(right);
		err = split_add(ctx, s, &one);
	}
	return err;
}

/*
 * Add the ways to split all tokens.  No merges make a control token: text of a user
 * must not become one.  The score of a user-defined token is lost in a GGUF file; in
 * SentencePiece's it is 0.
 */
static int tokens_split(const struct load_ctx *ctx, const struct gguf_vocab *v,
			struct splits *s)
{
	double score;
	u64 work = 0;
	size_t len;
	u32 i;
	int err = 0;

	for (i = 0; i < v->nr && !err; i++) {
		if (!gguf_item_real(v->g, KEY_SCORES, i, &score) ||
		    !isfinite(score))
			return load_fail(ctx, -EINVAL, KEY_SCORES "[%u] is no "
					 "number: convert the model again", i);
		if (!v->names[i] || (v->types[i] != GGUF_NORMAL &&
		    v->types[i] != GGUF_USER && v->types[i] != GGUF_UNUSED))
			continue;
		len = json_string_length(v->names[i]);
		work += len * len;
		if (work > WORK_MAX)
			return load_fail(ctx, -EOPNOTSUPP, "the tokens are too "
					 "long to be split in all ways");
		err = token_split(ctx, v, s, i,
				  v->types[i] == GGUF_USER ? 0 : score);
	}
	return err;
}

static json_t *splits_json(const struct gguf_vocab *v, const struct splits *s)
{
	json_t *list = json_array();
	u32 i;

	for (i = 0; i < s->nr; i++)
		if (json_array_append_new(list, json_pack("[OO]",
				v->names[s->list[i].left],
				v->names[s->list[i].right]))) {
			json_decref(list);
			return NULL;
		}
	return list;
}

int gguf_merges_derive(const struct load_ctx *ctx, const struct gguf_vocab *v,
		       json_t **out)
{
	struct splits s = { .list = NULL };
	int err;

	if (gguf_nr_items(v->g, KEY_SCORES) != v->nr)
		return load_fail(ctx, -EINVAL, KEY_SCORES " does not have the "
				 "%u entries of " GGUF_KEY("tokens")
				 ": convert the model again", v->nr);
	err = tokens_split(ctx, v, &s);
	if (!err) {
		if (s.nr)
			qsort(s.list, s.nr, sizeof(*s.list), split_cmp);
		*out = splits_json(v, &s);
		err = *out ? 0 : load_no_memory(ctx);
	}
	free(s.list);
	return err;
}
