// SPDX-License-Identifier: Apache-2.0
/*
 * end.c - how an attachment ends
 *
 * An attachment ends by a state that the daemon publishes (it shuts down, or
 * expels this client), by the daemon's death (the socket ends), by an error of
 * the daemon, or by detaching.  The first of them writes the line that
 * kvmm_strerror_attach() returns, and every later call answers -ECONNRESET.
 * Requests that were completed before can still be reaped.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/libkvmm/internal.h"

/**
 * lk_end() - end the attachment; only the first reason is kept
 *
 * Return: -ECONNRESET.
 */
int lk_end(struct kvmm *k, const char *fmt, ...)
{
	va_list ap;

	if (k->ended)
		return k->ended;
	k->ended = -ECONNRESET;
	va_start(ap, fmt);
	vsnprintf(k->why, sizeof(k->why), fmt, ap);
	va_end(ap);
	return k->ended;
}

/* The daemon's reason for the expulsion, in words. */
static const char *expelled_text(int reason)
{
	switch (reason) {
	case -EPROTO:
		return "this client broke the protocol";
	case -ETIME:
	case -ETIMEDOUT:
		return "it kept a step open, or an extent, past its deadline";
	case -ENOMEM:
		return "no memory was left for it";
	default:
		return strerror(-reason);
	}
}

/**
 * lk_check_state() - has the daemon ended the attachment?
 * Return: 0 or -ECONNRESET.
 */
int lk_check_state(struct kvmm *k)
{
	const u32 state = load_acquire(&k->dctl->state);

	if (k->ended || state == KVMM_CLIENT_ALIVE)
		return k->ended;
	switch (state) {
	case KVMM_CLIENT_DETACHED:
		return lk_end(k, "this client has detached");
	case KVMM_CLIENT_SHUTDOWN:
		return lk_end(k,
			      "the kvmm daemon is shutting down; start it with kvmm-hold");
	case KVMM_CLIENT_EXPELLED:
		return lk_end(k,
			      "kvmm expelled this client: %s",
			      expelled_text(READ_ONCE(k->dctl->reason)));
	default:
		return lk_end(k, "kvmm wrote a state that is none: %u",
			      state);
	}
}

const char *kvmm_strerror_attach(const struct kvmm *k)
{
	return k->ended ? k->why : "the attachment stands";
}

bool kvmm_device_failed(const struct kvmm *k)
{
	return k->device_failed;
}

bool kvmm_alive(struct kvmm *k)
{
	return !lk_look_around(k, lk_now());
}

/* Free all that kvmm_attach() has made so far. */
void lk_destroy(struct kvmm *k)
{
	lk_pool_release(k);
	if (k->seg_c)
		munmap(k->seg_c, k->info.c_bytes);
	if (k->seg_d)
		munmap((void *)k->seg_d, k->info.d_bytes);
	k->cons.head = k->first;
	lk_old_release(k);
	free(k->extent);
	free(k->req);
	lk_spare_give(k);
	if (k->bell >= 0)
		close(k->bell);
	if (k->sock >= 0)
		close(k->sock);
	free(k);
}

/* Send one request and drop its answer, within @give_up. */
static bool send_last(struct kvmm *k, u16 op, u64 step, s64 give_up)
{
	struct kvmm_done done;
	struct kvmm_sqe *sqe;
	u32 index;

	do {
		while (kvmm_reap(k, &done) > 0)
			;
		kvmm_release(k);
		index = k->sub.tail;
		sqe = lk_prep(k, op, 0, 0, LK_OWN, NULL);
		if (sqe) {
			sqe->step = step;
			return !kvmm_submit(k) &&
			       !lk_wait_for(k, index, LK_DETACH_NS);
		}
	} while (lk_now() < give_up && !kvmm_wait(k, LK_LOOK_NS));
	return false;
}

void kvmm_detach(struct kvmm *k)
{
	const s64 give_up = lk_now() + LK_DETACH_NS;

	if (!k)
		return;
	/*
	 * Unmap first, so that no extent is mapped when the daemon reads
	 * DETACH.
	 */
	lk_pool_release(k);
	/*
	 * A client that cannot know whether its kernels have ended sends
	 * nothing.  The daemon treats it as dead, and gives no block that it
	 * could write to another sequence before its process ends.
	 */
	if (k->device_failed) {
		lk_destroy(k);
		return;
	}
	/*
	 * A client that closes the socket with a step open is treated as dead.
	 */
	while (k->nr_steps && send_last(k, KVMM_OP_STEP_END, k->step[0],
					give_up))
		;
	send_last(k, KVMM_OP_DETACH, 0, give_up);
	lk_destroy(k);
}
