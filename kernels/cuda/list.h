/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.h - the list of kernels
 *
 * x(name, most bytes of dynamic shared memory): the names to look up in the modules,
 * and the table of the tests' stand-in, come from this list.
 */
#ifndef KERNELS_CUDA_LIST_H
#define KERNELS_CUDA_LIST_H

#define CUDA_ROW_KERNELS(x)						\
	x(k_add, 0)							\
	x(k_scale, 0)							\
	x(k_softcap, 0)							\
	x(k_settle, 0)							\
	x(k_take, 0)							\
	x(k_take_blocks, 0)						\
	x(k_split_heads, 0)						\
	x(k_rmsnorm, 0)							\
	x(k_layernorm, 0)						\
	x(k_rope_table, 0)						\
	x(k_rope, 0)							\
	x(k_rope_pairs, 0)						\
	x(k_act, 0)							\
	x(k_swiglu, 0)							\
	x(k_route, 0)							\
	x(k_blend, 0)

#define CUDA_KV_KERNELS(x)						\
	x(k_kv_write, 0)						\
	x(k_latent_write, 0)						\
	x(k_rope_write, 0)						\
	x(k_kv_copy, 0)

#define CUDA_STATE_KERNELS(x)						\
	x(k_conv, 0)							\
	x(k_scan, 0)							\
	x(k_gated_norm, 0)

#define CUDA_ADAPT_KERNELS(x)						\
	x(k_adapt_down, 0)						\
	x(k_adapt_up, 0)

#define CUDA_ATTN_KERNELS(x)						\
	x(k_attn_exact, 87168)						\
	x(k_attn_exact_join, 0)						\
	x(k_attn_latent, 54784)						\
	x(k_attn_latent_join, 0)					\
	x(k_attn_join, 0)						\
	x(k_attn_decode_bf16_64, 49152)					\
	x(k_attn_decode_bf16_80, 67584)					\
	x(k_attn_decode_bf16_96, 53248)					\
	x(k_attn_decode_bf16_128, 65536)				\
	x(k_attn_decode_bf16_256, 65536)				\
	x(k_attn_decode_f16_64, 49152)					\
	x(k_attn_decode_f16_128, 65536)					\
	x(k_attn_decode_f16_256, 65536)					\
	x(k_attn_decode_e4m3_64, 43008)					\
	x(k_attn_decode_e4m3_128, 56832)				\
	x(k_attn_decode_e4m3_256, 52992)				\
	x(k_attn_decode_i8_64, 43008)					\
	x(k_attn_decode_i8_128, 56832)					\
	x(k_attn_decode_i8_256, 52992)					\
	x(k_attn_prefill_bf16_64, 32768)				\
	x(k_attn_prefill_bf16_96, 53248)				\
	x(k_attn_prefill_bf16_128, 65536)				\
	x(k_attn_prefill_bf16_256, 65536)				\
	x(k_attn_prefill_f16_128, 65536)				\
	x(k_attn_prefill_f16_256, 65536)				\
	x(k_attn_prefill_e4m3_128, 49664)				\
	x(k_attn_prefill_e4m3_256, 49408)				\
	x(k_attn_prefill_i8_128, 49664)					\
	x(k_attn_prefill_i8_256, 49408)

#define CUDA_GEMM_KERNELS(x)						\
	x(k_gemm_exact1_f32, 62208)					\
	x(k_gemm_exact1_bf16, 62208)					\
	x(k_gemm_exact1_f16, 62208)					\
	x(k_gemm_exact4_f32, 91136)					\
	x(k_gemm_exact4_bf16, 91136)					\
	x(k_gemm_exact4_f16, 91136)					\
	x(k_gemm_exact1_blocks, 62208)					\
	x(k_gemm_exact4_blocks, 91136)					\
	x(k_gemm_exact_mid_blocks, 0)					\
	x(k_gemm_exact_tile_blocks, 0)					\
	x(k_gemm_exact_mid, 0)						\
	x(k_gemm_exact_tile, 0)						\
	x(k_gemm_skinny8, 34816)					\
	x(k_gemm_skinny16, 34816)					\
	x(k_gemm_packed8, 45056)					\
	x(k_gemm_packed16, 45056)					\
	x(k_gemm_packed32, 45056)					\
	x(k_gemm_packed64, 45056)					\
	x(k_gemm_pack, 0)						\
	x(k_gemm_unpack, 0)						\
	x(k_gemm_tile, 81920)						\
	x(k_gemm_narrow, 0)						\
	x(k_gemm_finish, 0)						\
	x(k_group_exact1_f32, 62208)					\
	x(k_group_exact1_bf16, 62208)					\
	x(k_group_exact1_f16, 62208)					\
	x(k_group_exact1_blocks, 62208)					\
	x(k_group_exact4_f32, 91136)					\
	x(k_group_exact4_bf16, 91136)					\
	x(k_group_exact4_f16, 91136)					\
	x(k_group_exact4_blocks, 91136)					\
	x(k_group_skinny8, 34816)					\
	x(k_group_skinny16, 34816)					\
	x(k_group_packed8, 45056)					\
	x(k_group_packed16, 45056)					\
	x(k_group_packed32, 45056)					\
	x(k_group_packed64, 45056)

#define CUDA_SAMPLE_KERNELS(x)						\
	x(k_sample_adjust, 0)						\
	x(k_sample_draw, 0)						\
	x(k_sample_logprobs, 0)

#define CUDA_KERNELS(x)							\
	CUDA_ROW_KERNELS(x)						\
	CUDA_KV_KERNELS(x)						\
	CUDA_STATE_KERNELS(x)						\
	CUDA_ADAPT_KERNELS(x)						\
	CUDA_ATTN_KERNELS(x)						\
	CUDA_GEMM_KERNELS(x)						\
	CUDA_SAMPLE_KERNELS(x)

#endif /* KERNELS_CUDA_LIST_H */
