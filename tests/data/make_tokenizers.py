#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/tokenizers: a small tokenizer for each shape of pipeline.

usage: make_tokenizers.py [SHAPE..]

Each is trained by Hugging Face's `tokenizers` from PyPI on the text below, has
the parts that a family's files have, and odd added tokens.  Beside it lies
golden.bin, the library's answers to texts of tests/peers/texts.py (the format is
that of tests/peers/vocabularies.py).  All from fixed seeds.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "peers"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer, __version__, models, pre_tokenizers, trainers

from texts import texts
from vocabularies import (LLAMA3, QWEN2, added, byte_level, replace,
                          sp_decoder, sp_merges, split_by, template,
                          write_golden)

COUNT = 40
SIZE = 400


def corpus():
    """Text to train on."""
    return [t for seed in range(5) for t in texts(1000 + seed, 400)]


def seq(kind, *parts):
    key = {"n": "normalizers", "p": "pretokenizers", "d": "decoders",
           "o": "processors"}[kind]
    return {"type": "Sequence", key: list(parts)}


def meta(scheme, **more):
    return dict({"type": "Metaspace", "replacement": "▁",
                 "prepend_scheme": scheme, "split": True}, **more)


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior,
            "invert": invert}


def train_bytes():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=SIZE, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(tok.to_str())


def train_chars(bytes_too=True):
    """A vocabulary as SentencePiece would have it."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    if bytes_too:
        special += ["<0x%02X>" % b for b in range(256)]
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=SIZE + len(special), show_progress=False,
        special_tokens=special, limit_alphabet=90))
    return json.loads(tok.to_str())


ODD = [dict(lstrip=True), dict(rstrip=True), dict(lstrip=True, rstrip=True),
       dict(single_word=True, normalized=True, special=False),
       dict(normalized=True, special=False), dict(special=False), dict(special=False, normalized=True,
                                 single_word=True, lstrip=True)]
# As much as a GGUF file can say.
PLAIN = [dict(special=i % 2 == 0) for i in range(7)]
NAMES = ["<|l|>", "<|r|>", "<lr>", "word", "  ", "naive", "Été"]
NFKC = seq("n", {"type": "NFKC"})
PREFIX = seq("n", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
SP = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
BOS = template([("<s>", 1)])
WORD = {"Regex": r"\w+|[^\w\s]+"}

# name: (what is trained, parts, parts of the model)
SHAPES = {
    "gpt2": ("bytes", {}, {}),
    "opt": ("bytes", {"post_processor": template([("<|l|>", -7)])}, {}),
    "gpt-neox": ("bytes", {"normalizer": {"type": "NFC"}}, {}),
    "llama3": ("bytes", {"pre_tokenizer": split_by(LLAMA3), "post_processor":
                         seq("o", byte_level(), template([("<|l|>", -7)]))},
               {"ignore_merges": True}),
    "qwen2": ("bytes", {"pre_tokenizer": split_by(QWEN2),
                        "normalizer": {"type": "NFC"}}, {}),
    "smollm": ("bytes", {"pre_tokenizer": seq(
        "p", {"type": "Digits", "individual_digits": True}, byte_level())},
               {}),
    "roberta": ("bytes", {"pre_tokenizer": byte_level(add_prefix_space=True),
                          "normalizer": NFKC, "post_processor": {
                              "type": "RobertaProcessing", "sep":
                              ["<|r|>", -6], "cls": ["<|l|>", -7],
                              "trim_offsets": True, "add_prefix_space":
                              True}}, {}),
    "falcon": ("bytes", {"pre_tokenizer": seq(
        "p", {"type": "Punctuation", "behavior": "Contiguous"},
        {"type": "Digits", "individual_digits": False},
        split({"Regex": "[0-9][0-9][0-9]"}, "Isolated"), byte_level())}, {}),
    "llama2": ("chars", {"normalizer": PREFIX, "pre_tokenizer": None}, SP),
    "mistral": ("chars", {"pre_tokenizer": meta("first", split=False)}, SP),
    "phi3": ("chars", {"pre_tokenizer": meta("always", split=False),
                       "post_processor": None}, SP),
    "gemma": ("chars", {"normalizer": replace(" ", "▁"), "pre_tokenizer":
                        split({"String": " "}, "MergedWithPrevious"),
                        "decoder": sp_decoder(False)}, SP),
    "yi": ("chars", {"normalizer": seq("n", replace(" ", "▁")),
                     "pre_tokenizer": None, "decoder": sp_decoder(False)},
           SP),
    "metaspace": ("plain", {"pre_tokenizer": meta("first"), "decoder":
                            meta("first"), "normalizer": seq(
                                "n", {"type": "Lowercase"})},
                  {"unk_token": "<unk>"}),
    "legacy": ("plain", {"pre_tokenizer": {
        "type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
                         "decoder": {"type": "Metaspace", "replacement": "▁",
                                     "add_prefix_space": True},
                         "normalizer": seq("n", {"type": "NFD"}, {
                             "type": "StripAccents"}, {
                                 "type": "Strip", "strip_left": True,
                                 "strip_right": True})}, {}),
    "whitespace": ("plain", {"pre_tokenizer": {"type": "Whitespace"},
                             "decoder": None, "normalizer": {"type": "NFKD"},
                             "post_processor": {
                                 "type": "BertProcessing", "cls": ["<s>", 1],
                                 "sep": ["</s>", 2]}},
                   {"unk_token": "<unk>", "fuse_unk": True}),
    "previous": ("chars", {"pre_tokenizer": seq(
        "p", split({"Regex": "[a-e ]"}, "MergedWithPrevious"),
        meta("always"))}, SP),
    "next": ("chars", {"pre_tokenizer": seq(
        "p", split({"Regex": "[a-e ]"}, "MergedWithNext"),
        meta("never"))}, dict(SP, fuse_unk=False)),
    "contiguous": ("chars", {"pre_tokenizer": seq(
        "p", split({"String": "e"}, "Contiguous"),
        {"type": "WhitespaceSplit"}, meta("first"))}, SP),
    "removed": ("chars", {"pre_tokenizer": seq(
        "p", split({"Regex": r"\s"}, "Removed"),
        split(WORD, "MergedWithNext", True))}, SP),
    "inverted": ("chars", {"pre_tokenizer": seq(
        "p", split({"Regex": "[a-m]+"}, "Removed", True),
        split({"Regex": "[a-f]"}, "MergedWithPrevious", True)),
                           "normalizer": seq("n", {
                               "type": "Replace", "pattern": {"Regex":
                                                              r"\s+"},
                               "content": "▁"}, {
                                   "type": "Strip", "strip_left": False,
                                   "strip_right": True})}, SP),
    "gguf-bytes": ("bytes", {"pre_tokenizer": split_by(QWEN2), "normalizer":
                             {"type": "NFC"}, "post_processor":
                             template([("<|l|>", -7)])}, {}),
    "gguf-chars": ("chars", {"normalizer": PREFIX, "pre_tokenizer": None}, SP),
}


def score(token):
    """The score of a token in a GGUF file; some are equal."""
    return -(token // 3)


def build(base, parts, model, odd=ODD):
    """tokenizer.json of a shape; negative ids count from the last one."""
    root = json.loads(json.dumps(base))
    # Spaces that are stripped away: the library falls over that.
    strips = '"strip_left": true' in json.dumps(parts)
    names = [n for n in NAMES if n not in root["model"]["vocab"] and
             not (strips and n.isspace())]
    first = max(root["model"]["vocab"].values()) + 1
    # Without a gap: the library would count on, whatever the file says.
    for name in names:
        root["added_tokens"].append(added(
            first + names.index(name), name, **odd[NAMES.index(name)]))
    defaults = {"normalizer": None, "truncation": None, "padding": None}
    if "Ġ" in root["model"]["vocab"]:
        defaults.update(pre_tokenizer=byte_level(), decoder=byte_level(),
                        post_processor=byte_level(trim_offsets=False))
    else:
        defaults.update(decoder=sp_decoder(), post_processor=BOS)
    root.update(defaults, **json.loads(json.dumps(parts)))
    root["model"].update(model)
    text = json.dumps(root, ensure_ascii=False)
    for i in range(len(NAMES)):
        text = text.replace("[%d]" % (i - 7), "[%d]" % (first + i))
        text = text.replace(", %d]" % (i - 7), ", %d]" % (first + i))
    return json.loads(text)


def write(name, root):
    folder = os.path.join(HERE, "tokenizers", name)
    os.makedirs(folder, exist_ok=True)
    text = json.dumps(root, ensure_ascii=False, separators=(",", ":"))
    text = text.replace('"merges":[', '"merges":[\n').replace(
        '"vocab":{', '"vocab":{\n')
    with open(os.path.join(folder, "tokenizer.json"), "w",
              encoding="utf-8") as f:
        f.write(text + "\n")
    tok = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    special = [t.content for t in tok.get_added_tokens_decoder().values()
               if not t.content.startswith("<0x")]
    names = [t for t in tok.get_vocab() if not t.startswith("<0x")]
    with open(os.path.join(folder, "golden.bin"), "wb") as out:
        write_golden(out, tok, list(texts(7, COUNT, names, special)), 7)


def main():
    bases = {"bytes": train_bytes(), "chars": train_chars(),
             "plain": train_chars(False)}
    for root in bases.values():
        # Bytes and the like are plain tokens of the vocabulary.
        root["added_tokens"] = [t for t in root["added_tokens"]
                                if not t["content"].startswith("<0x")]
    for name in sys.argv[1:] or SHAPES:
        base, parts, model = SHAPES[name]
        if not name.startswith("gguf"):
            write(name, build(bases[base], parts, model))
            continue
        root = build(bases[base], parts, model, PLAIN)
        vocab = root["model"]["vocab"]
        if base == "chars":
            root["model"]["merges"] = sp_merges(vocab, {
                t: score(i) for t, i in vocab.items()
                if i > 2 and not t.startswith("<0x")})
        write(name, root)
    print("tokenizers %s: %d shapes" % (__version__, len(SHAPES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
