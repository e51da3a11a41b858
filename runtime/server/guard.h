/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.h - what users write stays text
 *
 * A chat template writes special tokens, which begin and end turns, as text,
 * and the tokenizer finds them there.  It would find those as well that a user
 * spelt out in a message, and so anybody could forge a turn.  So they are
 * marked before the template runs, with a character that is in none of the
 * user's strings, and what the marks stand before is kept from being a token.
 */
#ifndef RUNTIME_SERVER_GUARD_H
#define RUNTIME_SERVER_GUARD_H

#include <jansson.h>

#include <kvmm/text.h>

#include "runtime/tokenizer/tokenizer.h"

/**
 * struct guard_mark - a character that no string of a request has
 * @raw:     it, a pattern of Braille: printable, no letter, no blank, without
 *	     case, so that no filter of a template treats it specially
 * @escaped: as it is written where a template wants ASCII alone
 */
struct guard_mark {
	char	raw[4];
	char	escaped[7];
};

/**
 * guards_choose() - a mark that is in none of the strings of @v
 * @mark: gets it
 *
 * Return: 0, or -EINVAL: every one is.
 */
int __must_check guards_choose(const json_t *v, struct guard_mark *mark);

/**
 * guards_mark() - a copy of @v, special tokens in its strings marked
 * Return: a new reference, or NULL: no memory.
 */
json_t *guards_mark(const struct tokenizer *tok, const json_t *v,
		    const struct guard_mark *mark);

/**
 * guards_take() - remove the marks from a text
 * @text: @len bytes; becomes shorter
 * @out: gets where the special tokens lie that were marked, in order; for
 *	 free(), NULL if there are none
 * @nr:	 gets their number
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check guards_take(const struct tokenizer *tok, char *text, size_t *len,
			     const struct guard_mark *mark,
			     struct tokenizer_guard **out, size_t *nr);

#endif /* RUNTIME_SERVER_GUARD_H */
