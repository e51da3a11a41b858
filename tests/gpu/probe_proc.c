// SPDX-License-Identifier: Apache-2.0
/*
 * probe_proc.c - the processes of the probe, and their messages
 *
 * A role is /proc/self/exe again with --role=NAME and its socket as descriptor
 * 3: a fresh process, since a driver does not survive fork().  Messages are of
 * one size, on a SOCK_SEQPACKET pair, each with at most one descriptor.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/probe.h"

#define ROLE_FD		3
#define PATIENCE_MS	60000

void role_start(struct role *r, const char *name, const char *env)
{
	char arg[64];
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		gpu_die("no socket pair");
	fflush(stdout);
	r->pid = fork();
	if (r->pid < 0)
		gpu_die("fork failed");
	if (!r->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (env)
			putenv((char *)(uintptr_t)env);
		/* dup2() to itself would leave it close-on-exec. */
		if (ends[1] == ROLE_FD)
			fcntl(ROLE_FD, F_SETFD, 0);
		else
			dup2(ends[1], ROLE_FD);
		snprintf(arg, sizeof(arg), "--role=%s", name);
		execl("/proc/self/exe", "role", arg,
		      gpu_tiny ? "--tiny" : NULL, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	r->sock = ends[0];
	r->pidfd = (int)syscall(SYS_pidfd_open, r->pid, 0);
}

void role_send(int sock, const struct role_msg *m, int fd)
{
	union {
		struct cmsghdr	align;
		char		bytes[CMSG_SPACE(sizeof(int))];
	} u;
	struct iovec iov = { (void *)(uintptr_t)m, sizeof(*m) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (fd >= 0) {
		memset(&u, 0, sizeof(u));
		msg.msg_control = &u;
		msg.msg_controllen = sizeof(u.bytes);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	if (sendmsg(sock, &msg, MSG_NOSIGNAL) != (ssize_t)sizeof(*m))
		gpu_die("a process of the probe is gone");
}

bool role_recv(int sock, struct role_msg *m, int *fd, int ms)
{
	union {
		struct cmsghdr	align;
		char		bytes[CMSG_SPACE(sizeof(int))];
	} u;
	struct iovec iov = { m, sizeof(*m) };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &u, .msg_controllen = sizeof(u.bytes),
	};
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct cmsghdr *c;

	if (fd)
		*fd = -1;
	if (poll(&p, 1, ms) <= 0)
		return false;
	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*m))
		return false;
	c = CMSG_FIRSTHDR(&msg);
	if (fd && c && c->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(c), sizeof(*fd));
	return true;
}

void role_ask(struct role *r, struct role_msg *m, int fd)
{
	role_send(r->sock, m, fd);
	if (!role_recv(r->sock, m, NULL, PATIENCE_MS))
		gpu_die("a process of the probe ended or says nothing");
}

static void role_reap(struct role *r)
{
	waitpid(r->pid, NULL, 0);
	close(r->sock);
	if (r->pidfd >= 0)
		close(r->pidfd);
	r->pid = 0;
}

double role_kill(struct role *r)
{
	const double start = gpu_now_us();
	struct pollfd p = { .fd = r->pidfd, .events = POLLIN };
	double us;

	kill(r->pid, SIGKILL);
	poll(&p, 1, PATIENCE_MS);
	us = gpu_now_us() - start;
	role_reap(r);
	return us;
}

void role_end(struct role *r)
{
	struct pollfd p = { .fd = r->pidfd, .events = POLLIN };

	if (!r->pid)
		return;
	shutdown(r->sock, SHUT_RDWR);
	if (r->pidfd >= 0 && poll(&p, 1, 10000) <= 0)
		kill(r->pid, SIGKILL);
	role_reap(r);
}

/* ---- a part that tests the roles, and needs no GPU ---- */

enum { SELF_ECHO, SELF_READ_FD, SELF_DIE };

static void self_role(int sock)
{
	struct role_msg m;
	char c = 0;
	int fd;

	while (role_recv(sock, &m, &fd, PATIENCE_MS)) {
		if (m.what == SELF_DIE)
			abort();
		if (m.what == SELF_READ_FD) {
			m.arg[0] = pread(fd, &c, 1, 0) == 1 ? (u8)c : 1000;
			close(fd);
		}
		m.arg[1] = (u64)getpid();
		role_send(sock, &m, -1);
	}
}

static void expect(bool ok, const char *what)
{
	gpu_fact(ok, "true", NULL, "self.%s", what);
	if (!ok)
		gpu_die("self: %s failed", what);
}

void part_self(void)
{
	struct role_msg m = { .what = SELF_ECHO, .arg = { 42 } };
	int fd = memfd_create("probe", MFD_CLOEXEC);
	struct role r;
	double v[9];
	u32 i;

	role_start(&r, "self", NULL);
	role_ask(&r, &m, -1);
	expect(m.arg[0] == 42 && m.arg[1] == (u64)r.pid, "echo");
	if (write(fd, "k", 1) != 1)
		gpu_die("memfd");
	m.what = SELF_READ_FD;
	role_ask(&r, &m, fd);
	expect(m.arg[0] == 'k', "descriptor");
	for (i = 0; i < 9; i++) {
		m.what = SELF_ECHO;
		v[i] = gpu_now_us();
		role_ask(&r, &m, -1);
		v[i] = gpu_now_us() - v[i];
	}
	gpu_emit(&(struct gpu_line){ .unit = "us" }, v, 9, "self.round_trip");
	m.what = SELF_DIE;
	role_send(r.sock, &m, -1);
	expect(!role_recv(r.sock, &m, NULL, PATIENCE_MS), "death_is_seen");
	role_end(&r);
	role_start(&r, "self", NULL);
	gpu_fact(role_kill(&r), "us", "SIGKILL to pidfd", "self.kill");
	close(fd);
}

const struct role_entry self_roles[] = { { "self", self_role }, { 0 } };
