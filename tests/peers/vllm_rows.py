#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vllm_rows.py - vLLMs and a kvrt in one pool, pressure, deaths at random, windows, two ranks

usage: vllm_rows.py BUILD MODEL

$ROW names what to run: shared, pressure, deaths, windows or ranks.  $PROMPTS and $DEATHS are the
numbers of prompts (500) and of deaths (100).  Each answer must have the tokens of vLLM alone.
"""
import json
import os
import random
import re
import signal
import statistics
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

from vllm_world import BLOCK, PATIENT, Checks, kvmm_connector, prompts, run

SHARED, OWN = 256, 144
WHOLE = (SHARED + OWN - 1) // BLOCK * BLOCK
GROUP = 10          # prompts with the same beginning
NR = int(os.environ.get("PROMPTS", 500))
DEATHS = int(os.environ.get("DEATHS", 100))


class Kvrt:
    """A kvrt with the same model and pool, which answers over HTTP beside the vLLMs."""

    def __init__(self, world):
        self.log = open(Path(world.folder) / "kvrt.log", "w+")
        self.process = subprocess.Popen(
            [world.build / "kvrt", "serve", "--port", "0", world.model],
            stdout=self.log, stderr=self.log)
        self.port = self._await_port()
        self.stop, self.answers = threading.Event(), []

    def _await_port(self):
        for _ in range(600):
            found = re.search(r"http://[^ ]*:(\d+)", Path(self.log.name).read_text())
            if found:
                return int(found[1])
            time.sleep(0.1)
        raise SystemExit(f"kvrt does not serve:\n{Path(self.log.name).read_text()}")

    def ask(self, prompt):
        body = json.dumps({"model": "demo-model", "prompt": prompt, "max_tokens": 16,
                           "temperature": 0}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)["choices"][0]["text"]

    def begin(self, asked):
        """Ask again and again, in a thread."""
        def work():
            while not self.stop.is_set():
                for i, prompt in enumerate(asked):
                    self.answers.append((i, self.ask(prompt)))
                    self.stop.wait(0.2)

        self.right = [self.ask(prompt) for prompt in asked]
        self.thread = threading.Thread(target=work)
        self.thread.start()

    def end(self, c):
        self.stop.set()
        self.thread.join()
        same = sum(text == self.right[i] for i, text in self.answers)
        c.check("kvrt beside them: the texts it gave alone", same == len(self.answers) > 0,
                f"{same} of {len(self.answers)} answers")
        self.process.terminate()
        self.process.wait()


def arithmetic(nr):
    """What one after another finds: of a group the first prompt nothing, the others the head."""
    return [SHARED if i % GROUP else 0 for i in range(nr)]


def by_turns(vllms, asked):
    """The first half of each group at one vLLM, the other at the other, as one answer.

    Ten groups at a time: a vLLM that waits for an order keeps a core for a second.
    """
    ids, found, seconds = [None] * len(asked), [None] * len(asked), 0
    for first in range(0, len(asked), 10 * GROUP):
        for half, vllm in enumerate(vllms):
            some = [i for i in range(first, min(first + 10 * GROUP, len(asked)))
                    if (i % GROUP >= GROUP // 2) == half]
            out = vllm.run([asked[i] for i in some])
            for i, its, tokens in zip(some, out["ids"], out["found"]):
                ids[i], found[i] = its, tokens
            seconds += out["seconds"]
    return {"ids": ids, "found": found, "seconds": round(seconds, 1)}


def shared(c, world):
    """Two vLLMs and a kvrt share a pool; one vLLM is killed and started again."""
    world.start_daemon("--pool-size", "768M")
    vllms = [world.vllm(name, kvmm_connector(PATIENT)).wait() for name in ("one", "two")]
    alone, kvrt = world.vllm("alone").wait(), Kvrt(world)
    asked = prompts(GROUP, SHARED, OWN, -(-NR // GROUP))[:NR]
    right = alone.run(asked)["ids"]
    kvrt.begin(asked[:4])
    c.answers(f"{NR} prompts by turns", by_turns(vllms, asked), right, arithmetic(NR))
    c.answers("each again at the first vLLM", vllms[0].run(asked), right, [WHOLE] * NR)
    vllms[1].kill()
    vllms[1].start()
    vllms[1].wait()
    c.answers("the second vLLM, killed and started again", vllms[1].run(asked), right, [WHOLE] * NR)
    c.answers("eight at once", vllms[1].run(asked, together=True), right, [WHOLE] * NR)
    kvrt.end(c)
    c.no_faults(vllms)
    print("note: domains:", *(f"{d['name']} {d.get('bytes', '')}"
                              for d in world.stats("domains")))


def daemon_warnings(world):
    text = Path(world.folder, "hold.log").read_text()
    return [line for line in text.splitlines() if "warning" in line][:3]


def gaps(out):
    """Seconds between tokens of an answer, of all answers."""
    return [b - a for times in out["times"] for a, b in zip(times, times[1:])]


def percentile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def pressure(c, world):
    """The pool has room for a tenth of what is asked for; the rest is lower down."""
    nr = min(NR, 200)
    asked = prompts(GROUP, SHARED, OWN, -(-nr // GROUP))[:nr]
    blocks = -(-nr // GROUP) * SHARED // BLOCK + nr * (WHOLE - SHARED + BLOCK) // BLOCK
    whole = blocks * 131072 >> 20
    area = os.path.join(world.folder, "area")
    world.start_daemon("--pool-size", f"{whole // 10}M", "--extent-size", "1M", "--host-size",
                       f"{whole * 3 // 10}M", "--area", f"{area},size={whole * 2}M",
                       "--area-max", f"{whole * 2}M")
    alone, one = world.vllm("alone").wait(), world.vllm("one", kvmm_connector(PATIENT)).wait()
    print(f"note: working set {whole} MiB, pool {whole // 10}, host pool {whole * 3 // 10}")
    right = alone.run(asked)["ids"]
    c.answers("first pass", one.run(asked), right, arithmetic(nr))
    out = one.run(asked)
    c.answers("second pass", out, right)
    share = sum(out["found"]) / (WHOLE * nr)
    c.check("found of what was saved, at least 0.99", share >= 0.99, f"{share:.4f}")
    order, seen = random.Random(3), {"alone": [], "one": []}
    for _ in range(4):
        some = order.sample(range(nr), 24)
        for v in (alone, one):
            out = v.run([asked[i] for i in some], together=True, new=32)
            seen[v.name] += gaps(out)
    for v, g in seen.items():
        print(f"note: {v}: gap between tokens, eight at once: median "
              f"{statistics.median(g) * 1e3:.1f} ms, p99 {percentile(g, 0.99) * 1e3:.1f} ms")
    ratio = percentile(seen["one"], 0.99) / percentile(seen["alone"], 0.99)
    print(f"note: p99 with kvmm under pressure over p99 of vLLM alone: {ratio:.3f} (aim 1.1)")
    print("note: log of the daemon:", *daemon_warnings(world))
    tiers = one.said("KV Transfer metrics").splitlines()
    print("note:", tiers[-1][-300:] if tiers else "no line of metrics")
    c.no_faults([one])


def deaths(c, world):
    """kvmm, swapd and vLLM are killed, kvmm is stopped, the disk is full, at random."""
    disk = os.path.join(world.folder, "disk")
    os.mkdir(disk)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96M", "tmpfs", disk]).returncode == 0
    try:
        _deaths(c, world, disk, mounted)
    finally:
        world.close()
        if mounted:
            subprocess.run(["umount", "-l", disk])


def _deaths(c, world, disk, mounted):
    world.start_daemon("--pool-size", "16M", "--extent-size", "1M", "--host-size", "16M",
                       "--area", f"{disk}/area,size=64M")
    impatient = {"lookup_seconds": 0.5, "load_seconds": 2, "save_seconds": 1, "retry_seconds": 0.5}
    one, two = [world.vllm(n, kvmm_connector(impatient)).wait() for n in ("one", "two")]
    alone = world.vllm("alone").wait()
    asked = prompts(GROUP, SHARED, OWN, 4)
    right = alone.run(asked)["ids"]
    alone.close()
    events, rng, nr = {}, random.Random(5), 0
    said = {"answers": 0, "same": 0, "found": 0}
    print("note: a disk that is full is left out: no mount") if not mounted else None
    while nr < DEATHS:
        stop = threading.Event()
        thread = threading.Thread(target=ask, args=((one, two), asked, right, rng.random(), stop, said))
        thread.start()
        burst = min(10, DEATHS - nr)
        for _ in range(burst):
            time.sleep(rng.uniform(0.2, 2.5))
            name = one_event(world, rng, disk if mounted else None)
            events[name] = events.get(name, 0) + 1
        stop.set()
        thread.join()
        nr += burst
        if nr % 50 == 0:
            two.kill()      # in the middle of nothing; the next one is killed in a request
            two.start()
            two.wait()
            events["kill -9 of a vLLM"] = events.get("kill -9 of a vLLM", 0) + 1
    print(f"note: {events}, {said['found']} tokens found")
    c.check("answers during all of it have the tokens of vLLM alone",
            said["same"] == said["answers"] > 0, f"{said['same']} of {said['answers']}")
    killed_in_a_request(c, world, one, two, asked, right)
    time.sleep(3)
    one.run(asked)
    out = one.run(asked)
    c.answers("afterwards", out, right)
    c.check("afterwards something is found", sum(out["found"]) > 0, sum(out["found"]))
    c.no_faults((one, two))
    no_leak(c, world)


def ask(vllms, asked, right, seed, stop, said):
    rng = random.Random(seed)
    while not stop.is_set():
        some = rng.sample(range(len(asked)), 6)
        out = rng.choice(vllms).run([asked[i] for i in some], together=rng.random() < 0.5)
        said["answers"] += len(some)
        said["same"] += sum(a == right[i] for a, i in zip(out["ids"], some))
        said["found"] += sum(out["found"])


def one_event(world, rng, disk):
    name = rng.choice(["kill -9 of kvmm", "kill -9 of swapd", "SIGSTOP of kvmm", "disk full"])
    if name == "disk full" and disk:
        try:
            with open(os.path.join(disk, "filler"), "wb") as f:
                f.write(bytes(96 << 20))
        except OSError:
            pass
        time.sleep(rng.uniform(0.1, 1))
        os.unlink(os.path.join(disk, "filler"))
    elif name == "SIGSTOP of kvmm":
        pid = world.signal("kvmm", signal.SIGSTOP)
        time.sleep(rng.choice([0.05, 0.3, 3]))
        if pid:
            os.kill(pid, signal.SIGCONT)
    else:
        world.signal("swapd" if name.endswith("swapd") else "kvmm")
    return name


def killed_in_a_request(c, world, one, two, asked, right):
    thread = threading.Thread(target=lambda: two.process.stdin.write(json.dumps(
        {"chats": [[p] for p in asked], "together": True, "new": 64}) + "\n") or
        two.process.stdin.flush())
    thread.start()
    time.sleep(0.7)
    two.kill()
    thread.join()
    c.answers("a vLLM is killed in the middle of requests; the other one", one.run(asked), right)


def no_leak(c, world):
    """When the vLLMs are gone, no client is left and the ledger balances."""
    for v in world.vllms:
        if v.process.poll() is None:
            v.close()
    for _ in range(100):
        if not world.stats("clients"):
            break
        time.sleep(0.1)
    c.check("no client is left", world.stats("clients") == [])
    walk = subprocess.run([world.build / "kvctl", "check"], capture_output=True, text=True)
    c.check("the daemon's walkers find no fault", walk.returncode == 0,
            (walk.stdout + walk.stderr).strip()[:200])


WINDOWS = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": 4096,
           "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 6,
           "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
           "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 1024,
           "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_local_base_freq": 10000.0,
           "sliding_window": 96, "query_pre_attn_scalar": 64, "torch_dtype": "float32",
           "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
           "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "initializer_range": 0.3}


def windows(c, world):
    """A hybrid model, with vLLM's hybrid cache manager."""
    world.start_daemon("--pool-size", "256M")
    model = os.path.join(world.folder, "windows")
    os.mkdir(model)
    Path(model, "config.json").write_text(json.dumps(WINDOWS))
    config = {"load_format": "dummy"}
    alone = world.vllm("alone", None, model, **config).wait()
    one, two = [world.vllm(n, kvmm_connector(PATIENT), model, **config).wait()
                for n in ("one", "two")]
    asked = prompts(GROUP, SHARED, OWN, 4)
    nr = len(asked)
    right = alone.run(asked)["ids"]
    c.check("the answers differ from each other", len(set(map(tuple, right))) > nr // 2,
            len(set(map(tuple, right))))
    c.answers("windows, first", one.run(asked), right, arithmetic(nr))
    c.answers("windows, the second vLLM", two.run(asked), right, [WHOLE] * nr)
    c.answers("windows, at once", two.run(asked, together=True), right, [WHOLE] * nr)
    longer = [p + r + p[:40] for p, r in zip(asked, right)]
    right2 = alone.run(longer)["ids"]
    c.answers("windows, the answer is found too", two.run(longer), right2,
              [(SHARED + OWN + 15) // BLOCK * BLOCK] * nr)
    world.signal("kvmm")
    c.answers("windows, kill -9", one.run(asked, together=True), right)
    groups = one.said("groups") or "no line"
    print("note:", groups.splitlines()[-1][-200:])
    c.no_faults((one, two))


def ranks(c, world):
    """Tensor parallelism over two workers."""
    world.start_daemon("--pool-size", "256M")
    config = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    world.env["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    world.env["OMP_NUM_THREADS"] = "1"
    alone = world.vllm("alone", None, **config).wait()
    asked = prompts(GROUP, SHARED, OWN, 2)
    nr = len(asked)
    right = alone.run(asked)["ids"]
    alone.close()
    # Workers of two ranks spin on two cores, and the daemon may get none for a second.
    one = world.vllm("one", kvmm_connector({**PATIENT, "lookup_seconds": 10}), **config).wait()
    c.answers("two ranks, first", one.run(asked), right, arithmetic(nr))
    c.answers("two ranks, again", one.run(asked, together=True), right, [WHOLE] * nr)
    one.kill()
    one.start()
    one.wait()
    c.answers("two ranks, killed and started again", one.run(asked), right, [WHOLE] * nr)
    world.signal("kvmm")
    c.answers("two ranks, kill -9 of kvmm", one.run(asked, together=True), right)
    c.no_faults([one])


ROWS = {"shared": shared, "pressure": pressure, "deaths": deaths, "windows": windows, "ranks": ranks}


def row(world):
    c, one = Checks(), ROWS[os.environ["ROW"]]
    print(f"note: {one.__doc__}", flush=True)
    one(c, world)
    return c.end()


if __name__ == "__main__":
    run(row)
