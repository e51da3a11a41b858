// SPDX-License-Identifier: Apache-2.0
/*
 * short_send.c - let sockets take only a part of the bytes
 *
 * Preloaded into a server, this library intercepts sendmsg() to a stream socket
 * that does not wait and carries only bytes.  Of ten calls three fail with
 * EAGAIN, three send only some of the bytes, and the others are made unchanged.
 * A full buffer has that effect, at any byte.  The kernel's own buffer is
 * minimal, so that even a slightly slow reader leaves many bytes behind.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <kvmm/types.h>

#define IOV_MAX_CUT	8u

static u32 draw_below(u32 n)
{
	static u32 state = 88172645u;
	u32 x = __atomic_load_n(&state, __ATOMIC_RELAXED);

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	__atomic_store_n(&state, x, __ATOMIC_RELAXED);
	return x % n;
}

static bool is_plain(int fd, const struct msghdr *msg, int flags)
{
	socklen_t len = sizeof(int);
	int type = 0;

	return (flags & MSG_DONTWAIT) && !msg->msg_control && !msg->msg_name &&
	       msg->msg_iovlen && msg->msg_iovlen <= IOV_MAX_CUT &&
	       !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) &&
	       type == SOCK_STREAM;
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct msghdr less = *msg;
	struct iovec iov[IOV_MAX_CUT];
	const int small = 1;
	size_t total = 0, i;
	u32 kind, left;

	kind = is_plain(fd, msg, flags) ? draw_below(10) : 10;
	if (kind < 10)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	if (kind < 3) {
		errno = EAGAIN;
		return -1;
	}
	for (i = 0; kind < 6 && i < msg->msg_iovlen; i++)
		total += msg->msg_iov[i].iov_len;
	if (kind < 6 && total > 1) {
		left = 1 + draw_below((u32)total - 1);
		for (i = 0; i < msg->msg_iovlen && left; i++) {
			iov[i] = msg->msg_iov[i];
			iov[i].iov_len = min(iov[i].iov_len, (size_t)left);
			left -= (u32)iov[i].iov_len;
		}
		less.msg_iov = iov;
		less.msg_iovlen = i;
	}
	return syscall(SYS_sendmsg, fd, &less, flags);
}
