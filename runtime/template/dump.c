// SPDX-License-Identifier: Apache-2.0
/*
 * dump.c - read and write JSON
 *
 * Writing is the filter `tojson`: Python's json.dumps() with the parameters
 * that transformers supports, and without the HTML escapes of Jinja2's own
 * filter.
 */
#include <jansson.h>
#include <stdio.h>

#include "runtime/template/internal.h"

static struct value from_object(struct render *r, const json_t *j)
{
	struct value d = tv_dict(r, V_DICT);
	const char *key;
	size_t len;
	json_t *v;

	json_object_keylen_foreach((json_t *)(uintptr_t)j, key, len, v) {
		if (r->mem.failed)
			break;
		tv_dict_set(r, d.dict, VALUE_STR(key, len), tv_from_json(r, v));
	}
	return d;
}

static struct value from_array(struct render *r, const json_t *j)
{
	struct value list = tv_seq(r, V_LIST, (u32)json_array_size(j));
	size_t i;

	for (i = 0; i < json_array_size(j) && !r->mem.failed; i++)
		tv_push(r, list, tv_from_json(r, json_array_get(j, i)));
	return list;
}

struct value tv_from_json(struct render *r, const json_t *j)
{
	struct value v = VALUE_NONE;

	switch (json_typeof(j)) {
	case JSON_STRING:
		return VALUE_STR(json_string_value(j), json_string_length(j));
	case JSON_INTEGER:
		return VALUE_INT(json_integer_value(j));
	case JSON_REAL:
		return VALUE_FLOAT(json_real_value(j));
	case JSON_TRUE:
	case JSON_FALSE:
		return VALUE_BOOL(json_is_true(j));
	case JSON_NULL:
		return v;
	default:
		break;
	}
	if (!run_enter(r))
		return v;
	v = json_is_object(j) ? from_object(r, j) : from_array(r, j);
	run_leave(r);
	return v;
}

/* ---- writing ---- */

/**
 * struct dump - state of writing
 * @item:   separator of items, without the line end that an indent adds
 * @key:    separator of key and value
 * @indent: text of one level; V_MISSING: all in one line
 */
struct dump {
	struct sbuf	b;
	struct value	item;
	struct value	key;
	struct value	indent;
	bool		ascii;
	bool		sort;
	u32		level;
};

static void dump(struct dump *d, struct value v);

static void dump_hex(struct sbuf *b, u32 c)
{
	char hex[16];

	if (c < 0x10000)
		snprintf(hex, sizeof(hex), "\\u%04x", c);
	else
		snprintf(hex, sizeof(hex), "\\u%04x\\u%04x",
			 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
	sb_puts(b, hex);
}

static void dump_char(struct dump *d, u32 c, const char *p, size_t n)
{
	static const char shorts[] = "\"\\\b\f\n\r\t";
	static const char names[] = "\"\\bfnrt";
	const char *s = c && c < 0x80 ? strchr(shorts, (int)c) : NULL;
	char pair[2] = { '\\' };

	if (s) {
		pair[1] = names[s - shorts];
		sb_add(&d->b, pair, 2);
	} else if (c < 0x20 || (d->ascii && c > 0x7f)) {
		dump_hex(&d->b, c);
	} else {
		sb_add(&d->b, p, n);
	}
}

static void dump_text(struct dump *d, struct value v)
{
	const char *p = v.s, *end = v.s + v.len, *from;
	u32 c;

	sb_puts(&d->b, "\"");
	run_step(d->b.r, v.len / 8);
	while (p < end && !d->b.r->mem.failed) {
		from = p;
		c = ts_next(&p, end);
		dump_char(d, c, from, (size_t)(p - from));
	}
	sb_puts(&d->b, "\"");
}

static void dump_float(struct dump *d, double f)
{
	char text[32];

	if (f != f)
		sb_puts(&d->b, "NaN");
	else if (f - f != 0)
		sb_puts(&d->b, f < 0 ? "-Infinity" : "Infinity");
	else
		sb_add(&d->b, text, tv_float_text(f, text));
}

static void dump_line(struct dump *d)
{
	u32 i;

	if (!d->indent.kind)
		return;
	sb_puts(&d->b, "\n");
	for (i = 0; i < d->level && !d->b.r->mem.failed; i++)
		sb_add(&d->b, d->indent.s, d->indent.len);
}

static void dump_item_begin(struct dump *d, bool first)
{
	if (!first)
		sb_add(&d->b, d->item.s, d->item.len);
	dump_line(d);
}

static void dump_list(struct dump *d, const struct seq *q)
{
	u32 i;

	if (!q->n) {
		sb_puts(&d->b, "[]");
		return;
	}
	sb_puts(&d->b, "[");
	d->level++;
	for (i = 0; i < q->n && !d->b.r->mem.failed; i++) {
		dump_item_begin(d, !i);
		dump(d, q->v[i]);
	}
	d->level--;
	dump_line(d);
	sb_puts(&d->b, "]");
}

static void dump_key(struct dump *d, struct value key)
{
	switch (key.kind) {
	case V_STR:
		dump_text(d, key);
		return;
	case V_NONE:
	case V_BOOL:
	case V_INT:
	case V_FLOAT:
		sb_puts(&d->b, "\"");
		dump(d, key);
		sb_puts(&d->b, "\"");
		return;
	default:
		run_fail(d->b.r, "tojson: a key of type %s", tv_type(key));
		return;
	}
}

/* The entries sorted by key, as values that are places in @e */
static struct value *sorted(struct dump *d, const struct dict *of)
{
	struct render *r = d->b.r;
	struct value *v = mem_get(&r->mem, 2 * (size_t)of->n * sizeof(*v));
	u32 i;

	for (i = 0; i < of->n && v; i++) {
		v[i] = VALUE_INT(i);
		v[of->n + i] = of->e[i].key;
	}
	if (v)
		tv_sort(r, v, v + of->n, of->n, false);
	return v;
}

static void dump_dict(struct dump *d, const struct dict *of)
{
	struct value *order = d->sort ? sorted(d, of) : NULL;
	u32 i, at;

	if (!of->n) {
		sb_puts(&d->b, "{}");
		return;
	}
	sb_puts(&d->b, "{");
	d->level++;
	for (i = 0; i < of->n && !d->b.r->mem.failed; i++) {
		at = order ? (u32)order[i].i : i;
		dump_item_begin(d, !i);
		dump_key(d, of->e[at].key);
		sb_add(&d->b, d->key.s, d->key.len);
		dump(d, of->e[at].val);
	}
	d->level--;
	dump_line(d);
	sb_puts(&d->b, "}");
}

static void dump_kind(struct dump *d, struct value v)
{
	char text[32];

	switch (v.kind) {
	case V_STR:
		dump_text(d, v);
		break;
	case V_NONE:
		sb_puts(&d->b, "null");
		break;
	case V_BOOL:
		sb_puts(&d->b, v.b ? "true" : "false");
		break;
	case V_INT:
		snprintf(text, sizeof(text), "%lld", (long long)v.i);
		sb_puts(&d->b, text);
		break;
	case V_FLOAT:
		dump_float(d, v.f);
		break;
	case V_LIST:
	case V_TUPLE:
		dump_list(d, v.seq);
		break;
	case V_DICT:
		dump_dict(d, v.dict);
		break;
	default:
		run_fail(d->b.r, "tojson: a value of type %s%s%.*s", tv_type(v),
			 v.kind == V_UNDEF ? ": " : "", v.kind == V_UNDEF ?
			 (int)min(v.len, 60u) : 0, v.kind == V_UNDEF ? v.s : "");
		break;
	}
}

static void dump(struct dump *d, struct value v)
{
	if (!run_enter(d->b.r))
		return;
	run_step(d->b.r, 1);
	dump_kind(d, v);
	run_leave(d->b.r);
}

static void dump_indent(struct dump *d, struct value v)
{
	struct render *r = d->b.r;
	s64 n;

	if (v.kind == V_STR) {
		d->indent = v;
	} else if (tv_as_int(v, &n)) {
		n = max(n, (s64)0);
		if (n > 64) {
			run_limit(r, "tojson: an indent of more than 64");
			return;
		}
		d->indent = VALUE_STR("                                "
				      "                                ", n);
	} else if (v.kind > V_NONE) {
		run_fail(r, "tojson: an indent of type %s", tv_type(v));
	}
}

/* Read separators=(item, key) */
static void dump_separators(struct dump *d, struct value v)
{
	d->item = tv_text(d->indent.kind ? "," : ", ");
	d->key = tv_text(": ");
	if (v.kind <= V_NONE)
		return;
	if ((v.kind != V_TUPLE && v.kind != V_LIST) || v.seq->n != 2 ||
	    v.seq->v[0].kind != V_STR || v.seq->v[1].kind != V_STR) {
		run_fail(d->b.r, "tojson: separators are two texts");
		return;
	}
	d->item = v.seq->v[0];
	d->key = v.seq->v[1];
}

struct value tv_to_json(struct render *r, const struct args *a)
{
	struct dump d = { .b.r = r };
	struct value v[4];

	if (!args_take(r, a, "ensure_ascii indent separators sort_keys", 0, v))
		return VALUE(V_UNDEF);
	d.ascii = tv_truth(r, v[0]);
	d.sort = tv_truth(r, v[3]);
	dump_indent(&d, v[1]);
	dump_separators(&d, v[2]);
	dump(&d, a->self);
	return sb_value(&d.b);
}
