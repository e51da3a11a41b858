// SPDX-License-Identifier: Apache-2.0
/*
 * host_map.c - the daemon's mappings of extents, for the copier
 *
 * A system call copies a page at a time and takes a lock for each.  Memory
 * accesses copy as fast as the memory is, but the first access to each page of a
 * mapping is a fault, which costs more than the call saves.  So a piece of an
 * extent is first copied by calls; with the second copy its pages are mapped at
 * once, which takes as long as the call would; after that it is copied by
 * accesses.  An extent that is never copied is never mapped.
 *
 * A client can do nothing to these accesses but change its own data.  The seals
 * keep the file's length.  A hole that a client punched gets a page of zeros at the
 * next access.  One failure is left: the kernel has no page, because memory has run
 * out, or the page is broken, and sends SIGBUS to the thread that touched it.
 * host_map_fault(), which the handler calls, then ends the copy with -EIO.
 *
 * A copy in flight pins the spans of its block, so the core releases no extent
 * that is copied: the copier and the mapper never use one entry of the table
 * at once, and the queues between them order their accesses.  Only the number of
 * mappings belongs to both.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/dev/host.h"

#define PIECE		(64u << 10)
#define STREAM_MIN	(256u << 10)
/* Each mapping is one of vm.max_map_count (65530), which malloc() needs, too. */
#define MAPS_MAX	16384u

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ	22
#endif

/* States of a piece. */
enum {
	PIECE_NEW,
	PIECE_CALLED,	/* it was copied by system calls */
	PIECE_MAPPED,	/* and then its pages were mapped */
};

/**
 * struct host_maps - the mappings of all extents
 * @nr:     extents
 * @pieces: of one extent
 * @count:  extents that are mapped; both threads change it
 * @base:   by the core's number; NULL: not mapped
 * @piece:  PIECE_*, @pieces for each extent
 */
struct host_maps {
	u32	nr;
	u32	pieces;
	u32	count;
	char	**base;
	u8	*piece;
};

/**
 * struct copy_guard - the extent that this thread copies by accesses
 * @bytes: 0: none
 * @env:   where the copy ends with an error
 */
static _Thread_local struct copy_guard {
	const char	*base;
	u64		bytes;
	sigjmp_buf	env;
} guard;

int host_reserve(struct kvmm_dev *dev, u64 pool_bytes)
{
	struct host_maps *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	dev->priv = m;
	m->nr = (u32)(pool_bytes / dev->extent_size);
	m->pieces = (u32)DIV_ROUND_UP(dev->extent_size, (u64)PIECE);
	m->base = calloc(m->nr, sizeof(*m->base));
	m->piece = calloc(m->nr, m->pieces);
	if (m->base && m->piece)
		return 0;
	pr_err("no memory for the table of %u extents", m->nr);
	return -ENOMEM;
}

void host_close(struct kvmm_dev *dev)
{
	struct host_maps *m = dev->priv;
	u32 i;

	if (!m)
		return;
	for (i = 0; m->base && i < m->nr; i++)
		host_map_forget(dev, i);
	free(m->base);
	free(m->piece);
	free(m);
	dev->priv = NULL;
}

void host_map_forget(struct kvmm_dev *dev, u32 extent)
{
	struct host_maps *m = dev->priv;

	if (!m || extent >= m->nr)
		return;
	memset(m->piece + (u64)extent * m->pieces, PIECE_NEW, m->pieces);
	if (!m->base[extent])
		return;
	munmap(m->base[extent], dev->extent_size);
	m->base[extent] = NULL;
	__atomic_fetch_sub(&m->count, 1, __ATOMIC_RELAXED);
}

/* ---- mapping ---- */

static int map_extent(struct kvmm_dev *dev, u32 extent, int fd)
{
	struct host_maps *m = dev->priv;
	char *p;

	if (READ_ONCE(m->count) >= MAPS_MAX || kv_fault(KV_FAULT_extent_map))
		return -ENOMEM;
	p = mmap(NULL, dev->extent_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		 fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	/* A core file of it would contain conversations of users. */
	(void)madvise(p, dev->extent_size, MADV_DONTDUMP);
	(void)madvise(p, dev->extent_size, MADV_DONTFORK);
	m->base[extent] = p;
	__atomic_fetch_add(&m->count, 1, __ATOMIC_RELAXED);
	return 0;
}

/*
 * Map the pages of the pieces [@first, @end).  To map them for reading is half the
 * work: the kernel then maps neighbours, too, and they can be written.
 */
static int map_pieces(struct kvmm_dev *dev, u32 extent, int fd, u32 first,
		      u32 end)
{
	struct host_maps *m = dev->priv;
	const u64 from = (u64)first * PIECE;
	const u64 to = min((u64)end * PIECE, dev->extent_size);
	int err = m->base[extent] ? 0 : map_extent(dev, extent, fd);

	if (err)
		return err;
	return madvise(m->base[extent] + from, to - from,
		       MADV_POPULATE_READ) ? -errno : 0;
}

/* The least state of the pieces [@first, @end). */
static u8 pieces_state(const u8 *piece, u32 first, u32 end)
{
	u8 state = PIECE_MAPPED;
	u32 i;

	for (i = first; i < end; i++)
		state = min(state, piece[i]);
	return state;
}

static void pieces_raise(u8 *piece, u32 first, u32 end, u8 state)
{
	u32 i;

	for (i = first; i < end; i++)
		piece[i] = max(piece[i], state);
}

/* Return: is the range mapped, with its pages? */
static bool map_range(struct kvmm_dev *dev, u32 extent, int fd, u64 off,
		      u64 len)
{
	struct host_maps *m = dev->priv;
	u8 *piece = m->piece + (u64)extent * m->pieces;
	const u32 first = (u32)(off / PIECE);
	const u32 end = (u32)DIV_ROUND_UP(off + len, (u64)PIECE);

	switch (pieces_state(piece, first, end)) {
	case PIECE_MAPPED:
		return true;
	case PIECE_CALLED:
		if (map_pieces(dev, extent, fd, first, end))
			return false;
		pieces_raise(piece, first, end, PIECE_MAPPED);
		return true;
	default:
		pieces_raise(piece, first, end, PIECE_CALLED);
		return false;
	}
}

/* ---- copying ---- */

#if defined(__x86_64__)

/*
 * Past the caches: the lines of @to need not be read before they are written,
 * and the data of others stays in the caches.
 */
static void copy_stream(char *to, const char *from, u64 len)
{
	const u64 head = min(-(uintptr_t)to % 16, len);

	memcpy(to, from, head);
	to += head;
	from += head;
	for (len -= head; len >= 64; len -= 64, to += 64, from += 64) {
		const __m128i *src = (const __m128i *)from;
		__m128i *dst = (__m128i *)to;
		__m128i a = _mm_loadu_si128(src);
		__m128i b = _mm_loadu_si128(src + 1);
		__m128i c = _mm_loadu_si128(src + 2);
		__m128i d = _mm_loadu_si128(src + 3);

		_mm_stream_si128(dst, a);
		_mm_stream_si128(dst + 1, b);
		_mm_stream_si128(dst + 2, c);
		_mm_stream_si128(dst + 3, d);
	}
	memcpy(to, from, len);
	/* Before any store that says that the copy is over. */
	_mm_sfence();
}

#else

static void copy_stream(char *to, const char *from, u64 len)
{
	memcpy(to, from, len);
}

#endif

static void copy_bytes(char *to, const char *from, u64 len)
{
	if (len >= STREAM_MIN)
		copy_stream(to, from, len);
	else
		memcpy(to, from, len);
}

/* The jump leaves SIGBUS blocked in this thread, where the next one would kill. */
static void unblock_sigbus(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void dev_copy_fault(const void *addr)
{
	if ((u64)((const char *)addr - guard.base) >= guard.bytes)
		return;
	guard.bytes = 0;
	siglongjmp(guard.env, 1);
}

int host_map_copy(struct kvmm_dev *dev, u32 extent, int fd, u64 off, void *buf,
		  u64 len, bool in)
{
	struct host_maps *m = dev->priv;
	char *at;

	if (!m || !map_range(dev, extent, fd, off, len))
		return -EAGAIN;
	at = m->base[extent] + off;
	if (sigsetjmp(guard.env, 0)) {
		unblock_sigbus();
		return -EIO;
	}
	guard.base = m->base[extent];
	/* The handler runs on this thread: the order of the compiler is enough. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	WRITE_ONCE(guard.bytes, dev->extent_size);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	copy_bytes(in ? at : buf, in ? buf : at, len);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	WRITE_ONCE(guard.bytes, 0);
	return 0;
}
