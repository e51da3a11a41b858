// SPDX-License-Identifier: Apache-2.0
/*
 * again.c - repetition of the requests that were in flight at an adoption
 */
#include "kvmm/core/node/node.h"

/* adopt_again() - order them once more, at the first tick after an adoption */
void adopt_again(struct core *c)
{
	u32 i;

	c->again = 0;
	device_adopted(c);
	for (i = 0; i < core_sizes(c)->nr_entries; i++)
		if (c->entries_low[i].domain != ENTRY_UNUSED &&
		    c->entries_low[i].again)
			request_again(c, i);
	for (i = 0; i < CORE_MAX_MOVES; i++)
		if (c->head->moves[i].state == MOVE_COPYING &&
		    c->head->moves[i].again)
			move_again(c, i);
	for (i = 0; i < core_sizes(c)->nr_extents; i++) {
		struct kv_extent *x = &c->extents[i];

		if (x->again && x->state == EXT_CREATING)
			c->ops->extent_create(c->ops_arg, i, x->generation);
		x->again = 0;
	}
}
