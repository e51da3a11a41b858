// SPDX-License-Identifier: Apache-2.0
/*
 * output.c - standard output that never makes the engine wait
 *
 * Text is printed while steps are open, and a client whose step stays open too
 * long while others wait for memory is expelled.  So a slow reader, such as a
 * pager or a stopped terminal, must not stop this program: bytes that the
 * reader does not take at once are kept, and written when there is room.  Only
 * the end waits, when no step is open any more.
 *
 * The descriptor stays in blocking mode, since it may be shared with the shell:
 * poll() says that some bytes fit, and no more than that are written.
 */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cli/cli.h"

/* Bytes that fit after poll(): PIPE_BUF for a pipe; fewer for a terminal. */
#define OUTPUT_PIECE	4096u
#define OUTPUT_PIECE_TTY 256u
#define OUTPUT_CAP	65536u

void output_init(struct output *o, int fd)
{
	memset(o, 0, sizeof(*o));
	o->fd = fd;
	o->tty = isatty(fd) == 1;
}

static bool output_reserve(struct output *o, size_t len)
{
	size_t cap = o->cap ? o->cap : OUTPUT_CAP;
	char *buf;

	while (cap < o->len + len)
		cap *= 2;
	if (cap == o->cap)
		return true;
	buf = realloc(o->buf, cap);
	if (!buf) {
		o->err = -ENOMEM;
		return false;
	}
	o->buf = buf;
	o->cap = cap;
	return true;
}

/* output_write() - write @len bytes, now or later */
void output_write(struct output *o, const char *data, size_t len)
{
	if (!len || o->err || !output_reserve(o, len))
		return;
	memcpy(o->buf + o->len, data, len);
	o->len += len;
}

void output_puts(struct output *o, const char *s)
{
	output_write(o, s, strlen(s));
}

/* Is there room?  With @wait, wait for it. */
static bool output_ready(const struct output *o, bool wait)
{
	struct pollfd p = { .fd = o->fd, .events = POLLOUT };
	int n;

	do {
		n = poll(&p, 1, wait ? -1 : 0);
	} while (n < 0 && errno == EINTR && wait);
	return n > 0;		/* also when it is broken: write() gives the error */
}

static void output_push(struct output *o, bool wait)
{
	const size_t piece = o->tty ? OUTPUT_PIECE_TTY : OUTPUT_PIECE;
	size_t done = 0;
	ssize_t n;

	while (done < o->len && !o->err && output_ready(o, wait)) {
		n = write(o->fd, o->buf + done, min(o->len - done, piece));
		if (n >= 0)
			done += (size_t)n;
		else if (errno == EAGAIN && !wait)
			break;
		else if (errno != EINTR && errno != EAGAIN)
			o->err = -errno;
	}
	memmove(o->buf, o->buf + done, o->len - done);
	o->len -= done;
}

/* output_flush() - write as many bytes as fit without waiting */
void output_flush(struct output *o)
{
	if (o->len && !o->err)
		output_push(o, false);
}

/* output_close() - write the rest.  Return: 0, or the error of the output. */
int output_close(struct output *o)
{
	if (o->len && !o->err)
		output_push(o, true);
	free(o->buf);
	o->buf = NULL;
	o->len = 0;
	o->cap = 0;
	return o->err;
}
