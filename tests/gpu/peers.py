#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peers.py - attention and products of PyTorch, as peers of gpu-bench

    python3 tests/gpu/peers.py [--tiny] [--device cuda|cpu] [--out DIR]

The shapes of tests/gpu/bench_attn.c and bench_gemm.c, with cold caches: a
buffer larger than the L2 is read before each run, and runs are timed by events.

    sdpa     scaled_dot_product_attention over gathered, contiguous KV: what a
             reader without paging would take; decode and causal prefill
    flex     FlexAttention, compiled, over KV in blocks by a page table
    gemm     torch.matmul from bf16 to bf16 (cuBLAS)

Writes DIR/peers.json in the form of make bench. Exit status: 77 without torch
or without a GPU, unless --device cpu; 1 when a figure failed.
"""
import argparse
import json
import os
import statistics
import sys
import time

figures = []
failures = 0


def emit(name, values, unit, note=None):
    value = statistics.median(values)
    figure = {"name": name, "value": value, "unit": unit, "low": min(values),
              "high": max(values), "repeats": len(values)}
    if note:
        figure["note"] = note
    figures.append(figure)
    print(f"{name:<44} {value:12.5g} {unit}", flush=True)


def attempt(name, fn):
    """A peer that fails is a line, not the end."""
    global failures
    try:
        fn()
    except Exception as e:  # torch raises many types for a shape that it cannot do
        failures += 1
        note = str(e).split("\n")[0][:200]
        figures.append({"name": f"{name}.failed", "value": 1,
                        "unit": "failure", "note": note})
        print(f"{name}.failed: {note}", flush=True)


class Timer:
    def __init__(self, torch, device, repeats, flush_bytes):
        self.torch = torch
        self.device = device
        self.repeats = repeats
        self.flush = torch.ones(flush_bytes // 4, device=device)

    def us(self, fn):
        torch = self.torch
        fn()
        fn()
        out = []
        for _ in range(self.repeats):
            self.flush.sum()
            if self.device == "cpu":
                start = time.perf_counter()
                fn()
                out.append(1e6 * (time.perf_counter() - start))
                continue
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record()
            fn()
            end.record()
            torch.cuda.synchronize()
            out.append(1e3 * begin.elapsed_time(end))
        return out


def bf16(torch, device, *shape):
    return torch.randn(*shape, device=device, dtype=torch.bfloat16)


def decode(torch, t, name, batch, ctx, heads):
    q = bf16(torch, t.device, batch, heads, 1, 128)
    k = bf16(torch, t.device, batch, 8, ctx, 128)
    v = bf16(torch, t.device, batch, 8, ctx, 128)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    us = t.us(lambda: sdpa(q, k, v, enable_gqa=True))
    kv = 2 * k.numel() * 2
    emit(f"peer.sdpa.{name}.time", us, "us")
    emit(f"peer.sdpa.{name}", [kv / x / 1e3 for x in us], "GB/s",
         "contiguous KV")


def prefill(torch, t, rows):
    q = bf16(torch, t.device, 1, 32, rows, 128)
    k = bf16(torch, t.device, 1, 8, rows, 128)
    v = bf16(torch, t.device, 1, 8, rows, 128)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    us = t.us(lambda: sdpa(q, k, v, is_causal=True, enable_gqa=True))
    flop = 4 * 32 * 128 * rows * (rows + 1) / 2
    emit(f"peer.sdpa.prefill.{rows}", [flop / x / 1e6 for x in us], "TFLOP/s")


def flex(torch, t, name, batch, ctx, heads):
    """KV of all sequences in one pool, blocks of 128 in random order."""
    from torch.nn.attention.flex_attention import (create_block_mask,
                                                   flex_attention)
    page = 128
    if ctx % page:
        return
    pages = batch * ctx // page
    order = torch.randperm(pages, device=t.device)
    owner = torch.empty(pages, dtype=torch.int64, device=t.device)
    owner[order] = torch.arange(pages, device=t.device) // (ctx // page)
    q = bf16(torch, t.device, 1, heads, batch, 128)
    k = bf16(torch, t.device, 1, 8, pages * page, 128)
    v = bf16(torch, t.device, 1, 8, pages * page, 128)

    def mine(b, h, row, col):
        return owner[col // page] == row

    mask = create_block_mask(mine, None, None, batch, pages * page,
                             device=t.device, BLOCK_SIZE=128)
    run = torch.compile(flex_attention)
    us = t.us(lambda: run(q, k, v, block_mask=mask, enable_gqa=True))
    emit(f"peer.flex.{name}", [2 * 2 * k.numel() / x / 1e3 for x in us],
         "GB/s", "one pool, a row a sequence")


def gemm(torch, t, name, n, k, m):
    x = bf16(torch, t.device, m, k)
    w = bf16(torch, t.device, n, k)
    us = t.us(lambda: torch.matmul(x, w.t()))
    if m >= 256:
        emit(f"peer.gemm.{name}.M{m}", [2 * m * n * k / u / 1e6 for u in us],
             "TFLOP/s")
    else:
        emit(f"peer.gemm.{name}.M{m}", [2 * n * k / u / 1e3 for u in us],
             "GB/s")


SHAPES = [("qkv", 6144, 4096), ("o", 4096, 4096), ("gate_up", 28672, 4096),
          ("down", 4096, 14336), ("head", 128256, 4096)]


def run(torch, t, tiny, seconds):
    start = time.time()

    def left():
        return seconds - (time.time() - start)

    batches, contexts = ([1, 2], [128]) if tiny else \
        ([1, 8, 32, 64, 128], [1024, 8192, 32768])
    for heads in ([8] if tiny else [32, 64]):
        for b in batches:
            for c in contexts:
                name = f"{heads}-8.B{b}.{c // 1024}k"
                if left() > 0:
                    attempt(f"peer.sdpa.{name}",
                            lambda: decode(torch, t, name, b, c, heads))
    for rows in ([64] if tiny else [1024, 2048, 4096, 8192, 16384]):
        attempt(f"peer.prefill.{rows}", lambda: prefill(torch, t, rows))
    for name, n, k in ([("o", 64, 64)] if tiny else SHAPES):
        for m in ([1, 8] if tiny else [1, 4, 8, 16, 32, 64, 128, 256, 512, 4096]):
            if left() > 0 and not (name == "head" and m > 256):
                attempt(f"peer.gemm.{name}.M{m}",
                        lambda: gemm(torch, t, name, n, k, m))
    # Last, since each shape is compiled anew.
    for b, c in ([] if tiny else [(1, 8192), (8, 8192), (32, 8192), (64, 8192)]):
        if left() > 0:
            attempt(f"peer.flex.B{b}.{c // 1024}k",
                    lambda: flex(torch, t, f"32-8.B{b}.{c // 1024}k", b, c, 32))


def main():
    p = argparse.ArgumentParser(description="PyTorch as a peer of gpu-bench")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--out", default=os.environ.get("OUT") or "build/gpu")
    p.add_argument("--seconds", type=float, default=480)
    a = p.parse_args()
    try:
        import torch
    except ImportError:
        print("peers: torch is not installed")
        return 77
    if a.device == "cuda" and not torch.cuda.is_available():
        print("peers: torch sees no GPU")
        return 77
    torch.manual_seed(1)
    t = Timer(torch, a.device, 2 if a.tiny else 15,
              1 << (16 if a.tiny else 28))
    figures.append({
        "name": "machine.torch", "value": time.time(), "unit": "s",
        "note": f"torch {torch.__version__} on " +
                (torch.cuda.get_device_name() if a.device == "cuda" else "cpu"),
    })
    with torch.inference_mode():
        run(torch, t, a.tiny, a.seconds)
    os.makedirs(a.out, exist_ok=True)
    path = os.path.join(a.out, "peers.json")
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(map(json.dumps, figures)) + "\n]\n")
    print(f"figures: {path}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
