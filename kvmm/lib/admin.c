// SPDX-License-Identifier: Apache-2.0
/*
 * admin.c - the asking half of the admin socket
 */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/admin.h>
#include <kvmm/rundir.h>

int kv_admin_path(const char *view, char *path, size_t len)
{
	const char *slash = strrchr(view, '/');
	int dir = slash ? (int)(slash - view) + 1 : 0;
	int n = snprintf(path, len, "%.*s%s", dir, view, KV_ADMIN_SOCKET);

	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

static int admin_connect(const struct kv_admin *a, int *fd)
{
	struct timeval tv = {
		.tv_sec = a->timeout_ms / 1000,
		.tv_usec = a->timeout_ms % 1000 * 1000,
	};
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int err;

	if (strlen(a->path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	strcpy(sun.sun_path, a->path);
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return -errno;
	if (setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) ||
	    setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) ||
	    connect(*fd, (struct sockaddr *)&sun, sizeof(sun))) {
		err = errno == EAGAIN ? -ETIMEDOUT : -errno;
		close(*fd);
		return err;
	}
	return 0;
}

static int admin_send(int sock, const char *req, int fd)
{
	union {
		char		buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr	align;
	} control;
	struct iovec iov = {
		.iov_base = (void *)req, .iov_len = strlen(req),
	};
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm;
	ssize_t n;

	if (fd >= 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	}
	do {
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -ECONNABORTED;
	return 0;
}

/* One message of the answer.  Return: 1: there is more, 0: it was the last. */
static int admin_receive(struct kv_admin *a, int sock)
{
	char buf[KV_ADMIN_TEXT];
	int used = 0;
	ssize_t n;

	do {
		n = recv(sock, buf, sizeof(buf) - 1, 0);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n && errno == EAGAIN ? -ETIMEDOUT : -ECONNABORTED;
	buf[n] = '\0';
	if (!strncmp(buf, "progress ", 9)) {
		if (a->progress)
			a->progress(buf + 9);
		return 1;
	}
	if (!strncmp(buf, "ok ", 3)) {
		a->status = 0;
		strcpy(a->text, buf + 3);
		return 0;
	}
	if (sscanf(buf, "error %d %n", &a->status, &used) != 1 || !used ||
	    a->status <= 0)
		return -EPROTO;
	strcpy(a->text, buf + used);
	return 0;
}

int kv_admin_ask(struct kv_admin *a, const char *req)
{
	int sock = -1, err;

	a->text[0] = '\0';
	err = admin_connect(a, &sock);
	if (err)
		return err;
	err = admin_send(sock, req, a->fd);
	if (!err) {
		do {
			err = admin_receive(a, sock);
		} while (err > 0);
	}
	close(sock);
	return err;
}
