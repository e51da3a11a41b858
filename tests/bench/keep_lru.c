// SPDX-License-Identifier: Apache-2.0
/*
 * keep_lru.c - an ideal LRU cache of prompts: one tier, nothing lost
 *
 * A block is found only if all blocks before it are.  So the blocks of a prompt
 * are touched from the last to the first, and the oldest block of all is the last
 * one that the oldest prompt still has.  A prompt is therefore a number of blocks,
 * and the cache a list of prompts, the oldest first.
 *
 * While a prompt runs, its last token needs a block, in this cache as in kvmm.
 */
#include <stdlib.h>

#include "tests/bench/keep.h"

struct prompt {
	u32	nr;		/* blocks of it that are cached */
	u32	prev, next;
};

/* Item @prompts of the list is its head. */
struct keep_lru {
	u32		cap;
	u32		used;
	u32		head;
	struct prompt	p[];
};

struct keep_lru *keep_lru_new(u32 cap, u32 prompts)
{
	struct keep_lru *l = calloc(1, sizeof(*l) +
				    (prompts + 1ull) * sizeof(l->p[0]));
	u32 i;

	if (!l || cap <= KEEP_BLOCKS)
		bench_die("no LRU of %u blocks", cap);
	l->cap = cap;
	l->head = prompts;
	for (i = 0; i <= prompts; i++) {
		l->p[i].prev = i;
		l->p[i].next = i;
	}
	return l;
}

void keep_lru_free(struct keep_lru *l)
{
	free(l);
}

static void list_del(struct keep_lru *l, u32 i)
{
	l->p[l->p[i].prev].next = l->p[i].next;
	l->p[l->p[i].next].prev = l->p[i].prev;
}

static void list_add_newest(struct keep_lru *l, u32 i)
{
	l->p[i].next = l->head;
	l->p[i].prev = l->p[l->head].prev;
	l->p[l->p[i].prev].next = i;
	l->p[l->head].prev = i;
}

u32 keep_lru_serve(struct keep_lru *l, u32 prompt)
{
	const u32 found = l->p[prompt].nr;
	u32 old;

	list_del(l, prompt);
	list_add_newest(l, prompt);
	l->p[prompt].nr = KEEP_BLOCKS;
	l->used += KEEP_BLOCKS - found;
	while (l->used + 1 > l->cap) {
		old = l->p[l->head].next;
		l->p[old].nr--;
		l->used--;
		if (l->p[old].nr)
			continue;
		list_del(l, old);
		l->p[old].prev = old;
		l->p[old].next = old;
	}
	return found;
}
