// SPDX-License-Identifier: Apache-2.0
/*
 * keep_copy.c - a copy of what the last daemon kept, that nobody else has
 *
 * The daemon before this one may have been taken over, and may have given the
 * descriptor of its memory to others, who write to it for ever.  The next one
 * judges it with root's rights and goes on in it: both only in a copy.  Each
 * page of the old file is read once, by pread(2) and never through a mapping,
 * so that nothing done to the file can be felt here but as other content; and
 * only if it is a memfd: a read of what somebody serves may never end.
 *
 * Pages that are not there are not made.  A page costs more to make than to
 * copy, so several threads do it where there is much of it; they share nothing
 * but the number of the next piece.
 *
 * Context: start-up; the threads are gone when keep_copy() returns.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "kvmm/dev/memory.h"
#include "kvmm/ipc/daemon.h"

#define COPY_BUF	(256u << 10)	/* read at once; stays in the cache */
#define COPY_PIECE	(4ull << 20)	/* what a thread takes */
#define COPY_THREADS	8u

/**
 * struct copy - what the threads share
 * @next: piece that nobody has taken yet
 * @err:  of the first that failed
 */
struct copy {
	int	from;
	int	to;
	u64	bytes;
	u64	next;
	int	err;
};

/* Would a copy of all its pages leave room for others? */
static int copy_admit(int fd, u64 bytes)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	return dev_memory_admit(min((u64)st.st_blocks * 512, bytes));
}

static int write_all(int fd, const char *buf, u64 nr, u64 at)
{
	ssize_t n;

	while (nr) {
		n = pwrite(fd, buf, nr, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		buf += n;
		nr -= (u64)n;
		at += (u64)n;
	}
	return 0;
}

static int copy_range(const struct copy *c, char *buf, u64 at, u64 end)
{
	ssize_t n;
	int err;

	while (at < end) {
		n = pread(c->from, buf, min(end - at, (u64)COPY_BUF),
			  (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		err = write_all(c->to, buf, (u64)n, at);
		if (err)
			return err;
		at += (u64)n;
	}
	return 0;
}

/* What is not there reads as zeros, in a new file, too. */
static int copy_piece(const struct copy *c, char *buf, u64 at, u64 end)
{
	const u64 page = (u64)sysconf(_SC_PAGESIZE);
	u64 stop;
	off_t off;
	int err;

	while (at < end) {
		off = lseek(c->from, (off_t)at, SEEK_DATA);
		if (off < 0)
			return errno == ENXIO ? 0 : -errno;
		at = (u64)off;
		if (at >= end)
			return 0;
		off = lseek(c->from, off, SEEK_HOLE);
		if (off < 0)
			return -errno;
		/* Somebody may punch it out between the two: go on anyway. */
		stop = min(max((u64)off, at + page), end);
		err = copy_range(c, buf, at, stop);
		if (err)
			return err;
		at = stop;
	}
	return 0;
}

static void *copy_main(void *arg)
{
	struct copy *c = arg;
	char *buf = malloc(COPY_BUF);
	int err = buf ? 0 : -ENOMEM;

	while (!err && !READ_ONCE(c->err)) {
		const u64 at = __atomic_fetch_add(&c->next, COPY_PIECE,
						  __ATOMIC_RELAXED);

		if (at >= c->bytes)
			break;
		err = copy_piece(c, buf, at, min(at + COPY_PIECE, c->bytes));
	}
	if (err)
		WRITE_ONCE(c->err, err);
	free(buf);
	return NULL;
}

/* This thread is one of them; without others it does all of it. */
static int copy_data(struct copy *c)
{
	const u64 pieces = DIV_ROUND_UP(c->bytes, COPY_PIECE);
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t thread[COPY_THREADS - 1];
	u32 want = (u32)min(pieces, (u64)min(max(cpus, 1l),
					     (long)COPY_THREADS));
	u32 nr = 0;

	while (nr + 1 < want &&
	       !pthread_create(&thread[nr], NULL, copy_main, c))
		nr++;
	copy_main(c);
	while (nr)
		pthread_join(thread[--nr], NULL);
	return c->err;
}

/**
 * keep_copy() - memory with what @from holds, that nobody else has
 * @name:  of the new file, which is sealed as keep_memory() does
 * @from:  as keep_memory() made it, @bytes long, or it is refused
 * @bytes: of both
 * @fd:    the new one; -1 without it
 *
 * Return: the copy, mapped; or NULL, with errno: ESTALE: it is another's.
 */
void *keep_copy(const char *name, int from, u64 bytes, int *fd)
{
	struct copy c = { .from = from, .bytes = bytes };
	void *p;
	int err;

	*fd = -1;
	err = dev_memory_is_ours(from, bytes) ? copy_admit(from, bytes) : -ESTALE;
	if (err) {
		errno = -err;
		return NULL;
	}
	p = keep_memory(name, bytes, fd);
	if (!p)
		return NULL;
	c.to = *fd;
	err = copy_data(&c);
	if (!err)
		return p;
	munmap(p, bytes);
	close(*fd);
	*fd = -1;
	errno = -err;
	return NULL;
}
