#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# make_quantized.py - golden logits and tokens of a tiny model of every quantized format
#
#	make_quantized.py [DIR [CASE..]]
#
# For each case it writes DIR/CASE/config.json, tensors.txt, golden.json and golden.f32.
# The tensors are not stored: tensors.txt has the name, the type and the shape of each,
# and a rule for its bytes (see tensor() below, and tests/unit/check_model_quantized.c,
# which writes the folder).  The matrices are dequantized here in float32: those of
# compressed-tensors and gpt-oss by the packages compressed-tensors and transformers,
# those of GPTQ, AWQ and fp8 by the formulas below.  The logits come from transformers on
# a CPU in float32, as in ../families.
#
# golden.json: prompt, the 128 greedy tokens behind it, the positions whose logits are
# kept.  golden.f32: their rows.
#
# Needs: pip install torch transformers compressed-tensors numpy

import json
import os
import sys

import compressed_tensors
import numpy as np
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

NR_PROMPT = 24
NR_TOKENS = 128
KEEP = [0, 5, 15, 16, 23, 40, 100, 150]
LEAST_MARGIN = 5e-5

LLAMA = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=256,
    hidden_size=128, intermediate_size=256, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False,
    rope_theta=10000.0, rope_scaling=None, attention_bias=False, mlp_bias=False,
    bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16")

GPT_OSS = dict(
    architectures=["GptOssForCausalLM"], model_type="gpt_oss", vocab_size=256,
    hidden_size=64, intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    max_position_embeddings=256, rms_norm_eps=1e-5, hidden_act="silu",
    attention_bias=True, tie_word_embeddings=False, sliding_window=16,
    layer_types=["sliding_attention", "full_attention"], num_local_experts=4,
    num_experts_per_tok=2, experts_per_token=2, swiglu_limit=7.0,
    rope_theta=150000, initial_context_length=32,
    rope_scaling=dict(rope_type="yarn", factor=8.0, beta_fast=32.0,
                      beta_slow=1.0, truncate=False,
                      original_max_position_embeddings=32),
    output_router_logits=False, router_aux_loss_coef=0.9, pad_token_id=0,
    bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16")

LINEARS = {
    "self_attn.q_proj": (128, 128), "self_attn.k_proj": (64, 128),
    "self_attn.v_proj": (64, 128), "self_attn.o_proj": (128, 128),
    "mlp.gate_proj": (256, 128), "mlp.up_proj": (256, 128),
    "mlp.down_proj": (128, 256),
}


def gptq(bits, group, **more):
    return dict(quant_method="gptq", bits=bits, group_size=group,
                damp_percent=0.01, model_file_base_name=None,
                true_sequential=True, **more)


def compressed(fmt, groups, **more):
    return dict(quant_method="compressed-tensors", format=fmt,
                config_groups=groups, ignore=["lm_head"], kv_cache_scheme=None,
                global_compression_ratio=1.5, quantization_status="compressed",
                **more)


def group(bits=4, kind="int", strategy="group", targets=("Linear",), inputs=None,
          **more):
    return dict(targets=list(targets), input_activations=inputs,
                output_activations=None,
                weights=dict(dict(
                    num_bits=bits, type=kind, strategy=strategy, symmetric=True,
                    group_size=None, block_structure=None, dynamic=False,
                    actorder=None, observer="minmax", observer_kwargs={}), **more))


TOKEN = dict(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True)

CASES = {
    "gptq-128": gptq(4, 128, desc_act=False, sym=True),
    "gptq-32-act": gptq(4, 32, desc_act=True, sym=False,
                        dynamic={"-:.*lm_head": {}}),
    "gptq-v2-row": gptq(4, -1, desc_act=False, sym=False,
                        checkpoint_format="gptq_v2"),
    "gptq-8": gptq(8, 64, desc_act=False, sym=True, checkpoint_format="gptq"),
    "gptq-8-zeros": gptq(8, 128, desc_act=True, sym=False),
    "awq": dict(quant_method="awq", bits=4, group_size=64, zero_point=True,
                version="gemm", modules_to_not_convert=["lm_head"]),
    "awq-middle": dict(quant_method="awq", bits=4, group_size=128, zero_point=False,
                       version="gemm", format="gemm", method="awq", sym=True,
                       pack_dtype="int32", lm_head=False),
    "packed-32": compressed("pack-quantized", {"group_0": group(group_size=32)}),
    "packed-128-zeros": compressed("pack-quantized", {"group_0": group(
        group_size=128, symmetric=False)}),
    "packed-64-act": compressed("pack-quantized", {"group_0": group(
        group_size=64, actorder="group")}),
    "packed-row": compressed("pack-quantized", {"group_0": group(
        strategy="channel")}),
    "packed-8": compressed("pack-quantized", {"group_0": group(
        8, strategy="channel")}),
    "int8": compressed("int-quantized", {"group_0": group(
        8, strategy="channel", inputs=TOKEN)}),
    "float8": compressed("float-quantized", {"group_0": group(
        8, "float", "tensor", inputs=dict(TOKEN, type="float", dynamic=False,
                                          strategy="tensor"))}),
    "float8-row": compressed("float-quantized", {"group_0": group(
        8, "float", "channel")}),
    "float8-block": compressed("float-quantized", {"group_0": group(
        8, "float", "block", block_structure=[128, 128])}),
    "mixed": compressed("mixed-precision", {
        "group_0": dict(group(group_size=32, targets=[r"re:.*self_attn\.[qkv]_proj$"]),
                        format="pack-quantized"),
        "group_1": dict(group(8, "float", "channel"), format="float-quantized"),
        "group_2": dict(group(group_size=128, symmetric=False,
                              targets=["model.layers.1.mlp.down_proj"]),
                        format="pack-quantized")}),
    "fp8": dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3",
                weight_block_size=[128, 128]),
    "fp8-one": dict(quant_method="fp8", activation_scheme="static",
                    ignored_layers=["lm_head"]),
    "fbgemm": dict(quant_method="fbgemm_fp8", activation_scale_ub=1200.0,
                   modules_to_not_convert=["lm_head"]),
    "mxfp4": dict(quant_method="mxfp4", modules_to_not_convert=[
        "model.layers.*.self_attn", "model.layers.*.mlp.router",
        "model.embed_tokens", "lm_head"]),
}


def mix(x):
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9e3779b97f4a7c15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        return x ^ x >> np.uint64(31)


def mixed(name, n):
    h = 0xcbf29ce484222325
    for c in name.encode():
        h = (h ^ c) * 0x100000001b3 % 2**64
    with np.errstate(over="ignore"):
        return mix(np.uint64(h) + np.arange(n, dtype=np.uint64))


TYPES = {"I32": np.int32, "I64": np.int64, "U8": np.uint8, "I8": np.int8,
         "F8_E4M3": np.uint8}


class Folder:
    """The tensors of a folder, and a line for each."""

    def __init__(self):
        self.lines = []

    def tensor(self, name, dtype, rule, arg, *shape):
        """
        bits M     random bytes, and M
        near B     bytes, B + (random & 0x33)
        word W     words of 32 bits, W
        unit P     2^P * k / 64, k random in -64..63; scale P: k in 64..127
        norm -     1 + k / 128, k random in -32..31
        groups G   a random group of G columns for each column
        pair A B   the numbers A and B
        byte B     random in B .. B + 3
        """
        self.lines.append(" ".join([name, dtype, rule, str(arg)] +
                                   [str(s) for s in shape]))
        n = int(np.prod(shape, dtype=np.int64))
        r = mixed(name, n * 8 if rule in ("bits", "near") else n)
        k = (r >> np.uint64(57)).astype(np.int64) - 64
        if rule in ("bits", "near"):
            kind = np.dtype(TYPES[dtype])
            raw = (r >> np.uint64(56)).astype(np.uint8)
            raw = raw & np.uint8(arg) if rule == "bits" else \
                (raw & np.uint8(0x33)) + np.uint8(arg)
            return torch.from_numpy(raw[:n * kind.itemsize].view(kind)
                                    .reshape(shape).copy())
        if rule == "word":
            return torch.from_numpy(np.full(shape, arg, np.uint32).view(np.int32))
        if rule == "groups":
            ranks = np.argsort(np.argsort(r, kind="stable"), kind="stable")
            return torch.from_numpy((ranks // arg).astype(np.int32))
        if rule == "byte":
            return torch.from_numpy((arg + (k & 3)).astype(np.uint8).reshape(shape))
        if rule == "norm":
            v = 1 + (k >> 1) / 128
        else:
            v = 2.0**arg * (k & 63 | 64 if rule == "scale" else k) / 64
        return torch.tensor(v.reshape(shape), dtype=torch.float32)


def unpack(words, bits, order=None):
    """The codes of words of 32 bits, one after the other in the last dimension."""
    per = 32 // bits
    w = words.numpy().view(np.uint32)
    codes = np.stack([w >> (bits * i) & (2**bits - 1) for i in range(per)], -1)
    if order:
        codes = codes[..., np.argsort(order)]
    return codes.reshape(*w.shape[:-1], -1).astype(np.float32)


def make_gptq(f, name, rows, cols, q):
    bits, size = q["bits"], q["group_size"]
    groups = 1 if size == -1 else cols // size
    per = 32 // bits
    words = f.tensor(name + ".qweight", "I32", "bits", 255, cols // per, rows)
    scales = f.tensor(name + ".scales", "F16", "scale", -6 if bits == 4 else -10,
                      groups, rows)
    less = q.get("checkpoint_format") != "gptq_v2"
    if q["sym"]:
        w = {4: 0x88888888 - 0x11111111 * less, 8: 0x80808080 - 0x01010101 * less}
        zeros = f.tensor(name + ".qzeros", "I32", "word", w[bits], groups,
                         rows // per)
    else:
        zeros = f.tensor(name + ".qzeros", "I32", "near", 0x66 if bits == 4 else 0x70,
                         groups, rows // per)
    if q["desc_act"]:
        idx = f.tensor(name + ".g_idx", "I32", "groups", cols // groups, cols)
    else:
        idx = torch.arange(cols) // (cols // groups)
    codes = unpack(words.T.contiguous(), bits)
    zero = unpack(zeros, bits) + less
    idx = idx.long().numpy()
    return torch.from_numpy((codes - zero[idx].T) * scales.numpy()[idx].T)


def make_awq(f, name, rows, cols, q):
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    size = q["group_size"]
    words = f.tensor(name + ".qweight", "I32", "bits", 255, cols, rows // 8)
    kind = "F16" if q["zero_point"] else "BF16"
    scales = f.tensor(name + ".scales", kind, "scale", -6, cols // size, rows)
    rule = ("bits", 255) if q["zero_point"] else ("word", 0x88888888)
    zeros = f.tensor(name + ".qzeros", "I32", *rule, cols // size, rows // 8)
    codes, zero = unpack(words, 4, order), unpack(zeros, 4, order)
    return torch.from_numpy(((codes - np.repeat(zero, size, 0)) *
                             np.repeat(scales.numpy(), size, 0)).T.copy())


def make_compressed(f, name, rows, cols, q):
    g = q["config_groups"]
    pick = "group_0"
    if len(g) > 1:
        pick = "group_0" if name[-6] in "qkv" and "attn" in name else \
            "group_2" if "1.mlp.down" in name else "group_1"
    g = g[pick]
    fmt = g.get("format", q["format"])
    w = g["weights"]
    bits = w["num_bits"]
    groups = cols // w["group_size"] if w["group_size"] else 1
    parts = {}
    shape = (rows, groups)
    power = -6 if bits == 4 else -10 if w["type"] == "int" else -3
    if w["strategy"] == "tensor":
        shape = (1,)
    elif w["strategy"] == "block":
        shape = ((rows + 127) // 128, (cols + 127) // 128)
    parts["weight_scale"] = f.tensor(name + ".weight_scale", "BF16", "scale", power,
                                     *shape)
    if fmt == "pack-quantized":
        per = 32 // bits
        parts["weight_packed"] = f.tensor(name + ".weight_packed", "I32", "bits", 255,
                                          rows, cols // per)
        parts["weight_shape"] = torch.tensor([rows, cols])
        f.lines.append(f"{name}.weight_shape I64 pair {rows} {cols}")
        if not w["symmetric"]:
            parts["weight_zero_point"] = f.tensor(
                name + ".weight_zero_point", "I32", "bits", 255, rows // per, groups)
        if w["actorder"] == "group":
            parts["weight_g_idx"] = f.tensor(name + ".weight_g_idx", "I32", "groups",
                                             w["group_size"], cols)
    elif w["type"] == "float":
        raw = f.tensor(name + ".weight", "F8_E4M3", "bits", 0xbf, rows, cols)
        parts["weight"] = raw.view(torch.float8_e4m3fn).float()
    else:
        parts["weight"] = f.tensor(name + ".weight", "I8", "bits", 255, rows, cols)
    if w["strategy"] == "tensor":
        f.tensor(name + ".input_scale", "BF16", "scale", -6, 1)
    if w["strategy"] == "block":
        s = parts["weight_scale"].repeat_interleave(128, 0).repeat_interleave(128, 1)
        return parts["weight"] * s[:rows, :cols]
    scheme = QuantizationScheme.model_validate(dict(g, format=None))
    return BaseCompressor.get_value_from_registry(fmt).decompress(
        parts, scheme)["weight"].float()


def make_fp8(f, name, rows, cols, q):
    raw = f.tensor(name + ".weight", "F8_E4M3", "bits", 0xbf, rows, cols)
    w = raw.view(torch.float8_e4m3fn).float()
    if q["quant_method"] == "fbgemm_fp8":
        return w * f.tensor(name + ".weight_scale", "F32", "scale", -3, rows, 1)
    if "weight_block_size" in q:
        s = f.tensor(name + ".weight_scale_inv", "F32", "scale", -3,
                     (rows + 127) // 128, (cols + 127) // 128)
        s = s.repeat_interleave(128, 0).repeat_interleave(128, 1)
        return w * s[:rows, :cols]
    s = f.tensor(name + ".weight_scale", "F32", "scale", -3)
    f.tensor(name + ".input_scale", "F32", "scale", -3)
    return w * s


MAKE = {"gptq": make_gptq, "awq": make_awq, "compressed-tensors": make_compressed,
        "fp8": make_fp8, "fbgemm_fp8": make_fp8}


def make_experts(f, name, shape):
    experts, cols, rows = shape
    blocks = f.tensor(name + "_blocks", "U8", "bits", 255, experts, rows, cols // 32,
                      16)
    scales = f.tensor(name + "_scales", "U8", "byte", 120, experts, rows, cols // 32)
    return convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)


def fill(f, name, shape, q):
    """A tensor of the program from those of the folder."""
    module = name.rsplit(".", 1)[0]
    if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return make_experts(f, name, shape)
    if name.startswith("model.layers.") and module.split(".", 3)[3] in LINEARS and \
            q["quant_method"] != "mxfp4":
        return MAKE[q["quant_method"]](f, module, *shape, q)
    if "norm" in name:
        return f.tensor(name, "BF16", "norm", 0, *shape)
    return f.tensor(name, "BF16", "unit", -1 if "embed" in name else -3, *shape)


def load(config, f):
    kind = config["model_type"]
    cls = type(transformers.AutoConfig.for_model(kind))
    plain = {k: v for k, v in config.items() if k != "quantization_config"}
    cfg = cls.from_dict(json.loads(json.dumps(plain)))
    cfg._attn_implementation = "eager"
    model = getattr(transformers, config["architectures"][0])(cfg).float().eval()
    made = {n: fill(f, n, tuple(p.shape), config["quantization_config"])
            for n, p in model.state_dict().items()}
    model.load_state_dict(made)
    return model


def run(model, tokens):
    rows, out = [], list(tokens)
    past, at = None, 0
    with torch.no_grad():
        while at < NR_PROMPT + NR_TOKENS - 1:
            r = model(input_ids=torch.tensor([out[at:]]), past_key_values=past,
                      use_cache=True)
            past = r.past_key_values
            rows += list(r.logits[0].float())
            at = len(out)
            out.append(int(rows[-1].argmax()))
    return out, torch.stack(rows)


def make(top, case):
    config = dict(GPT_OSS if case == "mxfp4" else LLAMA,
                  quantization_config=CASES[case])
    f = Folder()
    model = load(config, f)
    for n in range(20):
        prompt = [int(k >> np.uint64(56)) for k in
                  mixed(f"prompt {n} of {case}", NR_PROMPT)]
        tokens, exact = run(model, prompt)
        scores = exact[NR_PROMPT - 1:]
        best = scores.topk(2).values
        margin = float(((best[:, 0] - best[:, 1]) / scores.abs().max(1).values).min())
        if margin > LEAST_MARGIN:
            break
    assert margin > LEAST_MARGIN, (case, margin)
    print(f"{case}: margin {margin:.1e}, prompt {n}, distinct tokens "
          f"{len(set(tokens[NR_PROMPT:]))}")
    where = os.path.join(top, case)
    os.makedirs(where, exist_ok=True)
    with open(os.path.join(where, "config.json"), "w") as o:
        json.dump(config, o, indent=1)
        o.write("\n")
    with open(os.path.join(where, "tensors.txt"), "w") as o:
        o.write("\n".join(sorted(f.lines)) + "\n")
    with open(os.path.join(where, "golden.json"), "w") as o:
        json.dump({"transformers": transformers.__version__,
                   "torch": torch.__version__.split("+")[0],
                   "compressed-tensors": compressed_tensors.__version__,
                   "prompt": prompt, "tokens": tokens[NR_PROMPT:], "keep": KEEP}, o)
        o.write("\n")
    exact[KEEP].numpy().astype("<f4").tofile(os.path.join(where, "golden.f32"))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(
        os.path.abspath(__file__))
    for case in sys.argv[2:] or CASES:
        make(top, case)


main()
