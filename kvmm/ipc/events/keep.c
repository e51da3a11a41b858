// SPDX-License-Identifier: Apache-2.0
/*
 * keep.c - the last batches, for subscribers that missed some
 *
 * Batches have numbers without gaps.  The newest replaces the oldest.
 */
#include <stdlib.h>

#include "kvmm/ipc/events/events.h"

/**
 * ev_keep_init() - room for the last @nr batches
 * @first: number of the first one
 *
 * Return: 0 or -ENOMEM.
 */
int ev_keep_init(struct ev_keep *k, u32 nr, u64 first)
{
	*k = (struct ev_keep){ .nr = nr, .first = first, .next = first };
	k->slot = calloc(nr, sizeof(*k->slot));
	return k->slot ? 0 : -ENOMEM;
}

void ev_keep_exit(struct ev_keep *k)
{
	u32 i;

	for (i = 0; k->slot && i < k->nr; i++)
		free(k->slot[i].data);
	free(k->slot);
	k->slot = NULL;
}

/**
 * ev_keep_add() - keep the next batch
 *
 * Return: 0; -ENOMEM: the batch has its number, but is not kept, and none before it.
 */
int ev_keep_add(struct ev_keep *k, const char *topic, const void *data, u32 len)
{
	struct ev_kept *s = &k->slot[k->next % k->nr];

	free(s->data);
	s->data = malloc(len + strlen(topic) + 1);
	s->len = len;
	k->next++;
	if (!s->data) {
		k->first = k->next;
		return -ENOMEM;
	}
	memcpy(s->data, data, len);
	s->topic = (char *)s->data + len;
	strcpy(s->topic, topic);
	if (k->next - k->first > k->nr)
		k->first = k->next - k->nr;
	return 0;
}

/* ev_keep_get() - a batch by its number; NULL: it is not kept */
const struct ev_kept *ev_keep_get(const struct ev_keep *k, u64 seq)
{
	return seq >= k->first && seq < k->next ? &k->slot[seq % k->nr] : NULL;
}
