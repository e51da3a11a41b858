// SPDX-License-Identifier: Apache-2.0
/*
 * peer.c - who is at the other end of a connection
 *
 * A client is known by a pidfd: it becomes readable when the process has
 * ended, and a signal sent through it can reach no other.  Kernels from 6.5
 * on give the pidfd of the process that connected (SO_PEERPIDFD).  Before,
 * it is opened by number and then checked, since the number may have been
 * given to another process meanwhile: the connection must still be open at
 * the other end, the process must belong to the user that connected, and it
 * must have started before we accepted.
 */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <kvmm/fault.h>

#include "kvmm/ipc/daemon.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD	77
#endif

/* Field 22 of /proc/PID/stat, in seconds since boot; -errno. */
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
	/* The name may hold anything, a parenthesis too: take the last. */
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
	/* It goes into logs and tables: one word of plain characters. */
	for (i = 0; info->comm[i]; i++) {
		if (info->comm[i] <= ' ' || info->comm[i] > '~')
			info->comm[i] = '_';
	}
}

/**
 * peer_identify() - fill in uid, pid, name and pidfd of a new connection
 * Return: 0, or -ESRCH when there is no process to hold on to.
 */
int peer_identify(int sock, struct client *c)
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
	c->pidfd.fd = fd;
	c->uid = cred.uid;
	c->info.pid = cred.pid;
	c->info.uid = cred.uid;
	peer_comm(&c->info);
	return 0;
}
