// SPDX-License-Identifier: Apache-2.0
/*
 * memory.c - memory that kvmm-hold keeps, and private copies of it
 *
 * The last daemon may have been taken over, and may have given the descriptor
 * of its memory to a process that writes to it for ever.  The next daemon
 * judges that memory with root's rights and then works in it, both only in a
 * copy.  Each page of the old file is read once, by pread(2) and never through
 * a mapping, so that a later write can only change the content that is copied.
 * Only a memfd is read: the server of another file could make a read hang.
 *
 * Holes of the old file stay holes.  To make a page costs more than to copy it,
 * so several threads copy where there is much to copy; they share nothing but
 * the number of the next piece.
 *
 * Context: start-up; the threads are gone when keep_copy() returns.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "kvmm/dev/memory.h"
#include "kvmm/ipc/deposit/deposit.h"

#define COPY_BUF	(256u << 10)	/* read at once; stays in the cache */
#define COPY_PIECE	(4ull << 20)	/* a thread takes one at a time */
#define COPY_THREADS	8u

/**
 * struct copy - what the threads share
 * @next: offset of the next piece
 * @err:  of a thread that failed
 */
struct copy {
	int	from;
	int	to;
	u64	bytes;
	u64	next;
	int	err;
};

/* Is there memory for a copy of all its pages? */
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

/* Copy the pages that are there: a hole reads as zeros in both files. */
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
		/* A hole may be punched meanwhile: copy one page at least. */
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

/* This thread copies too; without others it copies all. */
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

/*
 * Mapped on a boundary of 2 MiB, in pages of that size where the system gives
 * them: to map them again, few faults are enough.
 */
static void *map_shared(int fd, u64 bytes)
{
	const u64 room = bytes + HOSTPOOL_HUGE;
	char *at, *p, *end;

	at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
		  MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	p = (char *)ALIGN_UP((uintptr_t)at, HOSTPOOL_HUGE);
	end = p + ALIGN_UP(bytes, (u64)sysconf(_SC_PAGESIZE));
	if (mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 0) == MAP_FAILED) {
		munmap(at, room);
		return NULL;
	}
	if (p > at)
		munmap(at, (size_t)(p - at));
	if (at + room > end)
		munmap(end, (size_t)(at + room - end));
	if (bytes >= HOSTPOOL_HUGE)
		(void)madvise(p, bytes, MADV_HUGEPAGE);
	(void)madvise(p, bytes, MADV_DONTFORK);
	/* No core dump shows the activity of tenants. */
	(void)madvise(p, bytes, MADV_DONTDUMP);
	return p;
}

/**
 * keep_memory() - memory in a file that the next daemon can be given, mapped
 * @fd: takes its descriptor, -1 on failure
 * Return: the memory, or NULL with errno.
 */
void *keep_memory(const char *name, u64 bytes, int *fd)
{
	void *p = NULL;

	*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return NULL;
	if (!ftruncate(*fd, (off_t)bytes) &&
	    !fcntl(*fd, F_ADD_SEALS, DEV_SEALS))
		p = map_shared(*fd, bytes);
	if (p)
		return p;
	close(*fd);
	*fd = -1;
	return NULL;
}

/**
 * keep_copy() - a private copy of the memory in @from
 * @name:  of the new file, which is sealed as keep_memory() does
 * @from:  as keep_memory() made it, @bytes long, or it is refused
 * @bytes: of both
 * @fd:    takes the new descriptor, -1 on failure
 *
 * Return: the copy, mapped; or NULL with errno; ESTALE: @from is no such file.
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
