/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap.h - hold's part of swapd: start it, bury it, reap its completions
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
	LIFE_ENDED,	/* DOWN is to be sent */
	LIFE_REAPED,	/* its completions are to be sent, then DRAINED */
};

/**
 * struct swap_life - one start of swapd, until its last transfer is over
 * @mute:   the kvmm that it worked for is gone: no reports are sent
 * @sock:   kvmm's end of the control socket until UP was sent; else -1
 * @status: its wait status
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
 * struct swap - state of swapd
 * @life:     @nr of them, oldest first; only the last may run
 * @kvmm:     hold's end of the socket to kvmm, borrowed; -1: none
 * @pidfd:    of the running life; -1: none
 * @blocked:  the socket to kvmm is full
 * @killed:   hold killed the running life
 * @had_ring: the last life that was started had an io_uring
 * @ring_tries: failed tries to make the ring of the next life
 * @ended:    swapd ended by itself, and is not started again for @run
 * @run:      generation of the HOLD_SWAP_RUN that is obeyed
 * @start_at: earliest next start, in ms
 * @sandbox:  passed on; enum sandbox_mode
 * @user:     passed on; NULL: the default
 * @log_format: passed on
 * @args:     options to pass on, before those that hold adds; NULL: none
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
	u32			log_format;
	char			**args;
};

/* @exe: path of swapd; @old_mask: signals that a child has blocked */
void swap_init(struct swap *sw, const char *exe, const sigset_t *old_mask);

/* A new kvmm took the records; @sock is hold's end, -1: kvmm closed its end. */
void swap_kvmm_up(struct swap *sw, int sock);

/* kvmm is dead: end its swapd, drop its records for swapd. */
void swap_kvmm_gone(struct swap *sw, struct store *st);

/**
 * swap_work() - start, reap and report lives as far as possible; never waits
 *
 * Call it after every poll() and after records came.
 */
void swap_work(struct swap *sw, struct store *st);

/* Fill @p with up to SWAP_POLL_MAX descriptors to poll.  Return: their number. */
u32 swap_poll(const struct swap *sw, struct pollfd *p);

/* The latest time to call swap_work(), in ms; 0: no need. */
u64 swap_deadline(const struct swap *sw);

/* hold ends: end swapd and all lives. */
void swap_exit(struct swap *sw);

/* ---- between swap.c and swap_tell.c ---- */

/* Send the reports that kvmm can take now, and close lives that are over. */
void swap_tell(struct swap *sw);
void swap_life_close(struct swap *sw, struct swap_life *l);

#endif /* KVMM_HOLD_SWAP_H */
