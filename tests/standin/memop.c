// SPDX-License-Identifier: Apache-2.0
/*
 * memop.c - words that streams wait for and write, and batches of copies
 *
 * Only the programs of tests/gpu use these functions, so they are not in
 * cudrv.h and no fault of $KVMM_STANDIN_FAIL strikes them.  A wait keeps the
 * thread that runs the stream; another process may own the word.
 */
#include <sched.h>

#include "tests/gpu/gpu.h"
#include "tests/standin/driver.h"

#define x(name, symbol, args)						\
	__attribute__((visibility("default")))				\
	CUresult drv_##name args __asm__(symbol);
GPU_MORE_FUNCTIONS(x)
#undef x

static void wait_call(void *data)
{
	const u64 *d = data;
	u64 *word = (u64 *)(uintptr_t)d[0];

	while ((s64)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - d[1]) < 0)
		sched_yield();
}

static void write_call(void *data)
{
	const u64 *d = data;

	__atomic_store_n((u64 *)(uintptr_t)d[0], d[1], __ATOMIC_RELEASE);
}

static CUresult put_call(CUstream s, void (*fn)(void *), u64 addr, u64 value,
			 unsigned int flags)
{
	struct op o = { .type = OP_CALL };

	pthread_mutex_lock(&drv_lock);
	if (flags || addr % 8 ||
	    !range_covers(addr, 8, RANGE_DEVICE | RANGE_LOCKED))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	o.call.fn = fn;
	o.call.data[0] = addr;
	o.call.data[1] = value;
	return drv_leave(stream_put(s, &o));
}

CUresult drv_StreamWaitValue64(CUstream s, CUdeviceptr addr,
			       unsigned long long value, unsigned int flags)
{
	return put_call(s, wait_call, addr, value, flags);
}

CUresult drv_StreamWriteValue64(CUstream s, CUdeviceptr addr,
				unsigned long long value, unsigned int flags)
{
	return put_call(s, write_call, addr, value, flags);
}

CUresult drv_MemHostGetDevicePointer(CUdeviceptr *dev, void *p,
				     unsigned int flags)
{
	const u64 addr = (uintptr_t)p;

	pthread_mutex_lock(&drv_lock);
	if (flags || !range_covers(addr, 1, RANGE_LOCKED))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*dev = addr;
	return drv_leave(CUDA_SUCCESS);
}

CUresult drv_MemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes,
			      size_t nr, struct gpu_copy_attrs *attrs,
			      size_t *first, size_t nr_attrs, CUstream s)
{
	struct op o = { .type = OP_COPY };
	CUresult r = CUDA_SUCCESS;
	size_t i;

	pthread_mutex_lock(&drv_lock);
	/* The default stream is refused, and so are copies without attributes. */
	if (!s || !nr || nr_attrs != 1 || first[0] || attrs->order < 1 ||
	    attrs->order > 3)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	for (i = 0; i < nr && !r; i++) {
		if (!range_covers(to[i], sizes[i], RANGE_DEVICE | RANGE_LOCKED) ||
		    !range_covers(from[i], sizes[i],
				  RANGE_DEVICE | RANGE_LOCKED)) {
			r = CUDA_ERROR_INVALID_VALUE;
			break;
		}
		o.copy.to = to[i];
		o.copy.from = from[i];
		o.copy.bytes = sizes[i];
		o.copy.to_dev = range_covers(to[i], sizes[i], RANGE_DEVICE);
		o.copy.from_dev = range_covers(from[i], sizes[i], RANGE_DEVICE);
		r = stream_put(s, &o);
	}
	return drv_leave(r);
}
