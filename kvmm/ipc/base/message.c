// SPDX-License-Identifier: Apache-2.0
/*
 * message.c - send and receive a message and its descriptors, without waiting
 *
 * Closing a descriptor that a peer sent may take as long as the peer likes
 * (conn/closer.c).  So a message of a client is looked at before it is taken:
 * one that carries descriptors is refused and stays in the queue.
 */
#include <sys/socket.h>

#include <kvmm/fds.h>

#include "kvmm/ipc/base/base.h"

union fds_control {
	char		buf[CMSG_SPACE(KVMM_MAP_BATCH * sizeof(int))];
	struct cmsghdr	align;
};

/**
 * sock_recv() - read one message, without waiting; descriptors are refused
 *
 * Return: bytes; 0: end of file; -EAGAIN; -EBADMSG: it carried descriptors,
 * or is longer than @len; another negative errno.
 */
ssize_t sock_recv(int sock, void *buf, size_t len)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	/* There is no room for descriptors: MSG_CTRUNC says that some came. */
	do {
		n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_PEEK);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC))
		return -EBADMSG;
	/* Take the bytes that were looked at: a stream may have more by now. */
	do {
		n = recv(sock, buf, (size_t)n, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/**
 * sock_recv_fd() - read one message and the first descriptor that it carries
 * @flags: MSG_DONTWAIT, or 0 to wait
 * @fd:    -1: none came
 * @cut:   bytes or descriptors of the message found no room; NULL: not asked
 *
 * For kvmm-hold and operators alone, whose descriptors may be accepted.
 * Return: bytes, 0: end of file, or a negative errno.
 */
ssize_t sock_recv_fd(int sock, void *buf, size_t len, int flags, int *fd,
		     bool *cut)
{
	union {
		char		buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr	align;
	} control;
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	ssize_t n;

	*fd = -1;
	do {
		n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*fd = kv_fds_first(&msg);
	if (cut)
		*cut = msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	return n;
}

/**
 * sock_send() - send one message, without waiting
 * @fds: @nr_fds descriptors to go with it, at most KVMM_MAP_BATCH
 *
 * Return: 0 or a negative errno.
 */
int sock_send(int sock, const void *buf, size_t len, const int *fds,
	      u32 nr_fds)
{
	union fds_control control;
	struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm;
	ssize_t n;

	if (nr_fds) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(nr_fds * sizeof(int));
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(nr_fds * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, nr_fds * sizeof(int));
	}
	do {
		n = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}
