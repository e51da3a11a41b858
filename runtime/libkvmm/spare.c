// SPDX-License-Identifier: Apache-2.0
/*
 * spare.c - descriptors kept for what the daemon sends
 *
 * An extent comes as a descriptor, and one that finds no place in the process is
 * lost: the attachment would be over because somebody else, a server's idle
 * connections say, has taken the last ones.  So a few are kept, which give their
 * place to a message's and are taken again when it is closed.  Another thread
 * may be faster; the message is only looked at until its descriptors are all
 * here (extents.c), and later is as good.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/libkvmm/internal.h"

/**
 * lk_spare_give() - let go of the places that were kept
 */
void lk_spare_give(struct kvmm *k)
{
	while (k->nr_spare)
		close(k->spare[--k->nr_spare]);
}

/**
 * lk_spare_take() - keep as many places as there are to be, or as can be had
 */
void lk_spare_take(struct kvmm *k)
{
	int fd;

	while (k->nr_spare < KVMM_MAP_AT_ONCE) {
		fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (fd < 0)
			return;
		k->spare[k->nr_spare++] = fd;
	}
}
