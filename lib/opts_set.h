/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts_set.h - how one option is set, whoever says it
 *
 * The command line, the environment and a file go through the same parser.
 */
#ifndef KVMM_LIB_OPTS_SET_H
#define KVMM_LIB_OPTS_SET_H

#include <kvmm/config.h>

/*
 * The value @s of one option; @s of a flag is not looked at.
 * Return: 0, or -EINVAL with @text filled, which begins with --NAME.
 */
int __must_check kv_opt_set(const struct kv_opt *o, void *values, const char *s,
			    char *text, size_t len);

/* As if nobody had said anything, not even the table. */
void kv_opt_clear(const struct kv_opt *o, void *values);

/* By @len bytes of @name; NULL: there is none. */
const struct kv_opt *kv_opt_find(const struct kv_opt *opts, u32 nr,
				 const char *name, size_t len);

/* All as the table has it.  Return: as kv_opt_set(). */
int __must_check kv_opts_default(const struct kv_opt *opts, u32 nr,
				 void *values, char *text, size_t len);

/*
 * kv_opts_parse() without the defaults: over what is there.
 * @from: of each option, who said it; may be NULL
 */
int __must_check kv_opts_line(const struct kv_program *prog,
			      struct kv_origin *from, void *values, int argc,
			      char **argv, char *text, size_t len);

#endif /* KVMM_LIB_OPTS_SET_H */
