#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/quants.txt: blocks of each type of GGUF, and their numbers.

usage: python3 make_quants.py > quants.txt

A line is a type, its blocks in hexadecimal, and their numbers as the hexadecimal
bits of f32.  The numbers are those of the package `gguf` from PyPI.  The bytes of
blocks are random, but their scales in f16 are numbers.
"""
import gguf
import numpy as np
from gguf import quants

# Places of f16 scales in a block.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
    "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}


def main():
    rng = np.random.default_rng(20)
    for name, scales in SCALES.items():
        kind = gguf.GGMLQuantizationType[name]
        elems, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (256 // elems + 1, size), dtype=np.uint8)
        for at in scales:
            d = rng.standard_normal(len(blocks)).astype(np.float16)
            d[0] = 3e-6
            blocks[:, at:at + 2] = d.view(np.uint8).reshape(-1, 2)
        numbers = quants.dequantize(blocks, kind).astype("<f4")
        print(name.lower(), blocks.tobytes().hex(), numbers.tobytes().hex())


main()
