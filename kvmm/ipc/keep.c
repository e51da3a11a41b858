// SPDX-License-Identifier: Apache-2.0
/*
 * keep.c - the shell's own memory that outlives it, see keep.h
 *
 * Made at start, mapped until the end; kvmm-hold has a duplicate of its
 * descriptor.  The core's arena is made here, too: the two go together.
 *
 * Of both the next daemon uses copies alone (keep_copy.c).
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"
#include "kvmm/ipc/keep.h"

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

/* keep_boot() - which life of the machine, as a number */
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

/*
 * On a boundary of 2 MiB, in pages of that size where the system gives them
 * for the asking: mapped again, few of them are soon there.
 */
static void *map_shared(int fd, u64 bytes)
{
	const u64 room = bytes + HOSTPOOL_HUGE;
	char *at, *p, *end;

	at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
		  MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	p = (char *)ALIGN_UP((uintptr_t)at, HOSTPOOL_HUGE);
	end = p + ALIGN_UP(bytes, (u64)sysconf(_SC_PAGESIZE));
	if (mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 0) == MAP_FAILED) {
		munmap(at, room);
		return NULL;
	}
	if (p > at)
		munmap(at, (size_t)(p - at));
	if (at + room > end)
		munmap(end, (size_t)(at + room - end));
	if (bytes >= HOSTPOOL_HUGE)
		(void)madvise(p, bytes, MADV_HUGEPAGE);
	(void)madvise(p, bytes, MADV_DONTFORK);
	/* It tells of tenants what they do. */
	(void)madvise(p, bytes, MADV_DONTDUMP);
	return p;
}

/* Memory that can be given to the next daemon, mapped; *@fd -1 without it. */
void *keep_memory(const char *name, u64 bytes, int *fd)
{
	void *p = NULL;

	*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return NULL;
	if (!ftruncate(*fd, (off_t)bytes) &&
	    !fcntl(*fd, F_ADD_SEALS, DEV_SEALS))
		p = map_shared(*fd, bytes);
	if (p)
		return p;
	close(*fd);
	*fd = -1;
	return NULL;
}

int keep_make(struct daemon *d)
{
	d->keep = keep_memory("kvmm-keep", sizeof(*d->keep), &d->keep_fd);
	if (!d->keep)
		return -ENOMEM;
	d->keep->layout = keep_layout();
	boot_read(d->keep->boot, sizeof(d->keep->boot));
	store_release(&d->keep->magic, KEEP_MAGIC);
	deposit_put(d, HOLD_KEEP, 0, d->keep_fd, 0);
	return 0;
}

/* Numbers that are used as they are; the rest is compared, or for people. */
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

const char *keep_take(struct daemon *d, int fd)
{
	char boot[sizeof(d->keep->boot)];

	d->keep = keep_copy("kvmm-keep", fd, sizeof(*d->keep), &d->keep_fd);
	if (!d->keep)
		return errno == ESTALE ? "what it left is of another kvmm" :
		       "what it left cannot be copied";
	boot_read(boot, sizeof(boot));
	if (d->keep->magic != KEEP_MAGIC || d->keep->layout != keep_layout())
		return "what it left is of another kvmm";
	if (memcmp(boot, d->keep->boot, sizeof(boot)))
		return "what it left is of another boot of this machine";
	if (!d->keep->ready)
		return "it had not begun to serve";
	if (d->keep->tries >= KEEP_TRIES)
		return "what it left was adopted before and led to nothing";
	if (!records_are_sane(d->keep))
		return "its records of clients and areas are damaged";
	/* Counted before anything else is looked at: that may be what kills. */
	d->keep->tries++;
	return deposit_kept(d, HOLD_KEEP, d->keep_fd);
}

void keep_exit(struct daemon *d)
{
	if (d->keep)
		munmap(d->keep, sizeof(*d->keep));
	if (d->keep_fd >= 0)
		close(d->keep_fd);
	d->keep = NULL;
	d->keep_fd = -1;
}

/*
 * The record does not count from here on.  What is written to it after this
 * is: a release orders what comes before it alone.
 */
static void keep_invalidate(u32 *valid)
{
	WRITE_ONCE(*valid, 0u);
	__asm__ __volatile__("" ::: "memory");
}

/* ---- clients ---- */

void keep_client_put(struct daemon *d, const struct client *c,
		     const __u64 *token, u32 sq_entries, bool resumes)
{
	struct keep_client *k = &d->keep->client[c->id];

	k->resumes = resumes;
	k->sq_entries = sq_entries;
	k->uid = c->uid;
	k->key = c->key;
	k->pid = c->info.pid;
	memcpy(k->comm, c->info.comm, sizeof(k->comm));
	memcpy(k->token, token, sizeof(k->token));
	k->untold = 1;
	store_release(&k->valid, 1u);
}

/* Before anything else is sent to it. */
void keep_client_told(struct daemon *d, u32 id)
{
	store_release(&d->keep->client[id].untold, 0u);
}

void keep_client_drop(struct daemon *d, u32 id)
{
	keep_invalidate(&d->keep->client[id].valid);
}

/* ---- areas ---- */

void keep_area_put(struct daemon *d, const struct swap_area *a)
{
	struct keep_area *k = &d->keep->area[a - d->link.area];

	keep_invalidate(&k->valid);
	k->core = a->core;
	k->draining = a->state == AREA_DRAINING;
	k->priority = a->priority;
	k->bytes = a->bytes;
	k->asked = a->asked;
	k->usable_off = a->usable_off;
	k->usable_bytes = a->usable_bytes;
	memcpy(k->uuid, a->uuid, sizeof(k->uuid));
	memcpy(k->path, a->path, sizeof(k->path));
	store_release(&k->valid, 1u);
}

void keep_area_drop(struct daemon *d, u32 index)
{
	keep_invalidate(&d->keep->area[index].valid);
}
