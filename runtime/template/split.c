// SPDX-License-Identifier: Apache-2.0
/*
 * split.c - split(), rsplit(), splitlines(), partition()
 *
 * The parts point into the text and are not copied.
 */
#include "runtime/template/internal.h"

static void push(struct render *r, struct value list, struct value s,
		 const char *from, const char *to)
{
	run_step(r, 1);
	tv_push(r, list, ts_sub(s, from, to));
}

/*
 * Split at runs of blanks, without empty parts; after @most the rest is one
 * part
 */
static void split_blanks(struct render *r, struct value list, struct value s,
			 s64 most)
{
	const char *p, *end = s.s + s.len, *from, *q;

	s = ts_strip(r, s, VALUE(V_MISSING), 1);
	for (p = from = s.s; p < end && !r->mem.failed; ) {
		q = p;
		if (!ts_is_space(ts_next(&q, end))) {
			p = q;
			continue;
		}
		if (most-- == 0)
			break;
		push(r, list, s, from, p);
		s = ts_strip(r, ts_sub(s, q, end), VALUE(V_MISSING), 1);
		p = from = s.s;
	}
	if (from < end)
		push(r, list, s, from, end);
}

static void split_text(struct render *r, struct value list, struct value s,
		       struct value sep, s64 most)
{
	const char *p = s.s, *end = s.s + s.len, *hit;

	while (most-- != 0 && !r->mem.failed &&
	       (hit = ts_find(p, (size_t)(end - p), sep.s, sep.len))) {
		push(r, list, s, p, hit);
		p = hit + sep.len;
	}
	push(r, list, s, p, end);
}

static void reverse(struct value list)
{
	struct seq *q = list.seq;
	struct value v;
	u32 i;

	for (i = 0; i < q->n / 2; i++) {
		v = q->v[i];
		q->v[i] = q->v[q->n - 1 - i];
		q->v[q->n - 1 - i] = v;
	}
}

/* Split from the end; the parts come in reverse order. */
static void rsplit_text(struct render *r, struct value list, struct value s,
			struct value sep, s64 most)
{
	const char *end = s.s + s.len, *p;

	for (p = end; most != 0 && p - s.s >= sep.len && !r->mem.failed; ) {
		if (memcmp(p - sep.len, sep.s, sep.len)) {
			p--;
			continue;
		}
		push(r, list, s, p, end);
		p -= sep.len;
		end = p;
		most--;
	}
	push(r, list, s, s.s, end);
	if (!r->mem.failed)
		reverse(list);
}

static void rsplit_blanks(struct render *r, struct value list, struct value s,
			  s64 most)
{
	struct value part;

	s = ts_strip(r, s, VALUE(V_MISSING), 2);
	while (s.len && most-- != 0 && !r->mem.failed) {
		const char *p = s.s + s.len, *q;

		for (; p > s.s; p = q) {
			for (q = p - 1; q > s.s && ((u8)*q & 0xc0) == 0x80; )
				q--;
			part = ts_sub(s, q, p);
			if (!ts_strip(r, part, VALUE(V_MISSING), 1).len)
				break;
		}
		if (p == s.s)
			break;
		push(r, list, s, p, s.s + s.len);
		s = ts_strip(r, ts_sub(s, s.s, p), VALUE(V_MISSING), 2);
	}
	if (s.len)
		push(r, list, s, s.s, s.s + s.len);
	if (!r->mem.failed)
		reverse(list);
}

struct value ts_split(struct render *r, const struct args *a, bool from_end)
{
	struct value v[2], list;
	s64 most;

	if (!args_take(r, a, "sep maxsplit", 0, v))
		return VALUE(V_UNDEF);
	most = arg_int(r, v[1], -1);
	if (v[0].kind > V_NONE && !arg_text(r, v[0], "split"))
		return VALUE(V_UNDEF);
	if (v[0].kind == V_STR && !v[0].len)
		run_fail(r, "split: the separator is empty");
	list = tv_seq(r, V_LIST, 0);
	run_bytes(r, a->self.len);
	if (r->mem.failed)
		return VALUE(V_UNDEF);
	if (v[0].kind != V_STR && from_end)
		rsplit_blanks(r, list, a->self, most);
	else if (v[0].kind != V_STR)
		split_blanks(r, list, a->self, most);
	else if (from_end)
		rsplit_text(r, list, a->self, v[0], most);
	else
		split_text(r, list, a->self, v[0], most);
	return list;
}

static bool is_line_end(u32 c)
{
	return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) ||
	       c == 0x85 || c == 0x2028 || c == 0x2029;
}

struct value ts_splitlines(struct render *r, const struct args *a)
{
	struct value list = tv_seq(r, V_LIST, 0), keep[1], s = a->self;
	const char *p = s.s, *end = s.s + s.len, *from = s.s, *q;
	bool ends;
	u32 c;

	if (!args_take(r, a, "keepends", 0, keep))
		return VALUE(V_UNDEF);
	ends = tv_truth(r, keep[0]);
	run_bytes(r, s.len);
	while (p < end && !r->mem.failed) {
		q = p;
		c = ts_next(&q, end);
		if (!is_line_end(c)) {
			p = q;
			continue;
		}
		if (c == '\r' && q < end && *q == '\n')
			q++;
		push(r, list, s, from, ends ? q : p);
		p = from = q;
	}
	if (from < end)
		push(r, list, s, from, end);
	return list;
}

struct value ts_partition(struct render *r, const struct args *a, bool last)
{
	struct value v[1], s = a->self, out = tv_seq(r, V_TUPLE, 3);
	const char *end = s.s + s.len, *hit, *next;

	if (!args_take(r, a, "sep", 1, v) || !arg_text(r, v[0], "partition"))
		return VALUE(V_UNDEF);
	if (!v[0].len) {
		run_fail(r, "partition: the separator is empty");
		return VALUE(V_UNDEF);
	}
	run_bytes(r, s.len);
	hit = ts_find(s.s, s.len, v[0].s, v[0].len);
	while (last && hit && (next = ts_find(hit + 1, (size_t)(end - hit - 1),
					      v[0].s, v[0].len))) {
		run_step(r, 1);
		hit = next;
	}
	if (!hit)
		hit = last ? s.s : end;
	next = hit + v[0].len <= end && v[0].len &&
	       !memcmp(hit, v[0].s, v[0].len) ? hit + v[0].len : hit;
	push(r, out, s, s.s, hit);
	push(r, out, s, hit, next);
	push(r, out, s, next, end);
	return out;
}
