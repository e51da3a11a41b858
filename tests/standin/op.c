// SPDX-License-Identifier: Apache-2.0
/*
 * op.c - run one op of a stream
 *
 * Copies and kernels run without drv_lock; kernels one at a time.  Addresses were
 * checked when the op was put into its stream and are checked again.  Memory that
 * was freed meanwhile is a defect of the caller, which a GPU would not always
 * report.
 */
#include <stdlib.h>
#include <time.h>

#include "tests/standin/driver.h"

static pthread_mutex_t shim_lock = PTHREAD_MUTEX_INITIALIZER;

u64 drv_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}

u64 op_wait_ns(struct op *o)
{
	const u64 takes = 1000 * drv_env("KVMM_STANDIN_COPY_US", 0);
	u64 now;

	if (!takes || (o->type != OP_COPY && o->type != OP_COPY2D))
		return 0;
	now = drv_now();
	if (!o->started)
		o->started = now;
	return o->started + takes > now ? o->started + takes - now : 0;
}

static void must_be(u64 addr, u64 bytes, bool dev)
{
	if (dev && !range_covers(addr, bytes, RANGE_DEVICE))
		drv_die("a copy runs after its device memory at %#llx was given back",
			(unsigned long long)addr);
}

static bool count_copy(u64 bytes)
{
	drv_count[COUNT_COPIED_BYTES] += bytes;
	if (!drv_fault_now(false))
		return true;
	drv_fault(CUDA_ERROR_ILLEGAL_ADDRESS);
	return false;
}

static void run_copy(const struct op *o)
{
	must_be(o->copy.to, o->copy.bytes, o->copy.to_dev);
	must_be(o->copy.from, o->copy.bytes, o->copy.from_dev);
	if (!count_copy(o->copy.bytes))
		return;
	pthread_mutex_unlock(&drv_lock);
	memmove((void *)(uintptr_t)o->copy.to,
		(const void *)(uintptr_t)o->copy.from, o->copy.bytes);
	pthread_mutex_lock(&drv_lock);
}

static void run_copy2d(const struct op *o)
{
	const struct cu_memcpy2d *c = &o->copy2d;
	const bool td = c->dst_type == CU_MEMORYTYPE_DEVICE;
	const bool fd = c->src_type == CU_MEMORYTYPE_DEVICE;
	const u64 to = (td ? c->dst_dev : (u64)(uintptr_t)c->dst_host) +
		       c->dst_y * c->dst_pitch + c->dst_x;
	const u64 from = (fd ? c->src_dev : (u64)(uintptr_t)c->src_host) +
			 c->src_y * c->src_pitch + c->src_x;
	u64 i;

	for (i = 0; i < c->height; i++) {
		must_be(to + i * c->dst_pitch, c->width, td);
		must_be(from + i * c->src_pitch, c->width, fd);
	}
	if (!count_copy(c->width * c->height))
		return;
	pthread_mutex_unlock(&drv_lock);
	for (i = 0; i < c->height; i++)
		memmove((void *)(uintptr_t)(to + i * c->dst_pitch),
			(const void *)(uintptr_t)(from + i * c->src_pitch),
			c->width);
	pthread_mutex_lock(&drv_lock);
}

static void run_set(const struct op *o)
{
	u32 *to = (u32 *)(uintptr_t)o->set.to;
	u64 i;

	must_be(o->set.to, o->set.nr * o->set.width, true);
	if (o->set.width == 1)
		memset(to, (int)o->set.value, o->set.nr);
	else
		for (i = 0; i < o->set.nr; i++)
			to[i] = o->set.value;
}

static void run_launch(const struct op *o)
{
	struct shim_launch l = o->launch.l;

	if (drv_fault_now(true)) {
		drv_fault(CUDA_ERROR_LAUNCH_FAILED);
		return;
	}
	l.args = o->launch.args;
	pthread_mutex_unlock(&drv_lock);
	pthread_mutex_lock(&shim_lock);
	shim_run(&l);
	pthread_mutex_unlock(&shim_lock);
	pthread_mutex_lock(&drv_lock);
}

static void run_record(const struct op *o, u64 seq)
{
	CUevent e = o->record;

	if (e->seq == seq)
		e->time = drv_now();
}

static void run_call(const struct op *o)
{
	u64 data[ARRAY_SIZE(o->call.data)];

	memcpy(data, o->call.data, sizeof(data));
	pthread_mutex_unlock(&drv_lock);
	o->call.fn(data);
	pthread_mutex_lock(&drv_lock);
}

static void run_graph(struct graph *g)
{
	struct op *o;

	for (o = g->head; o; o = o->next)
		op_run(o);
}

void op_run(struct op *o)
{
	if (drv_faulted() && o->type != OP_WAIT)
		return;
	switch (o->type) {
	case OP_COPY: run_copy(o); break;
	case OP_COPY2D: run_copy2d(o); break;
	case OP_SET: run_set(o); break;
	case OP_LAUNCH: run_launch(o); break;
	case OP_RECORD: run_record(o, o->seq); break;
	case OP_WAIT: stream_run(o->wait.stream, o->wait.seq); break;
	case OP_GRAPH: run_graph(o->graph); break;
	case OP_CALL: run_call(o); break;
	}
}
