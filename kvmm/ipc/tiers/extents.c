// SPDX-License-Identifier: Apache-2.0
/*
 * extents.c - the table of extent descriptors
 *
 * The mapper changes it, the copier looks descriptors up, and the control
 * thread holds its lock while it sends some to a client: a descriptor looked up
 * and closed by the mapper meanwhile could be another tenant's extent by then.
 */
#include "kvmm/ipc/tiers/tiers.h"

int extents_init(struct extents *x, u32 nr)
{
	u32 i;

	x->table = calloc(nr, sizeof(*x->table));
	if (!x->table)
		return -ENOMEM;
	for (i = 0; i < nr; i++)
		x->table[i].fd = -1;
	pthread_mutex_init(&x->lock, NULL);
	return 0;
}

int extents_get(struct extents *x, u32 extent)
{
	int fd;

	pthread_mutex_lock(&x->lock);
	fd = x->table[extent].fd;
	pthread_mutex_unlock(&x->lock);
	return fd;
}

void extents_publish(struct extents *x, u32 extent, int fd, u32 generation)
{
	pthread_mutex_lock(&x->lock);
	x->table[extent].fd = fd;
	x->table[extent].generation = generation;
	pthread_mutex_unlock(&x->lock);
}
