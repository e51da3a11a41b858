#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_model.py - train a Llama model of 34 M parameters on text in the public domain

usage: train_model.py FOLDER [MINUTES]

The text is the King James Bible (Debian's bible-kjv-text) and the six novels of Jane Austen
(Debian's r-cran-janeaustenr).  The copyright of both has expired.  The packages come from Debian's
archive into FOLDER/text and are not installed.  One novel is held out: FOLDER/heldout.txt.

Then a byte-level BPE vocabulary is made, and the model trains for MINUTES (80) of the clock.  FOLDER
gets config.json, model.safetensors in bf16, tokenizer.json and tokenizer_config.json every five
minutes and at the end, and train.log grows.  A second run goes on from the weights in FOLDER.
"""
import json
import math
import os
import re
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

WORDS, WIDE, LAYERS, HEADS, KV_HEADS, FFN = 8192, 512, 8, 8, 4, 1536
HEAD, CONTEXT, THETA, EPS = WIDE // HEADS, 512, 10000.0, 1e-5
BATCH, RATE, WARM, SAVE_SECONDS = 2, 1e-3, 50, 300
START = "<|endoftext|>"
PACKAGES = "bible-kjv", "bible-kjv-text", "r-cran-janeaustenr"
HELD_OUT = "persuasion"


# ---- the text ----

def unpack(folder):
    """Download the packages of Debian and unpack them below folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.deb")):
        subprocess.run(["apt-get", "-q", "download", *PACKAGES], cwd=folder, check=True)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)


def bible(folder):
    """A document for each chapter, without the numbers of verses."""
    lib = folder / "usr/lib"
    text = subprocess.run([folder / "usr/bin/bible", "-p", lib, "-l100000", "gen1:1-rev22:21"],
                          check=True, text=True, capture_output=True, stdin=subprocess.DEVNULL).stdout
    for chapter in re.split(r"\n\n(?=\S)", text):
        yield re.sub(r"\n+", "\n", re.sub(r"(?m)^ +\d+ ", "", chapter)).strip()


def r_strings(data):
    """The strings of a serialized vector of R."""
    at = data.index(b"\0\0\0\x10", 14) + 8          # after the header, the type of the vector, its length
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(">Ii", data, at)
        if kind & 0xff != 9:                        # no string: the attributes of the vector
            return
        at += 8
        yield data[at:at + max(size, 0)].decode()
        at += max(size, 0)


def novels(folder):
    """(name, lines) of each novel: R keeps each in a compressed piece of one file."""
    data = (folder / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    while data:
        unzip = zlib.decompressobj()
        lines = list(r_strings(unzip.decompress(data[4:])))
        data = unzip.unused_data
        yield next(x for x in lines if x.strip()).strip().lower(), lines


def paragraphs(lines):
    """The lines of a novel, one line for each paragraph; a document for each chapter."""
    text = "\n".join(lines)
    text = re.sub(r"(?<=\S)\n(?=\S)", " ", text)
    text = re.sub(r"\n+", "\n", text.replace("_", ""))
    return [x.strip() for x in re.split(r"\n(?=chapter )", text, flags=re.I) if x.strip()]


def documents(folder):
    """The documents to train with, and the text held out."""
    text = folder / "text"
    unpack(text)
    train, held = list(bible(text)), ""
    for name, lines in novels(text):
        if name == HELD_OUT:
            held = "\n".join(paragraphs(lines))
        else:
            train += paragraphs(lines)
    (folder / "heldout.txt").write_text(held)
    return train, held


def vocabulary(folder, train):
    """A byte-level BPE vocabulary with the words of GPT-2's pattern."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    path = folder / "tokenizer.json"
    if path.exists():
        return tokenizers.Tokenizer.from_file(str(path))
    bpe = tokenizers.Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(train, trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=[START], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    bpe.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, 0)])
    bpe.save(str(path))
    return bpe


# ---- the model ----

def shapes():
    """Names and shapes as Hugging Face has them."""
    yield "model.embed_tokens.weight", (WORDS, WIDE)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (WIDE,)
        yield at + "self_attn.q_proj.weight", (WIDE, WIDE)
        yield at + "self_attn.k_proj.weight", (KV_HEADS * HEAD, WIDE)
        yield at + "self_attn.v_proj.weight", (KV_HEADS * HEAD, WIDE)
        yield at + "self_attn.o_proj.weight", (WIDE, WIDE)
        yield at + "post_attention_layernorm.weight", (WIDE,)
        yield at + "mlp.gate_proj.weight", (FFN, WIDE)
        yield at + "mlp.up_proj.weight", (FFN, WIDE)
        yield at + "mlp.down_proj.weight", (WIDE, FFN)
    yield "model.norm.weight", (WIDE,)
    yield "lm_head.weight", (WORDS, WIDE)


def weights(folder):
    import safetensors.torch
    import torch

    saved = folder / "model.safetensors"
    if saved.exists():
        found = safetensors.torch.load_file(saved)
        return {name: found[name].float().requires_grad_() for name, _ in shapes()}
    made = {}
    for name, shape in shapes():
        std = 0.02 / math.sqrt(2 * LAYERS) if re.search("o_proj|down_proj", name) else 0.02
        made[name] = (torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * std).requires_grad_()
    return made


def rotary(torch):
    angle = torch.outer(torch.arange(CONTEXT).float(), THETA ** -(torch.arange(0, HEAD, 2) / HEAD))
    return torch.cat((angle, angle), 1).cos(), torch.cat((angle, angle), 1).sin()


def turn(x, cos, sin):
    low, high = x.float().chunk(2, -1)
    half = low.new_empty(x.shape)
    half[..., :HEAD // 2], half[..., HEAD // 2:] = -high, low
    return (x * cos + half * sin).to(x.dtype)


def forward(w, ids, cos, sin):
    """The logits of each place."""
    import torch
    import torch.nn.functional as F

    rows, n = ids.shape
    x = F.embedding(ids, w["model.embed_tokens.weight"])
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        y = F.rms_norm(x, (WIDE,), w[at + "input_layernorm.weight"], EPS)
        q, k, v = (F.linear(y, w[f"{at}self_attn.{p}_proj.weight"]).view(rows, n, -1, HEAD).transpose(1, 2)
                   for p in "qkv")
        k, v = turn(k, cos[:n], sin[:n]), v
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(turn(q, cos[:n], sin[:n]), k, v, is_causal=True)
        x = x + F.linear(y.transpose(1, 2).reshape(rows, n, WIDE), w[at + "self_attn.o_proj.weight"])
        y = F.rms_norm(x, (WIDE,), w[at + "post_attention_layernorm.weight"], EPS)
        y = F.silu(F.linear(y, w[at + "mlp.gate_proj.weight"])) * F.linear(y, w[at + "mlp.up_proj.weight"])
        x = x + F.linear(y, w[at + "mlp.down_proj.weight"])
    return F.linear(F.rms_norm(x, (WIDE,), w["model.norm.weight"], EPS), w["lm_head.weight"])


def loss_of(w, ids, tables):
    import torch
    import torch.nn.functional as F

    with torch.autocast("cpu", torch.bfloat16):
        logits = forward(w, ids[:, :-1], *tables)
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


def save(folder, w):
    import safetensors.torch
    import torch

    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": WORDS,
              "hidden_size": WIDE, "intermediate_size": FFN, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
              "hidden_act": "silu", "max_position_embeddings": CONTEXT, "rms_norm_eps": EPS,
              "rope_theta": THETA, "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
              "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0, "torch_dtype": "bfloat16"}
    words = {"bos_token": START, "eos_token": START, "add_bos_token": True, "model_max_length": CONTEXT,
             "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(words, indent=1) + "\n")
    safetensors.torch.save_file({name: t.detach().to(torch.bfloat16) for name, t in w.items()},
                                folder / "model.new", metadata={"format": "pt"})
    (folder / "model.new").replace(folder / "model.safetensors")


# ---- the training ----

def rate_at(step, part):
    """The rate of learning after this part of the time."""
    return RATE * min(1, (step + 1) / WARM) * (0.05 + 0.95 * (1 + math.cos(math.pi * min(part, 1))) / 2)


def optimizer(w):
    import torch

    groups = [{"params": [t for t in w.values() if t.dim() > 1], "weight_decay": 0.1},
              {"params": [t for t in w.values() if t.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), fused=True)


def held_loss(w, ids, tables, windows=16):
    import torch

    with torch.no_grad():
        rows = [ids[i * CONTEXT:(i + 1) * CONTEXT + 1] for i in range(windows)]
        return sum(loss_of(w, torch.stack(rows[i:i + 4]), tables).item() * 4
                   for i in range(0, windows, 4)) / windows


def train(folder, seconds, ids, held):
    import torch

    w, tables = weights(folder), rotary(torch)
    adam, began, saved, step = optimizer(w), time.time(), time.time(), 0
    log = open(folder / "train.log", "a", buffering=1)
    print(f"{sum(t.numel() for t in w.values())} parameters, {len(ids)} tokens to train with, {len(held)} held out",
          file=log)
    while True:
        spent = time.time() - began
        for group in adam.param_groups:
            group["lr"] = rate_at(step, spent / seconds)
        places = torch.randint(len(ids) - CONTEXT - 1, (BATCH,))
        loss = loss_of(w, torch.stack([ids[p:p + CONTEXT + 1] for p in places]), tables)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        step += 1
        if step % 20 == 0:
            print(f"step {step}, {step * BATCH * CONTEXT} tokens, {spent:.0f} s, loss {loss.item():.3f}", file=log)
        if spent >= seconds or time.time() - saved > SAVE_SECONDS:
            save(folder, w)
            saved = time.time()
            print(f"step {step}: saved, held-out loss {held_loss(w, held, tables):.4f}", file=log)
        if spent >= seconds:
            return


def main():
    folder, minutes = Path(sys.argv[1]), float((sys.argv[2:] or ["80"])[0])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pid").write_text(f"{os.getpid()}\n")
    texts, held = documents(folder)
    bpe = vocabulary(folder, texts)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")     # other programs may run, too
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(2)
    ids = torch.tensor([i for e in bpe.encode_batch(texts) for i in e.ids])
    train(folder, minutes * 60, ids, torch.tensor(bpe.encode(held).ids))


if __name__ == "__main__":
    main()
