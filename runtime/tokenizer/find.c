// SPDX-License-Identifier: Apache-2.0
/*
 * find.c - matches of a pattern or of a string in a text
 *
 * Patterns run with PCRE2's JIT on its own small stack.  A pattern that needs
 * more gets a large stack, once.  When that is full too, the text is refused: a
 * guessed cut would give other tokens.
 *
 * struct find_ctx belongs to one thread; finders are constant.
 */
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"

/* Upper bound of the JIT's stack; only patterns with nested repeats use it. */
#define JIT_STACK_MIN	(64ul << 10)
#define JIT_STACK_MAX	(64ul << 20)

int find_init(struct find_ctx *c)
{
	c->match = pcre2_match_data_create(1, NULL);
	c->match_ctx = pcre2_match_context_create(NULL);
	return c->match && c->match_ctx ? 0 : -ENOMEM;
}

void find_release(struct find_ctx *c)
{
	pcre2_match_data_free(c->match);
	pcre2_match_context_free(c->match_ctx);
	if (c->jit_stack)
		pcre2_jit_stack_free(c->jit_stack);
}

/* Give the JIT a large stack, once: the second time it is an error. */
static int jit_stack_grow(struct find_ctx *c)
{
	if (c->jit_stack)
		return -EOVERFLOW;
	c->jit_stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX,
					      NULL);
	if (!c->jit_stack)
		return -ENOMEM;
	pcre2_jit_stack_assign(c->match_ctx, NULL, c->jit_stack);
	return 0;
}

static int pattern_next(const pcre2_code *code, struct find_ctx *c,
			const char *text, size_t len, size_t *from, size_t *to)
{
	PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(c->match);
	int rc, err;

	for (;;) {
		rc = pcre2_match(code, (PCRE2_SPTR)text, len, *from,
				 PCRE2_NO_UTF_CHECK, c->match, c->match_ctx);
		if (rc != PCRE2_ERROR_JIT_STACKLIMIT)
			break;
		err = jit_stack_grow(c);
		if (err)
			return err;
	}
	if (rc == PCRE2_ERROR_NOMEMORY)
		return -ENOMEM;
	if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
		return -EOVERFLOW;
	*from = rc < 0 ? len : bounds[0];
	*to = rc < 0 ? len : bounds[1];
	return 0;
}

int finder_next(const struct finder *f, struct find_ctx *c, const char *text,
		size_t len, size_t *from, size_t *to)
{
	const char *at;

	if (f->code)
		return pattern_next(f->code, c, text, len, from, to);
	if (f->len == 1)
		at = memchr(text + *from, f->string[0], len - *from);
	else
		at = memmem(text + *from, len - *from, f->string, f->len);
	*from = at ? (size_t)(at - text) : len;
	*to = at ? *from + f->len : len;
	return 0;
}

void finder_free(struct finder *f)
{
	pcre2_code_free(f->code);
	free(f->string);
}
