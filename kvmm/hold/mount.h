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
 * struct mount - all about kvmm-proc that hold knows
 * @wanted:   it is to run once kvmm serves
 * @mounts:   to mount the files
 * @metrics:  to serve metrics: where; NULL: not
 * @ended:    it ended by itself, and said why: it is not started again
 * @pidfd:    of the one that runs; -1: none
 * @start_at: not before, in ms
 * @exe:      its path
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
	const char	*metrics;
	const sigset_t	*old_mask;
	char		exe[4096];
	char		dir[4096];
};

/* @m->exe is set.  Decides whether it is wanted. */
void mount_init(struct mount *m, const struct kvmm_options *o,
		const sigset_t *old_mask);

/**
 * mount_work() - start it, bury it; never waits
 * @serves: kvmm has its sockets
 */
void mount_work(struct mount *m, bool serves);

/* When mount_work() must be called at the latest, in ms; 0: no need. */
u64 mount_deadline(const struct mount *m);

/* hold ends: so does it, and what it mounted goes. */
void mount_exit(struct mount *m);

#endif /* KVMM_HOLD_MOUNT_H */
