// SPDX-License-Identifier: Apache-2.0
/*
 * gemm.c - choose the kernel of a product
 *
 * Exact mode has kernels for few and for many rows that all keep one order of
 * sums (gemm_exact.cu), so the choice between them only changes the time.  They
 * multiply f32, so fast mode uses them for weights that are not bf16.  Weights in
 * blocks become f32 in them, and the bits are those of f32.  Packed blocks
 * (pack.c) have gemm_packed.cu for any number of rows.  With bf16
 * weights in fast mode, gemm_skinny.cu streams the weights for up to 16 rows.  With
 * more rows cuBLASLt computes the product, or gemm_tile.cu if the library is
 * missing or does not take the addresses or the shape.  gemm_few.c has the launches that may
 * split K.
 *
 * Several matrices with one x are multiplied in one launch; blocks along N are
 * numbered through all of them.  Products of few rows with an x of their own are in
 * gemm_group.c.
 */
#include <stdlib.h>

#include "kernels/cuda/gemm.h"

/*
 * More rows of x with packed weights are cuBLASLt's: it is faster than mma.sync by more
 * than the time to write W in bf16 and to read it again.  An estimate, not measured.
 */
#define UNPACK_ROWS	512u
/* Most memory for W in bf16; larger matrices stay packed. */
#define UNPACK_BYTES	(256ull << 20)

#define NARROW_BLOCKS	8u	/* on a multiprocessor, of 256 threads */

const u32 cuda_gemm_smem[CUDA_NR_KERNELS] = {
#define x(name, smem)	smem,
	CUDA_KERNELS(x)
#undef x
};

int cuda_gemm_init(struct cuda_ctx *c)
{
	struct kern_ctx *ctx = (struct kern_ctx *)(void *)c;
	struct cuda_gemm *g = calloc(1, sizeof(*g));
	CUresult r;

	if (!g)
		return cuda_fail(c, "no memory", CUDA_ERROR_OUT_OF_MEMORY);
	c->gemm = g;
	g->ticket = cuda_mem_alloc(ctx, CUDA_MAX_TICKETS * sizeof(u32));
	if (!g->ticket)
		return cuda_fail(c, "no memory on the GPU for products",
				 CUDA_ERROR_OUT_OF_MEMORY);
	r = c->cu->MemsetD32Async((uintptr_t)g->ticket, 0, CUDA_MAX_TICKETS,
				  c->stream);
	if (r)
		return cuda_fail(c, "the GPU's memory cannot be cleared", r);
	if (!c->exact)
		g->lt = blaslt_open(c);
	return c->err;
}

void cuda_gemm_exit(struct cuda_ctx *c)
{
	struct cuda_gemm *g = c->gemm;

	if (!g)
		return;
	blaslt_close(c, g->lt);
	cuda_mem_free((struct kern_ctx *)(void *)c, g->ticket);
	free(g);
	c->gemm = NULL;
}

struct blaslt *cuda_gemm_lt(struct cuda_ctx *c)
{
	return c->gemm ? c->gemm->lt : NULL;
}

static bool aligned(const void *p, u64 row_bytes)
{
	return !((uintptr_t)p % 16) && !(row_bytes % 16);
}

/* Can weights of all parts be read 16 bytes at a time? */
static bool w_aligned(const struct kern_gemm_out *out, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (!aligned(out[i].w->data, (u64)out[i].w->cols *
					     kern_dtype_size(out[i].w->dtype)))
			return false;
	return true;
}

struct gemm_args cuda_gemm_args(struct cuda_ctx *c, const float *x, u64 x_ld,
				const struct kern_gemm_out *out, u32 nr, u32 m)
{
	struct gemm_args a = {
		.x = x, .x_ld = x_ld, .nr_parts = nr, .m = m,
		.k = out->w->cols, .dtype = out->w->dtype,
		.settle = c->settle, .x_vec = aligned(x, x_ld * sizeof(*x)),
		.w_vec = w_aligned(out, nr), .blocks = cuda_blocks(out->w),
	};
	u32 i;

	for (i = 0; i < nr; i++)
		a.part[i] = (struct gemm_part){
			.w = out[i].w->data, .bias = out[i].bias,
			.y = out[i].y, .n = out[i].w->rows,
			.y_ld = out[i].y_ld ? out[i].y_ld : out[i].w->rows,
		};
	return a;
}

void cuda_gemm_number(struct gemm_args *a, u32 rows)
{
	u32 i;

	a->nr_blocks = 0;
	for (i = 0; i < a->nr_parts; i++) {
		a->part[i].first = a->nr_blocks;
		a->nr_blocks += DIV_ROUND_UP(a->part[i].n, rows);
	}
}

/* The twin of a kernel of f32 for weights in blocks. */
static enum cuda_kernel exact_blocks(enum cuda_kernel plain)
{
	switch (plain) {
	case CUDA_k_gemm_exact1_f32:
		return CUDA_k_gemm_exact1_blocks;
	case CUDA_k_gemm_exact4_f32:
		return CUDA_k_gemm_exact4_blocks;
	case CUDA_k_gemm_exact_mid:
		return CUDA_k_gemm_exact_mid_blocks;
	default:
		return CUDA_k_gemm_exact_tile_blocks;
	}
}

static void launch_exact(struct cuda_ctx *c, struct gemm_args *a,
			 enum cuda_kernel k, u32 tile_m, u32 tile_n)
{
	k = kern_is_blocks(a->dtype) ? exact_blocks(k) : k;
	/* The structures of these kernels are only struct gemm_args. */
	cuda_gemm_number(a, tile_n);
	cuda_launch(c, k, (struct cuda_grid){
		DIV_ROUND_UP(a->m, tile_m), a->nr_blocks, 1, 128, cuda_gemm_smem[k],
	}, a);
}

static void gemm_exact(struct cuda_ctx *c, struct gemm_args *a)
{
	const enum kern_dtype type = kern_is_blocks(a->dtype) ? KERN_F32 :
								a->dtype;
	static const enum cuda_kernel one[] = {
		[KERN_F32] = CUDA_k_gemm_exact1_f32,
		[KERN_BF16] = CUDA_k_gemm_exact1_bf16,
		[KERN_F16] = CUDA_k_gemm_exact1_f16,
	}, few[] = {
		[KERN_F32] = CUDA_k_gemm_exact4_f32,
		[KERN_BF16] = CUDA_k_gemm_exact4_bf16,
		[KERN_F16] = CUDA_k_gemm_exact4_f16,
	};

	cuda_gemm_number(a, 128);
	if (a->m == 1)
		launch_exact(c, a, one[type], 1, 16);
	else if (a->m <= GEMM_FEW)
		launch_exact(c, a, few[type], 4, 32);
	else if ((u64)DIV_ROUND_UP(a->m, 64) * a->nr_blocks >= c->sms)
		launch_exact(c, a, CUDA_k_gemm_exact_tile, 64, 128);
	else
		launch_exact(c, a, CUDA_k_gemm_exact_mid, 32, 64);
}

static u32 elementwise_blocks(struct cuda_ctx *c, u64 n)
{
	return min(DIV_ROUND_UP(n, (u64)256), (u64)c->sms * NARROW_BLOCKS);
}

/*
 * Round x to bf16, rows padded with zeros; @a takes that x then.  Return: @more bytes of
 * scratch behind it; NULL after a failure.
 */
static void *narrow(struct cuda_ctx *c, struct gemm_args *a, u64 more)
{
	const u32 ld = ALIGN_UP(a->k, 8u);
	const u64 bytes = ALIGN_UP((u64)a->m * ld * sizeof(u16), 256ull);
	struct k_gemm_narrow_args n = {
		.x = a->x, .x_ld = a->x_ld, .to_ld = ld, .m = a->m, .k = a->k,
		.to = cuda_scratch(c, bytes + more),
	};

	if (!n.to)
		return NULL;
	cuda_launch(c, CUDA_k_gemm_narrow, (struct cuda_grid){
		elementwise_blocks(c, (u64)a->m * ld / 2), 1, 1, 256, 0,
	}, &n);
	a->x = n.to;
	a->x_ld = ld;
	return (u8 *)n.to + bytes;
}

/* One part by the library, with x in bf16; then the bias and the rounding. */
static bool part_by_lt(struct cuda_ctx *c, const struct gemm_args *a,
		       const struct gemm_part *p)
{
	const struct blaslt_gemm g = {
		.x = a->x, .x_ld = a->x_ld, .w = p->w, .y = p->y,
		.y_ld = p->y_ld, .m = a->m, .n = p->n, .k = a->k,
	};
	const struct k_gemm_finish_args f = {
		.y = p->y, .bias = p->bias, .y_ld = p->y_ld, .m = a->m,
		.n = p->n, .settle = a->settle,
	};

	if (!c->gemm->lt || !a->w_vec || !aligned(p->y, p->y_ld * 4) ||
	    !blaslt_gemm(c, c->gemm->lt, &g))
		return false;
	if (f.bias || f.settle)
		cuda_launch(c, CUDA_k_gemm_finish, (struct cuda_grid){
			elementwise_blocks(c, (u64)f.m * f.n), 1, 1, 256, 0,
		}, &f);
	return true;
}

static void launch_tile(struct cuda_ctx *c, struct gemm_args *a)
{
	cuda_gemm_number(a, GEMM_TILE_N);
	cuda_launch(c, CUDA_k_gemm_tile, (struct cuda_grid){
		DIV_ROUND_UP(a->m, GEMM_TILE_M), a->nr_blocks, 1, 256,
		cuda_gemm_smem[CUDA_k_gemm_tile],
	}, a);
}

/* The library takes the parts that it can; one launch of ours takes the rest. */
static void gemm_long(struct cuda_ctx *c, struct gemm_args *a)
{
	u32 i, left = 0;

	if (!narrow(c, a, 0))
		return;
	for (i = 0; i < a->nr_parts; i++)
		if (!part_by_lt(c, a, &a->part[i]))
			a->part[left++] = a->part[i];
	a->nr_parts = left;
	if (!left)
		return;
	launch_tile(c, a);
}

/* Does cuBLASLt get packed weights in bf16? */
static bool wants_unpacked(struct cuda_ctx *c, const struct gemm_args *a)
{
	u32 i;

	for (i = 0; i < a->nr_parts; i++)
		if ((u64)a->part[i].n * a->k * sizeof(u16) > UNPACK_BYTES)
			return false;
	return c->gemm->lt && a->m > UNPACK_ROWS;
}

/* One part after the other, since they share the memory of W in bf16. */
static void gemm_unpacked(struct cuda_ctx *c, struct gemm_args *a)
{
	struct k_gemm_unpack_args u = {
		.p = cuda_packed(a->dtype, a->k), .k = a->k,
	};
	struct gemm_args one;
	u32 i, most = 0;

	for (i = 0; i < a->nr_parts; i++)
		most = max(most, a->part[i].n);
	u.to = narrow(c, a, (u64)most * a->k * sizeof(u16));
	for (i = 0; i < a->nr_parts && u.to; i++) {
		u.w = a->part[i].w;
		u.n = a->part[i].n;
		cuda_launch(c, CUDA_k_gemm_unpack, (struct cuda_grid){
			elementwise_blocks(c, (u64)u.n * u.k / 32), 1, 1, 256, 0,
		}, &u);
		one = *a;
		one.part[0] = a->part[i];
		one.part[0].w = u.to;
		one.nr_parts = 1;
		one.w_vec = true;
		if (!part_by_lt(c, &one, &one.part[0]))
			launch_tile(c, &one);
	}
}

enum gemm_way cuda_gemm_way(struct cuda_ctx *c, const struct gemm_args *a,
			    bool packed)
{
	const bool few = a->m <= GEMM_FEW;

	if (packed)
		return wants_unpacked(c, a) ? GEMM_UNPACKED : GEMM_PACKED;
	if (c->exact || a->dtype != KERN_BF16 || (few && !a->w_vec))
		return GEMM_EXACT;
	return few ? GEMM_SKINNY : GEMM_LONG;
}

/* Matrices of one type. */
static void gemm_alike(struct cuda_ctx *c, const float *x, u64 x_ld,
		       const struct kern_gemm_out *out, u32 nr, u32 m)
{
	static void (*const run[])(struct cuda_ctx *c, struct gemm_args *a) = {
		[GEMM_EXACT] = gemm_exact, [GEMM_SKINNY] = cuda_gemm_skinny,
		[GEMM_LONG] = gemm_long, [GEMM_PACKED] = cuda_gemm_packed,
		[GEMM_UNPACKED] = gemm_unpacked,
	};
	struct gemm_args a = cuda_gemm_args(c, x, x_ld ? x_ld : out->w->cols,
					    out, nr, m);

	run[cuda_gemm_way(c, &a, out->w->packed)](c, &a);
}

void cuda_gemm_many(struct kern_ctx *ctx, const float *x, u64 x_ld,
		    const struct kern_gemm_out *out, u32 nr, u32 m)
{
	u32 i, n;

	if (!m)
		return;
	for (i = 0; i < nr; i += n) {
		n = 1;
		while (n < GEMM_PARTS && i + n < nr &&
		       out[i + n].w->dtype == out[i].w->dtype &&
		       out[i + n].w->packed == out[i].w->packed)
			n++;
		gemm_alike(cuda_of(ctx), x, x_ld, out + i, n, m);
	}
}

void cuda_gemm(struct kern_ctx *ctx, const float *x, u64 x_ld,
	       const struct kern_weight *w, const float *bias, u32 m, float *y,
	       u64 y_ld)
{
	const struct kern_gemm_out out = { w, bias, y, y_ld };

	cuda_gemm_many(ctx, x, x_ld, &out, 1, m);
}
