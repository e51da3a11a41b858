// SPDX-License-Identifier: Apache-2.0
/*
 * wait.c - bounded waits for other ranks
 *
 * A waiter spins for some microseconds if each rank has a CPU.  Then it sleeps on the
 * counter, and looks at the group in every slice of its sleep: has the group failed, has a
 * rank ended, has the rank that it waits for closed?
 *
 * A waiter that was stopped itself does not count the time of the stop.
 */
#include <poll.h>
#include <signal.h>
#include <time.h>

#include <kvmm/ring.h>

#include "runtime/ranks/internal.h"

#define BEAT_MS		1000u	/* a waiter that has not looked for so long stands still */
#define STEP_MS		500u	/* the most that one slice counts */

static u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

static bool reached(const struct ranks_word *w, u32 count)
{
	/* Pairs with the release in ranks_raise(). */
	return (s32)(load_acquire(&w->count) - count) >= 0;
}

void ranks_raise(struct ranks *r, enum ranks_which which, u32 count)
{
	struct ranks_word *w = &r->w->slot[r->self].word[which];

	/*
	 * Either this store is seen by the sleeper, which looks again after it has raised
	 * @sleepers, or this load sees the sleeper: both pairs are in one order.
	 */
	__atomic_store_n(&w->count, count, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&w->sleepers, __ATOMIC_SEQ_CST))
		ring_futex_wake(&w->count);
}

static bool spin(const struct ranks *r, const struct ranks_word *w, u32 count)
{
	u64 start;
	u32 i;

	if (!r->spin_ns)
		return false;
	start = now_ns();
	do {
		for (i = 0; i < 64; i++) {
			if (reached(w, count))
				return true;
			cpu_relax();
		}
	} while (now_ns() - start < r->spin_ns);
	return false;
}

/* Sleep until the counter changes, at most @ms. */
static void slice(struct ranks_word *w, u32 count, u32 ms)
{
	u32 seen;

	__atomic_fetch_add(&w->sleepers, 1, __ATOMIC_SEQ_CST);
	seen = __atomic_load_n(&w->count, __ATOMIC_SEQ_CST);
	if ((s32)(seen - count) < 0)
		(void)ring_futex_wait(&w->count, seen, (s64)ms * 1000000);
	__atomic_fetch_sub(&w->sleepers, 1, __ATOMIC_SEQ_CST);
}

static bool closed(const struct ranks *r, u32 rank)
{
	return load_acquire(&r->w->slot[rank].word[RANKS_W_CLOSED].count) != 0;
}

/* A rank in another namespace of process ids is judged by time alone. */
static bool ended(const struct ranks *r, u32 rank)
{
	const struct ranks_slot *own = &r->w->slot[r->self], *s = &r->w->slot[rank];
	struct pollfd p = { .fd = r->pidfd[rank], .events = POLLIN };

	if (p.fd >= 0)
		return poll(&p, 1, 0) == 1;
	return s->pid && s->pid != own->pid && s->pidns == own->pidns &&
	       kill((pid_t)s->pid, 0) && errno == ESRCH;
}

int ranks_check(struct ranks *r)
{
	int ret = ranks_failed(r);
	u32 i;

	for (i = 0; !ret && i < r->nr; i++)
		if (i != r->self && ended(r, i) && !closed(r, i))
			ret = ranks_fail(r, i, RANKS_R_ENDED, NULL);
	return ret;
}

/* 1: reached; 0: wait on; else as ranks_await(). */
static int look(struct ranks *r, u32 rank, enum ranks_which which, u32 count)
{
	const bool left = closed(r, rank);
	int ret;

	if (reached(&r->w->slot[rank].word[which], count))
		return 1;
	ret = ranks_check(r);
	if (ret)
		return ret;
	return left ? -ESHUTDOWN : 0;
}

static int sleep_for(struct ranks *r, u32 rank, enum ranks_which which, u32 count, u32 *ms)
{
	struct ranks_slot *own = &r->w->slot[r->self];
	u64 last = now_ns() / 1000000, now;
	int ret;

	WRITE_ONCE(own->waits_for, rank + 1);
	for (;;) {
		ret = look(r, rank, which, count);
		if (ret || !*ms)
			break;
		WRITE_ONCE(own->beat_ms, last);
		slice(&r->w->slot[rank].word[which], count, min(*ms, RANKS_SLICE_MS));
		now = now_ns() / 1000000;
		*ms -= (u32)min(min(now - last, (u64)STEP_MS), (u64)*ms);
		last = now;
	}
	WRITE_ONCE(own->waits_for, 0);
	return ret > 0 ? 0 : ret ? ret : -ETIME;
}

int ranks_await(struct ranks *r, u32 rank, enum ranks_which which, u32 count, u32 *ms)
{
	const struct ranks_word *w = &r->w->slot[rank].word[which];

	if (reached(w, count) || (*ms && spin(r, w, count)))
		return 0;
	return sleep_for(r, rank, which, count, ms);
}

int ranks_await_all(struct ranks *r, enum ranks_which which, u32 count)
{
	u32 i, ms = r->timeout_ms;
	int ret;

	for (i = 0; i < r->nr; i++) {
		if (i == r->self || (which == RANKS_W_TAKEN && !i))
			continue;
		ret = ranks_await(r, i, which, count, &ms);
		if (ret)
			return ranks_fail_wait(r, i, ret);
	}
	return 0;
}

/*
 * The rank at which @rank, for which this rank has waited, waits in vain itself.  If the
 * waits are a circle, or the rank does not look around, it is @rank.
 */
static u32 culprit(const struct ranks *r, u32 rank)
{
	const u64 now = now_ns() / 1000000;
	const struct ranks_slot *s;
	u32 at = rank, next, n;

	for (n = 0; n < r->nr; n++) {
		s = &r->w->slot[at];
		next = READ_ONCE(s->waits_for);
		if (!next || now > READ_ONCE(s->beat_ms) + BEAT_MS)
			return at;
		at = next - 1;
		if (at == r->self || at >= r->nr)
			break;
	}
	return rank;
}

int ranks_fail_wait(struct ranks *r, u32 rank, int ret)
{
	if (ret == -ETIME)
		return ranks_fail(r, culprit(r, rank), RANKS_R_LATE, NULL);
	if (ret == -ESHUTDOWN)
		return ranks_fail(r, rank, RANKS_R_CLOSED, NULL);
	return ret;
}
