// SPDX-License-Identifier: Apache-2.0
/*
 * counts.c - counts of the ids of a text
 *
 * A list has the different ids in the order of their first occurrence, which
 * the penalties walk.  A hash table with linear probing, at most half full, has
 * places in that list.  All memory is allocated at the beginning.  The system
 * zeroes large pieces on first use, so a text that stays short touches little
 * memory.
 */
#include <stdlib.h>

#include "runtime/sampler/counts.h"

/* The slot of @id, or the free slot for it. */
static u32 slot_of(const struct id_counts *c, u32 id)
{
	u32 at = (u32)((id * 0x9e3779b97f4a7c15ull) >> 32) & c->mask;

	while (c->slots[at] && c->list[c->slots[at] - 1].id != id)
		at = (at + 1) & c->mask;
	return at;
}

struct id_counts *id_counts_create(u32 most)
{
	struct id_counts *c;
	u32 slots = 8;

	while (slots / 2 < most && slots < 1u << 31)
		slots *= 2;
	c = calloc(1, sizeof(*c) + (size_t)most * sizeof(*c->list) +
		   (size_t)slots * sizeof(*c->slots));
	if (!c)
		return NULL;
	c->most = most;
	c->mask = slots - 1;
	c->list = (struct id_count *)(c + 1);
	c->slots = (u32 *)(c->list + most);
	return c;
}

void id_counts_free(struct id_counts *c)
{
	free(c);
}

void id_counts_add(struct id_counts *c, u32 id)
{
	const u32 at = slot_of(c, id);

	if (!c->slots[at]) {
		if (c->nr == c->most)
			return;
		c->list[c->nr].id = id;
		c->slots[at] = ++c->nr;
	}
	c->list[c->slots[at] - 1].count++;
}

u32 id_counts_get(const struct id_counts *c, u32 id)
{
	u32 at;

	if (!c)
		return 0;
	at = slot_of(c, id);
	return c->slots[at] ? c->list[c->slots[at] - 1].count : 0;
}

u32 id_counts_nr(const struct id_counts *c)
{
	return c ? c->nr : 0;
}
