/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.h - slots of a benchmark that no unfinished request names
 *
 * A disk ends transfers in any order, and on a busy machine a hundred may overtake
 * one.  So the request of a slot may be unfinished even if the slot was handed out
 * long ago.  Therefore a place is taken, and given back when its request has
 * ended.  Two requests that share a slot of the host write their headers over
 * each other, and a read of either slot is then wrong.
 */
#ifndef TESTS_BENCH_PLACES_H
#define TESTS_BENCH_PLACES_H

#include <kvmm/types.h>

#define PLACES_MAX	4096u
#define PLACES_STRIDE	7919u	/* a prime: the walk meets all of them */

/**
 * struct places - slots @first to @first + @nr - 1
 * @next: of the walk, in no order that a disk could guess
 * @busy: by slot, from 0: an unfinished request names it
 */
struct places {
	u32	first;
	u32	nr;
	u32	next;
	bool	busy[PLACES_MAX];
};

/* No request is unfinished; the walk begins at @next. */
static inline void places_reset(struct places *p, u32 first, u32 nr, u32 next)
{
	*p = (struct places){ .first = first, .nr = nr, .next = next };
}

/* The next free slot of the walk; UINT32_MAX: none is free. */
static inline u32 places_take(struct places *p)
{
	u32 i, at;

	for (i = 0; i < p->nr; i++) {
		at = p->first + (u32)((u64)p->next++ * PLACES_STRIDE % p->nr);
		if (p->busy[at])
			continue;
		p->busy[at] = true;
		return at;
	}
	return UINT32_MAX;
}

static inline void places_give(struct places *p, u32 at)
{
	p->busy[at] = false;
}

#endif /* TESTS_BENCH_PLACES_H */
