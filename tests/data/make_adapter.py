#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_adapter.py - an adapter in PEFT's format with made-up numbers

usage: make_adapter.py MODEL_FOLDER OUT_FOLDER [--rank 8] [--alpha 16] [--seed 1]
                       [--targets q_proj,v_proj] [--dtype F32|BF16] [--size 0.05]

MODEL_FOLDER has config.json of a model with Llama's names.  The numbers of both matrices are
spread evenly over +-SIZE (of A) and +-4 SIZE (of B), so that the adapter changes what the
model says.  The same arguments give the same files.  Needs the standard library alone.
"""
import argparse
import array
import json
import random
import struct
import sys
from pathlib import Path

PLACE = {"q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
         "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp"}


def shapes(config):
    """Outputs and inputs of each projection."""
    hidden, inter = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    q, kv = heads * size, config.get("num_key_value_heads", heads) * size
    return {"q_proj": (q, hidden), "k_proj": (kv, hidden), "v_proj": (kv, hidden), "o_proj": (hidden, q),
            "gate_proj": (inter, hidden), "up_proj": (inter, hidden), "down_proj": (hidden, inter)}


def numbers(source, count, size, dtype):
    """The bytes of COUNT numbers."""
    values = array.array("f", (source.uniform(-size, size) for _ in range(count)))
    if sys.byteorder != "little":
        values.byteswap()
    data = values.tobytes()
    if dtype == "F32":
        return data
    return b"".join(data[at + 2:at + 4] for at in range(0, len(data), 4))


def write_tensors(path, tensors, dtype):
    """A safetensors file of (name, shape, bytes)."""
    at, header = 0, {"__metadata__": {"format": "pt"}}
    for name, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors:
            out.write(data)


def make(model, out, rank=8, alpha=16, seed=1, targets=("q_proj", "v_proj"), dtype="F32", size=0.05):
    """Write the adapter."""
    config = json.loads((Path(model) / "config.json").read_text())
    source, sizes, tensors = random.Random(seed), shapes(config), []
    for layer in range(config["num_hidden_layers"]):
        for target in targets:
            rows, cols = sizes[target]
            name = f"base_model.model.model.layers.{layer}.{PLACE[target]}.{target}"
            tensors.append((f"{name}.lora_A.weight", (rank, cols), numbers(source, rank * cols, size, dtype)))
            tensors.append((f"{name}.lora_B.weight", (rows, rank), numbers(source, rows * rank, 4 * size, dtype)))
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_tensors(out / "adapter_model.safetensors", tensors, dtype)
    (out / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "made-up", "r": rank,
        "lora_alpha": alpha, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False,
        "inference_mode": True, "target_modules": list(targets), "modules_to_save": None,
        "use_rslora": False, "use_dora": False, "rank_pattern": {}, "alpha_pattern": {}}, indent=1) + "\n")


def main():
    args = argparse.ArgumentParser(description="make an adapter in PEFT's format")
    args.add_argument("model")
    args.add_argument("out")
    args.add_argument("--rank", type=int, default=8)
    args.add_argument("--alpha", type=float, default=16)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--targets", default="q_proj,v_proj", help="names, or all")
    args.add_argument("--dtype", choices=["F32", "BF16"], default="F32")
    args.add_argument("--size", type=float, default=0.05)
    given = args.parse_args()
    targets = list(PLACE) if given.targets == "all" else given.targets.split(",")
    make(given.model, given.out, given.rank, given.alpha, given.seed, targets, given.dtype, given.size)


if __name__ == "__main__":
    main()
