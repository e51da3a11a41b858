/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spsc.h - a queue of words between two threads of the daemon
 *
 * Made at start, for a number of entries that its two threads cannot exceed;
 * a full queue is a broken invariant and is reported, not waited for.
 */
#ifndef KVMM_IPC_SPSC_H
#define KVMM_IPC_SPSC_H

#include <stdlib.h>

#include <kvmm/types.h>

struct spsc_msg {
	u32	op;
	u32	extent;
	u32	generation;
	s32	status;
};

struct spsc {
	struct spsc_msg	*slot;
	u32		mask;
	u32		head __attribute__((aligned(64)));	/* consumer's */
	u32		tail __attribute__((aligned(64)));	/* producer's */
};

static inline int __must_check spsc_init(struct spsc *q, u32 entries)
{
	u32 size = (u32)roundup_pow_of_two(max(entries, 2u));

	q->slot = calloc(size, sizeof(*q->slot));
	q->mask = size - 1;
	q->head = 0;
	q->tail = 0;
	return q->slot ? 0 : -ENOMEM;
}

static inline void spsc_exit(struct spsc *q)
{
	free(q->slot);
	q->slot = NULL;
}

static inline bool spsc_push(struct spsc *q, const struct spsc_msg *msg)
{
	u32 tail = READ_ONCE(q->tail);

	/* Pairs with the release in spsc_pop(). */
	if (tail - load_acquire(&q->head) > q->mask)
		return false;
	q->slot[tail & q->mask] = *msg;
	/* Pairs with the acquire in spsc_pop(). */
	store_release(&q->tail, tail + 1);
	return true;
}

static inline bool spsc_pop(struct spsc *q, struct spsc_msg *msg)
{
	u32 head = READ_ONCE(q->head);

	/* Pairs with the release in spsc_push(). */
	if (load_acquire(&q->tail) == head)
		return false;
	*msg = q->slot[head & q->mask];
	/* Pairs with the acquire in spsc_push(). */
	store_release(&q->head, head + 1);
	return true;
}

/* For the consumer; the answer may be old. */
static inline bool spsc_empty(const struct spsc *q)
{
	return load_acquire(&q->tail) == READ_ONCE(q->head);
}

#endif /* KVMM_IPC_SPSC_H */
