#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gguf_files.py - GGUF files of a Llama model in a Hugging Face folder, one of each type

usage: gguf_files.py MODEL FOLDER [TYPE]...

Writes FOLDER/TYPE.gguf from MODEL, which has the architecture of Llama in one file of safetensors
and a byte-level BPE vocabulary with the words of GPT-2's pattern.  F32, F16, BF16 and MXFP4 are
written by the package gguf; llama.cpp quantizes the others from F32.  TYPE_pure has that type in
every matrix: llama.cpp else gives some matrices a better one.  A file that is newer than MODEL stays.
"""
import json
import struct
import sys
from pathlib import Path

import gguf
import numpy

PLAIN = {"F32": (0, gguf.GGMLQuantizationType.F32), "F16": (1, gguf.GGMLQuantizationType.F16),
         "BF16": (32, gguf.GGMLQuantizationType.BF16), "MXFP4": (38, gguf.GGMLQuantizationType.MXFP4)}
# numbers of llama.cpp's types of files
FILES = {"Q8_0": 7, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15,
         "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30}
PURE = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "IQ4_NL", "IQ4_XS"]
TYPES = [*PLAIN, *FILES, *(name + "_pure" for name in PURE)]

NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}


def tensors(path):
    """(name, values in f32) of each tensor of a file of safetensors in bf16 or f32."""
    data = path.read_bytes()
    size, = struct.unpack_from("<Q", data)
    for name, t in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + x for x in t["data_offsets"])
        if t["dtype"] == "BF16":
            bits = numpy.frombuffer(data[begin:end], "<u2").astype("<u4") << 16
        elif t["dtype"] == "F32":
            bits = numpy.frombuffer(data[begin:end], "<u4")
        else:
            sys.exit(f"gguf_files: {name} is {t['dtype']}")
        yield name, bits.view("<f4").reshape(t["shape"])


def gguf_name(name):
    name = name.removesuffix(".weight")
    if name in NAMES:
        return NAMES[name] + ".weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.weight"


def pairs(rows, heads):
    """The rows of q or k in GGUF's order: the two halves of a head alternate."""
    rotated = rows.reshape(heads, 2, -1, rows.shape[1])
    return numpy.ascontiguousarray(rotated.transpose(0, 2, 1, 3)).reshape(rows.shape)


def add_model(w, name, config, file_type):
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    w.add_type("model")
    w.add_name(name)
    w.add_file_type(file_type)
    w.add_quantization_version(2)
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_rope_dimension_count(head)
    w.add_rope_freq_base(config["rope_theta"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_vocab_size(config["vocab_size"])


def add_words(w, model, config):
    words = json.loads((model / "tokenizer.json").read_text())
    names = [f"[PAD{i}]" for i in range(config["vocab_size"])]
    kinds = [gguf.TokenType.UNUSED] * len(names)
    for text, i in words["model"]["vocab"].items():
        names[i], kinds[i] = text, gguf.TokenType.NORMAL
    for t in words["added_tokens"]:
        names[t["id"]] = t["content"]
        kinds[t["id"]] = gguf.TokenType.CONTROL if t["special"] else gguf.TokenType.USER_DEFINED
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(names)
    w.add_token_types(kinds)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in words["model"]["merges"]])
    w.add_bos_token_id(config["bos_token_id"])
    w.add_eos_token_id(config["eos_token_id"])
    settings = json.loads((model / "tokenizer_config.json").read_text())
    w.add_add_bos_token(settings["add_bos_token"])
    if "chat_template" in settings:
        w.add_chat_template(settings["chat_template"])


def write_plain(model, path, kind):
    """A file whose matrices all have one of the types that gguf can write; vectors are f32."""
    file_type, matrix = PLAIN[kind]
    config = json.loads((model / "config.json").read_text())
    w = gguf.GGUFWriter(path, "llama")
    add_model(w, model.name, config, file_type)
    add_words(w, model, config)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, values in tensors(model / "model.safetensors"):
        for part, nr in heads.items():
            if part in name:
                values = pairs(values, nr)
        ty = matrix if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        w.add_tensor(gguf_name(name), gguf.quants.quantize(values, ty), raw_dtype=ty)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_quantized(source, path, kind):
    import ctypes
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread = 2
    params.ftype = FILES[kind.removesuffix("_pure")]
    params.pure = kind.endswith("_pure")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(params)):
        sys.exit(f"gguf_files: llama.cpp does not write {kind}")


def newer(path, source):
    return path.exists() and path.stat().st_mtime > source.stat().st_mtime


def write(model, folder, kind):
    """FOLDER/KIND.gguf, made unless it is newer than the model."""
    path = folder / f"{kind}.gguf"
    if not newer(path, model / "model.safetensors"):
        folder.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        if kind in PLAIN:
            write_plain(model, new, kind)
        else:
            write_quantized(write(model, folder, "F32"), new, kind)
        new.replace(path)
    return path


def main():
    model, folder = Path(sys.argv[1]), Path(sys.argv[2])
    for kind in sys.argv[3:] or TYPES:
        path = write(model, folder, kind)
        print(f"{kind}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
