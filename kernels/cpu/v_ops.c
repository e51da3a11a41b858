// SPDX-License-Identifier: Apache-2.0
/*
 * v_ops.c - the table of one variant
 *
 * Ops that only move bits, and the rotary table, are the same code in every
 * variant; the rest is compiled for the variant's instruction set.  The
 * variant's name comes from the macro that names its symbols, so a model's
 * identity always names the variant that was run.
 */
#include "kernels/cpu/ints.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/vec.h"

#define STR_(x)		#x
#define STR(x)		STR_(x)

#define KERN_INTS_NAME	(VW == 16 ? "avx512vnni" : "avx2int8")

/* The entries that do not depend on the numeric mode. */
#define OPS_COMMON							\
	.name		= "cpu",						\
	.version	= KERN_NUMERICS_VERSION,			\
	.kv_types	= KERN_TYPE_BIT(KERN_F32) | KERN_TYPE_BIT(KERN_BF16) |	\
			  KERN_TYPE_BIT(KERN_F16) | KERN_TYPE_BIT(KERN_E4M3) |	\
			  KERN_TYPE_BIT(KERN_I8),			\
	.weight_types	= KERN_ORDER_WEIGHTS | KERN_PLAIN_WEIGHTS |	\
			  KERN_TYPE_BIT(KERN_F16) | KERN_BLOCK_WEIGHTS,	\
	.settle		= KERN_FN(settle),				\
	.gather		= kern_gather,					\
	.split_heads	= kern_split_heads,				\
	.embed		= kern_embed,					\
	.rmsnorm	= KERN_FN(rmsnorm),				\
	.layernorm	= KERN_FN(layernorm),				\
	.layernorm_heads = KERN_FN(layernorm_heads),			\
	.gemm		= KERN_FN(gemm),				\
	.rope_table	= kern_rope_table,				\
	.rope		= KERN_FN(rope),				\
	.rope_pairs	= KERN_FN(rope_pairs),				\
	.kv_write	= kern_kv_write,				\
	.attention	= KERN_FN(attention),				\
	.attn_latent	= KERN_FN(attn_latent),				\
	.kv_copy	= kern_kv_copy,					\
	.silu_mul	= KERN_FN(silu_mul),				\
	.act		= KERN_FN(act),					\
	.swiglu		= KERN_FN(swiglu),				\
	.route		= KERN_FN(route),				\
	.blend		= KERN_FN(blend),				\
	.add		= KERN_FN(add),					\
	.scale		= KERN_FN(scale),				\
	.softcap	= KERN_FN(softcap),				\
	.adapt		= KERN_FN(adapt),				\
	.conv		= KERN_FN(conv),				\
	.scan		= KERN_FN(scan),				\
	.gated_norm	= KERN_FN(gated_norm),			\
	.gemm_parts	= KERN_FN(gemm_parts),

const struct kern_ops KERN_FN(ops) = {
	.variant	= STR(KERN_VARIANT),
#ifdef KERN_FAST
	.mode		= KERN_MODE_FAST,
	.pack_bytes	= kern_pack_bytes,
	.pack		= kern_pack,
#endif
	OPS_COMMON
};

/* The same in fast mode, which packs blocks alone. */
#if defined(KERN_INTS) && !defined(KERN_FAST)
const struct kern_ops KERN_FN(ops_ints) = {
	.variant	= KERN_INTS_NAME,
	.mode		= KERN_MODE_FAST,
	.pack_bytes	= kern_int_pack_bytes,
	.pack		= kern_int_pack,
	OPS_COMMON
};
#endif
