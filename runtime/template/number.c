// SPDX-License-Identifier: Apache-2.0
/*
 * number.c - filters that create and round numbers
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/template/filters.h"

struct value f_abs(struct render *r, const struct args *a)
{
	struct value v = a->self;

	if (!args_take(r, a, "", 0, NULL))
		return VALUE(V_UNDEF);
	if (v.kind == V_FLOAT)
		return VALUE_FLOAT(fabs(v.f));
	if (!tv_is_num(v)) {
		run_fail(r, "abs wants a number, not %s", tv_type(v));
		return v;
	}
	return tv_negate(r, v, v.kind == V_INT && v.i < 0);
}

/* The text without outer blanks and inner underscores, as a C string */
static bool plain(struct render *r, struct value v, char *out, size_t size)
{
	size_t i, k = 0;

	v = ts_strip(r, v, VALUE(V_MISSING), 3);
	for (i = 0; i < v.len; i++) {
		if (v.s[i] == '_' && i && i + 1 < v.len && v.s[i + 1] != '_')
			continue;
		if (k + 1 >= size || !v.s[i])
			return false;
		out[k++] = v.s[i];
	}
	out[k] = 0;
	return k > 0 && !strpbrk(out, " \t\n\v\f\r_");
}

static bool text_to_float(struct render *r, struct value v, double *f)
{
	char s[400], *end;

	/* Exclude strtod()'s hexadecimal forms */
	if (!plain(r, v, s, sizeof(s)) || strpbrk(s, "xX("))
		return false;
	*f = strtod(s, &end);
	return !*end;
}

static bool text_to_int(struct render *r, struct value v, s64 base, s64 *i)
{
	char s[100], *end, *p;

	if (!plain(r, v, s, sizeof(s)))
		return false;
	p = s + (s[0] == '-' || s[0] == '+');
	if (p[0] == '0' && p[1] &&
	    ((base == 2 && (p[1] | 0x20) == 'b') ||
	     (base == 8 && (p[1] | 0x20) == 'o')))
		memmove(p, p + 2, strlen(p + 2) + 1);
	if (base == 10 && strpbrk(s, "xX"))
		return false;
	errno = 0;
	*i = strtoll(s, &end, (int)base);
	if (errno == ERANGE)
		run_fail(r, "a number beyond 64 bits is not supported");
	return !*end && end > s;
}

static bool float_to_int(struct render *r, double f, s64 *i)
{
	if (!(fabs(f) < 9.2e18)) {
		if (f - f == 0)
			run_fail(r, "a number beyond 64 bits is not supported");
		return false;
	}
	*i = (s64)f;
	return true;
}

static void undef_fail(struct render *r, struct value v)
{
	if (v.kind == V_UNDEF)
		run_fail(r, "'%.*s' is undefined, and is to be a number",
			 (int)min(v.len, 60u), v.s ? v.s : "");
}

struct value f_int(struct render *r, const struct args *a)
{
	struct value v[2], self = a->self;
	s64 i = 0, base;
	double f;

	if (!args_take(r, a, "default base", 0, v))
		return VALUE(V_UNDEF);
	undef_fail(r, self);
	base = arg_int(r, v[1], 10);
	if (base < 2 || base > 36)
		run_fail(r, "int: a base of 2 to 36");
	if (r->mem.failed)
		return VALUE(V_UNDEF);
	if (tv_as_int(self, &i) ||
	    (self.kind == V_FLOAT && float_to_int(r, self.f, &i)))
		return VALUE_INT(i);
	if (self.kind == V_STR &&
	    (text_to_int(r, self, base, &i) ||
	     (text_to_float(r, self, &f) && float_to_int(r, f, &i))))
		return VALUE_INT(i);
	return v[0].kind ? v[0] : VALUE_INT(0);
}

struct value f_float(struct render *r, const struct args *a)
{
	struct value v[1], self = a->self;
	double f;

	if (!args_take(r, a, "default", 0, v))
		return VALUE(V_UNDEF);
	undef_fail(r, self);
	if (tv_is_num(self))
		return VALUE_FLOAT(tv_as_float(self));
	if (self.kind == V_STR && text_to_float(r, self, &f))
		return VALUE_FLOAT(f);
	return v[0].kind ? v[0] : VALUE_FLOAT(0);
}

struct value f_round(struct render *r, const struct args *a)
{
	struct value v[2], self = a->self;
	char text[400];
	double scale;
	s64 digits;

	if (!args_take(r, a, "precision method", 0, v))
		return VALUE(V_UNDEF);
	digits = arg_int(r, v[0], 0);
	if (!tv_is_num(self))
		run_fail(r, "round wants a number, not %s", tv_type(self));
	if (digits < 0 || digits > 15)
		run_fail(r, "round: a precision of 0 to 15 is supported");
	if (r->mem.failed)
		return VALUE(V_UNDEF);
	scale = pow(10, (double)digits);
	if (v[1].kind && tv_is_text(v[1], "ceil"))
		return VALUE_FLOAT(ceil(tv_as_float(self) * scale) / scale);
	if (v[1].kind && tv_is_text(v[1], "floor"))
		return VALUE_FLOAT(floor(tv_as_float(self) * scale) / scale);
	if (v[1].kind && !tv_is_text(v[1], "common"))
		run_fail(r, "round: the methods are common, ceil and floor");
	if (self.kind != V_FLOAT)
		return tv_negate(r, self, false);
	snprintf(text, sizeof(text), "%.*f", (int)digits, self.f);
	return VALUE_FLOAT(strtod(text, NULL));
}
