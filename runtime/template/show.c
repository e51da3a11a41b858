// SPDX-License-Identifier: Apache-2.0
/*
 * show.c - values as text: Python's str() and repr()
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/template/internal.h"

static void show(struct sbuf *b, struct value v, bool repr);

/* Arrange the digits and the exponent of @e ("d.ddde-07") as Python does. */
static size_t float_layout(const char *e, char out[32])
{
	char digits[24];
	int n = 0, exp, k = 0, i;
	const char *p = e;

	if (*p == '-')
		out[k++] = *p++;
	for (; *p && *p != 'e'; p++)
		if (*p != '.')
			digits[n++] = *p;
	exp = atoi(p + 1);
	while (n > 1 && digits[n - 1] == '0')
		n--;
	if (exp < -4 || exp >= 16) {
		out[k++] = digits[0];
		if (n > 1)
			out[k++] = '.';
		for (i = 1; i < n; i++)
			out[k++] = digits[i];
		return (size_t)(k + sprintf(out + k, "e%c%02d",
					    exp < 0 ? '-' : '+', abs(exp)));
	}
	/* Digit i stands for 10^(exp - i); the point is after digit exp. */
	for (i = min(exp, 0); i < max(n, exp + 2); i++) {
		if (i == exp + 1)
			out[k++] = '.';
		out[k++] = i < 0 || i >= n ? '0' : digits[i];
	}
	out[k] = 0;
	return (size_t)k;
}

/* The fewest digits that read as the same number */
size_t tv_float_text(double f, char out[32])
{
	char e[40];
	int digits;

	if (isnan(f))
		return (size_t)sprintf(out, "nan");
	if (isinf(f))
		return (size_t)sprintf(out, f < 0 ? "-inf" : "inf");
	for (digits = 0; digits < 17; digits++) {
		snprintf(e, sizeof(e), "%.*e", digits, f);
		if (strtod(e, NULL) == f)
			break;
	}
	return float_layout(e, out);
}

/* ---- repr() of texts ---- */

static void repr_char(struct sbuf *b, u32 c, const char *p, size_t n,
		      char quote)
{
	static const char names[] = "\\\n\r\t";
	static const char letters[] = "\\nrt";
	const char *l = c && c < 0x80 ? strchr(names, (int)c) : NULL;
	char hex[16];

	if (l || c == (u8)quote) {
		sb_puts(b, "\\");
		sb_add(b, l ? &letters[l - names] : &quote, 1);
	} else if (ts_is_printable(c)) {
		sb_add(b, p, n);
	} else {
		snprintf(hex, sizeof(hex), c < 0x100 ? "\\x%02x" :
			 c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
		sb_puts(b, hex);
	}
}

static void repr_text(struct sbuf *b, struct value v)
{
	bool single = v.len && memchr(v.s, '\'', v.len);
	char quote = single && !memchr(v.s, '"', v.len) ? '"' : '\'';
	const char *p = v.s, *end = v.s + v.len, *from;
	u32 c;

	if (v.safe)
		sb_puts(b, "Markup(");
	sb_add(b, &quote, 1);
	while (p < end && !b->r->mem.failed) {
		from = p;
		c = ts_next(&p, end);
		repr_char(b, c, from, (size_t)(p - from), quote);
	}
	sb_add(b, &quote, 1);
	if (v.safe)
		sb_puts(b, ")");
}

/* ---- containers ---- */

static void show_seq(struct sbuf *b, struct value v)
{
	bool tuple = v.kind == V_TUPLE;
	u32 i;

	if (v.kind == V_VIEW) {
		sb_puts(b, v.seq->name);
		sb_puts(b, "(");
	}
	sb_puts(b, tuple ? "(" : "[");
	for (i = 0; i < v.seq->n && !b->r->mem.failed; i++) {
		if (i)
			sb_puts(b, ", ");
		show(b, v.seq->v[i], true);
	}
	if (tuple && v.seq->n == 1)
		sb_puts(b, ",");
	sb_puts(b, tuple ? ")" : "]");
	if (v.kind == V_VIEW)
		sb_puts(b, ")");
}

static void show_dict(struct sbuf *b, const struct dict *d)
{
	u32 i;

	sb_puts(b, "{");
	for (i = 0; i < d->n && !b->r->mem.failed; i++) {
		if (i)
			sb_puts(b, ", ");
		show(b, d->e[i].key, true);
		sb_puts(b, ": ");
		show(b, d->e[i].val, true);
	}
	sb_puts(b, "}");
}

static void show_range(struct sbuf *b, const struct range *g)
{
	char text[64];

	if (g->step != 1)
		run_fail(b->r, "a range with a step has no text");
	snprintf(text, sizeof(text), "range(%lld, %lld)", (long long)g->start,
		 (long long)g->start + g->n);
	sb_puts(b, text);
}

static void show_number(struct sbuf *b, struct value v)
{
	char text[40];

	if (v.kind == V_INT)
		snprintf(text, sizeof(text), "%lld", (long long)v.i);
	else
		tv_float_text(v.f, text);
	sb_puts(b, text);
}

static void show_kind(struct sbuf *b, struct value v, bool repr)
{
	switch (v.kind) {
	case V_UNDEF:
		sb_puts(b, repr ? "Undefined" : "");
		break;
	case V_NONE:
		sb_puts(b, "None");
		break;
	case V_BOOL:
		sb_puts(b, v.b ? "True" : "False");
		break;
	case V_INT:
	case V_FLOAT:
		show_number(b, v);
		break;
	case V_STR:
		if (repr)
			repr_text(b, v);
		else
			sb_add(b, v.s, v.len);
		break;
	case V_LIST:
	case V_TUPLE:
	case V_VIEW:
		show_seq(b, v);
		break;
	case V_DICT:
		show_dict(b, v.dict);
		break;
	case V_NAMESPACE:
		sb_puts(b, "<Namespace ");
		show_dict(b, v.dict);
		sb_puts(b, ">");
		break;
	case V_RANGE:
		show_range(b, v.range);
		break;
	default:
		run_fail(b->r, "a value of type %s has no text", tv_type(v));
		break;
	}
}

static void show(struct sbuf *b, struct value v, bool repr)
{
	if (!run_enter(b->r))
		return;
	run_step(b->r, 1);
	show_kind(b, v, repr);
	run_leave(b->r);
}

struct value tv_str(struct render *r, struct value v)
{
	struct sbuf b = { .r = r };

	if (r->mem.failed)
		return VALUE(V_UNDEF);
	if (v.kind == V_STR)
		return v;
	if (v.kind == V_UNDEF)
		return VALUE_STR("", 0);
	show(&b, v, false);
	return sb_value(&b);
}

struct value tv_repr(struct render *r, struct value v)
{
	struct sbuf b = { .r = r };

	show(&b, v, true);
	return sb_value(&b);
}
