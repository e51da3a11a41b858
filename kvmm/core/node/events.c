// SPDX-License-Identifier: Apache-2.0
/*
 * events.c - events from the shell: memory was made, a copy or I/O ended
 *
 * Each event ends with admit_all(): the change may be what a waiting sequence
 * lacked.
 */
#include "kvmm/core/node/node.h"

/**
 * core_extent_created() - the shell has made memory, or could not
 * @extent: as in core_ops.extent_create
 * @status: 0 or a negative errno
 */
void core_extent_created(struct core *c, u64 now, u32 extent, int status)
{
	core_event(c);

	KV_BUG_ON(extent >= core_sizes(c)->nr_extents);
	c->now = now;
	extent_created(c, extent, status);
	admit_all(c);
}

/**
 * core_copy_done() - a copy ended
 * @id:     of struct core_copy; one that is not in flight is ignored
 * @status: 0 or a negative errno
 */
void core_copy_done(struct core *c, u64 now, u64 id, int status)
{
	core_event(c);

	c->now = now;
	if (move_answered(c, id, status)) {
		admit_all(c);
	} else if (tier_copy_done(c, id, status)) {
		admit_all(c);
		tier_background(c);
		leases_background(c);
	}
}

/**
 * core_io_done() - a transfer between the host pool and an area ended
 * @id:     of struct core_io; one that is not in flight is ignored
 * @status: 0: all of it, and for a read header and checksum are right; else a
 *          negative errno
 */
void core_io_done(struct core *c, u64 now, u64 id, int status)
{
	core_event(c);

	c->now = now;
	if (!tier_io_done(c, id, status))
		return;
	admit_all(c);
	tier_background(c);
	leases_background(c);
}
