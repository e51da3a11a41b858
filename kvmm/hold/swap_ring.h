/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap_ring.h - the io_uring of one start of swapd, as hold sees it
 */
#ifndef KVMM_HOLD_SWAP_RING_H
#define KVMM_HOLD_SWAP_RING_H

#include <liburing.h>

#include <kvmm/types.h>

/**
 * struct swap_ring - a ring that hold made
 * @has:  there is one; false where io_uring cannot be used
 * @head: number of completions taken since the start, by swapd and hold
 */
struct swap_ring {
	struct io_uring	ring;
	u32		head;
	bool		has;
};

/**
 * swap_ring_make() - a fresh ring, for a child to inherit
 * @depth:  requests in flight at once
 * @params: receives a memfd with its struct io_uring_params, or -1
 *
 * Return: 0 or a negative errno; then @r has no ring and may be used like that.
 */
int __must_check swap_ring_make(struct swap_ring *r, u32 depth, int *params);

/**
 * swap_ring_settle() - swapd is dead: begin to reap
 *
 * Context: once, after the last thread of swapd was waited for.
 */
void swap_ring_settle(struct swap_ring *r);

/* Read the next completion, without taking it; false: there is none now. */
bool swap_ring_peek(const struct swap_ring *r, u64 *id, s32 *res);
/* Take the next completion. */
void swap_ring_take(struct swap_ring *r);

/* Number of transfers that are in flight, or over and not taken. */
u32 swap_ring_left(const struct swap_ring *r);

void swap_ring_close(struct swap_ring *r);

#endif /* KVMM_HOLD_SWAP_RING_H */
