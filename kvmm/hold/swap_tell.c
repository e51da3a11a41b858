// SPDX-License-Identifier: Apache-2.0
/*
 * swap_tell.c - hold's reports to kvmm on swapd
 *
 * The reports on a life come in this order: UP, DOWN, its old completions,
 * DRAINED.  A report that the socket cannot take now waits: UP and DOWN in the
 * state of the life, completions in the ring itself.  Reports on the oldest life
 * come first, so DOWN comes before the next UP.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kvmm/hold/swap.h"

/* Return: whether the report was sent, or need not be. */
static bool tell(struct swap *sw, const struct swap_life *l, u32 kind,
		 u32 index, u64 value)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_TELL, .kind = kind,
		.index = index, .generation = l->generation, .value = value,
	};
	int err;

	if (l->mute || sw->kvmm < 0)
		return true;
	err = store_send_record(sw->kvmm, &r,
				kind == HOLD_SWAPD_UP ? l->sock : -1,
				MSG_DONTWAIT);
	/* With any other error kvmm is gone, and its death is seen next. */
	sw->blocked = err == -EAGAIN;
	return !sw->blocked;
}

/* Return: whether all completions were reported. */
static bool tell_completions(struct swap *sw, struct swap_life *l)
{
	u64 id;
	s32 res;

	while (swap_ring_peek(&l->ring, &id, &res)) {
		if (!tell(sw, l, HOLD_SWAP_OLD_CQE, (u32)res, id))
			return false;
		swap_ring_take(&l->ring);
	}
	return true;
}

/* Return: false when the socket is full. */
static bool life_tell(struct swap *sw, struct swap_life *l)
{
	if (l->state == LIFE_RUNS && l->sock >= 0) {
		if (!tell(sw, l, HOLD_SWAPD_UP, 0, (u64)l->pid))
			return false;
		close(l->sock);
		l->sock = -1;
	}
	if (l->state == LIFE_ENDED) {
		if (!tell(sw, l, HOLD_SWAPD_DOWN, l->again,
			  (u64)(u32)l->status))
			return false;
		l->state = LIFE_REAPED;
	}
	return l->state != LIFE_REAPED || tell_completions(sw, l);
}

void swap_tell(struct swap *sw)
{
	u32 i = 0;

	sw->blocked = false;
	while (i < sw->nr) {
		struct swap_life *l = &sw->life[i];

		if (!life_tell(sw, l))
			return;
		if (l->state != LIFE_REAPED || swap_ring_left(&l->ring)) {
			i++;
			continue;
		}
		if (!tell(sw, l, HOLD_SWAP_DRAINED, 0, 0))
			return;
		swap_life_close(sw, l);
	}
}
