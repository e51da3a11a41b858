// SPDX-License-Identifier: Apache-2.0
/*
 * fields.c - every field is read, or refused by its name
 *
 * Null means "not given", as in OpenAI's API.  A field of the other kind of
 * request is refused, and so is an unknown one: a misspelt parameter that does
 * nothing costs people days.
 */
#include <math.h>

#include "runtime/server/fields.h"

#define field_yes(_name, _kinds, _text)					\
	{ .name = #_name, .kinds = _kinds, .read = field_##_name, .text = _text },
#define field_no(_name, _kinds, _neutral, _text)			\
	{ .name = #_name, .kinds = _kinds, .neutral = NEUTRAL_##_neutral, \
	  .text = _text },

const struct field api_fields[] = {
	API_FIELDS(field_yes, field_no)
};

const u32 api_nr_fields = ARRAY_SIZE(api_fields);

static const struct field *field_find(const char *name)
{
	u32 i;

	for (i = 0; i < api_nr_fields; i++)
		if (!strcmp(api_fields[i].name, name))
			return &api_fields[i];
	return NULL;
}

static bool is_number(const json_t *v, double want)
{
	return json_is_number(v) && fabs(json_number_value(v) - want) < 1e-12;
}

static bool is_empty(const json_t *v)
{
	return (json_is_array(v) && !json_array_size(v)) ||
	       (json_is_object(v) && !json_object_size(v)) ||
	       (json_is_string(v) && !json_string_length(v));
}

static bool is_word(const json_t *v, const char *word)
{
	const char *s = json_string_value(v);

	return s && !strcmp(s, word);
}

/* Does @v ask for the behaviour that this server has anyway? */
static bool is_neutral(const json_t *v, enum field_neutral neutral)
{
	switch (neutral) {
	case NEUTRAL_null:
		return false;
	case NEUTRAL_zero:
		return is_number(v, 0);
	case NEUTRAL_one:
		return is_number(v, 1);
	case NEUTRAL_off:
		return json_is_false(v);
	case NEUTRAL_on:
		return json_is_true(v);
	case NEUTRAL_bool:
		return json_is_boolean(v);
	case NEUTRAL_empty:
		return is_empty(v);
	case NEUTRAL_text:
		if (json_is_array(v))
			return json_array_size(v) == 1 &&
			       is_word(json_array_get(v, 0), "text");
		return json_object_size(v) == 1 &&
		       is_word(json_object_get(v, "type"), "text");
	case NEUTRAL_auto:
		return is_word(v, "auto") || is_word(v, "default");
	case NEUTRAL_any:
		return is_word(v, "auto") || is_word(v, "none");
	}
	return false;
}

/* A name from the client, cut to fit into a message. */
static void name_cut(char *out, size_t size, const char *name)
{
	size_t n = strlen(name), i = 0, len;

	while (i < n) {
		len = text_utf8_len(name + i, n - i);
		if (!len || i + len >= size)
			break;
		i += len;
	}
	memcpy(out, name, i);
	out[i] = '\0';
}

static const char *kind_path(enum api_kind kind)
{
	return kind == API_CHAT ? "/v1/chat/completions" : "/v1/completions";
}

static int field_read(struct field_ctx *c, const char *name, const json_t *v)
{
	const struct field *f = field_find(name);
	char shown[sizeof(c->err->param)];

	name_cut(shown, sizeof(shown), name);
	if (!f)
		return api_fail(c->err, 400, shown, "unknown_parameter",
				"%s is no parameter that this server knows: see the table in Documentation/server.md",
				shown);
	if (!(f->kinds & c->p->kind))
		return api_fail(c->err, 400, shown, "unknown_parameter",
				"%s is no parameter of %s", shown,
				kind_path(c->p->kind));
	if (json_is_null(v))
		return 0;
	if (f->read)
		return f->read(c, f->name, v);
	if (is_neutral(v, f->neutral))
		return 0;
	return api_fail(c->err, 400, shown, "unsupported_parameter",
			"%s is not supported by this server: leave it out",
			shown);
}

int fields_read(struct field_ctx *c, const json_t *root)
{
	const char *name;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)root, name, v)
		if (field_read(c, name, v))
			return -1;
	return 0;
}

static const char *neutral_text(enum field_neutral neutral)
{
	static const char * const texts[] = {
#define x(name, text) [NEUTRAL_##name] = text,
		FIELD_NEUTRALS(x)
#undef x
	};

	return texts[neutral];
}

void fields_doc(struct text *t)
{
	u32 i;

	text_puts(t, "| field | completions | chat | meaning |\n|---|---|---|---|\n");
	for (i = 0; i < api_nr_fields; i++) {
		const struct field *f = &api_fields[i];
		const char *word = f->read ? "yes" : "no";

		text_printf(t, "| `%s` | %s | %s | %s", f->name,
			    f->kinds & API_COMPLETION ? word : "-",
			    f->kinds & API_CHAT ? word : "-", f->text);
		if (!f->read && f->neutral != NEUTRAL_null)
			text_printf(t, "%saccepted: %s", *f->text ? "; " : "",
				    neutral_text(f->neutral));
		text_puts(t, " |\n");
	}
}
