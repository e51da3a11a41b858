// SPDX-License-Identifier: Apache-2.0
/*
 * stream.c - streams and events: work that runs later than it was asked for
 *
 * A stream is a queue.  Its ops run when a caller waits for them or asks about
 * them, or now and then by lot.  So a host that changes or reads a buffer too
 * early gets wrong bytes.  A copy from or to memory that was not pinned is over
 * when the call returns, as with CUDA.
 *
 * An event is the number of an op in a stream, and is reached when that op is
 * done.  A thread that runs an op marks its stream running and may drop the lock;
 * other threads wait for drv_done.  Waiting goes from later calls to earlier ones,
 * so it makes no circle.
 */
#include <stdlib.h>
#include <time.h>

#include "tests/standin/driver.h"

struct CUstream_st *drv_streams;
static u32 nr_running;
static struct CUstream_st none = { .tail = &none.head, .alive = true };

CUstream stream_of(CUstream s)
{
	struct CUstream_st *i;

	if (!s)
		return &none;
	for (i = drv_streams; i; i = i->next)
		if (i == s)
			return s->alive ? s : NULL;
	return NULL;
}

static void event_put(CUevent e)
{
	if (!--e->refs)
		free(e);
}

void op_drop(struct op *o)
{
	if (o->type == OP_LAUNCH)
		free(o->launch.args);
	else if (o->type == OP_RECORD)
		event_put(o->record);
	else if (o->type == OP_GRAPH)
		graph_put(o->graph);
	free(o);
}

/* A copy of @o, with references to all that it uses. */
struct op *op_copy(const struct op *o)
{
	struct op *n = malloc(sizeof(*n));

	if (!n)
		return NULL;
	*n = *o;
	n->next = NULL;
	if (o->type == OP_RECORD)
		o->record->refs++;
	if (o->type == OP_GRAPH)
		o->graph->refs++;
	if (o->type != OP_LAUNCH)
		return n;
	n->launch.args = aligned_alloc(64, 4096);
	if (!n->launch.args) {
		free(n);
		return NULL;
	}
	memcpy(n->launch.args,
	       o->launch.args ? o->launch.args : o->launch.l.args,
	       shim_arg_bytes(o->launch.l.kernel));
	return n;
}

/*
 * GPU work of another library of the stand-in: run @fn with a copy of @data in
 * the order of the stream, or record it.
 */
__attribute__((visibility("default")))
CUresult standin_call(CUstream s, void (*fn)(void *), const void *data,
		      size_t bytes);

CUresult standin_call(CUstream s, void (*fn)(void *), const void *data,
		      size_t bytes)
{
	struct op o = { .type = OP_CALL, .call.fn = fn };
	CUresult r;

	if (bytes > sizeof(o.call.data))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(o.call.data, data, bytes);
	pthread_mutex_lock(&drv_lock);
	r = drv_faulted() ? CUDA_ERROR_LAUNCH_FAILED : stream_put(s, &o);
	if (!stream_busy())
		range_close();
	pthread_mutex_unlock(&drv_lock);
	return r;
}

bool stream_busy(void)
{
	return nr_running;
}

static void run_first(CUstream s)
{
	struct op *o = s->head;

	range_open();
	nr_running++;
	s->running = true;
	op_run(o);
	s->running = false;
	nr_running--;
	s->head = o->next;
	if (!s->head)
		s->tail = &s->head;
	s->done = o->seq;
	op_drop(o);
	pthread_cond_broadcast(&drv_done);
}

static void sleep_ns(u64 ns)
{
	const struct timespec t = { (time_t)(ns / 1000000000),
				    (long)(ns % 1000000000) };

	pthread_mutex_unlock(&drv_lock);
	nanosleep(&t, NULL);
	pthread_mutex_lock(&drv_lock);
}

void stream_run(CUstream s, u64 seq)
{
	while (s->done < seq) {
		u64 ns;

		if (s->running) {
			pthread_cond_wait(&drv_done, &drv_lock);
			continue;
		}
		ns = op_wait_ns(s->head);
		if (ns)
			sleep_ns(ns);
		else
			run_first(s);
	}
}

void stream_run_all(void)
{
	CUstream s;

	for (s = drv_streams; s; s = s->next)
		stream_run(s, s->issued);
	stream_run(&none, none.issued);
}

/* Could the first op run without waiting? */
static bool may_run(CUstream s, u32 depth)
{
	struct op *o = s->head;
	CUstream on;

	if (!o || s->running || op_wait_ns(o))
		return false;
	if (o->type != OP_WAIT || o->wait.stream->done >= o->wait.seq)
		return true;
	on = o->wait.stream;
	while (depth && on->done < o->wait.seq && may_run(on, depth - 1))
		run_first(on);
	return !s->running && s->head == o && on->done >= o->wait.seq;
}

/* Run at least one op if possible, so that repeated queries come to an end. */
void stream_poke(CUstream s)
{
	u64 nr = drv_draw() % 8;

	for (nr = nr == 7 ? 1000 : nr + 1; nr && may_run(s, 8); nr--)
		run_first(s);
}

/* The stream NULL is in order with all streams that are blocking. */
static void run_before(CUstream s)
{
	CUstream i;

	if (s != &none) {
		if (s->blocking)
			stream_run(&none, none.issued);
		return;
	}
	for (i = drv_streams; i; i = i->next)
		if (i->blocking)
			stream_run(i, i->issued);
}

/* Now and then some streams go on by themselves. */
static void chance(void)
{
	CUstream s;

	if (drv_draw() % 8)
		return;
	for (s = drv_streams; s; s = s->next)
		if (!(drv_draw() % 2))
			stream_poke(s);
}

/* Is it a copy with pageable memory, which the host may change after the call? */
static bool pageable(const struct op *o)
{
	const struct cu_memcpy2d *c = &o->copy2d;

	if (o->type == OP_COPY)
		return (!o->copy.to_dev && !range_covers(o->copy.to,
				o->copy.bytes, RANGE_LOCKED)) ||
		       (!o->copy.from_dev && !range_covers(o->copy.from,
				o->copy.bytes, RANGE_LOCKED));
	if (o->type != OP_COPY2D)
		return false;
	return (c->dst_type == CU_MEMORYTYPE_HOST &&
		!range_at((u64)(uintptr_t)c->dst_host)) ||
	       (c->src_type == CU_MEMORYTYPE_HOST &&
		!range_at((u64)(uintptr_t)c->src_host));
}

CUresult stream_put(CUstream s, const struct op *o)
{
	struct op *n;

	if (s->capture) {
		if (!pageable(o))
			return graph_add(s, o);
		s->capture->broken = true;
		return CUDA_ERROR_CAPTURE_UNSUPPORTED;
	}
	n = op_copy(o);
	if (!n)
		return CUDA_ERROR_OUT_OF_MEMORY;
	run_before(s);
	n->seq = ++s->issued;
	*s->tail = n;
	s->tail = &n->next;
	if (o->type == OP_RECORD) {
		o->record->stream = s;
		o->record->seq = n->seq;
		o->record->time = 0;
		o->record->capture = NULL;
	}
	if (s == &none || pageable(o))
		stream_run(s, s->issued);
	else
		chance();
	return CUDA_SUCCESS;
}

CUresult drv_StreamCreateWithPriority(CUstream *stream, unsigned int flags,
				      int priority)
{
	CUstream s;

	ENTER(StreamCreateWithPriority,
	      DRV_INIT | DRV_CONTEXT | DRV_NO_CAPTURE);
	s = calloc(1, sizeof(*s));
	if (!s || (flags & ~1u)) {
		free(s);
		return drv_leave(s ? CUDA_ERROR_INVALID_VALUE :
				     CUDA_ERROR_OUT_OF_MEMORY);
	}
	s->tail = &s->head;
	s->alive = true;
	s->blocking = !(flags & CU_STREAM_NON_BLOCKING);
	s->next = drv_streams;
	drv_streams = s;
	*stream = s;
	drv_count[COUNT_STREAMS]++;
	return drv_leave(CUDA_SUCCESS);
}

/* Events may refer to it for ever, so the structure is kept. */
CUresult drv_StreamDestroy(CUstream stream)
{
	ENTER(StreamDestroy, DRV_INIT | DRV_CONTEXT);
	if (!stream || !stream_of(stream) || stream->capture)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	stream_run(stream, stream->issued);
	stream->alive = false;
	drv_count[COUNT_STREAMS_GONE]++;
	return drv_leave(CUDA_SUCCESS);
}

/* Check a call that is not allowed for a stream that records. */
static CUresult usable(CUstream s)
{
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!s->capture)
		return CUDA_SUCCESS;
	s->capture->broken = true;
	return CUDA_ERROR_CAPTURE_UNSUPPORTED;
}

CUresult drv_StreamSynchronize(CUstream stream)
{
	CUstream s;
	CUresult r;

	ENTER(StreamSynchronize, DRV_INIT | DRV_CONTEXT);
	s = stream_of(stream);
	r = usable(s);
	if (!r)
		stream_run(s, s->issued);
	return drv_leave(r);
}

CUresult drv_StreamQuery(CUstream stream)
{
	CUstream s;
	CUresult r;

	ENTER(StreamQuery, DRV_INIT | DRV_CONTEXT);
	s = stream_of(stream);
	r = usable(s);
	if (!r) {
		const u64 seq = s->issued;

		stream_poke(s);
		r = s->done >= seq ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	}
	return drv_leave(r);
}

CUresult drv_StreamWaitEvent(CUstream stream, CUevent event,
			     unsigned int flags)
{
	struct op o = { .type = OP_WAIT };
	CUstream s;

	ENTER(StreamWaitEvent, DRV_INIT | DRV_CONTEXT);
	s = stream_of(stream);
	if (!s || !event || event->dead || flags)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (s->capture || event->capture)
		return drv_leave(graph_wait(s, event));
	if (!event->stream)
		return drv_leave(CUDA_SUCCESS);
	o.wait.stream = event->stream;
	o.wait.seq = event->seq;
	return drv_leave(stream_put(s, &o));
}

/* ---- events ---- */

CUresult drv_EventCreate(CUevent *event, unsigned int flags)
{
	CUevent e;

	ENTER(EventCreate, DRV_INIT | DRV_CONTEXT);
	e = calloc(1, sizeof(*e));
	if (!e)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	e->refs = 1;
	e->flags = flags;
	*event = e;
	drv_count[COUNT_EVENTS]++;
	return drv_leave(flags & ~7u ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

CUresult drv_EventDestroy(CUevent event)
{
	ENTER(EventDestroy, DRV_INIT | DRV_CONTEXT);
	if (!event || event->dead)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	event->dead = true;
	event_put(event);
	drv_count[COUNT_EVENTS_GONE]++;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_EventRecord(CUevent event, CUstream stream)
{
	struct op o = { .type = OP_RECORD, .record = event };
	CUstream s;

	ENTER(EventRecord, DRV_INIT | DRV_CONTEXT);
	s = stream_of(stream);
	if (!s || !event || event->dead)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	return drv_leave(stream_put(s, &o));
}

static bool reached(CUevent e)
{
	return !e->stream || e->stream->done >= e->seq;
}

CUresult drv_EventQuery(CUevent event)
{
	ENTER(EventQuery, DRV_INIT | DRV_CONTEXT);
	if (!event || event->dead)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (event->capture)
		return drv_leave(CUDA_ERROR_CAPTURE_UNSUPPORTED);
	if (!reached(event))
		stream_poke(event->stream);
	return drv_leave(reached(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult drv_EventSynchronize(CUevent event)
{
	ENTER(EventSynchronize, DRV_INIT | DRV_CONTEXT);
	if (!event || event->dead)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (event->capture)
		return drv_leave(CUDA_ERROR_CAPTURE_UNSUPPORTED);
	if (event->stream)
		stream_run(event->stream, event->seq);
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_EventElapsedTime(float *ms, CUevent from, CUevent to)
{
	ENTER(EventElapsedTime, DRV_INIT | DRV_CONTEXT);
	if (!from || !to || from->dead || to->dead || !from->stream ||
	    !to->stream ||
	    ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING))
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!reached(from) || !reached(to))
		return drv_leave(CUDA_ERROR_NOT_READY);
	*ms = (float)((double)(s64)(to->time - from->time) / 1e6);
	return drv_leave(CUDA_SUCCESS);
}
