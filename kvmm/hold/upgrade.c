// SPDX-License-Identifier: Apache-2.0
/*
 * upgrade.c - another program as kvmm
 *
 * An operator names a program.  kvmm passes its file here and asks whether the
 * program understands the arena that hold keeps.  Hold asks the program: with
 * --arena-layout it prints a number and ends.  If that is the number of the
 * running kvmm, hold says yes; kvmm stops between two events and ends with
 * HOLD_EXIT_UPGRADE; hold starts the new program.  If that ends before it did any
 * work, hold starts the program before again.
 *
 * kvmm has fewer rights than hold, so hold does not run any file that kvmm sends.
 * The file must be a regular one of root or of hold's own user, writable by no
 * other, and prove to be a kvmm.  Root in a container can make such a file and
 * pass it to a compromised kvmm, so hold must see the file under its name, too.  A
 * user can mount a file system and choose the owners of its files, so hold takes
 * no file from there.  Hold executes the file by the descriptor that it checked.
 * Until the program has proved to be a kvmm it has next to no rights (probe.c).
 *
 * Context: hold's one thread, which does not wait for the answer: it takes records
 * of kvmm meanwhile.  A new question replaces an open one, which is not answered.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <linux/magic.h>

#include <kvmm/log.h>

#include "kvmm/hold/upgrade.h"

#define NO_FILE		(-2)

void upgrade_init(struct upgrade *u, const char *user)
{
	probe_init(&u->probe);
	u->user = user;
	u->candidate = NO_FILE;
	u->runs = -1;
	u->next = NO_FILE;
	u->last = NO_FILE;
}

static void file_forget(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = NO_FILE;
}

/* Does hold see the file under its name, in its own mount namespace? */
static bool file_is_seen(int fd, const struct stat *here)
{
	char link[64], path[4096];
	struct stat there;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	return path[0] == '/' && !stat(path, &there) &&
	       here->st_dev == there.st_dev && here->st_ino == there.st_ino;
}

/* Is the file on a file system that a process of any user may serve? */
static bool file_is_served(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) ||
	       (fs.f_type == FUSE_SUPER_MAGIC && (fs.f_flags & ST_NOSUID));
}

/* Can only users that could replace hold, too, write the file? */
static bool file_is_trusted(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	       (!st.st_uid || st.st_uid == geteuid()) &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH)) && (st.st_mode & S_IXUSR) &&
	       file_is_seen(fd, &st) && !file_is_served(fd);
}

/* ---- questions ---- */

static void answer(struct upgrade *u, struct hold_record *r, int err, u64 layout)
{
	if (!err && layout != u->asked.value && !u->asked.index)
		err = -EXDEV;
	*r = u->asked;
	r->op = HOLD_TELL;
	r->index = (u32)-err;
	r->value = layout;
	file_forget(&u->next);
	if (!err)
		u->next = u->candidate;
	else if (u->candidate >= 0)
		close(u->candidate);
	u->candidate = NO_FILE;
}

bool upgrade_ask(struct upgrade *u, const struct hold_record *asked, int fd,
		 struct hold_record *r)
{
	int err;

	upgrade_cancel(u);
	u->asked = *asked;
	u->candidate = fd;
	if (fd < 0)
		err = -EBADF;
	else if (!file_is_trusted(fd))
		err = -EPERM;
	else
		err = probe_start(&u->probe, fd, u->user);
	if (err)
		answer(u, r, err, 0);
	return err;
}

bool upgrade_work(struct upgrade *u, struct hold_record *r)
{
	u64 layout = 0;
	int err;

	if (!u->probe.pid)
		return false;
	err = probe_take(&u->probe, &layout);
	if (err == -EAGAIN)
		return false;
	answer(u, r, err, layout);
	return true;
}

void upgrade_cancel(struct upgrade *u)
{
	probe_cancel(&u->probe);
	file_forget(&u->candidate);
	file_forget(&u->next);
}

bool upgrade_done(struct upgrade *u, int status, bool works)
{
	const bool exits = WIFEXITED(status);

	/* The child that asked has ended. */
	probe_cancel(&u->probe);
	file_forget(&u->candidate);
	if (works)
		file_forget(&u->last);
	if (exits && WEXITSTATUS(status) == HOLD_EXIT_UPGRADE &&
	    u->next != NO_FILE) {
		file_forget(&u->last);
		u->last = u->runs;
		u->runs = u->next;
		u->next = NO_FILE;
		return true;
	}
	file_forget(&u->next);
	if (u->last == NO_FILE || (exits && !WEXITSTATUS(status)))
		return false;
	pr_warn("the new kvmm ended before it did any work (%s %d): the one before is started again",
		exits ? "code" : "signal",
		exits ? WEXITSTATUS(status) : WTERMSIG(status));
	file_forget(&u->runs);
	u->runs = u->last;
	u->last = NO_FILE;
	return true;
}

void upgrade_exec(const struct upgrade *u, char *const argv[])
{
	if (u->runs < 0)
		return;
	syscall(SYS_execveat, u->runs, "", argv, environ, AT_EMPTY_PATH);
	pr_err("the new kvmm cannot be started: %s", strerror(errno));
	_exit(EX_OSERR);
}
