#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/quantize.txt: numbers, their q8_0 blocks, and the error of q4_k.

usage: python3 make_quantize.py > quantize.txt

A line is a name, 512 numbers as the hexadecimal bits of f32, the q8_0 blocks that the
package `gguf` from PyPI makes of them, in hexadecimal, and the root of the mean squared
error of the q4_k blocks that the library ggml of llama.cpp makes of them
(ggml_quantize_chunk() without weights of importance; pip install llama-cpp-python).
"""
import ctypes
import os

import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants


def q4_k_error(x):
    where = os.path.join(os.path.dirname(llama_cpp.__file__), "lib", "libggml-base.so")
    chunk = ctypes.CDLL(where).ggml_quantize_chunk
    chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                      ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    blocks = np.zeros((x.size // 256, 144), np.uint8)
    chunk(Type.Q4_K, x.ctypes.data, blocks.ctypes.data, 0, len(blocks), 256, None)
    return np.sqrt(np.mean((quants.dequantize(blocks, Type.Q4_K).ravel() - x) ** 2))


def main():
    rng = np.random.default_rng(3)
    rows = {
        "normal": rng.standard_normal(512),
        "small": rng.standard_normal(512) * 1e-3,
        "uniform": rng.uniform(-1, 1, 512),
        "laplace": rng.laplace(size=512),
        "positive": rng.uniform(0.5, 1, 512),
        "negative": rng.uniform(-3, -2, 512),
        "halves": rng.integers(-254, 255, 512) / 2,
        "constant": np.full(512, -0.75),
        "zero": np.zeros(512),
    }
    for name, row in rows.items():
        x = row.astype("<f4")
        q8 = quants.quantize(x.reshape(-1, 32), Type.Q8_0)
        print(name, x.tobytes().hex(), q8.tobytes().hex(), f"{q4_k_error(x):.9g}")


main()
