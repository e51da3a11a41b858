// SPDX-License-Identifier: Apache-2.0
/*
 * value.c - create values, and simple queries
 */
#include "runtime/template/internal.h"

struct value tv_undef(const char *name, size_t len)
{
	return VALUE(V_UNDEF, .s = name, .len = (u32)len);
}

struct value tv_text(const char *s)
{
	return VALUE_STR(s, strlen(s));
}

struct value tv_seq(struct render *r, enum value_kind kind, u32 cap)
{
	struct seq *q = mem_get(&r->mem, sizeof(*q));

	if (!q)
		return VALUE(V_UNDEF);
	memset(q, 0, sizeof(*q));
	if (cap)
		q->v = mem_get(&r->mem, (size_t)cap * sizeof(*q->v));
	if (r->mem.failed)
		return VALUE(V_UNDEF);
	q->cap = cap;
	return VALUE(kind, .seq = q);
}

void tv_push(struct render *r, struct value seq, struct value item)
{
	struct seq *q = seq.seq;
	struct value *v;
	u32 cap;

	if (r->mem.failed)
		return;
	if (q->n == q->cap) {
		if (q->cap >= 1u << 26) {
			run_limit(r, "a list of too many items");
			return;
		}
		cap = max(q->cap * 2, 4u);
		v = mem_get(&r->mem, (size_t)cap * sizeof(*v));
		if (!v)
			return;
		if (q->n)
			memcpy(v, q->v, q->n * sizeof(*v));
		q->v = v;
		q->cap = cap;
	}
	q->v[q->n++] = item;
}

/* Python's name of the type, for error messages */
const char *tv_type(struct value v)
{
	static const char * const names[] = {
		[V_MISSING] = "nothing", [V_UNDEF] = "Undefined",
		[V_NONE] = "NoneType", [V_BOOL] = "bool", [V_INT] = "int",
		[V_FLOAT] = "float", [V_STR] = "str", [V_LIST] = "list",
		[V_TUPLE] = "tuple", [V_DICT] = "dict", [V_VIEW] = "dict view",
		[V_GEN] = "generator", [V_RANGE] = "range",
		[V_NAMESPACE] = "Namespace", [V_LOOP] = "LoopContext",
		[V_MACRO] = "Macro", [V_FUNC] = "function",
		[V_METHOD] = "method",
	};

	return names[v.kind];
}

bool tv_is_text(struct value v, const char *s)
{
	return v.kind == V_STR && v.len == strlen(s) && !memcmp(v.s, s, v.len);
}

bool tv_is_num(struct value v)
{
	return v.kind == V_INT || v.kind == V_FLOAT || v.kind == V_BOOL;
}

/* Get a whole number; True and False count as such */
bool tv_as_int(struct value v, s64 *out)
{
	if (v.kind == V_INT)
		*out = v.i;
	else if (v.kind == V_BOOL)
		*out = v.b;
	else
		return false;
	return true;
}

double tv_as_float(struct value v)
{
	return v.kind == V_FLOAT ? v.f : v.kind == V_BOOL ? v.b : (double)v.i;
}

bool tv_truth(struct render *r, struct value v)
{
	if (r->mem.failed)
		return false;
	switch (v.kind) {
	case V_UNDEF:
	case V_NONE:
	case V_MISSING:
		return false;
	case V_BOOL:
		return v.b;
	case V_INT:
		return v.i != 0;
	case V_FLOAT:
		return v.f != 0;
	case V_STR:
		return v.len > 0;
	case V_LIST:
	case V_TUPLE:
	case V_VIEW:
		return v.seq->n > 0;
	case V_DICT:
		return v.dict->n > 0;
	case V_RANGE:
		return v.range->n > 0;
	default:
		return true;
	}
}
