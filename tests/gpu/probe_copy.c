// SPDX-License-Identifier: Apache-2.0
/*
 * probe_copy.c - the best way to copy blocks
 *
 * Blocks between the pool and pinned memory, of 64 KiB to 8 MiB.  On the host
 * a block is contiguous; in the pool it is contiguous or, where a layer's
 * blocks are neighbours, one piece a layer.  Candidates:
 *
 *	copy	one call a block (contiguous)
 *	2d	one 2-D call a block (pieces)
 *	batch	one call for all, of contiguous blocks
 *	batch_pieces	the same, of pieces
 *	kernel	a kernel reads and writes pinned memory, contiguous
 *	kernel_pieces	the same, of pieces
 *
 * each from the host, to it, and both ways at once on two streams.  Rates are
 * of the wall clock, from the first call to the last byte, since the calls are
 * part of the cost; a rate both ways is the sum.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/probe.h"

#define PIECES		32u
#define REPEATS		5
#define ORDER_ANY	3		/* CU_MEMCPY_SRC_ACCESS_ORDER_ANY */

enum { COPY, COPY_2D, BATCH, BATCH_PIECES, KERNEL, KERNEL_PIECES, NR_HOWS };
static const char *const how_names[NR_HOWS] = {
	"copy", "2d", "batch", "batch_pieces", "kernel", "kernel_pieces",
};

/* One direction: a region of the pool, one of the host, a stream. */
struct lane {
	struct gpu	*g;
	CUstream	stream;
	CUdeviceptr	dev;
	u8		*host;
	u64		all;
	u64		block;
	bool		to_host;
	u64		*pairs;		/* [pieces][from, to], on the host */
	CUdeviceptr	dev_pairs;
	CUdeviceptr	*from;
	CUdeviceptr	*to;
	size_t		*sizes;
};

static bool in_pieces(u32 how)
{
	return how == COPY_2D || how == BATCH_PIECES || how == KERNEL_PIECES;
}

static u64 nr_blocks(const struct lane *l)
{
	return l->all / l->block;
}

/* The addresses of piece @i, or of block @i. */
static void ends_of(const struct lane *l, u64 i, bool pieces, u64 *from, u64 *to)
{
	const u64 width = l->block / PIECES;
	u64 dev, host, swap;

	if (pieces) {
		dev = l->dev + i % PIECES * nr_blocks(l) * width +
		      i / PIECES * width;
		host = (uintptr_t)l->host + i * width;
	} else {
		dev = l->dev + i * l->block;
		host = (uintptr_t)l->host + i * l->block;
	}
	*from = host;
	*to = dev;
	if (l->to_host) {
		swap = *from;
		*from = *to;
		*to = swap;
	}
}

static void plan(struct lane *l, u32 how)
{
	const bool pieces = in_pieces(how);
	const u64 nr = nr_blocks(l) * (pieces ? PIECES : 1);
	u64 i;

	for (i = 0; i < nr; i++) {
		ends_of(l, i, pieces, &l->pairs[2 * i], &l->pairs[2 * i + 1]);
		l->from[i] = l->pairs[2 * i];
		l->to[i] = l->pairs[2 * i + 1];
		l->sizes[i] = pieces ? l->block / PIECES : l->block;
	}
	GPU_DO(l->g->cu->MemcpyHtoDAsync(l->dev_pairs, l->pairs, nr * 16,
					 l->stream));
	GPU_DO(l->g->cu->StreamSynchronize(l->stream));
}

static void put_copies(struct lane *l)
{
	const struct cu_api *cu = l->g->cu;
	u64 i;

	for (i = 0; i < nr_blocks(l); i++) {
		if (l->to_host)
			GPU_DO(cu->MemcpyDtoHAsync((void *)(uintptr_t)l->to[i],
						   l->from[i], l->block,
						   l->stream));
		else
			GPU_DO(cu->MemcpyHtoDAsync(l->to[i],
					(const void *)(uintptr_t)l->from[i],
					l->block, l->stream));
	}
}

static void put_2d(struct lane *l)
{
	const u64 width = l->block / PIECES;
	struct cu_memcpy2d c = { .width = width, .height = PIECES };
	u64 i;

	for (i = 0; i < nr_blocks(l); i++) {
		if (l->to_host) {
			c.src_type = CU_MEMORYTYPE_DEVICE;
			c.src_dev = l->dev + i * width;
			c.src_pitch = nr_blocks(l) * width;
			c.dst_type = CU_MEMORYTYPE_HOST;
			c.dst_host = l->host + i * l->block;
			c.dst_pitch = width;
		} else {
			c.src_type = CU_MEMORYTYPE_HOST;
			c.src_host = l->host + i * l->block;
			c.src_pitch = width;
			c.dst_type = CU_MEMORYTYPE_DEVICE;
			c.dst_dev = l->dev + i * width;
			c.dst_pitch = nr_blocks(l) * width;
		}
		GPU_DO(l->g->cu->Memcpy2DAsync(&c, l->stream));
	}
}

static void put_batch(struct lane *l, bool pieces)
{
	struct gpu_copy_attrs a = { .order = ORDER_ANY };
	size_t first = 0;

	GPU_DO(l->g->more->MemcpyBatchAsync(l->to, l->from, l->sizes,
			nr_blocks(l) * (pieces ? PIECES : 1), &a, &first, 1,
			l->stream));
}

static void put_kernel(struct lane *l, bool pieces)
{
	struct p_gather_args a = {
		.pairs = (const u64 *)(uintptr_t)l->dev_pairs,
		.nr = nr_blocks(l) * (pieces ? PIECES : 1),
		.quads = l->block / (pieces ? PIECES : 1) / 16,
	};
	const u32 blocks = gpu_tiny ? 2 : 4 * l->g->sms;

	gpu_launch(l->g, gpu_kernel(l->g, "p_gather"),
		   a.nr < blocks ? a.nr : blocks, 1, 256, l->stream, &a);
}

static void put(struct lane *l, u32 how)
{
	if (how == COPY)
		put_copies(l);
	else if (how == COPY_2D)
		put_2d(l);
	else if (how == BATCH || how == BATCH_PIECES)
		put_batch(l, how == BATCH_PIECES);
	else
		put_kernel(l, how == KERNEL_PIECES);
}

/* Run the lanes once.  Return: GB/s of all together. */
static double run_lanes(struct lane *l, u32 nr, u32 how)
{
	const double start = gpu_now_us();
	u32 i;

	for (i = 0; i < nr; i++)
		put(&l[i], how);
	for (i = 0; i < nr; i++)
		GPU_DO(l[i].g->cu->StreamSynchronize(l[i].stream));
	return nr * l->all / (gpu_now_us() - start) / 1e3;
}

static void measure(struct lane *l, u32 nr, u32 how, const char *way,
		    double peer)
{
	const struct gpu_line line = { "GB/s", "one 64 MiB copy", peer, NULL };
	double gbs[REPEATS];
	u32 i;

	for (i = 0; i < nr; i++)
		plan(&l[i], how);
	run_lanes(l, nr, how);
	for (i = 0; i < REPEATS; i++)
		gbs[i] = run_lanes(l, nr, how);
	gpu_emit(&line, gbs, REPEATS, "copies.%s.%uK.%s", way,
		 (u32)(l->block / 1024), how_names[how]);
}

static void lane_open(struct gpu *g, struct lane *l, u64 all, bool to_host)
{
	const u64 most = all / (gpu_tiny ? 4096 : 65536) * PIECES;

	l->g = g;
	l->all = all;
	l->to_host = to_host;
	l->dev = probe_device(g, all);
	l->host = probe_host(g, all);
	l->dev_pairs = probe_device(g, most * 16);
	l->pairs = malloc(most * 16);
	l->from = malloc(most * 8);
	l->to = malloc(most * 8);
	l->sizes = malloc(most * sizeof(size_t));
	if (!l->pairs || !l->from || !l->to || !l->sizes)
		gpu_die("no memory for the plan of copies");
	probe_fill(g, l->dev, all, to_host);
	GPU_DO(g->cu->StreamCreateWithPriority(&l->stream,
					       CU_STREAM_NON_BLOCKING, 0));
}

/* Copy the whole regions of both lanes, 64 MiB at most a copy: limits of the bus. */
static void ceilings(struct lane *l, double *peer)
{
	peer[0] = peer[1] = peer[2] = 0;
	l[0].block = l[1].block = probe_bytes(64 * GPU_MIB);
	measure(&l[0], 1, COPY, "H2D", 0);
	measure(&l[1], 1, COPY, "D2H", 0);
	measure(l, 2, COPY, "both", 0);
	peer[0] = run_lanes(&l[0], 1, COPY);
	peer[1] = run_lanes(&l[1], 1, COPY);
	peer[2] = run_lanes(l, 2, COPY);
}

/* Does each way of copying carry the right bytes?  One round trip. */
static void verify(struct gpu *g, struct lane *l, u32 how)
{
	struct lane back = l[1];
	u64 wrong, not_zero;

	back.dev = l[0].dev;
	back.host = l[0].host;
	back.block = l[0].block;
	probe_fill(g, back.dev, back.all, 77);
	plan(&back, how);
	run_lanes(&back, 1, how);
	GPU_DO(g->cu->MemsetD8Async(l[0].dev, 0, l[0].all, g->stream));
	GPU_DO(g->cu->StreamSynchronize(g->stream));
	plan(&l[0], how);
	run_lanes(&l[0], 1, how);
	probe_check(g, l[0].dev, l[0].all, 77, &wrong, &not_zero);
	if (wrong)
		gpu_failed("the bytes are not those that were copied",
			   "copies.%s.verify", how_names[how]);
}

void part_copies(void)
{
	static const char *const ways[] = { "H2D", "D2H", "both" };
	static const u32 kib[] = { 64, 128, 256, 512, 1024, 2048, 4096, 8192 };
	const u64 all = probe_bytes(256 * GPU_MIB);
	struct lane l[2] = { { 0 }, { 0 } };
	double peer[3];
	struct gpu g;
	u32 i, how, way;

	probe_open(&g);
	lane_open(&g, &l[0], all, false);
	lane_open(&g, &l[1], all, true);
	ceilings(l, peer);
	for (how = 0; how < NR_HOWS; how++) {
		if ((how == BATCH || how == BATCH_PIECES) &&
		    !g.more->MemcpyBatchAsync) {
			gpu_skipped("this driver has no such call", "copies.%s",
				    how_names[how]);
			continue;
		}
		for (i = 0; i < (gpu_tiny ? 2 : 8); i++) {
			l[0].block = l[1].block = 1024ull * kib[i];
			if (i == 1)
				verify(&g, l, how);
			for (way = 0; way < 3; way++)
				measure(way == 1 ? &l[1] : l, way == 2 ? 2 : 1,
					how, ways[way], peer[way]);
		}
	}
}
