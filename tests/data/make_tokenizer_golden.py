#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tokenizer-golden.json: what Hugging Face's `tokenizers` makes of texts.

usage: python3 make_tokenizer_golden.py > tokenizer-golden.json

The tokenizer is demo-model/tokenizer.json, as it is and in variants: the
patterns, flags and added tokens of other families of models over the same
vocabulary.  A variant is a list of changes, each a dotted path and the value
to put there ("+" appends to a list), which the test makes to the same file.
Variants also have merges across the borders of the characters in FIXED
("borders"): without, most texts have the same ids wherever they are cut.
Texts are drawn from a fixed seed.  Needs `tokenizers` from PyPI.
"""
import json
import os
import random
import sys

from tokenizers import Tokenizer, __version__

HERE = os.path.dirname(os.path.abspath(__file__))
NR_TEXTS = 300
NR_VARIANT_TEXTS = 80
NR_DECODES = 60

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
          r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
# Nobody's pattern: the constructs that the two regex dialects differ in.
DIALECT = (r".a$\n|^b.|[\S]{2,3}+|\d{2}|\s?\p{^Ll}{1,2}?|\u00e9+|{x}|[\s\x41-\x{5a}]"
           r"|\P{N}{2,}?\v")


def split(*patterns):
    """A pre_tokenizer of these patterns, one after the other."""
    parts = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated",
              "invert": False} for p in patterns]
    parts.append({"type": "ByteLevel", "add_prefix_space": False,
                  "trim_offsets": True, "use_regex": False})
    return ["pre_tokenizer", {"type": "Sequence", "pretokenizers": parts}]


def added(number, content, **flags):
    """An added token."""
    token = {"id": number, "content": content, "single_word": False,
             "lstrip": False, "rstrip": False, "normalized": False,
             "special": False}
    token.update(flags)
    return ["added_tokens.+", token]


def make_variants(first):
    """Names and changes; ids from @first on are free."""
    return [
        ("gpt2", []),
        ("llama3", [split(LLAMA3), ["model.ignore_merges", True],
                    ["model.vocab.\u0120123", first], ["model.vocab.zqxj", first + 1],
                    ["model.vocab." + "\u00f0\u0141\u013a\u0122" * 2, first + 2],
                    ["model.vocab.\u4f60\u597d", first + 3],
                    added(first + 1, "zqxj", special=True)]),
        ("qwen2", [split(QWEN2)]),
        ("o200k", [split(O200K),
                   added(first, "<mask>", lstrip=True, special=True),
                   added(first + 1, "<r>", rstrip=True, special=True),
                   added(first + 2, "<lr>", lstrip=True, rstrip=True),
                   added(first + 3, "Hello", normalized=True), added(first + 4, "Hel"),
                   added(first + 5, "<|im_"), added(first + 6, "\u4e16\u754c"),
                   added(first + 7, "\n\n")]),
        ("cl100k", [split(CL100K)]),
        ("dialect", [split(DIALECT)]),
        ("stages", [["normalizer", {"type": "Sequence", "normalizers": []}],
                    split(r"\p{N}", r"[\u4e00-\u9fa5]+", LLAMA3)]),
    ]


WORDS = ["the", "Hello", "don't", "we'LL", "caf\u00e9", "na\u00efve",
         "\u4f60\u597d\u4e16\u754c", "\u3053\u3093\u306b\u3061\u306f",
         "\uc548\ub155", "\u043f\u0440\u0438\u0432\u0435\u0442",
         "\u0645\u0631\u062d\u0628\u0627",
         "\u0928\u092e\u0938\u094d\u0924\u0947",
         "\U0001f469\u200d\U0001f52c", "\U0001f600", "return x;",
         "if (a==b) {", "\n\n", "  ", "\t\t", "\r\n", "<|endoftext|>",
         "<|im_start|>", "<|im_end|>", "<|im", "<mask>", "<r>", "<lr>",
         "zqxj", " 123", "12345", "3.14", "___", "!!!", "\u0130", "\u00df",
         "\u017f", "'S", "e\u0301", "{x}", "\u00e9\u00e9", "\x0b"]
SPACES = (" \t\n\r\u00a0\u2003\u3000\u1680\u180e\u0085\u2028\x0b\x0c\u202f"
          "\u200b\u200d\ufeff\ufe0f")
# Where the two regex dialects, or their versions of Unicode, would differ.
FIXED = ["", "a", "a\u180eb \u180e x\u180e\u180e\u180e", " \u180e", "\u180e ",
         "x  \u180ey", "za\nbz\nb",
         "\U00031350\u1c8a\U00010d40 \ua7cb\u0897!\U0001fae9",
         "x\U0001ccf0\U000113d0 \U00011b00", "ab\x0c\x0b\u2028cd\x0be\x0b\x0c",
         "a  \nb \n\n c   \n  d\t\n", "1234567\u0663\u0664\u00bd\u2167",
         "<r>  x <lr>\u3000\u2028 y\u2003<mask> <lr>z", "<r> \n\n \n\nz",
         "  <mask><r>  <r> ", "Hello Hel<|im_<|im_start|>\u4e16\u754c",
         "we'LL WE'll 'S\u017f'\u017f \u212a's", "{x}{x} \u00e9\u00e9\u00c9{",
         "\u4f60\u597d \u4f60\u597d!", "zqxj zqxj",
         "\U0001f600\U0001f600 \U0001f600\U0001f600\U0001f600"]


def any_char(rnd):
    """A character, the awkward ones more often than the others."""
    kind = rnd.random()
    if kind < .35:
        return chr(rnd.randrange(32, 127))
    if kind < .5:
        return rnd.choice(SPACES)
    if kind < .6:
        return rnd.choice("'sStTmMlLdDrRvVeE\u017f\u212a")
    if kind < .7:
        return chr(rnd.randrange(0x80, 0x800))
    if kind < .8:
        return chr(rnd.randrange(0x4e00, 0x9fff))
    if kind < .85:
        return chr(rnd.randrange(0x1f300, 0x1faff))
    if kind < .9:
        return rnd.choice("0123456789\u0663\u096a\u00bd\u00b2\u2167")
    while True:
        c = rnd.randrange(1, 0x110000)
        if not 0xd800 <= c < 0xe000:
            return chr(c)


def any_text(rnd):
    """Characters, words, a long run, short runs, or lower-case letters."""
    kind = rnd.random()
    if kind < .4:
        return "".join(any_char(rnd) for _ in range(rnd.randrange(40)))
    if kind < .7:
        return "".join(rnd.choice(WORDS) + rnd.choice(["", "", " "])
                       for _ in range(rnd.randrange(16)))
    if kind < .8:
        return any_char(rnd) * rnd.randrange(1, 120)
    if kind < .9:
        return "".join(any_char(rnd) * rnd.randrange(1, 8)
                       for _ in range(rnd.randrange(1, 10)))
    return "".join(rnd.choice("abcdefghijklmnopqrstuvwxyz ")
                   for _ in range(rnd.randrange(1, 120)))


def change(root, path, value):
    """Put @value where the dotted @path says."""
    keys = path.split(".")
    for key in keys[:-1]:
        root = root[key]
    if keys[-1] == "+":
        root.append(value)
    else:
        root[keys[-1]] = value


def border_changes():
    """Merges of the bytes on both sides of every border inside of FIXED."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in printable]
    name = {b: chr(b) for b in printable}
    name.update((b, chr(0x100 + i)) for i, b in enumerate(others))
    pairs = {(name[a.encode()[-1]], name[b.encode()[0]])
             for text in FIXED for a, b in zip(text, text[1:])}
    with open(os.path.join(HERE, "demo-model/tokenizer.json"),
              encoding="utf-8") as file:
        vocab = json.load(file)["model"]["vocab"]
    changes = []
    for a, b in sorted(pairs):
        if a + b not in vocab and "." not in a + b:
            changes.append(["model.vocab." + a + b, 4096 + len(changes) // 2])
            changes.append(["model.merges.+", [a, b]])
    return changes


def variant_tokenizer(changes):
    """The demo model's tokenizer with @changes made to it."""
    with open(os.path.join(HERE, "demo-model/tokenizer.json"),
              encoding="utf-8") as file:
        root = json.load(file)
    for path, value in changes:
        change(root, path, value)
    return Tokenizer.from_str(json.dumps(root))


def plain_ids(tok, text):
    """Ids with special tokens of the text taken as plain text."""
    tok.encode_special_tokens = True
    ids = tok.encode(text, add_special_tokens=False).ids
    tok.encode_special_tokens = False
    return ids


def main():
    rnd = random.Random(20)
    texts = FIXED + [any_text(rnd) for _ in range(NR_TEXTS - len(FIXED))]
    variants, decodes = [], []
    borders = border_changes()
    first = 4096 + len(borders) // 2
    for name, changes in make_variants(first):
        tok = variant_tokenizer((borders if variants else []) + changes)
        some = texts if not variants else texts[:NR_VARIANT_TEXTS]
        variants.append({
            "name": name, "changes": changes,
            "ids": [tok.encode(t, add_special_tokens=False).ids for t in some],
            "plain": [plain_ids(tok, t) for t in some[:NR_VARIANT_TEXTS]]})
    tok = variant_tokenizer([])
    for _ in range(NR_DECODES):
        ids = [rnd.choice([rnd.randrange(0, 260), rnd.randrange(4096),
                           rnd.randrange(0, 3),
                           rnd.randrange(224, 259)])
               for _ in range(rnd.randrange(1, 24))]
        decodes.append({
            "ids": ids, "text": tok.decode(ids, skip_special_tokens=False),
            "skipped": tok.decode(ids, skip_special_tokens=True)})

    def rows(items):
        return ",\n".join(json.dumps(i, separators=(",", ":")) for i in items)

    print('{"made_by":"make_tokenizer_golden.py, tokenizers %s",' % __version__)
    print('"texts":[\n%s],' % rows(texts))
    print('"decodes":[\n%s],' % rows(decodes))
    print('"borders":%s,' % json.dumps(borders))
    print('"variants":[')
    for i, v in enumerate(variants):
        print('{"name":%s,"changes":%s,' % (json.dumps(v["name"]),
                                            json.dumps(v["changes"])))
        print('"ids":[\n%s],\n"plain":[\n%s]}%s' % (
            rows(v["ids"]), rows(v["plain"]),
            "," if i + 1 < len(variants) else ""))
    print("]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
