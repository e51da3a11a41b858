// SPDX-License-Identifier: Apache-2.0
/*
 * spare.c - descriptors reserved for the daemon's messages
 *
 * An extent comes as a descriptor.  If the process has no descriptor left for
 * it, it is lost and the attachment ends, though another part of the process,
 * for example a server's idle connections, has used them up.  So the library
 * keeps a few descriptors open.  It closes them to make room for a message and
 * opens them again after the message is handled.  Another thread may be faster
 * and take the room.  So a message is only peeked at until all its descriptors
 * have arrived (extents.c); the library then tries again later.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/libkvmm/internal.h"

/** lk_spare_give() - close the spare descriptors */
void lk_spare_give(struct kvmm *k)
{
	while (k->nr_spare)
		close(k->spare[--k->nr_spare]);
}

/** lk_spare_take() - open the missing spare descriptors, as far as possible */
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
