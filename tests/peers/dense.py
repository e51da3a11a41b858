# SPDX-License-Identifier: Apache-2.0
"""dense.py - quantized models in kvrt beside transformers with the same numbers in f32

quantizers.py and gguf_greedy.py give the numbers of each matrix, as the program that wrote the file
dequantizes it.  transformers continues PROMPTS with 128 greedy tokens each, in f32.  kvrt generate in
exact mode with activations in f32 must find the same tokens.  tests/peers/logits.c prints the logits
of the same text: each must be within NEAR of the largest one of its row.

Needs torch, transformers and tokenizers.
"""
import json
import subprocess

import families
import numpy as np
import tokenizers
import torch
import transformers

NEW, CHUNK = 128, 24
NEAR = 1e-4
PROMPTS = ("And the king said unto the woman, What aileth thee?",
           "It was a fine morning, and the ladies walked out together")


def reference(config, tensors):
    """A model of transformers in f32 with these tensors."""
    plain = {k: v for k, v in config.items() if k not in ("quantization_config", "torch_dtype", "dtype")}
    if not plain.get("rope_scaling"):
        plain.pop("rope_scaling", None)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**plain), dtype=torch.float32).eval()
    found = model.load_state_dict({k: v.float() for k, v in tensors.items()}, strict=False)
    lost = set(found.missing_keys) - ({"lm_head.weight"} if plain["tie_word_embeddings"] else set())
    if lost or found.unexpected_keys:
        raise RuntimeError(f"other tensors: {sorted(lost)[:3]} {found.unexpected_keys[:3]}")
    return model


def greedy(model, prompt):
    """The NEW likeliest tokens behind the prompt, the logits of all rows, and the least lead of a token."""
    text, past, rows = list(prompt), None, []
    with torch.no_grad():
        while len(text) < len(prompt) + NEW:
            out = model(input_ids=torch.tensor([text[len(rows):]]), past_key_values=past, use_cache=True)
            past = out.past_key_values
            rows += list(out.logits[0].float())
            text.append(int(rows[-1].argmax()))
    logits = torch.stack(rows).numpy()
    best = np.sort(logits[len(prompt) - 1:], 1)
    return text, logits, float((best[:, -1] - best[:, -2]).min())


def encode(model, prompt):
    """The ids of the prompt, behind the token that starts a text."""
    config = json.loads((model / "config.json").read_text())
    words = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    return [config["bos_token_id"], *words.encode(prompt, add_special_tokens=False).ids]


def apart(got, want):
    """The largest difference of logits, as a share of the largest one of its row."""
    return float((np.abs(got - want).max(1) / np.abs(want).max(1)).max())


class Logits:
    """The program logits, with files in a folder."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def __call__(self, model, ids):
        """The logits of each token in kvmm."""
        given, out = self.folder / "tokens", self.folder / "out"
        np.array(ids, "<u4").tofile(given)
        done = subprocess.run([self.program, model, given, out, str(CHUNK), "0", "cpu", "stored"],
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return np.fromfile(out, "<f4").reshape(len(ids), -1)


class Table:
    """The rows, and the programs of kvmm."""

    def __init__(self, build, folder, model):
        self.build = build
        self.prompts = [(text, encode(model, text)) for text in PROMPTS]
        self.logits = Logits(families.compile_ours(build, folder), folder)
        self.nr = self.bad = 0
        print(f"{'':24}{'greedy tokens':>14}{'least lead':>12}{'logits within':>15}", flush=True)

    def tokens(self, path, text, ids):
        """The ids of kvrt generate."""
        done = subprocess.run(
            [self.build / "kvrt", "generate", "--mode", "exact", "--dtype", "f32", "--kv-cache-dtype", "f32",
             "--temperature", "0", "--repetition-penalty", "1", "--ignore-eos", "--max-tokens", str(NEW), "--json",
             "--quiet", path, text], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        answer = json.loads(done.stdout)
        if answer["prompt_tokens"] != len(ids):
            raise RuntimeError(f"the prompt has {answer['prompt_tokens']} tokens, not {len(ids)}")
        return answer["ids"]

    def compare(self, path, model):
        """Tokens that are equal, those there are, the least lead, and the largest difference of logits."""
        same, far, lead = 0, 0.0, float("inf")
        for text, ids in self.prompts:
            want, logits, least = greedy(model, ids)
            got = self.tokens(path, text, ids)
            same += next((i for i, pair in enumerate(zip(got, want[len(ids):])) if pair[0] != pair[1]), len(got))
            lead, far = min(lead, least), max(far, apart(self.logits(path, want[:-1]), logits))
        return same, NEW * len(self.prompts), lead, far

    def row(self, name, path, dense):
        """One line: PATH in kvrt beside the tensors that dense() gives."""
        self.nr += 1
        try:
            same, all_of, lead, far = self.compare(path, dense())
            ok = same == all_of and far <= NEAR
            print(f"{name:24}{f'{same} of {all_of}':>14}{lead:12.1e}{far:15.1e}{'' if ok else '  DIFFERS'}", flush=True)
        except RuntimeError as e:
            ok = False
            print(f"{name:24}FAILED: {e}", flush=True)
        self.bad += not ok

    def end(self):
        print(f"{self.nr - self.bad} passed, {self.bad} failed", flush=True)
        return self.bad == 0
