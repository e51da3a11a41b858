#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tokenizers_speed.py - Hugging Face's tokenizers as a peer of bench_tokenizer

usage: tokenizers_speed.py FOLDER FILE

Loads FOLDER/tokenizer.json, prints "tokenizers VERSION", and answers a line
each: "prose" or "mixed" writes such texts to FILE (length in 32 bits, bytes)
and keeps them, then prints their number; "encode" and "decode" do all of them
in one call of a batch, on one thread, and print the CPU seconds of this process.
"""
import glob
import os
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.append(os.path.join(HERE, "..", "peers"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer, __version__

from texts import texts

SIZE = 1 << 20


def prose():
    """The paragraphs of Documentation/, again and again."""
    got = []
    for path in sorted(glob.glob(os.path.join(HERE, "../../Documentation",
                                              "*.md"))):
        with open(path, encoding="utf-8") as f:
            got += [p for p in f.read().split("\n\n") if p]
    return got


def make(kind):
    source = prose() if kind == "prose" else list(texts(5, 4000))
    out, size = [], 0
    while size < SIZE:
        out.append(source[len(out) % len(source)])
        size += len(out[-1].encode())
    return out


def main():
    tok = Tokenizer.from_file(os.path.join(sys.argv[1], "tokenizer.json"))
    print("tokenizers", __version__, flush=True)
    some, ids = [], []
    for line in sys.stdin:
        word = line.strip()
        start = time.process_time()
        if word == "encode":
            tok.encode_batch_fast(some, add_special_tokens=False)
        elif word == "decode":
            tok.decode_batch(ids, skip_special_tokens=False)
        else:
            some = make(word)
            ids = [e.ids for e in tok.encode_batch_fast(
                some, add_special_tokens=False)]
            with open(sys.argv[2], "wb") as f:
                for text in some:
                    raw = text.encode()
                    f.write(struct.pack("<I", len(raw)) + raw)
            print(len(some), sum(len(i) for i in ids), flush=True)
            continue
        print("%.9f" % (time.process_time() - start), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
