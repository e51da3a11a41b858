#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""speed.py - kvrt beside llama.cpp on the same GGUF files, in turns

usage: speed.py BUILD FOLDER [TYPE..]

FOLDER gets files with made-up weights of two shapes (1.1 B: TinyLlama's; 0.5 B: Qwen 2's), in the
types q4_0, q4_k, q8_0 and bf16: one layer is drawn and quantized by llama.cpp, and all layers of a
file have its weights.  Each case is a batch of requests that start together: so many tokens in, so
many out.  A round runs kvrt (`kvrt bench latency`), then llama.cpp, and notes the ratio of their
times.  Prints tokens a second of both, and the median ratio of ROUNDS rounds (3) with its range.
SHAPES='0.5b' runs one shape alone.
"""
import ctypes
import json
import os
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
}
# Requests, tokens in, tokens out.
CASES = ((1, 16, 32), (4, 16, 32), (16, 16, 32), (32, 16, 32), (1, 512, 1))
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
    for name, size in (("attn_norm", (hidden,)), ("ffn_norm", (hidden,)),
                       ("attn_q", (hidden, hidden)), ("attn_k", (kv, hidden)),
                       ("attn_v", (kv, hidden)), ("attn_output", (hidden, hidden)),
                       ("ffn_gate", (inter, hidden)), ("ffn_up", (inter, hidden)),
                       ("ffn_down", (hidden, inter))):
        yield f"blk.0.{name}.weight", size


def write_layer(path, shape):
    import gguf
    import numpy

    rng = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
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
    writer = gguf.GGUFWriter(target, "llama")
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


# ---- in turns ----

def kvrt_seconds(world, path, case, out):
    requests, tokens_in, tokens_out = case
    subprocess.run([world.build / "kvrt", "bench", "latency", "--batch-size", str(requests),
                    "--input-len", str(tokens_in), "--output-len", str(tokens_out),
                    "--num-iters-warmup", "1", "--num-iters", "3", "--kv-cache-dtype", "f16",
                    "--quiet", "--json", str(out), str(path)], env=world.env, check=True,
                   stdout=subprocess.DEVNULL)
    return statistics.median(json.loads(out.read_text())["latencies"])


def llama_seconds(child, case):
    times = []
    for _ in range(4):
        child.stdin.write(" ".join(map(str, case)) + "\n")
        child.stdin.flush()
        times.append(float(next_line(child, "seconds ", SECONDS)))
    return statistics.median(times[1:])


def compare(world, path, child, name):
    for case in CASES:
        rounds = []
        for _ in range(ROUNDS):
            ours = kvrt_seconds(world, path, case, Path(world.folder) / "latency.json")
            rounds.append((ours, llama_seconds(child, case)))
        ratios = sorted(b / a for a, b in rounds)
        count = case[0] * (case[2] if case[2] > 1 else case[1])
        print(f"{name}: {case[0]} requests, {case[1]} in, {case[2]} out: kvrt "
              f"{count / statistics.median(a for a, _ in rounds):.1f}, llama.cpp "
              f"{count / statistics.median(b for _, b in rounds):.1f} tokens/s, "
              f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})", flush=True)


def compare_all(world, folder, kinds):
    for name in os.environ.get("SHAPES", " ".join(SHAPES)).split():
        for kind in kinds:
            path = make_file(folder, name, kind)
            child = subprocess.Popen([sys.executable, __file__, "--llama", path], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL)
            next_line(child, "ready", SECONDS)
            compare(world, path, child, f"{name} {kind}")
            child.kill()
            child.wait()


def main():
    if sys.argv[1] == "--llama":
        return llama_child(sys.argv[2])
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
