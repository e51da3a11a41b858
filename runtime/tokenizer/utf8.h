/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8.h - one step through bytes that may or may not be UTF-8
 */
#ifndef KVRT_TOKENIZER_UTF8_H
#define KVRT_TOKENIZER_UTF8_H

#include <kvmm/types.h>

enum utf8_kind {
	UTF8_CHAR,	/* a whole character */
	UTF8_BAD,	/* bytes that no continuation can make one */
	UTF8_SHORT,	/* a good begin, but the text ends here */
};

/**
 * utf8_step() - judge what the text begins with
 * @p: the text
 * @n: bytes at @p, at least 1
 * @len: gets the bytes judged: those of the character, or the longest part
 *	that a character could have begun with, at least 1
 *
 * Return: the kind.  Overlong forms, surrogates and what lies above U+10FFFF
 * are UTF8_BAD.
 */
enum utf8_kind utf8_step(const u8 *p, size_t n, size_t *len);

/** utf8_is_valid() - is all of @p UTF-8? */
bool utf8_is_valid(const char *p, size_t n);

/** utf8_decode() - the code point of a character judged UTF8_CHAR */
u32 utf8_decode(const u8 *p, size_t len);

/** utf8_is_space() - does Unicode call this code point White_Space? */
bool utf8_is_space(u32 cp);

/** utf8_space_len() - bytes of the white space @p begins with, or 0 */
size_t utf8_space_len(const u8 *p, size_t n);

/** utf8_char_before() - where the character begins that ends at @hi > @lo */
size_t utf8_char_before(const u8 *p, size_t lo, size_t hi);

/** utf8_space_before() - where the white space begins that ends [@lo, @hi) */
size_t utf8_space_before(const u8 *p, size_t lo, size_t hi);

/**
 * utf8_clean_line() - make a string one line of valid UTF-8, in place
 * @s: what is no UTF-8, and control characters, become '?'
 *
 * For lines of error, which quote files of strangers: a terminal takes control
 * characters (of ASCII and of Latin-1) for commands, and a quotation that was
 * cut inside of a character can be put into no JSON.
 */
void utf8_clean_line(char *s);

#endif /* KVRT_TOKENIZER_UTF8_H */
