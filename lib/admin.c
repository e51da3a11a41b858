// SPDX-License-Identifier: Apache-2.0
/*
 * admin.c - the client side of the admin socket
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/admin.h>
#include <kvmm/opts.h>
#include <kvmm/rundir.h>

int kv_admin_path(const char *view, char *path, size_t len)
{
	const char *slash = strrchr(view, '/');
	int dir = slash ? (int)(slash - view) + 1 : 0;
	int n = snprintf(path, len, "%.*s%s", dir, view, KV_ADMIN_SOCKET);

	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

/* Split domain/NAME/MARK.  Return: false if @path is no such path. */
static bool split_domain(const char *path, char *name, size_t len,
			 const char **mark)
{
	static const char dir[] = "domain/";
	const char *end;

	if (strncmp(path, dir, strlen(dir)))
		return false;
	path += strlen(dir);
	end = strrchr(path, '/');
	if (!end || end == path || !end[1] || (size_t)(end - path) >= len)
		return false;
	memcpy(name, path, (size_t)(end - path));
	name[end - path] = '\0';
	*mark = end + 1;
	return true;
}

/* Get NAME of pool/NAME/size. */
static bool split_pool(const char *path, char name[32])
{
	int end = 0;

	return sscanf(path, "pool/%31[^/]/size%n", name, &end) == 1 && end &&
	       !path[end];
}

/* There are at most 8 pools, so the number is one digit. */
bool kv_pool_parse(const char *name, size_t len, u32 *pool)
{
	if (len != 4 || memcmp(name, "gpu", 3) || name[3] < '0' || name[3] > '9')
		return false;
	*pool = (u32)(name[3] - '0');
	return true;
}

static int tune_request(const char *name, const char *value, char *req,
			size_t len)
{
	u64 number;
	int n;

	if (kv_parse_uint(value, &number))
		return -EINVAL;
	n = snprintf(req, len, "tune %" PRIu64 " %s", number, name);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

/* Get NAME of events/NAME/enable; "" for events/enable. */
static bool split_event(const char *path, char name[64])
{
	int end = 0;

	*name = '\0';
	if (!strcmp(path, "events/enable"))
		return true;
	return sscanf(path, "events/%63[^/ ]/enable%n", name, &end) == 1 && end &&
	       !path[end];
}

static int event_request(const char *name, const char *value, char *req,
			 size_t len)
{
	u64 number;
	int n;

	if (kv_parse_uint(value, &number))
		return -EINVAL;
	n = snprintf(req, len, "trace %" PRIu64 "%s%s", number,
		     *name ? " " : "", name);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

int kv_admin_set_request(const char *path, const char *value, char *req,
			 size_t len)
{
	char name[320], pool[32], event[64];
	const char *mark = NULL;
	bool is_pool;
	u64 bytes;
	int n;

	path += *path == '/';
	if (!strncmp(path, "sys/vm/", 7) && path[7])
		return tune_request(path + 7, value, req, len);
	if (split_event(path, event))
		return event_request(event, value, req, len);
	is_pool = split_pool(path, pool);
	if (!is_pool && (!split_domain(path, name, sizeof(name), &mark) ||
			 strncmp(mark, "memory.", 7)))
		return -ENOENT;
	if (!is_pool && !strcmp(value, "max"))
		bytes = UINT64_MAX;
	else if (kv_parse_size(value, &bytes))
		return -EINVAL;
	n = is_pool ? snprintf(req, len, "resize %" PRIu64 " %s", bytes, pool) :
		      snprintf(req, len, "set %s %" PRIu64 " %s", mark, bytes,
			       name);
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

/* Receive one message of the answer.  Return: 1: more follow, 0: it was the last. */
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
