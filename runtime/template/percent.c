// SPDX-License-Identifier: Apache-2.0
/*
 * percent.c - "..." % values, Python's printf
 *
 * The conversions s r d i u f F e E g G x X o c and %%, with flags, width and
 * precision, by position or by name.
 */
#include <math.h>
#include <stdio.h>

#include "runtime/template/internal.h"

#define WIDTH_MAX	1000

/**
 * struct spec - one conversion
 * @flags: printf() flags, as a string
 */
struct spec {
	char	flags[8];
	int	width;
	int	precision;
	char	conv;
};

/* The operands: a tuple's in turn, or a dict's by name */
struct operands {
	struct render	*r;
	struct value	arg;
	u32		next;
};

static struct value next_operand(struct operands *o)
{
	if (o->arg.kind == V_TUPLE) {
		if (o->next < o->arg.seq->n)
			return o->arg.seq->v[o->next++];
	} else if (!o->next++) {
		return o->arg;
	}
	run_fail(o->r, "%%: too few operands for the text");
	return VALUE(V_UNDEF);
}

static struct value named_operand(struct operands *o, const char **p,
				  const char *end)
{
	const char *from = ++*p;
	struct value *v;

	while (*p < end && **p != ')')
		++*p;
	if (*p == end || o->arg.kind != V_DICT) {
		run_fail(o->r, "%%: a name wants a dict");
		return VALUE(V_UNDEF);
	}
	v = tv_dict_text(o->r, o->arg.dict, from, (size_t)(*p - from));
	++*p;
	o->next = 1;
	if (!v)
		run_fail(o->r, "%%: no operand of that name");
	return v ? *v : VALUE(V_UNDEF);
}

static int read_number(struct operands *o, const char **p, const char *end)
{
	int n = 0;

	for (; *p < end && **p >= '0' && **p <= '9' && n <= WIDTH_MAX; ++*p)
		n = n * 10 + **p - '0';
	if (n > WIDTH_MAX)
		run_limit(o->r, "%: a width of more than 1000");
	return n;
}

static void read_spec(struct operands *o, struct spec *s, const char **p,
		      const char *end)
{
	size_t n = 0;

	memset(s, 0, sizeof(*s));
	s->precision = -1;
	while (*p < end && **p && strchr("-+ 0#", **p) && n < 6)
		s->flags[n++] = *(*p)++;
	s->width = read_number(o, p, end);
	if (*p < end && **p == '.') {
		++*p;
		s->precision = read_number(o, p, end);
	}
	if (*p < end)
		s->conv = *(*p)++;
}

static void pad(struct sbuf *b, int n)
{
	for (; n > 0 && !b->r->mem.failed; n--)
		sb_puts(b, " ");
}

static void put_text(struct sbuf *b, const struct spec *s, struct value v)
{
	bool left = strchr(s->flags, '-');
	const char *end;
	int fill;

	v = s->conv == 'r' ? tv_repr(b->r, v) : tv_str(b->r, v);
	if (b->r->mem.failed)
		return;
	if (s->precision >= 0) {
		end = ts_at(v.s, v.len, (size_t)s->precision);
		v = ts_sub(v, v.s, end);
	}
	fill = s->width ? s->width - (int)min(ts_chars(v.s, v.len),
					      (size_t)WIDTH_MAX) : 0;
	if (!left)
		pad(b, fill);
	sb_add(b, v.s, v.len);
	if (left)
		pad(b, fill);
}

static bool to_int(struct value v, bool cut, s64 *i)
{
	if (tv_as_int(v, i))
		return true;
	if (!cut || v.kind != V_FLOAT || !(fabs(v.f) < 9.2e18))
		return false;
	*i = (s64)v.f;
	return true;
}

static void put_number(struct sbuf *b, const struct spec *s, struct value v)
{
	char fmt[32], text[WIDTH_MAX * 2 + 400];
	bool whole = strchr("diuxXo", s->conv);
	bool digits = strchr("diu", s->conv);
	s64 i = 0;

	if (whole ? !to_int(v, digits, &i) : !tv_is_num(v)) {
		run_fail(b->r, "%%%c wants a number, not %s", s->conv,
			 tv_type(v));
		return;
	}
	if (whole && !digits && (i < 0 || strchr(s->flags, '#'))) {
		run_fail(b->r, "%%%c of a negative number or with # is not supported",
			 s->conv);
		return;
	}
	snprintf(fmt, sizeof(fmt), "%%%s*.*%s%c", s->flags, whole ? "ll" : "",
		 s->conv == 'u' || s->conv == 'i' ? 'd' : s->conv);
	if (whole)
		snprintf(text, sizeof(text), fmt, s->width, s->precision,
			 (long long)i);
	else
		snprintf(text, sizeof(text), fmt, s->width,
			 s->precision < 0 ? 6 : s->precision, tv_as_float(v));
	sb_puts(b, text);
}

static void put_char(struct sbuf *b, const struct spec *s, struct value v)
{
	struct sbuf one = { .r = b->r };
	s64 i;

	if (tv_as_int(v, &i) && i > 0 && i <= 0x10ffff &&
	    (i < 0xd800 || i > 0xdfff)) {
		sb_char(&one, (u32)i);
		v = sb_value(&one);
	} else if (v.kind != V_STR || ts_chars(v.s, v.len) != 1) {
		run_fail(b->r, "%%c wants a character");
		return;
	}
	put_text(b, s, v);
}

static void put(struct sbuf *b, const struct spec *s, struct value v)
{
	if (b->r->mem.failed)
		return;
	if (s->conv == 's' || s->conv == 'r')
		put_text(b, s, v);
	else if (s->conv == 'c')
		put_char(b, s, v);
	else if (s->conv && strchr("diuxXofFeEgG", s->conv))
		put_number(b, s, v);
	else
		run_fail(b->r, "%%: a conversion that is not supported");
}

struct value tv_percent(struct render *r, struct value fmt, struct value arg)
{
	const char *p = fmt.s, *end = p + fmt.len, *from;
	struct operands o = { .r = r, .arg = arg };
	struct sbuf b = { .r = r };
	struct spec s;
	struct value v;

	if (fmt.safe)
		run_fail(r, "%%: filling in a text that went through 'safe' is not supported");
	while (p < end && !r->mem.failed) {
		from = p;
		p = memchr(p, '%', (size_t)(end - p));
		if (!p)
			p = end;
		sb_add(&b, from, (size_t)(p - from));
		if (p++ == end)
			break;
		if (p < end && *p == '%') {
			sb_puts(&b, "%");
			p++;
			continue;
		}
		v = VALUE(V_MISSING);
		if (p < end && *p == '(')
			v = named_operand(&o, &p, end);
		read_spec(&o, &s, &p, end);
		put(&b, &s, v.kind ? v : next_operand(&o));
	}
	if (arg.kind == V_TUPLE ? o.next < arg.seq->n :
	    !o.next && arg.kind != V_DICT && arg.kind != V_LIST)
		run_fail(r, "%%: too many operands for the text");
	return sb_value(&b);
}
