#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gguf_smollm3.py - a small SmolLM3 of transformers, as a folder and as a GGUF file

usage: gguf_smollm3.py BUILD FOLDER

Draws the weights of a model of 8 layers, of which the fourth and the eighth have no positions, and
writes it to FOLDER twice: transformers writes FOLDER/folder, the package gguf FOLDER/smollm3.gguf.  The
logits of 60 tokens and of 128 greedy ones behind them must be those of transformers in f32 (dense.py), in
kvmm with both, and in llama.cpp with the file, where llama-cpp-python is installed.

Needs gguf 0.19, torch 2.13 and transformers 5.17, and tests/check_model_golden in BUILD.
"""
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

import dense
import families
import gguf_files

SHAPE = dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=8, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5, initializer_range=0.1,
             tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0, rope_theta=5e4)
PROMPT = 60


def draw():
    torch.manual_seed(3)
    config = transformers.SmolLM3Config(**SHAPE, architectures=["SmolLM3ForCausalLM"])
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, values in model.named_parameters():
        if "norm" in name:
            values.data = 1 + torch.randn_like(values) / 5
    return model


def write(model, path):
    w = gguf.GGUFWriter(path, "smollm3")
    gguf_files.add_model(w, "smollm3", dict(SHAPE), 0)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([chr(256 + i) for i in range(SHAPE["vocab_size"])])
    w.add_token_types([gguf.TokenType.NORMAL] * SHAPE["vocab_size"])
    w.add_token_merges([f"{chr(256)} {chr(257)}"])
    heads = {"q_proj": SHAPE["num_attention_heads"], "k_proj": SHAPE["num_key_value_heads"]}
    for name, values in model.state_dict().items():
        values = values.numpy()
        for part, nr in heads.items():
            if part in name:
                values = gguf_files.pairs(values, nr)
        w.add_tensor(gguf_files.gguf_name(name), values)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def by_llama(path, ids):
    import llama_cpp

    llama = llama_cpp.Llama(str(path), n_ctx=256, n_batch=256, n_ubatch=256, n_threads=1, logits_all=True,
                            verbose=False)
    llama.eval(ids)
    return llama.scores[:len(ids)]


def main():
    build, folder = (Path(p).resolve() for p in sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    model = draw()
    model.save_pretrained(folder / "folder")
    write(model, folder / "smollm3.gguf")
    prompt = np.random.default_rng(1).integers(3, SHAPE["vocab_size"], PROMPT).tolist()
    text, want, lead = dense.greedy(model, prompt)
    print(f"layers with positions: {model.config.no_rope_layers}, least lead {lead:.1e}")
    rows = dense.Logits(families.compile_ours(build, folder), folder)
    runs = {"folder": lambda: rows(folder / "folder", text[:-1]),
            "file": lambda: rows(folder / "smollm3.gguf", text[:-1]),
            "llama.cpp": lambda: by_llama(folder / "smollm3.gguf", text[:-1])}
    bad = 0
    for name, run in runs.items():
        try:
            got = run()
        except ImportError:
            print(f"{name}: not installed")
            continue
        far = dense.apart(got, want)
        same = int((got.argmax(1) == want.argmax(1))[PROMPT - 1:].sum())
        # llama.cpp keeps K and V in f16.
        ok = same == dense.NEW and (far <= dense.NEAR or name == "llama.cpp")
        bad += not ok
        print(f"{name}: {same} of {dense.NEW} greedy tokens, logits within {far:.1e}{'' if ok else '  DIFFERS'}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
