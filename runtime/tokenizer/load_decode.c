// SPDX-License-Identifier: Apache-2.0
/*
 * load_decode.c - load the decoder of tokenizer.json
 *
 * Steps of decoders on single tokens are applied here once.  Steps on the text
 * must be possible in a stream: holding back bytes of characters, removing
 * spaces at the beginning.  So the order of steps is fixed, and it is that of
 * all model families:
 *
 *	Replace* or Metaspace, ByteFallback, Fuse, Strip of the beginning
 *
 * where each may be missing; or ByteLevel alone.  Any other decoder is refused
 * by name and place.
 */
#include "runtime/tokenizer/internal.h"

enum decode_place { AT_TOKENS, AT_BYTES, AT_FUSED, AT_END };

static int load_metaspace(struct load_ctx *ctx, const struct part *p)
{
	struct decoding *d = &ctx->tok->dec;
	const char *scheme;
	bool unused;
	struct norm_step *s = &d->steps[d->nr_steps];
	char mark[5];
	u8 len;
	int err;

	err = part_keys(ctx, p, "replacement prepend_scheme split "
			"add_prefix_space str_rep");
	if (!err)
		err = part_char(ctx, p, "replacement", mark, &len);
	if (!err)
		err = part_bool(ctx, p, "add_prefix_space", &unused);
	if (!err)
		err = part_bool(ctx, p, "split", &unused);
	if (err)
		return err;
	scheme = json_string_value(json_object_get(p->json,
						   "prepend_scheme"));
	s->kind = NORM_REPLACE;
	s->find.string = strdup(mark);
	s->find.len = len;
	s->with = strdup(" ");
	s->with_len = 1;
	d->nr_steps++;
	if (!s->find.string || !s->with)
		return load_no_memory(ctx);
	if (!scheme || strcmp(scheme, "never")) {
		memcpy(d->drop, mark, sizeof(d->drop));
		d->drop_len = len;
	}
	return 0;
}

static int load_strip(struct load_ctx *ctx, const struct part *p)
{
	struct decoding *d = &ctx->tok->dec;
	u32 start, stop;
	int err = part_keys(ctx, p, "content start stop");

	if (!err)
		err = part_char(ctx, p, "content", d->strip_char,
				&d->strip_len);
	if (err)
		return err;
	if (d->strip_len != 1)
		return part_fail(ctx, p, -EOPNOTSUPP, "content is not ASCII");
	if (!load_id(json_object_get(p->json, "start"), &start) ||
	    start > UINT8_MAX)
		return part_fail(ctx, p, -EINVAL, "start is no number from 0 "
				 "to %d", UINT8_MAX);
	if (!load_id(json_object_get(p->json, "stop"), &stop) || stop)
		return part_fail(ctx, p, -EOPNOTSUPP, "stop is not 0: what a "
				 "stream has put out cannot be taken back");
	d->strip = (u8)start;
	return 0;
}

static int load_token_step(struct load_ctx *ctx, const struct part *p)
{
	struct decoding *d = &ctx->tok->dec;

	if (d->nr_steps == TOKENIZER_MAX_STEPS)
		return part_fail(ctx, p, -EOPNOTSUPP, "more than %d steps",
				 TOKENIZER_MAX_STEPS);
	if (part_is(p, "Replace"))
		return load_replace(ctx, p, &d->steps[d->nr_steps++]);
	if (d->nr_steps)
		return part_fail(ctx, p, -EOPNOTSUPP, "is not the first step");
	return load_metaspace(ctx, p);
}

/* Load one step; @at is the current place in the order. */
static int load_step(struct load_ctx *ctx, const struct part *p,
		     enum decode_place *at)
{
	static const struct {
		const char *type;
		enum decode_place place;
	} places[] = {
		{ "Replace", AT_TOKENS }, { "Metaspace", AT_TOKENS },
		{ "ByteFallback", AT_BYTES }, { "Fuse", AT_FUSED },
		{ "Strip", AT_END },
	};
	size_t i = 0;

	while (i < ARRAY_SIZE(places) && !part_is(p, places[i].type))
		i++;
	if (i == ARRAY_SIZE(places))
		return part_refuse(ctx, p);
	if (places[i].place < *at ||
	    (places[i].place == AT_END && *at != AT_FUSED))
		return part_fail(ctx, p, -EOPNOTSUPP, "is not supported at "
				 "this place of a Sequence");
	*at = places[i].place;
	switch (*at) {
	case AT_TOKENS:
		return load_token_step(ctx, p);
	case AT_BYTES:
		ctx->tok->dec.fallback = true;
		return part_keys(ctx, p, "");
	case AT_FUSED:
		return part_keys(ctx, p, "");
	case AT_END:
		return load_strip(ctx, p);
	}
	return 0;
}

static int load_byte_level(struct load_ctx *ctx, const struct part *p)
{
	ctx->tok->dec.kind = DECODE_BYTES;
	return part_keys(ctx, p, "add_prefix_space trim_offsets use_regex");
}

/* The decoder must use the alphabet that the pre_tokenizer has written. */
static int check_kind(struct load_ctx *ctx, const struct part *p)
{
	const bool bytes = ctx->tok->dec.kind == DECODE_BYTES;

	if (bytes == ctx->tok->byte_level)
		return 0;
	return load_fail(ctx, -EOPNOTSUPP, "%s of type %.40s is not supported "
			 "%s a pre_tokenizer of type ByteLevel", p->place,
			 part_type(p), bytes ? "without" : "with");
}

int load_decoder(struct load_ctx *ctx, const struct part *p)
{
	enum decode_place at = AT_TOKENS;
	struct decoding *d = &ctx->tok->dec;
	ssize_t nr, i;
	int err = 0;

	d->kind = part_is(p, "null") ? DECODE_JOINED : DECODE_STEPS;
	if (part_is(p, "ByteLevel")) {
		err = load_byte_level(ctx, p);
	} else if (part_is(p, "Sequence")) {
		nr = part_list(ctx, p, "decoders", TOKENIZER_MAX_STEPS);
		if (nr < 0)
			return (int)nr;
		for (i = 0; i < nr && !err; i++) {
			struct part v = part_inner(p, "decoders", i);

			if (nr == 1 && part_is(&v, "ByteLevel"))
				err = load_byte_level(ctx, &v);
			else
				err = load_step(ctx, &v, &at);
		}
	} else if (d->kind == DECODE_STEPS) {
		err = load_step(ctx, p, &at);
	}
	return err ? err : check_kind(ctx, p);
}
