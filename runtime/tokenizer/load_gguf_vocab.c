// SPDX-License-Identifier: Apache-2.0
/*
 * load_gguf_vocab.c - the tokens of a GGUF file
 *
 * Programs that write GGUF files change some tokens, and this is undone here:
 *
 * - Ids without a token get the name [PAD17], where 17 is the id.  Since 2024 they
 *   are marked as unused, before as user-defined or unknown.  No model's vocabulary
 *   has them.
 * - Where tokens are characters, a user-defined token of marks for spaces (Gemma)
 *   is written with spaces.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/tokenizer/load_gguf.h"

#define KEY_TOKENS	GGUF_KEY("tokens")
#define KEY_TYPES	GGUF_KEY("token_type")

/* Real vocabularies have at most 300,000 tokens, of 130 characters at most. */
#define TOKENS_MAX	(1u << 21)
#define TOKEN_LEN_MAX	2048u
#define TEXT_MAX	(64u << 20)

/* Does the name say that id @i has no token? */
static bool is_filler(const struct gguf_str *s, u32 type, u32 i)
{
	char name[24];
	u64 k;

	if (type == GGUF_UNUSED && s->len > 5 && !memcmp(s->at, "[PAD", 4)) {
		/* Some count from 1, and some from elsewhere. */
		for (k = 4; k < s->len - 1; k++)
			if (s->at[k] < '0' || s->at[k] > '9')
				return false;
		return s->at[k] == ']';
	}
	if (type != GGUF_USER && type != GGUF_UNKNOWN)
		return false;
	snprintf(name, sizeof(name), "[PAD%u]", i);
	return s->len == strlen(name) && !memcmp(s->at, name, s->len);
}

static bool is_spaces(const struct gguf_str *s)
{
	u64 i;

	for (i = 0; i < s->len; i++)
		if (s->at[i] != ' ')
			return false;
	return s->len;
}

static json_t *marks(u64 nr)
{
	char *text = malloc(3 * nr);
	json_t *name;
	u64 i;

	if (!text)
		return NULL;
	for (i = 0; i < nr; i++)
		memcpy(text + 3 * i, GGUF_MARK, 3);
	name = json_stringn(text, 3 * nr);
	free(text);
	return name;
}

static int type_read(const struct load_ctx *ctx, struct gguf_vocab *v, u32 i)
{
	s64 type;

	if (!gguf_item_s64(v->g, KEY_TYPES, i, &type))
		return load_fail(ctx, -EINVAL, KEY_TYPES " is no list of whole "
				 "numbers: convert the model again");
	if (type < GGUF_NORMAL || type > GGUF_BYTE)
		return load_fail(ctx, -EINVAL, KEY_TYPES "[%u] is %lld, which "
				 "is no type of tokens: convert the model "
				 "again", i, (long long)type);
	v->types[i] = (u8)type;
	return 0;
}

/* Is a byte's token written as ByteFallback wants it? */
static bool is_byte_name(const struct gguf_str *s)
{
	return s->len == 6 && !memcmp(s->at, "<0x", 3) && s->at[5] == '>';
}

static int name_check(const struct load_ctx *ctx, const struct gguf_vocab *v,
		      u32 i, const struct gguf_str *s)
{
	if (s->len > TOKEN_LEN_MAX)
		return load_fail(ctx, -EOPNOTSUPP, KEY_TOKENS "[%u] is longer "
				 "than %u bytes", i, TOKEN_LEN_MAX);
	if (memchr(s->at, 0, s->len))
		return load_fail(ctx, -EINVAL, KEY_TOKENS "[%u] holds a NUL: "
				 "convert the model again", i);
	if (v->chars && v->types[i] == GGUF_BYTE && !is_byte_name(s))
		return load_fail(ctx, -EINVAL, KEY_TOKENS "[%u] is a byte, but "
				 "is not written as <0x41>: convert the model "
				 "again", i);
	return 0;
}

/* Enter the name of token @i, which has been checked. */
static int name_enter(const struct load_ctx *ctx, struct gguf_vocab *v, u32 i,
		      const struct gguf_str *s)
{
	const bool spaces = v->chars && v->types[i] == GGUF_USER &&
			    is_spaces(s);
	json_t *name = spaces ? marks(s->len) : json_stringn(s->at, s->len);
	const char *text = json_string_value(name);
	const json_t *other;

	v->names[i] = name;
	if (!name)
		return load_fail(ctx, -EINVAL, KEY_TOKENS "[%u] is no UTF-8: "
				 "convert the model again", i);
	other = json_object_get(v->vocab, text);
	if (other)
		return load_fail(ctx, -EINVAL, KEY_TOKENS "[%u] and [%u] are "
				 "both \"%.40s\": convert the model again",
				 (u32)json_number_value(other), i, text);
	if (json_object_set_new(v->vocab, text, json_real(i)))
		return load_no_memory(ctx);
	if (v->types[i] == GGUF_BYTE)
		v->has_bytes = true;
	return 0;
}

static int tokens_read(const struct load_ctx *ctx, struct gguf_vocab *v)
{
	struct gguf_str s;
	u64 total = 0;
	u32 i;
	int err = 0;

	for (i = 0; i < v->nr && !err; i++) {
		if (!gguf_item_str(v->g, KEY_TOKENS, i, &s))
			return load_fail(ctx, -EINVAL, KEY_TOKENS " is no list "
					 "of strings: convert the model again");
		err = type_read(ctx, v, i);
		if (err || is_filler(&s, v->types[i], i))
			continue;
		total += s.len;
		if (total > TEXT_MAX)
			return load_fail(ctx, -EOPNOTSUPP, KEY_TOKENS " has "
					 "more than %u bytes", TEXT_MAX);
		err = name_check(ctx, v, i, &s);
		if (!err)
			err = name_enter(ctx, v, i, &s);
	}
	return err;
}

/*
 * The first Gemma models have no token for a tab, only its byte.  Their
 * tokenizer.json calls that token a tab, so that merges can begin with it.
 */
static int tab_rename(const struct load_ctx *ctx, struct gguf_vocab *v)
{
	json_t *id = json_object_get(v->vocab, "<0x09>");
	struct gguf_str arch;
	int err;

	if (!v->chars || !id || json_object_get(v->vocab, "\t") ||
	    !gguf_str(v->g, "general.architecture", &arch) || arch.len < 5 ||
	    memcmp(arch.at, "gemma", 5))
		return 0;
	err = json_string_set(v->names[(u32)json_number_value(id)], "\t") ||
	      json_object_set(v->vocab, "\t", id) ||
	      json_object_del(v->vocab, "<0x09>");
	return err ? load_no_memory(ctx) : 0;
}

int gguf_vocab_read(const struct load_ctx *ctx, struct gguf_vocab *v)
{
	const u64 nr = gguf_nr_items(v->g, KEY_TOKENS);
	int err;

	if (!nr)
		return load_fail(ctx, -EINVAL, KEY_TOKENS " is no list, or "
				 "empty: convert the model again");
	if (nr > TOKENS_MAX)
		return load_fail(ctx, -EOPNOTSUPP, KEY_TOKENS " has %llu "
				 "tokens, more than %u",
				 (unsigned long long)nr, TOKENS_MAX);
	if (gguf_nr_items(v->g, KEY_TYPES) != nr)
		return load_fail(ctx, -EINVAL, KEY_TYPES " does not have the "
				 "%llu entries of " KEY_TOKENS ": convert the "
				 "model again", (unsigned long long)nr);
	v->nr = (u32)nr;
	v->names = calloc(nr, sizeof(*v->names));
	v->types = calloc(nr, sizeof(*v->types));
	v->vocab = json_object();
	if (!v->names || !v->types || !v->vocab)
		return load_no_memory(ctx);
	err = tokens_read(ctx, v);
	return err ? err : tab_rename(ctx, v);
}

void gguf_vocab_free(struct gguf_vocab *v)
{
	u32 i;

	for (i = 0; v->names && i < v->nr; i++)
		json_decref(v->names[i]);
	free(v->names);
	free(v->types);
	json_decref(v->vocab);
}

/* ---- added tokens ---- */

/*
 * Does a token take the white space behind it?  A GGUF file does not say.  Of the
 * models that this loader knows, Phi-3 alone has such tokens.
 */
static bool takes_space(const struct gguf_vocab *v, const char *text)
{
	static const char * const others[] = { "<unk>", "<s>", "<|endoftext|>" };
	struct gguf_str arch;
	size_t i;

	if (!v->chars || !gguf_str(v->g, "general.architecture", &arch) ||
	    arch.len != 4 || memcmp(arch.at, "phi3", 4))
		return false;
	for (i = 0; i < ARRAY_SIZE(others); i++)
		if (!strcmp(text, others[i]))
			return false;
	return true;
}

json_t *gguf_added(const struct gguf_vocab *v, u32 unknown)
{
	json_t *list = json_array();
	bool special;
	u32 i;

	for (i = 0; i < v->nr; i++) {
		special = v->types[i] == GGUF_CONTROL || i == unknown;
		if (!v->names[i] || (!special && v->types[i] != GGUF_USER))
			continue;
		if (json_array_append_new(list, json_pack(
				"{sI sO sb sb sb}", "id", (json_int_t)i,
				"content", v->names[i], "special", special,
				"normalized", 0, "rstrip", takes_space(v,
				json_string_value(v->names[i]))))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}
