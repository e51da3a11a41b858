/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.h - cached content that stays without a request, and hints about it
 *
 * A hint names the ids of a prompt.  The engine looks them up, and has the daemon lease
 * the cached part (include/libkvmm.h).  Requests go on meanwhile.
 */
#ifndef RUNTIME_ENGINE_LEASE_H
#define RUNTIME_ENGINE_LEASE_H

#include <kvmm/list.h>
#include <uapi/kvmm.h>

struct engine;

enum engine_hint {
	ENGINE_RETAIN,		/* make a lease, or renew it */
	ENGINE_DEMOTE,		/* the content leaves the device */
	ENGINE_PREFETCH,	/* the content comes to the device, in the background */
	ENGINE_PIN,		/* a sequence that never runs keeps it on the device */
	ENGINE_UNPIN,
	ENGINE_FORGET,		/* no lease and no pin any more */
};

/* The next request to the daemon; see lease.c. */
enum lease_todo {
	LEASE_NOTHING,
	LEASE_RENEW,
	LEASE_LOOK,
	LEASE_END_OLD,
	LEASE_MAKE,
	LEASE_ADVISE,
	LEASE_PIN,
	LEASE_UNPIN,
	LEASE_END,
	LEASE_DONE,		/* on_done is next */
};

/**
 * struct engine_lease - the lease, pin and hint of one prompt; all zero: nothing
 * @ids:     the prompt, @nr of them, whole blocks; the caller's, unchanged during a hint
 * @stale:   @ids are others than those of the lease; set by the caller
 * @salt:    as in struct engine_request
 * @label:   see struct kvmm_lease_arg
 * @hint:    the hint
 * @ms:      time of a lease that it makes or renews; @granted: time that it got
 * @on_done: called once for each hint that engine_hint() took
 * @arg:     the caller's
 * @err:     0, or a negative errno: the hint had no effect but for @kept tokens
 * @reason:  negative errno that explains why @held is below @nr, or 0
 * @found:   tokens of the longest hit that the last lookup found
 * @moved:   tokens that left the device, or that are to come to it
 * @seq:     the lease, 0: none; @number: for other sequences
 * @held:    tokens that the lease holds; @kept: tokens that are evicted last
 * @until:   CLOCK_MONOTONIC ns at which that ends, 0: nothing is held or kept
 * @pin:     a sequence that keeps @pinned tokens on the device, 0: none
 *
 * The engine clears the handles when they end, and when it is destroyed.  The members
 * from @held_link on are private.
 */
struct engine_lease {
	const u32	*ids;
	u32		nr;
	bool		stale;
	u64		salt;
	char		label[KVMM_LABEL_LEN];
	enum engine_hint hint;
	u32		ms;
	u32		granted;
	void		(*on_done)(struct engine_lease *l);
	void		*arg;
	int		err;
	int		reason;
	u32		found;
	u32		moved;
	u64		seq;
	u64		number;
	u32		held;
	u32		kept;
	s64		until;
	u64		pin;
	u32		pinned;

	struct list	held_link;	/* in engine.held while there is a handle */
	struct list	busy_link;	/* in engine.hints while a hint is at work */
	enum lease_todo	todo;
	bool		sent;		/* an answer is due */
	bool		pin_old;	/* the lease was made anew for other ids, the pin was not */
	bool		looked;		/* a lookup was made for this hint */
	u32		tries;		/* requests that may still be repeated */
	s64		not_before;
	u32		piece;		/* ids of the lookup that was sent */
	u32		at;		/* how far the lookup is, and its cookie */
	u64		cookie[2];
	u64		hit_cookie[2];	/* of @found */
};

/**
 * engine_hint() - begin a hint
 * @l: no hint of it is at work
 *
 * Return: 0: on_done follows, in engine_step() or engine_destroy(), -ECONNRESET or
 * -ECANCELED: the engine has ended, and on_done is not called.
 */
int __must_check engine_hint(struct engine *e, struct engine_lease *l);

/* Tokens on the device that the pin keeps there; 0: it is on its way, or there is none */
u32 engine_pinned(const struct engine *e, const struct engine_lease *l);

/* engine_pin_lost() - has the pin lost its content for good?  Unpin it then. */
bool engine_pin_lost(const struct engine *e, const struct engine_lease *l);

/* engine_hint_text() - one line for the error of a hint */
const char *engine_hint_text(int err);

#endif /* RUNTIME_ENGINE_LEASE_H */
