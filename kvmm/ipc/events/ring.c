// SPDX-License-Identifier: Apache-2.0
/*
 * ring.c - records of different sizes, from one thread to another
 *
 * A record lies in one piece.  Where the rest of the memory is too short for it, a pad
 * takes the rest.  Neither side waits: the producer is told that there is no room.
 */
#include <sys/mman.h>

#include "kvmm/ipc/events/events.h"

/* A record of the largest block must fit beside others. */
#define RING_LEAST	(64u << 10)
static_assert(2 * (sizeof(struct ev_rec) + 4 * KVMM_MAX_BLOCK_TOKENS) < RING_LEAST,
	      "two records of the largest block fit");

/**
 * ev_ring_init() - make a ring
 * @size: bytes, rounded up to a power of two
 *
 * Return: 0 or -ENOMEM.
 */
int ev_ring_init(struct ev_ring *r, u64 size)
{
	memset(r, 0, sizeof(*r));
	r->size = roundup_pow_of_two(max(size, (u64)RING_LEAST));
	/* Token ids are content of tenants: no core dump has them. */
	r->mem = mmap(NULL, r->size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->mem == MAP_FAILED) {
		r->mem = NULL;
		return -ENOMEM;
	}
	(void)madvise(r->mem, r->size, MADV_DONTDUMP);
	return 0;
}

void ev_ring_exit(struct ev_ring *r)
{
	if (r->mem)
		munmap(r->mem, r->size);
	r->mem = NULL;
}

/* ---- producer ---- */

/* Are @bytes free?  The other side's word is read only when they do not seem to be. */
static bool has_room(struct ev_ring *r, u64 bytes)
{
	if (r->tail + bytes - r->seen <= r->size)
		return true;
	/* Pairs with the release in ev_ring_done(). */
	r->seen = load_acquire(&r->head);
	return r->tail + bytes - r->seen <= r->size;
}

/**
 * ev_ring_reserve() - room for a record
 * @bytes: of the record, rounded up to a multiple of 8 here
 *
 * Return: the record, with its size, to be filled in before ev_ring_commit(); NULL:
 * there is no room.
 */
struct ev_rec *ev_ring_reserve(struct ev_ring *r, u32 bytes)
{
	u64 at = r->tail & (r->size - 1), pad = 0;
	struct ev_rec *rec;

	bytes = ALIGN_UP(bytes, 8u);
	if (r->size - at < bytes)
		pad = r->size - at;
	if (!has_room(r, pad + bytes))
		return NULL;
	if (pad) {
		rec = (struct ev_rec *)(r->mem + at);
		rec->bytes = (u32)pad;
		rec->kind = EV_PAD;
		at = 0;
	}
	rec = (struct ev_rec *)(r->mem + at);
	rec->bytes = bytes;
	r->next = r->tail + pad + bytes;
	return rec;
}

/* ev_ring_commit() - show the reserved record to the consumer */
void ev_ring_commit(struct ev_ring *r)
{
	/* Pairs with the acquire in ev_ring_next(). */
	store_release(&r->tail, r->next);
}

/* ev_ring_used() - bytes in use; either thread */
u64 ev_ring_used(const struct ev_ring *r)
{
	return READ_ONCE(r->tail) - READ_ONCE(r->head);
}

/* ---- consumer ---- */

/* ev_ring_next() - the oldest record; it stays until ev_ring_done().  NULL: none */
const struct ev_rec *ev_ring_next(struct ev_ring *r)
{
	for (;;) {
		const struct ev_rec *rec;

		/* Pairs with the release in ev_ring_commit(). */
		if (load_acquire(&r->tail) == r->head)
			return NULL;
		rec = (const struct ev_rec *)(r->mem + (r->head & (r->size - 1)));
		if (rec->kind != EV_PAD)
			return rec;
		ev_ring_done(r, rec);
	}
}

/* ev_ring_done() - give the room of the oldest record back */
void ev_ring_done(struct ev_ring *r, const struct ev_rec *rec)
{
	/* Pairs with the acquire in has_room(). */
	store_release(&r->head, r->head + rec->bytes);
}
