// SPDX-License-Identifier: Apache-2.0
/*
 * parts.c - read the typed objects of a tokenizer.json
 *
 * Normalizers, splits, decoders and post-processors are JSON objects with a
 * "type" and keys of their own, and Sequences nest them in lists.  The
 * functions here read one key each and report an error in one line with the
 * place, the type and the key.  Unknown keys of a part are refused: an ignored
 * key could silently change ids.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"

int tok_put(struct tok_text *t, const char *bytes, size_t len)
{
	size_t cap = t->cap ? t->cap : 256;
	char *p;

	while (cap < t->len + len)
		cap *= 2;
	if (cap != t->cap) {
		p = realloc(t->p, cap);
		if (!p)
			return -ENOMEM;
		t->p = p;
		t->cap = cap;
	}
	if (len)
		memcpy(t->p + t->len, bytes, len);
	t->len += len;
	return 0;
}

void tok_text_free(struct tok_text *t)
{
	free(t->p);
	*t = (struct tok_text){ 0 };
}

const char *part_type(const struct part *p)
{
	const char *s = json_string_value(json_object_get(p->json, "type"));

	if (!p->json || json_is_null(p->json))
		return "null";
	return s ? s : "?";
}

bool part_is(const struct part *p, const char *type)
{
	return !strcmp(part_type(p), type);
}

struct part part_inner(const struct part *outer, const char *key, ssize_t i)
{
	struct part p = { .json = json_object_get(outer->json, key) };
	const char *dot = outer->place[0] ? "." : "";

	if (i < 0) {
		snprintf(p.place, sizeof(p.place), "%.60s%s%.30s",
			 outer->place, dot, key);
	} else {
		p.json = json_array_get(p.json, (size_t)i);
		snprintf(p.place, sizeof(p.place), "%.50s%s%.20s[%zd]",
			 outer->place, dot, key, i);
	}
	return p;
}

int part_refuse(const struct load_ctx *ctx, const struct part *p)
{
	return load_fail(ctx, -EOPNOTSUPP, "%s of type %.40s is not supported",
			 p->place, part_type(p));
}

int part_fail(const struct load_ctx *ctx, const struct part *p, int code,
	      const char *fmt, ...)
{
	char why[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return load_fail(ctx, code, "%s (%.40s): %s", p->place, part_type(p),
			 why);
}

/* Is @key one of the words of @keys? */
static bool key_is_listed(const char *keys, const char *key)
{
	size_t len = strlen(key);
	const char *at = keys;

	while (len && (at = strstr(at, key))) {
		if ((at == keys || at[-1] == ' ') &&
		    (at[len] == ' ' || !at[len]))
			return true;
		at += len;
	}
	return false;
}

int part_keys(const struct load_ctx *ctx, const struct part *p,
	      const char *keys)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)p->json, key, v)
		if (strcmp(key, "type") && !key_is_listed(keys, key))
			return part_fail(ctx, p, -EOPNOTSUPP, "key \"%.40s\" "
					 "is not known", key);
	return 0;
}

int part_bool(const struct load_ctx *ctx, const struct part *p,
	      const char *key, bool *out)
{
	const json_t *v = json_object_get(p->json, key);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_boolean(v))
		return part_fail(ctx, p, -EINVAL, "%s is neither true nor "
				 "false", key);
	*out = json_is_true(v);
	return 0;
}

int part_string(const struct load_ctx *ctx, const struct part *p,
		const char *key, const char **out)
{
	*out = json_string_value(json_object_get(p->json, key));
	if (!*out)
		return part_fail(ctx, p, -EINVAL, "%s is no string", key);
	return 0;
}

int part_char(const struct load_ctx *ctx, const struct part *p,
	      const char *key, char out[5], u8 *len)
{
	const char *s;
	size_t n = 0;
	int err = part_string(ctx, p, key, &s);

	if (err)
		return err;
	if (s[0])
		utf8_step((const u8 *)s, strlen(s), &n);
	if (!n || s[n])
		return part_fail(ctx, p, -EINVAL, "%s is not one character",
				 key);
	memcpy(out, s, n + 1);
	*len = (u8)n;
	return 0;
}

ssize_t part_list(const struct load_ctx *ctx, const struct part *p,
		  const char *key, size_t limit)
{
	const json_t *list = json_object_get(p->json, key);
	int err = part_keys(ctx, p, key);

	if (err)
		return err;
	if (!json_is_array(list))
		return part_fail(ctx, p, -EINVAL, "%s is no list", key);
	if (json_array_size(list) > limit)
		return part_fail(ctx, p, -EOPNOTSUPP, "more than %zu %s",
				 limit, key);
	return (ssize_t)json_array_size(list);
}

static int finder_string(const struct load_ctx *ctx, const struct part *p,
			 const json_t *v, struct finder *f)
{
	if (!json_string_length(v))
		return part_fail(ctx, p, -EINVAL, "pattern is empty");
	f->len = json_string_length(v);
	f->string = strdup(json_string_value(v));
	return f->string ? 0 : load_no_memory(ctx);
}

int part_finder(const struct load_ctx *ctx, const struct part *p,
		struct finder *f)
{
	const json_t *pattern = json_object_get(p->json, "pattern");
	const json_t *string = json_object_get(pattern, "String");
	const json_t *regex = json_object_get(pattern, "Regex");
	char why[160];
	int err;

	if (json_object_size(pattern) != 1 ||
	    (!json_is_string(string) && !json_is_string(regex)))
		return part_fail(ctx, p, -EINVAL, "pattern is neither "
				 "{\"String\": ..} nor {\"Regex\": ..}");
	if (string)
		return finder_string(ctx, p, string, f);
	err = pattern_compile(json_string_value(regex), &f->code, why,
			      sizeof(why));
	if (err)
		return part_fail(ctx, p, err, "pattern: %s", why);
	return 0;
}
