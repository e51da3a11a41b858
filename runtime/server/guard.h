/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.h - keep special tokens in users' text plain
 *
 * A chat template writes special tokens, which begin and end turns, as text,
 * and the tokenizer finds them there.  It would also find those that a user has
 * spelt out in a message, so any user could forge a turn.  So special tokens in
 * messages are marked before the template runs, with a character that is in
 * none of the user's strings.  A marked token is then treated as plain text.
 */
#ifndef RUNTIME_SERVER_GUARD_H
#define RUNTIME_SERVER_GUARD_H

#include <jansson.h>

#include <kvmm/text.h>

#include "runtime/tokenizer/tokenizer.h"

/**
 * struct guard_mark - a character that is in no string of a request
 * @raw:     the character, a Braille pattern: printable, no letter, no blank,
 *           without case, so that no filter of a template treats it specially
 * @escaped: its ASCII escape, for templates that write ASCII only
 */
struct guard_mark {
	char	raw[4];
	char	escaped[7];
};

/**
 * guards_choose() - choose a mark that is in none of the strings of @v
 * @mark: gets the mark
 *
 * Return: 0, or -EINVAL: every mark is in use.
 */
int __must_check guards_choose(const json_t *v, struct guard_mark *mark);

/**
 * guards_mark() - copy @v with the special tokens in its strings marked
 * Return: a new reference, or NULL: no memory.
 */
json_t *guards_mark(const struct tokenizer *tok, const json_t *v,
		    const struct guard_mark *mark);

/**
 * guards_take() - remove the marks from a text
 * @text: @len bytes; becomes shorter
 * @out: gets the places of the marked special tokens, in order; to be freed
 *       with free(), NULL if there are none
 * @nr:  gets their number
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check guards_take(const struct tokenizer *tok, char *text, size_t *len,
			     const struct guard_mark *mark,
			     struct tokenizer_guard **out, size_t *nr);

#endif /* RUNTIME_SERVER_GUARD_H */
