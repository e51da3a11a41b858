// SPDX-License-Identifier: Apache-2.0
/*
 * account.c - how full the device is, over all processes that use it
 *
 * A small file, mapped by every process: $TMPDIR/kvmm-standin, without TMPDIR
 * /tmp/kvmm-standin-UID.  A process has a slot of it, and a lock on the byte
 * with the slot's number, which the system takes away when the process is gone.
 * A row is a piece of memory, named by the inode of its memfd, with the slots of
 * the processes that hold it; it counts once, as long as one of them lives.
 * Memory of cuMemAlloc(), which only one process can have, is a number in its
 * slot.
 *
 * So memory is not counted if it only lies in a message, or with a process that
 * does not use CUDA.  Changes are made under flock(); after account_open() the
 * file needs only flock(), fcntl(), loads and stores.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/standin/driver.h"

#define SLOTS	128u
#define ROWS	32768u

struct row {
	u64 id;			/* 0: free */
	u64 size;
	u64 held[SLOTS / 64];
};

struct account {
	u32 nr_rows;		/* all rows behind are free */
	u32 resv;
	u64 plain[SLOTS];
	struct row row[ROWS];
};

static struct account *acc;
static int acc_fd = -1;
static u32 my_slot;
static u64 total;

static struct flock byte_of(u32 slot)
{
	return (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET,
			       .l_start = slot, .l_len = 1 };
}

static bool slot_alive(u32 slot)
{
	struct flock l = byte_of(slot);

	if (slot == my_slot)
		return true;
	return !fcntl(acc_fd, F_GETLK, &l) && l.l_type != F_UNLCK;
}

static void acc_lock(void)
{
	while (flock(acc_fd, LOCK_EX) && errno == EINTR)
		;
}

static void acc_unlock(void)
{
	flock(acc_fd, LOCK_UN);
}

static void trim_rows(void)
{
	while (acc->nr_rows && !acc->row[acc->nr_rows - 1].id)
		acc->nr_rows--;
}

/* Drop memory that only dead processes held; ask once for each slot. */
static void bury(void)
{
	u64 dead[SLOTS / 64] = { 0 };
	u32 i, w;

	for (i = 0; i < SLOTS; i++)
		if (!slot_alive(i)) {
			dead[i / 64] |= BIT_ULL(i % 64);
			acc->plain[i] = 0;
		}
	for (i = 0; i < acc->nr_rows; i++) {
		struct row *r = &acc->row[i];
		u64 left = 0;

		for (w = 0; w < SLOTS / 64; w++)
			left |= r->held[w] &= ~dead[w];
		if (!left)
			r->id = 0;
	}
	trim_rows();
}

static u64 sum(void)
{
	u64 used = 0;
	u32 i;

	for (i = 0; i < SLOTS; i++)
		used += acc->plain[i];
	for (i = 0; i < acc->nr_rows; i++)
		if (acc->row[i].id)
			used += acc->row[i].size;
	return used;
}

/* Room for @bytes more?  The dead are buried only if there seems to be none. */
static bool room(u64 bytes)
{
	if (sum() + bytes <= total)
		return true;
	bury();
	return sum() + bytes <= total;
}

static int take_slot(void)
{
	u32 i;

	for (i = 0; i < SLOTS; i++) {
		struct flock l = byte_of(i);

		if (!fcntl(acc_fd, F_SETLK, &l)) {
			my_slot = i;
			acc->plain[i] = 0;
			return 0;
		}
	}
	return -EUSERS;
}

int account_open(void)
{
	const char *dir = getenv("TMPDIR");
	char path[512];
	int err;

	if (dir && *dir)
		snprintf(path, sizeof(path), "%s/kvmm-standin", dir);
	else
		snprintf(path, sizeof(path), "/tmp/kvmm-standin-%u",
			 (unsigned int)getuid());
	total = drv_env("KVMM_STANDIN_MEM", 1ull << 30);
	acc_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (acc_fd < 0 || ftruncate(acc_fd, sizeof(*acc)))
		return -errno;
	acc = mmap(NULL, sizeof(*acc), PROT_READ | PROT_WRITE, MAP_SHARED,
		   acc_fd, 0);
	if (acc == MAP_FAILED)
		return -errno;
	my_slot = SLOTS;
	acc_lock();
	bury();
	err = take_slot();
	acc_unlock();
	return err;
}

bool account_room(u64 bytes)
{
	bool is;

	acc_lock();
	is = room(bytes);
	acc_unlock();
	return is;
}

int account_plain(s64 bytes)
{
	int err = 0;

	acc_lock();
	if (bytes > 0 && !room((u64)bytes))
		err = -ENOMEM;
	else
		acc->plain[my_slot] += (u64)bytes;
	acc_unlock();
	return err;
}

static struct row *row_of(u64 id)
{
	u32 i;

	for (i = 0; i < acc->nr_rows; i++)
		if (acc->row[i].id == id)
			return &acc->row[i];
	return NULL;
}

static struct row *new_row(u64 id, u64 bytes)
{
	struct row *r = row_of(0);

	if (!r) {
		if (acc->nr_rows == ROWS)
			return NULL;
		r = &acc->row[acc->nr_rows++];
	}
	*r = (struct row){ .id = id, .size = bytes };
	return r;
}

/* Inode numbers are used again, so the row may be one of dead processes. */
int account_hold(u64 id, u64 bytes)
{
	struct row *r;
	int err = 0;

	acc_lock();
	r = row_of(id);
	if (r && r->size != bytes) {
		bury();
		r = row_of(id);
	}
	if (!r && !room(bytes))
		err = -ENOMEM;
	else if (!r)
		r = new_row(id, bytes);
	if (r)
		r->held[my_slot / 64] |= BIT_ULL(my_slot % 64);
	else
		err = -ENOMEM;
	acc_unlock();
	return err;
}

void account_drop(u64 id)
{
	struct row *r;
	u32 w;

	acc_lock();
	r = row_of(id);
	if (r) {
		u64 left = 0;

		r->held[my_slot / 64] &= ~BIT_ULL(my_slot % 64);
		for (w = 0; w < SLOTS / 64; w++)
			left |= r->held[w];
		if (!left)
			r->id = 0;
		trim_rows();
	}
	acc_unlock();
}

u64 account_total(void)
{
	return total;
}

u64 account_used(void)
{
	u64 used;

	acc_lock();
	bury();
	used = sum();
	acc_unlock();
	return used;
}
