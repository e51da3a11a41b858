// SPDX-License-Identifier: Apache-2.0
/*
 * keep.c - records of clients and swap areas for the next daemon; see keep.h
 *
 * The records are made at start, mapped until the end, and kvmm-hold has a
 * duplicate of their descriptor.  The next daemon uses a copy (memory.c).
 *
 * Context: control thread; records of areas: the mm thread, while the control
 * thread waits for it.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "kvmm/ipc/deposit/deposit.h"

static void boot_read(char *boot, size_t len)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	memset(boot, 0, len);
	if (!f)
		return;
	if (!fread(boot, 1, len - 1, f))
		boot[0] = '\0';
	fclose(f);
}

/* keep_boot() - boot_id of the machine, as two words */
void keep_boot(u64 *boot)
{
	char text[sizeof(((struct keep *)0)->boot)];
	const char *p;
	u32 nr = 0;

	boot_read(text, sizeof(text));
	boot[0] = 0;
	boot[1] = 0;
	for (p = text; *p && nr < 32; p++) {
		const char *digits = "0123456789abcdef";
		const char *at = strchr(digits, *p);

		if (!at)
			continue;
		boot[nr / 16] = boot[nr / 16] << 4 | (u64)(at - digits);
		nr++;
	}
}

/* keep_layout() - a number for the layout of the arena and of struct keep */
u64 keep_layout(void)
{
	const u64 sizes[] = {
		core_arena_layout(), sizeof(struct keep),
		sizeof(struct keep_client), sizeof(struct keep_area),
	};
	const u8 *p = (const u8 *)sizes;
	u64 hash = 0xcbf29ce484222325ull;
	size_t i;

	for (i = 0; i < sizeof(sizes); i++)
		hash = (hash ^ p[i]) * 0x100000001b3ull;
	return hash;
}

/* keep_make() - empty records, deposited; without hold they are memory alone */
int keep_make(struct deposit *p)
{
	p->keep = keep_memory("kvmm-keep", sizeof(*p->keep), &p->keep_fd);
	if (!p->keep)
		return -ENOMEM;
	p->keep->layout = keep_layout();
	boot_read(p->keep->boot, sizeof(p->keep->boot));
	store_release(&p->keep->magic, KEEP_MAGIC);
	deposit_put(p, HOLD_KEEP, 0, p->keep_fd, 0);
	return 0;
}

/* Are the numbers in bounds that are used unchecked later? */
static bool records_are_sane(const struct keep *k)
{
	u32 i, cores = 0;

	for (i = 0; i < KEEP_CLIENTS; i++)
		if (k->client[i].valid &&
		    (!is_power_of_2(k->client[i].sq_entries) ||
		     k->client[i].sq_entries < SQ_ENTRIES_MIN ||
		     k->client[i].sq_entries > SQ_ENTRIES_MAX))
			return false;
	for (i = 0; i < CORE_MAX_AREAS; i++) {
		const struct keep_area *a = &k->area[i];

		if (!a->valid)
			continue;
		if (a->core >= CORE_MAX_AREAS || (cores & BIT(a->core)))
			return false;
		cores |= BIT(a->core);
	}
	return true;
}

/**
 * keep_take() - use a copy of the last daemon's records; hold gets the copy
 * @fd: of those records; stays the caller's
 * Return: NULL, or why they cannot be used.
 */
const char *keep_take(struct deposit *p, int fd)
{
	char boot[sizeof(p->keep->boot)];

	p->keep = keep_copy("kvmm-keep", fd, sizeof(*p->keep), &p->keep_fd);
	if (!p->keep)
		return errno == ESTALE ? "what it left is of another kvmm" :
		       "what it left cannot be copied";
	boot_read(boot, sizeof(boot));
	if (p->keep->magic != KEEP_MAGIC || p->keep->layout != keep_layout())
		return "what it left is of another kvmm";
	if (memcmp(boot, p->keep->boot, sizeof(boot)))
		return "what it left is of another boot of this machine";
	if (!p->keep->ready)
		return "it had not begun to serve";
	if (p->keep->tries >= KEEP_TRIES)
		return "what it left was adopted before and led to nothing";
	if (!records_are_sane(p->keep))
		return "its records of clients and areas are damaged";
	/* Counted before the arena is looked at: that may be the crash. */
	p->keep->tries++;
	return deposit_kept(p, HOLD_KEEP, p->keep_fd);
}

void keep_exit(struct deposit *p)
{
	if (p->keep)
		munmap(p->keep, sizeof(*p->keep));
	if (p->keep_fd >= 0)
		close(p->keep_fd);
	p->keep = NULL;
	p->keep_fd = -1;
}

/*
 * The record does not count from here on.  The barrier keeps later stores to
 * the record behind this one; a release would order earlier stores alone.
 */
static void keep_invalidate(u32 *valid)
{
	WRITE_ONCE(*valid, 0u);
	__asm__ __volatile__("" ::: "memory");
}

/* keep_client_put() - the client is attached, and is yet to be answered */
void keep_client_put(struct deposit *p, u32 id, const struct keep_client *k)
{
	struct keep_client *to = &p->keep->client[id];

	keep_invalidate(&to->valid);
	*to = *k;
	to->untold = 1;
	store_release(&to->valid, 1u);
}

/* keep_client_told() - it was answered; before any other message to it */
void keep_client_told(struct deposit *p, u32 id)
{
	store_release(&p->keep->client[id].untold, 0u);
}

/* keep_client_drop() - it is attached no more */
void keep_client_drop(struct deposit *p, u32 id)
{
	keep_invalidate(&p->keep->client[id].valid);
}

/* keep_area_put() - the core uses the area */
void keep_area_put(struct deposit *p, u32 index, const struct keep_area *k)
{
	struct keep_area *to = &p->keep->area[index];

	keep_invalidate(&to->valid);
	*to = *k;
	store_release(&to->valid, 1u);
}

/* keep_area_drop() - the core uses it no more */
void keep_area_drop(struct deposit *p, u32 index)
{
	keep_invalidate(&p->keep->area[index].valid);
}
