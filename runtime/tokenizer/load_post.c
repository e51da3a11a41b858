// SPDX-License-Identifier: Apache-2.0
/*
 * load_post.c - load the post_processor of tokenizer.json
 *
 * A post_processor of any kind puts some tokens before a text and some after
 * it.  Its treatment of pairs of texts and of offsets is not needed here.
 */
#include "runtime/tokenizer/internal.h"

bool around_add(struct around *a, u32 id, bool in_front)
{
	if (a->nr == TOKENIZER_MAX_AROUND)
		return false;
	if (in_front)
		memmove(a->ids + 1, a->ids, a->nr * sizeof(*a->ids));
	a->ids[in_front ? 0 : a->nr] = id;
	a->nr++;
	return true;
}

/* Put a post_processor's @before and @after outside of the existing tokens. */
static int around_wrap(struct load_ctx *ctx, const struct part *p,
		       const struct around *before, const struct around *after)
{
	struct tokenizer *tok = ctx->tok;
	bool fits = true;
	u32 i;

	for (i = before->nr; i > 0; i--)
		fits &= around_add(&tok->before, before->ids[i - 1], true);
	for (i = 0; i < after->nr; i++)
		fits &= around_add(&tok->after, after->ids[i], false);
	return fits ? 0 : part_fail(ctx, p, -EOPNOTSUPP, "more than %d tokens "
				    "before or behind a text",
				    TOKENIZER_MAX_AROUND);
}

static int token_check(struct load_ctx *ctx, const struct part *p,
		       const json_t *v, const char *name, u32 *id)
{
	const char *bytes;

	if (!load_id(v, id) || tokenizer_decode(ctx->tok, *id, &bytes) < 0)
		return part_fail(ctx, p, -EINVAL, "the id of special token "
				 "%.40s is no token", name);
	return 0;
}

/* Add the tokens of a template's SpecialToken. */
static int template_token(struct load_ctx *ctx, const struct part *p,
			  const json_t *special, struct around *a)
{
	const char *name = json_string_value(json_object_get(special, "id"));
	const json_t *ids = json_object_get(json_object_get(json_object_get(
		p->json, "special_tokens"), name ? name : ""), "ids");
	size_t i;
	u32 id;
	int err;

	if (!json_array_size(ids))
		return part_fail(ctx, p, -EINVAL, "special token %.40s is not "
				 "among special_tokens", name ? name : "?");
	for (i = 0; i < json_array_size(ids); i++) {
		err = token_check(ctx, p, json_array_get(ids, i), name, &id);
		if (err)
			return err;
		if (!around_add(a, id, false))
			return part_fail(ctx, p, -EOPNOTSUPP, "more than %d "
					 "tokens before or behind a text",
					 TOKENIZER_MAX_AROUND);
	}
	return 0;
}

static int load_template(struct load_ctx *ctx, const struct part *p)
{
	const json_t *single = json_object_get(p->json, "single"), *v;
	struct around part[2] = { { .nr = 0 } };
	size_t i, side = 0;
	int err;

	err = part_keys(ctx, p, "single pair special_tokens");
	if (err)
		return err;
	for (i = 0; i < json_array_size(single); i++) {
		v = json_array_get(single, i);
		if (json_object_get(v, "Sequence"))
			side++;
		else
			err = template_token(ctx, p, json_object_get(v,
					     "SpecialToken"), &part[side]);
		if (side > 1)
			break;
		if (err)
			return err;
	}
	if (side != 1)
		return part_fail(ctx, p, -EOPNOTSUPP, "single does not have "
				 "one Sequence");
	return around_wrap(ctx, p, &part[0], &part[1]);
}

/* "cls": ["<s>", 0] */
static int load_bert_token(struct load_ctx *ctx, const struct part *p,
			   const char *key, struct around *a)
{
	const json_t *v = json_object_get(p->json, key);
	const char *name = json_string_value(json_array_get(v, 0));
	u32 id;
	int err;

	if (json_array_size(v) != 2 || !name)
		return part_fail(ctx, p, -EINVAL, "%s is no pair of token and "
				 "id", key);
	err = token_check(ctx, p, json_array_get(v, 1), name, &id);
	if (!err)
		around_add(a, id, false);
	return err;
}

static int load_bert(struct load_ctx *ctx, const struct part *p)
{
	struct around before = { .nr = 0 }, after = { .nr = 0 };
	int err = part_keys(ctx, p, part_is(p, "BertProcessing") ? "cls sep" :
			    "cls sep trim_offsets add_prefix_space");

	if (!err)
		err = load_bert_token(ctx, p, "cls", &before);
	if (!err)
		err = load_bert_token(ctx, p, "sep", &after);
	return err ? err : around_wrap(ctx, p, &before, &after);
}

static int load_one(struct load_ctx *ctx, const struct part *p)
{
	if (part_is(p, "ByteLevel"))
		return part_keys(ctx, p, "add_prefix_space trim_offsets "
				 "use_regex");
	if (part_is(p, "TemplateProcessing"))
		return load_template(ctx, p);
	if (part_is(p, "BertProcessing") || part_is(p, "RobertaProcessing"))
		return load_bert(ctx, p);
	return part_refuse(ctx, p);
}

int load_post_processor(struct load_ctx *ctx, const struct part *p)
{
	ssize_t nr, i;
	int err = 0;

	if (part_is(p, "null"))
		return 0;
	if (!part_is(p, "Sequence"))
		return load_one(ctx, p);
	nr = part_list(ctx, p, "processors", TOKENIZER_MAX_STEPS);
	for (i = 0; i < nr && !err; i++) {
		struct part v = part_inner(p, "processors", i);

		err = load_one(ctx, &v);
	}
	return nr < 0 ? (int)nr : err;
}
