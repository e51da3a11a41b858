/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h - a queue of records between two threads of the daemon
 *
 * One thread pushes and one pops; they may be the same.  It is made at start,
 * for as many records as can be under way at once: a full queue is a broken
 * invariant and is reported, not waited for.
 */
#ifndef KVMM_IPC_QUEUE_H
#define KVMM_IPC_QUEUE_H

#include <stdlib.h>

#include <kvmm/types.h>

/**
 * struct queue - records of one size
 * @slot: @mask + 1 of them
 * @size: bytes of one
 */
struct queue {
	char	*slot;
	u32	size;
	u32	mask;
	u32	head __attribute__((aligned(64)));	/* consumer's */
	u32	tail __attribute__((aligned(64)));	/* producer's */
};

/* queue_bytes() - memory that a queue of @entries takes */
static inline u64 queue_bytes(u32 size, u32 entries)
{
	return size * roundup_pow_of_two(max(entries, 2u));
}

static inline int __must_check queue_init(struct queue *q, u32 size,
					  u32 entries)
{
	u32 nr = (u32)roundup_pow_of_two(max(entries, 2u));

	q->slot = calloc(nr, size);
	q->size = size;
	q->mask = nr - 1;
	q->head = 0;
	q->tail = 0;
	return q->slot ? 0 : -ENOMEM;
}

static inline void queue_exit(struct queue *q)
{
	free(q->slot);
	q->slot = NULL;
}

static inline bool queue_push(struct queue *q, const void *rec)
{
	u32 tail = READ_ONCE(q->tail);

	/* Pairs with the release in queue_pop(). */
	if (tail - load_acquire(&q->head) > q->mask)
		return false;
	memcpy(q->slot + (size_t)(tail & q->mask) * q->size, rec, q->size);
	/* Pairs with the acquire in queue_pop(). */
	store_release(&q->tail, tail + 1);
	return true;
}

static inline bool queue_pop(struct queue *q, void *rec)
{
	u32 head = READ_ONCE(q->head);

	/* Pairs with the release in queue_push(). */
	if (load_acquire(&q->tail) == head)
		return false;
	memcpy(rec, q->slot + (size_t)(head & q->mask) * q->size, q->size);
	/* Pairs with the acquire in queue_push(). */
	store_release(&q->head, head + 1);
	return true;
}

/* queue_empty() - for the consumer; the answer may be old */
static inline bool queue_empty(const struct queue *q)
{
	return load_acquire(&q->tail) == READ_ONCE(q->head);
}

static inline u32 queue_count(const struct queue *q)
{
	return READ_ONCE(q->tail) - READ_ONCE(q->head);
}

#endif /* KVMM_IPC_QUEUE_H */
