/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bug.h - when a program's own records contradict each other
 *
 * For facts that no input can make false: an assertion that stays on in
 * production.  A fault that a client, a disk or an operator can cause is a
 * negative errno instead.
 */
#ifndef KVMM_BUG_H
#define KVMM_BUG_H

#include <kvmm/types.h>

/* Log the rule that broke, and the place; end the process. */
void kv_bug(const char *file, int line, const char *what) __noreturn __attribute__((cold));

#define KV_BUG_ON(cond)							\
do {									\
	if (__builtin_expect(!!(cond), 0))				\
		kv_bug(__FILE__, __LINE__, #cond);			\
} while (0)

#endif /* KVMM_BUG_H */
