// SPDX-License-Identifier: Apache-2.0
/*
 * methods.c - the methods of texts, lists, dicts and the loop
 *
 * A method with a known name and a NULL function exists in Python but not in
 * templates: it changes its object, or chat templates do not need it.  Such an
 * attribute is Undefined, as in Jinja2's immutable sandbox, and it hides a key
 * of the same name in `a.b`.
 */
#include "runtime/template/internal.h"

/* ---- str ---- */

static struct value strip(struct render *r, const struct args *a, int ends)
{
	struct value v[1];

	if (!args_take(r, a, "chars", 0, v) ||
	    (v[0].kind > V_NONE && !arg_text(r, v[0], "strip")))
		return VALUE(V_UNDEF);
	return ts_strip(r, a->self, v[0], ends);
}

static struct value m_strip(struct render *r, const struct args *a)
{
	return strip(r, a, 3);
}

static struct value m_lstrip(struct render *r, const struct args *a)
{
	return strip(r, a, 1);
}

static struct value m_rstrip(struct render *r, const struct args *a)
{
	return strip(r, a, 2);
}

static struct value m_split(struct render *r, const struct args *a)
{
	return ts_split(r, a, false);
}

static struct value m_rsplit(struct render *r, const struct args *a)
{
	return ts_split(r, a, true);
}

static struct value m_partition(struct render *r, const struct args *a)
{
	return ts_partition(r, a, false);
}

static struct value m_rpartition(struct render *r, const struct args *a)
{
	return ts_partition(r, a, true);
}

static struct value map_case(struct render *r, const struct args *a, char how)
{
	if (!args_take(r, a, "", 0, NULL))
		return VALUE(V_UNDEF);
	return ts_map_case(r, a->self, how);
}

static struct value m_upper(struct render *r, const struct args *a)
{
	return map_case(r, a, 'u');
}

static struct value m_lower(struct render *r, const struct args *a)
{
	return map_case(r, a, 'l');
}

static struct value m_title(struct render *r, const struct args *a)
{
	return map_case(r, a, 't');
}

static struct value m_capitalize(struct render *r, const struct args *a)
{
	return map_case(r, a, 'c');
}

static bool has_end(struct render *r, struct value s, struct value what,
		    bool begin)
{
	run_bytes(r, what.len);
	if (what.len > s.len)
		return false;
	return !memcmp(begin ? s.s : s.s + s.len - what.len, what.s, what.len);
}

/* One text, or any of a tuple of texts; start and end are not supported. */
static struct value with_end(struct render *r, const struct args *a, bool begin)
{
	struct value v[1];
	bool yes = false;
	u32 i;

	if (!args_take(r, a, "prefix", 1, v))
		return VALUE(V_UNDEF);
	if (v[0].kind != V_TUPLE) {
		if (!arg_text(r, v[0], begin ? "startswith" : "endswith"))
			return VALUE(V_UNDEF);
		return VALUE_BOOL(has_end(r, a->self, v[0], begin));
	}
	for (i = 0; i < v[0].seq->n && !yes; i++)
		yes = arg_text(r, v[0].seq->v[i], "startswith") &&
		      has_end(r, a->self, v[0].seq->v[i], begin);
	return VALUE_BOOL(yes);
}

static struct value m_startswith(struct render *r, const struct args *a)
{
	return with_end(r, a, true);
}

static struct value m_endswith(struct render *r, const struct args *a)
{
	return with_end(r, a, false);
}

static struct value m_replace(struct render *r, const struct args *a)
{
	struct value v[3];

	if (!args_take(r, a, "old new count", 2, v) ||
	    !arg_text(r, v[0], "replace") || !arg_text(r, v[1], "replace"))
		return VALUE(V_UNDEF);
	return ts_replace(r, a->self, v[0], v[1], arg_int(r, v[2], -1));
}

static struct value m_join(struct render *r, const struct args *a)
{
	struct sbuf b = { .r = r };
	const struct value *items;
	struct value v[1];
	u32 n, i;

	if (!args_take(r, a, "iterable", 1, v))
		return VALUE(V_UNDEF);
	items = tv_items(r, v[0], &n);
	for (i = 0; i < n && !r->mem.failed; i++) {
		if (!arg_text(r, items[i], "join"))
			break;
		if (i)
			sb_add(&b, a->self.s, a->self.len);
		sb_add(&b, items[i].s, items[i].len);
	}
	return sb_value(&b);
}

/* The position in characters, or -1 */
static s64 find(struct render *r, const struct args *a, bool last)
{
	struct value v[3], s = a->self;
	const char *p, *hit, *next, *from, *to;
	s64 begin, end, len = 0;

	if (!args_take(r, a, "sub start end", 1, v) ||
	    !arg_text(r, v[0], "find"))
		return -1;
	tv_len(r, s, &len);
	begin = arg_int(r, v[1], 0);
	end = arg_int(r, v[2], len);
	begin = max(begin < 0 ? begin + len : begin, (s64)0);
	end = min(end < 0 ? end + len : end, len);
	if (begin > end)
		return -1;
	p = s.s;
	from = ts_at(p, s.len, (size_t)begin);
	to = ts_at(p, s.len, (size_t)max(end, (s64)0));
	run_bytes(r, s.len);
	hit = ts_find(from, (size_t)(to - from), v[0].s, v[0].len);
	if (last && hit && !v[0].len)
		hit = to;
	while (last && hit && hit < to &&
	       (next = ts_find(hit + 1, (size_t)(to - hit - 1), v[0].s,
			       v[0].len))) {
		run_step(r, 1);
		hit = next;
	}
	return hit ? (s64)ts_chars(p, (size_t)(hit - p)) : -1;
}

static struct value m_find(struct render *r, const struct args *a)
{
	return VALUE_INT(find(r, a, false));
}

static struct value m_rfind(struct render *r, const struct args *a)
{
	return VALUE_INT(find(r, a, true));
}

static struct value m_text_index(struct render *r, const struct args *a)
{
	s64 i = find(r, a, false);

	if (i < 0)
		run_fail(r, "index: the text is not there");
	return VALUE_INT(i);
}

static struct value m_text_count(struct render *r, const struct args *a)
{
	const char *p = a->self.s, *end = p + a->self.len;
	struct value v[1];
	s64 n = 0;

	if (!args_take(r, a, "sub", 1, v) || !arg_text(r, v[0], "count"))
		return VALUE(V_UNDEF);
	run_bytes(r, a->self.len);
	if (!v[0].len)
		return VALUE_INT((s64)ts_chars(p, a->self.len) + 1);
	while ((p = ts_find(p, (size_t)(end - p), v[0].s, v[0].len))) {
		p += v[0].len;
		n++;
		run_step(r, 1);
	}
	return VALUE_INT(n);
}

static struct value all_chars(struct render *r, const struct args *a, char what)
{
	const char *p = a->self.s, *end = p + a->self.len;
	bool yes = a->self.len > 0, cased = what != 'u' && what != 'l';
	u32 c;

	if (!args_take(r, a, "", 0, NULL))
		return VALUE(V_UNDEF);
	run_bytes(r, a->self.len);
	while (p < end && yes) {
		c = ts_next(&p, end);
		if (what == 's') {
			yes = ts_is_space(c);
		} else if (what == 'd') {
			yes = c >= '0' && c <= '9';
		} else if (what == 'a') {
			yes = ts_upper(c) != c || ts_lower(c) != c;
		} else {
			yes = (what == 'u' ? ts_upper(c) : ts_lower(c)) == c;
			cased |= ts_upper(c) != c || ts_lower(c) != c;
		}
	}
	return VALUE_BOOL(yes && cased);
}

static struct value m_isspace(struct render *r, const struct args *a)
{
	return all_chars(r, a, 's');
}

static struct value m_isdigit(struct render *r, const struct args *a)
{
	return all_chars(r, a, 'd');
}

static struct value m_isalpha(struct render *r, const struct args *a)
{
	return all_chars(r, a, 'a');
}

static struct value m_isupper(struct render *r, const struct args *a)
{
	return all_chars(r, a, 'u');
}

static struct value m_islower(struct render *r, const struct args *a)
{
	return all_chars(r, a, 'l');
}

static struct value remove_end(struct render *r, const struct args *a,
			       bool begin)
{
	struct value v[1], s = a->self;

	if (!args_take(r, a, "prefix", 1, v) || !arg_text(r, v[0], "remove"))
		return VALUE(V_UNDEF);
	if (!has_end(r, s, v[0], begin))
		return s;
	return begin ? ts_sub(s, s.s + v[0].len, s.s + s.len) :
	       ts_sub(s, s.s, s.s + s.len - v[0].len);
}

static struct value m_removeprefix(struct render *r, const struct args *a)
{
	return remove_end(r, a, true);
}

static struct value m_removesuffix(struct render *r, const struct args *a)
{
	return remove_end(r, a, false);
}

const struct func tv_text_methods[] = {
	{ "strip", m_strip }, { "lstrip", m_lstrip }, { "rstrip", m_rstrip },
	{ "split", m_split }, { "rsplit", m_rsplit },
	{ "splitlines", ts_splitlines }, { "partition", m_partition },
	{ "rpartition", m_rpartition }, { "upper", m_upper },
	{ "lower", m_lower }, { "title", m_title },
	{ "capitalize", m_capitalize }, { "startswith", m_startswith },
	{ "endswith", m_endswith }, { "replace", m_replace },
	{ "join", m_join }, { "find", m_find }, { "rfind", m_rfind },
	{ "index", m_text_index }, { "count", m_text_count },
	{ "format", tv_braces }, { "isspace", m_isspace },
	{ "isdigit", m_isdigit }, { "isalpha", m_isalpha },
	{ "isupper", m_isupper }, { "islower", m_islower },
	{ "removeprefix", m_removeprefix }, { "removesuffix", m_removesuffix },
	{ NULL, NULL },
};
