#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""adapters.py - adapters that PEFT saves, as kvmm reads them

usage: adapters.py BUILD

Makes a small model of some families of tests/data/families with transformers, and adapters with drawn
numbers with PEFT, which saves them.  kvmm reads each folder (adapter_pairs.c here), and every matrix
must have PEFT's numbers, each site PEFT's scale, and no pair may be missing.  Adapters of kinds that are not
supported must be refused, with the name of their key.  BUILD is a folder of `make`, of which
tests/check_model_adapter has been built.  Prints a line for each adapter.

Needs torch, transformers and peft; made with torch 2.13, transformers 5.19 and peft 0.21.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

TOP = Path(__file__).resolve().parents[2]
LIBRARIES = ("-lnuma -lseccomp -lcap-ng -luring -ljansson -lpcre2-8 -lutf8proc -levent_core "
             "-lcheck_pic -lsubunit -lrt -ldl -lm").split()

# The sites of a module, by the end of its name.
SITES = {
    "q_proj": ["q"], "k_proj": ["k"], "v_proj": ["v"], "o_proj": ["o"], "gate_proj": ["gate"],
    "up_proj": ["up"], "down_proj": ["down"], "qkv_proj": ["q", "k", "v"], "gate_up_proj": ["gate", "up"],
    "attn.c_attn": ["q", "k", "v"], "attn.c_proj": ["o"], "mlp.c_fc": ["up"], "mlp.c_proj": ["down"],
    "query_key_value": ["qkv"], "attention.dense": ["o"], "dense_h_to_4h": ["up"],
    "dense_4h_to_h": ["down"], "out_proj": ["o"], "fc1": ["up"], "fc2": ["down"],
}
TYPES = {"gpt2": "gpt2", "neox": "gpt_neox", "opt": "opt", "phi3": "phi3", "qwen3-moe-all": "qwen3_moe"}

# Case, and arguments of LoraConfig.
GOOD = [
    ("llama", dict(r=4, target_modules="all-linear")),
    ("llama", dict(r=5, lora_alpha=7, use_rslora=True, target_modules=["q_proj", "down_proj"])),
    ("llama", dict(r=4, target_modules="all-linear", rank_pattern={"layers.1.self_attn.q_proj": 8, "up_proj": 2},
                   alpha_pattern={"^model.layers.0.mlp.gate_proj": 3, "k_proj": 1.5})),
    ("llama", dict(r=4, target_modules=["v_proj"], layers_to_transform=[1])),
    ("gpt2", dict(r=4, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
    ("phi3", dict(r=4, target_modules="all-linear")),
    ("neox", dict(r=4, target_modules="all-linear")),
    ("opt", dict(r=4, target_modules=["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"])),
    ("qwen3-moe-all", dict(r=4, target_modules=["q_proj", "o_proj"])),
]
# The same, and the words of the refusal.
BAD = [
    ("llama", dict(use_dora=True, target_modules=["q_proj"]), "use_dora: "),
    ("llama", dict(bias="all", target_modules=["q_proj"]), "bias: "),
    ("llama", dict(lora_bias=True, target_modules=["q_proj"]), "lora_bias: "),
    ("llama", dict(modules_to_save=["lm_head"], target_modules=["q_proj"]), "modules_to_save: "),
    ("llama", dict(target_modules=["q_proj", "embed_tokens"]), "pairs of embeddings and of"),
    ("llama", dict(target_modules=["q_proj", "lm_head"]), "pairs of embeddings and of"),
    ("llama", dict(trainable_token_indices=[1, 2], target_modules=["q_proj"]), "trainable_token_indices: "),
    ("llama", dict(init_lora_weights="pissa", target_modules=["q_proj"]), "init_lora_weights: "),
    ("llama", dict(init_lora_weights="olora", target_modules=["q_proj"]), "init_lora_weights: "),
    ("llama", dict(layer_replication=[[0, 2], [1, 2]], target_modules=["q_proj"]), "layer_replication: "),
    ("llama", dict(rank_pattern={".*q_proj": 4}, target_modules=["q_proj"]), "is a regular expression"),
]


def build(where, folder):
    program = f"{folder}/adapter_pairs"
    archives = [f"{where}/lib/lib{n}.a" for n in ("runtime", "kernels", "client", "lib")]
    subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O1", f"-I{TOP}", f"-I{TOP}/include", "-pthread", "-o",
                    program, str(TOP / "tests/peers/adapter_pairs.c"), "-Wl,--as-needed", "-Wl,--start-group",
                    *archives, "-Wl,--end-group", *LIBRARIES], check=True)
    return program


def make(case, arguments, folder):
    """A model with an adapter, which is saved to FOLDER/adapter."""
    config = json.loads((TOP / f"tests/data/families/{case}/config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config))
    named = folder / "named"
    named.mkdir()
    config.setdefault("model_type", TYPES.get(case, "llama"))
    (named / "config.json").write_text(json.dumps(config))
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(named))
    arguments = dict(dict(init_lora_weights=False, task_type="CAUSAL_LM"), **arguments)
    peft = get_peft_model(model, LoraConfig(**arguments))
    peft.save_pretrained(folder / "adapter")
    return peft


def wanted(peft):
    """(layer, site) -> scale, A, turned B."""
    pairs = {}
    for name, module in peft.named_modules():
        if not hasattr(module, "lora_A") or "default" not in module.lora_A:
            continue
        layer = next(int(part) for part in name.split(".") if part.isdigit())
        sites = next(sites for end, sites in SITES.items() if name.endswith("." + end))
        a, b = (m["default"].weight.detach().numpy() for m in (module.lora_A, module.lora_B))
        at = 0
        for site in sites:
            rows = b.shape[0]
            if len(sites) > 1:
                rows = rows_of(peft.config, site)
            pairs[layer, site] = module.scaling["default"], a, b[at:at + rows].T
            at += rows
        assert at == b.shape[0], name
    return pairs


def rows_of(config, site):
    if site in ("gate", "up"):
        return config.intermediate_size
    heads = config.num_attention_heads
    nr = heads if site == "q" else getattr(config, "num_key_value_heads", heads)
    return config.hidden_size // heads * nr


def has(program, folder):
    """The same, by kvmm; or the refusal."""
    done = subprocess.run([program, str(folder), str(folder / "adapter"), str(folder / "out")],
                          capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    numbers, at, pairs = np.fromfile(folder / "out", "<f4"), 0, {}
    for line in done.stdout.splitlines():
        layer, site, rank, scale, cols, rows = line.split()
        rank, cols, rows = int(rank), int(cols), int(rows)
        a = numbers[at:at + rank * cols].reshape(rank, cols)
        at += rank * cols
        pairs[int(layer), site] = float(scale), a, numbers[at:at + rank * rows].reshape(rank, rows)
        at += rank * rows
    return pairs


def compare(want, got):
    """None, or the difference."""
    if isinstance(got, str):
        return got
    if want.keys() != got.keys():
        return f"other pairs: {want.keys() ^ got.keys()}"
    for place, (scale, a, b) in want.items():
        if not np.isclose(scale, got[place][0], rtol=1e-6):
            return f"{place}: scale {got[place][0]}, PEFT has {scale}"
        if not np.array_equal(a, got[place][1]) or not np.array_equal(b, got[place][2]):
            return f"{place}: other numbers"
    return None


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.manual_seed(1)
    bad = 0
    with tempfile.TemporaryDirectory() as top:
        program = build(sys.argv[1], top)
        for case, arguments, *words in GOOD + BAD:
            folder = Path(tempfile.mkdtemp(dir=top))
            peft = make(case, arguments, folder)
            got = has(program, folder)
            if words:
                wrong = None if isinstance(got, str) and words[0] in got else f"no refusal: {got}"
            else:
                wrong = compare(wanted(peft), got)
            bad += bool(wrong)
            print(f"{case} {arguments}: {wrong or (got if words else f'{len(got)} pairs')}", flush=True)
    print(f"{len(GOOD) + len(BAD)} adapters, {bad} wrong")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
