/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap.h - hold's part of swapd: start it, bury it, reap what it left
 */
#ifndef KVMM_HOLD_SWAP_H
#define KVMM_HOLD_SWAP_H

#include <poll.h>
#include <signal.h>

#include "kvmm/hold/store.h"
#include "kvmm/hold/swap_ring.h"

#define SWAP_LIVES	8	/* at once: one that runs, others in flight */
#define SWAP_POLL_MAX	(SWAP_LIVES + 1)

enum swap_life_state {
	LIFE_RUNS,
	LIFE_ENDED,	/* DOWN is to be told */
	LIFE_REAPED,	/* its completions are to be told, then DRAINED */
};

/**
 * struct swap_life - one start of swapd, until nothing of it is in flight
 * @mute:   the kvmm that it worked for is gone: nothing is told
 * @sock:   kvmm's end of the control socket until UP was told; else -1
 * @status: how it ended, for waitpid()
 */
struct swap_life {
	u32			generation;
	enum swap_life_state	state;
	bool			mute;
	bool			again;
	int			sock;
	int			status;
	pid_t			pid;
	struct swap_ring	ring;
};

/**
 * struct swap - all about swapd that hold knows
 * @life:     @nr of them, oldest first; only the last may run
 * @kvmm:     hold's end of the socket to kvmm, borrowed; -1: none
 * @pidfd:    of the one that runs; -1: none
 * @blocked:  the socket to kvmm is full
 * @killed:   the one that runs was killed by hold
 * @had_ring: the last one that was started had an io_uring
 * @ring_tries: in vain, to make the next one's
 * @ended:    it ended by itself, and is not started again for @run
 * @run:      generation of the HOLD_SWAP_RUN that is obeyed
 * @start_at: not before, in ms
 * @sandbox:  passed on; enum sandbox_mode
 * @user:     passed on; NULL: the default
 * @args:     options that are passed on, before what hold says itself; NULL: none
 */
struct swap {
	struct swap_life	life[SWAP_LIVES];
	u32			nr;
	u32			generation;
	const char		*exe;
	const sigset_t		*old_mask;
	int			kvmm;
	int			pidfd;
	bool			blocked;
	bool			killed;
	bool			had_ring;
	u32			ring_tries;
	bool			ended;
	u32			run;
	u32			backoff;
	u64			born;
	u64			start_at;
	u32			sandbox;
	const char		*user;
	char			**args;
};

/* @exe: path of swapd; @old_mask: signals that a child has blocked */
void swap_init(struct swap *sw, const char *exe, const sigset_t *old_mask);

/* A new kvmm took what is kept; @sock is hold's end. */
void swap_kvmm_up(struct swap *sw, int sock);

/* kvmm is dead: end its swapd, forget what it asked for. */
void swap_kvmm_gone(struct swap *sw, struct store *st);

/**
 * swap_work() - do what can be done now; never waits
 *
 * Call it after every poll() and after records came.
 */
void swap_work(struct swap *sw, struct store *st);

/* What to poll for: fills up to SWAP_POLL_MAX.  Return: how many. */
u32 swap_poll(const struct swap *sw, struct pollfd *p);

/* When swap_work() must be called at the latest, in ms; 0: no need. */
u64 swap_deadline(const struct swap *sw);

/* hold ends. */
void swap_exit(struct swap *sw);

/* ---- between swap.c and swap_tell.c ---- */

/* Tell what can be told now, and close lives of which nothing is left. */
void swap_tell(struct swap *sw);
void swap_life_close(struct swap *sw, struct swap_life *l);

#endif /* KVMM_HOLD_SWAP_H */
