/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount.h - hold's part of kvmm-proc: start it again, clean up after it
 */
#ifndef KVMM_HOLD_MOUNT_H
#define KVMM_HOLD_MOUNT_H

#include <poll.h>
#include <signal.h>

#include <kvmm/kvmm_options.h>

/**
 * struct mount - state of kvmm-proc
 * @wanted:   kvmm-proc is to run once kvmm serves
 * @mounts:   it mounts the files
 * @metrics:  address at which it serves metrics; NULL: it does not
 * @ended:    it ended by itself, and logged the reason: not started again
 * @pidfd:    of the running process; -1: none
 * @start_at: earliest next start, in ms
 * @exe:      path of the program
 * @dir:      of the sockets
 */
struct mount {
	bool		wanted;
	bool		mounts;
	bool		ended;
	bool		began;
	pid_t		pid;
	int		pidfd;
	u32		backoff;
	u64		born;
	u64		start_at;
	u32		sandbox;
	const char	*user;
	u32		log_format;
	const char	*metrics;
	const sigset_t	*old_mask;
	char		exe[4096];
	char		dir[4096];
};

/* Decide whether kvmm-proc is wanted.  The caller sets @m->exe. */
void mount_init(struct mount *m, const struct kvmm_options *o,
		const sigset_t *old_mask);

/**
 * mount_work() - start or reap kvmm-proc; never waits
 * @serves: kvmm has its sockets
 */
void mount_work(struct mount *m, bool serves);

/* The latest time to call mount_work(), in ms; 0: no need. */
u64 mount_deadline(const struct mount *m);

/* hold ends: end kvmm-proc and unmount its files. */
void mount_exit(struct mount *m);

#endif /* KVMM_HOLD_MOUNT_H */
