// SPDX-License-Identifier: Apache-2.0
/*
 * load_norm.c - load the normalizer of tokenizer.json
 *
 * Sequences are flattened.  The supported kinds are a table.  Kinds that only
 * models of other families use (Nmt, BertNormalizer, Precompiled, ByteLevel)
 * are refused by name.
 */
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"

/* A Replace or a Prepend inserts a mark or a word, not a text. */
#define WITH_MAX	64

static int step_text(const struct load_ctx *ctx, const struct part *p,
		     const char *key, struct norm_step *s)
{
	const char *text;
	int err = part_string(ctx, p, key, &text);

	if (err)
		return err;
	s->with_len = strlen(text);
	if (s->with_len > WITH_MAX)
		return part_fail(ctx, p, -EOPNOTSUPP, "%s is longer than %d "
				 "bytes", key, WITH_MAX);
	s->with = strdup(text);
	return s->with ? 0 : load_no_memory(ctx);
}

int load_replace(struct load_ctx *ctx, const struct part *p,
		 struct norm_step *s)
{
	int err = part_keys(ctx, p, "pattern content");

	s->kind = NORM_REPLACE;
	if (!err)
		err = part_finder(ctx, p, &s->find);
	return err ? err : step_text(ctx, p, "content", s);
}

static int load_prepend(struct load_ctx *ctx, const struct part *p,
			struct norm_step *s)
{
	int err = part_keys(ctx, p, "prepend");

	s->kind = NORM_PREPEND;
	return err ? err : step_text(ctx, p, "prepend", s);
}

static int load_strip(struct load_ctx *ctx, const struct part *p,
		      struct norm_step *s)
{
	int err = part_keys(ctx, p, "strip_left strip_right");

	s->kind = NORM_STRIP;
	if (!err)
		err = part_bool(ctx, p, "strip_left", &s->left);
	return err ? err : part_bool(ctx, p, "strip_right", &s->right);
}

/* Kinds without keys. */
static const struct {
	const char *type;
	enum norm_kind kind;
	u32 form;
} plain[] = {
	{ "NFC", NORM_FORM, FORM_COMPOSE },
	{ "NFD", NORM_FORM, 0 },
	{ "NFKC", NORM_FORM, FORM_COMPOSE | FORM_COMPAT },
	{ "NFKD", NORM_FORM, FORM_COMPAT },
	{ "Lowercase", NORM_LOWERCASE, 0 },
	{ "StripAccents", NORM_STRIP_ACCENTS, 0 },
};

static int load_plain(struct load_ctx *ctx, const struct part *p,
		      struct norm_step *s)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(plain); i++) {
		if (!part_is(p, plain[i].type))
			continue;
		s->kind = plain[i].kind;
		s->form = plain[i].form;
		return part_keys(ctx, p, "");
	}
	return part_refuse(ctx, p);
}

static int load_step(struct load_ctx *ctx, const struct part *p)
{
	struct tokenizer *tok = ctx->tok;
	struct norm_step *s = &tok->norm[tok->nr_norm];

	if (tok->nr_norm == TOKENIZER_MAX_STEPS)
		return part_fail(ctx, p, -EOPNOTSUPP, "more than %d steps",
				 TOKENIZER_MAX_STEPS);
	tok->nr_norm++;
	if (part_is(p, "Replace"))
		return load_replace(ctx, p, s);
	if (part_is(p, "Prepend"))
		return load_prepend(ctx, p, s);
	if (part_is(p, "Strip"))
		return load_strip(ctx, p, s);
	return load_plain(ctx, p, s);
}

int load_normalizer(struct load_ctx *ctx, const struct part *p)
{
	ssize_t nr, i;
	int err = 0;

	if (part_is(p, "null"))
		return 0;
	if (!part_is(p, "Sequence"))
		return load_step(ctx, p);
	nr = part_list(ctx, p, "normalizers", TOKENIZER_MAX_STEPS);
	for (i = 0; i < nr && !err; i++) {
		struct part v = part_inner(p, "normalizers", i);

		/* A Sequence inside a Sequence may be no deeper than this. */
		err = strlen(p->place) > 60 ? part_refuse(ctx, &v) :
		      part_is(&v, "Sequence") ? load_normalizer(ctx, &v) :
						load_step(ctx, &v);
	}
	return nr < 0 ? (int)nr : err;
}
