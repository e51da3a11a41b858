/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - how much memory there is, and how much of it is left
 */
#ifndef KVMM_DEV_MEMORY_H
#define KVMM_DEV_MEMORY_H

#include <fcntl.h>

#include <kvmm/types.h>

#define DEV_SPARE_BYTES	(64ull << 20)

/* Seals of all memory that outlives the process that made it. */
#define DEV_SEALS	(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/**
 * struct memory_room - memory that this process may still take, and all memory
 * @total:      bytes of the machine, or the least limit of a control group
 * @available:  bytes that can be taken now without swapping
 * @group:      control group that bounds @available, "": the machine does
 * @huge_free:  bytes in pages of 2 MiB that were set aside and are neither used
 *              nor reserved
 * @huge_total: bytes in all pages of 2 MiB that were set aside
 */
struct memory_room {
	u64	total;
	u64	available;
	char	group[256];
	u64	huge_free;
	u64	huge_total;
};

/**
 * memory_look() - ask the kernel
 * @root: put before every path: "", or a tree of files that a test made
 *
 * A file that cannot be read sets no bound.
 */
void memory_look(struct memory_room *m, const char *root);

/* dev_memory_available() - bytes of RAM that this process could still take */
u64 dev_memory_available(void);

/**
 * dev_memory_admit() - may @bytes of shared memory be filled now?
 *
 * The kernel fills a memfd until no memory is left and then kills a process, so
 * the caller asks before it makes one.
 *
 * Return: 0, or -ENOMEM when they would not leave DEV_SPARE_BYTES.
 */
int __must_check dev_memory_admit(u64 bytes);

/**
 * dev_memory_is_ours() - is it memory of @bytes, now and for ever?
 * @fd: any descriptor, of any origin
 *
 * True for a memfd that cannot be made shorter or longer: its pages can always be
 * read, and no process serves them.  Only a memfd has seals.
 */
bool dev_memory_is_ours(int fd, u64 bytes);

#endif /* KVMM_DEV_MEMORY_H */
