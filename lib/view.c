// SPDX-License-Identifier: Apache-2.0
/*
 * view.c - the client side of the view socket
 *
 * An answer counts only if it is complete: as many bytes as its first line promises,
 * then the end of the stream.  So the caller can distinguish a daemon that died
 * while it answered from one that answered, and from one that was never there.  A
 * caller that waits for a trigger keeps the connection, and gets a line on it each
 * time the trigger fires.
 */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/rundir.h>
#include <kvmm/view.h>

#define HEAD_MAX	512
#define CHUNK		65536

int kv_view_path(const char *where, char *path)
{
	return kv_rundir_socket(where, KV_VIEW_SOCKET, path, KV_VIEW_PATH_MAX);
}

static int view_connect(const char *path, u32 timeout_ms, int *fd)
{
	struct timeval tv = {
		.tv_sec = timeout_ms / 1000,
		.tv_usec = timeout_ms % 1000 * 1000,
	};
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int s, err;

	if (strlen(path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	strcpy(sun.sun_path, path);

	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return -errno;
	if (setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) ||
	    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) ||
	    connect(s, (struct sockaddr *)&sun, sizeof(sun))) {
		err = errno == EAGAIN ? -ETIMEDOUT : -errno;
		close(s);
		return err;
	}
	*fd = s;
	return 0;
}

static int view_send(int fd, const char *buf, size_t len)
{
	ssize_t n;

	while (len) {
		n = send(fd, buf, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -ECONNABORTED;
		buf += n;
		len -= n;
	}
	return 0;
}

/* Receive all bytes up to the end of the stream. */
static int view_receive(int fd, struct seq_file *text)
{
	char buf[CHUNK];
	ssize_t n;

	for (;;) {
		n = recv(fd, buf, sizeof(buf), 0);
		if (!n)
			return seq_error(text);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -ECONNABORTED;
		seq_write(text, buf, n);
		if (seq_error(text))
			return seq_error(text);
	}
}

/* Remove the first @skip bytes of @text. */
static void text_skip(struct seq_file *text, size_t skip)
{
	text->count -= skip;
	memmove(text->buf, text->buf + skip, text->count + 1);
}

/*
 * Parse an answer, and leave only its content in @text.  An answer without a newline,
 * or with fewer bytes than promised, is cut.
 */
static int view_parse(struct seq_file *text, int *status)
{
	const char *start = seq_text(text);
	const char *eol = memchr(start, '\n', text->count);
	unsigned long long bytes;
	int used = 0, err;
	size_t head;

	if (!eol)
		return text->count < HEAD_MAX ? -ECONNABORTED : -EPROTO;
	head = eol - start + 1;

	if (sscanf(start, "error %d %n", &err, &used) == 1 && used &&
	    (size_t)used < head && err > 0) {
		if (head != text->count)
			return -EPROTO;
		text->buf[--text->count] = '\0';
		text_skip(text, used);
		*status = err;
		return 0;
	}
	if (sscanf(start, "ok %llu%n", &bytes, &used) != 1 ||
	    (size_t)used + 1 != head)
		return -EPROTO;
	if (text->count - head < bytes)
		return -ECONNABORTED;
	if (text->count - head > bytes)
		return -EPROTO;
	text_skip(text, head);
	*status = 0;
	return 0;
}

int kv_view_ask(const char *path, const char *req, u32 timeout_ms,
		int *status, struct seq_file *text)
{
	int fd = -1, err;

	seq_reset(text);
	err = view_connect(path, timeout_ms, &fd);
	if (err)
		return err;

	err = view_send(fd, req, strlen(req));
	if (!err)
		err = view_send(fd, "\n", 1);
	if (!err)
		err = view_receive(fd, text);
	if (!err)
		err = view_parse(text, status);
	close(fd);
	return err;
}

/* Receive the first line of the answer, but no byte after it. */
static int view_head(int fd, struct seq_file *text)
{
	ssize_t n;
	char c;

	while (text->count < HEAD_MAX) {
		n = recv(fd, &c, 1, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -ECONNABORTED;
		if (!n)
			return -ECONNABORTED;
		seq_putc(text, c);
		if (c == '\n')
			break;
	}
	return seq_error(text);
}

int kv_view_wait(const char *path, const char *req, u32 timeout_ms,
		 int *status, struct seq_file *text, int *fd)
{
	int s = -1, err;

	seq_reset(text);
	err = view_connect(path, timeout_ms, &s);
	if (err)
		return err;
	err = view_send(s, req, strlen(req));
	if (!err)
		err = view_send(s, "\n", 1);
	if (!err)
		err = view_head(s, text);
	if (!err)
		err = view_parse(text, status);
	if (err || *status)
		close(s);
	else
		*fd = s;
	return err;
}

int kv_view_fired(int fd)
{
	char buf[256];
	int nr = 0, i;
	ssize_t n;

	for (;;) {
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return nr;
		/* Report lines that came before the end first. */
		if (n <= 0)
			return nr ? nr : -ECONNABORTED;
		for (i = 0; i < n; i++)
			nr += buf[i] == '\n';
	}
}
