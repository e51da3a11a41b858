#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gguf_greedy.py - 128 greedy tokens of every type of GGUF, against the dequantized numbers

usage: gguf_greedy.py BUILD MODEL FILES [TYPE]...

MODEL is a folder that gguf_files.py turns into files in FILES, unless they are there.  The package gguf
reads and dequantizes each file, transformers runs its numbers in f32, and kvrt runs the file (dense.py).
TYPE is one of gguf_files.py; without one, all but the pure ones run.  The types of the matrices of a file
stand below its row.

Needs gguf 0.19, torch 2.13, transformers 5.17 and tokenizers, and llama-cpp-python 0.3.36 for files
that are not there yet.
"""
import collections
import json
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch

import dense
import gguf_files
from daemon import Daemon

NAMES = {new: old for old, new in gguf_files.NAMES.items()}


def halves(rows, heads):
    """The rows of q or k in the order of Hugging Face: the two halves of a head one after the other."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(rows.shape)


def folder_name(name):
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight"
    return NAMES[parts[0]] + ".weight"


def read(path, config):
    """The tensors of the file in f32, by the names of the folder; and how many matrices have which type."""
    tensors, kinds = {}, collections.Counter()
    for t in gguf.GGUFReader(path).tensors:
        values = np.array(gguf.quants.dequantize(t.data, t.tensor_type), np.float32)
        name = folder_name(t.name)
        for part, key in ("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads"):
            if part in name:
                values = halves(values, config[key])
        tensors[name] = torch.from_numpy(values)
        if values.ndim > 1:
            kinds[t.tensor_type.name] += 1
    return tensors, kinds


def main():
    build, model, files = (Path(p).resolve() for p in sys.argv[1:4])
    config = json.loads((model / "config.json").read_text())
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="kvmm-greedy.") as folder:
        daemon = Daemon(build, Path(folder))
        try:
            table = dense.Table(build, Path(folder), model)
            for kind in sys.argv[4:] or [*gguf_files.PLAIN, *gguf_files.FILES]:
                path = gguf_files.write(model, files, kind)
                tensors, kinds = read(path, config)
                table.row(kind, path, lambda: dense.reference(config, tensors))
                print("    " + ", ".join(f"{n} {k}" for k, n in kinds.most_common()), flush=True)
        finally:
            daemon.close()
    sys.exit(not table.end())


if __name__ == "__main__":
    main()
