// SPDX-License-Identifier: Apache-2.0
/*
 * guard.c - keep special tokens in users' text plain
 *
 * Every string is walked once, with the tokenizer's own tries, so the cost is
 * that of the tokenizer's first step.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/server/guard.h"

/* ---- the mark ---- */

#define MARK_FIRST	0x2800u
#define MARKS		256u
#define RAW_LEN		3	/* bytes of a raw mark */
#define ESCAPED_LEN	6

/*
 * Return: the number of the mark that begins at @p in one of its forms, or -1.
 */
static int mark_number(const char *p, size_t len)
{
	const u8 *u = (const u8 *)p;
	char hex[5] = "";

	if (len >= RAW_LEN && u[0] == 0xe2 && (u[1] & 0xfc) == 0xa0)
		return (u[1] & 3) << 6 | (u[2] & 0x3f);
	if (len < ESCAPED_LEN || memcmp(p, "\\u28", 4))
		return -1;
	memcpy(hex, p + 4, 2);
	return (int)strtoul(hex, NULL, 16);
}

static void marks_in(const char *p, size_t len, bool *used)
{
	size_t i;
	int n;

	for (i = 0; i < len; i++) {
		n = mark_number(p + i, len - i);
		if (n >= 0)
			used[n] = true;
	}
}

/* The JSON parser has bounded the depth. */
static void marks_used(const json_t *v, bool *used)
{
	const char *key;
	json_t *o;
	size_t i;

	if (json_is_string(v))
		marks_in(json_string_value(v), json_string_length(v), used);
	json_array_foreach(v, i, o)
		marks_used(o, used);
	json_object_foreach((json_t *)(uintptr_t)v, key, o) {
		marks_in(key, strlen(key), used);
		marks_used(o, used);
	}
}

int guards_choose(const json_t *v, struct guard_mark *mark)
{
	bool used[MARKS] = { false };
	u32 i = 0;

	marks_used(v, used);
	while (i < MARKS && used[i])
		i++;
	if (i == MARKS)
		return -EINVAL;
	mark->raw[0] = (char)0xe2;
	mark->raw[1] = (char)(0xa0 | i >> 6);
	mark->raw[2] = (char)(0x80 | (i & 0x3f));
	mark->raw[3] = '\0';
	snprintf(mark->escaped, sizeof(mark->escaped), "\\u%04x",
		 MARK_FIRST + i);
	return 0;
}

/* ---- marking ---- */

static void mark_text(const struct tokenizer *tok, const char *p, size_t len,
		      const struct guard_mark *mark, struct text *out)
{
	size_t i = 0, from = 0, n;

	while (i < len) {
		n = tokenizer_special_at(tok, p + i, len - i);
		if (!n) {
			i++;
			continue;
		}
		text_add(out, p + from, i - from);
		text_add(out, mark->raw, RAW_LEN);
		from = i;
		i += n;
	}
	text_add(out, p + from, len - from);
}

static json_t *mark_string(const struct tokenizer *tok, const json_t *v,
			   const struct guard_mark *mark)
{
	struct text t = { 0 };
	json_t *s = NULL;

	mark_text(tok, json_string_value(v), json_string_length(v), mark, &t);
	if (!t.failed)
		s = json_stringn(t.len ? t.p : "", t.len);
	text_free(&t);
	return s;
}

static json_t *mark_list(const struct tokenizer *tok, const json_t *v,
			 const struct guard_mark *mark)
{
	json_t *list = json_array(), *o;
	size_t i;

	json_array_foreach(v, i, o) {
		if (json_array_append_new(list, guards_mark(tok, o, mark))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *mark_object(const struct tokenizer *tok, const json_t *v,
			   const struct guard_mark *mark)
{
	json_t *copy = json_object(), *o;
	struct text t = { 0 };
	const char *key;
	int err = 0;

	json_object_foreach((json_t *)(uintptr_t)v, key, o) {
		text_clear(&t);
		mark_text(tok, key, strlen(key) + 1, mark, &t);
		err |= t.failed ||
		       json_object_set_new(copy, t.p, guards_mark(tok, o, mark));
	}
	text_free(&t);
	if (err) {
		json_decref(copy);
		return NULL;
	}
	return copy;
}

json_t *guards_mark(const struct tokenizer *tok, const json_t *v,
		    const struct guard_mark *mark)
{
	if (json_is_string(v))
		return mark_string(tok, v, mark);
	if (json_is_array(v))
		return mark_list(tok, v, mark);
	if (json_is_object(v))
		return mark_object(tok, v, mark);
	return json_incref((json_t *)(uintptr_t)v);
}

/* ---- removing marks ---- */

/* Length of the mark that @p begins with, or 0. */
static size_t mark_len(const char *p, const char *end,
		       const struct guard_mark *mark)
{
	const size_t left = (size_t)(end - p);

	if (left >= RAW_LEN && !memcmp(p, mark->raw, RAW_LEN))
		return RAW_LEN;
	if (left >= ESCAPED_LEN && !memcmp(p, mark->escaped, ESCAPED_LEN))
		return ESCAPED_LEN;
	return 0;
}

static size_t marks_count(const char *p, size_t len,
			  const struct guard_mark *mark)
{
	const char *end = p + len;
	size_t nr = 0;

	for (; p < end; p++)
		nr += mark_len(p, end, mark) != 0;
	return nr;
}

int guards_take(const struct tokenizer *tok, char *text, size_t *len,
		const struct guard_mark *mark, struct tokenizer_guard **out,
		size_t *nr)
{
	const size_t most = marks_count(text, *len, mark);
	const char *p = text, *end = text + *len;
	char *to = text;
	size_t n;

	*out = NULL;
	*nr = 0;
	if (!most)
		return 0;
	*out = calloc(most, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	while (p < end) {
		n = mark_len(p, end, mark);
		if (!n) {
			*to++ = *p++;
			continue;
		}
		p += n;
		/* The template may have cut off the token after the mark. */
		n = tokenizer_special_at(tok, p, (size_t)(end - p));
		if (n)
			(*out)[(*nr)++] = (struct tokenizer_guard){
				.at = (size_t)(to - text), .len = n,
			};
	}
	*len = (size_t)(to - text);
	return 0;
}
