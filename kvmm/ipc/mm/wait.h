/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait.h - how long requests waited for the mm thread, in one turn
 *
 * The thread serves one client after the other.  From the beginning of a turn until
 * the last client that had requests then is served, some client waits while the
 * thread works for others.  The part of that in which the thread serves no
 * client (it collects, ticks, runs a call of the control thread) is lost for
 * all.  pressure/cpu adds up both.  The clock is read at most twice a turn, and
 * not at all in a turn that finds no request.
 *
 * Context: mm thread.
 */
#ifndef KVMM_IPC_MM_WAIT_H
#define KVMM_IPC_MM_WAIT_H

#include "kvmm/ipc/base/base.h"

/**
 * struct mm_wait - of one turn
 * @mask:     clients that had requests at its begin, and were not served since
 * @since:    its begin
 * @some_ns:  time that at least one of them waited
 * @full_ns:  the part of it in which no client was served
 * @nr_turns: clients that were served
 */
struct mm_wait {
	u64	mask;
	u64	since;
	u64	some_ns;
	u64	full_ns;
	u32	nr_turns;
};

static inline u64 mm_wait_clock(const struct mm_wait *w)
{
	const u64 now = kv_now_ns();

	return now > w->since ? now - w->since : 0;
}

/* mm_wait_serve() - the clients @todo are served from now on, one after the other */
static inline void mm_wait_serve(struct mm_wait *w, u64 todo)
{
	w->mask &= todo;
	if (w->mask)
		w->full_ns = mm_wait_clock(w);
}

/* mm_wait_turn() - it is the turn of the client with the bit @one */
static inline void mm_wait_turn(struct mm_wait *w, u64 one)
{
	if (w->mask) {
		w->mask &= ~one;
		/* The first was reached when serving began. */
		if (!w->mask)
			w->some_ns = w->nr_turns ? mm_wait_clock(w) :
						   w->full_ns;
	}
	w->nr_turns++;
}

#endif /* KVMM_IPC_MM_WAIT_H */
