// SPDX-License-Identifier: Apache-2.0
/*
 * pack.c - weights in blocks, packed for products of fast mode
 *
 * packed.cuh has the layout, and gemm_pack.cu writes it, on the device.  Q2_K is not
 * packed: its minima of 16 columns would take as much memory as its codes.
 */
#include "kernels/cuda/internal.h"

#define PACK_THREADS	256u

struct pack_form {
	enum packed_codes	codes;
	u32			zero;
	enum packed_scale	scale;
	u32			group;
};

static const struct pack_form forms[NR_KERN_DTYPES] = {
	[KERN_Q4_0]	= { PACKED_U4, 8, PACKED_F32, 32 },
	[KERN_Q4_1]	= { PACKED_U4, 0, PACKED_HALVES, 32 },
	[KERN_Q5_0]	= { PACKED_S8, 0, PACKED_F32, 32 },
	[KERN_Q5_1]	= { PACKED_S8, 0, PACKED_HALVES, 32 },
	[KERN_Q8_0]	= { PACKED_S8, 0, PACKED_F32, 32 },
	[KERN_Q3_K]	= { PACKED_U4, 4, PACKED_F32, 16 },
	[KERN_Q4_K]	= { PACKED_U4, 0, PACKED_SUPER, 32 },
	[KERN_Q5_K]	= { PACKED_S8, 0, PACKED_SUPER, 32 },
	[KERN_Q6_K]	= { PACKED_S8, 0, PACKED_F32, 16 },
	[KERN_IQ4_NL]	= { PACKED_S8, 0, PACKED_F32, 32 },
	[KERN_IQ4_XS]	= { PACKED_S8, 0, PACKED_F32, 32 },
	[KERN_MXFP4]	= { PACKED_FP4, 0, PACKED_F32, 32 },
	[KERN_W4_32]	= { PACKED_U4, 0, PACKED_ZERO, 32 },
	[KERN_W4_64]	= { PACKED_U4, 0, PACKED_ZERO, 64 },
	[KERN_W4_128]	= { PACKED_U4, 0, PACKED_ZERO, 64 },
	[KERN_W8_32]	= { PACKED_S8, 0, PACKED_F32, 32 },
	[KERN_W8_128]	= { PACKED_S8, 0, PACKED_F32, 64 },
	[KERN_F8_32]	= { PACKED_E4M3, 0, PACKED_F32, 32 },
	[KERN_F8_128]	= { PACKED_E4M3, 0, PACKED_F32, 64 },
};

struct dev_packed cuda_packed(enum kern_dtype type, u32 cols)
{
	const struct pack_form *f = &forms[type];
	struct dev_packed p = {
		.codes = f->codes, .zero = f->zero, .scale = f->scale,
		.group = f->group,
	};

	p.unit = PACKED_ROWS * PACKED_COLS / (f->codes < PACKED_S8 ? 2 : 1) +
		 PACKED_ROWS * (PACKED_COLS / f->group) * sizeof(u32);
	p.panel = DIV_ROUND_UP(cols, PACKED_COLS) * (u64)p.unit;
	return p;
}

size_t cuda_pack_bytes(const struct kern_weight *w)
{
	if (!kern_is_blocks(w->dtype) || !forms[w->dtype].group || w->packed)
		return 0;
	return DIV_ROUND_UP(w->rows, PACKED_ROWS) *
	       cuda_packed(w->dtype, w->cols).panel;
}

void cuda_pack(struct kern_ctx *ctx, struct kern_weight *w, void *to)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct k_gemm_pack_args a = {
		.w = w->data, .to = to, .blocks = cuda_blocks(w),
		.p = cuda_packed(w->dtype, w->cols), .n = w->rows, .k = w->cols,
	};
	const u64 threads = (u64)DIV_ROUND_UP(a.n, PACKED_ROWS) * 8 *
			    DIV_ROUND_UP(a.k, PACKED_COLS) * 2;
	const u64 most = max(c->sms, 1u) * 16ull;

	cuda_launch(c, CUDA_k_gemm_pack, (struct cuda_grid){
		min(DIV_ROUND_UP(threads, (u64)PACK_THREADS), most), 1, 1,
		PACK_THREADS, 0,
	}, &a);
	w->data = to;
	w->packed = true;
}
