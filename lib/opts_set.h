/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts_set.h - set options, from any source
 *
 * The command line, the environment and a file use the same parser.
 */
#ifndef KVMM_LIB_OPTS_SET_H
#define KVMM_LIB_OPTS_SET_H

#include <kvmm/config.h>

/*
 * Set one option to the value @s; a flag is set to true, and @s is ignored.
 * Return: 0, or -EINVAL with @text filled, which begins with --NAME.
 */
int __must_check kv_opt_set(const struct kv_opt *o, void *values, const char *s,
			    char *text, size_t len);

/* Clear the value of an option, without its default. */
void kv_opt_clear(const struct kv_opt *o, void *values);

/* Find the option by @len bytes of @name; NULL: there is none. */
const struct kv_opt *kv_opt_find(const struct kv_opt *opts, u32 nr,
				 const char *name, size_t len);

/* Set all options to the table's defaults.  Return: as kv_opt_set(). */
int __must_check kv_opts_default(const struct kv_opt *opts, u32 nr,
				 void *values, char *text, size_t len);

/*
 * As kv_opts_parse(), but over the present values instead of the defaults.
 * @from: gets the source of each option; may be NULL
 */
int __must_check kv_opts_line(const struct kv_program *prog,
			      struct kv_origin *from, void *values, int argc,
			      char **argv, char *text, size_t len);

#endif /* KVMM_LIB_OPTS_SET_H */
