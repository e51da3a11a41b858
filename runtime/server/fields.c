// SPDX-License-Identifier: Apache-2.0
/*
 * fields.c - every field is read, ignored as a hint, or refused by its name
 *
 * Null means "not given", as in OpenAI's API.  A field of the other kind of
 * request is refused, and so is an unknown one: a misspelt parameter that does
 * nothing costs people days.  A hint changes no text, so its value does not
 * matter; a value that OpenAI would refuse is refused here too, since it is a
 * fault of the client.
 */
#include <math.h>

#include "runtime/server/fields.h"

#define field_yes(_name, _kinds, _text)					\
	{ .name = #_name, .kinds = _kinds, .use = FIELD_YES,		\
	  .read = field_##_name, .text = _text },
#define field_hint(_name, _kinds, _form, _text)				\
	{ .name = #_name, .kinds = _kinds, .use = FIELD_HINT,		\
	  .form = FORM_##_form, .text = _text },
#define field_no(_name, _kinds, _neutral, _text)			\
	{ .name = #_name, .kinds = _kinds, .neutral = NEUTRAL_##_neutral, \
	  .text = _text },

const struct field api_fields[] = {
	API_FIELDS(field_yes, field_hint, field_no)
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
	case NEUTRAL_empty:
		return is_empty(v);
	case NEUTRAL_text:
		if (json_is_array(v))
			return json_array_size(v) == 1 &&
			       is_word(json_array_get(v, 0), "text");
		return json_object_size(v) == 1 &&
		       is_word(json_object_get(v, "type"), "text");
	case NEUTRAL_any:
		return is_word(v, "auto") || is_word(v, "none");
	}
	return false;
}

static const struct {
	bool		words;
	const char	*text;
} forms[] = {
#define x(name, words, text) [FORM_##name] = { words, text },
	FIELD_FORMS(x)
#undef x
};

/* Is the string @v one of @words, which are separated by ", "? */
static bool is_one_of(const json_t *v, const char *words)
{
	const char *s = json_string_value(v);
	const size_t len = s ? strlen(s) : 0;
	size_t n;

	for (; len && *words; words += n + strspn(words + n, ", ")) {
		n = strcspn(words, ",");
		if (n == len && !memcmp(words, s, n))
			return true;
	}
	return false;
}

/* Has @s at most @most characters? */
static bool is_short(const char *s, u32 most)
{
	u32 n = 0;

	for (; *s; s++)
		n += ((u8)*s & 0xc0) != 0x80;
	return n <= most;
}

static bool is_strings(const json_t *v)
{
	const char *key, *s;
	json_t *o;

	if (!json_is_object(v) || json_object_size(v) > 16)
		return false;
	json_object_foreach((json_t *)(uintptr_t)v, key, o) {
		s = json_string_value(o);
		if (!s || !is_short(key, 64) || !is_short(s, 512))
			return false;
	}
	return true;
}

static bool has_form(const json_t *v, enum field_form form)
{
	switch (form) {
	case FORM_string:
		return json_is_string(v);
	case FORM_flag:
		return json_is_boolean(v);
	case FORM_object:
		return json_is_object(v);
	case FORM_strings:
		return is_strings(v);
	default:
		return is_one_of(v, forms[form].text);
	}
}

int field_formed(struct field_ctx *c, const char *key, const json_t *v,
		 enum field_form form)
{
	if (has_form(v, form))
		return 0;
	return api_fail(c->err, 400, key, "invalid_value", "%s must be %s%s",
			key, forms[form].words ? "one of " : "",
			forms[form].text);
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
	if (f->use == FIELD_YES)
		return f->read(c, f->name, v);
	if (f->use == FIELD_HINT)
		return field_formed(c, f->name, v, f->form);
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
	static const char * const words[] = {
		[FIELD_NO] = "no", [FIELD_HINT] = "ignored", [FIELD_YES] = "yes",
	};
	const struct field *f;
	const char *first;

	text_puts(t, "| field | completions | chat | meaning |\n|---|---|---|---|\n");
	for (f = api_fields; f < api_fields + api_nr_fields; f++) {
		first = f->use == FIELD_HINT ? forms[f->form].text : "";
		text_printf(t, "| `%s` | %s | %s | %s%s%s", f->name,
			    f->kinds & API_COMPLETION ? words[f->use] : "-",
			    f->kinds & API_CHAT ? words[f->use] : "-", first,
			    *first && *f->text ? "; " : "", f->text);
		if (f->use == FIELD_NO && f->neutral != NEUTRAL_null)
			text_printf(t, "%saccepted: %s", *f->text ? "; " : "",
				    neutral_text(f->neutral));
		text_puts(t, " |\n");
	}
}
