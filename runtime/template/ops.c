// SPDX-License-Identifier: Apache-2.0
/*
 * ops.c - arithmetic, and Python's operators on texts and lists
 *
 * Whole numbers have 64 bits; an overflow fails.  Division and remainder round
 * down.
 */
#include <math.h>

#include "runtime/template/internal.h"

static const char op_names[][3] = {
	[OP_ADD] = "+", [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/",
	[OP_FLOORDIV] = "//", [OP_MOD] = "%", [OP_POW] = "**",
};

static struct value op_fail(struct render *r, u8 op, struct value a,
			    struct value b)
{
	struct value u = a.kind == V_UNDEF ? a : b;

	if (u.kind == V_UNDEF)
		run_fail(r, "'%.*s' is undefined, and is an operand of %s",
			 (int)min(u.len, 60u), u.s ? u.s : "", op_names[op]);
	else
		run_fail(r, "%s %s %s makes no sense", tv_type(a),
			 op_names[op], tv_type(b));
	return VALUE(V_UNDEF);
}

static bool int_power(s64 base, s64 exp, s64 *out)
{
	*out = 1;
	while (exp) {
		if (exp & 1 && __builtin_mul_overflow(*out, base, out))
			return false;
		exp >>= 1;
		if (exp && __builtin_mul_overflow(base, base, &base))
			return false;
	}
	return true;
}

static bool int_floordiv(s64 a, s64 b, s64 *out)
{
	if (a == INT64_MIN && b == -1)
		return false;
	*out = a / b - (a % b && (a < 0) != (b < 0));
	return true;
}

static struct value op_ints(struct render *r, u8 op, s64 a, s64 b)
{
	bool ok = true;
	s64 x = 0;

	if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && !b) {
		run_fail(r, "division by zero");
		return VALUE(V_UNDEF);
	}
	switch (op) {
	case OP_ADD:
		ok = !__builtin_add_overflow(a, b, &x);
		break;
	case OP_SUB:
		ok = !__builtin_sub_overflow(a, b, &x);
		break;
	case OP_MUL:
		ok = !__builtin_mul_overflow(a, b, &x);
		break;
	case OP_DIV:
		return VALUE_FLOAT((double)a / (double)b);
	case OP_FLOORDIV:
		ok = int_floordiv(a, b, &x);
		break;
	case OP_MOD:
		x = b == -1 ? 0 : a % b;
		x += x && (x < 0) != (b < 0) ? b : 0;
		break;
	default:
		if (b < 0)
			return VALUE_FLOAT(pow((double)a, (double)b));
		ok = int_power(a, b, &x);
		break;
	}
	if (!ok)
		run_fail(r, "a number beyond 64 bits is not supported");
	return VALUE_INT(x);
}

static struct value op_floats(struct render *r, u8 op, double a, double b)
{
	double x;

	switch (op) {
	case OP_ADD:
		return VALUE_FLOAT(a + b);
	case OP_SUB:
		return VALUE_FLOAT(a - b);
	case OP_MUL:
		return VALUE_FLOAT(a * b);
	case OP_POW:
		return VALUE_FLOAT(pow(a, b));
	default:
		break;
	}
	if (b == 0) {
		run_fail(r, "division by zero");
		return VALUE(V_UNDEF);
	}
	if (op == OP_DIV)
		return VALUE_FLOAT(a / b);
	x = fmod(a, b);
	if (x != 0 && (x < 0) != (b < 0))
		x += b;
	return VALUE_FLOAT(op == OP_MOD ? x : floor((a - x) / b + 0.5));
}

/* A text with `safe` escapes the text added to it. */
static struct value add_texts(struct render *r, struct value a, struct value b)
{
	if (a.safe || b.safe) {
		a = tv_escape(r, a);
		b = tv_escape(r, b);
	}
	return ts_concat(r, a, b);
}

static struct value add_seqs(struct render *r, struct value a, struct value b)
{
	u64 n = (u64)a.seq->n + b.seq->n;
	struct value out;
	u32 i;

	run_step(r, n / 8);
	if (n > 1u << 26)
		run_limit(r, "a list of too many items");
	out = tv_seq(r, a.kind, r->mem.failed ? 0 : (u32)n);
	for (i = 0; i < a.seq->n && !r->mem.failed; i++)
		tv_push(r, out, a.seq->v[i]);
	for (i = 0; i < b.seq->n && !r->mem.failed; i++)
		tv_push(r, out, b.seq->v[i]);
	return out;
}

static struct value repeat_text(struct render *r, struct value v, s64 n)
{
	struct sbuf b = { .r = r };
	struct value out;

	for (; n > 0 && v.len && !r->mem.failed; n--) {
		run_step(r, 1);
		sb_add(&b, v.s, v.len);
	}
	out = sb_value(&b);
	out.safe = v.safe;
	return out;
}

static struct value repeat(struct render *r, struct value v, s64 n)
{
	struct value out;
	u32 i;

	if (v.kind == V_STR)
		return repeat_text(r, v, n);
	out = tv_seq(r, v.kind, 0);
	for (; n > 0 && v.seq->n && !r->mem.failed; n--)
		for (i = 0; i < v.seq->n && !r->mem.failed; i++) {
			run_step(r, 1);
			tv_push(r, out, v.seq->v[i]);
		}
	return out;
}

static bool is_row(struct value v)
{
	return v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE;
}

struct value tv_binary(struct render *r, u8 op, struct value a, struct value b)
{
	s64 i, k;

	if (op == OP_MOD && a.kind == V_STR)
		return tv_percent(r, a, b);
	if (tv_as_int(a, &i) && tv_as_int(b, &k))
		return op_ints(r, op, i, k);
	if (tv_is_num(a) && tv_is_num(b))
		return op_floats(r, op, tv_as_float(a), tv_as_float(b));
	if (op == OP_ADD && a.kind == V_STR && b.kind == V_STR)
		return add_texts(r, a, b);
	if (op == OP_ADD && a.kind == b.kind && is_row(a))
		return add_seqs(r, a, b);
	if (op == OP_MUL && is_row(a) && tv_as_int(b, &k))
		return repeat(r, a, k);
	if (op == OP_MUL && is_row(b) && tv_as_int(a, &i))
		return repeat(r, b, i);
	return op_fail(r, op, a, b);
}

struct value tv_negate(struct render *r, struct value v, bool minus)
{
	s64 i;

	if (v.kind == V_FLOAT)
		return VALUE_FLOAT(minus ? -v.f : v.f);
	if (tv_as_int(v, &i))
		return minus ? op_ints(r, OP_SUB, 0, i) : VALUE_INT(i);
	if (!r->mem.failed)
		run_fail(r, "a sign before a value of type %s", tv_type(v));
	return VALUE(V_UNDEF);
}
