// SPDX-License-Identifier: Apache-2.0
/*
 * upgrade.c - another program as kvmm
 *
 * An operator names a program, kvmm passes its file here and asks whether it
 * will do: whether it understands the arena that hold keeps.  The program says
 * so itself: with --arena-layout it prints a number and ends.  If that is the
 * number of the kvmm that runs, hold says yes; kvmm stops between two events
 * and ends with HOLD_EXIT_UPGRADE; hold starts the new one.  If that ends before
 * it did any work, the one before is started again.
 *
 * kvmm has fewer rights than hold, so hold does not run whatever kvmm sends: a
 * regular file of root's, or of hold's own user, that nobody else may write,
 * and that proves to be a kvmm.  Who is root in a container can make such a file
 * and pass it to a kvmm that was taken over, so hold must see it where it lies;
 * and who mounts a file system of his own says himself whose its files are.
 * What was looked at is what runs: it is executed by its descriptor.
 *
 * Context: hold's one thread, which waits up to PROBE_MS for the answer.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include <linux/magic.h>

#include <kvmm/log.h>

#include "kvmm/hold/upgrade.h"

#define PROBE_MS	5000
#define NO_FILE		(-2)

void upgrade_init(struct upgrade *u)
{
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

/* Does it lie, by the name it has, where hold sees it: in no other's mounts? */
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

/* Is it on a file system that a process of any user may serve? */
static bool file_is_served(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) ||
	       (fs.f_type == FUSE_SUPER_MAGIC && (fs.f_flags & ST_NOSUID));
}

/* Is it a file that only those may write who could replace hold, too? */
static bool file_is_trusted(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	       (!st.st_uid || st.st_uid == geteuid()) &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH)) && (st.st_mode & S_IXUSR) &&
	       file_is_seen(fd, &st) && !file_is_served(fd);
}

static void __noreturn probe_exec(int fd, int out)
{
	char *argv[] = { (char *)"kvmm", (char *)"--arena-layout", NULL };
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* A script is read by its name, which is this descriptor. */
	if (dup2(out, STDOUT_FILENO) >= 0 && !fcntl(fd, F_SETFD, 0))
		syscall(SYS_execveat, fd, "", argv, environ, AT_EMPTY_PATH);
	_exit(127);
}

static s64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (s64)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* What it prints, until it ends or the time for all of it is over. */
static void probe_read(int in, char *text, size_t len)
{
	struct pollfd p = { .fd = in, .events = POLLIN };
	const s64 end = now_ms() + PROBE_MS;
	size_t have = 0;
	ssize_t n = 1;

	while (have + 1 < len && n > 0 &&
	       poll(&p, 1, (int)max(end - now_ms(), (s64)0)) == 1) {
		n = read(in, text + have, len - 1 - have);
		have += n > 0 ? (size_t)n : 0;
	}
	text[have] = '\0';
}

/* Ask the program itself.  Return: 0 or a negative errno. */
static int layout_ask(int fd, u64 *layout)
{
	char text[64];
	int out[2], status = -1;
	unsigned long long value;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (!pid)
		probe_exec(fd, out[1]);
	close(out[1]);
	if (pid > 0) {
		probe_read(out[0], text, sizeof(text));
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	close(out[0]);
	if (pid < 0)
		return -EAGAIN;
	if (sscanf(text, "arena %llx", &value) != 1)
		return -ENOEXEC;
	*layout = value;
	return 0;
}

void upgrade_ask(struct upgrade *u, struct hold_record *r, int fd)
{
	u64 layout = 0;
	int err;

	file_forget(&u->next);
	if (fd < 0)
		err = -EBADF;
	else if (!file_is_trusted(fd))
		err = -EPERM;
	else
		err = layout_ask(fd, &layout);
	if (!err && layout != r->value && !r->index)
		err = -EXDEV;
	r->index = (u32)-err;
	r->value = layout;
	if (!err)
		u->next = fd;
	else if (fd >= 0)
		close(fd);
}

bool upgrade_done(struct upgrade *u, int status, bool works)
{
	const bool exits = WIFEXITED(status);

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
