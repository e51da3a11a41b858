/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompts.h - prompts for the integration tests
 *
 * Half of them begin with one long text, so that its blocks are shared; the
 * others have no prefix in common.  A tag makes a set that no cache has seen.
 */
#ifndef TESTS_PROMPTS_H
#define TESTS_PROMPTS_H

#include <kvmm/types.h>

#define PROMPT_MAX	2048

/*
 * Write prompts [first, first + nr) to @path, one a line; @tag may be empty.
 * Prompt numbers are global: the same number is the same text.
 */
void prompts_write(const char *path, u32 first, u32 nr, const char *tag);

#endif /* TESTS_PROMPTS_H */
