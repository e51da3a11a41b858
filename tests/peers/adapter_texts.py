#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""adapter_texts.py - what models with adapters say, beside PEFT and beside merged weights

usage: adapter_texts.py BUILD [CASE]...

PEFT makes adapters with drawn numbers for all matrices of layers, of ranks 4, 16 and 64, for the demo
model and for some models of tests/data/families (CASES).  PEFT continues a prompt with 128 greedy tokens
in f32, without merging.  `kvrt generate --lora` continues it, too, and so does kvrt with the weights that
PEFT has merged and saved; both in exact mode.  tests/peers/logits.c computes the logits of PEFT's text.
All of this is done with f32, and with numbers and arithmetic in bf16; there PEFT has the same numbers, and
still computes in f32.  In bf16 weights of families are half as large, as those of make_families.py, and so
are all adapters.

A line for each adapter says
- how far kvrt's logits are from PEFT's, as a share of the largest one of the row;
- how far they are from those of kvrt with merged weights;
- how far PEFT's logits are from its own in the type of the line;
- how many tokens are PEFT's, and how many are those of merged weights, up to the first other one; what
  the first other token lacks of the best one's logit;
- in how many of the 128 rows of PEFT's text the likeliest token is another one;
- the least lead of PEFT's tokens, and how far the adapter moves the logits.
The first two, and what tokens lack, must be within BOUND.  The adapter must move the logits by ten times that.

BUILD is a folder of `make`, with its programs.  Needs what adapters.py does, and tokenizers.
"""
import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors.torch
import tokenizers
import torch
import transformers
from peft import LoraConfig, get_peft_model

import dense
import families
from daemon import Daemon

CASES = ("demo-model", "qwen2", "gpt2", "neox")
RANKS = (4, 16, 64)
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
BOUND = {"f32": 1e-4, "bf16": 2e-2}
PROMPT = "And the king said unto the woman, What aileth thee?"
NEW = dense.NEW


# ---- models ----

def base_model(case, dtype):
    """The model in transformers, and its configuration."""
    if case == "demo-model":
        model = transformers.AutoModelForCausalLM.from_pretrained(
            families.TOP / "tests/data/demo-model", dtype=dtype, attn_implementation="eager").eval()
        return model, json.loads((families.TOP / "tests/data/demo-model/config.json").read_text())
    config = families.make_families.CASES[case]
    reach = config["initializer_range"] / (2 if dtype == torch.bfloat16 else 1)
    return families.make_families.load(config, dtype, reach), config


def adapted(model, rank, case):
    """The model with an adapter of its type."""
    scale = 0.75 if model.dtype == torch.bfloat16 else 1.5
    config = LoraConfig(r=rank, lora_alpha=scale * rank, target_modules="all-linear", init_lora_weights=False,
                        fan_in_fan_out=case == "gpt2", task_type="CAUSAL_LM")
    return get_peft_model(copy.deepcopy(model), config, autocast_adapter_dtype=False).eval()


def write_tokenizer(case, folder):
    """The demo model's, or one with a token for each byte."""
    if case == "demo-model":
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_bytes((families.TOP / "tests/data/demo-model" / name).read_bytes())
        return
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(letters)}, []))
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = tokenizers.decoders.ByteLevel()
    words.save(str(folder / "tokenizer.json"))


def write_model(model, config, case, folder):
    """A folder of the model, with the names of its family's files."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(case, folder)
    tensors = {n: t.contiguous() for n, t in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    if "neox" in case:
        tensors["embed_out.weight"] = tensors.pop("lm_head.weight")
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


# ---- kvrt ----

class Ours:
    """kvrt and the program logits."""

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.program = families.compile_ours(build, folder)

    def tokens(self, model, dtype, nr_prompt, adapter=None):
        """The ids of kvrt generate."""
        lora = ["--lora", adapter] if adapter else []
        done = subprocess.run(
            [self.build / "kvrt", "generate", "--mode", "exact", "--dtype", dtype, "--temperature", "0",
             "--repetition-penalty", "1", "--ignore-eos", "--max-tokens", str(NEW), "--json", "--quiet",
             "--domain", "texts", *lora, model, PROMPT], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        answer = json.loads(done.stdout)
        if answer["prompt_tokens"] != nr_prompt:
            raise RuntimeError(f"the prompt has {answer['prompt_tokens']} tokens, not {nr_prompt}")
        return answer["ids"]

    def logits(self, model, dtype, ids, adapter=None):
        given, out = self.folder / "tokens", self.folder / "out"
        np.array(ids, "<u4").tofile(given)
        done = subprocess.run([self.program, model, given, out, "7", "0", "cpu", "stored", dtype,
                               *([adapter] if adapter else [])], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return np.fromfile(out, "<f4").reshape(len(ids), -1)


# ---- comparing ----

def rows_of(model, ids):
    """The logits of a text in transformers, in the type of the model."""
    past, rows = None, []
    with torch.no_grad():
        for token in ids:
            out = model(input_ids=torch.tensor([[token]]), past_key_values=past, use_cache=True)
            past = out.past_key_values
            rows.append(out.logits[0, -1].float())
    return torch.stack(rows).numpy()


def first_other(got, want):
    return next((i for i in range(NEW) if got[i] != want[i]), NEW)


def lack(rows, at, token):
    """What the logit of a token lacks of the best one's, as a share of the largest one."""
    return float((rows[at].max() - rows[at][token]) / np.abs(rows[at]).max())


class Case:
    """A model with an adapter, in transformers and in folders."""

    def __init__(self, name, rank, dtype, top):
        model, config = base_model(name, DTYPES[dtype])
        torch.manual_seed(rank)
        self.peft = adapted(model, rank, name)
        self.name, self.dtype = f"{name} r{rank} {dtype}", dtype
        folder = Path(tempfile.mkdtemp(dir=top))
        self.adapter = folder / "adapter"
        self.peft.save_pretrained(self.adapter)
        self.plain = write_model(model, config, name, folder / "plain")
        merged = copy.deepcopy(self.peft).merge_and_unload()
        self.merged = write_model(merged, config, name, folder / "merged")
        if name == "demo-model":
            self.prompt = dense.encode(self.plain, PROMPT)
        else:
            self.prompt = tokenizers.Tokenizer.from_file(str(self.plain / "tokenizer.json")).encode(PROMPT).ids


class Texts:
    """The lines."""

    def __init__(self, ours):
        self.ours = ours
        self.nr = self.bad = self.flips = self.parted = self.parted_merged = 0
        self.most = {}

    def logits(self, case, text, want):
        """The distances of logits, and the rows of kvrt with the adapter."""
        got = self.ours.logits(case.plain, case.dtype, text, case.adapter)
        return got, dict(
            PEFT=dense.apart(got, want),
            merged=dense.apart(got, self.ours.logits(case.merged, case.dtype, text)),
            own=dense.apart(rows_of(case.peft, text), want),
            moves=dense.apart(self.ours.logits(case.plain, case.dtype, text), want))

    def tokens(self, case, said, got, want):
        """Tokens that are PEFT's and those of merged weights, and what the first other ones lack."""
        nr = len(case.prompt)
        ours = self.ours.tokens(case.plain, case.dtype, nr, case.adapter)
        theirs = self.ours.tokens(case.merged, case.dtype, nr)
        at, at_merged = first_other(ours, said), first_other(ours, theirs)
        short = lack(want, nr - 1 + at, ours[at]) if at < NEW else 0.0
        if at_merged < NEW:
            rows = got if at_merged <= at else self.ours.logits(
                case.plain, case.dtype, case.prompt + ours[:at_merged], case.adapter)
            return at, short, at_merged, lack(rows, nr - 1 + at_merged, theirs[at_merged])
        return at, short, at_merged, 0.0

    def compare(self, case):
        bound = BOUND[case.dtype]
        text, want, lead = dense.greedy(copy.deepcopy(case.peft).float(), case.prompt)
        got, far = self.logits(case, text[:-1], want)
        at, short, at_merged, short_merged = self.tokens(case, text[len(case.prompt):], got, want)
        flips = int((got.argmax(1) != want.argmax(1))[len(case.prompt) - 1:].sum())
        ok = max(far["PEFT"], far["merged"], short, short_merged) <= bound and far["moves"] > 10 * bound
        print(f"{case.name:20} {far['PEFT']:.1e}, merged {far['merged']:.1e}, PEFT's own {far['own']:.1e}; tokens {at} "
              f"({short:.1e}), merged {at_merged} ({short_merged:.1e}); flips {flips}; lead {lead:.1e}; moves "
              f"{far['moves']:.2f}{'' if ok else '  DIFFERS'}", flush=True)
        self.count(case.dtype, far, ok, flips, at, at_merged)

    def count(self, dtype, far, ok, flips, at, at_merged):
        self.nr, self.bad, self.flips = self.nr + 1, self.bad + (not ok), self.flips + flips
        self.parted, self.parted_merged = self.parted + (at < NEW), self.parted_merged + (at_merged < NEW)
        for key in "PEFT", "merged", "own":
            self.most[dtype, key] = max(self.most.get((dtype, key), 0), far[key])

    def end(self):
        print("; ".join(f"{dtype} {key}: {value:.1e}" for (dtype, key), value in self.most.items()))
        print(f"{self.nr} adapters, {self.parted} texts part from PEFT's and {self.parted_merged} from those of merged "
              f"weights, {self.flips} flips in {self.nr * NEW} rows, {self.bad} wrong", flush=True)
        return self.bad == 0


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = Path(sys.argv[1]).resolve()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="kvmm-texts.") as folder:
        daemon = Daemon(build, Path(folder), "--min-token-bytes", "256")
        try:
            texts = Texts(Ours(build, Path(folder)))
            for dtype in DTYPES:
                for name in sys.argv[2:] or CASES:
                    for rank in RANKS:
                        texts.compare(Case(name, rank, dtype, folder))
        finally:
            daemon.close()
    sys.exit(not texts.end())


if __name__ == "__main__":
    main()
