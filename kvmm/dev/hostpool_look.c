// SPDX-License-Identifier: Apache-2.0
/*
 * hostpool_look.c - the kinds of pages that a mapping has
 *
 * A request for huge pages or for a lock may succeed in part, or not at all,
 * without an error.  So the report is read from smaps, where the kernel counts
 * mapped pages.  smaps may list a mapping in several pieces; those inside the
 * range are added up.
 *
 * Pages of 2 MiB appear in two ways: those set aside as Hugetlb, and those
 * that the kernel put together as PmdMapped, which needs a mapping that begins
 * on a boundary of 2 MiB.  The former are never swapped, and smaps does not
 * call them locked.
 *
 * Context: any; there is no state.
 */
#include <inttypes.h>
#include <string.h>

#include "kvmm/dev/hostpool.h"

/* "Key:  123 kB" is added to @sum. */
static void look_key(const char *line, const char *key, u64 *sum)
{
	size_t len = strlen(key);
	u64 kb;

	if (!strncmp(line, key, len) && line[len] == ':' &&
	    sscanf(line + len + 1, " %" SCNu64 " kB", &kb) == 1)
		*sum += kb << 10;
}

void hostpool_look(FILE *smaps, const void *base, u64 bytes,
		   struct hostpool_found *found)
{
	const u64 from = (uintptr_t)base, to = from + bytes;
	bool inside = false;
	char line[512], perms[5];
	u64 start, end;

	memset(found, 0, sizeof(*found));
	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4[rwxsp-]", &start,
			   &end, perms) == 3) {
			inside = start >= from && end <= to;
			continue;
		}
		if (!inside)
			continue;
		look_key(line, "Rss", &found->resident);
		look_key(line, "ShmemPmdMapped", &found->thp);
		look_key(line, "FilePmdMapped", &found->thp);
		look_key(line, "Shared_Hugetlb", &found->hugetlb);
		look_key(line, "Private_Hugetlb", &found->hugetlb);
		look_key(line, "Locked", &found->locked);
	}
	/* Rss does not count pages that were set aside. */
	found->resident += found->hugetlb;
	found->locked += found->hugetlb;
}
