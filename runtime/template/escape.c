// SPDX-License-Identifier: Apache-2.0
/*
 * escape.c - HTML escapes of five characters
 *
 * Text is not escaped automatically.  The filter `escape` does it, and so does
 * adding a text to one that has passed the filter `safe`, as in Jinja2.
 */
#include "runtime/template/internal.h"

struct value tv_escape(struct render *r, struct value v)
{
	static const char chars[] = "&<>\"'";
	static const char * const names[] = {
		"&amp;", "&lt;", "&gt;", "&#34;", "&#39;",
	};
	struct sbuf b = { .r = r };
	const char *end, *p, *from, *hit;

	v = tv_str(r, v);
	if (r->mem.failed || v.safe)
		return v;
	end = v.s + v.len;
	for (p = from = v.s; p < end && !r->mem.failed; p++) {
		hit = *p ? strchr(chars, *p) : NULL;
		if (!hit)
			continue;
		sb_add(&b, from, (size_t)(p - from));
		sb_puts(&b, names[hit - chars]);
		from = p + 1;
	}
	sb_add(&b, from, (size_t)(end - from));
	v = sb_value(&b);
	v.safe = 1;
	return v;
}
