// SPDX-License-Identifier: Apache-2.0
/*
 * arena.c - memory that is freed as a whole, and the first error
 *
 * Each template and each rendering has an arena.  Pieces are taken from the
 * front of a chunk.  Chunks double, so the unused memory stays a fraction of
 * the used memory.  The sum of all chunks has a limit, which ends a template
 * that collects too much text.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/template/internal.h"
#include "runtime/tokenizer/utf8.h"

#define CHUNK_MIN	((size_t)4096)
#define CHUNK_MAX	((size_t)1 << 20)
#define MEM_ALIGN	((size_t)16)

struct chunk {
	struct chunk	*older;
	size_t		size;
};

/* The first byte of a chunk */
static char *chunk_bytes(struct chunk *c)
{
	return (char *)c + ALIGN_UP(sizeof(*c), MEM_ALIGN);
}

static bool chunk_add(struct arena *m, size_t n)
{
	size_t size = min(max(m->used, CHUNK_MIN), CHUNK_MAX);
	struct chunk *c;

	if (n > m->max || m->used > m->max - n) {
		mem_fail(m, TMPL_LIMIT, "more than %zu bytes of memory", m->max);
		return false;
	}
	size = ALIGN_UP(max(size, n + 3 * MEM_ALIGN), MEM_ALIGN);
	c = malloc(size);
	if (!c) {
		mem_fail(m, TMPL_NOMEM, "out of memory");
		return false;
	}
	c->older = m->chunk;
	c->size = size;
	m->chunk = c;
	m->next = chunk_bytes(c);
	m->end = (char *)c + size;
	m->used += size;
	return true;
}

void *mem_get(struct arena *m, size_t n)
{
	char *p;

	if (m->failed)
		return NULL;
	if (n > SIZE_MAX / 4) {
		mem_fail(m, TMPL_LIMIT, "more than %zu bytes of memory", m->max);
		return NULL;
	}
	n = max(n, (size_t)1);
	if (ALIGN_UP(n, MEM_ALIGN) > (size_t)(m->end - m->next) &&
	    !chunk_add(m, ALIGN_UP(n, MEM_ALIGN)))
		return NULL;
	p = m->next;
	m->tail = p + n;
	m->next += ALIGN_UP(n, MEM_ALIGN);
	return p;
}

void *mem_extend(struct arena *m, const void *p, size_t old, size_t n)
{
	char *begin = (char *)(uintptr_t)p;

	/*
	 * Only the last piece can grow: a shorter text may be part of a longer
	 * one.
	 */
	if (m->failed || !m->chunk || !p || begin + old != m->tail ||
	    begin < chunk_bytes(m->chunk) ||
	    n > (size_t)(m->end - begin) - MEM_ALIGN)
		return NULL;
	m->tail = begin + n;
	m->next = m->end - ((size_t)(m->end - m->tail) & ~(MEM_ALIGN - 1));
	return begin;
}

void mem_free(struct arena *m)
{
	struct chunk *c = m->chunk, *older;

	for (; c; c = older) {
		older = c->older;
		free(c);
	}
	m->chunk = NULL;
	m->next = NULL;
	m->end = NULL;
	m->tail = NULL;
	m->used = 0;
}

/*
 * Remove a character that was cut, replace bytes that are none, keep one line.
 */
static void text_mend(char *s, bool lines)
{
	size_t n = strlen(s), at = 0, len;

	while (at < n) {
		switch (utf8_step((u8 *)s + at, n - at, &len)) {
		case UTF8_SHORT:
			s[at] = 0;
			return;
		case UTF8_BAD:
			memset(s + at, '?', len);
			break;
		case UTF8_CHAR:
			if ((u8)s[at] < 0x20 && !lines)
				s[at] = ' ';
			break;
		}
		at += len;
	}
}

void mem_fail(struct arena *m, enum tmpl_fault what, const char *fmt, ...)
{
	va_list ap;

	if (m->failed)
		return;
	m->failed = true;
	m->err->what = what;
	m->err->line = m->line;
	m->err->col = m->col;
	va_start(ap, fmt);
	vsnprintf(m->err->text, sizeof(m->err->text), fmt, ap);
	va_end(ap);
	text_mend(m->err->text, what == TMPL_RAISED);
}
