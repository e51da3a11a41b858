#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""speed.py - kvrt beside llama.cpp on the same GGUF files, and beside vLLM in bf16, in turns

usage: speed.py BUILD FOLDER [TYPE..]

FOLDER gets files with made-up weights of two shapes (1.1 B: TinyLlama's; 0.5 B: Qwen 2's), in the
types q4_0, q4_k, q8_0 and bf16: one layer is drawn and quantized by llama.cpp, and all layers of a
file have its weights.  A third shape, OLMoE's, is a mixture: SHAPES=olmoe.  Each case is a batch of requests that start together: so many tokens in, so
many out.  A round runs kvrt (`kvrt bench latency`), then each peer, and notes the ratios of their
times.  Prints tokens a second of all, and the median ratios of ROUNDS rounds (3) with their range.
SHAPES='0.5b' runs one shape alone.  CASES='1,16,32 1,512,1' are other cases.

KVMM_VLLM names a Python that has vLLM, which then runs the same shapes in bf16 with weights of its
own; vLLM has no fast products of these types on CPUs.  The process of a peer is stopped while
another one is measured.
"""
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import vllm_world
from child import next_line

ROUNDS = int(os.environ.get("ROUNDS", "3"))
THREADS = os.cpu_count()
SHAPES = {
    "1.1b": dict(layers=22, hidden=2048, inter=5632, heads=32, kv=4, words=32000, tied=False),
    "0.5b": dict(layers=24, hidden=896, inter=4864, heads=14, kv=2, words=151936, tied=True),
    # 1.3 B of 6.9 B parameters are used by a token.
    "olmoe": dict(layers=16, hidden=2048, inter=1024, heads=16, kv=16, words=50304, tied=False,
                  experts=64, chosen=8),
}
DENSE = "1.1b 0.5b"
# Requests, tokens in, tokens out.
CASES = [tuple(map(int, case.split(","))) for case in os.environ.get(
    "CASES", "1,16,32 4,16,32 16,16,32 32,16,32 1,512,1").split()]
TYPES = {"q4_0": "MOSTLY_Q4_0", "q4_k": "MOSTLY_Q4_K_S", "q8_0": "MOSTLY_Q8_0", "bf16": "MOSTLY_BF16"}
SECONDS = 900


# ---- files ----

def words_of(count):
    """A byte-level vocabulary: all bytes, two spaces, and words that no text has."""
    points = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    others = [b for b in range(256) if b not in points]
    letters = [chr(b) for b in points] + [chr(256 + i) for i in range(len(others))]
    words = ["<|end|>"] + letters + ["ĠĠ"]
    return words + [f"<w{i}>" for i in range(len(words), count)]


def header(writer, shape, layers):
    words = words_of(shape["words"])
    if "experts" in shape:
        writer.add_expert_count(shape["experts"])
        writer.add_expert_used_count(shape["chosen"])
    for add, value in ((writer.add_block_count, layers), (writer.add_context_length, 4096),
                       (writer.add_embedding_length, shape["hidden"]),
                       (writer.add_feed_forward_length, shape["inter"]),
                       (writer.add_head_count, shape["heads"]),
                       (writer.add_head_count_kv, shape["kv"]),
                       (writer.add_layer_norm_rms_eps, 1e-5), (writer.add_rope_freq_base, 10000.0),
                       (writer.add_vocab_size, shape["words"]),
                       (writer.add_rope_dimension_count, shape["hidden"] // shape["heads"]),
                       (writer.add_tokenizer_model, "gpt2"), (writer.add_tokenizer_pre, "gpt-2"),
                       (writer.add_token_list, words),
                       (writer.add_token_types, [3] + [1] * (len(words) - 1)),
                       (writer.add_token_merges, ["Ġ Ġ"]), (writer.add_eos_token_id, 0),
                       (writer.add_bos_token_id, 0), (writer.add_add_bos_token, False)):
        add(value)


def tensors(shape):
    """Tensors of the first layer and those beside the layers."""
    hidden, inter = shape["hidden"], shape["inter"]
    kv = shape["kv"] * hidden // shape["heads"]
    yield "token_embd.weight", (shape["words"], hidden)
    yield "output_norm.weight", (hidden,)
    if not shape["tied"]:
        yield "output.weight", (shape["words"], hidden)
    mlp = (("ffn_gate", (inter, hidden)), ("ffn_up", (inter, hidden)),
           ("ffn_down", (hidden, inter)))
    if "experts" in shape:
        mlp = (("ffn_gate_inp", (shape["experts"], hidden)), ("attn_q_norm", (hidden,)),
               ("attn_k_norm", (hidden,)),
               *((f"{name}_exps", (shape["experts"], *size)) for name, size in mlp))
    for name, size in (("attn_norm", (hidden,)), ("ffn_norm", (hidden,)),
                       ("attn_q", (hidden, hidden)), ("attn_k", (kv, hidden)),
                       ("attn_v", (kv, hidden)), ("attn_output", (hidden, hidden)), *mlp):
        yield f"blk.0.{name}.weight", size


def arch_of(shape):
    return "olmoe" if "experts" in shape else "llama"


def write_layer(path, shape):
    import gguf
    import numpy

    rng = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(path, arch_of(shape))
    header(writer, shape, 1)
    for name, size in tensors(shape):
        data = numpy.ones(size, numpy.float32)
        if len(size) > 1:
            data = rng.standard_normal(size, numpy.float32) * 0.02
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantize(source, target, ftype):
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, "LLAMA_FTYPE_" + ftype)
    params.nthread = THREADS
    params.pure = True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(),
                                      ctypes.byref(params)):
        raise SystemExit(f"llama.cpp did not quantize {source}")


def repeat_layer(source, target, shape):
    """The same file with the first layer as every layer."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, arch_of(shape))
    header(writer, shape, shape["layers"])
    for t in reader.tensors:
        numbers = range(shape["layers"]) if t.name.startswith("blk.0.") else (0,)
        for i in numbers:
            writer.add_tensor(t.name.replace("blk.0.", f"blk.{i}."), t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_file(folder, name, kind):
    path = folder / f"{name}-{kind}.gguf"
    if path.exists():
        return path
    layer = folder / f"{name}-layer.gguf"
    if not layer.exists():
        write_layer(layer, SHAPES[name])
    quantize(layer, folder / "one.gguf", TYPES[kind])
    repeat_layer(folder / "one.gguf", folder / "part.gguf", SHAPES[name])
    (folder / "part.gguf").rename(path)
    return path


# ---- llama.cpp, in a process of its own ----

def llama_batch(batch, rows):
    """Rows: token, position, sequence, logits wanted."""
    batch.n_tokens = len(rows)
    for i, (token, at, seq, wanted) in enumerate(rows):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, at, 1
        batch.seq_id[i][0], batch.logits[i] = seq, wanted


def llama_run(lib, context, batch, words, requests, tokens_in, tokens_out):
    lib.llama_memory_clear(lib.llama_get_memory(context), True)
    begin = time.monotonic()
    rows = [((s * 7919 + i * 104729) % words, i, s, i == tokens_in - 1)
            for s in range(requests) for i in range(tokens_in)]
    for at in range(0, len(rows), 512):
        llama_batch(batch, rows[at:at + 512])
        if lib.llama_decode(context, batch):
            raise SystemExit("llama_decode failed")
    lib.llama_synchronize(context)
    for step in range(1, tokens_out):
        llama_batch(batch, [((s * 31 + step * 17) % words, tokens_in + step - 1, s, 1)
                            for s in range(requests)])
        if lib.llama_decode(context, batch):
            raise SystemExit("llama_decode failed")
        lib.llama_synchronize(context)
    return time.monotonic() - begin


def llama_child(path):
    import llama_cpp as lib

    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 4096, 512, 512, 32
    params.n_threads = params.n_threads_batch = THREADS
    params.kv_unified = True
    context = lib.llama_init_from_model(model, params)
    batch = lib.llama_batch_init(512, 0, 1)
    words = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    print("ready", flush=True)
    for line in sys.stdin:
        seconds = llama_run(lib, context, batch, words, *map(int, line.split()))
        print("seconds", seconds, flush=True)


# ---- vLLM, in another one ----

def vllm_folder(folder, shape):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "bos_token_id": 0,
              "eos_token_id": 0, "hidden_act": "silu", "hidden_size": shape["hidden"],
              "intermediate_size": shape["inter"], "num_attention_heads": shape["heads"],
              "num_hidden_layers": shape["layers"], "num_key_value_heads": shape["kv"],
              "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": shape["tied"], "torch_dtype": "bfloat16",
              "vocab_size": shape["words"]}
    (folder / "config.json").write_text(json.dumps(config))


def vllm_run(engine, params, words, requests, tokens_in, tokens_out):
    prompts = [{"prompt_token_ids": [(s * 7919 + i * 104729) % words for i in range(tokens_in)]}
               for s in range(requests)]
    params.max_tokens = tokens_out
    begin = time.monotonic()
    engine.generate(prompts, params, use_tqdm=False)
    return time.monotonic() - begin


def vllm_child(name):
    from vllm import LLM, SamplingParams

    with tempfile.TemporaryDirectory(prefix="kvmm-speed") as folder:
        vllm_folder(Path(folder), SHAPES[name])
        engine = LLM(folder, load_format="dummy", dtype="bfloat16", skip_tokenizer_init=True,
                     max_model_len=1024, max_num_seqs=32, enable_prefix_caching=False)
        params = SamplingParams(temperature=0, ignore_eos=True, detokenize=False)
        print("ready", flush=True)
        for line in sys.stdin:
            seconds = vllm_run(engine, params, SHAPES[name]["words"], *map(int, line.split()))
            print("seconds", seconds, flush=True)


# ---- in turns ----

class Peer:
    """A process that runs the cases that it reads."""

    def __init__(self, name, command, env):
        self.name = name
        self.process = subprocess.Popen(
            [str(word) for word in command], text=True, env={**os.environ, **env},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if next_line(self.process, "ready", SECONDS) is None:
            raise SystemExit(f"{name} did not start")
        self.process.send_signal(signal.SIGSTOP)

    def seconds(self, case):
        self.process.send_signal(signal.SIGCONT)
        times = []
        for _ in range(4):
            self.process.stdin.write(" ".join(map(str, case)) + "\n")
            self.process.stdin.flush()
            times.append(float(next_line(self.process, "seconds ", SECONDS)))
        self.process.send_signal(signal.SIGSTOP)
        return statistics.median(times[1:])

    def end(self):
        self.process.kill()
        self.process.wait()


def kvrt_seconds(world, path, case, out):
    requests, tokens_in, tokens_out = case
    subprocess.run([world.build / "kvrt", "bench", "latency", "--batch-size", str(requests),
                    "--input-len", str(tokens_in), "--output-len", str(tokens_out),
                    "--num-iters-warmup", "1", "--num-iters", "3", "--kv-cache-dtype", "f16",
                    "--quiet", "--json", str(out), str(path)], env=world.env, check=True,
                   stdout=subprocess.DEVNULL)
    return statistics.median(json.loads(out.read_text())["latencies"])


def compare(world, path, peers, name):
    for case in CASES:
        ours, theirs = [], {peer.name: [] for peer in peers}
        for _ in range(ROUNDS):
            ours.append(kvrt_seconds(world, path, case, Path(world.folder) / "latency.json"))
            for peer in peers:
                theirs[peer.name].append(peer.seconds(case))
        count = case[0] * (case[2] if case[2] > 1 else case[1])
        line = f"kvrt {count / statistics.median(ours):.1f} tokens/s"
        for peer, times in theirs.items():
            ratios = sorted(b / a for a, b in zip(ours, times))
            line += (f"; {peer} {count / statistics.median(times):.1f}, "
                     f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})")
        print(f"{name}: {case[0]} requests, {case[1]} in, {case[2]} out: {line}", flush=True)


def compare_all(world, folder, kinds):
    vllm = os.environ.get("KVMM_VLLM")
    for name in os.environ.get("SHAPES", DENSE).split():
        others = [Peer("vLLM in bf16", [vllm, __file__, "--vllm", name],
                       {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})] if vllm else []
        for kind in kinds:
            path = make_file(folder, name, kind)
            llama = Peer("llama.cpp", [sys.executable, __file__, "--llama", path], {})
            compare(world, path, [llama, *others], f"{name} {kind}")
            llama.end()
        for peer in others:
            peer.end()


def main():
    if sys.argv[1] == "--llama":
        return llama_child(sys.argv[2])
    if sys.argv[1] == "--vllm":
        return vllm_child(sys.argv[2])
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kvmm-speed") as run:
        world = vllm_world.World(sys.argv[1], None, run)
        world.start_daemon("--pool-size", "1G")
        try:
            compare_all(world, folder, sys.argv[3:] or TYPES)
        finally:
            world.stop_daemon()
    return 0


if __name__ == "__main__":
    sys.exit(main())
