// SPDX-License-Identifier: Apache-2.0
/*
 * mem.c - memory of a GPU, uploads and downloads
 *
 * Uploads are copied into pinned staging buffers, which are used in turn, and from
 * there by the GPU, in the order of the stream.  A staging buffer is written again
 * only after the copy out of it is over.  So the caller's bytes may change at once,
 * and an upload never overwrites memory that earlier ops still read.  Downloads are
 * copied directly to the caller's memory, which is fast if it is pinned.
 */
#include <stdio.h>

#include "kernels/cuda/internal.h"

/* Record a failed allocation, with its size in the text. */
static void fail_alloc(struct cuda_ctx *c, const char *what, u64 bytes,
		       CUresult r)
{
	char text[96];

	snprintf(text, sizeof(text), "%llu MiB of %s",
		 (unsigned long long)((bytes + (1u << 20) - 1) >> 20), what);
	cuda_fail(c, text, r);
}

int cuda_mem_init(struct cuda_ctx *c)
{
	struct cuda_staging *s;
	CUresult r;

	for (s = c->staging; s < c->staging + CUDA_STAGINGS; s++) {
		r = c->cu->MemHostAlloc(&s->mem, CUDA_STAGING_BYTES, 0);
		if (r) {
			s->mem = NULL;
			fail_alloc(c, "pinned memory", CUDA_STAGING_BYTES, r);
			return c->err;
		}
		r = c->cu->EventCreate(&s->done, CU_EVENT_DISABLE_TIMING);
		if (r)
			return cuda_fail(c, "an event cannot be made", r);
	}
	return 0;
}

void cuda_mem_exit(struct cuda_ctx *c)
{
	struct cuda_staging *s;

	for (s = c->staging; s < c->staging + CUDA_STAGINGS; s++) {
		if (s->done)
			(void)!c->cu->EventDestroy(s->done);
		if (s->mem)
			(void)!c->cu->MemFreeHost(s->mem);
	}
	if (c->scratch)
		(void)!c->cu->MemFree((CUdeviceptr)(uintptr_t)c->scratch);
}

/* Lack of memory is no failure of the device: the caller handles NULL. */
void *cuda_mem_alloc(struct kern_ctx *ctx, u64 bytes)
{
	struct cuda_ctx *c = cuda_of(ctx);
	CUdeviceptr p = 0;
	CUresult r;

	if (!cuda_enter(c))
		return NULL;
	r = c->cu->MemAlloc(&p, max(bytes, (u64)1));
	if (r && r != CUDA_ERROR_OUT_OF_MEMORY)
		fail_alloc(c, "GPU memory", bytes, r);
	return r ? NULL : (void *)(uintptr_t)p;
}

void cuda_mem_free(struct kern_ctx *ctx, void *p)
{
	struct cuda_ctx *c = cuda_of(ctx);

	if (!p)
		return;
	/* Memory must be freed also after a failure. */
	if (cuda_enter(c))
		cuda_wait(ctx);
	(void)!c->cu->MemFree((CUdeviceptr)(uintptr_t)p);
}

/* Take the next staging buffer; waits for the copy from it. */
static struct cuda_staging *staging_take(struct cuda_ctx *c)
{
	struct cuda_staging *s = &c->staging[c->next];
	CUresult r;

	c->next = (c->next + 1) % CUDA_STAGINGS;
	r = s->used ? c->cu->EventSynchronize(s->done) : CUDA_SUCCESS;
	if (r) {
		cuda_fail(c, "an upload failed", r);
		return NULL;
	}
	s->used = false;
	return s;
}

void cuda_mem_put(struct kern_ctx *ctx, void *to, const void *from, u64 bytes)
{
	struct cuda_ctx *c = cuda_of(ctx);
	struct cuda_staging *s;
	CUresult r;
	u64 at, n;

	if (c->recording)
		cuda_fail(c, "an upload in a step that is recorded",
			  CUDA_ERROR_NOT_PERMITTED);
	for (at = 0; at < bytes && cuda_enter(c); at += n) {
		n = min(bytes - at, (u64)CUDA_STAGING_BYTES);
		s = staging_take(c);
		if (!s)
			return;
		memcpy(s->mem, (const u8 *)from + at, n);
		r = c->cu->MemcpyHtoDAsync((uintptr_t)to + at, s->mem, n,
					   c->stream);
		if (!r)
			r = c->cu->EventRecord(s->done, c->stream);
		s->used = !r;
		if (r)
			cuda_fail(c, "an upload failed", r);
	}
}

/* As for cuda_mem_alloc(), the caller handles NULL. */
void *cuda_host_alloc(struct kern_ctx *ctx, u64 bytes)
{
	struct cuda_ctx *c = cuda_of(ctx);
	void *p = NULL;

	if (!cuda_enter(c) || c->cu->MemHostAlloc(&p, max(bytes, (u64)1), 0))
		return NULL;
	return p;
}

void cuda_host_free(struct kern_ctx *ctx, void *p)
{
	struct cuda_ctx *c = cuda_of(ctx);

	if (!p)
		return;
	/* Also after a failure: a copy to it may still be running. */
	(void)cuda_enter(c);
	(void)!c->cu->StreamSynchronize(c->stream);
	(void)!c->cu->MemFreeHost(p);
}

int cuda_wait(struct kern_ctx *ctx)
{
	struct cuda_ctx *c = cuda_of(ctx);
	CUresult r;

	if (!cuda_enter(c))
		return c->err;
	r = c->cu->StreamSynchronize(c->stream);
	return r ? cuda_fail(c, "waiting for its work", r) : 0;
}

void cuda_mem_fetch(struct kern_ctx *ctx, void *to, const void *from,
		    u64 bytes)
{
	struct cuda_ctx *c = cuda_of(ctx);
	CUresult r;

	if (!cuda_enter(c))
		return;
	r = c->cu->MemcpyDtoHAsync(to, (uintptr_t)from, bytes, c->stream);
	if (r)
		cuda_fail(c, "a download failed", r);
}

int cuda_mem_get(struct kern_ctx *ctx, void *to, const void *from, u64 bytes)
{
	struct cuda_ctx *c = cuda_of(ctx);

	cuda_mem_fetch(ctx, to, from, bytes);
	/* Wait also after a failure: the caller may reuse @to at once. */
	return cuda_wait(ctx) ? c->err : 0;
}

const char *cuda_failure(struct kern_ctx *ctx)
{
	const struct cuda_ctx *c = cuda_of(ctx);

	return c->err ? c->why : NULL;
}
