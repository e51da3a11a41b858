#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""families.py - random small models of every family, against Hugging Face transformers

usage: families.py BUILD [NUMBER [SEED [FAMILY..]]]

Draws NUMBER (100) configurations of the families in turn, with made-up weights.
transformers computes the logits of a prompt and of 32 greedy tokens behind it; kvmm
computes those of the same text, in chunks of a random size.  All logits must be within
1e-4 of the largest one of their row, and the likeliest tokens must be the same.  BUILD is
a folder of `make`, of which tests/check_model_golden has been built.  Prints a line for
each family, a line for each model that differs, and the number of both.

Needs torch and transformers, as tests/data/families/make_families.py does.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/data/families"))
import make_families  # noqa: E402

PROMPT, NEW = 24, 32
NEAR = 1e-4
LIBRARIES = ("-lnuma -lseccomp -lcap-ng -luring -ljansson -lpcre2-8 -lutf8proc -levent_core "
             "-lcheck_pic -lsubunit -lrt -ldl -lm").split()


# ---- configurations ----

def sizes(r, **more):
    """Sizes that all families have, by Llama's names."""
    heads = r.choice([1, 2, 3, 4, 6])
    head_dim = r.choice([16, 32, 48, 64])
    return dict(
        vocab_size=r.choice([97, 256, 300]), hidden_size=heads * head_dim,
        intermediate_size=r.choice([40, 96, 130]), num_hidden_layers=r.randint(1, 4),
        num_attention_heads=heads,
        num_key_value_heads=r.choice([k for k in range(1, heads + 1) if not heads % k]),
        max_position_embeddings=256, initializer_range=r.choice([0.05, 0.1, 0.15]),
        tie_word_embeddings=r.random() < 0.5, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        rope_theta=r.choice([1e4, 5e5]), **more)


def eps(r):
    return r.choice([1e-6, 1e-5, 1e-3])


def scaling(r, longest=True):
    """A stretched context, or none."""
    kinds = [None, None, dict(rope_type="linear", factor=r.choice([2.0, 3.5])),
             dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=64),
             dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)]
    return r.choice(kinds)


def dynamic(r, config):
    """Sometimes a stretch that depends on the length, past the context."""
    if r.random() < 0.2:
        config.update(rope_scaling=dict(rope_type="dynamic", factor=r.choice([2.0, 4.0])),
                      max_position_embeddings=r.choice([32, 40]))
    return config


def window(r):
    return r.choice([1, 2, 3, 7, 16, 33])


def llama_like(arch):
    def draw(r):
        return dynamic(r, dict(sizes(r), architectures=[arch], rms_norm_eps=eps(r),
                               hidden_act=r.choice(["silu", "gelu", "gelu_pytorch_tanh"]),
                               rope_scaling=scaling(r)))
    return draw


def llama(r):
    return dict(llama_like("LlamaForCausalLM")(r), attention_bias=r.random() < 0.5,
                mlp_bias=r.random() < 0.5)


def mistral(r):
    return dict(llama_like("MistralForCausalLM")(r), sliding_window=r.choice([None, window(r)]))


def qwen2(r):
    config = llama_like("Qwen2ForCausalLM")(r)
    return dict(config, use_sliding_window=r.random() < 0.5, sliding_window=window(r),
                max_window_layers=r.randint(0, config["num_hidden_layers"] - 1))


def qwen3(r):
    return dict(llama_like("Qwen3ForCausalLM")(r), head_dim=r.choice([16, 32, 48]),
                attention_bias=r.random() < 0.5, use_sliding_window=False, sliding_window=None)


def granite(r):
    return dict(llama(r), architectures=["GraniteForCausalLM"],
                embedding_multiplier=r.choice([1.0, 6.0, 12.0]),
                attention_multiplier=r.choice([0.125, 0.25, 0.05]),
                residual_multiplier=r.choice([0.22, 1.0]), logits_scaling=r.choice([1.0, 3.0, 8.0]))


def olmo2(r):
    return dict(llama_like("Olmo2ForCausalLM")(r), attention_bias=r.random() < 0.5)


def smollm3(r):
    config = llama(r)
    layers = config["num_hidden_layers"]
    config["architectures"] = ["SmolLM3ForCausalLM"]
    if r.random() < 0.5:
        config["no_rope_layers"] = [r.randint(0, 1) for _ in range(layers)]
    else:
        config["no_rope_layer_interval"] = r.randint(1, 4)
    if r.random() < 0.4:
        config.update(use_sliding_window=True, sliding_window=window(r))
    return config


def cohere(r):
    return dynamic(r, dict(
        sizes(r), architectures=["CohereForCausalLM"], layer_norm_eps=eps(r), hidden_act="silu",
        attention_bias=r.random() < 0.5, logit_scale=r.choice([0.0625, 0.25, 1.0]),
        use_qk_norm=r.random() < 0.5, rope_scaling=scaling(r)))


def cohere2(r):
    return dict(
        sizes(r), architectures=["Cohere2ForCausalLM"], layer_norm_eps=eps(r), hidden_act="silu",
        attention_bias=r.random() < 0.5, logit_scale=r.choice([0.0625, 0.25, 1.0]),
        sliding_window=window(r), sliding_window_pattern=r.randint(1, 4))


def gemma(r):
    return dynamic(r, dict(
        sizes(r), architectures=["GemmaForCausalLM"], rms_norm_eps=eps(r),
        head_dim=r.choice([16, 32, 64]), hidden_act=r.choice(["gelu", "gelu_pytorch_tanh"]),
        attention_bias=r.random() < 0.5, rope_scaling=scaling(r)))


def gemma2(r):
    return dict(
        sizes(r), architectures=["Gemma2ForCausalLM"], rms_norm_eps=eps(r),
        head_dim=r.choice([16, 32, 64]), hidden_activation="gelu_pytorch_tanh",
        sliding_window=window(r), query_pre_attn_scalar=r.choice([16, 24, 64]),
        attn_logit_softcapping=r.choice([2.0, 50.0]), final_logit_softcapping=r.choice([3.0, 30.0]))


def parts(config, r):
    """A share of the head that is an even number of dimensions."""
    dim = config["hidden_size"] // config["num_attention_heads"]
    return r.choice([p for p in (0.25, 0.375, 0.5, 0.75, 1.0) if int(dim * p) % 2 == 0])


def phi(r):
    config = dict(
        sizes(r), architectures=["PhiForCausalLM"], layer_norm_eps=eps(r),
        hidden_act=r.choice(["gelu_new", "gelu", "relu"]), qk_layernorm=r.random() < 0.4,
        rope_scaling=scaling(r))
    return dynamic(r, dict(config, partial_rotary_factor=parts(config, r)))


def starcoder2(r):
    return dynamic(r, dict(
        sizes(r), architectures=["Starcoder2ForCausalLM"], norm_epsilon=eps(r),
        hidden_act=r.choice(["gelu_pytorch_tanh", "gelu"]), use_bias=r.random() < 0.6,
        sliding_window=r.choice([None, window(r)]), rope_scaling=scaling(r)))


def stablelm(r):
    config = dict(
        sizes(r), architectures=["StableLmForCausalLM"], layer_norm_eps=eps(r), hidden_act="silu",
        use_qkv_bias=r.random() < 0.5, qk_layernorm=r.random() < 0.5,
        use_parallel_residual=r.random() < 0.5, rope_scaling=scaling(r))
    return dynamic(r, dict(config, partial_rotary_factor=parts(config, r)))


def phi3(r):
    config = dict(sizes(r), architectures=["Phi3ForCausalLM"], rms_norm_eps=eps(r), hidden_act="silu",
                  sliding_window=r.choice([None, window(r)]))
    config["partial_rotary_factor"] = part = parts(config, r)
    if r.random() < 0.7:
        pairs = int(config["hidden_size"] // config["num_attention_heads"] * part) // 2
        config.update(original_max_position_embeddings=r.choice([16, 64]), rope_scaling=dict(
            type="longrope", short_factor=[r.uniform(1, 1.5) for _ in range(pairs)],
            long_factor=[r.uniform(1, 40) for _ in range(pairs)]))
    return config


def opt(r):
    base = sizes(r)
    hidden = base["hidden_size"]
    return dict(
        architectures=["OPTForCausalLM"], vocab_size=base["vocab_size"], hidden_size=hidden,
        ffn_dim=base["intermediate_size"], num_hidden_layers=base["num_hidden_layers"],
        num_attention_heads=base["num_attention_heads"], max_position_embeddings=256,
        word_embed_proj_dim=r.choice([hidden, 24, 80]), init_std=base["initializer_range"],
        do_layer_norm_before=r.random() < 0.5, enable_bias=r.random() < 0.6,
        layer_norm_elementwise_affine=r.random() < 0.6, tie_word_embeddings=r.random() < 0.7,
        _remove_final_layer_norm=r.random() < 0.2,
        activation_function=r.choice(["relu", "gelu"]), pad_token_id=1, bos_token_id=2,
        eos_token_id=2)


def gpt2(r):
    base = sizes(r)
    return dict(
        architectures=["GPT2LMHeadModel"], vocab_size=base["vocab_size"],
        n_embd=base["hidden_size"], n_layer=base["num_hidden_layers"],
        n_head=base["num_attention_heads"], n_positions=128,
        n_inner=r.choice([None, 72]), layer_norm_epsilon=eps(r), bos_token_id=3, eos_token_id=3,
        initializer_range=base["initializer_range"],
        activation_function=r.choice(["gelu_new", "gelu", "relu"]),
        scale_attn_by_inverse_layer_idx=r.random() < 0.5, scale_attn_weights=r.random() < 0.8,
        reorder_and_upcast_attn=r.random() < 0.5)


def neox(r):
    config = dict(sizes(r), architectures=["GPTNeoXForCausalLM"], layer_norm_eps=eps(r),
                  hidden_act=r.choice(["gelu", "gelu_new"]), rotary_emb_base=10000,
                  use_parallel_residual=r.random() < 0.5, attention_bias=r.random() < 0.5)
    config["rotary_pct"] = parts(config, r)
    del config["rope_theta"], config["num_key_value_heads"]
    return config


NEW_ONES = dict(granite=granite, olmo2=olmo2, smollm3=smollm3, cohere=cohere, cohere2=cohere2,
                gemma=gemma, phi=phi, starcoder2=starcoder2, stablelm=stablelm, phi3=phi3, opt=opt,
                gpt2=gpt2)
FAMILIES = dict(NEW_ONES, llama=llama, mistral=mistral, qwen2=qwen2, qwen3=qwen3, gemma2=gemma2,
                neox=neox)


# ---- both programs ----

def is_long(config):
    return (config.get("rope_scaling") or {}).get("type") == "longrope"


def is_whole(config):
    """Does the cache of transformers change the results?

    Under longrope it keeps K of other frequencies.  With a window of one token it keeps all
    tokens in place of none.
    """
    return is_long(config) or config.get("sliding_window") == 1


def theirs(config, prompt, new):
    """The text and its logits."""
    reach = config.get("initializer_range", config.get("init_std"))
    model = make_families.load(config, torch.float32, reach)
    text, past, rows = list(prompt), None, []
    with torch.no_grad():
        while len(text) < len(prompt) + new:
            whole = is_whole(config)
            cut = 0 if whole else len(rows)
            out = model(input_ids=torch.tensor([text[cut:]]), past_key_values=past,
                        use_cache=not whole)
            past = None if whole else out.past_key_values
            rows = rows[:cut] + list(out.logits[0].float())
            text.append(int(rows[-1].argmax()))
    return text[:-1], torch.stack(rows).numpy()


def compile_ours(build, where):
    """The program that prints logits; returns its path."""
    program = str(Path(where) / "logits")
    archives = sorted(str(p) for p in (build / "lib").glob("*.a"))
    subprocess.run(
        ["cc", "-std=gnu11", "-D_GNU_SOURCE=", "-O1", "-pthread", f"-I{TOP}/include", f"-I{TOP}", "-o",
         program, str(TOP / "tests/peers/logits.c"), "-Wl,--as-needed", "-Wl,--start-group",
         *archives, "-Wl,--end-group", *LIBRARIES], check=True)
    return program


def ours(program, where, config, text, chunk, longest):
    folder = Path(where)
    (folder / "config.json").write_text(json.dumps(config))
    np.array(text, "<u4").tofile(folder / "tokens")
    done = subprocess.run([program, where, str(folder / "tokens"), str(folder / "out"), str(chunk),
                           str(longest)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{done.stderr.strip()}: {json.dumps(config)}")
    return np.fromfile(folder / "out", "<f4").reshape(len(text), -1)


def compare(program, where, config, r):
    """The largest difference of logits, as a share of the largest logit of its row."""
    short = is_long(config) and config["original_max_position_embeddings"] >= PROMPT + NEW
    prompt = [r.randrange(3, config["vocab_size"]) for _ in range(PROMPT)]
    text, want = theirs(config, prompt, NEW)
    got = ours(program, where, config, text, r.choice([1, 5, 16, 24, 100]),
               config["original_max_position_embeddings"] if short else 0)
    size = np.abs(want).max(1)
    worst = float((np.abs(got - want).max(1) / size).max())
    best = np.sort(want, 1)
    close = (best[:, -1] - best[:, -2]) / size < 2 * NEAR
    same = (got.argmax(1) == want.argmax(1)) | close
    return worst, bool(same[PROMPT - 1:].all())


def main():
    if len(sys.argv) < 2:
        print(__doc__.strip().splitlines()[2])
        return 64
    build = Path(sys.argv[1]).resolve()
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    names = sys.argv[4:] or list(FAMILIES)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    most, counts, bad = {}, {}, 0
    with tempfile.TemporaryDirectory() as where:
        program = compile_ours(build, where)
        for i in range(number):
            name = names[i % len(names)]
            r = random.Random(f"{seed} {name} {i}")
            config = FAMILIES[name](r)
            worst, same = compare(program, where, config, r)
            most[name] = max(most.get(name, 0), worst)
            counts[name] = counts.get(name, 0) + 1
            if worst > NEAR or not same:
                bad += 1
                print(f"DIFFERS {name}: logits {worst:.1e}, greedy tokens "
                      f"{'the same' if same else 'others'}: {json.dumps(config)}", flush=True)
    for name in most:
        print(f"{name}: {counts[name]} models, logits within {most[name]:.1e}")
    print(f"{number} models compared, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
