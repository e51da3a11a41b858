// SPDX-License-Identifier: Apache-2.0
/*
 * bug.c - end a process with contradictory records
 */
#include <stdlib.h>

#include <kvmm/bug.h>
#include <kvmm/log.h>

void kv_bug(const char *file, int line, const char *what)
{
	pr_err("BUG at %s:%d: %s", file, line, what);
	abort();
}
