// SPDX-License-Identifier: Apache-2.0
/*
 * ops.c - the tables of the CUDA kernels
 *
 * "cuda" is exact mode, "cuda-fast" fast mode.  Both have the same ops; attention
 * and products check the context's mode.  The variant in a table is the same for
 * all GPUs; struct kern_device has the variant that a GPU really runs, and
 * identities use that one.
 */
#include "kernels/cuda/internal.h"
#include "kernels/impl.h"

static int open_exact(const struct kern_opts *opts, struct kern_ctx **ret,
		      char *why, size_t len)
{
	return cuda_open(opts, true, ret, why, len);
}

static int open_fast(const struct kern_opts *opts, struct kern_ctx **ret,
		     char *why, size_t len)
{
	return cuda_open(opts, false, ret, why, len);
}

static void cuda_settles(struct kern_ctx *ctx, bool on)
{
	cuda_of(ctx)->settle = on;
}

#define CUDA_OPS							\
	.variant	= "sm",						\
	.version	= KERN_NUMERICS_VERSION,			\
	.weight_types	= KERN_PLAIN_WEIGHTS | KERN_TYPE_BIT(KERN_F16) |\
			  KERN_BLOCK_WEIGHTS,				\
	.kv_types	= KERN_TYPE_BIT(KERN_F32) |			\
			  KERN_TYPE_BIT(KERN_BF16) |			\
			  KERN_TYPE_BIT(KERN_F16) |			\
			  KERN_TYPE_BIT(KERN_E4M3) |			\
			  KERN_TYPE_BIT(KERN_I8),			\
	.kv_row		= 16,	/* pieces that kernels load and copy */	\
	.close		= cuda_close,					\
	.describe	= cuda_describe,				\
	.mem_alloc	= cuda_mem_alloc,				\
	.mem_free	= cuda_mem_free,				\
	.mem_put	= cuda_mem_put,					\
	.mem_get	= cuda_mem_get,					\
	.mem_fetch	= cuda_mem_fetch,				\
	.host_alloc	= cuda_host_alloc,				\
	.host_free	= cuda_host_free,				\
	.wait		= cuda_wait,					\
	.failure	= cuda_failure,					\
	.sample		= cuda_draw,					\
	.step_begin	= cuda_step_begin,				\
	.step_end	= cuda_step_end,				\
	.settles	= cuda_settles,					\
	.settle		= cuda_settle,					\
	.gather		= cuda_gather,					\
	.split_heads	= cuda_split_heads,				\
	.embed		= cuda_embed,					\
	.rmsnorm	= cuda_rmsnorm,					\
	.layernorm	= cuda_layernorm,				\
	.layernorm_heads = cuda_layernorm_heads,			\
	.gemm		= cuda_gemm,					\
	.rope_table	= cuda_rope_table,				\
	.rope		= cuda_rope,					\
	.rope_pairs	= cuda_rope_pairs,				\
	.kv_write	= cuda_kv_write,				\
	.attention	= cuda_attention,				\
	.attn_latent	= cuda_attn_latent,				\
	.kv_copy	= cuda_kv_copy,					\
	.silu_mul	= cuda_silu_mul,				\
	.act		= cuda_act,					\
	.swiglu		= cuda_swiglu,					\
	.route		= cuda_route,					\
	.blend		= cuda_blend,					\
	.add		= cuda_add,					\
	.scale		= cuda_scale,					\
	.softcap	= cuda_softcap,					\
	.adapt		= cuda_adapt,					\
	.conv		= cuda_conv,					\
	.scan		= cuda_scan,					\
	.gated_norm	= cuda_gated_norm,				\
	.gemm_many	= cuda_gemm_many,				\
	.gemm_parts	= cuda_gemm_parts,				\
	.add_rmsnorm	= cuda_add_rmsnorm,				\
	.add_layernorm	= cuda_add_layernorm,				\
	.rope_write	= cuda_rope_write

const struct kern_ops kern_ops_cuda = {
	.name		= "cuda",
	.mode		= KERN_MODE_EXACT,
	.open		= open_exact,
	CUDA_OPS,
};

const struct kern_ops kern_ops_cuda_fast = {
	.name		= "cuda-fast",
	.mode		= KERN_MODE_FAST,
	.open		= open_fast,
	.pack_bytes	= cuda_pack_bytes,
	.pack		= cuda_pack,
	CUDA_OPS,
};
