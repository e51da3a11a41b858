// SPDX-License-Identifier: Apache-2.0
/*
 * tiers_naive.c - the tiers without a daemon
 *
 * One thread moves a layer of a block after the other, in pieces of 64 KiB, by a
 * blocking read and a blocking write, through one buffer and the page cache of an
 * ordinary file: no queue, no registered memory, no sums.  The way out ends when
 * fdatasync() says that the disk has the bytes, since memory becomes free only
 * then.  The file's pages are dropped before the way in, as on a machine that
 * swaps because it has no memory left.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/bench/tiers.h"

#define WORDS	(TIERS_BLOCK / sizeof(u64))

static u64 first_word(u64 seed, u32 i)
{
	return (seed * TIERS_BLOCKS + i + 1) * 0x9e3779b97f4a7c15ull;
}

void tiers_fill(u64 *block, u64 seed, u32 i)
{
	u64 v = first_word(seed, i);
	size_t w;

	for (w = 0; w < WORDS; w++, v += 0x2545f4914f6cdd1dull)
		block[w] = v;
}

void tiers_verify(const u64 *block, u64 seed, u32 i, const char *who)
{
	u64 v = first_word(seed, i);
	size_t w;

	for (w = 0; w < WORDS; w++, v += 0x2545f4914f6cdd1dull)
		if (block[w] != v)
			bench_die("%s: block %u came back with another word at %zu",
				  who, i, w * sizeof(u64));
}

static u64 own_cpu_ns(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return ((u64)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000 +
		(u64)(r.ru_utime.tv_usec + r.ru_stime.tv_usec)) * 1000;
}

/* Move all pieces, one after the other, from @from to @to. */
static void move_all(struct tiers_naive *n, int from, int to)
{
	off_t at;

	for (at = 0; at < (off_t)TIERS_BYTES; at += TIERS_LAYER)
		if (pread(from, n->buf, TIERS_LAYER, at) != TIERS_LAYER ||
		    pwrite(to, n->buf, TIERS_LAYER, at) != TIERS_LAYER)
			bench_die("a layer cannot be moved: %s",
				  strerror(errno));
}

static void naive_out(struct tiers_naive *n, struct tiers_naive_phase *p)
{
	u64 start = bench_now(), cpu = own_cpu_ns();

	move_all(n, n->mem, n->fd);
	p->called = bench_now() - start;
	if (fdatasync(n->fd))
		bench_die("fdatasync: %s", strerror(errno));
	p->ns = bench_now() - start;
	p->cpu_ns = own_cpu_ns() - cpu;
}

static void naive_in(struct tiers_naive *n, struct tiers_naive_phase *p)
{
	u64 start, cpu;

	if (posix_fadvise(n->fd, 0, 0, POSIX_FADV_DONTNEED))
		bench_die("the page cache keeps the file");
	start = bench_now();
	cpu = own_cpu_ns();
	move_all(n, n->fd, n->mem);
	p->ns = bench_now() - start;
	p->called = p->ns;
	p->cpu_ns = own_cpu_ns() - cpu;
}

void tiers_naive_round(struct tiers_naive *n, u64 seed,
		       struct tiers_naive_phase *out,
		       struct tiers_naive_phase *in)
{
	u32 i;

	for (i = 0; i < TIERS_BLOCKS; i++)
		tiers_fill(n->map + i * WORDS, seed, i);
	naive_out(n, out);
	memset(n->map, 0, TIERS_BYTES);
	naive_in(n, in);
	for (i = 0; i < TIERS_BLOCKS; i++)
		tiers_verify(n->map + i * WORDS, seed, i, "naive");
}

void tiers_naive_start(struct tiers_naive *n, const char *dir)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/naive.dat", dir);
	n->mem = memfd_create("naive", MFD_CLOEXEC);
	n->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	n->buf = aligned_alloc(4096, TIERS_LAYER);
	if (n->mem < 0 || n->fd < 0 || !n->buf ||
	    ftruncate(n->mem, (off_t)TIERS_BYTES) ||
	    posix_fallocate(n->mem, 0, (off_t)TIERS_BYTES) ||
	    posix_fallocate(n->fd, 0, (off_t)TIERS_BYTES))
		bench_die("%s: no room for %llu MiB", path,
			  (unsigned long long)TIERS_BYTES >> 20);
	unlink(path);
	n->map = mmap(NULL, TIERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		      n->mem, 0);
	if (n->map == MAP_FAILED)
		bench_die("no memory: %s", strerror(errno));
}

void tiers_naive_stop(struct tiers_naive *n)
{
	munmap(n->map, TIERS_BYTES);
	close(n->mem);
	close(n->fd);
	free(n->buf);
}
