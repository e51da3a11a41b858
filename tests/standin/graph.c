// SPDX-License-Identifier: Apache-2.0
/*
 * graph.c - record a stream, and replay the recording; copies and fills
 *
 * A graph is a list of ops in the order in which they were recorded, which is
 * one of the orders that their dependences allow.  An op keeps addresses, and
 * that of a kernel also the bytes of its argument.  A stream that waits for an
 * event of a recording records, too, and the origin must wait for it before the
 * end.
 */
#include <stdlib.h>

#include "tests/standin/driver.h"

struct CUgraph_st {
	struct graph *g;
};

struct CUgraphExec_st {
	struct graph *g;
};

void graph_put(struct graph *g)
{
	struct op *o;

	if (!g || --g->refs)
		return;
	while ((o = g->head)) {
		g->head = o->next;
		op_drop(o);
	}
	free(g);
}

CUresult graph_add(CUstream s, const struct op *o)
{
	struct graph *g = s->capture;
	struct op *n;

	if (o->type == OP_RECORD) {
		o->record->capture = g;
		o->record->cap_stream = s;
		o->record->cap_at = g->nr;
		return CUDA_SUCCESS;
	}
	n = op_copy(o);
	if (!n)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*g->tail = n;
	g->tail = &n->next;
	s->cap_last = ++g->nr;
	return CUDA_SUCCESS;
}

/* @s waits for @e; the stream or the event or both are of a recording. */
CUresult graph_wait(CUstream s, CUevent e)
{
	CUstream of = e->cap_stream;

	if (!e->capture || (s->capture && s->capture != e->capture)) {
		if (s->capture)
			s->capture->broken = true;
		return CUDA_ERROR_CAPTURE_ISOLATION;
	}
	if (of->capture != e->capture)
		return CUDA_ERROR_CAPTURE_ISOLATION;
	if (!s->capture) {		/* joins */
		s->capture = e->capture;
		s->cap_last = e->capture->nr;
	} else if (s == e->capture->origin && of != s &&
		   e->cap_at >= of->cap_last) {
		of->cap_last = 0;	/* the origin waits for all its ops */
	}
	return CUDA_SUCCESS;
}

CUresult drv_StreamBeginCapture(CUstream stream, int mode)
{
	struct graph *g;

	ENTER(StreamBeginCapture, DRV_INIT | DRV_CONTEXT);
	if (!stream || !stream_of(stream) || stream->capture || mode < 0 ||
	    mode > 2)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	g = calloc(1, sizeof(*g));
	if (!g)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*g = (struct graph){ .refs = 1, .tail = &g->head, .origin = stream };
	stream->capture = g;
	drv_capturing(1);
	return drv_leave(CUDA_SUCCESS);
}

/* End the recording of @g; did its origin wait for all other streams? */
static CUresult close_capture(struct graph *g)
{
	CUresult r = g->broken ? CUDA_ERROR_CAPTURE_INVALIDATED : CUDA_SUCCESS;
	CUstream s;

	for (s = drv_streams; s; s = s->next) {
		if (s->capture != g)
			continue;
		s->capture = NULL;
		if (s != g->origin && s->cap_last && !r)
			r = CUDA_ERROR_CAPTURE_UNJOINED;
	}
	return r;
}

CUresult drv_StreamEndCapture(CUstream stream, CUgraph *graph)
{
	struct graph *g;
	CUresult r;

	ENTER(StreamEndCapture, DRV_INIT | DRV_CONTEXT);
	g = stream && stream_of(stream) ? stream->capture : NULL;
	*graph = NULL;
	if (!g || g->origin != stream)
		return drv_leave(CUDA_ERROR_CAPTURE_UNMATCHED);
	drv_capturing(-1);
	r = close_capture(g);
	if (!r)
		*graph = calloc(1, sizeof(**graph));
	if (!*graph) {
		graph_put(g);
		return drv_leave(r ? r : CUDA_ERROR_OUT_OF_MEMORY);
	}
	(*graph)->g = g;
	drv_count[COUNT_GRAPHS]++;
	return drv_leave(CUDA_SUCCESS);
}

/* A recorded graph never changes, so both share the ops. */
CUresult drv_GraphInstantiate(CUgraphExec *exec, CUgraph graph,
			      unsigned long long flags)
{
	ENTER(GraphInstantiate, DRV_INIT | DRV_CONTEXT);
	if (!graph || flags)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*exec = calloc(1, sizeof(**exec));
	if (!*exec)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	(*exec)->g = graph->g;
	graph->g->refs++;
	drv_count[COUNT_GRAPHS]++;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_GraphLaunch(CUgraphExec exec, CUstream stream)
{
	struct op o = { .type = OP_GRAPH };
	CUstream s;

	ENTER(GraphLaunch, DRV_INIT | DRV_CONTEXT);
	s = stream_of(stream);
	if (!exec || !s)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	o.graph = exec->g;
	return drv_leave(stream_put(s, &o));
}

CUresult drv_GraphExecDestroy(CUgraphExec exec)
{
	ENTER(GraphExecDestroy, DRV_INIT | DRV_CONTEXT);
	if (!exec)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	graph_put(exec->g);
	free(exec);
	drv_count[COUNT_GRAPHS_GONE]++;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_GraphDestroy(CUgraph graph)
{
	ENTER(GraphDestroy, DRV_INIT | DRV_CONTEXT);
	if (!graph)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	graph_put(graph->g);
	free(graph);
	drv_count[COUNT_GRAPHS_GONE]++;
	return drv_leave(CUDA_SUCCESS);
}

/* ---- copies and fills ---- */

static CUresult put_copy(CUstream stream, u64 to, u64 from, u64 bytes,
			 bool to_dev, bool from_dev)
{
	struct op o = { .type = OP_COPY,
			.copy = { to, from, bytes, to_dev, from_dev } };
	CUstream s = stream_of(stream);

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!bytes)
		return CUDA_SUCCESS;
	if ((to_dev && !range_covers(to, bytes, RANGE_DEVICE)) ||
	    (from_dev && !range_covers(from, bytes, RANGE_DEVICE)) || !to ||
	    !from)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_put(s, &o);
}

CUresult drv_MemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes,
			     CUstream stream)
{
	ENTER(MemcpyHtoDAsync, DRV_INIT | DRV_CONTEXT);
	return drv_leave(put_copy(stream, to, (u64)(uintptr_t)from, bytes,
				  true, false));
}

CUresult drv_MemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes,
			     CUstream stream)
{
	ENTER(MemcpyDtoHAsync, DRV_INIT | DRV_CONTEXT);
	return drv_leave(put_copy(stream, (u64)(uintptr_t)to, from, bytes,
				  false, true));
}

CUresult drv_MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
			     CUstream stream)
{
	ENTER(MemcpyDtoDAsync, DRV_INIT | DRV_CONTEXT);
	return drv_leave(put_copy(stream, to, from, bytes, true, true));
}

static bool rows_good(int type, u64 dev, const void *host, u64 x, u64 y,
		      u64 pitch, u64 width, u64 height)
{
	u64 i;

	if (type == CU_MEMORYTYPE_HOST)
		return host && width <= pitch;
	if (type != CU_MEMORYTYPE_DEVICE || x + width > pitch)
		return false;
	for (i = 0; i < height; i++)
		if (!range_covers(dev + (y + i) * pitch + x, width,
				  RANGE_DEVICE))
			return false;
	return true;
}

CUresult drv_Memcpy2DAsync(const struct cu_memcpy2d *c, CUstream stream)
{
	struct op o = { .type = OP_COPY2D };
	CUstream s;

	ENTER(Memcpy2DAsync, DRV_INIT | DRV_CONTEXT);
	s = stream_of(stream);
	if (!s)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!rows_good(c->dst_type, c->dst_dev, c->dst_host, c->dst_x,
		       c->dst_y, c->dst_pitch, c->width, c->height) ||
	    !rows_good(c->src_type, c->src_dev, c->src_host, c->src_x,
		       c->src_y, c->src_pitch, c->width, c->height))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	o.copy2d = *c;
	return drv_leave(stream_put(s, &o));
}

static CUresult put_set(CUstream stream, u64 to, u32 value, u64 nr, u32 width)
{
	struct op o = { .type = OP_SET, .set = { to, nr, value, width } };
	CUstream s = stream_of(stream);

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!nr)
		return CUDA_SUCCESS;
	if (to % width || !range_covers(to, nr * width, RANGE_DEVICE))
		return CUDA_ERROR_INVALID_VALUE;
	return stream_put(s, &o);
}

CUresult drv_MemsetD8Async(CUdeviceptr to, unsigned char value, size_t nr,
			   CUstream stream)
{
	ENTER(MemsetD8Async, DRV_INIT | DRV_CONTEXT);
	return drv_leave(put_set(stream, to, value, nr, 1));
}

CUresult drv_MemsetD32Async(CUdeviceptr to, unsigned int value, size_t nr,
			    CUstream stream)
{
	ENTER(MemsetD32Async, DRV_INIT | DRV_CONTEXT);
	return drv_leave(put_set(stream, to, value, nr, 4));
}
