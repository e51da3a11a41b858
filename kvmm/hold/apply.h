/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply.h - requests of the file of options to a kvmm that runs
 */
#ifndef KVMM_HOLD_APPLY_H
#define KVMM_HOLD_APPLY_H

#include <signal.h>
#include <sys/types.h>

#include <kvmm/types.h>

/**
 * struct apply - requests to the admin socket, made by a child
 * @dir:   of the sockets
 * @pidfd: of the child that makes requests, -1: none
 * @req:   @nr requests for the next child
 */
struct apply {
	const char	*dir;
	const sigset_t	*old_mask;
	pid_t		pid;
	int		pidfd;
	u32		nr;
	char		**req;
};

void apply_init(struct apply *a, const char *dir, const sigset_t *old_mask);

/* Add the request `VERB REST`, as in kvmm/admin.h; `area SPEC` opens an area. */
void apply_add(struct apply *a, const char *verb, const char *rest);

/**
 * apply_work() - make the requests that are due, and reap the child; never waits
 * @serves: kvmm answers
 */
void apply_work(struct apply *a, bool serves);

/* hold ends: end the child. */
void apply_exit(struct apply *a);

#endif /* KVMM_HOLD_APPLY_H */
