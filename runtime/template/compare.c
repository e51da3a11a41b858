// SPDX-License-Identifier: Apache-2.0
/*
 * compare.c - equality, order, membership, sorting
 *
 * True equals 1 and 1 equals 1.0; a list is never equal to a tuple; texts are
 * ordered by code point, which is the order of their bytes.
 */
#include "runtime/template/internal.h"

static int compare_num(struct value a, struct value b)
{
	double x, y;
	s64 i, k;

	if (tv_as_int(a, &i) && tv_as_int(b, &k))
		return i < k ? -1 : i > k;
	x = tv_as_float(a);
	y = tv_as_float(b);
	return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static int compare_text(struct render *r, struct value a, struct value b)
{
	u32 n = min(a.len, b.len);
	int c = n ? memcmp(a.s, b.s, n) : 0;

	run_bytes(r, n);
	return c ? c : a.len < b.len ? -1 : a.len > b.len;
}

static bool equal_seq(struct render *r, const struct seq *a,
		      const struct seq *b)
{
	u32 i;

	if (a->n != b->n)
		return false;
	for (i = 0; i < a->n && !r->mem.failed; i++)
		if (!tv_equal(r, a->v[i], b->v[i]))
			return false;
	return true;
}

static bool equal_dict(struct render *r, const struct dict *a,
		       const struct dict *b)
{
	const struct value *v;
	u32 i;

	if (a->n != b->n)
		return false;
	for (i = 0; i < a->n && !r->mem.failed; i++) {
		v = tv_dict_find(r, b, a->e[i].key);
		if (!v || !tv_equal(r, a->e[i].val, *v))
			return false;
	}
	return true;
}

static bool equal_range(const struct range *a, const struct range *b)
{
	return a->n == b->n && (!a->n || (a->start == b->start &&
					  (a->n == 1 || a->step == b->step)));
}

static bool equal_kind(struct render *r, struct value a, struct value b)
{
	switch (a.kind) {
	case V_STR:
		return a.len == b.len && !compare_text(r, a, b);
	case V_LIST:
	case V_TUPLE:
		return equal_seq(r, a.seq, b.seq);
	case V_DICT:
		return equal_dict(r, a.dict, b.dict);
	case V_RANGE:
		return equal_range(a.range, b.range);
	case V_UNDEF:
	case V_NONE:
		return true;
	default:
		return a.s == b.s;
	}
}

bool tv_equal(struct render *r, struct value a, struct value b)
{
	bool yes;

	run_step(r, 1);
	if (tv_is_num(a) && tv_is_num(b))
		return compare_num(a, b) == 0;
	if (a.kind != b.kind || !run_enter(r))
		return false;
	yes = equal_kind(r, a, b);
	run_leave(r);
	return yes;
}

static bool holds(u8 op, int c)
{
	switch (op) {
	case OP_LT:
		return c < 0;
	case OP_LE:
		return c <= 0;
	case OP_GT:
		return c > 0 && c < 2;
	default:
		return c >= 0 && c < 2;
	}
}

static bool compare_seq(struct render *r, u8 op, const struct seq *a,
			const struct seq *b)
{
	u32 i;

	for (i = 0; i < a->n && i < b->n && !r->mem.failed; i++)
		if (!tv_equal(r, a->v[i], b->v[i]))
			return tv_compare(r, op, a->v[i], b->v[i]);
	return holds(op, a->n < b->n ? -1 : a->n > b->n);
}

static void compare_fail(struct render *r, struct value a, struct value b)
{
	struct value v = a.kind == V_UNDEF ? a : b;

	if (v.kind == V_UNDEF)
		run_fail(r, "'%.*s' is undefined, and was compared",
			 (int)min(v.len, 60u), v.s ? v.s : "");
	else
		run_fail(r, "%s and %s have no order", tv_type(a), tv_type(b));
}

bool tv_compare(struct render *r, u8 op, struct value a, struct value b)
{
	bool yes;
	int c;

	run_step(r, 1);
	if (tv_is_num(a) && tv_is_num(b))
		return holds(op, compare_num(a, b));
	if (a.kind == V_STR && b.kind == V_STR) {
		c = compare_text(r, a, b);
		return holds(op, c < 0 ? -1 : c > 0);
	}
	if (a.kind != b.kind || (a.kind != V_LIST && a.kind != V_TUPLE)) {
		compare_fail(r, a, b);
		return false;
	}
	if (!run_enter(r))
		return false;
	yes = compare_seq(r, op, a.seq, b.seq);
	run_leave(r);
	return yes;
}

static bool in_range(const struct range *g, struct value item)
{
	s64 i;

	if (item.kind == V_FLOAT && item.f >= -1e15 && item.f <= 1e15 &&
	    item.f == (double)(s64)item.f)
		item = VALUE_INT((s64)item.f);
	if (!g->n || !tv_as_int(item, &i))
		return false;
	if (__builtin_sub_overflow(i, g->start, &i))
		return false;
	return i % g->step == 0 && i / g->step >= 0 && i / g->step < g->n;
}

bool tv_in(struct render *r, struct value item, struct value box)
{
	const struct value *v;
	u32 n = 0, i;

	if (r->mem.failed)
		return false;
	if (box.kind == V_DICT)
		return tv_dict_find(r, box.dict, item) != NULL;
	if (box.kind == V_RANGE)
		return in_range(box.range, item);
	if (box.kind == V_STR) {
		if (item.kind != V_STR) {
			run_fail(r, "'in' of a text wants a text, not %s",
				 tv_type(item));
			return false;
		}
		run_bytes(r, box.len);
		return ts_find(box.s, box.len, item.s, item.len) != NULL;
	}
	v = tv_items(r, box, &n);
	for (i = 0; i < n && !r->mem.failed; i++)
		if (tv_equal(r, item, v[i]))
			return true;
	return false;
}

/* ---- sorting ---- */

/*
 * Merge v[0..mid) and v[mid..n) with their keys.  Of equal ones the left one
 * comes first, in both directions, as in Python's stable sort.
 */
static void merge(struct render *r, struct value *v, struct value *k,
		  struct value *tmp, u32 mid, u32 n, bool reverse)
{
	struct value *tk = tmp + n;
	u32 i = 0, j = mid, at;
	bool left;

	for (at = 0; at < n; at++) {
		left = j == n || (i < mid && (reverse ?
			!tv_compare(r, OP_LT, k[i], k[j]) :
			!tv_compare(r, OP_LT, k[j], k[i])));
		tmp[at] = v[left ? i : j];
		tk[at] = k[left ? i++ : j++];
	}
	memcpy(v, tmp, n * sizeof(*v));
	memcpy(k, tk, n * sizeof(*k));
}

static void sort_part(struct render *r, struct value *v, struct value *k,
		      struct value *tmp, u32 n, bool reverse)
{
	if (n < 2 || r->mem.failed)
		return;
	sort_part(r, v, k, tmp, n / 2, reverse);
	sort_part(r, v + n / 2, k + n / 2, tmp, n - n / 2, reverse);
	if (!r->mem.failed)
		merge(r, v, k, tmp, n / 2, n, reverse);
}

void tv_sort(struct render *r, struct value *v, struct value *keys, u32 n,
	     bool reverse)
{
	struct value *tmp = mem_get(&r->mem, 2 * (size_t)n * sizeof(*tmp));

	if (tmp)
		sort_part(r, v, keys, tmp, n, reverse);
}
