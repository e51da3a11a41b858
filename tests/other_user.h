/* SPDX-License-Identifier: Apache-2.0 */
/*
 * other_user.h - become another user that can still reach the daemon
 */
#ifndef TESTS_OTHER_USER_H
#define TESTS_OTHER_USER_H

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * In a child of root's: become @uid and die with the parent.  The directories
 * above the socket may be closed to that user, so @path gets another path to
 * it.
 */
static inline bool other_user(uid_t uid, const char *socket, char *path,
			      size_t len)
{
	int fd = open(socket, O_PATH);

	if (fd < 0 || setgid(uid) || setuid(uid))
		return false;
	/* A change of user resets both. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_DUMPABLE, 1);
	snprintf(path, len, "/proc/self/fd/%d", fd);
	return true;
}

#endif /* TESTS_OTHER_USER_H */
