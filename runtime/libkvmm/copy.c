// SPDX-License-Identifier: Apache-2.0
/*
 * copy.c - many copies in one call
 */
#include <string.h>

#include "runtime/libkvmm/internal.h"

void kvmm_copy(const struct kvmm_piece *pieces, u32 nr)
{
	for (u32 i = 0; i < nr; i++)
		memcpy((void *)(uintptr_t)pieces[i].to,
		       (const void *)(uintptr_t)pieces[i].from,
		       pieces[i].bytes);
}
