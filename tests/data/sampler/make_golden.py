#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write golden.json: what penalties, biases, masks and logprobs are.

usage: python3 make_golden.py > golden.json

The definitions, spelt out over dictionaries of tokens in double precision;
nothing here looks at how the runtime does it.  Each line is one case: a row of
logits, prompt, text so far, stop ids and parameters; then the row after all
that is done to it before temperature (null is -infinity), the distribution
that temperature, min-p, top-k and top-p leave, and logprobs of the row as it
came with the order of its tokens.  All logits are multiples of 1/128, so they
are the same in any float.  Needs nothing but Python.
"""
import json
import math

NR_CASES = 60
INF = float("inf")


class Numbers:
    """Numbers that are the same with every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n

    def one_in(self, n):
        return self.below(n) == 0

    def some(self, n, below):
        return [self.below(below) for _ in range(n)]


def draw_params(r, vocab):
    p = {}
    if r.one_in(2):
        p["repetition_penalty"] = [0.5, 0.9, 1.1, 1.3, 2.0][r.below(5)]
    if r.one_in(2):
        p["presence_penalty"] = [-2.0, -0.5, 0.25, 1.5, 2.0][r.below(5)]
    if r.one_in(2):
        p["frequency_penalty"] = [-1.0, -0.3, 0.1, 0.7, 2.0][r.below(5)]
    if r.one_in(2):
        p["logit_bias"] = {t: (r.below(401) - 200) / 20 for t in r.some(5, vocab)}
    if r.one_in(3):
        p["allowed_token_ids"] = sorted(set(r.some(vocab // 2, vocab)))
    if r.one_in(2):
        p["bad_words"] = [r.some(1 + r.below(3), 6) for _ in range(6)]
    if r.one_in(2):
        p["min_tokens"] = r.below(12)
    p["temperature"] = [0.5, 0.8, 1.0, 1.5][r.below(4)]
    p["min_p"] = [0.0, 0.02, 0.1][r.below(3)]
    p["top_k"] = [0, 0, 5, 20][r.below(4)]
    p["top_p"] = [1.0, 0.95, 0.7][r.below(3)]
    return p


def adjust(logits, prompt, text, stops, p):
    row = dict(enumerate(logits))
    if "allowed_token_ids" in p:
        for t in row:
            if t not in p["allowed_token_ids"]:
                row[t] = -INF
    for word in p.get("bad_words", []):
        start = word[:-1]
        if len(start) <= len(text) and text[len(text) - len(start):] == start:
            row[word[-1]] = -INF
    if len(text) < p.get("min_tokens", 0):
        for t in stops:
            row[t] = -INF
    for t, bias in p.get("logit_bias", {}).items():
        row[t] += bias
    r = p.get("repetition_penalty", 1.0)
    for t in set(prompt) | set(text):
        row[t] = row[t] / r if row[t] > 0 else row[t] * r
    for t in set(text):
        row[t] -= p.get("frequency_penalty", 0.0) * text.count(t)
        row[t] -= p.get("presence_penalty", 0.0)
    return [row[t] for t in range(len(logits))]


def order(row):
    return sorted((t for t in range(len(row)) if row[t] > -INF), key=lambda t: (-row[t], t))


def softmax(row, tokens, temperature):
    best = max(row[t] for t in tokens)
    weights = {t: math.exp((row[t] - best) / temperature) for t in tokens}
    total = math.fsum(weights.values())
    return {t: w / total for t, w in weights.items()}


def distribution(row, p):
    kept = order(row)
    prob = softmax(row, kept, p["temperature"])
    kept = [t for t in kept if prob[t] >= p["min_p"] * prob[kept[0]]]
    if p["top_k"]:
        kept = kept[:p["top_k"]]
    prob = softmax(row, kept, p["temperature"])
    total, least = 0.0, []
    for t in kept:
        if total >= p["top_p"] and p["top_p"] < 1:
            break
        least.append(t)
        total += prob[t]
    prob = softmax(row, least, p["temperature"])
    return [prob.get(t, 0.0) for t in range(len(row))]


def logprobs(row):
    best = max(row)
    total = math.log(math.fsum(math.exp(x - best) for x in row))
    return [x - best - total for x in row]


def rounded(values):
    return [None if v == -INF else round(v, 9) for v in values]


def case(i):
    r = Numbers(i + 1)
    vocab = 24 + r.below(24)
    logits = [(r.below(1024) + r.below(1024) - 1024) / 128 for _ in range(vocab)]
    prompt, text = r.some(r.below(10), vocab), r.some(r.below(14), 6)
    stops, p = r.some(2, vocab), draw_params(r, vocab)
    row = adjust(logits, prompt, text, stops, p)
    if not order(row):
        return None
    return {"logits": logits, "prompt": prompt, "text": text, "stops": stops, "params": p,
            "adjusted": rounded(row), "greedy": order(row)[0],
            "probabilities": rounded(distribution(row, p)),
            "logprobs": rounded(logprobs(logits)), "order": order(logits)}


def main():
    cases = [c for c in (case(i) for i in range(2 * NR_CASES)) if c][:NR_CASES]
    print("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]")


main()
