// SPDX-License-Identifier: Apache-2.0
/*
 * range.c - which memory an address belongs to: one table, by address
 *
 * Ranges never overlap.  A pointer into the table is good until the next
 * range_add() or range_del().
 *
 * With a GPU a host that follows a device address gets a fault.  Here it gets one
 * only on request: then the pages of device memory may be touched only while an
 * op runs.  Tests that act as a kernel themselves do not request it.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/standin/driver.h"

static struct range *ranges;
static u32 nr_ranges, max_ranges;
static bool opened;

/* Number of the first range that ends behind @addr. */
static u32 find(u64 addr)
{
	u32 lo = 0, hi = nr_ranges;

	while (lo < hi) {
		const u32 mid = lo + (hi - lo) / 2;

		if (ranges[mid].addr + ranges[mid].size > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

struct range *range_at(u64 addr)
{
	const u32 i = find(addr);

	return i < nr_ranges && ranges[i].addr <= addr ? &ranges[i] : NULL;
}

bool range_overlaps(u64 addr, u64 size)
{
	const u32 i = find(addr);

	return i < nr_ranges && ranges[i].addr < addr + size;
}

bool range_covers(u64 addr, u64 size, u32 kinds)
{
	const u64 end = addr + size;
	u32 i;

	if (end < addr)
		return false;
	for (i = find(addr); addr < end; i++) {
		if (i >= nr_ranges || ranges[i].addr > addr ||
		    !(ranges[i].kind & kinds) || !ranges[i].access)
			return false;
		addr = ranges[i].addr + ranges[i].size;
	}
	return true;
}

int range_add(const struct range *r)
{
	const u32 i = find(r->addr);

	if (nr_ranges == max_ranges) {
		const u32 room = max_ranges ? 2 * max_ranges : 256;
		struct range *more = realloc(ranges, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		ranges = more;
		max_ranges = room;
	}
	memmove(&ranges[i + 1], &ranges[i],
		(nr_ranges - i) * sizeof(*ranges));
	ranges[i] = *r;
	nr_ranges++;
	return 0;
}

void range_del(struct range *r)
{
	const u32 i = (u32)(r - ranges);

	nr_ranges--;
	memmove(r, r + 1, (nr_ranges - i) * sizeof(*ranges));
}

static bool closes(void)
{
	static int is = -1;

	if (is < 0)
		is = drv_env("KVMM_STANDIN_CLOSED", 0) != 0;
	return is;
}

/* Protect all pages of a range but guard pages, two of an allocation. */
void range_protect(const struct range *r)
{
	const u64 guard = r->kind == RANGE_MAP ? 0 :
					   (u64)sysconf(_SC_PAGESIZE);

	if ((r->kind & RANGE_CLOSED) &&
	    mprotect((void *)(uintptr_t)(r->base + guard),
		     r->bytes - 2 * guard, opened || !closes() ? r->prot : PROT_NONE))
		drv_die("cannot protect memory: %s", strerror(errno));
}

static void protect_all(bool open)
{
	u32 i;

	if (opened == open || !closes())
		return;
	opened = open;
	for (i = 0; i < nr_ranges; i++)
		range_protect(&ranges[i]);
}

void range_open(void)
{
	protect_all(true);
}

void range_close(void)
{
	protect_all(false);
}

void range_check_all(void)
{
	u32 i;

	for (i = 0; i < nr_ranges; i++)
		range_check(&ranges[i]);
}
