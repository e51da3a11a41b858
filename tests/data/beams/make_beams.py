#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record which beam each beam comes from, step by step, in beam searches of the demo model.

usage: OMP_NUM_THREADS=1 python3 make_beams.py ../demo-model >beams.txt

Wants torch and transformers; the model is theirs (LlamaForCausalLM, float32) and shares no code with the runtime here.
Takes a few minutes. Another version or CPU rounds otherwise, and may choose another beam where two are nearly equal.

The search is the usual one without an end: each step keeps the W best of all continuations by the sum of their
log-probabilities; the end of text is never taken, since the bench that replays this has lengths of its own.

Prompts are the beginnings of golden.json, carried on by sampling (temperature 0.8) to the lengths below, which are like
those of Alpaca and ShareGPT. The model's context of 1,024 bounds prompt and steps together.

A beam that goes on stays in its slot, those that come from others fill the slots of those that end, so that a search
in which nothing changes is a row of dots.  Lines of the file:

    # ...                                comment
    search WIDTH PROMPT LENGTH STEPS     then its steps, in words separated by white space:
    .                                    each slot goes on
    012...                               WIDTH digits: the slot from which each slot comes
"""
import hashlib
import json
import sys
import textwrap

import torch
import transformers

SEARCHES = ((24, 256), (160, 640))      # length of the prompt, steps
WIDTHS = (2, 4, 6)


def start(model, ids, length):
    """The prompts @ids, carried on to @length tokens."""
    rows = []
    for row in ids:
        row = list(row[:length])
        while len(row) < length:
            z = model(torch.tensor([row])).logits[0, -1] / 0.8
            z[0] = -float("inf")
            row.append(int(torch.multinomial(torch.softmax(z, -1), 1)))
        rows.append(row)
    return torch.tensor(rows)


def slots(parent):
    """@parent reordered so that whoever goes on stays; also the order itself."""
    width = len(parent)
    place = [None] * width
    late = []
    for i, p in enumerate(parent):
        if place[p] is None:
            place[p] = i
        else:
            late.append(i)
    for s in range(width):
        if place[s] is None:
            place[s] = late.pop(0)
    return place


def search(model, prompts, width, nr_steps):
    """@nr_steps steps of all @prompts at once.  Return: for each prompt its steps, as text."""
    nr = len(prompts)
    out = model(prompts, use_cache=True)
    z = torch.log_softmax(out.logits[:, -1].float(), -1)
    z[:, 0] = -float("inf")
    score, token = z.topk(width)
    cache = out.past_key_values
    cache.batch_repeat_interleave(width)
    base = (torch.arange(nr) * width)[:, None]
    steps = [[] for _ in range(nr)]
    for _ in range(nr_steps):
        z = torch.log_softmax(model(token.reshape(-1, 1), past_key_values=cache, use_cache=True).logits[:, -1].float(), -1)
        z[:, 0] = -float("inf")
        vocab = z.shape[-1]
        score, best = (score[:, :, None] + z.reshape(nr, width, vocab)).reshape(nr, -1).topk(width)
        parent = torch.div(best, vocab, rounding_mode="floor")
        order = torch.tensor([slots(p.tolist()) for p in parent])
        parent, score = parent.gather(1, order), score.gather(1, order)
        token = (best % vocab).gather(1, order)
        cache.reorder_cache((base + parent).reshape(-1))
        for i, p in enumerate(parent.tolist()):
            steps[i].append("." if p == list(range(width)) else "".join(map(str, p)))
    return steps


def main():
    folder = sys.argv[1]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    golden = json.load(open(folder + "/golden.json"))["continuations"]
    ids = [c["prompt_ids"] for c in golden]
    weights = hashlib.sha256(open(folder + "/model.safetensors", "rb").read()).hexdigest()
    print("# Which beam each beam comes from, in beam searches of tests/data/demo-model.")
    print("# Made by make_beams.py, which describes the form; the model is Hugging Face's LlamaForCausalLM:")
    print(f"# transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, float32 on a CPU.")
    print(f"# model.safetensors: sha256 {weights}")
    with torch.no_grad():
        for length, nr_steps in SEARCHES:
            prompts = start(model, ids, length)
            for width in WIDTHS:
                for i, steps in enumerate(search(model, prompts, width, nr_steps)):
                    print("search", width, i, length, len(steps))
                    print(textwrap.fill(" ".join(steps), 119))
                print(width, length, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
