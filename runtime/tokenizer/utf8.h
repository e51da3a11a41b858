/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8.h - one step through bytes that may or may not be UTF-8
 */
#ifndef KVRT_TOKENIZER_UTF8_H
#define KVRT_TOKENIZER_UTF8_H

#include <kvmm/types.h>

enum utf8_kind {
	UTF8_CHAR,	/* a whole character */
	UTF8_BAD,	/* no continuation makes these bytes a character */
	UTF8_SHORT,	/* a valid beginning, but the text ends here */
};

/**
 * utf8_step() - examine the beginning of a text
 * @p: the text
 * @n: bytes at @p, at least 1
 * @len: gets the number of bytes examined: those of the character, or of the
 *     longest part that a character could have begun with, at least 1
 *
 * Return: the kind.  Overlong forms, surrogates and code points above U+10FFFF
 * are UTF8_BAD.
 */
enum utf8_kind utf8_step(const u8 *p, size_t n, size_t *len);

/** utf8_is_valid() - is all of @p UTF-8? */
bool utf8_is_valid(const char *p, size_t n);

/** utf8_decode() - the code point of a UTF8_CHAR */
u32 utf8_decode(const u8 *p, size_t len);

/** utf8_is_space() - does Unicode call this code point White_Space? */
bool utf8_is_space(u32 cp);

/** utf8_space_len() - length of the white space character at @p, or 0 */
size_t utf8_space_len(const u8 *p, size_t n);

/** utf8_char_before() - beginning of the character that ends at @hi > @lo */
size_t utf8_char_before(const u8 *p, size_t lo, size_t hi);

/** utf8_space_before() - beginning of the white space that ends [@lo, @hi) */
size_t utf8_space_before(const u8 *p, size_t lo, size_t hi);

/**
 * utf8_clean_line() - make a string one line of valid UTF-8, in place
 * @s: bytes that are no UTF-8, and control characters, become '?'
 *
 * For error lines, which quote untrusted files: a terminal takes control
 * characters (of ASCII and of Latin-1) for commands, and JSON cannot hold a
 * quotation that was cut inside of a character.
 */
void utf8_clean_line(char *s);

#endif /* KVRT_TOKENIZER_UTF8_H */
