#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# make_families.py - golden logits and tokens of a tiny model of every family
#
#	make_families.py [DIR [CASE..]]
#
# For each case it writes DIR/CASE/config.json, golden.json and golden.f32.
# The weights are not stored: they are the ones that the runtime makes up for a
# configuration (runtime/model/dummy.c), computed here by the same rule.  The
# logits come from Hugging Face transformers on a CPU (torch, eager attention,
# with its KV cache, the prompt in one piece and then token by token); the
# versions are in golden.json.
#
# golden.json: prompt, the 128 greedy tokens behind it (float32), the positions
# whose logits are kept.  golden.f32, rows of float32 logits, one for each of
# those positions: computed in float32; then, over the same tokens and with
# weights of half the size, in float32 and in bfloat16.  (With large weights
# attention is sharp and greedy tokens are many, but then no two ways to round
# to bfloat16 agree within 2e-2, those of the oracle itself included.)
#
# Needs: pip install torch transformers numpy

import json
import os
import sys

import numpy as np
import torch
import transformers

NR_PROMPT = 24
NR_TOKENS = 128
KEEP = [0, 5, 15, 16, 23, 40, 100, 150]
LEAST_MARGIN = 2e-5	# of the likeliest token, against the largest logit

LLAMA = dict(
    vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    rms_norm_eps=1e-5, initializer_range=0.15, hidden_act="silu",
    tie_word_embeddings=False,
    bos_token_id=1, eos_token_id=2)


def llama(arch, **more):
    return dict(dict(LLAMA, architectures=[arch]), **more)


def granite(**more):
    return dict(
        architectures=["GraniteMoeHybridForCausalLM"],
        model_type="granitemoehybrid", vocab_size=256, hidden_size=64,
        intermediate_size=96, shared_intermediate_size=96,
        num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=256, rms_norm_eps=1e-5, hidden_act="silu",
        initializer_range=0.15, init_method="mup",
        normalization_function="rmsnorm", tie_word_embeddings=False,
        embedding_multiplier=6, attention_multiplier=0.125,
        residual_multiplier=0.5, logits_scaling=3, num_local_experts=0,
        num_experts_per_tok=0, output_router_logits=False,
        router_aux_loss_coef=0.01, rope_theta=10000, rope_scaling=None,
        mamba_expand=2, mamba_chunk_size=32, mamba_proj_bias=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, **more)


def rope(**scaling):
    return llama("LlamaForCausalLM", rope_theta=10000.0, rope_scaling=scaling)


def deepseek(**more):
    """The first layer has an MLP, the others experts."""
    return dict(
        llama("DeepseekV2ForCausalLM", rope_theta=10000.0, rope_scaling=None,
              attention_bias=False, attention_dropout=0.0, aux_loss_alpha=0.001,
              seq_aux=True, ep_size=1, moe_layer_freq=1, scoring_func="softmax",
              kv_lora_rank=32, q_lora_rank=None, qk_nope_head_dim=32,
              qk_rope_head_dim=16, v_head_dim=32, first_k_dense_replace=1,
              n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3,
              moe_intermediate_size=24, norm_topk_prob=False,
              routed_scaling_factor=1.0, topk_method="greedy", n_group=1,
              topk_group=1),
        num_hidden_layers=3, num_key_value_heads=4, **more)


CASES = {
    "llama": llama("LlamaForCausalLM", model_type="llama", rope_theta=500000.0,
                   attention_bias=True, mlp_bias=True),
    "llama-linear": rope(type="linear", factor=4.0),
    "llama-dynamic": dict(rope(rope_type="dynamic", factor=4.0),
                          max_position_embeddings=64),
    "llama-llama3": rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                         high_freq_factor=4.0,
                         original_max_position_embeddings=64),
    "llama-yarn": rope(rope_type="yarn", factor=4.0,
                       original_max_position_embeddings=64, beta_fast=8.0,
                       beta_slow=1.0),
    "mistral": llama("MistralForCausalLM", sliding_window=16, head_dim=32,
                     rope_theta=10000.0),
    "qwen2": dict(llama("Qwen2ForCausalLM", rope_theta=1e6,
                        use_sliding_window=False, sliding_window=16,
                        max_window_layers=2), tie_word_embeddings=True),
    "qwen2-window": llama("Qwen2ForCausalLM", rope_theta=1e6,
                          use_sliding_window=True, sliding_window=16,
                          max_window_layers=1),
    "qwen3": llama("Qwen3ForCausalLM", rope_theta=1e6, head_dim=32,
                   attention_bias=False, sliding_window=None,
                   use_sliding_window=False),
    "qwen3-moe": dict(
        llama("Qwen3MoeForCausalLM", rope_theta=1e6, head_dim=32,
              attention_bias=False, sliding_window=None,
              use_sliding_window=False, max_window_layers=3, num_experts=8,
              num_experts_per_tok=4, moe_intermediate_size=24,
              norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1],
              output_router_logits=False, router_aux_loss_coef=0.001),
        num_hidden_layers=3),
    "qwen3-moe-all": dict(
        llama("Qwen3MoeForCausalLM", rope_theta=1e6, head_dim=32,
              attention_bias=False, sliding_window=None,
              use_sliding_window=False, max_window_layers=4, num_experts=6,
              num_experts_per_tok=3, moe_intermediate_size=32,
              norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[],
              output_router_logits=False, router_aux_loss_coef=0.001),
        num_hidden_layers=4),
    "qwen2-moe": dict(
        llama("Qwen2MoeForCausalLM", rope_theta=1e6, sliding_window=16,
              use_sliding_window=False, max_window_layers=3, num_experts=8,
              num_experts_per_tok=3, moe_intermediate_size=24,
              shared_expert_intermediate_size=40, norm_topk_prob=False,
              decoder_sparse_step=1, mlp_only_layers=[],
              output_router_logits=False, router_aux_loss_coef=0.001),
        num_hidden_layers=3),
    "mixtral": dict(
        llama("MixtralForCausalLM", rope_theta=1e6, sliding_window=None,
              num_local_experts=8, num_experts_per_tok=2,
              output_router_logits=False, router_aux_loss_coef=0.02,
              router_jitter_noise=0.0),
        num_hidden_layers=3, initializer_range=0.1),
    "olmoe": dict(
        llama("OlmoeForCausalLM", rope_theta=10000.0, attention_bias=False,
              clip_qkv=None, num_experts=8, num_experts_per_tok=4,
              norm_topk_prob=False, output_router_logits=False,
              router_aux_loss_coef=0.01),
        num_hidden_layers=3, initializer_range=0.1),
    "phi3": llama("Phi3ForCausalLM", rope_theta=10000.0, sliding_window=16,
                  partial_rotary_factor=0.75, pad_token_id=0,
                  original_max_position_embeddings=256, rope_scaling=None),
    "gemma2": dict(
        architectures=["Gemma2ForCausalLM"], vocab_size=256, hidden_size=64,
        intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=256,
        tie_word_embeddings=False,
        rms_norm_eps=1e-6, initializer_range=0.15,
        hidden_activation="gelu_pytorch_tanh",
        hidden_act="gelu_pytorch_tanh", sliding_window=16,
        query_pre_attn_scalar=24, attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0, rope_theta=10000.0, pad_token_id=0,
        bos_token_id=2, eos_token_id=1, cache_implementation="hybrid"),
    "gemma3": dict(
        architectures=["Gemma3ForCausalLM"], vocab_size=256, hidden_size=64,
        intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=256,
        tie_word_embeddings=False,
        rms_norm_eps=1e-6, initializer_range=0.15,
        hidden_activation="gelu_pytorch_tanh",
        sliding_window=16, sliding_window_pattern=3, query_pre_attn_scalar=128,
        rope_theta=1e6, rope_local_base_freq=10000.0,
        rope_scaling=dict(rope_type="linear", factor=8.0),
        attn_logit_softcapping=None, final_logit_softcapping=None,
        pad_token_id=0, bos_token_id=2, eos_token_id=[1, 106]),
    "gpt2": dict(
        architectures=["GPT2LMHeadModel"], vocab_size=256, n_embd=64,
        n_layer=2, n_head=4, n_positions=256, n_ctx=256, n_inner=None,
        layer_norm_epsilon=1e-5, initializer_range=0.15, activation_function="gelu_new",
        attn_pdrop=0.1, embd_pdrop=0.1, resid_pdrop=0.1, bos_token_id=255,
        eos_token_id=255, summary_type="cls_index"),
    "opt": dict(
        architectures=["OPTForCausalLM"], vocab_size=256, hidden_size=64,
        ffn_dim=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=256, word_embed_proj_dim=64,
        do_layer_norm_before=True, activation_function="relu",
        _remove_final_layer_norm=False, activation_dropout=0.0, dropout=0.1,
        layerdrop=0.0, init_std=0.15, pad_token_id=1, bos_token_id=2,
        eos_token_id=2, prefix="</s>"),
    "neox": dict(
        architectures=["GPTNeoXForCausalLM"], vocab_size=256, hidden_size=64,
        intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=256, layer_norm_eps=1e-5, hidden_act="gelu",
        initializer_range=0.15,
        rotary_pct=0.25, rotary_emb_base=10000, use_parallel_residual=True,
        attention_bias=True, tie_word_embeddings=False, bos_token_id=0,
        eos_token_id=0),
    "gpt-oss": dict(
        architectures=["GptOssForCausalLM"], vocab_size=256, hidden_size=64,
        intermediate_size=24, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=256,
        rms_norm_eps=1e-5, initializer_range=0.15, hidden_act="silu",
        attention_bias=True, tie_word_embeddings=False, sliding_window=16,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_local_experts=8, num_experts_per_tok=4, experts_per_token=4,
        swiglu_limit=1.0, rope_theta=150000, initial_context_length=32,
        rope_scaling=dict(rope_type="yarn", factor=8.0, beta_fast=32.0,
                          beta_slow=1.0, truncate=False,
                          original_max_position_embeddings=32),
        output_router_logits=False, router_aux_loss_coef=0.9,
        pad_token_id=0, bos_token_id=1, eos_token_id=2),
    "neox-sequential": dict(
        architectures=["GPTNeoXForCausalLM"], vocab_size=256, hidden_size=64,
        intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=256, layer_norm_eps=1e-5, hidden_act="gelu",
        initializer_range=0.15,
        rotary_pct=1.0, rotary_emb_base=10000, use_parallel_residual=False,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=0),
    "granite": granite(
        num_hidden_layers=4, layer_types=["mamba", "attention", "mamba",
                                          "mamba"],
        position_embedding_type="nope", mamba_n_heads=8, mamba_d_head=16,
        mamba_d_state=32, mamba_n_groups=2, mamba_d_conv=4),
    "granite-rope": granite(
        num_hidden_layers=3, layer_types=["attention", "mamba", "attention"],
        position_embedding_type="rope", mamba_n_heads=4, mamba_d_head=32,
        mamba_d_state=16, mamba_n_groups=1, mamba_d_conv=3,
        mamba_conv_bias=False, attention_bias=True),
    "bamba": dict(
        llama("BambaForCausalLM", model_type="bamba", num_hidden_layers=2,
              attn_layer_indices=[1], attn_rotary_emb=16, rope_theta=10000.0,
              attention_bias=False, mlp_bias=True, num_logits_to_keep=1,
              z_loss_coefficient=0.0, mamba_n_heads=4, mamba_d_head=32,
              mamba_d_state=48, mamba_n_groups=1, mamba_d_conv=4,
              mamba_expand=2, mamba_chunk_size=32, mamba_proj_bias=False,
              pad_token_id=0),
        num_attention_heads=2),
}

CASES["granite3"] = llama(
    "GraniteForCausalLM", model_type="granite", rope_theta=10000.0,
    rope_scaling=None, attention_bias=True, mlp_bias=True,
    attention_dropout=0.1, embedding_multiplier=6.0,
    attention_multiplier=0.125, residual_multiplier=0.5, logits_scaling=3.0,
    pad_token_id=0)
CASES["olmo2"] = llama(
    "Olmo2ForCausalLM", model_type="olmo2", rope_theta=500000.0,
    rope_scaling=None, attention_bias=False, attention_dropout=0.0,
    pad_token_id=0, initializer_range=0.06)
CASES["smollm3"] = dict(
    llama("SmolLM3ForCausalLM", model_type="smollm3", rope_theta=5e6,
          rope_scaling=None, attention_bias=False, mlp_bias=False,
          no_rope_layers=[1, 0, 1, 0], no_rope_layer_interval=2,
          layer_types=["full_attention"] * 4, max_window_layers=28,
          sliding_window=None, use_sliding_window=False, pretraining_tp=2,
          pad_token_id=0),
    num_hidden_layers=4, initializer_range=0.1, rms_norm_eps=1e-3)
CASES["smollm3-window"] = dict(
    llama("SmolLM3ForCausalLM", model_type="smollm3", rope_theta=5e6,
          no_rope_layer_interval=3, sliding_window=16,
          use_sliding_window=True, pad_token_id=0), num_hidden_layers=3,
    tie_word_embeddings=True)


def cohere(arch, **more):
    config = dict(
        llama(arch, layer_norm_eps=1e-5, attention_bias=False,
              attention_dropout=0.0, rope_theta=10000.0, logit_scale=0.25,
              pad_token_id=0), tie_word_embeddings=True, **more)
    del config["rms_norm_eps"]
    return config


CASES["cohere"] = cohere("CohereForCausalLM", model_type="cohere",
                         model_max_length=131072)
CASES["cohere-qk-norm"] = dict(
    cohere("CohereForCausalLM", use_qk_norm=True), attention_bias=True,
    tie_word_embeddings=False)
CASES["cohere2"] = dict(
    cohere("Cohere2ForCausalLM", model_type="cohere2", head_dim=16,
           cache_implementation="hybrid", layer_switch=3,
           order_of_interleaved_layers="local_attn_first",
           position_embedding_type="rope_gptj", rope_scaling=None,
           rotary_pct=1.0, sliding_window=16, sliding_window_pattern=3,
           use_embedding_sharing=True, use_gated_activation=True,
           use_parallel_block=True, use_parallel_embedding=True),
    num_hidden_layers=4)
CASES["gemma1"] = dict(
    architectures=["GemmaForCausalLM"], vocab_size=256, hidden_size=64,
    intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=1, head_dim=32, max_position_embeddings=256,
    rms_norm_eps=1e-6, initializer_range=0.15, hidden_act="gelu",
    hidden_activation="gelu_pytorch_tanh", attention_bias=False,
    tie_word_embeddings=False, rope_theta=10000.0, rope_scaling=None,
    pad_token_id=0, bos_token_id=2, eos_token_id=1)
NORMS = dict(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256,
    initializer_range=0.15, rope_theta=10000.0, bos_token_id=0, eos_token_id=0)
CASES["phi"] = dict(
    NORMS, architectures=["PhiForCausalLM"], model_type="phi",
    num_key_value_heads=None, attention_dropout=0.0, embd_pdrop=0.0,
    resid_pdrop=0.1, hidden_act="gelu_new", layer_norm_eps=1e-5,
    partial_rotary_factor=0.5, qk_layernorm=False, rope_scaling=None,
    tie_word_embeddings=False)
CASES["phi-qk-norm"] = dict(
    CASES["phi"], num_key_value_heads=2, qk_layernorm=True,
    partial_rotary_factor=0.25)
CASES["starcoder2"] = dict(
    NORMS, architectures=["Starcoder2ForCausalLM"], model_type="starcoder2",
    activation_function="gelu", attention_dropout=0.1,
    attention_softmax_in_fp32=True, embedding_dropout=0.1,
    residual_dropout=0.1, hidden_act="gelu_pytorch_tanh",
    layer_norm_epsilon=1e-5, norm_epsilon=1e-5, mlp_type="default",
    norm_type="layer_norm", scale_attention_softmax_in_fp32=True,
    scale_attn_weights=True, sliding_window=16, use_bias=True,
    initializer_range=0.1, tie_word_embeddings=False)
CASES["starcoder2-plain"] = dict(
    NORMS, architectures=["Starcoder2ForCausalLM"], num_attention_heads=4,
    num_key_value_heads=2, norm_epsilon=1e-5, hidden_act="gelu_pytorch_tanh",
    use_bias=False, sliding_window=None)
CASES["stablelm"] = dict(
    NORMS, architectures=["StableLmForCausalLM"], model_type="stablelm",
    hidden_act="silu", layer_norm_eps=1e-5, partial_rotary_factor=0.25,
    use_qkv_bias=True, tie_word_embeddings=False)
CASES["stablelm-qk-norm"] = dict(
    NORMS, architectures=["StableLmForCausalLM"], num_attention_heads=4,
    num_key_value_heads=2, hidden_act="silu", layer_norm_eps=1e-5,
    partial_rotary_factor=0.5, attention_dropout=0.0, hidden_dropout=0.0,
    qk_layernorm=True, use_parallel_residual=True, tie_word_embeddings=False)
CASES["mistral-one-dynamic"] = dict(
    CASES["mistral"], sliding_window=1, max_position_embeddings=64,
    rope_scaling=dict(rope_type="dynamic", factor=4.0))

PAIRS = 6
CASES["phi3-long"] = dict(
    CASES["phi3"], sliding_window=None, original_max_position_embeddings=64,
    initializer_range=0.1,
    rope_scaling=dict(type="longrope",
                      short_factor=[1 + i / 8 for i in range(PAIRS)],
                      long_factor=[2 + i for i in range(PAIRS)]))
CASES["phi3-short"] = dict(
    CASES["phi3"], original_max_position_embeddings=256,
    rope_scaling=dict(type="longrope", attention_factor=1.2,
                      short_factor=[1 + i / 8 for i in range(PAIRS)],
                      long_factor=[1 + 3 * i for i in range(PAIRS)]))
CASES["opt-behind"] = dict(
    CASES["opt"], word_embed_proj_dim=48, do_layer_norm_before=False)
CASES["opt-plain"] = dict(
    CASES["opt"], word_embed_proj_dim=80, enable_bias=False,
    layer_norm_elementwise_affine=False)
CASES["gpt2-layers"] = dict(
    CASES["gpt2"], n_layer=3, scale_attn_by_inverse_layer_idx=True,
    reorder_and_upcast_attn=True, initializer_range=0.1)

# Heads of sizes that are multiples of 8, and not of 16.
CASES["llama-head24"] = llama("LlamaForCausalLM", model_type="llama",
                              head_dim=24, rope_theta=500000.0)
CASES["llama-head40"] = dict(
    llama("LlamaForCausalLM", model_type="llama", rope_theta=10000.0),
    hidden_size=80, num_attention_heads=2, num_key_value_heads=1,
    initializer_range=0.12)
CASES["mistral-head120"] = dict(
    llama("MistralForCausalLM", sliding_window=16, rope_theta=10000.0),
    hidden_size=240, num_attention_heads=2, num_key_value_heads=1,
    initializer_range=0.1)

# Layers without experts follow a small change of KV smoothly.
CASES["deepseek2"] = dict(deepseek(), first_k_dense_replace=3)
CASES["deepseek2-yarn"] = dict(
    deepseek(), first_k_dense_replace=3, q_lora_rank=48, rms_norm_eps=1e-4,
    rope_scaling=dict(type="yarn", factor=4.0, mscale=0.7, mscale_all_dim=0.9,
                      original_max_position_embeddings=64, beta_fast=8,
                      beta_slow=1))
CASES["deepseek2-moe"] = dict(deepseek(), num_experts_per_tok=6)
CASES["deepseek2-groups-moe"] = dict(
    deepseek(), q_lora_rank=48, kv_lora_rank=48, v_head_dim=16,
    topk_method="group_limited_greedy", n_group=4, topk_group=2,
    initializer_range=0.1, routed_scaling_factor=1.5)

MODEL_TYPE = {
    "LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe", "GptOssForCausalLM": "gpt_oss",
    "Qwen2MoeForCausalLM": "qwen2_moe", "MixtralForCausalLM": "mixtral",
    "OlmoeForCausalLM": "olmoe",
    "Phi3ForCausalLM": "phi3", "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text", "GPT2LMHeadModel": "gpt2",
    "OPTForCausalLM": "opt", "GPTNeoXForCausalLM": "gpt_neox",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "GraniteMoeHybridForCausalLM": "granitemoehybrid",
    "BambaForCausalLM": "bamba",
    "GraniteForCausalLM": "granite", "Olmo2ForCausalLM": "olmo2",
    "SmolLM3ForCausalLM": "smollm3", "CohereForCausalLM": "cohere",
    "Cohere2ForCausalLM": "cohere2", "GemmaForCausalLM": "gemma",
    "PhiForCausalLM": "phi", "Starcoder2ForCausalLM": "starcoder2",
    "StableLmForCausalLM": "stablelm",
}


def mix(x):
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9e3779b97f4a7c15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        return x ^ x >> np.uint64(31)


def steps(name, n):
    h = 0xcbf29ce484222325
    for c in name.encode():
        h = (h ^ c) * 0x100000001b3 % 2**64
    with np.errstate(over="ignore"):
        x = np.uint64(h) + np.arange(n, dtype=np.uint64)
    return (mix(x) >> np.uint64(57)).astype(np.int64) - 64


def tensor(name, shape, plus_one, reach):
    n = int(np.prod(shape))
    k = steps(name, n)
    if len(shape) > 1 and not name.endswith(("bias", "_norm.weight")):
        v = k / 64 * 2.0 ** np.floor(np.log2(2 * reach))
    elif len(shape) == 3:
        v = k / 128
    elif name.endswith(("dt_bias", "A_log", ".D")):
        v = k / 32
    elif name.endswith(".weight"):
        v = (k & ~1) / 256 + (0 if plus_one else 1)
    else:
        v = k / 512
    return torch.tensor(v.reshape(shape), dtype=torch.float32)


def experts(name, shape, reach):
    """The program's tensor of all experts, from the files' one for each."""
    top, what = name.rsplit(".", 1)
    parts = {"gate_up_proj": ["gate_proj", "up_proj"]}.get(what, [what])
    if ".block_sparse_moe." in name:
        parts = {"gate_up_proj": ["w1", "w3"], "down_proj": ["w2"]}[what]
    rows = shape[1] // len(parts)
    return torch.stack([
        torch.cat([tensor(f"{top}.{e}.{p}.weight", (rows, shape[2]), False,
                          reach) for p in parts])
        for e in range(shape[0])])


def load(config, dtype, reach):
    arch = config["architectures"][0]
    kind = MODEL_TYPE[arch]
    cls = type(transformers.AutoConfig.for_model(kind))
    cfg = cls.from_dict(json.loads(json.dumps(config)))
    cfg._attn_implementation = "eager"
    model = getattr(transformers, arch)(cfg).eval()
    own = model.state_dict()
    tied = config.get("tie_word_embeddings", cfg.tie_word_embeddings)
    head = "lm_head.weight"
    # What the program calls otherwise than its own files do.
    stored = {head: "embed_out.weight"} if kind == "gpt_neox" else {}
    if kind == "mixtral":
        stored = {n: n.replace(".mlp.", ".block_sparse_moe.") for n in own}
    made = {n: experts(stored.get(n, n), tuple(p.shape), reach)
            if kind in ("qwen3_moe", "deepseek_v2", "qwen2_moe", "mixtral", "olmoe")
            and ".mlp.experts." in n else
            tensor(stored.get(n, n), tuple(p.shape), kind.startswith("gemma"),
                   reach)
            for n, p in own.items() if not (tied and n == head)}
    missing, unexpected = model.load_state_dict(made, strict=False)
    assert not unexpected and set(missing) <= {head}, (missing, unexpected)
    model.tie_weights()
    return model.to(dtype)


def run_long(model, tokens, nr):
    """run() without a cache, and as if every text had its whole length.

    So longrope has the same frequencies for all tokens.  A window of one token needs it,
    too: the cache of transformers keeps the last sliding_window - 1 tokens, and for 0 its
    slice has all of them, which a mask for none then does not fit.  Later tokens change no
    earlier logits, so texts are filled up.
    """
    out, whole = list(tokens[:NR_PROMPT]), NR_PROMPT + nr - 1
    with torch.no_grad():
        while len(out) <= whole:
            ids = torch.tensor([(out + [0] * whole)[:whole]])
            rows = model(input_ids=ids, use_cache=False).logits[0].float()
            out.append(tokens[len(out)] if len(out) < len(tokens)
                       else int(rows[len(out) - 1].argmax()))
    return out, rows


def run(model, tokens, nr):
    """Logits of positions; greedy behind @tokens, or forced by them."""
    rope = getattr(model.config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope" or \
            getattr(model.config, "sliding_window", None) == 1:
        return run_long(model, tokens, nr)
    rows, out = [], list(tokens[:NR_PROMPT])
    past, at = None, 0
    with torch.no_grad():
        while at < NR_PROMPT + nr - 1:
            ids = torch.tensor([out[at:]])
            # Bamba's model counts from 0 in every call, unless it is told.
            where = {"position_ids": torch.arange(at, len(out))[None]} \
                if model.config.model_type == "bamba" else {}
            r = model(input_ids=ids, past_key_values=past, use_cache=True,
                      **where)
            past = r.past_key_values
            rows += list(r.logits[0].float())
            at = len(out)
            out.append(tokens[at] if at < len(tokens)
                       else int(rows[-1].argmax()))
    return out, torch.stack(rows)


def make(top, case):
    config = CASES[case]
    prompt = [int(k) + 64 + 128 * (i % 2) for i, k in
              enumerate(steps("prompt of " + case, NR_PROMPT))]
    reach = config.get("initializer_range", config.get("init_std"))
    model = load(config, torch.float32, reach)
    tokens, exact = run(model, prompt, NR_TOKENS)
    scores = exact[NR_PROMPT - 1:]
    best = scores.topk(2).values
    margin = float(((best[:, 0] - best[:, 1]) /
                    scores.abs().max(1).values).min())
    assert margin > LEAST_MARGIN, (case, margin)
    _, half = run(load(config, torch.float32, reach / 2), tokens, NR_TOKENS)
    _, rounded = run(load(config, torch.bfloat16, reach / 2), tokens,
                     NR_TOKENS)
    apart = float(((half - rounded).abs().max(1).values /
                   half.abs().max(1).values).max())
    print(f"{case}: margin {margin:.1e}, distinct tokens "
          f"{len(set(tokens[NR_PROMPT:]))}, bf16 within {apart:.1e}")
    where = os.path.join(top, case)
    os.makedirs(where, exist_ok=True)
    with open(os.path.join(where, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    with open(os.path.join(where, "golden.json"), "w") as f:
        json.dump({"transformers": transformers.__version__,
                   "torch": torch.__version__.split("+")[0],
                   "prompt": prompt, "tokens": tokens[NR_PROMPT:],
                   "keep": KEEP}, f)
        f.write("\n")
    rows = torch.cat([exact[KEEP], half[KEEP], rounded[KEEP]]).numpy()
    rows.astype("<f4").tofile(os.path.join(where, "golden.f32"))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(
        os.path.abspath(__file__))
    for case in sys.argv[2:] or CASES:
        make(top, case)


if __name__ == "__main__":
    main()
