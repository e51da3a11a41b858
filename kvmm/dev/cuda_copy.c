// SPDX-License-Identifier: Apache-2.0
/*
 * cuda_copy.c - copies between a GPU and the host pool
 *
 * Three streams, one for each direction and one for moves inside the device,
 * so that the two copy engines of a GPU work at once.  A stream ends its copies
 * in their order; an event behind each copy says whether it is over.  The caller
 * polls the events.  This file waits only after a failed copy, and no stream waits
 * for another: the core does not reuse a block before its copy is over.
 *
 * The host pool is registered in segments, since a driver pins a range as a
 * whole, and a copy that reaches over a seam is made in two calls.  Extents of
 * a span lie side by side in the range, so there is no seam among them.
 *
 * Context: the copier thread; host_open() and host_close() before or after it.
 */
#include <kvmm/log.h>

#include "kvmm/dev/cuda.h"

/* ---- lanes ---- */

static int lane_init(struct cuda_dev *g, struct cuda_lane *l)
{
	CUresult r;
	u32 i;

	r = g->cu->StreamCreateWithPriority(&l->stream, CU_STREAM_NON_BLOCKING,
					    0);
	for (i = 0; i < CUDA_LANE_DEPTH && !r; i++)
		r = g->cu->EventCreate(&l->done[i], CU_EVENT_DISABLE_TIMING);
	if (!r && (!l->stream || !l->done[CUDA_LANE_DEPTH - 1]))
		return cuda_lied("makes no streams for copies");
	if (!r)
		return 0;
	pr_err("the GPU cannot be used: streams for copies: %s",
	       cudrv_name(r));
	return cudrv_errno(r);
}

/* If it fails, cuda_lanes_exit() frees the lanes that were made. */
int cuda_lanes_init(struct cuda_dev *g)
{
	int err = 0;
	u32 i;

	for (i = 0; i < DEV_COPY_DIRS && !err; i++)
		err = lane_init(g, &g->lane[i]);
	return err;
}

void cuda_lanes_exit(struct cuda_dev *g)
{
	u32 i, n;

	for (i = 0; i < DEV_COPY_DIRS; i++) {
		struct cuda_lane *l = &g->lane[i];

		for (n = 0; n < CUDA_LANE_DEPTH; n++)
			if (l->done[n])
				(void)g->cu->EventDestroy(l->done[n]);
		if (l->stream)
			(void)g->cu->StreamDestroy(l->stream);
		*l = (struct cuda_lane){ .head = 0 };
	}
}

/* ---- the host pool ---- */

/* CUDA_SEGMENT is an int: the offset of the fifth segment needs 64 bits. */
static u64 segment_at(u32 i)
{
	return (u64)i * CUDA_SEGMENT;
}

static u64 segment_bytes(const struct cuda_dev *g, u32 i)
{
	return min(g->host_bytes - segment_at(i), (u64)CUDA_SEGMENT);
}

void cuda_host_close(struct kvmm_dev *dev)
{
	struct cuda_dev *g = cuda_of(dev);

	while (g->nr_segments--)
		(void)g->cu->MemHostUnregister(g->host +
					       segment_at(g->nr_segments));
	g->nr_segments = 0;
	g->host = NULL;
}

int cuda_host_open(struct kvmm_dev *dev, void *base, u64 bytes)
{
	struct cuda_dev *g = cuda_of(dev);
	CUresult r;
	int err = cuda_dev_enter(g);

	if (err)
		return err;
	g->host = base;
	g->host_bytes = bytes;
	while (g->nr_segments < DIV_ROUND_UP(bytes, CUDA_SEGMENT)) {
		const u32 i = g->nr_segments;

		r = g->cu->MemHostRegister(g->host + segment_at(i),
					   segment_bytes(g, i),
					   CU_MEMHOSTREGISTER_PORTABLE);
		if (r) {
			pr_err("the host pool cannot be registered with the GPU: %s: give a smaller --host-size, or raise the limit on locked memory (ulimit -l)",
			       cudrv_name(r));
			cuda_host_close(dev);
			return cudrv_errno(r);
		}
		g->nr_segments++;
	}
	return 0;
}

/* Bytes from a place of the host pool to the next seam. */
static u64 seam_left(const struct cuda_dev *g, const char *at)
{
	return CUDA_SEGMENT - (u64)(at - g->host) % CUDA_SEGMENT;
}

/* ---- copies ---- */

static CUresult copy_pieces(struct cuda_dev *g, struct cuda_lane *l,
			    const struct dev_copy *cp)
{
	const CUdeviceptr at = g->base + cp->dev_off;
	u64 done = 0, len;
	CUresult r = 0;

	if (cp->dir == DEV_COPY_WITHIN)
		return g->cu->MemcpyDtoDAsync(g->base + cp->dev_to, at,
					      cp->bytes, l->stream);
	for (; done < cp->bytes && !r; done += len) {
		char *host = cp->host + done;

		len = min(cp->bytes - done, seam_left(g, host));
		r = cp->dir == DEV_COPY_OUT ?
		    g->cu->MemcpyDtoHAsync(host, at + done, len, l->stream) :
		    g->cu->MemcpyHtoDAsync(at + done, host, len, l->stream);
	}
	return r;
}

int cuda_copy_begin(struct kvmm_dev *dev, const struct dev_copy *cp)
{
	struct cuda_dev *g = cuda_of(dev);
	struct cuda_lane *l = &g->lane[cp->dir];
	const u32 slot = l->tail % CUDA_LANE_DEPTH;
	int err = cuda_dev_enter(g);
	CUresult r;

	if (err)
		return err;
	if (l->tail - l->head == CUDA_LANE_DEPTH)
		return -EAGAIN;
	r = copy_pieces(g, l, cp);
	if (!r)
		r = g->cu->EventRecord(l->done[slot], l->stream);
	if (r) {
		/* Wait for pieces of the copy that may be under way. */
		const CUresult end = g->cu->StreamSynchronize(l->stream);

		if (end) {
			err = cuda_failed(g, "a copy", end);
			return err == -EIO ? err :
			       cuda_failed(g, "a copy", CUDA_ERROR_LAUNCH_FAILED);
		}
		err = cuda_failed(g, "a copy", r);
		return err == -EAGAIN ? -EIO : err;
	}
	l->id[slot] = cp->id;
	l->tail++;
	return 0;
}

/* Return: is the oldest copy of the lane over?  *@status has its result. */
static bool lane_ended(struct cuda_dev *g, struct cuda_lane *l, int *status)
{
	CUresult r;

	if (l->head == l->tail)
		return false;
	*status = cuda_dev_enter(g);
	if (*status)
		return true;
	r = g->cu->EventQuery(l->done[l->head % CUDA_LANE_DEPTH]);
	if (r == CUDA_ERROR_NOT_READY)
		return false;
	*status = r ? cuda_failed(g, "a copy", r) : 0;
	return true;
}

bool cuda_copy_end(struct kvmm_dev *dev, u64 *id, int *status)
{
	struct cuda_dev *g = cuda_of(dev);
	u32 i;

	for (i = 0; i < DEV_COPY_DIRS; i++) {
		struct cuda_lane *l = &g->lane[i];

		if (!lane_ended(g, l, status))
			continue;
		*id = l->id[l->head++ % CUDA_LANE_DEPTH];
		return true;
	}
	return false;
}
