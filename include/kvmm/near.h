/* SPDX-License-Identifier: Apache-2.0 */
/* near.h - the name that a misspelt word may mean */
#ifndef KVMM_NEAR_H
#define KVMM_NEAR_H

#include <kvmm/types.h>

/**
 * struct kv_near - a misspelt word, and the name that is closest to it
 * @len:   bytes of @word
 * @least: letters in which @best differs, or the first number that is too many
 * @best:  NULL: no name is close
 */
struct kv_near {
	const char	*word;
	size_t		len;
	u32		least;
	const char	*best;
};

/* kv_near_init() - begin with the @len bytes of @word; it is not copied */
void kv_near_init(struct kv_near *n, const char *word, size_t len);

/* kv_near_try() - may the word mean @name?  @name must outlive @n */
void kv_near_try(struct kv_near *n, const char *name);

#endif /* KVMM_NEAR_H */
