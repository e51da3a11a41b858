#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vllm_chats.py - chats of many users: vLLM alone, and vLLM with kvmm

usage: vllm_chats.py BUILD MODEL

$USERS (20) users chat at once with a model of random weights, 8 layers of 512.  Each has
$TURNS (6) turns; a prompt has all that was said before.  vLLM's own prefix cache is on, and has
room for a quarter of the chats.  $ROUNDS (3) rounds, each with new chats, at each vLLM in turns.
The tokens must be the same.  Prints the time to the first token, the gap between tokens, and
tokens a second, with the ratio to vLLM alone in the same round.
"""
import json
import os
import random
import statistics
from pathlib import Path

from vllm_world import BLOCK, Checks, kvmm_connector, run, tokens

USERS, TURNS, ROUNDS = (int(os.environ.get(n, d)) for n, d in
                        (("USERS", 20), ("TURNS", 6), ("ROUNDS", 3)))
FIRST, NEXT, NEW = 160, 64, 32
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 4096,
         "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8,
         "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
         "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0,
         "torch_dtype": "float32", "initializer_range": 0.1}


def chats(seed):
    rng = random.Random(seed)
    head = [0] + tokens(rng, 63)        # a system prompt
    return [[head + tokens(rng, FIRST - 64)] + [tokens(rng, NEXT) for _ in range(TURNS - 1)]
            for _ in range(USERS)]


def percentile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def figures(out):
    first = [t[0] for t in out["times"]]
    gaps = [b - a for t in out["times"] for a, b in zip(t, t[1:])]
    return {"first token, median ms": statistics.median(first) * 1e3,
            "first token, p99 ms": percentile(first, 0.99) * 1e3,
            "gap, median ms": statistics.median(gaps) * 1e3,
            "gap, p99 ms": percentile(gaps, 0.99) * 1e3,
            "tokens a second": sum(map(len, out["ids"])) / out["seconds"]}


def checks(world):
    whole = USERS * (FIRST + (TURNS - 1) * NEXT + TURNS * NEW) // BLOCK
    model = os.path.join(world.folder, "chats")
    os.mkdir(model)
    Path(model, "config.json").write_text(json.dumps(MODEL))
    config = {"load_format": "dummy", "enable_prefix_caching": True, "disable_log_stats": False,
              "num_gpu_blocks_override": whole // 4}
    world.start_daemon("--pool-size", "2G")
    alone = world.vllm("alone", None, model, **config).wait()
    with_kvmm = world.vllm("kvmm", kvmm_connector({}), model, **config).wait()
    c, seen = Checks(), {"alone": [], "kvmm": []}
    print(f"note: {USERS} users, {TURNS} turns; {whole} blocks in all, vLLM has {whole // 4}")
    for seed in range(ROUNDS + 1):
        order = [alone, with_kvmm] if seed % 2 else [with_kvmm, alone]
        outs = {v.name: v.chat(chats(seed), NEW) for v in order}
        same = sum(a == b for a, b in zip(outs["alone"]["ids"], outs["kvmm"]["ids"]))
        nr = len(outs["alone"]["ids"])
        c.check(f"round {seed}: the tokens of vLLM alone", same == nr, f"{same} of {nr} answers")
        for name, out in outs.items():
            if seed:        # the first one is to get warm
                seen[name].append(figures(out))
            print(f"note: {name}: {out['seconds']} s, {sum(out['found'])} tokens found", flush=True)
    print(f"{'':24}{'alone':>10}{'kvmm':>10}  ratio, of each round")
    for what in seen["alone"][0]:
        a, k = ([f[what] for f in seen[n]] for n in ("alone", "kvmm"))
        ratios = " ".join(f"{y / x:.2f}" for x, y in zip(a, k))
        print(f"{what:24}{statistics.median(a):10.1f}{statistics.median(k):10.1f}  {ratios}")
    c.no_faults([with_kvmm])
    lines = with_kvmm.said("KV Transfer metrics").splitlines()
    print("note:", lines[-1][-300:] if lines else "no line of metrics")
    return c.end()


if __name__ == "__main__":
    run(checks)
