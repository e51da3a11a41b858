// SPDX-License-Identifier: Apache-2.0
/*
 * load_split.c - load the pre_tokenizer of tokenizer.json
 *
 * Sequences are flattened.  A ByteLevel is one stage or two (its prefix, its
 * pattern) and says that pieces are bytes.  No stage may follow that would see
 * its alphabet, so it must come last.
 */
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"

static const char * const behaviors[] = {
#define x(value, name)	[value] = name,
	SPLIT_BEHAVIORS(x)
#undef x
};

static const char * const schemes[] = {
#define x(value, name)	[value] = name,
	PREPEND_SCHEMES(x)
#undef x
};

/* Add a stage; NULL with the error line written. */
static struct stage *stage_add(struct load_ctx *ctx, const struct part *p)
{
	struct tokenizer *tok = ctx->tok;

	if (tok->nr_stages == TOKENIZER_MAX_STAGES) {
		part_fail(ctx, p, -EOPNOTSUPP, "more than %d stages",
			  TOKENIZER_MAX_STAGES);
		return NULL;
	}
	return &tok->stages[tok->nr_stages++];
}

/* Find the string at @key in @names. */
static int load_choice(const struct load_ctx *ctx, const struct part *p,
		       const char *key, const char * const *names, size_t nr,
		       u32 *out)
{
	const char *s;
	int err = part_string(ctx, p, key, &s);

	if (err)
		return err;
	for (*out = 0; *out < nr; ++*out)
		if (!strcmp(s, names[*out]))
			return 0;
	return part_fail(ctx, p, -EOPNOTSUPP, "%s %.40s is not known", key, s);
}

static int load_behavior(struct load_ctx *ctx, const struct part *p,
			 struct stage *st)
{
	u32 choice;
	int err = load_choice(ctx, p, "behavior", behaviors,
			      ARRAY_SIZE(behaviors), &choice);

	if (!err)
		st->behavior = (enum split_behavior)choice;
	return err;
}

static int load_split(struct load_ctx *ctx, const struct part *p)
{
	struct stage *st = stage_add(ctx, p);
	int err;

	if (!st)
		return -EOPNOTSUPP;
	err = part_keys(ctx, p, "pattern behavior invert");
	if (!err)
		err = load_behavior(ctx, p, st);
	if (!err)
		err = part_bool(ctx, p, "invert", &st->invert);
	return err ? err : part_finder(ctx, p, &st->find);
}

static int load_byte_level(struct load_ctx *ctx, const struct part *p)
{
	bool prefix = false, pattern = true, unused;
	struct stage *st;
	char why[160];
	int err;

	err = part_keys(ctx, p, "add_prefix_space trim_offsets use_regex");
	if (!err)
		err = part_bool(ctx, p, "add_prefix_space", &prefix);
	if (!err)
		err = part_bool(ctx, p, "use_regex", &pattern);
	if (!err)
		err = part_bool(ctx, p, "trim_offsets", &unused);
	if (err)
		return err;
	ctx->tok->byte_level = true;
	if (prefix) {
		st = stage_add(ctx, p);
		if (!st)
			return -EOPNOTSUPP;
		st->kind = STAGE_PREFIX;
		st->mark[0] = ' ';
		st->mark_len = 1;
	}
	if (!pattern)
		return 0;
	st = stage_add(ctx, p);
	if (!st)
		return -EOPNOTSUPP;
	st->behavior = SPLIT_ISOLATED;
	err = pattern_compile(pattern_gpt2, &st->find.code, why, sizeof(why));
	return err ? part_fail(ctx, p, err, "pattern: %s", why) : 0;
}

/*
 * Can the normalizer remove the beginning of a text?  "first" would be a guess.
 */
static bool normalizer_cuts(const struct tokenizer *tok)
{
	u32 i;

	for (i = 0; i < tok->nr_norm; i++) {
		const struct norm_step *s = &tok->norm[i];

		if (s->kind == NORM_STRIP || s->kind == NORM_STRIP_ACCENTS ||
		    (s->kind == NORM_REPLACE && !s->with_len))
			return true;
	}
	return false;
}

static int load_scheme(struct load_ctx *ctx, const struct part *p,
		       struct stage *st)
{
	bool prefix = true;
	u32 choice = PREPEND_ALWAYS;
	int err = 0;

	if (json_object_get(p->json, "prepend_scheme"))
		err = load_choice(ctx, p, "prepend_scheme", schemes,
				  ARRAY_SIZE(schemes), &choice);
	if (!err)
		err = part_bool(ctx, p, "add_prefix_space", &prefix);
	if (err)
		return err;
	/*
	 * If both keys are there, the older one must agree with the newer one.
	 */
	if (!prefix && choice != PREPEND_NEVER)
		return part_fail(ctx, p, -EINVAL, "add_prefix_space is not "
				 "what prepend_scheme says");
	st->scheme = (enum prepend_scheme)choice;
	if (st->scheme == PREPEND_FIRST && normalizer_cuts(ctx->tok))
		return part_fail(ctx, p, -EOPNOTSUPP, "prepend_scheme first "
				 "behind a normalizer that takes away");
	return 0;
}

static int load_metaspace(struct load_ctx *ctx, const struct part *p)
{
	struct stage *st = stage_add(ctx, p);
	int err;

	if (!st)
		return -EOPNOTSUPP;
	st->kind = STAGE_METASPACE;
	st->cuts = true;
	err = part_keys(ctx, p, "replacement prepend_scheme split "
			"add_prefix_space str_rep");
	if (!err)
		err = part_char(ctx, p, "replacement", st->mark,
				&st->mark_len);
	if (!err)
		err = part_bool(ctx, p, "split", &st->cuts);
	return err ? err : load_scheme(ctx, p, st);
}

/* Add a stage that cuts by a set of characters. */
static int load_set(struct load_ctx *ctx, const struct part *p,
		    enum pattern_set set, enum split_behavior behavior)
{
	struct stage *st = stage_add(ctx, p);

	if (!st)
		return -EOPNOTSUPP;
	st->behavior = behavior;
	st->invert = set == SET_WORDS;
	if (pattern_compile_set(set, &st->find.code))
		return load_no_memory(ctx);
	return 0;
}

static int load_digits(struct load_ctx *ctx, const struct part *p)
{
	bool each = false;
	int err = part_keys(ctx, p, "individual_digits");

	if (!err)
		err = part_bool(ctx, p, "individual_digits", &each);
	return err ? err : load_set(ctx, p, SET_DIGIT, each ?
				    SPLIT_ISOLATED : SPLIT_CONTIGUOUS);
}

static int load_punctuation(struct load_ctx *ctx, const struct part *p)
{
	int err = part_keys(ctx, p, "behavior");

	if (!err)
		err = load_set(ctx, p, SET_PUNCTUATION, SPLIT_ISOLATED);
	if (!err && json_object_get(p->json, "behavior"))
		err = load_behavior(ctx, p, &ctx->tok->stages[
				    ctx->tok->nr_stages - 1]);
	return err;
}

static int load_space(struct load_ctx *ctx, const struct part *p)
{
	int err = part_keys(ctx, p, "");

	return err ? err : load_set(ctx, p, part_is(p, "Whitespace") ?
				    SET_WORDS : SET_SPACE, SPLIT_REMOVED);
}

static const struct {
	const char *type;
	int (*load)(struct load_ctx *ctx, const struct part *p);
} kinds[] = {
	{ "ByteLevel", load_byte_level },
	{ "Digits", load_digits },
	{ "Metaspace", load_metaspace },
	{ "Punctuation", load_punctuation },
	{ "Split", load_split },
	{ "Whitespace", load_space },
	{ "WhitespaceSplit", load_space },
};

static int load_one(struct load_ctx *ctx, const struct part *p)
{
	size_t i;

	if (ctx->tok->byte_level)
		return part_fail(ctx, p, -EOPNOTSUPP, "comes behind "
				 "ByteLevel, which must be last");
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (part_is(p, kinds[i].type))
			return kinds[i].load(ctx, p);
	return part_refuse(ctx, p);
}

int load_pre_tokenizer(struct load_ctx *ctx, const struct part *p)
{
	ssize_t nr, i;
	int err = 0;

	if (part_is(p, "null"))
		return 0;
	if (!part_is(p, "Sequence"))
		return load_one(ctx, p);
	nr = part_list(ctx, p, "pretokenizers", TOKENIZER_MAX_STAGES);
	for (i = 0; i < nr && !err; i++) {
		struct part v = part_inner(p, "pretokenizers", i);

		/* A Sequence inside a Sequence may be no deeper than this. */
		err = strlen(p->place) > 60 ? part_refuse(ctx, &v) :
		      part_is(&v, "Sequence") ? load_pre_tokenizer(ctx, &v) :
						load_one(ctx, &v);
	}
	return nr < 0 ? (int)nr : err;
}
