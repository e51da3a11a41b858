// SPDX-License-Identifier: Apache-2.0
/*
 * process.c - processes by their pidfd: the peer of a connection, its end, SIGKILL
 *
 * A client is known by a pidfd.  The pidfd becomes readable when the process
 * has ended, and a signal sent through it reaches no other process.  Kernels
 * from 6.5 on give the pidfd of the process that connected (SO_PEERPIDFD).
 * On older kernels the pidfd is opened by the number of the process, which the
 * kernel may have given to another process meanwhile.  So it is checked then:
 * the connection must still be open at the other end, the process must belong
 * to the user that connected, and it must have started before the check.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <kvmm/fault.h>

#include "kvmm/ipc/base/base.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD	77
#endif

/* When the process started: field 22 of /proc/PID/stat, in seconds since boot; -errno. */
static s64 process_start(pid_t pid)
{
	char path[64], text[1024];
	unsigned long long ticks;
	size_t len;
	char *p;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return -ESRCH;
	len = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[len] = '\0';
	/* The name may contain parentheses: it ends at the last one. */
	p = strrchr(text, ')');
	if (!p || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			 &ticks) != 1)
		return -ESRCH;
	return (s64)(ticks / (unsigned long long)sysconf(_SC_CLK_TCK));
}

static bool peer_connected(int sock)
{
	struct pollfd p = { .fd = sock, .events = POLLRDHUP };

	return poll(&p, 1, 0) >= 0 && !(p.revents & (POLLHUP | POLLRDHUP));
}

static int pidfd_by_number(int sock, const struct ucred *cred)
{
	struct timespec now;
	struct stat st;
	char path[64];
	s64 start;
	int fd;

	clock_gettime(CLOCK_BOOTTIME, &now);
	fd = (int)syscall(SYS_pidfd_open, cred->pid, 0);
	if (fd < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/%d", (int)cred->pid);
	start = process_start(cred->pid);
	if (stat(path, &st) || st.st_uid != cred->uid || start < 0 ||
	    start > now.tv_sec || !peer_connected(sock)) {
		close(fd);
		return -ESRCH;
	}
	return fd;
}

static void peer_comm(struct proc_client_info *info)
{
	char path[64];
	size_t i, len;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)info->pid);
	f = fopen(path, "re");
	len = f ? fread(info->comm, 1, sizeof(info->comm) - 1, f) : 0;
	if (f)
		fclose(f);
	info->comm[len] = '\0';
	info->comm[strcspn(info->comm, "\n")] = '\0';
	/* Logs and tables want one word of printable characters. */
	for (i = 0; info->comm[i]; i++) {
		if (info->comm[i] <= ' ' || info->comm[i] > '~')
			info->comm[i] = '_';
	}
}

/**
 * peer_identify() - find the process at the other end of a new connection
 * @info: takes its number, user and name
 *
 * Return: its pidfd, -ESRCH when the process cannot be held, or another
 * negative errno.
 */
int peer_identify(int sock, struct proc_client_info *info)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int fd = -1;

	if (kv_fault(KV_FAULT_pidfd_open))
		return -ESRCH;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -errno;
	/* A process of another pid namespace has no number here. */
	if (cred.pid <= 0)
		return -ESRCH;
	len = sizeof(fd);
	if (kv_fault(KV_FAULT_peer_pidfd))
		fd = -ENOPROTOOPT;
	else if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len))
		fd = -errno;
	if (fd == -ENOPROTOOPT)
		fd = pidfd_by_number(sock, &cred);
	if (fd < 0)
		return fd;
	info->pid = cred.pid;
	info->uid = cred.uid;
	peer_comm(info);
	return fd;
}

/* pidfd_pid() - the number of the process, -1 when it is gone */
pid_t pidfd_pid(int pidfd)
{
	char path[64], line[128];
	int pid = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	if (f)
		fclose(f);
	return pid;
}

bool pidfd_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* pidfd_kill() - SIGKILL.  Return: 0; -ESRCH: it has ended; a negative errno. */
int pidfd_kill(int pidfd)
{
	return syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) ?
	       -errno : 0;
}

/* The words of @line as groups, behind those that are there.  Return: their number. */
static u32 groups_add(const char *line, gid_t **gids, u32 nr)
{
	unsigned long gid;
	gid_t *more;
	char *end;

	for (;; line = end) {
		gid = strtoul(line, &end, 10);
		if (end == line)
			return nr;
		more = realloc(*gids, (nr + 1) * sizeof(*more));
		if (!more)
			return nr;
		*gids = more;
		more[nr++] = (gid_t)gid;
	}
}

/**
 * process_groups() - the groups of a process, as they decide on its access to files
 * @pid:  a process or thread
 * @uid:  the user that it must have for access to files; else it has no groups here
 * @gids: takes them, for free(); NULL: none
 *
 * Where /proc hides the processes of other users (hidepid=), none are found.
 *
 * Return: their number.
 */
u32 process_groups(pid_t pid, uid_t uid, gid_t **gids)
{
	char path[64], *line = NULL;
	unsigned int fsuid, fsgid;
	bool is_its = false;
	size_t room = 0;
	u32 nr = 0;
	FILE *f;

	*gids = NULL;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && getline(&line, &room, f) > 0) {
		if (sscanf(line, "Uid: %*u %*u %*u %u", &fsuid) == 1)
			is_its = fsuid == uid;
		else if (is_its && sscanf(line, "Gid: %*u %*u %*u %u", &fsgid) == 1)
			nr = groups_add(strrchr(line, '\t'), gids, nr);
		else if (is_its && !strncmp(line, "Groups:", 7))
			nr = groups_add(line + 7, gids, nr);
	}
	free(line);
	if (f)
		fclose(f);
	return nr;
}
