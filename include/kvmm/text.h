/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - bytes that grow, and JSON written into them */
#ifndef KVMM_TEXT_H
#define KVMM_TEXT_H

#include <kvmm/types.h>

/**
 * struct text - bytes under construction; all zero is an empty one
 * @p:      [@len], not NUL terminated
 * @failed: there was no memory at some point: the text is not whole
 */
struct text {
	char	*p;
	size_t	len;
	size_t	cap;
	bool	failed;
};

/* Free its memory; the text is empty then. */
void text_free(struct text *t);
/* Empty the text and keep its memory. */
void text_clear(struct text *t);
/* Take away the first @n bytes. */
void text_cut(struct text *t, size_t n);

/* Append @n bytes, a string, or formatted text. */
void text_add(struct text *t, const void *p, size_t n);
void text_puts(struct text *t, const char *s);
void text_printf(struct text *t, const char *fmt, ...) __printf(2, 3);

/**
 * text_json() - append a JSON string, quotes included
 * @p: @n bytes; bytes that are not UTF-8 become U+FFFD
 */
void text_json(struct text *t, const char *p, size_t n);
/* The same for a C string; NULL becomes null. */
void text_jsons(struct text *t, const char *s);

/* text_utf8_len() - bytes of the character at @p, 0 if it is none */
size_t text_utf8_len(const char *p, size_t n);

#endif /* KVMM_TEXT_H */
