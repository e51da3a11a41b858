#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/tokenizers/pair: vocab.json and merges.txt alone.

usage: make_tokenizer_pair.py

So GPT-2 and OPT are published.  The two files are those of the shape "opt" of
make_tokenizers.py, with special tokens put into the vocabulary where facebook's
opt-125m has them; golden.bin holds what GPT2Tokenizer of Hugging Face's
`transformers` from PyPI makes of them, as tests/peers/vocabularies.py writes it.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "peers"))

from transformers import AutoTokenizer, __version__

from texts import texts
from vocabularies import write_golden

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def token(text):
    return {"__type": "AddedToken", "content": text, "lstrip": False,
            "normalized": True, "rstrip": False, "single_word": False}


def main():
    folder = os.path.join(HERE, "tokenizers", "pair")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(HERE, "tokenizers", "opt", "tokenizer.json"),
              encoding="utf-8") as f:
        model = json.load(f)["model"]
    order = sorted(model["vocab"], key=model["vocab"].get)
    vocab = {text: i for i, text in enumerate(SPECIAL + order)}
    files = {
        "vocab.json": json.dumps(vocab, ensure_ascii=False),
        "merges.txt": "#version: 0.2\n" + "".join(
            " ".join(pair) + "\n" for pair in model["merges"]),
        "config.json": json.dumps({"model_type": "opt"}),
        "tokenizer_config.json": json.dumps({
            "errors": "replace", "unk_token": token("</s>"),
            "bos_token": token("</s>"), "eos_token": token("</s>"),
            "pad_token": token("<pad>"), "add_prefix_space": False,
            "add_bos_token": True, "tokenizer_class": "GPT2Tokenizer"}),
    }
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    tok = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    with open(os.path.join(folder, "golden.bin"), "wb") as out:
        write_golden(out, tok, list(texts(11, 40, order, SPECIAL)), 11)
    print("transformers %s" % __version__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
