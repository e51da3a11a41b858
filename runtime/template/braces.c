// SPDX-License-Identifier: Apache-2.0
/*
 * braces.c - str.format()
 *
 * Fields by position or name, {} {0} {name}, with !s and !r, and after a colon
 * with those conversions of percent.c on which both languages agree: {:.2f},
 * {:5d}, {:05d}.  Fields inside of fields are refused.
 */
#include "runtime/template/internal.h"

struct filling {
	struct render		*r;
	const struct args	*a;
	struct sbuf		b;
	u32			next;
};

/* The operand named by @p..@end */
static struct value field_value(struct filling *f, const char *p,
				const char *end)
{
	size_t n = (size_t)(end - p);
	u32 i = 0;

	if (!n) {
		i = f->next++;
	} else if (*p >= '0' && *p <= '9') {
		for (; p < end && *p >= '0' && *p <= '9' && i < 10000; p++)
			i = i * 10 + (u32)(*p - '0');
		if (p < end)
			i = UINT32_MAX;
	} else {
		for (i = 0; i < f->a->nr_kw; i++)
			if (f->a->kw[i].len == n &&
			    !memcmp(f->a->kw[i].name, p, n))
				return f->a->kw[i].v;
		i = UINT32_MAX;
	}
	if (i < f->a->n)
		return f->a->v[i];
	run_fail(f->r, "format: no operand '%.*s'", (int)min(n, (size_t)40),
		 end - n);
	return VALUE(V_UNDEF);
}

static void put_spec(struct filling *f, struct value v, const char *p,
		     const char *end)
{
	struct value fmt, one = tv_seq(f->r, V_TUPLE, 1), out;
	struct sbuf b = { .r = f->r };
	char last = end[-1];
	const char *q;

	for (q = p; q < end - 1; q++)
		if ((*q < '0' || *q > '9') && *q != '.')
			break;
	if (q != end - 1 || !strchr("dfeg", last) ||
	    (last == 'd' && v.kind != V_INT && v.kind != V_BOOL)) {
		run_fail(f->r, "format: the field ':%.*s' is not supported",
			 (int)min(end - p, (ptrdiff_t)40), p);
		return;
	}
	sb_puts(&b, "%");
	sb_add(&b, p, (size_t)(end - p));
	fmt = sb_value(&b);
	tv_push(f->r, one, v);
	if (f->r->mem.failed)
		return;
	out = tv_percent(f->r, fmt, one);
	if (!f->r->mem.failed)
		sb_add(&f->b, out.s, out.len);
}

/* One field, without its braces */
static void put_field(struct filling *f, const char *p, const char *end)
{
	const char *colon = memchr(p, ':', (size_t)(end - p));
	const char *bang = memchr(p, '!', (size_t)(end - p));
	const char *name = colon ? colon : end;
	struct value v;

	if (bang && bang < name)
		name = bang;
	else
		bang = NULL;
	v = field_value(f, p, name);
	if (f->r->mem.failed)
		return;
	if (bang && name + 2 == (colon ? colon : end) && name[1] == 'r') {
		v = tv_repr(f->r, v);
	} else if (bang && (name + 2 != (colon ? colon : end) ||
			    name[1] != 's')) {
		run_fail(f->r, "format: a conversion that is not supported");
		return;
	}
	if (colon && colon + 1 < end) {
		put_spec(f, v, colon + 1, end);
		return;
	}
	v = tv_str(f->r, v);
	if (!f->r->mem.failed)
		sb_add(&f->b, v.s, v.len);
}

struct value tv_braces(struct render *r, const struct args *a)
{
	const char *p = a->self.s, *end = p + a->self.len, *close;
	struct filling f = { .r = r, .a = a, .b.r = r };

	if (a->self.safe)
		run_fail(r, "format: filling in a text that went through 'safe' is not supported");
	while (p < end && !r->mem.failed) {
		if (*p != '{' && *p != '}') {
			sb_add(&f.b, p++, 1);
			continue;
		}
		if (p + 1 < end && p[1] == *p) {
			sb_add(&f.b, p, 1);
			p += 2;
			continue;
		}
		close = memchr(p, '}', (size_t)(end - p));
		if (*p == '}' || !close ||
		    memchr(p + 1, '{', (size_t)(close - p - 1))) {
			run_fail(r, "format: braces that do not match");
			break;
		}
		put_field(&f, p + 1, close);
		p = close + 1;
	}
	return sb_value(&f.b);
}
