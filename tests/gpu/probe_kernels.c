// SPDX-License-Identifier: Apache-2.0
/*
 * probe_kernels.c - the probe's device code, loaded and launched
 *
 * The image is nvcc's output for probe_kern.cu, as one fatbin in this program's
 * own read-only data.
 */
#include <string.h>

#include "tests/gpu/probe.h"

#ifdef PROBE_FATBIN
__asm__(".section .rodata\n.balign 64\n.global probe_image\nprobe_image:\n"
	".incbin \"" PROBE_FATBIN "\"\n.byte 0\n.previous\n");
#else
/* Built without nvcc: only a driver that needs no image takes this. */
const unsigned char probe_image[64] = "built without nvcc";
#endif

#define THREADS		256

void probe_open(struct gpu *g)
{
	gpu_open(g);
	gpu_load(g, probe_image);
}

u64 probe_bytes(u64 of)
{
	u64 bytes = gpu_tiny && of > 4 * GPU_MIB ? 4 * GPU_MIB : of;

	return (bytes + 2 * GPU_MIB - 1) / (2 * GPU_MIB) * (2 * GPU_MIB);
}

static u32 full_grid(const struct gpu *g)
{
	return gpu_tiny ? 2 : 8 * g->sms;
}

void probe_fill(struct gpu *g, CUdeviceptr to, u64 bytes, u64 seed)
{
	struct p_fill_args a = {
		.to = (u64 *)(uintptr_t)to, .n = bytes / 8, .seed = seed,
		.mask = ~0ull,
	};

	gpu_launch(g, gpu_kernel(g, "p_fill"), full_grid(g), 1, THREADS,
		   g->stream, &a);
	GPU_DO(g->cu->StreamSynchronize(g->stream));
}

void probe_fill_bf16(struct gpu *g, CUdeviceptr to, u64 nr, u64 seed)
{
	struct p_fill_args a = {
		.to = (u64 *)(uintptr_t)to, .n = nr / 4, .seed = seed,
		.mask = P_BF16_MASK, .set = P_BF16_SET,
	};

	gpu_launch(g, gpu_kernel(g, "p_fill"), full_grid(g), 1, THREADS,
		   g->stream, &a);
	GPU_DO(g->cu->StreamSynchronize(g->stream));
}

void probe_check(struct gpu *g, CUdeviceptr from, u64 bytes, u64 seed,
		 u64 *wrong, u64 *not_zero)
{
	CUdeviceptr counts = probe_device(g, 16);
	struct p_check_args a = {
		.from = (const u64 *)(uintptr_t)from, .n = bytes / 8,
		.seed = seed,
		.wrong = (u64 *)(uintptr_t)counts,
		.not_zero = (u64 *)(uintptr_t)(counts + 8),
	};
	u64 got[2];

	GPU_DO(g->cu->MemsetD8Async(counts, 0, 16, g->stream));
	gpu_launch(g, gpu_kernel(g, "p_check"), full_grid(g), 1, THREADS,
		   g->stream, &a);
	GPU_DO(g->cu->MemcpyDtoHAsync(got, counts, 16, g->stream));
	GPU_DO(g->cu->StreamSynchronize(g->stream));
	GPU_DO(g->cu->MemFree(counts));
	*wrong = got[0];
	*not_zero = got[1];
}

void probe_spin(struct gpu *g, CUstream s, const struct p_spin_args *a)
{
	gpu_launch(g, gpu_kernel(g, "p_spin"), full_grid(g), 1, THREADS, s, a);
}

void *probe_host(struct gpu *g, u64 bytes)
{
	void *p = NULL;

	GPU_DO(g->cu->MemHostAlloc(&p, bytes, CU_HOST_ALLOC_PORTABLE));
	memset(p, 0x5a, bytes);
	return p;
}

CUdeviceptr probe_device(struct gpu *g, u64 bytes)
{
	CUdeviceptr p = 0;

	GPU_DO(g->cu->MemAlloc(&p, bytes));
	return p;
}
