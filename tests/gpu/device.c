// SPDX-License-Identifier: Apache-2.0
/*
 * device.c - a part's device: open, launch, time, and memory by handles
 *
 * The first error that a caller did not ask to see ends the process: a part that
 * goes on with a broken context measures nothing.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/gpu.h"

double gpu_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e6 * t.tv_sec + 1e-3 * t.tv_nsec;
}

const char *gpu_result(CUresult r)
{
	static char number[32];
	const char *name = r ? cudrv_name(r) : "success";

	if (strncmp(name, "an unknown", 10))
		return name;
	snprintf(number, sizeof(number), "CUresult %d", r);
	return number;
}

void gpu_must(CUresult r, const char *what, const char *file, int line)
{
	if (r)
		gpu_die("%s:%d: %s: %s", file, line, what, cudrv_name(r));
}

bool gpu_is_real(void)
{
	const char *name = getenv("KVMM_LIBCUDA");

	return !name || !*name || !strcmp(name, CUDRV_SONAME);
}

static const struct gpu_more *find_more(void)
{
	static struct gpu_more more;
	const char *name = getenv("KVMM_LIBCUDA");
	void *lib = dlopen(name && *name ? name : CUDRV_SONAME,
			   RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return &more;
#define x(fn, symbol, args)						\
	more.fn = (CUresult (*) args)(uintptr_t)dlsym(lib, symbol);
	GPU_MORE_FUNCTIONS(x)
#undef x
	return &more;
}

static int attribute(struct gpu *g, int which)
{
	int v = 0;

	GPU_DO(g->cu->DeviceGetAttribute(&v, which, g->dev));
	return v;
}

void gpu_open(struct gpu *g)
{
	char why[256];
	int nr = 0;

	memset(g, 0, sizeof(*g));
	g->cu = cudrv_open(why, sizeof(why));
	if (!g->cu || g->cu->DeviceGetCount(&nr) || !nr) {
		printf("no GPU: %s\n", g->cu ? "the driver has no device" : why);
		exit(77);
	}
	g->more = find_more();
	GPU_DO(g->cu->DeviceGet(&g->dev, 0));
	GPU_DO(g->cu->DevicePrimaryCtxRetain(&g->context, g->dev));
	GPU_DO(g->cu->CtxSetCurrent(g->context));
	GPU_DO(g->cu->StreamCreateWithPriority(&g->stream,
					       CU_STREAM_NON_BLOCKING, 0));
	g->sms = attribute(g, CU_DEV_MULTIPROCESSOR_COUNT);
	g->l2 = attribute(g, CU_DEV_L2_CACHE_SIZE);
	g->arch = 10 * attribute(g, CU_DEV_COMPUTE_CAPABILITY_MAJOR) +
		  attribute(g, CU_DEV_COMPUTE_CAPABILITY_MINOR);
}

void gpu_load(struct gpu *g, const void *image)
{
	GPU_DO(g->cu->ModuleLoadData(&g->module, image));
}

CUfunction gpu_kernel(struct gpu *g, const char *name)
{
	CUfunction f = NULL;
	CUresult r = g->cu->ModuleGetFunction(&f, g->module, name);

	if (r)
		gpu_die("no kernel %s: %s", name, cudrv_name(r));
	return f;
}

void gpu_launch(struct gpu *g, CUfunction f, u32 x, u32 y, u32 threads,
		CUstream s, const void *args)
{
	void *params[1] = { (void *)(uintptr_t)args };

	GPU_DO(g->cu->LaunchKernel(f, x, y, 1, threads, 1, 1, 0, s, params,
				   NULL));
}

void gpu_time_us(struct gpu *g, CUstream s, void (*fn)(void *), void *arg,
		 double *us, u32 nr)
{
	CUevent from, to;
	float ms;
	u32 i;

	GPU_DO(g->cu->EventCreate(&from, 0));
	GPU_DO(g->cu->EventCreate(&to, 0));
	fn(arg);
	GPU_DO(g->cu->StreamSynchronize(s));
	for (i = 0; i < nr; i++) {
		GPU_DO(g->cu->EventRecord(from, s));
		fn(arg);
		GPU_DO(g->cu->EventRecord(to, s));
		GPU_DO(g->cu->EventSynchronize(to));
		GPU_DO(g->cu->EventElapsedTime(&ms, from, to));
		us[i] = 1e3 * ms;
	}
	GPU_DO(g->cu->EventDestroy(from));
	GPU_DO(g->cu->EventDestroy(to));
}

void gpu_mem_info(struct gpu *g, u64 *free_bytes, u64 *total)
{
	size_t f = 0, t = 0;

	GPU_DO(g->cu->MemGetInfo(&f, &t));
	*free_bytes = f;
	*total = t;
}

static struct cu_mem_prop handle_prop(const struct gpu *g)
{
	struct cu_mem_prop p = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handle_types = CU_MEM_HANDLE_TYPE_FD,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, g->dev },
	};

	return p;
}

CUresult gpu_handle_create(struct gpu *g, u64 bytes,
			   CUmemGenericAllocationHandle *h)
{
	struct cu_mem_prop p = handle_prop(g);

	return g->cu->MemCreate(h, bytes, &p, 0);
}

CUresult gpu_set_access(struct gpu *g, CUdeviceptr va, u64 bytes, int access)
{
	struct cu_mem_access a = {
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, g->dev },
		.flags = access,
	};

	return g->cu->MemSetAccess(va, bytes, &a, 1);
}

CUresult gpu_handle_map(struct gpu *g, CUdeviceptr va, u64 bytes,
			CUmemGenericAllocationHandle h, int access)
{
	CUresult r = g->cu->MemMap(va, bytes, 0, h, 0);

	if (r)
		return r;
	r = gpu_set_access(g, va, bytes, access);
	if (r)
		g->cu->MemUnmap(va, bytes);
	return r;
}

void gpu_chunk_make(struct gpu *g, u64 bytes, struct gpu_chunk *c)
{
	c->bytes = bytes;
	GPU_DO(gpu_handle_create(g, bytes, &c->handle));
	GPU_DO(g->cu->MemAddressReserve(&c->va, bytes, 0, 0, 0));
	GPU_DO(gpu_handle_map(g, c->va, bytes, c->handle,
			      CU_MEM_ACCESS_READWRITE));
}

void gpu_chunk_free(struct gpu *g, struct gpu_chunk *c)
{
	GPU_DO(g->cu->MemUnmap(c->va, c->bytes));
	GPU_DO(g->cu->MemAddressFree(c->va, c->bytes));
	GPU_DO(g->cu->MemRelease(c->handle));
	memset(c, 0, sizeof(*c));
}

int gpu_chunk_export(struct gpu *g, const struct gpu_chunk *c)
{
	int fd = -1;

	GPU_DO(g->cu->MemExportToShareableHandle(&fd, c->handle,
						 CU_MEM_HANDLE_TYPE_FD, 0));
	return fd;
}

CUresult gpu_chunk_import(struct gpu *g, int fd, u64 bytes, int access,
			  struct gpu_chunk *c)
{
	CUresult r;

	c->bytes = bytes;
	r = g->cu->MemImportFromShareableHandle(&c->handle,
						(void *)(uintptr_t)fd,
						CU_MEM_HANDLE_TYPE_FD);
	close(fd);
	if (r)
		return r;
	GPU_DO(g->cu->MemAddressReserve(&c->va, bytes, 0, 0, 0));
	return gpu_handle_map(g, c->va, bytes, c->handle, access);
}
