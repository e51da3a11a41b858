// SPDX-License-Identifier: Apache-2.0
/*
 * adapt.c - upload the parts of adapters, and launch their two kernels
 *
 * Parts and their rows are laid out in one piece of memory and uploaded in one copy:
 *
 *	parts | rows of each part
 *
 * No graph contains the address of this memory, so it may grow: adapters are never in a
 * recorded step.  The stream runs the kernels of a call before the next upload.
 */
#include <stdlib.h>

#include "kernels/cuda/internal.h"

#define ADAPT_THREADS	256u
#define ADAPT_BYTES_MIN	(4u << 10)

static bool at_16(const void *p, u64 row_bytes)
{
	return !((uintptr_t)p % 16) && !(row_bytes % 16);
}

void cuda_adapt_exit(struct cuda_ctx *c)
{
	if (c->adapt_dev)
		(void)!c->cu->MemFree((CUdeviceptr)(uintptr_t)c->adapt_dev);
	free(c->adapt_host);
	c->adapt_dev = NULL;
	c->adapt_host = NULL;
	c->adapt_bytes = 0;
}

static bool make_room(struct cuda_ctx *c, u64 bytes)
{
	struct kern_ctx *ctx = (struct kern_ctx *)(void *)c;

	if (bytes <= c->adapt_bytes)
		return !c->err;
	cuda_mem_free(ctx, c->adapt_dev);
	free(c->adapt_host);
	bytes = roundup_pow_of_two(max(bytes, (u64)ADAPT_BYTES_MIN));
	c->adapt_dev = cuda_mem_alloc(ctx, bytes);
	c->adapt_host = malloc(bytes);
	c->adapt_bytes = c->adapt_dev && c->adapt_host ? bytes : 0;
	if (!c->adapt_bytes)
		cuda_fail(c, "no memory for the adapters of a step",
			  CUDA_ERROR_OUT_OF_MEMORY);
	return c->adapt_bytes;
}

/*
 * Lay out all parts; @down and @up get the blocks of the two kernels.  Return: bytes to
 * upload.
 */
static u64 lay_parts(struct cuda_ctx *c, const struct kern_adapt *a, u32 *down, u32 *up)
{
	const u64 row_bytes = (u64)a->cols * kern_dtype_size(a->dtype);
	struct dev_adapt *to = (void *)c->adapt_host;
	u64 t = 0, at = a->nr * sizeof(*to);
	const struct kern_adapt_part *p;

	*down = 0;
	*up = 0;
	for (p = a->parts; p < a->parts + a->nr; p++, to++) {
		*to = (struct dev_adapt){
			.a = p->a, .b = p->b, .rows = (void *)(c->adapt_dev + at),
			.y = p->y, .y_ld = p->y_ld ? p->y_ld : p->outs, .t = t,
			.rank = p->rank, .m = p->m, .outs = p->outs, .scale = p->scale,
			.down = *down, .up = *up, .vec = at_16(p->a, row_bytes),
		};
		memcpy(c->adapt_host + at, p->rows, p->m * sizeof(*p->rows));
		at += p->m * sizeof(*p->rows);
		t += (u64)p->m * p->rank;
		*down += DIV_ROUND_UP(p->m, ADAPT_ROWS) * DIV_ROUND_UP(p->rank, ADAPT_DOWN);
		*up += DIV_ROUND_UP(p->m, ADAPT_ROWS) * DIV_ROUND_UP(p->outs, ADAPT_UP);
	}
	return at;
}

void cuda_adapt(struct kern_ctx *ctx, const struct kern_adapt *a)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const u64 x_ld = a->x_ld ? a->x_ld : a->cols;
	u64 bytes = a->nr * sizeof(struct dev_adapt);
	struct cuda_grid g = { .y = 1, .z = 1, .threads = ADAPT_THREADS };
	struct k_adapt_args k = {
		.x = a->x, .t = a->t, .x_ld = x_ld, .nr = a->nr, .cols = a->cols,
		.dtype = a->dtype, .vec = at_16(a->x, x_ld * sizeof(*a->x)),
	};
	u32 i, down, up;

	for (i = 0; i < a->nr; i++)
		bytes += a->parts[i].m * sizeof(u32);
	if (!a->nr || !cuda_enter(c) || !make_room(c, bytes))
		return;
	bytes = lay_parts(c, a, &down, &up);
	cuda_mem_put(ctx, c->adapt_dev, c->adapt_host, bytes);
	k.parts = (void *)c->adapt_dev;
	g.x = down;
	cuda_launch(c, CUDA_k_adapt_down, g, &k);
	g.x = up;
	cuda_launch(c, CUDA_k_adapt_up, g, &k);
}
