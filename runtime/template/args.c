// SPDX-License-Identifier: Apache-2.0
/*
 * args.c - operands by position or by name
 */
#include "runtime/template/internal.h"

/* The position of @k in @spec, or -1 */
static int word_place(const char *spec, const struct kwarg *k)
{
	int i = 0;
	size_t n;

	for (; *spec; i++) {
		n = strcspn(spec, " ");
		if (n == k->len && !memcmp(spec, k->name, n))
			return i;
		spec += n;
		spec += *spec == ' ';
	}
	return -1;
}

static u32 word_count(const char *spec)
{
	u32 n = *spec != 0;

	for (; *spec; spec++)
		n += *spec == ' ';
	return n;
}

bool args_take(struct render *r, const struct args *a, const char *spec,
	       u32 need, struct value *out)
{
	u32 n = word_count(spec), i;
	int at;

	if (r->mem.failed)
		return false;
	for (i = 0; i < n; i++)
		out[i] = i < a->n ? a->v[i] : VALUE(V_MISSING);
	if (a->n > n)
		run_fail(r, "%u operands where %u are taken", a->n, n);
	for (i = 0; i < a->nr_kw; i++) {
		at = word_place(spec, &a->kw[i]);
		if (at < 0 || out[at].kind)
			run_fail(r, "the operand '%.*s' is not taken",
				 (int)min(a->kw[i].len, 40u), a->kw[i].name);
		else
			out[at] = a->kw[i].v;
	}
	for (i = 0; i < need; i++)
		if (!out[i].kind)
			run_fail(r, "too few operands: want %s", spec);
	return !r->mem.failed;
}

s64 arg_int(struct render *r, struct value v, s64 def)
{
	s64 i = def;

	if (v.kind > V_NONE && !tv_as_int(v, &i))
		run_fail(r, "a whole number was wanted, not %s", tv_type(v));
	return i;
}

bool arg_text(struct render *r, struct value v, const char *what)
{
	if (!r->mem.failed && v.kind != V_STR)
		run_fail(r, "%s wants a text, not %s", what, tv_type(v));
	return !r->mem.failed;
}
