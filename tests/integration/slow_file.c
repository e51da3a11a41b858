// SPDX-License-Identifier: Apache-2.0
/*
 * slow_file.c - a slow file, or one that lies
 *
 * A FUSE server of a file system with one file, mounted on a file.  It speaks
 * the protocol itself, since it needs only a dozen requests, and serves them
 * one at a time, so that they queue as at a disk.  The content is in the
 * server's memory.
 *
 * A file that lies is honest in its first MiB, where a swap area has its
 * superblock.  Behind it the server fails a transfer, delays it, stores a part
 * or nothing of the data, or flips bits; or the disk is full after a number of
 * pages.  The test shares the tally.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/integration/throttle.h"

#include "swapd/shim.h"

#define SLOW_WRITE_MAX	(128u << 10)
#define HONEST_BYTES	(1u << 20)

/**
 * struct slow_file - state of the server
 * @bad:  the way in which it lies; all 0: it is honest
 * @full: a byte for each page: it was written
 * @used: number of such pages
 * @in:   the request: head, body, data
 */
struct slow_file {
	struct bad_file	bad;
	u8	*full;
	u64	used;
	u64	rng;
	int	fd;
	u32	mib;
	u64	bytes;
	u8	*data;
	u64	in[(SLOW_WRITE_MAX + 4096) / 8];
};

static void slow_answer(struct slow_file *f, int err, const void *body,
			size_t len)
{
	const struct fuse_in_header *h = (const void *)f->in;
	struct fuse_out_header out = {
		.len = (u32)(sizeof(out) + (err ? 0 : len)),
		.error = err,
		.unique = h->unique,
	};
	struct iovec iov[] = {
		{ &out, sizeof(out) }, { (void *)(uintptr_t)body, len },
	};

	/* The kernel may have given up the request. */
	if (writev(f->fd, iov, err || !len ? 1 : 2) < 0 && errno != ENOENT)
		_exit(1);
}

static void slow_init(struct slow_file *f)
{
	const struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = FUSE_KERNEL_MINOR_VERSION,
		.max_readahead = 0,
		.flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES,
		.max_background = 64,
		.congestion_threshold = 64,
		.max_write = SLOW_WRITE_MAX,
		.time_gran = 1,
	};

	slow_answer(f, 0, &out, sizeof(out));
}

static void slow_attr(struct slow_file *f)
{
	const struct fuse_attr_out out = {
		.attr_valid = 3600,
		.attr = {
			.ino = FUSE_ROOT_ID, .size = f->bytes,
			.blocks = f->bytes / 512, .mode = S_IFREG | 0600,
			.nlink = 1, .blksize = 4096,
		},
	};

	slow_answer(f, 0, &out, sizeof(out));
}

/* Wait as long as a disk of that many MiB/s would. */
static void slow_down(const struct slow_file *f, u32 bytes)
{
	if (f->mib)
		usleep((useconds_t)max(bytes / f->mib * 1000000ull >> 20, 1ull));
}

/* ---- lies ---- */

static u32 bad_random(struct slow_file *f, u32 n)
{
	f->rng = f->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((f->rng >> 33) % n);
}

static void bad_count(struct slow_file *f, enum shim_kind kind)
{
	__atomic_fetch_add(&f->bad.tally->done[kind], 1, __ATOMIC_RELAXED);
}

/* Choose the fault of this transfer. */
static u32 bad_pick(struct slow_file *f, const struct fuse_write_in *w, bool wr)
{
	static const u32 of_read[] = {
		SHIM_eio, SHIM_delay, SHIM_flip_payload,
	};
	static const u32 of_write[] = {
		SHIM_eio, SHIM_delay, SHIM_torn, SHIM_lost,
	};
	u32 kind;

	if (!f->bad.tally || READ_ONCE(f->bad.tally->off) ||
	    w->offset < HONEST_BYTES || w->size < 1024 ||
	    bad_random(f, 1000) >= f->bad.rate)
		return SHIM_NONE;
	kind = wr ? of_write[bad_random(f, ARRAY_SIZE(of_write))] :
		    of_read[bad_random(f, ARRAY_SIZE(of_read))];
	bad_count(f, kind);
	if (kind == SHIM_delay)
		usleep((bad_random(f, f->bad.delay_ms) + 1) * 1000);
	return kind;
}

/* Is there room for the data?  A page written before has room. */
static bool bad_room(struct slow_file *f, u64 offset, u32 size)
{
	u64 page;

	for (page = offset >> 12; f->bad.room &&
	     page << 12 < offset + size; page++) {
		if (f->full[page])
			continue;
		if (f->used << 12 >= f->bad.room) {
			bad_count(f, SHIM_enospc);
			return false;
		}
		f->full[page] = 1;
		f->used++;
	}
	return true;
}

/* ---- requests ---- */

static void slow_transfer(struct slow_file *f, bool wr)
{
	/* Both requests begin in the same way: fh, offset, size. */
	const struct fuse_write_in *w = (const void *)((u8 *)f->in +
						sizeof(struct fuse_in_header));
	const struct fuse_write_out out = { .size = w->size };
	u32 lie;

	if (w->offset > f->bytes || w->size > f->bytes - w->offset ||
	    w->size > SLOW_WRITE_MAX) {
		slow_answer(f, -EIO, NULL, 0);
		return;
	}
	slow_down(f, w->size);
	lie = bad_pick(f, w, wr);
	if (lie == SHIM_eio) {
		slow_answer(f, -EIO, NULL, 0);
	} else if (!wr) {
		u8 *byte = f->data + w->offset + bad_random(f, w->size);

		*byte ^= lie == SHIM_flip_payload;
		slow_answer(f, 0, f->data + w->offset, w->size);
		*byte ^= lie == SHIM_flip_payload;
	} else if (!bad_room(f, w->offset, w->size)) {
		slow_answer(f, -ENOSPC, NULL, 0);
	} else {
		memcpy(f->data + w->offset, w + 1, lie == SHIM_lost ? 0 :
		       lie == SHIM_torn ? w->size / 2 : w->size);
		slow_answer(f, 0, &out, sizeof(out));
	}
}

static void slow_one(struct slow_file *f)
{
	const struct fuse_open_out opened = {
		.fh = 1,
		/* Without direct I/O the page cache would hide the lies. */
		.open_flags = f->bad.tally ? FOPEN_DIRECT_IO : 0,
	};
	const struct fuse_statfs_out statfs = {
		.st = { .bsize = 4096, .frsize = 4096, .namelen = 255 },
	};

	switch (((const struct fuse_in_header *)f->in)->opcode) {
	case FUSE_INIT:
		slow_init(f);
		break;
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		slow_attr(f);
		break;
	case FUSE_OPEN:
		slow_answer(f, 0, &opened, sizeof(opened));
		break;
	case FUSE_STATFS:
		slow_answer(f, 0, &statfs, sizeof(statfs));
		break;
	case FUSE_READ:
	case FUSE_WRITE:
		slow_transfer(f, ((const struct fuse_in_header *)
				  f->in)->opcode == FUSE_WRITE);
		break;
	case FUSE_FLUSH:
	case FUSE_FSYNC:
	case FUSE_RELEASE:
	case FUSE_ACCESS:
		slow_answer(f, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		slow_answer(f, -ENOSYS, NULL, 0);
	}
}

static void __noreturn slow_serve(struct slow_file *f)
{
	ssize_t n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		n = read(f->fd, f->in, sizeof(f->in));
		if (n > 0)
			slow_one(f);
		else if (!n || (errno != EINTR && errno != ENOENT &&
				errno != EAGAIN))
			_exit(0);
	}
}

static pid_t file_serve(const char *path, u64 bytes, u32 mib,
			const struct bad_file *bad)
{
	static struct slow_file f;
	char options[96];
	pid_t pid;

	f.mib = mib;
	f.bytes = bytes;
	f.bad = *bad;
	f.rng = random_below(1000000000);
	if (bad->room)
		f.full = calloc(bytes >> 12, 1);
	if (bad->room && !f.full)
		return 0;
	f.fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (f.fd < 0)
		return 0;
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=100600,user_id=0,group_id=0", f.fd);
	f.data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (f.data == MAP_FAILED ||
	    mount("slow-file", path, "fuse", MS_NOSUID | MS_NODEV, options)) {
		close(f.fd);
		return 0;
	}
	fflush(stdout);
	pid = fork();
	if (!pid)
		slow_serve(&f);
	munmap(f.data, bytes);
	close(f.fd);
	if (pid > 0)
		return pid;
	umount2(path, MNT_DETACH);
	return 0;
}

pid_t slow_file_serve(const char *path, u64 bytes, u32 mib)
{
	const struct bad_file none = { 0 };

	return file_serve(path, bytes, mib, &none);
}

pid_t bad_file_serve(const char *path, u64 bytes, const struct bad_file *bad)
{
	return file_serve(path, bytes, 0, bad);
}
